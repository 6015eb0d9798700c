package httpio

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestReadBody(t *testing.T) {
	const kind = "application/json"
	for name, tt := range map[string]struct {
		kind, encoding, body string
		status               int
	}{
		"an object":         {kind, "", `{"a":1,"b":{"a":1}}`, 0},
		"with a charset":    {kind + "; charset=UTF-8", "", `{}`, 0},
		"a list":            {kind, "", `[1,1]`, 0},
		"no JSON":           {kind, "", `{"a"`, 0}, // for the route to judge
		"nothing":           {kind, "", ``, 0},
		"as long as may be": {kind, "", `"` + strings.Repeat("x", 98) + `"`, 0},
		"too long":          {kind, "", `"` + strings.Repeat("x", 99) + `"`, 413},
		"a key twice":       {kind, "", `{"a":1,"b":[],"a":2}`, 422},
		"a key twice, odd":  {kind, "", `{"a":1,"\u0061":2}`, 422},
		"not UTF-8":         {kind, "", "\"\xff\"", 422},
		"a form":            {"application/x-www-form-urlencoded", "", `a=b`, 415},
		"no kind":           {"", "", `{}`, 415},
		"another charset":   {kind + "; charset=latin1", "", `{}`, 415},
		"packed":            {kind, "gzip", `{}`, 415},
	} {
		t.Run(name, func(t *testing.T) {
			for _, length := range []bool{true, false} {
				r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(tt.body))
				if !length {
					r.ContentLength = -1
				}
				r.Header.Set("Content-Type", tt.kind)
				if tt.encoding != "" {
					r.Header.Set("Content-Encoding", tt.encoding)
				}
				rec := httptest.NewRecorder()
				refusal := ReadBody(NewWriter(rec, time.Minute), r, 100, time.Minute)
				if tt.status != 0 {
					if refusal == nil || refusal.Status != tt.status || refusal.Detail == "" {
						t.Errorf("refused with %+v", refusal)
					}
					if closes := rec.Header().Get("Connection") == "close"; closes != (tt.status == 413) {
						t.Errorf("the connection closes: %v", closes)
					}
					continue
				}
				if got, err := io.ReadAll(r.Body); refusal != nil || err != nil || string(got) != tt.body {
					t.Errorf("refused with %+v, read %q, %v", refusal, got, err)
				}
			}
		})
	}
}

func TestAllowed(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /there", func(http.ResponseWriter, *http.Request) {})
	for path, want := range map[string]string{"/there": "POST", "/nowhere": ""} {
		rec := httptest.NewRecorder()
		if got := Allowed(mux, rec, httptest.NewRequest(http.MethodGet, path, nil)); got != want || rec.Header().Get("Allow") != want {
			t.Errorf("%s takes %q, told %q", path, got, rec.Header().Get("Allow"))
		}
	}
}

type gone struct{ *httptest.ResponseRecorder }

func (gone) Write([]byte) (int, error) { return 0, errors.New("gone") }

func TestEnd(t *testing.T) {
	write := func(w *Writer) { _, _ = w.Write([]byte("x")) }
	for name, tt := range map[string]struct {
		client     http.ResponseWriter
		handler    func(w *Writer)
		log        string
		cut, sorry bool
	}{
		"an answer":                {httptest.NewRecorder(), write, "level=DEBUG msg=request route=r", false, false},
		"a panic":                  {httptest.NewRecorder(), func(*Writer) { panic("secret") }, "panic=string", false, true},
		"the runtime's panic":      {httptest.NewRecorder(), func(w *Writer) { _ = []byte{}[w.Status()] }, "index out of range", false, true},
		"a panic in an answer":     {httptest.NewRecorder(), func(w *Writer) { write(w); panic("secret") }, "a request panicked", true, false},
		"a client that is gone":    {gone{httptest.NewRecorder()}, write, "a client went away", true, false},
		"gone, and then a panic":   {gone{httptest.NewRecorder()}, func(w *Writer) { write(w); panic("secret") }, "a client went away", true, false},
		"a handler that cuts it":   {httptest.NewRecorder(), func(*Writer) { panic(http.ErrAbortHandler) }, "", true, false},
		"a header and then no end": {httptest.NewRecorder(), func(w *Writer) { w.WriteHeader(204); panic("secret") }, "a request panicked", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			var text bytes.Buffer
			log := slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug}))
			sorry, cut := false, false
			func() {
				defer func() { cut = recover() == http.ErrAbortHandler }()
				w := NewWriter(tt.client, time.Minute)
				defer func() { w.End(log, recover(), func() { sorry = true }, "route", "r") }()
				tt.handler(w)
			}()
			if sorry != tt.sorry || cut != tt.cut || !strings.Contains(text.String(), tt.log) || strings.Contains(text.String(), "secret") {
				t.Errorf("sorry %v, cut %v, log %s", sorry, cut, &text)
			}
		})
	}
}
