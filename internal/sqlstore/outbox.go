package sqlstore

import (
	"context"
	"fmt"
	"time"

	"github.com/belay-run/belay/internal/notice"
	"github.com/belay-run/belay/internal/sqlstore/rows"
)

var _ notice.Box = (*Store)(nil)

// PutMessages implements [notice.Box].
func (s *Store) PutMessages(_ context.Context, messages ...notice.Message) (added int, err error) {
	if len(messages) == 0 {
		return 0, nil
	}
	err = s.change(func(ctx context.Context, b *batch) error {
		added = 0 // the transaction may be tried again
		for _, m := range messages {
			n, err := b.q.PutMessage(ctx, rows.PutMessageParams{
				Tenant: m.Tenant, Target: m.Target, Event: m.Event, Subject: m.Subject, Body: m.Body, Created: nanos(b.now), Due: nanos(b.now),
			})
			if err != nil {
				return fmt.Errorf("keep a message: %w", err)
			}
			added += int(n)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return added, nil
}

// DueMessages implements [notice.Box].
func (s *Store) DueMessages(ctx context.Context, target string, now time.Time, most int) ([]notice.Message, error) {
	found, err := s.reader.ListDueMessages(ctx, rows.ListDueMessagesParams{Target: target, Now: nanos(now), Most: int64(most)})
	return s.asMessages(found, err)
}

// NextMessage implements [notice.Box].
func (s *Store) NextMessage(ctx context.Context, target string) (time.Time, error) {
	due, err := s.reader.GetNextDue(ctx, target)
	if err != nil {
		return time.Time{}, fmt.Errorf("read when the next message is due: %w", explain(s.path, err))
	}
	return fromNanos(due), nil
}

// MessageSent implements [notice.Box].
func (s *Store) MessageSent(_ context.Context, id int64, at time.Time) error {
	return s.change(func(ctx context.Context, b *batch) error {
		return b.q.MessageDelivered(ctx, rows.MessageDeliveredParams{Delivered: nanos(at), ID: id})
	})
}

// MessageFailed implements [notice.Box].
func (s *Store) MessageFailed(_ context.Context, id int64, again time.Time, why string) error {
	return s.change(func(ctx context.Context, b *batch) error {
		return b.q.MessageFailed(ctx, rows.MessageFailedParams{Due: nanos(again), Failure: why, ID: id})
	})
}

// Messages gives a tenant's newest messages, the newest first.
func (s *Store) Messages(ctx context.Context, tenant string, most int) ([]notice.Message, error) {
	found, err := s.reader.ListMessages(ctx, rows.ListMessagesParams{Tenant: tenant, Most: int64(most)})
	return s.asMessages(found, err)
}

// DropMessages forgets messages made before a time, also those that nobody could
// deliver. What they were about can be told again then.
func (s *Store) DropMessages(_ context.Context, before time.Time) (dropped int, err error) {
	err = s.change(func(ctx context.Context, b *batch) error {
		n, err := b.q.DropMessages(ctx, nanos(before))
		dropped = int(n)
		return err
	})
	return dropped, err
}

func (s *Store) asMessages(found []rows.Outbox, err error) ([]notice.Message, error) {
	if err != nil {
		return nil, fmt.Errorf("read the messages: %w", explain(s.path, err))
	}
	all := make([]notice.Message, len(found))
	for i, r := range found {
		all[i] = notice.Message{
			ID: r.ID, Tenant: r.Tenant, Target: r.Target, Event: r.Event, Subject: r.Subject, Body: r.Body, Created: fromNanos(r.Created),
			Due: fromNanos(r.Due), Tries: int(r.Tries), Failure: r.Failure, Sent: fromNanos(r.Delivered),
		}
	}
	return all, nil
}
