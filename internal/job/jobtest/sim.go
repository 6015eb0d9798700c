package jobtest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belay-run/belay/internal/job"
)

// sim is one run under simulation. Its loop is the only one that decides: it
// waits until all else sleeps, and lets one thing happen.
type sim struct {
	t       *testing.T
	play    play
	start   Start
	random  *rand.Rand
	journal *Memory
	id      job.ID
	began   time.Time
	people  sync.WaitGroup

	trouble   int  // how much may still go wrong
	outage    int  // how often the disk will fail in a row
	rough     bool // a process died or was held up: what it had begun is not known
	mayCancel bool
	only      verdict // if set, the one thing that goes wrong,
	onlyAt    int     // at this gate
	passed    int     // gates passed so far

	mu        sync.Mutex // guards what follows
	processes []*process
	gates     []*gate
	effects   map[string]int
	kept      map[string]bool     // keys whose answer is on disk, as an engine was told
	tries     int                 // of people
	accepted  map[string][]string // by key, who was told that their decision counts
	refused   map[string]bool     // people who were told that it does not
	deciding  map[string]bool
	cancelled bool // a cancellation was accepted
	told      []string
}

func newSim(t *testing.T, p play, start Start, random *rand.Rand) *sim {
	return &sim{
		t: t, play: p, start: start, random: random, journal: NewMemory(),
		id: job.ID{Tenant: "main", Job: "sim"}, began: time.Now(),
		effects: map[string]int{}, kept: map[string]bool{}, accepted: map[string][]string{}, refused: map[string]bool{}, deciding: map[string]bool{},
	}
}

// most is how many things may happen in one run.
const most = 20_000

func (s *sim) run() {
	o := job.Order{ID: s.id, Flow: s.play.flow.Name, Shape: s.play.flow.Shape, Input: json.RawMessage(`{}`), Created: time.Now()}
	if err := s.journal.Create(ctx, o); err != nil {
		s.t.Fatal(err)
	}
	for n := 0; ; n++ {
		synctest.Wait()
		if s.t.Failed() || s.ended() && !s.busy() {
			break
		}
		if n == most {
			s.t.Error("the job does not come to its end")
			break
		}
		s.happen()
	}
	s.cleanUp()
	s.judge()
}

func (s *sim) ended() bool {
	j, err := s.journal.Get(ctx, s.id)
	if err != nil {
		s.t.Error(err)
	}
	return j.State.Ended()
}

// busy says that somebody has still to hear what became of a decision.
func (s *sim) busy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.deciding) > 0
}

// happen lets one thing happen.
func (s *sim) happen() {
	s.mu.Lock()
	gates := s.passable()
	living := s.living()
	s.mu.Unlock()
	if len(living) == 0 || s.only == "" && len(living) < 2 && s.chance(100) && s.spend() {
		s.begin()
		return
	}
	if s.only == "" && s.chance(12) && s.trouble > 0 && s.disturb(gates, living) {
		return
	}
	switch {
	case s.person(living):
	case len(gates) > 0 && (s.only != "" || !s.chance(8)):
		s.let(gates[s.random.IntN(len(gates))], passes)
	case s.mayCancel && s.chance(10):
		s.mayCancel = false
		s.cancel(living)
	default:
		s.pause(len(gates) > 0)
	}
}

// chance is true once in n times.
func (s *sim) chance(n int) bool { return s.random.IntN(n) == 0 }

// spend takes one of the troubles, if one is left.
func (s *sim) spend() bool {
	if s.trouble == 0 {
		return false
	}
	s.trouble--
	return true
}

// passable gives the gates of processes that are not frozen, in an order that
// does not depend on who came first; the caller holds mu.
func (s *sim) passable() []*gate {
	var out []*gate
	for _, g := range s.gates {
		if !g.process.frozen {
			out = append(out, g)
		}
	}
	slices.SortStableFunc(out, func(a, b *gate) int {
		return cmp.Or(cmp.Compare(a.process.number, b.process.number), cmp.Compare(a.name, b.name))
	})
	return out
}

func (s *sim) living() []*process {
	return slices.DeleteFunc(slices.Clone(s.processes), func(p *process) bool { return !p.alive() })
}

// begin starts a process.
func (s *sim) begin() {
	s.mu.Lock()
	s.rough = s.rough || len(s.processes) > 0
	p := &process{s: s, number: len(s.processes) + 1}
	s.processes = append(s.processes, p)
	s.tell("%d: starts", p.number)
	jitter := rand.New(rand.NewPCG(uint64(p.number), s.random.Uint64()))
	s.mu.Unlock()
	var mu sync.Mutex
	engine, err := s.start(Host{
		Owner: fmt.Sprint(p.number), Journal: &guarded{p, s.journal}, Flows: job.NewFlows(s.play.flow),
		Handlers: job.Handlers{"effect": p.effect}, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Jitter: func(d time.Duration) time.Duration {
			mu.Lock()
			defer mu.Unlock()
			return d + time.Duration(jitter.Int64N(int64(d/5)+1))
		},
	})
	if err != nil {
		s.t.Error(err)
	}
	p.engine = engine
}

