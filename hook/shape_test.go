package hook

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"testing"
	"unicode/utf8"
)

// The cases are shared with the Python package: see spec/cases/README.md.
func TestShapes(t *testing.T) {
	data, err := os.ReadFile("../spec/cases/shapes.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Shape Shape  `json:"shape"`
		JSON  string `json:"json"`
		Fits  bool   `json:"fits"`
		Why   string `json:"why"`
	}
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	seen := map[Shape]map[bool]int{}
	for _, c := range cases {
		if err := c.Shape.fits(json.RawMessage(c.JSON)); (err == nil) != c.Fits {
			t.Errorf("%s %s: got %v, want fits=%v (%s)", c.Shape, c.JSON, err, c.Fits, c.Why)
		}
		if seen[c.Shape] == nil {
			seen[c.Shape] = map[bool]int{}
		}
		seen[c.Shape][c.Fits]++
	}
	for _, s := range []Shape{Text, TextOrNull, Bool, Whole, NumOrNull, Object, Objects, Texts, Passages, ToolCalls, Any} {
		if seen[s][true] == 0 || seen[s][false] == 0 {
			t.Errorf("%s has %d cases that fit and %d that do not", s, seen[s][true], seen[s][false])
		}
	}
	if err := Any.fits(json.RawMessage("\"\xff\"")); err == nil {
		t.Error("text that is not UTF-8 fits") // which spec/cases cannot say
	}
	if err := Shape("tea").fits(json.RawMessage(`1`)); err == nil {
		t.Error("an unknown shape fits")
	}
}

func TestFinite(t *testing.T) {
	for raw, want := range map[string]bool{"0": true, " -1.5e3 ": true, "9007199254740993": true, "1e999": false, `"1"`: false, "true": false, "null": false, "NaN": false, "": false, "[1]": false, "1 2": false} {
		if Finite(json.RawMessage(raw)) != want {
			t.Errorf("%q: want %v", raw, want)
		}
	}
}

func TestAShapesErrorSaysWhatButNotTheValue(t *testing.T) {
	for _, c := range []struct {
		shape Shape
		raw   string
		want  string
	}{
		{Text, `{"secret":1}`, "want a string, got an object"},
		{Objects, `[{},"secret"]`, "item 1: want an object, got a string"},
		{ToolCalls, `[{"tool_name":"a","tool_args":{}},{"tool_name":"a"}]`, `item 1: want an object under "tool_args", got nothing`},
		{Passages, `[{"text":null}]`, `item 0: want a string under "text", got null`},
		{Object, `{"secret"`, "the value is not JSON"},
	} {
		if err := c.shape.fits(json.RawMessage(c.raw)); err == nil || err.Error() != c.want {
			t.Errorf("%s %s: got %v, want %s", c.shape, c.raw, err, c.want)
		}
	}
}

// The walkers see what encoding/json sees.
func FuzzWalkers(f *testing.F) {
	for _, seed := range []string{`[]`, `[1, "a\\\"b" ,{"k":[true,null,"]"]}]`, `{"a":{"b":"\\"},"\u0061":[{}],"":-1.5e3}`, ` [ {} , [ ] ,"" ] `, `"x"`, `[[[["\"]"]]]]`, `{"a" : 1 , "b" : "c" }`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if !json.Valid(raw) {
			return
		}
		raw = bytes.Trim(raw, space)
		switch raw[0] {
		case '[':
			var want []json.RawMessage
			if err := json.Unmarshal(raw, &want); err != nil {
				t.Skip()
			}
			var got []json.RawMessage
			if err := eachItem(raw, "a list", func(item []byte) error { got = append(got, item); return nil }); err != nil {
				t.Fatal(err)
			}
			if len(got) != len(want) {
				t.Fatalf("got %q, want %q", got, want)
			}
			for i := range got {
				if !bytes.Equal(got[i], want[i]) {
					t.Fatalf("item %d is %q, want %q", i, got[i], want[i])
				}
			}
		case '{':
			var want map[string]json.RawMessage
			if err := json.Unmarshal(raw, &want); err != nil {
				t.Skip()
			}
			got := map[string]json.RawMessage{}
			eachMember(raw, func(key, value []byte) {
				if utf8.Valid(key) {
					got[unquote(key)] = value
				}
			})
			if utf8.Valid(raw) && !reflect.DeepEqual(got, want) {
				t.Fatalf("got %q, want %q", got, want)
			}
		}
		if _, twice := doubledKey(raw); twice != doubled(t, raw) && utf8.Valid(raw) {
			t.Fatalf("doubledKey says %v", twice)
		}
		for _, s := range []Shape{Text, TextOrNull, Bool, Whole, NumOrNull, Object, Objects, Texts, Passages, ToolCalls, Any} {
			_ = s.fits(raw)
		}
	})
}

// doubled says by encoding/json's tokens whether some object has a key twice.
func doubled(t *testing.T, raw []byte) bool {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	type level struct {
		keys  map[string]bool // nil of a list
		value bool            // a value comes next, not a key
	}
	var open []*level
	for {
		token, err := d.Token()
		if err != nil {
			return false
		}
		if n := len(open); n > 0 && open[n-1].keys != nil {
			top := open[n-1]
			if key, ok := token.(string); ok && !top.value {
				if top.keys[key] {
					return true
				}
				top.keys[key], top.value = true, true
				continue
			}
			top.value = false
		}
		switch token {
		case json.Delim('{'):
			open = append(open, &level{keys: map[string]bool{}})
		case json.Delim('['):
			open = append(open, &level{})
		case json.Delim('}'), json.Delim(']'):
			open = open[:len(open)-1]
		}
	}
}

// Two values are the same exactly when encoding/json would write them alike.
func FuzzSameJSON(f *testing.F) {
	for _, seed := range [][2]string{{`{}`, ` { } `}, {`"<"`, `"\u003c"`}, {`"<\u003c"`, `"\u003c<"`}, {`["a b"]`, `["ab"]`}, {"\"\u2028\"", `"\u2028"`}, {`[1,2]`, `[1, 2]`}, {`[12]`, `[1,2]`}, {`"\""`, `"\"" `}} {
		f.Add([]byte(seed[0]), []byte(seed[1]))
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		if !json.Valid(a) || !json.Valid(b) {
			return
		}
		if got, want := sameJSON(a, b), bytes.Equal(canonical(a), canonical(b)); got != want || sameJSON(b, a) != got {
			t.Fatalf("%q and %q: got %v, want %v", a, b, got, want)
		}
		again, err := json.Marshal(json.RawMessage(a))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(again, canonical(a)) || !bytes.Equal(canonical(again), again) || !sameJSON(a, again) {
			t.Fatalf("%q is written as %q, canonical is %q", a, again, canonical(a))
		}
	})
}

func TestAMissingValueIsLikeNoOther(t *testing.T) {
	if sameJSON(nil, []byte(`null`)) || sameJSON([]byte(`""`), nil) || !sameJSON(nil, nil) {
		t.Error("it is")
	}
}
