package expect

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"

	"github.com/belay-run/belay/internal/rawjson"
)

// Line writes JSON in a line; what is none stays as it is.
func Line(raw json.RawMessage) string {
	text, err := Tidy(raw)
	if err != nil {
		return string(raw)
	}
	return text
}

const longest = 300

// Short cuts what is too long for a line of a report.
func Short(text string) string {
	if r := []rune(text); len(r) > longest {
		return string(r[:longest]) + "…"
	}
	return text
}

// Count is a number with its noun.
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Seconds is a time for people.
func Seconds(d time.Duration) string { return fmt.Sprintf("%.2fs", d.Seconds()) }

// Printable keeps what a terminal would act on from reaching it.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '\uFFFD'
		}
		return r
	}, s)
}

// Text says of a failure what was expected and what was seen, a line each after the
// margin. path is the file of the test.
func (f *Failure) Text(margin, path string) string {
	var b strings.Builder
	where := ""
	if f.Line > 0 {
		where = fmt.Sprintf(" (%s:%d)", Printable(path), f.Line)
	}
	b.WriteString(margin + f.What + where)
	if f.Message != "" {
		b.WriteString(": " + Printable(f.Message))
	}
	b.WriteByte('\n')
	for _, d := range f.Diff {
		fmt.Fprintf(&b, "%s  %s %s\n", margin, d.Mark, Printable(d.Text))
	}
	return b.String()
}

// MarshalJSON tells of a failure for programs.
func (f Failure) MarshalJSON() ([]byte, error) {
	out := struct {
		What     string   `json:"what"`
		Line     int      `json:"line,omitempty"`
		Message  string   `json:"message,omitempty"`
		Expected []string `json:"expected,omitempty"`
		Seen     []string `json:"seen,omitempty"`
	}{What: f.What, Line: f.Line, Message: f.Message}
	for _, d := range f.Diff {
		if d.Mark != "+" {
			out.Expected = append(out.Expected, d.Text)
		}
		if d.Mark != "-" {
			out.Seen = append(out.Seen, d.Text)
		}
	}
	return rawjson.Encode(out)
}

// WriteJSON writes a report for programs that people can read too.
func WriteJSON(w io.Writer, report any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(report)
}
