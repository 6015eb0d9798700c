package tests

import (
	"maps"
	"testing"

	"github.com/belay-run/belay/internal/app"
	"github.com/belay-run/belay/internal/app/apptest"
	"github.com/belay-run/belay/internal/rawjson"
)

// shopSkills are an agent whose skills do all that skills do; its tools go through
// lib/shop.py.
var shopSkills = apptest.Files{
	"memory.yml": "customer: {type: text}\nround: {type: number, mutable: true}\n",
	"responses.yml": `responses:
  utter_hello: [{text: "Hello, {customer}.", metadata: {rephrase: true}}]
  utter_order: [Let us order.]
  utter_ask_item: [{text: Which item?, metadata: {rephrase: true}}]
  utter_ask_pay: [{text: "Pay {price}?", metadata: {rephrase: true}}]
  utter_paid: ["Paid, {done}."]
  utter_no_pay: [Not paid.]
  utter_dear: ["{price} is dear."]
  utter_round: [Round.]
`,
	"lib/shop.py": `from lib.played import gate
from lib.probe import note


async def use(name, context, sets=None, **arguments):
    note("tool " + name, sender_id=context.sender_id)
    if "slow" in arguments.values():
        await gate("never")
    for key, value in (sets or {}).items():
        context.memory.set(key, value)
    return {"done": name, "heard": len(context.events), **arguments}
`,
	"skills/default_session_start/skill.md": "---\nname: Begin\nimport_tools: [load]\n---\n\n:::ordered_block id=main\nsteps:\n  - execute_tool: load\n  - action: utter_hello\n:::\n",
	"tools/load.py": `from __future__ import annotations

from belay.tools import ToolContext, ToolResult, tool
from lib.shop import use


@tool(description="Loads.")
async def load(context: ToolContext) -> ToolResult:
    return ToolResult(llm_response=await use("load", context, {"customer": "Ada"}))
`,
	"skills/order/skill.md": `---
name: Order
description: Orders something.
tool_constraints:
  - pay:
      requires: session.order.price
      requires_confirmation: {enabled: true, utter_for_confirmation: utter_ask_pay, utter_on_user_denial: utter_no_pay}
      on_success: utter_paid
utter:
  - utter_order: {on: activate}
  - utter_dear: {when: session.order.price > 100}
complete_when: session.order.paid
---

Order something: @block.collect, then @tool.pay.

:::ordered_block id=collect
steps:
  - id: item
    collect: item
    utterance: utter_ask_item
  - id: quote
    execute_tool: quote
    parameters: {item: session.order.item}
  - id: size
    noop: true
    next:
      - if: session.order.price > 100
        then: talk
      - else: END
  - id: talk
    instructions: Ask whether it is right.
    complete_when: session.order.right
:::
`,
	"skills/order/memory.yml": "schema:\n  public:\n    item: {type: text, llm_settable: true}\n    right: {type: bool, llm_settable: true}\n    price: {type: number}\n    paid: {type: bool}\n",
	"skills/order/tools.py": `from __future__ import annotations

from belay.tools import ToolContext, ToolResult, tool
from lib.shop import use


@tool(description="Looks at the item.")
async def validate_item(item: str, context: ToolContext) -> ToolResult:
    return ToolResult(llm_response=await use("validate_item", context))


@tool(description="Quotes.", timeout=60)
async def quote(item: str, context: ToolContext) -> ToolResult:
    await context.send("Looking for it.")
    return ToolResult(llm_response=await use("quote", context, {"price": 20 if item == "lamp" else 200}, item=item))


@tool(description="Pays.")
async def pay(context: ToolContext) -> ToolResult:
    return ToolResult(llm_response=await use("pay", context, {"paid": True}))
`,
	"skills/hours/skill.md":            "---\nname: Hours\ndescription: Says when.\n---\n\nSay nine.\n",
	"skills/hours/references/hours.md": "# Hours\n\nWe open at nine.\n",
	"skills/circle/skill.md":           "---\nname: Circle\ndescription: Goes round.\n---\n\n:::ordered_block id=main\nsteps:\n  - id: begin\n    noop: true\n    next:\n      - if: session.project.round\n        then: END\n      - else: work\n  - id: work\n    action: utter_round\n    next: begin\n:::\n",
}

