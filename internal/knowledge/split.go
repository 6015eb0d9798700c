package knowledge

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	target  = 1200 // characters of a passage, about
	longest = 1600 // a paragraph up to this long stays whole
)

// piece is a passage before it is indexed.
type piece struct {
	source  string
	heading string // the headings above it, outermost first
	body    string
}

func (p piece) text() string {
	switch {
	case p.heading == "":
		return p.body
	case p.body == "":
		return p.heading
	}
	return p.heading + "\n\n" + p.body
}

var (
	atx       = regexp.MustCompile(`^ {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*$`)
	underline = regexp.MustCompile(`^ {0,3}(=+|-+)[ \t]*$`)
	fence     = regexp.MustCompile("^ {0,3}(```+|~~~+)")
)

// section is what stands under one heading.
type section struct {
	level int
	title string
	lines []string
}

// split cuts a Markdown file into pieces.
func split(file, text string) []piece {
	sections := read(text)
	var (
		out   []piece
		above [7]string // titles by level
		seen  = map[string]int{}
	)
	for i, s := range sections {
		if s.level > 0 {
			above[s.level] = s.title
			clear(above[s.level+1:])
		}
		source := file
		if s.level > 0 {
			source += "#" + anchor(s.title, seen)
		}
		heading := joined(above[:])
		bodies := chunks(s.lines)
		leaf := i+1 == len(sections) || sections[i+1].level <= s.level
		if len(bodies) == 0 && s.level > 0 && leaf && heading != "" {
			bodies = []string{""} // a heading may be all there is to say
		}
		for _, b := range bodies {
			out = append(out, piece{source: source, heading: heading, body: b})
		}
	}
	return out
}

func joined(titles []string) string {
	var out []string
	for _, t := range titles {
		if t != "" {
			out = append(out, t)
		}
	}
	return strings.Join(out, " > ")
}

// read finds the headings: lines that begin with #, and lines underlined with ===
// or ---. Inside fences there are none.
func read(text string) []section {
	lines := strings.Split(frontMatter(text), "\n")
	out := []section{{}}
	open := ""
	for i := 0; i < len(lines); i++ {
		line := strings.TrimRight(lines[i], " \t")
		last := &out[len(out)-1]
		if m := fence.FindStringSubmatch(line); m != nil {
			switch {
			case open == "":
				open = m[1]
			case strings.HasPrefix(m[1], open):
				open = ""
			}
		} else if open == "" {
			if m := atx.FindStringSubmatch(line); m != nil {
				out = append(out, section{level: len(m[1]), title: strings.TrimSpace(m[2])})
				continue
			}
			if title, level := underlined(lines, i); level > 0 {
				out = append(out, section{level: level, title: title})
				i++
				continue
			}
		}
		last.lines = append(last.lines, line)
	}
	return out
}

// underlined reads a one-line heading with === or --- under it.
func underlined(lines []string, i int) (string, int) {
	title := strings.TrimSpace(lines[i])
	if title == "" || i+1 == len(lines) || i > 0 && strings.TrimSpace(lines[i-1]) != "" || strings.ContainsAny(title[:1], "-*+>|#`~") {
		return "", 0
	}
	m := underline.FindStringSubmatch(lines[i+1])
	if m == nil || len(m[1]) < 2 {
		return "", 0
	}
	if m[1][0] == '=' {
		return title, 1
	}
	return title, 2
}

// frontMatter takes a block between two lines "---" off the top of a file.
func frontMatter(text string) string {
	rest, ok := strings.CutPrefix(text, "---\n")
	if !ok {
		return text
	}
	if _, after, ok := strings.Cut("\n"+rest, "\n---\n"); ok {
		return after
	}
	return text
}

// chunks puts paragraphs together until there are about target characters.
func chunks(lines []string) []string {
	var (
		out     []string
		current strings.Builder
		size    int
	)
	flush := func() {
		if t := strings.TrimSpace(current.String()); t != "" {
			out = append(out, strings.Trim(current.String(), "\n"))
		}
		current.Reset()
		size = 0
	}
	for _, p := range paragraphs(lines) {
		for _, part := range cut(p) {
			n := utf8.RuneCountInString(part)
			if size > 0 && size+n > target {
				flush()
			}
			if size > 0 {
				current.WriteString("\n\n")
			}
			current.WriteString(part)
			size += n
		}
	}
	flush()
	return out
}

func paragraphs(lines []string) []string {
	var out, current []string
	for _, l := range append(lines[:len(lines):len(lines)], "") {
		if strings.TrimSpace(l) != "" {
			current = append(current, l)
			continue
		}
		if len(current) > 0 {
			out = append(out, strings.Join(current, "\n"))
			current = nil
		}
	}
	return out
}

// cut divides a paragraph that is too long: after a line, else after a sentence,
// else after a word.
func cut(p string) []string {
	var out []string
	runes := []rune(p)
	for len(runes) > longest {
		at := breakBefore(runes[:target])
		out = append(out, strings.TrimSpace(string(runes[:at])))
		runes = runes[at:]
	}
	if rest := strings.TrimRightFunc(string(runes), unicode.IsSpace); strings.TrimSpace(rest) != "" {
		out = append(out, rest)
	}
	return out
}

func breakBefore(runes []rune) int {
	least := len(runes) / 2
	var sentence, word int
	for i := len(runes) - 1; i > least; i-- {
		switch r := runes[i-1]; {
		case r == '\n':
			return i
		case sentence == 0 && unicode.IsSpace(r) && strings.ContainsRune(".!?。！？", runes[i-2]):
			sentence = i
		case word == 0 && unicode.IsSpace(r):
			word = i
		}
	}
	switch {
	case sentence > 0:
		return sentence
	case word > 0:
		return word
	}
	return len(runes)
}

// anchor makes the part of a link that names a heading: "Sunday & holidays" is
// sunday--holidays. A second heading of the same words gets -1.
func anchor(title string, seen map[string]int) string {
	var b strings.Builder
	for _, r := range strings.ToLower(title) {
		switch {
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '_', r == '-':
			b.WriteRune(r)
		case r == ' ':
			b.WriteByte('-')
		}
	}
	name := b.String()
	n := seen[name]
	seen[name]++
	if n > 0 {
		return fmt.Sprintf("%s-%d", name, n)
	}
	return name
}
