package model

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/rawjson"
)

func TestNew(t *testing.T) {
	tests := []struct {
		name string
		cfg  Config
		want string // part of the error; "" when it is right
	}{
		{"openai", Config{Model: "gpt-4o", APIKey: "sk-1"}, ""},
		{"a key with a newline at its end", Config{Provider: "OpenAI", Model: "gpt-4o", APIKey: "sk-1\n"}, ""},
		{"openai without a key", Config{Provider: "openai", Model: "gpt-4o"}, "set OPENAI_API_KEY"},
		{"openai's API at another address without a key", Config{Provider: "openai", Model: "gpt-4o", BaseURL: "http://localhost:1"}, ""},
		{"a provider without a key", Config{Provider: "ollama", Model: "llama3"}, ""},
		{"a server of one's own", Config{Provider: "self_hosted", Model: "m", BaseURL: "https://models.example/v1/"}, ""},
		{"a server of one's own without an address", Config{Provider: "litellm", Model: "m"}, "provider litellm needs base_url"},
		{"an unknown provider", Config{Provider: "acme", Model: "m"}, `provider "acme" is not known; set base_url`},
		{"an unknown provider with an address", Config{Provider: "acme", Model: "m", BaseURL: "https://models.example"}, ""},
		{"no model", Config{Provider: "openai", APIKey: "sk-1"}, "no model is named"},
		{"a broken key", Config{Model: "m", APIKey: "sk-1\nsk-2"}, "set it again"},
		{"no address", Config{Model: "m", BaseURL: "models.example/v1"}, "no http or https address"},
		{"a key in the address", Config{Model: "m", BaseURL: "https://user:pass@models.example"}, "api_key_env"},
		{"a query in the address", Config{Model: "m", BaseURL: "https://models.example/v1?key=1"}, "api_key_env"},
		{"the whole address", Config{Model: "m", BaseURL: "https://models.example/v1/chat/completions/"}, "leave that off"},
		{"a setting that is ours", Config{Model: "m", APIKey: "sk-1", Extra: map[string]json.RawMessage{"messages": json.RawMessage(`[]`)}}, `"messages" is set by belay itself`},
		{"a setting that is no JSON", Config{Model: "m", APIKey: "sk-1", Extra: map[string]json.RawMessage{"top_p": json.RawMessage(`high`)}}, `"top_p" has no JSON value`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m, err := New(tt.cfg)
			switch {
			case tt.want == "" && err != nil:
				t.Error(err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("error %v, want %q", err, tt.want)
			case err == nil && !strings.HasSuffix(m.Name(), "/"+tt.cfg.Model):
				t.Errorf("name %q", m.Name())
			case err != nil && strings.Contains(err.Error(), "sk-1"):
				t.Errorf("the key is in the error: %v", err)
			}
		})
	}
}

// What the environment has for OpenAI must not reach another provider.
func TestEnvironmentIsNotRead(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", "k-of-another")
	t.Setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/")
	t.Setenv("OPENAI_ORG_ID", "org-of-another")
	t.Setenv("OPENAI_CUSTOM_HEADERS", "X-Mine: secret")
	m := serve(t, Config{}, func(w http.ResponseWriter, r *http.Request) {
		for _, h := range []string{"Authorization", "OpenAI-Organization", "X-Mine"} {
			if v := r.Header.Get(h); v != "" {
				t.Errorf("%s: %s was sent", h, v)
			}
		}
		answers(good)(w, r)
	})
	if _, err := m.Complete(t.Context(), ask(), nil); err != nil {
		t.Error(err)
	}
}

func TestLatencyIsThatOfTheAttemptThatSucceeded(t *testing.T) {
	now := time.Unix(0, 0)
	var p provider
	m := p.serve(t, Config{Now: func() time.Time { now = now.Add(time.Second); return now }}, status(500), answers(good))
	r, err := m.Complete(t.Context(), ask(), nil)
	if err != nil || r.Latency != time.Second {
		t.Errorf("latency %v, error %v", r.Latency, err)
	}
}

func TestArgumentsKeepTheirText(t *testing.T) {
	for in, want := range map[string]string{
		`{"q":  1.0 }`: `{"q":  1.0 }`,
		" ":            `{}`,
		`[1]`:          `[1]`,
		`{"q": <&`:     `"{\"q\": <&"`,
		`{} {}`:        `"{} {}"`,
	} {
		if got := string(arguments(in)); got != want {
			t.Errorf("arguments(%q) = %s, want %s", in, got, want)
		}
	}
}

