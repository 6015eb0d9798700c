package yamlfile

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belay-run/belay/internal/finding"
)

// Reader collects the findings of one file.
type Reader struct {
	file     string
	above    int // lines of the file above the YAML that is being parsed
	findings *[]finding.Finding
}

// NewReader returns a reader that adds what it finds in the file of that name to
// findings.
func NewReader(file string, findings *[]finding.Finding) *Reader {
	return &Reader{file: file, findings: findings}
}

// File returns the file's name as it stands in findings.
func (r *Reader) File() string { return r.file }

// Reported says whether something was found in these lines of the file.
func (r *Reader) Reported(first, last int) bool {
	return slices.ContainsFunc(*r.findings, func(f finding.Finding) bool {
		return f.File == r.file && f.Line >= first && f.Line <= last
	})
}

// Spot is a place in a file that something is said about.
type Spot struct {
	r            *Reader
	Line, Column int
}

// Whole is the file as a whole.
func (r *Reader) Whole() Spot { return Spot{r: r} }

// At is a place by line and column.
func (r *Reader) At(line, column int) Spot { return Spot{r, line, column} }

// On is the place of a value.
func (r *Reader) On(n *Node) Spot { return Spot{r, n.Line, n.Column} }

// Key is the place of a key.
func (r *Reader) Key(f *Field) Spot { return Spot{r, f.Line, f.Column} }

// Err reports an error.
func (s Spot) Err(rule, message, hint string) { s.add(finding.Error, rule, message, hint) }

// Warn reports a warning.
func (s Spot) Warn(rule, message, hint string) { s.add(finding.Warning, rule, message, hint) }

func (s Spot) add(severity finding.Severity, rule, message, hint string) {
	*s.r.findings = append(*s.r.findings, finding.Finding{
		File: s.r.file, Line: s.Line, Column: s.Column, Rule: rule, Severity: severity, Message: message, Hint: hint,
	})
}

// Section is a mapping that is being read. It learns its known keys from what it
// is asked for; [Section.Close] then reports the rest. A nil section has no keys,
// so that optional sections need no checks.
type Section struct {
	R     *Reader
	Node  *Node
	path  string // such as "hooks[2].match", "" at the top
	known []string
}

// Open reads a value as a section. A missing or empty one is nil.
func (r *Reader) Open(n *Node, path string) *Section {
	if n == nil || n.Kind == Null {
		return nil
	}
	if n.Kind != Mapping {
		r.Mismatch(n, called(path), Mapping, "write keys under it, indented")
		return nil
	}
	return &Section{R: r, Node: n, path: path}
}

func called(path string) string {
	if path == "" {
		return "the file"
	}
	return path
}

// Mismatch reports a value of the wrong kind.
func (r *Reader) Mismatch(n *Node, what string, want Kind, hint string) {
	got := kindNames[n.Kind]
	if n.Kind == Number && want == Whole {
		got = "a number with a fraction"
	}
	r.On(n).Err("wrong-type", fmt.Sprintf("%s must be %s, not %s", what, kindNames[want], got), hint)
}

// Find looks a key up and makes it known. A key without a value is as good as
// missing; Close reports it.
func (s *Section) Find(key string) *Field {
	if s == nil {
		return nil
	}
	s.known = append(s.known, key)
	for i := range s.Node.Fields {
		if f := &s.Node.Fields[i]; f.Name == key && f.Value.Kind != Null {
			return f
		}
	}
	return nil
}

// Has says whether a key has a value.
func (s *Section) Has(key string) bool { return s.Find(key) != nil }

// Called is what a message calls the section.
func (s *Section) Called() string { return called(s.path) }

// Take looks a key up that may also be null, and takes it out of the section: Close
// does not report it as empty.
func (s *Section) Take(key string) *Field {
	s.Find(key) // it is a key that there may be
	if s == nil {
		return nil
	}
	i := slices.IndexFunc(s.Node.Fields, func(f Field) bool { return f.Name == key })
	if i < 0 {
		return nil
	}
	f := s.Node.Fields[i]
	node := *s.Node
	node.Fields = slices.Delete(slices.Clone(node.Fields), i, i+1)
	s.Node = &node
	return &f
}

// Full is the key's name with its section's before it.
func (s *Section) Full(key string) string {
	if s.path == "" {
		return key
	}
	return s.path + "." + key
}

// Path is the section's name, such as "rules[2]"; "" at the top.
func (s *Section) Path() string { return s.path }

