// Package expect is what tests of agents and tests of plugins have in common: how an
// expectation that was not met is told, when a value holds another, and the form of
// JUnit's reports.
//
//	f := expect.Difference("tools", line, want, got, fits, showWant, showGot)
//	if f != nil {
//		fmt.Print(f.Text("  ", "tests/push.yaml"))
//	}
package expect
