package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/belay-run/belay/internal/audit"
	"github.com/belay-run/belay/internal/sqlstore/rows"
)

// Why the plugins of a tenant are not changed.
var (
	ErrPluginInstalled = errors.New("the plugin is installed already; update it instead")
	ErrNoPlugin        = errors.New("there is no such plugin; `belay plugin list` shows those that are")
)

// Plugin is a plugin that is installed in a tenant.
type Plugin struct {
	Tenant, Name string
	Version      string
	Digest       string // of the snapshot of its folder
	Manifest     string // the name of its manifest
	// ModelGranted says that an admin lets it call the model.
	ModelGranted bool

	Installed   time.Time
	InstalledBy string
	Updated     time.Time // zero when it was not since
	UpdatedBy   string
}

// InstallPlugin adds a plugin to a tenant and records it. It comes last, or before
// another one, or where it stood when it was installed first. [ErrPluginInstalled];
// [ErrNoPlugin] for the other one.
func (s *Store) InstallPlugin(_ context.Context, p Plugin, before, by string) (Plugin, error) {
	err := s.change(func(ctx context.Context, b *batch) error {
		old, err := b.q.GetPlugin(ctx, rows.GetPluginParams{Tenant: p.Tenant, Name: p.Name})
		there := err == nil
		switch {
		case there && old.Removed == 0:
			return refusal{ErrPluginInstalled}
		case err != nil && !errors.Is(err, sql.ErrNoRows):
			return fmt.Errorf("look for the plugin: %w", err)
		}
		position := old.Position
		if !there {
			all, err := b.q.ListPlugins(ctx, p.Tenant)
			if err != nil {
				return fmt.Errorf("read the plugins: %w", err)
			}
			if len(all) > 0 {
				position = all[len(all)-1].Position + 1
			}
		}
		p.Installed, p.InstalledBy, p.Updated, p.UpdatedBy = b.at(), by, time.Time{}, ""
		if err := b.putPlugin(ctx, p, position); err != nil {
			return err
		}
		facts := []audit.Fact{{Tenant: p.Tenant, Actor: by, Action: audit.PluginInstalled, Subject: p.Name, Data: audit.Data{"version": p.Version, "digest": p.Digest}}}
		if p.ModelGranted {
			facts = append(facts, reads(p, audit.PluginReadsGranted, by))
		}
		if err := b.record(ctx, facts...); err != nil || before == "" {
			return err
		}
		return b.movePlugin(ctx, p.Tenant, p.Name, before, by)
	})
	if err != nil {
		return Plugin{}, err
	}
	return p, nil
}

// UpdatePlugin puts another version of a plugin in its place and records it.
// [ErrNoPlugin].
func (s *Store) UpdatePlugin(_ context.Context, p Plugin, by string) (Plugin, error) {
	err := s.changePlugin(p.Tenant, p.Name, func(ctx context.Context, b *batch, old rows.Plugin) error {
		p.Installed, p.InstalledBy, p.Updated, p.UpdatedBy = fromNanos(old.Installed), old.InstalledBy, b.at(), by
		if err := b.putPlugin(ctx, p, old.Position); err != nil {
			return err
		}
		facts := []audit.Fact{{Tenant: p.Tenant, Actor: by, Action: audit.PluginUpdated, Subject: p.Name,
			Data: audit.Data{"version": p.Version, "digest": p.Digest, "from": old.Digest}}}
		return b.record(ctx, append(facts, readsChanged(old, p, by)...)...)
	})
	if err != nil {
		return Plugin{}, err
	}
	return p, nil
}

// GrantModel lets a plugin call the model, or no more, and records it.
// [ErrNoPlugin].
func (s *Store) GrantModel(_ context.Context, tenant, name string, granted bool, by string) error {
	return s.changePlugin(tenant, name, func(ctx context.Context, b *batch, old rows.Plugin) error {
		p := asPlugin(old)
		p.ModelGranted = granted
		if err := b.putPlugin(ctx, p, old.Position); err != nil {
			return err
		}
		return b.record(ctx, readsChanged(old, p, by)...)
	})
}

// RemovePlugin takes a plugin out of a tenant and records it. [ErrNoPlugin].
func (s *Store) RemovePlugin(_ context.Context, tenant, name, by string, forced bool) error {
	return s.changePlugin(tenant, name, func(ctx context.Context, b *batch, old rows.Plugin) error {
		old.ModelGranted, old.Removed, old.RemovedBy = 0, nanos(b.now), by
		if err := b.q.PutPlugin(ctx, rows.PutPluginParams(old)); err != nil {
			return fmt.Errorf("remove the plugin: %w", err)
		}
		return b.record(ctx, audit.Fact{Tenant: tenant, Actor: by, Action: audit.PluginRemoved, Subject: name,
			Data: audit.Data{"version": old.Version, "digest": old.Digest, "forced": forced}})
	})
}

// MovePlugin lets a plugin's hooks run before another's, or last when before is "",
// and records it. [ErrNoPlugin] for either.
func (s *Store) MovePlugin(_ context.Context, tenant, name, before, by string) error {
	return s.changePlugin(tenant, name, func(ctx context.Context, b *batch, _ rows.Plugin) error {
		return b.movePlugin(ctx, tenant, name, before, by)
	})
}

