package tests

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/belay-run/belay/internal/job"
	"github.com/belay-run/belay/internal/sqlstore"
	"github.com/belay-run/belay/internal/station"
)

// An agent whose tools cannot be asked what they offer does not work without them.
func TestAnAgentWithoutItsTools(t *testing.T) {
	t.Parallel()
	j := newJobs(t, &playing{list: nil})
	j.manifest(strings.Replace(strings.Replace(manifestHead, "    env: [PROBE]\n", "", 1), "server.py", "missing.py", 1))
	j.open()
	j.install()
	j.policy(allowTools)
	end := j.run("go")
	if end.State != job.Failed || end.Code != "ToolsUnavailable" || !strings.HasPrefix(end.Reason, "tool probe: ") {
		t.Errorf("ended as %+v", end)
	}
	if n := len(j.model.requests()); n != 0 {
		t.Errorf("the model was asked %d times", n)
	}
}

func TestDoctorLooksAtSettings(t *testing.T) {
	t.Parallel()
	j := newJobs(t, &playing{list: nil})
	settings := filepath.Join(j.data, "belay.yaml")
	first := "models:\n  default: {provider: openai-compatible, model: x, base_url: \"http://127.0.0.1:9/v1\"}\nprices: {y: {input: 1, output: 1}}\n" +
		"budgets: {job: {cost: 1}, agents: {workr: {cost: 1, per: day}}}\n"
	j.write(settings, first)
	j.manifest(strings.Replace(manifestHead, "    env: [PROBE]\n", "", 1))
	j.open()
	j.install()
	look := func() string {
		found, err := j.st.Checkup(t.Context(), "main")
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		for _, c := range found {
			out.WriteString(string(c.Level) + " " + c.About + ": " + c.Text + "\n")
		}
		return out.String()
	}
	said := look()
	for _, want := range []string{
		"warning budgets: a budget is for agent workr, which no installed plugin has",
		"error model default: it has no price, and there is a budget of money: it is not asked",
		"note prices: a price is for y, which no model is",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("nothing of %q in:\n%s", want, said)
		}
	}
	if strings.Contains(said, "belay.yaml") && strings.Contains(said, "it has changed") {
		t.Errorf("nothing has changed:\n%s", said)
	}
	j.write(settings, first+"listen: 127.0.0.1:7422\n")
	if said := look(); !strings.Contains(said, "warning belay.yaml: it has changed since it was read") {
		t.Errorf("it has changed:\n%s", said)
	}
	j.write(settings, first+"bogus: 1\n")
	if said := look(); !strings.Contains(said, "error belay.yaml: 5:1: ") {
		t.Errorf("it is broken:\n%s", said)
	}
	if _, err := station.Open(t.Context(), station.Config{Data: j.data}); !errors.Is(err, sqlstore.ErrInUse) {
		t.Errorf("who looks for the owner is told %v, not who that is", err)
	}
	if _, err := j.st.Jobs(t.Context(), job.Filter{Tenant: "main"}); err != nil {
		t.Errorf("what runs goes on: %v", err)
	}
}
