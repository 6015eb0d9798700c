package plugintest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/plugin"
	"github.com/belay-run/belay/internal/plugintest"
)

func TestMain(m *testing.M) {
	// The search library starts its workers when it is imported and never ends them.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/blevesearch/bleve_index_api.AnalysisWorker"))
}

// server answers as the event tells it to: tool events in their arguments, the others
// in a text that is JSON.
const server = `
import json
import os
import time

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.types import ToolAnnotations

server = MCPServer("probe")
harmless = ToolAnnotations(read_only_hint=True, open_world_hint=False)


def told(event: dict) -> dict:
    time.sleep(event.get("arguments", {}).get("sleep", 0))
    if "arguments" in event:
        return event["arguments"].get("answer", {"decision": "allow"})
    text = event.get("input", event.get("output", ""))
    return json.loads(text) if isinstance(text, str) and text.startswith("{") else {"decision": "allow"}


@server.tool(annotations=harmless)
def check(event: dict) -> dict:
    """Answers as it is told."""
    return told(event)


@server.tool(annotations=harmless)
def second(event: dict) -> dict:
    """Answers as it is told in another place."""
    return event.get("arguments", {}).get("second", {"decision": "allow"})


@server.tool(annotations=harmless)
def judge(event: dict) -> dict:
    """Escalates what it was not asked for."""
    answer = event["arguments"].get("judge")
    if answer:
        return answer
    if "request" in event and event["arguments"].get("what", "") not in event["request"]:
        model = event.get("agent_model", {}).get("model", "nobody")
        return {"decision": "escalate", "reason": f"not asked for, says {model}"}
    return {"decision": "allow"}


@server.tool(annotations=harmless)
def redact(event: dict, ctx: Context) -> dict:
    """Takes the tenant's secrets out of a text."""
    text, found = event["result"], (ctx.request_context.meta or {})["belay/secrets"]
    for f in sorted(found, key=lambda f: -f["start"]):
        text = text[: f["start"]] + "[" + f["name"] + "]" + text[f["end"] :]
    return {"decision": "modify", "result": text} if found else {"decision": "allow"}


@server.tool()
def loud(event: dict) -> dict:
    """Declares nothing."""
    return {"decision": "allow"}


@server.tool(annotations=harmless)
def look(what: str) -> str:
    """A function that agents call."""
    return "seen " + what


@server.tool(annotations=ToolAnnotations(read_only_hint=False))
def die() -> str:
    """Ends its server."""
    os._exit(3)
`

const manifest = `name: probe
tools: [{id: probe, mcp: [python, -m, server]}]
agents:
  - {id: clerk, instructions: You order., model: fast, tools: ["probe.look", "shop.*"]}
  - {id: chatty, folder: agent, tools: ["shop.*"]}
hooks:
  - {on: job_start, call: probe.check}
  - {on: pre_tool_call, call: probe.check, match: {agents: [test, clerk]}}
  - {on: pre_tool_call, call: probe.second, match: {agents: [test, clerk]}}
  - {on: pre_tool_call, call: probe.judge, match: {agents: [clerk]}, decisions: [allow, escalate]}
  - {on: post_tool_call, call: probe.check, match: {agents: [test]}, on_timeout: escalate}
  - {on: post_tool_call, call: probe.check, match: {agents: [nobody]}}
  - {on: pre_tool_call, call: probe.loud, match: {tools: [shop.shout]}}
  - {on: job_end, call: probe.check, mode: observe}
  - {on: post_tool_call, call: probe.redact, match: {tools: [shop.read]}, scan: [secrets]}
policy:
  rules: [{name: no-theft, tools: [shop.steal], verdict: refuse}]
`

// write writes the plugin with files of cases into a folder.
func write(t testing.TB, files map[string]string) *plugin.Manifest {
	t.Helper()
	dir := t.TempDir()
	all := map[string]string{"server.py": server, plugin.File: manifest, "agent/agent.yml": "agent:\n  persona: You are a test.\n",
		"agent/integrations.yml": "llm: {provider: openai, model: x}\n",
		"agent/hooks.py":         "from belay.hooks import ToolResultPayload, modify_tool_result\n\n\n@modify_tool_result()\nasync def shout(p: ToolResultPayload) -> ToolResultPayload:\n    return p.model_copy(update={'value': p.value.upper()})\n"}
	for name, text := range files {
		all[name] = text
	}
	for name, text := range all {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	m, findings := plugin.Read(dir)
	if finding.HasErrors(findings) {
		t.Fatal(list(t, findings))
	}
	return m
}

func list(t testing.TB, findings []finding.Finding) string {
	t.Helper()
	var b strings.Builder
	if err := finding.Text(&b, findings); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// python skips a test that needs an interpreter with the MCP library.
func python(t testing.TB) {
	t.Helper()
	if os.Getenv("BELAY_PYTHON") == "" {
		t.Skip("BELAY_PYTHON is not set; make test sets it")
	}
}

// read reads a file of cases, which must be without errors.
func read(t testing.TB, m *plugin.Manifest, name string) *plugintest.File {
	t.Helper()
	f, findings := plugintest.Read(filepath.Join(m.Dir, filepath.FromSlash(name)))
	findings = append(findings, plugintest.Check(f, m)...)
	if finding.HasErrors(findings) {
		t.Fatal(list(t, findings))
	}
	return f
}
