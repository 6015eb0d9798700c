package tests

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/internal/app"
	"github.com/belay-run/belay/internal/app/apptest"
)

// wrongShapes are, for each point with a modify lane, updates that give a field a
// value of the wrong shape.
var wrongShapes = map[string][]string{
	"incoming_message":  {`{"text": 5}`, `{"text": None}`},
	"model_request":     {`{"messages": "all of them"}`, `{"messages": ["one"]}`, `{"model_settings": []}`},
	"model_response":    {`{"text": ["a"]}`, `{"tool_calls": {}}`, `{"tool_calls": [{"id": "a"}]}`},
	"tool_call":         {`{"tool_name": None}`, `{"arguments": []}`, `{"headers": "none"}`},
	"tool_result":       {`{"is_error": "no"}`, `{"arguments": None}`},
	"knowledge_query":   {`{"query": None}`, `{"query": 7}`},
	"knowledge_results": {`{"passages": [{"source": "a"}]}`, `{"passages": "none"}`},
	"outgoing_text":     {`{"text": None}`, `{"text": b"bytes"}`},
}

// returning runs a turn for each thing that a modify hook of each point can return,
// on one agent with hooks of both lanes everywhere.
func returning(t *testing.T) (s *stage, bad map[string][]string) {
	t.Helper()
	a := startPlayed(t, []func(*app.Config){apptest.Play(apptest.Call("search_knowledge", map[string]any{"query": "refund"}), apptest.Says("done"))},
		playedHooks(longLimit, everyHook()...), apptest.Files{
			"references/shop.md": "# Refund\n\nA refund takes [five days].\n\n# Warranty\n\nThe warranty lasts [two years].\n"})
	s, bad = &stage{Agent: a.Agent, said: map[string]apptest.Reply{}}, map[string][]string{}
	say := func(sender string, does bodies) {
		s.said[sender] = a.turn(t, sender, "what about a refund?", does)
	}
	say("pass", nil)
	for _, row := range standings {
		if !row.modify {
			continue
		}
		name := "modify_" + row.point
		try := func(what, body string) {
			sender := row.point + ": " + what
			bad[row.point] = append(bad[row.point], sender)
			say(sender, bodies{name: body})
		}
		other := map[bool]string{true: "hooks.OutgoingTextPayload(text='x')", false: "hooks.IncomingMessagePayload(text='x')"}[row.point == "incoming_message"]
		for what, value := range map[string]string{
			"None": "None", "another payload": other, "a dict": "p.model_dump()", "a text": "'ok'", "the class": "type(p)", "a coroutine": "asyncio.sleep(0)",
			"a rejection": "hooks.HookRejection(reason='planted')", "a retry": "hooks.RetryModel(feedback='planted')", "a signal's class": "hooks.RetryModel",
		} {
			try(what, "return "+value)
		}
		for _, update := range wrongShapes[row.point] {
			try(update, "return p.model_copy(update="+update+")")
		}
		for what, value := range rightReturns {
			say(row.point+": "+what, bodies{name: "return " + value})
		}
		say(row.point+": change", bodies{name: "return type(p)(**{**p.model_dump(), **" + row.change + "})"})
		say(row.point+": construct", bodies{name: "return type(p).model_construct(**{**p.model_dump(), **" + row.change + "})"})
		say(row.point+": copy", bodies{name: "return p.model_copy(update=" + row.change + ")"})
	}
	return s, bad
}

// rightReturns are ways to return a payload that is not changed.
var rightReturns = map[string]string{
	"itself": "p", "a copy": "p.model_copy()", "a deep copy": "p.model_copy(deep=True)", "by keywords": "type(p)(**p.model_dump())",
	"constructed": "type(p).model_construct(**p.model_dump())", "validated": "type(p).model_validate(p.model_dump())", "from JSON": "type(p).model_validate_json(p.model_dump_json())",
}

