package tests

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/internal/app/apptest"
	"github.com/belay-run/belay/internal/conversation"
	"github.com/belay-run/belay/internal/loop"
	"github.com/belay-run/belay/internal/server"
	"github.com/belay-run/belay/internal/turn"
)

// standing is what must hold of one point, written out by hand.
type standing struct {
	id, point, payload string
	modify             bool
	signal             string // the one that counts there: reject, retry
	closed             bool
	// change is what the modify hook puts in, in Python, and shows the text by
	// which one sees it in the texts or the requests of the turn.
	change, shows string
	// heard and status are those of a turn whose modify hook failed.
	heard, status string
}

var standings = []standing{
	{id: "T14", point: "turn_started", payload: "TurnStartedPayload"},
	{id: "T15", point: "turn_finished", payload: "TurnFinishedPayload"},
	{id: "T16", point: "incoming_message", payload: "IncomingMessagePayload", modify: true, signal: "reject", closed: true,
		change: `{"text": p.text + " [incoming]"}`, shows: "[incoming]",
		heard: "I'm sorry, but I couldn't process your message. Please try again.", status: "error"},
	{id: "T17", point: "model_request", payload: "ModelRequestPayload", modify: true, closed: true,
		change: `{"messages": [*p.messages, {"role": "system", "content": "[request]"}]}`, shows: "[request]",
		heard: "I'm sorry, but I can't answer right now. Please try again.", status: "error"},
	{id: "T18", point: "model_response", payload: "ModelResponsePayload", modify: true, signal: "retry",
		change: `{"text": p.text and "[response]"}`, shows: "[response]"},
	{id: "T19", point: "tool_call", payload: "ToolCallPayload", modify: true, signal: "retry", closed: true,
		change: `{"arguments": {**p.arguments, "more": "[call]"}}`, shows: "[call]",
		heard: "I'm sorry, but I couldn't carry that out. Nothing has been done. Please try again.", status: "error"},
	{id: "T20", point: "tool_result", payload: "ToolResultPayload", modify: true,
		change: `{"value": "[result]"}`, shows: "[result]"},
	{id: "T21", point: "knowledge_query", payload: "KnowledgeQueryPayload", modify: true, closed: true,
		change: `{"query": "warranty"}`, shows: "[two years]", heard: "done", status: "completed"},
	{id: "T22", point: "knowledge_results", payload: "KnowledgeResultsPayload", modify: true,
		change: `{"passages": [*p.passages, {"text": "[passage]"}]}`, shows: "[passage]"},
	{id: "T23", point: "outgoing_text", payload: "OutgoingTextPayload", modify: true, signal: "reject",
		change: `{"text": p.text + " [outgoing]"}`, shows: "[outgoing]"},
}

// actLib lets a sender's id say what which hook does in its first turn:
// "modify:tool_call:crash".
const actLib = `import asyncio

from belay.hooks import Channel, HookRejection, RetryModel
from lib.probe import note

_turns = {}
_sent_back = set()


def part(lane, point, payload):
    sender = payload.sender_id
    note(f"{lane} {point}", sender=sender, dump=payload.model_dump())
    if (lane, point) == ("observe", "turn_started"):
        _turns[sender] = _turns.get(sender, 0) + 1
    of_lane, _, rest = sender.partition(":")
    of_point, _, what = rest.partition(":")
    if (lane, point) != (of_lane, of_point) or (_turns[sender] > 1 and point != "turn_started"):
        return ""
    if what == "retry" and lane == "modify":
        if sender in _sent_back:
            return ""
        _sent_back.add(sender)
    if what not in ("pass", "change", "return"):
        spoil(payload)
    return what


def spoil(value):
    """Changes everything in place that can be."""
    if isinstance(value, dict):
        for key, inner in list(value.items()):
            if isinstance(inner, (dict, list)):
                spoil(inner)
            value[key] = "SPOILT"
    elif isinstance(value, list):
        for inner in value:
            if isinstance(inner, (dict, list)):
                spoil(inner)
        value.clear()
    else:
        for name in type(value).model_fields:
            inner = getattr(value, name)
            if isinstance(inner, (dict, list, Channel)):
                spoil(inner)
            setattr(value, name, "SPOILT" if isinstance(inner, str) else inner)


def exception(what, lane, point):
    text = f"planted {what} {lane} {point}"
    return {"reject": HookRejection(reason=text), "retry": RetryModel(feedback=text), "crash": ValueError(text)}[what]


async def forever():
    await asyncio.Event().wait()
`

