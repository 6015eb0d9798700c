package tests

import (
	"slices"
	"strings"
	"testing"

	"github.com/belay-run/belay/internal/app/apptest"
	"github.com/belay-run/belay/internal/conversation"
)

// orderFiles are an agent whose skill is an ordered block with steps of every
// kind.
var orderFiles = apptest.Files{
	"memory.yml": "orders: {type: number, mutable: true}\nfirst: {type: text}\n",
	"skills/order/skill.md": `---
name: Order
description: Orders something.
import_tools: [stamp]
tool_constraints:
  - quote: {on_failure: utter_no_quote}
  - reserve:
      requires: session.order.right
      requires_confirmation: {enabled: true, utter_for_confirmation: utter_ask_reserve, utter_on_user_denial: utter_not_reserved}
      on_success: utter_reserved
---

:::ordered_block id=main
steps:
  - id: hello
    action: utter_hello
  - id: what
    collect: item
    utterance: utter_ask_item
  - id: quote
    execute_tool: quote
    parameters: {item: session.order.item, currency: EUR, unset: session.order.never}
  - id: tax
    execute_tool: tax
  - id: size
    noop: true
    next:
      - if: session.order.price > 100
        then: large
      - else: mark
  - id: large
    action: utter_large
  - id: mark
    set_memory: {checked: true, orders: 1, first: "main", never: null}
  - id: sub
    call: address
  - id: talk
    instructions: |
      Say what it costs. Ask whether that is right.
    complete_when: session.order.right
  - id: reserve
    execute_tool: reserve
  - id: bye
    instructions: Say goodbye.
    next: done
  - id: never
    action: utter_never
  - id: done
    link: order__last
:::

:::ordered_block id=address
steps:
  - id: street
    collect: street
    utterance: utter_ask_street
  - id: END
  - id: never
    action: utter_never
:::

:::ordered_block id=last
steps:
  - id: thanks
    action: utter_thanks
    next: END
:::
`,
	"skills/order/memory.yml": `schema:
  public:
    item: {type: text, llm_settable: true}
    street: {type: text, llm_settable: true}
    right: {type: bool, llm_settable: true}
    price: {type: number}
    tax: {type: number}
    checked: {type: bool}
    never: {type: text}
`,
	"responses.yml": `responses:
  utter_hello: [Hello.]
  utter_ask_item: [Which item?]
  utter_no_quote: [No price is known.]
  utter_large: ["{price} is a lot."]
  utter_ask_street: [Which street?]
  utter_ask_reserve: ["Reserve {item}?"]
  utter_not_reserved: [Not reserved.]
  utter_reserved: ["Reserved as {ref}."]
  utter_never: [planted-never]
  utter_thanks: [Thank you.]
  utter_round: [Round.]
  utter_given: [Given.]
`,
	"skills/order/tools.py": `from __future__ import annotations

from belay.tools import ToolContext, ToolResult, tool
from lib.played import gate
from lib.probe import note


@tool(description="Quotes.", timeout=60)
async def quote(item: str, currency: str, context: ToolContext, unset: str = "") -> ToolResult:
    note("tool quote", sender_id=context.sender_id, item=item, currency=currency, unset=unset)
    if item == "slow":
        await gate("never")
    if item == "nothing":
        raise RuntimeError("planted-exception")
    context.memory.set("price", 200 if item == "sofa" else 20)
    return ToolResult(llm_response={"quoted": item})


@tool(description="Taxes.")
async def tax(context: ToolContext) -> ToolResult:
    note("tool tax", sender_id=context.sender_id, price=context.memory.get("price"))
    context.memory.set("tax", context.memory.get("price", 0) / 5)
    return ToolResult(llm_response={})


@tool(description="Reserves.", timeout=60)
async def reserve(context: ToolContext) -> ToolResult:
    note("tool reserve", sender_id=context.sender_id, item=context.memory.get("item"))
    if context.memory.get("street") == "slow":
        await gate("never")
    return ToolResult(llm_response={"ref": "R1"})
`,
	"tools/stamp.py": `from __future__ import annotations

from belay.tools import ToolContext, ToolResult, tool


@tool(description="Stamps and says so.")
async def stamp(context: ToolContext) -> ToolResult:
    await context.send("Stamped.")
    return ToolResult(llm_response={})
`,
	"skills/gift/skill.md": "---\nname: Gift\ndescription: Gives something.\n---\n\nSay for whom, then @block.wrap.\n\n" +
		":::ordered_block id=wrap\ndescription: Wraps it.\nsteps:\n  - id: hours\n    call: hours\n  - id: given\n    action: utter_given\n:::\n",
	"skills/hours/skill.md": "---\nname: Hours\ndescription: Says when.\n---\n\nSay nine.\n",
	"skills/swap/skill.md":  "---\nname: Swap\ndescription: Swaps something.\n---\n\n:::ordered_block id=main\nsteps:\n  - id: over\n    link: hours\n:::\n",
}

