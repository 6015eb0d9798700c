package hook

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// Recorder is told of every hook that was asked, once its outcome is known: to
// log it, count it, put it into a trace. It is called from several goroutines
// and must not block.
type Recorder interface {
	Record(Run)
}

// RecorderFunc makes a function a [Recorder].
type RecorderFunc func(Run)

// Record calls f.
func (f RecorderFunc) Record(r Run) { f(r) }

// Engine holds the hooks of one agent (or one tenant's plugins) and asks them.
// Its set of hooks is swapped whole; a [Chain] that was taken goes on with the
// set it came from.
type Engine struct {
	recorder Recorder
	table    atomic.Pointer[table]
	switches sync.Mutex
	watching sync.WaitGroup
}

// table is one immutable set of hooks with its chains.
type table struct {
	hooks  []*Hook
	off    map[string]bool
	narrow bool // some hook has a match: chains depend on who asks
	chains map[*Point]*Chain
}

// NewEngine checks the hooks and returns an engine that asks them in the given
// order. recorder may be nil.
func NewEngine(recorder Recorder, hooks ...*Hook) (*Engine, error) {
	e := &Engine{recorder: recorder}
	if err := e.Swap(hooks...); err != nil {
		return nil, err
	}
	return e, nil
}

// Swap replaces the whole set of hooks. On an error the old set stays.
func (e *Engine) Swap(hooks ...*Hook) error {
	own := make([]*Hook, len(hooks))
	copy(own, hooks)
	if err := checkSet(own); err != nil {
		return err
	}
	e.switches.Lock()
	defer e.switches.Unlock()
	var off map[string]bool
	if old := e.table.Load(); old != nil {
		off = old.off
	}
	e.table.Store(newTable(own, off))
	return nil
}

// Switch turns off the hooks with the given names, and every other one on. A
// chain lists hooks that are off as [Chain.Disabled].
func (e *Engine) Switch(off map[string]bool) {
	e.switches.Lock()
	defer e.switches.Unlock()
	own := make(map[string]bool, len(off))
	for name, is := range off {
		own[name] = is
	}
	e.table.Store(newTable(e.table.Load().hooks, own))
}

func newTable(hooks []*Hook, off map[string]bool) *table {
	t := &table{hooks: hooks, off: off, chains: map[*Point]*Chain{}}
	for _, h := range hooks {
		t.narrow = t.narrow || len(h.Match.Tools)+len(h.Match.Agents) > 0
	}
	if !t.narrow {
		for _, p := range Points {
			t.chains[p] = NewChain(p, Who{}, hooks, t.isOff)
		}
	}
	return t
}

func (t *table) isOff(h *Hook) bool { return t.off[h.Name] }

// Hooks returns the engine's hooks in order. The caller must not write to it.
func (e *Engine) Hooks() []*Hook { return e.table.Load().hooks }

// Chain returns the hooks at point that see who, nil when nobody stands there.
func (e *Engine) Chain(point *Point, who Who) *Chain { return e.Pin().Chain(point, who) }

// Asker is whom a chain is run for: it orders the questions and names them in
// the trace.
type Asker struct {
	Key  string // conversation or job
	Turn string
}

// Run asks the whole chain: observers are handed the payload first, then the
// modify hooks decide one after another, then final observers see what goes on.
// It returns when the modify lane has ended; nothing waits for observers. A chain
// that holds for a person ends with Kind [Hold]; use the fold itself to go on
// after the decision.
func (e *Engine) Run(ctx context.Context, c *Chain, p Payload, who Asker) Result {
	if c == nil {
		return Result{Kind: Continue, Payload: p}
	}
	e.Watch(ctx, c.observe, p, who)
	s := Begin(c, p)
	runs := make([]Run, 0, len(c.modify))
	for s.Next() == NeedHook {
		if c.modify[s.At].Func != nil {
			s, runs = e.runFuncs(ctx, s, who, runs)
			continue
		}
		a := e.Ask(ctx, c.modify[s.At], s.Payload, who)
		var run Run
		s, run = s.Fold(a)
		runs = append(runs, e.record(run, who))
	}
	end := s.End
	if s.Next() == NeedPerson {
		end = Result{Kind: Hold, Payload: s.Payload, Changed: s.Changed}
	}
	end.Runs = runs
	if end.Kind == Continue {
		e.Watch(ctx, c.final, end.Payload, who)
	}
	return end
}

// Ask puts one payload to one hook and waits for its answer, which comes within
// the hook's limit and a grace. It neither folds nor records.
func (e *Engine) Ask(ctx context.Context, h *Hook, p Payload, who Asker) Answer {
	if h.Func != nil {
		return askFunc(ctx, h, p)
	}
	answers := make(chan Answer, 1)
	h.Host.Start(ctx, Question{Hook: h, Payload: p, Key: who.Key, Turn: who.Turn}, func(a Answer) { answers <- a })
	return <-answers
}

