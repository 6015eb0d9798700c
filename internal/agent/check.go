package agent

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/belay-run/belay/internal/skill"
	"github.com/belay-run/belay/internal/yamlfile"
)

var (
	lookalike   = regexp.MustCompile(`(?:^|[^A-Za-z0-9_.%+-])@([a-z]{3,12})\.[A-Za-z_]`)
	bareSession = regexp.MustCompile(`\bsession\.[A-Za-z_][A-Za-z0-9_-]*\.[A-Za-z_]`)
)

// checkChain looks whether what a condition or parameter names is declared, and may
// be read by a skill; reader is "" for the project's files.
func (lib *library) checkChain(at yamlfile.Spot, chain []string, reader string) {
	written := strings.Join(chain, ".")
	if chain[0] != "session" {
		at.Err("unknown-memory", fmt.Sprintf("%s is no value of memory", yamlfile.Shown(chain[0])), lib.nearMemory(chain[0], reader))
		return
	}
	if len(chain) < 3 {
		at.Err("unknown-memory", fmt.Sprintf("%s names no value of memory", yamlfile.Shown(written)), "write session.project.<name> or session.<skill>.<name>")
		return
	}
	lib.readable(at, chain[1]+"."+chain[2], reader)
}

// readable looks whether a skill may read a value.
func (lib *library) readable(at yamlfile.Spot, full, reader string) {
	f := lib.set.Field(full)
	namespace, _, _ := strings.Cut(full, ".")
	switch {
	case f == nil:
		at.Err("unknown-memory", fmt.Sprintf("%s is not declared", yamlfile.Shown(full)), lib.nearMemory(full, reader))
	case f.Private && namespace != reader:
		at.Err("private-memory", fmt.Sprintf("%s is private to the skill %s", yamlfile.Shown(full), namespace), "declare it under public: in the skill's memory.yml, or do not read it here")
	}
}

// nearMemory says what was probably meant. A short name stands for the skill's own
// values.
func (lib *library) nearMemory(name, reader string) string {
	var names []string
	add := func(fields []*skill.Field) {
		for _, f := range fields {
			if !strings.Contains(name, ".") && (f.Namespace == reader || f.Namespace == skill.Project) {
				names = append(names, f.Name)
			} else if strings.Contains(name, ".") {
				names = append(names, f.Full())
			}
		}
	}
	add(lib.set.Project)
	for _, k := range lib.set.Skills {
		add(k.Memory)
	}
	file := "the project's " + MemoryFile
	if namespace, _, _ := strings.Cut(name, "."); lib.set.Skill(namespace) != nil {
		file = "skills/" + namespace + "/" + MemoryFile
	} else if !strings.Contains(name, ".") && reader != "" {
		file = "skills/" + reader + "/" + MemoryFile
	}
	return didYouMean(name, names, "declare it in "+file+", or correct the name")
}

// writable finds the value that a step of a skill sets: the skill's own, else the
// project's.
func (lib *library) writable(at yamlfile.Spot, k *skill.Skill, name string) *skill.Field {
	f := lib.set.Field(lib.set.Resolve(k.ID, name))
	switch {
	case f == nil:
		at.Err("unknown-memory", fmt.Sprintf("%s is not declared", yamlfile.Shown(name)), lib.nearMemory(strings.TrimPrefix(name, "session."), k.ID))
		return nil
	case f.Namespace != k.ID && f.Namespace != skill.Project:
		at.Err("private-memory", fmt.Sprintf("only the skill %s sets %s", f.Namespace, yamlfile.Shown(f.Full())), "set a value of this skill or of the project")
		return nil
	}
	return f
}

// collected finds the value that a step asks for, which must be the skill's own.
func (c *skillReader) collected(at yamlfile.Spot, name string) string {
	f := c.lib.writable(at, c.k, name)
	switch {
	case f == nil:
		return ""
	case f.Namespace == skill.Project:
		at.Err("project-memory", fmt.Sprintf("%s is the project's, and a step collects values of its own skill only", yamlfile.Shown(f.Name)),
			"collect a value of this skill, and write it to the project's with set_memory or a tool")
		return ""
	}
	return f.Full()
}

// named looks for a response when all are read.
func (lib *library) named(at yamlfile.Spot, name string) {
	lib.later = append(lib.later, func() {
		if !lib.a.Responses.Has(name) {
			at.Err("unknown-response", fmt.Sprintf("there is no response %s", yamlfile.Shown(name)), didYouMean(name, lib.a.Responses.Names(), "write it into "+ResponsesFile))
		}
	})
}

// maxDoubts is how many warnings of a kind one paragraph is worth.
const maxDoubts = 20

// mentions looks at the names in a text that the model reads.
func (c *skillReader) mentions(text string, place func(offset int) yamlfile.Spot) {
	if strings.Contains(text, "@") {
		c.named(text, place)
	}
	if !strings.Contains(text, "session.") {
		return
	}
	for _, at := range bareSession.FindAllStringIndex(text, maxDoubts) {
		line := strings.TrimLeft(text[strings.LastIndexByte(text[:at[0]], '\n')+1:at[0]], " \t-*")
		if strings.HasPrefix(line, "if:") {
			continue // reported as such
		}
		place(at[0]).Warn("session-in-prose", "the model reads this name as text, not the value", "write @memory.<skill>.<name> for the value")
	}
}

