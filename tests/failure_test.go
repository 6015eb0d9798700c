package tests

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/internal/app/apptest"
	"github.com/belay-run/belay/internal/conversation"
)

// guarded is a point with a modify lane: what follows when its hook fails. Hooks
// spoil their payload first, so that a payload that does not stand as it was is
// seen.
type guarded struct {
	point, spoil string
	policy       hook.Policy
	allowed      string // the signal that counts there
	// What a turn with a closed failure comes to: what the user heard, the turn's
	// status, and how often the model was asked.
	heard, status string
	requests      int
}

var guards = []guarded{
	{point: "incoming_message", spoil: "p.text = 'SPOILT'", policy: hook.Closed, allowed: "veto", heard: "[incoming failed]", status: "error"},
	{point: "model_request", spoil: "p.messages.clear(); p.model_settings['temperature'] = 0.5", policy: hook.Closed, heard: "[request failed]", status: "error"},
	{point: "model_response", spoil: "p.text = 'SPOILT'; p.tool_calls.clear()", policy: hook.Open, allowed: "retry"},
	{point: "tool_call", spoil: "p.tool_name = 'SPOILT'; p.arguments['item'] = 'SPOILT'", policy: hook.Closed, allowed: "retry", heard: "[call failed]", status: "error", requests: 1},
	{point: "tool_result", spoil: "p.value = 'SPOILT'; p.is_error = True; p.arguments.clear()", policy: hook.Open},
	{point: "knowledge_query", spoil: "p.query = 'SPOILT'", policy: hook.Closed, heard: "let me look\ndone", status: "completed", requests: 2},
	{point: "knowledge_results", spoil: "p.passages[0]['text'] = 'SPOILT'; p.passages.clear()", policy: hook.Open},
	{point: "outgoing_text", spoil: "p.text = 'SPOILT'", policy: hook.Open, allowed: "veto"},
}

var failures = map[hook.FailureKind]string{
	hook.Crash:       "raise ValueError('planted exception text')",
	hook.Timeout:     "await asyncio.sleep(60)",
	hook.WrongReturn: "return 7",
}

var guardedFiles = apptest.Files{
	"responses.yml": `responses:
  utter_incoming_message_hook_error: [{text: "[incoming failed]"}]
  utter_incoming_message_rejected: [{text: "[incoming rejected]"}]
  utter_model_request_hook_error: [{text: "[request failed]"}]
  utter_tool_call_hook_error: [{text: "[call failed]"}]
  utter_outgoing_text_rejected: [{text: "[outgoing rejected]"}]
  utter_booked:
    - text: "[booked]"
      metadata: {rephrase: true}
`,
	"references/shop.md": "# Warranty\n\nThe warranty lasts two years.\n",
	"tools/shop.py": `from __future__ import annotations

from belay.tools import ToolContext, ToolResult, tool
from lib.probe import note


@tool(description="Looks an item up.")
async def look_up(context: ToolContext, item: str) -> ToolResult:
    note("look_up", sender_id=context.sender_id, item=item)
    return ToolResult(llm_response={"item": item, "stock": 3})


@tool(description="Books an item.", on_success="utter_booked")
async def book(context: ToolContext) -> ToolResult:
    return ToolResult(llm_response={"done": True})
`,
}

// course is all that a conversation came to: what was said, what the model was
// asked, what the record has. Ids and times are left out.
func (a playedAgent) course(t *testing.T, sender string, r apptest.Reply) string {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "%s: heard %q\n", r.Report.Status, r.Texts)
	for _, q := range a.RequestsOf(sender) {
		fmt.Fprintf(&b, "request %s %v\n", q.Messages, q.Settings)
	}
	for _, e := range a.Events(sender) {
		e.Turn, e.At = "", time.Time{}
		raw, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(append(raw, '\n'))
	}
	return b.String()
}

// runsAt gives what the trace says of the modify hook's runs at a point.
func (a playedAgent) runsAt(sender, point string) (out []hook.Run) {
	for _, part := range a.Trace(sender) {
		for _, l := range part.Lines {
			for _, r := range l.Runs {
				if r.Point == point && r.Lane == hook.Modify {
					out = append(out, r)
				}
			}
		}
	}
	return out
}

