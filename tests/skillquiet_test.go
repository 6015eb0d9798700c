package tests

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/belay-run/belay/internal/app/apptest"
	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/conversation"
)

// formFiles are an agent whose skills say every kind of fixed text, each to be
// reworded.
func formFiles() apptest.Files {
	files := apptest.Files{
		"skills/talk/skill.md": `---
name: Talk
description: Talks.
utter:
  - utter_began: {on: activate}
  - utter_many: {when: session.talk.n > 2}
tool_constraints:
  - pay:
      requires_confirmation: {enabled: true, utter_for_confirmation: utter_ask_pay, utter_on_user_denial: utter_no_pay}
      on_success: utter_paid
      on_failure: utter_unpaid
---

Talk.
`,
		"skills/talk/memory.yml": "schema:\n  public:\n    n: {type: number}\n",
		"skills/talk/tools.py": `from __future__ import annotations

from belay.tools import ToolContext, ToolResult, tool


@tool(description="Counts.")
async def count(context: ToolContext, n: int) -> ToolResult:
    context.memory.set("n", n)
    return ToolResult(llm_response={})


@tool(description="Pays.")
async def pay(fail: bool = False) -> ToolResult:
    return ToolResult(llm_response={"error": "no"} if fail else {})
`,
		"skills/form/skill.md": `---
name: Form
description: Fills in a form.
tool_constraints:
  - send:
      requires_confirmation: {enabled: true, utter_for_confirmation: utter_ask_send}
---

:::ordered_block id=main
steps:
  - id: begin
    action: utter_form
  - id: who
    collect: name
    utterance: utter_ask_name
  - id: send
    execute_tool: send
:::
`,
		"skills/form/memory.yml": "schema:\n  public:\n    name: {type: text, llm_settable: true}\n    age: {type: int, llm_settable: true}\n",
		"skills/form/tools.py":   "from __future__ import annotations\n\nfrom belay.tools import ToolContext, ToolResult, tool\nfrom lib.probe import note\n\n\n@tool(description=\"Sends.\")\nasync def send(context: ToolContext) -> ToolResult:\n    note(\"tool send\", sender_id=context.sender_id)\n    return ToolResult(llm_response={})\n\n\n@tool(description=\"Looks at the age.\")\nasync def validate_age(age: int, context: ToolContext) -> ToolResult:\n    note(\"tool validate_age\", sender_id=context.sender_id)\n    return ToolResult(llm_response={\"error\": \"too young\"} if age < 18 else {})\n",
		"skills/plain/skill.md":  "---\nname: Plain\ndescription: Is plain\n---\n\nSay little.\n",
	}
	var b strings.Builder
	b.WriteString("responses:\n")
	for _, name := range []string{"began", "many", "ask_pay", "no_pay", "paid", "unpaid", "form", "ask_name", "ask_send"} {
		fmt.Fprintf(&b, "  utter_%[1]s: [{text: \"[%[1]s]\", metadata: {rephrase: true}}]\n", name)
	}
	files["responses.yml"] = b.String()
	return files
}

// rewording is a text of a skill that a model is to reword.
type rewording struct {
	name     string
	written  string
	response string
	turns    [][]apptest.Answer // before the one with the text
	earlier  []string           // texts of these turns
	before   []apptest.Answer   // of the turn, before the request to reword
	after    []apptest.Answer   // of the turn, after it
	ahead    []string           // texts before it in the turn
	behind   []string           // texts after it
}

