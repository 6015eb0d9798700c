package localjob_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belay-run/belay/internal/job"
	"github.com/belay-run/belay/internal/job/jobtest"
	"github.com/belay-run/belay/internal/localjob"
)

var ctx = context.Background()

// world is a journal that outlives its engines.
type world struct {
	*testing.T
	journal job.Journal
	flows   []job.Flow
	options localjob.Options
	log     bytes.Buffer
}

func inBubble(t *testing.T, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, journal: jobtest.NewMemory()}
		w.options.Handlers = job.Handlers{
			"echo": func(_ context.Context, c job.Call) (job.Answer, error) { return job.Answer{Value: c.Input}, nil },
			"slow": func(ctx context.Context, c job.Call) (job.Answer, error) {
				select {
				case <-time.After(time.Hour):
					return job.Answer{Value: json.RawMessage(`"slow"`)}, nil
				case <-ctx.Done():
					return job.Answer{}, ctx.Err()
				}
			},
		}
		w.flow("approve", func(s job.Steps, in job.Order) (json.RawMessage, error) {
			a, err := s.Await(job.Question{Key: "q", Kind: "approval", Input: in.Input})
			return a.Value, err
		})
		w.flow("day", func(s job.Steps, in job.Order) (json.RawMessage, error) {
			now, err := s.Now("now")
			if err != nil {
				return nil, err
			}
			a, err := s.Await(job.Question{Key: "q", Kind: "approval", Input: in.Input, Until: now.Add(24 * time.Hour)})
			if err != nil || a.Failure == nil {
				return a.Value, err
			}
			return nil, job.Fail("Refused", a.Failure.Message)
		})
		w.flow("slow", func(s job.Steps, in job.Order) (json.RawMessage, error) {
			a, err := job.Ask(s, job.Call{Key: "s", Kind: "slow", Input: in.Input})
			return a.Value, err
		})
		test(w)
	})
}

func (w *world) flow(name string, run func(job.Steps, job.Order) (json.RawMessage, error)) {
	w.flows = append(w.flows, job.Flow{Name: name, Shape: 1, Run: run})
}

func (w *world) start() *localjob.Engine {
	w.Helper()
	o := w.options
	o.Journal, o.Flows = w.journal, job.NewFlows(w.flows...)
	o.Logger = slog.New(slog.NewTextHandler(&w.log, nil))
	e, err := localjob.Start(o)
	if err != nil {
		w.Fatal(err)
	}
	return e
}

func (w *world) close(e *localjob.Engine) {
	w.Helper()
	if err := e.Close(ctx); err != nil {
		w.Error(err)
	}
}

// kill closes an engine at once.
func (w *world) kill(e *localjob.Engine) {
	w.Helper()
	at, now := context.WithCancel(ctx)
	now()
	_ = e.Close(at)
}

func (w *world) submit(e *localjob.Engine, flow string) job.ID {
	w.Helper()
	id, err := e.Submit(ctx, job.Order{ID: job.ID{Tenant: "main"}, Flow: flow, Input: json.RawMessage(`1`)})
	if err != nil {
		w.Fatal(err)
	}
	return id
}

func (w *world) get(id job.ID) job.Job {
	w.Helper()
	j, err := w.journal.Get(ctx, id)
	if err != nil {
		w.Fatal(err)
	}
	return j
}

func (w *world) pending(id job.ID) job.Pending {
	w.Helper()
	all, err := w.journal.Pending(ctx, id.Tenant)
	if err != nil {
		w.Fatal(err)
	}
	for _, p := range all {
		if p.ID == id {
			return p
		}
	}
	w.Fatalf("job %s asks nothing", id)
	return job.Pending{}
}

func (w *world) decision(id job.ID) job.Decision {
	w.Helper()
	p := w.pending(id)
	return job.Decision{ID: id, Key: p.Key, Digest: p.Digest, Answer: job.Answer{Value: json.RawMessage(`"yes"`)}, By: "ann"}
}

func (w *world) ends(e *localjob.Engine, id job.ID, want job.State) job.Job {
	w.Helper()
	j, err := e.Wait(ctx, id)
	if err != nil || j.State != want {
		w.Errorf("job %s: %s (%+v), %v; want %s", id, j.State, j.End, err, want)
	}
	return j
}

