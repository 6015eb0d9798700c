package localjob

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/belay-run/belay/internal/job"
)

// Submit makes a job and lets it run. Id, time and shape are filled in where
// they are not set.
func (e *Engine) Submit(ctx context.Context, o job.Order) (job.ID, error) {
	if e.isClosed() {
		return job.ID{}, ErrClosed
	}
	flow, ok := e.o.Flows[o.Flow]
	if !ok {
		return job.ID{}, fmt.Errorf("make a job: there is no flow %q", o.Flow)
	}
	if o.Shape == 0 {
		o.Shape = flow.Shape
	}
	if o.Job == "" {
		o.Job = e.o.NewID()
	}
	if o.Created.IsZero() {
		o.Created = e.o.Clock()
	}
	if err := e.o.Journal.Create(ctx, o); err != nil {
		return job.ID{}, fmt.Errorf("make job %s: %w", o.ID, err)
	}
	e.rouse()
	return o.ID, nil
}

// Decide decides a question and lets its job go on. It may be called on a closed
// engine too: the job then goes on with the next one.
func (e *Engine) Decide(ctx context.Context, d job.Decision) error {
	if d.At.IsZero() {
		d.At = e.o.Clock()
	}
	err := e.o.Journal.Decide(ctx, d)
	e.wake(d.ID) // also when it failed: perhaps it is on disk all the same
	if err != nil {
		return fmt.Errorf("decide %s of job %s: %w", d.Key, d.ID, err)
	}
	if e.o.Kept != nil {
		e.o.Kept(d.ID, []job.Record{{At: d.At, What: job.Decided, Key: d.Key, Answer: &d.Answer, By: d.By}})
	}
	return nil
}

// Cancel asks for the end of a job. Its steps that run are cancelled.
func (e *Engine) Cancel(ctx context.Context, id job.ID, c job.Cancellation) error {
	if c.At.IsZero() {
		c.At = e.o.Clock()
	}
	err := e.o.Journal.Cancel(ctx, id, c)
	e.wake(id)
	if err != nil {
		return fmt.Errorf("cancel job %s: %w", id, err)
	}
	return nil
}

// Wake lets the engine look at a job about which something was written past it.
func (e *Engine) Wake(id job.ID) { e.wake(id) }

// wake tells a job's run, if there is one, and the loop: the run may just have
// parked.
func (e *Engine) wake(id job.ID) {
	e.mu.Lock()
	run := e.runs[id]
	e.mu.Unlock()
	if run != nil {
		run.Wake()
	}
	e.rouse()
}

// Wait waits until a job has ended and returns it. It looks again whenever a run
// of the job has ended here, and now and then.
func (e *Engine) Wait(ctx context.Context, id job.ID) (job.Job, error) {
	for {
		j, err := e.next(ctx, id)
		if err != nil {
			return j, fmt.Errorf("wait for job %s: %w", id, err)
		}
		if j.State.Ended() {
			return j, nil
		}
	}
}

// next gives a job once it has ended, or after something may have happened to
// it.
func (e *Engine) next(ctx context.Context, id job.ID) (job.Job, error) {
	changed := make(chan struct{})
	e.mu.Lock()
	e.watchers[id] = append(e.watchers[id], changed)
	e.mu.Unlock()
	defer e.forget(id, changed)
	j, err := e.o.Journal.Get(ctx, id)
	if err != nil || j.State.Ended() {
		return j, err
	}
	poll := time.NewTimer(e.o.Jitter(e.o.Poll))
	defer poll.Stop()
	select {
	case <-changed:
		return j, nil
	case <-poll.C:
		return j, nil
	case <-e.closing:
		return j, ErrClosed
	case <-ctx.Done():
		return j, ctx.Err()
	}
}

// forget takes a watcher out.
func (e *Engine) forget(id job.ID, w chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	left := slices.DeleteFunc(e.watchers[id], func(other chan struct{}) bool { return other == w })
	if e.watchers[id] = left; len(left) == 0 {
		delete(e.watchers, id)
	}
}

func (e *Engine) isClosed() bool {
	select {
	case <-e.closing:
		return true
	default:
		return false
	}
}
