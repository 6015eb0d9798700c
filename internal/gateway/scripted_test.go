package gateway_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/belay-run/belay/internal/gateway"
)

// events reads a stream: names, where there are any, and data.
func events(t *testing.T, stream string) (out []string) {
	t.Helper()
	for _, e := range strings.Split(strings.TrimSuffix(stream, "\n\n"), "\n\n") {
		name := ""
		for line := range strings.Lines(e) {
			line = strings.TrimSuffix(line, "\n")
			if n, ok := strings.CutPrefix(line, "event: "); ok {
				name = n + " "
			} else if data, ok := strings.CutPrefix(line, "data: "); ok {
				if data != "[DONE]" && !json.Valid([]byte(data)) {
					t.Fatalf("no JSON: %s", data)
				}
				out = append(out, name+data)
			} else {
				t.Fatalf("a line of no meaning: %q", line)
			}
		}
	}
	return out
}

const (
	chatTools    = `,"tools":[{"type":"function","function":{"name":"get_weather","parameters":{"type":"object"}}}]`
	messageTools = `,"tools":[{"name":"get_weather","input_schema":{"type":"object"}}]`
)

func TestScriptedAnswers(t *testing.T) {
	for name, tt := range map[string]struct {
		path, body string
		has        []string
	}{
		"chat": {"/v1/chat/completions", `{"model":"scripted/x","messages":[{"role":"user","content":"hi"}]` + chatTools + `}`,
			[]string{`"content":"Hello, world."`, `"finish_reason":"stop"`, `"model":"scripted/x"`, `"object":"chat.completion"`, `"total_tokens":`}},
		"chat without tools": {"/v1/chat/completions", `{"model":"scripted/x","messages":[{"role":"user","content":"hi"}]}`, []string{`"content":"Hello, quiet."`}},
		"chat that calls": {"/v1/chat/completions", `{"model":"scripted/x","messages":[{"role":"user","content":"the weather"}]` + chatTools + `}`,
			[]string{`"content":"Let me look."`, `"finish_reason":"tool_calls"`, `"function":{"arguments":"{\"city\":\"Graz\"}","name":"get_weather"}`, `"type":"function"`}},
		"chat with a result": {"/v1/chat/completions", `{"model":"scripted/x","messages":[{"role":"user","content":"the weather"},{"role":"assistant","tool_calls":[{"id":"1","function":{"name":"get_weather"}}]},{"role":"tool","tool_call_id":"1","content":"sunny"}]` + chatTools + `}`,
			[]string{`"content":"It is sunny."`}},
		"message": {"/v1/messages", `{"model":"scripted/x","max_tokens":9,"system":"be nice","messages":[{"role":"user","content":"hi"}]` + messageTools + `}`,
			[]string{`"content":[{"text":"Hello, world.","type":"text"}]`, `"stop_reason":"end_turn"`, `"model":"scripted/x"`, `"type":"message"`, `"input_tokens":`}},
		"message that calls": {"/v1/messages", `{"model":"scripted/x","max_tokens":9,"messages":[{"role":"user","content":[{"type":"text","text":"the weather"},{"type":"image","source":{}}]}]` + messageTools + `}`,
			[]string{`{"text":"Let me look.","type":"text"}`, `"input":{"city":"Graz"},"name":"get_weather","type":"tool_use"`, `"stop_reason":"tool_use"`}},
		"message with a result": {"/v1/messages", `{"model":"scripted/x","max_tokens":9,"system":[{"type":"text","text":"x"}],"messages":[{"role":"user","content":"the weather"},{"role":"assistant","content":[{"type":"text","text":"I look."},{"type":"tool_use","id":"1","name":"get_weather","input":{"city":"Graz"}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":[{"type":"text","text":"sunny"}]}]}]` + messageTools + `}`,
			[]string{`"text":"It is sunny."`}},
		"counting": {"/v1/messages/count_tokens", `{"model":"scripted/x","messages":[{"role":"user","content":"hi"}]}`, []string{`{"input_tokens":4}`}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, nil)
			r := b.ask("POST", tt.path, tt.body)
			if r.status != 200 {
				t.Fatal(r.status, r.body)
			}
			for _, part := range tt.has {
				if !strings.Contains(r.body, part) {
					t.Errorf("no %s in %s", part, r.body)
				}
			}
			c := b.record()
			counts := name == "counting"
			if c.API != gateway.Scripted || c.Alias != "scripted/x" || c.Estimated == counts || (c.Usage.Input == 0) != counts || (c.Usage.Output == 0) != counts {
				t.Errorf("recorded is %+v", c)
			}
		})
	}
}

