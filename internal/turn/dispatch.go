package turn

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/internal/conversation"
	"github.com/belay-run/belay/internal/loop"
	"github.com/belay-run/belay/internal/rawjson"
	"github.com/belay-run/belay/internal/step"
	"github.com/belay-run/belay/internal/wording"
)

// asked is a call whose confirmation the user is asked for.
type asked struct {
	tool   *Tool
	name   string // of the response that asks
	result string // what the model reads meanwhile
}

// innerRun is a confirmed tool's run, kept until the hooks have seen its result.
type innerRun struct {
	run    conversation.ToolRun
	tool   *Tool
	denied bool
}

// Begin writes down which calls are about to run, so that a process that dies
// leaves no doubt. Arguments are not written here: hooks have yet to say what of
// them may be kept.
func (t *turn) Begin(batch []loop.Call) error {
	e := conversation.Event{Kind: conversation.ToolBatch}
	for _, c := range batch {
		if tool := t.agent.tool(c.Name); c.Offered && (c.Name == resolveConfirmation || tool != nil && !tool.Confirm) {
			e.Batch = append(e.Batch, conversation.ToolRun{Name: c.Name, Arguments: json.RawMessage(`{}`), CallID: c.ID, CallType: c.Type, BatchID: c.Batch})
		}
	}
	if len(e.Batch) == 0 {
		return nil
	}
	t.add(e)
	return t.flush()
}

// Dispatch runs one call through its gates.
func (t *turn) Dispatch(c loop.Call) (loop.Outcome, error) {
	fail := func(format string, args ...any) (loop.Outcome, error) {
		why := "the tool was not offered"
		if c.Broken {
			why = "the arguments were no object"
		}
		t.notRun(c, why)
		return loop.Outcome{Arguments: c.Arguments, Value: fmt.Sprintf(format, args...), IsError: true}, nil
	}
	switch {
	case !c.Offered:
		return fail("Error: there is no tool named %q. Nothing was done.", c.Name)
	case c.Broken:
		return fail("Error: the arguments were not a JSON object. Nothing was done.")
	case c.Name == loop.Listen, c.Name == loop.Hangup:
		return loop.Outcome{Arguments: c.Arguments, Value: c.Name + ": done"}, nil
	case c.Name == loop.SearchKnowledge:
		return t.search(c)
	case c.Name == resolveConfirmation:
		return t.resolve(c)
	}
	tool := t.agent.tool(c.Name)
	if tool == nil {
		return fail("Error: there is no tool named %q. Nothing was done.", c.Name)
	}
	if tool.Confirm {
		return t.confirm(c, tool)
	}
	return t.runTool(c, tool, c.Arguments)
}

// notRun says in the trace that a call ran nothing, and why.
func (t *turn) notRun(c loop.Call, why string) {
	t.trace(loop.Line{Kind: "tool", Key: c.Key, Tool: c.Name, CallID: c.ID, Outcome: "not_run", Why: why})
}

// confirm closes the gate of a tool that asks first.
func (t *turn) confirm(c loop.Call, tool *Tool) (loop.Outcome, error) {
	if len(t.asking) > 0 {
		t.notRun(c, "another call waits for confirmation")
		return loop.Outcome{Arguments: c.Arguments, IsError: true,
			Value: spaced(status{"not_executed", "Another call waits for confirmation. Call this tool again once the user has answered."})}, nil
	}
	q := asked{tool: tool, name: tool.Question}
	if q.name == "" {
		q.name = responseConfirm
	}
	if _, _, ok := t.agent.Words.Pick(q.name, wording.ConfirmVars(tool.Name, c.Arguments)); !ok {
		return loop.Outcome{}, fmt.Errorf("there is no response %s to ask for the confirmation of %s", q.name, c.Name)
	}
	q.result = t.awaiting(q, c.Arguments)
	t.asking[c.Key] = q
	t.notRun(c, "it waits for the user's confirmation")
	return loop.Outcome{Arguments: c.Arguments, Value: q.result, Wait: true}, nil
}

// awaiting is the result of a call that waits for the user: it has the question.
func (t *turn) awaiting(q asked, args json.RawMessage) string {
	text, _, _ := t.agent.Words.Pick(q.name, wording.ConfirmVars(q.tool.Name, args)) // confirm has seen that it is there
	return spaced(status{"awaiting_confirmation", text})
}

type status struct {
	Status  string `json:"status"`
	Message string `json:"message"`
}

const responseConfirm = "utter_confirm_tool"

