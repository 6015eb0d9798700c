package plugintest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/internal/agentjob"
	"github.com/belay-run/belay/internal/approval"
	"github.com/belay-run/belay/internal/expect"
	"github.com/belay-run/belay/internal/job"
)

// said is what the hooks of an event came to.
type said struct {
	word, reason, by string
	value            json.RawMessage
}

// compareEvent gives every expectation of an event that was not met.
func compareEvent(c *Case, s *seen) []expect.Failure {
	e := &c.Expect
	if why := broken(s); why != "" {
		return []expect.Failure{{What: "event", Line: c.Line, Message: why}}
	}
	got, err := s.said()
	if err != nil {
		return []expect.Failure{{What: "event", Line: c.Line, Message: err.Error()}}
	}
	var out []expect.Failure
	add := func(f *expect.Failure) {
		if f != nil {
			out = append(out, *f)
		}
	}
	if len(s.told) == 0 && e.Hooks == nil {
		add(&expect.Failure{What: "hooks", Line: c.Line, Message: "no hook of the plugin sees this event; write hooks: [] if that is what the case is about"})
	}
	if got.word != e.Word {
		add(&expect.Failure{What: "expect", Line: e.Line, Diff: []expect.DiffLine{{Mark: "-", Text: e.Word}, {Mark: "+", Text: got.show()}}})
	}
	if e.Value != nil && !equal(e.Value, got.value) {
		add(&expect.Failure{What: "value", Line: e.ValueLine, Diff: []expect.DiffLine{{Mark: "-", Text: line(e.Value)}, {Mark: "+", Text: line(got.value)}}})
	}
	if !e.Reason.fits(got.reason) {
		add(&expect.Failure{What: "reason", Line: e.Reason.Line, Diff: []expect.DiffLine{{Mark: "-", Text: e.Reason.show()}, {Mark: "+", Text: expect.Quote(expect.Short(got.reason))}}})
	}
	if h := e.Hook; h != nil && !slices.ContainsFunc(s.told, func(t agentjob.Told) bool { return t.Name == h.Text && comesTo(&t) == e.Word && !t.Shadow }) {
		f := &expect.Failure{What: "hook", Line: h.Line, Diff: []expect.DiffLine{{Mark: "-", Text: h.Text + ": " + e.Word}}}
		for i := range s.told {
			f.Diff = append(f.Diff, expect.DiffLine{Mark: "+", Text: showTold(nil, &s.told[i])})
		}
		add(f)
	}
	add(hooks(e, s))
	return append(append(out, failedHooks(e, s)...), left(s)...)
}

// broken says why a case came to no end that can be compared, "" when it did.
func broken(s *seen) string {
	switch {
	case s.wrong != "":
		return s.wrong
	case s.waiting:
		return "nobody answers a person's question: " + showRequest(&s.asked[len(s.asked)-1]) + "; write one more answer under approvals"
	case s.end.State == job.Failed && s.end.Code == agentjob.NotAsked:
		return s.end.Reason
	case s.end.State != job.Completed:
		return "the hooks could not be asked: " + s.end.Code + ": " + s.end.Reason
	}
	return ""
}

// said puts together what hooks and people came to.
func (s *seen) said() (said, error) {
	var end agentjob.EventEnd
	if err := json.Unmarshal(s.end.Output, &end); err != nil {
		return said{}, fmt.Errorf("what the hooks came to cannot be read: %w", err)
	}
	out := said{word: end.Says, reason: end.Reason, by: end.Hook, value: end.Value}
	var asked *approval.Request
	for i := range s.asked {
		if s.asked[i].Kind == approval.Hook {
			asked = &s.asked[i]
		}
	}
	if asked != nil && (end.Says != agentjob.Denied || end.Person) {
		var texts []string
		for _, r := range asked.Reasons {
			out.by = r.By
			if r.Text != "" {
				texts = append(texts, r.Text)
			}
		}
		out.word, out.reason, out.value = agentjob.Escalated, strings.Join(texts, "; "), asked.Value
		return out, nil
	}
	if out.by == "" { // the last one that said so
		for i := range s.told {
			if t := &s.told[i]; !t.Shadow && comesTo(t) == out.word {
				out.by, out.reason = t.Name, t.Run.Reason
			}
		}
	}
	return out, nil
}

func (s *said) show() string {
	out := s.word
	if s.by != "" {
		out += " by " + s.by
	}
	if s.reason != "" {
		out += ": " + expect.Short(s.reason)
	}
	if s.word == agentjob.Modified || s.word == agentjob.Escalated {
		out += " " + line(s.value)
	}
	return out
}

// comesTo is what follows from an answer: of a failure, what the hook's policy says.
func comesTo(t *agentjob.Told) string {
	if t.Says != agentjob.HasFailed {
		return t.Says
	}
	switch t.Run.Policy {
	case hook.Open:
		return agentjob.Allowed
	case hook.HoldPolicy:
		return agentjob.Escalated
	}
	return agentjob.Denied
}

