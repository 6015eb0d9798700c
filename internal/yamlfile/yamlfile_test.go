package yamlfile_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/yamlfile"
)

func open(text string) (*yamlfile.Section, *[]finding.Finding) {
	findings := new([]finding.Finding)
	r := yamlfile.NewReader("f.yaml", findings)
	return r.Open(r.Parse([]byte(text)), ""), findings
}

func said(findings []finding.Finding) (out []string) {
	for _, f := range finding.Clean(findings) {
		out = append(out, fmt.Sprintf("%d:%d %s", f.Line, f.Column, f.Rule))
	}
	return out
}

func TestSection(t *testing.T) {
	s, findings := open("\ufeffname: x\r\nnumber: 7\r\ntime: 1.5\r\nlist: [a, 'b']\r\nparts:\r\n  - {k: v}\r\n  - {k: w}\r\non: yes\r\n")
	var items []string
	for _, n := range s.Texts("list") {
		items = append(items, n.Text)
	}
	if s.Text("name") != "x" || s.Count("number", 0, 9, 1) != 7 || s.Duration("time", time.Minute, 0, "r") != 1500*time.Millisecond || !slices.Equal(items, []string{"a", "b"}) || s.Text("on") != "yes" {
		t.Errorf("read something else: %v", *findings)
	}
	parts := s.Sections("parts")
	if len(parts) != 2 || parts[1].Path() != "parts[2]" || parts[1].Text("k") != "w" || parts[1].Full("k") != "parts[2].k" {
		t.Errorf("parts %v", parts)
	}
	s.Close()
	if len(*findings) > 0 {
		t.Errorf("found %v", *findings)
	}
	var none *yamlfile.Section
	if none.Text("x") != "" || none.Sections("x") != nil || none.Sub("x") != nil || none.Has("x") {
		t.Error("a section that is not there has keys")
	}
	none.Close()
}

func TestWhatIsReported(t *testing.T) {
	for text, want := range map[string]string{
		"name: 7":                      "1:7 wrong-type",
		"name: ' '":                    "1:7 empty-value",
		"name:":                        "1:1 empty-value",
		"nam: x":                       "1:1 unknown-key",
		"x-own: 1":                     "",
		"word: c":                      "1:7 unknown-value",
		"list: []":                     "1:7 empty-list",
		"list: [1]":                    "1:8 wrong-type",
		"list: ['']":                   "1:8 empty-value",
		"parts: [~]":                   "1:9 empty-value",
		"parts: [x]":                   "1:9 wrong-type",
		"number: 10":                   "1:9 bad-value",
		"number: 99999999999999999999": "1:9 wrong-type",
		"time: 2m":                     "1:7 r",
		"time: -1s":                    "1:7 r",
		"time: .nan":                   "1:7 r",
		"name: a\nname: b":             "2:1 duplicate-key",
		"name: a\n---\nname: b":        "3:1 yaml-documents",
		"name: [":                      "1:7 yaml-syntax",
		"name: *a":                     "1:7 yaml-syntax",
		"name: !!binary x":             "1:7 yaml-syntax",
		"name: \"\x01\"":               "1:8 bad-encoding",
		"name: \xff":                   "0:0 bad-encoding",
		"[]":                           "1:1 wrong-type",
		"? [a]\n: b":                   "2:1 yaml-syntax",
		strings.Repeat("[", 200):       "1:101 yaml-too-complex",
		"list: [&a x, *a]":             "",
		"x-a: &a {name: b}\n<<: *a":    "",
		"name: x" + strings.Repeat("\n", 60) + "word: a": "52:0 yaml-too-complex",
	} {
		s, findings := open(text)
		s.Text("name")
		s.OneOf("word", "a", "b")
		s.Texts("list")
		s.Sections("parts")
		s.Count("number", 0, 9, 1)
		s.Duration("time", time.Minute, 0, "r")
		s.Close()
		if got := strings.Join(said(*findings), ", "); got != want {
			t.Errorf("%.40q: got %q, want %q", text, got, want)
		}
	}
}

func TestNearest(t *testing.T) {
	names := []string{"hooks", "tools", "agents"}
	for word, want := range map[string]string{"hoks": "hooks", "Tools": "tools", "agent": "agents", "x": "", strings.Repeat("x", 10_000): ""} {
		if got := yamlfile.Nearest(word, names); got != want {
			t.Errorf("%.20s: %q", word, got)
		}
	}
	if got := yamlfile.Meant("x", names); got != "use one of agents, hooks, tools" {
		t.Error(got)
	}
}

func TestShown(t *testing.T) {
	for word, want := range map[string]string{"name": `"name"`, "a b": "(not shown)", "ghp_abcdefgh1234": "(not shown)", "": "(not shown)"} {
		if got := yamlfile.Shown(word); got != want {
			t.Errorf("%s: %s", word, got)
		}
	}
	for text, want := range map[string]bool{"--token=ghp_abcdefgh1234": true, "sk-abcdefgh12345": true, "task-runner-for-all": false, "python": false, "AKIAABCDEFGHIJ": true} {
		if yamlfile.SecretLike(text) != want {
			t.Error(text)
		}
	}
}
