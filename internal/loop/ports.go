package loop

import (
	"encoding/json"
	"time"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/internal/chat"
)

// Env is what the loop works in: a conversational turn, or a job. Its effects go
// through the same [step.Steps] as the loop's. An error of any method ends the
// loop at once: the turn was cancelled, or its record cannot be written.
type Env interface {
	// Prompt builds the request of one iteration, cut to its token budget. The
	// feedback note, when there is one, stands last and is never cut.
	Prompt(Ask) (Prompt, error)
	// Say brings a whole text on its way to the user.
	Say(Speech) error
	// Begin is told of the calls that are about to run.
	Begin(batch []Call) error
	// Dispatch runs one call through its gates and gives what the model would
	// read.
	Dispatch(Call) (Outcome, error)
	// Settle keeps a call's result as the tool-result hooks left it, and what
	// follows from it.
	Settle(Call, Outcome) error
}

// Batcher is an [Env] that runs the calls of one batch side by side. Their results
// are put to the hooks and settled afterwards, in order.
type Batcher interface {
	// DispatchAll runs every call through its gates, as Dispatch does one.
	DispatchAll(batch []Call) ([]Outcome, error)
}

// Ask says what a prompt is for.
type Ask struct {
	Iteration int
	Feedback  string // the newest note of a hook to the model; "" when there is none
	Searched  bool   // knowledge was searched in this turn: the next text answers from it
}

// Prompt is a request before the hooks.
type Prompt struct {
	Messages []json.RawMessage
	Tools    []chat.Tool
	// Cut is how many messages were left out to meet the budget.
	Cut int
	// Wait ends the turn without a request: the user was asked something.
	Wait bool
}

// Speech is a text for the user.
type Speech struct {
	Key    string // unique in the turn
	Text   string
	Source string // where it is from, as the record says it
	Batch  string // the batch it came with, for a filler
	// Streamed says that the user has read it already, piece by piece.
	Streamed bool
	// Cut says that the model failed before the text was whole.
	Cut bool
}

// Call is one call of a batch, as the hooks left it.
type Call struct {
	Key       string          `json:"key"` // unique in the turn
	ID        string          `json:"id"`
	Type      string          `json:"type,omitempty"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
	Batch     string          `json:"batch"`
	// Offered says that the request offered a tool of this name.
	Offered bool `json:"offered"`
	// Broken says that the model's arguments were no JSON object and no hook
	// put anything in their place.
	Broken bool `json:"broken,omitempty"`
}

// Outcome is what came of a call.
type Outcome struct {
	// Arguments are those to be recorded and replayed.
	Arguments json.RawMessage `json:"arguments"`
	// Value is the text that the model reads.
	Value   string `json:"value"`
	IsError bool   `json:"is_error,omitempty"`
	// Ran says that a tool's body ran.
	Ran  bool          `json:"ran,omitempty"`
	Took time.Duration `json:"took_ns,omitempty"`
	// Wait ends the turn after the batch: the user was asked something.
	Wait bool `json:"wait,omitempty"`
	// Note is the environment's own.
	Note string `json:"note,omitempty"`
}

// Names of the calls that only steer the loop.
const (
	Listen          = "listen"
	Hangup          = "hangup"
	SearchKnowledge = "search_knowledge"
)

// Kinds of steps that the loop asks for.
const (
	KindHook    = "hook"    // HookCall → hook.Answer
	KindObserve = "observe" // ObserveCall → nothing
	KindModel   = "model"   // ModelCall → ModelAnswer
	KindID      = "id"      // IDCall → string
)

// HookCall asks one hook of a modify lane.
type HookCall struct {
	Hook    *hook.Hook   `json:"-"`
	Name    string       `json:"hook"`
	Point   string       `json:"point"`
	Payload hook.Payload `json:"payload"`
}

// ObserveCall hands a payload to observers.
type ObserveCall struct {
	Hooks   []*hook.Hook `json:"-"`
	Names   []string     `json:"hooks"`
	Point   string       `json:"point"`
	Payload hook.Payload `json:"payload"`
}

// ModelCall asks the model.
type ModelCall struct {
	Request chat.Request `json:"request"`
	// Live lets the text out piece by piece as it arrives.
	Live bool `json:"live,omitempty"`
	// Purpose is "main", or what a quiet call is for.
	Purpose string `json:"purpose"`
}

// ModelAnswer is a completion, or why there is none.
type ModelAnswer struct {
	Response chat.Response `json:"response"`
	// Failed is the provider's failure; it holds no message text.
	Failed string `json:"failed,omitempty"`
	Status int    `json:"status,omitempty"`
	// OverBudget says that the model was not asked: a budget leaves too little.
	OverBudget bool `json:"over_budget,omitempty"`
	// Streamed is the text that went out before the failure.
	Streamed string `json:"streamed,omitempty"`
}

// IDCall asks for a new id.
type IDCall struct {
	For string `json:"for"`
}

// Line is one line of the trace of a turn.
type Line struct {
	// At is when it began. It is not part of what a run again must give.
	At time.Time `json:"at"`
	// Kind is point, model, tool, observer or note.
	Kind string `json:"kind"`
	// Point, with Hooks and Asked: how many hooks decide there, and how many
	// were asked. Observers counts those handed the payload, Disabled those
	// that are switched off.
	Point     string     `json:"point,omitempty"`
	Key       string     `json:"key,omitempty"`
	Hooks     int        `json:"hooks"`
	Asked     int        `json:"asked"`
	Observers int        `json:"observers,omitempty"`
	Observed  []string   `json:"observed_by,omitempty"` // their names
	Disabled  []string   `json:"disabled,omitempty"`
	Outcome   string     `json:"outcome,omitempty"`
	Runs      []hook.Run `json:"runs,omitempty"`
	// Why says more: why hooks were not asked, how a turn ended, what was cut.
	Why string `json:"why,omitempty"`
	// Model calls: purpose, iteration, time, tokens, whether it streamed.
	Purpose   string        `json:"purpose,omitempty"`
	Iteration int           `json:"iteration,omitempty"`
	Attempt   int           `json:"attempt,omitempty"`
	Took      time.Duration `json:"took_ns,omitempty"`
	Usage     *chat.Usage   `json:"usage,omitempty"`
	Live      bool          `json:"live,omitempty"`
	// Tool calls: name and how it went; arguments and result stand in the
	// record.
	Tool    string `json:"tool,omitempty"`
	CallID  string `json:"tool_call_id,omitempty"`
	IsError bool   `json:"is_error,omitempty"`
}
