package plugin

import (
	"regexp"
	"strings"
	"time"

	"github.com/belay-run/belay/internal/yamlfile"
)

const (
	maxIterations = 1000
	maxWallTime   = 7 * 24 * time.Hour
	maxToolCalls  = 100_000
)

func (l *loader) agents(s *yamlfile.Section) {
	for _, sub := range s.Sections("agents") {
		from := len(*l.findings)
		a := l.agent(sub)
		if l.broken(from) && l.m.File == OtherFile {
			sub.Here().Warn("not-acted-on", "this agent is left out, since not all of it can be read", "write it as "+File+" has it if Belay is to run it")
			continue
		}
		l.m.Agents = append(l.m.Agents, a)
	}
}

func (l *loader) agent(s *yamlfile.Section) Agent {
	a := Agent{ID: s.Needed("id", "name the agent"), Limits: DefaultLimits, Place: l.place(s)}
	if a.ID != "" && !dottedID.MatchString(a.ID) {
		s.Spot("id").Err("bad-name", "this is no name of an agent", "write up to 64 letters, digits and ._-, and begin with a letter or digit")
	}
	for _, other := range l.m.Agents {
		if other.ID == a.ID && a.ID != "" {
			s.Spot("id").Err("duplicate-name", yamlfile.Shown(a.ID)+" is the id of two agents", "give each an id of its own")
		}
	}
	a.Description = strings.TrimSpace(s.Text("description"))
	a.Instructions = l.instructions(s)
	a.Folder = l.agentFolder(s)
	a.Model = s.Text("model")
	switch instructions, folder := s.Has("instructions"), s.Has("folder"); {
	case instructions == folder:
		s.Here().Err("missing-key", s.Path()+" needs exactly one of instructions and folder", "write what the agent does, or name an agent folder")
	case instructions && !s.Has("model"):
		s.Here().Err("missing-key", s.Full("model")+" is missing", "write the alias of the model that the agent asks")
	}
	for _, n := range s.Texts("tools") {
		if !toolPattern.MatchString(n.Text) {
			l.r.On(n).Err("bad-pattern", "this names no function", "write <tool>.<function>, or <tool>.* for all of a tool's")
			continue
		}
		a.Tools = append(a.Tools, n.Text)
	}
	if limits := s.Sub("limits"); limits != nil {
		a.Limits.Iterations = limits.Count("iterations", 1, maxIterations, DefaultLimits.Iterations)
		a.Limits.WallTime = limits.Duration("wall_time", maxWallTime, DefaultLimits.WallTime, "bad-value")
		a.Limits.ToolCalls = limits.Count("tool_calls", 0, maxToolCalls, DefaultLimits.ToolCalls)
		limits.Close()
	}
	s.Close()
	return a
}

var toolPattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}\.(\*|[A-Za-z0-9_./-]{1,128})$`)

// instructions reads a text, or the file that {file: PATH} names.
func (l *loader) instructions(s *yamlfile.Section) string {
	f := s.Find("instructions")
	if f == nil || f.Value.Kind != yamlfile.Mapping {
		return s.Text("instructions")
	}
	sub := s.Sub("instructions")
	name := sub.Needed("file", "name a text file of the plugin's folder")
	sub.Close()
	if name == "" {
		return ""
	}
	return l.f.prose(name, sub.Spot("file"))
}

func (l *loader) agentFolder(s *yamlfile.Section) string {
	name := s.Text("folder")
	if name == "" {
		return ""
	}
	at := s.Spot("folder")
	clean, ok := l.f.local(name, at)
	if !ok {
		return ""
	}
	if info, err := l.f.root.Stat(clean); err != nil || !info.IsDir() {
		at.Err("missing-file", "this names no folder", "write the agent's folder, or correct the path; it is relative to the plugin's folder")
		return ""
	}
	if info, err := l.f.root.Stat(clean + "/agent.yml"); err != nil || !info.Mode().IsRegular() {
		at.Err("missing-file", "this folder has no agent.yml, so it is no agent's", "name a folder that holds an agent.yml")
	}
	return clean
}
