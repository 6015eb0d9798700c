package skill

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/belay-run/belay/internal/conversation"
)

// Target is what the model may activate.
type Target struct {
	ID          string
	Name        string // "" for a block
	Description string
	Block       bool
}

// Targets returns what can be activated in a state: skills whose requires holds,
// those that the active skill names, and the blocks of the active skill.
func (s *Set) Targets(st *State) []Target {
	var out []Target
	active := s.Skill(st.Active())
	named := map[string]bool{}
	if active != nil && !active.OfEngine() {
		named = s.named(st, active)
		if f := st.Top(); f.Block == "" && !active.OnlyBlocks() {
			for _, b := range active.Blocks {
				out = append(out, Target{ID: b.ID, Description: b.Description, Block: true})
			}
		}
	}
	for _, k := range s.Skills {
		if k.Disabled || k.EngineManaged && !named[k.ID] || k.ID == st.Active() || !s.holds(st, k.Requires) {
			continue
		}
		out = append(out, Target{ID: k.ID, Name: k.Name, Description: k.Description})
	}
	return out
}

// named returns the skills that the text of the active skill, as the model reads
// it now, names.
func (s *Set) named(st *State, k *Skill) map[string]bool {
	out := map[string]bool{}
	for _, m := range Mentions(s.Reading(st)) {
		if m.Kind == MentionSkill {
			out[m.Name] = true
		}
	}
	return out
}

// Reading returns what the model reads of the active skill: its prose with the
// guards resolved, or the instructions of the block's step.
func (s *Set) Reading(st *State) string {
	f, k := st.Top(), s.Skill(st.Active())
	if f == nil || k == nil {
		return ""
	}
	if f.Block != "" {
		if step := s.Step(st); step != nil {
			return strings.TrimSpace(step.Instructions)
		}
		return ""
	}
	var parts []string
	for _, p := range k.Prose {
		if s.holds(st, p.If) {
			parts = append(parts, strings.TrimSpace(p.Text))
		}
	}
	return strings.Join(parts, "\n\n")
}

// Step returns the step under way, nil outside of blocks.
func (s *Set) Step(st *State) *Step {
	f := st.Top()
	if f == nil || f.Block == "" {
		return nil
	}
	k := s.Skill(f.Skill)
	if k == nil {
		return nil
	}
	b := k.Block(f.Block)
	if b == nil {
		return nil
	}
	step, _ := b.Step(f.Step)
	return step
}

// Settable returns the fields that the model may set now.
func (s *Set) Settable(st *State) []*Field {
	if step := s.Step(st); step != nil && step.Kind == Collect {
		if f := s.Field(step.Field); f != nil {
			return []*Field{f}
		}
		return nil
	}
	k := s.Skill(st.Active())
	if k == nil {
		return nil
	}
	var out []*Field
	for _, f := range k.Memory {
		if f.Settable {
			out = append(out, f)
		}
	}
	return out
}

// Activate says what happens when the model activates a target, "" and no events
// when it cannot. why is for the model.
func (s *Set) Activate(st *State, target string) (events []conversation.Event, why string) {
	active := s.Skill(st.Active())
	if active != nil && target == active.ID {
		return nil, "The skill " + target + " is active already."
	}
	i := slices.IndexFunc(s.Targets(st), func(t Target) bool {
		return t.ID == target || t.Block && active.ID+"__"+t.ID == target
	})
	if i < 0 {
		return nil, "There is nothing to activate under that name now."
	}
	if t := s.Targets(st)[i]; t.Block {
		return []conversation.Event{enter(active, active.Block(t.ID))}, ""
	}
	if active != nil {
		switch {
		case active.OfEngine():
			for a := active; a != nil && a.OfEngine(); a = s.Skill(below(st, a.ID)) {
				events = append(events, conversation.Event{Kind: conversation.SkillCancelled, Skill: a.ID})
			}
		case !s.named(st, active)[target]:
			events = append(events, conversation.Event{Kind: conversation.SkillInterrupted, Skill: active.ID})
		}
	}
	switch f := st.frame(target); {
	case f != nil && f.Interrupted: // the user is back at it
		return append(events, conversation.Event{Kind: conversation.SkillResumed, Skill: target}), ""
	case f != nil: // it waits for the one that is active: begun anew, not twice
		events = append(events, conversation.Event{Kind: conversation.SkillCancelled, Skill: target})
	}
	return append(events, conversation.Event{Kind: conversation.SkillActivated, Skill: target}), ""
}

// below returns the skill under the given one on the stack, "" when there is none.
func below(st *State, id string) string {
	for i := len(st.Stack) - 1; i >= 0; i-- {
		if f := st.Stack[i]; f.Block == "" && f.Skill == id {
			if i == 0 {
				return ""
			}
			return st.Stack[i-1].Skill
		}
	}
	return ""
}

// Replays returns the tools that steps of the block under way have run and that
// depend on a value that was corrected, in their order. What those wrote counts as
// corrected too.
func (s *Set) Replays(st *State, corrected []string) []Run {
	f := st.Top()
	if f == nil || f.Block == "" {
		return nil
	}
	changed := map[string]bool{}
	for _, name := range corrected {
		changed[name] = true
	}
	latest := map[string]int{} // a step that was gone through twice is replayed once
	for i, r := range f.Runs {
		latest[r.Step] = i
	}
	var out []Run
	for i, r := range f.Runs {
		if latest[r.Step] != i || !slices.ContainsFunc(r.Uses, func(name string) bool { return changed[name] }) {
			continue
		}
		out = append(out, r)
		for _, name := range r.Wrote {
			changed[name] = true
		}
	}
	return out
}

// ArgumentsOf returns the arguments that a step of the block under way gives its
// tool now, and the memory values among them.
func (s *Set) ArgumentsOf(st *State, step string) (json.RawMessage, []string) {
	f := st.Top()
	if f == nil || f.Block == "" {
		return json.RawMessage(`{}`), nil
	}
	if k := s.Skill(f.Skill); k != nil {
		if b := k.Block(f.Block); b != nil {
			if found, _ := b.Step(step); found != nil {
				return s.arguments(st, found)
			}
		}
	}
	return json.RawMessage(`{}`), nil
}
