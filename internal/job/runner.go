package job

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Runner runs claimed jobs. An engine has one. All fields but Lease and Kept must be set.
type Runner struct {
	Journal  Journal
	Flows    Flows
	Handlers Handlers
	Clock    func() time.Time
	// Pause is how long to wait before a write that failed n times is made
	// again.
	Pause func(n int) time.Duration
	// Lease is how long a lease is renewed for that ran out before a step is
	// asked. 0: such a job is left to others.
	Lease time.Duration
	// Grace is how long a handler may go on after its context has ended, before
	// the run goes on without it.
	Grace time.Duration
	// Log takes what goes wrong, never inputs or answers.
	Log *slog.Logger
	// Kept is told of records that a run has written, perhaps twice of the same
	// and without their numbers; it may be nil. It must not block.
	Kept func(ID, []Record)

	// Strays counts the handlers that go on; some may have been given up.
	Strays sync.WaitGroup
}

// Run is one claimed job under way in this process.
type Run struct {
	crew   // its mu guards what stands below
	r      *Runner
	lease  Lease
	expiry atomic.Int64 // until when the lease holds, in nanoseconds
	over   chan struct{}

	hard   context.Context // ends when all must stop at once
	asking context.Context // of the handlers
	cease  context.CancelCauseFunc

	order     Order
	entries   map[string]*entry
	clocks    []Record // times that were read and go along with the next write
	waiting   []Record // answers that do
	decisions int
	look      bool  // decisions or a cancellation may have come
	halted    error // why every call of Steps says ErrStop by now
	told      bool  // the flow has heard so
	cancel    *Cancellation
	parked    time.Time
}

// entry is what is known of a key.
type entry struct {
	what   What // begun, asked or timed
	kind   string
	digest Digest
	once   bool
	tries  int
	until  time.Time // asked
	at     time.Time // timed
	answer *Answer
	known  bool          // it is on record
	used   bool          // the flow asked for it in this run
	woken  chan struct{} // asked: the flow sleeps until it is closed
}

// Outcome is how a run ended.
type Outcome struct {
	Kind OutcomeKind
	Wake time.Time // parked: when the job goes on by itself; zero for never
	End  End       // ended
	Err  error     // lost, left: why
}

// OutcomeKind says what became of a job at the end of a run.
type OutcomeKind string

// The outcomes.
const (
	RunEnded    OutcomeKind = "ended"    // the job has ended
	RunParked   OutcomeKind = "parked"   // it waits
	RunReleased OutcomeKind = "released" // it was given back, unfinished
	RunLost     OutcomeKind = "lost"     // another process has it, or the journal could not be written to the end
	RunLeft     OutcomeKind = "left"     // this process cannot run it; its lease runs out
)

// Why a run halts.
var (
	errParked    = errors.New("the job waits")
	errDrained   = errors.New("this process stops")
	errCancelled = errors.New("the job is cancelled")
	errDeadline  = errors.New("the job's deadline has passed")
)

type differs struct{ reason string }

func (d *differs) Error() string { return d.reason }

// Prepare makes a run of a claimed job. [Run.Go] must be called. When hard
// ends, handlers are cancelled and no write that failed is made again.
func (r *Runner) Prepare(hard context.Context, l Lease) *Run {
	run := &Run{
		crew: newCrew(), r: r, lease: l, over: make(chan struct{}),
		hard: hard, entries: map[string]*entry{},
	}
	run.asking, run.cease = context.WithCancelCause(hard)
	run.Renewed(l.Until)
	return run
}

// Lease is the lease the run stands on.
func (run *Run) Lease() Lease { return run.lease }

// Renewed tells the run that its lease holds longer.
func (run *Run) Renewed(until time.Time) {
	for {
		old := run.expiry.Load()
		if until.UnixNano() <= old || run.expiry.CompareAndSwap(old, until.UnixNano()) {
			return
		}
	}
}

// Until is until when the lease holds, as far as the run was told.
func (run *Run) Until() time.Time { return time.Unix(0, run.expiry.Load()) }

// Wake tells the run that a decision or a cancellation may have come.
func (run *Run) Wake() {
	run.mu.Lock()
	run.look = true
	run.mu.Unlock()
	run.rouse()
}

// Drain lets the run begin nothing more: what was begun is waited for, and the
// job is given back.
func (run *Run) Drain() { run.halt(errDrained) }

// Lose tells the run that its lease is lost.
func (run *Run) Lose() { run.halt(ErrLost) }

