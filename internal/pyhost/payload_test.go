package pyhost

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belay-run/belay/hook"
)

// dumper is a hook at each point that answers, as a failure's text, with the keys
// of its payload and the types of everything in it.
const dumper = `
def kinds(value, found):
    found.add(type(value).__name__)
    if isinstance(value, dict):
        for v in value.values():
            kinds(v, found)
    elif isinstance(value, list):
        for v in value:
            kinds(v, found)
    elif hasattr(value, "__dict__"):
        kinds(vars(value), found)
    return found

def dump(payload):
    keys = ",".join(sorted(payload.model_dump()))
    raise ValueError(keys + ";" + ",".join(sorted(kinds(vars(payload), set()))))
`

func TestWhatAPayloadHolds(t *testing.T) {
	hooks := dumper
	for _, p := range hook.Points {
		if p.Dialect == hook.Turn {
			hooks += fmt.Sprintf("\n@on_%s(timeout_ms=5000)\nasync def see_%s(payload: %s) -> None:\n    dump(payload)\n", p.Name, p.Name, p.Payload)
		}
	}
	r := newRig(t, hooks)
	for _, p := range hook.Points {
		if p.Dialect != hook.Turn {
			continue
		}
		t.Run(""+p.Name, func(t *testing.T) {
			f := r.failed(r.ask("see_"+p.Name), hook.Crash)
			keys, kinds, _ := strings.Cut(strings.TrimPrefix(f.Message, "ValueError: "), ";")
			var want []string
			for _, f := range p.Fields {
				want = append(want, f.Name)
			}
			slices.Sort(want)
			if keys != strings.Join(want, ",") {
				t.Errorf("the payload has %s, want %s", keys, want)
			}
			plain := []string{"Channel", "NoneType", "bool", "dict", "float", "int", "list", "str"}
			for k := range strings.SplitSeq(kinds, ",") {
				if !slices.Contains(plain, k) {
					t.Errorf("the payload holds a %s", k)
				}
			}
		})
	}
}

func TestDefaultLimits(t *testing.T) {
	r := newRig(t, shout+watcher("look", "", "pass")+watcher("long", "timeout_ms=90000", "pass"))
	for fn, want := range map[string]time.Duration{"shout": 500 * time.Millisecond, "look": 100 * time.Millisecond, "long": 90 * time.Second} {
		t.Run(""+fn, func(t *testing.T) {
			if k := r.hook(fn); k.Limit != want {
				t.Errorf("limit is %v", k.Limit)
			}
		})
	}
}

func TestChangesInPlace(t *testing.T) {
	r := newRig(t, `
@modify_model_request()
async def nested(request: ModelRequestPayload) -> ModelRequestPayload:
    request.messages[0]["meta"]["tags"].append("seen")
    return request.model_copy()

@modify_tool_call()
async def elsewhere(call: ToolCallPayload) -> ToolCallPayload:
    call.arguments["x"] = "lost"
    return ToolCallPayload(tool_name=call.tool_name, arguments={"y": 1}, headers=call.headers)

@modify_model_response()
async def ids(response: ModelResponsePayload) -> ModelResponsePayload:
    response.text = response.text + "."
    return response
`)
	value := func(a hook.Answer, field int) string {
		t.Helper()
		if a.Failure != nil {
			t.Fatalf("failure is %+v", a.Failure)
		}
		for _, c := range a.Verdict.Changes {
			if c.Field == field {
				return string(c.Value)
			}
		}
		return ""
	}
	t.Run("count in the payload that is returned", func(t *testing.T) {
		a := r.ask("nested", "messages", json.RawMessage(`[{"role":"user","meta":{"tags":[],"id":9007199254740993}}]`))
		if got := value(a, 0); got != `[{"role":"user","meta":{"tags":["seen"],"id":9007199254740993}}]` || len(a.Verdict.Changes) != 1 {
			t.Errorf("messages are %s of %d changes", got, len(a.Verdict.Changes))
		}
	})
	t.Run("are lost when another payload is returned", func(t *testing.T) {
		if got := value(r.ask("elsewhere", "tool_name", "book", "arguments", map[string]any{"a": 1}), 1); got != `{"y":1}` {
			t.Errorf("arguments are %s", got)
		}
	})
	t.Run("what was not changed is not sent back", func(t *testing.T) {
		a := r.ask("ids", "text", "hallo", "tool_calls", json.RawMessage(`[{"id":"a","tool_name":"b","tool_args":{"n":1.0e2}}]`))
		if len(a.Verdict.Changes) != 1 || value(a, 0) != `"hallo."` {
			t.Errorf("changes are %+v", a.Verdict.Changes)
		}
	})
	t.Run("attempts on read-only fields are told", func(t *testing.T) {
		a := r.ask("elsewhere", "tool_name", "book", "sender_id", "ada", "channel", json.RawMessage(`{"name":"rest","metadata":{"a":1}}`))
		point := hook.PointNamed(hook.ToolCall)
		if got := value(a, point.Field("sender_id")); got != `""` {
			t.Errorf("sender_id is %s in %+v", got, a.Verdict.Changes)
		}
		if got := value(a, point.Field("channel")); got == "" {
			t.Errorf("changes are %+v", a.Verdict.Changes)
		}
	})
}

func TestSharedModules(t *testing.T) {
	r := loadRig(t, map[string]string{
		"lib/shared.py": "seen = []\n",
		"tools/all.py":  "from belay.tools import ToolResult, tool\nfrom lib import shared\n\n@tool(description='Notes.')\nasync def keep(word: str) -> ToolResult:\n    shared.seen.append(word)\n    return ToolResult(llm_response='ok')\n",
		"hooks.py":      "import shared\nfrom belay.hooks import *\n" + guard("tell", "", "message.text = ','.join(shared.seen)"),
	})
	t.Run("tools and hooks see the same module", func(t *testing.T) {
		if a := r.call("keep", `{"word": "one"}`, 5*time.Second); a.Outcome != OK {
			t.Fatalf("answer is %+v, %v", a, a.Failure)
		}
		if got := r.text(r.ask("tell", "text", "?")); got != `"one"` {
			t.Errorf("text is %s", got)
		}
	})
}
