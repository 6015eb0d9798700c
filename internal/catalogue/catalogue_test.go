package catalogue

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/belay-run/belay/hook"
)

const root = "../.."

func TestNoGeneratedFileIsStale(t *testing.T) {
	files, err := Files()
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range files {
		got, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Errorf("%v; run go generate ./internal/catalogue", err)
		} else if string(got) != string(want) {
			t.Errorf("%s differs from the table; run go generate ./internal/catalogue", path)
		}
	}
	schemas, err := os.ReadDir(filepath.Join(root, "spec/schemas"))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range schemas {
		if path := "spec/schemas/" + s.Name(); files[path] == nil {
			t.Errorf("%s belongs to no point; delete it", path)
		}
	}
}

func TestTheTableIsConsistent(t *testing.T) {
	names := map[string]string{}
	claim := func(p *hook.Point, kind, name string) {
		if name == "" {
			return
		}
		if other, taken := names[kind+name]; taken {
			t.Errorf("%s: %s %s is taken by %s", p.Name, kind, name, other)
		}
		names[kind+name] = p.Name
	}
	identifier := regexp.MustCompile(`^[a-z][a-z_]*$`)
	for _, p := range hook.Points {
		claim(p, "name ", p.Name)
		claim(p, "name ", p.Alias)
		claim(p, "payload ", p.Payload)
		claim(p, "payload ", p.AliasPayload)
		claim(p, "title ", p.Title)
		claim(p, "response ", p.Response)
		claim(p, "response ", p.Rejected)
		claim(p, "response ", p.RejectedAlias)
		if hook.PointNamed(p.Name) != p || (p.Alias != "" && hook.PointNamed(p.Alias) != p) {
			t.Errorf("%s is not found by its names", p.Name)
		}
		if !identifier.MatchString(p.Name) || p.Title == "" || p.When == "" || p.Doc == "" || p.Payload == "" {
			t.Errorf("%s: a text is missing", p.Name)
		}
		if (p.Alias == "") != (p.AliasPayload == "") || (p.RejectedAlias != "" && p.Alias == "") {
			t.Errorf("%s: an alias stands alone", p.Name)
		}
		checkLanes(t, p)
		checkFields(t, p, identifier)
	}
	if hook.PointNamed("") != nil || hook.PointNamed("tea_time") != nil {
		t.Error("a point is found that is none")
	}
}

func checkLanes(t *testing.T, p *hook.Point) {
	if p.Dialect != hook.Turn && p.Dialect != hook.Plugin {
		t.Errorf("%s: unknown dialect", p.Name)
	}
	if !p.Observe && !p.Modify {
		t.Errorf("%s has no lane", p.Name)
	}
	if (p.ObserveLimit > 0) != p.Observe || (p.ModifyLimit > 0) != p.Modify {
		t.Errorf("%s: limits %v and %v do not fit its lanes", p.Name, p.ObserveLimit, p.ModifyLimit)
	}
	if p.MaxLimit != 0 && p.MaxLimit < p.ModifyLimit {
		t.Errorf("%s: the default limit is over the highest", p.Name)
	}
	if !p.Modify {
		if p.Verdicts != 0 || p.OnFailure != "" || p.Response != "" || p.Rejected != "" || p.Changeable() >= 0 {
			t.Errorf("%s has no modify lane, but what belongs to one", p.Name)
		}
		return
	}
	if !p.Verdicts.Has(hook.Continue) || (p.OnFailure != hook.Open && p.OnFailure != hook.Closed) {
		t.Errorf("%s: verdicts or policy are missing", p.Name)
	}
	if p.Verdicts.Has(hook.Hold) != (p.Dialect == hook.Plugin) || (p.Verdicts.Has(hook.Retry) && p.Dialect != hook.Turn) {
		t.Errorf("%s: verdicts of the other dialect", p.Name)
	}
	if p.Dialect == hook.Turn && p.Verdicts.Has(hook.Reject) != (p.Rejected != "") {
		t.Errorf("%s: the response to a rejection and the verdict do not fit", p.Name)
	}
	if p.Response != "" && p.OnFailure != hook.Closed {
		t.Errorf("%s: an open point has a response to failures", p.Name)
	}
}

