package tests

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/belay-run/belay/internal/agentjob"
	"github.com/belay-run/belay/internal/approval"
	"github.com/belay-run/belay/internal/job"
)

const allEvents = `hooks:
  - {on: job_start, call: probe.check}
  - {on: pre_llm_call, call: probe.check}
  - {on: pre_tool_call, call: probe.check}
  - {on: post_tool_call, call: probe.check}
  - {on: job_end, call: probe.check}
`

func TestEventsOfAJob(t *testing.T) {
	t.Parallel()
	j := startJobs(t, allEvents, does("probe.look", `{"what": "x"}`), says("Done."))
	j.answers(map[string]any{
		"check:job_start":      map[string]any{"decision": "modify", "input": "new input"},
		"check:pre_tool_call":  map[string]any{"decision": "modify", "arguments": map[string]any{"what": "y"}},
		"check:post_tool_call": map[string]any{"decision": "modify", "result": map[string]any{"kind": "another"}},
		"check:job_end":        map[string]any{"decision": "modify", "output": "Signed."},
	})
	end := j.run("old input")
	events := map[string]map[string]any{}
	for _, e := range j.asked("check") {
		events[e["event"].(string)] = e
	}
	want := "check job_start, check pre_llm_call, check pre_tool_call, look, check post_tool_call, check pre_llm_call, check job_end"
	t.Run("P05 P06 P07 P08 P09 the events in their order", func(t *testing.T) {
		if got := j.order(); got != want {
			t.Errorf("asked %s, want %s", got, want)
		}
	})
	holds := func(event, key string, want any) {
		t.Helper()
		if got := events[event][key]; !reflect.DeepEqual(got, want) {
			t.Errorf("%s has %s %v, want %v", event, key, got, want)
		}
	}
	t.Run("P05 pre_tool_call", func(t *testing.T) {
		holds("pre_tool_call", "tool", "probe.look")
		holds("pre_tool_call", "arguments", map[string]any{"what": "x"})
		if got := j.asked("look"); len(got) != 1 || got[0]["what"] != "y" {
			t.Errorf("the tool ran as %v", got)
		}
	})
	t.Run("P06 post_tool_call", func(t *testing.T) {
		holds("post_tool_call", "tool", "probe.look")
		holds("post_tool_call", "arguments", map[string]any{"what": "y"})
		holds("post_tool_call", "result", "seen y")
	})
	t.Run("P07 job_start", func(t *testing.T) {
		holds("job_start", "input", "old input")
		if got := string(j.model.requests()[0].Messages); !strings.Contains(got, "new input") || strings.Contains(got, "old input") {
			t.Errorf("the agent was given %s", got)
		}
	})
	t.Run("P08 job_end", func(t *testing.T) {
		holds("job_end", "output", "Done.")
		completed(t, end, "Signed.")
	})
	t.Run("P09 pre_llm_call", func(t *testing.T) {
		messages, ok := events["pre_llm_call"]["messages"].([]any)
		if !ok || len(messages) < 2 {
			t.Errorf("messages %v", events["pre_llm_call"]["messages"])
		}
		if _, there := events["pre_llm_call"]["model"]; !there {
			t.Error("no model in the event")
		}
	})
	t.Run("P10 every event has its name, job and agent", func(t *testing.T) {
		for name, e := range events {
			if e["event"] != name || e["agent"] != "worker" || e["job"] == "" || e["job"] == nil {
				t.Errorf("%s: %v", name, e)
			}
		}
	})
	t.Run("P92 the model reads the new result, of another kind", func(t *testing.T) {
		if got := j.reads(); len(got) != 1 || got[0] != `{"kind": "another"}` {
			t.Errorf("the model read %q", got)
		}
	})
	t.Run("P94 a hook's own call is no event", func(t *testing.T) {
		for _, e := range j.asked("check") {
			if e["tool"] == "probe.check" {
				t.Errorf("a hook was asked about a hook's call: %v", e)
			}
		}
	})
}

