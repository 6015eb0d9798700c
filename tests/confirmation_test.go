package tests

import (
	"strings"
	"testing"

	"github.com/belay-run/belay/internal/app/apptest"
	"github.com/belay-run/belay/internal/conversation"
)

// payFiles are an agent whose tools ask before they run.
var payFiles = apptest.Files{
	"tools/simple.py": simpleTools,
	"tools/pay.py": `from __future__ import annotations

from belay.tools import ToolContext, ToolResult, tool
from lib.probe import note


@tool(description="Pays.", requires_confirmation=True, utter_for_confirmation="utter_ask_pay", utter_on_user_denial="utter_no_pay", on_success="utter_paid")
async def pay(context: ToolContext, amount: int, to: str = "", fail: bool = False) -> ToolResult:
    note("tool pay", sender_id=context.sender_id, arguments={"amount": amount, "to": to})
    if fail:
        raise RuntimeError("planted-exception-text")
    return ToolResult(llm_response={"paid": amount, "receipt": "planted-receipt"})
`,
	"tools/cancel.py": `from rasa.mantle.tools.decorator import ToolContext, tool
from rasa.mantle.tools.result import ToolResult
from lib.probe import note


@tool(description="Cancels.", requires_confirmation=True)
async def cancel_order(context: ToolContext, order: str) -> ToolResult:
    note("tool cancel_order", sender_id=context.sender_id)
    return ToolResult(llm_response="cancelled")
`,
	"responses.yml": `responses:
  utter_ask_pay:
    - text: Pay {amount}?
  utter_no_pay:
    - text: Not paid.
  utter_paid:
    - text: Paid {paid}.
`,
}

const awaiting = `{"status": "awaiting_confirmation", "message": "Pay 5?"}`

// yes and no are what a model calls once the user has answered.
var (
	yes = apptest.Call("resolve_tool_confirmation", map[string]any{"confirmed": true})
	no  = apptest.Call("resolve_tool_confirmation", map[string]any{"confirmed": false})
)

func pays(args map[string]any) apptest.Answer {
	return apptest.Calls(apptest.C{Name: "pay", Args: args, ID: "pay-id", Type: "pay-type"})
}

