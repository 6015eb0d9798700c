package agent

import (
	"fmt"
	"slices"
	"strings"

	"github.com/belay-run/belay/internal/skill"
	"github.com/belay-run/belay/internal/yamlfile"
)

// stepKinds are the keys that say what a step does.
var stepKinds = []skill.StepKind{skill.Instruct, skill.Collect, skill.Action, skill.Execute, skill.SetValue, skill.Noop, skill.CallTo, skill.LinkTo}

const stepHint = "give each step one of instructions, collect, action, execute_tool, set_memory, call, link, noop"

// block reads what stands between ::: and :::, which is YAML. number is the line of
// the first.
func (c *skillReader) block(id string, readable bool, at yamlfile.Spot, number int, lines []string) {
	if !readable {
		return
	}
	for i, line := range lines {
		if strings.HasPrefix(strings.TrimLeft(line, " "), "\t") {
			c.r.At(number+1+i, len(line)-len(strings.TrimLeft(line, " "))+1).Err("yaml-syntax", "a tab stands at the beginning of a line", "indent with spaces")
			return
		}
	}
	n := c.r.Part(strings.Join(lines, "\n"), number)
	path := "the block"
	if n != nil && n.Kind == yamlfile.Mapping {
		if id == "" {
			if inner := n.Field("id"); inner != nil {
				id = inner.Text
			}
		}
		if id != "" {
			path = id
		}
	}
	if !goodSkill.MatchString(id) {
		at.Err("bad-name", "the block has no id that can be used", blockHint)
		return
	}
	b := &skill.Block{ID: id, Line: number}
	if c.k.Block(id) != nil {
		at.Err("duplicate-key", fmt.Sprintf("the skill has a second block %s", yamlfile.Shown(id)), "rename one of them")
		return
	}
	c.k.Blocks = append(c.k.Blocks, b)
	top := c.r.Open(n, path)
	if top == nil {
		if n == nil && !c.r.Reported(number, number+len(lines)+1) {
			at.Err("missing-key", "the block has no steps", "write steps: in it, with one step each, beginning with \"- \"")
		}
		return
	}
	top.Find("id")
	b.Name, b.Description = top.TextOrBlank("name"), strings.TrimSpace(top.TextOrBlank("description"))
	steps := top.Get("steps", yamlfile.List, "write one step each, beginning with \"- \"")
	if steps == nil && !top.Has("steps") || steps != nil && len(steps.Items) == 0 {
		at.Err("missing-key", "the block has no steps", "write steps: in it, with one step each, beginning with \"- \"")
	}
	if steps != nil {
		for i, item := range steps.Items {
			c.step(b, item, fmt.Sprintf("%s.steps[%d]", path, i))
		}
	}
	top.Unknown()
	c.lib.later = append(c.lib.later, func() { c.branches(b) })
}

func (c *skillReader) step(b *skill.Block, n *yamlfile.Node, path string) {
	s := c.r.Open(n, path)
	if s == nil {
		if n.Kind == yamlfile.Null {
			c.r.On(n).Err("step-kind", path+" says nothing", stepHint)
		}
		return
	}
	step := &skill.Step{ID: s.TextOrBlank("id"), Line: n.Line, Column: n.Column}
	if !goodSkill.MatchString(step.ID) {
		if f := s.Find("id"); f != nil && f.Value.Kind == yamlfile.Text {
			c.r.On(f.Value).Err("bad-name", s.Full("id")+" cannot be the id of a step", `use letters, digits, "_" and "-"`)
		}
		step.ID = fmt.Sprintf("step_%d", len(b.Steps)+1)
	}
	if was, _ := b.Step(step.ID); was != nil {
		c.r.On(n).Err("duplicate-key", fmt.Sprintf("the block has a second step %s; the first is in line %d", yamlfile.Shown(step.ID), was.Line), "rename one of them")
		return
	}
	s = c.r.Open(n, b.ID+"."+step.ID) // called by its name from here on
	s.Find("id")
	var kinds []string
	for _, kind := range stepKinds {
		if s.Node.Field(string(kind)) != nil {
			kinds = append(kinds, string(kind))
		}
	}
	if say := s.Node.Field("utter"); say != nil && len(kinds) == 0 {
		kinds = []string{"utter"}
	}
	switch {
	case step.ID == skill.End:
		step.Kind = skill.Finish
		if len(kinds) > 0 {
			c.r.On(n).Err("step-kind", "the step END ends the block and does nothing else", "write - id: END alone, or rename the step")
		}
		s.Unknown()
		b.Steps = append(b.Steps, step)
		return
	case len(kinds) == 0:
		c.r.On(n).Err("step-kind", s.Path()+" does not say what it does", stepHint)
	case len(kinds) > 1:
		c.r.On(n).Err("step-kind", fmt.Sprintf("%s says %s in one step", s.Path(), strings.Join(kinds, " and ")), "make a step of each")
	default:
		c.act(step, s, kinds[0])
	}
	for _, kind := range kinds {
		s.Find(kind)
	}
	if step.Kind == skill.LinkTo {
		if f := s.Find("next"); f != nil {
			c.r.Key(f).Err("step-kind", s.Path()+" links and has next:, but nothing comes after a link", "delete next:, or write call: instead of link:")
		}
	} else {
		step.Next = c.next(s, step)
	}
	s.Unknown()
	b.Steps = append(b.Steps, step)
}

