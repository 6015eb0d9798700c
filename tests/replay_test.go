package tests

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belay-run/belay/internal/app"
	"github.com/belay-run/belay/internal/app/apptest"
	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/loop"
	"github.com/belay-run/belay/internal/rawjson"
	"github.com/belay-run/belay/internal/server"
	"github.com/belay-run/belay/internal/step"
)

// take is one turn: what was asked of the world and answered, the states of its
// loop, and what it came to.
type take struct {
	in       server.Inbound
	journals []json.RawMessage // of the turn, then of its end
	states   []string
	reply    apptest.Reply
	events   string // of the whole conversation, as JSON
}

// camera takes the turns of one conversation, which run one after another.
type camera struct {
	mu      sync.Mutex
	records []*step.Record
	states  []string
}

func (c *camera) films(cfg *app.Config) {
	cfg.Wrap = func(s step.Steps) step.Steps {
		c.mu.Lock()
		defer c.mu.Unlock()
		r := step.NewRecord(s)
		c.records = append(c.records, r)
		return r
	}
	cfg.Watch = func(s loop.State) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.states = append(c.states, string(rawjson.Must(s)))
	}
}

// cut ends a take.
func (c *camera) cut(a playedAgent, in server.Inbound, reply apptest.Reply) take {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := take{in: in, reply: reply, states: c.states, events: string(rawjson.Must(a.Events(in.Sender)))}
	for _, r := range c.records {
		t.journals = append(t.journals, rawjson.Must(r.Journal()))
	}
	c.records, c.states = nil, nil
	return t
}

// screening answers from a take, and counts how much of it was asked for.
type screening struct {
	*step.Replay
	asked *int
}

func (s screening) Do(c step.Call) (step.Answer, error) {
	*s.asked++
	return s.Replay.Do(c)
}

func (s screening) Now() time.Time {
	*s.asked++
	return s.Replay.Now()
}

// projector runs turns again on their takes.
type projector struct {
	journals []json.RawMessage
	states   []string
	asked    int
	kept     int
	err      error
}

func (p *projector) shows(cfg *app.Config) {
	cfg.Wrap = func(step.Steps) step.Steps {
		var journal []step.Kept
		if len(p.journals) == 0 {
			p.err = errors.New("more steps were wrapped than were recorded")
		} else if err := json.Unmarshal(p.journals[0], &journal); err != nil {
			p.err = err
		} else {
			p.journals = p.journals[1:]
		}
		r, err := step.NewReplay(journal)
		p.kept, p.err = p.kept+len(journal), errors.Join(p.err, err)
		return screening{r, &p.asked}
	}
	cfg.Watch = func(s loop.State) { p.states = append(p.states, string(rawjson.Must(s))) }
	cfg.Clock = func() time.Time { return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) }
	cfg.Client = noModel{}
}

// again runs the take's turn.
func (p *projector) again(a playedAgent, t take) (apptest.Reply, error) {
	*p = projector{journals: t.journals}
	r, err := a.Send(context.Background(), t.in)
	return r, errors.Join(err, p.err)
}

// noModel is a model that nobody may ask.
type noModel struct{}

func (noModel) Name() string { return "scripted" }

func (noModel) Complete(context.Context, chat.Request, func(string)) (chat.Response, error) {
	return chat.Response{}, errors.New("the model was asked in a turn that is run again")
}

var replayFiles = apptest.Files{
	"agent.yml": "agent:\n  id: test\n  persona: You are a test.\nbelay:\n  limits:\n    iterations: 5\n",
	"responses.yml": `responses:
  utter_session_start:
    - text: Hello there.
      metadata: {rephrase: true}
  utter_paid:
    - text: "Paid {amount}."
      metadata: {rephrase: true}
`,
	"references/shop.md": "# Warranty\n\nThe warranty lasts two years.\n",
	"lib/shop.py": `from lib.played import gate
from lib.probe import note


async def use(name, context, **arguments):
    note("tool " + name, sender_id=context.sender_id)
    if arguments.get("item") == "slow":
        await gate("never")
    return {"done": name, **arguments}
`,
	"tools/shop.py": `from __future__ import annotations

from belay.tools import ToolContext, ToolResult, tool
from lib.shop import use


@tool(description="Looks an item up.")
async def look_up(context: ToolContext, item: str = "") -> ToolResult:
    return ToolResult(llm_response=await use("look_up", context, item=item))


@tool(description="Pays.", requires_confirmation=True, on_success="utter_paid")
async def pay(context: ToolContext, amount: int) -> ToolResult:
    return ToolResult(llm_response=await use("pay", context, amount=amount))
`,
}

