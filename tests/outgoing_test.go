package tests

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/belay-run/belay/internal/app"
	"github.com/belay-run/belay/internal/app/apptest"
	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/conversation"
	"github.com/belay-run/belay/internal/server"
	"github.com/belay-run/belay/internal/turn"
)

const (
	outgoingRejected = "I'm sorry, but I can't give you that answer."
	somethingWrong   = "I'm sorry, but something went wrong. Please try again."
)

// speakingFiles are an agent that says something of every kind. Its hooks fail
// where a conversation's id says so.
var speakingFiles = apptest.Files{
	"agent.yml": "agent:\n  id: test\n  persona: You are a test.\nbelay:\n  limits:\n    iterations: 2\n",
	"responses.yml": `responses:
  utter_session_start:
    - text: Welcome.
  utter_looked:
    - text: Looked it up.
      metadata:
        rephrase: true
  utter_marked:
    - text: Marked {text}.
  utter_ask:
    - text: Really book?
      metadata:
        rephrase: true
  utter_no:
    - text: Then not.
`,
	"tools/order.py": orderTools,
	"tools/more.py": `from belay.tools import ToolResult, tool


@tool(description="Marks.", on_success="utter_marked")
async def mark(text: str) -> ToolResult:
    return ToolResult(llm_response={"text": text})


@tool(description="Books.", requires_confirmation=True, utter_for_confirmation="utter_ask", utter_on_user_denial="utter_no")
async def book(day: str) -> ToolResult:
    return ToolResult(llm_response={"day": day})
`,
	"hooks/see.py": `from belay.hooks import *
from lib.probe import note


@on_outgoing_text(timeout_ms=5000)
async def see(p: OutgoingTextPayload) -> None:
    note("seen", sender=p.sender_id, text=p.text)


@modify_incoming_message(timeout_ms=5000)
async def incoming(p: IncomingMessagePayload) -> IncomingMessagePayload:
    if p.text == "spam":
        raise HookRejection(reason="spam")
    if p.text == "crash":
        raise ValueError
    return p


@modify_model_request(timeout_ms=5000)
async def request(p: ModelRequestPayload) -> ModelRequestPayload:
    if "bad request" in p.sender_id:
        raise ValueError
    return p
`,
}

// stampHooks put a mark on every text.
const stampHooks = `from belay.hooks import *
from lib.probe import note


@modify_outgoing_text(timeout_ms=5000)
async def stamp(p: OutgoingTextPayload) -> OutgoingTextPayload:
    note("asked", sender=p.sender_id, text=p.text)
    return p.model_copy(update={"text": p.text + " +"})
`

// callHooks fail at every tool call.
const callHooks = `from belay.hooks import *


@modify_tool_call(timeout_ms=5000)
async def call(p: ToolCallPayload) -> ToolCallPayload:
    raise ValueError
`

// breaksOff is a provider that fails in the middle of a text.
func breaksOff(text string) apptest.Answer {
	return func(_ context.Context, _ chat.Request, delta func(string)) (chat.Response, error) {
		if delta != nil {
			delta(text)
		}
		return chat.Response{}, &chat.Error{Status: 500, Message: "broken off"}
	}
}

// scene is a conversation, and the texts that the user hears in it beside the
// greeting. One that stands in streams is also read piece by piece when the
// channel takes pieces and no hook holds it back.
type scene struct {
	name    string
	say     []string
	answers []apptest.Answer
	want    []string
	streams []string
	sources []string
}

