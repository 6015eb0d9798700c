package tests

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/belay-run/belay/internal/app/apptest"
	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/conversation"
)

// counter is a tool without ado.
var counter = apptest.Files{"tools.py": `from __future__ import annotations

from belay.tools import ToolContext, ToolResult, tool
from lib.probe import note


@tool(description="Counts.")
async def count(context: ToolContext, to: int = 1) -> ToolResult:
    note("tool count", sender_id=context.sender_id, to=to)
    return ToolResult(llm_response={"counted": to})
`}

const (
	requestHookError = "I'm sorry, but I can't answer right now. Please try again."
	internalError    = "I'm sorry, but something went wrong. Please try again."
	emptyResponse    = "I'm sorry, but I have no answer to that. Could you put it another way?"
)

var modelHooks = []string{"on_model_request", "modify_model_request", "on_model_response", "modify_model_response", "on_turn_finished"}

// toolNames are the tools that a request offers.
func toolNames(r chat.Request) []string {
	var out []string
	for _, t := range r.Tools {
		out = append(out, t.Name)
	}
	return out
}

// failedHooks are bodies of hooks that fail: by a crash, or by what they return.
// None of them has a planted secret as such in its source.
var failedHooks = []struct{ name, body string }{
	{"crash", "raise ValueError('plan' + 'ted secret')"},
	{"exit", "raise SystemExit('plan' + 'ted secret')"},
	{"no return", "return None"},
	{"a dict", "return {'messages': []}"},
	{"another payload", "return hooks.IncomingMessagePayload(text='x')"},
	{"the class", "return type(p)"},
}