// orders brings a conversation to a step of the block.
func (a playedAgent) orders(t *testing.T, sender, item string, to string) {
	t.Helper()
	a.Next(sender, starts("order"), nothing)
	a.turn(t, sender, "order", nil)
	if to == "what" {
		return
	}
	a.Next(sender, sets(map[string]any{"item": item}))
	a.turn(t, sender, item, nil)
	if to == "street" {
		return
	}
	a.Next(sender, sets(map[string]any{"street": "Elm"}), apptest.Says("Is it right?"))
	a.turn(t, sender, "Elm", nil)
	if to == "talk" {
		return
	}
	a.Next(sender, sets(map[string]any{"right": true}))
	a.turn(t, sender, "right", nil)
}

func TestOrderedBlock(t *testing.T) {
	t.Parallel()
	a := startPlayed(t, nil, orderFiles, playedHooks(longLimit, toolHooks...))

	t.Run("steps of every kind", func(t *testing.T) {
		a.Next("all", starts("order"), nothing)
		r := a.turn(t, "all", "order", nil)
		tells(t, r, "user: order", "skill_activated order", "tool activate", "ordered_block_entered order main hello", "bot: Hello.", "ordered_block_step order main what",
			"bot: Which item?", "ordered_block_asked order main what")
		expect(t, "the turn", []string{r.Report.Why, r.Report.Status}, []string{"waiting", "completed"})
		a.Next("all", sets(map[string]any{"item": "sofa"}))
		r = a.turn(t, "all", "a sofa", nil)
		tells(t, r, "user: a sofa", `memory_set order.item "sofa"`, "tool set_fields", "ordered_block_step order main quote", "memory_set order.price 200", "tool quote (execute_step)",
			"ordered_block_step order main tax", "memory_set order.tax 40", "tool tax (execute_step)", "ordered_block_step order main size", "ordered_block_step order main large",
			"bot: 200 is a lot.", "ordered_block_step order main mark", "ordered_block_step order main sub", "memory_set order.checked true", "memory_set project.orders 1", `memory_set project.first "main"`, "memory_cleared order.never",
			"ordered_block_entered order address street", "bot: Which street?", "ordered_block_asked order address street")
		expect(t, "what the tool was given", a.notesOf("all", "tool quote")[0].Data, map[string]any{"sender_id": "all", "item": "sofa", "currency": "EUR", "unset": ""})
		a.Next("all", sets(map[string]any{"street": "Elm"}), apptest.Says("It is 240. Is it right?"))
		r = a.turn(t, "all", "Elm", nil)
		tells(t, r, "user: Elm", `memory_set order.street "Elm"`, "tool set_fields", "ordered_block_completed order address", "ordered_block_step order main talk", "bot: It is 240. Is it right?")
		wantAll(t, "the prompt", system(t, a.request(t, "all", -1)), "Do this step alone", "Say what it costs.", "- price: 200")
		wantNone(t, "the prompt", system(t, a.request(t, "all", -1)), "Say goodbye")
		a.Next("all", sets(map[string]any{"right": true}))
		r = a.turn(t, "all", "yes", nil)
		tells(t, r, "user: yes", "memory_set order.right true", "tool set_fields", "ordered_block_step order main reserve", "bot: Reserve sofa?", "confirmation_requested")
		a.Next("all", yes, apptest.Says("Goodbye."), asWritten)
		r = a.turn(t, "all", "yes", nil)
		tells(t, r, "user: yes", "confirmation_resolved", "tool reserve (tool_confirmation)", "tool resolve_tool_confirmation", "bot: Reserved as R1.", "ordered_block_step order main bye", "bot: Goodbye.",
			"ordered_block_step order main done", "ordered_block_completed order main", "ordered_block_entered order last thanks", "bot: Thank you.", "ordered_block_completed order last",
			"skill_completed order", "skill_activated default_completed", "ordered_block_entered default_completed main ask_continue", "bot: "+anythingElse, "ordered_block_asked default_completed main ask_continue")
		expect(t, "tools that ran", of(a.toolNotes("all"), "tool"), []string{"tool quote", "tool tax", "tool reserve"})
		wantNone(t, "the record", inJSON(a.Events("all")), "planted-never")
	})

	t.Run("T37 a block's tools and a resumed confirmation ask no tool hook; what the model calls does", func(t *testing.T) {
		want := []string{}
		for _, part := range []struct {
			call string
			then []string
		}{{"activate", nil}, {"set_fields", []string{"tool quote", "tool tax"}}, {"set_fields", nil}, {"set_fields", nil}} {
			hooks := []string{"on_tool_call", "modify_tool_call", "on_tool_result", "modify_tool_result"}
			for _, hook := range hooks {
				want = append(want, hook+" "+part.call)
			}
			want = append(want, part.then...)
		}
		a.orders(t, "t37", "lamp", "reserve")
		expect(t, "hooks and tools", a.toolNotes("t37"), want)
		a.Next("t37", yes, apptest.Says("Bye."), asWritten)
		a.turn(t, "t37", "yes", bodies{"modify_tool_call": "if p.tool_name == 'reserve':\n    1 / 0", "modify_tool_result": "if p.tool_name == 'reserve':\n    p.value = 'planted'"})
		expect(t, "hooks and tools, confirmed", a.toolNotes("t37")[len(want):], []string{"on_tool_call resolve_tool_confirmation", "modify_tool_call resolve_tool_confirmation", "tool reserve",
			"on_tool_result resolve_tool_confirmation", "modify_tool_result resolve_tool_confirmation"})
		for _, e := range a.Of("t37", conversation.ToolExecuted) {
			if byEngine := e.Tool.Source != ""; byEngine == (e.Tool.CallID != "" || e.Tool.BatchID != "") || byEngine != slices.Contains([]string{"quote", "tax", "reserve"}, e.Tool.Name) {
				t.Errorf("recorded as %+v", e.Tool)
			}
		}
	})

	t.Run("what is known already is not asked", func(t *testing.T) {
		a.Next("known", starts("order"), sets(map[string]any{"item": "lamp", "street": "Elm"}), apptest.Says("Is it right?"))
		r := a.turn(t, "known", "a lamp to Elm", nil)
		expectLines(t, "the turn", of(story(r.Report.Events), "bot", "tool"), []string{"tool activate", "bot: Hello.", "tool quote (execute_step)", "tool tax (execute_step)", "bot: Is it right?"})
	})

	t.Run("what a step offers", func(t *testing.T) {
		a.orders(t, "offers", "lamp", "talk")
		collect, talk := a.request(t, "offers", 2), a.request(t, "offers", -1)
		expect(t, "offered at a collect", toolNames(collect), []string{"quote", "tax", "stamp", "set_fields", "activate", "cancel_skill", "cannot_help", "listen", "hangup"})
		wantAll(t, "set_fields", schema(t, collect, "set_fields"), `"item"`)
		wantNone(t, "set_fields", schema(t, collect, "set_fields"), `"street"`, `"right"`)
		wantAll(t, "set_fields at instructions", schema(t, talk, "set_fields"), `"item"`, `"street"`, `"right"`)
		a.Next("offers", finishes)
		a.turn(t, "offers", "done", nil)
		wantAll(t, "complete_skill", a.results("offers", "complete_skill")[0], "there is no tool named")
	})

	t.Run("a step waits while the user talks of something else, and asks again", func(t *testing.T) {
		a.orders(t, "digress", "", "what")
		a.Next("digress", apptest.Says("We have lamps. Which item?"))
		r := a.turn(t, "digress", "what do you have?", nil)
		tells(t, r, "user: what do you have?", "bot: We have lamps. Which item?")
		a.Next("digress", starts("hours"), apptest.Says("Nine."))
		a.turn(t, "digress", "and when?", nil)
		a.Next("digress", finishes, asWritten)
		a.turn(t, "digress", "I see", nil)
		a.Next("digress", sets(map[string]any{"wants_to_resume": true}))
		r = a.turn(t, "digress", "yes", nil)
		expectLines(t, "the turn", of(story(r.Report.Events), "skill_", "bot"), []string{"skill_completed default_continue_interrupted", "skill_resumed order", "bot: Which item?"})
		a.Next("digress", sets(map[string]any{"item": "lamp"}))
		r = a.turn(t, "digress", "a lamp", nil)
		expect(t, "heard", r.Texts, []string{"Which street?"})
	})

	t.Run("a step that waits for a confirmation stays while the user talks of something else", func(t *testing.T) {
		a.orders(t, "confirm", "lamp", "reserve")
		a.Next("confirm", starts("hours"), apptest.Says("Nine."), yes, apptest.Says("It is reserved."))
		a.turn(t, "confirm", "when?", nil)
		r := a.turn(t, "confirm", "yes, do", nil)
		expectLines(t, "the turn", of(story(r.Report.Events), "bot", "tool"), []string{"tool reserve (tool_confirmation)", "tool resolve_tool_confirmation", "bot: Reserved as R1.", "bot: It is reserved."})
		a.Next("confirm", starts("order"), apptest.Says("Bye."), asWritten)
		r = a.turn(t, "confirm", "back", nil)
		expectLines(t, "back in the block", of(story(r.Report.Events), "bot", "tool"), []string{"tool activate", "bot: Bye.", "bot: Thank you.", "bot: Shall we go back to Hours (Says when)?"})
		expect(t, "it ran", of(a.toolNotes("confirm"), "tool r"), []string{"tool reserve"})
	})

	t.Run("a step whose call is declined is passed", func(t *testing.T) {
		a.orders(t, "declined", "lamp", "reserve")
		a.Next("declined", no)
		r := a.turn(t, "declined", "no", nil)
		expectLines(t, "the turn", of(story(r.Report.Events), "bot", "tool"), []string{"tool reserve (tool_confirmation)", "tool resolve_tool_confirmation", "bot: Not reserved."})
		a.Next("declined", apptest.Says("Bye."), asWritten)
		r = a.turn(t, "declined", "well", nil)
		expect(t, "heard", r.Texts, []string{"Bye.", "Thank you.", anythingElse})
		expect(t, "it ran", of(a.toolNotes("declined"), "tool r"), []string{})
	})

	t.Run("a call that waits is dropped with its skill", func(t *testing.T) {
		a.orders(t, "dropped", "lamp", "reserve")
		a.Next("dropped", quits, asWritten, apptest.Calls(apptest.C{Name: "resolve_tool_confirmation", Args: map[string]any{"confirmed": true}}), apptest.Says("ok"))
		r := a.turn(t, "dropped", "stop", nil)
		expectLines(t, "the turn", of(story(r.Report.Events), "skill_", "conf"), []string{"skill_cancelled order", "confirmation_resolved", "skill_activated default_completed"})
		a.turn(t, "dropped", "yes", nil)
		expect(t, "it ran", of(a.toolNotes("dropped"), "tool r"), []string{})
	})

	t.Run("a tool of a step that fails is said to have, and the block goes on", func(t *testing.T) {
		a.orders(t, "fails", "", "what")
		a.Next("fails", sets(map[string]any{"item": "nothing"}))
		r := a.turn(t, "fails", "nothing", nil)
		expectLines(t, "the turn", of(story(r.Report.Events), "bot", "tool"), []string{"tool set_fields", "tool quote (execute_step) failed", "bot: No price is known.", "tool tax (execute_step)", "bot: Which street?"})
		wantNone(t, "record and log", inJSON(a.Events("fails"))+a.Log(), "planted-exception")
	})

	t.Run("a text that a tool sends does not end a step in which the model is to speak", func(t *testing.T) {
		a.orders(t, "stamp", "lamp", "reserve")
		a.Next("stamp", yes, apptest.Call("stamp", nil), apptest.Says("Goodbye."), asWritten)
		r := a.turn(t, "stamp", "yes", nil)
		expect(t, "heard", r.Texts, []string{"Reserved as R1.", "Stamped.", "Goodbye.", "Thank you.", anythingElse})
	})

	t.Run("call goes to a skill and comes back, link does not", func(t *testing.T) {
		a.Next("call", starts("gift"), starts("wrap"), apptest.Says("Nine."), finishes, apptest.Says("Done."))
		r := a.turn(t, "call", "a gift", nil)
		tells(t, r, "user: a gift", "skill_activated gift", "tool activate", "ordered_block_entered gift wrap hours", "tool activate", "skill_activated hours", "bot: Nine.")
		r = a.turn(t, "call", "I see", nil)
		tells(t, r, "user: I see", "skill_completed hours", "tool complete_skill", "ordered_block_step gift wrap given", "bot: Given.", "ordered_block_completed gift wrap", "bot: Done.")
		expect(t, "offered again", slices.Contains(a.offers(t, "call", -1), "complete_skill"), true)
		a.Next("link", starts("swap"), apptest.Says("Nine."), finishes, asWritten)
		r = a.turn(t, "link", "swap", nil)
		tells(t, r, "user: swap", "skill_activated swap", "tool activate", "ordered_block_entered swap main over", "skill_completed swap", "skill_activated hours", "bot: Nine.")
		r = a.turn(t, "link", "I see", nil)
		expectLines(t, "the turn", of(story(r.Report.Events), "skill_"), []string{"skill_completed hours", "skill_activated default_completed"})
	})

	t.Run("a step cannot overwrite what is written once", func(t *testing.T) {
		b := startPlayed(t, nil, apptest.Files{"memory.yml": "first: {type: text}\n",
			"skills/set/skill.md": "---\nname: Set\ndescription: Sets.\n---\n\n:::ordered_block id=main\nsteps:\n  - set_memory: {first: one}\n  - set_memory: {first: planted-two}\n:::\n"})
		b.Next("ann", starts("set"), asWritten)
		b.turn(t, "ann", "go", nil)
		expect(t, "memory", b.remembers("ann"), map[string]string{"project.first": `"one"`})
		wantAll(t, "the trace", b.TraceText("ann"), "a step could not write project.first: it is set already and cannot be overwritten")
		wantNone(t, "record, trace, log", inJSON(b.Events("ann"))+b.TraceText("ann")+b.Log(), "planted-two")
	})

	t.Run("T50 a rejected message leaves the step, the memory and what waits as they were", func(t *testing.T) {
		b := startPlayed(t, nil, orderFiles, playedHooks(longLimit, "modify_incoming_message", "modify_outgoing_text"))
		spam := bodies{"modify_incoming_message": "veto('no')"}
		for _, to := range []string{"what", "talk", "reserve"} {
			b.orders(t, to, "lamp", to)
			was, ran, asked := b.remembers(to), b.toolNotes(to), len(b.RequestsOf(to))
			r := b.turn(t, to, "planted-spam", spam)
			tells(t, r, "user: planted-spam (rejected)", "bot: "+incomingRejected)
			expect(t, "memory", b.remembers(to), was)
			expect(t, "tools", b.toolNotes(to), ran)
			expect(t, "requests", len(b.RequestsOf(to)), asked)
		}
		b.Next("what", sets(map[string]any{"item": "lamp"}))
		expect(t, "heard at the collect", b.turn(t, "what", "a lamp", nil).Texts, []string{"Which street?"})
		b.Next("talk", sets(map[string]any{"right": true}))
		expect(t, "heard at the instructions", b.turn(t, "talk", "right", nil).Texts, []string{"Reserve lamp?"})
		b.Next("reserve", yes, apptest.Says("Bye."), asWritten)
		expect(t, "heard at the confirmation", b.turn(t, "reserve", "yes", nil).Texts, []string{"Reserved as R1.", "Bye.", "Thank you.", anythingElse})
		wantNone(t, "the requests", b.AllRequests(), "planted-spam")
		// what the model says and a hook stops is not said: the step stays
		b.orders(t, "stopped", "lamp", "reserve")
		b.Next("stopped", yes, apptest.Says("Rude."))
		r := b.turn(t, "stopped", "yes", bodies{"modify_outgoing_text": "if p.text == 'Rude.':\n    veto('rude')"})
		expect(t, "heard", r.Texts, []string{"Reserved as R1.", "I'm sorry, but I can't give you that answer."})
		b.Next("stopped", apptest.Says("Goodbye."), asWritten)
		expect(t, "heard then", b.turn(t, "stopped", "what?", nil).Texts, []string{"Goodbye.", "Thank you.", anythingElse})
	})
}

