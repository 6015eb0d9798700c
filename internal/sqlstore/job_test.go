package sqlstore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belay-run/belay/internal/job"
	"github.com/belay-run/belay/internal/job/jobtest"
	"github.com/belay-run/belay/internal/sqlstore/rows"
)

func TestJobs(t *testing.T) {
	jobtest.TestJournal(t, func(t *testing.T) job.Journal { return open(t, t.TempDir(), Options{}).Jobs() })
}

func anOrder(name string) job.Order {
	return job.Order{ID: job.ID{Tenant: "main", Job: name}, Flow: "merge", Shape: 1, Agent: "reviewer", Input: json.RawMessage(`{"n":1}`), Created: at}
}

// taken makes a job and claims it.
func taken(t testing.TB, j *Jobs, name string) job.Lease {
	t.Helper()
	if err := j.Create(t.Context(), anOrder(name)); err != nil {
		t.Fatal(err)
	}
	return claimed(t, j, name)
}

func claimed(t testing.TB, j *Jobs, name string) job.Lease {
	t.Helper()
	leases, err := j.Claim(t.Context(), job.Claim{Owner: "me", Now: at, Until: at.Add(time.Minute), Limit: 1})
	if err != nil || len(leases) != 1 || leases[0].Job != name {
		t.Fatalf("claimed %v, %v; want %s", leases, err, name)
	}
	return leases[0]
}

func begunRecord(key, input string) job.Record {
	c := job.Call{Key: key, Kind: "tool", Input: json.RawMessage(input)}
	return job.Record{At: at, What: job.Begun, Key: key, Kind: c.Kind, Try: 1, Digest: c.Digest(), Input: c.Input}
}

func answer(key, value string) job.Record {
	return job.Record{At: at, What: job.Answered, Key: key, Answer: &job.Answer{Value: json.RawMessage(value), Tries: 1}}
}

func TestTheNextOwnerOfAFolderTakesTheJobsOver(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	old := taken(t, s.Jobs(), "a")
	if err := s.Jobs().Begin(t.Context(), old, []job.Record{begunRecord("k", `1`)}); err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
	s = open(t, dir, Options{})
	if _, err := s.Jobs().Load(t.Context(), old); !errors.Is(err, job.ErrLost) {
		t.Errorf("the old lease: %v", err)
	}
	now := claimed(t, s.Jobs(), "a")
	h, err := s.Jobs().Load(t.Context(), now)
	if err != nil || len(h.Records) != 1 || now.Epoch <= old.Epoch {
		t.Errorf("%+v, %v, epochs %d and %d", h.Records, err, old.Epoch, now.Epoch)
	}
}

func TestJobsOfAnAttachedStoreCanBeReadOnly(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	l := taken(t, s.Jobs(), "a")
	guest, err := Attach(t.Context(), dir, Options{Vault: keys(t, dir)})
	if err != nil {
		t.Fatal(err)
	}
	defer closeStore(t, guest)
	if h, err := guest.Jobs().History(t.Context(), l.ID); err != nil || string(h.Job.Input) != `{"n":1}` {
		t.Errorf("%+v, %v", h, err)
	}
	for doing, err := range map[string]error{
		"Create": guest.Jobs().Create(t.Context(), anOrder("b")),
		"Keep":   guest.Jobs().Keep(t.Context(), l, []job.Record{answer("k", `1`)}),
		"Cancel": guest.Jobs().Cancel(t.Context(), l.ID, job.Cancellation{At: at}),
	} {
		if !errors.Is(err, ErrReadOnly) {
			t.Errorf("%s: %v, want ErrReadOnly", doing, err)
		}
	}
}

