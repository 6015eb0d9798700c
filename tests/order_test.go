package tests

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belay-run/belay/internal/app"
	"github.com/belay-run/belay/internal/app/apptest"
	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/conversation"
	"github.com/belay-run/belay/internal/loop"
	"github.com/belay-run/belay/internal/server"
	"github.com/belay-run/belay/internal/step"
	"github.com/belay-run/belay/internal/turn"
)

// shelf is what the agents of this file search.
var shelf = apptest.Files{"references/opening.md": "# Opening hours\n\nThe shop is open from nine to five.\n"}

// diary keeps, in order, what a turn asks of the world and what it sends.
type diary struct {
	step.Steps
	mu      *sync.Mutex
	entries *[]string
	before  func(key string) // called before a hook is asked
}

func (d diary) add(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	*d.entries = append(*d.entries, fmt.Sprintf(format, args...))
}

func (d diary) Do(c step.Call) (step.Answer, error) {
	switch in := c.Input.(type) {
	case loop.HookCall:
		d.before(in.Hook.Point.Name)
		d.add("modify %s", in.Hook.Point.Name)
	case loop.ObserveCall:
		d.add("observe %s", in.Hooks[0].Point.Name)
	case loop.ModelCall:
		d.add("model")
	}
	return d.Steps.Do(c)
}

func (d diary) Delta(string)          {}
func (d diary) Text(u turn.Utterance) { d.add("text %s", u.Text) }

func TestOrderInATurn(t *testing.T) {
	t.Parallel()
	var a playedAgent
	d := diary{mu: &sync.Mutex{}, entries: new([]string)}
	var stored []int // events on disk whenever the incoming hook is asked
	d.before = func(point string) {
		if point == "incoming_message" {
			stored = append(stored, len(a.Events("t76")))
		}
	}
	a = startPlayed(t, []func(*app.Config){func(c *app.Config) {
		c.Wrap = func(s step.Steps) step.Steps { d.Steps = s; return d }
	}}, shelf, playedHooks(longLimit, "on_turn_started", "on_incoming_message", "modify_incoming_message", "modify_model_request",
		"modify_tool_call", "modify_knowledge_query", "modify_outgoing_text", "on_turn_finished"))
	talk := func(t *testing.T, sender string, does bodies, answers ...apptest.Answer) []string {
		t.Helper()
		*d.entries = nil
		a.Next(sender, answers...)
		if _, err := a.App.Talk(t.Context(), played(sender, "hello", does), d); err != nil {
			t.Fatal(err)
		}
		return *d.entries
	}
	begin := []string{"observe turn_started", "observe incoming_message", "modify incoming_message"}
	rejected, emptied := "I'm sorry, but I can't give you that answer.", "p.text = '  '"

	for _, c := range []struct {
		name    string
		does    bodies
		answers []apptest.Answer
		want    []string
	}{
		{"a turn that answers", nil, []apptest.Answer{apptest.Says("hi")},
			[]string{"modify model_request", "model", "modify outgoing_text", "text hi"}},
		{"the incoming text is rejected", bodies{"modify_incoming_message": "veto('no')"}, nil,
			[]string{"modify outgoing_text", "text I'm sorry, but I can't help with that message."}},
		{"the outgoing text is rejected", bodies{"modify_outgoing_text": "veto('no')"}, []apptest.Answer{apptest.Says("hi")},
			[]string{"modify model_request", "model", "modify outgoing_text", "text " + rejected}},
		{"the last text is dropped", bodies{"modify_outgoing_text": emptied}, []apptest.Answer{apptest.Says("hi")},
			[]string{"modify model_request", "model", "modify outgoing_text"}},
		{"the turn fails", nil, []apptest.Answer{apptest.Fails(500)},
			[]string{"modify model_request", "model", "modify outgoing_text", "text I'm sorry, but something went wrong. Please try again."}},
	} {
		t.Run("T76 points in order: "+c.name, func(t *testing.T) {
			got := talk(t, "t76 "+c.name, c.does, c.answers...)
			expect(t, "asked and sent", got, slices.Concat(begin, c.want, []string{"observe turn_finished"}))
		})
	}

	t.Run("T76 nothing of a message is stored before the incoming hooks", func(t *testing.T) {
		stored = nil
		talk(t, "t76", nil)
		kept := len(a.Events("t76"))
		talk(t, "t76", nil)
		if len(stored) != 2 || stored[0] != 0 || stored[1] != kept {
			t.Errorf("events stored at the incoming hook: %v; the first turn left %d", stored, kept)
		}
	})

	search := apptest.Call("search_knowledge", map[string]any{"query": "hours"})
	for _, c := range []struct {
		name, status string
		does         bodies
		answers      []apptest.Answer
	}{
		{"incoming rejected", "completed", bodies{"modify_incoming_message": "veto('no')"}, nil},
		{"outgoing rejected", "completed", bodies{"modify_outgoing_text": "veto('no')"}, []apptest.Answer{apptest.Says("hi")}},
		{"incoming hook failed", "error", bodies{"modify_incoming_message": "1 / 0"}, nil},
		{"request hook failed", "error", bodies{"modify_model_request": "1 / 0"}, nil},
		{"tool call hook failed", "error", bodies{"modify_tool_call": "1 / 0"}, []apptest.Answer{search}},
		{"query hook failed, which ends no turn", "completed", bodies{"modify_knowledge_query": "1 / 0"}, []apptest.Answer{search, apptest.Says("hi")}},
		{"outgoing hook failed, which is open", "completed", bodies{"modify_outgoing_text": "1 / 0"}, []apptest.Answer{apptest.Says("hi")}},
	} {
		t.Run("T76 status: "+c.name, func(t *testing.T) {
			talk(t, c.name, c.does, c.answers...)
			notes := a.notesOf(c.name, "on_turn_finished")
			if len(notes) != 1 || notes[0].Data["status"] != c.status {
				t.Errorf("turn finished: %+v, want %s", notes, c.status)
			}
		})
	}
}

