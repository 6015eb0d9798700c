package agent

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/belay-run/belay/internal/skill"
	"github.com/belay-run/belay/internal/yamlfile"
)

// fieldTypes are the names of types as authors write them, and what each is.
var fieldTypes = map[string]skill.FieldType{
	"text": skill.Text, "bool": skill.Bool, "int": skill.Int, "float": skill.Float, "number": skill.Number,
	"categorical": skill.Categorical, "list": skill.List, "json": skill.Any, "any": skill.Any,
}

// otherTypes are names that other formats use.
var otherTypes = map[string]string{"string": "text", "str": "text", "boolean": "bool", "integer": "int", "array": "list", "object": "json", "dict": "json", "enum": "categorical"}

// projectMemory reads the memory that all skills share.
func projectMemory(r *yamlfile.Reader, n *yamlfile.Node) []*skill.Field {
	top := r.Open(n, "")
	if top == nil {
		return nil
	}
	if f := top.Node.Field("schema"); f != nil && f.Kind == yamlfile.Mapping && (f.Field("public") != nil || f.Field("private") != nil) {
		r.On(f).Err("wrong-type", "the project's memory has no schema: with public and private parts", "write the names at the left margin")
		return nil
	}
	var out []*skill.Field
	for i := range top.Node.Fields {
		if f := memoryField(r, &top.Node.Fields[i], skill.Project, ""); f != nil {
			out = append(out, f)
		}
	}
	return out
}

// skillMemory reads the memory of one skill.
func skillMemory(r *yamlfile.Reader, id string, n *yamlfile.Node) []*skill.Field {
	top := r.Open(n, "")
	schema := top.Sub("schema")
	var out []*skill.Field
	for _, part := range []string{"public", "private"} {
		s := schema.Sub(part)
		if s == nil {
			continue
		}
		for i := range s.Node.Fields {
			key := &s.Node.Fields[i]
			f := memoryField(r, key, id, s.Path())
			if f == nil {
				continue
			}
			f.Private = part == "private"
			if slices.ContainsFunc(out, func(o *skill.Field) bool { return o.Name == f.Name }) {
				r.Key(key).Err("duplicate-key", fmt.Sprintf("%s is public and private", yamlfile.Shown(f.Name)), "keep one of the two")
				continue
			}
			out = append(out, f)
		}
	}
	schema.Unknown()
	top.Unknown()
	return out
}

// memoryField reads the declaration of one value.
func memoryField(r *yamlfile.Reader, key *yamlfile.Field, namespace, path string) *skill.Field {
	if path == "" && strings.HasPrefix(key.Name, "x-") {
		return nil
	}
	if !goodName.MatchString(key.Name) {
		r.Key(key).Err("bad-name", fmt.Sprintf("%s cannot be the name of a memory value", yamlfile.Shown(key.Name)), `use letters, digits and "_", a letter first`)
		return nil
	}
	what := key.Name
	if path != "" {
		what = path + "." + key.Name
	}
	if key.Value.Kind != yamlfile.Mapping {
		r.Mismatch(key.Value, what, yamlfile.Mapping, "write type: and description: under it, indented")
		return nil
	}
	s := r.Open(key.Value, what)
	f := &skill.Field{Namespace: namespace, Name: key.Name, Type: skill.Any, Line: key.Line}
	f.Description = strings.TrimSpace(s.TextOrBlank("description"))
	fieldType(r, s, key, f)
	enum(r, s, key, f)
	f.Settable, f.Personal, f.Mutable = s.Flag("llm_settable"), s.Flag("pii"), s.Flag("mutable")
	if namespace == skill.Project && f.Settable {
		f.Settable = false // older engines read the key here, and did not act on it either
		r.Key(s.Find("llm_settable")).Warn("project-memory", what+" is the project's, which the model never sets", "let a tool or a step write it, or declare the value in a skill's memory.yml")
	}
	if namespace != skill.Project && s.Has("mutable") {
		r.Key(s.Find("mutable")).Warn("not-acted-on", s.Full("mutable")+" means nothing here: a skill's memory can always be written again", "delete it")
	}
	if v := s.Find("initial_value"); v != nil {
		if value, ok := literal(r, v.Value); ok {
			if wrong := fits(f, value); wrong != "" {
				r.On(v.Value).Err("bad-value", fmt.Sprintf("%s %s", s.Full("initial_value"), wrong), "correct the value or the type")
			} else {
				f.Initial = value
			}
		}
	}
	idle(s, "seed", "anonymization", "correctable", "access", "deny_read", "deny_write")
	s.Unknown()
	return f
}

