package hooktest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belay-run/belay/hook"
)

func decode(t *testing.T, raw string) any {
	t.Helper()
	var v any
	d := json.NewDecoder(strings.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Errorf("not JSON: %v in %.300s", err, raw)
	}
	return v
}

func (m Maker) goesOn(t *testing.T) {
	t.Run("a hook that passes on changes no byte", func(t *testing.T) {
		r := m.rig(t, modify(PassOn, hook.ModelRequest))
		p := request()
		res := r.ask(p)
		if res.Kind != hook.Continue || res.Changed {
			t.Fatalf("want an unchanged payload, got %s", describe(res))
		}
		r.unchanged(p, res.Payload)
		run := r.one(res)
		if run.Said != "continue" || run.Failure != nil || run.Dropped != "" || len(run.Changed)+len(run.PutBack) > 0 || run.Took <= 0 {
			t.Errorf("trace line is %+v", run)
		}
	})
	t.Run("one field changes", func(t *testing.T) {
		r := m.rig(t, modify(Shout, hook.IncomingMessage))
		p := incoming(`Grüße 🎉 "quoted" \ <b>`)
		res := r.ask(p)
		if res.Kind != hook.Continue || !res.Changed || res.Payload.Text("text") != `Grüße 🎉 "quoted" \ <b>!` {
			t.Fatalf("got %s", describe(res))
		}
		r.unchanged(p, res.Payload, "text")
		if run := r.one(res); len(run.Changed) != 1 || run.Changed[0].Field != "text" {
			t.Errorf("trace line is %+v", run)
		}
	})
	t.Run("an answer of 4 MiB", func(t *testing.T) {
		r := m.rig(t, modify(Huge, hook.IncomingMessage).within(20*time.Second))
		res := r.ask(incoming("hi"))
		if got := res.Payload.Text("text"); res.Kind != hook.Continue || len(got) != 4<<20 || strings.Trim(got, "x") != "" {
			t.Fatalf("got %d bytes, %s", len(got), describe(res))
		}
	})
	t.Run("an answer of 24 MiB comes whole or not at all", func(t *testing.T) {
		r := m.rig(t, modify(TooHuge, hook.IncomingMessage).within(30*time.Second))
		res := r.ask(incoming("hi"))
		if res.Kind == hook.Continue {
			if got := len(res.Payload.Text("text")); got != 24<<20 {
				t.Fatalf("got %d bytes", got)
			}
		} else {
			r.failed(res, hook.WrongReturn)
		}
		r.alive()
	})
}

func (m Maker) payload(t *testing.T) {
	t.Run("a nested change in place counts", func(t *testing.T) {
		r := m.rig(t, modify(ChangeNested, hook.ModelRequest))
		p := request()
		res := r.ask(p)
		if res.Kind != hook.Continue || !res.Changed {
			t.Fatalf("got %s", describe(res))
		}
		r.unchanged(p, res.Payload, "messages")
		r.holds(res.Payload, "messages", strings.Replace(string(p.Get("messages")), `["a"]`, `["a","seen"]`, 1))
		r.holds(p, "messages", string(request().Get("messages"))) // the caller's own payload
	})
	t.Run("another payload loses what was changed in place", func(t *testing.T) {
		r := m.rig(t, modify(Replace, hook.ModelRequest))
		p := request()
		res := r.ask(p)
		if res.Kind != hook.Continue {
			t.Fatalf("got %s", describe(res))
		}
		r.unchanged(p, res.Payload, "messages")
		r.holds(res.Payload, "messages", `[{"role":"user","content":"replaced"}]`)
	})
	t.Run("read-only fields are put back and the rest counts", func(t *testing.T) {
		r := m.rig(t, modify(TryReadOnly, hook.ModelRequest))
		p := request()
		res := r.ask(p)
		if res.Kind != hook.Continue {
			t.Fatalf("got %s", describe(res))
		}
		r.unchanged(p, res.Payload, "model_settings")
		r.holds(res.Payload, "model_settings", `{"temperature":0.5}`)
		run := r.one(res)
		if run.Failure != nil || !contains(run.PutBack, "sender_id") || !contains(run.PutBack, "tool_names") {
			t.Errorf("trace line is %+v", run)
		}
	})
	t.Run("what is changed in place is lost when the hook crashes", func(t *testing.T) {
		r := m.rig(t, modify(ChangeThenCrash, hook.ModelResponse))
		res := r.ask(response("as it was"))
		if res.Kind != hook.Continue || res.Changed || res.Payload.Text("text") != "as it was" {
			t.Fatalf("got %s", describe(res))
		}
	})
}

