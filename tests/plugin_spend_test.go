package tests

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belay-run/belay/internal/approval"
	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/control"
	"github.com/belay-run/belay/internal/job"
	"github.com/belay-run/belay/internal/station"
)

// priced are settings with a model that costs a unit for a thousand tokens.
const priced = "models:\n  default: {provider: openai, model: gpt-4o, price: {input: 1000, output: 1000}}\n"

// taking is a completion that took so many tokens.
func taking(r chat.Response, in, out int) chat.Response {
	r.Usage = chat.Usage{Input: in, Output: out}
	return r
}

// budgeted is a station with budgets, whose agent looks twice and then says so.
func budgeted(t *testing.T, settings string, model ...chat.Response) *jobs {
	t.Helper()
	j := newJobs(t, &playing{list: model})
	j.write(filepath.Join(j.data, "belay.yaml"), settings)
	j.manifest(strings.Replace(manifestHead, "    env: [PROBE]\n", "", 1) + "hooks:\n  - {on: job_start, call: probe.check}\n")
	j.open()
	j.install()
	j.policy(allowTools)
	return j
}

func (j *jobs) calls(id job.ID) []control.ModelCall {
	j.t.Helper()
	all, err := j.st.ModelCalls(j.t.Context(), id, false)
	if err != nil {
		j.t.Fatal(err)
	}
	return all.Calls
}

func TestBudgetsOfAgents(t *testing.T) {
	t.Parallel()
	looks := func(in, out int) chat.Response { return taking(does("probe.look", `{"what":"x"}`), in, out) }

	t.Run("P51 a job's budget of tokens stops the job before the call", func(t *testing.T) {
		t.Parallel()
		j := budgeted(t, "budgets: {job: {tokens: 9000}}\n", looks(4000, 500), looks(4000, 400), taking(says("Done."), 10, 10))
		id := j.start("go")
		end := j.end(id)
		if end.State != job.Failed || end.Code != "LimitExceeded" || !strings.Contains(end.Reason, "the budget of job "+id.Job+" does not allow this call: 8900 of 9000 tokens used") {
			t.Errorf("ended as %+v", end)
		}
		asked := j.model.requests()
		if len(asked) != 2 || len(asked[0].Settings["max_tokens"]) == 0 {
			t.Errorf("%d requests, the first with %v", len(asked), asked[0].Settings)
		}
		calls := j.calls(id)
		if len(calls) != 3 || calls[0].Usage.Tokens() != 4500 || calls[0].Purpose != "agent" || calls[0].Agent != "worker" || calls[0].Status != 200 || calls[0].Priced ||
			calls[2].Status != 402 || !strings.Contains(calls[2].Why, "does not allow this call") || calls[2].Usage.Tokens() != 0 {
			t.Errorf("%+v", calls)
		}
	})

	t.Run("P51 a job's budget of money stops the job, and one without a price is refused", func(t *testing.T) {
		t.Parallel()
		j := budgeted(t, priced+"budgets: {currency: EUR, job: {cost: 9}}\n", looks(4000, 500), looks(4000, 400), taking(says("Done."), 10, 10))
		if end := j.run("go"); end.Code != "LimitExceeded" || !strings.Contains(end.Reason, "8.90 of 9.00 EUR used") {
			t.Errorf("ended as %+v", end)
		}
		j.close()
		j.write(filepath.Join(j.data, "belay.yaml"), strings.Replace(priced, ", price: {input: 1000, output: 1000}", "", 1)+"budgets: {job: {cost: 9}}\n")
		j.open()
		if end := j.run("go"); end.Code != "LimitExceeded" || !strings.Contains(end.Reason, "the model openai/gpt-4o has no price: write one") {
			t.Errorf("without a price: %+v", end)
		}
	})

	t.Run("P51 P58 an agent's day counts through a restart, and an answer from the record is not charged again", func(t *testing.T) {
		t.Parallel()
		j := budgeted(t, priced+"budgets: {agents: {worker: {cost: 9, per: day}}}\n", taking(does("probe.act", `{"what":"x"}`), 4000, 500), taking(says("Done."), 1000, 100))
		j.policy("rules:\n  - name: ask\n    tools: [probe.act]\n    verdict: require_approval\n")
		id := j.start("go")
		first := j.waits(1)[0]
		j.restart()
		j.decide(first, approval.Answer{Yes: true})
		if end := j.end(id); end.State != job.Completed {
			t.Fatalf("ended as %+v", end)
		}
		if calls := j.calls(id); len(calls) != 2 || len(j.model.requests()) != 2 {
			t.Errorf("%d calls of %d requests", len(calls), len(j.model.requests()))
		}
		report, err := j.st.Spent(t.Context(), "main")
		if err != nil || len(report.Spent) != 4 || report.Spent[0].Cost != 5_600_000 || report.Spent[2].Agent != "worker" || report.Spent[2].Per != "day" || report.Spent[2].Tokens != 5600 ||
			report.Spent[2].Budget == nil || report.Spent[2].Budget.Cost != 9_000_000 || report.Spent[3].Budget != nil {
			t.Errorf("%v: %+v", err, report)
		}
		j.restart()
		j.model.mu.Lock()
		j.model.list = []chat.Response{taking(does("probe.look", `{}`), 2500, 700), taking(says("Done."), 1000, 100)}
		j.model.mu.Unlock()
		if end := j.run("again"); end.Code != "LimitExceeded" || !strings.Contains(end.Reason, "the budget of agent worker for the day does not allow this call: 8.80 of 9.00 USD used") {
			t.Errorf("the next job ended as %+v", end)
		}
	})

	t.Run("P51 jobs side by side never spend more than their tenant may", func(t *testing.T) {
		t.Parallel()
		j := budgeted(t, priced+"budgets: {tenant: {cost: 20, per: month}}\n", looks(900, 1100), looks(900, 1100), taking(says("Done."), 900, 100))
		ids := make([]job.ID, 10)
		for i := range ids {
			ids[i] = j.start("go")
		}
		var mu sync.Mutex
		var all sync.WaitGroup
		limited := 0
		for _, id := range ids {
			all.Go(func() {
				if end := j.end(id); end.Code == "LimitExceeded" {
					mu.Lock()
					limited++
					mu.Unlock()
				}
			})
		}
		all.Wait()
		var cost control.Amount
		for _, id := range ids {
			for _, c := range j.calls(id) {
				cost += c.Cost
			}
		}
		report, err := j.st.Spent(t.Context(), "main")
		if err != nil || cost > 20_000_000 || report.Spent[1].Cost != cost || limited == 0 || report.Spent[1].Reserved != 0 {
			t.Errorf("%v: the calls cost %d, %d jobs were stopped, %+v", err, cost, limited, report.Spent[1])
		}
	})
}

