package tests

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/belay-run/belay/internal/app"
	"github.com/belay-run/belay/internal/app/apptest"
	"github.com/belay-run/belay/internal/conversation"
	"github.com/belay-run/belay/internal/rawjson"
	"github.com/belay-run/belay/internal/server"
	"github.com/belay-run/belay/internal/turn"
)

// plan says what the hooks of plannedHooks do in one turn, each step once: by
// point, or by point and tool ("tool_call second"). It travels in the channel's
// metadata, so tests that share an agent bring their own.
type plan map[string]any

func doRetry(feedback string) any        { return map[string]any{"do": "retry", "text": feedback} }
func doReject(reason string) any         { return map[string]any{"do": "reject", "text": reason} }
func doCrash(text string) any            { return map[string]any{"do": "crash", "text": text} }
func doSleep() any                       { return map[string]any{"do": "sleep"} }
func doReturn(v any) any                 { return map[string]any{"do": "return", "value": v} }
func doUpdate(fields map[string]any) any { return map[string]any{"do": "update", "fields": fields} }

// plannedHooks stand at every point from the model's response to the tool
// results, with an observer on either side. Each says what it is given; the
// modify hooks do what the plan says. Their limit leaves a busy machine room.
var plannedHooks = apptest.Files{
	"hooks.py": `from __future__ import annotations

from belay.hooks import (
    KnowledgeQueryPayload, KnowledgeResultsPayload, ModelResponsePayload, ToolCallPayload, ToolResultPayload,
    modify_knowledge_query, modify_knowledge_results, modify_model_response, modify_tool_call, modify_tool_result,
    on_knowledge_query, on_knowledge_results, on_model_response, on_tool_call, on_tool_result,
)
from lib.plan import follow, say


@on_model_response(timeout_ms=2000)
async def see_response(p: ModelResponsePayload) -> None:
    say("see model_response", p)


@modify_model_response(timeout_ms=2000)
async def plan_response(p: ModelResponsePayload) -> ModelResponsePayload:
    return await follow("model_response", p)


@on_tool_call(timeout_ms=2000)
async def see_call(p: ToolCallPayload) -> None:
    say("see tool_call", p)


@on_tool_call(final=True, timeout_ms=2000)
async def see_final_call(p: ToolCallPayload) -> None:
    say("final tool_call", p)


@modify_tool_call(timeout_ms=2000)
async def plan_call(p: ToolCallPayload) -> ToolCallPayload:
    return await follow("tool_call", p)


@on_knowledge_query(timeout_ms=2000)
async def see_query(p: KnowledgeQueryPayload) -> None:
    say("see knowledge_query", p)


@modify_knowledge_query(timeout_ms=2000)
async def plan_query(p: KnowledgeQueryPayload) -> KnowledgeQueryPayload:
    return await follow("knowledge_query", p)


@on_knowledge_results(timeout_ms=2000)
async def see_results(p: KnowledgeResultsPayload) -> None:
    say("see knowledge_results", p)


@modify_knowledge_results(timeout_ms=2000)
async def plan_results(p: KnowledgeResultsPayload) -> KnowledgeResultsPayload:
    return await follow("knowledge_results", p)


@on_tool_result(timeout_ms=2000)
async def see_result(p: ToolResultPayload) -> None:
    say("see tool_result", p)


@modify_tool_result(timeout_ms=2000)
async def plan_result(p: ToolResultPayload) -> ToolResultPayload:
    return await follow("tool_result", p)
`,
	"lib/plan.py": `import asyncio

from belay.hooks import HookRejection, RetryModel
from lib.probe import note

done = set()


def say(who, payload):
    tool = getattr(payload, "tool_name", "")
    note(f"{who} {tool}".strip(), **payload.model_dump())


async def follow(point, payload):
    say("modify " + point, payload)
    metadata = payload.channel.metadata
    for key in (f"{point} {getattr(payload, 'tool_name', '')}", point):
        step = (metadata.get("plan") or {}).get(key)
        if step and (metadata["serial"], key) not in done:
            done.add((metadata["serial"], key))
            break
    else:
        return payload
    match step["do"]:
        case "retry":
            raise RetryModel(feedback=step["text"])
        case "reject":
            raise HookRejection(reason=step["text"])
        case "crash":
            raise ValueError(step["text"])
        case "sleep":
            await asyncio.sleep(60)
        case "return":
            return step["value"]
        case "update":
            return payload.model_copy(update=step["fields"])
`,
}

