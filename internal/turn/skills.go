package turn

import (
	"encoding/json"
	"strings"

	"github.com/belay-run/belay/internal/conversation"
	"github.com/belay-run/belay/internal/loop"
	"github.com/belay-run/belay/internal/rawjson"
	"github.com/belay-run/belay/internal/skill"
)

// steer answers the calls that move through skills. known is false for a call of
// another name.
func (t *turn) steer(c loop.Call) (out loop.Outcome, known bool, err error) {
	if !t.skilled() {
		return out, false, nil
	}
	var events []conversation.Event
	var why string
	switch c.Name {
	case activate:
		events, why = t.activation(c)
	case completeSkill:
		events, why = t.completion()
	case cancelSkill:
		events, why = t.cancellation()
	case cannotHelp:
		events = t.helpless(c)
		t.declined = true
	case setFields:
		out, err = t.setFieldsCall(c)
		return out, true, err
	default:
		return out, false, nil
	}
	out.Arguments = c.Arguments
	if why != "" {
		t.notRun(c, why)
		out.Value, out.IsError = "Error: "+why, true
		return out, true, nil
	}
	t.addAll(events)
	t.trace(loop.Line{Kind: "tool", Key: c.Key, Tool: c.Name, CallID: c.ID, Outcome: "ok", Why: "active: " + orNone(t.state.Active())})
	out.Value = c.Name + ": done"
	return out, true, nil
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

func (t *turn) activation(c loop.Call) ([]conversation.Event, string) {
	var args struct {
		Target string `json:"target_id"`
	}
	if err := json.Unmarshal(c.Arguments, &args); err != nil || args.Target == "" {
		return nil, `"target_id" must be the id of a skill or block. Nothing was done.`
	}
	target := args.Target
	for _, prefix := range []string{"@skill.", "@block."} {
		target = strings.TrimPrefix(target, prefix)
	}
	return t.agent.Skills.Activate(t.state, target)
}

func (t *turn) completion() ([]conversation.Event, string) {
	switch f := t.state.Top(); {
	case f == nil:
		return nil, "No skill is active."
	case f.Block != "":
		return nil, "An ordered block is under way; the skill ends when the block has. Go on with its step, or call " + cancelSkill + " when the user wants to stop."
	}
	return t.agent.Skills.Complete(t.state).Events, ""
}

func (t *turn) cancellation() ([]conversation.Event, string) {
	if t.state.Active() == "" {
		return nil, "No skill is active."
	}
	return t.agent.Skills.Cancel(t.state).Events, ""
}

// Labels of a request that no skill can help with.
const (
	inDomain    = "in_domain_out_of_scope"
	outOfDomain = "out_of_domain"
)

// helpless classifies a request that no skill can help with, and starts the skill
// that says so.
func (t *turn) helpless(c loop.Call) []conversation.Event {
	var args struct {
		InDomain *bool `json:"in_domain"`
	}
	label := outOfDomain
	if json.Unmarshal(c.Arguments, &args) == nil && args.InDomain != nil && *args.InDomain {
		label = inDomain
	}
	var events []conversation.Event
	if k := t.agent.Skills.Skill(t.state.Active()); k != nil {
		kind := conversation.SkillInterrupted
		if k.OfEngine() {
			kind = conversation.SkillCancelled
		}
		events = append(events, conversation.Event{Kind: kind, Skill: k.ID})
	}
	events = append(events, conversation.Event{Kind: conversation.Unsupported, Note: label})
	if k := t.agent.Skills.Skill(skill.UnsupportedRequest); k != nil {
		events = append(events, conversation.Event{Kind: conversation.SkillActivated, Skill: k.ID})
		if f := t.agent.Skills.Field(k.ID + ".request_type"); f != nil {
			if v, err := f.Accept(label); err == nil {
				events = append(events, conversation.Event{Kind: conversation.MemorySet, Memory: &conversation.Memory{Name: f.Full(), Value: rawjson.Must(v), By: cannotHelp}})
			}
		}
	}
	return events
}
