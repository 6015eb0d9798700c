package app

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belay-run/belay/internal/conversation"
	"github.com/belay-run/belay/internal/loop"
	"github.com/belay-run/belay/internal/turn"
)

// Transcript puts a conversation into lines for a person: who said what, which
// tools ran, and which texts were stopped. Traces, when there are some, stand
// below their turns.
func Transcript(events []conversation.Event, traces []conversation.Trace) (string, error) {
	turns, err := turnsOf(events, traces)
	if err != nil {
		return "", err
	}
	answered := map[string]bool{}
	for _, e := range events {
		if e.Kind == conversation.ToolExecuted && e.Tool != nil {
			answered[runKey(e.Tool)] = true
		}
	}
	var b strings.Builder
	for _, t := range turns {
		fmt.Fprintf(&b, "\n%s  %s\n", t.at.Local().Format(time.DateTime), t.id)
		for i := range t.events {
			writeEvent(&b, &t.events[i], answered)
		}
		if t.trace.Lines != nil {
			b.WriteString(TraceText(turn.Report{Turn: t.id, Status: t.trace.Status, Why: t.trace.Why, Took: t.trace.Took, Lines: t.trace.Lines}))
		}
		for _, l := range t.observers {
			for _, r := range l.Runs {
				fmt.Fprintf(&b, "  ○ %s %s: %s in %s\n", l.Point, r.Name, said(r), short(r.Took))
			}
		}
	}
	return b.String(), nil
}

// recorded is a turn as the records have it.
type recorded struct {
	id        string
	at        time.Time
	events    []conversation.Event
	trace     TurnTrace
	observers []loop.Line // they ended when they liked
}

// turnsOf sorts events and traces into turns. A turn may have left no event.
func turnsOf(events []conversation.Event, traces []conversation.Trace) ([]*recorded, error) {
	var turns []*recorded
	of := map[string]*recorded{}
	for _, e := range events {
		t := of[e.Turn]
		if t == nil {
			t = &recorded{id: e.Turn, at: e.At}
			of[e.Turn], turns = t, append(turns, t)
		}
		t.events = append(t.events, e)
	}
	for _, l := range traces {
		var trace TurnTrace
		if err := json.Unmarshal(l.Data, &trace); err != nil {
			return nil, fmt.Errorf("read the trace of turn %s: %w", l.Turn, err)
		}
		t := of[l.Turn]
		if t == nil {
			t = &recorded{id: l.Turn, at: l.At}
			of[l.Turn], turns = t, append(turns, t)
		}
		if trace.Status == "" {
			t.observers = append(t.observers, trace.Lines...)
		} else {
			t.trace = trace
		}
	}
	slices.SortStableFunc(turns, func(a, b *recorded) int { return a.at.Compare(b.at) })
	return turns, nil
}

func writeEvent(b *strings.Builder, e *conversation.Event, answered map[string]bool) {
	line := func(who, text string) {
		// Further lines are indented, so that no text passes for another's.
		fmt.Fprintf(b, "  %-6s %s\n", who, strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n         "))
	}
	switch e.Kind {
	case conversation.User:
		line("user>", stopped(e.Discarded)+e.Text+beside(e.Extra))
	case conversation.Bot:
		line("agent>", stopped(e.Discarded)+e.Text+beside(e.Extra))
	case conversation.ToolBatch:
		for _, run := range e.Batch {
			if !answered[runKey(&run)] {
				line("tool", fmt.Sprintf("%s %s: no outcome is recorded", run.Name, run.Arguments))
			}
		}
	case conversation.ToolExecuted:
		if e.Tool != nil {
			line("tool", fmt.Sprintf("%s %s: %s%s", e.Tool.Name, e.Tool.Arguments, failed(e.Tool.IsError), e.Tool.Result))
		}
	case conversation.ConfirmAsked:
		if e.Tool != nil { // its arguments are those before the tool-result hooks
			line("·", "asked whether to call "+e.Tool.Name)
		}
	case conversation.ConfirmResolved:
		line("·", map[bool]string{true: "confirmed", false: "denied"}[e.Confirmed != nil && *e.Confirmed])
	case conversation.MemorySet, conversation.MemoryCleared:
		if m := e.Memory; m != nil {
			value := "cleared"
			if m.Value != nil {
				value = string(m.Value)
			}
			line("·", "memory "+m.Name+": "+value+because(m.By))
		}
	case conversation.BlockStep, conversation.BlockAsked, conversation.BlockEntered, conversation.BlockCompleted, conversation.BlockCancelled:
		line("·", strings.ReplaceAll(string(e.Kind), "_", " ")+because(e.Skill+"/"+e.Block)+because(e.Step))
	case conversation.SkillActivated, conversation.SkillCompleted, conversation.SkillCancelled, conversation.SkillInterrupted, conversation.SkillResumed:
		line("·", strings.ReplaceAll(string(e.Kind), "_", " ")+because(e.Skill)+because(e.Note))
	default: // sessions and ends of turns
		line("·", strings.ReplaceAll(string(e.Kind), "_", " ")+because(e.Status)+because(e.Note))
	}
}

// runKey tells the runs of tools apart: the engine's have no call id.
func runKey(r *conversation.ToolRun) string {
	if r.CallID != "" {
		return r.CallID
	}
	return r.Source + "/" + r.Step + "/" + r.Name
}

func stopped(d *conversation.Discarded) string {
	if d == nil {
		return ""
	}
	return "[discarded: " + strings.ReplaceAll(d.By, "_", " ") + because(d.Hook) + because(d.Reason) + "] "
}

func beside(extra json.RawMessage) string {
	if len(extra) == 0 {
		return ""
	}
	return " + " + string(extra)
}

func failed(isError bool) string {
	if isError {
		return "failed: "
	}
	return ""
}
