package prompt

import (
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/tiktoken-go/tokenizer"
)

// vocabulary is one of OpenAI's token vocabularies, loaded at its first use:
// one costs about 14 MB for as long as the process lives, and most prompts are
// far below their budget.
type vocabulary struct {
	encoding tokenizer.Encoding
	load     func() (tokenizer.Codec, error)
}

var (
	o200k  = newVocabulary(tokenizer.O200kBase)
	cl100k = newVocabulary(tokenizer.Cl100kBase)
)

func newVocabulary(e tokenizer.Encoding) *vocabulary {
	return &vocabulary{e, sync.OnceValues(func() (tokenizer.Codec, error) { return tokenizer.Get(e) })}
}

// vocabularyFor picks the vocabulary by the model's name, which may stand behind
// a provider's, as in "openai/gpt-4-turbo".
func vocabularyFor(model string) *vocabulary {
	name := strings.ToLower(model[strings.LastIndexByte(model, '/')+1:])
	name = strings.TrimPrefix(name, "ft:")
	switch {
	case strings.HasPrefix(name, "gpt-4o"), strings.HasPrefix(name, "gpt-4.1"), strings.HasPrefix(name, "gpt-4.5"):
		return o200k
	case strings.HasPrefix(name, "gpt-4"), strings.HasPrefix(name, "gpt-3.5"), strings.HasPrefix(name, "gpt-35"):
		return cl100k
	default:
		return o200k
	}
}

// piece is the longest text put to the tokenizer at once. Its splitting pattern
// takes time by the square of the length on runs of blanks and newlines (200 KB:
// 30 s), so a user could stop the server with a message; 512 bytes bound that to
// the speed of ordinary text.
const piece = 512

// count counts the tokens of a text and stops soon after limit; whole says that
// it got to the end.
func (v *vocabulary) count(text string, limit int) (tokens int, whole bool) {
	for len(text) > 0 {
		if tokens > limit {
			return tokens, false
		}
		n := cut(text)
		tokens += v.encode(text[:n])
		text = text[n:]
	}
	return tokens, true
}

func (v *vocabulary) encode(text string) int {
	codec, err := v.load()
	if err != nil {
		return len(text) // cannot be: both encodings are built in. Bytes are a safe bound
	}
	n, err := codec.Count(text)
	if err != nil {
		return len(text)
	}
	// A byte that is no UTF-8 is read as a replacement rune of three.
	return min(n, len(text))
}

// cut finds where the next piece ends: before a blank between two letters, where
// a token always ends too, else at the last rune that fits.
func cut(text string) int {
	if len(text) <= piece {
		return len(text)
	}
	for i := piece; i > piece/2; i-- {
		if text[i] == ' ' && isLetter(text[i-1]) && i+1 < len(text) && isLetter(text[i+1]) {
			return i
		}
	}
	end := piece
	for end > piece-utf8.UTFMax && !utf8.RuneStart(text[end]) {
		end--
	}
	return end
}

func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }
