package plugin

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/policy"
	"github.com/belay-run/belay/internal/yamlfile"
)

// Function is one of the functions that a tool's server lists.
type Function struct {
	Name        string
	Annotations policy.Annotations
	InputSchema json.RawMessage // a JSON schema; nil when it has none
}

// Lint checks a manifest against what its servers list: functions by the tool's
// id. A tool that is not in the map could not be asked; who asks reports that, and
// what depends on it is not checked. It finds nothing that [Read] finds.
func Lint(m *Manifest, functions map[string][]Function) []finding.Finding {
	var findings []finding.Finding
	l := &linter{m: m, functions: functions, findings: &findings, asked: map[string]bool{}}
	for i := range m.Hooks {
		l.hook(&m.Hooks[i])
	}
	for i := range m.Tools {
		l.tool(&m.Tools[i])
	}
	for i := range m.Agents {
		l.agent(&m.Agents[i])
	}
	return finding.Clean(findings)
}

type linter struct {
	m         *Manifest
	functions map[string][]Function
	findings  *[]finding.Finding
	asked     map[string]bool // full names of functions that are hooks
}

func (l *linter) at(p Place) yamlfile.Spot {
	return yamlfile.NewReader(p.File, l.findings).At(p.Line, p.Column)
}

// function finds a function; listed says that its tool was asked at all.
func (l *linter) function(tool, name string) (f *Function, listed bool) {
	all, listed := l.functions[tool]
	if i := slices.IndexFunc(all, func(f Function) bool { return f.Name == name }); i >= 0 {
		return &all[i], true
	}
	return nil, listed
}

func (l *linter) names(tool string) (out []string) {
	for _, f := range l.functions[tool] {
		out = append(out, f.Name)
	}
	return out
}

// match looks whether what a hook watches is there, as far as it is the plugin's own:
// names are exact, and a hook with a misspelt one is never asked. Other names are of
// other plugins' tools and agents, which may be there or not.
func (l *linter) match(h *Hook) {
	var tools, agents []string
	for i := range l.m.Tools {
		tools = append(tools, l.m.Tools[i].ID)
	}
	for i := range l.m.Agents {
		agents = append(agents, l.m.Agents[i].ID)
	}
	for _, full := range h.Match.Tools {
		tool, name, _ := strings.Cut(full, ".")
		f, listed := l.function(tool, name)
		own := slices.Contains(tools, tool) || slices.Contains(agents, tool) // an agent folder's tools go by the agent's name
		switch {
		case listed && f == nil:
			l.at(h.Place).Err("unknown-function", fmt.Sprintf("match names %s, and the tool %s has no such function: the hook is never asked about it", yamlfile.Shown(full), tool), meant(name, l.names(tool)))
		case !own && yamlfile.Nearest(tool, tools) != "":
			l.at(h.Place).Warn("unknown-tool", "match names "+yamlfile.Shown(full)+", and the plugin has no tool "+yamlfile.Shown(tool), meant(tool, tools))
		}
	}
	for _, name := range h.Match.Agents {
		if !slices.Contains(agents, name) && yamlfile.Nearest(name, agents) != "" {
			l.at(h.Place).Warn("unknown-agent", "match names the agent "+yamlfile.Shown(name)+", which the plugin does not have", meant(name, agents))
		}
	}
}

func (l *linter) hook(h *Hook) {
	l.match(h)
	f, listed := l.function(h.Tool, h.Function)
	if !listed {
		return
	}
	at := l.at(h.Place)
	if h.callAt != (Place{}) {
		at = l.at(h.callAt)
	}
	if f == nil {
		at.Err("unknown-function", fmt.Sprintf("the tool %s has no function %s", h.Tool, yamlfile.Shown(h.Function)), meant(h.Function, l.names(h.Tool)))
		return
	}
	if wrong := wrongSignature(f.InputSchema); wrong != "" {
		at.Err("hook-signature", h.Call()+" cannot be asked: "+wrong, "let it take one argument, event, which is an object, as def check(event: dict) -> dict does")
	}
	if l.asked[h.Call()] {
		return
	}
	l.asked[h.Call()] = true
	switch add := missing(f.Annotations); {
	case f.Annotations.Harmless():
	case !f.Annotations.Declared():
		at.Warn("no-annotations", h.Call()+" declares nothing, so a person is asked before it is, in every job", "if it only reads and stays in its closed world, add "+add)
	case add != "":
		at.Warn("no-annotations", h.Call()+" does not declare all that it needs, so the tenant's policy may have a person asked before it is", "if it only reads and stays in its closed world, add "+add)
	default:
		at.Warn("hook-acts", h.Call()+" declares that it writes or reaches the open world, so the tenant's policy may have a person asked before it is", "if that is not so, correct its annotations: "+harmless)
	}
}

