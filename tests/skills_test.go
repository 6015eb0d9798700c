package tests

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/belay-run/belay/internal/app/apptest"
)

// tripFiles are an agent with skills in prose.
var tripFiles = apptest.Files{
	"memory.yml": "name: {type: text}\ncity: {type: text, mutable: true}\n",
	"skills/trip/skill.md": `---
name: Plan a trip
description: >
  Plans a trip.
import_tools: [weather, measure]
utter:
  - utter_trip_began: {on: activate}
  - utter_far: {when: session.trip.km > 1000}
complete_when: session.trip.planned
---

Plan the trip. First @skill.login.

if: session.trip.km > 1000
It is far: for @memory.project.name, who is planted-guard.

if: not session.trip.km
Call @tool.measure.
`,
	"skills/trip/memory.yml": "schema:\n  public:\n    km: {type: number}\n    planned: {type: bool}\n",
	"skills/trip/responses.yml": `responses:
  utter_trip_began: [Let us plan.]
  utter_far: ["It is {km} km."]
`,
	"skills/trip/tools.py": `from __future__ import annotations

from belay.tools import ToolContext, ToolResult, tool
from lib.probe import note


@tool(description="Measures the way.")
async def measure(context: ToolContext, km: float) -> ToolResult:
    note("tool measure", sender_id=context.sender_id)
    context.memory.set("km", km)
    return ToolResult(llm_response={"km": km})


@tool(description="Finishes the plan.")
async def finish(context: ToolContext) -> ToolResult:
    context.memory.set("planned", True)
    return ToolResult(llm_response={"plan": "done"})
`,
	"skills/login/skill.md":  "---\nname: Log in\ndescription: Finds out who it is.\nrouting: {engine_managed: true}\ncomplete_when: session.project.name\n---\n\nAsk for the name.\n",
	"skills/login/tools.py":  "from __future__ import annotations\n\nfrom belay.tools import ToolContext, ToolResult, tool\n\n\n@tool(description=\"Signs in.\")\nasync def sign_in(context: ToolContext, name: str) -> ToolResult:\n    context.memory.set(\"name\", name)\n    return ToolResult(llm_response={\"in\": True})\n",
	"skills/hours/skill.md":  "---\nname: Opening hours\ndescription: Says when we are open.\n---\n\nSay that it is nine to five. Only @memory.project.name may know, and @memory.project.city.\n",
	"skills/closed/skill.md": "---\nname: Closed\ndescription: Only for those who are known.\nrequires: session.project.name\n---\n\nSay hello.\n",
	"tools/shared.py": `from __future__ import annotations

from belay.tools import ToolContext, ToolResult, tool
from lib.probe import note


@tool(description="Looks at the sky.")
async def weather(context: ToolContext) -> ToolResult:
    context.memory.set("city", "Ghent")
    return ToolResult(llm_response={"sky": "blue"})


@tool(description="Is shared and not the skill's own.")
async def measure(context: ToolContext, km: float) -> ToolResult:
    note("tool shared measure", sender_id=context.sender_id)
    return ToolResult(llm_response={})
`,
}

const anythingElse = "Is there anything else I can do for you?"

