package turn

import (
	"encoding/json"
	"strings"

	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/loop"
	"github.com/belay-run/belay/internal/rawjson"
	"github.com/belay-run/belay/internal/skill"
)

// Names of the calls that move through skills.
const (
	activate      = "activate"
	completeSkill = "complete_skill"
	cancelSkill   = "cancel_skill"
	cannotHelp    = "cannot_help"
	setFields     = "set_fields"
)

const resolveConfirmation = "resolve_tool_confirmation"

// Reserved are the names that no tool of an agent may have.
var Reserved = []string{loop.Listen, loop.Hangup, loop.SearchKnowledge, resolveConfirmation, activate, completeSkill, cancelSkill, cannotHelp, setFields}

var noParameters = json.RawMessage(`{"type":"object","properties":{}}`)

var frameworkTools = map[string]chat.Tool{
	loop.Listen: {Name: loop.Listen, Description: "Say nothing and wait for the user's next message.", Parameters: noParameters},
	loop.Hangup: {Name: loop.Hangup, Description: "End the conversation. Only after the user has said goodbye or asked for it.", Parameters: noParameters},
	loop.SearchKnowledge: {Name: loop.SearchKnowledge, Description: "Search the reference documents. Use it before you answer a question of fact.",
		Parameters: json.RawMessage(`{"type":"object","properties":{"query":{"type":"string","description":"What to look for."}},"required":["query"]}`)},
	resolveConfirmation: {Name: resolveConfirmation, Description: "Say whether the user agreed to the call that waits for confirmation.",
		Parameters: json.RawMessage(`{"type":"object","properties":{"confirmed":{"type":"boolean","description":"true when the user agreed, false when not."}},"required":["confirmed"]}`)},
	completeSkill: {Name: completeSkill, Description: "End the active skill because what the user wanted of it is done. Answer the user first when a tool's result is still to be told.", Parameters: noParameters},
	cancelSkill:   {Name: cancelSkill, Description: "End the active skill because the user does not want to go on with it.", Parameters: noParameters},
	cannotHelp: {Name: cannotHelp, Description: "Say that the user's request is beyond what any skill can do.",
		Parameters: json.RawMessage(`{"type":"object","properties":{"in_domain":{"type":"boolean","description":"true when the request belongs to the subject of this assistant, false when it has nothing to do with it."}},"required":["in_domain"]}`)},
}

// skilled says whether the agent's tools belong to skills.
func (t *turn) skilled() bool { return t.state != nil && len(t.agent.Skills.Skills) > 0 }

// tool finds the tool that a name means now: of an agent with skills the active
// one's own, or one that it imports, with its constraints on.
func (t *turn) tool(name string) *Tool {
	if !t.skilled() {
		return t.find(func(tool *Tool) bool { return tool.Name == name && tool.Skill == "" })
	}
	return t.toolIn(t.state.Active(), name)
}

func (t *turn) toolIn(active, name string) *Tool {
	k := t.agent.Skills.Skill(active)
	if k == nil {
		return nil
	}
	tool := t.find(func(tool *Tool) bool { return tool.Name == name && tool.Skill == k.ID })
	for i := 0; tool == nil && i < len(k.Imports); i++ {
		if from := k.Imports[i]; from.Tool == name {
			tool = t.find(func(tool *Tool) bool { return tool.Name == name && tool.Skill == "" && tool.Server == from.Server })
		}
	}
	if tool == nil {
		return nil
	}
	return constrained(tool, k.Constraints[name])
}

func (t *turn) find(is func(*Tool) bool) *Tool {
	if t.agent.Tools == nil {
		return nil
	}
	list := t.agent.Tools.List()
	for i := range list {
		if is(&list[i]) {
			found := list[i]
			return &found
		}
	}
	return nil
}

// constrained puts a skill's constraint on a tool, over what its author wrote in
// Python.
func constrained(tool *Tool, c *skill.Constraint) *Tool {
	if c == nil {
		return tool
	}
	tool.requires = c.Requires
	tool.Confirm = tool.Confirm || c.Confirm
	for to, from := range map[*string]string{&tool.Question: c.Question, &tool.Denial: c.Denial, &tool.OnSuccess: c.OnSuccess, &tool.OnFailure: c.OnFailure, &tool.Description: c.Description} {
		if from != "" {
			*to = from
		}
	}
	return tool
}

