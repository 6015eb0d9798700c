package convtest

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/expect"
	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/model/scripted"
	"github.com/belay-run/belay/internal/rawjson"
	"github.com/belay-run/belay/internal/server"
	"github.com/belay-run/belay/internal/yamlfile"
)

// reader reads one file of tests.
type reader struct {
	*yamlfile.Reader
	findings *[]finding.Finding
	file     *File
	names    map[string]int // of conversations → line
}

// Read reads a file of tests. It must not be run when a finding is an error.
func Read(path string) (*File, []finding.Finding) {
	data, findings := expect.Read(path, "too-large", "missing-file")
	if len(findings) > 0 {
		return &File{Path: path}, findings
	}
	return parse(path, data)
}

func parse(path string, data []byte) (*File, []finding.Finding) {
	var findings []finding.Finding
	f := &File{Path: path}
	r := &reader{Reader: yamlfile.NewReader(path, &findings), findings: &findings, file: f, names: map[string]int{}}
	r.read(data)
	return f, finding.Clean(findings)
}

func (r *reader) read(data []byte) {
	n := r.Parse(data)
	top := r.Open(n, "")
	if top == nil {
		if n == nil && len(*r.findings) == 0 {
			r.Whole().Err("missing-key", "the file is empty", "write conversations:, each with name: and turns:")
		}
		return
	}
	if !top.Has("conversations") {
		top.Here().Err("missing-key", "there are no conversations", "write conversations:, each with name: and turns:")
	}
	for _, s := range top.Sections("conversations") {
		if c := r.conversation(s); c != nil {
			r.file.Conversations = append(r.file.Conversations, c)
		}
	}
	if list := top.Find("conversations"); list != nil && list.Value.Kind == yamlfile.List && len(list.Value.Items) == 0 {
		r.Key(list).Err("empty-list", "conversations is an empty list", "write a conversation with name: and turns:")
	}
	top.Close()
}

func (r *reader) conversation(s *yamlfile.Section) *Conversation {
	c := &Conversation{Name: s.Needed("name", "give it a name, by which reports call it"), Sender: s.Text("sender"), Line: s.Node.Line, Column: s.Node.Column}
	if before, taken := r.names[c.Name]; taken && c.Name != "" {
		s.Spot("name").Err("duplicate-name", fmt.Sprintf("another conversation has this name already, in line %d", before), "rename one of them")
	}
	r.names[c.Name] = s.Node.Line
	if err := server.CheckID(c.Sender); c.Sender != "" && err != nil {
		s.Spot("sender").Err("bad-value", s.Full("sender")+": "+err.Error(), "write a short word, or leave it out")
	}
	c.Channel = r.channel(s)
	c.Memory = r.memory(s, "memory")
	r.model(s, c)
	for _, t := range s.Sections("turns") {
		turn := r.turn(t)
		if t.Has("recording") {
			c.recorded = true
			if c.Script != nil || c.Recording != nil {
				t.Spot("recording").Err("two-models", "a turn has a recording, and the conversation has a model", "keep one of the two")
			}
		}
		c.Turns = append(c.Turns, turn)
	}
	if f := s.Find("turns"); f == nil {
		s.Here().Err("missing-key", s.Full("turns")+" is missing", "write what the user says: turns: [{user: …}]")
	} else if f.Value.Kind == yamlfile.List && len(f.Value.Items) == 0 {
		r.Key(f).Err("empty-list", s.Full("turns")+" is an empty list", "write what the user says: turns: [{user: …}]")
	}
	s.Close()
	return c
}

// channel reads a channel: its name, or the whole of it.
func (r *reader) channel(s *yamlfile.Section) json.RawMessage {
	f := s.Find("channel")
	if f == nil {
		return rawjson.Must(map[string]any{"name": "test", "metadata": map[string]any{}})
	}
	if f.Value.Kind != yamlfile.Mapping {
		return rawjson.Must(map[string]any{"name": s.Text("channel"), "metadata": map[string]any{}})
	}
	sub := s.Sub("channel")
	name, metadata := sub.Needed("name", "name it"), json.RawMessage(`{}`)
	if m := sub.Get("metadata", yamlfile.Mapping, "write keys under it"); m != nil {
		metadata = r.json(m, sub.Full("metadata"))
	}
	sub.Close()
	return rawjson.Must(map[string]any{"name": name, "metadata": metadata})
}

// json encodes a value, and reports one that has no JSON form.
func (r *reader) json(n *yamlfile.Node, what string) json.RawMessage {
	raw, ok := encode(n)
	if !ok {
		r.On(n).Err("bad-value", what+" has a number that JSON does not have", "write a finite number, or a text")
		return json.RawMessage("null")
	}
	return raw
}

