// Package catalogue renders the table of insertion points ([hook.Points]) for
// those who cannot read Go: the constants of the Python package, the reference
// page and the JSON schemas of the payloads.
//
// [Files] gives every generated file; go generate writes them and a test fails
// when one in the tree differs.
package catalogue

//go:generate go run ./gen

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/belay-run/belay/hook"
)

// Files returns the generated files: path from the module's root to content.
func Files() (map[string][]byte, error) {
	files := map[string][]byte{
		"sdk/python/belay/_points.py":        python(),
		"docs/reference/insertion-points.md": reference(),
	}
	for _, p := range hook.Points {
		b, err := schema(p)
		if err != nil {
			return nil, fmt.Errorf("schema of %s: %w", p.Name, err)
		}
		files["spec/schemas/"+p.Name+".schema.json"] = b
	}
	return files, nil
}

const generated = "Generated from hook/points.go by go generate ./internal/catalogue. Do not edit."

func turnPoints() []*hook.Point {
	var out []*hook.Point
	for _, p := range hook.Points {
		if p.Dialect == hook.Turn {
			out = append(out, p)
		}
	}
	return out
}

// Signals returns the Python names of the signals that a modify hook at p may
// raise.
func Signals(p *hook.Point) []string {
	var out []string
	if p.Verdicts.Has(hook.Reject) {
		out = append(out, "HookRejection")
	}
	if p.Verdicts.Has(hook.Retry) {
		out = append(out, "RetryModel")
	}
	return out
}

func reference() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "<!-- %s -->\n\n# Insertion points\n\n", generated)
	b.WriteString("Where your checks can stand, in the order in which a turn (then a job) reaches them.\n\n## Around a turn\n\n")
	b.WriteString("| point | observe | modify | signals | when a modify hook fails | time: observe, modify |\n| - | - | - | - | - | - |\n")
	for _, p := range turnPoints() {
		modify, policy, limit := "–", "–", ms(p.ObserveLimit)
		if p.Modify {
			modify, policy = "`modify_"+p.Name+"`", string(p.OnFailure)
			limit += ", " + ms(p.ModifyLimit)
		}
		signals := "–"
		if s := Signals(p); len(s) > 0 {
			signals = "`" + strings.Join(s, "`, `") + "`"
		}
		fmt.Fprintf(&b, "| [%s](#%s) | `on_%s` | %s | %s | %s | %s |\n", p.Title, anchor(p.Title), p.Name, modify, signals, policy, limit)
	}
	b.WriteString("\nA failure is a crash, a timeout or a wrong return. *closed*: what the point guards does not happen. *open*: the payload goes on as it was before the hook. A signal is never a failure.\n\n")
	for _, p := range turnPoints() {
		section(&b, p)
	}
	b.WriteString("## Around a job\n\nHooks of a plugin answer `allow`, `deny`, `modify` or `escalate`. The engine and the Go interface carry these points; no command of this release asks them yet.\n\n")
	for _, p := range hook.Points {
		if p.Dialect == hook.Plugin {
			section(&b, p)
		}
	}
	return b.Bytes()
}

func section(b *bytes.Buffer, p *hook.Point) {
	fmt.Fprintf(b, "### %s\n\n%s\n\nReached %s. Payload `%s`", p.Title, p.Doc, p.When, p.Payload)
	if p.Alias != "" {
		fmt.Fprintf(b, ", also known as `on_%s`, `modify_%s` and `%s`", p.Alias, p.Alias, p.AliasPayload)
	}
	fmt.Fprintf(b, " ([schema](../../spec/schemas/%s.schema.json)).\n\n", p.Name)
	if p.Response != "" {
		fmt.Fprintf(b, "When a modify hook fails here the user hears `%s`, which `responses.yml` can replace.\n\n", p.Response)
	}
	if p.Rejected != "" {
		fmt.Fprintf(b, "When a hook rejects here the user hears `%s`, which `responses.yml` can replace.\n\n", p.Rejected)
	}
	b.WriteString("| field | value | may change | |\n| - | - | - | - |\n")
	for _, f := range p.Fields {
		change := "yes"
		if f.ReadOnly {
			change = "no"
		}
		doc := f.Doc
		if f.Optional {
			doc += " The key may be missing."
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", f.Name, shapeWords[f.Shape], change, inCell.Replace(doc))
	}
	b.WriteString("\n")
}

// inCell keeps plain text from being read as HTML or as the end of a cell.
var inCell = strings.NewReplacer("&", "&amp;", "<", "&lt;", "|", `\|`)

func anchor(title string) string { return strings.ReplaceAll(title, " ", "-") }

func ms(d time.Duration) string {
	return fmt.Sprintf("%d ms", d.Milliseconds())
}

var shapeWords = map[hook.Shape]string{
	hook.Text: "string", hook.TextOrNull: "string or null", hook.Bool: "true or false", hook.Whole: "whole number",
	hook.NumOrNull: "number or null", hook.Object: "object", hook.Objects: "list of objects", hook.Texts: "list of strings",
	hook.Passages: "list of objects with `text`", hook.ToolCalls: "list of tool calls", hook.Any: "any JSON value",
}

func schema(p *hook.Point) ([]byte, error) {
	props := map[string]any{}
	var required []string
	for _, f := range p.Fields {
		one := shapeSchema(f.Shape)
		one["description"] = f.Doc
		if f.ReadOnly {
			one["readOnly"] = true
		}
		if f.Default != "" {
			one["default"] = json.RawMessage(f.Default)
		}
		props[f.Name] = one
		if !f.Optional {
			required = append(required, f.Name)
		}
	}
	out, err := json.MarshalIndent(map[string]any{
		"$schema": "https://json-schema.org/draft/2020-12/schema", "$comment": generated,
		"title": p.Payload, "description": "Reached " + p.When + ".",
		"type": "object", "properties": props, "required": required, "additionalProperties": false,
	}, "", "  ")
	if err != nil {
		return nil, err
	}
	return append(out, '\n'), nil
}

func shapeSchema(s hook.Shape) map[string]any {
	list := func(items map[string]any) map[string]any { return map[string]any{"type": "array", "items": items} }
	switch s {
	case hook.Text:
		return map[string]any{"type": "string"}
	case hook.TextOrNull:
		return map[string]any{"type": []string{"string", "null"}}
	case hook.Bool:
		return map[string]any{"type": "boolean"}
	case hook.Whole:
		return map[string]any{"type": "integer"}
	case hook.NumOrNull:
		return map[string]any{"type": []string{"number", "null"}}
	case hook.Object:
		return map[string]any{"type": "object"}
	case hook.Objects:
		return list(map[string]any{"type": "object"})
	case hook.Texts:
		return list(map[string]any{"type": "string"})
	case hook.Passages:
		return list(map[string]any{"type": "object", "required": []string{"text"}, "properties": map[string]any{
			"text": map[string]any{"type": "string"}, "scope": map[string]any{"type": "string"},
			"source": map[string]any{"type": "string"}, "score": map[string]any{"type": "number"}}})
	case hook.ToolCalls:
		return list(map[string]any{"type": "object", "required": []string{"tool_name", "tool_args"}, "properties": map[string]any{
			"id": map[string]any{"type": []string{"string", "null"}}, "tool_name": map[string]any{"type": "string", "minLength": 1},
			"tool_args": map[string]any{"type": "object"}, "type": map[string]any{"type": []string{"string", "null"}}}})
	}
	return map[string]any{}
}