func TestConfirmation(t *testing.T) {
	t.Parallel()
	a := startPlanned(t, payFiles)

	t.Run("T32 a closed gate keeps the call from the tool's body", func(t *testing.T) {
		a.Next("t32", pays(map[string]any{"amount": 5}))
		r := a.say(t, "t32", "pay", nil)
		wantSame(t, "texts", r.Texts, []string{"Pay 5?"})
		wantSame(t, "what ran", a.noted("t32", "tool "), nil)
		if r.Report.Why != "waiting" || r.Report.Status != "completed" {
			t.Errorf("the turn ended as %q, %s", r.Report.Why, r.Report.Status)
		}
	})

	t.Run("T32 the gate stands behind the hooks of the whole batch", func(t *testing.T) {
		for name, step := range map[string]any{"crash": doCrash("no"), "retry": doRetry("no")} {
			t.Run(name, func(t *testing.T) {
				sender := "t32 " + name
				a.Next(sender, apptest.Calls(apptest.C{Name: "pay", Args: map[string]any{"amount": 5}}, apptest.C{Name: "first"}))
				r := a.say(t, sender, "pay", plan{"tool_call first": step})
				wantNone(t, "what was sent", r.Text(), "Pay 5?")
				if got := a.Of(sender, conversation.ConfirmAsked); len(got) != 0 {
					t.Errorf("a confirmation was asked for: %+v", got)
				}
				a.Next(sender, yes)
				a.say(t, sender, "yes", nil)
				wantSame(t, "what ran", a.noted(sender, "tool "), nil)
			})
		}
	})

	t.Run("T32 the other calls of the batch are dispatched, then the turn waits", func(t *testing.T) {
		a.Next("t32b", apptest.Calls(apptest.C{Name: "first"}, apptest.C{Name: "pay", Args: map[string]any{"amount": 5}}, apptest.C{Name: "second"}))
		r := a.say(t, "t32b", "pay", nil)
		wantSame(t, "texts", r.Texts, []string{"Pay 5?"})
		wantSame(t, "what ran", a.noted("t32b", "modify tool_call", "tool "), []string{
			"modify tool_call first", "modify tool_call pay", "modify tool_call second", "tool first", "tool second"})
		wantSame(t, "requests", len(a.Prompts("t32b")), 1)
	})

	t.Run("T32 a resumed confirmation uses the arguments as the hook left them and asks no hook again", func(t *testing.T) {
		a.Next("t32r", pays(map[string]any{"amount": 3, "to": "planted-name"}))
		r := a.say(t, "t32r", "pay", plan{"tool_call pay": doUpdate(map[string]any{"arguments": map[string]any{"amount": 5, "to": "you"}})})
		wantSame(t, "texts", r.Texts, []string{"Pay 5?"})
		a.Next("t32r", yes)
		r = a.say(t, "t32r", "yes", plan{"tool_call pay": doCrash("asked again"), "tool_result pay": doCrash("asked again")})
		wantSame(t, "texts", r.Texts, []string{"Paid 5.", "ok"})
		wantSame(t, "what the tool got", a.notes("t32r", "tool pay")[0].Data["arguments"], map[string]any{"amount": 5, "to": "you"})
		wantNone(t, "the record", inJSON(a.Events("t32r")), "planted-name")
	})

	t.Run("T32 the pending call survives what is said in between", func(t *testing.T) {
		a.Next("t32p", pays(map[string]any{"amount": 5}), apptest.Says("It is five."), apptest.Call("first", nil), apptest.Says("I see."), yes)
		a.say(t, "t32p", "pay", nil)
		a.say(t, "t32p", "how much?", nil)
		a.say(t, "t32p", "hm", nil)
		r := a.say(t, "t32p", "yes", nil)
		wantSame(t, "texts", r.Texts, []string{"Paid 5.", "ok"})
		a.Next("t32p", yes)
		a.say(t, "t32p", "yes!", nil)
		wantSame(t, "what ran", a.noted("t32p", "tool "), []string{"tool first", "tool pay"})
	})

	t.Run("T112 the gate goes by the name as the hooks left it", func(t *testing.T) {
		a.Next("t112", apptest.Call("first", nil))
		r := a.say(t, "t112", "go", plan{"tool_call first": doUpdate(map[string]any{"tool_name": "pay", "arguments": map[string]any{"amount": 5}})})
		wantSame(t, "texts", r.Texts, []string{"Pay 5?"})
		wantSame(t, "what ran", a.noted("t112", "tool "), nil)

		a.Next("t112o", pays(map[string]any{"amount": 5}))
		r = a.say(t, "t112o", "go", plan{"tool_call pay": doUpdate(map[string]any{"tool_name": "second", "arguments": map[string]any{}})})
		wantSame(t, "texts", r.Texts, []string{"ok"})
		wantSame(t, "what ran", a.noted("t112o", "tool "), []string{"tool second"})
	})

	t.Run("T113 tool-result hooks see what stands for the result, under the tool's name", func(t *testing.T) {
		a.Next("t113", pays(map[string]any{"amount": 5}))
		a.say(t, "t113", "pay", nil)
		notes := a.notes("t113", "see tool_result", "modify tool_result")
		if len(notes) != 2 {
			t.Fatalf("%d payloads were shown", len(notes))
		}
		for _, n := range notes {
			wantSame(t, n.What, []any{n.Data["tool_name"], n.Data["value"], n.Data["is_error"], n.Data["arguments"]},
				[]any{"pay", awaiting, false, map[string]any{"amount": 5}})
		}
		got := a.runs("t113")
		if len(got) != 1 || got[0].Name != "pay" || got[0].Result != awaiting || got[0].CallID != "pay-id" || got[0].CallType != "pay-type" {
			t.Errorf("tool events: %+v", got)
		}
	})

	t.Run("T113 what they leave of it is recorded and replayed", func(t *testing.T) {
		a.Next("t113m", pays(map[string]any{"amount": 5, "to": "planted-name"}))
		a.say(t, "t113m", "pay", plan{"tool_result pay": doUpdate(map[string]any{"value": "asked", "arguments": map[string]any{"amount": 5}})})
		if got := a.runs("t113m"); len(got) != 1 || got[0].Result != "asked" || string(got[0].Arguments) != `{"amount":5}` {
			t.Errorf("tool events: %+v", got)
		}
		a.Next("t113m", yes)
		a.say(t, "t113m", "yes", nil)
		wantSame(t, "what the tool got", a.notes("t113m", "tool pay")[0].Data["arguments"], map[string]any{"amount": 5, "to": "planted-name"})
		wantSame(t, "the first tool message", toolMessages(a.prompt(t, "t113m", 1))[0], "asked")
		wantNone(t, "a request", inJSON(a.Prompts("t113m")), "planted-name")
	})

	t.Run("T113 of two calls that ask, the second is shown as not executed", func(t *testing.T) {
		a.Next("t113t", apptest.Calls(apptest.C{Name: "pay", Args: map[string]any{"amount": 5}}, apptest.C{Name: "cancel_order", Args: map[string]any{"order": "o"}}))
		r := a.say(t, "t113t", "go", nil)
		wantSame(t, "texts", r.Texts, []string{"Pay 5?"})
		notes := a.notes("t113t", "modify tool_result")
		if len(notes) != 2 {
			t.Fatalf("%d payloads were shown", len(notes))
		}
		n := notes[1].Data
		if n["tool_name"] != "cancel_order" || n["is_error"] != true || !strings.Contains(n["value"].(string), `"not_executed"`) {
			t.Errorf("the second call is shown as %v", n)
		}
		wantSame(t, "what ran", a.noted("t113t", "tool "), nil)
	})

	t.Run("T114 tool hooks see the resolution by its own name, with the inner result", func(t *testing.T) {
		a.Next("t114", pays(map[string]any{"amount": 5}), yes)
		a.say(t, "t114", "pay", nil)
		before := len(a.notes("t114"))
		a.say(t, "t114", "yes", nil)
		wantSame(t, "hooks asked and tools run", names(a.notes("t114")[before:], "tool_call", "tool_result", "tool pay"), []string{
			"see tool_call resolve_tool_confirmation", "modify tool_call resolve_tool_confirmation", "final tool_call resolve_tool_confirmation", "tool pay",
			"see tool_result resolve_tool_confirmation", "modify tool_result resolve_tool_confirmation"})
		last := a.notes("t114", "modify tool_result")[1].Data
		wantSame(t, "the result that is shown", []any{last["value"], last["is_error"], last["arguments"]},
			[]any{`{"paid": 5, "receipt": "planted-receipt"}`, false, map[string]any{"confirmed": true}})
	})

	t.Run("T37 the resumed tool's own run asks no hook", func(t *testing.T) {
		a.Next("t37", pays(map[string]any{"amount": 5}), yes)
		a.say(t, "t37", "pay", nil)
		before := len(a.notes("t37"))
		a.say(t, "t37", "yes", nil)
		for _, n := range a.notes("t37")[before:] {
			if n.Data["tool_name"] == "pay" {
				t.Errorf("%s was asked", n.What)
			}
		}
		wantSame(t, "what ran", a.noted("t37", "tool "), []string{"tool pay"})
	})

	t.Run("T114 the inner event keeps the result as the hooks left it", func(t *testing.T) {
		a.Next("t114i", pays(map[string]any{"amount": 5, "to": "planted-name"}), yes)
		a.say(t, "t114i", "pay", plan{"tool_result pay": doUpdate(map[string]any{"arguments": map[string]any{"amount": 5}})})
		a.say(t, "t114i", "yes", plan{"tool_result resolve_tool_confirmation": doUpdate(map[string]any{"value": map[string]any{"paid": 5}})})
		got := a.runs("t114i")
		if len(got) != 3 {
			t.Fatalf("tool events: %+v", got)
		}
		inner, outer := got[1], got[2]
		if inner.Name != "pay" || inner.Result != `{"paid": 5}` || string(inner.Arguments) != `{"amount":5}` || inner.IsError {
			t.Errorf("the inner event: %+v", inner)
		}
		if inner.Source != conversation.SourceConfirmation || inner.CallID != "" || inner.BatchID != "" {
			t.Errorf("the inner event is marked as %+v", inner)
		}
		if outer.Name != "resolve_tool_confirmation" || outer.Result != inner.Result || outer.CallID == "" || outer.Source != "" {
			t.Errorf("the outer event: %+v", outer)
		}
		wantNone(t, "the record", inJSON(a.Events("t114i")), "planted-receipt")
		wantNone(t, "the trace", a.TraceText("t114i"), "planted-receipt")
		a.say(t, "t114i", "and now", nil)
		wantNone(t, "a request", inJSON(a.Prompts("t114i")), "planted-receipt", "planted-name")
	})

	t.Run("T114 the inner event's arguments are those of its own question, also when ids are used again", func(t *testing.T) {
		a.Next("t114s", apptest.Calls(apptest.C{Name: "pay", Args: map[string]any{"amount": 5}, ID: "same"}),
			apptest.Calls(apptest.C{Name: "first", Args: map[string]any{"item": "other"}, ID: "same"}), apptest.Says("I see."), yes)
		a.say(t, "t114s", "pay", nil)
		a.say(t, "t114s", "hm", nil)
		a.say(t, "t114s", "yes", nil)
		got := a.runs("t114s")
		if len(got) != 4 || string(got[2].Arguments) != `{"amount":5}` {
			t.Errorf("tool events: %+v", got)
		}
	})

	t.Run("T114 what a confirmed tool's failure becomes is the hooks' to say", func(t *testing.T) {
		for name, c := range map[string]struct {
			fail   bool
			update map[string]any
			heard  []string
			failed bool
		}{
			"failed":                  {true, nil, []string{"ok"}, true},
			"failed, made a success":  {true, map[string]any{"is_error": false, "value": map[string]any{"paid": 1}}, []string{"Paid 1.", "ok"}, false},
			"success, made a failure": {false, map[string]any{"is_error": true}, []string{"ok"}, true},
		} {
			t.Run(name, func(t *testing.T) {
				sender := "t114 " + name
				a.Next(sender, pays(map[string]any{"amount": 5, "fail": c.fail}), yes)
				a.say(t, sender, "pay", nil)
				var p plan
				if c.update != nil {
					p = plan{"tool_result resolve_tool_confirmation": doUpdate(c.update)}
				}
				r := a.say(t, sender, "yes", p)
				wantSame(t, "texts", r.Texts, c.heard)
				got := a.runs(sender)
				if len(got) != 3 || got[1].IsError != c.failed || got[2].IsError != c.failed || got[1].Result != got[2].Result {
					t.Errorf("tool events: %+v", got)
				}
				shown := a.notes(sender, "modify tool_result resolve")[0].Data
				if shown["is_error"] != c.fail {
					t.Errorf("the hooks were shown is_error %v", shown["is_error"])
				}
				wantNone(t, "the record", inJSON(a.Events(sender)), "planted-exception-text")
			})
		}
	})

	t.Run("T114 a declined call runs nothing, and the hooks see the answer", func(t *testing.T) {
		a.Next("t114d", pays(map[string]any{"amount": 5}), no, yes)
		a.say(t, "t114d", "pay", nil)
		r := a.say(t, "t114d", "no", plan{"tool_result pay": doCrash("asked again")})
		wantSame(t, "texts", r.Texts, []string{"Not paid."}) // it is the turn's answer
		a.say(t, "t114d", "yes after all", nil)              // nothing waits any more
		wantSame(t, "what ran", a.noted("t114d", "tool "), nil)
		shown := a.notes("t114d", "modify tool_result")
		if len(shown) != 3 {
			t.Fatalf("%d results were shown", len(shown))
		}
		if d := shown[1].Data; d["tool_name"] != "resolve_tool_confirmation" || d["is_error"] != false || !strings.Contains(d["value"].(string), `"declined"`) {
			t.Errorf("the answer is shown as %v", d)
		}
		if d := shown[2].Data; d["is_error"] != true {
			t.Errorf("an answer to nothing is shown as %v", d)
		}
		for _, r := range a.runs("t114d") {
			if r.Source == conversation.SourceConfirmation && !strings.Contains(r.Result, `"declined"`) {
				t.Errorf("an inner run is recorded: %+v", r)
			}
		}
	})

	t.Run("T30 a hook that turns the answer around decides", func(t *testing.T) {
		a.Next("t30", pays(map[string]any{"amount": 5}), yes)
		a.say(t, "t30", "pay", nil)
		a.say(t, "t30", "yes", plan{"tool_call resolve_tool_confirmation": doUpdate(map[string]any{"arguments": map[string]any{"confirmed": false}})})
		wantSame(t, "what ran", a.noted("t30", "tool "), nil)
	})

	t.Run("T33 a retry leaves the pending call as it was", func(t *testing.T) {
		a.Next("t33", pays(map[string]any{"amount": 5}), yes, apptest.Says("Are you sure?"), yes)
		a.say(t, "t33", "pay", nil)
		r := a.say(t, "t33", "yes", plan{"tool_call resolve_tool_confirmation": doRetry("Ask once more.")})
		wantSame(t, "texts", r.Texts, []string{"Are you sure?"})
		r = a.say(t, "t33", "yes", nil)
		wantSame(t, "texts", r.Texts, []string{"Paid 5.", "ok"})
	})
}

