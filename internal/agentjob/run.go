package agentjob

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/job"
	"github.com/belay-run/belay/internal/loop"
	"github.com/belay-run/belay/internal/policy"
	"github.com/belay-run/belay/internal/rawjson"
)

// Pinned gives what a job is pinned to by digest. It gives the same each time.
type Pinned struct {
	// Addition is the policy that a plugin's snapshot brings; nil when none does.
	Addition func(Addition) (*policy.Policy, error)
	// Told is told what each answer of a hook came to, and again whenever a job goes
	// on from its kept answers; nil for nobody. It is called from several goroutines.
	Told func(Told)
}

// New returns the flow of agents' jobs.
func New(pinned Pinned) job.Flow {
	return job.Flow{Name: Flow, Shape: Shape, Oldest: 1, Run: func(s job.Steps, in job.Order) (json.RawMessage, error) {
		spec, err := Read(in.Input)
		if err != nil {
			return nil, err
		}
		r := &run{steps: s, id: in.Job, tenant: in.Tenant, spec: spec, input: spec.Input, permitted: map[string]string{}, told: pinned.Told}
		if err := r.prepare(pinned); err != nil {
			return nil, err
		}
		return r.do()
	}}
}

// run is one job under way. Only the branches of a batch run side by side; each has
// a copy, and writes to nothing that they share.
type run struct {
	steps  job.Steps
	id     string
	tenant string
	spec   *Spec
	input  json.RawMessage // as the agent got it
	policy *policy.Policy
	hooks  hook.Set // of plugins
	shadow []*hook.Hook
	known  map[*hook.Hook]*Hook
	turn   hook.Set // of the agent's folder

	instructions string

	functions []Function
	unlisted  map[string]string // tool → why it could not be asked what it offers
	schemas   map[string]*jsonschema.Resolved
	permitted map[string]string // hook → why it may not be asked, "" when it may
	told      func(Told)        // may be nil
	past      []policy.Past
	work      time.Duration
	calls     int
}

func (r *run) prepare(pinned Pinned) error {
	p := policy.Default()
	if r.spec.Policy != "" {
		var found []finding.Finding
		if p, found = policy.Parse("policy", []byte(r.spec.Policy)); finding.HasErrors(found) {
			return errors.New("the tool policy that the job is pinned to cannot be read any more")
		}
	}
	var more []policy.Addition
	for _, a := range r.spec.Additions {
		added, err := pinned.Addition(a)
		if err != nil {
			return fmt.Errorf("the policy of plugin %s that the job is pinned to: %w", a.From, err)
		}
		more = append(more, policy.Addition{From: a.From, Policy: added})
	}
	r.policy = p.With(more...)
	return r.prepareHooks()
}

// nobody answers for hooks here: a job asks them by its steps.
func nobody(context.Context, hook.Payload) (hook.Verdict, error) {
	return hook.Verdict{}, errors.New("a job's hook is asked by the job's steps")
}

func (r *run) prepareHooks() error {
	r.known = map[*hook.Hook]*Hook{}
	var binding, shadows []*hook.Hook
	declared := map[string]*Hook{}
	for i := range r.spec.Hooks {
		d := &r.spec.Hooks[i]
		point := hook.PointNamed(d.Event)
		if point == nil {
			return fmt.Errorf("hook %s stands at %q, which is no point", d.Name(), d.Event)
		}
		h := &hook.Hook{Name: d.Name(), Point: point, Lane: hook.Modify, Match: hook.Match{Tools: d.Tools, Agents: d.Agents}, Limit: d.Limit,
			OnFailure: d.OnFailure, File: d.File, Line: d.Line, Func: nobody}
		if n := countName(binding, shadows, h); n > 0 { // the same function twice at one point
			h.Name = fmt.Sprintf("%s#%d", h.Name, n+1)
		}
		if d.EscalateOnly {
			h.Verdicts = hook.KindsOf(hook.Continue, hook.Hold)
		}
		declared[point.Name+" "+h.Name] = d
		if d.Shadow {
			shadows = append(shadows, h)
		} else {
			binding = append(binding, h)
		}
	}
	pin := func(hooks []*hook.Hook) (hook.Set, []*hook.Hook, error) {
		e, err := hook.NewEngine(nil, hooks...)
		if err != nil {
			return hook.Set{}, nil, err
		}
		for _, h := range e.Hooks() {
			r.known[h] = declared[h.Point.Name+" "+h.Name]
		}
		return e.Pin(), e.Hooks(), nil
	}
	var err error
	if r.hooks, _, err = pin(binding); err != nil {
		return err
	}
	_, r.shadow, err = pin(shadows)
	return err
}

