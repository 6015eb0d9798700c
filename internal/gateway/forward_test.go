package gateway_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belay-run/belay/internal/gateway"
	"github.com/belay-run/belay/internal/spend"
)

func TestWhatGoesToTheProvider(t *testing.T) {
	b := newBench(t, func(b *bench) { b.headers = map[string]string{"X-Tenant": "acme", "openai-organization": "org-ours"} })
	body := "{\n \"zeta\" : 12345678901234567890 , \"model\" :\t\"openai/m-1\", \"messages\":[{\"role\":\"user\",\"content\":\"\\u00e9 <&> \\\"model\\\"\"}],\n \"new_field\":{\"b\":1,\"a\":[1.50,null]} }"
	r := b.ask("POST", "/v1/chat/completions?beta=true&x=%20", body, "OpenAI-Beta", "assistants=v2", "X-Stainless-Lang", "python", "Accept", "application/json",
		"Idempotency-Key", "k1", "Openai-Organization", "org-theirs", "Cookie", "a=b", "Connection", "X-Hop", "X-Hop", "1", "X-Forwarded-For", "10.0.0.1", "Te", "trailers", "Accept-Encoding", "gzip",
		"Authorization", "Bearer "+b.key.Token, "X-Api-Key", b.key.Token)
	if r.status != 200 {
		t.Fatal(r.status, r.body)
	}
	got := b.provider.Last()
	if want := strings.Replace(body, "openai/m-1", "m-1", 1); string(got.Body) != want {
		t.Errorf("the provider got\n%s\nnot\n%s", got.Body, want)
	}
	if got.Path != "/v1/chat/completions" || got.Query != "beta=true&x=%20" {
		t.Error(got.Path, got.Query)
	}
	for key, want := range map[string]string{"Openai-Beta": "assistants=v2", "X-Stainless-Lang": "python", "Idempotency-Key": "k1", "X-Tenant": "acme", "Openai-Organization": "org-ours",
		"Authorization": "Bearer " + providerKey, "X-Api-Key": "", "Cookie": "", "X-Hop": "", "X-Forwarded-For": "", "Te": "", "Accept-Encoding": "identity", "Content-Type": "application/json"} {
		if strings.Join(got.Header[key], "|") != want {
			t.Errorf("%s is %q, not %q", key, got.Header[key], want)
		}
	}
	for key, want := range map[string]string{"X-Request-Id": "req_provider", "X-Ratelimit-Remaining-Requests": "41", "Openai-Processing-Ms": "7"} {
		if r.header.Get(key) != want {
			t.Errorf("the answer's %s is %q", key, r.header.Get(key))
		}
	}

	b.ask("POST", "/v1/messages?beta=true", `{"model":"anthropic/m","max_tokens":5,"betas":["x"]}`, "Anthropic-Beta", "tools-1,tools-2", "X-Api-Key", b.key.Token)
	got = b.provider.Last()
	for key, want := range map[string]string{"Anthropic-Beta": "tools-1,tools-2", "Anthropic-Version": "2023-06-01", "X-Api-Key": providerKey, "Authorization": ""} {
		if strings.Join(got.Header[key], "|") != want {
			t.Errorf("%s is %q, not %q", key, got.Header[key], want)
		}
	}
	if got.Path != "/v1/messages" || got.Query != "beta=true" || string(got.Body) != `{"model":"m","max_tokens":5,"betas":["x"]}` {
		t.Errorf("%s %s %s", got.Path, got.Query, got.Body)
	}
	b.message("anthropic/m", "", "Anthropic-Version", "2031-01-01")
	if v := b.provider.Last().Header.Get("Anthropic-Version"); v != "2031-01-01" {
		t.Error("the version became", v)
	}
}

// A stream is asked for its usage; what the client asked for stays.
func TestStreamsAreAskedForTheirUsage(t *testing.T) {
	b := newBench(t, nil)
	for rest, want := range map[string]string{
		`,"stream":true`:                                                `{"stream_options":{"include_usage":true},"model":"m"`,
		`,"stream":true,"stream_options":null`:                          `"stream":true,"stream_options":{"include_usage":true}}`,
		`,"stream":true,"stream_options":{}`:                            `"stream":true,"stream_options":{"include_usage":true}}`,
		`,"stream":true,"stream_options":{"include_obfuscation":false}`: `"stream_options":{"include_usage":true,"include_obfuscation":false}}`,
		`,"stream":true,"stream_options":{"include_usage":false}`:       `"stream_options":{"include_usage":true}}`,
		`,"stream":true,"stream_options":{"include_usage": true}`:       `"stream_options":{"include_usage": true}}`,
		`,"stream":false`:                                               `"stream":false}`,
		`,"stream":null`:                                                `"stream":null}`,
	} {
		r := b.chat("openai/m", rest)
		if got := string(b.provider.Last().Body); !strings.Contains(got, want) {
			t.Errorf("%s became %s", rest, got)
		}
		asked := strings.Contains(rest, `"include_usage": true`) || !strings.Contains(rest, `"stream":true`)
		if strings.Contains(r.body, "prompt_tokens") != asked {
			t.Errorf("%s: a usage in %s", rest, r.body)
		}
	}
	for _, c := range b.records() {
		if c.Usage != openAIUsage {
			t.Errorf("%+v", c)
		}
	}
}

