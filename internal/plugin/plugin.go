// Package plugin reads what a plugin brings: MCP tools, agents, hooks, a policy and
// tests, declared in one file of its folder.
//
//	name: acme-policy
//	tools:
//	  - id: acme_policy
//	    mcp: ["python", "-m", "acme_policy.server"]
//	hooks:
//	  - on: pre_tool_call
//	    call: acme_policy.check
//	    match: { tools: ["acme_github.merge", "acme_github.push"] }
//	    timeout: 2s
//	    on_timeout: escalate
//
// [Read] reads the manifest and checks all that can be checked without a server:
//
//	m, findings := plugin.Read("path/to/plugin")
//	if finding.HasErrors(findings) {
//		return finding.Text(os.Stderr, findings)
//	}
//
// [Lint] checks the rest against the functions that the plugin's servers list.
// [Manifest.Declarations] are its hooks for the engine, in order;
// [Manifest.Permissions] says in plain words what installing it allows. [Copy]
// makes a snapshot of the folder and [Digest] tells snapshots apart.
//
// A [Manifest] is plain data. Nothing here starts a program, opens a connection or
// looks at the environment, so that a plugin from anyone can be checked.
package plugin

import (
	"slices"
	"time"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/internal/policy"
)

// Names of a manifest. The second is of plugins written for another platform: it
// loads unchanged, and its sections that nobody acts on are warnings.
const (
	File      = "belay-plugin.yaml"
	OtherFile = "oz0-plugin.yaml"
)

// Manifest is a plugin as data. One whose findings have an error must not be used.
type Manifest struct {
	Dir  string // absolute path of the folder
	File string // [File] or [OtherFile]

	Name        string
	Version     string // as it is written; "" when there is none
	Description string

	Tools  []Tool
	Agents []Agent
	Hooks  []Hook // in the order of the manifest, in which they run
	// Policy is what the plugin adds to the tenant's, nil when it brings none. It
	// only restricts.
	Policy *policy.Policy
	// Tests are the files with the plugin's cases: paths relative to Dir, with
	// slashes, in the order in which the manifest names them.
	Tests []string
}

// Place is where something stands in a plugin's folder.
type Place struct {
	File         string // relative, with slashes
	Line, Column int
}

// Tool is an MCP server: a program that is started here, or one elsewhere.
type Tool struct {
	ID      string
	Command []string // the program and its arguments; nil for a remote tool
	URL     string   // where a remote tool answers
	Env     []string // the variables that the program gets
	// ModelPurpose says why its functions call a model; "" when they do not.
	ModelPurpose string
	Place
}

// Remote says that the tool's calls leave this machine.
func (t *Tool) Remote() bool { return t.URL != "" }

// Agent is an agent that the plugin brings: either instructions and a model, or an
// agent folder.
type Agent struct {
	ID           string
	Description  string
	Instructions string // "" for an agent folder
	Folder       string // relative to the plugin's folder; "" for none
	// Model is the alias of the model; an agent folder may have its own, and then
	// needs none.
	Model  string
	Tools  []string // <tool>.<function> or <tool>.*
	Limits Limits
	Place
}

// Limits bound a job of an agent.
type Limits struct {
	Iterations int           // model calls
	WallTime   time.Duration // of work; waiting for a person is not counted
	ToolCalls  int
}

// DefaultLimits are those of an agent that sets none.
var DefaultLimits = Limits{Iterations: 30, WallTime: time.Hour, ToolCalls: 200}

// Hook is one hook as it is declared.
type Hook struct {
	On       *hook.Point
	Tool     string // one of the plugin's
	Function string
	Match    hook.Match
	Timeout  time.Duration
	// OnFailure decides when the hook does not answer in time, fails, or answers
	// what is no decision.
	OnFailure hook.Policy
	// EscalateOnly hooks may only allow and escalate.
	EscalateOnly bool
	// Scan tells the hook where the tenant's secrets are.
	Scan bool
	// Shadow hooks are asked and recorded; their decisions do not bind.
	Shadow bool
	Place
	callAt Place // where the function is named
}

// Call is the hook's full function name, <tool>.<function>.
func (h *Hook) Call() string { return h.Tool + "." + h.Function }

// Sees says whether the hook is asked about an event of the agent and, where the
// event is about one, the function with that full name.
func (h *Hook) Sees(agent, tool string) bool {
	m := h.Match
	return (m.Agents == nil || slices.Contains(m.Agents, agent)) && (m.Tools == nil || slices.Contains(m.Tools, tool))
}

// Tool returns the tool with that id, or nil.
func (m *Manifest) Tool(id string) *Tool {
	for i := range m.Tools {
		if m.Tools[i].ID == id {
			return &m.Tools[i]
		}
	}
	return nil
}

// Chain returns the hooks that are asked about an event, in order.
func (m *Manifest) Chain(event, agent, tool string) []*Hook {
	var out []*Hook
	for i := range m.Hooks {
		if h := &m.Hooks[i]; h.On.Name == event && h.Sees(agent, tool) {
			out = append(out, h)
		}
	}
	return out
}

// Declaration is a hook for the engine. Whoever runs the plugin's servers sets the
// Host of its Hook.
type Declaration struct {
	// Hook has a name that is unique among the plugin's hooks at its point: the
	// full function name, and for a second hook of the same function "#2" after it.
	Hook hook.Hook
	// Call is what reasons and approvals name: <tool>.<function>.
	Call           string
	Tool, Function string
	Scan           bool // its event comes with the places of the tenant's secrets
	Shadow         bool // its decision does not bind
	EscalateOnly   bool // its event carries the job's request and the agent's model
}

// Declarations returns the plugin's hooks for the engine, in the order in which
// they run.
func (m *Manifest) Declarations() []Declaration {
	var out []Declaration
	used := map[string]int{}
	for i := range m.Hooks {
		h := &m.Hooks[i]
		d := Declaration{Call: h.Call(), Tool: h.Tool, Function: h.Function, Scan: h.Scan, Shadow: h.Shadow, EscalateOnly: h.EscalateOnly}
		d.Hook = hook.Hook{
			Name: h.Call(), Point: h.On, Lane: hook.Modify, Match: hook.Match{Tools: slices.Clone(h.Match.Tools), Agents: slices.Clone(h.Match.Agents)},
			Limit: h.Timeout, OnFailure: h.OnFailure, File: h.File, Line: h.Line,
		}
		if h.EscalateOnly {
			d.Hook.Verdicts = hook.KindsOf(hook.Continue, hook.Hold)
		}
		at := h.On.Name + " " + h.Call()
		if used[at]++; used[at] > 1 {
			d.Hook.Name = numbered(h.Call(), used[at])
		}
		out = append(out, d)
	}
	return out
}
