package plugintest

import (
	"slices"
	"strings"

	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/model/scripted"
	"github.com/belay-run/belay/internal/plugin"
	"github.com/belay-run/belay/internal/policy"
	"github.com/belay-run/belay/internal/yamlfile"
)

// Check checks the names in a file of cases against the plugin.
func Check(f *File, m *plugin.Manifest) []finding.Finding {
	var findings []finding.Finding
	c := &checker{r: yamlfile.NewReader(f.Path, &findings), hooks: hookNames(m), tools: toolIDs(m), agents: agentNames(m), m: m}
	for _, one := range f.Cases {
		c.one(one)
	}
	return finding.Clean(findings)
}

type checker struct {
	r                    *yamlfile.Reader
	m                    *plugin.Manifest
	hooks, tools, agents []string
}

func hookNames(m *plugin.Manifest) (out []string) {
	for _, d := range m.Declarations() {
		out = append(out, d.Hook.Name)
	}
	return out
}

func toolIDs(m *plugin.Manifest) (out []string) {
	for _, t := range m.Tools {
		out = append(out, t.ID)
	}
	return out
}

func agentNames(m *plugin.Manifest) (out []string) {
	for _, a := range m.Agents {
		out = append(out, a.ID)
	}
	return out
}

func (c *checker) one(one *Case) {
	if h := one.Expect.Hook; h != nil {
		c.hook(*h)
	}
	if l := one.Expect.Hooks; l != nil {
		for _, h := range l.Items {
			c.hook(h.Name)
		}
	}
	j := one.Job
	if j == nil {
		return
	}
	if near := yamlfile.Nearest(j.Agent.Text, c.agents); j.Inline == nil && near != "" && !slices.Contains(c.agents, j.Agent.Text) {
		c.at(j.Agent).Warn("unknown-agent", "the plugin has no agent "+yamlfile.Shown(j.Agent.Text)+", so another stands in for it", yamlfile.Meant(j.Agent.Text, c.agents)+" If it is another plugin's, nothing needs to change")
	}
	for _, t := range j.Tools {
		tool, _, _ := strings.Cut(t.Text, ".")
		if near := yamlfile.Nearest(tool, c.tools); near != "" && !slices.Contains(c.tools, tool) {
			c.at(t.Name).Warn("canned-tool", "the plugin has no tool "+yamlfile.Shown(tool), yamlfile.Meant(tool, c.tools)+" If it is another plugin's, nothing needs to change")
		}
		for i := range c.m.Hooks {
			if c.m.Hooks[i].Call() == t.Text {
				c.at(t.Name).Err("canned-hook", yamlfile.Shown(t.Text)+" is a hook of the plugin, and hooks are asked as they are", "delete it here")
				break
			}
		}
	}
}

func (c *checker) at(n Name) yamlfile.Spot { return c.r.At(n.Line, n.Column) }

func (c *checker) hook(n Name) {
	if n.Text == "" || slices.Contains(c.hooks, n.Text) {
		return
	}
	c.at(n).Err("unknown-hook", "the plugin has no hook "+yamlfile.Shown(n.Text), yamlfile.Meant(n.Text, c.hooks))
}

// Rules describes every finding of [Read] and [Check], sorted by id.
func Rules() []finding.Rule {
	rules := slices.Concat(policy.Rules(), scripted.Rules(), []finding.Rule{ // a case may bring a policy and a script
		{ID: "bad-full-name", Summary: "What should be a function's full name is none.", Help: "Write <tool>.<function>."},
		{ID: "bad-regexp", Summary: "A pattern is no regular expression that Go's regexp package reads.", Help: "Lookarounds and back references do not exist there. Put patterns in single quotes."},
		{ID: "canned-hook", Summary: "A case brings results for a function that is a hook.", Help: "Hooks are what is tested: their servers answer."},
		{ID: "duplicate-case", Summary: "Two cases of a file have one name.", Help: "Reports call cases by their names."},
		{ID: "no-file", Summary: "A file that is named is not there.", Help: "Paths are relative to the folder of the file of cases."},
		{ID: "one-kind", Summary: "Of two things that exclude each other both are there, or none.", Help: "A case is of an event or of a job; a canned function gives a result or an error."},
		{ID: "large-file", Summary: "A file of cases is larger than 2 MiB.", Help: "Split it."},
		{ID: "unknown-agent", Summary: "The agent of a case looks mistyped.", Help: "A name that is none of the plugin's agents is taken for an agent of another plugin."},
		{ID: "unknown-hook", Summary: "A case names a hook that the plugin does not have.", Help: "Hooks are called as the manifest calls them, <tool>.<function>; the second one of a function at an event has #2 after it."},
		{ID: "canned-tool", Summary: "The tool of a canned function looks mistyped.", Help: "A name that is none of the plugin's tools is taken for a tool of another plugin."},
	})
	slices.SortStableFunc(rules, func(a, b finding.Rule) int { return strings.Compare(a.ID, b.ID) })
	return slices.CompactFunc(rules, func(a, b finding.Rule) bool { return a.ID == b.ID })
}
