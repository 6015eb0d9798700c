package server

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/belay-run/belay/internal/conversation"
	"github.com/belay-run/belay/internal/turn"
)

var update = flag.Bool("update", false, "write the golden files")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a service whose turns are functions.
type fake struct {
	talk   func(ctx context.Context, in Inbound, out turn.Out) (turn.Report, error)
	events map[string][]conversation.Event
	traces map[string][]conversation.Trace
	health Health
	err    error // of everything else
}

func (f *fake) Talk(ctx context.Context, in Inbound, out turn.Out) (turn.Report, error) {
	return f.talk(ctx, in, out)
}

func (f *fake) Events(_ context.Context, sender string) ([]conversation.Event, error) {
	return f.events[sender], f.err
}

func (f *fake) Traces(_ context.Context, sender, id string) ([]conversation.Trace, error) {
	var out []conversation.Trace
	for _, l := range f.traces[sender] {
		if id == "" || id == l.Turn {
			out = append(out, l)
		}
	}
	return out, f.err
}

func (f *fake) Delete(_ context.Context, sender string) (bool, error) {
	_, there := f.events[sender]
	delete(f.events, sender)
	return there, f.err
}

func (f *fake) Health(context.Context) Health { return f.health }

// done is a turn that ended well.
var done = turn.Report{Turn: "turn-1", Status: turn.Completed}

// echo says the message and what came with it.
func echo(_ context.Context, in Inbound, out turn.Out) (turn.Report, error) {
	out.Text(turn.Utterance{Text: in.Message.Text, Source: "llm"})
	return done, nil
}

// logged is what a server wrote to its log.
type logged struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func newServer(t *testing.T, service Service, cfg Config) (*Server, *logged) {
	t.Helper()
	log := &logged{}
	cfg.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	s, err := New(service, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s, log
}

// do asks the server without a network.
func do(s *Server, method, path, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Host = "127.0.0.1:5005"
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
		if header[i] == "Host" {
			r.Host = header[i+1]
		}
	}
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	return w
}

// wantProblem checks that an answer is a problem with that status and gives its
// detail.
func wantProblem(t *testing.T, w *httptest.ResponseRecorder, status int) string {
	t.Helper()
	var p struct {
		Status int
		Title  string
		Detail string
	}
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
		t.Fatalf("%d: body is no JSON: %q", w.Code, w.Body)
	}
	if got := w.Header().Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("Content-Type %q", got)
	}
	if w.Code != status || p.Status != status || p.Title != http.StatusText(status) || p.Detail == "" {
		t.Errorf("got %d %+v, want status %d", w.Code, p, status)
	}
	return p.Detail
}

// running is a server on a real port.
type running struct {
	*Server
	url    string
	log    *logged
	stop   context.CancelFunc // begins the end
	ended  chan error         // gets what Run returned
	client *http.Client
}

func start(t *testing.T, service Service, cfg Config) *running {
	t.Helper()
	cfg.Listen = "127.0.0.1:0"
	ready := make(chan net.Addr, 1)
	cfg.Ready = func(a net.Addr) { ready <- a }
	s, log := newServer(t, service, cfg)
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{Server: s, log: log, stop: cancel, ended: make(chan error, 1), client: &http.Client{Transport: &http.Transport{}}}
	go func() { r.ended <- s.Run(ctx); close(r.ended) }()
	select {
	case a := <-ready:
		r.url = "http://" + a.String()
	case err := <-r.ended:
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		r.client.CloseIdleConnections() // those never used would hold the server up
		<-r.ended
	})
	return r
}

func (r *running) addr() string { return strings.TrimPrefix(r.url, "http://") }

func (r *running) request(t *testing.T, ctx context.Context, path, body string, header ...string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return req
}

func (r *running) post(t *testing.T, path, body string, header ...string) *http.Response {
	t.Helper()
	resp, err := r.client.Do(r.request(t, context.Background(), path, body, header...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

func text(t *testing.T, r io.Reader) string {
	t.Helper()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// within fails the test when nothing comes.
func within[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(10 * time.Second):
		t.Fatalf("nothing came: %s", what)
		panic("unreachable")
	}
}
