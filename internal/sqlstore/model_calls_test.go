package sqlstore

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belay-run/belay/internal/job"
	"github.com/belay-run/belay/internal/spend"
	"github.com/belay-run/belay/internal/vault"
)

func begunCall(id, name string) spend.Record {
	return spend.Record{
		Call: spend.Call{ID: id, Tenant: "main", Job: name, Agent: "reviewer", Plugin: "acme-judge", Tool: "acme_judge", Function: "check", Step: "agent/0/pre/acme", Purpose: "judging",
			API: "anthropic", Route: "/v1/messages", Alias: "judge", Provider: "anthropic", Model: "claude-3-5-haiku-latest", Stream: true},
		Began: at, Cost: 700, Priced: true, Reserved: 700, ReservedTokens: 90,
	}
}

func endedCall(r spend.Record) spend.Record {
	r.Ended, r.Cost = true, 500
	r.Outcome = spend.Outcome{Status: 200, Usage: spend.Usage{Input: 40, Output: 20, Cached: 10, CacheWritten: 5, Reasoning: 8}, Verdicts: []string{"secrets masked: CRM_TOKEN"},
		FirstByte: time.Millisecond, Took: time.Second, Why: "w", Estimated: true}
	return r
}

func kept(t *testing.T, s *Store, name string) []spend.Record {
	t.Helper()
	all, err := s.ModelCalls(t.Context(), job.ID{Tenant: "main", Job: name})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func spent(t *testing.T, s *Store, since time.Time) []spend.Spent {
	t.Helper()
	all, err := s.ModelSpending(t.Context(), since)
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(all, func(a, b spend.Spent) int {
		return cmp.Or(cmp.Compare(a.Job, b.Job), a.Day.Compare(b.Day), cmp.Compare(a.Agent, b.Agent))
	})
	return all
}

func TestModelCallsComeBack(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	for _, name := range []string{"a", "b"} {
		if err := s.Jobs().Create(t.Context(), anOrder(name)); err != nil {
			t.Fatal(err)
		}
	}
	keep := func(begun, ended []spend.Record) {
		t.Helper()
		if err := s.KeepModelCalls(t.Context(), begun, ended); err != nil {
			t.Fatal(err)
		}
	}
	first, running := begunCall("1", "a"), begunCall("2", "a")
	keep([]spend.Record{first, running, begunCall("3", "b")}, nil)
	if got := kept(t, s, "a"); !reflect.DeepEqual(got, []spend.Record{first, running}) {
		t.Errorf("begun:\n%+v", got)
	}
	ended, late := endedCall(first), endedCall(begunCall("4", "a"))
	late.Request, late.Answer = []byte(`{"messages":[]}`), bytes.Repeat([]byte("x"), 2*large)
	keep(nil, []spend.Record{ended, late}) // an end without its beginning
	keep([]spend.Record{first}, []spend.Record{ended})
	keep(nil, nil)
	want := []spend.Record{ended, running, late}
	if got := kept(t, s, "a"); !reflect.DeepEqual(got, want) {
		t.Errorf("got:\n%+v\nwant:\n%+v", got, want)
	}
	day := time.Date(at.UTC().Year(), at.UTC().Month(), at.UTC().Day(), 0, 0, 0, 0, time.UTC)
	sums := []spend.Spent{
		{Tenant: "main", Agent: "reviewer", Day: day, Cost: 2400, Tokens: 300},
		{Tenant: "main", Job: "a", Cost: 1700, Tokens: 210},
		{Tenant: "main", Job: "b", Cost: 700, Tokens: 90},
	}
	if got := spent(t, s, at); !reflect.DeepEqual(got, sums) {
		t.Errorf("sums %+v", got)
	}
	if got := spent(t, s, at.Add(1)); len(got) != 2 {
		t.Errorf("sums since later: %+v", got)
	}
	closeStore(t, s)
	s = open(t, dir, Options{})
	if got := kept(t, s, "a"); !reflect.DeepEqual(got, want) {
		t.Errorf("after a restart: %+v", got)
	}
	if _, err := s.ModelCalls(t.Context(), job.ID{Tenant: "other", Job: "a"}); !errors.Is(err, job.ErrNoJob) {
		t.Errorf("another tenant: %v", err)
	}
}

// ends ends and deletes a job that is claimed.
func ends(t *testing.T, s *Store, l job.Lease) {
	t.Helper()
	if err := s.Jobs().End(t.Context(), l, job.End{State: job.Completed}, at); err != nil {
		t.Fatal(err)
	}
	if err := s.Jobs().Delete(t.Context(), l.ID); err != nil {
		t.Fatal(err)
	}
}

func TestOfADeletedJobsModelCallsOnlyTheCostStays(t *testing.T) {
	const planted = "planted-4111"
	dir := t.TempDir()
	now := at
	s := open(t, dir, Options{Clock: func() time.Time { return now }})
	lease := taken(t, s.Jobs(), "a")
	first, second := begunCall("1", "a"), begunCall("2", "a")
	first.Purpose, second.Purpose = planted, planted
	ended := endedCall(first)
	ended.Request, ended.Answer = []byte(planted), []byte(strings.Repeat(planted, large))
	if err := s.KeepModelCalls(t.Context(), []spend.Record{second}, []spend.Record{ended}); err != nil {
		t.Fatal(err)
	}
	if with := contains(t, dir, []byte(planted)); with != "" {
		t.Errorf("a text stands in %s", with)
	}
	day := spent(t, s, at)[0]
	if day.Cost != 1200 || day.Tokens != 150 {
		t.Fatalf("%+v", day)
	}
	ends(t, s, lease)
	if got := spent(t, s, at); len(got) != 1 || got[0] != day {
		t.Errorf("after the deletion %+v", got)
	}
	var sealed int
	if err := s.reads.QueryRow("SELECT count(*) FROM model_call WHERE head IS NOT NULL OR body IS NOT NULL OR job IS NOT NULL").Scan(&sealed); err != nil || sealed > 0 {
		t.Errorf("%d rows have more than their cost, %v", sealed, err)
	}
	// Its last call ends after it; another one was never heard of before.
	if err := s.KeepModelCalls(t.Context(), nil, []spend.Record{endedCall(second), endedCall(begunCall("3", "a"))}); err != nil {
		t.Fatal(err)
	}
	if got := spent(t, s, at); len(got) != 1 || got[0].Cost != 1500 || got[0].Tokens != 180 {
		t.Errorf("after the last end %+v", got)
	}
	// Rows of earlier deletions go when no budget's month counts them.
	now = at.AddDate(0, 3, 0)
	ends(t, s, taken(t, s.Jobs(), "b"))
	if got := spent(t, s, time.Time{}); len(got) > 0 {
		t.Errorf("three months later %+v", got)
	}
}

func TestAModelCallThatWasChangedIsNotRead(t *testing.T) {
	for _, change := range []string{"cost = 0", "tokens = 1", "agent = 'other'", "ended = 0", "id = 'x'", "body = NULL"} {
		dir := t.TempDir()
		s := open(t, dir, Options{})
		if err := s.Jobs().Create(t.Context(), anOrder("a")); err != nil {
			t.Fatal(err)
		}
		r := endedCall(begunCall("1", "a"))
		r.Answer = []byte("answer")
		if err := s.KeepModelCalls(t.Context(), nil, []spend.Record{r}); err != nil {
			t.Fatal(err)
		}
		closeStore(t, s)
		tamper(t, dir, "UPDATE model_call SET "+change)
		s = open(t, dir, Options{})
		if _, err := s.ModelCalls(t.Context(), job.ID{Tenant: "main", Job: "a"}); !errors.Is(err, vault.ErrAltered) {
			t.Errorf("%s: %v", change, err)
		}
	}
}

func TestModelCallsAreInABackup(t *testing.T) {
	dir, to := t.TempDir(), t.TempDir()
	s := open(t, dir, Options{})
	if err := s.Jobs().Create(t.Context(), anOrder("a")); err != nil {
		t.Fatal(err)
	}
	r := endedCall(begunCall("1", "a"))
	if err := errors.Join(s.KeepModelCalls(t.Context(), nil, []spend.Record{r}), s.Backup(t.Context(), to)); err != nil {
		t.Fatal(err)
	}
	copied, err := Attach(t.Context(), to, Options{Vault: keys(t, dir)})
	if err != nil {
		t.Fatal(err)
	}
	defer closeStore(t, copied)
	if got := kept(t, copied, "a"); !reflect.DeepEqual(got, []spend.Record{r}) {
		t.Errorf("%+v", got)
	}
	if err := copied.KeepModelCalls(t.Context(), nil, []spend.Record{r}); !errors.Is(err, ErrReadOnly) {
		t.Errorf("written beside the owner: %v", err)
	}
}

func BenchmarkKeepModelCalls(b *testing.B) {
	s := open(b, b.TempDir(), Options{})
	if err := s.Jobs().Create(b.Context(), anOrder("a")); err != nil {
		b.Fatal(err)
	}
	for i := 0; b.Loop(); i++ {
		if err := s.KeepModelCalls(b.Context(), nil, []spend.Record{endedCall(begunCall(fmt.Sprint(i), "a"))}); err != nil {
			b.Fatal(err)
		}
	}
}
