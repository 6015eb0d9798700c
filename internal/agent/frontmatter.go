package agent

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/belay-run/belay/internal/condition"
	"github.com/belay-run/belay/internal/skill"
)

const conditionHint = "write an expression such as session.project.verified and session.cart.total > 100"

// front reads the keys of a skill's front matter.
func (c *skillReader) front(top *section) {
	k, r := c.k, c.r
	if name := top.text("name"); name != "" {
		k.Name = strings.TrimSpace(name)
	}
	k.Description = strings.TrimSpace(top.text("description"))
	k.Requires = c.conditionOf(top, "requires")
	c.completeWhen(top)
	c.imports(top)
	c.constraints(top)
	c.utters(top)
	k.Disabled = top.flag("disabled")
	routing := top.sub("routing")
	if n := routing.get("engine_managed", isBool, "write true or false without quotes"); n != nil {
		k.EngineManaged = n.text == "true"
		if !k.EngineManaged && k.ID == unsupportedHandler {
			r.on(n).err("bad-value", "only the engine starts "+k.ID, "delete engine_managed")
		}
	} else if slices.Contains(engineSkills, k.ID) {
		k.EngineManaged = true
	}
	routing.closeLoosely()
	if k.Description == "" && !k.EngineManaged && !top.has("description") {
		r.at(1, 1).warn("missing-description", "the skill has no description, by which the model would choose it", "write description: between the lines ---")
	}
	if f := top.find("constraints"); f != nil { // of an older generation
		r.key(f).warn("not-acted-on", "constraints: is not acted on in this version", "write each text as a paragraph, with an if: line before it for when it holds")
	}
	top.closeLoosely()
}

// condition reads a condition of the skill. Bare names are values of the skill
// itself, else of the project.
func (c *skillReader) condition(n *node, what string) *condition.Condition {
	if n.kind != isText {
		c.r.mismatch(n, what, isText, conditionHint)
		return nil
	}
	return c.compile(n.text, c.r.on(n), what)
}

func (c *skillReader) conditionOf(s *section, key string) *condition.Condition {
	f := s.find(key)
	if f == nil {
		return nil
	}
	return c.condition(f.value, s.full(key))
}

func (c *skillReader) compile(source string, at spot, what string) *condition.Condition {
	if c.count.conditions++; c.count.conditions > maxConditions {
		if c.count.conditions == maxConditions+1 {
			at.err("skill-too-complex", fmt.Sprintf("the skill has more than %d conditions", maxConditions), "split the skill")
		}
		return nil
	}
	e, err := condition.CompileIn(strings.TrimSpace(source), c.long)
	if err != nil {
		at.err("bad-condition", fmt.Sprintf("the condition of %s cannot be used: %v", what, err), conditionHint)
		return nil
	}
	for _, chain := range e.Names() {
		c.lib.checkChain(at, chain, c.k.ID)
	}
	return e
}

// long gives the full name of a bare one.
func (c *skillReader) long(name string) []string {
	switch {
	case name == "session":
		return nil
	case c.lib.set.Field(c.k.ID+"."+name) != nil:
		return []string{"session", c.k.ID, name}
	case c.lib.set.Field(skill.Project+"."+name) != nil:
		return []string{"session", skill.Project, name}
	case name == skill.Project || c.lib.set.Skill(name) != nil:
		return []string{"session", name}
	}
	return nil
}

// completeWhen reads complete_when: a condition, or a condition and criteria.
func (c *skillReader) completeWhen(top *section) {
	f := top.find("complete_when")
	if f == nil {
		return
	}
	if f.value.kind != isMapping {
		c.k.CompleteWhen = c.condition(f.value, "complete_when")
		return
	}
	s := top.sub("complete_when")
	c.k.CompleteWhen = c.conditionOf(s, "condition")
	c.k.Criteria = s.lines("criteria")
	for i, one := range c.k.Criteria {
		if slices.Contains(c.k.Criteria[:i], one) {
			c.r.key(s.find("criteria")).err("duplicate-key", "a sentence stands twice in complete_when.criteria", "keep one of them")
			break
		}
	}
	s.close()
}

var mcpImport = regexp.MustCompile(`^mcp/([A-Za-z0-9][A-Za-z0-9_.-]*):([A-Za-z0-9_][A-Za-z0-9_./-]*)$`)

// imports reads import_tools.
func (c *skillReader) imports(top *section) {
	n := top.get("import_tools", isList, "write one name each, beginning with \"- \"")
	if n == nil {
		return
	}
	for _, item := range n.items {
		if item.kind != isText {
			c.r.mismatch(item, "a name in import_tools", isText, "write the tool's name, or mcp/<server>:<tool>")
			continue
		}
		i := skill.Import{Tool: item.text, Line: item.line, Column: item.column}
		if m := mcpImport.FindStringSubmatch(item.text); m != nil {
			i.Server, i.Tool = m[1], m[2]
			c.checkServer(i)
		} else if !goodName.MatchString(item.text) {
			c.r.on(item).err("bad-name", fmt.Sprintf("%s is no name of a tool", shown(item.text)), "write the tool's name, or mcp/<server>:<tool>")
			continue
		}
		if slices.ContainsFunc(c.k.Imports, func(o skill.Import) bool { return o.Name() == i.Name() }) {
			c.r.on(item).warn("duplicate-key", fmt.Sprintf("%s stands twice in import_tools", shown(i.Tool)), "delete it")
			continue
		}
		c.k.Imports = append(c.k.Imports, i)
	}
}

