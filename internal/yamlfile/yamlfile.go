// Package yamlfile reads YAML strictly and keeps the place of every value, so that
// what is wrong is reported with its line, its column and what to do.
//
//	var findings []finding.Finding
//	r := yamlfile.NewReader("policy.yaml", &findings)
//	top := r.Open(r.Parse(data), "")
//	name := top.Text("name")
//	limit := top.Count("calls", 1, 1000, 20)
//	top.Close() // every other key is unknown
//
// Nothing is guessed: a key that stands twice, one that nobody asks for, one
// without a value, a list with nothing in it and a value of the wrong kind are
// errors. A file from anyone may be read: its size, depth and aliases are bounded.
package yamlfile

import "github.com/belay-run/belay/internal/finding"

// Rules describes the findings of this package, sorted by id.
func Rules() []finding.Rule {
	return []finding.Rule{
		{ID: "bad-encoding", Summary: "A file is not UTF-8 text, or has control characters.", Help: "Save the file as UTF-8. A byte order mark and Windows line ends are fine."},
		{ID: "bad-value", Summary: "A value is outside what its key takes.", Help: "The message says what the key takes."},
		{ID: "duplicate-key", Summary: "A key stands twice.", Help: "Only one of the two can count, so neither is guessed. Keep one."},
		{ID: "empty-list", Summary: "A list has nothing in it.", Help: "An empty list would be read as all by one and as none by another, so it is an error."},
		{ID: "empty-value", Summary: "A key or an item of a list has no value.", Help: "Write one, or delete the key."},
		{ID: "missing-key", Summary: "A key that is needed is not there.", Help: "The message says which one."},
		{ID: "unknown-key", Summary: "A key that does not exist there.", Help: "A mistyped key would be passed over in silence, so it is an error."},
		{ID: "unknown-value", Summary: "A word that its key does not take.", Help: "A mistyped word would be passed over in silence, so it is an error."},
		{ID: "wrong-type", Summary: "A value is of the wrong type, such as a list where text is needed.", Help: "The message says what is needed. Text that looks like a number, or has ': ' in it, needs quotes."},
		{ID: "yaml-documents", Summary: "A YAML file holds more than one document.", Help: "Keep one and delete the lines \"---\"."},
		{ID: "yaml-syntax", Summary: "A file is no YAML that can be read.", Help: "Check indentation, quotes and brackets, in the line before too."},
		{ID: "yaml-too-complex", Summary: "A YAML file has too many, too deeply nested or too often repeated entries.", Help: "Split or flatten it. The bounds keep a file from anyone from keeping the reader busy."},
	}
}
