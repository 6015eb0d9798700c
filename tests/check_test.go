package tests

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/internal/app"
	"github.com/belay-run/belay/internal/app/apptest"
	"github.com/belay-run/belay/internal/conversation"
	"github.com/belay-run/belay/internal/finding"
)

// broken are hook files, each with the one mistake that its name says; the line
// of the mistake ends with "# here", and the rule that finds it is told.
var broken = []struct{ name, rule, source string }{
	{"syntax", "syntax-error", "from belay.hooks import *\n\n\n@on_tool_call(  # here\n"},
	{"indentation", "syntax-error", "def f():\nreturn 1  # here\n"},
	{"missing module", "import-error", "import not_installed_anywhere  # here\n"},
	{"missing name", "import-error", "from belay.hooks import on_tool_call\nfrom lib.probe import no_such_name  # here\n"},
	{"raises", "import-error", "VALUE = {}\nVALUE['key']  # here\n"},
	{"exits", "import-error", "import sys\nsys.exit(3)  # here\n"},
	{"missing import", "import-error", "@on_tool_call()  # here\nasync def f(p) -> None:\n    pass\n"},
	{"bare decorator", "bare-decorator", "from belay.hooks import *\n\n\n@on_tool_call  # here\nasync def f(p: ToolCallPayload) -> None:\n    pass\n"},
	{"no modify lane", "unknown-point", "from belay.hooks import modify_turn_started  # here\n"},
	{"no such point", "unknown-point", "from belay.hooks import on_asr_partial  # here\n"},
	{"no such point of a module", "unknown-point", "import belay.hooks as h\n\n\n@h.modify_turn_finished()  # here\nasync def f(p: h.TurnFinishedPayload) -> h.TurnFinishedPayload:\n    return p\n"},
	{"no such point in the older module", "unknown-point", "from rasa.mantle.hooks import on_outgoing_audio  # here\n"},
	{"double", "double-modify", "from belay.hooks import *\n\n\n@modify_tool_call()\nasync def f(p: ToolCallPayload) -> ToolCallPayload:\n    return p\n\n\n" +
		"@modify_tool_call()  # here\nasync def g(p: ToolCallPayload) -> ToolCallPayload:\n    return p\n"},
	{"not async", "not-async", "from belay.hooks import *\n\n\n@on_tool_call()\ndef f(p: ToolCallPayload) -> None:  # here\n    pass\n"},
	{"wrong payload", "payload-annotation", "from belay.hooks import *\n\n\n@on_tool_call()\nasync def f(p: ToolResultPayload) -> None:  # here\n    pass\n"},
	{"wrong return", "return-annotation", "from belay.hooks import *\n\n\n@on_tool_call()\nasync def f(p: ToolCallPayload) -> bool:  # here\n    pass\n"},
	{"wrong signature", "signature", "from belay.hooks import *\n\n\n@on_tool_call()\nasync def f() -> None:  # here\n    pass\n"},
	{"signal", "signal-not-allowed", "from belay.hooks import *\n\n\n@on_tool_call()\nasync def f(p: ToolCallPayload) -> None:\n    raise RetryModel('x')  # here\n"},
	{"returned signal", "signal-returned", "from belay.hooks import *\n\n\n@on_tool_call()\nasync def f(p: ToolCallPayload) -> None:\n    return RetryModel('x')  # here\n"},
	{"wrong timeout", "timeout-ms", "from belay.hooks import *\n\n\n@on_tool_call(timeout_ms=0)  # here\nasync def f(p: ToolCallPayload) -> None:\n    pass\n"},
	{"undeclared memory", "undeclared-memory", "from belay.tools import ToolContext\n\n\ndef keep(context: ToolContext) -> None:\n    context.memory.set('day', 1)  # here\n"},
	{"wrong argument", "decorator-argument", "from belay.hooks import *\n\n\n@on_tool_call(order=1)  # here\nasync def f(p: ToolCallPayload) -> None:\n    pass\n"},
}

// files of the agent that has all these mistakes, and a good hook and tool.
func allBroken() apptest.Files {
	files := apptest.Files{
		"hooks.py":       noting("good"),
		"tools/clock.py": "from belay.tools import tool\n\n\n@tool(description='Tells the time.')\ndef clock() -> str:  # here\n    return 'noon'\n",
		"agent.yml":      "agent:\n  persona: You are a test.\n  mood: cheerful\n",
		"responses.yml":  "responses:\n  utter_x: [\n",
	}
	for i, b := range broken {
		files[fmt.Sprintf("hooks/b%02d.py", i)] = b.source
	}
	return files
}

