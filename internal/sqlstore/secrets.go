package sqlstore

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/belay-run/belay/internal/audit"
	"github.com/belay-run/belay/internal/secret"
	"github.com/belay-run/belay/internal/sqlstore/rows"
	"github.com/belay-run/belay/internal/vault"
)

// Why a secret is not set, found or looked for.
var (
	ErrNoSecret     = errors.New("there is no such secret; `belay secret list` shows those that are")
	ErrSecretSet    = errors.New("the secret is there already; `belay secret rotate` gives it another value")
	ErrSecretName   = errors.New("a secret's name is that of an environment variable: letters, digits and _, no digit first, 128 at most")
	ErrFingerprints = errors.New("the fingerprints of secrets are missing or cannot be read; set the secret anew with `belay secret rotate`")
)

var secretName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)

// Secret is a tenant's secret without its value.
type Secret struct {
	Tenant, Name string
	Version      int64 // how often it was set
	Created      time.Time
	Updated      time.Time // when it got the value that it has
	By           string    // from whom
	// Earlier are the values that it had and that are still looked for.
	Earlier int
}

// SecretOrder gives a secret a value.
type SecretOrder struct {
	Tenant, Name string
	Value        []byte
	// Rotate says that it must have a value, which is looked for until Keep has
	// passed. Else it must have none.
	Rotate bool
	Keep   time.Duration
	By     string
}

// What the data keys of a tenant's secrets are for.
const (
	forValues = "value"
	forPrints = "print"
)

// SetSecret keeps a value, sealed, and its fingerprints apart from it, and records
// that by the secret's name. [ErrSecretName], [ErrSecretSet], [ErrNoSecret],
// [secret.ErrShort], [secret.ErrLong].
func (s *Store) SetSecret(_ context.Context, o SecretOrder) (Secret, error) {
	var out Secret
	err := s.change(func(ctx context.Context, b *batch) error {
		if !secretName.MatchString(o.Name) {
			return refusal{ErrSecretName}
		}
		old, err := b.q.GetSecret(ctx, rows.GetSecretParams{Tenant: o.Tenant, Name: o.Name})
		there := err == nil
		switch {
		case err != nil && !errors.Is(err, sql.ErrNoRows):
			return fmt.Errorf("look for the secret: %w", err)
		case there && !o.Rotate:
			return refusal{ErrSecretSet}
		case !there && o.Rotate:
			return refusal{ErrNoSecret}
		}
		action := audit.SecretSet
		out = Secret{Tenant: o.Tenant, Name: o.Name, Version: 1, Created: b.at(), Updated: b.at(), By: o.By}
		if there {
			action, out.Version, out.Created = audit.SecretRotated, old.Version+1, fromNanos(old.Created)
		}
		if err := s.putSecret(ctx, b, o, out); err != nil {
			return err
		}
		return b.record(ctx, audit.Fact{Tenant: o.Tenant, Actor: o.By, Action: action, Subject: o.Name, Data: audit.Data{"version": out.Version}})
	})
	return out, err
}

func (s *Store) putSecret(ctx context.Context, b *batch, o SecretOrder, to Secret) error {
	values, err := s.makeSecretKey(ctx, b.q, o.Tenant, forValues)
	if err != nil {
		return err
	}
	under, err := s.makeSecretKey(ctx, b.q, o.Tenant, forPrints)
	if err != nil {
		return err
	}
	key, err := printKey(under)
	if err != nil {
		return err
	}
	prints, err := key.Prints(o.Value)
	if err != nil {
		return refusal{err}
	}
	file, err := key.Encode(secret.Entry{Name: o.Name, Prints: prints})
	if err != nil {
		return err
	}
	until := b.now.Add(o.Keep)
	err = errors.Join(
		b.q.DeleteEndedSecretPrints(ctx, rows.DeleteEndedSecretPrintsParams{Tenant: o.Tenant, Until: nanos(b.now)}),
		b.q.EndSecretPrints(ctx, rows.EndSecretPrintsParams{Until: nanos(until), Tenant: o.Tenant, Name: o.Name}),
		b.q.InsertSecretPrint(ctx, rows.InsertSecretPrintParams{Tenant: o.Tenant, Name: o.Name, Version: to.Version, Sealed: under.Seal(file, printRow(o.Tenant, o.Name, to.Version))}),
		b.q.PutSecret(ctx, rows.PutSecretParams{Tenant: o.Tenant, Name: o.Name, Version: to.Version, Created: nanos(to.Created), Updated: nanos(to.Updated), Actor: o.By,
			Sealed: values.Seal(o.Value, valueRow(o.Tenant, o.Name, to.Version))}))
	if err != nil {
		return fmt.Errorf("keep the secret: %w", err)
	}
	return nil
}