var scenes = []scene{
	{name: "model text", say: []string{"hi"}, answers: []apptest.Answer{apptest.Pieces("Hello ", "there.")},
		want: []string{"Hello there."}, streams: []string{"Hello ", "there."}, sources: []string{"llm"}},
	{name: "filler, fixed text", say: []string{"hi"}, answers: []apptest.Answer{apptest.SaysAndCalls("One moment.", markCall), apptest.Says("All set.")},
		want: []string{"One moment.", "Marked a.", "All set."}, streams: []string{"One moment.", "All set."}, sources: []string{"filler", "verbatim", "llm"}},
	{name: "rephrased text", say: []string{"hi"}, answers: []apptest.Answer{apptest.Call("look", map[string]any{"text": "a"}), apptest.Says("I looked."), apptest.Says("There.")},
		want: []string{"I looked.", "There."}, streams: []string{"There."}, sources: []string{"rephrased", "llm"}},
	{name: "built-in question", say: []string{"hi"}, answers: []apptest.Answer{apptest.Call("order", map[string]any{"item": "tea"})},
		want: []string{builtInQuestion}, sources: []string{"verbatim"}},
	{name: "rephrased question, denial", say: []string{"hi", "no"},
		answers: []apptest.Answer{apptest.Call("book", map[string]any{"day": "Monday"}), apptest.Says("May I book?"),
			apptest.Call("resolve_tool_confirmation", map[string]any{"confirmed": false})},
		want: []string{"May I book?", "Then not."}, sources: []string{"rephrased", "verbatim"}},
	{name: "a text beside hangup", say: []string{"hi"}, answers: []apptest.Answer{apptest.SaysAndCalls("Goodbye.", apptest.C{Name: "hangup"})},
		want: []string{"Goodbye."}, streams: []string{"Goodbye."}, sources: []string{"llm"}},
	{name: "provider error", say: []string{"hi"}, answers: []apptest.Answer{apptest.Fails(500)}, want: []string{somethingWrong}, sources: []string{"verbatim"}},
	{name: "iteration cap", say: []string{"hi"}, answers: []apptest.Answer{apptest.Calls(markCall), apptest.Calls(markCall)},
		want: []string{"Marked a.", "Marked a.", "I'm sorry, but I couldn't finish that. Please try again, perhaps in smaller steps."}, sources: []string{"verbatim", "verbatim", "verbatim"}},
	{name: "empty completion", say: []string{"hi"}, answers: []apptest.Answer{apptest.Empty(), apptest.Empty(), apptest.Empty()},
		want: []string{"I'm sorry, but I have no answer to that. Could you put it another way?"}, sources: []string{"verbatim"}},
	{name: "incoming fallback", say: []string{"hi", "spam"}, want: []string{"ok", incomingRejected}, streams: []string{"ok"}, sources: []string{"llm", "verbatim"}},
	{name: "incoming hook error", say: []string{"hi", "crash"}, want: []string{"ok", incomingFailed}, streams: []string{"ok"}, sources: []string{"llm", "verbatim"}},
	{name: "bad request: hook error", say: []string{"hi"}, want: []string{"I'm sorry, but I can't answer right now. Please try again."}, sources: []string{"verbatim"}},
}

// badCall is a scene for an agent whose hook fails at every tool call.
var badCall = scene{name: "tool call: hook error", say: []string{"hi"}, answers: []apptest.Answer{apptest.Calls(markCall)},
	want: []string{"I'm sorry, but I couldn't carry that out. Nothing has been done. Please try again."}, sources: []string{"verbatim"}}

var markCall = apptest.C{Name: "mark", Args: map[string]any{"text": "a"}}

const builtInQuestion = `I am about to run order with item: tea. Shall I go ahead?`

// play plays a scene and returns all that was sent.
func (s scene) play(a *apptest.Agent, sender string, live bool) (all apptest.Reply) {
	a.T.Helper()
	a.Next(sender, s.answers...)
	for _, text := range s.say {
		r, err := a.Send(context.Background(), server.Inbound{Sender: sender, Live: live, Message: turn.Message{Text: text}})
		if err != nil {
			a.T.Fatalf("%s: %v", s.name, err)
		}
		all.Texts, all.Pieces, all.Order = append(all.Texts, r.Texts...), append(all.Pieces, r.Pieces...), append(all.Order, r.Order...)
	}
	return all
}

// notedTexts gives the texts that hooks of one name noted in a conversation.
func notedTexts(a *apptest.Agent, what, sender string) (out []string) {
	for _, n := range a.Notes() {
		if n.What == what && n.Data["sender"] == sender {
			out = append(out, n.Data["text"].(string))
		}
	}
	return out
}

