package tests

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/belay-run/belay/internal/app/apptest"
	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/conversation"
)

const toolCallHookError = "I'm sorry, but I couldn't carry that out. Nothing has been done. Please try again."

// batch is a text and three calls, each with arguments of its own.
func batch(text string) apptest.Answer {
	return apptest.SaysAndCalls(text,
		apptest.C{Name: "first", Args: map[string]any{"item": "one"}, ID: "id-1"},
		apptest.C{Name: "second", Args: map[string]any{"item": "two"}, ID: "id-2"},
		apptest.C{Name: "third", Args: map[string]any{"item": "three"}, ID: "id-3"})
}

func TestBatch(t *testing.T) {
	t.Parallel()
	a := startPlanned(t, apptest.Files{"tools/simple.py": simpleTools})

	t.Run("T30 each call is put to the hooks in order, before any tool runs", func(t *testing.T) {
		a.Next("t30", batch("Let me see."))
		a.say(t, "t30", "go", plan{"tool_call second": doUpdate(map[string]any{"arguments": map[string]any{"item": "2"}})})
		wantSame(t, "what ran", a.noted("t30", "see tool_call", "modify tool_call", "final tool_call", "tool "), []string{
			"see tool_call first", "modify tool_call first", "final tool_call first",
			"see tool_call second", "modify tool_call second", "final tool_call second",
			"see tool_call third", "modify tool_call third", "final tool_call third",
			"tool first", "tool second", "tool third"})
		var items []any
		for _, n := range a.notes("t30", "see tool_call", "modify tool_call") {
			items = append(items, n.Data["arguments"].(map[string]any)["item"])
		}
		wantSame(t, "each call's own payload", items, []string{"one", "one", "two", "two", "three", "three"})
	})

	t.Run("T30 before a batch that only listens is routed", func(t *testing.T) {
		for name, c := range map[string]struct {
			from, to string
			ran      []string
			why      string
		}{
			"listen becomes a tool": {"listen", "first", []string{"tool first"}, "said"},
			"a tool becomes listen": {"first", "listen", nil, "listen"},
		} {
			t.Run(name, func(t *testing.T) {
				sender := "t30 " + name
				a.Next(sender, apptest.Call(c.from, map[string]any{}))
				r := a.say(t, sender, "go", plan{"tool_call " + c.from: doUpdate(map[string]any{"tool_name": c.to})})
				wantSame(t, "what ran", a.noted(sender, "tool "), c.ran)
				if r.Report.Why != c.why {
					t.Errorf("the turn ended as %q, want %q", r.Report.Why, c.why)
				}
			})
		}
	})

	t.Run("T31 nothing is dispatched when the last call of a batch fails", func(t *testing.T) {
		a.Next("t31", batch("Let me see."))
		a.say(t, "t31", "go", plan{"tool_call third": doCrash("no")})
		wantSame(t, "what ran", a.noted("t31", "tool "), nil)
		if got := a.runs("t31"); len(got) != 0 {
			t.Errorf("tool events: %+v", got)
		}
		wantSame(t, "calls that were begun", len(a.Of("t31", conversation.ToolBatch)), 0)
	})

	t.Run("T33 a retry for any call discards the batch and steers the next request", func(t *testing.T) {
		a.Next("t33", batch("A draft."), apptest.Says("Better."))
		r := a.say(t, "t33", "go", plan{"tool_call second": doRetry("Ask for the item first.")})
		wantSame(t, "texts", r.Texts, []string{"Better."})
		wantNone(t, "what was sent", strings.Join(r.Order, "\n"), "draft", "Ask for the item")
		wantSame(t, "what ran", a.noted("t33", "tool "), nil)
		last := a.prompt(t, "t33", 1)
		wantSame(t, "last message of the next request", last[len(last)-1], map[string]any{"role": "system", "content": "Ask for the item first."})
		if r.Report.Status != "completed" {
			t.Errorf("status %s", r.Report.Status)
		}
	})

	t.Run("T39 nothing is left of a batch that was discarded", func(t *testing.T) {
		a.Next("t39", batch("A draft."), apptest.Says("Better."), apptest.Says("Again."))
		a.say(t, "t39", "go", plan{"tool_call third": doRetry("No.")})
		a.say(t, "t39", "and now", nil)
		wantDiscarded(t, a, "t39", "draft", "id-1", "first")
	})

	t.Run("T39 nothing is left of a response that was discarded", func(t *testing.T) {
		a.Next("t39r", batch("A draft."), apptest.Says("Better."))
		a.say(t, "t39r", "go", plan{"model_response": doRetry("No.")})
		a.Next("t39r", apptest.Says("Again."))
		a.say(t, "t39r", "and now", nil)
		wantDiscarded(t, a, "t39r", "draft", "id-1", "first")
		wantSame(t, "what ran", a.noted("t39r", "tool "), nil)
	})

	t.Run("T38 the preflight stops at the first call that does not pass", func(t *testing.T) {
		for name, step := range map[string]any{"retry": doRetry("no"), "crash": doCrash("no"), "timeout": doSleep(), "wrong return": doReturn(nil)} {
			t.Run(name, func(t *testing.T) {
				sender := "t38 " + name
				a.Next(sender, batch("A draft."))
				a.say(t, sender, "go", plan{"tool_call second": step})
				wantSame(t, "hooks asked", a.noted(sender, "see tool_call", "modify tool_call", "final tool_call", "tool "), []string{
					"see tool_call first", "modify tool_call first", "final tool_call first", "see tool_call second", "modify tool_call second"})
			})
		}
	})

	t.Run("T34 a failed hook is closed", func(t *testing.T) {
		for name, step := range map[string]any{"crash": doCrash("planted-exception-text"), "timeout": doSleep(), "wrong return": doReturn("planted-exception-text")} {
			t.Run(name, func(t *testing.T) {
				sender := "t34 " + name
				a.Next(sender, batch("A draft."))
				r := a.say(t, sender, "go", plan{"tool_call second": step})
				wantSame(t, "what was sent", r.Order, []string{"text:" + toolCallHookError})
				if r.Report.Status != "error" {
					t.Errorf("status %s", r.Report.Status)
				}
				wantSame(t, "what ran", a.noted(sender, "tool "), nil)
				wantSame(t, "requests", len(a.Prompts(sender)), 1)
				a.say(t, sender, "and now", nil)
				wantNone(t, "a request", inJSON(a.Prompts(sender)), "draft", "planted-exception-text")
				wantNone(t, "the record", inJSON(a.Events(sender)), "draft", "planted-exception-text")
			})
		}
	})

	t.Run("T36 ids, types and the batch are the engine's", func(t *testing.T) {
		a.Next("t36", apptest.Calls(
			apptest.C{Name: "first", Args: map[string]any{"item": "one"}, ID: "engine-id-1", Type: "engine-type-1"},
			apptest.C{Name: "second", Args: map[string]any{"item": "two"}, ID: "engine-id-2", Type: "engine-type-2"}),
			apptest.Calls(apptest.C{Name: "third", ID: "engine-id-3"}))
		a.say(t, "t36", "go", plan{
			"tool_call first":   doUpdate(map[string]any{"tool_name": "third", "arguments": map[string]any{"item": "changed"}}),
			"tool_result third": doUpdate(map[string]any{"value": "changed", "arguments": map[string]any{"item": "hidden"}, "is_error": true}),
		})
		got := a.runs("t36")
		if len(got) != 3 {
			t.Fatalf("tool events: %+v", got)
		}
		for i, want := range []struct{ name, id, kind, batch string }{
			{"third", "engine-id-1", "engine-type-1", "0-engine-id-1"},
			{"second", "engine-id-2", "engine-type-2", "0-engine-id-1"},
			{"third", "engine-id-3", "function", "1-engine-id-3"},
		} {
			if r := got[i]; r.Name != want.name || r.CallID != want.id || r.CallType != want.kind || r.BatchID != want.batch {
				t.Errorf("tool event %d: %+v, want %+v", i, r, want)
			}
		}
		replayed := a.prompt(t, "t36", 1)
		calls := inJSON(replayed)
		for _, want := range []string{
			`{"function":{"arguments":"{\"item\":\"hidden\"}","name":"third"},"id":"engine-id-1","type":"engine-type-1"}`,
			`"tool_call_id":"engine-id-1"`, `"id":"engine-id-2","type":"engine-type-2"`,
		} {
			if !strings.Contains(calls, want) {
				t.Errorf("the next request lacks %s\n%s", want, calls)
			}
		}
		shown := a.notes("t36", "see tool_call", "modify tool_call", "see tool_result", "modify tool_result")
		if len(shown) != 12 {
			t.Errorf("%d payloads were shown, want 12", len(shown))
		}
		wantNone(t, "a payload", inJSON(shown), "engine-id", "engine-type")
	})
}

