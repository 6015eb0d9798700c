package agent

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/belay-run/belay/internal/skill"
)

// fieldTypes are the names of types as authors write them, and what each is.
var fieldTypes = map[string]skill.FieldType{
	"text": skill.Text, "bool": skill.Bool, "int": skill.Int, "float": skill.Float, "number": skill.Number,
	"categorical": skill.Categorical, "list": skill.List, "json": skill.Any, "any": skill.Any,
}

// otherTypes are names that other formats use.
var otherTypes = map[string]string{"string": "text", "str": "text", "boolean": "bool", "integer": "int", "array": "list", "object": "json", "dict": "json", "enum": "categorical"}

// projectMemory reads the memory that all skills share.
func (r *reader) projectMemory(n *node) []*skill.Field {
	top := r.open(n, "")
	if top == nil {
		return nil
	}
	if f := top.n.field("schema"); f != nil && f.kind == isMapping && (f.field("public") != nil || f.field("private") != nil) {
		r.on(f).err("wrong-type", "the project's memory has no schema: with public and private parts", "write the names at the left margin")
		return nil
	}
	var out []*skill.Field
	for i := range top.n.fields {
		if f := r.memoryField(&top.n.fields[i], skill.Project, ""); f != nil {
			out = append(out, f)
		}
	}
	return out
}

// skillMemory reads the memory of one skill.
func (r *reader) skillMemory(id string, n *node) []*skill.Field {
	top := r.open(n, "")
	schema := top.sub("schema")
	var out []*skill.Field
	for _, part := range []string{"public", "private"} {
		s := schema.sub(part)
		if s == nil {
			continue
		}
		for i := range s.n.fields {
			key := &s.n.fields[i]
			f := r.memoryField(key, id, s.path)
			if f == nil {
				continue
			}
			f.Private = part == "private"
			if slices.ContainsFunc(out, func(o *skill.Field) bool { return o.Name == f.Name }) {
				r.key(key).err("duplicate-key", fmt.Sprintf("%s is public and private", shown(f.Name)), "keep one of the two")
				continue
			}
			out = append(out, f)
		}
	}
	schema.close()
	top.close()
	return out
}

// memoryField reads the declaration of one value.
func (r *reader) memoryField(key *field, namespace, path string) *skill.Field {
	if path == "" && strings.HasPrefix(key.name, "x-") {
		return nil
	}
	if !goodName.MatchString(key.name) {
		r.key(key).err("bad-name", fmt.Sprintf("%s cannot be the name of a memory value", shown(key.name)), `use letters, digits and "_", a letter first`)
		return nil
	}
	what := key.name
	if path != "" {
		what = path + "." + key.name
	}
	if key.value.kind != isMapping {
		r.mismatch(key.value, what, isMapping, "write type: and description: under it, indented")
		return nil
	}
	s := &section{r: r, n: key.value, path: what}
	f := &skill.Field{Namespace: namespace, Name: key.name, Type: skill.Any, Line: key.line}
	f.Description = strings.TrimSpace(s.text("description"))
	r.fieldType(s, key, f)
	r.enum(s, key, f)
	f.Settable, f.Personal, f.Mutable = s.flag("llm_settable"), s.flag("pii"), s.flag("mutable")
	if namespace == skill.Project && f.Settable {
		f.Settable = false // older engines read the key here, and did not act on it either
		r.key(s.find("llm_settable")).warn("project-memory", what+" is the project's, which the model never sets", "let a tool or a step write it, or declare the value in a skill's memory.yml")
	}
	if namespace != skill.Project && s.has("mutable") {
		r.key(s.find("mutable")).warn("not-acted-on", s.full("mutable")+" means nothing here: a skill's memory can always be written again", "delete it")
	}
	if v := s.find("initial_value"); v != nil {
		if value, ok := r.literal(v.value); ok {
			if wrong := fits(f, value); wrong != "" {
				r.on(v.value).err("bad-value", fmt.Sprintf("%s %s", s.full("initial_value"), wrong), "correct the value or the type")
			} else {
				f.Initial = value
			}
		}
	}
	s.idle("seed", "anonymization", "correctable", "access", "deny_read", "deny_write")
	s.close()
	return f
}

func (r *reader) fieldType(s *section, key *field, f *skill.Field) {
	name := s.text("type")
	if name == "" {
		if !s.has("type") {
			r.key(key).err("missing-key", s.path+" has no type", "write type: text, or another of "+typeNames())
		}
		return
	}
	at := r.on(s.find("type").value)
	if t, ok := fieldTypes[name]; ok {
		f.Type = t
		return
	}
	if meant, ok := otherTypes[strings.ToLower(name)]; ok {
		f.Type = fieldTypes[meant]
		at.warn("other-type-name", fmt.Sprintf("the type %s is called %s here", shown(name), meant), "write "+meant)
		return
	}
	hint := "use one of " + typeNames()
	if near := nearest(name, strings.Split(typeNames(), ", ")); near != "" {
		hint = fmt.Sprintf("did you mean %q?", near)
	}
	at.err("bad-value", fmt.Sprintf("%s is no type", shown(name)), hint)
}

func typeNames() string {
	var names []string
	for name := range fieldTypes {
		names = append(names, name)
	}
	return strings.Join(sorted(names), ", ")
}

// enum reads the values of a categorical.
func (r *reader) enum(s *section, key *field, f *skill.Field) {
	if f.Type != skill.Categorical {
		if v := s.find("enum_values"); v != nil {
			r.key(v).warn("not-acted-on", s.full("enum_values")+" means nothing for the type "+string(f.Type), "write type: categorical if only these values may be set")
		}
		return
	}
	n := s.get("enum_values", isList, "write the values as a list, such as [small, large]")
	if n == nil && s.has("enum_values") {
		return
	}
	if n == nil || len(n.items) == 0 {
		r.key(key).err("missing-key", s.path+" is categorical and has no values", "write enum_values: [small, large] with what it may be")
		return
	}
	for _, item := range n.items {
		if item.kind == isList || item.kind == isMapping || item.kind == isNull {
			r.mismatch(item, "a value of "+s.full("enum_values"), isText, "write plain values")
			continue
		}
		v, ok := r.literal(item)
		if !ok {
			continue
		}
		if slices.Contains(f.Values, v) {
			r.on(item).err("duplicate-key", "this value stands twice in "+s.full("enum_values"), "delete it")
			continue
		}
		f.Values = append(f.Values, v)
	}
}

// flag reads true or false.
func (s *section) flag(key string) bool {
	n := s.get(key, isBool, "write true or false without quotes")
	return n != nil && n.text == "true"
}

// literal is a value as encoding/json gives it.
func (r *reader) literal(n *node) (any, bool) {
	raw, ok := r.raw(n)
	if !ok {
		return nil, false
	}
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		r.on(n).err("bad-value", "this value cannot be read", "write a plain value")
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