// offered returns the tools that the next request offers.
func (t *turn) offered() []chat.Tool {
	var out []chat.Tool
	if t.skilled() {
		out = t.offeredBySkill()
	} else if t.agent.Tools != nil {
		for _, tool := range t.agent.Tools.List() {
			out = append(out, tool.Tool)
		}
	}
	if t.searches() {
		out = append(out, frameworkTools[loop.SearchKnowledge])
	}
	if t.rec.Pending() != nil {
		out = append(out, frameworkTools[resolveConfirmation])
	}
	return append(out, frameworkTools[loop.Listen], frameworkTools[loop.Hangup])
}

// searches says whether there is, or should be, something to search.
func (t *turn) searches() bool {
	if t.agent.Profile.Searches || !t.skilled() {
		return t.agent.Profile.Searches
	}
	k := t.agent.Skills.Skill(t.state.Active())
	return k != nil && len(k.References) > 0
}

func (t *turn) offeredBySkill() []chat.Tool {
	var out []chat.Tool
	set, k := t.agent.Skills, t.agent.Skills.Skill(t.state.Active())
	if k != nil {
		for _, name := range t.toolNames(k) {
			if tool := t.toolIn(k.ID, name); tool != nil && set.Holds(t.state, tool.requires) {
				out = append(out, tool.Tool)
			}
		}
		if fields := set.Settable(t.state); len(fields) > 0 {
			out = append(out, t.setFieldsTool(fields))
		}
	}
	if targets := set.Targets(t.state); len(targets) > 0 {
		out = append(out, activateTool(targets))
	}
	if k != nil && t.state.Top().Block == "" {
		out = append(out, frameworkTools[completeSkill])
	}
	if k != nil && !k.OfEngine() {
		out = append(out, frameworkTools[cancelSkill])
	}
	if t.state.Active() != skill.UnsupportedRequest && set.Skill(skill.UnsupportedRequest) != nil {
		out = append(out, frameworkTools[cannotHelp])
	}
	return out
}

// toolNames are the tools of a skill that a model may call: its own and those it
// imports, without those that judge memory values.
func (t *turn) toolNames(k *skill.Skill) []string {
	judges := map[string]bool{}
	for _, f := range k.Memory {
		judges[validates+f.Name], judges[runsAfter+f.Name] = true, true
	}
	var out []string
	seen := map[string]bool{}
	add := func(name string) {
		if !seen[name] && !judges[name] {
			seen[name] = true
			out = append(out, name)
		}
	}
	if t.agent.Tools != nil {
		for _, tool := range t.agent.Tools.List() {
			if tool.Skill == k.ID {
				add(tool.Name)
			}
		}
	}
	for _, from := range k.Imports {
		add(from.Tool)
	}
	return out
}

func activateTool(targets []skill.Target) chat.Tool {
	ids := make([]string, len(targets))
	for i, target := range targets {
		ids[i] = target.ID
	}
	return chat.Tool{Name: activate, Description: "Start the skill, or the block of the active skill, that fits what the user wants.",
		Parameters: rawjson.Must(map[string]any{"type": "object", "required": []string{"target_id"}, "properties": map[string]any{
			"target_id": map[string]any{"type": "string", "enum": ids, "description": "Id of the skill or block."}}})}
}

// setFieldsTool offers the fields that the model may set.
func (t *turn) setFieldsTool(fields []*skill.Field) chat.Tool {
	properties := map[string]any{}
	for _, f := range fields {
		properties[f.Name] = f.Schema()
	}
	return chat.Tool{Name: setFields, Description: "Keep what the user has said: sets the given values. Leave out what is not known. Set a value again to correct it.",
		Parameters: rawjson.Must(map[string]any{"type": "object", "properties": properties})}
}

// catalogue lists for the prompt what can be activated.
func catalogue(targets []skill.Target) string {
	var b strings.Builder
	for _, target := range targets {
		b.WriteString("\n- " + target.ID)
		if target.Block {
			b.WriteString(" (a block of the active skill)")
		}
		if about := strings.Join(strings.Fields(target.Description), " "); about != "" {
			b.WriteString(": " + about)
		}
	}
	return b.String()
}
