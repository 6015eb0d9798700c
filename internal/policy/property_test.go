package policy_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/policy"
)

// The words that drawn policies and calls are made of.
var (
	toolWords   = []string{"a.x", "a.y", "b.x"}
	patterns    = []string{"a.x", "a.*", "*.x", "*", "b.y", "[a.x, b.x]"}
	agentWords  = []string{"one", "two"}
	conditions  = []string{"", "arguments.n > 1", "has(arguments.n)", "agent.name == 'one'", "calls.exists(c, c.tool == 'a.y')", "origin.by == 'hook'", "arguments.s", "tool == 'a.x' || arguments.q"}
	argumentSet = []string{`{}`, `{"n":1}`, `{"n":2}`, `{"n":"2"}`, `{"s":true}`, `{"n":2,"n":0}`, `[]`}
	outcomes    = []string{policy.Succeeded, policy.Failed, policy.Pending, policy.Unknown, policy.NotMade, "else"}
)

func quoted(s string) string {
	if strings.HasPrefix(s, "[") {
		return s
	}
	return `["` + s + `"]`
}

func drawScope(t *rapid.T) string {
	s := "tools: " + quoted(rapid.SampledFrom(patterns).Draw(t, "tools"))
	if rapid.Bool().Draw(t, "narrow") {
		s += ", agents: [" + rapid.SampledFrom(agentWords).Draw(t, "agent") + "]"
	}
	return s
}

func drawRule(t *rapid.T, verdicts ...string) string {
	s := "{" + drawScope(t) + ", verdict: " + rapid.SampledFrom(verdicts).Draw(t, "verdict")
	if c := rapid.SampledFrom(conditions).Draw(t, "when"); c != "" {
		s += fmt.Sprintf(", when: %q", c)
	}
	return s + "}"
}

// draft is a policy in pieces.
type draft struct {
	rules, limits, sequences []string
	floors, defaults         string
}

func drawDraft(t *rapid.T) draft {
	var d draft
	for range rapid.IntRange(0, 4).Draw(t, "rules") {
		d.rules = append(d.rules, drawRule(t, "refuse", "require_approval", "allow"))
	}
	for range rapid.IntRange(0, 2).Draw(t, "limits") {
		d.limits = append(d.limits, drawLimit(t))
	}
	for range rapid.IntRange(0, 2).Draw(t, "sequences") {
		d.sequences = append(d.sequences, drawSequence(t))
	}
	if rapid.Bool().Draw(t, "floors") {
		d.floors = "writes: require_approval"
	}
	d.defaults = "other: " + rapid.SampledFrom([]string{"refuse", "require_approval", "allow"}).Draw(t, "other")
	return d
}

func drawLimit(t *rapid.T) string {
	return fmt.Sprintf("{%s, calls: %d, verdict: %s}", drawScope(t), rapid.IntRange(0, 2).Draw(t, "calls"), rapid.SampledFrom([]string{"refuse", "require_approval"}).Draw(t, "verdict"))
}

func drawSequence(t *rapid.T) string {
	return fmt.Sprintf("{%s, %s: %s}", drawScope(t), rapid.SampledFrom([]string{"after", "never_after"}).Draw(t, "kind"), quoted(rapid.SampledFrom(patterns).Draw(t, "others")))
}

func (d draft) String() string {
	var b strings.Builder
	part := func(key string, items []string) {
		if len(items) > 0 {
			fmt.Fprintf(&b, "%s:\n", key)
			for _, i := range items {
				fmt.Fprintf(&b, "  - %s\n", i)
			}
		}
	}
	part("rules", d.rules)
	part("limits", d.limits)
	part("sequences", d.sequences)
	if d.floors != "" {
		fmt.Fprintf(&b, "floors: {%s}\n", d.floors)
	}
	fmt.Fprintf(&b, "defaults: {%s}\n", d.defaults)
	return b.String()
}

