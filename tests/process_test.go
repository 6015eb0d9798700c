package tests

import (
	"fmt"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/internal/app/apptest"
	"github.com/belay-run/belay/internal/conversation"
)

// busyRoom is how much later things may happen on a busy machine.
const busyRoom = time.Second

// hooksWith gives an agent hooks of playedHooks, each with a limit of its own in
// milliseconds; 0 names none.
func hooksWith(limits map[string]int) apptest.Files {
	files := apptest.Files{"lib/played.py": playedLib}
	for name, limit := range limits {
		files["hooks/"+name+".py"] = strings.Replace(playedHooks(limit, name)["hooks.py"], "(timeout_ms=0)", "()", 1)
	}
	return files
}

// countLog says how often the log has a text.
func (a playedAgent) countLog(text string) int { return strings.Count(a.Log(), text) }

// untilLog waits until the log has a text so many times.
func (a playedAgent) untilLog(t *testing.T, text string, times int) {
	t.Helper()
	for end := time.Now().Add(patience); a.countLog(text) < times; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			log := a.Log()
			t.Fatalf("the log has %q %d times, want %d; its end:\n%s", text, a.countLog(text), times, log[max(0, len(log)-5000):])
		}
	}
}

const (
	saysReady    = `msg="a Python worker is ready"`
	saysLost     = `msg="the Python worker was lost`
	saysReplaced = `msg="a Python worker serves"`
)

// steady waits until every place has its worker and there is a spare, after so
// many workers were lost.
func (a playedAgent) steady(t *testing.T, workers, lost int) {
	t.Helper()
	a.untilLog(t, saysLost, lost)
	a.untilLog(t, saysReady, workers+1+lost)
	a.untilLog(t, saysReplaced, workers-1+lost) // the first place has its worker from the beginning
}

// ended says whether a process is gone.
func ended(pid int) bool { return syscall.Kill(pid, 0) == syscall.ESRCH }

// pid is the process in which something was noted.
func (a playedAgent) pid(t *testing.T, sender, name string) int {
	t.Helper()
	notes := a.notesOf(sender, name)
	if len(notes) == 0 {
		t.Fatalf("%s was not noted for %s", name, sender)
	}
	return notes[len(notes)-1].PID
}

