package tests

import (
	"slices"
	"strings"
	"testing"

	"github.com/belay-run/belay/internal/app/apptest"
	"github.com/belay-run/belay/internal/conversation"
)

// sellFiles are an agent whose skill has tools behind constraints.
var sellFiles = apptest.Files{
	"skills/sell/skill.md": `---
name: Sell
description: Sells something.
import_tools: [note_down]
tool_constraints:
  - send:
      requires: session.sell.covered
      description: Sends it, as the skill describes it.
      on_success: utter_sent
      on_failure: utter_not_sent
  - lock: {requires: session.sell.go}
  - pay:
      requires: session.sell.covered
      requires_confirmation: {enabled: true, utter_for_confirmation: utter_ask_pay, utter_on_user_denial: utter_no_pay}
      on_success: utter_paid
      on_failure: utter_unpaid
---

Sell.
`,
	"skills/sell/memory.yml": "schema:\n  public:\n    covered: {type: bool}\n    go: {type: bool, llm_settable: true, initial_value: true}\n",
	"skills/sell/tools.py": `from __future__ import annotations

import asyncio

from belay.tools import ToolContext, ToolResult, tool
from lib.probe import note


@tool(description="Looks whether it is covered.")
async def check(context: ToolContext, ok: bool = True) -> ToolResult:
    note("tool check", sender_id=context.sender_id, ok=ok)
    context.memory.set("covered", ok)
    return ToolResult(llm_response={"covered": ok})


@tool(description="Sends.", timeout=1)
async def send(context: ToolContext, to: str = "", how: str = "") -> ToolResult:
    note("tool send", sender_id=context.sender_id, to=to)
    if how == "raise":
        raise RuntimeError("planted-exception")
    if how == "slow":
        await asyncio.sleep(60)
    if how == "error":
        return ToolResult(llm_response={"error": "no stamp", "secret": "planted-secret"})
    return ToolResult(llm_response={"id": 7, "secret": "planted-secret"})


@tool(description="Locks.")
async def lock(context: ToolContext) -> ToolResult:
    note("tool lock", sender_id=context.sender_id)
    return ToolResult(llm_response={})


@tool(description="Pays.")
async def pay(context: ToolContext, amount: int, to: str = "", fail: bool = False) -> ToolResult:
    note("tool pay", sender_id=context.sender_id, amount=amount, to=to)
    if fail:
        return ToolResult(llm_response={"error": "no money"})
    return ToolResult(llm_response={"paid": amount, "secret": "planted-secret"})


@tool(description="Looks at go.")
async def validate_go(go: bool, context: ToolContext) -> ToolResult:
    note("tool validate_go", sender_id=context.sender_id)
    return ToolResult(llm_response={})
`,
	"skills/rest/skill.md": "---\nname: Rest\ndescription: Rests.\n---\n\nRest.\n",
	"skills/rest/tools.py": "from __future__ import annotations\n\nfrom belay.tools import ToolContext, ToolResult, tool\nfrom lib.probe import note\n\n\n@tool(description=\"Naps.\")\nasync def nap(context: ToolContext) -> ToolResult:\n    note(\"tool nap\", sender_id=context.sender_id)\n    return ToolResult(llm_response={})\n",
	"tools/shared.py":      "from __future__ import annotations\n\nfrom belay.tools import ToolContext, ToolResult, tool\nfrom lib.probe import note\n\n\n@tool(description=\"Notes down.\")\nasync def note_down(context: ToolContext) -> ToolResult:\n    note(\"tool note_down\", sender_id=context.sender_id)\n    return ToolResult(llm_response={})\n\n\n@tool(description=\"Is imported by nobody.\")\nasync def stray(context: ToolContext) -> ToolResult:\n    note(\"tool stray\", sender_id=context.sender_id)\n    return ToolResult(llm_response={})\n",
	"responses.yml": `responses:
  utter_sent: ["Sent as {id}."]
  utter_not_sent: [Not sent.]
  utter_ask_pay: ["Pay {amount}?"]
  utter_no_pay: [Not paid.]
  utter_paid: ["Paid {paid}."]
  utter_unpaid: [Payment failed.]
`,
}