func TestModelRequest(t *testing.T) {
	t.Parallel()
	a := startPlayed(t, nil, counter, playedHooks(longLimit, modelHooks...))
	// the hook's own body, and the request that came of it
	hooked := func(t *testing.T, sender, body string) chat.Request {
		t.Helper()
		a.turn(t, sender, "hello", bodies{"modify_model_request": body})
		all := a.RequestsOf(sender)
		if len(all) != 1 {
			t.Fatalf("%d requests", len(all))
		}
		return all[0]
	}

	t.Run("T90 once for each iteration, before the provider is called", func(t *testing.T) {
		a.Next("t90", apptest.Call("count", nil), apptest.Call("count", nil), apptest.Says("done"))
		a.turn(t, "t90", "hello", bodies{"modify_model_request": "return p.model_copy(update={'messages': p.messages + [{'role': 'system', 'content': f'note {p.iteration}'}]})"})
		requests := a.Prompts("t90")
		if len(requests) != 3 {
			t.Fatalf("%d requests", len(requests))
		}
		for _, name := range []string{"on_model_request", "modify_model_request"} {
			var iterations []any
			for i, n := range a.notesOf("t90", name) {
				iterations = append(iterations, n.Data["iteration"])
				expect(t, "messages before the hook", n.Data["messages"], requests[i][:len(requests[i])-1])
			}
			expect(t, name, iterations, []int{0, 1, 2})
		}
		for i, messages := range requests {
			expect(t, "last message", messages[len(messages)-1]["content"], fmt.Sprint("note ", i))
		}
	})

	for _, c := range failedHooks {
		t.Run("T91 not sent after "+c.name, func(t *testing.T) {
			sender := "t91 " + c.name
			r := a.turn(t, sender, "hello", bodies{"modify_model_request": c.body})
			a.refused(t, sender, r, 0)
		})
		t.Run("T91 not sent in a later iteration after "+c.name, func(t *testing.T) {
			sender := "t91 later " + c.name
			a.Next(sender, apptest.Call("count", nil))
			r := a.turn(t, sender, "hello", bodies{"modify_model_request": "if p.iteration == 1:\n    " + c.body})
			a.refused(t, sender, r, 1)
		})
	}

	t.Run("T92 an empty completion is asked for again without the hooks", func(t *testing.T) {
		body := "return p.model_copy(update={'messages': p.messages + [{'role': 'system', 'content': 'hooked', 'extra': 1.5}], 'model_settings': {'seed': 3}})"
		a.Next("t92", apptest.Empty(), apptest.Says(" \n"), apptest.Says("at last"))
		if r := a.turn(t, "t92", "hello", bodies{"modify_model_request": body}); r.Text() != "at last" {
			t.Errorf("the user heard %q", r.Text())
		}
		all := a.RequestsOf("t92")
		if len(all) != 3 || !strings.Contains(string(all[0].Messages), "hooked") {
			t.Fatalf("%d requests", len(all))
		}
		for _, again := range all[1:] {
			expect(t, "a request asked again", again, all[0])
		}
		expect(t, "hooks", a.asked("t92", "on_model_request", "modify_model_request"), []string{"on_model_request", "modify_model_request"})
	})

	t.Run("T92 the same of a later iteration", func(t *testing.T) {
		body := "return p.model_copy(update={'model_settings': {'seed': p.iteration + 5}})"
		a.Next("t92 later", apptest.Call("count", nil), apptest.Empty(), apptest.Says("at last"))
		a.turn(t, "t92 later", "hello", bodies{"modify_model_request": body})
		all := a.RequestsOf("t92 later")
		if len(all) != 3 {
			t.Fatalf("%d requests", len(all))
		}
		expect(t, "a request asked again", all[2], all[1])
		expect(t, "settings", all[1].Settings, map[string]int{"seed": 6})
		expect(t, "times asked", len(a.notesOf("t92 later", "modify_model_request")), 2)
	})

	for _, c := range modelSettings {
		t.Run("T93 model_settings: "+c.name, func(t *testing.T) {
			got := hooked(t, "t93 "+c.name, "return p.model_copy(update={'model_settings': "+c.returned+"})").Settings
			if got == nil {
				got = map[string]json.RawMessage{}
			}
			expect(t, "settings", got, json.RawMessage(c.want))
		})
	}
	t.Run("T93 model_settings start empty and may be changed in place", func(t *testing.T) {
		got := hooked(t, "t93 in place", "p.model_settings['seed'] = 4")
		expect(t, "settings", got.Settings, map[string]int{"seed": 4})
		for _, name := range []string{"on_model_request", "modify_model_request"} {
			expect(t, "at "+name, a.notesOf("t93 in place", name)[0].Data["model_settings"], map[string]any{})
		}
	})
	t.Run("T93 messages are mutable", func(t *testing.T) {
		got := hooked(t, "t93 messages", "p.messages[0]['content'] = 'another persona'\np.messages.pop()\np.messages.append({'role': 'user', 'content': 'bye'})")
		expect(t, "messages", got.Messages, json.RawMessage(`[{"role":"system","content":"another persona"},{"role":"user","content":"bye"}]`))
		expect(t, "the record", a.Of("t93 messages", conversation.User)[0].Text, "hello")
	})

	t.Run("T94 tool_names and iteration are read-only", func(t *testing.T) {
		body := "return p.model_copy(update={'tool_names': ['rob_a_bank'], 'iteration': 7, 'messages': p.messages + [{'role': 'system', 'content': 'kept'}]})"
		a.Next("t94", apptest.Call("rob_a_bank", nil), apptest.Call("count", nil), apptest.Says("done"))
		if r := a.turn(t, "t94", "hello", bodies{"modify_model_request": body}); r.Text() != "done" || r.Report.Status != "completed" {
			t.Errorf("the user heard %q, status %s", r.Text(), r.Report.Status)
		}
		var iterations []any
		for _, n := range a.notesOf("t94", "modify_model_request") {
			iterations = append(iterations, n.Data["iteration"])
			expect(t, "tool_names", n.Data["tool_names"], []string{"count", "listen", "hangup"})
		}
		expect(t, "iterations", iterations, []int{0, 1, 2})
		for i, r := range a.RequestsOf("t94") {
			expect(t, "offered", toolNames(r), []string{"count", "listen", "hangup"})
			if !strings.Contains(string(r.Messages), "kept") {
				t.Errorf("request %d lost what the hook may change", i)
			}
		}
		expect(t, "tools that ran", a.asked("t94", "tool count"), []string{"tool count"})
	})
	t.Run("T94 tool_names changed in place", func(t *testing.T) {
		got := hooked(t, "t94 in place", "p.tool_names.clear()\np.tool_names.append('rob_a_bank')")
		expect(t, "offered", toolNames(got), []string{"count", "listen", "hangup"})
	})

	for _, c := range anyMessages {
		t.Run("T95 messages as they are: "+c.name, func(t *testing.T) {
			got := hooked(t, "t95 "+c.name, "return p.model_copy(update={'messages': "+c.returned+"})")
			if string(got.Messages) != c.want {
				t.Errorf("sent\n  %s\nwant\n  %s", got.Messages, c.want)
			}
		})
	}
	t.Run("T95 an empty list fails as the provider's error", func(t *testing.T) {
		a.Next("t95 empty", apptest.Fails(400))
		r := a.turn(t, "t95 empty", "hello", bodies{"modify_model_request": "return p.model_copy(update={'messages': []})"})
		if all := a.RequestsOf("t95 empty"); len(all) != 1 || string(all[0].Messages) != "[]" {
			t.Errorf("requests %+v", all)
		}
		if r.Text() != internalError || r.Report.Why != "model_error" {
			t.Errorf("the user heard %q, the turn ended for %q", r.Text(), r.Report.Why)
		}
	})

	for signal, raise := range map[string]string{"HookRejection": "veto('signalled')", "RetryModel": "retry('signalled')"} {
		t.Run("T96 "+signal+" is logged and ignored", func(t *testing.T) {
			sender := "t96 " + signal
			a.Next(sender, apptest.Says("the answer"))
			r := a.turn(t, sender, "hello", bodies{"modify_model_request": "p.messages.clear()\np.model_settings['seed'] = 1\n" + raise})
			if r.Text() != "the answer" || r.Report.Status != "completed" {
				t.Errorf("the user heard %q, status %s", r.Text(), r.Report.Status)
			}
			all := a.RequestsOf(sender)
			if len(all) != 1 || all[0].Settings != nil {
				t.Fatalf("requests %+v", all)
			}
			expect(t, "the last good request", a.Prompts(sender)[0], a.notesOf(sender, "modify_model_request")[0].Data["messages"])
			if !logged(a, "dropped", "hook=hooks.py:modify_model_request_hook", "turn="+r.Report.Turn, "file=", "line=") {
				t.Errorf("the log has no such line:\n%s", a.Log())
			}
		})
	}

	t.Run("T97 what a hook changes holds for one iteration", func(t *testing.T) {
		body := `if p.iteration == 0 and p.messages[-1]["content"] == "hello":
    return p.model_copy(update={"messages": [{"role": "user", "content": "for this call alone"}], "model_settings": {"seed": 1}})`
		a.Next("t97", apptest.Call("count", nil), apptest.Says("done"), apptest.Says("done again"))
		a.turn(t, "t97", "hello", bodies{"modify_model_request": body})
		a.turn(t, "t97", "once more", bodies{"modify_model_request": body})
		all, notes := a.RequestsOf("t97"), a.notesOf("t97", "modify_model_request")
		if len(all) != 3 || len(notes) != 3 {
			t.Fatalf("%d requests, %d notes", len(all), len(notes))
		}
		expect(t, "first request", all[0].Messages, json.RawMessage(`[{"role":"user","content":"for this call alone"}]`))
		for i := range all[1:] {
			messages, settings := a.Prompts("t97")[i+1], all[i+1].Settings
			if strings.Contains(string(all[i+1].Messages), "for this call alone") || settings != nil {
				t.Errorf("request %d: %s, settings %v", i+1, all[i+1].Messages, settings)
			}
			expect(t, "messages built anew", []any{messages[0]["role"], messages[1]["content"]}, []any{"system", "hello"})
			expect(t, "what the hook is given", []any{notes[i+1].Data["messages"], notes[i+1].Data["model_settings"]}, []any{messages, map[string]any{}})
		}
	})

	for _, c := range []struct{ name, update string }{
		{"messages None", "{'messages': None}"},
		{"messages a string", "{'messages': 'hello'}"},
		{"messages a dict", "{'messages': {'role': 'user', 'content': 'hello'}}"},
		{"messages of strings", "{'messages': ['hello']}"},
		{"messages with None", "{'messages': p.messages + [None]}"},
		{"messages with a list", "{'messages': [[{'role': 'user', 'content': 'hello'}]]}"},
		{"model_settings None", "{'model_settings': None}"},
		{"model_settings a list", "{'model_settings': [1]}"},
		{"model_settings a number", "{'model_settings': 0.5}"},
		{"model_settings a string", "{'model_settings': '{}'}"},
	} {
		t.Run("T99 a wrong return: "+c.name, func(t *testing.T) {
			r := a.turn(t, "t99 "+c.name, "hello", bodies{"modify_model_request": "return p.model_copy(update=" + c.update + ")"})
			a.refused(t, "t99 "+c.name, r, 0)
			if trace := a.TraceText("t99 " + c.name); !strings.Contains(trace, `"kind":"wrong_return"`) {
				t.Errorf("the trace does not say what it was: %s", trace)
			}
		})
	}
	t.Run("T99 inside a message nothing is checked", func(t *testing.T) {
		got := hooked(t, "t99 inside", "return p.model_copy(update={'messages': [{}, {'role': None, 'content': {'a': [1]}}, {'x': 'y'}]})")
		expect(t, "messages", got.Messages, json.RawMessage(`[{},{"role":null,"content":{"a":[1]}},{"x":"y"}]`))
	})
}