func TestADecisionResumesItsJobAtOnce(t *testing.T) {
	inBubble(t, func(w *world) {
		e := w.start()
		defer w.close(e)
		id := w.submit(e, "approve")
		synctest.Wait()
		if got := w.get(id); got.State != job.Waiting {
			t.Fatalf("%+v", got)
		}
		began := time.Now()
		if err := e.Decide(ctx, w.decision(id)); err != nil {
			t.Fatal(err)
		}
		j := w.ends(e, id, job.Completed)
		if took := time.Since(began); took > 0 || string(j.End.Output) != `"yes"` {
			t.Errorf("%s after %v", j.End.Output, took)
		}
		err := e.Decide(ctx, job.Decision{ID: id, Key: "q"})
		if !errors.Is(err, job.ErrEnded) || !strings.Contains(err.Error(), id.Job) {
			t.Errorf("after the end: %v", err)
		}
	})
}

func TestADecisionPastTheEngineIsFoundByThePoll(t *testing.T) {
	inBubble(t, func(w *world) {
		e := w.start()
		defer w.close(e)
		id := w.submit(e, "approve")
		synctest.Wait()
		d := w.decision(id)
		d.At = time.Now()
		if err := w.journal.Decide(ctx, d); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		w.ends(e, id, job.Completed)
		if took := time.Since(began); took > 40*time.Second {
			t.Errorf("found after %v", took)
		}
		id = w.submit(e, "approve")
		synctest.Wait()
		d = w.decision(id)
		d.At = time.Now()
		if err := w.journal.Decide(ctx, d); err != nil {
			t.Fatal(err)
		}
		e.Wake(id)
		synctest.Wait()
		if got := w.get(id); got.State != job.Completed {
			t.Errorf("told of it, it is %s", got.State)
		}
	})
}

func TestADeadlineIsKeptThroughRestarts(t *testing.T) {
	inBubble(t, func(w *world) {
		began := time.Now()
		e := w.start()
		id := w.submit(e, "day")
		for range 5 {
			time.Sleep(3 * time.Hour)
			w.close(e)
			time.Sleep(time.Hour)
			e = w.start()
		}
		defer func() { w.close(e) }()
		j := w.ends(e, id, job.Failed)
		if took := time.Since(began); took < 24*time.Hour || took > 24*time.Hour+time.Minute {
			t.Errorf("expired after %v", took)
		}
		if j.End.Code != "Refused" || !strings.HasPrefix(j.End.Reason, "nobody decided by 2000-01-02T00:00:00Z") {
			t.Errorf("%+v", j.End)
		}
	})
}

func TestADeadlineThatPassedWhileNothingRanCountsAsNo(t *testing.T) {
	inBubble(t, func(w *world) {
		e := w.start()
		id := w.submit(e, "day")
		synctest.Wait()
		d := w.decision(id)
		w.close(e)
		time.Sleep(48 * time.Hour)
		if err := e.Decide(ctx, d); !errors.Is(err, job.ErrExpired) {
			t.Errorf("too late a yes: %v", err)
		}
		e = w.start()
		defer w.close(e)
		w.ends(e, id, job.Failed)
	})
}

func TestACancellationReachesAStepAndClosesAQuestion(t *testing.T) {
	inBubble(t, func(w *world) {
		e := w.start()
		defer w.close(e)
		works, waits := w.submit(e, "slow"), w.submit(e, "approve")
		synctest.Wait()
		d := w.decision(waits)
		began := time.Now()
		for _, id := range []job.ID{works, waits} {
			if err := e.Cancel(ctx, id, job.Cancellation{By: "ann", Reason: "not needed"}); err != nil {
				t.Fatal(err)
			}
			if j := w.ends(e, id, job.Cancelled); j.End.Reason != "not needed" || j.Cancel.By != "ann" {
				t.Errorf("%+v", j)
			}
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("it took %v", took)
		}
		if err := e.Decide(ctx, d); !errors.Is(err, job.ErrEnded) {
			t.Errorf("a late yes: %v", err)
		}
		if err := e.Cancel(ctx, works, job.Cancellation{}); !errors.Is(err, job.ErrEnded) {
			t.Errorf("cancelled twice: %v", err)
		}
	})
}

