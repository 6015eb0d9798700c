package secret

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func testKey(t testing.TB) Key {
	t.Helper()
	k, err := NewKey(bytes.Repeat([]byte{7}, 32))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// scanner knows values by the names a, b, c…
func scanner(t testing.TB, values ...string) *Scanner {
	t.Helper()
	k := testKey(t)
	var all []Entry
	for i, v := range values {
		p, err := k.Prints([]byte(v))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, Entry{Name: string(rune('a' + i)), Prints: p})
	}
	return NewScanner(k, all)
}

const value = `sk-Fz/9"k>+é` + "\n" + `~Q 7?x`

func TestEachForm(t *testing.T) {
	s := scanner(t, value)
	raw, _ := json.Marshal(value)
	plain := bytes.Trim(raw, `"`)
	twice, _ := json.Marshal(string(plain))
	crlf := strings.ReplaceAll(value, "\n", "\r\n")
	for _, c := range []struct {
		form Form
		text string
	}{
		{Plain, value}, {Newlines, crlf}, {Hex, hex.EncodeToString([]byte(value))}, {Hex, strings.ToUpper(hex.EncodeToString([]byte(value)))},
		{Base64, base64.StdEncoding.EncodeToString([]byte(value))}, {Base64, base64.RawStdEncoding.EncodeToString([]byte(value))},
		{Base64URL, base64.URLEncoding.EncodeToString([]byte(value))},
		{Percent, url.QueryEscape(value)}, {Percent, url.PathEscape(value)}, {Percent, strings.ToLower(url.QueryEscape("a"))[1:] + percent(value, "", true)},
		{JSON, string(plain)}, {JSON, string(bytes.Trim(twice, `"`))}, {JSON, `sk-Fz\/9\"k>+\u00e9\n~Q 7?x`},
		{Base64, base64.StdEncoding.EncodeToString([]byte(crlf))}, {Hex, hex.EncodeToString([]byte(crlf))}, {Percent, url.QueryEscape(crlf)},
	} {
		for offset := range 9 {
			before := strings.Repeat("é", offset)
			got := s.Scan(before + c.text + " after")
			want := []Finding{{Start: offset, End: offset + utf8.RuneCountInString(c.text), Name: "a", Form: c.form}}
			if !slices.Equal(got, want) {
				t.Fatalf("%s %q at %d: %+v, not %+v", c.form, c.text, offset, got, want)
			}
		}
	}
}

// TestAlignments encodes the value as a part of something: what is found covers every
// character that has a bit of it.
func TestAlignments(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.SliceOfN(rapid.Byte(), MinValue, 60).Filter(func(b []byte) bool { return len(bytes.TrimSpace(b)) == len(b) }).Draw(t, "value")
		before, after := rapid.SliceOfN(rapid.Byte(), 0, 12).Draw(t, "before"), rapid.SliceOfN(rapid.Byte(), 0, 12).Draw(t, "after")
		k, _ := NewKey(make([]byte, 32))
		p, err := k.Prints(v)
		if err != nil {
			t.Fatal(err)
		}
		s := NewScanner(k, []Entry{{Name: "a", Prints: p}})
		enc := rapid.SampledFrom([]*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding}).Draw(t, "encoding")
		text := enc.EncodeToString(slices.Concat(before, v, after))
		from, to := len(before)*8/6, ((len(before)+len(v))*8+5)/6
		for to < len(text) && text[to] == '=' {
			to++
		}
		got := s.Scan("é" + text)
		if !slices.ContainsFunc(got, func(f Finding) bool { return f.Start == from+1 && f.End == to+1 }) {
			t.Fatalf("%d..%d of %q: found %+v", from, to, text, got)
		}
	})
}

