package pyhost

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/belay-run/belay/hook"
)

// guard makes a modify hook of outgoing text with that body.
func guard(name, decorator, body string) string {
	return fmt.Sprintf("\n@modify_outgoing_text(%s)\nasync def %s(message: OutgoingTextPayload) -> OutgoingTextPayload:\n    %s\n    return message\n",
		decorator, name, strings.ReplaceAll(strings.TrimSpace(body), "\n", "\n    "))
}

// watcher makes an observe hook of outgoing text with that body. An agent may have
// many of them at one point, so they share an interpreter.
func watcher(name, decorator, body string) string {
	return fmt.Sprintf("\n@on_outgoing_text(%s)\nasync def %s(message: OutgoingTextPayload) -> None:\n    %s\n",
		decorator, name, strings.ReplaceAll(strings.TrimSpace(body), "\n", "\n    "))
}

func TestRaise(t *testing.T) {
	cases := []struct{ raise, want string }{
		{"raise ValueError('secret words')", "ValueError: secret words"},
		{"raise SystemExit(3)", "SystemExit: 3"},
		{"raise KeyboardInterrupt()", "KeyboardInterrupt"},
		{"raise asyncio.CancelledError()", "CancelledError"},
		{"raise GeneratorExit()", "GeneratorExit"},
		{"raise ExceptionGroup('two', [ValueError('a'), HookRejection('b')])", "ExceptionGroup: two (2 sub-exceptions)"},
		{"raise StopIteration()", "RuntimeError: coroutine raised StopIteration"},
		{"deep(0)", "RecursionError: maximum recursion depth exceeded"},
		{"raise Rude()", "Rude: (its text cannot be made)"},
		{"await asyncio.gather(down(), down())", "KeyError: 'down'"},
	}
	hooks := shout + `
import asyncio

class Rude(Exception):
    def __str__(self):
        raise SystemExit(1)

def deep(n):
    return deep(n + 1) + 1

async def down():
    raise KeyError("down")
`
	for i, c := range cases {
		hooks += watcher(fmt.Sprintf("bad%d", i), "timeout_ms=5000", c.raise)
	}
	// Signals in observers are findings of the check; the host runs them all the same.
	r := newRig(t, strings.ReplaceAll(hooks, "HookRejection('b')", "[HookRejection][0]('b')"))
	pid := r.pid()
	for i, c := range cases {
		t.Run(c.raise, func(t *testing.T) {
			name := fmt.Sprintf("bad%d", i)
			f := r.failed(r.ask(name), hook.Crash)
			if !strings.HasPrefix(f.Message, c.want) {
				t.Errorf("message is %q", f.Message)
			}
			if f.File != "hooks.py" || f.Line < 10 || !strings.Contains(f.Traceback, " in "+name) || strings.Contains(f.Traceback, "secret") || len(f.Traceback) > 8000 {
				t.Errorf("failure is %+v", f)
			}
			if got := r.text(r.ask("shout", "text", "hallo")); got != `"hallo!"` || r.pid() != pid {
				t.Errorf("text is %s, worker %d, was %d", got, r.pid(), pid)
			}
		})
	}
}

func TestWrongReturn(t *testing.T) {
	for _, c := range []struct{ body, want string }{
		{"return None", "returned None instead of an OutgoingTextPayload"},
		{"return [HookRejection][0]('no')", "returned a HookRejection instead of an OutgoingTextPayload"},
		{"return message.model_copy(update={'text': 5})", "field 'text'"},
		{"return message.model_copy(update={'text': 'x' * (100 << 20)})", "more than 16777216"},
	} {
		t.Run(c.body, func(t *testing.T) {
			r := newRig(t, shout+guard("bad", "timeout_ms=20000", c.body))
			f := r.failed(r.ask("bad"), hook.WrongReturn)
			if !strings.Contains(f.Message, c.want) || strings.Contains(f.Message, "WrongReturn") || f.File != "hooks.py" || f.Line == 0 {
				t.Errorf("failure is %+v", f)
			}
			if got := r.text(r.ask("shout", "text", "hallo")); got != `"hallo!"` {
				t.Errorf("text is %s", got)
			}
		})
	}
}

