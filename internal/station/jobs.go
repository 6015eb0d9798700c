package station

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belay-run/belay/internal/agentjob"
	"github.com/belay-run/belay/internal/approval"
	"github.com/belay-run/belay/internal/audit"
	"github.com/belay-run/belay/internal/job"
	"github.com/belay-run/belay/internal/plugin"
	"github.com/belay-run/belay/internal/rawjson"
)

// Order is a job to be started.
type Order struct {
	Tenant string
	Agent  string
	Input  json.RawMessage
	By     string
	Model  string // stands in for the agent's; see [Config.Model]
}

// ErrNoAgent says that no plugin of the tenant brings the agent.
var ErrNoAgent = errors.New("no plugin of the tenant brings this agent")

// Start starts a job. What applies to it is read now and pinned: hooks, policy and
// the snapshots of the plugins.
func (s *Station) Start(ctx context.Context, o Order) (job.ID, error) {
	spec, err := s.spec(ctx, o)
	if err != nil {
		return job.ID{}, err
	}
	id, err := s.engine.Submit(ctx, job.Order{ID: job.ID{Tenant: o.Tenant}, Flow: agentjob.Flow, Agent: o.Agent, Input: rawjson.Must(spec)})
	if err != nil {
		return id, err
	}
	return id, s.store.Record(ctx, audit.Fact{Tenant: o.Tenant, Actor: o.By, Action: audit.JobStarted, Subject: id.Job, Data: audit.Data{"agent": o.Agent}})
}

func (s *Station) spec(ctx context.Context, o Order) (*agentjob.Spec, error) {
	all, err := s.Plugins(ctx, o.Tenant)
	if err != nil {
		return nil, err
	}
	a, from := agentNamed(all, o.Agent)
	if a == nil {
		var names []string
		for _, p := range all {
			for _, a := range p.Manifest.Agents {
				names = append(names, a.ID)
			}
		}
		if len(names) == 0 {
			return nil, fmt.Errorf("%w, and none brings any; install one with belay plugin install", ErrNoAgent)
		}
		return nil, fmt.Errorf("%w; there are %s", ErrNoAgent, strings.Join(names, ", "))
	}
	alias := a.Model
	if o.Model != "" {
		alias = o.Model
	}
	spec := &agentjob.Spec{Input: o.Input, By: o.By, Expiry: s.settings.Approvals.Expiry, Agent: agentjob.Agent{Name: a.ID, Plugin: from.Name, Instructions: a.Instructions,
		Alias: alias, Tools: a.Tools, Limits: agentjob.Limits{Iterations: a.Limits.Iterations, ToolCalls: a.Limits.ToolCalls, Work: a.Limits.WallTime}}}
	if a.Folder != "" {
		spec.Agent.Folder = &agentjob.Folder{Plugin: from.Name, Digest: from.Digest, Path: a.Folder}
		spec.Tools = append(spec.Tools, agentjob.Tool{ID: a.ID, Plugin: from.Name, Digest: from.Digest, Folder: a.Folder})
		spec.Agent.Tools = append(slices.Clone(a.Tools), a.ID+".*")
	}
	if s.cfg.Client == nil {
		m, err := s.settingsOf(alias)
		if err != nil {
			return nil, err
		}
		if _, err := s.models.named(alias); err != nil {
			return nil, err
		}
		spec.Agent.Provider, spec.Agent.Model = m.Provider, m.Name
	}
	for _, p := range all {
		pin(spec, p)
	}
	current, there, err := s.store.Policy(ctx, o.Tenant)
	if err != nil {
		return nil, err
	}
	if there {
		spec.Policy = current.Text
	}
	return spec, nil
}

func agentNamed(all []Installed, name string) (*plugin.Agent, *Installed) {
	for i := range all {
		m := all[i].Manifest
		if at := slices.IndexFunc(m.Agents, func(a plugin.Agent) bool { return a.ID == name }); at >= 0 {
			return &m.Agents[at], &all[i]
		}
	}
	return nil, nil
}