// Watch hands a payload to observers, in order, and does not wait for them. What
// becomes of them is recorded later; [Engine.Wait] waits for that. Their time is
// their own: they are not cancelled with ctx.
func (e *Engine) Watch(ctx context.Context, observers []*Hook, p Payload, who Asker) {
	for _, h := range observers {
		e.watching.Add(1)
		done := func(a Answer) {
			e.record(Watched(h, a), who)
			e.watching.Done()
		}
		ctx := context.WithoutCancel(ctx)
		if h.Host != nil {
			h.Host.Start(ctx, Question{Hook: h, Payload: p, Key: who.Key, Turn: who.Turn}, done)
			continue
		}
		go func() { done(askFunc(ctx, h, p)) }()
	}
}

// Record tells the recorder of a run that a driver of the fold made itself, and
// returns it with the asker's names.
func (e *Engine) Record(r Run, who Asker) Run { return e.record(r, who) }

func (e *Engine) record(r Run, who Asker) Run {
	r.Key, r.Turn = who.Key, who.Turn
	if e.recorder != nil {
		e.recorder.Record(r)
	}
	return r
}

// Wait waits until every observer that was handed a payload has answered, failed
// or run out of time.
func (e *Engine) Wait() { e.watching.Wait() }

// segment is a stretch of Go hooks run on one goroutine. One timer guards them
// all: when it fires, the owner looks whether the hook that was running still
// is.
type segment struct {
	mu    sync.Mutex
	state State
	runs  []Run
	since time.Time
	left  bool // the owner gave up on it
}

// runFuncs asks Go hooks until one is not, or the chain ends.
func (e *Engine) runFuncs(ctx context.Context, s State, who Asker, runs []Run) (State, []Run) {
	run, cancel := context.WithCancel(ctx)
	defer cancel()
	seg := &segment{state: s, runs: runs, since: time.Now()}
	done := make(chan struct{})
	go seg.work(run, e, who, done)
	look := s.chain.shortest(s.At) // often enough to meet every hook's limit
	timer := time.NewTimer(look)
	defer timer.Stop()
	for {
		select {
		case <-done:
			return seg.state, seg.runs
		case <-ctx.Done():
			return seg.giveUp(e, who, Failed(Cancelled, "%v", ctx.Err()))
		case <-timer.C:
			seg.mu.Lock()
			at := seg.state.At
			h := s.chain.modify[min(at, len(s.chain.modify)-1)]
			left := h.Limit - time.Since(seg.since)
			seg.mu.Unlock()
			if left > 0 {
				timer.Reset(min(left, look))
				continue
			}
			return seg.giveUp(e, who, Failed(Timeout, "no answer within %v", h.Limit))
		}
	}
}

// shortest returns the shortest limit of the modify hooks from at on.
func (c *Chain) shortest(at int) time.Duration {
	limit := c.modify[at].Limit
	for _, h := range c.modify[at:] {
		limit = min(limit, h.Limit)
	}
	return limit
}

// giveUp leaves the goroutine behind and counts the running hook as failed.
func (g *segment) giveUp(e *Engine, who Asker, a Answer) (State, []Run) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.state.Next() != NeedHook || g.state.chain.modify[g.state.At].Func == nil {
		return g.state, g.runs // it ended while the timer fired
	}
	g.left = true
	a.Took = time.Since(g.since)
	s, run := g.state.Fold(a)
	return s, append(g.runs, e.record(run, who))
}

func (g *segment) work(ctx context.Context, e *Engine, who Asker, done chan<- struct{}) {
	defer close(done)
	s := g.state
	for s.Next() == NeedHook && s.chain.modify[s.At].Func != nil {
		h := s.chain.modify[s.At]
		began := time.Now()
		a := call(ctx, h, s.Payload)
		a.Took = time.Since(began)
		next, run := s.Fold(a)
		g.mu.Lock()
		if g.left {
			g.mu.Unlock()
			return
		}
		g.state, g.since = next, began.Add(a.Took)
		g.runs = append(g.runs, e.record(run, who))
		g.mu.Unlock()
		s = next
	}
}

// call runs a Go hook; a panic is a crash.
func call(ctx context.Context, h *Hook, p Payload) (a Answer) {
	defer func() {
		if r := recover(); r != nil {
			a = Failed(Crash, "panic: %v", r)
			a.Failure.Traceback = string(debug.Stack())
		}
	}()
	v, err := h.Func(ctx, p)
	if err != nil {
		return Failed(Crash, "%v", err)
	}
	return Answer{Verdict: v}
}

// askFunc runs one Go hook within its limit.
func askFunc(ctx context.Context, h *Hook, p Payload) Answer {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	began := time.Now()
	answers := make(chan Answer, 1)
	go func() { answers <- call(ctx, h, p) }()
	timer := time.NewTimer(h.Limit)
	defer timer.Stop()
	var a Answer
	select {
	case a = <-answers:
	case <-timer.C:
		a = Failed(Timeout, "no answer within %v", h.Limit)
	case <-ctx.Done():
		a = Failed(Cancelled, "%v", fmt.Errorf("gave up: %w", ctx.Err()))
	}
	a.Took = time.Since(began)
	return a
}
