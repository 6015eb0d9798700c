package scripted

import (
	"bytes"
	"context"
	"slices"
	"sync"

	"github.com/belay-run/belay/internal/chat"
)

// Recording is a model that passes everything on to another one and keeps what it
// was asked, for tests.
type Recording struct {
	chat.Model

	mu   sync.Mutex
	asks []Ask
}

// Ask is one completion that was asked for.
type Ask struct {
	Request      chat.Request
	Conversation string
	Streamed     bool // pieces were asked for
	Response     chat.Response
	Err          error
}

// Record wraps a model.
func Record(m chat.Model) *Recording { return &Recording{Model: m} }

// Complete asks the model behind and keeps the request and what came of it.
func (r *Recording) Complete(ctx context.Context, req chat.Request, delta func(string)) (chat.Response, error) {
	kept := req
	kept.Messages = bytes.Clone(req.Messages) // as they were when they were sent
	response, err := r.Model.Complete(ctx, req, delta)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asks = append(r.asks, Ask{kept, chat.Conversation(ctx), delta != nil, response, err})
	return response, err
}

// Asks returns what was asked, in the order in which it was answered.
func (r *Recording) Asks() []Ask {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.asks)
}
