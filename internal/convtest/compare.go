package convtest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/internal/conversation"
	"github.com/belay-run/belay/internal/rawjson"
	"github.com/belay-run/belay/internal/skill"
	"github.com/belay-run/belay/internal/turn"
)

// seen is what came of a turn.
type seen struct {
	report turn.Report
	runs   []hook.Run // observers' among them
	state  *skill.State
	set    *skill.Set // nil for an agent without skills and memory
}

// of gives the turn's events of a kind.
func (s *seen) of(kind conversation.Kind) []conversation.Event {
	var out []conversation.Event
	for _, e := range s.report.Events {
		if e.Kind == kind {
			out = append(out, e)
		}
	}
	return out
}

// sent are the texts that went to the user.
func (s *seen) sent() []conversation.Event {
	return slices.DeleteFunc(s.of(conversation.Bot), func(e conversation.Event) bool { return e.Discarded != nil })
}

// compare gives every expectation that the turn did not meet.
func compare(e *Expect, s *seen) []Failure {
	var out []Failure
	add := func(f *Failure) {
		if f != nil {
			out = append(out, *f)
		}
	}
	add(message(e, s))
	add(texts(e, s))
	out = append(out, notTexts(e, s)...)
	add(tools(e, s))
	add(confirmation(e, s))
	add(memory(e, s))
	add(places(e, s))
	out = append(out, hooks(e, s)...)
	if w := e.Status; w != nil && w.Text != s.report.Status {
		seen := s.report.Status
		if s.report.Why != "" {
			seen += " (" + s.report.Why + ")"
		}
		add(&Failure{What: "status", Line: w.Line, Diff: []DiffLine{{Mark: "-", Text: w.Text}, {Mark: "+", Text: seen}}})
	}
	return append(out, unexpected(e, s)...)
}

// unexpected is what fails a test though nothing is written of it: a hook that
// decides and failed, and a turn that broke off of which nobody looks at the end.
func unexpected(e *Expect, s *seen) []Failure {
	var out []Failure
	for _, r := range s.runs {
		if r.Lane != hook.Modify || r.Failure == nil || slices.ContainsFunc(e.Hooks, func(h HookMatch) bool { return h.meets(r) && h.failing() }) {
			continue
		}
		out = append(out, Failure{What: "hooks", Message: fmt.Sprintf("%s failed at %s, and no expectation says that it may: %s at %s:%d, policy %s",
			r.Name, r.Point, r.Failure.Error(), r.File, r.Line, r.Policy)})
	}
	if s.report.Status == turn.Failed && e.Status == nil && e.Texts == nil {
		out = append(out, Failure{What: "status", Message: "the turn broke off (" + cmp.Or(s.report.Why, "error") + "), and neither its texts nor its status are expected"})
	}
	return out
}

func message(e *Expect, s *seen) *Failure {
	if e.Message == nil {
		return nil
	}
	got := s.of(conversation.User)
	if len(got) == 1 && e.Message.fits(&got[0]) {
		return nil
	}
	f := &Failure{What: "message", Line: e.Message.Line, Diff: []DiffLine{{Mark: "-", Text: e.Message.show()}}}
	for i := range got {
		f.Diff = append(f.Diff, DiffLine{Mark: "+", Text: showText(&got[i])})
	}
	return f
}

func texts(e *Expect, s *seen) *Failure {
	if e.Texts == nil {
		return nil
	}
	got := s.sent()
	return difference("texts", e.Texts.Line, e.Texts.Items, got,
		func(m *TextMatch, e *conversation.Event) bool { return m.fits(e) },
		func(m *TextMatch) string { return m.show() },
		func(_ *TextMatch, e *conversation.Event) string { return showText(e) })
}

func notTexts(e *Expect, s *seen) []Failure {
	var out []Failure
	for _, m := range e.NotTexts {
		if m.Text != nil { // of what must not be said any part is too much
			m.Contains, m.Text = append(slices.Clip(m.Contains), *m.Text), nil
		}
		for _, got := range s.sent() {
			if m.fits(&got) {
				out = append(out, Failure{What: "not_texts", Line: m.Line, Message: "this must not be said: " + m.show(), Diff: []DiffLine{{Mark: "+", Text: showText(&got)}}})
			}
		}
	}
	return out
}

// fits says whether a text is what was expected.
func (m *TextMatch) fits(e *conversation.Event) bool {
	discarded := ""
	if e.Discarded != nil {
		discarded = e.Discarded.By
	}
	switch {
	case m.Text != nil && e.Text != *m.Text,
		m.Matches != nil && !m.Matches.MatchString(e.Text),
		m.Response != "" && e.Response != m.Response,
		m.Source != "" && e.Source != m.Source,
		e.Kind == conversation.User && discarded != m.Discarded:
		return false
	}
	return !slices.ContainsFunc(m.Contains, func(part string) bool { return !strings.Contains(e.Text, part) })
}

func (m *TextMatch) show() string {
	var parts []string
	if m.Text != nil {
		parts = append(parts, quote(short(*m.Text)))
	}
	for _, part := range m.Contains {
		parts = append(parts, "contains "+quote(short(part)))
	}
	if m.Matches != nil {
		parts = append(parts, "matches "+quote(m.Matches.String()))
	}
	return strings.Join(append(parts, about(m.Response, m.Source, m.Discarded)...), " ")
}

func showText(e *conversation.Event) string {
	discarded, source := "", e.Source
	if e.Discarded != nil {
		discarded = e.Discarded.By
	}
	if source == conversation.FromModel {
		source = ""
	}
	return strings.Join(append([]string{quote(short(e.Text))}, about(e.Response, source, discarded)...), " ")
}

