package turn

import (
	"encoding/json"
	"strings"

	"github.com/belay-run/belay/internal/conversation"
	"github.com/belay-run/belay/internal/loop"
)

// Prompt builds the request of one iteration from the record.
func (t *turn) Prompt(a loop.Ask) (loop.Prompt, error) {
	if wait, err := t.advance(false); err != nil || wait {
		return loop.Prompt{Wait: wait}, err
	}
	if t.declined && t.state.Top() == nil {
		return loop.Prompt{Wait: true}, nil // the user has been told, and nothing is left to go on with
	}
	t.declined = false
	messages := []json.RawMessage{conversation.SystemMessage(t.system(a))}
	messages = append(messages, conversation.View(t.rec.Events(), t.agent.history())...)
	kept := len(messages)
	if t.rec.FixedReply(t.id) {
		messages = append(messages, conversation.SystemMessage("A fixed reply was already sent to the user in this turn. Do not repeat it."))
	}
	if a.Feedback != "" {
		messages = append(messages, conversation.SystemMessage(a.Feedback))
	}
	p := loop.Prompt{Messages: messages, Tools: t.offered()}
	if t.agent.Fit != nil {
		asked := lastUser(messages[:kept])
		p.Messages, p.Cut = t.agent.Fit(messages, p.Tools, func(i int) bool { return i == 0 || i >= kept || asked > 0 && i >= asked })
	}
	return p, nil
}

// lastUser returns the place of the user's last message in a view, or -1.
func lastUser(view []json.RawMessage) int {
	for i := len(view) - 1; i > 0; i-- {
		if conversation.FromUser(view[i]) {
			return i
		}
	}
	return -1
}

func (t *turn) system(a loop.Ask) string {
	p := t.agent.Profile
	var b strings.Builder
	b.WriteString(strings.TrimSpace(p.Persona))
	if p.Name != "" {
		b.WriteString("\n\nYour name is " + p.Name + ".")
	}
	if len(p.Rules) > 0 {
		b.WriteString("\n\nRules:")
		for _, r := range p.Rules {
			b.WriteString("\n- " + r)
		}
	}
	if p.TextRules != "" {
		b.WriteString("\n\n" + strings.TrimSpace(p.TextRules))
	}
	if p.Language != "" && p.Language != "en" {
		b.WriteString("\n\nAnswer in the language with the code " + p.Language + " unless the user writes in another.")
	}
	if t.state != nil {
		b.WriteString(t.situation())
	}
	if pending := t.rec.Pending(); pending != nil {
		b.WriteString("\n\nA call of " + pending.Name + " waits for the user's confirmation. When the user agrees or declines, call " +
			resolveConfirmation + ". Do not call " + pending.Name + " again.")
	}
	if a.Searched {
		b.WriteString("\n\nThe reference documents were searched in this turn. ")
		if p.Instructions != "" {
			b.WriteString(strings.TrimSpace(p.Instructions))
		} else {
			b.WriteString("Answer from the passages found; say so when they do not hold the answer.")
		}
	}
	return b.String()
}
