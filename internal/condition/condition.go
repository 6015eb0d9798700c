// Package condition evaluates the small expressions that authors write in agent
// files, such as the condition of a response's variant:
//
//	session.project.verified and session.cart.total > 100
//	not session.project.name
//	session.order.state in ["sent", "paid"]
//
// The words are Python-like (and, or, not, in, ==); True, False and None read as
// true, false and nil. A bare name holds when its value is set and not false. A
// name that is not defined is nil, never an error, at any depth, and compares as
// neither less nor greater than anything. "is" and "is not" compare too; a single
// word after them is a text, so that "state is sent" means state == "sent".
//
// [Condition.Names] tells which values a condition looks at, so that a check can
// find the names that lead nowhere. Where short names stand for longer ones,
// [CompileIn] is told how.
//
// A condition cannot run away: there are no loops and no calls but a few
// functions (len, lower, upper, trim), its length is bounded, and a run has a
// memory budget.
package condition

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/parser"
	"github.com/expr-lang/expr/vm"
)

const (
	maxLength = 2000   // bytes of source
	maxNodes  = 500    // nodes of its tree
	maxMemory = 10_000 // elements that a run may make
)

var functions = []string{"len", "lower", "upper", "trim"}

// Condition is a compiled expression. It is safe for use by many goroutines.
type Condition struct {
	source  string
	program *vm.Program
	names   [][]string
}

// String returns the source.
func (c *Condition) String() string { return c.source }

// MarshalText returns the source, for JSON that people read.
func (c *Condition) MarshalText() ([]byte, error) { return []byte(c.source), nil }

// Names returns the values that the condition looks at, in the order in which they
// stand, each once: session.project.name is [session project name].
func (c *Condition) Names() [][]string { return c.names }

// Compile reads a condition. Its error says what is wrong in one line.
func Compile(source string) (*Condition, error) { return CompileIn(source, nil) }

// CompileIn reads a condition in which some names stand for longer ones: full gives
// for the first part of a name what is to stand there, such as [session cart total]
// for total, or nil to leave it.
func CompileIn(source string, full func(name string) []string) (c *Condition, err error) {
	if strings.TrimSpace(source) == "" {
		return nil, errors.New("the condition is empty")
	}
	if len(source) > maxLength {
		return nil, fmt.Errorf("the condition is longer than %d bytes", maxLength)
	}
	defer func() { // the compiler folds constants, and some of them panic
		if r := recover(); r != nil {
			c, err = nil, errors.New("the condition cannot be compiled")
		}
	}()
	text := comparisons(source)
	tree, err := parser.Parse(text)
	if err != nil {
		return nil, plain(err)
	}
	if err := allowed(&tree.Node); err != nil {
		return nil, err
	}
	long := &lengthen{full: full}
	ast.Walk(&tree.Node, long)
	options := []expr.Option{
		expr.Env(map[string]any{}), expr.AllowUndefinedVariables(), expr.AsAny(),
		expr.MaxNodes(maxNodes), expr.DisableAllBuiltins(),
		expr.Function(holdsName, callHolds, new(func(any) bool)),
		expr.Function(orderName, callOrder, new(func(string, any, any) bool)),
		expr.Patch(long), expr.Patch(&rewrite{}),
	}
	for _, f := range functions {
		options = append(options, expr.EnableBuiltin(f))
	}
	program, err := expr.Compile(text, options...)
	if err != nil {
		return nil, plain(err)
	}
	return &Condition{source: source, program: program, names: names(&tree.Node)}, nil
}

// Holds evaluates the condition over vars, whose values are what
// encoding/json gives: nested maps, lists, strings, float64, bool. An error
// means that it could not be evaluated (such as a text where a number is
// needed); it then does not hold. The error's text may quote values, so it is
// not for logs.
func (c *Condition) Holds(vars map[string]any) (bool, error) {
	if vars == nil {
		vars = map[string]any{}
	}
	machine := vm.VM{MemoryBudget: maxMemory}
	v, err := machine.Run(c.program, vars)
	if err != nil {
		return false, fmt.Errorf("condition %q: %w", c.source, err)
	}
	return holds(v), nil
}

