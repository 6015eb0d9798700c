package secret

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// BenchmarkScanJSON also reports the best pass by the time of its core, which is what
// the budget is about and does not count what else the machine does.
func BenchmarkScanJSON(b *testing.B) {
	r := rand.New(rand.NewChaCha8([32]byte{2}))
	texts := map[string][]byte{"text": jsonText(r, " "), "escapes": jsonText(r, "\n"), "hex": hexText(r)}
	for _, n := range []int{100, 1000} {
		s := scanner(b, randomValues(r, n)...)
		for _, name := range []string{"text", "escapes", "hex"} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				b.SetBytes(int64(len(texts[name])))
				b.ReportAllocs()
				best := time.Hour
				for b.Loop() {
					begun := coreTime()
					if got, err := s.ScanJSON(texts[name], ""); err != nil || len(got) > 0 {
						b.Fatal(got, err)
					}
					best = min(best, coreTime()-begun)
				}
				b.ReportMetric(float64(len(texts[name]))/float64(best), "best-GB/s")
			})
		}
	}
}

// coreTime is the time that this thread had on a core.
func coreTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(1, &u) // RUSAGE_THREAD
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// jsonText is 16 MiB of JSON: records of short fields and prose.
func jsonText(r *rand.Rand, end string) []byte {
	words := strings.Fields("the customer asked for invoice order status shipped Berlin address street token session updated created payment method refund and is was not yet by")
	var items []map[string]any
	for size := 0; size < MaxText-1<<20; {
		var t strings.Builder
		for range 12 {
			for range 8 {
				t.WriteString(words[r.IntN(len(words))] + " ")
			}
			t.WriteString(end)
		}
		items = append(items, map[string]any{"id": r.Uint32(), "name": words[r.IntN(len(words))], "ref": fmt.Sprintf("%x", r.Uint64()), "note": t.String()})
		size += t.Len() + 70
	}
	raw, _ := json.Marshal(items)
	return raw
}

func hexText(r *rand.Rand) []byte {
	b := make([]byte, 4<<20)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	raw, _ := json.Marshal(hex.EncodeToString(b))
	return raw
}
