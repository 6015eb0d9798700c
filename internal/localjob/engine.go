package localjob

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/belay-run/belay/internal/job"
)

// Options are what an engine runs with. Journal, Flows and Handlers must be set;
// the zero value of any other field is what its comment says.
type Options struct {
	Journal  job.Journal
	Flows    job.Flows
	Handlers job.Handlers
	// Owner names this process in leases. "": its host and number.
	Owner string
	// Clock is the time. Nil: time.Now.
	Clock func() time.Time
	// NewID makes the ids of jobs that are made without one. Nil: ULIDs.
	NewID func() string
	// Jitter spreads waits. Nil: up to a fifth longer.
	Jitter func(time.Duration) time.Duration
	// Logger takes what goes wrong, never inputs or answers. Nil: nothing is logged.
	Logger *slog.Logger
	// Kept is told of records once they are kept, decisions too, without their
	// numbers and perhaps twice of the same; it must not block. Nil: nobody is
	// told.
	Kept func(job.ID, []job.Record)
	// Jobs is how many jobs may run at once, waiting ones aside. 0: 100.
	Jobs int
	// Lease is how long a job stays taken by a process that is gone. 0: 30 s.
	Lease time.Duration
	// Poll is how long the engine looks for nothing when nothing happens here.
	// 0: 15 s.
	Poll time.Duration
	// Grace is how long Close lets steps run before it cancels them. 0: 10 s;
	// less than 0: not at all.
	Grace time.Duration
	// Patience is how long a step may go on after it was cancelled or its time
	// was up; then the job goes on without it. 0: 5 s.
	Patience time.Duration
}

