package expect

import (
	"encoding/xml"
	"fmt"
	"io"
	"time"
)

// Suites is a report in JUnit's form.
type Suites struct {
	XMLName  xml.Name `xml:"testsuites"`
	Name     string   `xml:"name,attr"`
	Tests    int      `xml:"tests,attr"`
	Failures int      `xml:"failures,attr"`
	Errors   int      `xml:"errors,attr"`
	Skipped  int      `xml:"skipped,attr"`
	Time     string   `xml:"time,attr"`
	Suites   []Suite  `xml:"testsuite"`
}

// Suite is a file of tests in JUnit's form.
type Suite struct {
	Name     string `xml:"name,attr"`
	Tests    int    `xml:"tests,attr"`
	Failures int    `xml:"failures,attr"`
	Errors   int    `xml:"errors,attr"`
	Skipped  int    `xml:"skipped,attr"`
	Time     string `xml:"time,attr"`
	Cases    []Case `xml:"testcase"`
}

// Case is a test in JUnit's form: failed, broken, not run, or none of these.
type Case struct {
	Class   string `xml:"classname,attr"`
	Name    string `xml:"name,attr"`
	File    string `xml:"file,attr"`
	Line    int    `xml:"line,attr,omitempty"`
	Time    string `xml:"time,attr"`
	Failure *Said  `xml:"failure"`
	Error   *Said  `xml:"error"`
	Skipped *Said  `xml:"skipped"`
}

// Said is what is said of a case that did not pass.
type Said struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// InSeconds writes a time as JUnit has it.
func InSeconds(d time.Duration) string { return fmt.Sprintf("%.3f", d.Seconds()) }

// Add takes a suite in, with its counts.
func (all *Suites) Add(s Suite) {
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

// Write writes the report.
func (all *Suites) Write(w io.Writer) error {
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
