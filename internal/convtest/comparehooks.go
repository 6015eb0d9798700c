package convtest

import (
	"slices"
	"strings"

	"github.com/belay-run/belay/hook"
)

// Words for what a hook said, beside the trace's own.
const (
	saidChanged   = "changed"
	saidUnchanged = "nothing to change"
	saidFailed    = "failed"
)

// sayings are the words that fit what a hook said, the first of them the closest.
func sayings(r hook.Run) []string {
	switch {
	case r.Failure != nil:
		return []string{saidFailed, string(r.Failure.Kind)}
	case r.Said != hook.Continue.String():
		return []string{r.Said}
	case len(r.Changed) > 0:
		return []string{saidChanged, "continue", "go on"}
	}
	return []string{saidUnchanged, "continue", "go on"}
}

// asks says whether the run is one of the hook that is meant, by its whole name or by
// the function's alone.
func (m *HookMatch) asks(name, point string) bool {
	return (m.Hook == name || strings.HasSuffix(name, ":"+m.Hook)) && (m.Point == "" || m.Point == point)
}

// meets says whether the run is what was expected.
func (m *HookMatch) meets(r hook.Run) bool {
	if !m.asks(r.Name, r.Point) {
		return false
	}
	return len(m.Said) == 0 || slices.ContainsFunc(sayings(r), func(word string) bool { return slices.Contains(m.Said, word) })
}

// failing says whether the expectation is about a failure.
func (m *HookMatch) failing() bool {
	return slices.ContainsFunc(m.Said, func(word string) bool {
		return word == saidFailed || word == string(hook.Crash) || word == string(hook.Timeout) || word == string(hook.WrongReturn)
	})
}

func hooks(e *Expect, s *seen) []Failure {
	var out []Failure
	for _, m := range e.Hooks {
		var said []string
		met := false
		for _, r := range s.runs {
			if m.asks(r.Name, r.Point) {
				said = append(said, r.Point+": "+sayings(r)[0])
				met = met || m.meets(r)
			}
		}
		if met || len(said) == 0 && slices.Contains(m.Said, notAsked) {
			continue
		}
		f := Failure{What: "hooks", Line: m.Line, Diff: []DiffLine{{Mark: "-", Text: m.show()}}}
		if len(said) == 0 {
			said = []string{notAsked}
		}
		for _, text := range said {
			f.Diff = append(f.Diff, DiffLine{Mark: "+", Text: m.Hook + " " + text})
		}
		out = append(out, f)
	}
	return out
}

func (m *HookMatch) show() string {
	out := m.Hook
	if m.Point != "" {
		out += " " + m.Point
	}
	if len(m.Said) > 0 {
		return out + ": " + strings.Join(m.Said, " or ")
	}
	return out + ": asked"
}
