package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/plugin"
)

func newPluginInspect() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "inspect DIR",
		Short: "Say what a plugin brings, what its hooks see, and what it may do",
		Long: `Inspect says in plain words what a plugin brings, which hooks are asked about
which call and in which order, what installing it allows, and which of its agents
no plugin hook watches. It reads the manifest alone and starts nothing.`,
		Example: `  belay plugin inspect acme-policy
  belay plugin inspect acme-policy --json`,
		Args: onePlugin,
		RunE: func(c *cobra.Command, args []string) error {
			m, findings := plugin.Read(args[0])
			if finding.HasErrors(findings) {
				return pluginFindings(c, findings, "the plugin cannot be used until its errors are mended")
			}
			seen := look(m)
			if !asJSON {
				return seen.write(c.OutOrStdout())
			}
			enc := json.NewEncoder(c.OutOrStdout())
			enc.SetEscapeHTML(false)
			enc.SetIndent("", "  ")
			return enc.Encode(seen)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	return c
}

// inspected is what can be said of a plugin without starting it.
type inspected struct {
	Name        string          `json:"name"`
	Version     string          `json:"version,omitempty"`
	Description string          `json:"description,omitempty"`
	Manifest    string          `json:"manifest"`
	Tools       []toolSeen      `json:"tools"`
	Agents      []agentSeen     `json:"agents"`
	Hooks       []hookSeen      `json:"hooks"`
	Chains      []chainSeen     `json:"chains"`
	Permissions []string        `json:"permissions"`
	Unwatched   []unwatchedSeen `json:"unwatched"`
	Policy      bool            `json:"policy"`
	Tests       []string        `json:"tests"`
}

type toolSeen struct {
	ID      string   `json:"id"`
	Command []string `json:"command,omitempty"`
	URL     string   `json:"url,omitempty"`
	Env     []string `json:"env,omitempty"`
	Purpose string   `json:"uses_model,omitempty"`
}

type agentSeen struct {
	ID     string   `json:"id"`
	About  string   `json:"description,omitempty"`
	Folder string   `json:"folder,omitempty"`
	Model  string   `json:"model,omitempty"`
	Tools  []string `json:"tools"`
	limits plugin.Limits
}

type hookSeen struct {
	Event        string   `json:"on"`
	Call         string   `json:"call"`
	Tools        []string `json:"match_tools,omitempty"`
	Agents       []string `json:"match_agents,omitempty"`
	Sees         string   `json:"sees"`
	Timeout      string   `json:"timeout"`
	OnTimeout    string   `json:"on_timeout"`
	EscalateOnly bool     `json:"escalate_only"`
	Scan         bool     `json:"scan"`
	Shadow       bool     `json:"shadow"`
}

// chainSeen is which hooks are asked about an event, in order. An empty name stands
// for every other one.
type chainSeen struct {
	Event string   `json:"on"`
	Tool  string   `json:"tool,omitempty"`
	Agent string   `json:"agent,omitempty"`
	Hooks []string `json:"hooks"`
}

type unwatchedSeen struct {
	Agent string `json:"agent"`
	Why   string `json:"why"`
}

var onFailureWords = map[hook.Policy]string{hook.Open: "allow", hook.Closed: "deny", hook.HoldPolicy: "escalate"}

// look puts together what is said of a plugin.
func look(m *plugin.Manifest) *inspected {
	out := &inspected{Name: m.Name, Version: m.Version, Description: m.Description, Manifest: m.File, Policy: m.Policy != nil, Permissions: m.Permissions(),
		Tools: []toolSeen{}, Agents: []agentSeen{}, Hooks: []hookSeen{}, Chains: []chainSeen{}, Unwatched: []unwatchedSeen{}, Tests: append([]string{}, m.Tests...)}
	for _, t := range m.Tools {
		out.Tools = append(out.Tools, toolSeen{t.ID, t.Command, t.URL, t.Env, t.ModelPurpose})
	}
	for _, a := range m.Agents {
		out.Agents = append(out.Agents, agentSeen{a.ID, a.Description, a.Folder, a.Model, append([]string{}, a.Tools...), a.Limits})
		if a.Folder != "" {
			out.Unwatched = append(out.Unwatched, unwatchedSeen{a.ID, "it is an agent folder: as a job plugin hooks watch it, but when it answers as a chat (belay chat, belay serve) it runs outside a job and no plugin hook is asked"})
		}
	}
	for i := range m.Hooks {
		h := &m.Hooks[i]
		out.Hooks = append(out.Hooks, hookSeen{Event: h.On.Name, Call: h.Call(), Tools: h.Match.Tools, Agents: h.Match.Agents, Sees: h.Watches(), Timeout: h.Timeout.String(),
			OnTimeout: onFailureWords[h.OnFailure], EscalateOnly: h.EscalateOnly, Scan: h.Scan, Shadow: h.Shadow})
	}
	for _, event := range plugin.Events() {
		out.Chains = append(out.Chains, chainsAt(m, event)...)
	}
	return out
}

