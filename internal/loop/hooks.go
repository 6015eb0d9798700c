package loop

import (
	"fmt"
	"time"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/internal/step"
)

// Hooks asks the chains of one turn, one hook at a time, through its steps.
type Hooks struct {
	Steps step.Steps
	Set   hook.Set
	Who   hook.Who
	// Record is told of each hook's run; it may be nil.
	Record func(hook.Run) hook.Run
	// Trace is told of each point that was reached; it may be nil.
	Trace func(Line)
}

// Stands says whether a hook decides at the point.
func (h *Hooks) Stands(point string) bool {
	return h.Set.Chain(hook.PointNamed(point), h.Who).Modify() > 0
}

// Listens says whether any hook stands at the point, so that a payload is worth
// building.
func (h *Hooks) Listens(point *hook.Point) bool { return h.Set.Chain(point, h.Who) != nil }

// At runs the payload's chain. key is unique in the turn.
func (h *Hooks) At(key string, p hook.Payload) (hook.Result, error) {
	return h.at(key, p, true)
}

// Shown hands the payload to the observers alone.
func (h *Hooks) Shown(key string, p hook.Payload) error {
	_, err := h.at(key, p, false)
	return err
}

func (h *Hooks) at(key string, p hook.Payload, decide bool) (hook.Result, error) {
	point, began := p.Point(), time.Now()
	chain := h.Set.Chain(point, h.Who)
	if chain == nil {
		h.trace(Line{Kind: "point", Point: point.Name, Key: key, Outcome: hook.Continue.String()})
		return hook.Result{Kind: hook.Continue, Payload: p}, nil
	}
	first, final := chain.Observers()
	if !point.Modify { // both see the same: all are told, or none when the turn is cancelled
		first, final = append(first, final...), nil
	}
	if err := h.observe(key+"/observers", first, p); err != nil {
		return hook.Result{}, err
	}
	end := hook.Result{Kind: hook.Continue, Payload: p}
	line := Line{Kind: "point", Point: point.Name, Key: key, Hooks: chain.Modify(), Observers: len(first), Observed: names(first)}
	for _, off := range chain.Disabled() {
		line.Disabled = append(line.Disabled, off.Name)
	}
	if decide {
		var err error
		if end, err = h.decide(key, chain, p); err != nil {
			line.Runs, line.Asked, line.Outcome, line.At, line.Took = end.Runs, len(end.Runs), BrokenOff, began, time.Since(began)
			h.trace(line)
			return hook.Result{}, err
		}
	} else if line.Hooks > 0 {
		line.Why = "not put to the modify lane"
	}
	if end.Kind == hook.Continue {
		if err := h.observe(key+"/final", final, end.Payload); err != nil {
			return hook.Result{}, err
		}
		line.Observers += len(final)
		line.Observed = append(line.Observed, names(final)...)
	}
	line.Runs, line.Asked, line.Outcome = end.Runs, len(end.Runs), end.Kind.String()
	line.At, line.Took = began, time.Since(began)
	h.trace(line)
	return end, nil
}

// BrokenOff is the outcome of a point, and what a hook said, when the turn ended
// before the hook had answered.
const BrokenOff = "broken off"

// decide asks the hooks that decide. Beside an error the result has the runs so
// far and that of the hook whose answer did not come.
func (h *Hooks) decide(key string, chain *hook.Chain, p hook.Payload) (hook.Result, error) {
	s := hook.Begin(chain, p)
	var runs []hook.Run
	for s.Next() == hook.NeedHook {
		asked := chain.Hook(s.At)
		got, err := h.Steps.Do(step.Call{Key: key + "/" + asked.Name, Kind: KindHook, Input: HookCall{asked, asked.Name, asked.Point.Name, s.Payload}})
		if err != nil {
			unanswered := hook.Run{Hook: asked, Name: asked.Name, Point: asked.Point.Name, Lane: asked.Lane, Said: BrokenOff, File: asked.File, Line: asked.Line}
			return hook.Result{Runs: append(runs, unanswered)}, err
		}
		answer, err := step.As[hook.Answer](got)
		if err != nil {
			return hook.Result{}, err
		}
		var run hook.Run
		s, run = s.Fold(answer)
		if h.Record != nil {
			run = h.Record(run)
		}
		runs = append(runs, run)
	}
	if s.Next() == hook.NeedPerson {
		return hook.Result{}, fmt.Errorf("%s: a turn cannot wait for a person", key)
	}
	s.End.Runs = runs
	return s.End, nil
}

func (h *Hooks) observe(key string, observers []*hook.Hook, p hook.Payload) error {
	if len(observers) == 0 {
		return nil
	}
	_, err := h.Steps.Do(step.Call{Key: key, Kind: KindObserve, Input: ObserveCall{observers, names(observers), p.Point().Name, p}})
	return err
}

func names(hooks []*hook.Hook) []string {
	out := make([]string, len(hooks))
	for i, h := range hooks {
		out[i] = h.Name
	}
	return out
}

func (h *Hooks) trace(l Line) {
	if h.Trace != nil {
		h.Trace(l)
	}
}
