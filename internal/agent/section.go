package agent

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belay-run/belay/internal/finding"
)

// reader collects the findings of one file.
type reader struct {
	file     string
	above    int // lines of the file above the YAML that is being read
	findings *[]finding.Finding
}

// spot is a place in a file that something is said about.
type spot struct {
	r            *reader
	line, column int
}

func (r *reader) whole() spot              { return spot{r: r} }
func (r *reader) at(line, column int) spot { return spot{r, line, column} }
func (r *reader) on(n *node) spot          { return spot{r, n.line, n.column} }
func (r *reader) key(f *field) spot        { return spot{r, f.line, f.column} }
func (s spot) err(rule, message, hint string) {
	s.add(finding.Error, rule, message, hint)
}
func (s spot) warn(rule, message, hint string) {
	s.add(finding.Warning, rule, message, hint)
}

func (s spot) add(severity finding.Severity, rule, message, hint string) {
	*s.r.findings = append(*s.r.findings, finding.Finding{
		File: s.r.file, Line: s.line, Column: s.column, Rule: rule, Severity: severity, Message: message, Hint: hint,
	})
}

// section is a mapping that is being read. It learns its known keys from what it
// is asked for; [section.close] then reports the rest. A nil section has no keys,
// so that optional sections need no checks.
type section struct {
	r     *reader
	n     *node
	path  string // such as "agent.references", "" at the top
	known []string
}

// open reads a value as a section. A missing or empty one is nil.
func (r *reader) open(n *node, path string) *section {
	if n == nil || n.kind == isNull {
		return nil
	}
	if n.kind != isMapping {
		r.mismatch(n, name(path), isMapping, "write keys under it, indented")
		return nil
	}
	return &section{r: r, n: n, path: path}
}

func name(path string) string {
	if path == "" {
		return "the file"
	}
	return path
}

func (r *reader) mismatch(n *node, what string, want kind, hint string) {
	got := kindNames[n.kind]
	if n.kind == isNumber {
		got = "a number with a fraction"
	}
	r.on(n).err("wrong-type", fmt.Sprintf("%s must be %s, not %s", what, kindNames[want], got), hint)
}

// find looks a key up and makes it known. A key whose value is empty is as good
// as missing.
func (s *section) find(key string) *field {
	if s == nil {
		return nil
	}
	s.known = append(s.known, key)
	for i := range s.n.fields {
		if f := &s.n.fields[i]; f.name == key && f.value.kind != isNull {
			return f
		}
	}
	return nil
}

func (s *section) has(key string) bool { return s.find(key) != nil }

func (s *section) full(key string) string {
	if s.path == "" {
		return key
	}
	return s.path + "." + key
}

// get returns the value of a key if it is of the kind wanted.
func (s *section) get(key string, want kind, hint string) *node {
	f := s.find(key)
	if f == nil {
		return nil
	}
	if f.value.kind != want && (want != isNumber || f.value.kind != isWhole) {
		s.r.mismatch(f.value, s.full(key), want, hint)
		return nil
	}
	return f.value
}

func (s *section) text(key string) string {
	hint := "write plain text"
	if f := s.find(key); f != nil && (f.value.kind == isWhole || f.value.kind == isNumber || f.value.kind == isBool) {
		hint = "put it in quotes"
	}
	if n := s.get(key, isText, hint); n != nil {
		return n.text
	}
	return ""
}

// lines reads a list of texts.
func (s *section) lines(key string) []string {
	n := s.get(key, isList, "write one line each, beginning with \"- \"")
	if n == nil {
		return nil
	}
	var out []string
	for _, item := range n.items {
		switch {
		case item.kind == isMapping:
			s.r.mismatch(item, "a line of "+s.full(key), isText, `a line with ": " in it reads as a mapping; put the line in quotes`)
		case item.kind != isText:
			s.r.mismatch(item, "a line of "+s.full(key), isText, "put it in quotes")
		case strings.TrimSpace(item.text) == "":
			s.r.on(item).err("bad-value", "a line of "+s.full(key)+" is blank", "delete it")
		default:
			out = append(out, strings.TrimSpace(item.text))
		}
	}
	return out
}

