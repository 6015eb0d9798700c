// Package rawjson writes and joins JSON without changing a byte of what others
// wrote: hooks, models and tools see their own JSON again.
package rawjson

import (
	"bytes"
	"encoding/json"
	"strings"
)

// Encode writes v as JSON without escaping <, > and &.
func Encode(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}

// Must is Encode for values that always have a JSON form; it panics otherwise.
func Must(v any) json.RawMessage {
	raw, err := Encode(v)
	if err != nil {
		panic("rawjson: no JSON form: " + err.Error())
	}
	return raw
}

// List joins raw values to a JSON list without looking into them.
func List(items []json.RawMessage) json.RawMessage {
	size := 2 + len(items)
	for _, m := range items {
		size += len(m)
	}
	out := append(make([]byte, 0, size), '[')
	for i, m := range items {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, m...)
	}
	return append(out, ']')
}

// IsObject says whether raw is a JSON object.
func IsObject(raw json.RawMessage) bool {
	raw = bytes.TrimSpace(raw)
	return len(raw) > 0 && raw[0] == '{' && json.Valid(raw)
}

// Written gives a value as the text a model reads: a string as it is, anything
// else as JSON text with a space after each colon and comma.
func Written(raw json.RawMessage) string {
	raw = bytes.TrimSpace(raw)
	if len(raw) > 0 && raw[0] == '"' {
		var s string
		if err := json.Unmarshal(raw, &s); err == nil {
			return s
		}
	}
	var tight bytes.Buffer
	if err := json.Compact(&tight, raw); err != nil {
		return string(raw)
	}
	var out strings.Builder
	quoted, escaped := false, false
	for _, c := range tight.Bytes() {
		out.WriteByte(c)
		switch {
		case escaped:
			escaped = false
		case c == '\\':
			escaped = quoted
		case c == '"':
			quoted = !quoted
		case !quoted && (c == ':' || c == ','):
			out.WriteByte(' ')
		}
	}
	return out.String()
}
