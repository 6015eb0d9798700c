package pyhost

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/belay-run/belay/hook"
)

const (
	maxWaiting = 4096            // calls of one place that have not begun
	workerWait = 5 * time.Second // for a place without a worker
	maxNoted   = 4096            // keys that are told about lost state
	maxSaid    = 1000            // texts of one call; the package belay allows fewer
	maxWrites  = 10_000          // memory values that one call sets
)

// place is where the calls of its keys go, whichever worker serves it. Its lock
// is held only for moments and never while a call is answered.
type place struct {
	host  *Host
	index int
	log   *slog.Logger

	mu      sync.Mutex
	worker  *worker
	vacant  time.Time // since when there is no worker
	closed  bool
	waiting []*call       // not begun, in the order of the questions
	unsent  int           // how many at the end of waiting are not sent
	open    int           // calls that are not answered
	idle    chan struct{} // closed when open becomes 0, if somebody waits
	watch   watch

	lost  string // why the worker before this one was lost
	noted map[string]bool
}

// serving is the part of a worker that its place guards.
type serving struct {
	live  map[uint32]*call // sent; gone once the worker has said that they ended
	last  uint32           // the newest call id
	heard uint64           // frames from the worker
	blame string           // the hook or tool that blocks it, when known
}

// start puts a call in its place in order.
func (p *place) start(ctx context.Context, c *call) {
	p.mu.Lock()
	now := c.asked
	var e ending
	switch {
	case p.closed:
		e = c.fail(now, hook.Unavailable, NotRun, "the Python host is closed")
	case len(p.waiting) >= maxWaiting:
		e = c.fail(now, hook.Unavailable, NotRun, fmt.Sprintf("%d calls wait for the Python worker already", maxWaiting))
	default:
		if ctx.Done() != nil {
			c.stop = context.AfterFunc(ctx, func() { p.cancel(c) })
		}
		p.open++
		p.waiting = append(p.waiting, c)
		p.unsent++
		es := p.sendWaiting(now)
		p.watchFrom(now)
		p.mu.Unlock()
		tellAll(es)
		return
	}
	p.mu.Unlock()
	e.tell()
}

// pump sends calls that waited for the worker to read.
func (p *place) pump(w *worker) {
	p.mu.Lock()
	var es []ending
	if p.worker == w {
		es = p.sendWaiting(time.Now())
	}
	p.mu.Unlock()
	tellAll(es)
}

// sendWaiting sends the calls that are not sent yet, in order, as far as the
// worker keeps up.
func (p *place) sendWaiting(now time.Time) (es []ending) {
	w := p.worker
	if w == nil || w.isDoomed() {
		return nil
	}
	for p.unsent > 0 && !w.box.full() {
		at := len(p.waiting) - p.unsent
		c := p.waiting[at]
		own := w.own(c)
		if own < 0 {
			p.waiting = slices.Delete(p.waiting, at, at+1)
			p.unsent--
			es = append(es, p.failed(c, now, hook.Unavailable, NotRun,
				c.name+" is no longer in the agent's files, which have changed since they were loaded: load the agent again"))
			continue
		}
		p.unsent--
		for w.last++; w.live[w.last] != nil || w.last == 0; w.last++ {
		}
		c.id, c.sent = w.last, true
		w.live[c.id] = c
		w.box.send(func(b []byte) []byte { return c.write(b, own) })
	}
	return es
}

// own returns the worker's number for the call's hook or tool, -1 for none.
func (w *worker) own(c *call) int {
	if c.toolDone != nil {
		return w.tools[c.handle]
	}
	return w.hooks[c.handle]
}

// dropWaiting takes a call out of the line.
func (p *place) dropWaiting(c *call) {
	i := slices.Index(p.waiting, c)
	if i < 0 {
		return
	}
	if i >= len(p.waiting)-p.unsent {
		p.unsent--
	}
	p.waiting = slices.Delete(p.waiting, i, i+1)
}

// ended counts an answered call.
func (p *place) ended(e ending) ending {
	if p.open--; p.open == 0 && p.idle != nil {
		close(p.idle)
		p.idle = nil
	}
	return e
}

