// Package agentjob is the job of an agent: the loop of model and tools, guarded by
// the hooks of plugins and the tenant's tool policy, as the code of a durable job.
//
// What it does in the world it asks of package job by name, so that a job whose
// process died goes on where it was and asks nothing twice. A [Spec] is what a job
// is pinned to when it starts: the agent, the hooks that apply in their order, the
// policy. It never changes while the job runs.
//
// At a tool call the order is: the tool-call hooks of the agent's folder for the
// whole batch; then call by call what the policy refuses outright, the
// pre_tool_call hooks, the rest of the policy, a person where one is asked, the
// tool, the post_tool_call hooks; then the folder's tool-result hooks. Calls of one
// batch are decided side by side: one that waits for a person holds up no other.
package agentjob

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/belay-run/belay/hook"
)

// Flow is the name of the job's code, Shape the number of its newest shape.
const (
	Flow  = "agent"
	Shape = 1
)

// Kinds of effects that the flow asks for, beside those of the loop.
const (
	KindFolder    = "folder"      // Folder → FolderAnswer
	KindFunctions = "functions"   // FunctionsCall → []Function
	KindHook      = "plugin_hook" // HookCall → the hook's answer as it is
	KindTool      = "tool"        // ToolCall → ToolAnswer
)

// Codes with which a job fails.
const (
	HookDenied    = "HookDenied"
	ModelError    = "ModelError"
	LimitExceeded = "LimitExceeded"
	HookError     = "HookError" // a closed turn hook of the agent's folder failed
	NoAnswer      = "NoAnswer"  // the model stayed silent

	// ToolsUnavailable is of a job whose agent's tools could not be asked what they
	// offer.
	ToolsUnavailable = "ToolsUnavailable"
)

// Spec is what a job is pinned to.
type Spec struct {
	Agent Agent           `json:"agent"`
	Input json.RawMessage `json:"input"`
	By    string          `json:"by,omitempty"` // who started it
	// Hooks are those of the tenant's plugins in their order, Tools the tools that
	// the job can reach, each of the snapshot of a plugin.
	Hooks []Hook `json:"hooks,omitempty"`
	Tools []Tool `json:"tools,omitempty"`
	// Policy is the text of the tenant's policy, "" for the default, Additions
	// what plugins add.
	Policy    string     `json:"policy,omitempty"`
	Additions []Addition `json:"additions,omitempty"`
	// Expiry is how long a person is waited for; 0 for the default.
	Expiry time.Duration `json:"expiry,omitempty"`
}

// Addition is what the snapshot of a plugin adds to the policy.
type Addition struct {
	From   string `json:"from"`
	Digest string `json:"digest"`
}

// Agent is whose job it is.
type Agent struct {
	Name         string `json:"name"`
	Plugin       string `json:"plugin,omitempty"`
	Instructions string `json:"instructions"`
	// Provider and Model are those that the alias stands for, "" when not known.
	Provider string   `json:"provider,omitempty"`
	Model    string   `json:"model,omitempty"`
	Alias    string   `json:"alias,omitempty"`
	Tools    []string `json:"tools,omitempty"` // patterns: <tool>.<function>, <tool>.*
	// Folder is the agent folder that the agent is; nil for none. Its instructions
	// and hooks are read when the job starts.
	Folder *Folder `json:"folder,omitempty"`
	Limits Limits  `json:"limits"`
}

// Folder is an agent folder in the snapshot of a plugin.
type Folder struct {
	Plugin string `json:"plugin"`
	Digest string `json:"digest"`
	Path   string `json:"path"`
}

// FolderAnswer is what an agent folder brings to a job.
type FolderAnswer struct {
	Instructions string     `json:"instructions"`
	Hooks        []TurnHook `json:"hooks,omitempty"`
}

// TurnHook is a hook of an agent folder.
type TurnHook struct {
	Name  string        `json:"name"`
	Point string        `json:"point"`
	Lane  hook.Lane     `json:"lane"`
	Final bool          `json:"final,omitempty"`
	Limit time.Duration `json:"limit_ns,omitempty"`
	File  string        `json:"file,omitempty"`
	Line  int           `json:"line,omitempty"`
}

