package agent

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/belay-run/belay/internal/condition"
	"github.com/belay-run/belay/internal/skill"
	"github.com/belay-run/belay/internal/yamlfile"
)

const conditionHint = "write an expression such as session.project.verified and session.cart.total > 100"

// front reads the keys of a skill's front matter.
func (c *skillReader) front(top *yamlfile.Section) {
	k, r := c.k, c.r
	if name := top.TextOrBlank("name"); name != "" {
		k.Name = strings.TrimSpace(name)
	}
	k.Description = strings.TrimSpace(top.TextOrBlank("description"))
	k.Requires = c.conditionOf(top, "requires")
	c.completeWhen(top)
	c.imports(top)
	c.constraints(top)
	c.utters(top)
	k.Disabled = top.Flag("disabled")
	routing := top.Sub("routing")
	if n := routing.Get("engine_managed", yamlfile.Bool, "write true or false without quotes"); n != nil {
		k.EngineManaged = n.Text == "true"
		if !k.EngineManaged && k.ID == unsupportedHandler {
			r.On(n).Err("bad-value", "only the engine starts "+k.ID, "delete engine_managed")
		}
	} else if slices.Contains(engineSkills, k.ID) {
		k.EngineManaged = true
	}
	closeLoosely(routing)
	if k.Description == "" && !k.EngineManaged && !top.Has("description") {
		r.At(1, 1).Warn("missing-description", "the skill has no description, by which the model would choose it", "write description: between the lines ---")
	}
	if f := top.Find("constraints"); f != nil { // of an older generation
		r.Key(f).Warn("not-acted-on", "constraints: is not acted on in this version", "write each text as a paragraph, with an if: line before it for when it holds")
	}
	closeLoosely(top)
}

// condition reads a condition of the skill. Bare names are values of the skill
// itself, else of the project.
func (c *skillReader) condition(n *yamlfile.Node, what string) *condition.Condition {
	if n.Kind != yamlfile.Text {
		c.r.Mismatch(n, what, yamlfile.Text, conditionHint)
		return nil
	}
	return c.compile(n.Text, c.r.On(n), what)
}

func (c *skillReader) conditionOf(s *yamlfile.Section, key string) *condition.Condition {
	f := s.Find(key)
	if f == nil {
		return nil
	}
	return c.condition(f.Value, s.Full(key))
}

