package convtest

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/belay-run/belay/internal/conversation"
	"github.com/belay-run/belay/internal/turn"
	"github.com/belay-run/belay/internal/yamlfile"
)

// expect reads what is expected of a turn.
func (r *reader) expect(s *yamlfile.Section) Expect {
	e := Expect{Status: word(s, "status", turn.Completed, turn.Cancelled, turn.Failed)}
	if f := s.Find("message"); f != nil {
		m := r.text(f.Value, s.Full("message"), true)
		e.Message = &m
	}
	if n := s.Get("texts", yamlfile.List, "write a list of texts; [] when nothing is to be said"); n != nil {
		e.Texts = &List[TextMatch]{Line: n.Line, Items: r.texts(n, s.Full("texts"))}
	}
	if n := s.Get("not_texts", yamlfile.List, "write a list of texts"); n != nil {
		if e.NotTexts = r.texts(n, s.Full("not_texts")); len(n.Items) == 0 {
			r.On(n).Err("empty-list", s.Full("not_texts")+" is an empty list", "name a text, or write texts: [] when nothing is to be said")
		}
	}
	if n := s.Get("tools", yamlfile.List, "write a list of tools; [] when none is to run"); n != nil {
		e.Tools = &List[ToolMatch]{Line: n.Line}
		for i, item := range n.Items {
			e.Tools.Items = append(e.Tools.Items, r.tool(item, fmt.Sprintf("%s[%d]", s.Full("tools"), i+1)))
		}
	}
	e.Confirmation = r.confirmation(s)
	e.Memory = r.memory(s, "memory")
	for key, to := range map[string]**Name{"skill": &e.Skill, "block": &e.Block, "step": &e.Step} {
		*to = r.nameOrNone(s, key)
	}
	for _, h := range s.Sections("hooks") {
		e.Hooks = append(e.Hooks, r.hook(h))
	}
	s.Close()
	return e
}

// word reads one of a few words with its place.
func word(s *yamlfile.Section, key string, words ...string) *Name {
	text := s.OneOf(key, words...)
	if text == "" {
		return nil
	}
	n := s.Find(key).Value
	return &Name{n.Line, n.Column, text}
}

// nameOrNone reads a name, or null for none.
func (r *reader) nameOrNone(s *yamlfile.Section, key string) *Name {
	f := s.Take(key)
	if f == nil {
		return nil
	}
	r.file.skills = true
	switch {
	case f.Value.Kind == yamlfile.Null:
		return &Name{f.Line, f.Column, ""}
	case f.Value.Kind != yamlfile.Text:
		r.Mismatch(f.Value, s.Full(key), yamlfile.Text, "write an id, or null for none")
		return nil
	}
	return &Name{f.Value.Line, f.Value.Column, f.Value.Text}
}

func (r *reader) texts(n *yamlfile.Node, path string) []TextMatch {
	var out []TextMatch
	for i, item := range n.Items {
		out = append(out, r.text(item, fmt.Sprintf("%s[%d]", path, i+1), false))
	}
	return out
}

var sources = []string{conversation.FromModel, conversation.Verbatim, conversation.Filler, conversation.Rephrased}

// text reads what is expected of a text: the text itself, or what is to be found
// in it and said of it.
func (r *reader) text(n *yamlfile.Node, path string, message bool) TextMatch {
	m := TextMatch{Line: n.Line, Column: n.Column}
	if n.Kind == yamlfile.Text {
		m.Text = &n.Text
		return m
	}
	if n.Kind != yamlfile.Mapping {
		r.Mismatch(n, path, yamlfile.Text, "put the text in quotes, or write {contains: …}, {matches: …} or {response: …}")
		return m
	}
	s := r.Open(n, path)
	if f := s.Find("text"); f != nil {
		text := s.Text("text")
		m.Text = &text
	}
	if f := s.Find("contains"); f != nil && f.Value.Kind == yamlfile.List {
		for _, item := range s.Texts("contains") {
			m.Contains = append(m.Contains, item.Text)
		}
	} else if f != nil {
		m.Contains = append(m.Contains, s.Text("contains"))
	}
	m.Matches = r.pattern(s, "matches")
	if message {
		m.Discarded = s.OneOf("discarded", "rejected", "hook_error")
	} else {
		m.Response, m.Source = s.Text("response"), s.OneOf("source", sources...)
	}
	s.Close()
	if len(n.Fields) == 0 {
		r.On(n).Err("empty-value", path+" expects nothing", "write text:, contains:, matches:, response: or source:")
	}
	return m
}