// deaf are the files of an agent that ends when any of its Python is asked, and
// finds something else when it searches.
var deaf = apptest.Files{
	"lib/shop.py":        "import os\nfrom lib.probe import note\n\n\nasync def use(name, context, **arguments):\n    note('asked', sender_id=context.sender_id)\n    os._exit(1)\n",
	"lib/played.py":      "import os\nfrom lib.probe import note\n\n\nasync def play(name, p):\n    note('asked', sender_id=p.sender_id)\n    os._exit(1)\n",
	"references/shop.md": "# Warranty\n\nThere is none.\n",
}

// filmedTurn is a message, what hooks and model do, and when the user stops it.
type filmedTurn struct {
	name, text string
	live       bool
	does       bodies
	answers    []apptest.Answer
	until      string // note at which the turn is cancelled
	status     string
}

// withoutID is a tool call that the provider gave no id.
func withoutID(context.Context, chat.Request, func(string)) (chat.Response, error) {
	return chat.Response{ToolCalls: []chat.ToolCall{{Name: "look_up", Arguments: json.RawMessage(`{"item":"lamp"}`)}}}, nil
}

func filmedTurns(stop func()) []filmedTurn {
	busy := bodies{
		"modify_incoming_message":  "p.text += ' [incoming]'",
		"modify_model_request":     "p.messages.append({'role': 'system', 'content': '[request]', 'meta': 12345678901234567890})\np.model_settings = {'temperature': 0.25, 'seed': 7}",
		"modify_model_response":    "if p.text == 'draft':\n    retry('be polite')\nif p.text:\n    p.text += ' [response]'",
		"modify_tool_call":         "p.arguments = {**p.arguments, 'item': 'table'} if p.tool_name == 'look_up' else p.arguments",
		"modify_tool_result":       "p.value = p.value + ' [result]'",
		"modify_knowledge_query":   "p.query = 'warranty'",
		"modify_knowledge_results": "p.passages.append({'text': '[passage]', 'source': None, 'odd': 1.50})",
		"modify_outgoing_text":     "p.text += ' [outgoing]'",
	}
	batch := apptest.SaysAndCalls("let me look", apptest.C{Name: "search_knowledge", Args: map[string]any{"query": "?"}}, apptest.C{Name: "look_up", Args: map[string]any{"item": "chair"}})
	look := apptest.Call("look_up", map[string]any{"item": "chair"})
	wait := "note('stop now', sender_id=p.sender_id)\nawait gate('never')"
	return []filmedTurn{
		{name: "all ten points, a greeting, a draft sent back", text: "hello", does: busy, status: "completed",
			answers: []apptest.Answer{apptest.Says("Welcome!"), batch, apptest.Says("draft"), apptest.Says("done")}},
		{name: "a confirmation is asked for", text: "pay 12", does: busy, status: "completed", answers: []apptest.Answer{apptest.Call("pay", map[string]any{"amount": 12})}},
		{name: "and given", text: "yes", does: busy, status: "completed",
			answers: []apptest.Answer{apptest.Call("resolve_tool_confirmation", map[string]any{"confirmed": true}), apptest.Says("It is paid."), apptest.Says("anything else?")}},
		{name: "the message is rejected", text: "spam", does: bodies{"modify_incoming_message": "veto('spam')"}, status: "completed"},
		{name: "the incoming hook fails", text: "hello", does: bodies{"modify_incoming_message": "1 / 0"}, status: "error"},
		{name: "a tool-call hook fails", text: "hello", does: bodies{"modify_tool_call": "1 / 0"}, answers: []apptest.Answer{batch}, status: "error"},
		{name: "a query hook fails", text: "hello", does: bodies{"modify_knowledge_query": "return 7"}, answers: []apptest.Answer{batch}, status: "completed"},
		{name: "the provider fails", text: "hello", answers: []apptest.Answer{look, apptest.Fails(500)}, status: "error"},
		{name: "empty completions", text: "hello", answers: []apptest.Answer{apptest.Empty(), apptest.Empty(), apptest.Says("at last")}, status: "completed"},
		{name: "calls without ids, up to the cap", text: "hello", answers: []apptest.Answer{withoutID, withoutID, withoutID, withoutID, withoutID, withoutID}, status: "error"},
		{name: "the outgoing text is rejected", text: "hello", does: bodies{"modify_outgoing_text": "veto('no')"}, answers: []apptest.Answer{apptest.Says("rude")}, status: "completed"},
		{name: "cancelled in a hook", text: "hello", does: bodies{"modify_tool_call": wait}, answers: []apptest.Answer{batch}, until: "stop now", status: "cancelled"},
		{name: "cancelled in a tool", text: "hello", answers: []apptest.Answer{apptest.Call("look_up", map[string]any{"item": "slow"})}, until: "tool look_up", status: "cancelled"},
		{name: "cancelled in the model", text: "hello", status: "cancelled", answers: []apptest.Answer{func(ctx context.Context, _ chat.Request, _ func(string)) (chat.Response, error) {
			stop()
			<-ctx.Done()
			return chat.Response{}, ctx.Err()
		}}},
		{name: "the session ends", text: "bye", answers: []apptest.Answer{apptest.SaysAndCalls("goodbye", apptest.C{Name: "hangup"})}, status: "completed"},
		{name: "and another begins", text: "hello", answers: []apptest.Answer{apptest.Says("Welcome back!"), apptest.Says("yes?")}, status: "completed"},
	}
}

