package tests

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/internal/app/apptest"
	"github.com/belay-run/belay/internal/loop"
)

// diaryHooks stand at every point: two observers, a final one, and a modify hook
// where there is that lane. Before its first await each writes into the diary of
// its conversation, which a module keeps; afterwards it takes its time. The last
// hook of a turn gives the diary out.
func diaryHooks() apptest.Files {
	var b strings.Builder
	b.WriteString("from __future__ import annotations\n\nfrom belay.hooks import *\nfrom lib.diary import after, write\n")
	for _, p := range hook.Points {
		if p.Dialect != hook.Turn {
			continue
		}
		for _, o := range []struct{ name, arguments, entry string }{{"one", "", "on"}, {"two", "", "on"}, {"final", ", final=True", "final"}} {
			fmt.Fprintf(&b, "\n\n@on_%[1]s(timeout_ms=%[2]d%[3]s)\nasync def %[4]s_%[1]s(p: %[5]s) -> None:\n    write(p, '%[6]s %[1]s')\n    await after(p)\n",
				p.Name, longLimit, o.arguments, o.name, p.Payload, o.entry)
		}
		if p.Modify {
			fmt.Fprintf(&b, "\n\n@modify_%[1]s(timeout_ms=%[2]d)\nasync def decide_%[1]s(p: %[3]s) -> %[3]s:\n    write(p, 'modify %[1]s')\n    await after(p)\n    return p\n",
				p.Name, longLimit, p.Payload)
		}
	}
	return apptest.Files{"hooks.py": b.String(), "lib/diary.py": `import asyncio
import os
import random

from belay.hooks import HookRejection
from lib.probe import note

_diaries = {}


def write(p, entry):
    """Runs before the hook's first await."""
    diary = _diaries.setdefault(p.sender_id, [])
    diary.append(entry)
    if len([e for e in diary if e.endswith("turn_finished")]) % 3 == 0 and entry.endswith("turn_finished"):
        note("diary", sender_id=p.sender_id, entries=list(diary))
    if entry == "modify incoming_message" and p.text == "no":
        raise HookRejection(reason="no")
    if entry == "modify outgoing_text" and p.text == "die":
        os._exit(1)


async def after(p):
    await asyncio.sleep(random.random() / 50)
`}
}

func withWorkers(n int) apptest.Files {
	return apptest.Files{"agent.yml": fmt.Sprintf("agent:\n  id: test\n  persona: You are a test.\nbelay:\n  limits:\n    hook_workers: %d\n", n)}
}

// entries are what the diary must say of a turn: each point that was reached, in
// the order in which the engine came there.
func entries(lines []loop.Line) (out []string) {
	for _, l := range lines {
		if l.Kind != "point" || l.Observers == 0 {
			continue
		}
		out = append(out, "on "+l.Point, "on "+l.Point)
		if l.Asked > 0 {
			out = append(out, "modify "+l.Point)
		}
		if l.Observers == 3 {
			out = append(out, "final "+l.Point)
		}
	}
	return out
}

func TestSharedState(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{1, 3} {
		t.Run(fmt.Sprint(workers, " workers"), func(t *testing.T) { testSharedState(t, workers) })
	}
}

func testSharedState(t *testing.T, workers int) {
	const conversations, turns = 24, 3
	a := startPlayed(t, nil, guardedFiles, diaryHooks(), withWorkers(workers))
	told := make([][]apptest.Reply, conversations)
	var wg sync.WaitGroup
	for i := range conversations {
		wg.Go(func() {
			sender := fmt.Sprint("user ", i)
			a.Next(sender, apptest.SaysAndCalls("let me look", apptest.C{Name: "search_knowledge", Args: map[string]any{"query": "warranty"}}, apptest.C{Name: "look_up", Args: map[string]any{"item": "chair"}}), apptest.Says("done"))
			for turn := range turns {
				text := "hello"
				if turn == 1 {
					text = "no" // the shortest turn
				}
				told[i] = append(told[i], a.turn(t, sender, text, nil))
			}
		})
	}
	wg.Wait()

	pids := map[int]bool{}
	perWorker := map[int][]int{} // conversations by process
	t.Run(fmt.Sprintf("T79 calls of a conversation begin in order, %d workers", workers), func(t *testing.T) {
		for i := range conversations {
			sender := fmt.Sprint("user ", i)
			notes := a.notesOf(sender, "diary")
			if len(notes) != turns {
				t.Fatalf("%s: %d turns were finished", sender, len(notes))
			}
			var want []string
			for _, r := range told[i] {
				want = append(want, entries(r.Report.Lines)...)
			}
			got := texts(notes[turns-1].Data["entries"])
			expect(t, sender, inOrder(got), inOrder(want))
			if len(want) < 40 {
				t.Errorf("%s: only %d entries", sender, len(want))
			}
			pids[notes[0].PID] = true
			perWorker[notes[0].PID] = append(perWorker[notes[0].PID], i)
		}
	})
	t.Run(fmt.Sprintf("T74 what a hook of one lane leaves is there for the other, %d workers", workers), func(t *testing.T) {
		if len(pids) != workers {
			t.Errorf("%d workers served", len(pids))
		}
		for i := range conversations {
			sender := fmt.Sprint("user ", i)
			// The diary grew from turn to turn: nothing written in it was lost, and
			// one process wrote all of it.
			var before []string
			for _, n := range a.notesOf(sender, "diary") {
				now := texts(n.Data["entries"])
				if !slices.Equal(now[:min(len(before), len(now))], before) || !pids[n.PID] {
					t.Errorf("%s: %v became %v", sender, before, now)
				}
				before = now
			}
			for _, lane := range []string{"on", "modify", "final"} {
				if !slices.ContainsFunc(before, func(e string) bool { return strings.HasPrefix(e, lane+" ") }) {
					t.Errorf("%s: nothing of the lane %s is in %v", sender, lane, before)
				}
			}
		}
		if strings.Contains(a.Log(), "module state was lost") {
			t.Error("the log says that state was lost")
		}
	})
	t.Run(fmt.Sprintf("T74 it is lost only with the worker, and the log says so, %d workers", workers), func(t *testing.T) {
		a.steady(t, workers, 0)
		var kept, hit string // a conversation of another worker, and one of the worker that dies
		for pid := range pids {
			if sender := fmt.Sprint("user ", perWorker[pid][0]); hit == "" {
				hit = sender
			} else {
				kept = sender
			}
		}
		a.Next(hit, apptest.Says("die"))
		if r := a.turn(t, hit, "hello", nil); r.Text() != "die" { // open
			t.Errorf("the user heard %q", r.Text())
		}
		a.turn(t, hit, "hello", nil)
		notes := a.notesOf(hit, "diary")
		last := texts(notes[len(notes)-1].Data["entries"])
		if slices.Contains(last, "modify tool_call") {
			t.Errorf("the state outlived its worker: %v", last)
		}
		a.untilLog(t, `msg="hook: module state was lost`, 1)
		a.untilLog(t, `the state that modules kept in it`, 1)
		if kept == "" {
			return
		}
		told := a.countLog("module state was lost")
		a.turn(t, kept, "hello", nil)
		notes = a.notesOf(kept, "diary")
		if last := texts(notes[len(notes)-1].Data["entries"]); !slices.Contains(last, "modify tool_call") {
			t.Errorf("state was lost of a worker that lives: %v", last)
		}
		if a.countLog("module state was lost") != told {
			t.Error("the log says that it was lost")
		}
	})
}

// texts gives a list that a note has.
func texts(v any) (out []string) {
	for _, e := range v.([]any) {
		out = append(out, e.(string))
	}
	return out
}

// inOrder names the final observers of a point without a modify lane as the
// others: no order holds among them.
func inOrder(diary []string) []string {
	out := slices.Clone(diary)
	for i, entry := range out {
		if point, ok := strings.CutPrefix(entry, "final "); ok && !hook.PointNamed(point).Modify {
			out[i] = "on " + point
		}
	}
	return out
}

