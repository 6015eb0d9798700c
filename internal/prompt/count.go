package prompt

import (
	"bytes"
	"cmp"
	"encoding/json"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
)

const (
	// perMessage is what a message costs beside its texts: the marks around it
	// and its role (OpenAI counts three and the role's one).
	perMessage = 4
	// perTool is what an offered tool costs beside its texts.
	perTool = 12
	// perMedia stands for an image, a sound or a file in a message. Providers
	// count these by size or length, not by the bytes of their base64 text;
	// this is about the dearest of OpenAI's images.
	perMedia = 1500
	// maxDepth bounds how often the same bytes are scanned; a chat message is
	// four levels deep.
	maxDepth = 8
)

// Fitter fits prompts for one model. It may be used from many goroutines.
type Fitter struct {
	words *vocabulary
	memo  memo
}

// NewFitter returns a fitter that counts as the named model does. A model whose
// vocabulary is not known is counted with the newest one of OpenAI's, which is
// near enough to cut a history.
func NewFitter(model string) *Fitter {
	return &Fitter{words: vocabularyFor(model), memo: memo{seed: maphash.MakeSeed(), limit: 4096}}
}

// Tokens says how many tokens a text costs. Whoever offers tools takes their
// definitions, written as JSON, off the budget first.
func (f *Fitter) Tokens(text []byte) int {
	key := f.memo.key(text)
	key.len = -key.len // not to be mistaken for a message of the same bytes
	if m, ok := f.memo.get(key, len(text)); ok {
		return m.tokens
	}
	n, _ := f.words.count(string(text), len(text))
	f.memo.put(key, facts{tokens: n, whole: true})
	return n
}

// facts is what is known of a message.
type facts struct {
	tokens int
	whole  bool // false: counting ended at a limit, there are more
	role   string
	// calls are the ids of the tool calls in it, answers that of the call which
	// it answers.
	calls   []string
	answers string
}

// weigh sums up the messages' costs. When the sum is over budget the facts of
// each stand beside it; the count of one that alone is over budget may be too
// small.
func (f *Fitter) weigh(messages []json.RawMessage, budget int) ([]facts, int) {
	total := 0
	for _, m := range messages {
		total += bound(m)
	}
	if total <= budget {
		return nil, total
	}
	// The largest first: they are the likeliest to bring the sum down enough.
	order := make([]int, len(messages))
	for i := range messages {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(len(messages[b]), len(messages[a])) })
	all := make([]facts, len(messages))
	for _, i := range order {
		all[i] = f.facts(messages[i], budget)
		total += all[i].tokens - bound(messages[i])
		if total <= budget {
			return nil, total
		}
	}
	return all, total
}

// bound is never less than the count: no token is shorter than a byte, and decoding
// JSON makes no text longer.
func bound(message json.RawMessage) int { return len(message) + perMessage }

// facts reads and counts one message, up to a little more than the limit.
func (f *Fitter) facts(message json.RawMessage, limit int) facts {
	key := f.memo.key(message)
	if m, ok := f.memo.get(key, limit); ok {
		return m
	}
	m := read(message)
	t := tally{words: f.words, left: limit}
	t.value(message, "", 0)
	// The minimum keeps the bound true for bytes that are no UTF-8, which grow
	// when they are decoded.
	m.tokens, m.whole = min(t.sum+perMessage, bound(message)), t.left >= 0
	f.memo.put(key, m)
	return m
}

// read reads what keeps a message in its place. Hooks may write any message, so
// a key of another type than expected counts as missing.
func read(message json.RawMessage) facts {
	var fields struct {
		Role       json.RawMessage `json:"role"`
		ToolCallID json.RawMessage `json:"tool_call_id"`
		ToolCalls  json.RawMessage `json:"tool_calls"`
	}
	if json.Unmarshal(message, &fields) != nil {
		return facts{}
	}
	m := facts{role: str(fields.Role), answers: str(fields.ToolCallID)}
	var calls []struct {
		ID json.RawMessage `json:"id"`
	}
	if len(fields.ToolCalls) > 0 && json.Unmarshal(fields.ToolCalls, &calls) == nil {
		for _, c := range calls {
			m.calls = append(m.calls, str(c.ID))
		}
	}
	return m
}