// spoken gives the sources of the texts in the record.
func spoken(a *apptest.Agent, sender string) (texts, sources []string) {
	for _, e := range a.Of(sender, conversation.Bot) {
		texts, sources = append(texts, e.Text), append(sources, e.Source)
	}
	return texts, sources
}

func TestEveryTextIsSeen(t *testing.T) {
	t.Parallel()
	a := apptest.Start(t, speakingFiles)
	for _, s := range scenes {
		for _, live := range []bool{false, true} {
			sender := fmt.Sprintf("%s, live %v", s.name, live)
			t.Run("T122 an observer sees it once: "+sender, func(t *testing.T) {
				r, want := s.play(a, sender, live), append([]string{"Welcome."}, s.want...)
				if !slices.Equal(r.Texts, want) {
					t.Fatalf("the user heard %q, want %q", r.Texts, want)
				}
				if got := notedTexts(a, "seen", sender); !slices.Equal(got, want) {
					t.Errorf("seen: %q", got)
				}
				if _, sources := spoken(a, sender); !slices.Equal(sources, append([]string{"verbatim"}, s.sources...)) {
					t.Errorf("sources: %v", sources)
				}
				if live != (len(r.Pieces) > 0) && len(s.streams) > 0 || live && !slices.Equal(r.Pieces, s.streams) {
					t.Errorf("pieces: %q", r.Pieces)
				}
			})
		}
	}
	t.Run("T122 also what was read of a text that broke off", func(t *testing.T) {
		r := scene{say: []string{"hi"}, answers: []apptest.Answer{breaksOff("Half a ")}}.play(a, "broken off", true)
		want := []string{"Welcome.", "Half a ", somethingWrong}
		if got := notedTexts(a, "seen", "broken off"); !slices.Equal(r.Texts, want) || !slices.Equal(got, want) {
			t.Errorf("the user heard %q; seen: %q", r.Texts, got)
		}
	})
}

func TestEveryTextIsChecked(t *testing.T) {
	t.Parallel()
	files := maps.Clone(speakingFiles)
	files["hooks/stamp.py"] = stampHooks
	a := apptest.Start(t, files)
	for _, s := range scenes {
		s.checked(t, a)
	}
	files = maps.Clone(files)
	files["hooks/call.py"] = callHooks
	badCall.checked(t, apptest.Start(t, files))
	t.Run("T123 it is in the model's view of later turns", func(t *testing.T) {
		a.Next("t123", apptest.SaysAndCalls("One moment.", markCall), apptest.Says("All set."))
		a.Say("t123", "hi")
		a.Say("t123", "and now?")
		asked := a.Prompts("t123")
		if len(asked) != 3 {
			t.Fatalf("requests: %v", asked)
		}
		var got []any
		for _, m := range asked[2] {
			if m["role"] == "assistant" {
				got = append(got, m["content"])
			}
		}
		if want := []any{"Welcome. +", "One moment. +", "Marked a. +", "All set. +"}; !slices.Equal(got, want) {
			t.Errorf("the model sees %q, want %q", got, want)
		}
	})
	t.Run("T55 nothing of a text that broke off is sent", func(t *testing.T) {
		r := scene{say: []string{"hi"}, answers: []apptest.Answer{breaksOff("Half a ")}}.play(a, "broken off", true)
		if want := []string{"text:Welcome. +", "text:" + somethingWrong + " +"}; !slices.Equal(r.Order, want) {
			t.Errorf("sent: %q", r.Order)
		}
	})
	t.Run("T55 nothing of a text whose turn is cancelled is sent", func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		a.Next("cancelled", func(ctx context.Context, _ chat.Request, delta func(string)) (chat.Response, error) {
			if delta != nil {
				delta("Half a ")
			}
			cancel()
			<-ctx.Done()
			return chat.Response{}, ctx.Err()
		})
		r, err := a.Send(ctx, server.Inbound{Sender: "cancelled", Live: true, Message: turn.Message{Text: "hi"}})
		if err != nil && !errors.Is(err, context.Canceled) || !slices.Equal(r.Order, []string{"text:Welcome. +"}) || r.Report.Status != "cancelled" {
			t.Errorf("sent: %q, status %s, %v", r.Order, r.Report.Status, err)
		}
		if texts, _ := spoken(a, "cancelled"); !slices.Equal(texts, []string{"Welcome. +"}) {
			t.Errorf("recorded: %q", texts)
		}
	})
}

