//go:build linux

package tests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/belay-run/belay/internal/agentjob"
	"github.com/belay-run/belay/internal/approval"
	"github.com/belay-run/belay/internal/control"
	"github.com/belay-run/belay/internal/job"
)

const killedHooks = "hooks:\n  - {on: pre_tool_call, call: probe.check}\n  - {on: pre_tool_call, call: probe.judge, timeout: 30s}\n"

// runAndKill runs a job by the real program on the station's data folder and kills
// the program once the probe was asked n times for name, or for anything. A script is in the model's place.
func (j *jobs) runAndKill(script, name string, n int) {
	j.t.Helper()
	j.close()
	file := filepath.Join(j.t.TempDir(), "script.yml")
	j.write(file, script)
	cmd := exec.Command(program(j.t), "job", "run", "worker", "--input", "go", "--data", j.data, "--tenant", "main", "--model", "scripted/"+file)
	cmd.Env = append(os.Environ(), "BELAY_MODEL=")
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		j.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for deadline := time.Now().Add(60 * time.Second); len(j.asked(name)) < n; time.Sleep(time.Millisecond) {
		if len(ended) > 0 || time.Now().After(deadline) {
			_ = cmd.Process.Kill()
			<-ended
			j.t.Fatalf("%s was asked %d times\n%s", name, len(j.asked(name)), &log)
		}
	}
	_ = cmd.Process.Kill() // a job that waits for a person lets the program end
	<-ended
}

// only gives the one job there is.
func (j *jobs) only() job.ID {
	j.t.Helper()
	all, err := j.st.Jobs(j.t.Context(), job.Filter{Tenant: j.me.Tenant})
	if err != nil || len(all) != 1 {
		j.t.Fatalf("jobs %+v, %v", all, err)
	}
	return all[0].ID
}

func TestKilledWhileAHookIsAsked(t *testing.T) {
	t.Parallel()
	j := startJobs(t, killedHooks, says("made by the script"), says("Done."))
	j.answers(map[string]any{"judge": "sleep"})
	j.runAndKill("rules:\n  - when: {user: go}\n    call: {tool: probe__look, args: '{\"what\": \"x\"}'}\ndefault: {say: no}\n", "judge", 1)
	j.answers(map[string]any{"check": map[string]any{"decision": "deny", "reason": "asked again"}})
	j.open()
	id := j.only()
	t.Run("P80 the job goes on by itself and ends", func(t *testing.T) {
		completed(t, j.end(id), "Done.")
		if got := j.asked("look"); len(got) != 1 {
			t.Errorf("the tool ran as %v", got)
		}
	})
	t.Run("P80 a recorded answer is not asked for again", func(t *testing.T) {
		if got := j.asked("check"); len(got) != 1 {
			t.Errorf("asked %s", j.order())
		}
	})
	t.Run("P80 a hook without a recorded answer is asked again, with the same event", func(t *testing.T) {
		got := j.asked("judge")
		if len(got) != 2 || !reflect.DeepEqual(got[0], got[1]) {
			t.Errorf("asked %v", got)
		}
	})
	t.Run("P80 the history shows both tries", func(t *testing.T) {
		j.close()
		out, err := exec.Command(program(t), "job", "show", id.Job, "--data", j.data, "--tenant", "main", "--json").CombinedOutput()
		j.open()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if n := strings.Count(strings.ReplaceAll(string(out), " ", ""), `"tries":2`); n == 0 {
			t.Errorf("job show gives\n%s", out)
		}
	})
	t.Run("P80 replay asks nobody and finds no difference", func(t *testing.T) {
		before := len(j.asked(""))
		report, err := j.st.Replay(t.Context(), id)
		raw, _ := json.Marshal(report)
		if err != nil || len(report.Differences) > 0 || report.End == nil || len(j.asked("")) != before {
			t.Errorf("%s %v; asked %s", raw, err, j.order())
		}
	})
}

