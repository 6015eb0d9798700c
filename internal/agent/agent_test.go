package agent_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belay-run/belay/internal/agent"
	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/skill"
	"github.com/belay-run/belay/internal/yamlfile"
)

var update = flag.Bool("update", false, "write what the cases want anew")

// Each case in testdata is a folder, with the findings that it wants as text and
// the agent as JSON when there is no error.
func TestCases(t *testing.T) {
	cases, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(cases) == 0 {
		t.Fatal("no cases", err)
	}
	for _, path := range cases {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			given, want, ok := strings.Cut(string(data), "-- want --\n")
			if !ok && !*update {
				t.Fatal("the case has no want")
			}
			dir := filepath.Join(t.TempDir(), "my agent")
			unpack(t, dir, given)
			got := report(t, dir)
			if *update {
				if err := os.WriteFile(path, []byte(given+"-- want --\n"+string(got)), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if string(got) != want {
				t.Errorf("got (run with -update to accept):\n%s", got)
			}
		})
	}
}

// unpack writes the files of a txtar archive, each of which begins with a line
// "-- name --".
func unpack(t *testing.T, dir, archive string) {
	t.Helper()
	name, text := "", ""
	for line := range strings.Lines(archive + "-- end --\n") {
		if head, ok := strings.CutPrefix(line, "-- "); ok && strings.HasSuffix(head, " --\n") {
			if name != "" {
				write(t, filepath.Join(dir, name), text)
			}
			name, text = strings.TrimSuffix(head, " --\n"), ""
			continue
		}
		text += line
	}
}

func report(t *testing.T, dir string) []byte {
	t.Helper()
	a, findings := agent.Read(dir)
	var b bytes.Buffer
	if err := finding.Text(&b, findings); err != nil {
		t.Fatal(err)
	}
	if !finding.HasErrors(findings) {
		a.Dir = ""
		if a.Skills != nil { // without Belay's own
			own := *a.Skills
			own.Skills = slices.DeleteFunc(slices.Clone(own.Skills), func(k *skill.Skill) bool { return k.Builtin })
			a.Skills = &own
		}
		own := map[string]any{}
		for _, name := range a.Responses.Names() {
			if a.Responses.Own(name) {
				text, rephrase, _ := a.Responses.Pick(name, nil)
				own[name] = map[string]any{"text": text, "rephrase": rephrase}
			}
		}
		enc := json.NewEncoder(&b)
		enc.SetIndent("", "  ")
		enc.SetEscapeHTML(false)
		type plain agent.Agent
		if err := enc.Encode(struct {
			*plain
			Model     any
			Responses any
		}{(*plain)(a), shownModel(a.Model), own}); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

func shownModel(m agent.Model) any {
	return struct {
		agent.Model
		Script string
		Sent   map[string]json.RawMessage
	}{m, string(m.Script), m.Settings()}
}

func read(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

const (
	goodAgent        = "agent:\n  id: a\n  persona: You are a test.\n"
	goodIntegrations = "llm:\n  provider: openai\n  model: gpt-4o-mini\n  api_key_env: OPENAI_API_KEY\n"
)

func good(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "agent.yml"), goodAgent)
	write(t, filepath.Join(dir, "integrations.yml"), goodIntegrations)
	return dir
}

// rules lists what was found, as "file:rule".
func rules(findings []finding.Finding) []string {
	var out []string
	for _, f := range findings {
		out = append(out, f.File+":"+f.Rule)
	}
	return out
}

func expect(t *testing.T, dir string, want ...string) {
	t.Helper()
	_, findings := agent.Read(dir)
	if got := rules(findings); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
		_ = finding.Text(os.Stderr, findings)
	}
}

func TestAGoodFolderHasNoFindings(t *testing.T) { expect(t, good(t)) }

func TestFolders(t *testing.T) {
	dir := t.TempDir()
	expect(t, filepath.Join(dir, "nowhere"), ".:no-folder")
	expect(t, dir, ".:empty-folder")
	file := filepath.Join(dir, "file")
	write(t, file, "x")
	expect(t, file, ".:no-folder")
	expect(t, dir, "agent.yml:missing-agent-yml", "integrations.yml:missing-model")
	expect(t, "\x00", ".:no-folder")
}

func TestLineEndsAndByteOrderMark(t *testing.T) {
	dir := good(t)
	write(t, filepath.Join(dir, "agent.yml"), "\xef\xbb\xbfagent:\r\n  id: crlf\r\n  persona: |\r\n    Line one.\r\n    Line two.\r\nrulez: []\r\n")
	a, findings := agent.Read(dir)
	if len(findings) != 1 || findings[0].Rule != "unknown-key" || findings[0].Line != 6 || findings[0].Column != 1 {
		t.Errorf("findings: %+v", findings)
	}
	if a.ID != "crlf" || a.Persona != "Line one.\nLine two.\n" {
		t.Errorf("id %q, persona %q", a.ID, a.Persona)
	}
}

