package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/belay-run/belay/internal/access"
	"github.com/belay-run/belay/internal/approval"
	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/control"
	"github.com/belay-run/belay/internal/job"
	"github.com/belay-run/belay/internal/localjob"
	"github.com/belay-run/belay/internal/mcphost"
	"github.com/belay-run/belay/internal/sqlstore"
	"github.com/belay-run/belay/internal/station"
	"github.com/belay-run/belay/internal/vault"
)

// parts are what this program is besides, when its first argument says so.
var parts = map[string]func(context.Context) error{"serve-mcp": serveMCP, "waiting-jobs": waitingJobs}

// serveMCP is an MCP server whose functions take no time.
func serveMCP(ctx context.Context) error {
	s := mcp.NewServer(&mcp.Implementation{Name: "bench", Version: "1"}, nil)
	type in struct {
		Event map[string]any `json:"event"`
	}
	type out struct {
		Decision string `json:"decision"`
	}
	no := false
	harmless := &mcp.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: &no}
	for _, decision := range []string{"allow", "escalate"} {
		mcp.AddTool(s, &mcp.Tool{Name: decision, Annotations: harmless}, func(context.Context, *mcp.CallToolRequest, in) (*mcp.CallToolResult, out, error) {
			return nil, out{decision}, nil
		})
	}
	type work struct {
		N int `json:"n"`
	}
	mcp.AddTool(s, &mcp.Tool{Name: "work", Annotations: &mcp.ToolAnnotations{OpenWorldHint: &no}}, func(_ context.Context, _ *mcp.CallToolRequest, w work) (*mcp.CallToolResult, work, error) {
		return nil, w, nil
	})
	return s.Run(ctx, &mcp.StdioTransport{})
}

