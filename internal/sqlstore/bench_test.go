package sqlstore

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/belay-run/belay/internal/conversation"
)

// Run with: go test -run '^$' -bench . ./internal/sqlstore
//
// BenchmarkSync is what the disk itself costs; the others print the median and
// the 99th percentile of one append, to be held against it.

// latencies collects how long each operation took.
type latencies struct {
	mu  sync.Mutex
	all []time.Duration
}

func (l *latencies) add(d time.Duration) {
	l.mu.Lock()
	l.all = append(l.all, d)
	l.mu.Unlock()
}

func (l *latencies) report(b *testing.B) {
	slices.Sort(l.all)
	at := func(p float64) float64 {
		return float64(l.all[int(p*float64(len(l.all)-1))].Microseconds())
	}
	b.ReportMetric(at(0.5), "p50-µs")
	b.ReportMetric(at(0.99), "p99-µs")
}

// BenchmarkSync appends as many bytes to a plain file as a turn writes to the
// log, and syncs it.
func BenchmarkSync(b *testing.B) {
	f, err := os.Create(filepath.Join(b.TempDir(), "plain"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	page := make([]byte, 5*4096)
	var l latencies
	for b.Loop() {
		began := time.Now()
		if _, err := f.Write(page); err != nil {
			b.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			b.Fatal(err)
		}
		l.add(time.Since(began))
	}
	l.report(b)
}

func BenchmarkAppend(b *testing.B) {
	for _, n := range []int{1, 200} {
		b.Run(fmt.Sprintf("conversations=%d", n), func(b *testing.B) { benchmarkAppend(b, n, 0) })
	}
	b.Run("with 20 trace lines", func(b *testing.B) { benchmarkAppend(b, 1, 20) })
}

// benchmarkAppend lets n conversations append two events at a time, each waiting
// for the disk before it goes on.
func benchmarkAppend(b *testing.B, n, lines int) {
	s := open(b, b.TempDir(), Options{})
	var l latencies
	var wg sync.WaitGroup
	work := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			id := conversation.ID{Tenant: "main", Agent: "clinic", Sender: fmt.Sprint(i)}
			for seq := int64(1); ; seq += 2 {
				if _, ok := <-work; !ok {
					return
				}
				events := []conversation.Event{
					{Seq: seq, Kind: conversation.User, Turn: "turn", At: at, Text: "I would like to see a doctor next Tuesday, please."},
					{Seq: seq + 1, Kind: conversation.Bot, Turn: "turn", At: at, Text: "There is a free slot at 10:30. Shall I book it?"},
				}
				began := time.Now()
				if lines > 0 {
					trace := make([]conversation.Trace, lines)
					for i := range trace {
						trace[i] = conversation.Trace{Turn: "turn", At: at, Data: json.RawMessage(`{"point":"modify_tool_call","hook":"hooks/mask.py:mask","us":120}`)}
					}
					if err := s.AppendTrace(context.Background(), id, trace); err != nil {
						b.Error(err)
					}
				}
				if err := s.Append(context.Background(), id, events); err != nil {
					b.Error(err)
					return
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

// BenchmarkLoad reads a conversation of 100 events.
func BenchmarkLoad(b *testing.B) {
	s := open(b, b.TempDir(), Options{})
	for seq := range int64(100) {
		add(b, s, ann, says(seq+1, "I would like to see a doctor next Tuesday, please."))
	}
	for b.Loop() {
		if _, err := s.Load(b.Context(), ann); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkOpen opens and closes the store of a folder that is there.
func BenchmarkOpen(b *testing.B) {
	dir := b.TempDir()
	o := Options{Vault: keys(b, dir)}
	for b.Loop() {
		s, err := Open(b.Context(), dir, o)
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
