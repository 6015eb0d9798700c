package scripted

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/belay-run/belay/internal/finding"
)

// The bounds of a script, far beyond what people write. They keep the YAML
// parser, parts of which are quadratic, from being kept busy.
const (
	maxBytes  = 2 << 20
	maxTokens = 200_000
	maxDepth  = 50
	maxBlank  = 50 // blank lines in a row
)

// reader reads YAML nodes and collects what is wrong with them. Reading goes on
// after a finding, so that one run reports all. A nil node reads as nothing.
type reader struct {
	file  string
	found []finding.Finding
}

func (r *reader) err(n ast.Node, rule, message, hint string) {
	f := finding.Finding{File: r.file, Rule: rule, Severity: finding.Error, Message: message, Hint: hint}
	if n != nil {
		f.Line, f.Column = position(n)
	}
	r.found = append(r.found, f)
}

// position is where a node begins; a mapping begins at its first key.
func position(n ast.Node) (line, column int) {
	switch m := n.(type) {
	case *ast.MappingNode:
		if len(m.Values) > 0 && !m.IsFlowStyle {
			n = m.Values[0].Key
		}
	case *ast.MappingValueNode:
		n = m.Key
	}
	if t := n.GetToken(); t != nil && t.Position != nil {
		return t.Position.Line, t.Position.Column
	}
	return 0, 0
}

// parse gives the root of the document, nil when there is none to read.
func (r *reader) parse(src []byte) (root ast.Node) {
	defer func() {
		if recover() != nil { // the parser's, on odd input
			r.err(nil, "script-syntax", "the script is no YAML that can be read", "check its indentation, quotes and brackets")
			root = nil
		}
	}()
	text := strings.ReplaceAll(strings.TrimPrefix(string(src), "\ufeff"), "\r\n", "\n")
	if len(text) > maxBytes || tooBlank(text) || !utf8.ValidString(text) {
		r.err(nil, "script-syntax", "the script is too large, is no UTF-8 text, or has too many blank lines in a row", "save it as UTF-8, and take out what is not needed")
		return nil
	}
	tokens := lexer.Tokenize(text)
	if at := tooComplex(tokens); at != nil {
		r.found = append(r.found, finding.Finding{File: r.file, Line: at.Line, Column: at.Column, Rule: "script-syntax", Severity: finding.Error,
			Message: "the script has too many or too deeply nested entries", Hint: "flatten it"})
		return nil
	}
	file, err := parser.Parse(tokens, 0)
	if err != nil {
		r.syntax(err)
		return nil
	}
	for _, doc := range file.Docs {
		if doc.Body == nil || doc.Body.Type() == ast.CommentType {
			continue
		}
		if root != nil {
			r.err(doc.Body, "script-syntax", "the script has more than one document", `Delete the lines "---".`)
			return nil
		}
		root = doc.Body
	}
	if root == nil {
		r.err(nil, "script-answer", "the script is empty", "write rules: and default:")
	}
	return root
}

func (r *reader) syntax(err error) {
	f := finding.Finding{File: r.file, Rule: "script-syntax", Severity: finding.Error,
		Message: "the script is no YAML that can be read", Hint: "check indentation, quotes and brackets here and in the line before"}
	var known yaml.Error
	if errors.As(err, &known) {
		f.Message = known.GetMessage()
		if t := known.GetToken(); t != nil && t.Position != nil {
			f.Line, f.Column = t.Position.Line, t.Position.Column
		}
	}
	r.found = append(r.found, f)
}

func tooBlank(text string) bool {
	blank := 0
	for line := range strings.Lines(text) {
		if blank++; strings.TrimSpace(line) != "" {
			blank = 0
		}
		if blank > maxBlank {
			return true
		}
	}
	return false
}

// tooComplex looks at the tokens before the parser does.
func tooComplex(tokens token.Tokens) *token.Position {
	nested, line, inLine := 0, 0, 0
	for i, t := range tokens {
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			nested++
		case token.SequenceEndType, token.MappingEndType:
			nested--
		case token.SequenceEntryType, token.MappingKeyType: // "- - - x" nests without brackets
			if t.Position.Line != line {
				line, inLine = t.Position.Line, 0
			}
			inLine++
		}
		if i > maxTokens || nested > maxDepth || inLine > maxDepth || t.Position.IndentNum > 4*maxDepth {
			return t.Position
		}
	}
	return nil
}