func (o Options) withDefaults() Options {
	if o.Owner == "" {
		host, _ := os.Hostname() // a name for people; "" does as well
		o.Owner = fmt.Sprintf("%s/%d", host, os.Getpid())
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.NewID == nil {
		o.NewID = func() string { return ulid.Make().String() }
	}
	if o.Jitter == nil {
		o.Jitter = func(d time.Duration) time.Duration { return d + rand.N(d/5+1) }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Jobs = cmp.Or(o.Jobs, 100)
	o.Lease = cmp.Or(o.Lease, 30*time.Second)
	o.Poll = cmp.Or(o.Poll, 15*time.Second)
	o.Grace = cmp.Or(o.Grace, 10*time.Second)
	o.Patience = cmp.Or(o.Patience, 5*time.Second)
	return o
}

// Pauses between tries of a write that fails.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = 5 * time.Second
)

func (o Options) pause(n int) time.Duration {
	return o.Jitter(min(firstPause<<min(n-1, 10), lastPause))
}

// ErrClosed says that the engine takes nothing any more.
var ErrClosed = errors.New("this engine is closed")

// Engine runs jobs until it is closed.
type Engine struct {
	o      Options
	runner *job.Runner
	hard   context.Context // ends when handlers must stop
	stopIt context.CancelFunc

	kick    chan struct{} // has room for one: look for jobs
	closing chan struct{}
	looped  chan struct{} // closed when no more jobs are claimed
	enough  chan struct{} // closed to renew no more leases
	renewed chan struct{} // closed when that is so
	running sync.WaitGroup

	mu       sync.Mutex
	runs     map[job.ID]*job.Run
	watchers map[job.ID][]chan struct{}
	left     map[job.ID]string // why a job cannot be run here, as it was logged
	failing  int               // how often in a row the journal failed when jobs were looked for

	done   chan struct{} // closed when all is closed,
	closed error         // with this
}

// Start starts an engine. It goes on at once with every unfinished job that no
// living process has.
func Start(o Options) (*Engine, error) {
	if o.Journal == nil || o.Flows == nil || o.Handlers == nil {
		return nil, errors.New("start the job engine: it needs a journal, flows and handlers")
	}
	if o.Jobs < 0 || o.Lease < 0 || o.Poll < 0 || o.Patience < 0 {
		return nil, errors.New("start the job engine: jobs, lease, poll and patience cannot be negative")
	}
	o = o.withDefaults()
	e := &Engine{
		o:    o,
		kick: make(chan struct{}, 1), closing: make(chan struct{}),
		looped: make(chan struct{}), enough: make(chan struct{}), done: make(chan struct{}), renewed: make(chan struct{}),
		runs: map[job.ID]*job.Run{}, watchers: map[job.ID][]chan struct{}{}, left: map[job.ID]string{},
		runner: &job.Runner{
			Journal: o.Journal, Flows: o.Flows, Handlers: o.Handlers, Clock: o.Clock,
			Pause: o.pause, Lease: o.Lease, Grace: o.Patience, Log: o.Logger, Kept: o.Kept,
		},
	}
	e.hard, e.stopIt = context.WithCancel(context.Background())
	e.rouse()
	go e.loop()
	go e.renew()
	return e, nil
}

// rouse lets the loop look for jobs.
func (e *Engine) rouse() {
	select {
	case e.kick <- struct{}{}:
	default:
	}
}

// loop claims jobs and runs them.
func (e *Engine) loop() {
	defer close(e.looped)
	timer := time.NewTimer(e.o.Poll)
	defer timer.Stop()
	for {
		select {
		case <-e.closing:
			return
		case <-e.kick:
		case <-timer.C:
		}
		timer.Reset(e.round())
	}
}

// atOnce is how many jobs are claimed in one transaction.
const atOnce = 50

// round claims what is ready and says when to look again.
func (e *Engine) round() time.Duration {
	free := e.free()
	for ; free > 0; free = e.free() {
		if err := e.hold(); err != nil {
			return e.fails(err)
		}
		now := e.o.Clock()
		if held := e.held(); !held.IsZero() && !now.Before(held) {
			return e.o.pause(1)
		}
		want := min(free, atOnce)
		leases, err := e.o.Journal.Claim(e.hard, job.Claim{Owner: e.o.Owner, Now: now, Until: now.Add(e.o.Lease), Limit: want})
		if err != nil {
			return e.fails(err)
		}
		for _, l := range leases {
			e.start(l)
		}
		if len(leases) < want {
			break
		}
	}
	wake, err := e.o.Journal.NextWake(e.hard)
	if err != nil {
		return e.fails(err)
	}
	e.works()
	poll := e.o.Jitter(e.o.Poll)
	if wake.IsZero() || free == 0 { // the end of a run comes with a kick
		return poll
	}
	return max(0, min(poll, wake.Sub(e.o.Clock())))
}

// held is when the first lease of the jobs that run here runs out; zero when none
// does.
func (e *Engine) held() (first time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, run := range e.runs {
		if until := run.Until(); first.IsZero() || until.Before(first) {
			first = until
		}
	}
	return first
}

// hold renews the leases here in time: after a long trouble with the disk this
// engine must not take its own jobs for those of a process that died.
func (e *Engine) hold() error {
	if held := e.held(); held.IsZero() || e.o.Clock().Add(e.o.Lease/2).Before(held) {
		return nil
	}
	return e.renewAll()
}

// fails says that jobs could not be looked for, and when to try again.
func (e *Engine) fails(err error) time.Duration {
	e.failing++
	if e.failing == 1 {
		e.o.Logger.Error("no jobs can be taken; will try again", "error", err)
	}
	return e.o.pause(e.failing)
}

func (e *Engine) works() {
	if e.failing > 0 {
		e.o.Logger.Info("jobs can be taken again", "tries", e.failing)
	}
	e.failing = 0
}

// free is how many more jobs may run.
func (e *Engine) free() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.o.Jobs - len(e.runs)
}

// start runs a job that was claimed.
func (e *Engine) start(l job.Lease) {
	run := e.runner.Prepare(e.hard, l)
	e.mu.Lock()
	if old := e.runs[l.ID]; old != nil {
		old.Lose() // its lease ran out without our noticing
	}
	e.runs[l.ID] = run
	e.mu.Unlock()
	e.running.Go(func() {
		e.settle(run, run.Go())
	})
}