func TestSkills(t *testing.T) {
	t.Parallel()
	a := startPlayed(t, nil, tripFiles)

	t.Run("without an active skill the model chooses one", func(t *testing.T) {
		a.Next("choose", apptest.Says("hello"))
		a.turn(t, "choose", "hi", nil)
		r := a.request(t, "choose", 0)
		expect(t, "offered", toolNames(r), []string{"activate", "cannot_help", "listen", "hangup"})
		wantAll(t, "what can be activated", schema(t, r, "activate"), `"hours"`, `"trip"`)
		wantNone(t, "what can be activated", schema(t, r, "activate"), "login", "closed", "default_")
		wantAll(t, "the prompt", system(t, r), "- trip: Plans a trip.", "- hours: Says when we are open.")
		wantNone(t, "the prompt", system(t, r), "Plan the trip", "nine to five")
	})

	t.Run("an active skill has its texts, its tools and the prompt for itself", func(t *testing.T) {
		a.Next("active", starts("trip"), apptest.Call("measure", map[string]any{"km": 20}), apptest.Call("measure", map[string]any{"km": 2000}),
			apptest.Call("measure", map[string]any{"km": 3000}), apptest.Says("done"))
		r := a.turn(t, "active", "plan", nil)
		tells(t, r, "user: plan", "skill_activated trip", "tool activate", "bot: Let us plan.", "memory_set trip.km 20", "tool measure",
			"memory_set trip.km 2000", "tool measure", "bot: It is 2000 km.", "memory_set trip.km 3000", "tool measure", "bot: done")
		expect(t, "offered", a.offers(t, "active", 1), []string{"measure", "finish", "weather", "activate", "complete_skill", "cancel_skill", "cannot_help", "listen", "hangup"})
		wantAll(t, "what can be activated", schema(t, a.request(t, "active", 1), "activate"), `"hours"`, `"login"`)
		wantNone(t, "what can be activated", schema(t, a.request(t, "active", 1), "activate"), `"trip"`)
		at := func(i int) string { return system(t, a.request(t, "active", i)) }
		wantAll(t, "the prompt", at(1), "Plan the trip. First @skill.login.", "Call @tool.measure.")
		wantNone(t, "the prompt", at(1), "planted-guard", "nine to five")
		wantAll(t, "the prompt, later", at(3), "It is far: for @memory.project.name, who is planted-guard.", "- km: 2000")
		wantNone(t, "the prompt, later", at(3), "Call @tool.measure.")
		wantSame(t, "what ran", a.toolNotes("active"), []string{"tool measure", "tool measure", "tool measure"}) // its own, not the shared one
	})

	t.Run("a skill that the prose names returns to it, and the parent goes on", func(t *testing.T) {
		a.Next("parent", starts("trip"), starts("login"), apptest.Says("Who are you?"))
		a.turn(t, "parent", "plan", nil)
		expect(t, "offered", a.offers(t, "parent", -1), []string{"sign_in", "activate", "complete_skill", "cancel_skill", "cannot_help", "listen", "hangup"})
		wantNone(t, "the prompt", system(t, a.request(t, "parent", -1)), "Plan the trip")
		a.Next("parent", apptest.Call("sign_in", map[string]any{"name": "Ada"}), apptest.Says("Welcome, Ada."))
		r := a.turn(t, "parent", "Ada", nil)
		tells(t, r, "user: Ada", "memory_set project.name \"Ada\"", "tool sign_in", "bot: Welcome, Ada.", "skill_completed login")
		a.Next("parent", apptest.Call("measure", map[string]any{"km": 2000}), apptest.Says("Far."))
		a.turn(t, "parent", "go on", nil)
		wantAll(t, "the prompt", system(t, a.request(t, "parent", -1)), "It is far: for Ada, who is planted-guard.")
	})

	t.Run("complete_skill and cancel_skill give the turn back to the parent", func(t *testing.T) {
		for name, ends := range map[string]apptest.Answer{"completed": finishes, "cancelled": quits} {
			sender := "parent " + name
			a.Next(sender, starts("trip"), starts("login"), ends, apptest.Says("Let us go on."))
			r := a.turn(t, sender, "plan", nil)
			expectLines(t, name, of(story(r.Report.Events), "skill_", "bot"), []string{"skill_activated trip", "bot: Let us plan.", "skill_activated login",
				"skill_" + name + " login", "bot: Let us go on."})
			wantAll(t, "the prompt", system(t, a.request(t, sender, -1)), "Plan the trip.")
		}
	})

	t.Run("a skill that was interrupted is offered again", func(t *testing.T) {
		for _, answer := range []bool{true, false} {
			sender := "interrupted " + inJSON(answer)
			a.Next(sender, starts("trip"), apptest.Call("measure", map[string]any{"km": 5}), apptest.Says("Five."))
			a.turn(t, sender, "plan", nil)
			a.Next(sender, starts("hours"), apptest.Says("Nine to five."))
			r := a.turn(t, sender, "when are you open?", nil)
			tells(t, r, "user: when are you open?", "skill_interrupted trip", "skill_activated hours", "tool activate", "bot: Nine to five.")
			a.Next(sender, finishes, asWritten)
			r = a.turn(t, sender, "thanks", nil)
			question := "bot: Shall we go back to Plan a trip (Plans a trip)?"
			tells(t, r, "user: thanks", "skill_completed hours", "tool complete_skill", "skill_activated default_continue_interrupted",
				`memory_set default_continue_interrupted.interrupted_task_name "Plan a trip (Plans a trip)"`,
				"ordered_block_entered default_continue_interrupted main ask_resume", question, "ordered_block_asked default_continue_interrupted main ask_resume")
			expect(t, "the turn", []string{r.Report.Why, r.Report.Status}, []string{"waiting", "completed"})
			a.Next(sender, sets(map[string]any{"wants_to_resume": answer}), apptest.Says("Very well."))
			r = a.turn(t, sender, "well", nil)
			after := map[bool]string{true: "skill_resumed trip", false: "skill_cancelled trip"}[answer]
			expectLines(t, "after the answer", of(story(r.Report.Events), "skill_", "bot"), []string{"skill_completed default_continue_interrupted", after, "bot: Very well."})
			prompt := system(t, a.request(t, sender, -1))
			if answer {
				wantAll(t, "the prompt", prompt, "Plan the trip.", "- km: 5")
			} else {
				wantAll(t, "the prompt", prompt, "No skill is active.")
			}
		}
	})

	t.Run("a skill on behalf of another is offered again too, and its parent goes on after it", func(t *testing.T) {
		a.Next("child", starts("trip"), starts("login"), apptest.Says("Who are you?"))
		a.turn(t, "child", "plan", nil)
		a.Next("child", starts("hours"), apptest.SaysAndCalls("Nine to five.", apptest.C{Name: "complete_skill"}), asWritten)
		r := a.turn(t, "child", "open?", nil)
		expectLines(t, "the question", of(story(r.Report.Events), "skill_", "bot"), []string{"skill_interrupted login", "skill_activated hours", "bot: Nine to five.", "skill_completed hours",
			"skill_activated default_continue_interrupted", "bot: Shall we go back to Log in (Finds out who it is)?"})
		a.Next("child", sets(map[string]any{"wants_to_resume": true}), apptest.Call("sign_in", map[string]any{"name": "Ada"}), apptest.Says("Welcome, Ada."))
		r = a.turn(t, "child", "yes, I am Ada", nil)
		expectLines(t, "the turn", of(story(r.Report.Events), "skill_", "bot"), []string{"skill_completed default_continue_interrupted", "skill_resumed login", "bot: Welcome, Ada.", "skill_completed login"})
		a.Next("child", apptest.Says("Where to?"))
		a.turn(t, "child", "go on", nil)
		wantAll(t, "the prompt", system(t, a.request(t, "child", -1)), "Plan the trip.")
	})

	t.Run("who goes back to what was interrupted goes on where they were", func(t *testing.T) {
		a.Next("back", starts("trip"), apptest.Call("measure", map[string]any{"km": 5}), apptest.Says("Five."))
		a.turn(t, "back", "plan", nil)
		a.Next("back", starts("hours"), apptest.Says("Nine to five."))
		a.turn(t, "back", "open?", nil)
		a.Next("back", starts("trip"), apptest.Says("So, five."))
		r := a.turn(t, "back", "to the trip", nil)
		tells(t, r, "user: to the trip", "skill_interrupted hours", "skill_resumed trip", "tool activate", "bot: So, five.")
		wantAll(t, "the prompt", system(t, a.request(t, "back", -1)), "Plan the trip.", "- km: 5")
	})

	t.Run("complete_when ends a skill after the model has spoken", func(t *testing.T) {
		a.Next("when", starts("trip"), apptest.Call("finish", nil), apptest.Says("The plan is made."), asWritten)
		r := a.turn(t, "when", "plan", nil)
		expectLines(t, "the turn", of(story(r.Report.Events), "skill_", "bot", "tool"), []string{"skill_activated trip", "tool activate", "bot: Let us plan.", "tool finish",
			"bot: The plan is made.", "skill_completed trip", "skill_activated default_completed", "bot: " + anythingElse})
		expect(t, "requests", len(a.RequestsOf("when")), 4) // the last to reword the question
		a.Next("when", sets(map[string]any{"wants_to_continue": false}), apptest.Says("Goodbye."))
		r = a.turn(t, "when", "no", nil)
		tells(t, r, "user: no", "memory_set default_completed.wants_to_continue false", "tool set_fields",
			"ordered_block_completed default_completed main", "skill_completed default_completed", "bot: Goodbye.")
	})

	t.Run("a message is answered before a skill ends of which the user has not heard", func(t *testing.T) {
		a.Next("unheard", starts("trip"), apptest.Call("finish", nil), apptest.Fails(500))
		r := a.turn(t, "unheard", "plan", nil)
		expect(t, "status", r.Report.Status, "error")
		a.Next("unheard", apptest.Says("The plan is made."), asWritten)
		r = a.turn(t, "unheard", "and?", nil)
		expectLines(t, "the turn", of(story(r.Report.Events), "skill_", "bot"), []string{"bot: The plan is made.", "skill_completed trip", "skill_activated default_completed", "bot: " + anythingElse})
	})

	t.Run("complete_skill asks at once, and the next skill takes the question's place", func(t *testing.T) {
		a.Next("ends", starts("hours"), apptest.SaysAndCalls("Nine to five.", apptest.C{Name: "complete_skill"}), asWritten)
		r := a.turn(t, "ends", "open?", nil)
		tells(t, r, "user: open?", "skill_activated hours", "tool activate", "bot: Nine to five.", "skill_completed hours", "skill_activated default_completed", "tool complete_skill",
			"ordered_block_entered default_completed main ask_continue", "bot: "+anythingElse, "ordered_block_asked default_completed main ask_continue")
		expect(t, "requests", len(a.RequestsOf("ends")), 3)
		a.Next("ends", apptest.Calls(apptest.C{Name: "set_fields", Args: map[string]any{"wants_to_continue": true}}, apptest.C{Name: "activate", Args: map[string]any{"target_id": "trip"}}), apptest.Says("Where?"))
		r = a.turn(t, "ends", "yes, a trip", nil)
		tells(t, r, "user: yes, a trip", "memory_set default_completed.wants_to_continue true", "tool set_fields", "skill_cancelled default_completed", "skill_activated trip", "tool activate",
			"bot: Let us plan.", "bot: Where?")
	})

	t.Run("a request that no skill can help with is declined, and what was under way goes on", func(t *testing.T) {
		for _, c := range []struct {
			in          bool
			label, text string
		}{{true, "in_domain_out_of_scope", "I'm sorry, that is something I can't help with here."}, {false, "out_of_domain", "I'm sorry, that lies outside what I can help with."}} {
			handler, declined := "default_unsupported_request_handler", []string{}
			help := apptest.Call("cannot_help", map[string]any{"in_domain": c.in})
			declined = append(declined, "unsupported_request_classified "+c.label, "skill_activated "+handler, "memory_set "+handler+".request_type "+inJSON(c.label), "tool cannot_help",
				"ordered_block_entered "+handler+" main gate_request_type")
			step := map[bool]string{true: "decline_in_domain", false: "decline_out_of_domain"}[c.in]
			declined = append(declined, "ordered_block_step "+handler+" main "+step, "bot: "+c.text, "ordered_block_completed "+handler+" main", "skill_completed "+handler)

			a.Next("help "+c.label, help, asWritten)
			r := a.turn(t, "help "+c.label, "sing", nil)
			tells(t, r, append([]string{"user: sing"}, declined...)...)

			sender := "help within " + c.label
			a.Next(sender, starts("hours"), apptest.Says("Nine to five."))
			a.turn(t, sender, "open?", nil)
			a.Next(sender, help, asWritten, apptest.Says("So, nine to five."))
			r = a.turn(t, sender, "sing", nil)
			tells(t, r, slices.Concat([]string{"user: sing", "skill_interrupted hours"}, declined, []string{"skill_resumed hours", "bot: So, nine to five."})...)
		}
	})

	t.Run("what cannot be activated or ended is refused", func(t *testing.T) {
		for target, why := range map[string]string{"nobody": "nothing to activate", "login": "nothing to activate", "closed": "nothing to activate", "": "must be the id", "default_completed": "nothing to activate"} {
			sender := "refused " + target
			a.Next(sender, starts(target), apptest.Says("ok"))
			r := a.turn(t, sender, "go", nil)
			tells(t, r, "user: go", "tool activate failed", "bot: ok")
			wantAll(t, target, a.results(sender, "activate")[0], why)
		}
		a.Next("refused again", starts("hours"), starts("hours"), apptest.Says("ok"))
		a.turn(t, "refused again", "go", nil)
		wantAll(t, "the result", strings.Join(a.results("refused again", "activate"), "\n"), "activate: done", "active already")
		for _, name := range []string{"complete_skill", "cancel_skill", "measure", "set_fields"} { // none of them is offered
			sender := "refused " + name
			a.Next(sender, apptest.Call(name, map[string]any{"km": 5}), apptest.Says("ok"))
			a.turn(t, sender, "go", nil)
			wantAll(t, name, a.results(sender, name)[0], "there is no tool named")
		}
		wantSame(t, "what ran", a.toolNotes("refused measure"), []string{})
	})

	t.Run("a skill's tool has the skill's memory, a shared one the project's", func(t *testing.T) {
		a.Next("memory", starts("trip"), apptest.Call("weather", nil), apptest.Says("blue"), starts("hours"), apptest.Says("nine"))
		a.turn(t, "memory", "go", nil)
		a.turn(t, "memory", "open?", nil)
		expect(t, "memory", a.remembers("memory"), map[string]string{"project.city": `"Ghent"`})
		wantAll(t, "another skill's prompt", system(t, a.request(t, "memory", -1)), "Only @memory.project.name may know, and Ghent.")
	})
}