func TestErrorsOfProvidersAreRelayed(t *testing.T) {
	for _, vendor := range []string{"openai", "anthropic"} {
		for _, status := range []int{400, 401, 404, 413, 429, 500, 503, 529} {
			for _, stream := range []string{"", `,"stream":true`} {
				b := newBench(t, nil)
				ask := b.chat
				path := "/v1/chat/completions"
				if vendor == "anthropic" {
					ask, path = b.message, "/v1/messages"
				}
				r := ask(fmt.Sprintf("%s/%d", vendor, status), stream)
				if r.status != status || r.problem(t, path) != fmt.Sprintf("The provider fails with %d.", status) || r.header.Get("Retry-After") != "1" {
					t.Errorf("%s %d: %d %v %s", vendor, status, r.status, r.header, r.body)
				}
				c := b.record()
				if c.Status != status || c.Cost != 0 || c.Estimated || !strings.Contains(c.Why, fmt.Sprint(status)) {
					t.Errorf("recorded is %+v", c)
				}
			}
		}
	}
}

func TestProvidersThatFail(t *testing.T) {
	for name, tt := range map[string]struct {
		model, rest string
		set         func(*bench)
		status      int // that the client gets
		says        string
		broken      bool // the answer does not come whole
		usage       bool // something is charged
		why         string
	}{
		"hangs":                 {"hang", "", nil, 504, "no answer within 300ms", false, true, "no answer within"},
		"hangs before a stream": {"hang", `,"stream":true`, nil, 504, "no answer within 300ms", false, true, "no answer within"},
		"stalls":                {"stall", "", nil, 504, "silent in its answer for 300ms", false, true, "silent"},
		"stalls in a stream":    {"stall", `,"stream":true`, nil, 200, "", true, true, "silent"},
		"cuts":                  {"cut", "", nil, 502, "broke off", false, true, "broke off"},
		"cuts a stream":         {"cut", `,"stream":true`, nil, 200, "", true, true, "broke off"},
		"speaks no HTTP":        {"noise", "", nil, 502, "could not be asked", false, false, "no HTTP"},
		"redirects":             {"redirect", "", nil, 502, "asked elsewhere", false, false, "elsewhere"},
		"is not there":          {"m", "", func(b *bench) { b.base = "http://127.0.0.1:1/v1" }, 502, "nothing listens", false, false, "nothing listens"},
		"has a bad address":     {"m", "", func(b *bench) { b.base = "http://[::1" }, 502, "base URL", false, false, "base URL"},
		"speaks no TLS":         {"m", "", func(b *bench) { b.base = strings.Replace(b.provider.OpenAI(), "http:", "https:", 1) }, 502, "TLS", false, false, "TLS"},
		"repeats its key":       {"bad-key", "", nil, 401, "Incorrect API key provided: [key]", false, false, "401"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, func(b *bench) {
				if tt.model == "hang" || tt.model == "stall" {
					b.timeout = 300 * time.Millisecond
				}
				if tt.set != nil {
					tt.set(b)
				}
			})
			r := b.chat("openai/"+tt.model, tt.rest)
			if r.status != tt.status || (r.err != nil) != tt.broken {
				t.Fatalf("%d %v %s", r.status, r.err, r.body)
			}
			if tt.says != "" {
				if says := r.problem(t, "/v1/chat/completions"); !strings.Contains(says, tt.says) {
					t.Errorf("it says %q", says)
				}
			} else if !strings.Contains(r.body, "Hello") {
				t.Errorf("what came before is not there: %q", r.body)
			}
			c := b.record()
			if c.Status != tt.status || !strings.Contains(c.Why, tt.why) || c.Estimated != tt.usage || (c.Usage != spend.Usage{}) != tt.usage {
				t.Errorf("recorded is %+v", c)
			}
			if !strings.Contains(b.log.String(), "level=WARN") && !strings.Contains(b.log.String(), "level=ERROR") {
				t.Error("nothing stands in the log")
			}
		})
	}
}