// checked proves that the modify hook of stampHooks has every text of a scene.
func (s scene) checked(t *testing.T, a *apptest.Agent) {
	for _, live := range []bool{false, true} {
		sender := fmt.Sprintf("%s, live %v", s.name, live)
		r, plain := s.play(a, sender, live), append([]string{"Welcome."}, s.want...)
		var stamped, order []string
		for _, text := range plain {
			stamped, order = append(stamped, text+" +"), append(order, "text:"+text+" +")
		}
		t.Run("T122 the modify hook has each whole text once: "+sender, func(t *testing.T) {
			if asked := notedTexts(a, "asked", sender); !slices.Equal(asked, plain) || !slices.Equal(r.Texts, stamped) {
				t.Errorf("asked about %q, the user heard %q", asked, r.Texts)
			}
		})
		t.Run("T55 no token of an unchecked text is sent: "+sender, func(t *testing.T) {
			if len(r.Pieces) > 0 || !slices.Equal(r.Order, order) {
				t.Errorf("sent: %q", r.Order)
			}
		})
		t.Run("T123 the new text is what is recorded: "+sender, func(t *testing.T) {
			texts, sources := spoken(a, sender)
			if !slices.Equal(texts, stamped) || !slices.Equal(sources, append([]string{"verbatim"}, s.sources...)) {
				t.Errorf("recorded: %q from %v", texts, sources)
			}
		})
	}
}

// rejectingHooks reject texts with "forbidden", and fail on some others. In a
// conversation named "all" they reject everything.
const rejectingHooks = `import asyncio

from belay.hooks import *
from lib.probe import note


@modify_outgoing_text(timeout_ms=1500)
async def check(p: OutgoingTextPayload) -> OutgoingTextPayload:
    note("asked", sender=p.sender_id, text=p.text)
    if "forbidden" in p.text or p.sender_id == "all":
        raise HookRejection(reason="not to be said")
    if p.text == "crash":
        raise ValueError("secret-exception-text")
    if p.text == "timeout":
        await asyncio.Event().wait()
    return p


@on_outgoing_text(timeout_ms=5000)
async def see(p: OutgoingTextPayload) -> None:
    note("seen", sender=p.sender_id, text=p.text)
`

