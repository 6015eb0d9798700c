package gateway

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

func TestEdits(t *testing.T) {
	for name, tt := range map[string]struct {
		raw, want string
		set       []string // keys and values, in turn
	}{
		"a value is replaced":      {`{"model":"a","n":1}`, `{"model":"b","n":1}`, []string{"model", `"b"`}},
		"all else stays":           {" {\n\t\"z\" : 12345678901234567890.1e+2 ,\"model\"\n:\t\"a\" , \"é\\u0000\":[1, {\"model\":\"no\"}]} \n", " {\n\t\"z\" : 12345678901234567890.1e+2 ,\"model\"\n:\t\"b\" , \"é\\u0000\":[1, {\"model\":\"no\"}]} \n", []string{"model", `"b"`}},
		"a key is added":           {`{"model":"a"}`, `{"x":1,"model":"a"}`, []string{"x", "1"}},
		"to an empty object":       {` { } `, ` {"x":1 } `, []string{"x", "1"}},
		"two to an empty object":   {`{}`, `{"y":2,"x":1}`, []string{"x", "1", "y", "2"}},
		"several at once":          {`{"a":null,"model":"a","b":true}`, `{"x":1,"a":[],"model":"m","b":0}`, []string{"model", `"m"`, "x", "1", "b", "0", "a", "[]"}},
		"a key with an escape":     {`{"mod\u0065l":"a"}`, `{"mod\u0065l":"b"}`, []string{"model", `"b"`}},
		"values that look like it": {`{"s":"\\\"}, \"model\":","l":["]","\\"],"model":1}`, `{"s":"\\\"}, \"model\":","l":["]","\\"],"model":2}`, []string{"model", "2"}},
		"a value at the end":       {`{"model":-0.5e3}`, `{"model":1}`, []string{"model", "1"}},
		"nothing":                  {`{"model":1}`, `{"model":1}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := parse([]byte(tt.raw))
			if err != nil {
				t.Fatal(err)
			}
			for i := 0; i < len(tt.set); i += 2 {
				d.set(tt.set[i], tt.set[i+1])
			}
			if got := string(d.bytes()); got != tt.want {
				t.Errorf("got %s", got)
			}
			if string(d.raw) != tt.raw {
				t.Error("the request was written into")
			}
		})
	}
}

func TestNoDocument(t *testing.T) {
	for raw, want := range map[string]string{
		"": "no JSON", "nul": "no JSON", `{"a":1,}`: "no JSON", `{"a":1}{}`: "no JSON", "[1]": "no JSON object", "null": "no JSON object",
		`{"a":1,"b":2,"a":1}`: "a key twice", `{"a":1,"\u0061":1}`: "a key twice",
		`{"`: "no JSON", `{"a"`: "no JSON", `{"a":`: "no JSON", `{"a":1`: "no JSON", `{"a":01}`: "no JSON", `{"a":1.}`: "no JSON", `{"a":1e}`: "no JSON", `{"a":-}`: "no JSON", `{"a":nul}`: "no JSON",
		`{"a":"\x"}`: "no JSON", `{"a":"\u00g0"}`: "no JSON", "{\"a\":\"\n\"}": "no JSON", `{"a" 1}`: "no JSON", `{"a":[1 2]}`: "no JSON", `{"a":[1,]}`: "no JSON", `{,}`: "no JSON", "\v{}": "no JSON",
		strings.Repeat("[", maxDepth+2) + strings.Repeat("]", maxDepth+2): "no JSON",
	} {
		if _, err := parse([]byte(raw)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", raw, err)
		}
	}
	var many strings.Builder
	for i := range maxFields + 1 {
		many.WriteString(`,"` + strings.Repeat("k", i+1) + `":0`)
	}
	if _, err := parse([]byte("{" + many.String()[1:] + "}")); err == nil {
		t.Error("an object of too many keys was taken")
	}
}

func TestMisspeltKeys(t *testing.T) {
	for key, want := range map[string]string{"Model": "model", "MODEL": "model", "\u017ftream": "stream", "model": "", "models": "", "mode": ""} {
		raw, err := json.Marshal(map[string]int{key: 1})
		if err != nil {
			t.Fatal(err)
		}
		d, err := parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		if got := d.misspelt("model", "stream"); got != want {
			t.Errorf("%s: %q", key, got)
		}
	}
}

func TestEstimates(t *testing.T) {
	picture := strings.Repeat("iVBORw0KGgo+/", 40_000)
	for name, tt := range map[string]struct {
		raw          string
		tools        bool
		likely, most int // most: 0 for the length
	}{
		"English":      {`{"content":"four and four and"}`, false, 5, 0},
		"Chinese":      {`{"content":"你好"}`, false, 2, 0},
		"keys are not": {`{"a very long key":1}`, false, 0, 0},
		"with tools":   {`{"content":"word"}`, true, 1, 18 + toolTokens},
		"a picture":    {`{"type":"image","data":"` + picture + `"}`, false, 2 + fileTokens/4, 26 + fileTokens + len(picture)/fileBytes},
		"a data URL":   {`{"url":"data:image/png;base64,` + picture + `"}`, false, fileTokens / 4, 10 + fileTokens + (22+len(picture))/fileBytes},
		"a URL":        {`{"image_url":{"url":"https://x.y/z.png"},"a":"word"}`, false, fileTokens/4 + 1, 52 + fileTokens},
		"a file":       {`{"file_id":"file-1"}`, false, fileTokens / 4, 20 + fileTokens},
		"no URL":       {`{"url":"none"}`, false, 1, 0},
		"a long text":  {`{"content":"` + picture + `"}`, false, len(picture) / 4, 0},
		"text as data": {`{"data":"` + strings.Repeat("some words ", 1000) + `"}`, false, 2750, 0},
	} {
		if tt.most == 0 {
			tt.most = len(tt.raw)
		}
		if got := inputLikely([]byte(tt.raw)); got != tt.likely {
			t.Errorf("%s: likely %d, not %d", name, got, tt.likely)
		}
		if got := inputAtMost([]byte(tt.raw), tt.tools); got != tt.most {
			t.Errorf("%s: at most %d, not %d", name, got, tt.most)
		}
	}
}

func FuzzRequests(f *testing.F) {
	for _, s := range []string{
		`{"model":"m","messages":[{"role":"user","content":"\"model\":1"}],"stream":true,"stream_options":{"include_obfuscation":false}}`,
		` { "stream_options" : null , "n" : 18446744073709551616, "model":"a","m\u0061x_tokens":null } `,
		`{"a":{"b":[{},[],"\\",-0.1e2]},"Model":1}`, `{}`,
		`{"system":[{"type":"text","text":"a"}],"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":"x"}]},{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"t","input":{}}]}],"tools":[{"name":"t","input_schema":{}}]}`,
	} {
		f.Add([]byte(s), true)
	}
	f.Fuzz(func(t *testing.T, raw []byte, stream bool) {
		before := bytes.Clone(raw)
		inputAtMost(raw, true) // of any bytes
		var u tokens
		u.addAnswer(raw)
		if n := inputLikely(raw); n < 0 || n > len(raw)+fileTokens {
			t.Fatal(n)
		}
		d, err := parse(raw)
		if p := (parser{raw}); json.Valid(raw) != (p.value(p.space(0), 0) >= 0 && p.space(p.value(p.space(0), 0)) == len(raw)) {
			t.Fatalf("%s is JSON: %v", raw, json.Valid(raw))
		}
		if err != nil {
			return
		}
		if q, err := fromMessages(d); err == nil && !json.Valid(q.Messages) {
			t.Fatalf("%s became %s", raw, q.Messages)
		}
		want := values(t, raw)
		d.set("model", `"gpt"`)
		want["model"] = `"gpt"`
		d.set("max_tokens", "7")
		want["max_tokens"] = "7"
		if stream {
			old := d.value("stream_options")
			if wantUsage(d) {
				options := map[string]string{}
				if old != nil {
					options = values(t, old)
				}
				options["include_usage"] = "true"
				got := values(t, d.bytes())
				if sub := values(t, []byte(got["stream_options"])); !reflect.DeepEqual(sub, options) {
					t.Fatalf("%s became %s", old, got["stream_options"])
				}
				want["stream_options"] = got["stream_options"]
				d.set("stream_options", got["stream_options"])
				d.set("model", `"gpt"`)
				d.set("max_tokens", "7")
			}
		}
		got := d.bytes()
		if !bytes.Equal(raw, before) {
			t.Fatal("the request was written into")
		}
		if !json.Valid(got) {
			t.Fatalf("%s became %s", raw, got)
		}
		if have := values(t, got); !reflect.DeepEqual(have, want) {
			t.Fatalf("%s became %s", raw, got)
		}
	})
}

// values gives the keys of an object with their raw values.
func values(t *testing.T, raw []byte) map[string]string {
	t.Helper()
	var all map[string]json.RawMessage
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatalf("%v in %s", err, raw)
	}
	out := map[string]string{}
	for k, v := range all {
		out[k] = string(v)
	}
	return out
}
