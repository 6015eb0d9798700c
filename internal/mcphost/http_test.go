package mcphost

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// listen serves a handler that can be replaced while it runs.
func listen(t testing.TB, h http.Handler) (url string, replace func(http.Handler)) {
	t.Helper()
	var now atomic.Value
	set := func(h http.Handler) { now.Store(&h) }
	set(h)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		(*now.Load().(*http.Handler)).ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s.URL, set
}

func at(url string) func(*Config) { return func(c *Config) { c.URL = url } }

func sdkHandler(opts *mcp.StreamableHTTPOptions, server ...*mcp.Server) http.Handler {
	s := goServer()
	if len(server) > 0 {
		s = server[0]
	}
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, opts)
}

func TestHTTP(t *testing.T) {
	for name, h := range map[string]http.Handler{
		"events":    sdkHandler(nil),
		"json":      sdkHandler(&mcp.StreamableHTTPOptions{JSONResponse: true}),
		"stateless": sdkHandler(&mcp.StreamableHTTPOptions{Stateless: true}),
	} {
		t.Run(name, func(t *testing.T) {
			url, _ := listen(t, h)
			r := newRig(t, at(url))
			tools, err := r.Tools(t.Context())
			if err != nil || len(tools) != 3 {
				t.Fatalf("%v, %v", tools, err)
			}
			begun := 0
			a := r.Call(t.Context(), CallRequest{Tool: "check", Arguments: json.RawMessage(`{"event": {}}`), OnBegun: func() { begun++ }})
			if o, err := a.Object(); err != nil || string(o) != `{"decision":"allow"}` || begun != 1 {
				t.Errorf("%s, %v, begun %d times", o, err, begun)
			}
			a = r.Call(t.Context(), CallRequest{Tool: "meta", Meta: map[string]json.RawMessage{"belay/model": json.RawMessage(`{"n":1}`)}})
			if !strings.Contains(string(a.Value), `"belay/model":{"n":1}`) {
				t.Errorf("metadata came as %s (%s)", a.Value, a.Failure)
			}
			r.failed(r.limited("slow", 50*time.Millisecond), Timeout, "no answer within 50ms")
			r.failed(r.call("none", ""), Error, "none")
			r.ok("check", `{"event": {}}`, "")
			if e := r.event(Started); e.PID != 0 {
				t.Errorf("%+v", e)
			}
		})
	}
}

func TestHTTPUsesConnectionsAgain(t *testing.T) {
	var opened atomic.Int32
	s := httptest.NewUnstartedServer(sdkHandler(nil))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	r := newRig(t, at(s.URL))
	for range 20 {
		r.ok("check", `{"event": {}}`, "")
	}
	if n := opened.Load(); n > 4 {
		t.Errorf("20 calls opened %d connections", n)
	}
}

// TestHTTPForgottenSession checks that a server which was started anew, and no
// longer knows the session, is asked once all the same.
func TestHTTPForgottenSession(t *testing.T) {
	url, replace := listen(t, sdkHandler(nil))
	r := newRig(t, at(url))
	r.ok("check", `{"event": {}}`, "")
	var runs atomic.Int32
	s := mcp.NewServer(&mcp.Implementation{Name: "new", Version: "1"}, nil)
	s.AddTool(&mcp.Tool{Name: "check", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		runs.Add(1)
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "new"}}}, nil
	})
	replace(sdkHandler(nil, s))
	r.ok("check", "", "new")
	if n := runs.Load(); n != 1 {
		t.Errorf("the function ran %d times", n)
	}
	if e := r.event(Lost); e.Why != "it no longer knows the session" {
		t.Errorf("%+v", e)
	}
}

