package pyhost

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belay-run/belay/hook"
)

// roundTrips asks one hook again and again, one call after another, and reports
// the median beside the mean.
func roundTrips(b *testing.B, r *rig, fn string, p hook.Payload, wantChanges int) {
	k := r.hook(fn)
	answers := make(chan hook.Answer, 1)
	ask := func() hook.Answer {
		r.Start(context.Background(), hook.Question{Hook: k, Payload: p, Key: "k"}, func(a hook.Answer) { answers <- a })
		return <-answers
	}
	for range 50 {
		ask()
	}
	times := make([]time.Duration, 0, b.N)
	b.ResetTimer()
	b.ReportAllocs()
	for range b.N {
		start := time.Now()
		a := ask()
		times = append(times, time.Since(start))
		if a.Failure != nil || len(a.Verdict.Changes) != wantChanges {
			b.Fatalf("answer is %+v, failure %v", a.Verdict, a.Failure)
		}
	}
	b.StopTimer()
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Nanoseconds())/1e3, "p50-µs")
	b.ReportMetric(float64(times[len(times)*99/100].Nanoseconds())/1e3, "p99-µs")
}

func BenchmarkModify1KB(b *testing.B) {
	r := newRig(b, shout)
	r.spareReady()
	p := hook.NewPayload(hook.PointNamed(hook.IncomingMessage)).Set("text", strings.Repeat("a word ", 140)).Set("sender_id", "someone")
	roundTrips(b, r, "shout", p, 1)
}

func BenchmarkObserve1KB(b *testing.B) {
	r := newRig(b, `
@on_incoming_message()
async def look(message: IncomingMessagePayload) -> None:
    pass
`)
	r.spareReady()
	p := hook.NewPayload(hook.PointNamed(hook.IncomingMessage)).Set("text", strings.Repeat("a word ", 140)).Set("sender_id", "someone")
	roundTrips(b, r, "look", p, 0)
}

// history is about 200 KB of chat messages.
func history() []map[string]any {
	var messages []map[string]any
	for i := range 200 {
		role := "user"
		if i%2 == 1 {
			role = "assistant"
		}
		messages = append(messages, map[string]any{"role": role, "content": fmt.Sprintf("%d: %s", i, strings.Repeat("Something that was said. ", 38))})
	}
	return messages
}

func BenchmarkModelRequest200KB(b *testing.B) {
	r := newRig(b, `
@modify_model_request()
async def shape(request: ModelRequestPayload) -> ModelRequestPayload:
    messages = [*request.messages, {"role": "system", "content": "Be brief."}]
    return request.model_copy(update={"messages": messages, "model_settings": {"temperature": 0.2}})
`)
	r.spareReady()
	p := hook.NewPayload(hook.PointNamed(hook.ModelRequest)).Set("messages", history()).Set("tool_names", []string{"book", "cancel"})
	raw, _ := json.Marshal(p)
	b.SetBytes(int64(len(raw)))
	roundTrips(b, r, "shape", p, 2)
}
