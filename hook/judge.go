package hook

import (
	"encoding/json"
	"fmt"
)

// judgement is what an answer comes to: a verdict that the hook may give, or a
// failure.
type judgement struct {
	verdict Verdict
	failure *Failure
	dropped string // what did not count, for the trace
	note    string // what was turned into a hold, for the person
}

// judge is the wall between hooks and the engine.
func judge(h *Hook, a Answer) judgement {
	if h.escalateOnly() {
		return judgeEscalateOnly(h, a)
	}
	if a.Failure != nil {
		return judgement{failure: a.Failure}
	}
	v := a.Verdict
	switch {
	case !v.Kind.known():
		return wrong(fmt.Sprintf("%s is no verdict", v.Kind))
	case !h.Verdicts.Has(v.Kind):
		dropped := fmt.Sprintf("%s is not allowed at %s", v.Kind, h.Point.Name)
		if h.Point.Dialect == Turn {
			return judgement{verdict: Go(), dropped: dropped}
		}
		j := wrong(dropped)
		j.dropped = dropped
		return j
	case v.Kind != Continue && v.Kind != Hold:
		return judgement{verdict: v} // its changes count for nothing
	}
	if err := h.Point.check(v.Changes); err != nil {
		return wrong(err.Error())
	}
	return judgement{verdict: v}
}

// judgeEscalateOnly counts everything but a plain "go on" as a hold without
// changes: such a hook refuses nothing and changes nothing.
func judgeEscalateOnly(h *Hook, a Answer) judgement {
	v, turned := a.Verdict, ""
	switch {
	case a.Failure != nil:
		turned = string(a.Failure.Kind)
	case len(v.Changes) > 0:
		turned = fmt.Sprintf("%s with a change", v.Kind)
	case v.Kind == Continue || v.Kind == Hold:
		return judgement{verdict: v}
	default:
		turned = v.Kind.String()
	}
	note := turned + " was turned into a hold: the hook may only go on or hold"
	return judgement{verdict: HoldFor(v.Reason), failure: a.Failure, dropped: note, note: note}
}

func wrong(message string) judgement {
	return judgement{failure: &Failure{Kind: WrongReturn, Message: message}}
}

// check says whether changes fit the point. What is read-only is not looked at:
// it is put back.
func (p *Point) check(changes []Change) error {
	for _, c := range changes {
		if c.Field < 0 || c.Field >= len(p.Fields) {
			return fmt.Errorf("%s has no such field", p.Name)
		}
		if f := &p.Fields[c.Field]; !f.ReadOnly {
			if err := f.fits(c.Value); err != nil {
				return err
			}
		}
	}
	return nil
}

// apply returns the payload with the changes that count: read-only fields stay
// as they came, and so does a value that only came back in another spelling.
func (p Payload) apply(changes []Change, run *Run) (Payload, bool) {
	if len(changes) == 0 {
		return p, false
	}
	values := make([]json.RawMessage, len(p.values))
	copy(values, p.values)
	changed := false
	for _, c := range changes {
		f := &p.point.Fields[c.Field]
		if f.ReadOnly {
			run.PutBack = append(run.PutBack, f.Name)
			continue
		}
		if sameJSON(values[c.Field], c.Value) {
			continue
		}
		run.Changed = append(run.Changed, FieldChange{Field: f.Name, before: values[c.Field], after: c.Value})
		values[c.Field], changed = c.Value, true
	}
	if !changed {
		return p, false
	}
	return Payload{point: p.point, values: values}, true
}
