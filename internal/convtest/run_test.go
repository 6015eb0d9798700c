package convtest

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belay-run/belay/internal/agent/template"
	"github.com/belay-run/belay/internal/app"
	"github.com/belay-run/belay/internal/app/apptest"
	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/loop"
)

// agentFiles are of an agent with a hook of each kind of trouble, and a tool.
var agentFiles = apptest.Files{
	"hooks.py": `import time
from belay.hooks import *
from lib.probe import note

seen = {}


@modify_incoming_message()
async def mask(message: IncomingMessagePayload) -> IncomingMessagePayload:
    seen[message.sender_id] = seen.get(message.sender_id, 0) + 1
    if "reject" in message.text:
        raise HookRejection(reason="no")
    return message.model_copy(update={"text": message.text.replace("secret", f"[{seen[message.sender_id]}]")})


@modify_tool_result()
async def broken(result: ToolResultPayload) -> ToolResultPayload:
    if "crash" in result.arguments.get("item", ""):
        raise ValueError("planted")
    return result


@on_outgoing_text()
async def watch(text: OutgoingTextPayload) -> None:
    if "crash" in text.text:
        raise ValueError("planted")


@modify_knowledge_query()
async def never(query: KnowledgeQueryPayload) -> KnowledgeQueryPayload:
    return query
`,
	"tools.py": `import asyncio
from belay.tools import tool, ToolResult


@tool(description="Looks something up.")
async def look_up(item: str) -> ToolResult:
    if item == "slow":
        await asyncio.sleep(5)
    return ToolResult(llm_response={"item": item, "found": True})


@tool(description="Is never used.")
async def unused() -> ToolResult:
    return ToolResult(llm_response="x")
`,
	"script.yml": `rules:
  - when: {tool: look_up}
    say: Here it is.
  - when: {user: 'look up (\w+)'}
    call: {tool: look_up, args: {item: "{1}"}}
  - when: {user: '(.*)'}
    say: "heard: {1}"
`,
}

// ran writes an agent and its tests, and runs them.
func ran(t *testing.T, files apptest.Files, change func(*Config), tests ...string) (*Report, string) {
	t.Helper()
	dir := apptest.Folder(t, files)
	var all []*File
	for i, text := range tests {
		f, found := Read(write(t, dir, filepath.Join("tests", string(rune('a'+i))+".yml"), text))
		if len(found) > 0 {
			t.Fatalf("findings: %+v", found)
		}
		all = append(all, f)
	}
	cfg := Config{App: app.Config{Dir: dir}}
	if change != nil {
		change(&cfg)
	}
	report, err := Run(t.Context(), cfg, all)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, f := range report.Files {
		if err := WriteFile(&b, f, false); err != nil {
			t.Fatal(err)
		}
	}
	if err := report.WriteSummary(&b); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".belay")); len(left) > 0 {
		t.Error("the run left records in the agent's folder")
	}
	return report, strings.ReplaceAll(b.String(), dir+string(os.PathSeparator), "")
}

func wants(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("it does not say %q:\n%s", part, text)
		}
	}
}

func TestRun(t *testing.T) {
	report, text := ran(t, agentFiles, nil, `conversations:
  - name: masks what is secret
    turns:
      - user: my secret
        expect:
          message: "my [1]"
          texts: ["heard: my [1]"]
          tools: []
          hooks: [{hook: mask, said: changed}, {hook: watch, said: seen}]
      - user: my secret
        expect: {message: "my [2]"}
  - name: knows nothing of the others
    turns: [{user: a secret, expect: {message: "a [1]"}}]
  - name: one sender
    sender: ada
    turns: [{user: a secret, expect: {message: "a [1]"}}]
  - name: the same sender once more
    sender: ada
    turns: [{user: a secret, expect: {message: "a [1]"}}]
  - name: brings a script
    model: {default: {say: hi}}
    turns: [{user: reject, expect: {message: {discarded: rejected}, texts: [{response: utter_incoming_message_rejected}]}}, {user: a, expect: {texts: [hi]}}]
  - name: brings a recording
    turns:
      - user: what
        recording: [{tool_calls: [{name: look_up, arguments: {item: lamp}}]}, {text: "A lamp."}]
        expect: {texts: [A lamp.], tools: [{name: look_up, result: {found: true}}]}
`, `conversations:
  - name: fails
    turns:
      - user: look up lamp
        expect: {texts: [Here it was.]}
      - user: never said
`)
	if report.OK() || report.Totals() != (Totals{Conversations: 7, Passed: 6, Failed: 1}) {
		t.Errorf("totals %+v:\n%s", report.Totals(), text)
	}
	wants(t, text, "  ok    masks what is secret", "  FAIL  fails", `        turn 1, line 4: "look up lamp"`, "texts (tests/b.yml:5)",
		`          - "Here it was."`, `          + "Here it is."`, "1 turn after it not run", "7 conversations in ", "6 ok, 1 failed",
		"Hooks that fired in no test:\n  knowledge_query        modify   hooks.py:never (line ", "Tools that ran in no test:\n  unused\n")
	if len(report.Unreached.Hooks) != 1 || !slices.Equal(report.Unreached.Tools, []string{"unused"}) {
		t.Errorf("unreached %+v", report.Unreached)
	}
	for _, h := range report.Hooks {
		if h.Name == "hooks.py:mask" && (h.Asked != 9 || h.Said["changed"] != 5 || h.Said["nothing to change"] != 3 || h.Said["reject"] != 1) {
			t.Errorf("counts of mask: %+v", h)
		}
	}
	if !strings.Contains(report.Files[1].Results[0].Trace, "tool look_up: ok") {
		t.Errorf("trace %q", report.Files[1].Results[0].Trace)
	}
	inForms(t, report)
}

