package policy

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"github.com/belay-run/belay/internal/yamlfile"
)

const (
	maxCondition = 4000 // characters of source
	maxNodes     = 2000 // of its tree
	maxNesting   = 60   // of its parentheses and calls
	maxRegexp    = 2000 // steps of a compiled regular expression
	// maxCost bounds one evaluation to a fraction of a second: about 5,000 turns of a
	// loop, or one walk over 20 MB of text, or a regular expression over 5 MB. The
	// library keeps account of loops in a time that grows with the square of this.
	maxCost     = 30_000
	bytesAtCost = 700 // bytes of text that cost 1
)

// variables are the names that a condition may use.
var variables = []string{"agent", "arguments", "calls", "job", "origin", "tool"}

// beforeHooks are the variables whose values no hook and no history can change.
var beforeHooks = []string{"agent", "job", "tool"}

var environment = sync.OnceValues(func() (*cel.Env, error) {
	registry, err := types.NewRegistry()
	if err != nil {
		return nil, err
	}
	return cel.NewEnv(
		cel.CustomTypeProvider(typed{registry}), cel.CustomTypeAdapter(registry),
		cel.OptionalTypes(),
		cel.ParserExpressionSizeLimit(maxCondition), cel.ExpressionNodeLimit(maxNodes), cel.ParserRecursionLimit(maxNesting),
		cel.RegexProgramSizeLimit(maxRegexp),
		cel.Variable("tool", cel.StringType),
		cel.Variable("arguments", cel.MapType(cel.StringType, cel.DynType)),
		cel.Variable("agent", cel.ObjectType("belay.Agent")),
		cel.Variable("job", cel.ObjectType("belay.Job")),
		cel.Variable("origin", cel.ObjectType("belay.Origin")),
		cel.Variable("calls", cel.ListType(cel.ObjectType("belay.Past"))),
	)
})

// condition is a compiled expression that says whether a rule is about a call.
type condition struct {
	source  string
	program cel.Program
	// early says that it needs neither arguments nor origin nor earlier calls.
	early bool
}

// badCondition is why an expression cannot be used.
type badCondition struct{ message, hint string }

func (b badCondition) Error() string { return b.message }

// compile reads an expression. Its error is a badCondition.
func compile(source string) (c *condition, err error) {
	defer func() { // whatever the libraries panic on must not end the process
		if recover() != nil {
			c, err = nil, badCondition{"the condition cannot be compiled", "write it in a simpler way"}
		}
	}()
	env, err := environment()
	if err != nil {
		return nil, badCondition{"conditions cannot be compiled: " + err.Error(), "this is not your fault; please report it"}
	}
	if len([]rune(source)) > maxCondition {
		return nil, badCondition{fmt.Sprintf("the condition is longer than %d characters", maxCondition), "split it into several rules"}
	}
	tree, issues := env.Compile(source)
	if issues.Err() != nil {
		return nil, explained(issues)
	}
	if t := tree.OutputType(); !t.IsExactType(types.BoolType) && !t.IsExactType(types.DynType) {
		return nil, badCondition{"the condition gives " + t.String() + ", not true or false", "compare it with something, such as == or in"}
	}
	early, err := inspect(tree)
	if err != nil {
		return nil, err
	}
	program, err := env.Program(tree, cel.EvalOptions(cel.OptOptimize), cel.CostLimit(maxCost), cel.CostTracking(weights{}))
	if err != nil {
		return nil, badCondition{"the condition cannot be compiled: " + firstLine(err.Error()), "check its regular expressions and constants"}
	}
	return &condition{source: source, program: program, early: early}, nil
}

var (
	undeclared = regexp.MustCompile(`^undeclared reference to '([A-Za-z0-9_.]+)'`)
	undefined  = regexp.MustCompile(`^undefined field '([A-Za-z0-9_]+)'`)
)

func explained(issues *cel.Issues) badCondition {
	first := issues.Errors()[0]
	message := fmt.Sprintf("%s at character %d", firstLine(first.Message), first.Location.Column()+1)
	if first.Location.Line() > 1 {
		message = fmt.Sprintf("%s at its line %d, character %d", firstLine(first.Message), first.Location.Line(), first.Location.Column()+1)
	}
	if m := undeclared.FindStringSubmatch(first.Message); m != nil {
		return badCondition{message, yamlfile.Meant(m[1], variables)}
	}
	if m := undefined.FindStringSubmatch(first.Message); m != nil {
		var fields []string
		for _, r := range records {
			fields = append(fields, sortedNames(r)...)
		}
		return badCondition{message, yamlfile.Meant(m[1], fields)}
	}
	return badCondition{message, "conditions are CEL, such as: has(arguments.branch) && arguments.branch == \"main\""}
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return s
}

var zoned = []string{
	"getFullYear", "getMonth", "getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear",
	"getHours", "getMinutes", "getSeconds", "getMilliseconds",
}

// inspect refuses what could differ from one run or machine to the next, and says
// whether the condition can be decided before hooks are asked.
func inspect(tree *cel.Ast) (early bool, err error) {
	early = true
	ast.PostOrderVisit(tree.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		switch e.Kind() {
		case ast.MapKind, ast.StructKind:
			err = badCondition{"a condition cannot make maps: their order is a matter of chance", "compare single values"}
		case ast.CallKind:
			if slices.Contains(zoned, e.AsCall().FunctionName()) && len(e.AsCall().Args()) > 0 {
				err = badCondition{"a condition cannot use time zones: machines do not agree on them", "leave the zone out, for UTC"}
			}
		case ast.IdentKind:
			name := e.AsIdent()
			if slices.Contains(variables, name) && !slices.Contains(beforeHooks, name) {
				early = false
			}
		}
	}))
	return early, err
}

