// Package step is the one way in which a flow (the loop of a turn, a job)
// touches the world: clocks, ids, models, tools and hooks are asked by calls
// with names, and what comes back is data.
//
// A flow that asks only through [Steps] can be run again on its answers and goes
// through the same states: [Record] keeps the answers of a run, [Replay] gives
// them back. [Direct] asks the handlers at once and keeps nothing.
package step

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/belay-run/belay/internal/rawjson"
)

// Call is one effect that a flow asks for.
type Call struct {
	// Key names the call within its flow, such as "0/request/hooks.py:mask".
	// Answers are found by it, never by count.
	Key string
	// Kind picks the handler.
	Kind string
	// Input is what the handler gets. It must have a JSON form.
	Input any
	// Once says that the effect may happen only once: begun and not answered,
	// it is not asked again.
	Once bool
}

// Answer is what came back. A failure is an answer too: Value then says so in
// the kind's own form.
type Answer struct {
	value any
	raw   json.RawMessage
}

// Give makes an answer of a value that has a JSON form.
func Give(v any) Answer { return Answer{value: v} }

// Raw makes an answer of its JSON form. Nothing at all is null.
func Raw(raw json.RawMessage) Answer {
	if len(raw) == 0 {
		raw = json.RawMessage("null")
	}
	return Answer{raw: raw}
}

// As reads an answer as T, without a detour through JSON where the handler gave
// a T.
func As[T any](a Answer) (T, error) {
	if v, ok := a.value.(T); ok {
		return v, nil
	}
	var v T
	if a.raw == nil {
		return v, fmt.Errorf("answer holds %T, not %T", a.value, v)
	}
	if err := json.Unmarshal(a.raw, &v); err != nil {
		return v, fmt.Errorf("answer is no %T: %w", v, err)
	}
	return v, nil
}

// Steps is what flow code sees of the outside world. An error means that the
// flow must stop at once: it was cancelled, or this process no longer owns it.
type Steps interface {
	Do(c Call) (Answer, error)
	Now() time.Time
}

// Handler answers the calls of one kind. It returns an error only when ctx
// ended: failures are answers.
type Handler func(ctx context.Context, c Call) (any, error)

// Direct asks the handlers at once.
type Direct struct {
	ctx      context.Context
	handlers map[string]Handler
	clock    func() time.Time
}

// NewDirect returns steps that ask the handlers under ctx.
func NewDirect(ctx context.Context, handlers map[string]Handler, clock func() time.Time) *Direct {
	return &Direct{ctx: ctx, handlers: handlers, clock: clock}
}

// Now returns the clock's time.
func (d *Direct) Now() time.Time { return d.clock() }

// Do asks the handler of the call's kind.
func (d *Direct) Do(c Call) (Answer, error) {
	if err := d.ctx.Err(); err != nil {
		return Answer{}, fmt.Errorf("stopped before %s: %w", c.Key, err)
	}
	h := d.handlers[c.Kind]
	if h == nil {
		return Answer{}, fmt.Errorf("call %s: no handler for kind %q", c.Key, c.Kind)
	}
	v, err := h(d.ctx, c)
	if err != nil {
		return Answer{}, fmt.Errorf("%s: %w", c.Key, err)
	}
	return Give(v), nil
}

// Kept is one line of a journal.
type Kept struct {
	Key   string          `json:"key"`
	Kind  string          `json:"kind"`
	Input json.RawMessage `json:"input,omitempty"`
	Value json.RawMessage `json:"value,omitempty"`
	Stop  bool            `json:"stop,omitempty"` // the flow was stopped here
}

// Record asks other steps and keeps every answer.
type Record struct {
	Steps
	mu   sync.Mutex
	kept []Kept
}

// NewRecord returns steps that ask inner and keep its answers.
func NewRecord(inner Steps) *Record { return &Record{Steps: inner} }

// Journal returns what was kept so far.
func (r *Record) Journal() []Kept {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Kept(nil), r.kept...)
}

func (r *Record) keep(k Kept) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kept = append(r.kept, k)
}

// Now keeps the time it gives.
func (r *Record) Now() time.Time {
	t := r.Steps.Now()
	raw, err := rawjson.Encode(t)
	if err == nil {
		r.keep(Kept{Kind: kindNow, Value: raw})
	}
	return t
}

const kindNow = "now"

// Do asks and keeps.
func (r *Record) Do(c Call) (Answer, error) {
	input, err := rawjson.Encode(c.Input)
	if err != nil {
		return Answer{}, fmt.Errorf("call %s: input has no JSON form: %w", c.Key, err)
	}
	a, err := r.Steps.Do(c)
	if err != nil {
		r.keep(Kept{Key: c.Key, Kind: c.Kind, Input: input, Stop: true})
		return a, err
	}
	raw, err := rawjson.Encode(a.value)
	if err != nil {
		return Answer{}, fmt.Errorf("call %s: answer has no JSON form: %w", c.Key, err)
	}
	r.keep(Kept{Key: c.Key, Kind: c.Kind, Input: input, Value: raw})
	return a, nil
}

// ErrDiffers says that a flow asked for something else than its record has.
var ErrDiffers = errors.New("the flow differs from its record")

// ErrStopped says that the recorded flow was stopped at this call.
var ErrStopped = errors.New("the recorded flow was stopped here")

// Replay answers from a journal and asks nothing.
type Replay struct {
	times []time.Time
	calls map[string]Kept
}

// NewReplay returns steps that answer from a journal. A key that stands twice in
// it is an error.
func NewReplay(journal []Kept) (*Replay, error) {
	r := &Replay{calls: map[string]Kept{}}
	for _, k := range journal {
		if k.Kind == kindNow {
			var t time.Time
			if err := json.Unmarshal(k.Value, &t); err != nil {
				return nil, fmt.Errorf("journal: time: %w", err)
			}
			r.times = append(r.times, t)
			continue
		}
		if _, twice := r.calls[k.Key]; twice {
			return nil, fmt.Errorf("journal: key %q stands twice", k.Key)
		}
		r.calls[k.Key] = k
	}
	return r, nil
}

// Now gives the recorded times in order.
func (r *Replay) Now() time.Time {
	if len(r.times) == 0 {
		return time.Time{}
	}
	t := r.times[0]
	r.times = r.times[1:]
	return t
}

// Do gives the recorded answer to the call with this key. A call that is not in
// the record, or had another input, is [ErrDiffers].
func (r *Replay) Do(c Call) (Answer, error) {
	k, ok := r.calls[c.Key]
	if !ok {
		return Answer{}, fmt.Errorf("%w: %s was not asked for", ErrDiffers, c.Key)
	}
	input, err := rawjson.Encode(c.Input)
	if err != nil {
		return Answer{}, fmt.Errorf("call %s: input has no JSON form: %w", c.Key, err)
	}
	if string(input) != string(k.Input) || c.Kind != k.Kind {
		return Answer{}, fmt.Errorf("%w: %s has another input", ErrDiffers, c.Key)
	}
	if k.Stop {
		return Answer{}, fmt.Errorf("%s: %w", c.Key, ErrStopped)
	}
	return Answer{raw: k.Value}, nil
}
