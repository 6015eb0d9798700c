package secret

import (
	"encoding/json"
	"strings"

	"github.com/belay-run/belay/internal/rawjson"
)

// Withheld stands where nobody can tell whether there is a secret.
const Withheld = "[not shown: the fingerprints of the tenant's secrets are missing or cannot be read]"

// MaskAny masks what may be JSON or any other text.
func (s *Scanner) MaskAny(text string) string {
	if s != nil && json.Valid([]byte(text)) {
		return string(s.MaskJSON([]byte(text)))
	}
	return s.Mask(text)
}

// Mask gives a text in which "[secret NAME]" stands for each secret, and for longer
// lines of secrets that have several: programs print line by line. Where secrets
// overlap, one after another stands for all of it.
func (s *Scanner) Mask(text string) string {
	if s == nil {
		return text
	}
	p := s.probe()
	defer p.release(nil)
	p.buf, p.parts = []byte(text), true
	p.advance(true)
	return s.mask(text, p.matches())
}

// mask puts names in place of matches, which are in order.
func (s *Scanner) mask(text string, found []match) string {
	if len(found) == 0 {
		return text
	}
	var b strings.Builder
	at := 0
	for i := 0; i < len(found); {
		b.WriteString(text[at:found[i].start])
		named := map[int32]bool{}
		for at = found[i].end; i < len(found) && found[i].start < at; i++ {
			at = max(at, found[i].end)
			if name := s.prints[found[i].print].name; !named[name] {
				named[name] = true
				b.WriteString("[secret " + s.names[name] + "]")
			}
		}
	}
	b.WriteString(text[at:])
	return b.String()
}

// MaskJSON masks the strings, keys and numbers of a JSON value and leaves every
// other byte as it is. What is no JSON is masked as a text.
func (s *Scanner) MaskJSON(raw []byte) []byte {
	if s == nil {
		return raw
	}
	p := s.probe()
	p.parts = true
	defer p.scanRaw(raw)()
	if len(p.found) == 0 {
		return raw
	}
	var out []byte
	at := 0
	w := walker{raw: raw, matches: p.matches()}
	w.hit = func(t token, found []match) error {
		out = append(append(out, raw[at:t.from]...), rawjson.Must(s.mask(t.text, found))...)
		at = t.to
		return nil
	}
	if w.value(0) != nil {
		return []byte(s.Mask(string(raw)))
	}
	return append(out, raw[at:]...)
}
