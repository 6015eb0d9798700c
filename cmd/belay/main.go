// Command belay runs agents with people's own checks around everything they do.
//
//	belay init my-agent      a small agent to start from
//	belay check my-agent     what is wrong with it
//	belay chat my-agent      talk to it
//	belay test my-agent      run the conversations that it is tested with
//	belay record ada --agent my-agent  make such a test of a kept conversation
//	belay serve my-agent     serve it over HTTP
//	belay hooks my-agent     which hook stands where, and what it did
//	belay conversation list my-agent  the records: list, show, export, delete
//
//	belay dev acme-policy             try its hooks on jobs, in the terminal
//	belay plugin install acme-policy  let its hooks watch the jobs of a tenant; also lint, inspect, test
//	belay policy apply policy.yaml    what agents may call, and when a person is asked; also lint, explain
//	belay job run acme-merger         a durable job of an agent
//	belay approval list               what waits for a person
//	belay serve                       run jobs, and serve the API to look after them
//	belay doctor                      what is wrong; also token, audit, backup
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/belay-run/belay/internal/app"
	"github.com/belay-run/belay/internal/finding"
)

// version is set when a release is built.
var version = "0.1.0-dev"

func main() { os.Exit(run(os.Args[1:])) }

// errSilent ends the program with status 1 when everything was said already.
var errSilent = errors.New("")

// unchecked ends the program with status 2: a check could not be made, which is
// not the same as one that found something.
type unchecked struct{ error }

func run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	root := newRoot()
	root.SetArgs(args)
	if err := root.ExecuteContext(ctx); err != nil {
		if !errors.Is(err, errSilent) {
			fmt.Fprintln(os.Stderr, "belay:", err)
		}
		if errors.As(err, new(unchecked)) {
			return 2
		}
		return 1
	}
	return 0
}

// explain lists the findings that keep an agent from being loaded, and says then
// what follows from them. Other errors it leaves as they are.
func explain(w io.Writer, err error) error {
	var found *app.FindingsError
	if !errors.As(err, &found) {
		return err
	}
	if werr := finding.Text(w, finding.Clean(found.Findings)); werr != nil {
		return errors.Join(err, werr)
	}
	return errors.New("the agent does not serve until its errors are mended")
}