func shopTurns() []filmedTurn {
	busy := bodies{
		"modify_incoming_message":  "p.text += ' [incoming]'",
		"modify_model_request":     "p.messages.append({'role': 'system', 'content': '[request]'})\np.model_settings = {'seed': 7}",
		"modify_model_response":    "if p.text == 'draft':\n    retry('be polite')\nif p.text:\n    p.text += ' [response]'",
		"modify_tool_call":         "if p.tool_name == 'set_fields' and p.arguments.get('item') == 'couch':\n    p.arguments = {'item': 'desk'}",
		"modify_tool_result":       "p.value = p.value + ' [result]' if p.tool_name != 'pay' else p.value",
		"modify_knowledge_results": "p.passages.append({'text': '[passage]', 'scope': 'hours'})",
		"modify_outgoing_text":     "p.text += ' [outgoing]'",
	}
	item := func(name string) apptest.Answer { return sets(map[string]any{"item": name}) }
	word := apptest.Says("in other words")
	return []filmedTurn{
		{name: "the agent speaks first", text: "/session_start", does: bodies{"modify_outgoing_text": busy["modify_outgoing_text"]}, answers: []apptest.Answer{word}, status: "completed"},
		{name: "a skill, a block, a question", text: "order", does: busy, answers: []apptest.Answer{starts("order"), apptest.Says("none"), starts("collect"), word}, status: "completed"},
		{name: "rejected in a block", text: "spam", does: bodies{"modify_incoming_message": "veto('spam')"}, status: "completed"},
		{name: "the incoming hook fails in a block", text: "hello", does: bodies{"modify_incoming_message": "1 / 0"}, status: "error"},
		{name: "a value that does not fit, then one that does", text: "a sofa", does: busy, answers: []apptest.Answer{sets(map[string]any{"item": []int{1}}), item("sofa"), apptest.Says("draft"), apptest.Says("Right?")}, status: "completed"},
		{name: "a correction, and a skill between", text: "no, a couch; when?", does: busy, answers: []apptest.Answer{item("couch"), starts("hours"), searches("open"), apptest.Says("At nine.")}, status: "completed"},
		{name: "back to what was interrupted", text: "thanks", does: busy, answers: []apptest.Answer{finishes, word}, status: "completed"},
		{name: "yes", text: "yes", does: busy, answers: []apptest.Answer{sets(map[string]any{"wants_to_resume": true}), apptest.Says("Right?")}, status: "completed"},
		{name: "a confirmation", text: "right", does: busy, answers: []apptest.Answer{sets(map[string]any{"right": true}), apptest.Call("pay", nil), word}, status: "completed"},
		{name: "declined", text: "no", does: busy, answers: []apptest.Answer{no}, status: "completed"},
		{name: "asked again, and cancelled in the question", text: "pay", does: bodies{"modify_outgoing_text": "note('stop now', sender_id=p.sender_id)\nawait gate('never')"},
			answers: []apptest.Answer{apptest.Call("pay", nil), word}, until: "stop now", status: "cancelled"},
		{name: "resolved, done, and anything else", text: "yes", does: busy, answers: []apptest.Answer{yes, apptest.Says("It is done."), word}, status: "completed"},
		{name: "another, that cannot be helped", text: "sing", does: busy, answers: []apptest.Answer{apptest.Call("cannot_help", map[string]any{"in_domain": true}), word}, status: "completed"},
		{name: "filled in, and cancelled in a tool", text: "order", answers: []apptest.Answer{starts("order"), item("slow"), starts("collect")}, until: "tool quote", status: "cancelled"},
		{name: "the block goes on", text: "well?", does: busy, answers: []apptest.Answer{apptest.Says("Hm.")}, status: "completed"},
		{name: "the skill is cancelled", text: "stop", does: busy, answers: []apptest.Answer{quits, word}, status: "completed"},
		{name: "a circle", text: "round", does: busy, answers: []apptest.Answer{starts("circle"), apptest.Says("Where were we?")}, status: "completed"},
		{name: "the session ends", text: "bye", answers: []apptest.Answer{apptest.SaysAndCalls("Goodbye.", apptest.C{Name: "hangup"})}, status: "completed"},
		{name: "and another begins", text: "hello", does: busy, answers: []apptest.Answer{word, apptest.Says("yes?")}, status: "completed"},
	}
}

func TestSkillsRunAgain(t *testing.T) {
	t.Parallel()
	var stop func()
	c, p := &camera{}, &projector{}
	hooks := playedHooks(longLimit, everyHook()...)
	a := startPlayed(t, []func(*app.Config){c.films}, shopSkills, hooks)
	turns := shopTurns()
	takes := film(t, a, c, turns, &stop)

	t.Run("all that skills do was done", func(t *testing.T) {
		seen := map[string]bool{}
		for _, kind := range a.Kinds("ann") {
			seen[kind] = true
		}
		for _, kind := range []string{"memory_set", "skill_activated", "skill_completed", "skill_cancelled", "skill_interrupted", "skill_resumed", "ordered_block_entered", "ordered_block_step",
			"ordered_block_asked", "ordered_block_completed", "confirmation_requested", "confirmation_resolved", "unsupported_request_classified", "session_ended"} {
			if !seen[kind] {
				t.Errorf("the record has no %s", kind)
			}
		}
		sources := map[string]bool{}
		for _, e := range a.Of("ann", "tool_executed") {
			sources[e.Tool.Source] = true
		}
		for _, source := range []string{"", "tool_confirmation", "execute_step", "correction_replay", "memory_validation"} {
			if !sources[source] {
				t.Errorf("no tool ran as %q", source)
			}
		}
	})

	still := maps.Clone(shopSkills)
	maps.Copy(still, hooks)
	maps.Copy(still, apptest.Files{"lib/shop.py": deaf["lib/shop.py"], "lib/played.py": deaf["lib/played.py"]})
	b := startPlayed(t, []func(*app.Config){p.shows}, still)
	for i, take := range takes {
		t.Run("a turn with skills run again on its answers: "+turns[i].name, func(t *testing.T) {
			r, err := p.again(b, take)
			if err != nil {
				t.Fatal(err)
			}
			expectLines(t, "the states", p.states, take.states)
			expect(t, "the record", string(rawjson.Must(b.Events("ann"))), take.events)
			expect(t, "sent", r.Texts, take.reply.Texts)
			expect(t, "the turn", outcome(r), outcome(take.reply))
			if p.asked != p.kept || len(p.journals) != 0 {
				t.Errorf("%d of %d answers were asked for", p.asked, p.kept)
			}
		})
	}
	t.Run("running again asks nobody", func(t *testing.T) {
		expect(t, "hooks, tools and models", len(b.Notes())+len(b.Requests()), 0)
	})
}