func TestOutgoingRejected(t *testing.T) {
	t.Parallel()
	files := apptest.Files{"hooks.py": rejectingHooks, "tools/order.py": orderTools,
		"responses.yml": lookedResponse}
	a := apptest.Start(t, files)

	t.Run("T53 the text is not sent, the fallback is; the record has both", func(t *testing.T) {
		a.Next("t53", apptest.Says("forbidden words"))
		r := a.Say("t53", "hi")
		if !slices.Equal(r.Texts, []string{outgoingRejected}) || r.Report.Status != "completed" {
			t.Errorf("the user heard %q, status %s", r.Texts, r.Report.Status)
		}
		bot := a.Of("t53", conversation.Bot)
		if len(bot) != 2 || bot[0].Text != "forbidden words" || bot[0].Discarded == nil ||
			*bot[0].Discarded != (conversation.Discarded{By: "rejected", Hook: "hooks.py:check", Reason: "not to be said"}) {
			t.Fatalf("the record has %+v", bot)
		}
		if bot[1].Text != outgoingRejected || bot[1].Discarded != nil || bot[1].Response != "utter_outgoing_text_rejected" {
			t.Errorf("the record has the fallback as %+v", bot[1])
		}
	})
	for _, what := range []string{"crash", "timeout"} {
		t.Run("T54 "+what+" is open: the original is recorded and sent", func(t *testing.T) {
			for _, live := range []bool{false, true} {
				sender := fmt.Sprintf("t54 %s %v", what, live)
				r := scene{say: []string{"hi"}, answers: []apptest.Answer{apptest.Says(what)}}.play(a, sender, live)
				if texts, sources := spoken(a, sender); !slices.Equal(r.Order, []string{"text:" + what}) || !slices.Equal(texts, []string{what}) || sources[0] != "llm" {
					t.Errorf("sent: %q, recorded %q", r.Order, texts)
				}
				if bot := a.Of(sender, conversation.Bot); bot[0].Discarded != nil || !strings.Contains(a.TraceText(sender), `"kind":"`+what+`"`) {
					t.Errorf("the record has %+v", bot[0])
				}
			}
		})
	}
	t.Run("T124 the turn and the calls beside the text go on", func(t *testing.T) {
		a.Next("t124", apptest.SaysAndCalls("forbidden filler", apptest.C{Name: "look", Args: map[string]any{"text": "a"}}), apptest.Says("I looked."), apptest.Says("There."))
		r := a.Say("t124", "hi")
		if want := []string{outgoingRejected, "I looked.", "There."}; !slices.Equal(r.Texts, want) || r.Report.Status != "completed" {
			t.Errorf("the user heard %q, status %s", r.Texts, r.Report.Status)
		}
		if ran := a.Of("t124", conversation.ToolExecuted); len(ran) != 1 || ran[0].Tool.IsError {
			t.Errorf("tools: %+v", ran)
		}
		a.Say("t124", "and now?")
		asked := a.Prompts("t124")
		if len(asked) != 4 || strings.Contains(fmt.Sprint(asked), "forbidden") {
			t.Fatalf("a model was asked %v", asked)
		}
		for i := 1; i < 4; i++ { // the quiet call, the next iteration, the next turn
			if !slices.ContainsFunc(asked[i], func(m map[string]any) bool { return m["role"] == "assistant" && m["content"] == outgoingRejected }) {
				t.Errorf("request %d does not show the fallback: %v", i, asked[i])
			}
		}
	})
	t.Run("T124 a rejected question still waits for its answer", func(t *testing.T) {
		a.Next("t124 ask", apptest.Call("order", map[string]any{"item": "forbidden tea"}))
		if r := a.Say("t124 ask", "tea"); !slices.Equal(r.Texts, []string{outgoingRejected}) {
			t.Errorf("the user heard %q", r.Texts)
		}
		a.Next("t124 ask", apptest.Call("resolve_tool_confirmation", map[string]any{"confirmed": true}))
		a.Say("t124 ask", "yes")
		if kinds := a.Kinds("t124 ask"); !slices.Contains(kinds, "confirmation_requested") || !slices.Contains(kinds, "confirmation_resolved") {
			t.Errorf("the record has %v", kinds)
		}
	})
	t.Run("T125 a hook that rejects everything gives one fallback a text, which it is not asked about", func(t *testing.T) {
		a.Next("all", apptest.SaysAndCalls("first", apptest.C{Name: "look", Args: map[string]any{"text": "a"}}), apptest.Says("second"), apptest.Says("third"))
		r := a.Say("all", "hi")
		if want := []string{outgoingRejected, outgoingRejected, outgoingRejected}; !slices.Equal(r.Texts, want) || r.Report.Status != "completed" {
			t.Errorf("the user heard %q, status %s", r.Texts, r.Report.Status)
		}
		if asked := notedTexts(a, "asked", "all"); !slices.Equal(asked, []string{"first", "second", "third"}) {
			t.Errorf("it was asked about %q", asked)
		}
		if seen := notedTexts(a, "seen", "all"); !slices.Equal(seen, []string{"first", outgoingRejected, "second", outgoingRejected, "third", outgoingRejected}) {
			t.Errorf("observers saw %q", seen)
		}
	})
}

