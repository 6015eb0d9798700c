package loop

import (
	"fmt"
	"slices"
	"strings"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/rawjson"
	"github.com/belay-run/belay/internal/step"
)

// prompt builds the request of an iteration and puts it to the hooks.
func (l *Loop) prompt(s State) (State, error) {
	if s.Iteration >= l.Limits.Iterations {
		return s.end(End{Why: Cap, Response: responseCap, Detail: fmt.Sprintf("%d iterations", s.Iteration)}), nil
	}
	p, err := l.Env.Prompt(Ask{Iteration: s.Iteration, Feedback: s.Feedback, Searched: s.Searched})
	if err != nil {
		return s, err
	}
	if p.Wait {
		return s.end(End{Why: Waiting}), nil
	}
	if p.Cut > 0 {
		l.note(fmt.Sprintf("%d messages were cut to meet the token budget", p.Cut))
	}
	req, failed, err := l.Hooks.Request(l.key(s, hook.ModelRequest), l.Identity, p, s.Iteration)
	if err != nil {
		return s, err
	}
	if failed != nil {
		return s.end(failedHook(pointRequest, *failed)), nil
	}
	s.Feedback = "" // it was for this request alone
	s.Phase, s.Request, s.Offered = Completing, &req, nil
	for _, t := range p.Tools {
		s.Offered = append(s.Offered, t.Name)
	}
	return s, nil
}

// Request puts a request to the model-request hooks and returns it as they left
// it. When a hook failed closed nothing may be sent; failed says how.
func (h *Hooks) Request(key string, id Identity, p Prompt, iteration int) (req chat.Request, failed *hook.Result, err error) {
	req = chat.Request{Messages: rawjson.List(p.Messages), Tools: p.Tools}
	if !h.Listens(pointRequest) {
		h.trace(Line{Kind: "point", Point: pointRequest.Name, Key: key, Outcome: hook.Continue.String()})
		return req, nil, nil
	}
	names := make([]string, len(p.Tools))
	for i, t := range p.Tools {
		names[i] = t.Name
	}
	payload := id.Payload(pointRequest).Set("messages", req.Messages).Set("tool_names", rawjson.Must(names)).Set("iteration", iteration)
	r, err := h.At(key, payload)
	if err != nil {
		return req, nil, err
	}
	if r.Kind != hook.Continue {
		return req, &r, nil
	}
	req.Messages = r.Payload.Get("messages")
	var left []string
	if req.Settings, left = settings(r.Payload.Get("model_settings")); len(left) > 0 {
		h.trace(Line{Kind: "note", Key: key, Why: "model_settings left out: " + strings.Join(left, ", ")})
	}
	return req, nil, nil
}

// complete asks the model; an empty completion is asked for again, with the same
// request and without the hooks.
func (l *Loop) complete(s State) (State, error) {
	live := l.Live && !l.Hooks.Stands(hook.ModelResponse) && !l.Hooks.Stands(hook.ToolCall) && !l.Hooks.Stands(hook.OutgoingText)
	var got ModelAnswer
	for attempt := 0; attempt <= max(0, l.Limits.EmptyRetries); attempt++ {
		var err error
		if got, err = l.Hooks.Complete(l.key(s, fmt.Sprintf("model/%d", attempt)), ModelCall{Request: *s.Request, Live: live, Purpose: "main"}, s.Iteration, attempt); err != nil {
			return s, err
		}
		if got.Failed != "" || !got.Response.Empty() {
			break
		}
	}
	if got.Failed != "" {
		return l.broken(s, got)
	}
	s.Phase, s.Request = Judging, nil
	s.Text, s.Calls, s.Streamed = got.Response.Text, Called(got.Response.ToolCalls), live
	s.Latency = got.Response.Latency.Milliseconds()
	return s, nil
}

// broken ends a turn whose provider failed. What the user has read of the text
// by then is kept.
func (l *Loop) broken(s State, got ModelAnswer) (State, error) {
	if strings.TrimSpace(got.Streamed) != "" {
		if err := l.Env.Say(Speech{Key: l.key(s, "cut"), Text: got.Streamed, Source: fromModel, Streamed: true, Cut: true}); err != nil {
			return s, err
		}
	}
	return s.end(End{Why: ModelError, Response: responseInternal, Detail: got.Failed}), nil
}