// prose reads a text, or a list of texts as its lines.
func (s *section) prose(key string) string {
	if f := s.find(key); f != nil && f.value.kind == isList {
		return strings.Join(s.lines(key), "\n")
	}
	return s.text(key)
}

// count reads a whole number within bounds.
func (s *section) count(key string, least, most, fallback int) int {
	if v := s.within(key, least, most, fmt.Sprintf("leave it out for %d", fallback)); v != nil {
		return *v
	}
	return fallback
}

// optional reads a whole number that has no default; nil when it is not there.
func (s *section) optional(key string, least int) *int {
	return s.within(key, least, 10_000_000, "correct the number")
}

func (s *section) within(key string, least, most int, hint string) *int {
	n := s.get(key, isWhole, "write a whole number without quotes")
	if n == nil {
		return nil
	}
	v, err := strconv.Atoi(n.text)
	if err != nil || v < least || v > most {
		s.r.on(n).err("bad-value", fmt.Sprintf("%s must be from %d to %d", s.full(key), least, most), hint)
		return nil
	}
	return &v
}

// number reads a number within bounds; nil when it is not there.
func (s *section) number(key string, least, most float64) *float64 {
	n := s.get(key, isNumber, "write a number without quotes")
	if n == nil {
		return nil
	}
	v, err := strconv.ParseFloat(n.text, 64)
	if err != nil || math.IsNaN(v) || v < least || v > most {
		s.r.on(n).err("bad-value", fmt.Sprintf("%s must be from %v to %v", s.full(key), least, most), "correct the number")
		return nil
	}
	return &v
}

const maxSeconds = 3600

// duration reads seconds, or text such as "30s".
func (s *section) duration(key string, fallback time.Duration) time.Duration {
	f := s.find(key)
	if f == nil {
		return fallback
	}
	var d time.Duration
	switch f.value.kind {
	case isWhole, isNumber:
		seconds, err := strconv.ParseFloat(f.value.text, 64)
		if err == nil && seconds > 0 && seconds <= maxSeconds {
			d = time.Duration(seconds * float64(time.Second))
		}
	case isText:
		if v, err := time.ParseDuration(f.value.text); err == nil && v <= maxSeconds*time.Second {
			d = v
		}
	}
	if d <= 0 {
		s.r.on(f.value).err("bad-value", fmt.Sprintf("%s must be a number of seconds, more than 0 and at most %d", s.full(key), maxSeconds), `write for example 10, or "10s"`)
		return fallback
	}
	return d
}

var (
	spans = regexp.MustCompile(`^([0-9]{1,7})([dhm])$`)
	units = map[string]time.Duration{"d": 24 * time.Hour, "h": time.Hour, "m": time.Minute}
)

// span reads a number of days, hours or minutes, such as 90d; 0 when it is not
// there.
func (s *section) span(key string, least, most time.Duration) time.Duration {
	f := s.find(key)
	if f == nil {
		return 0
	}
	if parts := spans.FindStringSubmatch(f.value.text); f.value.kind == isText && parts != nil {
		n, err := strconv.Atoi(parts[1])
		if d := time.Duration(n) * units[parts[2]]; err == nil && n <= int(most/units[parts[2]]) && d >= least {
			return d
		}
	}
	s.r.on(f.value).err("bad-value", fmt.Sprintf("%s must be a number of days, hours or minutes, from %dh to %dd", s.full(key), int(least.Hours()), int(most.Hours()/24)),
		"write for example 90d, 36h or 90m")
	return 0
}

func (s *section) sub(key string) *section {
	f := s.find(key)
	if f == nil {
		return nil
	}
	return s.r.open(f.value, s.full(key))
}