func TestUsageIsWhatCanBe(t *testing.T) {
	for usage, want := range map[string]chat.Usage{
		`{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11}`:                                                     {Input: 9, Output: 2},
		`{"prompt_tokens":9.0,"completion_tokens":2.0}`:                                                                   {Input: 9, Output: 2},
		`{"prompt_tokens":9,"completion_tokens":2,"total_tokens":50,"completion_tokens_details":{"reasoning_tokens":39}}`: {Input: 9, Output: 41, Reasoning: 39},
		`{"prompt_tokens":-900,"completion_tokens":902}`:                                                                  {Output: 902},
		`{"prompt_tokens":1e300,"completion_tokens":2}`:                                                                   {Output: 2},
		`{"prompt_tokens":9,"completion_tokens":-1}`:                                                                      {Input: 9},
		`{"prompt_tokens":null,"completion_tokens":null}`:                                                                 {},
		`"none"`: {},
	} {
		m := serve(t, Config{}, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"choices":[{"message":{"content":"ok"},"finish_reason":"stop"}],"usage":%s}`, usage)
		})
		r, err := m.Complete(t.Context(), ask(), nil)
		if err != nil || r.Usage != want {
			t.Errorf("%s: %+v, %v", usage, r.Usage, err)
		}
	}
}

func TestToolWithBrokenParameters(t *testing.T) {
	m := serve(t, Config{}, answers(good))
	req := ask()
	req.Tools = []chat.Tool{{Name: "f", Parameters: json.RawMessage(`{`)}}
	if _, err := m.Complete(t.Context(), req, nil); err == nil || !strings.Contains(err.Error(), "parameters are no JSON") {
		t.Errorf("error %v", err)
	}
}

func TestBackoff(t *testing.T) {
	zero, almost := func() float64 { return 0 }, func() float64 { return 0.999 }
	for attempt, most := range map[int]time.Duration{1: 500 * time.Millisecond, 2: time.Second, 5: 8 * time.Second, 100: 8 * time.Second} {
		if got, ok := backoff(attempt, 0, zero); got != most || !ok {
			t.Errorf("attempt %d waits %v, want %v", attempt, got, most)
		}
		if got, ok := backoff(attempt, 0, almost); got <= most/2-time.Millisecond || got >= most || !ok {
			t.Errorf("attempt %d waits %v of %v", attempt, got, most)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	in := func(s string) time.Duration { return retryAfter(http.Header{"Retry-After": {s}}) }
	for s, want := range map[string]time.Duration{"2": 2 * time.Second, "1.5": 1500 * time.Millisecond, "-1": 0, "soon": 0, "": 0, "Mon, 02 Jan 2006 15:04:05 GMT": 0, "NaN": 0} {
		if got := in(s); got != want {
			t.Errorf("%q: %v, want %v", s, got, want)
		}
	}
	if got := in(time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)); got < 59*time.Minute {
		t.Errorf("a date in an hour: %v", got)
	}
	if got := in("1e300"); got < 24*time.Hour {
		t.Errorf("a huge number: %v", got)
	}
}

// Whatever pieces come, a draft gives calls with ids that are all different and
// arguments that are JSON, and no text is lost.
func TestDraftHoldsItsPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var d draft
		var sent string
		for range rapid.IntRange(0, 8).Draw(t, "chunks") {
			text := rapid.StringN(0, 5, -1).Draw(t, "text")
			sent += text
			var p piece
			p.Content = rawjson.Must(text)
			for range rapid.IntRange(0, 3).Draw(t, "calls") {
				var c callPiece
				if rapid.Bool().Draw(t, "indexed") {
					c.Index = new(rapid.IntRange(-1, 3).Draw(t, "index"))
				}
				c.ID = rapid.SampledFrom([]string{"", "a", "b", "new_1"}).Draw(t, "id")
				c.Function.Name = rapid.SampledFrom([]string{"", "f", "g"}).Draw(t, "name")
				c.Function.Arguments = rapid.SampledFrom([]json.RawMessage{nil, json.RawMessage(`"{"`), json.RawMessage(`"}"`), json.RawMessage(`{"q":1}`), json.RawMessage(`null`)}).Draw(t, "arguments")
				p.ToolCalls = append(p.ToolCalls, c)
			}
			if got := d.add(answer{Choices: []choice{{Delta: &p}}}); got != text {
				t.Fatalf("handed on %q of %q", got, text)
			}
		}
		n := 0
		r := d.response(func() string { n++; return fmt.Sprint("new_", n) })
		if got := r.Text; sent == "" && got != nil || sent != "" && (got == nil || *got != sent) {
			t.Fatalf("text %v of %q", got, sent)
		}
		seen := map[string]bool{}
		for _, c := range r.ToolCalls {
			if seen[c.ID] || c.ID == "" || c.Type == "" || !json.Valid(c.Arguments) {
				t.Fatalf("call %+v", c)
			}
			seen[c.ID] = true
		}
	})
}
