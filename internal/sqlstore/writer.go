package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/belay-run/belay/internal/sqlstore/rows"
)

const (
	// flushAfter is how long trace lines and hook counts may wait for an append
	// to go along with; while the disk fails the wait doubles, up to flushAtMost.
	flushAfter  = 200 * time.Millisecond
	flushAtMost = 5 * time.Second
	// clearPatience is how long the first try to clear the write-ahead log waits
	// for readers.
	clearPatience = 100 * time.Millisecond
	// eager is how many bytes of waiting lines are written without waiting.
	eager = 1 << 20
)

// write is one change handed to the writer.
type write struct {
	// apply makes the change within the batch's transaction. What it returns is
	// the caller's answer; what it has changed until then is undone.
	apply func(ctx context.Context, b *batch) error
	// settled, if set, is called when the transaction has ended.
	settled func()
	shred   bool // clear the write-ahead log before the answer
	lazy    bool // no need to wait for the disk: the next write that does brings it along
	lines   bool // the waiting lines' failure is the answer too

	err  error
	done chan struct{}
}

// line is a trace line that waits to be written.
type line struct {
	handle *handle
	insert rows.InsertTraceParams // without the conversation
	blob   *rows.InsertBlobParams // likewise; nil for a short body
}

func (l line) size() int {
	if l.blob != nil {
		return len(l.blob.Body)
	}
	return len(l.insert.Body)
}

type statKey struct{ tenant, agent, hook string }

// batch is what one transaction writes.
type batch struct {
	writes []*write
	lines  []line
	stats  map[statKey]HookStat
	shred  bool // the write-ahead log is to be cleared
	lazy   bool // nobody waits for the disk
	last   bool // nothing comes after it

	linesErr error
	putOff   bool // lines and counts are left out

	*session
	now     time.Time
	created []*handle // conversations made in this transaction
}

// waited counts what could have waited.
func (b *batch) waited() int { return len(b.lines) + len(b.stats) }

// conversation gives the row of a handle's conversation, which it makes if
// there is none.
func (b *batch) conversation(ctx context.Context, h *handle) (int64, error) {
	if row := h.row.Load(); row != 0 {
		return row, nil
	}
	key, err := b.dataKey(ctx, h.sealed)
	if err != nil {
		return 0, err
	}
	row, err := b.q.InsertConversation(ctx, rows.InsertConversationParams{
		Tenant: h.id.Tenant, Agent: h.id.Agent, Sender: h.id.Sender, KeyID: key, Now: nanos(b.now),
	})
	if err != nil {
		return 0, fmt.Errorf("store a conversation: %w", err)
	}
	h.row.Store(row)
	b.created = append(b.created, h)
	return row, nil
}

// dataKey stores a sealed data key, in the place of a dropped one if there is one.
func (b *batch) dataKey(ctx context.Context, sealed []byte) (int64, error) {
	key, err := b.q.ReuseDataKey(ctx, sealed)
	if errors.Is(err, sql.ErrNoRows) {
		key, err = b.q.InsertDataKey(ctx, sealed)
	}
	if err != nil {
		return 0, fmt.Errorf("store a data key: %w", err)
	}
	return key, nil
}

// writer owns the one connection that writes. Its goroutine takes whatever
// waits into one transaction, syncs once, and answers all.
type writer struct {
	open      func(context.Context) (*session, error)
	explain   func(error) error
	keys      *keyring
	log       *slog.Logger
	clock     func() time.Time
	committed func(writes, lines int) // a test's view of the commits

	mu        sync.Mutex
	queue     []*write
	lines     []line
	lineBytes int // of the lines that wait or are being written
	stats     map[statKey]HookStat
	timer     *time.Timer
	armed     bool // the timer runs
	due       bool // it has run out
	wait      time.Duration
	shred     bool // the log is still to be cleared
	closing   bool
	lost      error // why lines were lost at the end

	wake    chan struct{}
	stopped chan struct{}

	// The goroutine's own while it runs:
	session *session // nil when it broke
	late    bool     // the log could not be cleared when it should have been
}

func (w *writer) start(s *session) {
	w.session = s
	w.wait = flushAfter
	w.stats = map[statKey]HookStat{}
	w.wake = make(chan struct{}, 1)
	w.stopped = make(chan struct{})
	w.timer = time.AfterFunc(time.Hour, w.ring)
	w.timer.Stop()
	go w.run()
}

// ring is the timer's end.
func (w *writer) ring() {
	w.mu.Lock()
	w.armed, w.due = false, true
	w.mu.Unlock()
	w.rouse()
}

