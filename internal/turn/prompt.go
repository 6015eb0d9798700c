package turn

import (
	"encoding/json"
	"strings"

	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/conversation"
	"github.com/belay-run/belay/internal/loop"
)

const resolveConfirmation = conversation.ResolveConfirmation

// Reserved are the names that no tool of an agent may have.
var Reserved = []string{loop.Listen, loop.Hangup, loop.SearchKnowledge, resolveConfirmation, "activate", "complete_skill", "cancel_skill", "cannot_help", "set_fields"}

var frameworkTools = map[string]chat.Tool{
	loop.Listen: {Name: loop.Listen, Description: "Say nothing and wait for the user's next message.",
		Parameters: json.RawMessage(`{"type":"object","properties":{}}`)},
	loop.Hangup: {Name: loop.Hangup, Description: "End the conversation. Only after the user has said goodbye or asked for it.",
		Parameters: json.RawMessage(`{"type":"object","properties":{}}`)},
	loop.SearchKnowledge: {Name: loop.SearchKnowledge, Description: "Search the reference documents. Use it before you answer a question of fact.",
		Parameters: json.RawMessage(`{"type":"object","properties":{"query":{"type":"string","description":"What to look for."}},"required":["query"]}`)},
	resolveConfirmation: {Name: resolveConfirmation, Description: "Say whether the user agreed to the call that waits for confirmation.",
		Parameters: json.RawMessage(`{"type":"object","properties":{"confirmed":{"type":"boolean","description":"true when the user agreed, false when not."}},"required":["confirmed"]}`)},
}

// offered returns the tools that the next request offers.
func (t *turn) offered() []chat.Tool {
	var out []chat.Tool
	if t.agent.Tools != nil {
		for _, tool := range t.agent.Tools.List() {
			out = append(out, tool.Tool)
		}
	}
	if t.agent.Profile.Searches {
		out = append(out, frameworkTools[loop.SearchKnowledge])
	}
	if t.rec.Pending() != nil {
		out = append(out, frameworkTools[resolveConfirmation])
	}
	return append(out, frameworkTools[loop.Listen], frameworkTools[loop.Hangup])
}

// Prompt builds the request of one iteration from the record.
func (t *turn) Prompt(a loop.Ask) (loop.Prompt, error) {
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

func (t *turn) rephrasePrompt() string {
	return strings.TrimSpace(t.agent.Profile.Persona) + "\n\nReword the message you are given in your own voice. Keep its meaning, every name, number and date in it, " +
		"and whether it is a question. Add nothing."
}