func TestReturns(t *testing.T) {
	t.Parallel()
	s, bad := returning(t)
	for _, row := range standings {
		for _, sender := range bad[row.point] {
			id := "T11 "
			if strings.Contains(sender, ": a re") || strings.Contains(sender, "signal's class") {
				id = "T12 "
			}
			t.Run(id+"returned at "+sender, func(t *testing.T) {
				runs := s.runs(sender, row.point, hook.Modify)
				if len(runs) == 0 {
					t.Fatal("the hook was not asked")
				}
				s.failed(t, row, sender, "wrong_return", runs[0])
			})
		}
		if !row.modify {
			continue
		}
		for what := range rightReturns {
			t.Run("T13 returned at "+row.point+": "+what, func(t *testing.T) {
				if runs := s.runs(row.point+": "+what, row.point, hook.Modify); len(runs) == 0 || runs[0].Said != "continue" || len(runs[0].Changed) > 0 {
					t.Errorf("the trace says %+v", runs)
				}
				s.same(t, row.point+": "+what)
			})
		}
		for _, what := range []string{"change", "construct", "copy"} {
			t.Run("T13 changed at "+row.point+": "+what, func(t *testing.T) {
				if got := s.transcript(row.point + ": " + what); !strings.Contains(got, row.shows) || s.said[row.point+": "+what].Report.Status != "completed" {
					t.Errorf("%s is missing:\n%s", row.shows, got)
				}
			})
		}
	}
	t.Run("T11 what an observe hook returns is dropped", func(t *testing.T) {
		for _, row := range standings {
			for what, value := range map[string]string{"a changed payload": "p.model_copy(update={'sender_id': 'X', 'text': 'X', 'query': 'X'})", "a text": "'X'",
				"a rejection": "hooks.HookRejection(reason='X')", "a retry": "hooks.RetryModel(feedback='X')"} {
				sender := "observe " + row.point + ": " + what
				s.said[sender] = playedAgent{s.Agent}.turn(t, sender, "what about a refund?", bodies{"on_" + row.point: "return " + value})
				s.same(t, sender)
			}
		}
	})
}

// payloadChecks looks at every payload type as an author uses them, while a
// module is loaded.
const payloadChecks = `from __future__ import annotations

import pydantic
from belay import hooks
from lib.probe import note

FIELDS = {
    "text": "a", "is_voice": True, "turn_id": "t", "status": "error", "messages": [{"role": "user", "content": "c"}], "model_settings": {"seed": 1},
    "tool_names": ["x"], "iteration": 3, "tool_calls": [{"id": "1", "tool_name": "x", "tool_args": {}}], "latency_ms": 1.5, "tool_name": "x",
    "arguments": {"deep": {"er": [1]}}, "headers": {"h": "1"}, "value": "v", "is_error": True, "query": "q", "passages": [{"text": "p"}],
    "sender_id": "s", "call": {"id": "c"}, "channel": hooks.Channel(name="n", metadata={"m": [1]}),
}

for name in NAMES:
    wrong = []

    def be(what, is_so):
        if not is_so:
            wrong.append(what)

    T = getattr(hooks, name)
    given = {k: v for k, v in FIELDS.items() if k in T.model_fields}
    be("a pydantic model", issubclass(T, pydantic.BaseModel))
    be("built without fields", isinstance(T(), T))
    p = T(**given)
    plain = {**given, "channel": {"name": "n", "metadata": {"m": [1]}}}
    be("holds what it is given", all(getattr(p, k) == v for k, v in given.items()))
    be("dumps all fields", p.model_dump() == plain)
    be("dumps JSON", T.model_validate_json(p.model_dump_json()) == p)
    be("dumps some fields", p.model_dump(include={"sender_id"}) == {"sender_id": "s"})
    q = p.model_copy(update={"sender_id": "other"})
    be("a copy with an update", q.sender_id == "other" and p.sender_id == "s" and type(q) is T)
    be("a copy is equal", p.model_copy() == p and p.model_copy() is not p)
    deep = p.model_copy(deep=True)
    deep.channel.metadata["m"].append(2)
    be("a deep copy stands alone", p.channel.metadata == {"m": [1]})
    made = T.model_construct(**given)
    be("constructed", made == p and made.model_dump() == plain)
    be("constructed with defaults", T.model_construct().sender_id == "" and T.model_construct().call == {})
    be("validated", T.model_validate(plain) == p)
    be("what was set", T(sender_id="s").model_fields_set == {"sender_id"})
    be("has no other field", set(T.model_fields) == set(given))
    try:
        T(channel=5)
        be("a wrong value is refused", False)
    except pydantic.ValidationError:
        pass
    note(name, wrong=wrong, mutable=T.model_fields.keys() >= {"sender_id", "call", "channel"})
`

