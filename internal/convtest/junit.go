package convtest

import (
	"encoding/xml"
	"fmt"
	"io"

	"github.com/belay-run/belay/internal/finding"
)

type junitSuites struct {
	XMLName  xml.Name     `xml:"testsuites"`
	Name     string       `xml:"name,attr"`
	Tests    int          `xml:"tests,attr"`
	Failures int          `xml:"failures,attr"`
	Errors   int          `xml:"errors,attr"`
	Skipped  int          `xml:"skipped,attr"`
	Time     string       `xml:"time,attr"`
	Suites   []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Errors   int         `xml:"errors,attr"`
	Skipped  int         `xml:"skipped,attr"`
	Time     string      `xml:"time,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Class   string    `xml:"classname,attr"`
	Name    string    `xml:"name,attr"`
	File    string    `xml:"file,attr"`
	Line    int       `xml:"line,attr,omitempty"`
	Time    string    `xml:"time,attr"`
	Failure *junitSay `xml:"failure"`
	Error   *junitSay `xml:"error"`
	Skipped *junitSay `xml:"skipped"`
}

type junitSay struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// WriteJUnit writes the report in JUnit's form, a test case a conversation. A file
// that cannot be run is an error; what is missing of the hooks is a failure when it
// is required.
func (r *Report) WriteJUnit(w io.Writer, requireHooks bool) error {
	all := junitSuites{Name: r.Agent, Time: fmt.Sprintf("%.3f", r.Took.Seconds())}
	for _, f := range r.Files {
		if len(f.Results) > 0 {
			all.add(suiteOf(f))
		}
	}
	if requireHooks {
		c := junitCase{Class: "belay", Name: "every hook fires in a test", Time: "0.000"}
		for _, h := range r.Unreached.Hooks {
			if c.Failure == nil {
				c.Failure = &junitSay{Message: fmt.Sprintf("%s fired in no test", count(len(r.Unreached.Hooks), "hook"))}
			}
			c.Failure.Text += h.Point + " " + h.Name + "\n"
		}
		all.add(junitSuite{Name: "hooks", Time: "0.000", Cases: []junitCase{c}})
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	if err := enc.Encode(all); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// add takes a suite in, with its counts.
func (all *junitSuites) add(s junitSuite) {
	for _, c := range s.Cases {
		s.Tests++
		switch {
		case c.Failure != nil:
			s.Failures++
		case c.Error != nil:
			s.Errors++
		case c.Skipped != nil:
			s.Skipped++
		}
	}
	all.Tests, all.Failures, all.Errors, all.Skipped = all.Tests+s.Tests, all.Failures+s.Failures, all.Errors+s.Errors, all.Skipped+s.Skipped
	all.Suites = append(all.Suites, s)
}

func suiteOf(f *FileResult) junitSuite {
	s := junitSuite{Name: f.File.Path, Time: fmt.Sprintf("%.3f", f.Took.Seconds())}
	for _, r := range f.Results {
		c := junitCase{Class: f.File.Path, Name: r.Conversation.Name, File: f.File.Path, Line: r.Conversation.Line, Time: fmt.Sprintf("%.3f", r.Took.Seconds())}
		switch r.Status {
		case Failed:
			c.Failure = &junitSay{Message: r.headline(), Text: "\n" + r.text("", f.File.Path) + r.Trace}
		case NotRun:
			c.Skipped = &junitSay{Message: "not run"}
		}
		s.Cases = append(s.Cases, c)
	}
	for _, found := range f.Findings {
		if found.Severity == finding.Error {
			s.Cases = append(s.Cases, junitCase{Class: f.File.Path, Name: found.Rule, File: f.File.Path, Line: found.Line, Time: "0.000",
				Error: &junitSay{Message: found.Message, Text: found.Hint}})
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
