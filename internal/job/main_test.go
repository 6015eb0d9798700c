package job_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/belay-run/belay/internal/job"
	"github.com/belay-run/belay/internal/job/jobtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	ctx = context.Background()
	id  = job.ID{Tenant: "main", Job: "j"}
)

// bench is a world in which one job runs: a journal in memory, and handlers that
// count.
type bench struct {
	*testing.T
	journal  *jobtest.Memory
	handlers job.Handlers
	flow     job.Flow

	mu    sync.Mutex
	asked []string // keys, in the order in which handlers were asked
}

// inBubble runs a test in fake time.
func inBubble(t *testing.T, test func(b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{T: t, journal: jobtest.NewMemory()}
		b.handlers = job.Handlers{
			"echo": b.counted(func(_ context.Context, c job.Call) (job.Answer, error) {
				return job.Answer{Value: json.RawMessage(fmt.Sprintf(`{"key":%q,"input":%s}`, c.Key, or(c.Input, "null")))}, nil
			}),
		}
		test(b)
	})
}

func or(raw json.RawMessage, other string) string {
	if len(raw) == 0 {
		return other
	}
	return string(raw)
}

func (b *bench) counted(h job.Handler) job.Handler {
	return func(ctx context.Context, c job.Call) (job.Answer, error) {
		b.mu.Lock()
		b.asked = append(b.asked, c.Key)
		b.mu.Unlock()
		return h(ctx, c)
	}
}

func (b *bench) times(key string) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, k := range b.asked {
		if k == key {
			n++
		}
	}
	return n
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// create makes the job.
func (b *bench) create(run func(s job.Steps, in job.Order) (json.RawMessage, error)) {
	b.Helper()
	b.flow = job.Flow{Name: "flow", Shape: 1, Run: run}
	b.must(b.journal.Create(ctx, job.Order{ID: id, Flow: "flow", Shape: 1, Input: json.RawMessage(`{}`), Created: time.Now()}))
}

func (b *bench) runner() *job.Runner {
	return &job.Runner{
		Journal: b.journal, Flows: job.NewFlows(b.flow), Handlers: b.handlers, Clock: time.Now,
		Pause: func(int) time.Duration { return time.Second }, Grace: time.Second,
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
}

// claim takes the job.
func (b *bench) claim() job.Lease {
	b.Helper()
	leases, err := b.journal.Claim(ctx, job.Claim{Owner: "me", Now: time.Now(), Until: time.Now().Add(24 * time.Hour), Limit: 1})
	b.must(err)
	if len(leases) != 1 {
		b.Fatalf("%d jobs are ready", len(leases))
	}
	return leases[0]
}

// run claims the job and runs it.
func (b *bench) run() job.Outcome {
	b.Helper()
	r := b.runner()
	got := r.Prepare(ctx, b.claim()).Go()
	r.Strays.Wait()
	return got
}

// dies runs the job in a process that dies when its handler of kind "die" is
// asked: nothing of it is written from then on.
func (b *bench) dies() {
	b.Helper()
	hard, kill := context.WithCancel(ctx)
	b.handlers["die"] = b.counted(func(ctx context.Context, c job.Call) (job.Answer, error) {
		kill()
		<-ctx.Done()
		return job.Answer{}, ctx.Err()
	})
	r := b.runner()
	if got := r.Prepare(hard, b.claim()).Go(); got.Kind != job.RunReleased {
		b.Fatalf("the process that dies: %+v", got)
	}
	r.Strays.Wait()
	b.handlers["die"] = b.handlers["echo"]
}

func (b *bench) history() job.History {
	b.Helper()
	h, err := b.journal.History(ctx, id)
	b.must(err)
	return h
}

// completes expects the job's end and output.
func (b *bench) completes(got job.Outcome, output string) {
	b.Helper()
	if got.Kind != job.RunEnded || got.End.State != job.Completed || string(got.End.Output) != output {
		b.Errorf("the run gave %+v (output %s), want output %s", got, got.End.Output, output)
	}
	b.same()
}

// fails expects that the job failed.
func (b *bench) fails(got job.Outcome, code, reason string) {
	b.Helper()
	want := job.End{State: job.Failed, Code: code, Reason: reason}
	if got.Kind != job.RunEnded || got.End.State != want.State || got.End.Code != code || got.End.Reason != reason {
		b.Errorf("the run gave %+v, want %+v", got, want)
	}
}

// same runs the flow again on its history.
func (b *bench) same() {
	b.Helper()
	if r := job.Replay(b.flow, b.history()); len(r.Differences) > 0 {
		b.Errorf("run again: %+v", r.Differences)
	}
}

func echo(key string) job.Call {
	return job.Call{Key: key, Kind: "echo", Input: json.RawMessage(`"` + key + `"`)}
}

func jsonOf(v any) (json.RawMessage, error) { return json.Marshal(v) }
