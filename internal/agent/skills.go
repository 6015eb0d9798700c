package agent

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/belay-run/belay/internal/skill"
	"github.com/belay-run/belay/internal/yamlfile"
)

// MemoryFile declares the memory that all skills share, or that of one skill.
const MemoryFile = "memory.yml"

const (
	skillFile = "skill.md"
	maxSkills = 500
)

var (
	goodName   = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`)
	goodSkill  = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_-]{0,63}$`)
	notSkillID = []string{skill.Project, "session", "system"}
)

// library is the skills and the memory of an agent while they are read. What a
// file names may stand in one that is read later, so names are looked at when all
// is there.
type library struct {
	a     *Agent
	f     *folder
	set   *skill.Set
	later []func()
	// reached are the skills that something names.
	reached map[string]bool
}

// readSkills reads skills and memory. It leaves a.Skills nil when there is
// neither.
func (a *Agent) readSkills(f *folder) *library {
	lib := &library{a: a, f: f, set: &skill.Set{}, reached: map[string]bool{}}
	ids := f.skillIDs()
	if len(ids) == 0 && !f.exists(MemoryFile) {
		return lib
	}
	a.Skills = lib.set
	lib.set.Project = projectMemory(f.reader(MemoryFile), f.yaml(MemoryFile))
	var own []*skillReader
	for _, id := range ids {
		c := lib.open(id)
		own = append(own, c)
		lib.set.Skills = append(lib.set.Skills, c.k)
	}
	if len(ids) > 0 {
		lib.addBuiltin()
	}
	for _, c := range own { // with all memory known
		c.readFile()
	}
	return lib
}

// finish looks at all that was named on the way.
func (lib *library) finish() {
	for _, look := range lib.later {
		look()
	}
	lib.later = nil
	lib.flow()
	lib.reach()
}

// skillIDs lists the folders of skills, sorted.
func (f *folder) skillIDs() []string {
	entries, err := fs.ReadDir(f.root.FS(), "skills")
	if err != nil {
		return nil // not there, or reported by walk
	}
	var out []string
	for _, e := range entries {
		if !e.IsDir() || strings.HasPrefix(e.Name(), ".") || e.Name() == "__pycache__" {
			continue
		}
		dir := path.Join("skills", e.Name())
		at := f.reader(dir).Whole()
		if !f.exists(path.Join(dir, skillFile)) {
			f.noSkill(dir)
			continue
		}
		if !goodSkill.MatchString(e.Name()) || slices.Contains(notSkillID, e.Name()) {
			at.Err("bad-name", fmt.Sprintf("%s cannot be the id of a skill", yamlfile.Shown(e.Name())), `rename the folder: at most 64 letters, digits, "_" and "-", and none of `+strings.Join(notSkillID, ", "))
			continue
		}
		if len(out) == maxSkills {
			f.reader("skills").Whole().Err("too-many-skills", fmt.Sprintf("the agent has more than %d skills", maxSkills), "split the agent, or take out what is not used")
			break
		}
		out = append(out, e.Name())
	}
	return out
}

// noSkill reports a folder of skills/ that has no skill.md: an error when it has
// what only a skill has.
func (f *folder) noSkill(dir string) {
	at, hint := f.reader(dir).Whole(), "write "+skillFile+" there, or move the folder out of skills/"
	names := f.names(dir)
	for _, name := range names {
		if strings.EqualFold(name, skillFile) || strings.EqualFold(name, "skill.markdown") {
			at.Err("no-skill", "there is no "+skillFile+" in this folder", "rename "+name)
			return
		}
	}
	if slices.ContainsFunc(names, func(n string) bool { return n == MemoryFile || n == "tools.py" || n == ResponsesFile }) {
		at.Err("no-skill", "there is no "+skillFile+" in this folder, but other files of a skill", hint)
		return
	}
	at.Warn("no-skill", "there is no "+skillFile+" in this folder, so it is no skill", hint)
}

// open begins a skill with what others need to know of it: its memory.
func (lib *library) open(id string) *skillReader {
	dir := path.Join("skills", id)
	c := &skillReader{lib: lib, dir: dir, r: lib.f.reader(path.Join(dir, skillFile)), k: &skill.Skill{ID: id, Name: id, File: path.Join(dir, skillFile)}}
	file := path.Join(dir, MemoryFile)
	c.k.Memory = skillMemory(lib.f.reader(file), id, lib.f.yaml(file))
	return c
}

// skillReader reads one skill's skill.md.
type skillReader struct {
	lib   *library
	r     *yamlfile.Reader
	k     *skill.Skill
	dir   string
	count struct{ conditions, mentions int }
}

const (
	maxConditions = 2000 // of one skill
	maxMentions   = 5000
)

func (c *skillReader) readFile() {
	data, ok := c.lib.f.read(c.k.File, c.r.Whole())
	if !ok {
		return
	}
	c.read(data)
}

// read reads the text of skill.md.
func (c *skillReader) read(data []byte) {
	text, ok := c.r.Decode(data)
	if !ok {
		return
	}
	front, body, above, ok := frontMatter(c.r, text)
	if !ok {
		return
	}
	n := c.r.Part(front, 1)
	if top := c.r.Open(n, ""); top != nil {
		c.front(top)
	} else if !c.r.Reported(1, above) {
		c.r.At(1, 1).Warn("missing-description", "the skill has no description, by which the model would choose it", "write description: between the lines ---")
	}
	c.body(body, above)
}

// frontMatter splits a skill's file. above is the number of lines before the body.
func frontMatter(r *yamlfile.Reader, text string) (front, body string, above int, ok bool) {
	first, rest, _ := strings.Cut(text, "\n")
	if strings.TrimRight(first, " \t") != "---" {
		r.At(1, 1).Err("bad-front-matter", "the file does not begin with a line ---", "write ---, then name: and description:, then --- and the skill's text")
		return "", "", 0, false
	}
	above = 1
	length := 0
	for line := range strings.Lines(rest) {
		above++
		if strings.TrimRight(line, " \t\n") == "---" {
			return rest[:length], rest[length+len(line):], above, true
		}
		length += len(line)
	}
	r.At(1, 1).Err("bad-front-matter", "the front matter that begins here has no end", "write a line --- after its keys")
	return "", "", 0, false
}
