package station

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/internal/access"
	"github.com/belay-run/belay/internal/control"
	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/plugin"
	"github.com/belay-run/belay/internal/sqlstore"
)

// Service is what the HTTP API of the station serves.
func (s *Station) Service(gate *access.Gate) control.Service {
	return control.Service{Gate: gate, Jobs: s, Approvals: s, Plugins: s, Hooks: s, Policies: s, Audit: s.store, Tokens: s.store, Secrets: s, Spending: s, Upkeep: s, Health: s.Health, Mask: s.scanners.mask}
}

// Store is the station's store, for those who keep things there.
func (s *Station) Store() *sqlstore.Store { return s.store }

// Health says how the station is.
func (s *Station) Health(context.Context) control.Health {
	return control.Health{OK: true, Version: s.cfg.Version, PID: os.Getpid(), Details: s.teller.health()}
}

// Plugins implements [control.Plugins].
func (s *Station) Plugins(ctx context.Context, tenant string) ([]control.Plugin, error) {
	all, err := s.installed(ctx, tenant)
	out := make([]control.Plugin, 0, len(all))
	for _, in := range all {
		out = append(out, shown(in))
	}
	return out, err
}

func shown(in Installed) control.Plugin {
	p := control.Plugin{Name: in.Name, Version: in.Version, Description: in.Manifest.Description, Digest: in.Digest, Manifest: in.Plugin.Manifest, Installed: in.Installed,
		InstalledBy: in.InstalledBy, Updated: in.Updated, UpdatedBy: in.UpdatedBy, ModelGranted: in.ModelGranted, Scan: wantsScan(in.Manifest), Permissions: in.Manifest.Permissions()}
	for _, t := range in.Manifest.Tools {
		p.Tools = append(p.Tools, t.ID)
	}
	for _, a := range in.Manifest.Agents {
		p.Agents = append(p.Agents, a.ID)
	}
	for i := range in.Manifest.Hooks {
		p.Hooks = append(p.Hooks, in.Manifest.Hooks[i].On.Name+":"+in.Manifest.Hooks[i].Call())
	}
	return p
}

// InstallPlugin implements [control.Plugins].
func (s *Station) InstallPlugin(ctx context.Context, c control.Caller, o control.PluginOrder) (control.Installation, error) {
	_, findings := plugin.Read(o.Path)
	in, err := s.install(ctx, c.Tenant, o.Path, InstallOptions{Before: o.Before, AcceptModel: o.AcceptModel, AcceptScan: o.AcceptScan, Update: o.Name != "", Name: o.Name, By: c.Name})
	switch {
	case errors.Is(err, sqlstore.ErrPluginInstalled):
		return control.Installation{}, control.Refuse(control.Conflict, err.Error(), "")
	case errors.Is(err, sqlstore.ErrNoPlugin):
		return control.Installation{}, control.Refuse(control.NotFound, err.Error(), "")
	case err != nil:
		return control.Installation{}, err
	}
	warnings := slices.DeleteFunc(findings, func(f finding.Finding) bool { return f.Severity == finding.Error })
	return control.Installation{Plugin: shown(in), Findings: warnings}, nil
}

// RemovePlugin implements [control.Plugins].
func (s *Station) RemovePlugin(ctx context.Context, c control.Caller, name string, force bool) error {
	return s.noPlugin(s.remove(ctx, c.Tenant, name, c.Name, force))
}

// MovePlugin implements [control.Plugins].
func (s *Station) MovePlugin(ctx context.Context, c control.Caller, name, before string) error {
	return s.noPlugin(s.store.MovePlugin(ctx, c.Tenant, name, before, c.Name))
}

// GrantModel implements [control.Plugins].
func (s *Station) GrantModel(ctx context.Context, c control.Caller, name string, granted bool) error {
	err := s.store.GrantModel(ctx, c.Tenant, name, granted, c.Name)
	s.grants.forget()
	return s.noPlugin(err)
}

func (*Station) noPlugin(err error) error {
	if errors.Is(err, sqlstore.ErrNoPlugin) {
		return control.Refuse(control.NotFound, err.Error(), "")
	}
	return err
}

// onTimeout is how a manifest says a policy.
var onTimeout = map[hook.Policy]string{hook.Open: "allow", hook.Closed: "deny", hook.HoldPolicy: "escalate"}

// Hooks implements [control.Hooks].
func (s *Station) Hooks(ctx context.Context, tenant string, q control.HookQuery) ([]control.Hook, error) {
	if q.Event != "" && hook.PointNamed(q.Event) == nil {
		return nil, control.Refuse(control.Invalid, fmt.Sprintf("there is no event %q", q.Event), "")
	}
	all, err := s.installed(ctx, tenant)
	if err != nil {
		return nil, err
	}
	out := []control.Hook{}
	for _, in := range all {
		for i := range in.Manifest.Hooks {
			h := &in.Manifest.Hooks[i]
			if q.Event != "" && h.On.Name != q.Event || !asks(h.Match.Tools, q.Tool) || !asks(h.Match.Agents, q.Agent) {
				continue
			}
			if q.Tool != "" && h.On.Field("tool") < 0 {
				continue
			}
			out = append(out, control.Hook{Plugin: in.Name, Name: h.Call(), Event: h.On.Name, Tools: h.Match.Tools, Agents: h.Match.Agents, Timeout: h.Timeout.String(),
				OnTimeout: onTimeout[h.OnFailure], EscalateOnly: h.EscalateOnly, Shadow: h.Shadow, Scan: h.Scan})
		}
	}
	return out, nil
}

func asks(list []string, name string) bool {
	return name == "" || list == nil || slices.Contains(list, name)
}