func checkFields(t *testing.T, p *hook.Point, identifier *regexp.Regexp) {
	seen := map[string]bool{}
	changeable := 0
	for i, f := range p.Fields {
		if seen[f.Name] || !identifier.MatchString(f.Name) || f.Doc == "" || p.Field(f.Name) != i {
			t.Errorf("%s: field %q is doubled, misnamed or has no text", p.Name, f.Name)
		}
		seen[f.Name] = true
		if shapeWords[f.Shape] == "" {
			t.Errorf("%s: shape %q of %s is not described", p.Name, f.Shape, f.Name)
		}
		if f.Optional != (f.Default == "") {
			t.Errorf("%s: a field has a default or is optional, %s is both or neither", p.Name, f.Name)
		}
		if !f.ReadOnly {
			changeable++
		}
	}
	if p.Dialect == hook.Plugin && changeable != 1 {
		t.Errorf("%s: a decision has one key, this point %d", p.Name, changeable)
	}
	// Reading checks every default against its shape.
	raw, err := json.Marshal(hook.NewPayload(p))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := hook.ReadPayload(p, raw); err != nil {
		t.Error(err)
	}
}

// Every turn point has these, and they are the engine's.
func TestEveryTurnPayloadHasAnIdentity(t *testing.T) {
	for _, p := range turnPoints() {
		for _, name := range []string{"sender_id", "call", "channel"} {
			if i := p.Field(name); i < 0 || !p.Fields[i].ReadOnly {
				t.Errorf("%s: %s is missing or can be changed", p.Name, name)
			}
		}
	}
}

func TestPythonLiterals(t *testing.T) {
	cases := map[string]string{
		`plain`:          `"plain"`,
		`say "hi"`:       `'say "hi"'`,
		`it's`:           `"it's"`,
		`it's "it"`:      `'it\'s "it"'`,
		`"'`:             `"\"'"`,
		`back\slash`:     `"back\\slash"`,
		`\"`:             `'\\"'`,
		"Grüße 🎉":        `"Grüße 🎉"`,
		"\n\t\x00\x7f":   `"\n\t\x00\x7f"`,
		"\u200b\ufeff":   `"\u200b\ufeff"`,
		"\U000e0001":     `"\U000e0001"`,
		"bad \xff utf-8": "\"bad \ufffd utf-8\"",
	}
	var script strings.Builder
	for in, want := range cases {
		got := pyString(in)
		if got != want {
			t.Errorf("%q is written %s, want %s", in, got, want)
		}
		asJSON, err := json.Marshal(strings.ToValidUTF8(in, "\ufffd"))
		if err != nil {
			t.Fatal(err)
		}
		script.WriteString("assert " + got + " == json.loads(r'''" + string(asJSON) + "''')\n")
	}
	if got := pyTuple([]string{"a"}) + pyTuple(nil) + pyTuple([]string{"a", "b"}); got != `("a",)()("a", "b")` {
		t.Errorf("tuples are %s", got)
	}
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 to read them")
	}
	if out, err := exec.Command(python, "-c", "import json\n"+script.String()).CombinedOutput(); err != nil {
		t.Errorf("python reads them otherwise: %v\n%s", err, out)
	}
}

func TestGeneratedPythonIsPython(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3")
	}
	cmd := exec.Command(python, "-c", `import ast, json, sys
tree = ast.parse(sys.stdin.read())
calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and getattr(n.func, "id", "") == "Field"]
print(json.dumps([[ast.literal_eval(a) for a in c.args] for c in calls]))`)
	cmd.Stdin = strings.NewReader(string(pythonFile(t)))
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var rows [][]any
	if err := json.Unmarshal(out, &rows); err != nil {
		t.Fatal(err)
	}
	i := 0
	for _, p := range turnPoints() {
		for _, f := range p.Fields {
			if r := rows[i]; r[0] != f.Name || r[1] != string(f.Shape) || r[2] != !f.ReadOnly || r[3] != f.Default || r[4] != f.Doc {
				t.Errorf("%s.%s is %v", p.Name, f.Name, r)
			}
			i++
		}
	}
	if i != len(rows) {
		t.Errorf("%d rows for %d fields", len(rows), i)
	}
}

func pythonFile(t *testing.T) []byte {
	files, err := Files()
	if err != nil {
		t.Fatal(err)
	}
	return files["sdk/python/belay/_points.py"]
}

func TestSchemasFitTheTable(t *testing.T) {
	for _, p := range hook.Points {
		raw, err := schema(p)
		if err != nil {
			t.Fatal(err)
		}
		var s struct {
			Title      string
			Required   []string
			Properties map[string]struct{ Description string }
		}
		if err := json.Unmarshal(raw, &s); err != nil {
			t.Fatal(err)
		}
		if s.Title != p.Payload || len(s.Properties) != len(p.Fields) {
			t.Errorf("%s: schema %s has %d properties for %d fields", p.Name, s.Title, len(s.Properties), len(p.Fields))
		}
		for _, f := range p.Fields {
			if s.Properties[f.Name].Description != f.Doc {
				t.Errorf("%s: %s is not described", p.Name, f.Name)
			}
		}
	}
}
