package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/belay-run/belay/internal/agent"
	"github.com/belay-run/belay/internal/conversation"
	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/sqlstore"
	"github.com/belay-run/belay/internal/vault"
)

// Archive is the records of an agent without the agent: no Python runs, and but
// for [Archive.Delete] a service may run beside it.
type Archive struct {
	cfg   Config
	agent string
}

// OpenArchive reads which agent the folder holds. It makes nothing.
func OpenArchive(cfg Config) (*Archive, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := noAgent(cfg.Dir); err != nil {
		return nil, err
	}
	// With mistakes in agent.yml the id may be another than the one under which
	// the agent ran. Mistakes elsewhere do not matter here.
	spec, findings := agent.Read(cfg.Dir)
	findings = slices.DeleteFunc(findings, func(f finding.Finding) bool { return f.File != agent.AgentFile })
	if finding.HasErrors(findings) {
		return nil, &FindingsError{findings}
	}
	return &Archive{cfg: cfg, agent: spec.ID}, nil
}

// ID returns the whole id of a conversation.
func (a *Archive) ID(sender string) conversation.ID {
	return conversation.ID{Tenant: a.cfg.Tenant, Agent: a.agent, Sender: sender}
}

// List returns the conversations, the newest first. It needs no key.
func (a *Archive) List(ctx context.Context) (all []sqlstore.Summary, err error) {
	err = a.attached(ctx, nil, func(s *sqlstore.Store) error {
		all, err = s.List(ctx, a.cfg.Tenant, a.agent)
		return err
	})
	return all, err
}

// Read returns the events and the trace of a conversation; none of both when
// there is no such conversation.
func (a *Archive) Read(ctx context.Context, sender string) (events []conversation.Event, traces []conversation.Trace, err error) {
	keys, err := a.keys()
	if keys == nil {
		return nil, nil, err
	}
	err = a.attached(ctx, keys, func(s *sqlstore.Store) error {
		if events, err = s.Load(ctx, a.ID(sender)); err != nil {
			return err
		}
		traces, err = s.Traces(ctx, a.ID(sender), "")
		return err
	})
	return events, traces, err
}

// Updated is when the newest event of a conversation was added; zero when there
// is no such conversation.
func (a *Archive) Updated(ctx context.Context, sender string) (at time.Time, err error) {
	err = a.attached(ctx, nil, func(s *sqlstore.Store) error {
		at, err = s.Updated(ctx, a.ID(sender))
		return err
	})
	return at, err
}

// Delete drops a conversation for good and says whether there was one. It owns
// the data folder while it does: a service keeps conversations and their keys in
// memory, and would go on with what was taken from under it. When one runs, the
// error is a [sqlstore.InUseError].
func (a *Archive) Delete(ctx context.Context, sender string) (there bool, err error) {
	keys, err := a.keys()
	if keys == nil {
		return false, err
	}
	store, err := sqlstore.Open(ctx, a.cfg.DataFolder(), sqlstore.Options{Vault: keys, Logger: a.cfg.Logger, Clock: a.cfg.Clock})
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	return store.Delete(ctx, a.ID(sender))
}

// keys opens the master key; nil when nothing was stored yet, so that none is
// made.
func (a *Archive) keys() (*vault.Vault, error) {
	err := sqlstore.Exists(a.cfg.DataFolder())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return vault.Open(a.cfg.DataFolder(), a.cfg.KeyFile)
}

// attached calls look with the store, beside its owner; not at all when nothing
// was stored yet.
func (a *Archive) attached(ctx context.Context, keys *vault.Vault, look func(*sqlstore.Store) error) (err error) {
	store, err := sqlstore.Attach(ctx, a.cfg.DataFolder(), sqlstore.Options{Vault: keys, Logger: a.cfg.Logger, Clock: a.cfg.Clock})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look into the records: %w", err)
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	return look(store)
}
