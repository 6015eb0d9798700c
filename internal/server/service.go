package server

import (
	"context"

	"github.com/belay-run/belay/internal/conversation"
	"github.com/belay-run/belay/internal/turn"
)

// Service runs turns and keeps their records.
type Service interface {
	// Talk runs one turn; out gets the texts as they become ready. It fails with
	// [turn.ErrBusy] when too many messages wait, with [turn.ErrClosed] when the
	// service is stopping, with ctx's error when that ended while the message
	// waited for its turn, and otherwise when the record cannot be written.
	Talk(ctx context.Context, in Inbound, out turn.Out) (turn.Report, error)
	// Events returns the record of a conversation; nil when there is none.
	Events(ctx context.Context, sender string) ([]conversation.Event, error)
	// Traces returns the trace of a conversation, or of one turn of it.
	Traces(ctx context.Context, sender, turnID string) ([]conversation.Trace, error)
	// Delete drops a conversation and says whether there was one.
	Delete(ctx context.Context, sender string) (bool, error)
	Health(ctx context.Context) Health
}

// Inbound is a message on its way to a turn. The context that comes with it
// holds the caller's span, when it sent one.
type Inbound struct {
	Sender  string
	Message turn.Message
	// Interrupt cancels the turn that is running first.
	Interrupt bool
	// Live says that the client takes pieces of text.
	Live bool
}

// Health says how the service is.
type Health struct {
	OK       bool              `json:"ok" doc:"Whether turns can run."`
	Agent    string            `json:"agent,omitempty" doc:"The agent's id."`
	Model    string            `json:"model,omitempty" doc:"Provider and model."`
	Scripted bool              `json:"scripted,omitempty" doc:"True when a script answers instead of a model."`
	Workers  int               `json:"workers,omitempty" doc:"Worker processes that are ready."`
	Details  map[string]string `json:"details,omitempty" doc:"What is wrong or worth knowing, by part."`
}