func TestCheck(t *testing.T) {
	t.Parallel()
	dir := apptest.Folder(t, allBroken())
	findings, hooks, err := app.Check(context.Background(), app.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	byFile := map[string][]finding.Finding{}
	for _, f := range findings {
		byFile[f.File] = append(byFile[f.File], f)
	}
	for i, b := range broken {
		file := fmt.Sprintf("hooks/b%02d.py", i)
		t.Run("T80 "+b.name+" is found with file, line, rule and hint", func(t *testing.T) {
			if len(byFile[file]) != 1 {
				t.Fatalf("findings: %+v", byFile[file])
			}
			f, lines := byFile[file][0], marked(b.source, "# here")
			if f.Rule != b.rule || f.Line != lines[0] || f.Severity != finding.Error || len(f.Message) < 10 || len(f.Hint) < 10 {
				t.Errorf("found %+v, want %s in line %v", f, b.rule, lines)
			}
		})
	}
	t.Run("T80 what else is wrong is reported in the same run", func(t *testing.T) {
		for file, rule := range map[string]string{"tools/clock.py": "not-async", "agent.yml": "unknown-key", "responses.yml": "yaml-syntax"} {
			if fs := byFile[file]; len(fs) != 1 || fs[0].Rule != rule || fs[0].Line == 0 || fs[0].Hint == "" {
				t.Errorf("%s: %+v", file, fs)
			}
		}
		if len(byFile) != len(broken)+3 {
			t.Errorf("findings in %v", slices.Sorted(maps.Keys(byFile)))
		}
		if !slices.ContainsFunc(hooks, func(h *hook.Hook) bool { return h.Name == "hooks.py:good" }) {
			t.Error("the good hook was not read")
		}
	})
	t.Run("T81 loading finds the same, and the agent does not serve", func(t *testing.T) {
		expect(t, "findings", finding.Clean(openFindings(t, dir)), finding.Clean(findings))
	})
	t.Run("T82 as text", func(t *testing.T) {
		var text bytes.Buffer
		if err := finding.Text(&text, finding.Clean(findings)); err != nil {
			t.Fatal(err)
		}
		for _, f := range findings {
			if !strings.Contains(text.String(), fmt.Sprintf("%s:%d", f.File, f.Line)) || !strings.Contains(text.String(), "["+f.Rule+"]") || !strings.Contains(text.String(), "hint: "+f.Hint) {
				t.Errorf("%+v is not in the text", f)
			}
		}
	})
	t.Run("T82 as JSON", func(t *testing.T) {
		var text bytes.Buffer
		var got struct{ Findings []finding.Finding }
		if err := finding.JSON(&text, finding.Clean(findings)); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		expect(t, "findings", got.Findings, finding.Clean(findings))
	})
	t.Run("T82 as SARIF", func(t *testing.T) { isSARIF(t, finding.Clean(findings)) })
}

// isSARIF writes findings as SARIF and reads them again.
func isSARIF(t *testing.T, findings []finding.Finding) {
	t.Helper()
	var text bytes.Buffer
	if err := finding.SARIF(&text, findings, app.Rules(), "1"); err != nil {
		t.Fatal(err)
	}
	var log struct {
		Version string
		Runs    []struct {
			Tool struct {
				Driver struct{ Rules []struct{ ID string } }
			}
			Results []struct {
				RuleID    string
				RuleIndex int
				Level     string
				Message   struct{ Text string }
				Locations []struct {
					PhysicalLocation struct {
						ArtifactLocation struct{ URI string }
						Region           struct{ StartLine int }
					}
				}
			}
		}
	}
	if err := json.Unmarshal(text.Bytes(), &log); err != nil {
		t.Fatal(err)
	}
	if log.Version != "2.1.0" || len(log.Runs) != 1 || len(log.Runs[0].Results) != len(findings) {
		t.Fatalf("version %s, %d runs", log.Version, len(log.Runs))
	}
	for i, f := range findings {
		r := log.Runs[0].Results[i]
		at := r.Locations[0].PhysicalLocation
		if r.RuleID != f.Rule || log.Runs[0].Tool.Driver.Rules[r.RuleIndex].ID != f.Rule || r.Level != string(f.Severity) || !strings.Contains(r.Message.Text, f.Message) ||
			at.ArtifactLocation.URI != f.File || at.Region.StartLine != f.Line {
			t.Errorf("result %+v is not %+v", r, f)
		}
	}
}

func TestEachMistakeKeepsAnAgentFromServing(t *testing.T) {
	t.Parallel()
	// One of each rule, each alone: no finding needs another one's company.
	tried := map[string]bool{}
	for _, b := range broken {
		if tried[b.rule] {
			continue
		}
		tried[b.rule] = true
		t.Run("T81 "+b.rule+" alone", func(t *testing.T) {
			t.Parallel()
			found := openFindings(t, apptest.Folder(t, apptest.Files{"hooks.py": b.source}))
			if len(found) != 1 || found[0].Rule != b.rule {
				t.Errorf("findings: %+v", found)
			}
		})
	}
	t.Run("T81 an agent that is loaded again", func(t *testing.T) {
		t.Parallel()
		a := apptest.Start(t, apptest.Files{"hooks.py": noting("good")})
		apptest.Write(t, a.Dir, "hooks/worse.py", broken[0].source)
		var found *app.FindingsError
		if err := a.App.Reload(context.Background()); !errors.As(err, &found) || len(found.Findings) != 1 || found.Findings[0].File != "hooks/worse.py" {
			t.Errorf("loaded again: %v", err)
		}
		if r := a.Say("u", "hello"); r.Text() != "ok" || !slices.Contains(a.Noted(), "asked good") {
			t.Errorf("the old version said %q", r.Text())
		}
	})
}

func TestImportsThatDoNotEnd(t *testing.T) {
	t.Parallel()
	dir := apptest.Folder(t, apptest.Files{
		"hooks/sleeps.py": "import time\n\ntime.sleep(60)\n",
		"hooks/exits.py":  "import os\n\nos._exit(0)\n",
		"tools/dies.py":   "import ctypes\n\nctypes.string_at(0)\n",
		"hooks/wrong.py":  broken[7].source,
		"hooks.py":        noting("good"),
	})
	began := time.Now()
	findings, hooks, err := app.Check(context.Background(), app.Config{Dir: dir})
	took := time.Since(began)
	if err != nil {
		t.Fatal(err)
	}
	byFile := map[string]finding.Finding{}
	for _, f := range findings {
		byFile[f.File] = f
	}
	t.Run("T84 a module that does not finish importing within 10 s is a finding", func(t *testing.T) {
		if f := byFile["hooks/sleeps.py"]; f.Rule != "import-timeout" || f.Severity != finding.Error || f.Line != 1 || f.Hint == "" || !strings.Contains(f.Message, "10s") {
			t.Errorf("found %+v", f)
		}
		if took < 10*time.Second || took > 50*time.Second {
			t.Errorf("the check took %v", took)
		}
	})
	t.Run("T84 a module that ends its interpreter is a finding", func(t *testing.T) {
		for _, file := range []string{"hooks/exits.py", "tools/dies.py"} {
			if f := byFile[file]; f.Rule != "import-death" || f.Severity != finding.Error || f.Hint == "" {
				t.Errorf("%s: found %+v", file, f)
			}
		}
	})
	t.Run("T84 the rest is checked all the same", func(t *testing.T) {
		if f := byFile["hooks/wrong.py"]; f.Rule != "bare-decorator" || len(findings) != 4 {
			t.Errorf("findings: %+v", findings)
		}
		if !slices.ContainsFunc(hooks, func(h *hook.Hook) bool { return h.Name == "hooks.py:good" }) {
			t.Error("the good hook was not read")
		}
	})
}

// slowStart is a module that takes longer to import than its hook may take.
const slowStart = `from __future__ import annotations

import os
import time

from belay.hooks import IncomingMessagePayload, modify_incoming_message

time.sleep(1.2)


@modify_incoming_message(timeout_ms=600)
async def guard(message: IncomingMessagePayload) -> IncomingMessagePayload:
    if message.text == "die":
        os._exit(1)
    return message.model_copy(update={"text": message.text + " checked"})
`

func TestLimitsAndTheStartOfWorkers(t *testing.T) {
	t.Parallel()
	a := apptest.Start(t, apptest.Files{"hooks.py": slowStart})
	t.Run("T85 the time of a hook does not count its worker's start", func(t *testing.T) {
		// More deaths than there are spares: the message after them waits for an
		// interpreter that takes longer to start than the hook may take.
		for i := range 3 {
			if r := a.Say("u", "die"); r.Report.Status != "error" {
				t.Fatalf("death %d: %+v", i, r)
			}
			r := a.Say("u", "hello")
			if user := a.Of("u", conversation.User); r.Text() != "ok" || user[len(user)-1].Text != "hello checked" {
				t.Errorf("after death %d the user heard %q; recorded %+v", i, r.Text(), user[len(user)-1])
			}
		}
		waited := false
		for _, part := range a.Trace("u") {
			for _, l := range part.Lines {
				for _, run := range l.Runs {
					waited = waited || run.Waited > 600*time.Millisecond && run.Failure == nil
				}
			}
		}
		if !waited {
			t.Error("no hook waited longer than its limit for a worker, so nothing was proved")
		}
	})
}
