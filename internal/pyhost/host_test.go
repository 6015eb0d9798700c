package pyhost

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/belay-run/belay/hook"
)

const shout = `
@modify_incoming_message()
async def shout(message: IncomingMessagePayload) -> IncomingMessagePayload:
    return message.model_copy(update={"text": message.text + "!"})
`

func TestAsk(t *testing.T) {
	r := newRig(t, shout+`
import asyncio

@on_incoming_message(timeout_ms=1500, final=True)
async def look(message: IncomingMessagePayload) -> None:
    message.text = "changed"

@modify_outgoing_text()
async def veto(message: OutgoingTextPayload) -> OutgoingTextPayload:
    raise HookRejection(reason="not today")

@modify_model_response()
async def again(response: ModelResponsePayload) -> ModelResponsePayload:
    raise RetryModel("try again")
`)
	t.Run("a changed field comes back", func(t *testing.T) {
		a := r.ask("shout", "text", "hallo")
		if got := r.text(a); got != `"hallo!"` {
			t.Errorf("text is %s", got)
		}
		if a.Took <= 0 || a.Waited <= 0 || len(a.Notes) > 0 {
			t.Errorf("answer is %+v", a)
		}
	})
	t.Run("what the catalogue says", func(t *testing.T) {
		k := r.hook("look")
		if k.Lane != hook.Observe || !k.Final || k.Limit != 1500*time.Millisecond || k.File != "hooks.py" || k.Line < 8 || k.Host != hook.Host(r.Host) {
			t.Errorf("hook is %+v", k)
		}
		if k := r.hook("shout"); k.Limit != 500*time.Millisecond || k.Point != hook.PointNamed(hook.IncomingMessage) || k.Name != "hooks.py:shout" {
			t.Errorf("hook is %+v", k)
		}
	})
	t.Run("what an observer changes is told, for the trace", func(t *testing.T) {
		a := r.ask("look", "text", "hallo")
		if run := hook.Watched(r.hook("look"), a); a.Failure != nil || run.Said != "seen" || run.Dropped == "" {
			t.Errorf("answer is %+v", a)
		}
	})
	t.Run("signals come with their place", func(t *testing.T) {
		a := r.ask("veto", "text", "hallo")
		if a.Failure != nil || a.Verdict.Kind != hook.Reject || a.Verdict.Reason != "not today" || a.File != "hooks.py" || a.Line < 10 {
			t.Errorf("answer is %+v", a)
		}
		a = r.ask("again", "text", "hallo")
		if a.Failure != nil || a.Verdict.Kind != hook.Retry || a.Verdict.Feedback != "try again" {
			t.Errorf("answer is %+v", a)
		}
	})
	t.Run("a context that has ended asks nobody", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		r.failed(r.start(ctx, "shout", "k").wait(), hook.Cancelled)
	})
}

func TestNoteOfLostState(t *testing.T) {
	r := newRig(t, shout+guard("leave", "", "import os\nos._exit(3)"))
	r.spareReady()
	r.failed(r.ask("leave"), hook.Crash)
	t.Run("the next answer says that module state was lost", func(t *testing.T) {
		a := r.ask("shout")
		if len(a.Notes) != 1 || !strings.Contains(a.Notes[0], "state was lost") || !strings.Contains(a.Notes[0], "exit status 3") {
			t.Errorf("notes are %q", a.Notes)
		}
		if a := r.ask("shout"); len(a.Notes) != 0 {
			t.Errorf("the note came twice: %q", a.Notes)
		}
		if a := r.start(t.Context(), "shout", "another").wait(); len(a.Notes) != 1 {
			t.Errorf("another conversation is not told: %q", a.Notes)
		}
	})
	t.Run("and so does the log", func(t *testing.T) {
		r.log.wait(t, "the Python worker was lost, and the state that modules kept in it", "exit status 3")
	})
}

func TestStuckWorkerShowsItsStack(t *testing.T) {
	r := newRig(t, shout+guard("sleep", "timeout_ms=50", "import time\ntime.sleep(60)"))
	r.failed(r.ask("sleep"), hook.Timeout)
	r.log.wait(t, "blocked it beyond its limit", "hooks.py", "in sleep")
}
