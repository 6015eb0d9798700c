package tests

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/internal/app/apptest"
	"github.com/belay-run/belay/internal/conversation"
	"github.com/belay-run/belay/internal/server"
	"github.com/belay-run/belay/internal/turn"
)

// shape is what a point's payload may have changed and what not, in Python.
type shape struct {
	mutable, readOnly string
	// changed are the fields of mutable, putBack those of readOnly.
	changed, putBack []string
}

var shapes = map[string]shape{
	"incoming_message": {mutable: `text="new"`, changed: []string{"text"}},
	"model_request": {mutable: `messages=[*p.messages, {"role": "user", "content": "new"}], model_settings={"seed": 7}`, readOnly: `tool_names=["new"], iteration=99`,
		changed: []string{"messages", "model_settings"}, putBack: []string{"tool_names", "iteration"}},
	"model_response": {mutable: `text="new", tool_calls=[{**c, "tool_args": {"text": "new"}} for c in p.tool_calls]`, readOnly: `latency_ms=99`,
		changed: []string{"text", "tool_calls"}, putBack: []string{"latency_ms"}},
	"tool_call": {mutable: `tool_name="search_knowledge", arguments={"query": "new"}, headers={"new": 1}`,
		changed: []string{"tool_name", "arguments", "headers"}},
	"tool_result": {mutable: `arguments={"new": 1}, value="new", is_error=True`, readOnly: `tool_name="new"`,
		changed: []string{"arguments", "value", "is_error"}, putBack: []string{"tool_name"}},
	"knowledge_query":   {mutable: `query="new"`, changed: []string{"query"}},
	"knowledge_results": {mutable: `passages=[{"text": "new"}]`, readOnly: `query="new"`, changed: []string{"passages"}, putBack: []string{"query"}},
	"outgoing_text":     {mutable: `text="new"`, readOnly: `is_voice=not p.is_voice`, changed: []string{"text"}, putBack: []string{"is_voice"}},
}

const carryLib = `from belay.hooks import Channel
from lib.probe import note

_PLAIN = (str, int, float, bool, type(None))


def foreign(value):
    """Names the types in a value that JSON does not have."""
    if type(value) in _PLAIN:
        return []
    if type(value) is dict:
        return [name for pair in value.items() for each in pair for name in foreign(each)]
    if type(value) is list:
        return [name for each in value for name in foreign(each)]
    if type(value) is Channel:
        return foreign(value.__dict__)
    return [type(value).__name__]


def carry(lane, point, p):
    inside = [*p.__dict__.values(), p.__pydantic_extra__, getattr(p, "__pydantic_private__", None)]
    note(f"{lane} {point}", dump=p.model_dump(), keys=sorted(p.__dict__), foreign=foreign(inside),
         sender=p.sender_id, channel=p.channel.name, metadata=p.channel.metadata, call=p.call)
`

// carryHooks note what each hook gets; in a conversation named after a point the
// modify hook there returns a payload in which everything is another.
func carryHooks() string {
	var b strings.Builder
	b.WriteString("from __future__ import annotations\n\nfrom belay.hooks import *\nfrom lib.carry import carry\n")
	for _, s := range standings {
		fmt.Fprintf(&b, `

@on_%[1]s(timeout_ms=5000)
async def first_%[1]s(p: %[2]s) -> None:
    carry("observe", "%[1]s", p)


@on_%[1]s(timeout_ms=5000, final=True)
async def final_%[1]s(p: %[2]s) -> None:
    carry("final", "%[1]s", p)
`, s.point, s.payload)
		if sh, ok := shapes[s.point]; ok {
			fmt.Fprintf(&b, `

@modify_%[1]s(timeout_ms=5000)
async def modify_%[1]s_(p: %[2]s) -> %[2]s:
    carry("modify", "%[1]s", p)
    if p.sender_id == "other %[1]s":
        own = dict(sender_id="new", call={"new": 1}, channel=Channel(name="new", metadata={"new": 1}))
        return p.model_copy(update=dict(**own, %[3]s))
    if p.sender_id == "strange %[1]s":
        return p.model_copy(update=dict(sender_id=None, call=[object()], channel=7, %[3]s))
    return p
`, s.point, s.payload, strings.TrimSuffix(sh.mutable+", "+sh.readOnly, ", "))
		}
	}
	return b.String()
}

const (
	phoneCall    = `{"id":"c-1","hops":[{"from":"+49"}]}`
	phoneChannel = `{"name":"phone","metadata":{"language":"de","build":7}}`
)