// plain takes the source's picture out of expr's errors: one line, with the
// column when there is one.
func plain(err error) error {
	var fe *file.Error
	if errors.As(err, &fe) {
		if fe.Line <= 1 {
			return fmt.Errorf("%s at character %d", fe.Message, fe.Column+1)
		}
		return fmt.Errorf("%s at line %d, character %d", fe.Message, fe.Line, fe.Column+1)
	}
	line, _, _ := strings.Cut(err.Error(), "\n")
	return errors.New(line)
}

// allowed refuses what could loop or call.
func allowed(node *ast.Node) error {
	v := &guard{}
	ast.Walk(node, v)
	return v.err
}

type guard struct{ err error }

func (g *guard) Visit(node *ast.Node) {
	refuse := func(what string) {
		if g.err == nil {
			g.err = fmt.Errorf("%s cannot stand in a condition", what)
		}
	}
	switch n := (*node).(type) {
	case *ast.BuiltinNode:
		if !slices.Contains(functions, n.Name) {
			refuse(fmt.Sprintf("the function %q", n.Name))
		}
	case *ast.CallNode:
		refuse("a call")
	case *ast.PredicateNode, *ast.PointerNode:
		refuse("a predicate")
	case *ast.VariableDeclaratorNode:
		refuse(`"let"`)
	case *ast.SequenceNode:
		refuse(`";"`)
	case *ast.BinaryNode:
		switch n.Operator {
		case "..":
			refuse("a range")
		case "matches":
			if _, constant := n.Right.(*ast.StringNode); !constant {
				refuse("a pattern that is no plain text")
			}
		}
	case *ast.IdentifierNode:
		if strings.HasPrefix(n.Value, "$") || strings.HasPrefix(n.Value, "__") {
			refuse(fmt.Sprintf("the name %q", n.Value))
		}
	}
}

const (
	holdsName = "__holds"
	orderName = "__order"
)

// rewrite gives a condition the meaning that the package comment promises.
type rewrite struct{}

func (*rewrite) Visit(node *ast.Node) {
	switch n := (*node).(type) {
	case *ast.IdentifierNode:
		switch n.Value {
		case "True", "False":
			ast.Patch(node, &ast.BoolNode{Value: n.Value == "True"})
		case "None", "null":
			ast.Patch(node, &ast.NilNode{})
		}
	case *ast.MemberNode:
		n.Optional = true // nil.name is nil
		ast.Patch(node, &ast.ChainNode{Node: n})
	case *ast.UnaryNode:
		if n.Operator == "not" || n.Operator == "!" {
			n.Node = call(holdsName, n.Node)
		}
	case *ast.ConditionalNode:
		n.Cond = call(holdsName, n.Cond)
	case *ast.BinaryNode:
		switch n.Operator {
		case "and", "&&", "or", "||":
			n.Left, n.Right = call(holdsName, n.Left), call(holdsName, n.Right)
		case "<", "<=", ">", ">=":
			ast.Patch(node, call(orderName, &ast.StringNode{Value: n.Operator}, n.Left, n.Right))
		}
	}
}

func call(name string, args ...ast.Node) ast.Node {
	return &ast.CallNode{Callee: &ast.IdentifierNode{Value: name}, Arguments: args}
}

func holds(v any) bool { return v != nil && v != false }

func callHolds(params ...any) (any, error) { return holds(params[0]), nil }

func callOrder(params ...any) (any, error) {
	op, a, b := params[0].(string), params[1], params[2]
	if a == nil || b == nil {
		return false, nil
	}
	if x, ok := number(a); ok {
		if y, ok := number(b); ok {
			return ordered(op, x, y), nil
		}
	}
	if x, ok := a.(string); ok {
		if y, ok := b.(string); ok {
			return ordered(op, x, y), nil
		}
	}
	return nil, fmt.Errorf("cannot compare %T with %T", a, b)
}

func ordered[T float64 | string](op string, a, b T) bool {
	switch op {
	case "<":
		return a < b
	case "<=":
		return a <= b
	case ">":
		return a > b
	default:
		return a >= b
	}
}

func number(v any) (float64, bool) {
	switch n := v.(type) {
	case float64:
		return n, true
	case int:
		return float64(n), true
	case int64:
		return float64(n), true
	case json.Number:
		f, err := n.Float64()
		return f, err == nil
	}
	return 0, false
}