// hooksOf writes hooks of both lanes for every point, and a final observer.
func hooksOf(points []standing) string {
	var b strings.Builder
	b.WriteString("from __future__ import annotations\n\nfrom belay.hooks import *\nfrom lib.act import exception, forever, part\nfrom lib.probe import note\n")
	for _, s := range points {
		fmt.Fprintf(&b, `

@on_%[1]s(timeout_ms=1500)
async def see_%[1]s(p: %[2]s) -> None:
    what = part("observe", "%[1]s", p)
    if what in ("reject", "retry", "crash"):
        raise exception(what, "observe", "%[1]s")
    if what == "timeout":
        await forever()
    if what == "return":
        return p.model_copy(update={"sender_id": "SPOILT", "text": "SPOILT", "messages": [], "value": "SPOILT"})


@on_%[1]s(timeout_ms=1500, final=True)
async def after_%[1]s(p: %[2]s) -> None:
    note("final %[1]s", sender=p.sender_id, dump=p.model_dump())
`, s.point, s.payload)
		if !s.modify {
			continue
		}
		fmt.Fprintf(&b, `

@modify_%[1]s(timeout_ms=1500)
async def decide_%[1]s(p: %[2]s) -> %[2]s:
    what = part("modify", "%[1]s", p)
    if what in ("reject", "retry", "crash"):
        raise exception(what, "modify", "%[1]s")
    if what == "timeout":
        await forever()
    if what == "change":
        return p.model_copy(update=%[3]s)
    return p
`, s.point, s.payload, s.change)
	}
	return b.String()
}

// stage is an agent with a hook of both lanes at every point, after one
// conversation for each thing that a hook can do there.
type stage struct {
	*apptest.Agent
	hooks string
	said  map[string]apptest.Reply
	notes []apptest.Note
}

func newStage(t *testing.T) *stage {
	s := &stage{hooks: hooksOf(standings), said: map[string]apptest.Reply{}}
	s.Agent = apptest.Start(t, apptest.Files{
		"hooks.py": s.hooks, "lib/act.py": actLib,
		"references/shop.md": "# Refund\n\nA refund takes [five days].\n\n# Warranty\n\nThe warranty lasts [two years].\n",
	}, apptest.Play(apptest.Call("search_knowledge", map[string]any{"query": "refund"}), apptest.Says("done")))
	senders := []string{"pass"}
	for _, p := range standings {
		for _, what := range []string{"spoil", "return", "reject", "retry", "crash", "timeout"} {
			senders = append(senders, "observe:"+p.point+":"+what)
		}
		for _, what := range []string{"change", "reject", "retry", "crash", "timeout"} {
			if p.modify {
				senders = append(senders, "modify:"+p.point+":"+what)
			}
		}
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	places := make(chan struct{}, 12)
	for _, sender := range senders {
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			r, err := s.Send(context.Background(), server.Inbound{Sender: sender, Message: turn.Message{Text: "what about a refund?"}})
			mu.Lock()
			defer mu.Unlock()
			if s.said[sender] = r; err != nil {
				t.Errorf("%s: %v", sender, err)
			}
		})
	}
	wg.Wait()
	s.notes = s.Notes()
	return s
}

// transcript is all that a turn leads to: what the user heard, what the model
// was asked, what the record has.
func (s *stage) transcript(sender string) string {
	var b strings.Builder
	r := s.said[sender]
	fmt.Fprintf(&b, "status %s\nheard %q\n", r.Report.Status, r.Texts)
	for _, q := range s.RequestsOf(sender) {
		fmt.Fprintf(&b, "request %s %v\n", q.Messages, q.Settings)
	}
	for _, e := range s.Events(sender) {
		e.Turn, e.At = "", r.Report.Began
		raw, err := json.Marshal(e)
		if err != nil {
			s.T.Fatal(err)
		}
		fmt.Fprintf(&b, "event %s\n", raw)
	}
	return strings.ReplaceAll(b.String(), r.Report.Began.Format("2006-01-02T15:04:05"), "")
}

