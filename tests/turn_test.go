package tests

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/belay-run/belay/internal/app"
	"github.com/belay-run/belay/internal/app/apptest"
	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/loop"
	"github.com/belay-run/belay/internal/server"
	"github.com/belay-run/belay/internal/step"
	"github.com/belay-run/belay/internal/turn"
)

var turnHooks = playedHooks(longLimit, "on_turn_started", "on_incoming_message", "modify_incoming_message", "modify_model_request",
	"modify_tool_call", "modify_outgoing_text", "on_turn_finished")

// panicking is a model that panics.
func panicking(context.Context, chat.Request, func(string)) (chat.Response, error) {
	panic("a part that panics")
}

// wantPair fails the test unless a conversation's only turn has begun and ended
// once, with the status, and with every other hook between the two.
func wantPair(t *testing.T, a playedAgent, sender, status string) {
	t.Helper()
	notes := a.notesOf(sender)
	var names []string
	for _, n := range notes {
		names = append(names, n.What)
	}
	count := func(name string) (n int) {
		for _, what := range names {
			if what == name {
				n++
			}
		}
		return n
	}
	if count("on_turn_started") != 1 || count("on_turn_finished") != 1 {
		t.Fatalf("hooks of the turn: %v", names)
	}
	first, last := notes[0], notes[len(notes)-1]
	if first.What != "on_turn_started" || last.What != "on_turn_finished" {
		t.Errorf("hooks of the turn: %v", names)
	}
	if first.Data["turn_id"] != last.Data["turn_id"] || first.Data["turn_id"] == "" {
		t.Errorf("turn ids: %q and %q", first.Data["turn_id"], last.Data["turn_id"])
	}
	if last.Data["status"] != status {
		t.Errorf("turn finished says %q, want %q", last.Data["status"], status)
	}
}

// brokenStep makes a turn break off at its model call when the user says "break
// a step", and calls cancel as soon as a turn has its id.
type brokenStep struct {
	step.Steps
	cancel func()
}

func (s brokenStep) Do(c step.Call) (step.Answer, error) {
	if in, ok := c.Input.(loop.ModelCall); ok && strings.Contains(string(in.Request.Messages), "break a step") {
		return step.Answer{}, errors.New("the step is broken")
	}
	got, err := s.Steps.Do(c)
	if c.Key == "turn/id" {
		s.cancel()
	}
	return got, err
}

// panickingOut is a channel that panics when it gets a text.
type panickingOut struct{}

func (panickingOut) Delta(string)        {}
func (panickingOut) Text(turn.Utterance) { panic("a channel that panics") }