func TestNoTextOfAJobStandsInAnyFile(t *testing.T) {
	const planted = "4111-planted-1111"
	dir := t.TempDir()
	s := open(t, dir, Options{})
	j, ctx := s.Jobs(), t.Context()
	text := json.RawMessage(`"` + planted + `"`)
	long := json.RawMessage(`"` + strings.Repeat(planted, 10<<10) + `"`)
	o := anOrder("a")
	o.Input = text
	q := job.Question{Key: "q " + planted, Kind: planted, Input: text}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(j.Create(ctx, o))
	l := claimed(t, j, "a")
	check(j.Begin(ctx, l, []job.Record{begunRecord("k "+planted, string(long))}))
	check(j.Keep(ctx, l, []job.Record{
		{At: at, What: job.Answered, Key: "k " + planted, Answer: &job.Answer{Value: long, Failure: &job.Failure{Kind: planted, Message: planted}}},
		{At: at, What: job.Asked, Key: q.Key, Kind: q.Kind, Digest: q.Digest(), Input: q.Input},
	}))
	check(j.Decide(ctx, job.Decision{ID: l.ID, Key: q.Key, Digest: q.Digest(), Answer: job.Answer{Value: text}, By: planted, At: at}))
	check(j.Cancel(ctx, l.ID, job.Cancellation{At: at, By: planted, Reason: planted}))
	check(j.End(ctx, l, job.End{State: job.Cancelled, Reason: planted, Output: long}, at))
	key, err := s.reader.FindJobKey(ctx, findKey("a"))
	check(err)
	for _, what := range [][]byte{[]byte(planted), o.Input, []byte(q.Digest().String())} {
		if with := contains(t, dir, what); with != "" {
			t.Errorf("%.40s stands in %s", what, with)
		}
	}
	if d := q.Digest(); contains(t, dir, d[:]) != "" {
		t.Error("the digest of a text stands in a file: who can guess the text can prove it")
	}
	if contains(t, dir, key.Sealed) == "" {
		t.Fatal("this test does not see the key while it is there")
	}
	check(j.Delete(ctx, l.ID))
	if with := contains(t, dir, key.Sealed); with != "" {
		t.Errorf("the deleted job's key is still in %s", with)
	}
	for _, table := range []string{"job", "job_text", "job_record", "job_blob"} {
		var n int
		if err := s.reads.QueryRowContext(ctx, "SELECT count(*) FROM "+table).Scan(&n); err != nil || n > 0 {
			t.Errorf("%d rows are left in %s, %v", n, table, err)
		}
	}
}

func TestLargeBodiesStandOnceInAJob(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	l := taken(t, s.Jobs(), "a")
	long := `"` + strings.Repeat("x", large) + `"`
	for i := range 5 {
		key := fmt.Sprint(i)
		if err := s.Jobs().Begin(t.Context(), l, []job.Record{begunRecord(key, long)}); err != nil {
			t.Fatal(err)
		}
		if err := s.Jobs().Keep(t.Context(), l, []job.Record{answer(key, long)}); err != nil {
			t.Fatal(err)
		}
	}
	var blobs int
	if err := s.reads.QueryRowContext(t.Context(), "SELECT count(*) FROM job_blob").Scan(&blobs); err != nil || blobs != 1 {
		t.Errorf("%d blobs, %v", blobs, err)
	}
}

