package agentjob_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/internal/agentjob"
	"github.com/belay-run/belay/internal/approval"
	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/job"
	"github.com/belay-run/belay/internal/job/jobtest"
	"github.com/belay-run/belay/internal/localjob"
	"github.com/belay-run/belay/internal/loop"
)

// world answers what a job asks for.
type world struct {
	t      *testing.T
	engine *localjob.Engine
	memory *jobtest.Memory

	mu    sync.Mutex
	says  []chat.Response // of the model, in order
	hooks map[string]func(event map[string]any) string
	tools map[string]func(args string) agentjob.ToolAnswer
	log   []string
	asked []chat.Request
	took  time.Duration // by each hook
}

var yes = true

func functions() []agentjob.Function {
	harmless := agentjob.Annotations{ReadOnly: &yes, OpenWorld: new(bool)}
	schema := json.RawMessage(`{"type":"object","properties":{"branch":{"type":"string"}},"additionalProperties":false}`)
	return []agentjob.Function{
		{Tool: "git", Name: "merge", Schema: schema}, {Tool: "git", Name: "log", Schema: schema, Annotations: harmless},
		{Tool: "guard", Name: "check", Annotations: harmless}, {Tool: "guard", Name: "second", Annotations: harmless}, {Tool: "guard", Name: "loud"},
	}
}

func newWorld(t *testing.T) *world { return newWorldOf(t, agentjob.Pinned{}) }

func newWorldOf(t *testing.T, pinned agentjob.Pinned) *world {
	t.Helper()
	w := &world{t: t, memory: jobtest.NewMemory(), hooks: map[string]func(map[string]any) string{}, tools: map[string]func(string) agentjob.ToolAnswer{}}
	n := 0
	handlers := job.Handlers{
		agentjob.KindFunctions: func(context.Context, job.Call) (job.Answer, error) { return give(functions()) },
		loop.KindID: func(context.Context, job.Call) (job.Answer, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			n++
			return give(fmt.Sprintf("id-%d", n))
		},
		loop.KindModel: func(_ context.Context, c job.Call) (job.Answer, error) {
			var in loop.ModelCall
			if err := json.Unmarshal(c.Input, &in); err != nil {
				return job.Answer{}, err
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.asked = append(w.asked, in.Request)
			if len(w.says) == 0 {
				return give(loop.ModelAnswer{Failed: "nothing more to say"})
			}
			next := w.says[0]
			w.says = w.says[1:]
			return give(loop.ModelAnswer{Response: next})
		},
		agentjob.KindHook: func(_ context.Context, c job.Call) (job.Answer, error) {
			var in agentjob.HookCall
			var event map[string]any
			if err := json.Unmarshal(c.Input, &in); err != nil {
				return job.Answer{}, err
			}
			if err := json.Unmarshal(in.Event, &event); err != nil {
				return job.Answer{}, err
			}
			w.note("hook " + in.Function + " " + event["event"].(string))
			f := w.hooks[in.Function]
			if f == nil {
				return job.Answer{Failure: &job.Failure{Kind: job.TimedOut, Message: "no answer within 2s"}}, nil
			}
			return job.Answer{Value: json.RawMessage(f(event)), Took: w.took}, nil
		},
		agentjob.KindTool: func(_ context.Context, c job.Call) (job.Answer, error) {
			var in agentjob.ToolCall
			if err := json.Unmarshal(c.Input, &in); err != nil {
				return job.Answer{}, err
			}
			w.note("tool " + in.Function + " " + string(in.Arguments))
			if f := w.tools[in.Function]; f != nil {
				return give(f(string(in.Arguments)))
			}
			return give(agentjob.ToolAnswer{Value: json.RawMessage(`"done"`), Text: "done", Made: true})
		},
	}
	e, err := localjob.Start(localjob.Options{Journal: w.memory, Flows: job.NewFlows(agentjob.New(pinned), agentjob.NewEvent(pinned)), Handlers: handlers})
	if err != nil {
		t.Fatal(err)
	}
	w.engine = e
	t.Cleanup(func() { _ = e.Close(context.Background()) })
	return w
}

func give(v any) (job.Answer, error) {
	raw, err := json.Marshal(v)
	return job.Answer{Value: raw}, err
}

func (w *world) note(s string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log = append(w.log, s)
}

func (w *world) notes() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.log, "; ")
}

func said(text string) chat.Response { return chat.Response{Text: &text} }

