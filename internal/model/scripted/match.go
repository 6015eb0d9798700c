package scripted

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/belay-run/belay/internal/chat"
)

// setFields is the tool that a request to fill in a skill's fields offers alone.
const setFields = "set_fields"

// view is what the conditions look at.
type view struct {
	quiet   bool // no tool is offered
	fill    bool // set_fields alone is offered: what did the user say already?
	offers  []string
	user    string
	hasUser bool
	// tool and result are of the last tool message after the last user message.
	tool, result string
	hasResult    bool
	system       []string
	last         string
}

type message struct {
	Role       string          `json:"role"`
	Content    json.RawMessage `json:"content"`
	Name       string          `json:"name"`
	ToolCallID string          `json:"tool_call_id"`
	ToolCalls  []struct {
		ID       string `json:"id"`
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	} `json:"tool_calls"`
}

// look reads a request. Hooks may write any message; one that is no chat message
// counts as one without a role.
func look(req chat.Request) (view, error) {
	var raw []json.RawMessage
	if err := json.Unmarshal(req.Messages, &raw); err != nil || len(raw) == 0 {
		return view{}, fmt.Errorf("messages are no list, or an empty one")
	}
	v := view{quiet: len(req.Tools) == 0}
	for _, t := range req.Tools {
		v.offers = append(v.offers, t.Name)
	}
	v.fill = len(v.offers) == 1 && v.offers[0] == setFields
	if v.fill { // the last message is the request's own
		raw = raw[:len(raw)-1]
	}
	names := map[string]string{} // call id → tool
	for _, r := range raw {
		var m message
		_ = json.Unmarshal(r, &m) // what could be read counts
		text := textOf(m.Content)
		v.last = text
		switch m.Role {
		case "user":
			v.user, v.hasUser = text, true
			v.tool, v.result, v.hasResult = "", "", false
		case "system", "developer":
			v.system = append(v.system, text)
		case "assistant":
			for _, c := range m.ToolCalls {
				names[c.ID] = c.Function.Name
			}
		case "tool":
			v.tool, v.result, v.hasResult = names[m.ToolCallID], text, true
			if v.tool == "" {
				v.tool = m.Name
			}
		}
	}
	return v, nil
}

// textOf reads a content: a text, or a list of parts of which those with a text
// count.
func textOf(raw json.RawMessage) string {
	var s string
	if len(raw) == 0 || json.Unmarshal(raw, &s) == nil {
		return s
	}
	var parts []json.RawMessage
	_ = json.Unmarshal(raw, &parts) // no list has no parts
	var texts []string
	for _, p := range parts {
		var part struct {
			Text string `json:"text"`
		}
		if json.Unmarshal(p, &part) == nil && part.Text != "" {
			texts = append(texts, part.Text)
		}
	}
	return strings.Join(texts, "\n")
}

// wire is a function's full name as it is offered to models, which take no dot:
// git.push is git__push.
func wire(name string) string { return strings.Replace(name, ".", "__", 1) }

// sameTool says whether two names are of one tool, whichever of the two forms they
// are in.
func sameTool(a, b string) bool { return a == b || wire(a) == wire(b) }

// offered gives a tool's name as the request offers it, "" when it does not.
func (v view) offered(name string) string {
	if slices.Contains(v.offers, name) {
		return name
	}
	if i := slices.IndexFunc(v.offers, func(o string) bool { return sameTool(o, name) }); i >= 0 {
		return v.offers[i]
	}
	return ""
}

// groups are the texts that an answer may use: {1} and {name}.
type groups map[string]string

// holds says whether the condition holds, and gives the groups of its patterns.
func (c *condition) holds(v view) (groups, bool) {
	g := groups{}
	needsResult := c.tool != "" || c.result != nil
	switch {
	case v.quiet != (c.quiet != nil), v.fill != (c.fill != nil):
		return nil, false // a quiet request is answered by rules made for it only
	case v.fill:
		g := groups{}
		return g, g.match(c.fill, v.user) && g.matchAny(c.system, v.system)
	case needsResult && !v.hasResult, c.tool != "" && !sameTool(c.tool, v.tool):
		return nil, false
	case c.user != nil && (!v.hasUser || v.hasResult && !needsResult):
		return nil, false // a tool has answered that message
	case slices.ContainsFunc(c.offers, func(name string) bool { return v.offered(name) == "" }):
		return nil, false
	}
	ok := g.match(c.user, v.user) && g.match(c.result, v.result) && g.match(c.last, v.last) && g.match(c.quiet, v.last)
	return g, ok && g.matchAny(c.system, v.system)
}

// matchAny looks at the newest text first: a hook's note stands last.
func (g groups) matchAny(re *regexp.Regexp, texts []string) bool {
	if re == nil {
		return true
	}
	for i := len(texts) - 1; i >= 0; i-- {
		if g.match(re, texts[i]) {
			return true
		}
	}
	return false
}

// match adds the pattern's groups when the text fits. Numbers are those of the
// first pattern that has groups.
func (g groups) match(re *regexp.Regexp, text string) bool {
	if re == nil {
		return true
	}
	found := re.FindStringSubmatch(text)
	if found == nil {
		return false
	}
	_, taken := g["1"]
	for i, name := range re.SubexpNames() {
		if i > 0 && !taken {
			g[strconv.Itoa(i)] = found[i]
		}
		if name != "" {
			g[name] = found[i]
		}
	}
	return true
}

var placeholder = regexp.MustCompile(`\{\{(\w+)\}\}|\{(\w+)\}`)

// fill puts groups in the place of {1} and {name}; {{name}} stands for {name}.
func (g groups) fill(text string) string {
	return placeholder.ReplaceAllStringFunc(text, func(s string) string {
		if strings.HasPrefix(s, "{{") {
			return s[1 : len(s)-1]
		}
		return g[s[1:len(s)-1]]
	})
}

// fillAll fills the texts of a tree.
func (g groups) fillAll(v any) any {
	switch v := v.(type) {
	case string:
		return g.fill(v)
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = g.fillAll(v[i])
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for k := range v {
			out[k] = g.fillAll(v[k])
		}
		return out
	}
	return v
}
