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
	fmt.Fprintf(&b, "  turn %s %s%s in %s\n", r.Turn, r.Status, because(r.Why), short(r.Took))
	var notReached []string
	for _, l := range r.Lines {
		if l.Kind == "point" && l.Outcome == "not reached" {
			notReached = append(notReached, l.Point)
			continue
		}
		writeLine(&b, l)
	}
	if len(notReached) > 0 {
		fmt.Fprintf(&b, "  ○ not reached: %s\n", strings.Join(notReached, ", "))
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
	if l.Hooks+l.Observers+len(l.Disabled) == 0 {
		return
	}
	for _, r := range l.Runs {
		took := " in " + short(r.Took)
		if r.Said == loop.BrokenOff {
			took = "" // nobody knows
		}
		fmt.Fprintf(b, "  ● %s %s: %s%s\n", l.Point, r.Name, said(r), took)
		if r.Failure != nil {
			fmt.Fprintf(b, "      %s at %s:%d, policy %s\n", r.Failure.Error(), r.File, r.Line, r.Policy)
		}
	}
	if l.Observers > 0 {
		fmt.Fprintf(b, "  ○ %s: %s observing\n", l.Point, strings.Join(l.Observed, ", "))
	}
	for _, name := range l.Disabled {
		fmt.Fprintf(b, "  ○ %s %s: switched off, not asked\n", l.Point, name)
	}
}

// said puts what a hook said, and what of it did not count, into words.
func said(r hook.Run) string {
	var fields []string
	for _, c := range r.Changed {
		fields = append(fields, c.Field)
	}
	out := r.Said + because(r.Reason, r.Feedback)
	switch {
	case len(fields) > 0:
		out = "changed " + strings.Join(fields, ", ")
	case r.Said == hook.Continue.String():
		out = "nothing to change"
	}
	if r.Dropped != "" {
		out += "; dropped: " + r.Dropped
	}
	if len(r.PutBack) > 0 {
		out += "; put back: " + strings.Join(r.PutBack, ", ")
	}
	return out
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
