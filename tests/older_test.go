package tests

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/belay-run/belay/internal/app/apptest"
	"github.com/belay-run/belay/internal/conversation"
)

// The files of an agent that was written for another system: its hooks and tools
// import from that system's modules. They stand here as their author left them.
var olderAgent = apptest.Files{
	"hooks/search.py": `from __future__ import annotations

import structlog

from rasa.mantle.hooks import (
    KnowledgeQueryPayload,
    KnowledgeResultsPayload,
    modify_knowledge_query,
    modify_knowledge_results,
    on_knowledge_query,
    on_knowledge_results,
)

logger = structlog.get_logger()
LOWEST = 0.0


@on_knowledge_query()
async def note_query(payload: KnowledgeQueryPayload) -> None:
    logger.debug("older.query", query=payload.query, sender_id=payload.sender_id)


@modify_knowledge_query()
async def name_tickets(payload: KnowledgeQueryPayload) -> KnowledgeQueryPayload:
    query = payload.query.strip()
    if query.isdigit():
        query = f"ticket {query}"
    return payload.model_copy(update={"query": query})


@modify_knowledge_results()
async def keep_relevant(payload: KnowledgeResultsPayload) -> KnowledgeResultsPayload:
    kept = [p for p in payload.passages if float(p.get("score") or 0.0) > LOWEST and "draft" not in p["text"]]
    return payload.model_copy(update={"passages": kept})


@on_knowledge_results()
async def note_passages(payload: KnowledgeResultsPayload) -> None:
    logger.debug("older.passages", count=len(payload.passages), query=payload.query)
`,
	"hooks/times.py": `import time

import structlog

from rasa.mantle.hooks import TurnFinishedPayload, TurnStartedPayload, on_turn_finished, on_turn_started

logger = structlog.get_logger()
_began: dict[str, float] = {}


@on_turn_started()
async def begin(payload: TurnStartedPayload) -> None:
    _began[payload.sender_id] = time.monotonic()
    logger.debug("older.started", sender_id=payload.sender_id, is_voice=payload.is_voice, channel=payload.channel.name)


@on_turn_finished()
async def finish(payload: TurnFinishedPayload) -> None:
    began = _began.pop(payload.sender_id, None)
    logger.info(
        "older.finished",
        sender_id=payload.sender_id,
        status=payload.status,
        known=began is not None,
        channel=payload.channel.name,
    )
`,
	"hooks/request.py": `import structlog

from rasa.mantle.hooks import ModelRequestPayload, modify_model_request, on_model_request

logger = structlog.get_logger()


@on_model_request()
async def count(request: ModelRequestPayload) -> None:
    logger.debug("older.request", messages=len(request.messages), tools=request.tool_names, iteration=request.iteration)


@modify_model_request()
async def cool(request: ModelRequestPayload) -> ModelRequestPayload:
    return request.model_copy(update={"messages": request.messages, "model_settings": {"temperature": 0.2}})
`,
	"hooks/answers.py": `import structlog

from rasa.mantle.hooks import ModelResponsePayload, RetryModel, modify_model_response, on_model_response

logger = structlog.get_logger()


@on_model_response()
async def audit(response: ModelResponsePayload) -> None:
    logger.debug("older.response", has_text=bool(response.text), calls=len(response.tool_calls), latency_ms=response.latency_ms)


@modify_model_response()
async def ground(response: ModelResponsePayload) -> ModelResponsePayload:
    allowed = [call for call in response.tool_calls if call.get("tool_name") != "refund"]
    if len(allowed) != len(response.tool_calls):
        return response.model_copy(update={"tool_calls": allowed})
    if response.text and "according to" not in response.text.lower():
        raise RetryModel(feedback="Say what the passages say.")
    if response.text:
        return response.model_copy(update={"text": response.text.strip()})
    return response
`,
	"hooks/calls.py": `import structlog

from rasa.mantle.hooks import (
    RetryModel,
    ToolCallPayload,
    ToolResultPayload,
    modify_tool_call,
    modify_tool_result,
    on_tool_call,
    on_tool_result,
)

logger = structlog.get_logger()


@on_tool_call()
async def see_call(call: ToolCallPayload) -> None:
    logger.debug("older.call", tool_name=call.tool_name)


@modify_tool_call()
async def need_number(call: ToolCallPayload) -> ToolCallPayload:
    if call.tool_name == "look_up" and not call.arguments.get("number"):
        raise RetryModel(feedback="Call look_up with a number.")
    if call.tool_name == "look_up":
        return call.model_copy(update={"arguments": {**call.arguments, "number": str(call.arguments["number"]).strip()}})
    return call


@on_tool_result()
async def see_result(result: ToolResultPayload) -> None:
    logger.debug("older.result", tool_name=result.tool_name, is_error=result.is_error)


@modify_tool_result()
async def redact(result: ToolResultPayload) -> ToolResultPayload:
    if result.tool_name != "look_up":
        return result
    safe = {k: v for k, v in result.arguments.items() if k != "ssn"}
    return result.model_copy(update={"value": "[customer]", "arguments": safe, "is_error": False})
`,
	"hooks.py": `from rasa.mantle.hooks import (
    HookRejection,
    IncomingMessagePayload,
    OutgoingTextPayload,
    modify_incoming_message,
    modify_outgoing_text,
    on_incoming_message,
    on_outgoing_text,
)

import structlog

logger = structlog.get_logger()


@on_incoming_message()
async def see(message: IncomingMessagePayload) -> None:
    logger.debug("older.incoming", length=len(message.text))


@modify_incoming_message()
async def no_spam(message: IncomingMessagePayload) -> IncomingMessagePayload:
    if "spam" in message.text.lower():
        raise HookRejection(reason="spam detected")
    return message


@on_outgoing_text()
async def say(text: OutgoingTextPayload) -> None:
    logger.debug("older.outgoing", is_voice=text.is_voice)


@modify_outgoing_text()
async def sign(payload: OutgoingTextPayload) -> OutgoingTextPayload:
    return payload.model_copy(update={"text": payload.text + " (checked)"})
`,
	"tools/customers.py": `from rasa.OLDER.tools.decorator import ToolContext, tool
from rasa.OLDER.tools.result import ToolResult


@tool(description="Look a customer up.")
async def look_up(number: str, context: ToolContext, ssn: str = "") -> ToolResult:
    """Look a customer up.

    Args:
        number: The customer's number.
        ssn: Not needed.
    """
    return ToolResult(llm_response={"number": number, "name": "Ada", "asked_by": context.sender_id})


@tool(description="Give money back.")
async def refund(amount: float) -> ToolResult:
    raise RuntimeError("no hook lets this through")
`,
	"references/tickets.md": "# Ticket 4711\n\nThe ticket 4711 is about a broken chair.\n\n# Ticket 4712\n\nThe ticket 4712 is a draft about nothing.\n",
}

