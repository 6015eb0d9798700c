// Command belay runs agents with people's own checks around everything they do.
//
//	belay init my-agent      a small agent to start from
//	belay check my-agent     what is wrong with it
//	belay chat my-agent      talk to it
//	belay serve my-agent     serve it over HTTP
//	belay hooks my-agent     which hook stands where, and what it did
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// version is set when a release is built.
var version = "0.1.0-dev"

func main() { os.Exit(run(os.Args[1:])) }

// errSilent ends the program with status 1 when everything was said already.
var errSilent = errors.New("")

func run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := newRoot()
	root.SetArgs(args)
	if err := root.ExecuteContext(ctx); err != nil {
		if !errors.Is(err, errSilent) {
			fmt.Fprintln(os.Stderr, "belay:", err)
		}
		return 1
	}
	return 0
}
