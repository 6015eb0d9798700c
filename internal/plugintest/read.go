package plugintest

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/internal/agentjob"
	"github.com/belay-run/belay/internal/approval"
	"github.com/belay-run/belay/internal/expect"
	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/model/scripted"
	"github.com/belay-run/belay/internal/plugin"
	"github.com/belay-run/belay/internal/policy"
	"github.com/belay-run/belay/internal/rawjson"
	"github.com/belay-run/belay/internal/yamlfile"
)

// reader reads one file of cases.
type reader struct {
	*yamlfile.Reader
	findings *[]finding.Finding
	path     string
	source   []byte
	names    map[string]int // of cases → line
}

// Read reads a file of cases. It must not be run when a finding is an error.
func Read(path string) (*File, []finding.Finding) {
	data, findings := expect.Read(path, "large-file", "no-file")
	if len(findings) > 0 {
		return &File{Path: path}, findings
	}
	return Parse(path, data)
}

// Parse reads the text of a file of cases; path is its name, to which the files that
// it names are relative.
func Parse(path string, data []byte) (*File, []finding.Finding) {
	var findings []finding.Finding
	f := &File{Path: path}
	r := &reader{Reader: yamlfile.NewReader(path, &findings), findings: &findings, path: path, source: data, names: map[string]int{}}
	n := r.Parse(data)
	top := r.Open(n, "")
	if top == nil {
		if n == nil && len(findings) == 0 {
			r.Whole().Err("missing-key", "the file is empty", hintCases)
		}
		return f, finding.Clean(findings)
	}
	top.Require("cases", hintCases)
	for _, s := range top.Sections("cases") {
		f.Cases = append(f.Cases, r.aCase(s))
	}
	if list := top.Find("cases"); list != nil && list.Value.Kind == yamlfile.List && len(list.Value.Items) == 0 {
		r.Key(list).Err("empty-list", "cases is an empty list", hintCases)
	}
	top.Close()
	return f, finding.Clean(findings)
}

const hintCases = "write cases:, each with name:, event: or job:, and expect:"

func (r *reader) aCase(s *yamlfile.Section) *Case {
	c := &Case{Name: s.Needed("name", "give it a name, by which reports call it"), Line: s.Node.Line, Column: s.Node.Column}
	if before, taken := r.names[c.Name]; taken && c.Name != "" {
		s.Spot("name").Err("duplicate-case", fmt.Sprintf("another case has this name already, in line %d", before), "rename one of them")
	}
	r.names[c.Name] = s.Node.Line
	event, job := s.Sub("event"), s.Sub("job")
	if s.Has("event") == s.Has("job") {
		s.Here().Err("one-kind", s.Path()+" needs exactly one of event and job", "write event: for what hooks say of one moment, or job: for a whole job")
	}
	c.Secrets = r.secrets(s)
	c.Models = r.models(s)
	s.Require("expect", "write allow, deny, modify or escalate; of a job also what should come of it")
	if event != nil {
		c.Event = r.event(event)
	}
	if job != nil {
		c.Job = r.job(job)
	}
	r.expect(s, c)
	s.Close()
	return c
}

// secrets reads made-up values by the names of the tenant's secrets that they stand
// for.
func (r *reader) secrets(s *yamlfile.Section) map[string]string {
	sub := s.Sub("secrets")
	if sub == nil {
		return nil
	}
	out := map[string]string{}
	for _, f := range sub.Node.Fields {
		out[f.Name] = sub.Text(f.Name)
	}
	sub.Close()
	return out
}

// testAgent is whose an event or job is when nothing is said of it.
const testAgent = "test"

func (r *reader) event(s *yamlfile.Section) *Event {
	e := &Event{Agent: s.Text("agent"), Fields: map[string]json.RawMessage{}}
	if e.Agent == "" {
		e.Agent = testAgent
	}
	s.Require("on", "name the event: "+strings.Join(plugin.Events(), ", "))
	if name := s.OneOf("on", plugin.Events()...); name != "" {
		e.On = hook.PointNamed(name)
		r.fields(s, e)
	}
	e.Provider, e.Model = r.agentModel(s)
	if text := s.Text("request"); text != "" {
		e.Input = rawjson.Must(text)
	}
	e.Approvals = r.answers(s)
	if e.On == nil { // then nobody knows which other keys there are
		return e
	}
	s.Close()
	return e
}

// given are the fields of events that the job itself fills in.
var given = []string{"event", "job", "agent", "request", "agent_model"}

var kinds = map[hook.Shape]yamlfile.Kind{hook.Text: yamlfile.Text, hook.Object: yamlfile.Mapping, hook.Objects: yamlfile.List, hook.Bool: yamlfile.Bool}