func TestDecisionsBeforeACall(t *testing.T) {
	t.Parallel()
	const hooks = "hooks:\n  - {on: pre_tool_call, call: probe.check}\n"
	for _, tt := range []struct {
		name   string
		answer any
		reads  string
		made   bool
	}{
		{"P12 allow goes on", map[string]any{"decision": "allow"}, "seen x", true},
		{"P12 allow changes nothing, whatever else it carries", map[string]any{"decision": "allow", "arguments": map[string]any{"what": "z"}}, "seen x", true},
		{"P13 deny with a reason", map[string]any{"decision": "deny", "reason": "it is late"}, "The call to probe.look was not made: hook probe.check denied it: it is late.", false},
		{"P13 deny without a reason", map[string]any{"decision": "deny"}, "The call to probe.look was not made: hook probe.check denied it.", false},
		{"P16 deny changes nothing", map[string]any{"decision": "deny", "arguments": map[string]any{"what": "z"}}, "The call to probe.look was not made: hook probe.check denied it.", false},
		{"P16 modify replaces the arguments whole", map[string]any{"decision": "modify", "arguments": map[string]any{}}, "seen ", true},
		{"P16 only the event's key counts", map[string]any{"decision": "modify", "arguments": map[string]any{"what": "z"}, "tool": "probe.act", "job": "j", "agent": "a"}, "seen z", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			j := startJobs(t, hooks, does("probe.look", `{"what": "x"}`), says("Done."))
			j.answers(map[string]any{"check": tt.answer})
			completed(t, j.run("go"), "Done.")
			if got := j.reads(); len(got) != 1 || got[0] != tt.reads {
				t.Errorf("the model read %q, want %q", got, tt.reads)
			}
			if made := len(j.asked("look")) == 1; made != tt.made || len(j.asked("act")) > 0 {
				t.Errorf("asked %s", j.order())
			}
		})
	}
	t.Run("P35 what never reaches its tool has no post_tool_call", func(t *testing.T) {
		t.Parallel()
		j := startJobs(t, hooks+"  - {on: post_tool_call, call: probe.second}\n", does("probe.look", `{"what": "x"}`, "probe.look", `{"nothing": 1}`), says("Done."))
		j.answers(map[string]any{"check": map[string]any{"decision": "deny"}})
		completed(t, j.run("go"), "Done.")
		if len(j.asked("second")) > 0 {
			t.Errorf("asked %s", j.order())
		}
	})
	t.Run("P100 arguments that the tool's schema refuses cannot be used", func(t *testing.T) {
		t.Parallel()
		j := startJobs(t, hooks, does("probe.look", `{"what": "x"}`), says("Done."))
		j.answers(map[string]any{"check": map[string]any{"decision": "modify", "arguments": map[string]any{"what": 7}}})
		completed(t, j.run("go"), "Done.")
		if got := j.reads(); len(got) != 1 || !strings.HasPrefix(got[0], "The call to probe.look was not made: hook probe.check denied it: ") || len(j.asked("look")) > 0 {
			t.Errorf("the model read %q", got)
		}
	})
	t.Run("P100 a modify without the event's key cannot be used", func(t *testing.T) {
		t.Parallel()
		j := startJobs(t, "hooks:\n  - {on: pre_tool_call, call: probe.check, on_timeout: allow}\n", does("probe.look", `{"what": "x"}`), says("Done."))
		j.answers(map[string]any{"check": map[string]any{"decision": "modify", "result": 1}})
		completed(t, j.run("go"), "Done.")
		if got := j.reads(); len(got) != 1 || got[0] != "seen x" {
			t.Errorf("the model read %q", got)
		}
	})
}