// inForms checks what programs read.
func inForms(t *testing.T, report *Report) {
	var b bytes.Buffer
	if err := report.WriteJSON(&b, true); err != nil {
		t.Fatal(err)
	}
	var got struct {
		OK            bool
		Conversations []struct {
			Name, Status string
			Failures     []struct{ Expected, Seen []string }
		}
		Hooks     []map[string]any
		Unreached map[string][]any
	}
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	last := got.Conversations[6]
	if got.OK || last.Status != "failed" || last.Failures[0].Expected[0] != `"Here it was."` || last.Failures[0].Seen[0] != `"Here it is."` || len(got.Hooks) != 4 || len(got.Unreached["hooks"]) != 1 {
		t.Errorf("JSON: %s", b.String())
	}
	b.Reset()
	if err := report.WriteJUnit(&b, true); err != nil {
		t.Fatal(err)
	}
	var suites junitSuites
	if err := xml.Unmarshal(b.Bytes(), &suites); err != nil {
		t.Fatal(err)
	}
	if suites.Tests != 8 || suites.Failures != 2 || suites.Errors != 0 || len(suites.Suites) != 3 || suites.Suites[1].Cases[0].Failure == nil {
		t.Errorf("JUnit: %s", b.String())
	}
}

func TestTrouble(t *testing.T) {
	for name, c := range map[string]struct {
		test string
		says []string // "" for one that passes
	}{
		"a script that runs out": {"model: {rules: [{when: {user: a}, say: b}]}, turns: [{user: x, expect: {texts: [b]}}]",
			[]string{`+ "I'm sorry, but something went wrong. Please try again." (utter_internal_error)`, "model: the model failed (main): the script has no rule for this request"}},
		"a turn that broke off and nobody looks": {"model: {rules: [{when: {user: a}, say: b}]}, turns: [{user: x}]", []string{"status: the turn broke off (model_error)"}},
		"a recording that runs out": {"turns: [{user: x, recording: [{tool_calls: [{name: look_up, arguments: {item: a}}]}]}]",
			[]string{"recording (tests/a.yml:2): the model was asked to go on, and the recording has nothing more for turn 1; it has given 1 completion"}},
		"a recording that is left over": {"model: {recording: [{text: a}, {text: b}, {text: c}]}, turns: [{user: x}, {user: y}]",
			[]string{"turn 2", `the model was not asked for 1 completion of the recording: "c"`}},
		"a hook that decides crashes":             {"turns: [{user: look up crash}]", []string{"hooks: hooks.py:broken failed at tool_result, and no expectation says that it may: crash", "Hooks that failed:\n  tool_result            hooks.py:broken  1 of 1 time"}},
		"a crash that is expected":                {"turns: [{user: look up crash, expect: {hooks: [{hook: broken, said: failed}], texts: [Here it is.]}}]", nil},
		"an observer that crashes":                {"turns: [{user: crash, expect: {texts: [{contains: crash}]}}]", nil},
		"an observer that must not have crashed":  {"turns: [{user: crash, expect: {hooks: [{hook: watch, said: seen}]}}]", []string{"- watch: seen", "+ watch outgoing_text: failed"}},
		"a turn that takes too long":              {"turns: [{user: look up slow}]", []string{"turn (tests/a.yml:2): the turn took longer than 400ms and was cancelled"}},
		"text with what would steer a terminal":   {"model: {default: {say: \"a\\e[31m\"}}, turns: [{user: x, expect: {texts: [a]}}]", []string{`+ "a\u001b[31m"`}},
		"a tool that the agent does not have":     {"turns: [{user: x, recording: [{tool_calls: [{name: no_such}]}, {text: b}], expect: {tools: [{name: no_such, is_error: true}]}}]", []string{"tests/a.yml:2:108: warning: the agent has no tool \"no_such\" [unknown-name]"}},
		"a hook that the agent does not have":     {"turns: [{user: x, expect: {hooks: [{hook: maks}]}}]", []string{"error: the agent has no hook \"maks\" [unknown-name]", "x  not run", "1 file cannot be run"}},
		"a hook at another point":                 {"turns: [{user: x, expect: {hooks: [{hook: mask, point: tool_call}]}}]", []string{`hook "mask" does not stand at "tool_call"`}},
		"a response that the agent does not have": {"turns: [{user: x, expect: {texts: [{response: utter_no}]}}]", []string{`there is no response "utter_no"`}},
		"memory that the agent does not have":     {"turns: [{user: x, expect: {memory: {project.name: a}}}]", []string{`no memory value "project.name" is declared`}},
		"a skill that the agent does not have":    {"turns: [{user: x, expect: {skill: booking}}]", []string{`the agent has no skill "booking"`}},
	} {
		t.Run(name, func(t *testing.T) {
			change := func(cfg *Config) {
				if strings.Contains(name, "too long") {
					cfg.Timeout = 400 * time.Millisecond
				}
			}
			report, text := ran(t, agentFiles, change, "conversations:\n  - {name: x, "+c.test+"}\n")
			if passes := c.says == nil || strings.Contains(c.says[0], "warning"); passes != report.OK() {
				t.Errorf("passed: %v\n%s", report.OK(), text)
			}
			wants(t, text, c.says...)
		})
	}
}

