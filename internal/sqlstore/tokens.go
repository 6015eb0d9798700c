package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/belay-run/belay/internal/access"
	"github.com/belay-run/belay/internal/audit"
	"github.com/belay-run/belay/internal/sqlstore/rows"
)

var _ access.Tokens = (*Store)(nil)

// CreateToken keeps a new token and records who made it. [access.ErrNameTaken] when
// the tenant has one of that name that was not revoked.
func (s *Store) CreateToken(_ context.Context, t access.Token) error {
	return s.change(func(ctx context.Context, b *batch) error {
		_, err := b.q.GetLiveToken(ctx, rows.GetLiveTokenParams{Tenant: t.Tenant, Name: t.Name})
		switch {
		case err == nil:
			return refusal{access.ErrNameTaken}
		case !errors.Is(err, sql.ErrNoRows):
			return fmt.Errorf("look for a token of the name: %w", err)
		}
		if err := b.q.InsertToken(ctx, rows.InsertTokenParams{
			ID: t.ID, Tenant: t.Tenant, Name: t.Name, Role: t.Role.String(), Hash: t.Hash[:],
			Created: nanos(t.Created), CreatedBy: t.By, Expires: nanos(t.Expires),
		}); err != nil {
			return fmt.Errorf("keep the token: %w", err)
		}
		data := audit.Data{"id": t.ID, "role": t.Role.String()}
		if !t.Expires.IsZero() {
			data["expires"] = t.Expires.UTC().Format(time.RFC3339)
		}
		return b.record(ctx, audit.Fact{Tenant: t.Tenant, Actor: t.By, Action: audit.TokenCreated, Subject: t.Name, Data: data})
	})
}

// RevokeToken ends a token by its name and records who did. [access.ErrNoToken].
func (s *Store) RevokeToken(_ context.Context, tenant, name, by string) (access.Token, error) {
	var token access.Token
	err := s.change(func(ctx context.Context, b *batch) error {
		found, err := b.q.GetLiveToken(ctx, rows.GetLiveTokenParams{Tenant: tenant, Name: name})
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return refusal{access.ErrNoToken}
		case err != nil:
			return fmt.Errorf("look for the token: %w", err)
		}
		if token, err = asToken(found); err != nil {
			return refusal{err}
		}
		token.Revoked, token.RevokedBy = b.at(), by
		if err := b.q.RevokeToken(ctx, rows.RevokeTokenParams{Revoked: nanos(b.now), RevokedBy: by, ID: token.ID}); err != nil {
			return fmt.Errorf("revoke the token: %w", err)
		}
		return b.record(ctx, audit.Fact{Tenant: tenant, Actor: by, Action: audit.TokenRevoked, Subject: name,
			Data: audit.Data{"id": token.ID, "role": token.Role.String()}})
	})
	if err != nil {
		return access.Token{}, err
	}
	return token, nil
}

// ListTokens gives a tenant's tokens, the oldest first, also those that hold no more.
func (s *Store) ListTokens(ctx context.Context, tenant string) ([]access.Token, error) {
	found, err := s.reader.ListTokens(ctx, tenant)
	if err != nil {
		return nil, fmt.Errorf("read the tokens: %w", explain(s.path, err))
	}
	all := make([]access.Token, len(found))
	for i, r := range found {
		if all[i], err = asToken(r); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// TokenByHash implements [access.Tokens].
func (s *Store) TokenByHash(ctx context.Context, h access.Hash) (access.Token, error) {
	found, err := s.reader.GetTokenByHash(ctx, h[:])
	if errors.Is(err, sql.ErrNoRows) {
		return access.Token{}, access.ErrUnknown
	}
	if err != nil {
		return access.Token{}, fmt.Errorf("look up a token: %w", explain(s.path, err))
	}
	return asToken(found)
}

// TokenUsed implements [access.Tokens].
func (s *Store) TokenUsed(_ context.Context, id string, at time.Time) error {
	return s.change(func(ctx context.Context, b *batch) error {
		return b.q.UseToken(ctx, rows.UseTokenParams{At: nanos(at), ID: id})
	})
}

func asToken(r rows.Token) (access.Token, error) {
	role, err := access.ParseRole(r.Role)
	if err != nil {
		return access.Token{}, fmt.Errorf("token %s: %w", r.ID, err)
	}
	t := access.Token{
		ID: r.ID, Tenant: r.Tenant, Name: r.Name, Role: role, Created: fromNanos(r.Created), By: r.CreatedBy,
		LastUsed: fromNanos(r.LastUsed), Expires: fromNanos(r.Expires), Revoked: fromNanos(r.Revoked), RevokedBy: r.RevokedBy,
	}
	copy(t.Hash[:], r.Hash)
	return t, nil
}
