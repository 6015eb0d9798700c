package hook

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
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
	swapping sync.Mutex
	watching tally
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

// Swap replaces the whole set of hooks; what is switched off by name stays off.
// On an error the old set stays.
func (e *Engine) Swap(hooks ...*Hook) error {
	own, err := ready(hooks)
	if err != nil {
		return err
	}
	e.swapping.Lock()
	defer e.swapping.Unlock()
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
	e.swapping.Lock()
	defer e.swapping.Unlock()
	e.table.Store(newTable(e.table.Load().hooks, maps.Clone(off)))
}

// Hooks returns the engine's hooks in order. The caller must not write to it.
func (e *Engine) Hooks() []*Hook { return slices.Clip(e.table.Load().hooks) }

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
// It returns when the modify lane has ended; nothing waits for observers.
//
// A chain that holds for a person ends with Kind [Hold]; use the fold itself to
// go on after the decision. When ctx ends, the hook that runs is cancelled, no
// other one is asked, and the result rejects with a [Cancelled] failure whatever
// the policy.
func (e *Engine) Run(ctx context.Context, c *Chain, p Payload, who Asker) Result {
	if c == nil {
		return Result{Kind: Continue, Payload: p}
	}
	e.Watch(ctx, c.observe, p, who)
	end := Result{Kind: Continue, Payload: p}
	if len(c.modify) > 0 {
		end = e.decide(ctx, c, p, who)
	}
	if end.Kind == Continue {
		e.Watch(ctx, c.final, end.Payload, who)
	}
	return end
}

// decide runs the modify lane.
func (e *Engine) decide(ctx context.Context, c *Chain, p Payload, who Asker) Result {
	d := &drive{State: Begin(c, p), runs: make([]Run, 0, len(c.modify))}
	for d.next() == NeedHook {
		told := len(d.runs)
		switch h := d.hook(); {
		case ctx.Err() != nil:
			d.end(Reject, nil).failed(gaveUp(ctx))
		case h.Func != nil:
			d.runFuncs(ctx)
		default:
			a := e.Ask(ctx, h, d.Payload, who)
			d.keep(&a)
		}
		for i := told; i < len(d.runs); i++ {
			e.tell(&d.runs[i], who)
		}
	}
	if d.next() == NeedPerson {
		open := d.Open()
		d.End = Result{Kind: Hold, Payload: d.Payload, Changed: d.Changed, Reason: reasons(open), Hook: c.named(open[len(open)-1].Hook)}
	}
	d.End.Runs = d.runs
	return d.End
}

// Ask puts one payload to one hook and waits for its answer, which comes within
// the hook's limit and a grace, or when ctx ends: then what the hook says counts
// no more. It neither folds nor records.
func (e *Engine) Ask(ctx context.Context, h *Hook, p Payload, who Asker) Answer {
	answers := make(chan Answer, 1)
	h.host().Start(ctx, Question{Hook: h, Payload: p, Key: who.Key, Turn: who.Turn}, func(a Answer) {
		select {
		case answers <- a:
		default: // a second answer counts for nothing
		}
	})
	a := <-answers
	if ctx.Err() != nil && (a.Failure == nil || a.Failure.Kind != Cancelled) {
		a.Failure = gaveUp(ctx)
	}
	return a
}

// Watch hands a payload to observers, in order, and does not wait for them. What
// becomes of them is recorded later; [Engine.Wait] waits for that. Their time is
// their own: they are not cancelled with ctx.
func (e *Engine) Watch(ctx context.Context, observers []*Hook, p Payload, who Asker) {
	if len(observers) == 0 {
		return
	}
	ctx = context.WithoutCancel(ctx)
	for _, h := range observers {
		e.watching.add()
		var once sync.Once
		h.host().Start(ctx, Question{Hook: h, Payload: p, Key: who.Key, Turn: who.Turn}, func(a Answer) {
			once.Do(func() {
				e.Record(Watched(h, a), who)
				e.watching.done()
			})
		})
	}
}

// Record tells the recorder of a run, and returns it with the asker's names. Run
// and Watch do so themselves; it is for those who drive the fold.
func (e *Engine) Record(r Run, who Asker) Run {
	e.tell(&r, who)
	return r
}

func (e *Engine) tell(r *Run, who Asker) {
	r.Key, r.Turn = who.Key, who.Turn
	if e.recorder != nil {
		e.recorder.Record(*r)
	}
}

// Wait waits until every observer that was handed a payload has answered, failed
// or run out of time.
func (e *Engine) Wait() { e.watching.wait() }

// tally counts what is under way. Unlike a sync.WaitGroup it may be waited for
// while more begins.
type tally struct {
	mu   sync.Mutex
	n    int
	none sync.Cond
}

func (t *tally) add() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n++
}

func (t *tally) done() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n--; t.n == 0 && t.none.L != nil {
		t.none.Broadcast()
	}
}

func (t *tally) wait() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.none.L = &t.mu
	for t.n > 0 {
		t.none.Wait()
	}
}