func (p *place) failed(c *call, now time.Time, kind hook.FailureKind, outcome Outcome, why string) ending {
	return p.ended(c.fail(now, kind, outcome, why))
}

// cancel gives a call up because its caller has.
func (p *place) cancel(c *call) {
	p.mu.Lock()
	if c.over {
		p.mu.Unlock()
		return
	}
	outcome := Unknown
	if c.begun.IsZero() {
		outcome = NotRun
		p.dropWaiting(c)
	}
	now, timer := time.Now(), c.timer
	e := p.failed(c, now, hook.Cancelled, outcome, "the caller gave up")
	if w := p.worker; w != nil && c.sent && w.live[c.id] == c {
		w.send(frameCancel, c.id)
		if timer != nil {
			timer.Reset(max(c.limit-now.Sub(c.begun), 0)) // it may yet block the worker
		}
	}
	p.mu.Unlock()
	e.tell()
}

// expire ends a call whose time is up. The worker is told to cancel it, and asked
// whether it lives.
func (p *place) expire(w *worker, c *call) {
	p.mu.Lock()
	if p.worker != w || w.live[c.id] != c {
		p.mu.Unlock()
		return
	}
	now := time.Now()
	var e ending
	if !c.over {
		e = p.failed(c, now, hook.Timeout, TimedOut, fmt.Sprintf("it took longer than its limit of %v", c.limit))
		w.send(frameCancel, c.id)
	}
	p.suspect(w, now)
	p.mu.Unlock()
	e.tell()
}

// handle deals with a frame of the place's worker.
func (p *place) handle(w *worker, f frame) error {
	now := time.Now()
	p.mu.Lock()
	w.heard++
	c := w.live[f.id]
	if c == nil && f.kind != frameBeat {
		p.mu.Unlock()
		if f.id > w.last {
			return broken("a frame of type %q came for a call that was never made", f.kind)
		}
		return nil
	}
	var e ending
	var err error
	switch f.kind {
	case frameBegun:
		err = p.begun(w, c, now)
	case frameSaid:
		err = c.say(f.body)
	case frameWrote:
		err = c.wrote(f.body)
	case frameHookAnswer:
		e, err = p.hookAnswer(w, c, f.body, now)
	case frameToolAnswer:
		e, err = p.toolAnswer(w, c, f.body, now)
	}
	p.mu.Unlock()
	if e.call != nil && e.call.aside {
		p.host.all.Go(e.tell)
	} else {
		e.tell()
	}
	return err
}

func (p *place) begun(w *worker, c *call, now time.Time) error {
	if !c.begun.IsZero() {
		return broken("a call began twice")
	}
	c.begun = now
	if !c.over {
		p.dropWaiting(c)
	}
	c.timer = time.AfterFunc(c.limit, func() { p.expire(w, c) })
	return nil
}

func (p *place) hookAnswer(w *worker, c *call, body []byte, now time.Time) (ending, error) {
	if c.toolDone != nil {
		return ending{}, broken("a hook's answer came for a tool")
	}
	if skip, err := p.closing(w, c); skip {
		return ending{}, err
	}
	a, err := parseHookAnswer(c.payload.Point(), body)
	if err != nil {
		return ending{}, err // the call stays live and fails with its worker
	}
	delete(w.live, c.id)
	return p.ended(c.answer(now, a, p.notes(c))), nil
}

func (p *place) toolAnswer(w *worker, c *call, body []byte, now time.Time) (ending, error) {
	if c.toolDone == nil {
		return ending{}, broken("a tool's answer came for a hook")
	}
	if skip, err := p.closing(w, c); skip {
		return ending{}, err
	}
	a, err := parseToolAnswer(body)
	if err != nil {
		return ending{}, err
	}
	delete(w.live, c.id)
	return p.ended(c.toolAnswer(now, a, p.notes(c))), nil
}

