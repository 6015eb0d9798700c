package pyhost

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/belay-run/belay/hook"
)

// ToolInfo describes a Python tool.
type ToolInfo struct {
	Name        string
	Description string
	Parameters  json.RawMessage // JSON schema
	File        string
	Line        int

	RequiresConfirmation bool
	UtterForConfirmation string
	UtterOnUserDenial    string
	OnSuccess            string
	// Timeout is the tool's own limit; 0 means the agent's.
	Timeout time.Duration
}

// ToolCall is one run of a tool.
type ToolCall struct {
	Tool string
	// File tells tools of the same name apart; empty means the first.
	File      string
	Arguments json.RawMessage
	SenderID  string
	TurnID    string
	Channel   json.RawMessage
	Call      json.RawMessage
	// Memory is an object of the memory values that the agent declares, null for
	// one that is not set. The tool can read and set these and no others.
	Memory json.RawMessage
	// Key orders the call among the hooks and tools of its conversation.
	Key string
	// Limit is the time for the tool's own run; it must be more than 0.
	Limit time.Duration
}

// Outcome says what became of a tool call.
type Outcome string

// The outcomes.
const (
	// OK: it returned a value.
	OK Outcome = "ok"
	// Errored: it raised, or its arguments are not those that it takes.
	Errored Outcome = "error"
	// TimedOut: its time was up, and it was cancelled.
	TimedOut Outcome = "timeout"
	// Unknown: it had begun when its worker was lost. What it did nobody
	// knows, so it must not be run again without asking.
	Unknown Outcome = "unknown"
	// NotRun: it never began.
	NotRun Outcome = "unavailable"
)

// Write is a memory value that a tool set.
type Write struct {
	Name  string          `json:"name"`
	Value json.RawMessage `json:"value"`
}

// ToolAnswer is what came back from a tool.
type ToolAnswer struct {
	Outcome Outcome
	// Value is what the tool returned, as JSON; nil unless OK.
	Value json.RawMessage
	// Text is what a model may read about wrong arguments; it holds no text of
	// an exception.
	Text   string
	Writes []Write
	// Failure is set unless OK. Of a tool that raised its message holds the
	// exception's text, which may quote what the tool was given.
	Failure *hook.Failure
	// Raised is the type of the exception, "" when there was none.
	Raised       string
	Waited, Took time.Duration
	Notes        []string
}

// toolRequest is the JSON of a tool frame.
type toolRequest struct {
	Tool      string          `json:"tool"`
	Arguments json.RawMessage `json:"arguments"`
	SenderID  string          `json:"sender_id"`
	TurnID    string          `json:"turn_id"`
	Channel   json.RawMessage `json:"channel"`
	Call      json.RawMessage `json:"call"`
	Memory    json.RawMessage `json:"memory"`
}

// CallTool runs a tool and waits for its end. When ctx ends first, the call is
// cancelled and the answer says so: [NotRun] when it had not begun, else
// [Unknown].
func (h *Host) CallTool(ctx context.Context, t ToolCall) ToolAnswer {
	handle := h.catalogue.tool(t.Tool, t.File)
	if handle < 0 {
		return notRun("there is no Python tool %q", t.Tool)
	}
	if t.Limit <= 0 {
		return notRun("tool %q was called without a time limit", t.Tool)
	}
	body, err := json.Marshal(toolRequest{
		Tool: t.Tool, Arguments: orEmpty(t.Arguments), SenderID: t.SenderID, TurnID: t.TurnID,
		Channel: orEmpty(t.Channel), Call: orEmpty(t.Call), Memory: orEmpty(t.Memory),
	})
	if err != nil {
		return notRun("the call of tool %q has no JSON form: %v", t.Tool, err)
	}
	info := h.catalogue.tools[handle]
	answers := make(chan ToolAnswer, 1)
	h.begin(ctx, &call{
		name: info.Name, file: info.File, line: info.Line, key: t.Key, limit: t.Limit, handle: handle, tool: body,
		toolDone: func(a ToolAnswer) { answers <- a },
	})
	return <-answers
}

func notRun(format string, args ...any) ToolAnswer {
	return ToolAnswer{Outcome: NotRun, Failure: &hook.Failure{Kind: hook.Unavailable, Message: fmt.Sprintf(format, args...)}}
}

func orEmpty(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage(`{}`)
	}
	return raw
}