const harmless = "annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False), which is readOnlyHint: true and openWorldHint: false"

// missing names the annotations to add; "" when none is missing.
func missing(a policy.Annotations) string {
	switch {
	case a.ReadOnly == nil && a.OpenWorld == nil:
		return harmless
	case a.ReadOnly == nil:
		return "read_only_hint=True (readOnlyHint: true)"
	case a.OpenWorld == nil && *a.ReadOnly:
		return "open_world_hint=False (openWorldHint: false)"
	}
	return ""
}

// wrongSignature says why a function with that schema cannot be asked as a hook.
func wrongSignature(schema json.RawMessage) string {
	if len(schema) == 0 {
		return "" // it says nothing, so it may take anything
	}
	var s struct {
		Properties map[string]json.RawMessage `json:"properties"`
		Required   []string                   `json:"required"`
	}
	if err := json.Unmarshal(schema, &s); err != nil {
		return "its input schema cannot be read"
	}
	event, ok := s.Properties["event"]
	if !ok {
		return "it has no argument event"
	}
	for _, name := range s.Required {
		if name != "event" {
			return "it needs another argument than event: " + yamlfile.Shown(name)
		}
	}
	if !takesObject(event) {
		return "its argument event takes no object"
	}
	return ""
}

// takesObject says whether a schema's type, if it gives any, admits an object.
func takesObject(schema json.RawMessage) bool {
	var s struct {
		Type json.RawMessage `json:"type"`
	}
	if json.Unmarshal(schema, &s) != nil || len(s.Type) == 0 {
		return true // true, or a schema without a type, admits anything
	}
	var one string
	var several []string
	if json.Unmarshal(s.Type, &one) == nil {
		return one == "object"
	}
	return json.Unmarshal(s.Type, &several) != nil || slices.Contains(several, "object")
}

func (l *linter) tool(t *Tool) {
	all, listed := l.functions[t.ID]
	if !listed {
		return
	}
	if len(all) == 0 {
		l.at(t.Place).Warn("no-functions", "the server of "+t.ID+" lists no functions", "let it offer some, or delete the tool")
	}
	var silent []string
	for _, f := range all {
		if _, _, ok := fullName(t.ID + "." + f.Name); !ok {
			l.at(t.Place).Err("bad-function", "the server of "+t.ID+" lists a function whose name cannot be used: "+yamlfile.Shown(f.Name), "name it with up to 128 letters, digits and _./-")
		}
		if !f.Annotations.Declared() && !l.asked[t.ID+"."+f.Name] {
			silent = append(silent, f.Name)
		}
	}
	if len(silent) > 0 {
		slices.Sort(silent)
		l.at(t.Place).Warn("no-annotations", "these functions of "+t.ID+" declare nothing, so a person is asked before each call unless the tenant's policy allows it: "+few(silent), "say what they do: those that only read and stay in their closed world with "+harmless)
	}
}

// few lists names, not all of them when they are many.
func few(names []string) string {
	const most = 10
	var shown []string
	for i, n := range names {
		if i == most {
			shown = append(shown, fmt.Sprintf("and %d more", len(names)-most))
			break
		}
		shown = append(shown, yamlfile.Shown(n))
	}
	return strings.Join(shown, ", ")
}

func (l *linter) agent(a *Agent) {
	var ids []string
	for _, t := range l.m.Tools {
		ids = append(ids, t.ID)
	}
	for _, p := range a.Tools {
		tool, function, _ := strings.Cut(p, ".")
		if l.m.Tool(tool) == nil {
			if near := yamlfile.Nearest(tool, ids); near != "" {
				l.at(a.Place).Warn("unknown-tool", "the agent uses "+p+", whose tool is not this plugin's", yamlfile.Meant(tool, ids)+" If it is another plugin's, nothing needs to change")
			}
			continue
		}
		if f, listed := l.function(tool, function); function != "*" && listed && f == nil {
			l.at(a.Place).Err("unknown-function", fmt.Sprintf("the agent uses %s, and the tool %s has no such function", p, tool), meant(function, l.names(tool)))
		}
	}
}

// meant is the hint for a function that is not there.
func meant(name string, names []string) string {
	if near := yamlfile.Nearest(name, names); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	if len(names) == 0 {
		return "the server lists no functions"
	}
	sorted := slices.Sorted(slices.Values(names))
	return "the functions are " + few(sorted)
}