func TestCloseLetsStepsEndAndGivesTheJobBack(t *testing.T) {
	inBubble(t, func(w *world) {
		w.options.Grace = 2 * time.Hour
		w.flow("two", func(s job.Steps, in job.Order) (json.RawMessage, error) {
			for _, key := range []string{"a", "b"} {
				if _, err := job.Ask(s, job.Call{Key: key, Kind: "slow", Once: true}); err != nil {
					return nil, err
				}
			}
			return nil, nil
		})
		e := w.start()
		id := w.submit(e, "two")
		synctest.Wait()
		began := time.Now()
		w.close(e)
		if took := time.Since(began); took != time.Hour {
			t.Errorf("closed after %v, want when the step has ended", took)
		}
		h, err := w.journal.History(ctx, id)
		if err != nil || len(h.Records) != 2 || h.Records[1].What != job.Answered {
			t.Errorf("%+v, %v", h.Records, err)
		}
		e = w.start() // at once, though the lease would still hold
		w.ends(e, id, job.Completed)
		w.close(e)
		if _, err := e.Submit(ctx, job.Order{Flow: "two"}); !errors.Is(err, localjob.ErrClosed) {
			t.Errorf("submit after close: %v", err)
		}
		if _, err := e.Wait(ctx, w.submitted("two")); !errors.Is(err, localjob.ErrClosed) {
			t.Errorf("wait after close: %v", err)
		}
		w.close(e) // twice
	})
}

// submitted makes a job past any engine.
func (w *world) submitted(flow string) job.ID {
	w.Helper()
	id := job.ID{Tenant: "main", Job: "past " + flow}
	if err := w.journal.Create(ctx, job.Order{ID: id, Flow: flow, Shape: 1, Created: time.Now()}); err != nil {
		w.Fatal(err)
	}
	return id
}

func TestCloseCancelsStepsAfterTheGrace(t *testing.T) {
	inBubble(t, func(w *world) {
		for name, c := range map[string]struct {
			ctx   func() (context.Context, context.CancelFunc)
			grace time.Duration
			want  time.Duration
		}{
			"the grace":      {func() (context.Context, context.CancelFunc) { return ctx, func() {} }, time.Minute, time.Minute},
			"the context":    {func() (context.Context, context.CancelFunc) { return context.WithTimeout(ctx, time.Second) }, time.Minute, time.Second},
			"no grace given": {func() (context.Context, context.CancelFunc) { return ctx, func() {} }, -1, 0},
		} {
			w.options.Grace = c.grace
			e := w.start()
			id := w.submit(e, "slow")
			synctest.Wait()
			began := time.Now()
			at, cancel := c.ctx()
			if err := e.Close(at); err != nil {
				t.Error(err)
			}
			cancel()
			if took := time.Since(began); took != c.want {
				t.Errorf("%s: closed after %v, want %v", name, took, c.want)
			}
			h, err := w.journal.History(ctx, id)
			if err != nil || len(h.Records) != 1 {
				t.Errorf("%s: %+v, %v", name, h.Records, err)
			}
			e = w.start()
			w.ends(e, id, job.Completed) // asked again
			w.close(e)
		}
	})
}

func TestCloseSaysWhatDoesNotStop(t *testing.T) {
	inBubble(t, func(w *world) {
		letGo := make(chan struct{})
		w.options.Handlers["deaf"] = func(context.Context, job.Call) (job.Answer, error) {
			<-letGo
			return job.Answer{}, nil
		}
		w.flow("deaf", func(s job.Steps, _ job.Order) (json.RawMessage, error) {
			_, err := job.Ask(s, job.Call{Key: "k", Kind: "deaf"})
			return nil, err
		})
		e := w.start()
		w.submit(e, "deaf")
		synctest.Wait()
		if err := e.Close(ctx); err == nil || !strings.Contains(err.Error(), "steps did not stop") {
			t.Errorf("closed with %v", err)
		}
		close(letGo)
	})
}