// mcpCalls measures one hook of a server, from question to answer, and the same
// call by the official SDK alone beside it.
func mcpCalls(ctx context.Context) ([]figure, error) {
	server, err := mcphost.Open(mcphost.Config{ID: "bench", Command: []string{os.Args[0], "serve-mcp"}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	defer func() { _ = server.Close(ctx) }() // only figures are lost
	raw, err := mcp.NewClient(&mcp.Implementation{Name: "bench", Version: "1"}, nil).Connect(ctx,
		&mcp.CommandTransport{Command: exec.CommandContext(ctx, os.Args[0], "serve-mcp")}, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	if err != nil {
		return nil, err
	}
	defer func() { _ = raw.Close() }() // as above
	event := json.RawMessage(`{"event":{"event":"pre_tool_call","text":"` + strings.Repeat("a word ", 140) + `"}}`)
	const rounds, calls = 10, 300 // by turns: the machine may be slower later
	ours, theirs := make([]time.Duration, rounds), make([]time.Duration, rounds)
	for i := range rounds {
		if ours[i], err = median(calls, func() error {
			if a := server.Call(ctx, mcphost.CallRequest{Tool: "allow", Arguments: event, Timeout: 10 * time.Second}); a.Outcome != mcphost.OK {
				return errors.New(a.Failure)
			}
			return nil
		}); err != nil {
			return nil, err
		}
		if theirs[i], err = median(calls, func() error {
			_, err := raw.CallTool(ctx, &mcp.CallToolParams{Name: "allow", Arguments: event})
			return err
		}); err != nil {
			return nil, err
		}
	}
	slices.Sort(ours)
	slices.Sort(theirs)
	our, their := in(ours[rounds/2], time.Microsecond), in(theirs[rounds/2], time.Microsecond)
	return []figure{{"one MCP hook over stdio, 1 KB, round trip, p50", our, 1.15 * their, "µs", fmt.Sprintf("  (%.2f of the SDK alone, %.0f µs)", our/their, their)}}, nil
}

// steps measures what one recorded step of a job costs beyond the disk.
func steps(ctx context.Context) ([]figure, error) {
	sync, err := syncCost()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "belay-bench-*")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	keys, err := vault.Open(dir, "")
	if err != nil {
		return nil, err
	}
	store, err := sqlstore.Open(ctx, dir, sqlstore.Options{Vault: keys})
	if err != nil {
		return nil, err
	}
	defer func() { _ = store.Close() }() // only figures are lost
	input := json.RawMessage(`"` + strings.Repeat("x", 1000) + `"`)
	var step time.Duration
	flow := job.Flow{Name: "bench", Shape: 1, Oldest: 1, Run: func(s job.Steps, _ job.Order) (json.RawMessage, error) {
		n := 0
		var err error
		step, err = median(2000, func() error {
			n++
			_, err := job.Ask(s, job.Call{Key: fmt.Sprint(n), Kind: "nothing", Input: input})
			return err
		})
		return input, err
	}}
	engine, err := localjob.Start(localjob.Options{Journal: store.Jobs(), Flows: job.NewFlows(flow), Handlers: job.Handlers{
		"nothing": func(context.Context, job.Call) (job.Answer, error) { return job.Answer{Value: input}, nil },
	}})
	if err != nil {
		return nil, err
	}
	defer func() { _ = engine.Close(ctx) }() // as above
	id, err := engine.Submit(ctx, job.Order{ID: job.ID{Tenant: "bench"}, Flow: "bench"})
	if err != nil {
		return nil, err
	}
	if err := completed(engine.Wait(ctx, id)); err != nil {
		return nil, err
	}
	return []figure{{"one recorded step of a job, 1 KB in and out, beyond a sync, p50", in(max(0, step-sync), time.Millisecond), 0.4, "ms",
		fmt.Sprintf("  (step %.2f ms, one sync %.2f ms)", in(step, time.Millisecond), in(sync, time.Millisecond))}}, nil
}

func completed(j job.Job, err error) error {
	if err == nil && j.State != job.Completed {
		err = fmt.Errorf("the job ended as %+v", j.End)
	}
	return err
}

// caller makes calls in its place.
type caller struct{ calls int }

func (caller) Name() string { return "instant" }

func (m caller) Complete(_ context.Context, req chat.Request, _ func(string)) (chat.Response, error) {
	done := bytes.Count(req.Messages, []byte(`"tool_call_id"`))
	if done < m.calls {
		return chat.Response{ToolCalls: []chat.ToolCall{{ID: fmt.Sprint("call_", done), Type: "function", Name: "bench_tool__work", Arguments: fmt.Appendf(nil, `{"n":%d}`, done)}}}, nil
	}
	text := "Done."
	return chat.Response{Text: &text}, nil
}

var benchCaller = control.Caller{Tenant: "bench", Name: "bench", Role: access.Admin}

// openJobs opens a station with a plugin whose hooks are those functions, one after
// the other before a call and after it.
func openJobs(ctx context.Context, dir string, calls int, kept func(job.ID, []job.Record), hooks ...string) (*station.Station, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	manifest := fmt.Sprintf("name: bench\ntools:\n  - {id: bench_tool, mcp: [%q, serve-mcp]}\n  - {id: bench_hook, mcp: [%q, serve-mcp]}\n"+
		"agents:\n  - {id: bench, instructions: Work., model: any, tools: [bench_tool.work]}\nhooks:\n", self, self)
	for i, h := range hooks {
		manifest += fmt.Sprintf("  - {on: %s, call: bench_hook.%s, match: {tools: [bench_tool.work]}}\n", []string{"pre_tool_call", "post_tool_call"}[i%2], h)
	}
	plugin := filepath.Join(dir, "plugin")
	if err := os.MkdirAll(plugin, 0o700); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(plugin, "belay-plugin.yaml"), []byte(manifest), 0o600); err != nil {
		return nil, err
	}
	s, err := station.Open(ctx, station.Config{Data: filepath.Join(dir, "data"), Client: caller{calls}, Kept: kept})
	if err != nil {
		return nil, err
	}
	if _, err = s.InstallPlugin(ctx, benchCaller, control.PluginOrder{Path: plugin}); err == nil {
		_, err = s.ApplyPolicy(ctx, benchCaller, control.PolicyOrder{Text: "rules:\n  - {name: work, tools: [bench_tool.work], agents: [bench], verdict: allow}\n"})
	}
	if err != nil {
		err = errors.Join(err, s.Close(ctx))
	}
	return s, err
}

// jobs measures whole jobs, and many that wait.
func jobs(ctx context.Context) ([]figure, error) {
	sync, err := syncCost()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "belay-bench-*")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	s, err := openJobs(ctx, dir, 20, nil, "allow", "allow")
	if err != nil {
		return nil, err
	}
	defer func() { _ = s.Close(ctx) }() // only figures are lost
	fastest := time.Hour
	whole, err := median(30, func() error {
		began := time.Now()
		defer func() { fastest = min(fastest, time.Since(began)) }()
		id, err := s.StartJob(ctx, benchCaller, control.JobOrder{Agent: "bench", Input: json.RawMessage(`"work"`)})
		if err != nil {
			return err
		}
		return completed(s.Wait(ctx, id))
	})
	if err != nil {
		return nil, err
	}
	c := exec.CommandContext(ctx, os.Args[0], "waiting-jobs")
	c.Stderr = os.Stderr
	out, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("jobs that wait: %w", err)
	}
	var w waited
	if err := json.Unmarshal(out, &w); err != nil {
		return nil, fmt.Errorf("jobs that wait: %w\n%s", err, out)
	}
	return []figure{
		{"a job with 20 tool calls, two hooks each, instant model, p50", in(whole, time.Millisecond), 100, "ms", fmt.Sprintf("  (the fastest %.0f ms; one sync %.2f ms)", in(fastest, time.Millisecond), in(sync, time.Millisecond))},
		{"500 jobs that wait for a person, all processes", w.MB, 300, "MB", ""},
		{"a decision among them, until its job's next step, p50", w.Resume, 20, "ms", ""},
	}, nil
}