// plain takes a tag off a node. Null is nil. Anchors are refused: a script does
// not need them, and an alias of itself never ends.
func (r *reader) plain(n ast.Node) ast.Node {
	switch v := n.(type) {
	case *ast.NullNode:
		return nil
	case *ast.AnchorNode, *ast.AliasNode:
		r.err(n, "script-syntax", "a script has no anchors (&name) and aliases (*name)", "write it out; put a text that begins with & or * in quotes")
		return nil
	case *ast.TagNode:
		return r.plain(v.Value)
	}
	return n
}

// fields gives the values of a mapping by their keys, and reports keys that are
// not known. It is nil when there is no mapping.
func (r *reader) fields(n ast.Node, what string, known []string) map[string]ast.Node {
	n = r.plain(n)
	var values []*ast.MappingValueNode
	switch m := n.(type) {
	case nil:
		return nil
	case *ast.MappingNode:
		values = m.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{m}
	default:
		r.err(n, "script-value", what+" is no mapping", "Write its keys under it: "+strings.Join(known, ", ")+".")
		return nil
	}
	out := map[string]ast.Node{}
	for _, v := range values {
		key := ""
		if s, ok := v.Key.(*ast.StringNode); ok {
			key = s.Value
		}
		if !slices.Contains(known, key) {
			r.err(v.Key, "script-key", fmt.Sprintf("unknown key %s in %s", v.Key.GetToken().Value, what), "its keys are "+strings.Join(known, ", "))
			continue
		}
		if value := r.plain(v.Value); value != nil {
			out[key] = value
		}
	}
	return out
}

func (r *reader) list(n ast.Node, what string) []ast.Node {
	n = r.plain(n)
	if s, ok := n.(*ast.SequenceNode); ok {
		return s.Values
	}
	if n != nil {
		r.err(n, "script-value", what+" is no list", `Begin each of its entries with "- ".`)
	}
	return nil
}

// oneOrMore reads a list, or one value as a list of one.
func (r *reader) oneOrMore(n ast.Node) []ast.Node {
	switch n := r.plain(n).(type) {
	case nil:
		return nil
	case *ast.SequenceNode:
		return n.Values
	default:
		return []ast.Node{n}
	}
}

// text reads a scalar as it is written: a number or a yes is text here.
func (r *reader) text(n ast.Node, what string) string {
	n = r.plain(n)
	switch s := n.(type) {
	case nil:
		return ""
	case *ast.StringNode:
		return s.Value
	case *ast.LiteralNode:
		return s.Value.Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value
	}
	r.err(n, "script-value", what+" is no text", "write a text, in quotes when it holds : or #")
	return ""
}

func (r *reader) flag(n ast.Node, what string) bool {
	if b, ok := r.plain(n).(*ast.BoolNode); ok {
		return b.Value
	}
	r.err(n, "script-value", what+" is neither true nor false", "write true")
	return false
}

func (r *reader) duration(n ast.Node, what string) time.Duration {
	text := r.text(n, what)
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > time.Hour {
		r.err(n, "script-value", what+" is no time", "write a number with its unit, such as 20ms or 1.5s; one hour at most")
		return 0
	}
	return d
}

// tree reads arguments: texts, numbers, lists and mappings. Placeholders in its
// texts are checked.
func (r *reader) tree(n ast.Node, groups []string) any {
	n = r.plain(n)
	switch v := n.(type) {
	case nil:
		return nil
	case *ast.SequenceNode:
		out := make([]any, 0, len(v.Values))
		for _, item := range v.Values {
			out = append(out, r.tree(item, groups))
		}
		return out
	case *ast.MappingNode, *ast.MappingValueNode:
		return r.branch(n, groups)
	case *ast.StringNode, *ast.LiteralNode:
		text := r.text(n, "")
		r.placeholders(n, text, groups)
		return text
	case *ast.IntegerNode:
		return v.Value
	case *ast.FloatNode:
		if !math.IsInf(v.Value, 0) {
			return v.Value
		}
	case *ast.BoolNode:
		return v.Value
	}
	r.err(n, "script-value", "a value that has no JSON form", "write a text, a number, true, false, a list or a mapping")
	return nil
}

func (r *reader) branch(n ast.Node, groups []string) any {
	values := []*ast.MappingValueNode{}
	switch m := n.(type) {
	case *ast.MappingNode:
		values = m.Values
	case *ast.MappingValueNode:
		values = append(values, m)
	}
	out := map[string]any{}
	for _, v := range values {
		out[v.Key.GetToken().Value] = r.tree(v.Value, groups)
	}
	return out
}
