package telemetry

import (
	"time"

	"github.com/belay-run/belay/internal/conversation"
	"github.com/belay-run/belay/internal/loop"
	"github.com/belay-run/belay/internal/turn"
)

// toolRun is one call of a tool: its entry in the record, which has arguments
// and result as the hooks left them, and its line in the trace, which has the
// time. Either may be missing: a gate may have kept the call from the tool, or
// the turn ended before the result was recorded.
type toolRun struct {
	name    string
	outcome string
	at      time.Time // when it was recorded
	run     *conversation.ToolRun
	line    *loop.Line
}

// toolRuns gives the calls of a turn in the order in which they were recorded,
// then those that were not.
func toolRuns(r turn.Report) []toolRun {
	var lines []*loop.Line
	for i := range r.Lines {
		if r.Lines[i].Kind == kindTool {
			lines = append(lines, &r.Lines[i])
		}
	}
	// take gives the line of a recorded call. A confirmed call has no id of its
	// own: it ran within the call that resolved the confirmation. What the engine
	// runs has no id at all.
	take := func(run *conversation.ToolRun) *loop.Line {
		confirmed := run.Source == conversation.SourceConfirmation
		for i, l := range lines {
			if l != nil && l.Tool == run.Name && (confirmed || run.CallID == l.CallID) {
				lines[i] = nil
				return l
			}
		}
		return nil
	}
	var out []toolRun
	for i := range r.Events {
		e := &r.Events[i]
		if e.Kind != conversation.ToolExecuted || e.Tool == nil || e.Turn != r.Turn {
			continue // what an earlier turn left open is not this turn's
		}
		t := toolRun{name: e.Tool.Name, outcome: notRun, at: e.At, run: e.Tool, line: take(e.Tool)}
		switch {
		case t.line != nil:
			t.outcome = t.line.Outcome
		case e.Tool.Result == conversation.Unknown:
			t.outcome = string(turn.ToolUnknown)
		}
		out = append(out, t)
	}
	for _, l := range lines {
		if l != nil {
			out = append(out, toolRun{name: l.Tool, outcome: l.Outcome, at: l.At.Add(l.Took), line: l})
		}
	}
	return out
}
