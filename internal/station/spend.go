package station

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/belay-run/belay/internal/agentjob"
	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/config"
	"github.com/belay-run/belay/internal/control"
	"github.com/belay-run/belay/internal/job"
	"github.com/belay-run/belay/internal/rawjson"
	"github.com/belay-run/belay/internal/spend"
)

// newLedger makes the ledger of model calls, by the prices and budgets of the
// settings.
func (s *Station) newLedger(ctx context.Context) (*spend.Ledger, error) {
	return spend.New(ctx, spend.Options{Store: s.store, Prices: s.settings.Price, MaxOutput: s.settings.MaxOutput, Budgets: s.settings.Budgets,
		Currency: s.settings.CurrencyName(), Clock: s.cfg.Clock, NewID: newID, Logger: s.cfg.Logger})
}

// agentPurpose is what the calls of agents themselves are for.
const agentPurpose = "agent"

// spending charges what agents themselves ask models.
type spending struct {
	ledger *spend.Ledger
	find   func(ctx context.Context, id job.ID) (spend.Call, error)

	mu    sync.Mutex
	known map[job.ID]spend.Call // of jobs that have not ended
}

func newSpending(s *Station) *spending {
	return &spending{ledger: s.ledger, find: s.agentCall, known: map[job.ID]spend.Call{}}
}

// agentCall is what the model calls of a job's agent have in common.
func (s *Station) agentCall(ctx context.Context, id job.ID) (spend.Call, error) {
	j, err := s.journal.Get(ctx, id)
	if err != nil {
		return spend.Call{}, err
	}
	spec, err := agentjob.Read(j.Input)
	if err != nil {
		return spend.Call{}, err
	}
	c := spend.Call{Tenant: id.Tenant, Job: id.Job, Agent: j.Agent, Purpose: agentPurpose, Alias: spec.Agent.Alias, API: config.OpenAI, Route: "/v1/chat/completions"}
	m, err := s.settingsOf(spec.Agent.Alias)
	switch {
	case err == nil:
		c.Provider, c.Model = m.Provider, m.Called()
	case s.cfg.Client != nil:
		c.Provider, c.Model, _ = strings.Cut(s.cfg.Client.Name(), "/")
	default:
		return c, err
	}
	if p, _ := s.settings.Provider(c.Provider); p.API != config.OpenAI {
		c.API, c.Route = p.API, ""
	}
	return c, nil
}

func (s *spending) call(ctx context.Context, id job.ID) (spend.Call, error) {
	s.mu.Lock()
	c, ok := s.known[id]
	s.mu.Unlock()
	if ok {
		return c, nil
	}
	c, err := s.find(ctx, id)
	if err == nil {
		s.mu.Lock()
		s.known[id] = c
		s.mu.Unlock()
	}
	return c, err
}

// forget lets go of a job that has ended.
func (s *spending) forget(id job.ID) {
	s.mu.Lock()
	delete(s.known, id)
	s.mu.Unlock()
	s.ledger.Forget(id.Tenant, id.Job)
}

// forgetting is a journal that tells of jobs that have ended.
type forgetting struct {
	job.Journal
	forget func(job.ID)
}

// End implements [job.Ledger].
func (f forgetting) End(ctx context.Context, l job.Lease, e job.End, at time.Time) error {
	err := f.Journal.End(ctx, l, e, at)
	if err == nil {
		f.forget(l.ID)
	}
	return err
}

// charge is a model call of an agent that has begun; nil where none are charged.
type charge struct {
	entry    *spend.Entry
	scripted bool
	request  int // bytes
	began    time.Time
}

// begin reserves what a request may cost, and gives it a cap of output when a budget
// applies and it has none. [spend.OverBudget] and the other errors of the ledger.
func (s *spending) begin(ctx context.Context, id job.ID, step string, req *chat.Request) (*charge, error) {
	if s == nil {
		return nil, nil
	}
	c, err := s.call(ctx, id)
	if err != nil {
		return nil, err
	}
	c.Step = step
	out := &charge{scripted: c.API == config.Scripted, request: size(req), began: time.Now()}
	var need spend.Need
	if !out.scripted { // a script takes no tokens
		need = spend.Need{Input: out.request, Output: outputCap(req)} // no token is shorter than a byte
	}
	if out.entry, err = s.ledger.Begin(c, need); err != nil {
		status := http.StatusServiceUnavailable
		if errors.As(err, new(*spend.OverBudget)) {
			status = http.StatusPaymentRequired
		}
		s.ledger.Refused(c, spend.Outcome{Status: status, Why: err.Error()})
		return nil, err
	}
	if most := out.entry.Cap(); most > 0 {
		if req.Settings == nil {
			req.Settings = map[string]json.RawMessage{}
		}
		req.Settings[capName(c.Provider)] = rawjson.Must(most)
	}
	return out, nil
}

func size(req *chat.Request) int {
	n := len(req.Messages)
	for _, t := range req.Tools {
		n += len(t.Name) + len(t.Description) + len(t.Parameters)
	}
	return n
}

// Settings of a request that bound its answer.
const (
	capOfOpenAI = "max_completion_tokens"
	capOfOthers = "max_tokens"
)