func rewordings() []rewording {
	talk := []apptest.Answer{starts("talk"), asWritten, apptest.Says("hi")}
	plain := []apptest.Answer{starts("plain"), apptest.Says("hi")}
	pay := func(fail bool) apptest.Answer { return apptest.Call("pay", map[string]any{"fail": fail}) }
	rest := []apptest.Answer{apptest.Says("the rest")}
	said, hi, asks := []string{"the rest"}, []string{"[began]", "hi"}, []string{"[began]", "hi", "[ask_pay]"}
	return []rewording{
		{name: "on activation", written: "[began]", response: "utter_began", before: []apptest.Answer{starts("talk")}, after: rest, behind: said},
		{name: "when a condition holds", written: "[many]", response: "utter_many", turns: [][]apptest.Answer{talk}, earlier: hi, before: []apptest.Answer{apptest.Call("count", map[string]any{"n": 3})}, after: rest, behind: said},
		{name: "confirmation question", written: "[ask_pay]", response: "utter_ask_pay", turns: [][]apptest.Answer{talk}, earlier: hi, before: []apptest.Answer{pay(false)}},
		{name: "denial", written: "[no_pay]", response: "utter_no_pay", turns: [][]apptest.Answer{talk, {pay(false), asWritten}}, earlier: asks, before: []apptest.Answer{no}},
		{name: "on_success", written: "[paid]", response: "utter_paid", turns: [][]apptest.Answer{talk, {pay(false), asWritten}}, earlier: asks, before: []apptest.Answer{yes}, after: rest, behind: said},
		{name: "on_failure", written: "[unpaid]", response: "utter_unpaid", turns: [][]apptest.Answer{talk, {pay(true), asWritten}}, earlier: asks, before: []apptest.Answer{yes}, after: rest, behind: said},
		{name: "action of a block", written: "[form]", response: "utter_form", before: []apptest.Answer{starts("form"), nothing}, after: []apptest.Answer{asWritten}, behind: []string{"[ask_name]"}},
		{name: "question of a block", written: "[ask_name]", response: "utter_ask_name", before: []apptest.Answer{starts("form"), nothing, asWritten}, ahead: []string{"[form]"}},
		{name: "confirmation question of a block", written: "[ask_send]", response: "utter_ask_send", turns: [][]apptest.Answer{{starts("form"), nothing, asWritten, asWritten}}, earlier: []string{"[form]", "[ask_name]"},
			before: []apptest.Answer{sets(map[string]any{"name": "Ada"})}},
		{name: "anything else", written: anythingElse, response: "utter_ask_wants_to_continue", turns: [][]apptest.Answer{plain}, earlier: hi[1:], before: []apptest.Answer{finishes}},
		{name: "back to", written: "Shall we go back to Plain (Is plain)?", response: "utter_ask_wants_to_resume", turns: [][]apptest.Answer{plain, talk}, earlier: []string{"hi", "[began]", "hi"}, before: []apptest.Answer{finishes}},
		{name: "cannot help", written: "I'm sorry, that lies outside what I can help with.", response: "utter_decline_out_of_domain", before: []apptest.Answer{apptest.Call("cannot_help", map[string]any{"in_domain": false})}},
	}
}

// run runs the turn with the text in it. answers are those of the request to
// reword it; none when it is not to be made. It gives what was asked in the turn.
func (w rewording) run(t *testing.T, a playedAgent, sender string, does bodies, answers ...apptest.Answer) (apptest.Reply, []chat.Request) {
	t.Helper()
	for _, turn := range w.turns {
		a.Next(sender, turn...)
		a.turn(t, sender, "good day", nil)
	}
	asked := len(a.RequestsOf(sender))
	a.Next(sender, slices.Concat(w.before, answers, w.after)...)
	r := a.turn(t, sender, "go on", does)
	return r, a.RequestsOf(sender)[asked:]
}

func (w rewording) heard(text string) []string {
	return slices.Concat(w.ahead, []string{text}, w.behind)
}

// asks says in Python whether a model request is that to reword the text.
func (w rewording) asks() string {
	return fmt.Sprintf("p.messages[-1]['content'].startswith('Reword this message') and %q in p.messages[-1]['content']", w.written)
}

func (w rewording) isAsked(r chat.Request) bool {
	return len(r.Tools) == 0 && strings.Contains(string(r.Messages), "Reword this message and answer with the new wording alone:\\n"+w.written)
}

// stood fails the test unless the text was said as written, the turn went on, no
// hook error was spoken, and the trace says which hook did without the rewording.
func (w rewording) stood(t *testing.T, a playedAgent, sender string, r apptest.Reply, hook string) {
	t.Helper()
	expect(t, "the user heard", r.Texts, w.heard(w.written))
	expect(t, "status", r.Report.Status, "completed")
	source, why := "", ""
	for _, e := range a.Of(sender, conversation.Bot) {
		if e.Response == w.response {
			source += e.Source
		}
		if strings.HasSuffix(e.Response, "_hook_error") {
			t.Errorf("a hook error was spoken: %+v", e)
		}
	}
	expect(t, "source", source, conversation.Verbatim)
	for _, l := range r.Report.Lines {
		if l.Kind == "note" && strings.Contains(l.Why, w.response) {
			why += l.Why
		}
	}
	wantAll(t, "the trace", why, ":"+hook)
}

