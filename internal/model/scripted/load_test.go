package scripted

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/finding"
)

func TestFindings(t *testing.T) {
	tests := []struct {
		name, src string
		want      []string // line:column rule
	}{
		{"nothing", "", []string{"0:0 script-answer"}},
		{"comments only", "# a\n", []string{"0:0 script-answer"}},
		{"no YAML", "rules: [", []string{"1:8 script-syntax"}},
		{"a list", "- a", []string{"1:1 script-value", "1:1 script-answer"}},
		{"two documents", "default: {say: a}\n---\ndefault: {say: b}", []string{"3:1 script-syntax"}},
		{"a key twice", "default: {say: a}\ndefault: {say: b}", []string{"2:1 script-syntax"}},
		{"an alias", "default:\n  say: *a", []string{"2:8 script-syntax", "2:3 script-answer"}},
		{"an alias of itself", "rules: &a [*a]", []string{"1:8 script-syntax", "1:1 script-answer"}},
		{"all at once", `rules:
  - when: {usr: hi}
    say: a
  - when: {user: '('}
    says: a
  - when: {user: a}
    say: "{1}"
  - say: always
  - 7
default:
  delay: 20`, []string{"2:12 script-key", "4:5 script-answer", "4:18 script-pattern", "5:5 script-key", "7:10 script-placeholder",
			"8:5 script-never", "9:5 script-value", "11:3 script-answer", "11:10 script-value"}},
		{"answers that exclude each other", `rules:
  - when: {user: a}
    say: a
    pieces: [a]
  - when: {user: b}
    empty: true
    call: {tool: a}
  - when: {user: c}
    call: {tool: a}
    fail: {}
  - when: {user: d}
    say: a
    answers: [{say: b}]
  - when: {user: e}
    answers: []
  - when: {user: f}
    empty: false`, []string{"2:5 script-answer", "6:12 script-answer", "9:11 script-answer", "12:10 script-answer", "14:5 script-answer", "16:5 script-answer"}},
		{"values of the wrong kind", `rules: a
default:
  say: {a: b}
  call: [{args: [1]}, 7]
  delay: 2h
  empty: maybe
  fail: {status: 200}`, []string{"1:8 script-value", "3:8 script-value", "4:9 script-answer", "4:10 script-answer", "4:17 script-value", "4:23 script-value", "5:10 script-value", "6:10 script-value", "7:18 script-value"}},
		{"a quiet rule with tools", "rules: [{when: {quiet: a, offered: b}, say: c}]", []string{"1:16 script-never"}},
		{"groups of several patterns", `rules:
  - when: {user: '(a)(b)', result: '(c)(?P<d>e)(f)'}
    say: "{1}{2}{d}{{x}}"
  - when: {user: 'a', result: '(c)(?P<d>e)'}
    say: "{1}{2}{d}{3}"
    call: {tool: a, id: "{x}", args: {k: ["{y}"]}}`, []string{"5:10 script-placeholder", "6:25 script-placeholder", "6:43 script-placeholder"}},
		{"a number without a JSON form", "default: {call: {tool: a, args: {n: .inf}}}", []string{"1:37 script-value"}},
	}
	ids := map[string]bool{}
	for _, r := range Rules() {
		ids[r.ID] = true
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, found := Parse("script.yml", []byte(tt.src))
			if s != nil {
				t.Error("a script with findings was given")
			}
			var got []string
			for _, f := range found {
				got = append(got, fmt.Sprintf("%d:%d %s", f.Line, f.Column, f.Rule))
				if f.File != "script.yml" || f.Message == "" || f.Hint == "" || f.Severity != finding.Error || !ids[f.Rule] {
					t.Errorf("%+v", f)
				}
			}
			want := slices.Clone(tt.want)
			slices.Sort(got)
			slices.Sort(want)
			if strings.Join(got, "\n") != strings.Join(want, "\n") {
				t.Errorf("got\n%s\nwant\n%s\n%+v", strings.Join(got, "\n"), strings.Join(want, "\n"), found)
			}
		})
	}
}

func TestRulesAreSorted(t *testing.T) {
	if !slices.IsSortedFunc(Rules(), func(a, b finding.Rule) int { return strings.Compare(a.ID, b.ID) }) {
		t.Error("rules are not sorted by id")
	}
}

func TestJSONIsReadToo(t *testing.T) {
	script(t, `{"rules":[{"when":{"user":"a(\\d)"},"call":{"tool":"t","args":{"n":"{1}"}}}],"default":{"say":"Hello!"}}`)
}

func TestHugeScripts(t *testing.T) {
	for name, src := range map[string]string{
		"nested brackets": strings.Repeat("[", 100_000),
		"nested entries":  strings.Repeat("- ", 100_000),
		"blank lines":     "default:" + strings.Repeat(" \n", 100_000) + "say: a",
		"size":            "# " + strings.Repeat("x", maxBytes),
		"no text":         "default: {say: \"\xff\"}",
	} {
		if s, found := Parse("s", []byte(src)); s != nil || len(found) != 1 || found[0].Rule != "script-syntax" {
			t.Errorf("%s: %+v", name, found)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("rules:\n- when: {user: 'a(b)'}\n  answers: [{say: '{1}'}, {call: {tool: t, args: {a: [1, .nan]}}}]\ndefault: {pieces: [a], delay: 1ns, fail: {status: 500}}")
	f.Add("a: &a\n  <<: *a\n? [x]\n: !!str 1\n--- |\n x")
	f.Fuzz(func(t *testing.T, src string) {
		began := time.Now()
		s, found := Parse("s.yml", []byte(src))
		if took := time.Since(began); took > 2*time.Second { // the YAML parser has quadratic corners
			t.Fatalf("%d bytes took %v", len(src), took)
		}
		if (s == nil) != (len(found) > 0) {
			t.Fatalf("script %v, findings %+v", s != nil, found)
		}
		if s == nil || strings.Contains(src, "delay") {
			return
		}
		r, err := s.Complete(t.Context(), chat.Request{Tools: []chat.Tool{{Name: "t"}}, Messages: messages("user: ab")}, nil)
		if err == nil && len(r.ToolCalls) > 0 && len(r.ToolCalls[0].Arguments) == 0 {
			t.Fatal("a call without arguments")
		}
	})
}
