package agent

import (
	"slices"
	"strings"
)

// nearest returns the name that word was probably meant to be, or "".
func nearest(word string, names []string) string {
	const longest = 64 // a longer word is no slip of a key
	if len(word) > longest {
		return ""
	}
	best, least := "", 0
	for _, name := range sorted(names) {
		d := distance(strings.ToLower(word), strings.ToLower(name))
		if d > max(1, len(name)/3) || d > 3 {
			continue
		}
		if best == "" || d < least {
			best, least = name, d
		}
	}
	return best
}

// distance counts the letters to insert, drop, change or swap with their
// neighbour on the way from a to b.
func distance(a, b string) int {
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
