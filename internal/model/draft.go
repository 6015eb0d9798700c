package model

import (
	"encoding/json"
	"strings"

	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/rawjson"
)

// draft is a completion that is being put together from the pieces of a stream,
// or from one whole message. Servers differ in ways that it makes good:
//
//   - content is a text, null, or a list of parts with texts;
//   - a refusal stands in a field of its own: it is the text then;
//   - a tool call comes in many pieces or in one; its index may be missing, or be
//     0 for each of several calls; its id or name may be missing or repeated;
//   - arguments are JSON text, an object, or missing.
type draft struct {
	text   strings.Builder
	calls  []*call
	at     map[int]*call // the newest call of each index
	finish string
	usage  chat.Usage
	any    bool // a choice was seen
}

type call struct {
	id, kind, name string
	args           strings.Builder
}

// answer is a whole completion or one piece of a stream.
type answer struct {
	Choices []choice        `json:"choices"`
	Usage   json.RawMessage `json:"usage"`
	Error   json.RawMessage `json:"error"`
}

type choice struct {
	Index   int     `json:"index"`
	Message *piece  `json:"message"`
	Delta   *piece  `json:"delta"`
	Finish  *string `json:"finish_reason"`
}

type piece struct {
	Content   json.RawMessage `json:"content"`
	Refusal   json.RawMessage `json:"refusal"`
	ToolCalls []callPiece     `json:"tool_calls"`
}

type callPiece struct {
	Index    *int   `json:"index"`
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	} `json:"function"`
}

// add takes an answer in and gives the text that is new in it.
func (d *draft) add(a answer) string {
	d.count(a.Usage)
	var text string
	for _, c := range a.Choices {
		if c.Index != 0 {
			continue // one choice is asked for
		}
		d.any = true
		for _, p := range []*piece{c.Message, c.Delta} {
			if p == nil {
				continue
			}
			text += textOf(p.Content) + textOf(p.Refusal)
			for _, part := range p.ToolCalls {
				d.addCall(part)
			}
		}
		if c.Finish != nil && *c.Finish != "" {
			d.finish = *c.Finish
		}
	}
	d.text.WriteString(text)
	return text
}

// count reads the usage, which says how much was spent and decides nothing: in a
// form that cannot be read it counts as not given.
func (d *draft) count(raw json.RawMessage) {
	var u struct {
		Prompt     float64 `json:"prompt_tokens"`
		Completion float64 `json:"completion_tokens"`
		Total      float64 `json:"total_tokens"`
		In         struct {
			Cached float64 `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
		Out struct {
			Reasoning float64 `json:"reasoning_tokens"`
		} `json:"completion_tokens_details"`
	}
	if len(raw) > 0 && json.Unmarshal(raw, &u) == nil && u.Prompt+u.Completion > 0 {
		// Some servers leave reasoning out of the completion, but not of the total.
		output := max(tokens(u.Completion), tokens(u.Total-u.Prompt))
		d.usage = chat.Usage{Input: tokens(u.Prompt), Output: output, Cached: tokens(u.In.Cached), Reasoning: tokens(u.Out.Reasoning)}
	}
}

// tokens is a count of them; 0 for what can be none.
func tokens(n float64) int {
	if !(n > 0) || n > 1e12 {
		return 0
	}
	return int(n)
}

// textOf reads a content: a text, or a list of texts and parts with a text.
func textOf(raw json.RawMessage) string {
	if len(raw) == 0 {
		return ""
	}
	switch raw[0] {
	case '"':
		var s string
		if json.Unmarshal(raw, &s) == nil {
			return s
		}
	case '[':
		var parts []json.RawMessage
		if json.Unmarshal(raw, &parts) != nil {
			return ""
		}
		var out string
		for _, p := range parts {
			var part struct {
				Text    string `json:"text"`
				Refusal string `json:"refusal"`
			}
			if len(p) > 0 && p[0] == '"' {
				out += textOf(p)
			} else if json.Unmarshal(p, &part) == nil { // a part that holds no text adds none
				out += part.Text + part.Refusal
			}
		}
		return out
	}
	return ""
}

func (d *draft) addCall(p callPiece) {
	c := d.callFor(p)
	if c.id == "" {
		c.id = p.ID
	}
	if c.kind == "" {
		c.kind = p.Type
	}
	if p.Function.Name != c.name { // servers that repeat the name send it whole
		c.name += p.Function.Name
	}
	c.args.WriteString(argumentText(p.Function.Arguments))
}

// callFor finds the call that a piece goes on with, or begins one.
func (d *draft) callFor(p callPiece) *call {
	var found *call
	switch {
	case p.Index != nil:
		found = d.at[*p.Index]
	case p.ID != "":
		for _, c := range d.calls {
			if c.id == p.ID {
				found = c
			}
		}
	case len(d.calls) > 0 && p.Function.Name == "":
		found = d.calls[len(d.calls)-1]
	}
	// Another id under the same index is another call.
	if found == nil || p.ID != "" && found.id != "" && p.ID != found.id {
		found = &call{}
		d.calls = append(d.calls, found)
	}
	if p.Index != nil {
		if d.at == nil {
			d.at = map[int]*call{}
		}
		d.at[*p.Index] = found
	}
	return found
}

func argumentText(raw json.RawMessage) string {
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return ""
	case raw[0] == '"':
		var s string
		if json.Unmarshal(raw, &s) == nil {
			return s
		}
	}
	return string(raw)
}

// response ends the draft. Calls without an id get one of newID's.
func (d *draft) response(newID func() string) chat.Response {
	r := chat.Response{Usage: d.usage, Finish: d.finish}
	if text := d.text.String(); text != "" {
		r.Text = &text
	}
	taken := map[string]bool{}
	for _, c := range d.calls {
		if c.id == "" && c.name == "" && c.args.Len() == 0 {
			continue // an empty piece
		}
		for c.id == "" || taken[c.id] {
			c.id = newID()
		}
		taken[c.id] = true
		if c.kind == "" {
			c.kind = "function"
		}
		r.ToolCalls = append(r.ToolCalls, chat.ToolCall{ID: c.id, Type: c.kind, Name: c.name, Arguments: arguments(c.args.String())})
	}
	return r
}

// arguments keeps the text as it is when it is JSON. A text that is not, such as
// one cut off at the model's limit, becomes a JSON string of itself: then it is
// still data, and no object.
func arguments(text string) json.RawMessage {
	switch {
	case strings.TrimSpace(text) == "":
		return json.RawMessage(`{}`) // how many servers write a call without arguments
	case json.Valid([]byte(text)):
		return json.RawMessage(text)
	}
	return rawjson.Must(text)
}