// same fails the test when a turn came to anything else than one in which no hook
// did anything.
func (s *stage) same(t *testing.T, sender string) {
	t.Helper()
	if got, want := mask(s.transcript(sender)), mask(s.transcript("pass")); got != want {
		t.Errorf("%s: the turn went another way:\n%s\nwithout the hook's doing:\n%s", sender, got, want)
	}
}

// runs gives the trace's lines of one hook.
func (s *stage) runs(sender, point string, lane hook.Lane) (out []hook.Run) {
	for _, part := range s.Trace(sender) {
		for _, l := range part.Lines {
			for _, r := range l.Runs {
				if r.Point == point && r.Lane == lane {
					out = append(out, r)
				}
			}
		}
	}
	return out
}

// run gives the first run of one hook.
func (s *stage) run(sender string, row standing, lane hook.Lane) hook.Run {
	name := map[hook.Lane]string{hook.Observe: "hooks.py:see_", hook.Modify: "hooks.py:decide_"}[lane] + row.point
	for _, r := range s.runs(sender, row.point, lane) {
		if r.Name == name {
			return r
		}
	}
	return hook.Run{}
}

// line gives the trace's first line of a point.
func (s *stage) line(sender, point string) *loop.Line {
	for _, part := range s.Trace(sender) {
		for i, l := range part.Lines {
			if l.Kind == "point" && l.Point == point {
				return &part.Lines[i]
			}
		}
	}
	return nil
}

func TestPoints(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	rows := map[string]standing{}
	for _, row := range standings {
		rows[row.point] = row
	}
	fired := map[string]int{}
	for _, n := range s.notes {
		if n.Data["sender"] == "pass" {
			fired[n.What]++
		}
	}
	for _, p := range hook.Points {
		if p.Dialect != hook.Turn {
			continue
		}
		row, known := rows[p.Name]
		if !known {
			t.Errorf("nothing is written here of the point %s", p.Name)
			continue
		}
		delete(rows, p.Name)
		t.Run(row.id+" "+p.Title+": what it allows", func(t *testing.T) { row.declared(t, p) })
		t.Run(row.id+" "+p.Title+": hooks of both lanes are asked", func(t *testing.T) {
			if fired["observe "+p.Name] == 0 || (fired["modify "+p.Name] > 0) != row.modify {
				t.Errorf("asked: %d observers, %d modify hooks", fired["observe "+p.Name], fired["modify "+p.Name])
			}
			if l := s.line("pass", p.Name); l == nil || l.Observers != 2 || (l.Asked == 1) != row.modify || l.Outcome != "continue" {
				t.Errorf("the trace says %+v", l)
			}
		})
		if row.modify {
			s.modifies(t, row)
		}
	}
	for _, row := range rows {
		t.Errorf("%s: there is no point %s", row.id, row.point)
	}
	s.dropped(t)
	s.observers(t)
	s.secrets(t)
}

// declared compares the engine's own table with the one above.
func (row standing) declared(t *testing.T, p *hook.Point) {
	want := map[string]hook.Kinds{"": hook.KindsOf(hook.Continue), "reject": hook.KindsOf(hook.Continue, hook.Reject), "retry": hook.KindsOf(hook.Continue, hook.Retry)}
	if !p.Observe || p.Modify != row.modify || p.Payload != row.payload {
		t.Errorf("observe %v, modify %v, payload %s", p.Observe, p.Modify, p.Payload)
	}
	if row.modify && (p.Verdicts != want[row.signal] || (p.OnFailure == hook.Closed) != row.closed) {
		t.Errorf("verdicts %b, policy %s", p.Verdicts, p.OnFailure)
	}
	if row.modify {
		return
	}
	// A modify hook here is a decorator that does not exist.
	source := fmt.Sprintf("from belay.hooks import modify_%[1]s, %[2]s\n\n\n@modify_%[1]s()\nasync def no(p: %[2]s) -> %[2]s:\n    return p\n", row.point, row.payload)
	found := check(t, apptest.Files{"hooks.py": source})
	if !slices.ContainsFunc(found, func(f spot) bool { return f == spot{"hooks.py", 4, "unknown-point"} }) {
		t.Errorf("findings: %v", found)
	}
}

