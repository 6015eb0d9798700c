package sqlstore

import (
	"context"
	"fmt"
	"time"

	"github.com/belay-run/belay/internal/sqlstore/rows"
)

// Message is something that people elsewhere are to be told. It stands in plain, so
// it holds names and ids only.
type Message struct {
	ID      int64 // set by the store
	Tenant  string
	Target  string // the name of a webhook
	Event   string
	Subject string // what it is about, such as an approval's id
	Body    string
	Created time.Time // set by the store
	Due     time.Time // when to try next; zero: delivered or given up
	Tries   int
	Failure string    // of the last try
	Sent    time.Time // when it was delivered; zero for not
}

// PutMessages keeps messages that are due now, and says how many are new: one
// target is told of an event of a subject once.
func (s *Store) PutMessages(_ context.Context, messages ...Message) (added int, err error) {
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

// DueMessages gives messages that are to be sent by now, of all tenants, the longest
// due first.
func (s *Store) DueMessages(ctx context.Context, now time.Time, most int) ([]Message, error) {
	found, err := s.reader.ListDueMessages(ctx, rows.ListDueMessagesParams{Now: nanos(now), Most: int64(most)})
	return s.asMessages(found, err)
}

// NextMessage is when the next message is due; zero for none.
func (s *Store) NextMessage(ctx context.Context) (time.Time, error) {
	due, err := s.reader.GetNextDue(ctx)
	if err != nil {
		return time.Time{}, fmt.Errorf("read when the next message is due: %w", explain(s.path, err))
	}
	return fromNanos(due), nil
}

// MessageSent keeps that a message was delivered.
func (s *Store) MessageSent(_ context.Context, id int64, at time.Time) error {
	return s.change(func(ctx context.Context, b *batch) error {
		return b.q.MessageDelivered(ctx, rows.MessageDeliveredParams{Delivered: nanos(at), ID: id})
	})
}

// MessageFailed keeps why a message was not delivered and when to try again; never
// when that is zero.
func (s *Store) MessageFailed(_ context.Context, id int64, again time.Time, why string) error {
	return s.change(func(ctx context.Context, b *batch) error {
		return b.q.MessageFailed(ctx, rows.MessageFailedParams{Due: nanos(again), Failure: why, ID: id})
	})
}

// Messages gives a tenant's newest messages, the newest first.
func (s *Store) Messages(ctx context.Context, tenant string, most int) ([]Message, error) {
	found, err := s.reader.ListMessages(ctx, rows.ListMessagesParams{Tenant: tenant, Most: int64(most)})
	return s.asMessages(found, err)
}

// DropMessages forgets messages made before a time that were delivered or given up.
// What they were about can be told again then.
func (s *Store) DropMessages(_ context.Context, before time.Time) (dropped int, err error) {
	err = s.change(func(ctx context.Context, b *batch) error {
		n, err := b.q.DropMessages(ctx, nanos(before))
		dropped = int(n)
		return err
	})
	return dropped, err
}

func (s *Store) asMessages(found []rows.Outbox, err error) ([]Message, error) {
	if err != nil {
		return nil, fmt.Errorf("read the messages: %w", explain(s.path, err))
	}
	all := make([]Message, len(found))
	for i, r := range found {
		all[i] = Message{
			ID: r.ID, Tenant: r.Tenant, Target: r.Target, Event: r.Event, Subject: r.Subject, Body: r.Body, Created: fromNanos(r.Created),
			Due: fromNanos(r.Due), Tries: int(r.Tries), Failure: r.Failure, Sent: fromNanos(r.Delivered),
		}
	}
	return all, nil
}