// named looks at what begins with @.
func (c *skillReader) named(text string, place func(offset int) yamlfile.Spot) {
	for _, m := range skill.Mentions(text) {
		if c.count.mentions++; c.count.mentions > maxMentions {
			if c.count.mentions == maxMentions+1 {
				place(m.Start).Err("skill-too-complex", fmt.Sprintf("the skill's text has more than %d names that begin with @", maxMentions), "split the skill")
			}
			return
		}
		at := place(m.Start)
		switch m.Kind {
		case skill.MentionSkill:
			c.lib.later = append(c.lib.later, func() { c.lib.skillNamed(at, m.Name) })
		case skill.MentionBlock:
			c.lib.later = append(c.lib.later, func() { c.blockNamed(at, m.Name) })
		case skill.MentionTool:
			c.tool(m.Name, at, "prose")
		case skill.MentionMemory:
			if !strings.Contains(m.Name, ".") {
				at.Err("unknown-memory", "@memory."+m.Name+" names no value of memory", "write @memory.project.<name> or @memory.<skill>.<name>")
				continue
			}
			c.lib.readable(at, m.Name, c.k.ID)
		}
	}
	for _, at := range lookalike.FindAllStringSubmatchIndex(text, maxDoubts) {
		kind := text[at[2]:at[3]]
		if near := yamlfile.Nearest(kind, []string{"skill", "block", "tool", "memory"}); near != "" && near != kind {
			place(at[2]-1).Warn("unknown-mention", fmt.Sprintf("@%s. is no name that Belay knows; the model reads it as text", kind), fmt.Sprintf("did you mean @%s.?", near))
		}
	}
}

// skillNamed looks for a skill that something names, which is thereby reached.
func (lib *library) skillNamed(at yamlfile.Spot, id string) {
	k := lib.set.Skill(id)
	switch {
	case k == nil:
		var ids []string
		for _, k := range lib.set.Skills {
			ids = append(ids, k.ID)
		}
		at.Err("unknown-skill", fmt.Sprintf("there is no skill %s", yamlfile.Shown(id)), didYouMean(id, ids, "write the name of a folder in skills/"))
	case k.Disabled:
		at.Warn("unknown-skill", fmt.Sprintf("the skill %s is disabled", yamlfile.Shown(id)), "enable it, or take its name out here")
	default:
		lib.reached[id] = true
	}
}

func (c *skillReader) blockNamed(at yamlfile.Spot, id string) {
	if c.k.Block(id) != nil {
		return
	}
	at.Err("unknown-block", fmt.Sprintf("the skill has no block %s", yamlfile.Shown(id)), didYouMean(id, c.blocks(), blockHint))
}

func (c *skillReader) blocks() []string {
	var ids []string
	for _, b := range c.k.Blocks {
		ids = append(ids, b.ID)
	}
	return ids
}

// target looks for what call: or link: names: a block of the skill, a skill, or
// <skill>__<block>.
func (c *skillReader) target(at yamlfile.Spot, name, kind string) {
	if c.k.Block(name) != nil {
		return
	}
	if c.lib.set.Skill(name) != nil {
		c.lib.skillNamed(at, name)
		return
	}
	if own, ok := strings.CutPrefix(name, c.k.ID+"__"); ok && c.k.Block(own) != nil {
		return
	}
	if other, id, ok := strings.Cut(name, "__"); ok && c.lib.set.Skill(other) != nil && c.lib.set.Skill(other).Block(id) != nil {
		at.Err("unknown-block", fmt.Sprintf("%s: %s is a block of another skill", kind, yamlfile.Shown(name)), "name the skill "+other+" instead; only its own steps enter a skill's blocks")
		return
	}
	names := c.blocks()
	for _, k := range c.lib.set.Skills {
		names = append(names, k.ID)
	}
	at.Err("unknown-block", fmt.Sprintf("%s: there is no block and no skill %s", kind, yamlfile.Shown(name)), didYouMean(name, names, "write the id of a block of this skill, or of a skill"))
}

// tool notes the name of a tool. Which there are is known when Python is loaded.
func (c *skillReader) tool(name string, at yamlfile.Spot, where string) {
	c.lib.a.tools = append(c.lib.a.tools, toolName{skill: c.k, name: name, file: c.r.File(), line: at.Line, column: at.Column, where: where})
}

func (c *skillReader) checkServer(i skill.Import) {
	servers := c.lib.a.MCPServers
	if slices.ContainsFunc(servers, func(s MCPServer) bool { return s.ID == i.Server }) {
		return
	}
	var ids []string
	for _, s := range servers {
		ids = append(ids, s.ID)
	}
	c.r.At(i.Line, i.Column).Err("unknown-server", fmt.Sprintf("%s has no MCP server %s", IntegrationsFile, yamlfile.Shown(i.Server)), didYouMean(i.Server, ids, "add it to mcp_servers in "+IntegrationsFile))
}