// waited is what waitingJobs prints.
type waited struct {
	MB     float64 `json:"mb"`
	Resume float64 `json:"resume_ms"`
}

// waitingJobs lets 500 jobs wait for a person, in a process of its own, whose memory
// is then theirs.
func waitingJobs(ctx context.Context) error {
	const n = 500
	dir, err := os.MkdirTemp("", "belay-bench-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	w := &watch{asked: make(chan struct{}, n), next: map[string]chan time.Time{}}
	s, err := openJobs(ctx, dir, 1, w.kept, "escalate")
	if err != nil {
		return err
	}
	defer func() { _ = s.Close(ctx) }() // only figures are lost
	for range n {
		if _, err := s.StartJob(ctx, benchCaller, control.JobOrder{Agent: "bench", Input: json.RawMessage(`"work"`)}); err != nil {
			return err
		}
	}
	for range n {
		<-w.asked
	}
	all, err := s.Approvals(ctx, benchCaller.Tenant, control.ApprovalFilter{Waiting: true})
	if err != nil {
		return err
	}
	if len(all) != n {
		return fmt.Errorf("%d jobs wait, not %d", len(all), n)
	}
	var out waited
	for _, pid := range append(children(os.Getpid()), os.Getpid()) {
		out.MB += resident(pid)
	}
	at, took := 0, []time.Duration{}
	for range 100 {
		a := all[at]
		at++
		next := w.after(a.Job)
		began := time.Now()
		if err := s.Decide(ctx, benchCaller, a.ID, a.Digest, approval.Answer{Yes: true}); err != nil {
			return err
		}
		took = append(took, (<-next).Sub(began))
	}
	slices.Sort(took)
	out.Resume = in(took[len(took)/2], time.Millisecond)
	return json.NewEncoder(os.Stdout).Encode(out)
}

// watch hears what jobs write.
type watch struct {
	asked chan struct{}

	mu   sync.Mutex
	next map[string]chan time.Time // by job: told of the next step that begins
}

func (w *watch) kept(id job.ID, records []job.Record) {
	for _, r := range records {
		switch r.What {
		case job.Asked:
			w.asked <- struct{}{}
		case job.Begun:
			w.mu.Lock()
			next := w.next[id.Job]
			delete(w.next, id.Job)
			w.mu.Unlock()
			if next != nil {
				next <- time.Now()
			}
		}
	}
}

func (w *watch) after(id string) <-chan time.Time {
	next := make(chan time.Time, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next[id] = next
	return next
}
