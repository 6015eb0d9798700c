package gateway

import (
	"strings"
	"testing"

	"github.com/belay-run/belay/internal/spend"
)

func TestUsageOfWholeAnswers(t *testing.T) {
	for name, tt := range map[string]struct {
		api, body string
		want      spend.Usage
		estimated bool
	}{
		"OpenAI":                  {OpenAI, `{"usage":{"prompt_tokens":10,"completion_tokens":4,"total_tokens":14,"prompt_tokens_details":{"cached_tokens":3},"completion_tokens_details":{"reasoning_tokens":2}}}`, spend.Usage{Input: 10, Output: 4, Cached: 3, Reasoning: 2}, false},
		"details that are null":   {OpenAI, `{"usage":{"prompt_tokens":10,"completion_tokens":4,"prompt_tokens_details":null,"completion_tokens_details":null}}`, spend.Usage{Input: 10, Output: 4}, false},
		"reasoning beside it":     {OpenAI, `{"usage":{"prompt_tokens":10,"completion_tokens":4,"total_tokens":24,"completion_tokens_details":{"reasoning_tokens":10}}}`, spend.Usage{Input: 10, Output: 14, Reasoning: 10}, false},
		"a cache said elsewhere":  {OpenAI, `{"usage":{"prompt_tokens":10,"completion_tokens":4,"prompt_cache_hit_tokens":8}}`, spend.Usage{Input: 10, Output: 4, Cached: 8}, false},
		"written to a cache":      {OpenAI, `{"usage":{"prompt_tokens":10,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":3,"cache_write_tokens":9}}}`, spend.Usage{Input: 10, Output: 4, Cached: 3, CacheWritten: 7}, false},
		"numbers with a point":    {OpenAI, `{"usage":{"prompt_tokens":10.0,"completion_tokens":4e0}}`, spend.Usage{Input: 10, Output: 4}, false},
		"numbers of no sense":     {OpenAI, `{"usage":{"prompt_tokens":-10,"completion_tokens":1e300}}`, spend.Usage{}, false},
		"Anthropic":               {Anthropic, `{"usage":{"input_tokens":10,"cache_read_input_tokens":5,"cache_creation_input_tokens":2,"output_tokens":4,"output_tokens_details":{"thinking_tokens":3}}}`, spend.Usage{Input: 17, Output: 4, Cached: 5, CacheWritten: 2, Reasoning: 3}, false},
		"caches that are null":    {Anthropic, `{"usage":{"input_tokens":10,"cache_read_input_tokens":null,"output_tokens":4}}`, spend.Usage{Input: 10, Output: 4}, false},
		"no usage":                {OpenAI, `{"id":"a long name that does not count","choices":[{"message":{"content":"four and"}}]}`, spend.Usage{Input: 3, Output: 2}, true},
		"a usage of another kind": {OpenAI, `{"usage":{"input_tokens":1},"choices":[{"message":{"content":"four and"}}]}`, spend.Usage{Input: 3, Output: 2}, true},
		"a usage that is a text":  {Anthropic, `{"usage":"much","content":[{"text":"four and"}]}`, spend.Usage{Input: 3, Output: 2}, true},
		"no JSON":                 {OpenAI, `<p>eleven</p>`, spend.Usage{Input: 3, Output: 4}, true},
		"nothing":                 {OpenAI, ``, spend.Usage{Input: 3}, true},
	} {
		m := meter{api: tt.api}
		m.whole([]byte(tt.body))
		if got, estimated := m.total([]byte(`{"content":"hello world"}`)); got != tt.want || estimated != tt.estimated {
			t.Errorf("%s: %+v, estimated %v", name, got, estimated)
		}
	}
}

const chunks = `data: {"choices":[{"delta":{"role":"assistant","content":"four "}}],"usage":null}

data: {"choices":[{"delta":{"content":"and \"usage\":{}"}}],"usage":null}

data: {"choices":[{"delta":{"tool_calls":[{"function":{"name":"f","arguments":"{}"}}]}}],"usage": null}

data: {"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":4}}

data: [DONE]

`

