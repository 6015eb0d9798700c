//go:build linux

package tests

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belay-run/belay/internal/agentjob"
	"github.com/belay-run/belay/internal/approval"
	"github.com/belay-run/belay/internal/audit"
	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/control"
	"github.com/belay-run/belay/internal/job"
)

// peopled is a plugin whose agents each have their events watched.
const peopled = `name: acme
tools:
  - {id: probe, mcp: [python, server.py]}
agents:
  - {id: start, instructions: Work., model: m, tools: ["probe.*"]}
  - {id: model, instructions: Work., model: m, tools: ["probe.*"]}
  - {id: before, instructions: Work., model: m, tools: ["probe.*"]}
  - {id: after, instructions: Work., model: m, tools: ["probe.*"]}
  - {id: end, instructions: Work., model: m, tools: ["probe.*"]}
  - {id: chain, instructions: Work., model: m, tools: ["probe.*"]}
hooks:
  - {on: job_start, call: probe.check, match: {agents: [start]}}
  - {on: pre_llm_call, call: probe.check, match: {agents: [model]}}
  - {on: pre_tool_call, call: probe.check, match: {agents: [before, chain]}}
  - {on: pre_tool_call, call: probe.second, match: {agents: [chain]}}
  - {on: post_tool_call, call: probe.check, match: {agents: [after]}}
  - {on: job_end, call: probe.check, match: {agents: [end, before]}}
`

var oneLook = []chat.Response{look("x"), says("Done.")}

