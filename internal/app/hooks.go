package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/internal/agent"
	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/pyhost"
	"github.com/belay-run/belay/internal/sqlstore"
	"github.com/belay-run/belay/internal/vault"
)

// HookRow is one hook of an agent: where it stands, and what it did.
type HookRow struct {
	Name, Point, Lane, File, OnFailure string
	Final                              bool
	Line                               int
	Limit                              time.Duration
	sqlstore.HookStat
	Off *sqlstore.HookSwitch // set while it is off
}

// State says whether the hook is asked now.
func (r HookRow) State() string {
	if r.Off == nil {
		return "on"
	}
	s := "off"
	if !r.Off.Until.IsZero() {
		s += " until " + r.Off.Until.Local().Format("15:04:05")
	}
	s += " by " + r.Off.By
	if r.Off.Reason != "" {
		s += ": " + r.Off.Reason
	}
	return s
}

// ListHooks loads the folder's hooks and what the data folder knows of them. It
// needs no ownership of the data folder: a service may run beside it.
func ListHooks(ctx context.Context, cfg Config) ([]HookRow, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	l, err := read(ctx, cfg, pyhost.Check, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = l.close(context.WithoutCancel(ctx)) }() // nothing was done that could be lost
	if l.host == nil || l.failed() {
		return nil, &FindingsError{l.findings}
	}
	stats, off, err := hookState(ctx, cfg, l.spec.ID)
	if err != nil {
		return nil, err
	}
	place := map[string]int{}
	for i, p := range hook.Points {
		place[p.Name] = i
	}
	engine, err := hook.NewEngine(nil, l.host.Hooks()...)
	if err != nil {
		return nil, err
	}
	var rows []HookRow
	for _, h := range engine.Hooks() {
		r := HookRow{Name: h.Name, Point: h.Point.Name, Lane: string(h.Lane), File: h.File, Line: h.Line, Limit: h.Limit, Final: h.Final,
			OnFailure: string(h.OnFailure), HookStat: stats[h.Name]}
		if s, is := off[h.Name]; is {
			r.Off = &s
		}
		rows = append(rows, r)
	}
	sort.SliceStable(rows, func(i, j int) bool { return place[rows[i].Point] < place[rows[j].Point] })
	return rows, nil
}

// hookState reads counts and switches from the data folder, when there is one.
func hookState(ctx context.Context, cfg Config, agentID string) (map[string]sqlstore.HookStat, map[string]sqlstore.HookSwitch, error) {
	stats, off := map[string]sqlstore.HookStat{}, map[string]sqlstore.HookSwitch{}
	store, err := sqlstore.Attach(ctx, cfg.DataFolder(), sqlstore.Options{Logger: cfg.Logger, Clock: cfg.Clock})
	if errors.Is(err, fs.ErrNotExist) {
		return stats, off, nil
	}
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = store.Close() }() // it was only read
	all, err := store.HookStats(ctx, cfg.Tenant, agentID)
	if err != nil {
		return nil, nil, err
	}
	for _, s := range all {
		stats[s.Hook] = s
	}
	switches, err := store.HookSwitches(ctx, cfg.Tenant, agentID)
	if err != nil {
		return nil, nil, err
	}
	for _, s := range switches {
		if s.InForce(cfg.Clock()) {
			off[s.Hook] = s
		}
	}
	return stats, off, nil
}

// Switch turns a hook on or off.
type Switch struct {
	Hook   string // its name, or the function's alone when only one hook has it
	On     bool
	For    time.Duration
	By     string
	Reason string
}

// SwitchHook records a switch; a service that runs on the folder follows within
// a second.
func SwitchHook(ctx context.Context, cfg Config, s Switch) (sqlstore.HookSwitch, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return sqlstore.HookSwitch{}, err
	}
	if _, err := os.Stat(filepath.Join(cfg.Dir, agent.AgentFile)); err != nil {
		return sqlstore.HookSwitch{}, fmt.Errorf("%s is no agent's folder: it has no %s; name the folder with --dir", cfg.Dir, agent.AgentFile)
	}
	spec, _ := agent.Read(cfg.Dir)
	name, err := fullName(ctx, cfg, s.Hook)
	if err != nil {
		return sqlstore.HookSwitch{}, err
	}
	store, err := attachOrMake(ctx, cfg)
	if err != nil {
		return sqlstore.HookSwitch{}, err
	}
	change := sqlstore.HookSwitch{Tenant: cfg.Tenant, Agent: spec.ID, Hook: name, Disabled: !s.On, By: s.By, Reason: s.Reason}
	if !s.On && s.For > 0 {
		change.Until = cfg.Clock().Add(s.For)
	}
	done, err := store.SetHookSwitch(ctx, change)
	return done, errors.Join(err, store.Close())
}

// HookHistory returns every switch of the agent's hooks, oldest first.
func HookHistory(ctx context.Context, cfg Config) (_ []sqlstore.HookSwitch, err error) {
	if cfg, err = cfg.withDefaults(); err != nil {
		return nil, err
	}
	if err := noAgent(cfg.Dir); err != nil {
		return nil, err
	}
	spec, _ := agent.Read(cfg.Dir)
	store, err := sqlstore.Attach(ctx, cfg.DataFolder(), sqlstore.Options{Logger: cfg.Logger, Clock: cfg.Clock})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	return store.HookSwitchHistory(ctx, cfg.Tenant, spec.ID)
}

// noAgent gives the findings of a folder that is not an agent's at all, before
// anything is made in it.
func noAgent(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, agent.AgentFile)); err == nil {
		return nil
	}
	if _, findings := agent.Read(dir); finding.HasErrors(findings) {
		return &FindingsError{findings}
	}
	return nil
}

// attachOrMake opens the data folder beside its owner, and makes it first when
// nobody has.
func attachOrMake(ctx context.Context, cfg Config) (*sqlstore.Store, error) {
	o := sqlstore.Options{Logger: cfg.Logger, Clock: cfg.Clock}
	store, err := sqlstore.Attach(ctx, cfg.DataFolder(), o)
	if !errors.Is(err, fs.ErrNotExist) {
		return store, err
	}
	if err := os.MkdirAll(cfg.DataFolder(), 0o700); err != nil {
		return nil, fmt.Errorf("make the data folder: %w", err)
	}
	if o.Vault, err = vault.Open(cfg.DataFolder(), cfg.KeyFile); err != nil {
		return nil, err
	}
	return sqlstore.Open(ctx, cfg.DataFolder(), o)
}

// fullName finds the hook that a person means. The hook may be the very one that
// keeps the agent from loading in order, so findings do not matter here.
func fullName(ctx context.Context, cfg Config, said string) (string, error) {
	l, err := read(ctx, cfg, pyhost.Check, nil)
	if err != nil {
		return "", err
	}
	defer func() { _ = l.close(context.WithoutCancel(ctx)) }()
	if l.host == nil {
		return "", &FindingsError{l.findings}
	}
	var names, ends []string
	for _, h := range l.host.Hooks() {
		if h.Name == said {
			return said, nil
		}
		names = append(names, h.Name)
		if strings.HasSuffix(h.Name, ":"+said) {
			ends = append(ends, h.Name)
		}
	}
	switch len(ends) {
	case 1:
		return ends[0], nil
	case 0:
		if len(names) == 0 {
			return "", fmt.Errorf("no hook is named %s; the agent has none", said)
		}
		return "", fmt.Errorf("no hook is named %s; there are: %s", said, strings.Join(names, ", "))
	}
	return "", fmt.Errorf("%s may be any of %s; write the whole name", said, strings.Join(ends, ", "))
}
