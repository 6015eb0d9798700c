//go:build linux

package tests

import (
	"testing"

	"github.com/belay-run/belay/internal/approval"
	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/control"
)

const reviewer = `name: acme-github
tools:
  - {id: acme_github, mcp: [python, server.py]}
agents:
  - {id: acme-reviewer, instructions: Review., model: m, tools: ["acme_github.*"]}
  - {id: other, instructions: Work., model: m, tools: ["acme_github.*"]}
`

const reviewerServer = `
from mcp.server import MCPServer

server = MCPServer("acme-github")


@server.tool()
def merge(branch: str) -> str:
    return "merged " + branch


server.run()
`

// The sample of the page for authors guards the jobs of another plugin's agent.
func TestPluginOfAnotherPlatform(t *testing.T) {
	t.Parallel()
	merge := func(branch string) []chat.Response {
		return []chat.Response{does("acme_github.merge", `{"branch": "`+branch+`"}`), says("Merged.")}
	}
	j := newJobs(t, &playing{by: map[string][]chat.Response{"main": merge("main"), "feature": merge("feature"), "other": merge("feature")}})
	j.server("server.py", reviewerServer)
	j.manifest(reviewer)
	j.open()
	j.install()
	j.policy("rules:\n  - {name: tools, tools: [acme_github.merge], verdict: allow}\n")
	if _, err := j.st.InstallPlugin(t.Context(), j.me, control.PluginOrder{Path: pluginFolder(t, acmePolicy)}); err != nil {
		t.Fatal(err)
	}
	t.Run("P90 its hooks guard the calls of jobs", func(t *testing.T) {
		id := j.startOf("acme-reviewer", "main")
		a := j.waitsIn(id)
		if r := a.Request; r.Kind != approval.Hook || r.Tool != "acme_github.merge" || r.Reasons[0].By != "acme_policy.check" || r.Reasons[0].Text != "a push to main" {
			t.Errorf("asked %+v", r)
		}
		j.decide(a, approval.Answer{Yes: true})
		completed(t, j.end(id), "Merged.\n\nChecked by policy.")
		j.read(t, "main", "merged main")
	})
	t.Run("P90 and their answers", func(t *testing.T) {
		completed(t, j.end(j.startOf("acme-reviewer", "feature")), "Merged.\n\nChecked by policy.")
		j.read(t, "feature", "merged feature")
		completed(t, j.end(j.startOf("other", "other")), "Merged.")
	})
}