// wantDiscarded looks for what must not be left of a draft in the record and in
// any request after the first.
func wantDiscarded(t *testing.T, a planned, sender string, planted ...string) {
	t.Helper()
	for _, e := range a.Events(sender) {
		switch e.Kind {
		case conversation.ToolBatch, conversation.ToolExecuted:
			t.Errorf("event %+v", e)
		}
	}
	wantNone(t, "the record", inJSON(a.Events(sender)), planted...)
	prompts := a.Prompts(sender)
	if len(prompts) < 3 {
		t.Fatalf("%d requests", len(prompts))
	}
	wantNone(t, "a later request", inJSON(prompts[1:]), planted...)
}

// The only hook that decides stands at the tool call, so nothing but that hook
// holds a text back.
func TestToolCallHookAlone(t *testing.T) {
	t.Parallel()
	a := startPlanned(t, apptest.Files{"tools/simple.py": simpleTools,
		"hooks.py": `from belay.hooks import ToolCallPayload, modify_tool_call
from lib.plan import follow


@modify_tool_call(timeout_ms=2000)
async def plan_call(p: ToolCallPayload) -> ToolCallPayload:
    return await follow("tool_call", p)
`,
		"responses.yml": "responses:\n  utter_tool_call_hook_error:\n    - text: The shop is closed.\n"})

	t.Run("T34 the text can be replaced, and no other text is sent", func(t *testing.T) {
		a.Next("t34", batch("A draft."))
		r := a.say(t, "t34", "go", plan{"tool_call second": doCrash("no")})
		wantSame(t, "what was sent", r.Order, []string{"text:The shop is closed."})
	})

	t.Run("T33 no text of a discarded batch is sent", func(t *testing.T) {
		a.Next("t33", batch("A draft."), apptest.Says("Better."))
		r := a.say(t, "t33", "go", plan{"tool_call second": doRetry("No.")})
		wantSame(t, "what was sent", r.Order, []string{"text:Better."})
	})
}