// refused fails the test unless a turn ended because a request hook failed, with
// only that many requests made.
func (a playedAgent) refused(t *testing.T, sender string, r apptest.Reply, requests int) {
	t.Helper()
	if got := len(a.RequestsOf(sender)); got != requests {
		t.Errorf("%d requests, want %d", got, requests)
	}
	expect(t, "the user heard", r.Order, []string{"text:" + requestHookError})
	if r.Report.Status != "error" || r.Report.Why != "hook_error" {
		t.Errorf("status %q, why %q", r.Report.Status, r.Report.Why)
	}
	if notes := a.notesOf(sender, "on_turn_finished"); len(notes) != 1 || notes[0].Data["status"] != "error" {
		t.Errorf("turn finished: %+v", notes)
	}
	if kept := string(mustJSON(t, a.Events(sender))); strings.Contains(kept, "planted secret") {
		t.Error("the exception's text is in the record")
	}
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// logged says whether one line of the log has all the parts.
func logged(a playedAgent, parts ...string) bool {
	for line := range strings.Lines(a.Log()) {
		if !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(line, p) }) {
			return true
		}
	}
	return false
}

var modelSettings = []struct{ name, returned, want string }{
	{"all that count", `{"temperature": 0.25, "top_p": 1, "presence_penalty": -1.5, "frequency_penalty": 2, "max_tokens": 50, "seed": -7, "stop": ["a", "b"]}`,
		`{"frequency_penalty":2,"max_tokens":50,"presence_penalty":-1.5,"seed":-7,"stop":["a","b"],"temperature":0.25,"top_p":1}`},
	{"stop is a string", `{"stop": "END"}`, `{"stop":"END"}`},
	{"stop is an empty list", `{"stop": []}`, `{"stop":[]}`},
	{"zero", `{"temperature": 0, "seed": 0}`, `{"seed":0,"temperature":0}`},
	{"a large whole number", `{"seed": 9007199254740993}`, `{"seed":9007199254740993}`},
	{"true and false are no numbers", `{"temperature": True, "top_p": False, "presence_penalty": True, "frequency_penalty": False, "max_tokens": True, "seed": False, "stop": True}`, `{}`},
	{"strings are no numbers", `{"temperature": "0.5", "max_tokens": "10", "seed": 1}`, `{"seed":1}`},
	{"None", `{"temperature": None, "stop": None, "seed": 1}`, `{"seed":1}`},
	{"not finite", `{"temperature": float("nan"), "top_p": float("inf"), "presence_penalty": float("-inf"), "seed": 1}`, `{"seed":1}`},
	{"no whole numbers", `{"max_tokens": 10.5, "seed": 0.5, "top_p": 0.5}`, `{"top_p":0.5}`},
	{"stop with a number in it", `{"stop": ["a", 1], "seed": 1}`, `{"seed":1}`},
	{"stop with None in it", `{"stop": ["a", None], "seed": 1}`, `{"seed":1}`},
	{"stop of another kind", `{"stop": {"a": 1}, "seed": 1}`, `{"seed":1}`},
	{"lists of numbers", `{"temperature": [0.5], "seed": {"n": 1}, "top_p": 0.5}`, `{"top_p":0.5}`},
	{"keys that do not count", `{"api_key": "k", "model": "m", "provider": "p", "base_url": "http://x", "messages": [], "tools": [], "tool_choice": "none",
     "stream": True, "n": 3, "response_format": {"type": "json_object"}, "top_k": 4, "Temperature": 1, "": 1, "seed": 1}`, `{"seed":1}`},
	{"keys that are no strings", `{1: 2, None: 3, ("a", "b"): 4, "seed": 1}`, `{"seed":1}`},
	{"values without a JSON form", `{"temperature": object(), "stop": ["a", object()], "x": {"y": lambda: 1}, "seed": 1}`, `{"seed":1}`},
}

