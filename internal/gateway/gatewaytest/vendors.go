package gatewaytest

import "strings"

type object = map[string]any

// openAIUsage is the usage of a chat completion.
func openAIUsage() object {
	return object{"prompt_tokens": Input, "completion_tokens": Output, "total_tokens": Input + Output,
		"prompt_tokens_details":     object{"cached_tokens": Cached, "audio_tokens": 0},
		"completion_tokens_details": object{"reasoning_tokens": Reasoning, "audio_tokens": 0}}
}

// anthropicUsage is the usage of a message with so many tokens written.
func anthropicUsage(output, reasoning int) object {
	return object{"input_tokens": Input - Cached - Written, "cache_read_input_tokens": Cached, "cache_creation_input_tokens": Written,
		"output_tokens": output, "output_tokens_details": object{"thinking_tokens": reasoning}, "service_tier": "standard"}
}

// The tool that is called.
const (
	Tool      = "get_weather"
	Arguments = `{"city":"Graz"}`
)

func (a *answer) whole() {
	text := strings.Join(a.pieces(), "")
	if a.anthropic {
		content := []object{{"type": "text", "text": text}}
		stop := "end_turn"
		if a.q.is("tools") {
			content = append(content, object{"type": "tool_use", "id": "toolu_1", "name": Tool, "input": object{"city": "Graz"}})
			stop = "tool_use"
		}
		m := a.message(content, stop, anthropicUsage(Output, Reasoning))
		if a.q.is("no-usage") {
			delete(m, "usage")
		}
		a.json(m)
		return
	}
	message, finish := object{"role": "assistant", "content": text, "refusal": nil}, "stop"
	if a.q.is("tools") {
		message["tool_calls"] = []object{{"id": "call_1", "type": "function", "function": object{"name": Tool, "arguments": Arguments}}}
		finish = "tool_calls"
	}
	c := a.chunk("chat.completion", []object{{"index": 0, "message": message, "logprobs": nil, "finish_reason": finish}})
	if !a.q.is("no-usage") {
		c["usage"] = openAIUsage()
	}
	a.json(c)
}

func (a *answer) message(content []object, stop any, usage object) object {
	return object{"id": "msg_1", "type": "message", "role": "assistant", "model": a.q.Model, "content": content,
		"stop_reason": stop, "stop_sequence": nil, "usage": usage}
}

func (a *answer) chunk(kind string, choices []object) object {
	return object{"id": "chatcmpl-1", "object": kind, "created": 1, "model": a.q.Model, "choices": choices, "system_fingerprint": "fp_1"}
}

func (a *answer) stream() {
	a.w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	a.w.WriteHeader(200)
	if a.anthropic {
		a.messageStream()
		return
	}
	a.chunkStream()
}

// half breaks the answer off where its text is half written.
func (a *answer) half(piece, pieces int) {
	if piece != pieces/2 {
		return
	}
	switch {
	case a.q.is("cut"), a.q.is("stall"):
		a.breakOff()
	case a.q.is("error"):
		problem := object{"message": "Overloaded", "type": "overloaded_error", "code": nil}
		if a.anthropic {
			a.event("error", object{"type": "error", "error": problem})
		} else {
			a.event("", object{"error": problem})
		}
	}
}

func (a *answer) chunkStream() {
	delta := func(delta object, finish any) {
		c := a.chunk("chat.completion.chunk", []object{{"index": 0, "delta": delta, "logprobs": nil, "finish_reason": finish}})
		if a.q.Options.Usage {
			c["usage"] = nil
		}
		a.event("", c)
	}
	delta(object{"role": "assistant", "content": ""}, nil)
	pieces := a.pieces()
	for i, p := range pieces {
		a.half(i, len(pieces))
		a.pause()
		delta(object{"content": p}, nil)
	}
	finish := "stop"
	if a.q.is("tools") {
		delta(object{"tool_calls": []object{{"index": 0, "id": "call_1", "type": "function", "function": object{"name": Tool, "arguments": ""}}}}, nil)
		delta(object{"tool_calls": []object{{"index": 0, "function": object{"arguments": Arguments}}}}, nil)
		finish = "tool_calls"
	}
	delta(object{}, finish)
	if a.q.Options.Usage && !a.q.is("no-usage") {
		last := a.chunk("chat.completion.chunk", []object{})
		last["usage"] = openAIUsage()
		a.event("", last)
	}
	if !a.q.is("no-end") {
		a.event("", []byte("[DONE]"))
	}
}

func (a *answer) messageStream() {
	usage := func(output, reasoning int) object {
		if a.q.is("no-usage") {
			return nil
		}
		return anthropicUsage(output, reasoning)
	}
	send := func(name string, data object) {
		data["type"] = name
		a.event(name, data)
	}
	send("message_start", object{"message": a.message([]object{}, nil, usage(1, 0))})
	send("content_block_start", object{"index": 0, "content_block": object{"type": "text", "text": ""}})
	send("ping", object{})
	pieces := a.pieces()
	for i, p := range pieces {
		a.half(i, len(pieces))
		a.pause()
		send("content_block_delta", object{"index": 0, "delta": object{"type": "text_delta", "text": p}})
	}
	send("content_block_stop", object{"index": 0})
	stop := "end_turn"
	if a.q.is("tools") {
		send("content_block_start", object{"index": 1, "content_block": object{"type": "tool_use", "id": "toolu_1", "name": Tool, "input": object{}}})
		for _, part := range []string{"", Arguments[:7], Arguments[7:]} {
			send("content_block_delta", object{"index": 1, "delta": object{"type": "input_json_delta", "partial_json": part}})
		}
		send("content_block_stop", object{"index": 1})
		stop = "tool_use"
	}
	send("message_delta", object{"delta": object{"stop_reason": stop, "stop_sequence": nil}, "usage": usage(Output, Reasoning)})
	if !a.q.is("no-end") {
		send("message_stop", object{})
	}
}