func TestFailurePolicies(t *testing.T) {
	t.Parallel()
	const limit = 1500
	a := startPlayed(t, nil, guardedFiles, playedHooks(limit, everyHook()...))
	batch := apptest.SaysAndCalls("let me look", apptest.C{Name: "search_knowledge", Args: map[string]any{"query": "warranty"}},
		apptest.C{Name: "look_up", Args: map[string]any{"item": "chair"}})

	does := map[string]bodies{"plain": nil} // by conversation
	for _, g := range guards {
		at := "modify_" + g.point
		for kind, body := range failures {
			does[g.point+" "+string(kind)] = bodies{at: g.spoil + "\n" + body}
		}
		for _, signal := range []string{"veto", "retry"} {
			once := "key = p.sender_id + " + fmt.Sprintf("%q", at) + "\nif key not in hooks.__dict__:\n    hooks.__dict__[key] = True\n    "
			does[g.point+" "+signal] = bodies{at: once + g.spoil + "\n    " + signal + "('planted signal text')"}
		}
	}
	replies := a.all(t, does, batch, apptest.Says("done"))
	plain := a.course(t, "plain", replies["plain"])
	// same fails the test when a turn went another way than one whose hooks do nothing.
	same := func(t *testing.T, sender string) {
		t.Helper()
		if got := a.course(t, sender, replies[sender]); got != plain {
			t.Errorf("the turn came to:\n%s\nwithout the hook's doing:\n%s", got, plain)
		}
	}

	for _, g := range guards {
		for kind := range failures {
			sender := g.point + " " + string(kind)
			t.Run("T56 the policy is for a failure: "+sender, func(t *testing.T) {
				runs := a.runsAt(sender, g.point)
				if len(runs) == 0 {
					t.Fatal("the hook was not asked")
				}
				for _, r := range runs {
					if r.Failure == nil || r.Failure.Kind != kind || r.Policy != g.policy {
						t.Errorf("the trace says %+v, failure %+v", r, r.Failure)
					}
				}
			})
			if g.policy == hook.Closed {
				t.Run("T57 closed: "+sender, func(t *testing.T) { a.closed(t, g, sender, replies[sender]) })
			} else {
				t.Run("T57 open: "+sender, func(t *testing.T) {
					same(t, sender)
					if notes := a.notesOf(sender, "on_turn_finished"); len(notes) != 1 || notes[0].Data["status"] != "completed" {
						t.Errorf("turn finished: %+v", notes)
					}
				})
			}
			t.Run("T57 logged: "+sender, func(t *testing.T) { a.logged(t, g, sender, kind, replies[sender].Report.Turn) })
		}
		for _, signal := range []string{"veto", "retry"} {
			sender := g.point + " " + signal
			t.Run("T56 the policy is not for a signal: "+sender, func(t *testing.T) {
				runs := a.runsAt(sender, g.point)
				if len(runs) == 0 || runs[0].Failure != nil || runs[0].Policy != "" {
					t.Errorf("the trace says %+v", runs)
				}
				if replies[sender].Report.Status != "completed" {
					t.Errorf("status %s", replies[sender].Report.Status)
				}
				switch {
				case signal != g.allowed:
					same(t, sender)
				case g.point == "incoming_message":
					expect(t, "heard", replies[sender].Texts, []string{"[incoming rejected]"})
				case g.point == "outgoing_text": // not open: the text does not leave
					expect(t, "heard", replies[sender].Texts, []string{"[outgoing rejected]", "done"})
				default: // not closed, and not open: the batch is gone and the model is asked again
					expect(t, "heard", replies[sender].Texts, []string{"done"})
					if asked := a.RequestsOf(sender); len(asked) != 2 || len(a.Of(sender, conversation.ToolExecuted)) != 0 {
						t.Errorf("%d requests, events %v", len(asked), a.Kinds(sender))
					}
				}
			})
		}
	}

	t.Run("T57 closed at a quiet call: the turn goes on", func(t *testing.T) {
		for kind, body := range failures {
			sender := "quiet " + string(kind)
			a.Next(sender, apptest.Call("book", nil), apptest.Says("done"))
			r := a.turn(t, sender, "hello", bodies{"modify_model_request": "if not p.tool_names:\n    " + body})
			expect(t, sender+": heard", r.Texts, []string{"[booked]", "done"})
			if notes := a.notesOf(sender, "on_turn_finished"); len(notes) != 1 || notes[0].Data["status"] != "completed" || r.Report.Status != "completed" {
				t.Errorf("%s: status %s, turn finished %+v", sender, r.Report.Status, notes)
			}
			if asked := a.RequestsOf(sender); len(asked) != 2 {
				t.Errorf("%s: the model was asked %d times", sender, len(asked))
			}
		}
	})
}

