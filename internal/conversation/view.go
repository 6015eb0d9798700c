package conversation

import (
	"bytes"
	"encoding/json"

	"github.com/belay-run/belay/internal/rawjson"
)

// View returns the model's view of the events as chat messages in OpenAI's form:
// the last utterances of both sides, at most limit of them (0 means all), with
// the tool calls and results between them. What was discarded is not in it, and
// a group of tool calls is never cut apart.
func View(events []Event, limit int) []json.RawMessage {
	var out []json.RawMessage
	for _, g := range last(groups(events), limit) {
		out = append(out, g.messages()...)
	}
	return out
}

// group is what must stay together: one utterance, or one batch with the text
// that came with it.
type group struct {
	role string // user, assistant
	text string
	runs []ToolRun
}

func groups(events []Event) []group {
	var out []group
	var batch string
	for i := range events {
		e := &events[i]
		switch {
		case e.Discarded != nil, e.Kind == User && e.Text == Opening:
		case e.Kind == User:
			out, batch = append(out, group{role: "user", text: userText(e)}), ""
		case e.Kind == Bot && e.BatchID != "":
			out, batch = append(out, group{role: "assistant", text: e.Text}), e.BatchID
		case e.Kind == Bot:
			out = append(out, group{role: "assistant", text: e.Text})
			batch = ""
		case e.Kind == ToolExecuted && e.Tool.CallID != "":
			if batch != e.Tool.BatchID || len(out) == 0 {
				out, batch = append(out, group{role: "assistant"}), e.Tool.BatchID
			}
			g := &out[len(out)-1]
			g.runs = append(g.runs, *e.Tool)
		}
	}
	return out
}

// userText is what the model reads of a message that is not text.
func userText(e *Event) string {
	if e.Text != "" || len(e.Extra) == 0 {
		return e.Text
	}
	return "(no text; the user's client sent: " + string(e.Extra) + ")"
}

// last keeps the last limit utterances and what lies between them. A batch
// without a text is no utterance. When something is cut the view begins with an
// utterance, since tool messages without what led to them confuse a model.
func last(all []group, limit int) []group {
	if limit <= 0 {
		return all
	}
	seen := 0
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].text == "" {
			continue
		}
		if seen++; seen == limit {
			return all[i:]
		}
	}
	return all
}

type functionCall struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

type toolCall struct {
	ID       string       `json:"id"`
	Type     string       `json:"type"`
	Function functionCall `json:"function"`
}

type message struct {
	Role       string     `json:"role"`
	Content    *string    `json:"content"`
	ToolCalls  []toolCall `json:"tool_calls,omitempty"`
	ToolCallID string     `json:"tool_call_id,omitempty"`
}

func (g *group) messages() []json.RawMessage {
	m := message{Role: g.role}
	if g.text != "" || len(g.runs) == 0 {
		m.Content = &g.text
	}
	for _, run := range g.runs {
		kind := run.CallType
		if kind == "" {
			kind = "function"
		}
		m.ToolCalls = append(m.ToolCalls, toolCall{ID: run.CallID, Type: kind, Function: functionCall{run.Name, string(run.Arguments)}})
	}
	out := []json.RawMessage{rawjson.Must(m)}
	for i := range g.runs {
		out = append(out, rawjson.Must(message{Role: "tool", Content: &g.runs[i].Result, ToolCallID: g.runs[i].CallID}))
	}
	return out
}

// SystemMessage returns a message of the role system.
func SystemMessage(text string) json.RawMessage {
	return rawjson.Must(message{Role: "system", Content: &text})
}

// UserMessage returns a message of the role user.
func UserMessage(text string) json.RawMessage {
	return rawjson.Must(message{Role: "user", Content: &text})
}

// FromUser says whether a message that View made is the user's.
func FromUser(m json.RawMessage) bool { return bytes.HasPrefix(m, fromUser) }

var fromUser = []byte(`{"role":"user"`)
