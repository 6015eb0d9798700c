package tests

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/belay-run/belay/internal/app/apptest"
	"github.com/belay-run/belay/internal/conversation"
)

// answeringTools answer in every way there is; both spellings of the modules that
// tools are written with stand side by side.
var answeringTools = apptest.Files{
	"tools/simple.py": simpleTools,
	"tools/answers.py": `import asyncio
import os

from belay.tools import ToolContext, ToolResult, tool
from lib.probe import note


@tool(description="Gives back a value of the kind asked for.")
async def give(kind: str) -> ToolResult:
    return ToolResult(llm_response={
        "object": {"a": 1, "b": ["x", "y"], "c": {"d": None}}, "text": "plain, text: as it is", "unicode": {"name": "Zoë ☕"},
        "list": [1, "two"], "number": 42, "big": {"id": 9007199254740993}, "truth": True, "nothing": None,
    }[kind])


@tool(description="Gives back no ToolResult.")
async def bare() -> dict:
    return {"bare": "dict"}


@tool(description="Raises.")
async def raises(card: str = ""):
    raise RuntimeError("planted-exception-text " + card)


@tool(description="Takes too long.", timeout=0.2)
async def slow():
    await asyncio.sleep(60)


@tool(description="Takes a number.")
async def number(n: int):
    note("tool number")
    return {"n": n}


@tool(description="Ends its process.")
async def dies():
    os._exit(3)


@tool(description="Cannot be written as JSON.")
async def unwritable():
    return ToolResult(llm_response={"x": object()})
`,
	"tools/booking.py": `from rasa.mantle.tools.decorator import ToolContext, tool
from rasa.mantle.tools.result import ToolResult
from lib.probe import note


@tool(description="Books a day.", on_success="utter_booked")
async def book(context: ToolContext, day: str, fail: bool = False) -> ToolResult:
    note("tool book", sender_id=context.sender_id)
    if fail:
        raise RuntimeError("planted-exception-text")
    return ToolResult(llm_response={"day": day, "place": "room 7"})
`,
	"responses.yml": "responses:\n  utter_booked:\n    - text: \"Booked: {day}.\"\n",
}

