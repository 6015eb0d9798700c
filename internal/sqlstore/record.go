package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/belay-run/belay/internal/conversation"
	"github.com/belay-run/belay/internal/sqlstore/rows"
)

// errGone says that a conversation was deleted under its handle.
var errGone = errors.New("the conversation was deleted")

// Load returns the events of a conversation in order; none is no error. Times
// come back in UTC.
func (s *Store) Load(ctx context.Context, id conversation.ID) ([]conversation.Event, error) {
	var events []conversation.Event
	err := s.inConversation(ctx, id, func(o *opener) error {
		found, err := o.q.ListEvents(ctx, o.row)
		if err != nil {
			return err
		}
		events = make([]conversation.Event, 0, len(found))
		for _, r := range found {
			body, err := o.open(ctx, r.Body, eventRow(id, r.Seq, r.Kind, r.Turn, r.At))
			if err != nil {
				return fmt.Errorf("event %d: %w", r.Seq, err)
			}
			e, err := decodeEvent(body)
			if err != nil {
				return fmt.Errorf("event %d: %w", r.Seq, err)
			}
			e.Seq, e.Kind, e.Turn, e.At = r.Seq, conversation.Kind(r.Kind), r.Turn, fromNanos(r.At)
			events = append(events, e)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("load a conversation: %w", explain(s.path, err))
	}
	return events, nil
}

// inConversation runs read on one state of the database; not at all when the
// conversation is not there.
func (s *Store) inConversation(ctx context.Context, id conversation.ID, read func(*opener) error) error {
	tx, err := s.reads.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // nothing was written
	q := s.reader.WithTx(tx)
	found, err := q.FindConversation(ctx, rows.FindConversationParams(id))
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	key, err := s.keys.open(found.ID, found.Sealed)
	if err != nil {
		return err
	}
	return read(&opener{id: id, row: found.ID, key: key, q: q})
}

// Append adds events, whose Seq the caller has set, and returns when they are on
// disk. They must follow the newest event without a gap, else the error is
// [ErrConflict] and nothing is added. Once handed over, a context that ends no
// longer stops them.
func (s *Store) Append(ctx context.Context, id conversation.ID, events []conversation.Event) error {
	if s.writer == nil {
		return ErrReadOnly
	}
	if s.writer.closed() {
		return ErrClosed
	}
	if len(events) == 0 {
		return nil
	}
	for i, e := range events {
		if e.Seq != events[0].Seq+int64(i) || e.Seq < 1 {
			return fmt.Errorf("append events: event %d after %d: %w", e.Seq, events[0].Seq+int64(i)-1, ErrConflict)
		}
	}
	for {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("append events: %w", err)
		}
		err := s.append(ctx, id, events)
		if errors.Is(err, errGone) {
			continue // with a new handle; only another Delete can bring us here again
		}
		if err != nil {
			return fmt.Errorf("append events: %w", err)
		}
		return nil
	}
}

func (s *Store) append(ctx context.Context, id conversation.ID, events []conversation.Event) error {
	h, err := s.keys.acquire(ctx, id, s.find)
	if err != nil {
		return explain(s.path, err)
	}
	defer s.keys.release(h)

	inserts := make([]rows.InsertEventParams, len(events))
	var blobs []*rows.InsertBlobParams
	for i, e := range events {
		body, err := encodeEvent(e)
		if err != nil {
			return err
		}
		at := nanos(e.At)
		sealed, blob := seal(h, body, eventRow(id, e.Seq, string(e.Kind), e.Turn, at))
		inserts[i] = rows.InsertEventParams{
			Seq: e.Seq, Tenant: id.Tenant, Turn: e.Turn, Kind: string(e.Kind), At: at, Body: sealed,
		}
		if blob != nil {
			blobs = append(blobs, blob)
		}
	}
	return s.writer.do(&write{apply: func(ctx context.Context, b *batch) error {
		return insertEvents(ctx, b, h, inserts, blobs)
	}})
}

func insertEvents(ctx context.Context, b *batch, h *handle, inserts []rows.InsertEventParams, blobs []*rows.InsertBlobParams) error {
	if h.dead.Load() {
		return errGone
	}
	row, err := b.conversation(ctx, h)
	if err != nil {
		return err
	}
	first, last := inserts[0].Seq, inserts[len(inserts)-1].Seq
	n, err := b.q.AdvanceConversation(ctx, rows.AdvanceConversationParams{
		Newest: last, Updated: nanos(b.now), ID: row, Before: first - 1,
	})
	if err != nil {
		return err
	}
	if n == 0 {
		newest, err := b.q.GetLastSeq(ctx, row)
		if err != nil {
			return fmt.Errorf("find the newest event: %w", err)
		}
		return fmt.Errorf("event %d after %d: %w", first, newest, ErrConflict)
	}
	for _, blob := range blobs {
		blob.Conversation = row
		if err := b.q.InsertBlob(ctx, *blob); err != nil {
			return fmt.Errorf("write a large body: %w", err)
		}
	}
	for _, insert := range inserts {
		insert.Conversation = row
		if err := b.q.InsertEvent(ctx, insert); err != nil {
			return fmt.Errorf("write event %d: %w", insert.Seq, err)
		}
	}
	return nil
}

// find is the keyring's view of the database.
func (s *Store) find(ctx context.Context, id conversation.ID) (rows.FindConversationRow, error) {
	return s.reader.FindConversation(ctx, rows.FindConversationParams(id))
}

// Delete drops a conversation's data key, events and traces, and clears the
// write-ahead log: no file of the folder has the key any more. (A reader in
// another process can delay that last step; it is then logged and tried again.)
// It says whether there was such a conversation. Whoever is in the middle of a
// turn of it gets [ErrConflict] from the next append.
func (s *Store) Delete(ctx context.Context, id conversation.ID) (bool, error) {
	if s.writer == nil {
		return false, ErrReadOnly
	}
	if err := ctx.Err(); err != nil {
		return false, fmt.Errorf("delete a conversation: %w", err)
	}
	var row int64
	err := s.writer.do(&write{
		shred: true,
		apply: func(ctx context.Context, b *batch) (err error) {
			row, err = drop(ctx, b, id)
			b.shred = b.shred || row != 0
			s.keys.kill(id, row) // what comes later in this transaction must not use it
			return err
		},
		// And again: until the transaction's end, others could still find the key.
		settled: func() { s.keys.kill(id, row) },
	})
	if err != nil {
		return false, fmt.Errorf("delete a conversation: %w", err)
	}
	return row != 0, nil
}

// drop deletes a conversation and gives the row it had, 0 for none.
func drop(ctx context.Context, b *batch, id conversation.ID) (int64, error) {
	found, err := b.q.FindConversation(ctx, rows.FindConversationParams(id))
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	for _, del := range []func(context.Context, int64) error{
		b.q.DeleteEvents, b.q.DeleteTraces, b.q.DeleteBlobs, b.q.DeleteConversation,
	} {
		if err := del(ctx, found.ID); err != nil {
			return 0, err
		}
	}
	return found.ID, b.q.WipeDataKey(ctx, found.KeyID)
}

// Flush waits until everything handed over is on disk.
func (s *Store) Flush(ctx context.Context) error {
	if s.writer == nil {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("flush: %w", err)
	}
	if err := s.writer.do(&write{lines: true}); err != nil {
		return fmt.Errorf("flush: %w", err)
	}
	return nil
}

// Summary is a conversation without what was said in it.
type Summary struct {
	ID      conversation.ID
	Turns   int64
	Events  int64
	Created time.Time
	Updated time.Time // when the newest event was added
}

// List returns the conversations of an agent, the newest first.
func (s *Store) List(ctx context.Context, tenant, agent string) ([]Summary, error) {
	found, err := s.reader.ListConversations(ctx, rows.ListConversationsParams{Tenant: tenant, Agent: agent})
	if err != nil {
		return nil, fmt.Errorf("list conversations: %w", explain(s.path, err))
	}
	all := make([]Summary, len(found))
	for i, c := range found {
		all[i] = Summary{
			ID:    conversation.ID{Tenant: tenant, Agent: agent, Sender: c.Sender},
			Turns: c.Turns, Events: c.LastSeq, Created: fromNanos(c.Created), Updated: fromNanos(c.Updated),
		}
	}
	return all, nil
}

// Idle returns the conversations of an agent whose newest event was added before
// a time, the oldest first.
func (s *Store) Idle(ctx context.Context, tenant, agent string, before time.Time) ([]conversation.ID, error) {
	found, err := s.reader.ListIdleConversations(ctx, rows.ListIdleConversationsParams{Tenant: tenant, Agent: agent, Before: nanos(before)})
	if err != nil {
		return nil, fmt.Errorf("list conversations: %w", explain(s.path, err))
	}
	all := make([]conversation.ID, len(found))
	for i, sender := range found {
		all[i] = conversation.ID{Tenant: tenant, Agent: agent, Sender: sender}
	}
	return all, nil
}

// Updated is when the newest event of a conversation was added; zero when there
// is no such conversation.
func (s *Store) Updated(ctx context.Context, id conversation.ID) (time.Time, error) {
	at, err := s.reader.GetUpdated(ctx, rows.GetUpdatedParams(id))
	if errors.Is(err, sql.ErrNoRows) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("look up the conversation: %w", explain(s.path, err))
	}
	return fromNanos(at), nil
}