func TestRowsOfJobsThatWereChangedOrSwappedAreRefused(t *testing.T) {
	for name, sql := range map[string]string{
		"values swapped":     "UPDATE job_record SET body = (SELECT o.body FROM job_record AS o WHERE o.what = 'answered' AND o.seq <> job_record.seq) WHERE what = 'answered'",
		"heads swapped":      "UPDATE job_record SET head = (SELECT o.head FROM job_record AS o WHERE o.what = 'answered' AND o.seq <> job_record.seq) WHERE what = 'answered'",
		"head for body":      "UPDATE job_record SET body = head WHERE what = 'answered'",
		"key changed":        "UPDATE job_record SET key_digest = zeroblob(16) WHERE seq = 2",
		"try changed":        "UPDATE job_record SET try = 2 WHERE seq = 1",
		"deadline changed":   "UPDATE job_record SET until = 5 WHERE what = 'asked'",
		"time changed":       "UPDATE job_record SET at = at + 1 WHERE what = 'asked'",
		"asked as decided":   "UPDATE job_record SET what = 'decided' WHERE what = 'asked'",
		"flow changed":       "UPDATE job SET flow = 'other'",
		"value taken away":   "UPDATE job_record SET body = NULL WHERE what = 'answered'",
		"input emptied":      "UPDATE job_text SET body = x''",
		"input taken away":   "UPDATE job_text SET what = 'output'",
		"blob changed":       "UPDATE job_blob SET body = substr(body, 1, 40) || x'00' || substr(body, 42)",
		"job under new name": "UPDATE job SET name = 'b'",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, dir, Options{})
			l := taken(t, s.Jobs(), "a")
			for _, key := range []string{"k", "l"} {
				if err := s.Jobs().Begin(t.Context(), l, []job.Record{begunRecord(key, `1`)}); err != nil {
					t.Fatal(err)
				}
				if err := s.Jobs().Keep(t.Context(), l, []job.Record{answer(key, `"`+key+`"`)}); err != nil {
					t.Fatal(err)
				}
			}
			q := job.Question{Key: "q", Kind: "approval", Input: json.RawMessage(`"` + strings.Repeat("x", large) + `"`)}
			if err := s.Jobs().Keep(t.Context(), l, []job.Record{{At: at, What: job.Asked, Key: q.Key, Kind: q.Kind, Digest: q.Digest(), Input: q.Input, Until: at.Add(time.Hour)}}); err != nil {
				t.Fatal(err)
			}
			closeStore(t, s)
			tamper(t, dir, sql)
			s = open(t, dir, Options{})
			for _, name := range []string{"a", "b"} {
				h, err := s.Jobs().History(t.Context(), job.ID{Tenant: "main", Job: name})
				if err == nil {
					t.Errorf("the record is taken as good: %d records", len(h.Records))
				}
			}
		})
	}
}

func TestADiskThatIsFullLeavesAJobAsItIs(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	j := s.Jobs()
	l := taken(t, j, "a")
	if err := j.Begin(t.Context(), l, []job.Record{begunRecord("k", `1`)}); err != nil {
		t.Fatal(err)
	}
	before, err := j.History(t.Context(), l.ID)
	if err != nil {
		t.Fatal(err)
	}
	long := `"` + strings.Repeat("x", 1<<20) + `"`
	limitPages(t, s, 2)
	for doing, err := range map[string]error{
		"Create": j.Create(t.Context(), job.Order{ID: job.ID{Tenant: "main", Job: "b"}, Input: json.RawMessage(long)}),
		"Begin":  j.Begin(t.Context(), l, []job.Record{begunRecord("l", long)}),
		"Keep":   j.Keep(t.Context(), l, []job.Record{answer("k", long)}),
		"End":    j.End(t.Context(), l, job.End{State: job.Completed, Output: json.RawMessage(long)}, at),
	} {
		if !errors.Is(err, ErrDisk) || !strings.Contains(err.Error(), "make room") {
			t.Errorf("%s: %v, want ErrDisk with a hint", doing, err)
		}
	}
	after, err := j.History(t.Context(), l.ID)
	if err != nil || fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("the job has changed: %v", err)
	}
	limitPages(t, s, 10_000)
	if err := j.Keep(t.Context(), l, []job.Record{answer("k", long)}); err != nil {
		t.Errorf("with room again: %v", err)
	}
}