// fields reads the event's own fields, such as tool and arguments.
func (r *reader) fields(s *yamlfile.Section, e *Event) {
	for i := range e.On.Fields {
		f := &e.On.Fields[i]
		if slices.Contains(given, f.Name) {
			continue
		}
		if f.Name == "tool" {
			e.Tool = r.function(s, "tool")
			if e.Tool.Text != "" {
				e.Fields["tool"] = rawjson.Must(e.Tool.Text)
			}
			continue
		}
		value := s.Take(f.Name)
		if value == nil {
			if i == e.On.Changeable() && f.Name != "arguments" {
				s.Here().Err("missing-key", s.Full(f.Name)+" is missing", "write what the event holds")
			}
			continue
		}
		if want, ok := kinds[f.Shape]; ok && value.Value.Kind != want {
			r.Mismatch(value.Value, s.Full(f.Name), want, "write it as the event has it")
			continue
		}
		e.Fields[f.Name] = r.json(value.Value, s.Full(f.Name))
	}
}

// function reads the full name of a function, which must be there.
func (r *reader) function(s *yamlfile.Section, key string) Name {
	text := s.Needed(key, "write the full name of a function, <tool>.<function>")
	if text == "" {
		return Name{}
	}
	n := s.Find(key).Value
	r.fullName(n, text)
	return Name{n.Line, n.Column, text}
}

func (r *reader) fullName(n *yamlfile.Node, text string) {
	tool, function, _ := strings.Cut(text, ".")
	if tool == "" || function == "" || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == '*' }) {
		r.On(n).Err("bad-full-name", yamlfile.Shown(text)+" names no function", "write <tool>.<function>, such as acme_github.push")
	}
}

func (r *reader) agentModel(s *yamlfile.Section) (provider, model string) {
	sub := s.Sub("agent_model")
	if sub == nil {
		return "", ""
	}
	provider, model = sub.Needed("provider", "name the provider"), sub.Needed("model", "name the model")
	sub.Close()
	return provider, model
}

// answers reads what people say: a list of yes and no, or of mappings. Without the key
// it is nil.
func (r *reader) answers(s *yamlfile.Section) []Answer {
	n := s.Get("approvals", yamlfile.List, "write a list of answers, such as [yes, no]; [] when nobody answers")
	if n == nil {
		return nil
	}
	out := []Answer{}
	for i, item := range n.Items {
		a := Answer{Line: item.Line, Column: item.Column}
		path := fmt.Sprintf("%s[%d]", s.Full("approvals"), i+1)
		if item.Kind == yamlfile.Mapping {
			sub := r.Open(item, path)
			if answer := sub.Find("answer"); answer == nil {
				sub.Here().Err("missing-key", sub.Full("answer")+" is missing", hintAnswer)
			} else {
				r.word(answer.Value, sub.Full("answer"), &a)
			}
			a.Note, a.Tool = sub.Text("note"), sub.Text("tool")
			if f := sub.Take("result"); f != nil {
				a.Action, a.Result = approval.Result, r.json(f.Value, sub.Full("result"))
			}
			sub.Close()
		} else {
			r.word(item, path, &a)
		}
		out = append(out, a)
	}
	return out
}

const hintAnswer = "write yes or no, or {answer: yes, note: …, tool: …}"

func (r *reader) word(n *yamlfile.Node, path string, a *Answer) {
	switch {
	case n.Kind == yamlfile.Text && n.Text == "yes", n.Kind == yamlfile.Bool && n.Text == "true":
		a.Yes = true
	case n.Kind == yamlfile.Text && n.Text == "no", n.Kind == yamlfile.Bool && n.Text == "false":
	case n.Kind == yamlfile.Text && n.Text == string(approval.Retry):
		a.Action = approval.Retry
	default:
		r.On(n).Err("unknown-value", path+" is no answer", hintAnswer)
	}
}

func (r *reader) job(s *yamlfile.Section) *Job {
	j := &Job{Input: rawjson.Must("")}
	switch f := s.Find("agent"); {
	case f == nil:
		j.Agent, j.Inline = Name{s.Node.Line, s.Node.Column, testAgent}, &Agent{}
	case f.Value.Kind == yamlfile.Mapping:
		j.Agent, j.Inline = r.agent(s.Sub("agent"))
	default:
		j.Agent = Name{f.Value.Line, f.Value.Column, s.Text("agent")}
	}
	if f := s.Take("input"); f != nil {
		j.Input = r.json(f.Value, s.Full("input"))
	}
	j.Provider, j.Model = r.agentModel(s)
	j.Script = r.model(s, "model")
	j.Tools = r.canned(s)
	j.Policy = r.policy(s)
	j.Approvals = r.answers(s)
	s.Close()
	return j
}

func (r *reader) agent(s *yamlfile.Section) (Name, *Agent) {
	a := &Agent{}
	name := s.Needed("name", "name the agent, as match: {agents: …} of a hook would")
	a.Instructions = s.Text("instructions")
	for _, n := range s.Texts("tools") {
		a.Tools = append(a.Tools, n.Text)
	}
	s.Close()
	return Name{s.Node.Line, s.Node.Column, name}, a
}

