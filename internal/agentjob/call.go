package agentjob

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/internal/approval"
	"github.com/belay-run/belay/internal/job"
	"github.com/belay-run/belay/internal/loop"
	"github.com/belay-run/belay/internal/policy"
	"github.com/belay-run/belay/internal/rawjson"
)

// toolLimit is how long a tool may take, where the job has no limit of its own.
const toolLimit = 5 * time.Minute

func (r *run) toolLimit() time.Duration { return cmp.Or(r.spec.Agent.Limits.Tool, toolLimit) }

// attempt is what came of one call: the outcome, what the policy is told of it
// afterwards, and the time of its tool and hooks.
type attempt struct {
	out  loop.Outcome
	past policy.Past
	took time.Duration
}

// call takes one call through its gates and makes it. It runs beside others.
func (r *run) call(s job.Steps, c loop.Call, earlier []policy.Past) (attempt, error) {
	full := r.fullName(c.Name)
	t := &toolCall{run: r, steps: s, key: "agent/" + c.Key, full: full, args: c.Arguments, fn: r.function(full)}
	refuse := func(format string, args ...any) (attempt, error) {
		return attempt{took: t.work, out: loop.Outcome{Arguments: t.args, Value: fmt.Sprintf(format, args...), IsError: true},
			past: policy.Past{Tool: full, Outcome: policy.NotMade, Arguments: t.args}}, nil
	}
	if why := r.early(c); why != "" {
		return refuse("%s", why)
	}
	who := hook.Who{Agent: r.spec.Agent.Name, Tool: full}
	end, err := r.chain(s, t.key+"/pre", who, r.event(hook.PointNamed(hook.PreToolCall)).Set("tool", full).Set("arguments", t.args), t.about())
	if err != nil {
		return attempt{}, err
	}
	if t.work = workOf(end); end.Kind != hook.Continue {
		return refuse("%s", deniedCall(full, end))
	}
	t.args, t.changedBy = end.Payload.Get("arguments"), changers(end)
	if why, err := t.rules(earlier); err != nil || why != "" {
		a, _ := refuse("%s", why)
		return a, err
	}
	return t.make(who)
}

// early is what the model reads of a call that no hook is asked about, since it is
// not made anyway; "" of any other.
func (r *run) early(c loop.Call) string {
	full := r.fullName(c.Name)
	switch {
	case !c.Offered || r.function(full) == nil:
		return fmt.Sprintf("Error: there is no tool named %q. Nothing was done.", c.Name)
	case c.Broken:
		return "Error: the arguments were not a JSON object. Nothing was done."
	}
	if why := r.invalid(full, c.Arguments); why != "" {
		return fmt.Sprintf("Error: the arguments do not fit: %s. Nothing was done.", why)
	}
	if v := r.policy.Outright(r.policyCall(full, c.Arguments, nil)); v.Effect == policy.Refuse {
		return refusal(full, v)
	}
	return ""
}

// toolCall is a call that was let through so far.
type toolCall struct {
	*run
	steps job.Steps
	key   string
	full  string
	args  json.RawMessage
	fn    *Function
	// changedBy are the hooks that changed the arguments, in order.
	changedBy []string
	work      time.Duration // of the hooks before it
}