func TestPayloadTypes(t *testing.T) {
	t.Parallel()
	names := []string{"OutgoingMessagePayload"}
	for _, s := range standings {
		names = append(names, s.payload)
	}
	a := apptest.Start(t, apptest.Files{"hooks.py": strings.Replace(payloadChecks, "NAMES", strings.ReplaceAll(fmt.Sprintf("%q", names), " ", ", "), 1)})
	seen := map[string]apptest.Note{}
	for _, n := range a.Notes() {
		seen[n.What] = n
	}
	for _, name := range names {
		t.Run("T13 "+name+" is a pydantic model", func(t *testing.T) {
			n, there := seen[name]
			if !there {
				t.Fatal("it was not looked at")
			}
			expect(t, "what does not hold", n.Data["wrong"], []any{})
		})
	}
}

// meeting is a file with five observers of a point that end once all have begun.
const meeting = `from __future__ import annotations

import asyncio

from belay.hooks import IncomingMessagePayload, ToolCallPayload, on_incoming_message, on_tool_call
from lib.played import gate
from lib.probe import note

_here = {}


async def meet(who, p):
    note("begun " + who, sender_id=p.sender_id)
    all_here = _here.setdefault(p.sender_id, asyncio.Barrier(5))
    await all_here.wait()
    note("met " + who, sender_id=p.sender_id)
    await gate(p.sender_id)
    note("ended " + who, sender_id=p.sender_id)
`

func TestManyObservers(t *testing.T) {
	t.Parallel()
	source := meeting
	for i := range 5 {
		source += fmt.Sprintf("\n\n@on_incoming_message(timeout_ms=%d)\nasync def o%d(p: IncomingMessagePayload) -> None:\n    await meet(\"o%[2]d\", p)\n", longLimit, i)
	}
	for i := range 60 {
		source += fmt.Sprintf("\n\n@on_tool_call(timeout_ms=%d)\nasync def t%d(p: ToolCallPayload) -> None:\n    note(\"tool\", sender_id=p.sender_id)\n", longLimit, i)
	}
	a := startPlayed(t, nil, apptest.Files{"lib/played.py": playedLib, "hooks.py": source})

	t.Run("T09 the turn waits for none of them", func(t *testing.T) {
		if r := a.Say("u", "hello"); r.Text() != "ok" { // the gate is closed: none can have ended
			t.Errorf("the user heard %q", r.Text())
		}
		for i := range 5 {
			if a.noted(t, "u", fmt.Sprint("ended o", i)) {
				t.Errorf("o%d ended before the turn did", i)
			}
		}
	})
	t.Run("T09 they run side by side", func(t *testing.T) {
		for i := range 5 {
			a.waitFor(t, "u", fmt.Sprint("met o", i)) // nobody gets there before all have begun
		}
		a.open(t, "u")
		var ended []string
		for _, name := range a.asked("u") {
			if strings.HasPrefix(name, "ended") {
				ended = append(ended, name)
			}
		}
		slices.Sort(ended)
		expect(t, "those that ended", ended, []string{"ended o0", "ended o1", "ended o2", "ended o3", "ended o4"})
	})
	t.Run("T09 there may be any number of them", func(t *testing.T) {
		a.open(t, "many")
		a.Next("many", apptest.Call("listen", nil))
		a.Say("many", "hello")
		if n := len(a.asked("many", "tool")); n != 60 {
			t.Errorf("%d of 60 were asked", n)
		}
	})
}
