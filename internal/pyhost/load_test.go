package pyhost

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/belay-run/belay/internal/finding"
)

func findingAt(fs []finding.Finding, file, rule string) *finding.Finding {
	for i := range fs {
		if fs[i].File == file && fs[i].Rule == rule {
			return &fs[i]
		}
	}
	return nil
}

func TestModulesThatDoNotImport(t *testing.T) {
	dir := agent(t, map[string]string{
		"hooks/good.py":  "from belay.hooks import *\n" + shout,
		"hooks/hang.py":  "import time\ntime.sleep(60)\n",
		"hooks/spin.py":  "while True: pass\n",
		"hooks/leave.py": "import os\nos._exit(5)\n",
		"hooks/crash.py": "import ctypes\nctypes.string_at(1)\n",
		"hooks/raise.py": "raise SystemExit(1)\n",
		"hooks/bare.py":  "from belay.hooks import *\n@on_turn_started\nasync def f(p: TurnStartedPayload) -> None: ...\n",
	})
	start := time.Now()
	h, err := Check(t.Context(), Config{Dir: dir, ImportLimit: 500 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("the check took %v", took)
	}
	found := h.Findings()
	for file, rule := range map[string]string{
		"hooks/hang.py": "import-timeout", "hooks/spin.py": "import-timeout",
		"hooks/leave.py": "import-death", "hooks/crash.py": "import-death",
		"hooks/raise.py": "import-error", "hooks/bare.py": "bare-decorator",
	} {
		t.Run(""+file, func(t *testing.T) {
			f := findingAt(found, file, rule)
			if f == nil {
				t.Fatalf("no %s at %s in %+v", rule, file, found)
			}
			if f.Hint == "" || f.Line == 0 || f.Severity != finding.Error {
				t.Errorf("finding is %+v", f)
			}
		})
	}
	if f := findingAt(found, "hooks/leave.py", "import-death"); f != nil && !strings.Contains(f.Message, "exit status 5") {
		t.Errorf("message is %q", f.Message)
	}
	if len(h.Hooks()) != 1 {
		t.Errorf("%d hooks", len(h.Hooks()))
	}
}

func TestSyntaxErrorIsAFinding(t *testing.T) {
	dir := agent(t, map[string]string{"hooks.py": "def (\n"})
	h, err := Load(t.Context(), Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close(context.Background())
	if len(h.Findings()) != 1 || h.Findings()[0].File != "hooks.py" {
		t.Errorf("findings are %+v", h.Findings())
	}
}

// fakePython writes an interpreter that is a shell script.
func fakePython(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "python")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestPythonThatCannotRun(t *testing.T) {
	dir := agent(t, nil)
	frame := func(json string) string {
		b := appendFrame(nil, frameCannot, 0, func(b []byte) []byte { return append(b, json...) })
		path := filepath.Join(t.TempDir(), "frame")
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
		return "cat " + path + " >&4"
	}
	noPydantic := fakePython(t, frame(`{"problem":"pydantic","python":"3.12.1","detail":"no pydantic"}`))
	for _, c := range []struct {
		name, python string
		want         []string
	}{
		{"it is not there", filepath.Join(dir, "nowhere"), []string{"there is no Python interpreter", "nowhere"}},
		{"it ends at once", fakePython(t, "echo no module named encodings; exit 1"), []string{"exit status 1", "no module named encodings"}},
		{"it is no program", fakePythonFile(t), []string{"cannot be started", "BELAY_PYTHON"}},
		{"it is too old", fakePython(t, frame(`{"problem":"version","python":"3.10.13","detail":""}`)), []string{"is Python 3.10.13, but hooks need 3.11", "-m venv"}},
		{"it has no pydantic", noPydantic, []string{`has no pydantic: run "` + noPydantic + ` -m pip install 'pydantic>=2,<3'"`}},
		{"it has none and is the system's", fakePython(t, frame(`{"problem":"pydantic","python":"3.12.1","detail":"no pydantic","managed":true}`)), []string{"has no pydantic", "-m venv " + dir + "/.venv && " + dir + "/.venv/bin/python -m pip install"}},
		{"it talks nonsense", fakePython(t, "echo hello, is anybody there >&4; sleep 60"), []string{"something else was written to its pipe"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Load(t.Context(), Config{Dir: dir, Python: c.python})
			if err == nil {
				t.Fatal("no error")
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q is not in %q", w, err)
				}
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("more than a line: %q", err)
			}
		})
	}
}

func fakePythonFile(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "python")
	if err := os.WriteFile(path, []byte("\x7fELF nothing"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestInterpreterChoice(t *testing.T) {
	t.Setenv("BELAY_PYTHON", "")
	dir := agent(t, map[string]string{".venv/bin/python": ""})
	if err := os.Chmod(filepath.Join(dir, ".venv/bin/python"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got, err := findPython(Config{Dir: dir}); err != nil || got != filepath.Join(dir, ".venv/bin/python") {
		t.Errorf("the agent's own is not chosen: %s, %v", got, err)
	}
	other := fakePython(t, "")
	if got, err := findPython(Config{Dir: dir, Python: other}); err != nil || got != other {
		t.Errorf("the configured one is not chosen: %s, %v", got, err)
	}
	t.Setenv("BELAY_PYTHON", other)
	if got, err := findPython(Config{Dir: t.TempDir()}); err != nil || got != other {
		t.Errorf("BELAY_PYTHON is not chosen: %s, %v", got, err)
	}
	t.Setenv("BELAY_PYTHON", "/nowhere/python")
	if _, err := findPython(Config{Dir: t.TempDir()}); err == nil || !strings.Contains(err.Error(), "BELAY_PYTHON") {
		t.Errorf("error is %v", err)
	}
	dangling := agent(t, map[string]string{".venv/bin/x": ""})
	if err := os.Symlink("/nowhere/python3", filepath.Join(dangling, ".venv/bin/python")); err != nil {
		t.Fatal(err)
	}
	if _, err := findPython(Config{Dir: dangling}); err == nil || !strings.Contains(err.Error(), "venv --clear") {
		t.Errorf("error is %v", err)
	}
}

func TestWorkerSurroundings(t *testing.T) {
	t.Setenv("BELAY_SECRET", "hidden")
	t.Setenv("CLINIC_KEY", "shown")
	other := agent(t, map[string]string{"belay/__init__.py": "raise SystemExit('the wrong package')", "mylib.py": "x = 5"})
	t.Setenv("PYTHONPATH", other)
	r := newRig(t, `
import belay, mylib, os, sys

@modify_incoming_message()
async def look(message: IncomingMessagePayload) -> IncomingMessagePayload:
    seen = [os.getcwd(), os.environ.get("BELAY_SECRET"), os.environ["CLINIC_KEY"], mylib.x, sys.stdin.read(), os.environ["PYTHONPATH"]]
    return message.model_copy(update={"text": repr(seen)})
`)
	real, err := filepath.EvalSymlinks(r.dir)
	if err != nil {
		t.Fatal(err)
	}
	want := `"['` + real + `', None, 'shown', 5, '', '` + other + `']"`
	if got := r.text(r.ask("look")); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestExtract(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	files := fstest.MapFS{"belay/a.py": {Data: []byte("a = 1\n")}}
	dir, err := extract(files)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "belay", "a.py")
	read := func() string {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if read() != "a = 1\n" {
		t.Errorf("file is %q", read())
	}
	if again, err := extract(files); err != nil || again != dir {
		t.Errorf("again: %s, %v", again, err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("a = 2\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if again, err := extract(files); err != nil || again != dir || read() != "a = 1\n" {
		t.Errorf("a damaged copy stays: %s, %v, %q", again, err, read())
	}
	other, err := extract(fstest.MapFS{"belay/a.py": {Data: []byte("a = 3\n")}})
	if err != nil || other == dir {
		t.Errorf("another version: %s, %v", other, err)
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(dir), ".new-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestChangedFiles(t *testing.T) {
	r := newRig(t, shout+`
@modify_outgoing_text()
async def leave(message: OutgoingTextPayload) -> OutgoingTextPayload:
    import os
    os._exit(0)
`)
	r.spareReady()
	text := "from belay.hooks import *\n@on_turn_started()\nasync def new(p: TurnStartedPayload) -> None: ...\n" + strings.ReplaceAll(shout, "!", "?")
	if err := os.WriteFile(filepath.Join(r.dir, "hooks.py"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	r.ask("leave") // the spare has the old files, the one after it the new ones
	r.spareReady()
	r.log.wait(t, "its files have changed")
	r.ask("leave")
	if got := r.text(r.ask("shout", "text", "hallo")); got != `"hallo?"` {
		t.Errorf("text is %s", got)
	}
	if f := r.failed(r.ask("leave"), "unavailable"); !strings.Contains(f.Message, "load the agent again") {
		t.Errorf("failure is %+v", f)
	}
}

func TestCacheFolderWithoutAHome(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("HOME", "")
	t.Setenv("TMPDIR", t.TempDir())
	dir, err := cacheFolder()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := cacheFolder(); err != nil || again != dir {
		t.Errorf("again: %s, %v", again, err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := cacheFolder(); err == nil || !strings.Contains(err.Error(), "XDG_CACHE_HOME") {
		t.Errorf("a folder that anybody can write to gives %v", err)
	}
}

// The host must learn why an interpreter cannot run hooks although it ends in the
// same moment.
func TestFarewellIsHeard(t *testing.T) {
	if testing.Short() {
		t.Skip("starts many processes")
	}
	path := filepath.Join(t.TempDir(), "frame")
	b := appendFrame(nil, frameCannot, 0, func(b []byte) []byte { return append(b, `{"problem":"version","python":"2.7.18"}`...) })
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	python := fakePython(t, "exec cat "+path+" >&4")
	for range 50 {
		if _, err := Check(t.Context(), Config{Dir: t.TempDir(), Python: python}); err == nil || !strings.Contains(err.Error(), "is Python 2.7.18") {
			t.Fatalf("error is %v", err)
		}
	}
}