// simpleTools are three tools that say that they ran and give back what they got.
const simpleTools = `from __future__ import annotations

from belay.tools import ToolContext, ToolResult, tool
from lib.probe import note


def ran(name, context, **arguments):
    note("tool " + name, sender_id=context.sender_id, arguments=arguments)
    return ToolResult(llm_response={"done": name, **arguments})


@tool(description="The first.")
async def first(context: ToolContext, item: str = "", card: str = "") -> ToolResult:
    return ran("first", context, item=item, card=card)


@tool(description="The second.")
async def second(context: ToolContext, item: str = "", card: str = "") -> ToolResult:
    return ran("second", context, item=item, card=card)


@tool(description="The third.")
async def third(context: ToolContext, item: str = "", card: str = "") -> ToolResult:
    return ran("third", context, item=item, card=card)
`

// channel is the channel of a turn that follows the plan.
func (p plan) channel() json.RawMessage {
	return rawjson.Must(map[string]any{"name": "test", "metadata": map[string]any{"plan": p, "serial": plans.Add(1)}})
}

var plans atomic.Int64 // tells the plans of two turns apart

// planned is an agent with plannedHooks.
type planned struct{ *apptest.Agent }

func startPlanned(t *testing.T, files apptest.Files, options ...func(*app.Config)) planned {
	t.Helper()
	all := maps.Clone(plannedHooks)
	maps.Copy(all, files)
	return planned{apptest.Start(t, all, options...)}
}

// say sends a text in a turn whose hooks follow the plan. The turn is live, so
// that whatever leaves early is seen too.
func (a planned) say(t *testing.T, sender, text string, p plan) apptest.Reply {
	t.Helper()
	r, err := a.Send(context.Background(), server.Inbound{Sender: sender, Live: true, Message: turn.Message{Text: text, Channel: p.channel()}})
	if err != nil {
		t.Fatalf("say %q: %v\n%s", text, err, a.Log())
	}
	return r
}

// notes returns what Python code noted for a conversation; with about set, only
// the notes whose name begins with one of these.
func (a planned) notes(sender string, about ...string) []apptest.Note {
	var out []apptest.Note
	for _, n := range a.Notes() {
		begins := func(prefix string) bool { return strings.HasPrefix(n.What, prefix) }
		if n.Data["sender_id"] == sender && (len(about) == 0 || slices.ContainsFunc(about, begins)) {
			out = append(out, n)
		}
	}
	return out
}

// noted returns the names of the notes.
func (a planned) noted(sender string, about ...string) []string {
	var out []string
	for _, n := range a.notes(sender, about...) {
		out = append(out, n.What)
	}
	return out
}

// runs returns the tool calls that the record of a conversation has.
func (a planned) runs(sender string) []conversation.ToolRun {
	var out []conversation.ToolRun
	for _, e := range a.Of(sender, conversation.ToolExecuted) {
		out = append(out, *e.Tool)
	}
	return out
}

// prompt returns the messages of the i-th request of a conversation; a negative i
// counts from the end.
func (a planned) prompt(t *testing.T, sender string, i int) []map[string]any {
	t.Helper()
	all := a.Prompts(sender)
	if i < 0 {
		i += len(all)
	}
	if i < 0 || i >= len(all) {
		t.Fatalf("request %d of %d of %s", i, len(all), sender)
	}
	return all[i]
}

// toolMessages returns the contents of the tool messages of a request.
func toolMessages(messages []map[string]any) []string {
	var out []string
	for _, m := range messages {
		if m["role"] == "tool" {
			out = append(out, m["content"].(string))
		}
	}
	return out
}

// inJSON is a value as JSON, for looking for what must or must not be in it.
func inJSON(v any) string { return string(rawjson.Must(v)) }

func wantSame(t *testing.T, what string, got, want any) {
	t.Helper()
	if g, w := inJSON(got), inJSON(want); g != w {
		t.Errorf("%s:\n  got  %s\n  want %s", what, g, w)
	}
}

func wantNone(t *testing.T, where, text string, planted ...string) {
	t.Helper()
	for _, p := range planted {
		if i := strings.Index(text, p); i >= 0 {
			t.Errorf("%s has %q: …%s…", where, p, text[max(0, i-80):min(len(text), i+len(p)+80)])
		}
	}
}

func wantAll(t *testing.T, where, text string, wanted ...string) {
	t.Helper()
	for _, w := range wanted {
		if !strings.Contains(text, w) {
			t.Errorf("%s lacks %q:\n%s", where, w, text)
		}
	}
}
