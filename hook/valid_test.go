package hook

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// pad makes a document long enough for strings to be looked at apart.
func pad(doc string) []byte {
	return []byte(`["` + strings.Repeat("x", large) + `",` + doc + `]`)
}

func TestValidIsJSONs(t *testing.T) {
	docs := []string{`"a"`, `"\n\"\\\/\u00e9"`, `"\u12"`, `"\u12g4"`, `"\x"`, `"` + "\x01" + `"`, `"` + "12345678\x1f" + `"`, `"` + "\x7f\x80\xff" + `"`, `"a`, `a"`, `"a""b"`,
		`{"a":1,"b":[true,null,-1.5e3]}`, `{"a" 1}`, `{a:1}`, `"` + strings.Repeat(`\n`, 3000) + `"`, `"` + strings.Repeat(`\"`, 3000) + `"`, `"\`, `"\u`, `tru"e"`, `1"2"`, ``}
	for _, doc := range docs {
		if raw := pad(doc); valid(raw) != json.Valid(raw) {
			t.Errorf("%.60q: %v, encoding/json says %v", doc, valid(raw), json.Valid(raw))
		}
	}
}

func FuzzValid(f *testing.F) {
	for _, doc := range []string{`"a\n"`, `{"k":["v",1]}`, `"\u00e9"`, `"`, `\`} {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		raw := pad(string(doc))
		if valid(raw) != json.Valid(raw) {
			t.Errorf("%q: %v, encoding/json says %v", doc, valid(raw), json.Valid(raw))
		}
	})
}

func BenchmarkValid(b *testing.B) {
	raw, err := json.Marshal(strings.Split(strings.Repeat(strings.Repeat("What about the appointment on Monday?\n", 51)+"\x00", 100), "\x00"))
	if err != nil {
		b.Fatal(err)
	}
	raw = bytes.ReplaceAll(raw, []byte(`\u0000`), nil)
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		if !valid(raw) {
			b.Fatal("not valid")
		}
	}
}
