package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/belay-run/belay/internal/secret"
)

func scannerOf(t *testing.T, values map[string]string) *secret.Scanner {
	t.Helper()
	key, err := secret.NewKey(bytes.Repeat([]byte("key"), 16))
	if err != nil {
		t.Fatal(err)
	}
	var entries []secret.Entry
	for name, value := range values {
		prints, err := key.Prints([]byte(value))
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, secret.Entry{Name: name, Prints: prints})
	}
	return secret.NewScanner(key, entries)
}

// places scans what a reader gives.
func places(t *testing.T, s *secret.Scanner, in io.Reader) ([]place, error) {
	t.Helper()
	var out []place
	n, err := scan(t.Context(), s, in, func(p place) error { out = append(out, p); return nil })
	if n != len(out) {
		t.Errorf("%d places are counted, %d were told", n, len(out))
	}
	return out, err
}

func TestScanTellsLineAndColumnHoweverTheTextIsCut(t *testing.T) {
	long := strings.Repeat("of\nmany lines ", 3000) // as long as a chunk
	values := map[string]string{"A": "hush-hush-hush", "B": long}
	s := scannerOf(t, values)
	r := rand.New(rand.NewPCG(1, 2))
	var text strings.Builder
	var want []place
	for range 40 {
		for range r.IntN(500) {
			text.WriteByte("abc \n\r\x00\xff"[r.IntN(8)])
		}
		p := place{Start: text.Len(), Name: "A", Form: secret.Plain}
		shown := values["A"]
		if r.IntN(20) == 0 {
			p.Name, shown = "B", long
		} else if r.IntN(3) == 0 {
			p.Form, shown = secret.Base64, base64.RawStdEncoding.EncodeToString([]byte(shown))
		}
		before := text.String()
		p.Line, p.Column = 1+strings.Count(before, "\n"), p.Start-strings.LastIndexByte(before, '\n')
		shown = strings.TrimSpace(shown)
		p.End = p.Start + len(shown)
		want = append(want, p)
		text.WriteString(shown + " ")
	}
	if !slices.ContainsFunc(want, func(p place) bool { return p.Name == "B" }) {
		t.Fatal("the text has none of the long ones")
	}
	for name, in := range map[string]io.Reader{
		"whole":                            strings.NewReader(text.String()),
		"a byte at a time":                 iotest.OneByteReader(strings.NewReader(text.String())),
		"half of what is asked for":        iotest.HalfReader(strings.NewReader(text.String())),
		"the end together with its signal": iotest.DataErrReader(strings.NewReader(text.String())),
	} {
		got, err := places(t, s, in)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, %d places, not %d", name, err, len(got), len(want))
			for i := range min(len(got), len(want)) {
				if got[i] != want[i] {
					t.Fatalf("%+v, not %+v", got[i], want[i])
				}
			}
		}
	}
}

func TestScanOfATextThatBreaksOff(t *testing.T) {
	s := scannerOf(t, map[string]string{"A": "hush-hush-hush"})
	got, err := places(t, s, io.MultiReader(strings.NewReader("one\nhush-hush-hush and hush-hu"), iotest.ErrReader(io.ErrUnexpectedEOF)))
	if !errors.Is(err, io.ErrUnexpectedEOF) || len(got) != 1 || got[0].Line != 2 || got[0].Column != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	broken := errors.New("nobody reads")
	if _, err := scan(t.Context(), s, strings.NewReader("hush-hush-hush"), func(place) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("what cannot be told ends with %v", err)
	}
	if got, err := places(t, nil, strings.NewReader("hush-hush-hush")); err != nil || len(got) != 0 {
		t.Errorf("without secrets: %+v, %v", got, err)
	}
}

// What a scan holds does not grow with the text: neither lines nor places.
func TestScanHoldsLittle(t *testing.T) {
	var s *scanned
	most := 0
	s = &scanned{ctx: t.Context(), starts: []int{0}, tell: func(place) error { return nil }}
	s.stream = scannerOf(t, map[string]string{"A": "hush-hush-hush"}).Stream(func(h secret.Hit) {
		s.held = append(s.held, place{Start: h.Start, End: h.End, Name: h.Name, Form: h.Form})
	})
	block := bytes.Repeat([]byte("\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\nhush-hush-hush"), 1000)
	for range 500 {
		if _, err := s.Write(block); err != nil {
			t.Fatal(err)
		}
		most = max(most, len(s.starts), len(s.held))
	}
	if err := errors.Join(s.stream.Close(), s.release(s.seen)); err != nil || s.told != 500_000 {
		t.Errorf("%d places, %v", s.told, err)
	}
	if most > 2*len(block) {
		t.Errorf("it held %d", most)
	}
}

func TestPlacesAsJSON(t *testing.T) {
	for _, want := range [][]place{{}, {{Line: 1, Column: 2, Name: "A", Form: secret.Plain}}, {{Line: 1, Name: "A"}, {Line: 2, Name: "B"}, {Line: 3, Name: "C"}}} {
		var out, whole bytes.Buffer
		tell, end := asList(&out)
		for _, p := range want {
			if err := tell(p); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(end(), printJSON(&whole, want)); err != nil || out.String() != whole.String() || !json.Valid(out.Bytes()) {
			t.Errorf("%v: one by one\n%s\nat once\n%s", err, &out, &whole)
		}
	}
}
