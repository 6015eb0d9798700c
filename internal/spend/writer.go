package spend

import (
	"context"
	"fmt"
	"slices"
	"time"
)

const (
	// gather is how long rows are collected for one transaction: most calls of models
	// that answer at once are then one row, not two.
	gather = 2 * time.Millisecond
	// While the store fails, the time between two tries doubles up to retryAtMost.
	retryAfter  = 200 * time.Millisecond
	retryAtMost = 5 * time.Second
	// mostRows and mostText bound what waits for a store that fails: then no call
	// begins any more, and texts are not kept.
	mostRows = 10_000
	mostText = 64 << 20
)

// row is a call on its way into the store. The ledger's mu guards it.
type row struct {
	Record
	queued bool
}

func (r *row) text() int { return len(r.Request) + len(r.Answer) }

// writer brings rows into the store behind the callers' backs. The ledger's mu guards
// all of it but wake and done.
type writer struct {
	queue   []*row
	writing []Record // handed to the store just now
	bytes   int      // of texts in queue and writing
	failed  error    // of the last try
	tries   int      // how many have failed in a row
	dropped int      // refusals that were not kept
	closing bool
	// kept counts the times that the store took calls, synced those of which it is
	// known that they are on disk.
	kept, synced int

	tried chan struct{} // closed when a try has ended, and made anew
	wake  chan struct{} // there is something to write
	urge  chan struct{} // somebody waits: no pause before the next try
	stop  chan struct{}
	done  chan struct{}
}

func (w *writer) start(l *Ledger) {
	w.tried, w.wake, w.urge = make(chan struct{}), make(chan struct{}, 1), make(chan struct{}, 1)
	w.stop, w.done = make(chan struct{}), make(chan struct{})
	go l.write()
}

// takes says whether a call can be recorded.
func (w *writer) takes() error {
	switch {
	case w.closing:
		return ErrClosed
	case len(w.queue)+len(w.writing) >= mostRows:
		return ErrBehind
	}
	return nil
}

// add queues a row, once.
func (w *writer) add(r *row) {
	if r.text() > 0 && w.bytes+r.text() > mostText {
		r.Request, r.Answer = nil, nil
		r.Verdicts = append(slices.Clip(r.Verdicts), "texts not kept: too many wait for the disk")
	}
	w.bytes += r.text() // only ended rows have any, and those are added once
	if !r.queued {
		r.queued = true
		w.queue = append(w.queue, r)
	}
	signal(w.wake)
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// write is the writer's goroutine.
func (l *Ledger) write() {
	w := &l.writer
	defer close(w.done)
	for {
		select {
		case <-w.stop:
			return
		case <-w.wake:
		}
		pause := gather
		for again := true; again; {
			select {
			case <-w.stop:
			case <-w.urge:
			case <-time.After(pause):
			}
			pause, again = l.try()
			select {
			case <-w.stop:
				return
			default:
			}
		}
	}
}

// try hands what waits to the store. When that fails it says how long to wait before
// the next try.
func (l *Ledger) try() (pause time.Duration, again bool) {
	w := &l.writer
	l.mu.Lock()
	rows := w.queue
	w.queue, w.writing = nil, make([]Record, len(rows))
	var begun, ended []Record
	for i, r := range rows {
		r.queued = false
		w.writing[i] = r.Record
		if r.Ended {
			ended = append(ended, r.Record)
		} else {
			begun = append(begun, r.Record)
		}
	}
	l.mu.Unlock()
	var err error
	if len(rows) > 0 {
		err = l.o.Store.KeepModelCalls(context.Background(), begun, ended)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	defer func() {
		close(w.tried)
		w.tried = make(chan struct{})
	}()
	w.writing = nil
	if err != nil {
		l.fails(rows, err)
		return min(retryAfter<<min(w.tries-1, 5), retryAtMost), true
	}
	for _, r := range rows {
		if r.Ended && !r.queued {
			w.bytes -= r.text()
			r.Request, r.Answer = nil, nil // whoever holds the entry needs them no more
		}
	}
	if w.tries > 0 {
		l.o.Logger.Info("model calls are recorded again", "calls", len(rows), "refusals_lost", w.dropped)
		w.tries, w.dropped = 0, 0
	}
	if w.failed = nil; len(rows) > 0 {
		w.kept++
	}
	return 0, false
}

// fails puts rows back that could not be written; the caller holds mu.
func (l *Ledger) fails(rows []*row, err error) {
	w := &l.writer
	if w.failed = err; w.tries == 0 {
		l.o.Logger.Error("model calls cannot be recorded; will try again", "calls", len(rows), "error", err)
	}
	w.tries++
	back := make([]*row, 0, len(rows)+len(w.queue))
	for _, r := range rows {
		if !r.queued { // else it has ended meanwhile and is there again
			r.queued = true
			back = append(back, r)
		}
	}
	w.queue = append(back, w.queue...)
}

// waiting is how many rows wait that the filter picks; the caller holds mu.
func (w *writer) waiting(pick func(*Record) bool) int {
	n := 0
	for _, r := range w.queue {
		if pick(&r.Record) {
			n++
		}
	}
	for i := range w.writing {
		if pick(&w.writing[i]) {
			n++
		}
	}
	return n
}

// settle waits until no row waits that the filter picks, or a try after now has
// failed.
func (l *Ledger) settle(ctx context.Context, pick func(*Record) bool) error {
	w := &l.writer
	for first := true; ; first = false {
		l.mu.Lock()
		n, tried, failed := w.waiting(pick), w.tried, w.failed
		busy := len(w.writing) > 0
		l.mu.Unlock()
		switch {
		case n == 0:
			return nil
		case !first && failed != nil && !busy:
			return fmt.Errorf("%d model calls are not recorded: %w", n, failed)
		}
		signal(w.urge)
		signal(w.wake)
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d model calls are not recorded: %w", n, ctx.Err())
		case <-tried:
		case <-w.done:
			return fmt.Errorf("%d model calls are not recorded: %w", n, ErrClosed)
		}
	}
}

// Flush returns when every call of the job that has ended is on disk. The error says
// that it is not.
func (l *Ledger) Flush(ctx context.Context, tenant, job string) error {
	if err := l.settle(ctx, func(r *Record) bool { return r.Ended && r.Tenant == tenant && r.Job == job }); err != nil {
		return err
	}
	w := &l.writer
	l.mu.Lock()
	kept, there := w.kept, w.synced >= w.kept
	l.mu.Unlock()
	if there {
		return nil
	}
	if err := l.o.Store.KeepModelCalls(ctx, nil, nil); err != nil {
		return fmt.Errorf("bring model calls to the disk: %w", err)
	}
	l.mu.Lock()
	w.synced = max(w.synced, kept)
	l.mu.Unlock()
	return nil
}

// Close writes what waits. The error says what could not be written. No call begins
// any more.
func (l *Ledger) Close(ctx context.Context) error {
	l.mu.Lock()
	w := &l.writer
	closed := w.closing
	w.closing = true
	l.mu.Unlock()
	if closed {
		<-w.done
		return nil
	}
	err := l.settle(ctx, func(*Record) bool { return true })
	close(w.stop)
	<-w.done
	return err
}
