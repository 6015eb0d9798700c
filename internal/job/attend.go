package job

import (
	"context"
	"errors"
	"time"
)

// rarely is how long the driver of a run sleeps at most: a clock may be set.
const rarely = time.Minute

// attend does what is to be done beside the flow, and says how long it may take
// until there is more.
func (run *Run) attend() time.Duration {
	for {
		now := run.r.Clock()
		run.mu.Lock()
		look, due, next := run.look, run.due(now), run.next()
		run.look = false
		all := run.awake == 0
		over := run.halted != nil
		decisions := run.decisions
		run.mu.Unlock()
		switch {
		case over:
			return rarely
		case look:
			run.refresh()
		case run.tooLate():
			run.halt(errDeadline)
		case len(due) > 0:
			run.expire(due, now)
		case all:
			run.park(next, decisions, now)
		case next.IsZero():
			return rarely
		default:
			return min(rarely, next.Sub(now))
		}
	}
}

// due gives the questions that the flow waits for and whose deadline has passed;
// the caller holds mu.
func (run *Run) due(now time.Time) []Decision {
	var due []Decision
	for key, e := range run.entries {
		if e.woken != nil && e.answer == nil && !e.until.IsZero() && !now.Before(e.until) {
			due = append(due, Decision{
				ID: run.lease.ID, Key: key, Digest: e.digest, At: now, Expiry: true,
				Answer: Answer{Failure: &Failure{Kind: Expired, Message: "nobody decided by " + e.until.UTC().Format(time.RFC3339)}},
			})
		}
	}
	return due
}

// next is the first deadline to come, of the questions that the flow waits for
// and of the job; zero for none. The caller holds mu.
func (run *Run) next() time.Time {
	next := run.order.Deadline
	for _, e := range run.entries {
		if e.woken != nil && e.answer == nil && !e.until.IsZero() && (next.IsZero() || e.until.Before(next)) {
			next = e.until
		}
	}
	return next
}

// expire records that a deadline has decided, unless somebody was faster.
func (run *Run) expire(due []Decision, now time.Time) {
	for _, d := range due {
		d.At = now
		err := run.persist("expire", func(ctx context.Context) error { return run.r.Journal.Decide(ctx, d) })
		switch {
		case err == nil:
			run.kept([]Record{{At: d.At, What: Decided, Key: d.Key, Answer: &d.Answer}})
		case !errors.Is(err, ErrDecided) && !lost(err):
			run.halt(errors.Join(ErrLost, err))
			return
		}
	}
	run.refresh() // which also says whether the job was cancelled, or is lost
}

// park lets the job wait, unless it was woken meanwhile.
func (run *Run) park(wake time.Time, decisions int, now time.Time) {
	if run.record("keep", run.r.Journal.Keep, nil) != nil {
		return
	}
	err := run.persist("park", func(ctx context.Context) error {
		return run.r.Journal.Park(ctx, run.lease, Parking{Wake: wake, Decisions: decisions, At: now})
	})
	switch {
	case errors.Is(err, ErrMoved):
		run.refresh()
	case err != nil:
		run.halt(errors.Join(ErrLost, err))
	default:
		run.parked = wake
		run.halt(errParked)
	}
}

// refresh brings in what was decided meanwhile.
func (run *Run) refresh() {
	var h History
	err := run.persist("load", func(ctx context.Context) (err error) {
		h, err = run.r.Journal.Load(ctx, run.lease)
		return err
	})
	if err != nil {
		run.halt(errors.Join(ErrLost, err))
		return
	}
	run.mu.Lock()
	run.take(h)
	cancelled := run.cancel != nil
	run.mu.Unlock()
	if cancelled {
		run.halt(errCancelled)
	}
}

// take brings in a history: all of it at the start, later what others have
// written. The caller holds mu.
func (run *Run) take(h History) {
	run.cancel, run.decisions = h.Job.Cancel, h.Job.Decisions
	for _, r := range h.Records {
		e := run.entries[r.Key]
		if e == nil {
			e = &entry{}
			run.entries[r.Key] = e
		}
		e.read(r)
		if r.What == Decided && e.woken != nil {
			close(e.woken)
			e.woken = nil
			run.awake++ // for the goroutine that wakes
		}
	}
}

// read brings a record into what is known of its key.
func (e *entry) read(r Record) {
	e.known = true
	switch r.What {
	case Begun:
		e.what, e.kind, e.digest = Begun, r.Kind, r.Digest
		e.once = e.once || r.Once
		e.tries = max(e.tries, r.Try)
	case Asked:
		e.what, e.kind, e.digest, e.until = Asked, r.Kind, r.Digest, r.Until
	case Timed:
		e.what, e.at = Timed, r.At
	case Answered, Decided:
		e.answer = r.Answer
	}
}
