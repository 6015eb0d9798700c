package skill

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// MaxValue is the greatest size of a memory value, in bytes of JSON.
const MaxValue = 256 << 10

// Value returns a memory value as encoding/json gives it, nil when it is not set.
func (s *Set) Value(st *State, full string) any {
	if raw, ok := st.Memory[full]; ok {
		return decode(raw)
	}
	if f := s.Field(full); f != nil {
		return f.Initial
	}
	return nil
}

// decode reads JSON; whole numbers that a float64 cannot hold stay as they are
// written.
func decode(raw json.RawMessage) any {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) != nil {
		return nil
	}
	return plain(v)
}

func plain(v any) any {
	switch x := v.(type) {
	case json.Number:
		f, err := x.Float64()
		if err != nil || f == math.Trunc(f) && math.Abs(f) >= 1<<53 {
			return x
		}
		return f
	case []any:
		for i := range x {
			x[i] = plain(x[i])
		}
	case map[string]any:
		for k := range x {
			x[k] = plain(x[k])
		}
	}
	return v
}

// Vars returns what conditions and placeholders can name: session.project.x,
// session.<skill>.x, and by its bare name what the active skill, else the project,
// declares. The caller must not write to it.
func (s *Set) Vars(st *State) map[string]any {
	active := st.Active()
	if st.vars != nil && st.varsFor == active {
		return st.vars
	}
	vars := map[string]any{}
	session := map[string]any{}
	put := func(fields []*Field, bare bool) {
		for _, f := range fields {
			v := s.Value(st, f.Full())
			if v == nil {
				continue
			}
			space, _ := session[f.Namespace].(map[string]any)
			if space == nil {
				space = map[string]any{}
				session[f.Namespace] = space
			}
			space[f.Name] = v
			if bare {
				vars[f.Name] = v
			}
		}
	}
	put(s.Project, true)
	for _, k := range s.Skills {
		if k.ID != active {
			put(k.Memory, false)
		}
	}
	if k := s.Skill(active); k != nil {
		put(k.Memory, true)
	}
	vars["session"] = session
	st.vars, st.varsFor = vars, active
	return vars
}

// Resolve returns the full name of a memory value that is named from within a
// skill: bare (the skill's own, else the project's), "project.x", "<skill>.x", or
// any of these behind "session.". It is "" when nothing of that name is declared.
func (s *Set) Resolve(skill, name string) string {
	name = strings.TrimPrefix(name, "session.")
	if strings.Contains(name, ".") {
		if s.Field(name) == nil {
			return ""
		}
		return name
	}
	for _, namespace := range []string{skill, Project} {
		if f := s.Field(namespace + "." + name); namespace != "" && f != nil {
			return f.Full()
		}
	}
	return ""
}

// Closed says whether a value may not be written any more: the project's are
// written once.
func (s *Set) Closed(st *State, full string) bool {
	f := s.Field(full)
	if f == nil || f.Namespace != Project || f.Mutable {
		return false
	}
	raw, ok := st.Memory[full]
	return ok && string(raw) != "null"
}

// Accept returns the value as the field keeps it. Its error is for the model: it
// says what the field takes and does not quote the value.
func (f *Field) Accept(v any) (any, error) {
	v = plain(v)
	if v == nil {
		return nil, nil
	}
	if size := jsonSize(v); size > MaxValue {
		return nil, fmt.Errorf("the value is %d bytes long; at most %d are kept", size, MaxValue)
	}
	switch f.Type {
	case Text:
		switch x := v.(type) {
		case string:
			return x, nil
		case float64:
			return strconv.FormatFloat(x, 'f', -1, 64), nil
		case json.Number:
			return x.String(), nil
		}
		return nil, fmt.Errorf("it must be a text")
	case Bool:
		switch x := v.(type) {
		case bool:
			return x, nil
		case string:
			if b, ok := map[string]bool{"true": true, "false": false}[strings.ToLower(strings.TrimSpace(x))]; ok {
				return b, nil
			}
		}
		return nil, fmt.Errorf("it must be true or false")
	case Int, Float, Number:
		return f.number(v)
	case Categorical:
		return f.oneOf(v)
	case List:
		if _, ok := v.([]any); !ok {
			return nil, fmt.Errorf("it must be a list")
		}
	}
	return v, nil
}

func jsonSize(v any) int {
	if s, ok := v.(string); ok {
		return len(s)
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return MaxValue + 1
	}
	return len(raw)
}

func (f *Field) number(v any) (any, error) {
	if s, ok := v.(string); ok {
		if n, err := strconv.ParseFloat(strings.TrimSpace(s), 64); err == nil && !math.IsInf(n, 0) && !math.IsNaN(n) {
			v = n
		}
	}
	switch n := v.(type) {
	case json.Number:
		return n, nil
	case float64:
		if f.Type != Int || n == math.Trunc(n) {
			return n, nil
		}
	}
	if f.Type == Int {
		return nil, fmt.Errorf("it must be a whole number")
	}
	return nil, fmt.Errorf("it must be a number")
}

func (f *Field) oneOf(v any) (any, error) {
	said := strings.TrimSpace(Shown(v))
	for _, allowed := range f.Values {
		if allowed == v {
			return allowed, nil
		}
	}
	for _, allowed := range f.Values {
		if strings.EqualFold(Shown(allowed), said) {
			return allowed, nil
		}
	}
	names := make([]string, len(f.Values))
	for i, allowed := range f.Values {
		names[i] = Shown(allowed)
	}
	return nil, fmt.Errorf("it must be one of %s", strings.Join(names, ", "))
}

// Shown writes a value as it is shown to a model: a text as it is, True and False,
// anything else as JSON.
func Shown(v any) string {
	switch x := v.(type) {
	case nil:
		return "None"
	case string:
		return x
	case bool:
		if x {
			return "True"
		}
		return "False"
	case float64:
		return strconv.FormatFloat(x, 'f', -1, 64)
	case json.Number:
		return x.String()
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(raw)
}

// Schema returns the JSON schema of the field's values, for the model.
func (f *Field) Schema() map[string]any {
	out := map[string]any{}
	switch f.Type {
	case Text:
		out["type"] = "string"
	case Bool:
		out["type"] = "boolean"
	case Int:
		out["type"] = "integer"
	case Float, Number:
		out["type"] = "number"
	case List:
		out["type"] = "array"
		out["items"] = map[string]any{}
	case Categorical:
		out["enum"] = f.Values
		if !slices.ContainsFunc(f.Values, func(v any) bool { _, text := v.(string); return !text }) {
			out["type"] = "string"
		}
	}
	if f.Description != "" {
		out["description"] = strings.TrimSpace(f.Description)
	}
	return out
}
