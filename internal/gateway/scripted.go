package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/rawjson"
	"github.com/belay-run/belay/internal/spend"
)

// shape writes the answers of a scripted model as a vendor does.
type shape interface {
	// whole is an answer in one piece.
	whole(r chat.Response, u spend.Usage) any
	// begin, piece, end and fail are what a stream is made of.
	begin(u spend.Usage)
	piece(text string)
	end(r chat.Response, u spend.Usage)
	fail(r *Refusal)
}

// script answers from a script, in the route's shape.
func (c *call) script() {
	ctx, cancel := context.WithTimeoutCause(c.r.Context(), c.up.Timeout, errSilent)
	defer cancel()
	req, err := c.question()
	if err != nil {
		c.fail(&Refusal{http.StatusBadRequest, err.Error()})
		return
	}
	u := spend.Usage{Input: inputLikely(c.asked.doc.raw)}
	if c.r.URL.Path == countPath {
		c.end(http.StatusOK, "")
		c.json(http.StatusOK, map[string]any{"input_tokens": u.Input})
		return
	}
	out := c.shape()
	c.out.Estimated = true
	begun, written := false, tokens{}
	begin := func() {
		if !begun {
			begun = true
			c.out.FirstByte = time.Since(c.began)
			c.beginStream()
			out.begin(u)
		}
	}
	var delta func(string)
	if c.asked.stream {
		delta = func(text string) {
			begin()
			written.add([]byte(text))
			out.piece(text)
			_ = c.w.FlushError() // the writer remembers
		}
	}
	r, err := c.up.Script.Complete(chat.WithConversation(ctx, c.record.Job), req, delta)
	if err != nil {
		c.out.Usage = u
		c.out.Usage.Output = written.count()
		c.scriptFailed(ctx, err, begun, out)
		return
	}
	u.Output = outputOf(r)
	c.out.Usage = u
	if !c.asked.stream {
		body := out.whole(r, u)
		if c.rules.RecordTexts {
			c.out.Answer = rawjson.Must(body)
		}
		c.end(http.StatusOK, "")
		c.json(http.StatusOK, body)
		return
	}
	begin()
	if c.rules.RecordTexts {
		c.out.Answer = rawjson.Must(out.whole(r, u))
	}
	why := ""
	if c.w.Failed() != nil {
		why = c.left(ctx)
	}
	c.end(http.StatusOK, why)
	out.end(r, u)
}

func (c *call) shape() shape {
	if c.api == Anthropic {
		return &messageShape{call: c}
	}
	return &chunkShape{call: c}
}

// left says why nobody is there any more.
func (c *call) left(ctx context.Context) string {
	if why := c.cause(ctx); why != "" {
		return why
	}
	return "the caller went away"
}

func (c *call) beginStream() {
	h := c.w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Request-Id", c.id)
	c.w.WriteHeader(http.StatusOK)
}

// scriptFailed ends a call that the script fails, or that was stopped.
func (c *call) scriptFailed(ctx context.Context, err error, begun bool, out shape) {
	var failed *chat.Error
	r := &Refusal{http.StatusBadGateway, "the scripted model failed"}
	switch {
	case errors.As(err, &failed):
		r.Reason = failed.Message
		if failed.Status != 0 {
			r.Status = failed.Status
		}
	case errors.Is(context.Cause(ctx), errSilent):
		r = &Refusal{http.StatusGatewayTimeout, "the scripted model gave no answer within " + c.up.Timeout.String()}
	case ctx.Err() != nil:
		status := 0
		if begun {
			status = http.StatusOK
		}
		c.end(status, c.left(ctx))
		panic(http.ErrAbortHandler)
	}
	if !begun {
		c.out.Usage, c.out.Estimated = spend.Usage{}, false
		c.fail(r)
		return
	}
	c.end(http.StatusOK, r.Reason)
	out.fail(r)
}

func outputOf(r chat.Response) int {
	var t tokens
	if r.Text != nil {
		t.add([]byte(*r.Text))
	}
	for _, call := range r.ToolCalls {
		t.add([]byte(call.Name))
		t.add(call.Arguments)
	}
	return max(1, t.count())
}

