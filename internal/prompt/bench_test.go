package prompt

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func history(n int) []json.RawMessage {
	out := []json.RawMessage{msg("system", "You are a clinic's assistant.")}
	for i := range n {
		out = append(out, msg("user", fmt.Sprintf("%d: %s", i, strings.Repeat("Can I come on Tuesday at nine? ", 65))))
	}
	return out
}

// 200 KB far under the budget: nothing is counted.
func BenchmarkFitFarUnderBudget(b *testing.B) {
	f, messages := NewFitter("gpt-4o"), history(100)
	b.ReportAllocs()
	for b.Loop() {
		f.Fit(messages, 1_000_000, nil)
	}
}

// 200 KB near the budget, all counted at an earlier call.
func BenchmarkFitRemembered(b *testing.B) {
	f, messages := NewFitter("gpt-4o"), history(100)
	b.ReportAllocs()
	for b.Loop() {
		f.Fit(messages, 50_000, nil)
	}
}

// 200 KB of which half must go, all counted at an earlier call.
func BenchmarkFitCutting(b *testing.B) {
	f, messages := NewFitter("gpt-4o"), history(100)
	b.ReportAllocs()
	for b.Loop() {
		f.Fit(messages, 25_000, nil)
	}
}

func BenchmarkCount(b *testing.B) {
	text := strings.Repeat("Can I come on Tuesday at nine? ", 165)
	for _, v := range []*vocabulary{o200k, cl100k} {
		b.Run(string(v.encoding), func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				v.count(text, len(text))
			}
		})
	}
}