func (c *skillReader) compile(source string, at yamlfile.Spot, what string) *condition.Condition {
	if c.count.conditions++; c.count.conditions > maxConditions {
		if c.count.conditions == maxConditions+1 {
			at.Err("skill-too-complex", fmt.Sprintf("the skill has more than %d conditions", maxConditions), "split the skill")
		}
		return nil
	}
	e, err := condition.CompileIn(strings.TrimSpace(source), c.long)
	if err != nil {
		at.Err("bad-condition", fmt.Sprintf("the condition of %s cannot be used: %v", what, err), conditionHint)
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
func (c *skillReader) completeWhen(top *yamlfile.Section) {
	f := top.Find("complete_when")
	if f == nil {
		return
	}
	if f.Value.Kind != yamlfile.Mapping {
		c.k.CompleteWhen = c.condition(f.Value, "complete_when")
		return
	}
	s := top.Sub("complete_when")
	c.k.CompleteWhen = c.conditionOf(s, "condition")
	c.k.Criteria = lines(s, "criteria")
	for i, one := range c.k.Criteria {
		if slices.Contains(c.k.Criteria[:i], one) {
			c.r.Key(s.Find("criteria")).Err("duplicate-key", "a sentence stands twice in complete_when.criteria", "keep one of them")
			break
		}
	}
	s.Unknown()
}

var mcpImport = regexp.MustCompile(`^mcp/([A-Za-z0-9][A-Za-z0-9_.-]*):([A-Za-z0-9_][A-Za-z0-9_./-]*)$`)

// imports reads import_tools.
func (c *skillReader) imports(top *yamlfile.Section) {
	n := top.Get("import_tools", yamlfile.List, "write one name each, beginning with \"- \"")
	if n == nil {
		return
	}
	for _, item := range n.Items {
		if item.Kind != yamlfile.Text {
			c.r.Mismatch(item, "a name in import_tools", yamlfile.Text, "write the tool's name, or mcp/<server>:<tool>")
			continue
		}
		i := skill.Import{Tool: item.Text, Line: item.Line, Column: item.Column}
		if m := mcpImport.FindStringSubmatch(item.Text); m != nil {
			i.Server, i.Tool = m[1], m[2]
			c.checkServer(i)
		} else if !goodName.MatchString(item.Text) {
			c.r.On(item).Err("bad-name", fmt.Sprintf("%s is no name of a tool", yamlfile.Shown(item.Text)), "write the tool's name, or mcp/<server>:<tool>")
			continue
		}
		if slices.ContainsFunc(c.k.Imports, func(o skill.Import) bool { return o.Name() == i.Name() }) {
			c.r.On(item).Warn("duplicate-key", fmt.Sprintf("%s stands twice in import_tools", yamlfile.Shown(i.Tool)), "delete it")
			continue
		}
		c.k.Imports = append(c.k.Imports, i)
	}
}

// entries reads a list of mappings with one key each, or a mapping of such keys.
func (c *skillReader) entries(top *yamlfile.Section, key, hint string) []*yamlfile.Field {
	f := top.Find(key)
	if f == nil {
		return nil
	}
	var out []*yamlfile.Field
	add := func(n *yamlfile.Node) {
		for i := range n.Fields {
			out = append(out, &n.Fields[i])
		}
	}
	switch f.Value.Kind {
	case yamlfile.Mapping:
		add(f.Value)
	case yamlfile.List:
		for _, item := range f.Value.Items {
			switch {
			case item.Kind != yamlfile.Mapping:
				c.r.Mismatch(item, "an entry of "+key, yamlfile.Mapping, hint)
			case len(item.Fields) != 1:
				c.r.On(item).Err("wrong-type", fmt.Sprintf("an entry of %s has %d keys instead of one", key, len(item.Fields)), "indent what belongs to the name further than the name; begin each name with \"- \"")
			default:
				add(item)
			}
		}
	default:
		c.r.Mismatch(f.Value, key, yamlfile.List, hint)
	}
	return out
}

func (c *skillReader) constraints(top *yamlfile.Section) {
	for _, f := range c.entries(top, "tool_constraints", "write - <tool>: and under it requires:, requires_confirmation: or on_success:") {
		name := f.Name
		if m := mcpImport.FindStringSubmatch(name); m != nil {
			name = m[2]
		}
		what := "tool_constraints." + tidy(name)
		if c.k.Constraints[name] != nil {
			c.r.Key(f).Err("duplicate-key", fmt.Sprintf("%s has constraints twice", yamlfile.Shown(name)), "write them under one entry")
			continue
		}
		s := c.r.Open(f.Value, what)
		if s == nil {
			if f.Value.Kind == yamlfile.Null {
				c.r.Key(f).Err("missing-key", what+" says nothing", "write requires:, requires_confirmation: or on_success: under it, indented")
			}
			continue
		}
		con := &skill.Constraint{Line: f.Line, Column: f.Column, Requires: c.conditionOf(s, "requires"), Description: strings.TrimSpace(s.TextOrBlank("description")),
			OnSuccess: c.response(s, "on_success"), OnFailure: c.response(s, "on_failure")}
		c.confirmation(s, con)
		s.Unknown()
		if c.k.Constraints == nil {
			c.k.Constraints = map[string]*skill.Constraint{}
		}
		c.k.Constraints[name] = con
		c.tool(name, c.r.Key(f), "tool_constraints")
	}
}

// confirmation reads requires_confirmation. A gate that does not say whether it is
// enabled is shut.
func (c *skillReader) confirmation(s *yamlfile.Section, con *skill.Constraint) {
	f := s.Find("requires_confirmation")
	if f == nil {
		return
	}
	if f.Value.Kind == yamlfile.Bool {
		con.Confirm = f.Value.Text == "true"
		return
	}
	gate := s.Sub("requires_confirmation")
	if gate == nil {
		return
	}
	con.Confirm = true
	if n := gate.Get("enabled", yamlfile.Bool, "write true or false without quotes"); n != nil {
		con.Confirm = n.Text == "true"
	}
	con.Question, con.Denial = c.response(gate, "utter_for_confirmation"), c.response(gate, "utter_on_user_denial")
	gate.Unknown()
}

// response reads the name of a response.
func (c *skillReader) response(s *yamlfile.Section, key string) string {
	name := s.TextOrBlank(key)
	if name != "" {
		c.lib.named(c.r.On(s.Find(key).Value), name)
	}
	return name
}

func (c *skillReader) utters(top *yamlfile.Section) {
	const hint = "write - utter_x: and under it on: activate, or when: with a condition"
	for _, f := range c.entries(top, "utter", hint) {
		what := "utter." + tidy(f.Name)
		s := c.r.Open(f.Value, what)
		if s == nil {
			if f.Value.Kind == yamlfile.Null {
				c.r.Key(f).Err("missing-key", what+" does not say when", hint)
			}
			continue
		}
		u := skill.Utter{Response: f.Name, Line: f.Line, Column: f.Column}
		on, when := s.Find("on"), s.Find("when")
		switch {
		case on != nil && when != nil:
			c.r.Key(when).Err("duplicate-key", what+" has on: and when:", "keep one of the two")
		case when != nil:
			u.When = c.when(s, when)
		case on != nil:
			if text := s.TextOrBlank("on"); text != "" && text != "activate" {
				c.r.On(on.Value).Err("bad-value", what+".on can only be activate", "write on: activate, or when: with a condition")
			}
		default:
			c.r.Key(f).Err("missing-key", what+" does not say when", hint)
		}
		s.Unknown()
		c.lib.named(c.r.Key(f), f.Name)
		c.k.Utters = append(c.k.Utters, u)
	}
}

// when reads a condition, or the mapping of an older generation: {x: {equals: v}}.
func (c *skillReader) when(s *yamlfile.Section, f *yamlfile.Field) *condition.Condition {
	if f.Value.Kind != yamlfile.Mapping {
		return c.condition(f.Value, s.Full("when"))
	}
	var parts []string
	for i := range f.Value.Fields {
		key := &f.Value.Fields[i]
		t := c.r.Open(key.Value, s.Full("when")+"."+tidy(key.Name))
		if t == nil {
			continue
		}
		for _, operator := range [][2]string{{"equals", "=="}, {"not_equals", "!="}, {"in", "in"}} {
			if v := t.Find(operator[0]); v != nil {
				if value, ok := literal(c.r, v.Value); ok {
					text, _ := json.Marshal(value)
					parts = append(parts, key.Name+" "+operator[1]+" "+string(text))
				}
			}
		}
		if v := t.Find("exists"); v != nil {
			if t.Flag("exists") {
				parts = append(parts, key.Name+" != None")
			} else {
				parts = append(parts, key.Name+" == None")
			}
		}
		t.Unknown()
	}
	if len(parts) == 0 {
		c.r.Key(f).Err("bad-condition", s.Full("when")+" says nothing that can hold", conditionHint)
		return nil
	}
	return c.compile(strings.Join(parts, " and "), c.r.On(f.Value), s.Full("when"))
}