// pin adds what a plugin brings to a job.
func pin(spec *agentjob.Spec, p Installed) {
	for _, t := range p.Manifest.Tools {
		spec.Tools = append(spec.Tools, agentjob.Tool{ID: t.ID, Plugin: p.Name, Digest: p.Digest})
	}
	for _, h := range p.Manifest.Hooks {
		spec.Hooks = append(spec.Hooks, agentjob.Hook{Plugin: p.Name, Event: h.On.Name, Tool: h.Tool, Function: h.Function, Tools: h.Match.Tools, Agents: h.Match.Agents,
			Limit: h.Timeout, OnFailure: h.OnFailure, EscalateOnly: h.EscalateOnly, Shadow: h.Shadow, File: h.File, Line: h.Line})
	}
	if p.Manifest.Policy != nil {
		spec.Additions = append(spec.Additions, agentjob.Addition{From: p.Name, Digest: p.Digest})
	}
}

// Jobs lists jobs, the newest first.
func (s *Station) Jobs(ctx context.Context, f job.Filter) ([]job.Job, error) {
	return s.journal.List(ctx, f)
}

// History gives a job with everything that was asked and answered.
func (s *Station) History(ctx context.Context, id job.ID) (job.History, error) {
	return s.journal.History(ctx, id)
}

// Wait waits until a job has ended.
func (s *Station) Wait(ctx context.Context, id job.ID) (job.Job, error) {
	return s.engine.Wait(ctx, id)
}

// Cancel asks for the end of a job.
func (s *Station) Cancel(ctx context.Context, id job.ID, by, reason string) error {
	if err := s.engine.Cancel(ctx, id, job.Cancellation{By: by, Reason: reason}); err != nil {
		return err
	}
	return s.store.Record(ctx, audit.Fact{Tenant: id.Tenant, Actor: by, Action: audit.JobCancelled, Subject: id.Job})
}

// Replay runs a job's code against its history and reports where they differ. It
// asks nothing.
func (s *Station) Replay(ctx context.Context, id job.ID) (job.Report, error) {
	h, err := s.journal.History(ctx, id)
	if err != nil {
		return job.Report{}, err
	}
	flow, ok := s.flows[h.Job.Flow]
	if !ok {
		return job.Report{}, fmt.Errorf("this program has no flow %q", h.Job.Flow)
	}
	return job.Replay(flow, h), nil
}

// Waiting is a question that waits for a person.
type Waiting struct {
	ID      string
	Job     job.ID
	Key     string
	Digest  job.Digest
	Asked   time.Time
	Until   time.Time
	Request approval.Request
}

// Waiting lists what waits for a person, the oldest first.
func (s *Station) Waiting(ctx context.Context, tenant string) ([]Waiting, error) {
	all, err := s.journal.Pending(ctx, tenant)
	if err != nil {
		return nil, err
	}
	out := make([]Waiting, 0, len(all))
	for _, p := range all {
		req, err := approval.Read(p.Question.Input)
		if err != nil {
			return nil, err
		}
		out = append(out, Waiting{ID: approval.ID(p.ID.Tenant, p.ID.Job, p.Key), Job: p.ID, Key: p.Key, Digest: p.Digest, Asked: p.Asked, Until: p.Until, Request: req})
	}
	return out, nil
}

// ErrNoApproval says that nothing of that id waits.
var ErrNoApproval = errors.New("nothing waits under this id: it may have been decided, or its job has ended; belay approval list shows what waits")

// Decide answers a question.
func (s *Station) Decide(ctx context.Context, tenant, id string, a approval.Answer) (Waiting, error) {
	all, err := s.Waiting(ctx, tenant)
	if err != nil {
		return Waiting{}, err
	}
	at := slices.IndexFunc(all, func(w Waiting) bool { return w.ID == id })
	if at < 0 {
		return Waiting{}, ErrNoApproval
	}
	w := all[at]
	if err := w.Request.Check(a); err != nil {
		return w, err
	}
	if err := s.engine.Decide(ctx, job.Decision{ID: w.Job, Key: w.Key, Digest: w.Digest, Answer: job.Answer{Value: rawjson.Must(a)}, By: a.By}); err != nil {
		return w, err
	}
	said := "denied"
	if a.Yes || a.Action == approval.Retry || a.Action == approval.Result {
		said = "approved"
	}
	return w, s.store.Record(ctx, audit.Fact{Tenant: tenant, Actor: a.By, Action: audit.ApprovalDecided, Subject: id,
		Data: audit.Data{"job": w.Job.Job, "kind": string(w.Request.Kind), "tool": w.Request.Tool, "said": said, "action": string(a.Action)}})
}