const closedGate = "Error: what this tool requires does not hold. Nothing was done."

// one is a call of a batch.
func one(name string, args map[string]any) apptest.C {
	if args == nil {
		args = map[string]any{}
	}
	return apptest.C{Name: name, Args: args}
}

// sell begins a conversation in the skill, with what is sent covered.
func (a playedAgent) sell(t *testing.T, sender string, covered bool) {
	t.Helper()
	a.Next(sender, starts("sell"))
	if covered {
		a.Next(sender, apptest.Call("check", map[string]any{"ok": true}))
	}
	a.Next(sender, apptest.Says("well"))
	a.turn(t, sender, "sell", nil)
}

// ran are the tools that a conversation has run, without those that look and check.
func (a playedAgent) ran(sender string) []string {
	return slices.DeleteFunc(of(a.toolNotes(sender), "tool "), func(s string) bool { return s == "tool check" || s == "tool validate_go" })
}

func TestConstraints(t *testing.T) {
	t.Parallel()
	a := startPlayed(t, nil, sellFiles, playedHooks(longLimit, toolHooks...))

	t.Run("T32 a tool is offered only while what it requires holds", func(t *testing.T) {
		a.sell(t, "t32", true)
		expect(t, "offered before", a.offers(t, "t32", 1), []string{"check", "lock", "note_down", "set_fields", "activate", "complete_skill", "cancel_skill", "cannot_help", "listen", "hangup"})
		expect(t, "offered after", a.offers(t, "t32", 2)[:4], []string{"check", "send", "lock", "pay"})
		wantAll(t, "its description", schema(t, a.request(t, "t32", 2), "send"), "as the skill describes it", `"to"`)
	})

	t.Run("T32 a closed gate keeps a call from the tool's body", func(t *testing.T) {
		for name, c := range map[string]struct {
			covered bool
			batch   []apptest.C
			does    bodies
			result  string
			ran     []string
		}{
			"not offered":                              {false, []apptest.C{one("send", nil)}, nil, `Error: there is no tool named "send". Nothing was done.`, []string{}},
			"closed by a tool of the batch":            {true, []apptest.C{one("check", map[string]any{"ok": false}), one("send", nil)}, nil, closedGate, []string{}},
			"open in the batch":                        {true, []apptest.C{one("check", map[string]any{"ok": true}), one("send", nil)}, nil, `{"id": 7, "secret": "planted-secret"}`, []string{"tool send"}},
			"not opened by a tool of the batch":        {false, []apptest.C{one("check", map[string]any{"ok": true}), one("send", nil)}, nil, `Error: there is no tool named "send". Nothing was done.`, []string{}},
			"closed by arguments that a hook wrote":    {true, []apptest.C{one("check", map[string]any{"ok": true}), one("send", nil)}, bodies{"modify_tool_call": "if p.tool_name == 'check':\n    p.arguments = {'ok': False}"}, closedGate, []string{}},
			"a name that a hook wrote, closed":         {true, []apptest.C{one("check", map[string]any{"ok": false}), one("note_down", nil)}, bodies{"modify_tool_call": "if p.tool_name == 'note_down':\n    p.tool_name = 'send'"}, closedGate, []string{}},
			"a name that a hook wrote, not offered":    {false, []apptest.C{one("note_down", nil)}, bodies{"modify_tool_call": "p.tool_name = 'send'"}, `Error: there is no tool named "send". Nothing was done.`, []string{}},
			"a skill was activated in the batch":       {true, []apptest.C{one("activate", map[string]any{"target_id": "rest"}), one("send", nil)}, nil, `Error: there is no tool named "send". Nothing was done.`, []string{}},
			"the skill was ended in the batch":         {true, []apptest.C{one("cancel_skill", nil), one("send", nil)}, nil, `Error: there is no tool named "send". Nothing was done.`, []string{}},
			"confirmation, closed by the batch before": {true, []apptest.C{one("check", map[string]any{"ok": false}), one("pay", map[string]any{"amount": 5})}, nil, closedGate, []string{}},
		} {
			t.Run(name, func(t *testing.T) {
				sender := "t32 " + name
				a.sell(t, sender, c.covered)
				a.Next(sender, apptest.Calls(c.batch...), apptest.Says("well"), apptest.Says("well"))
				r := a.turn(t, sender, "go", c.does)
				runs := a.Of(sender, conversation.ToolExecuted)
				last := runs[len(runs)-1].Tool
				expect(t, "the result", last.Result, c.result)
				expect(t, "it failed", last.IsError, len(c.ran) == 0)
				expect(t, "what ran", a.ran(sender), c.ran)
				wantNone(t, "what the user heard", r.Text(), "Not sent", "Pay 5?", "failed")
				t.Run("T113 the result hooks see what stands for its result, under its own name", func(t *testing.T) {
					for _, hook := range []string{"on_tool_result", "modify_tool_result"} {
						notes := a.notesOf(sender, hook)
						n := notes[len(notes)-1].Data
						expect(t, hook, []any{n["tool_name"], n["value"], n["is_error"]}, []any{last.Name, c.result, last.IsError})
					}
				})
			})
		}
	})

	t.Run("T32 a gate that a settable value closes in the batch", func(t *testing.T) {
		a.sell(t, "t32 set", false)
		a.Next("t32 set", apptest.Calls(one("set_fields", map[string]any{"go": false}), one("lock", nil)), apptest.Says("well"))
		a.turn(t, "t32 set", "go", nil)
		expect(t, "the result", a.results("t32 set", "lock"), []string{closedGate})
		expect(t, "what ran", a.ran("t32 set"), []string{})
		expect(t, "offered then", slices.Contains(a.offers(t, "t32 set", -1), "lock"), false)
	})

	t.Run("T32 a confirmed call runs with the arguments as the hook left them, and asks no hook again", func(t *testing.T) {
		a.sell(t, "t32 resumed", true)
		a.Next("t32 resumed", apptest.Call("pay", map[string]any{"amount": 3, "to": "planted-name"}), yes)
		r := a.turn(t, "t32 resumed", "pay", bodies{"modify_tool_call": "p.arguments = {'amount': 5, 'to': 'you'}"})
		expect(t, "asked", r.Texts, []string{"Pay 5?"})
		before := len(a.toolNotes("t32 resumed"))
		a.turn(t, "t32 resumed", "yes", bodies{"modify_tool_call": "if p.tool_name == 'pay':\n    1 / 0", "modify_tool_result": "if p.tool_name == 'pay':\n    1 / 0"})
		n := a.notesOf("t32 resumed", "tool pay")[0].Data
		expect(t, "what the tool got", []any{n["amount"], n["to"]}, []any{5, "you"})
		t.Run("T37 its own run asks no tool hook", func(t *testing.T) {
			expect(t, "hooks and tools", a.toolNotes("t32 resumed")[before:], []string{"on_tool_call resolve_tool_confirmation", "modify_tool_call resolve_tool_confirmation", "tool pay",
				"on_tool_result resolve_tool_confirmation", "modify_tool_result resolve_tool_confirmation"})
		})
		wantNone(t, "record and requests", inJSON(a.Events("t32 resumed"))+inJSON(a.Prompts("t32 resumed")), "planted-name")
	})

	t.Run("T32 a confirmed call does not run when what it requires no longer holds", func(t *testing.T) {
		a.sell(t, "t32 late", true)
		a.Next("t32 late", apptest.Call("pay", map[string]any{"amount": 5}), apptest.Call("check", map[string]any{"ok": false}), apptest.Says("It is not covered."), yes, apptest.Says("Not paid, then."))
		a.turn(t, "t32 late", "pay", nil)
		a.turn(t, "t32 late", "wait", nil)
		r := a.turn(t, "t32 late", "yes", nil)
		expect(t, "heard", r.Texts, []string{"Not paid, then."})
		expect(t, "what ran", a.ran("t32 late"), []string{})
		expect(t, "the results", append(a.results("t32 late", "pay")[1:], a.results("t32 late", "resolve_tool_confirmation")...), []string{closedGate, closedGate})
	})

	t.Run("T32 a call whose question did not go out does not wait", func(t *testing.T) {
		b := startPlayed(t, nil, sellFiles, playedHooks(longLimit, "modify_outgoing_text"))
		b.sell(t, "cut", true)
		b.Next("cut", apptest.Call("pay", map[string]any{"amount": 5}))
		in := played("cut", "pay", bodies{"modify_outgoing_text": "note('held', sender_id=p.sender_id)\nawait gate('never')"})
		done := b.send(t.Context(), in)
		b.waitFor(t, "cut", "held")
		b.Next("cut", yes, apptest.Call("pay", map[string]any{"amount": 5}))
		next := played("cut", "ok", nil)
		next.Interrupt = true
		r := awaited(t, b.send(t.Context(), next))
		if first := awaited(t, done); first.err != nil || first.Report.Status != "cancelled" || len(first.Texts) > 0 || r.err != nil {
			t.Fatalf("the first turn %+v, the second %v", first, r.err)
		}
		expect(t, "heard", r.Texts, []string{"Pay 5?"})
		expect(t, "what ran", b.ran("cut"), []string{})
		b.Next("cut", yes)
		expect(t, "heard then", b.turn(t, "cut", "yes", nil).Texts, []string{"Paid 5.", "ok"})
	})

	t.Run("T113 a call that waits is shown as such under its own name", func(t *testing.T) {
		a.sell(t, "t113", true)
		a.Next("t113", apptest.Call("pay", map[string]any{"amount": 5, "to": "planted-name"}))
		a.turn(t, "t113", "pay", bodies{"modify_tool_result": "p.arguments.pop('to', None)"})
		notes := a.notesOf("t113", "on_tool_result")
		n := notes[len(notes)-1].Data
		expect(t, "shown", []any{n["tool_name"], n["value"], n["is_error"]}, []any{"pay", `{"status": "awaiting_confirmation", "message": "Pay 5?"}`, false})
		a.Next("t113", yes)
		a.turn(t, "t113", "yes", nil)
		expect(t, "what the tool got", a.notesOf("t113", "tool pay")[0].Data["to"], "planted-name")
		for _, run := range a.Of("t113", conversation.ToolExecuted) {
			wantNone(t, "a tool event", inJSON(run.Tool), "planted-name")
		}
		wantNone(t, "the requests", inJSON(a.Prompts("t113")), "planted-name")
	})

	t.Run("T114 the inner event keeps the result as the hooks of the outer call left it", func(t *testing.T) {
		a.sell(t, "t114", true)
		a.Next("t114", apptest.Call("pay", map[string]any{"amount": 5}), yes)
		a.turn(t, "t114", "pay", nil)
		r := a.turn(t, "t114", "yes", bodies{"modify_tool_result": "p.value = {'paid': 6}"})
		expect(t, "heard", r.Texts, []string{"Paid 6.", "ok"})
		expect(t, "the results", append(a.results("t114", "pay")[1:], a.results("t114", "resolve_tool_confirmation")...), []string{`{"paid": 6}`, `{"paid": 6}`})
		wantNone(t, "record, requests, trace", inJSON(a.Events("t114"))+inJSON(a.Prompts("t114"))+a.TraceText("t114"), "planted-secret")
		inner := a.Of("t114", conversation.ToolExecuted)[3].Tool
		expect(t, "the inner event", []string{inner.Name, inner.Source, inner.Skill, inner.CallID}, []string{"pay", conversation.SourceConfirmation, "sell", ""})
	})

	t.Run("T37 the calls that move through skills are seen", func(t *testing.T) {
		a.sell(t, "t37", false)
		help := one("cannot_help", map[string]any{"in_domain": true})
		a.Next("t37", apptest.Calls(one("set_fields", map[string]any{"go": false}), help), asWritten, quits, asWritten, starts("rest"), apptest.Says("well"), finishes, asWritten)
		for range 4 {
			a.turn(t, "t37", "go on", nil)
		}
		want := []string{}
		for _, batch := range [][]string{{"activate"}, {"set_fields", "cannot_help"}, {"cancel_skill"}, {"activate"}, {"complete_skill"}} {
			for _, name := range batch {
				want = append(want, "on_tool_call "+name, "modify_tool_call "+name)
			}
			for _, name := range batch {
				if name == "set_fields" {
					want = append(want, "tool validate_go")
				}
				want = append(want, "on_tool_result "+name, "modify_tool_result "+name)
			}
		}
		expectLines(t, "hooks and tools", a.toolNotes("t37"), want)
	})

	t.Run("T112 a name that the skill does not offer runs no tool", func(t *testing.T) {
		for _, name := range []string{"nap", "stray", "validate_go", "pay", "resolve_tool_confirmation", "search_knowledge", "nowhere"} {
			sender := "t112 " + name
			a.sell(t, sender, false)
			a.Next(sender, apptest.Call("note_down", nil), apptest.Says("well"))
			a.turn(t, sender, "go", bodies{"modify_tool_call": "p.tool_name = '" + name + "'\np.arguments = {'confirmed': True}"})
			expect(t, name, a.results(sender, name), []string{`Error: there is no tool named "` + name + `". Nothing was done.`})
			expect(t, "what ran", a.ran(sender), []string{})
		}
		a.sell(t, "t112 steers", false)
		a.Next("t112 steers", apptest.Call("note_down", nil), asWritten)
		r := a.turn(t, "t112 steers", "go", bodies{"modify_tool_call": "p.tool_name = 'cancel_skill'"})
		expectLines(t, "a name that steers", of(story(r.Report.Events), "skill_"), []string{"skill_cancelled sell", "skill_activated default_completed"})
	})
}

