package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/skill"
	"github.com/belay-run/belay/internal/wording"
	"github.com/belay-run/belay/internal/yamlfile"
)

// parts returns the files of the test cases whose names end in suffix.
func parts(f *testing.F, suffix string) []string {
	f.Helper()
	cases, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(cases) == 0 {
		f.Fatal("no cases", err)
	}
	var out []string
	for _, path := range cases {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		for _, part := range strings.Split(string(data), "\n-- ") {
			if name, text, ok := strings.Cut(part, " --\n"); ok && strings.HasSuffix(name, suffix) {
				out = append(out, text)
			}
		}
	}
	if len(out) == 0 {
		f.Fatalf("the cases have no %s", suffix)
	}
	return out
}

// alone is an agent with two skills that is not on disk. what is read runs within it.
func alone(t *testing.T, what func(lib *library, c *skillReader)) (*Agent, []finding.Finding) {
	t.Helper()
	var findings []finding.Finding
	f := &folder{findings: &findings}
	a := &Agent{Responses: wording.New("en", nil)}
	lib := &library{a: a, f: f, set: &skill.Set{}, reached: map[string]bool{}}
	a.Skills = lib.set
	for _, id := range []string{"other", "x"} {
		k := &skill.Skill{ID: id, File: "skills/" + id + "/skill.md"}
		k.Memory = []*skill.Field{{Namespace: id, Name: "own", Type: skill.Bool}, {Namespace: id, Name: "secret", Type: skill.Text, Private: true}}
		lib.set.Skills = append(lib.set.Skills, k)
	}
	lib.set.Project = []*skill.Field{{Namespace: skill.Project, Name: "city", Type: skill.Text}}
	c := &skillReader{lib: lib, r: f.reader("skills/x/skill.md"), k: lib.set.Skills[1]}
	start := time.Now()
	what(lib, c)
	lib.finish()
	CheckTools(a, []Tool{{Name: "one", File: "skills/x/tools.py"}, {Name: "two", File: "tools/a.py"}})
	if d := time.Since(start); d > 10*time.Second {
		t.Errorf("took %v", d)
	}
	return a, findings
}

func wholeFindings(t *testing.T, text string, fs []finding.Finding) {
	t.Helper()
	lines := strings.Count(text, "\n") + 2
	for _, x := range fs {
		if x.File == "" || x.Rule == "" || x.Message == "" || x.Hint == "" || x.Line < 0 || x.Column < 0 || x.Line > lines || strings.Contains(x.Message, "\n") {
			t.Errorf("not whole: %+v", x)
		}
	}
}

func FuzzSkill(f *testing.F) {
	for _, text := range parts(f, "skill.md") {
		head, body, _ := strings.Cut(text, "\n---\n")
		f.Add(head + "\n---\n")
		for _, part := range strings.Split(body, "\n\n") { // small ones get further
			f.Add("---\n---\n" + part + "\n")
		}
	}
	f.Add("---\n---\n:::ordered_block id=a\nsteps: [{call: a}, {link: a}, {noop: true, next: []}]\n:::\n")
	f.Fuzz(func(t *testing.T, text string) {
		a, fs := alone(t, func(_ *library, c *skillReader) { c.read([]byte(text)) })
		wholeFindings(t, text, fs)
		if finding.HasErrors(fs) {
			return
		}
		for _, b := range a.Skills.Skill("x").Blocks {
			if len(b.Steps) == 0 {
				t.Errorf("block %q has no steps", b.ID)
			}
			for _, s := range b.Steps {
				for _, n := range s.Next {
					if to, _ := b.Step(n.To); to == nil && n.To != skill.End {
						t.Errorf("step %q leads to %q", s.ID, n.To)
					}
				}
				if s.Field != "" && a.Skills.Field(s.Field) == nil {
					t.Errorf("step %q collects %q", s.ID, s.Field)
				}
			}
		}
	})
}

func FuzzMemory(f *testing.F) {
	for _, text := range parts(f, "memory.yml") {
		f.Add(text)
	}
	f.Add("city: {type: text, initial_value: x}\nn: {type: int, initial_value: 1e400}")
	f.Add("a: &a {type: categorical, enum_values: [1, true, x]}\nb: *a\nc: {<<: *a, initial_value: 1.0}")
	f.Fuzz(func(t *testing.T, text string) {
		var findings []finding.Finding
		r := yamlfile.NewReader(MemoryFile, &findings)
		n := r.Parse([]byte(text))
		fields := append(projectMemory(r, n), skillMemory(r, "x", n)...)
		wholeFindings(t, text, findings)
		for _, field := range fields {
			if field.Name == "" || field.Type == "" || field.Namespace == "" {
				t.Errorf("not whole: %+v", field)
			}
			if field.Initial == nil || finding.HasErrors(findings) {
				continue
			}
			if _, err := field.Accept(field.Initial); err != nil {
				t.Errorf("%s begins with %v, which it does not take: %v", field.Name, field.Initial, err)
			}
		}
	})
}

func FuzzResponses(f *testing.F) {
	for _, text := range parts(f, "responses.yml") {
		f.Add(text)
	}
	f.Add("responses: {utter_x: [{text: '{session.x.own} {session.a', condition: own is not 1}]}")
	f.Fuzz(func(t *testing.T, text string) {
		var own map[string][]wording.Variant
		_, fs := alone(t, func(lib *library, _ *skillReader) {
			r := lib.f.reader(ResponsesFile)
			own = lib.responses(r, r.Parse([]byte(text)), "x")
		})
		wholeFindings(t, text, fs)
		book := wording.NewWithSkills("en", nil, map[string]map[string][]wording.Variant{"x": own})
		for name, variants := range own {
			if len(variants) == 0 || !book.Has(name) {
				t.Errorf("%s has nothing to say", name)
			}
			book.PickIn("x", name, map[string]any{"session": map[string]any{"x": map[string]any{"own": true}}})
		}
	})
}
