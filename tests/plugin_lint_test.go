package tests

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/belay-run/belay/internal/finding"
)

// cli is the real program.
type cli struct{ path string }

// buildCLI builds the program for a test that runs it with plugins, whose servers need
// an interpreter with the MCP library.
func buildCLI(t *testing.T) cli {
	t.Helper()
	if os.Getenv("BELAY_PYTHON") == "" {
		t.Skip("BELAY_PYTHON is not set; make test sets it")
	}
	path := filepath.Join(t.TempDir(), "belay")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", path, "../cmd/belay").CombinedOutput(); err != nil {
		t.Fatalf("build the program: %v\n%s", err, out)
	}
	return cli{path}
}

// run runs a command and gives what it printed and its status.
func (c cli) run(t *testing.T, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	var out, errs strings.Builder
	cmd := exec.CommandContext(t.Context(), c.path, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// lint gives the findings of belay plugin lint.
func (c cli) lint(t *testing.T, dir string) ([]finding.Finding, int) {
	t.Helper()
	out, errs, status := c.run(t, "plugin", "lint", dir, "--format", "json")
	var got struct{ Findings []finding.Finding }
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v: %s%s", err, out, errs)
	}
	return got.Findings, status
}

// pluginFolder writes a plugin's files into a folder.
func pluginFolder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// guardServer has hooks that answer in different forms, and some that cannot be hooks
// as they are.
const guardServer = `
from typing import TypedDict

from mcp.server import MCPServer
from mcp.types import ToolAnnotations

server = MCPServer("guard")
harmless = ToolAnnotations(read_only_hint=True, open_world_hint=False)


class Answer(TypedDict):
    decision: str
    reason: str


@server.tool(annotations=harmless)
def check(event: dict) -> dict:
    """Answers what the event's arguments say, and otherwise allows."""
    return event.get("arguments", {}).get("answer", {"decision": "allow"})


@server.tool(annotations=harmless)
def structured(event: dict) -> Answer:
    return {"decision": "deny", "reason": "for " + "/".join(sorted(event))}


@server.tool(annotations=harmless)
def text(event: dict) -> str:
    return '{"decision": "deny", "reason": "in words"}'


@server.tool(annotations=harmless)
def more(event: dict, other: str) -> dict:
    return {"decision": "allow"}


@server.tool()
def silent(event: dict) -> dict:
    return {"decision": "allow"}


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def half(event: dict) -> dict:
    return {"decision": "allow"}


@server.tool(annotations=ToolAnnotations(read_only_hint=False, open_world_hint=False))
def acts(event: dict) -> dict:
    return {"decision": "allow"}


if __name__ == "__main__":
    server.run()
`

// mistaken is a manifest with one mistake a line; after # stand the id of what it
// proves, the rule that finds it, and what it is.
const mistaken = `name: mistaken
tools:
  - {id: guard, mcp: [python, -m, server]}
  - {id: far, url: "http://127.0.0.1:9/mcp"} # P01 mcp-unreachable: a server that cannot be asked
  - {id: odd, url: "http://127.0.0.1:9/mcp", retries: 2} # P01 unknown-key: a key of a tool
hooks:
  - {on: pre_tool_call, call: guard.check, retries: 2} # P01 unknown-key: a key of a hook
  - {on: pre_tool_cal, call: guard.check} # P01 unknown-value: an event
  - {on: pre_tool_call, call: guard.check, on_timeout: retry} # P01 unknown-value: a value
  - {on: pre_tool_call, call: guard.check, match: {tool: [a.b]}} # P01 unknown-key: a key of match
  - {on: pre_tool_call, call: gard.check} # P01 unknown-tool: a tool that the plugin does not have
  - {on: pre_tool_call, call: guard.chek} # P01 unknown-function: a function that its tool does not have
  - {on: pre_tool_call, call: guard.check, match: {tools: [elsewhere.x], agents: [elsewhere]}} # P01 -: names in match are not looked up
  - {on: job_end, call: guard.more} # P02 hook-signature: a function that needs more than the event
  - {on: pre_tool_call, call: guard.silent} # P04 no-annotations: a function without annotations
  - {on: pre_tool_call, call: guard.half} # P04 no-annotations: one that does not declare its world
  - {on: pre_tool_call, call: guard.acts} # P04 hook-acts: one that writes
  - {on: pre_tool_call, call: guard.check, decisions: [allow, escalate]} # P20 -: the list of an escalate-only hook
  - {on: pre_tool_call, call: guard.check, decisions: [escalate, allow]} # P20 bad-decisions: another order
  - {on: pre_tool_call, call: guard.check, decisions: [allow, deny]} # P20 bad-decisions: another word
  - {on: pre_tool_call, call: guard.check, decisions: [allow, escalate, deny]} # P20 bad-decisions: a word more
  - {on: pre_tool_call, call: guard.check, decisions: []} # P20 empty-list: no word
  - {on: pre_tool_call, call: guard.check, decisions: [allow, escalate], on_timeout: escalate} # P22 -: on_timeout as it must be
  - {on: pre_tool_call, call: guard.check, decisions: [allow, escalate], on_timeout: deny} # P22 bad-on-timeout: on_timeout deny
  - {on: pre_tool_call, call: guard.check, decisions: [allow, escalate], on_timeout: allow} # P22 bad-on-timeout: on_timeout allow
  - {on: post_tool_call, call: guard.check, scan: [secrets]} # P45 -: a hook that may ask for scan
  - {on: post_tool_call, call: far.check, scan: [secrets]} # P45 remote-scan: a remote hook
  - {on: pre_tool_call, call: guard.check, scan: [secrets]} # P45 scan-event: another event
  - {on: pre_tool_call, call: guard.check, timeout: 30s} # P60 -: the most
  - {on: pre_tool_call, call: guard.check, timeout: 30.1} # P60 bad-timeout: more than the most
  - {on: pre_tool_call, call: guard.check, timeout: 0s} # P60 bad-timeout: no time
  - {on: pre_tool_call, call: guard.check, match: {tools: []}} # P91 empty-list: no tools
  - {on: pre_tool_call, call: guard.check, match: {agents: []}} # P91 empty-list: no agents
  - {on: pre_tool_call, call: guard.check, match: {}} # P91 empty-list: no names
  - {on: job_start, call: guard.check, match: {tools: [a.b]}} # P91 match-tools: tools on a job event
`

// TestPluginsFromTheCommandLine builds the program once for all that it tries.
func TestPluginsFromTheCommandLine(t *testing.T) {
	t.Parallel()
	belay := buildCLI(t)
	areChecked(t, belay)
	ofAnotherPlatform(t, belay)
	areInspected(t, belay)
	whichHooksAreAsked(t, belay)
	policyPathCoverage(t, belay)
}

func areChecked(t *testing.T, belay cli) {
	dir := pluginFolder(t, map[string]string{"belay-plugin.yaml": mistaken, "server.py": guardServer})
	findings, status := belay.lint(t, dir)
	for i, line := range strings.Split(mistaken, "\n") {
		m := regexp.MustCompile(`# (P\d+) (\S+): (.*)$`).FindStringSubmatch(line)
		if m == nil {
			continue
		}
		t.Run(m[1]+" "+m[3], func(t *testing.T) {
			var here []finding.Finding
			for _, f := range findings {
				if f.Line == i+1 && f.File == "belay-plugin.yaml" {
					here = append(here, f)
				}
			}
			if m[2] == "-" {
				if len(here) > 0 {
					t.Errorf("found %+v", here)
				}
				return
			}
			at := slices.IndexFunc(here, func(f finding.Finding) bool { return f.Rule == m[2] })
			if at < 0 {
				t.Fatalf("found %+v", here)
			}
			want := finding.Error
			if m[1] == "P04" {
				want = finding.Warning
			}
			if f := here[at]; f.Severity != want || f.Column == 0 || len(f.Hint) < 10 {
				t.Errorf("found %+v", f)
			}
		})
	}
	t.Run("P04 the warning names the annotation to add", func(t *testing.T) {
		for message, hint := range map[string]string{"guard.silent declares nothing": "read_only_hint=True, open_world_hint=False", "guard.half does not declare all": "open_world_hint=False"} {
			if !slices.ContainsFunc(findings, func(f finding.Finding) bool {
				return strings.Contains(f.Message, message) && strings.Contains(f.Hint, hint)
			}) {
				t.Errorf("nothing says that %s, with the hint %s", message, hint)
			}
		}
	})
	t.Run("P01 lint fails, and so does what would use the plugin", func(t *testing.T) {
		if status != 1 {
			t.Errorf("lint ended with status %d", status)
		}
		for _, command := range []string{"inspect", "test"} {
			if _, errs, status := belay.run(t, "plugin", command, dir); status != 1 || !strings.Contains(errs, "[bad-timeout]") {
				t.Errorf("%s ended with status %d: %s", command, status, errs)
			}
		}
	})
}

// acmePolicy is the sample of the page for authors.
var acmePolicy = map[string]string{"oz0-plugin.yaml": `name: acme-policy
tools:
  - id: acme_policy
    mcp: ["python", "-m", "acme_policy.server"]
hooks:
  - on: pre_tool_call
    call: acme_policy.check       # the function that answers
    match: { tools: ["acme_github.merge", "acme_github.push"] }
    timeout: 2s
    on_timeout: escalate
  - on: job_end
    call: acme_policy.check
    match: { agents: [acme-reviewer] }
`, "src/acme_policy/server.py": `from mcp.server import MCPServer
from mcp.types import ToolAnnotations

server = MCPServer("acme-policy")


# A hook is a call too: since v1.0 a function that declares nothing waits for a person before it is asked.
@server.tool(annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False))
def check(event: dict) -> dict:
    """Decide on a call or a job."""
    if event["event"] == "pre_tool_call" and event["arguments"].get("branch") == "main":
        return {"decision": "escalate", "reason": "a push to main"}
    if event["event"] == "job_end":
        return {"decision": "modify", "output": event["output"] + "\n\nChecked by policy."}
    return {"decision": "allow"}
`}

func ofAnotherPlatform(t *testing.T, belay cli) {
	dir := pluginFolder(t, acmePolicy)
	t.Run("P90 a manifest loads unchanged", func(t *testing.T) {
		if findings, status := belay.lint(t, dir); status != 0 || len(findings) > 0 {
			t.Errorf("status %d, found %+v", status, findings)
		}
	})
	t.Run("P02 P90 its hooks answer on first try", func(t *testing.T) {
		cases := pluginFolder(t, map[string]string{"cases.yaml": `cases:
  - name: escalated
    event: {on: pre_tool_call, tool: acme_github.push, arguments: {branch: main}}
    expect: escalate
    reason: a push to main
  - name: signed
    job: {agent: {name: acme-reviewer}, input: review, model: {default: {say: Fine.}}}
    expect: {output: "Fine.\n\nChecked by policy."}
`})
		if out, errs, status := belay.run(t, "plugin", "test", dir, filepath.Join(cases, "cases.yaml")); status != 0 {
			t.Errorf("status %d: %s%s", status, out, errs)
		}
	})
	t.Run("P90 sections that nobody acts on are warnings that name them", func(t *testing.T) {
		files := map[string]string{"src/acme_policy/server.py": acmePolicy["src/acme_policy/server.py"], "oz0-plugin.yaml": acmePolicy["oz0-plugin.yaml"] + "flows: [{id: nightly}]\nrecords: {}\n"}
		findings, status := belay.lint(t, pluginFolder(t, files))
		if status != 0 || len(findings) != 2 {
			t.Fatalf("status %d, found %+v", status, findings)
		}
		for i, name := range []string{"flows", "records"} {
			if f := findings[i]; f.Severity != finding.Warning || f.File != "oz0-plugin.yaml" || f.Line != 14+i || !strings.Contains(f.Message, `"`+name+`"`) {
				t.Errorf("found %+v", f)
			}
		}
	})
	t.Run("P01 P90 its tools and hooks are read as strictly as ours", func(t *testing.T) {
		files := map[string]string{"src/acme_policy/server.py": acmePolicy["src/acme_policy/server.py"], "oz0-plugin.yaml": strings.Replace(acmePolicy["oz0-plugin.yaml"], "timeout: 2s", "timeut: 2s", 1)}
		findings, status := belay.lint(t, pluginFolder(t, files))
		if status != 1 || len(findings) != 1 || findings[0].Rule != "unknown-key" || findings[0].Line != 9 {
			t.Errorf("status %d, found %+v", status, findings)
		}
	})
}

func areInspected(t *testing.T, belay cli) {
	dir := pluginFolder(t, map[string]string{"belay-plugin.yaml": `name: seen
tools: [{id: guard, mcp: [python, -m, server]}]
agents: [{id: concierge, folder: chat}, {id: worker, instructions: Work., model: fast}]
hooks:
  - {on: post_tool_call, call: guard.check, scan: [secrets]}
  - {on: pre_tool_call, call: guard.judge, decisions: [allow, escalate]}
  - {on: pre_tool_call, call: guard.check, timeout: 7s, on_timeout: allow}
`, "chat/agent.yml": "agent: {persona: You are a test.}\n"})
	out, errs, status := belay.run(t, "plugin", "inspect", dir, "--json")
	var got struct {
		Hooks []struct {
			Call, Timeout string
			OnTimeout     string `json:"on_timeout"`
		}
		Permissions []string
		Unwatched   []struct{ Agent, Why string }
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || status != 0 || len(got.Hooks) != 3 {
		t.Fatalf("%v, status %d: %s%s", err, status, out, errs)
	}
	t.Run("P22 an escalate-only hook's on_timeout is escalate when the manifest gives none", func(t *testing.T) {
		if got.Hooks[1].OnTimeout != "escalate" || got.Hooks[0].OnTimeout != "deny" {
			t.Errorf("hooks %+v", got.Hooks)
		}
	})
	t.Run("P60 a timeout is 2 s when the manifest gives none", func(t *testing.T) {
		if got.Hooks[0].Timeout != "2s" || got.Hooks[2].Timeout != "7s" {
			t.Errorf("hooks %+v", got.Hooks)
		}
	})
	t.Run("P45 the permissions say who is told where secrets are", func(t *testing.T) {
		told := func(s string) bool { return strings.Contains(s, "it is told where the tenant's known secrets are") }
		if n := slices.IndexFunc(got.Permissions, told); n < 0 || !strings.Contains(got.Permissions[n], "guard.check") {
			t.Errorf("permissions %q", got.Permissions)
		}
	})
	t.Run("P36 agents that answer outside a job are named", func(t *testing.T) {
		if len(got.Unwatched) != 1 || got.Unwatched[0].Agent != "concierge" || !strings.Contains(got.Unwatched[0].Why, "outside a job") {
			t.Errorf("unwatched %+v", got.Unwatched)
		}
	})
}
