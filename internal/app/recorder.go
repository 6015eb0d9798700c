package app

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"time"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/internal/conversation"
	"github.com/belay-run/belay/internal/loop"
	"github.com/belay-run/belay/internal/pyhost"
	"github.com/belay-run/belay/internal/sqlstore"
	"github.com/belay-run/belay/internal/telemetry"
	"github.com/belay-run/belay/internal/turn"
)

// recorder is told of every hook that was asked: it logs and counts it, and puts
// observers, who end when they like, into the trace.
type recorder struct {
	app   *App
	agent string
}

// Record implements [hook.Recorder].
func (r *recorder) Record(run hook.Run) {
	r.app.seen.Load().Record(run)
	r.app.stats.add(r.agent, run)
	if run.Lane == hook.Observe && run.Turn != "" {
		r.app.observed(run)
	}
}

// TurnTrace is the JSON of one line of a conversation's trace.
type TurnTrace struct {
	Status string        `json:"status,omitempty"`
	Why    string        `json:"why,omitempty"`
	Began  time.Time     `json:"began"`
	Took   time.Duration `json:"took_ns,omitempty"`
	Lines  []loop.Line   `json:"lines"`
}

// keepTrace puts the trace of a turn into the store and into telemetry.
func (a *App) keepTrace(ctx context.Context, r turn.Report) {
	if r.Turn == "" {
		return
	}
	a.seen.Load().Turn(ctx, r)
	a.appendTrace(r.Sender, r.Turn, r.Began, TurnTrace{Status: r.Status, Why: r.Why, Began: r.Began, Took: r.Took, Lines: r.Lines})
}

// observed puts an observer's run into the trace.
func (a *App) observed(run hook.Run) {
	now := a.cfg.Clock()
	a.appendTrace(run.Key, run.Turn, now, TurnTrace{Began: now, Lines: []loop.Line{
		{Kind: "observer", At: now, Point: run.Point, Outcome: run.Said, Runs: []hook.Run{run}, Took: run.Took}}})
}

func (a *App) appendTrace(sender, turnID string, at time.Time, t TurnTrace) {
	if a.deleted.before(sender, turnID) {
		return // an observer of a conversation that was deleted meanwhile
	}
	data, err := json.Marshal(t)
	if err == nil {
		err = a.store.AppendTrace(context.Background(), a.id(sender), []conversation.Trace{{Turn: turnID, At: at, Data: data}})
	}
	if err != nil {
		a.cfg.Logger.Error("a trace could not be kept", "turn", turnID, "error", err)
	}
}

// stats gathers the counts of hooks and hands them to the store now and then.
type stats struct {
	app *App
	mu  sync.Mutex
	sum map[string]*sqlstore.HookStat
}

func newStats(a *App) *stats { return &stats{app: a, sum: map[string]*sqlstore.HookStat{}} }

func (s *stats) add(agent string, run hook.Run) {
	now := s.app.cfg.Clock()
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.sum[run.Name]
	if h == nil {
		h = &sqlstore.HookStat{Tenant: s.app.cfg.Tenant, Agent: agent, Hook: run.Name}
		s.sum[run.Name] = h
	}
	h.Asked++
	h.LastFired = now
	if len(run.Changed) > 0 {
		h.Changed++
	}
	switch {
	case run.Failure != nil:
		h.Failed++
		h.LastFailure = now
		if run.Failure.Kind == hook.Timeout {
			h.Timeouts++
		}
	case run.Dropped != "":
	case run.Said == hook.Reject.String():
		h.Rejected++
	case run.Said == hook.Retry.String():
		h.Retried++
	}
}

// flush hands the counts to the store.
func (s *stats) flush() {
	s.mu.Lock()
	var deltas []sqlstore.HookStat
	for _, h := range s.sum {
		deltas = append(deltas, *h)
	}
	s.sum = map[string]*sqlstore.HookStat{}
	s.mu.Unlock()
	if len(deltas) == 0 {
		return
	}
	if err := s.app.store.AddHookStats(deltas); err != nil {
		s.app.cfg.Logger.Error("the counts of hooks could not be kept", "error", err)
	}
}

// applySwitches turns off the hooks that the store says are off now.
func (a *App) applySwitches(ctx context.Context, v *version) {
	a.stats.flush()
	switches, err := a.store.HookSwitches(ctx, a.cfg.Tenant, v.turn.ID)
	if err != nil {
		if ctx.Err() == nil {
			a.cfg.Logger.Error("the switches of hooks cannot be read", "error", err)
		}
		return
	}
	now := a.cfg.Clock()
	off := map[string]sqlstore.HookSwitch{}
	for _, s := range switches {
		if s.InForce(now) {
			off[s.Hook] = s
		}
	}
	v.switchTo(off, a.cfg.Logger)
}

// workerEvent counts what happens to workers.
func (a *App) workerEvent(e pyhost.Event) {
	if t := a.seen.Load(); t != nil && e.Kind == pyhost.WorkerReplaced {
		t.WorkerReplaced(causeOf(e))
	}
}

// causeOf names why a worker was replaced.
func causeOf(e pyhost.Event) telemetry.Cause {
	switch {
	case strings.Contains(e.Why, "written to its pipe"):
		return telemetry.CauseProtocol
	case strings.Contains(e.Why, "blocked"), strings.Contains(e.Why, "kept it from answering"):
		return telemetry.CauseBlocked
	}
	return telemetry.CauseDied
}