// metric sums up the samples of a metric whose line has all the labels.
func (a playedAgent) metric(t *testing.T, name string, labels ...string) (sum float64) {
	t.Helper()
	page := httptest.NewRecorder()
	a.App.Metrics().ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
samples:
	for line := range strings.Lines(page.Body.String()) {
		if !strings.HasPrefix(line, name+"{") {
			continue
		}
		for _, label := range labels {
			if !strings.Contains(line, label) {
				continue samples
			}
		}
		fields := strings.Fields(line)
		value, err := strconv.ParseFloat(fields[len(fields)-1], 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += value
	}
	return sum
}

// failedRuns are all runs of a conversation that failed, observers' too.
func (a playedAgent) failedRuns(sender string) (out []hook.Run) {
	for _, r := range a.everyRun(sender) {
		if r.Failure != nil {
			out = append(out, r)
		}
	}
	return out
}

// everyRun are all runs in the trace of a conversation.
func (a playedAgent) everyRun(sender string) (out []hook.Run) {
	for _, part := range a.Trace(sender) {
		for _, l := range part.Lines {
			out = append(out, l.Runs...)
		}
	}
	return out
}

func TestTimeLimits(t *testing.T) {
	t.Parallel()
	limits := map[string]int{}
	for _, name := range everyHook() {
		limits[name] = 0
	}
	limits["modify_incoming_message"], limits["modify_model_response"] = 3000, 50
	limits["on_incoming_message"], limits["on_model_response"] = 2000, 30
	a := startPlayed(t, nil, hooksWith(limits))

	t.Run("T60 the limits of all hooks", func(t *testing.T) {
		if got := a.App.Hooks(); len(got) != len(limits) {
			t.Errorf("%d hooks, want %d", len(got), len(limits))
		}
		for _, h := range a.App.Hooks() {
			want := map[hook.Lane]time.Duration{hook.Observe: 100 * time.Millisecond, hook.Modify: 500 * time.Millisecond}[h.Lane]
			_, name, _ := strings.Cut(h.Name, ":")
			if own := limits[strings.TrimSuffix(name, "_hook")]; own > 0 {
				want = time.Duration(own) * time.Millisecond
			}
			if h.Limit != want {
				t.Errorf("%s has %v, want %v", h.Name, h.Limit, want)
			}
		}
	})

	for _, c := range []struct {
		hook   string
		within time.Duration // a wait that is no overrun; 0: not tried
		limit  time.Duration
	}{
		{"modify_outgoing_text", 250 * time.Millisecond, 500 * time.Millisecond},
		{"on_outgoing_text", 30 * time.Millisecond, 100 * time.Millisecond},
		{"modify_incoming_message", time.Second, 3 * time.Second},
		{"on_incoming_message", 700 * time.Millisecond, 2 * time.Second},
		{"modify_model_response", 0, 50 * time.Millisecond},
		{"on_model_response", 0, 30 * time.Millisecond},
	} {
		asked := 0
		run := func(t *testing.T, wait time.Duration) hook.Run {
			asked++
			sender := fmt.Sprint(c.hook, " ", asked)
			a.turn(t, sender, "hello", bodies{c.hook: fmt.Sprintf("await asyncio.sleep(%f)", wait.Seconds())})
			runs := slices.DeleteFunc(a.everyRun(sender), func(r hook.Run) bool { return !strings.HasSuffix(r.Name, ":"+c.hook+"_hook") })
			if len(runs) != 1 {
				t.Fatalf("%s was asked %d times", c.hook, len(runs))
			}
			return runs[0]
		}
		t.Run(fmt.Sprintf("T60 %s has %v", c.hook, c.limit), func(t *testing.T) {
			best := time.Hour
			for range 5 {
				r := run(t, time.Minute)
				if r.Failure == nil || r.Failure.Kind != hook.Timeout || r.Took < c.limit || !strings.Contains(r.Failure.Message, c.limit.String()) {
					t.Fatalf("the trace says %+v, failure %+v", r, r.Failure)
				}
				if best = min(best, r.Took-c.limit); best < 50*time.Millisecond {
					return
				}
			}
			t.Errorf("no overrun ended within 50 ms of the limit; the best was %v late", best)
		})
		if c.within == 0 {
			continue
		}
		t.Run(fmt.Sprintf("T60 %s may take %v", c.hook, c.within), func(t *testing.T) {
			var last hook.Run
			for range 5 { // a busy machine may keep it waiting
				if last = run(t, c.within); last.Failure == nil {
					return
				}
			}
			t.Errorf("it never had the time: %+v", last.Failure)
		})
	}
}

func TestBlockedInterpreter(t *testing.T) {
	t.Parallel()
	const limit = 400 * time.Millisecond
	limits := map[string]int{"on_turn_started": longLimit, "on_turn_finished": longLimit, "modify_model_response": longLimit}
	for _, point := range []string{"incoming_message", "model_request", "tool_result", "outgoing_text"} {
		limits["modify_"+point] = int(limit.Milliseconds())
	}
	a := startPlayed(t, nil, guardedFiles, hooksWith(limits))
	bestTurn, bestOther := time.Hour, time.Hour
	for i, c := range []struct{ name, point, body, heard, status string }{
		{"a sleep", "incoming_message", "STUCK\ntime.sleep(60)", "[incoming failed]", "error"},
		{"a busy loop", "outgoing_text", "STUCK\nwhile True:\n    pass", "done", "completed"},
		{"C code that keeps the interpreter", "model_request", "import ctypes\nSTUCK\nctypes.PyDLL(None).sleep(60)", "[request failed]", "error"},
		{"a pattern that runs away", "tool_result", "import re\nSTUCK\nre.match(r'(a+)+$', 'a' * 60 + 'b')", "done", "completed"},
		{"a later step", "outgoing_text", "await asyncio.sleep(0.01)\nSTUCK\ntime.sleep(60)", "done", "completed"},
		{"a swallowed cancellation", "outgoing_text", "try:\n    await asyncio.sleep(60)\nexcept asyncio.CancelledError:\n    STUCK\n    time.sleep(60)", "done", "completed"},
	} {
		sender, other := c.name, "beside "+c.name
		a.steady(t, 1, i)
		a.Next(sender, apptest.Call("look_up", map[string]any{"item": "chair"}), apptest.Says("done"))
		done := a.send(t.Context(), played(sender, "hello", bodies{"modify_" + c.point: strings.ReplaceAll(c.body, "STUCK", "note('stuck', sender_id=p.sender_id)")}))
		a.waitFor(t, sender, "stuck")
		beside := a.turn(t, other, "hello", nil)
		r := <-done

		t.Run("T61 the turn goes on by the policy: "+c.name, func(t *testing.T) {
			if r.err != nil || r.Text() != c.heard || r.Report.Status != c.status {
				t.Errorf("the user heard %q, status %s, error %v", r.Text(), r.Report.Status, r.err)
			}
			for _, l := range r.Report.Lines {
				if l.Point != c.point || len(l.Runs) == 0 {
					continue
				}
				if f := l.Runs[0].Failure; f == nil || f.Kind != hook.Timeout {
					t.Fatalf("the trace says %+v, failure %+v", l.Runs[0], f)
				}
				late := l.Took - l.Runs[0].Waited - limit
				if bestTurn = min(bestTurn, late); late < 0 || late > 50*time.Millisecond+busyRoom {
					t.Errorf("the turn went on %v after the limit", late)
				}
			}
			if failed := a.failedRuns(sender); len(failed) != 1 {
				t.Errorf("failures: %+v", failed)
			}
		})
		t.Run("T61 other conversations are served: "+c.name, func(t *testing.T) {
			if beside.Text() != "ok" || beside.Report.Status != "completed" {
				t.Errorf("the other user heard %q, status %s", beside.Text(), beside.Report.Status)
			}
			longest := time.Duration(0)
			for _, run := range a.everyRun(other) {
				longest = max(longest, run.Waited)
				if run.Failure != nil {
					t.Errorf("%s failed: %+v", run.Name, run.Failure)
				}
				if run.Waited > limit+time.Second+busyRoom {
					t.Errorf("%s waited %v", run.Name, run.Waited)
				}
			}
			bestOther = min(bestOther, longest-limit)
			if longest < limit/2 {
				t.Errorf("nobody waited: %v", longest)
			}
		})
		t.Run("T61 the interpreter is ended and replaced: "+c.name, func(t *testing.T) {
			a.steady(t, 1, i+1)
			old, now := a.pid(t, sender, "stuck"), a.pid(t, other, "on_turn_finished")
			if !ended(old) || now == old || ended(now) {
				t.Errorf("process %d has ended: %v; process %d serves and has ended: %v", old, ended(old), now, ended(now))
			}
			if n := a.metric(t, "belay_worker_replacements_total", `cause="blocked"`); n != float64(i+1) {
				t.Errorf("%v replacements are counted", n)
			}
			if n := a.countLog("a call blocks the Python worker beyond its limit"); n != i+1 {
				t.Errorf("the log names who blocked %d times", n)
			}
		})
	}
	t.Run("T61 the limits of time", func(t *testing.T) {
		if bestTurn > 50*time.Millisecond {
			t.Errorf("no turn went on within 50 ms of its hook's limit; the best took %v more", bestTurn)
		}
		if bestOther > time.Second {
			t.Errorf("no other conversation was served within 1 s; the best took %v", bestOther)
		}
	})
}

var slowTool = apptest.Files{"tools/slow.py": `from __future__ import annotations

from belay.tools import ToolContext, ToolResult, tool
from lib.played import gate
from lib.probe import note


@tool(description="Takes its time.", timeout=20)
async def slow(context: ToolContext) -> ToolResult:
    note("slow", sender_id=context.sender_id)
    await gate("slow")
    return ToolResult(llm_response={"done": True})
`}

func TestKilledInterpreter(t *testing.T) {
	t.Parallel()
	a := startPlayed(t, nil, slowTool, playedHooks(longLimit, everyHook()...))
	die := func(how string) string {
		return "import ctypes, os, signal\nnote('dying', sender_id=p.sender_id)\ntime.sleep(0.3)\n" + how
	}
	for i, c := range []struct{ name, body string }{
		{"os._exit", die("os._exit(3)")},
		{"a segmentation fault", die("ctypes.string_at(1)")},
		{"the kernel, out of memory", die("os.kill(os.getpid(), signal.SIGKILL)")},
		{"abort, as of failed allocations in C", die("os.abort()")},
		{"in a thread", die("import threading\nthreading.Thread(target=os._exit, args=(4,)).start()\nawait asyncio.sleep(20)")},
	} {
		a.steady(t, 1, i)
		logged := a.countLog(`msg="a hook failed"`)
		flight, tool, dies, waits, next := c.name+" flight", c.name+" tool", c.name, c.name+" waits", c.name+" next"
		inFlight := a.send(t.Context(), played(flight, "hello", bodies{"modify_model_request": "note('gate', sender_id=p.sender_id); await gate('never')"}))
		a.waitFor(t, flight, "gate")
		a.Next(tool, apptest.Call("slow", nil), apptest.Says("done"))
		inTool := a.send(t.Context(), played(tool, "hello", nil))
		a.waitFor(t, tool, "slow")
		dying := a.send(t.Context(), played(dies, "hello", bodies{"modify_outgoing_text": c.body}))
		a.waitFor(t, dies, "dying")
		waiting := a.send(t.Context(), played(waits, "hello", nil)) // its hooks cannot begin: the interpreter is busy dying

		t.Run("T62 the hook and the calls in flight fail: "+c.name, func(t *testing.T) {
			if r := <-dying; r.err != nil || r.Text() != "ok" || r.Report.Status != "completed" { // open
				t.Errorf("the user heard %q, %v", r.Text(), r.err)
			}
			if r := <-inFlight; r.err != nil || r.Text() != "I'm sorry, but I can't answer right now. Please try again." || r.Report.Status != "error" { // closed
				t.Errorf("the user of the call in flight heard %q, %v", r.Text(), r.err)
			}
			for _, sender := range []string{dies, flight} {
				failed := a.failedRuns(sender)
				if len(failed) != 1 || failed[0].Failure.Kind != hook.Crash || !strings.Contains(failed[0].Failure.Message, "worker was lost") {
					t.Errorf("%s: failures %+v", sender, failed)
				}
			}
			if r := <-inTool; r.err != nil || r.Text() != "done" {
				t.Errorf("the user of the tool heard %q, %v", r.Text(), r.err)
			}
			runs := a.Of(tool, conversation.ToolExecuted)
			if len(runs) != 1 || runs[0].Tool.Result != conversation.Unknown || !runs[0].Tool.IsError || len(a.notesOf(tool, "slow")) != 1 {
				t.Errorf("the tool began %d times, the record has %+v", len(a.notesOf(tool, "slow")), runs)
			}
		})
		t.Run("T62 nothing else fails: "+c.name, func(t *testing.T) {
			if r := <-waiting; r.err != nil || r.Text() != "ok" || r.Report.Status != "completed" || len(a.failedRuns(waits)) != 0 {
				t.Errorf("the user who waited heard %q, %v, failures %+v", r.Text(), r.err, a.failedRuns(waits))
			}
			if n := a.countLog(`msg="a hook failed"`) - logged; n != 2 {
				t.Errorf("%d failures are logged, want 2", n)
			}
		})
		t.Run("T62 the next call finds a new worker: "+c.name, func(t *testing.T) {
			if r := a.turn(t, next, "hello", nil); r.Text() != "ok" || len(a.failedRuns(next)) != 0 {
				t.Errorf("the next user heard %q, failures %+v", r.Text(), a.failedRuns(next))
			}
			a.steady(t, 1, i+1)
			old, now := a.pid(t, dies, "dying"), a.pid(t, next, "on_turn_finished")
			if !ended(old) || now == old {
				t.Errorf("process %d has ended: %v; process %d serves", old, ended(old), now)
			}
			if n := a.metric(t, "belay_worker_replacements_total", `cause="died"`); n != float64(i+1) {
				t.Errorf("%v replacements are counted", n)
			}
		})
	}

	t.Run("T62 memory that runs out", func(t *testing.T) {
		// Whether an exception or the end of the process comes of it, the others go on.
		r := a.turn(t, "memory", "hello", bodies{"modify_outgoing_text": `import resource
soft, hard = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (1 << 28, hard))
try:
    hold = [bytearray(1 << 24) for _ in range(1000)]
finally:
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))`})
		if failed := a.failedRuns("memory"); r.Text() != "ok" || len(failed) != 1 || failed[0].Failure.Kind != hook.Crash {
			t.Errorf("the user heard %q, failures %+v", r.Text(), failed)
		}
		if r := a.turn(t, "after", "hello", nil); r.Text() != "ok" || len(a.failedRuns("after")) != 0 {
			t.Errorf("the next user heard %q, failures %+v", r.Text(), a.failedRuns("after"))
		}
	})
}

func TestWhatHooksPrint(t *testing.T) {
	t.Parallel()
	a := startPlayed(t, nil, playedHooks(longLimit, everyHook()...), apptest.Files{
		"hooks/loud.py": "import sys\n\nprint('printed while it is imported')\nprint('and to standard error', file=sys.stderr)\n",
		"tools/loud.py": `from __future__ import annotations

import sys

from belay.tools import ToolContext, ToolResult, tool


@tool(description="Prints.")
async def loud(context: ToolContext) -> ToolResult:
    print("printed by the tool")
    sys.stderr.write("an unfinished line of the tool")
    return ToolResult(llm_response={"done": True})
`})
	frames := []string{ // what the protocol's own frames look like
		`os.write(1, b"\0\0\0\5B\0\0\0\1")`, `os.write(2, b"\0\0\0\6A\0\0\0\1\0")`, `os.write(1, b"\x7f\xff\xff\xffA\0\0\0\1")`, `os.write(1, b"raw \xff bytes\n")`,
		`print("one line " + p.sender_id)`, `print("to standard error " + p.sender_id, file=sys.stderr, flush=True)`,
		`logging.getLogger("clinic").warning("by logging " + p.sender_id)`, `subprocess.run(["echo", "by a child " + p.sender_id])`,
		`print("x" * 100_000)`, `sys.__stdout__.write("no end of line")`,
	}
	body := "import logging, os, subprocess, sys\n" + strings.Join(frames, "\n")

	t.Run("T63 what hooks of both lanes and tools print breaks no call", func(t *testing.T) {
		does := bodies{}
		for _, name := range everyHook() {
			does[name] = body
		}
		a.Next("prints", apptest.Call("loud", nil), apptest.Says("done"))
		r := a.turn(t, "prints", "hello", does)
		if r.Text() != "done" || r.Report.Status != "completed" || len(a.failedRuns("prints")) != 0 {
			t.Errorf("the user heard %q, failures %+v", r.Text(), a.failedRuns("prints"))
		}
		if runs := a.Of("prints", conversation.ToolExecuted); len(runs) != 1 || runs[0].Tool.Result != `{"done": true}` {
			t.Errorf("the record has %+v", runs)
		}
		if a.countLog(saysLost) != 0 {
			t.Error("the worker was lost")
		}
	})
	t.Run("T63 it goes to the log", func(t *testing.T) {
		for _, text := range []string{"printed while it is imported", "and to standard error", "printed by the tool", "an unfinished line of the tool", "one line prints", "to standard error prints",
			"WARNING clinic: by logging prints", "by a child prints", "raw \uFFFD bytes"} {
			a.untilLog(t, text, 1)
		}
	})
	t.Run("T63 megabytes without an end break nothing and do not drown the log", func(t *testing.T) {
		flood := "import sys\nsys.stdout.write('y' * 20_000_000)\nfor i in range(100_000):\n    print(i, 'z' * 100)"
		r := a.turn(t, "floods", "hello", bodies{"on_model_request": flood, "modify_outgoing_text": flood + "\np.text = 'still the answer'"})
		if r.Text() != "still the answer" || len(a.failedRuns("floods")) != 0 {
			t.Errorf("the user heard %q, failures %+v", r.Text(), a.failedRuns("floods"))
		}
		a.untilLog(t, "python printed more than the log takes", 1)
		if n := strings.Count(a.Log(), "python printed"); n > 5000 {
			t.Errorf("%d lines are in the log", n)
		}
	})
}

func TestObserverThatBlocks(t *testing.T) {
	t.Parallel()
	// The modify hooks wait longer behind the observer than they may take.
	limits := map[string]int{}
	for _, name := range everyHook() {
		if limits[name] = 0; strings.HasPrefix(name, "modify_") { // the observers keep the default
			limits[name] = 250
		}
	}
	const own = 100 * time.Millisecond
	a := startPlayed(t, nil, guardedFiles, hooksWith(limits))
	best := time.Hour
	for i, c := range []struct{ point, next string }{
		{"turn_started", "incoming_message"}, {"model_request", "model_request"}, {"tool_result", "tool_result"}, {"outgoing_text", "outgoing_text"},
	} {
		sender := c.point
		a.steady(t, 1, i)
		a.Next(sender, apptest.Call("look_up", map[string]any{"item": "chair"}), apptest.Says("done"))
		r := a.turn(t, sender, "hello", bodies{"on_" + c.point: "if getattr(p, 'iteration', 0) == 0:\n    note('stuck', sender_id=p.sender_id)\n    time.sleep(60)"})

		t.Run("T64 it fails no turn: "+c.point, func(t *testing.T) {
			if r.Text() != "done" || r.Report.Status != "completed" {
				t.Errorf("the user heard %q, status %s", r.Text(), r.Report.Status)
			}
			blocked := 0
			for _, f := range a.failedRuns(sender) {
				if f.Lane == hook.Modify {
					t.Errorf("%s failed: %+v", f.Name, f.Failure)
				} else if f.Point == c.point && f.Failure.Kind == hook.Timeout {
					blocked++
				}
			}
			if blocked != 1 {
				t.Errorf("failures: %+v", a.failedRuns(sender))
			}
		})
		t.Run("T64 who waits is not charged, and is asked in the new worker: "+c.point, func(t *testing.T) {
			runs := a.runsAt(sender, c.next)
			if len(runs) == 0 {
				t.Fatal("nobody waited")
			}
			waited := runs[0].Waited
			best = min(best, waited)
			if waited < 250*time.Millisecond || waited > own+time.Second+busyRoom {
				t.Errorf("it waited %v", waited)
			}
			stuck := a.pid(t, sender, "stuck")
			notes := a.notesOf(sender, "modify_"+c.next)
			if len(notes) == 0 || notes[0].PID == stuck || !ended(stuck) {
				t.Errorf("process %d was blocked and has ended: %v; it was asked in %+v", stuck, ended(stuck), notes)
			}
			if len(notes) != len(runs) {
				t.Errorf("asked %d times, began %d times", len(runs), len(notes))
			}
		})
		t.Run("T79 in order, also through the new worker: "+c.point, func(t *testing.T) {
			var want []string
			for _, l := range r.Report.Lines {
				if l.Kind == "point" && l.Observers > 0 {
					want = append(want, "on_"+l.Point)
				}
				if l.Kind == "point" && l.Asked > 0 {
					want = append(want, "modify_"+l.Point)
				}
			}
			if len(want) < 10 {
				t.Fatalf("the trace has only %v", want)
			}
			expect(t, "hooks", a.asked(sender, everyHook()...), want)
		})
		t.Run("T64 what it costs: "+c.point, func(t *testing.T) {
			if r.Report.Took > own+time.Second+3*busyRoom {
				t.Errorf("the turn took %v", r.Report.Took)
			}
		})
	}
	t.Run("T64 no more than its own limit and 1 s", func(t *testing.T) {
		if best > own+time.Second {
			t.Errorf("no delay was so short; the best was %v", best)
		}
	})
	t.Run("T64 both lanes share an interpreter", func(t *testing.T) {
		a.turn(t, "lanes", "hello", nil)
		for _, n := range a.notesOf("lanes") {
			if first := a.notesOf("lanes")[0]; n.PID != first.PID {
				t.Errorf("%s ran in process %d, %s in %d", n.What, n.PID, first.What, first.PID)
			}
		}
	})
}
