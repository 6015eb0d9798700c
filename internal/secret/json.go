package secret

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// Bounds of a JSON value that is scanned.
const (
	MaxText     = 16 << 20 // bytes of text: of all strings and keys, as UTF-8
	MaxSecrets  = 100      // different secrets
	maxFindings = 100_000
	maxDepth    = 10_000
)

// Why it cannot be told where in a JSON value the secrets are.
var (
	ErrText     = errors.New("the value has more than 16 MiB of text")
	ErrMany     = errors.New("the value has more than 100 different secrets of the tenant")
	ErrFindings = errors.New("the value has secrets in more than 100000 places")
	ErrKey      = errors.New("the value has a secret in the key of an object, which no JSON pointer can name")
	ErrTwice    = errors.New("the value has a secret in an object that has a key twice, which no JSON pointer can tell apart")
	ErrNoJSON   = errors.New("the value is no JSON")
)

// ScanJSON finds the secrets in the strings (and numbers) of a JSON value. Paths
// begin with root. It is nil, never an empty list, when an error says why nobody can
// be told.
func (s *Scanner) ScanJSON(raw []byte, root string) ([]Finding, error) {
	if len(raw) > MaxText {
		n, err := textSize(raw)
		if err == nil && n > MaxText {
			err = ErrText
		}
		if err != nil {
			return nil, err
		}
	}
	out := []Finding{}
	if s == nil {
		return out, nil
	}
	p := s.probe()
	p.most = maxFindings
	defer p.scanRaw(raw)()
	if len(p.found) == 0 {
		return out, nil
	}
	if len(p.found) > maxFindings {
		return nil, ErrFindings
	}
	names := map[int32]bool{}
	w := walker{raw: raw, matches: p.matches(), path: []byte(root)}
	w.hit = func(t token, found []match) error {
		if t.key {
			return ErrKey
		}
		var start runes
		for _, m := range found {
			k := &s.prints[m.print]
			from := start.to(t.text, m.start)
			end := start
			out = append(out, Finding{Path: string(w.path), Start: from, End: end.to(t.text, m.end), Name: s.names[k.name], Form: k.form})
			if names[k.name] = true; len(names) > MaxSecrets {
				return ErrMany
			}
		}
		return nil
	}
	if err := w.value(0); err != nil {
		return nil, err
	}
	if w.twice {
		return nil, ErrTwice
	}
	return out, nil
}

// scanRaw looks through the text of a JSON value, in which escapes count as what they
// stand for. What it gives is to be called when what was found is no longer needed.
func (p *probe) scanRaw(raw []byte) (release func()) {
	at := bytes.IndexByte(raw, '\\')
	if at < 0 {
		p.buf = raw
		p.advance(true)
		return func() { p.release(nil) }
	}
	p.buf = p.own[:0]
	for i := 0; i < len(raw); {
		run := raw[i:]
		if at >= i {
			run = raw[i:at]
		}
		if len(run) > chunk {
			run = run[:chunk]
		}
		p.buf = append(p.buf, run...)
		if i += len(run); i == at {
			r, n := escaped(raw[i:])
			p.buf = utf8.AppendRune(p.buf, r)
			i += n
			if at = bytes.IndexByte(raw[i:], '\\'); at >= 0 {
				at += i
			}
		}
		if len(p.buf)-p.next > chunk {
			p.advance(false)
			p.trim()
		}
	}
	p.advance(true)
	return func() { p.release(p.buf) }
}

// escaped reads an escape: what it stands for, and its length. What is no escape is a
// backslash.
func escaped(b []byte) (rune, int) {
	if len(b) < 2 {
		return '\\', 1
	}
	switch b[1] {
	case '"', '\\', '/':
		return rune(b[1]), 2
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
		r, ok := unit(b)
		if !ok {
			return '\\', 1
		}
		if utf16.IsSurrogate(r) {
			if low, ok := unit(b[6:]); ok {
				if both := utf16.DecodeRune(r, low); both != utf8.RuneError {
					return both, 12
				}
			}
			return utf8.RuneError, 6
		}
		return r, 6
	}
	return '\\', 1
}

// unit reads \uXXXX.
func unit(b []byte) (rune, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	var r rune
	for _, c := range b[2:6] {
		switch {
		case c >= '0' && c <= '9':
			r = r<<4 | rune(c-'0')
		case c >= 'a' && c <= 'f':
			r = r<<4 | rune(c-'a'+10)
		case c >= 'A' && c <= 'F':
			r = r<<4 | rune(c-'A'+10)
		default:
			return 0, false
		}
	}
	return r, true
}

// textSize is how many bytes of text a JSON value has.
func textSize(raw []byte) (int, error) {
	n := 0
	for i := 0; i < len(raw); i++ {
		if raw[i] != '"' {
			continue
		}
		t, err := text(raw, i)
		if err != nil {
			return n, err
		}
		n += t.size
		i = t.end - 1
	}
	return n, nil
}

// span is a string in a JSON text.
type span struct {
	end  int // after its closing quote
	size int // of what it says, in bytes
}

// text reads the string that begins at raw[at].
func text(raw []byte, at int) (span, error) {
	size := 0
	for i := at + 1; i < len(raw); {
		end := bytes.IndexByte(raw[i:], '"')
		if end < 0 {
			break
		}
		escape := bytes.IndexByte(raw[i:i+end], '\\')
		if escape < 0 {
			return span{i + end + 1, size + end}, nil
		}
		size += escape
		i += escape
		for i < len(raw) && raw[i] == '\\' {
			r, n := escaped(raw[i:])
			if n == 1 {
				return span{}, ErrNoJSON
			}
			size += utf8.RuneLen(r)
			i += n
		}
	}
	return span{}, ErrNoJSON
}

