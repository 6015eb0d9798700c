package secret

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Form says how a secret was written where it was found.
type Form string

// The forms in which a secret is found.
const (
	Plain     Form = "plain"
	Newlines  Form = "newlines"  // with CRLF for LF, or LF for CRLF
	Base64    Form = "base64"    // alone or as a part of what was encoded
	Base64URL Form = "base64url" // where that differs
	Hex       Form = "hex"       // in either case
	Percent   Form = "percent"   // by any of the usual encoders
	JSON      Form = "json"      // as it stands in a JSON string, once or twice over
)

// Bounds of a value.
const (
	MinValue = 8        // bytes without white space around it
	MaxValue = 64 << 10 // bytes
)

// Why a value can be no secret.
var (
	ErrShort = errors.New("the value is too short to be told from other text: it needs 8 bytes or more, white space around it not counted")
	ErrLong  = errors.New("the value is longer than 64 KiB")
)

// shape is one way in which a value may stand in a text. The text of a base64 shape
// is what the value alone decides; before and after it may be a character that the
// value decides in part.
type shape struct {
	form          Form
	text          []byte
	before, after bool
	part          bool // no secret by itself; see lines
}

// shapes gives all ways in which a value may stand in a text, each text once.
func shapes(value []byte) ([]shape, error) {
	value = bytes.TrimSpace(value)
	if len(value) < MinValue {
		return nil, ErrShort
	}
	if len(value) > MaxValue {
		return nil, ErrLong
	}
	var all list
	all.add(Plain, value)
	values := [][]byte{value}
	lf := bytes.ReplaceAll(value, []byte("\r\n"), []byte("\n"))
	for _, other := range [][]byte{lf, bytes.ReplaceAll(lf, []byte("\n"), []byte("\r\n"))} {
		if all.add(Newlines, other) {
			values = append(values, other)
		}
	}
	for _, v := range values {
		for shift := range 3 {
			all.addBase64(Base64, base64.RawStdEncoding, v, shift)
		}
		for shift := range 3 {
			all.addBase64(Base64URL, base64.RawURLEncoding, v, shift)
		}
		all.add(Hex, []byte(hex.EncodeToString(v)))
		all.add(Hex, []byte(strings.ToUpper(hex.EncodeToString(v))))
		for _, text := range percents(string(v)) {
			all.add(Percent, []byte(text))
		}
		for _, text := range jsons(v) {
			all.add(JSON, text)
		}
	}
	for _, line := range lines(lf) {
		all.put(shape{form: Plain, text: line, part: true})
	}
	return all.shapes, nil
}

// minLine is from how many bytes on a line of a value is masked by itself.
const minLine = 16

// lines are those of a value's lines by which it would be given away where a text is
// taken line by line, as a log takes what a program prints. What begins with dashes
// says what a file is, and is in many.
func lines(value []byte) [][]byte {
	all := bytes.Split(value, []byte("\n"))
	if len(all) == 1 {
		return nil
	}
	var out [][]byte
	for _, line := range all {
		if line = bytes.TrimSpace(line); len(line) >= minLine && !bytes.HasPrefix(line, []byte("-----")) {
			out = append(out, line)
		}
	}
	return out
}

type list struct {
	shapes []shape
	seen   map[string]bool
}

// add says whether the text is new.
func (l *list) add(f Form, text []byte) bool { return l.put(shape{form: f, text: text}) }

func (l *list) put(s shape) bool {
	if l.seen == nil {
		l.seen = map[string]bool{}
	}
	if l.seen[string(s.text)] {
		return false
	}
	l.seen[string(s.text)] = true
	l.shapes = append(l.shapes, s)
	return true
}

// addBase64 adds what a value that comes after shift bytes (and any number of three)
// turns into.
func (l *list) addBase64(f Form, enc *base64.Encoding, value []byte, shift int) {
	text := enc.EncodeToString(append(make([]byte, shift), value...))
	from := (shift*8 + 5) / 6
	to := (shift + len(value)) * 8 / 6
	l.put(shape{form: f, text: []byte(text[from:to]), before: shift > 0, after: to < len(text)})
}

// percents gives the value as usual encoders write it. They differ in what they leave
// as it is.
func percents(v string) []string {
	const unreserved = "-._~"
	var out []string
	for _, kept := range []string{
		unreserved,
		unreserved + "/",                   // Python's quote
		unreserved + "!*'()",               // encodeURIComponent
		unreserved + "$&+=:@",              // a segment of a path
		unreserved + "!$&'()*+,;=:@",       // the same by the book
		unreserved + "!$&'()*+,;=:@/?",     // a query by the book
		unreserved + "!$&'()*+,;=:@/?#",    // encodeURI
		unreserved + "!$&'()*+,;=:@/?#[]",  // what only secures a whole address
		unreserved + "!$&'()*+,;=:@/?#[]%", // and what does so twice
		"",                                 // nothing: every byte is encoded
	} {
		upper := percent(v, kept, kept == "")
		out = append(out, upper, lower(upper))
	}
	form := url.QueryEscape(v)
	return append(out, form, lower(form), strings.ReplaceAll(form, "~", "%7E"), strings.ReplaceAll(form, "%2A", "*"), strings.ReplaceAll(percent(v, "-._*", false), "%20", "+"))
}

func percent(v, kept string, all bool) string {
	var b strings.Builder
	for i := range len(v) {
		c := v[i]
		if !all && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte(kept, c) >= 0) {
			b.WriteByte(c)
			continue
		}
		fmt.Fprintf(&b, "%%%02X", c)
	}
	return b.String()
}

// lower writes the hex digits of a percent-encoded text in lower case.
func lower(text string) string {
	b := []byte(text)
	for i := 0; i+2 < len(b); i++ {
		if b[i] == '%' {
			copy(b[i+1:i+3], bytes.ToLower(b[i+1:i+3]))
			i += 2
		}
	}
	return string(b)
}

// jsons gives the value as it stands within a JSON string, as the usual encoders
// write it, and within a JSON string of that, which another encoder may have written.
func jsons(v []byte) [][]byte {
	if !utf8.Valid(v) {
		return nil
	}
	encoders := []struct{ html, ascii, slash bool }{{}, {html: true}, {ascii: true}, {slash: true}, {ascii: true, slash: true}, {html: true, ascii: true}}
	var out [][]byte
	for _, e := range encoders {
		once := escape(v, e.html, e.ascii, e.slash)
		out = append(out, once)
		for _, e := range encoders {
			out = append(out, escape(once, e.html, e.ascii, e.slash))
		}
	}
	return out
}

// escape writes a text as within a JSON string.
func escape(v []byte, html, ascii, slash bool) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(html)
	_ = enc.Encode(string(v)) // a text can always be written
	text := bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	text = text[1 : len(text)-1]
	if !html { // the encoder escapes these two for JavaScript's sake, as few others do
		text = bytes.ReplaceAll(text, []byte(`\u2028`), []byte("\u2028"))
		text = bytes.ReplaceAll(text, []byte(`\u2029`), []byte("\u2029"))
	}
	if slash {
		text = bytes.ReplaceAll(text, []byte("/"), []byte(`\/`))
	}
	if !ascii {
		return text
	}
	var out []byte
	for _, r := range string(text) {
		switch {
		case r < utf8.RuneSelf:
			out = append(out, byte(r))
		case r > 0xffff:
			hi, lo := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, hi, lo)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
	}
	return out
}
