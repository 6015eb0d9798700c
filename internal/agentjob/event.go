package agentjob

import (
	"encoding/json"
	"fmt"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/internal/job"
	"github.com/belay-run/belay/internal/policy"
	"github.com/belay-run/belay/internal/rawjson"
)

// EventFlow is the name of the flow that puts one event to the hooks, as a job does
// when it comes to one, and ends with what they say. Tests of plugins run it.
const EventFlow = "event"

// NotAsked is the code of an event of which a job would ask no hook: the call does
// not fit the tool, or the policy refuses it outright.
const NotAsked = "NotAsked"

// EventSpec is the input of the flow.
type EventSpec struct {
	// Spec is of the job that the event would be in.
	Spec  *Spec  `json:"spec"`
	Event string `json:"event"`
	// Fields are the event's own, such as tool and arguments.
	Fields map[string]json.RawMessage `json:"fields,omitempty"`
}

// EventEnd is the output of the flow: what the hooks of the event came to.
type EventEnd struct {
	// Says is allow, modify or deny.
	Says   string          `json:"says"`
	Value  json.RawMessage `json:"value"` // that goes on, or that was denied
	Reason string          `json:"reason,omitempty"`
	Hook   string          `json:"hook,omitempty"`    // that denied
	Person bool            `json:"refused,omitempty"` // denied by a person, whom that hook had asked
}

// NewEvent returns the flow of single events.
func NewEvent(pinned Pinned) job.Flow {
	return job.Flow{Name: EventFlow, Shape: 1, Oldest: 1, Run: func(s job.Steps, in job.Order) (json.RawMessage, error) {
		var e EventSpec
		if err := json.Unmarshal(in.Input, &e); err != nil {
			return nil, fmt.Errorf("the event cannot be read: %w", err)
		}
		r := &run{steps: s, id: in.Job, tenant: in.Tenant, spec: e.Spec, input: e.Spec.Input, permitted: map[string]string{}, told: pinned.Told}
		if err := r.prepare(pinned); err != nil {
			return nil, err
		}
		if err := r.list(); err != nil {
			return nil, err
		}
		return r.one(e)
	}}
}

// one puts an event to its hooks.
func (r *run) one(e EventSpec) (json.RawMessage, error) {
	point := hook.PointNamed(e.Event)
	if point == nil || point.Dialect != hook.Plugin {
		return nil, fmt.Errorf("%q is no event of a job", e.Event)
	}
	p := r.event(point)
	for i := range point.Fields {
		name := point.Fields[i].Name
		if value, ok := e.Fields[name]; ok {
			p = p.Set(name, value)
		}
	}
	who, a := hook.Who{Agent: r.spec.Agent.Name}, about{}
	if err := json.Unmarshal(e.Fields["tool"], &who.Tool); err != nil && len(e.Fields["tool"]) > 0 {
		return nil, fmt.Errorf("the tool of the event: %w", err)
	}
	switch point.Name {
	case hook.PreToolCall:
		call := &toolCall{run: r, full: who.Tool, args: p.Get("arguments"), fn: r.function(who.Tool)}
		if why := call.unasked(); why != "" {
			return nil, job.Fail(NotAsked, why)
		}
		a = call.about()
	case hook.PostToolCall:
		a = about{tool: who.Tool, arguments: p.Get("arguments")}
	}
	if err := r.permitAll(point.Name, who); err != nil {
		return nil, err
	}
	end, err := r.chain(r.steps, "event", who, p, a)
	if err != nil {
		return nil, err
	}
	out := EventEnd{Says: Allowed, Value: end.Payload.Get(point.Fields[point.Changeable()].Name), Reason: end.Reason, Person: end.Refused}
	switch {
	case end.Kind != hook.Continue:
		out.Says, out.Hook = Denied, hookName(end)
	case end.Changed:
		out.Says = Modified
	}
	return rawjson.Must(out), nil
}

// unasked says why no hook is asked about the call, "" when they are.
func (t *toolCall) unasked() string {
	if why := t.invalid(t.full, t.args); why != "" {
		return fmt.Sprintf("the arguments do not fit the schema of %s, so that no hook would be asked: %s", t.full, why)
	}
	if v := t.policy.Outright(t.policyCall(t.full, t.args, nil)); v.Effect == policy.Refuse {
		return refusal(t.full, v)
	}
	return ""
}
