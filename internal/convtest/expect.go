package convtest

import (
	"encoding/json"

	"github.com/belay-run/belay/internal/expect"
	"github.com/belay-run/belay/internal/yamlfile"
)

// Failure is one expectation that was not met.
type Failure = expect.Failure

// DiffLine is a line of a difference.
type DiffLine = expect.DiffLine

// What tests of agents share with those of plugins, by the names that it has here.
var (
	quote     = expect.Quote
	tidy      = expect.Tidy
	decode    = expect.Decode
	within    = expect.Within
	oneLine   = expect.Line
	short     = expect.Short
	count     = expect.Count
	seconds   = expect.Seconds
	printable = expect.Printable
)

func encode(n *yamlfile.Node) (json.RawMessage, bool) { return expect.JSON(n) }

func difference[W, G any](what string, line int, want []W, got []G, fits func(*W, *G) bool, showWant func(*W) string, showGot func(*W, *G) string) *Failure {
	return expect.Difference(what, line, want, got, fits, showWant, showGot)
}
