package yamlfile_test

import (
	"fmt"
	"os"
	"regexp"
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
		"part: 2":                      "1:7 bad-value",
		"part: .nan":                   "1:7 bad-value",
		"part: '1'":                    "1:7 wrong-type",
		"part: 1\nflag: true":          "",
		"flag: 'true'":                 "1:7 wrong-type",
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
		s.Number("part", 0, 1)
		s.Flag("flag")
		s.Close()
		if got := strings.Join(said(*findings), ", "); got != want {
			t.Errorf("%.40q: got %q, want %q", text, got, want)
		}
	}
}

func TestHintsOfUnknownKeys(t *testing.T) {
	for text, want := range map[string]string{
		"nam: x":     `did you mean "name"?`,
		"colour: x":  "delete it, or use one of limit, name",
		"'a b': x":   "delete it, or use one of limit, name",
		"name: x":    "",
		"limit:":     "write one, or delete the key",
		"x-own: {}":  "",
		"name: {}\n": "write plain text",
	} {
		s, findings := open(text)
		s.Text("name")
		s.Within("limit", 0, 9, "")
		s.Close()
		got := ""
		for _, f := range *findings {
			got += f.Hint
		}
		if got != want {
			t.Errorf("%s: %s", text, got)
		}
	}
	s, findings := open("colour: x")
	s.Unknown()
	if len(*findings) != 1 || (*findings)[0].Hint != "delete it" {
		t.Errorf("found %v", *findings)
	}
}

// A part of a file is told of by the file's lines.
func TestPart(t *testing.T) {
	for text, want := range map[string]string{
		"name: x\nnam: y":                    "12:1 unknown-key",
		"name: [":                            "11:7 yaml-syntax",
		"a: 1\na: 2":                         "12:1 duplicate-key, 11:1 unknown-key",
		"name: x\n---\nname: y":              "13:1 yaml-documents",
		"\n- x":                              "12:1 wrong-type",
		"name: *a":                           "11:7 yaml-syntax",
		strings.Repeat("[", 200):             "11:101 yaml-too-complex",
		"name: x" + strings.Repeat("\n", 60): "62:0 yaml-too-complex",
		"name: !!int":                        "11:1 empty-value",
		"<<: x":                              "11:1 wrong-type",
		"name: {b: c}\nx-a: &a {name: b}\n":  "11:8 wrong-type",
	} {
		var findings []finding.Finding
		r := yamlfile.NewReader("f.md", &findings)
		s := r.Open(r.Part(text, 10), "")
		s.Text("name")
		s.Close()
		var got []string
		for _, f := range findings {
			got = append(got, fmt.Sprintf("%d:%d %s", f.Line, f.Column, f.Rule))
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("%.40q: got %q, want %q", text, got, want)
		}
		if len(findings) > 0 && (!r.Reported(11, 70) || r.Reported(1, 10) || yamlfile.NewReader("g.md", &findings).Reported(1, 100)) {
			t.Errorf("%.40q: reported in other lines", text)
		}
	}
}

// What would keep the parser busy, or would not end, is refused at once.
func TestBounds(t *testing.T) {
	for name, tt := range map[string]struct{ text, rule string }{
		"keys":               {strings.Repeat("k: 1\n", 20_000), "yaml-too-complex"},
		"brackets":           {strings.Repeat("[", 100_000), "yaml-too-complex"},
		"braces":             {strings.Repeat("{a: ", 100_000), "yaml-too-complex"},
		"dashes":             {strings.Repeat("- ", 100_000) + "x", "yaml-too-complex"},
		"question marks":     {strings.Repeat("? ", 100_000) + "x", "yaml-too-complex"},
		"blank lines":        {"a:\n  b: |\n" + strings.Repeat("   \n", 100_000) + "x", "yaml-too-complex"},
		"indentation":        {indented(500), "yaml-too-complex"},
		"aliases":            {bomb(9), "yaml-too-complex"},
		"an alias of itself": {"a: &a\n  b: *a\n", "yaml-syntax"},
		"UTF-16":             {"\xff\xfea\x00:\x00", "bad-encoding"},
		"an escape":          {"a: \"b\x1bc\"\n", "bad-encoding"},
		"NUL":                {"a: \"b\x00c\"\n", "bad-encoding"},
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			_, findings := open(tt.text)
			if got := said(*findings); len(got) != 1 || !strings.HasSuffix(got[0], " "+tt.rule) {
				t.Errorf("found %v", got)
			}
			if d := time.Since(start); d > 5*time.Second {
				t.Errorf("took %v", d)
			}
		})
	}
}

