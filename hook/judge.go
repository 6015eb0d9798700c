package hook

import (
	"encoding/json"
	"fmt"
)

// judge is the wall between hooks and the engine. It leaves in a.Verdict what the
// hook may say, or returns the failure that its answer comes to. The note says
// what was turned into a hold, for the person.
func judge(h *Hook, a *Answer, run *Run) (note string, f *Failure) {
	if h.escalateOnly() {
		note = escalate(a)
		run.Dropped = note
		return note, a.Failure
	}
	if a.Failure != nil {
		return "", a.Failure
	}
	switch v := &a.Verdict; {
	case !v.Kind.known():
		return "", failure(WrongReturn, "%s is no verdict", v.Kind)
	case !h.Verdicts.Has(v.Kind):
		run.Dropped = v.Kind.String() + " is not allowed at " + h.Point.Name
		if h.Point.Dialect != Turn {
			return "", failure(WrongReturn, "%s", run.Dropped)
		}
		*v = Go()
	case v.Kind == Continue || v.Kind == Hold: // changes of the others count for nothing
		if err := h.Point.check(v.Changes); err != nil {
			return "", failure(WrongReturn, "%v", err)
		}
	}
	return "", nil
}

// escalate counts every answer of a hook that may only go on or hold as one of
// the two: it refuses nothing and changes nothing. The note says in the words of
// plugins what was turned; only their hooks are of this kind.
func escalate(a *Answer) (note string) {
	v := &a.Verdict
	switch {
	case a.Failure != nil:
		note = "a failure"
	case v.Kind == Hold && len(v.Changes) > 0:
		note = "an escalate with a new value"
	case v.Kind == Hold, v.Kind == Continue && len(v.Changes) == 0:
		return ""
	case v.Kind == Continue:
		note = "a modify"
	case v.Kind == Reject:
		note = "a deny"
	default:
		note = "a " + v.Kind.String()
	}
	*v = HoldFor(v.Reason)
	return note + " was turned into an escalate: the hook may only allow and escalate, and changes nothing"
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

// apply makes the changes that count: read-only fields stay as they came, and so
// does a value that only came back in another spelling.
func (s *State) apply(changes []Change, run *Run) {
	if len(changes) == 0 {
		return
	}
	point, before := s.Payload.point, s.Payload.values
	values := make([]json.RawMessage, len(before))
	copy(values, before)
	for _, c := range changes {
		f := &point.Fields[c.Field]
		if f.ReadOnly {
			run.PutBack = append(run.PutBack, f.Name)
			continue
		}
		values[c.Field] = c.Value
	}
	for i, v := range values {
		if sameJSON(before[i], v) {
			values[i] = before[i]
			continue
		}
		run.Changed = append(run.Changed, FieldChange{Field: point.Fields[i].Name, before: before[i], after: v})
	}
	if len(run.Changed) > 0 {
		s.Payload, s.Changed = Payload{point: point, values: values}, true
	}
}
