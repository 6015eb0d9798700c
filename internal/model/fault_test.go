package model

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belay-run/belay/internal/chat"
)

const (
	good   = `{"choices":[{"message":{"content":"ok"},"finish_reason":"stop"}]}`
	secret = "my card is 4111"
)

func ask() chat.Request {
	return chat.Request{Messages: json.RawMessage(`[{"role":"user","content":"` + secret + `"}]`)}
}

// step is what the provider does at one attempt.
type step = func(w http.ResponseWriter, r *http.Request)

func status(code int, header ...string) step {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"error":{"message":"you said: %s","type":"server_error"}}`, secret)
	}
}

func answers(body string) step {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, body)
	}
}

// events sends pieces and then does what end says.
func events(end step, pieces ...string) step {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, p := range pieces {
			fmt.Fprintf(w, "data: %s\n\n", p)
		}
		flush(w)
		if end != nil {
			end(w, r)
		}
	}
}

func flush(w http.ResponseWriter) {
	if f, ok := w.(http.Flusher); ok {
		f.Flush()
	}
}

func text(s string) string { return `{"choices":[{"delta":{"content":"` + s + `"}}]}` }

const (
	toolPiece = `{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{"}}]}}]}`
	endPiece  = `{"choices":[{"delta":{"content":"ok"},"finish_reason":"stop"}]}`
)

// reset breaks the connection off, without an orderly end.
func reset(w http.ResponseWriter, _ *http.Request) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

func hang(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// provider plays its steps, one an attempt, and keeps the waits between them.
type provider struct {
	attempts atomic.Int32
	mu       sync.Mutex
	waits    []time.Duration
	log      bytes.Buffer
}

func (p *provider) serve(t *testing.T, cfg Config, steps ...step) chat.Model {
	t.Helper()
	if cfg.Sleep == nil {
		cfg.Sleep = func(ctx context.Context, d time.Duration) error {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.waits = append(p.waits, d)
			return ctx.Err()
		}
	}
	if cfg.Random == nil {
		cfg.Random = func() float64 { return 0.5 }
	}
	cfg.Logger = slog.New(slog.NewTextHandler(&p.log, nil))
	cfg.APIKey = "k-secret"
	return serve(t, cfg, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // else the server does not see that the client leaves
		n := int(p.attempts.Add(1))
		steps[min(n, len(steps))-1](w, r)
	})
}

func TestFaults(t *testing.T) {
	ms := time.Millisecond
	tests := []struct {
		name     string
		cfg      Config
		steps    []step
		whole    bool // not streamed
		want     string
		pieces   string
		err      string
		status   int
		attempts int
		waits    []time.Duration
		begun    int // of those that failed, known where all did
	}{
		{name: "429 then ok", steps: []step{status(429), events(nil, endPiece)}, want: "ok", pieces: "ok", attempts: 2, waits: []time.Duration{375 * ms}},
		{name: "waits grow", cfg: Config{MaxRetries: 3}, steps: []step{status(500), status(502), status(529), answers(good)}, whole: true, want: "ok", attempts: 4, waits: []time.Duration{375 * ms, 750 * ms, 1500 * ms}},
		{name: "500 for ever", steps: []step{status(500)}, err: "answered 500 Internal Server Error (server_error)", status: 500, attempts: 3, waits: []time.Duration{375 * ms, 750 * ms}},
		{name: "no retries", cfg: Config{MaxRetries: -1}, steps: []step{status(500)}, err: "answered 500", status: 500, attempts: 1},
		{name: "the provider says how long", steps: []step{status(429, "Retry-After", "7"), answers(good)}, whole: true, want: "ok", attempts: 2, waits: []time.Duration{7 * time.Second}},
		{name: "the provider says it in milliseconds", steps: []step{status(503, "Retry-After-Ms", "30"), answers(good)}, whole: true, want: "ok", attempts: 2, waits: []time.Duration{30 * ms}},
		{name: "the provider asks for too long a wait", steps: []step{status(429, "Retry-After", "3600")}, err: "answered 429", status: 429, attempts: 1},
		{name: "a wait longer than the time left", cfg: Config{Timeout: 5 * time.Second}, steps: []step{status(429, "Retry-After", "7")}, err: "answered 429", status: 429, attempts: 1},
		{name: "401 is not asked again", steps: []step{status(401)}, err: "answered 401 Unauthorized (server_error); check the key", status: 401, attempts: 1},
		{name: "501 is not asked again", steps: []step{status(501)}, err: "answered 501", status: 501, attempts: 1},
		{name: "no credit is not asked again", steps: []step{func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(429)
			fmt.Fprint(w, `{"error":{"code":"insufficient_quota"}}`)
		}}, err: "answered 429 Too Many Requests (insufficient_quota); the account has no credit left", status: 429, attempts: 1},
		{name: "reset before an answer", steps: []step{reset, events(nil, endPiece)}, want: "ok", pieces: "ok", attempts: 2, waits: []time.Duration{375 * ms}},
		{name: "reset for ever", steps: []step{reset}, err: "could not be asked: the connection to 127.0.0.1:", attempts: 3, waits: []time.Duration{375 * ms, 750 * ms}},
		{name: "reset in the middle of a text", steps: []step{events(reset, text("Hel"))}, pieces: "Hel", err: "broke off in the middle of an answer", attempts: 1, begun: 1},
		{name: "reset in the middle of calls", steps: []step{events(reset, toolPiece), events(nil, endPiece)}, want: "ok", pieces: "ok", attempts: 2, waits: []time.Duration{375 * ms}},
		{name: "reset in the middle of a whole answer", whole: true, steps: []step{func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", "1000")
			fmt.Fprint(w, good)
			flush(w)
			reset(w, r)
		}, answers(good)}, want: "ok", attempts: 2, waits: []time.Duration{375 * ms}},
		{name: "silence in the middle of a text", cfg: Config{Stall: 30 * ms}, steps: []step{events(hang, text("Hel"))}, pieces: "Hel", err: "fell silent in the middle of an answer for 30ms", attempts: 1, begun: 1},
		{name: "silence in the middle of calls", cfg: Config{Stall: 30 * ms}, steps: []step{events(hang, toolPiece), events(nil, endPiece)}, want: "ok", pieces: "ok", attempts: 2, waits: []time.Duration{375 * ms}},
		{name: "no answer in time", cfg: Config{Timeout: 50 * ms}, steps: []step{hang}, err: "gave no whole answer within 50ms; raise the time limit", attempts: 1, begun: 1},
		{name: "no whole answer in time", cfg: Config{Timeout: 100 * ms}, steps: []step{events(hang, text("Hel"))}, pieces: "Hel", err: "gave no whole answer within 100ms", attempts: 1, begun: 1},
		{name: "half an answer, again and again", whole: true, steps: []step{func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", "1000")
			fmt.Fprint(w, good)
			flush(w)
			reset(w, r)
		}}, err: "broke off in the middle of an answer", attempts: 3, begun: 3, waits: []time.Duration{375 * ms, 750 * ms}},
		{name: "garbage after a text", steps: []step{events(nil, text("Hel"), secret)}, pieces: "Hel", err: "gave an answer that is no chat completion", attempts: 1, begun: 1},
		{name: "an overload reported in the stream", steps: []step{events(nil, `{"error":{"type":"overloaded","message":"`+secret+`"}}`), events(nil, endPiece)}, want: "ok", pieces: "ok", attempts: 2, waits: []time.Duration{375 * ms}},
		{name: "a huge stream", steps: []step{func(w http.ResponseWriter, r *http.Request) {
			events(nil, text("Hel"))(w, r)
			huge(w)
		}}, pieces: "Hel", err: "gave an answer of more than 16 MiB", attempts: 1, begun: 1},
		{name: "a huge answer", whole: true, steps: []step{func(w http.ResponseWriter, _ *http.Request) { huge(w) }}, err: "gave an answer of more than 16 MiB", attempts: 1, begun: 1},
		{name: "a huge answer, packed small", whole: true, steps: []step{func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			defer func() { _ = z.Close() }()
			huge(z)
		}}, err: "gave an answer of more than 16 MiB", attempts: 1, begun: 1},
		{name: "a huge error", steps: []step{func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(400)
			huge(w)
		}}, err: "answered 400 Bad Request", status: 400, attempts: 1},
		{name: "sent elsewhere", steps: []step{func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusTemporaryRedirect)
		}}, cfg: Config{MaxRetries: -1}, err: "could not be asked", attempts: 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var p provider
			m := p.serve(t, tt.cfg, tt.steps...)
			var pieces string
			delta := func(s string) { pieces += s }
			if tt.whole {
				delta = nil
			}
			r, err := m.Complete(t.Context(), ask(), delta)
			if got := int(p.attempts.Load()); got != tt.attempts {
				t.Errorf("%d attempts, want %d", got, tt.attempts)
			}
			if fmt.Sprint(p.waits) != fmt.Sprint(tt.waits) {
				t.Errorf("waited %v, want %v", p.waits, tt.waits)
			}
			if pieces != tt.pieces {
				t.Errorf("handed on %q, want %q", pieces, tt.pieces)
			}
			for _, word := range []string{secret, "4111", "k-secret"} {
				if strings.Contains(fmt.Sprint(err, p.log.String()), word) {
					t.Errorf("%q is in the error or the log: %v\n%s", word, err, p.log.String())
				}
			}
			if tt.err == "" {
				if err != nil || r.Text == nil || *r.Text != tt.want {
					t.Errorf("answer %v, error %v", r.Text, err)
				}
				return
			}
			var known *chat.Error
			if !errors.As(err, &known) || !strings.HasPrefix(known.Message, "test/m "+tt.err) || known.Status != tt.status || known.Attempts != tt.attempts || known.Begun != tt.begun {
				t.Errorf("error %#v, want %q with status %d", err, tt.err, tt.status)
			}
		})
	}
}

