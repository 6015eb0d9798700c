package policy_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/policy"
)

func yes() *bool { b := true; return &b }
func no() *bool  { b := false; return &b }

var (
	reads  = policy.Annotations{ReadOnly: yes(), OpenWorld: no()}
	writes = policy.Annotations{ReadOnly: no(), Destructive: no(), OpenWorld: no()}
)

func parse(t *testing.T, text string) *policy.Policy {
	t.Helper()
	p, findings := policy.Parse("policy.yaml", []byte(text))
	if finding.HasErrors(findings) || !p.Usable() {
		t.Fatalf("%v\n%s", findings, text)
	}
	return p
}

// call makes a call of a function that only writes in a closed world.
func call(tool, arguments string) policy.Call {
	return policy.Call{
		Tool: tool, Arguments: json.RawMessage(arguments), Annotations: writes,
		Agent:  policy.Agent{Name: "acme-reviewer", Provider: "openai", Model: "gpt-x"},
		Job:    policy.Job{ID: "job_1", Tenant: "acme", StartedBy: "ci"},
		Origin: policy.Origin{By: policy.ByModel},
	}
}

const guarded = `
description: what the release team agreed on
rules:
  - name: no-force
    tools: [acme_github.push]
    when: has(arguments.force) && arguments.force
    verdict: refuse
    reason: a force push rewrites what others have
  - name: main
    tools: ["acme_github.*"]
    when: arguments.?branch.orValue("") == "main"
    verdict: require_approval
    approvers: admin
    reason: main is released
  - name: pushes
    tools: [acme_github.push]
    agents: ["acme-*"]
    verdict: allow
  - name: no-strangers
    tools: ["acme_github.*"]
    when: agent.name == "stranger" || job.tenant != "acme"
    verdict: refuse
    reason: not theirs
  - tools: ["*.drop_*"]
    verdict: refuse
limits:
  - name: mails
    tools: [acme_mail.send, acme_mail.reply]
    calls: 2
  - name: many
    tools: ["*"]
    calls: 3
    verdict: require_approval
sequences:
  - name: tests-first
    tools: [acme_github.merge]
    after: [acme_ci.run, acme_ci.rerun]
    reason: untested
  - name: no-leak
    tools: ["acme_mail.*"]
    never_after: ["acme_vault.*"]
floors:
  destructive: require_approval
defaults:
  other: allow
`

