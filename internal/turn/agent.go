// Package turn is one conversational turn: a message comes in, the hooks look at
// it, the loop runs, texts go out, the record and the trace are kept.
//
// [Agent] is what turns of one agent have in common; [Agent.Run] runs one turn on
// a conversation's record. [Desk] lets the turns of one conversation run one at a
// time.
package turn

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/condition"
	"github.com/belay-run/belay/internal/conversation"
	"github.com/belay-run/belay/internal/loop"
	"github.com/belay-run/belay/internal/skill"
	"github.com/belay-run/belay/internal/step"
)

// Agent is what the turns of one agent have in common. It is not changed while
// turns run.
type Agent struct {
	ID      string
	Profile Profile
	Hooks   *hook.Engine
	Model   chat.Model
	Tools   Tools
	// Skills are nil when the agent has neither skills nor memory.
	Skills *skill.Set
	// Knowledge is nil when there is nothing to search.
	Knowledge Knowledge
	Words     Words
	// Fit cuts messages to the token budget; nil cuts nothing.
	Fit     Fit
	Limits  loop.Limits
	History int // utterances of both sides that the model sees; 0 means 10
	// ToolTimeout bounds a tool that names no limit of its own; 0 means 10 s.
	ToolTimeout time.Duration
	Logger      *slog.Logger
	Clock       func() time.Time
	NewID       func() string
}

// Profile is what the prompt says of the agent.
type Profile struct {
	Name         string
	Persona      string
	Rules        []string
	TextRules    string
	Instructions string // how to answer from what a search found
	Language     string
	// Searches offers search_knowledge: the agent has, or should have, references.
	Searches bool
}

// Tools runs the agent's tools.
type Tools interface {
	List() []Tool
	Run(ctx context.Context, c ToolCall) ToolAnswer
}

// Tool is one tool of the agent.
type Tool struct {
	chat.Tool
	Skill     string // whose own tool it is; "" for one that is shared
	Server    string // the MCP server that has it; "" for a Python tool
	Confirm   bool   // ask the user before it runs
	Question  string // response that asks; "" for the built-in one
	Denial    string // response when the user says no; "" for none
	OnSuccess string // response when it succeeded; "" for none
	OnFailure string // response when it failed; "" for none
	Timeout   time.Duration
	Listens   bool // it can read what was said

	requires *condition.Condition // of the active skill's constraint
}

// ToolCall is one run of a tool.
type ToolCall struct {
	Tool      string          `json:"tool"`
	Arguments json.RawMessage `json:"arguments"`
	Timeout   time.Duration   `json:"timeout_ns"`
	Sender    string          `json:"sender_id"`
	Turn      string          `json:"turn_id"`
	Call      json.RawMessage `json:"call,omitempty"`
	Channel   json.RawMessage `json:"channel,omitempty"`
	// Owner and Server tell tools of one name apart; see [Tool].
	Owner  string `json:"owner,omitempty"`
	Server string `json:"server,omitempty"`
	// Skill is the active skill, Memory the declared values by their full names
	// (null for one that is not set), Closed those that may not be written again.
	Skill  string                     `json:"skill,omitempty"`
	Memory map[string]json.RawMessage `json:"memory,omitempty"`
	Closed []string                   `json:"closed,omitempty"`
	// Said is what was said in the conversation, for a tool that listens.
	Said []Spoken `json:"said,omitempty"`
}

// Spoken is one text of the conversation.
type Spoken struct {
	User     bool      `json:"user,omitempty"`
	Text     string    `json:"text"`
	Source   string    `json:"source,omitempty"`
	Response string    `json:"response,omitempty"`
	At       time.Time `json:"at"`
}

// Write is a memory value that a tool set; null clears it.
type Write struct {
	Name  string          `json:"name"` // full name
	Value json.RawMessage `json:"value"`
}

// ToolOutcome says how a run ended.
type ToolOutcome string

// The outcomes.
const (
	ToolOK          ToolOutcome = "ok"
	ToolError       ToolOutcome = "error"       // it raised, or its arguments do not fit
	ToolTimeout     ToolOutcome = "timeout"     // its time ran out
	ToolUnknown     ToolOutcome = "unknown"     // it began and its process ended: never run again
	ToolUnavailable ToolOutcome = "unavailable" // it did not begin
)

// ToolAnswer is what came of a run.
type ToolAnswer struct {
	Outcome ToolOutcome `json:"outcome"`
	// Text is what the model reads: JSON text for an object.
	Text string        `json:"text"`
	Took time.Duration `json:"took_ns"`
	// Writes are the memory values that it set, Reads the names of those it asked
	// for, Said the texts that it sent to the user.
	Writes []Write  `json:"writes,omitempty"`
	Reads  []string `json:"reads,omitempty"`
	Said   []string `json:"said,omitempty"`
}

// Knowledge searches the agent's references.
type Knowledge interface {
	// Search returns passages as JSON objects {text, scope, source, score}, of the
	// project's references and of those of the skill, "" for none.
	Search(ctx context.Context, query, skill string) ([]json.RawMessage, error)
}

// Words gives fixed texts: the skill's and the project's responses, then the
// built-in wording.
type Words interface {
	// PickIn renders a response; those of the active skill, "" for none, come
	// first. rephrase says that a model may reword it; ok is false when there is
	// none of that name.
	PickIn(skill, name string, vars map[string]any) (text string, rephrase, ok bool)
}

// Fit cuts messages to the token budget. protect says which must stay. It
// returns what is left and how many were cut.
type Fit func(messages []json.RawMessage, tools []chat.Tool, protect func(i int) bool) ([]json.RawMessage, int)

// Message is what came from the user.
type Message struct {
	Text string
	// Extra is what is not text (a button, a file), as it came; nil for none.
	Extra json.RawMessage
	// Call and Channel identify where it came from; see [loop.Identity].
	Call    json.RawMessage
	Channel json.RawMessage
	Voice   bool
}

// Out takes what goes to the user. Its methods are called from one goroutine at
// a time.
type Out interface {
	// Delta takes a piece of a text that is still being written. It is only
	// called for a channel that said it streams.
	Delta(piece string)
	// Text takes a whole text, whose record is on disk. streamed says that its
	// pieces went out already.
	Text(u Utterance)
}

// Utterance is a whole text for the user.
type Utterance struct {
	Text     string `json:"text"`
	Source   string `json:"source"`
	Streamed bool   `json:"streamed,omitempty"`
}

// Options are for one turn.
type Options struct {
	// Live says that the channel takes pieces of text.
	Live bool
	// Wrap, when set, stands around the turn's steps, to record or replay them.
	Wrap func(step.Steps) step.Steps
	// Watch is told of the loop's states.
	Watch func(loop.State)
	// ID is the turn's id; "" asks for a new one.
	ID string
}

// Report is how a turn went.
type Report struct {
	Turn   string
	Agent  string
	Sender string
	Status string // completed, cancelled or error
	Why    string
	Began  time.Time
	Took   time.Duration
	Lines  []loop.Line
	// Events are those that the turn added to the record.
	Events []conversation.Event
	// Ended says that the session is over.
	Ended bool
}

// Statuses of a turn.
const (
	Completed = "completed"
	Cancelled = "cancelled"
	Failed    = "error"
)

func (a *Agent) history() int {
	if a.History == 0 {
		return 10
	}
	return a.History
}

func (a *Agent) timeout(t *Tool) time.Duration {
	switch {
	case t.Timeout > 0:
		return t.Timeout
	case a.ToolTimeout > 0:
		return a.ToolTimeout
	}
	return 10 * time.Second
}
