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
	if !json.Valid(raw) {
		return nil, fmt.Errorf("the body is no JSON")
	}
	at := space(raw, 0)
	if raw[at] != '{' {
		return nil, fmt.Errorf("the body is no JSON object")
	}
	d := &document{raw: raw, fields: make([]field, 0, 16)}
	for at = space(raw, at+1); raw[at] != '}'; at = space(raw, at) {
		if raw[at] == ',' {
			at = space(raw, at+1)
		}
		end := stringEnd(raw, at)
		name := raw[at+1 : end-1]
		f := field{name: string(name)}
		if bytes.IndexByte(name, '\\') >= 0 {
			if err := json.Unmarshal(raw[at:end], &f.name); err != nil {
				return nil, err
			}
		}
		f.from = space(raw, space(raw, end)+1) // behind the colon
		f.to = valueEnd(raw, f.from)
		if d.field(f.name) != nil {
			return nil, fmt.Errorf("the body has a key twice")
		}
		if d.fields = append(d.fields, f); len(d.fields) > maxFields {
			return nil, fmt.Errorf("the body has more than %d keys", maxFields)
		}
		at = f.to
	}
	return d, nil
}

// The next three read JSON that is known to be valid.

// space is the first place from at on that is no white space.
func space(b []byte, at int) int {
	for b[at] == ' ' || b[at] == '\n' || b[at] == '\t' || b[at] == '\r' {
		at++
	}
	return at
}

// stringEnd is the place behind a string that begins at at. Without an end it is that
// of b.
func stringEnd(b []byte, at int) int {
	for i := at + 1; i < len(b); {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			break
		}
		i += n
		escapes := 0
		for b[i-1-escapes] == '\\' {
			escapes++
		}
		if i++; escapes%2 == 0 {
			return i
		}
	}
	return len(b)
}

func valueEnd(b []byte, at int) int {
	switch b[at] {
	case '"':
		return stringEnd(b, at)
	case '{', '[':
	default:
		return at + bytes.IndexAny(b[at:], ",}] \n\t\r")
	}
	for depth := 0; ; at++ {
		switch b[at] {
		case '"':
			at = stringEnd(b, at) - 1
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return at + 1
			}
		}
	}
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