func valueRow(tenant, name string, version int64) vault.Row {
	return vault.Row{Table: "secret", Seq: version, Names: []string{tenant, name}}
}

func printRow(tenant, name string, version int64) vault.Row {
	return vault.Row{Table: "secret_print", Seq: version, Names: []string{tenant, name}}
}

// printKey is what fingerprints are made under.
func printKey(under vault.DataKey) (secret.Key, error) {
	return secret.NewKey(under.Digest([]byte("belay fingerprints")))
}

// makeSecretKey gives a tenant's key, and makes it when the tenant has none.
func (s *Store) makeSecretKey(ctx context.Context, q *rows.Queries, tenant, purpose string) (vault.DataKey, error) {
	key, err := s.secretKey(ctx, q, tenant, purpose)
	if !errors.Is(err, sql.ErrNoRows) {
		return key, err
	}
	key, sealed, err := s.keys.vault.NewDataKey()
	if err != nil {
		return vault.DataKey{}, err
	}
	if err := q.InsertSecretKey(ctx, rows.InsertSecretKeyParams{Tenant: tenant, Purpose: purpose, Sealed: sealed}); err != nil {
		return vault.DataKey{}, fmt.Errorf("keep a key of secrets: %w", err)
	}
	return key, nil
}

func (s *Store) secretKey(ctx context.Context, q *rows.Queries, tenant, purpose string) (vault.DataKey, error) {
	if s.keys.vault == nil {
		return vault.DataKey{}, errNoVault
	}
	sealed, err := q.GetSecretKey(ctx, rows.GetSecretKeyParams{Tenant: tenant, Purpose: purpose})
	if err != nil {
		return vault.DataKey{}, fmt.Errorf("read a key of secrets: %w", err)
	}
	return s.keys.vault.Open(sealed)
}

// RemoveSecret takes out a secret and whatever it is found by, and records that.
// [ErrNoSecret].
func (s *Store) RemoveSecret(_ context.Context, tenant, name, by string) error {
	if s.writer == nil {
		return ErrReadOnly
	}
	return s.writer.do(&write{shred: true, apply: func(ctx context.Context, b *batch) error {
		n, err := b.q.DeleteSecret(ctx, rows.DeleteSecretParams{Tenant: tenant, Name: name})
		if err != nil {
			return fmt.Errorf("remove the secret: %w", err)
		}
		if n == 0 {
			return refusal{ErrNoSecret}
		}
		if err := b.q.DeleteSecretPrints(ctx, rows.DeleteSecretPrintsParams{Tenant: tenant, Name: name}); err != nil {
			return fmt.Errorf("remove the secret: %w", err)
		}
		return b.record(ctx, audit.Fact{Tenant: tenant, Actor: by, Action: audit.SecretRemoved, Subject: name})
	}})
}

// Secrets lists a tenant's secrets by name.
func (s *Store) Secrets(ctx context.Context, tenant string) ([]Secret, error) {
	found, err := s.reader.ListSecrets(ctx, tenant)
	if err != nil {
		return nil, fmt.Errorf("list the secrets: %w", explain(s.path, err))
	}
	prints, err := s.reader.ListSecretPrints(ctx, tenant)
	if err != nil {
		return nil, fmt.Errorf("list the secrets: %w", explain(s.path, err))
	}
	earlier := map[string]int{}
	for _, p := range prints {
		if p.Until > nanos(s.clock()) {
			earlier[p.Name]++
		}
	}
	all := make([]Secret, len(found))
	for i, r := range found {
		all[i] = Secret{Tenant: r.Tenant, Name: r.Name, Version: r.Version, Created: fromNanos(r.Created), Updated: fromNanos(r.Updated), By: r.Actor, Earlier: earlier[r.Name]}
	}
	return all, nil
}

