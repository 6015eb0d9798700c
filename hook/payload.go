package hook

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Payload is what a chain runs over: the fields of a point, each raw JSON. It is
// immutable; [Payload.With] makes a changed copy that shares the other fields.
// The zero Payload belongs to no point.
type Payload struct {
	point  *Point
	values []json.RawMessage
}

// NewPayload returns a payload of p with every field at its default.
func NewPayload(p *Point) Payload {
	v := make([]json.RawMessage, len(p.Fields))
	for i := range p.Fields {
		if !p.Fields[i].Optional {
			v[i] = json.RawMessage(p.Fields[i].Default)
		}
	}
	return Payload{point: p, values: v}
}

// Point returns the payload's point, nil of the zero Payload.
func (p Payload) Point() *Point { return p.point }

// Raw returns the JSON of the i-th field of the point, nil when an optional
// field is missing. The caller must not write to it.
func (p Payload) Raw(i int) json.RawMessage { return p.values[i] }

// Get returns the JSON of the named field, nil when there is none.
func (p Payload) Get(name string) json.RawMessage {
	if p.point == nil {
		return nil
	}
	if i := p.point.Field(name); i >= 0 {
		return p.values[i]
	}
	return nil
}

// Decode unmarshals the named field into v.
func (p Payload) Decode(name string, v any) error {
	raw := p.Get(name)
	if raw == nil {
		return fmt.Errorf("the payload has no %q", name)
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return fmt.Errorf("field %q of %s: %w", name, p.point.Name, err)
	}
	return nil
}

// Text returns a field that holds a string; "" when it holds none.
func (p Payload) Text(name string) string {
	var s string
	_ = json.Unmarshal(p.Get(name), &s) // a value of another kind reads as ""
	return s
}

// With returns a copy in which the i-th field holds value. The copy keeps value,
// so the caller must not write to it afterwards. The engine and those who build
// payloads use it; a hook says what it changes in its verdict.
func (p Payload) With(i int, value json.RawMessage) Payload {
	v := make([]json.RawMessage, len(p.values))
	copy(v, p.values)
	v[i] = value
	return Payload{point: p.point, values: v}
}

// Set returns a copy in which the named field holds the JSON of v. It is for
// those who build payloads; it panics when the point has no such field or v has
// no JSON form, which is a mistake in the program.
func (p Payload) Set(name string, v any) Payload {
	i := p.point.Field(name)
	if i < 0 {
		panic(fmt.Sprintf("hook: %s has no field %q", p.point.Name, name))
	}
	raw, ok := v.(json.RawMessage)
	if !ok {
		var err error
		if raw, err = encode(v); err != nil {
			panic(fmt.Sprintf("hook: %s of %s: %v", name, p.point.Name, err))
		}
	}
	return p.With(i, raw)
}

// Change returns the change that gives the named field the JSON of v, for use in
// a verdict. An unknown name or a value without JSON form gives a change that
// the engine refuses as a wrong return.
func (p Payload) Change(name string, v any) Change {
	raw, err := encode(v)
	if err != nil {
		raw = nil
	}
	return Change{Field: p.point.Field(name), Value: raw}
}

// Digest returns the SHA-256 of the payload's point, fields and values, in hex.
// Spellings of the same value (spaces, escapes of <, > and &) give the same
// digest, so a payload that was written and read again keeps it.
func (p Payload) Digest() string {
	h := newHash()
	h.payload(p)
	return h.sum()
}

// MarshalJSON writes the payload as an object of its fields. A missing optional
// field is left out.
func (p Payload) MarshalJSON() ([]byte, error) {
	size := 2
	for i, v := range p.values {
		size += len(p.point.Fields[i].Name) + len(v) + 4
	}
	out := make([]byte, 0, size)
	out = append(out, '{')
	for i, v := range p.values {
		if v == nil {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, '"')
		out = append(out, p.point.Fields[i].Name...) // names need no escapes
		out = append(out, '"', ':')
		out = append(out, v...)
	}
	return append(out, '}'), nil
}

// ReadPayload reads the object that MarshalJSON writes. Unknown and missing
// fields are errors, and so are values that do not fit their field.
func ReadPayload(point *Point, data []byte) (Payload, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		return Payload{}, fmt.Errorf("payload of %s: %w", point.Name, err)
	}
	p := NewPayload(point)
	for i := range point.Fields {
		raw, ok := fields[point.Fields[i].Name]
		if !ok && !point.Fields[i].Optional {
			return Payload{}, fmt.Errorf("payload of %s: field %q is missing", point.Name, point.Fields[i].Name)
		}
		if ok {
			if err := point.Fields[i].fits(raw); err != nil {
				return Payload{}, fmt.Errorf("payload of %s: %w", point.Name, err)
			}
			p.values[i] = raw
			delete(fields, point.Fields[i].Name)
		}
	}
	for name := range fields {
		return Payload{}, fmt.Errorf("payload of %s: unknown field %q", point.Name, name)
	}
	return p, nil
}

// encode writes JSON without escaping <, > and &, which a model may come to read.
func encode(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
