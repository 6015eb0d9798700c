package hook

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
)

// large is the size from which it pays to look at strings apart.
const large = 2 << 10

// valid says whether raw is JSON, as [json.Valid] does. A chat history is nearly
// all strings, and json.Valid takes a step for each of their bytes: here strings
// are looked at eight bytes at a time, and json.Valid sees what is left when they
// are emptied.
func valid(raw []byte) bool {
	if len(raw) < large {
		return json.Valid(raw)
	}
	bare := make([]byte, 0, len(raw)/8)
	for {
		open := bytes.IndexByte(raw, '"')
		if open < 0 {
			return json.Valid(append(bare, raw...))
		}
		bare = append(append(bare, raw[:open]...), `""`...)
		end := textEnd(raw, open+1)
		if end < 0 {
			return false
		}
		raw = raw[end:]
	}
}

// textEnd returns the place after the closing quote of the string whose text
// begins at i, or -1 when it is no string of JSON.
func textEnd(raw []byte, i int) int {
	for quote := -1; ; {
		if quote < i { // the last one found was escaped, or none was looked for
			n := bytes.IndexByte(raw[i:], '"')
			if n < 0 {
				return -1
			}
			quote = i + n
		}
		n := bytes.IndexByte(raw[i:quote], '\\')
		if n < 0 {
			if hasControl(raw[i:quote]) {
				return -1
			}
			return quote + 1
		}
		if hasControl(raw[i : i+n]) {
			return -1
		}
		if i = escapeEnd(raw, i+n); i < 0 {
			return -1
		}
	}
}

// escapeEnd returns the place after the escape that begins at i, or -1.
func escapeEnd(raw []byte, i int) int {
	if i+1 >= len(raw) {
		return -1
	}
	switch raw[i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 2
	case 'u':
		if i+6 > len(raw) {
			return -1
		}
		for _, c := range raw[i+2 : i+6] {
			if !('0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F') {
				return -1
			}
		}
		return i + 6
	}
	return -1
}

// hasControl says whether a byte below 0x20 is in b.
func hasControl(b []byte) bool {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	for ; len(b) >= 8; b = b[8:] {
		if x := binary.LittleEndian.Uint64(b); (x-0x20*ones)&^x&highs != 0 {
			return true
		}
	}
	for _, c := range b {
		if c < 0x20 {
			return true
		}
	}
	return false
}
