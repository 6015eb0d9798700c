package tests

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/internal/app/apptest"
	"github.com/belay-run/belay/internal/conversation"
)

// observers proves T58 and T59 with the conversations of a stage.
func (s *stage) observers(t *testing.T) {
	for _, row := range standings {
		for what, says := range map[string]string{
			"spoil":   "changes mean nothing",
			"return":  "changes mean nothing",
			"reject":  "reject means nothing",
			"retry":   "retry means nothing",
			"crash":   "ValueError: planted crash observe " + row.point,
			"timeout": "it took longer than its limit",
		} {
			sender := "observe:" + row.point + ":" + what
			t.Run(fmt.Sprintf("T58 an observer at %s: %s", row.point, what), func(t *testing.T) {
				s.same(t, sender)
				if r := s.run(sender, row, hook.Observe); !strings.Contains(r.Dropped, says) && (r.Failure == nil || !strings.Contains(r.Failure.Message, says)) {
					t.Errorf("the trace says %+v", r)
				}
				if !s.loggedAt(s.said[sender].Report.Turn, "level=WARN", "hook=hooks.py:see_"+row.point, "point="+row.point, "file=hooks.py", says) {
					t.Errorf("it is not logged:\n%s", s.Log())
				}
			})
		}
		t.Run("T59 observers at "+row.point+" see the payload as it came, final ones what goes on", func(t *testing.T) { s.sees(t, row) })
	}
}

// sight is what hooks of one point noted in one conversation, in order.
type sight struct {
	order        []string
	first, final []string
}

func (s *stage) sight(sender, point string) (out sight) {
	for _, n := range s.notes {
		if n.Data["sender"] != sender || !strings.HasSuffix(n.What, " "+point) {
			continue
		}
		out.order = append(out.order, strings.TrimSuffix(n.What, " "+point))
		own := maps.Clone(n.Data["dump"].(map[string]any))
		delete(own, "sender_id")
		delete(own, "turn_id")
		switch dump := fmt.Sprint(own); strings.TrimSuffix(n.What, " "+point) {
		case "observe":
			out.first = append(out.first, dump)
		case "final":
			out.final = append(out.final, dump)
		}
	}
	return out
}

func (s *stage) sees(t *testing.T, row standing) {
	pass := s.sight("pass", row.point)
	if len(pass.first) == 0 || !slices.Equal(pass.first, pass.final) {
		t.Fatalf("when nothing happens they see %q, final ones %q", pass.first, pass.final)
	}
	if !row.modify {
		return
	}
	for what, goesOn := range map[string]bool{"change": true, "reject": row.signal != "reject", "retry": row.signal != "retry", "crash": !row.closed, "timeout": !row.closed} {
		sender := "modify:" + row.point + ":" + what
		got := s.sight(sender, row.point)
		if got.order[0] != "observe" || got.order[1] != "modify" {
			t.Errorf("%s: they were asked in the order %v", what, got.order)
		}
		if got.first[0] != pass.first[0] {
			t.Errorf("%s: the first one saw %s, want %s", what, got.first[0], pass.first[0])
		}
		switch {
		case what == "change":
			if len(got.final) != len(got.first) || !strings.Contains(strings.Join(got.final, ""), changeOf(row)) || strings.Contains(got.first[0], changeOf(row)) {
				t.Errorf("the hook changed it: they saw %q, final ones %q", got.first, got.final)
			}
		case goesOn:
			if !slices.Equal(got.final, got.first) {
				t.Errorf("%s: they saw %q, final ones %q", what, got.first, got.final)
			}
		case len(got.final) != len(got.first)-1 || slices.Contains(got.final, pass.first[0]):
			t.Errorf("%s: nothing goes on: they saw %q, final ones %q", what, got.first, got.final)
		}
		runs := s.runs(sender, row.point, hook.Modify)
		run := runs[0]
		if what == "change" { // of the model's responses only the second has a text
			run = runs[len(runs)-1]
		}
		told := map[string]bool{"change": len(run.Changed) == 1, "reject": run.Said == "reject", "retry": run.Said == "retry",
			"crash": run.Failure != nil && run.Failure.Kind == hook.Crash, "timeout": run.Failure != nil && run.Failure.Kind == hook.Timeout}[what]
		if !told {
			t.Errorf("%s: the trace says %+v", what, run)
		}
	}
}

// changeOf is what a changed payload shows.
func changeOf(row standing) string {
	if row.point == "knowledge_query" {
		return "warranty"
	}
	return row.shows
}

// waitingHooks: the modify hook waits until an observer of the same point was
// there, and another observer stays until the test lets it go.
const waitingHooks = `from __future__ import annotations

import asyncio
import os

from belay.hooks import IncomingMessagePayload, modify_incoming_message, on_incoming_message
from lib.probe import note

_there = asyncio.Event()
_gate = os.path.join(os.path.dirname(os.path.abspath(__file__)), "gate")


@modify_incoming_message(timeout_ms=20000)
async def decide(p: IncomingMessagePayload) -> IncomingMessagePayload:
    await _there.wait()
    p.text = "changed"
    return p


@on_incoming_message(timeout_ms=20000)
async def early(p: IncomingMessagePayload) -> None:
    p.text += " spoilt"
    note("early", text=p.text)
    _there.set()


@on_incoming_message(timeout_ms=20000)
async def long(p: IncomingMessagePayload) -> None:
    while not os.path.exists(_gate):
        await asyncio.sleep(0.005)
    note("long", text=p.text)


@on_incoming_message(timeout_ms=20000, final=True)
async def last(p: IncomingMessagePayload) -> None:
    note("last", text=p.text)
`

func TestObserversDoNotWait(t *testing.T) {
	t.Parallel()
	a := apptest.Start(t, apptest.Files{"hooks.py": waitingHooks})
	r := a.Say("s", "typed") // ends while "long" is still there
	if err := os.WriteFile(filepath.Join(a.Dir, "gate"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	saw := map[string]any{}
	for _, n := range a.Notes() {
		saw[n.What] = n.Data["text"]
	}
	t.Run("T59 an observer is there while the modify hook has yet to answer", func(t *testing.T) {
		if r.Report.Status != "completed" || saw["early"] != "typed spoilt" {
			t.Errorf("status %s, it saw %v", r.Report.Status, saw["early"])
		}
	})
	t.Run("T59 it sees the payload as it came however late it looks", func(t *testing.T) {
		if saw["long"] != "typed" {
			t.Errorf("it saw %v", saw["long"])
		}
	})
	t.Run("T58 each observer has a copy of its own", func(t *testing.T) {
		if saw["long"] != "typed" || saw["last"] != "changed" || a.Of("s", conversation.User)[0].Text != "changed" {
			t.Errorf("they saw %v, the record has %q", saw, a.Of("s", conversation.User)[0].Text)
		}
	})
}
