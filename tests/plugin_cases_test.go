package tests

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// tested is what belay plugin test says as JSON.
type tested struct {
	OK    bool
	Cases []struct {
		Name, Status string
		Failures     []struct{ What, Message string }
	}
	Coverage struct {
		Covered, Branches int
		Percent           float64
		Points            []struct {
			Kind, Name string
			Branches   []struct {
				Name  string
				Count int
			}
			Seen map[string]int
		}
		Unreached []string
	}
}

// test runs cases that stand beside a plugin.
func (c cli) test(t *testing.T, dir, cases string, args ...string) (got tested, status int) {
	t.Helper()
	file := filepath.Join(pluginFolder(t, map[string]string{"cases.yaml": cases}), "cases.yaml")
	out, errs, status := c.run(t, append([]string{"plugin", "test", dir, file, "--json", "--coverage"}, args...)...)
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v, status %d: %s%s", err, status, out, errs)
	}
	return got, status
}

const watching = `name: watching
tools: [{id: guard, mcp: [python, -m, server]}]
agents: [{id: own, instructions: Work., model: fast}]
hooks:
  - {on: pre_tool_call, call: guard.check}
  - {on: pre_tool_call, call: guard.text, match: {tools: [git.push], agents: [reviewer, writer]}}
  - {on: job_start, call: guard.structured, match: {agents: [refused]}}
`

func whichHooksAreAsked(t *testing.T, belay cli) {
	dir := pluginFolder(t, map[string]string{"belay-plugin.yaml": watching, "server.py": guardServer})
	call := func(name, agent, tool, rest string) string {
		return fmt.Sprintf("  - name: %s\n    event: {on: pre_tool_call, agent: %s, tool: %s}\n    %s\n", name, agent, tool, rest)
	}
	const only, both = "hooks: [guard.check]\n    expect: allow", "hooks: [guard.check, {hook: guard.text, says: deny, reason: in words}]\n    expect: deny"
	got, _ := belay.test(t, dir, "cases:\n"+
		call("P03 the plugin's own agent", "own", "any.thing", only)+
		call("P03 an agent from elsewhere", "elsewhere", "some.where", only)+
		call("P91 both names fit", "writer", "git.push", both)+
		call("P91 another tool", "writer", "git.pull", only)+
		call("P91 another agent", "editor", "git.push", only)+
		call("P91 a part of the tool's name", "writer", "git.push2", only)+
		call("P91 a tool in other letters", "writer", "git.Push", only)+
		call("P91 an agent in other letters", "Reviewer", "git.push", only)+
		"  - name: P02 a function gets the event and answers an object\n    event: {on: job_start, agent: refused, input: x}\n    expect: deny\n    reason: for agent/event/input/job\n"+
		"  - name: P91 another agent's job\n    event: {on: job_start, agent: refusing, input: x}\n    hooks: []\n    expect: allow\n")
	if len(got.Cases) != 10 {
		t.Fatalf("%d cases", len(got.Cases))
	}
	for _, c := range got.Cases {
		t.Run(c.Name, func(t *testing.T) {
			if c.Status != "ok" {
				t.Errorf("%s: %+v", c.Status, c.Failures)
			}
		})
	}
}

func policyPathCoverage(t *testing.T, belay cli) {
	dir := pluginFolder(t, map[string]string{"server.py": guardServer, "belay-plugin.yaml": `name: covered
tools: [{id: guard, mcp: [python, -m, server]}]
hooks:
  - {on: pre_tool_call, call: guard.check, match: {agents: [a]}}
  - {on: pre_tool_call, call: guard.check, match: {agents: [b]}, decisions: [allow, escalate]}
  - {on: post_tool_call, call: guard.check}
`})
	call := func(name, agent, answer, expect string) string {
		return fmt.Sprintf("  - name: %s\n    event: {on: pre_tool_call, agent: %s, tool: x.y, arguments: {answer: %s}}\n    expect: %s\n", name, agent, answer, expect)
	}
	first := "cases:\n" +
		call("allowed", "a", "{decision: allow}", "allow") +
		call("changed", "a", "{decision: modify, arguments: {}}", "modify") +
		call("sent to a person", "a", "{decision: escalate}", "escalate") +
		call("judged", "b", "{decision: escalate}", "escalate") +
		call("turned", "b", "{decision: deny}", "escalate")
	got, status := belay.test(t, dir, first)
	if !got.OK || status != 0 || len(got.Coverage.Points) != 3 {
		t.Fatalf("status %d: %+v", status, got)
	}
	point := func(i int) string {
		p := got.Coverage.Points[i]
		out := p.Kind + " " + p.Name
		for _, b := range p.Branches {
			out += fmt.Sprintf(" %s=%d", b.Name, b.Count)
		}
		return out
	}
	t.Run("P70 each hook is a decision point of kind hook", func(t *testing.T) {
		for i, want := range []string{"hook pre_tool_call:guard.check ", "hook pre_tool_call:guard.check#2 ", "hook post_tool_call:guard.check "} {
			if !strings.HasPrefix(point(i), want) {
				t.Errorf("got %s, want %s", point(i), want)
			}
		}
	})
	t.Run("P71 the branches of a hook that may answer anything", func(t *testing.T) {
		if want := "hook pre_tool_call:guard.check allowed=1 refused=0"; point(0) != want {
			t.Errorf("got %s, want %s", point(0), want)
		}
	})
	t.Run("P71 the branches of a hook that may only escalate", func(t *testing.T) {
		if want := "hook pre_tool_call:guard.check#2 allowed=0 escalated=2"; point(1) != want {
			t.Errorf("got %s, want %s", point(1), want)
		}
	})
	t.Run("P72 what is seen and not counted", func(t *testing.T) {
		c := got.Coverage
		if seen := c.Points[0].Seen; seen["modified"] != 1 || seen["escalated"] != 1 || len(c.Points[1].Seen) > 0 {
			t.Errorf("seen %+v", c.Points)
		}
		if c.Covered != 2 || c.Branches != 6 || int(c.Percent) != 33 {
			t.Errorf("%d of %d, %v %%", c.Covered, c.Branches, c.Percent)
		}
	})
	t.Run("P70 a hook that no case reaches is named", func(t *testing.T) {
		if none := got.Coverage.Unreached; len(none) != 1 || none[0] != "post_tool_call:guard.check" {
			t.Errorf("unreached %q", none)
		}
	})
	t.Run("P70 a least share", func(t *testing.T) {
		more := first + call("refused", "a", "{decision: deny}", "deny") + call("passed", "b", "{decision: allow}", "allow") +
			"  - name: withheld\n    event: {on: post_tool_call, tool: x.y, arguments: {answer: {decision: deny}}, result: x}\n    expect: deny\n"
		if got, status := belay.test(t, dir, more, "--min", "83.4"); status != 1 || !got.OK || got.Coverage.Covered != 5 {
			t.Errorf("status %d with %+v", status, got.Coverage)
		}
		more += "  - name: read\n    event: {on: post_tool_call, tool: x.y, arguments: {}, result: x}\n    expect: allow\n"
		if got, status := belay.test(t, dir, more, "--min", "100"); status != 0 || got.Coverage.Percent != 100 {
			t.Errorf("status %d with %+v", status, got.Coverage)
		}
	})
}
