package tests

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/belay-run/belay/internal/app/apptest"
	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/conversation"
	"github.com/belay-run/belay/internal/server"
	"github.com/belay-run/belay/internal/turn"
)

// incomingHooks turn away a message with "spam", mask one with "secret", and fail
// on some others.
const incomingHooks = `from __future__ import annotations

import asyncio

from belay.hooks import (
    HookRejection,
    IncomingMessagePayload,
    OutgoingTextPayload,
    modify_incoming_message,
    on_incoming_message,
    on_outgoing_text,
)
from lib.probe import note


@on_incoming_message(timeout_ms=5000)
async def see(message: IncomingMessagePayload) -> None:
    note("incoming", **message.model_dump())


@on_outgoing_text(timeout_ms=5000)
async def hear(text: OutgoingTextPayload) -> None:
    note("outgoing", **text.model_dump())


@modify_incoming_message(timeout_ms=1500)
async def guard(message: IncomingMessagePayload) -> IncomingMessagePayload:
    what = message.text.split()[0]
    if "spam" in message.text:
        raise HookRejection(reason="it is spam")
    if what == "crash":
        raise ValueError("secret-exception-text")
    if what == "hang":
        await asyncio.Event().wait()
    if what == "none":
        return None
    if what == "other":
        return OutgoingTextPayload(text="other")
    if what == "shape":
        return IncomingMessagePayload.model_construct(text=5)
    return message.model_copy(update={"text": message.text.replace("secret", "[masked]")})
`

// orderTools are a tool that asks first and one that does not.
const orderTools = `from belay.tools import ToolResult, tool
from lib.probe import note


@tool(description="Orders something.", requires_confirmation=True)
async def order(item: str) -> ToolResult:
    note("order", item=item)
    return ToolResult(llm_response={"ordered": item})


@tool(description="Looks something up.", on_success="utter_looked")
async def look(text: str) -> ToolResult:
    note("look", text=text)
    return ToolResult(llm_response={"found": text})
`

const lookedResponse = "responses:\n  utter_looked:\n    - text: Looked it up.\n      metadata:\n        rephrase: true\n"

// repeats calls a tool with the user's last words, as the model read them.
func repeats(tool string) apptest.Answer {
	return func(ctx context.Context, req chat.Request, delta func(string)) (chat.Response, error) {
		var messages []struct{ Role, Content string }
		if err := json.Unmarshal(req.Messages, &messages); err != nil {
			return chat.Response{}, err
		}
		last := ""
		for _, m := range messages {
			if m.Role == "user" {
				last = m.Content
			}
		}
		return apptest.Call(tool, map[string]any{"text": last})(ctx, req, delta)
	}
}

const (
	incomingRejected = "I'm sorry, but I can't help with that message."
	incomingFailed   = "I'm sorry, but I couldn't process your message. Please try again."
)

// discarded gives the user's message that is marked, and fails when there is not
// just one.
func discarded(t *testing.T, a *apptest.Agent, sender string) conversation.Event {
	t.Helper()
	var out []conversation.Event
	for _, e := range a.Of(sender, conversation.User) {
		if e.Discarded != nil {
			out = append(out, e)
		}
	}
	if len(out) != 1 {
		t.Fatalf("%d messages are marked: %+v", len(out), out)
	}
	return out[0]
}