// Complete asks the model once.
func (h *Hooks) Complete(key string, call ModelCall, iteration, attempt int) (ModelAnswer, error) {
	a, err := h.Steps.Do(step.Call{Key: key, Kind: KindModel, Input: call})
	if err != nil {
		return ModelAnswer{}, err
	}
	got, err := step.As[ModelAnswer](a)
	if err != nil {
		return ModelAnswer{}, err
	}
	line := Line{Kind: "model", Key: key, Purpose: call.Purpose, Iteration: iteration, Attempt: attempt, Took: got.Response.Latency, Live: call.Live, Outcome: "ok"}
	switch {
	case got.Failed != "":
		line.Outcome, line.Why = "failed", got.Failed
	case got.Response.Empty():
		line.Outcome = "empty"
	}
	if got.Response.Usage != (chat.Usage{}) {
		line.Usage = &got.Response.Usage
	}
	h.trace(line)
	return got, nil
}

// judge puts the completion to the model-response hooks.
func (l *Loop) judge(s State) (State, error) {
	r, text, calls, err := l.Hooks.Response(l.key(s, hook.ModelResponse), l.Identity, s.Text, s.Calls, s.Latency)
	if err != nil {
		return s, err
	}
	if r.Kind == hook.Retry {
		return s.again(r.Feedback), nil
	}
	s.Text, s.Calls = text, calls
	switch {
	case len(s.Calls) > 0:
		s.Phase, s.At = Preflight, 0
		return l.number(s)
	case blank(s.Text):
		return s.end(End{Why: NoAnswer, Response: responseEmpty, Detail: "the completion was empty"}), nil
	}
	s.Phase = Speaking
	return s, nil
}

// Response puts a completion to the model-response hooks and returns text and
// calls as they left them.
func (h *Hooks) Response(key string, id Identity, said *string, calls []Call, latency int64) (hook.Result, *string, []Call, error) {
	if !h.Listens(pointResponse) {
		h.trace(Line{Kind: "point", Point: pointResponse.Name, Key: key, Outcome: hook.Continue.String()})
		return hook.Result{Kind: hook.Continue}, said, calls, nil
	}
	p := id.Payload(pointResponse).Set("text", said).Set("tool_calls", show(calls)).Set("latency_ms", latency)
	before := p.Get("tool_calls")
	r, err := h.At(key, p)
	if err != nil || r.Kind != hook.Continue || !r.Changed {
		return r, said, calls, err
	}
	said = text(r.Payload.Get("text"))
	if after := r.Payload.Get("tool_calls"); string(after) != string(before) {
		if calls, err = reread(after, calls); err != nil {
			return r, said, nil, fmt.Errorf("%s: tool calls: %w", key, err)
		}
	}
	return r, said, calls, nil
}

// number gives every call its id, its place in the batch and its key.
func (l *Loop) number(s State) (State, error) {
	calls := append([]Call(nil), s.Calls...)
	for i := range calls {
		calls[i].Key = l.key(s, fmt.Sprintf("call/%d", i))
		if calls[i].ID != "" {
			continue
		}
		a, err := l.Steps.Do(step.Call{Key: calls[i].Key + "/id", Kind: KindID, Input: IDCall{For: "tool_call"}})
		if err != nil {
			return s, err
		}
		if calls[i].ID, err = step.As[string](a); err != nil {
			return s, err
		}
	}
	for i := range calls {
		calls[i].Batch = fmt.Sprintf("%d-%s", s.Iteration, calls[0].ID)
	}
	s.Calls = calls
	return s, nil
}

