package tests

import (
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/belay-run/belay/internal/app/apptest"
	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/conversation"
)

// toolHooks stand where the model's tool calls pass, and see what passes.
var toolHooks = []string{"on_tool_call", "modify_tool_call", "on_tool_result", "modify_tool_result"}

// payFields are an agent with values of every type.
var payFields = apptest.Files{
	"memory.yml": "customer: {type: text}\nlimit: {type: number}\nnote: {type: text, mutable: true}\n",
	"skills/pay/skill.md": `---
name: Pay
description: Pays somebody.
import_tools: [know, forget]
---

Pay.
`,
	"skills/pay/memory.yml": `schema:
  public:
    amount: {type: number, description: How much., llm_settable: true}
    to: {type: categorical, enum_values: [Ann, Bob], llm_settable: true}
    times: {type: int, llm_settable: true}
    sure: {type: bool, llm_settable: true}
    tags: {type: list, llm_settable: true}
    day: {type: text, llm_settable: true}
    pin: {type: text, pii: true, llm_settable: true}
    extra: {type: json, llm_settable: true}
  private:
    fee: {type: number, initial_value: 1}
    log: {type: text}
`,
	"skills/pay/tools.py": `from __future__ import annotations

from belay.tools import InvalidMemoryValue, ToolContext, ToolResult, tool
from lib.played import gate
from lib.probe import note


@tool(description="Looks at the amount.")
async def validate_amount(amount: float, context: ToolContext) -> ToolResult:
    note("tool validate_amount", sender_id=context.sender_id, amount=amount, amount_before=context.memory.get("amount"))
    if amount == 99:
        raise RuntimeError("planted-exception")
    if amount == 98:
        raise InvalidMemoryValue("ninety-eight is unlucky")
    if amount > 1000:
        return ToolResult(llm_response={"error": "at most 1000"})
    if amount == 13:
        return ToolResult(llm_response={"valid": True, "value": 12})
    return ToolResult(llm_response={"valid": True})


@tool(description="Looks at the day.", timeout=60)
async def run_after_setting_day(context: ToolContext) -> ToolResult:
    day = context.memory.get("day")
    note("tool run_after_setting_day", sender_id=context.sender_id, day=day)
    context.memory.set("fee", 5)
    context.memory.set("log", "looked at")
    if day == "slow":
        note("slow day", sender_id=context.sender_id)
        await gate("never")
    if day == "Sunday":
        return ToolResult(llm_response={"error": "closed on Sundays"})
    return ToolResult(llm_response={"ok": True})


@tool(description="Writes a value of another type.")
async def spoil(context: ToolContext) -> ToolResult:
    context.memory.set("fee", "planted-text")
    return ToolResult(llm_response={})


@tool(description="Writes what nothing declares.")
async def stray(context: ToolContext, name: str) -> ToolResult:
    context.memory.set(name, 1)
    return ToolResult(llm_response={})
`,
	"tools/customers.py": `from __future__ import annotations

from belay.tools import ToolContext, ToolResult, tool


@tool(description="Keeps who it is.")
async def know(context: ToolContext, customer: str) -> ToolResult:
    context.memory.set("customer", customer)
    context.memory.set("note", customer)
    return ToolResult(llm_response={"kept": customer, "heard": [e.text for e in context.events]})


@tool(description="Forgets the note.")
async def forget(context: ToolContext) -> ToolResult:
    context.memory.set("note", None)
    return ToolResult(llm_response={})
`,
}

// nothing is the answer to a request to fill in fields when the user gave none.
var nothing = apptest.Says("none")