// let gives a gate its verdict.
func (s *sim) let(g *gate, v verdict) {
	if s.only != "" && v == passes {
		if s.passed++; s.passed-1 == s.onlyAt {
			v = s.only
		}
	}
	if s.outage > 0 && g.journal && v == passes {
		s.outage--
		v = fails
	}
	if !g.journal && (v == fails || v == failsAfter) {
		v = passes // disks fail at the journal only
	}
	s.mu.Lock()
	s.gates = slices.DeleteFunc(s.gates, func(other *gate) bool { return other == g })
	s.tell("%d: %s %s", g.process.number, g.name, v)
	s.mu.Unlock()
	if v == dies || v == diesAfter {
		s.kill(g.process)
	}
	g.verdict <- v
}

// kill ends a process: whatever it still does goes nowhere.
func (s *sim) kill(p *process) {
	s.rough = true
	s.mu.Lock()
	p.dead = true
	for _, g := range s.gates {
		if g.process == p {
			g.verdict <- dies
		}
	}
	s.gates = slices.DeleteFunc(s.gates, func(g *gate) bool { return g.process == p })
	s.mu.Unlock()
	at, now := context.WithCancel(ctx)
	now()
	s.people.Go(func() { _ = p.engine.Close(at) }) // only to let its goroutines end
}

// disturb lets something go wrong.
func (s *sim) disturb(gates []*gate, living []*process) bool {
	p := living[s.random.IntN(len(living))]
	var journal []*gate
	for _, g := range gates {
		if g.journal {
			journal = append(journal, g)
		}
	}
	switch kind := s.random.IntN(13); {
	case kind == 12:
		s.tell("the disk fails for a while")
		s.outage += 1 + s.random.IntN(40)
	case kind < 4 && len(gates) > 0:
		s.let(gates[s.random.IntN(len(gates))], []verdict{dies, diesAfter}[s.random.IntN(2)])
	case kind < 8 && len(journal) > 0:
		s.let(journal[s.random.IntN(len(journal))], []verdict{fails, failsAfter}[s.random.IntN(2)])
	case kind == 8:
		s.tell("the power fails")
		for _, p := range s.processes {
			if !p.dead {
				s.kill(p)
			}
		}
		s.journal.PowerFails()
	case kind == 9 && !p.frozen:
		s.tell("%d: freezes", p.number)
		s.rough = true
		if p.frozen = true; s.chance(2) {
			s.begin()
		}
	case kind == 10 && !p.frozen:
		s.tell("%d: is closed", p.number)
		p.ending, s.rough = true, true
		s.people.Go(func() { _ = p.engine.Close(ctx) }) // a process that freezes or dies meanwhile may say no
	default:
		return false
	}
	return s.spend()
}

// pause lets time pass. What is frozen thaws now and then, or when nothing else
// could go on.
func (s *sim) pause(gates bool) {
	steps := []time.Duration{time.Millisecond, 100 * time.Millisecond, time.Second, 20 * time.Second, time.Minute}
	d := steps[s.random.IntN(len(steps))]
	if s.only != "" {
		d = time.Second
	}
	if !gates || s.chance(8) {
		for _, p := range s.processes {
			if p.frozen {
				s.tell("%d: goes on", p.number)
				p.frozen = false
			}
		}
	}
	s.tell("%v pass", d)
	time.Sleep(d)
}

// person lets somebody decide a question, through a process or past it.
func (s *sim) person(living []*process) bool {
	all, err := s.journal.Pending(ctx, "main")
	if err != nil {
		s.t.Error(err)
	}
	all = slices.DeleteFunc(all, func(p job.Pending) bool { return s.deciding[p.Key] && !s.chance(20) })
	slices.SortFunc(all, func(a, b job.Pending) int { return cmp.Compare(a.Key, b.Key) })
	if len(all) == 0 || s.only == "" && !s.chance(15) {
		return false
	}
	q := all[s.random.IntN(len(all))]
	s.mu.Lock()
	s.tries++
	by := fmt.Sprintf("person %d", s.tries)
	s.deciding[q.Key] = true
	s.mu.Unlock()
	d := job.Decision{ID: s.id, Key: q.Key, Digest: q.Digest, Answer: job.Answer{Value: decisionOn(q.Question)}, By: by, At: time.Now()}
	var desk interface {
		Decide(context.Context, job.Decision) error
	} = s.journal
	if s.only != "" || !s.chance(3) {
		desk = living[s.random.IntN(len(living))].engine
	}
	s.people.Go(func() {
		err := desk.Decide(ctx, d)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.tell("%s on %s: %v", by, q.Key, err)
		delete(s.deciding, q.Key)
		switch {
		case err == nil:
			s.accepted[q.Key] = append(s.accepted[q.Key], by)
		case !errors.Is(err, errDisk) && !errors.Is(err, errDead):
			s.refused[by] = true
		}
	})
	return true
}

