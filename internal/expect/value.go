package expect

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/belay-run/belay/internal/yamlfile"
)

// JSON writes a value of a YAML file as JSON, keys in their order. ok is false for a
// number that JSON does not have.
func JSON(n *yamlfile.Node) (raw json.RawMessage, ok bool) {
	var w encoder
	w.value(n)
	return json.RawMessage(w.b.String()), !w.failed
}

// encoder writes JSON. With lines it begins a line at each entry and keeps which
// place in the file the line is from.
type encoder struct {
	b      strings.Builder
	lines  bool
	places [][2]int // line and column in the file, by the line written
	failed bool
}

func (w *encoder) value(n *yamlfile.Node) {
	switch n.Kind {
	case yamlfile.Text:
		w.b.WriteString(Quote(n.Text))
	case yamlfile.Whole, yamlfile.Number:
		w.b.WriteString(w.number(n.Text))
	case yamlfile.Bool:
		w.b.WriteString(n.Text)
	case yamlfile.List:
		w.b.WriteByte('[')
		for i, item := range n.Items {
			w.next(i, item.Line, item.Column)
			w.value(item)
		}
		w.b.WriteByte(']')
	case yamlfile.Mapping:
		w.b.WriteByte('{')
		for i := range n.Fields {
			f := &n.Fields[i]
			w.next(i, f.Line, f.Column)
			w.b.WriteString(Quote(f.Name) + ": ")
			w.value(f.Value)
		}
		w.b.WriteByte('}')
	default:
		w.b.WriteString("null")
	}
}

func (w *encoder) next(i, line, column int) {
	if i > 0 {
		w.b.WriteString(", ")
	}
	if w.lines {
		w.b.WriteByte('\n')
		w.places = append(w.places, [2]int{line, column})
	}
}

// number gives a YAML number as JSON writes it.
func (w *encoder) number(text string) string {
	if json.Valid([]byte(text)) {
		return text
	}
	f, err := strconv.ParseFloat(strings.ReplaceAll(text, "_", ""), 64)
	if err != nil || math.IsInf(f, 0) || math.IsNaN(f) {
		w.failed = true
		return "null"
	}
	return strconv.FormatFloat(f, 'g', -1, 64)
}

// Quote writes a text as a string that is JSON and YAML alike, without what the
// reader of YAML files refuses.
func Quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\r':
			b.WriteString(`\r`)
		case r < ' ' || r >= 0x7f && r <= 0xa0 || r == 0x2028 || r == 0x2029 || r == 0xfeff || r == utf8.RuneError:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// Tidy writes JSON anew for a YAML file: one line, a space after each comma and
// colon, texts as Quote has them, keys in their order.
func Tidy(raw json.RawMessage) (string, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var b strings.Builder
	if err := tidyValue(dec, &b); err != nil {
		return "", err
	}
	return b.String(), nil
}

func tidyValue(dec *json.Decoder, b *strings.Builder) error {
	token, err := dec.Token()
	if err != nil {
		return err
	}
	open, ok := token.(json.Delim)
	if !ok {
		switch v := token.(type) {
		case string:
			b.WriteString(Quote(v))
		case json.Number:
			b.WriteString(pointed(string(v)))
		case nil:
			b.WriteString("null")
		default:
			fmt.Fprint(b, v)
		}
		return nil
	}
	b.WriteString(open.String())
	for i := 0; dec.More(); i++ {
		if i > 0 {
			b.WriteString(", ")
		}
		if open == '{' {
			key, err := dec.Token()
			if err != nil {
				return err
			}
			b.WriteString(Quote(key.(string)) + ": ")
		}
		if err := tidyValue(dec, b); err != nil {
			return err
		}
	}
	last, err := dec.Token()
	if err == nil {
		b.WriteString(last.(json.Delim).String())
	}
	return err
}

// pointed writes a number with an exponent as YAML takes it for one: with a point.
func pointed(number string) string {
	i := strings.IndexAny(number, "eE")
	if i < 0 || strings.Contains(number[:i], ".") {
		return number
	}
	return number[:i] + ".0" + number[i:]
}

// Decode reads JSON, numbers as they are written. What is no JSON is nil.
func Decode(raw []byte) any {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) != nil {
		return nil
	}
	return v
}

// Within says whether want is part of got: of an object the members written, of a
// list every item in order, of anything else the same value. A null also stands for
// a member that is missing.
func Within(want, got any) bool {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			return false
		}
		for key, v := range w {
			if !Within(v, g[key]) {
				return false
			}
		}
		return true
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			return false
		}
		for i := range w {
			if !Within(w[i], g[i]) {
				return false
			}
		}
		return true
	case json.Number:
		g, ok := got.(json.Number)
		return ok && sameNumber(w, g)
	}
	return want == got
}

func sameNumber(a, b json.Number) bool {
	if a == b {
		return true
	}
	x, errX := strconv.ParseFloat(string(a), 64)
	y, errY := strconv.ParseFloat(string(b), 64)
	big := math.Abs(x) >= 1<<53 // there floats take different whole numbers for one
	return errX == nil && errY == nil && x == y && !big
}
