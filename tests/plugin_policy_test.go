//go:build linux

package tests

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/belay-run/belay/internal/approval"
	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/job"
)

const governed = `name: acme
tools:
  - {id: probe, mcp: [python, server.py]}
agents:
  - {id: worker, instructions: Work., model: m, tools: ["probe.*"]}
  - {id: locked, instructions: Work., model: m, tools: ["probe.*"]}
hooks:
  - {on: pre_tool_call, call: probe.check}
  - {on: post_tool_call, call: probe.second}
`

const strictPolicy = `rules:
  - {name: tools, tools: [probe.act, probe.again, probe.look], verdict: allow}
  - {name: locked, tools: [probe.again], agents: [locked], verdict: refuse, reason: not for this agent}
  - {name: no-evil, tools: [probe.look], when: 'arguments.what == "evil"', verdict: refuse, reason: it is evil}
  - {name: traced, tools: [probe.look], when: '"probe.check" in origin.changed_by && arguments.what == "rewritten"', verdict: refuse, reason: a hook wrote it}
  - {name: ask, tools: [probe.act], when: 'arguments.what.startsWith("ask")', verdict: require_approval, reason: it cannot be undone}
limits:
  - {name: few, tools: [probe.act], calls: 2}
sequences:
  - {name: looked, tools: [probe.again], after: [probe.look]}
`

func act(what string) chat.Response   { return does("probe.act", fmt.Sprintf(`{"what": %q}`, what)) }
func again(what string) chat.Response { return does("probe.again", fmt.Sprintf(`{"what": %q}`, what)) }

// doneWith is what the model reads of act.
func doneWith(what string) string { return fmt.Sprintf("{\n  \"done\": %q\n}", what) }