func TestDecisionsAfterACall(t *testing.T) {
	t.Parallel()
	const hooks = "hooks:\n  - {on: post_tool_call, call: probe.check}\n"
	t.Run("P14 a denied result is in no model call", func(t *testing.T) {
		t.Parallel()
		j := startJobs(t, hooks, does("probe.look", `{"what": "x"}`), says("Done."))
		j.answers(map[string]any{"check": map[string]any{"decision": "deny", "reason": "it is private"}, "look": "PLANTED"})
		completed(t, j.run("go"), "Done.")
		got := j.reads()
		if len(got) != 1 || !strings.HasSuffix(got[0], "hook probe.check denied it: it is private.") || !strings.Contains(got[0], "withheld") || strings.Contains(got[0], "not made") {
			t.Errorf("the model read %q", got)
		}
		for _, r := range j.model.requests() {
			if strings.Contains(string(r.Messages), "PLANTED") {
				t.Error("a model call has the result")
			}
		}
	})
	t.Run("P93 a call that failed is put to the hooks as an error", func(t *testing.T) {
		t.Parallel()
		j := startJobs(t, hooks, does("probe.act", `{"what": "x"}`), says("Done."))
		j.answers(map[string]any{"act": "raise", "check": map[string]any{"decision": "modify", "result": "it did not work"}})
		completed(t, j.run("go"), "Done.")
		e := j.asked("check")
		if len(e) != 1 || e[0]["is_error"] != true || !reflect.DeepEqual(e[0]["arguments"], map[string]any{"what": "x"}) {
			t.Fatalf("asked %v", e)
		}
		if _, text := e[0]["result"].(string); !text {
			t.Errorf("the result is %v", e[0]["result"])
		}
		if got := j.reads(); len(got) != 1 || got[0] != "it did not work" {
			t.Errorf("the model read %q", got)
		}
	})
	t.Run("P93 a call that went well has no is_error", func(t *testing.T) {
		t.Parallel()
		j := startJobs(t, hooks, does("probe.look", `{"what": "x"}`), says("Done."))
		completed(t, j.run("go"), "Done.")
		if _, there := j.asked("check")[0]["is_error"]; there {
			t.Error("is_error is there")
		}
	})
}

func TestDenialsOfAJob(t *testing.T) {
	t.Parallel()
	for _, event := range []string{"job_start", "job_end", "pre_llm_call"} {
		id := map[string]string{"job_start": "P15", "job_end": "P15", "pre_llm_call": "P86"}[event]
		t.Run(id+" deny at "+event, func(t *testing.T) {
			t.Parallel()
			j := startJobs(t, "hooks:\n  - {on: "+event+", call: probe.check}\n  - {on: job_end, call: probe.second}\n", says("Done."))
			j.answers(map[string]any{"check": map[string]any{"decision": "deny", "reason": "not here"}})
			end := j.run("go")
			if end.State != job.Failed || end.Code != agentjob.HookDenied || !strings.Contains(end.Reason, "not here") {
				t.Fatalf("ended as %+v", end)
			}
			asked := len(j.model.requests())
			if event != "job_end" && (asked > 0 || len(j.asked("second")) > 0) {
				t.Errorf("the model was asked %d times, the end's hook %d times", asked, len(j.asked("second")))
			}
		})
	}
	t.Run("P84 a job that ends without an answer has no job_end, one with an answer one", func(t *testing.T) {
		t.Parallel()
		j := startJobs(t, "hooks:\n  - {on: job_end, call: probe.check}\n") // the model fails
		if end := j.run("go"); end.State != job.Failed || end.Code != agentjob.ModelError || len(j.asked("check")) > 0 {
			t.Errorf("ended as %+v, asked %s", end, j.order())
		}
		j = startJobs(t, "hooks:\n  - {on: job_end, call: probe.check}\n", says("Done."))
		completed(t, j.run("go"), "Done.")
		if len(j.asked("check")) != 1 {
			t.Errorf("asked %s", j.order())
		}
	})
	t.Run("P86 new messages hold for that call alone, and the model cannot be changed", func(t *testing.T) {
		t.Parallel()
		j := startJobs(t, "hooks:\n  - {on: pre_llm_call, call: probe.check}\n", does("probe.look", `{}`), says("Done."))
		j.answers(map[string]any{"check": map[string]any{"decision": "modify", "model": "other", "messages": []any{map[string]any{"role": "user", "content": "MASKED"}}}})
		end := j.run("go")
		requests := j.model.requests()
		if len(requests) == 0 || !strings.Contains(string(requests[0].Messages), "MASKED") || strings.Contains(string(requests[0].Messages), "go") {
			t.Fatalf("ended as %+v; the model got %s", end, requests)
		}
		for _, e := range j.asked("check") {
			if !strings.Contains(fmt.Sprint(e["messages"]), "go") {
				t.Errorf("a later call begins from %v", e["messages"])
			}
		}
	})
}

