package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"unicode/utf8"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// The reasons why arguments cannot be read. They quote nothing: keys and values
// are the model's.
var (
	errNotJSON   = errors.New("they are not JSON")
	errNotObject = errors.New("they are no JSON object")
	errTwice     = errors.New("a key stands twice in one object, and readers do not agree on which of the two counts")
	errNumber    = errors.New("a number is beyond what can be compared")
)

// readObject reads a JSON object as a value for conditions. Numbers are whole
// numbers when they are written so and fit into 64 bits; keys are iterated in
// order, so that a condition never depends on chance.
func readObject(raw json.RawMessage) (ref.Val, error) {
	raw = bytes.TrimSpace(raw)
	switch {
	case len(raw) == 0:
		raw = []byte("{}")
	case !utf8.Valid(raw) || !json.Valid(raw):
		return nil, errNotJSON
	case raw[0] != '{':
		return nil, errNotObject
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	return readValue(d)
}

func readValue(d *json.Decoder) (ref.Val, error) {
	t, err := d.Token()
	if err != nil {
		return nil, errNotJSON
	}
	switch t := t.(type) {
	case nil:
		return types.NullValue, nil
	case bool:
		return types.Bool(t), nil
	case string:
		return types.String(t), nil
	case json.Number:
		return number(string(t))
	case json.Delim:
		if t == '{' {
			return readFields(d)
		}
		return readItems(d)
	}
	return nil, errNotJSON
}

func readItems(d *json.Decoder) (ref.Val, error) {
	items := []ref.Val{}
	for d.More() {
		v, err := readValue(d)
		if err != nil {
			return nil, err
		}
		items = append(items, v)
	}
	_, err := d.Token()
	return types.NewRefValList(types.DefaultTypeAdapter, items), err
}

func readFields(d *json.Decoder) (ref.Val, error) {
	fields, names := map[ref.Val]ref.Val{}, []string{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, errNotJSON
		}
		name, _ := t.(string)
		if _, twice := fields[types.String(name)]; twice {
			return nil, errTwice
		}
		v, err := readValue(d)
		if err != nil {
			return nil, err
		}
		fields[types.String(name)] = v
		names = append(names, name)
	}
	if _, err := d.Token(); err != nil {
		return nil, errNotJSON
	}
	slices.Sort(names)
	keys := make([]ref.Val, len(names))
	for i, n := range names {
		keys[i] = types.String(n)
	}
	return object{types.NewRefValMap(types.DefaultTypeAdapter, fields), keys}, nil
}

func number(text string) (ref.Val, error) {
	if i, err := strconv.ParseInt(text, 10, 64); err == nil {
		return types.Int(i), nil
	}
	if u, err := strconv.ParseUint(text, 10, 64); err == nil {
		return types.Uint(u), nil
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return nil, errNumber
	}
	return types.Double(f), nil
}

// object is a map whose keys come in order.
type object struct {
	traits.Mapper
	keys []ref.Val
}

func (o object) Iterator() traits.Iterator {
	return types.NewRefValList(types.DefaultTypeAdapter, o.keys).(traits.Iterable).Iterator()
}

// The types of the names that a condition may use, beside arguments and tool.
var records = map[string]map[string]*types.Type{
	"belay.Agent":  {"name": types.StringType, "provider": types.StringType, "model": types.StringType},
	"belay.Job":    {"id": types.StringType, "tenant": types.StringType, "parent": types.StringType, "started_by": types.StringType},
	"belay.Origin": {"by": types.StringType, "harness": types.StringType, "changed_by": types.NewListType(types.StringType)},
	"belay.Past":   {"tool": types.StringType, "outcome": types.StringType, "arguments": types.NewMapType(types.StringType, types.DynType)},
}

// record is a value of one of them.
type record struct {
	name   string
	fields map[string]ref.Val
}

func (r record) Type() ref.Type { return types.NewObjectType(r.name) }
func (r record) Value() any     { return r }
func (r record) Equal(other ref.Val) ref.Val {
	return types.MaybeNoSuchOverloadErr(other)
}

func (r record) ConvertToNative(t reflect.Type) (any, error) {
	return nil, fmt.Errorf("policy: a %s has no form as %v", r.name, t)
}

func (r record) ConvertToType(t ref.Type) ref.Val {
	if t == types.TypeType {
		return types.NewObjectType(r.name)
	}
	return types.NewErr("no such overload")
}

// typed provides the record types to the checker and the evaluator.
type typed struct{ *types.Registry }

func (p typed) FindStructType(name string) (*types.Type, bool) {
	if _, ok := records[name]; ok {
		return types.NewTypeTypeWithParam(types.NewObjectType(name)), true
	}
	return p.Registry.FindStructType(name)
}

func (p typed) FindStructFieldNames(name string) ([]string, bool) {
	fields, ok := records[name]
	if !ok {
		return p.Registry.FindStructFieldNames(name)
	}
	return sortedNames(fields), true
}

func (p typed) FindStructFieldType(name, field string) (*types.FieldType, bool) {
	fields, ok := records[name]
	if !ok {
		return p.Registry.FindStructFieldType(name, field)
	}
	t, ok := fields[field]
	if !ok {
		return nil, false
	}
	return &types.FieldType{
		Type:  t,
		IsSet: func(any) bool { return true },
		GetFrom: func(target any) (any, error) {
			if r, ok := target.(record); ok {
				return r.fields[field], nil
			}
			return nil, errors.New("no such overload")
		},
	}, true
}

func sortedNames[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