func TestDecide(t *testing.T) {
	p := parse(t, guarded)
	past := func(words ...string) (out []policy.Past) {
		for _, w := range words {
			tool, outcome, _ := strings.Cut(w, " ")
			out = append(out, policy.Past{Tool: tool, Outcome: outcome, Arguments: json.RawMessage(`{}`)})
		}
		return out
	}
	with := func(c policy.Call, change func(*policy.Call)) policy.Call { change(&c); return c }
	for name, c := range map[string]struct {
		call      policy.Call
		history   []policy.Past
		effect    policy.Effect
		reason    string // part of it
		outright  bool
		notes     string
		approvers string
	}{
		"an allow rule":                       {call: call("acme_github.push", `{"branch":"dev"}`), effect: policy.Allow},
		"a condition on the arguments":        {call: call("acme_github.push", `{"branch":"dev","force":true}`), effect: policy.Refuse, reason: "a force push rewrites"},
		"refuse over approval":                {call: call("acme_github.push", `{"branch":"main","force":true}`), effect: policy.Refuse, reason: "a force push rewrites"},
		"approval over allow":                 {call: call("acme_github.push", `{"branch":"main"}`), effect: policy.RequireApproval, reason: "main is released", approvers: "admin"},
		"a condition that cannot be read":     {call: call("acme_github.push", `{"force":"yes"}`), effect: policy.Refuse, reason: "could not be evaluated", notes: "counts as holding"},
		"a default":                           {call: call("acme_ci.run", `{}`), effect: policy.Allow},
		"a default for what declares nothing": {call: with(call("acme_ci.run", `{}`), func(c *policy.Call) { c.Annotations = policy.Annotations{} }), effect: policy.RequireApproval, reason: "never below", approvers: "approver"},
		"a floor over an allow rule":          {call: with(call("acme_github.push", `{}`), func(c *policy.Call) { c.Annotations.Destructive = nil }), effect: policy.RequireApproval, reason: "may destroy"},
		"no floor for what only reads":        {call: with(call("acme_github.push", `{}`), func(c *policy.Call) { c.Annotations = reads }), effect: policy.Allow},
		"outright, by a name":                 {call: call("acme_db.drop_table", `{}`), effect: policy.Refuse, outright: true, reason: "rules[5] refuses it"},
		"outright, by the agent":              {call: with(call("acme_github.push", `{}`), func(c *policy.Call) { c.Agent.Name = "stranger" }), effect: policy.Refuse, outright: true, reason: "not theirs"},
		"outright, no function":               {call: call("acme_github", `{}`), effect: policy.Refuse, outright: true, reason: "no function"},
		"a pattern keeps to its half":         {call: call("drop_x.y", `{}`), effect: policy.Allow},
		"under the limit":                     {call: call("acme_mail.send", `{}`), history: past("acme_mail.send ok", "acme_mail.send not_made"), effect: policy.Allow},
		"over the limit":                      {call: call("acme_mail.send", `{}`), history: past("acme_mail.send ok", "acme_mail.reply pending"), effect: policy.Refuse, reason: "2 calls of acme_mail.send, acme_mail.reply"},
		"unknown outcomes count":              {call: call("acme_mail.send", `{}`), history: past("acme_mail.send unknown", "acme_mail.send what"), effect: policy.Refuse},
		"a limit that asks":                   {call: call("acme_ci.run", `{}`), history: past("a.b ok", "a.b error", "c.d ok"), effect: policy.RequireApproval},
		"limits leave hooks alone":            {call: with(call("acme_ci.run", `{}`), func(c *policy.Call) { c.Origin.By = policy.ByHook }), history: past("a.b ok", "a.b ok", "a.b ok"), effect: policy.Allow},
		"after, nothing yet":                  {call: call("acme_github.merge", `{}`), effect: policy.Refuse, reason: "untested (acme_github.merge may be called only after acme_ci.run, acme_ci.rerun)"},
		"after, it failed":                    {call: call("acme_github.merge", `{}`), history: past("acme_ci.run error", "acme_ci.run pending"), effect: policy.Refuse},
		"after, it succeeded":                 {call: call("acme_github.merge", `{}`), history: past("acme_ci.run error", "acme_ci.rerun ok"), effect: policy.Allow},
		"never after":                         {call: call("acme_mail.send", `{}`), history: past("acme_vault.read error"), effect: policy.Refuse, reason: "may not be called after acme_vault.*"},
		"never after what was not made":       {call: call("acme_mail.send", `{}`), history: past("acme_vault.read not_made"), effect: policy.Allow},
		"arguments that are no object":        {call: call("acme_ci.run", `[]`), effect: policy.Refuse, reason: "no JSON object"},
		"arguments that are null":             {call: call("acme_ci.run", `null`), effect: policy.Refuse},
		"arguments with a key twice":          {call: call("acme_ci.run", `{"a":{"b":1,"\u0062":2}}`), effect: policy.Refuse, reason: "stands twice"},
		"arguments beyond numbers":            {call: call("acme_ci.run", `{"a":1e999}`), effect: policy.Refuse},
		"arguments that are cut off":          {call: call("acme_ci.run", `{"a":`), effect: policy.Refuse},
		"no arguments":                        {call: call("acme_ci.run", ``), effect: policy.Allow},
	} {
		t.Run(name, func(t *testing.T) {
			v := p.Decide(c.call, c.history)
			if v.Effect != c.effect || !strings.Contains(v.Reason, c.reason) || !strings.Contains(strings.Join(v.Notes, "\n"), c.notes) {
				t.Errorf("got %+v", v)
			}
			if (v.Reason == "") != (v.Effect == policy.Allow) {
				t.Errorf("the reason is %q", v.Reason)
			}
			if c.approvers != "" && v.Approvers != c.approvers || (v.Approvers != "") != (v.Effect == policy.RequireApproval) {
				t.Errorf("approvers %q", v.Approvers)
			}
			if out := p.Outright(c.call); (out.Effect == policy.Refuse) != c.outright || out.Effect == policy.RequireApproval {
				t.Errorf("outright: %+v", out)
			}
			stages := p.Explain(c.call, c.history)
			if last := stages[len(stages)-1]; last.Name != policy.StageDecision || last.Effect != v.Effect || !strings.HasPrefix(last.Why, v.Reason) {
				t.Errorf("explained as %+v, decided as %+v", last, v)
			}
			if reached := slices.ContainsFunc(stages, func(s policy.Stage) bool { return s.Name == policy.StageDefaults }); reached == c.outright {
				t.Errorf("stages %+v", stages)
			}
		})
	}
}

