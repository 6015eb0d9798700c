package agent_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/belay-run/belay/internal/agent"
	"github.com/belay-run/belay/internal/finding"
)

func FuzzRead(f *testing.F) {
	cases, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range cases {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		part := func(name string) string {
			_, text, _ := strings.Cut(string(data), "-- "+name+" --\n")
			text, _, _ = strings.Cut(text, "-- ")
			return text
		}
		f.Add(part(agent.AgentFile), part(agent.IntegrationsFile), part(agent.ResponsesFile))
	}
	f.Add("a: &a [*a]\nb: !!binary x\n? [c]\n: d\n<<: *a", "\xef\xbb\xbfllm: >+\n\n", "'': \"\\x00\"\n---\n%YAML 1.2")
	f.Fuzz(func(t *testing.T, agentFile, integrations, responses string) {
		dir := t.TempDir()
		write(t, filepath.Join(dir, agent.AgentFile), agentFile)
		write(t, filepath.Join(dir, agent.IntegrationsFile), integrations)
		write(t, filepath.Join(dir, agent.ResponsesFile), responses)
		start := time.Now()
		a, findings := agent.Read(dir)
		if d := time.Since(start); d > 10*time.Second {
			t.Errorf("took %v", d)
		}
		if a == nil || a.Responses == nil || a.Language == "" || a.Limits.Iterations < 1 {
			t.Errorf("not whole: %+v", a)
		}
		if !finding.HasErrors(findings) && (strings.TrimSpace(a.Persona) == "" || a.Model.Provider == "") {
			t.Errorf("no finding for %+v", a)
		}
		for _, x := range findings {
			if x.File == "" || x.Rule == "" || x.Message == "" || x.Hint == "" || x.Line < 0 || x.Column < 0 {
				t.Errorf("not whole: %+v", x)
			}
		}
	})
}