// What ends or breaks a worker fails the call that did it, and only that.
func TestLostWorker(t *testing.T) {
	cases := []struct{ name, body, why string }{
		{"os._exit", "os._exit(3)", "exit status 3"},
		{"a segmentation fault", "ctypes.string_at(1)", "segmentation fault"},
		{"killed", "os.kill(os.getpid(), signal.SIGKILL)", "signal: killed"},
		{"out of memory", "resource.setrlimit(resource.RLIMIT_AS, (1 << 28, 1 << 28))\nhold = [bytearray(1 << 24) for _ in range(1000)]", ""},
		{"abort", "os.abort()", "signal: aborted"},
		{"recursion in C", "sys.setrecursionlimit(10**9)\ndeep()", "segmentation fault"},
		{"junk in the pipe", "os.write(4, b'hello, is anybody there')\nawait asyncio.sleep(5)", "something else was written to its pipe"},
		{"a frame too long", "os.write(4, b'\\x7f\\xff\\xff\\xffA\\0\\0\\0\\1')\nawait asyncio.sleep(5)", "something else was written to its pipe"},
		{"a call that was never made", "os.write(4, b'\\0\\0\\0\\5B\\0\\1\\0\\0')\nawait asyncio.sleep(5)", "something else was written to its pipe"},
		{"its pipe closed", "os.close(4)", "it ended with exit status 71"},
		{"all descriptors closed", "os.closerange(3, 256)\nawait asyncio.sleep(5)", ""},
		{"sys.exit in the end", "import threading\nthreading.Thread(target=os._exit, args=(4,)).start()\nawait asyncio.sleep(5)", "exit status 4"},
	}
	hooks := shout + `
import asyncio, ctypes, os, resource, signal, sys

class Deep:
    def __repr__(self):
        return repr(self)

def deep():
    return repr(Deep())
`
	for i, c := range cases {
		hooks += watcher(fmt.Sprintf("bad%d", i), "timeout_ms=4000", c.body)
	}
	r := newRig(t, hooks)
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r.spareReady()
			r.events.forget()
			a := r.ask(fmt.Sprintf("bad%d", i))
			if a.Failure != nil && (strings.HasPrefix(a.Failure.Message, "MemoryError") || strings.HasPrefix(a.Failure.Message, "RecursionError")) {
				return // this interpreter got away with an exception
			}
			f := r.failed(a, hook.Crash)
			if !strings.Contains(f.Message, c.why) || f.File != "hooks.py" {
				t.Errorf("failure is %+v", f)
			}
			if got := r.text(r.ask("shout", "text", "hallo")); got != `"hallo!"` {
				t.Errorf("text is %s", got)
			}
			if e := r.events.waitFor(t, StateLost); e.Lost != 1 || e.Why == "" {
				t.Errorf("event is %+v", e)
			}
			r.events.waitFor(t, WorkerReplaced)
		})
	}
}

func TestInputClosed(t *testing.T) {
	r := newRig(t, shout+"\nimport os\n"+guard("bad", "", "os.close(3)"))
	r.spareReady()
	r.ask("bad") // its own answer still gets through
	if got := r.text(r.ask("shout", "text", "hallo")); got != `"hallo!"` {
		t.Errorf("text is %s", got)
	}
	r.events.waitFor(t, WorkerReplaced)
}

func TestBlocked(t *testing.T) {
	cases := []struct{ name, body string }{
		{"a sleep", "time.sleep(60)"},
		{"a busy loop", "while True: pass"},
		{"C code that keeps the interpreter", "ctypes.PyDLL(None).sleep(60)"},
		{"a regular expression", "re.match(r'(a+)+$', 'a' * 60 + 'b')"},
		{"in a later step", "await asyncio.sleep(0.01)\ntime.sleep(60)"},
		{"in a task of the hook", "await asyncio.gather(late())"},
		{"in a destructor", "message.text = Slow()\nmessage.text = ''"},
		{"after swallowing the cancellation", "try:\n    await asyncio.sleep(60)\nexcept asyncio.CancelledError:\n    time.sleep(60)"},
		{"in a serialiser", ""}, // of the modify hook below
	}
	hooks := shout + `
import asyncio, ctypes, re, time
from typing import Any
from pydantic import BaseModel, model_serializer

class Slow(str):
    def __del__(self):
        while True: pass

class Spin(BaseModel):
    @model_serializer
    def spin(self) -> Any:
        while True: pass

async def late():
    await asyncio.sleep(0.01)
    time.sleep(60)

@modify_tool_call(timeout_ms=100)
async def bad8(call: ToolCallPayload) -> ToolCallPayload:
    return call.model_copy(update={"arguments": {"x": Spin()}})
`
	for i, c := range cases[:len(cases)-1] {
		hooks += watcher(fmt.Sprintf("bad%d", i), "timeout_ms=100", c.body)
	}
	r := newRig(t, hooks)
	best := time.Hour
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r.spareReady()
			r.events.forget()
			a := r.start(t.Context(), fmt.Sprintf("bad%d", i), "a").wait()
			r.failed(a, hook.Timeout)
			if best = min(best, a.Took-100*time.Millisecond); a.Took > 100*time.Millisecond+busyRoom {
				t.Errorf("the timeout came after %v", a.Took)
			}
			start := time.Now()
			if got := r.text(r.ask("shout", "text", "hallo")); got != `"hallo!"` {
				t.Errorf("text is %s", got)
			}
			if took := time.Since(start); took > time.Second+busyRoom {
				t.Errorf("the next call waited %v", took)
			}
			r.events.waitFor(t, WorkerReplaced)
		})
	}
	if best > 50*time.Millisecond {
		t.Errorf("no timeout came within 50 ms of the limit; the best came %v late", best)
	}
}