var anyMessages = []struct{ name, returned, want string }{
	{"roles and contents of any kind", `[{"role": "alien", "content": 7}, {"role": None}, {"content": {"a": [True, None, 1.5]}}]`,
		`[{"role":"alien","content":7},{"role":null},{"content":{"a":[true,null,1.5]}}]`},
	{"extra keys, in their order", `[{"z": 1, "name": "bob", "role": "user", "a": {"y": 1, "x": 2}, "content": "hi", "cache_control": {"type": "ephemeral"}}]`,
		`[{"z":1,"name":"bob","role":"user","a":{"y":1,"x":2},"content":"hi","cache_control":{"type":"ephemeral"}}]`},
	{"an empty message", `[{}]`, `[{}]`},
	{"an empty list", `[]`, `[]`},
	{"large and small numbers", `[{"role": "user", "content": "n", "n": [9007199254740993, -9223372036854775809, 0.1, 1e-7, 123456789012345678901234567890]}]`,
		`[{"role":"user","content":"n","n":[9007199254740993,-9223372036854775809,0.1,1e-7,123456789012345678901234567890]}]`},
	{"letters of all kinds", `[{"role": "user", "content": "Grüße <b> & 'x' \"q\" \\ \n\t \u2028 😀 \x7f"}]`,
		`[{"role":"user","content":"Grüße <b> & 'x' \"q\" \\ \n\t ` + "\u2028" + ` 😀 ` + "\x7f" + `"}]`},
	{"half of a surrogate pair", `[{"role": "user", "content": "\ud83d"}]`, `[{"role":"user","content":"\ud83d"}]`},
	{"words that are no JSON, as text", `[{"role": "user", "content": "NaN Infinity null"}]`, `[{"role":"user","content":"NaN Infinity null"}]`},
	{"tool calls and list-form contents, an assistant last", `[{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "data:"}}]},
     {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "custom", "function": {"name": "f", "arguments": "{ }"}}]}]`,
		`[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"data:"}}]},` +
			`{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"custom","function":{"name":"f","arguments":"{ }"}}]}]`},
	{"a tuple", `({"role": "user", "content": "x"},)`, `[{"role":"user","content":"x"}]`},
}