// names returns the names of the notes that say something about what.
func names(notes []apptest.Note, what ...string) []string {
	var out []string
	for _, n := range notes {
		for _, w := range what {
			if strings.Contains(n.What, w) {
				out = append(out, n.What)
				break
			}
		}
	}
	return out
}

func TestConfirmationAfterTheAppWasClosed(t *testing.T) {
	t.Parallel()
	before := startPlanned(t, payFiles)
	before.Next("u", pays(map[string]any{"amount": 3}))
	before.say(t, "u", "pay", plan{"tool_call pay": doUpdate(map[string]any{"arguments": map[string]any{"amount": 5}}),
		"tool_result pay": doUpdate(map[string]any{"arguments": map[string]any{}})})
	before.Next("declines", pays(map[string]any{"amount": 5}))
	before.say(t, "declines", "pay", nil)
	asked := len(before.Notes())
	before.Close()
	a := planned{apptest.StartIn(t, before.Dir)}

	t.Run("T32 a confirmation is resumed by another process from the stored arguments", func(t *testing.T) {
		a.Next("u", yes)
		r := a.say(t, "u", "yes", plan{"tool_call pay": doCrash("asked again"), "tool_result pay": doCrash("asked again")})
		wantSame(t, "texts", r.Texts, []string{"Paid 5.", "ok"})
		after := a.Notes()[asked:]
		wantSame(t, "hooks asked", names(after, "modify tool", "tool pay"), []string{
			"modify tool_call resolve_tool_confirmation", "tool pay", "modify tool_result resolve_tool_confirmation"})
		wantSame(t, "what the tool got", a.notes("u", "tool pay")[0].Data["arguments"], map[string]any{"amount": 5, "to": ""})
	})

	t.Run("T114 its inner event is as the hooks left it", func(t *testing.T) {
		got := a.runs("u")
		if len(got) != 3 || got[1].Name != "pay" || string(got[1].Arguments) != `{}` || got[1].Source != conversation.SourceConfirmation {
			t.Errorf("tool events: %+v", got)
		}
	})

	t.Run("T32 a call that is declined afterwards runs nothing", func(t *testing.T) {
		a.Next("declines", no)
		r := a.say(t, "declines", "no", nil)
		wantSame(t, "texts", r.Texts, []string{"Not paid."})
		wantSame(t, "what ran", a.noted("declines", "tool "), nil)
	})
}

