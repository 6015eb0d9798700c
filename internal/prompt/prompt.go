// Package prompt keeps a prompt within its token budget.
//
// A [Fitter] belongs to one model. Its Fit takes the chat messages of a request,
// oldest first, and drops the oldest that may go until the rest fits:
//
//	f := prompt.NewFitter("gpt-4o")
//	fitted := f.Fit(messages, 8000, func(i int) bool { return i == note })
//	request.Messages = fitted.Messages // fitted.Dropped goes into the trace
//
// What never goes: the system messages at the head, the last user message, and
// what protect names, such as a hook's note to the model. A tool message goes or
// stays together with the assistant message that made its call, because providers
// refuse one without the other. Messages are never changed, only left out.
//
// Counting is the dear part, some 10 ms for 100 KB of text, so it is put off: a token
// is never shorter than a byte, hence messages with fewer bytes than the budget
// has tokens need no counting at all, and no vocabulary is loaded for them. Past
// that the largest messages are counted first, only until the sum of counts and
// sizes fits, and each count is kept under a digest of its message.
package prompt

import (
	"encoding/json"
	"math"

	"github.com/belay-run/belay/internal/chat"
)

// NoBudget is a budget that nothing exceeds.
const NoBudget = math.MaxInt

// Fitted is a prompt within its budget, or as near to it as could be.
type Fitted struct {
	// Messages are those kept, in their order: the slice that came in when
	// nothing was dropped.
	Messages []json.RawMessage
	// Dropped is how many messages were left out.
	Dropped int
	// Over says that what may not be dropped is more than the budget.
	Over bool
}

// Fit drops the oldest messages that may go until the rest is at most budget
// tokens. protect, which may be nil, names by index what must stay. Nothing else
// is exempt: when the messages of the current turn should stay, name them.
func (f *Fitter) Fit(messages []json.RawMessage, budget int, protect func(i int) bool) Fitted {
	all, total := f.weigh(messages, budget)
	if total <= budget {
		return Fitted{Messages: messages}
	}
	units := split(all, protect)
	gone := make([]bool, len(messages))
	dropped := 0
	for _, u := range units {
		if total <= budget {
			break
		}
		if u.kept {
			continue
		}
		for _, i := range u.members {
			gone[i] = true
			total -= all[i].tokens
			dropped++
		}
	}
	kept := make([]json.RawMessage, 0, len(messages)-dropped)
	for i, m := range messages {
		if !gone[i] {
			kept = append(kept, m)
		}
	}
	return Fitted{Messages: kept, Dropped: dropped, Over: total > budget}
}

// Within returns Fit for whole requests: what the offered tools cost is taken off
// the budget first. It gives the messages kept and how many were dropped.
func (f *Fitter) Within(budget int) func(messages []json.RawMessage, tools []chat.Tool, protect func(i int) bool) ([]json.RawMessage, int) {
	return func(messages []json.RawMessage, tools []chat.Tool, protect func(i int) bool) ([]json.RawMessage, int) {
		size := 0
		for _, m := range messages {
			size += bound(m)
		}
		for _, t := range tools {
			size += len(t.Name) + len(t.Description) + len(t.Parameters) + perTool
		}
		if size <= budget {
			return messages, 0
		}
		left := budget
		for _, t := range tools {
			left -= f.Tokens([]byte(t.Name)) + f.Tokens([]byte(t.Description)) + f.Tokens(t.Parameters) + perTool
		}
		fitted := f.Fit(messages, left, protect)
		return fitted.Messages, fitted.Dropped
	}
}

// unit is what goes or stays as one: a message, or an assistant message with the
// tool messages that answer its calls.
type unit struct {
	members []int
	kept    bool
}

// split puts the messages into units, oldest first.
func split(all []facts, protect func(int) bool) []unit {
	lastUser := -1
	for i := range all {
		if all[i].role == "user" {
			lastUser = i
		}
	}
	var units []unit
	callers := map[string]int{} // call id → the unit that made it
	leading := true
	for i, m := range all {
		leading = leading && (m.role == "system" || m.role == "developer")
		kept := leading || i == lastUser || protect != nil && protect(i)
		if at, ok := callers[m.answers]; ok && m.role == "tool" {
			units[at].members = append(units[at].members, i)
			units[at].kept = units[at].kept || kept
			continue
		}
		for _, id := range m.calls {
			callers[id] = len(units)
		}
		units = append(units, unit{members: []int{i}, kept: kept})
	}
	return units
}