// act reads the keys of one kind of step.
func (c *skillReader) act(step *skill.Step, s *yamlfile.Section, kind string) {
	step.Kind = skill.StepKind(kind)
	switch step.Kind {
	case skill.Instruct:
		step.Instructions = strings.TrimRight(prose(s, "instructions"), " \n")
		step.CompleteWhen = c.conditionOf(s, "complete_when")
		if f := s.Find("instructions"); f != nil && step.Instructions != "" {
			c.instructions(f, step.Instructions)
		}
	case skill.Collect:
		step.Response = c.response(s, "utterance")
		if name := s.TextOrBlank("collect"); name != "" {
			step.Field = c.collected(c.r.On(s.Find("collect").Value), name)
		}
	case skill.Action, "utter":
		step.Kind = skill.Action
		step.Response = c.response(s, kind)
	case skill.Execute:
		step.Tool = s.TextOrBlank("execute_tool")
		if m := mcpImport.FindStringSubmatch(step.Tool); m != nil {
			step.Tool = m[2]
		}
		if step.Tool != "" {
			c.tool(step.Tool, c.r.On(s.Find("execute_tool").Value), "execute_tool")
		}
		step.Parameters = c.parameters(s)
	case skill.SetValue:
		step.Values = c.assignments(s)
	case skill.Noop:
		if f := s.Find("noop"); f != nil && f.Value.Text != "true" {
			c.r.On(f.Value).Err("bad-value", s.Full("noop")+" can only be true", "write noop: true")
		}
		if !s.Has("next") {
			c.r.On(s.Node).Err("missing-key", s.Path()+" does nothing and leads nowhere", "write next: with a list of if: and then:")
		}
	case skill.CallTo, skill.LinkTo:
		step.Target = s.TextOrBlank(kind)
		if step.Target != "" {
			at, target := c.r.On(s.Find(kind).Value), step.Target
			c.lib.later = append(c.lib.later, func() { c.target(at, target, kind) })
		}
	}
}

// instructions looks at the text of a step: an if: line in it is text to the model.
func (c *skillReader) instructions(f *yamlfile.Field, text string) {
	at := c.r.On(f.Value)
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimSpace(line), "if:") {
			c.r.Key(f).Warn("if-in-instructions", "an if: in a step's instructions is not evaluated; the model reads it as text", "make a step of each case, and choose between them with next:")
			break
		}
	}
	c.mentions(text, func(int) yamlfile.Spot { return at })
}

