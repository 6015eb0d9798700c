package gateway

import (
	"encoding/json"

	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/rawjson"
	"github.com/belay-run/belay/internal/spend"
)

type object = map[string]any

// send writes an event of a stream. The writer remembers when that fails.
func (c *call) send(name string, data any) {
	text := "data: "
	if name != "" {
		text = "event: " + name + "\ndata: "
	}
	_, _ = c.w.Write(append(append([]byte(text), rawjson.Must(data)...), "\n\n"...))
}

// chunkShape is that of OpenAI's chat completions.
type chunkShape struct{ *call }

func (s *chunkShape) envelope(kind string, choices []object) object {
	return object{"id": "chatcmpl-" + s.id, "object": kind, "created": s.began.Unix(), "model": s.record.Alias, "choices": choices}
}

func openAIShape(u spend.Usage) object {
	return object{"prompt_tokens": u.Input, "completion_tokens": u.Output, "total_tokens": u.Input + u.Output}
}

func (s *chunkShape) whole(r chat.Response, u spend.Usage) any {
	message := object{"role": "assistant", "content": r.Text, "refusal": nil}
	if len(r.ToolCalls) > 0 {
		var calls []object
		for _, c := range r.ToolCalls {
			calls = append(calls, object{"id": c.ID, "type": "function", "function": object{"name": c.Name, "arguments": argumentsOf(c)}})
		}
		message["tool_calls"] = calls
	}
	out := s.envelope("chat.completion", []object{{"index": 0, "message": message, "logprobs": nil, "finish_reason": r.Finish}})
	out["usage"] = openAIShape(u)
	return out
}

// argumentsOf is the text of a call's arguments: what is no JSON stands in a string.
func argumentsOf(c chat.ToolCall) string {
	var text string
	if json.Unmarshal(c.Arguments, &text) == nil {
		return text
	}
	return string(c.Arguments)
}

func (s *chunkShape) delta(delta object, finish any) {
	out := s.envelope("chat.completion.chunk", []object{{"index": 0, "delta": delta, "logprobs": nil, "finish_reason": finish}})
	if !s.extra {
		out["usage"] = nil
	}
	s.send("", out)
}

func (s *chunkShape) begin(spend.Usage) { s.delta(object{"role": "assistant", "content": ""}, nil) }

func (s *chunkShape) piece(text string) { s.delta(object{"content": text}, nil) }

func (s *chunkShape) end(r chat.Response, u spend.Usage) {
	for i, c := range r.ToolCalls {
		s.delta(object{"tool_calls": []object{{"index": i, "id": c.ID, "type": "function", "function": object{"name": c.Name, "arguments": argumentsOf(c)}}}}, nil)
	}
	s.delta(object{}, r.Finish)
	if !s.extra {
		last := s.envelope("chat.completion.chunk", []object{})
		last["usage"] = openAIShape(u)
		s.send("", last)
	}
	_, _ = s.w.Write([]byte("data: [DONE]\n\n"))
}

func (s *chunkShape) fail(r *Refusal) { s.send("", problem(OpenAI, r, s.id)) }

// messageShape is that of Anthropic's messages.
type messageShape struct {
	*call
	open bool // a block of text is
	at   int  // index of the next block
}

func anthropicShape(u spend.Usage) object {
	return object{"input_tokens": u.Input, "output_tokens": u.Output, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
}

func (s *messageShape) message(content []object, stop any, u spend.Usage) object {
	return object{"id": "msg_" + s.id, "type": "message", "role": "assistant", "model": s.record.Alias,
		"content": content, "stop_reason": stop, "stop_sequence": nil, "usage": anthropicShape(u)}
}

func (s *messageShape) whole(r chat.Response, u spend.Usage) any {
	content := []object{}
	if r.Text != nil && *r.Text != "" {
		content = append(content, object{"type": "text", "text": *r.Text})
	}
	for _, c := range r.ToolCalls {
		content = append(content, object{"type": "tool_use", "id": c.ID, "name": c.Name, "input": inputOf(c)})
	}
	return s.message(content, stopOf(r.Finish), u)
}

// inputOf is the input of a call, which has to be an object.
func inputOf(c chat.ToolCall) json.RawMessage {
	if rawjson.IsObject(c.Arguments) {
		return c.Arguments
	}
	return rawjson.Must(object{"arguments": c.Arguments})
}

// stopOf is Anthropic's word for why an answer ended.
func stopOf(finish string) string {
	switch finish {
	case "stop":
		return "end_turn"
	case "tool_calls":
		return "tool_use"
	case "length":
		return "max_tokens"
	case "content_filter":
		return "refusal"
	}
	return finish
}

func (s *messageShape) begin(u spend.Usage) {
	u.Output = 1
	s.send("message_start", object{"type": "message_start", "message": s.message([]object{}, nil, u)})
}

func (s *messageShape) start(block object) {
	s.send("content_block_start", object{"type": "content_block_start", "index": s.at, "content_block": block})
}

func (s *messageShape) delta(delta object) {
	s.send("content_block_delta", object{"type": "content_block_delta", "index": s.at, "delta": delta})
}

func (s *messageShape) stop() {
	s.send("content_block_stop", object{"type": "content_block_stop", "index": s.at})
	s.at++
}

func (s *messageShape) piece(text string) {
	if !s.open {
		s.open = true
		s.start(object{"type": "text", "text": ""})
	}
	s.delta(object{"type": "text_delta", "text": text})
}

func (s *messageShape) end(r chat.Response, u spend.Usage) {
	if s.open {
		s.stop()
	}
	for _, c := range r.ToolCalls {
		s.start(object{"type": "tool_use", "id": c.ID, "name": c.Name, "input": object{}})
		s.delta(object{"type": "input_json_delta", "partial_json": string(inputOf(c))})
		s.stop()
	}
	s.send("message_delta", object{"type": "message_delta", "delta": object{"stop_reason": stopOf(r.Finish), "stop_sequence": nil}, "usage": anthropicShape(u)})
	s.send("message_stop", object{"type": "message_stop"})
}

func (s *messageShape) fail(r *Refusal) { s.send("error", problem(Anthropic, r, s.id)) }
