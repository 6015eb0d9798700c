package skill

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/belay-run/belay/internal/condition"
	"github.com/belay-run/belay/internal/conversation"
	"github.com/belay-run/belay/internal/rawjson"
)

// Ids of the skills that the engine starts by itself.
const (
	SessionStart       = "default_session_start"
	Completed          = "default_completed"
	ContinueInterrupt  = "default_continue_interrupted"
	UnsupportedRequest = "default_unsupported_request_handler"
)

// Do says what is to be done next.
type Do string

// What can be done.
const (
	AskModel Do = "model" // nothing is determined: it is the model's turn
	Move     Do = "move"  // only the events are to be added
	Say      Do = "say"   // a response is to be said
	RunTool  Do = "run"   // a tool is to be run
	Fill     Do = "fill"  // the model is to be asked for what the user has said already
)

// Act is what the engine does next, without the model. The events are added first,
// then the values written, then the rest is done.
type Act struct {
	Do     Do
	Events []conversation.Event
	Writes []Assignment // By is the engine or a step

	Response string // Say
	Wait     bool   // Say: it is a question, the turn ends

	Tool      string          // RunTool: bare name
	Arguments json.RawMessage // RunTool
	Uses      []string        // RunTool: memory values among the arguments
	Step      string          // RunTool

	// Why says in the trace what could not be done as it is written.
	Why string
}

// Moment is when [Set.Next] is asked.
type Moment struct {
	Turn string
	// Settling says that nothing of the turn is open: the model has spoken. Only then
	// a skill's complete_when ends it, so that the model tells the user what a tool
	// has just answered, and a message is answered before the skill ends.
	Settling bool
	// Done are the things that were tried in this turn already, by [Act.Key].
	Done map[string]bool
}

// Key names an act that is done once in a turn at most, "" for the others.
func (a Act) Key(active string) string {
	switch a.Do {
	case Say:
		if !a.Wait && len(a.Events) == 0 {
			return "say/" + active + "/" + a.Response
		}
	case Fill:
		return "fill/" + active
	}
	return ""
}

// Next returns what is determined in a state.
func (s *Set) Next(st *State, m Moment) Act {
	f := st.Top()
	if f == nil {
		return Act{Do: AskModel}
	}
	k := s.Skill(f.Skill)
	if k == nil {
		return Act{Do: Move, Events: []conversation.Event{{Kind: conversation.SkillCancelled, Skill: f.Skill}}, Why: "the agent has no skill " + f.Skill + " any more"}
	}
	if f.Interrupted && f.Block == "" || f.Block != "" && st.skillFrame().Interrupted {
		return s.offerResume(st, k)
	}
	if act, ok := s.utters(st, k, m); ok {
		return act
	}
	if f.Block == "" {
		return s.inProse(st, f, k, m)
	}
	return s.inBlock(st, f, k)
}

// offerResume asks the user whether to go on with what they had turned from.
func (s *Set) offerResume(st *State, k *Skill) Act {
	if s.Skill(ContinueInterrupt) == nil {
		return Act{Do: Move, Events: []conversation.Event{{Kind: conversation.SkillResumed, Skill: k.ID}}}
	}
	name := k.Name
	if name == "" {
		name = k.ID
	}
	if about := strings.TrimRight(strings.TrimSpace(k.Description), "."); about != "" {
		name += " (" + about + ")"
	}
	act := Act{Do: Move, Events: []conversation.Event{{Kind: conversation.SkillActivated, Skill: ContinueInterrupt}}}
	if f := s.Field(ContinueInterrupt + ".interrupted_task_name"); f != nil {
		act.Writes = []Assignment{{Field: f.Full(), Value: name}}
	}
	return act
}

// utters finds a fixed text that the active skill has yet to say.
func (s *Set) utters(st *State, k *Skill, m Moment) (Act, bool) {
	f := st.skillFrame()
	for _, u := range k.Utters {
		act := Act{Do: Say, Response: u.Response}
		if slices.Contains(f.Said, u.Response) || m.Done[act.Key(k.ID)] {
			continue
		}
		if u.When == nil || s.holds(st, u.When) {
			return act, true
		}
	}
	return Act{}, false
}

