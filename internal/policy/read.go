package policy

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/yamlfile"
)

const (
	maxFile = 1 << 20 // bytes of a policy
	maxPart = 2000    // rules, limits or sequences of one policy
)

// Read reads a policy's file and compiles it. The policy is never nil; one whose
// findings have an error refuses every call.
func Read(path string) (*Policy, []finding.Finding) {
	data, err := readFile(path)
	if err == nil {
		return Parse(path, data)
	}
	var findings []finding.Finding
	yamlfile.NewReader(filepath.ToSlash(path), &findings).Whole().
		Err("unreadable-file", "the policy cannot be read: "+cause(err), "check the path and its permissions; until then every call is refused")
	return &Policy{}, findings
}

var (
	errRegular = errors.New("it is no regular file")
	errLarge   = fmt.Errorf("it is larger than %d MiB", maxFile>>20)
)

func readFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe must not block
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // opened for reading only
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errRegular
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = errLarge
	}
	return data, err
}

// cause is the system's word for an error, without paths.
func cause(err error) string {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err.Error()
	}
	return err.Error()
}

// Parse reads a policy's text; file is its name in findings. It is what [Read] does
// with a file.
func Parse(file string, data []byte) (*Policy, []finding.Finding) {
	var findings []finding.Finding
	r := yamlfile.NewReader(filepath.ToSlash(file), &findings)
	if len(data) > maxFile {
		r.Whole().Err("unreadable-file", "the policy cannot be read: "+errLarge.Error(), "split it, or take out what is not needed")
		return &Policy{}, findings
	}
	top := r.Parse(data)
	if top == nil && len(findings) == 0 {
		r.Whole().Err("empty-file", "nothing is in the file", "write rules, limits, sequences, floors or defaults, or delete the file")
	}
	return ParseNode(r, top, "", data, findings)
}

// ParseNode reads a policy that stands under the key path of a larger file; text is
// what its version is made of. The findings before it are returned too, and one
// that is an error makes the policy refuse.
func ParseNode(r *yamlfile.Reader, n *yamlfile.Node, path string, text []byte, before []finding.Finding) (*Policy, []finding.Finding) {
	findings := slices.Clone(before)
	p := &Policy{defaults: standard}
	l := &loader{r: yamlfile.NewReader(r.File(), &findings), p: p, names: map[string]bool{}}
	l.policy(l.r.Open(n, path))
	findings = finding.Clean(findings)
	if n == nil || finding.HasErrors(findings) {
		return &Policy{}, findings
	}
	p.usable, p.version = true, digest(text)
	return p, findings
}

