package turn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/loop"
	"github.com/belay-run/belay/internal/step"
)

// Kinds of steps that a turn asks for, beside the loop's.
const (
	kindTool   = "tool"   // ToolCall → ToolAnswer
	kindSearch = "search" // searchCall → searchAnswer
	kindRead   = "read"   // nothing → string: what the user has read of a text that was cut short
)

type searchCall struct {
	Query string `json:"query"`
	Skill string `json:"skill,omitempty"` // whose references are searched too
}

type searchAnswer struct {
	Passages []json.RawMessage `json:"passages"`
	Failed   string            `json:"failed,omitempty"`
	Took     time.Duration     `json:"took_ns"`
}

func (a searchAnswer) outcome() string {
	if a.Failed != "" {
		return "failed"
	}
	return "ok"
}

// nothing is the answer of a step that has none.
type nothing struct{}

// handlers answer the turn's steps.
func (t *turn) handlers() map[string]step.Handler {
	return map[string]step.Handler{
		loop.KindHook:    t.askHook,
		loop.KindObserve: t.observe,
		loop.KindModel:   t.askModel,
		loop.KindID:      func(context.Context, step.Call) (any, error) { return t.agent.NewID(), nil },
		kindTool:         t.callTool,
		kindSearch:       t.searchIndex,
		kindRead:         func(context.Context, step.Call) (any, error) { return t.partial.String(), nil },
	}
}

func (t *turn) asker() hook.Asker { return hook.Asker{Key: t.sender, Turn: t.id} }

func (t *turn) askHook(ctx context.Context, c step.Call) (any, error) {
	in := c.Input.(loop.HookCall)
	a := t.agent.Hooks.Ask(ctx, in.Hook, in.Payload, t.asker())
	if err := ctx.Err(); err != nil {
		return nil, err // cancelled: what it said is dropped
	}
	return a, nil
}

func (t *turn) observe(ctx context.Context, c step.Call) (any, error) {
	in := c.Input.(loop.ObserveCall)
	t.agent.Hooks.Watch(ctx, in.Hooks, in.Payload, t.asker())
	return nothing{}, nil
}

func (t *turn) askModel(ctx context.Context, c step.Call) (any, error) {
	in := c.Input.(loop.ModelCall)
	var delta func(string)
	t.partial.Reset()
	t.held = false
	if in.Live {
		delta = t.stream(ctx)
	}
	began := time.Now()
	response, err := t.agent.Model.Complete(chat.WithConversation(ctx, t.sender), in.Request, delta)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err == nil {
		return loop.ModelAnswer{Response: response}, nil
	}
	answer := loop.ModelAnswer{Response: chat.Response{Latency: time.Since(began)}, Failed: err.Error(), Streamed: t.partial.String()}
	var known *chat.Error
	if errors.As(err, &known) {
		answer.Status = known.Status
	}
	t.agent.Logger.Warn("the model failed", "turn", t.id, "purpose", in.Purpose, "error", err)
	return answer, nil
}

// stream sends pieces of a text as they arrive. What the text answers is put on
// disk before its first piece leaves.
func (t *turn) stream(ctx context.Context) func(string) {
	return func(piece string) {
		if t.held || ctx.Err() != nil || piece == "" {
			return
		}
		if t.partial.Len() == 0 {
			if err := t.flush(); err != nil {
				t.held = true // the whole text tries again
				t.agent.Logger.Error("a text is held back: its record cannot be written", "turn", t.id, "error", err)
				return
			}
		}
		t.partial.WriteString(piece)
		t.out.Delta(piece)
	}
}

func (t *turn) callTool(ctx context.Context, c step.Call) (any, error) {
	in := c.Input.(ToolCall)
	a := t.agent.Tools.Run(ctx, in)
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("cancelled while %s ran: %w", in.Tool, err)
	}
	return a, nil
}

func (t *turn) searchIndex(ctx context.Context, c step.Call) (any, error) {
	in := c.Input.(searchCall)
	began := time.Now()
	found, err := t.agent.Knowledge.Search(ctx, in.Query, in.Skill)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	a := searchAnswer{Passages: found, Took: time.Since(began)}
	if err != nil {
		a.Failed = err.Error()
		t.agent.Logger.Warn("a knowledge search failed", "turn", t.id, "error", err)
	}
	return a, nil
}