// TestAnywhere plants forms of secrets in random text, scanned whole, cut into
// writes, and in JSON, and wants exactly them.
func TestAnywhere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var values [][]byte
		k, _ := NewKey(make([]byte, 32))
		var all []Entry
		for i := range rapid.IntRange(1, 4).Draw(t, "secrets") {
			v := rapid.SliceOfN(rapid.ByteRange(33, 126), MinValue, 40).Draw(t, "value")
			values = append(values, v)
			p, err := k.Prints(v)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, Entry{Name: fmt.Sprint(i), Prints: p})
		}
		s := NewScanner(k, all)
		var b strings.Builder
		type place struct {
			start, end int
			name       string
		}
		var want []place
		for range rapid.IntRange(0, 5).Draw(t, "places") {
			b.WriteString(rapid.StringN(0, 30, 60).Draw(t, "filler"))
			b.WriteString(" ")
			i := rapid.IntRange(0, len(values)-1).Draw(t, "which")
			forms, _ := shapes(values[i])
			f := rapid.SampledFrom(forms).Draw(t, "form")
			want = append(want, place{b.Len(), b.Len() + len(f.text), fmt.Sprint(i)})
			b.Write(f.text)
			b.WriteString(" ")
		}
		text := b.String()
		var hits []Hit
		stream := s.Stream(func(h Hit) { hits = append(hits, h) })
		for at := 0; at < len(text); {
			n := min(rapid.IntRange(1, 40).Draw(t, "cut"), len(text)-at)
			fmt.Fprint(stream, text[at:at+n])
			at += n
		}
		stream.Close()
		whole := s.Scan(text)
		raw, _ := json.Marshal(map[string]any{"x": []any{1, text}})
		found, err := s.ScanJSON(raw, "/result")
		if err != nil {
			t.Fatal(err)
		}
		if len(whole) != len(hits) || len(whole) != len(found) {
			t.Fatalf("of %q a scan finds %+v, a stream %+v, a scan of JSON %+v", text, whole, hits, found)
		}
		for i, f := range found {
			w := whole[i]
			w.Path = "/result/x/1"
			if f != w {
				t.Fatalf("in JSON it is %+v, else %+v", f, whole[i])
			}
		}
		for _, p := range want {
			start, end := utf8.RuneCountInString(text[:p.start]), utf8.RuneCountInString(text[:p.end])
			if !slices.ContainsFunc(whole, func(f Finding) bool { return f.Start <= start && f.End >= end && f.Name == p.name }) {
				t.Fatalf("%+v in %q was not found: %+v", p, text, whole)
			}
			if !slices.ContainsFunc(hits, func(h Hit) bool { return h.Start <= p.start && h.End >= p.end && h.Name == p.name }) {
				t.Fatalf("%+v was not found in a stream: %+v", p, hits)
			}
		}
	})
}

func TestNoFalseHit(t *testing.T) {
	positions := 1 << 20
	if !testing.Short() {
		positions = 10_000_000
	}
	r := rand.New(rand.NewChaCha8([32]byte{1}))
	s := scanner(t, randomValues(r, 100)...)
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/%25\\u00"
	text := make([]byte, positions)
	for i := range text {
		text[i] = alphabet[r.IntN(len(alphabet))]
	}
	if got := s.Scan(string(text)); len(got) > 0 {
		t.Fatalf("found %d secrets in random text", len(got))
	}
}

func randomValues(r *rand.Rand, n int) []string {
	out := make([]string, n)
	for i := range out {
		b := make([]byte, 15+r.IntN(18))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		out[i] = []string{"sk_live_", "ghp_", "", "AKIA"}[i%4] + base64.StdEncoding.EncodeToString(b)
	}
	return out
}

func TestOverlapsAndRepeats(t *testing.T) {
	s := scanner(t, "abcdefgh12", "efgh12345678", "abababab")
	for text, want := range map[string]string{
		"abcdefgh12345678":           "a 0-10, b 4-16",
		"abcdefgh12abcdefgh12":       "a 0-10, a 10-20",
		"xababababab":                "c 1-9, c 3-11",
		"abcdefgh1":                  "",
		"é abcdefgh12 é abcdefgh12 ": "a 2-12, a 15-25",
	} {
		var got []string
		for _, f := range s.Scan(text) {
			got = append(got, fmt.Sprintf("%s %d-%d", f.Name, f.Start, f.End))
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("%q: %s, not %s", text, strings.Join(got, ", "), want)
		}
	}
	if got := s.Mask("1 abcdefgh12345678 2 abababab"); got != "1 [secret a][secret b] 2 [secret c]" {
		t.Errorf("masked: %s", got)
	}
}

func TestLinesAreMaskedAndNotFound(t *testing.T) {
	s := scanner(t, "-----BEGIN KEY-----\nMIIBVgIBADANBgkqhkiG\nshort\n-----END KEY-----")
	const text = "-----BEGIN KEY----- MIIBVgIBADANBgkqhkiG short"
	if got := s.Scan(text); got != nil {
		t.Errorf("found %+v", got)
	}
	if got := s.Mask(text); got != "-----BEGIN KEY----- [secret a] short" {
		t.Errorf("masked: %s", got)
	}
	if got := s.Mask("-----BEGIN KEY-----\r\nMIIBVgIBADANBgkqhkiG\r\nshort\r\n-----END KEY-----"); got != "[secret a]" {
		t.Errorf("masked: %s", got)
	}
}

