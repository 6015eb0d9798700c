package station_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/belay-run/belay/internal/access"
	"github.com/belay-run/belay/internal/approval"
	"github.com/belay-run/belay/internal/control"
	"github.com/belay-run/belay/internal/job"
	"github.com/belay-run/belay/internal/station"
)

// repository makes a git repository with a branch to merge and an origin to push
// to.
func repository(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	work := filepath.Join(dir, "work")
	for _, args := range [][]string{
		{"init", "--quiet", "--bare", "--initial-branch=main", filepath.Join(dir, "origin")},
		{"clone", "--quiet", filepath.Join(dir, "origin"), work},
		{"-C", work, "config", "user.name", "Ann"}, {"-C", work, "config", "user.email", "ann@acme.example"},
		{"-C", work, "checkout", "--quiet", "-b", "main"}, {"-C", work, "commit", "--quiet", "--allow-empty", "-m", "begin"},
		{"-C", work, "checkout", "--quiet", "-b", "feature"}, {"-C", work, "commit", "--quiet", "--allow-empty", "-m", "add it"},
		{"-C", work, "checkout", "--quiet", "main"},
	} {
		if out, err := exec.Command("git", args...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v %s", args, err, out)
		}
	}
	return work
}

func open(t *testing.T, data string) *station.Station {
	t.Helper()
	script, err := filepath.Abs("../../examples/guarded-github/script.yml")
	if err != nil {
		t.Fatal(err)
	}
	s, err := station.Open(context.Background(), station.Config{Data: data, Model: "scripted/" + script})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestTheExampleMergesAndAsks(t *testing.T) {
	if os.Getenv("BELAY_PYTHON") == "" {
		t.Skip("BELAY_PYTHON is not set; make test sets it")
	}
	repo := repository(t)
	t.Setenv("ACME_REPOSITORY", repo)
	ctx := context.Background()
	s := open(t, t.TempDir())
	defer func() { _ = s.Close(ctx) }()
	me := control.Caller{Tenant: "main", Name: "test", Role: access.Admin}
	if _, err := s.InstallPlugin(ctx, me, control.PluginOrder{Path: "../../examples/guarded-github"}); err != nil {
		t.Fatal(err)
	}
	rules, err := os.ReadFile("../../examples/guarded-github/policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.ApplyPolicy(ctx, me, control.PolicyOrder{Text: string(rules)}); err != nil {
		t.Fatal(err)
	}
	id, err := s.StartJob(ctx, me, control.JobOrder{Agent: "acme-merger", Input: json.RawMessage(`"merge feature"`)})
	if err != nil {
		t.Fatal(err)
	}
	var waiting []control.Approval
	for range 600 {
		if waiting, err = s.Approvals(ctx, "main", control.ApprovalFilter{Waiting: true}); err != nil || len(waiting) > 0 {
			break
		}
		if j, err := s.Jobs(ctx, job.Filter{Tenant: "main"}); err == nil && j[0].State.Ended() {
			h, _ := s.History(ctx, id)
			t.Fatalf("ended early: %+v", h.Job.End)
		}
		time.Sleep(50 * time.Millisecond)
	}
	if len(waiting) != 1 || waiting[0].Request.Tool != "acme_git.push" || waiting[0].Request.Kind != approval.Hook {
		t.Fatalf("waits: %+v, %v", waiting, err)
	}
	if err := s.Decide(ctx, me, waiting[0].ID, waiting[0].Digest, approval.Answer{Yes: true}); err != nil {
		t.Fatal(err)
	}
	j, err := s.Wait(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	if j.State != job.Completed || !strings.HasSuffix(string(j.End.Output), `Checked by acme-policy."`) {
		t.Fatalf("ended as %+v", j.End)
	}
	if out, err := exec.Command("git", "-C", filepath.Join(filepath.Dir(repo), "origin"), "log", "--format=%s", "main").Output(); err != nil || !strings.Contains(string(out), "add it") {
		t.Errorf("origin has %s, %v", out, err)
	}
	report, err := s.Replay(ctx, id)
	if err != nil || len(report.Differences) > 0 {
		t.Errorf("replay: %+v, %v", report, err)
	}
}
