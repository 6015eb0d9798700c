package agent

import (
	"fmt"
	"slices"
	"strings"

	"github.com/belay-run/belay/internal/skill"
)

// stepKinds are the keys that say what a step does.
var stepKinds = []skill.StepKind{skill.Instruct, skill.Collect, skill.Action, skill.Execute, skill.SetValue, skill.Noop, skill.CallTo, skill.LinkTo}

const stepHint = "give each step one of instructions, collect, action, execute_tool, set_memory, call, link, noop"

// block reads what stands between ::: and :::, which is YAML. number is the line of
// the first.
func (c *skillReader) block(id string, readable bool, at spot, number int, lines []string) {
	if !readable {
		return
	}
	for i, line := range lines {
		if strings.HasPrefix(strings.TrimLeft(line, " "), "\t") {
			c.r.at(number+1+i, len(line)-len(strings.TrimLeft(line, " "))+1).err("yaml-syntax", "a tab stands at the beginning of a line", "indent with spaces")
			return
		}
	}
	c.r.above = number
	n := c.r.parseText(strings.Join(lines, "\n"))
	c.r.above = 0
	path := "the block"
	if n != nil && n.kind == isMapping {
		if id == "" {
			if inner := n.field("id"); inner != nil {
				id = inner.text
			}
		}
		if id != "" {
			path = id
		}
	}
	if !goodSkill.MatchString(id) {
		at.err("bad-name", "the block has no id that can be used", blockHint)
		return
	}
	b := &skill.Block{ID: id, Line: number}
	if c.k.Block(id) != nil {
		at.err("duplicate-key", fmt.Sprintf("the skill has a second block %s", shown(id)), "rename one of them")
		return
	}
	c.k.Blocks = append(c.k.Blocks, b)
	top := c.r.open(n, path)
	if top == nil {
		if n == nil && !c.r.reported(number, number+len(lines)+1) {
			at.err("missing-key", "the block has no steps", "write steps: in it, with one step each, beginning with \"- \"")
		}
		return
	}
	top.find("id")
	b.Name, b.Description = top.text("name"), strings.TrimSpace(top.text("description"))
	steps := top.get("steps", isList, "write one step each, beginning with \"- \"")
	if steps == nil && !top.has("steps") || steps != nil && len(steps.items) == 0 {
		at.err("missing-key", "the block has no steps", "write steps: in it, with one step each, beginning with \"- \"")
	}
	if steps != nil {
		for i, item := range steps.items {
			c.step(b, item, fmt.Sprintf("%s.steps[%d]", path, i))
		}
	}
	top.close()
	c.lib.later = append(c.lib.later, func() { c.branches(b) })
}

// reported says whether something was found in these lines.
func (r *reader) reported(first, last int) bool {
	for _, f := range *r.findings {
		if f.File == r.file && f.Line >= first && f.Line <= last {
			return true
		}
	}
	return false
}

func (c *skillReader) step(b *skill.Block, n *node, path string) {
	s := c.r.open(n, path)
	if s == nil {
		if n.kind == isNull {
			c.r.on(n).err("step-kind", path+" says nothing", stepHint)
		}
		return
	}
	step := &skill.Step{ID: s.text("id"), Line: n.line, Column: n.column}
	if !goodSkill.MatchString(step.ID) {
		if f := s.find("id"); f != nil && f.value.kind == isText {
			c.r.on(f.value).err("bad-name", s.full("id")+" cannot be the id of a step", `use letters, digits, "_" and "-"`)
		}
		step.ID = fmt.Sprintf("step_%d", len(b.Steps)+1)
	}
	if was, _ := b.Step(step.ID); was != nil {
		c.r.on(n).err("duplicate-key", fmt.Sprintf("the block has a second step %s; the first is in line %d", shown(step.ID), was.Line), "rename one of them")
		return
	}
	s.path = b.ID + "." + step.ID
	var kinds []string
	for _, kind := range stepKinds {
		if s.n.field(string(kind)) != nil {
			kinds = append(kinds, string(kind))
		}
	}
	if say := s.n.field("utter"); say != nil && len(kinds) == 0 {
		kinds = []string{"utter"}
	}
	switch {
	case step.ID == skill.End:
		step.Kind = skill.Finish
		if len(kinds) > 0 {
			c.r.on(n).err("step-kind", "the step END ends the block and does nothing else", "write - id: END alone, or rename the step")
		}
		s.close()
		b.Steps = append(b.Steps, step)
		return
	case len(kinds) == 0:
		c.r.on(n).err("step-kind", s.path+" does not say what it does", stepHint)
	case len(kinds) > 1:
		c.r.on(n).err("step-kind", fmt.Sprintf("%s says %s in one step", s.path, strings.Join(kinds, " and ")), "make a step of each")
	default:
		c.act(step, s, kinds[0])
	}
	for _, kind := range kinds {
		s.find(kind)
	}
	if step.Kind == skill.LinkTo {
		if f := s.find("next"); f != nil {
			c.r.key(f).err("step-kind", s.path+" links and has next:, but nothing comes after a link", "delete next:, or write call: instead of link:")
		}
	} else {
		step.Next = c.next(s, step)
	}
	s.close()
	b.Steps = append(b.Steps, step)
}