// entries reads a list of mappings with one key each, or a mapping of such keys.
func (c *skillReader) entries(top *section, key, hint string) []*field {
	f := top.find(key)
	if f == nil {
		return nil
	}
	var out []*field
	add := func(n *node) {
		for i := range n.fields {
			out = append(out, &n.fields[i])
		}
	}
	switch f.value.kind {
	case isMapping:
		add(f.value)
	case isList:
		for _, item := range f.value.items {
			switch {
			case item.kind != isMapping:
				c.r.mismatch(item, "an entry of "+key, isMapping, hint)
			case len(item.fields) != 1:
				c.r.on(item).err("wrong-type", fmt.Sprintf("an entry of %s has %d keys instead of one", key, len(item.fields)), "indent what belongs to the name further than the name; begin each name with \"- \"")
			default:
				add(item)
			}
		}
	default:
		c.r.mismatch(f.value, key, isList, hint)
	}
	return out
}

func (c *skillReader) constraints(top *section) {
	for _, f := range c.entries(top, "tool_constraints", "write - <tool>: and under it requires:, requires_confirmation: or on_success:") {
		name := f.name
		if m := mcpImport.FindStringSubmatch(name); m != nil {
			name = m[2]
		}
		what := "tool_constraints." + tidy(name)
		if c.k.Constraints[name] != nil {
			c.r.key(f).err("duplicate-key", fmt.Sprintf("%s has constraints twice", shown(name)), "write them under one entry")
			continue
		}
		s := c.r.open(f.value, what)
		if s == nil {
			if f.value.kind == isNull {
				c.r.key(f).err("missing-key", what+" says nothing", "write requires:, requires_confirmation: or on_success: under it, indented")
			}
			continue
		}
		con := &skill.Constraint{Line: f.line, Column: f.column, Requires: c.conditionOf(s, "requires"), Description: strings.TrimSpace(s.text("description")),
			OnSuccess: c.response(s, "on_success"), OnFailure: c.response(s, "on_failure")}
		c.confirmation(s, con)
		s.close()
		if c.k.Constraints == nil {
			c.k.Constraints = map[string]*skill.Constraint{}
		}
		c.k.Constraints[name] = con
		c.tool(name, c.r.key(f), "tool_constraints")
	}
}

// confirmation reads requires_confirmation. A gate that does not say whether it is
// enabled is shut.
func (c *skillReader) confirmation(s *section, con *skill.Constraint) {
	f := s.find("requires_confirmation")
	if f == nil {
		return
	}
	if f.value.kind == isBool {
		con.Confirm = f.value.text == "true"
		return
	}
	gate := s.sub("requires_confirmation")
	if gate == nil {
		return
	}
	con.Confirm = true
	if n := gate.get("enabled", isBool, "write true or false without quotes"); n != nil {
		con.Confirm = n.text == "true"
	}
	con.Question, con.Denial = c.response(gate, "utter_for_confirmation"), c.response(gate, "utter_on_user_denial")
	gate.close()
}

// response reads the name of a response.
func (c *skillReader) response(s *section, key string) string {
	name := s.text(key)
	if name != "" {
		c.lib.named(c.r.on(s.find(key).value), name)
	}
	return name
}

func (c *skillReader) utters(top *section) {
	const hint = "write - utter_x: and under it on: activate, or when: with a condition"
	for _, f := range c.entries(top, "utter", hint) {
		what := "utter." + tidy(f.name)
		s := c.r.open(f.value, what)
		if s == nil {
			if f.value.kind == isNull {
				c.r.key(f).err("missing-key", what+" does not say when", hint)
			}
			continue
		}
		u := skill.Utter{Response: f.name, Line: f.line, Column: f.column}
		on, when := s.find("on"), s.find("when")
		switch {
		case on != nil && when != nil:
			c.r.key(when).err("duplicate-key", what+" has on: and when:", "keep one of the two")
		case when != nil:
			u.When = c.when(s, when)
		case on != nil:
			if text := s.text("on"); text != "" && text != "activate" {
				c.r.on(on.value).err("bad-value", what+".on can only be activate", "write on: activate, or when: with a condition")
			}
		default:
			c.r.key(f).err("missing-key", what+" does not say when", hint)
		}
		s.close()
		c.lib.named(c.r.key(f), f.name)
		c.k.Utters = append(c.k.Utters, u)
	}
}

// when reads a condition, or the mapping of an older generation: {x: {equals: v}}.
func (c *skillReader) when(s *section, f *field) *condition.Condition {
	if f.value.kind != isMapping {
		return c.condition(f.value, s.full("when"))
	}
	var parts []string
	for i := range f.value.fields {
		key := &f.value.fields[i]
		t := c.r.open(key.value, s.full("when")+"."+tidy(key.name))
		if t == nil {
			continue
		}
		for _, operator := range [][2]string{{"equals", "=="}, {"not_equals", "!="}, {"in", "in"}} {
			if v := t.find(operator[0]); v != nil {
				if value, ok := c.r.literal(v.value); ok {
					text, _ := json.Marshal(value)
					parts = append(parts, key.name+" "+operator[1]+" "+string(text))
				}
			}
		}
		if v := t.find("exists"); v != nil {
			if t.flag("exists") {
				parts = append(parts, key.name+" != None")
			} else {
				parts = append(parts, key.name+" == None")
			}
		}
		t.close()
	}
	if len(parts) == 0 {
		c.r.key(f).err("bad-condition", s.full("when")+" says nothing that can hold", conditionHint)
		return nil
	}
	return c.compile(strings.Join(parts, " and "), c.r.on(f.value), s.full("when"))
}