// wait sends a message that takes its place behind the turn under way. The queue
// has one place; the message tries again while a look at it takes that place.
func (a playedAgent) wait(ctx context.Context, in server.Inbound) <-chan sent {
	done := make(chan sent, 1)
	go func() {
		for {
			r, err := a.Send(ctx, in)
			if !errors.Is(err, turn.ErrBusy) {
				done <- sent{r, err}
				return
			}
		}
	}()
	return done
}

// untilWaiting returns when a message waits behind the turn under way: then the
// queue, which has one place, is full.
func (a playedAgent) untilWaiting(t *testing.T, sender string) {
	t.Helper()
	over, cancel := context.WithCancel(context.Background())
	cancel()
	for end := time.Now().Add(patience); ; {
		if _, err := a.Send(over, played(sender, "look", nil)); errors.Is(err, turn.ErrBusy) {
			return
		}
		if time.Now().After(end) {
			t.Fatal("no message waits")
		}
	}
}

var oneWaits = apptest.Files{"agent.yml": "agent:\n  id: test\n  persona: You are a test.\nbelay:\n  limits:\n    queue: 1\n"}

func TestTurnsOfAConversation(t *testing.T) {
	t.Parallel()
	a := startPlayed(t, nil, oneWaits, playedHooks(longLimit, everyHook()...))
	pairs := func(sender string) []string { return a.asked(sender, "on_turn_started", "on_turn_finished") }
	onePair := []string{"on_turn_started", "on_turn_finished"}

	t.Run("T77 a turn waits for the one before", func(t *testing.T) {
		asked, gate := make(chan struct{}, 1), make(chan struct{})
		a.Next("queue", reached(asked, gate, apptest.Says("one")), apptest.Says("two"))
		first := a.send(t.Context(), played("queue", "first", nil))
		awaited(t, asked)
		second := a.wait(t.Context(), played("queue", "second", nil))
		a.untilWaiting(t, "queue")
		if r := a.turn(t, "another", "hello", nil); r.Text() != "ok" {
			t.Errorf("another conversation heard %q", r.Text())
		}
		if got := pairs("queue"); len(got) != 1 {
			t.Errorf("while the first turn runs: %v", got)
		}
		close(gate)
		if r := awaited(t, first); r.err != nil || r.Text() != "one" {
			t.Errorf("first: %+v, %v", r.Reply, r.err)
		}
		if r := awaited(t, second); r.err != nil || r.Text() != "two" {
			t.Errorf("second: %+v, %v", r.Reply, r.err)
		}
		expect(t, "turns", pairs("queue"), slices.Concat(onePair, onePair))
		one := []string{"on_turn_started", "on_incoming_message", "modify_incoming_message", "on_model_request", "modify_model_request",
			"on_model_response", "modify_model_response", "on_outgoing_text", "modify_outgoing_text", "on_turn_finished"}
		expect(t, "hooks", a.asked("queue"), slices.Concat(one, one))
	})

	t.Run("T77 messages that come together", func(t *testing.T) {
		var all []<-chan sent
		for i := range 6 {
			all = append(all, a.wait(t.Context(), played("together", fmt.Sprint("message ", i), nil)))
		}
		for _, done := range all {
			if r := awaited(t, done); r.err != nil || r.Text() != "ok" {
				t.Errorf("%+v, %v", r.Reply, r.err)
			}
		}
		expect(t, "turns", pairs("together"), slices.Repeat(onePair, 6))
		if len(a.Of("together", conversation.User)) != 6 {
			t.Errorf("events %v", a.Kinds("together"))
		}
	})

	t.Run("T77 a message withdrawn while it waits asks no hook", func(t *testing.T) {
		asked, gate := make(chan struct{}, 1), make(chan struct{})
		a.Next("withdrawn", reached(asked, gate, apptest.Says("one")))
		first := a.send(t.Context(), played("withdrawn", "first", nil))
		awaited(t, asked)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		second := a.wait(ctx, played("withdrawn", "taken back", nil))
		a.untilWaiting(t, "withdrawn")
		cancel()
		if r := awaited(t, second); !errors.Is(r.err, context.Canceled) || r.Report.Turn != "" || len(r.Order) > 0 {
			t.Errorf("second: %+v, %v", r.Reply, r.err)
		}
		close(gate)
		awaited(t, first)
		a.turn(t, "withdrawn", "third", nil)
		wantTwoTurns(t, a, "withdrawn", "first", "third", "taken back")
	})

	t.Run("T77 a message that interrupts and is withdrawn asks no hook", func(t *testing.T) {
		asked, stopping, gate := make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
		a.Next("withdrawn interrupt", func(ctx context.Context, _ chat.Request, _ func(string)) (chat.Response, error) {
			asked <- struct{}{}
			<-ctx.Done()
			close(stopping)
			select { // a turn takes a while to end
			case <-gate:
			case <-time.After(patience):
			}
			return chat.Response{}, ctx.Err()
		})
		first := a.send(t.Context(), played("withdrawn interrupt", "first", nil))
		awaited(t, asked)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		in := played("withdrawn interrupt", "taken back", nil)
		in.Interrupt = true
		second := a.send(ctx, in)
		awaited(t, stopping) // the second one interrupts, so it waits
		cancel()
		if r := awaited(t, second); !errors.Is(r.err, context.Canceled) || r.Report.Turn != "" {
			t.Errorf("second: %+v, %v", r.Reply, r.err)
		}
		close(gate)
		if r := awaited(t, first); r.Report.Status != "cancelled" {
			t.Errorf("first: %+v, %v", r.Reply, r.err)
		}
		a.turn(t, "withdrawn interrupt", "third", nil)
		wantTwoTurns(t, a, "withdrawn interrupt", "first", "third", "taken back")
	})

	t.Run("T77 a message withdrawn as its turn comes asks no hook, or both of the pair", func(t *testing.T) {
		for i := range 20 {
			sender := fmt.Sprint("moment ", i)
			asked, gate := make(chan struct{}, 1), make(chan struct{})
			a.Next(sender, reached(asked, gate, apptest.Says("one")))
			first := a.send(t.Context(), played(sender, "first", nil))
			awaited(t, asked)
			ctx, cancel := context.WithCancel(t.Context())
			second := a.wait(ctx, played(sender, "second", nil))
			a.untilWaiting(t, sender)
			close(gate)
			go cancel()
			awaited(t, first)
			r := awaited(t, second)
			got := pairs(sender)
			switch {
			case len(got) == 2 && (r.err != nil || r.Report.Status == "cancelled") && r.Text() == "":
			case len(got) == 4 && r.err == nil && slices.Equal(got, slices.Concat(onePair, onePair)):
			default:
				t.Errorf("hooks %v, reply %+v, error %v", got, r.Reply, r.err)
			}
			cancel()
		}
	})

	t.Run("T77 a message that is withdrawn before it comes asks no hook", func(t *testing.T) {
		over, cancel := context.WithCancel(t.Context())
		cancel()
		for _, sender := range []string{"never there", "another"} { // one without a record, one with
			before := len(a.notesOf(sender))
			r, err := a.Send(over, played(sender, "hello", nil))
			if len(r.Order) > 0 {
				t.Errorf("%+v, %v", r, err)
			}
			if got := a.notesOf(sender)[before:]; len(got) > 0 {
				t.Errorf("hooks were asked: %+v", got)
			}
		}
	})
}