func TestTwoConversationsWithSkills(t *testing.T) {
	t.Parallel()
	a := startPlayed(t, nil, tripFiles)
	t.Run("two conversations at once do not mix", func(t *testing.T) {
		asked, gate := make(chan struct{}, 1), make(chan struct{})
		a.Next("ann", starts("trip"), apptest.Call("measure", map[string]any{"km": 2000}), reached(asked, gate, apptest.Call("finish", nil)), apptest.Says("ann's"), asWritten)
		ann := a.send(t.Context(), played("ann", "plan", nil))
		awaited(t, asked)
		a.Next("bob", starts("hours"), apptest.Says("bob's"))
		r := a.turn(t, "bob", "open?", nil)
		tells(t, r, "user: open?", "skill_activated hours", "tool activate", "bot: bob's")
		close(gate)
		got := awaited(t, ann)
		if got.err != nil {
			t.Fatal(got.err)
		}
		expectLines(t, "ann's turn", of(story(got.Report.Events), "skill_", "bot"), []string{"skill_activated trip", "bot: Let us plan.", "bot: It is 2000 km.", "bot: ann's",
			"skill_completed trip", "skill_activated default_completed", "bot: " + anythingElse})
		a.Next("bob", finishes, asWritten)
		r = a.turn(t, "bob", "thanks", nil)
		expectLines(t, "bob's turn", of(story(r.Report.Events), "skill_"), []string{"skill_completed hours", "skill_activated default_completed"})
		expect(t, "bob's memory", a.remembers("bob"), map[string]string{})
	})
}