func TestCallsWhoseMeaningChangesInABatch(t *testing.T) {
	t.Parallel()
	work := "from __future__ import annotations\n\nfrom belay.tools import ToolContext, ToolResult, tool\nfrom lib.probe import note\n\n\n@tool(description=\"Works.\")\nasync def work(context: ToolContext) -> ToolResult:\n    note(\"tool work\", sender_id=context.sender_id)\n    return ToolResult(llm_response={})\n"
	a := startPlayed(t, nil, apptest.Files{"tools/work.py": work,
		"skills/asks/skill.md": "---\nname: Asks\ndescription: Asks first.\nimport_tools: [work]\ntool_constraints:\n  - work: {requires_confirmation: true}\n---\n\nAsk.\n",
		"skills/does/skill.md": "---\nname: Does\ndescription: Does at once.\nimport_tools: [work]\n---\n\nDo.\n"})
	batch := func(to string) apptest.Answer {
		return apptest.Calls(apptest.C{Name: "activate", Args: map[string]any{"target_id": to}, ID: "first"}, apptest.C{Name: "work", Args: map[string]any{}, ID: "second"})
	}
	t.Run("T32 the gate is that of the skill that is active when the call is dispatched", func(t *testing.T) {
		a.Next("asks", starts("does"), batch("asks"))
		r := a.turn(t, "asks", "go", nil)
		expect(t, "heard", r.Texts, []string{"I am about to run work. Shall I go ahead?"})
		expect(t, "what ran", a.toolNotes("asks"), []string{})
	})
	t.Run("a call that runs is written down before", func(t *testing.T) {
		a.Next("does", starts("asks"), batch("does"), apptest.Says("done"))
		a.turn(t, "does", "go", nil)
		expect(t, "what ran", a.toolNotes("does"), []string{"tool work"})
		for _, e := range a.Events("does") {
			if e.Kind == conversation.ToolBatch && slices.ContainsFunc(e.Batch, func(r conversation.ToolRun) bool { return r.CallID == "second" }) {
				return
			}
			if e.Kind == conversation.ToolExecuted && e.Tool.CallID == "second" {
				break
			}
		}
		t.Error("it was not")
	})
}