func (w *writer) rouse() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// do hands a write over and waits for its end, which is near: a context that
// ends meanwhile changes nothing, for the caller must know what became of it.
func (w *writer) do(wr *write) error {
	wr.done = make(chan struct{})
	w.mu.Lock()
	if w.closing {
		w.mu.Unlock()
		return ErrClosed
	}
	w.queue = append(w.queue, wr)
	w.mu.Unlock()
	w.rouse()
	<-wr.done
	return wr.err
}

// add hands over lines and counts that may wait.
func (w *writer) add(lines []line, stats []HookStat) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closing {
		return ErrClosed
	}
	w.keep(lines, stats)
	if w.lineBytes > eager {
		w.due = true
		w.rouse()
	}
	w.arm()
	return nil
}

// keep adds to what waits; the caller holds mu.
func (w *writer) keep(lines []line, stats []HookStat) {
	w.lines = append(w.lines, lines...)
	for _, l := range lines {
		w.lineBytes += l.size()
	}
	for _, s := range stats {
		key := statKey{s.Tenant, s.Agent, s.Hook}
		w.stats[key] = w.stats[key].plus(s)
	}
}

// arm starts the timer if it does not run; the caller holds mu.
func (w *writer) arm() {
	if !w.armed {
		w.armed = true
		w.timer.Reset(w.wait)
	}
}

// closed says that nothing more is taken.
func (w *writer) closed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closing
}

// waiting is how many bytes of lines are not on disk yet.
func (w *writer) waiting() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lineBytes
}

// close writes what waits and ends the goroutine, but leaves the connection to
// the caller. The error says what was lost.
func (w *writer) close() error {
	w.mu.Lock()
	w.closing = true
	w.timer.Stop()
	w.mu.Unlock()
	w.rouse()
	<-w.stopped
	return w.lost
}

func (w *writer) run() {
	defer close(w.stopped)
	for range w.wake {
		for b := w.take(); b != nil; b = w.take() {
			w.commit(b)
			if b.last {
				return
			}
		}
	}
}

// take takes what is to be written now, nil for nothing.
func (w *writer) take() *batch {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) == 0 && !w.due && !w.closing {
		return nil
	}
	b := &batch{writes: w.queue, last: w.closing}
	if w.due || w.closing { // not with every batch while a reader is in the way
		b.shred, w.shred = w.shred, false
	}
	// While the disk fails, what can wait does so until its time comes.
	lines := w.due || w.closing || w.wait == flushAfter
	b.lazy = !w.due && !w.closing
	for _, wr := range b.writes {
		lines = lines || wr.lines
		b.lazy = b.lazy && wr.lazy
	}
	lines = lines && !b.lazy // they are to be on disk in time
	w.queue, w.due = nil, false
	if lines {
		b.lines, b.stats = w.lines, w.stats
		w.lines, w.stats = nil, map[statKey]HookStat{}
	}
	return b
}

// commit writes a batch and answers its writes.
func (w *writer) commit(b *batch) {
	ctx := context.Background() // nobody's context may stop what belongs to all
	err := w.transact(ctx, b)
	if err != nil && len(b.writes) > 0 && b.waited() > 0 {
		// What can wait must not keep the rest from being written.
		b.linesErr, b.putOff = err, true
		err = w.transact(ctx, b)
	}
	if err != nil && !b.putOff {
		b.linesErr = err
	}
	w.settleLines(b)
	for _, wr := range b.writes {
		switch {
		case err != nil:
			wr.err = err
		case wr.lines && wr.err == nil:
			wr.err = b.linesErr
		}
		if wr.settled != nil {
			wr.settled()
		}
		if !wr.shred {
			close(wr.done)
		}
	}
	if w.committed != nil && err == nil {
		w.committed(len(b.writes), len(b.lines))
	}
	if b.shred {
		w.clear(ctx)
	}
	for _, wr := range b.writes {
		if wr.shred {
			close(wr.done)
		}
	}
}

// transact runs the batch's transaction. An error means that nothing of it
// stands.
func (w *writer) transact(ctx context.Context, b *batch) (err error) {
	if len(b.writes) == 0 && b.waited() == 0 {
		return nil
	}
	if w.session == nil {
		if w.session, err = w.open(ctx); err != nil {
			return w.explain(err)
		}
	}
	b.session, b.now = w.session, w.clock()
	err = b.waitForDisk(ctx, !b.lazy)
	if err == nil {
		err = b.begin(ctx)
	}
	if err != nil {
		if !busy(err) { // nothing of this connection's past may stay in the way
			err = errors.Join(err, w.session.close())
			w.session = nil
		}
		return w.explain(err)
	}
	err = w.fill(ctx, b)
	if err == nil {
		err = b.session.commit(ctx)
	}
	if err != nil {
		_ = b.rollback(ctx) // fails when SQLite has done so by itself
		b.undo(0)
		return w.explain(err)
	}
	return nil
}