func TestOnlySomeAreRun(t *testing.T) {
	const tests = `conversations:
  - {name: first, turns: [{user: a, expect: {texts: [b]}}]}
  - {name: second, turns: [{user: a}]}
`
	report, text := ran(t, agentFiles, func(c *Config) { c.FailFast, c.Parallel = true, 1 }, tests, tests)
	if report.Totals() != (Totals{Conversations: 4, Failed: 1, NotRun: 3}) {
		t.Errorf("fail fast: %+v", report.Totals())
	}
	wants(t, text, "second  not run", "3 not run", "What no test reaches is not told: some conversations could not be run.")

	report, text = ran(t, agentFiles, func(c *Config) { c.Only = regexp.MustCompile("^sec") }, tests)
	if report.Totals() != (Totals{Conversations: 1, Passed: 1}) || !report.OK() || strings.Contains(text, "first") {
		t.Errorf("only some: %+v\n%s", report.Totals(), text)
	}
	if report, _ = ran(t, agentFiles, func(c *Config) { c.Only = regexp.MustCompile("nothing") }, tests); report.OK() {
		t.Error("a run of nothing is ok")
	}
}

func TestInterrupted(t *testing.T) {
	dir := apptest.Folder(t, agentFiles)
	f, _ := Read(write(t, dir, "t.yml", `conversations:
  - {name: first, turns: [{user: a}]}
  - {name: second, turns: [{user: look up slow}]}
  - {name: third, turns: [{user: a}]}
`))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	watch := func(s loop.State) {
		if s.Phase == loop.Dispatching { // the second has begun
			cancel()
		}
	}
	report, err := Run(ctx, Config{App: app.Config{Dir: dir, Watch: watch}}, []*File{f})
	if err != nil {
		t.Fatal(err)
	}
	if report.OK() || !report.Interrupted || report.Totals() != (Totals{Conversations: 3, Passed: 1, NotRun: 2}) {
		t.Errorf("%+v, interrupted %v", report.Totals(), report.Interrupted)
	}
}

func TestAgentsThatCannotBeTested(t *testing.T) {
	const test = "conversations: [{name: x, turns: [{user: a}]}]"
	dir := apptest.Folder(t, apptest.Files{"hooks.py": "import no_such_module\n"})
	f, _ := Read(write(t, dir, "t.yml", test))
	_, err := Run(t.Context(), Config{App: app.Config{Dir: dir}}, []*File{f, f, f})
	var found *app.FindingsError
	if !errors.As(err, &found) {
		t.Errorf("a hook that cannot be imported: %v", err)
	}
	if err != nil && strings.Contains(err.Error(), "\n") {
		t.Errorf("the same is said more than once: %v", err)
	}

	dir = apptest.Folder(t, apptest.Files{"integrations.yml": "llm: {provider: openai, model: m}\n"})
	t.Setenv("OPENAI_API_KEY", "")
	f, _ = Read(write(t, dir, "t.yml", test))
	report, err := Run(t.Context(), Config{App: app.Config{Dir: dir}}, []*File{f})
	if err != nil || report.OK() || len(report.Files[0].Findings) != 1 || report.Files[0].Findings[0].Rule != "no-model" || report.Files[0].Findings[0].Severity != finding.Error {
		t.Errorf("a real model without --model: %v, %+v", err, report.Files[0])
	}
	f, _ = Read(write(t, dir, "t.yml", strings.Replace(test, "turns", "model: {default: {say: b}}, turns", 1)))
	if report, err = Run(t.Context(), Config{App: app.Config{Dir: dir}}, []*File{f}); err != nil || !report.OK() {
		t.Errorf("a script in place of a real model: %v, %+v", err, report)
	}
}

