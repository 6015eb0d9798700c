package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/belay-run/belay/internal/audit"
	"github.com/belay-run/belay/internal/sqlstore/rows"
)

// Why a policy is not applied or found.
var (
	ErrPolicyMoved = errors.New("another policy was applied meanwhile; look at it before you replace it")
	ErrNoPolicy    = errors.New("the tenant never had this version of a policy; `belay policy show --versions` lists those that it had")
)

// Policy is one application of a tool policy.
type Policy struct {
	Tenant  string
	Version string // the digest of the text
	Text    string // "" for the default policy
	Applied time.Time
	By      string
	// Enforced says that it was meant for jobs that ran already, too.
	Enforced bool
}

// ApplyPolicy makes a policy the tenant's current one and records it. When replaces
// is not "", it is the version that must be the current one: else [ErrPolicyMoved].
func (s *Store) ApplyPolicy(_ context.Context, p Policy, replaces string) (Policy, error) {
	err := s.change(func(ctx context.Context, b *batch) error {
		current, err := b.q.GetPolicy(ctx, p.Tenant)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return fmt.Errorf("read the current policy: %w", err)
		}
		if replaces != "" && replaces != current.Version {
			return refusal{ErrPolicyMoved}
		}
		p.Applied = b.at()
		if _, err := b.q.InsertPolicy(ctx, rows.InsertPolicyParams{
			Tenant: p.Tenant, Version: p.Version, Text: p.Text, Applied: nanos(p.Applied), Actor: p.By, Enforced: oneIf(p.Enforced),
		}); err != nil {
			return fmt.Errorf("keep the policy: %w", err)
		}
		return b.record(ctx, audit.Fact{Tenant: p.Tenant, Actor: p.By, Action: audit.PolicyApplied, Subject: p.Version,
			Data: audit.Data{"replaces": current.Version, "enforced": p.Enforced}})
	})
	if err != nil {
		return Policy{}, err
	}
	return p, nil
}

// Policy gives a tenant's current policy; there is false when none was ever applied.
func (s *Store) Policy(ctx context.Context, tenant string) (p Policy, there bool, err error) {
	found, err := s.reader.GetPolicy(ctx, tenant)
	if errors.Is(err, sql.ErrNoRows) {
		return Policy{}, false, nil
	}
	if err != nil {
		return Policy{}, false, fmt.Errorf("read the policy: %w", explain(s.path, err))
	}
	return asPolicy(found), true, nil
}

// PolicyVersion gives a version that the tenant has or had. [ErrNoPolicy].
func (s *Store) PolicyVersion(ctx context.Context, tenant, version string) (Policy, error) {
	found, err := s.reader.GetPolicyVersion(ctx, rows.GetPolicyVersionParams{Tenant: tenant, Version: version})
	if errors.Is(err, sql.ErrNoRows) {
		return Policy{}, ErrNoPolicy
	}
	if err != nil {
		return Policy{}, fmt.Errorf("read the policy: %w", explain(s.path, err))
	}
	return asPolicy(found), nil
}

// Policies gives all that were applied in a tenant, the newest first, without their
// texts.
func (s *Store) Policies(ctx context.Context, tenant string) ([]Policy, error) {
	found, err := s.reader.ListPolicies(ctx, tenant)
	if err != nil {
		return nil, fmt.Errorf("read the policies: %w", explain(s.path, err))
	}
	all := make([]Policy, len(found))
	for i, r := range found {
		all[i] = Policy{Tenant: r.Tenant, Version: r.Version, Applied: fromNanos(r.Applied), By: r.Actor, Enforced: r.Enforced == 1}
	}
	return all, nil
}

func asPolicy(r rows.Policy) Policy {
	return Policy{Tenant: r.Tenant, Version: r.Version, Text: r.Text, Applied: fromNanos(r.Applied), By: r.Actor, Enforced: r.Enforced == 1}
}
