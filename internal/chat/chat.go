// Package chat is the language between the loop and a chat model: one request,
// one completion. Messages stay raw JSON objects from the record to the
// provider, so that keys nobody here knows survive.
package chat

import (
	"context"
	"encoding/json"
	"strings"
	"time"
)

// Request is one completion to be asked for.
type Request struct {
	// Messages is a JSON array of chat messages in OpenAI's form. It is sent as
	// it is.
	Messages json.RawMessage `json:"messages"`
	// Tools are the functions offered.
	Tools []Tool `json:"tools,omitempty"`
	// Settings are extra top-level keys of the request, such as temperature.
	// They win over the model's configured ones.
	Settings map[string]json.RawMessage `json:"settings,omitempty"`
}

// Tool is one function offered to the model.
type Tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters"` // JSON schema of an object
}

// Response is one completion.
type Response struct {
	// Text is nil when the completion has none.
	Text      *string    `json:"text"`
	ToolCalls []ToolCall `json:"tool_calls,omitempty"`
	// Latency is the time the provider took.
	Latency time.Duration `json:"latency_ns"`
	// Usage is the provider's count, zero when it gave none.
	Usage Usage `json:"usage"`
	// Finish is the provider's finish reason.
	Finish string `json:"finish,omitempty"`
}

// Empty says that the completion has neither text nor calls. Blank text counts
// as none.
func (r *Response) Empty() bool {
	return len(r.ToolCalls) == 0 && (r.Text == nil || strings.TrimSpace(*r.Text) == "")
}

// ToolCall is one call that the model made.
type ToolCall struct {
	ID   string `json:"id"`
	Type string `json:"type,omitempty"`
	Name string `json:"name"`
	// Arguments is the JSON text that the model gave: usually an object, but a
	// model may write anything.
	Arguments json.RawMessage `json:"arguments"`
}

// Usage is what a completion cost.
type Usage struct {
	Input     int `json:"input_tokens"`               // all of them
	Output    int `json:"output_tokens"`              // all of them
	Cached    int `json:"cached_tokens,omitempty"`    // of Input: read from the provider's cache
	Reasoning int `json:"reasoning_tokens,omitempty"` // of Output
}

// Error is a provider that did not give a completion. Its text holds no message
// text and no key.
type Error struct {
	Status   int    // HTTP status, 0 when there was none
	Message  string // safe to log
	Attempts int
	Begun    int // of them, those that the provider may have begun to answer, and charges
}

func (e *Error) Error() string { return e.Message }

// Model gives completions. Complete calls delta, when it is not nil, with each
// piece of text as it arrives, from the goroutine that called it.
type Model interface {
	Complete(ctx context.Context, req Request, delta func(string)) (Response, error)
	// Name is provider and model, for traces, such as "openai/gpt-4o".
	Name() string
}

type conversationKey struct{}

// WithConversation says whose completions are asked for under the context. A
// model that must tell conversations apart, such as a scripted one that answers
// in sequence, reads it with [Conversation].
func WithConversation(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, conversationKey{}, id)
}

// Conversation gives the id of [WithConversation], "" when there is none.
func Conversation(ctx context.Context) string {
	id, _ := ctx.Value(conversationKey{}).(string)
	return id
}
