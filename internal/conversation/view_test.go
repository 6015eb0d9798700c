package conversation

import (
	"encoding/json"
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// TestViewKeepsCallsAndResultsTogether draws records and cuts their views
// anywhere: each tool message follows the assistant message with its call, and
// each call has its result.
func TestViewKeepsCallsAndResultsTogether(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var events []Event
		for turn := range rapid.IntRange(0, 8).Draw(t, "turns") {
			events = append(events, Event{Kind: User, Text: rapid.SampledFrom([]string{"hi", "book", ""}).Draw(t, "user")})
			if rapid.Bool().Draw(t, "rejected") {
				events[len(events)-1].Discarded = &Discarded{By: "rejected"}
			}
			for batch := range rapid.IntRange(0, 2).Draw(t, "batches") {
				id := fmt.Sprintf("%d-c%d_%d_0", batch, turn, batch)
				if rapid.Bool().Draw(t, "filler") {
					events = append(events, Event{Kind: Bot, Text: "one moment", Source: Filler, BatchID: id})
				}
				for call := range rapid.IntRange(1, 3).Draw(t, "calls") {
					events = append(events, Event{Kind: ToolExecuted, Tool: &ToolRun{Name: "f", Arguments: json.RawMessage(`{}`), Result: "r",
						CallID: fmt.Sprintf("c%d_%d_%d", turn, batch, call), BatchID: id}})
					if rapid.Bool().Draw(t, "said") {
						events = append(events, Event{Kind: Bot, Text: "done", Source: Verbatim})
					}
				}
			}
			events = append(events, Event{Kind: Bot, Text: "bye", Source: FromModel})
		}
		limit := rapid.IntRange(0, 6).Draw(t, "limit")
		checkView(t, View(events, limit), limit)
	})
}

func checkView(t *rapid.T, view []json.RawMessage, limit int) {
	open := map[string]bool{}
	said := 0
	for i, raw := range view {
		var m message
		if err := json.Unmarshal(raw, &m); err != nil {
			t.Fatal(err)
		}
		if m.Role == "tool" {
			if !open[m.ToolCallID] {
				t.Fatalf("message %d answers %s, which is not open", i, m.ToolCallID)
			}
			delete(open, m.ToolCallID)
			continue
		}
		if len(open) > 0 {
			t.Fatalf("message %d comes before the results of %v", i, open)
		}
		for _, c := range m.ToolCalls {
			open[c.ID] = true
		}
		if m.Content != nil && *m.Content != "" {
			said++
		}
	}
	if len(open) > 0 {
		t.Fatalf("calls without results: %v", open)
	}
	if limit > 0 && said > limit {
		t.Fatalf("%d utterances, the limit is %d", said, limit)
	}
}

func TestMendClosesWhatAProcessLeftOpen(t *testing.T) {
	events := []Event{
		{Seq: 1, Kind: SessionStarted, Turn: "t1"}, {Seq: 2, Kind: User, Turn: "t1", Text: "book"},
		{Seq: 3, Kind: ToolBatch, Turn: "t1", Batch: []ToolRun{{Name: "a", CallID: "1", BatchID: "0-1"}, {Name: "b", CallID: "2", BatchID: "0-1"}}},
		{Seq: 4, Kind: ToolExecuted, Turn: "t1", Tool: &ToolRun{Name: "a", CallID: "1", BatchID: "0-1", Result: "done"}},
	}
	r := Of(nil, ID{}, events)
	if !r.Mend(events[0].At) {
		t.Fatal("nothing was mended")
	}
	got := r.Events()[len(events):]
	if len(got) != 2 || got[0].Tool.CallID != "2" || got[0].Tool.Result != Unknown || !got[0].Tool.IsError || got[1].Kind != TurnInterrupted {
		t.Fatalf("mended with %+v", got)
	}
	if r.Mend(events[0].At) {
		t.Error("it was mended twice")
	}
}