func TestDefaults(t *testing.T) {
	standard := policy.Default()
	strict := parse(t, "defaults: {read_only: require_approval, unannotated: refuse, other: refuse}")
	for name, c := range map[string]struct {
		annotations      policy.Annotations
		standard, strict policy.Effect
	}{
		"reads in a closed world": {reads, policy.Allow, policy.RequireApproval},
		"says nothing":            {policy.Annotations{}, policy.RequireApproval, policy.Refuse},
		"reads, world unsaid":     {policy.Annotations{ReadOnly: yes()}, policy.RequireApproval, policy.Refuse},
		"reads in the open world": {policy.Annotations{ReadOnly: yes(), OpenWorld: yes()}, policy.RequireApproval, policy.Refuse},
		"closed, writing unsaid":  {policy.Annotations{OpenWorld: no()}, policy.RequireApproval, policy.Refuse},
		"contradicts itself":      {policy.Annotations{ReadOnly: yes(), OpenWorld: no(), Destructive: yes()}, policy.RequireApproval, policy.Refuse},
		"writes":                  {writes, policy.RequireApproval, policy.Refuse},
	} {
		t.Run(name, func(t *testing.T) {
			x := call("a.b", `{}`)
			x.Annotations = c.annotations
			v := standard.Decide(x, nil)
			if v.Effect != c.standard || v.Effect == policy.RequireApproval && v.Kind != policy.ByAnnotation {
				t.Errorf("standard: %+v", v)
			}
			if v := strict.Decide(x, nil); v.Effect != c.strict {
				t.Errorf("strict: %+v", v)
			}
		})
	}
}

func TestWhatCannotBeUsedRefuses(t *testing.T) {
	var none *policy.Policy
	broken, findings := policy.Parse("p.yaml", []byte("rules: [{tools: [a.b], verdict: alow}]"))
	missing, more := policy.Read(filepath.Join(t.TempDir(), "none.yaml"))
	if !finding.HasErrors(findings) || !finding.HasErrors(more) {
		t.Fatal("no findings")
	}
	for name, p := range map[string]*policy.Policy{
		"nil": none, "zero": {}, "broken": broken, "missing": missing,
		"with what is broken": policy.Default().With(policy.Addition{From: "x", Policy: broken}),
		"with nil":            policy.Default().With(policy.Addition{From: "x"}),
	} {
		x := call("a.b", `{}`)
		x.Annotations = reads
		if v := p.Decide(x, nil); v.Effect != policy.Refuse || v.Reason == "" {
			t.Errorf("%s: %+v", name, v)
		}
		if v := p.Outright(x); v.Effect != policy.Refuse {
			t.Errorf("%s: %+v", name, v)
		}
		if s := p.Explain(x, nil); s[len(s)-1].Effect != policy.Refuse {
			t.Errorf("%s: %+v", name, s)
		}
		if p.Version() != "" || p.Usable() {
			t.Errorf("%s has the version %q", name, p.Version())
		}
	}
	if (policy.Verdict{}).Effect != policy.Refuse {
		t.Error("the zero verdict does not refuse")
	}
	var v policy.Verdict
	if err := json.Unmarshal([]byte(`{"effect":"alow"}`), &v); err == nil || v.Effect != policy.Refuse {
		t.Errorf("read as %v, %v", v, err)
	}
	raw, err := json.Marshal(policy.Verdict{Effect: policy.RequireApproval})
	if err != nil || string(raw) != `{"effect":"require_approval"}` {
		t.Errorf("written as %s, %v", raw, err)
	}
}

