package agent

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/skill"
	"github.com/belay-run/belay/internal/yamlfile"
)

// Tool is a tool that the agent's Python has.
type Tool struct {
	Name string
	File string // relative to the agent's folder: skills/<id>/… is the skill's own
}

// toolName is a place where a skill names a tool.
type toolName struct {
	skill        *skill.Skill
	name         string
	file         string
	line, column int
	where        string // tool_constraints, execute_tool or prose
}

// OwnerOf returns the id of the skill that a file belongs to, "" for the project.
func OwnerOf(file string) string {
	rest, ok := strings.CutPrefix(path.Clean(file), "skills/")
	if !ok {
		return ""
	}
	id, _, _ := strings.Cut(rest, "/")
	return id
}

// frameworkTools are those that the model may be offered beside Python's and MCP's.
var frameworkTools = []string{"activate", "complete_skill", "cancel_skill", "cannot_help", "set_fields", "resolve_tool_confirmation", "search_knowledge", "listen", "hangup"}

// afterSetting begins the name of a tool that runs after a memory value was set.
const afterSetting = "run_after_setting_"

// CheckTools looks at what the skills of an agent say of tools, which is known when
// its Python is loaded.
func CheckTools(a *Agent, tools []Tool) []finding.Finding {
	if a.Skills == nil {
		return nil
	}
	c := &toolCheck{own: map[string]map[string]bool{}, shared: map[string]bool{}}
	for _, t := range tools {
		if id := OwnerOf(t.File); id == "" {
			c.shared[t.Name] = true
		} else {
			if c.own[id] == nil {
				c.own[id] = map[string]bool{}
			}
			c.own[id][t.Name] = true
		}
	}
	for _, k := range a.Skills.Skills {
		if !k.Builtin {
			c.imports(k)
		}
	}
	for _, n := range a.tools {
		if !n.skill.Builtin {
			c.name(n)
		}
	}
	for _, t := range tools {
		c.fieldTool(a.Skills, t)
	}
	return finding.Clean(c.found)
}

type toolCheck struct {
	own    map[string]map[string]bool // by the skill's id
	shared map[string]bool
	found  []finding.Finding
}

func (c *toolCheck) at(file string, line, column int) yamlfile.Spot {
	return yamlfile.NewReader(file, &c.found).At(line, column)
}

// imports looks at import_tools.
func (c *toolCheck) imports(k *skill.Skill) {
	from := map[string]string{} // bare name → import
	for _, i := range k.Imports {
		at := c.at(k.File, i.Line, i.Column)
		switch {
		case i.Server == "" && c.own[k.ID][i.Tool]:
			at.Warn("local-import", fmt.Sprintf("%s is a tool of the skill itself", i.Tool), "take it out of import_tools: a skill's own tools need no import")
		case i.Server == "" && !c.shared[i.Tool]:
			at.Err("unknown-tool", fmt.Sprintf("there is no shared tool %s", yamlfile.Shown(i.Tool)), c.nearTool(i.Tool, c.shared, "write it in tools/, or correct the name"))
		case i.Server != "" && c.own[k.ID][i.Tool]:
			at.Err("tool-collision", fmt.Sprintf("the skill has a tool %s itself", i.Tool), "rename its own tool")
		}
		if was, ok := from[i.Tool]; ok {
			at.Err("tool-collision", fmt.Sprintf("%s and %s have the same name", was, i.Name()), "import one of the two")
		}
		from[i.Tool] = i.Name()
		if i.Server != "" && slices.Contains(frameworkTools, i.Tool) {
			at.Err("tool-collision", fmt.Sprintf("%s is a name of the framework's", i.Tool), "do not import it")
		}
	}
}

// name looks at one place where a skill names a tool.
func (c *toolCheck) name(n toolName) {
	k, own := n.skill, c.own[n.skill.ID]
	if own[n.name] || slices.ContainsFunc(k.Imports, func(i skill.Import) bool { return i.Tool == n.name }) {
		return
	}
	if n.where == "prose" && slices.Contains(frameworkTools, n.name) {
		return
	}
	at := c.at(n.file, n.line, n.column)
	if c.shared[n.name] {
		at.Err("tool-not-imported", fmt.Sprintf("%s is a shared tool that the skill does not import", n.name), "add it to import_tools")
		return
	}
	known := map[string]bool{}
	for name := range own {
		known[name] = true
	}
	for _, i := range k.Imports {
		known[i.Tool] = true
	}
	at.Err("unknown-tool", fmt.Sprintf("the skill has no tool %s", yamlfile.Shown(n.name)), c.nearTool(n.name, known, "write it in the skill's tools.py, or add it to import_tools"))
}

// fieldTool looks at a tool whose name says that it belongs to a memory value.
func (c *toolCheck) fieldTool(set *skill.Set, t Tool) {
	k := set.Skill(OwnerOf(t.File))
	name, ok := strings.CutPrefix(t.Name, afterSetting)
	if ok && k != nil && set.Field(k.ID+"."+name) == nil {
		c.at(t.File, 0, 0).Warn("unknown-memory", fmt.Sprintf("%s belongs to a value %s, which the skill does not declare", t.Name, name), "declare it in the skill's "+MemoryFile+", or rename the tool")
	}
}

func (c *toolCheck) nearTool(name string, among map[string]bool, otherwise string) string {
	var names []string
	for n := range among {
		names = append(names, n)
	}
	slices.SortFunc(names, cmp.Compare[string])
	return didYouMean(name, names, otherwise)
}