func TestPeopleDecideAtEveryEvent(t *testing.T) {
	t.Parallel()
	j := startPlugin(t, peopled, &playing{list: oneLook})
	kept := func(key string, value any) map[string]any {
		return map[string]any{"decision": "escalate", "reason": "look at it", key: value}
	}
	messages := []any{map[string]any{"role": "user", "content": "kept messages"}}
	j.answers(map[string]any{
		"check:job_start":      kept("input", "kept input"),
		"check:pre_llm_call":   kept("messages", messages),
		"check:pre_tool_call":  kept("arguments", map[string]any{"what": "kept"}),
		"check:post_tool_call": kept("result", "kept result"),
		"check:job_end":        kept("output", "kept output"),
	})
	for _, tt := range []struct {
		agent, event  string
		before, value string // as the person is shown them
	}{
		{"start", "job_start", `"start yes"`, `"kept input"`},
		{"model", "pre_llm_call", "", `[{"content":"kept messages","role":"user"}]`},
		{"before", "pre_tool_call", `{"what":"x"}`, `{"what":"kept"}`},
		{"after", "post_tool_call", `"seen x"`, `"kept result"`},
		{"end", "job_end", `"Done."`, `"kept output"`},
	} {
		t.Run("P17, P18 yes at "+tt.event, func(t *testing.T) {
			input := tt.agent + " yes"
			id := j.startOf(tt.agent, input)
			a := j.waitsIn(id)
			r := a.Request
			if r.Kind != approval.Hook || r.Event != tt.event || r.Agent != tt.agent || r.Job != id.Job || string(r.Value) != tt.value || tt.before != "" && string(r.Before) != tt.before {
				t.Errorf("asked %+v: %s, before %s", r, r.Value, r.Before)
			}
			if len(r.Reasons) != 1 || r.Reasons[0].By != "probe.check" || r.Reasons[0].Text != "look at it" {
				t.Errorf("because of %+v", r.Reasons)
			}
			j.decide(a, approval.Answer{Yes: true})
			switch tt.agent {
			case "model":
				// The new messages hold for this call alone: the next one asks again.
				second := j.waitsIn(id, a)
				if !strings.Contains(string(second.Request.Before), "model yes") {
					t.Errorf("the next call begins from %s", second.Request.Before)
				}
				requests := j.model.requests()
				if last := messagesOf(requests[len(requests)-1]); len(last) != 1 || last[0].Content != "kept messages" {
					t.Errorf("the model was sent %+v", last)
				}
				if err := j.st.Cancel(t.Context(), id, "tester", "enough"); err != nil {
					t.Fatal(err)
				}
				j.end(id)
				return
			case "before":
				j.decide(j.waitsIn(id, a), approval.Answer{Yes: true}) // its end is watched too
				completed(t, j.end(id), "kept output")
				j.read(t, input, "seen kept")
			case "after":
				completed(t, j.end(id), "Done.")
				j.read(t, input, "kept result")
			case "end":
				completed(t, j.end(id), "kept output")
			case "start":
				completed(t, j.end(id), "Done.")
				j.read(t, "kept input", "seen x")
				if got := j.readsOf(input); got != nil {
					t.Errorf("the agent got the old input")
				}
			}
			if got := len(j.askedIn(id, "check")); got > 2 || tt.agent != "before" && got != 1 {
				t.Errorf("the hook was asked %d times", got)
			}
		})
		t.Run("P17 P102 no at "+tt.event, func(t *testing.T) {
			input := tt.agent + " no"
			id := j.startOf(tt.agent, input)
			a := j.waitsIn(id)
			j.decide(a, approval.Answer{Note: "not so"})
			switch tt.agent {
			case "before":
				j.decide(j.waitsIn(id, a), approval.Answer{Yes: true})
				completed(t, j.end(id), "kept output")
				j.read(t, input, "The call to probe.look was not made: hook probe.check denied it: look at it. A person refused it.")
			case "after":
				completed(t, j.end(id), "Done.")
				j.read(t, input, "The result of the call to probe.look is withheld: hook probe.check denied it: look at it. A person refused it.")
			default:
				end := j.end(id)
				if end.State != job.Failed || end.Code != agentjob.HookDenied || !strings.Contains(end.Reason, "look at it") || !strings.Contains(end.Reason, "a person refused") {
					t.Errorf("ended as %+v", end)
				}
			}
			if got := j.approvalsOf(id); got[len(got)-1].State == control.Waiting {
				t.Errorf("the approval is %+v", got)
			}
		})
	}
	t.Run("P100 an output that is no text cannot be used", func(t *testing.T) {
		j.answers(map[string]any{"check:job_end": map[string]any{"decision": "modify", "output": 7}})
		if end := j.end(j.startOf("end", "contract")); end.Code != agentjob.HookDenied || !strings.Contains(end.Reason, "the output must be a text") {
			t.Errorf("ended as %+v", end)
		}
	})
	t.Run("P100 an escalate's value that the tool refuses cannot be used", func(t *testing.T) {
		j.answers(map[string]any{"check:pre_tool_call": kept("arguments", map[string]any{"what": 7})})
		id := j.startOf("before", "misfit")
		completed(t, j.end(id), "Done.")
		if got := j.readsOf("misfit"); len(got) != 1 || !strings.Contains(got[0], "the hook's answer cannot be used") || len(j.approvalsOf(id)) > 0 {
			t.Errorf("the model read %q", got)
		}
	})
	for agent, event := range map[string]string{"start": "job_start", "model": "pre_llm_call", "after": "post_tool_call", "end": "job_end"} {
		t.Run("P61 P65 a failure at "+event, func(t *testing.T) {
			j.answers(map[string]any{"check:" + event: map[string]any{"decision": "denied"}})
			const why = `the hook's answer cannot be used: "denied" is no decision`
			end := j.end(j.startOf(agent, "failure "+agent))
			if agent == "after" {
				completed(t, end, "Done.")
				if got := j.readsOf("failure after"); len(got) != 1 || !strings.HasPrefix(got[0], "The result of the call to probe.look is withheld: hook probe.check denied it: "+why) {
					t.Errorf("the model read %q", got)
				}
			} else if end.Code != agentjob.HookDenied || !strings.HasPrefix(end.Reason, "probe.check: "+why) {
				t.Errorf("ended as %+v", end)
			}
		})
	}
	t.Run("P84 a job that was cancelled has no job_end", func(t *testing.T) {
		j.answers(map[string]any{"check:pre_tool_call": map[string]any{"decision": "escalate"}})
		id := j.startOf("before", "cancelled")
		j.waitsIn(id)
		if err := j.st.Cancel(t.Context(), id, "tester", "enough"); err != nil {
			t.Fatal(err)
		}
		if end := j.end(id); end.State != job.Cancelled || len(j.askedIn(id, "check")) != 1 {
			t.Errorf("ended as %+v, asked %v", end, j.askedIn(id, "check"))
		}
	})
}