func (s *Set) inProse(st *State, f *Frame, k *Skill, m Moment) Act {
	if f.Turn == m.Turn && !k.OfEngine() && !m.Done[Act{Do: Fill}.Key(k.ID)] && len(s.Open(st, k)) > 0 {
		return Act{Do: Fill}
	}
	if k.OnlyBlocks() {
		if f.Returned {
			return s.Complete(st)
		}
		b := k.Main()
		return Act{Do: Move, Events: []conversation.Event{enter(k, b)}}
	}
	if m.Settling && k.CompleteWhen != nil && len(k.Criteria) == 0 && s.holds(st, k.CompleteWhen) {
		return s.Complete(st)
	}
	return Act{Do: AskModel}
}

// Open returns the fields of a skill that the model may set and nobody has.
func (s *Set) Open(st *State, k *Skill) []*Field {
	var out []*Field
	for _, f := range k.Memory {
		if f.Settable && s.Value(st, f.Full()) == nil {
			out = append(out, f)
		}
	}
	return out
}

func enter(k *Skill, b *Block) conversation.Event {
	return conversation.Event{Kind: conversation.BlockEntered, Skill: k.ID, Block: b.ID, Step: b.Steps[0].ID}
}

func (s *Set) inBlock(st *State, f *Frame, k *Skill) Act {
	b := k.Block(f.Block)
	if b == nil {
		return Act{Do: Move, Events: []conversation.Event{{Kind: conversation.BlockCancelled, Skill: f.Skill, Block: f.Block}}, Why: "skill " + k.ID + " has no block " + f.Block + " any more"}
	}
	step, below := b.Step(f.Step)
	if step == nil {
		gone := "block " + b.ID + " has no step " + f.Step + " any more "
		if len(f.Runs) > 0 { // what its tools have done is not done twice
			return Act{Do: Move, Events: []conversation.Event{{Kind: conversation.SkillCancelled, Skill: f.Skill}}, Why: gone + "and tools of it have run: the skill is ended"}
		}
		return Act{Do: Move, Events: []conversation.Event{{Kind: conversation.BlockStep, Skill: f.Skill, Block: f.Block, Step: b.Steps[0].ID}}, Why: gone + "and begins again"}
	}
	on := Act{Do: Move, Events: []conversation.Event{s.onward(st, f, step, below)}}
	switch step.Kind {
	case Instruct:
		if step.CompleteWhen != nil && s.holds(st, step.CompleteWhen) || step.CompleteWhen == nil && f.Spoke {
			return on
		}
		return Act{Do: AskModel}
	case Collect:
		return s.collect(st, f, step, on)
	case Action:
		on.Do, on.Response = Say, step.Response
		return on
	case Execute:
		if f.Ran {
			return on
		}
		args, uses := s.arguments(st, step)
		return Act{Do: RunTool, Tool: step.Tool, Arguments: args, Uses: uses, Step: step.ID}
	case SetValue:
		on.Writes = step.Values
		return on
	case CallTo:
		if f.Returned {
			return on
		}
		return s.goTo(k, step.Target, nil)
	case LinkTo:
		return s.link(st, f, k, step.Target)
	case Finish:
		return Act{Do: Move, Events: []conversation.Event{{Kind: conversation.BlockCompleted, Skill: f.Skill, Block: f.Block}}}
	}
	return on // Noop
}

func (s *Set) collect(st *State, f *Frame, step *Step, on Act) Act {
	switch {
	case s.Value(st, step.Field) != nil:
		return on
	case f.Asked:
		return Act{Do: AskModel}
	}
	asked := []conversation.Event{{Kind: conversation.BlockAsked, Skill: f.Skill, Block: f.Block, Step: step.ID}}
	if step.Response == "" {
		return Act{Do: Move, Events: asked}
	}
	return Act{Do: Say, Events: asked, Response: step.Response, Wait: true}
}

// onward is the event that leaves a step.
func (s *Set) onward(st *State, f *Frame, step, below *Step) conversation.Event {
	to := End
	if below != nil {
		to = below.ID
	}
	for _, b := range step.Next {
		if b.If == nil || s.holds(st, b.If) {
			to = b.To
			break
		}
	}
	if to == End {
		return conversation.Event{Kind: conversation.BlockCompleted, Skill: f.Skill, Block: f.Block}
	}
	return conversation.Event{Kind: conversation.BlockStep, Skill: f.Skill, Block: f.Block, Step: to}
}

