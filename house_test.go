// Package belay_test holds the rules of the house: what may import what, how
// long a file and a function may be, and that the documents name only what is
// there.
package belay_test

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/belay-run/belay/internal/app"
)

const module = "github.com/belay-run/belay"

// allowed reads the import table of ARCHITECTURE.md: package → those it may
// import ("everything" for the wiring).
func allowed(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(text), "## Who may import whom")
	if !ok {
		t.Fatal("ARCHITECTURE.md has no section \"Who may import whom\"")
	}
	table := map[string][]string{}
	name := regexp.MustCompile("`([^`]+)`")
	for line := range strings.Lines(section) {
		if strings.HasPrefix(line, "## ") {
			break
		}
		cells := strings.Split(line, "|")
		if len(cells) < 4 || !strings.Contains(cells[1], "`") {
			continue
		}
		may := []string{}
		for _, m := range name.FindAllStringSubmatch(cells[2], -1) {
			may = append(may, m[1])
		}
		if strings.Contains(cells[2], "everything") {
			may = append(may, "everything")
		}
		table[name.FindStringSubmatch(cells[1])[1]] = may
	}
	return table
}

type listed struct {
	ImportPath string
	Imports    []string
	Doc        string
	Name       string
	GoFiles    []string
	Standard   bool
}

func packages(t *testing.T) []listed {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports,Doc,Name,GoFiles", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []listed
	for d := json.NewDecoder(strings.NewReader(string(out))); d.More(); {
		var p listed
		if err := d.Decode(&p); err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	return all
}

func short(importPath string) string {
	return strings.TrimPrefix(strings.TrimPrefix(importPath, module), "/")
}

func TestImports(t *testing.T) {
	table := allowed(t)
	seen := map[string]bool{}
	for _, p := range packages(t) {
		name := short(p.ImportPath)
		if len(p.GoFiles) == 0 {
			continue
		}
		seen[name] = true
		may, ok := table[name]
		if !ok {
			t.Errorf("package %s has no row in ARCHITECTURE.md", name)
			continue
		}
		for _, imported := range p.Imports {
			own := strings.HasPrefix(imported, module)
			if own && !slices.Contains(may, short(imported)) && !slices.Contains(may, "everything") {
				t.Errorf("%s imports %s, which its row in ARCHITECTURE.md does not allow", name, short(imported))
			}
			if !own && strings.HasPrefix(name, "hook") && strings.Contains(strings.Split(imported, "/")[0], ".") {
				t.Errorf("%s imports %s: the heart imports the standard library only", name, imported)
			}
		}
		if p.Doc == "" {
			t.Errorf("package %s has no package comment", name)
		}
		if slices.Contains([]string{"util", "utils", "common", "helper", "helpers", "types", "base", "shared"}, p.Name) {
			t.Errorf("package %s: the name says nothing", name)
		}
	}
	for name := range table {
		if !seen[name] {
			t.Errorf("ARCHITECTURE.md has a row for %s, which is not there", name)
		}
	}
}

const (
	fileLines = 600
	funcLines = 80
)

func TestSizes(t *testing.T) {
	fset := token.NewFileSet()
	walk(t, func(file string) {
		if !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return
		}
		f, err := parser.ParseFile(fset, file, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if ast.IsGenerated(f) {
			return
		}
		if n := fset.File(f.Pos()).LineCount(); n > fileLines {
			t.Errorf("%s has %d lines; %d is the most", file, n, fileLines)
		}
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			if n := fset.Position(fn.End()).Line - fset.Position(fn.Pos()).Line + 1; n > funcLines {
				t.Errorf("%s: %s has %d lines; %d is the most", fset.Position(fn.Pos()), fn.Name.Name, n, funcLines)
			}
		}
	})
}

// TestDocuments checks that every relative link and every path in backquotes
// that looks like a file of the project leads somewhere.
func TestDocuments(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)
	quoted := regexp.MustCompile("`((?:hook|internal|cmd|sdk|examples|docs|bench|spec|\\.ci)/[A-Za-z0-9_./-]+)`")
	walk(t, func(file string) {
		if !strings.HasSuffix(file, ".md") {
			return
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if _, err := os.Stat(path.Join(path.Dir(file), m[1])); err != nil {
				t.Errorf("%s links to %s, which is not there", file, m[1])
			}
		}
		for _, m := range quoted.FindAllStringSubmatch(string(text), -1) {
			if _, err := os.Stat(m[1]); err != nil {
				t.Errorf("%s names %s, which is not there", file, m[1])
			}
		}
	})
}

// TestCheckRules checks that the page of rules has each rule that Go makes findings
// of, in its own words, and no other.
func TestCheckRules(t *testing.T) {
	const page = "docs/reference/check-rules.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	known := []string{"import-death", "import-timeout"} // of the host of Python
	for _, r := range app.Rules() {
		known = append(known, r.ID)
		if row := fmt.Sprintf("| `%s` | %s | %s |\n", r.ID, r.Summary, r.Help); !strings.Contains(string(text), row) {
			t.Errorf("%s lacks the row\n%s", page, row)
		}
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)`").FindAllStringSubmatch(string(text), -1) {
		if !slices.Contains(known, m[1]) {
			t.Errorf("%s has a rule %s, which is not there", page, m[1])
		}
	}
}

// TestMakefile checks that the targets stay few and that each says what it does.
func TestMakefile(t *testing.T) {
	text, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	targets := regexp.MustCompile(`(?m)^([a-z]+):(.*)$`).FindAllStringSubmatch(string(text), -1)
	if len(targets) > 10 {
		t.Errorf("the Makefile has %d targets; 10 is the most", len(targets))
	}
	for _, m := range targets {
		if !strings.Contains(m[2], "## ") {
			t.Errorf("target %s does not say what it does", m[1])
		}
	}
}

func walk(t *testing.T, visit func(file string)) {
	t.Helper()
	err := filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); name != "." && name != ".ci" && (strings.HasPrefix(name, ".") || name == "node_modules" || name == "testdata" || name == "bin") {
				return fs.SkipDir
			}
			return nil
		}
		visit(filepath.ToSlash(file))
		return nil
	})
	if err != nil {
		t.Fatal(fmt.Errorf("walk: %w", err))
	}
}
