package convtest

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/belay-run/belay/internal/expect"
	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/yamlfile"
)

// Write writes a test that [Record] made as a file. comment stands on top.
func Write(c *Conversation, comment string) ([]byte, error) {
	var w writer
	for line := range strings.Lines(comment) {
		w.line(0, strings.TrimRight("# "+line, " \n"))
	}
	w.line(0, "conversations:")
	w.line(1, "- name: "+scalar(c.Name))
	if c.Sender != "" {
		w.line(2, "sender: "+scalar(c.Sender))
	}
	w.line(2, "turns:")
	for _, t := range c.Turns {
		w.turn(t)
	}
	data := []byte(w.b.String())
	if len(data) > expect.MaxFile {
		return data, fmt.Errorf("the conversation makes a test of more than %d MiB, which nobody could read; record a shorter one", expect.MaxFile>>20)
	}
	if _, findings := parse("", data); finding.HasErrors(findings) {
		f := findings[0]
		return data, fmt.Errorf("the test cannot be read again: line %d: %s", f.Line, f.Message)
	}
	return data, nil
}

// writer writes YAML.
type writer struct{ b strings.Builder }

func (w *writer) line(depth int, text string) {
	w.b.WriteString(strings.Repeat("  ", depth) + text + "\n")
}

func (w *writer) turn(t *Turn) {
	first := "- "
	put := func(text string) { // the first key stands behind the dash
		if first != "" {
			w.line(3, first+text)
			first = ""
			return
		}
		w.line(4, text)
	}
	for _, note := range t.notes {
		w.line(3, "# "+strings.ReplaceAll(note, "\n", " "))
	}
	if t.User != "" || t.Extra == nil {
		put("user: " + scalar(t.User))
	}
	if t.Extra != nil {
		put("extra: " + flow(t.Extra))
	}
	if len(t.Recording) == 0 {
		put("recording: []")
	} else {
		put("recording:")
	}
	for i := range t.Recording {
		w.completion(&t.Recording[i])
	}
	w.expect(&t.Expect)
}

// item writes a list's item: its lines, the first behind the dash.
func (w *writer) item(depth int, lines []string) {
	for i, line := range lines {
		if i == 0 {
			w.line(depth, "- "+line)
		} else {
			w.line(depth+1, line)
		}
	}
}

func (w *writer) completion(c *Completion) {
	var lines []string
	if c.Purpose != Main {
		lines = append(lines, "purpose: "+c.Purpose)
	}
	if c.Text != nil {
		lines = append(lines, "text: "+scalar(*c.Text))
	}
	if c.Empty {
		lines = append(lines, "empty: true")
	}
	if c.Fail != "" {
		lines = append(lines, "fail: "+scalar(c.Fail))
	}
	if len(c.Calls) > 0 {
		lines = append(lines, "tool_calls:")
	}
	for _, call := range c.Calls {
		lines = append(lines, "  - name: "+scalar(call.Name))
		if call.Arguments != nil && string(call.Arguments) != "{}" {
			lines = append(lines, "    arguments: "+flow(call.Arguments))
		}
		if call.ID != "" {
			lines = append(lines, "    id: "+scalar(call.ID))
		}
		if call.Type != "" && call.Type != "function" {
			lines = append(lines, "    type: "+scalar(call.Type))
		}
	}
	w.item(5, lines)
}

func (w *writer) expect(e *Expect) {
	w.line(4, "expect:")
	if m := e.Message; m != nil {
		w.line(5, "message: {discarded: "+m.Discarded+"}")
	}
	if e.Texts != nil {
		w.list("texts", len(e.Texts.Items))
		for _, m := range e.Texts.Items {
			w.item(6, textLines(&m))
		}
	}
	if e.Tools != nil {
		w.list("tools", len(e.Tools.Items))
		for _, m := range e.Tools.Items {
			w.item(6, toolLines(&m))
		}
	}
	if m := e.Confirmation; m != nil {
		var parts []string
		if m.Asked != "" {
			parts = append(parts, "asked: "+quote(m.Asked))
		}
		if m.Resolved != nil {
			parts = append(parts, fmt.Sprintf("resolved: %v", *m.Resolved))
		}
		w.line(5, "confirmation: {"+strings.Join(parts, ", ")+"}")
	}
	if len(e.Memory) > 0 {
		w.line(5, "memory:")
	}
	for _, v := range e.Memory {
		w.line(6, scalar(v.Name)+": "+flow(v.Value))
	}
	for _, p := range []struct {
		key  string
		name *Name
	}{{"skill", e.Skill}, {"block", e.Block}, {"step", e.Step}, {"status", e.Status}} {
		if p.name != nil && p.name.Text == "" {
			w.line(5, p.key+": null")
		} else if p.name != nil {
			w.line(5, p.key+": "+scalar(p.name.Text))
		}
	}
	if len(e.Hooks) > 0 {
		w.line(5, "hooks:")
	}
	for _, h := range e.Hooks {
		w.line(6, fmt.Sprintf("- {hook: %s, point: %s, said: %s}", quote(h.Hook), h.Point, quote(h.Said[0])))
	}
}

func (w *writer) list(key string, n int) {
	if n == 0 {
		w.line(5, key+": []")
		return
	}
	w.line(5, key+":")
}

func textLines(m *TextMatch) []string {
	if m.Response == "" && m.Source == "" {
		return []string{scalar(*m.Text)}
	}
	lines := []string{"text: " + scalar(*m.Text)}
	if m.Response != "" {
		lines = append(lines, "response: "+scalar(m.Response))
	}
	if m.Source != "" {
		lines = append(lines, "source: "+m.Source)
	}
	return lines
}

func toolLines(m *ToolMatch) []string {
	lines := []string{"name: " + scalar(m.Name)}
	if m.Arguments != nil && string(m.Arguments) != "{}" {
		lines = append(lines, "arguments: "+flow(m.Arguments))
	}
	if m.IsError != nil {
		lines = append(lines, fmt.Sprintf("is_error: %v", *m.IsError))
	}
	if m.By != "" {
		lines = append(lines, "by: "+m.By)
	}
	return lines
}

var (
	plain    = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_./,!?' ()-]*[A-Za-z0-9_./!?)]$|^[A-Za-z]$`)
	reserved = []string{"true", "false", "null", "yes", "no", "on", "off", "y", "n"}
)

// scalar writes a text on a line of its own key: plain where YAML takes it for a
// text.
func scalar(text string) string {
	if plain.MatchString(text) && !slices.Contains(reserved, strings.ToLower(text)) {
		return text
	}
	return quote(text)
}

// flow writes JSON as YAML has it in a line, or as a text when YAML would read
// something else.
func flow(raw json.RawMessage) string {
	text, err := tidy(raw)
	if err != nil {
		return quote(string(raw))
	}
	var findings []finding.Finding
	r := yamlfile.NewReader("", &findings)
	if n := r.Parse([]byte("x: " + text + "\n")); n != nil && len(findings) == 0 && n.Kind == yamlfile.Mapping && len(n.Fields) == 1 {
		if again, ok := encode(n.Fields[0].Value); ok && same(again, json.RawMessage(text)) {
			return text
		}
	}
	return quote(text)
}

// same says whether two JSON texts mean the same.
func same(a, b json.RawMessage) bool {
	x, y := decode(a), decode(b)
	return within(x, y) && within(y, x)
}
