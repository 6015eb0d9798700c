package plugin

import (
	"fmt"
	"strings"

	"github.com/belay-run/belay/hook"
)

// Permissions says in plain words what installing the plugin allows, one sentence
// each, for the person who decides about it.
func (m *Manifest) Permissions() []string {
	var out []string
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	for i := range m.Tools {
		t := &m.Tools[i]
		if t.Remote() {
			say("its tool %s sends calls, with their arguments, to %s", t.ID, t.URL)
		} else {
			say("its tool %s runs a program on this machine: %s", t.ID, strings.Join(quoted(t.Command), " "))
		}
		if len(t.Env) > 0 {
			say("its tool %s reads the variables %s", t.ID, strings.Join(t.Env, ", "))
		}
		if t.ModelPurpose != "" {
			say("its tool %s calls a model, charged to the job: %s", t.ID, t.ModelPurpose)
		}
	}
	for i := range m.Hooks {
		h := &m.Hooks[i]
		say("its hook %s sees %s, and %s", h.Call(), h.Watches(), h.may())
		if h.Scan {
			say("its hook %s: it is told where the tenant's known secrets are", h.Call())
		}
		if t := m.Tool(h.Tool); t != nil && t.Remote() {
			say("what its hook %s sees leaves this machine", h.Call())
		}
	}
	for i := range m.Agents {
		a := &m.Agents[i]
		tools := "no functions"
		if len(a.Tools) > 0 {
			tools = strings.Join(a.Tools, ", ")
		}
		say("its agent %s may call %s", a.ID, tools)
	}
	if m.Policy != nil {
		say("its policy restricts the calls of the tenant's agents further")
	}
	return out
}

// quoted puts arguments with blanks into quotes, so that they read as they are.
func quoted(args []string) []string {
	out := make([]string, len(args))
	for i, a := range args {
		out[i] = a
		if a == "" || strings.ContainsFunc(a, func(r rune) bool { return r <= ' ' || r == '"' || r == 0x7f }) {
			out[i] = fmt.Sprintf("%q", a)
		}
	}
	return out
}

// Watches says in words what the hook sees.
func (h *Hook) Watches() string {
	agents, tools := "every agent", "each call"
	if h.Match.Agents != nil {
		agents = "the agents " + strings.Join(h.Match.Agents, ", ")
		if len(h.Match.Agents) == 1 {
			agents = "the agent " + h.Match.Agents[0]
		}
	}
	if h.Match.Tools != nil {
		tools = "calls of " + strings.Join(h.Match.Tools, ", ")
	}
	switch h.On.Name {
	case hook.PreToolCall:
		return tools + " of " + agents + " before it is made"
	case hook.PostToolCall:
		return "the result of " + tools + " of " + agents
	case hook.JobStart:
		return "the input of each job of " + agents
	case hook.JobEnd:
		return "the answer of each job of " + agents
	case hook.PreLLMCall:
		return "what each model call of " + agents + " sends"
	}
	return h.On.Name + " of " + agents
}

// may says in words what the hook can do about it.
func (h *Hook) may() string {
	failing := map[hook.Policy]string{
		hook.Open: "is passed over when it fails", hook.Closed: "refuses when it fails", hook.HoldPolicy: "has a person decide when it fails",
	}[h.OnFailure]
	switch {
	case h.Shadow:
		return "only looks on"
	case h.EscalateOnly:
		return "may only let it pass or have a person decide; it " + failing
	}
	return "may refuse it, change it or have a person decide; it " + failing
}
