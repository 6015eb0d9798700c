package convtest

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/belay-run/belay/internal/expect"
	"github.com/belay-run/belay/internal/finding"
)

// Report is what came of all files.
type Report struct {
	Agent string
	Model string // that answered where a conversation brought none; "" when there is none
	Files []*FileResult
	Took  time.Duration
	// Hooks are all hooks of the agent with what they did; nil when none was loaded.
	Hooks []*HookCount
	// Unreached is what no test has reached; see Partial.
	Unreached Unreached
	// Partial says why it cannot be told what no test reaches, "" when it can.
	Partial string
	// Interrupted says that the run was broken off.
	Interrupted bool
}

// coverage fills in what was reached.
func (r *Report) coverage(run *runner) {
	r.Hooks, r.Unreached = run.seen.report(run.spec.Skills)
	t := r.Totals()
	switch {
	case run.cfg.Only != nil:
		r.Partial = "not all conversations were run"
	case t.NotRun > 0 || t.Broken > 0:
		r.Partial = "some conversations could not be run"
	}
}

// Totals are counts of conversations, and of files that could not be run.
type Totals struct {
	Conversations int `json:"conversations"`
	Passed        int `json:"passed"`
	Failed        int `json:"failed"`
	NotRun        int `json:"not_run"`
	Broken        int `json:"broken_files"`
}

// Totals counts.
func (r *Report) Totals() Totals {
	var t Totals
	for _, f := range r.Files {
		if finding.HasErrors(f.Findings) {
			t.Broken++
		}
		for _, result := range f.Results {
			t.Conversations++
			switch result.Status {
			case Passed:
				t.Passed++
			case Failed:
				t.Failed++
			default:
				t.NotRun++
			}
		}
	}
	return t
}

// OK says whether something was tested and all of it passed.
func (r *Report) OK() bool {
	t := r.Totals()
	return t.Passed > 0 && t.Passed == t.Conversations && t.Broken == 0 && !r.Interrupted
}

