package plugin_test

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/plugin"
	"github.com/belay-run/belay/internal/policy"
)

// folder writes files into a new folder; a text that begins with "->" makes a link.
func folder(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if target, ok := strings.CutPrefix(text, "->"); ok {
			err = os.Symlink(target, path)
		} else {
			err = os.WriteFile(path, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func report(t testing.TB, findings []finding.Finding) string {
	t.Helper()
	var b strings.Builder
	if err := finding.Text(&b, findings); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

const acme = `name: acme-policy
tools:
  - id: acme_policy
    mcp: ["python", "-m", "acme_policy.server"]
hooks:
  - on: pre_tool_call
    call: acme_policy.check       # the function that answers
    match: { tools: ["acme_github.merge", "acme_github.push"] }
    timeout: 2s
    on_timeout: escalate
  - on: job_end
    call: acme_policy.check
    match: { agents: [acme-reviewer] }
`

// A manifest as another platform's page has it loads unchanged under either name.
func TestReadAManifestOfTheSecondKind(t *testing.T) {
	for _, file := range []string{plugin.File, plugin.OtherFile} {
		m, findings := plugin.Read(folder(t, map[string]string{file: acme}))
		if len(findings) > 0 {
			t.Fatal(report(t, findings))
		}
		if m.File != file || m.Name != "acme-policy" || !reflect.DeepEqual(m.Tool("acme_policy").Command, []string{"python", "-m", "acme_policy.server"}) {
			t.Errorf("got %+v", m)
		}
		first, second := m.Hooks[0], m.Hooks[1]
		if first.On.Name != hook.PreToolCall || first.Call() != "acme_policy.check" || first.Timeout != 2*time.Second || first.OnFailure != hook.HoldPolicy ||
			!reflect.DeepEqual(first.Match, hook.Match{Tools: []string{"acme_github.merge", "acme_github.push"}}) || first.EscalateOnly {
			t.Errorf("got %+v", first)
		}
		if second.On.Name != hook.JobEnd || second.Timeout != 2*time.Second || second.OnFailure != hook.Closed || second.Line != 11 {
			t.Errorf("got %+v", second)
		}
	}
}

func TestReadEverything(t *testing.T) {
	m, findings := plugin.Read(folder(t, map[string]string{
		plugin.File: `
x-shared: &reviewers [acme-reviewer, other.agent]
name: acme
version: 1.10
description: Checks of Acme.
tools:
  - id: acme_policy
    mcp: [python, -m, acme_policy.server]
    env: [ACME_TOKEN, HOME]
    uses_model: {purpose: the judge asks whether a call fits}
  - {id: far-away, url: "https://mcp.example.com/v1"}
agents:
  - id: acme-reviewer
    description: reviews
    instructions: {file: prompts/review.md}
    model: fast
    tools: [acme_policy.lookup, "far-away.*", elsewhere.x]
    limits: {iterations: 5, wall_time: 90s, tool_calls: 0}
  - {id: other.agent, folder: agents/other}
  - {id: third, instructions: Do it., model: fast}
hooks:
  - {on: job_start, call: far-away.start, match: {agents: *reviewers}, on_timeout: allow, mode: observe}
  - {on: pre_tool_call, call: acme_policy.judge, decisions: [allow, escalate], timeout: 20}
  - {on: post_tool_call, call: acme_policy.redact, scan: [secrets], timeout: 30s, mode: enforce}
  - {on: pre_llm_call, call: acme_policy.redact, timeout: 1.5}
  - {on: post_tool_call, call: acme_policy.redact, match: {tools: [a.b]}}
policy:
  rules:
    - {tools: ["*.drop_*"], verdict: refuse}
tests: [tests, more/*.yaml, tests/a.yaml]
`,
		"prompts/review.md":      "Review it.\n",
		"agents/other/agent.yml": "id: x",
		"tests/b.yaml":           "x", "tests/deep/a.yml": "x", "tests/a.yaml": "x", "tests/notes.md": "x", "more/c.yaml": "x",
	}))
	if len(findings) > 0 {
		t.Fatal(report(t, findings))
	}
	if m.Version != "1.10" || m.Description != "Checks of Acme." {
		t.Errorf("got %q %q", m.Version, m.Description)
	}
	if x := m.Tool("acme_policy"); x.ModelPurpose != "the judge asks whether a call fits" || !slices.Equal(x.Env, []string{"ACME_TOKEN", "HOME"}) || x.Remote() {
		t.Errorf("got %+v", x)
	}
	if x := m.Tool("far-away"); x.URL != "https://mcp.example.com/v1" || !x.Remote() || m.Tool("none") != nil {
		t.Errorf("got %+v", x)
	}
	if a := m.Agents[0]; a.Instructions != "Review it.\n" || a.Model != "fast" || len(a.Tools) != 3 || a.Limits != (plugin.Limits{Iterations: 5, WallTime: 90 * time.Second}) {
		t.Errorf("got %+v", a)
	}
	if a := m.Agents[1]; a.Folder != "agents/other" || a.Limits != plugin.DefaultLimits {
		t.Errorf("got %+v", a)
	}
	if v := m.Policy.Outright(policy.Call{Tool: "db.drop_all"}); v.Effect != policy.Refuse {
		t.Errorf("the policy says %+v", v)
	}
	if want := []string{"tests/a.yaml", "tests/b.yaml", "tests/deep/a.yml", "more/c.yaml"}; !slices.Equal(m.Tests, want) {
		t.Errorf("tests %v", m.Tests)
	}
	checkDeclarations(t, m)
}

func checkDeclarations(t *testing.T, m *plugin.Manifest) {
	t.Helper()
	escalates := hook.KindsOf(hook.Continue, hook.Hold)
	want := []struct {
		name, point string
		limit       time.Duration
		failing     hook.Policy
		verdicts    hook.Kinds
		scan, show  bool
	}{
		{"far-away.start", hook.JobStart, 2 * time.Second, hook.Open, 0, false, true},
		{"acme_policy.judge", hook.PreToolCall, 20 * time.Second, hook.HoldPolicy, escalates, false, false},
		{"acme_policy.redact", hook.PostToolCall, 30 * time.Second, hook.Closed, 0, true, false},
		{"acme_policy.redact", hook.PreLLMCall, 1500 * time.Millisecond, hook.Closed, 0, false, false},
		{"acme_policy.redact#2", hook.PostToolCall, 2 * time.Second, hook.Closed, 0, false, false},
	}
	var engine []*hook.Hook
	for i, d := range m.Declarations() {
		w, h := want[i], d.Hook
		if h.Name != w.name || h.Point.Name != w.point || h.Limit != w.limit || h.OnFailure != w.failing || h.Verdicts != w.verdicts || d.Scan != w.scan || d.Shadow != w.show {
			t.Errorf("%d: %+v", i, d)
		}
		if d.Call != d.Tool+"."+d.Function || d.EscalateOnly != (w.verdicts != 0) || h.File != plugin.File || h.Line == 0 {
			t.Errorf("%d: %+v", i, d)
		}
		h.Func = func(context.Context, hook.Payload) (hook.Verdict, error) { return hook.Verdict{}, nil }
		engine = append(engine, &h)
	}
	if len(engine) != len(want) {
		t.Fatalf("%d declarations", len(engine))
	}
	if _, err := hook.NewEngine(nil, engine...); err != nil {
		t.Errorf("the engine refuses what the manifest declares: %v", err)
	}
	names := func(event, agent, tool string) (out []string) {
		for _, h := range m.Chain(event, agent, tool) {
			out = append(out, h.Call())
		}
		return out
	}
	if got := names(hook.PostToolCall, "x", "a.b"); !slices.Equal(got, []string{"acme_policy.redact", "acme_policy.redact"}) {
		t.Errorf("chain %v", got)
	}
	if got := names(hook.PostToolCall, "x", "a.bb"); len(got) != 1 {
		t.Errorf("chain %v", got)
	}
	if got := names(hook.JobStart, "other.agent", ""); len(got) != 1 || names(hook.JobStart, "other", "") != nil {
		t.Errorf("chain %v", got)
	}
}

func TestPermissions(t *testing.T) {
	m, findings := plugin.Read(folder(t, map[string]string{plugin.File: `
name: acme
tools:
  - {id: acme, mcp: [python, "my server.py"], env: [TOKEN], uses_model: {purpose: to judge}}
  - {id: far, url: "https://x.example"}
agents: [{id: one, instructions: x, model: m, tools: [acme.*]}, {id: two, instructions: x, model: m}]
hooks:
  - {on: job_end, call: acme.end, scan: [secrets], match: {agents: [one]}}
  - {on: pre_tool_call, call: far.judge, decisions: [allow, escalate]}
  - {on: post_tool_call, call: acme.look, mode: observe, match: {tools: [a.b], agents: [one, two]}}
  - {on: job_start, call: acme.look, on_timeout: allow}
  - {on: pre_llm_call, call: acme.look}
policy: {limits: [{tools: ["*"], calls: 9}]}
`}))
	if len(findings) > 0 {
		t.Fatal(report(t, findings))
	}
	want := []string{
		`its tool acme runs a program on this machine: python "my server.py"`,
		`its tool acme reads the variables TOKEN`,
		`its tool acme calls a model, charged to the job: to judge`,
		`its tool far sends calls, with their arguments, to https://x.example`,
		`its hook acme.end sees the answer of each job of the agent one, and may refuse it, change it or have a person decide; it refuses when it fails`,
		`its hook acme.end: it is told where the tenant's known secrets are`,
		`its hook far.judge sees each call of every agent before it is made, and may only let it pass or have a person decide; it has a person decide when it fails`,
		`what its hook far.judge sees leaves this machine`,
		`its hook acme.look sees the result of calls of a.b of the agents one, two, and only looks on`,
		`its hook acme.look sees the input of each job of every agent, and may refuse it, change it or have a person decide; it is passed over when it fails`,
		`its hook acme.look sees what each model call of every agent sends, and may refuse it, change it or have a person decide; it refuses when it fails`,
		`its agent one may call acme.*`,
		`its agent two may call no functions`,
		`its policy restricts the calls of the tenant's agents further`,
	}
	if got := m.Permissions(); !slices.Equal(got, want) {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
	}
}

// with is a manifest with one tool and what a test is about.
func with(rest string) string {
	return "name: acme\ntools:\n  - {id: acme, mcp: [x]}\n  - {id: far, url: \"https://x.example\"}\n" + rest
}

func TestFindings(t *testing.T) {
	hooks := func(h string) string { return with("hooks:\n  - {" + h + "}\n") }
	for name, c := range map[string]struct{ text, rule, place, hint string }{
		"no name":                       {"tools: []", "missing-key", "1:1", ""},
		"an odd name":                   {"name: a b", "bad-name", "1:7", ""},
		"nothing":                       {"name: a", "empty-plugin", "", ""},
		"an empty file":                 {"# nothing", "empty-file", "", ""},
		"a misspelt section":            {with("hoks: []"), "unknown-key", "5:1", `"hooks"`},
		"an emptied section":            {with("hooks:"), "empty-value", "5:1", ""},
		"a tool without id":             {"name: a\ntools:\n  - {mcp: [x]}", "missing-key", "3:6", ""},
		"a dotted id":                   {"name: a\ntools:\n  - {id: a.b, mcp: [x]}", "bad-name", "3:10", "dot"},
		"two of one id":                 {with("  - {id: acme, mcp: [y]}"), "duplicate-name", "5:10", ""},
		"neither mcp nor url":           {"name: a\ntools:\n  - {id: a}", "missing-key", "3:6", "mcp"},
		"both":                          {"name: a\ntools:\n  - {id: a, mcp: [x], url: 'https://x'}", "missing-key", "3:6", ""},
		"mcp as text":                   {"name: a\ntools:\n  - {id: a, mcp: x -y}", "wrong-type", "3:18", ""},
		"mcp without a program":         {"name: a\ntools:\n  - {id: a, mcp: []}", "empty-list", "3:18", ""},
		"a number in mcp":               {"name: a\ntools:\n  - {id: a, mcp: [x, 80]}", "wrong-type", "3:22", "quotes"},
		"a key in mcp":                  {"name: a\ntools:\n  - {id: a, mcp: [x, --token=ghp_abcdefghijkl]}", "key-in-file", "3:22", ""},
		"an unknown key of a tool":      {"name: a\ntools:\n  - {id: a, mpc: [x]}", "unknown-key", "3:13", `"mcp"`},
		"no address":                    {"name: a\ntools:\n  - {id: a, url: x.example}", "bad-url", "3:18", ""},
		"a password in the address":     {"name: a\ntools:\n  - {id: a, url: 'https://me:pw@x.example'}", "key-in-file", "3:18", ""},
		"plain http":                    {"name: a\ntools:\n  - {id: a, url: 'http://x.example'}", "plain-http", "3:18", ""},
		"env with values":               {"name: a\ntools:\n  - {id: a, mcp: [x], env: {A: b}}", "wrong-type", "3:29", "names"},
		"a value in env":                {"name: a\ntools:\n  - {id: a, mcp: [x], env: [A=b]}", "key-in-file", "3:29", ""},
		"an odd variable":               {"name: a\ntools:\n  - {id: a, mcp: [x], env: [a-b]}", "bad-name", "3:29", ""},
		"env of a remote tool":          {"name: a\ntools:\n  - {id: a, url: 'https://x', env: [A]}", "bad-value", "3:36", ""},
		"a model without purpose":       {"name: a\ntools:\n  - {id: a, mcp: [x], uses_model: {porpose: y}}", "missing-key", "3:36", ""},
		"a remote model":                {"name: a\ntools:\n  - {id: a, url: 'https://x', uses_model: {purpose: y}}", "remote-model", "3:44", ""},
		"a flow with a model":           {"name: a\ntools:\n  - {id: a, flow: f, uses_model: {purpose: y}}", "remote-model", "3:35", ""},
		"a flow":                        {"name: a\ntools:\n  - {id: a, flow: f}", "flow-tool", "3:19", ""},
		"no event":                      {hooks("call: acme.x"), "missing-key", "6:6", "pre_tool_call"},
		"an unknown event":              {hooks("on: pre_tol_call, call: acme.x"), "unknown-value", "6:10", `"pre_tool_call"`},
		"a turn's event":                {hooks("on: incoming_message, call: acme.x"), "unknown-value", "6:10", "job_start"},
		"no call":                       {hooks("on: job_end"), "missing-key", "6:6", ""},
		"a call without function":       {hooks("on: job_end, call: acme"), "bad-call", "6:25", ""},
		"a call of a tool not there":    {hooks("on: job_end, call: acmee.x"), "unknown-tool", "6:25", `"acme"`},
		"a call of another's tool":      {hooks("on: job_end, call: other_plugin.x"), "unknown-tool", "6:25", "tools:"},
		"an unknown key of a hook":      {hooks("on: job_end, call: acme.x, on_timout: deny"), "unknown-key", "6:33", `"on_timeout"`},
		"an unknown key of match":       {hooks("on: job_end, call: acme.x, match: {agent: [x]}"), "unknown-key", "6:41", `"agents"`},
		"match that is a list":          {hooks("on: job_end, call: acme.x, match: [x]"), "wrong-type", "6:40", ""},
		"a match of nothing":            {hooks("on: job_end, call: acme.x, match: {}"), "empty-list", "6:40", ""},
		"a match left empty":            {hooks("on: job_end, call: acme.x, match: "), "empty-value", "6:33", ""},
		"agents left empty":             {hooks("on: job_end, call: acme.x, match: {agents: }"), "empty-value", "6:41", ""},
		"an empty list of tools":        {hooks("on: pre_tool_call, call: acme.x, match: {tools: []}"), "empty-list", "6:54", ""},
		"an empty list of agents":       {hooks("on: job_end, call: acme.x, match: {agents: []}"), "empty-list", "6:49", ""},
		"tools on a job's event":        {hooks("on: job_end, call: acme.x, match: {tools: [a.b]}"), "match-tools", "6:48", ""},
		"tools on a model's event":      {hooks("on: pre_llm_call, call: acme.x, match: {tools: [a.b]}"), "match-tools", "6:53", ""},
		"a wildcard in match":           {hooks("on: pre_tool_call, call: acme.x, match: {tools: ['a.*']}"), "bad-match", "6:55", "exactly"},
		"a bare tool in match":          {hooks("on: pre_tool_call, call: acme.x, match: {tools: [a]}"), "bad-match", "6:55", ""},
		"a wildcard of agents":          {hooks("on: job_end, call: acme.x, match: {agents: ['a-*']}"), "bad-match", "6:50", ""},
		"too long a time":               {hooks("on: job_end, call: acme.x, timeout: 31s"), "bad-timeout", "6:42", ""},
		"too long, in seconds":          {hooks("on: job_end, call: acme.x, timeout: 30.5"), "bad-timeout", "6:42", ""},
		"no time":                       {hooks("on: job_end, call: acme.x, timeout: 0s"), "bad-timeout", "6:42", ""},
		"a time left empty":             {hooks("on: job_end, call: acme.x, timeout: "), "empty-value", "6:33", ""},
		"another on_timeout":            {hooks("on: job_end, call: acme.x, on_timeout: Deny"), "unknown-value", "6:45", `"deny"`},
		"a modify on timeout":           {hooks("on: job_end, call: acme.x, on_timeout: modify"), "unknown-value", "6:45", ""},
		"other decisions":               {hooks("on: job_end, call: acme.x, decisions: [allow, deny]"), "bad-decisions", "6:44", ""},
		"decisions the other way round": {hooks("on: job_end, call: acme.x, decisions: [escalate, allow]"), "bad-decisions", "6:44", ""},
		"fewer decisions":               {hooks("on: job_end, call: acme.x, decisions: [escalate]"), "bad-decisions", "6:44", ""},
		"no decisions":                  {hooks("on: job_end, call: acme.x, decisions: []"), "empty-list", "6:44", ""},
		"decisions left empty":          {hooks("on: job_end, call: acme.x, decisions: "), "empty-value", "6:33", ""},
		"escalate-only that denies":     {hooks("on: job_end, call: acme.x, decisions: [allow, escalate], on_timeout: deny"), "bad-on-timeout", "6:75", ""},
		"escalate-only that allows":     {hooks("on: job_end, call: acme.x, decisions: [allow, escalate], on_timeout: allow"), "bad-on-timeout", "6:75", ""},
		"a scan of something else":      {hooks("on: job_end, call: acme.x, scan: [pii]"), "unknown-value", "6:40", ""},
		"a scan of nothing":             {hooks("on: job_end, call: acme.x, scan: []"), "empty-list", "6:39", ""},
		"a scan of a call":              {hooks("on: pre_tool_call, call: acme.x, scan: [secrets]"), "scan-event", "6:45", "job_end"},
		"a scan of an input":            {hooks("on: job_start, call: acme.x, scan: [secrets]"), "scan-event", "6:41", ""},
		"a remote scan":                 {hooks("on: job_end, call: far.x, scan: [secrets]"), "remote-scan", "6:38", ""},
		"another mode":                  {hooks("on: job_end, call: acme.x, mode: shadow"), "unknown-value", "6:39", "observe"},
		"a hook that is text":           {with("hooks: [x]"), "wrong-type", "5:9", ""},
		"an agent without a model":      {with("agents: [{id: a, instructions: x}]"), "missing-key", "5:11", ""},
		"an agent without anything":     {with("agents: [{id: a}]"), "missing-key", "5:11", ""},
		"an agent with both":            {with("agents: [{id: a, instructions: x, folder: agents/y, model: m}]"), "missing-key", "5:11", ""},
		"a folder that is not there":    {with("agents: [{id: a, folder: agents/z}]"), "missing-file", "5:26", ""},
		"a folder of something else":    {with("agents: [{id: a, folder: empty}]"), "missing-file", "5:26", "agent.yml"},
		"instructions not there":        {with("agents: [{id: a, instructions: {file: none.md}, model: m}]"), "missing-file", "5:39", ""},
		"instructions outside":          {with("agents: [{id: a, instructions: {file: ../x.md}, model: m}]"), "outside-folder", "5:39", ""},
		"instructions by a link":        {with("agents: [{id: a, instructions: {file: out.md}, model: m}]"), "unreadable-file", "5:39", ""},
		"blank instructions":            {with("agents: [{id: a, instructions: {file: blank.md}, model: m}]"), "empty-file", "5:39", ""},
		"two agents of one id":          {with("agents: [{id: a, folder: agents/y}, {id: a, folder: agents/y}]"), "duplicate-name", "5:42", ""},
		"an agent's odd pattern":        {with("agents: [{id: a, folder: agents/y, tools: ['*']}]"), "bad-pattern", "5:44", ""},
		"an agent without end":          {with("agents: [{id: a, folder: agents/y, limits: {iterations: 0}}]"), "bad-value", "5:57", ""},
		"an agent for ever":             {with("agents: [{id: a, folder: agents/y, limits: {wall_time: 900h}}]"), "bad-value", "5:56", ""},
		"a policy that is not there":    {with("policy: none.yaml"), "missing-file", "5:9", ""},
		"a policy with a mistake":       {with("policy: {rules: [{tools: [a.b], verdict: alow}]}"), "unknown-value", "5:42", ""},
		"a policy that allows":          {with("policy: {rules: [{tools: [a.b], verdict: allow}]}"), "policy-loosens", "5:19", ""},
		"a policy with defaults":        {with("policy: {defaults: {other: allow}}"), "policy-loosens", "5:21", ""},
		"tests that are not there":      {with("tests: [none.yaml]"), "missing-file", "5:9", ""},
		"tests outside":                 {with("tests: [/etc]"), "outside-folder", "5:9", ""},
		"a folder without tests":        {with("tests: [empty]"), "missing-file", "5:9", ""},
		"syntax":                        {"name: [", "yaml-syntax", "1:7", ""},
	} {
		t.Run(name, func(t *testing.T) {
			m, findings := plugin.Read(folder(t, map[string]string{
				plugin.File: c.text, "agents/y/agent.yml": "x", "empty/notes.md": "x", "blank.md": "\n", "out.md": "->../../x.md",
			}))
			if m == nil {
				t.Fatal("no manifest")
			}
			place := plugin.File
			if c.place != "" {
				place += ":" + c.place + ": "
			}
			text := report(t, findings)
			i := slices.IndexFunc(findings, func(f finding.Finding) bool { return f.Rule == c.rule })
			if i < 0 || !strings.Contains(text, place) || !strings.Contains(findings[i].Hint, c.hint) {
				t.Errorf("want %s at %s, hint %q:\n%s", c.rule, place, c.hint, text)
			}
			if strings.Contains(text, "ghp_") || strings.Contains(text, "pw@") {
				t.Errorf("quotes a key:\n%s", text)
			}
			described(t, findings)
		})
	}
}

func described(t *testing.T, findings []finding.Finding) {
	t.Helper()
	for _, f := range findings {
		if !slices.ContainsFunc(plugin.Rules(), func(r finding.Rule) bool { return r.ID == f.Rule }) {
			t.Errorf("rule %s is not described", f.Rule)
		}
	}
}

// Of another platform's manifest, what cannot be used is left out with a warning,
// but tools and hooks are read as strictly as ours.
func TestTheOtherPlatformsSections(t *testing.T) {
	m, findings := plugin.Read(folder(t, map[string]string{plugin.OtherFile: acme + `
connectors: [{id: x}]
agent: []
agents:
  - {id: one, instructions: x, model: m, sandbox: strict}
  - {id: two, instructions: x, model: m}
policy: {allow: everything}
tests: [{name: x}]
empty:
`}))
	if finding.HasErrors(findings) {
		t.Fatal(report(t, findings))
	}
	text := report(t, findings)
	for _, named := range []string{`"connectors"`, `"agent"`, `"empty"`, `"policy"`, "sandbox", "tests"} {
		if !strings.Contains(text, named) {
			t.Errorf("%s is not named in\n%s", named, text)
		}
	}
	if len(m.Agents) != 1 || m.Agents[0].ID != "two" || m.Policy != nil || len(m.Tests) != 0 || len(m.Hooks) != 2 {
		t.Errorf("got %+v", m)
	}
	described(t, findings)
	for _, bad := range []string{"    shadow: x\n", "    on_timeout: perhaps\n", "    match: {}\n"} {
		if _, findings := plugin.Read(folder(t, map[string]string{plugin.OtherFile: strings.TrimSuffix(acme, "    match: { agents: [acme-reviewer] }\n") + bad})); !finding.HasErrors(findings) {
			t.Errorf("%s is no error", bad)
		}
	}
	for _, emptied := range []string{strings.Replace(acme, "acme-policy", "", 1), acme[:strings.Index(acme, "  - on")]} {
		if _, findings := plugin.Read(folder(t, map[string]string{plugin.OtherFile: emptied})); !finding.HasErrors(findings) {
			t.Errorf("what was emptied is no error:\n%s", emptied)
		}
	}
	flow := strings.Replace(acme, "tools:\n", "tools:\n  - {id: flown, flow: x}\n", 1)
	if m, findings := plugin.Read(folder(t, map[string]string{plugin.OtherFile: flow})); finding.HasErrors(findings) || len(findings) != 1 || m.Tool("flown") != nil {
		t.Error(report(t, findings))
	}
}

func TestFolders(t *testing.T) {
	pipes := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(pipes, plugin.File), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ dir, rule string }{
		"none":          {filepath.Join(t.TempDir(), "none"), "no-folder"},
		"a file":        {filepath.Join(folder(t, map[string]string{"x": "y"}), "x"), "no-folder"},
		"no manifest":   {t.TempDir(), "no-manifest"},
		"another name":  {folder(t, map[string]string{"belay-plugin.yml": acme}), "no-manifest"},
		"a pipe":        {pipes, "unreadable-file"},
		"a broken link": {folder(t, map[string]string{plugin.File: "->nowhere"}), "unreadable-file"},
		"a link out":    {folder(t, map[string]string{plugin.File: "->/etc/hostname"}), "unreadable-file"},
		"a huge file":   {folder(t, map[string]string{plugin.File: strings.Repeat("#", 2<<20)}), "unreadable-file"},
	} {
		m, findings := plugin.Read(c.dir)
		if m == nil || len(findings) != 1 || findings[0].Rule != c.rule || findings[0].Severity != finding.Error {
			t.Errorf("%s: %v", name, findings)
		}
		described(t, findings)
	}
	m, findings := plugin.Read(folder(t, map[string]string{plugin.File: acme, plugin.OtherFile: "rubbish"}))
	if m.File != plugin.File || len(findings) != 1 || findings[0].File != plugin.OtherFile || finding.HasErrors(findings) {
		t.Errorf("with both: %v", findings)
	}
}
