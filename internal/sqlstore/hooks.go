package sqlstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/belay-run/belay/internal/audit"
	"github.com/belay-run/belay/internal/sqlstore/rows"
)

// HookStat counts what a hook did. In [Store.AddHookStats] it is what is to be
// added.
type HookStat struct {
	Tenant, Agent, Hook string

	Asked       int64     // how often it was asked
	Changed     int64     // how often it changed the payload
	Rejected    int64     // how often it rejected
	Retried     int64     // how often it asked for a retry
	Failed      int64     // how often it failed, timeouts among them
	Timeouts    int64     // how often it ran out of time
	LastFired   time.Time // when it was last asked; zero for never
	LastFailure time.Time // when it last failed; zero for never
}

// plus adds the counts of two stats of a hook.
func (h HookStat) plus(o HookStat) HookStat {
	o.Asked += h.Asked
	o.Changed += h.Changed
	o.Rejected += h.Rejected
	o.Retried += h.Retried
	o.Failed += h.Failed
	o.Timeouts += h.Timeouts
	o.LastFired = later(h.LastFired, o.LastFired)
	o.LastFailure = later(h.LastFailure, o.LastFailure)
	return o
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (h HookStat) params() rows.AddHookStatParams {
	return rows.AddHookStatParams{
		Tenant: h.Tenant, Agent: h.Agent, Hook: h.Hook,
		Asked: h.Asked, Changed: h.Changed, Rejected: h.Rejected, Retried: h.Retried,
		Failed: h.Failed, Timeouts: h.Timeouts,
		LastFired: nanos(h.LastFired), LastFailure: nanos(h.LastFailure),
	}
}

// AddHookStats adds to the counts. Like trace lines they are on disk a little
// later.
func (s *Store) AddHookStats(deltas []HookStat) error {
	if s.writer == nil {
		return ErrReadOnly
	}
	if len(deltas) == 0 {
		return nil
	}
	if err := s.writer.add(nil, deltas); err != nil {
		return fmt.Errorf("count what hooks did: %w", err)
	}
	return nil
}

// HookStats returns the counts of an agent's hooks by name. Counts handed over
// before are in them.
func (s *Store) HookStats(ctx context.Context, tenant, agent string) ([]HookStat, error) {
	if err := s.Flush(ctx); err != nil && !errors.Is(err, ErrClosed) {
		return nil, fmt.Errorf("read the counts of hooks: %w", err)
	}
	found, err := s.reader.ListHookStats(ctx, rows.ListHookStatsParams{Tenant: tenant, Agent: agent})
	if err != nil {
		return nil, fmt.Errorf("read the counts of hooks: %w", explain(s.path, err))
	}
	all := make([]HookStat, len(found))
	for i, r := range found {
		all[i] = HookStat{
			Tenant: r.Tenant, Agent: r.Agent, Hook: r.Hook,
			Asked: r.Asked, Changed: r.Changed, Rejected: r.Rejected, Retried: r.Retried,
			Failed: r.Failed, Timeouts: r.Timeouts,
			LastFired: fromNanos(r.LastFired), LastFailure: fromNanos(r.LastFailure),
		}
	}
	return all, nil
}

// HookSwitch is one disabling or enabling of a hook.
type HookSwitch struct {
	ID                  int64 // grows with every switch; set by the store
	Tenant, Agent, Hook string
	Disabled            bool
	Until               time.Time // when a disabled hook is enabled again by itself; zero for never
	By                  string    // who did it
	Reason              string
	At                  time.Time // when; set by the store
}

// InForce says whether the switch keeps its hook from being asked now.
func (h HookSwitch) InForce(now time.Time) bool {
	return h.Disabled && (h.Until.IsZero() || h.Until.After(now))
}

// SetHookSwitch records that a hook is disabled or enabled, and returns when
// that is on disk. It may be called on an attached store too, beside the owner,
// who sees it by [Store.WatchHookSwitches].
func (s *Store) SetHookSwitch(ctx context.Context, sw HookSwitch) (HookSwitch, error) {
	if sw.Hook == "" {
		return HookSwitch{}, errors.New("switch a hook: name the hook, as `belay hooks` lists it")
	}
	sw.At = s.clock()
	insert := func(ctx context.Context, q *rows.Queries) (err error) {
		sw.ID, err = q.InsertHookSwitch(ctx, rows.InsertHookSwitchParams{
			Tenant: sw.Tenant, Agent: sw.Agent, Hook: sw.Hook, Disabled: oneIf(sw.Disabled),
			Until: nanos(sw.Until), Actor: sw.By, Reason: sw.Reason, At: nanos(sw.At),
		})
		if err != nil {
			return err
		}
		return record(ctx, q, sw.At, sw.fact())
	}
	var err error
	if s.writer != nil {
		err = s.writer.do(&write{apply: func(ctx context.Context, b *batch) error { return insert(ctx, b.q) }})
	} else {
		err = s.asGuest(ctx, insert)
	}
	if err != nil {
		return HookSwitch{}, fmt.Errorf("switch hook %s: %w", sw.Hook, err)
	}
	return sw, nil
}

// fact is the switch for the audit record, without its reason, which is a text.
func (h HookSwitch) fact() audit.Fact {
	f := audit.Fact{Tenant: h.Tenant, Actor: cmp.Or(h.By, "unknown"), Action: audit.HookEnabled, Subject: h.Hook, Data: audit.Data{"agent": h.Agent}}
	if h.Disabled {
		f.Action = audit.HookDisabled
		if !h.Until.IsZero() {
			f.Data["until"] = h.Until.UTC().Format(time.RFC3339)
		}
	}
	return f
}

// asGuest makes a small change beside the owner, on a connection for it alone.
func (s *Store) asGuest(ctx context.Context, change func(context.Context, *rows.Queries) error) (err error) {
	db, err := connect(s.dir, guestPragmas)
	if err != nil {
		return err
	}
	defer func() { err = explain(s.path, errors.Join(err, db.Close())) }()
	syncCheaply()
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	// What ends before COMMIT is undone with the connection.
	if _, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	if err := change(ctx, rows.New(conn)); err != nil {
		return err
	}
	_, err = conn.ExecContext(ctx, "COMMIT")
	return err
}

func oneIf(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// HookSwitches returns the switches of an agent that keep a hook from being
// asked now, by name.
func (s *Store) HookSwitches(ctx context.Context, tenant, agent string) ([]HookSwitch, error) {
	found, err := s.reader.ListHookSwitchesInForce(ctx, rows.ListHookSwitchesInForceParams{
		Tenant: tenant, Agent: agent, Now: nanos(s.clock()),
	})
	if err != nil {
		return nil, fmt.Errorf("read which hooks are disabled: %w", explain(s.path, err))
	}
	return switches(found), nil
}

// HookSwitchHistory returns every switch of an agent's hooks, oldest first.
func (s *Store) HookSwitchHistory(ctx context.Context, tenant, agent string) ([]HookSwitch, error) {
	found, err := s.reader.ListHookSwitches(ctx, rows.ListHookSwitchesParams{Tenant: tenant, Agent: agent})
	if err != nil {
		return nil, fmt.Errorf("read the switches of hooks: %w", explain(s.path, err))
	}
	return switches(found), nil
}

func switches(found []rows.HookSwitch) []HookSwitch {
	all := make([]HookSwitch, len(found))
	for i, r := range found {
		all[i] = HookSwitch{
			ID: r.ID, Tenant: r.Tenant, Agent: r.Agent, Hook: r.Hook, Disabled: r.Disabled == 1,
			Until: fromNanos(r.Until), By: r.Actor, Reason: r.Reason, At: fromNanos(r.At),
		}
	}
	return all
}

// HookSwitchVersion is the number of the newest switch of any hook: a cheap
// question whether anything changed.
func (s *Store) HookSwitchVersion(ctx context.Context) (int64, error) {
	version, err := s.reader.GetHookSwitchVersion(ctx)
	if err != nil {
		return 0, fmt.Errorf("read the newest switch of a hook: %w", explain(s.path, err))
	}
	return version, nil
}

// WatchHookSwitches calls changed with the switches in force, at once and after
// every change: one made here or by another process, or one that ran out. It
// looks at each tick and returns when ctx ends; a look that fails is logged and
// made again at the next tick.
func (s *Store) WatchHookSwitches(ctx context.Context, tenant, agent string, tick <-chan time.Time, changed func([]HookSwitch)) {
	var seen int64 = -1
	var inForce []HookSwitch
	failing := false
	for {
		version, now, err := s.look(ctx, tenant, agent, seen, inForce)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !failing:
			s.log.Error("cannot see which hooks are disabled; will try again", "error", err)
		case err == nil && (seen < 0 || !slices.Equal(now, inForce)):
			changed(slices.Clone(now))
		}
		failing = err != nil
		if err == nil {
			seen, inForce = version, now
		}
		select {
		case <-ctx.Done():
			return
		case <-tick:
		}
	}
}

// look reads the switches again only when something has changed.
func (s *Store) look(ctx context.Context, tenant, agent string, seen int64, known []HookSwitch) (int64, []HookSwitch, error) {
	version, err := s.HookSwitchVersion(ctx)
	if err != nil {
		return 0, nil, err
	}
	now := s.clock()
	ranOut := slices.ContainsFunc(known, func(h HookSwitch) bool { return !h.InForce(now) })
	if version == seen && !ranOut {
		return seen, known, nil
	}
	all, err := s.HookSwitches(ctx, tenant, agent)
	return version, all, err
}