func called(calls ...string) chat.Response {
	var r chat.Response
	for i := 0; i+1 < len(calls); i += 2 {
		r.ToolCalls = append(r.ToolCalls, chat.ToolCall{ID: fmt.Sprintf("call_%d_%s", i, calls[i]), Type: "function", Name: calls[i], Arguments: json.RawMessage(calls[i+1])})
	}
	return r
}

func guard(on, function string) agentjob.Hook {
	return agentjob.Hook{Plugin: "acme", Event: on, Tool: "guard", Function: function, OnFailure: hook.Closed}
}

const openPolicy = "rules:\n  - name: git-is-open\n    tools: [git.merge, git.log]\n    verdict: allow\n"

func (w *world) start(hooks ...agentjob.Hook) job.ID {
	w.t.Helper()
	spec := agentjob.Spec{Agent: agentjob.Agent{Name: "reviewer", Instructions: "Review.", Provider: "openai", Model: "gpt", Tools: []string{"git.*"},
		Limits: agentjob.Limits{Iterations: 10, ToolCalls: 20, Work: time.Hour}}, Input: json.RawMessage(`"merge it"`), Hooks: hooks,
		Tools: []agentjob.Tool{{ID: "git", Plugin: "acme"}, {ID: "guard", Plugin: "acme"}}, Policy: allowMerge(w.t)}
	input, err := json.Marshal(spec)
	if err != nil {
		w.t.Fatal(err)
	}
	id, err := w.engine.Submit(context.Background(), job.Order{ID: job.ID{Tenant: "main"}, Flow: agentjob.Flow, Agent: "reviewer", Input: input})
	if err != nil {
		w.t.Fatal(err)
	}
	return id
}

func (w *world) wait(id job.ID) *job.End {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	j, err := w.engine.Wait(ctx, id)
	if err != nil {
		w.t.Fatal(err)
	}
	return j.End
}

// pending waits for the next question.
func (w *world) pending() (job.Pending, approval.Request) {
	w.t.Helper()
	for range 2000 {
		all, err := w.memory.Pending(context.Background(), "main")
		if err != nil {
			w.t.Fatal(err)
		}
		if len(all) > 0 {
			req, err := approval.Read(all[0].Question.Input)
			if err != nil {
				w.t.Fatal(err)
			}
			return all[0], req
		}
		time.Sleep(5 * time.Millisecond)
	}
	w.t.Fatal("nothing waits for a person")
	return job.Pending{}, approval.Request{}
}

func (w *world) decide(p job.Pending, a approval.Answer) {
	w.t.Helper()
	raw, err := json.Marshal(a)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := w.engine.Decide(context.Background(), job.Decision{ID: p.ID, Key: p.Question.Key, Digest: p.Question.Digest(), Answer: job.Answer{Value: raw}, By: "ann"}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) toolMessage() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	last := w.asked[len(w.asked)-1]
	var messages []struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	if err := json.Unmarshal(last.Messages, &messages); err != nil {
		w.t.Fatal(err)
	}
	var out []string
	for _, m := range messages {
		if m.Role == "tool" {
			out = append(out, m.Content)
		}
	}
	return strings.Join(out, " | ")
}

func TestAJobFromItsStartToItsEnd(t *testing.T) {
	w := newWorld(t)
	w.says = []chat.Response{called("git__merge", `{"branch":"main"}`), said("Merged.")}
	w.hooks["check"] = func(e map[string]any) string {
		switch e["event"] {
		case "job_start":
			return `{"decision":"modify","input":"merge it, please"}`
		case "pre_tool_call":
			return `{"decision":"modify","arguments":{"branch":"dev"}}`
		case "post_tool_call":
			return `{"decision":"modify","result":{"merged":true}}`
		case "job_end":
			return `{"decision":"modify","output":"` + e["output"].(string) + ` Signed."}`
		}
		return `{"decision":"allow"}`
	}
	id := w.start(guard("job_start", "check"), guard("pre_llm_call", "check"), guard("pre_tool_call", "check"), guard("post_tool_call", "check"), guard("job_end", "check"))
	end := w.wait(id)
	if end.State != job.Completed || string(end.Output) != `"Merged. Signed."` {
		t.Fatalf("ended as %+v; %s", end, w.notes())
	}
	want := `hook check job_start; hook check pre_llm_call; hook check pre_tool_call; tool merge {"branch":"dev"}; hook check post_tool_call; hook check pre_llm_call; hook check job_end`
	if got := w.notes(); got != want {
		t.Errorf("asked\n%s\nwant\n%s", got, want)
	}
	if got := w.toolMessage(); got != `{"merged": true}` {
		t.Errorf("the model read %s", got)
	}
	if !strings.Contains(string(w.asked[0].Messages), "merge it, please") {
		t.Errorf("the agent was asked %s", w.asked[0].Messages)
	}
}

