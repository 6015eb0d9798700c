//go:build linux

package tests

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/belay-run/belay/internal/approval"
	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/control"
	"github.com/belay-run/belay/internal/job"
)

// watched is a plugin whose functions are watched, for several agents, by hooks that
// do not declare that they are harmless.
const watched = `name: acme
tools:
  - {id: probe, mcp: [python, server.py]}
agents:
  - {id: worker, instructions: Work., model: m, tools: ["probe.*"]}
  - {id: lenient, instructions: Work., model: m, tools: ["probe.*"]}
  - {id: careful, instructions: Work., model: m, tools: ["probe.*"]}
  - {id: reaching, instructions: Work., model: m, tools: ["probe.*"]}
  - {id: locked, instructions: Work., model: m, tools: ["probe.*"]}
hooks:
  - {on: pre_tool_call, call: probe.undeclared, match: {tools: [probe.look], agents: [worker]}, timeout: 1s}
  - {on: pre_tool_call, call: probe.undeclared, match: {agents: [lenient]}, on_timeout: allow}
  - {on: pre_tool_call, call: probe.undeclared, match: {agents: [careful]}, on_timeout: escalate}
  - {on: pre_tool_call, call: probe.undeclared, match: {agents: [locked]}}
  - {on: pre_tool_call, call: probe.reaches, match: {agents: [reaching]}}
  - {on: job_start, call: probe.check}
`

func look(what string) chat.Response { return does("probe.look", fmt.Sprintf(`{"what": %q}`, what)) }

// startPlugin installs a plugin of the probe's server with a manifest.
func startPlugin(t *testing.T, manifest string, model *playing) *jobs {
	t.Helper()
	j := newJobs(t, model)
	j.manifest(manifest)
	j.open()
	j.install()
	j.policy(allowTools)
	return j
}

// askedIn is what the probe wrote down of a hook in a job.
func (j *jobs) askedIn(id job.ID, name string) (out []map[string]any) {
	j.t.Helper()
	for _, e := range j.asked(name) {
		if e["job"] == id.Job {
			out = append(out, e)
		}
	}
	return out
}

// waitsIn gives the approval that waits in a job, once there is one that was not
// decided before.
func (j *jobs) waitsIn(id job.ID, decided ...control.Approval) control.Approval {
	j.t.Helper()
	var found control.Approval
	until(j.t, "an approval waits in the job", func() bool {
		if h, err := j.st.History(j.t.Context(), id); err != nil || h.Job.State.Ended() {
			j.t.Fatalf("the job ended as %+v, %v", h.Job.End, err)
		}
		all, err := j.st.Approvals(j.t.Context(), id.Tenant, control.ApprovalFilter{Waiting: true, Job: id.Job})
		if err != nil {
			j.t.Fatal(err)
		}
		for _, a := range all {
			old := false
			for _, d := range decided {
				old = old || d.ID == a.ID
			}
			if !old {
				found = a
				return true
			}
		}
		return false
	})
	return found
}

// approvalsOf are all approvals of a job, in any state.
func (j *jobs) approvalsOf(id job.ID) []control.Approval {
	j.t.Helper()
	all, err := j.st.Approvals(j.t.Context(), id.Tenant, control.ApprovalFilter{Waiting: true, Decided: true, Job: id.Job})
	if err != nil {
		j.t.Fatal(err)
	}
	return all
}

// read fails the test unless the model of a job read these results last.
func (j *jobs) read(t *testing.T, input string, want ...string) {
	t.Helper()
	got := j.readsOf(input)
	if len(got) != len(want) {
		t.Fatalf("%s: the model read %q, want %q", input, got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%s: the model read %q, want %q", input, got[i], want[i])
		}
	}
}