func huge(w interface{ Write([]byte) (int, error) }) {
	line := []byte(": " + strings.Repeat("x", 1<<16) + "\n")
	for range 300 {
		if _, err := w.Write(line); err != nil {
			return // the client hung up, as it should
		}
	}
}

func TestCallerCancels(t *testing.T) {
	for name, tt := range map[string]struct {
		cfg  Config
		step step
	}{
		"before an answer":         {step: hang},
		"in the middle of a text":  {step: events(hang, text("Hel"))},
		"while it waits to retry":  {step: status(500), cfg: Config{Sleep: func(ctx context.Context, _ time.Duration) error { <-ctx.Done(); return ctx.Err() }}},
		"while a real wait is on":  {step: status(429, "Retry-After", "15"), cfg: Config{Sleep: sleep}},
		"in the middle of an idle": {step: func(w http.ResponseWriter, r *http.Request) { flush(w); hang(w, r) }},
	} {
		t.Run(name, func(t *testing.T) {
			var p provider
			asked := make(chan struct{})
			var once sync.Once
			m := p.serve(t, tt.cfg, func(w http.ResponseWriter, r *http.Request) {
				once.Do(func() { close(asked) })
				tt.step(w, r)
			})
			ctx, cancel := context.WithCancel(t.Context())
			go func() { <-asked; cancel() }()
			began := time.Now()
			_, err := m.Complete(ctx, ask(), func(string) {})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("error %v", err)
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("came back after %v", took)
			}
		})
	}
}

func TestUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	// A server that speaks, and not HTTP: its words must not be told.
	liar, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := liar.Accept()
			if err != nil {
				return
			}
			fmt.Fprintf(conn, "%s\r\n\r\n", secret)
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() { _ = liar.Close(); <-done })
	for address, want := range map[string]string{
		"http://" + closed:               "nothing listens at " + closed,
		"http://" + liar.Addr().String(): "the connection to " + liar.Addr().String() + " failed",
	} {
		m, err := New(Config{Provider: "vllm", Model: "m", BaseURL: address, MaxRetries: -1})
		if err != nil {
			t.Fatal(err)
		}
		_, err = m.Complete(t.Context(), ask(), nil)
		var known *chat.Error
		if !errors.As(err, &known) || !strings.Contains(known.Message, want) || strings.Contains(known.Message, "4111") {
			t.Errorf("%s: %v, want %q", address, err, want)
		}
	}
}

// Each of many calls at once gets its own pieces, and nothing is left behind.
func TestManyAtOnce(t *testing.T) {
	m := serve(t, Config{}, func(w http.ResponseWriter, r *http.Request) {
		var body struct{ Messages []struct{ Content string } }
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		events(nil, text(body.Messages[0].Content), endPiece)(w, r)
	})
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			var got string
			want := fmt.Sprint("n", i)
			req := chat.Request{Messages: json.RawMessage(`[{"role":"user","content":"` + want + `"}]`)}
			if _, err := m.Complete(t.Context(), req, func(s string) { got += s }); err != nil || got != want+"ok" {
				t.Errorf("%s got %q, %v", want, got, err)
			}
		})
	}
	wg.Wait()
}
