package tests

import (
	"bufio"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/internal/app"
	"github.com/belay-run/belay/internal/app/apptest"
	"github.com/belay-run/belay/internal/convtest"
)

func TestExamplesHaveNoFindings(t *testing.T) {
	t.Parallel()
	dirs, err := filepath.Glob("../examples/*/agent.yml")
	if err != nil || len(dirs) < 2 {
		t.Fatalf("examples: %v %v", dirs, err)
	}
	for _, file := range dirs {
		findings, _, err := app.Check(t.Context(), app.Config{Dir: filepath.Dir(file)})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range findings {
			t.Errorf("%s: %s:%d %s: %s", filepath.Dir(file), f.File, f.Line, f.Rule, f.Message)
		}
	}
}

// TestDemo runs the clinic's demo conversation and looks at what the user hears
// and at what must be nowhere.
func TestDemo(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	a := apptest.StartIn(t, "../examples/clinic", func(c *app.Config) { c.Data = data })
	f, err := os.Open("../examples/clinic/demo.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	want := []string{
		"Thank you. Is there anything else?",
		"I can book a check-up for you. Which day suits you?",
		"Let me look into the calendar.\nDr. Weber has 9:00 free. Shall I book it?",
		"Shall I book Dr. Weber on Monday at 10:30 for you?",
		"Your appointment is booked. See you then!\nCan I do anything else for you?",
		"Please bring your insurance card and a list of the medicines you take.",
		"What is your patient number? It begins with P.",
		"I have found the file of Ada Jones.",
		"I may not say that. Please ask one of our doctors.",
	}
	asked := map[string]bool{}
	lines := bufio.NewScanner(f)
	for i := 0; lines.Scan(); i++ {
		if i >= len(want) {
			t.Fatalf("the demo has more lines than %d", len(want))
		}
		r := a.Say("demo", lines.Text())
		if got := r.Text(); got != want[i] {
			t.Errorf("%q was answered with %q, not %q", lines.Text(), got, want[i])
		}
		for _, l := range r.Report.Lines {
			if l.Asked+l.Observers > 0 {
				asked[l.Point] = true
			}
		}
	}
	for _, p := range hook.Points {
		if p.Dialect == hook.Turn && !asked[p.Name] {
			t.Errorf("no hook of the demo was asked at %s", p.Name)
		}
	}
	kept := a.AllRequests() + a.TraceText("demo") + a.Log()
	for _, e := range a.Events("demo") {
		kept += e.Text
		if e.Tool != nil {
			kept += e.Tool.Result
		}
	}
	for _, secret := range []string{"4111 1111", "0171 2345678", "77-231-9", "1961-04-02"} {
		if strings.Contains(kept, secret) {
			t.Errorf("%q got past the hooks", secret)
		}
	}
}

// TestExamplesPassTheirTests runs the conversations that the examples bring.
func TestExamplesPassTheirTests(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"bank", "clinic"} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join("..", "examples", name)
			paths, err := filepath.Glob(filepath.Join(dir, "tests", "*.yml"))
			if err != nil || len(paths) == 0 {
				t.Fatalf("%d files, %v", len(paths), err)
			}
			var files []*convtest.File
			for _, path := range paths {
				f, findings := convtest.Read(path)
				if len(findings) > 0 {
					t.Fatal(findings)
				}
				files = append(files, f)
			}
			report, err := convtest.Run(t.Context(), convtest.Config{App: app.Config{Dir: dir}}, files)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range report.Files {
				for _, r := range f.Results {
					if r.Status == convtest.Passed {
						continue
					}
					var b strings.Builder
					if err := convtest.WriteFile(&b, f, false); err != nil {
						t.Fatal(err)
					}
					t.Fatal(b.String())
				}
			}
		})
	}
}