// structlogStandIn stands in for the package where it is not installed.
const structlogStandIn = `class _Logger:
    def _log(self, event, **values):
        print(event, " ".join(f"{k}={v}" for k, v in values.items()))

    debug = info = warning = error = _log


def get_logger():
    return _Logger()
`

// olderFolder is the agent, with tools as one of two releases names them.
func olderFolder(tools string) apptest.Files {
	files := apptest.Files{}
	for name, text := range olderAgent {
		files[name] = strings.ReplaceAll(text, "rasa.OLDER.", "rasa."+tools+".")
	}
	if exec.Command(interpreter(), "-c", "import structlog").Run() != nil {
		files["lib/structlog.py"] = structlogStandIn
	}
	return files
}

func TestOlderAgents(t *testing.T) {
	t.Parallel()
	for _, tools := range []string{"mantle", "calm_v2"} {
		files := olderFolder(tools)
		a := apptest.Start(t, files, apptest.Play(
			apptest.Says("I think it is fine."), // not grounded: sent back
			apptest.Calls(apptest.C{Name: "refund", Args: map[string]any{"amount": 5}}, apptest.C{Name: "search_knowledge", Args: map[string]any{"query": " 4711 "}}),
			apptest.Call("look_up", map[string]any{"ssn": "078-05-1120"}), // no number: sent back
			apptest.Call("look_up", map[string]any{"number": " 12 ", "ssn": "078-05-1120"}),
			apptest.Says(" According to the ticket, the chair is broken. ")))
		r := a.Say("ada", "What about 4711?")
		t.Run("T06 files with rasa."+tools+" run unchanged through a whole turn", func(t *testing.T) {
			if r.Text() != "According to the ticket, the chair is broken. (checked)" || r.Report.Status != "completed" {
				t.Fatalf("the user heard %q, status %s\n%s", r.Text(), r.Report.Status, a.Log())
			}
			olderRequests(t, a)
			var names []string
			for _, e := range a.Of("ada", conversation.ToolExecuted) {
				names = append(names, e.Tool.Name)
			}
			expect(t, "tools that ran", names, []string{"search_knowledge", "look_up"})
			if e := a.Of("ada", conversation.ToolExecuted)[1]; e.Tool.Result != "[customer]" || string(e.Tool.Arguments) != `{"number":"12"}` {
				t.Errorf("the record has %q and %s", e.Tool.Result, e.Tool.Arguments)
			}
		})
		t.Run("T06 signals of rasa."+tools+" agents count", func(t *testing.T) {
			if r := a.Say("eve", "SPAM"); r.Text() != "I'm sorry, but I can't help with that message. (checked)" {
				t.Errorf("the user heard %q", r.Text())
			}
		})
		t.Run("T06 observers of rasa."+tools+" agents are asked at every point", func(t *testing.T) {
			a.Close()
			log := a.Log()
			for _, event := range []string{"started", "finished", "incoming", "request", "response", "call", "result", "query", "passages", "outgoing"} {
				if !strings.Contains(log, "older."+event) {
					t.Errorf("nothing was logged of older.%s", event)
				}
			}
			if !strings.Contains(log, "known=True") {
				t.Error("the start of the turn was not known at its end")
			}
		})
	}
}

