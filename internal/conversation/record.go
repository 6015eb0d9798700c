package conversation

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Unknown is the result of a tool whose process ended while it ran.
const Unknown = "The outcome of this call is unknown: it was interrupted while it ran and may or may not have taken effect. Do not call it again before the user has agreed."

// ResolveConfirmation is the name of the call that answers a confirmation.
const ResolveConfirmation = "resolve_tool_confirmation"

// Record is one conversation in memory: its events, those not yet on disk among
// them, and what follows from them. One turn at a time uses it.
type Record struct {
	id     ID
	events []Event
	kept   int // how many of events are on disk
	store  Store

	pending *ToolRun
	ended   bool // the session was ended and no message came since
	batch   []ToolRun
	agreed  *ToolRun // the confirmed call that runs, or ran, in the open turn
	open    string   // the turn that began and has not ended

	// Memo is what a user of the record has made of its events, so as not to make
	// it anew at each turn.
	Memo any
}

// Open loads a conversation. store may be nil: then nothing is kept.
func Open(ctx context.Context, store Store, id ID) (*Record, error) {
	r := &Record{id: id, store: store}
	if store == nil {
		return r, nil
	}
	events, err := store.Load(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("load the conversation: %w", err)
	}
	return Of(store, id, events), nil
}

// Of makes a record of events that are on disk already.
func Of(store Store, id ID, events []Event) *Record {
	r := &Record{id: id, store: store}
	for _, e := range events {
		r.take(e)
	}
	r.kept = len(r.events)
	return r
}

// ID returns the conversation's id.
func (r *Record) ID() ID { return r.id }

// Events returns the events in order. The caller must not write to it.
func (r *Record) Events() []Event { return r.events }

// Pending returns the call that waits for the user's confirmation, nil when none
// does.
func (r *Record) Pending() *ToolRun { return r.pending }

// Began says whether a session is under way.
func (r *Record) Began() bool { return len(r.events) > 0 && !r.ended }

// Add appends an event; [Record.Flush] puts it on disk.
func (r *Record) Add(e Event) {
	e.Seq = int64(len(r.events)) + 1
	r.take(e)
}

// take appends an event and follows what it changes.
func (r *Record) take(e Event) {
	r.events = append(r.events, e)
	if e.Turn != "" {
		r.open = e.Turn
	}
	switch e.Kind {
	case SessionEnded:
		r.ended, r.pending = true, nil
	case SessionStarted:
		r.ended = false
	case ConfirmAsked:
		r.pending = e.Tool
	case ConfirmResolved:
		if e.Confirmed != nil && *e.Confirmed {
			r.agreed = r.pending
		}
		r.pending = nil
	case ToolBatch:
		r.batch = append(r.batch[:len(r.batch):len(r.batch)], e.Batch...)
	case ToolExecuted:
		r.answered(e.Tool)
	case BotTurnEnded, TurnInterrupted:
		r.batch, r.agreed, r.open = nil, nil, ""
	}
}

// answered takes a call off the list of those begun.
func (r *Record) answered(run *ToolRun) {
	for i := range r.batch {
		if b := r.batch[i]; b.CallID == run.CallID && (b.CallID != "" || b.Name == run.Name) {
			r.batch = append(r.batch[:i:i], r.batch[i+1:]...)
			return
		}
	}
}

// Begun says whether a call of the open turn is written down as begun and has no
// answer yet.
func (r *Record) Begun(callID string) bool {
	return slices.ContainsFunc(r.batch, func(run ToolRun) bool { return run.CallID == callID })
}

// Mend closes a turn that the process before this one left open: calls that were
// begun and have no answer get the outcome "unknown". It says whether there was
// one.
func (r *Record) Mend(at time.Time) bool {
	if r.open == "" {
		return false
	}
	turn := r.open
	for _, run := range append([]ToolRun(nil), r.batch...) {
		r.BreakOff(run, turn, at)
	}
	r.Add(Event{Kind: TurnInterrupted, Turn: turn, At: at, Note: "the process ended in this turn"})
	return true
}

// BreakOff records a call that was interrupted while it ran: what it did nobody
// knows.
func (r *Record) BreakOff(run ToolRun, turn string, at time.Time) {
	run.Result, run.IsError = Unknown, true
	if r.agreed != nil && run.Name == ResolveConfirmation {
		// What ran was the call that the user agreed to.
		run.Result = "The call of " + r.agreed.Name + ", to which the user agreed: " + Unknown
		r.Add(Event{Kind: ToolExecuted, Turn: turn, At: at, Tool: &ToolRun{Name: r.agreed.Name, Arguments: run.Arguments,
			Result: Unknown, IsError: true, Source: SourceConfirmation, Skill: r.agreed.Skill, Step: r.agreed.Step}})
	}
	r.Add(Event{Kind: ToolExecuted, Turn: turn, At: at, Tool: &run})
}

// Flush puts the events that are not there yet on disk and returns when they are.
// When it fails nothing that depends on them may leave.
func (r *Record) Flush(ctx context.Context) error {
	if r.kept == len(r.events) {
		return nil
	}
	if r.store != nil {
		if err := r.store.Append(ctx, r.id, r.events[r.kept:]); err != nil {
			return fmt.Errorf("write the conversation's record: %w", err)
		}
	}
	r.kept = len(r.events)
	return nil
}

// FixedReply says whether a fixed text was sent in this turn.
func (r *Record) FixedReply(turn string) bool {
	for i := len(r.events) - 1; i >= 0 && r.events[i].Turn == turn; i-- {
		e := &r.events[i]
		if e.Kind == Bot && e.Discarded == nil && (e.Source == Verbatim || e.Source == Rephrased) {
			return true
		}
	}
	return false
}
