package expect

import (
	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/model/scripted"
	"github.com/belay-run/belay/internal/yamlfile"
)

// Script reads a scripted model that stands in a file of tests. What is wrong with it
// is told by its place there.
func Script(file string, n *yamlfile.Node) (*scripted.Script, []finding.Finding) {
	w := encoder{lines: true}
	w.value(n)
	script, found := scripted.Parse(file, []byte(w.b.String()))
	for i := range found {
		f := &found[i]
		at := [2]int{n.Line, n.Column}
		if i := f.Line - 2; i >= 0 && i < len(w.places) { // the first line has the brace alone
			at = w.places[i]
		}
		f.Line, f.Column = at[0], at[1]
	}
	return script, found
}