// carried runs turns in which every point is reached, quiet calls included.
func carried(t *testing.T) *apptest.Agent {
	t.Helper()
	a := apptest.Start(t, apptest.Files{"hooks.py": carryHooks(), "lib/carry.py": carryLib, "tools/order.py": orderTools, "responses.yml": lookedResponse,
		"references/shop.md": "# Refund\n\nA refund takes five days.\n\n# New\n\nEverything is new.\n"})
	senders := []string{"full", "bare"}
	for point := range shapes {
		senders = append(senders, "other "+point, "strange "+point)
	}
	for _, sender := range senders {
		a.Next(sender, apptest.Calls(apptest.C{Name: "search_knowledge", Args: map[string]any{"query": "refund"}}, apptest.C{Name: "look", Args: map[string]any{"text": "a"}}),
			apptest.Says("I looked."), apptest.Says("There."))
		m := turn.Message{Text: "hello", Voice: true}
		if sender != "bare" {
			m.Call, m.Channel = json.RawMessage(phoneCall), json.RawMessage(phoneChannel)
		}
		if _, err := a.Send(context.Background(), server.Inbound{Sender: sender, Message: m}); err != nil {
			t.Fatalf("%s: %v", sender, err)
		}
	}
	return a
}

// payloads gives what hooks of a point and lane got in one conversation.
func payloads(notes []apptest.Note, what, sender string) (out []apptest.Note) {
	for _, n := range notes {
		if n.What == what && n.Data["sender"] == sender {
			out = append(out, n)
		}
	}
	return out
}

func decoded(t *testing.T, text string) (v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestPayloads(t *testing.T) {
	t.Parallel()
	a := carried(t)
	notes := a.Notes()
	for _, row := range standings {
		for _, lane := range []string{"observe", "modify", "final"} {
			if lane == "modify" && !row.modify {
				continue
			}
			full, bare := payloads(notes, lane+" "+row.point, "full"), payloads(notes, lane+" "+row.point, "bare")
			t.Run(fmt.Sprintf("T65 %s, %s: who, call and channel", row.point, lane), func(t *testing.T) {
				if len(full) == 0 || len(bare) != len(full) {
					t.Fatalf("asked %d and %d times", len(full), len(bare))
				}
				for i := range full {
					got, want := full[i].Data["dump"].(map[string]any), map[string]any{"sender_id": "full", "call": decoded(t, phoneCall), "channel": decoded(t, phoneChannel)}
					for k, v := range want {
						if !reflect.DeepEqual(got[k], v) {
							t.Errorf("%s is %v, want %v", k, got[k], v)
						}
					}
					if d := full[i].Data; d["channel"] != "phone" || !reflect.DeepEqual(d["metadata"], map[string]any{"language": "de", "build": 7.0}) {
						t.Errorf("channel.name is %v, channel.metadata %v", d["channel"], d["metadata"])
					}
					if d := bare[i].Data; !reflect.DeepEqual(d["call"], map[string]any{}) || d["channel"] != "test" {
						t.Errorf("without call data: call is %v, channel %v", d["call"], d["channel"])
					}
				}
			})
			t.Run(fmt.Sprintf("T67 %s, %s: the fields of the schema and nothing else", row.point, lane), func(t *testing.T) {
				want := schemaKeys(t, row.point)
				for _, n := range full {
					if got := slices.Sorted(maps.Keys(n.Data["dump"].(map[string]any))); !slices.Equal(got, want) {
						t.Errorf("dumped it has %v, want %v", got, want)
					}
					if got := fmt.Sprint(n.Data["keys"]); got != fmt.Sprint(want) {
						t.Errorf("it has the attributes %v, want %v", got, want)
					}
					if f := n.Data["foreign"].([]any); len(f) > 0 {
						t.Errorf("it holds objects of the types %v", f)
					}
				}
			})
		}
	}
	for point, sh := range shapes {
		for _, how := range []string{"other", "strange"} {
			t.Run(fmt.Sprintf("T66 %s: read-only fields with %s values are put back, the others count", point, how), func(t *testing.T) { putBack(t, a, notes, point, how, sh) })
		}
	}
	t.Run("T69 incoming message: text can be changed", func(t *testing.T) {
		if e := a.Of("other incoming_message", conversation.User)[0]; e.Text != "new" {
			t.Errorf("the record has %q", e.Text)
		}
	})
	t.Run("T69 outgoing text: text can be changed, is_voice not", func(t *testing.T) {
		for _, n := range payloads(notes, "final outgoing_text", "other outgoing_text") {
			if dump := n.Data["dump"].(map[string]any); dump["text"] != "new" || dump["is_voice"] != true {
				t.Errorf("on goes %v", dump)
			}
		}
		if texts, _ := spoken(a, "other outgoing_text"); !slices.Equal(texts, []string{"new", "new"}) {
			t.Errorf("the record has %q", texts)
		}
	})
}

// schemaKeys are the fields of the published schema.
func schemaKeys(t *testing.T, point string) []string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "spec", "schemas", point+".schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	var schema struct{ Properties map[string]any }
	if err := json.Unmarshal(raw, &schema); err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(maps.Keys(schema.Properties))
}