// act reads the keys of one kind of step.
func (c *skillReader) act(step *skill.Step, s *section, kind string) {
	step.Kind = skill.StepKind(kind)
	switch step.Kind {
	case skill.Instruct:
		step.Instructions = strings.TrimRight(s.prose("instructions"), " \n")
		step.CompleteWhen = c.conditionOf(s, "complete_when")
		if f := s.find("instructions"); f != nil && step.Instructions != "" {
			c.instructions(f, step.Instructions)
		}
	case skill.Collect:
		step.Response = c.response(s, "utterance")
		if name := s.text("collect"); name != "" {
			step.Field = c.collected(c.r.on(s.find("collect").value), name)
		}
	case skill.Action, "utter":
		step.Kind = skill.Action
		step.Response = c.response(s, kind)
	case skill.Execute:
		step.Tool = s.text("execute_tool")
		if m := mcpImport.FindStringSubmatch(step.Tool); m != nil {
			step.Tool = m[2]
		}
		if step.Tool != "" {
			c.tool(step.Tool, c.r.on(s.find("execute_tool").value), "execute_tool")
		}
		step.Parameters = c.parameters(s)
	case skill.SetValue:
		step.Values = c.assignments(s)
	case skill.Noop:
		if f := s.find("noop"); f != nil && f.value.text != "true" {
			c.r.on(f.value).err("bad-value", s.full("noop")+" can only be true", "write noop: true")
		}
		if !s.has("next") {
			c.r.on(s.n).err("missing-key", s.path+" does nothing and leads nowhere", "write next: with a list of if: and then:")
		}
	case skill.CallTo, skill.LinkTo:
		step.Target = s.text(kind)
		if step.Target != "" {
			at, target := c.r.on(s.find(kind).value), step.Target
			c.lib.later = append(c.lib.later, func() { c.target(at, target, kind) })
		}
	}
}

// instructions looks at the text of a step: an if: line in it is text to the model.
func (c *skillReader) instructions(f *field, text string) {
	at := c.r.on(f.value)
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimSpace(line), "if:") {
			c.r.key(f).warn("if-in-instructions", "an if: in a step's instructions is not evaluated; the model reads it as text", "make a step of each case, and choose between them with next:")
			break
		}
	}
	c.mentions(text, func(int) spot { return at })
}

