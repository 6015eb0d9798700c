package agentjob

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/internal/job"
	"github.com/belay-run/belay/internal/loop"
	"github.com/belay-run/belay/internal/policy"
	"github.com/belay-run/belay/internal/rawjson"
	"github.com/belay-run/belay/internal/step"
)

type stepCall = step.Call

// env is what the loop works in: the job's transcript, which is made anew from the
// kept answers each time that the job goes on.
type env struct {
	*run
	messages []json.RawMessage // assistant and tool messages so far
	filler   string            // text beside the calls of the batch under way
	output   string
}

var (
	_ loop.Env     = (*env)(nil)
	_ loop.Batcher = (*env)(nil)
)

type message struct {
	Role       string        `json:"role"`
	Content    *string       `json:"content"`
	ToolCalls  []messageCall `json:"tool_calls,omitempty"`
	ToolCallID string        `json:"tool_call_id,omitempty"`
}

type messageCall struct {
	ID       string          `json:"id"`
	Type     string          `json:"type"`
	Function messageFunction `json:"function"`
}

type messageFunction struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

func say(role, text string) json.RawMessage {
	return rawjson.Must(message{Role: role, Content: &text})
}

func (e *env) Prompt(a loop.Ask) (loop.Prompt, error) {
	messages := []json.RawMessage{say("system", e.instructions), say("user", inputText(e.input))}
	messages = append(messages, e.messages...)
	if a.Feedback != "" {
		messages = append(messages, say("system", a.Feedback))
	}
	return loop.Prompt{Messages: messages, Tools: e.offered()}, nil
}

func (e *env) Say(s loop.Speech) error {
	if s.Batch != "" {
		e.filler = s.Text
		return nil
	}
	e.output = s.Text
	return nil
}

func (e *env) Begin(batch []loop.Call) error {
	e.calls += len(batch)
	if limit := e.spec.Agent.Limits.ToolCalls; limit > 0 && e.calls > limit {
		return job.Fail(LimitExceeded, fmt.Sprintf("more than %d tool calls", limit))
	}
	m := message{Role: "assistant"}
	if e.filler != "" {
		text := e.filler
		m.Content, e.filler = &text, ""
	}
	for _, c := range batch {
		m.ToolCalls = append(m.ToolCalls, messageCall{ID: c.ID, Type: "function", Function: messageFunction{e.wireName(c.Name), string(c.Arguments)}})
	}
	e.messages = append(e.messages, rawjson.Must(m))
	return nil
}

// Dispatch is not used: a job's batch is dispatched whole.
func (e *env) Dispatch(c loop.Call) (loop.Outcome, error) {
	outs, err := e.DispatchAll([]loop.Call{c})
	if err != nil {
		return loop.Outcome{}, err
	}
	return outs[0], nil
}

// DispatchAll decides and makes the calls side by side. What one call changes for
// others is put together afterwards, in order.
func (e *env) DispatchAll(batch []loop.Call) ([]loop.Outcome, error) {
	attempts := make([]attempt, len(batch))
	err := e.inGroups(batch, func(i int, r *run, s job.Steps) (err error) {
		earlier := append([]policy.Past(nil), e.past...)
		for _, c := range batch[:i] { // decided beside this one
			earlier = append(earlier, policy.Past{Tool: e.fullName(c.Name), Outcome: policy.Pending, Arguments: c.Arguments})
		}
		attempts[i], err = r.call(s, batch[i], earlier)
		return err
	})
	if err != nil {
		return nil, err
	}
	outs := make([]loop.Outcome, len(batch))
	for i, a := range attempts {
		outs[i] = a.out
		e.past = append(e.past, a.past)
		if err := e.spend(a.took); err != nil {
			return nil, err
		}
	}
	return outs, nil
}

func (e *env) Settle(c loop.Call, out loop.Outcome) error {
	e.messages = append(e.messages, rawjson.Must(message{Role: "tool", Content: &out.Value, ToolCallID: c.ID}))
	return nil
}

// inner is the job's steps as the loop asks them; a model call passes its hooks on
// the way.
type inner struct {
	*job.Inner
	run *run
}

func (in *inner) Do(c step.Call) (step.Answer, error) {
	if c.Kind != loop.KindModel {
		return in.Inner.Do(c)
	}
	call := c.Input.(loop.ModelCall)
	if err := in.run.permitAll(hook.PreLLMCall, hook.Who{Agent: in.run.spec.Agent.Name}); err != nil {
		return step.Answer{}, err
	}
	p := in.run.event(hook.PointNamed(hook.PreLLMCall)).Set("messages", call.Request.Messages).Set("model", in.run.model())
	end, err := in.run.chain(in.run.steps, "agent/"+c.Key+"/pre_llm", hook.Who{Agent: in.run.spec.Agent.Name}, p, about{})
	if err != nil {
		return step.Answer{}, err
	}
	if end.Kind != hook.Continue {
		return step.Answer{}, job.Fail(HookDenied, denied(end))
	}
	call.Request.Messages = end.Payload.Get("messages")
	c.Input = call
	a, err := in.Inner.Do(c)
	if err != nil {
		return a, err
	}
	got, err := step.As[loop.ModelAnswer](a)
	if err != nil {
		return a, err
	}
	if got.OverBudget {
		return a, job.Fail(LimitExceeded, got.Failed)
	}
	return a, in.run.spend(max(got.Response.Latency, time.Duration(0)) + workOf(end))
}

// model is what hooks are told of the model.
func (r *run) model() any {
	if r.spec.Agent.Model == "" {
		return nil
	}
	return map[string]string{"provider": r.spec.Agent.Provider, "model": r.spec.Agent.Model}
}
