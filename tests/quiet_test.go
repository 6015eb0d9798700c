package tests

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/belay-run/belay/internal/app/apptest"
	"github.com/belay-run/belay/internal/conversation"
)

// shop is an agent that says four fixed texts in its own words: when a session
// begins, when a tool succeeds, to ask for a confirmation and after a no.
var shop = apptest.Files{
	"responses.yml": `responses:
  utter_session_start:
    - text: Welcome to the shop.
      metadata: {rephrase: true}
  utter_booked:
    - text: Your booking {code} is made.
      metadata: {rephrase: true}
  utter_ask:
    - text: Shall I reserve it?
      metadata: {rephrase: true}
  utter_declined:
    - text: I reserve nothing.
      metadata: {rephrase: true}
`,
	"tools.py": `from __future__ import annotations

from belay.tools import ToolResult, tool


@tool(description="Books.", on_success="utter_booked")
async def book() -> ToolResult:
    return ToolResult(llm_response={"code": 7})


@tool(description="Reserves.", requires_confirmation=True, utter_for_confirmation="utter_ask", utter_on_user_denial="utter_declined")
async def reserve() -> ToolResult:
    return ToolResult(llm_response={})
`,
}

// quietCall is a text that a model is to reword.
type quietCall struct {
	name     string
	written  string
	response string
	before   []apptest.Answer // of the turn, before the quiet call
	after    []apptest.Answer // of the turn, after it
}

var quietCalls = []quietCall{
	{"greeting", "Welcome to the shop.", "utter_session_start", nil, []apptest.Answer{apptest.Says("the rest")}},
	{"on_success", "Your booking 7 is made.", "utter_booked", []apptest.Answer{apptest.Call("book", nil)}, []apptest.Answer{apptest.Says("the rest")}},
	{"confirmation question", "Shall I reserve it?", "utter_ask", []apptest.Answer{apptest.Call("reserve", nil)}, nil},
	{"denial", "I reserve nothing.", "utter_declined", []apptest.Answer{apptest.Call("resolve_tool_confirmation", map[string]any{"confirmed": false})}, nil},
}

// run runs the turn with the quiet call in it. answers are those of the quiet
// call; none when it is not to be made.
func (q quietCall) run(t *testing.T, a playedAgent, sender string, does bodies, answers ...apptest.Answer) apptest.Reply {
	t.Helper()
	if q.name != "greeting" {
		a.Next(sender, apptest.Says("hi"), apptest.Says("hello"))
		a.turn(t, sender, "good day", nil)
	}
	if q.name == "denial" {
		a.Next(sender, apptest.Call("reserve", nil), apptest.Says("may I"))
		a.turn(t, sender, "reserve", nil)
	}
	a.Next(sender, slices.Concat(q.before, answers, q.after)...)
	return a.turn(t, sender, "go on", does)
}

// heard is what the user hears when the quiet call comes to this text.
func (q quietCall) heard(text string) []string {
	out := []string{"text:" + text}
	if len(q.after) > 0 {
		out = append(out, "text:the rest")
	}
	return out
}

// said is the event of the text, which must be the only one of its response.
func (q quietCall) said(t *testing.T, a playedAgent, sender string) conversation.Event {
	t.Helper()
	events := slices.DeleteFunc(a.Of(sender, conversation.Bot), func(e conversation.Event) bool { return e.Response != q.response })
	if len(events) != 1 {
		t.Fatalf("%d texts of %s", len(events), q.response)
	}
	return events[0]
}