// question makes of the request what a model here is asked. Errors are for the caller.
func (c *call) question() (chat.Request, error) {
	doc := c.asked.doc
	if c.api == Anthropic {
		return fromMessages(doc)
	}
	req := chat.Request{Messages: doc.value("messages")}
	if !isList(req.Messages) {
		return req, errors.New("messages is no list")
	}
	var tools []struct {
		Function struct {
			Name        string          `json:"name"`
			Description string          `json:"description"`
			Parameters  json.RawMessage `json:"parameters"`
		} `json:"function"`
	}
	if raw := doc.value("tools"); raw != nil && json.Unmarshal(raw, &tools) != nil {
		return req, errors.New("tools is no list of tools")
	}
	for _, t := range tools {
		if t.Function.Name != "" {
			req.Tools = append(req.Tools, chat.Tool(t.Function))
		}
	}
	return req, nil
}

func isList(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] == '[' }

// block is a part of an Anthropic message.
type block struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Content   json.RawMessage `json:"content"`
}

// blocksOf reads a content, which is a text or a list of blocks.
func blocksOf(raw json.RawMessage) ([]block, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return []block{{Type: "text", Text: text}}, nil
	}
	var out []block
	if json.Unmarshal(raw, &out) != nil {
		return nil, errors.New("a content is neither a text nor a list of blocks")
	}
	return out, nil
}

// textOf joins the texts of a content; pictures have none.
func textOf(raw json.RawMessage) (string, error) {
	blocks, err := blocksOf(raw)
	var texts []string
	for _, b := range blocks {
		if b.Type == "text" {
			texts = append(texts, b.Text)
		}
	}
	return strings.Join(texts, "\n"), err
}

// fromMessages reads a request of Anthropic's API.
func fromMessages(doc *document) (chat.Request, error) {
	var req chat.Request
	var list []any
	system, err := textOf(doc.value("system"))
	if err != nil {
		return req, err
	}
	if system != "" {
		list = append(list, map[string]any{"role": "system", "content": system})
	}
	var messages []struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	}
	raw := doc.value("messages")
	if !isList(raw) || json.Unmarshal(raw, &messages) != nil {
		return req, errors.New("messages is no list of messages")
	}
	for _, m := range messages {
		blocks, err := blocksOf(m.Content)
		if err != nil {
			return req, err
		}
		more, err := fromBlocks(m.Role, blocks)
		if err != nil {
			return req, err
		}
		list = append(list, more...)
	}
	req.Messages = rawjson.Must(list)
	var tools []struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		InputSchema json.RawMessage `json:"input_schema"`
	}
	if raw := doc.value("tools"); raw != nil && json.Unmarshal(raw, &tools) != nil {
		return req, errors.New("tools is no list of tools")
	}
	for _, t := range tools {
		req.Tools = append(req.Tools, chat.Tool{Name: t.Name, Description: t.Description, Parameters: t.InputSchema})
	}
	return req, nil
}

// fromBlocks makes messages of one: results of tools are messages of their own.
func fromBlocks(role string, blocks []block) ([]any, error) {
	var out, calls []any
	var texts []string
	for _, b := range blocks {
		switch b.Type {
		case "text":
			texts = append(texts, b.Text)
		case "tool_use":
			calls = append(calls, map[string]any{"id": b.ID, "type": "function", "function": map[string]any{"name": b.Name, "arguments": string(b.Input)}})
		case "tool_result":
			text, err := textOf(b.Content)
			if err != nil {
				return nil, err
			}
			out = append(out, map[string]any{"role": "tool", "tool_call_id": b.ToolUseID, "content": text})
		}
	}
	if len(texts) == 0 && len(calls) == 0 && len(out) > 0 {
		return out, nil
	}
	m := map[string]any{"role": role, "content": strings.Join(texts, "\n")}
	if len(calls) > 0 {
		m["tool_calls"] = calls
	}
	return append(out, m), nil
}
