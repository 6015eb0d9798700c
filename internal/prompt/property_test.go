package prompt

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// conversation draws messages as a conversation has them, and some that no
// conversation has.
func conversation(t *rapid.T) []json.RawMessage {
	var out []json.RawMessage
	n := rapid.IntRange(0, 12).Draw(t, "n")
	for i := range n {
		size := rapid.SampledFrom([]int{0, 1, 5, 30, 120}).Draw(t, "size")
		text := words(size)
		switch rapid.IntRange(0, 5).Draw(t, "kind") {
		case 0:
			out = append(out, msg("system", text))
		case 1, 2:
			out = append(out, msg("user", text))
		case 3:
			out = append(out, msg("assistant", text))
		case 4:
			ids := []string{fmt.Sprint("c", i), fmt.Sprint("d", i)}[:rapid.IntRange(1, 2).Draw(t, "calls")]
			out = append(out, calls(text, ids...))
			for _, id := range ids {
				out = append(out, result(id, text))
			}
		case 5:
			out = append(out, rapid.SampledFrom([]json.RawMessage{
				json.RawMessage(`{}`), json.RawMessage(`{"role":[]}`), result("nowhere", text),
			}).Draw(t, "odd"))
		}
	}
	return out
}

func TestFitHoldsItsPromises(t *testing.T) {
	f := NewFitter("gpt-4o")
	rapid.Check(t, func(t *rapid.T) {
		messages := conversation(t)
		budget := rapid.IntRange(-1, 700).Draw(t, "budget")
		protected := map[int]bool{}
		for i := range messages {
			protected[i] = rapid.IntRange(0, 6).Draw(t, "protected") == 0
		}
		before := slices.Clone(messages)
		got := f.Fit(messages, budget, func(i int) bool { return protected[i] })

		if !equal(messages, before) {
			t.Fatal("the messages that came in were changed")
		}
		if got.Dropped != len(messages)-len(got.Messages) {
			t.Fatalf("dropped %d of %d, and %d are left", got.Dropped, len(messages), len(got.Messages))
		}
		kept := keptIndexes(t, messages, got.Messages)
		units := split(allFacts(f, messages), func(i int) bool { return protected[i] })
		sum := total(f, got.Messages)
		if got.Over != (sum > budget) {
			t.Fatalf("over is %v at %d of %d", got.Over, sum, budget)
		}
		var oldestKept, lastDropped = len(messages), -1
		for _, u := range units {
			for _, i := range u.members {
				if kept[i] != kept[u.members[0]] {
					t.Fatalf("%d and %d were separated", u.members[0], i)
				}
				if protected[i] && !kept[i] {
					t.Fatalf("%d was protected and dropped", i)
				}
			}
			if u.kept {
				continue
			}
			if kept[u.members[0]] {
				oldestKept = min(oldestKept, u.members[0])
			} else {
				lastDropped = u.members[0]
			}
		}
		if lastDropped > oldestKept {
			t.Fatalf("%d was dropped before %d", lastDropped, oldestKept)
		}
		if got.Over && oldestKept < len(messages) {
			t.Fatalf("%d could go, and the prompt is over its budget", oldestKept)
		}
		if lastDropped >= 0 { // with the last unit dropped still there it would not fit
			i := slices.IndexFunc(units, func(u unit) bool { return u.members[0] == lastDropped })
			for _, m := range units[i].members {
				sum += f.facts(messages[m], 1<<30).tokens
			}
			if sum <= budget {
				t.Fatalf("%d was dropped without need", lastDropped)
			}
		}
	})
}

// keptIndexes finds the kept messages among all by the slices' first bytes, as
// equal messages may stand at many places.
func keptIndexes(t *rapid.T, all, kept []json.RawMessage) map[int]bool {
	out := map[int]bool{}
	at := 0
	for _, k := range kept {
		for at < len(all) && &all[at][0] != &k[0] {
			at++
		}
		if at == len(all) {
			t.Fatal("a message is new or out of order")
		}
		out[at] = true
		at++
	}
	return out
}

func total(f *Fitter, messages []json.RawMessage) int {
	sum := 0
	for _, m := range messages {
		sum += f.facts(m, 1<<30).tokens
	}
	return sum
}

func TestCostIsWithinItsBound(t *testing.T) {
	f := NewFitter("gpt-4o")
	rapid.Check(t, func(t *rapid.T) {
		content := rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) })).Draw(t, "content")
		message := json.RawMessage(`{"role":"user","content":` + content + `}`) // often no JSON at all
		if rapid.Bool().Draw(t, "quoted") {
			message = msg("user", content)
		}
		if n := f.facts(message, 1<<30).tokens; n > bound(message) || n < 0 {
			t.Fatalf("cost %d, bound %d", n, bound(message))
		}
	})
}

func FuzzFit(f *testing.F) {
	f.Add([]byte(`{"role":"user","content":"hi"}`), []byte(`{"role":"tool","tool_call_id":"1"}`), 10)
	f.Add([]byte(`{"role":"assistant","tool_calls":[{"id":"1"}]}`), []byte(`[`), 0)
	f.Fuzz(func(t *testing.T, a, b []byte, budget int) {
		messages := []json.RawMessage{a, b, a}
		got := NewFitter("gpt-4o").Fit(messages, budget, nil)
		if len(got.Messages)+got.Dropped != len(messages) {
			t.Errorf("%d kept, %d dropped of %d", len(got.Messages), got.Dropped, len(messages))
		}
	})
}

func allFacts(f *Fitter, messages []json.RawMessage) []facts {
	out := make([]facts, len(messages))
	for i, m := range messages {
		out[i] = f.facts(m, 1<<30)
	}
	return out
}
