// Package skill is the part of an agent that tells it what to do when: skills with
// their prose, ordered blocks, constraints and memory, as data, and the machine
// that moves through them.
//
// A [Set] is what the agent's folder says; nobody changes it. A [State] is where
// one conversation stands: which skills and blocks are under way, and what is
// remembered. It is a fold over the conversation's events ([State.Apply]), so that
// it can always be had again from the record. [Set.Next] is the engine's part of a
// turn: given the state it says the next thing that is already determined (say a
// fixed text, run a tool, move on), or that it is the model's turn. It asks
// nothing and changes nothing: whoever calls it does what it says and adds the
// events.
package skill

import (
	"slices"

	"github.com/belay-run/belay/internal/condition"
)

// Project is the namespace of the memory that all skills share.
const Project = "project"

// Set is the skills and the memory schema of one agent. It is not changed after it
// was made and may be used from many goroutines.
type Set struct {
	Skills  []*Skill // sorted by ID
	Project []*Field // in the order of the file
}

// Skill is one thing that the agent can do.
type Skill struct {
	ID          string // the folder's name
	Name        string // for people
	Description string // by it the model chooses
	File        string // skills/<id>/skill.md
	// Requires must hold for the skill to be offered; nil always holds.
	Requires *condition.Condition
	// CompleteWhen ends the skill when it holds; nil never does.
	CompleteWhen *condition.Condition
	// Criteria say in words when the skill is done; with criteria only the model
	// ends it.
	Criteria []string
	Disabled bool
	// EngineManaged skills are not on the menu: the engine starts them (see
	// [Skill.OfEngine]), or a skill that names them.
	EngineManaged bool
	// Builtin says that the skill is Belay's own and not in the agent's folder.
	Builtin bool

	Imports     []Import
	Constraints map[string]*Constraint // by the tool's bare name
	Utters      []Utter
	Prose       []Paragraph
	Blocks      []*Block // in the order of the file
	Memory      []*Field // in the order of the file
	// References are the skill's own documents, sorted paths relative to the
	// agent's folder.
	References []string
}

// Import is a shared tool, or one of an MCP server, that a skill may use.
type Import struct {
	Server string // of mcp/<server>:<tool>; "" for a tool in tools/
	Tool   string
	Line   int
	Column int
}

// Name returns the import as it is written.
func (i Import) Name() string {
	if i.Server == "" {
		return i.Tool
	}
	return "mcp/" + i.Server + ":" + i.Tool
}

// Constraint guards a tool while a skill is active. Texts are names of responses,
// "" for none.
type Constraint struct {
	// Requires must hold for the tool to be offered and to run.
	Requires *condition.Condition
	// Confirm asks the user before the tool runs, with Question (the built-in one
	// when ""); Denial is said after a no.
	Confirm   bool
	Question  string
	Denial    string
	OnSuccess string
	OnFailure string
	// Description stands in place of the tool's own while the skill is active.
	Description  string
	Line, Column int
}

// Utter is a fixed text that the engine says by itself: when the skill is
// activated, or (with When) once, when the condition first holds.
type Utter struct {
	Response     string
	When         *condition.Condition // nil: on activation
	Line, Column int
}

// Paragraph is a piece of prose.
type Paragraph struct {
	// If is nil for a paragraph that is always shown.
	If   *condition.Condition
	Text string
	Line int // of its first line, in the skill's file
}

// Block is a list of steps that are gone through in order.
type Block struct {
	ID          string
	Name        string
	Description string
	Steps       []*Step
	Line        int
}

// StepKind says what a step does.
type StepKind string

// The kinds.
const (
	Instruct StepKind = "instructions" // the model talks with the user until CompleteWhen holds
	Collect  StepKind = "collect"      // asks for one memory value
	Action   StepKind = "action"       // says a response
	Execute  StepKind = "execute_tool" // runs a tool
	SetValue StepKind = "set_memory"   // writes literal values
	Noop     StepKind = "noop"         // only branches
	CallTo   StepKind = "call"         // runs a block or skill, then goes on here
	LinkTo   StepKind = "link"         // goes over to a block or skill for good
	Finish   StepKind = "end"          // ends the block
)

// End is the step id that ends a block.
const End = "END"