// olderRequests looks at what the model was asked in the turn of TestOlderAgents.
func olderRequests(t *testing.T, a *apptest.Agent) {
	t.Helper()
	requests, prompts := a.RequestsOf("ada"), a.Prompts("ada")
	if len(requests) != 5 {
		t.Fatalf("%d requests", len(requests))
	}
	for i, r := range requests {
		if string(r.Settings["temperature"]) != "0.2" {
			t.Errorf("settings of request %d: %s", i, r.Settings)
		}
	}
	for i, note := range map[int]string{1: "Say what the passages say.", 3: "Call look_up with a number."} {
		if last := prompts[i][len(prompts[i])-1]; last["role"] != "system" || last["content"] != note {
			t.Errorf("request %d ends on %v", i, last)
		}
	}
	all, err := json.Marshal(prompts)
	if err != nil {
		t.Fatal(err)
	}
	for text, there := range map[string]bool{"broken chair": true, "draft about": false, "[customer]": true, "Ada": false, "078-05-1120": false} {
		if strings.Contains(string(all), text) != there {
			t.Errorf("%q in the requests: %v, want %v", text, !there, there)
		}
	}
}

// hookModule are the names that hook files import.
var hookModule = []string{"HookRejection", "RetryModel", "on_turn_started", "on_turn_finished", "TurnStartedPayload", "TurnFinishedPayload"}

func TestHookModule(t *testing.T) {
	t.Parallel()
	names := slices.Clone(hookModule)
	for _, s := range standings[2:] {
		names = append(names, "on_"+s.point, "modify_"+s.point, s.payload)
	}
	source := `import importlib

import belay.hooks
from lib.probe import note
from rasa.mantle.hooks import *

for name in NAMES:
    scope = {}
    for module in ("belay.hooks", "rasa.mantle.hooks"):
        exec(f"from {module} import {name}", scope)
        note(name, module=module, own=scope[name] is getattr(belay.hooks, name), star=globals().get(name) is scope[name])
for older, ours in PAIRS:
    note("same", older=older, same=importlib.import_module(older) is importlib.import_module(ours))
`
	pairs := `[("rasa.mantle.hooks", "belay.hooks"), ("rasa.mantle.tools.decorator", "belay.tools"), ("rasa.mantle.tools.result", "belay.tools"),
  ("rasa.calm_v2.tools.decorator", "belay.tools"), ("rasa.calm_v2.tools.result", "belay.tools")]`
	quoted := strings.ReplaceAll(fmt.Sprintf("%q", names), " ", ", ")
	a := apptest.Start(t, apptest.Files{"hooks.py": strings.NewReplacer("NAMES", quoted, "PAIRS", pairs).Replace(source)})
	seen := map[string]int{}
	notes := a.Notes()
	for _, n := range notes {
		if n.PID != notes[0].PID {
			continue // of the spare
		}
		seen[n.What]++
		if n.Data["own"] == false || n.Data["star"] == false || n.Data["same"] == false {
			t.Errorf("%s: %v", n.What, n.Data)
		}
	}
	for _, name := range names {
		t.Run("T06 "+name+" comes from belay.hooks and from rasa.mantle.hooks", func(t *testing.T) {
			if seen[name] != 2 {
				t.Errorf("it was imported %d times", seen[name])
			}
		})
	}
	t.Run("T06 the older modules are the ones of belay", func(t *testing.T) {
		if seen["same"] != 5 {
			t.Errorf("%d modules were looked at", seen["same"])
		}
	})
}
