package station

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"github.com/belay-run/belay/internal/agentjob"
	"github.com/belay-run/belay/internal/audit"
	"github.com/belay-run/belay/internal/control"
	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/job"
	"github.com/belay-run/belay/internal/policy"
	"github.com/belay-run/belay/internal/sqlstore"
)

// Policy implements [control.Policies].
func (s *Station) Policy(ctx context.Context, tenant string) (control.Policy, error) {
	p, there, err := s.store.Policy(ctx, tenant)
	if err != nil || !there {
		return control.Policy{Version: policy.Default().Version(), Default: true}, err
	}
	return shownPolicy(p), nil
}

func shownPolicy(p sqlstore.Policy) control.Policy {
	return control.Policy{Version: p.Version, Text: p.Text, Default: p.Version == policy.Default().Version(), Applied: p.Applied, By: p.By, Enforced: p.Enforced}
}

// PolicyVersion implements [control.Policies].
func (s *Station) PolicyVersion(ctx context.Context, tenant, version string) (control.Policy, error) {
	p, err := s.store.PolicyVersion(ctx, tenant, version)
	if errors.Is(err, sqlstore.ErrNoPolicy) {
		return control.Policy{}, control.Refuse(control.NotFound, err.Error(), "")
	}
	return shownPolicy(p), err
}

// PolicyVersions implements [control.Policies].
func (s *Station) PolicyVersions(ctx context.Context, tenant string) ([]control.Policy, error) {
	all, err := s.store.Policies(ctx, tenant)
	out := make([]control.Policy, 0, len(all))
	for _, p := range all {
		shown := shownPolicy(p)
		shown.Text = ""
		out = append(out, shown)
	}
	return out, err
}

// ApplyPolicy implements [control.Policies]. The policy holds from the next job on.
// With EnforceNow, jobs under way are ended whose questions were asked under the
// policy before: a yes to them would be a yes to other rules.
func (s *Station) ApplyPolicy(ctx context.Context, c control.Caller, o control.PolicyOrder) (control.PolicyChange, error) {
	version := policy.Default().Version()
	var findings []finding.Finding
	if o.Text != "" {
		var p *policy.Policy
		if p, findings = policy.Parse("policy.yaml", []byte(o.Text)); finding.HasErrors(findings) {
			return control.PolicyChange{}, control.RefuseFindings("the policy", findings)
		}
		version = p.Version()
	}
	applied, err := s.store.ApplyPolicy(ctx, sqlstore.Policy{Tenant: c.Tenant, Version: version, Text: o.Text, By: c.Name, Enforced: o.EnforceNow}, o.Replaces)
	if errors.Is(err, sqlstore.ErrPolicyMoved) {
		return control.PolicyChange{}, control.Refuse(control.Conflict, err.Error(), "")
	}
	out := control.PolicyChange{Policy: shownPolicy(applied), Findings: findings}
	if err != nil || !o.EnforceNow {
		return out, err
	}
	out.Voided, err = s.enforce(ctx, c, version)
	return out, err
}

// enforce ends the jobs that wait for a yes under another policy.
func (s *Station) enforce(ctx context.Context, c control.Caller, version string) (voided []string, err error) {
	all, err := s.asked(ctx, c.Tenant)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, w := range all {
		if w.Request.Policy == version {
			continue
		}
		if err := s.Cancel(ctx, w.id, c.Name, "the tool policy "+version+" was enforced at once"); err != nil && !errors.Is(err, job.ErrEnded) {
			errs = append(errs, err)
			continue
		}
		voided = append(voided, w.ID)
		errs = append(errs, s.store.Record(ctx, audit.Fact{Tenant: c.Tenant, Actor: c.Name, Action: audit.ApprovalVoided, Subject: w.ID, Data: audit.Data{"job": w.Job}}))
	}
	return voided, errors.Join(errs...)
}

// ExplainCall implements [control.Policies]. What plugins add counts with a policy
// that was not applied, too.
func (s *Station) ExplainCall(ctx context.Context, tenant string, p *policy.Policy, q control.ExplainQuery) ([]policy.Stage, error) {
	if p == nil {
		var err error
		if p, err = s.current(ctx, tenant); err != nil {
			return nil, err
		}
	}
	p, err := s.withPlugins(ctx, tenant, p)
	if err != nil {
		return nil, err
	}
	call := policy.Call{Tool: q.Tool, Arguments: q.Arguments, Agent: policy.Agent{Name: q.Agent, Provider: q.Provider, Model: q.Model},
		Job: policy.Job{Tenant: tenant, StartedBy: q.StartedBy}, Origin: policy.Origin{By: policy.ByModel}}
	if q.Annotations != nil {
		call.Annotations = *q.Annotations
	} else if declared, ok, err := s.declared(ctx, tenant, q.Tool); err != nil {
		return nil, err
	} else if ok {
		call.Annotations = declared
	}
	var past []policy.Past
	for _, e := range q.Earlier {
		outcome := e.Outcome
		if outcome == "" {
			outcome = policy.Succeeded
		}
		past = append(past, policy.Past{Tool: e.Tool, Outcome: outcome, Arguments: e.Arguments})
	}
	return p.Explain(call, past), nil
}

// declared asks a function's server what it says of it.
func (s *Station) declared(ctx context.Context, tenant, full string) (policy.Annotations, bool, error) {
	id, name, _ := strings.Cut(full, ".")
	all, err := s.installed(ctx, tenant)
	if err != nil {
		return policy.Annotations{}, false, err
	}
	for _, in := range all {
		if in.Manifest.Tool(id) == nil {
			continue
		}
		server, err := s.servers.get(ctx, tenant, agentjob.Tool{ID: id, Plugin: in.Name, Digest: in.Digest})
		if err != nil {
			return policy.Annotations{}, false, control.Refuse(control.Unavailable, err.Error(), "")
		}
		listed, err := server.Tools(ctx)
		if err != nil {
			return policy.Annotations{}, false, control.Refuse(control.Unavailable, err.Error(), cmp.Or(mend(in.Manifest.Tool(id), err), "give the annotations with the question"))
		}
		for _, f := range listed {
			if f.Name == name {
				return policy.Annotations(f.Annotations), true, nil
			}
		}
	}
	return policy.Annotations{}, false, nil
}

// current returns the tenant's policy by itself.
func (s *Station) current(ctx context.Context, tenant string) (*policy.Policy, error) {
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
	return p, nil
}

// withPlugins returns the policy that a new job would be under: with what the
// tenant's plugins add.
func (s *Station) withPlugins(ctx context.Context, tenant string, p *policy.Policy) (*policy.Policy, error) {
	all, err := s.installed(ctx, tenant)
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
