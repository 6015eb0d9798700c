package pyhost

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/internal/finding"
)

const bookingTools = `
from __future__ import annotations
import asyncio, os, time
from belay.tools import InvalidMemoryValue, MemoryAlreadySet, ToolContext, ToolResult, current_turn_context, tool

@tool(description="Finds.")
async def find() -> str:
    return "booking"

@tool(description="Uses memory.")
async def remember(context: ToolContext) -> ToolResult:
    m = context.memory
    got = [m.get("day"), m.get("project.open"), m.get("session.visit.price"), m.get("none", "default"), "customer" in m]
    m.set("customer", "c1")
    m.set("day", "Tuesday")
    m.clear("visit.price")
    m.set("customer", "c2")
    return ToolResult(llm_response=[got, context.skill])

@tool(description="Writes what is written already.")
async def again(value: str, context: ToolContext) -> ToolResult:
    context.memory.set("open", value)
    return ToolResult(llm_response="fine")

@tool(description="Refuses.")
async def refuse(context: ToolContext) -> ToolResult:
    context.memory.set("day", "Sunday")
    raise InvalidMemoryValue("we are closed on Sundays")

@tool(description="Says much.")
async def speak(then: str, context: ToolContext) -> ToolResult:
    await context.send("One moment, ümlaut.")
    context.memory.set("day", "Friday")
    await context.send("Nearly there.")
    match then:
        case "raise":
            raise ValueError
        case "die":
            os._exit(1)
        case "wait":
            try:
                await asyncio.sleep(60)
            finally:
                with open(context.sender_id, "w") as f:
                    f.write(f"{context.is_cancelled()} {bool(context.is_cancelled)}")
                context.memory.set("day", "never")
                await context.send("Too late.")
    return ToolResult(llm_response=[context.is_cancelled(), bool(context.is_cancelled)])

@tool(description="Sends when it has ended.")
async def linger(context: ToolContext) -> str:
    async def later():
        await asyncio.sleep(0)
        try:
            await context.send("I am a ghost.")
        except RuntimeError as e:
            print("refused:", e)
    asyncio.ensure_future(later())
    return "done"

@tool(description="Knows the turn.")
async def turn() -> list:
    now = current_turn_context()
    return [now.sender_id, now.turn_id, now.channel.name, now.call, now.skill, now.turn.text]

@tool(description="Reads what was said.")
async def said(context: ToolContext) -> list:
    from rasa.shared.core.events import UserUttered
    return [[type(e).__name__, e.text, e.metadata, e.timestamp, isinstance(e, UserUttered)] for e in context.events]

@tool(description="Wants more.")
async def more() -> ToolResult:
    return ToolResult(llm_response="done", next=["other"])
`

func skillRig(t *testing.T) *rig {
	return loadRig(t, map[string]string{
		"skills/booking/tools.py": bookingTools,
		"skills/visit/tools/a.py": "from tools.shared import place\nfrom belay.tools import tool\n@tool(description='Finds.')\nasync def find() -> str: return 'visit' + place\n",
		"tools/shared.py":         "from belay.tools import tool\nplace = ' at home'\n@tool(description='Finds.')\nasync def find() -> str: return 'shared'\n",
		"hooks.py": `from belay.hooks import *
from belay.tools import current_turn_context
try:
    current_turn_context()
except LookupError as e:
    nothing = str(e)

@modify_incoming_message()
async def look(message: IncomingMessagePayload) -> IncomingMessagePayload:
    now = current_turn_context()
    return message.model_copy(update={"text": f"{now.sender_id} {now.channel.name} {nothing}"})
`,
	}, func(c *Config) {
		c.Declared = Declared{Project: []string{"customer", "open"}, Skills: map[string][]string{"booking": {"day", "none"}, "visit": {"price"}}}
	})
}

func (r *rig) inSkill(name, args string, limit time.Duration, set ...func(*ToolCall)) ToolAnswer {
	call := ToolCall{
		Tool: name, File: "skills/booking/tools.py", Arguments: json.RawMessage(args), SenderID: "ada", TurnID: "t1", Key: "ada", Limit: limit,
		Channel: json.RawMessage(`{"name":"rest","metadata":{}}`), Call: json.RawMessage(`{"id":5}`),
		Memory: &Memory{
			Values: map[string]json.RawMessage{
				"project.customer": nil, "project.open": json.RawMessage("true"), "booking.day": json.RawMessage(`"Monday"`),
				"booking.none": json.RawMessage("null"), "visit.price": json.RawMessage("2.50"),
			},
			Skill: "booking", Closed: []string{"project.open"},
		},
	}
	for _, f := range set {
		f(&call)
	}
	return r.CallTool(r.Context(), call)
}