func TestToolResult(t *testing.T) {
	t.Parallel()
	a := startPlanned(t, answeringTools)

	t.Run("T35 what the hook returns is recorded and replayed", func(t *testing.T) {
		a.Next("t35", apptest.Calls(
			apptest.C{Name: "first", Args: map[string]any{"item": "one", "card": "planted-card"}, ID: "id-1"},
			apptest.C{Name: "second", Args: map[string]any{"item": "two", "card": "other-card"}, ID: "id-2"}), apptest.Says("Done."))
		a.say(t, "t35", "go", plan{"tool_result first": doUpdate(map[string]any{
			"value": "cut", "arguments": map[string]any{"item": "one"}, "is_error": true})})
		wantSame(t, "what the tool got", a.notes("t35", "tool first")[0].Data["arguments"], map[string]any{"item": "one", "card": "planted-card"})
		got := a.runs("t35")
		if len(got) != 2 {
			t.Fatalf("tool events: %+v", got)
		}
		if r := got[0]; r.Result != "cut" || string(r.Arguments) != `{"item":"one"}` || !r.IsError {
			t.Errorf("the event keeps %+v", r)
		}
		if r := got[1]; !strings.Contains(r.Result, "other-card") || !strings.Contains(string(r.Arguments), "other-card") || r.IsError {
			t.Errorf("the other call's event keeps %+v", r)
		}
		replayed := a.prompt(t, "t35", 1)
		wantSame(t, "the tool messages", toolMessages(replayed), []string{"cut", `{"done": "second", "item": "two", "card": "other-card"}`})
		wantAll(t, "the next request", inJSON(replayed), `"arguments":"{\"item\":\"one\"}"`)
		a.say(t, "t35", "and now", nil)
		wantNone(t, "a later request", inJSON(a.Prompts("t35")), "planted-card")
		wantNone(t, "the record", inJSON(a.Events("t35")), "planted-card")
		wantNone(t, "the trace", a.TraceText("t35"), "planted-card")
	})

	t.Run("T35 the hooks run after each call, before the next one", func(t *testing.T) {
		a.Next("t35o", batch(""))
		a.say(t, "t35o", "go", nil)
		wantSame(t, "what ran", a.noted("t35o", "tool ", "see tool_result", "modify tool_result"), []string{
			"tool first", "see tool_result first", "modify tool_result first",
			"tool second", "see tool_result second", "modify tool_result second",
			"tool third", "see tool_result third", "modify tool_result third"})
	})

	t.Run("T115 the payload", func(t *testing.T) {
		a.Next("t115", apptest.Call("first", map[string]any{"item": "one"}))
		a.say(t, "t115", "go", nil)
		for _, n := range a.notes("t115", "see tool_result", "modify tool_result") {
			n.Data["channel"] = nil
			wantSame(t, n.What, n.Data, map[string]any{"sender_id": "t115", "call": map[string]any{}, "channel": nil, "tool_name": "first",
				"arguments": map[string]any{"item": "one"}, "value": `{"done": "first", "item": "one", "card": ""}`, "is_error": false})
		}
	})

	t.Run("T115 the tool's name is not mutable, the rest still counts", func(t *testing.T) {
		a.Next("t115n", apptest.Call("first", nil))
		a.say(t, "t115n", "go", plan{"tool_result first": doUpdate(map[string]any{"tool_name": "second", "value": "changed"})})
		if got := a.runs("t115n"); len(got) != 1 || got[0].Name != "first" || got[0].Result != "changed" {
			t.Errorf("tool events: %+v", got)
		}
	})

	t.Run("T115 what follows goes by is_error and value as the hooks left them", func(t *testing.T) {
		for name, c := range map[string]struct {
			fail   bool
			update map[string]any
			heard  []string
			failed bool
		}{
			"success":                     {false, nil, []string{"Booked: Monday.", "ok"}, false},
			"failure":                     {true, nil, []string{"ok"}, true},
			"success made a failure":      {false, map[string]any{"is_error": true}, []string{"ok"}, true},
			"failure made a success":      {true, map[string]any{"is_error": false, "value": map[string]any{"day": "Friday"}}, []string{"Booked: Friday.", "ok"}, false},
			"success with another result": {false, map[string]any{"value": map[string]any{"day": "Tuesday"}}, []string{"Booked: Tuesday.", "ok"}, false},
		} {
			t.Run(name, func(t *testing.T) {
				sender := "t115 " + name
				a.Next(sender, apptest.Call("book", map[string]any{"day": "Monday", "fail": c.fail}))
				var p plan
				if c.update != nil {
					p = plan{"tool_result book": doUpdate(c.update)}
				}
				r := a.say(t, sender, "go", p)
				wantSame(t, "texts", r.Texts, c.heard)
				if got := a.runs(sender); len(got) != 1 || got[0].IsError != c.failed {
					t.Errorf("tool events: %+v", got)
				}
				told := strings.Contains(inJSON(a.prompt(t, sender, 1)), "fixed reply was already sent")
				if told != (len(c.heard) > 1) {
					t.Errorf("the model was told of a fixed reply: %v", told)
				}
			})
		}
	})

	t.Run("T117 the hooks are asked of a call that failed, with what the model would read", func(t *testing.T) {
		for name, c := range map[string]apptest.C{
			"raised":               {Name: "raises", Args: map[string]any{"card": "7"}},
			"ran out of time":      {Name: "slow"},
			"wrong argument":       {Name: "number", Args: map[string]any{"n": "many"}},
			"missing argument":     {Name: "number"},
			"unknown argument":     {Name: "number", Args: map[string]any{"n": 1, "planted": 2}},
			"no object":            {Name: "number", Args: json.RawMessage(`[1]`)},
			"its process died":     {Name: "dies"},
			"no JSON form":         {Name: "unwritable"},
			"there is no such":     {Name: "nowhere"},
			"nothing to confirm":   {Name: "resolve_tool_confirmation", Args: map[string]any{"confirmed": true}},
			"the model's own JSON": {Name: "number", Args: json.RawMessage(`"n=1"`)},
		} {
			t.Run(name, func(t *testing.T) {
				sender := "t117 " + name
				a.Next(sender, apptest.Calls(c))
				a.say(t, sender, "go", nil)
				read := toolMessages(a.prompt(t, sender, 1))
				if len(read) != 1 || read[0] == "" {
					t.Fatalf("tool messages: %q", read)
				}
				notes := a.notes(sender, "see tool_result", "modify tool_result")
				if len(notes) != 2 {
					t.Fatalf("%d payloads were shown", len(notes))
				}
				for _, n := range notes {
					wantSame(t, n.What, []any{n.Data["tool_name"], n.Data["is_error"], n.Data["value"]}, []any{c.Name, true, read[0]})
				}
				if c.Name == "dies" && read[0] != conversation.Unknown {
					t.Errorf("the model read %q", read[0])
				}
				wantNone(t, "what the model read", read[0], "planted-exception-text", "Traceback")
				if got := a.runs(sender); len(got) != 1 || !got[0].IsError {
					t.Errorf("tool events: %+v", got)
				}

				changed := sender + " changed"
				a.Next(changed, apptest.Calls(c))
				a.say(t, changed, "go", plan{"tool_result": doUpdate(map[string]any{"value": "try later", "is_error": false})})
				wantSame(t, "what the model read", toolMessages(a.prompt(t, changed, 1)), []string{"try later"})
				if got := a.runs(changed); len(got) != 1 || got[0].IsError || got[0].Result != "try later" {
					t.Errorf("tool events: %+v", got)
				}
			})
		}
		for _, n := range a.Notes() {
			if n.What == "tool number" {
				t.Error("a tool ran with arguments that it does not take")
			}
		}
	})

	t.Run("T118 value is the text that the model would read", func(t *testing.T) {
		for kind, want := range map[string]string{
			"object": `{"a": 1, "b": ["x", "y"], "c": {"d": null}}`, "text": "plain, text: as it is", "unicode": `{"name": "Zoë ☕"}`,
			"list": `[1, "two"]`, "number": "42", "big": `{"id": 9007199254740993}`, "truth": "true", "nothing": "null",
		} {
			t.Run(kind, func(t *testing.T) {
				sender := "t118 " + kind
				a.Next(sender, apptest.Call("give", map[string]any{"kind": kind}))
				a.say(t, sender, "go", nil)
				for _, n := range a.notes(sender, "see tool_result", "modify tool_result") {
					wantSame(t, n.What, n.Data["value"], want)
				}
				wantSame(t, "the record", a.runs(sender)[0].Result, want)
				wantSame(t, "what the model read", toolMessages(a.prompt(t, sender, 1)), []string{want})
			})
		}
		a.Next("t118 bare", apptest.Call("bare", nil))
		a.say(t, "t118 bare", "go", nil)
		wantSame(t, "what the model read", toolMessages(a.prompt(t, "t118 bare", 1)), []string{`{"bare": "dict"}`})
	})

	t.Run("T118 a hook may return any JSON value, kept as text in the same form", func(t *testing.T) {
		for i, c := range []struct {
			value any
			want  string
		}{
			{map[string]any{"a": []any{1, "x: y, z"}, "b": nil}, `{"a": [1, "x: y, z"], "b": null}`},
			{[]any{"x", 2}, `["x", 2]`},
			{7, "7"}, {2.5, "2.5"}, {true, "true"}, {nil, "null"}, {"", ""}, {"plain", "plain"}, {`{"a":1}`, `{"a":1}`},
			{map[string]any{"id": json.Number("9007199254740993")}, `{"id": 9007199254740993}`},
		} {
			t.Run(fmt.Sprint(c.value), func(t *testing.T) {
				sender := fmt.Sprintf("t118 return %d", i)
				a.Next(sender, apptest.Call("first", nil))
				a.say(t, sender, "go", plan{"tool_result": doUpdate(map[string]any{"value": c.value})})
				wantSame(t, "the record", a.runs(sender)[0].Result, c.want)
				wantSame(t, "what the model read", toolMessages(a.prompt(t, sender, 1)), []string{c.want})
			})
		}
	})

	t.Run("T37 hooks are not asked about what the model did not call", func(t *testing.T) {
		a.Next("t37", apptest.Says("Just a text."))
		a.say(t, "t37", "go", nil)
		wantSame(t, "hooks asked", a.noted("t37", "see tool", "modify tool"), nil)
	})

	t.Run("T117 a tool that failed is logged with its place, without the exception's text", func(t *testing.T) {
		a.Next("t117l", apptest.Calls(apptest.C{Name: "raises"}, apptest.C{Name: "slow"}, apptest.C{Name: "number", Args: map[string]any{"n": "planted-value"}}))
		a.say(t, "t117l", "go", nil)
		for _, line := range []string{"tool=raises outcome=error error=RuntimeError file=tools/answers.py", "tool=slow outcome=timeout", "tool=number outcome=error error=ValueError"} {
			wantAll(t, "the log", a.Log(), `msg="a tool failed" `+line)
		}
		wantNone(t, "the log", a.Log(), "planted-exception-text", "planted-value")
	})
}