// idle makes keys known that this version reads and does nothing with.
func (s *section) idle(keys ...string) {
	for _, key := range keys {
		if f := s.find(key); f != nil {
			s.r.key(f).warn("not-acted-on", s.full(key)+" is read but not acted on in this version", "nothing needs to change; the agent runs without it")
		}
	}
}

// rest returns the fields that nobody asked for.
func (s *section) rest() []*field {
	if s == nil {
		return nil
	}
	var out []*field
	for i := range s.n.fields {
		if !slices.Contains(s.known, s.n.fields[i].name) {
			out = append(out, &s.n.fields[i])
		}
	}
	return out
}

// close reports every key that nobody asked for as unknown. At the top of a file
// keys that begin with "x-" are the author's own, as a place for anchors.
func (s *section) close() {
	for _, f := range s.rest() {
		if s.path == "" && strings.HasPrefix(f.name, "x-") {
			continue
		}
		hint := "delete it, or use one of " + strings.Join(sorted(s.known), ", ")
		if near := nearest(f.name, s.known); near != "" {
			hint = fmt.Sprintf("did you mean %q?", near)
		}
		s.r.key(f).err("unknown-key", fmt.Sprintf("unknown key %s in %s", shown(f.name), name(s.path)), hint)
	}
}

// closeLoosely reports only what looks mistyped as unknown; other keys belong to
// settings that this version does not have.
func (s *section) closeLoosely() {
	for _, f := range s.rest() {
		if near := nearest(f.name, s.known); near != "" {
			s.r.key(f).err("unknown-key", fmt.Sprintf("unknown key %s in %s", shown(f.name), name(s.path)), fmt.Sprintf("did you mean %q?", near))
			continue
		}
		s.r.key(f).warn("not-acted-on", fmt.Sprintf("%s in %s is not acted on in this version", shown(f.name), name(s.path)), "nothing needs to change; the agent runs without it")
	}
}

func sorted(names []string) []string {
	out := slices.Clone(names)
	slices.Sort(out)
	return slices.Compact(out)
}

const notShown = "(not shown)"

var plainKey = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]{0,39}$`)

// shown quotes a key for a message. What does not look like a key may be a secret
// that slipped to the wrong side of a colon, and is not shown.
func shown(key string) string {
	if !plainKey.MatchString(key) || secretLike.MatchString(key) {
		return notShown
	}
	return strconv.Quote(key)
}

// tidy is [shown] without the quotes, for paths.
func tidy(key string) string { return strings.Trim(shown(key), `"`) }

// raw writes a value as JSON. Whole numbers keep all their digits.
func (r *reader) raw(n *node) (json.RawMessage, bool) {
	var b strings.Builder
	if !r.write(&b, n) {
		return nil, false
	}
	return json.RawMessage(b.String()), true
}

func (r *reader) write(b *strings.Builder, n *node) bool {
	switch n.kind {
	case isNull:
		b.WriteString("null")
	case isBool, isWhole:
		b.WriteString(n.text)
	case isNumber:
		v, err := strconv.ParseFloat(n.text, 64)
		if err != nil || math.IsInf(v, 0) || math.IsNaN(v) {
			r.on(n).err("bad-value", "this number cannot be passed on", "write a finite number")
			return false
		}
		b.WriteString(strconv.FormatFloat(v, 'g', -1, 64))
	case isText:
		quoted, _ := json.Marshal(n.text) // a string always has a JSON form
		b.Write(quoted)
	case isList:
		b.WriteByte('[')
		for i, item := range n.items {
			if i > 0 {
				b.WriteByte(',')
			}
			if !r.write(b, item) {
				return false
			}
		}
		b.WriteByte(']')
	case isMapping:
		b.WriteByte('{')
		for i, f := range n.fields {
			if i > 0 {
				b.WriteByte(',')
			}
			quoted, _ := json.Marshal(f.name)
			b.Write(quoted)
			b.WriteByte(':')
			if !r.write(b, f.value) {
				return false
			}
		}
		b.WriteByte('}')
	}
	return true
}