// shaped is a server that answers tools/call its own way.
func shaped(call func(w http.ResponseWriter, id json.RawMessage)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Params struct {
				Name string `json:"name"`
			} `json:"params"`
		}
		_ = json.NewDecoder(r.Body).Decode(&m)
		result := func(text string) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, text)
		}
		switch {
		case m.Method == "initialize":
			result(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"shaped","version":"1"}}`)
		case m.Method == "tools/call" && m.Params.Name == "echo":
			result(`{"content":[{"type":"text","text":"{\"n\": 1}"}]}`)
		case m.Method == "tools/call":
			call(w, m.ID)
		default:
			w.WriteHeader(http.StatusAccepted)
		}
	})
}

func TestHTTPShapes(t *testing.T) {
	events := func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(http.StatusOK)
	}
	long := strings.Repeat("x", 1<<20)
	for name, c := range map[string]struct {
		call    func(w http.ResponseWriter, id json.RawMessage)
		outcome Outcome
		word    string
	}{
		"event in pieces": {func(w http.ResponseWriter, id json.RawMessage) {
			events(w)
			fmt.Fprintf(w, ": comment\r\nevent: message\r\ndata: {\"jsonrpc\":\"2.0\",\"id\":%s,\r\ndata: \"result\":{\"content\":[{\"type\":\"new\",\"z\":9007199254740993}]}}\r\n\r\n", id)
		}, OK, ""},
		"unavailable":  {func(w http.ResponseWriter, _ json.RawMessage) { http.Error(w, "later", http.StatusServiceUnavailable) }, Unknown, "HTTP 503 Service Unavailable"},
		"unauthorized": {func(w http.ResponseWriter, _ json.RawMessage) { http.Error(w, "who?", http.StatusUnauthorized) }, Unavailable, "HTTP 401 Unauthorized: check the server's headers"},
		"too many":     {func(w http.ResponseWriter, _ json.RawMessage) { http.Error(w, "slow", http.StatusTooManyRequests) }, Unavailable, "HTTP 429"},
		"refused as MCP": {func(w http.ResponseWriter, id json.RawMessage) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(400)
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"Unknown tool"}}`, id)
		}, Error, "MCP error -32602: Unknown tool"},
		"redirect": {func(w http.ResponseWriter, _ json.RawMessage) {
			w.Header().Set("Location", "https://elsewhere.example/mcp?token=secret")
			w.WriteHeader(307)
		}, Unavailable, "it redirects to https://elsewhere.example/mcp, which is refused"},
		"long JSON": {func(w http.ResponseWriter, id json.RawMessage) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"%s"}]}}`, id, long)
		}, Error, "too long: more than 1 MiB"},
		"long event": {func(w http.ResponseWriter, id json.RawMessage) {
			events(w)
			fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"%s\"}]}}\n\n", id, long)
		}, Error, "too long: more than 1 MiB"},
		"events without end": {func(w http.ResponseWriter, _ json.RawMessage) {
			events(w)
			for {
				if _, err := fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"x\":\"%s\"}}\n\n", long[:1<<18]); err != nil {
					return
				}
			}
		}, Error, "too long"},
		"no answer in the stream": {func(w http.ResponseWriter, _ json.RawMessage) { events(w) }, Unknown, "without response"},
		"half an answer": {func(w http.ResponseWriter, id json.RawMessage) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", "1000")
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,`, id)
		}, Unknown, "EOF"},
		"hangs up": {func(http.ResponseWriter, json.RawMessage) { panic(http.ErrAbortHandler) }, Unknown, "EOF"},
		"a web page": {func(w http.ResponseWriter, _ json.RawMessage) {
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, "<p>hello</p>")
		}, Unknown, "text/html"},
		"no JSON": {func(w http.ResponseWriter, _ json.RawMessage) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, "hello")
		}, Unknown, "decode"},
		"another's answer": {func(w http.ResponseWriter, _ json.RawMessage) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":999,"result":{"content":[]}}`)
		}, Timeout, "no answer within"},
	} {
		t.Run(name, func(t *testing.T) {
			url, _ := listen(t, shaped(c.call))
			r := newRig(t, at(url), func(c *Config) { c.MaxMessage = 1 << 20 })
			r.ok("echo", "", `{"n": 1}`)
			limit := patience
			if c.outcome == Timeout {
				limit = 300 * time.Millisecond
			}
			a := r.limited("misbehave", limit)
			if a.Outcome != c.outcome || !strings.Contains(a.Failure, c.word) {
				t.Errorf("%s (%s), not %s with %q", a.Outcome, a.Failure, c.outcome, c.word)
			}
			if c.outcome == OK && string(a.Value) != `[{"type":"new","z":9007199254740993}]` {
				t.Errorf("value %s", a.Value)
			}
			if strings.Contains(a.Failure, "secret") {
				t.Errorf("the failure tells a secret: %s", a.Failure)
			}
			r.ok("echo", "", `{"n": 1}`)
		})
	}
}