func TestAYesIsForWhatWasShown(t *testing.T) {
	t.Parallel()
	j := startPlugin(t, peopled, &playing{list: oneLook})
	escalate := func(reason string) map[string]any { return map[string]any{"decision": "escalate", "reason": reason} }
	change := map[string]any{"decision": "modify", "arguments": map[string]any{"what": "changed"}}
	// runs a job of the chain; each answer is to the approval that waits next.
	runs := func(t *testing.T, input string, check, second any, answers ...bool) (asked []control.Approval) {
		t.Helper()
		j.answers(map[string]any{"check": check, "second": second})
		id := j.startOf("chain", input)
		for _, yes := range answers {
			a := j.waitsIn(id, asked...)
			asked = append(asked, a)
			j.decide(a, approval.Answer{Yes: yes})
		}
		completed(t, j.end(id), "Done.")
		if got := j.approvalsOf(id); len(got) != len(answers) {
			t.Errorf("a person was asked %d times", len(got))
		}
		return asked
	}
	shows := func(t *testing.T, a control.Approval, value string, reasons ...string) {
		t.Helper()
		var got []string
		for _, r := range a.Request.Reasons {
			got = append(got, r.By+": "+r.Text)
		}
		if string(a.Request.Value) != value || fmt.Sprint(got) != fmt.Sprint(reasons) {
			t.Errorf("shown %s because of %q, want %s and %q", a.Request.Value, got, value, reasons)
		}
	}
	t.Run("P103 a value that no later hook changes is asked about once", func(t *testing.T) {
		asked := runs(t, "same", escalate("first"), map[string]any{"decision": "allow"}, true)
		shows(t, asked[0], `{"what":"x"}`, "probe.check: first")
		j.read(t, "same", "seen x")
	})
	t.Run("P103 a value that a later hook changes is asked about once more, and a no counts", func(t *testing.T) {
		asked := runs(t, "changed", escalate("first"), change, true, false)
		shows(t, asked[1], `{"what":"changed"}`, "probe.check: first")
		j.read(t, "changed", "The call to probe.look was not made: hook probe.check denied it: first. A person refused it.")
	})
	t.Run("P103 when the later hook escalates too, the person sees all reasons and the final value", func(t *testing.T) {
		second := escalate("second")
		second["arguments"] = map[string]any{"what": "changed"}
		asked := runs(t, "both", escalate("first"), second, true, true)
		shows(t, asked[0], `{"what":"x"}`, "probe.check: first")
		shows(t, asked[1], `{"what":"changed"}`, "probe.check: first", "probe.second: second")
		j.read(t, "both", "seen changed")
	})
	t.Run("P19 P103 a later deny ends it, whatever a person said", func(t *testing.T) {
		runs(t, "denied", escalate("first"), map[string]any{"decision": "deny", "reason": "never"}, true)
		j.read(t, "denied", "The call to probe.look was not made: hook probe.second denied it: never.")
	})
	t.Run("P17 a no ends the chain", func(t *testing.T) {
		runs(t, "no", escalate("first"), change, false)
		for _, e := range j.asked("second") {
			if e["job"] == j.lastJob().Job {
				t.Errorf("the second hook was asked %v", e)
			}
		}
	})
}

// lastJob is the job that was started last.
func (j *jobs) lastJob() job.ID {
	j.t.Helper()
	all, err := j.st.Jobs(j.t.Context(), job.Filter{Tenant: j.me.Tenant, Limit: 1})
	if err != nil || len(all) == 0 {
		j.t.Fatalf("%v, %v", all, err)
	}
	return all[0].ID
}