func TestToolCallPayload(t *testing.T) {
	t.Parallel()
	a := startPlanned(t, apptest.Files{"tools/simple.py": simpleTools})

	t.Run("T110 the payload has these fields and no id or type", func(t *testing.T) {
		a.Next("t110", apptest.Calls(apptest.C{Name: "first", Args: map[string]any{"item": "one"}, ID: "engine-id", Type: "engine-type"}))
		a.say(t, "t110", "go", nil)
		notes := a.notes("t110", "see tool_call", "modify tool_call")
		if len(notes) != 2 {
			t.Fatalf("%d payloads", len(notes))
		}
		for _, n := range notes {
			n.Data["channel"] = nil
			wantSame(t, n.What, n.Data, map[string]any{"sender_id": "t110", "call": map[string]any{}, "channel": nil,
				"tool_name": "first", "arguments": map[string]any{"item": "one"}, "headers": map[string]any{}})
		}
	})

	t.Run("T110 name, arguments and headers are mutable; headers go nowhere", func(t *testing.T) {
		a.Next("t110m", apptest.Call("first", map[string]any{"item": "one"}))
		r := a.say(t, "t110m", "go", plan{"tool_call first": doUpdate(map[string]any{"tool_name": "second",
			"arguments": map[string]any{"item": "two", "card": "7"}, "headers": map[string]any{"x-planted": "planted-header"}})})
		wantSame(t, "what ran", a.noted("t110m", "tool "), []string{"tool second"})
		wantSame(t, "its arguments", a.notes("t110m", "tool ")[0].Data["arguments"], map[string]any{"item": "two", "card": "7"})
		final := a.notes("t110m", "final tool_call")
		wantSame(t, "the headers that went on", final[0].Data["headers"], map[string]any{"x-planted": "planted-header"})
		if r.Report.Status != "completed" {
			t.Errorf("status %s", r.Report.Status)
		}
		wantNone(t, "a request", inJSON(a.Prompts("t110m")), "planted-header")
		wantNone(t, "the record", inJSON(a.Events("t110m")), "planted-header")
		wantNone(t, "the trace", a.TraceText("t110m"), "planted-header")
	})

	t.Run("T111 a rejection is logged and dropped", func(t *testing.T) {
		a.Next("t111", batch("Let me see."), apptest.Says("Done."))
		r := a.say(t, "t111", "go", plan{"tool_call second": doReject("planted-rejection")})
		wantSame(t, "what ran", a.noted("t111", "tool "), []string{"tool first", "tool second", "tool third"})
		wantSame(t, "texts", r.Texts, []string{"Let me see.", "Done."})
		for _, want := range []string{"planted-rejection", "hooks.py:plan_call"} {
			if !strings.Contains(a.Log(), want) {
				t.Errorf("the log lacks %q", want)
			}
		}
		wantNone(t, "a request", inJSON(a.Prompts("t111")), "planted-rejection")
	})

	t.Run("T112 a name that was not offered is answered like one that the model made up", func(t *testing.T) {
		answer := func(sender string, c apptest.C, p plan) string {
			a.Next(sender, apptest.Calls(c))
			a.say(t, sender, "go", p)
			wantSame(t, "what ran", a.noted(sender, "tool "), nil)
			got := a.runs(sender)
			if len(got) != 1 || !got[0].IsError {
				t.Fatalf("tool events: %+v", got)
			}
			wantSame(t, "the tool messages", toolMessages(a.prompt(t, sender, 1)), []string{got[0].Result})
			return got[0].Result
		}
		for _, name := range []string{"nowhere", "activate", "resolve_tool_confirmation", "search_knowledge", ""} {
			t.Run("name "+name, func(t *testing.T) {
				made := answer("t112 made "+name, apptest.C{Name: name, Args: map[string]any{"confirmed": true}}, nil)
				renamed := answer("t112 renamed "+name, apptest.C{Name: "first"},
					plan{"tool_call first": doUpdate(map[string]any{"tool_name": name, "arguments": map[string]any{"confirmed": true}})})
				wantSame(t, "the answer", renamed, made)
				wantSame(t, "the answer to any such name", made, fmt.Sprintf("Error: there is no tool named %q. Nothing was done.", name))
			})
		}
	})

	t.Run("T107 a search that was not offered does not set the latch", func(t *testing.T) {
		a.Next("t107", apptest.Call("search_knowledge", map[string]any{"query": "garden"}))
		a.say(t, "t107", "go", nil)
		wantNone(t, "the next request", inJSON(a.prompt(t, "t107", 1)), "documents were searched")
		wantSame(t, "hooks asked", a.noted("t107", "see knowledge", "modify knowledge"), nil)
	})

	t.Run("T112 the batch is routed by the names as the hooks left them", func(t *testing.T) {
		a.Next("t112h", apptest.Call("first", nil))
		r := a.say(t, "t112h", "go", plan{"tool_call first": doUpdate(map[string]any{"tool_name": "hangup", "arguments": map[string]any{}})})
		if !r.Report.Ended || len(a.Of("t112h", conversation.SessionEnded)) != 1 {
			t.Errorf("the session goes on: %+v", a.Kinds("t112h"))
		}
	})

	t.Run("T112 arguments that a hook puts in the place of broken ones count", func(t *testing.T) {
		a.Next("t112b", apptest.Calls(apptest.C{Name: "first", Args: json.RawMessage(`["broken"]`)}, apptest.C{Name: "second", Args: json.RawMessage(`"broken"`)}))
		a.say(t, "t112b", "go", plan{"tool_call first": doUpdate(map[string]any{"arguments": map[string]any{"item": "mended"}})})
		wantSame(t, "what ran", a.noted("t112b", "tool "), []string{"tool first"})
		wantSame(t, "its arguments", a.notes("t112b", "tool ")[0].Data["arguments"], map[string]any{"item": "mended", "card": ""})
		if got := a.runs("t112b"); len(got) != 2 || got[0].IsError || !got[1].IsError {
			t.Errorf("tool events: %+v", got)
		}
	})

	t.Run("T112 the same holds for a name that a response hook gives", func(t *testing.T) {
		a.Next("t112r", apptest.Call("first", nil))
		a.say(t, "t112r", "go", plan{"model_response": doUpdate(map[string]any{
			"tool_calls": []any{map[string]any{"tool_name": "nowhere", "tool_args": map[string]any{}}}})})
		got := a.runs("t112r")
		if len(got) == 0 || !got[0].IsError || got[0].Name != "nowhere" {
			t.Errorf("tool events: %+v", got)
		}
		wantSame(t, "what ran", a.noted("t112r", "tool "), nil)
	})
}