// Here is the place of the section's first key.
func (s *Section) Here() Spot { return s.R.On(s.Node) }

// Spot is the place of a key's value, or of the section when there is none.
func (s *Section) Spot(key string) Spot {
	if f := s.Find(key); f != nil {
		return s.R.On(f.Value)
	}
	return s.Here()
}

// Get returns the value of a key if it is of the kind wanted. A whole number is a
// number too.
func (s *Section) Get(key string, want Kind, hint string) *Node {
	f := s.Find(key)
	if f == nil {
		return nil
	}
	if f.Value.Kind != want && (want != Number || f.Value.Kind != Whole) {
		s.R.Mismatch(f.Value, s.Full(key), want, hint)
		return nil
	}
	return f.Value
}

// Text reads a text; "" when there is none. A blank one is reported.
func (s *Section) Text(key string) string {
	text := s.TextOrBlank(key)
	if strings.TrimSpace(text) != "" {
		return text
	}
	if f := s.Find(key); f != nil && f.Value.Kind == Text {
		s.R.On(f.Value).Err("empty-value", s.Full(key)+" is blank", "write something there, or delete the key")
	}
	return ""
}

// TextOrBlank reads a text; "" when there is none.
func (s *Section) TextOrBlank(key string) string {
	hint := "write plain text"
	if f := s.Find(key); f != nil && (f.Value.Kind == Whole || f.Value.Kind == Number || f.Value.Kind == Bool) {
		hint = "put it in quotes"
	}
	if n := s.Get(key, Text, hint); n != nil {
		return n.Text
	}
	return ""
}

// Needed reads a text that must be there.
func (s *Section) Needed(key, hint string) string {
	s.Require(key, hint)
	return s.Text(key)
}

// Require reports a key that is not there. One without a value is reported by
// Close.
func (s *Section) Require(key, hint string) {
	if s != nil && s.Node.Field(key) == nil {
		s.Here().Err("missing-key", s.Full(key)+" is missing", hint)
	}
}

// OneOf reads one of a few words; "" when there is none, or another one, which is
// reported.
func (s *Section) OneOf(key string, words ...string) string {
	n := s.Get(key, Text, "write one of "+strings.Join(words, ", "))
	if n == nil {
		return ""
	}
	if slices.Contains(words, n.Text) {
		return n.Text
	}
	s.R.On(n).Err("unknown-value", fmt.Sprintf("%s is none of %s", s.Full(key), strings.Join(words, ", ")), Meant(n.Text, words))
	return ""
}

// Texts reads a list of texts; every item comes with its place. A list that is
// there and has nothing in it is reported, since readers would take it for all or
// for none.
func (s *Section) Texts(key string) []*Node {
	n := s.Get(key, List, "write a list: [one, two]")
	if n == nil {
		return nil
	}
	if len(n.Items) == 0 {
		s.R.On(n).Err("empty-list", s.Full(key)+" is an empty list", "leave the key out, or name something in the list")
		return nil
	}
	var out []*Node
	for _, item := range n.Items {
		switch {
		case item.Kind != Text:
			s.R.Mismatch(item, "an item of "+s.Full(key), Text, "put it in quotes")
		case strings.TrimSpace(item.Text) == "":
			s.R.On(item).Err("empty-value", "an item of "+s.Full(key)+" is blank", "delete it")
		default:
			out = append(out, item)
		}
	}
	return out
}

// Sections reads a list of mappings, each opened as key[n], from 1.
func (s *Section) Sections(key string) []*Section {
	n := s.Get(key, List, `write a list, each item beginning with "- "`)
	if n == nil {
		return nil
	}
	var out []*Section
	for i, item := range n.Items {
		path := fmt.Sprintf("%s[%d]", s.Full(key), i+1)
		if item.Kind == Null {
			s.R.On(item).Err("empty-value", path+" is empty", "delete it, or write its keys")
			continue
		}
		if sub := s.R.Open(item, path); sub != nil {
			out = append(out, sub)
		}
	}
	return out
}

// Count reads a whole number within bounds, or reports it and gives the fallback.
func (s *Section) Count(key string, least, most, fallback int) int {
	if v := s.Within(key, least, most, "correct the number"); v != nil {
		return *v
	}
	return fallback
}

