package condition_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/belay-run/belay/internal/condition"
)

func vars(t testing.TB, text string) map[string]any {
	t.Helper()
	v := map[string]any{}
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestHolds(t *testing.T) {
	env := vars(t, `{"session": {"project": {"verified": true, "blocked": false, "name": "Ann", "empty": "", "zero": 0, "age": 17, "nothing": null},
		"cart": {"items": ["pen", "ink"], "total": 99.5}}, "flag": true}`)
	tests := []struct {
		source string
		want   bool
	}{
		{"flag", true},
		{"session.project.verified", true},
		{"session.project.blocked", false},
		{"session.project.name", true},
		{"session.project.empty", true}, // set and not false
		{"session.project.zero", true},
		{"session.project.nothing", false},
		{"session.project.unknown", false},
		{"unknown", false},
		{"unknown.deeper.still", false},
		{"not unknown.deeper", true},
		{"not session.project.name", false},
		{"session.project.name and flag", true},
		{"session.project.name and not session.project.blocked", true},
		{"unknown or session.project.name", true},
		{"session.project.name == 'Ann'", true},
		{`session.project.name != "Ann"`, false},
		{"session.project.unknown == None", true},
		{"session.project.verified == True", true},
		{"session.project.blocked == False", true},
		{"session.project.name in ['Ann', 'Bob']", true},
		{"session.project.name not in ['Ann', 'Bob']", false},
		{"'pen' in session.cart.items", true},
		{"session.project.age < 18", true},
		{"session.project.age >= 17.0", true},
		{"session.project.unknown > 3", false},
		{"session.project.unknown < 3", false},
		{"not (session.project.unknown > 3)", true},
		{"session.cart.total > 99 and session.cart.total <= 99.5", true},
		{"len(session.cart.items) == 2", true},
		{"lower(session.project.name) == 'ann'", true},
		{"session.project.name matches '^A'", true},
		{"session.project.name startsWith 'A'", true},
		{"(unknown ? false : true)", true},
		{"session['project'].verified", true},
		{"session.cart.items[0] == 'pen'", true},
		{"(1 < 2) and (2 < 3)", true},
		{"session.project.name is not null", true},
		{"session.project.nothing is None", true},
		{`"session.project.name" is not null`, true},
		{`"flag" is true and not ("unknown" is not null)`, true},
		{"session.project.name is Ann", true},
		{"session.project.name is not 'Bob' and session.project.age is 17", true},
		{"session.project.name is session.project.name", true},
		{`'it is so' == "it is so" and session.project.name is "Ann"`, true},
		{"session.project.name == 'a is b'", false},
	}
	for _, tt := range tests {
		t.Run(tt.source, func(t *testing.T) {
			c, err := condition.Compile(tt.source)
			if err != nil {
				t.Fatal(err)
			}
			got, err := c.Holds(env)
			if err != nil {
				t.Fatal(err)
			}
			if got != tt.want {
				t.Errorf("holds = %v, want %v", got, tt.want)
			}
		})
	}
}

func TestHoldsWithoutValues(t *testing.T) {
	c, err := condition.Compile("session.a.b")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := c.Holds(nil); got || err != nil {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestAnErrorDoesNotHold(t *testing.T) {
	for _, source := range []string{"session > 3", "flag < 'x'", "flag.deeper.still", "len(flag) > 1"} {
		c, err := condition.Compile(source)
		if err != nil {
			t.Fatalf("%s: %v", source, err)
		}
		got, err := c.Holds(vars(t, `{"session": {}, "flag": true}`))
		if got || err == nil {
			t.Errorf("%s: got %v, %v", source, got, err)
		}
	}
}

func TestNames(t *testing.T) {
	tests := []struct{ source, want string }{
		{"session.project.name", "session.project.name"},
		{"not a and (b.c or a)", "a b.c"},
		{"session['project'].x == session.project.x", "session.project.x"},
		{"a.b[0] in [c, True, None] and len(d.e) > 1", "a.b c d.e"},
		{"a[b].c", "a b"},
		{"a?.b.c ?? d", "a.b.c d"},
		{"a is stolen or \"b\" is not null", "a b"},
		{"True", ""},
		{"a ? b : c.d", "a b c.d"},
	}
	for _, tt := range tests {
		c, err := condition.Compile(tt.source)
		if err != nil {
			t.Fatalf("%s: %v", tt.source, err)
		}
		var got []string
		for _, chain := range c.Names() {
			got = append(got, strings.Join(chain, "."))
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: got %q", tt.source, got)
		}
	}
}

func TestCompileIn(t *testing.T) {
	full := func(name string) []string {
		switch name {
		case "total":
			return []string{"session", "cart", "total"}
		case "project":
			return []string{"session", "project"}
		}
		return nil
	}
	c, err := condition.CompileIn("total > 3 and project.name is Ann and session.cart.total and other", full)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := c.Holds(vars(t, `{"session": {"cart": {"total": 4}, "project": {"name": "Ann"}}, "other": 1, "total": 1}`)); !got || err != nil {
		t.Errorf("got %v, %v", got, err)
	}
	var got []string
	for _, chain := range c.Names() {
		got = append(got, strings.Join(chain, "."))
	}
	if want := "session.cart.total session.project.name other"; strings.Join(got, " ") != want {
		t.Errorf("names %v", got)
	}
	text, err := json.Marshal(c)
	if err != nil || string(text) != `"total \u003e 3 and project.name is Ann and session.cart.total and other"` {
		t.Errorf("as JSON %s, %v", text, err)
	}
}

func TestCompileRefuses(t *testing.T) {
	for _, source := range []string{
		"", "  ", "a ==", "a b", "((a)", "exec('x')", "session.delete()", "1..100000000", "map(1..9, #)", "all(a, # > 1)",
		"let x = 1; x", "a; b", "$env", "__holds(a)", "repeat('a', 1000000)", "a matches b", "a matches '['", "filter(a, true)",
		"a == " + strings.Repeat("1+", 2000) + "1", strings.Repeat("not ", 900) + "a", "1 % 0 == 0", "now() > 1",
		strings.Repeat("(", 1500) + "a", "a and\nb and (",
	} {
		start := time.Now()
		c, err := condition.Compile(source)
		if err == nil {
			t.Errorf("%.40q compiled: %v", source, c)
			continue
		}
		if strings.Contains(err.Error(), "\n") {
			t.Errorf("%.40q: error of several lines: %q", source, err)
		}
		if d := time.Since(start); d > time.Second {
			t.Errorf("%.40q took %v", source, d)
		}
	}
}

func FuzzCompile(f *testing.F) {
	for _, s := range []string{"a.b and not c", "x in [1, 2]", "a ?? b", "{'a': 1}.a", "a[1:2]", "1 % 0", "b'x'", "a?.b", "-a ** 2", `"a" is not null`, "a is b or 'is' is c"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, source string) {
		c, err := condition.Compile(source)
		if err != nil {
			return
		}
		_, _ = c.Holds(map[string]any{"a": map[string]any{"b": true}, "x": 1.0}) // any answer, no panic
		c, err = condition.CompileIn(source, func(name string) []string { return []string{"session", "own", name} })
		if err != nil {
			return // longer names may be too many
		}
		for _, chain := range c.Names() {
			if len(chain) < 3 || chain[0] != "session" {
				t.Errorf("%q has the name %q", source, chain)
			}
		}
	})
}
