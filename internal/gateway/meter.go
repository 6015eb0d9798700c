package gateway

import (
	"bytes"
	"encoding/json"

	"github.com/belay-run/belay/internal/spend"
)

// meter finds out what an answer cost.
type meter struct {
	api    string
	said   bool // the provider gave a usage
	usage  spend.Usage
	text   tokens // what the model wrote, for where it gave none
	raw    tokens // what came, for where that is not what a model's answer is
	final  bool   // and it is that of the whole answer
	ended  bool   // the answer came to its own end
	failed bool   // an error stood in the stream
	broken bool   // a usage came that nobody can read
}

// number is a count in a usage. Some servers write it as 12.0.
type number float64

func (n *number) int() int {
	if n == nil || !(*n > 0) || *n > 1e12 {
		return 0
	}
	return int(*n)
}

// openAIUsage is the usage of a chat completion. Servers with the same API differ in
// where they say what came from a cache.
type openAIUsage struct {
	Prompt     *number `json:"prompt_tokens"`
	Completion *number `json:"completion_tokens"`
	Total      *number `json:"total_tokens"`
	CacheHit   *number `json:"prompt_cache_hit_tokens"`
	PromptIn   struct {
		Cached  *number `json:"cached_tokens"`
		Written *number `json:"cache_write_tokens"`
	} `json:"prompt_tokens_details"`
	CompletionIn struct {
		Reasoning *number `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
}

func (m *meter) openAI(raw json.RawMessage) {
	var u openAIUsage
	if json.Unmarshal(raw, &u) != nil || u.Prompt == nil && u.Completion == nil {
		m.broken = true
		return
	}
	m.said = true
	m.usage = spend.Usage{
		Input: u.Prompt.int(),
		// Some servers leave reasoning out of the completion, but not of the total.
		Output:       max(u.Completion.int(), u.Total.int()-u.Prompt.int()),
		Cached:       min(max(u.PromptIn.Cached.int(), u.CacheHit.int()), u.Prompt.int()),
		CacheWritten: u.PromptIn.Written.int(),
		Reasoning:    u.CompletionIn.Reasoning.int(),
	}
	m.clamp()
}

// anthropicUsage is the usage of a message. Input is what came from no cache and went
// into none.
type anthropicUsage struct {
	Input   *number `json:"input_tokens"`
	Written *number `json:"cache_creation_input_tokens"`
	Read    *number `json:"cache_read_input_tokens"`
	Output  *number `json:"output_tokens"`
	Details struct {
		Thinking *number `json:"thinking_tokens"`
	} `json:"output_tokens_details"`
}

// anthropic takes in a usage. In a stream the counts are those of all that came before,
// and later ones may leave out what is known.
func (m *meter) anthropic(raw json.RawMessage) {
	var u anthropicUsage
	if json.Unmarshal(raw, &u) != nil || u.Input == nil && u.Output == nil {
		m.broken = true
		return
	}
	m.said = true
	plain := m.usage.Input - m.usage.Cached - m.usage.CacheWritten
	for _, n := range []struct {
		from *number
		to   *int
	}{{u.Input, &plain}, {u.Read, &m.usage.Cached}, {u.Written, &m.usage.CacheWritten}, {u.Output, &m.usage.Output}, {u.Details.Thinking, &m.usage.Reasoning}} {
		if n.from != nil {
			*n.to = n.from.int()
		}
	}
	m.usage.Input = plain + m.usage.Cached + m.usage.CacheWritten
	m.clamp()
}

func (m *meter) clamp() {
	u := &m.usage
	u.CacheWritten = min(u.CacheWritten, u.Input-u.Cached)
	u.Reasoning = min(u.Reasoning, u.Output)
}

// whole takes in an answer that came in one piece.
func (m *meter) whole(body []byte) {
	m.final, m.ended = true, true
	if a, err := parse(body); err == nil && a.value("usage") != nil {
		if m.api == Anthropic {
			m.anthropic(a.value("usage"))
		} else {
			m.openAI(a.value("usage"))
		}
	}
	if !m.said {
		m.text.addAnswer(body)
		m.raw.add(body)
	}
}

const doneMark = "[DONE]" // ends a stream of OpenAI's API

var (
	usageKey = []byte(`"usage"`)
	errorKey = []byte(`"error"`)
)

// event takes in an event of a stream. extra says that it is there for the usage alone.
func (m *meter) event(e event) (extra bool) {
	e.data = bytes.TrimSpace(e.data)
	switch {
	case e.part:
		m.text.addAnswer(e.raw)
	case len(e.data) == 0 && len(e.name) == 0 && e.raw[0] != ':':
		m.raw.add(bytes.TrimSpace(e.raw))
	case len(e.data) == 0:
	case e.data[0] != '{' && string(e.data) != doneMark:
		m.raw.add(e.data)
	case m.api == Anthropic:
		m.messageEvent(e)
	default:
		return m.chunk(e.data)
	}
	return false
}

func (m *meter) chunk(data []byte) (extra bool) {
	if string(data) == doneMark {
		m.ended = true
		return false
	}
	m.text.addAnswer(data)
	hasUsage := usageIn(data)
	if !hasUsage && !bytes.Contains(data, errorKey) {
		return false
	}
	var c struct {
		Choices []json.RawMessage `json:"choices"`
		Usage   json.RawMessage   `json:"usage"`
		Error   json.RawMessage   `json:"error"`
	}
	if json.Unmarshal(data, &c) != nil {
		m.broken = m.broken || hasUsage
		return false
	}
	m.failed = m.failed || len(c.Error) > 0 && string(c.Error) != "null"
	if len(c.Usage) == 0 || string(c.Usage) == "null" {
		return false
	}
	m.openAI(c.Usage)
	extra = c.Choices != nil && len(c.Choices) == 0
	m.final = m.final || extra
	return extra
}

// usageIn says whether a chunk may have a usage; most have one that is null.
func usageIn(data []byte) bool {
	for {
		at := bytes.Index(data, usageKey)
		if at < 0 {
			return false
		}
		data = data[at+len(usageKey):]
		if rest := bytes.TrimLeft(data, " \t:"); len(rest) == 0 || rest[0] != 'n' {
			return true
		}
	}
}

func (m *meter) messageEvent(e event) {
	name := string(e.name)
	if name == "content_block_delta" {
		m.text.addAnswer(e.data)
		return
	}
	var d struct {
		Type    string `json:"type"`
		Message struct {
			Usage json.RawMessage `json:"usage"`
		} `json:"message"`
		Usage json.RawMessage `json:"usage"`
	}
	if json.Unmarshal(e.data, &d) != nil {
		m.text.addAnswer(e.data)
		return
	}
	if name == "" {
		name = d.Type
	}
	switch name {
	case "message_start":
		m.anthropic(d.Message.Usage)
	case "message_delta":
		m.anthropic(d.Usage)
		m.final = true
	case "message_stop":
		m.ended = true
	case "error":
		m.failed = true
	default:
		m.text.addAnswer(e.data)
	}
}

// total is what the answer to a request took, and whether that is an estimate.
func (m *meter) total(request []byte) (u spend.Usage, estimated bool) {
	u = m.usage
	switch {
	case !m.said:
		output := m.text.count()
		if output == 0 {
			output = m.raw.count()
		}
		return spend.Usage{Input: inputLikely(request), Output: output}, true
	case m.final, m.ended:
		return u, false
	}
	// The usage is that of a beginning.
	if more := m.text.count(); more > u.Output {
		u.Output, estimated = more, true
	}
	return u, estimated
}
