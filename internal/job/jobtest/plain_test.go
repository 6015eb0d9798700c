package jobtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belay-run/belay/internal/job"
)

// plain is the least engine there is: it looks for jobs and decisions once a
// second, and runs them.
type plain struct {
	*guarded
	h      Host
	runner *job.Runner
	stop   context.CancelFunc
	hard   context.Context
	all    sync.WaitGroup
}

func startPlain(h Host) (Engine, error) {
	e := &plain{guarded: h.Journal.(*guarded), h: h, runner: &job.Runner{
		Journal: h.Journal, Flows: h.Flows, Handlers: h.Handlers, Clock: time.Now, Log: h.Log,
		Pause: func(int) time.Duration { return h.Jitter(time.Second) }, Lease: 30 * time.Second, Grace: time.Second,
	}}
	e.hard, e.stop = context.WithCancel(context.Background())
	e.all.Go(e.loop)
	return e, nil
}

func (e *plain) loop() {
	for e.hard.Err() == nil {
		now := time.Now()
		leases, err := e.h.Journal.Claim(e.hard, job.Claim{Owner: e.h.Owner, Now: now, Until: now.Add(30 * time.Second), Limit: 1})
		if err == nil && len(leases) > 0 {
			e.work(leases[0])
		}
		e.sleep()
	}
}

func (e *plain) work(l job.Lease) {
	run := e.runner.Prepare(e.hard, l)
	over := make(chan struct{})
	e.all.Go(func() {
		defer close(over)
		run.Go()
	})
	for {
		select {
		case <-over:
			return
		case <-time.After(e.h.Jitter(time.Second)):
			run.Wake()
			until := time.Now().Add(30 * time.Second)
			if lost, err := e.h.Journal.Renew(e.hard, until, []job.Lease{l}); err == nil && len(lost) == 0 {
				run.Renewed(until)
			}
		}
	}
}

func (e *plain) sleep() {
	select {
	case <-e.hard.Done():
	case <-time.After(e.h.Jitter(time.Second)):
	}
}

// Close stops at once, whatever ctx says.
func (e *plain) Close(context.Context) error {
	e.stop()
	e.all.Wait()
	e.runner.Strays.Wait()
	return nil
}

func TestThePlainEngineUnderSimulation(t *testing.T) { Simulate(t, 100, startPlain) }

// A seed gives the same run. Only when a limit and an answer come in the very same
// instant does the runtime choose between them, so a rare seed may differ.
func TestASeedGivesTheSameRun(t *testing.T) {
	var differ []string
	for range 20 {
		seed := rand.Uint64()
		first := disturbed(t, seed, startPlain, false)
		again := disturbed(t, seed, startPlain, false)
		if !slices.Equal(first, again) {
			differ = append(differ, fmt.Sprintf("seed %d: %s", seed, firstDifference(first, again)))
		}
	}
	if len(differ) > 2 {
		t.Fatal(strings.Join(differ, "\n"))
	}
}

func firstDifference(first, again []string) string {
	for i := range first {
		if i >= len(again) || first[i] != again[i] {
			return fmt.Sprintf("line %d is %q, and again %q", i, first[i], append(again, "")[min(i, len(again))])
		}
	}
	return fmt.Sprintf("again it went on with %q", again[len(first)])
}
