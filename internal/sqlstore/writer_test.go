package sqlstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belay-run/belay/internal/conversation"
)

type commit struct{ writes, lines int }

func TestAppendsThatWaitShareOneCommit(t *testing.T) {
	commits := make(chan commit, 100)
	s := open(t, t.TempDir(), Options{committed: func(w, l int) { commits <- commit{w, l} }})
	held, letGo := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		_ = s.writer.do(&write{apply: func(context.Context, *batch) error { close(held); <-letGo; return nil }})
	})
	<-held
	const n = 50
	for i := range n {
		wg.Go(func() {
			id := conversation.ID{Sender: fmt.Sprint(i)}
			if err := s.AppendTrace(t.Context(), id, []conversation.Trace{{Data: []byte(`{}`)}}); err != nil {
				t.Error(err)
			}
			if err := s.Append(t.Context(), id, []conversation.Event{says(1, "a")}); err != nil {
				t.Error(err)
			}
		})
	}
	waitForQueue(s, n)
	close(letGo)
	wg.Wait()
	if first, next := <-commits, <-commits; first.writes != 1 || next != (commit{n, n}) {
		t.Errorf("commits %v and %v, want one with all %d appends and their lines", first, next, n)
	}
}

func TestTraceLinesReachTheDiskWithoutAnAppend(t *testing.T) {
	commits := make(chan commit, 100)
	s := open(t, t.TempDir(), Options{committed: func(w, l int) { commits <- commit{w, l} }})
	add(t, s, ann, says(1, "a"))
	<-commits
	began := time.Now()
	if err := s.AppendTrace(t.Context(), ann, []conversation.Trace{{}, {}}); err != nil {
		t.Fatal(err)
	}
	if err := s.AddHookStats([]HookStat{{Hook: "h", Asked: 1}}); err != nil {
		t.Fatal(err)
	}
	if got := <-commits; got != (commit{0, 2}) {
		t.Errorf("commit %v, want the two lines alone", got)
	}
	if took := time.Since(began); took < flushAfter/2 {
		t.Errorf("written after %v: lines are meant to wait for an append", took)
	}
}

func TestALotOfTraceIsWrittenAtOnce(t *testing.T) {
	dir := t.TempDir()
	commits := make(chan commit, 100)
	s := open(t, dir, Options{committed: func(w, l int) { commits <- commit{w, l} }})
	s.writer.mu.Lock()
	s.writer.wait = time.Hour // the timer is out of the game
	s.writer.mu.Unlock()
	if err := s.AppendTrace(t.Context(), ann, []conversation.Trace{{Data: bytes.Repeat([]byte("x"), eager+1)}}); err != nil {
		t.Fatal(err)
	}
	if got := <-commits; got != (commit{0, 1}) {
		t.Errorf("commit %v, want the line", got)
	}
}

func TestADiskThatFailsIsToldOnceAndLinesBeyondTheLimitAreRefused(t *testing.T) {
	var log bytes.Buffer
	s := open(t, t.TempDir(), Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	add(t, s, ann, says(1, "a"))
	limitPages(t, s, 4)
	line := func() error {
		return s.AppendTrace(t.Context(), ann, []conversation.Trace{{Data: bytes.Repeat([]byte("secret"), 1<<20)}})
	}
	var err error
	n := 0
	for err == nil && n < 10 {
		err = line()
		n++
	}
	if !errors.Is(err, ErrDisk) || n != 4 { // 6 MiB each, 16 MiB at most before the next
		t.Errorf("line %d: error %v, want ErrDisk at line 4", n, err)
	}
	if err := s.Flush(t.Context()); !errors.Is(err, ErrDisk) {
		t.Errorf("Flush: error %v, want ErrDisk", err)
	}
	add(t, s, ann, says(2, "b"))
	limitPages(t, s, 100_000)
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Traces(t.Context(), ann, ""); err != nil || len(got) != 3 {
		t.Errorf("%d lines, %v; want the three that were taken", len(got), err)
	}
	closeStore(t, s) // and with it the goroutine that logs
	said := log.String()
	if n := strings.Count(said, "wait for the disk"); n != 1 {
		t.Errorf("told %d times, want once:\n%s", n, said)
	}
	if !strings.Contains(said, "takes trace lines again") {
		t.Errorf("the recovery is not told:\n%s", said)
	}
	if strings.Contains(said, "secret") {
		t.Error("the log has a text in it")
	}
}

func TestDeletingInTheMiddleOfATurn(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	for round := range 30 {
		id := conversation.ID{Sender: fmt.Sprint(round)}
		add(t, s, id, says(1, "a"))
		var wg sync.WaitGroup
		wg.Go(func() {
			for seq := int64(2); seq < 8; seq++ {
				if err := s.AppendTrace(t.Context(), id, []conversation.Trace{{Turn: "t"}}); err != nil {
					t.Error(err)
				}
				err := s.Append(t.Context(), id, []conversation.Event{says(seq, "b")})
				if errors.Is(err, ErrConflict) {
					return // deleted: the turn ends
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
		wg.Go(func() {
			if there, err := s.Delete(t.Context(), id); err != nil || !there {
				t.Errorf("deleted: %v, %v", there, err)
			}
		})
		wg.Wait()
		if err := s.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := load(t, s, id); len(got) != 0 {
			t.Errorf("round %d: %d events are left", round, len(got))
		}
		if _, err := s.Traces(t.Context(), id, ""); err != nil {
			t.Error(err)
		}
		add(t, s, id, says(1, "anew"))
	}
}

func TestAReaderThatHoldsTheLogBackDelaysTheClearingOnly(t *testing.T) {
	dir := t.TempDir()
	var log syncBuffer
	s := open(t, dir, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	add(t, s, ann, says(1, "a"))
	gone := sealedKey(t, s, ann)

	db, err := connect(dir, readerPragmas)
	if err != nil {
		t.Fatal(err)
	}
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var n int
	if err := tx.QueryRowContext(t.Context(), "SELECT count(*) FROM event").Scan(&n); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	if there, err := s.Delete(t.Context(), ann); !there || err != nil {
		t.Fatal(there, err)
	}
	if !strings.Contains(log.String(), "will try again") {
		t.Errorf("the delay is not told: %s", log.String())
	}
	add(t, s, bob, says(1, "b")) // others go on
	if err := errors.Join(tx.Rollback(), db.Close()); err != nil {
		t.Fatal(err)
	}
	for !strings.Contains(log.String(), "out of the write-ahead log") {
		if err := s.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if with := contains(t, dir, gone); with != "" {
		t.Errorf("the key is still in %s", with)
	}
}

// syncBuffer is a buffer for a log that is read while it is written.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
