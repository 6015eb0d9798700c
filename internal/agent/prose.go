package agent

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/belay-run/belay/internal/condition"
	"github.com/belay-run/belay/internal/skill"
	"github.com/belay-run/belay/internal/yamlfile"
)

// body reads the text of a skill: paragraphs, the if: lines that guard them, and
// the fences that hold blocks.
type body struct {
	c     *skillReader
	lines []string
	above int // lines of the file before the first
	// The paragraph under way.
	text  []string
	begin int // its first line in the file
	// The if: line that waits for its paragraph.
	guard   *condition.Condition
	guarded int // its line; 0 without one
}

func (c *skillReader) body(text string, above int) {
	b := &body{c: c, lines: strings.Split(strings.TrimRight(text, "\n"), "\n"), above: above}
	for i := 0; i < len(b.lines); {
		i = b.line(i)
	}
	b.flush()
	if b.guarded > 0 {
		b.unguard("an if: stands before nothing")
	}
}

func (b *body) number(i int) int { return b.above + 1 + i }

var (
	elseLine  = regexp.MustCompile(`^(else|elif|else if)\b[^:]*:`)
	indented  = regexp.MustCompile(`^\s+(?:[-*]\s+)?if:\s|^[-*]\s+if:\s`)
	codeFence = regexp.MustCompile("^\\s*(```+|~~~+)")
)

// line reads one line, or what begins in it, and returns the index of the next.
func (b *body) line(i int) int {
	line := strings.TrimRight(b.lines[i], " \t")
	at := b.c.r.At(b.number(i), 1)
	switch {
	case line == "":
		b.flush()
	case strings.HasPrefix(line, ":::"):
		b.flush()
		if b.guarded > 0 {
			b.unguard("an if: cannot guard a block")
		}
		return b.fence(i)
	case strings.HasPrefix(strings.TrimLeft(line, " \t"), ":::ordered_block"):
		at.Err("bad-fence", "a block begins with spaces before :::", "write ::: at the beginning of the line")
		b.add(i, line)
	case strings.HasPrefix(line, "if:"):
		b.flush()
		if b.guarded > 0 {
			b.unguard("two if: lines follow one another")
		}
		b.guarded = b.number(i)
		b.guard = b.c.compile(line[len("if:"):], b.c.r.At(b.number(i), 1), "this if:")
	case line[0] == 'e' && elseLine.MatchString(line):
		at.Err("bad-guard", "there is no else: in prose", "write one if: line for each case, each with its own condition")
	case fenced(line):
		return b.code(i)
	default:
		if strings.Contains(line, "if:") && indented.MatchString(line) {
			at.Warn("if-in-instructions", "an if: counts at the beginning of a line only; the model reads this one as text", "put it at the left margin, before the paragraph that it guards")
		}
		b.add(i, line)
	}
	return i + 1
}

// fenced says that a line begins code.
func fenced(line string) bool {
	return (strings.Contains(line, "```") || strings.Contains(line, "~~~")) && codeFence.MatchString(line)
}

func (b *body) add(i int, line string) {
	if len(b.text) == 0 {
		b.begin = b.number(i)
	}
	b.text = append(b.text, line)
}

// code takes lines between ``` as they are, with their blank lines. One that does
// not end is a line like any other.
func (b *body) code(i int) int {
	mark := codeFence.FindStringSubmatch(b.lines[i])[1]
	for j := i + 1; j < len(b.lines); j++ {
		if strings.HasPrefix(strings.TrimSpace(b.lines[j]), mark) {
			for ; i <= j; i++ {
				b.add(i, strings.TrimRight(b.lines[i], " \t"))
			}
			return i
		}
		if strings.HasPrefix(b.lines[j], ":::") {
			break
		}
	}
	b.add(i, strings.TrimRight(b.lines[i], " \t"))
	return i + 1
}

// flush ends the paragraph under way.
func (b *body) flush() {
	if len(b.text) == 0 {
		return
	}
	p := skill.Paragraph{If: b.guard, Text: strings.Join(b.text, "\n"), Line: b.begin}
	b.c.k.Prose = append(b.c.k.Prose, p)
	b.c.mentions(p.Text, places(b.c.r, p))
	b.text, b.guard, b.guarded = nil, nil, 0
}

// places finds places in a paragraph. It goes on from the last one, so that looking up
// all names of a long line takes one walk through it.
func places(r *yamlfile.Reader, p skill.Paragraph) func(offset int) yamlfile.Spot {
	last, line, column := 0, 0, 1
	return func(offset int) yamlfile.Spot {
		if offset < last {
			last, line, column = 0, 0, 1
		}
		between := p.Text[last:offset]
		if i := strings.LastIndexByte(between, '\n'); i >= 0 {
			line += strings.Count(between, "\n")
			column, between = 1, between[i+1:]
		}
		column += utf8.RuneCountInString(between)
		last = offset
		return r.At(p.Line+line, column)
	}
}

func (b *body) unguard(message string) {
	b.c.r.At(b.guarded, 1).Err("bad-guard", message, "write the paragraph that the condition guards under it")
	b.guard, b.guarded = nil, 0
}

var (
	opening   = regexp.MustCompile(`^:::\s*([A-Za-z_-]+)(.*)$`)
	attribute = regexp.MustCompile(`^\s*([A-Za-z_]+)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"']+))`)
)

const blockHint = "begin a block with :::ordered_block id=<name> and end it with a line :::"

// fence reads a block, and returns the index of the line after it.
func (b *body) fence(i int) int {
	r, number := b.c.r, b.number(i)
	at := r.At(number, 1)
	m := opening.FindStringSubmatch(strings.TrimRight(b.lines[i], " \t"))
	if m == nil {
		at.Err("bad-fence", "::: ends a block, and none was begun", blockHint)
		return i + 1
	}
	known := m[1] == "ordered_block"
	if !known {
		at.Err("bad-fence", fmt.Sprintf("%s is no kind of block", yamlfile.Shown(m[1])), blockHint)
	}
	end := i + 1
	for ; end < len(b.lines); end++ {
		line := strings.TrimRight(b.lines[end], " \t")
		if line == ":::" {
			break
		}
		if strings.HasPrefix(line, ":::") {
			at.Err("bad-fence", fmt.Sprintf("the block that begins here has no end before the one in line %d", b.number(end)), "end it with a line :::")
			return end
		}
	}
	if end == len(b.lines) && !known {
		return end // one word on it is enough
	}
	if end == len(b.lines) {
		at.Err("bad-fence", "the block that begins here has no end", "end it with a line :::")
		return end
	}
	if known {
		id, ok := b.attributes(m[2], at)
		b.c.block(id, ok, at, number, b.lines[i+1:end])
	}
	return end + 1
}

// attributes reads id=x after :::ordered_block.
func (b *body) attributes(text string, at yamlfile.Spot) (id string, ok bool) {
	for strings.TrimSpace(text) != "" {
		m := attribute.FindStringSubmatch(text)
		if m == nil {
			at.Err("bad-fence", "what stands after :::ordered_block cannot be read", "write id=<name> there and nothing else")
			return "", false
		}
		if m[1] != "id" {
			at.Err("bad-fence", fmt.Sprintf("a block has no attribute %s", yamlfile.Shown(m[1])), "write id=<name> there; name: and description: stand in the block")
			return "", false
		}
		id = m[2] + m[3] + m[4]
		text = text[len(m[0]):]
	}
	return id, true
}