// changers are the hooks that changed a chain's payload, each once.
func changers(end hook.Result) []string {
	var out []string
	for _, line := range end.Runs {
		if name := plainName(line.Name); len(line.Changed) > 0 && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

func (t *toolCall) about() about {
	return about{tool: t.full, harmed: func(value json.RawMessage) string {
		if why := t.invalid(t.full, value); why != "" {
			return "the tool refuses these arguments: " + why
		}
		return ""
	}}
}

// invalid says why the tool's schema refuses arguments, "" when it does not.
func (r *run) invalid(full string, args json.RawMessage) string {
	schema := r.schemas[full]
	if schema == nil {
		return ""
	}
	var v any
	if err := json.Unmarshal(args, &v); err != nil {
		return "they are no JSON"
	}
	if err := schema.Validate(v); err != nil {
		return err.Error()
	}
	return ""
}

func (r *run) policyCall(full string, args json.RawMessage, changedBy []string) policy.Call {
	call := policy.Call{Tool: full, Arguments: args, Agent: policy.Agent{Name: r.spec.Agent.Name, Provider: r.spec.Agent.Provider, Model: r.spec.Agent.Model},
		Job: policy.Job{ID: r.id, Tenant: r.tenant, StartedBy: r.spec.By}, Origin: policy.Origin{By: policy.ByModel, ChangedBy: changedBy}}
	if f := r.function(full); f != nil {
		call.Annotations = policy.Annotations(f.Annotations)
	}
	return call
}

func refusal(full string, v policy.Verdict) string {
	if v.Reason == "" {
		return fmt.Sprintf("The call to %s was not made: the tool policy refuses it.", full)
	}
	return fmt.Sprintf("The call to %s was not made: the tool policy refuses it: %s.", full, v.Reason)
}

// deniedCall is what the model reads of a call that a hook denied.
func deniedCall(full string, end hook.Result) string {
	return withReason(fmt.Sprintf("The call to %s was not made: hook %s denied it", full, hookName(end)), end)
}

// withheld is what the model reads in the place of a result that a hook denied.
func withheld(full string, end hook.Result) string {
	return withReason(fmt.Sprintf("The result of the call to %s is withheld: hook %s denied it", full, hookName(end)), end)
}

func withReason(sentence string, end hook.Result) string {
	if end.Reason != "" {
		sentence += ": " + end.Reason
	}
	sentence += "."
	if end.Refused {
		sentence += " A person refused it."
	}
	return sentence
}

// hookName names the hook that decided.
func hookName(end hook.Result) string {
	if end.Hook == nil {
		return "unknown"
	}
	return plainName(end.Hook.Name)
}

// plainName is a hook's function, without the number that tells two hooks of one
// function apart.
func plainName(name string) string {
	name, _, _ = strings.Cut(name, "#")
	return name
}

// rules puts the call to the rest of the policy. why is what the model reads when
// it is not made.
func (t *toolCall) rules(earlier []policy.Past) (why string, err error) {
	v := t.policy.Decide(t.policyCall(t.full, t.args, t.changedBy), earlier)
	switch v.Effect {
	case policy.Allow:
		return "", nil
	case policy.RequireApproval:
		req := approval.Request{Kind: asks(v), Tool: t.full, Arguments: t.args, Policy: t.policy.Version(), Role: v.Approvers}
		for _, rule := range v.Rules {
			req.Reasons = append(req.Reasons, approval.Reason{By: rule})
		}
		if len(req.Reasons) == 0 {
			req.Reasons = []approval.Reason{{By: "policy"}}
		}
		req.Reasons[0].Text = v.Reason
		yes, no, err := t.person(t.steps, t.key+"/approve", req)
		if err != nil || yes {
			return "", err
		}
		return fmt.Sprintf("The call to %s was not made: %s.", t.full, no), nil
	}
	return refusal(t.full, v), nil
}

// asks says which kind of approval a verdict asks for.
func asks(v policy.Verdict) approval.Kind {
	if v.Kind == policy.ByAnnotation {
		return approval.Annotation
	}
	return approval.Policy
}

// make makes the call, and asks a person when nobody knows whether it was made.
func (t *toolCall) make(who hook.Who) (attempt, error) {
	tool, ok := t.spec.tool(t.fn.Tool)
	if !ok {
		return attempt{}, fmt.Errorf("the job has no tool %s", t.fn.Tool)
	}
	once := t.fn.Annotations.Idempotent == nil || !*t.fn.Annotations.Idempotent
	if ro := t.fn.Annotations.ReadOnly; ro != nil && *ro {
		once = false
	}
	input := rawjson.Must(ToolCall{Job: t.id, Tool: tool, Function: t.fn.Name, Arguments: t.args, Limit: t.toolLimit()})
	key := t.key + "/tool"
	var took time.Duration
	for {
		a, err := job.Ask(t.steps, job.Call{Key: key, Kind: KindTool, Input: input, Once: once})
		if err != nil {
			return attempt{}, err
		}
		took += a.Took
		if a.Failure == nil || a.Failure.Kind != job.Unknown || !once { // what may be made again has failed, and no person needs to say so
			got, err := t.answer(a)
			if err != nil {
				return attempt{}, err
			}
			return t.after(who, got, took)
		}
		given, again, err := t.unknown(key)
		if err != nil {
			return attempt{}, err
		}
		if !again {
			return t.after(who, given, took)
		}
		key += "/again"
	}
}

// answer reads what came of a call.
func (t *toolCall) answer(a job.Answer) (ToolAnswer, error) {
	if a.Failure != nil {
		text := fmt.Sprintf("Error: %s failed.", t.full)
		if a.Failure.Kind == job.TimedOut {
			text = fmt.Sprintf("Error: %s did not answer within %s.", t.full, t.toolLimit())
		}
		return ToolAnswer{Text: text, Value: rawjson.Must(text), IsError: true, Made: a.Failure.Kind != Unavailable}, nil
	}
	var got ToolAnswer
	if err := json.Unmarshal(a.Value, &got); err != nil {
		return got, fmt.Errorf("what %s answered cannot be read: %w", t.full, err)
	}
	return got, nil
}

// unknown asks a person about a call of which nobody knows whether it was made.
func (t *toolCall) unknown(key string) (given ToolAnswer, again bool, err error) {
	req := approval.Request{Kind: approval.Outcome, Tool: t.full, Arguments: t.args, Policy: t.policy.Version(),
		Reasons: []approval.Reason{{By: "belay", Text: "the call was begun and its process ended; it may or may not have been made"}}}
	answer, why, err := t.question(t.steps, key+"/outcome", req)
	if err != nil {
		return given, false, err
	}
	given = ToolAnswer{IsError: true, Made: true, Text: fmt.Sprintf("The outcome of the call to %s is unknown: it was interrupted while it ran, and a person says to treat it as failed.", t.full)}
	switch {
	case why != "":
		given.Text = fmt.Sprintf("The outcome of the call to %s is unknown: it was interrupted while it ran, and %s.", t.full, why)
	case answer.Action == approval.Retry:
		return given, true, nil
	case answer.Action == approval.Result:
		return ToolAnswer{Made: true, Value: answer.Result, Text: rawjson.Written(answer.Result)}, false, nil
	}
	given.Value = rawjson.Must(given.Text)
	return given, false, nil
}

// after puts the result to the hooks.
func (t *toolCall) after(who hook.Who, got ToolAnswer, took time.Duration) (attempt, error) {
	a := attempt{took: t.work + took, out: loop.Outcome{Arguments: t.args, Value: got.Text, IsError: got.IsError, Ran: got.Made, Took: took},
		past: policy.Past{Tool: t.full, Arguments: t.args, Outcome: policy.Succeeded}}
	if got.IsError {
		a.past.Outcome = policy.Failed
	}
	if !got.Made {
		a.past.Outcome = policy.NotMade
		return a, nil
	}
	value := got.Value
	if got.IsError {
		value = rawjson.Must(got.Text)
	}
	p := t.event(hook.PointNamed(hook.PostToolCall)).Set("tool", t.full).Set("arguments", t.args).Set("result", value)
	if got.IsError {
		p = p.Set("is_error", true)
	}
	end, err := t.chain(t.steps, t.key+"/post", who, p, about{tool: t.full, arguments: t.args})
	a.took += workOf(end)
	switch {
	case err != nil:
		return a, err
	case end.Kind != hook.Continue:
		a.out.Value, a.out.IsError = withheld(t.full, end), true
	case end.Changed:
		a.out.Value = rawjson.Written(end.Payload.Get("result"))
	}
	return a, nil
}
