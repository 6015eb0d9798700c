package pyhost

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/belay-run/belay/hook"
)

// call is one question to a hook or one run of a tool.
type call struct {
	name    string
	file    string
	line    int
	key     string
	limit   time.Duration
	handle  int // in the host's catalogue
	payload hook.Payload
	tool    []byte // the JSON of a tool call; nil for a hook
	asked   time.Time

	hookDone func(hook.Answer)
	toolDone func(ToolAnswer)
	// aside has the answer told from a goroutine of its own: what follows an
	// observer's answer is bookkeeping, which may take its time and must not keep
	// the host from reading what the worker says next.
	aside bool

	// Guarded by the place's lock.
	id    uint32 // in the worker that it was last sent to
	sent  bool
	begun time.Time
	timer *time.Timer
	over  bool // answered; it may still run in the worker
	seen  bool // the worker lived after this overdue call was cancelled
	stop  func() bool

	said   []string // what a tool has sent to the user
	writes []Write  // what it has set
}

// ending is a call with its answer, to be told once no lock is held.
type ending struct {
	call *call
	hook hook.Answer
	tool ToolAnswer
}

func (e ending) tell() {
	switch {
	case e.call == nil:
	case e.call.toolDone != nil:
		e.call.toolDone(e.tool)
	default:
		e.call.hookDone(e.hook)
	}
}

func tellAll(es []ending) {
	for _, e := range es {
		e.tell()
	}
}

// overdue says that the call's time is up. A call that has not begun is never
// overdue: its time runs from its own beginning.
func (c *call) overdue(now time.Time) bool {
	return !c.begun.IsZero() && now.Sub(c.begun) >= c.limit
}

// finish marks the call as answered.
func (c *call) finish() {
	c.over = true
	if c.timer != nil {
		c.timer.Stop()
	}
	if c.stop != nil {
		c.stop()
	}
}

// times tells how long the call waited for its beginning and how long it ran.
// ran is what the worker measured, 0 when it did not come to tell. The worker's
// begun frame may be read late, together with the answer, so what the worker
// measured counts; but no call ran for longer than it was asked for.
func (c *call) times(now time.Time, ran time.Duration) (waited, took time.Duration) {
	spent := now.Sub(c.asked)
	switch {
	case c.begun.IsZero():
		return spent, 0
	case ran <= 0:
		return c.begun.Sub(c.asked), now.Sub(c.begun)
	}
	took = min(ran, spent)
	return min(c.begun.Sub(c.asked), spent-took), took
}

// answer ends the call with what the worker said.
func (c *call) answer(now time.Time, a hook.Answer, notes []string) ending {
	c.finish()
	a.Waited, a.Took = c.times(now, a.Took)
	a.Notes = notes
	if f := a.Failure; f != nil && f.File == "" {
		f.File, f.Line = c.file, c.line
	}
	return ending{call: c, hook: a}
}

func (c *call) toolAnswer(now time.Time, a ToolAnswer, notes []string) ending {
	c.finish()
	a.Waited, a.Took = c.times(now, a.Took)
	a.Notes, a.Said, a.Writes = notes, c.said, c.writes
	if f := a.Failure; f != nil && f.File == "" {
		f.File, f.Line = c.file, c.line
	}
	return ending{call: c, tool: a}
}

// fail ends the call without an answer from the worker. outcome is for a tool.
func (c *call) fail(now time.Time, kind hook.FailureKind, outcome Outcome, why string) ending {
	f := &hook.Failure{Kind: kind, Message: why}
	if c.toolDone != nil {
		return c.toolAnswer(now, ToolAnswer{Outcome: outcome, Failure: f}, nil)
	}
	return c.answer(now, hook.Answer{Failure: f}, nil)
}

// say keeps a text that a tool has sent. What it sends after its time counts for
// nothing.
func (c *call) say(text []byte) error {
	if late, err := c.late(); late || err != nil {
		return err
	}
	if len(c.said) >= maxSaid {
		return broken("a tool has sent more than %d texts", maxSaid)
	}
	c.said = append(c.said, string(text))
	return nil
}

// wrote keeps a memory value that a tool has set, as say does.
func (c *call) wrote(body []byte) error {
	if late, err := c.late(); late || err != nil {
		return err
	}
	var w Write
	if err := strict(body, &w); err != nil {
		return broken("a memory value cannot be read: %v", err)
	}
	i := slices.IndexFunc(c.writes, func(before Write) bool { return before.Name == w.Name })
	switch {
	case i >= 0:
		c.writes[i] = w
	case len(c.writes) >= maxWrites:
		return broken("a tool has set more than %d memory values", maxWrites)
	default:
		c.writes = append(c.writes, w)
	}
	return nil
}

// late says that what a tool does now counts for nothing, since its call has been
// answered.
func (c *call) late() (bool, error) {
	switch {
	case c.toolDone == nil:
		return false, broken("a hook says or sets something")
	case c.begun.IsZero():
		return false, broken("a tool that has not begun says or sets something")
	}
	return c.over, nil
}

// size is about how many bytes the call's frame has.
func (c *call) size() int {
	if c.toolDone != nil {
		return len(c.tool) + frameHead
	}
	n := frameHead
	for i := range c.payload.Point().Fields {
		n += len(c.payload.Raw(i)) + 4
	}
	return n
}

// write appends the call's frame. handle is the worker's own number.
func (c *call) write(b []byte, handle int) []byte {
	kind := byte(frameHook)
	if c.toolDone != nil {
		kind = frameTool
	}
	return appendFrame(b, kind, c.id, func(b []byte) []byte {
		b = binary.BigEndian.AppendUint16(b, uint16(handle))
		if c.toolDone != nil {
			return append(b, c.tool...)
		}
		fields := len(c.payload.Point().Fields)
		b = append(b, byte(fields))
		for i := range fields {
			raw := c.payload.Raw(i)
			if raw == nil {
				b = binary.BigEndian.AppendUint32(b, missingField)
				continue
			}
			b = binary.BigEndian.AppendUint32(b, uint32(len(raw)))
			b = append(b, raw...)
		}
		return b
	})
}
