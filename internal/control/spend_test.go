package control

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/belay-run/belay/internal/job"
	"github.com/belay-run/belay/internal/spend"
)

func (f *fake) ModelCalls(_ context.Context, id job.ID, texts bool) (ModelCallList, error) {
	if id.Job == "none" {
		return ModelCallList{}, job.ErrNoJob
	}
	return ModelCallList{Currency: "USD", Calls: f.calls}, f.ask("model calls", id.String(), strconv.FormatBool(texts))
}

func (f *fake) Spent(_ context.Context, tenant string) (SpendReport, error) {
	return f.spent, f.ask("spent", tenant)
}

func TestSpending(t *testing.T) {
	w := newWorld(t, Config{})
	w.fake.calls = []ModelCall{{ID: "1", Agent: "rev", Plugin: "acme", Purpose: "judging", Began: at, Outcome: CallEnded, Usage: spend.Usage{Input: 7, Output: 2}, Cost: 1_000_001, Priced: true}}
	w.fake.spent = SpendReport{Tenant: "main", Currency: "USD", JobBudget: &Budget{Tokens: 9}, Spent: []Spent{{Per: "day", Since: at.Truncate(24 * time.Hour), Cost: 50_000, Budget: &Budget{Cost: 100_000}}}}
	addr, _ := w.start(t)
	c := w.client(t, addr, "viewer", "main")
	calls, err := c.ModelCalls(t.Context(), "j1", true)
	if err != nil || !reflect.DeepEqual(calls, ModelCallList{Currency: "USD", Calls: w.fake.calls}) || w.fake.last() != "model calls main/j1 true" {
		t.Errorf("%v, %+v, asked %s", err, calls, w.fake.last())
	}
	spent, err := c.Spend(t.Context())
	if err != nil || !reflect.DeepEqual(spent, w.fake.spent) || w.fake.last() != "spent main" {
		t.Errorf("%v, %+v, asked %s", err, spent, w.fake.last())
	}
	var problem *Problem
	if _, err := c.ModelCalls(t.Context(), "none", false); !errors.As(err, &problem) || problem.Code != NotFound {
		t.Errorf("a job that is not there: %v", err)
	}
	w.fake.calls, w.fake.spent = nil, SpendReport{}
	for _, path := range []string{"/v1/jobs/j/model-calls", "/v1/spend"} {
		if text := w.do("viewer", "GET", path, "").Body.String(); strings.Contains(text, "null") {
			t.Errorf("%s of nothing: %s", path, text)
		}
	}
}

func TestAmounts(t *testing.T) {
	for a, want := range map[Amount]string{0: "0.00", 1: "0.000001", 12_500_000: "12.50"} {
		raw, err := json.Marshal(a)
		var back Amount
		if err != nil || string(raw) != want || json.Unmarshal(raw, &back) != nil || back != a {
			t.Errorf("%d: %s, back %d", a, raw, back)
		}
	}
	var a Amount
	if err := json.Unmarshal([]byte(`"1"`), &a); err == nil {
		t.Errorf("a text is taken for %d", a)
	}
}
