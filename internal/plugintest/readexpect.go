package plugintest

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/belay-run/belay/internal/agentjob"
	"github.com/belay-run/belay/internal/approval"
	"github.com/belay-run/belay/internal/expect"
	"github.com/belay-run/belay/internal/job"
	"github.com/belay-run/belay/internal/yamlfile"
)

// words are what hooks of an event can come to.
var words = []string{agentjob.Allowed, agentjob.Denied, agentjob.Modified, agentjob.Escalated}

// expect reads what is expected of a case. Of an event it is a word, beside which the
// rest stands; of a job a mapping, or allow.
func (r *reader) expect(s *yamlfile.Section, c *Case) {
	f := s.Find("expect")
	if f == nil {
		return
	}
	e := &c.Expect
	e.Line, e.Column = f.Value.Line, f.Value.Column
	if f.Value.Kind == yamlfile.Mapping {
		if c.Event != nil {
			s.Spot("expect").Err("wrong-type", s.Full("expect")+" of an event is a word", "write "+strings.Join(words, ", ")+"; value, reason, hook and hooks stand beside it")
			return
		}
		r.jobExpect(s.Sub("expect"), e)
		return
	}
	e.Word = s.OneOf("expect", words...)
	if c.Job != nil && e.Word != "" && e.Word != agentjob.Allowed {
		s.Spot("expect").Err("unknown-value", s.Full("expect")+" of a job is allow, or says what should come of it", "write for example expect: {state: failed, code: HookDenied}")
	}
	if c.Event == nil {
		return
	}
	if v := s.Take("value"); v != nil {
		e.Value, e.ValueLine = r.json(v.Value, s.Full("value")), v.Line
	}
	e.Reason = r.text(s, "reason")
	if text := s.Text("hook"); text != "" {
		n := s.Find("hook").Value
		e.Hook = &Name{n.Line, n.Column, text}
	}
	e.Hooks = r.hooks(s)
}

func (r *reader) jobExpect(s *yamlfile.Section, e *Expect) {
	e.State = s.OneOf("state", string(job.Completed), string(job.Failed), waiting)
	e.Code = s.Text("code")
	e.Reason, e.Output = r.text(s, "reason"), r.text(s, "output")
	if n := s.Get("tools", yamlfile.List, "write a list of calls; [] when none is to be made"); n != nil {
		e.Tools = &List[ToolMatch]{Line: n.Line}
		for i, item := range n.Items {
			e.Tools.Items = append(e.Tools.Items, r.tool(item, fmt.Sprintf("%s[%d]", s.Full("tools"), i+1)))
		}
	}
	if n := s.Get("model_reads", yamlfile.List, "write a list of the results that the model reads"); n != nil {
		e.Reads = &List[ReadMatch]{Line: n.Line}
		for i, item := range n.Items {
			e.Reads.Items = append(e.Reads.Items, r.read(item, fmt.Sprintf("%s[%d]", s.Full("model_reads"), i+1)))
		}
	}
	if n := s.Get("approvals", yamlfile.List, "write a list of what people are asked; [] for nothing"); n != nil {
		e.Approvals = &List[AskMatch]{Line: n.Line}
		for i, item := range n.Items {
			e.Approvals.Items = append(e.Approvals.Items, r.ask(item, fmt.Sprintf("%s[%d]", s.Full("approvals"), i+1)))
		}
	}
	e.Hooks = r.hooks(s)
	if e.Code != "" && e.State == "" {
		e.State = string(job.Failed)
	}
	if e.Code != "" && e.State != string(job.Failed) {
		s.Spot("code").Err("bad-value", s.Full("code")+" is of a job that failed", "write state: failed, or delete code")
	}
	if e.State == "" {
		e.State = string(job.Completed)
	}
	s.Close()
}

// text reads what is expected of a text: the text itself, or what is to be found in it.
func (r *reader) text(s *yamlfile.Section, key string) *Text {
	f := s.Find(key)
	if f == nil {
		return nil
	}
	t := &Text{Line: f.Value.Line, Column: f.Value.Column}
	if f.Value.Kind == yamlfile.Text {
		t.Whole = &f.Value.Text
		return t
	}
	sub := r.Open(f.Value, s.Full(key))
	if sub == nil {
		return nil
	}
	r.parts(sub, t)
	sub.Close()
	return t
}