// models reads what answers the plugin's functions that ask models, by the models'
// names.
func (r *reader) models(s *yamlfile.Section) map[string]*scripted.Script {
	sub := s.Sub("models")
	if sub == nil {
		return nil
	}
	out := map[string]*scripted.Script{}
	for _, f := range sub.Node.Fields {
		out[f.Name] = r.model(sub, f.Name)
	}
	sub.Close()
	return out
}

// model reads the rules that answer in a model's place, or the name of their file.
func (r *reader) model(s *yamlfile.Section, key string) *scripted.Script {
	f := s.Find(key)
	sub := s.Sub(key)
	if sub == nil {
		return nil
	}
	if !sub.Has("script") {
		script, found := expect.Script(r.path, f.Value)
		*r.findings = append(*r.findings, found...)
		return script
	}
	name := sub.Text("script")
	sub.Close()
	data, ok := r.file(sub.Spot("script"), name)
	if !ok {
		return nil
	}
	script, found := scripted.Parse(name, data)
	*r.findings = append(*r.findings, found...)
	return script
}

// file reads a file that the case names.
func (r *reader) file(at yamlfile.Spot, name string) ([]byte, bool) {
	if name == "" {
		return nil, false
	}
	path := name
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(r.path), filepath.FromSlash(name))
	}
	data, err := expect.Load(path)
	if err != nil {
		at.Err("no-file", "the file cannot be read: "+err.Error(), "name it as it is reached from the folder of this file")
	}
	return data, err == nil
}

// policy reads the tenant's policy, inline or as the name of a file.
func (r *reader) policy(s *yamlfile.Section) string {
	f := s.Find("policy")
	switch {
	case f == nil:
		return ""
	case f.Value.Kind == yamlfile.Text:
		data, ok := r.file(s.Spot("policy"), f.Value.Text)
		if !ok {
			return ""
		}
		_, found := policy.Parse(f.Value.Text, data)
		*r.findings = append(*r.findings, found...)
		return string(data)
	}
	_, found := policy.ParseNode(r.Reader, f.Value, s.Full("policy"), r.source, nil)
	*r.findings = append(*r.findings, found...)
	return string(r.json(f.Value, s.Full("policy"))) // JSON is YAML
}

// canned reads the results of functions by their full names.
func (r *reader) canned(s *yamlfile.Section) []Canned {
	n := s.Get("tools", yamlfile.Mapping, "write full names of functions and their results under it, such as acme_github.merge: {result: done}")
	if n == nil {
		return nil
	}
	var out []Canned
	for i := range n.Fields {
		f := &n.Fields[i]
		r.fullName(&yamlfile.Node{Line: f.Line, Column: f.Column}, f.Name)
		path := s.Full("tools") + "." + f.Name
		c := Canned{Name: Name{f.Line, f.Column, f.Name}}
		sub := r.Open(f.Value, path)
		if sub == nil {
			if f.Value.Kind == yamlfile.Null {
				r.Key(f).Err("empty-value", path+" has no value", "write {result: …} or {error: …}")
			}
			continue
		}
		if n := sub.Get("schema", yamlfile.Mapping, "write a JSON schema"); n != nil {
			c.Schema = r.json(n, sub.Full("schema"))
		}
		c.Annotations = r.annotations(sub)
		c.Results = r.results(sub)
		sub.Close()
		out = append(out, c)
	}
	return out
}

func (r *reader) annotations(s *yamlfile.Section) *agentjob.Annotations {
	sub := s.Sub("annotations")
	if sub == nil {
		return nil
	}
	a := &agentjob.Annotations{}
	for key, to := range map[string]**bool{"readOnlyHint": &a.ReadOnly, "destructiveHint": &a.Destructive, "idempotentHint": &a.Idempotent, "openWorldHint": &a.OpenWorld} {
		if n := sub.Get(key, yamlfile.Bool, "write true or false"); n != nil {
			is := n.Text == "true"
			*to = &is
		}
	}
	sub.Close()
	return a
}

func (r *reader) results(s *yamlfile.Section) []Given {
	several := s.Sections("results")
	if len(several) == 0 {
		several = []*yamlfile.Section{s}
	} else if s.Has("result") || s.Has("error") {
		s.Spot("results").Err("one-kind", s.Path()+" has results, and one result beside them", "move it into results")
	}
	var out []Given
	for _, one := range several {
		var got Given
		value := one.Take("result")
		if value != nil {
			got.Value = r.json(value.Value, one.Full("result"))
		}
		got.Error = one.Text("error")
		if (value != nil) == (got.Error != "") && !one.Has("results") {
			one.Here().Err("one-kind", one.Path()+" needs exactly one of result and error", "write what the function gives, or the text with which it fails")
		}
		if one != s {
			one.Close()
		}
		out = append(out, got)
	}
	return out
}

// json encodes a value, and reports one that has no JSON form.
func (r *reader) json(n *yamlfile.Node, what string) json.RawMessage {
	raw, ok := expect.JSON(n)
	if !ok {
		r.On(n).Err("bad-value", what+" has a number that JSON does not have", "write a finite number, or a text")
		return json.RawMessage("null")
	}
	return raw
}
