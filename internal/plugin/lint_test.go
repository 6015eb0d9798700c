package plugin_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/plugin"
	"github.com/belay-run/belay/internal/policy"
)

func hint(b bool) *bool { return &b }

func function(name string, a policy.Annotations) plugin.Function {
	return plugin.Function{Name: name, Annotations: a, InputSchema: json.RawMessage(`{"type":"object","properties":{"event":{"additionalProperties":true,"type":"object"}},"required":["event"]}`)}
}

var reads = policy.Annotations{ReadOnly: hint(true), OpenWorld: hint(false)}

func TestLint(t *testing.T) {
	manifest := "name: acme\ntools: [{id: acme, mcp: [x]}, {id: down, mcp: [x]}]\nhooks:\n" +
		"  - on: pre_tool_call\n    call: acme.check\n" +
		"  - {on: job_end, call: down.check}\n" +
		"agents: [{id: a, instructions: x, model: m, tools: [acme.look, acme.*, elsewhere.x, down.y]}]\n"
	m, findings := plugin.Read(folder(t, map[string]string{plugin.File: manifest}))
	if len(findings) > 0 {
		t.Fatal(report(t, findings))
	}
	schema := func(s string) plugin.Function {
		return plugin.Function{Name: "check", Annotations: reads, InputSchema: json.RawMessage(s)}
	}
	look := function("look", reads)
	for name, c := range map[string]struct {
		functions          []plugin.Function
		rule, place        string
		severity           finding.Severity
		message, whatToAdd string
	}{
		"all is well":           {functions: []plugin.Function{function("check", reads), look}},
		"no schema":             {functions: []plugin.Function{schema(``), look}},
		"an event without type": {functions: []plugin.Function{schema(`{"properties":{"event":{}}}`), look}},
		"an event of two types": {functions: []plugin.Function{schema(`{"properties":{"event":{"type":["object","null"]}}}`), look}},
		"any event":             {functions: []plugin.Function{schema(`{"properties":{"event":true,"more":{}}}`), look}},

		"a misspelt function":   {[]plugin.Function{function("chek", reads), look}, "unknown-function", "5:11", finding.Error, "no function \"check\"", `"chek"`},
		"no such function":      {[]plugin.Function{look}, "unknown-function", "5:11", finding.Error, "no function", `the functions are "look"`},
		"no functions":          {[]plugin.Function{}, "no-functions", "2:10", finding.Warning, "", ""},
		"no event":              {[]plugin.Function{schema(`{"properties":{"payload":{}}}`), look}, "hook-signature", "5:11", finding.Error, "no argument event", "event"},
		"another argument":      {[]plugin.Function{schema(`{"properties":{"event":{},"x":{}},"required":["event","x"]}`), look}, "hook-signature", "5:11", finding.Error, `"x"`, ""},
		"an event that is text": {[]plugin.Function{schema(`{"properties":{"event":{"type":"string"}}}`), look}, "hook-signature", "5:11", finding.Error, "no object", ""},
		"a broken schema":       {[]plugin.Function{schema(`{"properties":[]}`), look}, "hook-signature", "5:11", finding.Error, "cannot be read", ""},

		"nothing declared":        {[]plugin.Function{function("check", policy.Annotations{}), look}, "no-annotations", "5:11", finding.Warning, "declares nothing", "read_only_hint=True, open_world_hint=False"},
		"the world not declared":  {[]plugin.Function{function("check", policy.Annotations{ReadOnly: hint(true)}), look}, "no-annotations", "5:11", finding.Warning, "not declare all", "add open_world_hint=False"},
		"reading not declared":    {[]plugin.Function{function("check", policy.Annotations{OpenWorld: hint(false)}), look}, "no-annotations", "5:11", finding.Warning, "not declare all", "add read_only_hint=True"},
		"a hook that writes":      {[]plugin.Function{function("check", policy.Annotations{ReadOnly: hint(false)}), look}, "hook-acts", "5:11", finding.Warning, "writes", "read_only_hint=True"},
		"an odd name":             {[]plugin.Function{function("check", reads), look, function("a b", reads)}, "bad-function", "2:10", finding.Error, "(not shown)", ""},
		"others that say nothing": {[]plugin.Function{function("check", reads), look, function("z", policy.Annotations{}), function("y", policy.Annotations{})}, "no-annotations", "2:10", finding.Warning, `"y", "z"`, "read_only_hint=True"},
		"an agent's function":     {[]plugin.Function{function("check", reads), function("lok", reads)}, "unknown-function", "7:11", finding.Error, "acme.look", `"lok"`},
	} {
		t.Run(name, func(t *testing.T) {
			findings := plugin.Lint(m, map[string][]plugin.Function{"acme": c.functions})
			described(t, findings)
			if c.rule == "" {
				if len(findings) > 0 {
					t.Error(report(t, findings))
				}
				return
			}
			i := slices.IndexFunc(findings, func(f finding.Finding) bool { return f.Rule == c.rule })
			if i < 0 {
				t.Fatal(report(t, findings))
			}
			f := findings[i]
			if f.Severity != c.severity || !strings.Contains(f.Message, c.message) || !strings.Contains(f.Hint, c.whatToAdd) || f.File != plugin.File || !strings.Contains(report(t, findings), c.place+": ") {
				t.Error(report(t, findings))
			}
		})
	}
}

func TestTheSecondKindsSampleNeedsNoChange(t *testing.T) {
	m, _ := plugin.Read(folder(t, map[string]string{plugin.OtherFile: acme}))
	if findings := plugin.Lint(m, map[string][]plugin.Function{"acme_policy": {function("check", reads)}}); len(findings) > 0 {
		t.Error(report(t, findings))
	}
	if findings := plugin.Lint(m, nil); len(findings) > 0 {
		t.Errorf("servers that were not asked: %v", findings)
	}
}

func TestLintLooksAtWhatHooksWatch(t *testing.T) {
	for match, want := range map[string]string{
		"{tools: [acme.look]}":               "",
		"{tools: [acme_github.merge]}":       "", // of another plugin
		"{agents: [clerk, acme-reviewer]}":   "",
		"{tools: [acme.lok]}":                "unknown-function",
		"{tools: [acne.look]}":               "unknown-tool",
		"{tools: [acme.look, down.there]}":   "", // a server that could not be asked
		"{agents: [clrk]}":                   "unknown-agent",
		"{tools: [acme.x], agents: [clerk]}": "unknown-function",
	} {
		m, findings := plugin.Read(folder(t, map[string]string{plugin.File: "name: acme\ntools: [{id: acme, mcp: [x]}, {id: down, mcp: [x]}]\nhooks:\n" +
			"  - {on: pre_tool_call, call: acme.check, match: " + match + "}\n" +
			"agents: [{id: clerk, instructions: x, model: m, tools: [acme.look]}]\n"}))
		if len(findings) > 0 {
			t.Fatal(report(t, findings))
		}
		got := ""
		for _, f := range plugin.Lint(m, map[string][]plugin.Function{"acme": {function("check", reads), function("look", reads)}}) {
			got += f.Rule
		}
		if got != want {
			t.Errorf("%s: %q, want %q", match, got, want)
		}
	}
}