// film runs turns in one conversation.
func film(t *testing.T, a playedAgent, c *camera, turns []filmedTurn, stop *func()) []take {
	t.Helper()
	var takes []take
	for _, s := range turns {
		in := played("ann", s.text, s.does)
		in.Live = s.live
		in.Message.Channel = rawjson.Must(map[string]any{"name": "test", "metadata": map[string]any{"scene": s.name}})
		ctx, cancel := context.WithCancel(t.Context())
		*stop = cancel
		a.Next("ann", s.answers...)
		seen := len(a.notesOf("ann", s.until))
		done := a.send(ctx, in)
		if s.until != "" {
			for end := time.Now().Add(patience); countNotes(t, a, "ann", s.until) <= seen; time.Sleep(5 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("%s: nobody noted %q", s.name, s.until)
				}
			}
			cancel()
		}
		r := <-done
		cancel()
		if r.err != nil || r.Report.Status != s.status {
			t.Fatalf("%s: status %s, error %v\n%s", s.name, r.Report.Status, r.err, a.Log())
		}
		takes = append(takes, c.cut(a, in, r.Reply))
	}
	return takes
}

// liveTurns are those of a channel that takes pieces, with no hook that holds
// them back.
func liveTurns(stop func()) []filmedTurn {
	hang := func(ctx context.Context, _ chat.Request, delta func(string)) (chat.Response, error) {
		delta("half a ")
		stop()
		<-ctx.Done()
		return chat.Response{}, ctx.Err()
	}
	fail := func(_ context.Context, _ chat.Request, delta func(string)) (chat.Response, error) {
		delta("half a ")
		return chat.Response{}, &chat.Error{Status: 503, Message: "overloaded"}
	}
	look := apptest.C{Name: "look_up", Args: map[string]any{"item": "chair"}}
	return []filmedTurn{
		{name: "a text in pieces", text: "hello", live: true, status: "completed",
			answers: []apptest.Answer{apptest.Says("Welcome!"), apptest.SaysAndCalls("let me look", look), apptest.Pieces("it ", "is ", "there")}},
		{name: "cancelled in a piece", text: "hello", live: true, status: "cancelled", answers: []apptest.Answer{hang}},
		{name: "the provider fails in a piece", text: "hello", live: true, status: "error", answers: []apptest.Answer{fail}},
		{name: "after that", text: "hello", live: true, status: "completed", answers: []apptest.Answer{apptest.Says("yes?")}},
	}
}

func TestRunAgain(t *testing.T) {
	t.Parallel()
	live := slices.DeleteFunc(everyHook(), func(name string) bool {
		return slices.Contains([]string{"modify_model_response", "modify_tool_call", "modify_outgoing_text"}, name)
	})
	var stop func()
	cancel := func() { stop() }
	t.Run("held", func(t *testing.T) { runAgain(t, everyHook(), filmedTurns(cancel), &stop) })
	t.Run("live", func(t *testing.T) { runAgain(t, live, liveTurns(cancel), &stop) })
}

