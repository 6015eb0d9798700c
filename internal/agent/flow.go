package agent

import (
	"fmt"
	"slices"
	"strings"

	"github.com/belay-run/belay/internal/skill"
	"github.com/belay-run/belay/internal/yamlfile"
)

// flow looks at the way through blocks: steps that are never reached, blocks that
// call each other in a circle, and circles that nothing ends.
func (lib *library) flow() {
	g := &flow{lib: lib, silent: map[station]bool{}}
	for _, k := range lib.set.Skills {
		for _, b := range k.Blocks {
			g.reach(k, b)
		}
	}
	g.calls()
	g.idling()
}

type flow struct {
	lib    *library
	silent map[station]bool // whether a block asks nobody
}

func (g *flow) at(k *skill.Skill, s *skill.Step) yamlfile.Spot {
	r := g.lib.reader(k)
	return r.At(s.Line, s.Column)
}

// reader is where the findings of a skill go.
func (lib *library) reader(k *skill.Skill) *yamlfile.Reader {
	return lib.f.reader(k.File)
}

// always says that one of a step's branches is taken whatever holds, so that it
// never falls to the step below.
func always(s *skill.Step) bool {
	return slices.ContainsFunc(s.Next, func(b skill.Branch) bool { return b.If == nil })
}

// reach reports the steps of a block that no way leads to.
func (g *flow) reach(k *skill.Skill, b *skill.Block) {
	if len(b.Steps) == 0 {
		return
	}
	index := map[string]int{}
	for i, s := range b.Steps {
		index[s.ID] = i
	}
	seen := make([]bool, len(b.Steps))
	todo := []int{0}
	for len(todo) > 0 {
		i := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if seen[i] {
			continue
		}
		seen[i] = true
		s := b.Steps[i]
		for _, n := range s.Next {
			to, ok := index[n.To]
			if !ok && n.To != skill.End {
				return // reported, and nobody knows where it was meant to lead
			}
			if ok {
				todo = append(todo, to)
			}
		}
		if i+1 < len(b.Steps) && s.Kind != skill.LinkTo && s.Kind != skill.Finish && !always(s) {
			todo = append(todo, i+1)
		}
	}
	for i, s := range b.Steps {
		if !seen[i] && s.Kind != skill.Finish { // an END that all branches name is good style
			g.at(k, s).Warn("unreachable-step", fmt.Sprintf("no way leads to the step %s.%s", b.ID, s.ID), "name it in the next: of a step, or delete it")
		}
	}
}

// station is a block, or a skill without the block that is meant.
type station struct {
	k *skill.Skill
	b *skill.Block
}

func (p station) String() string {
	if p.b == nil {
		return p.k.ID
	}
	return p.k.ID + "." + p.b.ID
}

// goal is what call: or link: leads to. A skill that is only blocks is its main
// block; one with prose is the model's, and its b is nil.
func (g *flow) goal(k *skill.Skill, target string) (station, bool) {
	own := strings.TrimPrefix(target, k.ID+"__")
	if b := k.Block(own); b != nil {
		return station{k, b}, true
	}
	t := g.lib.set.Skill(target)
	if t == nil {
		return station{}, false
	}
	if t.OnlyBlocks() {
		return station{t, t.Main()}, true
	}
	return station{k: t}, true
}

// calls reports blocks that call each other in a circle: each call waits for the one
// that it makes.
func (g *flow) calls() {
	state := map[station]int{} // 1: under way, 2: done
	var path []station
	var visit func(p station)
	visit = func(p station) {
		state[p] = 1
		path = append(path, p)
		for _, s := range p.b.Steps {
			if s.Kind != skill.CallTo {
				continue
			}
			to, ok := g.goal(p.k, s.Target)
			if !ok || to.b == nil {
				continue
			}
			switch state[to] {
			case 0:
				visit(to)
			case 1:
				g.circle(p.k, s, path[slices.Index(path, to):])
			}
		}
		path = path[:len(path)-1]
		state[p] = 2
	}
	for _, k := range g.lib.set.Skills {
		for _, b := range k.Blocks {
			if p := (station{k, b}); state[p] == 0 {
				visit(p)
			}
		}
	}
}

func (g *flow) circle(k *skill.Skill, s *skill.Step, members []station) {
	var names []string
	for _, m := range append(slices.Clone(members), members[0]) {
		names = append(names, m.String())
	}
	g.at(k, s).Err("block-cycle", "blocks call each other in a circle: "+chain(names), "let one of them end without calling the next")
}