func TestScriptedStreams(t *testing.T) {
	b := newBench(t, func(b *bench) { b.rules.RecordTexts = true })
	r := b.ask("POST", "/v1/messages", `{"model":"scripted/x","max_tokens":9,"stream":true,"messages":[{"role":"user","content":"the weather"}]`+messageTools+`}`)
	if kind := r.header.Get("Content-Type"); !strings.HasPrefix(kind, "text/event-stream") {
		t.Error(kind)
	}
	var names []string
	all := events(t, r.body)
	for _, e := range all {
		name, data, _ := strings.Cut(e, " ")
		names = append(names, name)
		if !strings.Contains(data, `"type":"`+name+`"`) {
			t.Errorf("%s is of another type: %s", name, data)
		}
	}
	want := strings.Fields("message_start content_block_start content_block_delta content_block_stop content_block_start content_block_delta content_block_stop message_delta message_stop")
	if !reflect.DeepEqual(names, want) {
		t.Errorf("the events are %v", names)
	}
	for i, part := range map[int]string{0: `"input_tokens":`, 2: `"delta":{"text":"Let me look.","type":"text_delta"},"index":0`, 4: `"input":{},"name":"get_weather"`, 5: `"partial_json":"{\"city\":\"Graz\"}"`, 7: `"stop_reason":"tool_use"`} {
		if i < len(all) && !strings.Contains(all[i], part) {
			t.Errorf("no %s in %s", part, all[i])
		}
	}
	if c := b.record(); !strings.Contains(string(c.Answer), "Let me look.") || !strings.Contains(string(c.Request), "the weather") || !c.Stream {
		t.Errorf("recorded is %+v", c)
	}

	for options, tail := range map[string]int{``: 3, `,"stream_options":{"include_usage":true}`: 4} {
		r = b.ask("POST", "/v1/chat/completions", `{"model":"scripted/x","stream":true`+options+`,"messages":[{"role":"user","content":"the weather"}]`+chatTools+`}`)
		all = events(t, r.body)
		if len(all) != 2+tail || all[len(all)-1] != "[DONE]" || strings.Contains(r.body, "prompt_tokens") != (options != "") {
			t.Fatalf("%q", all)
		}
		for i, part := range []string{`"delta":{"content":"","role":"assistant"}`, `"delta":{"content":"Let me look."}`, `"tool_calls":[{"function":{"arguments":"{\"city\":\"Graz\"}","name":"get_weather"}`, `"delta":{},"finish_reason":"tool_calls"`} {
			if !strings.Contains(all[i], part) {
				t.Errorf("no %s in %s", part, all[i])
			}
		}
	}
}

func TestScriptedFailures(t *testing.T) {
	ask := func(b *bench, path, text string, stream bool) reply {
		tools := chatTools
		if path == "/v1/messages" {
			tools = messageTools
		}
		rest := ""
		if stream {
			rest = `,"stream":true`
		}
		return b.ask("POST", path, `{"model":"scripted/x","messages":[{"role":"user","content":"`+text+`"}]`+tools+rest+`}`)
	}
	for _, path := range []string{"/v1/chat/completions", "/v1/messages"} {
		for _, stream := range []bool{false, true} {
			b := newBench(t, func(b *bench) { b.timeout = 300 * time.Millisecond })
			for text, status := range map[string]int{"fail": 529, "wait": 504} {
				if r := ask(b, path, text, stream); r.status != status || r.problem(t, path) == "" {
					t.Errorf("%s: %d %s", text, r.status, r.body)
				}
			}
			r := ask(b, path, "half", stream)
			switch {
			case !stream && r.status != 502:
				t.Error(r.status, r.body)
			case stream && (r.status != 200 || !strings.Contains(r.body, "a half") || !strings.Contains(r.body, "the script breaks off")):
				t.Error(r.status, r.body)
			}
			for _, c := range b.records() {
				charged := stream && c.Status == 200
				if c.Why == "" || (c.Usage.Output > 0) != charged || c.Estimated != charged {
					t.Errorf("recorded is %+v", c)
				}
			}
		}
	}
	b := newBench(t, nil)
	for path, bodies := range map[string][]string{
		"/v1/chat/completions": {`{"model":"scripted/x"}`, `{"model":"scripted/x","messages":{}}`, `{"model":"scripted/x","messages":[],"tools":7}`},
		"/v1/messages":         {`{"model":"scripted/x"}`, `{"model":"scripted/x","messages":[{"content":7}]}`, `{"model":"scripted/x","messages":[],"system":7}`, `{"model":"scripted/x","messages":[],"tools":{}}`, `{"model":"scripted/x","messages":[{"content":[{"type":"tool_result","content":7}]}]}`},
	} {
		for _, body := range bodies {
			if r := b.ask("POST", path, body); r.status != 400 || r.problem(t, path) == "" {
				t.Errorf("%s: %d %s", body, r.status, r.body)
			}
		}
	}
}

func TestTextsAreRecordedWhereRulesSaySo(t *testing.T) {
	b := newBench(t, func(b *bench) { b.rules.RecordTexts = true })
	b.chat("openai/m", `,"stream":true`)
	c := b.record()
	if !strings.Contains(string(c.Request), `"include_usage":true`) || !strings.Contains(string(c.Answer), "[DONE]") {
		t.Errorf("recorded are %s and %s", c.Request, c.Answer)
	}
	b.chat("openai/huge", "")
	if all := b.records(); len(all[1].Answer) != 1<<20 {
		t.Errorf("%d bytes are recorded", len(all[1].Answer))
	}
}