func indented(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return b.String()
}

// bomb is a few lines whose aliases stand for 10^n values.
func bomb(n int) string {
	var b strings.Builder
	b.WriteString("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n")
	for i := range n {
		p := "*a" + string(rune('0'+i))
		b.WriteString("a" + string(rune('1'+i)) + ": &a" + string(rune('1'+i)) + " [" + strings.Repeat(p+", ", 9) + p + "]\n")
	}
	return b.String()
}

func TestColumnsCountCharacters(t *testing.T) {
	s, findings := open("name: {persona: \"äöü€😀\", colour: x}\n")
	sub := s.Sub("name")
	sub.Text("persona")
	sub.Close()
	if got := said(*findings); !slices.Equal(got, []string{"1:26 unknown-key"}) {
		t.Errorf("found %v", got)
	}
}

// Whatever is in a file, reading ends, and each value and finding has a place in it.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"name: x\nlist: [1, 2.5, true, ~, 'a']\nsub:\n  k: |\n    text\n",
		"a: &a [*a]\nb: !!binary x\n? [c]\n: d\n<<: *a",
		"\xef\xbb\xbfllm: >+\r\n\r\n", "'': \"\\x00\"\n---\n%YAML 1.2",
		"a: &a {b: 1}\nc: {<<: *a, b: 2}\nd: .inf\n", "- - - x\n", bomb(2),
	} {
		f.Add(text, 3)
	}
	f.Fuzz(func(t *testing.T, text string, above int) {
		above = max(0, min(above, 1000))
		var findings []finding.Finding
		r := yamlfile.NewReader("f", &findings)
		plain, ok := r.Decode([]byte(text))
		if !ok {
			if len(findings) == 0 {
				t.Error("refused without a word")
			}
			return
		}
		start := time.Now()
		n := r.Part(plain, above)
		if d := time.Since(start); d > 10*time.Second {
			t.Errorf("took %v", d)
		}
		first, last := above+1, above+strings.Count(plain, "\n")+1
		if n != nil && (n.Line < first || n.Line > last) {
			t.Errorf("the value stands in line %d, not %d to %d", n.Line, first, last)
		}
		s := r.Open(n, "")
		s.Text("name")
		s.Close()
		for _, x := range findings {
			if x.Rule == "" || x.Message == "" || x.Hint == "" || x.Line != 0 && (x.Line < first || x.Line > last) || x.Column < 0 {
				t.Errorf("not whole: %+v", x)
			}
		}
	})
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

// Every rule that the code names is described, and every described one is named.
func TestRulesAreComplete(t *testing.T) {
	used := map[string]bool{}
	for _, file := range []string{"tree.go", "section.go"} {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?:\.Err|c\.stop)\((?:n, )?"([a-z-]+)"`).FindAllStringSubmatch(string(src), -1) {
			used[m[1]] = true
		}
	}
	for _, r := range yamlfile.Rules() {
		if !used[r.ID] || r.Summary == "" || r.Help == "" {
			t.Errorf("rule %q is not described, or no code makes a finding of it", r.ID)
		}
		delete(used, r.ID)
	}
	if len(used) > 0 {
		t.Errorf("not described: %v", used)
	}
}