func TestApprovalsEnd(t *testing.T) {
	t.Parallel()
	j := newJobs(t, &playing{list: oneLook})
	j.manifest(peopled)
	j.write(j.data+"/belay.yaml", "approvals: {expiry: 1s}\n")
	j.open()
	j.install()
	j.policy(allowTools + "  - {name: ask, tools: [probe.look], agents: [end], verdict: require_approval}\n")
	j.answers(map[string]any{"check:pre_tool_call": map[string]any{"decision": "escalate", "reason": "look at it"}, "check:job_start": map[string]any{"decision": "escalate", "reason": "odd"}})
	refused := func(t *testing.T, a control.Approval) {
		t.Helper()
		if err := j.st.Decide(t.Context(), j.me, a.ID, a.Digest, approval.Answer{Yes: true}); err == nil {
			t.Error("a late answer was taken")
		}
	}
	t.Run("P101 the deadline counts as no, and the reason says so", func(t *testing.T) {
		id := j.startOf("before", "tool")
		a := j.waitsIn(id)
		completed(t, j.end(id), "Done.")
		j.read(t, "tool", "The call to probe.look was not made: hook probe.check denied it: look at it; nobody decided in time.")
		refused(t, a)
		if got := j.approvalsOf(id); got[0].State != control.Expired {
			t.Errorf("the approval is %s", got[0].State)
		}
	})
	t.Run("P101 the deadline passes while no process is there", func(t *testing.T) {
		id := j.startOf("start", "start")
		a := j.waitsIn(id)
		j.close()
		time.Sleep(time.Until(a.Until))
		j.open()
		if end := j.end(id); end.Code != agentjob.HookDenied || !strings.Contains(end.Reason, "odd; nobody decided in time") || strings.Contains(end.Reason, "person") {
			t.Errorf("ended as %+v", end)
		}
		refused(t, a)
	})
	t.Run("P101 the deadline of a rule's approval", func(t *testing.T) {
		id := j.startOf("end", "rule")
		completed(t, j.end(id), "Done.")
		j.read(t, "rule", "The call to probe.look was not made: nobody decided in time.")
	})
	j.close()
	j.write(j.data+"/belay.yaml", "approvals: {expiry: 1h}\n")
	j.open()
	t.Run("P101 the job's own deadline ends it and closes the approval", func(t *testing.T) {
		id, err := j.st.StartJob(t.Context(), j.me, control.JobOrder{Agent: "before", Input: json.RawMessage(`"deadline"`), Deadline: time.Now().Add(20 * time.Second)})
		if err != nil {
			t.Fatal(err)
		}
		a := j.waitsIn(id)
		if end := j.end(id); end.State != job.Failed || end.Code != job.LimitExceeded {
			t.Errorf("ended as %+v", end)
		}
		refused(t, a)
		if got := j.approvalsOf(id); got[0].State != control.Closed {
			t.Errorf("the approval is %s", got[0].State)
		}
	})
	t.Run("P101 while an approval waits the job has no process", func(t *testing.T) {
		id := j.startOf("before", "parked")
		a := j.waitsIn(id)
		until(t, "the job waits", func() bool {
			h, err := j.st.History(t.Context(), id)
			return err == nil && h.Job.State == job.Waiting
		})
		j.restart()
		if got := j.waitsIn(id); got.ID != a.ID || got.Digest != a.Digest || !got.Until.Equal(a.Until) {
			t.Errorf("after the restart %+v waits", got)
		}
		j.decide(a, approval.Answer{Yes: true})
		completed(t, j.end(id), "Done.")
		j.read(t, "parked", "seen x")
	})
	t.Run("P102 of two deciders at once the first counts and the other is told", func(t *testing.T) {
		id := j.startOf("before", "two")
		a := j.waitsIn(id)
		const n = 8
		errs := make([]error, n)
		var all sync.WaitGroup
		begin := make(chan struct{})
		for i := range n {
			all.Go(func() {
				<-begin
				who := j.me
				who.Name = fmt.Sprint("decider-", i)
				errs[i] = j.st.Decide(t.Context(), who, a.ID, a.Digest, approval.Answer{Yes: i%2 == 0})
			})
		}
		close(begin)
		all.Wait()
		first := -1
		for i, err := range errs {
			switch {
			case err == nil && first < 0:
				first = i
			case err == nil:
				t.Errorf("%d and %d both counted", first, i)
			case !errors.Is(err, job.ErrDecided):
				t.Errorf("decider %d was told %v", i, err)
			}
		}
		completed(t, j.end(id), "Done.")
		if got := j.readsOf("two"); (got[0] == "seen x") != (first%2 == 0) {
			t.Errorf("decider %d was first, the model read %q", first, got)
		}
		if got := j.approvalsOf(id)[0].Decided; got == nil || got.By != fmt.Sprint("decider-", first) {
			t.Errorf("decided by %+v, not by %d", got, first)
		}
		facts, err := j.st.Store().AuditEntries(t.Context(), "main", 0, 1000)
		if err != nil {
			t.Fatal(err)
		}
		facts = slices.DeleteFunc(facts, func(e audit.Entry) bool { return e.Action != audit.ApprovalDecided || e.Subject != a.ID })
		if len(facts) != 1 || facts[0].Actor != fmt.Sprint("decider-", first) {
			t.Errorf("the audit record has %+v", facts)
		}
	})
}