func TestDenials(t *testing.T) {
	for _, tt := range []struct{ on, decision, code, reads string }{
		{"pre_tool_call", `{"decision":"deny","reason":"not today"}`, "", "The call to git.merge was not made: hook guard.check denied it: not today."},
		{"pre_tool_call", `{"decision":"deny"}`, "", "The call to git.merge was not made: hook guard.check denied it."},
		{"post_tool_call", `{"decision":"deny","reason":"secret"}`, "", "The result of the call to git.merge is withheld: hook guard.check denied it: secret."},
		{"job_start", `{"decision":"deny","reason":"closed"}`, agentjob.HookDenied, ""},
		{"job_end", `{"decision":"deny","reason":"unsigned"}`, agentjob.HookDenied, ""},
		{"pre_llm_call", `{"decision":"deny"}`, agentjob.HookDenied, ""},
		{"pre_tool_call", `{"decision":"dney"}`, "", `The call to git.merge was not made: hook guard.check denied it: `},
		{"pre_tool_call", `{"decision":"modify","arguments":{"branch":7}}`, "", `The call to git.merge was not made: hook guard.check denied it: `},
		{"job_end", `{"decision":"modify","output":7}`, agentjob.HookDenied, ""},
	} {
		t.Run(tt.on+" "+tt.decision, func(t *testing.T) {
			w := newWorld(t)
			w.says = []chat.Response{called("git__merge", `{"branch":"main"}`), said("Well.")}
			w.hooks["check"] = func(map[string]any) string { return tt.decision }
			end := w.wait(w.start(guard(tt.on, "check")))
			if tt.code != "" {
				if end.State != job.Failed || end.Code != tt.code || !strings.Contains(end.Reason, "guard.check") {
					t.Fatalf("ended as %+v", end)
				}
				return
			}
			if end.State != job.Completed {
				t.Fatalf("ended as %+v", end)
			}
			if got := w.toolMessage(); got != tt.reads && !(strings.HasSuffix(tt.reads, ": ") && strings.HasPrefix(got, tt.reads)) {
				t.Errorf("the model read %s", got)
			}
		})
	}
}

func TestAPersonDecidesWhatAHookEscalates(t *testing.T) {
	for _, say := range []bool{true, false} {
		w := newWorld(t)
		w.says = []chat.Response{called("git__merge", `{"branch":"main"}`, "git__log", `{}`), said("Well.")}
		w.hooks["check"] = func(e map[string]any) string {
			if e["tool"] == "git.merge" {
				return `{"decision":"escalate","reason":"a push to main","arguments":{"branch":"main-2"}}`
			}
			return `{"decision":"allow"}`
		}
		id := w.start(guard("pre_tool_call", "check"))
		p, req := w.pending()
		if req.Kind != approval.Hook || req.Tool != "git.merge" || string(req.Value) != `{"branch":"main-2"}` || string(req.Before) != `{"branch":"main"}` ||
			req.Reasons[0] != (approval.Reason{By: "guard.check", Text: "a push to main"}) {
			t.Fatalf("asked %+v", req)
		}
		w.decide(p, approval.Answer{Yes: say, Note: "as you like"})
		if end := w.wait(id); end.State != job.Completed {
			t.Fatalf("ended as %+v", end)
		}
		made := strings.Contains(w.notes(), `tool merge {"branch":"main-2"}`)
		if made != say || !strings.Contains(w.notes(), "tool log") {
			t.Errorf("yes %v: %s", say, w.notes())
		}
		want := map[bool]string{true: "done | done", false: "The call to git.merge was not made: hook guard.check denied it: a push to main. A person refused it. | done"}[say]
		if got := w.toolMessage(); got != want {
			t.Errorf("the model read %s", got)
		}
	}
}

