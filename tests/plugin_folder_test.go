//go:build linux

package tests

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/belay-run/belay/internal/app/apptest"
	"github.com/belay-run/belay/internal/approval"
	"github.com/belay-run/belay/internal/chat"
)

const folderManifest = `name: acme
tools:
  - {id: probe, mcp: [python, server.py]}
agents:
  - {id: clerk, folder: clerk, model: m, tools: ["probe.look", "probe.again"]}
hooks:
  - {on: job_start, call: probe.check}
  - {on: pre_llm_call, call: probe.check}
  - {on: pre_tool_call, call: probe.check}
  - {on: post_tool_call, call: probe.check}
  - {on: job_end, call: probe.check}
policy:
  rules:
    - {name: never, tools: [probe.again], when: 'tool == "probe.again"', verdict: refuse, reason: not here}
    - {name: ask, tools: [probe.look], when: 'arguments.?what.orValue("") == "ask"', verdict: require_approval}
`

const folderHooks = `
import json, os, pathlib
from belay.hooks import *

HERE = pathlib.Path(PROBE)


def note(name, p, **data):
    with (HERE / "log.jsonl").open("a") as f:
        f.write(json.dumps({"name": name, **data}) + "\n")


@modify_model_request()
async def request(p: ModelRequestPayload) -> ModelRequestPayload:
    note("turn model_request", p, tools=sorted(p.tool_names))
    return p


@modify_model_response()
async def response(p: ModelResponsePayload) -> ModelResponsePayload:
    note("turn model_response", p)
    return p


@modify_tool_call()
async def call(p: ToolCallPayload) -> ToolCallPayload:
    note("turn tool_call", p, tool=p.tool_name, what=p.arguments.get("what"))
    if p.arguments.get("what") == "old":
        return p.model_copy(update={"arguments": {"what": "new"}})
    return p


@modify_tool_result()
async def result(p: ToolResultPayload) -> ToolResultPayload:
    note("turn tool_result", p, tool=p.tool_name, value=p.value)
    return p.model_copy(update={"value": p.value + ", read"})
`

const folderTools = `
import json, pathlib
from belay.tools import ToolContext, ToolResult, tool

HERE = pathlib.Path(PROBE)


@tool(description="Books.")
async def book(context: ToolContext, what: str) -> ToolResult:
    with (HERE / "log.jsonl").open("a") as f:
        f.write(json.dumps({"name": "book", "what": what}) + "\n")
    return ToolResult(llm_response={"booked": what})
`

func TestAgentFolderAsAJob(t *testing.T) {
	t.Parallel()
	batch := does("probe.look", `{"what": "old"}`, "probe.again", `{"what": "x"}`, "book", `{"what": "old"}`)
	j := newJobs(t, &playing{list: []chat.Response{batch, says("Done.")}})
	j.manifest(folderManifest)
	probe := fmt.Sprintf("PROBE = %q\n", j.probe)
	for name, text := range map[string]string{
		"agent.yml": "agent:\n  id: clerk\n  persona: You are a clerk.\n  rules: [Be brief.]\nbelay:\n  llm: {provider: scripted, script: {default: {say: unused}}}\n",
		"hooks.py":  "from __future__ import annotations\n" + probe + folderHooks, "tools/desk.py": probe + folderTools,
	} {
		apptest.Write(t, filepath.Join(j.plugin, "clerk"), name, text)
	}
	j.open()
	j.install()
	j.policy("rules:\n  - {name: tools, tools: [probe.look, probe.again, clerk.book], verdict: allow}\n")
	j.answers(map[string]any{"check:pre_tool_call:probe.look:new": map[string]any{"decision": "modify", "arguments": map[string]any{"what": "ask"}}})
	id := j.startOf("clerk", "go")
	a := j.waitsIn(id)
	if a.Request.Kind != approval.Policy || a.Request.Tool != "probe.look" || string(a.Request.Arguments) != `{"what":"ask"}` {
		t.Errorf("asked %+v", a.Request)
	}
	until(t, "the other calls have ended", func() bool { return len(j.asked("book")) == 1 })
	j.decide(a, approval.Answer{Yes: true})
	completed(t, j.end(id), "Done.")
	var log []string
	for _, e := range j.asked("") {
		what := fmt.Sprint(e["name"])
		for _, key := range []string{"event", "tool", "what"} {
			if e[key] != nil {
				what += " " + fmt.Sprint(e[key])
			}
		}
		log = append(log, what)
	}
	// in gives those lines that hold a text, in order.
	in := func(texts ...string) (out []string) {
		for _, l := range log {
			if slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(l, text) }) {
				out = append(out, l)
			}
		}
		return out
	}
	t.Run("P36 turn hooks of the model fire around the model call", func(t *testing.T) {
		expect(t, "the beginning", log[:4], []string{"check job_start", "turn model_request", "check pre_llm_call", "turn model_response"})
		expect(t, "the end", log[len(log)-4:], []string{"turn model_request", "check pre_llm_call", "turn model_response", "check job_end"})
	})
	t.Run("P36 tool-call turn hooks see the whole batch first", func(t *testing.T) {
		expect(t, "the log", log[4:7], []string{"turn tool_call probe__look old", "turn tool_call probe__again x", "turn tool_call book old"})
		if at := slices.IndexFunc(log, func(l string) bool { return strings.HasPrefix(l, "check pre_tool_call") }); at != 7 && at != 8 {
			t.Errorf("the log is %q", log)
		}
	})
	t.Run("P36 then call by call outright refusal, pre_tool_call, rules, tool, post_tool_call", func(t *testing.T) {
		expect(t, "of look", in("probe.look", "look ask"), []string{"check pre_tool_call probe.look", "look ask", "check post_tool_call probe.look"})
		expect(t, "of the folder's own tool", in("clerk.book", "book new"), []string{"check pre_tool_call clerk.book", "book new", "check post_tool_call clerk.book"})
		expect(t, "of the refused call", in("probe.again"), nil)
		for _, e := range j.asked("check") {
			if args, ok := e["arguments"].(map[string]any); ok && e["event"] == "pre_tool_call" && args["what"] != "new" {
				t.Errorf("a hook was asked about what the turn hooks had changed: %v", e)
			}
		}
	})
	t.Run("P36 tool-result turn hooks come last", func(t *testing.T) {
		last := 0
		for i, l := range log {
			if strings.HasPrefix(l, "check post_tool_call") {
				last = i
			}
		}
		expect(t, "the log", log[last+1:last+4], []string{"turn tool_result probe__look", "turn tool_result probe__again", "turn tool_result book"})
		j.read(t, "go", "seen ask, read", "The call to probe.again was not made: the tool policy refuses it: not here., read", `{"booked": "new"}, read`)
	})
	t.Run("P36 the folder's own tools have the names that they have in conversations", func(t *testing.T) {
		expect(t, "the tools", fmt.Sprint(j.asked("turn model_request")[0]["tools"]), "[book probe__again probe__look]")
	})
}
