package localjob_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belay-run/belay/internal/job"
	"github.com/belay-run/belay/internal/localjob"
	"github.com/belay-run/belay/internal/sqlstore"
	"github.com/belay-run/belay/internal/vault"
)

// Tests of the engine over the store that the product has. (Only tests know both.)

func openStore(t testing.TB, dir string) *sqlstore.Store {
	t.Helper()
	keys, err := vault.Open(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	s, err := sqlstore.Open(context.Background(), dir, sqlstore.Options{Vault: keys})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// tour is a flow with what there is: steps, one of which may run once, side by
// side, branches, a question and times.
func tour(s job.Steps, in job.Order) (json.RawMessage, error) {
	if _, err := s.Now("begin"); err != nil {
		return nil, err
	}
	if _, err := s.Do(effect("a", in), effect("b", in), effect("c", in)); err != nil {
		return nil, err
	}
	err := s.Each(3, func(i int, s job.Steps) error {
		key := fmt.Sprintf("branch/%d", i)
		for n := range 3 {
			if _, err := job.Ask(s, effect(fmt.Sprintf("%s/%d", key, n), in)); err != nil {
				return err
			}
		}
		a, err := s.Await(job.Question{Key: key + "/approve", Kind: "approval", Input: in.Input})
		if err != nil {
			return err
		}
		once := job.Call{Key: key + "/once", Kind: "effect", Input: a.Value, Once: true}
		_, err = job.Ask(s, once)
		return err
	})
	if err != nil {
		return nil, err
	}
	last, err := job.Ask(s, effect("last", in))
	return last.Value, err
}

func effect(key string, in job.Order) job.Call {
	return job.Call{Key: key, Kind: "effect", Input: in.Input}
}

const tours = 5

// runTours is a process that runs jobs and decides their questions until it is
// killed or all have ended. Each effect is a line in a file.
func runTours(dir string) error {
	keys, err := vault.Open(dir, "")
	if err != nil {
		return err
	}
	store, err := sqlstore.Open(ctx, dir, sqlstore.Options{Vault: keys})
	if err != nil {
		return err
	}
	effects, err := os.OpenFile(filepath.Join(dir, "effects"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	engine, err := localjob.Start(localjob.Options{
		Journal: store.Jobs(), Flows: job.NewFlows(job.Flow{Name: "tour", Shape: 1, Run: tour}),
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		Handlers: job.Handlers{"effect": func(ctx context.Context, c job.Call) (job.Answer, error) {
			a, _ := job.AttemptOf(ctx)
			if _, err := fmt.Fprintf(effects, "%s %s\n", a.Job, c.Key); err != nil {
				return job.Answer{}, err
			}
			fmt.Println(a.Job, c.Key)
			time.Sleep(rand.N(2 * time.Millisecond))
			return job.Answer{Value: json.RawMessage(fmt.Sprintf("%q", a.Job+" "+c.Key))}, nil
		}},
	})
	if err != nil {
		return err
	}
	for i := range tours {
		o := job.Order{ID: job.ID{Tenant: "main", Job: fmt.Sprint("job", i)}, Flow: "tour", Input: json.RawMessage(fmt.Sprint(i))}
		if _, err := engine.Submit(ctx, o); err != nil && !errors.Is(err, job.ErrExists) {
			return err
		}
	}
	for {
		all, err := store.Jobs().List(ctx, job.Filter{Tenant: "main", States: []job.State{job.Running, job.Waiting}})
		if err != nil {
			return err
		}
		if len(all) == 0 {
			return errors.Join(engine.Close(ctx), store.Close())
		}
		asked, err := store.Jobs().Pending(ctx, "main")
		if err != nil {
			return err
		}
		for _, p := range asked {
			err := engine.Decide(ctx, job.Decision{ID: p.ID, Key: p.Key, Digest: p.Digest, Answer: job.Answer{Value: json.RawMessage(`"yes"`)}, By: "child"})
			if err != nil {
				return err
			}
		}
		time.Sleep(time.Millisecond)
	}
}

func TestJobsOutliveKilledProcesses(t *testing.T) {
	dir := t.TempDir()
	kills := 0
	for over := false; !over; kills++ {
		if kills > 200 {
			t.Fatal("the jobs do not come to their ends")
		}
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), "LOCALJOB_CHILD="+dir)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := rand.N(12); n >= 0 && lines.Scan(); n-- {
		}
		time.Sleep(rand.N(3 * time.Millisecond)) // also between two steps
		_ = cmd.Process.Kill()                   // unless it has ended by itself
		for lines.Scan() {
		}
		over = cmd.Wait() == nil
	}
	t.Logf("%d processes", kills)
	text, err := os.ReadFile(filepath.Join(dir, "effects"))
	if err != nil {
		t.Fatal(err)
	}
	happened := map[string]int{}
	for line := range strings.Lines(string(text)) {
		happened[strings.TrimSpace(line)]++
	}
	s := openStore(t, dir)
	defer s.Close()
	for i := range tours {
		judgeTour(t, s, job.ID{Tenant: "main", Job: fmt.Sprint("job", i)}, happened)
	}
}

func judgeTour(t *testing.T, s *sqlstore.Store, id job.ID, happened map[string]int) {
	t.Helper()
	h, err := s.Jobs().History(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("%q", id.Job+" last"); h.Job.State != job.Completed || string(h.Job.End.Output) != want {
		t.Errorf("%s ended %s with %+v", id, h.Job.State, h.Job.End)
	}
	begun, decided := map[string]int{}, 0
	for _, r := range h.Records {
		switch r.What {
		case job.Begun:
			begun[r.Key]++
		case job.Answered:
			if r.Answer.Failure == nil && string(r.Answer.Value) != fmt.Sprintf("%q", id.Job+" "+r.Key) {
				t.Errorf("%s: %s has the answer %s", id, r.Key, r.Answer.Value)
			}
			if r.Answer.Failure != nil && r.Answer.Failure.Kind != job.Unknown {
				t.Errorf("%s: %s failed: %+v", id, r.Key, r.Answer.Failure)
			}
			if r.Answer.Tries != begun[r.Key] {
				t.Errorf("%s: %s was answered at try %d, %d are on record", id, r.Key, r.Answer.Tries, begun[r.Key])
			}
		case job.Decided:
			decided++
		}
	}
	if decided != 3 || len(begun) != 16 {
		t.Errorf("%s: %d decisions, %d steps", id, decided, len(begun))
	}
	for key, tries := range begun {
		if n := happened[id.Job+" "+key]; n > tries {
			t.Errorf("%s: %s happened %d times, %d tries are on record", id, key, n, tries)
		} else if n > 1 && strings.HasSuffix(key, "/once") {
			t.Errorf("%s: %s happened %d times", id, key, n)
		}
	}
	if r := job.Replay(job.Flow{Run: tour}, h); len(r.Differences) > 0 {
		t.Errorf("%s run again: %+v", id, r.Differences)
	}
}

func TestFiveHundredWaitingJobs(t *testing.T) {
	const jobs, most, soon = 500 / slower, 300 << 20, slower * 20 * time.Millisecond
	s := openStore(t, t.TempDir())
	defer s.Close()
	ask := func(s job.Steps, in job.Order) (json.RawMessage, error) {
		if _, err := job.Ask(s, job.Call{Key: "model", Kind: "echo", Input: in.Input}); err != nil {
			return nil, err
		}
		a, err := s.Await(job.Question{Key: "q", Kind: "approval", Input: in.Input})
		return a.Value, err
	}
	engine, err := localjob.Start(localjob.Options{
		Journal: s.Jobs(), Flows: job.NewFlows(job.Flow{Name: "ask", Shape: 1, Run: ask}),
		Handlers: job.Handlers{"echo": func(_ context.Context, c job.Call) (job.Answer, error) { return job.Answer{Value: c.Input}, nil }},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close(ctx)
	before := runtime.NumGoroutine()
	input := json.RawMessage(`"` + strings.Repeat("x", 20_000) + `"`)
	var all sync.WaitGroup
	for i := range jobs {
		all.Go(func() {
			if _, err := engine.Submit(ctx, job.Order{ID: job.ID{Tenant: "main", Job: fmt.Sprint(i)}, Flow: "ask", Input: input}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for { // until all are parked
		all, err := s.Jobs().List(ctx, job.Filter{Tenant: "main", States: []job.State{job.Running}})
		if err != nil {
			t.Fatal(err)
		}
		if len(all) == 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	for n, tries := runtime.NumGoroutine(), 0; n > before+20; n = runtime.NumGoroutine() {
		if tries++; tries > 500 { // the last ones come to their ends
			t.Fatalf("%d goroutines for %d waiting jobs, %d before", n, jobs, before)
		}
		time.Sleep(10 * time.Millisecond)
	}
	memory := resident(t)
	if memory > slower*most {
		t.Errorf("%d MB in use", memory>>20)
	}
	asked, err := s.Jobs().Pending(ctx, "main")
	if err != nil || len(asked) != jobs {
		t.Fatalf("%d questions, %v", len(asked), err)
	}
	var took []time.Duration
	for _, p := range asked[:min(jobs, 50)] {
		began := time.Now()
		if err := engine.Decide(ctx, job.Decision{ID: p.ID, Key: p.Key, Digest: p.Digest, Answer: job.Answer{Value: json.RawMessage(`1`)}}); err != nil {
			t.Fatal(err)
		}
		if j, err := engine.Wait(ctx, p.ID); err != nil || j.State != job.Completed {
			t.Fatalf("%+v, %v", j, err)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	t.Logf("%d MB in use; decided to ended: median %v, slowest %v", memory>>20, took[len(took)/2], took[len(took)-1])
	if median := took[len(took)/2]; median > soon {
		t.Errorf("a decided job ends after %v (median), want %v", median, soon)
	}
}

// resident is how much memory this process has, 0 where the system does not say.
func resident(t *testing.T) (bytes int) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if kb, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			if _, err := fmt.Sscan(kb, &bytes); err != nil {
				t.Fatal(err)
			}
		}
	}
	return bytes << 10
}

// BenchmarkJob is a job of 20 tool calls, with a model call and two hooks on each.
// The budget is 100 ms.
func BenchmarkJob(b *testing.B) {
	s := openStore(b, b.TempDir())
	defer s.Close()
	run := func(s job.Steps, in job.Order) (json.RawMessage, error) {
		for i := range 20 {
			for _, key := range []string{"model", "pre", "tool", "post"} {
				c := job.Call{Key: fmt.Sprintf("%d/%s", i, key), Kind: "echo", Input: in.Input, Once: key == "tool"}
				if _, err := job.Ask(s, c); err != nil {
					return nil, err
				}
			}
		}
		return nil, nil
	}
	engine, err := localjob.Start(localjob.Options{
		Journal: s.Jobs(), Flows: job.NewFlows(job.Flow{Name: "run", Shape: 1, Run: run}), Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Handlers: job.Handlers{"echo": func(_ context.Context, c job.Call) (job.Answer, error) { return job.Answer{Value: c.Input}, nil }},
	})
	if err != nil {
		b.Fatal(err)
	}
	defer engine.Close(ctx)
	input := json.RawMessage(`"` + strings.Repeat("x", 1000) + `"`)
	one := func() {
		id, err := engine.Submit(ctx, job.Order{ID: job.ID{Tenant: "main"}, Flow: "run", Input: input})
		if err != nil {
			b.Fatal(err)
		}
		if j, err := engine.Wait(ctx, id); err != nil || j.State != job.Completed {
			b.Fatalf("%+v, %v", j, err)
		}
	}
	b.Run("one", func(b *testing.B) {
		for b.Loop() {
			one()
		}
	})
	b.Run("25 at once", func(b *testing.B) {
		for b.Loop() {
			var all sync.WaitGroup
			for range 25 {
				all.Go(one)
			}
			all.Wait()
		}
	})
}