// next reads where a step leads: an id, or a list of branches.
func (c *skillReader) next(s *section, step *skill.Step) []skill.Branch {
	f := s.find("next")
	if f == nil {
		return nil
	}
	if f.value.kind == isText {
		if step.Kind == skill.Noop {
			c.r.on(f.value).warn("not-acted-on", s.path+" does nothing but lead on", "let the steps before lead there")
		}
		return []skill.Branch{{To: f.value.text}}
	}
	const hint = "write a step's id, or a list of if: and then:, with else: at the end"
	if f.value.kind != isList || len(f.value.items) == 0 {
		c.r.mismatch(f.value, s.full("next"), isList, hint)
		return nil
	}
	var out []skill.Branch
	for i, item := range f.value.items {
		path := fmt.Sprintf("%s[%d]", s.full("next"), i)
		t := c.r.open(item, path)
		if t == nil {
			if item.kind == isNull {
				c.r.on(item).err("missing-key", path+" leads nowhere", hint)
			}
			continue
		}
		if len(out) > 0 && out[len(out)-1].If == nil && i > 0 {
			c.r.on(item).err("unreachable-branch", path+" is never tried: the one before it holds always", "put the branch without a condition last")
		}
		branch := skill.Branch{}
		var holds *field
		if holds = t.find("if"); holds != nil {
			branch.If = c.condition(holds.value, path+".if")
		}
		to := t.find("then")
		if other := t.find("else"); other != nil {
			if to != nil || holds != nil {
				c.r.key(other).err("duplicate-key", path+" has else: beside if: or then:", "make an entry of its own of else:")
			}
			to = other
		}
		switch {
		case to == nil:
			c.r.on(item).err("missing-key", path+" leads nowhere", hint)
		case to.value.kind != isText:
			c.r.mismatch(to.value, path+"."+to.name, isText, "write the id of a step, or END")
		default:
			branch.To = to.value.text
		}
		t.close()
		if branch.To != "" && (holds == nil || branch.If != nil) {
			out = append(out, branch)
		}
	}
	return out
}

// branches looks for the steps that a block's branches name.
func (c *skillReader) branches(b *skill.Block) {
	ids := []string{skill.End}
	for _, s := range b.Steps {
		ids = append(ids, s.ID)
	}
	for _, s := range b.Steps {
		for _, n := range s.Next {
			if !slices.Contains(ids, n.To) {
				c.r.at(s.Line, s.Column).err("unknown-step", fmt.Sprintf("%s.%s leads to %s, and the block has no such step", b.ID, s.ID, shown(n.To)), didYouMean(n.To, ids, "write the id of a step of this block, or END"))
			}
		}
	}
}

func didYouMean(word string, names []string, otherwise string) string {
	if near := nearest(word, names); near != "" && near != word {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return otherwise
}

// parameters reads the arguments of a tool. session.<skill>.<name> stands for a
// value of memory, anything else for itself.
func (c *skillReader) parameters(s *section) []skill.Parameter {
	t := s.sub("parameters")
	if t == nil {
		return nil
	}
	var out []skill.Parameter
	for i := range t.n.fields {
		f := &t.n.fields[i]
		p := skill.Parameter{Name: f.name}
		if full, ok := strings.CutPrefix(f.value.text, "session."); ok && f.value.kind == isText {
			p.Field = full
			c.lib.checkChain(c.r.on(f.value), strings.Split(f.value.text, "."), c.k.ID)
		} else if v, ok := c.r.literal(f.value); ok {
			p.Value = v
		}
		out = append(out, p)
	}
	return out
}

// assignments reads set_memory.
func (c *skillReader) assignments(s *section) []skill.Assignment {
	t := s.sub("set_memory")
	if t == nil {
		return nil
	}
	var out []skill.Assignment
	for i := range t.n.fields {
		f := &t.n.fields[i]
		at := c.r.on(f.value)
		field := c.lib.writable(c.r.key(f), c.k, f.name)
		v, ok := c.r.literal(f.value)
		if field == nil || !ok {
			continue
		}
		if wrong := fits(field, v); wrong != "" {
			at.err("bad-value", fmt.Sprintf("%s.%s %s", t.path, tidy(f.name), wrong), "correct the value, or the type in "+MemoryFile)
			continue
		}
		if f.value.kind == isText && strings.HasPrefix(f.value.text, "session.") {
			at.warn("session-in-prose", fmt.Sprintf("%s.%s is set to this text, not to a value of memory", t.path, tidy(f.name)), "set_memory takes plain values; let a tool copy one value to another")
		}
		out = append(out, skill.Assignment{Field: field.Full(), Value: v})
	}
	return out
}
