package station

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/internal/agent"
	"github.com/belay-run/belay/internal/agentjob"
	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/job"
	"github.com/belay-run/belay/internal/pyhost"
	"github.com/belay-run/belay/internal/rawjson"
)

// folders are the agent folders of plugins whose Python runs.
type folders struct {
	station *Station

	mu     sync.Mutex
	open   map[agentjob.Folder]*openFolder
	closed bool
}

type openFolder struct {
	spec   *agent.Agent
	host   *pyhost.Host
	engine *hook.Engine
}

// get starts a folder's Python when it is first needed.
func (f *folders) get(ctx context.Context, ref agentjob.Folder) (*openFolder, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, errors.New("the station is stopping")
	}
	if o := f.open[ref]; o != nil {
		return o, nil
	}
	dir := filepath.Join(f.station.servers.dir(ref.Digest), filepath.FromSlash(ref.Path))
	spec, findings := agent.Read(dir)
	if finding.HasErrors(findings) {
		return nil, faulty(ref, findings)
	}
	if spec.Skills != nil && len(spec.Skills.Skills) > 0 {
		return nil, fmt.Errorf("agent folder %s has skills, which are for conversations: a job has instructions alone", ref.Path)
	}
	host, err := pyhost.Load(ctx, pyhost.Config{Dir: dir, Workers: spec.Limits.HookWorkers, Logger: f.station.cfg.Logger})
	if err != nil {
		return nil, err
	}
	if found := host.Findings(); finding.HasErrors(found) {
		return nil, errors.Join(faulty(ref, found), host.Close(ctx))
	}
	engine, err := hook.NewEngine(nil, host.Hooks()...)
	if err != nil {
		return nil, errors.Join(err, host.Close(ctx))
	}
	o := &openFolder{spec: spec, host: host, engine: engine}
	f.open[ref] = o
	return o, nil
}

// faulty names the first error of a folder: how a job ended has no room for findings.
func faulty(ref agentjob.Folder, findings []finding.Finding) error {
	at := slices.IndexFunc(findings, func(f finding.Finding) bool { return f.Severity == finding.Error })
	first := findings[at]
	return fmt.Errorf("the agent folder %s of plugin %s has errors: %s:%d: %s; belay check says more", ref.Path, ref.Plugin, first.File, first.Line, first.Message)
}

func (f *folders) close(ctx context.Context) error {
	f.mu.Lock()
	open := f.open
	f.open, f.closed = nil, true
	f.mu.Unlock()
	var errs []error
	for _, o := range open {
		o.engine.Wait()
		errs = append(errs, o.host.Close(ctx))
	}
	return errors.Join(errs...)
}

// read answers what an agent folder brings to a job.
func (f *folders) read(ctx context.Context, c job.Call) (job.Answer, error) {
	var ref agentjob.Folder
	if err := json.Unmarshal(c.Input, &ref); err != nil {
		return job.Answer{}, err
	}
	o, err := f.get(ctx, ref)
	if err != nil {
		return failed(agentjob.Unavailable, err.Error()), nil
	}
	out := agentjob.FolderAnswer{Instructions: instructions(o.spec)}
	for _, h := range o.engine.Hooks() {
		if slices.Contains(inJobs, h.Point.Name) {
			out.Hooks = append(out.Hooks, agentjob.TurnHook{Name: h.Name, Point: h.Point.Name, Lane: h.Lane, Final: h.Final, Limit: h.Limit, File: h.File, Line: h.Line})
		}
	}
	return answer(out)
}

// inJobs are the points of a turn that a job reaches too.
var inJobs = []string{hook.ModelRequest, hook.ModelResponse, hook.ToolCall, hook.ToolResult}

func instructions(a *agent.Agent) string {
	var b strings.Builder
	b.WriteString(strings.TrimSpace(a.Persona))
	for i, r := range a.Rules {
		if i == 0 {
			b.WriteString("\n\nRules:")
		}
		b.WriteString("\n- " + r)
	}
	return b.String()
}

// of gives the folder of the job that asks.
func (f *folders) of(ctx context.Context) (*openFolder, job.ID, error) {
	at, _ := job.AttemptOf(ctx)
	j, err := f.station.journal.Get(ctx, at.ID)
	if err != nil {
		return nil, at.ID, err
	}
	spec, err := agentjob.Read(j.Input)
	if err != nil {
		return nil, at.ID, err
	}
	if spec.Agent.Folder == nil {
		return nil, at.ID, errors.New("the job's agent is no agent folder")
	}
	o, err := f.get(ctx, *spec.Agent.Folder)
	return o, at.ID, err
}

