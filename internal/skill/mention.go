package skill

import (
	"regexp"
	"strings"
)

// MentionKind says what a name in prose stands for.
type MentionKind string

// The kinds.
const (
	MentionSkill  MentionKind = "skill"
	MentionBlock  MentionKind = "block"
	MentionTool   MentionKind = "tool"
	MentionMemory MentionKind = "memory"
)

// Mention is a name such as @skill.pay or @memory.project.city in a text.
type Mention struct {
	Kind MentionKind
	// Name is what stands after the kind: an id, a tool's name, or a full name of
	// memory. A mention of memory that is not complete, such as @memory.project, has
	// a Name without a dot.
	Name       string
	Start, End int // bytes of the text, from the @
}

var mention = regexp.MustCompile(`@(skill|block|tool|memory)\.([A-Za-z0-9_](?:[A-Za-z0-9_-]*[A-Za-z0-9_])?)(?:\.([A-Za-z_][A-Za-z0-9_]*))?`)

// Mentions finds the mentions of a text, in order. An address such as
// me@skill.example is none.
func Mentions(text string) []Mention {
	var out []Mention
	for _, m := range mention.FindAllStringSubmatchIndex(text, -1) {
		if m[0] > 0 && word(text[m[0]-1]) {
			continue
		}
		x := Mention{Kind: MentionKind(text[m[2]:m[3]]), Name: text[m[4]:m[5]], Start: m[0], End: m[5]}
		if x.Kind == MentionMemory && m[6] >= 0 {
			x.Name, x.End = text[m[4]:m[7]], m[7]
		}
		out = append(out, x)
	}
	return out
}

func word(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("_.%+-", c) >= 0
}