// WriteFile writes what came of a file for a person; trace adds the trace of each
// turn that failed.
func WriteFile(w io.Writer, f *FileResult, trace bool) error {
	if len(f.Results) == 0 {
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", printable(f.File.Path))
	for _, found := range finding.Clean(f.Findings) {
		fmt.Fprintf(&b, "  %s:%d:%d: %s: %s [%s]\n      hint: %s\n", printable(found.File), found.Line, found.Column, found.Severity, printable(found.Message), found.Rule, printable(found.Hint))
	}
	for _, r := range f.Results {
		switch r.Status {
		case Passed:
			fmt.Fprintf(&b, "  ok    %s  %s\n", printable(r.Conversation.Name), seconds(r.Took))
		case NotRun:
			fmt.Fprintf(&b, "  –     %s  not run\n", printable(r.Conversation.Name))
		default:
			fmt.Fprintf(&b, "  FAIL  %s  %s\n", printable(r.Conversation.Name), seconds(r.Took))
			b.WriteString(r.text("        ", f.File.Path))
			if trace && r.Trace != "" {
				indent(&b, "      ", r.Trace)
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// text says what failed: which turn, what was expected and what was seen.
func (r *Result) text(margin, path string) string {
	var b strings.Builder
	turns := r.Conversation.Turns
	said := ""
	if r.Turn > 0 {
		said = turns[r.Turn-1].User
		fmt.Fprintf(&b, "%sturn %d, line %d: %s\n", margin, r.Turn, turns[r.Turn-1].Line, quote(short(said)))
	}
	for _, f := range r.Failures {
		b.WriteString(f.Text(margin, path))
	}
	if left := len(turns) - r.Turn; r.Turn > 0 && left > 0 {
		fmt.Fprintf(&b, "%s%s after it not run\n", margin, count(left, "turn"))
	}
	return b.String()
}

func prefixed(before, text string) string {
	if text == "" {
		return ""
	}
	return before + text
}

func indent(b *strings.Builder, margin, text string) {
	for line := range strings.Lines(text) {
		b.WriteString(margin + printable(strings.TrimSuffix(line, "\n")) + "\n")
	}
}

// WriteSummary writes what came of everything: counts, hooks that failed, and what no
// test has reached.
func (r *Report) WriteSummary(w io.Writer) error {
	var b strings.Builder
	t := r.Totals()
	fmt.Fprintf(&b, "\n%s in %s: %d ok, %d failed", count(t.Conversations, "conversation"), seconds(r.Took), t.Passed, t.Failed)
	if t.NotRun > 0 {
		fmt.Fprintf(&b, ", %d not run", t.NotRun)
	}
	if t.Broken > 0 {
		fmt.Fprintf(&b, "; %s cannot be run", count(t.Broken, "file"))
	}
	b.WriteByte('\n')
	if r.Interrupted {
		b.WriteString("The run was broken off.\n")
	}
	r.failing(&b)
	r.unreached(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

// failing lists hooks that failed, expected or not: one that fails open changes no
// text.
func (r *Report) failing(b *strings.Builder) {
	first := true
	for _, h := range r.Hooks {
		if n := h.Said[saidFailed]; n > 0 {
			if first {
				b.WriteString("\nHooks that failed:\n")
				first = false
			}
			fmt.Fprintf(b, "  %-22s %s  %d of %s\n", h.Point, printable(h.Name), n, count(h.Asked, "time"))
		}
	}
}

func (r *Report) unreached(b *strings.Builder) {
	if r.Partial != "" {
		if r.Hooks != nil {
			fmt.Fprintf(b, "\nWhat no test reaches is not told: %s.\n", r.Partial)
		}
		return
	}
	u := &r.Unreached
	if len(u.Hooks) > 0 {
		b.WriteString("\nHooks that fired in no test:\n")
		for _, h := range u.Hooks {
			fmt.Fprintf(b, "  %-22s %-8s %s (line %d)\n", h.Point, h.Lane, printable(h.Name), h.Line)
		}
	}
	for _, part := range []struct {
		what  string
		names []string
	}{{"Tools that ran", u.Tools}, {"Skills that were active", u.Skills}, {"Blocks that were entered", u.Blocks}} {
		if len(part.names) > 0 {
			fmt.Fprintf(b, "\n%s in no test:\n  %s\n", part.what, printable(strings.Join(part.names, ", ")))
		}
	}
}

type jsonResult struct {
	File     string    `json:"file"`
	Line     int       `json:"line"`
	Name     string    `json:"name"`
	Sender   string    `json:"sender_id"`
	Status   Status    `json:"status"`
	Took     int64     `json:"took_ms"`
	Turn     int       `json:"turn,omitempty"` // that failed
	User     string    `json:"user,omitempty"` // what was said in it
	Failures []Failure `json:"failures,omitempty"`
	Trace    string    `json:"trace,omitempty"`
}

type jsonReport struct {
	Agent         string            `json:"agent"`
	Model         string            `json:"model,omitempty"`
	OK            bool              `json:"ok"`
	Totals        Totals            `json:"totals"`
	Conversations []jsonResult      `json:"conversations"`
	Findings      []finding.Finding `json:"findings"`
	Hooks         []*HookCount      `json:"hooks"`
	Unreached     *Unreached        `json:"unreached,omitempty"`
	Partial       string            `json:"unreached_unknown,omitempty"`
}

// WriteJSON writes the whole report as JSON.
func (r *Report) WriteJSON(w io.Writer, trace bool) error {
	out := jsonReport{Agent: r.Agent, Model: r.Model, OK: r.OK(), Totals: r.Totals(), Conversations: []jsonResult{}, Findings: []finding.Finding{}, Hooks: r.Hooks, Partial: r.Partial}
	if r.Partial == "" {
		out.Unreached = &r.Unreached
	}
	for _, f := range r.Files {
		out.Findings = append(out.Findings, finding.Clean(f.Findings)...)
		for _, result := range f.Results {
			out.Conversations = append(out.Conversations, result.json(f.File.Path, trace))
		}
	}
	return expect.WriteJSON(w, out)
}

func (r *Result) json(path string, trace bool) jsonResult {
	c := r.Conversation
	out := jsonResult{File: path, Line: c.Line, Name: c.Name, Sender: r.Sender, Status: r.Status, Took: r.Took.Milliseconds(), Failures: r.Failures, Turn: r.Turn}
	if r.Turn > 0 {
		out.User = c.Turns[r.Turn-1].User
	}
	if trace {
		out.Trace = r.Trace
	}
	return out
}
