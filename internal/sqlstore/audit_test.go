package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belay-run/belay/internal/audit"
	"github.com/belay-run/belay/internal/conversation"
	"github.com/belay-run/belay/internal/job"
)

// recorded is a tenant's record as "actor action subject data" lines; it fails the
// test when the chain is broken.
func recorded(t *testing.T, s *Store, tenant string) []string {
	t.Helper()
	entries, err := s.AuditEntries(t.Context(), tenant, 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	if ok, bad := audit.Verify(entries); !ok {
		t.Errorf("entry %d of the record is bad: %+v", bad, entries[bad])
	}
	head, err := s.AuditHead(t.Context(), tenant)
	if err != nil || head.Seq != int64(len(entries)) || len(entries) > 0 && head.Hash != entries[len(entries)-1].Hash {
		t.Errorf("head %s, %v; there are %d entries", head, err, len(entries))
	}
	var lines []string
	for _, e := range entries {
		lines = append(lines, fmt.Sprintf("%s %s %s %s", e.Actor, e.Action, e.Subject, e.Data))
	}
	return lines
}

func wantRecorded(t *testing.T, s *Store, tenant string, want ...string) {
	t.Helper()
	if got := recorded(t, s, tenant); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("recorded\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestTheAuditRecordOfEachTenantIsAChain(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	ctx := t.Context()
	fact := func(tenant, subject string) audit.Fact {
		return audit.Fact{Tenant: tenant, Actor: "ann", Action: audit.JobStarted, Subject: subject}
	}
	if err := s.Record(ctx); err != nil {
		t.Error(err)
	}
	if err := s.Record(ctx, fact("main", "a"), fact("other", "b"), fact("main", "c")); err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
	s = open(t, dir, Options{})
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			if err := s.Record(ctx, fact("main", fmt.Sprint(i))); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := recorded(t, s, "main"); len(got) != 22 || got[1] != "ann job.started c {}" {
		t.Errorf("%d lines, %v", len(got), got)
	}
	wantRecorded(t, s, "other", "ann job.started b {}")
	wantRecorded(t, s, "nobody")
	some, err := s.AuditEntries(ctx, "main", 3, 2)
	if err != nil || len(some) != 2 || some[0].Seq != 4 {
		t.Errorf("%+v %v", some, err)
	}
}

// A fact that cannot be recorded undoes the change it is about, and nobody else's.
func TestWhatCannotBeRecordedIsNotDone(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	held, letGo := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		_ = s.writer.do(&write{apply: func(context.Context, *batch) error { close(held); <-letGo; return nil }})
	})
	<-held
	errs := make([]error, 3)
	wg.Go(func() { errs[0] = s.Append(t.Context(), ann, []conversation.Event{says(1, "a")}) })
	wg.Go(func() { _, errs[1] = s.InstallPlugin(t.Context(), Plugin{Tenant: "main", Name: "p"}, "", "") }) // by nobody
	wg.Go(func() {
		errs[2] = s.Record(t.Context(), audit.Fact{Tenant: "main", Actor: "ann", Action: audit.JobStarted}, audit.Fact{Tenant: "main"})
	})
	waitForQueue(s, 3)
	close(letGo)
	wg.Wait()
	if errs[0] != nil || errs[1] == nil || errs[2] == nil {
		t.Error(errs)
	}
	if all, err := s.Plugins(t.Context(), "main"); err != nil || len(all) != 0 {
		t.Errorf("%+v %v", all, err)
	}
	wantRecorded(t, s, "main")
}