// modifies proves what a modify hook of a point can do.
func (s *stage) modifies(t *testing.T, row standing) {
	sender := func(what string) string { return "modify:" + row.point + ":" + what }
	t.Run(row.id+" what a modify hook changes goes on", func(t *testing.T) {
		if strings.Contains(s.transcript("pass"), row.shows) {
			t.Errorf("%s is there without the hook", row.shows)
		}
		if r := s.said[sender("change")]; !strings.Contains(s.transcript(sender("change")), row.shows) || r.Report.Status != "completed" {
			t.Errorf("%s is missing:\n%s", row.shows, s.transcript(sender("change")))
		}
	})
	for _, signal := range []string{"reject", "retry"} {
		name := signalNames[signal]
		if signal == row.signal {
			t.Run(row.id+" "+name+" counts", func(t *testing.T) { s.counts(t, row.point, sender(signal)) })
		} else {
			t.Run(row.id+" "+name+" is dropped", func(t *testing.T) { s.same(t, sender(signal)) })
		}
	}
	for _, what := range []string{"crash", "timeout"} {
		t.Run(row.id+" "+what, func(t *testing.T) { s.fails(t, row, sender(what), what) })
	}
}

// counts proves that a signal did what it is for.
func (s *stage) counts(t *testing.T, point, sender string) {
	r, asked := s.said[sender], s.Prompts(sender)
	switch point {
	case "incoming_message":
		if r.Text() != "I'm sorry, but I can't help with that message." || len(asked) != 0 {
			t.Errorf("the user heard %q, the model was asked %d times", r.Text(), len(asked))
		}
	case "outgoing_text":
		if r.Text() != "I'm sorry, but I can't give you that answer." || len(asked) != 2 {
			t.Errorf("the user heard %q, the model was asked %d times", r.Text(), len(asked))
		}
	default:
		// The batch is gone; the note is the last message of the next request.
		if r.Text() != "done" || len(asked) != 2 || len(s.Of(sender, conversation.ToolExecuted)) != 0 {
			t.Fatalf("the user heard %q, the model was asked %d times; events %v", r.Text(), len(asked), s.Kinds(sender))
		}
		if last := asked[1][len(asked[1])-1]; last["role"] != "system" || last["content"] != "planted retry modify "+point {
			t.Errorf("the second request ends on %v", last)
		}
	}
	if r.Report.Status != "completed" {
		t.Errorf("status %s", r.Report.Status)
	}
}

// fails proves the policy when a modify hook failed.
func (s *stage) fails(t *testing.T, row standing, sender, what string) {
	t.Helper()
	s.failed(t, row, sender, what, s.run(sender, row, hook.Modify))
}

// failed proves the policy by the run that failed.
func (s *stage) failed(t *testing.T, row standing, sender, what string, run hook.Run) {
	t.Helper()
	policy := map[bool]hook.Policy{true: hook.Closed, false: hook.Open}[row.closed]
	if run.Failure == nil || string(run.Failure.Kind) != what || run.Policy != policy {
		t.Fatalf("the trace says %+v", run)
	}
	if !row.closed {
		s.same(t, sender)
		return
	}
	if r := s.said[sender]; r.Text() != row.heard || r.Report.Status != row.status {
		t.Errorf("the user heard %q, status %s", r.Text(), r.Report.Status)
	}
	asked, results := s.Prompts(sender), s.Of(sender, conversation.ToolExecuted)
	want := map[string][2]int{"incoming_message": {0, 0}, "model_request": {0, 0}, "tool_call": {1, 0}, "knowledge_query": {2, 1}}[row.point]
	if len(asked) != want[0] || len(results) != want[1] {
		t.Fatalf("%d model requests and %d results, want %v", len(asked), len(results), want)
	}
	if row.point == "knowledge_query" && results[0].Tool.Result != "The search could not be made; there are no results. Do not guess." {
		t.Errorf("the model reads %q", results[0].Tool.Result)
	}
}
