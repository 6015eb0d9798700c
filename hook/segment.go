package hook

import (
	"context"
	"sync"
	"time"
)

// segment is a stretch of Go hooks that run on one goroutine of their own. One
// timer guards them all: when it fires, the owner looks whether the hook that
// runs has run too long. A goroutine and a context for each hook would cost more
// than the hooks.
type segment struct {
	ended chan struct{} // closed when the goroutine has ended

	mu      sync.Mutex
	state   State
	runs    []Run
	began   time.Time // when the hook that runs began
	running bool      // a hook runs, not the fold
	left    bool      // the owner gave up on the goroutine, which may write no more
}

// runFuncs asks Go hooks until one is not, or the chain waits for something
// else.
func runFuncs(ctx context.Context, s State, runs []Run) (State, []Run) {
	g := &segment{state: s, runs: runs, ended: make(chan struct{})}
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	look := shortestLimit(s.chain.modify[s.At:])
	timer := time.NewTimer(look)
	defer timer.Stop()
	go g.work(within)
	for {
		select {
		case <-g.ended:
			if g.running {
				g.leave(endedEarly)
			}
			return g.state, g.runs
		case <-ctx.Done():
			g.leave(gaveUp(ctx))
			return g.state, g.runs
		case <-timer.C:
			again, over := g.overdue(look)
			if over {
				return g.state, g.runs
			}
			timer.Reset(again)
		}
	}
}

// shortestLimit is how often the owner must look to meet every limit: a hook that
// begins after a look has at least that long.
func shortestLimit(hooks []*Hook) time.Duration {
	limit := hooks[0].Limit
	for _, h := range hooks[1:] {
		if h.Func == nil {
			break
		}
		limit = min(limit, h.Limit)
	}
	return limit
}

// work asks hook after hook.
func (g *segment) work(ctx context.Context) {
	defer close(g.ended)
	s := g.state
	for s.Next() == NeedHook && ctx.Err() == nil {
		h := s.chain.modify[s.At]
		if h.Func == nil || !g.begin() {
			return
		}
		a := h.Func.call(ctx, s.Payload)
		if !g.end(&a) {
			return
		}
		next, run := s.Fold(a)
		if !g.keep(next, run) {
			return
		}
		s = next
	}
}

// begin, end and keep return false when the owner is gone.

func (g *segment) begin() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.began, g.running = time.Now(), true
	return !g.left
}

func (g *segment) end(a *Answer) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	a.Took, g.running = time.Since(g.began), false
	return !g.left
}

func (g *segment) keep(s State, r Run) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.left {
		return false
	}
	g.state, g.runs = s, append(g.runs, r)
	return true
}

// overdue leaves a hook whose time is up; else it says when to look again.
func (g *segment) overdue(look time.Duration) (again time.Duration, over bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.running {
		return look, false
	}
	h := g.state.chain.modify[g.state.At]
	if left := h.Limit - time.Since(g.began); left > 0 {
		return min(left, look), false
	}
	g.fail(outOfTime(h))
	return 0, true
}

// leave gives up on the goroutine, and with it on the hook that runs.
func (g *segment) leave(a Answer) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.left = true
	if g.running {
		g.fail(a)
	}
}

// fail counts the hook that runs as failed.
func (g *segment) fail(a Answer) {
	g.left = true
	a.Took = time.Since(g.began)
	s, run := g.state.Fold(a)
	g.state, g.runs = s, append(g.runs, run)
}