func TestToolsOfSkills(t *testing.T) {
	r := skillRig(t)
	t.Run("the catalogue", func(t *testing.T) {
		got := []string{}
		for _, i := range r.Tools() {
			if i.Name == "find" {
				got = append(got, i.Skill+" "+i.File)
			}
			if i.WantsContext != slices.Contains([]string{"remember", "again", "refuse", "speak", "linger", "said"}, i.Name) {
				t.Errorf("info is %+v", i)
			}
		}
		if want := []string{" tools/shared.py", "booking skills/booking/tools.py", "visit skills/visit/tools/a.py"}; !slices.Equal(got, want) {
			t.Errorf("tools are %q", got)
		}
	})
	t.Run("the file tells them apart", func(t *testing.T) {
		for file, want := range map[string]string{
			"": `"shared"`, "tools/shared.py": `"shared"`, "skills/booking/tools.py": `"booking"`, "skills/visit/tools/a.py": `"visit at home"`,
		} {
			a := r.inSkill("find", "{}", 10*time.Second, func(c *ToolCall) { c.File = file })
			if a.Outcome != OK || string(a.Value) != want {
				t.Errorf("answer of %q is %s, %+v", file, a.Value, a)
			}
		}
		if a := r.inSkill("find", "{}", time.Second, func(c *ToolCall) { c.File = "skills/other/tools.py" }); a.Outcome != NotRun {
			t.Errorf("answer is %+v", a)
		}
	})
	t.Run("the turn", func(t *testing.T) {
		a := r.inSkill("turn", "{}", 10*time.Second, func(c *ToolCall) {
			c.Utterances = []Utterance{{By: "user", Text: "hi"}, {By: "user", Text: "yes"}, {By: "bot", Text: "well"}}
		})
		if string(a.Value) != `["ada","t1","rest",{"id":5},"booking","yes"]` {
			t.Errorf("turn is %s", a.Value)
		}
		if a = r.inSkill("turn", "{}", 10*time.Second); string(a.Value) != `["ada","t1","rest",{"id":5},"booking",""]` {
			t.Errorf("turn is %s", a.Value)
		}
		b := r.start(t.Context(), "look", "k", "sender_id", "ada", "channel", map[string]any{"name": "rest", "metadata": map[string]any{}}).wait()
		if got := r.text(b); got != `"ada rest no hook or tool runs: there is no current turn"` {
			t.Errorf("text is %s", got)
		}
	})
	t.Run("what was said", func(t *testing.T) {
		a := r.inSkill("said", "{}", 10*time.Second, func(c *ToolCall) {
			c.Utterances = []Utterance{{By: "user", Text: "hi", Time: 1.5}, {By: "bot", Text: "hello", Metadata: json.RawMessage(`{"utter_action":"utter_greet"}`)}}
		})
		if string(a.Value) != `[["UserUttered","hi",{},1.5,true],["BotUttered","hello",{"utter_action":"utter_greet"},null,false]]` {
			t.Errorf("events are %s, %v", a.Value, a.Failure)
		}
	})
	t.Run("what it wants next", func(t *testing.T) {
		for range 2 {
			if a := r.inSkill("more", "{}", 10*time.Second); string(a.Value) != `"done"` {
				t.Errorf("answer is %+v", a)
			}
		}
		if log := r.log.wait(t, "next of its ToolResult is not acted on"); strings.Count(log, "not acted on") != 1 {
			t.Errorf("log is\n%s", log)
		}
	})
}

func TestMemoryOfTools(t *testing.T) {
	r := skillRig(t)
	t.Run("read and written", func(t *testing.T) {
		a := r.inSkill("remember", "{}", 10*time.Second)
		if want := `[["Monday",true,2.5,"default",false],"booking"]`; a.Outcome != OK || string(a.Value) != want {
			t.Errorf("value is %s, failure %v", a.Value, a.Failure)
		}
		got := ""
		for _, w := range a.Writes {
			got += fmt.Sprintf("%s=%s ", w.Name, w.Value)
		}
		if got != `project.customer="c2" booking.day="Tuesday" visit.price=null ` {
			t.Errorf("writes are %s", got)
		}
		if want := []string{"booking.day", "project.open", "visit.price", "booking.none", "project.customer"}; !slices.Equal(a.Reads, want) {
			t.Errorf("reads are %q", a.Reads)
		}
	})
	t.Run("written once", func(t *testing.T) {
		a := r.inSkill("again", `{"value": "x"}`, 10*time.Second)
		if a.Outcome != Errored || a.Raised != "MemoryAlreadySet" || a.Text != "Project memory field 'open' is already set and cannot be overwritten." || len(a.Writes) > 0 {
			t.Errorf("answer is %+v", a)
		}
		a = r.inSkill("again", `{"value": "x"}`, 10*time.Second, func(c *ToolCall) { c.Memory.Values["project.open"] = json.RawMessage(`"x"`) })
		if a.Outcome != OK || len(a.Writes) > 0 {
			t.Errorf("answer is %+v", a)
		}
	})
	t.Run("refused", func(t *testing.T) {
		a := r.inSkill("refuse", "{}", 10*time.Second)
		if a.Outcome != Errored || a.Raised != "InvalidMemoryValue" || a.Text != "we are closed on Sundays" || len(a.Writes) != 1 {
			t.Errorf("answer is %+v", a)
		}
	})
	t.Run("nothing declared", func(t *testing.T) {
		a := r.inSkill("refuse", "{}", 10*time.Second, func(c *ToolCall) { c.Memory = nil })
		if a.Outcome != Errored || a.Raised != "UndeclaredMemory" || a.Text != "" {
			t.Errorf("answer is %+v", a)
		}
	})
}