// preflight puts one call of the batch to the tool-call hooks. Nothing runs
// before each of them has passed.
func (l *Loop) preflight(s State) (State, error) {
	if s.At == len(s.Calls) {
		s.Phase, s.At = Routing, 0
		return s, nil
	}
	c := s.Calls[s.At]
	p := l.Identity.Payload(pointCall).Set("tool_name", c.Name).Set("arguments", c.Arguments)
	r, err := l.Hooks.At(c.Key+"/"+hook.ToolCall, p)
	if err != nil {
		return s, err
	}
	switch {
	case r.Kind == hook.Retry:
		return s.again(r.Feedback), nil
	case r.Kind != hook.Continue:
		return s.end(failedHook(pointCall, r)), nil
	case r.Changed:
		calls := append([]Call(nil), s.Calls...)
		c.Name = r.Payload.Text("tool_name")
		if args := r.Payload.Get("arguments"); string(args) != string(c.Arguments) {
			c.Arguments, c.Broken = args, false
		}
		calls[s.At], s.Calls = c, calls
	}
	s.At++
	return s, nil
}

// route decides what a batch means: one that only listens or hangs up ends the
// turn, any other is run.
func (l *Loop) route(s State) (State, error) {
	only, hangup := true, false
	s.Calls = append([]Call(nil), s.Calls...)
	for i, c := range s.Calls {
		s.Calls[i].Offered = slices.Contains(s.Offered, c.Name)
		only = only && (c.Name == Listen || c.Name == Hangup)
		hangup = hangup || c.Name == Hangup
		s.Searched = s.Searched || c.Name == SearchKnowledge && s.Calls[i].Offered
	}
	if only {
		if err := l.say(s, fromModel, ""); err != nil {
			return s, err
		}
		if hangup {
			return s.end(End{Why: HungUp}), nil
		}
		return s.end(End{Why: Listening}), nil
	}
	if err := l.say(s, filler, s.Calls[0].Batch); err != nil {
		return s, err
	}
	if err := l.Env.Begin(s.Calls); err != nil {
		return s, err
	}
	s.Phase, s.At = Dispatching, 0
	return s, nil
}

// dispatch runs one call of the batch and puts its result to the hooks.
func (l *Loop) dispatch(s State) (State, error) {
	if s.At == len(s.Calls) {
		if s.Waits {
			return s.end(End{Why: Waiting}), nil
		}
		return s.again(""), nil
	}
	if b, ok := l.Env.(Batcher); ok {
		outs, err := b.DispatchAll(s.Calls)
		if err != nil {
			return s, err
		}
		for _, out := range outs {
			if s, err = l.settle(s, out); err != nil {
				return s, err
			}
		}
		return s, nil
	}
	out, err := l.Env.Dispatch(s.Calls[s.At])
	if err != nil {
		return s, err
	}
	return l.settle(s, out)
}

// settle puts the result of the call under way to the hooks and keeps it.
func (l *Loop) settle(s State, out Outcome) (State, error) {
	c := s.Calls[s.At]
	out, err := l.result(c, out)
	if err != nil {
		return s, err
	}
	if err := l.Env.Settle(c, out); err != nil {
		return s, err
	}
	s.Waits = s.Waits || out.Wait
	s.At++
	return s, nil
}

// result puts what came of a call to the tool-result hooks.
func (l *Loop) result(c Call, out Outcome) (Outcome, error) {
	p := l.Identity.Payload(pointResult).Set("tool_name", c.Name).Set("arguments", out.Arguments).
		Set("value", rawjson.Must(out.Value)).Set("is_error", out.IsError)
	r, err := l.Hooks.At(c.Key+"/"+hook.ToolResult, p)
	if err != nil {
		return out, err
	}
	if r.Changed {
		out.Arguments = r.Payload.Get("arguments")
		out.Value = rawjson.Written(r.Payload.Get("value"))
		out.IsError = strings.TrimSpace(string(r.Payload.Get("is_error"))) == "true"
	}
	return out, nil
}

// speak sends the text and ends the turn.
func (l *Loop) speak(s State) (State, error) {
	if err := l.say(s, fromModel, ""); err != nil {
		return s, err
	}
	return s.end(End{Why: Said}), nil
}

// Sources of a text.
const (
	fromModel = "llm"
	filler    = "filler"
)

func (l *Loop) say(s State, source, batch string) error {
	if blank(s.Text) {
		return nil
	}
	return l.Env.Say(Speech{Key: l.key(s, "say"), Text: *s.Text, Source: source, Batch: batch, Streamed: s.Streamed})
}
