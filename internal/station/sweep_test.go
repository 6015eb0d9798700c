package station

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/belay-run/belay/internal/access"
	"github.com/belay-run/belay/internal/approval"
	"github.com/belay-run/belay/internal/control"
	"github.com/belay-run/belay/internal/job"
)

// TestServersOfFormerVersionsEnd updates a plugin while a job waits: its servers stay
// for it, and go with the first update after its end.
func TestServersOfFormerVersionsEnd(t *testing.T) {
	if os.Getenv("BELAY_PYTHON") == "" {
		t.Skip("BELAY_PYTHON is not set; make test sets it")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	dir := filepath.Join(t.TempDir(), "judge")
	if err := os.CopyFS(dir, os.DirFS("../../examples/judge")); err != nil {
		t.Fatal(err)
	}
	s, err := Open(ctx, Config{Data: t.TempDir(), Model: "scripted/" + filepath.Join(dir, "script.yml")})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close(context.Background()) }() // the test is over
	me := control.Caller{Tenant: "main", Name: "ann", Role: access.Admin}
	digests := func() map[string]bool {
		s.servers.mu.Lock()
		defer s.servers.mu.Unlock()
		out := map[string]bool{}
		for key := range s.servers.open {
			out[key.Digest] = true
		}
		return out
	}
	install := func(version string) string {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "version.txt"), []byte(version), 0o600); err != nil {
			t.Fatal(err)
		}
		o := control.PluginOrder{Path: dir}
		if version != "1" {
			o.Name = "judge"
		}
		p, err := s.InstallPlugin(ctx, me, o)
		if err != nil {
			t.Fatal(err)
		}
		return p.Plugin.Digest
	}
	start := func() job.ID {
		t.Helper()
		id, err := s.StartJob(ctx, me, control.JobOrder{Agent: "clerk", Input: json.RawMessage(`"Order 4 chairs"`)})
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	asked := func(id job.ID) control.Approval {
		t.Helper()
		changed, stop := s.ApprovalChanges("main")
		defer stop()
		for {
			all, err := s.Approvals(ctx, "main", control.ApprovalFilter{Waiting: true, Job: id.Job})
			if err != nil {
				t.Fatal(err)
			}
			if len(all) > 0 {
				return all[0]
			}
			select {
			case <-changed:
			case <-ctx.Done():
				t.Fatal("the job asks nobody")
			}
		}
	}
	end := func(id job.ID) {
		t.Helper()
		a := asked(id)
		if err := s.Decide(ctx, me, a.ID, a.Digest, approval.Answer{}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Wait(ctx, id); err != nil {
			t.Fatal(err)
		}
	}

	first := install("1")
	waits := start()
	asked(waits)
	second := install("2")
	if !digests()[first] {
		t.Error("the servers of a job that waits have ended")
	}
	end(start())
	if !digests()[second] {
		t.Error("the second version has no servers")
	}
	end(waits)
	third := install("3")
	end(start())
	if got := digests(); len(got) != 1 || !got[third] {
		t.Errorf("servers of %d versions run, and of the third: %v", len(got), got[third])
	}
}
