package tests

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belay-run/belay/internal/access"
	"github.com/belay-run/belay/internal/approval"
	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/control"
	"github.com/belay-run/belay/internal/job"
	"github.com/belay-run/belay/internal/station"
)

// probeServer is an MCP server by the official SDK whose functions are hooks and
// tools: it answers as answers.json in the folder PROBE says and writes down what it
// was asked.
const probeServer = `
import json, os, pathlib, sys, time
from typing import Any
from mcp.server import MCPServer
from mcp.types import TextContent, ToolAnnotations

HERE = pathlib.Path(os.environ["PROBE"])
server = MCPServer("probe")
READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
IDEMPOTENT = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=False)


def note(name, data):
    with (HERE / "log.jsonl").open("a") as f:
        f.write(json.dumps({"name": name, **data}) + "\n")


def answers():
    return json.loads((HERE / "answers.json").read_text())


def said(name, event):
    all = answers()
    what = (event.get("arguments") or {}).get("what", "")
    for key in (f"{name}:{event['event']}:{event.get('tool', '')}:{what}", f"{name}:{event['event']}:{event.get('tool', '')}", f"{name}:{event['event']}", name):
        if key in all:
            return all[key]
    return {"decision": "allow"}


@server.tool(annotations=READS)
def check(event: dict) -> dict:
    note("check", event)
    return said("check", event)


@server.tool(annotations=READS)
def second(event: dict) -> dict:
    note("second", event)
    return said("second", event)


@server.tool()
def undeclared(event: dict) -> dict:
    note("undeclared", event)
    return said("undeclared", event)


@server.tool(annotations=ToolAnnotations(read_only_hint=True, open_world_hint=True))
def reaches(event: dict) -> dict:
    note("reaches", event)
    return said("reaches", event)


@server.tool(annotations=READS)
def judge(event: dict) -> str:
    note("judge", event)
    what = said("judge", event)
    if what == "sleep":
        time.sleep(20)
    if what == "raise":
        raise ValueError("the hook broke")
    if what == "wait":
        while not (HERE / "go on").exists():
            time.sleep(0.01)
        return '{"decision": "allow"}'
    return what if isinstance(what, str) else json.dumps(what)


@server.tool()
def act(what: str) -> dict:
    """Does something that cannot be done twice."""
    note("act", {"what": what})
    said = answers().get("act", {"done": what})
    if said == "raise":
        raise ValueError("the tool broke")
    if said == "exit":
        os._exit(4)
    if said == "sleep":
        time.sleep(20)
    return said


@server.tool(annotations=IDEMPOTENT)
def again(what: str) -> str:
    """Does something that may be done twice."""
    note("again", {"what": what})
    return "again " + what


@server.tool(annotations=READS)
def look(what: str = "") -> str:
    """Looks."""
    note("look", {"what": what})
    said = answers().get("look:" + what, answers().get("look", "seen " + what))
    if said == "exit":
        os._exit(4)
    if said == "sleep":
        time.sleep(20)
    return said


@server.tool(annotations=READS)
def structured(what: str) -> dict[str, Any]:
    return {"what": what}


@server.tool(annotations=READS, structured_output=False)
def blocks(what: str) -> list:
    return [TextContent(type="text", text=what), TextContent(type="text", text="more")]


server.run()
`

// allowTools lets the job's own functions be called without a person.
const allowTools = "rules:\n  - name: tools\n    tools: [probe.act, probe.again, probe.look]\n    verdict: allow\n"

// jobs is a station with one plugin.
type jobs struct {
	t      *testing.T
	st     *station.Station
	plugin string
	probe  string
	data   string
	model  *playing
	log    *safeBuffer
	me     control.Caller
	config func(*station.Config) // may be nil
}

type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// playing is a model that gives the next of its completions for each job: which one
// is next follows from the messages, so that it does not depend on the process.
type playing struct {
	mu   sync.Mutex
	list []chat.Response
	by   map[string][]chat.Response // by the job's input, in place of list
	seen []chat.Request
}

func (*playing) Name() string { return "playing" }