// A call whose process was killed counts with what was reserved, and its record says
// that nobody knows how it ended.
func TestKilledWhileTheModelIsAsked(t *testing.T) {
	t.Parallel()
	hang := make(chan struct{})
	var asked atomic.Int32
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) == 1 {
			select {
			case <-hang:
			case <-r.Context().Done():
			}
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"choices":[{"message":{"content":"Done."},"finish_reason":"stop"}],"usage":{"prompt_tokens":2000,"completion_tokens":500,
			"prompt_tokens_details":{"cached_tokens":1000},"completion_tokens_details":{"reasoning_tokens":400}}}`)
	}))
	defer provider.Close()
	defer close(hang)
	j := budgeted(t, "models:\n  default: {provider: vllm, model: m, base_url: "+provider.URL+"/v1, price: {input: 1000, output: 1000, cached: 100}, max_output: 3000}\nbudgets: {job: {cost: 100}}\n")
	j.close()
	run := func(args ...string) *exec.Cmd {
		cmd := exec.Command(program(t), append(args, "--data", j.data, "--tenant", "main")...)
		cmd.Env = append(os.Environ(), "BELAY_MODEL=")
		return cmd
	}
	cmd := run("job", "run", "worker", "--input", "go")
	var log safeBuffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var id string
	shown := ""
	for deadline := time.Now().Add(60 * time.Second); !strings.Contains(shown, `"outcome": "running"`); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			t.Fatalf("the model is not asked: %s\n%s", shown, &log)
		}
		if _, rest, ok := strings.Cut(log.String(), "job "); ok && asked.Load() > 0 {
			id, _, _ = strings.Cut(rest, "\n")
			out, _ := run("job", "show", id, "--json").CombinedOutput() // looked at above
			shown = string(out)
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // it was killed
	j.config = func(c *station.Config) { c.Client = nil }
	j.open()
	t.Run("P51 P58 a call whose process was killed counts as reserved, with its outcome unknown", func(t *testing.T) {
		at := job.ID{Tenant: "main", Job: id}
		if end := j.end(at); end.State != job.Completed {
			t.Fatalf("ended as %+v", end)
		}
		calls := j.calls(at)
		if len(calls) != 2 || calls[0].Outcome != control.CallUnknown || calls[0].Reserved < 3000 || calls[0].Cost < 3_000_000 {
			t.Fatalf("%+v", calls)
		}
		if c := calls[1]; c.Outcome != control.CallEnded || c.Cost != 1_600_000 || c.Usage.Cached != 1000 || c.Usage.Reasoning != 400 || c.Estimated || c.Status != 200 {
			t.Errorf("%+v", c)
		}
		report, err := j.st.Spent(t.Context(), "main")
		if err != nil || report.Spent[0].Cost != calls[0].Cost+calls[1].Cost || report.Spent[0].Tokens != calls[0].Reserved+2500 {
			t.Errorf("%v: %+v", err, report)
		}
	})
}