func TestMemory(t *testing.T) {
	t.Parallel()
	a := startPlayed(t, nil, payFields, playedHooks(longLimit, toolHooks...))
	begin := func(t *testing.T, sender string, answers ...apptest.Answer) apptest.Reply {
		t.Helper()
		a.Next(sender, append([]apptest.Answer{starts("pay"), nothing}, answers...)...)
		return a.turn(t, sender, "pay", nil)
	}

	t.Run("set_fields offers the fields with their types", func(t *testing.T) {
		begin(t, "schema")
		got := schema(t, a.request(t, "schema", -1), "set_fields")
		wantAll(t, "set_fields", got, `"amount":{"description":"How much.","type":"number"}`, `"to":{"enum":["Ann","Bob"],"type":"string"}`, `"times":{"type":"integer"}`,
			`"sure":{"type":"boolean"}`, `"tags":{"items":{},"type":"array"}`, `"day":{"type":"string"}`)
		wantNone(t, "set_fields", got, "fee", "log", "customer")
		wantNone(t, "offered", inJSON(a.offers(t, "schema", -1)), "validate_amount", "run_after_setting_day")
	})

	for _, c := range []struct {
		field  string
		value  any
		kept   string // "" when it is refused
		result string
	}{
		{"amount", 12.5, "12.5", "amount: set to 12.5"},
		{"amount", "12.5", "12.5", "amount: set to 12.5"},
		{"amount", "much", "", "amount: not set: it must be a number"},
		{"amount", true, "", "amount: not set: it must be a number"},
		{"amount", 2000, "", "amount: not set: at most 1000"},
		{"amount", 98, "", "amount: not set: ninety-eight is unlucky"},
		{"amount", 99, "", "amount: not set: the value was refused"},
		{"amount", 13, "12", "amount: set to 12"},
		{"to", "Ann", `"Ann"`, "to: set to Ann"},
		{"to", " bob", `"Bob"`, "to: set to Bob"},
		{"to", "Cyd", "", "to: not set: it must be one of Ann, Bob"},
		{"to", []string{"Ann"}, "", "to: not set: it must be one of Ann, Bob"},
		{"times", 3, "3", "times: set to 3"},
		{"times", 3.5, "", "times: not set: it must be a whole number"},
		{"sure", true, "true", "sure: set to True"},
		{"sure", "False", "false", "sure: set to False"},
		{"sure", "maybe", "", "sure: not set: it must be true or false"},
		{"tags", []string{"a", "b"}, `["a","b"]`, `tags: set to ["a","b"]`},
		{"tags", "a", "", "tags: not set: it must be a list"},
		{"day", "Monday", `"Monday"`, "day: set to Monday"},
		{"day", map[string]any{}, "", "day: not set: it must be a text"},
		{"day", "Sunday", "", "day: not set: closed on Sundays"},
		{"extra", map[string]any{"a": []int{1}}, `{"a":[1]}`, `extra: set to {"a":[1]}`},
		{"fee", 3, "", "fee: not set: no field of that name can be set now"},
		{"customer", "x", "", "customer: not set: no field of that name can be set now"},
		{"project.customer", "x", "", "project.customer: not set: no field of that name can be set now"},
		{"nowhere", "x", "", "nowhere: not set: no field of that name can be set now"},
	} {
		t.Run("set_fields "+c.field+" "+inJSON(c.value), func(t *testing.T) {
			sender := c.field + inJSON(c.value)
			begin(t, sender, sets(map[string]any{c.field: c.value}))
			expect(t, "the result", a.results(sender, "set_fields"), []string{c.result})
			expect(t, "memory", a.remembers(sender)["pay."+c.field], c.kept)
			run := a.Of(sender, conversation.ToolExecuted)
			if last := run[len(run)-1].Tool; last.Name != "set_fields" || last.IsError != (c.kept == "") {
				t.Errorf("the call is recorded as %+v", last)
			}
			wantNone(t, "record, requests, log", inJSON(a.Events(sender))+inJSON(a.Prompts(sender))+a.Log(), "planted-")
		})
	}

	t.Run("of several fields those that fit are set", func(t *testing.T) {
		begin(t, "several", apptest.Call("set_fields", json.RawMessage(`{"amount": 5, "to": "Cyd", "sure": true, "amount": 6}`)))
		expect(t, "the result", a.results("several", "set_fields"), []string{"amount: set to 5\nto: not set: it must be one of Ann, Bob\nsure: set to True\namount: set to 6"})
		expect(t, "memory", a.remembers("several"), map[string]string{"pay.amount": "6", "pay.sure": "true"})
	})

	t.Run("set_fields without a field, and null", func(t *testing.T) {
		begin(t, "null", sets(map[string]any{}), sets(map[string]any{"amount": 5}), sets(map[string]any{"amount": nil}))
		expect(t, "the results", a.results("null", "set_fields"), []string{"Error: no field was given. Nothing was set.", "amount: set to 5", "amount: set to None"})
		expect(t, "memory", a.remembers("null"), map[string]string{})
	})

	t.Run("T37 a validation tool asks no tool hook, the call that sets the field does", func(t *testing.T) {
		begin(t, "t37")
		before := len(a.toolNotes("t37"))
		a.Next("t37", sets(map[string]any{"amount": 5, "day": "Monday"}))
		a.turn(t, "t37", "five", bodies{"modify_tool_result": "if p.tool_name != 'set_fields':\n    1 / 0"})
		expect(t, "hooks and tools", a.toolNotes("t37")[before:], []string{"on_tool_call set_fields", "modify_tool_call set_fields", "tool validate_amount", "tool run_after_setting_day",
			"on_tool_result set_fields", "modify_tool_result set_fields"})
		var sources []string
		for _, e := range a.Of("t37", conversation.ToolExecuted) {
			if e.Tool.Source != "" {
				sources = append(sources, e.Tool.Name+" "+e.Tool.Source+" "+e.Tool.CallID+e.Tool.BatchID)
			}
		}
		expect(t, "sources", sources, []string{"validate_amount memory_validation ", "run_after_setting_day memory_validation "})
		n := a.notesOf("t37", "tool validate_amount")[0].Data
		expect(t, "what it is given", []any{n["amount"], n["amount_before"]}, []any{5, nil})
	})

	t.Run("a value that is refused after it was set leaves all memory as it was", func(t *testing.T) {
		begin(t, "rollback", sets(map[string]any{"day": "Sunday"}), apptest.Says("closed"))
		got := a.remembers("rollback")
		if got["pay.fee"] != "1" || got["pay.log"] != "" || got["pay.day"] != "" {
			t.Errorf("memory %v", got)
		}
		wantNone(t, "the next prompt", system(t, a.request(t, "rollback", -1)), "Sunday", "looked at", "fee: 5")
		a.Next("rollback", sets(map[string]any{"day": "Monday"}), sets(map[string]any{"day": "Sunday"}))
		a.turn(t, "rollback", "Monday", nil)
		expect(t, "memory", a.remembers("rollback"), map[string]string{"pay.day": `"Monday"`, "pay.fee": "5", "pay.log": `"looked at"`})
	})

	t.Run("a value that was not judged to the end does not stay", func(t *testing.T) {
		begin(t, "unjudged", sets(map[string]any{"day": "Monday"}))
		a.Next("unjudged", sets(map[string]any{"day": "slow"}), apptest.Says("ok"))
		in := played("unjudged", "slow", nil)
		done := a.send(t.Context(), in)
		a.waitFor(t, "unjudged", "slow day")
		in.Interrupt = true
		if r := awaited(t, a.send(t.Context(), in)); r.err != nil {
			t.Fatal(r.err)
		}
		if r := awaited(t, done); r.err != nil || r.Report.Status != "cancelled" {
			t.Errorf("the first turn: %+v", r)
		}
		expect(t, "memory", a.remembers("unjudged")["pay.day"], `"Monday"`)
		wantAll(t, "the record", inJSON(a.results("unjudged", "run_after_setting_day")), "unknown")
	})

	t.Run("T58 what an observer does with the arguments reaches no memory", func(t *testing.T) {
		begin(t, "t58")
		a.Next("t58", sets(map[string]any{"amount": 5, "tags": []string{"a"}}))
		a.turn(t, "t58", "five", bodies{"on_tool_call": "p.arguments['amount'] = 6\np.arguments['tags'].append('b')\nveto('no')", "on_tool_result": "p.is_error = True\np.value = 'x'\nraise RuntimeError"})
		expect(t, "memory", a.remembers("t58"), map[string]string{"pay.amount": "5", "pay.tags": `["a"]`})
		expect(t, "the result", a.results("t58", "set_fields"), []string{"amount: set to 5\ntags: set to [\"a\"]"})
	})

	t.Run("T112 memory has the arguments as the hook left them", func(t *testing.T) {
		begin(t, "t112")
		a.Next("t112", sets(map[string]any{"pin": "planted-pin", "amount": 7}))
		a.turn(t, "t112", "seven", bodies{"modify_tool_call": "p.arguments = {**p.arguments, 'pin': 'masked'}"})
		expect(t, "memory", a.remembers("t112"), map[string]string{"pay.pin": `"masked"`, "pay.amount": "7"})
		wantNone(t, "record, requests, trace, log", inJSON(a.Events("t112"))+inJSON(a.Prompts("t112"))+a.TraceText("t112")+a.Log(), "planted-pin")
	})

	t.Run("project memory is written once", func(t *testing.T) {
		know := func(name string) apptest.Answer { return apptest.Call("know", map[string]any{"customer": name}) }
		begin(t, "once", know(""), know("Ada"), know(""))
		got := a.results("once", "know")
		if len(got) != 3 || !strings.Contains(got[0], `"kept": ""`) || !strings.Contains(got[1], "already set and cannot be overwritten") || !strings.Contains(got[2], `"kept": ""`) {
			t.Errorf("results %q", got)
		}
		expect(t, "memory", a.remembers("once"), map[string]string{"project.customer": `""`, "project.note": `""`})
		a.Next("once", finishes, asWritten)
		a.turn(t, "once", "thanks", nil)
		begin(t, "once", know("Bea"))
		expect(t, "memory, later", a.remembers("once")["project.customer"], `""`)
		a.Next("once", apptest.Call("hangup", nil))
		a.turn(t, "once", "bye", nil)
		begin(t, "once", know("Bea"))
		expect(t, "memory of the next session", a.remembers("once"), map[string]string{"project.customer": `"Bea"`, "project.note": `"Bea"`})
	})

	t.Run("a tool clears a value with None", func(t *testing.T) {
		begin(t, "clear", apptest.Call("know", map[string]any{"customer": "Ada"}), apptest.Call("forget", nil), apptest.Says("gone"))
		expect(t, "memory", a.remembers("clear"), map[string]string{"project.customer": `"Ada"`})
		wantNone(t, "the prompt", system(t, a.request(t, "clear", -1)), "note:")
	})

	t.Run("a value of another type and one that nothing declares are not kept", func(t *testing.T) {
		begin(t, "spoil", apptest.Call("spoil", nil), apptest.Call("stray", map[string]any{"name": "planted"}), apptest.Call("stray", map[string]any{"name": "project.limits"}))
		expect(t, "memory", a.remembers("spoil"), map[string]string{})
		for _, run := range a.Of("spoil", conversation.ToolExecuted) {
			if run.Tool.Name == "stray" && !run.Tool.IsError {
				t.Errorf("%+v", run.Tool)
			}
		}
		wantAll(t, "the log", a.Log(), "a memory value that a tool set is left out", "memory=pay.fee")
		wantNone(t, "the log", a.Log(), "planted-text")
	})

	t.Run("the prompt cuts long values and hides personal ones", func(t *testing.T) {
		begin(t, "shown", sets(map[string]any{"pin": "1234-planted", "tags": []string{strings.Repeat("x", 200)}}), apptest.Says("kept"))
		wantAll(t, "the prompt", system(t, a.request(t, "shown", -1)), "- pin: [set]", "- tags: [\""+strings.Repeat("x", 98)+"... [truncated]", "- fee: 1")
		wantNone(t, "the prompt", system(t, a.request(t, "shown", -1)), "1234-planted")
	})

	t.Run("activation gives a skill's memory its initial values", func(t *testing.T) {
		begin(t, "again", sets(map[string]any{"day": "Monday"}), quits, asWritten)
		begin(t, "again", apptest.Says("anew"))
		prompt := system(t, a.request(t, "again", -1))
		wantAll(t, "the prompt", prompt, "- fee: 1")
		wantNone(t, "the prompt", prompt, "- day:")
	})
}