// Whatever a provider sends back of what it was sent, its key is not in it, and
// nothing like the caller's is on the way to it.
func TestKeysStayWhereTheyAre(t *testing.T) {
	for name, tt := range map[string]struct {
		media  string
		body   func(key string) string
		status int // that the client gets
	}{
		"in an error":      {"application/json", func(key string) string { return `{"error":{"message":"bad key ` + key + `"}}` }, 401},
		"in an event":      {"text/event-stream", func(key string) string { return `data: {"error":{"message":"bad key ` + key + `"}}` + "\n\n" }, 401},
		"in a long error":  {"text/plain", func(key string) string { return strings.Repeat(" ", 17<<20) + key }, 502},
		"in a long stream": {"text/event-stream", func(key string) string { return "data: " + strings.Repeat(" ", 17<<20) + key + "\n\n" }, 502},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, nil)
			token := ""
			b.setTransport(t, func(r *http.Request) (*http.Response, error) {
				if sent := fmt.Sprint(r.Header); strings.Contains(sent, token) {
					t.Error("sent was", sent)
				}
				key := r.Header.Get("Authorization")
				return &http.Response{StatusCode: 401, Header: http.Header{"Content-Type": {tt.media}, "X-Sent": {key, "more"}}, Body: io.NopCloser(strings.NewReader(tt.body(key)))}, nil
			})
			token = b.key.Token
			r := b.chat("openai/m", `,"stream":true`, "Authorization", "Bearer "+token, "Api-Key", token, "X-Goog-Api-Key", token)
			if got := fmt.Sprint(r.header, r.body); r.status != tt.status || strings.Contains(got, providerKey) {
				t.Errorf("%d, %d bytes: %.500s", r.status, len(got), got)
			}
			if c := b.record(); c.Status != tt.status || !strings.Contains(c.Why, "401") || c.Cost != 0 {
				t.Errorf("recorded is %+v", c)
			}
		})
	}
}

func TestAnswersThatAreOdd(t *testing.T) {
	for name, tt := range map[string]struct {
		model, rest string
		has         string
		size        int
		output      int // about what is charged
		unread      bool
	}{
		"garbage":             {"garbage", "", "Some words of no meaning", 0, 12, true},
		"a stream of garbage": {"garbage", `,"stream":true`, "Some words of no meaning", 0, 10, true},
		"no usage":            {"no-usage", "", "Hello", 0, 4, true},
		"a stream without":    {"no-usage", `,"stream":true`, "[DONE]", 0, 4, true},
		"a stream, no end":    {"no-end", `,"stream":true`, "Hello", 0, 7, false},
		"an error in it":      {"error", `,"stream":true`, "Overloaded", 0, 7, false},
		"huge":                {"huge", "", "All work", 20 << 20, 5 << 20, true},
		"a huge event":        {"huge", `,"stream":true`, "[DONE]", 20 << 20, 7, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, nil)
			r := b.chat("openai/"+tt.model, tt.rest)
			if r.status != 200 || r.err != nil || !strings.Contains(r.body, tt.has) || len(r.body) < tt.size*9/10 {
				t.Fatalf("%d %v, %d bytes", r.status, r.err, len(r.body))
			}
			c := b.record()
			if c.Estimated != tt.unread || c.Usage.Output < tt.output*9/10 || c.Usage.Output > tt.output*11/10+1 {
				t.Errorf("recorded is %+v", c)
			}
			if strings.Contains(b.log.String(), "has no usage") != tt.unread {
				t.Errorf("the log is\n%s", b.log)
			}
		})
	}
}

// open begins a stream that the caller reads itself.
func (b *bench) open(ctx context.Context, path, body string) *http.Response {
	b.t.Helper()
	req, err := http.NewRequestWithContext(ctx, "POST", b.key.URL+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Api-Key", b.key.Token)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	return res
}

// readTo reads a stream up to a text.
func readTo(t *testing.T, stream io.Reader, text string) {
	t.Helper()
	for lines := bufio.NewReader(stream); ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(line, text) {
			return
		}
	}
}