// Within reads a whole number within bounds; nil when there is none. One beyond
// them is reported with the hint.
func (s *Section) Within(key string, least, most int, hint string) *int {
	n := s.Get(key, Whole, "write a whole number without quotes")
	if n == nil {
		return nil
	}
	v, err := strconv.Atoi(n.Text)
	if err != nil || v < least || v > most {
		s.R.On(n).Err("bad-value", fmt.Sprintf("%s must be from %d to %d", s.Full(key), least, most), hint)
		return nil
	}
	return &v
}

// Number reads a number within bounds; nil when there is none.
func (s *Section) Number(key string, least, most float64) *float64 {
	n := s.Get(key, Number, "write a number without quotes")
	if n == nil {
		return nil
	}
	v, err := strconv.ParseFloat(n.Text, 64)
	if err != nil || math.IsNaN(v) || v < least || v > most {
		s.R.On(n).Err("bad-value", fmt.Sprintf("%s must be from %v to %v", s.Full(key), least, most), "correct the number")
		return nil
	}
	return &v
}

// Flag reads true or false; false when there is none.
func (s *Section) Flag(key string) bool {
	n := s.Get(key, Bool, "write true or false without quotes")
	return n != nil && n.Text == "true"
}

// Duration reads a time such as 2s or 500ms, or a number of seconds. Under rule it
// reports what is no time, none, or more than most.
func (s *Section) Duration(key string, most, fallback time.Duration, rule string) time.Duration {
	f := s.Find(key)
	if f == nil {
		return fallback
	}
	d, ok := f.Value.Duration(most)
	if !ok {
		s.R.On(f.Value).Err(rule, fmt.Sprintf("%s must be a time of more than 0 and at most %v", s.Full(key), most), "write for example 2s or 500ms")
		return fallback
	}
	return d
}

// Duration is the value as a time: a number of seconds, or a text such as 2s or
// 500ms. It is not ok when it is none, 0 or less, or more than most.
func (n *Node) Duration(most time.Duration) (d time.Duration, ok bool) {
	switch n.Kind {
	case Whole, Number:
		if seconds, err := strconv.ParseFloat(n.Text, 64); err == nil && seconds > 0 && seconds <= most.Seconds() {
			d = time.Duration(seconds * float64(time.Second))
		}
	case Text:
		if v, err := time.ParseDuration(n.Text); err == nil && v <= most {
			d = v
		}
	}
	return d, d > 0
}

// Sub opens the value of a key as a section of its own.
func (s *Section) Sub(key string) *Section {
	f := s.Find(key)
	if f == nil {
		return nil
	}
	return s.R.Open(f.Value, s.Full(key))
}

// Rest returns the fields that nobody asked for.
func (s *Section) Rest() []*Field {
	if s == nil {
		return nil
	}
	var out []*Field
	for i := range s.Node.Fields {
		if !slices.Contains(s.known, s.Node.Fields[i].Name) {
			out = append(out, &s.Node.Fields[i])
		}
	}
	return out
}

// Close reports every key that nobody asked for as unknown, and the empty ones.
func (s *Section) Close() {
	s.Unknown()
	s.Empty()
}

// Unknown reports every key that nobody asked for. At the top of a file keys that
// begin with "x-" are the author's own, as a place for anchors.
func (s *Section) Unknown() {
	for _, f := range s.Rest() {
		if s.path == "" && strings.HasPrefix(f.Name, "x-") || s.Slip(f) {
			continue
		}
		hint := "delete it"
		if len(s.known) > 0 {
			hint += ", or use one of " + strings.Join(s.Known(), ", ")
		}
		s.unknown(f, hint)
	}
}

// Slip reports a key that nobody asked for if it looks like a slip of one that is
// known, and says whether it does.
func (s *Section) Slip(f *Field) bool {
	near := Nearest(f.Name, s.known)
	if near != "" {
		s.unknown(f, fmt.Sprintf("did you mean %q?", near))
	}
	return near != ""
}

func (s *Section) unknown(f *Field, hint string) {
	s.R.Key(f).Err("unknown-key", fmt.Sprintf("unknown key %s in %s", Shown(f.Name), s.Called()), hint)
}

// Empty reports the keys that the section was asked for and that have no value:
// left empty, a key could be taken for anything.
func (s *Section) Empty() {
	if s == nil {
		return
	}
	for i := range s.Node.Fields {
		if f := &s.Node.Fields[i]; f.Value.Kind == Null && slices.Contains(s.known, f.Name) {
			s.R.Key(f).Err("empty-value", s.Full(f.Name)+" has no value", "write one, or delete the key")
		}
	}
}

// Known returns the keys that the section was asked for, sorted.
func (s *Section) Known() []string { return sorted(s.known) }
