package sqlstore

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/belay-run/belay/internal/audit"
	"github.com/belay-run/belay/internal/sqlstore/rows"
)

var _ audit.Log = (*Store)(nil)

// change makes a change and returns when it is on disk. What apply returns undoes
// all that it did.
func (s *Store) change(apply func(ctx context.Context, b *batch) error) error {
	if s.writer == nil {
		return ErrReadOnly
	}
	return s.writer.do(&write{apply: apply})
}

// at is the batch's time as it will be read again.
func (b *batch) at() time.Time { return fromNanos(nanos(b.now)) }

// Record implements [audit.Log].
func (s *Store) Record(_ context.Context, facts ...audit.Fact) error {
	if len(facts) == 0 {
		return nil
	}
	return s.change(func(ctx context.Context, b *batch) error { return b.record(ctx, facts...) })
}

// record adds to the audit record in the transaction of what was changed.
func (b *batch) record(ctx context.Context, facts ...audit.Fact) error {
	return record(ctx, b.q, b.now, facts...)
}

func record(ctx context.Context, q *rows.Queries, now time.Time, facts ...audit.Fact) error {
	for _, f := range facts {
		head, err := auditHead(ctx, q, f.Tenant)
		if err != nil {
			return err
		}
		e, err := audit.Next(head, now, f)
		if err != nil {
			return refusal{err}
		}
		if err := q.InsertAudit(ctx, rows.InsertAuditParams{
			Tenant: e.Tenant, Seq: e.Seq, At: nanos(e.At), Actor: e.Actor, Action: string(e.Action), Subject: e.Subject,
			Data: string(e.Data), Prev: e.Prev[:], Hash: e.Hash[:],
		}); err != nil {
			return fmt.Errorf("record %s: %w", f.Action, err)
		}
	}
	return nil
}

func auditHead(ctx context.Context, q *rows.Queries, tenant string) (audit.Head, error) {
	found, err := q.GetAuditHead(ctx, tenant)
	if errors.Is(err, sql.ErrNoRows) {
		return audit.Head{}, nil
	}
	if err != nil {
		return audit.Head{}, fmt.Errorf("read the end of the audit record: %w", err)
	}
	head := audit.Head{Seq: found.Seq}
	copy(head.Hash[:], found.Hash)
	return head, nil
}

// AuditHead implements [audit.Log].
func (s *Store) AuditHead(ctx context.Context, tenant string) (audit.Head, error) {
	head, err := auditHead(ctx, s.reader, tenant)
	return head, explain(s.path, err)
}

// AuditEntries implements [audit.Log].
func (s *Store) AuditEntries(ctx context.Context, tenant string, after int64, most int) ([]audit.Entry, error) {
	found, err := s.reader.ListAudit(ctx, rows.ListAuditParams{Tenant: tenant, After: after, Most: int64(most)})
	if err != nil {
		return nil, fmt.Errorf("read the audit record: %w", explain(s.path, err))
	}
	all := make([]audit.Entry, len(found))
	for i, r := range found {
		all[i] = audit.Entry{
			Seq: r.Seq, At: fromNanos(r.At), Tenant: r.Tenant, Actor: r.Actor, Action: audit.Action(r.Action), Subject: r.Subject,
			Data: json.RawMessage(r.Data),
		}
		copy(all[i].Prev[:], r.Prev)
		copy(all[i].Hash[:], r.Hash)
	}
	return all, nil
}
