// Package notice tells people elsewhere that something wants them, and forgets
// none of it over a restart.
//
// A [Message] is put into a [Box], which a store keeps, and a [Courier] takes it to
// its target until the target has it:
//
//	courier := notice.NewCourier(store, map[string]notice.Sender{"ops": webhook}, notice.Options{Logger: logger})
//	go courier.Run(ctx)
//	err := courier.Put(ctx, notice.Message{Tenant: "main", Target: "ops", Event: "approval.waiting", Subject: id, Body: `{"approval":"…"}`})
//
// One target is told of an event of a subject once, so whoever is not sure whether
// a message was put puts it again: after a restart, all that waits. A target may
// still get a message twice, when the process dies between its answer and the
// note of it.
//
// Messages hold names and ids, never what was said.
package notice

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Message is something that people are to be told.
type Message struct {
	ID      int64  // set by the box
	Tenant  string // whose it is
	Target  string // the name of who is to be told
	Event   string // such as approval.waiting
	Subject string // what it is about, such as an approval's id
	Body    string // JSON
	Created time.Time
	Due     time.Time // when to try next; zero: sent or given up
	Tries   int
	Failure string    // of the last try
	Sent    time.Time // zero for not
}

// Box keeps messages.
type Box interface {
	// PutMessages keeps messages that are due now, and says how many are new.
	PutMessages(ctx context.Context, messages ...Message) (added int, err error)
	// DueMessages gives messages that a target is to get by now, the longest due
	// first.
	DueMessages(ctx context.Context, target string, now time.Time, most int) ([]Message, error)
	// NextMessage is when the next message to a target is due; zero for none.
	NextMessage(ctx context.Context, target string) (time.Time, error)
	// MessageSent keeps that a message was delivered.
	MessageSent(ctx context.Context, id int64, at time.Time) error
	// MessageFailed keeps why a message was not delivered and when to try again;
	// never when that is zero.
	MessageFailed(ctx context.Context, id int64, again time.Time, why string) error
}

// Sender takes a message to its target. Its error must name no secret: it is kept
// and logged.
type Sender interface {
	Send(ctx context.Context, m Message) error
}

// SenderFunc is a function as a Sender.
type SenderFunc func(ctx context.Context, m Message) error

// Send calls the function.
func (f SenderFunc) Send(ctx context.Context, m Message) error { return f(ctx, m) }

// ErrGone says that the target wants no messages any more: nobody tries again.
var ErrGone = errors.New("the target wants no messages any more")

// ErrMoot says that the target need not be told any more: what it was about is over.
var ErrMoot = errors.New("it is over, so nobody needs to be told")

// Options are for a courier. The zero value of a field is what its comment says.
type Options struct {
	Clock  func() time.Time // nil: time.Now
	Logger *slog.Logger     // nil: nothing is logged
	// Limit is how long one try may take; 0 means 10 s.
	Limit time.Duration
	// GiveUp is how old a message becomes before nobody tries again; 0 means 24 h.
	GiveUp time.Duration
}

// The waits between tries: each four times the one before.
const (
	firstWait = 5 * time.Second
	lastWait  = time.Hour
)

// batch is how many messages are taken out at a time.
const batch = 64

// Courier takes messages from a box to their targets.
type Courier struct {
	box   Box
	lines map[string]*line
	o     Options
}

// line is the way to one target. Each has its own goroutine, so that a target that
// is slow or gone holds up no other.
type line struct {
	*Courier
	target string
	sender Sender
	wake   chan struct{}
}

// NewCourier returns a courier; it works while [Courier.Run] runs.
func NewCourier(box Box, senders map[string]Sender, o Options) *Courier {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Limit == 0 {
		o.Limit = 10 * time.Second
	}
	if o.GiveUp == 0 {
		o.GiveUp = 24 * time.Hour
	}
	c := &Courier{box: box, lines: map[string]*line{}, o: o}
	for target, sender := range senders {
		c.lines[target] = &line{Courier: c, target: target, sender: sender, wake: make(chan struct{}, 1)}
	}
	return c
}

// Put keeps messages and lets them be sent. They are on disk when it returns nil.
func (c *Courier) Put(ctx context.Context, messages ...Message) error {
	for _, m := range messages {
		if c.lines[m.Target] == nil {
			return fmt.Errorf("tell people of %s: there is no target %q", m.Event, m.Target)
		}
	}
	added, err := c.box.PutMessages(ctx, messages...)
	if err != nil {
		return fmt.Errorf("keep what people are to be told: %w", err)
	}
	if added == 0 {
		return nil
	}
	for _, m := range messages {
		select {
		case c.lines[m.Target].wake <- struct{}{}:
		default: // it has been roused already
		}
	}
	return nil
}

// Run sends messages until ctx ends. What is under way then is sent again by the
// next Run.
func (c *Courier) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, l := range c.lines {
		wg.Go(func() { l.run(ctx) })
	}
	wg.Wait()
}

func (l *line) run(ctx context.Context) {
	for ctx.Err() == nil {
		wait, err := l.round(ctx)
		if err != nil && ctx.Err() == nil {
			l.o.Logger.Error("cannot tell people what waits; will try again", "target", l.target, "error", err)
			wait = firstWait
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-l.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// round sends what is due, and says how long there is nothing to do.
func (l *line) round(ctx context.Context) (time.Duration, error) {
	due, err := l.box.DueMessages(ctx, l.target, l.o.Clock(), batch)
	if err != nil {
		return 0, err
	}
	for _, m := range due {
		if err := l.deliver(ctx, m); err != nil || ctx.Err() != nil {
			return 0, err
		}
	}
	next, err := l.box.NextMessage(ctx, l.target)
	if err != nil {
		return 0, err
	}
	if next.IsZero() {
		return lastWait, nil // nothing waits: the next Put rouses
	}
	return max(0, next.Sub(l.o.Clock())), nil
}

// deliver sends a message and keeps what came of it. The error is the box's.
func (l *line) deliver(ctx context.Context, m Message) error {
	limited, cancel := context.WithTimeout(ctx, l.o.Limit)
	err := l.sender.Send(limited, m)
	cancel()
	now := l.o.Clock()
	if err == nil {
		return l.box.MessageSent(context.WithoutCancel(ctx), m.ID, now)
	}
	if errors.Is(err, ErrMoot) {
		return l.box.MessageFailed(context.WithoutCancel(ctx), m.ID, time.Time{}, ErrMoot.Error())
	}
	if ctx.Err() != nil {
		return nil // nobody knows whether it was sent: the next Run sends it again
	}
	again := now.Add(min(lastWait, firstWait<<min(2*m.Tries, 20)))
	attrs := []any{"target", l.target, "event", m.Event, "subject", m.Subject, "tries", m.Tries + 1, "error", err}
	if errors.Is(err, ErrGone) || again.Sub(m.Created) > l.o.GiveUp {
		again = time.Time{}
		l.o.Logger.Error("people are not told that something wants them: given up", attrs...)
	} else {
		l.o.Logger.Warn("could not tell people that something wants them; will try again", attrs...)
	}
	return l.box.MessageFailed(ctx, m.ID, again, err.Error())
}
