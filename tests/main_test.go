// Package tests proves what must hold of hooks around a turn, through the running
// product: agents as folders, real Python workers, the app that the CLI and the
// server use. A subtest's name begins with the id of what it proves.
package tests

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if part := partOf(os.Getenv); part != nil {
		part() // this process is a part of a test
	}
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent(), goleak.Cleanup(func(status int) { // a search library starts some when it is loaded
		if built.dir != "" {
			_ = os.RemoveAll(built.dir) // what is left over harms nobody
		}
		os.Exit(status)
	}))
}

// built is the real program, built once for all tests.
var built struct {
	once sync.Once
	dir  string
	err  error
}

// program gives the path of the real program.
func program(t *testing.T) string {
	t.Helper()
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "belay-tests-"); built.err != nil {
			return
		}
		if out, err := exec.Command("go", "build", "-o", filepath.Join(built.dir, "belay"), "../cmd/belay").CombinedOutput(); err != nil {
			built.err = fmt.Errorf("build the program: %w\n%s", err, out)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return filepath.Join(built.dir, "belay")
}
