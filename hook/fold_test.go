package hook

import (
	"encoding/json"
	"strings"
	"testing"
)

// folded drives a chain over a payload with answers, one a hook, and returns the
// state in which it ended or waits, and the trace.
func folded(t testing.TB, c *Chain, p Payload, answers ...Answer) (State, []Run) {
	t.Helper()
	s := Begin(c, p)
	var runs []Run
	for _, a := range answers {
		if s.Next() != NeedHook {
			t.Fatalf("after %d answers it needs %d", len(runs), s.Next())
		}
		var r Run
		s, r = s.Fold(a)
		runs = append(runs, r)
	}
	return s, runs
}

func says(v Verdict) Answer { return Answer{Verdict: v} }

func args(json string) Change { return pluginCall("{}").Change("arguments", rawJSON(json)) }

type rawJSON string

func (r rawJSON) MarshalJSON() ([]byte, error) { return []byte(r), nil }

func TestTurnChains(t *testing.T) {
	request := NewPayload(PointNamed(ModelRequest)).Set("tool_names", []string{"book"}).Set("sender_id", "ann")
	response := text(ModelResponse, "as it was")
	for _, c := range []struct {
		name   string
		p      Payload
		a      Answer
		kind   Kind
		fields string // of the payload that goes on, "" for unchanged
		run    string // of the trace line
	}{
		{"a rejection at a point that has none is dropped", request, says(RejectFor("no")), Continue, "", "reject is not allowed at model_request"},
		{"so is a retry, with its changes", text(OutgoingText, "hi"), says(Verdict{Kind: Retry, Changes: []Change{{1, json.RawMessage("bad")}}}), Continue, "", "retry is not allowed"},
		{"so is a hold", response, says(HoldFor("hm")), Continue, "", "hold is not allowed"},
		{"an unknown verdict is a failure at a closed point", request, says(Verdict{Kind: 9}), Reject, "", "kind(9) is no verdict"},
		{"and at an open one", response, says(Verdict{Kind: 9}), Continue, "", "kind(9) is no verdict"},
		{"changes of a rejection are not looked at", text(OutgoingText, "hi"), says(Verdict{Kind: Reject, Changes: []Change{{-1, nil}}}), Reject, "", ""},
		{"read-only fields are put back, the rest counts", request,
			says(Go(request.Change("tool_names", 5), request.Change("sender_id", "bob"), request.Change("model_settings", rawJSON(`{"seed":1}`)))),
			Continue, `"model_settings":{"seed":1}`, `"put_back":["tool_names","sender_id"]`},
		{"one bad field makes all of it a wrong return", response,
			says(Go(response.Change("text", "new"), response.Change("tool_calls", 5))), Continue, "", "tool_calls: want a list of tool calls, got a number"},
		{"an unknown field too", response, says(Go(response.Change("text", "new"), response.Change("nothing", 5))), Continue, "", "no such field"},
		{"a value without JSON form too", response, says(Go(response.Change("text", func() {}))), Continue, "", "not JSON"},
		{"a crash at an open point", response, Failed(Crash, "boom"), Continue, "", `"policy":"open"`},
		{"a timeout at a closed point", request, Failed(Timeout, "late"), Reject, "", `"policy":"closed"`},
		{"a failure counts, not the verdict beside it", request, Answer{Verdict: Go(), Failure: &Failure{Kind: Crash}}, Reject, "", `"said":"failed"`},
		{"a cancelled hook ends an open chain too", response, Failed(Cancelled, "gone"), Reject, "", `"said":"failed"`},
		{"the same value in another spelling is no change", request.Set("messages", json.RawMessage(`[ {"a": "<b>"} ]`)),
			says(Go(request.Change("messages", rawJSON(`[{"a":"\u003cb\u003e"}]`)))), Continue, "", `"said":"continue"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, runs := folded(t, chain(t, passing("h", c.p.Point().Name)), c.p, c.a)
			if !s.Over || s.End.Kind != c.kind {
				t.Fatalf("ended as %+v", s.End)
			}
			if got := asJSON(t, runs[0]); !strings.Contains(got, c.run) {
				t.Errorf("trace line %s, want %s", got, c.run)
			}
			if c.fields == "" && (s.Changed || asJSON(t, s.End.Payload) != asJSON(t, c.p)) {
				t.Errorf("the payload changed to %s", asJSON(t, s.End.Payload))
			}
			if got := asJSON(t, s.End.Payload); !strings.Contains(got, c.fields) {
				t.Errorf("the payload is %s, want %s", got, c.fields)
			}
		})
	}
}

func TestPluginChains(t *testing.T) {
	two := func(change func(first, second *Hook)) *Chain {
		first, second := passing("first", PreToolCall), passing("second", PreToolCall)
		change(first, second)
		return chain(t, first, second)
	}
	plain := two(func(first, second *Hook) {})

	t.Run("each modify feeds the next hook, and the last sees the final value", func(t *testing.T) {
		s, _ := folded(t, plain, pluginCall(`{"n":1}`), says(Go(args(`{"n":2}`))))
		if got := string(s.Payload.Get("arguments")); got != `{"n":2}` || s.Next() != NeedHook || s.At != 1 {
			t.Fatalf("the second hook sees %s", got)
		}
		s, _ = s.Fold(says(Go(args(`{"n":3}`))))
		if got := string(s.End.Payload.Get("arguments")); got != `{"n":3}` || s.End.Kind != Continue || !s.End.Changed {
			t.Fatalf("ended as %s", asJSON(t, s.End))
		}
	})
	t.Run("the first deny ends it", func(t *testing.T) {
		s, _ := folded(t, plain, pluginCall(`{}`), says(RejectFor("too much")))
		if s.Next() != NeedNothing || s.End.Kind != Reject || s.End.Reason != "too much" || s.End.Hook.Name != "first" || s.End.Failure != nil {
			t.Fatalf("ended as %s", asJSON(t, s.End))
		}
	})
	t.Run("a value is replaced whole", func(t *testing.T) {
		s, _ := folded(t, plain, pluginCall(`{"keep":1}`), says(Go(args(`{}`))), says(Go()))
		if got := string(s.End.Payload.Get("arguments")); got != `{}` {
			t.Fatalf("arguments are %s", got)
		}
	})
	t.Run("a verdict that it may not give is a failure", func(t *testing.T) {
		s, runs := folded(t, plain, pluginCall(`{}`), says(RetryWith("again")))
		if s.End.Failure == nil || s.End.Failure.Kind != WrongReturn || !strings.Contains(runs[0].Dropped, "retry") {
			t.Fatalf("ended as %s", asJSON(t, s.End))
		}
	})
	for policy, want := range map[Policy]Kind{Open: Continue, Closed: Reject} {
		t.Run("a failed hook with the policy "+string(policy), func(t *testing.T) {
			c := two(func(_, second *Hook) { second.OnFailure = policy })
			for _, a := range []Answer{Failed(Crash, "secret text"), Failed(Timeout, "no answer within 2s"), says(Go(args(`5`))), says(Verdict{Kind: 9})} {
				s, runs := folded(t, c, pluginCall(`{"n":1}`), says(Go(args(`{"n":2}`))), a)
				if s.End.Kind != want || string(s.End.Payload.Get("arguments")) != `{"n":2}` || runs[1].Policy != policy {
					t.Errorf("ended as %s", asJSON(t, s.End))
				}
				if strings.Contains(s.End.Reason, "secret") || (want == Reject && s.End.Reason == "") {
					t.Errorf("the reason is %q", s.End.Reason)
				}
			}
		})
	}
	t.Run("a failed hook with the policy hold asks a person and says why", func(t *testing.T) {
		c := two(func(first, _ *Hook) { first.OnFailure = HoldPolicy })
		s, _ := folded(t, c, pluginCall(`{}`), Failed(Timeout, "no answer within 2s"))
		if s.Next() != NeedPerson || s.Open()[0].Reason != "timeout: no answer within 2s" || s.Open()[0].Note != "" {
			t.Fatalf("holds are %+v", s.Holds)
		}
		if s, _ = decide(t, s, true); s.Next() != NeedHook || s.At != 1 {
			t.Fatalf("after a yes: %+v", s)
		}
	})
	t.Run("folding when no hook is asked panics", func(t *testing.T) {
		defer func() {
			if recover() == nil {
				t.Error("it did not")
			}
		}()
		folded(t, plain, pluginCall(`{}`), says(RejectFor("no")))
		s, _ := folded(t, plain, pluginCall(`{}`), says(HoldFor("hm")))
		s.Fold(says(Go()))
	})
}

// Every row is what a hook with decisions [allow, escalate] may answer, and what
// becomes of it: it refuses nothing and changes nothing.
func TestHooksThatMayOnlyEscalate(t *testing.T) {
	only := passing("only", PreToolCall)
	only.Verdicts = KindsOf(Continue, Hold)
	c := chain(t, only)
	for _, row := range []struct {
		name   string
		a      Answer
		held   bool
		reason string
		note   string
	}{
		{"allow", says(Verdict{Kind: Continue, Reason: "fine"}), false, "", ""},
		{"escalate", says(HoldFor("odd")), true, "odd", ""},
		{"deny", says(RejectFor("bad")), true, "bad", "a deny was turned"},
		{"modify", says(Verdict{Kind: Continue, Reason: "cleaner", Changes: []Change{args(`{}`)}}), true, "cleaner", "a modify was turned"},
		{"escalate with a value", says(HoldFor("odd", args(`{}`))), true, "odd", "an escalate with a new value was turned"},
		{"a verdict of a turn", says(RetryWith("again")), true, "", "a retry was turned"},
		{"an unknown verdict", says(Verdict{Kind: 9, Reason: "x"}), true, "x", "a kind(9) was turned"},
		{"no valid decision", ParseDecision(only.Point, []byte(`{"decision":"maybe","reason":"odd"}`)), true, `"maybe" is no decision`, "a failure was turned"},
		{"a crash", Failed(Crash, "boom"), true, "the hook crashed", "a failure was turned"},
		{"a timeout", Failed(Timeout, "no answer within 2s"), true, "timeout: no answer within 2s", "a failure was turned"},
		{"nothing at all", Answer{}, true, "", "a deny was turned"},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := pluginCall(`{"n":1}`)
			s, runs := folded(t, c, p, row.a)
			if !row.held {
				if s.End.Kind != Continue || s.Changed {
					t.Fatalf("ended as %s", asJSON(t, s.End))
				}
				return
			}
			open := s.Open()
			if s.Next() != NeedPerson || len(open) != 1 || !strings.Contains(open[0].Reason, row.reason) || !strings.HasPrefix(open[0].Note, row.note) || (row.note == "") != (open[0].Note == "") {
				t.Fatalf("holds are %+v", open)
			}
			if s.Payload.Digest() != p.Digest() || (row.note != "" && runs[0].Dropped == "") {
				t.Errorf("the payload is %s, the trace %+v", asJSON(t, s.Payload), runs[0])
			}
			if yes, _ := decide(t, s, true); yes.End.Kind != Continue || yes.End.Changed {
				t.Errorf("a yes gave %s", asJSON(t, yes.End))
			}
			if no, _ := decide(t, s, false); no.End.Kind != Reject || !no.End.Refused {
				t.Errorf("a no gave %s", asJSON(t, no.End))
			}
		})
	}
}