func TestTurnStartedAndFinished(t *testing.T) {
	t.Parallel()
	var cancelNext sync.Map // conversation → cancel, for when the turn has its id
	a := startPlayed(t, []func(*app.Config){func(c *app.Config) {
		c.Wrap = func(s step.Steps) step.Steps {
			return brokenStep{s, func() {
				cancelNext.Range(func(key, cancel any) bool {
					cancel.(context.CancelFunc)()
					cancelNext.Delete(key)
					return true
				})
			}}
		}
	}}, turnHooks)

	for _, c := range []struct {
		name, status string
		does         bodies
		answers      []apptest.Answer
	}{
		{"completed", "completed", nil, []apptest.Answer{apptest.Says("done")}},
		{"with tool calls", "completed", nil, []apptest.Answer{apptest.Call("no_such_tool", nil), apptest.Says("done")}},
		{"model fails", "error", nil, []apptest.Answer{apptest.Fails(500)}},
		{"model fails later", "error", nil, []apptest.Answer{apptest.Call("no_such_tool", nil), apptest.Fails(401)}},
		{"completion stays empty", "error", nil, []apptest.Answer{apptest.Empty(), apptest.Empty(), apptest.Empty()}},
		{"rejected at incoming", "completed", bodies{"modify_incoming_message": "veto('no')"}, nil},
		{"incoming hook fails", "error", bodies{"modify_incoming_message": "1 / 0"}, nil},
		{"request hook fails", "error", bodies{"modify_model_request": "1 / 0"}, nil},
		{"tool call hook fails", "error", bodies{"modify_tool_call": "1 / 0"}, []apptest.Answer{apptest.Call("no_such_tool", nil)}},
		{"outgoing text rejected", "completed", bodies{"modify_outgoing_text": "veto('no')"}, []apptest.Answer{apptest.Says("done")}},
		{"outgoing hook fails", "completed", bodies{"modify_outgoing_text": "1 / 0"}, []apptest.Answer{apptest.Says("done")}},
		{"model panics", "error", nil, []apptest.Answer{panicking}},
	} {
		t.Run("T70 a turn has its beginning and its end: "+c.name, func(t *testing.T) {
			a.Next(c.name, c.answers...)
			r := a.turn(t, c.name, "hello", c.does)
			wantPair(t, a, c.name, c.status)
			if r.Report.Status != c.status {
				t.Errorf("the report says %q", r.Report.Status)
			}
			if c.name == "model panics" {
				expect(t, "the user heard", r.Texts, []string{internalError})
			}
		})
	}

	t.Run("T70 a turn has its beginning and its end: the channel panics", func(t *testing.T) {
		if _, err := a.App.Talk(t.Context(), played("channel panics", "hello", nil), panickingOut{}); err != nil {
			t.Error(err)
		}
		wantPair(t, a, "channel panics", "error")
	})

	t.Run("T70 a turn has its beginning and its end: the flow breaks off", func(t *testing.T) {
		if _, err := a.Send(t.Context(), played("broken step", "break a step", nil)); err == nil {
			t.Error("no error")
		}
		wantPair(t, a, "broken step", "error")
	})

	t.Run("T70 a turn has its beginning and its end: its context ends in the model", func(t *testing.T) {
		asked := make(chan struct{}, 1)
		a.Next("context ends", reached(asked, nil, nil))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := a.send(ctx, played("context ends", "hello", nil))
		awaited(t, asked)
		cancel()
		if r := awaited(t, done); r.err != nil || r.Report.Status != "cancelled" || len(r.Texts) > 0 {
			t.Errorf("reply %+v, error %v", r.Reply, r.err)
		}
		wantPair(t, a, "context ends", "cancelled")
	})

	t.Run("T70 a turn has its beginning and its end: its context ends in a hook", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := a.send(ctx, played("context ends in a hook", "hello", bodies{"modify_incoming_message": "note('waits', sender_id=p.sender_id); await gate('never')"}))
		a.waitFor(t, "context ends in a hook", "waits")
		cancel()
		if r := awaited(t, done); r.err != nil || r.Report.Status != "cancelled" {
			t.Errorf("reply %+v, error %v", r.Reply, r.err)
		}
		wantPair(t, a, "context ends in a hook", "cancelled")
	})

	t.Run("T70 a turn that is cancelled before its beginning has no end either", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		cancelNext.Store("cancelled at once", cancel)
		if r, err := a.Send(ctx, played("cancelled at once", "hello", nil)); err != nil || r.Report.Status != "cancelled" {
			t.Errorf("reply %+v, error %v", r, err)
		}
		if ctx.Err() == nil {
			t.Fatal("the turn was not cancelled at its id")
		}
		if notes := a.notesOf("cancelled at once"); len(notes) > 0 {
			t.Errorf("hooks were asked: %+v", notes)
		}
	})

	t.Run("T73 a turn that the user interrupts is cancelled", func(t *testing.T) {
		asked := make(chan struct{}, 1)
		a.Next("interrupted", reached(asked, nil, nil), apptest.Says("second"))
		done := a.send(t.Context(), played("interrupted", "hello", nil))
		awaited(t, asked)
		second := played("interrupted", "stop", nil)
		second.Interrupt = true
		if r := awaited(t, a.send(t.Context(), second)); r.err != nil || r.Text() != "second" {
			t.Errorf("second turn: %+v, %v", r.Reply, r.err)
		}
		if r := awaited(t, done); r.err != nil || r.Report.Status != "cancelled" {
			t.Errorf("first turn: %+v, %v", r.Reply, r.err)
		}
		notes := a.notesOf("interrupted", "on_turn_started", "on_turn_finished")
		var got []string
		for _, n := range notes {
			got = append(got, fmt.Sprint(n.What, " ", n.Data["status"]))
		}
		expect(t, "turns", got, []string{"on_turn_started <nil>", "on_turn_finished cancelled", "on_turn_started <nil>", "on_turn_finished completed"})
		if notes[0].Data["turn_id"] != notes[1].Data["turn_id"] || notes[0].Data["turn_id"] == notes[2].Data["turn_id"] {
			t.Errorf("turn ids: %+v", notes)
		}
	})

	t.Run("T75 the id of a turn is its own", func(t *testing.T) {
		seen := map[string]string{}
		for _, sender := range []string{"t75 one", "t75 one", "t75 other"} {
			id := a.turn(t, sender, "hello", nil).Report.Turn
			if id == "" || seen[id] != "" {
				t.Errorf("turn id %q again", id)
			}
			seen[id] = sender
		}
		for _, sender := range []string{"t75 one", "t75 other"} {
			for _, name := range []string{"on_turn_started", "on_turn_finished"} {
				want := 1
				if sender == "t75 one" {
					want = 2
				}
				notes := a.notesOf(sender, name)
				if len(notes) != want {
					t.Errorf("%s: %d times in %s", name, len(notes), sender)
				}
				for _, n := range notes {
					if seen[n.Data["turn_id"].(string)] != sender {
						t.Errorf("%s in %s has the id %v", name, sender, n.Data["turn_id"])
					}
				}
			}
		}
	})

	t.Run("fields", func(t *testing.T) {
		in := played("fields", "hello", nil)
		in.Message.Voice = true
		in.Message.Call = json.RawMessage(`{"number":"+1 555","legs":[1,2]}`)
		in.Message.Channel = json.RawMessage(`{"name":"phone","metadata":{"page":"/pay"}}`)
		if _, err := a.Send(t.Context(), in); err != nil {
			t.Fatal(err)
		}
		a.turn(t, "bare", "hello", nil)
		field := func(sender, name string) map[string]any {
			notes := a.notesOf(sender, name)
			if len(notes) != 1 {
				t.Fatalf("%s was asked %d times in %s", name, len(notes), sender)
			}
			return notes[0].Data
		}
		id := field("fields", "on_turn_started")["turn_id"]
		channel, call := map[string]any{"name": "phone", "metadata": map[string]any{"page": "/pay"}}, map[string]any{"number": "+1 555", "legs": []any{1, 2}}
		bareID := field("bare", "on_turn_started")["turn_id"]
		bare := map[string]any{"name": "test", "metadata": map[string]any{}}
		t.Run("T72 turn started", func(t *testing.T) {
			expect(t, "of a call", field("fields", "on_turn_started"), map[string]any{"sender_id": "fields", "call": call, "channel": channel, "is_voice": true, "turn_id": id})
			expect(t, "of a text", field("bare", "on_turn_started"), map[string]any{"sender_id": "bare", "call": map[string]any{}, "channel": bare, "is_voice": false, "turn_id": bareID})
		})
		t.Run("T73 turn finished", func(t *testing.T) {
			expect(t, "of a call", field("fields", "on_turn_finished"), map[string]any{"sender_id": "fields", "call": call, "channel": channel, "status": "completed", "turn_id": id})
			expect(t, "of a text", field("bare", "on_turn_finished"), map[string]any{"sender_id": "bare", "call": map[string]any{}, "channel": bare, "status": "completed", "turn_id": bareID})
		})
	})
}