func TestWhatFollowsInSkills(t *testing.T) {
	t.Parallel()
	a := startPlayed(t, nil, sellFiles, playedHooks(longLimit, toolHooks...))
	for name, c := range map[string]struct {
		how    string
		update string // of the result, in Python
		heard  string
		failed bool // as the hooks left it
	}{
		"it succeeds":             {"", "", "Sent as 7.", false},
		"it raises":               {"raise", "", "Not sent.", true},
		"it runs out of time":     {"slow", "", "Not sent.", true},
		"it answers an error":     {"error", "", "Not sent.", true},
		"made a failure":          {"", "p.is_error = True", "Not sent.", true},
		"made a success":          {"raise", "p.is_error = False\np.value = {'id': 8}", "Sent as 8.", false},
		"made another success":    {"", "p.value = {'id': 9}", "Sent as 9.", false},
		"an error made a success": {"error", "p.is_error = False\np.value = {'id': 1}", "Sent as 1.", false},
	} {
		t.Run("T115 what follows goes by is_error as the hooks left it: "+name, func(t *testing.T) {
			a.sell(t, name, true)
			a.Next(name, apptest.Call("send", map[string]any{"how": c.how}), apptest.Says("the rest"))
			r := a.turn(t, name, "send", bodies{"modify_tool_result": c.update + "\np = p"})
			expect(t, "heard", r.Texts, []string{c.heard, "the rest"})
			runs := a.Of(name, conversation.ToolExecuted)
			expect(t, "recorded", runs[len(runs)-1].Tool.IsError, c.failed)
			t.Run("T117 the hooks are asked, also when it failed", func(t *testing.T) {
				notes := a.notesOf(name, "modify_tool_result")
				n := notes[len(notes)-1].Data
				shown := map[string]string{"": `{"id": 7, "secret": "planted-secret"}`, "raise": "Error: send failed.", "slow": "Error: send did not answer within 1s.", "error": `{"error": "no stamp", "secret": "planted-secret"}`}[c.how]
				expect(t, "shown", []any{n["tool_name"], n["value"], n["is_error"]}, []any{"send", shown, c.how != ""})
			})
		})
	}
	for name, c := range map[string]struct {
		fail   bool
		update string
		heard  string
	}{"confirmed": {false, "", "Paid 5."}, "confirmed, fails": {true, "", "Payment failed."}, "confirmed, made a failure": {false, "p.is_error = True", "Payment failed."},
		"confirmed, made a success": {true, "p.is_error = False\np.value = {'paid': 1}", "Paid 1."}} {
		t.Run("T115 what follows a confirmed call: "+name, func(t *testing.T) {
			a.sell(t, name, true)
			a.Next(name, apptest.Call("pay", map[string]any{"amount": 5, "fail": c.fail}), yes, apptest.Says("the rest"))
			a.turn(t, name, "pay", nil)
			r := a.turn(t, name, "yes", bodies{"modify_tool_result": c.update + "\np = p"})
			expect(t, "heard", r.Texts, []string{c.heard, "the rest"})
		})
	}
}