// wrongRequests are ways in which a model-request hook fails; with shape, what it
// returns has the wrong shape.
var wrongRequests = []struct {
	name, body string
	shape      bool
}{
	{"crash", "raise ValueError('plan' + 'ted secret')", false},
	{"no return", "return None", false},
	{"messages no list", "return p.model_copy(update={'messages': {'role': 'user'}})", true},
	{"messages of texts", "return p.model_copy(update={'messages': ['x']})", true},
	{"settings no object", "return p.model_copy(update={'model_settings': [1]})", true},
}

func TestRewordedTextsOfSkills(t *testing.T) {
	t.Parallel()
	a := startPlayed(t, nil, formFiles(), playedHooks(longLimit, modelHooks...))
	for _, w := range rewordings() {
		var main int // requests of the main loop in the turn
		t.Run("T90 once for "+w.name, func(t *testing.T) {
			sender := "t90 " + w.name
			body := "if " + w.asks() + ":\n    p.messages.append({'role': 'system', 'content': 'hooked'})\n    p.model_settings['seed'] = 8"
			r, requests := w.run(t, a, sender, bodies{"modify_model_request": body}, apptest.Says("in other words"))
			expect(t, "the user heard", r.Texts, w.heard("in other words"))
			for _, name := range modelHooks[:4] {
				want := len(a.RequestsOf(sender))
				if strings.HasSuffix(name, "response") { // a provider that failed has none
					want = 0
					for _, part := range a.Trace(sender) {
						for _, l := range part.Lines {
							if l.Kind == "model" && l.Outcome == "ok" {
								want++
							}
						}
					}
				}
				expect(t, name, len(a.notesOf(sender, name)), want)
			}
			for _, request := range requests {
				hooked := w.isAsked(request)
				if seed := string(request.Settings["seed"]); (seed == "8") != hooked || strings.Contains(string(request.Messages), "hooked") != hooked || !hooked && request.Settings != nil {
					t.Errorf("T97 settings %v, messages %s", request.Settings, request.Messages)
				}
				if len(request.Tools) > 1 {
					main++
				}
			}
			if n := len(slices.DeleteFunc(requests, func(r chat.Request) bool { return !w.isAsked(r) })); n != 1 {
				t.Errorf("asked %d times", n)
			}
		})
		t.Run("T97 what a hook does to the main loop does not hold for "+w.name, func(t *testing.T) {
			body := "if p.tool_names:\n    p.messages.append({'role': 'system', 'content': 'hooked'})\n    p.model_settings['seed'] = 8"
			_, requests := w.run(t, a, "t97 "+w.name, bodies{"modify_model_request": body}, apptest.Says("in other words"))
			for _, request := range requests {
				if w.isAsked(request) && (request.Settings != nil || strings.Contains(string(request.Messages), "hooked")) {
					t.Errorf("settings %v, messages %s", request.Settings, request.Messages)
				}
			}
		})
		for _, c := range wrongRequests {
			for _, id := range []string{"T91", "T98", "T99"} {
				if id == "T99" && !c.shape {
					continue
				}
				t.Run(id+" not asked, said as written: "+w.name+", "+c.name, func(t *testing.T) {
					sender := id + w.name + c.name
					r, requests := w.run(t, a, sender, bodies{"modify_model_request": "if " + w.asks() + ":\n    " + c.body})
					w.stood(t, a, sender, r, "modify_model_request_hook")
					if slices.ContainsFunc(requests, w.isAsked) {
						t.Error("it was asked")
					}
					wantNone(t, "record, requests, log", inJSON(a.Events(sender))+a.AllRequests()+strings.Join(r.Texts, ""), "planted secret")
				})
			}
		}
		t.Run("T100 the reworded text is what the hook leaves: "+w.name, func(t *testing.T) {
			r, _ := w.run(t, a, "t100 "+w.name, bodies{"modify_model_response": "if p.text == 'in other words':\n    p.text = 'hooked words'"}, apptest.Says("in other words"))
			expect(t, "the user heard", r.Texts, w.heard("hooked words"))
		})
		for _, id := range []string{"T98", "T101"} {
			t.Run(id+" discarded, said as written: "+w.name, func(t *testing.T) {
				sender := id + " discarded " + w.name
				r, requests := w.run(t, a, sender, bodies{"modify_model_response": "if p.text == 'in other words':\n    retry('the feed' + 'back')"}, apptest.Says("in other words"))
				w.stood(t, a, sender, r, "modify_model_response_hook")
				got := 0
				for _, request := range requests {
					if len(request.Tools) > 1 {
						got++
					}
					wantNone(t, "a request", string(request.Messages), "the feedback", "in other words")
				}
				expect(t, "iterations", got, main)
				wantNone(t, "the record", inJSON(a.Events(sender)), "in other words", "the feedback")
			})
		}
	}
}