func TestSwallowedCancellation(t *testing.T) {
	r := newRig(t, shout+"\nimport asyncio\n"+guard("bad", "timeout_ms=50", `
for _ in range(40):
    try:
        await asyncio.sleep(0.05)
    except asyncio.CancelledError:
        pass
message.text = "late"`))
	pid := r.pid()
	r.failed(r.ask("bad"), hook.Timeout)
	for range 20 {
		if got := r.text(r.ask("shout", "text", "hallo")); got != `"hallo!"` {
			t.Fatalf("text is %s", got)
		}
	}
	if e := r.events.waitFor(t, StillRuns); e.Hook != "hooks.py:bad" {
		t.Errorf("event is %+v", e)
	}
	if r.pid() != pid {
		t.Error("the worker was replaced although it lives")
	}
}

func TestForkedChild(t *testing.T) {
	for _, c := range []struct{ name, body string }{
		{"that comes back", "os.fork()"},
		{"that comes back later", "pid = os.fork()\nawait asyncio.sleep(0.05)"},
		{"of C code that comes back", "ctypes.CDLL(None).fork()"},
		{"that stays", "pid = os.fork()\nif pid == 0:\n    time.sleep(60)"},
		{"that leaves the group and stays", "pid = os.fork()\nif pid == 0:\n    os.setsid()\n    time.sleep(3)\n    os._exit(0)"},
		{"of C code that leaves the group and keeps the pipes", "if ctypes.CDLL(None).fork() == 0:\n    os.setsid()\n    time.sleep(3)\n    os._exit(0)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, shout+"\nimport asyncio, ctypes, os, time\n"+guard("bad", "timeout_ms=2000", c.body)+`
@modify_tool_call()
async def leave(call: ToolCallPayload) -> ToolCallPayload:
    os._exit(0)
`)
			r.spareReady()
			pid := r.pid()
			if a := r.ask("bad"); a.Failure != nil {
				t.Fatalf("failure is %+v", a.Failure)
			}
			for range 5 {
				if got := r.text(r.ask("shout", "text", "hallo")); got != `"hallo!"` || r.pid() != pid {
					t.Fatalf("text is %s, worker %d, was %d", got, r.pid(), pid)
				}
			}
			start := time.Now()
			r.failed(r.ask("leave"), hook.Crash)
			if took := time.Since(start); took > time.Second {
				t.Errorf("the death was seen after %v", took)
			}
			if got := r.text(r.ask("shout", "text", "hallo")); got != `"hallo!"` {
				t.Errorf("text is %s", got)
			}
		})
	}
}

func TestWhatHooksPrint(t *testing.T) {
	r := newRig(t, shout+`
import logging, os, subprocess, sys, threading
`+guard("talk", "timeout_ms=20000", `
print("to standard output")
print("to standard error", file=sys.stderr)
logging.getLogger("clinic").warning("from logging")
os.write(1, b"raw \xff bytes without an end")
subprocess.run(["echo", " from a child"])
print("x" * 100_000)
threading.Thread(target=lambda: sys.exit("from a thread")).start()`)+`
@modify_tool_call(timeout_ms=20000)
async def flood(call: ToolCallPayload) -> ToolCallPayload:
    for i in range(200_000):
        print(i, "x" * 50)
    return call
`)
	t.Run("goes to the log", func(t *testing.T) {
		if a := r.ask("talk"); a.Failure != nil {
			t.Fatalf("failure is %+v", a.Failure)
		}
		log := r.log.wait(t, "to standard output", "to standard error", "WARNING clinic: from logging", "raw � bytes", "from a child", "cut_bytes=95904")
		if i := strings.Index(log, strings.Repeat("x", maxLine+1)); i >= 0 {
			t.Error("a long line was not cut")
		}
	})
	t.Run("does not drown it", func(t *testing.T) {
		if a := r.ask("flood"); a.Failure != nil {
			t.Fatalf("failure is %+v", a.Failure)
		}
		r.log.wait(t, "python printed more than the log takes")
		if n := len(r.log.String()); n > 1<<20 {
			t.Errorf("the log has %d bytes", n)
		}
		if e := r.events.waitFor(t, OutputSuppressed); e.Bytes == 0 {
			t.Errorf("event is %+v", e)
		}
	})
	if got := r.text(r.ask("shout", "text", "hallo")); got != `"hallo!"` {
		t.Errorf("text is %s", got)
	}
}