func TestSharedModules(t *testing.T) {
	t.Parallel()
	files := apptest.Files{
		"lib/store.py": `from lib.probe import note

from .deep.inner import FACTOR

note("imported", sender_id="")
box = {"factor": FACTOR}


def put(who, sender_id):
    box.setdefault(sender_id, []).append(who)
    return list(box[sender_id])
`,
		"lib/deep/inner.py": "FACTOR = 7\n",
		"hooks.py": `from __future__ import annotations

import lib.deep.inner
from belay.hooks import *
from lib import store

ATLOAD = store.box["factor"] * lib.deep.inner.FACTOR


@modify_tool_call(timeout_ms=LIMIT)
async def call(p: ToolCallPayload) -> ToolCallPayload:
    store.put("modify tool_call", p.sender_id)
    return p


@on_outgoing_text(timeout_ms=LIMIT)
async def seen(p: OutgoingTextPayload) -> None:
    store.note("seen", sender_id=p.sender_id, box=store.put("on outgoing_text", p.sender_id), module=id(store), atload=ATLOAD)
`,
		"hooks/nested/more.py": `from __future__ import annotations

import lib.store as again
from belay.hooks import *


@modify_tool_result(timeout_ms=LIMIT)
async def result(p: ToolResultPayload) -> ToolResultPayload:
    again.note("result", sender_id=p.sender_id, box=again.put("modify tool_result", p.sender_id), module=id(again))
    return p
`,
		"tools/shelf.py": `from __future__ import annotations

import sys

from belay.tools import ToolContext, ToolResult, tool
from lib.store import box, note, put

ATLOAD = box["factor"]


@tool(description="Looks.")
async def look(context: ToolContext) -> ToolResult:
    there = put("tool", context.sender_id)
    note("tool", sender_id=context.sender_id, box=there, module=id(sys.modules["lib.store"]), atload=ATLOAD)
    return ToolResult(llm_response={"there": there})
`,
	}
	for name, text := range files {
		files[name] = strings.ReplaceAll(text, "LIMIT", fmt.Sprint(longLimit))
	}
	all := maps.Clone(files)
	maps.Copy(all, withWorkers(2))
	a := startPlayed(t, nil, all)
	a.steady(t, 2, 0)

	t.Run("T05 lib can be imported while hooks and tools load", func(t *testing.T) {
		a.Next("load", apptest.Call("look", nil), apptest.Says("done"))
		a.turn(t, "load", "hello", nil)
		if n := a.notesOf("load", "tool")[0].Data["atload"]; n != 7.0 {
			t.Errorf("at load the tool had %v", n)
		}
		if n := a.notesOf("load", "seen")[0].Data["atload"]; n != 49.0 {
			t.Errorf("at load the hook had %v", n)
		}
	})
	t.Run("T05 a module is there once in a process", func(t *testing.T) {
		by := map[int]int{}
		for _, n := range a.notesOf("", "imported") {
			by[n.PID]++
		}
		if len(by) < 3 { // two places and a spare
			t.Errorf("imported in %v", by)
		}
		for pid, times := range by {
			if times != 1 {
				t.Errorf("imported %d times in process %d", times, pid)
			}
		}
	})
	t.Run("T05 hooks and tools see the same module, and the state in it", func(t *testing.T) {
		pids := map[int]bool{}
		for i := range 8 {
			sender := fmt.Sprint("state ", i)
			a.Next(sender, apptest.Call("look", nil), apptest.Says("done"), apptest.Call("look", nil), apptest.Says("done"))
			a.turn(t, sender, "hello", nil)
			a.turn(t, sender, "hello", nil)
			want := []string{"modify tool_call", "tool", "modify tool_result", "on outgoing_text"}
			notes := a.notesOf(sender)
			if len(notes) != 6 {
				t.Fatalf("%d notes: %+v", len(notes), notes)
			}
			last := notes[len(notes)-1]
			expect(t, sender, last.Data["box"], slices.Concat(want, want))
			pids[last.PID] = true
			for _, n := range notes {
				if n.Data["module"] != last.Data["module"] || n.PID != last.PID {
					t.Errorf("%s has another module than %s", n.What, last.What)
				}
			}
		}
		if len(pids) != 2 {
			t.Errorf("%d workers served", len(pids))
		}
	})
}
