package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/belay-run/belay/internal/secret"
)

const scanned = 16 << 20 // bytes of JSON

// secrets measures the search for known secrets in a text that has none.
func secrets(context.Context) ([]figure, error) {
	r := rand.New(rand.NewChaCha8([32]byte{1}))
	text, err := prose(r)
	if err != nil {
		return nil, err
	}
	took := map[int]time.Duration{}
	few, err := scannerOf(r, 100)
	if err != nil {
		return nil, err
	}
	many, err := scannerOf(r, 1000)
	if err != nil {
		return nil, err
	}
	runtime.LockOSThread() // the clock is that of the thread
	defer runtime.UnlockOSThread()
	for range 15 { // in turns, so that both have the same machine
		for n, s := range map[int]*secret.Scanner{100: few, 1000: many} {
			began := coreTime()
			if found, err := s.ScanJSON(text, ""); err != nil || len(found) > 0 {
				return nil, fmt.Errorf("a scan found %d secrets where there are none: %w", len(found), err)
			}
			if d := coreTime() - began; took[n] == 0 || d < took[n] {
				took[n] = d
			}
		}
	}
	rate := float64(len(text)) / float64(took[100].Nanoseconds())
	return []figure{
		{"a scan of 16 MiB of JSON for 100 secrets in all forms, a core", in(took[100], time.Millisecond), float64(len(text)) / 1e6, "ms", fmt.Sprintf("  (%.2f GB/s)", rate)},
		{"the same for 1,000 secrets, times that", float64(took[1000]) / float64(took[100]), 1.5, "×", ""},
	}, nil
}

func scannerOf(r *rand.Rand, n int) (*secret.Scanner, error) {
	from := make([]byte, 32)
	for i := range from {
		from[i] = byte(r.Uint32())
	}
	key, err := secret.NewKey(from)
	if err != nil {
		return nil, err
	}
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-/+"
	var entries []secret.Entry
	for i := range n {
		value := make([]byte, 12+r.IntN(40))
		for j := range value {
			value[j] = letters[r.IntN(len(letters))]
		}
		prints, err := key.Prints(value)
		if err != nil {
			return nil, err
		}
		entries = append(entries, secret.Entry{Name: fmt.Sprintf("S%d", i), Prints: prints})
	}
	return secret.NewScanner(key, entries), nil
}

// prose is JSON as tools answer it: records of short fields and text.
func prose(r *rand.Rand) ([]byte, error) {
	words := strings.Fields("the customer asked for invoice order status shipped Berlin address street token session updated created payment method refund and is was not yet by")
	var items []map[string]any
	for size := 0; size < scanned-1<<20; {
		var t strings.Builder
		for range 90 {
			t.WriteString(words[r.IntN(len(words))] + " ")
		}
		items = append(items, map[string]any{"id": fmt.Sprintf("%08x", r.Uint32()), "amount": r.IntN(100000), "text": t.String()})
		size += t.Len() + 60
	}
	return json.Marshal(items)
}

// coreTime is the time that this thread had on a core.
func coreTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(thread, &u) // it never fails for the caller's own
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
