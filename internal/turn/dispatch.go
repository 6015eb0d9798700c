package turn

import (
	"encoding/json"
	"fmt"
	"slices"
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
		if tool := t.tool(c.Name); c.Offered && (c.Name == resolveConfirmation || tool != nil && !tool.Confirm) {
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
	if out, known, err := t.steer(c); known {
		return out, err
	}
	tool := t.tool(c.Name)
	switch {
	case tool == nil:
		return fail("Error: there is no tool named %q. Nothing was done.", c.Name)
	case t.state != nil && !t.agent.Skills.Holds(t.state, tool.requires):
		t.notRun(c, "its requires does not hold")
		return loop.Outcome{Arguments: c.Arguments, Value: notNow, IsError: true}, nil
	case tool.Confirm:
		return t.confirm(c, tool)
	}
	return t.runTool(c, tool, c.Arguments)
}

const (
	notNow       = "Error: what this tool requires does not hold. Nothing was done."
	anotherWaits = "Another call waits for confirmation. Call this tool again once the user has answered."
	cannotAsk    = "Error: the user cannot be asked to confirm this call. Nothing was done."
)

// notRun says in the trace that a call ran nothing, and why.
func (t *turn) notRun(c loop.Call, why string) {
	t.trace(loop.Line{Kind: "tool", Key: c.Key, Tool: c.Name, CallID: c.ID, Outcome: "not_run", Why: why})
}

// confirm closes the gate of a tool that asks first.
func (t *turn) confirm(c loop.Call, tool *Tool) (loop.Outcome, error) {
	if len(t.asking) > 0 || t.rec.Pending() != nil {
		t.notRun(c, "another call waits for confirmation")
		return loop.Outcome{Arguments: c.Arguments, IsError: true, Value: spaced(status{"not_executed", anotherWaits})}, nil
	}
	q := asked{tool: tool, name: question(tool)}
	if !t.canAsk(tool, c.Arguments) {
		t.notRun(c, "no variant of "+q.name+" fits, so the user cannot be asked")
		return loop.Outcome{Arguments: c.Arguments, IsError: true, Value: cannotAsk}, nil
	}
	q.result = t.awaiting(q, c.Arguments)
	t.asking[c.Key] = q
	t.notRun(c, "it waits for the user's confirmation")
	return loop.Outcome{Arguments: c.Arguments, Value: q.result, Wait: true}, nil
}

// canAsk says whether there is a text that asks for the confirmation of a call.
func (t *turn) canAsk(tool *Tool, args json.RawMessage) bool {
	if text, _, ok := t.pick(question(tool), wording.ConfirmVars(tool.Name, args)); ok && strings.TrimSpace(text) != "" {
		return true
	}
	t.agent.Logger.Error("a call cannot be confirmed: no variant of its question fits", "tool", tool.Name, "response", question(tool), "turn", t.id)
	return false
}

// question names the response that asks for a tool's confirmation.
func question(tool *Tool) string {
	if tool.Question != "" {
		return tool.Question
	}
	return responseConfirm
}

// awaiting is the result of a call that waits for the user: it has the question.
func (t *turn) awaiting(q asked, args json.RawMessage) string {
	text, _, _ := t.pick(q.name, wording.ConfirmVars(q.tool.Name, args)) // confirm has seen that it is there
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
	tool := t.toolOf(pending)
	t.add(conversation.Event{Kind: conversation.ConfirmResolved, Tool: &conversation.ToolRun{Name: pending.Name, CallID: pending.CallID}, Confirmed: args.Confirmed})
	if !*args.Confirmed {
		t.inner[c.Key] = innerRun{tool: tool, denied: true, run: innerOf(pending, t.asRecorded(pending))}
		out.IsError, out.Value = false, spaced(status{"declined", "User declined confirmation for tool '" + pending.Name + "'; the call was cancelled."})
		out.Wait = tool != nil && tool.Denial != "" // it is the answer of the turn
		return out, nil
	}
	if tool == nil {
		out.Value = fmt.Sprintf("Error: there is no tool named %q any more. Nothing was done.", pending.Name)
		return out, nil
	}
	if t.state != nil && !t.agent.Skills.Holds(t.state, tool.requires) { // no longer: memory may have changed since
		t.notRun(c, "the requires of "+pending.Name+" does not hold")
		out.Value = notNow
		t.inner[c.Key] = innerRun{tool: tool, run: innerOf(pending, t.asRecorded(pending))}
		return out, nil
	}
	if err := t.flush(); err != nil { // it must not be confirmed twice
		return out, err
	}
	run := innerOf(pending, t.asRecorded(pending))
	t.running = &conversation.ToolRun{Name: c.Name, Arguments: json.RawMessage(`{}`), CallID: c.ID, CallType: c.Type, BatchID: c.Batch}
	ran, answer, err := t.body(c.Key, tool, pending.Arguments, pending.Skill)
	if err != nil {
		return out, err
	}
	if run.Step != "" {
		run.Uses, run.Wrote = append(run.Uses, answer.Reads...), written(answer.Writes)
	}
	t.inner[c.Key] = innerRun{tool: tool, run: run}
	ran.Arguments = c.Arguments
	return ran, nil
}

// innerOf is the run of a call that the user was asked about.
func innerOf(pending *conversation.ToolRun, args json.RawMessage) conversation.ToolRun {
	return conversation.ToolRun{Name: pending.Name, Arguments: args, Source: conversation.SourceConfirmation, Skill: pending.Skill, Step: pending.Step, Uses: slices.Clip(pending.Uses)}
}

// toolOf finds the tool of a call that waits, as the skill that was active then
// has it.
func (t *turn) toolOf(pending *conversation.ToolRun) *Tool {
	if t.skilled() {
		return t.toolIn(pending.Skill, pending.Name)
	}
	return t.tool(pending.Name)
}

// asRecorded gives the arguments of a confirmed call as the tool-result hooks
// left them when the confirmation was asked for. Providers use ids again, so what
// counts is the entry next before the question.
func (t *turn) asRecorded(pending *conversation.ToolRun) json.RawMessage {
	if pending.Step != "" {
		return pending.Arguments // no hook has seen a step's call
	}
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

// runTool runs the tool of a call.
func (t *turn) runTool(c loop.Call, tool *Tool, args json.RawMessage) (loop.Outcome, error) {
	run := &conversation.ToolRun{Name: c.Name, Arguments: json.RawMessage(`{}`), CallID: c.ID, CallType: c.Type, BatchID: c.Batch}
	if !t.rec.Begun(c.ID) { // a call before it has changed what its name means
		t.add(conversation.Event{Kind: conversation.ToolBatch, Batch: []conversation.ToolRun{*run}})
		if err := t.flush(); err != nil {
			return loop.Outcome{}, err
		}
	}
	t.running = run
	out, _, err := t.body(c.Key, tool, args, t.active())
	return out, err
}

// runBody runs the tool of an engine's step.
func (t *turn) runBody(key string, tool *Tool, run conversation.ToolRun) (loop.Outcome, ToolAnswer, error) {
	t.running = &run
	return t.body(key, tool, run.Arguments, run.Skill)
}

func (t *turn) active() string {
	if t.state == nil {
		return ""
	}
	return t.state.Active()
}

// body runs a tool's body for a skill, takes what it has written and says what it
// has sent. The call that runs is t.running, so that a turn that breaks off can
// say of which call nobody knows the end.
func (t *turn) body(key string, tool *Tool, args json.RawMessage, active string) (loop.Outcome, ToolAnswer, error) {
	limit := t.agent.timeout(tool)
	id := t.running.CallID
	call := ToolCall{Tool: tool.Name, Owner: tool.Skill, Server: tool.Server, Arguments: args, Timeout: limit,
		Sender: t.sender, Turn: t.id, Call: t.identity.Call, Channel: t.identity.Channel, Skill: active}
	call.Memory, call.Closed = t.remembered()
	if tool.Listens {
		call.Said = t.spoken()
	}
	a, err := t.steps.Do(step.Call{Key: key + "/run", Kind: kindTool, Once: true, Input: call})
	if err != nil {
		return loop.Outcome{}, ToolAnswer{}, err
	}
	t.running = nil
	got, err := step.As[ToolAnswer](a)
	if err != nil {
		return loop.Outcome{}, got, err
	}
	out := loop.Outcome{Arguments: args, Value: got.Text, IsError: got.Outcome != ToolOK || answersError(got.Text), Ran: true, Took: got.Took}
	switch got.Outcome {
	case ToolTimeout:
		out.Value = fmt.Sprintf("Error: %s did not answer within %s.", tool.Name, limit)
	case ToolUnknown:
		out.Value = conversation.Unknown
	case ToolUnavailable:
		out.Value = fmt.Sprintf("Error: %s could not be run. Nothing was done.", tool.Name)
	}
	t.trace(loop.Line{Kind: "tool", Key: key, Tool: tool.Name, CallID: id, Took: got.Took, Outcome: string(got.Outcome), IsError: out.IsError})
	t.takeWrites(tool.Name, got.Writes)
	for i, text := range got.Said {
		e := conversation.Event{Kind: conversation.Bot, Text: text, Source: conversation.FromModel, Note: "sent by tool " + tool.Name}
		if err := t.say(fmt.Sprintf("%s/said/%d", key, i), e, false); err != nil {
			return out, got, err
		}
	}
	return out, got, nil
}

// maxSpoken bounds what a tool is told of a long conversation.
const maxSpoken = 500

// spoken is what was said, the oldest first, without what hooks discarded.
func (t *turn) spoken() []Spoken {
	var out []Spoken
	for _, e := range t.rec.Events() {
		if e.Discarded == nil && (e.Kind == conversation.User || e.Kind == conversation.Bot) {
			out = append(out, Spoken{User: e.Kind == conversation.User, Text: e.Text, Source: e.Source, Response: e.Response, At: e.At})
		}
	}
	return out[max(0, len(out)-maxSpoken):]
}

// answersError says whether a tool's answer is that of an error: an object whose
// error is set.
func answersError(text string) bool {
	if !strings.Contains(text, `"error"`) {
		return false
	}
	var said struct {
		Error any `json:"error"`
	}
	return json.Unmarshal([]byte(text), &said) == nil && said.Error != nil && said.Error != false && said.Error != ""
}

// Settle records a call as the hooks left it, and what follows from it.
func (t *turn) Settle(c loop.Call, out loop.Outcome) error {
	q, asks := t.asking[c.Key]
	if asks && out.Value == q.result {
		// What the hooks took out of the arguments stands in no question either.
		out.Value = t.awaiting(q, out.Arguments)
	}
	run := conversation.ToolRun{Name: c.Name, Arguments: out.Arguments, Result: out.Value, IsError: out.IsError, CallID: c.ID, CallType: c.Type, BatchID: c.Batch, Skill: t.active()}
	inner, resolved := t.inner[c.Key]
	if resolved {
		// The inner run keeps the result as the hooks left it: no other copy is
		// recorded.
		inner.run.Result, inner.run.IsError = out.Value, out.IsError
		t.add(conversation.Event{Kind: conversation.ToolExecuted, Tool: &inner.run})
	}
	t.add(conversation.Event{Kind: conversation.ToolExecuted, Tool: &run})
	tool := t.tool(c.Name)
	if resolved {
		tool = inner.tool
	}
	switch {
	case asks:
		// The call waits once the user was asked: nobody agrees to a question that did
		// not go out.
		if err := t.utter(c.Key, q.name, wording.ConfirmVars(q.tool.Name, out.Arguments), mayRephrase); err != nil {
			return err
		}
		stored := run
		stored.Arguments, stored.Result = c.Arguments, ""
		t.add(conversation.Event{Kind: conversation.ConfirmAsked, Tool: &stored})
		return nil
	case inner.denied:
		if tool != nil && tool.Denial != "" {
			return t.utter(c.Key, tool.Denial, nil, mayRephrase)
		}
	case out.Ran:
		return t.afterRun(c.Key, tool, out.Ran, out.IsError, out.Value)
	}
	return nil
}

// resultVars are the fields of a tool's result, for a response that follows it.
func resultVars(value string) map[string]any {
	vars := map[string]any{}
	if err := json.Unmarshal([]byte(value), &vars); err != nil {
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
	a, err := t.steps.Do(step.Call{Key: c.Key + "/search", Kind: kindSearch, Input: searchCall{query, t.active()}})
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
