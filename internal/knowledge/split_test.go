package knowledge

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestSplit(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"no heading", "Only text.\n", "f.md| |Only text."},
		{"headings", "Intro.\n\n# A\n\na\n\n## B ##\n\nb\n\n# C\nc\n", "f.md| |Intro.\nf.md#a|A|a\nf.md#b|A > B|b\nf.md#c|C|c"},
		{"skipped level", "# A\n### D\nd\n## B\nb", "f.md#d|A > D|d\nf.md#b|A > B|b"},
		{"underlined", "A\n===\na\n\nB\n---\nb", "f.md#a|A|a\nf.md#b|A > B|b"},
		{"a rule is no heading", "text\nmore\n---\nafter", "f.md| |text more --- after"},
		{"fences", "# A\n```\n# not\n```\n~~~~\n# not\n~~~\n# not\n~~~~\n# B\nb", "f.md#a|A|``` # not ``` ~~~~ # not ~~~ # not ~~~~\nf.md#b|B|b"},
		{"an open fence", "```\n# not", "f.md| |``` # not"},
		{"heading alone", "# A\n## B\n## C\n", "f.md#b|A > B|\nf.md#c|A > C|"},
		{"same headings", "# A\na\n# A\nb\n# A!\nc", "f.md#a|A|a\nf.md#a-1|A|b\nf.md#a-2|A!|c"},
		{"anchor", "# Sunday & Öffnung (neu)\nx", "f.md#sunday--öffnung-neu|Sunday & Öffnung (neu)|x"},
		{"front matter", "---\ntitle: x\n---\n# A\na", "f.md#a|A|a"},
		{"no front matter", "---\n# A\na", "f.md| |---\nf.md#a|A|a"},
		{"no headings", "#hash\n####### seven\n", "f.md| |#hash ####### seven"},
		{"empty", "\n\n \n", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, p := range split("f.md", tt.text) {
				heading := p.heading
				if heading == "" {
					heading = " "
				}
				got = append(got, fmt.Sprintf("%s|%s|%s", p.source, heading, strings.ReplaceAll(p.body, "\n", " ")))
			}
			if joined := strings.Join(got, "\n"); joined != tt.want {
				t.Errorf("got\n%s\nwant\n%s", joined, tt.want)
			}
		})
	}
}

func TestLongSections(t *testing.T) {
	sentence := "This is a sentence of the text, and it is long enough. "
	tests := map[string]string{
		"paragraphs":   "# A\n\n" + strings.Repeat(strings.Repeat(sentence, 8)+"\n\n", 20),
		"one line":     "# A\n\n" + strings.Repeat(sentence, 200),
		"lines":        "# A\n\n" + strings.Repeat("- a line of a list\n", 500),
		"no spaces":    strings.Repeat("é", 10_000),
		"only symbols": strings.Repeat("。", 10_000),
	}
	for name, text := range tests {
		t.Run(name, func(t *testing.T) {
			pieces := split("f.md", text)
			if len(pieces) < 4 {
				t.Errorf("%d pieces", len(pieces))
			}
			kept := 0
			for _, p := range pieces {
				n := utf8.RuneCountInString(p.body)
				if n > longest || !utf8.ValidString(p.body) {
					t.Errorf("a piece of %d characters", n)
				}
				kept += len(strings.Join(strings.Fields(p.body), ""))
			}
			all := len(strings.Join(strings.Fields(strings.TrimPrefix(text, "# A")), ""))
			if kept != all {
				t.Errorf("%d of %d bytes are left", kept, all)
			}
		})
	}
}
