// Package agent reads an agent's folder and checks it.
//
//	a, findings := agent.Read("path/to/agent")
//	if finding.HasErrors(findings) {
//		return finding.Text(os.Stderr, findings)
//	}
//
// [Read] reports everything that is wrong in one run: each finding has the file,
// the line, the column and what to do. It reads agent.yml, integrations.yml,
// responses.yml, memory.yml and the skills, and lists the Python files and the
// references without opening them: who runs Python checks Python, and who searches
// reads the references. What skills say of tools is looked at by [CheckTools], when
// Python is loaded.
//
// A skill is read in two steps: first the memory of all skills, so that a condition
// can be compiled knowing what there is ([skillReader.front], [skillReader.body],
// [skillReader.block]); then, with everything read, the names that lead from one
// place to another, and the way through blocks ([library.finish]).
//
// An [Agent] is plain data. Nothing here looks at the environment, opens a
// connection or runs code, so that a folder from anyone can be checked. No value
// that may be a secret is ever put in a finding.
package agent

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/skill"
	"github.com/belay-run/belay/internal/wording"
)

// Names of the files of an agent's folder.
const (
	AgentFile        = "agent.yml"
	IntegrationsFile = "integrations.yml"
	ResponsesFile    = "responses.yml"
)

// Agent is an agent's folder as data.
type Agent struct {
	Dir string // absolute path of the folder

	ID          string // letters, digits, "_", "." and "-"; the folder's name when agent.yml has none
	Language    string // such as "en" or "de-AT"
	Name        string // "" when agent.yml has none
	Description string
	Persona     string
	Voice       string
	Rules       []string
	TextRules   string // how to write in text channels
	// Instructions say how to answer from what a search found.
	Instructions string

	ToolTimeout time.Duration // for a tool that names no time of its own
	Limits      Limits
	// Keep is how long a conversation is kept after its last event; 0 is for ever.
	Keep  time.Duration
	Model Model
	// Responses are the agent's fixed texts over the built-in ones.
	Responses *wording.Book

	// The lists are sorted paths relative to Dir, with slashes.
	HookFiles      []string // hooks.py and hooks/**/*.py
	ToolFiles      []string // tools.py and tools/*.py, the project's and the skills'
	KnowledgeFiles []string // references/**/*.md of the project; a skill has its own

	// Skills is nil for an agent that has neither skills nor memory of its own.
	Skills     *skill.Set
	MCPServers []MCPServer

	tools []toolName // see CheckTools
}

// Limits bound a turn and the queue before it. Read always sets them.
type Limits struct {
	Iterations   int // completions that the main loop of a turn may ask for
	EmptyRetries int // times that an empty completion is asked for again
	PromptTokens int // budget of a prompt
	History      int // utterances of both sides that the model sees
	HookWorkers  int // processes that run hooks and tools
	Queue        int // messages of one conversation that may wait
}

// DefaultLimits are those of an agent that sets none.
var DefaultLimits = Limits{Iterations: 10, EmptyRetries: 2, PromptTokens: 32_000, History: 10, HookWorkers: 1, Queue: 8}

// DefaultToolTimeout is the time of a tool for which nobody set one.
const DefaultToolTimeout = 10 * time.Second

// Scripted is the provider that plays a script and asks no model.
const Scripted = "scripted"

// Model says which model an agent asks, and how.
type Model struct {
	Group    string // the model group it was taken from, "" when written inline
	Provider string
	Name     string // the provider's name of the model
	// KeyVariable names the environment variable that holds the key; "" when
	// none is named.
	KeyVariable string
	BaseURL     string // "" for the provider's own

	Temperature *float64      // nil when not set
	MaxTokens   *int          // nil when not set
	Timeout     time.Duration // of one completion; 0 when not set
	MaxRetries  *int          // nil when not set
	// Extra are the other keys as JSON, to be sent along as they are.
	Extra map[string]json.RawMessage

	// Script is the YAML text of the script when the provider is [Scripted], and
	// ScriptFile the file it stands in, "" when it is written inline.
	Script     []byte
	ScriptFile string
}

// Settings returns the top-level keys that each request to the model gets:
// temperature, max_tokens and the extra keys.
func (m Model) Settings() map[string]json.RawMessage {
	out := make(map[string]json.RawMessage, len(m.Extra)+2)
	for k, v := range m.Extra {
		out[k] = v
	}
	if m.Temperature != nil {
		out["temperature"] = json.RawMessage(strconv.FormatFloat(*m.Temperature, 'g', -1, 64))
	}
	if m.MaxTokens != nil {
		out["max_tokens"] = json.RawMessage(strconv.Itoa(*m.MaxTokens))
	}
	return out
}

// Read reads and checks an agent's folder. It never panics. The agent holds what
// could be read; one whose findings have an error must not be run.
func Read(dir string) (*Agent, []finding.Finding) {
	a := &Agent{
		Dir: dir, Language: "en", Limits: DefaultLimits, ToolTimeout: DefaultToolTimeout,
		Responses: wording.New("en", nil),
	}
	var findings []finding.Finding
	f := openFolder(dir, &findings)
	if f == nil {
		return a, findings
	}
	defer f.close()
	a.Dir = f.path
	a.ID = idOf(f.path)

	top := f.yaml(AgentFile)
	a.readProfile(f.reader(AgentFile), top)
	a.readIntegrations(f, top)
	lib := a.readSkills(f)
	a.readResponses(f, lib)
	a.list(f)
	lib.finish()
	return a, finding.Clean(findings)
}