// next reads where a step leads: an id, or a list of branches.
func (c *skillReader) next(s *yamlfile.Section, step *skill.Step) []skill.Branch {
	f := s.Find("next")
	if f == nil {
		return nil
	}
	if f.Value.Kind == yamlfile.Text {
		if step.Kind == skill.Noop {
			c.r.On(f.Value).Warn("not-acted-on", s.Path()+" does nothing but lead on", "let the steps before lead there")
		}
		return []skill.Branch{{To: f.Value.Text}}
	}
	const hint = "write a step's id, or a list of if: and then:, with else: at the end"
	if f.Value.Kind != yamlfile.List || len(f.Value.Items) == 0 {
		c.r.Mismatch(f.Value, s.Full("next"), yamlfile.List, hint)
		return nil
	}
	var out []skill.Branch
	for i, item := range f.Value.Items {
		path := fmt.Sprintf("%s[%d]", s.Full("next"), i)
		t := c.r.Open(item, path)
		if t == nil {
			if item.Kind == yamlfile.Null {
				c.r.On(item).Err("missing-key", path+" leads nowhere", hint)
			}
			continue
		}
		if len(out) > 0 && out[len(out)-1].If == nil && i > 0 {
			c.r.On(item).Err("unreachable-branch", path+" is never tried: the one before it holds always", "put the branch without a condition last")
		}
		branch := skill.Branch{}
		var holds *yamlfile.Field
		if holds = t.Find("if"); holds != nil {
			branch.If = c.condition(holds.Value, path+".if")
		}
		to := t.Find("then")
		if other := t.Find("else"); other != nil {
			if to != nil || holds != nil {
				c.r.Key(other).Err("duplicate-key", path+" has else: beside if: or then:", "make an entry of its own of else:")
			}
			to = other
		}
		switch {
		case to == nil:
			c.r.On(item).Err("missing-key", path+" leads nowhere", hint)
		case to.Value.Kind != yamlfile.Text:
			c.r.Mismatch(to.Value, path+"."+to.Name, yamlfile.Text, "write the id of a step, or END")
		default:
			branch.To = to.Value.Text
		}
		t.Unknown()
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
				c.r.At(s.Line, s.Column).Err("unknown-step", fmt.Sprintf("%s.%s leads to %s, and the block has no such step", b.ID, s.ID, yamlfile.Shown(n.To)), didYouMean(n.To, ids, "write the id of a step of this block, or END"))
			}
		}
	}
}

func didYouMean(word string, names []string, otherwise string) string {
	if near := yamlfile.Nearest(word, names); near != "" && near != word {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return otherwise
}

// parameters reads the arguments of a tool. session.<skill>.<name> stands for a
// value of memory, anything else for itself.
func (c *skillReader) parameters(s *yamlfile.Section) []skill.Parameter {
	t := s.Sub("parameters")
	if t == nil {
		return nil
	}
	var out []skill.Parameter
	for i := range t.Node.Fields {
		f := &t.Node.Fields[i]
		p := skill.Parameter{Name: f.Name}
		if full, ok := strings.CutPrefix(f.Value.Text, "session."); ok && f.Value.Kind == yamlfile.Text {
			p.Field = full
			c.lib.checkChain(c.r.On(f.Value), strings.Split(f.Value.Text, "."), c.k.ID)
		} else if v, ok := literal(c.r, f.Value); ok {
			p.Value = v
		}
		out = append(out, p)
	}
	return out
}

// assignments reads set_memory.
func (c *skillReader) assignments(s *yamlfile.Section) []skill.Assignment {
	t := s.Sub("set_memory")
	if t == nil {
		return nil
	}
	var out []skill.Assignment
	for i := range t.Node.Fields {
		f := &t.Node.Fields[i]
		at := c.r.On(f.Value)
		field := c.lib.writable(c.r.Key(f), c.k, f.Name)
		v, ok := literal(c.r, f.Value)
		if field == nil || !ok {
			continue
		}
		if wrong := fits(field, v); wrong != "" {
			at.Err("bad-value", fmt.Sprintf("%s.%s %s", t.Path(), tidy(f.Name), wrong), "correct the value, or the type in "+MemoryFile)
			continue
		}
		if f.Value.Kind == yamlfile.Text && strings.HasPrefix(f.Value.Text, "session.") {
			at.Warn("session-in-prose", fmt.Sprintf("%s.%s is set to this text, not to a value of memory", t.Path(), tidy(f.Name)), "set_memory takes plain values; let a tool copy one value to another")
		}
		out = append(out, skill.Assignment{Field: field.Full(), Value: v})
	}
	return out
}