func fieldType(r *yamlfile.Reader, s *yamlfile.Section, key *yamlfile.Field, f *skill.Field) {
	name := s.TextOrBlank("type")
	if name == "" {
		if !s.Has("type") {
			r.Key(key).Err("missing-key", s.Path()+" has no type", "write type: text, or another of "+typeNames())
		}
		return
	}
	at := r.On(s.Find("type").Value)
	if t, ok := fieldTypes[name]; ok {
		f.Type = t
		return
	}
	if meant, ok := otherTypes[strings.ToLower(name)]; ok {
		f.Type = fieldTypes[meant]
		at.Warn("other-type-name", fmt.Sprintf("the type %s is called %s here", yamlfile.Shown(name), meant), "write "+meant)
		return
	}
	hint := "use one of " + typeNames()
	if near := yamlfile.Nearest(name, strings.Split(typeNames(), ", ")); near != "" {
		hint = fmt.Sprintf("did you mean %q?", near)
	}
	at.Err("bad-value", fmt.Sprintf("%s is no type", yamlfile.Shown(name)), hint)
}

func typeNames() string {
	return strings.Join(slices.Sorted(maps.Keys(fieldTypes)), ", ")
}

// enum reads the values of a categorical.
func enum(r *yamlfile.Reader, s *yamlfile.Section, key *yamlfile.Field, f *skill.Field) {
	if f.Type != skill.Categorical {
		if v := s.Find("enum_values"); v != nil {
			r.Key(v).Warn("not-acted-on", s.Full("enum_values")+" means nothing for the type "+string(f.Type), "write type: categorical if only these values may be set")
		}
		return
	}
	n := s.Get("enum_values", yamlfile.List, "write the values as a list, such as [small, large]")
	if n == nil && s.Has("enum_values") {
		return
	}
	if n == nil || len(n.Items) == 0 {
		r.Key(key).Err("missing-key", s.Path()+" is categorical and has no values", "write enum_values: [small, large] with what it may be")
		return
	}
	for _, item := range n.Items {
		if item.Kind == yamlfile.List || item.Kind == yamlfile.Mapping || item.Kind == yamlfile.Null {
			r.Mismatch(item, "a value of "+s.Full("enum_values"), yamlfile.Text, "write plain values")
			continue
		}
		v, ok := literal(r, item)
		if !ok {
			continue
		}
		if slices.Contains(f.Values, v) {
			r.On(item).Err("duplicate-key", "this value stands twice in "+s.Full("enum_values"), "delete it")
			continue
		}
		f.Values = append(f.Values, v)
	}
}

// literal is a value as encoding/json gives it.
func literal(r *yamlfile.Reader, n *yamlfile.Node) (any, bool) {
	raw, ok := asJSON(r, n)
	if !ok {
		return nil, false
	}
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		r.On(n).Err("bad-value", "this value cannot be read", "write a plain value")
		return nil, false
	}
	return v, true
}

// fits says how a value does not fit a field: "" when it does. Nothing fits always:
// it clears.
func fits(f *skill.Field, v any) string {
	if v == nil {
		return ""
	}
	number, isNumber := v.(float64)
	ok, want := true, ""
	switch f.Type {
	case skill.Text:
		_, ok = v.(string)
		want = "must be text; put it in quotes"
	case skill.Bool:
		_, ok = v.(bool)
		want = "must be true or false"
	case skill.Int:
		ok, want = isNumber && number == math.Trunc(number), "must be a whole number"
	case skill.Float, skill.Number:
		ok, want = isNumber, "must be a number"
	case skill.List:
		_, ok = v.([]any)
		want = "must be a list"
	case skill.Categorical:
		ok = len(f.Values) == 0 || slices.ContainsFunc(f.Values, func(o any) bool { return o == v })
		want = "must be one of its enum_values"
	}
	if ok {
		return ""
	}
	return want
}
