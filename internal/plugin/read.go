package plugin

import (
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/policy"
	"github.com/belay-run/belay/internal/yamlfile"
)

// Read reads and checks a plugin's manifest. It never panics. The manifest holds
// what could be read and is never nil; one whose findings have an error must not be
// used.
func Read(dir string) (*Manifest, []finding.Finding) {
	m := &Manifest{Dir: dir}
	var findings []finding.Finding
	f := open(dir, &findings)
	if f == nil {
		return m, findings
	}
	defer f.close()
	m.Dir = f.path
	if m.File = f.manifest(&findings); m.File == "" {
		return m, findings
	}
	r := yamlfile.NewReader(m.File, &findings)
	data, ok := f.read(m.File, r.Whole())
	if !ok {
		return m, finding.Clean(findings)
	}
	node := r.Parse(data)
	if node == nil && len(findings) == 0 {
		r.Whole().Err("empty-file", "nothing is in the file", "write name, tools and hooks")
	}
	l := &loader{m: m, f: f, r: r, findings: &findings, text: data}
	if top := r.Open(node, ""); top != nil {
		l.manifest(top)
	}
	return m, finding.Clean(findings)
}

// loader reads one manifest.
type loader struct {
	m        *Manifest
	f        *folder
	r        *yamlfile.Reader
	findings *[]finding.Finding
	text     []byte
}