// resolve takes the user's answer to a confirmation.
func (t *turn) resolve(c loop.Call) (loop.Outcome, error) {
	out := loop.Outcome{Arguments: c.Arguments, IsError: true}
	var args struct {
		Confirmed *bool `json:"confirmed"`
	}
	if err := json.Unmarshal(c.Arguments, &args); err != nil || args.Confirmed == nil {
		out.Value = `Error: "confirmed" must be true or false. Nothing was done.`
		return out, nil
	}
	pending := t.rec.Pending()
	if pending == nil {
		out.Value = "Error: no call waits for a confirmation. Nothing was done."
		return out, nil
	}
	tool := t.agent.tool(pending.Name)
	t.add(conversation.Event{Kind: conversation.ConfirmResolved, Tool: &conversation.ToolRun{Name: pending.Name, CallID: pending.CallID}, Confirmed: args.Confirmed})
	if !*args.Confirmed {
		t.inner[c.Key] = innerRun{tool: tool, denied: true}
		out.IsError, out.Value = false, spaced(status{"declined", "The user declined. " + pending.Name + " was not run."})
		return out, nil
	}
	if tool == nil {
		out.Value = fmt.Sprintf("Error: there is no tool named %q any more. Nothing was done.", pending.Name)
		return out, nil
	}
	if err := t.flush(); err != nil { // it must not be confirmed twice
		return out, err
	}
	ran, err := t.runTool(c, tool, pending.Arguments)
	if err != nil {
		return out, err
	}
	t.inner[c.Key] = innerRun{tool: tool, run: conversation.ToolRun{Name: pending.Name, Arguments: t.asRecorded(pending), Source: conversation.SourceConfirmation}}
	ran.Arguments = c.Arguments
	return ran, nil
}

// asRecorded gives the arguments of a confirmed call as the tool-result hooks
// left them when the confirmation was asked for. Providers use ids again, so what
// counts is the entry next before the question.
func (t *turn) asRecorded(pending *conversation.ToolRun) json.RawMessage {
	events := t.rec.Events()
	asked := false
	for i := len(events) - 1; i >= 0; i-- {
		switch e := &events[i]; {
		case e.Kind == conversation.ConfirmAsked:
			asked = true
		case asked && e.Kind == conversation.ToolExecuted && e.Tool.CallID == pending.CallID:
			return e.Tool.Arguments
		}
	}
	return pending.Arguments
}

// runTool runs a tool's body.
func (t *turn) runTool(c loop.Call, tool *Tool, args json.RawMessage) (loop.Outcome, error) {
	limit := t.agent.timeout(tool)
	t.running = &conversation.ToolRun{Name: c.Name, Arguments: json.RawMessage(`{}`), CallID: c.ID, CallType: c.Type, BatchID: c.Batch}
	a, err := t.steps.Do(step.Call{Key: c.Key + "/run", Kind: kindTool, Once: true, Input: ToolCall{Tool: tool.Name, Arguments: args, Timeout: limit,
		Sender: t.sender, Turn: t.id, Call: t.identity.Call, Channel: t.identity.Channel}})
	if err != nil {
		return loop.Outcome{}, err
	}
	t.running = nil
	got, err := step.As[ToolAnswer](a)
	if err != nil {
		return loop.Outcome{}, err
	}
	out := loop.Outcome{Arguments: args, Value: got.Text, IsError: got.Outcome != ToolOK, Ran: true, Took: got.Took}
	switch got.Outcome {
	case ToolTimeout:
		out.Value = fmt.Sprintf("Error: %s did not answer within %s.", tool.Name, limit)
	case ToolUnknown:
		out.Value = conversation.Unknown
	case ToolUnavailable:
		out.Value = fmt.Sprintf("Error: %s could not be run. Nothing was done.", tool.Name)
	}
	t.trace(loop.Line{Kind: "tool", Key: c.Key, Tool: tool.Name, CallID: c.ID, Took: got.Took, Outcome: string(got.Outcome), IsError: out.IsError})
	return out, nil
}

