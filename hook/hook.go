package hook

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Host asks hooks that live outside this process.
//
// Start puts one question and returns once its place in order is fixed: calls
// with the same [Question.Key] begin in the order of their Starts. It calls done
// exactly once, from any goroutine, within q.Hook.Limit of the hook's own
// beginning plus a small grace: guarding the time is the host's work, since only
// it knows when a hook began. When ctx ends it cancels the call and answers with
// a [Cancelled] failure.
type Host interface {
	Start(ctx context.Context, q Question, done func(Answer))
}

// Question is one payload for one hook.
type Question struct {
	Hook    *Hook
	Payload Payload
	// Key orders questions: those of one conversation or job have the same.
	Key string
	// Turn is the id of the turn or job step, for logs and traces.
	Turn string
}

// Match narrows the calls that a hook sees. A nil list matches every name; an
// empty one is refused, so that a list which lost its names never means all.
type Match struct {
	Tools  []string // full names, <tool>.<function>
	Agents []string
}

// Who is whom a chain is for.
type Who struct {
	Agent string
	Tool  string
}

// Hook is one check at one point. An engine works on a copy of its own.
type Hook struct {
	Name  string // unique at its point, such as "hooks/mask.py:mask_cards"
	Point *Point
	Lane  Lane
	// Final asks an observer with the payload that goes on after the modify
	// lane, and not at all when nothing goes on.
	Final bool
	Match Match
	// Limit is the time for one answer; 0 means the point's default.
	Limit time.Duration
	// OnFailure is the hook's own policy; empty means the point's.
	OnFailure Policy
	// Verdicts narrows what it may say; 0 means the point's set.
	Verdicts Kinds

	File string // where it is defined
	Line int

	// Func or Host answers; exactly one is set.
	Func Func
	Host Host
	// Handle is the host's own, such as a number in its catalogue.
	Handle int
}

// host returns whoever answers for the hook.
func (h *Hook) host() Host {
	if h.Func != nil {
		return h.Func
	}
	return h.Host
}

// escalateOnly says that the hook may only go on or hold: then every other
// answer, a failure too, counts as a hold.
func (h *Hook) escalateOnly() bool {
	return h.Point.Dialect == Plugin && h.Verdicts == KindsOf(Continue, Hold)
}

func (h *Hook) where() string {
	if h.File == "" {
		return h.Name
	}
	return fmt.Sprintf("%s (%s:%d)", h.Name, h.File, h.Line)
}

func (m Match) narrow() bool { return m.Tools != nil || m.Agents != nil }

func (m Match) sees(w Who) bool {
	return (m.Tools == nil || slices.Contains(m.Tools, w.Tool)) && (m.Agents == nil || slices.Contains(m.Agents, w.Agent))
}

// prepare checks a hook and fills in what follows from its point.
func (h *Hook) prepare() error {
	switch {
	case h.Point == nil:
		return fmt.Errorf("hook %q stands at no point", h.Name)
	case h.Name == "":
		return fmt.Errorf("a hook at %s has no name", h.Point.Name)
	case (h.Func == nil) == (h.Host == nil):
		return fmt.Errorf("hook %s: exactly one of Func and Host must be set", h.Name)
	case h.Lane != Observe && h.Lane != Modify:
		return fmt.Errorf("hook %s: unknown lane %q", h.Name, h.Lane)
	case h.Lane == Observe && !h.Point.Observe, h.Lane == Modify && !h.Point.Modify:
		return fmt.Errorf("hook %s: point %s has no %s lane", h.Name, h.Point.Name, h.Lane)
	case h.Final && h.Lane != Observe:
		return fmt.Errorf("hook %s: only an observer can be final", h.Name)
	case h.Limit < 0 || (h.Point.MaxLimit > 0 && h.Limit > h.Point.MaxLimit):
		return fmt.Errorf("hook %s: limit %v is out of bounds (at most %v)", h.Name, h.Limit, h.Point.MaxLimit)
	}
	if err := h.checkMatch(); err != nil {
		return err
	}
	if h.Lane == Observe {
		if h.Limit == 0 {
			h.Limit = h.Point.ObserveLimit
		}
		return nil
	}
	return h.prepareModify()
}

func (h *Hook) checkMatch() error {
	switch {
	case h.Match.Tools != nil && len(h.Match.Tools) == 0, h.Match.Agents != nil && len(h.Match.Agents) == 0:
		return fmt.Errorf("hook %s: an empty list in its match sees nothing; leave it out to see all", h.Name)
	case h.Match.Tools != nil && !h.Point.hasTool():
		return fmt.Errorf("hook %s: point %s is about no tool, so its match cannot name any", h.Name, h.Point.Name)
	}
	return nil
}

func (h *Hook) prepareModify() error {
	if h.Limit == 0 {
		h.Limit = h.Point.ModifyLimit
	}
	if h.Verdicts == 0 {
		h.Verdicts = h.Point.Verdicts
	}
	if h.OnFailure == "" {
		if h.OnFailure = h.Point.OnFailure; h.escalateOnly() {
			h.OnFailure = HoldPolicy
		}
	}
	switch {
	case h.Verdicts&^h.Point.Verdicts != 0:
		return fmt.Errorf("hook %s: declares a verdict that point %s does not have", h.Name, h.Point.Name)
	case !h.Verdicts.Has(Continue):
		return fmt.Errorf("hook %s: declares verdicts without %s", h.Name, Continue)
	case h.OnFailure != Open && h.OnFailure != Closed && h.OnFailure != HoldPolicy:
		return fmt.Errorf("hook %s: unknown policy %q", h.Name, h.OnFailure)
	case h.OnFailure == HoldPolicy && !h.Point.Verdicts.Has(Hold):
		return fmt.Errorf("hook %s: point %s cannot hold", h.Name, h.Point.Name)
	case h.escalateOnly() && h.OnFailure != HoldPolicy:
		return fmt.Errorf("hook %s: may only go on or hold, so its policy is %s", h.Name, HoldPolicy)
	case h.Point.Dialect == Turn && h.OnFailure != h.Point.OnFailure:
		return fmt.Errorf("hook %s: the policy of %s is %s", h.Name, h.Point.Name, h.Point.OnFailure)
	}
	return nil
}
