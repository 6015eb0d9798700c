package condition

import (
	"regexp"
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"
)

// constants are words that are no names.
var constants = []string{"True", "False", "None", "null"}

// lengthen puts the full name in the place of a short one.
type lengthen struct {
	full func(name string) []string
}

func (l *lengthen) Visit(node *ast.Node) {
	n, ok := (*node).(*ast.IdentifierNode)
	if !ok || l.full == nil || slices.Contains(constants, n.Value) {
		return
	}
	parts := l.full(n.Value)
	if len(parts) < 2 { // what was put in place is looked at again, and its first part is full
		return
	}
	var long ast.Node = &ast.IdentifierNode{Value: parts[0]}
	for _, p := range parts[1:] {
		long = &ast.MemberNode{Node: long, Property: &ast.StringNode{Value: p}}
	}
	ast.Patch(node, long)
}

// names collects the member chains of a tree, longest first: of a.b.c only that,
// and not a.b.
func names(root *ast.Node) [][]string {
	c := &chains{of: map[ast.Node][]string{}, within: map[ast.Node]bool{}}
	ast.Walk(root, c)
	var out [][]string
	for _, n := range c.order {
		chain := c.of[n]
		if c.within[n] || slices.ContainsFunc(out, func(o []string) bool { return slices.Equal(o, chain) }) {
			continue
		}
		out = append(out, chain)
	}
	return out
}

type chains struct {
	of     map[ast.Node][]string
	within map[ast.Node]bool // part of a longer chain
	order  []ast.Node
}

func (c *chains) Visit(node *ast.Node) {
	add := func(chain []string) {
		c.of[*node] = chain
		c.order = append(c.order, *node)
	}
	switch n := (*node).(type) {
	case *ast.IdentifierNode:
		if !slices.Contains(constants, n.Value) {
			add([]string{n.Value})
		}
	case *ast.ChainNode:
		if chain, ok := c.of[n.Node]; ok {
			c.within[n.Node] = true
			add(chain)
		}
	case *ast.MemberNode:
		chain, ok := c.of[n.Node]
		property, constant := n.Property.(*ast.StringNode)
		if ok && constant {
			c.within[n.Node] = true
			add(append(slices.Clone(chain), property.Value))
		}
	}
}

var (
	// A quoted text, or a comparison with "is": its left side, "not", its right side.
	comparison = regexp.MustCompile(`("[A-Za-z_][A-Za-z0-9_.]*"\s+is\s+)|("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|\bis\s+(not\s+)?([A-Za-z_][A-Za-z0-9_.]*)?`)
	literals   = []string{"True", "False", "None", "null", "true", "false", "nil", "not"}
)

// comparisons writes "a is b" as a == "b", "a is not b" as a != "b".
func comparisons(source string) string {
	if !strings.Contains(source, "is") {
		return source
	}
	var b strings.Builder
	for source != "" {
		m := comparison.FindStringSubmatchIndex(source)
		if m == nil {
			break
		}
		group := func(i int) string {
			if m[2*i] < 0 {
				return ""
			}
			return source[m[2*i]:m[2*i+1]]
		}
		b.WriteString(source[:m[0]])
		rest := source[m[1]:]
		switch name, word := group(1), group(4); {
		case name != "": // "x" is …: the name in quotes; what follows is looked at again
			name, _, _ = strings.Cut(name[1:], `"`)
			b.WriteString(name + " ")
			rest = source[m[0]+len(name)+2:]
		case group(2) != "":
			b.WriteString(group(2))
		default:
			operator := "== "
			if group(3) != "" {
				operator = "!= "
			}
			if word != "" && !slices.Contains(literals, word) && !strings.Contains(word, ".") {
				word = `"` + word + `"`
			}
			b.WriteString(operator + word)
		}
		source = rest
	}
	return b.String() + source
}
