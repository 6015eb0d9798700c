package convtest

import (
	"fmt"
	"io"

	"github.com/belay-run/belay/internal/expect"
	"github.com/belay-run/belay/internal/finding"
)

type junitSuites = expect.Suites

// WriteJUnit writes the report in JUnit's form, a test case a conversation. A file
// that cannot be run is an error; what is missing of the hooks is a failure when it
// is required.
func (r *Report) WriteJUnit(w io.Writer, requireHooks bool) error {
	all := junitSuites{Name: r.Agent, Time: expect.InSeconds(r.Took)}
	for _, f := range r.Files {
		if len(f.Results) > 0 {
			all.Add(suiteOf(f))
		}
	}
	if requireHooks {
		c := expect.Case{Class: "belay", Name: "every hook fires in a test", Time: "0.000"}
		for _, h := range r.Unreached.Hooks {
			if c.Failure == nil {
				c.Failure = &expect.Said{Message: fmt.Sprintf("%s fired in no test", count(len(r.Unreached.Hooks), "hook"))}
			}
			c.Failure.Text += h.Point + " " + h.Name + "\n"
		}
		all.Add(expect.Suite{Name: "hooks", Time: "0.000", Cases: []expect.Case{c}})
	}
	return all.Write(w)
}

func suiteOf(f *FileResult) expect.Suite {
	s := expect.Suite{Name: f.File.Path, Time: expect.InSeconds(f.Took)}
	for _, r := range f.Results {
		c := expect.Case{Class: f.File.Path, Name: r.Conversation.Name, File: f.File.Path, Line: r.Conversation.Line, Time: expect.InSeconds(r.Took)}
		switch r.Status {
		case Failed:
			c.Failure = &expect.Said{Message: r.headline(), Text: "\n" + r.text("", f.File.Path) + r.Trace}
		case NotRun:
			c.Skipped = &expect.Said{Message: "not run"}
		}
		s.Cases = append(s.Cases, c)
	}
	for _, found := range f.Findings {
		if found.Severity == finding.Error {
			s.Cases = append(s.Cases, expect.Case{Class: f.File.Path, Name: found.Rule, File: f.File.Path, Line: found.Line, Time: "0.000",
				Error: &expect.Said{Message: found.Message, Text: found.Hint}})
		}
	}
	return s
}

// headline is what failed, in a few words.
func (r *Result) headline() string {
	if len(r.Failures) == 0 {
		return "failed"
	}
	f := r.Failures[0]
	return fmt.Sprintf("turn %d: %s%s", r.Turn, f.What, prefixed(": ", f.Message))
}