// otherSpelling is the outgoing point under its later name, from the other
// system's module.
const otherSpelling = `from __future__ import annotations

from belay.hooks import OutgoingTextPayload, modify_outgoing_text, on_outgoing_text
from rasa.mantle.hooks import HookRejection, OutgoingMessagePayload, modify_outgoing_message, on_outgoing_message
from lib.probe import note

assert OutgoingMessagePayload is OutgoingTextPayload


@on_outgoing_message(timeout_ms=5000)
async def later(p: OutgoingMessagePayload) -> None:
    note("later", text=p.text)


@on_outgoing_text(timeout_ms=5000)
async def earlier(p: OutgoingMessagePayload) -> None:
    note("earlier", text=p.text)


@modify_outgoing_message(timeout_ms=5000)
async def check(p: OutgoingTextPayload) -> OutgoingMessagePayload:
    if p.text == "ok":
        raise HookRejection(reason="no")
    return OutgoingMessagePayload(text=p.text + " +")
`

func TestOutgoingSpellings(t *testing.T) {
	t.Parallel()
	const earlier, later = "  utter_outgoing_text_rejected:\n    - text: Earlier.\n", "  utter_outgoing_message_rejected:\n    - text: Later.\n"
	for _, c := range []struct{ name, responses, want string }{
		{"T53 the fallback under the hook's later name", "", outgoingRejected},
		{"T53 the fallback can be replaced", "responses:\n" + earlier, "Earlier."},
		{"T120 it can be replaced under its later name", "responses:\n" + later, "Later."},
		{"T120 of two the later spelling is used", "responses:\n" + later + earlier, "Later."},
	} {
		a := apptest.Start(t, apptest.Files{"hooks.py": otherSpelling, "responses.yml": c.responses})
		r := a.Say("s", "hi")
		t.Run(c.name, func(t *testing.T) {
			if !slices.Equal(r.Texts, []string{c.want}) {
				t.Errorf("the user heard %q, want %q", r.Texts, c.want)
			}
		})
		if c.responses != "" {
			continue
		}
		t.Run("T120 both names stand at one point", func(t *testing.T) {
			a.Next("t", apptest.Says("hello"))
			before := len(a.Notes())
			if r := a.Stream("t", "hi"); !slices.Equal(r.Order, []string{"text:hello +"}) {
				t.Errorf("sent: %q", r.Order)
			}
			noted := a.Noted()[before:]
			slices.Sort(noted)
			if !slices.Equal(noted, []string{"earlier", "later"}) {
				t.Errorf("observers: %v", noted)
			}
			raw, err := json.Marshal(a.Trace("t")[0].Lines)
			if err != nil || !strings.Contains(string(raw), `"point":"outgoing_text"`) || strings.Contains(string(raw), "outgoing_message") {
				t.Errorf("the trace says %s", raw)
			}
		})
	}
	t.Run("T120 a modify hook under each name is a double registration", func(t *testing.T) {
		dir := apptest.Folder(t, apptest.Files{"hooks/one.py": otherSpelling, "hooks/two.py": `from belay.hooks import OutgoingTextPayload, modify_outgoing_text


@modify_outgoing_text()
async def again(p: OutgoingTextPayload) -> OutgoingTextPayload:
    return p
`})
		findings, _, err := app.Check(t.Context(), app.Config{Dir: dir})
		if err != nil || len(findings) != 1 {
			t.Fatalf("findings %+v, %v", findings, err)
		}
		f, first := findings[0], fmt.Sprintf("hooks/one.py:%d", marked(otherSpelling, "@modify_outgoing_message")[0])
		if f.Rule != "double-modify" || f.File != "hooks/two.py" || f.Line != 4 || !strings.Contains(f.Message, first) {
			t.Errorf("finding %+v does not name %s", f, first)
		}
		if _, err := app.Open(t.Context(), app.Config{Dir: dir}); err == nil {
			t.Error("the agent serves")
		}
	})
}
