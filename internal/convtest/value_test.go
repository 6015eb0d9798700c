package convtest

import (
	"encoding/json"
	"math/rand/v2"
	"testing"

	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/rawjson"
	"github.com/belay-run/belay/internal/yamlfile"
)

func TestWithin(t *testing.T) {
	for _, c := range []struct {
		want, got string
		ok        bool
	}{
		{`{}`, `{"a":1}`, true},
		{`{"a":1}`, `{"a":1.0,"b":2}`, true},
		{`{"a":1}`, `{"a":"1"}`, false},
		{`{"a":null}`, `{}`, true},
		{`{"a":null}`, `{"a":0}`, false},
		{`{"a":{"b":true}}`, `{"a":{"b":true,"c":1}}`, true},
		{`[1,2]`, `[1,2,3]`, false},
		{`[{"a":1}]`, `[{"a":1,"b":2}]`, true},
		{`9007199254740993`, `9007199254740992`, false},
		{`"a"`, `"a"`, true},
		{`{"a":1}`, `"text"`, false},
		{`false`, `null`, false},
	} {
		if within(decode([]byte(c.want)), decode([]byte(c.got))) != c.ok {
			t.Errorf("%s within %s: want %v", c.want, c.got, c.ok)
		}
	}
}

// TestValuesSurvive writes drawn values as YAML and reads them again.
func TestValuesSurvive(t *testing.T) {
	texts := []string{"", "yes", "null", "- a", "a: b", "# c", "{x}", "'q'", `"d"`, "two\nlines\n", "tab\t", "é😀\u2028\u0085\ufeff", "\x00\x1b[31m", "1e5", "~", "*a", "&b", "!c", "@d", "%e", " padded ", "<b>&</b>", "\ufffd"}
	numbers := []string{"0", "-0", "1", "-17", "3.5", "1e5", "1E-7", "123456789012345678901234567890", "0.1", "18446744073709551615", "1.0"}
	r := rand.New(rand.NewPCG(1, 2))
	var draw func(depth int) any
	draw = func(depth int) any {
		switch n := r.IntN(8); {
		case n == 0 && depth < 4:
			out := map[string]any{}
			for range r.IntN(4) {
				out[texts[r.IntN(len(texts))]] = draw(depth + 1)
			}
			return out
		case n == 1 && depth < 4:
			out := []any{}
			for range r.IntN(4) {
				out = append(out, draw(depth+1))
			}
			return out
		case n < 4:
			return json.Number(numbers[r.IntN(len(numbers))])
		case n == 4:
			return r.IntN(2) == 0
		case n == 5:
			return nil
		}
		return texts[r.IntN(len(texts))]
	}
	asText := 0
	for range 3000 {
		raw := rawjson.Must(draw(0))
		written := flow(raw)
		var found []finding.Finding
		n := yamlfile.NewReader("", &found).Parse([]byte("x: " + written + "\n"))
		if n == nil || len(found) > 0 {
			t.Fatalf("%s was written as %s, which cannot be read: %+v", raw, written, found)
		}
		got, _ := encode(n.Fields[0].Value)
		if same(raw, got) {
			continue
		}
		asText++
		if v := n.Fields[0].Value; v.Kind != yamlfile.Text || !same(json.RawMessage(v.Text), raw) {
			t.Fatalf("%s was written as %s and read as %s", raw, written, got)
		}
	}
	if asText > 300 {
		t.Errorf("%d of 3000 values had to be written as a text", asText)
	}
	for _, text := range texts {
		if text == "" {
			continue
		}
		var found []finding.Finding
		n := yamlfile.NewReader("", &found).Parse([]byte("x: " + scalar(text) + "\n"))
		if n == nil || n.Fields[0].Value.Kind != yamlfile.Text || n.Fields[0].Value.Text != text {
			t.Errorf("%q was written as %s and read as %+v", text, scalar(text), n)
		}
	}
}

func TestDifference(t *testing.T) {
	for _, c := range []struct {
		want, got string
		diff      string
	}{
		{"abc", "abc", ""},
		{"", "", ""},
		{"abc", "axc", " a-b+x c"},
		{"ab", "abc", " a b+c"},
		{"abc", "bc", "-a b c"},
		{"", "a", "+a"},
		{"a", "", "-a"},
	} {
		same := func(a, b *byte) bool { return *a == *b }
		f := difference("x", 1, []byte(c.want), []byte(c.got), same, func(a *byte) string { return string(*a) }, func(_ *byte, b *byte) string { return string(*b) })
		got := ""
		if f != nil {
			for _, d := range f.Diff {
				got += d.Mark + d.Text
			}
		}
		if got != c.diff {
			t.Errorf("%q beside %q: %q, want %q", c.want, c.got, got, c.diff)
		}
	}
}