// badObservers stand at turn started and turn finished and do what they may not.
func badObservers() apptest.Files {
	const each = `

@on_turn_%[1]s(timeout_ms=20000)
async def %[1]s_changes(p: Turn%[2]sPayload) -> None:
    p.sender_id = "somebody else"
    p.turn_id = "another"
    p.call["number"] = "changed"
    p.channel.metadata["page"] = "changed"
    if hasattr(p, "status"):
        p.status = "changed"


@on_turn_%[1]s(timeout_ms=20000)
async def %[1]s_looks(p: Turn%[2]sPayload) -> None:
    await asyncio.sleep(0.1)  # the one above has made its changes
    note("%[1]s looks", **p.model_dump())


@on_turn_%[1]s(timeout_ms=20000)
async def %[1]s_crashes(p: Turn%[2]sPayload) -> None:
    raise ValueError("%[1]s-crash")


@on_turn_%[1]s(timeout_ms=20000)
async def %[1]s_exits(p: Turn%[2]sPayload) -> None:
    raise SystemExit(3)


@on_turn_%[1]s(timeout_ms=20000)
async def %[1]s_vetoes(p: Turn%[2]sPayload) -> None:
    veto("%[1]s-veto")


@on_turn_%[1]s(timeout_ms=20000)
async def %[1]s_retries(p: Turn%[2]sPayload) -> None:
    retry("%[1]s-retry")


@on_turn_%[1]s(timeout_ms=50)
async def %[1]s_overruns(p: Turn%[2]sPayload) -> None:
    await gate("never")


@on_turn_%[1]s(timeout_ms=20000)
async def %[1]s_waits(p: Turn%[2]sPayload) -> None:
    await gate("the turn is over")
    note("%[1]s waited", sender_id=p.sender_id)


@on_turn_%[1]s(timeout_ms=20000)
async def %[1]s_returns(p: Turn%[2]sPayload) -> None:
    return p.model_copy(update={"sender_id": "somebody else"})
`
	head := "from __future__ import annotations\n\nimport asyncio\n\nfrom belay.hooks import *\nfrom lib.played import gate, retry, veto\nfrom lib.probe import note\n"
	return apptest.Files{"hooks/bad.py": head + fmt.Sprintf(each, "started", "Started") + fmt.Sprintf(each, "finished", "Finished")}
}