func runAgain(t *testing.T, names []string, turns []filmedTurn, stop *func()) {
	c, p := &camera{}, &projector{}
	hooks := playedHooks(longLimit, names...)
	a := startPlayed(t, []func(*app.Config){c.films}, replayFiles, hooks)
	takes := film(t, a, c, turns, stop)

	still := maps.Clone(replayFiles)
	maps.Copy(still, hooks)
	maps.Copy(still, deaf)
	b := startPlayed(t, []func(*app.Config){p.shows}, still)
	for i, take := range takes {
		t.Run("run again on its answers: "+turns[i].name, func(t *testing.T) {
			r, err := p.again(b, take)
			if err != nil {
				t.Fatal(err)
			}
			if len(take.states) != len(p.states) {
				t.Errorf("%d states, were %d", len(p.states), len(take.states))
			}
			for i := range min(len(take.states), len(p.states)) {
				if p.states[i] != take.states[i] {
					t.Errorf("state %d is\n%s\nand was\n%s", i, p.states[i], take.states[i])
				}
			}
			if got := string(rawjson.Must(b.Events("ann"))); got != take.events {
				t.Errorf("the record is\n%s\nand was\n%s", got, take.events)
			}
			expect(t, "sent", r.Texts, take.reply.Texts)
			expect(t, "the turn", outcome(r), outcome(take.reply))
			if p.asked != p.kept || len(p.journals) != 0 {
				t.Errorf("%d of %d answers were asked for", p.asked, p.kept)
			}
		})
	}

	t.Run("running again asks nobody", func(t *testing.T) {
		if n := len(b.Notes()); n != 0 {
			t.Errorf("hooks or tools were asked %d times", n)
		}
		if n := len(b.Requests()); n != 0 {
			t.Errorf("the model was asked %d times", n)
		}
	})
	t.Run("nothing was left out", func(t *testing.T) {
		kinds := stepKinds(t, takes)
		for _, kind := range []string{"hook", "observe", "model", "id", "tool", "search", "now"} {
			if kinds[kind] == 0 && (kind != "search" || len(names) == len(everyHook())) {
				t.Errorf("no step of the kind %s", kind)
			}
		}
		for _, name := range names {
			if len(a.notesOf("ann", name)) == 0 && len(names) == len(everyHook()) {
				t.Errorf("%s was not asked", name)
			}
		}
	})
	t.Run("another message is no run again", func(t *testing.T) {
		other := takes[0]
		other.in.Sender, other.in.Message.Text = "bob", "something else"
		if _, err := p.again(b, other); !errors.Is(err, step.ErrDiffers) {
			t.Errorf("error %v, want %v", err, step.ErrDiffers)
		}
	})
	t.Run("another answer leads elsewhere", func(t *testing.T) {
		other := takes[0]
		other.journals = slices.Clone(other.journals)
		other.journals[0] = json.RawMessage(strings.ReplaceAll(string(other.journals[0]), "Welcome!", "Be welcome!"))
		fresh := startPlayed(t, []func(*app.Config){p.shows}, still)
		if _, err := p.again(fresh, other); err == nil && string(rawjson.Must(fresh.Events("ann"))) == other.events {
			t.Error("the same came of other answers")
		}
	})
}

// stepKinds counts the steps of all turns by their kind.
func stepKinds(t *testing.T, takes []take) map[string]int {
	t.Helper()
	kinds := map[string]int{}
	for _, take := range takes {
		for _, j := range take.journals {
			var kept []step.Kept
			if err := json.Unmarshal(j, &kept); err != nil {
				t.Fatal(err)
			}
			for _, k := range kept {
				kinds[k.Kind]++
			}
		}
	}
	return kinds
}

// countNotes counts notes and does not wait for observers.
func countNotes(t *testing.T, a playedAgent, sender, name string) int {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(a.Dir, "notes.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(b)) {
		var note apptest.Note
		if json.Unmarshal([]byte(line), &note) == nil && note.What == name && note.Data["sender_id"] == sender {
			n++
		}
	}
	return n
}

// outcome is what a report says, without times.
func outcome(r apptest.Reply) any {
	lines := append([]loop.Line(nil), r.Report.Lines...)
	for i := range lines {
		lines[i].At = time.Time{}
		if lines[i].Kind == "point" {
			lines[i].Took = 0
		}
	}
	return []any{r.Report.Turn, r.Report.Status, r.Report.Why, r.Report.Ended, lines}
}
