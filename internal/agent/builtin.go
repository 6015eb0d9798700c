package agent

import (
	"cmp"
	"embed"
	"fmt"
	"path"
	"slices"
	"sync"

	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/skill"
	"github.com/belay-run/belay/internal/wording"
)

//go:embed builtin/skills
var builtinFiles embed.FS

const unsupportedHandler = skill.UnsupportedRequest

// engineSkills are the skills that the engine starts by itself.
var engineSkills = []string{skill.SessionStart, skill.Completed, skill.ContinueInterrupt, skill.UnsupportedRequest}

// builtinSkills are Belay's own, by id. They stand in files as an author's do, and
// an agent's skill of the same id takes their place.
var builtinSkills = sync.OnceValue(func() map[string]*skill.Skill {
	const root = "builtin/skills"
	var findings []finding.Finding
	f := &folder{findings: &findings}
	lib := &library{a: &Agent{Responses: wording.New("en", nil)}, f: f, set: &skill.Set{}, reached: map[string]bool{}}
	text := func(id, file string) []byte {
		data, err := builtinFiles.ReadFile(path.Join(root, id, file))
		if err != nil {
			return nil
		}
		return data
	}
	entries, err := builtinFiles.ReadDir(root)
	if err != nil {
		panic(err)
	}
	var all []*skillReader
	for _, e := range entries {
		file := path.Join("builtin", e.Name(), skillFile)
		c := &skillReader{lib: lib, r: f.reader(file), k: &skill.Skill{ID: e.Name(), File: file, Builtin: true}}
		r := f.reader(path.Join("builtin", e.Name(), MemoryFile))
		c.k.Memory = skillMemory(r, e.Name(), r.Parse(text(e.Name(), MemoryFile)))
		lib.set.Skills = append(lib.set.Skills, c.k) // ReadDir sorts
		all = append(all, c)
	}
	out := map[string]*skill.Skill{}
	for _, c := range all {
		c.read(text(c.k.ID, skillFile))
		out[c.k.ID] = c.k
	}
	lib.finish()
	if len(findings) > 0 {
		panic(fmt.Sprintf("built-in skills: %+v", findings))
	}
	return out
})

// addBuiltin adds Belay's own skills, but for those that the agent has itself. The
// memory of such a skill, which the engine writes, is kept where the agent declares
// nothing else.
func (lib *library) addBuiltin() {
	for id, k := range builtinSkills() {
		own := lib.set.Skill(id)
		if own == nil {
			lib.set.Skills = append(lib.set.Skills, k)
			slices.SortFunc(lib.set.Skills, func(a, b *skill.Skill) int { return cmp.Compare(a.ID, b.ID) })
			continue
		}
		for _, f := range k.Memory {
			if lib.set.Field(f.Full()) == nil {
				own.Memory = append(own.Memory, f)
			}
		}
	}
}