func TestSkillsAfterARestart(t *testing.T) {
	t.Parallel()
	dir := apptest.Folder(t, tripFiles)
	before := playedAgent{apptest.StartIn(t, dir)}
	before.Next("ada", starts("trip"), starts("login"), apptest.Call("sign_in", map[string]any{"name": "Ada"}), apptest.Says("Welcome."), apptest.Call("measure", map[string]any{"km": 2000}), apptest.Says("Far."),
		starts("hours"), apptest.Says("Nine to five."))
	for _, text := range []string{"plan", "go on", "open?"} {
		before.turn(t, "ada", text, nil)
	}
	was := before.remembers("ada")
	before.Close()
	a := playedAgent{apptest.StartIn(t, dir)}
	t.Run("the state survives a restart", func(t *testing.T) {
		a.Next("ada", finishes, asWritten)
		r := a.turn(t, "ada", "thanks", nil)
		expectLines(t, "the turn", of(story(r.Report.Events), "skill_", "bot"), []string{"skill_completed hours", "skill_activated default_continue_interrupted", "bot: Shall we go back to Plan a trip (Plans a trip)?"})
		a.Next("ada", sets(map[string]any{"wants_to_resume": true}), apptest.Says("Well then."))
		a.turn(t, "ada", "yes", nil)
		wantAll(t, "the prompt", system(t, a.request(t, "ada", -1)), "It is far: for Ada", "- km: 2000")
		now := a.remembers("ada")
		for name, value := range was {
			expect(t, name, now[name], value)
		}
		if r := a.Of("ada", "bot"); len(of(story(r), "bot: It is 2000", "bot: Let us plan")) != 2 { // each once
			t.Errorf("the user heard %v", story(r))
		}
	})
}

