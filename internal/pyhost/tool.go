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
	// File is the one that gives the tool, relative to the agent; with the name
	// it tells the tool from all others.
	File string
	Line int
	// Skill is the id of the skill whose tool it is; empty for one of the project.
	Skill string
	// WantsContext says that it can read and set memory and read what was said.
	WantsContext bool

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
	// Memory is what the tool can read and set; nil means that nothing is declared.
	Memory *Memory
	// Utterances is what was said in the conversation, the oldest first. Tools of
	// older agents read it as context.events.
	Utterances []Utterance
	// Key orders the call among the hooks and tools of its conversation.
	Key string
	// Limit is the time for the tool's own run; it must be more than 0.
	Limit time.Duration
}

// Memory is the conversation's memory as a tool sees it. Full names are
// "project.x", or "<skill>.x" for a skill's own.
type Memory struct {
	// Values has every declared value by its full name; nil or null for one that is
	// not set. The tool can read and set these and no others.
	Values map[string]json.RawMessage `json:"values"`
	// Skill is the id of the active skill, whose values go by their bare names too.
	Skill string `json:"skill"`
	// Closed has the full names of values that may not be written again. Setting
	// one to what it is already is no write.
	Closed []string `json:"closed"`
}

// Utterance is one text of the conversation.
type Utterance struct {
	// By is "user" or "bot".
	By   string `json:"event"`
	Text string `json:"text"`
	// Metadata is an object; nil means an empty one. A text made from a response
	// has the response's name there, as utter_action.
	Metadata json.RawMessage `json:"metadata,omitempty"`
	// Time is in seconds since 1970; 0 when it is not known.
	Time float64 `json:"timestamp,omitempty"`
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
	// Text is what a model may read about wrong arguments, about a value that the
	// tool refused with InvalidMemoryValue, and about one that is written already.
	// Of other exceptions it holds no text.
	Text string
	// Writes has each value that was set, by its full name, in the order of first
	// setting, whatever became of the tool afterwards. A null clears the value.
	Writes []Write
	// Reads has the full names of the values that it asked for; nothing unless OK.
	Reads []string
	// Said has what the tool said to the user, whatever became of it afterwards.
	Said []string
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
	Memory    Memory          `json:"memory"`
	Events    []Utterance     `json:"events"`
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
	body, err := json.Marshal(t.request())
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

func (t *ToolCall) request() toolRequest {
	r := toolRequest{
		Tool: t.Tool, Arguments: orEmpty(t.Arguments), SenderID: t.SenderID, TurnID: t.TurnID,
		Channel: orEmpty(t.Channel), Call: orEmpty(t.Call), Events: append([]Utterance{}, t.Utterances...),
	}
	if t.Memory != nil {
		r.Memory = *t.Memory
	}
	if r.Memory.Values == nil {
		r.Memory.Values = map[string]json.RawMessage{}
	}
	if r.Memory.Closed == nil {
		r.Memory.Closed = []string{}
	}
	return r
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