// hooks compares the hooks that were asked.
func hooks(e *Expect, s *seen) *expect.Failure {
	if e.Hooks == nil {
		return nil
	}
	return expect.Difference("hooks", e.Hooks.Line, e.Hooks.Items, s.told,
		func(m *HookMatch, t *agentjob.Told) bool { return m.fits(t) }, (*HookMatch).show, showTold)
}

func (m *HookMatch) fits(t *agentjob.Told) bool {
	switch {
	case m.Text != t.Name, m.Event != "" && m.Event != t.Event, m.Says != "" && m.Says != t.Says, m.Says == "" && t.Says == agentjob.HasFailed,
		m.Value != nil && !equal(m.Value, t.Value):
		return false
	}
	return m.Reason.fits(reasonOf(t))
}

func reasonOf(t *agentjob.Told) string {
	if t.Run.Failure != nil {
		return t.Run.Failure.Error() // with what its server said: it is read where the hook is written
	}
	return t.Run.Reason
}

func (m *HookMatch) show() string {
	out := m.Text
	if m.Event != "" {
		out += " at " + m.Event
	}
	if m.Says != "" {
		out += ": " + m.Says
	}
	if m.Value != nil {
		out += " " + line(m.Value)
	}
	if m.Reason != nil {
		out += " (reason " + m.Reason.show() + ")"
	}
	return out
}

func showTold(m *HookMatch, t *agentjob.Told) string {
	out := t.Name
	if m == nil || m.Event != "" {
		out += " at " + t.Event
	}
	out += ": " + t.Says
	if t.Value != nil && (m == nil || m.Value != nil) {
		out += " " + line(t.Value)
	}
	if why := reasonOf(t); why != "" {
		out += " (" + expect.Short(why) + ")"
	}
	if t.Says == agentjob.Escalated && t.Run.Dropped != "" {
		out += " (" + t.Run.Dropped + ")"
	}
	if t.Shadow {
		out += " (only looking on)"
	}
	return strings.ReplaceAll(out, "\n", `\n`)
}

// failedHooks are failures that nobody expects: a test of a denial must not pass
// because the hook crashed.
func failedHooks(e *Expect, s *seen) []expect.Failure {
	var out []expect.Failure
	for i := range s.told {
		t := &s.told[i]
		expected := e.Hooks != nil && slices.ContainsFunc(e.Hooks.Items, func(m HookMatch) bool { return m.Text == t.Name && m.Says == agentjob.HasFailed })
		if t.Says == agentjob.HasFailed && !expected {
			out = append(out, expect.Failure{What: "hooks", Message: fmt.Sprintf("%s failed at %s, and no expectation says that it may: %s", t.Name, t.Event, reasonOf(t))})
		}
	}
	return out
}

// left are answers that nobody asked for.
func left(s *seen) []expect.Failure {
	var out []expect.Failure
	for _, a := range s.unused {
		out = append(out, expect.Failure{What: "approvals", Line: a.Line, Message: "nobody was asked for this answer"})
	}
	return out
}

// compareJob gives every expectation of a job that was not met.
func compareJob(c *Case, s *seen) []expect.Failure {
	e := &c.Expect
	if s.wrong != "" {
		return []expect.Failure{{What: "approvals", Line: c.Line, Message: s.wrong}}
	}
	if e.Word != "" {
		return append(append(untouched(e, s), failedHooks(e, s)...), left(s)...)
	}
	var out []expect.Failure
	add := func(f *expect.Failure) {
		if f != nil {
			out = append(out, *f)
		}
	}
	add(state(e, s))
	if e.Code != "" && e.Code != s.end.Code && s.end.State == job.Failed {
		add(&expect.Failure{What: "code", Line: e.Line, Diff: []expect.DiffLine{{Mark: "-", Text: e.Code}, {Mark: "+", Text: s.showEnd()}}})
	}
	if !e.Reason.fits(s.end.Reason) {
		add(&expect.Failure{What: "reason", Line: e.Reason.Line, Diff: []expect.DiffLine{{Mark: "-", Text: e.Reason.show()}, {Mark: "+", Text: expect.Quote(expect.Short(s.end.Reason))}}})
	}
	if text := outputText(s.end.Output); !e.Output.fits(text) {
		add(&expect.Failure{What: "output", Line: e.Output.Line, Diff: []expect.DiffLine{{Mark: "-", Text: e.Output.show()}, {Mark: "+", Text: expect.Quote(expect.Short(text))}}})
	}
	if e.Tools != nil {
		add(expect.Difference("tools", e.Tools.Line, e.Tools.Items, s.calls, (*ToolMatch).fits, (*ToolMatch).show, showCall))
	}
	if e.Reads != nil {
		add(expect.Difference("model_reads", e.Reads.Line, e.Reads.Items, s.reads, (*ReadMatch).fits, (*ReadMatch).show, showReading))
	}
	if e.Approvals != nil {
		add(expect.Difference("approvals", e.Approvals.Line, e.Approvals.Items, s.asked, (*AskMatch).fits, (*AskMatch).show,
			func(_ *AskMatch, r *approval.Request) string { return showRequest(r) }))
	}
	add(hooks(e, s))
	return append(append(out, failedHooks(e, s)...), left(s)...)
}

