package tests

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/internal/app/apptest"
	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/conversation"
	"github.com/belay-run/belay/internal/turn"
)

const (
	capReached = "I'm sorry, but I couldn't finish that. Please try again, perhaps in smaller steps."
	threeTurns = "agent:\n  id: test\n  persona: You are a test.\nbelay:\n  limits:\n    iterations: 3\n"
)

// completes answers with a completion as it is.
func completes(r chat.Response) apptest.Answer {
	return func(context.Context, chat.Request, func(string)) (chat.Response, error) { return r, nil }
}

func TestModelResponse(t *testing.T) {
	t.Parallel()
	a := startPlayed(t, nil, counter, playedHooks(longLimit, append(slices.Clone(modelHooks), "modify_tool_call", "modify_outgoing_text")...),
		apptest.Files{"agent.yml": threeTurns})
	count := func(to int) apptest.C { return apptest.C{Name: "count", Args: map[string]int{"to": to}} }
	counted := func(sender string) []any {
		out := []any{}
		for _, n := range a.notesOf(sender, "tool count") {
			out = append(out, n.Data["to"])
		}
		return out
	}

	t.Run("T100 once an iteration, before a text is sent or a tool runs", func(t *testing.T) {
		a.Next("t100", apptest.SaysAndCalls("a moment", count(1)), apptest.Says("done"))
		r := a.turn(t, "t100", "hello", nil)
		expect(t, "the user heard", r.Texts, []string{"a moment", "done"})
		expect(t, "hooks and tools", a.asked("t100", "modify_model_response", "modify_tool_call", "modify_outgoing_text", "tool count"), []string{
			"modify_model_response", "modify_tool_call", "modify_outgoing_text", "tool count", "modify_model_response", "modify_outgoing_text"})
		expect(t, "observers", len(a.notesOf("t100", "on_model_response")), 2)
	})

	t.Run("T100 nothing is sent or run while the hook decides", func(t *testing.T) {
		a.Next("t100 waits", apptest.SaysAndCalls("a moment", count(1)), apptest.Says("done"))
		in := played("t100 waits", "hello", bodies{"modify_model_response": "note('at the gate', sender_id=p.sender_id)\nawait gate('decided')"})
		in.Live = true
		out := &firstOut{at: make(chan string, 10)}
		done := make(chan error, 1)
		go func() { _, err := a.App.Talk(t.Context(), in, out); done <- err }()
		a.waitFor(t, "t100 waits", "at the gate")
		if a.noted(t, "t100 waits", "tool count") || len(out.at) > 0 {
			t.Error("a tool ran or a text was sent")
		}
		a.open(t, "decided")
		if err := awaited(t, done); err != nil {
			t.Fatal(err)
		}
		expect(t, "texts", []string{awaited(t, out.at), awaited(t, out.at)}, []string{"a moment", "done"})
	})

	for _, c := range []struct {
		name, body  string
		answer      apptest.Answer
		heard       []string
		counted     []any
		completions int
	}{
		{"another text", "return p.model_copy(update={'text': 'other'})", apptest.Says("one"), []string{"other"}, nil, 1},
		{"another text in place", "p.text = 'other'", apptest.Says("one"), []string{"other"}, nil, 1},
		{"other arguments", "if p.tool_calls:\n    p.tool_calls[0]['tool_args']['to'] = 9", apptest.Calls(count(1)), []string{"ok"}, []any{9}, 2},
		{"a call is dropped", "if p.tool_calls:\n    del p.tool_calls[0]", apptest.Calls(count(1), count(2)), []string{"ok"}, []any{2}, 2},
		{"a call is added", "if p.text == 'one':\n    return p.model_copy(update={'tool_calls': [{'tool_name': 'count', 'tool_args': {'to': 5}}]})", apptest.Says("one"), []string{"one", "ok"}, []any{5}, 2},
		{"a call becomes a text", "return p.model_copy(update={'text': 'instead', 'tool_calls': []})", apptest.Calls(count(1)), []string{"instead"}, nil, 1},
		{"a text becomes a call", "if p.text == 'one':\n    return p.model_copy(update={'text': None, 'tool_calls': [{'tool_name': 'count', 'tool_args': {'to': 6}}]})", apptest.Says("one"), []string{"ok"}, []any{6}, 2},
		{"another tool", "if p.tool_calls:\n    p.tool_calls[0]['tool_name'] = 'count'", apptest.Call("no_such_tool", map[string]int{"to": 3}), []string{"ok"}, []any{3}, 2},
		{"the filler goes", "if p.tool_calls:\n    p.text = None", apptest.SaysAndCalls("a moment", count(1)), []string{"ok"}, []any{1}, 2},
	} {
		t.Run("T100 what the hook leaves goes on: "+c.name, func(t *testing.T) {
			sender := "t100 " + c.name
			a.Next(sender, c.answer)
			r := a.turn(t, sender, "hello", bodies{"modify_model_response": c.body})
			expect(t, "the user heard", r.Texts, c.heard)
			if c.counted == nil {
				c.counted = []any{}
			}
			expect(t, "the tool got", counted(sender), c.counted)
			expect(t, "completions", len(a.RequestsOf(sender)), c.completions)
		})
	}

	t.Run("T102 fields", func(t *testing.T) {
		sender := "t102"
		text := "with both"
		a.Next(sender, completes(chat.Response{Latency: 1234 * time.Millisecond, ToolCalls: []chat.ToolCall{
			{ID: "c1", Type: "function", Name: "count", Arguments: json.RawMessage(`{"to":1}`)}, {ID: "c2", Name: "count", Arguments: json.RawMessage(`{"to":2}`)}}}),
			completes(chat.Response{Text: &text, Latency: 5 * time.Millisecond}))
		r := a.turn(t, sender, "hello", bodies{"modify_model_response": "return p.model_copy(update={'latency_ms': -1, 'text': (p.text or 'no text') + '!'})"})
		expect(t, "the user heard", r.Texts, []string{"no text!", "with both!"})
		for _, name := range []string{"on_model_response", "modify_model_response"} {
			notes := a.notesOf(sender, name)
			if len(notes) != 2 {
				t.Fatalf("%d notes", len(notes))
			}
			var names []string
			for _, f := range hook.PointNamed(hook.ModelResponse).Fields {
				names = append(names, f.Name)
			}
			for _, n := range notes {
				keys := []string{}
				for k := range n.Data {
					keys = append(keys, k)
				}
				slices.Sort(keys)
				expect(t, "keys", keys, []string{"call", "channel", "latency_ms", "sender_id", "text", "tool_calls"})
				expect(t, "keys of the table", len(names), len(keys))
			}
			expect(t, "first", []any{notes[0].Data["text"], notes[0].Data["latency_ms"], notes[0].Data["tool_calls"]}, []any{nil, 1234, []any{
				map[string]any{"id": "c1", "tool_name": "count", "tool_args": map[string]any{"to": 1}, "type": "function"},
				map[string]any{"id": "c2", "tool_name": "count", "tool_args": map[string]any{"to": 2}}}})
			expect(t, "second", []any{notes[1].Data["text"], notes[1].Data["latency_ms"], notes[1].Data["tool_calls"]}, []any{"with both", 5, []any{}})
		}
		if put := fmt.Sprint(a.runsOf(sender, "modify_model_response")[0].PutBack); put != "[latency_ms]" {
			t.Errorf("put back: %s", put)
		}
	})

	t.Run("T103 RetryModel counts towards the cap", func(t *testing.T) {
		r := a.turn(t, "t103", "hello", bodies{"modify_model_response": "retry('try harder')"})
		expect(t, "completions", len(a.RequestsOf("t103")), 3)
		call := apptest.Calls(count(1))
		a.Next("t103 tools", call, call, call)
		tools := a.turn(t, "t103 tools", "hello", nil)
		expect(t, "completions of a turn of tool calls", len(a.RequestsOf("t103 tools")), 3)
		for _, reply := range []apptest.Reply{r, tools} {
			expect(t, "the user heard", reply.Order, []string{"text:" + capReached})
			expect(t, "the turn", []string{reply.Report.Status, reply.Report.Why}, []string{"error", "iterations"})
		}
		a.Next("t103 mixed", call, apptest.Says("again"), apptest.Says("well"))
		mixed := a.turn(t, "t103 mixed", "hello", bodies{"modify_model_response": "if p.text == 'again':\n    retry('try harder')"})
		expect(t, "a turn that comes through at its last iteration", mixed.Texts, []string{"well"})
		expect(t, "its iterations", iterationsOf(a, "t103 mixed"), []any{0, 1, 2})
		a.Next("t103 late", call, call, apptest.Says("again"), apptest.Says("well"))
		late := a.turn(t, "t103 late", "hello", bodies{"modify_model_response": "if p.text == 'again':\n    retry('try harder')"})
		expect(t, "a retry at the last iteration", late.Texts, []string{capReached})
		if strings.Contains(a.AllRequests(), "try harder") && len(a.RequestsOf("t103 late")) != 3 {
			t.Error("the cap was passed")
		}
	})
	t.Run("T103 RetryModel enters the loop once more", func(t *testing.T) {
		a.Next("t103 once", apptest.SaysAndCalls("wrong", count(1)), apptest.Says("right"))
		r := a.turn(t, "t103 once", "hello", bodies{"modify_model_response": "if p.text == 'wrong':\n    retry('try harder')"})
		expect(t, "the user heard", r.Order, []string{"text:right"})
		expect(t, "the tool got", counted("t103 once"), []any{})
		last := a.Prompts("t103 once")[1]
		expect(t, "last message of the next request", last[len(last)-1], map[string]any{"role": "system", "content": "try harder"})
	})

	t.Run("T104 HookRejection is logged and dropped", func(t *testing.T) {
		a.Next("t104", apptest.SaysAndCalls("a moment", count(1)), apptest.Says("the answer"))
		r := a.turn(t, "t104", "hello", bodies{"modify_model_response": "p.text = 'changed'\np.tool_calls.clear()\nveto('signalled')"})
		expect(t, "the user heard", r.Texts, []string{"a moment", "the answer"})
		expect(t, "the tool got", counted("t104"), []any{1})
		expect(t, "status", r.Report.Status, "completed")
		expect(t, "completions", len(a.RequestsOf("t104")), 2)
		if !logged(a, "dropped", "hook=hooks.py:modify_model_response_hook", "turn="+r.Report.Turn, "file=", "line=") {
			t.Error("the log has no such line")
		}
	})

	for _, c := range slices.Concat(failedHooks, []struct{ name, body string }{
		{"text is a number", "return p.model_copy(update={'text': 5})"},
		{"tool_calls is None", "return p.model_copy(update={'tool_calls': None})"},
		{"a call without a name", "return p.model_copy(update={'tool_calls': [{'tool_args': {}}]})"},
		{"changed in place, then a crash", "p.text = 'changed'\np.tool_calls.clear()\nraise ValueError('x')"},
	}) {
		t.Run("T105 open after "+c.name, func(t *testing.T) {
			sender := "t105 " + c.name
			a.Next(sender, apptest.SaysAndCalls("a moment", count(4)), apptest.Says("the answer"))
			r := a.turn(t, sender, "hello", bodies{"modify_model_response": c.body})
			expect(t, "the user heard", r.Texts, []string{"a moment", "the answer"})
			expect(t, "the tool got", counted(sender), []any{4})
			expect(t, "status", r.Report.Status, "completed")
			if !logged(a, "hook failed", "hook=hooks.py:modify_model_response_hook", "turn="+r.Report.Turn) {
				t.Error("the log has no such line")
			}
		})
	}

	t.Run("T108 the last completion is the one that the hooks are asked with", func(t *testing.T) {
		a.Next("t108", apptest.Empty(), apptest.Says("  "), apptest.Says("at last"))
		a.turn(t, "t108", "hello", nil)
		for _, name := range []string{"on_model_response", "modify_model_response"} {
			notes := a.notesOf("t108", name)
			if len(notes) != 1 || notes[0].Data["text"] != "at last" {
				t.Errorf("%s: %+v", name, notes)
			}
		}
	})
	t.Run("T108 asked once when every completion stays empty", func(t *testing.T) {
		a.Next("t108 empty", apptest.Empty(), apptest.Empty(), apptest.Empty(), apptest.Says("too late"))
		r := a.turn(t, "t108 empty", "hello", nil)
		expect(t, "the user heard", r.Order, []string{"text:" + emptyResponse})
		expect(t, "the turn", []string{r.Report.Status, r.Report.Why}, []string{"error", "empty"})
		expect(t, "hooks", a.asked("t108 empty", "on_model_response", "modify_model_response"), []string{"on_model_response", "modify_model_response"})
		expect(t, "completions", len(a.RequestsOf("t108 empty")), 3)
	})
	t.Run("T108 a hook may fill an empty completion", func(t *testing.T) {
		a.Next("t108 fills", apptest.Empty(), apptest.Empty(), apptest.Empty())
		r := a.turn(t, "t108 fills", "hello", bodies{"modify_model_response": "p.text = 'out of nothing'"})
		expect(t, "the user heard", r.Order, []string{"text:out of nothing"})
	})
	t.Run("T108 not asked when the provider failed", func(t *testing.T) {
		a.Next("t108 fails", apptest.Fails(503))
		r := a.turn(t, "t108 fails", "hello", nil)
		expect(t, "the user heard", r.Order, []string{"text:" + internalError})
		expect(t, "hooks", a.asked("t108 fails", "on_model_response", "modify_model_response"), []string{})
	})
	for name, body := range map[string]string{
		"neither text nor calls": "return p.model_copy(update={'text': None, 'tool_calls': []})",
		"a blank text":           "return p.model_copy(update={'text': ' \\n', 'tool_calls': []})",
	} {
		t.Run("T108 a response that a hook leaves empty ends the turn: "+name, func(t *testing.T) {
			sender := "t108 " + name
			a.Next(sender, apptest.SaysAndCalls("a moment", count(1)), apptest.Says("too late"))
			r := a.turn(t, sender, "hello", bodies{"modify_model_response": body})
			expect(t, "the user heard", r.Order, []string{"text:" + emptyResponse})
			expect(t, "the turn", []string{r.Report.Status, r.Report.Why}, []string{"error", "empty"})
			expect(t, "completions", len(a.RequestsOf(sender)), 1)
			expect(t, "the tool got", counted(sender), []any{})
			if bot := a.Of(sender, conversation.Bot); len(bot) != 1 {
				t.Errorf("the record has %+v", bot)
			}
		})
	}
}

