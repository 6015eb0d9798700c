package tests

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/internal/app"
	"github.com/belay-run/belay/internal/app/apptest"
	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/rawjson"
	"github.com/belay-run/belay/internal/server"
	"github.com/belay-run/belay/internal/turn"
)

// bodies are Python bodies of hooks by the hook's decorator, such as
// "modify_model_request". They travel in the payload's call data, so tests that
// share an agent bring what its hooks do. In a body, p is the payload. A hook
// without a body notes its payload and goes on.
type bodies map[string]string

// playedLib runs a body. Beside p it has note, gate (waits for playedAgent.open), the
// module hooks, and veto and retry, which raise signals where no check sees them.
const playedLib = `from __future__ import annotations

import asyncio
import os
import textwrap
import time

from belay import hooks
from lib.probe import note

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


async def gate(name):
    while not os.path.exists(os.path.join(_ROOT, "gates", name)):
        await asyncio.sleep(0.005)


def veto(reason):
    raise hooks.HookRejection(reason=reason)


def retry(feedback):
    raise hooks.RetryModel(feedback=feedback)


_SCOPE = {"note": note, "gate": gate, "veto": veto, "retry": retry, "asyncio": asyncio, "time": time, "hooks": hooks}


async def play(name, p):
    note(name, **p.model_dump())
    body = p.call.get(name)
    if body is None:
        return p
    space = dict(_SCOPE)
    exec("async def body(p):\n" + textwrap.indent(body, "    ") + "\n    return p\n", space)
    return await space["body"](p)
`

// longLimit is the limit of hooks, in milliseconds, where it is not what is
// tested.
const longLimit = 20_000

// playedHooks gives an agent the named hooks, each with a limit in milliseconds.
func playedHooks(limit int, names ...string) apptest.Files {
	var b strings.Builder
	b.WriteString("from __future__ import annotations\n\nfrom belay.hooks import *\nfrom lib.played import play\n")
	for _, name := range names {
		lane, point, _ := strings.Cut(name, "_")
		payload := hook.PointNamed(point).Payload
		returns, body := payload, "return await"
		if lane == "on" {
			returns, body = "None", "await"
		}
		fmt.Fprintf(&b, "\n\n@%s(timeout_ms=%d)\nasync def %s_hook(p: %s) -> %s:\n    %s play(%q, p)\n", name, limit, name, payload, returns, body, name)
	}
	return apptest.Files{"lib/played.py": playedLib, "hooks.py": b.String()}
}

// everyHook are all hooks that a folder can have, in the order of the points.
func everyHook() []string {
	var out []string
	for _, p := range hook.Points {
		if p.Dialect != hook.Turn {
			continue
		}
		out = append(out, "on_"+p.Name)
		if p.Modify {
			out = append(out, "modify_"+p.Name)
		}
	}
	return out
}

// playedAgent is an agent with hooks of playedHooks.
type playedAgent struct{ *apptest.Agent }

func startPlayed(t *testing.T, options []func(*app.Config), files ...apptest.Files) playedAgent {
	t.Helper()
	all := apptest.Files{}
	for _, f := range files {
		maps.Copy(all, f)
	}
	return playedAgent{apptest.Start(t, all, options...)}
}

// open lets hooks that wait at the gate go on.
func (a playedAgent) open(t *testing.T, gate string) {
	t.Helper()
	apptest.Write(t, a.Dir, filepath.Join("gates", gate), "")
}

// played is a text with what the hooks will do.
func played(sender, text string, does bodies) server.Inbound {
	in := server.Inbound{Sender: sender, Message: turn.Message{Text: text}}
	if does != nil {
		in.Message.Call = rawjson.Must(does)
	}
	return in
}

// turn runs a turn whose hooks do what the bodies say.
func (a playedAgent) turn(t *testing.T, sender, text string, does bodies) apptest.Reply {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := a.Send(ctx, played(sender, text, does))
	if err != nil {
		t.Fatalf("say %q: %v\n%s", text, err, a.Log())
	}
	return r
}

// sent is what became of a message that was sent in the background.
type sent struct {
	apptest.Reply
	err error
}

// send sends a message in the background.
func (a playedAgent) send(ctx context.Context, in server.Inbound) <-chan sent {
	done := make(chan sent, 1)
	go func() {
		r, err := a.Send(ctx, in)
		done <- sent{r, err}
	}()
	return done
}

// notesOf returns what hooks and tools noted for a conversation; with names, only
// what these noted.
func (a playedAgent) notesOf(sender string, names ...string) []apptest.Note {
	a.T.Helper()
	return slices.DeleteFunc(a.Notes(), func(n apptest.Note) bool {
		return n.Data["sender_id"] != sender || len(names) > 0 && !slices.Contains(names, n.What)
	})
}

// asked returns the names of the notes of notesOf.
func (a playedAgent) asked(sender string, names ...string) []string {
	a.T.Helper()
	out := []string{}
	for _, n := range a.notesOf(sender, names...) {
		out = append(out, n.What)
	}
	return out
}

// waitFor waits until something was noted for a conversation, and does not wait
// for observers.
func (a playedAgent) waitFor(t *testing.T, sender, name string) {
	t.Helper()
	for end := time.Now().Add(patience); !a.noted(t, sender, name); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("nobody noted %q for %s", name, sender)
		}
	}
}

// noted says whether something was noted by now for a conversation.
func (a playedAgent) noted(t *testing.T, sender, name string) bool {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(a.Dir, "notes.jsonl"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		var n apptest.Note
		if json.Unmarshal([]byte(line), &n) == nil && n.What == name && n.Data["sender_id"] == sender { // the last line may not be whole
			return true
		}
	}
	return false
}

// patience bounds the wait for something that a wrong program never does.
const patience = 60 * time.Second

// awaited waits for what a channel gives.
func awaited[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patience):
		t.Fatal("what was waited for never came")
		panic("not reached")
	}
}

// reached is an answer that says when the model is asked, and waits until the
// call is cancelled or the gate is closed.
func reached(asked chan<- struct{}, gate <-chan struct{}, then apptest.Answer) apptest.Answer {
	return func(ctx context.Context, req chat.Request, delta func(string)) (chat.Response, error) {
		asked <- struct{}{}
		return apptest.After(gate, then)(ctx, req, delta)
	}
}

// expect compares two values by their JSON.
func expect(t *testing.T, what string, got, want any) {
	t.Helper()
	if g, w := string(rawjson.Must(got)), string(rawjson.Must(want)); g != w {
		t.Errorf("%s:\n  got  %s\n  want %s", what, g, w)
	}
}