func TestIncomingRejected(t *testing.T) {
	t.Parallel()
	dir := apptest.Folder(t, apptest.Files{"hooks.py": incomingHooks, "tools/order.py": orderTools, "responses.yml": lookedResponse})
	a := apptest.StartIn(t, dir)

	t.Run("T50 the message stays in the record as said, marked", func(t *testing.T) {
		r := a.Say("t50", "spam for you")
		if r.Text() != incomingRejected || r.Report.Status != "completed" {
			t.Errorf("the user heard %q, status %s", r.Text(), r.Report.Status)
		}
		if e := discarded(t, a, "t50"); e.Text != "spam for you" || *e.Discarded != (conversation.Discarded{By: "rejected", Hook: "hooks.py:guard", Reason: "it is spam"}) {
			t.Errorf("the record has %+v (%+v)", e, e.Discarded)
		}
	})

	t.Run("T50 no model and no tool is asked", func(t *testing.T) {
		a.Next("t50 run", apptest.Call("look", map[string]any{"text": "it"}))
		before := len(a.Notes())
		a.Say("t50 run", "spam, look it up")
		if got := a.Noted()[before:]; len(a.RequestsOf("t50 run")) != 0 || !slices.Equal(got, []string{"incoming", "outgoing"}) {
			t.Errorf("the model was asked %d times; what ran: %v", len(a.RequestsOf("t50 run")), got)
		}
		if kinds := a.Kinds("t50 run"); !slices.Equal(kinds, []string{"session_started", "user", "bot", "bot_turn_ended"}) {
			t.Errorf("the record has %v", kinds)
		}
	})

	t.Run("T50 no later request has any of its text, a quiet one included", func(t *testing.T) {
		a.Say("t50 later", "hello")
		a.Say("t50 later", "spam for you")
		a.Next("t50 later", repeats("look"), apptest.Says("It is looked up."), apptest.Says("There."))
		r := a.Say("t50 later", "look up my name")
		requests := a.RequestsOf("t50 later")
		if len(requests) != 4 || !slices.Equal(r.Texts, []string{"It is looked up.", "There."}) {
			t.Fatalf("%d requests, the user heard %q", len(requests), r.Texts)
		}
		for i, q := range requests {
			if strings.Contains(string(q.Messages), "spam") || strings.Contains(string(q.Messages), "for you") {
				t.Errorf("request %d has it: %s", i, q.Messages)
			}
		}
	})

	t.Run("T50 a pending confirmation stays", func(t *testing.T) {
		a.Next("t50 order", apptest.Call("order", map[string]any{"item": "tea"}))
		a.Say("t50 order", "tea, please")
		if r := a.Say("t50 order", "no spam"); r.Text() != incomingRejected {
			t.Fatalf("the user heard %q", r.Text())
		}
		a.Next("t50 order", apptest.Call("resolve_tool_confirmation", map[string]any{"confirmed": true}), apptest.Says("Ordered."))
		before := len(a.Notes())
		r := a.Say("t50 order", "yes")
		offered := fmt.Sprint(a.RequestsOf("t50 order")[1].Tools)
		if !strings.Contains(offered, "resolve_tool_confirmation") || r.Text() != "Ordered." || !slices.Contains(a.Noted()[before:], "order") {
			t.Errorf("offered %s, the user heard %q, what ran: %v", offered, r.Text(), a.Noted()[before:])
		}
	})

	t.Run("T50 the mark is kept on disk", func(t *testing.T) {
		a.Say("t50 disk", "spam for you")
		a.Close()
		b := apptest.StartIn(t, dir)
		b.Say("t50 disk", "hello")
		if requests := b.AllRequests(); !strings.Contains(requests, "hello") || strings.Contains(requests, "spam") {
			t.Errorf("after a restart the model was asked %s", requests)
		}
	})
}

func TestIncomingReplaced(t *testing.T) {
	t.Parallel()
	a := apptest.Start(t, apptest.Files{"hooks.py": incomingHooks, "responses.yml": `responses:
  utter_incoming_message_rejected:
    - text: Not that.
  utter_incoming_message_hook_error:
    - text: Once more, please.
  utter_session_start:
    - text: Welcome.
      metadata:
        rephrase: true
`})
	for text, want := range map[string]string{"spam for you": "T50 Not that.", "crash now": "T51 Once more, please."} {
		id, want, _ := strings.Cut(want, " ")
		t.Run(id+" the response can be replaced, and is all that the user gets", func(t *testing.T) {
			if r := a.Say(id, text); r.Text() != want || len(a.RequestsOf(id)) != 0 {
				t.Errorf("the user heard %q, the model was asked %d times", r.Text(), len(a.RequestsOf(id)))
			}
		})
	}
}

