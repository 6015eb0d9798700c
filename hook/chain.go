package hook

import (
	"fmt"
)

// Chain is the hooks of one point for one caller: built once, never changed. A
// nil Chain is a point where nobody stands.
type Chain struct {
	point    *Point
	modify   []*Hook
	observe  []*Hook // asked with the payload as it came
	final    []*Hook // asked with the payload that goes on
	disabled []*Hook // would stand here but are switched off
}

// Point returns the chain's point.
func (c *Chain) Point() *Point { return c.point }

// Modify returns how many hooks decide in the chain.
func (c *Chain) Modify() int {
	if c == nil {
		return 0
	}
	return len(c.modify)
}

// Hook returns the i-th hook of the modify lane.
func (c *Chain) Hook(i int) *Hook { return c.modify[i] }

// Observers returns the hooks that look on: those asked with the payload as it
// came, and those asked with what goes on.
func (c *Chain) Observers() (first, final []*Hook) {
	if c == nil {
		return nil, nil
	}
	return c.observe, c.final
}

// Disabled returns the hooks that would stand in the chain but are switched off.
func (c *Chain) Disabled() []*Hook {
	if c == nil {
		return nil
	}
	return c.disabled
}

// NewChain returns the chain of the hooks in the given order that stand at point
// and see who; nil when there are none.
func NewChain(point *Point, who Who, hooks []*Hook, off func(*Hook) bool) *Chain {
	c := &Chain{point: point}
	for _, h := range hooks {
		if h.Point != point || !h.Match.sees(who) {
			continue
		}
		switch {
		case off != nil && off(h):
			c.disabled = append(c.disabled, h)
		case h.Lane == Modify:
			c.modify = append(c.modify, h)
		case h.Final:
			c.final = append(c.final, h)
		default:
			c.observe = append(c.observe, h)
		}
	}
	if len(c.modify)+len(c.observe)+len(c.final)+len(c.disabled) == 0 {
		return nil
	}
	return c
}

// prepare checks a hook and fills in what follows from its point.
func (h *Hook) prepare() error {
	switch {
	case h == nil || h.Point == nil:
		return fmt.Errorf("a hook stands at no point")
	case h.Name == "":
		return fmt.Errorf("a hook at %s has no name", h.Point.Name)
	case (h.Func == nil) == (h.Host == nil):
		return fmt.Errorf("hook %s: exactly one of Func and Host must be set", h.Name)
	case h.Lane == Observe && !h.Point.Observe, h.Lane == Modify && !h.Point.Modify:
		return fmt.Errorf("hook %s: point %s has no %s lane", h.Name, h.Point.Name, h.Lane)
	case h.Lane != Observe && h.Lane != Modify:
		return fmt.Errorf("hook %s: unknown lane %q", h.Name, h.Lane)
	case h.Final && h.Lane != Observe:
		return fmt.Errorf("hook %s: only an observer can be final", h.Name)
	case h.Limit < 0 || (h.Point.MaxLimit > 0 && h.Limit > h.Point.MaxLimit):
		return fmt.Errorf("hook %s: limit %v is out of bounds (at most %v)", h.Name, h.Limit, h.Point.MaxLimit)
	case h.Lane == Modify && h.Verdicts&^h.Point.Verdicts != 0:
		return fmt.Errorf("hook %s: declares a verdict that point %s does not have", h.Name, h.Point.Name)
	}
	if h.Limit == 0 {
		if h.Limit = h.Point.ModifyLimit; h.Lane == Observe {
			h.Limit = h.Point.ObserveLimit
		}
	}
	if h.Lane == Observe {
		return nil
	}
	if h.Verdicts == 0 {
		h.Verdicts = h.Point.Verdicts
	}
	if h.OnFailure == "" {
		if h.OnFailure = h.Point.OnFailure; h.escalateOnly() {
			h.OnFailure = HoldPolicy
		}
	}
	return h.checkPolicy()
}

func (h *Hook) checkPolicy() error {
	switch {
	case h.OnFailure != Open && h.OnFailure != Closed && h.OnFailure != HoldPolicy:
		return fmt.Errorf("hook %s: unknown policy %q", h.Name, h.OnFailure)
	case h.OnFailure == HoldPolicy && !h.Point.Verdicts.Has(Hold):
		return fmt.Errorf("hook %s: point %s cannot hold", h.Name, h.Point.Name)
	case h.escalateOnly() && h.OnFailure != HoldPolicy:
		return fmt.Errorf("hook %s: may only allow or escalate, so its policy is %s", h.Name, HoldPolicy)
	case h.Point.Dialect == Turn && h.OnFailure != h.Point.OnFailure:
		return fmt.Errorf("hook %s: the policy of %s is %s", h.Name, h.Point.Name, h.Point.OnFailure)
	}
	return nil
}

// checkSet checks hooks that are to stand in one engine together.
func checkSet(hooks []*Hook) error {
	names := map[string]bool{}
	modify := map[*Point]*Hook{}
	for _, h := range hooks {
		if err := h.prepare(); err != nil {
			return err
		}
		if names[h.Name+" "+h.Point.Name] {
			return fmt.Errorf("two hooks at %s are named %s", h.Point.Name, h.Name)
		}
		names[h.Name+" "+h.Point.Name] = true
		if h.Point.Dialect != Turn || h.Lane != Modify {
			continue
		}
		if first := modify[h.Point]; first != nil {
			return fmt.Errorf("two modify hooks at %s: %s and %s; keep one", h.Point.Name, first.where(), h.where())
		}
		modify[h.Point] = h
	}
	return nil
}

func (h *Hook) where() string {
	if h.File == "" {
		return h.Name
	}
	return fmt.Sprintf("%s (%s:%d)", h.Name, h.File, h.Line)
}