// chainsAt gives the chains of an event: one for each tool and agent that some hook
// names, and those for all others.
func chainsAt(m *plugin.Manifest, event string) []chainSeen {
	var tools, agents []string
	any := false
	add := func(to *[]string, names []string) {
		for _, n := range names {
			if !slices.Contains(*to, n) {
				*to = append(*to, n)
			}
		}
	}
	for i := range m.Hooks {
		if h := &m.Hooks[i]; h.On.Name == event {
			any = true
			add(&tools, h.Match.Tools)
			add(&agents, h.Match.Agents)
		}
	}
	if !any {
		return nil
	}
	var out []chainSeen
	for _, tool := range append(tools, "") {
		for _, agent := range append(agents, "") {
			c := chainSeen{Event: event, Tool: tool, Agent: agent, Hooks: []string{}}
			for _, h := range m.Chain(event, agent, tool) {
				name := h.Call()
				if h.Shadow {
					name += " (looks on)"
				}
				c.Hooks = append(c.Hooks, name)
			}
			out = append(out, c)
		}
	}
	return out
}

func (p *inspected) write(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%s)\n", strings.TrimSuffix(p.Name+" "+p.Version, " "), p.Manifest)
	if p.Description != "" {
		fmt.Fprintf(&b, "%s\n", plain(p.Description))
	}
	p.writeParts(&b)
	p.writeHooks(&b)
	list := func(title string, items []string) {
		if len(items) > 0 {
			fmt.Fprintf(&b, "\n%s\n", title)
		}
		for _, item := range items {
			fmt.Fprintf(&b, "  - %s\n", plain(item))
		}
	}
	list("What installing it allows", p.Permissions)
	var unwatched, shadow []string
	for _, u := range p.Unwatched {
		unwatched = append(unwatched, u.Agent+": "+u.Why)
	}
	for _, h := range p.Hooks {
		if h.Shadow {
			shadow = append(shadow, h.Call+" at "+h.Event+": its answers are recorded and do not bind")
		}
	}
	list("Agents that plugin hooks do not always watch", unwatched)
	list("Hooks that only look on", shadow)
	list("Tests", p.Tests)
	_, err := io.WriteString(w, b.String())
	return err
}

// writeParts writes the tools and agents.
func (p *inspected) writeParts(b *strings.Builder) {
	if len(p.Tools) > 0 {
		b.WriteString("\nTools\n")
	}
	for _, t := range p.Tools {
		what := strings.Join(t.Command, " ")
		if t.URL != "" {
			what = t.URL
		}
		fmt.Fprintf(b, "  %s: %s\n", t.ID, plain(what))
	}
	if len(p.Agents) > 0 {
		b.WriteString("\nAgents\n")
	}
	for _, a := range p.Agents {
		parts := []string{}
		if a.About != "" {
			parts = append(parts, strings.TrimSuffix(plain(a.About), "."))
		}
		if a.Folder != "" {
			parts = append(parts, "the folder "+a.Folder)
		}
		if a.Model != "" {
			parts = append(parts, "model "+plain(a.Model))
		}
		if len(a.Tools) > 0 {
			parts = append(parts, "may call "+strings.Join(a.Tools, ", "))
		}
		parts = append(parts, fmt.Sprintf("at most %d model calls, %d tool calls and %s of work", a.limits.Iterations, a.limits.ToolCalls, a.limits.WallTime))
		fmt.Fprintf(b, "  %s: %s\n", a.ID, strings.Join(parts, "; "))
	}
	if p.Policy {
		b.WriteString("\nIt brings a tool policy, which restricts the tenant's agents further.\n")
	}
}

// writeHooks writes the hooks, and which of them are asked about what.
func (p *inspected) writeHooks(b *strings.Builder) {
	if len(p.Hooks) == 0 {
		b.WriteString("\nIt has no hooks.\n")
		return
	}
	b.WriteString("\nHooks, in the order in which they are asked\n")
	t := tabwriter.NewWriter(b, 0, 4, 2, ' ', 0)
	for i, h := range p.Hooks {
		more := ""
		if h.EscalateOnly {
			more += ", may only allow or escalate"
		}
		if h.Scan {
			more += ", is told where secrets are"
		}
		if h.Shadow {
			more += ", only looks on"
		}
		fmt.Fprintf(t, "  %d.\t%s\t%s\twithin %s, else %s%s\n", i+1, h.Event, h.Call, h.Timeout, h.OnTimeout, more)
	}
	_ = t.Flush() // into memory
	b.WriteString("\nWho is asked about what\n")
	for _, c := range p.Chains {
		what := ""
		switch {
		case c.Event != hook.PreToolCall && c.Event != hook.PostToolCall: // it is about no call
		case c.Tool != "":
			what = c.Tool
		case !p.names(c.Event, func(h hookSeen) []string { return h.Tools }):
			what = "any call"
		default:
			what = "any other call"
		}
		agent := c.Agent
		if agent == "" {
			agent = "any agent"
			if p.names(c.Event, func(h hookSeen) []string { return h.Agents }) {
				agent = "any other agent"
			}
		}
		hooks := strings.Join(c.Hooks, ", then ")
		if hooks == "" {
			hooks = "none of its hooks"
		}
		fmt.Fprintf(t, "  %s\t%s\t%s\t%s\n", c.Event, what, agent, hooks)
	}
	_ = t.Flush()
}

// names says whether some hook of the event has a list of names.
func (p *inspected) names(event string, list func(hookSeen) []string) bool {
	return slices.ContainsFunc(p.Hooks, func(h hookSeen) bool { return h.Event == event && list(h) != nil })
}