// A tool that cannot be called twice is not called again: a person says what to do.
func TestKilledWhileAToolRuns(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		what   string
		answer approval.Answer
		calls  int
		read   string
	}{
		{"is called again when a person says so", approval.Answer{Action: approval.Retry}, 2, `"done"`},
		{"is given a result by hand", approval.Answer{Action: approval.Result, Result: json.RawMessage(`{"text": "it was done"}`)}, 1, "it was done"},
	} {
		t.Run(tt.what, func(t *testing.T) {
			t.Parallel()
			j := startJobs(t, killedHooks, says("made by the script"), says("Done."))
			j.answers(map[string]any{"act": "sleep"})
			j.runAndKill("rules:\n  - when: {user: go}\n    call: {tool: probe__act, args: '{\"what\": \"x\"}'}\ndefault: {say: no}\n", "act", 1)
			j.answers(nil)
			j.open()
			id, a := j.only(), j.waits(1)[0]
			if a.Request.Kind != approval.Outcome || len(j.asked("act")) != 1 {
				t.Fatalf("asked %+v; %s", a.Request, j.order())
			}
			j.decide(a, tt.answer)
			completed(t, j.end(id), "Done.")
			if read := j.reads(); len(read) != 1 || !strings.Contains(read[0], tt.read) {
				t.Errorf("the model read %q", read)
			}
			if got := j.order(); got != "check pre_tool_call, judge pre_tool_call"+strings.Repeat(", act", tt.calls) {
				t.Errorf("asked %s", got)
			}
		})
	}
}

// TestKilledAfterEveryCall kills the program after each call that the plugin's server
// got, in a job with every kind of hook, calls side by side and an escalation.
func TestKilledAfterEveryCall(t *testing.T) {
	t.Parallel()
	const hooks = "hooks:\n" +
		"  - {on: job_start, call: probe.check}\n  - {on: pre_llm_call, call: probe.check}\n  - {on: pre_tool_call, call: probe.check}\n" +
		"  - {on: post_tool_call, call: probe.check}\n  - {on: job_end, call: probe.check}\n"
	const script = `rules:
  - when: {user: go}
    call:
      - {tool: probe__look, args: '{"what": "x"}'}
      - {tool: probe__act, args: '{"what": "y"}'}
      - {tool: probe__again, args: '{"what": "z"}'}
default: {say: "no"}
`
	parts := map[string]any{"check:pre_tool_call:probe.again": map[string]any{"decision": "escalate", "reason": "odd"}}
	for n := 1; n <= 9; n++ { // the call that waits for a person has no result yet
		t.Run(fmt.Sprintf("P80 killed after %d", n), func(t *testing.T) {
			t.Parallel()
			model := does("probe.look", `{"what": "x"}`, "probe.act", `{"what": "y"}`, "probe.again", `{"what": "z"}`)
			j := startJobs(t, hooks, model, says("Done."))
			j.answers(parts)
			j.runAndKill(script, "", n)
			j.open()
			id := j.only()
			ended := make(chan *job.End, 1)
			go func() { ended <- j.end(id) }()
			hook := 0
			for over := false; !over; {
				select {
				case end := <-ended:
					completed(t, end, "Done.")
					over = true
				case <-time.After(20 * time.Millisecond):
					hook += j.answerAll()
				}
			}
			if hook != 1 {
				t.Errorf("%d approvals of a hook", hook)
			}
			if len(j.asked("act")) > 1 {
				t.Errorf("called twice: %s", j.order())
			}
			j.askedAsRecorded(id)
		})
	}
}

// answerAll says yes to what hooks ask, gives a result for calls of which nobody knows,
// and counts the hooks' approvals.
func (j *jobs) answerAll() (hooks int) {
	j.t.Helper()
	all, err := j.st.Approvals(j.t.Context(), j.me.Tenant, control.ApprovalFilter{Waiting: true})
	if err != nil {
		j.t.Fatal(err)
	}
	for _, a := range all {
		if a.Request.Kind == approval.Outcome {
			j.decide(a, approval.Answer{Action: approval.Result, Result: json.RawMessage(`{"text": "done"}`)})
			continue
		}
		j.decide(a, approval.Answer{Yes: true})
		hooks++
	}
	return hooks
}

// askedAsRecorded holds what the hooks' server counted against the job's history: a
// hook was asked no more often than its tries say, and none after its answer.
func (j *jobs) askedAsRecorded(id job.ID) {
	j.t.Helper()
	h, err := j.st.History(j.t.Context(), id)
	if err != nil {
		j.t.Fatal(err)
	}
	tries, answered := 0, map[string]bool{}
	for _, r := range h.Records {
		switch {
		case r.What == job.Begun && answered[r.Key]:
			j.t.Errorf("%s was begun after its answer", r.Key)
		case r.What == job.Begun && r.Kind == agentjob.KindHook:
			tries++
		case r.What == job.Answered && answered[r.Key]:
			j.t.Errorf("%s has two answers", r.Key)
		case r.What == job.Answered:
			answered[r.Key] = true
		}
	}
	if asked := len(j.asked("check")); asked > tries || tries > asked+3 {
		j.t.Errorf("the server was asked %d times, the history has %d tries", asked, tries)
	}
}
