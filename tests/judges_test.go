package tests

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/belay-run/belay/internal/approval"
	"github.com/belay-run/belay/internal/control"
	"github.com/belay-run/belay/internal/job"
)

const judgeHook = "hooks:\n  - {on: pre_tool_call, call: probe.check, decisions: [allow, escalate]}\n  - {on: pre_tool_call, call: probe.second}\n"

func TestHooksThatMayOnlyEscalate(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		answer any
		reason string
	}{
		{"P20 P21 escalate is what it may say", map[string]any{"decision": "escalate", "reason": "odd"}, "odd"},
		{"P21 a deny counts as escalate, with its reason", map[string]any{"decision": "deny", "reason": "never"}, "never"},
		{"P21 a modify counts as escalate and changes nothing", map[string]any{"decision": "modify", "arguments": map[string]any{"what": "other"}, "reason": "better so"}, "better so"},
		{"P21 an escalate with a value changes nothing", map[string]any{"decision": "escalate", "arguments": map[string]any{"what": "other"}, "reason": "look"}, "look"},
		{"P21 an answer that is no decision counts as escalate", map[string]any{"decision": "dney"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			j := startJobs(t, judgeHook, does("probe.look", `{"what": "x"}`), says("Done."))
			j.answers(map[string]any{"check": tt.answer})
			id := j.start("go")
			a := j.waits(1)[0]
			var said string
			for _, r := range a.Request.Reasons {
				said += r.Text + " " + r.Note + "; "
			}
			if a.Request.Kind != approval.Hook || string(a.Request.Value) != `{"what":"x"}` && string(a.Request.Value) != `{"what": "x"}` {
				t.Errorf("asked %+v", a.Request)
			}
			if !strings.Contains(said, tt.reason) {
				t.Errorf("the reasons %q lack %q", said, tt.reason)
			}
			j.decide(a, approval.Answer{Yes: true})
			completed(t, j.end(id), "Done.")
			if got := j.asked("look"); len(got) != 1 || got[0]["what"] != "x" {
				t.Errorf("the tool ran as %v", got)
			}
		})
	}
}

func TestWhatJudgesAreTold(t *testing.T) {
	t.Parallel()
	j := startJobs(t, judgeHook+"  - {on: job_start, call: probe.second}\n", does("probe.look", `{"what": "x"}`), says("Done."))
	long := strings.Repeat("ä", 3000) // two bytes each
	j.answers(map[string]any{"second:job_start": map[string]any{"decision": "modify", "input": long}})
	completed(t, j.run("go"), "Done.")
	judge := j.asked("check")[0]
	t.Run("P23 the request is cut at a character, at most 4 KiB", func(t *testing.T) {
		request, _ := judge["request"].(string)
		if len(request) > 4<<10 || len(request) < 4<<10-4 || !utf8.ValidString(request) || !strings.HasPrefix(long, request) {
			t.Errorf("a request of %d bytes", len(request))
		}
	})
	t.Run("P24 the request is the input after the job_start hooks", func(t *testing.T) {
		if request, _ := judge["request"].(string); strings.Contains(request, "go") {
			t.Error("the request is the input before the hooks")
		}
	})
	t.Run("P24 a model that is not known is a missing key", func(t *testing.T) {
		if model, there := judge["agent_model"]; there {
			t.Errorf("agent_model is %v", model)
		}
	})
	t.Run("P23 other hooks are told neither", func(t *testing.T) {
		for _, e := range j.asked("second") {
			for _, key := range []string{"request", "agent_model", "commands"} {
				if _, there := e[key]; there {
					t.Errorf("%s has %s", e["event"], key)
				}
			}
		}
	})
	t.Run("P24 what is not text is given as JSON text", func(t *testing.T) {
		j := startJobs(t, judgeHook, does("probe.look", `{"what": "x"}`), says("Done."))
		id, err := j.st.StartJob(t.Context(), j.me, control.JobOrder{Agent: "worker", Input: json.RawMessage(`{"a":[1,2]}`)})
		if err != nil {
			t.Fatal(err)
		}
		completed(t, j.end(id), "Done.")
		var got any
		text, _ := j.asked("check")[0]["request"].(string)
		if err := json.Unmarshal([]byte(text), &got); err != nil || !reflect.DeepEqual(got, map[string]any{"a": []any{1.0, 2.0}}) {
			t.Errorf("the request is %q", text)
		}
	})
}