// memory reads values by their full names.
func (r *reader) memory(s *yamlfile.Section, key string) []Value {
	n := s.Get(key, yamlfile.Mapping, "write full names and values under it, such as project.name: Ada")
	if n == nil {
		return nil
	}
	r.file.skills = true
	var out []Value
	for i := range n.Fields {
		f := &n.Fields[i]
		out = append(out, Value{Name: strings.TrimPrefix(f.Name, "session."), Value: r.json(f.Value, s.Full(key)), Line: f.Line, Column: f.Column})
	}
	return out
}

// model reads what answers in a conversation: a script, a script's file, or a
// recording.
func (r *reader) model(s *yamlfile.Section, c *Conversation) {
	f := s.Find("model")
	sub := s.Sub("model")
	if sub == nil {
		return
	}
	switch {
	case sub.Has("recording"):
		c.Recording, c.recorded = r.completions(sub, "recording"), true
		sub.Close()
	case sub.Has("script"):
		if name := sub.Text("script"); name != "" {
			c.Script = r.scriptFile(sub.Spot("script"), name)
		}
		sub.Close()
	default:
		c.Script = r.inline(f.Value)
	}
}

func (r *reader) scriptFile(at yamlfile.Spot, name string) *scripted.Script {
	if !filepath.IsAbs(name) {
		name = filepath.Join(filepath.Dir(r.file.Path), filepath.FromSlash(name))
	}
	data, err := expect.Load(name)
	if err != nil {
		at.Err("missing-script", "the script cannot be read: "+err.Error(), "name it as it is reached from the folder of this file")
		return nil
	}
	script, found := scripted.Parse(name, data)
	*r.findings = append(*r.findings, found...)
	return script
}

// inline reads a script that stands in the file. What is wrong with it is told by its
// place here.
func (r *reader) inline(n *yamlfile.Node) *scripted.Script {
	script, found := expect.Script(r.file.Path, n)
	*r.findings = append(*r.findings, found...)
	return script
}

func (r *reader) turn(s *yamlfile.Section) *Turn {
	t := &Turn{Line: s.Node.Line, User: s.Text("user")}
	if n := s.Find("extra"); n != nil {
		t.Extra = r.json(n.Value, s.Full("extra"))
	}
	if t.User == "" && t.Extra == nil && !s.Has("user") {
		s.Here().Err("missing-key", s.Full("user")+" is missing", "write what the user says")
	}
	t.Recording = r.completions(s, "recording")
	if e := s.Sub("expect"); e != nil {
		t.Expect = r.expect(e)
	}
	s.Close()
	return t
}

// completions reads a recording.
func (r *reader) completions(s *yamlfile.Section, key string) []Completion {
	out := []Completion{}
	for _, item := range s.Sections(key) {
		out = append(out, r.completion(item))
	}
	return out
}

func (r *reader) completion(s *yamlfile.Section) Completion {
	c := Completion{Line: s.Node.Line, Purpose: s.OneOf("purpose", Main, Rephrase, Fill), Fail: s.Text("fail")}
	if c.Purpose == "" {
		c.Purpose = Main
	}
	if s.Has("text") {
		text := s.Text("text")
		c.Text = &text
	}
	if n := s.Get("empty", yamlfile.Bool, "write true"); n != nil {
		c.Empty = n.Text == "true"
	}
	for _, call := range s.Sections("tool_calls") {
		c.Calls = append(c.Calls, r.call(call))
	}
	said := c.Text != nil || len(c.Calls) > 0
	switch {
	case c.Empty && (said || c.Fail != ""):
		s.Spot("empty").Err("bad-value", "an empty completion has nothing else", "delete empty, or what stands beside it")
	case c.Fail != "" && len(c.Calls) > 0:
		s.Spot("fail").Err("bad-value", "a completion that fails makes no calls", "delete fail, or tool_calls")
	case !said && !c.Empty && c.Fail == "":
		s.Here().Err("missing-key", s.Path()+" says nothing", "write text:, tool_calls:, empty: true or fail: WHY")
	}
	s.Close()
	return c
}

func (r *reader) call(s *yamlfile.Section) chat.ToolCall {
	c := chat.ToolCall{ID: s.Text("id"), Type: "function", Name: s.Needed("name", "name the tool"), Arguments: json.RawMessage(`{}`)}
	if kind := s.Text("type"); kind != "" {
		c.Type = kind
	}
	if f := s.Find("arguments"); f != nil {
		c.Arguments = r.json(f.Value, s.Full("arguments"))
		if f.Value.Kind == yamlfile.Text && json.Valid([]byte(f.Value.Text)) {
			c.Arguments = json.RawMessage(f.Value.Text) // JSON as a text
		}
	}
	s.Close()
	return c
}
