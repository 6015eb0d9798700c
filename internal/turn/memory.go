package turn

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/belay-run/belay/internal/conversation"
	"github.com/belay-run/belay/internal/loop"
	"github.com/belay-run/belay/internal/rawjson"
	"github.com/belay-run/belay/internal/skill"
)

// Names of the tools that judge a memory value begin so; the field's name follows.
const (
	validates = "validate_"          // before the value is written; it is given the value
	runsAfter = "run_after_setting_" // after it was written
)

// assign writes a memory value. why is "" when it was written, else what is wrong;
// it does not quote the value.
func (t *turn) assign(full string, v any, by string) (why string) {
	f := t.agent.Skills.Field(full)
	if f == nil {
		return "nothing of that name is declared"
	}
	v, err := f.Accept(v)
	if err != nil {
		return err.Error()
	}
	if t.agent.Skills.Closed(t.state, full) {
		if skill.Shown(t.agent.Skills.Value(t.state, full)) == skill.Shown(v) {
			return ""
		}
		return "it is set already and cannot be overwritten"
	}
	if v == nil {
		t.add(conversation.Event{Kind: conversation.MemoryCleared, Memory: &conversation.Memory{Name: full, By: by}})
		return ""
	}
	t.add(conversation.Event{Kind: conversation.MemorySet, Memory: &conversation.Memory{Name: full, Value: rawjson.Must(v), By: by}})
	return ""
}

// takeWrites writes what a tool has set. The Python side has refused what is not
// declared and what is closed; a value of another type is refused here.
func (t *turn) takeWrites(tool string, writes []Write) {
	for _, w := range writes {
		if t.state == nil {
			t.note("tool " + tool + " wrote " + w.Name + ", which the agent does not declare")
			continue
		}
		dec := json.NewDecoder(bytes.NewReader(w.Value))
		dec.UseNumber()
		var v any
		if err := dec.Decode(&v); err != nil {
			v = nil
		}
		if why := t.assign(w.Name, v, tool); why != "" {
			t.agent.Logger.Warn("a memory value that a tool set is left out", "tool", tool, "memory", w.Name, "why", why, "turn", t.id)
			t.note("the value that tool " + tool + " set for " + w.Name + " is left out: " + why)
		}
	}
}

// remembered are the declared values for a tool, by full name, and those that may
// not be written again.
func (t *turn) remembered() (values map[string]json.RawMessage, closed []string) {
	if t.state == nil {
		return nil, nil
	}
	set := t.agent.Skills
	values = map[string]json.RawMessage{}
	put := func(fields []*skill.Field) {
		for _, f := range fields {
			full := f.Full()
			values[full] = rawjson.Must(set.Value(t.state, full))
			if set.Closed(t.state, full) {
				closed = append(closed, full)
			}
		}
	}
	put(set.Project)
	for _, k := range set.Skills {
		put(k.Memory)
	}
	return values, closed
}

// applied is what came of set_fields.
type applied struct {
	lines     []string // for the model, one a field
	set       []string // full names
	corrected []string // full names of those that had another value
	refused   bool
}

// applyFields sets fields from the model, in the order in which they stand.
func (t *turn) applyFields(key string, args json.RawMessage, fields []*skill.Field, by string) (applied, error) {
	var out applied
	for i, given := range members(args) {
		refuse := func(why string) {
			out.refused = true
			out.lines = append(out.lines, given.name+": not set: "+why)
		}
		at := slices.IndexFunc(fields, func(f *skill.Field) bool {
			return given.name == f.Name || strings.TrimPrefix(given.name, "session.") == f.Full()
		})
		if at < 0 {
			refuse("no field of that name can be set now")
			continue
		}
		f := fields[at]
		before := t.agent.Skills.Value(t.state, f.Full())
		v, why, err := t.accept(fmt.Sprintf("%s/%d", key, i), f, given.value, by)
		if err != nil {
			return out, err
		}
		if why != "" {
			refuse(why)
			continue
		}
		out.lines = append(out.lines, f.Name+": set to "+skill.Shown(v))
		out.set = append(out.set, f.Full())
		if before != nil && skill.Shown(before) != skill.Shown(v) {
			out.corrected = append(out.corrected, f.Full())
		}
	}
	return out, nil
}

type member struct {
	name  string
	value any
}

// members returns the members of a JSON object in their order.
func members(object json.RawMessage) []member {
	dec := json.NewDecoder(bytes.NewReader(object))
	dec.UseNumber()
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return nil
	}
	var out []member
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return out
		}
		var v any
		if err := dec.Decode(&v); err != nil {
			return out
		}
		out = append(out, member{name.(string), v})
	}
	return out
}

// accept puts a value through its gates and writes it: type, the skill's tool that
// validates it, and the one that runs after it was set. A value that the latter
// refuses leaves the memory as it was.
func (t *turn) accept(key string, f *skill.Field, v any, by string) (kept any, why string, err error) {
	if kept, err = f.Accept(v); err != nil {
		return nil, err.Error(), nil
	}
	if kept == nil {
		return nil, t.assign(f.Full(), nil, by), nil
	}
	if tool := t.judge(f, validates+f.Name); tool != nil {
		verdict, err := t.askJudge(key+"/validate", tool, f, kept)
		if err != nil {
			return nil, "", err
		}
		if verdict.refused {
			return nil, verdict.why, nil
		}
		if verdict.value != nil {
			if kept, err = f.Accept(verdict.value); err != nil {
				return nil, err.Error(), nil
			}
		}
	}
	before := t.snapshot()
	if why := t.assign(f.Full(), kept, by); why != "" {
		return nil, why, nil
	}
	if tool := t.judge(f, runsAfter+f.Name); tool != nil {
		verdict, err := t.askJudge(key+"/after", tool, f, nil)
		if err != nil || verdict.refused { // cancelled before it was judged, it does not stay either
			t.restore(before)
			return nil, verdict.why, err
		}
	}
	return t.agent.Skills.Value(t.state, f.Full()), "", nil
}