func TestAHookThatDeclaresNothingWaitsForAPerson(t *testing.T) {
	w := newWorld(t)
	w.says = []chat.Response{called("git__merge", `{}`), called("git__merge", `{}`), said("Well.")}
	w.hooks["loud"] = func(map[string]any) string { return `{"decision":"allow"}` }
	id := w.start(guard("pre_tool_call", "loud"))
	p, req := w.pending()
	if req.Kind != approval.Annotation || req.Tool != "guard.loud" || strings.Contains(w.notes(), "hook") {
		t.Fatalf("asked %+v; %s", req, w.notes())
	}
	w.decide(p, approval.Answer{Yes: true})
	if end := w.wait(id); end.State != job.Completed {
		t.Fatalf("ended as %+v", end)
	}
	if got := strings.Count(w.notes(), "hook loud"); got != 2 {
		t.Errorf("asked %d times: %s", got, w.notes())
	}
}

func TestWithoutAPolicyAFunctionThatDeclaresNothingWaits(t *testing.T) {
	w := newWorld(t)
	w.says = []chat.Response{called("git__merge", `{"branch":"x"}`), said("Well.")}
	noPolicy = true
	id := w.start()
	noPolicy = false
	p, req := w.pending()
	if req.Kind != approval.Annotation || string(req.Arguments) != `{"branch":"x"}` {
		t.Fatalf("asked %+v", req)
	}
	w.decide(p, approval.Answer{Yes: false, Note: "no"})
	if end := w.wait(id); end.State != job.Completed || w.toolMessage() != "The call to git.merge was not made: a person refused: no." {
		t.Fatalf("ended as %+v; %s", end, w.toolMessage())
	}
}

func TestHooksThatLookOnDoNotBind(t *testing.T) {
	w := newWorld(t)
	w.says = []chat.Response{called("git__merge", `{"branch":"main"}`), said("Well.")}
	w.hooks["check"] = func(map[string]any) string { return `{"decision":"deny"}` }
	h := guard("pre_tool_call", "check")
	h.Shadow = true
	if end := w.wait(w.start(h)); end.State != job.Completed || !strings.Contains(w.notes(), "tool merge") || !strings.Contains(w.notes(), "hook check") {
		t.Fatalf("ended as %+v; %s", end, w.notes())
	}
}

func TestWhatJudgesAreTold(t *testing.T) {
	w := newWorld(t)
	w.says = []chat.Response{called("git__merge", `{}`), said("Well.")}
	var judge, other map[string]any
	w.hooks["check"] = func(e map[string]any) string { judge = e; return `{"decision":"allow"}` }
	w.hooks["second"] = func(e map[string]any) string { other = e; return `{"decision":"allow"}` }
	h := guard("pre_tool_call", "check")
	h.EscalateOnly, h.OnFailure = true, hook.HoldPolicy
	if end := w.wait(w.start(h, guard("pre_tool_call", "second"))); end.State != job.Completed {
		t.Fatalf("ended as %+v", end)
	}
	if judge["request"] != "merge it" || fmt.Sprint(judge["agent_model"]) != "map[model:gpt provider:openai]" {
		t.Errorf("the judge was told %v", judge)
	}
	for _, key := range []string{"request", "agent_model", "commands"} {
		if _, there := other[key]; there {
			t.Errorf("another hook was told %s", key)
		}
	}
}

func TestBoundsOfAJob(t *testing.T) {
	w := newWorld(t)
	for range 30 {
		w.says = append(w.says, called("git__log", `{}`))
	}
	if end := w.wait(w.start()); end.Code != agentjob.LimitExceeded {
		t.Errorf("ended as %+v", end)
	}
	w = newWorld(t)
	if end := w.wait(w.start()); end.Code != agentjob.ModelError {
		t.Errorf("ended as %+v", end)
	}
}

func TestTimeOfHooksIsWork(t *testing.T) {
	allow := func(map[string]any) string { return `{"decision":"allow"}` }
	for took, want := range map[time.Duration]job.State{19 * time.Minute: job.Completed, 21 * time.Minute: job.Failed} {
		w := newWorld(t)
		w.took, w.hooks["check"] = took, allow
		w.says = []chat.Response{called("git__log", `{}`), said("Well.")}
		end := w.wait(w.start(guard(hook.JobStart, "check"), guard(hook.PreToolCall, "check"), guard(hook.PostToolCall, "check")))
		if end.State != want || want == job.Failed && (end.Code != agentjob.LimitExceeded || !strings.Contains(end.Reason, "1h0m0s")) {
			t.Errorf("with hooks of %v: ended as %+v", took, end)
		}
	}
}

var noPolicy bool

func allowMerge(t *testing.T) string {
	t.Helper()
	if noPolicy {
		return ""
	}
	return openPolicy
}
