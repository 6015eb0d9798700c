package jobtest_test

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/belay-run/belay/internal/job"
	"github.com/belay-run/belay/internal/job/jobtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMemory(t *testing.T) {
	jobtest.TestJournal(t, func(*testing.T) job.Journal { return jobtest.NewMemory() })
}

func TestAPowerFailureTakesBackWhatIsNotOnDisk(t *testing.T) {
	m, ctx := jobtest.NewMemory(), context.Background()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	id := job.ID{Tenant: "main", Job: "a"}
	if err := m.Create(ctx, job.Order{ID: id, Created: now}); err != nil {
		t.Fatal(err)
	}
	leases, err := m.Claim(ctx, job.Claim{Now: now, Until: now.Add(time.Minute), Limit: 1})
	if err != nil || len(leases) != 1 {
		t.Fatal(leases, err)
	}
	begin := func(key string, once bool) {
		t.Helper()
		if err := m.Begin(ctx, leases[0], []job.Record{{What: job.Begun, Key: key, Try: 1, Once: once}}); err != nil {
			t.Fatal(err)
		}
	}
	begin("a", false)
	begin("b", true) // and with it all before
	begin("c", false)
	m.PowerFails()
	h, err := m.History(ctx, id)
	if err != nil || len(h.Records) != 2 || h.Records[1].Key != "b" {
		t.Errorf("%+v, %v", h.Records, err)
	}
}
