package hook

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// The heart's promise: a chain is a pure fold. Whatever hooks and people answer,
// the same answers give the same states, byte for byte, also when the state and
// the answers were written down and read again in between.
func TestAChainIsAPureFold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, p := drawChain(t)
		var answers []Answer
		var decisions []bool
		live := run(t, c, p, func(s State) (Answer, bool) {
			if s.Next() == NeedPerson {
				yes := rapid.Bool().Draw(t, "yes")
				decisions = append(decisions, yes)
				return Answer{}, yes
			}
			a := drawAnswer(t, p)
			answers = append(answers, a)
			return a, false
		})
		again := func(s State) (Answer, bool) {
			if s.Next() == NeedPerson {
				yes := decisions[0]
				decisions = decisions[1:]
				return Answer{}, yes
			}
			a := answers[0]
			answers = answers[1:]
			return a, false
		}
		keptAnswers, keptDecisions := append([]Answer(nil), answers...), append([]bool(nil), decisions...)
		same(t, "run again", live, run(t, c, p, again))

		answers, decisions = nil, keptDecisions
		for _, a := range keptAnswers {
			var back Answer
			if err := json.Unmarshal([]byte(mustJSON(t, a)), &back); err != nil {
				t.Fatal(err)
			}
			answers = append(answers, back)
		}
		same(t, "run again on answers that were written down", live, run(t, c, p, again))
	})
}

func same(t *rapid.T, what string, a, b []string) {
	t.Helper()
	for i := range a {
		if i >= len(b) || a[i] != b[i] {
			t.Fatalf("%s, step %d:\n%s\nis now\n%v", what, i, a[i], b[i:])
		}
	}
	if len(b) > len(a) {
		t.Fatalf("%s: more steps than before: %s", what, b[len(a)])
	}
}

// run drives a chain and returns every state and trace line as JSON. On its way it
// checks what must hold at every step, and that each state survives being kept.
func run(t *rapid.T, c *Chain, p Payload, answer func(State) (Answer, bool)) []string {
	s := Begin(c, p)
	out := []string{mustJSON(t, s)}
	for steps := 0; s.Next() != NeedNothing; steps++ {
		if steps > 20 {
			t.Fatal("the chain does not end")
		}
		before := mustJSON(t, s)
		a, yes := answer(s)
		var next, resumed State
		kept, err := Resume(c, []byte(before))
		if err != nil {
			t.Fatal(err)
		}
		if s.Next() == NeedPerson {
			if kept.Digest() != s.Digest() {
				t.Fatal("a state that was kept asks for another decision")
			}
			next = mustDecide(t, s, yes)
			resumed = mustDecide(t, kept, yes)
		} else {
			var line, resumedLine Run
			next, line = s.Fold(a)
			resumed, resumedLine = kept.Fold(a)
			out = append(out, mustJSON(t, line))
			if mustJSON(t, line) != mustJSON(t, resumedLine) {
				t.Fatalf("the trace differs after resuming:\n%s\n%s", mustJSON(t, line), mustJSON(t, resumedLine))
			}
			holdsStep(t, s, next, a, line)
		}
		if mustJSON(t, s) != before {
			t.Fatal("folding changed the state it started from")
		}
		if mustJSON(t, next) != mustJSON(t, resumed) {
			t.Fatalf("resumed, it goes another way:\n%s\n%s", mustJSON(t, next), mustJSON(t, resumed))
		}
		s = next
		out = append(out, mustJSON(t, s))
	}
	holdsAtEnd(t, s)
	return out
}

// holdsStep checks what one answer may do.
func holdsStep(t *rapid.T, s, next State, a Answer, line Run) {
	h := s.chain.Hook(s.At)
	for i, f := range h.Point.Fields {
		if f.ReadOnly && string(s.Payload.Raw(i)) != string(next.Payload.Raw(i)) {
			t.Fatalf("%s changed", f.Name)
		}
		if v := next.Payload.Raw(i); v != nil && f.Shape.fits(v) != nil {
			t.Fatalf("%s holds %s", f.Name, v)
		}
	}
	cancelled := a.Failure != nil && a.Failure.Kind == Cancelled
	if h.escalateOnly() && !cancelled {
		if next.Over && next.End.Kind == Reject {
			t.Fatal("a hook that may only escalate refused")
		}
		if s.Payload.Digest() != next.Payload.Digest() {
			t.Fatal("a hook that may only escalate changed the payload")
		}
	}
	if next.Over && next.End.Kind == Hold {
		t.Fatal("a chain ended as a hold")
	}
	if (line.Failure != nil) != (line.Said == "failed") || (line.Failure == nil && line.Policy != "") {
		t.Fatalf("the trace contradicts itself: %+v", line)
	}
	verdicts := 0
	for _, is := range []bool{next.Over && next.End.Kind == Reject, next.Over && next.End.Kind == Retry, next.Next() == NeedPerson, next.Next() == NeedHook, next.Over && next.End.Kind == Continue} {
		if is {
			verdicts++
		}
	}
	if verdicts != 1 {
		t.Fatalf("an answer had %d outcomes", verdicts)
	}
}

func holdsAtEnd(t *rapid.T, s State) {
	if s.End.Kind == Continue && len(s.Holds) > 0 && s.Covered != s.End.Payload.Digest() {
		t.Fatal("what goes on is not what a person said yes to")
	}
	if s.End.Kind == Continue && s.At != s.chain.Modify() {
		t.Fatal("it went on before every hook was asked")
	}
	if s.End.Changed != s.Changed || s.End.Payload.Digest() != s.Payload.Digest() {
		t.Fatal("the result and the state disagree about the payload")
	}
}