func TestObserversOfATurn(t *testing.T) {
	t.Parallel()
	a := startPlayed(t, nil, playedHooks(longLimit, "on_model_request"), badObservers())
	in := played("t71", "hello", nil)
	in.Message.Channel = json.RawMessage(`{"name":"web","metadata":{"page":"/pay"}}`)
	in.Message.Call = json.RawMessage(`{"number":"1"}`)
	var replies []apptest.Reply
	for range 2 {
		a.Next("t71", apptest.Call("no_such_tool", nil), apptest.Says("the answer"))
		r, err := a.Send(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		replies = append(replies, r)
	}

	t.Run("T71 no step waits for them", func(t *testing.T) {
		for _, name := range []string{"started waited", "finished waited"} {
			if a.noted(t, "t71", name) {
				t.Errorf("%s before the gate was opened", name)
			}
		}
		a.open(t, "the turn is over")
		expect(t, "observers that were still there", len(a.notesOf("t71", "started waited", "finished waited")), 4)
	})

	t.Run("T71 they fail no turn", func(t *testing.T) {
		for _, r := range replies {
			expect(t, "heard", r.Order, []string{"text:the answer"})
			expect(t, "status", r.Report.Status, "completed")
		}
	})

	t.Run("T71 they change no state", func(t *testing.T) {
		one := []string{"user", "tool_executed", "bot", "bot_turn_ended"}
		expect(t, "record", a.Kinds("t71"), slices.Concat([]string{"session_started"}, one, one))
		channel, call := map[string]any{"name": "web", "metadata": map[string]any{"page": "/pay"}}, map[string]any{"number": "1"}
		for _, n := range a.notesOf("t71", "started looks", "finished looks", "on_model_request") {
			expect(t, n.What+" sees", []any{n.Data["channel"], n.Data["call"]}, []any{channel, call})
		}
		looks := a.notesOf("t71", "started looks", "finished looks")
		if len(looks) != 4 {
			t.Fatalf("%d notes", len(looks))
		}
		for _, n := range looks {
			id := n.Data["turn_id"]
			if id != replies[0].Report.Turn && id != replies[1].Report.Turn {
				t.Errorf("%s sees the turn id %v", n.What, id)
			}
			if n.What == "finished looks" && n.Data["status"] != "completed" {
				t.Errorf("%s sees the status %v", n.What, n.Data["status"])
			}
		}
		if strings.Contains(fmt.Sprint(a.Prompts("t71")), "somebody else") || len(a.Events("somebody else")) > 0 {
			t.Error("a change of an observer got through")
		}
	})

	t.Run("T71 what they do is logged", func(t *testing.T) {
		a.App.WaitObservers()
		for _, point := range []string{"started", "finished"} {
			for _, does := range []string{"crashes", "exits", "vetoes", "retries", "overruns"} {
				if hook := "hooks/bad.py:" + point + "_" + does; !strings.Contains(a.Log(), hook) {
					t.Errorf("the log does not have %s", hook)
				}
			}
		}
	})
}

func TestStopInOrder(t *testing.T) {
	t.Parallel()
	// The observer of the end takes its time: it must have it, though the server
	// is in a hurry.
	files := []apptest.Files{playedHooks(longLimit, "on_turn_started"), {"hooks/end.py": `from __future__ import annotations

import asyncio

from belay.hooks import TurnFinishedPayload, on_turn_finished
from lib.probe import note


@on_turn_finished(timeout_ms=20000)
async def end(p: TurnFinishedPayload) -> None:
    await asyncio.sleep(0.2)
    note("on_turn_finished", **p.model_dump())
`}}

	t.Run("T70 a turn that the stop cancels has its end", func(t *testing.T) {
		t.Parallel()
		a := startPlayed(t, nil, files...)
		asked := make(chan struct{}, 1)
		a.Next("ada", reached(asked, nil, nil))
		done := a.send(t.Context(), played("ada", "hello", nil))
		awaited(t, asked)
		over, cancel := context.WithCancel(context.Background())
		cancel()
		if err := a.App.Close(over); err != nil {
			t.Error(err)
		}
		if r := awaited(t, done); r.err != nil || r.Report.Status != "cancelled" {
			t.Errorf("reply %+v, error %v", r.Reply, r.err)
		}
		wantPair(t, a, "ada", "cancelled")
	})

	t.Run("T70 a turn that the stop waits for has its end", func(t *testing.T) {
		t.Parallel()
		a := startPlayed(t, nil, files...)
		asked, gate := make(chan struct{}, 1), make(chan struct{})
		a.Next("ada", reached(asked, gate, apptest.Says("done")))
		done := a.send(t.Context(), played("ada", "hello", nil))
		awaited(t, asked)
		closed := make(chan error, 1)
		go func() { closed <- a.App.Close(context.Background()) }()
		for { // until the stop has begun
			if _, err := a.Send(t.Context(), played("eve", "hello", nil)); errors.Is(err, turn.ErrClosed) {
				break
			}
		}
		close(gate)
		if r := awaited(t, done); r.err != nil || r.Text() != "done" {
			t.Errorf("reply %+v, error %v", r.Reply, r.err)
		}
		if err := awaited(t, closed); err != nil {
			t.Error(err)
		}
		wantPair(t, a, "ada", "completed")
	})

	t.Run("T70 a turn under way when the HTTP server stops has its end", func(t *testing.T) {
		t.Parallel()
		a := startPlayed(t, nil, files...)
		ready := make(chan net.Addr, 1)
		s, err := server.New(a.App, server.Config{Listen: "127.0.0.1:0", Grace: -1, Ready: func(at net.Addr) { ready <- at }})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		served := make(chan error, 1)
		go func() { served <- s.Run(ctx) }()
		asked := make(chan struct{}, 1)
		a.Next("ada", reached(asked, nil, nil))
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		answered := make(chan error, 1)
		at := awaited(t, ready)
		go func() {
			res, err := client.Post("http://"+at.String()+"/v1/conversations/ada/messages", "application/json", strings.NewReader(`{"message":"hello"}`))
			if err == nil {
				err = res.Body.Close()
			}
			answered <- err
		}()
		awaited(t, asked)
		stop()
		awaited(t, answered) // with an error or a problem: the client is told nothing else here
		if err := awaited(t, served); err != nil {
			t.Logf("the server stopped with: %v", err)
		}
		a.Close()
		wantPair(t, a, "ada", "cancelled")
	})
}
