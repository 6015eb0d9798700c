package hook

import "time"

// Lane is how a hook takes part: it looks on, or it decides.
type Lane string

// The lanes.
const (
	Observe Lane = "observe" // gets a copy; nothing waits for it
	Modify  Lane = "modify"  // is waited for; may change the payload or give another verdict
)

// Policy says what follows when a hook fails (crash, timeout, an answer that
// cannot be read). It is never applied to a verdict.
type Policy string

// The policies.
const (
	Open       Policy = "open"   // go on with the payload as it was before the hook
	Closed     Policy = "closed" // stop what the point guards
	HoldPolicy Policy = "hold"   // wait for a person
)

// Dialect is the family of a point. It decides what becomes of a verdict that a
// hook may not give.
type Dialect string

// The dialects.
const (
	// Turn points stand around a conversational turn. A verdict that is not
	// allowed is dropped and logged, and the payload before the hook goes on.
	Turn Dialect = "turn"
	// Plugin points stand around a job's life and tool calls. A verdict that is
	// not allowed is a failure; of a hook that may only go on or hold, it is a
	// hold.
	Plugin Dialect = "plugin"
)

// Shape is the kind of JSON value that a field holds.
type Shape string

// The shapes.
const (
	Text       Shape = "text"           // a string
	TextOrNull Shape = "text_or_null"   // a string or null
	Bool       Shape = "bool"           // true or false
	Whole      Shape = "integer"        // a whole number
	NumOrNull  Shape = "number_or_null" // a number or null
	Object     Shape = "object"         // an object
	Objects    Shape = "objects"        // a list of objects
	Texts      Shape = "texts"          // a list of strings
	Passages   Shape = "passages"       // a list of objects, each with a string under "text"
	ToolCalls  Shape = "tool_calls"     // a list of objects {id?, tool_name, tool_args, type?}; ids differ
	Any        Shape = "any"            // any JSON value
)

// Field is one field of a payload.
type Field struct {
	Name     string
	Shape    Shape
	ReadOnly bool   // what a hook returns under it is put back
	Optional bool   // the key is missing, not null, when there is nothing to say
	Default  string // JSON; what the field holds when nobody set it
	Doc      string
}

// Point is one insertion point: a row of the table that the engine, the check,
// the Python constants, the reference page and the schemas are made from.
type Point struct {
	Name    string // such as "incoming_message"
	Title   string // such as "incoming message"
	Dialect Dialect
	Payload string // the payload's type name, such as "IncomingMessagePayload"
	Fields  []Field

	// Observe and Modify say which lanes the point has.
	Observe, Modify bool
	// Verdicts are those a modify hook may give; Continue is always among them.
	Verdicts Kinds
	// OnFailure is the policy when a modify hook fails, unless the hook has its
	// own.
	OnFailure Policy
	// ObserveLimit and ModifyLimit are the default time limits.
	ObserveLimit, ModifyLimit time.Duration
	// MaxLimit is the longest limit a hook may ask for; 0 means no bound.
	MaxLimit time.Duration

	// Alias is another spelling of the point's name, and AliasPayload of its
	// payload's type: one point, two names.
	Alias, AliasPayload string
	// Response names the response that a user hears when a closed failure here
	// ends the turn, Rejected the one when a hook rejects; empty when that
	// cannot happen. RejectedAlias is Rejected under the alias.
	Response, Rejected, RejectedAlias string

	// When says when the point is reached; Doc what a hook there is for.
	When, Doc string
}

// Field returns the place of the named field, or -1.
func (p *Point) Field(name string) int {
	for i := range p.Fields {
		if p.Fields[i].Name == name {
			return i
		}
	}
	return -1
}

// Changeable returns the place of the first field that a hook may change, or -1.
// A point of the plugin dialect has at most one such field.
func (p *Point) Changeable() int {
	for i := range p.Fields {
		if !p.Fields[i].ReadOnly {
			return i
		}
	}
	return -1
}

// hasTool says whether the point is about one tool.
func (p *Point) hasTool() bool { return p.Field("tool") >= 0 || p.Field("tool_name") >= 0 }

// Names of the turn points.
const (
	TurnStarted      = "turn_started"
	TurnFinished     = "turn_finished"
	IncomingMessage  = "incoming_message"
	ModelRequest     = "model_request"
	ModelResponse    = "model_response"
	ToolCall         = "tool_call"
	ToolResult       = "tool_result"
	KnowledgeQuery   = "knowledge_query"
	KnowledgeResults = "knowledge_results"
	OutgoingText     = "outgoing_text"
)

