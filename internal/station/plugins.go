package station

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/belay-run/belay/internal/agentjob"
	"github.com/belay-run/belay/internal/control"
	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/job"
	"github.com/belay-run/belay/internal/plugin"
	"github.com/belay-run/belay/internal/sqlstore"
)

// Installed is a plugin of a tenant with what its snapshot brings.
type Installed struct {
	sqlstore.Plugin
	Manifest *plugin.Manifest
}

// InstallOptions are for one installation or update.
type InstallOptions struct {
	Before      string // the plugin before which it stands; "" for last
	AcceptModel bool   // an admin lets it call the model
	AcceptScan  bool   // and lets it know where the tenant's secrets are
	Update      bool   // it is there already
	Name        string // the plugin that is updated; "" for whichever the folder has
	By          string
}

// install takes a snapshot of a plugin's folder into a tenant.
func (s *Station) install(ctx context.Context, tenant, dir string, o InstallOptions) (Installed, error) {
	m, findings := plugin.Read(dir)
	if finding.HasErrors(findings) {
		return Installed{}, control.RefuseFindings("the plugin", findings)
	}
	if o.Name != "" && o.Name != m.Name {
		return Installed{}, control.Refuse(control.Invalid, fmt.Sprintf("the folder has plugin %s, not %s", m.Name, o.Name), "name the folder of the plugin that is updated")
	}
	all, err := s.installed(ctx, tenant)
	if err != nil {
		return Installed{}, err
	}
	if err := collides(m, all); err != nil {
		return Installed{}, err
	}
	if err := s.accepted(m, all, o); err != nil {
		return Installed{}, err
	}
	digest, err := s.snapshot(dir)
	if err != nil {
		return Installed{}, err
	}
	p := sqlstore.Plugin{Tenant: tenant, Name: m.Name, Version: m.Version, Digest: digest, Manifest: m.File, ModelGranted: wantsModel(m) && (o.AcceptModel || granted(all, m.Name))}
	if o.Update {
		p, err = s.store.UpdatePlugin(ctx, p, o.By)
	} else {
		p, err = s.store.InstallPlugin(ctx, p, o.Before, o.By)
	}
	s.grants.forget()
	if err != nil {
		return Installed{}, err
	}
	s.sweep(ctx)
	m, err = s.manifest(digest)
	return Installed{p, m}, err
}

// collides says whether another plugin has a tool or agent of the same name: full
// names are the tenant's.
func collides(m *plugin.Manifest, all []Installed) error {
	for _, other := range all {
		if other.Name == m.Name {
			continue
		}
		for _, t := range m.Tools {
			if other.Manifest.Tool(t.ID) != nil {
				return control.Refuse(control.Conflict, fmt.Sprintf("plugin %s has a tool %s too", other.Name, t.ID), "give one of the two another id")
			}
		}
		for _, a := range m.Agents {
			if slices.ContainsFunc(other.Manifest.Agents, func(o plugin.Agent) bool { return o.ID == a.ID }) {
				return control.Refuse(control.Conflict, fmt.Sprintf("plugin %s has an agent %s too", other.Name, a.ID), "give one of the two another id")
			}
		}
	}
	return nil
}

func wantsModel(m *plugin.Manifest) bool {
	return slices.ContainsFunc(m.Tools, func(t plugin.Tool) bool { return t.ModelPurpose != "" })
}

func wantsScan(m *plugin.Manifest) bool {
	return slices.ContainsFunc(m.Hooks, func(h plugin.Hook) bool { return h.Scan })
}

// granted says whether an installed plugin may call the model: an update keeps that.
func granted(all []Installed, name string) bool {
	return slices.ContainsFunc(all, func(p Installed) bool { return p.Name == name && p.ModelGranted })
}

// accepted says whether what the plugin wants was granted: by this installation, or
// by an earlier one that wanted the same.
func (s *Station) accepted(m *plugin.Manifest, all []Installed, o InstallOptions) error {
	before := slices.IndexFunc(all, func(p Installed) bool { return p.Name == m.Name })
	grown := func(wants func(*plugin.Manifest) bool) bool {
		return wants(m) && (before < 0 || !wants(all[before].Manifest))
	}
	if grown(wantsModel) && !o.AcceptModel {
		return control.Refuse(control.NeedsAcceptance, "the plugin wants to call the model", "look at belay plugin inspect, and install it with --accept-model if that is right")
	}
	if o.Update && grown(wantsScan) && !o.AcceptScan {
		return control.Refuse(control.NeedsAcceptance, "the update wants to be told where the tenant's secrets are, which the plugin did not before", "accept that with --accept-scan")
	}
	return nil
}