func TestCorrection(t *testing.T) {
	t.Parallel()
	a := startPlayed(t, nil, orderFiles, playedHooks(longLimit, toolHooks...))

	t.Run("T37 a correction runs the tools again that had used the value, without tool hooks", func(t *testing.T) {
		a.orders(t, "ann", "lamp", "talk")
		before := len(a.toolNotes("ann"))
		a.Next("ann", sets(map[string]any{"item": "sofa"}), apptest.Says("Then 240."))
		r := a.turn(t, "ann", "no, a sofa", bodies{"modify_tool_call": "if p.tool_name != 'set_fields':\n    1 / 0", "modify_tool_result": "if p.tool_name != 'set_fields':\n    1 / 0"})
		tells(t, r, "user: no, a sofa", `memory_set order.item "sofa"`, "memory_set order.price 200", "tool quote (correction_replay)", "memory_set order.tax 40", "tool tax (correction_replay)",
			"tool set_fields", "bot: Then 240.")
		expect(t, "hooks and tools", a.toolNotes("ann")[before:], []string{"on_tool_call set_fields", "modify_tool_call set_fields", "tool quote", "tool tax", "on_tool_result set_fields", "modify_tool_result set_fields"})
		notes := a.notesOf("ann", "tool quote", "tool tax")
		expect(t, "what they were given", []any{notes[2].Data["item"], notes[3].Data["price"]}, []any{"sofa", 200})
		wantAll(t, "what the model reads", strings.Join(a.results("ann", "set_fields"), "\n"), "item: set to sofa", "quote was run again with the corrected value: {\"quoted\": \"sofa\"}", "tax was run again")
		for _, e := range a.Of("ann", conversation.ToolExecuted) {
			if e.Tool.Source == conversation.SourceReplay && (e.Tool.CallID != "" || e.Tool.BatchID != "" || e.Tool.Step == "") {
				t.Errorf("recorded as %+v", e.Tool)
			}
		}
	})

	t.Run("what had not used the value, or has the same, does not run again", func(t *testing.T) {
		a.orders(t, "bob", "lamp", "talk")
		a.Next("bob", sets(map[string]any{"street": "Oak", "item": "lamp"}))
		a.turn(t, "bob", "Oak, and a lamp", nil)
		expect(t, "tools", of(a.toolNotes("bob"), "tool"), []string{"tool quote", "tool tax"})
	})

	t.Run("a tool that asks first does not run again by itself", func(t *testing.T) {
		a.orders(t, "cyd", "lamp", "reserve")
		a.Next("cyd", yes, sets(map[string]any{"item": "sofa"}), apptest.Says("Bye."), asWritten)
		a.turn(t, "cyd", "yes, but a sofa", nil)
		expect(t, "tools", of(a.toolNotes("cyd"), "tool"), []string{"tool quote", "tool tax", "tool reserve", "tool quote", "tool tax"})
		wantAll(t, "the trace", a.TraceText("cyd"), "its tool reserve is not run again by itself")
	})
}

