package skill

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/belay-run/belay/internal/conversation"
)

// State is where a conversation stands: a fold over its events.
type State struct {
	// Memory holds what was written, by full name; JSON null for what was cleared.
	// What nobody wrote has its initial value.
	Memory map[string]json.RawMessage
	// Stack is what is under way, the active last. The blocks of a skill lie above
	// it.
	Stack []Frame

	vars    map[string]any // see [Set.Vars]
	varsFor string
}

// Frame is a skill, or an ordered block of one, that is under way.
type Frame struct {
	Skill string
	Block string // "" for the skill itself
	Step  string // of a block
	Turn  string // in which a skill was activated

	Interrupted bool // the user turned to something else
	Asked       bool // the step's question was asked
	Spoke       bool // the model has said something in the step
	Ran         bool // the step's tool has run
	Returned    bool // what lay above has ended

	Said []string // responses that the engine said since the skill was activated
	Runs []Run    // tools that the block's steps ran
}

// Run is a tool that a step ran.
type Run struct {
	Step, Tool  string
	Uses, Wrote []string
}

// Fold returns the state after the events.
func Fold(events []conversation.Event) *State {
	s := &State{}
	for i := range events {
		s.Apply(&events[i])
	}
	return s
}

// Top returns the frame that is active, nil when none is. It is good until the
// next [State.Apply].
func (s *State) Top() *Frame {
	if len(s.Stack) == 0 {
		return nil
	}
	return &s.Stack[len(s.Stack)-1]
}

// Active returns the id of the active skill, "" when none is.
func (s *State) Active() string {
	if f := s.Top(); f != nil {
		return f.Skill
	}
	return ""
}

// skillFrame returns the frame of the active skill itself.
func (s *State) skillFrame() *Frame {
	for i := len(s.Stack) - 1; i >= 0; i-- {
		if f := &s.Stack[i]; f.Block == "" {
			return f
		}
	}
	return nil
}

// On says whether a skill is on the stack.
func (s *State) On(id string) bool { return s.frame(id) != nil }

// frame returns the frame of a skill itself, nil when it is not on the stack.
func (s *State) frame(id string) *Frame {
	from, _ := s.span(id)
	if from < 0 {
		return nil
	}
	return &s.Stack[from]
}

// span says where a skill and its blocks lie on the stack, the upper ones when it
// lies there twice; from is -1 when it does not.
func (s *State) span(id string) (from, to int) {
	for from = len(s.Stack) - 1; from >= 0; from-- {
		if f := &s.Stack[from]; f.Skill == id && f.Block == "" {
			break
		}
	}
	for to = from + 1; to < len(s.Stack) && s.Stack[to].Block != ""; to++ {
	}
	return from, to
}

// Apply takes one event into the state.
func (s *State) Apply(e *conversation.Event) {
	switch e.Kind {
	case conversation.SessionStarted, conversation.SessionEnded:
		*s = State{}
	case conversation.MemorySet, conversation.MemoryCleared:
		s.remember(e)
	case conversation.SkillActivated:
		s.forget(e.Skill)
		s.Stack = append(s.Stack, Frame{Skill: e.Skill, Turn: e.Turn})
	case conversation.SkillCompleted, conversation.SkillCancelled:
		s.leave(e.Skill)
	case conversation.SkillInterrupted:
		s.interrupt(e.Skill, true)
	case conversation.SkillResumed:
		s.interrupt(e.Skill, false)
		s.raise(e.Skill)
	case conversation.BlockEntered:
		s.Stack = append(s.Stack, Frame{Skill: e.Skill, Block: e.Block, Step: e.Step})
	case conversation.BlockCompleted, conversation.BlockCancelled:
		if f := s.Top(); f != nil && f.Skill == e.Skill && f.Block == e.Block {
			s.pop(len(s.Stack) - 1)
		}
	case conversation.BlockStep, conversation.BlockAsked:
		if f := s.Top(); f != nil && f.Skill == e.Skill && f.Block == e.Block {
			if e.Kind == conversation.BlockStep {
				*f = Frame{Skill: f.Skill, Block: f.Block, Step: e.Step, Runs: f.Runs}
			}
			f.Asked = e.Kind == conversation.BlockAsked
		}
	case conversation.ToolExecuted:
		s.ran(e.Tool)
	case conversation.Bot:
		s.said(e)
	}
}

func (s *State) remember(e *conversation.Event) {
	if e.Memory == nil {
		return
	}
	s.vars = nil
	if s.Memory == nil {
		s.Memory = map[string]json.RawMessage{}
	}
	s.Memory[e.Memory.Name] = json.RawMessage("null")
	if e.Kind == conversation.MemorySet {
		s.Memory[e.Memory.Name] = e.Memory.Value
	}
}

// forget gives a skill's memory its initial values.
func (s *State) forget(id string) {
	s.vars = nil
	for name := range s.Memory {
		if strings.HasPrefix(name, id+".") {
			delete(s.Memory, name)
		}
	}
}

// leave takes a skill and its blocks off the stack.
func (s *State) leave(id string) {
	s.vars = nil
	from, to := s.span(id)
	if from < 0 {
		return
	}
	top := to == len(s.Stack)
	s.Stack = append(s.Stack[:from:from], s.Stack[to:]...)
	if top {
		s.returned()
	}
}

func (s *State) pop(from int) {
	s.vars = nil
	s.Stack = s.Stack[:from:from]
	s.returned()
}

func (s *State) returned() {
	if f := s.Top(); f != nil {
		f.Returned = true
	}
}

func (s *State) interrupt(id string, on bool) {
	for i := range s.Stack {
		if f := &s.Stack[i]; f.Skill == id {
			f.Asked = false // on the way back the question is asked once more
			f.Interrupted = on && f.Block == ""
		}
	}
}

// raise brings a skill and its blocks to the top.
func (s *State) raise(id string) {
	if from, to := s.span(id); from >= 0 {
		s.vars = nil
		s.Stack = slices.Concat(s.Stack[:from], s.Stack[to:], s.Stack[from:to])
	}
}

// ran marks a step whose tool has run; a run that nobody knows the end of counts
// too, since it must not be run again. The user may have turned to something else
// before they confirmed it.
func (s *State) ran(run *conversation.ToolRun) {
	if run == nil || run.Step == "" || run.Source != conversation.SourceStep && run.Source != conversation.SourceConfirmation {
		return
	}
	for i := len(s.Stack) - 1; i >= 0; i-- {
		if f := &s.Stack[i]; f.Block != "" && f.Skill == run.Skill && f.Step == run.Step {
			f.Ran = true
			f.Runs = append(slices.Clip(f.Runs), Run{Step: run.Step, Tool: run.Name, Uses: run.Uses, Wrote: run.Wrote})
			return
		}
	}
}

func (s *State) said(e *conversation.Event) {
	if e.Skill != "" && e.Response != "" {
		if f := s.skillFrame(); f != nil && f.Skill == e.Skill {
			f.Said = append(slices.Clip(f.Said), e.Response)
		}
	}
	// A text that a hook stopped, that was cut short, or that a tool sent is not the
	// model's word on the step.
	if f := s.Top(); f != nil && f.Block != "" && e.Source == conversation.FromModel && e.BatchID == "" && e.Discarded == nil && e.Note == "" {
		f.Spoke = true
	}
}
