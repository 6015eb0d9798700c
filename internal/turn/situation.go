package turn

import (
	"regexp"
	"strings"

	"github.com/belay-run/belay/internal/skill"
)

const maxShown = 100 // characters of a memory value in the prompt

// situation is what the prompt says of skills and memory: the active skill alone,
// with its guards resolved and what is offered now.
func (t *turn) situation() string {
	var b strings.Builder
	set := t.agent.Skills
	if t.skilled() {
		b.WriteString("\n\nThe current date and time is " + t.steps.Now().Format("Monday, 2006-01-02 15:04 MST") + ".")
	}
	t.list(&b, "What is known of the user and the conversation:", set.Project)
	if !t.skilled() {
		return b.String()
	}
	k := set.Skill(t.state.Active())
	if k == nil {
		if targets := set.Targets(t.state); len(targets) > 0 {
			b.WriteString("\n\nNo skill is active. Call " + activate + " with the id of the skill that fits the user's request; do not answer a request that a skill is there for yourself. " +
				"Greetings and small talk need no skill. When no skill fits, call " + cannotHelp + ". The skills:" + catalogue(targets))
		}
		return b.String()
	}
	if !k.OfEngine() {
		b.WriteString("\n\nThe active skill is " + k.ID + ". Do what it says:")
	}
	t.task(&b, k)
	t.list(&b, "Values of this skill:", k.Memory)
	t.wayOut(&b, k)
	return b.String()
}

// task writes what the model is to do now: the skill's prose, or the step.
func (t *turn) task(b *strings.Builder, k *skill.Skill) {
	set := t.agent.Skills
	reading := t.filled(set.Reading(t.state))
	step := set.Step(t.state)
	switch {
	case step == nil:
		b.WriteString("\n\n" + reading)
		if len(k.Criteria) > 0 {
			b.WriteString("\n\nIt is done when all of this holds; call " + completeSkill + " then:")
			for _, c := range k.Criteria {
				b.WriteString("\n- " + c)
			}
		}
	case step.Kind == skill.Collect:
		f := set.Field(step.Field)
		b.WriteString("\n\nThe user was asked for " + f.Name)
		if f.Description != "" {
			b.WriteString(" (" + strings.TrimSpace(f.Description) + ")")
		}
		b.WriteString(". When their message gives it, call " + setFields + ". When it does not, answer what they said and ask again.")
	default:
		b.WriteString("\n\nA fixed procedure is under way. Do this step alone, not what comes after it:\n\n" + reading)
	}
}

// wayOut says how the model leaves the skill.
func (t *turn) wayOut(b *strings.Builder, k *skill.Skill) {
	var ways []string
	if t.state.Top().Block == "" {
		ways = append(ways, "Call "+completeSkill+" once the user has got what they wanted of this skill.")
	}
	if !k.OfEngine() {
		ways = append(ways, "Call "+cancelSkill+" when the user does not want to go on with this.")
	}
	ways = append(ways, "Where the text names @skill.x or @block.x, call "+activate+" with x; where it names @tool.x, call x.")
	b.WriteString("\n\n" + strings.Join(ways, " "))
	if targets := t.agent.Skills.Targets(t.state); len(targets) > 0 {
		b.WriteString(" When the user turns to something else, call " + activate + " with one of:" + catalogue(targets))
	}
}

// list writes the values that are set.
func (t *turn) list(b *strings.Builder, title string, fields []*skill.Field) {
	first := true
	for _, f := range fields {
		v := t.agent.Skills.Value(t.state, f.Full())
		if v == nil {
			continue
		}
		if first {
			b.WriteString("\n\n" + title)
			first = false
		}
		b.WriteString("\n- " + f.Name + ": " + shown(f, v))
	}
}

// shown is a memory value as the model sees it.
func shown(f *skill.Field, v any) string {
	if f.Personal {
		return "[set]"
	}
	text := skill.Shown(v)
	if r := []rune(text); len(r) > maxShown {
		return string(r[:maxShown]) + "... [truncated]"
	}
	return text
}

var memoryToken = regexp.MustCompile("`?@memory\\.([A-Za-z0-9_-]+\\.[A-Za-z0-9_-]+)`?")

// filled puts memory values in the place of @memory tokens; a token whose value is
// not set stays.
func (t *turn) filled(text string) string {
	return memoryToken.ReplaceAllStringFunc(text, func(token string) string {
		full := memoryToken.FindStringSubmatch(token)[1]
		f := t.agent.Skills.Field(full)
		if f == nil {
			return token
		}
		v := t.agent.Skills.Value(t.state, full)
		if v == nil {
			return token
		}
		return shown(f, v)
	})
}