func TestWhatToolsSay(t *testing.T) {
	r := skillRig(t)
	said := []string{"One moment, ümlaut.", "Nearly there."}
	for _, c := range []struct {
		then    string
		limit   time.Duration
		outcome Outcome
	}{{"return", 10 * time.Second, OK}, {"raise", 10 * time.Second, Errored}, {"wait", time.Second, TimedOut}, {"die", 10 * time.Second, Unknown}} {
		t.Run("then "+c.then, func(t *testing.T) {
			flag := filepath.Join(t.TempDir(), "flag")
			r.spareReady()
			a := r.inSkill("speak", `{"then": "`+c.then+`"}`, c.limit, func(call *ToolCall) { call.SenderID = flag })
			if a.Outcome != c.outcome || !slices.Equal(a.Said, said) || len(a.Writes) != 1 || string(a.Writes[0].Value) != `"Friday"` {
				t.Errorf("answer is %+v, failure %v", a, a.Failure)
			}
			if c.then == "return" && string(a.Value) != "[false,false]" {
				t.Errorf("value is %s", a.Value)
			}
			if c.then != "wait" {
				return
			}
			r.inSkill("find", "{}", 10*time.Second) // the cancelled one has ended by its answer
			if text, err := os.ReadFile(flag); err != nil || string(text) != "True True" {
				t.Errorf("is_cancelled was %q, %v", text, err)
			}
		})
	}
	t.Run("given up", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		flag := filepath.Join(t.TempDir(), "flag")
		answers := make(chan ToolAnswer, 1)
		call := ToolCall{
			Tool: "speak", Arguments: json.RawMessage(`{"then":"wait"}`), SenderID: flag, Limit: time.Minute,
			Memory: &Memory{Values: map[string]json.RawMessage{"project.day": nil}},
		}
		go func() { answers <- r.CallTool(ctx, call) }()
		for r.saidSoFar() < len(said) {
			time.Sleep(time.Millisecond)
		}
		cancel()
		if a := <-answers; a.Outcome != Unknown || a.Failure.Kind != hook.Cancelled || !slices.Equal(a.Said, said) {
			t.Errorf("answer is %+v", a)
		}
	})
	t.Run("when it has ended", func(t *testing.T) {
		if a := r.inSkill("linger", "{}", 10*time.Second); a.Outcome != OK || len(a.Said) > 0 {
			t.Errorf("answer is %+v", a)
		}
		r.log.wait(t, "refused: the tool has ended")
	})
}

// saidSoFar counts the texts of the calls under way.
func (r *rig) saidSoFar() int {
	p := r.places[0]
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	if p.worker != nil {
		for _, c := range p.worker.live {
			n += len(c.said)
		}
	}
	return n
}

func TestUndeclaredMemoryIsAFinding(t *testing.T) {
	use := "from belay.tools import tool\n@tool(description='x')\nasync def f(context):\n    context.memory.set('day', 1)\n"
	dir := agent(t, map[string]string{"tools/a.py": use, "skills/visit/tools.py": use, "skills/booking/tools.py": use})
	check := func(d Declared) []finding.Finding {
		t.Helper()
		h, err := Check(t.Context(), Config{Dir: dir, Declared: d})
		if err != nil {
			t.Fatal(err)
		}
		return h.Findings()
	}
	if got := check(Declared{}); len(got) != 3 {
		t.Errorf("findings are %+v", got)
	}
	if got := check(Declared{Project: []string{"day"}}); len(got) != 0 {
		t.Errorf("findings are %+v", got)
	}
	got := check(Declared{Skills: map[string][]string{"booking": {"day"}}})
	if len(got) != 1 || got[0].File != "skills/visit/tools.py" || got[0].Line != 4 || got[0].Rule != "undeclared-memory" || !strings.Contains(got[0].Hint, "booking.day") {
		t.Errorf("findings are %+v", got)
	}
}
