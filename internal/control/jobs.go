package control

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/belay-run/belay/internal/access"
	"github.com/belay-run/belay/internal/agentjob"
	"github.com/belay-run/belay/internal/job"
)

// Job is a job as the API shows it.
type Job struct {
	ID       string            `json:"id"`
	Agent    string            `json:"agent"`
	State    job.State         `json:"state" enum:"running,waiting,completed,failed,cancelled"`
	By       string            `json:"by,omitempty" doc:"Who started it. Not in lists."`
	Created  time.Time         `json:"created"`
	Updated  time.Time         `json:"updated"`
	Deadline time.Time         `json:"deadline,omitzero"`
	Wake     time.Time         `json:"wake,omitzero" doc:"When a waiting job goes on by itself."`
	Input    json.RawMessage   `json:"input,omitempty" doc:"What the agent was given. Not in lists."`
	Cancel   *job.Cancellation `json:"cancel,omitempty" doc:"Somebody asked for its end."`
	End      *job.End          `json:"end,omitempty" doc:"How it ended; without the output in lists."`
}

// JobHistory is a job with what happened in it.
type JobHistory struct {
	Job     Job          `json:"job"`
	History []job.Record `json:"history" doc:"In order."`
}

// JobList are jobs of a tenant.
type JobList struct {
	Jobs []Job `json:"jobs" doc:"The newest first."`
}

// StartedJob names a job that was started.
type StartedJob struct {
	ID string `json:"id"`
}

// CancelOrder says why a job is to end.
type CancelOrder struct {
	Reason string `json:"reason,omitempty" maxLength:"1024"`
}

type jobFilter struct {
	State []job.State `query:"state" enum:"running,waiting,completed,failed,cancelled" doc:"Jobs in these states; left out, in all."`
	Agent string      `query:"agent" maxLength:"256"`
	Limit int         `query:"limit" minimum:"1" maximum:"1000" default:"100"`
}

// JobPath names a job in a path.
type JobPath struct {
	ID string `path:"id" maxLength:"128"`
}

type historyInput struct {
	JobPath
	After int64 `query:"after" minimum:"0" doc:"Only what happened after this entry, by its seq."`
}

type cancelInput struct {
	JobPath
	Body *CancelOrder
}

func (s *Server) jobRoutes(api huma.API) {
	start := route(access.Approver, http.MethodPost, "/v1/jobs", "startJob", "jobs", "Start a job",
		"What guards it is read now and holds for the whole job: the tenant's plugins with their hooks, and the policy.", http.StatusNotFound, http.StatusConflict)
	start.DefaultStatus = http.StatusCreated
	huma.Register(api, start, s.startJob)
	huma.Register(api, route(access.Viewer, http.MethodGet, "/v1/jobs", "listJobs", "jobs", "List jobs", ""), s.listJobs)
	huma.Register(api, route(access.Viewer, http.MethodGet, "/v1/jobs/{id}", "getJob", "jobs", "Show a job and its history",
		"The history has every model call, tool call, hook's question and answer, and approval, with both tries of what was begun twice.", http.StatusNotFound), s.getJob)
	huma.Register(api, route(access.Approver, http.MethodPost, "/v1/jobs/{id}/cancel", "cancelJob", "jobs", "Ask for the end of a job", "", http.StatusNotFound, http.StatusConflict), s.cancelJob)
	huma.Register(api, route(access.Viewer, http.MethodPost, "/v1/jobs/{id}/replay", "replayJob", "jobs", "Run a job's code against its history",
		"Asks nothing and changes nothing; reports where code and history differ.", http.StatusNotFound), s.replayJob)
}

func (s *Server) startJob(ctx context.Context, in *struct{ Body JobOrder }) (*body[StartedJob], error) {
	id, err := s.service.Jobs.StartJob(ctx, callerOf(ctx), in.Body)
	if err != nil {
		return nil, s.failed(ctx, "start a job", err)
	}
	return &body[StartedJob]{StartedJob{id.Job}}, nil
}

func (s *Server) listJobs(ctx context.Context, in *jobFilter) (*body[JobList], error) {
	all, err := s.service.Jobs.Jobs(ctx, job.Filter{Tenant: callerOf(ctx).Tenant, States: in.State, Agent: in.Agent, Limit: in.Limit})
	if err != nil {
		return nil, s.failed(ctx, "list jobs", err)
	}
	out := make([]Job, len(all))
	for i := range all {
		out[i] = shown(&all[i])
	}
	return &body[JobList]{JobList{out}}, nil
}

// shown is a job for the API. What it is pinned to stays inside: its instructions
// and its policy are shown where they are kept.
func shown(j *job.Job) Job {
	out := Job{ID: j.Job, Agent: j.Agent, State: j.State, Created: j.Created, Updated: j.Updated, Deadline: j.Deadline, Wake: j.Wake, Cancel: j.Cancel, End: j.End}
	switch {
	case len(j.Input) == 0:
	case j.Flow != agentjob.Flow:
		out.Input = j.Input
	default:
		if spec, err := agentjob.Read(j.Input); err == nil { // else there is nothing to show
			out.By, out.Input = spec.By, spec.Input
		}
	}
	return out
}

func (s *Server) getJob(ctx context.Context, in *historyInput) (*body[JobHistory], error) {
	h, err := s.service.Jobs.History(ctx, job.ID{Tenant: callerOf(ctx).Tenant, Job: in.ID})
	if err != nil {
		return nil, s.failed(ctx, "show a job", err)
	}
	out := JobHistory{Job: shown(&h.Job), History: []job.Record{}}
	for _, r := range h.Records {
		if r.Seq > in.After {
			out.History = append(out.History, r)
		}
	}
	return &body[JobHistory]{out}, nil
}

func (s *Server) cancelJob(ctx context.Context, in *cancelInput) (*struct{}, error) {
	c := callerOf(ctx)
	reason := ""
	if in.Body != nil {
		reason = in.Body.Reason
	}
	if err := s.service.Jobs.Cancel(ctx, job.ID{Tenant: c.Tenant, Job: in.ID}, c.Name, reason); err != nil {
		return nil, s.failed(ctx, "cancel a job", err)
	}
	return nil, nil
}

func (s *Server) replayJob(ctx context.Context, in *JobPath) (*body[job.Report], error) {
	r, err := s.service.Jobs.Replay(ctx, job.ID{Tenant: callerOf(ctx).Tenant, Job: in.ID})
	if err != nil {
		return nil, s.failed(ctx, "replay a job", err)
	}
	return &body[job.Report]{r}, nil
}