func TestBadBytes(t *testing.T) {
	dir := good(t)
	write(t, filepath.Join(dir, "agent.yml"), "agent:\n  persona: \"\xff\"\n")
	expect(t, dir, "agent.yml:bad-encoding")
}

// The bounds of YAML are tried where it is read.
func TestSizes(t *testing.T) {
	for text, rule := range map[string]string{
		"agent:\n  persona: " + strings.Repeat("x", 2<<20): "file-too-large",
		strings.Repeat("k: 1\n", 20_000):                   "yaml-too-complex",
	} {
		dir := good(t)
		write(t, filepath.Join(dir, "agent.yml"), text)
		expect(t, dir, "agent.yml:"+rule)
	}
}

func TestLinks(t *testing.T) {
	outside := t.TempDir()
	write(t, filepath.Join(outside, "agent.yml"), goodAgent)
	write(t, filepath.Join(outside, "note.md"), "secret")
	link := func(t *testing.T, dir, target, name string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		_ = os.Remove(filepath.Join(dir, name)) // a good file may stand there
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		name, target, at string
		want             []string
	}{
		{"agent.yml", filepath.Join(outside, "agent.yml"), "agent.yml", []string{"agent.yml:outside-folder"}},
		{"relative", "../../../../../../../../../../etc/passwd", "references/x.md", []string{"references/x.md:outside-folder"}},
		{"folder", outside, "references", []string{"references:outside-folder"}},
		{"folder below", outside, "lib/vendor", []string{"lib/vendor:outside-folder"}},
		{"hooks.py", filepath.Join(outside, "note.md"), "hooks.py", []string{"hooks.py:outside-folder"}},
		{"nowhere", "gone", "tools/x.py", []string{"tools/x.py:outside-folder"}},
		{"loop", "x.py", "hooks/x.py", []string{"hooks/x.py:outside-folder"}},
		{"folder inside", "../hooks", "references/h", []string{"references/h:linked-folder"}},
		{"file inside", "../agent.yml", "references/a.md", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := good(t)
			write(t, filepath.Join(dir, "hooks/ok.py"), "")
			link(t, dir, tt.target, tt.at)
			expect(t, dir, tt.want...)
		})
	}
}

