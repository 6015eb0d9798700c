package pyhost

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belay-run/belay/hook"
)

// The agent of these tests keeps a list in a module's globals.
const notebook = shout + `
import asyncio, time

said: dict[str, list[str]] = {}

@on_incoming_message(timeout_ms=5000)
async def note(message: IncomingMessagePayload) -> None:
    said.setdefault(message.sender_id, []).append(message.text)
    await asyncio.sleep(0.01)

@modify_outgoing_text(timeout_ms=5000)
async def tell(message: OutgoingTextPayload) -> OutgoingTextPayload:
    return message.model_copy(update={"text": ",".join(said.pop(message.sender_id, []))})

@on_outgoing_text(timeout_ms=100)
async def sleeper(message: OutgoingTextPayload) -> None:
    time.sleep(60)

@on_tool_call(timeout_ms=5000)
async def waiter(call: ToolCallPayload) -> None:
    await asyncio.sleep(60)
`

func TestOrder(t *testing.T) {
	for _, workers := range []int{1, 3} {
		t.Run(fmt.Sprintf("calls of a conversation begin in order and find its state, %d workers", workers), func(t *testing.T) {
			r := newRig(t, notebook, func(c *Config) { c.Workers = workers })
			var all sync.WaitGroup
			for i := range 20 {
				who := fmt.Sprintf("user-%d", i)
				all.Go(func() {
					for range 5 {
						var want []string
						for j := range 10 {
							want = append(want, strconv.Itoa(j))
							r.start(t.Context(), "note", who, "sender_id", who, "text", strconv.Itoa(j))
						}
						a := r.start(t.Context(), "tell", who, "sender_id", who).wait()
						if a.Failure != nil || len(a.Verdict.Changes) != 1 || string(a.Verdict.Changes[0].Value) != strconv.Quote(strings.Join(want, ",")) {
							t.Errorf("got %+v, failure %v", a.Verdict, a.Failure)
							return
						}
					}
				})
			}
			all.Wait()
		})
	}
}

func TestPlaceOf(t *testing.T) {
	count := make([]int, 4)
	for i := range 4000 {
		key := fmt.Sprintf("conversation-%d", i)
		p := placeOf(key, 4)
		if p != placeOf(key, 4) {
			t.Fatal("a key moved")
		}
		count[p]++
	}
	for i, n := range count {
		if n < 800 {
			t.Errorf("place %d has %d of 4000 keys", i, n)
		}
	}
}

func TestWaitBehindAnObserver(t *testing.T) {
	r := newRig(t, notebook)
	r.spareReady()
	sleeper := r.start(t.Context(), "sleeper", "a")
	var waits []*pending
	for i := range 20 {
		waits = append(waits, r.start(t.Context(), "shout", "b", "text", strconv.Itoa(i)))
	}
	for i, w := range waits {
		a := w.wait()
		if got := r.text(a); got != strconv.Quote(strconv.Itoa(i)+"!") {
			t.Errorf("text is %s", got)
		}
		if a.Waited < 100*time.Millisecond || a.Waited > 1100*time.Millisecond+busyRoom || a.Took > busyRoom {
			t.Errorf("waited %v, took %v", a.Waited, a.Took)
		}
	}
	r.failed(sleeper.wait(), hook.Timeout)
	if e := r.events.waitFor(t, StateLost); e.Again != 20 || e.Lost != 0 || e.Hook != "hooks.py:sleeper" {
		t.Errorf("event is %+v", e)
	}
}

// A call with a long limit that gives way must not keep a hook that blocks beyond
// its own alive; nor may it be taken for the one that blocks.
func TestBlockedWhileAnotherHasTime(t *testing.T) {
	r := newRig(t, notebook)
	r.spareReady()
	waiter := r.start(t.Context(), "waiter", "a")
	sleeper := r.start(t.Context(), "sleeper", "b")
	start := time.Now()
	if got := r.text(r.ask("shout", "text", "hallo")); got != `"hallo!"` {
		t.Errorf("text is %s", got)
	}
	if took := time.Since(start); took > 1200*time.Millisecond+busyRoom {
		t.Errorf("waited %v", took)
	}
	r.failed(sleeper.wait(), hook.Timeout)
	f := r.failed(waiter.wait(), hook.Crash)
	if !strings.Contains(f.Message, "hooks.py:sleeper blocked it") {
		t.Errorf("failure is %+v", f)
	}
}

// A call that keeps the interpreter busy within its limit is waited for, although
// another has run out of time meanwhile.
func TestBusyWithinItsLimit(t *testing.T) {
	r := newRig(t, shout+`
import asyncio, time

@on_outgoing_text(timeout_ms=50)
async def short(message: OutgoingTextPayload) -> None:
    await asyncio.sleep(0.02)

@modify_tool_call(timeout_ms=10_000)
async def busy(call: ToolCallPayload) -> ToolCallPayload:
    await asyncio.sleep(0.005)
    time.sleep(1.5)
    return call
`)
	r.spareReady()
	pid := r.pid()
	busy := r.start(t.Context(), "busy", "a")
	r.failed(r.start(t.Context(), "short", "b").wait(), hook.Timeout)
	shouted := r.start(t.Context(), "shout", "c", "text", "hallo")
	if a := busy.wait(); a.Failure != nil {
		t.Errorf("failure is %+v", a.Failure)
	}
	if got := r.text(shouted.wait()); got != `"hallo!"` || r.pid() != pid {
		t.Errorf("text is %s, worker %d, was %d", got, r.pid(), pid)
	}
}

