package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/belay-run/belay/internal/conversation"
	"github.com/belay-run/belay/internal/sqlstore/rows"
)

// maxWaiting is how many bytes of trace lines may wait for the disk; a caller
// that brings more must wait itself.
const maxWaiting = 16 << 20

// AppendTrace adds lines to the trace and sets their Seq, which grows over all
// conversations of the store. It returns before they are on disk; [Store.Flush]
// waits for them. When the disk does not keep up it waits, and when the disk
// fails, lines beyond 16 MiB are refused.
func (s *Store) AppendTrace(ctx context.Context, id conversation.ID, lines []conversation.Trace) error {
	if s.writer == nil {
		return ErrReadOnly
	}
	if s.writer.closed() {
		return ErrClosed
	}
	if len(lines) == 0 {
		return nil
	}
	if s.writer.waiting() > maxWaiting {
		if err := s.Flush(ctx); err != nil {
			return fmt.Errorf("append %d trace lines: %w", len(lines), err)
		}
	}
	h, err := s.keys.acquire(ctx, id, s.find)
	if err != nil {
		return fmt.Errorf("append %d trace lines: %w", len(lines), explain(s.path, err))
	}
	defer s.keys.release(h)

	waiting := make([]line, len(lines))
	last := s.traceSeq.Add(int64(len(lines)))
	for i := range lines {
		t := &lines[i]
		t.Seq = last - int64(len(lines)-1-i)
		at := nanos(t.At)
		sealed, blob := seal(h, t.Data, traceRow(id, t.Seq, t.Turn, at))
		waiting[i] = line{handle: h, blob: blob, insert: rows.InsertTraceParams{
			Seq: t.Seq, Tenant: id.Tenant, Turn: t.Turn, At: at, Body: sealed,
		}}
		s.keys.hold(h)
	}
	if err := s.writer.add(waiting, nil); err != nil {
		for range waiting {
			s.keys.release(h)
		}
		return fmt.Errorf("append %d trace lines: %w", len(lines), err)
	}
	return nil
}

// Traces returns the lines of a conversation, oldest first; with turn set, of
// that turn alone. Lines handed over before are among them.
func (s *Store) Traces(ctx context.Context, id conversation.ID, turn string) ([]conversation.Trace, error) {
	if err := s.Flush(ctx); err != nil && !errors.Is(err, ErrClosed) {
		return nil, fmt.Errorf("read a trace: %w", err)
	}
	var lines []conversation.Trace
	err := s.inConversation(ctx, id, func(o *opener) error {
		found, err := listTraces(ctx, o, turn)
		if err != nil {
			return err
		}
		lines = make([]conversation.Trace, 0, len(found))
		for _, r := range found {
			data, err := o.open(ctx, r.Body, traceRow(id, r.Seq, r.Turn, r.At))
			if err != nil {
				return fmt.Errorf("trace line %d: %w", r.Seq, err)
			}
			// Lines with the same large body must not share memory.
			lines = append(lines, conversation.Trace{Seq: r.Seq, Turn: r.Turn, At: fromNanos(r.At), Data: slices.Clone(data)})
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read a trace: %w", explain(s.path, err))
	}
	return lines, nil
}

func listTraces(ctx context.Context, o *opener, turn string) ([]rows.ListTracesRow, error) {
	if turn == "" {
		return o.q.ListTraces(ctx, o.row)
	}
	found, err := o.q.ListTurnTraces(ctx, rows.ListTurnTracesParams{Conversation: o.row, Turn: turn})
	if err != nil {
		return nil, err
	}
	all := make([]rows.ListTracesRow, len(found))
	for i, r := range found {
		all[i] = rows.ListTracesRow(r)
	}
	return all, nil
}