func TestQuietCalls(t *testing.T) {
	t.Parallel()
	a := startPlayed(t, nil, shop, playedHooks(longLimit, modelHooks...))

	for _, q := range quietCalls {
		t.Run("T90 once for the quiet call of the "+q.name, func(t *testing.T) {
			sender := "t90 " + q.name
			body := "if not p.tool_names:\n    return p.model_copy(update={'messages': p.messages + [{'role': 'system', 'content': 'hooked'}], 'model_settings': {'seed': 8}})"
			r := q.run(t, a, sender, bodies{"modify_model_request": body}, apptest.Says("in other words"))
			expect(t, "the user heard", r.Order, q.heard("in other words"))
			if e := q.said(t, a, sender); e.Source != conversation.Rephrased {
				t.Errorf("the record has %+v", e)
			}
			requests := a.RequestsOf(sender)
			for _, name := range []string{"on_model_request", "modify_model_request"} {
				if notes := a.notesOf(sender, name); len(notes) != len(requests) {
					t.Errorf("%s was asked %d times for %d requests", name, len(notes), len(requests))
				}
			}
			at := len(requests) - 1 - len(q.after)
			hooked, note := a.Prompts(sender)[at], a.notesOf(sender, "modify_model_request")[at].Data
			expect(t, "settings", requests[at].Settings, map[string]int{"seed": 8})
			expect(t, "what the hook is given", []any{note["messages"], note["model_settings"], note["tool_names"], note["iteration"]},
				[]any{hooked[:len(hooked)-1], map[string]any{}, []any{}, 0})
			expect(t, "last message", hooked[len(hooked)-1]["content"], "hooked")
			if !strings.Contains(fmt.Sprint(hooked[len(hooked)-2]["content"]), q.written) {
				t.Errorf("the quiet call is about %v", hooked[len(hooked)-2])
			}
			t.Run("T97 changes of the quiet call hold for it alone", func(t *testing.T) {
				for i, r := range requests {
					if i != at && (r.Settings != nil || strings.Contains(string(r.Messages), "hooked")) {
						t.Errorf("request %d has settings %v and messages %s", i, r.Settings, r.Messages)
					}
				}
			})
		})

		t.Run("T97 changes of an iteration do not hold for the quiet call of the "+q.name, func(t *testing.T) {
			sender := "t97 " + q.name
			body := "if p.tool_names:\n    return p.model_copy(update={'messages': p.messages + [{'role': 'system', 'content': 'hooked'}], 'model_settings': {'seed': 8}})"
			q.run(t, a, sender, bodies{"modify_model_request": body}, apptest.Says("in other words"))
			requests := a.RequestsOf(sender)
			quiet := requests[len(requests)-1-len(q.after)]
			if quiet.Settings != nil || strings.Contains(string(quiet.Messages), "hooked") {
				t.Errorf("settings %v, messages %s", quiet.Settings, quiet.Messages)
			}
		})

		for _, f := range failedHooks {
			t.Run("T98 not made, said as written: "+q.name+", "+f.name, func(t *testing.T) {
				sender := "t98 " + q.name + f.name
				r := q.run(t, a, sender, bodies{"modify_model_request": "if not p.tool_names:\n    " + f.body})
				q.asWritten(t, a, sender, r, "modify_model_request_hook")
				for _, request := range a.RequestsOf(sender)[2*min(1, len(q.before)):] { // those of the greeting go before
					if len(request.Tools) == 0 && strings.Contains(string(request.Messages), q.written) {
						t.Error("the quiet call was made")
					}
				}
			})
		}

		t.Run("T101 RetryModel discards the quiet call of the "+q.name, func(t *testing.T) {
			sender := "t101 " + q.name
			r := q.run(t, a, sender, bodies{"modify_model_response": "if p.text == 'in other words':\n    retry('the feed' + 'back')"}, apptest.Says("in other words"))
			q.asWritten(t, a, sender, r, "modify_model_response_hook")
			main := 0
			for _, request := range a.RequestsOf(sender) {
				if strings.Contains(string(request.Messages), "the feedback") {
					t.Error("a request has the feedback")
				}
				if len(request.Tools) > 0 {
					main++
				}
			}
			want := len(q.before) + len(q.after)
			if q.name != "greeting" {
				want++ // the session began with a turn of its own
			}
			if q.name == "denial" {
				want++ // and asked for the confirmation in another
			}
			expect(t, "iterations of the main loop", main, want)
			if strings.Contains(string(mustJSON(t, a.Events(sender))), "in other words") {
				t.Error("the discarded completion is in the record")
			}
		})
		t.Run("T98 discarded, said as written: "+q.name, func(t *testing.T) {
			sender := "t98 discarded " + q.name
			r := q.run(t, a, sender, bodies{"modify_model_response": "if p.text == 'in other words':\n    retry('')"}, apptest.Says("in other words"))
			q.asWritten(t, a, sender, r, "modify_model_response_hook")
		})

		t.Run("T100 once for the quiet call of the "+q.name, func(t *testing.T) {
			sender := "t100 " + q.name
			body := "if p.text == 'in other words':\n    return p.model_copy(update={'text': 'in the hook\\'s words'})"
			r := q.run(t, a, sender, bodies{"modify_model_response": body}, apptest.Says("in other words"))
			expect(t, "the user heard", r.Order, q.heard("in the hook's words"))
			if e := q.said(t, a, sender); e.Text != "in the hook's words" || e.Source != conversation.Rephrased {
				t.Errorf("the record has %+v", e)
			}
			for _, name := range []string{"on_model_response", "modify_model_response"} {
				notes := a.notesOf(sender, name)
				if len(notes) != len(a.RequestsOf(sender)) {
					t.Errorf("%s was asked %d times for %d completions", name, len(notes), len(a.RequestsOf(sender)))
				}
			}
		})

		t.Run("T105 a response hook that fails at the quiet call is open: "+q.name, func(t *testing.T) {
			sender := "t105 " + q.name
			r := q.run(t, a, sender, bodies{"modify_model_response": "if p.text == 'in other words':\n    1 / 0"}, apptest.Says("in other words"))
			expect(t, "the user heard", r.Order, q.heard("in other words"))
			expect(t, "status", r.Report.Status, "completed")
		})

		t.Run("T108 no response hook when the quiet call fails: "+q.name, func(t *testing.T) {
			sender := "t108 " + q.name
			r := q.run(t, a, sender, nil, apptest.Fails(500))
			expect(t, "the user heard", r.Order, q.heard(q.written))
			for _, name := range []string{"on_model_response", "modify_model_response"} {
				expect(t, name, len(a.notesOf(sender, name)), len(a.RequestsOf(sender))-1)
			}
		})
	}
}

