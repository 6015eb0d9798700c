package gateway_test

import (
	"strings"
	"testing"

	"github.com/belay-run/belay/internal/gateway/gatewaytest"
	"github.com/belay-run/belay/internal/spend"
)

var (
	openAIUsage    = spend.Usage{Input: gatewaytest.Input, Output: gatewaytest.Output, Cached: gatewaytest.Cached, Reasoning: gatewaytest.Reasoning}
	anthropicUsage = spend.Usage{Input: gatewaytest.Input, Output: gatewaytest.Output, Cached: gatewaytest.Cached, CacheWritten: gatewaytest.Written, Reasoning: gatewaytest.Reasoning}
)

func TestAnswersOfBothVendors(t *testing.T) {
	for name, tt := range map[string]struct {
		ask   func(b *bench) reply
		has   []string
		lacks string
		usage spend.Usage
		kind  string
	}{
		"chat":        {func(b *bench) reply { return b.chat("openai/m", "") }, []string{`"Hello, world."`}, "", openAIUsage, "application/json"},
		"chat stream": {func(b *bench) reply { return b.chat("openai/m", `,"stream":true`) }, []string{`"world"`, "data: [DONE]\n\n"}, "prompt_tokens", openAIUsage, "text/event-stream; charset=utf-8"},
		"with its usage": {func(b *bench) reply {
			return b.chat("openai/m", `,"stream":true,"stream_options":{"include_usage":true}`)
		}, []string{`"world"`, "prompt_tokens"}, "", openAIUsage, "text/event-stream; charset=utf-8"},
		"message":        {func(b *bench) reply { return b.message("anthropic/m", "") }, []string{`"Hello, world."`}, "", anthropicUsage, "application/json"},
		"message stream": {func(b *bench) reply { return b.message("anthropic/m", `,"stream":true`) }, []string{"event: message_stop\n"}, "", anthropicUsage, "text/event-stream; charset=utf-8"},
		"counting": {func(b *bench) reply {
			return b.ask("POST", "/v1/messages/count_tokens", `{"model":"anthropic/m","messages":[]}`)
		}, []string{`{"input_tokens":21}`}, "", spend.Usage{}, "application/json"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, nil)
			r := tt.ask(b)
			if r.status != 200 || r.err != nil || r.header.Get("Content-Type") != tt.kind {
				t.Fatalf("%d %v %v %s", r.status, r.err, r.header, r.body)
			}
			for _, part := range tt.has {
				if !strings.Contains(r.body, part) {
					t.Errorf("no %s in %s", part, r.body)
				}
			}
			if tt.lacks != "" && strings.Contains(r.body, tt.lacks) {
				t.Errorf("there is %s in %s", tt.lacks, r.body)
			}
			c := b.record()
			if c.Usage != tt.usage || c.Estimated || c.Status != 200 || c.Why != "" || c.Job != "job-1" || c.Plugin != "judge" || c.Purpose != "judging" {
				t.Errorf("recorded is %+v", c)
			}
		})
	}
}