var (
	plainID  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`)
	dottedID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
	variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)
)

func (l *loader) manifest(s *yamlfile.Section) {
	m := l.m
	m.Name = s.Needed("name", "name the plugin, such as acme-policy")
	if m.Name != "" && !dottedID.MatchString(m.Name) {
		s.Spot("name").Err("bad-name", "this is no name of a plugin", "write up to 64 letters, digits and ._-, and begin with a letter or digit")
	}
	m.Version = l.version(s)
	m.Description = strings.TrimSpace(s.Text("description"))
	for _, sub := range s.Sections("tools") {
		l.tool(sub)
	}
	for _, sub := range s.Sections("hooks") {
		l.hook(sub)
	}
	s.Empty()
	// Of another platform's manifest, tools and hooks are read as strictly as ours.
	// What else it has may mean other things there: what cannot be used is left out
	// with a warning.
	l.tolerant(func() { l.agents(s) })
	l.tolerant(func() { l.policy(s) })
	l.tolerant(func() { l.tests(s) })
	if len(m.Tools) == 0 && len(m.Agents) == 0 && len(m.Hooks) == 0 && m.Policy == nil && !finding.HasErrors(*l.findings) {
		l.r.Whole().Warn("empty-plugin", "the plugin brings nothing: no tools, agents, hooks or policy", "write tools and hooks")
	}
	if m.File == File {
		s.Close()
		return
	}
	l.tolerant(s.Empty)
	for _, f := range s.Rest() {
		hint := "nothing needs to change; the plugin runs without it"
		if near := yamlfile.Nearest(f.Name, s.Known()); near != "" {
			hint = fmt.Sprintf("did you mean %q? Otherwise nothing needs to change", near)
		}
		l.r.Key(f).Warn("not-acted-on", "the section "+yamlfile.Shown(f.Name)+" is not acted on", hint)
	}
}

// tolerant turns the errors of a section of another platform's manifest into
// warnings.
func (l *loader) tolerant(read func()) {
	from := len(*l.findings)
	read()
	if l.m.File == File {
		return
	}
	for i := from; i < len(*l.findings); i++ {
		(*l.findings)[i].Severity = finding.Warning
	}
}

// broken says that errors, or what was turned into warnings, came since from.
func (l *loader) broken(from int) bool { return finding.HasErrors((*l.findings)[from:]) }

// version reads a version, which may look like a number.
func (l *loader) version(s *yamlfile.Section) string {
	if f := s.Find("version"); f != nil && (f.Value.Kind == yamlfile.Number || f.Value.Kind == yamlfile.Whole) {
		return f.Value.Text
	}
	return strings.TrimSpace(s.Text("version"))
}

func (l *loader) place(s *yamlfile.Section) Place {
	return Place{File: l.r.File(), Line: s.Node.Line, Column: s.Node.Column}
}

func (l *loader) tool(s *yamlfile.Section) {
	t := Tool{ID: s.Needed("id", "name the tool; its functions are called <id>.<function>"), Place: l.place(s)}
	switch {
	case t.ID == "":
	case !plainID.MatchString(t.ID):
		s.Spot("id").Err("bad-name", "this is no id of a tool", "write up to 64 letters, digits, _ and -; a dot would part the tool from its function")
	case l.m.Tool(t.ID) != nil:
		s.Spot("id").Err("duplicate-name", yamlfile.Shown(t.ID)+" is the id of two tools", "give each an id of its own")
	}
	for _, n := range s.Texts("mcp") {
		if yamlfile.SecretLike(n.Text) {
			l.r.On(n).Err("key-in-file", "what looks like a key is written in the file", "pass it in a variable, and write the variable's name under env")
		}
		t.Command = append(t.Command, n.Text)
	}
	t.URL = l.url(s)
	t.Env = l.env(s)
	flow := s.Has("flow")
	if count(s.Has("mcp"), s.Has("url"), flow) != 1 {
		s.Here().Err("missing-key", s.Path()+" needs exactly one of mcp and url", `write mcp: ["program", "argument"] for a program, or url: for a server elsewhere`)
	}
	if flow {
		l.tolerant(func() {
			s.Spot("flow").Err("flow-tool", "flow tools are not run by this version, so this tool is left out", "write the tool as an MCP server")
		})
	}
	if t.URL != "" && len(t.Env) > 0 {
		s.Spot("env").Err("bad-value", "a remote tool has no environment", "delete env")
	}
	if model := s.Sub("uses_model"); model != nil {
		t.ModelPurpose = strings.TrimSpace(model.Needed("purpose", "say in one sentence what the model is asked for; an admin reads it before accepting"))
		model.Close()
		if t.URL != "" || flow {
			s.Spot("uses_model").Err("remote-model", "a remote tool or a flow tool cannot use a model: its calls do not run here, so the key would leave this machine", "delete uses_model, or run the tool here with mcp:")
		}
	}
	s.Close()
	if !flow {
		l.m.Tools = append(l.m.Tools, t)
	}
}

func count(bs ...bool) (n int) {
	for _, b := range bs {
		if b {
			n++
		}
	}
	return n
}

func (l *loader) url(s *yamlfile.Section) string {
	text := s.Text("url")
	if text == "" {
		return ""
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		s.Spot("url").Err("bad-url", "this is no address of an MCP server", "write https://host/path")
	case u.User != nil || yamlfile.SecretLike(text):
		s.Spot("url").Err("key-in-file", "what looks like a key or password is written in the address", "do not write keys in files")
	case u.Scheme == "http" && !loopback(u.Hostname()):
		s.Spot("url").Warn("plain-http", "calls to this address are not encrypted", "write https://")
	}
	return text
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func (l *loader) env(s *yamlfile.Section) []string {
	if f := s.Find("env"); f != nil && f.Value.Kind == yamlfile.Mapping {
		l.r.On(f.Value).Err("wrong-type", s.Full("env")+" must be a list of names, not a mapping", "write only the variables' names; their values come from where Belay runs")
		return nil
	}
	var out []string
	for _, n := range s.Texts("env") {
		switch {
		case yamlfile.SecretLike(n.Text) || strings.Contains(n.Text, "="):
			l.r.On(n).Err("key-in-file", "a value is written in the file", "write only the variable's name; its value comes from where Belay runs")
		case !variable.MatchString(n.Text):
			l.r.On(n).Err("bad-name", "this is no name of a variable", "write letters, digits and _")
		case !slices.Contains(out, n.Text):
			out = append(out, n.Text)
		}
	}
	return out
}

func (l *loader) policy(s *yamlfile.Section) {
	f := s.Find("policy")
	if f == nil {
		return
	}
	from := len(*l.findings)
	var p *policy.Policy
	var found []finding.Finding
	r := l.r
	if f.Value.Kind == yamlfile.Text {
		name, ok := l.f.local(f.Value.Text, l.r.On(f.Value))
		if !ok {
			return
		}
		data, ok := l.f.read(name, l.r.On(f.Value))
		if !ok {
			return
		}
		r = yamlfile.NewReader(name, l.findings)
		p, found = policy.Parse(name, data)
	} else {
		p, found = policy.ParseNode(l.r, f.Value, "policy", l.text, nil)
	}
	*l.findings = append(*l.findings, found...)
	for _, part := range p.Loosening() {
		r.At(part.Line, part.Column).Err("policy-loosens", "a plugin's policy only restricts, and this would allow: "+part.Name, "delete it; the tenant's own policy says what is allowed")
	}
	if l.broken(from) && l.m.File == OtherFile {
		l.r.Key(f).Warn("not-acted-on", "the section \"policy\" is not acted on", "nothing needs to change; the plugin runs without it")
		return
	}
	l.m.Policy = p
}

func (l *loader) tests(s *yamlfile.Section) {
	for _, n := range s.Texts("tests") {
		for _, file := range l.f.tests(n.Text, l.r.On(n)) {
			if !slices.Contains(l.m.Tests, file) {
				l.m.Tests = append(l.m.Tests, file)
			}
		}
	}
}

func numbered(name string, n int) string { return name + "#" + strconv.Itoa(n) }