// chain writes names in order, without the middle of many.
func chain(names []string) string {
	const most = 12
	if n := len(names); n > most {
		names = slices.Concat(names[:most/2], []string{fmt.Sprintf("(%d more)", n-most)}, names[n-most/2:])
	}
	return strings.Join(names, " → ")
}

// position is a step of a block.
type position struct {
	station
	i int
}

// idling reports circles of steps that ask nobody and choose nothing: such a turn
// would not end. Each of these steps leads to one step only.
func (g *flow) idling() {
	state := map[position]int{}
	for _, k := range g.lib.set.Skills {
		for _, b := range k.Blocks {
			for i := range b.Steps {
				var way []position
				p, ok := position{station{k, b}, i}, true
				for ok && state[p] == 0 {
					state[p] = 1
					way = append(way, p)
					p, ok = g.onward(p)
				}
				if ok && state[p] == 1 {
					g.idle(way[slices.Index(way, p):])
				}
				for _, w := range way {
					state[w] = 2
				}
			}
		}
	}
}

func (g *flow) idle(circle []position) {
	var names []string
	for _, p := range append(slices.Clone(circle), circle[0]) {
		names = append(names, p.String()+"."+p.b.Steps[p.i].ID)
	}
	last := circle[len(circle)-1]
	g.at(last.k, last.b.Steps[last.i]).Err("block-cycle", "these steps lead in a circle in which nothing is asked and nothing chosen: "+chain(names),
		"let one of them end the block, ask the user, or choose with if:")
}

// onward is the one step that comes after a step which asks nobody and chooses
// nothing. It is not ok when the block ends there, or the step waits for somebody.
func (g *flow) onward(p position) (position, bool) {
	s := p.b.Steps[p.i]
	if !g.quiet(p.k, s) {
		return position{}, false
	}
	if s.Kind == skill.LinkTo {
		to, ok := g.goal(p.k, s.Target)
		if !ok || to.b == nil || len(to.b.Steps) == 0 {
			return position{}, false
		}
		return position{to, 0}, true
	}
	if len(s.Next) > 0 {
		i := slices.IndexFunc(p.b.Steps, func(t *skill.Step) bool { return t.ID == s.Next[0].To })
		return position{p.station, i}, i >= 0
	}
	return position{p.station, p.i + 1}, p.i+1 < len(p.b.Steps)
}

// quiet says that a step asks nobody, runs nothing and chooses nothing.
func (g *flow) quiet(k *skill.Skill, s *skill.Step) bool {
	if slices.ContainsFunc(s.Next, func(b skill.Branch) bool { return b.If != nil }) {
		return false
	}
	switch s.Kind {
	case skill.Action, skill.SetValue, skill.Noop, skill.LinkTo:
		return true
	case skill.CallTo:
		to, ok := g.goal(k, s.Target)
		return ok && to.b != nil && g.through(to)
	}
	return false
}

// through says that a block is gone through from its first step to its end without
// anybody being asked.
func (g *flow) through(to station) bool {
	if known, ok := g.silent[to]; ok {
		return known
	}
	g.silent[to] = false // while it is looked at: circles of calls are reported elsewhere
	p, ok := position{to, 0}, len(to.b.Steps) > 0
	for range to.b.Steps {
		s := p.b.Steps[p.i]
		if !ok || s.Kind == skill.LinkTo || s.Kind != skill.Finish && !g.quiet(p.k, s) {
			return false
		}
		next, more := g.onward(p)
		if !more {
			g.silent[to] = true
			return true
		}
		p = next
	}
	return false
}

// reach reports skills that nothing can ever start.
func (lib *library) reach() {
	for _, k := range lib.set.Skills {
		at, why := lib.reader(k).At(1, 1), ""
		switch {
		case k.Builtin:
			continue
		case k.Disabled:
			why = "it is disabled"
		case k.EngineManaged && !slices.Contains(engineSkills, k.ID) && !lib.reached[k.ID]:
			why = "it is left to the engine, which does not know it, and no skill names it"
		case k.Requires != nil && len(k.Requires.Names()) == 0:
			if holds, err := k.Requires.Holds(nil); err != nil || !holds {
				why = "its requires never holds"
			}
		}
		if why != "" {
			at.Warn("unreachable-skill", fmt.Sprintf("the skill %s can never be reached: %s", k.ID, why), "mend it, or delete the skill")
		}
	}
}
