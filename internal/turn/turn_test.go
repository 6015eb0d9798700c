package turn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/conversation"
	"github.com/belay-run/belay/internal/loop"
	"github.com/belay-run/belay/internal/step"
	"github.com/belay-run/belay/internal/wording"
)

// answers is a model that gives the next of its completions.
type answers struct {
	list []chat.Response
	at   atomic.Int64
	seen []chat.Request
}

func (a *answers) Name() string { return "test" }

func (a *answers) Complete(_ context.Context, req chat.Request, delta func(string)) (chat.Response, error) {
	a.seen = append(a.seen, req)
	r := a.list[(a.at.Add(1)-1)%int64(len(a.list))]
	if delta != nil && r.Text != nil {
		delta(*r.Text)
	}
	return r, nil
}

func says(text string) chat.Response { return chat.Response{Text: &text} }

func calls(name, args string) chat.Response {
	return chat.Response{ToolCalls: []chat.ToolCall{{ID: "call_" + name, Type: "function", Name: name, Arguments: json.RawMessage(args)}}}
}

type oneTool struct{ confirm bool }

func (o oneTool) List() []Tool {
	return []Tool{{Tool: chat.Tool{Name: "book", Parameters: json.RawMessage(`{"type":"object"}`)}, Confirm: o.confirm}}
}

func (oneTool) Run(_ context.Context, c ToolCall) ToolAnswer {
	return ToolAnswer{Outcome: ToolOK, Text: `{"booked": ` + string(c.Arguments) + `}`}
}

// screen keeps what went to the user.
type screen struct {
	texts, pieces []string
	streamed      bool // says the last text
}

func (s *screen) Delta(p string) { s.pieces = append(s.pieces, p) }

func (s *screen) Text(u Utterance) {
	s.texts, s.streamed = append(s.texts, u.Text), u.Streamed
}

func testAgent(t *testing.T, m chat.Model, tools Tools, hooks ...*hook.Hook) *Agent {
	t.Helper()
	engine, err := hook.NewEngine(nil, hooks...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(engine.Wait)
	var ids atomic.Int64
	return &Agent{ID: "test", Profile: Profile{Persona: "You are a test."}, Hooks: engine, Model: m, Tools: tools, Words: wording.New("en", nil),
		Logger: slog.New(slog.DiscardHandler), Clock: time.Now, NewID: func() string { return fmt.Sprintf("id-%d", ids.Add(1)) }}
}

func run(t *testing.T, a *Agent, rec *conversation.Record, text string, opt Options) (Report, *screen) {
	t.Helper()
	out := &screen{}
	r, err := a.Run(context.Background(), rec, Message{Text: text}, out, opt)
	if err != nil {
		t.Fatal(err)
	}
	return r, out
}

func TestRunAgainOnItsAnswers(t *testing.T) {
	m := &answers{list: []chat.Response{calls("book", `{"slot":"<10:00>"}`), says("Booked.")}}
	mask := &hook.Hook{Name: "mask", Point: hook.PointNamed(hook.IncomingMessage), Lane: hook.Modify,
		Func: func(_ context.Context, p hook.Payload) (hook.Verdict, error) {
			return hook.Go(p.Change("text", strings.ReplaceAll(p.Text("text"), "4111", "****"))), nil
		}}
	a := testAgent(t, m, oneTool{}, mask)
	rec := conversation.Of(nil, conversation.ID{Sender: "u"}, nil)
	var record *step.Record
	var states []string
	watch := func(s loop.State) {
		b, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		states = append(states, string(b))
	}
	var journal []step.Kept
	r, out := run(t, a, rec, "book for card 4111", Options{Watch: watch, Wrap: func(s step.Steps) step.Steps {
		if record != nil {
			journal = append(journal, record.Journal()...)
		}
		record = step.NewRecord(s)
		return record
	}})
	journal = append(journal, record.Journal()...)
	if r.Status != Completed || len(out.texts) != 1 || out.texts[0] != "Booked." {
		t.Fatalf("report %+v, texts %q", r, out.texts)
	}

	first := states
	states = nil
	replay, err := step.NewReplay(journal)
	if err != nil {
		t.Fatal(err)
	}
	again := conversation.Of(nil, conversation.ID{Sender: "u"}, nil)
	asked := len(m.seen)
	_, out2 := run(t, a, again, "book for card 4111", Options{Watch: watch, Wrap: func(step.Steps) step.Steps { return replay }})
	if len(m.seen) != asked {
		t.Error("the run again asked the model")
	}
	if strings.Join(first, "\n") != strings.Join(states, "\n") {
		t.Errorf("the states differ:\n%s\n\n%s", strings.Join(first, "\n"), strings.Join(states, "\n"))
	}
	e1, _ := json.Marshal(rec.Events())
	e2, _ := json.Marshal(again.Events())
	if string(e1) != string(e2) || out2.texts[0] != out.texts[0] {
		t.Errorf("the records differ:\n%s\n%s", e1, e2)
	}
	if strings.Contains(string(e1), "4111") {
		t.Error("the record has the words as typed")
	}
}

func TestConfirmation(t *testing.T) {
	m := &answers{list: []chat.Response{calls("book", `{"slot":"10"}`), calls("resolve_tool_confirmation", `{"confirmed":true}`), says("Done.")}}
	a := testAgent(t, m, oneTool{confirm: true})
	rec := conversation.Of(nil, conversation.ID{Sender: "u"}, nil)
	_, out := run(t, a, rec, "book 10", Options{})
	if rec.Pending() == nil || len(out.texts) != 1 {
		t.Fatalf("pending %v, texts %q", rec.Pending(), out.texts)
	}
	_, out = run(t, a, rec, "yes", Options{})
	if rec.Pending() != nil || len(out.texts) != 1 || out.texts[0] != "Done." {
		t.Fatalf("pending %v, texts %q", rec.Pending(), out.texts)
	}
	for _, e := range conversation.Export(rec.Events()) {
		b, _ := json.Marshal(e)
		t.Log(string(b))
	}
	for _, msg := range conversation.View(rec.Events(), 0) {
		t.Log(string(msg))
	}
}

// failing is a store whose first write fails.
type failing struct {
	conversation.Store
	failed bool
	kept   []conversation.Event
}

func (f *failing) Append(_ context.Context, _ conversation.ID, events []conversation.Event) error {
	if !f.failed {
		f.failed = true
		return errors.New("the disk is full")
	}
	f.kept = append(f.kept, events...)
	return nil
}

func TestPiecesHeldBackAreNotSaidToHaveStreamed(t *testing.T) {
	a := testAgent(t, &answers{list: []chat.Response{says("hello")}}, nil)
	store := &failing{}
	out := &screen{}
	_, err := a.Run(t.Context(), conversation.Of(store, conversation.ID{Sender: "u"}, nil), Message{Text: "hi"}, out, Options{Live: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(out.pieces) != 0 || len(out.texts) != 1 || out.streamed {
		t.Errorf("pieces %q, texts %q, streamed %v: a client that goes by the pieces shows nothing", out.pieces, out.texts, out.streamed)
	}
	if len(store.kept) == 0 {
		t.Error("nothing was recorded")
	}
}