// Plugins gives a tenant's plugins in the order of their hooks.
func (s *Store) Plugins(ctx context.Context, tenant string) ([]Plugin, error) {
	found, err := s.reader.ListPlugins(ctx, tenant)
	if err != nil {
		return nil, fmt.Errorf("read the plugins: %w", explain(s.path, err))
	}
	var all []Plugin
	for _, r := range found {
		if r.Removed == 0 {
			all = append(all, asPlugin(r))
		}
	}
	return all, nil
}

// Plugin gives one plugin of a tenant. [ErrNoPlugin].
func (s *Store) Plugin(ctx context.Context, tenant, name string) (Plugin, error) {
	r, err := s.reader.GetPlugin(ctx, rows.GetPluginParams{Tenant: tenant, Name: name})
	if errors.Is(err, sql.ErrNoRows) || err == nil && r.Removed != 0 {
		return Plugin{}, ErrNoPlugin
	}
	if err != nil {
		return Plugin{}, fmt.Errorf("read the plugin: %w", explain(s.path, err))
	}
	return asPlugin(r), nil
}

// PluginDigests gives the snapshots that are installed anywhere, so that the others
// can be cleared away once no job is pinned to them.
func (s *Store) PluginDigests(ctx context.Context) ([]string, error) {
	all, err := s.reader.ListPluginDigests(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the plugins: %w", explain(s.path, err))
	}
	return all, nil
}

// changePlugin changes a plugin that is installed.
func (s *Store) changePlugin(tenant, name string, apply func(context.Context, *batch, rows.Plugin) error) error {
	return s.change(func(ctx context.Context, b *batch) error {
		old, err := b.q.GetPlugin(ctx, rows.GetPluginParams{Tenant: tenant, Name: name})
		switch {
		case errors.Is(err, sql.ErrNoRows), err == nil && old.Removed != 0:
			return refusal{ErrNoPlugin}
		case err != nil:
			return fmt.Errorf("look for the plugin: %w", err)
		}
		return apply(ctx, b, old)
	})
}

func (b *batch) putPlugin(ctx context.Context, p Plugin, position int64) error {
	err := b.q.PutPlugin(ctx, rows.PutPluginParams{
		Tenant: p.Tenant, Name: p.Name, Position: position, Version: p.Version, Digest: p.Digest, Manifest: p.Manifest,
		ModelGranted: oneIf(p.ModelGranted), Installed: nanos(p.Installed), InstalledBy: p.InstalledBy,
		Updated: nanos(p.Updated), UpdatedBy: p.UpdatedBy,
	})
	if err != nil {
		return fmt.Errorf("keep the plugin: %w", err)
	}
	return nil
}

// movePlugin writes a new order. Plugins that were removed keep their places in it.
func (b *batch) movePlugin(ctx context.Context, tenant, name, before, by string) error {
	all, err := b.q.ListPlugins(ctx, tenant)
	if err != nil {
		return fmt.Errorf("read the plugins: %w", err)
	}
	named := func(name string) int {
		return slices.IndexFunc(all, func(p rows.Plugin) bool { return p.Name == name })
	}
	from, to := named(name), len(all)
	if before != "" {
		if to = named(before); to < 0 || all[to].Removed != 0 {
			return refusal{fmt.Errorf("%w: %q, which it was to stand before", ErrNoPlugin, before)}
		}
	}
	moved := all[from]
	all = slices.Insert(all, to, moved)
	if to <= from {
		from++
	}
	all = slices.Delete(all, from, from+1)
	for i, p := range all {
		if p.Position == int64(i) {
			continue
		}
		if err := b.q.PlacePlugin(ctx, rows.PlacePluginParams{Position: int64(i), Tenant: tenant, Name: p.Name}); err != nil {
			return fmt.Errorf("move the plugins: %w", err)
		}
	}
	return b.record(ctx, audit.Fact{Tenant: tenant, Actor: by, Action: audit.PluginMoved, Subject: name, Data: audit.Data{"before": before}})
}

func reads(p Plugin, action audit.Action, by string) audit.Fact {
	return audit.Fact{Tenant: p.Tenant, Actor: by, Action: action, Subject: p.Name, Data: audit.Data{"kind": "model"}}
}

func readsChanged(old rows.Plugin, p Plugin, by string) []audit.Fact {
	switch {
	case old.ModelGranted == oneIf(p.ModelGranted):
		return nil
	case p.ModelGranted:
		return []audit.Fact{reads(p, audit.PluginReadsGranted, by)}
	}
	return []audit.Fact{reads(p, audit.PluginReadsRevoked, by)}
}

func asPlugin(r rows.Plugin) Plugin {
	return Plugin{
		Tenant: r.Tenant, Name: r.Name, Version: r.Version, Digest: r.Digest, Manifest: r.Manifest, ModelGranted: r.ModelGranted == 1,
		Installed: fromNanos(r.Installed), InstalledBy: r.InstalledBy, Updated: fromNanos(r.Updated), UpdatedBy: r.UpdatedBy,
	}
}