// turnCall is a hook call of the loop as it was written down.
type turnCall struct {
	Hook    string          `json:"hook"`
	Hooks   []string        `json:"hooks"`
	Point   string          `json:"point"`
	Payload json.RawMessage `json:"payload"`
}

func (f *folders) asked(ctx context.Context, c job.Call) (o *openFolder, in turnCall, p hook.Payload, who hook.Asker, err error) {
	if err = json.Unmarshal(c.Input, &in); err != nil {
		return
	}
	o, id, err := f.of(ctx)
	if err != nil {
		return o, in, p, who, err
	}
	point := hook.PointNamed(in.Point)
	if point == nil {
		return o, in, p, who, fmt.Errorf("there is no point %q", in.Point)
	}
	p, err = hook.ReadPayload(point, in.Payload)
	return o, in, p, hook.Asker{Key: id.Job, Turn: c.Key}, err
}

// ask asks one hook of the folder.
func (f *folders) ask(ctx context.Context, c job.Call) (job.Answer, error) {
	o, in, p, who, err := f.asked(ctx, c)
	if err != nil {
		return job.Answer{}, err
	}
	for _, h := range o.engine.Hooks() {
		if h.Name == in.Hook && h.Point == p.Point() {
			a := o.engine.Ask(ctx, h, p, who)
			if ctx.Err() != nil {
				return job.Answer{}, ctx.Err()
			}
			return answer(a)
		}
	}
	return answer(hook.Failed(hook.Unavailable, "the folder has no hook %s", in.Hook))
}

// observe hands a payload to observers of the folder.
func (f *folders) observe(ctx context.Context, c job.Call) (job.Answer, error) {
	o, in, p, who, err := f.asked(ctx, c)
	if err != nil {
		return job.Answer{}, err
	}
	var observers []*hook.Hook
	for _, h := range o.engine.Hooks() {
		if h.Point == p.Point() && slices.Contains(in.Hooks, h.Name) {
			observers = append(observers, h)
		}
	}
	o.engine.Watch(ctx, observers, p, who)
	return answer(struct{}{})
}

// functions lists the Python tools of a folder.
func (f *folders) functions(ctx context.Context, t agentjob.Tool) ([]agentjob.Function, error) {
	o, err := f.get(ctx, agentjob.Folder{Plugin: t.Plugin, Digest: t.Digest, Path: t.Folder})
	if err != nil {
		return nil, err
	}
	var out []agentjob.Function
	for _, info := range o.host.Tools() {
		out = append(out, agentjob.Function{Tool: t.ID, Name: info.Name, Description: info.Description, Schema: info.Parameters})
	}
	return out, nil
}

// run runs a Python tool of a folder.
func (f *folders) run(ctx context.Context, in agentjob.ToolCall) (job.Answer, error) {
	o, err := f.get(ctx, agentjob.Folder{Plugin: in.Tool.Plugin, Digest: in.Tool.Digest, Path: in.Tool.Folder})
	full := in.Tool.ID + "." + in.Function
	if err != nil {
		f.station.cfg.Logger.Error("a tool cannot be reached", "tool", full, "error", err)
		return answer(agentjob.ToolAnswer{Text: fmt.Sprintf("Error: %s could not be reached. Nothing was done.", full), IsError: true})
	}
	a := o.host.CallTool(ctx, pyhost.ToolCall{Tool: in.Function, Arguments: in.Arguments, SenderID: in.Job, TurnID: in.Job, Key: in.Job, Limit: in.Limit})
	out := agentjob.ToolAnswer{Made: true, Value: a.Value, Text: a.Text}
	switch a.Outcome {
	case pyhost.OK:
		out.Text = rawjson.Written(a.Value)
	case pyhost.Unknown:
		if ctx.Err() != nil {
			return job.Answer{}, ctx.Err()
		}
		return failed(job.Unknown, "its worker was lost while it ran"), nil
	case pyhost.TimedOut:
		return failed(job.TimedOut, ""), nil
	case pyhost.NotRun:
		out.Made, out.IsError = false, true
	default:
		out.IsError = true
	}
	if out.Text == "" {
		out.Text = fmt.Sprintf("Error: %s failed.", full)
	}
	return answer(out)
}
