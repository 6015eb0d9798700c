package plugin_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/plugin"
	"github.com/belay-run/belay/internal/policy"
)

// The pages for authors have every rule in its own words and no other, and their
// samples are read without findings.
func TestDocuments(t *testing.T) {
	ofPolicy := policy.Rules()
	ofPlugin := slices.DeleteFunc(plugin.Rules(), func(r finding.Rule) bool {
		return slices.ContainsFunc(ofPolicy, func(p finding.Rule) bool { return p.ID == r.ID })
	})
	for page, rules := range map[string][]finding.Rule{"tool-policy.md": ofPolicy, "plugin-manifest.md": ofPlugin} {
		raw, err := os.ReadFile("../../docs/" + page)
		if err != nil {
			t.Fatal(err)
		}
		_, table, _ := strings.Cut(string(raw), "## What the check finds")
		for _, r := range rules {
			if row := fmt.Sprintf("| `%s` | %s | %s |\n", r.ID, r.Summary, r.Help); !strings.Contains(table, row) {
				t.Errorf("%s lacks the row\n%s", page, row)
			}
		}
		for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)`").FindAllStringSubmatch(table, -1) {
			if !slices.ContainsFunc(rules, func(r finding.Rule) bool { return r.ID == m[1] }) {
				t.Errorf("%s has a rule %s, which is not there", page, m[1])
			}
		}
		sample := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindStringSubmatch(string(raw))[1]
		if page == "tool-policy.md" {
			if _, findings := policy.Parse(page, []byte(sample)); len(findings) > 0 {
				t.Error(report(t, findings))
			}
			continue
		}
		if _, findings := plugin.Read(folder(t, map[string]string{plugin.File: sample})); len(findings) > 0 {
			t.Error(report(t, findings))
		}
	}
}
