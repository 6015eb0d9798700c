package wording

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

var placeholder = regexp.MustCompile(`\{[A-Za-z_][A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]+)*\}`)

// fill puts values in place of {a.b}; those without one stay.
func fill(text string, vars map[string]any) string {
	if !strings.Contains(text, "{") {
		return text
	}
	return placeholder.ReplaceAllStringFunc(text, func(found string) string {
		v, ok := lookUp(vars, found[1:len(found)-1])
		if !ok {
			return found
		}
		return format(v)
	})
}

func lookUp(vars map[string]any, path string) (any, bool) {
	var v any = vars
	for part := range strings.SplitSeq(path, ".") {
		m, ok := v.(map[string]any)
		if !ok {
			return nil, false
		}
		v = m[part]
	}
	return v, v != nil
}

// format writes a value as a person would: 3 and not 3e+00, a list as JSON.
func format(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	case json.Number:
		return v.String()
	case json.RawMessage:
		return string(v)
	case bool, int, int64:
		return fmt.Sprint(v)
	}
	raw, err := encode(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return raw
}

func encode(v any) (string, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return "", err
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

const (
	maxArgument  = 200  // characters of one argument's value in a question
	maxArguments = 1000 // and of all of them
)

// ConfirmVars returns the values for [ConfirmTool] and for an author's own
// confirmation response: {tool}, {arguments} as one readable line (not set when
// there are none), and each argument under its name.
func ConfirmVars(tool string, arguments json.RawMessage) map[string]any {
	vars := map[string]any{}
	var values map[string]any
	dec := json.NewDecoder(bytes.NewReader(arguments))
	dec.UseNumber()
	if dec.Decode(&values) == nil {
		for name, v := range values {
			vars[name] = v
		}
	}
	vars["tool"] = tool
	delete(vars, "arguments")
	if line := argumentLine(arguments, values); line != "" {
		vars["arguments"] = line
	}
	return vars
}

// argumentLine writes {"day": "Monday", "seats": 2} as "day: Monday, seats: 2",
// in the order in which the arguments stand.
func argumentLine(raw json.RawMessage, values map[string]any) string {
	var b strings.Builder
	seen := map[string]bool{}
	for _, name := range keys(raw) {
		v, ok := values[name]
		if !ok || v == nil || seen[name] {
			continue
		}
		seen[name] = true
		if b.Len() > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s: %s", name, cut(format(v), maxArgument))
	}
	return cut(b.String(), maxArguments)
}

// keys returns the names of a JSON object in the order in which they stand.
func keys(raw json.RawMessage) []string {
	dec := json.NewDecoder(bytes.NewReader(raw))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil
	}
	var names []string
	for dec.More() {
		t, err := dec.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			return names
		}
		var value json.RawMessage
		if dec.Decode(&value) != nil {
			return names
		}
		names = append(names, name)
	}
	return names
}

func cut(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n]) + "…"
}
