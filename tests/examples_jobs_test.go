package tests

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/belay-run/belay/internal/access"
	"github.com/belay-run/belay/internal/agentjob"
	"github.com/belay-run/belay/internal/approval"
	"github.com/belay-run/belay/internal/control"
	"github.com/belay-run/belay/internal/job"
	"github.com/belay-run/belay/internal/plugin"
	"github.com/belay-run/belay/internal/plugintest"
	"github.com/belay-run/belay/internal/station"
)

// needServers skips a test of plugins when there is no interpreter with the MCP SDK.
func needServers(t *testing.T) {
	t.Helper()
	if os.Getenv("BELAY_PYTHON") == "" {
		t.Skip("BELAY_PYTHON is not set; make test sets it")
	}
}

// TestPluginExamples lints the examples of plugins and runs their cases, which must
// go through every branch of their hooks.
func TestPluginExamples(t *testing.T) {
	needServers(t)
	t.Setenv("ACME_REPOSITORY", t.TempDir())
	t.Setenv("CRM_TOKEN", "made-up-90f31c22")
	found, err := filepath.Glob("../examples/*/belay-plugin.yaml")
	if err != nil || len(found) < 3 {
		t.Fatalf("examples: %v %v", found, err)
	}
	for _, file := range found {
		dir := filepath.Dir(file)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			report := tryPlugin(t, dir)
			if report == nil {
				t.Fatal("there are no cases")
			}
			if covered, all := report.Coverage.Counts(); covered != all || all == 0 {
				t.Errorf("the cases go through %d of %d branches", covered, all)
			}
		})
	}
}

// tryPlugin lints a plugin, which must have no findings, and runs its cases, which
// must pass. Without cases it gives nil.
func tryPlugin(t *testing.T, dir string) *plugintest.Report {
	t.Helper()
	m, findings := plugin.Read(dir)
	bench := station.NewWorkbench(station.WorkbenchConfig{Manifest: m, Version: "test", Logger: slog.New(slog.DiscardHandler)})
	findings = append(findings, bench.Lint(t.Context())...)
	if err := bench.Close(context.Background()); err != nil {
		t.Error(err)
	}
	var cases []*plugintest.File
	for _, name := range m.Tests {
		c, more := plugintest.Read(filepath.Join(dir, name))
		cases = append(cases, c)
		findings = append(append(findings, more...), plugintest.Check(c, m)...)
	}
	for _, f := range findings {
		t.Errorf("%s:%d %s: %s", f.File, f.Line, f.Rule, f.Message)
	}
	if len(cases) == 0 {
		return nil
	}
	report, err := plugintest.Run(t.Context(), plugintest.Config{Manifest: m, Version: "test", Logger: slog.New(slog.DiscardHandler), Timeout: time.Minute}, cases)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := report.WriteSummary(&text); err != nil {
		t.Error(err)
	}
	if !report.OK() {
		t.Errorf("the cases do not pass:\n%s", text.String())
	}
	return report
}

