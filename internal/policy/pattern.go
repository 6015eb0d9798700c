package policy

import (
	"regexp"
	"slices"
	"strings"
)

// pattern is a name in which * stands for any characters. In a tool's name the
// tool and the function match each for itself, so that acme_* never reaches over
// the dot.
type pattern struct {
	text  string
	parts []glob
}

type glob []string // the pieces between the stars

func newGlob(text string) glob { return strings.Split(text, "*") }

func (g glob) match(name string) bool {
	if len(g) == 1 {
		return g[0] == name
	}
	first, last := g[0], g[len(g)-1]
	if len(name) < len(first)+len(last) || !strings.HasPrefix(name, first) || !strings.HasSuffix(name, last) {
		return false
	}
	name = name[len(first) : len(name)-len(last)]
	for _, piece := range g[1 : len(g)-1] {
		i := strings.Index(name, piece)
		if i < 0 {
			return false
		}
		name = name[i+len(piece):]
	}
	return true
}

var (
	toolPattern  = regexp.MustCompile(`^[A-Za-z0-9_*-]+\.[A-Za-z0-9_*./-]+$`)
	agentPattern = regexp.MustCompile(`^[A-Za-z0-9_.*-]+$`)
)

// forTools reads a pattern of full function names, <tool>.<function>; "*" alone is
// every function.
func forTools(text string) (pattern, bool) {
	if text == "*" {
		return pattern{text, []glob{newGlob("*"), newGlob("*")}}, true
	}
	if !toolPattern.MatchString(text) {
		return pattern{}, false
	}
	tool, function, _ := strings.Cut(text, ".")
	return pattern{text, []glob{newGlob(tool), newGlob(function)}}, true
}

func forAgents(text string) (pattern, bool) {
	return pattern{text, []glob{newGlob(text)}}, agentPattern.MatchString(text)
}

func (p pattern) tool(name string) bool {
	tool, function, ok := strings.Cut(name, ".")
	return ok && p.parts[0].match(tool) && p.parts[1].match(function)
}

func (p pattern) agent(name string) bool { return p.parts[0].match(name) }

func anyTool(ps []pattern, name string) bool {
	return slices.ContainsFunc(ps, func(p pattern) bool { return p.tool(name) })
}

func anyAgent(ps []pattern, name string) bool {
	return slices.ContainsFunc(ps, func(p pattern) bool { return p.agent(name) })
}

// texts writes patterns as they stand in the file.
func texts(ps []pattern) string {
	var out []string
	for _, p := range ps {
		out = append(out, p.text)
	}
	return strings.Join(out, ", ")
}