// judge finds the tool of the field's own skill that judges it.
func (t *turn) judge(f *skill.Field, name string) *Tool {
	if f.Namespace == skill.Project {
		return nil
	}
	return t.find(func(tool *Tool) bool { return tool.Name == name && tool.Skill == f.Namespace })
}

type verdict struct {
	refused bool
	why     string
	value   any // in place of the one given
}

// askJudge runs a tool that judges a value. No tool hooks are asked. A judge that
// fails refuses.
func (t *turn) askJudge(key string, tool *Tool, f *skill.Field, v any) (verdict, error) {
	args := map[string]any{}
	if v != nil {
		args[parameter(tool, f.Name)] = v
	}
	run := &conversation.ToolRun{Name: tool.Name, Arguments: rawjson.Must(args), Source: conversation.SourceValidation, Skill: t.state.Active()}
	out, err := t.engineRun(key, tool, run)
	if err != nil {
		return verdict{}, err
	}
	var said struct {
		Error   any   `json:"error"`
		Message any   `json:"message"`
		Value   any   `json:"value"`
		Valid   *bool `json:"valid"`
	}
	readable := json.Unmarshal([]byte(out.Value), &said) == nil
	if !out.IsError && (said.Valid == nil || *said.Valid) {
		return verdict{value: said.Value}, nil
	}
	why := "the value was refused"
	for _, text := range []any{said.Message, said.Error} {
		if s, ok := text.(string); ok && readable && s != "" {
			why = s
			break
		}
	}
	return verdict{refused: true, why: why}, nil
}

// parameter is the name under which a judge takes the value: the field's own, else
// "value".
func parameter(tool *Tool, field string) string {
	var schema struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if json.Unmarshal(tool.Parameters, &schema) == nil {
		if _, ok := schema.Properties[field]; ok {
			return field
		}
	}
	return "value"
}

// snapshot and restore put memory back as it was.
func (t *turn) snapshot() map[string]json.RawMessage {
	out := make(map[string]json.RawMessage, len(t.state.Memory))
	for name, v := range t.state.Memory {
		out[name] = v
	}
	return out
}

func (t *turn) restore(before map[string]json.RawMessage) {
	var names []string
	for name, now := range t.state.Memory {
		if was, ok := before[name]; !ok || !bytes.Equal(was, now) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		was, ok := before[name]
		if f := t.agent.Skills.Field(name); !ok && f != nil && f.Initial != nil {
			was, ok = rawjson.Must(f.Initial), true
		}
		if !ok || string(was) == "null" {
			t.add(conversation.Event{Kind: conversation.MemoryCleared, Memory: &conversation.Memory{Name: name, By: "rollback"}})
			continue
		}
		t.add(conversation.Event{Kind: conversation.MemorySet, Memory: &conversation.Memory{Name: name, Value: was, By: "rollback"}})
	}
}

// setFieldsCall is set_fields in a batch: it writes, and runs again what had used
// a value that was corrected.
func (t *turn) setFieldsCall(c loop.Call) (loop.Outcome, error) {
	out := loop.Outcome{Arguments: c.Arguments}
	got, err := t.applyFields(c.Key, c.Arguments, t.agent.Skills.Settable(t.state), setFields)
	if err != nil {
		return out, err
	}
	if len(got.lines) == 0 {
		t.notRun(c, "no field was given")
		out.Value, out.IsError = "Error: no field was given. Nothing was set.", true
		return out, nil
	}
	again, err := t.replay(c.Key, got.corrected)
	if err != nil {
		return out, err
	}
	t.trace(loop.Line{Kind: "tool", Key: c.Key, Tool: c.Name, CallID: c.ID, Outcome: "ok", IsError: got.refused,
		Why: fmt.Sprintf("%d set, %d corrected, %d refused", len(got.set), len(got.corrected), len(got.lines)-len(got.set))})
	out.Value, out.IsError = strings.Join(append(got.lines, again...), "\n"), got.refused
	return out, nil
}

// replay runs the tools of the block again that had used a corrected value. One
// that asks the user first is not run again without them.
func (t *turn) replay(key string, corrected []string) (lines []string, err error) {
	if len(corrected) == 0 {
		return nil, nil
	}
	for i, r := range t.agent.Skills.Replays(t.state, corrected) {
		tool := t.tool(r.Tool)
		if tool == nil || tool.Confirm || !t.agent.Skills.Holds(t.state, tool.requires) {
			t.note("step " + r.Step + " had used a corrected value; its tool " + r.Tool + " is not run again by itself")
			continue
		}
		args, uses := t.agent.Skills.ArgumentsOf(t.state, r.Step)
		run := &conversation.ToolRun{Name: r.Tool, Arguments: args, Source: conversation.SourceReplay, Step: r.Step, Uses: uses, Skill: t.state.Active()}
		out, err := t.engineRun(fmt.Sprintf("%s/replay/%d", key, i), tool, run)
		if err != nil {
			return lines, err
		}
		lines = append(lines, r.Tool+" was run again with the corrected value: "+out.Value)
	}
	return lines, nil
}