// said is what a string says.
func said(inner []byte) string {
	if bytes.IndexByte(inner, '\\') < 0 {
		return string(inner)
	}
	out := make([]byte, 0, len(inner))
	for i := 0; i < len(inner); {
		if inner[i] != '\\' {
			out = append(out, inner[i])
			i++
			continue
		}
		r, n := escaped(inner[i:])
		out = utf8.AppendRune(out, r)
		i += n
	}
	return string(out)
}

// token is a string, a key or a number in which something was found.
type token struct {
	from, to int    // where it stands, with its quotes
	text     string // what it says
	key      bool
	number   bool
}

// walker goes through a JSON value and says in which strings the matches are. It
// counts the text that was scanned, in which escapes are resolved, along.
type walker struct {
	raw     []byte
	at      int // in raw
	gone    int // bytes that raw[:at] is longer than what was scanned of it
	matches []match
	path    []byte
	hit     func(t token, found []match) error
	hits    int
	twice   bool // a key stands twice in an object in which something was found
}

func (w *walker) space() {
	for w.at < len(w.raw) && (w.raw[w.at] == ' ' || w.raw[w.at] == '\n' || w.raw[w.at] == '\r' || w.raw[w.at] == '\t') {
		w.at++
	}
}

func (w *walker) peek() byte {
	if w.space(); w.at < len(w.raw) {
		return w.raw[w.at]
	}
	return 0
}

func (w *walker) take(c byte) error {
	if w.peek() != c {
		return fmt.Errorf("%w: a %q is missing at byte %d", ErrNoJSON, c, w.at)
	}
	w.at++
	return nil
}

func (w *walker) value(depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("%w: it is nested more than %d deep", ErrNoJSON, maxDepth)
	}
	switch c := w.peek(); c {
	case '{':
		return w.object(depth)
	case '[':
		return w.array(depth)
	case '"':
		_, err := w.text(false)
		return err
	case 0, '}', ']', ':', ',':
		return fmt.Errorf("%w: a value is missing at byte %d", ErrNoJSON, w.at)
	}
	from := w.at
	for w.at < len(w.raw) && !bytes.ContainsRune([]byte(" \n\r\t,]}\""), rune(w.raw[w.at])) {
		w.at++
	}
	return w.report(token{from: from, to: w.at, number: true}, from-w.gone, w.at-w.gone)
}

func (w *walker) array(depth int) error {
	w.at++
	if w.peek() == ']' {
		w.at++
		return nil
	}
	here := len(w.path)
	for i := 0; ; i++ {
		w.path = strconv.AppendInt(append(w.path[:here], '/'), int64(i), 10)
		if err := w.value(depth + 1); err != nil {
			return err
		}
		w.path = w.path[:here]
		if w.peek() == ']' {
			w.at++
			return nil
		}
		if err := w.take(','); err != nil {
			return err
		}
	}
}

func (w *walker) object(depth int) error {
	w.at++
	if w.peek() == '}' {
		w.at++
		return nil
	}
	here, hits := len(w.path), w.hits
	seen, twice := map[string]bool{}, false
	for {
		if w.peek() != '"' {
			return fmt.Errorf("%w: a key is missing at byte %d", ErrNoJSON, w.at)
		}
		key, err := w.text(true)
		if err != nil {
			return err
		}
		if err := w.take(':'); err != nil {
			return err
		}
		twice = twice || seen[key]
		seen[key] = true
		w.path = appendKey(w.path[:here], key)
		if err := w.value(depth + 1); err != nil {
			return err
		}
		w.path = w.path[:here]
		w.twice = w.twice || twice && w.hits > hits
		if w.peek() == '}' {
			w.at++
			return nil
		}
		if err := w.take(','); err != nil {
			return err
		}
	}
}

// appendKey adds a key to a JSON pointer.
func appendKey(path []byte, key string) []byte {
	path = append(path, '/')
	for i := range len(key) {
		switch c := key[i]; c {
		case '~':
			path = append(path, "~0"...)
		case '/':
			path = append(path, "~1"...)
		default:
			path = append(path, c)
		}
	}
	return path
}

// text reads a string. What it says is given for keys only.
func (w *walker) text(key bool) (string, error) {
	from := w.at
	t, err := text(w.raw, from)
	if err != nil {
		return "", err
	}
	start := from + 1 - w.gone
	w.at = t.end
	w.gone += t.end - from - 2 - t.size
	if err := w.report(token{from: from, to: t.end, key: key}, start, start+t.size); err != nil {
		return "", err
	}
	if !key {
		return "", nil
	}
	return said(w.raw[from+1 : t.end-1]), nil
}

// report says what was found in a token, whose text was scanned from start to end.
func (w *walker) report(t token, start, end int) error {
	for len(w.matches) > 0 && w.matches[0].start < start { // across the ends of strings is nothing
		w.matches = w.matches[1:]
	}
	n := 0
	for n < len(w.matches) && w.matches[n].start < end {
		n++
	}
	if n == 0 {
		return nil
	}
	inside := slices.Clone(w.matches[:n])
	w.matches = w.matches[n:]
	inside = slices.DeleteFunc(inside, func(m match) bool { return m.end > end })
	if len(inside) == 0 {
		return nil
	}
	for i := range inside {
		inside[i].start -= start
		inside[i].end -= start
	}
	t.text = string(w.raw[t.from:t.to])
	if !t.number {
		t.text = said(w.raw[t.from+1 : t.to-1])
	}
	w.hits += len(inside)
	return w.hit(t, inside)
}
