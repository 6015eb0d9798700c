package hook

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// text returns a payload of a point that has a field named text.
func text(point, s string) Payload { return NewPayload(PointNamed(point)).Set("text", s) }

// pluginCall returns a payload before a tool call, with arguments as JSON.
func pluginCall(arguments string) Payload {
	return NewPayload(PointNamed(PreToolCall)).Set("tool", "bank.pay").Set("arguments", json.RawMessage(arguments))
}

// modifier returns a modify hook that answers with f.
func modifier(name, point string, f Func) *Hook {
	return &Hook{Name: name, Point: PointNamed(point), Lane: Modify, Func: f}
}

func saying(name, point string, v Verdict) *Hook {
	return modifier(name, point, func(context.Context, Payload) (Verdict, error) { return v, nil })
}

func passing(name, point string) *Hook { return saying(name, point, Go()) }

// observer returns an observe hook that answers with f.
func observer(name, point string, f Func) *Hook {
	return &Hook{Name: name, Point: PointNamed(point), Lane: Observe, Func: f}
}

func mustEngine(t testing.TB, r Recorder, hooks ...*Hook) *Engine {
	t.Helper()
	e, err := NewEngine(r, hooks...)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// chain returns the chain at the hooks' point.
func chain(t testing.TB, hooks ...*Hook) *Chain {
	t.Helper()
	return mustEngine(t, nil, hooks...).Chain(hooks[0].Point, Who{})
}

func asJSON(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestAnEngineRefuses(t *testing.T) {
	f := func(context.Context, Payload) (Verdict, error) { return Go(), nil }
	incoming, job := PointNamed(IncomingMessage), PointNamed(JobStart)
	good := func(change func(h *Hook)) *Hook {
		h := &Hook{Name: "a", Point: incoming, Lane: Modify, Func: f}
		change(h)
		return h
	}
	for want, hooks := range map[string][]*Hook{
		"hook 1 of 1 is nil":                     {nil},
		"stands at no point":                     {good(func(h *Hook) { h.Point = nil })},
		"has no name":                            {good(func(h *Hook) { h.Name = "" })},
		"exactly one of Func and Host":           {good(func(h *Hook) { h.Func = nil })},
		"exactly one of Func and Host must":      {good(func(h *Hook) { h.Host = Func(f) })},
		"unknown lane":                           {good(func(h *Hook) { h.Lane = "look" })},
		"has no modify lane":                     {good(func(h *Hook) { h.Point = PointNamed(TurnStarted) })},
		"has no observe lane":                    {good(func(h *Hook) { h.Point, h.Lane = job, Observe })},
		"only an observer can be final":          {good(func(h *Hook) { h.Final = true })},
		"limit -1ns is out of bounds":            {good(func(h *Hook) { h.Limit = -1 })},
		"out of bounds (at most 30s)":            {good(func(h *Hook) { h.Point, h.Limit = job, job.MaxLimit+1 })},
		"declares a verdict that":                {good(func(h *Hook) { h.Verdicts = KindsOf(Continue, Retry) })},
		"declares verdicts without continue":     {good(func(h *Hook) { h.Verdicts = KindsOf(Reject) })},
		"unknown policy":                         {good(func(h *Hook) { h.Point, h.OnFailure = job, "shrug" })},
		"cannot hold":                            {good(func(h *Hook) { h.OnFailure = HoldPolicy })},
		"the policy of incoming_message":         {good(func(h *Hook) { h.OnFailure = Open })},
		"so its policy is hold":                  {good(func(h *Hook) { h.Point, h.Verdicts, h.OnFailure = job, KindsOf(Continue, Hold), Closed })},
		"an empty list in its match":             {good(func(h *Hook) { h.Match.Agents = []string{} })},
		"an empty list in its match sees":        {good(func(h *Hook) { h.Point, h.Match.Tools = PointNamed(PreToolCall), []string{} })},
		"is about no tool":                       {good(func(h *Hook) { h.Point, h.Match.Tools = job, []string{"a.b"} })},
		"two hooks at job_start are named a":     {good(func(h *Hook) { h.Point = job }), good(func(h *Hook) { h.Point = job })},
		"two modify hooks at incoming_message":   {good(func(h *Hook) {}), good(func(h *Hook) { h.Name = "b" })},
		"a (hooks.py:3) and b (hooks/b.py:7); k": {good(func(h *Hook) { h.File, h.Line = "hooks.py", 3 }), good(func(h *Hook) { h.Name, h.File, h.Line = "b", "hooks/b.py", 7 })},
	} {
		e, err := NewEngine(nil, hooks...)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, got %v", want, err)
		}
		if e != nil {
			t.Errorf("%s: got an engine all the same", want)
		}
	}
}

func TestAHookIsFilledInFromItsPointAndTheCallersStaysAsItIs(t *testing.T) {
	mine := passing("a", PreToolCall)
	only := passing("b", PreToolCall)
	only.Verdicts = KindsOf(Continue, Hold)
	hooks := mustEngine(t, nil, mine, only, observer("c", ToolCall, mine.Func)).Hooks()
	if h := hooks[0]; h.Limit != pluginLimit || h.OnFailure != Closed || h.Verdicts != mayDecide {
		t.Errorf("got %+v", h)
	}
	if h := hooks[1]; h.OnFailure != HoldPolicy {
		t.Errorf("a hook that may only escalate has policy %s", h.OnFailure)
	}
	if h := hooks[2]; h.Limit != observeLimit {
		t.Errorf("an observer has limit %s", h.Limit)
	}
	if mine.Limit != 0 || mine.OnFailure != "" || mine.Verdicts != 0 {
		t.Errorf("the caller's hook was changed: %+v", mine)
	}
}

func TestVerdictWords(t *testing.T) {
	for _, k := range []Kind{Reject, Continue, Retry, Hold} {
		var back Kind
		if err := json.Unmarshal([]byte(asJSON(t, k)), &back); err != nil || back != k {
			t.Errorf("%s came back as %s, %v", k, back, err)
		}
	}
	for _, word := range []string{`"allow"`, `"Continue"`, `""`, `1`, `"kind(7)"`} {
		k := Continue
		if err := json.Unmarshal([]byte(word), &k); err == nil {
			t.Errorf("%s was read as %s", word, k)
		}
	}
	if _, err := json.Marshal(Kind(7)); err == nil {
		t.Error("an unknown verdict has a JSON form")
	}
	if s := KindsOf(Continue, Hold); !s.Has(Hold) || s.Has(Reject) || s.Has(Kind(9)) || Kinds(255).Has(Kind(4)) {
		t.Error("a set has what it should not")
	}
}

func TestPayloads(t *testing.T) {
	p := text(OutgoingText, "a <b> & \u2028").Set("is_voice", true)
	if got := string(p.Get("text")); got != "\"a <b> & \\u2028\"" { // a model may come to read it
		t.Errorf("the text is written %s", got)
	}
	if got := string(p.Change("text", "<").Value); got != `"<"` {
		t.Errorf("a change is written %s", got)
	}
	back, err := ReadPayload(p.Point(), []byte(asJSON(t, p)))
	if err != nil || back.Text("text") != p.Text("text") || back.Digest() != p.Digest() {
		t.Errorf("read again: %s, %v", asJSON(t, back), err)
	}
	var voice bool
	if err := p.Decode("is_voice", &voice); err != nil || !voice {
		t.Errorf("got %v, %v", voice, err)
	}
	if err := p.Decode("is_voice", new(string)); err == nil || !strings.Contains(err.Error(), `field "is_voice" of outgoing_text`) {
		t.Errorf("got %v", err)
	}
	if err := p.Decode("nothing", &voice); err == nil || p.Get("nothing") != nil || (Payload{}).Get("text") != nil {
		t.Errorf("an unknown field was read: %v", err)
	}
	call := NewPayload(PointNamed(PreToolCall))
	if call.Raw(call.Point().Field("request")) != nil || strings.Contains(asJSON(t, call), "request") {
		t.Error("a field that is missing has a value")
	}
	for _, wrong := range []func(){func() { p.Set("nothing", 1) }, func() { p.Set("text", func() {}) }} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("a mistake of the program went through")
				}
			}()
			wrong()
		}()
	}
}

func TestTheZeroValuesReject(t *testing.T) {
	var v Verdict
	var a Answer
	var r Result
	if v.Kind != Reject || a.Verdict.Kind != Reject || r.Kind != Reject {
		t.Fatal("a zero value lets something through")
	}
	var s State
	if s.End.Kind != Reject {
		t.Fatal("a zero state lets something through")
	}
	for _, point := range []string{IncomingMessage, OutgoingText, PreToolCall, JobEnd} {
		c := chain(t, passing("a", point))
		s, run := Begin(c, NewPayload(PointNamed(point))).Fold(Answer{})
		if !s.Over || s.End.Kind != Reject || run.Said != "reject" {
			t.Errorf("%s: a zero answer gave %+v", point, s.End)
		}
	}
}