func TestSessionStart(t *testing.T) {
	t.Parallel()
	files := apptest.Files{
		"memory.yml": "name: {type: text}\n",
		"skills/default_session_start/skill.md": `---
name: Session start
import_tools: [load]
---

:::ordered_block id=main
steps:
  - id: load
    execute_tool: load
  - id: greet
    action: utter_greet
:::
`,
		"skills/default_session_start/responses.yml": "responses:\n  utter_greet: [\"Hello, {name}.\"]\n",
		"skills/hours/skill.md":                      "---\nname: Hours\ndescription: Says when.\n---\n\nSay nine.\n",
		"tools/load.py": `from __future__ import annotations

from belay.tools import ToolContext, ToolResult, tool
from lib.played import gate
from lib.probe import note


@tool(description="Loads.", timeout=60)
async def load(context: ToolContext) -> ToolResult:
    note("tool load", sender_id=context.sender_id)
    if context.sender_id == "slow":
        await gate("never")
    context.memory.set("name", "Ada")
    return ToolResult(llm_response={"said": [e.text for e in context.events]})
`,
	}
	a := startPlayed(t, nil, files, playedHooks(longLimit, "modify_incoming_message", "modify_outgoing_text", "modify_tool_call", "modify_tool_result"))
	begun := []string{"skill_activated default_session_start", "ordered_block_entered default_session_start main load", `memory_set project.name "Ada"`, "tool load (execute_step)",
		"ordered_block_step default_session_start main greet", "bot: Hello, Ada.", "ordered_block_completed default_session_start main", "skill_completed default_session_start"}

	t.Run("the first message opens the session and is answered then", func(t *testing.T) {
		a.Next("first", apptest.Says("well"))
		r := a.turn(t, "first", "hi", nil)
		tells(t, r, slices.Concat(begun, []string{"user: hi", "bot: well"})...)
		r = a.turn(t, "first", "hi", nil)
		tells(t, r, "user: hi", "bot: ok")
	})

	t.Run("/session_start lets the agent speak first, once", func(t *testing.T) {
		r := a.turn(t, "opening", "/session_start", nil)
		tells(t, r, append(slices.Clone(begun), "user: /session_start")...)
		expect(t, "the turn", []any{r.Texts, r.Report.Status, len(a.RequestsOf("opening"))}, []any{[]string{"Hello, Ada."}, "completed", 0})
		r = a.turn(t, "opening", "/session_start", nil)
		expect(t, "heard again", r.Texts, []string(nil))
		a.Next("opening", apptest.Says("yes?"))
		r = a.turn(t, "opening", "hi", nil)
		tells(t, r, "user: hi", "bot: yes?")
		wantNone(t, "the requests", inJSON(a.Prompts("opening")), "/session_start")
	})

	t.Run("T50 a first message that is rejected starts no session skill; the next does", func(t *testing.T) {
		r := a.turn(t, "t50", "planted-spam", bodies{"modify_incoming_message": "veto('no')"})
		tells(t, r, "user: planted-spam (rejected)", "bot: "+incomingRejected)
		expect(t, "tools", a.toolNotes("t50"), []string{})
		r = a.turn(t, "t50", "hi", nil)
		tells(t, r, slices.Concat(begun, []string{"user: hi", "bot: ok"})...)
		wantNone(t, "requests, and what tools hear", inJSON(a.Prompts("t50"))+strings.Join(a.results("t50", "load"), ""), "planted-spam")
	})

	t.Run("T51 a first message whose hook fails starts no session skill; the next does", func(t *testing.T) {
		r := a.turn(t, "t51", "planted-text", bodies{"modify_incoming_message": "1 / 0"})
		tells(t, r, "user: planted-text (hook_error)", "bot: "+incomingFailed)
		r = a.turn(t, "t51", "hi", nil)
		tells(t, r, slices.Concat(begun, []string{"user: hi", "bot: ok"})...)
	})

	t.Run("T122 its texts pass the outgoing point", func(t *testing.T) {
		r := a.turn(t, "t122", "hi", bodies{"modify_outgoing_text": "p.text += '!'"})
		expect(t, "heard", r.Texts, []string{"Hello, Ada.!", "ok!"})
	})

	t.Run("T37 its tools ask no tool hook", func(t *testing.T) {
		a.turn(t, "t37", "hi", bodies{"modify_tool_call": "1 / 0", "modify_tool_result": "1 / 0"})
		expect(t, "tools and hooks", a.toolNotes("t37"), []string{"tool load"})
	})

	t.Run("T78 a session that is cancelled while it begins goes on with the next message", func(t *testing.T) {
		in := played("slow", "hi", nil)
		done := a.send(t.Context(), in)
		a.waitFor(t, "slow", "tool load")
		in.Interrupt, in.Message.Text = true, "hello"
		r := awaited(t, a.send(t.Context(), in))
		if first := awaited(t, done); first.err != nil || first.Report.Status != "cancelled" || len(first.Texts) != 0 {
			t.Errorf("the first turn: %+v", first)
		}
		if r.err != nil {
			t.Fatal(r.err)
		}
		tells(t, r.Reply, "user: hello", "ordered_block_step default_session_start main greet", "bot: Hello, {name}.",
			"ordered_block_completed default_session_start main", "skill_completed default_session_start", "bot: ok")
		expect(t, "it ran", a.toolNotes("slow"), []string{"tool load"})
	})
}