func TestAdditionsOnlyRestrict(t *testing.T) {
	own := parse(t, "defaults: {other: refuse, unannotated: refuse}\nrules: [{tools: [x.y], verdict: allow}]")
	added := parse(t, `
rules:
  - {tools: [a.b, x.y], verdict: allow}
  - {tools: ["a.*"], verdict: require_approval}
  - {tools: [x.z], verdict: refuse, name: zed}
limits: [{tools: [x.y], calls: 1}]
sequences: [{tools: [x.y], never_after: [q.r]}]
floors: {writes: require_approval}
defaults: {other: allow}
`)
	p := own.With(policy.Addition{From: "acme", Policy: added})
	if v := p.Decide(call("a.b", `{}`), nil); v.Effect != policy.Refuse {
		t.Errorf("an addition loosens a default: %+v", v)
	}
	v := p.Decide(call("x.y", `{}`), nil)
	if v.Effect != policy.RequireApproval || !reflect.DeepEqual(v.Rules, []string{"acme: floors.writes"}) {
		t.Errorf("got %+v", v)
	}
	if v := p.Decide(call("x.y", `{}`), []policy.Past{{Tool: "x.y", Outcome: policy.Succeeded}}); v.Effect != policy.Refuse || v.Rules[0] != "acme: limits[1]" {
		t.Errorf("got %+v", v)
	}
	if v := p.Outright(call("x.z", `{}`)); v.Effect != policy.Refuse || v.Rules[0] != "acme: rules[3] zed" {
		t.Errorf("got %+v", v)
	}
	if v := own.Decide(call("x.y", `{}`), nil); v.Effect != policy.Allow {
		t.Errorf("the policy itself was changed: %+v", v)
	}
	if p.Version() == own.Version() || p.Version() != own.With(policy.Addition{From: "acme", Policy: added}).Version() {
		t.Error("versions do not tell policies apart")
	}
	var parts []string
	for _, l := range added.Loosening() {
		parts = append(parts, l.Name)
		if l.Line == 0 || l.Column == 0 {
			t.Errorf("no place: %+v", l)
		}
	}
	if !slices.Equal(parts, []string{"rules[1]", "defaults"}) {
		t.Errorf("loosening: %v", parts)
	}
}

func TestRead(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "policy.yaml")
	if err := os.WriteFile(path, []byte(guarded), 0o644); err != nil {
		t.Fatal(err)
	}
	p, findings := policy.Read(path)
	if len(findings) > 0 || !p.Usable() || !strings.HasPrefix(p.Version(), "sha256:") {
		t.Fatalf("%v", findings)
	}
	if q, _ := policy.Parse("elsewhere.yaml", []byte(guarded)); q.Version() != p.Version() {
		t.Error("the version depends on more than the text")
	}
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{dir, pipe, filepath.Join(dir, "none")} {
		if p, findings := policy.Read(bad); p.Usable() || len(findings) != 1 || findings[0].Rule != "unreadable-file" {
			t.Errorf("%s: %v", bad, findings)
		}
	}
}