func TestObserversOfSkills(t *testing.T) {
	t.Parallel()
	var observers []string
	for _, name := range everyHook() {
		if strings.HasPrefix(name, "on_") {
			observers = append(observers, name)
		}
	}
	a := startPlayed(t, nil, orderFiles, playedHooks(longLimit, observers...))
	course := func(t *testing.T, sender string, does bodies) (lines []string) {
		t.Helper()
		for _, part := range []struct {
			text    string
			answers []apptest.Answer
		}{
			{"order", []apptest.Answer{starts("order"), nothing}}, {"lamp", []apptest.Answer{sets(map[string]any{"item": "lamp"})}},
			{"Elm", []apptest.Answer{sets(map[string]any{"street": "Elm"}), apptest.Says("Right?")}}, {"right", []apptest.Answer{sets(map[string]any{"right": true})}},
			{"yes", []apptest.Answer{yes, apptest.Says("Bye."), asWritten}},
		} {
			a.Next(sender, part.answers...)
			r := a.turn(t, sender, part.text, does)
			lines = append(lines, story(r.Report.Events)...)
			lines = append(lines, r.Order...)
			lines = append(lines, r.Report.Status, r.Report.Why)
		}
		return append(lines, inJSON(a.Prompts(sender)))
	}
	want := course(t, "quiet", nil)
	for name, body := range map[string]string{
		"change": "for k in list(p.model_dump()):\n    try:\n        setattr(p, k, 'planted-change')\n    except Exception:\n        pass",
		"raise":  "raise RuntimeError('planted')",
		"signal": "veto('planted') if 'text' in p.model_dump() else retry('planted')",
		"return": "return 7",
	} {
		t.Run("T58 what observers do alters no turn with skills: they "+name, func(t *testing.T) {
			does := bodies{}
			for _, o := range observers {
				does[o] = body
			}
			got := course(t, name, does)
			for i := range got { // ids differ
				if i < len(want)-1 && got[i] != want[i] {
					t.Errorf("line %d is %s, and was %s", i, got[i], want[i])
				}
			}
			expect(t, "lines", len(got), len(want))
			wantNone(t, "the requests", got[len(got)-1], "planted")
			expect(t, "memory", a.remembers(name), a.remembers("quiet"))
		})
	}
	t.Run("T71 turn started and finished change no state of skills", func(t *testing.T) {
		got := course(t, "t71", bodies{"on_turn_started": "p.turn_id = 'x'\nraise RuntimeError", "on_turn_finished": "p.status = 'x'\nveto('no')"})
		expectLines(t, "the turns", got[:len(got)-1], want[:len(want)-1])
		expect(t, "asked", []int{len(a.notesOf("t71", "on_turn_started")), len(a.notesOf("t71", "on_turn_finished"))}, []int{5, 5})
	})
}