func (w *writer) fill(ctx context.Context, b *batch) (err error) {
	for _, wr := range b.writes {
		if wr.apply == nil {
			continue
		}
		if wr.err, err = b.apart(ctx, wr.apply); err != nil {
			return err
		}
		wr.err = w.explain(wr.err)
	}
	if b.waited() == 0 || b.putOff {
		return nil
	}
	if b.linesErr, err = b.apart(ctx, insertLines); err != nil {
		return err
	}
	b.linesErr = w.explain(b.linesErr)
	return nil
}

// apart runs apply so that its failure undoes what it did and nothing else. The
// second error is one that ends the whole transaction.
func (b *batch) apart(ctx context.Context, apply func(context.Context, *batch) error) (own, all error) {
	if err := b.save(ctx); err != nil {
		return nil, err
	}
	before := len(b.created)
	own = apply(ctx, b)
	if own == nil {
		return nil, b.release(ctx)
	}
	if !ownFault(own) {
		return nil, own
	}
	b.undo(before)
	if err := b.restore(ctx); err != nil {
		return nil, errors.Join(own, err)
	}
	return own, b.release(ctx)
}

// undo forgets the conversations made since, which are not in the database.
func (b *batch) undo(since int) {
	for _, h := range b.created[since:] {
		h.row.Store(0)
	}
	b.created = b.created[:since]
}

// insertLines writes the trace lines and hook counts of a batch.
func insertLines(ctx context.Context, b *batch) error {
	for _, l := range b.lines {
		if l.handle.dead.Load() {
			continue // settleLines tells
		}
		row, err := b.conversation(ctx, l.handle)
		if err != nil {
			return err
		}
		if l.blob != nil {
			l.blob.Conversation = row
			if err := b.q.InsertBlob(ctx, *l.blob); err != nil {
				return fmt.Errorf("write a trace line's body: %w", err)
			}
		}
		l.insert.Conversation = row
		if err := b.q.InsertTrace(ctx, l.insert); err != nil {
			return fmt.Errorf("write a trace line: %w", err)
		}
	}
	for _, s := range b.stats {
		if err := b.q.AddHookStat(ctx, s.params()); err != nil {
			return fmt.Errorf("count what a hook did: %w", err)
		}
	}
	return nil
}

// settleLines lets go of lines that were written, and keeps the others for
// another try unless that is in vain.
func (w *writer) settleLines(b *batch) {
	if b.waited() == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	failing := w.wait > flushAfter
	if b.linesErr != nil && !ownFault(b.linesErr) && !b.last {
		if !failing {
			w.log.Error("trace lines and hook counts wait for the disk", "lines", len(b.lines), "error", b.linesErr)
		}
		w.wait = min(2*w.wait, flushAtMost)
		w.putBack(b)
		w.arm()
		return
	}
	dead := 0
	for _, l := range b.lines {
		if l.handle.dead.Load() {
			dead++
		}
		w.keys.release(l.handle)
		w.lineBytes -= l.size()
	}
	if dead > 0 {
		w.log.Info("trace lines of a deleted conversation are dropped", "lines", dead)
	}
	if b.linesErr != nil {
		w.log.Error("trace lines and hook counts are lost", "lines", len(b.lines), "hooks", len(b.stats), "error", b.linesErr)
		if b.last {
			w.lost = fmt.Errorf("%d trace lines and the counts of %d hooks are lost: %w", len(b.lines), len(b.stats), b.linesErr)
		}
		return
	}
	if failing {
		w.log.Info("the disk takes trace lines again", "lines", len(b.lines))
		w.wait = flushAfter
	}
}

// putBack lets a batch's lines and counts wait again, before newer ones; the
// caller holds mu.
func (w *writer) putBack(b *batch) {
	w.lines = append(b.lines, w.lines...)
	w.keep(nil, slices.Collect(maps.Values(b.stats)))
}

// clear takes old pages, with keys that were dropped, out of the write-ahead
// log. A reader in another process may keep it from doing so for a while.
func (w *writer) clear(ctx context.Context) {
	cleared, err := false, errors.New("there is no connection")
	patience := clearPatience
	if w.late {
		patience = 0 // meanwhile nobody can write
	}
	if w.session != nil {
		cleared, err = w.session.truncateLog(ctx, patience)
	}
	switch {
	case err != nil || !cleared:
		if !w.late {
			w.log.Warn("a dropped key is still in the write-ahead log, which somebody reads; will try again", "error", err)
		}
		w.late = true
		w.mu.Lock()
		w.shred = true
		if !w.closing { // the last connection to close clears the log
			w.arm()
		}
		w.mu.Unlock()
	case w.late:
		w.log.Info("the dropped key is out of the write-ahead log")
		w.late = false
	}
}