func TestHooksAndTheToolPolicy(t *testing.T) {
	t.Parallel()
	const hooks = "hooks:\n  - {on: pre_tool_call, call: probe.check}\n"
	t.Run("P30 a call that is refused outright: no hook is asked", func(t *testing.T) {
		t.Parallel()
		j := startJobs(t, hooks, does("probe.look", `{"what": "x"}`), says("Done."))
		j.policy("rules:\n  - {name: no, tools: [probe.look], verdict: refuse, reason: not here}\n")
		completed(t, j.run("go"), "Done.")
		if len(j.asked("")) > 0 || !strings.Contains(j.reads()[0], "not here") {
			t.Errorf("asked %s; the model read %q", j.order(), j.reads())
		}
	})
	t.Run("P31 P34 conditions are decided after the hooks, on the arguments that they leave", func(t *testing.T) {
		t.Parallel()
		j := startJobs(t, hooks, does("probe.look", `{"what": "bad"}`, "probe.look", `{"what": "good"}`), says("Done."))
		j.policy("rules:\n  - {name: all, tools: [probe.look], verdict: allow}\n  - {name: no-bad, tools: [probe.look], when: 'arguments.what == \"bad\"', verdict: refuse, reason: bad}\n")
		j.answers(map[string]any{"check": map[string]any{"decision": "modify", "arguments": map[string]any{"what": "bad"}}})
		completed(t, j.run("go"), "Done.")
		if len(j.asked("check")) != 2 || len(j.asked("look")) > 0 {
			t.Errorf("asked %s", j.order())
		}
		j.answers(map[string]any{"check": map[string]any{"decision": "modify", "arguments": map[string]any{"what": "fine"}}})
		completed(t, j.run("go"), "Done.")
		if len(j.asked("look")) != 2 {
			t.Errorf("asked %s", j.order())
		}
	})
	t.Run("P32 a hook's allow skips no rule", func(t *testing.T) {
		t.Parallel()
		j := startJobs(t, hooks, does("probe.look", `{"what": "x"}`), says("Done."))
		j.policy("rules:\n  - {name: ask, tools: [probe.look], when: 'arguments.what != \"\"', verdict: require_approval, reason: somebody looks}\n")
		id := j.start("go")
		a := j.waits(1)[0]
		if a.Request.Kind != approval.Policy || len(j.asked("check")) != 1 || len(j.asked("look")) > 0 {
			t.Errorf("asked %+v; %s", a.Request, j.order())
		}
		j.decide(a, approval.Answer{Yes: false, Note: "no"})
		completed(t, j.end(id), "Done.")
		if len(j.asked("look")) > 0 {
			t.Error("the call was made")
		}
	})
	t.Run("P33 a yes to a hook is not the approval that a rule asks for", func(t *testing.T) {
		t.Parallel()
		j := startJobs(t, hooks, does("probe.look", `{"what": "x"}`), says("Done."))
		j.policy("rules:\n  - {name: ask, tools: [probe.look], when: 'arguments.what != \"\"', verdict: require_approval, reason: somebody looks}\n")
		j.answers(map[string]any{"check": map[string]any{"decision": "escalate", "reason": "odd"}})
		id := j.start("go")
		first := j.waits(1)[0]
		j.decide(first, approval.Answer{Yes: true})
		second := j.waits(1)[0]
		for second.ID == first.ID {
			second = j.waits(1)[0]
		}
		if first.Request.Kind != approval.Hook || second.Request.Kind != approval.Policy || len(j.asked("look")) > 0 {
			t.Errorf("asked %s, then %s; %s", first.Request.Kind, second.Request.Kind, j.order())
		}
		j.decide(second, approval.Answer{Yes: true})
		completed(t, j.end(id), "Done.")
		if len(j.asked("look")) != 1 {
			t.Errorf("asked %s", j.order())
		}
	})
	t.Run("P83 P86 pre_llm_call runs, and a person's no fails the job", func(t *testing.T) {
		t.Parallel()
		j := startJobs(t, "hooks:\n  - {on: pre_llm_call, call: probe.check}\n", says("Done."))
		j.answers(map[string]any{"check": map[string]any{"decision": "escalate", "reason": "odd"}})
		id := j.start("go")
		j.decide(j.waits(1)[0], approval.Answer{})
		if end := j.end(id); end.State != job.Failed || end.Code != "HookDenied" || len(j.model.requests()) > 0 {
			t.Errorf("ended as %+v", end)
		}
	})
}