func TestOddFiles(t *testing.T) {
	t.Run("folders in the place of files", func(t *testing.T) {
		dir := good(t)
		for _, name := range []string{"responses.yml", "hooks.py"} {
			if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		write(t, filepath.Join(dir, "references"), "a file")
		expect(t, dir, "hooks.py:unreadable-file", "references:unreadable-file", "responses.yml:unreadable-file")
	})
	t.Run("a pipe does not block", func(t *testing.T) {
		dir := good(t)
		if err := syscall.Mkfifo(filepath.Join(dir, "responses.yml"), 0o644); err != nil {
			t.Skip(err)
		}
		expect(t, dir, "responses.yml:unreadable-file")
	})
	t.Run("no permission", func(t *testing.T) {
		if os.Getuid() == 0 || runtime.GOOS == "windows" {
			t.Skip("permissions do not bind this user")
		}
		dir := good(t)
		if err := os.Chmod(filepath.Join(dir, "agent.yml"), 0); err != nil {
			t.Fatal(err)
		}
		expect(t, dir, "agent.yml:unreadable-file")
	})
}

func TestTheFolderNamesTheAgent(t *testing.T) {
	for name, want := range map[string]string{"my agent!": "my-agent", "clinic": "clinic", "ünï": "n", "...x": "x"} {
		dir := filepath.Join(t.TempDir(), name)
		write(t, filepath.Join(dir, "agent.yml"), "agent: {persona: x}\n")
		if a, _ := agent.Read(dir); a.ID != want {
			t.Errorf("%q: id %q, want %q", name, a.ID, want)
		}
	}
}

// A key must not be repeated in any report, wherever it was written.
func TestNoKeyIsShown(t *testing.T) {
	const secret = "sk-proj-4f6a8b2c9d1e"
	for _, integrations := range []string{
		"llm: {provider: openai, model: gpt, api_key: " + secret + "}",
		"llm: {provider: openai, model: gpt, api_key_env: " + secret + "}",
		"llm: {provider: openai, model: gpt, api_key_env: [" + secret + "]}",
		"llm: {provider: openai, model: gpt, " + secret + ": x}",
		"llm: {provider: openai, model: " + secret + "}",
		"llm: {provider: openai, model: gpt, base_url: 'https://u:" + secret + "@example.org'}",
		"llm: {provider: openai, model: gpt, headers: {Authorization: Bearer " + secret + "}}",
		"llm: {provider: openai, model: gpt, temperature: " + secret + "}",
		"llm: {model_group: " + secret + "}",
		"llm: " + secret,
		"llm: {provider: scripted, script: " + secret + "}",
		secret + ": " + secret,
		secret,
		"channels: {telegram: {access_token: " + secret + "}}",
		"model_groups: [{id: x, models: [{provider: openai, model: m, api_key: " + secret + "}]}]",
		"llm: &" + secret + " *" + secret,
		"llm: !" + secret + " x",
		"llm: {provider: openai\n  model: \"" + secret + "\n",
		"? " + secret + "\n: - " + secret + "\n  x",
		"%" + secret + "\n",
		"llm: |" + secret,
	} {
		dir := good(t)
		write(t, filepath.Join(dir, "integrations.yml"), integrations)
		_, findings := agent.Read(dir)
		if !finding.HasErrors(findings) {
			t.Errorf("no finding for %s", integrations)
		}
		var b bytes.Buffer
		for _, err := range []error{finding.Text(&b, findings), finding.JSON(&b, findings), finding.SARIF(&b, findings, agent.Rules(), "")} {
			if err != nil {
				t.Fatal(err)
			}
		}
		if strings.Contains(b.String(), "4f6a8b2c9d1e") {
			t.Errorf("the key is shown for %s:\n%s", integrations, &b)
		}
	}
}

// Every rule that the code names is described, and every described one is named.
func TestRulesAreComplete(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	re := regexp.MustCompile(`(?:\.Err|\.Warn|f\.linked)\((?:[^"\n]*, )?"([a-z-]+)"|m\.ScriptFile, "([a-z-]+)"`)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") || file == "rules.go" {
			continue
		}
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range re.FindAllStringSubmatch(string(src), -1) {
			used[m[1]+m[2]] = true
		}
	}
	for _, r := range yamlfile.Rules() { // its own tests see to those
		if slices.ContainsFunc(agent.Rules(), func(o finding.Rule) bool { return o.ID == r.ID }) {
			used[r.ID] = true
		}
	}
	described := map[string]bool{}
	for _, r := range agent.Rules() {
		if described[r.ID] || r.Summary == "" || r.Help == "" {
			t.Errorf("rule %q is there twice or not described", r.ID)
		}
		described[r.ID] = true
		if !used[r.ID] {
			t.Errorf("no code makes a finding of rule %q", r.ID)
		}
	}
	for id := range used {
		if !described[id] {
			t.Errorf("rule %q is not described", id)
		}
	}
	if !slices.IsSortedFunc(agent.Rules(), func(a, b finding.Rule) int { return strings.Compare(a.ID, b.ID) }) {
		t.Error("the rules are not sorted")
	}
}

func TestKeep(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"conversations: {keep: 90d}":            90 * 24 * time.Hour,
		"conversations: {keep: 1h}":             time.Hour,
		"conversations: {keep: \"090m\"}":       90 * time.Minute,
		"conversations: {keep: 36500d}":         36500 * 24 * time.Hour,
		"belay: {conversations: {keep: 2h}}":    2 * time.Hour,
		"conversations:":                        0,
		"belay: {limits: {queue: 1}}":           0,
		"conversations: {keep: 59m}":            -1,
		"conversations: {keep: 0d}":             -1,
		"conversations: {keep: -90d}":           -1,
		"conversations: {keep: 90}":             -1,
		"conversations: {keep: 1.5d}":           -1,
		"conversations: {keep: 90 d}":           -1,
		"conversations: {keep: 90D}":            -1,
		"conversations: {keep: 12w}":            -1,
		"conversations: {keep: 1d12h}":          -1,
		"conversations: {keep: 36501d}":         -1,
		"conversations: {keep: 9999999d}":       -1,
		"conversations: {keep: 99999999999d}":   -1,
		"conversations: {keep: forever}":        -1,
		"conversations: {keep: [90d]}":          -1,
		"conversations: {keep: true}":           -1,
		"belay: {conversations: {keep: never}}": -1,
	} {
		dir := good(t)
		write(t, filepath.Join(dir, "agent.yml"), goodAgent+text+"\n")
		a, findings := agent.Read(dir)
		if want < 0 {
			if got := rules(findings); !slices.Equal(got, []string{"agent.yml:bad-value"}) || a.Keep != 0 {
				t.Errorf("%s: %v, kept %v", text, got, a.Keep)
			}
		} else if len(findings) > 0 || a.Keep != want {
			t.Errorf("%s: kept %v, not %v; %v", text, a.Keep, want, rules(findings))
		}
	}
}
