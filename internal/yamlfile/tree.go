package yamlfile

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// The bounds of a YAML file. They are far beyond what people write, and keep the
// parser, some of whose parts are quadratic, from being kept busy.
const (
	maxEntries = 10_000 // keys of all mappings
	maxTokens  = 300_000
	maxDepth   = 100
	maxBlank   = 50      // blank lines in a row
	maxSize    = 200_000 // values, with every alias written out
)

// Kind is what a value is.
type Kind int

// The kinds.
const (
	Null Kind = iota
	Text
	Whole  // a whole number
	Number // a number with a fraction, or an infinite one
	Bool
	List
	Mapping
)

var kindNames = map[Kind]string{
	Null: "nothing", Text: "text", Whole: "a whole number", Number: "a number",
	Bool: "true or false", List: "a list", Mapping: "a mapping",
}

// Node is one value of a YAML file, with its place.
type Node struct {
	Kind         Kind
	Line, Column int
	Text         string // a scalar as it is written; for text, its value
	Items        []*Node
	Fields       []Field
	size         int // of the values below it, aliases written out
}

// Field is one key of a mapping with its value. The place is the key's.
type Field struct {
	Name         string
	Line, Column int
	Value        *Node
}

// Field returns the value of a mapping's key, or nil.
func (n *Node) Field(name string) *Node {
	for i := range n.Fields {
		if n.Fields[i].Name == name {
			return n.Fields[i].Value
		}
	}
	return nil
}

// Parse reads a YAML file into a tree. It returns nil when it cannot be read; the
// findings then say why. It returns nil without a finding when there is nothing in
// it, and a lone null, such as ~, is nothing: the callers decide whether a file may
// be empty, and none must take one for a file with keys.
func (r *Reader) Parse(data []byte) *Node {
	text, ok := r.Decode(data)
	if !ok {
		return nil
	}
	if n := r.Part(text, 0); n != nil && n.Kind != Null {
		return n
	}
	return nil
}

// Part is Parse for YAML that stands in a file of another kind, with that many
// lines of the file above it. The file's encoding has been looked at by Decode.
func (r *Reader) Part(text string, above int) *Node {
	part := *r
	part.above = above
	return part.parse(text)
}

func (r *Reader) parse(text string) *Node {
	if r.blankRuns(text) {
		return nil
	}
	file := r.syntax(text)
	if file == nil {
		return nil
	}
	var body ast.Node
	for _, doc := range file.Docs {
		if doc.Body == nil || doc.Body.Type() == ast.CommentType {
			continue
		}
		if body != nil {
			r.At(r.place(doc.Body)).Err("yaml-documents", "the file holds more than one document", `keep one and delete the lines "---"`)
			return nil
		}
		body = doc.Body
	}
	if body == nil {
		return nil
	}
	c := converter{r: r, anchors: map[string]*Node{}}
	n := c.convert(body, 0)
	if c.stopped {
		return nil
	}
	return n
}

// Decode checks a file's encoding, takes a byte order mark off and makes every line
// end in one way.
func (r *Reader) Decode(data []byte) (string, bool) {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	if bytes.HasPrefix(data, []byte("\xff\xfe")) || bytes.HasPrefix(data, []byte("\xfe\xff")) || !utf8.Valid(data) {
		r.Whole().Err("bad-encoding", "the file is not UTF-8 text", "save it as UTF-8")
		return "", false
	}
	text := strings.ReplaceAll(string(data), "\r\n", "\n")
	line := 1
	for l := range strings.Lines(text) {
		if i := strings.IndexFunc(l, forbidden); i >= 0 {
			r.At(line, utf8.RuneCountInString(l[:i])+1).Err("bad-encoding", "a control character stands in the file", "delete it, or write it as an escape in double quotes")
			return "", false
		}
		line++
	}
	return text, true
}

// blankRuns reports blank lines on which the parser would spend its time.
func (r *Reader) blankRuns(text string) bool {
	line, blank := 1, 0
	for l := range strings.Lines(text) {
		blank++
		if strings.TrimSpace(l) != "" {
			blank = 0
		}
		if blank > maxBlank {
			r.At(r.above+line, 0).Err("yaml-too-complex", fmt.Sprintf("more than %d blank lines in a row", maxBlank), "delete some of them")
			return true
		}
		line++
	}
	return false
}