// settle looks after what a run came to.
func (e *Engine) settle(run *job.Run, got job.Outcome) {
	id := run.Lease().ID
	e.mu.Lock()
	if e.runs[id] == run {
		delete(e.runs, id)
	}
	watchers := e.watchers[id]
	delete(e.watchers, id)
	why := ""
	if got.Kind == job.RunLeft {
		why = got.Err.Error()
	}
	told := e.left[id] == why
	if e.left[id] = why; why == "" {
		delete(e.left, id)
	}
	e.mu.Unlock()
	for _, w := range watchers {
		close(w)
	}
	switch log := e.o.Logger.With("job", id.String()); {
	case got.Kind == job.RunLeft && !told:
		log.Error("this process cannot run the job, which stays as it is", "error", got.Err)
	case got.Kind == job.RunLost:
		log.Warn("this process does not go on with the job", "error", got.Err)
	case got.Kind == job.RunEnded:
		log.Info("a job has ended", "state", got.End.State, "code", got.End.Code)
	}
	e.rouse()
}

// renew keeps the leases of the jobs that run here.
func (e *Engine) renew() {
	defer close(e.renewed)
	tick := time.NewTicker(e.o.Lease / 3)
	defer tick.Stop()
	for {
		select {
		case <-e.enough:
			return
		case <-tick.C:
			if err := e.renewAll(); err != nil {
				e.o.Logger.Error("leases could not be renewed; will try again", "error", err)
			}
		}
	}
}

func (e *Engine) renewAll() error {
	e.mu.Lock()
	runs := make(map[job.Lease]*job.Run, len(e.runs))
	leases := make([]job.Lease, 0, len(e.runs))
	for _, run := range e.runs {
		l := run.Lease()
		runs[l] = run
		leases = append(leases, l)
	}
	e.mu.Unlock()
	if len(leases) == 0 {
		return nil
	}
	slices.SortFunc(leases, func(a, b job.Lease) int { return cmp.Compare(a.String(), b.String()) })
	until := e.o.Clock().Add(e.o.Lease)
	lost, err := e.o.Journal.Renew(e.hard, until, leases)
	if err != nil {
		return fmt.Errorf("renew %d leases: %w", len(leases), err)
	}
	for _, l := range lost {
		runs[l].Lose() // often it has just ended, and this changes nothing
		delete(runs, l)
	}
	for _, run := range runs {
		run.Renewed(until)
	}
	return nil
}

// Close lets steps that run end, for the grace and as long as ctx lives, then
// cancels them, and gives their jobs back. The error says what did not stop; such
// steps are cut off by the end of the process.
func (e *Engine) Close(ctx context.Context) error {
	hurry := context.AfterFunc(ctx, e.stopIt)
	defer hurry()
	e.mu.Lock()
	first := !e.isClosed()
	if first {
		close(e.closing)
	}
	e.mu.Unlock()
	if first {
		e.closed = e.close()
		close(e.done)
	}
	<-e.done
	return e.closed
}

func (e *Engine) close() error {
	<-e.looped
	e.mu.Lock()
	for _, run := range e.runs {
		run.Drain()
	}
	e.mu.Unlock()
	runs := ended(&e.running)
	grace := time.NewTimer(max(0, e.o.Grace))
	defer grace.Stop()
	select {
	case <-runs:
	case <-grace.C:
	case <-e.hard.Done():
	}
	e.stopIt()
	err := e.within(runs, "jobs")
	close(e.enough)
	<-e.renewed
	return errors.Join(err, e.within(ended(&e.runner.Strays), "steps"))
}

// ended gives a channel that is closed when the group has ended.
func ended(group *sync.WaitGroup) <-chan struct{} {
	all := make(chan struct{})
	go func() {
		group.Wait()
		close(all)
	}()
	return all
}

// within waits for what was cancelled, a little longer than a run waits for its
// steps.
func (e *Engine) within(all <-chan struct{}, what string) error {
	patience := time.NewTimer(e.o.Patience + time.Second)
	defer patience.Stop()
	select {
	case <-all:
		return nil
	case <-patience.C:
		return fmt.Errorf("close the job engine: some %s did not stop when they were cancelled; what they do now is not recorded", what)
	}
}