// wantTwoTurns fails the test unless a conversation has had exactly two turns,
// and nothing of a message that was withdrawn.
func wantTwoTurns(t *testing.T, a playedAgent, sender, first, second, withdrawn string) {
	t.Helper()
	pair := []string{"on_turn_started", "on_turn_finished"}
	expect(t, "turns", a.asked(sender, pair...), slices.Concat(pair, pair))
	var texts []string
	for _, n := range a.notesOf(sender, "modify_incoming_message") {
		texts = append(texts, fmt.Sprint(n.Data["text"]))
	}
	expect(t, "messages that hooks saw", texts, []string{first, second})
	for _, e := range a.Events(sender) {
		if strings.Contains(e.Text, withdrawn) {
			t.Errorf("the record has %+v", e)
		}
	}
	for _, r := range a.RequestsOf(sender) {
		if strings.Contains(string(r.Messages), withdrawn) {
			t.Error("a model request has the message")
		}
	}
}

func TestCancel(t *testing.T) {
	t.Parallel()
	a := startPlayed(t, nil, shelf, playedHooks(longLimit, everyHook()...))
	search := apptest.Call("search_knowledge", map[string]any{"query": "opening hours"})

	// swallows is a hook that waits, and answers although it is cancelled.
	swallows := func(change string) string {
		return "note('at the gate', sender_id=p.sender_id)\ntry:\n    await gate('never')\nexcept asyncio.CancelledError:\n" +
			"    note('cancelled', sender_id=p.sender_id)\n    return p.model_copy(update=" + change + ")"
	}
	for _, c := range []struct{ point, change string }{
		{"incoming_message", "{'text': 'too late'}"},
		{"model_request", "{'messages': [{'role': 'user', 'content': 'too late'}]}"},
		{"model_response", "{'text': 'too late', 'tool_calls': []}"},
		{"tool_call", "{'arguments': {'query': 'too late'}}"},
		{"knowledge_query", "{'query': 'too late'}"},
		{"knowledge_results", "{'passages': [{'text': 'too late'}]}"},
		{"tool_result", "{'value': 'too late'}"},
		{"outgoing_text", "{'text': 'too late'}"},
	} {
		t.Run("T78 cancelled at "+c.point, func(t *testing.T) {
			sender, hook, observer := c.point, "modify_"+c.point, "on_"+c.point
			a.Next(sender, search, apptest.Says("the answer"))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := a.send(ctx, played(sender, "hello", bodies{hook: swallows(c.change),
				observer: "await gate('after " + c.point + "')\nnote('observer ended', sender_id=p.sender_id)"}))
			a.waitFor(t, sender, "at the gate")
			cancel()
			r := awaited(t, done)
			if r.err != nil || r.Report.Status != "cancelled" {
				t.Errorf("status %q, error %v", r.Report.Status, r.err)
			}
			for _, text := range r.Order { // at outgoing text nothing was sent before it either
				t.Errorf("%q was sent", text)
			}
			if a.noted(t, sender, "observer ended") {
				t.Fatal("the observer has ended already")
			}
			a.open(t, "after "+c.point)
			asked := a.asked(sender)
			if len(a.notesOf(sender, "observer ended")) != 1 {
				t.Error("the observer was cut short")
			}
			asked = slices.DeleteFunc(asked, func(name string) bool { return name == "observer ended" })
			at := slices.Index(asked, hook)
			expect(t, "after the hook", asked[at+1:], []string{"at the gate", "cancelled", "on_turn_finished"})
			if notes := a.notesOf(sender, "on_turn_finished"); notes[0].Data["status"] != "cancelled" {
				t.Errorf("turn finished says %v", notes[0].Data["status"])
			}
			if kept := fmt.Sprintf("%+v", a.Events(sender)); strings.Contains(kept, "too late") {
				t.Errorf("the record has the hook's answer: %s", kept)
			}
			for _, r := range a.RequestsOf(sender) {
				if strings.Contains(string(r.Messages), "too late") {
					t.Error("a model request has the hook's answer")
				}
			}
		})
	}

	t.Run("T78 interrupted", func(t *testing.T) {
		a.Next("interrupt", apptest.Says("one"), apptest.Says("two"))
		done := a.send(t.Context(), played("interrupt", "first", bodies{"modify_model_response": swallows("{'text': 'too late'}")}))
		a.waitFor(t, "interrupt", "at the gate")
		in := played("interrupt", "second", nil)
		in.Interrupt = true
		if r := awaited(t, a.send(t.Context(), in)); r.err != nil || r.Text() != "two" {
			t.Errorf("second: %+v, %v", r.Reply, r.err)
		}
		if r := awaited(t, done); r.err != nil || r.Report.Status != "cancelled" || len(r.Order) > 0 {
			t.Errorf("first: %+v, %v", r.Reply, r.err)
		}
		asked := a.asked("interrupt")
		at := slices.Index(asked, "modify_model_response")
		expect(t, "after the hook", asked[at+1:at+5], []string{"at the gate", "cancelled", "on_turn_finished", "on_turn_started"})
	})

	t.Run("T78 cancelled while a text streams", func(t *testing.T) {
		live := startPlayed(t, nil, playedHooks(longLimit, "on_turn_finished", "on_outgoing_text"))
		out := make(chan struct{})
		live.Next("stream", func(ctx context.Context, _ chat.Request, delta func(string)) (chat.Response, error) {
			delta("one ")
			close(out)
			<-ctx.Done()
			delta("two") // a provider may not notice at once
			text := "one two"
			return chat.Response{Text: &text}, nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		in := played("stream", "hello", nil)
		in.Live = true
		done := live.send(ctx, in)
		awaited(t, out)
		cancel()
		r := awaited(t, done)
		expect(t, "sent", r.Order, []string{"piece:one "})
		expect(t, "hooks", live.asked("stream"), []string{"on_turn_finished"})
		if bot := live.Of("stream", conversation.Bot); len(bot) != 1 || bot[0].Text != "one " {
			t.Errorf("the record has %+v, which is not what the user read", bot)
		}
	})
}