func TestAnotherProcessGoesOnWhenTheLeaseRanOut(t *testing.T) {
	inBubble(t, func(w *world) {
		first := w.start()
		id := w.submit(first, "slow")
		synctest.Wait()
		w.kill(first) // it gives the job back; so take it in the name of one that died
		leases, err := w.journal.Claim(ctx, job.Claim{Owner: "gone", Now: time.Now(), Until: time.Now().Add(30 * time.Second), Limit: 1})
		if err != nil || len(leases) != 1 {
			t.Fatal(leases, err)
		}
		began := time.Now()
		second := w.start()
		defer w.close(second)
		w.ends(second, id, job.Completed)
		if took := time.Since(began); took < time.Hour+30*time.Second || took > time.Hour+time.Minute {
			t.Errorf("it took %v", took)
		}
	})
}

// dying is a journal that fails from some time on.
type dying struct {
	job.Journal
	dead atomic.Bool
}

var errDisk = errors.New("the disk is full")

func (d *dying) fails() error {
	if d.dead.Load() {
		return errDisk
	}
	return nil
}

func (d *dying) Begin(ctx context.Context, l job.Lease, r []job.Record) error {
	return errors.Join(d.fails(), d.unless(func() error { return d.Journal.Begin(ctx, l, r) }))
}

func (d *dying) Keep(ctx context.Context, l job.Lease, r []job.Record) error {
	return errors.Join(d.fails(), d.unless(func() error { return d.Journal.Keep(ctx, l, r) }))
}

func (d *dying) Park(ctx context.Context, l job.Lease, p job.Parking) error {
	return errors.Join(d.fails(), d.unless(func() error { return d.Journal.Park(ctx, l, p) }))
}

func (d *dying) Claim(ctx context.Context, c job.Claim) ([]job.Lease, error) {
	if err := d.fails(); err != nil {
		return nil, err
	}
	return d.Journal.Claim(ctx, c)
}

func (d *dying) Renew(ctx context.Context, until time.Time, l []job.Lease) ([]job.Lease, error) {
	if err := d.fails(); err != nil {
		return nil, err
	}
	return d.Journal.Renew(ctx, until, l)
}

func (d *dying) unless(f func() error) error {
	if d.dead.Load() {
		return nil
	}
	return f()
}

func TestAFullDiskHoldsAJobUpAndLosesNothing(t *testing.T) {
	inBubble(t, func(w *world) {
		disk := &dying{Journal: w.journal}
		w.journal = disk
		var asked atomic.Int32
		w.options.Handlers["fill"] = func(context.Context, job.Call) (job.Answer, error) {
			asked.Add(1)
			disk.dead.Store(true) // before the answer is kept
			return job.Answer{Value: json.RawMessage(`"kept"`)}, nil
		}
		w.flow("fill", func(s job.Steps, _ job.Order) (json.RawMessage, error) {
			var all []job.Answer
			for _, key := range []string{"k", "l"} {
				a, err := job.Ask(s, job.Call{Key: key, Kind: "fill", Once: true})
				if err != nil {
					return nil, err
				}
				all = append(all, job.Answer{Value: a.Value, Failure: a.Failure, Tries: a.Tries})
			}
			return json.Marshal(all)
		})
		e := w.start()
		id := w.submit(e, "fill")
		for range 2 { // for much longer than a lease
			time.Sleep(time.Hour)
			if got := w.get(id); got.State != job.Running {
				t.Errorf("on a full disk it is %s", got.State)
			}
			disk.dead.Store(false)
		}
		began := time.Now()
		j := w.ends(e, id, job.Completed)
		if got := string(j.End.Output); got != `[{"value":"kept","tries":1},{"value":"kept","tries":1}]` || asked.Load() != 2 {
			t.Errorf("output %s, asked %d times", got, asked.Load())
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("with room again it took %v", took)
		}
		w.close(e)
		said := w.log.String()
		if strings.Count(said, "the journal fails") != 2 || !strings.Contains(said, "takes the job's writes again") || strings.Contains(said, "kept\"") {
			t.Errorf("logged:\n%s", said)
		}
	})
}

