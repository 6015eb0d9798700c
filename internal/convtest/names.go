package convtest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/internal/agent"
	"github.com/belay-run/belay/internal/app"
	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/turn"
	"github.com/belay-run/belay/internal/yamlfile"
)

// beforehand finds what can be told before the agent is loaded: conversations that no
// model answers, and names of memory and skills that there are not.
func (r *runner) beforehand(f *File, results []*Result) []finding.Finding {
	var out []finding.Finding
	file := yamlfile.NewReader(f.Path, &out)
	for _, result := range results {
		c := result.Conversation
		if !c.own() && r.model() == "" {
			file.At(c.Line, c.Column).Err("no-model", fmt.Sprintf("conversation %q brings no model, and the agent's is a real one (%s/%s)", c.Name, r.spec.Model.Provider, r.spec.Model.Name),
				"write model: with a script or a recording, or name a real model with --model")
		}
		r.values(file, c.Memory)
		for _, t := range c.Turns {
			r.values(file, t.Expect.Memory)
			r.places(file, &t.Expect)
		}
	}
	return out
}

// values checks names and types of memory values.
func (r *runner) values(file *yamlfile.Reader, values []Value) {
	for _, v := range values {
		at := file.At(v.Line, v.Column)
		field := r.spec.Skills.Field(v.Name)
		if field == nil {
			at.Err("unknown-name", fmt.Sprintf("no memory value %s is declared", yamlfile.Shown(v.Name)), yamlfile.Meant(v.Name, r.memory()))
			continue
		}
		if _, err := field.Accept(decode(v.Value)); err != nil {
			at.Err("bad-value", v.Name+" cannot have this value: "+err.Error(), "write a value of its type")
		}
	}
}

// memory lists what is declared.
func (r *runner) memory() []string {
	var out []string
	if r.spec.Skills == nil {
		return nil
	}
	for _, f := range r.spec.Skills.Project {
		out = append(out, f.Full())
	}
	for _, k := range r.spec.Skills.Skills {
		for _, f := range k.Memory {
			out = append(out, f.Full())
		}
	}
	return out
}

func (r *runner) places(file *yamlfile.Reader, e *Expect) {
	var skills, blocks, steps []string
	if r.spec.Skills != nil {
		for _, k := range r.spec.Skills.Skills {
			skills = append(skills, k.ID)
			for _, b := range k.Blocks {
				blocks = append(blocks, b.ID)
				for _, s := range b.Steps {
					steps = append(steps, s.ID)
				}
			}
		}
	}
	known(file, e.Skill, "skill", skills)
	known(file, e.Block, "block", blocks)
	known(file, e.Step, "step", steps)
}

func known(file *yamlfile.Reader, n *Name, what string, names []string) {
	if n != nil && n.Text != "" && !slices.Contains(names, n.Text) {
		file.At(n.Line, n.Column).Err("unknown-name", fmt.Sprintf("the agent has no %s %s", what, yamlfile.Shown(n.Text)), yamlfile.Meant(n.Text, names))
	}
}

// names finds what only the loaded agent can tell: hooks, tools and responses that
// there are not. A tool may be one that the model made up, so of it there is only a
// warning.
func (r *runner) names(path string, a *app.App, results []*Result) []finding.Finding {
	var out []finding.Finding
	file := yamlfile.NewReader(path, &out)
	tools := slices.Clone(turn.Reserved)
	for _, t := range a.Tools() {
		tools = append(tools, t.Name)
	}
	hooks := a.Hooks()
	for _, result := range results {
		for _, t := range result.Conversation.Turns {
			e := &t.Expect
			for i := range e.Hooks {
				hookNamed(file, &e.Hooks[i], hooks)
			}
			if e.Tools != nil {
				for _, m := range e.Tools.Items {
					if !slices.Contains(tools, m.Name) {
						file.At(m.Line, m.Column).Warn("unknown-name", fmt.Sprintf("the agent has no tool %s", yamlfile.Shown(m.Name)), yamlfile.Meant(m.Name, tools))
					}
				}
			}
			responses(file, e, r.spec)
		}
	}
	return out
}

func hookNamed(file *yamlfile.Reader, m *HookMatch, hooks []*hook.Hook) {
	var names []string
	named, at := map[string]bool{}, false
	for _, h := range hooks {
		name := h.Name
		if !strings.Contains(m.Hook, ":") { // the function's name alone
			name = name[strings.LastIndex(name, ":")+1:]
		}
		names = append(names, name)
		if bare := (HookMatch{Hook: m.Hook}); bare.asks(h.Name, h.Point.Name) {
			named[h.Name] = true
			at = at || m.asks(h.Name, h.Point.Name)
		}
	}
	spot := file.At(m.Line, m.Column)
	switch {
	case len(named) == 0 && len(hooks) == 0:
		spot.Err("unknown-name", "the agent has no hooks", "delete the expectation, or write the hook")
	case len(named) == 0:
		spot.Err("unknown-name", fmt.Sprintf("the agent has no hook %s", yamlfile.Shown(m.Hook)), yamlfile.Meant(m.Hook, names))
	case len(named) > 1:
		spot.Err("unknown-name", fmt.Sprintf("%s may be any of %d hooks", yamlfile.Shown(m.Hook), len(named)), "write the whole name, such as hooks.py:mask_cards")
	case !at:
		spot.Err("unknown-name", fmt.Sprintf("hook %s does not stand at %s", yamlfile.Shown(m.Hook), yamlfile.Shown(m.Point)), "belay hooks DIR lists what stands where")
	}
}

func responses(file *yamlfile.Reader, e *Expect, spec *agent.Agent) {
	check := func(m *TextMatch) {
		if m.Response != "" && !spec.Responses.Has(m.Response) {
			file.At(m.Line, m.Column).Err("unknown-name", fmt.Sprintf("there is no response %s", yamlfile.Shown(m.Response)), "write it into responses.yml, or correct the name")
		}
	}
	if e.Texts != nil {
		for i := range e.Texts.Items {
			check(&e.Texts.Items[i])
		}
	}
	for i := range e.NotTexts {
		check(&e.NotTexts[i])
	}
}