func TestBlocksInACircle(t *testing.T) {
	t.Parallel()
	circle := func(step string) string {
		return "---\nname: Circle\ndescription: Goes round.\n---\n\n:::ordered_block id=main\nsteps:\n  - id: begin\n    noop: true\n    next:\n      - if: session.project.on != true\n        then: work\n      - else: END\n  - id: work\n" + step + "    next: begin\n:::\n"
	}
	a := startPlayed(t, nil, apptest.Files{
		"memory.yml":                "on: {type: bool}\ncount: {type: number, mutable: true}\n",
		"skills/says/skill.md":      circle("    action: utter_round\n"),
		"skills/runs/skill.md":      strings.Replace(circle("    execute_tool: count\n"), "description", "import_tools: [count]\ndescription", 1),
		"skills/sets/skill.md":      circle("    set_memory: {count: 1}\n"),
		"skills/hours/skill.md":     "---\nname: Hours\ndescription: Says when.\n---\n\nSay nine.\n",
		"skills/recurring/skill.md": "---\nname: Recurring\ndescription: Calls itself.\n---\n\nGo to @block.one.\n\n:::ordered_block id=one\nsteps:\n  - id: on\n    link: two\n:::\n\n:::ordered_block id=two\nsteps:\n  - id: choose\n    noop: true\n    next:\n      - if: session.project.on\n        then: END\n      - else: back\n  - id: back\n    link: one\n:::\n",
		"responses.yml":             "responses:\n  utter_round: [Round.]\n",
		"tools/count.py":            "from __future__ import annotations\n\nfrom belay.tools import ToolContext, ToolResult, tool\nfrom lib.probe import note\n\n\n@tool(description=\"Counts.\")\nasync def count(context: ToolContext) -> ToolResult:\n    note(\"tool count\", sender_id=context.sender_id)\n    return ToolResult(llm_response={})\n",
	})
	for _, c := range []struct{ name, at string }{{"says", "says/main/"}, {"runs", "runs/main/"}, {"sets", "sets/main/"}, {"recurring", "recurring/"}} {
		t.Run("a block in a circle ends: "+c.name, func(t *testing.T) {
			a.Next(c.name, starts(c.name))
			if c.name == "recurring" {
				a.Next(c.name, starts("one"))
			}
			a.Next(c.name, apptest.Says("Where were we?"))
			r := a.turn(t, c.name, "go", nil)
			if n := len(r.Texts); n < 2 || n > 20 || r.Texts[n-2] != somethingWrong || r.Texts[n-1] != "Where were we?" {
				t.Errorf("the user heard %d texts: %q", n, r.Texts)
			}
			if n := len(a.toolNotes(c.name)); n > 20 {
				t.Errorf("the tool ran %d times", n)
			}
			wantAll(t, "the log", a.Log(), "runs in a circle", "at="+c.at)
			wantAll(t, "the trace", a.TraceText(c.name), "runs in a circle", c.at)
			a.Next(c.name, starts("hours"), apptest.Says("Nine."))
			expect(t, "heard then", a.turn(t, c.name, "open?", nil).Texts, []string{"Nine."})
		})
	}
	t.Run("a long block is no circle", func(t *testing.T) {
		var steps strings.Builder
		for i := range 300 {
			steps.WriteString("  - set_memory: {count: " + inJSON(i) + "}\n")
		}
		b := startPlayed(t, nil, apptest.Files{"memory.yml": "count: {type: number, mutable: true}\n",
			"skills/long/skill.md": "---\nname: Long\ndescription: Is long.\n---\n\n:::ordered_block id=main\nsteps:\n" + steps.String() + ":::\n"})
		b.Next("ann", starts("long"), asWritten)
		expect(t, "heard", b.turn(t, "ann", "go", nil).Texts, []string{anythingElse})
		expect(t, "memory", b.remembers("ann")["project.count"], "299")
	})
}
