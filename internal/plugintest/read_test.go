package plugintest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/plugintest"
)

// What is wrong with a file is told with its place and what to do.
func TestMistakes(t *testing.T) {
	one := func(rest string) string { return "cases:\n  - name: x\n" + rest }
	event := func(keys string) string {
		return one("    event: {on: pre_tool_call, tool: a.b" + keys + "}\n    expect: allow\n")
	}
	job := func(keys string) string { return one("    job: {" + keys + "}\n    expect: allow\n") }
	expects := func(keys string) string { return one("    job: {}\n    expect: {" + keys + "}\n") }
	beside := func(keys string) string { return event("") + "    " + keys + "\n" }
	for name, c := range map[string]struct{ text, rule, place string }{
		"nothing":                 {"", "missing-key", ""},
		"no cases":                {"x-a: 1\n", "missing-key", "1:1"},
		"an empty list":           {"cases: []\n", "empty-list", "1:1"},
		"a key that is none":      {one("    event: {on: job_start, input: x}\n    expect: allow\n    reasn: x\n"), "unknown-key", "5:5"},
		"a key for jobs":          {job("") + "    reason: x\n", "unknown-key", "5:5"},
		"no name":                 {"cases: [{job: {}, expect: allow}]\n", "missing-key", "1:10"},
		"one name twice":          {event("") + "  - {name: x, job: {}, expect: allow}\n", "duplicate-case", "5:12"},
		"neither event nor job":   {one("    expect: allow\n"), "one-kind", "2:5"},
		"event and job":           {one("    event: {on: job_start, input: x}\n    job: {}\n    expect: allow\n"), "one-kind", "2:5"},
		"no expectation":          {one("    job: {}\n"), "missing-key", "2:5"},
		"an event without a name": {one("    event: {tool: a.b}\n    expect: allow\n"), "missing-key", "3:13"},
		"an unknown event":        {one("    event: {on: pre_tool}\n    expect: allow\n"), "unknown-value", "3:17"},
		"an event of a turn":      {one("    event: {on: tool_call}\n    expect: allow\n"), "unknown-value", "3:17"},
		"no tool":                 {one("    event: {on: pre_tool_call}\n    expect: allow\n"), "missing-key", "3:13"},
		"no full name":            {one("    event: {on: pre_tool_call, tool: push}\n    expect: allow\n"), "bad-full-name", "3:38"},
		"a pattern":               {one("    event: {on: pre_tool_call, tool: 'git.*'}\n    expect: allow\n"), "bad-full-name", "3:38"},
		"another event's key":     {event(", output: x"), "unknown-key", "3:43"},
		"no result":               {one("    event: {on: post_tool_call, tool: a.b}\n    expect: allow\n"), "missing-key", "3:13"},
		"arguments that are none": {event(", arguments: 7"), "wrong-type", "3:54"},
		"messages that are none":  {one("    event: {on: pre_llm_call, messages: x}\n    expect: allow\n"), "wrong-type", "3:41"},
		"no number":               {event(", arguments: {n: .inf}"), "bad-value", "3:55"},
		"half a model":            {event(", agent_model: {model: x}"), "missing-key", "3:57"},
		"no answer":               {event(", approvals: [maybe]"), "unknown-value", "3:55"},
		"an answer without one":   {event(", approvals: [{note: x}]"), "missing-key", "3:56"},
		"an unknown word":         {one("    job: {}\n    expect: alow\n"), "unknown-value", "4:13"},
		"an event's word":         {one("    job: {}\n    expect: deny\n"), "unknown-value", "4:13"},
		"a job's expectation":     {one("    event: {on: job_start, input: x}\n    expect: {state: failed}\n"), "wrong-type", "4:14"},
		"an unknown state":        {expects("state: done"), "unknown-value", "4:21"},
		"a code of no failure":    {expects("state: completed, code: X"), "bad-value", "4:38"},
		"a text of nothing":       {expects("output: {}"), "empty-value", "4:22"},
		"no pattern":              {expects("output: {matches: '('}"), "bad-regexp", "4:32"},
		"a call without a name":   {expects("tools: [{arguments: {}}]"), "missing-key", "4:23"},
		"a call of no function":   {expects("tools: [push]"), "bad-full-name", "4:22"},
		"a question of nothing":   {expects("approvals: [{}]"), "empty-value", "4:26"},
		"an unknown kind":         {expects("approvals: [{kind: x}]"), "unknown-value", "4:33"},
		"a hook without a name":   {expects("hooks: [{says: deny}]"), "missing-key", "4:23"},
		"an unknown hook":         {beside("hooks: [probe.chek]"), "unknown-hook", "5:13"},
		"an unknown decider":      {beside("hook: probe.chek"), "unknown-hook", "5:11"},
		"an unknown saying":       {beside("hooks: [{hook: probe.check, says: no}]"), "unknown-value", "5:39"},
		"an agent without a name": {job("agent: {tools: [a.b]}"), "missing-key", "3:19"},
		"an agent that is near":   {job("agent: clrk"), "unknown-agent", "3:18"},
		"a tool that is near":     {job("tools: {prob.look: {result: 1}}"), "canned-tool", "3:19"},
		"a canned hook":           {job("tools: {probe.check: {result: 1}}"), "canned-hook", "3:19"},
		"no result and no error":  {job("tools: {a.b: {schema: {}}}"), "one-kind", "3:25"},
		"a result and an error":   {job("tools: {a.b: {result: 1, error: x}}"), "one-kind", "3:25"},
		"results and a result":    {job("tools: {a.b: {results: [{result: 1}], result: 2}}"), "one-kind", "3:34"},
		"a function of nothing":   {job("tools: {a.b: }"), "empty-value", "3:19"},
		"a function's name":       {job("tools: {push: {result: 1}}"), "bad-full-name", "3:19"},
		"a script's mistake":      {job("model: {rules: [{say: x}]}"), "script-never", "3:28"},
		"a script that is gone":   {job("model: {script: gone.yml}"), "no-file", "3:27"},
		"a policy's mistake":      {job("policy: {rules: [{tools: [a.b], verdict: maybe}]}"), "unknown-value", "3:52"},
		"a policy that is gone":   {job("policy: gone.yaml"), "no-file", "3:19"},
		"two documents":           {event("") + "---\na: 1\n", "yaml-documents", "6:1"},
	} {
		t.Run(name, func(t *testing.T) {
			m := write(t, nil)
			path := filepath.Join(m.Dir, "cases.yaml")
			if err := os.WriteFile(path, []byte(c.text), 0o644); err != nil {
				t.Fatal(err)
			}
			f, findings := plugintest.Read(path)
			findings = append(findings, plugintest.Check(f, m)...)
			at := slices.IndexFunc(findings, func(f finding.Finding) bool { return f.Rule == c.rule })
			if at < 0 {
				t.Fatalf("%s\nof\n%s", list(t, findings), c.text)
			}
			got, place := findings[at], ""
			if got.Line > 0 {
				place = fmt.Sprintf("%d:%d", got.Line, got.Column)
			}
			if place != c.place || got.Hint == "" || len(got.Message) < 10 || got.File == "" {
				t.Errorf("found %+v at %s, want it at %s", got, place, c.place)
			}
			described(t, findings)
		})
	}
}