func TestTheAuditRecordIsAppendOnlyAndTamperingIsFound(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	for i := range 4 {
		if err := s.Record(t.Context(), audit.Fact{Tenant: "main", Actor: "ann", Action: audit.JobStarted, Subject: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := s.AuditHead(t.Context(), "main")
	if err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{"UPDATE audit SET actor = 'eve' WHERE seq = 2", "DELETE FROM audit WHERE seq = 4"} {
		err := s.change(func(ctx context.Context, b *batch) error {
			_, err := b.conn.ExecContext(ctx, sql)
			return err
		})
		if err == nil || !strings.Contains(err.Error(), "append-only") {
			t.Errorf("%s: %v", sql, err)
		}
	}
	closeStore(t, s)
	for _, c := range []struct {
		sql string
		bad int64
	}{
		{"DELETE FROM audit WHERE seq = 4", 4}, // only the kept head tells
		{"UPDATE audit SET subject = 'x' WHERE seq = 3", 3},
		{"UPDATE audit SET hash = substr(hash, 1, 31) WHERE seq = 2", 2},
		{"UPDATE audit SET at = at + 1 WHERE seq = 1", 1},
	} {
		tamper(t, dir, "DROP TRIGGER IF EXISTS audit_is_not_changed; DROP TRIGGER IF EXISTS audit_is_not_deleted; "+c.sql)
		s := open(t, dir, Options{})
		r, err := audit.Check(t.Context(), s, "main", kept)
		if err != nil || r.OK || r.FirstBad != c.bad {
			t.Errorf("%s: %+v %v", c.sql, r, err)
		}
		closeStore(t, s)
	}
}

func TestSwitchesOfHooksAreRecorded(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{Clock: func() time.Time { return at }})
	guest, err := Attach(t.Context(), dir, Options{Clock: func() time.Time { return at }})
	if err != nil {
		t.Fatal(err)
	}
	defer closeStore(t, guest)
	for _, c := range []struct {
		s  *Store
		sw HookSwitch
	}{
		{s, HookSwitch{Disabled: true, By: "ops", Reason: "it said: secret", Until: at.Add(time.Hour)}},
		{guest, HookSwitch{By: "guest"}},
		{s, HookSwitch{Disabled: true}},
	} {
		c.sw.Tenant, c.sw.Agent, c.sw.Hook = "main", "clinic", "mask"
		if _, err := c.s.SetHookSwitch(t.Context(), c.sw); err != nil {
			t.Fatal(err)
		}
	}
	wantRecorded(t, s, "main",
		`ops hook.disabled mask {"agent":"clinic","until":"2026-03-01T13:00:00Z"}`,
		`guest hook.enabled mask {"agent":"clinic"}`,
		`unknown hook.disabled mask {"agent":"clinic"}`)
	if _, err := guest.SetHookSwitch(t.Context(), HookSwitch{Hook: "mask"}); err == nil { // no tenant: it cannot be recorded
		t.Error("a switch without a record")
	}
	if all, err := s.HookSwitchHistory(t.Context(), "", ""); err != nil || len(all) != 0 {
		t.Errorf("%+v %v", all, err)
	}
	if err := guest.Record(t.Context(), audit.Fact{}); !errors.Is(err, ErrReadOnly) {
		t.Error(err)
	}
}

// What is decided about a job, and the record of it, stand or fall together.
func TestWhatIsDoneToJobsIsRecordedWithIt(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	jobs := s.Jobs()
	id := job.ID{Tenant: "main", Job: "j1"}
	along := func(action audit.Action, actor string) context.Context {
		return audit.Along(t.Context(), audit.Fact{Tenant: "main", Actor: actor, Action: action, Subject: "j1"})
	}
	order := job.Order{ID: id, Flow: "f", Created: at}
	if err := jobs.Create(along(audit.JobStarted, ""), order); err == nil { // by nobody
		t.Error("made without a record")
	}
	if _, err := jobs.Get(t.Context(), id); !errors.Is(err, job.ErrNoJob) {
		t.Error(err)
	}
	if err := jobs.Create(along(audit.JobStarted, "ann"), order); err != nil {
		t.Fatal(err)
	}
	if err := jobs.Create(along(audit.JobStarted, "bob"), order); !errors.Is(err, job.ErrExists) {
		t.Error(err)
	}
	leases, err := jobs.Claim(t.Context(), job.Claim{Owner: "o", Now: at, Until: at.Add(time.Hour), Limit: 1})
	if err != nil || len(leases) != 1 {
		t.Fatal(leases, err)
	}
	q := job.Question{Key: "k", Kind: "approval", Input: []byte(`{}`)}
	if err := jobs.Keep(t.Context(), leases[0], []job.Record{{At: at, What: job.Asked, Key: q.Key, Kind: q.Kind, Digest: q.Digest(), Input: q.Input}}); err != nil {
		t.Fatal(err)
	}
	for _, who := range []string{"ann", "bob"} {
		err := jobs.Decide(along(audit.ApprovalDecided, who), job.Decision{ID: id, Key: q.Key, Digest: q.Digest(), By: who, At: at})
		if who == "bob" != errors.Is(err, job.ErrDecided) {
			t.Error(who, err)
		}
	}
	for _, who := range []string{"cleo", "dan"} { // the first counts
		if err := jobs.Cancel(along(audit.JobCancelled, who), id, job.Cancellation{By: who, At: at}); err != nil {
			t.Error(who, err)
		}
	}
	if err := jobs.End(t.Context(), leases[0], job.End{State: job.Cancelled}, at); err != nil {
		t.Fatal(err)
	}
	if err := jobs.Delete(along(audit.JobDeleted, "eve"), id); err != nil {
		t.Fatal(err)
	}
	wantRecorded(t, s, "main", "ann job.started j1 {}", "ann approval.decided j1 {}", "cleo job.cancelled j1 {}", "eve job.deleted j1 {}")
}
