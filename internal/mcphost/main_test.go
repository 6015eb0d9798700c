package mcphost

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"
)

// serve, in the environment, makes this test's program a server itself.
const serve = "MCPHOST_TEST_SERVE"

func TestMain(m *testing.M) {
	if os.Getenv(serve) != "" {
		if err := goServer().Run(context.Background(), &mcp.StdioTransport{}); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	// Of the tests' servers, not of this package: the SDK forgets a stateless session whose caller left.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/modelcontextprotocol/go-sdk/mcp.(*streamableServerConn).Read"))
}

// goServer is a server written with Go's official SDK.
func goServer() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "go", Version: "1"}, nil)
	type in struct {
		Event map[string]any `json:"event"`
	}
	type out struct {
		Decision string `json:"decision"`
		Reason   string `json:"reason,omitempty"`
	}
	mcp.AddTool(s, &mcp.Tool{Name: "check", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}}, func(_ context.Context, _ *mcp.CallToolRequest, _ in) (*mcp.CallToolResult, out, error) {
		return nil, out{Decision: "allow"}, nil
	})
	s.AddTool(&mcp.Tool{Name: "meta", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{StructuredContent: r.Params.Meta}, nil
	})
	s.AddTool(&mcp.Tool{Name: "slow", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		select {
		case <-ctx.Done():
		case <-time.After(3 * time.Second): // a stateless server hears of no cancellation
		}
		return nil, context.Canceled
	})
	return s
}

func goCommand(c *Config) {
	c.Command, c.Env = []string{os.Args[0]}, map[string]string{serve: "1"}
}

const patience = 30 * time.Second // for what must happen; nothing waits so long when all is well

// logbook is a log that tests read while it is written.
type logbook struct {
	mu   sync.Mutex
	text bytes.Buffer
	wake chan struct{}
}

func (l *logbook) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.wake)
	l.wake = make(chan struct{})
	return l.text.Write(b)
}

func (l *logbook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// wait waits until the log has a text.
func (l *logbook) wait(t testing.TB, text string) {
	t.Helper()
	until := time.After(patience)
	for {
		l.mu.Lock()
		has, wake := strings.Contains(l.text.String(), text), l.wake
		l.mu.Unlock()
		if has {
			return
		}
		select {
		case <-wake:
		case <-until:
			t.Fatalf("the log never had %q:\n%s", text, l)
		}
	}
}

// rig is a server with what it logged and told.
type rig struct {
	testing.TB
	*Server
	log    *logbook
	events chan Event
}

func newRig(t testing.TB, set ...func(*Config)) *rig {
	t.Helper()
	r := &rig{TB: t, log: &logbook{wake: make(chan struct{})}, events: make(chan Event, 1000)}
	cfg := Config{
		ID:      "under-test",
		Logger:  slog.New(slog.NewTextHandler(r.log, nil)),
		OnEvent: func(e Event) { r.events <- e },
		Backoff: func(int) time.Duration { return 0 },
		Grace:   300 * time.Millisecond,
	}
	for _, f := range set {
		f(&cfg)
	}
	s, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r.Server = s
	t.Cleanup(func() {
		r.close()
		if t.Failed() {
			t.Logf("log:\n%s", r.log)
		}
	})
	return r
}

func (r *rig) close() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := r.Close(ctx); err != nil {
		r.Errorf("close: %v", err)
	}
}

var findPython = sync.OnceValue(func() string {
	if p := os.Getenv("BELAY_PYTHON"); p != "" {
		return p
	}
	for _, p := range []string{"../../.build/venv/bin/python", "python3"} {
		if exec.Command(p, "-c", "import mcp").Run() == nil {
			if strings.Contains(p, "/") {
				p, _ = filepath.Abs(p)
			}
			return p
		}
	}
	return ""
})

func python(t testing.TB) string {
	t.Helper()
	p := findPython()
	if p == "" {
		t.Fatal("no Python with the package mcp: set BELAY_PYTHON")
	}
	return p
}

// script runs a server of testdata.
func script(t testing.TB, name string, args ...string) func(*Config) {
	path, err := filepath.Abs("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return func(c *Config) { c.Command = append([]string{python(t), path}, args...) }
}

func naughty(t testing.TB, how string, set ...func(*Config)) *rig {
	return newRig(t, append([]func(*Config){script(t, "naughty.py", how)}, set...)...)
}

// call calls a function that has a generous limit.
func (r *rig) call(tool, args string) Answer {
	return r.Call(context.Background(), CallRequest{Tool: tool, Arguments: json.RawMessage(args), Timeout: patience})
}

func (r *rig) limited(tool string, limit time.Duration) Answer {
	return r.Call(context.Background(), CallRequest{Tool: tool, Timeout: limit})
}

// ok calls a function that must answer a text.
func (r *rig) ok(tool, args, text string) Answer {
	r.Helper()
	a := r.call(tool, args)
	if a.Outcome != OK || (text != "" && a.Text != text) {
		r.Fatalf("%s answered %s %q (%s), not %q", tool, a.Outcome, a.Text, a.Failure, text)
	}
	return a
}

// failed checks an outcome and that the failure says a word.
func (r *rig) failed(a Answer, want Outcome, word string) {
	r.Helper()
	if a.Outcome != want || !strings.Contains(a.Failure, word) {
		r.Fatalf("outcome %s (%s), not %s with %q", a.Outcome, a.Failure, want, word)
	}
	if a.Text == "" {
		r.Error("a failure has no text for the model")
	}
}

// event waits for the next event of a kind.
func (r *rig) event(kind EventKind) Event {
	r.Helper()
	until := time.After(patience)
	for {
		select {
		case e := <-r.events:
			if e.Kind == kind {
				return e
			}
		case <-until:
			r.Fatalf("no event %s", kind)
		}
	}
}
