package agentjob

import (
	"fmt"
	"testing"

	"github.com/belay-run/belay/hook"
)

func TestShadowsCountWhatWouldHaveChanged(t *testing.T) {
	spec := &Spec{
		Tools: []Tool{{ID: "acme", Plugin: "acme-policy"}, {ID: "judge", Plugin: "judge"}},
		Hooks: []Hook{
			{Plugin: "acme-policy", Event: hook.PreToolCall, Tool: "acme", Function: "check", Shadow: true},
			{Plugin: "acme-policy", Event: hook.PreToolCall, Tool: "acme", Function: "check", Shadow: true}, // the engine knows it as #2
			{Plugin: "judge", Event: hook.JobEnd, Tool: "judge", Function: "look", Shadow: true},
			{Plugin: "judge", Event: hook.JobStart, Tool: "judge", Function: "binds"},
		},
	}
	fails := func(p hook.Policy) hook.Run {
		return hook.Run{Failure: &hook.Failure{Kind: hook.Timeout}, Policy: p}
	}
	told := []Told{
		{Job: "j", Key: "3", Event: hook.PreToolCall, Name: "acme.check#2", Tool: "git.push", Says: Denied, Shadow: true, Run: hook.Run{Reason: "not today"}},
		{Job: "j", Key: "1", Event: hook.PreToolCall, Name: "acme.check", Says: Allowed, Shadow: true},
		{Job: "j", Key: "2", Event: hook.PreToolCall, Name: "acme.check", Says: Modified, Shadow: true},
		{Job: "j", Key: "4", Event: hook.PreToolCall, Name: "acme.check", Says: HasFailed, Shadow: true, Run: fails(hook.Closed)},
		{Job: "j", Key: "5", Event: hook.PreToolCall, Name: "acme.check", Says: HasFailed, Shadow: true, Run: fails(hook.HoldPolicy)},
		{Job: "j", Key: "6", Event: hook.PreToolCall, Name: "acme.check", Says: HasFailed, Shadow: true, Run: fails(hook.Open)},
		{Job: "j", Key: "7", Event: hook.JobStart, Name: "judge.binds", Says: Denied}, // it bound
	}
	var s Shadows
	s.Add(spec, told)
	got := s.Report()
	if len(got) != 2 {
		t.Fatalf("%+v", got)
	}
	c := got[0]
	if c.Plugin != "acme-policy" || c.Hook != "acme.check" || c.Asked != 6 || c.Allowed != 2 || c.Denied != 2 || c.Modified != 1 || c.Escalated != 1 || c.Failed != 3 || c.Changes() != 4 {
		t.Errorf("%+v", c)
	}
	var examples []string
	for _, e := range c.Examples {
		examples = append(examples, fmt.Sprint(e.Key, " ", e.Would, " ", e.Failed, " ", e.Tool, e.Reason != ""))
	}
	if want := "[2 modify  false 3 deny  git.pushtrue 4 deny timeout true 5 escalate timeout true]"; fmt.Sprint(examples) != want {
		t.Errorf("%v, want %s", examples, want)
	}
	if quiet := got[1]; quiet.Hook != "judge.look" || quiet.Asked != 0 {
		t.Errorf("a hook that was not asked: %+v", quiet)
	}
	for range 10 {
		s.Add(spec, told)
	}
	if c := s.Report()[0]; c.Asked != 66 || len(c.Examples) != mostExamples {
		t.Errorf("%d asked, %d examples", c.Asked, len(c.Examples))
	}
}
