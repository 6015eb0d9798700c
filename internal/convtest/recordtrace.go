package convtest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/internal/loop"
)

// arrangement puts the decisions of a turn into the order in which the model was
// asked, as the trace has it, with the completions that left nothing in the record.
type arrangement struct {
	have  map[string][]Completion // by purpose, in order
	out   []Completion
	hooks []HookMatch
	notes []string
}

func arranged(lines []loop.Line, have []Completion) *arrangement {
	a := &arrangement{have: map[string][]Completion{}}
	for _, c := range have {
		a.have[c.Purpose] = append(a.have[c.Purpose], c)
	}
	lost := false // what the hooks did to a completion that is not in the recording
	for i := range lines {
		if lines[i].Kind != "model" {
			if !lost {
				a.decided(&lines[i])
			}
			continue
		}
		lost = a.asked(&lines[i], until(lines[i+1:]))
	}
	for _, purpose := range []string{Main, Rephrase, Fill} { // nothing that is known is dropped
		a.out = append(a.out, a.have[purpose]...)
	}
	return a
}

// until are the lines before the next request to the model.
func until(lines []loop.Line) []loop.Line {
	if i := slices.IndexFunc(lines, func(l loop.Line) bool { return l.Kind == "model" }); i >= 0 {
		return lines[:i]
	}
	return lines
}

// asked takes in one request, with what followed from its answer. lost says that the
// answer is not in the recording.
func (a *arrangement) asked(l *loop.Line, then []loop.Line) (lost bool) {
	stopped, by := fate(then)
	switch {
	case l.Outcome == "failed":
		a.failed(l.Purpose, "the model failed")
	case l.Outcome == "empty":
		a.empty(l.Purpose)
	case stopped != "" && l.Purpose != Main:
		a.failed(l.Purpose, "a hook discarded the completion")
		a.notes = append(a.notes, "an answer to another question of the engine's was discarded by "+by+"; in the test the model fails there")
	case stopped == hook.Retry.String():
		a.notes = append(a.notes, "a draft of the model was discarded by "+by+" and left nothing; the recording begins with the one that went on")
		return true
	case stopped != "":
		a.notes = append(a.notes, "calls of the model that "+by+" stopped left nothing; write them into the recording by hand")
		return true
	case l.Purpose == Fill && !filledSome(then):
		none := "none"
		a.out = append(a.out, Completion{Purpose: Fill, Text: &none})
	case len(a.have[l.Purpose]) > 0:
		a.out = append(a.out, a.next(l.Purpose))
	default:
		a.failed(l.Purpose, "the completion left nothing in the record")
		a.notes = append(a.notes, "a completion ("+l.Purpose+") left nothing in the record; in the test the model fails there")
	}
	return false
}

func (a *arrangement) next(purpose string) Completion {
	c := a.have[purpose][0]
	a.have[purpose] = a.have[purpose][1:]
	return c
}

func (a *arrangement) failed(purpose, why string) {
	if have := a.have[purpose]; len(have) > 0 && have[0].Fail != "" {
		a.out = append(a.out, a.next(purpose))
		return
	}
	a.out = append(a.out, Completion{Purpose: purpose, Fail: why})
}

// empty takes in an empty completion. In the main loop those that were asked for
// again leave nothing; the last of them is in the record.
func (a *arrangement) empty(purpose string) {
	have := a.have[purpose]
	switch {
	case purpose != Main:
		a.out = append(a.out, Completion{Purpose: purpose, Empty: true})
	case len(have) > 0 && have[0].Empty:
		a.out = append(a.out, a.next(purpose))
	}
}

// fate says whether hooks stopped an answer, and which.
func fate(then []loop.Line) (stopped, by string) {
	for _, l := range then {
		n := len(l.Runs)
		if l.Kind == "point" && (l.Point == hook.ModelResponse || l.Point == hook.ToolCall) && n > 0 && l.Outcome != hook.Continue.String() {
			return l.Outcome, l.Runs[n-1].Name
		}
	}
	return "", ""
}

// filledSome says whether an answer about fields set any.
func filledSome(then []loop.Line) bool {
	for _, l := range then {
		var set, refused int
		if l.Kind != "note" || !strings.HasSuffix(l.Key, "/fill") {
			continue
		}
		if _, err := fmt.Sscanf(l.Why, "%d fields were filled in, %d were not accepted", &set, &refused); err == nil && set > 0 {
			return true
		}
	}
	return false
}

// decided takes down hooks that rejected or failed: both will again. One whose time
// ran out will hopefully not.
func (a *arrangement) decided(l *loop.Line) {
	for _, r := range l.Runs {
		m := HookMatch{Hook: r.Name, Point: r.Point, Said: sayings(r)[:1]}
		switch {
		case r.Lane != hook.Modify:
			continue
		case r.Failure != nil && r.Failure.Kind == hook.Timeout:
			a.notes = append(a.notes, r.Name+" ran out of time at "+r.Point+"; the test does not expect it to")
			continue
		case r.Failure == nil && r.Said != hook.Reject.String():
			continue
		}
		if !slices.ContainsFunc(a.hooks, func(h HookMatch) bool { return h.Hook == m.Hook && h.Point == m.Point && h.Said[0] == m.Said[0] }) {
			a.hooks = append(a.hooks, m)
		}
	}
}
