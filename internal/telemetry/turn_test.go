package telemetry

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/otel/propagation"
	wire "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/conversation"
	"github.com/belay-run/belay/internal/turn"
)

// script is a model that gives the next of its completions.
type script struct {
	list []chat.Response
	at   int
}

func (s *script) Name() string { return "openai/gpt-test" }

func (s *script) Complete(context.Context, chat.Request, func(string)) (chat.Response, error) {
	s.at++
	return s.list[s.at-1], nil
}

func says(text string) chat.Response {
	return chat.Response{Text: &text, Latency: 20 * time.Millisecond, Usage: chat.Usage{Input: 70, Output: 7}}
}

func calls(name, args string) chat.Response {
	return chat.Response{Latency: 30 * time.Millisecond, Usage: chat.Usage{Input: 50, Output: 5},
		ToolCalls: []chat.ToolCall{{ID: "call_1", Type: "function", Name: name, Arguments: json.RawMessage(args)}}}
}

// tools has one tool, which answers with what it was given and more.
type tools struct{ confirm bool }

func (t tools) List() []turn.Tool {
	return []turn.Tool{{Tool: chat.Tool{Name: "pay", Parameters: json.RawMessage(`{"type":"object"}`)}, Confirm: t.confirm}}
}

func (tools) Run(_ context.Context, c turn.ToolCall) turn.ToolAnswer {
	return turn.ToolAnswer{Outcome: turn.ToolOK, Took: 10 * time.Millisecond, Text: `{"paid": true, "account": "` + plantedResult + `"}`}
}

// words gives every response its own name as text.
type words struct{}

func (words) PickIn(_, name string, _ map[string]any) (string, bool, bool) {
	return "(" + name + ")", false, name != "utter_session_start"
}

type screen struct{ texts []string }

func (*screen) Delta(string)            {}
func (s *screen) Text(u turn.Utterance) { s.texts = append(s.texts, u.Text) }

const (
	plantedTyped  = "4111-typed"
	plantedArg    = "4111-argument"
	plantedResult = "4111-result"
	plantedSaid   = "4111-said"
)

func modify(name, point string, f hook.Func) *hook.Hook {
	return &hook.Hook{Name: "hooks.py:" + name, Point: hook.PointNamed(point), Lane: hook.Modify, Func: f, File: "hooks.py", Line: 7}
}

// masks take every planted value out, where it comes in.
func masks() []*hook.Hook {
	masked := func(field, old string) hook.Func {
		return func(_ context.Context, p hook.Payload) (hook.Verdict, error) {
			return hook.Go(p.Change(field, strings.ReplaceAll(p.Text(field), old, "****"))), nil
		}
	}
	return []*hook.Hook{
		modify("mask", hook.IncomingMessage, masked("text", plantedTyped)),
		modify("hide", hook.OutgoingText, masked("text", plantedSaid)),
		modify("redact", hook.ToolResult, func(_ context.Context, p hook.Payload) (hook.Verdict, error) {
			return hook.Go(p.Change("arguments", map[string]string{"card": "****"}), p.Change("value", map[string]bool{"paid": true})), nil
		}),
	}
}

