package sqlstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/belay-run/belay/internal/conversation"
)

func TestEveryAcknowledgedEventOutlivesAKill(t *testing.T) {
	dir := t.TempDir()
	acknowledged := map[string]int64{}
	for round := range 3 {
		cmd, out, _ := spawn(t, "append", dir)
		for n := 0; n < 150+50*round && out.Scan(); n++ {
			note(t, acknowledged, out.Text())
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for out.Scan() { // what it said before the kill took hold
			note(t, acknowledged, out.Text())
		}
		if err := cmd.Wait(); err == nil {
			t.Fatal("the child ended by itself")
		}
		s := open(t, dir, Options{})
		for sender, newest := range acknowledged {
			events := load(t, s, conversation.ID{Sender: sender})
			if int64(len(events)) < newest {
				t.Errorf("round %d: %s has %d events, %d were acknowledged", round, sender, len(events), newest)
			}
			for i, e := range events {
				if want := strings.Repeat(sender, (i+1)*997%40_000); e.Seq != int64(i+1) || e.Text != want {
					t.Fatalf("round %d: event %d of %s is damaged", round, i+1, sender)
				}
			}
			if _, err := s.Traces(t.Context(), conversation.ID{Sender: sender}, ""); err != nil {
				t.Error(err)
			}
		}
		var health string
		if err := s.reads.QueryRowContext(t.Context(), "PRAGMA integrity_check").Scan(&health); err != nil || health != "ok" {
			t.Errorf("round %d: integrity %s, %v", round, health, err)
		}
		closeStore(t, s)
	}
	if len(acknowledged) != 10 {
		t.Errorf("only %d conversations got anywhere", len(acknowledged))
	}
}

// note reads a child's line; one that the kill cut off has no number to trust.
func note(t *testing.T, acknowledged map[string]int64, said string) {
	t.Helper()
	var sender string
	var seq int64
	if n, err := fmt.Sscan(said, &sender, &seq); n == 2 && err == nil {
		acknowledged[sender] = max(acknowledged[sender], seq)
	}
}

func TestASecondOwnerIsToldWhoTheFirstIs(t *testing.T) {
	dir := t.TempDir()
	cmd, out, in := spawn(t, "own", dir)
	if !out.Scan() {
		t.Fatal("the child did not start")
	}
	pid := out.Text()
	_, err := Open(t.Context(), dir, Options{Vault: keys(t, dir)})
	if !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), "process "+pid) || !strings.Contains(err.Error(), "stop it") {
		t.Errorf("error %v, want ErrInUse with process %s and a hint", err, pid)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	s := open(t, dir, Options{})
	_, err = Open(t.Context(), dir, Options{Vault: keys(t, dir)})
	if !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), "this process") {
		t.Errorf("error %v, want ErrInUse by this process", err)
	}
	closeStore(t, s)
	open(t, dir, Options{})
}

func TestAKilledOwnerLeavesTheFolderFree(t *testing.T) {
	dir := t.TempDir()
	cmd, out, _ := spawn(t, "own", dir)
	if !out.Scan() {
		t.Fatal("the child did not start")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	open(t, dir, Options{})
}

func TestAFileThatIsNoDatabaseIsRefusedWithAHint(t *testing.T) {
	for name, content := range map[string][]byte{
		"text":      []byte(strings.Repeat("this is a letter, not a database\n", 300)),
		"truncated": []byte("SQLite format 3\x00"),
		"zeros":     make([]byte, 8192),
		"header of a database, then rubbish": append([]byte("SQLite format 3\x00\x10\x00\x02\x02\x00\x40\x20\x20"),
			bytes.Repeat([]byte{0xa5}, 16384)...),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			v := keys(t, dir)
			if err := os.WriteFile(filepath.Join(dir, database), content, 0o600); err != nil {
				t.Fatal(err)
			}
			for verb, err := range map[string]error{
				"Open":   second(Open(t.Context(), dir, Options{Vault: v})),
				"Attach": second(Attach(t.Context(), dir, Options{Vault: v})),
			} {
				if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "backup") || !strings.Contains(err.Error(), dir) {
					t.Errorf("%s: error %v, want ErrDamaged with the file and a hint", verb, err)
				}
			}
		})
	}
}