func TestOrderOfHooks(t *testing.T) {
	t.Parallel()
	t.Run("P19 each modify feeds the next, the first deny ends it", func(t *testing.T) {
		t.Parallel()
		j := startJobs(t, "hooks:\n  - {on: pre_tool_call, call: probe.check}\n  - {on: pre_tool_call, call: probe.second}\n", does("probe.look", `{"what": "x"}`), does("probe.act", `{"what": "x"}`), says("Done."))
		j.answers(map[string]any{
			"check:pre_tool_call:probe.look": map[string]any{"decision": "modify", "arguments": map[string]any{"what": "y"}},
			"check:pre_tool_call:probe.act":  map[string]any{"decision": "deny", "reason": "first"},
		})
		completed(t, j.run("go"), "Done.")
		second := j.asked("second")
		if len(second) != 1 || !reflect.DeepEqual(second[0]["arguments"], map[string]any{"what": "y"}) {
			t.Errorf("the second hook was asked %v", second)
		}
		if len(j.asked("act")) > 0 {
			t.Error("a denied call was made")
		}
	})
	t.Run("P91 a hook is asked when every list of its match has the name", func(t *testing.T) {
		t.Parallel()
		j := startJobs(t, `hooks:
  - {on: pre_tool_call, call: probe.check, match: {tools: [probe.look], agents: [worker]}}
  - {on: pre_tool_call, call: probe.second, match: {tools: [probe.look], agents: [other]}}
`, does("probe.look", `{}`, "probe.again", `{"what": "x"}`), says("Done."))
		completed(t, j.run("go"), "Done.")
		if got := j.asked("check"); len(got) != 1 || got[0]["tool"] != "probe.look" || len(j.asked("second")) > 0 {
			t.Errorf("asked %s", j.order())
		}
	})
}

