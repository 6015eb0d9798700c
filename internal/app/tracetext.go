package app

import (
	"fmt"
	"strings"
	"time"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/internal/loop"
	"github.com/belay-run/belay/internal/turn"
)

// TraceText puts the trace of a turn into lines for a person. Points where no
// hook stands are left out.
func TraceText(r turn.Report) string {
	var b strings.Builder
	fmt.Fprintf(&b, "  turn %s %s (%s) in %s\n", r.Turn, r.Status, r.Why, short(r.Took))
	for _, l := range r.Lines {
		writeLine(&b, l)
	}
	return b.String()
}

func writeLine(b *strings.Builder, l loop.Line) {
	switch l.Kind {
	case "point":
		writePoint(b, l)
	case "model":
		fmt.Fprintf(b, "  · model (%s) %s in %s\n", l.Purpose, l.Outcome, short(l.Took))
	case "tool":
		fmt.Fprintf(b, "  · tool %s: %s in %s%s\n", l.Tool, l.Outcome, short(l.Took), because(l.Why))
	case "note":
		fmt.Fprintf(b, "  · %s\n", l.Why)
	}
}

func writePoint(b *strings.Builder, l loop.Line) {
	if l.Hooks+l.Observers+len(l.Disabled) == 0 && l.Outcome != "not reached" {
		return
	}
	if l.Outcome == "not reached" {
		fmt.Fprintf(b, "  ○ %s: not reached\n", l.Point)
		return
	}
	for _, r := range l.Runs {
		fmt.Fprintf(b, "  ● %s %s: %s%s in %s\n", l.Point, r.Name, said(r), because(r.Reason, r.Feedback, r.Dropped), short(r.Took))
		if r.Failure != nil {
			fmt.Fprintf(b, "      %s at %s:%d, policy %s\n", r.Failure.Error(), r.File, r.Line, r.Policy)
		}
	}
	if l.Observers > 0 {
		fmt.Fprintf(b, "  ○ %s: %d observing\n", l.Point, l.Observers)
	}
	for _, name := range l.Disabled {
		fmt.Fprintf(b, "  ○ %s %s: switched off, not asked\n", l.Point, name)
	}
}

func said(r hook.Run) string {
	var fields []string
	for _, c := range r.Changed {
		fields = append(fields, c.Field)
	}
	switch {
	case len(fields) > 0:
		return "changed " + strings.Join(fields, ", ")
	case r.Said == hook.Continue.String():
		return "nothing to change"
	}
	return r.Said
}

func because(why ...string) string {
	for _, w := range why {
		if w != "" {
			return " (" + w + ")"
		}
	}
	return ""
}

func short(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return fmt.Sprintf("%d µs", d.Microseconds())
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
	case d < 10*time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return d.Round(time.Second).String()
}