// about says of a text what is not in it.
func about(response, source, discarded string) []string {
	var out []string
	for _, said := range []string{response, source, discarded} {
		if said != "" {
			out = append(out, "("+said+")")
		}
	}
	return out
}

// tools compares the runs of tools. Those of the framework's own count when the
// expectation names them.
func tools(e *Expect, s *seen) *Failure {
	if e.Tools == nil {
		return nil
	}
	named := map[string]bool{}
	for _, m := range e.Tools.Items {
		named[m.Name] = true
	}
	var got []conversation.ToolRun
	for _, ev := range s.of(conversation.ToolExecuted) {
		if ev.Tool != nil && (named[ev.Tool.Name] || !slices.Contains(turn.Reserved, ev.Tool.Name)) {
			got = append(got, *ev.Tool)
		}
	}
	return difference("tools", e.Tools.Line, e.Tools.Items, got,
		func(m *ToolMatch, r *conversation.ToolRun) bool { return m.fits(r) },
		func(m *ToolMatch) string { return m.show() }, showRun)
}

func (m *ToolMatch) fits(r *conversation.ToolRun) bool {
	switch {
	case m.Name != r.Name,
		m.By != "" && by[m.By] != r.Source,
		m.IsError != nil && *m.IsError != r.IsError,
		m.Arguments != nil && !within(decode(m.Arguments), decode(r.Arguments)):
		return false
	}
	return m.Result == nil || holds(decode(m.Result), r.Result)
}

// holds says whether a result has what was expected of it: a text is looked for in
// it, anything else is part of the JSON that it is.
func holds(want any, result string) bool {
	if text, ok := want.(string); ok {
		return strings.Contains(result, text)
	}
	return within(want, decode([]byte(result)))
}

func (m *ToolMatch) show() string {
	out := m.Name
	if m.Arguments != nil {
		out += " " + short(oneLine(m.Arguments))
	}
	if m.Result != nil {
		out += ": " + short(oneLine(m.Result))
	}
	if m.IsError != nil {
		out += map[bool]string{true: " (failed)", false: " (no error)"}[*m.IsError]
	}
	if m.By != "" {
		out += " (by " + m.By + ")"
	}
	return out
}

// showRun shows of a run what was expected of it, and all of one that was not.
func showRun(m *ToolMatch, r *conversation.ToolRun) string {
	out := r.Name
	if m == nil || m.Arguments != nil {
		out += " " + short(oneLine(r.Arguments))
	}
	if m == nil || m.Result != nil {
		out += ": " + short(r.Result)
	}
	if r.IsError {
		out += " (failed)"
	}
	if r.Source != "" || m != nil && m.By != "" {
		out += " (by " + byWord(r.Source) + ")"
	}
	return strings.ReplaceAll(out, "\n", `\n`)
}

func confirmation(e *Expect, s *seen) *Failure {
	m := e.Confirmation
	if m == nil {
		return nil
	}
	asked, resolved := s.of(conversation.ConfirmAsked), s.of(conversation.ConfirmResolved)
	ok := !m.None || len(asked)+len(resolved) == 0
	if m.Asked != "" {
		ok = ok && slices.ContainsFunc(asked, func(e conversation.Event) bool { return e.Tool != nil && e.Tool.Name == m.Asked })
	}
	if m.Resolved != nil {
		ok = ok && slices.ContainsFunc(resolved, func(e conversation.Event) bool { return e.Confirmed != nil && *e.Confirmed == *m.Resolved })
	}
	if ok {
		return nil
	}
	f := &Failure{What: "confirmation", Line: m.Line}
	say := func(mark, text string) { f.Diff = append(f.Diff, DiffLine{Mark: mark, Text: text}) }
	if m.None {
		say("-", "none")
	}
	if m.Asked != "" {
		say("-", "asked: "+m.Asked)
	}
	if m.Resolved != nil {
		say("-", fmt.Sprintf("resolved: %v", *m.Resolved))
	}
	for _, e := range asked {
		say("+", "asked: "+e.Tool.Name)
	}
	for _, e := range resolved {
		say("+", fmt.Sprintf("resolved: %v", e.Confirmed != nil && *e.Confirmed))
	}
	if len(asked)+len(resolved) == 0 {
		say("+", "none")
	}
	return f
}

func memory(e *Expect, s *seen) *Failure {
	var f Failure
	for _, want := range e.Memory {
		got := rawjson.Must(s.set.Value(s.state, want.Name))
		if within(decode(want.Value), decode(got)) && (string(want.Value) == "null") == (string(got) == "null") {
			continue
		}
		f.Line = cmp.Or(f.Line, want.Line)
		f.Diff = append(f.Diff, DiffLine{Mark: "-", Text: want.Name + ": " + short(oneLine(want.Value))}, DiffLine{Mark: "+", Text: want.Name + ": " + short(oneLine(got))})
	}
	if f.Diff == nil {
		return nil
	}
	f.What = "memory"
	return &f
}

// places compares where in the agent's skills the turn has ended.
func places(e *Expect, s *seen) *Failure {
	var f Failure
	now := skill.Frame{}
	if top := s.state.Top(); top != nil {
		now = *top
	}
	for _, p := range []struct {
		what string
		want *Name
		got  string
	}{{"skill", e.Skill, now.Skill}, {"block", e.Block, now.Block}, {"step", e.Step, now.Step}} {
		if p.want == nil || p.want.Text == p.got {
			continue
		}
		f.What = cmp.Or(f.What, p.what)
		f.Line = cmp.Or(f.Line, p.want.Line)
		f.Diff = append(f.Diff, DiffLine{Mark: "-", Text: p.what + ": " + cmp.Or(p.want.Text, "none")}, DiffLine{Mark: "+", Text: p.what + ": " + cmp.Or(p.got, "none")})
	}
	if f.Diff == nil {
		return nil
	}
	return &f
}