// pagePlugin writes the plugin whose files stand in a page, each in a block that
// begins with its name.
func pagePlugin(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", page))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, block := range regexp.MustCompile("(?s)```\\w+\\n# my-policy/([\\w.-]+)\\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		if err := os.WriteFile(filepath.Join(dir, block[1]), []byte(block[2]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestPagesHavePluginsThatWork runs what README and docs have people write.
func TestPagesHavePluginsThatWork(t *testing.T) {
	needServers(t)
	for _, page := range []string{"README.md", "docs/plugins.md"} {
		t.Run(page, func(t *testing.T) {
			dir := pagePlugin(t, page)
			tryPlugin(t, dir)
			s := openExample(t, "judge")
			if _, err := s.InstallPlugin(t.Context(), exampleCaller, control.PluginOrder{Path: dir}); err != nil {
				t.Fatal(err)
			}
			id := s.start("clerk", "Order 40 lamps")
			a := s.asked(id)
			if r := a.Request; r.Tool != "desk.order" || len(r.Reasons) != 1 || r.Reasons[0].By != "my_policy.check" || r.Reasons[0].Text != "a large order" {
				t.Errorf("a person is asked %+v", r)
			}
			s.decide(a, true)
			if got := s.ended(id); got != "I ordered 40 lamps." {
				t.Errorf("the answer is %q", got)
			}
		})
	}
}

// exampleJobs is a station with an example's plugin, policy and script.
type exampleJobs struct {
	*station.Station
	t *testing.T
}

const exampleTenant = "main"

var exampleCaller = control.Caller{Tenant: exampleTenant, Name: "ann", Role: access.Admin}

func openExample(t *testing.T, name string) exampleJobs {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("../examples", name))
	if err != nil {
		t.Fatal(err)
	}
	s, err := station.Open(t.Context(), station.Config{Data: t.TempDir(), Model: "scripted/" + filepath.Join(dir, "script.yml")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if _, err := s.InstallPlugin(t.Context(), exampleCaller, control.PluginOrder{Path: dir}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "policy.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.ApplyPolicy(t.Context(), exampleCaller, control.PolicyOrder{Text: string(text)}); err != nil {
		t.Fatal(err)
	}
	return exampleJobs{s, t}
}

func (s exampleJobs) start(agent, input string) job.ID {
	s.t.Helper()
	id, err := s.StartJob(s.t.Context(), exampleCaller, control.JobOrder{Agent: agent, Input: json.RawMessage(`"` + input + `"`)})
	if err != nil {
		s.t.Fatal(err)
	}
	return id
}

// asked waits until the job asks a person.
func (s exampleJobs) asked(id job.ID) control.Approval {
	s.t.Helper()
	changed, stop := s.ApprovalChanges(exampleTenant)
	defer stop()
	over := time.After(patience)
	for {
		waiting, err := s.Approvals(s.t.Context(), exampleTenant, control.ApprovalFilter{Waiting: true, Job: id.Job})
		if err != nil {
			s.t.Fatal(err)
		}
		if len(waiting) > 0 {
			return waiting[0]
		}
		select {
		case <-changed:
		case <-over:
			h, err := s.History(s.t.Context(), id)
			s.t.Fatalf("the job asks nobody: %+v, %v", h.Job, err)
		}
	}
}

func (s exampleJobs) decide(a control.Approval, yes bool) {
	s.t.Helper()
	if err := s.Decide(s.t.Context(), exampleCaller, a.ID, a.Digest, approval.Answer{Yes: yes}); err != nil {
		s.t.Fatal(err)
	}
}

// ended waits for the job's end, gives its output, and tries that its code does what
// its history has.
func (s exampleJobs) ended(id job.ID) string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	j, err := s.Wait(ctx, id)
	if err != nil {
		s.t.Fatal(err)
	}
	if report, err := s.Replay(ctx, id); err != nil || len(report.Differences) > 0 {
		s.t.Errorf("replay: %+v, %v", report, err)
	}
	var output string
	if j.State != job.Completed || json.Unmarshal(j.End.Output, &output) != nil {
		s.t.Fatalf("the job ended as %+v", j.End)
	}
	return output
}

// calls are the functions that were called, in order.
func (s exampleJobs) calls(id job.ID) []string {
	s.t.Helper()
	h, err := s.History(s.t.Context(), id)
	if err != nil {
		s.t.Fatal(err)
	}
	var out []string
	for _, r := range h.Records {
		var c agentjob.ToolCall
		if r.What == job.Begun && r.Kind == agentjob.KindTool && json.Unmarshal(r.Input, &c) == nil {
			out = append(out, c.Function)
		}
	}
	return out
}

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, err := exec.Command("git", append([]string{"-C", dir}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// exampleRepository makes a repository with a branch to merge, and an origin to push
// to.
func exampleRepository(t *testing.T) (work, origin string) {
	t.Helper()
	dir := t.TempDir()
	work, origin = filepath.Join(dir, "work"), filepath.Join(dir, "origin")
	git(t, dir, "init", "--quiet", "--bare", "--initial-branch=main", "origin")
	git(t, dir, "clone", "--quiet", "origin", "work")
	for _, args := range [][]string{
		{"config", "user.name", "Ann"}, {"config", "user.email", "ann@acme.example"}, {"config", "commit.gpgsign", "false"},
		{"checkout", "--quiet", "-b", "main"}, {"commit", "--quiet", "--allow-empty", "-m", "begin"}, {"push", "--quiet", "origin", "main"},
		{"checkout", "--quiet", "-b", "feature"}, {"commit", "--quiet", "--allow-empty", "-m", "add it"}, {"checkout", "--quiet", "main"},
	} {
		git(t, work, args...)
	}
	return work, origin
}

// TestGuardedGithub runs the example on a real repository with its real servers.
func TestGuardedGithub(t *testing.T) {
	needServers(t)
	work, origin := exampleRepository(t)
	t.Setenv("ACME_REPOSITORY", work)
	s := openExample(t, "guarded-github")

	id := s.start("acme-merger", "merge feature")
	a := s.asked(id)
	if r := a.Request; r.Kind != approval.Hook || r.Tool != "acme_git.push" || len(r.Reasons) != 1 || r.Reasons[0].Text != "a push to main" {
		t.Errorf("a person is asked %+v", r)
	}
	if got := git(t, origin, "log", "--format=%s", "main"); got != "begin" {
		t.Errorf("before anybody said yes, origin has %q", got)
	}
	s.decide(a, true)
	if got, want := s.ended(id), "I merged feature into main and pushed it.\n\nChecked by acme-policy."; got != want {
		t.Errorf("the answer is %q", got)
	}
	if got := git(t, origin, "log", "--format=%s", "main"); got != "add it\nbegin" {
		t.Errorf("origin has %q", got)
	}
	if got := strings.Join(s.calls(id), " "); got != "log merge push" {
		t.Errorf("the calls were %s", got)
	}
	h, err := s.History(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range h.Records {
		if strings.HasPrefix(r.Key, "agent/") && r.Kind == "model" && strings.Contains(string(r.Input), "ann@acme.example") {
			t.Errorf("the model reads a mail address: %s", r.Input)
		}
	}

	refused := s.start("acme-merger", "merge it into the release")
	if got, want := s.ended(refused), "The merge was refused.\n\nChecked by acme-policy."; got != want {
		t.Errorf("the answer is %q", got)
	}
	if calls := s.calls(refused); len(calls) > 0 {
		t.Errorf("a protected branch was touched: %v", calls)
	}
}

// TestTheGuardrails runs the example's demo, with the program as it is built.
func TestTheGuardrails(t *testing.T) {
	needServers(t)
	t.Run("P40 P50 P55 a secret leaves by its name, and belay dev lets the judge ask its model", func(t *testing.T) {
		cmd := exec.Command("../examples/guardrails/demo.sh", "--yes")
		cmd.Env = append(os.Environ(), "BELAY="+program(t))
		text, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		said := string(text)
		for _, want := range []string{"Authorization: Bearer [secret CRM_TOKEN]", "intent.judge of guardrails asks model judge (scripted/judge.yml)", "intent.judge at pre_tool_call: escalate: ten times what was asked for", "I refunded 200 to Ann Smith."} {
			if !strings.Contains(said, want) {
				t.Errorf("the demo does not say %q:\n%s", want, said)
			}
		}
	})
}

// TestJudge runs the example with its real servers.
func TestTheJudge(t *testing.T) {
	needServers(t)
	s := openExample(t, "judge")
	right := s.start("clerk", "Order 4 lamps")
	if got := s.ended(right); got != "I ordered 4 lamps." {
		t.Errorf("the answer is %q", got)
	}
	wrong := s.start("clerk", "Order 4 chairs")
	a := s.asked(wrong)
	if r := a.Request; len(r.Reasons) != 1 || r.Reasons[0].Text != "the request names no tables" {
		t.Errorf("a person is asked %+v", r)
	}
	s.decide(a, false)
	if got := s.ended(wrong); got != "The order was not placed." {
		t.Errorf("the answer is %q", got)
	}
	if calls := s.calls(wrong); len(calls) > 0 {
		t.Errorf("tables were ordered: %v", calls)
	}
}