func TestHooksNeedPermission(t *testing.T) {
	t.Parallel()
	model := &playing{list: []chat.Response{look("a"), look("b"), says("Done.")}, by: map[string][]chat.Response{
		"beside": {does("probe.look", `{"what": "a"}`, "probe.again", `{"what": "b"}`, "probe.look", `{"what": "c"}`), look("d"), says("Done.")},
		"locked": {does("probe.again", `{"what": "x"}`), says("Done.")},
	}}
	j := startPlugin(t, watched, model)
	var beside job.ID
	var asked control.Approval
	t.Run("P04 an undeclared hook waits for a person before it is asked, a harmless one does not", func(t *testing.T) {
		beside = j.startOf("worker", "beside")
		asked = j.waitsIn(beside)
		if r := asked.Request; r.Kind != approval.Annotation || r.Tool != "probe.undeclared" || r.Event != "pre_tool_call" || len(r.Reasons) == 0 || !strings.Contains(r.Reasons[0].Note, "hook") {
			t.Errorf("asked %+v", r)
		}
		if len(j.askedIn(beside, "check")) != 1 || len(j.asked("undeclared")) > 0 || len(j.asked("look")) > 0 {
			t.Errorf("asked %s", j.order())
		}
	})
	t.Run("P105 a hook that waits to be permitted holds up no other call", func(t *testing.T) {
		until(t, "the other call was made", func() bool { return len(j.asked("again")) == 1 })
		if got := len(j.model.requests()); got != 1 {
			t.Errorf("the model was asked %d times before all had ended", got)
		}
		if got := j.approvalsOf(beside); len(got) != 1 {
			t.Errorf("for two calls that meet one hook a person is asked %d times", len(got))
		}
	})
	t.Run("P63 waiting for a person counts no hook time, and a yes holds for the rest of the job", func(t *testing.T) {
		time.Sleep(1200 * time.Millisecond) // longer than the hook's own time
		j.decide(asked, approval.Answer{Yes: true})
		completed(t, j.end(beside), "Done.")
		j.read(t, "beside", "seen a", "again b", "seen c", "seen d")
		if got := len(j.askedIn(beside, "undeclared")); got != 3 {
			t.Errorf("the hook was asked %d times", got)
		}
		if got := j.approvalsOf(beside); len(got) != 1 {
			t.Errorf("a person was asked %d times", len(got))
		}
	})
	for agent, reads := range map[string]string{
		"lenient": "seen ",
		"worker":  "The call to probe.look was not made: hook probe.undeclared denied it: unavailable: the hook may not be asked: a person refused: not this one.",
	} {
		t.Run("P63 a person's no is a failure, "+agent, func(t *testing.T) {
			id := j.startOf(agent, agent)
			j.decide(j.waitsIn(id), approval.Answer{Note: "not this one"})
			completed(t, j.end(id), "Done.")
			a, b := reads, reads
			if agent == "lenient" {
				a, b = reads+"a", reads+"b"
			}
			j.read(t, agent, a, b)
			if len(j.askedIn(id, "undeclared")) > 0 || len(j.approvalsOf(id)) != 1 {
				t.Errorf("asked %s, %d approvals", j.order(), len(j.approvalsOf(id)))
			}
		})
	}
	t.Run("P63 a person's no is a failure, escalated to a person", func(t *testing.T) {
		id := j.startOf("careful", "careful")
		first := j.waitsIn(id)
		j.decide(first, approval.Answer{})
		second := j.waitsIn(id, first)
		if r := second.Request; r.Kind != approval.Hook || r.Tool != "probe.look" || !strings.Contains(r.Reasons[0].Text, "may not be asked: a person refused") {
			t.Errorf("asked %+v", r)
		}
		j.decide(second, approval.Answer{Yes: true})
		third := j.waitsIn(id, first, second)
		j.decide(third, approval.Answer{})
		completed(t, j.end(id), "Done.")
		if got := j.readsOf("careful"); len(got) != 2 || got[0] != "seen a" || !strings.HasSuffix(got[1], " A person refused it.") {
			t.Errorf("the model read %q", got)
		}
	})
	t.Run("P30 P04 of a call that the policy refuses outright no hook is to be permitted", func(t *testing.T) {
		j.policy(allowTools + "  - {name: locked, tools: [probe.again], agents: [locked], verdict: refuse, reason: it may not}\n")
		id := j.startOf("locked", "locked")
		completed(t, j.end(id), "Done.")
		j.read(t, "locked", "The call to probe.again was not made: the tool policy refuses it: it may not.")
		if len(j.approvalsOf(id)) > 0 || len(j.askedIn(id, "undeclared")) > 0 {
			t.Errorf("asked %s, %d approvals", j.order(), len(j.approvalsOf(id)))
		}
	})
	for _, tt := range []struct {
		rule string
		kind approval.Kind // "" when nobody is asked
		made bool
	}{
		{"", approval.Annotation, true},
		{"allow", "", true},
		{"refuse", "", false},
		{"require_approval", approval.Policy, true},
	} {
		t.Run("P04 another combination is decided as the policy says: "+tt.rule, func(t *testing.T) {
			text := allowTools
			if tt.rule != "" {
				text += "  - {name: reaching, tools: [probe.reaches], verdict: " + tt.rule + ", reason: so it is}\n"
			}
			j.policy(text)
			input := "reaching " + tt.rule
			id := j.startOf("reaching", input)
			if tt.kind != "" {
				a := j.waitsIn(id)
				if a.Request.Kind != tt.kind || a.Request.Tool != "probe.reaches" {
					t.Errorf("asked %+v", a.Request)
				}
				j.decide(a, approval.Answer{Yes: true})
			}
			completed(t, j.end(id), "Done.")
			if tt.made {
				j.read(t, input, "seen a", "seen b")
			} else if got := j.readsOf(input); !strings.Contains(got[0], "the tool policy refuses to have the hook asked: so it is") {
				t.Errorf("the model read %q", got)
			}
			if got := len(j.askedIn(id, "reaches")); (got == 2) != tt.made {
				t.Errorf("the hook was asked %d times", got)
			}
		})
	}
}