func TestReloadWithoutASkill(t *testing.T) {
	t.Parallel()
	dir := apptest.Folder(t, tripFiles)
	a := playedAgent{apptest.StartIn(t, dir)}
	reload := func(t *testing.T) {
		t.Helper()
		if err := a.App.Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("a reload that removes the active skill", func(t *testing.T) {
		a.Next("ann", starts("trip"), apptest.Call("measure", map[string]any{"km": 5}), apptest.Says("five"), starts("hours"), apptest.Says("nine"))
		a.turn(t, "ann", "plan", nil)
		a.turn(t, "ann", "open?", nil)
		if err := os.RemoveAll(filepath.Join(dir, "skills", "hours")); err != nil {
			t.Fatal(err)
		}
		reload(t)
		a.Next("ann", asWritten)
		r := a.turn(t, "ann", "and?", nil)
		expectLines(t, "the turn", of(story(r.Report.Events), "skill_", "bot"), []string{"skill_cancelled hours", "skill_activated default_continue_interrupted", "bot: Shall we go back to Plan a trip (Plans a trip)?"})
		wantAll(t, "the trace", a.TraceText("ann"), "the agent has no skill hours any more")
	})
	t.Run("a reload that removes all skills, and one that brings them back", func(t *testing.T) {
		a.Next("bob", starts("trip"), apptest.Says("where?"))
		a.turn(t, "bob", "plan", nil)
		for _, name := range []string{"skills", "memory.yml", "tools"} {
			if err := os.Rename(filepath.Join(dir, name), filepath.Join(dir, "."+name)); err != nil {
				t.Fatal(err)
			}
		}
		reload(t)
		r := a.turn(t, "bob", "and?", nil)
		tells(t, r, "user: and?", "bot: ok")
		expect(t, "offered", a.offers(t, "bob", -1), []string{"listen", "hangup"})
		for _, name := range []string{"skills", "memory.yml", "tools"} {
			if err := os.Rename(filepath.Join(dir, "."+name), filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		reload(t)
		a.Next("bob", apptest.Says("where?"))
		a.turn(t, "bob", "and?", nil)
		wantAll(t, "the prompt", system(t, a.request(t, "bob", -1)), "Plan the trip.")
	})
}

func TestReloadOfABlock(t *testing.T) {
	t.Parallel()
	files := maps.Clone(orderFiles)
	files["lib/played.py"] = playedLib
	dir := apptest.Folder(t, files)
	a := playedAgent{apptest.StartIn(t, dir)}
	file := filepath.Join("skills", "order", "skill.md")
	change := func(t *testing.T, pairs ...string) {
		t.Helper()
		text := strings.NewReplacer(pairs...).Replace(orderFiles["skills/order/skill.md"])
		if text == orderFiles["skills/order/skill.md"] {
			t.Fatal("nothing was changed")
		}
		apptest.Write(t, dir, file, text)
		if err := a.App.Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	a.orders(t, "early", "", "what")
	a.orders(t, "late", "lamp", "talk")
	a.orders(t, "inner", "lamp", "street")
	a.orders(t, "other", "lamp", "talk")

	t.Run("a reload that changes the text of the step", func(t *testing.T) {
		change(t, "Say what it costs.", "Say what it would cost.")
		a.turn(t, "other", "well?", nil)
		wantAll(t, "the prompt", system(t, a.request(t, "other", -1)), "Say what it would cost.")
	})
	t.Run("a reload that removes the step: the block begins again when no tool of it has run", func(t *testing.T) {
		change(t, "id: what", "id: which", "id: talk", "id: speak")
		a.Next("early", sets(map[string]any{"item": "lamp"}))
		r := a.turn(t, "early", "a lamp", nil)
		expectLines(t, "the turn", of(story(r.Report.Events), "ordered", "bot", "tool", "skill"), []string{"ordered_block_step order main hello", "bot: Hello.", "ordered_block_step order main which",
			"bot: Which item?", "ordered_block_asked order main which"})
		wantAll(t, "the trace", a.TraceText("early"), "block main has no step what any more and begins again")
	})
	t.Run("a reload that removes the step: the skill ends when a tool of the block has run", func(t *testing.T) {
		a.Next("late", apptest.Says("well"))
		r := a.turn(t, "late", "right", nil)
		expectLines(t, "the turn", of(story(r.Report.Events), "ordered", "bot", "tool", "skill"), []string{"skill_cancelled order", "bot: well"})
		wantAll(t, "the trace", a.TraceText("late"), "the skill is ended")
		expect(t, "tools that ran", len(a.results("late", "quote")), 1)
	})
	t.Run("a reload that removes the block", func(t *testing.T) {
		change(t, "call: address", "noop: true\n    next: talk", ":::ordered_block id=address", ":::ordered_block id=place")
		a.Next("inner", apptest.Says("Is it right?"))
		r := a.turn(t, "inner", "Elm", nil)
		expectLines(t, "the turn", of(story(r.Report.Events), "ordered", "bot", "tool", "skill"), []string{"ordered_block_cancelled order address", "ordered_block_step order main talk", "bot: Is it right?"})
		wantAll(t, "the trace", a.TraceText("inner"), "skill order has no block address any more")
	})
}
