package sqlstore

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belay-run/belay/internal/job"
)

// BenchmarkStep records steps as a job does, an effect begun and then answered.
// The budget is 0.4 ms beyond what BenchmarkSync says the disk costs.
func BenchmarkStep(b *testing.B) {
	for _, size := range []int{100, 20_000, 200_000} {
		b.Run(fmt.Sprintf("bytes=%d", size), func(b *testing.B) { benchmarkStep(b, 1, size, false) })
	}
	b.Run("once", func(b *testing.B) { benchmarkStep(b, 1, 100, true) })
	b.Run("jobs=100", func(b *testing.B) { benchmarkStep(b, 100, 100, false) })
}

func benchmarkStep(b *testing.B, jobs, size int, once bool) {
	s := open(b, b.TempDir(), Options{})
	j := s.Jobs()
	for i := range jobs {
		if err := j.Create(b.Context(), anOrder(fmt.Sprint(i))); err != nil {
			b.Fatal(err)
		}
	}
	leases, err := j.Claim(b.Context(), job.Claim{Owner: "me", Now: at, Until: at.Add(time.Hour), Limit: jobs})
	if err != nil || len(leases) != jobs {
		b.Fatal(len(leases), err)
	}
	input := `"` + strings.Repeat("x", size) + `"`
	var l latencies
	var wg sync.WaitGroup
	work := make(chan struct{})
	for _, lease := range leases {
		wg.Go(func() {
			for n := 0; ; n++ {
				if _, ok := <-work; !ok {
					return
				}
				key := fmt.Sprintf("%d/model", n)
				r := begunRecord(key, input)
				r.Once = once
				began := time.Now()
				if err := j.Begin(context.Background(), lease, []job.Record{r}); err != nil {
					b.Error(err)
				}
				if err := j.Keep(context.Background(), lease, []job.Record{answer(key, input)}); err != nil {
					b.Error(err)
				}
				l.add(time.Since(began))
			}
		})
	}
	b.ResetTimer()
	for b.Loop() {
		work <- struct{}{}
	}
	close(work)
	wg.Wait()
	b.StopTimer()
	l.report(b)
}

// BenchmarkLoadJob loads a job of 200 steps, as a run does that wakes.
func BenchmarkLoadJob(b *testing.B) {
	s := open(b, b.TempDir(), Options{})
	l := taken(b, s.Jobs(), "a")
	for n := range 200 {
		key := fmt.Sprint(n)
		if err := s.Jobs().Begin(b.Context(), l, []job.Record{begunRecord(key, `{"a":1}`)}); err != nil {
			b.Fatal(err)
		}
		if err := s.Jobs().Keep(b.Context(), l, []job.Record{answer(key, `{"a":1}`)}); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if _, err := s.Jobs().Load(b.Context(), l); err != nil {
			b.Fatal(err)
		}
	}
}
