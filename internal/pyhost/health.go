package pyhost

import (
	"fmt"
	"time"
)

const (
	// waitPatience is how long a sent call may wait to begin before its worker
	// is asked whether it lives.
	waitPatience = 250 * time.Millisecond
	// blindPatience is how long an unanswered ping is borne when nobody knows
	// who holds the interpreter: it may be a call within its limit.
	blindPatience = 700 * time.Millisecond
)

// watch looks after the health of a place's worker.
type watch struct {
	timer *time.Timer
	armed bool
	asked time.Time // of the oldest ping that is not answered
	heard uint64    // frames of the worker before that ping
}

// watchFrom makes sure that somebody looks when a call does not begin.
func (p *place) watchFrom(now time.Time) {
	if !p.watch.armed {
		p.lookIn(waitPatience)
	}
}

func (p *place) lookIn(d time.Duration) {
	p.watch.armed = true
	if p.watch.timer == nil {
		p.watch.timer = time.AfterFunc(d, p.look)
		return
	}
	p.watch.timer.Reset(d)
}

// suspect asks the worker whether it lives, and looks at the answer after the
// grace.
func (p *place) suspect(w *worker, now time.Time) {
	p.ping(w, now)
	p.lookIn(p.host.cfg.Grace)
}

func (p *place) ping(w *worker, now time.Time) {
	if p.watch.asked.IsZero() || w.heard != p.watch.heard {
		p.watch.asked, p.watch.heard = now, w.heard
		w.send(framePing, 0)
	}
}

// look is the watch's round.
func (p *place) look() {
	p.mu.Lock()
	es := p.round(time.Now())
	p.mu.Unlock()
	tellAll(es)
}

func (p *place) round(now time.Time) []ending {
	p.watch.armed = false
	w := p.worker
	if w == nil {
		es := p.failWaiting(now, p.host.cfg.workerWait)
		if len(p.waiting) > 0 {
			p.lookIn(waitPatience)
		}
		return es
	}
	if w.isDoomed() {
		return nil // the rest follows when it is dead
	}
	if !p.watch.asked.IsZero() {
		if w.heard == p.watch.heard {
			p.judge(w, now)
			return nil
		}
		p.watch.asked = time.Time{}
		p.sawAlive(w, now)
	}
	switch {
	case len(p.waiting) > p.unsent && now.Sub(p.waiting[0].asked) >= waitPatience, p.unproven(w, now):
		p.suspect(w, now)
	case len(p.waiting) > 0:
		p.lookIn(waitPatience)
	}
	return nil
}

// judge decides about a worker that has been silent since it was asked.
func (p *place) judge(w *worker, now time.Time) {
	silent, grace := now.Sub(p.watch.asked), p.host.cfg.Grace
	if silent < grace {
		p.lookIn(grace - silent)
		return
	}
	if c := w.live[w.proc.running()]; c != nil && !c.begun.IsZero() {
		// The one that holds the interpreter is known.
		if over := now.Sub(c.begun) - c.limit; over < grace {
			p.lookIn(grace - over)
			return
		}
		p.blocked(w, c)
		return
	}
	if silent < blindPatience && (p.someInTime(w, now) || !p.unproven(w, now)) {
		p.lookIn(blindPatience - silent)
		return
	}
	p.blocked(w, nil)
}

// blocked ends a worker that does not answer. c is the call to blame, if known.
func (p *place) blocked(w *worker, c *call) {
	why := "something kept it from answering"
	if c != nil {
		w.blame = c.name
		why = fmt.Sprintf("%s blocked it beyond its limit of %v", c.name, c.limit)
		p.log.Warn("a call blocks the Python worker beyond its limit", "name", c.name, "file", c.file, "line", c.line, "limit", c.limit)
	}
	w.end(why, true)
}

// someInTime says whether a call runs that has time left.
func (p *place) someInTime(w *worker, now time.Time) bool {
	for _, c := range w.live {
		if !c.begun.IsZero() && !c.overdue(now) {
			return true
		}
	}
	return false
}

// unproven says whether a call has overrun its time and the worker has not been
// heard since.
func (p *place) unproven(w *worker, now time.Time) bool {
	for _, c := range w.live {
		if c.overdue(now) && !c.seen {
			return true
		}
	}
	return false
}

// sawAlive notes that the loop goes round although calls overran, and says so:
// such a call swallows its cancellation. Its answer counts for nothing.
func (p *place) sawAlive(w *worker, now time.Time) {
	for _, c := range w.live {
		if !c.overdue(now) || c.seen {
			continue
		}
		c.seen = true
		p.log.Warn("a cancelled call still runs", "name", c.name, "file", c.file, "line", c.line)
		p.host.event(Event{Kind: StillRuns, Place: p.index, PID: w.proc.pid(), Hook: c.name})
	}
}
