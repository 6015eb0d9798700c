package agentjob_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/belay-run/belay/internal/agentjob"
	"github.com/belay-run/belay/internal/approval"
	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/job"
)

var update = flag.Bool("update", false, "write the history of the newest shape anew; never that of one that was released")

// TestHistoriesOfEveryShape runs today's code against a history of each shape that
// jobs on disk may have: it must ask for the same and come to the same end.
func TestHistoriesOfEveryShape(t *testing.T) {
	if *update {
		writeHistory(t, filepath.Join("testdata", fmt.Sprintf("shape%d.json", agentjob.Shape)))
	}
	for shape := 1; shape <= agentjob.Shape; shape++ {
		raw, err := os.ReadFile(filepath.Join("testdata", fmt.Sprintf("shape%d.json", shape)))
		if err != nil {
			t.Fatalf("a shape without a history: %v; write it with -update before it is released", err)
		}
		var h job.History
		if err := json.Unmarshal(raw, &h); err != nil {
			t.Fatal(err)
		}
		if h.Job.Shape != shape || len(h.Records) < 20 {
			t.Fatalf("shape %d: a history of shape %d with %d records", shape, h.Job.Shape, len(h.Records))
		}
		report := job.Replay(agentjob.New(agentjob.Pinned{}), h)
		if len(report.Differences) > 0 || report.End == nil || report.End.State != job.Completed {
			t.Errorf("shape %d: %+v", shape, report)
		}
	}
}

// writeHistory runs a job with everything in it: every kind of hook, a hook that
// looks on, parallel calls, an escalation, an approval of the policy.
func writeHistory(t *testing.T, path string) {
	t.Helper()
	w := newWorld(t)
	w.says = []chat.Response{called("git__merge", `{"branch":"main"}`, "git__log", `{}`), said("Merged.")}
	w.hooks["check"] = func(e map[string]any) string {
		switch {
		case e["event"] == "job_end":
			return `{"decision":"modify","output":"Merged and signed."}`
		case e["tool"] == "git.merge" && e["event"] == "pre_tool_call":
			return `{"decision":"escalate","reason":"a push to main"}`
		}
		return `{"decision":"allow"}`
	}
	w.hooks["second"] = func(map[string]any) string { return `{"decision":"deny"}` }
	looks := guard("pre_tool_call", "second")
	looks.Shadow = true
	id := w.start(guard("job_start", "check"), guard("pre_llm_call", "check"), guard("pre_tool_call", "check"), looks, guard("post_tool_call", "check"), guard("job_end", "check"))
	p, _ := w.pending()
	w.decide(p, approval.Answer{Yes: true})
	if end := w.wait(id); end.State != job.Completed {
		t.Fatalf("ended as %+v", end)
	}
	h, err := w.memory.History(context.Background(), id)
	if err != nil {
		t.Fatal(err)
	}
	var raw bytes.Buffer
	enc := json.NewEncoder(&raw) // compact: answers count byte for byte
	enc.SetEscapeHTML(false)
	if err := enc.Encode(h); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, raw.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}
