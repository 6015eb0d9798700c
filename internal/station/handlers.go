package station

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/belay-run/belay/internal/agentjob"
	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/job"
	"github.com/belay-run/belay/internal/loop"
	"github.com/belay-run/belay/internal/mcphost"
	"github.com/belay-run/belay/internal/rawjson"
	"github.com/belay-run/belay/internal/spend"
)

// handlers carry out what jobs ask for.
type handlers struct {
	servers *servers
	folders *folders
	// scanners find the tenants' secrets; nil where there are no tenants.
	scanners *scanners
	// model gives the client of a job's model.
	model func(ctx context.Context, id job.ID) (chat.Model, error)
	// recorded returns when the model calls of a job's tools are on record; nil where
	// none is kept.
	recorded func(ctx context.Context, tenant, job string) error
	// spending charges what agents ask; nil where nothing is charged.
	spending *spending
	newID    func() string
	log      *slog.Logger
}

func (h *handlers) all() job.Handlers {
	return job.Handlers{
		agentjob.KindFolder:    h.folders.read,
		loop.KindHook:          h.folders.ask,
		loop.KindObserve:       h.folders.observe,
		agentjob.KindFunctions: h.functions,
		agentjob.KindHook:      h.hook,
		agentjob.KindTool:      h.tool,
		loop.KindModel:         h.complete,
		loop.KindID:            func(context.Context, job.Call) (job.Answer, error) { return answer(h.newID()) },
	}
}

func answer(v any) (job.Answer, error) {
	raw, err := rawjson.Encode(v)
	return job.Answer{Value: raw}, err
}

// functions lists what a job's tools offer, all asked side by side. Of a tool whose
// server cannot be asked the list says why: its hooks fail one by one, and their
// policies decide what follows.
func (h *handlers) functions(ctx context.Context, c job.Call) (job.Answer, error) {
	var in agentjob.FunctionsCall
	if err := json.Unmarshal(c.Input, &in); err != nil {
		return job.Answer{}, err
	}
	lists := make([][]agentjob.Function, len(in.Tools))
	var all sync.WaitGroup
	for i, t := range in.Tools {
		all.Go(func() {
			listed, err := h.list(ctx, t)
			if err != nil {
				h.log.Error("a plugin's tool cannot be asked what it offers", "tool", t.ID, "plugin", t.Plugin, "error", err)
				listed = append(listed, agentjob.Function{Tool: t.ID, Unlisted: err.Error()})
			}
			lists[i] = listed
		})
	}
	all.Wait()
	return answer(slices.Concat([]agentjob.Function{}, slices.Concat(lists...)))
}

func (h *handlers) list(ctx context.Context, t agentjob.Tool) ([]agentjob.Function, error) {
	if t.Folder != "" {
		return h.folders.functions(ctx, t)
	}
	server, err := h.servers.get(ctx, tenantOf(ctx), t)
	if err != nil {
		return nil, err
	}
	listed, err := server.Tools(ctx)
	out := make([]agentjob.Function, 0, len(listed))
	for _, f := range listed {
		out = append(out, agentjob.Function{Tool: t.ID, Name: f.Name, Description: f.Description, Schema: f.InputSchema, Annotations: agentjob.Annotations(f.Annotations)})
	}
	return out, err
}

// hook asks one hook. What it answers is kept as it is: the job reads it.
func (h *handlers) hook(ctx context.Context, c job.Call) (job.Answer, error) {
	var in agentjob.HookCall
	if err := json.Unmarshal(c.Input, &in); err != nil {
		return job.Answer{}, err
	}
	server, err := h.servers.get(ctx, tenantOf(ctx), in.Tool)
	if err != nil {
		return failed(agentjob.Unavailable, err.Error()), nil
	}
	meta, err := h.meta(ctx, &in)
	if err != nil {
		h.log.Warn("a hook is not asked: it cannot be told where secrets are", "hook", in.Tool.ID+"."+in.Function, "why", err)
		return failed(agentjob.Unavailable, "it cannot be told where the tenant's secrets are: "+err.Error()), nil
	}
	meta, end := h.key(ctx, in.Tool, in.Function, meta)
	defer end()
	got := server.Call(ctx, mcphost.CallRequest{Tool: in.Function, Timeout: in.Limit, Meta: meta, Arguments: rawjson.Must(map[string]json.RawMessage{"event": in.Event})})
	if got.Outcome != mcphost.OK {
		h.log.Warn("a hook failed", "hook", in.Tool.ID+"."+in.Function, "outcome", got.Outcome, "took", got.Took, "why", got.Failure)
		return failed(failureOf(got.Outcome), got.Failure), nil
	}
	object, err := got.Object()
	if err != nil {
		return failed(agentjob.WrongAnswer, err.Error()), nil
	}
	return job.Answer{Value: object, Took: got.Took}, nil
}