func TestModelResponsePayload(t *testing.T) {
	t.Parallel()
	a := startPlanned(t, apptest.Files{"tools/simple.py": simpleTools})
	only := func(fields map[string]any) plan { return plan{"model_response": doUpdate(fields)} }

	t.Run("T102 text and tool calls as the model gave them", func(t *testing.T) {
		a.Next("t102", func(context.Context, chat.Request, func(string)) (chat.Response, error) {
			return chat.Response{Latency: 12 * time.Millisecond, ToolCalls: []chat.ToolCall{
				{ID: "id-1", Type: "some-type", Name: "first", Arguments: json.RawMessage(`{"item":"one"}`)},
				{ID: "id-2", Name: "second", Arguments: json.RawMessage(`{}`)}}}, nil
		}, apptest.Says("Done."))
		a.say(t, "t102", "go", nil)
		notes := a.notes("t102", "modify model_response")
		if len(notes) != 2 {
			t.Fatalf("%d responses were shown", len(notes))
		}
		for _, n := range notes {
			n.Data["channel"] = nil
		}
		wantSame(t, "the first response", notes[0].Data, map[string]any{"sender_id": "t102", "call": map[string]any{}, "channel": nil, "text": nil, "latency_ms": 12,
			"tool_calls": []any{
				map[string]any{"id": "id-1", "type": "some-type", "tool_name": "first", "tool_args": map[string]any{"item": "one"}},
				map[string]any{"id": "id-2", "tool_name": "second", "tool_args": map[string]any{}}}})
		wantSame(t, "the second response", []any{notes[1].Data["text"], notes[1].Data["tool_calls"]}, []any{"Done.", []any{}})
	})

	t.Run("T102 text is mutable, latency is not", func(t *testing.T) {
		a.Next("t102m", apptest.Says("Draft."))
		r := a.say(t, "t102m", "go", only(map[string]any{"text": "Final.", "latency_ms": 99999}))
		wantSame(t, "texts", r.Texts, []string{"Final."})
		if trace := a.TraceText("t102m"); !strings.Contains(trace, `"put_back":["latency_ms"]`) {
			t.Errorf("the trace does not say that the latency was put back: %s", trace)
		}
	})

	t.Run("T102 tool calls are mutable, and text may become None", func(t *testing.T) {
		a.Next("t102c", apptest.SaysAndCalls("Draft.", apptest.C{Name: "first"}))
		r := a.say(t, "t102c", "go", only(map[string]any{"text": nil, "tool_calls": []any{
			map[string]any{"tool_name": "listen", "tool_args": map[string]any{}}}}))
		wantSame(t, "what was sent", r.Order, nil)
		wantSame(t, "what ran", a.noted("t102c", "tool "), nil)
		if r.Report.Why != "listen" {
			t.Errorf("the turn ended as %q", r.Report.Why)
		}
	})

	t.Run("T102 a text becomes a call", func(t *testing.T) {
		a.Next("t102t", apptest.Says("I would call the first."))
		a.say(t, "t102t", "go", only(map[string]any{"text": nil, "tool_calls": []any{
			map[string]any{"tool_name": "first", "tool_args": map[string]any{"item": "one"}}}}))
		if got := a.notes("t102t", "tool first"); len(got) == 0 {
			t.Error("the tool did not run")
		} else {
			wantSame(t, "its arguments", got[0].Data["arguments"], map[string]any{"item": "one", "card": ""})
		}
	})

	t.Run("T109 an id that was there keeps its type and its place, a call without one gets a new one", func(t *testing.T) {
		a.Next("t109", apptest.Calls(apptest.C{Name: "first", ID: "id-1", Type: "some-type"}, apptest.C{Name: "second", ID: "id-2"}))
		call := func(name string, more map[string]any) map[string]any {
			c := map[string]any{"tool_name": name, "tool_args": map[string]any{}}
			for k, v := range more {
				c[k] = v
			}
			return c
		}
		a.say(t, "t109", "go", only(map[string]any{"tool_calls": []any{
			call("third", map[string]any{"id": "id-1", "type": "another-type"}),
			call("first", nil), call("first", map[string]any{"id": nil}), call("first", map[string]any{"id": ""}),
			call("listen", map[string]any{"id": "id-2"})}}))
		var got []conversation.ToolRun
		for _, r := range a.runs("t109") {
			if strings.HasPrefix(r.BatchID, "0-") {
				got = append(got, r)
			}
		}
		if len(got) != 5 {
			t.Fatalf("tool events: %+v", got)
		}
		if r := got[0]; r.CallID != "id-1" || r.CallType != "some-type" || r.Name != "third" {
			t.Errorf("the call that kept its id: %+v", r)
		}
		if r := got[4]; r.CallID != "id-2" || r.CallType != "function" {
			t.Errorf("the other call that kept its id: %+v", r)
		}
		seen := map[string]bool{}
		for i, r := range got {
			if r.CallID == "" || seen[r.CallID] {
				t.Errorf("call %d has id %q", i, r.CallID)
			}
			seen[r.CallID] = true
			if r.BatchID != "0-id-1" {
				t.Errorf("call %d is of batch %q", i, r.BatchID)
			}
		}
		replayed := inJSON(a.prompt(t, "t109", 1))
		for _, r := range got {
			if !strings.Contains(replayed, `"tool_call_id":"`+r.CallID+`"`) {
				t.Errorf("the next request lacks the answer to call %s", r.CallID)
			}
		}
	})

	t.Run("T109 calls that the model made without an id get one", func(t *testing.T) {
		a.Next("t109m", func(context.Context, chat.Request, func(string)) (chat.Response, error) {
			return chat.Response{ToolCalls: []chat.ToolCall{{Name: "first", Arguments: json.RawMessage(`{}`)}, {Name: "second", Arguments: json.RawMessage(`{}`)}}}, nil
		})
		a.say(t, "t109m", "go", nil)
		got := a.runs("t109m")
		if len(got) != 2 || got[0].CallID == "" || got[1].CallID == "" || got[0].CallID == got[1].CallID || got[0].BatchID != "0-"+got[0].CallID || got[1].BatchID != got[0].BatchID {
			t.Errorf("tool events: %+v", got)
		}
	})

	t.Run("T109 calls that cannot be used are a wrong return, which is open", func(t *testing.T) {
		ok := map[string]any{"tool_name": "second", "tool_args": map[string]any{}, "id": "same"}
		for name, calls := range map[string][]any{
			"doubled id":         {ok, ok},
			"no name":            {map[string]any{"tool_args": map[string]any{}}},
			"empty name":         {map[string]any{"tool_name": "", "tool_args": map[string]any{}}},
			"name is no text":    {map[string]any{"tool_name": 7, "tool_args": map[string]any{}}},
			"no arguments":       {map[string]any{"tool_name": "second"}},
			"arguments as text":  {map[string]any{"tool_name": "second", "tool_args": "{}"}},
			"arguments as list":  {map[string]any{"tool_name": "second", "tool_args": []any{}}},
			"arguments are None": {map[string]any{"tool_name": "second", "tool_args": nil}},
			"a call is no dict":  {"second"},
			"one of two":         {ok, map[string]any{"tool_name": "second"}},
		} {
			t.Run(name, func(t *testing.T) {
				sender := "t109 " + name
				a.Next(sender, apptest.SaysAndCalls("Let me see.", apptest.C{Name: "first", ID: "id-1"}), apptest.Says("Done."))
				r := a.say(t, sender, "go", only(map[string]any{"text": "changed", "tool_calls": calls}))
				wantSame(t, "what ran", a.noted(sender, "tool "), []string{"tool first"})
				if len(r.Texts) == 0 || r.Texts[0] != "Let me see." {
					t.Errorf("texts: %q", r.Texts)
				}
				if trace := a.TraceText(sender); !strings.Contains(trace, `"wrong_return"`) {
					t.Error("the trace does not say that it was a wrong return")
				}
			})
		}
	})
}