// untouched says what kept a job from going through as if there were no hooks.
func untouched(e *Expect, s *seen) []expect.Failure {
	var diff []expect.DiffLine
	if s.waiting || s.end.State != job.Completed {
		diff = append(diff, expect.DiffLine{Mark: "+", Text: s.showEnd()})
	}
	for i := range s.told {
		if t := &s.told[i]; !t.Shadow && t.Says != agentjob.Allowed && t.Says != agentjob.HasFailed {
			diff = append(diff, expect.DiffLine{Mark: "+", Text: showTold(nil, t)})
		}
	}
	if diff == nil {
		return nil
	}
	diff = append([]expect.DiffLine{{Mark: "-", Text: "allow: the job goes through untouched"}}, diff...)
	return []expect.Failure{{What: "expect", Line: e.Line, Diff: diff}}
}

func state(e *Expect, s *seen) *expect.Failure {
	got := string(s.end.State)
	if s.waiting {
		got = waiting
	}
	if got == e.State {
		return nil
	}
	return &expect.Failure{What: "state", Line: e.Line, Diff: []expect.DiffLine{{Mark: "-", Text: e.State}, {Mark: "+", Text: s.showEnd()}}}
}

// showEnd says how a job ended, and why.
func (s *seen) showEnd() string {
	if s.waiting {
		return waiting + " for an answer: " + showRequest(&s.asked[len(s.asked)-1])
	}
	out := string(s.end.State)
	for _, more := range []string{s.end.Code, expect.Short(s.end.Reason)} {
		if more != "" {
			out += ": " + more
		}
	}
	return out
}

// outputText is an output as text: what is none as JSON.
func outputText(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	return string(raw)
}

func (m *ToolMatch) fits(c *made) bool {
	return m.Text == c.name && (m.Arguments == nil || expect.Within(expect.Decode(m.Arguments), expect.Decode(c.arguments)))
}

func (m *ToolMatch) show() string { return strings.TrimSuffix(m.Text+" "+line(m.Arguments), " ") }

func showCall(m *ToolMatch, c *made) string {
	if m != nil && m.Arguments == nil {
		return c.name
	}
	return c.name + " " + line(c.arguments)
}

func (m *ReadMatch) fits(r *reading) bool {
	return m.Text.fits(r.text) && (m.Tool == "" || m.Tool == r.tool)
}

func (m *ReadMatch) show() string { return strings.TrimSpace(m.Tool + " " + m.Text.show()) }

func showReading(m *ReadMatch, r *reading) string {
	if m != nil && m.Tool == "" {
		return expect.Quote(expect.Short(r.text))
	}
	return r.tool + " " + expect.Quote(expect.Short(r.text))
}

func (m *AskMatch) fits(r *approval.Request) bool {
	switch {
	case m.Kind != "" && m.Kind != string(r.Kind), m.Tool != "" && m.Tool != r.Tool, m.Value != nil && !equal(m.Value, r.Value):
		return false
	case m.By == "" && m.Reason == nil:
		return true
	}
	return slices.ContainsFunc(r.Reasons, func(why approval.Reason) bool {
		by := m.By == "" || m.By == why.By || strings.HasSuffix(why.By, " "+m.By) // rules[2] no-force
		return by && m.Reason.fits(why.Text)
	})
}

func (m *AskMatch) show() string {
	parts := []string{cmp.Or(m.Kind, "any")}
	if m.By != "" {
		parts = append(parts, "by "+m.By)
	}
	if m.Tool != "" {
		parts = append(parts, "about "+m.Tool)
	}
	if m.Reason != nil {
		parts = append(parts, "(reason "+m.Reason.show()+")")
	}
	if m.Value != nil {
		parts = append(parts, line(m.Value))
	}
	return strings.Join(parts, " ")
}

// showRequest says what a person was asked.
func showRequest(r *approval.Request) string {
	parts := []string{string(r.Kind)}
	var by, texts []string
	for _, why := range r.Reasons {
		by = append(by, why.By)
		if why.Text != "" {
			texts = append(texts, why.Text)
		}
	}
	if len(by) > 0 {
		parts = append(parts, "by "+strings.Join(by, " and "))
	}
	if about := cmp.Or(r.Tool, r.Event); about != "" {
		parts = append(parts, "about "+about)
	}
	if len(texts) > 0 {
		parts = append(parts, "("+expect.Short(strings.Join(texts, "; "))+")")
	}
	if r.Value != nil {
		parts = append(parts, line(r.Value))
	}
	return strings.ReplaceAll(strings.Join(parts, " "), "\n", `\n`)
}

func line(raw json.RawMessage) string {
	if len(raw) == 0 {
		return ""
	}
	return expect.Short(expect.Line(raw))
}

// equal says whether two values are the same, whatever the order of their keys.
func equal(a, b json.RawMessage) bool {
	x, y := expect.Decode(a), expect.Decode(b)
	return expect.Within(x, y) && expect.Within(y, x)
}