func TestEscalations(t *testing.T) {
	t.Parallel()
	const hooks = "hooks:\n  - {on: pre_tool_call, call: probe.check}\n"
	for _, yes := range []bool{true, false} {
		t.Run(fmt.Sprintf("P17, P18 a person says %v to an escalated value, after a restart", yes), func(t *testing.T) {
			t.Parallel()
			j := startJobs(t, hooks, does("probe.look", `{"what": "x"}`), says("Done."))
			j.answers(map[string]any{"check": map[string]any{"decision": "escalate", "reason": "look at it", "arguments": map[string]any{"what": "kept"}}})
			id := j.start("go")
			a := j.waits(1)[0]
			if a.Request.Kind != approval.Hook || a.Request.Event != "pre_tool_call" || a.Request.Job != id.Job || a.Request.Agent != "worker" || a.Request.Tool != "probe.look" ||
				string(a.Request.Value) != `{"what":"kept"}` || a.Request.Reasons[0].By != "probe.check" || a.Request.Reasons[0].Text != "look at it" {
				t.Errorf("asked %+v", a.Request)
			}
			j.restart()
			a = j.waits(1)[0]
			j.decide(a, approval.Answer{Yes: yes, Note: "seen"})
			completed(t, j.end(id), "Done.")
			if got := len(j.asked("check")); got != 1 {
				t.Errorf("the hook was asked %d times", got)
			}
			want := "seen kept"
			if !yes {
				want = "The call to probe.look was not made: hook probe.check denied it: look at it. A person refused it."
			}
			if got := j.reads(); len(got) != 1 || got[0] != want {
				t.Errorf("the model read %q, want %q", got, want)
			}
		})
	}
	t.Run("P17 a no at the start of a job fails it", func(t *testing.T) {
		t.Parallel()
		j := startJobs(t, "hooks:\n  - {on: job_start, call: probe.check}\n", says("Done."))
		j.answers(map[string]any{"check": map[string]any{"decision": "escalate", "reason": "odd"}})
		id := j.start("go")
		j.decide(j.waits(1)[0], approval.Answer{})
		if end := j.end(id); end.State != job.Failed || end.Code != agentjob.HookDenied || !strings.Contains(end.Reason, "odd") {
			t.Errorf("ended as %+v", end)
		}
	})
	t.Run("P102 an approval takes one answer, and no edit", func(t *testing.T) {
		t.Parallel()
		j := startJobs(t, hooks, does("probe.look", `{"what": "x"}`), says("Done."))
		j.answers(map[string]any{"check": map[string]any{"decision": "escalate"}})
		id := j.start("go")
		a := j.waits(1)[0]
		if err := j.st.Decide(t.Context(), j.me, a.ID, a.Digest, approval.Answer{Yes: true, Action: approval.Result, Result: json.RawMessage(`1`)}); err == nil {
			t.Error("an edit was taken")
		}
		j.decide(a, approval.Answer{Yes: false, Note: "no"})
		if err := j.st.Decide(t.Context(), j.me, a.ID, a.Digest, approval.Answer{Yes: true}); err == nil {
			t.Error("a second answer was taken")
		}
		completed(t, j.end(id), "Done.")
		if len(j.asked("look")) > 0 {
			t.Error("the call was made")
		}
	})
	t.Run("P103 a yes is for the value that was shown", func(t *testing.T) {
		t.Parallel()
		j := startJobs(t, hooks+"  - {on: pre_tool_call, call: probe.second}\n", does("probe.look", `{"what": "x"}`), says("Done."))
		j.answers(map[string]any{"check": map[string]any{"decision": "escalate", "reason": "first look"}, "second": map[string]any{"decision": "modify", "arguments": map[string]any{"what": "changed"}}})
		id := j.start("go")
		a := j.waits(1)[0]
		if string(a.Request.Value) != `{"what":"x"}` {
			t.Fatalf("shown %s", a.Request.Value)
		}
		j.decide(a, approval.Answer{Yes: true})
		for {
			if b := j.waits(1)[0]; b.ID != a.ID {
				a = b
				break
			}
		}
		if string(a.Request.Value) != `{"what":"changed"}` || len(a.Request.Reasons) != 1 || a.Request.Reasons[0].Text != "first look" || len(j.asked("look")) > 0 {
			t.Fatalf("asked again %+v", a.Request)
		}
		j.decide(a, approval.Answer{Yes: true})
		completed(t, j.end(id), "Done.")
		if got := j.asked("look"); len(got) != 1 || got[0]["what"] != "changed" {
			t.Errorf("the tool ran as %v", got)
		}
	})
	t.Run("P105 a call that waits holds up no other", func(t *testing.T) {
		t.Parallel()
		j := startJobs(t, hooks, does("probe.look", `{"what": "x"}`, "probe.again", `{"what": "y"}`), says("Done."))
		j.answers(map[string]any{"check:pre_tool_call:probe.look": map[string]any{"decision": "escalate"}})
		id := j.start("go")
		a := j.waits(1)[0]
		for len(j.asked("again")) == 0 { // made while the other waits
		}
		if got := len(j.model.requests()); got != 1 {
			t.Errorf("the model was asked %d times before all had ended", got)
		}
		j.decide(a, approval.Answer{Yes: true})
		completed(t, j.end(id), "Done.")
		if got := j.reads(); len(got) != 2 || got[0] != "seen x" || got[1] != "again y" {
			t.Errorf("the model read %q", got)
		}
	})
	t.Run("P101 when its job is cancelled an approval is closed", func(t *testing.T) {
		t.Parallel()
		j := startJobs(t, hooks, does("probe.look", `{"what": "x"}`), says("Done."))
		j.answers(map[string]any{"check": map[string]any{"decision": "escalate"}})
		id := j.start("go")
		a := j.waits(1)[0]
		if err := j.st.Cancel(t.Context(), id, "tester", "enough"); err != nil {
			t.Fatal(err)
		}
		if end := j.end(id); end.State != job.Cancelled {
			t.Errorf("ended as %+v", end)
		}
		if err := j.st.Decide(t.Context(), j.me, a.ID, a.Digest, approval.Answer{Yes: true}); err == nil {
			t.Error("a later answer was taken")
		}
		if len(j.asked("look")) > 0 {
			t.Error("the call was made")
		}
	})
}