// Settle records a call as the hooks left it, and what follows from it.
func (t *turn) Settle(c loop.Call, out loop.Outcome) error {
	q, asks := t.asking[c.Key]
	if asks && out.Value == q.result {
		// What the hooks took out of the arguments stands in no question either.
		out.Value = t.awaiting(q, out.Arguments)
	}
	run := conversation.ToolRun{Name: c.Name, Arguments: out.Arguments, Result: out.Value, IsError: out.IsError, CallID: c.ID, CallType: c.Type, BatchID: c.Batch}
	inner, resolved := t.inner[c.Key]
	if resolved && !inner.denied {
		// The inner run keeps the result as the hooks left it: no other copy is
		// recorded.
		inner.run.Result, inner.run.IsError = out.Value, out.IsError
		t.add(conversation.Event{Kind: conversation.ToolExecuted, Tool: &inner.run})
	}
	t.add(conversation.Event{Kind: conversation.ToolExecuted, Tool: &run})
	tool := t.agent.tool(c.Name)
	if resolved {
		tool = inner.tool
	}
	switch {
	case asks:
		stored := run
		stored.Arguments, stored.Result = c.Arguments, ""
		t.add(conversation.Event{Kind: conversation.ConfirmAsked, Tool: &stored})
		return t.utter(c.Key, q.name, wording.ConfirmVars(q.tool.Name, out.Arguments), mayRephrase)
	case inner.denied:
		if tool != nil && tool.Denial != "" {
			return t.utter(c.Key, tool.Denial, nil, mayRephrase)
		}
	case out.Ran && !out.IsError && tool != nil && tool.OnSuccess != "":
		return t.utter(c.Key, tool.OnSuccess, t.resultVars(out), mayRephrase)
	}
	return nil
}

// resultVars are the fields of a tool's result, for a response that follows it.
func (t *turn) resultVars(out loop.Outcome) map[string]any {
	vars := map[string]any{}
	if err := json.Unmarshal([]byte(out.Value), &vars); err != nil {
		return nil
	}
	return vars
}

const (
	noQuery     = "No query was given. Nothing was searched."
	noKnowledge = "There are no reference documents to search."
	noSearch    = "The search could not be made; there are no results. Do not guess."
	noPassages  = "The search found no passages."
)

// search looks for passages: query hooks, search, results hooks.
func (t *turn) search(c loop.Call) (loop.Outcome, error) {
	out := loop.Outcome{Arguments: c.Arguments}
	var args struct {
		Query string `json:"query"`
	}
	if err := json.Unmarshal(c.Arguments, &args); err != nil || strings.TrimSpace(args.Query) == "" {
		t.notRun(c, "the query is empty")
		out.Value = noQuery
		return out, nil
	}
	r, err := t.hooks.At(c.Key+"/"+hook.KnowledgeQuery, t.identity.Payload(pointQuery).Set("query", args.Query))
	if err != nil {
		return out, err
	}
	if r.Kind != hook.Continue {
		t.notRun(c, "a query hook failed")
		out.Value = noSearch
		return out, nil
	}
	query := r.Payload.Text("query")
	if strings.TrimSpace(query) == "" {
		t.notRun(c, "a hook left the query empty")
		out.Value = noQuery
		return out, nil
	}
	if t.agent.Knowledge == nil {
		t.notRun(c, "there is nothing to search")
		out.Value = noKnowledge
		return out, nil
	}
	a, err := t.steps.Do(step.Call{Key: c.Key + "/search", Kind: kindSearch, Input: searchCall{query}})
	if err != nil {
		return out, err
	}
	found, err := step.As[searchAnswer](a)
	if err != nil {
		return out, err
	}
	t.trace(loop.Line{Kind: "tool", Key: c.Key, Tool: c.Name, CallID: c.ID, Took: found.Took, Outcome: found.outcome(), Why: fmt.Sprintf("%d passages", len(found.Passages))})
	if found.Failed != "" {
		out.Value = noSearch
		return out, nil
	}
	r, err = t.hooks.At(c.Key+"/"+hook.KnowledgeResults, t.identity.Payload(pointResults).Set("query", query).Set("passages", rawjson.List(found.Passages)))
	if err != nil {
		return out, err
	}
	out.Value, err = passageText(r.Payload.Get("passages"))
	return out, err
}

// passageText puts passages into text for the model.
func passageText(raw json.RawMessage) (string, error) {
	var passages []struct {
		Text   string `json:"text"`
		Source any    `json:"source"`
	}
	if err := json.Unmarshal(raw, &passages); err != nil {
		return "", fmt.Errorf("passages: %w", err)
	}
	if len(passages) == 0 {
		return noPassages, nil
	}
	var b strings.Builder
	for i, p := range passages {
		if i > 0 {
			b.WriteString("\n\n")
		}
		fmt.Fprintf(&b, "[%d]", i+1)
		if s, ok := p.Source.(string); ok && s != "" {
			b.WriteString(" " + s)
		}
		b.WriteString("\n" + p.Text)
	}
	return b.String(), nil
}