func putBack(t *testing.T, a *apptest.Agent, notes []apptest.Note, point, how string, sh shape) {
	sender := how + " " + point
	came, went := payloads(notes, "observe "+point, sender), payloads(notes, "final "+point, sender)
	if len(came) == 0 || len(went) != len(came) {
		t.Fatalf("%d payloads came, %d went on", len(came), len(went))
	}
	changed := map[string]bool{}
	for i := range came {
		before, after := came[i].Data["dump"].(map[string]any), went[i].Data["dump"].(map[string]any)
		for k, v := range after {
			if !reflect.DeepEqual(v, before[k]) {
				changed[k] = true
			}
		}
	}
	if got, want := slices.Sorted(maps.Keys(changed)), slices.Sorted(slices.Values(sh.changed)); !slices.Equal(got, want) {
		t.Errorf("changed: %v, want %v", got, want)
	}
	want := append([]string{"sender_id", "call", "channel"}, sh.putBack...)
	for _, part := range a.Trace(sender) {
		for _, l := range part.Lines {
			for _, r := range l.Runs {
				if r.Point != point || r.Lane != hook.Modify {
					continue
				}
				if r.Failure != nil || r.Said != "continue" {
					t.Errorf("the hook failed: %+v", r)
				}
				if got := slices.Sorted(slices.Values(r.PutBack)); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
					t.Errorf("put back: %v, want %v", got, want)
				}
			}
		}
	}
	for _, n := range notes { // no later payload has another's
		if sender, hook := n.Data["sender"].(string); n.Data["dump"] != nil && (!hook || sender == "new" || n.Data["channel"] == "new") {
			t.Errorf("%s got %v", n.What, n.Data["dump"])
		}
	}
}

// copyHooks change a tool's result in place, in ways that count and ways that do
// not.
const copyHooks = `from __future__ import annotations

import asyncio
import copy

from belay.hooks import ToolCallPayload, ToolResultPayload, modify_tool_call, modify_tool_result

_kept = []


@modify_tool_call(timeout_ms=5000)
async def keep(p: ToolCallPayload) -> ToolCallPayload:
    _kept.append(p.arguments)
    return p


@modify_tool_result(timeout_ms=1500)
async def change(p: ToolResultPayload) -> ToolResultPayload:
    how = p.sender_id
    if how == "kept from before":
        for arguments in _kept:
            arguments["data"]["list"][0]["k"] = "new"
        return p
    before, shallow, deep = copy.deepcopy(p.arguments), p.model_copy(), p.model_copy(deep=True)
    p.arguments["data"]["list"][0]["k"] = "new"
    if how == "raises":
        raise ValueError
    if how == "runs out of time":
        await asyncio.Event().wait()
    if how == "returns a copy made before, which holds the value":
        return shallow
    if how == "returns a copy with another field changed":
        return p.model_copy(update={"value": "another"})
    if how == "returns a deep copy made before":
        return deep
    if how == "returns another payload":
        return ToolResultPayload(tool_name=p.tool_name, arguments=before, value=p.value)
    return p
`

const deepTool = `from typing import Any

from belay.tools import ToolResult, tool


@tool(description="Takes data.")
async def deep(data: dict[str, Any]) -> ToolResult:
    return ToolResult(llm_response="done")
`

func TestInPlace(t *testing.T) {
	t.Parallel()
	a := apptest.Start(t, apptest.Files{"hooks.py": copyHooks, "tools/deep.py": deepTool})
	for how, counts := range map[string]bool{
		"returns it": true,
		"returns a copy made before, which holds the value": true,
		"returns a copy with another field changed":         true,
		"returns a deep copy made before":                   false,
		"returns another payload":                           false,
		"raises":                                            false,
		"runs out of time":                                  false,
		"kept from before":                                  false,
	} {
		t.Run(fmt.Sprintf("T68 what the hook changed in place counts: %v (%s)", counts, how), func(t *testing.T) {
			a.Next(how, apptest.Calls(apptest.C{Name: "deep", Args: json.RawMessage(`{"data":{"list":[{"k":"old"}]}}`)}))
			a.Say(how, "hello")
			want := map[bool]string{true: `{"data":{"list":[{"k":"new"}]}}`, false: `{"data":{"list":[{"k":"old"}]}}`}[counts]
			ran := a.Of(how, conversation.ToolExecuted)
			if len(ran) != 1 || string(ran[0].Tool.Arguments) != want || ran[0].Tool.IsError {
				t.Errorf("the record has %+v", ran[0].Tool)
			}
			if asked := string(a.RequestsOf(how)[1].Messages); strings.Contains(asked, `new`) != counts {
				t.Errorf("the model reads %s", asked)
			}
		})
	}
}