// firstOut tells each text that is sent, and each piece.
type firstOut struct{ at chan string }

func (o *firstOut) Delta(piece string)    { o.at <- "piece " + piece }
func (o *firstOut) Text(u turn.Utterance) { o.at <- u.Text }

// iterationsOf are the iterations that the request hook was told.
func iterationsOf(a playedAgent, sender string) []any {
	var out []any
	for _, n := range a.notesOf(sender, "modify_model_request") {
		out = append(out, n.Data["iteration"])
	}
	return out
}

// runsOf returns the trace's lines on one modify hook's runs in a conversation.
func (a playedAgent) runsOf(sender, name string) []hook.Run {
	a.T.Helper()
	var out []hook.Run
	for _, trace := range a.Trace(sender) {
		for _, l := range trace.Lines {
			for _, r := range l.Runs {
				if r.Name == "hooks.py:"+name+"_hook" {
					out = append(out, r)
				}
			}
		}
	}
	return out
}

func TestStreaming(t *testing.T) {
	t.Parallel()
	holds := []string{"modify_model_response", "modify_tool_call", "modify_outgoing_text"}
	var others []string
	for _, name := range everyHook() {
		if !slices.Contains(holds, name) {
			others = append(others, name)
		}
	}
	answers := []apptest.Answer{
		func(_ context.Context, _ chat.Request, delta func(string)) (chat.Response, error) {
			text := "a moment"
			if delta != nil {
				delta("a ")
				delta("moment")
			}
			return chat.Response{Text: &text, ToolCalls: []chat.ToolCall{{ID: "c1", Name: "count", Arguments: json.RawMessage(`{}`)}}}, nil
		},
		apptest.Pieces("it ", "is ", "done"),
	}
	whole := []string{"text:a moment", "text:it is done"}
	pieces := []string{"piece:a ", "piece:moment", "text:a moment", "piece:it ", "piece:is ", "piece:done", "text:it is done"}

	for _, name := range holds {
		t.Run("T106 one delivery with "+name, func(t *testing.T) {
			t.Parallel()
			a := startPlayed(t, nil, counter, playedHooks(longLimit, name))
			a.Next("t106", answers...)
			expect(t, "sent", a.Stream("t106", "hello").Order, whole)
			a.Next("t106", answers...)
			r := &streamed{}
			in := played("t106", "hello", nil)
			in.Live = true
			if _, err := a.App.Talk(t.Context(), in, r); err != nil {
				t.Fatal(err)
			}
			expect(t, "texts that had streamed", r.streamed, []bool{false, false})
		})
	}

	t.Run("T106 tokens stream live with every other hook", func(t *testing.T) {
		t.Parallel()
		a := startPlayed(t, nil, counter, shelf, playedHooks(longLimit, others...))
		a.Next("t106", answers...)
		expect(t, "sent", a.Stream("t106", "hello").Order, pieces)
		for _, name := range []string{"on_model_response", "on_tool_call", "on_outgoing_text", "modify_model_request", "modify_tool_result"} {
			if len(a.notesOf("t106", name)) == 0 {
				t.Errorf("%s was not asked", name)
			}
		}
		t.Run("T106 a token leaves before the completion is whole", func(t *testing.T) {
			out := &firstOut{at: make(chan string, 10)}
			more := make(chan struct{})
			a.Next("t106 live", func(ctx context.Context, req chat.Request, delta func(string)) (chat.Response, error) {
				if delta == nil {
					return chat.Response{}, errors.New("the text does not stream")
				}
				delta("first")
				return apptest.After(more, apptest.Pieces(" second"))(ctx, req, delta)
			})
			in := played("t106 live", "hello", nil)
			in.Live = true
			done := make(chan error, 1)
			go func() { _, err := a.App.Talk(t.Context(), in, out); done <- err }()
			expect(t, "first piece", awaited(t, out.at), "piece first")
			close(more)
			if err := awaited(t, done); err != nil {
				t.Error(err)
			}
		})
		t.Run("T106 a channel that does not stream gets whole texts", func(t *testing.T) {
			a.Next("t106 whole", answers...)
			expect(t, "sent", a.Say("t106 whole", "hello").Order, whole)
		})
	})

	t.Run("T106 tokens stream live without hooks", func(t *testing.T) {
		t.Parallel()
		a := startPlayed(t, nil, counter)
		a.Next("t106", answers...)
		expect(t, "sent", a.Stream("t106", "hello").Order, pieces)
	})
}

// streamed keeps of each text whether its pieces went out.
type streamed struct{ streamed []bool }

func (*streamed) Delta(string)            {}
func (s *streamed) Text(u turn.Utterance) { s.streamed = append(s.streamed, u.Streamed) }