func countName(binding, shadows []*hook.Hook, h *hook.Hook) int {
	n := 0
	for _, o := range slices.Concat(binding, shadows) {
		if o.Point == h.Point && (o.Name == h.Name || strings.HasPrefix(o.Name, h.Name+"#")) {
			n++
		}
	}
	return n
}

// do is the job.
func (r *run) do() (json.RawMessage, error) {
	if err := r.folder(); err != nil {
		return nil, err
	}
	if err := r.list(); err != nil { // what hooks declare of themselves counts too
		return nil, err
	}
	input, err := r.gate(hook.JobStart, "input", r.spec.Input)
	if err != nil {
		return nil, err
	}
	r.input = input
	if why := r.lacking(); why != "" {
		return nil, job.Fail(ToolsUnavailable, why)
	}
	output, err := r.agent()
	if err != nil {
		return nil, err
	}
	return r.gate(hook.JobEnd, "output", output)
}

// gate puts the job's input or output to its hooks.
func (r *run) gate(point, field string, value json.RawMessage) (json.RawMessage, error) {
	if err := r.permitAll(point, hook.Who{Agent: r.spec.Agent.Name}); err != nil {
		return nil, err
	}
	p := r.event(hook.PointNamed(point)).Set(field, value)
	end, err := r.chain(r.steps, point, hook.Who{Agent: r.spec.Agent.Name}, p, about{})
	if err != nil {
		return nil, err
	}
	if end.Kind != hook.Continue {
		return nil, job.Fail(HookDenied, denied(end))
	}
	return end.Payload.Get(field), r.spend(workOf(end))
}

// denied is the reason of a refusal, for people.
func denied(end hook.Result) string {
	reason := end.Reason
	if end.Refused {
		reason = strings.TrimPrefix(reason+"; a person refused", "; ")
	}
	if end.Hook != nil {
		reason = strings.TrimSuffix(hookName(end)+": "+reason, ": ")
	}
	return reason
}

func (r *run) event(p *hook.Point) hook.Payload {
	return hook.NewPayload(p).Set("event", p.Name).Set("job", r.id).Set("agent", r.spec.Agent.Name)
}

// folder reads what the agent's folder brings: instructions, and hooks around the
// model and its calls.
func (r *run) folder() error {
	r.instructions = r.spec.Agent.Instructions
	if r.spec.Agent.Folder == nil {
		return nil
	}
	a, err := job.Ask(r.steps, job.Call{Key: "folder", Kind: KindFolder, Input: rawjson.Must(r.spec.Agent.Folder), Limit: 2 * time.Minute})
	if err != nil {
		return err
	}
	if a.Failure != nil {
		return job.Fail("FolderUnavailable", a.Failure.Message)
	}
	var got FolderAnswer
	if err := json.Unmarshal(a.Value, &got); err != nil {
		return fmt.Errorf("what the agent's folder brings cannot be read: %w", err)
	}
	r.instructions = got.Instructions
	var hooks []*hook.Hook
	for _, h := range got.Hooks {
		hooks = append(hooks, &hook.Hook{Name: h.Name, Point: hook.PointNamed(h.Point), Lane: h.Lane, Final: h.Final, Limit: h.Limit, File: h.File, Line: h.Line, Func: nobody})
	}
	e, err := hook.NewEngine(nil, hooks...)
	if err != nil {
		return err
	}
	r.turn = e.Pin()
	return nil
}

// list asks what functions the agent has.
func (r *run) list() error {
	r.schemas = map[string]*jsonschema.Resolved{}
	a, err := job.Ask(r.steps, job.Call{Key: "functions", Kind: KindFunctions, Input: rawjson.Must(FunctionsCall{r.spec.Tools}), Limit: 2 * time.Minute})
	if err != nil {
		return err
	}
	if a.Failure != nil {
		return job.Fail(ToolsUnavailable, a.Failure.Message)
	}
	var listed []Function
	if err := json.Unmarshal(a.Value, &listed); err != nil {
		return fmt.Errorf("the list of functions cannot be read: %w", err)
	}
	r.unlisted = map[string]string{}
	for _, f := range listed {
		if f.Unlisted != "" {
			r.unlisted[f.Tool] = f.Unlisted
			continue
		}
		r.functions = append(r.functions, f)
		var schema jsonschema.Schema
		if len(f.Schema) == 0 || json.Unmarshal(f.Schema, &schema) != nil {
			continue // then the server judges alone
		}
		if resolved, err := schema.Resolve(nil); err == nil {
			r.schemas[f.Full()] = resolved
		}
	}
	return nil
}

