package apptest

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/belay-run/belay/internal/app"
	"github.com/belay-run/belay/internal/chat"
)

// Answer is what the model does when it is asked once.
type Answer func(ctx context.Context, req chat.Request, delta func(string)) (chat.Response, error)

// Play makes a model that gives the answers in order, to each conversation from
// the first one on. When they are used up it says "ok".
func Play(answers ...Answer) func(*app.Config) {
	return func(c *app.Config) { c.Client = &player{answers: answers, at: map[string]int{}} }
}

type player struct {
	answers []Answer
	mu      sync.Mutex
	at      map[string]int
}

func (*player) Name() string { return "scripted" }

func (p *player) Complete(ctx context.Context, req chat.Request, delta func(string)) (chat.Response, error) {
	who := chat.Conversation(ctx)
	p.mu.Lock()
	i := p.at[who]
	p.at[who]++
	p.mu.Unlock()
	if i >= len(p.answers) {
		return Says("ok")(ctx, req, delta)
	}
	return p.answers[i](ctx, req, delta)
}

// Says answers with a text.
func Says(text string) Answer { return Pieces(text) }

// Pieces answers with a text that streams in pieces.
func Pieces(pieces ...string) Answer {
	return func(_ context.Context, _ chat.Request, delta func(string)) (chat.Response, error) {
		text := ""
		for _, p := range pieces {
			text += p
			if delta != nil {
				delta(p)
			}
		}
		return chat.Response{Text: &text, Latency: time.Millisecond}, nil
	}
}

// C is one tool call.
type C struct {
	Name string
	Args any    // marshalled to JSON; a json.RawMessage stays as it is
	ID   string // "" makes one
	Type string // "" means function
}

// Calls answers with tool calls.
func Calls(calls ...C) Answer { return SaysAndCalls("", calls...) }

// Call answers with one tool call.
func Call(name string, args any) Answer { return Calls(C{Name: name, Args: args}) }

// SaysAndCalls answers with a text beside tool calls.
func SaysAndCalls(text string, calls ...C) Answer {
	return func(_ context.Context, req chat.Request, delta func(string)) (chat.Response, error) {
		r := chat.Response{Latency: time.Millisecond}
		if text != "" {
			r.Text = &text
			if delta != nil {
				delta(text)
			}
		}
		for i, c := range calls {
			raw, ok := c.Args.(json.RawMessage)
			if !ok {
				var err error
				if raw, err = json.Marshal(c.Args); err != nil {
					return r, err
				}
			}
			if c.Args == nil {
				raw = json.RawMessage(`{}`)
			}
			if c.ID == "" {
				c.ID = fmt.Sprintf("call_%d_%d", len(req.Messages), i)
			}
			if c.Type == "" {
				c.Type = "function"
			}
			r.ToolCalls = append(r.ToolCalls, chat.ToolCall{ID: c.ID, Type: c.Type, Name: c.Name, Arguments: raw})
		}
		return r, nil
	}
}

// Empty answers with nothing.
func Empty() Answer {
	return func(context.Context, chat.Request, func(string)) (chat.Response, error) {
		return chat.Response{}, nil
	}
}

// Fails is a provider that fails with a status.
func Fails(status int) Answer {
	return func(context.Context, chat.Request, func(string)) (chat.Response, error) {
		return chat.Response{}, &chat.Error{Status: status, Message: fmt.Sprintf("the provider answered %d", status)}
	}
}

// After waits for gate to be closed (or the call to be cancelled), then answers.
func After(gate <-chan struct{}, then Answer) Answer {
	return func(ctx context.Context, req chat.Request, delta func(string)) (chat.Response, error) {
		select {
		case <-gate:
			return then(ctx, req, delta)
		case <-ctx.Done():
			return chat.Response{}, ctx.Err()
		}
	}
}