// Names of the plugin points.
const (
	PreToolCall  = "pre_tool_call"
	PostToolCall = "post_tool_call"
	JobStart     = "job_start"
	JobEnd       = "job_end"
	PreLLMCall   = "pre_llm_call"
)

const (
	observeLimit = 100 * time.Millisecond
	modifyLimit  = 500 * time.Millisecond
	pluginLimit  = 2 * time.Second
	pluginMax    = 30 * time.Second
)

// identity is on every turn payload. The engine owns it.
var identity = []Field{
	{Name: "sender_id", Shape: Text, ReadOnly: true, Default: `""`, Doc: "Id of the conversation's user."},
	{Name: "call", Shape: Object, ReadOnly: true, Default: `{}`, Doc: "Telephony or session data; empty unless the channel gives it."},
	{Name: "channel", Shape: Object, ReadOnly: true, Default: `{"name":"","metadata":{}}`, Doc: "The channel: its name and the front end's metadata."},
}

func turnFields(own ...Field) []Field { return append(own[:len(own):len(own)], identity...) }

// event is on every plugin payload.
var event = []Field{
	{Name: "event", Shape: Text, ReadOnly: true, Default: `""`, Doc: "The event's name."},
	{Name: "job", Shape: Text, ReadOnly: true, Default: `""`, Doc: "The job's id."},
	{Name: "agent", Shape: Text, ReadOnly: true, Default: `""`, Doc: "The agent's name."},
}

func pluginFields(own ...Field) []Field { return append(event[:len(event):len(event)], own...) }

var (
	seesOnly  = KindsOf(Continue)
	mayReject = KindsOf(Continue, Reject)
	mayRetry  = KindsOf(Continue, Retry)
	mayDecide = KindsOf(Continue, Reject, Hold)
)

