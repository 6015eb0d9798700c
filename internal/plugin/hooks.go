package plugin

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/internal/yamlfile"
)

// Events are the names of the points where a plugin's hooks stand.
func Events() []string {
	var out []string
	for _, p := range hook.Points {
		if p.Dialect == hook.Plugin {
			out = append(out, p.Name)
		}
	}
	return out
}

// scanned are the events whose value can be scanned for secrets.
var scanned = []string{hook.PostToolCall, hook.JobEnd}

var failurePolicies = map[string]hook.Policy{"allow": hook.Open, "deny": hook.Closed, "escalate": hook.HoldPolicy}

func (l *loader) hook(s *yamlfile.Section) {
	h := Hook{Place: l.place(s)}
	s.Require("on", "name the event: "+strings.Join(Events(), ", "))
	h.On = l.event(s)
	l.call(s, &h)
	if f := s.Find("match"); f != nil {
		l.match(s, &h)
	}
	h.EscalateOnly = l.decisions(s)
	if h.On != nil {
		h.Timeout = s.Duration("timeout", h.On.MaxLimit, h.On.ModifyLimit, "bad-timeout")
	} else {
		_ = s.Has("timeout")
	}
	h.OnFailure = hook.Closed
	word := s.OneOf("on_timeout", "allow", "deny", "escalate")
	if p, ok := failurePolicies[word]; ok {
		h.OnFailure = p
	}
	if h.EscalateOnly {
		if word != "" && word != "escalate" {
			s.Spot("on_timeout").Err("bad-on-timeout", "a hook that may only allow and escalate escalates when it fails", "write on_timeout: escalate, or leave it out")
		}
		h.OnFailure = hook.HoldPolicy
	}
	h.Scan = l.scan(s, &h)
	h.Shadow = s.OneOf("mode", "observe", "enforce") == "observe"
	s.Close()
	if h.On != nil {
		l.m.Hooks = append(l.m.Hooks, h)
	}
}

func (l *loader) event(s *yamlfile.Section) *hook.Point {
	name := s.OneOf("on", Events()...)
	if name == "" {
		return nil
	}
	return hook.PointNamed(name)
}

var (
	functionName = regexp.MustCompile(`^[A-Za-z0-9_./-]{1,128}$`)
	harnessOrID  = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
)

// fullName parts <tool>.<function>.
func fullName(text string) (tool, function string, ok bool) {
	tool, function, ok = strings.Cut(text, ".")
	return tool, function, ok && harnessOrID.MatchString(tool) && functionName.MatchString(function)
}

func (l *loader) call(s *yamlfile.Section, h *Hook) {
	text := s.Needed("call", "name the function that answers, as <tool>.<function>")
	if text == "" {
		return
	}
	tool, function, ok := fullName(text)
	if !ok {
		s.Spot("call").Err("bad-call", s.Full("call")+" names no function", "write <tool>.<function>, such as acme_policy.check")
		return
	}
	h.Tool, h.Function = tool, function
	n := s.Node.Field("call")
	h.callAt = Place{File: l.r.File(), Line: n.Line, Column: n.Column}
	if l.m.Tool(tool) != nil {
		return
	}
	var ids []string
	for _, t := range l.m.Tools {
		ids = append(ids, t.ID)
	}
	hint := "a hook is a function of one of this plugin's own tools; declare the tool under tools:"
	if near := yamlfile.Nearest(tool, ids); near != "" {
		hint = yamlfile.Meant(tool, ids)
	}
	s.Spot("call").Err("unknown-tool", "this plugin has no tool "+yamlfile.Shown(tool), hint)
}

func (l *loader) match(s *yamlfile.Section, h *Hook) {
	m := s.Sub("match")
	if m == nil {
		return // it was no mapping, and is reported
	}
	for _, n := range m.Texts("tools") {
		if _, _, ok := fullName(n.Text); !ok {
			l.r.On(n).Err("bad-match", "this is no full name of a function, so the hook would never see it", "write <tool>.<function>; names match exactly, and * is no wildcard here")
			continue
		}
		h.Match.Tools = append(h.Match.Tools, n.Text)
	}
	for _, n := range m.Texts("agents") {
		if !dottedID.MatchString(n.Text) {
			l.r.On(n).Err("bad-match", "this is no name of an agent, so the hook would never see it", "write the agent's name; names match exactly, and * is no wildcard here")
			continue
		}
		h.Match.Agents = append(h.Match.Agents, n.Text)
	}
	if h.On != nil && m.Has("tools") && h.On.Field("tool") < 0 {
		m.Spot("tools").Err("match-tools", h.On.Name+" is about no tool, so its match cannot name any", "delete tools, or hook "+hook.PreToolCall+" or "+hook.PostToolCall)
	}
	if len(m.Node.Fields) == 0 {
		s.Spot("match").Err("empty-list", s.Full("match")+" names nothing", "leave match out to see every call, or name tools or agents")
	}
	m.Close()
}

// decisions says whether the hook may only allow and escalate.
func (l *loader) decisions(s *yamlfile.Section) bool {
	if !s.Has("decisions") {
		return false
	}
	var words []string
	for _, n := range s.Texts("decisions") {
		words = append(words, n.Text)
	}
	if len(words) > 0 && !slices.Equal(words, []string{"allow", "escalate"}) {
		s.Spot("decisions").Err("bad-decisions", s.Full("decisions")+" can only be [allow, escalate]", "write [allow, escalate], or leave it out for a hook that may answer anything")
	}
	return true // the stricter reading of a list that was refused
}

func (l *loader) scan(s *yamlfile.Section, h *Hook) bool {
	f := s.Find("scan")
	if f == nil {
		return false
	}
	items := s.Texts("scan")
	for i, n := range items {
		if n.Text != "secrets" || i > 0 {
			l.r.On(n).Err("unknown-value", s.Full("scan")+" can only be [secrets]", "write [secrets]")
		}
	}
	if t := l.m.Tool(h.Tool); t != nil && t.Remote() {
		s.Spot("scan").Err("remote-scan", "a hook that a remote tool answers cannot ask for scan: the findings would leave this machine", "delete scan, or run the tool here with mcp:")
	}
	if h.On != nil && !slices.Contains(scanned, h.On.Name) {
		s.Spot("scan").Err("scan-event", fmt.Sprintf("%s has no value to scan", h.On.Name), "scan works on "+strings.Join(scanned, " and "))
	}
	return len(items) > 0
}