func (p *playing) Complete(_ context.Context, req chat.Request, _ func(string)) (chat.Response, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = append(p.seen, req)
	list, ok := p.by[inputOf(req)]
	if !ok {
		list = p.list
	}
	at := bytes.Count(req.Messages, []byte(`"role":"assistant"`))
	if at >= len(list) {
		return chat.Response{}, &chat.Error{Message: "nothing more to say"}
	}
	return list[at], nil
}

func (p *playing) requests() []chat.Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.seen)
}

// chatLine is a message of a request.
type chatLine struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

func messagesOf(req chat.Request) []chatLine {
	var out []chatLine
	_ = json.Unmarshal(req.Messages, &out) // what is no list has none
	return out
}

// inputOf is the input of the job that a request is of.
func inputOf(req chat.Request) string {
	for _, m := range messagesOf(req) {
		if m.Role == "user" {
			return m.Content
		}
	}
	return ""
}

func says(text string) chat.Response { return chat.Response{Text: &text} }

// does is a completion that calls functions: name and arguments in turn.
func does(calls ...string) chat.Response {
	var r chat.Response
	for i := 0; i+1 < len(calls); i += 2 {
		r.ToolCalls = append(r.ToolCalls, chat.ToolCall{ID: fmt.Sprintf("call_%d", i/2), Type: "function", Name: strings.Replace(calls[i], ".", "__", 1), Arguments: json.RawMessage(calls[i+1])})
	}
	return r
}

const manifestHead = `name: acme
version: 1.0.0
tools:
  - id: probe
    mcp: [python, server.py]
    env: [PROBE]
agents:
  - id: worker
    instructions: Work.
    model: worker
    tools: ["probe.act", "probe.again", "probe.look"]
    limits: {iterations: 8, tool_calls: 12}
`

// startJobs installs a plugin with these hooks (YAML below "hooks:") and gives the
// station that runs its jobs.
func startJobs(t *testing.T, hooks string, model ...chat.Response) *jobs {
	t.Helper()
	j := newJobs(t, &playing{list: model})
	j.manifest(strings.Replace(manifestHead, "    env: [PROBE]\n", "", 1) + hooks)
	j.open()
	j.install()
	j.policy(allowTools)
	return j
}

// newJobs makes the folders of a station and of a plugin with the probe's server.
func newJobs(t *testing.T, model *playing) *jobs {
	t.Helper()
	if os.Getenv("BELAY_PYTHON") == "" {
		t.Skip("BELAY_PYTHON is not set; make test sets it")
	}
	j := &jobs{t: t, plugin: t.TempDir(), probe: t.TempDir(), data: t.TempDir(), model: model, log: &safeBuffer{},
		me: control.Caller{Tenant: "main", Name: "tester", Role: access.Admin}}
	j.server("server.py", probeServer)
	j.answers(nil)
	t.Cleanup(func() { j.close() })
	return j
}

// server writes a program of the plugin. It is told the probe's folder by its text,
// since a snapshot's tools get named variables only and tests run side by side.
func (j *jobs) server(file, text string) {
	j.t.Helper()
	j.write(filepath.Join(j.plugin, file), "import os\nos.environ['PROBE'] = "+fmt.Sprintf("%q", j.probe)+"\n"+text)
}

func (j *jobs) manifest(text string) {
	j.t.Helper()
	j.write(filepath.Join(j.plugin, "belay-plugin.yaml"), text)
}

// install installs the plugin as it is now.
func (j *jobs) install() {
	j.t.Helper()
	if _, err := j.st.InstallPlugin(j.t.Context(), j.me, control.PluginOrder{Path: j.plugin}); err != nil {
		j.t.Fatal(err)
	}
}

func (j *jobs) open() {
	j.t.Helper()
	c := station.Config{Data: j.data, Client: j.model, Logger: slog.New(slog.NewTextHandler(j.log, nil))}
	if j.config != nil {
		j.config(&c)
	}
	st, err := station.Open(context.Background(), c)
	if err != nil {
		j.t.Fatal(err)
	}
	j.st = st
}

func (j *jobs) close() {
	if j.st != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := j.st.Close(ctx); err != nil {
			j.t.Error(err)
		}
		j.st = nil
	}
}

// restart ends the station in order and opens the data folder again.
func (j *jobs) restart() {
	j.t.Helper()
	j.close()
	j.open()
}

