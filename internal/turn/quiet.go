package turn

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/conversation"
	"github.com/belay-run/belay/internal/loop"
)

// quiet is a call of the model beside the main loop: its hooks are asked, but what
// comes of it is used by the engine alone, and it can be done without.
type quiet struct {
	key     string
	purpose string
	without string // what is done when nothing comes of it, for the trace
	system  string
	ask     string
	tools   []chat.Tool
}

// ask makes a quiet call. ok is false when the call was not made, or discarded:
// then it is done without.
func (t *turn) ask(q quiet) (text string, calls []loop.Call, ok bool, err error) {
	messages := []json.RawMessage{conversation.SystemMessage(q.system)}
	messages = append(messages, conversation.View(t.rec.Events(), t.agent.history())...)
	messages = append(messages, conversation.UserMessage(q.ask))
	without := func(why string) (string, []loop.Call, bool, error) {
		t.trace(loop.Line{Kind: "note", Key: q.key, Why: q.without + ": " + why})
		return "", nil, false, nil
	}
	if t.agent.Fit != nil {
		var cut int
		last := len(messages) - 1
		if messages, cut = t.agent.Fit(messages, q.tools, func(i int) bool { return i == 0 || i == last }); cut > 0 {
			t.note(fmt.Sprintf("%d messages were cut to meet the token budget", cut))
		}
	}
	req, failed, err := t.hooks.Request(q.key+"/"+hook.ModelRequest, t.identity, loop.Prompt{Messages: messages, Tools: q.tools}, 0)
	if err != nil {
		return "", nil, false, err
	}
	if failed != nil {
		return without("hook " + failed.Hook.Name + " failed at the model request")
	}
	got, err := t.hooks.Complete(q.key+"/model", loop.ModelCall{Request: req, Purpose: q.purpose}, 0, 0)
	if err != nil {
		return "", nil, false, err
	}
	if got.Failed != "" {
		return without("the model failed")
	}
	r, said, calls, err := t.hooks.Response(q.key+"/"+hook.ModelResponse, t.identity, got.Response.Text, loop.Called(got.Response.ToolCalls), got.Response.Latency.Milliseconds())
	if err != nil {
		return "", nil, false, err
	}
	if r.Kind == hook.Retry {
		return without("hook " + r.Hook.Name + " discarded the completion")
	}
	if said != nil {
		text = *said
	}
	return text, calls, true, nil
}

// rephrase has the model reword a fixed text. "" means: say it as written.
func (t *turn) rephrase(key, name, text string) (string, error) {
	q := quiet{key: key + "/rephrase", purpose: "rephrase", without: name + " is said as written", system: t.rephrasePrompt(),
		ask: "Reword this message and answer with the new wording alone:\n" + text}
	reworded, _, ok, err := t.ask(q)
	if err != nil || !ok {
		return "", err
	}
	if strings.TrimSpace(reworded) == "" {
		t.trace(loop.Line{Kind: "note", Key: q.key, Why: q.without + ": the completion was empty"})
		return "", nil
	}
	return reworded, nil
}

func (t *turn) rephrasePrompt() string {
	return strings.TrimSpace(t.agent.Profile.Persona) + "\n\nReword the message you are given in your own voice. Keep its meaning, every name, number and date in it, " +
		"and whether it is a question. Add nothing."
}

// fill has the model set the fields of a skill that was just activated from what
// the user has said already.
func (t *turn) fill(key string) error {
	fields := t.agent.Skills.Settable(t.state)
	q := quiet{key: key + "/fill", purpose: "fill", without: "no field is filled in",
		system: "The user is being helped with: " + t.agent.Skills.Skill(t.state.Active()).Description +
			"\n\nCall " + setFields + " with the values that the user has already given in this conversation. Set nothing that they have not said, and guess nothing. " +
			"When they have given none, answer with the word none.",
		ask: "Which of the fields did the user's messages so far give?", tools: []chat.Tool{t.setFieldsTool(fields)}}
	_, calls, ok, err := t.ask(q)
	if err != nil || !ok {
		return err
	}
	for i, c := range calls {
		if c.Name != setFields || c.Broken {
			t.trace(loop.Line{Kind: "note", Key: q.key, Why: "a call that is not " + setFields + " with an object is left out"})
			continue
		}
		out, err := t.applyFields(fmt.Sprintf("%s/%d", q.key, i), c.Arguments, fields, "fill")
		if err != nil {
			return err
		}
		t.trace(loop.Line{Kind: "note", Key: q.key, Why: fmt.Sprintf("%d fields were filled in, %d were not accepted", len(out.set), len(out.lines)-len(out.set))})
	}
	return nil
}