// snapshot copies a plugin's folder to where its digest names it.
func (s *Station) snapshot(dir string) (string, error) {
	partial, err := os.MkdirTemp(s.servers.root, ".new-")
	if err != nil {
		return "", fmt.Errorf("make a snapshot: %w", err)
	}
	defer func() { _ = os.RemoveAll(partial) }() // what is left over is of no use
	copied := filepath.Join(partial, "plugin")
	digest, err := plugin.Copy(dir, copied)
	if err != nil {
		return "", err
	}
	target := s.servers.dir(digest)
	if _, err := os.Stat(target); err == nil {
		if now, err := plugin.Digest(target); err == nil && now == digest {
			return digest, nil
		}
		return "", fmt.Errorf("the snapshot at %s was changed by somebody; move it away", target)
	}
	if err := os.Rename(copied, target); err != nil {
		return "", fmt.Errorf("keep a snapshot: %w", err)
	}
	return digest, nil
}

// manifest reads a snapshot's manifest, once.
func (s *Station) manifest(digest string) (*plugin.Manifest, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.manifests[digest]; m != nil {
		return m, nil
	}
	dir := s.servers.dir(digest)
	now, err := plugin.Digest(dir)
	if err != nil {
		return nil, err
	}
	if now != digest {
		return nil, fmt.Errorf("the snapshot at %s was changed by somebody; update the plugin", dir)
	}
	m, findings := plugin.Read(dir)
	if finding.HasErrors(findings) {
		return nil, &FindingsError{"the snapshot of a plugin", findings}
	}
	s.manifests[digest] = m
	return m, nil
}

// installed returns a tenant's plugins in the order in which their hooks run.
func (s *Station) installed(ctx context.Context, tenant string) ([]Installed, error) {
	kept, err := s.store.Plugins(ctx, tenant)
	if err != nil {
		return nil, err
	}
	out := make([]Installed, 0, len(kept))
	for _, p := range kept {
		m, err := s.manifest(p.Digest)
		if err != nil {
			return nil, fmt.Errorf("plugin %s: %w", p.Name, err)
		}
		out = append(out, Installed{p, m})
	}
	return out, nil
}

// remove takes a plugin out of a tenant. Jobs that pinned it keep its snapshot.
func (s *Station) remove(ctx context.Context, tenant, name, by string, force bool) error {
	if !force {
		pinned, err := s.pinned(ctx, tenant, name)
		if err != nil {
			return err
		}
		if len(pinned) > 0 {
			return control.Refuse(control.Conflict, "jobs that pinned the plugin run: "+strings.Join(pinned, ", "), "wait for their end, cancel them, or remove it with --force")
		}
	}
	err := s.store.RemovePlugin(ctx, tenant, name, by, force)
	s.servers.forget()
	s.grants.forget()
	s.sweep(ctx)
	return err
}

// pinned are the jobs under way that a plugin's hooks or tools belong to.
func (s *Station) pinned(ctx context.Context, tenant, name string) ([]string, error) {
	jobs, err := s.journal.List(ctx, job.Filter{Tenant: tenant, States: []job.State{job.Running, job.Waiting}})
	if err != nil {
		return nil, err
	}
	var out []string
	for _, j := range jobs {
		whole, err := s.journal.Get(ctx, j.ID)
		if err != nil {
			return nil, err
		}
		spec, err := agentjob.Read(whole.Input)
		if err != nil {
			return nil, err
		}
		if spec.Agent.Plugin == name || slices.ContainsFunc(spec.Tools, func(t agentjob.Tool) bool { return t.Plugin == name }) ||
			slices.ContainsFunc(spec.Additions, func(a agentjob.Addition) bool { return a.From == name }) {
			out = append(out, j.Job)
		}
	}
	return out, nil
}
