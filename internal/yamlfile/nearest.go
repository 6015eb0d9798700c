package yamlfile

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Meant is the hint for a word that is none of names: the nearest name, or all of
// them.
func Meant(word string, names []string) string {
	if near := Nearest(word, names); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	if len(names) == 0 {
		return "delete it"
	}
	return "use one of " + strings.Join(sorted(names), ", ")
}

// Nearest returns the name that word was probably meant to be, or "".
func Nearest(word string, names []string) string {
	const longest = 64 // a longer word is no slip of a key
	if len(word) > longest {
		return ""
	}
	best, least := "", 0
	for _, name := range sorted(names) {
		d := Distance(strings.ToLower(word), strings.ToLower(name))
		if d > max(1, len(name)/3) || d > 3 {
			continue
		}
		if best == "" || d < least {
			best, least = name, d
		}
	}
	return best
}

// Distance counts the letters to insert, drop, change or swap with their
// neighbour on the way from a to b.
func Distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	before, last, row := make([]int, len(y)+1), make([]int, len(y)+1), make([]int, len(y)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(x); i++ {
		row[0] = i
		for j := 1; j <= len(y); j++ {
			cost := 1
			if x[i-1] == y[j-1] {
				cost = 0
			}
			row[j] = slices.Min([]int{last[j] + 1, row[j-1] + 1, last[j-1] + cost})
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(y)]
}

func sorted(names []string) []string {
	out := slices.Clone(names)
	slices.Sort(out)
	return slices.Compact(out)
}

var (
	plainKey   = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]{0,39}$`)
	secretLike = regexp.MustCompile(`(^|[^A-Za-z0-9])((sk|pk|rk)[-_][A-Za-z0-9_-]{8}|gh[pousr]_[A-Za-z0-9]{8}|github_pat_|glpat-|xox[abprs]-|AKIA[0-9A-Z]{8}|AIza[0-9A-Za-z_-]{8}|eyJ[A-Za-z0-9_-]{8})`)
)

// SecretLike says that a text holds what looks like a key or token.
func SecretLike(text string) bool { return secretLike.MatchString(text) }

// NotShown stands in a message for a word that may be a secret.
const NotShown = "(not shown)"

// Shown quotes a word of the author's for a message. What does not look like a
// name may be a secret that slipped to the wrong place, and is [NotShown].
func Shown(word string) string {
	if !plainKey.MatchString(word) || SecretLike(word) {
		return NotShown
	}
	return strconv.Quote(word)
}