func TestDamageInTheMiddleIsNeverTakenForAnEmptyRecord(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	for seq := range int64(50) {
		add(t, s, ann, says(seq+1, strings.Repeat("a", 2000)))
	}
	closeStore(t, s)
	path := filepath.Join(dir, database)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const page = 4096
	for at := page; at+page <= len(whole); at += 3 * page {
		damaged := bytes.Clone(whole)
		copy(damaged[at:at+page], bytes.Repeat([]byte{0xa5}, page))
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := Open(t.Context(), dir, Options{Vault: keys(t, dir)})
		if err != nil {
			continue // refused at once
		}
		events, err := s.Load(t.Context(), ann)
		if err == nil && len(events) != 50 {
			t.Errorf("page %d damaged: %d events and no error", at/page, len(events))
		}
		_ = s.Close() // may fail on such a file
	}
}

func TestANewerSchemaIsRefusedAndLeftAlone(t *testing.T) {
	dir := t.TempDir()
	closeStore(t, open(t, dir, Options{}))
	tamper(t, dir, "INSERT INTO schema_version (version_id, is_applied) VALUES (99, 1)")
	before, err := os.ReadFile(filepath.Join(dir, database))
	if err != nil {
		t.Fatal(err)
	}
	for verb, err := range map[string]error{
		"Open":   second(Open(t.Context(), dir, Options{Vault: keys(t, dir)})),
		"Attach": second(Attach(t.Context(), dir, Options{})),
	} {
		if !errors.Is(err, ErrSchema) || !strings.Contains(err.Error(), "schema 99") || !strings.Contains(err.Error(), "install") {
			t.Errorf("%s: error %v, want ErrSchema with the version and a hint", verb, err)
		}
	}
	after, err := os.ReadFile(filepath.Join(dir, database))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(before, after) {
		t.Error("the file was changed")
	}
}

func TestAttachDoesNotMigrate(t *testing.T) {
	dir := t.TempDir()
	closeStore(t, open(t, dir, Options{}))
	tamper(t, dir, "DELETE FROM schema_version WHERE version_id > 0")
	_, err := Attach(t.Context(), dir, Options{})
	if !errors.Is(err, ErrSchema) || !strings.Contains(err.Error(), "belay serve") {
		t.Errorf("error %v, want ErrSchema with a hint", err)
	}
	if _, err := Attach(t.Context(), t.TempDir(), Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v for an empty folder, want fs.ErrNotExist", err)
	}
}

func TestADiskThatFillsUpFailsAppendsUntilThereIsRoom(t *testing.T) {
	dir := t.TempDir()
	cmd, out, _ := spawn(t, "fill", dir)
	if !out.Scan() {
		t.Fatalf("the child failed: %v", cmd.Wait())
	}
	var newest int
	if _, err := fmt.Sscan(out.Text(), &newest); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	s := open(t, dir, Options{})
	if got := load(t, s, ann); len(got) != newest || got[newest-1].Text != "y" {
		t.Errorf("%d events, want %d", len(got), newest)
	}
	if got := load(t, s, bob); len(got) != 0 {
		t.Errorf("%d events of an append that failed", len(got))
	}
}

// limitPages lets the database grow by so many pages at most.
func limitPages(t *testing.T, s *Store, more int) {
	t.Helper()
	err := s.writer.do(&write{apply: func(ctx context.Context, b *batch) error {
		var pages, limit int
		if err := b.conn.QueryRowContext(ctx, "PRAGMA page_count").Scan(&pages); err != nil {
			return err
		}
		return b.conn.QueryRowContext(ctx, fmt.Sprintf("PRAGMA max_page_count = %d", pages+more)).Scan(&limit)
	}})
	if err != nil {
		t.Fatal(err)
	}
}

