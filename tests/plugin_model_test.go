package tests

import (
	"testing"

	"github.com/belay-run/belay/internal/approval"
	"github.com/belay-run/belay/internal/job"
)

func TestHooksOfModelCalls(t *testing.T) {
	t.Parallel()
	t.Run("P83 P86 pre_llm_call runs, and a person's no fails the job", func(t *testing.T) {
		t.Parallel()
		j := startJobs(t, "hooks:\n  - {on: pre_llm_call, call: probe.check}\n", says("Done."))
		j.answers(map[string]any{"check": map[string]any{"decision": "escalate", "reason": "odd"}})
		id := j.start("go")
		j.decide(j.waits(1)[0], approval.Answer{})
		if end := j.end(id); end.State != job.Failed || end.Code != "HookDenied" || len(j.model.requests()) > 0 {
			t.Errorf("ended as %+v", end)
		}
	})
}
