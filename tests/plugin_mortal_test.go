package tests

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/belay-run/belay/internal/access"
	"github.com/belay-run/belay/internal/approval"
	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/control"
	"github.com/belay-run/belay/internal/job"
	"github.com/belay-run/belay/internal/station"
)

// The test's own program is, by its environment, a station that goes on with jobs
// and dies on the way, or the MCP server of its plugin. Both are given a folder.
const (
	mortalStation = "BELAY_TEST_STATION"
	mortalServer  = "BELAY_TEST_SERVER"
)

// partOf says which part of a test this process is; nil when it runs the tests.
func partOf(env func(string) string) func() {
	switch {
	case env(mortalStation) != "":
		return func() { runMortal(mortal(env(mortalStation))) }
	case env(mortalServer) != "":
		return func() { serveMortal(mortal(env(mortalServer))) }
	}
	return nil
}

// mortal is the folder that the parts share: data is the station's, deaths.log has
// where a process died, asked.log what the server was asked.
type mortal string

func (m mortal) data() string   { return filepath.Join(string(m), "data") }
func (m mortal) plugin() string { return filepath.Join(string(m), "plugin") }

func (m mortal) lines(name string) []string {
	f, err := os.Open(filepath.Join(string(m), name))
	if err != nil {
		return nil
	}
	defer f.Close()
	var out []string
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		out = append(out, lines.Text())
	}
	return out
}

func (m mortal) note(name, line string) {
	f, err := os.OpenFile(filepath.Join(string(m), name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = f.WriteString(line + "\n")
	}
	if err != nil {
		panic(err)
	}
	_ = f.Close() // it was written at once
}

var dying sync.Mutex

// die kills a process, once for each place.
func (m mortal) die(at string, pid int) {
	dying.Lock()
	defer dying.Unlock()
	if slices.Contains(m.lines("deaths.log"), at) {
		return
	}
	m.note("deaths.log", at)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		panic(err)
	}
	time.Sleep(time.Minute) // the signal, or the end of the parent, is on its way
}

var mortalScript = []chat.Response{
	does("guard.look", `{"what": "x"}`, "guard.act", `{"what": "y"}`, "guard.again", `{"what": "z"}`),
	says("Done."),
}

func (m mortal) open(idle bool, kept func(job.ID, []job.Record)) (*station.Station, error) {
	return station.Open(context.Background(), station.Config{Data: m.data(), Client: &playing{list: mortalScript}, Idle: idle, Kept: kept,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))})
}

var mortalCaller = control.Caller{Tenant: "main", Name: "tester", Role: access.Admin}

// runMortal goes on with the jobs of the data folder, decides what waits, and dies
// after each record that was not there before, and around each decision.
func runMortal(m mortal) {
	st, err := m.open(false, func(_ job.ID, records []job.Record) {
		for _, r := range records {
			if r.What != job.Timed && !strings.Contains(r.Key, "/again/") { // a call that a person has let be made again
				m.die(fmt.Sprintf("%s %s", r.What, r.Key), os.Getpid())
			}
		}
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	for {
		jobs, err := st.Jobs(context.Background(), job.Filter{Tenant: "main"})
		if err != nil || len(jobs) != 1 {
			fmt.Fprintln(os.Stderr, jobs, err)
			os.Exit(2)
		}
		if jobs[0].State.Ended() {
			break
		}
		if err := m.decide(st); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		time.Sleep(2 * time.Millisecond)
	}
	if err := st.Close(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	os.Exit(0)
}

// decide says yes to everything. A call of which nobody knows is made again when the
// server was not asked for it, else its result is given by hand.
func (m mortal) decide(st *station.Station) error {
	all, err := st.Approvals(context.Background(), "main", control.ApprovalFilter{Waiting: true})
	if err != nil {
		return err
	}
	for _, a := range all {
		answer := approval.Answer{Yes: true}
		if a.Request.Kind == approval.Outcome {
			answer = approval.Answer{Action: approval.Retry}
			if slices.ContainsFunc(m.lines("asked.log"), func(l string) bool { return strings.HasPrefix(l, "act ") }) {
				answer = approval.Answer{Action: approval.Result, Result: json.RawMessage(`"by hand"`)}
			}
		}
		m.die("before the decision "+a.ID, os.Getpid())
		if err := st.Decide(context.Background(), mortalCaller, a.ID, a.Digest, answer); err != nil {
			return err
		}
		m.die("after the decision "+a.ID, os.Getpid())
	}
	return nil
}

// serveMortal is the plugin's server. It kills the station while it is asked, once
// for each function and event.
func serveMortal(m mortal) {
	s := mcp.NewServer(&mcp.Implementation{Name: "guard", Version: "1"}, nil)
	no := false
	reads := &mcp.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: &no}
	add := func(name string, a *mcp.ToolAnnotations, answer func(in map[string]any) string) {
		s.AddTool(&mcp.Tool{Name: name, Annotations: a, InputSchema: json.RawMessage(`{"type": "object"}`)}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			var in map[string]any
			if err := json.Unmarshal(r.Params.Arguments, &in); err != nil {
				return nil, err
			}
			line := name + " " + string(r.Params.Arguments)
			at := "while asked " + name
			if event, ok := in["event"].(map[string]any); ok {
				at += fmt.Sprint(" at ", event["event"])
			}
			m.note("asked.log", line)
			m.die(at, os.Getppid())
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: answer(in)}}}, nil
		})
	}
	allow := func(map[string]any) string { return `{"decision": "allow"}` }
	add("check", reads, allow)
	add("judge", reads, func(map[string]any) string { return `{"decision": "escalate", "reason": "look at it"}` })
	add("loud", nil, allow)
	for name, a := range map[string]*mcp.ToolAnnotations{"look": reads, "act": {OpenWorldHint: &no}, "again": {IdempotentHint: true, OpenWorldHint: &no}} {
		add(name, a, func(in map[string]any) string { return fmt.Sprint(name, " gave ", in["what"]) })
	}
	if err := s.Run(context.Background(), &mcp.StdioTransport{}); err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}
