package hooktest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/hook/hooktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Hooks written in Go pass the suite both ways: called by the engine itself, and
// behind the interface that hosts outside this process implement.

func TestFunc(t *testing.T) {
	hooktest.Run(t, func(t *testing.T, specs ...hooktest.Spec) []*hook.Hook {
		return makeHooks(t, specs, func(h *hook.Hook, f hook.Func) { h.Func = f })
	})
}

func TestFuncAsHost(t *testing.T) {
	hooktest.Run(t, func(t *testing.T, specs ...hooktest.Spec) []*hook.Hook {
		return makeHooks(t, specs, func(h *hook.Hook, f hook.Func) { h.Host = f })
	})
}

func makeHooks(t *testing.T, specs []hooktest.Spec, answer func(*hook.Hook, hook.Func)) []*hook.Hook {
	book := &notebook{entries: map[string][]string{}}
	end := make(chan struct{})
	t.Cleanup(func() { close(end) })
	var out []*hook.Hook
	for i, s := range specs {
		if s.Behaviour == hooktest.Note && s.Lane == hook.Observe && s.Point.Name == hook.TurnStarted {
			t.Skip("a goroutine gives way anywhere, so it cannot promise to be done first")
		}
		if s.Behaviour == hooktest.TooHuge {
			t.Skip("nothing is too big between Go and Go")
		}
		f := behave(s, book, end)
		if f == nil {
			t.Skipf("a Go hook cannot do %s", s.Behaviour)
		}
		h := &hook.Hook{Name: fmt.Sprintf("%d:%s", i, s.Behaviour), Point: s.Point, Lane: s.Lane, Final: s.Final, Limit: s.Limit, File: "gohost_test.go", Line: i + 1}
		answer(h, f)
		out = append(out, h)
	}
	return out
}

type notebook struct {
	mu      sync.Mutex
	entries map[string][]string
}

func (n *notebook) add(sender, entry string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.entries[sender] = append(n.entries[sender], entry)
}

func (n *notebook) take(sender string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := strings.Join(n.entries[sender], ",")
	delete(n.entries, sender)
	return all
}

// textField names the field that holds the payload's text, "" when none does.
func textField(p *hook.Point) string {
	for _, name := range []string{"text", "query"} {
		if p.Field(name) >= 0 {
			return name
		}
	}
	return ""
}

// behave writes the suite's behaviours in Go; nil when Go has no such thing. end
// lets go of hooks that block.
func behave(s hooktest.Spec, book *notebook, end <-chan struct{}) hook.Func {
	field := textField(s.Point)
	set := func(p hook.Payload, text string) hook.Verdict { return hook.Go(p.Change(field, text)) }
	switch s.Behaviour {
	case hooktest.PassOn:
		return func(context.Context, hook.Payload) (hook.Verdict, error) { return hook.Go(), nil }
	case hooktest.Shout:
		return func(_ context.Context, p hook.Payload) (hook.Verdict, error) { return set(p, p.Text(field)+"!"), nil }
	case hooktest.Sign, hooktest.Nap:
		return sign(s.Behaviour == hooktest.Nap)
	case hooktest.Count:
		return count()
	case hooktest.Huge:
		return func(_ context.Context, p hook.Payload) (hook.Verdict, error) {
			return set(p, strings.Repeat("x", 4<<20)), nil
		}
	case hooktest.Note:
		return func(_ context.Context, p hook.Payload) (hook.Verdict, error) {
			entry := p.Point().Name
			if field != "" {
				entry += "=" + p.Text(field)
			}
			book.add(p.Text("sender_id"), entry)
			return hook.Go(), nil
		}
	case hooktest.Report:
		return func(_ context.Context, p hook.Payload) (hook.Verdict, error) {
			return set(p, book.take(p.Text("sender_id"))), nil
		}
	}
	if f := change(s.Behaviour); f != nil {
		return f
	}
	return refuse(s.Behaviour, field, end)
}

