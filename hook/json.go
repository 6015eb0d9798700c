package hook

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
)

// Payloads are never decoded to be checked or compared: 200 KB of messages must
// cost no more than a look at each byte. All functions here want valid JSON.

// space is JSON's white space.
const space = " \t\r\n"

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

func skipSpace(raw []byte, i int) int {
	for i < len(raw) && isSpace(raw[i]) {
		i++
	}
	return i
}

// eachItem calls check with each item of a list, and gives an error the item's
// place.
func eachItem(raw []byte, what string, check func(item []byte) error) error {
	if err := want(raw[0] == '[', what, raw); err != nil {
		return err
	}
	index := 0
	for i := skipSpace(raw, 1); i < len(raw) && raw[i] != ']'; {
		end := valueEnd(raw, i)
		if err := check(raw[i:end]); err != nil {
			return fmt.Errorf("item %d: %w", index, err)
		}
		if i, index = skipSpace(raw, end), index+1; i < len(raw) && raw[i] == ',' {
			i = skipSpace(raw, i+1)
		}
	}
	return nil
}

// eachMember calls f with each key, still quoted, and value of an object.
func eachMember(raw []byte, f func(key, value []byte)) {
	for i := skipSpace(raw, 1); i < len(raw) && raw[i] == '"'; {
		keyEnd := stringEnd(raw, i)
		value := skipSpace(raw, skipSpace(raw, keyEnd)+1) // past the colon
		end := valueEnd(raw, value)
		f(raw[i:keyEnd], raw[value:end])
		if i = skipSpace(raw, end); i < len(raw) && raw[i] == ',' {
			i = skipSpace(raw, i+1)
		}
	}
}

// member returns the value of an object under a key, nil when there is none. Of
// several the last counts, as for most readers.
func member(raw []byte, name string) (found []byte) {
	eachMember(raw, func(key, value []byte) {
		if unquote(key) == name {
			found = value
		}
	})
	return found
}

// unquote returns the text of a JSON string.
func unquote(quoted []byte) string {
	inner := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return string(inner)
	}
	var s string
	_ = json.Unmarshal(quoted, &s) // valid by contract
	return s
}

// valueEnd returns the end of the value that begins at i.
func valueEnd(raw []byte, i int) int {
	for depth := 0; i < len(raw); {
		switch c := raw[i]; c {
		case '"':
			if i = stringEnd(raw, i); depth == 0 {
				return i
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i // of the list around a number or word
			}
			if depth--; depth == 0 {
				return i + 1
			}
		default:
			if depth == 0 && (c == ',' || isSpace(c)) {
				return i
			}
		}
		i++
	}
	return i
}

// stringEnd returns the place after the closing quote of the string at i.
func stringEnd(raw []byte, i int) int {
	for start := i + 1; ; {
		next := bytes.IndexByte(raw[start:], '"')
		if next < 0 {
			return len(raw)
		}
		quote := start + next
		back := quote
		for back > start && raw[back-1] == '\\' {
			back--
		}
		if start = quote + 1; (quote-back)%2 == 0 {
			return start
		}
	}
}

// doubledKey returns a key that stands twice in one object, at any depth.
// Readers do not agree on which of the two counts.
func doubledKey(raw []byte) (string, bool) {
	var open []map[string]bool // of each object and list around, outermost first
	for i := 0; i < len(raw); {
		switch raw[i] {
		case '{', '[':
			open = append(open, nil)
		case '}', ']':
			open = open[:len(open)-1]
		case '"':
			end := stringEnd(raw, i)
			if at := skipSpace(raw, end); at < len(raw) && raw[at] == ':' {
				key, keys := unquote(raw[i:end]), open[len(open)-1]
				if keys[key] {
					return key, true
				}
				if keys == nil {
					keys = map[string]bool{}
					open[len(open)-1] = keys
				}
				keys[key] = true
			}
			i = end
			continue
		}
		i++
	}
	return "", false
}

// canonical returns the spelling that encoding/json gives a value when it writes
// it once more.
func canonical(raw []byte) []byte {
	var tight, out bytes.Buffer
	if json.Compact(&tight, raw) != nil {
		return raw
	}
	json.HTMLEscape(&out, tight.Bytes())
	return out.Bytes()
}

// sameJSON says whether two values have the same canonical spelling, without
// making it.
func sameJSON(a, b []byte) bool {
	if len(a) == 0 || len(b) == 0 { // a missing value is like no other
		return len(a) == len(b)
	}
	if bytes.Equal(a, b) {
		return true
	}
	for i, j := 0, 0; ; i, j = i+1, j+1 {
		i, j = skipSpace(a, i), skipSpace(b, j)
		for i < len(a) && j < len(b) && a[i] == '"' && b[j] == '"' {
			endA, endB := stringEnd(a, i), stringEnd(b, j)
			if !sameString(a[i:endA], b[j:endB]) {
				return false
			}
			i, j = skipSpace(a, endA), skipSpace(b, endB)
		}
		if i >= len(a) || j >= len(b) {
			return i >= len(a) && j >= len(b)
		}
		if a[i] != b[j] {
			return false
		}
	}
}

func sameString(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	if !bytes.ContainsAny(a, escaped) && !bytes.ContainsAny(b, escaped) {
		return false
	}
	return bytes.Equal(canonical(a), canonical(b))
}

// escaped are the characters that encoding/json may write as escapes.
const escaped = "<>&\u2028\u2029"

// hasher writes what a digest covers, each piece after its length, so that no
// two contents look alike.
type hasher struct{ hash.Hash }

func newHash() hasher { return hasher{sha256.New()} }

func (h hasher) text(s string) { h.piece([]byte(s)) }

func (h hasher) piece(b []byte) {
	var size [8]byte
	binary.BigEndian.PutUint64(size[:], uint64(len(b)))
	h.Write(size[:])
	h.Write(b)
}

func (h hasher) payload(p Payload) {
	if p.point == nil {
		return
	}
	h.text(p.point.Name)
	for i, v := range p.values {
		if v != nil {
			h.text(p.point.Fields[i].Name)
			h.piece(canonical(v))
		}
	}
}

func (h hasher) sum() string { return hex.EncodeToString(h.Sum(nil)) }
