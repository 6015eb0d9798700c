package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"

	"github.com/belay-run/belay/internal/conversation"
	"github.com/belay-run/belay/internal/secret"
	"github.com/belay-run/belay/internal/sqlstore"
	"github.com/belay-run/belay/internal/turn"
)

// secrets are found in what is shown of conversations: the secrets of the data
// folder's tenants. Nobody sets another while the app has the folder.
type secrets struct {
	all atomic.Pointer[[]*secret.Scanner] // of all tenants, for the log
	own *secret.Scanner                   // of the conversations' tenant
	err error                             // why there is none
}

// log masks what is written to a log.
func (s *secrets) log(to *slog.Logger) *slog.Logger {
	return slog.New(secret.Handler(to.Handler(), func() []*secret.Scanner {
		if all := s.all.Load(); all != nil {
			return *all
		}
		return nil // the store is not open yet
	}))
}

// load reads what the secrets are found by. The error says whose cannot be looked for.
func (s *secrets) load(ctx context.Context, store *sqlstore.Store, tenant string) error {
	tenants, err := store.SecretTenants(ctx)
	if !slices.Contains(tenants, tenant) { // it may have lost all that its secrets are found by
		tenants = append(tenants, tenant)
	}
	var all []*secret.Scanner
	for _, t := range tenants {
		key, entries, failed := store.SecretEntries(ctx, t)
		one := secret.NewScanner(key, entries)
		if one != nil {
			all = append(all, one)
		}
		if t == tenant {
			s.own, s.err = one, failed
		}
		err = errors.Join(err, failed)
	}
	s.all.Store(&all)
	return err
}

// mask takes the tenant's secrets out of a text that people are shown.
func (s *secrets) mask(text string) string {
	if s.err != nil && text != "" {
		return secret.Withheld
	}
	return s.own.MaskAny(text)
}

// traces takes the tenant's secrets out of lines of a trace.
func (s *secrets) traces(lines []conversation.Trace) ([]conversation.Trace, error) {
	if s.err != nil && len(lines) > 0 {
		return nil, fmt.Errorf("look for secrets in a trace: %w", s.err)
	}
	for i, l := range lines {
		lines[i].Data = json.RawMessage(s.own.MaskJSON(l.Data))
	}
	return lines, nil
}

// Logger is where the app logs, without the secrets of tenants.
func (a *App) Logger() *slog.Logger { return a.cfg.Logger }

// TraceText is [TraceText] without the tenant's secrets.
func (a *App) TraceText(r turn.Report) string { return a.secrets.mask(TraceText(r)) }

// Mask takes the tenant's secrets out of a text that a person is shown.
func (a *Archive) Mask(ctx context.Context, text string) (string, error) {
	keys, err := a.keys()
	if keys == nil {
		return text, err
	}
	var s secrets
	err = a.attached(ctx, keys, func(store *sqlstore.Store) error {
		_ = s.load(ctx, store, a.cfg.Tenant) // of the other tenants nothing is shown
		return s.err
	})
	if err != nil {
		return "", fmt.Errorf("look for secrets in what is to be shown: %w", err)
	}
	return s.own.Mask(text), nil
}