// weights are what operations on text cost. The library's own leave some out, and
// count a text's characters, which is a walk over it in itself.
type weights struct{}

func (weights) CallCost(function, _ string, args []ref.Val, result ref.Val) *uint64 {
	var size int
	switch function {
	case operators.Add:
		size = textSize(result)
	case operators.Equals, operators.NotEquals, operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals:
		if len(args) == 2 {
			size = min(textSize(args[0]), textSize(args[1]))
		}
	case "size", "contains", "startsWith", "endsWith":
		if len(args) > 0 {
			size = textSize(args[0])
		}
	case "matches":
		if len(args) == 2 {
			size = textSize(args[0]) * (4 + textSize(args[1])/16)
		}
	}
	if size == 0 {
		return nil
	}
	cost := 1 + uint64(size)/bytesAtCost
	return &cost
}

func textSize(v ref.Val) int {
	text, _ := v.(types.String)
	return len(text)
}

// holds evaluates the condition. When it cannot be evaluated the problem says why,
// without any value of the call.
func (c *condition) holds(f *facts) (holds bool, problem string) {
	if c == nil {
		return true, ""
	}
	defer func() {
		if recover() != nil {
			holds, problem = false, "it broke off"
		}
	}()
	v, _, err := c.program.Eval(f)
	if err != nil {
		return false, c.problem(err)
	}
	b, ok := v.(types.Bool)
	if !ok {
		return false, "it gives something other than true or false"
	}
	return bool(b), ""
}

var noKey = regexp.MustCompile(`^no such key: ([A-Za-z_][A-Za-z0-9_]*)$`)

// problem says what went wrong in words of our own, since the library's may quote
// arguments. A key is named when it stands in the condition itself.
func (c *condition) problem(err error) string {
	message := firstLine(err.Error())
	var root *types.Err
	if errors.As(err, &root) {
		message = firstLine(root.String())
	}
	switch m := noKey.FindStringSubmatch(message); {
	case m != nil && strings.Contains(c.source, m[1]):
		return fmt.Sprintf("the call has no %q", m[1])
	case strings.HasPrefix(message, "no such key"):
		return "the call lacks a key"
	case strings.Contains(message, "no such overload"):
		return "a value is of another type than the condition expects"
	case strings.Contains(message, "cost limit"):
		return "it would take too long"
	}
	return "an operation failed"
}

// facts are the values of the variables for one call, each made when it is first
// needed.
type facts struct {
	call    *Call
	history []Past
	made    map[string]ref.Val
}

// arguments reads the call's arguments, once.
func (f *facts) arguments() (ref.Val, error) {
	v, err := readObject(f.call.Arguments)
	if err != nil {
		v = unreadable(err)
	}
	f.keep("arguments", v)
	return v, err
}

func (f *facts) keep(name string, v ref.Val) {
	if f.made == nil {
		f.made = map[string]ref.Val{}
	}
	f.made[name] = v
}

// ResolveName gives the value of a variable.
func (f *facts) ResolveName(name string) (any, bool) {
	if v, ok := f.made[name]; ok {
		return v, true
	}
	v := f.value(name)
	if v == nil {
		return nil, false
	}
	f.keep(name, v)
	return v, true
}

// Parent is nil: there are no other variables.
func (f *facts) Parent() cel.Activation { return nil }

func (f *facts) value(name string) ref.Val {
	c := f.call
	switch name {
	case "tool":
		return types.String(c.Tool)
	case "arguments":
		v, _ := f.arguments() // what cannot be read is an error where it is used
		return v
	case "agent":
		return recordOf("belay.Agent", "name", c.Agent.Name, "provider", c.Agent.Provider, "model", c.Agent.Model)
	case "job":
		return recordOf("belay.Job", "id", c.Job.ID, "tenant", c.Job.Tenant, "parent", c.Job.Parent, "started_by", c.Job.StartedBy)
	case "origin":
		r := recordOf("belay.Origin", "by", c.Origin.By, "harness", c.Origin.Harness)
		r.fields["changed_by"] = types.NewStringList(types.DefaultTypeAdapter, c.Origin.ChangedBy)
		return r
	case "calls":
		past := make([]ref.Val, len(f.history))
		for i, h := range f.history {
			r := recordOf("belay.Past", "tool", h.Tool, "outcome", h.Outcome)
			v, err := readObject(h.Arguments)
			if err != nil {
				v = unreadable(err)
			}
			r.fields["arguments"] = v
			past[i] = r
		}
		return types.NewRefValList(types.DefaultTypeAdapter, past)
	}
	return nil
}

func recordOf(name string, pairs ...string) record {
	r := record{name, map[string]ref.Val{}}
	for i := 0; i < len(pairs); i += 2 {
		r.fields[pairs[i]] = types.String(pairs[i+1])
	}
	return r
}

// unreadable is the value of arguments that cannot be read: an error wherever it
// is used.
func unreadable(err error) ref.Val { return types.NewErr("arguments: %v", err) }