func TestAnEngineWhoseDiskFailsTakesNoJobsUntilItWorks(t *testing.T) {
	inBubble(t, func(w *world) {
		disk := &dying{Journal: w.journal}
		disk.dead.Store(true)
		w.journal = disk
		e := w.start()
		id := w.submit(e, "slow")
		time.Sleep(time.Minute)
		disk.dead.Store(false)
		w.ends(e, id, job.Completed)
		w.close(e)
		said := w.log.String()
		if strings.Count(said, "no jobs can be taken") != 1 || strings.Count(said, "jobs can be taken again") != 1 {
			t.Errorf("logged:\n%s", said)
		}
	})
}

func TestNoMoreJobsRunAtOnceThanMay(t *testing.T) {
	inBubble(t, func(w *world) {
		w.options.Jobs = 3
		var now, most atomic.Int32
		w.options.Handlers["count"] = func(context.Context, job.Call) (job.Answer, error) {
			most.Store(max(most.Load(), now.Add(1)))
			time.Sleep(time.Minute)
			now.Add(-1)
			return job.Answer{}, nil
		}
		w.flow("count", func(s job.Steps, _ job.Order) (json.RawMessage, error) {
			_, err := job.Ask(s, job.Call{Key: "k", Kind: "count"})
			return nil, err
		})
		e := w.start()
		defer w.close(e)
		began := time.Now()
		var ids []job.ID
		for range 10 {
			ids = append(ids, w.submit(e, "count"))
		}
		for range 20 { // those that wait take no place
			w.submit(e, "approve")
		}
		for _, id := range ids {
			w.ends(e, id, job.Completed)
		}
		if took := time.Since(began); most.Load() != 3 || took != 4*time.Minute {
			t.Errorf("%d at once, %v; want 3 and 4m", most.Load(), took)
		}
		synctest.Wait()
		all, err := w.journal.Pending(ctx, "main")
		if err != nil || len(all) != 20 {
			t.Errorf("%d wait, %v", len(all), err)
		}
	})
}

func TestAJobOfAnotherVersionIsLeftAloneAndToldOnce(t *testing.T) {
	inBubble(t, func(w *world) {
		id := w.submitted("gone")
		e := w.start()
		time.Sleep(time.Hour)
		if got := w.get(id); got.State != job.Running {
			t.Errorf("it is %s", got.State)
		}
		w.close(e)
		if n := strings.Count(w.log.String(), "cannot run the job"); n != 1 {
			t.Errorf("told %d times:\n%s", n, w.log.String())
		}
		w.flow("gone", func(job.Steps, job.Order) (json.RawMessage, error) { return nil, nil })
		e = w.start()
		w.ends(e, id, job.Completed)
		w.close(e)
	})
}

func TestRecordsAreToldOnceTheyAreKept(t *testing.T) {
	inBubble(t, func(w *world) {
		var mu sync.Mutex
		var told []string
		w.options.Kept = func(_ job.ID, records []job.Record) {
			mu.Lock()
			defer mu.Unlock()
			for _, r := range records {
				told = append(told, fmt.Sprintf("%s %s", r.What, r.Key))
			}
		}
		e := w.start()
		id := w.submit(e, "day")
		synctest.Wait()
		if err := e.Decide(ctx, w.decision(id)); err != nil {
			t.Fatal(err)
		}
		w.ends(e, id, job.Completed)
		w.close(e)
		if got := strings.Join(told, ", "); got != "timed now, asked q, decided q" {
			t.Errorf("told: %s", got)
		}
	})
}

func TestWhatAnEngineIsStartedWithIsChecked(t *testing.T) {
	if _, err := localjob.Start(localjob.Options{}); err == nil {
		t.Error("it runs without a journal")
	}
	inBubble(t, func(w *world) {
		e := w.start()
		defer w.close(e)
		if _, err := e.Submit(ctx, job.Order{Flow: "nobody"}); err == nil || !strings.Contains(err.Error(), `no flow "nobody"`) {
			t.Errorf("%v", err)
		}
		at, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		if _, err := e.Wait(at, w.submit(e, "approve")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		if _, err := e.Wait(ctx, job.ID{Job: "nobody"}); !errors.Is(err, job.ErrNoJob) {
			t.Errorf("%v", err)
		}
	})
}
