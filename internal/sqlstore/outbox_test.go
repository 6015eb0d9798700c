package sqlstore

import (
	"testing"
	"time"

	"github.com/belay-run/belay/internal/notice"
)

func TestNoMessageIsLostOrPutTwice(t *testing.T) {
	now := at
	dir := t.TempDir()
	s := open(t, dir, Options{Clock: func() time.Time { return now }})
	ctx := t.Context()
	m := notice.Message{Tenant: "main", Target: "ops", Event: "approval.waiting", Subject: "abc", Body: `{"id":"abc"}`}
	other, elsewhere := m, m
	other.Subject, elsewhere.Tenant = "def", "other"
	put := func(want int, messages ...notice.Message) {
		t.Helper()
		if n, err := s.PutMessages(ctx, messages...); err != nil || n != want {
			t.Errorf("%d new, %v; want %d", n, err, want)
		}
	}
	due := func(want ...string) []notice.Message {
		t.Helper()
		all, err := s.DueMessages(ctx, "ops", now, 10)
		if err != nil || len(all) != len(want) {
			t.Fatalf("due are %+v, %v; want %v", all, err, want)
		}
		for i := range all {
			if got := all[i].Tenant + " " + all[i].Subject; got != want[i] {
				t.Errorf("message %d is %s, want %s", i, got, want[i])
			}
		}
		return all
	}
	put(0)
	put(3, m, other, elsewhere)
	put(0, m, other)
	closeStore(t, s)
	s = open(t, dir, Options{Clock: func() time.Time { return now }})
	all := due("main abc", "main def", "other abc")
	m.ID, m.Created, m.Due = all[0].ID, at, at
	if all[0] != m {
		t.Errorf("%+v, want %+v", all[0], m)
	}
	if some, err := s.DueMessages(ctx, "ops", now, 1); err != nil || len(some) != 1 {
		t.Error(some, err)
	}
	if err := s.MessageSent(ctx, all[0].ID, now); err != nil {
		t.Fatal(err)
	}
	if err := s.MessageFailed(ctx, all[1].ID, now.Add(time.Minute), "status 500"); err != nil {
		t.Fatal(err)
	}
	if err := s.MessageFailed(ctx, all[2].ID, time.Time{}, "status 410"); err != nil { // given up
		t.Fatal(err)
	}
	due()
	if next, err := s.NextMessage(ctx, "ops"); err != nil || !next.Equal(now.Add(time.Minute)) {
		t.Error(next, err)
	}
	put(0, m, elsewhere) // sent and given up are not sent again
	now = now.Add(time.Minute)
	if got := due("main def"); got[0].Tries != 1 || got[0].Failure != "status 500" {
		t.Errorf("%+v", got[0])
	}
	if err := s.MessageSent(ctx, all[1].ID, now); err != nil {
		t.Fatal(err)
	}
	if next, err := s.NextMessage(ctx, "ops"); err != nil || !next.IsZero() {
		t.Error(next, err)
	}
	mine, err := s.Messages(ctx, "main", 10)
	if err != nil || len(mine) != 2 || mine[0].Subject != "def" || mine[0].Tries != 2 || mine[0].Failure != "" || !mine[0].Sent.Equal(now) {
		t.Errorf("%+v %v", mine, err)
	}
	if given, err := s.Messages(ctx, "other", 10); err != nil || len(given) != 1 || given[0].Failure != "status 410" || !given[0].Sent.IsZero() || !given[0].Due.IsZero() {
		t.Errorf("%+v %v", given, err)
	}
	if n, err := s.DropMessages(ctx, at); err != nil || n != 0 {
		t.Error(n, err)
	}
	if n, err := s.DropMessages(ctx, now); err != nil || n != 3 {
		t.Error(n, err)
	}
	put(1, m)
	if all, err := s.DueMessages(ctx, "another", now, 10); err != nil || len(all) != 0 {
		t.Error(all, err)
	}
	if next, err := s.NextMessage(ctx, "another"); err != nil || !next.IsZero() {
		t.Error(next, err)
	}
}
