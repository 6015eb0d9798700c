package notice

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// box is a box in memory.
type box struct {
	mu  sync.Mutex
	all []Message
	err error
}

func (b *box) PutMessages(_ context.Context, messages ...Message) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, m := range messages {
		if !slices.ContainsFunc(b.all, func(o Message) bool { return o.Target == m.Target && o.Subject == m.Subject }) {
			m.ID, m.Created, m.Due = int64(len(b.all)), time.Now(), time.Now()
			b.all = append(b.all, m)
			n++
		}
	}
	return n, b.err
}

func (b *box) DueMessages(_ context.Context, target string, now time.Time, most int) ([]Message, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []Message
	for _, m := range b.all {
		if m.Target == target && !m.Due.IsZero() && !m.Due.After(now) && len(out) < most {
			out = append(out, m)
		}
	}
	return out, b.err
}

func (b *box) NextMessage(_ context.Context, target string) (next time.Time, _ error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.all {
		if m.Target == target && !m.Due.IsZero() && (next.IsZero() || m.Due.Before(next)) {
			next = m.Due
		}
	}
	return next, b.err
}

func (b *box) MessageSent(ctx context.Context, id int64, at time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all[id].Due, b.all[id].Sent = time.Time{}, at
	return errors.Join(b.err, ctx.Err())
}

func (b *box) MessageFailed(_ context.Context, id int64, again time.Time, why string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all[id].Due, b.all[id].Failure = again, why
	b.all[id].Tries++
	return b.err
}

func (b *box) set(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
}

// target takes messages when answer gives nil, and notes when it was asked.
type target struct {
	mu     sync.Mutex
	began  time.Time
	asked  []string
	answer func(ctx context.Context, m Message) error
}

func (r *target) Send(ctx context.Context, m Message) error {
	r.mu.Lock()
	r.asked = append(r.asked, fmt.Sprintf("%s@%s", m.Subject, time.Since(r.began).Round(time.Second)))
	r.mu.Unlock()
	if r.answer == nil {
		return nil
	}
	return r.answer(ctx, m)
}

func (r *target) said() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.asked, " ")
}

// courier runs a courier in a bubble of time.
func courier(t *testing.T, b *box, senders map[string]Sender, log *bytes.Buffer) (c *Courier, stop func()) {
	t.Helper()
	o := Options{}
	if log != nil {
		o.Logger = slog.New(slog.NewTextHandler(log, nil))
	}
	c = NewCourier(b, senders, o)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { c.Run(ctx) })
	return c, func() { cancel(); wg.Wait() }
}

func message(target, subject string) Message {
	return Message{Tenant: "main", Target: target, Event: "approval.waiting", Subject: subject, Body: "{}"}
}

func TestMessagesAreSentOnceAndAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ops, b := &target{began: time.Now()}, &box{}
		var early bytes.Buffer
		if _, err := b.PutMessages(t.Context(), message("ops", "before")); err != nil { // by the process before
			t.Fatal(err)
		}
		c, stop := courier(t, b, map[string]Sender{"ops": ops, "other": &target{}}, &early)
		synctest.Wait()
		time.Sleep(time.Minute)
		for range 2 {
			if err := c.Put(t.Context(), message("ops", "a"), message("ops", "b")); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		time.Sleep(48 * time.Hour)
		stop()
		if got := ops.said(); got != "before@0s a@1m0s b@1m0s" {
			t.Error(got)
		}
		if err := c.Put(t.Context(), message("nobody", "a")); err == nil || len(b.all) != 3 {
			t.Error("a message to nobody is kept:", err)
		}
	})
}

func TestTriesComeLaterAndLaterUntilGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ops := &target{began: time.Now(), answer: func(context.Context, Message) error { return errors.New("status 500") }}
		well := &target{began: time.Now()}
		b, log := &box{}, &bytes.Buffer{}
		c, stop := courier(t, b, map[string]Sender{"ops": ops, "well": well}, log)
		if err := c.Put(t.Context(), message("ops", "a"), message("well", "a")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(72 * time.Hour)
		stop()
		if got := ops.said(); !strings.HasPrefix(got, "a@0s a@5s a@25s a@1m45s a@7m5s a@28m25s a@1h28m25s a@2h28m25s ") || !strings.HasSuffix(got, " a@23h28m25s") {
			t.Error(got)
		}
		if got := well.said(); got != "a@0s" {
			t.Error(got)
		}
		if m := b.all[0]; !m.Due.IsZero() || !m.Sent.IsZero() || m.Failure != "status 500" {
			t.Errorf("%+v", m)
		}
		if n := strings.Count(log.String(), "given up"); n != 1 || !strings.Contains(log.String(), "subject=a") {
			t.Errorf("%d times given up: %s", n, log)
		}
	})
}

func TestATargetThatIsGoneIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ops := &target{began: time.Now(), answer: func(context.Context, Message) error { return fmt.Errorf("status 410: %w", ErrGone) }}
		b := &box{}
		c, stop := courier(t, b, map[string]Sender{"ops": ops}, nil)
		if err := c.Put(t.Context(), message("ops", "a")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(72 * time.Hour)
		stop()
		if got := ops.said(); got != "a@0s" || !b.all[0].Due.IsZero() {
			t.Errorf("%s %+v", got, b.all[0])
		}
	})
}

// A target that never answers takes its limit each time, and holds up no other.
func TestASlowTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &target{began: time.Now(), answer: func(ctx context.Context, _ Message) error { <-ctx.Done(); return ctx.Err() }}
		fast, b := &target{began: time.Now()}, &box{}
		c, stop := courier(t, b, map[string]Sender{"slow": slow, "fast": fast}, nil)
		if err := c.Put(t.Context(), message("slow", "a"), message("slow", "b")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if err := c.Put(t.Context(), message("fast", "c")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		if got := fast.said(); got != "c@5s" {
			t.Error(got)
		}
		if got := slow.said(); !strings.HasPrefix(got, "a@0s b@10s a@20s") {
			t.Error(got)
		}
		tries := b.all[0].Tries + b.all[1].Tries
		stop() // in the middle of a try, of which nobody knows what became
		if got := b.all[0].Tries + b.all[1].Tries; got != tries || b.all[0].Due.IsZero() {
			t.Errorf("%d tries, then %d: %+v", tries, got, b.all)
		}
	})
}

func TestWhatWasSentIsKeptAlsoAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		letGo := make(chan struct{})
		ops := &target{began: time.Now(), answer: func(context.Context, Message) error { <-letGo; return nil }}
		b := &box{}
		c, stop := courier(t, b, map[string]Sender{"ops": ops}, nil)
		if err := c.Put(t.Context(), message("ops", "a"), message("ops", "b")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		go stop()
		synctest.Wait()
		close(letGo)
		synctest.Wait()
		if b.all[0].Sent.IsZero() || !b.all[1].Sent.IsZero() || ops.said() != "a@0s" {
			t.Errorf("%+v %s", b.all, ops.said())
		}
	})
}

func TestABoxThatFailsIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ops, b, log := &target{began: time.Now()}, &box{}, &bytes.Buffer{}
		c, stop := courier(t, b, map[string]Sender{"ops": ops}, log)
		synctest.Wait()
		b.set(errors.New("the disk is full"))
		if err := c.Put(t.Context(), message("ops", "a")); err == nil {
			t.Error("kept")
		}
		time.Sleep(2 * time.Hour)
		b.set(nil)
		time.Sleep(time.Minute)
		stop()
		if got := ops.said(); !strings.HasPrefix(got, "a@2h0m") || !strings.Contains(log.String(), "disk is full") {
			t.Errorf("%s %s", got, log)
		}
	})
}

func TestSenderFunc(t *testing.T) {
	called := false
	if err := (SenderFunc(func(context.Context, Message) error { called = true; return nil })).Send(t.Context(), Message{}); err != nil || !called {
		t.Error(err, called)
	}
	if c := NewCourier(&box{}, nil, Options{}); c.Put(t.Context()) != nil {
		t.Error("nothing cannot be put")
	}
}
