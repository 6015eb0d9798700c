package pyhost

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/belay-run/belay/hook"
)

func TestTimes(t *testing.T) {
	asked := time.Now()
	at := func(ms int) time.Time { return asked.Add(time.Duration(ms) * time.Millisecond) }
	for name, c := range map[string]struct {
		begun, now          time.Time
		ran, waited, lasted int
	}{
		"begun and answer are read at once": {at(30), at(30), 20, 10, 20},
		"begun is read in time":             {at(10), at(31), 20, 10, 20},
		"the worker did not tell":           {at(10), at(30), 0, 10, 20},
		"it never began":                    {time.Time{}, at(30), 0, 30, 0},
		"the worker tells more than can be": {at(10), at(30), 500, 0, 30},
	} {
		call := call{asked: asked, begun: c.begun}
		waited, took := call.times(c.now, time.Duration(c.ran)*time.Millisecond)
		if waited != time.Duration(c.waited)*time.Millisecond || took != time.Duration(c.lasted)*time.Millisecond {
			t.Errorf("%s: waited %v and took %v, want %d and %d ms", name, waited, took, c.waited, c.lasted)
		}
	}
}

// What a hook or tool takes is told as it was, however late the host reads that
// it began.
func TestTookIsTheRunItself(t *testing.T) {
	const busy, least = 20 * time.Millisecond, 15 * time.Millisecond
	r := loadRig(t, map[string]string{
		"hooks.py": `
from belay.hooks import *
from lib.busy import work

@modify_outgoing_text()
async def goes_on(p: OutgoingTextPayload) -> OutgoingTextPayload:
    work()
    return p

@modify_incoming_message()
async def rejects(p: IncomingMessagePayload) -> IncomingMessagePayload:
    work()
    raise HookRejection(reason="no")

@modify_model_request()
async def crashes(p: ModelRequestPayload) -> ModelRequestPayload:
    work()
    raise ValueError

@on_model_response()
async def looks(p: ModelResponsePayload) -> None:
    work()
`,
		"tools.py": `
from belay.tools import tool
from lib.busy import work

@tool(description="Works.")
async def works() -> str:
    work()
    return "done"

@tool(description="Fails.")
async def fails() -> str:
    work()
    raise ValueError
`,
		"lib/busy.py": `
import time

def work():
    end = time.perf_counter() + 0.02
    while time.perf_counter() < end:
        pass
`,
	})
	check := func(name string, start time.Time, waited, took time.Duration) {
		t.Helper()
		whole := time.Since(start)
		if took < least || waited < 0 || waited+took > whole {
			t.Errorf("%s is busy for %v: waited %v and took %v, of %v in all", name, busy, waited, took, whole)
		}
	}
	for range 5 {
		for _, name := range []string{"goes_on", "rejects", "crashes", "looks"} {
			start := time.Now()
			a := r.ask(name)
			check(name, start, a.Waited, a.Took)
		}
		for name, outcome := range map[string]Outcome{"works": OK, "fails": Errored} {
			start := time.Now()
			a := r.CallTool(t.Context(), ToolCall{Tool: name, Arguments: json.RawMessage(`{}`), Limit: 10 * time.Second})
			if a.Outcome != outcome {
				t.Fatalf("answer is %+v, failure %v", a, a.Failure)
			}
			check(name, start, a.Waited, a.Took)
		}
	}
	// A call that its worker did not end has the host's own time.
	if a := r.CallTool(t.Context(), ToolCall{Tool: "works", Limit: time.Millisecond}); a.Outcome != TimedOut || a.Failure.Kind != hook.Timeout || a.Took <= 0 {
		t.Errorf("answer is %+v, failure %v", a, a.Failure)
	}
}