// isFill says whether a request is that for the fields of a new skill.
func isFill(r chat.Request) bool { return slices.Equal(toolNames(r), []string{"set_fields"}) }

func TestFill(t *testing.T) {
	t.Parallel()
	hooks := slices.Concat(modelHooks, toolHooks)
	a := startPlayed(t, nil, formFiles(), playedHooks(longLimit, hooks...))
	given := sets(map[string]any{"name": "Ada", "age": 30})
	const onlyFill = "if p.tool_names == ['set_fields']:\n    "
	// fill runs the turn of the activation. filled says whether the name is known
	// then: it is asked for when it is not.
	fill := func(t *testing.T, sender string, does bodies, filled bool, answers ...apptest.Answer) (apptest.Reply, []chat.Request) {
		t.Helper()
		a.Next(sender, slices.Concat([]apptest.Answer{starts("form")}, answers, []apptest.Answer{asWritten, asWritten})...)
		r := a.turn(t, sender, "I am Ada, 30", does)
		expect(t, "the user heard", r.Texts, map[bool][]string{true: {"[form]", "[ask_send]"}, false: {"[form]", "[ask_name]"}}[filled])
		expect(t, "the turn", []string{r.Report.Status, r.Report.Why}, []string{"completed", "waiting"})
		for _, e := range a.Of(sender, conversation.Bot) {
			if strings.HasSuffix(e.Response, "_hook_error") {
				t.Errorf("a hook error was spoken: %+v", e)
			}
		}
		return r, a.RequestsOf(sender)
	}
	known := map[string]string{"form.name": `"Ada"`, "form.age": "30"}
	why := func(r apptest.Reply) (all string) {
		for _, l := range r.Report.Lines {
			if l.Kind == "note" {
				all += l.Why + "\n"
			}
		}
		return all
	}

	t.Run("T90 once for the fill of fields", func(t *testing.T) {
		_, requests := fill(t, "t90", bodies{"modify_model_request": onlyFill + "p.messages.append({'role': 'system', 'content': 'hooked'})\n    p.model_settings['seed'] = 8"}, true, given)
		expect(t, "memory", a.remembers("t90"), known)
		notes := a.notesOf("t90", "modify_model_request")
		expect(t, "requests", []int{len(requests), len(notes), len(a.notesOf("t90", "on_model_request"))}, []int{4, 4, 4})
		expect(t, "what the hook is given", []any{notes[1].Data["tool_names"], notes[1].Data["iteration"], notes[1].Data["model_settings"]}, []any{[]string{"set_fields"}, 0, map[string]any{}})
		wantAll(t, "what is asked", string(requests[1].Messages), "I am Ada, 30", "Fills in a form")
		t.Run("T97 for that request alone", func(t *testing.T) {
			for i, r := range requests {
				if hooked := i == 1; hooked != isFill(r) || hooked != strings.Contains(string(r.Messages), "hooked") || (string(r.Settings["seed"]) == "8") != hooked {
					t.Errorf("request %d: settings %v, messages %s", i, r.Settings, r.Messages)
				}
			}
		})
	})

	for _, c := range wrongRequests {
		for _, id := range []string{"T91", "T98", "T99"} {
			if id == "T99" && !c.shape {
				continue
			}
			t.Run(id+" not asked, no field is set: "+c.name, func(t *testing.T) {
				sender := id + c.name
				r, requests := fill(t, sender, bodies{"modify_model_request": onlyFill + c.body}, false)
				expect(t, "memory", a.remembers(sender), map[string]string{})
				wantAll(t, "the trace", why(r), "no field is filled in: hook hooks.py:modify_model_request_hook failed")
				if slices.ContainsFunc(requests, isFill) {
					t.Error("it was asked")
				}
			})
		}
	}

	for name, c := range map[string]struct {
		body   string
		memory map[string]string
	}{
		"arguments":       {"p.tool_calls = [{**c, 'tool_args': {'name': 'Bea'}} for c in p.tool_calls]", map[string]string{"form.name": `"Bea"`}},
		"no calls":        {"p.tool_calls = []", map[string]string{}},
		"another tool":    {"p.tool_calls = [{**c, 'tool_name': 'send'} for c in p.tool_calls]", map[string]string{}},
		"one more":        {"p.tool_calls = p.tool_calls + [{'id': 'new', 'tool_name': 'set_fields', 'tool_args': {'name': 'Cyd'}}]", map[string]string{"form.name": `"Cyd"`, "form.age": "30"}},
		"T105 a crash":    {"1 / 0", known},
		"T105 no return":  {"return None", known},
		"T105 no objects": {"p.tool_calls = [{'id': 'x'}]", known},
		"T104 a veto":     {"veto('no')", known},
	} {
		t.Run("T100 what the hook leaves of the fill is set: "+name, func(t *testing.T) {
			fill(t, name, bodies{"modify_model_response": "if p.tool_calls and p.tool_calls[0]['tool_name'] == 'set_fields':\n    " + c.body}, c.memory["form.name"] != "", given)
			expect(t, "memory", a.remembers(name), c.memory)
			expect(t, "tools", of(a.toolNotes(name), "tool send"), []string{})
		})
	}

	for _, id := range []string{"T98", "T101"} {
		t.Run(id+" a fill that is discarded sets no field", func(t *testing.T) {
			sender := id + " discarded"
			r, requests := fill(t, sender, bodies{"modify_model_response": "if p.tool_calls and p.tool_calls[0]['tool_name'] == 'set_fields':\n    retry('the feed' + 'back')"}, false, given)
			expect(t, "memory", a.remembers(sender), map[string]string{})
			expect(t, "requests", len(requests), 4)
			wantNone(t, "the requests", inJSON(a.Prompts(sender)), "the feedback")
			wantAll(t, "the trace", why(r), "no field is filled in: hook hooks.py:modify_model_response_hook discarded the completion")
		})
	}

	t.Run("T37 fields set by the fill ask no tool hook, their validation neither", func(t *testing.T) {
		fill(t, "t37", bodies{"modify_tool_call": "if p.tool_name != 'activate':\n    1 / 0"}, true, given)
		expect(t, "hooks and tools", a.toolNotes("t37"), []string{"on_tool_call activate", "modify_tool_call activate", "on_tool_result activate", "modify_tool_result activate", "tool validate_age"})
		for _, run := range a.Of("t37", conversation.ToolExecuted) {
			if run.Tool.Name == "set_fields" {
				t.Errorf("recorded as %+v", run.Tool)
			}
		}
	})

	t.Run("a fill sets what fits", func(t *testing.T) {
		r, _ := fill(t, "fits", nil, true, sets(map[string]any{"name": "Ada", "age": 3, "other": 1}))
		expect(t, "memory", a.remembers("fits"), map[string]string{"form.name": `"Ada"`})
		wantAll(t, "the trace", why(r), "1 fields were filled in, 2 were not accepted")
	})

	t.Run("T108 a fill whose provider fails sets no field", func(t *testing.T) {
		fill(t, "t108", nil, false, apptest.Fails(500))
		expect(t, "response hooks", len(a.notesOf("t108", "modify_model_response")), 1)
	})
}