// closing deals with the answers that count for nothing: one that came too late,
// and one of a call that has not begun.
func (p *place) closing(w *worker, c *call) (skip bool, err error) {
	if c.over {
		delete(w.live, c.id)
		if c.timer != nil {
			c.timer.Stop()
		}
		return true, nil
	}
	if c.begun.IsZero() {
		return true, broken("an answer came for a call that has not begun")
	}
	return false, nil
}

// notes tells the first answer of each key that module state was lost.
func (p *place) notes(c *call) []string {
	if p.lost == "" || p.noted[c.key] || len(p.noted) >= maxNoted {
		return nil
	}
	p.noted[c.key] = true
	return []string{"module state was lost: the Python worker was replaced because " + p.lost}
}

// take gives the place a worker and asks it what waits. It returns why the worker
// before was lost, nothing when this is the first, and what is to be told.
func (p *place) take(w *worker) (lost string, es []ending) {
	now := time.Now()
	p.mu.Lock()
	p.worker = w
	p.watch.asked = time.Time{}
	w.place.Store(p)
	defer p.mu.Unlock()
	es = p.sendWaiting(now)
	if len(p.waiting) > 0 {
		p.lookIn(waitPatience)
	}
	return p.lost, es
}

// lose takes the dead worker away. What had begun has failed, which is returned to
// be told; what had not waits for the next worker, in the same order.
func (p *place) lose(w *worker, why string) (es []ending) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.worker, p.vacant = nil, now
	for _, id := range slices.Sorted(maps.Keys(w.live)) {
		c := w.live[id]
		switch {
		case c.over:
		case c.begun.IsZero():
			c.sent = false
		default:
			es = append(es, p.failed(c, now, hook.Crash, Unknown, "the Python worker was lost while this ran: "+why))
		}
		if c.over && c.timer != nil {
			c.timer.Stop()
		}
	}
	w.live = nil
	p.unsent = len(p.waiting)
	if p.closed {
		es = append(es, p.failWaiting(now, -1)...)
	} else {
		p.lost, p.noted = why, map[string]bool{}
		p.log.Warn("the Python worker was lost, and the state that modules kept in it", "pid", w.proc.pid(), "why", why,
			"failed_calls", len(es), "asked_again", p.unsent)
		p.host.event(Event{Kind: StateLost, Place: p.index, PID: w.proc.pid(), Why: why, Hook: w.blame, Lost: len(es), Again: p.unsent})
		if p.unsent > 0 {
			p.lookIn(waitPatience)
		}
	}
	return es
}

// failWaiting fails the calls that have waited for a worker for as long as age;
// a negative age means all of them.
func (p *place) failWaiting(now time.Time, age time.Duration) (es []ending) {
	why := "no Python worker could be started in time; the log says why"
	if p.closed {
		why = "the Python host was closed"
	}
	n := 0
	for n < len(p.waiting) && now.Sub(latest(p.waiting[n].asked, p.vacant)) >= age {
		es = append(es, p.failed(p.waiting[n], now, hook.Unavailable, NotRun, why))
		n++
	}
	p.unsent = min(p.unsent, len(p.waiting)-n)
	p.waiting = slices.Delete(p.waiting, 0, n)
	return es
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// drain takes no more calls, waits for those under way, and fails what is left
// when ctx ends.
func (p *place) drain(ctx context.Context) {
	p.mu.Lock()
	p.closed = true
	var es []ending
	if p.worker == nil {
		es = p.failWaiting(time.Now(), -1) // nobody starts another worker now
	}
	idle := make(chan struct{})
	if p.open == 0 {
		close(idle)
	} else {
		p.idle = idle
	}
	p.mu.Unlock()
	tellAll(es)
	select {
	case <-idle:
	case <-ctx.Done():
	}

	now := time.Now()
	p.mu.Lock()
	es = p.failWaiting(now, -1)
	if w := p.worker; w != nil {
		for _, c := range w.live {
			if !c.over {
				es = append(es, p.failed(c, now, hook.Unavailable, Unknown, "the Python host was closed while this ran"))
			}
		}
	}
	if p.watch.timer != nil {
		p.watch.timer.Stop()
	}
	p.mu.Unlock()
	tellAll(es)
}