// SecretTenants are the tenants that have secrets.
func (s *Store) SecretTenants(ctx context.Context) ([]string, error) {
	all, err := s.reader.ListSecretTenants(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the tenants with secrets: %w", explain(s.path, err))
	}
	return all, nil
}

// SecretValue gives the value of a secret and its version: for the environment of a
// tenant's tool, and nothing else. [ErrNoSecret].
func (s *Store) SecretValue(ctx context.Context, tenant, name string) (string, int64, error) {
	found, err := s.reader.GetSecret(ctx, rows.GetSecretParams{Tenant: tenant, Name: name})
	if errors.Is(err, sql.ErrNoRows) {
		return "", 0, ErrNoSecret
	}
	if err != nil {
		return "", 0, fmt.Errorf("read the secret %s: %w", name, explain(s.path, err))
	}
	key, err := s.secretKey(ctx, s.reader, tenant, forValues)
	if err != nil {
		return "", 0, fmt.Errorf("read the secret %s: %w", name, err)
	}
	value, err := key.Open(found.Sealed, valueRow(tenant, name, found.Version))
	if err != nil {
		return "", 0, fmt.Errorf("read the secret %s: %w", name, err)
	}
	return string(value), found.Version, nil
}

// IsSecret says whether a text is the value of a secret. White space around both is
// not counted. [ErrNoSecret].
func (s *Store) IsSecret(ctx context.Context, tenant, name string, text []byte) (bool, error) {
	value, _, err := s.SecretValue(ctx, tenant, name)
	if err != nil {
		return false, err
	}
	key, err := s.secretKey(ctx, s.reader, tenant, forValues)
	if err != nil {
		return false, err
	}
	// Digests have one length and take one time, whatever the texts have in common.
	return bytes.Equal(key.Digest(bytes.TrimSpace(text)), key.Digest(bytes.TrimSpace([]byte(value)))), nil
}

// SecretEntries gives what a tenant's secrets are found by, with the key; none when
// it has no secrets. [ErrFingerprints] when it lacks one or one cannot be read.
func (s *Store) SecretEntries(ctx context.Context, tenant string) (secret.Key, []secret.Entry, error) {
	var zero secret.Key
	all, err := s.reader.ListSecrets(ctx, tenant)
	if err != nil {
		return zero, nil, fmt.Errorf("read the secrets' fingerprints: %w", explain(s.path, err))
	}
	prints, err := s.reader.ListSecretPrints(ctx, tenant)
	if err != nil {
		return zero, nil, fmt.Errorf("read the secrets' fingerprints: %w", explain(s.path, err))
	}
	if len(all) == 0 && len(prints) == 0 {
		return zero, nil, nil
	}
	under, err := s.secretKey(ctx, s.reader, tenant, forPrints)
	if err != nil {
		return zero, nil, fmt.Errorf("%w: %w", ErrFingerprints, err)
	}
	key, err := printKey(under)
	if err != nil {
		return zero, nil, err
	}
	var out []secret.Entry
	have := map[string]int64{}
	for _, p := range prints {
		if p.Until != 0 && p.Until <= nanos(s.clock()) {
			continue
		}
		file, err := under.Open(p.Sealed, printRow(tenant, p.Name, p.Version))
		if err != nil {
			return zero, nil, fmt.Errorf("%w: those of %s: %w", ErrFingerprints, p.Name, err)
		}
		e, err := key.Decode(file)
		if err != nil || e.Name != p.Name {
			return zero, nil, fmt.Errorf("%w: those of %s: %w", ErrFingerprints, p.Name, errors.Join(err, secret.ErrPrints))
		}
		if e.Until = fromNanos(p.Until); p.Until == 0 {
			have[p.Name] = p.Version
		}
		out = append(out, e)
	}
	for _, one := range all {
		if have[one.Name] != one.Version {
			return zero, nil, fmt.Errorf("%w: those of %s are missing", ErrFingerprints, one.Name)
		}
	}
	return key, out, nil
}