func mustDecide(t *rapid.T, s State, yes bool) State {
	next, err := s.Decide(Decision{Yes: yes, Digest: s.Digest()})
	if err != nil {
		t.Fatal(err)
	}
	return next
}

func mustJSON(t *rapid.T, v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func drawChain(t *rapid.T) (*Chain, Payload) {
	point := PointNamed(rapid.SampledFrom([]string{PreToolCall, PreToolCall, PostToolCall, IncomingMessage, ModelResponse}).Draw(t, "point"))
	n := 1
	if point.Dialect == Plugin {
		n = rapid.IntRange(0, 4).Draw(t, "hooks")
	}
	var hooks []*Hook
	for i := range n {
		h := passing(fmt.Sprint(i), point.Name)
		if point.Dialect == Plugin {
			h.OnFailure = rapid.SampledFrom([]Policy{Open, Closed, HoldPolicy}).Draw(t, "policy")
			h.Verdicts = rapid.SampledFrom([]Kinds{0, 0, KindsOf(Continue, Hold), KindsOf(Continue, Reject)}).Draw(t, "verdicts")
			if h.Verdicts == KindsOf(Continue, Hold) {
				h.OnFailure = HoldPolicy
			}
		}
		hooks = append(hooks, h)
	}
	e, err := NewEngine(nil, hooks...)
	if err != nil {
		t.Fatal(err)
	}
	p := NewPayload(point)
	if i := point.Field("arguments"); i >= 0 {
		p = p.With(i, json.RawMessage(drawObject(t)))
	}
	return e.Chain(point, Who{}), p
}

func drawObject(t *rapid.T) string {
	return rapid.SampledFrom([]string{`{}`, `{"n":1}`, `{"n": 1}`, " {\"n\":\t1}", `{"html":"<b>&"}`, "{\"html\":\"\\u003cb\\u003e\\u0026\"}", "{\"line\":\"\u2028\"}", `{"n":9007199254740993}`}).Draw(t, "object")
}

func drawText(t *rapid.T) string {
	return rapid.SampledFrom([]string{"", "plain", "<b>", "bad \xff utf8", "\ufffd", "\u2028", "\x00"}).Draw(t, "text")
}

func drawAnswer(t *rapid.T, p Payload) Answer {
	if rapid.IntRange(0, 4).Draw(t, "fails") == 0 {
		kind := rapid.SampledFrom([]FailureKind{Crash, Timeout, WrongReturn, Unavailable, Cancelled}).Draw(t, "failure")
		return Answer{Failure: &Failure{Kind: kind, Message: drawText(t), Traceback: drawText(t)}}
	}
	v := Verdict{
		Kind:     rapid.SampledFrom([]Kind{Continue, Continue, Continue, Hold, Reject, Retry}).Draw(t, "kind"),
		Reason:   drawText(t),
		Feedback: drawText(t),
	}
	for range rapid.IntRange(0, 2).Draw(t, "changes") {
		raw := rapid.OneOf(rapid.Custom(drawObject), rapid.SampledFrom([]string{`null`, `5`, `"text"`, ``, `{bad`, "\"\xff\"", `[{"text":1}]`, `[]`})).Draw(t, "value")
		v.Changes = append(v.Changes, Change{Field: rapid.IntRange(-1, len(p.Point().Fields)).Draw(t, "field"), Value: json.RawMessage(raw)})
	}
	return Answer{Verdict: v}
}

func TestResumeRefuses(t *testing.T) {
	c := threeHooks(t)
	s, _ := folded(t, c, pluginCall(`{}`), says(Go()))
	data := asJSON(t, s)
	for name, bad := range map[string]struct {
		chain *Chain
		data  string
	}{
		"no JSON":             {c, "nothing"},
		"an unknown point":    {c, strings.Replace(data, `"pre_tool_call"`, `"tea_time"`, 1)},
		"fewer hooks":         {chain(t, passing("one", PreToolCall), passing("two", PreToolCall)), data},
		"hooks in disorder":   {chain(t, passing("two", PreToolCall), passing("one", PreToolCall), passing("three", PreToolCall)), data},
		"no chain":            {nil, data},
		"another point":       {chain(t, passing("one", JobStart), passing("two", JobStart), passing("three", JobStart)), data},
		"a place beyond":      {c, strings.Replace(data, `"at":1`, `"at":4`, 1)},
		"a place before":      {c, strings.Replace(data, `"at":1`, `"at":-1`, 1)},
		"all asked, no end":   {c, strings.Replace(data, `"at":1`, `"at":3`, 1)},
		"a value of no shape": {c, strings.Replace(data, `"arguments":{}`, `"arguments":5`, 1)},
		"a missing field":     {c, strings.Replace(data, `"tool":"bank.pay",`, ``, 1)},
		"an unknown field":    {c, strings.Replace(data, `"arguments"`, `"argument"`, 1)},
	} {
		if s, err := Resume(bad.chain, []byte(bad.data)); err == nil {
			t.Errorf("%s: resumed to %s", name, asJSON(t, s))
		}
	}
	var plain State
	if err := json.Unmarshal([]byte(data), &plain); err == nil {
		t.Error("a state was read without its chain")
	}
}

func TestANilChainHasEnded(t *testing.T) {
	s := Begin(nil, pluginCall(`{}`))
	if s.Next() != NeedNothing || s.End.Kind != Continue {
		t.Fatalf("%+v", s)
	}
	if back, err := Resume(nil, []byte(asJSON(t, s))); err != nil || back.Next() != NeedNothing {
		t.Fatalf("%+v, %v", back, err)
	}
}