func str(raw json.RawMessage) string {
	var s string
	if len(raw) == 0 || json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

// tally adds up the texts of one message.
type tally struct {
	words *vocabulary
	sum   int
	left  int // below 0: it is enough, whatever follows
}

// value counts a JSON value: the texts in it, and the names of keys that are not
// part of every message.
func (t *tally) value(raw json.RawMessage, key string, depth int) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || t.left < 0 {
		return
	}
	if depth > maxDepth {
		t.text(string(raw))
		return
	}
	switch raw[0] {
	case '{':
		t.object(raw, depth)
	case '[':
		var items []json.RawMessage
		if json.Unmarshal(raw, &items) != nil {
			t.text(string(raw))
		}
		for _, item := range items {
			t.value(item, key, depth+1)
		}
	case '"':
		if key == "role" || key == "type" {
			return // perMessage stands for them
		}
		var s string
		if json.Unmarshal(raw, &s) != nil {
			s = string(raw)
		}
		t.text(s)
	case 'n': // null
	default:
		t.text(string(raw))
	}
}

// framing are the keys that carry structure, not text that a model reads.
var framing = map[string]bool{
	"role": true, "content": true, "type": true, "text": true, "tool_calls": true,
	"function": true, "name": true, "arguments": true, "id": true, "tool_call_id": true,
}

func (t *tally) object(raw json.RawMessage, depth int) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil {
		t.text(string(raw))
		return
	}
	if isMedia(fields) {
		t.add(perMedia)
		return
	}
	keys := make([]string, 0, len(fields))
	for k := range fields {
		keys = append(keys, k)
	}
	slices.Sort(keys) // so that what is counted before the limit is always the same
	for _, k := range keys {
		if !framing[k] {
			t.text(k)
		}
		t.value(fields[k], k, depth+1)
	}
}

// isMedia says whether a content part is an image, a sound or a file.
func isMedia(fields map[string]json.RawMessage) bool {
	for _, k := range []string{"image_url", "input_audio", "file"} {
		if _, ok := fields[k]; ok && strings.Contains(string(fields["type"]), k) {
			return true
		}
	}
	return false
}

func (t *tally) text(s string) {
	if t.left < 0 {
		return
	}
	n, _ := t.words.count(s, t.left)
	t.add(n)
}

func (t *tally) add(n int) {
	t.sum += n
	t.left -= n
}

// memo keeps the facts of messages under a digest of their bytes, so that the
// history of a conversation is counted once and not at each model call. When its
// young half is full the old half is forgotten: what is still in use moves on.
type memo struct {
	seed  maphash.Seed
	limit int // entries of one half

	mu         sync.Mutex
	young, old map[memoKey]facts
}

type memoKey struct {
	sum uint64
	len int
}

func (m *memo) key(message []byte) memoKey {
	return memoKey{maphash.Bytes(m.seed, message), len(message)}
}

// get finds facts that are good for the limit: with a whole count, or one that is
// over it already.
func (m *memo) get(key memoKey, limit int) (facts, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.young[key]
	if !ok {
		if v, ok = m.old[key]; ok {
			m.keep(key, v)
		}
	}
	return v, ok && (v.whole || v.tokens > limit)
}

func (m *memo) put(key memoKey, v facts) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.keep(key, v)
}

func (m *memo) keep(key memoKey, v facts) {
	if m.young == nil {
		m.young = make(map[memoKey]facts)
	}
	if len(m.young) >= m.limit {
		m.old, m.young = m.young, make(map[memoKey]facts, m.limit/4)
	}
	m.young[key] = v
}