func TestFindings(t *testing.T) {
	for name, c := range map[string]struct{ text, rule, place, hint string }{
		"empty":             {"# nothing", "empty-file", "p.yaml", ""},
		"a lone null":       {"~", "empty-file", "p.yaml", ""},
		"a misspelt part":   {"rule: []", "unknown-key", "p.yaml:1:1", `did you mean "rules"?`},
		"an emptied part":   {"rules:\n", "empty-value", "p.yaml:1:1", ""},
		"not a list":        {"rules: {tools: [a.b]}", "wrong-type", "p.yaml:1:9", ""},
		"no tools":          {"rules:\n  - verdict: refuse", "missing-key", "p.yaml:2:5", "*"},
		"an empty list":     {"rules:\n  - {tools: [], verdict: refuse}", "empty-list", "p.yaml:2:13", ""},
		"empty agents":      {"rules:\n  - {tools: [a.b], agents: [], verdict: refuse}", "empty-list", "p.yaml:2:28", ""},
		"no verdict":        {"rules:\n  - tools: [a.b]", "missing-key", "p.yaml:2:5", "refuse"},
		"a wrong verdict":   {"rules:\n  - tools: [a.b]\n    verdict: Refuse", "unknown-value", "p.yaml:3:14", `"refuse"`},
		"a bare tool":       {"rules:\n  - {tools: [push], verdict: refuse}", "bad-pattern", "p.yaml:2:14", "<tool>"},
		"a bad agent":       {"rules:\n  - {tools: [a.b], agents: ['a b'], verdict: refuse}", "bad-pattern", "p.yaml:2:29", ""},
		"an unknown key":    {"rules:\n  - {tools: [a.b], verdict: refuse, wen: 'true'}", "unknown-key", "p.yaml:2:37", `"when"`},
		"an empty when":     {"rules:\n  - {tools: [a.b], verdict: refuse, when: }", "empty-value", "p.yaml:2:37", ""},
		"a blank when":      {"rules:\n  - {tools: [a.b], verdict: refuse, when: ' '}", "empty-value", "p.yaml:2:43", ""},
		"syntax":            {"rules:\n  - {tools: [a.b], verdict: refuse, when: 'a &&'}", "bad-condition", "p.yaml:2:43", "CEL"},
		"a misspelt name":   {"rules:\n  - {tools: [a.b], verdict: refuse, when: 'argument.x == 1'}", "bad-condition", "p.yaml:2:43", `"arguments"`},
		"a misspelt field":  {"rules:\n  - {tools: [a.b], verdict: refuse, when: 'agent.nmae == \"x\"'}", "bad-condition", "p.yaml:2:43", `"name"`},
		"a field of calls":  {"rules:\n  - {tools: [a.b], verdict: refuse, when: 'calls.exists(c, c.tol == \"x\")'}", "bad-condition", "p.yaml:2:43", `"tool"`},
		"not a truth":       {"rules:\n  - {tools: [a.b], verdict: refuse, when: 'agent.name'}", "bad-condition", "p.yaml:2:43", "compare"},
		"a bad pattern":     {"rules:\n  - {tools: [a.b], verdict: refuse, when: 'agent.name.matches(\"[\")'}", "bad-condition", "p.yaml:2:43", ""},
		"a huge pattern":    {"rules:\n  - {tools: [a.b], verdict: refuse, when: 'agent.name.matches(\"((a{100}){100}){9}\")'}", "bad-condition", "p.yaml:2:43", ""},
		"a map":             {"rules:\n  - {tools: [a.b], verdict: refuse, when: '{\"a\":1}.exists(k, k == \"a\")'}", "bad-condition", "p.yaml:2:43", ""},
		"a made record":     {"rules:\n  - {tools: [a.b], verdict: refuse, when: 'belay.Agent{name: \"x\"} == agent'}", "bad-condition", "p.yaml:2:43", ""},
		"a time zone":       {"rules:\n  - {tools: [a.b], verdict: refuse, when: 'timestamp(job.id).getHours(\"Europe/Vienna\") == 1'}", "bad-condition", "p.yaml:2:43", "UTC"},
		"a clock":           {"rules:\n  - {tools: [a.b], verdict: refuse, when: 'now() > timestamp(job.id)'}", "bad-condition", "p.yaml:2:43", ""},
		"deep nesting":      {"rules:\n  - {tools: [a.b], verdict: refuse, when: '" + strings.Repeat("(", 500) + "true" + strings.Repeat(")", 500) + "'}", "bad-condition", "p.yaml:2:43", ""},
		"very long":         {"rules:\n  - {tools: [a.b], verdict: refuse, when: 'true" + strings.Repeat(" || true", 1000) + "'}", "bad-condition", "p.yaml:2:43", ""},
		"two of one name":   {"rules:\n  - {name: x, tools: [a.b], verdict: refuse}\n  - {name: x, tools: [a.b], verdict: refuse}", "duplicate-name", "p.yaml:3:12", ""},
		"an odd name":       {"rules:\n  - {name: \"\\e[31m\", tools: [a.b], verdict: refuse}", "bad-value", "p.yaml:2:12", ""},
		"a viewer":          {"rules:\n  - {tools: [a.b], verdict: require_approval, approvers: viewer}", "unknown-value", "p.yaml:2:58", ""},
		"idle approvers":    {"rules:\n  - {tools: [a.b], verdict: refuse, approvers: admin}", "bad-value", "p.yaml:2:48", ""},
		"a limit that lets": {"limits:\n  - {tools: [a.b], calls: 1, verdict: allow}", "unknown-value", "p.yaml:2:39", ""},
		"a limit of none":   {"limits:\n  - {tools: [a.b]}", "missing-key", "p.yaml:2:6", ""},
		"a limit below":     {"limits:\n  - {tools: [a.b], calls: -1}", "bad-value", "p.yaml:2:27", ""},
		"after what":        {"sequences:\n  - {tools: [a.b]}", "missing-key", "p.yaml:2:6", ""},
		"both":              {"sequences:\n  - {tools: [a.b], after: [a.c], never_after: [a.d]}", "missing-key", "p.yaml:2:6", ""},
		"a floor that lets": {"floors: {writes: allow}", "unknown-value", "p.yaml:1:18", ""},
		"an unknown floor":  {"floors: {write: refuse}", "unknown-key", "p.yaml:1:10", `"writes"`},
		"a lax default":     {"defaults: {unannotated: allow}", "bad-value", "p.yaml:1:25", "rule"},
		"two documents":     {"rules: []\n---\nrules: []", "yaml-documents", "p.yaml:3:1", ""},
		"a key twice":       {"floors: {writes: refuse}\nfloors: {writes: refuse}", "duplicate-key", "p.yaml:2:1", ""},
		"not UTF-8":         {"rules: \xff", "bad-encoding", "p.yaml", ""},
		"all is allowed":    {"rules:\n  - {tools: ['*'], verdict: allow}", "allows-all", "p.yaml:2:6", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p, findings := policy.Parse("p.yaml", []byte(c.text))
			if p.Usable() == finding.HasErrors(findings) {
				t.Errorf("usable: %v with %v", p.Usable(), findings)
			}
			var b strings.Builder
			if err := finding.Text(&b, findings); err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(findings, func(f finding.Finding) bool { return f.Rule == c.rule })
			if i < 0 || !strings.Contains(b.String(), c.place) || !strings.Contains(findings[i].Hint, c.hint) {
				t.Errorf("want %s at %s, hint %q:\n%s", c.rule, c.place, c.hint, b.String())
			}
			for _, f := range findings {
				if !slices.ContainsFunc(policy.Rules(), func(r finding.Rule) bool { return r.ID == f.Rule }) {
					t.Errorf("rule %s is not described", f.Rule)
				}
			}
		})
	}
}