func TestPlacesInJSON(t *testing.T) {
	s := scanner(t, "hush-hush", "12345678901")
	for _, c := range []struct{ raw, want string }{
		{`"hush-hush"`, "/result 0-9"},
		{`{"items":[{"body":"é hush-hush"}, {"a/b~c":" hush-hush "}]}`, "/result/items/0/body 2-11, /result/items/1/a~1b~0c 1-10"},
		{`{"items":["\ud83d\ude00\n\u0068ush-hush", "\\hush-hush"]}`, "/result/items/0 2-11, /result/items/1 1-10"},
		{`{"n": 12345678901, "t":"12345678901"}`, "/result/n 0-11, /result/t 0-11"},
		{`["\ud83dhush-hush","é\"",{"":"hush-hush"}]`, "/result/0 1-10, /result/2/ 0-9"},
		{`["hush","-hush"]`, ""},
		{`{"a":1,"a":2,"b":"x"}`, ""},
		{`[[],{},null,true,"hush-hush"]`, "/result/4 0-9"},
	} {
		var got []string
		found, err := s.ScanJSON([]byte(c.raw), "/result")
		if err != nil {
			t.Fatalf("%s: %v", c.raw, err)
		}
		for _, f := range found {
			got = append(got, fmt.Sprintf("%s %d-%d", f.Path, f.Start, f.End))
		}
		if strings.Join(got, ", ") != c.want {
			t.Errorf("%s: %s, not %s", c.raw, strings.Join(got, ", "), c.want)
		}
	}
	for raw, want := range map[string]error{
		`{"hush-hush":1}`: ErrKey, `[{"a":{"x hush\u002dhush":1}}]`: ErrKey, `{"a":"hush-hush","a":1}`: ErrTwice, `{"a":"hush-hush`: ErrNoJSON, `[hush-hush"hush-hush"`: ErrNoJSON,
		strings.Repeat("[", 20000) + `"hush-hush"`: ErrNoJSON,
	} {
		if got, err := s.ScanJSON([]byte(raw), ""); err == nil || !strings.Contains(err.Error(), want.Error()) || got != nil {
			t.Errorf("%.40s: %v and %v, not %v", raw, got, err, want)
		}
	}
	if got := string(s.MaskJSON([]byte(`{ "a\n":[1, "x hush-hush\n",12345678901] }`))); got != `{ "a\n":[1, "x [secret a]\n","[secret b]"] }` {
		t.Errorf("masked: %s", got)
	}
}

func TestBounds(t *testing.T) {
	var values []string
	for i := range MaxSecrets + 1 {
		values = append(values, fmt.Sprintf("secret-number-%03d", i))
	}
	s := scanner(t, values...)
	list := func(n int) []byte { raw, _ := json.Marshal(values[:n]); return raw }
	if got, err := s.ScanJSON(list(MaxSecrets), ""); err != nil || len(got) != MaxSecrets {
		t.Errorf("%d secrets: %d and %v", MaxSecrets, len(got), err)
	}
	if _, err := s.ScanJSON(list(MaxSecrets+1), ""); err != ErrMany {
		t.Errorf("one more: %v", err)
	}
	many, _ := json.Marshal(strings.Repeat(values[0]+" ", 2000)) // repeats are one secret
	if got, err := s.ScanJSON(many, ""); err != nil || len(got) != 2000 {
		t.Errorf("repeats: %d and %v", len(got), err)
	}
	for _, fill := range []string{"x", "\n"} {
		text := strings.Repeat(fill, MaxText-len(values[0])) + values[0]
		raw, _ := json.Marshal(text)
		if got, err := s.ScanJSON(raw, ""); err != nil || len(got) != 1 || got[0].Start != MaxText-len(values[0]) {
			t.Errorf("16 MiB: %d and %v", len(got), err)
		}
		raw, _ = json.Marshal(text + "x")
		for _, s := range []*Scanner{s, nil} {
			if _, err := s.ScanJSON(raw, ""); err != ErrText {
				t.Errorf("a byte more: %v", err)
			}
		}
	}
	k := testKey(t)
	for v, want := range map[string]error{"1234567": ErrShort, "  1234567\n": ErrShort, "": ErrShort, strings.Repeat("x", MaxValue+1): ErrLong, "12345678": nil} {
		if _, err := k.Prints([]byte(v)); err != want {
			t.Errorf("a value of %d bytes: %v", len(v), err)
		}
	}
	if got, err := (*Scanner)(nil).ScanJSON([]byte(`"x"`), ""); got == nil || err != nil {
		t.Error("no secrets should give an empty list")
	}
}