func TestRetriesInABlock(t *testing.T) {
	t.Parallel()
	a := startPlayed(t, nil, orderFiles, playedHooks(longLimit, "modify_model_response", "modify_tool_call"), apptest.Files{"agent.yml": "agent:\n  id: test\n  persona: You are a test.\nbelay:\n  limits:\n    iterations: 3\n"})
	draft := sets(map[string]any{"right": true})
	for point, hook := range map[string]string{"response": "modify_model_response", "call": "modify_tool_call"} {
		t.Run("T103 a retry at the "+point+" counts, and at the cap the block stands where it stood", func(t *testing.T) {
			a.orders(t, point, "lamp", "talk")
			asked := len(a.RequestsOf(point))
			a.Next(point, draft, draft, draft, draft)
			r := a.turn(t, point, "yes", bodies{hook: "retry('not yet')"})
			expect(t, "the turn", []any{r.Texts, r.Report.Status, r.Report.Why, len(a.RequestsOf(point)) - asked},
				[]any{[]string{"I'm sorry, but I couldn't finish that. Please try again, perhaps in smaller steps."}, "error", "iterations", 3})
			expect(t, "memory", a.remembers(point)["order.right"], "")
			for i, request := range a.RequestsOf(point)[asked:] {
				expect(t, "the note is there", strings.Contains(string(request.Messages), "not yet"), i > 0)
			}
			a.Next(point, draft, draft) // the second answer of those that are left
			r = a.turn(t, point, "yes", nil)
			expect(t, "heard then", r.Texts, []string{"Reserve lamp?"})
			wantNone(t, "a later request", string(a.request(t, point, -1).Messages), "not yet")
		})
	}
}