var plainName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9 ._-]{0,79}$`)

// loader reads one policy.
type loader struct {
	r     *yamlfile.Reader
	p     *Policy
	names map[string]bool
}

func (l *loader) policy(s *yamlfile.Section) {
	if s == nil {
		return
	}
	_ = s.Text("description") // for people
	for _, sub := range l.sections(s, "rules") {
		l.rule(sub)
	}
	for _, sub := range l.sections(s, "limits") {
		l.limit(sub)
	}
	for _, sub := range l.sections(s, "sequences") {
		l.sequence(sub)
	}
	l.floors(s.Sub("floors"))
	l.defaults(s.Sub("defaults"))
	s.Close()
}

func (l *loader) sections(s *yamlfile.Section, key string) []*yamlfile.Section {
	subs := s.Sections(key)
	if len(subs) > maxPart {
		s.Spot(key).Err("bad-value", fmt.Sprintf("%s has more than %d entries", s.Full(key), maxPart), "take out what is not needed")
		return nil
	}
	return subs
}

// scope reads what all parts have. Without a verdict the fallback counts; a rule
// has none.
func (l *loader) scope(s *yamlfile.Section, fallback string, words ...string) scope {
	path := s.Path()
	sc := scope{name: path[strings.LastIndex(path, ".")+1:], reason: strings.TrimSpace(s.Text("reason"))}
	if name := s.Text("name"); name != "" {
		if l.names[name] {
			s.Spot("name").Err("duplicate-name", yamlfile.Shown(name)+" is the name of two parts", "give each a name of its own, since verdicts say it")
		}
		if l.names[name] = true; !plainName.MatchString(name) {
			s.Spot("name").Err("bad-value", "this is no name", "write up to 80 letters, digits, spaces and ._- and begin with a letter or digit")
		}
		sc.name += " " + name
	}
	sc.tools = l.tools(s, "tools")
	if !s.Has("tools") {
		s.Here().Err("missing-key", s.Full("tools")+" is missing", `name functions as <tool>.<function>, with * for any; ["*"] is every one`)
	}
	for _, n := range s.Texts("agents") {
		p, ok := forAgents(n.Text)
		if !ok {
			l.r.On(n).Err("bad-pattern", "this is no name of an agent", "write a name, with * for any characters")
			continue
		}
		sc.agents = append(sc.agents, p)
	}
	word := s.OneOf("verdict", words...)
	if !s.Has("verdict") {
		word = fallback
		if fallback == "" {
			s.Here().Err("missing-key", s.Full("verdict")+" is missing", "write refuse, require_approval or allow")
		}
	}
	_ = sc.effect.UnmarshalText([]byte(word)) // another word was reported, and refuses
	sc.approvers = Approver
	if role := s.OneOf("approvers", Approver, Admin); role != "" {
		sc.approvers = role
		if sc.effect != RequireApproval {
			s.Spot("approvers").Err("bad-value", s.Full("approvers")+" means something only with verdict: require_approval", "delete it, or change the verdict")
		}
	}
	return sc
}

func (l *loader) loosening(name string, s *yamlfile.Section) {
	l.p.loosening = append(l.p.loosening, Part{name, s.Node.Line, s.Node.Column})
}

func (l *loader) tools(s *yamlfile.Section, key string) []pattern {
	var out []pattern
	for _, n := range s.Texts(key) {
		p, ok := forTools(n.Text)
		if !ok {
			l.r.On(n).Err("bad-pattern", "this is no pattern of functions", "write <tool>.<function>, <tool>.*, or \"*\" for every function")
			continue
		}
		out = append(out, p)
	}
	return out
}

func (l *loader) rule(s *yamlfile.Section) {
	r := rule{scope: l.scope(s, "", "refuse", "require_approval", "allow")}
	if source := s.Text("when"); source != "" {
		c, err := compile(source)
		var bad badCondition
		if errors.As(err, &bad) {
			s.Spot("when").Err("bad-condition", bad.message, bad.hint)
		}
		r.when = c
	}
	if r.effect == Allow && !s.Has("when") && r.agents == nil && slices.ContainsFunc(r.tools, func(p pattern) bool { return p.text == "*" || p.text == "*.*" }) {
		s.Here().Warn("allows-all", "this rule allows every call of every agent", "name tools, agents or a condition")
	}
	if r.effect == Allow {
		l.loosening(r.name, s)
	}
	s.Close()
	l.p.rules = append(l.p.rules, r)
}

func (l *loader) limit(s *yamlfile.Section) {
	x := limit{scope: l.scope(s, "refuse", "refuse", "require_approval")}
	if !s.Has("calls") {
		s.Here().Err("missing-key", s.Full("calls")+" is missing", "write how many calls a job may make")
	}
	x.calls = s.Count("calls", 0, 1_000_000, 0)
	s.Close()
	l.p.limits = append(l.p.limits, x)
}

func (l *loader) sequence(s *yamlfile.Section) {
	q := sequence{scope: l.scope(s, "refuse", "refuse", "require_approval")}
	q.after, q.never = l.tools(s, "after"), l.tools(s, "never_after")
	if s.Has("after") == s.Has("never_after") {
		s.Here().Err("missing-key", s.Path()+" needs exactly one of after and never_after", "name the functions that must, or must not, have been called before")
	}
	s.Close()
	l.p.sequences = append(l.p.sequences, q)
}

func (l *loader) floors(s *yamlfile.Section) {
	if s == nil {
		return
	}
	for _, ability := range sortedNames(abilities) {
		if word := s.OneOf(ability, "refuse", "require_approval"); word != "" {
			f := floor{ability: ability}
			_ = f.effect.UnmarshalText([]byte(word)) // it is one of the two
			l.p.floors = append(l.p.floors, f)
		}
	}
	s.Close()
}

func (l *loader) defaults(s *yamlfile.Section) {
	if s == nil {
		return
	}
	l.loosening("defaults", s)
	read := func(key string, to *Effect, words ...string) {
		if word := s.OneOf(key, words...); word != "" {
			_ = to.UnmarshalText([]byte(word)) // it is one of the words
		}
	}
	d := &l.p.defaults
	read("read_only", &d.readOnly, "refuse", "require_approval", "allow")
	read("other", &d.other, "refuse", "require_approval", "allow")
	if n := s.Get("unannotated", yamlfile.Text, "write refuse or require_approval"); n != nil && n.Text == "allow" {
		l.r.On(n).Err("bad-value", "a function that declares nothing is never allowed by default", "write a rule that allows it by its name")
	} else {
		read("unannotated", &d.unannotated, "refuse", "require_approval")
	}
	s.Close()
}

// Part is a part of a policy with its place in the file.
type Part struct {
	Name         string
	Line, Column int
}

// Loosening returns the parts of the policy that do not count in an [Addition]:
// the rules that allow, and the defaults.
func (p *Policy) Loosening() []Part { return slices.Clone(p.loosening) }

// Rules describes every finding of this package, sorted by id.
func Rules() []finding.Rule {
	rules := append(yamlfile.Rules(),
		finding.Rule{ID: "allows-all", Summary: "A rule allows every call of every agent.", Help: "Then the policy guards nothing but what its other parts refuse. Name tools, agents or a condition."},
		finding.Rule{ID: "bad-condition", Summary: "A condition does not compile.", Help: "Conditions are CEL over tool, arguments, agent, job, origin and calls. They cannot make maps or use time zones, which could differ from run to run."},
		finding.Rule{ID: "bad-pattern", Summary: "A pattern names no functions or agents.", Help: "Functions are written <tool>.<function>, with * for any characters on either side of the dot; \"*\" is every one."},
		finding.Rule{ID: "duplicate-name", Summary: "Two parts have one name.", Help: "Verdicts and records say the name. Give each its own."},
		finding.Rule{ID: "empty-file", Summary: "A file has nothing in it.", Help: "Write its keys, or delete it."},
		finding.Rule{ID: "unreadable-file", Summary: "A file cannot be read, is no regular file, or is too large.", Help: "Check the path, its permissions and its size. A policy that cannot be read refuses every call."},
	)
	slices.SortFunc(rules, func(a, b finding.Rule) int { return strings.Compare(a.ID, b.ID) })
	return rules
}
