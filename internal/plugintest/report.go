package plugintest

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/belay-run/belay/internal/expect"
)

// Report is what came of all files.
type Report struct {
	Plugin   string
	Files    []*FileResult
	Took     time.Duration
	Coverage *Coverage
	// Partial says why it cannot be told what no case reaches, "" when it can.
	Partial string
	// Interrupted says that the run was broken off.
	Interrupted bool
}

// Totals are counts of cases.
type Totals struct {
	Cases  int `json:"cases"`
	Passed int `json:"passed"`
	Failed int `json:"failed"`
	NotRun int `json:"not_run"`
}

func (t *Totals) count(s Status) {
	t.Cases++
	switch s {
	case Passed:
		t.Passed++
	case Failed:
		t.Failed++
	default:
		t.NotRun++
	}
}

func (t Totals) show(noun string) string {
	out := fmt.Sprintf("%s: %d ok, %d failed", expect.Count(t.Cases, noun), t.Passed, t.Failed)
	if noun == "canary" && t.Cases != 1 {
		out = fmt.Sprintf("%d canaries: %d ok, %d failed", t.Cases, t.Passed, t.Failed)
	}
	if t.NotRun > 0 {
		out += fmt.Sprintf(", %d not run", t.NotRun)
	}
	return out
}

// Totals counts cases, and those of them that are canaries apart.
func (r *Report) Totals() (cases, canaries Totals) {
	for _, f := range r.Files {
		for _, result := range f.Results {
			if result.Case.Canary() {
				canaries.count(result.Status)
			} else {
				cases.count(result.Status)
			}
		}
	}
	return cases, canaries
}

// OK says whether something was tested and all of it passed.
func (r *Report) OK() bool {
	cases, canaries := r.Totals()
	passed := cases.Passed + canaries.Passed
	return passed > 0 && passed == cases.Cases+canaries.Cases && !r.Interrupted
}

