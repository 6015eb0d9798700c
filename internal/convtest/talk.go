package convtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/internal/app"
	"github.com/belay-run/belay/internal/server"
	"github.com/belay-run/belay/internal/skill"
	"github.com/belay-run/belay/internal/turn"
)

// silent takes what goes to the user; the record has it too.
type silent struct{}

func (silent) Delta(string)        {}
func (silent) Text(turn.Utterance) {}

// conversation runs one test, up to the first turn that fails.
func (r *runner) conversation(ctx context.Context, a *app.App, result *Result, play *player) {
	began := time.Now()
	defer func() { result.Took = time.Since(began) }()
	c := result.Conversation
	state := skill.Fold(remembered(c))
	if play != nil {
		play.begin(1, c.Recording)
	}
	for i, t := range c.Turns {
		if play != nil {
			play.begin(i+1, t.Recording)
		}
		s, failures := r.turn(ctx, a, result, t, state)
		if play != nil {
			// A recording of the whole conversation may be left over until its end.
			for _, why := range play.end(c.Recording == nil || i == len(c.Turns)-1) {
				failures = append(failures, Failure{What: "recording", Line: t.Line, Message: why})
			}
		}
		if ctx.Err() != nil {
			return // it was interrupted: nobody knows
		}
		if len(failures) > 0 {
			result.Status, result.Turn = Failed, i+1
			result.Failures = append(failures, modelFailures(s, failures)...)
			if s.report.Turn != "" {
				result.Trace = app.TraceText(s.report)
			}
			return
		}
	}
	result.Status = Passed
}

// turn runs one turn and compares it with what is expected.
func (r *runner) turn(ctx context.Context, a *app.App, result *Result, t *Turn, state *skill.State) (*seen, []Failure) {
	bounded, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	s := &seen{state: state, set: r.spec.Skills}
	broke := func(format string, args ...any) []Failure {
		return []Failure{{What: "turn", Line: t.Line, Message: fmt.Sprintf(format, args...)}}
	}
	report, err := a.Talk(bounded, server.Inbound{Sender: result.Sender, Message: turn.Message{Text: t.User, Extra: t.Extra, Channel: result.Conversation.Channel}}, silent{})
	s.report = report
	for i := range report.Events {
		state.Apply(&report.Events[i])
	}
	a.WaitObservers()
	var traceErr error
	s.runs, traceErr = runsOf(ctx, a, report)
	r.seen.turn(s)
	switch {
	case err != nil:
		return s, broke("the turn could not be run: %v", err)
	case errors.Is(bounded.Err(), context.DeadlineExceeded) && report.Status == turn.Cancelled:
		return s, broke("the turn took longer than %s and was cancelled", r.cfg.Timeout)
	case traceErr != nil && ctx.Err() == nil:
		return s, broke("the turn's trace cannot be read: %v", traceErr)
	}
	return s, compare(&t.Expect, s)
}

// runsOf are the hooks that were asked in a turn, in order; observers, who end when
// they like, stand last.
func runsOf(ctx context.Context, a *app.App, report turn.Report) ([]hook.Run, error) {
	var out []hook.Run
	for _, l := range report.Lines {
		out = append(out, l.Runs...)
	}
	if report.Turn == "" {
		return out, nil
	}
	traces, err := a.Traces(ctx, report.Sender, report.Turn)
	if err != nil {
		return out, err
	}
	for _, l := range traces {
		var t app.TurnTrace
		if err := json.Unmarshal(l.Data, &t); err != nil {
			return out, err
		}
		for _, line := range t.Lines {
			if line.Kind == "observer" {
				out = append(out, line.Runs...)
			}
		}
	}
	return out, nil
}

// modelFailures says of a turn that failed where the model did: then the rest mostly
// follows from it.
func modelFailures(s *seen, told []Failure) []Failure {
	var out []Failure
	for _, l := range s.report.Lines {
		said := slices.ContainsFunc(told, func(f Failure) bool { return f.Message == l.Why })
		if l.Kind == "model" && l.Outcome == "failed" && !said {
			out = append(out, Failure{What: "model", Message: fmt.Sprintf("the model failed (%s): %s", l.Purpose, l.Why)})
		}
	}
	return out
}