func (r *reader) pattern(s *yamlfile.Section, key string) *regexp.Regexp {
	text := s.Text(key)
	if text == "" {
		return nil
	}
	re, err := regexp.Compile(text)
	if err != nil {
		s.Spot(key).Err("bad-pattern", s.Full(key)+": "+strings.TrimPrefix(err.Error(), "error parsing regexp: "),
			"Go's regular expressions have no lookaround and no back references; put the pattern in single quotes")
	}
	return re
}

// by says in a file what the record says of a run's source.
var by = map[string]string{
	"model": "", "step": conversation.SourceStep, "confirmation": conversation.SourceConfirmation,
	"replay": conversation.SourceReplay, "validation": conversation.SourceValidation,
}

// byWord is the word of a file for a run's source.
func byWord(source string) string {
	for word, s := range by {
		if s == source {
			return word
		}
	}
	return source
}

func (r *reader) tool(n *yamlfile.Node, path string) ToolMatch {
	m := ToolMatch{Line: n.Line, Column: n.Column}
	if n.Kind == yamlfile.Text {
		m.Name = n.Text
		return m
	}
	s := r.Open(n, path)
	if s == nil {
		if n.Kind == yamlfile.Null {
			r.On(n).Err("empty-value", path+" is empty", "name a tool")
		}
		return m
	}
	m.Name = s.Needed("name", "name the tool")
	if f := s.Find("arguments"); f != nil {
		m.Arguments = r.arguments(f.Value, s.Full("arguments"))
	}
	if f := s.Find("result"); f != nil {
		m.Result = r.json(f.Value, s.Full("result"))
	}
	if b := s.Get("is_error", yamlfile.Bool, "write true or false"); b != nil {
		m.IsError = yes(b)
	}
	m.By = s.OneOf("by", "model", "step", "confirmation", "replay", "validation")
	s.Close()
	return m
}

func yes(n *yamlfile.Node) *bool {
	is := n.Text == "true"
	return &is
}

// arguments are a mapping, or JSON as a text.
func (r *reader) arguments(n *yamlfile.Node, path string) json.RawMessage {
	switch {
	case n.Kind == yamlfile.Mapping:
		return r.json(n, path)
	case n.Kind == yamlfile.Text && json.Valid([]byte(n.Text)):
		return json.RawMessage(n.Text)
	}
	r.Mismatch(n, path, yamlfile.Mapping, "write the arguments by name")
	return nil
}

func (r *reader) confirmation(s *yamlfile.Section) *ConfirmMatch {
	f := s.Find("confirmation")
	if f == nil {
		return nil
	}
	m := &ConfirmMatch{Line: f.Line, Column: f.Column}
	if f.Value.Kind == yamlfile.Text {
		m.None = s.OneOf("confirmation", "none") != ""
		return m
	}
	sub := s.Sub("confirmation")
	if sub == nil {
		return nil
	}
	m.Asked = sub.Text("asked")
	if b := sub.Get("resolved", yamlfile.Bool, "write true when the user agreed, false when not"); b != nil {
		m.Resolved = yes(b)
	}
	sub.Close()
	if len(f.Value.Fields) == 0 {
		r.On(f.Value).Err("empty-value", s.Full("confirmation")+" expects nothing", "write asked: TOOL, resolved: true, or confirmation: none")
	}
	return m
}

// notAsked expects that a hook was not asked at all.
const notAsked = "not asked"

// saidWords are what a hook can be expected to have said: the trace's words, and in
// place of failed how it did.
var saidWords = []string{"continue", "go on", "changed", "nothing to change", "reject", "retry", "failed", "crash", "timeout", "wrong_return", "seen", notAsked}

func (r *reader) hook(s *yamlfile.Section) HookMatch {
	m := HookMatch{Line: s.Node.Line, Column: s.Node.Column, Hook: s.Needed("hook", "name the hook, such as hooks.py:mask_cards"), Point: s.Text("point")}
	f := s.Find("said")
	switch {
	case f == nil:
	case f.Value.Kind == yamlfile.List:
		for _, item := range s.Texts("said") {
			if !slices.Contains(saidWords, item.Text) {
				r.On(item).Err("unknown-value", "an item of "+s.Full("said")+" is no word of the trace", yamlfile.Meant(item.Text, saidWords))
			}
			m.Said = append(m.Said, item.Text)
		}
	default:
		if word := s.OneOf("said", saidWords...); word != "" {
			m.Said = []string{word}
		}
	}
	s.Close()
	return m
}
