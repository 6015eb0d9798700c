package gateway

import "bytes"

// tokens estimates how many tokens a text is: one for four bytes of ASCII, and one for
// any other character. That errs to the high side for most languages, and to the low
// for program text in a rare language or random characters.
type tokens struct{ plain, other int }

func (t *tokens) add(text []byte) {
	for _, c := range text {
		switch {
		case c < 0x80:
			t.plain++
		case c >= 0xC0: // the first byte of a character
			t.other++
		}
	}
}

func (t *tokens) count() int { return (t.plain+3)/4 + t.other }

// stringEnd is the place behind a string that begins at at. Without an end it is that
// of b.
func stringEnd(b []byte, at int) int {
	for i := at + 1; i < len(b); {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			break
		}
		i += n
		escapes := 0
		for b[i-1-escapes] == '\\' {
			escapes++
		}
		if i++; escapes%2 == 0 {
			return i
		}
	}
	return len(b)
}

// jsonStrings goes through the strings of a JSON text, or of what is left of one, that are
// no keys.
type jsonStrings struct {
	rest []byte
	key  []byte // the last key before the string
}

// next gives the raw inside of the next string; ok is false when there is none.
func (s *jsonStrings) next() (value []byte, ok bool) {
	for {
		at := bytes.IndexByte(s.rest, '"')
		if at < 0 {
			return nil, false
		}
		end := stringEnd(s.rest, at)
		inner := s.rest[at+1 : max(end-1, at+1)]
		s.rest = s.rest[end:]
		after := s.rest
		for len(after) > 0 && (after[0] == ' ' || after[0] == '\n' || after[0] == '\t' || after[0] == '\r') {
			after = after[1:]
		}
		if len(after) == 0 || after[0] != ':' {
			return inner, true
		}
		s.key = inner
	}
}

// written says whether a model wrote what stands under a key of an answer.
func written(key []byte) bool {
	switch string(key) {
	case "content", "text", "arguments", "partial_json", "thinking", "reasoning", "reasoning_content", "refusal", "name":
		return true
	}
	return false
}

// addAnswer counts what a model wrote in an answer or a piece of one.
func (t *tokens) addAnswer(raw []byte) {
	s := jsonStrings{rest: raw}
	for text, ok := s.next(); ok; text, ok = s.next() {
		if written(s.key) {
			t.add(text)
		}
	}
}

// What a picture or file costs is not said by its length. These are about what the
// larger ones cost.
const (
	fileFrom   = 4096 // bytes of base64 from which on a text is taken for a file
	fileTokens = 8192
	fileBytes  = 16 // further bytes for a token: a page of a PDF is some KB
	// toolTokens is for what providers add to a prompt when tools are offered.
	toolTokens = 1024
)

// isFile says whether a string of a request is a picture or file in base64.
func isFile(key, text []byte) bool {
	switch string(key) {
	case "data", "url", "file_data":
	default:
		return false
	}
	if len(text) < fileFrom {
		return false
	}
	if bytes.HasPrefix(text, []byte("data:")) {
		if at := bytes.IndexByte(text[:256], ','); at > 0 {
			text = text[at+1:]
		}
	}
	for _, c := range text {
		if (c|0x20 < 'a' || c|0x20 > 'z') && (c < '+' || c > '9') && c != '=' && c != '_' && c != '\\' {
			return false
		}
	}
	return true
}

// elsewhere says whether a string of a request stands for a picture or file that the
// provider has or gets itself.
func elsewhere(key, text []byte) bool {
	switch string(key) {
	case "file_id":
		return true
	case "url", "file_url":
		return bytes.HasPrefix(text, []byte("https:")) || bytes.HasPrefix(text, []byte("http:"))
	}
	return false
}

// inputAtMost is how many tokens a request may take. No text has more tokens than
// bytes; for pictures and files it is a guess.
func inputAtMost(raw []byte, tools bool) int {
	most := len(raw)
	if tools {
		most += toolTokens
	}
	s := jsonStrings{rest: raw}
	for text, ok := s.next(); ok; text, ok = s.next() {
		if isFile(s.key, text) {
			most += fileTokens + len(text)/fileBytes - len(text)
		}
		if elsewhere(s.key, text) {
			most += fileTokens
		}
	}
	return most
}

// inputLikely estimates how many tokens a request took.
func inputLikely(raw []byte) int {
	var t tokens
	files := 0
	s := jsonStrings{rest: raw}
	for text, ok := s.next(); ok; text, ok = s.next() {
		if isFile(s.key, text) || elsewhere(s.key, text) {
			files += fileTokens / 4
			continue
		}
		t.add(text)
	}
	return files + t.count()
}