func (m Maker) signals(t *testing.T) {
	t.Run("a rejection ends with its reason", func(t *testing.T) {
		r := m.rig(t, modify(Reject, hook.IncomingMessage))
		res := r.ask(incoming("hi"))
		if res.Kind != hook.Reject || res.Reason != "not today" || res.Failure != nil || res.Hook == nil {
			t.Fatalf("got %s", describe(res))
		}
		if run := r.one(res); run.Said != "reject" || run.Reason != "not today" || run.Dropped != "" {
			t.Errorf("trace line is %+v", run)
		}
	})
	t.Run("a retry ends with its feedback", func(t *testing.T) {
		r := m.rig(t, modify(Retry, hook.ModelResponse))
		res := r.ask(response("hi"))
		if res.Kind != hook.Retry || res.Feedback != "try again" {
			t.Fatalf("got %s", describe(res))
		}
	})
	for _, c := range []struct {
		does  Behaviour
		p     hook.Payload
		about string
	}{
		{Reject, request(), "a rejection where none is allowed"},
		{Retry, incoming("hi"), "a retry where none is allowed"},
		{Retry, payload(hook.KnowledgeResults), "a retry at a point without signals"},
		{ChangeThenReject, response("as it was"), "a rejection after a change in place"},
	} {
		t.Run(c.about+" is dropped", func(t *testing.T) {
			r := m.rig(t, modify(c.does, c.p.Point().Name))
			res := r.ask(c.p)
			if res.Kind != hook.Continue || res.Changed || res.Failure != nil {
				t.Fatalf("got %s", describe(res))
			}
			r.unchanged(c.p, res.Payload)
			if run := r.one(res); run.Dropped == "" || run.Failure != nil || run.File == "" || run.Line == 0 {
				t.Errorf("the trace does not say what was dropped, with file and line: %+v", run)
			}
		})
	}
	t.Run("a signal that is returned is a wrong return", func(t *testing.T) {
		r := m.rig(t, modify(ReturnSignal, hook.IncomingMessage))
		r.failed(r.ask(incoming("hi")), hook.WrongReturn)
	})
}

// failed says that a result at a closed point follows from a failure.
func (r *rig) failed(res hook.Result, kind hook.FailureKind) {
	r.Helper()
	if res.Kind != hook.Reject || res.Failure == nil || res.Failure.Kind != kind || res.Changed {
		r.Fatalf("want a closed failure of kind %s, got %s", kind, describe(res))
	}
	if run := r.one(res); run.Said != "failed" || run.Policy != hook.Closed || run.Failure == nil {
		r.Errorf("trace line is %+v", run)
	}
}

// wentOn says that a failure at an open point left the payload as it was.
func (r *rig) wentOn(p hook.Payload, res hook.Result, kind hook.FailureKind) {
	r.Helper()
	if res.Kind != hook.Continue || res.Changed || res.Failure != nil {
		r.Fatalf("want the payload as it was, got %s", describe(res))
	}
	r.unchanged(p, res.Payload)
	if run := r.one(res); run.Said != "failed" || run.Policy != hook.Open || run.Failure == nil || run.Failure.Kind != kind {
		r.Errorf("trace line is %+v", run)
	}
}