const messages = `event: message_start
data: {"type":"message_start","message":{"usage":{"input_tokens":10,"cache_read_input_tokens":5,"output_tokens":1}}}

event: content_block_delta
data: {"type":"content_block_delta","delta":{"type":"text_delta","text":"four and four"}}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":40}}

event: message_stop
data: {"type":"message_stop"}

`

func TestUsageOfStreams(t *testing.T) {
	upTo := func(stream, mark string) string { return stream[:strings.Index(stream, mark)] }
	for name, tt := range map[string]struct {
		api, stream              string
		want                     spend.Usage
		estimated, ended, failed bool
		extra                    int
	}{
		"chunks":                   {OpenAI, chunks, spend.Usage{Input: 10, Output: 4}, false, true, false, 1},
		"cut before the usage":     {OpenAI, upTo(chunks, `data: {"choices":[],`), spend.Usage{Input: 3, Output: 6}, true, false, false, 0},
		"cut after it":             {OpenAI, upTo(chunks, "data: [DONE]"), spend.Usage{Input: 10, Output: 4}, false, false, false, 1},
		"a usage with the choice":  {OpenAI, `data: {"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":1,"completion_tokens":1}}` + "\n\n" + `data: {"choices":[{"delta":{"content":"b"}}],"usage":{"prompt_tokens":1,"completion_tokens":2}}` + "\n\ndata: [DONE]\n\n", spend.Usage{Input: 1, Output: 2}, false, true, false, 0},
		"an error in it":           {OpenAI, `data: {"error":{"message":"no"}}` + "\n\n", spend.Usage{Input: 3}, true, false, true, 0},
		"an error that is null":    {OpenAI, `data: {"error":null,"choices":[{"delta":{"content":"four"}}]}` + "\n\n", spend.Usage{Input: 3, Output: 1}, true, false, false, 0},
		"garbage":                  {OpenAI, "data: eleven words and more\n\ndata: {]\n\n", spend.Usage{Input: 3, Output: 6}, true, false, false, 0},
		"events":                   {Anthropic, messages, spend.Usage{Input: 15, Output: 40, Cached: 5}, false, true, false, 0},
		"events without names":     {Anthropic, strings.ReplaceAll(messages, "event: ", ": "), spend.Usage{Input: 15, Output: 40, Cached: 5}, false, true, false, 0},
		"cut in the text":          {Anthropic, upTo(messages, "event: message_delta"), spend.Usage{Input: 15, Output: 4, Cached: 5}, true, false, false, 0},
		"cut at the end":           {Anthropic, upTo(messages, "event: message_stop"), spend.Usage{Input: 15, Output: 40, Cached: 5}, false, false, false, 0},
		"a delta that says it all": {Anthropic, "event: message_delta\ndata: {\"usage\":{\"input_tokens\":7,\"cache_read_input_tokens\":2,\"output_tokens\":3}}\n\n", spend.Usage{Input: 9, Output: 3, Cached: 2}, false, false, false, 0},
		"an error event":           {Anthropic, "event: error\ndata: {\"type\":\"error\"}\n\n", spend.Usage{Input: 3}, true, false, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			for at := range len(tt.stream) {
				m := meter{api: tt.api}
				s := splitter{most: maxEvent}
				extra := 0
				count := func(e event) {
					if m.event(e) {
						extra++
					}
				}
				s.feed([]byte(tt.stream[:at]), count)
				s.feed([]byte(tt.stream[at:]), count)
				s.close(count)
				got, estimated := m.total([]byte(`{"content":"hello world"}`))
				if got != tt.want || estimated != tt.estimated || m.ended != tt.ended || m.failed != tt.failed || extra != tt.extra {
					t.Fatalf("split at %d: %+v, estimated %v, ended %v, failed %v, %d extra", at, got, estimated, m.ended, m.failed, extra)
				}
			}
		})
	}
}
