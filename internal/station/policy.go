package station

import (
	"context"
	"errors"

	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/job"
	"github.com/belay-run/belay/internal/policy"
	"github.com/belay-run/belay/internal/sqlstore"
)

// ApplyPolicy makes a text the tenant's policy, from the next job on; "" is the
// default policy. replaces is the version that it was written against, "" for
// whichever holds. With enforce, which only an admin may ask for, jobs under way are
// ended whose questions were asked under the policy before: a yes to them would be a
// yes to other rules.
func (s *Station) ApplyPolicy(ctx context.Context, tenant, text, replaces, by string, enforce bool) (sqlstore.Policy, error) {
	version := policy.Default().Version()
	if text != "" {
		p, findings := policy.Parse("policy", []byte(text))
		if finding.HasErrors(findings) {
			return sqlstore.Policy{}, &FindingsError{"the policy", findings}
		}
		version = p.Version()
	}
	applied, err := s.store.ApplyPolicy(ctx, sqlstore.Policy{Tenant: tenant, Version: version, Text: text, By: by, Enforced: enforce}, replaces)
	if err != nil || !enforce {
		return applied, err
	}
	waiting, err := s.Waiting(ctx, tenant)
	if err != nil {
		return applied, err
	}
	var errs []error
	for _, w := range waiting {
		if w.Request.Policy == version {
			continue
		}
		if err := s.Cancel(ctx, w.Job, by, "the tool policy "+version+" was enforced at once"); err != nil && !errors.Is(err, job.ErrEnded) {
			errs = append(errs, err)
		}
	}
	return applied, errors.Join(errs...)
}

// Policy returns the tenant's policy, with an empty text for the default one.
func (s *Station) Policy(ctx context.Context, tenant string) (sqlstore.Policy, error) {
	p, there, err := s.store.Policy(ctx, tenant)
	if err == nil && !there {
		p = sqlstore.Policy{Tenant: tenant, Version: policy.Default().Version()}
	}
	return p, err
}

// Effective returns the policy that a new job would be under: the tenant's, and
// what its plugins add.
func (s *Station) Effective(ctx context.Context, tenant string) (*policy.Policy, error) {
	kept, err := s.Policy(ctx, tenant)
	if err != nil {
		return nil, err
	}
	p := policy.Default()
	if kept.Text != "" {
		var findings []finding.Finding
		if p, findings = policy.Parse("policy", []byte(kept.Text)); finding.HasErrors(findings) {
			return nil, &FindingsError{"the policy", findings}
		}
	}
	all, err := s.Plugins(ctx, tenant)
	if err != nil {
		return nil, err
	}
	var more []policy.Addition
	for _, in := range all {
		if in.Manifest.Policy != nil {
			more = append(more, policy.Addition{From: in.Name, Policy: in.Manifest.Policy})
		}
	}
	return p.With(more...), nil
}