func (r *reader) parts(s *yamlfile.Section, t *Text) {
	if s.Has("text") {
		whole := s.Text("text")
		t.Whole = &whole
	}
	if f := s.Find("contains"); f != nil && f.Value.Kind == yamlfile.List {
		for _, item := range s.Texts("contains") {
			t.Contains = append(t.Contains, item.Text)
		}
	} else if f != nil {
		t.Contains = append(t.Contains, s.Text("contains"))
	}
	if pattern := s.Text("matches"); pattern != "" {
		re, err := regexp.Compile(pattern)
		if err != nil {
			s.Spot("matches").Err("bad-regexp", s.Full("matches")+": "+strings.TrimPrefix(err.Error(), "error parsing regexp: "),
				"Go's regular expressions have no lookaround and no back references; put the pattern in single quotes")
		}
		t.Matches = re
	}
	if t.Whole == nil && t.Contains == nil && t.Matches == nil && !s.Has("matches") {
		s.Here().Err("empty-value", s.Path()+" expects nothing", "write text:, contains: or matches:")
	}
}

func (r *reader) read(n *yamlfile.Node, path string) ReadMatch {
	m := ReadMatch{Text: Text{Line: n.Line, Column: n.Column}}
	if n.Kind == yamlfile.Text {
		m.Whole = &n.Text
		return m
	}
	s := r.Open(n, path)
	if s == nil {
		return m
	}
	m.Tool = s.Text("tool")
	r.parts(s, &m.Text)
	s.Close()
	return m
}

func (r *reader) tool(n *yamlfile.Node, path string) ToolMatch {
	m := ToolMatch{Name: Name{n.Line, n.Column, n.Text}}
	if n.Kind == yamlfile.Text {
		r.fullName(n, n.Text)
		return m
	}
	s := r.Open(n, path)
	if s == nil {
		return m
	}
	m.Text = r.function(s, "name").Text
	if v := s.Get("arguments", yamlfile.Mapping, "write the arguments by name"); v != nil {
		m.Arguments = r.json(v, s.Full("arguments"))
	}
	s.Close()
	return m
}

func (r *reader) ask(n *yamlfile.Node, path string) AskMatch {
	m := AskMatch{Line: n.Line, Column: n.Column}
	s := r.Open(n, path)
	if s == nil {
		return m
	}
	m.Kind = s.OneOf("kind", string(approval.Hook), string(approval.Policy), string(approval.Annotation), string(approval.Outcome))
	m.Tool, m.By, m.Reason = s.Text("tool"), s.Text("by"), r.text(s, "reason")
	if v := s.Take("value"); v != nil {
		m.Value = r.json(v.Value, s.Full("value"))
	}
	s.Close()
	if len(n.Fields) == 0 {
		r.On(n).Err("empty-value", path+" expects nothing", "write kind:, tool:, by:, reason: or value:")
	}
	return m
}

// hooks reads all hooks that are to be asked, in order.
func (r *reader) hooks(s *yamlfile.Section) *List[HookMatch] {
	n := s.Get("hooks", yamlfile.List, "write a list of hooks; [] when none is to be asked")
	if n == nil {
		return nil
	}
	out := &List[HookMatch]{Line: n.Line}
	for i, item := range n.Items {
		out.Items = append(out.Items, r.hook(item, fmt.Sprintf("%s[%d]", s.Full("hooks"), i+1)))
	}
	return out
}

func (r *reader) hook(n *yamlfile.Node, path string) HookMatch {
	m := HookMatch{Name: Name{n.Line, n.Column, n.Text}}
	if n.Kind == yamlfile.Text {
		return m
	}
	s := r.Open(n, path)
	if s == nil {
		return m
	}
	m.Text = s.Needed("hook", "name the hook, as <tool>.<function>")
	m.Event = s.Text("on")
	m.Says = s.OneOf("says", slices.Concat(words, []string{agentjob.HasFailed})...)
	m.Reason = r.text(s, "reason")
	if v := s.Take("value"); v != nil {
		m.Value = r.json(v.Value, s.Full("value"))
	}
	s.Close()
	return m
}

// fits says whether a text is what was expected.
func (t *Text) fits(got string) bool {
	switch {
	case t == nil:
		return true
	case t.Whole != nil && got != *t.Whole, t.Matches != nil && !t.Matches.MatchString(got):
		return false
	}
	return !slices.ContainsFunc(t.Contains, func(part string) bool { return !strings.Contains(got, part) })
}

func (t *Text) show() string {
	var parts []string
	if t.Whole != nil {
		parts = append(parts, expect.Quote(expect.Short(*t.Whole)))
	}
	for _, part := range t.Contains {
		parts = append(parts, "contains "+expect.Quote(expect.Short(part)))
	}
	if t.Matches != nil {
		parts = append(parts, "matches "+expect.Quote(t.Matches.String()))
	}
	return strings.Join(parts, " ")
}