func TestQuietCallsOfSkillsOutOfTime(t *testing.T) {
	t.Parallel()
	a := startPlayed(t, nil, formFiles(), hooksWith(map[string]int{"modify_model_request": 1000}))
	hangs := func(when string) bodies {
		return bodies{"modify_model_request": "if " + when + ":\n    await asyncio.sleep(60)"}
	}
	t.Run("T91 a fill whose hook runs out of time is not asked for", func(t *testing.T) {
		a.Next("fill", starts("form"), asWritten, asWritten)
		r := a.turn(t, "fill", "I am Ada", hangs("p.tool_names == ['set_fields']"))
		expect(t, "the turn", []any{r.Report.Status, r.Texts, a.remembers("fill")}, []any{"completed", []string{"[form]", "[ask_name]"}, map[string]string{}})
		expect(t, "it was asked", slices.ContainsFunc(a.RequestsOf("fill"), isFill), false)
	})
	for _, w := range rewordings()[:3] {
		t.Run("T91 a text whose hook runs out of time is said as written: "+w.name, func(t *testing.T) {
			r, requests := w.run(t, a, w.name, hangs(w.asks()))
			w.stood(t, a, w.name, r, "modify_model_request_hook")
			expect(t, "it was asked", slices.ContainsFunc(requests, w.isAsked), false)
		})
	}
}
