package job

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// write is the context of writes: they are never broken off half way, for the
// run must know what became of them.
func (run *Run) write() context.Context { return context.WithoutCancel(run.hard) }

// lost says that the run has no right to the job any more.
func lost(err error) bool {
	return errors.Is(err, ErrLost) || errors.Is(err, ErrNoJob) || errors.Is(err, ErrEnded)
}

// spoken says that the journal has answered, not failed.
func spoken(err error) bool {
	return lost(err) || errors.Is(err, ErrMoved) || errors.Is(err, ErrCancelled) || errors.Is(err, ErrConflict) ||
		errors.Is(err, ErrDecided) || errors.Is(err, ErrExpired) || errors.Is(err, ErrNotAsked) || errors.Is(err, ErrOtherQuestion)
}

// persist makes a write until the journal takes it: while the disk is full the
// job stays as it is, and an answer that has come is not lost. It gives up when
// the process must stop at once.
func (run *Run) persist(what string, write func(context.Context) error) error {
	for n := 1; ; n++ {
		err := write(run.write())
		switch {
		case err == nil:
			if n > 1 {
				run.r.Log.Info("the journal takes the job's writes again", "job", run.lease.String(), "write", what, "tries", n)
			}
			return nil
		case spoken(err):
			return err
		case n == 1:
			run.r.Log.Error("the journal fails; the job stays as it is, and goes on when it works again", "job", run.lease.String(), "write", what, "error", err)
		}
		pause := time.NewTimer(run.r.Pause(n))
		select {
		case <-pause.C:
		case <-run.hard.Done():
			pause.Stop()
			return fmt.Errorf("%s: given up as this process stops: %w", what, err)
		}
	}
}

// record persists what a step wrote, and before it the answers that wait and the
// times that were read: what depends on them must not be on record without them.
// Any error means that the run is over.
func (run *Run) record(what string, write func(context.Context, Lease, []Record) error, records []Record) error {
	run.mu.Lock()
	records = slices.Concat(run.clocks, run.waiting, records)
	along := len(run.clocks) + len(run.waiting) // another branch that writes meanwhile brings them too
	run.mu.Unlock()
	if len(records) == 0 {
		return nil
	}
	err := run.persist(what, func(ctx context.Context) error { return write(ctx, run.lease, records) })
	if err != nil {
		if errors.Is(err, ErrConflict) { // two processes at one job would be a fault of ours
			run.r.Log.Error("the job's record has another answer; this process leaves it alone", "job", run.lease.String(), "write", what)
		}
		run.halt(fmt.Errorf("%w: %w", ErrLost, err))
		run.mu.Lock()
		defer run.mu.Unlock()
		return run.stopped()
	}
	run.written(records[:along])
	run.kept(records)
	return nil
}

func (run *Run) kept(records []Record) {
	if run.r.Kept != nil {
		run.r.Kept(run.lease.ID, records)
	}
}

// written lets go of times and answers that are on record. Another branch may have
// written some of them too; that changes nothing.
func (run *Run) written(along []Record) {
	run.mu.Lock()
	defer run.mu.Unlock()
	answers := map[*Answer]bool{}
	for _, r := range along {
		if r.What == Timed {
			run.entries[r.Key].known = true
		} else {
			answers[r.Answer] = true
		}
	}
	run.clocks = slices.DeleteFunc(run.clocks, func(c Record) bool { return run.entries[c.Key].known })
	run.waiting = slices.DeleteFunc(run.waiting, func(w Record) bool { return answers[w.Answer] })
}
