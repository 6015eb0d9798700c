// Package conversation is the record of a conversation: its events, and the
// model's view of them.
//
// A conversation is a list of events that only grows. [Record] folds them into
// what a turn needs to know; [View] turns them into chat messages. Whoever keeps
// the events on disk implements [Store].
package conversation

import (
	"context"
	"encoding/json"
	"time"
)

// Kind is the kind of an event.
type Kind string

// The kinds.
const (
	SessionStarted  Kind = "session_started"
	SessionEnded    Kind = "session_ended"
	User            Kind = "user"
	Bot             Kind = "bot"
	BotTurnEnded    Kind = "bot_turn_ended"
	ToolBatch       Kind = "tool_batch_started" // written before the first tool of a batch runs
	ToolExecuted    Kind = "tool_executed"
	ConfirmAsked    Kind = "confirmation_requested"
	ConfirmResolved Kind = "confirmation_resolved"
	TurnInterrupted Kind = "turn_interrupted" // the process died in the turn; written when the conversation goes on

	MemorySet        Kind = "memory_set"
	MemoryCleared    Kind = "memory_cleared"
	SkillActivated   Kind = "skill_activated"
	SkillCompleted   Kind = "skill_completed"
	SkillCancelled   Kind = "skill_cancelled"
	SkillInterrupted Kind = "skill_interrupted" // another was activated before it was done
	SkillResumed     Kind = "skill_resumed"
	BlockEntered     Kind = "ordered_block_entered"
	BlockStep        Kind = "ordered_block_step"  // the block went on to a step
	BlockAsked       Kind = "ordered_block_asked" // the step's question was asked
	BlockCompleted   Kind = "ordered_block_completed"
	BlockCancelled   Kind = "ordered_block_cancelled"
	Unsupported      Kind = "unsupported_request_classified"
)

// Opening is the message by which a channel begins a session without a word of the
// user's.
const Opening = "/session_start"

// Sources of a bot's text, as the export's metadata mantle_response_source says
// them.
const (
	FromModel = "llm"
	Verbatim  = "verbatim"
	Filler    = "filler"
	Rephrased = "rephrased"
)

// Sources of a tool's run that no batch made.
const (
	SourceConfirmation = "tool_confirmation"
	SourceStep         = "execute_step"
	SourceReplay       = "correction_replay" // run again because a value it used was corrected
	SourceValidation   = "memory_validation" // judges a value that the model set
)

// Event is one entry of the record. Which fields are set follows from Kind.
type Event struct {
	Seq  int64     `json:"seq"` // from 1, without gaps within a conversation
	Kind Kind      `json:"event"`
	Turn string    `json:"turn_id,omitempty"`
	At   time.Time `json:"timestamp"`

	// Text is what was said (user, bot).
	Text string `json:"text,omitempty"`
	// Source is where a bot's text came from; Response the response's name when
	// it is a fixed one.
	Source   string `json:"source,omitempty"`
	Response string `json:"response,omitempty"`
	// Extra is what is not text in a message (buttons, files), as it came.
	Extra json.RawMessage `json:"extra,omitempty"`
	// Discarded says that the text was stopped by a hook.
	Discarded *Discarded `json:"discarded,omitempty"`

	// Tool is the run of a tool, or what a confirmation is about.
	Tool *ToolRun `json:"tool,omitempty"`
	// Batch are the calls of a batch about to run.
	Batch []ToolRun `json:"batch,omitempty"`
	// BatchID is the batch that a filler text came with.
	BatchID string `json:"tool_batch_id,omitempty"`

	// Confirmed is the answer to a confirmation.
	Confirmed *bool `json:"confirmed,omitempty"`
	// Status is how a turn ended: completed, cancelled or error.
	Status string `json:"status,omitempty"`
	// Note says more, such as the routing of a turn that ended on "listen".
	Note string `json:"note,omitempty"`

	// Skill, Block and Step say what of the agent's skills an event is about.
	Skill string `json:"skill_id,omitempty"`
	Block string `json:"block_id,omitempty"`
	Step  string `json:"step_id,omitempty"`
	// Memory is what was set or cleared.
	Memory *Memory `json:"memory,omitempty"`
}

// Memory is the writing of one memory value.
type Memory struct {
	Name  string          `json:"key"` // full name, such as "project.name"
	Value json.RawMessage `json:"value,omitempty"`
	By    string          `json:"by,omitempty"` // what wrote it: set_fields, set_memory, fill, engine, or a tool's name
}

// Discarded is why a text was not used.
type Discarded struct {
	By     string `json:"by"` // "rejected" or "hook_error"
	Hook   string `json:"hook,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// ToolRun is one call of a tool.
type ToolRun struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
	Result    string          `json:"result,omitempty"` // what the model reads
	IsError   bool            `json:"is_error,omitempty"`
	CallID    string          `json:"tool_call_id,omitempty"`
	CallType  string          `json:"tool_call_type,omitempty"`
	BatchID   string          `json:"tool_batch_id,omitempty"` // <iteration>-<first call id>
	Source    string          `json:"source,omitempty"`        // set when no batch made the run
	// Skill is the skill whose tool it is; "" for a shared tool.
	Skill string `json:"skill_id,omitempty"`
	// Step is the step of an ordered block that made the run.
	Step string `json:"step_id,omitempty"`
	// Uses are the memory values that the run was given or read, Wrote those that
	// it set, by their full names; kept of runs that a step made.
	Uses  []string `json:"uses,omitempty"`
	Wrote []string `json:"wrote,omitempty"`
}

// ID names a conversation.
type ID struct {
	Tenant string
	Agent  string
	Sender string
}

// Trace is one line of the trace of a turn. Data is JSON; its shape is the
// [github.com/belay-run/belay/internal/turn] package's.
type Trace struct {
	Seq  int64           `json:"seq"`
	Turn string          `json:"turn_id"`
	At   time.Time       `json:"at"`
	Data json.RawMessage `json:"data"`
}

// Store keeps conversations. What it keeps is encrypted under a key of the
// conversation's own; Delete drops the key.
type Store interface {
	// Load returns the events of a conversation in order; none is no error.
	Load(ctx context.Context, id ID) ([]Event, error)
	// Append adds events, whose Seq the caller has set, and returns when they
	// are on disk. A Seq that is there already is an error: two owners.
	Append(ctx context.Context, id ID, events []Event) error
	// AppendTrace adds lines to the trace; it may return before they are on
	// disk, and Flush waits for them. It sets Seq.
	AppendTrace(ctx context.Context, id ID, lines []Trace) error
	// Traces returns the lines of a conversation, oldest first; with turn set,
	// of that turn alone.
	Traces(ctx context.Context, id ID, turn string) ([]Trace, error)
	// Delete drops the conversation's key, events and traces. It says whether
	// there was one.
	Delete(ctx context.Context, id ID) (bool, error)
	// Flush waits until everything handed over is on disk.
	Flush(ctx context.Context) error
}
