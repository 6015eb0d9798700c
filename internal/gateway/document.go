package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// document is a JSON object whose bytes stay as they are, apart from edits.
type document struct {
	raw    []byte
	fields []field
	edits  []edit
}

// field is a key of the object with the place of its value.
type field struct {
	name     string
	from, to int
}

type edit struct {
	from, to int
	text     string
}

// maxFields bounds the keys of an object; no API has a third of that.
const maxFields = 256

// parse reads an object. Of a key that is there twice programs differ on which counts,
// so there may be none. The error is a text for the caller.
func parse(raw []byte) (*document, error) {
	d := &document{raw: raw}
	p := parser{raw}
	at := p.space(0)
	if p.is(at, '{') {
		d.fields = make([]field, 0, 16)
		at = p.object(at, 0, d)
	} else {
		at = p.value(at, 0)
	}
	switch {
	case at < 0 || p.space(at) < len(raw):
		return nil, fmt.Errorf("the body is no JSON")
	case d.fields == nil:
		return nil, fmt.Errorf("the body is no JSON object")
	case len(d.fields) > maxFields:
		return nil, fmt.Errorf("the body has more than %d keys", maxFields)
	}
	for i := range d.fields {
		if d.field(d.fields[i].name) != &d.fields[i] {
			return nil, fmt.Errorf("the body has a key twice")
		}
	}
	return d, nil
}

// field finds a key; nil when it is not there.
func (d *document) field(name string) *field {
	for i := range d.fields {
		if d.fields[i].name == name {
			return &d.fields[i]
		}
	}
	return nil
}

// value is the raw value of a key; nil when it is not there, or is null.
func (d *document) value(name string) json.RawMessage {
	f := d.field(name)
	if f == nil || string(d.raw[f.from:f.to]) == "null" {
		return nil
	}
	return d.raw[f.from:f.to]
}

// misspelt finds a key that differs from one of these in upper and lower case only:
// some servers would take it for that.
func (d *document) misspelt(known ...string) string {
	for i := range d.fields {
		for _, name := range known {
			if len(d.fields[i].name) >= len(name) && strings.EqualFold(d.fields[i].name, name) && d.fields[i].name != name {
				return name
			}
		}
	}
	return ""
}

// set gives a key another value. Where it is not there it becomes the first.
func (d *document) set(name, value string) {
	if f := d.field(name); f != nil {
		d.edits = append(d.edits, edit{f.from, f.to, value})
		return
	}
	at := bytes.IndexByte(d.raw, '{') + 1
	text := `"` + name + `":` + value
	if len(d.fields) > 0 || slices.ContainsFunc(d.edits, func(e edit) bool { return e.from == at && e.to == at }) {
		text += ","
	}
	d.edits = append(d.edits, edit{at, at, text})
}

// bytes is the document with its edits made.
func (d *document) bytes() []byte {
	if len(d.edits) == 0 {
		return d.raw
	}
	size := len(d.raw)
	for _, e := range d.edits {
		size += len(e.text)
	}
	// What was added last at one place stands first there.
	slices.Reverse(d.edits)
	slices.SortStableFunc(d.edits, func(a, b edit) int { return a.from - b.from })
	out := make([]byte, 0, size)
	at := 0
	for _, e := range d.edits {
		out = append(append(out, d.raw[at:e.from]...), e.text...)
		at = e.to
	}
	d.edits = nil
	return append(out, d.raw[at:]...)
}