func TestModelRequestHookOutOfTime(t *testing.T) {
	t.Parallel()
	a := startPlayed(t, nil, counter, playedHooks(300, "modify_model_request", "modify_model_response"), apptest.Files{
		"responses.yml": "responses:\n  utter_model_request_hook_error:\n    - text: Come back later.\n"})

	t.Run("T91 not sent after a timeout, and the response can be replaced", func(t *testing.T) {
		r := a.turn(t, "t91", "hello", bodies{"modify_model_request": "await gate('never')"})
		if len(a.RequestsOf("t91")) > 0 {
			t.Error("the model was asked")
		}
		expect(t, "the user heard", r.Order, []string{"text:Come back later."})
		expect(t, "the turn", []string{r.Report.Status, r.Report.Why}, []string{"error", "hook_error"})
		if !strings.Contains(a.TraceText("t91"), `"kind":"timeout"`) {
			t.Error("the trace does not say what it was")
		}
	})

	t.Run("T105 a response hook that is out of time is open", func(t *testing.T) {
		a.Next("t105", apptest.Says("the answer"))
		r := a.turn(t, "t105", "hello", bodies{"modify_model_response": "p.text = 'changed'\nawait gate('never')"})
		expect(t, "the user heard", r.Order, []string{"text:the answer"})
		expect(t, "status", r.Report.Status, "completed")
		if !strings.Contains(a.TraceText("t105"), `"kind":"timeout"`) {
			t.Error("the trace does not say what it was")
		}
	})
}

func TestEmptyRetriesLimit(t *testing.T) {
	t.Parallel()
	a := startPlayed(t, nil, playedHooks(longLimit, "modify_model_request"),
		apptest.Files{"agent.yml": "agent:\n  id: test\n  persona: You are a test.\nbelay:\n  limits:\n    empty_retries: 0\n"})
	t.Run("T92 an empty completion is not asked for again where the limit says so", func(t *testing.T) {
		a.Next("t92", apptest.Empty(), apptest.Says("too late"))
		r := a.turn(t, "t92", "hello", nil)
		expect(t, "the user heard", r.Order, []string{"text:" + emptyResponse})
		expect(t, "requests", len(a.RequestsOf("t92")), 1)
	})
}
