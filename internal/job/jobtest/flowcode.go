package jobtest

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// AnyOrder marks a loop over a map whose order does not matter, with the reason:
//
//	for name := range seen { // any order: they are only counted
const AnyOrder = "// any order: "

// CheckFlows reports code in the packages that makes a run of a flow differ from
// its record: clocks and timers, goroutines and what they talk by, randomness,
// the operating system and the network, and loops over maps whose order reaches
// the outside. A loop over a map that gathers into a slice which is sorted
// afterwards in the same function is fine, and so is one marked with [AnyOrder].
//
// allowed excuses findings, by "file: what", each with a reason.
func CheckFlows(t *testing.T, allowed map[string]string, packages ...string) {
	t.Helper()
	found, err := checkFlows(packages...)
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for _, f := range found {
		name := filepath.Base(f.at.Filename) + ": " + f.what
		if allowed[name] != "" {
			used[name] = true
			continue
		}
		t.Errorf("%s: %s; %s", f.at, f.what, f.hint)
	}
	for name := range allowed {
		if !used[name] {
			t.Errorf("%s is excused, and it is not there", name)
		}
	}
}

// fault is a place in flow code where it is not deterministic.
type fault struct {
	at         token.Position
	what, hint string
}

// forbidden are imports, and what of a package, that flow code must do without.
// "" stands for the whole package.
var forbidden = map[string]map[string]string{
	"time": {
		"Now": useNow, "Since": useNow, "Until": useNow, "Sleep": useLimit, "After": useLimit, "AfterFunc": useLimit,
		"NewTimer": useLimit, "NewTicker": useLimit, "Tick": useLimit,
	},
	"context": {"WithTimeout": useLimit, "WithDeadline": useLimit, "WithTimeoutCause": useLimit, "WithDeadlineCause": useLimit},
	"maps":    {"Keys": useSort, "Values": useSort, "All": useSort},

	"math/rand": {"": useStep}, "math/rand/v2": {"": useStep}, "crypto/rand": {"": useStep},
	"os": {"": useStep}, "os/exec": {"": useStep}, "net": {"": useStep}, "net/http": {"": useStep}, "syscall": {"": useStep},
	"io/ioutil": {"": useStep}, "runtime": {"": useStep}, "unsafe": {"": useStep},
}

const (
	useNow   = "ask the time by Steps.Now, which is kept"
	useLimit = "give the call a Limit or the question an Until"
	useStep  = "ask for it by Steps.Do, so that the answer is kept"
	useEach  = "run branches by Steps.Each"
	useSort  = "sort it first, as by slices.Sorted, or say why the order does not matter: " + AnyOrder + "…"
)

func checkFlows(packages ...string) ([]fault, error) {
	listed, exports, err := list(packages)
	if err != nil {
		return nil, err
	}
	var found []fault
	for _, p := range listed {
		faults, err := checkPackage(p, exports)
		if err != nil {
			return nil, fmt.Errorf("check %s: %w", p.ImportPath, err)
		}
		found = append(found, faults...)
	}
	return found, nil
}

type goPackage struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
	DepOnly                 bool
}

