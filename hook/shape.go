package hook

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"unicode/utf8"
)

// fits says whether raw is JSON of the field's shape. The error says what is
// wrong without quoting the value.
func (f *Field) fits(raw json.RawMessage) error {
	if err := f.Shape.fits(raw); err != nil {
		return fmt.Errorf("%s: %w", f.Name, err)
	}
	return nil
}

var errNotJSON = errors.New("the value is not JSON")

func (s Shape) fits(raw json.RawMessage) error {
	raw = bytes.Trim(raw, space)
	if !valid(raw) || !utf8.Valid(raw) {
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
		return want(first == 'n' || Finite(raw), "a finite number or null", raw)
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
	text := member(item, "text")
	return want(len(text) > 0 && text[0] == '"', `a string under "text"`, text)
}

func toolCall(item []byte, seen map[string]bool) error {
	if err := want(item[0] == '{', "an object", item); err != nil {
		return err
	}
	name, args, kind, id := member(item, "tool_name"), member(item, "tool_args"), member(item, "type"), member(item, "id")
	switch {
	case len(name) < 3 || name[0] != '"': // "" is no name
		return want(false, `a name under "tool_name"`, name)
	case len(args) == 0 || args[0] != '{':
		return want(false, `an object under "tool_args"`, args)
	case len(kind) > 0 && kind[0] != '"' && kind[0] != 'n':
		return want(false, `a string under "type"`, kind)
	case len(id) == 0 || id[0] == 'n':
		return nil
	case id[0] != '"':
		return want(false, `a string under "id"`, id)
	}
	key := unquote(id)
	if key != "" && seen[key] {
		return errors.New("two calls have the same id")
	}
	seen[key] = true
	return nil
}

// Finite says whether raw is a JSON number that a float64 holds.
func Finite(raw json.RawMessage) bool {
	var n float64
	raw = bytes.Trim(raw, space)
	return len(raw) > 0 && isNumber(raw[0]) && json.Unmarshal(raw, &n) == nil && !math.IsInf(n, 0) && !math.IsNaN(n)
}