// arguments are those of a tool that a step runs; a value that is not set is left
// out.
func (s *Set) arguments(st *State, step *Step) (json.RawMessage, []string) {
	args := map[string]any{}
	var uses []string
	for _, p := range step.Parameters {
		v := p.Value
		if p.Field != "" {
			uses = append(uses, p.Field)
			v = s.Value(st, p.Field)
		}
		if v != nil {
			args[p.Name] = v
		}
	}
	return rawjson.Must(args), uses
}

// goTo enters a block of the skill, or activates a skill.
func (s *Set) goTo(k *Skill, target string, before []conversation.Event) Act {
	if b := s.blockNamed(k, target); b != nil {
		return Act{Do: Move, Events: append(before, enter(k, b))}
	}
	if s.Skill(target) != nil {
		return Act{Do: Move, Events: append(before, conversation.Event{Kind: conversation.SkillActivated, Skill: target})}
	}
	// The check refuses such an agent; a folder that changed under way may have one.
	return Act{Do: Move, Events: append(before, conversation.Event{Kind: conversation.SkillCancelled, Skill: k.ID}), Why: fmt.Sprintf("there is no block or skill %q", target)}
}

// link leaves the block, and with it the skill when the target is another skill,
// for good.
func (s *Set) link(st *State, f *Frame, k *Skill, target string) Act {
	if s.blockNamed(k, target) != nil {
		return s.goTo(k, target, []conversation.Event{{Kind: conversation.BlockCompleted, Skill: f.Skill, Block: f.Block}})
	}
	return s.goTo(k, target, []conversation.Event{{Kind: conversation.SkillCompleted, Skill: k.ID}})
}

// blockNamed finds a block of a skill by its id, or as skill__block.
func (s *Set) blockNamed(k *Skill, target string) *Block {
	if k == nil {
		return nil
	}
	if b := k.Block(target); b != nil {
		return b
	}
	prefix := k.ID + "__"
	if len(target) > len(prefix) && target[:len(prefix)] == prefix {
		return k.Block(target[len(prefix):])
	}
	return nil
}

// Complete ends the active skill, which is done, and does what follows: what the
// user wants to go on with is resumed or dropped, and when nothing is left to do
// the user is asked whether there is something else.
func (s *Set) Complete(st *State) Act {
	k := s.Skill(st.Active())
	if k == nil {
		return Act{Do: Move}
	}
	act := Act{Do: Move, Events: []conversation.Event{{Kind: conversation.SkillCompleted, Skill: k.ID}}}
	var below *Frame
	for i := len(st.Stack) - 1; i >= 0; i-- {
		if f := &st.Stack[i]; f.Block == "" && f.Skill != k.ID {
			below = f
			break
		}
	}
	switch {
	case below != nil && below.Interrupted && k.OfEngine():
		kind := conversation.SkillResumed
		if k.ID == ContinueInterrupt && s.Value(st, ContinueInterrupt+".wants_to_resume") != true {
			kind = conversation.SkillCancelled
		}
		act.Events = append(act.Events, conversation.Event{Kind: kind, Skill: below.Skill})
	default:
		act.Events = append(act.Events, s.wrapUp(k, below)...)
	}
	return act
}

// Cancel ends the active skill before it is done.
func (s *Set) Cancel(st *State) Act {
	act := s.Complete(st)
	if len(act.Events) > 0 {
		act.Events[0].Kind = conversation.SkillCancelled
	}
	return act
}

// wrapUp asks whether there is something else when nothing is left to do.
func (s *Set) wrapUp(k *Skill, below *Frame) []conversation.Event {
	if below != nil || k.OfEngine() || s.Skill(Completed) == nil {
		return nil
	}
	return []conversation.Event{{Kind: conversation.SkillActivated, Skill: Completed}}
}

// holds evaluates a condition; one that cannot be evaluated does not hold.
func (s *Set) holds(st *State, c *condition.Condition) bool {
	if c == nil {
		return true
	}
	ok, err := c.Holds(s.Vars(st))
	return err == nil && ok
}

// Holds says whether a condition holds in a state; a nil one does, one that cannot
// be evaluated does not.
func (s *Set) Holds(st *State, c *condition.Condition) bool { return s.holds(st, c) }