func sign(nap bool) hook.Func {
	return func(ctx context.Context, p hook.Payload) (hook.Verdict, error) {
		if nap {
			select {
			case <-time.After(30 * time.Millisecond):
			case <-ctx.Done():
				return hook.Verdict{}, ctx.Err()
			}
		}
		return hook.Go(p.Change("text", p.Text("text")+"/"+p.Text("sender_id"))), nil
	}
}

func count() hook.Func {
	var n atomic.Int64
	return func(_ context.Context, p hook.Payload) (hook.Verdict, error) {
		return hook.Go(p.Change("text", fmt.Sprint(n.Add(1)))), nil
	}
}

// change writes the behaviours that change a model request.
func change(b hooktest.Behaviour) hook.Func {
	switch b {
	case hooktest.ChangeNested:
		return func(_ context.Context, p hook.Payload) (hook.Verdict, error) {
			messages, err := messages(p)
			if err != nil {
				return hook.Verdict{}, err
			}
			meta := messages[0]["meta"].(map[string]any)
			meta["tags"] = append(meta["tags"].([]any), "seen")
			return hook.Go(p.Change("messages", messages)), nil
		}
	case hooktest.TryReadOnly:
		return func(_ context.Context, p hook.Payload) (hook.Verdict, error) {
			return hook.Go(p.Change("sender_id", "someone else"), p.Change("tool_names", []string{"mine"}),
				p.Change("model_settings", map[string]any{"temperature": 0.5})), nil
		}
	case hooktest.Replace:
		return func(_ context.Context, p hook.Payload) (hook.Verdict, error) {
			messages, err := messages(p)
			if err != nil {
				return hook.Verdict{}, err
			}
			messages[0]["content"] = "lost"
			return hook.Go(p.Change("messages", []map[string]any{{"role": "user", "content": "replaced"}})), nil
		}
	}
	return nil
}

// messages decodes a copy of its own, keeping numbers as they are written.
func messages(p hook.Payload) ([]map[string]any, error) {
	var out []map[string]any
	d := json.NewDecoder(bytes.NewReader(p.Get("messages")))
	d.UseNumber()
	return out, d.Decode(&out)
}

// refuse writes the behaviours that signal or fail.
func refuse(b hooktest.Behaviour, field string, end <-chan struct{}) hook.Func {
	switch b {
	case hooktest.Reject:
		return func(context.Context, hook.Payload) (hook.Verdict, error) { return hook.RejectFor("not today"), nil }
	case hooktest.Retry:
		return func(context.Context, hook.Payload) (hook.Verdict, error) { return hook.RetryWith("try again"), nil }
	case hooktest.ChangeThenReject:
		return func(_ context.Context, p hook.Payload) (hook.Verdict, error) {
			return hook.Verdict{Kind: hook.Reject, Reason: "not today", Changes: []hook.Change{p.Change(field, "changed")}}, nil
		}
	case hooktest.Crash:
		return func(context.Context, hook.Payload) (hook.Verdict, error) { return hook.Go(), errors.New("boom") }
	case hooktest.ChangeThenCrash:
		return func(_ context.Context, p hook.Payload) (hook.Verdict, error) {
			return hook.Go(p.Change(field, "changed")), errors.New("boom")
		}
	case hooktest.Wait:
		return func(ctx context.Context, _ hook.Payload) (hook.Verdict, error) {
			<-ctx.Done()
			return hook.Verdict{}, ctx.Err()
		}
	case hooktest.Block:
		return func(context.Context, hook.Payload) (hook.Verdict, error) {
			<-end
			return hook.Go(), nil
		}
	case hooktest.WrongType:
		return func(_ context.Context, p hook.Payload) (hook.Verdict, error) {
			return hook.Go(p.Change("no such field", 1)), nil
		}
	case hooktest.WrongShape:
		return func(_ context.Context, p hook.Payload) (hook.Verdict, error) {
			if field == "" {
				return hook.Go(p.Change("messages", map[string]string{"role": "user"})), nil
			}
			return hook.Go(p.Change(field, 5)), nil
		}
	}
	return nil
}