// TestWhatNeedNotWaitIsWrittenAtOnce: other processes see it, and it outlives
// this one; a write that waits for the disk comes after it.
func TestWhatNeedNotWaitIsWrittenAtOnce(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	l := taken(t, s.Jobs(), "a")
	mode := func() (mode int) {
		t.Helper()
		err := s.writer.do(&write{lazy: true, apply: func(ctx context.Context, b *batch) error {
			return b.conn.QueryRowContext(ctx, "PRAGMA synchronous").Scan(&mode)
		}})
		if err != nil {
			t.Fatal(err)
		}
		return mode
	}
	synced := func() (mode int) {
		t.Helper()
		err := s.writer.do(&write{apply: func(ctx context.Context, b *batch) error {
			return b.conn.QueryRowContext(ctx, "PRAGMA synchronous").Scan(&mode)
		}})
		if err != nil {
			t.Fatal(err)
		}
		return mode
	}
	const normal, full = 1, 2
	if got := mode(); got != normal {
		t.Errorf("a write that need not wait has synchronous = %d", got)
	}
	if got := synced(); got != full {
		t.Errorf("a write that waits has synchronous = %d", got)
	}
	if err := s.Jobs().Begin(t.Context(), l, []job.Record{begunRecord("k", `1`)}); err != nil {
		t.Fatal(err)
	}
	copied := t.TempDir() // what another process would find after a kill
	for _, name := range []string{database, database + "-wal", "master.key"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			if name == "master.key" {
				continue
			}
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(copied, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	other := open(t, copied, Options{Vault: keys(t, dir)})
	if h, err := other.Jobs().History(t.Context(), l.ID); err != nil || len(h.Records) != 1 {
		t.Errorf("another process sees %+v, %v", h.Records, err)
	}
}

func TestDecisionAndWakeUpAreOneTransaction(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	j := s.Jobs()
	l := taken(t, j, "a")
	q := job.Question{Key: "q", Kind: "approval"}
	if err := j.Keep(t.Context(), l, []job.Record{{At: at, What: job.Asked, Key: q.Key, Kind: q.Kind, Digest: q.Digest()}}); err != nil {
		t.Fatal(err)
	}
	if err := j.Park(t.Context(), l, job.Parking{At: at}); err != nil {
		t.Fatal(err)
	}
	d := job.Decision{ID: l.ID, Key: q.Key, Digest: q.Digest(), Answer: job.Answer{Value: json.RawMessage(`1`)}, At: at}
	// The wake-up fails: nothing of the decision may be left.
	ctx := context.Background()
	exec := func(sql string) {
		t.Helper()
		if err := s.writer.do(&write{apply: func(ctx context.Context, b *batch) error {
			_, err := b.conn.ExecContext(ctx, sql)
			return err
		}}); err != nil {
			t.Fatal(err)
		}
	}
	exec("CREATE TRIGGER no BEFORE UPDATE OF state ON job BEGIN SELECT raise(ABORT, 'no'); END")
	if err := j.Decide(ctx, d); err == nil {
		t.Fatal("this test does not break the wake-up")
	}
	if h, err := j.History(ctx, l.ID); err != nil || len(h.Records) != 1 || h.Job.Decisions != 0 || h.Job.State != job.Waiting {
		t.Errorf("half a decision: %+v, %v", h, err)
	}
	exec("DROP TRIGGER no")
	if err := j.Decide(ctx, d); err != nil {
		t.Fatal(err)
	}
	claimed(t, j, "a")
}

func TestParallelAnswersShareASync(t *testing.T) {
	commits := make(chan commit, 1000)
	s := open(t, t.TempDir(), Options{committed: func(w, l int) { commits <- commit{w, l} }})
	l := taken(t, s.Jobs(), "a")
	held, letGo := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		_ = s.writer.do(&write{apply: func(context.Context, *batch) error { close(held); <-letGo; return nil }})
	})
	<-held
	const n = 20
	for i := range n {
		wg.Go(func() {
			if err := s.Jobs().Keep(context.Background(), l, []job.Record{answer(fmt.Sprint(i), `1`)}); err != nil {
				t.Error(err)
			}
		})
	}
	waitForQueue(s, n)
	close(letGo)
	wg.Wait()
	for alone := 0; ; alone++ {
		if c := <-commits; c.writes == n {
			break
		}
		if alone > 3 { // to create, to claim, and the one held up
			t.Fatalf("no commit has all %d answers", n)
		}
	}
}

func TestJobsThatCannotBeReadAreNotTakenForEmpty(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	l := taken(t, s.Jobs(), "a")
	if err := s.Jobs().Keep(t.Context(), l, []job.Record{answer("k", `1`)}); err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
	tamper(t, dir, "UPDATE data_key SET sealed = zeroblob(length(sealed))")
	s = open(t, dir, Options{})
	l = claimed(t, s.Jobs(), "a")
	if _, err := s.Jobs().Load(t.Context(), l); err == nil || errors.Is(err, job.ErrLost) || bytes.Contains([]byte(err.Error()), []byte("no such job")) {
		t.Errorf("a job whose key is damaged: %v", err)
	}
}

func findKey(name string) rows.FindJobKeyParams {
	return rows.FindJobKeyParams{Tenant: "main", Name: name}
}