func TestClientsThatLeave(t *testing.T) {
	for _, tt := range []struct {
		path, body string
		want       spend.Usage
	}{
		{"/v1/chat/completions", `{"model":"openai/stall","stream":true,"messages":[{"role":"user","content":"one two three"}]}`, spend.Usage{Input: 6, Output: 2}},
		{"/v1/messages", `{"model":"anthropic/stall","stream":true,"max_tokens":9}`, spend.Usage{Input: 21, Cached: 5, CacheWritten: 4, Output: 2}},
	} {
		t.Run(tt.path, func(t *testing.T) {
			b := newBench(t, nil)
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			res := b.open(ctx, tt.path, tt.body)
			defer res.Body.Close()
			readTo(t, res.Body, `", "`)
			leave()
			<-b.provider.Last().Left // the provider is told
			b.End(b.key.Token)
			c := b.record()
			if !c.Estimated || c.Why != "the caller went away" || c.Status != 200 || c.Usage != tt.want {
				t.Errorf("recorded is %+v", c)
			}
		})
	}
	t.Run("after the last event", func(t *testing.T) {
		b := newBench(t, nil)
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		res := b.open(ctx, "/v1/chat/completions", `{"model":"openai/m","stream":true}`)
		defer res.Body.Close()
		readTo(t, res.Body, "[DONE]")
		leave()
		b.End(b.key.Token)
		if c := b.record(); c.Why != "" || c.Usage != openAIUsage || c.Estimated {
			t.Errorf("recorded is %+v", c)
		}
	})
	t.Run("before the answer", func(t *testing.T) {
		b := newBench(t, nil)
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		req, err := http.NewRequestWithContext(ctx, "POST", b.key.URL+"/v1/chat/completions", strings.NewReader(`{"model":"openai/hang","messages":[]}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("X-Api-Key", b.key.Token)
		go func() {
			for len(b.provider.Requests()) == 0 {
				time.Sleep(time.Millisecond)
			}
			leave()
		}()
		if res, err := http.DefaultClient.Do(req); err == nil {
			res.Body.Close()
			t.Fatal("an answer came")
		}
		waitFor(t, "the record", func() bool { return len(b.records()) == 1 })
		if c := b.record(); c.Status != 0 || c.Why != "the caller went away" || c.Usage.Input == 0 || c.Usage.Output != 0 || !c.Estimated {
			t.Errorf("recorded is %+v", c)
		}
	})
}

// Each event is with the client before the provider sends the next one.
func TestEventsComeAtOnce(t *testing.T) {
	for _, body := range []string{`{"model":"openai/x","stream":true}`, `{"model":"openai/x","stream":true,"stream_options":{"include_usage":true}}`} {
		b := newBench(t, nil)
		next := make(chan struct{})
		b.setTransport(t, func(r *http.Request) (*http.Response, error) {
			pipe, w := io.Pipe()
			go func() {
				for i := range 50 {
					fmt.Fprintf(w, "data: {\"n\":%d}\n\n", i)
					<-next
				}
				w.Close()
			}()
			return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: pipe, Request: r}, nil
		})
		res := b.open(t.Context(), "/v1/chat/completions", body)
		lines := bufio.NewReader(res.Body)
		for i := range 50 {
			for _, want := range []string{fmt.Sprintf("data: {\"n\":%d}\n", i), "\n"} {
				if line, err := lines.ReadString('\n'); line != want {
					t.Fatalf("%q, %v", line, err)
				}
			}
			next <- struct{}{}
		}
		if rest, err := io.ReadAll(lines); len(rest) > 0 || err != nil {
			t.Errorf("%q, %v", rest, err)
		}
		res.Body.Close()
	}
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// setTransport puts a gateway with another way to the provider in the place of the
// bench's.
func (b *bench) setTransport(t *testing.T, f transport) {
	t.Helper()
	cfg := b.config("")
	cfg.Transport = f
	g, err := gateway.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := errorOf(b.Close(t.Context()), g.Start()); err != nil {
		t.Fatal(err)
	}
	b.Gateway = g
	if b.key, err = g.Issue(gateway.Binding{Tenant: "acme", Job: "job-1"}); err != nil {
		t.Fatal(err)
	}
}

func errorOf(all ...error) error {
	for _, err := range all {
		if err != nil {
			return err
		}
	}
	return nil
}

// However a stream is cut on its way, what comes out is what went in, without the
// usage that the client did not ask for.
func TestStreamsAreTheSameHoweverTheyAreCut(t *testing.T) {
	const (
		before = "data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"}}],\"usage\":null}\r\n\r\n: ping\n\n"
		extra  = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":1}}\r\n\r\n"
		after  = "data: [DONE]\n\n"
	)
	stream := before + extra + after
	var mu sync.Mutex
	at := 0
	b := newBench(t, nil)
	b.setTransport(t, func(r *http.Request) (*http.Response, error) {
		mu.Lock()
		defer mu.Unlock()
		body := io.MultiReader(strings.NewReader(stream[:at]), strings.NewReader(stream[at:]))
		return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(body), Request: r}, nil
	})
	for i := range len(stream) {
		mu.Lock()
		at = i
		mu.Unlock()
		if r := b.chat("openai/m", `,"stream":true`); r.body != before+after || r.err != nil {
			t.Fatalf("cut at %d: %q, %v", i, r.body, r.err)
		}
		if r := b.chat("openai/m", `,"stream":true,"stream_options":{"include_usage":true}`); r.body != stream || r.err != nil {
			t.Fatalf("cut at %d: %q, %v", i, r.body, r.err)
		}
	}
	for _, c := range b.records() {
		if (c.Usage != spend.Usage{Input: 3, Output: 1}) || c.Estimated {
			t.Fatalf("recorded is %+v", c)
		}
	}
}