// Limits bound a job; 0 is without bound.
type Limits struct {
	Iterations int           `json:"iterations,omitempty"`
	ToolCalls  int           `json:"tool_calls,omitempty"`
	Tool       time.Duration `json:"tool_ns,omitempty"` // of one call of a tool; 0 for five minutes
	Work       time.Duration `json:"work_ns,omitempty"` // time of models, tools and hooks together; waiting for a person is not counted
}

// Hook is a plugin's hook as the job knows it.
type Hook struct {
	Plugin   string        `json:"plugin"`
	Event    string        `json:"on"`
	Tool     string        `json:"tool"`
	Function string        `json:"function"`
	Tools    []string      `json:"match_tools,omitempty"`
	Agents   []string      `json:"match_agents,omitempty"`
	Limit    time.Duration `json:"limit_ns,omitempty"`
	// OnFailure is open, closed or hold.
	OnFailure    hook.Policy `json:"on_failure"`
	EscalateOnly bool        `json:"escalate_only,omitempty"`
	Shadow       bool        `json:"shadow,omitempty"`
	// Scan says that it is told where the tenant's secrets are.
	Scan bool   `json:"scan,omitempty"`
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
}

// Name is the hook's name: <tool>.<function>.
func (h *Hook) Name() string { return h.Tool + "." + h.Function }

// Tool is a tool that the job can reach.
type Tool struct {
	ID     string `json:"id"`
	Plugin string `json:"plugin"`
	Digest string `json:"digest"` // of the plugin's snapshot
	// Folder is the path of the agent folder whose Python tools these are; "" for
	// an MCP server.
	Folder string `json:"folder,omitempty"`
}

// Function is a function of a tool as its server lists it.
type Function struct {
	Tool        string          `json:"tool"`
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Schema      json.RawMessage `json:"schema,omitempty"`
	Annotations Annotations     `json:"annotations,omitzero"`
	// Unlisted says that this is no function: why its tool could not be asked what
	// it offers.
	Unlisted string `json:"unlisted,omitempty"`
}

// Full is the function's full name.
func (f *Function) Full() string { return f.Tool + "." + f.Name }

// Annotations is what a function declares of itself; nil where it says nothing.
type Annotations struct {
	ReadOnly    *bool `json:"readOnlyHint,omitempty"`
	Destructive *bool `json:"destructiveHint,omitempty"`
	Idempotent  *bool `json:"idempotentHint,omitempty"`
	OpenWorld   *bool `json:"openWorldHint,omitempty"`
}

// FunctionsCall asks what the tools of the job offer.
type FunctionsCall struct {
	Tools []Tool `json:"tools"`
}

// HookCall asks one hook.
type HookCall struct {
	Tool     Tool            `json:"tool"`
	Function string          `json:"function"`
	Event    json.RawMessage `json:"event"`
	Limit    time.Duration   `json:"limit_ns"`
	// Scan is the field of the event in which the tenant's secrets are looked for,
	// so that the hook is told where they are; "" for none.
	Scan string `json:"scan,omitempty"`
}

// ToolCall runs one function.
type ToolCall struct {
	Job       string          `json:"job"`
	Tool      Tool            `json:"tool"`
	Function  string          `json:"function"`
	Arguments json.RawMessage `json:"arguments"`
	Limit     time.Duration   `json:"limit_ns"`
}

// ToolAnswer is what came of a function that was reached.
type ToolAnswer struct {
	// Value is the structured value, else the text as a JSON string, else the list
	// of content blocks.
	Value json.RawMessage `json:"value,omitempty"`
	// Text is what the model reads.
	Text    string `json:"text"`
	IsError bool   `json:"is_error,omitempty"`
	// Made is false when the call never went out.
	Made bool `json:"made"`
}

// Read reads the input of an order.
func Read(input json.RawMessage) (*Spec, error) {
	var s Spec
	if err := json.Unmarshal(input, &s); err != nil {
		return nil, fmt.Errorf("the job's order cannot be read: %w", err)
	}
	return &s, nil
}

func (s *Spec) tool(id string) (Tool, bool) {
	for _, t := range s.Tools {
		if t.ID == id {
			return t, true
		}
	}
	return Tool{}, false
}