// Points is the table of insertion points, in the order in which a turn, then a
// job, reaches them. Nothing may write to it.
var Points = []*Point{
	{
		Name: TurnStarted, Title: "turn started", Dialect: Turn, Payload: "TurnStartedPayload", Observe: true,
		Fields: turnFields(
			Field{Name: "is_voice", Shape: Bool, ReadOnly: true, Default: `false`, Doc: "Whether the turn came from a voice channel."},
			Field{Name: "turn_id", Shape: Text, ReadOnly: true, Default: `""`, Doc: "Id of the turn, the same at turn started and turn finished."}),
		When: "once, when a turn begins, before anything of its message is stored",
		Doc:  "Start a clock, open a log line.",
	},
	{
		Name: IncomingMessage, Title: "incoming message", Dialect: Turn, Payload: "IncomingMessagePayload", Observe: true, Modify: true,
		Verdicts: mayReject, OnFailure: Closed, Response: "utter_incoming_message_hook_error", Rejected: "utter_incoming_message_rejected",
		Fields: turnFields(
			Field{Name: "text", Shape: Text, Default: `""`, Doc: "What the user wrote. The text that goes on is the only one that is stored."}),
		When: "once a message with text, before it is stored or read by a model",
		Doc:  "Mask what must not be stored, turn away what must not be answered.",
	},
	{
		Name: ModelRequest, Title: "model request", Dialect: Turn, Payload: "ModelRequestPayload", Observe: true, Modify: true,
		Verdicts: seesOnly, OnFailure: Closed, Response: "utter_model_request_hook_error",
		Fields: turnFields(
			Field{Name: "messages", Shape: Objects, Default: `[]`, Doc: "The chat messages about to be sent. What a hook returns is sent as it is: roles and contents are not checked and extra keys stay."},
			Field{Name: "model_settings", Shape: Object, Default: `{}`, Doc: "Settings for this one call; starts empty. Only temperature, top_p, presence_penalty, frequency_penalty (finite numbers), max_tokens, seed (whole numbers) and stop (a string or a list of strings) count."},
			Field{Name: "tool_names", Shape: Texts, ReadOnly: true, Default: `[]`, Doc: "Names of the tools that the request offers."},
			Field{Name: "iteration", Shape: Whole, ReadOnly: true, Default: `0`, Doc: "The loop's iteration within the turn, from 0."}),
		When: "once an iteration of the main loop and for each quiet call (rephrase), after the prompt was cut to its token budget, before the provider is called",
		Doc:  "Add context, mask text, shape messages for a provider.",
	},
	{
		Name: ModelResponse, Title: "model response", Dialect: Turn, Payload: "ModelResponsePayload", Observe: true, Modify: true,
		Verdicts: mayRetry, OnFailure: Open,
		Fields: turnFields(
			Field{Name: "text", Shape: TextOrNull, Default: `null`, Doc: "The completion's text, or null."},
			Field{Name: "tool_calls", Shape: ToolCalls, Default: `[]`, Doc: "The tool calls: objects with id, tool_name, tool_args and, when the provider gave one, type."},
			Field{Name: "latency_ms", Shape: NumOrNull, ReadOnly: true, Default: `null`, Doc: "How long the provider took, in milliseconds, when known."}),
		When: "once an iteration and for each quiet call, after the provider returned, before any text is sent or tool runs",
		Doc:  "Check an answer against the record, drop calls, ask the model again.",
	},
	{
		Name: ToolCall, Title: "tool call", Dialect: Turn, Payload: "ToolCallPayload", Observe: true, Modify: true,
		Verdicts: mayRetry, OnFailure: Closed, Response: "utter_tool_call_hook_error",
		Fields: turnFields(
			Field{Name: "tool_name", Shape: Text, Default: `""`, Doc: "Name of the tool about to run. A name that was not offered in the request runs nothing."},
			Field{Name: "arguments", Shape: Object, Default: `{}`, Doc: "The call's arguments."},
			Field{Name: "headers", Shape: Object, Default: `{}`, Doc: "Kept in the payload; goes nowhere yet."}),
		When: "for each call of a batch, in the batch's order, before any tool of the batch runs",
		Doc:  "Guard what the model may do, normalise arguments, ask the model again.",
	},
	{
		Name: KnowledgeQuery, Title: "knowledge query", Dialect: Turn, Payload: "KnowledgeQueryPayload", Observe: true, Modify: true,
		Verdicts: seesOnly, OnFailure: Closed,
		Fields: turnFields(
			Field{Name: "query", Shape: Text, Default: `""`, Doc: "What is searched. A blank query is not searched."}),
		When: "for each query that is not empty, before the index is searched",
		Doc:  "Rewrite or narrow a search. A failure skips the search and the turn goes on.",
	},
	{
		Name: KnowledgeResults, Title: "knowledge results", Dialect: Turn, Payload: "KnowledgeResultsPayload", Observe: true, Modify: true,
		Verdicts: seesOnly, OnFailure: Open,
		Fields: turnFields(
			Field{Name: "query", Shape: Text, ReadOnly: true, Default: `""`, Doc: "What was searched."},
			Field{Name: "passages", Shape: Passages, Default: `[]`, Doc: "The passages found: objects with text, scope, source and, when known, score."}),
		When: "for each search that ended without error, before the passages are put into text for the model",
		Doc:  "Drop, reorder or rewrite what the model will read.",
	},
	{
		Name: ToolResult, Title: "tool result", Dialect: Turn, Payload: "ToolResultPayload", Observe: true, Modify: true,
		Verdicts: seesOnly, OnFailure: Open,
		Fields: turnFields(
			Field{Name: "tool_name", Shape: Text, ReadOnly: true, Default: `""`, Doc: "Name of the tool that was called."},
			Field{Name: "arguments", Shape: Object, Default: `{}`, Doc: "The arguments as they will be recorded and replayed."},
			Field{Name: "value", Shape: Any, Default: `""`, Doc: "The result as the model would read it: text, JSON text for an object. A value that is no text is kept as JSON text."},
			Field{Name: "is_error", Shape: Bool, Default: `false`, Doc: "Whether the call counts as failed."}),
		When: "after each dispatched call, before its result is recorded",
		Doc:  "Redact results before they are stored, traced or read by the model.",
	},
	{
		Name: OutgoingText, Title: "outgoing text", Dialect: Turn, Payload: "OutgoingTextPayload", Observe: true, Modify: true,
		Verdicts: mayReject, OnFailure: Open, Rejected: "utter_outgoing_text_rejected", RejectedAlias: "utter_outgoing_message_rejected",
		Alias: "outgoing_message", AliasPayload: "OutgoingMessagePayload",
		Fields: turnFields(
			Field{Name: "text", Shape: Text, Default: `""`, Doc: "The text about to be sent, whatever its source."},
			Field{Name: "is_voice", Shape: Bool, ReadOnly: true, Default: `false`, Doc: "Whether it goes to a voice channel."}),
		When: "once a whole text, whatever its source, before it is recorded and sent",
		Doc:  "The last look at what the user gets.",
	},
	{
		Name: TurnFinished, Title: "turn finished", Dialect: Turn, Payload: "TurnFinishedPayload", Observe: true,
		Fields: turnFields(
			Field{Name: "status", Shape: Text, ReadOnly: true, Default: `"completed"`, Doc: "completed, cancelled or error."},
			Field{Name: "turn_id", Shape: Text, ReadOnly: true, Default: `""`, Doc: "Id of the turn, the same at turn started and turn finished."}),
		When: "once a turn that began, after its last text was sent or dropped",
		Doc:  "Stop the clock, close the log line.",
	},

	{
		Name: JobStart, Title: "job start", Dialect: Plugin, Payload: "JobStartEvent", Modify: true, Verdicts: mayDecide, OnFailure: Closed,
		Fields: pluginFields(Field{Name: "input", Shape: Any, Default: `null`, Doc: "The job's input."}),
		When:   "when a job starts, before its agent does anything",
		Doc:    "Refuse, change or hold a job's input.",
	},
	{
		Name: PreLLMCall, Title: "before a model call", Dialect: Plugin, Payload: "PreLLMCallEvent", Modify: true, Verdicts: mayDecide, OnFailure: Closed,
		Fields: pluginFields(
			Field{Name: "messages", Shape: Objects, Default: `[]`, Doc: "The chat messages about to be sent."},
			Field{Name: "model", Shape: Any, ReadOnly: true, Default: `null`, Doc: "The model that is called."}),
		When: "before each model call of a job",
		Doc:  "Refuse or mask what a model is sent.",
	},
	{
		Name: PreToolCall, Title: "before a tool call", Dialect: Plugin, Payload: "PreToolCallEvent", Modify: true, Verdicts: mayDecide, OnFailure: Closed,
		Fields: pluginFields(
			Field{Name: "tool", Shape: Text, ReadOnly: true, Default: `""`, Doc: "The function's full name, <tool>.<function>."},
			Field{Name: "arguments", Shape: Object, Default: `{}`, Doc: "The call's arguments."},
			Field{Name: "commands", Shape: Text, ReadOnly: true, Optional: true, Doc: "\"platform\" when the command rules will decide this shell call after the hooks."},
			Field{Name: "request", Shape: Text, ReadOnly: true, Optional: true, Doc: "The job's input as text, at most 4 KiB; for hooks that may only allow or escalate."},
			Field{Name: "agent_model", Shape: Object, ReadOnly: true, Optional: true, Doc: "{provider, model} of the job's agent, when known; for hooks that may only allow or escalate."}),
		When: "before a tool function runs",
		Doc:  "Allow, deny, change or hold a tool call.",
	},
	{
		Name: PostToolCall, Title: "after a tool call", Dialect: Plugin, Payload: "PostToolCallEvent", Modify: true, Verdicts: mayDecide, OnFailure: Closed,
		Fields: pluginFields(
			Field{Name: "tool", Shape: Text, ReadOnly: true, Default: `""`, Doc: "The function's full name, <tool>.<function>."},
			Field{Name: "arguments", Shape: Object, ReadOnly: true, Default: `{}`, Doc: "The arguments the call ran with."},
			Field{Name: "result", Shape: Any, Default: `null`, Doc: "What the tool gave."},
			Field{Name: "is_error", Shape: Bool, ReadOnly: true, Optional: true, Doc: "True when the call failed."}),
		When: "after a tool function ran, before the model sees the result",
		Doc:  "Withhold or redact a result.",
	},
	{
		Name: JobEnd, Title: "job end", Dialect: Plugin, Payload: "JobEndEvent", Modify: true, Verdicts: mayDecide, OnFailure: Closed,
		Fields: pluginFields(Field{Name: "output", Shape: Any, Default: `null`, Doc: "The agent's answer."}),
		When:   "when the agent has answered, before the job ends",
		Doc:    "Refuse, change or hold an answer.",
	},
}

func init() {
	for _, p := range Points {
		if p.Dialect == Plugin {
			p.ModifyLimit, p.MaxLimit = pluginLimit, pluginMax
			continue
		}
		if p.Observe {
			p.ObserveLimit = observeLimit
		}
		if p.Modify {
			p.ModifyLimit = modifyLimit
		}
	}
}

// PointNamed returns the point with that name or alias, or nil.
func PointNamed(name string) *Point {
	for _, p := range Points {
		if p.Name == name || (p.Alias != "" && p.Alias == name) {
			return p
		}
	}
	return nil
}