func (m Maker) failures(t *testing.T) {
	for _, c := range []struct {
		does Behaviour
		kind hook.FailureKind
	}{
		{Crash, hook.Crash}, {WrongType, hook.WrongReturn}, {WrongShape, hook.WrongReturn},
	} {
		t.Run(string(c.does)+" at a closed point", func(t *testing.T) {
			r := m.rig(t, modify(c.does, hook.IncomingMessage))
			r.failed(r.ask(incoming("hi")), c.kind)
			r.alive()
		})
		t.Run(string(c.does)+" at an open point", func(t *testing.T) {
			r := m.rig(t, modify(c.does, hook.ModelResponse))
			p := response("hi")
			r.wentOn(p, r.ask(p), c.kind)
			r.alive()
		})
	}
	t.Run("an object for a list of messages", func(t *testing.T) {
		r := m.rig(t, modify(WrongShape, hook.ModelRequest))
		r.failed(r.ask(request()), hook.WrongReturn)
	})
}

func (m Maker) time(t *testing.T) {
	const limit = 100 * time.Millisecond
	for _, does := range []Behaviour{Wait, Block} {
		t.Run(string(does)+" cannot hold a turn past its limit", func(t *testing.T) {
			r := m.rig(t, modify(does, hook.IncomingMessage).within(limit), modify(does, hook.ModelResponse).within(limit))
			began := time.Now()
			r.failed(r.ask(incoming("hi")), hook.Timeout)
			r.between(began, limit, limit+Room)
			r.alive()
			p := response("hi")
			began = time.Now()
			r.wentOn(p, r.ask(p), hook.Timeout)
			r.between(began, limit, limit+2*Room) // a host that was replaced may have to start first
		})
	}
	t.Run("a caller that gives up is answered at once", func(t *testing.T) {
		r := m.rig(t, modify(Wait, hook.ModelResponse).within(30*time.Second))
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		began := time.Now()
		res := r.run(ctx, response("hi"))
		if res.Kind != hook.Reject || res.Failure == nil || res.Failure.Kind != hook.Cancelled {
			t.Fatalf("got %s", describe(res))
		}
		r.between(began, 0, 50*time.Millisecond+Room)
		r.alive()
	})
	t.Run("a hook that waits, but not too long, is in time", func(t *testing.T) {
		r := m.rig(t, modify(Nap, hook.IncomingMessage).within(10*time.Second))
		res := r.ask(incoming("hi"))
		if res.Kind != hook.Continue || res.Payload.Text("text") != "hi/ann" {
			t.Fatalf("got %s", describe(res))
		}
		if took := r.one(res).Took; took < 25*time.Millisecond {
			t.Errorf("it took %v by the trace", took)
		}
	})
}

func (r *rig) between(began time.Time, least, most time.Duration) {
	r.Helper()
	if took := time.Since(began); took < least || took > most {
		r.Errorf("it took %v, want %v to %v", took, least, most)
	}
}

