// Package flows is code that the check of flows is tried on: lines with a comment
// "want" are faults.
package flows

import (
	"maps"
	"math/rand/v2" // want import math/rand/v2
	"os"           // want import os
	"slices"
	"sort"
	t "time"
)

func clocks() t.Duration {
	_ = os.Args
	_ = rand.Int()
	var when t.Time = t.Now() // want time.Now
	t.Sleep(t.Second)         // want time.Sleep
	now := t.Now              // want time.Now
	_ = when.Add(t.Hour).Sub(when)
	return t.Since(now()) // want time.Since
}

func goroutines() {
	c := make(chan int) // want chan
	go func() {         // want go
		select { // want select
		case c <- 1:
		default:
		}
	}()
}

func orders(m map[string]int, other map[string]int) (out []string, n int) {
	for k := range m { // want range over a map
		out = append(out, k)
	}
	for range m {
		n++
	}
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	var values []int
	for _, v := range m {
		values = append(values, v)
	}
	slices.Sort(values)
	for k, v := range m {
		other[k] = v
	}
	for k := range m {
		delete(other, k)
	}
	for k, v := range m { // want range over a map
		other[k] = len(out) + slices.Index(values, v)
		out = append(out, k)
	}
	for _, v := range m { // any order: a sum
		n += v
	}
	for _, v := range m { // any order:
		n += v // the reason is missing
	}
	for k := range maps.Keys(m) { // want maps.Keys
		out = append(out, k)
	}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, k)
	}
	return append(out, keys...), n
}