func agent(t *testing.T, tel *Telemetry, m chat.Model, tools turn.Tools, hooks ...*hook.Hook) *turn.Agent {
	t.Helper()
	engine, err := hook.NewEngine(tel, hooks...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(engine.Wait)
	var ids atomic.Int64
	return &turn.Agent{ID: "shop", Profile: turn.Profile{Persona: "You sell."}, Hooks: engine, Model: m, Tools: tools, Words: words{},
		Logger: tel.logger, Clock: time.Now, NewID: func() string { return fmt.Sprintf("id-%d", ids.Add(1)) }}
}

func talk(t *testing.T, ctx context.Context, tel *Telemetry, a *turn.Agent, rec *conversation.Record, text string) (turn.Report, *screen) {
	t.Helper()
	out := &screen{}
	r, err := a.Run(ctx, rec, turn.Message{Text: text}, out, turn.Options{})
	if err != nil {
		t.Fatal(err)
	}
	tel.Turn(ctx, r)
	return r, out
}

func newTelemetry(t *testing.T, log *logged) *Telemetry {
	t.Helper()
	tel, err := New(context.Background(), Options{Logger: log.logger(), Version: "9.9", Model: "openai/gpt-test", Tools: []string{"pay"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = tel.Shutdown(ctx)
	})
	return tel
}

// parent gives a context with the span of a traceparent header.
func parent(header string) context.Context {
	return propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": header})
}

func record() *conversation.Record {
	return conversation.Of(nil, conversation.ID{Sender: "u-1"}, nil)
}

func TestWhatHooksTakeOutIsNowhere(t *testing.T) {
	collector := newReceiver(t)
	log := &logged{}
	tel := newTelemetry(t, log)
	m := &script{list: []chat.Response{calls("pay", `{"card":"`+plantedArg+`"}`), says("Paid, " + plantedSaid)}}
	r, out := talk(t, context.Background(), tel, agent(t, tel, m, tools{}, masks()...), record(), "pay with "+plantedTyped)
	if r.Status != turn.Completed || len(out.texts) != 1 || out.texts[0] != "Paid, ****" {
		t.Fatalf("status %s, texts %q", r.Status, out.texts)
	}
	closed(t, tel)

	s := collector.named(t, "execute_tool pay")
	wantAttrs(t, s, map[string]string{"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "pay", "gen_ai.tool.call.id": "call_1",
		"gen_ai.tool.call.arguments": `{"card":"****"}`, "gen_ai.tool.call.result": `{"paid": true}`, "belay.tool.outcome": "ok"})
	for name, text := range map[string]string{"a span": collector.received(), "the log": log.String(), "a metric": exposed(t, tel)} {
		if text == "" {
			t.Errorf("%s: there is nothing to look at", name)
		}
		for _, planted := range []string{"4111", "Paid, ", "You sell"} {
			if strings.Contains(text, planted) {
				t.Errorf("%s has %q", name, planted)
			}
		}
	}
}

func TestSpansOfATurn(t *testing.T) {
	collector := newReceiver(t)
	tel := newTelemetry(t, &logged{})
	m := &script{list: []chat.Response{calls("pay", `{}`), says("Paid.")}}
	ctx := parent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	r, _ := talk(t, ctx, tel, agent(t, tel, m, tools{}, masks()...), record(), "pay")
	closed(t, tel)

	root := collector.named(t, "invoke_agent shop")
	if got := fmt.Sprintf("%x/%x", root.TraceId, root.ParentSpanId); got != "0af7651916cd43dd8448eb211c80319c/b7ad6b7169203331" {
		t.Errorf("the turn's parent is %s", got)
	}
	wantAttrs(t, root, map[string]string{"gen_ai.agent.id": "shop", "gen_ai.conversation.id": "u-1", "belay.turn.id": r.Turn, "belay.turn.status": "completed", "belay.turn.why": "said"})
	for key, want := range map[string]string{"service.name": "belay", "service.version": "9.9"} {
		if got := attr(collector.about, key); got != want {
			t.Errorf("the resource's %s is %q", key, got)
		}
	}

	redact := collector.named(t, "hook hooks.py:redact")
	point := collector.named(t, "hooks tool_result")
	wantAttrs(t, redact, map[string]string{"belay.hook.said": "continue", "belay.hook.changed": "arguments,value", "code.file.path": "hooks.py", "code.line.number": "7"})
	wantAttrs(t, point, map[string]string{"belay.hook.point": "tool_result", "belay.hook.asked": "1", "belay.hook.outcome": "continue"})
	if string(redact.ParentSpanId) != string(point.SpanId) || string(point.ParentSpanId) != string(root.SpanId) {
		t.Error("a hook's span is not under its point's, or that not under the turn's")
	}

	var models []*wire.Span
	for _, s := range collector.spans {
		if s.Name == "chat gpt-test" {
			models = append(models, s)
		}
		if s.StartTimeUnixNano < root.StartTimeUnixNano || s.EndTimeUnixNano > root.EndTimeUnixNano || s.EndTimeUnixNano < s.StartTimeUnixNano {
			t.Errorf("span %s lies outside of the turn", s.Name)
		}
	}
	if len(models) != 2 {
		t.Fatalf("there are %d model spans", len(models))
	}
	wantAttrs(t, models[1], map[string]string{"gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": "gpt-test",
		"gen_ai.usage.input_tokens": "70", "gen_ai.usage.output_tokens": "7", "belay.model.purpose": "main", "belay.iteration": "1"})
	if models[0].Kind != wire.Span_SPAN_KIND_CLIENT {
		t.Errorf("a model span is of kind %s", models[0].Kind)
	}
}

func TestSpansOfAConfirmedTool(t *testing.T) {
	collector := newReceiver(t)
	tel := newTelemetry(t, &logged{})
	m := &script{list: []chat.Response{calls("pay", `{"card":"`+plantedArg+`"}`), calls("resolve_tool_confirmation", `{"confirmed":true}`), says("Done.")}}
	a, rec := agent(t, tel, m, tools{confirm: true}, masks()...), record()
	talk(t, context.Background(), tel, a, rec, "pay")
	if n := metric(t, tel, "belay_tool_calls_total", "tool=pay", "outcome=not_run"); n != 1 {
		t.Errorf("the call that waits counts %v times as not run", n)
	}
	talk(t, context.Background(), tel, a, rec, "yes")
	closed(t, tel)
	if n := metric(t, tel, "belay_tool_calls_total", "tool=pay", "outcome=ok"); n != 1 {
		t.Errorf("the confirmed call counts %v times", n)
	}
	if strings.Contains(collector.received(), "4111") {
		t.Error("a span has what the hooks took out")
	}
	found := false
	for _, s := range collector.spans {
		if s.Name == "execute_tool pay" && attr(s.Attributes, "belay.tool.source") == "tool_confirmation" {
			found = true
			wantAttrs(t, s, map[string]string{"gen_ai.tool.call.arguments": `{"card":"****"}`, "gen_ai.tool.call.result": `{"paid": true}`})
		}
	}
	if !found {
		t.Error("the confirmed run has no span")
	}
}

func TestDiscardedTextsSayWhy(t *testing.T) {
	collector := newReceiver(t)
	log := &logged{}
	tel := newTelemetry(t, log)
	reject := modify("guard", hook.IncomingMessage, func(context.Context, hook.Payload) (hook.Verdict, error) {
		return hook.RejectFor("off topic"), nil
	})
	r, _ := talk(t, context.Background(), tel, agent(t, tel, &script{}, nil, reject), record(), plantedTyped)
	closed(t, tel)
	if r.Status != turn.Completed {
		t.Fatalf("status %s", r.Status)
	}
	root := collector.named(t, "invoke_agent shop")
	found := false
	for _, e := range root.Events {
		if e.Name == "text discarded" {
			found = attr(e.Attributes, "belay.discarded.reason") == "off topic" && attr(e.Attributes, "belay.discarded.hook") == "hooks.py:guard" &&
				attr(e.Attributes, "belay.text.of") == "user"
		}
	}
	if !found {
		t.Errorf("the turn's span does not say why the text was discarded: %v", root.Events)
	}
	wantAttrs(t, collector.named(t, "hook hooks.py:guard"), map[string]string{"belay.hook.said": "reject", "belay.hook.reason": "off topic"})
	if strings.Contains(collector.received()+log.String()+exposed(t, tel), plantedTyped) {
		t.Error("the discarded text is there to read")
	}
	if n := metric(t, tel, "belay_turns_total", "status=completed", "why=rejected"); n != 1 {
		t.Errorf("turns: %v", n)
	}
}

func TestAHooksExceptionIsInNoSpan(t *testing.T) {
	collector := newReceiver(t)
	log := &logged{}
	tel := newTelemetry(t, log)
	crash := modify("guard", hook.ModelRequest, func(context.Context, hook.Payload) (hook.Verdict, error) {
		return hook.Verdict{}, fmt.Errorf("bad card %s", plantedArg)
	})
	r, _ := talk(t, context.Background(), tel, agent(t, tel, &script{}, nil, crash), record(), "hello")
	closed(t, tel)
	if r.Status != turn.Failed {
		t.Fatalf("status %s", r.Status)
	}
	s := collector.named(t, "hook hooks.py:guard")
	wantAttrs(t, s, map[string]string{"error.type": "crash", "belay.hook.said": "failed", "belay.hook.policy": "closed"})
	if s.Status.GetCode() != wire.Status_STATUS_CODE_ERROR || collector.named(t, "invoke_agent shop").Status.GetCode() != wire.Status_STATUS_CODE_ERROR {
		t.Error("the failed spans are not marked")
	}
	if strings.Contains(collector.received()+exposed(t, tel), plantedArg) {
		t.Error("the exception's text left the process")
	}
	if !strings.Contains(log.String(), "bad card") { // the author needs it
		t.Errorf("the log lacks the exception's text:\n%s", log)
	}
}