func described(t *testing.T, findings []finding.Finding) {
	t.Helper()
	for _, f := range findings {
		if !slices.ContainsFunc(plugintest.Rules(), func(r finding.Rule) bool { return r.ID == f.Rule }) {
			t.Errorf("no rule is described for %+v", f)
		}
	}
}

func TestFilesThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	big := filepath.Join(dir, "big.yaml")
	if err := os.WriteFile(big, make([]byte, 3<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	for path, rule := range map[string]string{filepath.Join(dir, "gone.yaml"): "no-file", dir: "no-file", big: "large-file"} {
		if _, findings := plugintest.Read(path); len(findings) != 1 || findings[0].Rule != rule {
			t.Errorf("%s: %+v", path, findings)
		}
	}
}

// The page has each rule that is not another page's, in its own words, and its samples
// are read without findings.
func TestDocument(t *testing.T) {
	raw, err := os.ReadFile("../../docs/testing-plugins.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(raw)
	_, table, _ := strings.Cut(page, "## What the check finds")
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| ([^|]+) \\| ([^|]+) \\|$").FindAllStringSubmatch(table, -1) {
		if !slices.Contains(plugintest.Rules(), finding.Rule{ID: m[1], Summary: m[2], Help: m[3]}) {
			t.Errorf("the page has a rule %q in other words, or one that is not there", m[1])
		}
	}
	for _, id := range []string{"bad-full-name", "bad-regexp", "canned-hook", "canned-tool", "duplicate-case", "large-file", "no-file", "one-kind", "unknown-agent", "unknown-hook"} {
		if !strings.Contains(table, "| `"+id+"` | ") {
			t.Errorf("the page lacks the rule %s", id)
		}
	}
	for _, sample := range regexp.MustCompile("(?s)```yaml tests/[a-z]+.yaml\n(.*?)```").FindAllStringSubmatch(page, -1) {
		if _, findings := plugintest.Parse("tests/sample.yaml", []byte(sample[1])); len(findings) > 0 {
			t.Errorf("%s\nof\n%s", list(t, findings), sample[1])
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{ // short ones: what is interesting is made smaller first
		"cases:\n- {name: a, event: {on: pre_tool_call, tool: a.b, arguments: {x: 1}, approvals: [yes]}, expect: deny, reason: x, hooks: [probe.check]}\n",
		"cases:\n- {name: a, job: {agent: {name: x, tools: [a.b]}, model: {default: {say: x}}, tools: {a.b: {results: [{error: x}]}}}, expect: allow}\n",
		"cases:\n- {name: a, job: {policy: {rules: []}}, expect: {code: X, output: {matches: x}, tools: [a.b], approvals: [{by: x}]}}\n",
	} {
		f.Add([]byte(seed))
	}
	m := write(f, nil)
	f.Fuzz(func(t *testing.T, data []byte) {
		file, findings := plugintest.Parse("cases.yaml", data)
		findings = append(findings, plugintest.Check(file, m)...)
		lines := strings.Count(string(data), "\n") + 1
		for _, found := range findings {
			if found.Line > lines || found.Rule == "" || found.Message == "" {
				t.Errorf("%+v of %d lines", found, lines)
			}
		}
		if finding.HasErrors(findings) {
			return
		}
		for _, c := range file.Cases {
			if c.Name == "" || (c.Event == nil) == (c.Job == nil) || c.Event != nil && c.Event.On == nil {
				t.Errorf("a case that cannot be run, and no error: %+v", c)
			}
		}
	})
}