// userSaid is the user's last message in a request.
func userSaid(req chat.Request) (words string) {
	var messages []struct{ Role, Content string }
	if json.Unmarshal(req.Messages, &messages) != nil {
		return ""
	}
	for _, m := range messages {
		if m.Role == "user" && !strings.HasPrefix(m.Content, "Which of the fields") { // the question of a quiet call
			words = m.Content
		}
	}
	return words
}

// said gives the user's last words, as the model read them, to make an answer of.
func said(then func(words string) apptest.Answer) apptest.Answer {
	return func(ctx context.Context, req chat.Request, delta func(string)) (chat.Response, error) {
		return then(userSaid(req))(ctx, req, delta)
	}
}

func TestMemoryOfAMaskedMessage(t *testing.T) {
	t.Parallel()
	a := startPlayed(t, nil, payFields, playedHooks(longLimit, "modify_incoming_message", "on_incoming_message"))
	mask := bodies{"modify_incoming_message": "p.text = p.text.replace('planted-raw', '[masked]')"}
	word := func(words string) string { _, last, _ := strings.Cut(words, "pin "); return last }

	t.Run("T52 memory, tools and models get the modified text only", func(t *testing.T) {
		fill := func(words string) apptest.Answer { return sets(map[string]any{"day": word(words)}) }
		tool := func(words string) apptest.Answer {
			return apptest.Call("know", map[string]any{"customer": word(words)})
		}
		pin := func(words string) apptest.Answer { return sets(map[string]any{"pin": word(words)}) }
		a.Next("t52", starts("pay"), said(fill), said(tool), said(pin), apptest.Says("done"))
		a.turn(t, "t52", "pay with pin planted-raw", mask)
		expect(t, "memory", a.remembers("t52"), map[string]string{"pay.day": `"[masked]"`, "pay.fee": "5", "pay.log": `"looked at"`, "project.customer": `"[masked]"`, "project.note": `"[masked]"`, "pay.pin": `"[masked]"`})
		expect(t, "what a tool heard", a.results("t52", "know"), []string{`{"kept": "[masked]", "heard": ["pay with pin [masked]"]}`})
		wantSame(t, "what the user said", a.Of("t52", conversation.User)[0].Text, "pay with pin [masked]")
	})

	t.Run("T52 the words as typed are stored nowhere", func(t *testing.T) {
		wantNone(t, "record, requests, trace, log", inJSON(a.Events("t52"))+a.AllRequests()+a.TraceText("t52")+a.Log(), "planted-raw")
		a.Close()
		looked := 0
		err := filepath.WalkDir(a.Data, func(path string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() {
				return err
			}
			data, err := os.ReadFile(path)
			looked += len(data)
			wantNone(t, path, string(data), "planted-raw")
			return err
		})
		if err != nil || looked == 0 {
			t.Errorf("%d bytes, error %v", looked, err)
		}
	})
}
