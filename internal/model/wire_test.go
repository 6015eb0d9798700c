package model

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/rawjson"
)

var update = flag.Bool("update", false, "write the wire cases as they are now")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// outcome is what a caller of Complete sees.
type outcome struct {
	Pieces   []string       `json:"pieces,omitempty"`
	Response *chat.Response `json:"response,omitempty"`
	Error    string         `json:"error,omitempty"`
	Status   int            `json:"status,omitempty"`
}

// A wire case has the sections config (optional: extra settings), mode (stream or
// whole), ask (a chat.Request), request (the body as sent), response (a line with
// status and content type, a blank line, the body) and outcome. With -update the
// sections request and outcome are written anew.
func TestWire(t *testing.T) {
	cases, err := filepath.Glob("testdata/wire/*.txtar")
	if err != nil || len(cases) == 0 {
		t.Fatal("no wire cases", err)
	}
	for _, path := range cases {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			raw, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			prose, sections := parseArchive(string(raw))
			sent, got := runCase(t, sections)
			for name, now := range map[string]string{"request": sent + "\n", "outcome": indented(t, got) + "\n"} {
				i := slices.IndexFunc(sections, func(s section) bool { return s.name == name })
				if i < 0 {
					t.Fatalf("no section %s", name)
				}
				if sections[i].text != now && !*update {
					t.Errorf("%s is\n%s\nwant\n%s", name, now, sections[i].text)
				}
				sections[i].text = now
			}
			if *update {
				if err := os.WriteFile(path, []byte(formatArchive(prose, sections)), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// section is one file of a txtar archive.
type section struct{ name, text string }

func parseArchive(s string) (prose string, out []section) {
	for line := range strings.Lines(s) {
		name, isMark := strings.CutPrefix(strings.TrimSpace(line), "-- ")
		name, isEnd := strings.CutSuffix(name, " --")
		switch {
		case isMark && isEnd:
			out = append(out, section{name: name})
		case len(out) == 0:
			prose += line
		default:
			out[len(out)-1].text += line
		}
	}
	return prose, out
}

func formatArchive(prose string, sections []section) string {
	for _, s := range sections {
		prose += "-- " + s.name + " --\n" + s.text
	}
	return prose
}

func runCase(t *testing.T, sections []section) (sent string, got outcome) {
	t.Helper()
	data := func(name string) string {
		for _, s := range sections {
			if s.name == name {
				return strings.TrimSuffix(s.text, "\n")
			}
		}
		return ""
	}
	var req chat.Request
	if err := json.Unmarshal([]byte(data("ask")), &req); err != nil {
		t.Fatal("ask:", err)
	}
	cfg := Config{Model: "m", APIKey: "k-secret", MaxRetries: -1}
	if extra := data("config"); extra != "" {
		if err := json.Unmarshal([]byte(extra), &cfg.Extra); err != nil {
			t.Fatal("config:", err)
		}
	}
	head, body, _ := strings.Cut(data("response")+"\n", "\n\n")
	status, media, _ := strings.Cut(strings.TrimSpace(head), " ")
	code, err := strconv.Atoi(status)
	if err != nil {
		t.Fatal("response:", err)
	}
	m := serve(t, cfg, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/chat/completions" || r.Method != http.MethodPost || r.Header.Get("Authorization") != "Bearer k-secret" {
			t.Errorf("asked %s %s", r.Method, r.URL)
		}
		for h := range r.Header {
			if strings.HasPrefix(h, "X-Stainless") {
				t.Errorf("header %s was sent", h)
			}
		}
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		sent = string(raw)
		w.Header().Set("Content-Type", media)
		w.WriteHeader(code)
		fmt.Fprint(w, body)
	})
	var delta func(string)
	if data("mode") == "stream" {
		delta = func(s string) { got.Pieces = append(got.Pieces, s) }
	}
	r, err := m.Complete(t.Context(), req, delta)
	if err != nil {
		var known *chat.Error
		if !errors.As(err, &known) {
			t.Fatal(err)
		}
		got.Error, got.Status = known.Message, known.Status
		return sent, got
	}
	r.Latency = 0
	got.Response = &r
	return sent, got
}

// serve returns a model whose provider is the handler.
func serve(t *testing.T, cfg Config, h http.HandlerFunc) chat.Model {
	t.Helper()
	s := httptest.NewServer(h)
	cfg.Provider, cfg.BaseURL = "test", s.URL+"/v1"
	if cfg.Model == "" {
		cfg.Model = "m"
	}
	n := 0
	cfg.NewID = func() string { n++; return fmt.Sprint("new_", n) }
	m, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if c, ok := m.(io.Closer); !ok || c.Close() != nil {
			t.Error("the model cannot be closed")
		}
		s.CloseClientConnections()
		s.Close()
	})
	return m
}

func indented(t *testing.T, v any) string {
	t.Helper()
	raw, err := rawjson.Encode(v)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(json.RawMessage(raw)); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(b.String())
}