func (m Maker) observers(t *testing.T) {
	for _, c := range []struct {
		does Behaviour
		said string
		drop bool
	}{
		{PassOn, "seen", false}, {Shout, "seen", false}, {Reject, "seen", true}, {Retry, "seen", true},
		{Crash, "failed", false}, {Wait, "failed", false}, {Block, "failed", false},
	} {
		t.Run(string(c.does)+" alters nothing", func(t *testing.T) {
			r := m.rig(t, observe(c.does, hook.ModelResponse).within(100*time.Millisecond))
			p := response("hi")
			began := time.Now()
			res := r.ask(p)
			r.between(began, 0, Room)
			if res.Kind != hook.Continue || res.Changed || len(res.Runs) > 0 {
				t.Fatalf("got %s", describe(res))
			}
			r.unchanged(p, res.Payload)
			lines := r.watched()
			if len(lines) != 1 || lines[0].Said != c.said || (c.drop && lines[0].Dropped == "") || lines[0].Turn != "turn-1" || lines[0].Key != "ann" {
				t.Fatalf("trace is %+v", lines)
			}
			r.alive()
		})
	}
	t.Run("they see the payload as it came, a final one what goes on", func(t *testing.T) {
		r := m.rig(t, observe(Note, hook.IncomingMessage), observe(Note, hook.IncomingMessage).final(),
			modify(Shout, hook.IncomingMessage), modify(Report, hook.OutgoingText))
		r.ask(incoming("hi"))
		r.engine.Wait()
		seen := strings.Split(r.report(), ",")
		slices.Sort(seen)
		if got := strings.Join(seen, ","); got != "incoming_message=hi,incoming_message=hi!" {
			t.Errorf("they saw %s", got)
		}
	})
	t.Run("they see what is rejected, a final one does not", func(t *testing.T) {
		r := m.rig(t, observe(Note, hook.IncomingMessage), observe(Note, hook.IncomingMessage).final(),
			modify(Reject, hook.IncomingMessage), modify(Report, hook.OutgoingText))
		r.ask(incoming("hi"))
		r.engine.Wait()
		if got := r.report(); got != "incoming_message=hi" {
			t.Errorf("they saw %s", got)
		}
	})
}

// report empties ann's notebook.
func (r *rig) report() string {
	r.Helper()
	res := r.ask(payload(hook.OutgoingText).Set("text", "?"))
	if res.Kind != hook.Continue {
		r.Fatalf("got %s", describe(res))
	}
	return res.Payload.Text("text")
}

func (m Maker) order(t *testing.T) {
	t.Run("a hook keeps state between calls", func(t *testing.T) {
		r := m.rig(t, modify(Count, hook.IncomingMessage))
		for i := 1; i <= 3; i++ {
			if res := r.ask(incoming("hi")); res.Payload.Text("text") != fmt.Sprint(i) {
				t.Fatalf("call %d: %s", i, describe(res))
			}
		}
	})
	t.Run("hooks of one key begin in the order in which they are asked", func(t *testing.T) {
		r := m.rig(t, observe(Note, hook.TurnStarted), modify(Note, hook.IncomingMessage), observe(Note, hook.ToolCall), modify(Report, hook.OutgoingText))
		for i := range 20 {
			r.ask(payload(hook.TurnStarted))
			r.ask(incoming("hi"))
			r.ask(payload(hook.ToolCall))
			if got := r.report(); got != "turn_started,incoming_message=hi,tool_call" {
				t.Fatalf("round %d: the order was %s", i, got)
			}
		}
	})
}

func (m Maker) many(t *testing.T) {
	for _, does := range []Behaviour{Sign, Nap} {
		t.Run(string(does)+" for 50 keys at once, without cross-talk", func(t *testing.T) {
			r := m.rig(t, modify(does, hook.IncomingMessage).within(30*time.Second), observe(PassOn, hook.IncomingMessage).within(30*time.Second))
			var wg sync.WaitGroup
			began := time.Now()
			for key := range 50 {
				wg.Go(func() {
					sender := fmt.Sprintf("user-%d", key)
					for i := range 5 {
						text := fmt.Sprintf("message %d of %s", i, sender)
						res := r.ask(incoming(text).Set("sender_id", sender))
						if got := res.Payload.Text("text"); got != text+"/"+sender {
							t.Errorf("%s was answered %s", text, describe(res))
						}
						if line := res.Runs[0]; line.Key != sender {
							t.Errorf("the trace line of %s is about %s", sender, line.Key)
						}
					}
				})
			}
			wg.Wait()
			if took := time.Since(began); does == Nap && took > 50*5*30*time.Millisecond/2 {
				t.Errorf("hooks that give way must overlap; it took %v", took)
			}
			if seen := len(r.watched()); seen != 250 {
				t.Errorf("observers were recorded %d times, want 250", seen)
			}
		})
	}
}
