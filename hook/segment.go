package hook

import (
	"context"
	"sync"
	"time"
)

// segment is a stretch of Go hooks that run on one goroutine of their own. One
// timer guards them all: when it fires, it looks whether the hook that runs has
// run too long. A goroutine and a context for each hook would cost more than the
// hooks.
type segment struct {
	over chan struct{} // closed when closed is set

	mu      sync.Mutex
	closed  bool // the goroutine may touch nothing any more
	drive   *drive
	began   time.Duration // when the hook that runs began, as uptime gives it
	running bool
	timer   *time.Timer
}

// start is when the program began; uptime is the time since, by the monotonic
// clock alone, which costs half of what time.Now does.
var start = time.Now()

func uptime() time.Duration { return time.Since(start) }

// lease is the context that the hooks of a segment get: it ends with the segment,
// which ends no later than its caller's context. One made by context.WithCancel
// would say the same at a tenth of the whole chain's cost.
type lease struct {
	context.Context
	over <-chan struct{}
}

// Done is closed when the segment ends.
func (l *lease) Done() <-chan struct{} { return l.over }

// Err says whether the segment, or its caller, has ended.
func (l *lease) Err() error {
	if err := l.Context.Err(); err != nil {
		return err
	}
	select {
	case <-l.over:
		return context.Canceled
	default:
		return nil
	}
}

// drive is a modify lane under way.
type drive struct {
	State
	runs []Run
}

// runFuncs asks Go hooks until one is not, or the chain waits for something
// else.
func (d *drive) runFuncs(ctx context.Context) {
	g := &segment{drive: d, over: make(chan struct{})}
	look := shortestLimit(d.chain.modify[d.At:])
	g.mu.Lock()
	g.timer = time.AfterFunc(look, func() { g.look(look) })
	g.mu.Unlock()
	defer g.timer.Stop()
	go g.work(&lease{ctx, g.over})
	select {
	case <-g.over:
	case <-ctx.Done():
		g.mu.Lock()
		defer g.mu.Unlock()
		g.leave(gaveUp(ctx))
	}
}

// shortestLimit is how often the timer must look to meet every limit: a hook that
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

// work asks hook after hook. It holds the lock but for the hooks' own time.
func (g *segment) work(ctx context.Context) {
	g.mu.Lock()
	defer g.mu.Unlock()
	defer g.leave(endedEarly) // that it did counts only when a hook still runs
	for !g.closed && ctx.Err() == nil && g.drive.next() == NeedHook {
		h := g.drive.hook()
		if h.Func == nil {
			return
		}
		a := Answer{}
		if g.ask(ctx, h, &a); !g.closed {
			g.keep(&a)
		}
	}
}

// ask runs one hook without the lock, which it takes again also when the hook
// ends the goroutine.
func (g *segment) ask(ctx context.Context, h *Hook, a *Answer) {
	p := g.drive.Payload
	g.began, g.running = uptime(), true
	g.mu.Unlock()
	defer g.mu.Lock()
	h.Func.call(ctx, p, a)
}

// keep folds an answer.
func (g *segment) keep(a *Answer) {
	g.running, a.Took = false, uptime()-g.began
	g.drive.keep(a)
}

// keep folds the answer of the hook that was asked.
func (d *drive) keep(a *Answer) {
	d.runs = d.runs[:len(d.runs)+1] // made for every hook of the lane
	d.fold(a, &d.runs[len(d.runs)-1])
}

// hook returns the hook that is asked next.
func (d *drive) hook() *Hook { return d.chain.modify[d.At] }

// look leaves a hook whose time is up, or looks again later.
func (g *segment) look(every time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.closed:
	case !g.running: // its goroutine has yet to begin, or is about to end
		g.timer.Reset(every)
	default:
		h := g.drive.hook()
		if left := h.Limit - (uptime() - g.began); left > 0 {
			g.timer.Reset(min(left, every))
			return
		}
		g.leave(outOfTime(h))
	}
}

// leave ends the segment, and with it the hook that runs. Its goroutine may go
// on, but what it does counts for nothing.
func (g *segment) leave(f *Failure) {
	if g.closed {
		return
	}
	if g.running {
		g.keep(&Answer{Failure: f})
	}
	g.closed = true
	close(g.over)
}
