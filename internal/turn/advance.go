package turn

import (
	"fmt"

	"github.com/belay-run/belay/internal/conversation"
	"github.com/belay-run/belay/internal/loop"
	"github.com/belay-run/belay/internal/skill"
	"github.com/belay-run/belay/internal/wording"
)

// maxMoves bounds what the engine does in one go without the model, maxVisits how
// much of that at one step of a block, so that an agent whose blocks run in a circle
// does not hold the turn.
const (
	maxMoves  = 500
	maxVisits = 10
)

// advance does what is determined without the model. wait says that the user was
// asked something, so that the turn ends. settling: see [skill.Moment].
func (t *turn) advance(settling bool) (wait bool, err error) {
	if t.state == nil {
		return false, nil
	}
	visits := map[string]int{}
	for moves := 1; ; moves++ {
		active := t.state.Active()
		act := t.agent.Skills.Next(t.state, skill.Moment{Turn: t.id, Settling: settling, Done: t.done})
		if act.Do == skill.AskModel || act.Do == skill.RunTool && t.stepWaits(act) {
			return false, nil
		}
		if f := t.state.Top(); f != nil && f.Block != "" && act.Key(active) == "" {
			at := f.Skill + "/" + f.Block + "/" + f.Step
			if visits[at]++; visits[at] > maxVisits {
				return false, t.runaway(at)
			}
		}
		if moves > maxMoves {
			return false, t.runaway(active)
		}
		if act.Why != "" {
			t.note(act.Why)
		}
		t.moves++
		if wait, err = t.act(act, active); err != nil || wait {
			return wait, err
		}
	}
}

// act does one thing that was determined.
func (t *turn) act(act skill.Act, active string) (wait bool, err error) {
	key := fmt.Sprintf("engine/%d", t.moves)
	switch act.Do {
	case skill.Say:
		of := ""
		if once := act.Key(active); once != "" {
			t.done[once], of = true, active
		}
		if err := t.utterOf(key, of, act.Response, nil, mayRephrase); err != nil {
			return false, err
		}
	case skill.RunTool:
		return t.runStep(key, act)
	case skill.Fill:
		t.done[act.Key(active)] = true
		return false, t.fill(key)
	}
	// Events of a text stand after it: one that did not go out is said once more.
	t.addAll(act.Events)
	for _, w := range act.Writes {
		if why := t.assign(w.Field, w.Value, "set_memory"); why != "" {
			t.note("a step could not write " + w.Field + ": " + why)
		}
	}
	return act.Wait, nil
}

func (t *turn) addAll(events []conversation.Event) {
	for _, e := range events {
		t.add(e)
	}
}

// runaway ends what runs in a circle.
func (t *turn) runaway(at string) error {
	t.agent.Logger.Error("a skill runs in a circle without the model or the user and was ended", "at", at, "turn", t.id)
	t.note(at + " runs in a circle without the model or the user; what was under way was ended")
	for t.state.Top() != nil {
		t.add(conversation.Event{Kind: conversation.SkillCancelled, Skill: t.state.Active(), Note: "it ran in a circle"})
	}
	return t.utter("engine/runaway", responseInternal, nil, plain)
}

// stepWaits says whether the tool of a step waits for the user's confirmation, or
// for that of another call.
func (t *turn) stepWaits(act skill.Act) bool {
	pending := t.rec.Pending()
	if pending == nil {
		return false
	}
	tool := t.tool(act.Tool)
	return pending.Step == act.Step && pending.Skill == t.state.Active() || tool != nil && tool.Confirm
}

// runStep runs the tool of a block's step. No tool hooks are asked: the model did
// not call it. Its gates stand all the same.
func (t *turn) runStep(key string, act skill.Act) (wait bool, err error) {
	run := conversation.ToolRun{Name: act.Tool, Arguments: act.Arguments, Source: conversation.SourceStep, Step: act.Step, Uses: act.Uses, Skill: t.state.Active()}
	tool := t.tool(act.Tool)
	refuse := func(why, said string) (bool, error) {
		t.trace(loop.Line{Kind: "tool", Key: key, Tool: act.Tool, Outcome: "not_run", Why: why})
		run.Result, run.IsError = said, true
		t.add(conversation.Event{Kind: conversation.ToolExecuted, Tool: &run})
		return false, t.afterRun(key, tool, false, true, run.Result)
	}
	switch {
	case tool == nil:
		return refuse("there is no such tool", fmt.Sprintf("Error: there is no tool named %q. Nothing was done.", act.Tool))
	case !t.agent.Skills.Holds(t.state, tool.requires):
		return refuse("its requires does not hold", notNow)
	case tool.Confirm && !t.canAsk(tool, run.Arguments):
		return refuse("no variant of "+question(tool)+" fits, so the user cannot be asked", cannotAsk)
	case tool.Confirm:
		return t.askForStep(key, tool, run)
	}
	out, err := t.engineRun(key, tool, &run)
	if err != nil {
		return false, err
	}
	return false, t.afterRun(key, tool, out.Ran, out.IsError, out.Value)
}

// askForStep asks the user before a step's tool runs. The call waits once they were
// asked: a question that did not go out is asked once more.
func (t *turn) askForStep(key string, tool *Tool, run conversation.ToolRun) (wait bool, err error) {
	t.trace(loop.Line{Kind: "tool", Key: key, Tool: tool.Name, Outcome: "not_run", Why: "it waits for the user's confirmation"})
	if err := t.utter(key, question(tool), wording.ConfirmVars(tool.Name, run.Arguments), mayRephrase); err != nil {
		return false, err
	}
	t.add(conversation.Event{Kind: conversation.ConfirmAsked, Tool: &run})
	return true, nil
}

// engineRun runs a tool that no batch of the model called, and records it.
func (t *turn) engineRun(key string, tool *Tool, run *conversation.ToolRun) (loop.Outcome, error) {
	begun := *run
	t.add(conversation.Event{Kind: conversation.ToolBatch, Batch: []conversation.ToolRun{begun}})
	if err := t.flush(); err != nil { // it must not be run twice
		return loop.Outcome{}, err
	}
	out, answer, err := t.runBody(key, tool, begun)
	if err != nil {
		return out, err
	}
	run.Result, run.IsError = out.Value, out.IsError
	if run.Source == conversation.SourceStep || run.Source == conversation.SourceReplay {
		run.Uses, run.Wrote = append(run.Uses[:len(run.Uses):len(run.Uses)], answer.Reads...), written(answer.Writes)
	} else {
		run.Uses = nil
	}
	t.add(conversation.Event{Kind: conversation.ToolExecuted, Tool: run})
	return out, nil
}

func written(writes []Write) []string {
	var out []string
	for _, w := range writes {
		out = append(out, w.Name)
	}
	return out
}

// afterRun says what follows from a tool's success or failure.
func (t *turn) afterRun(key string, tool *Tool, ran, failed bool, value string) error {
	switch {
	case tool == nil:
	case ran && !failed && tool.OnSuccess != "":
		return t.utter(key, tool.OnSuccess, resultVars(value), mayRephrase)
	case failed && tool.OnFailure != "":
		return t.utter(key, tool.OnFailure, resultVars(value), mayRephrase)
	}
	return nil
}