func TestBlockedByNoCall(t *testing.T) {
	r := newRig(t, shout+`
import asyncio, time

@modify_outgoing_text()
async def plant(message: OutgoingTextPayload) -> OutgoingTextPayload:
    asyncio.get_running_loop().call_later(0.05, time.sleep, 60)
    return message
`)
	r.spareReady()
	pid := r.pid()
	r.ask("plant")
	start := time.Now()
	for r.pid() == pid { // until a call falls into the trap
		if got := r.text(r.ask("shout", "text", "hallo")); got != `"hallo!"` {
			t.Errorf("text is %s", got)
		}
	}
	if took := time.Since(start); took > 2*time.Second {
		t.Errorf("waited %v", took)
	}
}

func TestCancel(t *testing.T) {
	r := newRig(t, notebook+`
ended = []

@modify_tool_result(timeout_ms=5000)
async def slow(result: ToolResultPayload) -> ToolResultPayload:
    try:
        await asyncio.sleep(30)
    except asyncio.CancelledError:
        ended.append(result.tool_name)
        raise
    return result

@modify_knowledge_query()
async def which(query: KnowledgeQueryPayload) -> KnowledgeQueryPayload:
    return query.model_copy(update={"query": ",".join(ended)})

@modify_model_response()
async def block(response: ModelResponsePayload) -> ModelResponsePayload:
    time.sleep(0.3)
    return response
`)
	t.Run("a running call", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		slow := r.start(ctx, "slow", "k", "tool_name", "book")
		r.ask("shout") // slow has begun: it came first
		cancel()
		r.failed(slow.wait(), hook.Cancelled)
		if got := r.text(r.ask("which", "query", "?")); got != `"book"` {
			t.Errorf("the hook was not cancelled: %s", got)
		}
	})
	t.Run("a call that waits", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		block := r.start(t.Context(), "block", "k")
		waits := r.start(ctx, "note", "k", "sender_id", "x", "text", "never")
		cancel()
		r.failed(waits.wait(), hook.Cancelled)
		if a := block.wait(); a.Failure != nil {
			t.Errorf("failure is %+v", a.Failure)
		}
		if got := r.text(r.ask("tell", "sender_id", "x", "text", "?")); got != `""` {
			t.Errorf("a call that was withdrawn ran: %s", got)
		}
	})
}

func TestTimeCountsFromTheBeginning(t *testing.T) {
	r := newRig(t, `
import asyncio

@modify_incoming_message(timeout_ms=60)
async def quick(message: IncomingMessagePayload) -> IncomingMessagePayload:
    await asyncio.sleep(0.02)
    return message

@modify_outgoing_text()
async def leave(message: OutgoingTextPayload) -> OutgoingTextPayload:
    import os
    os._exit(0)
`)
	// Without a spare the calls wait for a whole start of a worker.
	r.failed(r.ask("leave"), hook.Crash)
	for range 3 {
		if a := r.ask("quick"); a.Failure != nil {
			t.Errorf("failure is %+v after %v", a.Failure, a.Waited)
		}
	}
}

// 200 conversations at once, each with its own texts.
func TestNoCrossTalk(t *testing.T) {
	r := newRig(t, notebook)
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			for j := range 10 {
				text := fmt.Sprintf("%d-%d-%s", i, j, strings.Repeat("x", i*20))
				a := r.start(t.Context(), "shout", strconv.Itoa(i), "text", text).wait()
				if a.Failure != nil || len(a.Verdict.Changes) != 1 || string(a.Verdict.Changes[0].Value) != strconv.Quote(text+"!") {
					t.Errorf("got %+v, failure %v", a.Verdict, a.Failure)
				}
			}
		})
	}
	all.Wait()
}

// A worker that does not read for a while must not block those who ask.
func TestBacklog(t *testing.T) {
	r := newRig(t, shout+`
import time

@modify_outgoing_text(timeout_ms=5000)
async def block(message: OutgoingTextPayload) -> OutgoingTextPayload:
    time.sleep(0.7)
    return message
`)
	block := r.start(t.Context(), "block", "k")
	text := strings.Repeat("y", 200<<10)
	raw := json.RawMessage(strconv.Quote(text))
	var waits []*pending
	start := time.Now()
	for range 100 {
		waits = append(waits, r.start(t.Context(), "shout", "k", "text", raw))
	}
	if took := time.Since(start); took > 600*time.Millisecond {
		t.Errorf("asking took %v", took)
	}
	for _, w := range waits {
		if got := r.text(w.wait()); len(got) != len(text)+3 {
			t.Errorf("text has %d bytes", len(got))
		}
	}
	if a := block.wait(); a.Failure != nil {
		t.Errorf("failure is %+v", a.Failure)
	}
}
