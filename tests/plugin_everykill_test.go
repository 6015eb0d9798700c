//go:build linux

package tests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/belay-run/belay/internal/approval"
	"github.com/belay-run/belay/internal/control"
	"github.com/belay-run/belay/internal/job"
)

const mortalManifest = `name: acme
tools:
  - {id: guard, mcp: [%q], env: [%s]}
agents:
  - {id: worker, instructions: Work., model: m, tools: ["guard.look", "guard.act", "guard.again"]}
hooks:
  - {on: job_start, call: guard.check, timeout: 30s}
  - {on: job_start, call: guard.loud, timeout: 30s}
  - {on: pre_llm_call, call: guard.check, timeout: 30s}
  - {on: pre_tool_call, call: guard.check, timeout: 30s}
  - {on: pre_tool_call, call: guard.judge, timeout: 30s, match: {tools: [guard.look]}}
  - {on: post_tool_call, call: guard.check, timeout: 30s}
  - {on: job_end, call: guard.check, timeout: 30s}
`

// TestKilledAtEveryStep runs one job with every kind of hook, a hook to be permitted,
// calls side by side and an escalation, in processes that are killed: before and after
// each record, while the server is asked, and around each decision of a person.
func TestKilledAtEveryStep(t *testing.T) {
	t.Parallel()
	m := mortal(t.TempDir())
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	j := &jobs{t: t, plugin: m.plugin(), me: mortalCaller}
	if err := os.Mkdir(m.plugin(), 0o755); err != nil {
		t.Fatal(err)
	}
	j.manifest(fmt.Sprintf(mortalManifest, self, mortalServer))
	if j.st, err = m.open(true, nil); err != nil {
		t.Fatal(err)
	}
	j.install()
	j.policy("rules:\n  - {name: tools, tools: [guard.look, guard.act, guard.again], verdict: allow}\n")
	id := j.start("go")
	j.close()
	for ended := false; !ended; {
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), mortalStation+"="+string(m), mortalServer+"="+string(m))
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		switch err := cmd.Run(); {
		case err == nil:
			ended = true
		case cmd.ProcessState.ExitCode() >= 0: // it was not killed
			t.Fatalf("%v\n%s\nafter %q", err, &out, m.lines("deaths.log"))
		}
		if n := len(m.lines("deaths.log")); n > 200 {
			t.Fatalf("%d deaths: %q", n, m.lines("deaths.log"))
		}
	}
	if j.st, err = m.open(true, nil); err != nil {
		t.Fatal(err)
	}
	defer j.close()
	h, err := j.st.History(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("P80 the job ends as if nobody had been killed", func(t *testing.T) {
		completed(t, h.Job.End, "Done.")
		last := recordOf(h, job.Begun, "agent/1/model/0")
		for _, want := range []string{"look gave x", "by hand", "again gave z"} {
			if !strings.Contains(string(last.Input), want) {
				t.Errorf("the model was told %s, which lacks %q", last.Input, want)
			}
		}
		if r, err := j.st.Replay(t.Context(), id); err != nil || len(r.Differences) > 0 {
			t.Errorf("replayed: %+v, %v", r.Differences, err)
		}
	})
	deaths, asked := m.lines("deaths.log"), m.lines("asked.log")
	t.Run("P80 it was killed at every step", func(t *testing.T) {
		var want []string
		for _, r := range h.Records {
			switch {
			case r.What == job.Begun && r.Try == 1, r.What == job.Answered && !strings.Contains(r.Key, "/again/"):
				want = append(want, fmt.Sprintf("%s %s", r.What, r.Key))
			case r.What == job.Asked: // perhaps a person was there before the process died of the question itself
				want = append(want, "before the decision "+approval.ID("main", id.Job, r.Key))
			}
		}
		for _, event := range []string{"job_start", "pre_llm_call", "pre_tool_call", "post_tool_call", "job_end"} {
			want = append(want, "while asked check at "+event)
		}
		want = append(want, "while asked loud at job_start", "while asked judge at pre_tool_call", "while asked look", "while asked again")
		for _, at := range want {
			// Of calls side by side one dies for the others that have come to a place of
			// their own.
			if beside := strings.Contains(at, "agent/0/call/"); !beside && !slices.Contains(deaths, at) {
				t.Errorf("nobody died at %q", at)
			}
		}
		if len(want) < 45 || len(deaths) < 40 {
			t.Errorf("%d places, %d deaths", len(want), len(deaths))
		}
	})
	t.Run("P80 an answer once recorded is never asked for again, and the tries are shown", func(t *testing.T) {
		answered, tries := map[string]bool{}, map[string]int{}
		for _, r := range h.Records {
			switch r.What {
			case job.Begun:
				if tries[r.Key]++; answered[r.Key] || r.Try != tries[r.Key] {
					t.Errorf("%s: try %d after %d, answered %t", r.Key, r.Try, tries[r.Key]-1, answered[r.Key])
				}
			case job.Answered, job.Decided:
				if answered[r.Key] {
					t.Errorf("%s has two answers", r.Key)
				}
				answered[r.Key] = true
			}
		}
		for key, n := range tries {
			if once := recordOf(h, job.Begun, key).Once; !answered[key] || !once && n < 2 || once && n != 1 {
				t.Errorf("%s was tried %d times, answered %t", key, n, answered[key])
			}
			// Whoever died before the question went out has a try and asked nobody.
			if r := recordOf(h, job.Begun, key); r.Kind == "plugin_hook" {
				if got := timesAsked(t, asked, r); got < 1 || got >= n {
					t.Errorf("%s was tried %d times, its hook was asked %d times", key, n, got)
				}
			}
		}
	})
	t.Run("P80 no call that cannot be made twice is made twice", func(t *testing.T) {
		n := 0
		for _, l := range asked {
			if strings.HasPrefix(l, "act ") {
				n++
			}
		}
		if n != 1 {
			t.Errorf("it was made %d times", n)
		}
	})
	t.Run("P80 no approval is lost or doubled", func(t *testing.T) {
		var got []string
		for _, a := range j.approvalsOf(id) {
			if a.State != control.Approved || a.Decided == nil || a.Decided.By != "tester" {
				t.Errorf("%+v", a)
			}
			got = append(got, fmt.Sprint(a.Request.Kind, " ", a.Request.Tool, " ", a.Decided.Action))
		}
		slices.Sort(got)
		want := []string{
			fmt.Sprint(approval.Annotation, " guard.loud "), fmt.Sprint(approval.Hook, " guard.look "),
			fmt.Sprint(approval.Outcome, " guard.act result"), fmt.Sprint(approval.Outcome, " guard.act retry"),
		}
		// Each try of the call that nobody has seen the end of is asked about.
		if tries := len(got) - 3; !slices.Equal(slices.Compact(got), want) || tries < 1 || len(keysOf(h, "agent/0/call/1/tool")) != tries+1 {
			t.Errorf("approvals %q, want %q", got, want)
		}
	})
	if testing.Verbose() {
		t.Logf("%d processes died", len(deaths))
	}
}

// keysOf are the keys of calls that a key begins: its own and those of later tries
// that a person has asked for.
func keysOf(h job.History, key string) (out []string) {
	for _, r := range h.Records {
		if r.What == job.Begun && strings.HasPrefix(r.Key, key) {
			out = append(out, r.Key)
		}
	}
	return out
}

func recordOf(h job.History, what job.What, key string) job.Record {
	for _, r := range h.Records {
		if r.What == what && r.Key == key {
			return r
		}
	}
	return job.Record{}
}

// timesAsked counts how often the server was asked exactly what a record has.
func timesAsked(t *testing.T, asked []string, r job.Record) (n int) {
	t.Helper()
	var in struct {
		Function string          `json:"function"`
		Event    json.RawMessage `json:"event"`
	}
	if err := json.Unmarshal(r.Input, &in); err != nil {
		t.Fatal(err)
	}
	for _, l := range asked {
		name, args, _ := strings.Cut(l, " ")
		var got struct {
			Event json.RawMessage `json:"event"`
		}
		if name == in.Function && json.Unmarshal([]byte(args), &got) == nil && bytes.Equal(got.Event, in.Event) {
			n++
		}
	}
	return n
}