// asWritten fails the test unless the text was said as written, the turn went on,
// no hook error was spoken, and the trace says which hook did without the call.
func (q quietCall) asWritten(t *testing.T, a playedAgent, sender string, r apptest.Reply, hook string) {
	t.Helper()
	expect(t, "the user heard", r.Order, q.heard(q.written))
	expect(t, "status", r.Report.Status, "completed")
	if e := q.said(t, a, sender); e.Text != q.written || e.Source != conversation.Verbatim {
		t.Errorf("the record has %+v", e)
	}
	for _, e := range a.Events(sender) {
		if strings.HasSuffix(e.Response, "_hook_error") {
			t.Errorf("a hook error was spoken: %+v", e)
		}
	}
	why := ""
	for _, trace := range a.Trace(sender) {
		for _, l := range trace.Lines {
			if l.Kind == "note" && strings.Contains(l.Why, q.response) {
				why += l.Why
			}
		}
	}
	if !strings.Contains(why, "hooks.py:"+hook) {
		t.Errorf("the trace says %q, and not that %s was it", why, hook)
	}
}

func TestTokenBudget(t *testing.T) {
	t.Parallel()
	a := startPlayed(t, nil, shop, playedHooks(longLimit, "modify_model_request"), apptest.Files{
		"agent.yml": "agent:\n  id: test\n  persona: You are a test.\nbelay:\n  limits:\n    prompt_tokens: 600\n"})
	long := func(word string) string { return strings.TrimSpace(strings.Repeat(word+" ", 300)) }
	add := "return p.model_copy(update={'messages': p.messages + [{'role': 'system', 'content': 'added ' * 2000}]})"
	for _, word := range []string{"apple", "banana", "cherry"} {
		a.turn(t, "ada", long(word), nil)
	}
	a.Next("ada", apptest.Call("book", nil), apptest.Says("in other words"), apptest.Says("done"))
	earlier := len(a.RequestsOf("ada"))
	r := a.turn(t, "ada", "damson", bodies{"modify_model_request": add})
	expect(t, "the user heard", r.Texts, []string{"in other words", "done"})
	requests, notes := a.Prompts("ada")[earlier:], a.notesOf("ada", "modify_model_request")[earlier:]
	if len(requests) != 3 || len(notes) != 3 {
		t.Fatalf("%d requests, %d notes", len(requests), len(notes))
	}
	for i, name := range []string{"main loop", "quiet call", "next iteration"} {
		t.Run("T90 after the prompt is cut: "+name, func(t *testing.T) {
			given := string(mustJSON(t, notes[i].Data["messages"]))
			if strings.Contains(given, "apple") || !strings.Contains(given, "damson") {
				t.Errorf("the hook is given %s", given)
			}
			expect(t, "sent", requests[i][:len(requests[i])-1], notes[i].Data["messages"])
			expect(t, "what the hook added, past the budget", len(fmt.Sprint(requests[i][len(requests[i])-1]["content"])), 6*2000)
		})
	}
}
