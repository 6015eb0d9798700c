package station

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/belay-run/belay/internal/agentjob"
	"github.com/belay-run/belay/internal/audit"
	"github.com/belay-run/belay/internal/control"
	"github.com/belay-run/belay/internal/job"
	"github.com/belay-run/belay/internal/plugin"
	"github.com/belay-run/belay/internal/rawjson"
)

// StartJob starts a job. What applies to it is read now and pinned: hooks, policy
// and the snapshots of the plugins.
func (s *Station) StartJob(ctx context.Context, c control.Caller, o control.JobOrder) (job.ID, error) {
	id, err := s.submit(ctx, c, o)
	if err != nil {
		return id, err
	}
	return id, s.store.Record(ctx, audit.Fact{Tenant: c.Tenant, Actor: c.Name, Action: audit.JobStarted, Subject: id.Job, Data: audit.Data{"agent": o.Agent}})
}

func (s *Station) submit(ctx context.Context, c control.Caller, o control.JobOrder) (job.ID, error) {
	s.pinning.RLock()
	defer s.pinning.RUnlock()
	spec, err := s.spec(ctx, c, o)
	if err != nil {
		return job.ID{}, err
	}
	return s.engine.Submit(ctx, job.Order{ID: job.ID{Tenant: c.Tenant, Job: o.ID}, Flow: agentjob.Flow, Agent: o.Agent, Input: rawjson.Must(spec), Deadline: o.Deadline})
}

func (s *Station) spec(ctx context.Context, c control.Caller, o control.JobOrder) (*agentjob.Spec, error) {
	all, err := s.installed(ctx, c.Tenant)
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
		hint := "no plugin of the tenant brings any; install one with belay plugin install"
		if len(names) > 0 {
			hint = "there are " + strings.Join(names, ", ")
		}
		return nil, control.Refuse(control.NotFound, "there is no agent "+o.Agent, hint)
	}
	alias := a.Model
	if o.Model != "" {
		alias = o.Model
	}
	input := o.Input
	if len(input) == 0 {
		input = json.RawMessage(`""`)
	}
	spec := &agentjob.Spec{Input: input, By: c.Name, Expiry: s.settings.Approvals.Expiry, Agent: agentjob.Agent{Name: a.ID, Plugin: from.Name, Instructions: a.Instructions,
		Alias: alias, Tools: a.Tools, Limits: agentjob.Limits{Iterations: a.Limits.Iterations, ToolCalls: a.Limits.ToolCalls, Tool: s.cfg.ToolLimit, Work: a.Limits.WallTime}}}
	if a.Folder != "" {
		spec.Agent.Folder = &agentjob.Folder{Plugin: from.Name, Digest: from.Digest, Path: a.Folder}
		spec.Tools = append(spec.Tools, agentjob.Tool{ID: a.ID, Plugin: from.Name, Digest: from.Digest, Folder: a.Folder})
		spec.Agent.Tools = append(slices.Clone(a.Tools), a.ID+".*")
	}
	if s.cfg.Client == nil {
		m, err := s.settingsOf(alias)
		if err == nil {
			_, err = s.models.client(ctx, c.Tenant, m)
		}
		if files := (*FindingsError)(nil); errors.As(err, &files) {
			return nil, control.RefuseFindings("the script of the model", files.Findings)
		}
		if err != nil {
			return nil, control.Refuse(control.Invalid, err.Error(), "")
		}
		spec.Agent.Provider, spec.Agent.Model = m.Provider, m.Called()
	}
	for _, p := range all {
		pin(spec, p)
	}
	current, there, err := s.store.Policy(ctx, c.Tenant)
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
			Limit: h.Timeout, OnFailure: h.OnFailure, EscalateOnly: h.EscalateOnly, Shadow: h.Shadow, Scan: h.Scan, File: h.File, Line: h.Line})
	}
	if p.Manifest.Policy != nil {
		spec.Additions = append(spec.Additions, agentjob.Addition{From: p.Name, Digest: p.Digest})
	}
}

// Jobs lists jobs, the newest first.
func (s *Station) Jobs(ctx context.Context, f job.Filter) ([]job.Job, error) {
	all, err := s.journal.List(ctx, f)
	for i := range all {
		all[i] = s.scanners.maskJob(ctx, all[i])
	}
	return all, err
}

// History gives a job with everything that was asked and answered, secrets masked.
func (s *Station) History(ctx context.Context, id job.ID) (job.History, error) {
	h, err := s.journal.History(ctx, id)
	return s.scanners.maskHistory(ctx, h), err
}

// Wait waits until a job has ended.
func (s *Station) Wait(ctx context.Context, id job.ID) (job.Job, error) {
	j, err := s.engine.Wait(ctx, id)
	return s.scanners.maskJob(ctx, j), err
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