func (d draft) policy(t *rapid.T) *policy.Policy {
	p, findings := policy.Parse("p.yaml", []byte(d.String()))
	if finding.HasErrors(findings) {
		t.Fatalf("%v\n%s", findings, d)
	}
	return p
}

func drawCall(t *rapid.T) (policy.Call, []policy.Past) {
	hint := func(name string) *bool {
		return rapid.SampledFrom([]*bool{nil, yes(), no()}).Draw(t, name)
	}
	c := policy.Call{
		Tool:        rapid.SampledFrom(toolWords).Draw(t, "tool"),
		Arguments:   json.RawMessage(rapid.SampledFrom(argumentSet).Draw(t, "arguments")),
		Annotations: policy.Annotations{ReadOnly: hint("read only"), Destructive: hint("destructive"), OpenWorld: hint("open world")},
		Agent:       policy.Agent{Name: rapid.SampledFrom(agentWords).Draw(t, "agent")},
		Origin:      policy.Origin{By: rapid.SampledFrom([]string{policy.ByModel, policy.ByHook}).Draw(t, "by")},
	}
	var history []policy.Past
	for range rapid.IntRange(0, 3).Draw(t, "history") {
		history = append(history, policy.Past{Tool: rapid.SampledFrom(toolWords).Draw(t, "earlier"), Outcome: rapid.SampledFrom(outcomes).Draw(t, "outcome")})
	}
	return c, history
}

func TestWhatRestrictsNeverAllowsMore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before := drawDraft(t)
		after := before
		switch rapid.IntRange(0, 3).Draw(t, "add") {
		case 0:
			after.rules = append([]string{drawRule(t, "refuse")}, before.rules...)
		case 1:
			after.limits = append([]string{drawLimit(t)}, before.limits...)
		case 2:
			after.sequences = append([]string{drawSequence(t)}, before.sequences...)
		case 3:
			after.floors = "writes: require_approval, open_world: refuse"
		}
		c, history := drawCall(t)
		p, q := before.policy(t).Decide(c, history), after.policy(t).Decide(c, history)
		if q.Effect > p.Effect {
			t.Fatalf("%v became %v\n%s\n%s", p, q, before, after)
		}
	})
}

func TestAdditionsNeverAllowMore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		own, added := drawDraft(t), drawDraft(t)
		c, history := drawCall(t)
		p := own.policy(t)
		both := p.With(policy.Addition{From: "acme", Policy: added.policy(t)})
		if v, w := p.Decide(c, history), both.Decide(c, history); w.Effect > v.Effect {
			t.Fatalf("%v became %v\n%s\n%s", v, w, own, added)
		}
	})
}

func TestOrderMeansNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawDraft(t)
		e := d
		e.rules = rapid.Permutation(d.rules).Draw(t, "order")
		c, history := drawCall(t)
		v, w := d.policy(t).Decide(c, history), e.policy(t).Decide(c, history)
		if v.Effect != w.Effect || v.Approvers != w.Approvers || v.Kind != w.Kind {
			t.Fatalf("%v and %v", v, w)
		}
	})
}

func TestDecisionsAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawDraft(t).policy(t)
		c, history := drawCall(t)
		v, out, stages := p.Decide(c, history), p.Outright(c), p.Explain(c, history)
		if !reflect.DeepEqual(v, p.Decide(c, history)) {
			t.Fatal("the same call is decided in two ways")
		}
		if out.Effect == policy.Refuse && v.Effect != policy.Refuse {
			t.Fatalf("refused outright, then %v", v)
		}
		other := c
		other.Arguments, other.Origin = json.RawMessage(`{"n":7}`), policy.Origin{}
		if !reflect.DeepEqual(out, p.Outright(other)) {
			t.Fatal("what is refused outright depends on the arguments")
		}
		if last := stages[len(stages)-1]; last.Effect != v.Effect {
			t.Fatalf("explained as %v, decided as %v", last, v)
		}
		if (v.Effect == policy.Allow) != (v.Reason == "") {
			t.Fatalf("no reason: %+v", v)
		}
	})
}
