package finding_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/belay-run/belay/internal/finding"
)

var update = flag.Bool("update", false, "write the golden files anew")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (run with -update)", err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs (run with -update to accept):\n%s", path, got)
	}
}

func sample() []finding.Finding {
	return finding.Clean([]finding.Finding{
		{File: "integrations.yml", Line: 3, Column: 5, Rule: "key-in-file", Severity: finding.Error, Message: "a key stands in the file", Hint: "name an environment variable in api_key_env"},
		{File: "agent.yml", Line: 10, Column: 1, Rule: "unknown-key", Severity: finding.Error, Message: `unknown key "rulez"`, Hint: `did you mean "rules"?`},
		{File: "agent.yml", Line: 2, Column: 3, Rule: "not-acted-on", Severity: finding.Warning, Message: "session_config is accepted but not acted on", Hint: "nothing to do"},
		{File: "agent.yml", Line: 2, Column: 3, Rule: "not-acted-on", Severity: finding.Warning, Message: "session_config is accepted but not acted on", Hint: "nothing to do"},
	}, []finding.Finding{
		{File: "hooks/a b\x1b[31m.py", Line: 0, Rule: "import-error", Severity: finding.Error, Message: "two\nlines", Hint: "x"},
	})
}

var sampleRules = []finding.Rule{{ID: "unknown-key", Summary: "A key that the file does not have.", Help: "A mistyped key would be passed over."}}

func TestReports(t *testing.T) {
	for name, fs := range map[string][]finding.Finding{"sample": sample(), "none": nil} {
		t.Run(name, func(t *testing.T) {
			var text, js, sarif bytes.Buffer
			for _, err := range []error{
				finding.Text(&text, fs), finding.JSON(&js, fs), finding.SARIF(&sarif, fs, sampleRules, "0.1.0"),
			} {
				if err != nil {
					t.Fatal(err)
				}
			}
			golden(t, name+".txt", text.Bytes())
			golden(t, name+".json", js.Bytes())
			golden(t, name+".sarif", sarif.Bytes())
		})
	}
}

func TestCleanLeavesItsArguments(t *testing.T) {
	in := []finding.Finding{{File: "b"}, {File: "a"}}
	got := finding.Clean(in)
	if in[0].File != "b" || got[0].File != "a" {
		t.Errorf("got %v from %v", got, in)
	}
}

func TestAnUnknownSeverityCounts(t *testing.T) {
	if !finding.HasErrors([]finding.Finding{{Severity: "fatal"}}) {
		t.Error("a finding of unknown severity lets the agent serve")
	}
	if finding.HasErrors([]finding.Finding{{Severity: finding.Warning}}) {
		t.Error("a warning keeps the agent from serving")
	}
}

// The fields that the SARIF 2.1.0 schema requires, and the references inside.
func TestSARIFHasWhatItsSchemaRequires(t *testing.T) {
	var buf bytes.Buffer
	if err := finding.SARIF(&buf, sample(), sampleRules, ""); err != nil {
		t.Fatal(err)
	}
	var log struct {
		Version string
		Runs    []struct {
			Tool struct {
				Driver struct {
					Name  string
					Rules []struct {
						ID   string
						Help struct{ Text string }
					}
				}
			}
			Results []struct {
				RuleID    string
				RuleIndex int
				Level     string
				Message   struct{ Text string }
				Locations []struct {
					PhysicalLocation struct {
						ArtifactLocation struct{ URI string }
						Region           *struct{ StartLine int }
					}
				}
			}
		}
	}
	if err := json.Unmarshal(buf.Bytes(), &log); err != nil {
		t.Fatal(err)
	}
	if log.Version != "2.1.0" || len(log.Runs) != 1 || log.Runs[0].Tool.Driver.Name == "" {
		t.Fatalf("bad head: %+v", log)
	}
	rules := log.Runs[0].Tool.Driver.Rules
	for _, r := range rules {
		if r.ID == "" || r.Help.Text == "" {
			t.Errorf("rule without id or help: %+v", r)
		}
	}
	if len(log.Runs[0].Results) != 4 {
		t.Fatalf("%d results", len(log.Runs[0].Results))
	}
	for _, r := range log.Runs[0].Results {
		if rules[r.RuleIndex].ID != r.RuleID {
			t.Errorf("rule index %d is %q, not %q", r.RuleIndex, rules[r.RuleIndex].ID, r.RuleID)
		}
		if r.Message.Text == "" || !slices.Contains([]string{"error", "warning"}, r.Level) {
			t.Errorf("bad result %+v", r)
		}
		for _, l := range r.Locations {
			if l.PhysicalLocation.ArtifactLocation.URI == "" {
				t.Errorf("no uri in %+v", r)
			}
			if g := l.PhysicalLocation.Region; g != nil && g.StartLine < 1 {
				t.Errorf("line %d", g.StartLine)
			}
		}
	}
}
