package station

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"sync"

	"github.com/belay-run/belay/internal/access"
	"github.com/belay-run/belay/internal/approval"
	"github.com/belay-run/belay/internal/audit"
	"github.com/belay-run/belay/internal/control"
	"github.com/belay-run/belay/internal/job"
	"github.com/belay-run/belay/internal/rawjson"
)

// waiting is a question for a person, which waits or did.
type waiting struct {
	control.Approval
	id  job.ID
	key string
}

// asked lists what waits in a tenant, the oldest first.
func (s *Station) asked(ctx context.Context, tenant string) ([]waiting, error) {
	all, err := s.journal.Pending(ctx, tenant)
	if err != nil {
		return nil, err
	}
	out := make([]waiting, 0, len(all))
	for _, p := range all {
		req, err := approval.Read(p.Question.Input)
		if err != nil {
			return nil, err
		}
		s.askers.remember(p.ID, p.Key)
		out = append(out, waiting{id: p.ID, key: p.Key, Approval: control.Approval{ID: approval.ID(p.ID.Tenant, p.ID.Job, p.Key), Job: p.ID.Job, State: control.Waiting,
			Asked: p.Asked, Until: p.Until, Request: req, Digest: p.Digest}})
	}
	return out, nil
}

// Approvals implements [control.Approvals].
func (s *Station) Approvals(ctx context.Context, tenant string, f control.ApprovalFilter) ([]control.Approval, error) {
	var out []control.Approval
	if f.Waiting {
		all, err := s.asked(ctx, tenant)
		if err != nil {
			return nil, err
		}
		for _, w := range all {
			if f.Job == "" || f.Job == w.Job {
				out = append(out, w.Approval)
			}
		}
	}
	if f.Decided {
		past, err := s.decided(ctx, tenant, f)
		if err != nil {
			return nil, err
		}
		out = append(out, past...)
	}
	if f.Limit > 0 && len(out) > f.Limit {
		out = out[:f.Limit]
	}
	for i := range out {
		out[i] = s.scanners.maskApproval(ctx, tenant, out[i])
	}
	return out, nil
}

// mostJobs bounds how many jobs are looked through for what was decided.
const mostJobs = 200