func TestAFullDiskReachesEveryCallerOfTheTransaction(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	add(t, s, ann, says(1, "a"))
	limitPages(t, s, 2)
	big := strings.Repeat("x", 1<<20)

	// While the writer is held up, all of these come into one transaction.
	held, letGo := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		_ = s.writer.do(&write{apply: func(context.Context, *batch) error { close(held); <-letGo; return nil }})
	})
	<-held
	errs := make([]error, 6)
	for i := range errs {
		wg.Go(func() {
			text := "small"
			if i == 3 {
				text = big
			}
			errs[i] = s.Append(t.Context(), conversation.ID{Sender: fmt.Sprint(i)}, []conversation.Event{says(1, text)})
		})
	}
	waitForQueue(s, len(errs))
	close(letGo)
	wg.Wait()
	for i, err := range errs {
		if !errors.Is(err, ErrDisk) {
			t.Errorf("caller %d: error %v, want ErrDisk", i, err)
		}
	}
	limitPages(t, s, 10_000)
	for i := range errs {
		add(t, s, conversation.ID{Sender: fmt.Sprint(i)}, says(1, big))
	}
	add(t, s, ann, says(2, "b"))
}

// waitForQueue waits until so many writes are handed over.
func waitForQueue(s *Store, n int) {
	for {
		s.writer.mu.Lock()
		got := len(s.writer.queue)
		s.writer.mu.Unlock()
		if got >= n {
			return
		}
		runtime.Gosched()
	}
}

func TestTraceLinesThatDoNotFitKeepNoEventFromBeingWritten(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	add(t, s, ann, says(1, "a"))
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	limitPages(t, s, 4)
	line := []conversation.Trace{{Data: []byte(strings.Repeat("x", 100_000))}}
	if err := s.AppendTrace(t.Context(), ann, line); err != nil {
		t.Fatal(err)
	}
	if err := s.Flush(t.Context()); !errors.Is(err, ErrDisk) {
		t.Errorf("Flush: error %v, want ErrDisk", err)
	}
	add(t, s, ann, says(2, "b"))
	add(t, s, bob, says(1, "c"))
	if _, err := s.Traces(t.Context(), ann, ""); !errors.Is(err, ErrDisk) {
		t.Errorf("Traces: error %v, want ErrDisk", err)
	}
	limitPages(t, s, 1000)
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Traces(t.Context(), ann, ""); err != nil || len(got) != 1 {
		t.Errorf("%d lines, %v: the line is lost", len(got), err)
	}
}

func TestCloseSaysWhatIsLost(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(t.Context(), dir, Options{Vault: keys(t, dir)})
	if err != nil {
		t.Fatal(err)
	}
	add(t, s, ann, says(1, "a"))
	limitPages(t, s, 4)
	if err := s.AppendTrace(t.Context(), ann, []conversation.Trace{{Data: []byte(strings.Repeat("x", 100_000))}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); !errors.Is(err, ErrDisk) || !strings.Contains(err.Error(), "1 trace lines") {
		t.Errorf("error %v, want ErrDisk and what is lost", err)
	}
	s = open(t, dir, Options{})
	add(t, s, ann, says(2, "b"))
}

func TestAConnectionThatBreaksIsReplaced(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	add(t, s, ann, says(1, "a"))
	// A transaction left open on the connection: nothing can begin any more. (The
	// writer's goroutine sleeps, so this may touch what is its own.)
	if _, err := s.writer.session.conn.ExecContext(t.Context(), "BEGIN"); err != nil {
		t.Fatal(err)
	}
	if err := s.Append(t.Context(), ann, []conversation.Event{says(2, "b")}); err == nil {
		t.Fatal("this test does not break the connection")
	}
	add(t, s, ann, says(2, "b"))
	if got := load(t, s, ann); len(got) != 2 {
		t.Errorf("%d events", len(got))
	}
}