// skilled is an agent with skills, a block and memory.
var skilled = apptest.Files{
	"memory.yml": "name: {type: text, description: Who it is.}\nvisits: {type: number, initial_value: 3}\n",
	"skills/booking/skill.md": `---
name: Booking
description: Books a table.
---

Book a table for @memory.project.name.

:::ordered_block id=ask
name: Ask
description: Asks what is needed.
steps:
  - id: day
    collect: day
    utterance: utter_ask_day
  - id: done
    action: utter_done
:::

:::ordered_block id=other
name: Other
description: Is never entered.
steps:
  - id: only
    action: utter_done
:::
`,
	"skills/booking/memory.yml": "schema:\n  public:\n    day: {type: text, llm_settable: true}\n",
	"skills/other/skill.md":     "---\nname: Other\ndescription: Does something else.\n---\n\nDo something else.\n",
	"responses.yml":             "responses:\n  utter_ask_day: [\"Which day, {session.project.name}?\"]\n  utter_done: [\"Noted: {day}.\"]\n",
	"script.yml":                "default: {say: ok}\n",
}

func TestSkillsAndMemory(t *testing.T) {
	report, text := ran(t, skilled, nil, `conversations:
  - name: books
    memory: {project.name: Ada}
    turns:
      - user: a table please
        recording:
          - tool_calls: [{name: activate, arguments: {target_id: booking}}]
          - {purpose: fill, text: none}
          - tool_calls: [{name: activate, arguments: {target_id: ask}}]
        expect:
          texts: [{text: "Which day, Ada?", response: utter_ask_day}]
          tools: []
          memory: {project.name: Ada, project.visits: 3, booking.day: null}
          skill: booking
          block: ask
          step: day
      - user: monday
        recording:
          - tool_calls: [{name: set_fields, arguments: {day: monday}}]
          - text: Anything else?
        expect:
          texts: ["Noted: monday.", "Anything else?"]
          tools: [set_fields]
          memory: {booking.day: monday}
          skill: booking
          block: null
  - name: remembers nothing of the other
    model: {default: {say: hi}}
    turns: [{user: hello, expect: {memory: {project.name: null}, skill: null, texts: [hi]}}]
`)
	if !report.OK() {
		t.Error(text)
	}
	wants(t, text, "Skills that were active in no test:\n  other\n", "Blocks that were entered in no test:\n  booking/other\n")

	report, text = ran(t, skilled, nil, `conversations:
  - {name: x, memory: {project.visits: many, project.nmae: Ada}, turns: [{user: a, expect: {skill: bookin, step: dya}}]}
`)
	if report.OK() {
		t.Error("mistaken names pass")
	}
	wants(t, text, "project.visits cannot have this value", `hint: did you mean "project.name"?`, `hint: did you mean "booking"?`, `hint: did you mean "day"?`)
}

// TestManual runs the examples of the manual on the agent that belay init writes.
func TestManual(t *testing.T) {
	manual, err := os.ReadFile("../../docs/testing-agents.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "my-agent")
	if err := template.Write(dir); err != nil {
		t.Fatal(err)
	}
	var files []*File
	for _, m := range regexp.MustCompile("(?s)```yaml\n(conversations:.*?)```").FindAllStringSubmatch(string(manual), -1) {
		f, found := parse("testing-agents.md", []byte(m[1]))
		if len(found) > 0 {
			t.Fatalf("findings: %+v", found)
		}
		files = append(files, f)
	}
	report, err := Run(t.Context(), Config{App: app.Config{Dir: dir}}, files)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, f := range report.Files {
		if err := WriteFile(&b, f, true); err != nil {
			t.Fatal(err)
		}
	}
	if !report.OK() || len(files) < 2 {
		t.Errorf("%d examples of the manual:\n%s", len(files), b.String())
	}
}
