package hook

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
)

// fits says whether raw is JSON of the field's shape. The error says what is
// wrong without quoting the value.
func (f *Field) fits(raw json.RawMessage) error {
	if err := f.Shape.fits(raw); err != nil {
		return fmt.Errorf("%s: %w", f.Name, err)
	}
	return nil
}

var (
	errNotJSON    = errors.New("not JSON")
	errEmptyValue = errors.New("no value")
)

func (s Shape) fits(raw json.RawMessage) error {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return errEmptyValue
	}
	if !json.Valid(raw) {
		return errNotJSON
	}
	first := raw[0]
	switch s {
	case Any:
		return nil
	case Text:
		return want(first == '"', "a string", raw)
	case TextOrNull:
		return want(first == '"' || first == 'n', "a string or null", raw)
	case Bool:
		return want(first == 't' || first == 'f', "true or false", raw)
	case Whole:
		return want(isNumber(first) && !bytes.ContainsAny(raw, ".eE"), "a whole number", raw)
	case NumOrNull:
		return want(isNumber(first) || first == 'n', "a number or null", raw)
	case Object:
		return want(first == '{', "an object", raw)
	case Objects:
		return eachItem(raw, "a list of objects", func(item []byte) error { return want(item[0] == '{', "an object", item) })
	case Texts:
		return eachItem(raw, "a list of strings", func(item []byte) error { return want(item[0] == '"', "a string", item) })
	case Passages:
		return eachItem(raw, "a list of objects each with a text", passage)
	case ToolCalls:
		seen := map[string]bool{}
		return eachItem(raw, "a list of tool calls", func(item []byte) error { return toolCall(item, seen) })
	}
	return fmt.Errorf("unknown shape %q", string(s))
}

func isNumber(c byte) bool { return c == '-' || (c >= '0' && c <= '9') }

func want(ok bool, what string, raw []byte) error {
	if ok {
		return nil
	}
	return fmt.Errorf("want %s, got %s", what, kindOf(raw))
}

// kindOf names the kind of a valid JSON value.
func kindOf(raw []byte) string {
	if len(raw) == 0 {
		return "nothing"
	}
	switch c := raw[0]; {
	case c == '"':
		return "a string"
	case c == '{':
		return "an object"
	case c == '[':
		return "a list"
	case c == 't' || c == 'f':
		return "a boolean"
	case c == 'n':
		return "null"
	}
	return "a number"
}

func passage(item []byte) error {
	if err := want(item[0] == '{', "an object", item); err != nil {
		return err
	}
	var p struct {
		Text json.RawMessage `json:"text"`
	}
	if err := json.Unmarshal(item, &p); err != nil {
		return errNotJSON
	}
	return want(len(p.Text) > 0 && p.Text[0] == '"', `a string under "text"`, p.Text)
}

func toolCall(item []byte, seen map[string]bool) error {
	if err := want(item[0] == '{', "an object", item); err != nil {
		return err
	}
	var c struct {
		ID   json.RawMessage `json:"id"`
		Name json.RawMessage `json:"tool_name"`
		Args json.RawMessage `json:"tool_args"`
		Type json.RawMessage `json:"type"`
	}
	if err := json.Unmarshal(item, &c); err != nil {
		return errNotJSON
	}
	if err := want(len(c.Name) > 2 && c.Name[0] == '"', `a name under "tool_name"`, c.Name); err != nil {
		return err
	}
	if err := want(len(c.Args) > 0 && c.Args[0] == '{', `an object under "tool_args"`, c.Args); err != nil {
		return err
	}
	if len(c.Type) > 0 {
		if err := want(c.Type[0] == '"' || c.Type[0] == 'n', `a string under "type"`, c.Type); err != nil {
			return err
		}
	}
	if len(c.ID) == 0 || c.ID[0] == 'n' {
		return nil
	}
	var id string
	if err := json.Unmarshal(c.ID, &id); err != nil {
		return want(false, `a string under "id"`, c.ID)
	}
	if id != "" && seen[id] {
		return errors.New("two calls have the same id")
	}
	seen[id] = true
	return nil
}

// eachItem walks the items of a valid JSON list without decoding them: 200 KB of
// messages must cost no more than one look at each byte.
func eachItem(raw []byte, what string, check func(item []byte) error) error {
	if err := want(raw[0] == '[', what, raw); err != nil {
		return err
	}
	index := 0
	for i := 1; i < len(raw); {
		switch raw[i] {
		case ' ', '\t', '\n', '\r', ',':
			i++
			continue
		case ']':
			return nil
		}
		end := valueEnd(raw, i)
		if err := check(raw[i:end]); err != nil {
			return fmt.Errorf("item %d: %w", index, err)
		}
		i, index = end, index+1
	}
	return errNotJSON
}

// valueEnd returns the end of the value that begins at i in valid JSON.
func valueEnd(raw []byte, i int) int {
	depth := 0
	for i < len(raw) {
		switch raw[i] {
		case '"':
			i = stringEnd(raw, i)
			if depth == 0 {
				return i
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i
			}
			if depth--; depth == 0 {
				return i + 1
			}
		case ',', ' ', '\t', '\n', '\r':
			if depth == 0 {
				return i
			}
		}
		i++
	}
	return i
}

// stringEnd returns the place after the closing quote of the string at i.
func stringEnd(raw []byte, i int) int {
	for i++; i < len(raw); {
		next := bytes.IndexByte(raw[i:], '"')
		if next < 0 {
			return len(raw)
		}
		quote := i + next
		back := quote
		for back > i && raw[back-1] == '\\' {
			back--
		}
		if (quote-back)%2 == 0 {
			return quote + 1
		}
		i = quote + 1
	}
	return len(raw)
}

// Finite says whether raw is a JSON number that a float64 holds.
func Finite(raw json.RawMessage) bool {
	var n float64
	raw = bytes.TrimSpace(raw)
	return len(raw) > 0 && isNumber(raw[0]) && json.Unmarshal(raw, &n) == nil && !math.IsInf(n, 0) && !math.IsNaN(n)
}
