package hook

import (
	"fmt"
	"slices"
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
// came, and those asked with what goes on. The caller must not write to them.
func (c *Chain) Observers() (first, final []*Hook) {
	if c == nil {
		return nil, nil
	}
	return slices.Clip(c.observe), slices.Clip(c.final)
}

// Disabled returns the hooks that would stand in the chain but are switched off.
func (c *Chain) Disabled() []*Hook {
	if c == nil {
		return nil
	}
	return slices.Clip(c.disabled)
}

// named returns the hook of the modify lane with that name, or nil.
func (c *Chain) named(name string) *Hook {
	if c == nil {
		return nil
	}
	for _, h := range c.modify {
		if h.Name == name {
			return h
		}
	}
	return nil
}

// names returns the names of the modify lane in order.
func (c *Chain) names() []string {
	out := make([]string, c.Modify())
	for i := range out {
		out[i] = c.modify[i].Name
	}
	return out
}

// newChain returns the chain of the hooks in the given order that see who; nil
// when there are none. All hooks stand at point.
func newChain(point *Point, who Who, hooks []*Hook, off map[string]bool) *Chain {
	var c *Chain
	for _, h := range hooks {
		if !h.Match.sees(who) {
			continue
		}
		if c == nil {
			c = &Chain{point: point}
		}
		switch {
		case off[h.Name]:
			c.disabled = append(c.disabled, h)
		case h.Lane == Modify:
			c.modify = append(c.modify, h)
		case h.Final:
			c.final = append(c.final, h)
		default:
			c.observe = append(c.observe, h)
		}
	}
	return c
}

// ready checks hooks that are to stand in one engine together and returns copies
// of them, with what follows from their points filled in.
func ready(hooks []*Hook) ([]*Hook, error) {
	own := make([]*Hook, len(hooks))
	names := map[string]bool{}
	modify := map[*Point]*Hook{}
	for i, given := range hooks {
		if given == nil {
			return nil, fmt.Errorf("hook %d of %d is nil", i+1, len(hooks))
		}
		h := *given
		h.Match = Match{Tools: slices.Clone(h.Match.Tools), Agents: slices.Clone(h.Match.Agents)} // clones of an empty list are empty, not nil
		own[i] = &h
		if err := h.prepare(); err != nil {
			return nil, err
		}
		id := h.Point.Name + " " + h.Name
		if names[id] {
			return nil, fmt.Errorf("two hooks at %s are named %s", h.Point.Name, h.Name)
		}
		names[id] = true
		if h.Point.Dialect != Turn || h.Lane != Modify {
			continue
		}
		if first := modify[h.Point]; first != nil {
			return nil, fmt.Errorf("two modify hooks at %s: %s and %s; keep one", h.Point.Name, first.where(), h.where())
		}
		modify[h.Point] = own[i]
	}
	return own, nil
}
