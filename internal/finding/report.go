package finding

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
)

// Rule describes one kind of finding, for docs and for reports that list them.
type Rule struct {
	ID      string // as in [Finding.Rule]
	Summary string // one line: what the rule finds
	Help    string // why it matters and what to do, one or two sentences
}

// Sort orders findings by file, line, column and rule; errors come before
// warnings in the same place.
func Sort(fs []Finding) {
	slices.SortStableFunc(fs, func(a, b Finding) int {
		return cmp.Or(
			cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column),
			cmp.Compare(a.Severity, b.Severity), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Message, b.Message),
		)
	})
}

// Clean returns the findings of several checks as one sorted list without
// doubles. It leaves its arguments as they are.
func Clean(lists ...[]Finding) []Finding {
	all := slices.Concat(lists...)
	Sort(all)
	return slices.Compact(all)
}

// Count returns how many errors and how many warnings there are.
func Count(fs []Finding) (errors, warnings int) {
	for i := range fs {
		if fs[i].Severity == Warning {
			warnings++
		} else {
			errors++ // an unknown severity must not let an agent serve
		}
	}
	return errors, warnings
}

// HasErrors says whether a finding keeps the agent from serving.
func HasErrors(fs []Finding) bool {
	errors, _ := Count(fs)
	return errors > 0
}

// Text writes findings for people, one place a line with its hint under it, and
// a summary at the end.
func Text(w io.Writer, fs []Finding) error {
	var b strings.Builder
	for _, f := range fs {
		fmt.Fprintf(&b, "%s: %s: %s [%s]\n", place(f), f.Severity, printable(f.Message), printable(f.Rule))
		if f.Hint != "" {
			fmt.Fprintf(&b, "    hint: %s\n", printable(f.Hint))
		}
	}
	if len(fs) > 0 {
		b.WriteByte('\n')
	}
	b.WriteString(Summary(fs))
	b.WriteByte('\n')
	_, err := io.WriteString(w, b.String())
	return err
}

// Summary is one line: how many of what, in how many files.
func Summary(fs []Finding) string {
	if len(fs) == 0 {
		return "no findings"
	}
	errors, warnings := Count(fs)
	files := map[string]bool{}
	for i := range fs {
		files[fs[i].File] = true
	}
	return fmt.Sprintf("%s, %s in %s", plural(errors, "error"), plural(warnings, "warning"), plural(len(files), "file"))
}

// JSON writes {"findings": […], "errors": n, "warnings": n}.
func JSON(w io.Writer, fs []Finding) error {
	if fs == nil {
		fs = []Finding{}
	}
	errors, warnings := Count(fs)
	return write(w, struct {
		Findings []Finding `json:"findings"`
		Errors   int       `json:"errors"`
		Warnings int       `json:"warnings"`
	}{fs, errors, warnings})
}

func write(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

func place(f Finding) string {
	s := printable(f.File)
	if s == "" {
		s = "."
	}
	if f.Line > 0 {
		s += fmt.Sprintf(":%d", f.Line)
		if f.Column > 0 {
			s += fmt.Sprintf(":%d", f.Column)
		}
	}
	return s
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// printable keeps what a terminal would act on (escape sequences in a file's
// name, line breaks) from reaching it.
func printable(s string) string {
	clean := func(r rune) bool { return unicode.IsPrint(r) }
	if strings.IndexFunc(s, func(r rune) bool { return !clean(r) }) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if clean(r) {
			b.WriteRune(r)
			continue
		}
		fmt.Fprintf(&b, `\u%04x`, r)
	}
	return b.String()
}