func TestIncomingFailed(t *testing.T) {
	t.Parallel()
	a := apptest.Start(t, apptest.Files{"hooks.py": incomingHooks, "tools/order.py": orderTools, "responses.yml": lookedResponse})
	for what, kind := range map[string]string{"crash": "crash: ValueError", "hang": "timeout: ", "none": "wrong_return: ", "other": "wrong_return: ", "shape": "wrong_return: "} {
		t.Run("T51 "+what+" is closed", func(t *testing.T) {
			sender, text := "t51 "+what, what+" with some words"
			a.Next(sender, apptest.Call("look", map[string]any{"text": "it"}))
			before := len(a.Notes())
			r := a.Say(sender, text)
			if r.Text() != incomingFailed || r.Report.Status != "error" {
				t.Errorf("the user heard %q, status %s", r.Text(), r.Report.Status)
			}
			if got := a.Noted()[before:]; len(a.RequestsOf(sender)) != 0 || !slices.Equal(got, []string{"incoming", "outgoing"}) {
				t.Errorf("the model was asked %d times; what ran: %v", len(a.RequestsOf(sender)), got)
			}
			e := discarded(t, a, sender)
			if e.Text != text || e.Discarded.By != "hook_error" || e.Discarded.Hook != "hooks.py:guard" || !strings.HasPrefix(e.Discarded.Reason, kind) {
				t.Errorf("the record has %+v (%+v)", e, e.Discarded)
			}
			a.Next(sender, apptest.Says("quiet"), apptest.Says("done")) // the call, its rephrase, the rest
			a.Say(sender, "hello")
			if requests := a.RequestsOf(sender); len(requests) != 3 || strings.Contains(fmt.Sprint(a.Prompts(sender)), "some words") {
				t.Errorf("later requests: %v", a.Prompts(sender))
			}
		})
	}
}

func TestIncomingModified(t *testing.T) {
	t.Parallel()
	a := apptest.Start(t, apptest.Files{"hooks.py": strings.NewReplacer(`note("incoming", **message.model_dump())`, "pass", `"secret"`, `"watchword"`).Replace(incomingHooks),
		"tools/order.py": orderTools, "responses.yml": lookedResponse})
	a.Next("t52", repeats("look"), apptest.Says("It is looked up."), apptest.Says("There."))
	a.Say("t52", "my watchword is 4711")
	a.Say("t52", "and now?")
	// No name in the database's schema has that word in it.
	const new, typed = "my [masked] is 4711", "watchword"

	t.Run("T52 record and export have the new text", func(t *testing.T) {
		events := a.Of("t52", conversation.User)
		if events[0].Text != new || events[0].Discarded != nil || *conversation.Export(events)[0].Text != new {
			t.Errorf("the record has %+v", events[0])
		}
	})
	t.Run("T52 the model and the tools have it, quiet calls and later turns too", func(t *testing.T) {
		asked := a.Prompts("t52")
		if len(asked) != 4 {
			t.Fatalf("requests: %v", asked)
		}
		for i, messages := range asked {
			if text := fmt.Sprint(messages); !strings.Contains(text, new) || strings.Contains(text, typed) {
				t.Errorf("request %d: %s", i, text)
			}
		}
		if !slices.ContainsFunc(a.Notes(), func(n apptest.Note) bool { return n.What == "look" && n.Data["text"] == new }) {
			t.Errorf("the tool was not run with it: %+v", a.Notes())
		}
	})
	t.Run("T52 the words as typed are stored nowhere", func(t *testing.T) {
		metrics := httptest.NewRecorder()
		a.App.Metrics().ServeHTTP(metrics, httptest.NewRequest("GET", "/metrics", nil))
		events, err := json.Marshal(a.Events("t52"))
		if err != nil {
			t.Fatal(err)
		}
		places := map[string]string{"the record": string(events), "the trace": a.TraceText("t52"), "the log": a.Log(), "the metrics": metrics.Body.String()}
		files := 0
		err = filepath.WalkDir(a.Data, func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			files++
			b, err := os.ReadFile(path)
			places[path] = string(b)
			return err
		})
		if err != nil || files == 0 {
			t.Fatalf("%d data files: %v", files, err)
		}
		for where, text := range places {
			if strings.Contains(text, typed) {
				t.Errorf("%s has it", where)
			}
		}
	})
}