func TestHooksAndPolicy(t *testing.T) {
	t.Parallel()
	done := says("Done.")
	model := &playing{by: map[string][]chat.Response{
		"outright": {again("x"), done},
		"skipped":  {look("evil"), done},
		"into":     {look("into"), done},
		"out":      {look("evil-but"), done},
		"traced":   {look("trace"), look("rewritten"), done},
		"both":     {act("ask-both"), done},
		"denied":   {act("ask-denied"), done},
		"no":       {act("ask-no"), done},
		"changed":  {act("to-ask"), done},
		"few":      {act("1"), act("2"), act("3"), done},
		"sequence": {again("early"), look("denied"), again("early"), look("x"), again("late"), done},
	}}
	j := startPlugin(t, governed, model)
	escalated := map[string]any{"decision": "escalate", "reason": "look at it"}
	denied := map[string]any{"decision": "deny", "reason": "it is late"}
	into := func(what string) any {
		return map[string]any{"decision": "modify", "arguments": map[string]any{"what": what}}
	}
	j.answers(map[string]any{
		"check:pre_tool_call:probe.look:into":      into("evil"),
		"check:pre_tool_call:probe.look:evil-but":  into("good"),
		"check:pre_tool_call:probe.look:trace":     into("rewritten"),
		"check:pre_tool_call:probe.look:denied":    denied,
		"check:pre_tool_call:probe.act:ask-both":   escalated,
		"check:pre_tool_call:probe.act:ask-denied": denied,
		"check:pre_tool_call:probe.act:to-ask":     into("ask-changed"),
	})
	j.policy(strictPolicy)
	ids := map[string]job.ID{}
	for input := range model.by {
		agent := "worker"
		if input == "outright" {
			agent = "locked"
		}
		ids[input] = j.startOf(agent, input)
	}
	ended := func(t *testing.T, input string, reads ...string) {
		t.Helper()
		completed(t, j.end(ids[input]), "Done.")
		j.read(t, input, reads...)
	}
	asked := func(t *testing.T, input string, pre, post int) {
		t.Helper()
		if got := len(j.askedIn(ids[input], "check")); got != pre {
			t.Errorf("%s: pre_tool_call was asked %d times, want %d", input, got, pre)
		}
		if got := len(j.askedIn(ids[input], "second")); got != post {
			t.Errorf("%s: post_tool_call was asked %d times, want %d", input, got, post)
		}
	}
	refused := func(tool, why string) string {
		return "The call to probe." + tool + " was not made: the tool policy refuses it: " + why + "."
	}
	t.Run("P30 a call that is refused outright is not made and no hook is asked", func(t *testing.T) {
		ended(t, "outright", refused("again", "not for this agent"))
		asked(t, "outright", 0, 0)
	})
	t.Run("P31 P32 P35 a hook's allow skips no rule", func(t *testing.T) {
		ended(t, "skipped", refused("look", "it is evil"))
		asked(t, "skipped", 1, 0)
	})
	t.Run("P34 the rules decide on what a hook has put in place", func(t *testing.T) {
		ended(t, "into", refused("look", "it is evil"))
		ended(t, "out", "seen good")
		asked(t, "into", 1, 0)
		asked(t, "out", 1, 1)
	})
	t.Run("P31 P34 rules know which hooks changed the arguments", func(t *testing.T) {
		ended(t, "traced", refused("look", "a hook wrote it"), "seen rewritten")
	})
	t.Run("P31 a hook's deny comes before an approval", func(t *testing.T) {
		ended(t, "denied", "The call to probe.act was not made: hook probe.check denied it: it is late.")
		if got := j.approvalsOf(ids["denied"]); len(got) > 0 {
			t.Errorf("a person was asked %+v", got[0].Request)
		}
	})
	t.Run("P33 a person's yes to a hook is not the approval that a rule asks for", func(t *testing.T) {
		first := j.waitsIn(ids["both"])
		if first.Request.Kind != approval.Hook || first.Request.Reasons[0].Text != "look at it" {
			t.Fatalf("asked %+v", first.Request)
		}
		j.decide(first, approval.Answer{Yes: true})
		second := j.waitsIn(ids["both"], first)
		r := second.Request
		if r.Kind != approval.Policy || r.Tool != "probe.act" || string(r.Arguments) != `{"what":"ask-both"}` || !strings.Contains(fmt.Sprint(r.Reasons), "it cannot be undone") || r.Policy == "" {
			t.Fatalf("asked %+v", r)
		}
		for _, e := range j.asked("act") {
			if e["what"] == "ask-both" {
				t.Error("the call was made before the rule's approval")
			}
		}
		j.decide(second, approval.Answer{Yes: true})
		ended(t, "both", doneWith("ask-both"))
		asked(t, "both", 1, 1)
	})
	t.Run("P32 P35 a no to a rule's approval is read with its note, and no hook sees a result", func(t *testing.T) {
		j.decide(j.waitsIn(ids["no"]), approval.Answer{Note: "too risky"})
		ended(t, "no", "The call to probe.act was not made: a person refused: too risky.")
		asked(t, "no", 1, 0)
	})
	t.Run("P34 an approval shows the arguments as the hooks left them", func(t *testing.T) {
		a := j.waitsIn(ids["changed"])
		var shown map[string]string
		if err := json.Unmarshal(a.Request.Arguments, &shown); err != nil || shown["what"] != "ask-changed" {
			t.Errorf("shown %s", a.Request.Arguments)
		}
		j.decide(a, approval.Answer{Yes: true})
		ended(t, "changed", doneWith("ask-changed"))
	})
	t.Run("P31 limits come after the hooks", func(t *testing.T) {
		completed(t, j.end(ids["few"]), "Done.")
		got := j.readsOf("few")
		if len(got) != 3 || got[0] != doneWith("1") || got[1] != doneWith("2") || !strings.HasPrefix(got[2], "The call to probe.act was not made: the tool policy refuses it: ") {
			t.Errorf("the model read %q", got)
		}
		asked(t, "few", 3, 2)
	})
	t.Run("P31 sequences come after the hooks, and a denied call counts as none", func(t *testing.T) {
		completed(t, j.end(ids["sequence"]), "Done.")
		got := j.readsOf("sequence")
		early := refused("again", "probe.again may be called only after probe.look")
		if len(got) != 5 || got[0] != early || got[2] != early || got[4] != "again late" {
			t.Errorf("the model read %q", got)
		}
		asked(t, "sequence", 5, 2)
	})
}