// Go runs the job until it ends, waits or is to be left alone.
func (run *Run) Go() Outcome {
	defer run.cease(nil)
	h, err := run.r.Journal.Load(run.write(), run.lease)
	switch {
	case lost(err):
		return Outcome{Kind: RunLost, Err: err}
	case err != nil:
		return Outcome{Kind: RunLeft, Err: err}
	}
	run.order = h.Job.Order
	run.mu.Lock()
	run.take(h)
	run.mu.Unlock()
	switch {
	case run.cancel != nil:
		return run.end(run.asCancelled())
	case run.tooLate():
		return run.end(tooLate)
	}
	flow, err := run.r.Flows.find(run.order)
	if err != nil {
		return Outcome{Kind: RunLeft, Err: err}
	}
	return run.drive(flow)
}

// returned is what a flow gave.
type returned struct {
	output []byte
	err    error
}

// drive runs the flow and does what is to be done beside it.
func (run *Run) drive(flow Flow) Outcome {
	done := make(chan returned, 1)
	go func() {
		got := returned{err: errVanished}
		defer func() { done <- got }()
		got.err = caught(func() (err error) {
			got.output, err = flow.Run(run, run.order)
			return err
		})
	}()
	timer := time.NewTimer(rarely)
	defer timer.Stop()
	stop := run.hard.Done()
	for {
		timer.Reset(run.attend())
		select {
		case got := <-done:
			return run.conclude(got)
		case <-run.poke:
		case <-timer.C:
		case <-stop:
			run.halt(errDrained)
			stop = nil
		}
	}
}

// halt lets every call of Steps say from now on that the run is over, for the
// first reason given.
func (run *Run) halt(why error) {
	if errors.Is(why, ErrLost) || errors.Is(why, errCancelled) || errors.Is(why, errDeadline) {
		run.cease(why)
	}
	run.mu.Lock()
	defer run.mu.Unlock()
	if run.halted == nil {
		run.halted = why
		close(run.over)
	}
}

// stopped gives the error that a call of Steps returns once the run has halted,
// nil before; the caller holds mu.
func (run *Run) stopped() error {
	if run.halted == nil {
		return nil
	}
	run.told = true
	return &stop{run.halted}
}

// stop is an ErrStop with its reason.
type stop struct{ why error }

func (s *stop) Error() string   { return ErrStop.Error() + ": " + s.why.Error() }
func (s *stop) Unwrap() []error { return []error{ErrStop, s.why} }

func (run *Run) tooLate() bool {
	return !run.order.Deadline.IsZero() && !run.r.Clock().Before(run.order.Deadline)
}

var tooLate = End{State: Failed, Code: LimitExceeded, Reason: errDeadline.Error()}

// conclude ends the run after its flow has returned.
func (run *Run) conclude(got returned) Outcome {
	run.mu.Lock()
	why, told := run.halted, run.told
	run.mu.Unlock()
	if p, ok := got.err.(*panicked); ok {
		run.r.Log.Error("a flow panicked", "job", run.lease.String(), "flow", run.order.Flow, "stack", string(p.stack))
	}
	var d *differs
	switch {
	case errors.As(why, &d):
		return run.end(End{State: Failed, Code: HistoryDiffers, Reason: d.reason})
	case errors.Is(why, errParked):
		return Outcome{Kind: RunParked, Wake: run.parked}
	case errors.Is(why, ErrLost):
		return Outcome{Kind: RunLost, Err: why}
	case why == nil || !told: // then the flow came to its end by itself
		return run.end(ended(got))
	case errors.Is(why, errDeadline):
		return run.end(tooLate)
	case errors.Is(why, errCancelled):
		return run.end(run.asCancelled())
	}
	return run.release()
}

func (run *Run) asCancelled() End {
	run.mu.Lock()
	defer run.mu.Unlock()
	e := End{State: Cancelled}
	if run.cancel != nil {
		e.Reason = run.cancel.Reason
	}
	return e
}

func ended(got returned) End {
	if p, ok := got.err.(*panicked); ok {
		return End{State: Failed, Code: Panicked, Reason: p.Error()}
	}
	return endOf(got.output, got.err)
}

// end writes the end of the job.
func (run *Run) end(e End) Outcome {
	if err := run.record("keep", run.r.Journal.Keep, nil); err != nil {
		return Outcome{Kind: RunLost, Err: err}
	}
	write := func(ctx context.Context) error { return run.r.Journal.End(ctx, run.lease, e, run.r.Clock()) }
	err := run.persist("end", write)
	if errors.Is(err, ErrCancelled) {
		e = run.asCancelled()
		err = run.persist("end", write)
	}
	if err != nil {
		return Outcome{Kind: RunLost, Err: err}
	}
	return Outcome{Kind: RunEnded, End: e}
}

func (run *Run) release() Outcome {
	if err := run.record("keep", run.r.Journal.Keep, nil); err != nil {
		return Outcome{Kind: RunLost, Err: err}
	}
	if err := run.r.Journal.Release(run.write(), run.lease); err != nil {
		return Outcome{Kind: RunLost, Err: err}
	}
	return Outcome{Kind: RunReleased}
}
