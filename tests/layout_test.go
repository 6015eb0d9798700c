package tests

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/belay-run/belay/internal/app"
	"github.com/belay-run/belay/internal/app/apptest"
)

// noting is a file with a hook at turn started that notes its name, and that notes
// its import.
func noting(name string) string {
	return strings.ReplaceAll(`from __future__ import annotations

from belay.hooks import TurnStartedPayload, on_turn_started
from lib.probe import note

note("imported NAME")


@on_turn_started()
async def NAME(turn: TurnStartedPayload) -> None:
    note("asked NAME")
`, "NAME", name)
}

// interpreter is the Python that agents of tests run on.
func interpreter() string {
	if python := os.Getenv("BELAY_PYTHON"); python != "" {
		return python
	}
	return "python3"
}

// hookNames checks a folder, which must have no errors, and returns the names of
// its hooks.
func hookNames(t *testing.T, dir string) []string {
	t.Helper()
	findings, hooks, err := app.Check(context.Background(), app.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range findings {
		if f.Severity == "error" {
			t.Errorf("a finding: %+v", f)
		}
	}
	var out []string
	for _, h := range hooks {
		out = append(out, h.Name)
	}
	slices.Sort(out)
	return out
}

// turnNotes starts the folder, says something and returns the notes, sorted.
func turnNotes(t *testing.T, dir string) []string {
	t.Helper()
	a := apptest.StartIn(t, dir)
	a.Say("u", "hello")
	out := a.Noted()
	slices.Sort(out)
	return out
}

func TestLayout(t *testing.T) {
	t.Parallel()

	t.Run("T01 hooks.py at the root is found, and no other file there", func(t *testing.T) {
		dir := apptest.Folder(t, apptest.Files{"hooks.py": noting("single"), "other.py": noting("other"), "my_hooks.py": noting("my"), "lib/hooks.py": noting("library")})
		expect(t, "hooks", hookNames(t, dir), []string{"hooks.py:single"})
		if err := os.Remove(filepath.Join(dir, "notes.jsonl")); err != nil { // the check imported it too
			t.Fatal(err)
		}
		expect(t, "notes", turnNotes(t, dir), []string{"asked single", "imported single"})
	})

	folder := apptest.Files{
		"hooks/one.py": noting("one"), "hooks/two.py": noting("two"), "hooks/deep/three.py": noting("three"), "hooks/deep/er/still/four.py": noting("four"),
		"hooks/with-a dash.py": noting("five"),
		// These are passed over.
		"hooks/__init__.py": noting("init"), "hooks/deep/__init__.py": noting("deep_init"), "hooks/__pycache__/cached.py": noting("cached"),
		"hooks/deep/__pycache__/cached.py": noting("cached"), "hooks/notes.txt": "no Python", "hooks/broken.pyc": "no Python either",
	}
	dir := apptest.Folder(t, folder)
	compile(t, dir, noting("compiled"), "hooks/compiled.pyc")
	names := hookNames(t, dir)
	if err := os.Remove(filepath.Join(dir, "notes.jsonl")); err != nil {
		t.Fatal(err)
	}
	notes := turnNotes(t, dir)
	t.Run("T02 files of the folder hooks are found, and of those in it", func(t *testing.T) {
		want := []string{"hooks/deep/er/still/four.py:four", "hooks/deep/three.py:three", "hooks/one.py:one", "hooks/two.py:two", "hooks/with-a dash.py:five"}
		expect(t, "hooks", names, want)
		for _, name := range []string{"one", "two", "three", "four", "five"} {
			if !slices.Contains(notes, "asked "+name) {
				t.Errorf("%s was not asked: %v", name, notes)
			}
		}
	})
	t.Run("T03 __init__.py, __pycache__ and *.pyc are passed over", func(t *testing.T) {
		for _, note := range notes {
			if name := strings.Fields(note)[1]; !slices.Contains([]string{"one", "two", "three", "four", "five"}, name) {
				t.Errorf("%s: it should have been passed over", note)
			}
		}
	})

	t.Run("T04 both layouts in one agent", func(t *testing.T) {
		dir := apptest.Folder(t, apptest.Files{
			"hooks/more.py": noting("more"),
			"hooks/change.py": "from belay.hooks import OutgoingTextPayload, modify_outgoing_text\n\n\n@modify_outgoing_text()\n" +
				"async def last(text: OutgoingTextPayload) -> OutgoingTextPayload:\n    return text.model_copy(update={'text': text.text + '!'})\n",
			"hooks.py": noting("single") + "\n\nfrom belay.hooks import IncomingMessagePayload, modify_incoming_message\n\n\n@modify_incoming_message()\n" +
				"async def first(message: IncomingMessagePayload) -> IncomingMessagePayload:\n    return message.model_copy(update={'text': 'hello ' + message.text})\n",
		})
		a := apptest.StartIn(t, dir)
		r := a.Say("u", "you")
		prompt := a.Messages(-1)
		if r.Text() != "ok!" || prompt[len(prompt)-1]["content"] != "hello you" {
			t.Errorf("the user heard %q, the model read %v", r.Text(), prompt[len(prompt)-1])
		}
		got := a.Noted()
		slices.Sort(got)
		expect(t, "notes", got, []string{"asked more", "asked single", "imported more", "imported single"})
	})
}

// compile puts a module into a folder of the agent as compiled code alone.
func compile(t *testing.T, dir, source, name string) {
	t.Helper()
	from := filepath.Join(t.TempDir(), "source.py")
	if err := os.WriteFile(from, []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	run := exec.Command(interpreter(), "-c", "import py_compile, sys; py_compile.compile(sys.argv[1], sys.argv[2], doraise=True)", from, filepath.Join(dir, name))
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

const sharedLib = `"""What tools and hooks share."""

LIMIT = 3
seen = []
`

func TestLibrary(t *testing.T) {
	t.Parallel()
	a := apptest.Start(t, apptest.Files{
		"lib/shared.py": sharedLib, "lib/package/__init__.py": "from lib.shared import LIMIT\n\nDOUBLE = 2 * LIMIT\n", "lib/package/inner.py": "from ..shared import seen\n",
		"hooks.py": `from __future__ import annotations

import shared
from belay.hooks import ToolCallPayload, modify_tool_call
from lib.package import DOUBLE
from lib.probe import note

AT_LOAD = shared.LIMIT + DOUBLE  # both are there while this module loads


@modify_tool_call()
async def before(call: ToolCallPayload) -> ToolCallPayload:
    shared.seen.append("hook")
    note("hook", id=id(shared), at_load=AT_LOAD, seen=list(shared.seen))
    return call
`,
		"hooks/after.py": `from __future__ import annotations

import lib.shared
from belay.hooks import ToolResultPayload, on_tool_result
from lib.package.inner import seen
from lib.probe import note


@on_tool_result()
async def after(result: ToolResultPayload) -> None:
    note("observer", id=id(lib.shared), seen=list(seen))
`,
		"tools/book.py": `from __future__ import annotations

import package
from belay.tools import ToolResult, tool
from lib import shared
from lib.probe import note
from shared import seen

AT_LOAD = shared.LIMIT + package.DOUBLE


@tool(description="Books.")
async def book() -> ToolResult:
    seen.append("tool")
    note("tool", id=id(shared), at_load=AT_LOAD, seen=list(shared.seen))
    return ToolResult(llm_response="booked")
`,
	}, apptest.Play(apptest.Call("book", nil), apptest.Says("done"), apptest.Call("book", nil), apptest.Says("done")))
	a.Say("u", "book")
	a.Say("u", "book again")
	notes := a.Notes()
	t.Run("T05 a file of lib is one module under its two names", func(t *testing.T) {
		if len(notes) != 6 {
			t.Fatalf("notes: %+v", notes)
		}
		for _, n := range notes {
			if n.Data["id"] != notes[0].Data["id"] {
				t.Errorf("%s sees another module than %s", n.What, notes[0].What)
			}
			if at, there := n.Data["at_load"]; there && at != 9.0 {
				t.Errorf("%s had %v while it was loaded", n.What, at)
			}
		}
		want := []string{"hook", "tool", "hook", "tool"}
		for i, n := range []apptest.Note{notes[0], notes[1], notes[3], notes[4]} {
			expect(t, "seen by the "+n.What, n.Data["seen"], want[:i+1])
		}
		expect(t, "seen by the observer at the end", notes[5].Data["seen"], want)
	})
}