// decided lists what waits no more, the newest first.
func (s *Station) decided(ctx context.Context, tenant string, f control.ApprovalFilter) ([]control.Approval, error) {
	ids := []job.ID{{Tenant: tenant, Job: f.Job}}
	if f.Job == "" {
		jobs, err := s.journal.List(ctx, job.Filter{Tenant: tenant, Limit: mostJobs})
		if err != nil {
			return nil, err
		}
		ids = nil
		for _, j := range jobs {
			ids = append(ids, j.ID)
		}
	}
	var out []control.Approval
	for _, id := range ids {
		h, err := s.journal.History(ctx, id)
		if err != nil {
			return nil, err
		}
		for _, a := range questionsOf(h) {
			if a.State != control.Waiting {
				out = append(out, a.Approval)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b control.Approval) int { return cmp.Compare(b.Asked.UnixNano(), a.Asked.UnixNano()) })
	return out, nil
}

// questionsOf are the approvals of a job, in order.
func questionsOf(h job.History) []waiting {
	var out []waiting
	at := map[string]int{}
	for _, r := range h.Records {
		switch r.What {
		case job.Asked:
			req, err := approval.Read(r.Input)
			if err != nil {
				continue // a question of another kind
			}
			at[r.Key] = len(out)
			state := control.Waiting
			if h.Job.State.Ended() || h.Job.Cancel != nil {
				state = control.Closed
			}
			out = append(out, waiting{id: h.Job.ID, key: r.Key, Approval: control.Approval{ID: approval.ID(h.Job.Tenant, h.Job.Job, r.Key), Job: h.Job.Job, State: state,
				Asked: r.At, Until: r.Until, Request: req, Digest: r.Digest}})
		case job.Decided:
			if i, known := at[r.Key]; known {
				settle(&out[i].Approval, r)
			}
		}
	}
	return out
}

func settle(a *control.Approval, r job.Record) {
	a.Decided = &control.Decided{By: r.By, At: r.At}
	if r.Answer == nil || r.Answer.Failure != nil {
		if a.State = control.Closed; r.Answer != nil && r.Answer.Failure.Kind == job.Expired {
			a.State = control.Expired
		}
		return
	}
	var said approval.Answer
	if json.Unmarshal(r.Answer.Value, &said) != nil {
		return
	}
	a.Decided.Note, a.Decided.Action = said.Note, said.Action
	if a.State = control.Denied; agrees(said) {
		a.State = control.Approved
	}
}

func agrees(a approval.Answer) bool {
	return a.Yes || a.Action == approval.Retry || a.Action == approval.Result
}

// Approval implements [control.Approvals].
func (s *Station) Approval(ctx context.Context, tenant, id string) (control.Approval, error) {
	w, known, err := s.question(ctx, tenant, id)
	if err != nil {
		return control.Approval{}, err
	}
	if known {
		return s.scanners.maskApproval(ctx, tenant, w.Approval), nil
	}
	all, err := s.Approvals(ctx, tenant, control.ApprovalFilter{Waiting: true, Decided: true})
	if err != nil {
		return control.Approval{}, err
	}
	for _, a := range all {
		if a.ID == id {
			return a, nil
		}
	}
	return control.Approval{}, control.Refuse(control.NotFound, "there is no approval "+id, "belay approval list shows what waits")
}

// search finds an approval of which nobody remembers who asked.
func (s *Station) search(ctx context.Context, tenant, id string) (waiting, error) {
	all, err := s.asked(ctx, tenant)
	if err != nil {
		return waiting{}, err
	}
	if at := slices.IndexFunc(all, func(w waiting) bool { return w.ID == id }); at >= 0 {
		return all[at], nil
	}
	past, err := s.Approval(ctx, tenant, id)
	return waiting{Approval: past}, err
}

// Decide implements [control.Approvals].
func (s *Station) Decide(ctx context.Context, c control.Caller, id string, seen job.Digest, a approval.Answer) error {
	w, known, err := s.question(ctx, c.Tenant, id)
	if err != nil {
		return err
	}
	if !known {
		if w, err = s.search(ctx, c.Tenant, id); err != nil {
			return err
		}
	}
	switch w.State {
	case control.Waiting:
	case control.Closed:
		return job.ErrEnded
	default:
		return job.ErrDecided
	}
	if need := w.Request.Role; need == access.Admin.String() && !c.Role.Allows(access.Admin) {
		return control.Refuse(control.Forbidden, "an admin must decide this", "")
	}
	if err := w.Request.Check(a); err != nil {
		return control.Refuse(control.Invalid, err.Error(), "")
	}
	a.By = c.Name
	if err := s.engine.Decide(ctx, job.Decision{ID: w.id, Key: w.key, Digest: seen, Answer: job.Answer{Value: rawjson.Must(a)}, By: c.Name}); err != nil {
		return err
	}
	s.changes.tell(c.Tenant)
	said := "denied"
	if agrees(a) {
		said = "approved"
	}
	return s.store.Record(ctx, audit.Fact{Tenant: c.Tenant, Actor: c.Name, Action: audit.ApprovalDecided, Subject: id,
		Data: audit.Data{"job": w.Job, "kind": string(w.Request.Kind), "tool": w.Request.Tool, "said": said, "action": string(a.Action)}})
}

// changes tell whoever looks on that something about a tenant's approvals is
// another.
type changes struct {
	mu       sync.Mutex
	watchers map[string]map[chan struct{}]bool
}

func (c *changes) tell(tenant string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for w := range c.watchers[tenant] {
		select {
		case w <- struct{}{}:
		default: // it has yet to look at the change before
		}
	}
}

// ApprovalChanges implements [control.Approvals].
func (s *Station) ApprovalChanges(tenant string) (changed <-chan struct{}, stop func()) {
	c := &s.changes
	w := make(chan struct{}, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watchers == nil {
		c.watchers = map[string]map[chan struct{}]bool{}
	}
	if c.watchers[tenant] == nil {
		c.watchers[tenant] = map[chan struct{}]bool{}
	}
	c.watchers[tenant][w] = true
	return w, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.watchers[tenant], w)
	}
}