// Step is one step of a block.
type Step struct {
	ID   string
	Kind StepKind
	// Instructions are what the model reads while the step is under way.
	Instructions string
	CompleteWhen *condition.Condition // of an Instruct step; nil: done when the model has spoken
	Field        string               // Collect: full name of the memory value
	Response     string               // Collect: the question, may be ""; Action: the text
	Tool         string               // Execute: bare name
	Parameters   []Parameter          // Execute
	Values       []Assignment         // SetValue
	Target       string               // CallTo, LinkTo: a block of the skill, a skill, or skill__block
	Next         []Branch             // empty: the step below, or the end
	Line, Column int
}

// Parameter is an argument of a tool that a step runs.
type Parameter struct {
	Name  string
	Field string // full name of the memory value that it takes; "" for a literal
	Value any    // the literal, as encoding/json gives it
}

// Assignment writes a literal into memory.
type Assignment struct {
	Field string // full name
	Value any    // as encoding/json gives it; nil clears
}

// Branch is one way on from a step: the first whose condition holds is taken.
type Branch struct {
	If *condition.Condition // nil: always
	To string               // a step's id, or [End]
}

// FieldType is the type of a memory value.
type FieldType string

// The types.
const (
	Text        FieldType = "text"
	Bool        FieldType = "bool"
	Int         FieldType = "int"
	Float       FieldType = "float"
	Number      FieldType = "number" // int or float
	Categorical FieldType = "categorical"
	List        FieldType = "list"
	Any         FieldType = "any" // any JSON value
)

// Field declares one memory value.
type Field struct {
	Namespace   string // a skill's id, or [Project]
	Name        string
	Type        FieldType
	Description string
	Initial     any   // as encoding/json gives it; nil: not set
	Values      []any // of a categorical: texts, numbers or bools
	Settable    bool  // the model may set it
	Private     bool  // other skills do not read it
	Personal    bool  // pii: the model sees that it is set, not what it is
	Mutable     bool  // project: may be written more than once
	Line        int
}

// Full returns the field's full name, such as "project.name".
func (f *Field) Full() string { return f.Namespace + "." + f.Name }

// Skill returns the skill of that id, nil when there is none.
func (s *Set) Skill(id string) *Skill {
	if s == nil {
		return nil
	}
	i, ok := slices.BinarySearchFunc(s.Skills, id, func(k *Skill, id string) int { return compare(k.ID, id) })
	if !ok {
		return nil
	}
	return s.Skills[i]
}

func compare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// Field returns the declaration of a memory value by its full name, nil when there
// is none.
func (s *Set) Field(full string) *Field {
	namespace, name := cut(full)
	if s == nil {
		return nil
	}
	fields := s.Project
	if namespace != Project {
		k := s.Skill(namespace)
		if k == nil {
			return nil
		}
		fields = k.Memory
	}
	for _, f := range fields {
		if f.Name == name {
			return f
		}
	}
	return nil
}

func cut(full string) (namespace, name string) {
	for i := range full {
		if full[i] == '.' {
			return full[:i], full[i+1:]
		}
	}
	return "", full
}

// OfEngine says that the engine starts the skill by itself, for what is not the
// user's business, so that nobody is asked whether to go back to it.
func (k *Skill) OfEngine() bool {
	switch k.ID {
	case SessionStart, Completed, ContinueInterrupt, UnsupportedRequest:
		return true
	}
	return false
}

// Block returns the skill's block of that id, nil when there is none.
func (k *Skill) Block(id string) *Block {
	for _, b := range k.Blocks {
		if b.ID == id {
			return b
		}
	}
	return nil
}

// Step returns the block's step of that id and the one below it, nil when there is
// none.
func (b *Block) Step(id string) (step, below *Step) {
	for i, s := range b.Steps {
		if s.ID == id {
			if i+1 < len(b.Steps) {
				below = b.Steps[i+1]
			}
			return s, below
		}
	}
	return nil, nil
}

// OnlyBlocks says that the skill has no prose: its first block (or the one called
// main) is the whole of it.
func (k *Skill) OnlyBlocks() bool { return len(k.Prose) == 0 && len(k.Blocks) > 0 }

// Main is the block that a skill without prose begins with.
func (k *Skill) Main() *Block {
	if b := k.Block("main"); b != nil {
		return b
	}
	return k.Blocks[0]
}
