package convtest

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/belay-run/belay/internal/chat"
)

// router asks the model that a conversation brings, else the agent's.
type router struct {
	models map[string]chat.Model // by sender; not changed while turns run
	agents chat.Model            // nil when no conversation asks it
}

// Name says which model it is that conversations without one ask.
func (r *router) Name() string {
	if r.agents == nil {
		return "test"
	}
	return r.agents.Name()
}

// Complete implements [chat.Model].
func (r *router) Complete(ctx context.Context, req chat.Request, delta func(string)) (chat.Response, error) {
	m := r.models[chat.Conversation(ctx)]
	if m == nil {
		m = r.agents
	}
	if m == nil {
		return chat.Response{}, &chat.Error{Message: "the test has no model for this conversation", Attempts: 1}
	}
	return m.Complete(ctx, req, delta)
}

// player is a model that gives recorded completions in their order. It says what it
// was asked for that it does not have.
type player struct {
	mu       sync.Mutex
	left     []Completion
	turn     int
	given    int // in this turn
	last     *Completion
	asked    []byte // the request that last answered
	problems []string
}

// Name implements [chat.Model].
func (*player) Name() string { return "recording" }

// begin goes on to a turn with what was recorded of it.
func (p *player) begin(turn int, recorded []Completion) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turn, p.given, p.last = turn, 0, nil
	p.left = append(p.left, recorded...)
}

// end gives what went wrong in the turn. all says that nothing may be left.
func (p *player) end(all bool) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.problems
	p.problems = nil
	if all && len(p.left) > 0 {
		var what []string
		for _, c := range p.left {
			what = append(what, c.show())
		}
		out = append(out, fmt.Sprintf("the model was not asked for %s of the recording: %s", count(len(p.left), "completion"), strings.Join(what, "; ")))
		p.left = nil
	}
	return out
}

// purposeOf tells requests apart by what they offer: a request to reword a text
// offers nothing, one for fields only the tool that sets them.
func purposeOf(tools []chat.Tool) string {
	switch {
	case len(tools) == 0:
		return Rephrase
	case len(tools) == 1 && tools[0].Name == "set_fields":
		return Fill
	}
	return Main
}

var inWords = map[string]string{Main: "to go on", Rephrase: "to reword a fixed text", Fill: "which fields the user has given"}

// Complete gives the next completion.
func (p *player) Complete(ctx context.Context, req chat.Request, delta func(string)) (chat.Response, error) {
	if err := ctx.Err(); err != nil {
		return chat.Response{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last != nil && p.last.Empty && bytes.Equal(p.asked, req.Messages) {
		return p.last.play(delta) // it is asked for again
	}
	purpose := purposeOf(req.Tools)
	fail := func(format string, args ...any) (chat.Response, error) {
		why := fmt.Sprintf(format, args...)
		p.problems = append(p.problems, why)
		return chat.Response{}, &chat.Error{Message: why, Attempts: 1}
	}
	switch {
	case len(p.left) == 0:
		return fail("the model was asked %s, and the recording has nothing more for turn %d; it has given %s", inWords[purpose], p.turn, count(p.given, "completion"))
	case p.left[0].Purpose != purpose:
		return fail("the model was asked %s, and the next completion of the recording is an answer to another question (%s): %s", inWords[purpose], p.left[0].Purpose, p.left[0].show())
	}
	c := p.left[0]
	p.left, p.last, p.asked = p.left[1:], &c, bytes.Clone(req.Messages)
	p.given++
	return c.play(delta)
}

func (c *Completion) play(delta func(string)) (chat.Response, error) {
	if c.Text != nil && delta != nil {
		delta(*c.Text)
	}
	if c.Fail != "" {
		return chat.Response{}, &chat.Error{Message: c.Fail, Attempts: 1}
	}
	r := chat.Response{Text: c.Text, Finish: "stop"}
	for _, call := range c.Calls {
		r.ToolCalls = append(r.ToolCalls, call) // an id is made where there is none
		r.Finish = "tool_calls"
	}
	return r, nil
}

// show is a completion in a line.
func (c *Completion) show() string {
	var parts []string
	if c.Purpose != Main {
		parts = append(parts, c.Purpose)
	}
	if c.Text != nil {
		parts = append(parts, quote(short(*c.Text)))
	}
	for _, call := range c.Calls {
		parts = append(parts, call.Name+" "+short(oneLine(call.Arguments)))
	}
	switch {
	case c.Empty:
		parts = append(parts, "empty")
	case c.Fail != "":
		parts = append(parts, "fails: "+c.Fail)
	}
	return strings.Join(parts, " ")
}