func (j *jobs) write(path, text string) {
	j.t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		j.t.Fatal(err)
	}
}

// answers says what the probe's functions answer.
func (j *jobs) answers(all map[string]any) {
	j.t.Helper()
	if all == nil {
		all = map[string]any{}
	}
	raw, err := json.Marshal(all)
	if err != nil {
		j.t.Fatal(err)
	}
	j.write(filepath.Join(j.probe, "answers.json"), string(raw))
}

func (j *jobs) policy(text string) {
	j.t.Helper()
	if _, err := j.st.ApplyPolicy(j.t.Context(), j.me, control.PolicyOrder{Text: text}); err != nil {
		j.t.Fatal(err)
	}
}

// asked is what the probe wrote down of a function, of all when name is "".
func (j *jobs) asked(name string) []map[string]any {
	j.t.Helper()
	f, err := os.Open(filepath.Join(j.probe, "log.jsonl"))
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		j.t.Fatal(err)
	}
	defer f.Close()
	var out []map[string]any
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var e map[string]any
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			j.t.Fatal(err)
		}
		if name == "" || e["name"] == name {
			out = append(out, e)
		}
	}
	return out
}

// order is the names of what the probe was asked, in order.
func (j *jobs) order() string {
	var out []string
	for _, e := range j.asked("") {
		what := e["name"].(string)
		if event, ok := e["event"].(string); ok {
			what += " " + event
		}
		out = append(out, what)
	}
	return strings.Join(out, ", ")
}

func (j *jobs) start(input string) job.ID {
	j.t.Helper()
	return j.startOf("worker", input)
}

func (j *jobs) startOf(agent string, input any) job.ID {
	j.t.Helper()
	raw, _ := json.Marshal(input)
	id, err := j.st.StartJob(j.t.Context(), j.me, control.JobOrder{Agent: agent, Input: raw})
	if err != nil {
		j.t.Fatal(err)
	}
	return id
}

func (j *jobs) end(id job.ID) *job.End {
	j.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	got, err := j.st.Wait(ctx, id)
	if err != nil {
		j.t.Fatalf("%v\n%s", err, j.log)
	}
	return got.End
}

// run runs a job to its end.
func (j *jobs) run(input string) *job.End {
	j.t.Helper()
	return j.end(j.start(input))
}

// waits gives the approvals that wait, once there are n.
func (j *jobs) waits(n int) []control.Approval {
	j.t.Helper()
	deadline := time.Now().Add(60 * time.Second)
	for {
		all, err := j.st.Approvals(context.Background(), "main", control.ApprovalFilter{Waiting: true})
		if err != nil {
			j.t.Fatal(err)
		}
		if len(all) >= n {
			return all
		}
		if time.Now().After(deadline) {
			var about []string
			for _, a := range all {
				about = append(about, a.Request.Event+" "+a.Request.Tool)
			}
			j.t.Fatalf("%d of %d approvals wait: %q\n%s", len(all), n, about, j.log)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (j *jobs) decide(a control.Approval, answer approval.Answer) {
	j.t.Helper()
	if err := j.st.Decide(context.Background(), j.me, a.ID, a.Digest, answer); err != nil {
		j.t.Fatal(err)
	}
}

// reads are the tool messages of the last request that the model got.
func (j *jobs) reads() []string {
	j.t.Helper()
	return j.readsOf("")
}

// readsOf are the tool messages of the last request of the job with that input; of
// the last of all when it is "".
func (j *jobs) readsOf(input string) []string {
	j.t.Helper()
	all := j.model.requests()
	for i := len(all) - 1; i >= 0; i-- {
		if input != "" && inputOf(all[i]) != input {
			continue
		}
		var out []string
		for _, m := range messagesOf(all[i]) {
			if m.Role == "tool" {
				out = append(out, m.Content)
			}
		}
		return out
	}
	return nil
}

func completed(t *testing.T, e *job.End, output string) {
	t.Helper()
	if e == nil || e.State != job.Completed || string(e.Output) != fmt.Sprintf("%q", output) {
		t.Fatalf("ended as %+v, want completed with %q", e, output)
	}
}