// cancel lets somebody cancel the job.
func (s *sim) cancel(living []*process) {
	engine := living[s.random.IntN(len(living))].engine
	s.people.Go(func() {
		err := engine.Cancel(ctx, s.id, job.Cancellation{At: time.Now(), By: "somebody"})
		s.mu.Lock()
		defer s.mu.Unlock()
		s.tell("cancelled: %v", err)
		s.cancelled = s.cancelled || err == nil
	})
}

// cleanUp ends what still lives.
func (s *sim) cleanUp() {
	rough := s.rough
	defer func() { s.rough = rough }() // this end does not count
	for _, p := range s.processes {
		if !p.dead {
			s.kill(p)
		}
	}
	s.people.Wait()
}

// judge holds the run to the promises.
func (s *sim) judge() {
	if s.t.Failed() {
		return
	}
	h, err := s.journal.History(ctx, s.id)
	if err != nil || h.Job.End == nil {
		s.t.Errorf("the job has no end: %+v, %v", h.Job, err)
		return
	}
	expired := s.judgeRecords(h)
	for key, n := range s.effects {
		if n > 1 && !s.rough {
			s.t.Errorf("%s was asked %d times, and no process died", key, n)
		}
	}
	switch end := h.Job.End; {
	case s.cancelled != (end.State == job.Cancelled) && (s.cancelled || h.Job.Cancel == nil):
		s.t.Errorf("the job ended %s; a cancellation was accepted: %v", end.State, s.cancelled)
	case end.State == job.Cancelled:
	case end.State != job.Completed:
		s.t.Errorf("the job failed: %s: %s", end.Code, end.Reason)
	case !expired && !bytes.Equal(end.Output, s.play.output):
		s.t.Errorf("the job ended with\n%s, undisturbed with\n%s", end.Output, s.play.output)
	}
	if again := job.Replay(s.play.flow, h); len(again.Differences) > 0 {
		s.t.Errorf("run again on its history the flow differs: %+v", again.Differences)
	}
}

// judgeRecords looks at each record, and says whether a deadline decided.
func (s *sim) judgeRecords(h job.History) (expired bool) {
	inputs := map[string]json.RawMessage{}
	seen := map[string]bool{}
	for _, r := range h.Records {
		name := fmt.Sprintf("%s %s %d", r.What, r.Key, r.Try)
		if seen[name] {
			s.t.Errorf("%s is recorded twice", name)
		}
		seen[name] = true
		switch r.What {
		case job.Begun:
			if r.Try == 1 {
				inputs[r.Key] = r.Input
			} else if !seen[fmt.Sprintf("%s %s %d", r.What, r.Key, r.Try-1)] {
				s.t.Errorf("try %d of %s is recorded, the one before is not", r.Try, r.Key)
			}
		case job.Answered:
			s.judgeAnswer(h, r, inputs[r.Key])
		case job.Decided:
			expired = expired || r.By == ""
			if s.refused[r.By] {
				s.t.Errorf("%s was told that the decision on %s does not count, and it does", r.By, r.Key)
			}
			for _, by := range s.accepted[r.Key] {
				if by != r.By {
					s.t.Errorf("%s was told that the decision on %s counts; on record is that of %q", by, r.Key, r.By)
				}
			}
		}
	}
	for key := range s.kept {
		if s.kept[key] && !seen[fmt.Sprintf("%s %s 0", job.Answered, key)] {
			s.t.Errorf("the answer to %s was on disk and is lost", key)
		}
	}
	for key := range s.accepted {
		if !seen[fmt.Sprintf("%s %s 0", job.Decided, key)] {
			s.t.Errorf("the decision on %s is lost", key)
		}
	}
	return expired
}

// judgeAnswer holds an answer to what the world must have said.
func (s *sim) judgeAnswer(h job.History, r job.Record, input json.RawMessage) {
	switch f := r.Answer.Failure; {
	case f == nil && !bytes.Equal(r.Answer.Value, valueOf(r.Key, input)):
		s.t.Errorf("%s has the answer %s", r.Key, r.Answer.Value)
	case f != nil && f.Kind == job.Unknown && !s.rough && h.Job.Cancel == nil:
		s.t.Errorf("%s is unknown, and no process died", r.Key)
	case f != nil && f.Kind == job.Unknown:
	case f != nil && (f.Kind != job.Stopped || h.Job.Cancel == nil):
		s.t.Errorf("%s has the failure %+v", r.Key, *f)
	}
}