// capName is how a provider calls the cap of output: OpenAI's newer models refuse the
// name that the others know.
func capName(provider string) string {
	if provider == config.OpenAI {
		return capOfOpenAI
	}
	return capOfOthers
}

// outputCap is the cap of output that a request names, 0 for none.
func outputCap(req *chat.Request) int {
	for _, name := range []string{capOfOpenAI, capOfOthers} {
		var n int
		if json.Unmarshal(req.Settings[name], &n) == nil && n > 0 {
			return n
		}
	}
	return 0
}

// end charges what the call came to. err is the model's.
func (c *charge) end(ctx context.Context, got *chat.Response, err error) {
	if c == nil {
		return
	}
	u := got.Usage
	out := spend.Outcome{Status: http.StatusOK, Took: time.Since(c.began), Usage: spend.Usage{Input: u.Input, Output: u.Output, Cached: u.Cached, Reasoning: u.Reasoning}}
	var known *chat.Error
	switch {
	case err != nil && ctx.Err() != nil: // nobody knows how far it came
		out.Status, out.Why = 0, "the job let go of it"
		c.estimate(&out, 1, 0)
	case err != nil:
		out.Status, out.Why = 0, err.Error()
		if errors.As(err, &known) {
			out.Status = known.Status
			c.estimate(&out, known.Begun, 0)
		}
	case u == (chat.Usage{}):
		n := 0
		if got.Text != nil {
			n = len(*got.Text)
		}
		for _, t := range got.ToolCalls {
			n += len(t.Name) + len(t.Arguments)
		}
		c.estimate(&out, 1, n)
	}
	c.entry.End(out)
}

// bytesAToken is what a token has in most texts.
const bytesAToken = 4

// estimate counts the tokens of a call whose provider did not say, for so many tries
// that it may charge and the bytes of its answer.
func (c *charge) estimate(out *spend.Outcome, tries, answer int) {
	if !c.scripted && tries > 0 {
		out.Estimated = true
		out.Usage = spend.Usage{Input: tries * ((c.request + bytesAToken - 1) / bytesAToken), Output: (answer + bytesAToken - 1) / bytesAToken}
	}
}

// ModelCalls implements [control.Spending].
func (s *Station) ModelCalls(ctx context.Context, id job.ID, texts bool) (control.ModelCallList, error) {
	out := control.ModelCallList{Currency: s.settings.CurrencyName()}
	if err := s.ledger.Flush(ctx, id.Tenant, id.Job); err != nil {
		s.cfg.Logger.Warn("model calls are shown as far as they are on disk", "job", id.Job, "error", err)
		out.Incomplete = "calls may be missing: " + err.Error()
	}
	all, err := s.store.ModelCalls(ctx, id)
	if err != nil {
		return out, err
	}
	mask := func(text string) string { return s.scanners.mask(ctx, id.Tenant, text) }
	for _, r := range all {
		c := control.ModelCall{ID: r.ID, Agent: r.Agent, Plugin: r.Plugin, Tool: r.Tool, Function: r.Function, Step: r.Step, Purpose: mask(r.Purpose), API: r.API, Route: mask(r.Route),
			Asked: mask(r.Alias), Provider: r.Provider, Model: mask(r.Model), Stream: r.Stream, Began: r.Began, Outcome: control.CallEnded, Status: r.Status, Usage: r.Usage, Estimated: r.Estimated,
			Cost: control.Amount(r.Cost), Priced: r.Priced, FirstByte: r.FirstByte.Milliseconds(), Took: r.Took.Milliseconds(), Why: mask(r.Why)}
		for _, v := range r.Verdicts {
			c.Verdicts = append(c.Verdicts, mask(v))
		}
		switch {
		case !r.Ended && s.ledger.Runs(r.ID):
			c.Outcome, c.Reserved = control.CallRuns, r.ReservedTokens
		case !r.Ended:
			c.Outcome, c.Reserved = control.CallUnknown, r.ReservedTokens
		}
		if texts {
			c.Request, c.Answer = mask(string(r.Request)), mask(string(r.Answer))
		}
		out.Calls = append(out.Calls, c)
	}
	return out, nil
}

// Spent implements [control.Spending].
func (s *Station) Spent(_ context.Context, tenant string) (control.SpendReport, error) {
	out := control.SpendReport{Tenant: tenant, Currency: s.settings.CurrencyName(), JobBudget: shownBudget(s.settings.Budgets(tenant, "").Job)}
	for _, st := range s.ledger.Standings(tenant) {
		b := s.settings.Budgets(tenant, st.Agent)
		applies := b.Tenant
		if st.Agent != "" {
			applies = b.Agent
		}
		one := control.Spent{Agent: st.Agent, Per: string(st.Per), Since: st.Since, Cost: control.Amount(st.Cost), Tokens: st.Tokens,
			Reserved: control.Amount(st.Reserved), ReservedTokens: st.ReservedTokens}
		if applies.Per == st.Per {
			one.Budget = shownBudget(applies)
		}
		out.Spent = append(out.Spent, one)
	}
	return out, nil
}

func shownBudget(b spend.Budget) *control.Budget {
	if b.None() {
		return nil
	}
	return &control.Budget{Cost: control.Amount(b.Cost), Tokens: b.Tokens}
}
