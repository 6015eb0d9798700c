// Package tests proves what must hold of hooks around a turn, through the running
// product: agents as folders, real Python workers, the app that the CLI and the
// server use. A subtest's name begins with the id of what it proves.
package tests

import (
	"os"
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