// lacking says which tools of the agent could not be asked what they offer, "" when
// there are none. Without them it would do something else than it was made for.
func (r *run) lacking() string {
	var out []string
	for _, pattern := range r.spec.Agent.Tools {
		id, _, _ := strings.Cut(pattern, ".")
		line := "tool " + id + ": " + strings.TrimPrefix(r.unlisted[id], "tool "+id+" ")
		if r.unlisted[id] != "" && !slices.Contains(out, line) {
			out = append(out, line)
		}
	}
	return strings.Join(out, "; ")
}

func (r *run) function(full string) *Function {
	for i := range r.functions {
		if r.functions[i].Full() == full {
			return &r.functions[i]
		}
	}
	return nil
}

// offered are the functions that the agent's patterns name.
func (r *run) offered() []chat.Tool {
	var out []chat.Tool
	for _, f := range r.functions {
		named := func(pattern string) bool { return pattern == f.Full() || pattern == f.Tool+".*" }
		if !slices.ContainsFunc(r.spec.Agent.Tools, named) {
			continue
		}
		schema := f.Schema
		if len(schema) == 0 {
			schema = json.RawMessage(`{"type":"object"}`)
		}
		out = append(out, chat.Tool{Name: r.wireName(f.Full()), Description: f.Description, Parameters: schema})
	}
	return out
}

// Providers take no dot in a tool's name, so on the wire it is two underscores. The
// tools of the agent's own folder have their plain names, so that its hooks meet
// those that they meet in conversations.
const wireDot = "__"

func (r *run) wireName(full string) string {
	tool, function, _ := strings.Cut(full, ".")
	if r.spec.Agent.Folder != nil && tool == r.spec.Agent.Name && function != "" && !strings.Contains(function, wireDot) && !strings.Contains(function, ".") {
		return function
	}
	return strings.Replace(full, ".", wireDot, 1)
}

func (r *run) fullName(wire string) string {
	switch {
	case strings.Contains(wire, "."):
		return wire
	case r.spec.Agent.Folder != nil && !strings.Contains(wire, wireDot):
		return r.spec.Agent.Name + "." + wire
	}
	return strings.Replace(wire, wireDot, ".", 1)
}

// agent runs the loop and gives its answer.
func (r *run) agent() (json.RawMessage, error) {
	e := &env{run: r}
	steps := &inner{run: r, Inner: &job.Inner{Steps: r.steps, Prefix: "agent/", Failed: failedStep}}
	l := &loop.Loop{Steps: steps, Env: e, Identity: loop.Identity{Sender: r.id},
		Hooks: &loop.Hooks{Steps: steps, Set: r.turn, Who: hook.Who{Agent: r.spec.Agent.Name}}, Limits: loop.Limits{Iterations: r.spec.Agent.Limits.Iterations}}
	end, err := l.Run(loop.State{})
	if err != nil {
		return nil, err
	}
	switch end.Why {
	case loop.Said, loop.Listening, loop.HungUp:
		return rawjson.Must(e.output), nil
	case loop.Cap:
		return nil, job.Fail(LimitExceeded, end.Detail)
	case loop.ModelError:
		return nil, job.Fail(ModelError, end.Detail)
	case loop.HookError:
		return nil, job.Fail(HookError, end.Detail)
	}
	return nil, job.Fail(NoAnswer, end.Detail)
}

// failedStep writes failures in the forms that the loop has for them.
func failedStep(c stepCall, f job.Failure) (any, bool) {
	switch c.Kind {
	case loop.KindModel:
		return loop.ModelAnswer{Failed: f.Kind + ": " + f.Message}, true
	case loop.KindHook:
		kind := hook.Crash
		if f.Kind == job.TimedOut {
			kind = hook.Timeout
		}
		return hook.Failed(kind, "%s", f.Message), true
	}
	return nil, false
}

// spend counts time of work against the job's limit.
func (r *run) spend(took time.Duration) error {
	r.work += took
	if limit := r.spec.Agent.Limits.Work; limit > 0 && r.work > limit {
		return job.Fail(LimitExceeded, fmt.Sprintf("the job worked for more than %s", limit))
	}
	return nil
}