// WriteFile writes what came of a file for a person, canaries last.
func WriteFile(w io.Writer, f *FileResult) error {
	if len(f.Results) == 0 {
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", expect.Printable(f.File.Path))
	first := true
	for _, canary := range []bool{false, true} {
		for _, r := range f.Results {
			if r.Case.Canary() != canary {
				continue
			}
			if canary && first {
				first = false
				b.WriteString("  canaries:\n")
			}
			r.write(&b, f.File.Path)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Result) write(b *strings.Builder, path string) {
	name := expect.Printable(r.Case.Name)
	switch r.Status {
	case Passed:
		fmt.Fprintf(b, "  ok    %s  %s\n", name, expect.Seconds(r.Took))
	case NotRun:
		fmt.Fprintf(b, "  –     %s  not run\n", name)
	default:
		fmt.Fprintf(b, "  FAIL  %s  %s\n", name, expect.Seconds(r.Took))
		b.WriteString(r.text("        ", path))
	}
	for _, note := range r.Notes {
		fmt.Fprintf(b, "        note: %s\n", expect.Printable(note))
	}
}

func (r *Result) text(margin, path string) string {
	var b strings.Builder
	for i := range r.Failures {
		b.WriteString(r.Failures[i].Text(margin, path))
	}
	return b.String()
}

// WriteSummary writes what came of everything, and the hooks that no case reaches.
func (r *Report) WriteSummary(w io.Writer) error {
	var b strings.Builder
	cases, canaries := r.Totals()
	fmt.Fprintf(&b, "\n%s; %s; in %s\n", cases.show("case"), canaries.show("canary"), expect.Seconds(r.Took))
	switch {
	case r.Interrupted:
		b.WriteString("The run was broken off.\n")
	case r.Partial != "":
		fmt.Fprintf(&b, "Which hooks no case reaches is not told: %s.\n", r.Partial)
	default:
		if none := r.Coverage.Unreached(); len(none) > 0 {
			b.WriteString("\nHooks that no case reaches:\n")
			for _, p := range none {
				fmt.Fprintf(&b, "  %s (%s:%d)\n", expect.Printable(p.Name), expect.Printable(p.File), p.Line)
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

type jsonCase struct {
	File     string           `json:"file"`
	Line     int              `json:"line"`
	Name     string           `json:"name"`
	Kind     string           `json:"kind"` // event or job
	Canary   bool             `json:"canary"`
	Status   Status           `json:"status"`
	Took     int64            `json:"took_ms"`
	Failures []expect.Failure `json:"failures,omitempty"`
	Notes    []string         `json:"notes,omitempty"`
}

type jsonCoverage struct {
	Covered   int      `json:"covered"`
	Branches  int      `json:"branches"`
	Percent   float64  `json:"percent"`
	Points    []*Point `json:"points"`
	Unreached []string `json:"unreached"`
}

type jsonReport struct {
	Plugin   string        `json:"plugin"`
	OK       bool          `json:"ok"`
	Totals   Totals        `json:"totals"`   // canaries aside
	Canaries Totals        `json:"canaries"` // cases that expect allow
	Cases    []jsonCase    `json:"cases"`
	Coverage *jsonCoverage `json:"coverage,omitempty"`
	Partial  string        `json:"unreached_unknown,omitempty"`
}

// WriteJSON writes the whole report as JSON, with the coverage when it is wanted.
func (r *Report) WriteJSON(w io.Writer, coverage bool) error {
	out := jsonReport{Plugin: r.Plugin, OK: r.OK(), Cases: []jsonCase{}, Partial: r.Partial}
	out.Totals, out.Canaries = r.Totals()
	for _, f := range r.Files {
		for _, result := range f.Results {
			out.Cases = append(out.Cases, result.json(f.File.Path))
		}
	}
	if coverage {
		c := &jsonCoverage{Percent: r.Coverage.Percent(), Points: r.Coverage.Points, Unreached: []string{}}
		c.Covered, c.Branches = r.Coverage.Counts()
		for _, p := range r.Coverage.Unreached() {
			c.Unreached = append(c.Unreached, p.Name)
		}
		out.Coverage = c
	}
	return expect.WriteJSON(w, out)
}

func (r *Result) json(path string) jsonCase {
	c := r.Case
	out := jsonCase{File: path, Line: c.Line, Name: c.Name, Kind: "job", Canary: c.Canary(), Status: r.Status, Took: r.Took.Milliseconds(), Failures: r.Failures, Notes: r.Notes}
	if c.Event != nil {
		out.Kind = "event"
	}
	return out
}

// WriteJUnit writes the report in JUnit's form, a suite a file, and one for its
// canaries. With a least share of coverage a case says whether it is reached.
func (r *Report) WriteJUnit(w io.Writer, least *float64) error {
	all := expect.Suites{Name: r.Plugin, Time: expect.InSeconds(r.Took)}
	for _, f := range r.Files {
		for _, canary := range []bool{false, true} {
			s := expect.Suite{Name: f.File.Path, Time: expect.InSeconds(f.Took)}
			if canary {
				s.Name, s.Time = f.File.Path+" canaries", "0.000"
			}
			for _, result := range f.Results {
				if result.Case.Canary() == canary {
					s.Cases = append(s.Cases, result.junit(s.Name, f.File.Path))
				}
			}
			if len(s.Cases) > 0 {
				all.Add(s)
			}
		}
	}
	if least != nil {
		c := expect.Case{Class: "belay", Name: fmt.Sprintf("at least %g %% of the branches are covered", *least), Time: "0.000"}
		if r.Coverage.Below(*least) {
			c.Failure = &expect.Said{Message: "only " + percent(r.Coverage.Percent()) + " are"}
		}
		all.Add(expect.Suite{Name: "coverage", Time: "0.000", Cases: []expect.Case{c}})
	}
	return all.Write(w)
}

func (r *Result) junit(class, path string) expect.Case {
	c := expect.Case{Class: class, Name: r.Case.Name, File: path, Line: r.Case.Line, Time: expect.InSeconds(r.Took)}
	switch r.Status {
	case Failed:
		f := r.Failures[0]
		c.Failure = &expect.Said{Message: strings.TrimSuffix(f.What+": "+f.Message, ": "), Text: "\n" + r.text("", path)}
	case NotRun:
		c.Skipped = &expect.Said{Message: "not run"}
	}
	return c
}
