package main

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

var update = flag.Bool("update", false, "write what commands print into the scripts that compare it")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"belay": main})
}

// TestScripts runs the program as people do: each file of testdata/script is a
// session at the terminal. Beside testscript's commands there are those of
// driver_test.go, for programs that go on while the script does. Scripts have
// PYTHON, an interpreter with pydantic and mcp, EXAMPLES, the project's examples, and BIN, the
// folder of the program.
func TestScripts(t *testing.T) {
	python := interpreter(t)
	examples, err := filepath.Abs(filepath.Join("..", "..", "examples"))
	if err != nil {
		t.Fatal(err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = t.TempDir()
	}
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "script"),
		Setup: func(e *testscript.Env) error {
			e.Setenv("XDG_CACHE_HOME", cache)
			e.Setenv("HOME", e.WorkDir)
			e.Setenv("PYTHON", python)
			e.Setenv("EXAMPLES", examples)
			e.Setenv("BELAY_PYTHON", python)
			e.Setenv("BIN", filepath.SplitList(e.Getenv("PATH"))[0])
			d := &driver{processes: map[string]*process{}, requests: map[string]chan response{}}
			e.Values[driverKey{}] = d
			e.Defer(d.killAll)
			return nil
		},
		Cmds:                driverCommands,
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
	})
}

// interpreter finds the interpreter that scripts use: its own path and not a
// wrapper's, which may want to know more than scripts tell.
func interpreter(t *testing.T) string {
	t.Helper()
	name := os.Getenv("BELAY_PYTHON")
	if name == "" {
		name = "python3"
	}
	out, err := exec.Command(name, "-c", "import sys, pydantic, mcp; print(sys.executable)").Output()
	if err != nil {
		t.Fatalf("%s has no pydantic or no mcp: %v; set BELAY_PYTHON to an interpreter that has, or use make test", name, err)
	}
	return strings.TrimSpace(string(out))
}
