package scripted

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/rawjson"
)

// Name is "scripted".
func (*Script) Name() string { return Name }

// Complete answers by the first rule that holds.
func (s *Script) Complete(ctx context.Context, req chat.Request, delta func(string)) (chat.Response, error) {
	v, err := look(req)
	if err != nil {
		return chat.Response{}, &chat.Error{Message: "the scripted model cannot read the request: " + err.Error(), Attempts: 1}
	}
	r, at, g := s.choose(v)
	if r == nil && v.fill {
		none := "none" // no rule: the user has given nothing
		return chat.Response{Text: &none}, nil
	}
	if r == nil {
		return chat.Response{}, &chat.Error{Message: noRule(v), Attempts: 1}
	}
	digest := sha256.Sum256(req.Messages)
	n := s.turn(place{chat.Conversation(ctx), at, digest}, len(r.answers))
	out, err := r.answers[n].play(ctx, g, fmt.Sprintf("call_%s%02d", hex.EncodeToString(digest[:6]), n), delta)
	for i := range out.ToolCalls {
		if name := v.offered(out.ToolCalls[i].Name); name != "" {
			out.ToolCalls[i].Name = name
		}
	}
	return out, err
}

func noRule(v view) string {
	if v.quiet {
		return "the script has no rule for a request without tools, such as one to rephrase a text or any of an agent without tools; add a rule with when: {quiet: '.*'}"
	}
	return "the script has no rule for this request; add default: to the script"
}

// choose finds the rule that answers. The default is for requests that offer
// tools: said in the place of a rephrased text it would be nonsense.
func (s *Script) choose(v view) (*rule, int, groups) {
	for i := range s.rules {
		if g, ok := s.rules[i].when.holds(v); ok {
			return &s.rules[i], i, g
		}
	}
	if v.quiet || v.fill {
		return nil, 0, nil
	}
	return s.fallback, len(s.rules), groups{}
}

// place is where a sequence of answers is kept: a conversation that asks once
// more with the same messages goes on in it.
type place struct {
	conversation string
	rule         int
	messages     [sha256.Size]byte
}

// remembered is how many places one half of the memory holds. Sequences are short
// and asked through at once, so old places can be forgotten.
const remembered = 4096

// turn says which of a rule's answers is next.
func (s *Script) turn(p place, answers int) int {
	if answers == 1 {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n, ok := s.young[p]
	if !ok {
		n = s.old[p]
	}
	if s.young == nil {
		s.young = map[place]int{}
	}
	if len(s.young) >= remembered {
		s.old, s.young = s.young, map[place]int{}
	}
	s.young[p] = n + 1
	return min(n, answers-1)
}

// play gives the answer. Its latency is the time that the script asks for, so that
// a recorded answer is the same at each run.
func (a *answer) play(ctx context.Context, g groups, id string, delta func(string)) (chat.Response, error) {
	r := chat.Response{Finish: a.finish}
	var text strings.Builder
	for i := range max(1, len(a.pieces)) {
		if err := wait(ctx, a.delay); err != nil {
			return chat.Response{}, fmt.Errorf("asking the scripted model: %w", err)
		}
		r.Latency += a.delay
		if i == len(a.pieces) {
			break // an answer without text
		}
		piece := g.fill(a.pieces[i])
		text.WriteString(piece)
		if delta != nil && piece != "" {
			delta(piece)
		}
	}
	if a.fail != nil {
		return chat.Response{}, &chat.Error{Status: a.fail.status, Message: a.fail.message, Attempts: 1}
	}
	if text.Len() > 0 {
		s := text.String()
		r.Text = &s
	}
	for i, c := range a.calls {
		args, err := c.arguments(g)
		if err != nil {
			return chat.Response{}, &chat.Error{Message: "the script's arguments for " + c.tool + " have no JSON form", Attempts: 1}
		}
		one := chat.ToolCall{ID: g.fill(c.id), Type: "function", Name: c.tool, Arguments: args}
		if one.ID == "" {
			one.ID = fmt.Sprintf("%s_%d", id, i)
		}
		r.ToolCalls = append(r.ToolCalls, one)
	}
	if r.Finish == "" {
		r.Finish = "stop"
		if len(r.ToolCalls) > 0 {
			r.Finish = "tool_calls"
		}
	}
	return r, nil
}

// arguments writes a call's arguments. Like those of a real model, a text that is
// no JSON becomes a JSON string.
func (c *call) arguments(g groups) (json.RawMessage, error) {
	switch args := c.args.(type) {
	case nil:
		return json.RawMessage(`{}`), nil
	case string:
		if text := g.fill(args); json.Valid([]byte(text)) {
			return json.RawMessage(text), nil
		} else {
			return rawjson.Encode(text)
		}
	default:
		return rawjson.Encode(g.fillAll(args))
	}
}

func wait(ctx context.Context, d time.Duration) error {
	if d <= 0 || ctx.Err() != nil {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