// meta is what a hook is told beside its event: a list of where secrets are, which is
// empty when nothing was found, so that none at all means that nobody looked.
func (h *handlers) meta(ctx context.Context, in *agentjob.HookCall) (map[string]json.RawMessage, error) {
	if in.Scan == "" {
		return nil, nil
	}
	found, err := h.scanners.found(ctx, tenantOf(ctx), in.Scan, in.Event)
	if err != nil {
		return nil, err
	}
	is, err := h.servers.about(in.Tool)
	if err != nil {
		return nil, err
	}
	return map[string]json.RawMessage{is.named(metaSecrets, metaSecretsOther): found}, nil
}

// tenantOf is whose job a call belongs to; "" for none's.
func tenantOf(ctx context.Context) string {
	at, _ := job.AttemptOf(ctx)
	return at.ID.Tenant
}

func failureOf(o mcphost.Outcome) string {
	switch o {
	case mcphost.Timeout:
		return job.TimedOut
	case mcphost.Unavailable:
		return agentjob.Unavailable
	case mcphost.Unknown:
		return agentjob.Lost
	}
	return job.Broken
}

func failed(kind, message string) job.Answer {
	return job.Answer{Failure: &job.Failure{Kind: kind, Message: message}}
}

// tool makes one call.
func (h *handlers) tool(ctx context.Context, c job.Call) (job.Answer, error) {
	var in agentjob.ToolCall
	if err := json.Unmarshal(c.Input, &in); err != nil {
		return job.Answer{}, err
	}
	if in.Tool.Folder != "" {
		return h.folders.run(ctx, in)
	}
	full := in.Tool.ID + "." + in.Function
	server, err := h.servers.get(ctx, tenantOf(ctx), in.Tool)
	if err != nil {
		h.log.Error("a tool cannot be reached", "tool", full, "error", err)
		return answer(agentjob.ToolAnswer{Text: fmt.Sprintf("Error: %s could not be reached. Nothing was done.", full), IsError: true})
	}
	meta, end := h.key(ctx, in.Tool, in.Function, nil)
	defer end()
	got := server.Call(ctx, mcphost.CallRequest{Tool: in.Function, Timeout: in.Limit, Meta: meta, Arguments: in.Arguments})
	switch got.Outcome {
	case mcphost.OK:
		return answer(agentjob.ToolAnswer{Value: got.Given(), Text: text(got), Made: true})
	case mcphost.Error:
		return answer(agentjob.ToolAnswer{Value: got.Given(), Text: text(got), IsError: true, Made: true})
	case mcphost.Unavailable:
		h.log.Error("a tool cannot be reached", "tool", full, "error", got.Failure)
		return answer(agentjob.ToolAnswer{Text: fmt.Sprintf("Error: %s could not be reached. Nothing was done.", full), IsError: true})
	case mcphost.Unknown:
		if ctx.Err() == nil { // its server died: a person says what is to be done
			return failed(job.Unknown, got.Failure), nil
		}
		return job.Answer{}, errors.Join(ctx.Err(), errors.New(got.Failure))
	}
	return failed(job.TimedOut, got.Failure), nil
}

// text is what a model reads of a tool's answer.
func text(a mcphost.Answer) string {
	if given := a.Given(); rawjson.IsObject(given) {
		return rawjson.Written(given)
	}
	return a.Text
}

// complete asks the job's model.
func (h *handlers) complete(ctx context.Context, c job.Call) (job.Answer, error) {
	var in loop.ModelCall
	if err := json.Unmarshal(c.Input, &in); err != nil {
		return job.Answer{}, err
	}
	at, _ := job.AttemptOf(ctx)
	m, err := h.model(ctx, at.ID)
	if err != nil {
		return answer(loop.ModelAnswer{Failed: err.Error()})
	}
	call, err := h.spending.begin(ctx, at.ID, c.Key, &in.Request)
	switch {
	case err != nil && ctx.Err() != nil:
		return job.Answer{}, ctx.Err()
	case err != nil:
		var over *spend.OverBudget
		h.log.Warn("the model is not asked", "job", at.Job, "why", err)
		return answer(loop.ModelAnswer{Failed: err.Error(), OverBudget: errors.As(err, &over)})
	}
	got, err := m.Complete(chat.WithConversation(ctx, at.Job), in.Request, nil)
	call.end(ctx, &got, err)
	switch {
	case err != nil && ctx.Err() != nil:
		return job.Answer{}, ctx.Err()
	case err != nil:
		out := loop.ModelAnswer{Failed: err.Error()}
		var known *chat.Error
		if errors.As(err, &known) {
			out.Status = known.Status
		}
		h.log.Warn("the model failed", "job", at.Job, "error", err)
		return answer(out)
	}
	return answer(loop.ModelAnswer{Response: got})
}
