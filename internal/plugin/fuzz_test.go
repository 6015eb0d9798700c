package plugin_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/plugin"
)

// A manifest from anyone is read in time, its findings are whole, and what it
// declares without errors the engine takes.
func FuzzRead(f *testing.F) {
	f.Add(acme, false)
	f.Add(with("hooks:\n  - {on: job_end, call: acme.x, decisions: [allow, escalate], scan: [secrets], match: {agents: [a]}}\npolicy: {limits: [{tools: ['*'], calls: 1}]}"), false)
	f.Add(with("agents: [{id: a, instructions: {file: x.md}, model: m, limits: {wall_time: 1h}}]\ntests: ['*']\nx: &a [*a]"), true)
	f.Fuzz(func(t *testing.T, text string, other bool) {
		dir := t.TempDir()
		file := plugin.File
		if other {
			file = plugin.OtherFile
		}
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		m, findings := plugin.Read(dir)
		if d := time.Since(start); d > 10*time.Second {
			t.Errorf("took %v", d)
		}
		for _, x := range findings {
			if x.File == "" || x.Rule == "" || x.Message == "" || x.Hint == "" || x.Line < 0 || x.Column < 0 {
				t.Errorf("not whole: %+v", x)
			}
		}
		if finding.HasErrors(findings) {
			return
		}
		if m.Name == "" || m.Policy != nil && !m.Policy.Usable() {
			t.Errorf("no finding for %+v", m)
		}
		var engine []*hook.Hook
		for _, d := range m.Declarations() {
			h := d.Hook
			h.Host = hook.Func(nil)
			engine = append(engine, &h)
			if m.Tool(d.Tool) == nil {
				t.Errorf("no tool for %+v", d)
			}
		}
		if _, err := hook.NewEngine(nil, engine...); err != nil {
			t.Errorf("the engine refuses it: %v", err)
		}
		_ = m.Permissions()
		_ = plugin.Lint(m, map[string][]plugin.Function{"acme": {{Name: "x"}}})
	})
}