// all runs one turn in each conversation, many at a time.
func (a playedAgent) all(t *testing.T, does map[string]bodies, answers ...apptest.Answer) map[string]apptest.Reply {
	t.Helper()
	var wg sync.WaitGroup
	var mu sync.Mutex
	replies := map[string]apptest.Reply{}
	places := make(chan struct{}, 12)
	for sender, what := range does {
		a.Next(sender, answers...)
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			r, err := a.Send(t.Context(), played(sender, "hello", what))
			if err != nil {
				t.Errorf("%s: %v", sender, err)
			}
			mu.Lock()
			defer mu.Unlock()
			replies[sender] = r
		})
	}
	wg.Wait()
	return replies
}

// closed proves what a closed failure comes to.
func (a playedAgent) closed(t *testing.T, g guarded, sender string, r apptest.Reply) {
	if r.Text() != g.heard || r.Report.Status != g.status {
		t.Errorf("the user heard %q, status %s", r.Text(), r.Report.Status)
	}
	if notes := a.notesOf(sender, "on_turn_finished"); len(notes) != 1 || notes[0].Data["status"] != g.status {
		t.Errorf("turn finished: %+v", notes)
	}
	requests := a.RequestsOf(sender)
	if len(requests) != g.requests {
		t.Errorf("the model was asked %d times, want %d", len(requests), g.requests)
	}
	looked, searched := a.notesOf(sender, "look_up"), a.notesOf(sender, "on_knowledge_results")
	if g.point != "knowledge_query" {
		if len(looked) != 0 || len(a.Of(sender, conversation.ToolExecuted)) != 0 {
			t.Errorf("a tool ran: %v", a.Kinds(sender))
		}
		return
	}
	// The search alone is skipped.
	if len(searched) != 0 || len(looked) != 1 {
		t.Errorf("results hooks %d times, the other tool %d times", len(searched), len(looked))
	}
	last := string(requests[len(requests)-1].Messages)
	if strings.Contains(last, "two years") || !strings.Contains(last, "The search could not be made") {
		t.Errorf("the model read %s", last)
	}
}

// logged proves that a failure stands in the log, with the hook's place and what
// followed from it.
func (a playedAgent) logged(t *testing.T, g guarded, sender string, kind hook.FailureKind, turn string) {
	t.Helper()
	var lines []string
	for line := range strings.Lines(a.Log()) {
		if strings.Contains(line, `msg="a hook failed"`) && strings.Contains(line, "turn="+turn) {
			lines = append(lines, line)
		}
	}
	if len(lines) == 0 {
		t.Fatalf("nothing is logged of %s", sender)
	}
	for _, line := range lines {
		for _, part := range []string{"level=WARN", "hook=hooks.py:modify_" + g.point + "_hook", "point=" + g.point, "kind=" + string(kind), "policy=" + string(g.policy), " line=", " file="} {
			if !strings.Contains(line, part) {
				t.Errorf("the log has no %q in %s", part, line)
			}
		}
	}
	if runs := a.runsAt(sender, g.point); len(runs) != len(lines) {
		t.Errorf("%d failures in the trace, %d in the log", len(runs), len(lines))
	}
}

// A point that is new in the table must get its row above.
func TestGuardsCoverEveryModifyPoint(t *testing.T) {
	for _, p := range hook.Points {
		if p.Dialect == hook.Turn && p.Modify && !slices.ContainsFunc(guards, func(g guarded) bool { return g.point == p.Name && g.policy == p.OnFailure }) {
			t.Errorf("T56 and T57 are not tested at %s", p.Name)
		}
	}
}