// list asks the go command for packages, and where the types of what they import
// stand.
func list(packages []string) (wanted []goPackage, exports map[string]string, err error) {
	cmd := exec.Command("go", append([]string{"list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles,DepOnly", "--"}, packages...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, nil, fmt.Errorf("go list: %w", err)
	}
	exports = map[string]string{}
	for d := json.NewDecoder(strings.NewReader(string(out))); d.More(); {
		var p goPackage
		if err := d.Decode(&p); err != nil {
			return nil, nil, fmt.Errorf("go list: %w", err)
		}
		exports[p.ImportPath] = p.Export
		if !p.DepOnly {
			wanted = append(wanted, p)
		}
	}
	return wanted, exports, nil
}

func checkPackage(p goPackage, exports map[string]string) ([]fault, error) {
	c := &checker{fset: token.NewFileSet(), info: &types.Info{
		Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{},
	}}
	var files []*ast.File
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(c.fset, filepath.Join(p.Dir, name), nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	open := func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }
	conf := types.Config{Importer: importer.ForCompiler(c.fset, "gc", open)}
	if _, err := conf.Check(p.ImportPath, c.fset, files, c.info); err != nil {
		return nil, err
	}
	for _, f := range files {
		c.file(f)
	}
	return c.found, nil
}

type checker struct {
	fset  *token.FileSet
	info  *types.Info
	marks map[int]bool // lines with a reason
	found []fault
}

func (c *checker) report(n ast.Node, what, hint string) {
	c.found = append(c.found, fault{c.fset.Position(n.Pos()), what, hint})
}

func (c *checker) file(f *ast.File) {
	c.marks = map[int]bool{}
	for _, group := range f.Comments {
		for _, comment := range group.List {
			if reason, ok := strings.CutPrefix(comment.Text, AnyOrder); ok && len(strings.TrimSpace(reason)) > 0 {
				c.marks[c.fset.Position(comment.Pos()).Line] = true
			}
		}
	}
	for _, imported := range f.Imports {
		path := strings.Trim(imported.Path.Value, `"`)
		if hint := forbidden[path][""]; hint != "" {
			c.report(imported, "import "+path, hint)
		}
	}
	for _, d := range f.Decls {
		ast.Inspect(d, func(n ast.Node) bool {
			c.node(n, d)
			return true
		})
	}
}

func (c *checker) node(n ast.Node, within ast.Decl) {
	switch n := n.(type) {
	case *ast.GoStmt:
		c.report(n, "go", useEach)
	case *ast.SelectStmt:
		c.report(n, "select", useEach)
	case *ast.ChanType:
		c.report(n, "chan", useEach)
	case *ast.Ident:
		c.use(n, within)
	case *ast.RangeStmt:
		_, isMap := c.info.TypeOf(n.X).Underlying().(*types.Map)
		if isMap && n.Key != nil && !c.marked(n) && !c.gathers(n, within) {
			c.report(n, "range over a map", useSort)
		}
	}
}

func (c *checker) marked(n ast.Node) bool { return c.marks[c.fset.Position(n.Pos()).Line] }

// use looks at what of other packages is named.
func (c *checker) use(id *ast.Ident, within ast.Decl) {
	o := c.info.Uses[id]
	if o == nil || o.Pkg() == nil || o.Parent() != o.Pkg().Scope() { // fields and methods have no such parent
		return
	}
	hint := forbidden[o.Pkg().Path()][o.Name()]
	if hint == "" || hint == useSort && (c.marked(id) || c.sorted(id, within)) {
		return
	}
	c.report(id, o.Pkg().Path()+"."+o.Name(), hint)
}

// sorted says that the call of a function such as maps.Keys is the argument of one
// that sorts.
func (c *checker) sorted(id *ast.Ident, within ast.Decl) (yes bool) {
	ast.Inspect(within, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if ok && c.sorts(call) {
			for _, arg := range call.Args {
				if arg.Pos() <= id.Pos() && id.End() <= arg.End() {
					yes = true
				}
			}
		}
		return !yes
	})
	return yes
}

// sorts says that a call is of slices.Sort, slices.Sorted, sort.Slice or the like.
func (c *checker) sorts(call *ast.CallExpr) bool {
	fun := call.Fun
	if generic, ok := fun.(*ast.IndexExpr); ok {
		fun = generic.X
	}
	sel, ok := fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	o := c.info.Uses[sel.Sel]
	return o != nil && o.Pkg() != nil && (o.Pkg().Path() == "sort" || o.Pkg().Path() == "slices" && strings.HasPrefix(o.Name(), "Sort"))
}

// gathers says that a loop over a map does no more than what does not depend on
// its order: it appends to slices that are sorted after it, or writes and deletes
// under the loop's key.
func (c *checker) gathers(loop *ast.RangeStmt, within ast.Decl) bool {
	var slicesOf []types.Object
	key := c.object(loop.Key)
	for _, s := range loop.Body.List {
		switch s := s.(type) {
		case *ast.AssignStmt:
			if len(s.Lhs) != 1 || len(s.Rhs) != 1 {
				return false
			}
			if at, ok := s.Lhs[0].(*ast.IndexExpr); ok && key != nil && c.object(at.Index) == key && s.Tok == token.ASSIGN && pure(s.Rhs[0]) {
				continue
			}
			to := c.object(s.Lhs[0])
			if call, ok := s.Rhs[0].(*ast.CallExpr); !ok || to == nil || !isNamed(call.Fun, "append") || c.object(call.Args[0]) != to {
				return false
			}
			slicesOf = append(slicesOf, to)
		case *ast.ExprStmt:
			call, ok := s.X.(*ast.CallExpr)
			if !ok || !isNamed(call.Fun, "delete") || key == nil || c.object(call.Args[1]) != key {
				return false
			}
		default:
			return false
		}
	}
	return !slices.ContainsFunc(slicesOf, func(o types.Object) bool { return !c.sortedAfter(o, loop, within) })
}

func (c *checker) sortedAfter(o types.Object, loop *ast.RangeStmt, within ast.Decl) (yes bool) {
	ast.Inspect(within, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && call.Pos() > loop.End() && c.sorts(call) && len(call.Args) > 0 && c.object(call.Args[0]) == o {
			yes = true
		}
		return !yes
	})
	return yes
}

// object is what a plain name stands for.
func (c *checker) object(e ast.Expr) types.Object {
	id, ok := e.(*ast.Ident)
	if !ok {
		return nil
	}
	if o := c.info.Defs[id]; o != nil {
		return o
	}
	return c.info.Uses[id]
}

// pure says that an expression calls nothing.
func pure(e ast.Expr) (yes bool) {
	yes = true
	ast.Inspect(e, func(n ast.Node) bool {
		if _, ok := n.(*ast.CallExpr); ok {
			yes = false
		}
		return yes
	})
	return yes
}

func isNamed(e ast.Expr, name string) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == name
}
