package convtest

import (
	"cmp"
	"slices"
	"sync"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/internal/app"
	"github.com/belay-run/belay/internal/conversation"
	"github.com/belay-run/belay/internal/skill"
)

// coverage is what the tests have reached.
type coverage struct {
	mu    sync.Mutex
	hooks map[hookID]*HookCount
	tools map[toolID]bool // whether it ran
	where map[place]bool  // skills and blocks that were entered
}

type hookID struct{ name, point string }

type toolID struct{ skill, name string }

type place struct{ skill, block string }

// HookCount is what a hook did in all tests.
type HookCount struct {
	Name  string `json:"hook"`
	Point string `json:"point"`
	Lane  string `json:"lane"`
	File  string `json:"file"`
	Line  int    `json:"line"`
	Asked int    `json:"asked"`
	// Said counts what it said, by the words of the trace.
	Said map[string]int `json:"said"`
}

// standing takes down what the agent has.
func (c *coverage) standing(a *app.App) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hooks != nil {
		return
	}
	c.hooks, c.tools, c.where = map[hookID]*HookCount{}, map[toolID]bool{}, map[place]bool{}
	for _, h := range a.Hooks() {
		c.hooks[hookID{h.Name, h.Point.Name}] = &HookCount{Name: h.Name, Point: h.Point.Name, Lane: string(h.Lane), File: h.File, Line: h.Line, Said: map[string]int{}}
	}
	for _, t := range a.Tools() {
		c.tools[toolID{t.Skill, t.Name}] = false
	}
}

// turn takes down what a turn has reached.
func (c *coverage) turn(s *seen) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range s.runs {
		if h := c.hooks[hookID{r.Name, r.Point}]; h != nil {
			h.Asked++
			h.Said[sayings(r)[0]]++
		}
	}
	ran := map[string]bool{}
	for _, l := range s.report.Lines {
		if l.Kind == "tool" && l.Outcome != "not_run" {
			ran[l.Tool] = true
		}
	}
	for _, e := range s.report.Events {
		switch e.Kind {
		case conversation.ToolExecuted:
			if e.Tool == nil || !ran[e.Tool.Name] {
				continue
			}
			for _, id := range []toolID{{e.Tool.Skill, e.Tool.Name}, {"", e.Tool.Name}} { // a skill's own comes first
				if _, there := c.tools[id]; there {
					c.tools[id] = true
					break
				}
			}
		case conversation.SkillActivated:
			c.where[place{e.Skill, ""}] = true
		case conversation.BlockEntered:
			c.where[place{e.Skill, e.Block}] = true
		}
	}
}

// Unreached are the parts of an agent that no test has reached.
type Unreached struct {
	Hooks  []*HookCount `json:"hooks"`
	Tools  []string     `json:"tools"`
	Skills []string     `json:"skills"`
	Blocks []string     `json:"blocks"`
}

// None says that everything was reached.
func (u *Unreached) None() bool {
	return len(u.Hooks)+len(u.Tools)+len(u.Skills)+len(u.Blocks) == 0
}

// report gives the counts of all hooks, in the order of points, and what was not
// reached.
func (c *coverage) report(set *skill.Set) (all []*HookCount, none Unreached) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range c.hooks {
		all = append(all, h)
	}
	none = Unreached{Hooks: []*HookCount{}, Tools: []string{}, Skills: []string{}, Blocks: []string{}}
	at := map[string]int{}
	for i, p := range hook.Points {
		at[p.Name] = i
	}
	slices.SortFunc(all, func(a, b *HookCount) int {
		return cmp.Or(cmp.Compare(at[a.Point], at[b.Point]), cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Name, b.Name))
	})
	for _, h := range all {
		if h.Asked == 0 {
			none.Hooks = append(none.Hooks, h)
		}
	}
	for id, ran := range c.tools {
		if !ran {
			none.Tools = append(none.Tools, qualified(id.skill, id.name))
		}
	}
	slices.Sort(none.Tools)
	if set == nil {
		return all, none
	}
	for _, k := range set.Skills {
		switch {
		case k.Builtin || k.Disabled:
		case !c.where[place{k.ID, ""}]:
			none.Skills = append(none.Skills, k.ID) // its blocks neither, which need not be said
		default:
			for _, b := range k.Blocks {
				if !c.where[place{k.ID, b.ID}] {
					none.Blocks = append(none.Blocks, qualified(k.ID, b.ID))
				}
			}
		}
	}
	return all, none
}

// qualified is a name with the skill that it belongs to.
func qualified(skill, name string) string {
	if skill == "" {
		return name
	}
	return skill + "/" + name
}