// TestPrintsHoldNothing looks for the value in each of its forms.
func TestPrintsHoldNothing(t *testing.T) {
	k := testKey(t)
	v := []byte("p4-" + value)
	p, err := k.Prints(v)
	if err != nil {
		t.Fatal(err)
	}
	file, err := k.Encode(Entry{Name: "a", Prints: p})
	if err != nil {
		t.Fatal(err)
	}
	all, _ := shapes(v)
	for _, s := range all {
		for at := 0; at+4 <= len(s.text); at++ {
			if s.form != Hex && bytes.Contains(file, s.text[at:min(at+6, len(s.text))]) && at+6 <= len(s.text) {
				t.Errorf("the fingerprints hold a part of the form %s", s.form)
			}
		}
	}
	if e, err := k.Decode(file); err != nil || len(e.Prints) != len(p) {
		t.Errorf("read back: %v", err)
	}
	for i := range file {
		bad := bytes.Clone(file)
		bad[i] ^= 1
		if _, err := k.Decode(bad); err == nil {
			t.Fatalf("byte %d was changed, and nobody saw", i)
		}
	}
	other, _ := NewKey(make([]byte, 32))
	if _, err := other.Decode(file); err == nil {
		t.Error("another key reads them")
	}
	if got := fmt.Sprintf("%v %+v %#v", k, k, &k); strings.Count(got, "[key of fingerprints]") < 2 {
		t.Errorf("a key is printed: %s", got)
	}
}

func TestNoAllocationPerByte(t *testing.T) {
	s := scanner(t, "hush-hush-hush")
	raw, _ := json.Marshal(map[string]string{"a": strings.Repeat("line of text\n", 100_000)})
	if n := testing.AllocsPerRun(5, func() { _, _ = s.ScanJSON(raw, "") }); n > 40 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzJSON(f *testing.F) {
	for _, seed := range []string{`{"a":["hush-hush"]}`, `"\u0068ush-hush"`, `{"\ud83d":1e5}`, `[`, `"aHVzaC1odXNo"`} {
		f.Add([]byte(seed))
	}
	s := scanner(f, "hush-hush", "12345678")
	f.Fuzz(func(t *testing.T, raw []byte) {
		found, err := s.ScanJSON(raw, "")
		masked := s.MaskJSON(raw)
		if !json.Valid(raw) {
			return
		}
		if !json.Valid(masked) {
			t.Fatalf("masked to no JSON: %s", masked)
		}
		if err != nil {
			return
		}
		var v any
		_ = json.Unmarshal(raw, &v)
		for _, want := range strs(v) {
			if n := len(s.Scan(want)); n > 0 && len(found) == 0 {
				t.Fatalf("%q was not found in %s", want, raw)
			}
		}
	})
}

func strs(v any) []string {
	var out []string
	switch v := v.(type) {
	case string:
		return []string{v}
	case []any:
		for _, e := range v {
			out = append(out, strs(e)...)
		}
	case map[string]any:
		for _, e := range v {
			out = append(out, strs(e)...)
		}
	}
	return out
}

func TestLogsAreMasked(t *testing.T) {
	s := scanner(t, "hush-hush")
	var b bytes.Buffer
	log := slog.New(Handler(slog.NewTextHandler(&b, nil), func() []*Scanner { return []*Scanner{s} })).With("of", "hush-hush").WithGroup("g")
	log.Info("say hush-hush", "error", errors.New("no: hush-hush"), "n", 5, slog.Group("in", "hex", hex.EncodeToString([]byte("hush-hush"))), "raw", []byte("hush-hush"), "list", []string{"hush-hush"})
	if got := b.String(); strings.Contains(got, "hush-hush") || strings.Contains(got, "68757368") || strings.Count(got, "[secret a]") != 6 || !strings.Contains(got, "g.n=5") {
		t.Error(got)
	}
}
