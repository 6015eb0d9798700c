package jobtest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belay-run/belay/internal/job"
)

// Engine is a process that runs jobs, as the simulation sees it.
type Engine interface {
	Decide(context.Context, job.Decision) error
	Cancel(context.Context, job.ID, job.Cancellation) error
	// Close stops it; when ctx has ended, at once.
	Close(ctx context.Context) error
}

// Host is what an engine under simulation runs with. Leases must last half a
// minute.
type Host struct {
	Owner    string
	Journal  job.Journal
	Flows    job.Flows
	Handlers job.Handlers
	Jitter   func(time.Duration) time.Duration
	Log      *slog.Logger
}

// Start starts an engine.
type Start func(Host) (Engine, error)

// Environment variables of [Simulate].
const (
	seedVariable = "BELAY_SIM_SEED" // run this seed alone
	runsVariable = "BELAY_SIM_RUNS" // how many seeds to run
)

// Simulate runs jobs in an engine under everything that can go wrong, from random
// seeds, and holds each run to the promises of durable jobs:
//
//   - it comes to the end that an undisturbed run comes to,
//   - an answer on record is never asked for again,
//   - no effect that may happen once happens twice,
//   - a decision that was accepted is the one that counts, and no other is,
//   - every answer belongs to the call that asked for it,
//   - a cancellation that was accepted cancels,
//   - the flow, run again on the history, does the same.
//
// Each of the kills, on every step, is tried by itself as well.
func Simulate(t *testing.T, runs int, start Start) {
	if s := os.Getenv(seedVariable); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("%s: %v", seedVariable, err)
		}
		disturbed(t, seed, start, true)
		return
	}
	if s := os.Getenv(runsVariable); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatalf("%s: %v", runsVariable, err)
		}
		runs = n
	}
	for _, p := range plays {
		t.Run("each kill of "+p.flow.Name, func(t *testing.T) { killEverywhere(t, p, start) })
	}
	first := rand.Uint64()
	t.Logf("%d runs from seed %d on; one alone: %s=… go test -run %s", runs, first, seedVariable, t.Name())
	for i := range runs {
		if disturbed(t, first+uint64(i), start, false); t.Failed() {
			return
		}
	}
}

// disturbed is one run under the troubles of a seed.
func disturbed(t *testing.T, seed uint64, start Start, verbose bool) (told []string) {
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(seed, seed))
		s := newSim(t, plays[random.IntN(len(plays))], start, random)
		s.trouble = random.IntN(10)
		s.mayCancel = random.IntN(6) == 0
		s.run()
		if told = s.told; t.Failed() || verbose {
			t.Logf("%s=%d (flow %s):\n%s", seedVariable, seed, s.play.flow.Name, strings.Join(s.told, "\n"))
		}
	})
	return told
}

// killEverywhere runs a flow with one kill, before or after its nth step, for
// every n.
func killEverywhere(t *testing.T, p play, start Start) {
	for _, verdict := range []verdict{dies, diesAfter, fails, failsAfter} {
		for n, more := 0, true; more; n++ {
			synctest.Test(t, func(t *testing.T) {
				s := newSim(t, p, start, rand.New(rand.NewPCG(1, uint64(n))))
				s.only, s.onlyAt = verdict, n
				s.run()
				if more = s.passed > n; t.Failed() {
					t.Logf("%v at step %d:\n%s", verdict, n, strings.Join(s.told, "\n"))
				}
			})
			if t.Failed() {
				return
			}
		}
	}
}

// verdict is what becomes of something that an engine does outside itself.
type verdict string

const (
	passes     verdict = "passes"
	dies       verdict = "dies before"    // the process dies and it did not happen
	diesAfter  verdict = "dies after"     // it happened, and the process dies
	fails      verdict = "fails"          // the disk did not take it
	failsAfter verdict = "fails too late" // the disk said so, and took it all the same
)

var (
	errDead = errors.New("this process is dead")
	errDisk = errors.New("the disk is full")
)

// gate is where an engine waits before it does something outside itself.
type gate struct {
	process *process
	name    string
	journal bool // it is a write or read of the journal
	verdict chan verdict
}

// process is one life of an engine.
type process struct {
	s      *sim
	number int
	engine Engine
	dead   bool
	frozen bool // nothing of it goes on for a while
	ending bool // it closes in good order
}

func (p *process) alive() bool { return !p.dead && !p.ending }

// pass waits at a gate until the simulation lets it through.
func (p *process) pass(name string, journal bool) verdict {
	p.s.mu.Lock()
	if p.dead {
		p.s.mu.Unlock()
		return dies
	}
	g := &gate{p, name, journal, make(chan verdict, 1)}
	p.s.gates = append(p.s.gates, g)
	p.s.mu.Unlock()
	return <-g.verdict
}

// do does something at the journal, or what the verdict makes of it.
func (p *process) do(name string, f func() error) error {
	switch p.pass(name, true) {
	case dies:
		return errDead
	case diesAfter:
		_ = f() // nobody hears of it
		return errDead
	case fails:
		return errDisk
	case failsAfter:
		_ = f() // likewise
		return errDisk
	}
	return f()
}

// effect is the handler of all calls: a world that counts what happens in it.
func (p *process) effect(ctx context.Context, c job.Call) (job.Answer, error) {
	a, _ := job.AttemptOf(ctx)
	p.s.asked(p, c)
	switch p.pass(fmt.Sprintf("effect %s, try %d,", c.Key, a.Try), false) {
	case dies, diesAfter:
		return job.Answer{}, errDead
	}
	if took := lengthy(c); took > 0 {
		select {
		case <-time.After(took):
		case <-ctx.Done():
			return job.Answer{}, ctx.Err()
		}
	}
	return job.Answer{Value: valueOf(c.Key, c.Input)}, nil
}

// lengthy is how long an effect takes.
func lengthy(c job.Call) time.Duration {
	return time.Duration(len(c.Key)%4) * 300 * time.Millisecond
}

// asked notes that a handler was asked.
func (s *sim) asked(p *process, c job.Call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.dead {
		return
	}
	s.effects[c.Key]++
	if c.Once && s.effects[c.Key] > 1 {
		s.t.Errorf("%s may happen once and is asked a second time", c.Key)
	}
	if s.kept[c.Key] || s.recorded(c.Key) {
		s.t.Errorf("%s has an answer on record and is asked again", c.Key)
	}
}

// acknowledged notes answers of which an engine was told that they are on disk.
func (s *sim) acknowledged(records []job.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range records {
		s.kept[r.Key] = s.kept[r.Key] || r.What == job.Answered
	}
}

func (s *sim) recorded(key string) bool {
	h, err := s.journal.History(ctx, s.id)
	if err != nil {
		return false
	}
	for _, r := range h.Records {
		if r.What == job.Answered && r.Key == key {
			return true
		}
	}
	return false
}

func (s *sim) tell(format string, args ...any) {
	s.told = append(s.told, fmt.Sprintf("%9.3fs ", time.Since(s.began).Seconds())+fmt.Sprintf(format, args...))
}