func TestIncomingWithoutText(t *testing.T) {
	t.Parallel()
	a := apptest.Start(t, apptest.Files{"hooks.py": incomingHooks})
	const button = `{"button": "yes","n":12345678901234567890,"file":"secret spam.png"}`
	send := func(sender, text string) apptest.Reply {
		r, err := a.Send(context.Background(), server.Inbound{Sender: sender, Message: turn.Message{Text: text, Extra: json.RawMessage(button)}})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	// noted are the hooks asked in one conversation, with their payloads' keys.
	noted := func(sender string) (out []string) {
		for _, n := range a.Notes() {
			if n.Data["sender_id"] == sender {
				var keys []string
				for k := range n.Data {
					keys = append(keys, k)
				}
				slices.Sort(keys)
				out = append(out, fmt.Sprintf("%s %v %v", n.What, n.Data["text"], keys))
			}
		}
		return out
	}
	user := func(sender string) conversation.Event { return a.Of(sender, conversation.User)[0] }

	t.Run("T121 a message without text asks no incoming hook, and passes", func(t *testing.T) {
		if r := send("t121 button", ""); r.Text() != "ok" {
			t.Errorf("the user heard %q", r.Text())
		}
		if got := noted("t121 button"); !slices.Equal(got, []string{"outgoing ok [call channel is_voice sender_id text]"}) {
			t.Errorf("asked: %v", got)
		}
		if e := user("t121 button"); string(e.Extra) != button || e.Text != "" || e.Discarded != nil {
			t.Errorf("the record has %+v", e)
		}
		if last := lastOf(a.Prompts("t121 button")[0]); !strings.Contains(last, `"button": "yes"`) {
			t.Errorf("the model reads %q", last)
		}
		if strings.Contains(a.TraceText("t121 button"), `"asked":1`) {
			t.Error("the trace says that a hook was asked")
		}
	})
	t.Run("T121 of a message with both the hooks see the text, and the rest passes unchanged", func(t *testing.T) {
		send("t121 both", "my secret")
		if got := noted("t121 both"); got[0] != "incoming my secret [call channel sender_id text]" {
			t.Errorf("asked: %v", got)
		}
		if e := user("t121 both"); string(e.Extra) != button || e.Text != "my [masked]" {
			t.Errorf("the record has %+v", e)
		}
	})
	t.Run("T121 also when the text is rejected", func(t *testing.T) {
		send("t121 spam", "spam")
		a.Say("t121 spam", "hello")
		if e := user("t121 spam"); string(e.Extra) != button || e.Discarded == nil {
			t.Errorf("the record has %+v", e)
		}
		if strings.Contains(fmt.Sprint(a.Prompts("t121 spam")), "button") {
			t.Error("a model request has what came with the rejected text")
		}
	})
	t.Run("T121 a turn that says nothing asks no outgoing hook", func(t *testing.T) {
		a.Next("t121 listen", apptest.Calls(apptest.C{Name: "listen"}))
		if r := a.Say("t121 listen", "hello"); len(r.Texts) != 0 {
			t.Errorf("the user heard %q", r.Texts)
		}
		if got := noted("t121 listen"); !slices.Equal(got, []string{"incoming hello [call channel sender_id text]"}) {
			t.Errorf("asked: %v", got)
		}
	})
}