func forbidden(c rune) bool {
	return c < ' ' && c != '\n' && c != '\t' || c >= 0x7f && c <= 0x9f && c != 0x85 || c == 0xfeff
}

// syntax runs the parser, which may panic on odd input.
func (r *Reader) syntax(text string) (file *ast.File) {
	defer func() {
		if recover() != nil {
			r.Whole().Err("yaml-syntax", "the file is no YAML that can be read", "check its indentation, quotes and brackets")
			file = nil
		}
	}()
	tokens := lexer.Tokenize(text)
	if at := tooComplex(tokens); at != nil {
		r.At(r.above+at.Line, at.Column).Err("yaml-too-complex", "the file has too many or too deeply nested entries", "split or flatten it")
		return nil
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err == nil {
		return file
	}
	f := r.Whole()
	message := "the file is no YAML that can be read"
	var se *yaml.SyntaxError
	if errors.As(err, &se) {
		message = se.Message
		if se.Token != nil && se.Token.Position != nil {
			f = r.At(r.above+se.Token.Position.Line, se.Token.Position.Column)
		}
	}
	f.Err("yaml-syntax", message, "check indentation, quotes and brackets here and in the line before")
	return nil
}

// tooComplex looks at the tokens before the parser does, and returns the place
// where they go beyond the bounds.
func tooComplex(tokens token.Tokens) *token.Position {
	entries, nested, line, inLine := 0, 0, 0, 0
	for i, t := range tokens {
		switch t.Type {
		case token.MappingValueType:
			entries++
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
		if entries > maxEntries || nested > maxDepth || inLine > maxDepth || i > maxTokens {
			return t.Position
		}
	}
	return nil
}

// converter turns the parser's tree into ours. Aliases share the nodes of their
// anchors, so that a few lines cannot grow to gigabytes; what the tree would be
// when written out is bounded too, since readers walk it.
type converter struct {
	r       *Reader
	anchors map[string]*Node
	stopped bool
}

func (c *converter) stop(n ast.Node, rule, message, hint string) *Node {
	if !c.stopped {
		c.stopped = true
		c.r.At(c.r.place(n)).Err(rule, message, hint)
	}
	return &Node{}
}

func (c *converter) convert(n ast.Node, depth int) *Node {
	if c.stopped {
		return &Node{}
	}
	if depth > maxDepth {
		return c.stop(n, "yaml-too-complex", "the file has too deeply nested entries", "flatten it")
	}
	var out *Node
	switch n := n.(type) {
	case *ast.MappingNode:
		out = c.mapping(n, n.Values, depth)
	case *ast.MappingValueNode:
		out = c.mapping(n, []*ast.MappingValueNode{n}, depth)
	case *ast.SequenceNode:
		out = &Node{Kind: List}
		for _, v := range n.Values {
			out.Items = append(out.Items, c.convert(v, depth+1))
		}
	case *ast.AnchorNode:
		out = c.convert(n.Value, depth+1)
		c.anchors[n.Name.GetToken().Value] = out
		return out
	case *ast.AliasNode:
		target, ok := c.anchors[n.Value.GetToken().Value]
		if !ok {
			return c.stop(n, "yaml-syntax", "an alias (*name) has no anchor (&name) before it", "define the anchor above, or put the text in quotes if it begins with *")
		}
		return target
	case *ast.TagNode:
		return c.tag(n, depth)
	default:
		out = scalar(n)
	}
	if out.Line == 0 {
		out.Line, out.Column = c.r.place(n)
	}
	return c.weigh(n, out)
}

func (c *converter) weigh(n ast.Node, out *Node) *Node {
	out.size = 1
	for _, i := range out.Items {
		out.size += i.size
	}
	for _, f := range out.Fields {
		out.size += f.Value.size
	}
	if out.size > maxSize {
		return c.stop(n, "yaml-too-complex", "the file's aliases repeat too much", "write out what is needed instead of aliases of aliases")
	}
	return out
}

func (c *converter) mapping(n ast.Node, values []*ast.MappingValueNode, depth int) *Node {
	out := &Node{Kind: Mapping}
	first := map[string]int{} // name → line
	var merged []Field
	for _, v := range values {
		key := ast.Node(v.Key)
		if k, ok := key.(*ast.MappingKeyNode); ok {
			key = k.Value
		}
		if _, ok := key.(*ast.MergeKeyNode); ok {
			merged = append(merged, c.merge(v, depth)...)
			continue
		}
		line, column := c.r.place(key)
		value := c.convert(v.Value, depth+1)
		name, ok := keyName(key)
		if !ok {
			c.r.At(line, column).Err("wrong-type", "a key is not plain text", "write keys as plain words")
			continue
		}
		if before, ok := first[name]; ok {
			c.r.At(line, column).Err("duplicate-key", fmt.Sprintf("%s stands here a second time; the first is in line %d", Shown(name), before), "keep one of the two")
			continue
		}
		first[name] = line
		out.Fields = append(out.Fields, Field{name, line, column, value})
	}
	for _, f := range merged { // a key of the mapping's own wins over a merged one
		if _, ok := first[f.Name]; !ok {
			first[f.Name] = f.Line
			out.Fields = append(out.Fields, f)
		}
	}
	if len(out.Fields) > 0 {
		out.Line, out.Column = out.Fields[0].Line, out.Fields[0].Column
	}
	return out
}

// merge reads the value of a key "<<": a mapping, or a list of them.
func (c *converter) merge(v *ast.MappingValueNode, depth int) []Field {
	value := c.convert(v.Value, depth+1)
	sources := []*Node{value}
	if value.Kind == List {
		sources = value.Items
	}
	var out []Field
	for _, s := range sources {
		if s.Kind != Mapping && !c.stopped {
			c.r.At(c.r.place(v)).Err("wrong-type", "<< merges something that is no mapping", "let it name the anchor of a mapping")
			continue
		}
		out = append(out, s.Fields...)
	}
	return out
}

func (c *converter) tag(n *ast.TagNode, depth int) *Node {
	switch name := n.Start.Value; name {
	case "!!str":
		out := c.convert(n.Value, depth+1)
		if out.Kind == List || out.Kind == Mapping {
			return out
		}
		return &Node{Kind: Text, Text: out.Text, Line: out.Line, Column: out.Column, size: 1}
	case "!!int", "!!float", "!!bool", "!!null", "!!map", "!!seq":
		if n.Value == nil {
			line, column := c.r.place(n)
			return &Node{Line: line, Column: column, size: 1}
		}
		return c.convert(n.Value, depth+1)
	default:
		return c.stop(n, "yaml-syntax", "a tag (!name) that cannot be used here", "delete it, or put the text in quotes if it begins with !")
	}
}

func scalar(n ast.Node) *Node {
	switch n := n.(type) {
	case *ast.StringNode:
		return &Node{Kind: Text, Text: n.Value}
	case *ast.LiteralNode:
		return &Node{Kind: Text, Text: n.Value.Value}
	case *ast.IntegerNode:
		return &Node{Kind: Whole, Text: fmt.Sprint(n.Value)}
	case *ast.FloatNode:
		return &Node{Kind: Number, Text: n.Token.Value}
	case *ast.InfinityNode, *ast.NanNode:
		return &Node{Kind: Number, Text: n.GetToken().Value}
	case *ast.BoolNode:
		return &Node{Kind: Bool, Text: fmt.Sprint(n.Value)}
	default:
		return &Node{Kind: Null}
	}
}

func keyName(n ast.Node) (string, bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return n.GetToken().Value, true
	}
	return "", false
}

// place is where a value begins in the file.
func (r *Reader) place(n ast.Node) (line, column int) {
	line, column = place(n)
	if line > 0 {
		line += r.above
	}
	return line, column
}

// place is where a value begins in what was parsed. The parser's own token of a
// mapping is its first colon.
func place(n ast.Node) (line, column int) {
	switch m := n.(type) {
	case *ast.MappingValueNode:
		return place(m.Key)
	case *ast.MappingNode:
		if !m.IsFlowStyle && len(m.Values) > 0 {
			return place(m.Values[0].Key)
		}
	}
	if n == nil {
		return 0, 0
	}
	if t := n.GetToken(); t != nil && t.Position != nil {
		return t.Position.Line, t.Position.Column
	}
	return 0, 0
}