// TestHTTPSlowBody checks that a call whose time runs out between the head and the
// body of its answer takes no other call with it.
func TestHTTPSlowBody(t *testing.T) {
	release := make(chan struct{})
	begun := make(chan struct{}, 2)
	url, _ := listen(t, shaped(func(w http.ResponseWriter, id json.RawMessage) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(200)
		w.(http.Flusher).Flush()
		begun <- struct{}{}
		<-release
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"slow"}]}}`, id)
	}))
	r := newRig(t, at(url))
	got := make(chan Answer, 1)
	go func() { got <- r.call("slow", "") }()
	<-begun
	r.failed(r.limited("slow", 100*time.Millisecond), Timeout, "100ms")
	close(release)
	if a := <-got; a.Outcome != OK || a.Text != "slow" {
		t.Errorf("%s (%s)", a.Outcome, a.Failure)
	}
}

func TestHTTPHeaders(t *testing.T) {
	var mu sync.Mutex
	seen := map[string]int{}
	h := sdkHandler(nil)
	url, _ := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		seen[r.Method+" "+r.Header.Get("Authorization")]++
		mu.Unlock()
		h.ServeHTTP(w, r)
	}))
	r := newRig(t, at(url), func(c *Config) { c.Headers = map[string]string{"Authorization": "Bearer abcdefgh"} })
	r.ok("check", `{"event": {}}`, "")
	r.close()
	mu.Lock()
	defer mu.Unlock()
	if len(seen) != 2 || seen["POST Bearer abcdefgh"] < 3 || seen["DELETE Bearer abcdefgh"] != 1 {
		t.Errorf("requests: %v", seen)
	}
}

func TestHTTPRedirectedStart(t *testing.T) {
	reached := false
	other, _ := listen(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
	url, _ := listen(t, http.RedirectHandler(other, http.StatusPermanentRedirect))
	r := newRig(t, at(url))
	r.failed(r.call("check", ""), Unavailable, "which is refused: configure the final address")
	if reached {
		t.Error("a redirect was followed")
	}
}

func TestHTTPNobodyThere(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	r := newRig(t, at("http://"+address+"?key=secret"))
	a := r.call("check", "")
	r.failed(a, Unavailable, "connection refused")
	if strings.Contains(a.Failure+r.log.String(), "secret") {
		t.Errorf("the address is told: %s\n%s", a.Failure, r.log)
	}

	// Somebody is there, goes and comes back.
	serve := func() (stop func()) {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		s := &http.Server{Handler: shaped(nil)}
		done := make(chan struct{})
		go func() { defer close(done); _ = s.Serve(l) }()
		return func() { _ = s.Close(); <-done }
	}
	stop := serve()
	r.ok("echo", "", "")
	stop()
	if a = r.call("echo", ""); a.Outcome == Unknown { // it went out on a connection that was being closed
		a = r.call("echo", "")
	}
	r.failed(a, Unavailable, "connection refused")
	stop = serve()
	r.ok("echo", "", "")
	stop()
}

func TestHTTPSilentStart(t *testing.T) {
	release := make(chan struct{})
	url, _ := listen(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer close(release)
	r := newRig(t, at(url), func(c *Config) { c.StartTimeout = 200 * time.Millisecond })
	start := time.Now()
	r.failed(r.call("check", ""), Unavailable, "not ready within 200ms")
	r.close()
	if took := time.Since(start); took > 4*time.Second {
		t.Errorf("given up after %s", took)
	}
}

func TestHTTPCloseEndsCalls(t *testing.T) {
	url, _ := listen(t, sdkHandler(nil))
	r := newRig(t, at(url))
	got := make(chan Answer, 1)
	begun := make(chan struct{})
	go func() {
		got <- r.Call(context.Background(), CallRequest{Tool: "slow", OnBegun: func() { close(begun) }})
	}()
	<-begun
	r.close()
	r.failed(<-got, Unknown, "it was stopped")
}

func TestHTTPOnlyTheNewProtocol(t *testing.T) {
	s := mcp.NewServer(&mcp.Implementation{Name: "new", Version: "1"}, &mcp.ServerOptions{SupportedProtocolVersions: []string{"2026-07-28"}})
	s.AddTool(&mcp.Tool{Name: "echo", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "new"}}}, nil
	})
	url, _ := listen(t, sdkHandler(&mcp.StreamableHTTPOptions{Stateless: true}, s))
	r := newRig(t, at(url))
	r.ok("echo", "", "new")
}

func TestHTTPPython(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	_ = l.Close()
	path, _ := filepath.Abs("testdata/good.py")
	ctx, cancel := context.WithCancel(t.Context())
	cmd := exec.CommandContext(ctx, python(t), path, "http")
	cmd.Env = append(os.Environ(), "PORT="+port)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cancel(); _ = cmd.Wait() }()
	r := newRig(t, at("http://127.0.0.1:"+port+"/mcp"), func(c *Config) { c.Backoff = func(int) time.Duration { return 50 * time.Millisecond } })
	for until := time.Now().Add(patience); r.call("words", "").Outcome != OK; {
		if time.Now().After(until) {
			t.Fatal("it never started")
		}
	}
	if o, err := r.ok("check", `{"event": {"tool": "push"}}`, "").Object(); err != nil || !strings.Contains(string(o), "push is fine") {
		t.Errorf("%s, %v", o, err)
	}
	r.failed(r.Call(t.Context(), CallRequest{Tool: "slow", Arguments: json.RawMessage(`{"seconds": 60}`), Timeout: 100 * time.Millisecond}), Timeout, "100ms")
	r.ok("words", "", "just words")
}