func TestConfirmationQuestionWithoutWhatHooksTookOut(t *testing.T) {
	t.Parallel()
	a := apptest.Start(t, apptest.Files{
		"tools/cancel.py": `from belay.tools import ToolContext, ToolResult, tool


@tool(description="Cancels.", requires_confirmation=True)
async def cancel_order(order: str, ssn: str = "") -> ToolResult:
    return ToolResult(llm_response="cancelled " + ssn)
`,
		"hooks.py": `from __future__ import annotations

from belay.hooks import ToolResultPayload, modify_tool_result


@modify_tool_result()
async def redact(result: ToolResultPayload) -> ToolResultPayload:
    return result.model_copy(update={"arguments": {k: v for k, v in result.arguments.items() if k != "ssn"}})
`,
	}, apptest.Play(apptest.Call("cancel_order", map[string]any{"order": "A1", "ssn": "078-05-1120"}), yes, apptest.Says("done")))
	t.Run("T35 a field taken out of a call's arguments is in no question and no later request", func(t *testing.T) {
		r := a.Say("u", "cancel A1")
		if !strings.Contains(r.Text(), "A1") {
			t.Errorf("the question is %q", r.Text())
		}
		a.Say("u", "yes")
		if run := a.Of("u", conversation.ToolExecuted); len(run) != 3 || !strings.Contains(run[2].Tool.Result, "078-05-1120") {
			t.Errorf("the confirmed call did not run on what the tool-call hooks left: %+v", run)
		}
		for i := range a.Requests() {
			last := a.Requests()[i]
			if i < 2 && strings.Contains(string(last.Messages), "078-05-1120") {
				t.Errorf("request %d has the field", i)
			}
		}
		if strings.Contains(r.Text(), "078-05-1120") {
			t.Errorf("the question has the field: %q", r.Text())
		}
	})
}
