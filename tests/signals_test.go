package tests

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/internal/app"
	"github.com/belay-run/belay/internal/app/apptest"
	"github.com/belay-run/belay/internal/conversation"
	"github.com/belay-run/belay/internal/finding"
)

// spot is where a check found what.
type spot struct {
	File string
	Line int
	Rule string
}

// check checks a folder and returns what keeps it from being served.
func check(t *testing.T, files apptest.Files) []spot {
	t.Helper()
	findings, _, err := app.Check(context.Background(), app.Config{Dir: apptest.Folder(t, files)})
	if err != nil {
		t.Fatal(err)
	}
	var out []spot
	for _, f := range findings {
		if f.Severity == finding.Error {
			out = append(out, spot{f.File, f.Line, f.Rule})
		}
	}
	return out
}

// mask takes what differs between two conversations out of a transcript.
func mask(transcript string) string { return times.ReplaceAllString(transcript, "") }

var times = regexp.MustCompile(`"timestamp":"[^"]*"`)

// marked returns the numbers of the lines that hold mark.
func marked(text, mark string) (lines []int) {
	for i, line := range strings.Split(text, "\n") {
		if strings.Contains(line, mark) {
			lines = append(lines, i+1)
		}
	}
	return lines
}

var signalNames = map[string]string{"reject": "HookRejection", "retry": "RetryModel"}

// signalForms are ways to write a raise, in a hook that may raise nothing.
var signalForms = map[string]string{
	"as a class":                      "from belay.hooks import RetryModel\n@\n    raise RetryModel  # here\n",
	"as a call":                       "from belay.hooks import RetryModel\n@\n    raise RetryModel('x')  # here\n",
	"in a branch":                     "from belay.hooks import HookRejection\n@\n    if p.value:\n        try:\n            raise HookRejection()  # here\n        finally:\n            pass\n",
	"under another name":              "from belay.hooks import RetryModel as R\n@\n    raise R(feedback='x')  # here\n",
	"under the other system's module": "from rasa.mantle.hooks import HookRejection as R\n@\n    raise R  # here\n",
	"as a module's attribute":         "import belay.hooks\n@\n    raise belay.hooks.RetryModel('x')  # here\n",
	"as a renamed module's attribute": "from belay import hooks as h\n@\n    raise h.HookRejection  # here\n",
	"in a function that it calls":     "from belay.hooks import RetryModel\n\ndef stop():\n    raise RetryModel('x')  # here\n@\n    stop()\n",
	"in a function that one of its functions calls": "from belay.hooks import RetryModel\n@\n    await outer()\n\nasync def outer():\n    inner()\n\n" +
		"def inner():\n    raise RetryModel  # here\n",
	"nowhere: nobody calls the function": "from belay.hooks import RetryModel\n\ndef stop():\n    raise RetryModel('x')\n@\n    pass\n",
	"nowhere: the class is another one":  "class RetryModel(Exception):\n    pass\n@\n    raise RetryModel('x')\n",
}

func TestSignalsInSource(t *testing.T) {
	t.Parallel()
	files := apptest.Files{}
	var want, allowed []spot
	for _, row := range standings {
		for signal, name := range signalNames {
			for lane, verb := range map[hook.Lane]string{hook.Observe: "on", hook.Modify: "modify"} {
				if lane == hook.Modify && !row.modify {
					continue
				}
				file := fmt.Sprintf("hooks/%s/%s_%s.py", lane, row.point, signal)
				returns := map[hook.Lane]string{hook.Observe: "None", hook.Modify: row.payload}[lane]
				files[file] = fmt.Sprintf("from belay.hooks import %[1]s, %[2]s, %[3]s_%[4]s\n\n\n@%[3]s_%[4]s()\nasync def f(p: %[2]s) -> %[5]s:\n    raise %[1]s('no')\n",
					name, row.payload, verb, row.point, returns)
				if at := (spot{file, 6, "signal-not-allowed"}); lane == hook.Modify && signal == row.signal {
					allowed = append(allowed, at)
				} else {
					want = append(want, at)
				}
			}
		}
	}
	for _, h := range []struct{ lane, decorator, returns string }{{"observe", "on_tool_result", "None"}, {"modify", "modify_tool_result", "ToolResultPayload"}} {
		for name, form := range signalForms {
			file := fmt.Sprintf("hooks/forms/%s_%s.py", h.lane, strings.Map(func(r rune) rune {
				if r < 'a' || r > 'z' {
					return '_'
				}
				return r
			}, name))
			def := fmt.Sprintf("\nfrom belay.hooks import %[1]s, ToolResultPayload\n\n@%[1]s()\nasync def f(p: ToolResultPayload) -> %[2]s:\n", h.decorator, h.returns)
			files[file] = strings.Replace(form, "@\n", def, 1)
			for _, line := range marked(files[file], "# here") {
				want = append(want, spot{file, line, "signal-not-allowed"})
			}
		}
	}
	if len(allowed) != 4 {
		t.Fatalf("there are %d points with a signal", len(allowed))
	}
	found := slices.DeleteFunc(check(t, files), func(s spot) bool { return s.Rule != "signal-not-allowed" })
	for _, w := range want {
		t.Run(fmt.Sprintf("T26 %s:%d is found", w.File, w.Line), func(t *testing.T) {
			if !slices.Contains(found, w) {
				t.Errorf("it is not among what was found in %s:\n%s", w.File, files[w.File])
			}
		})
	}
	t.Run("T26 nothing else is", func(t *testing.T) {
		for _, f := range found {
			if !slices.Contains(want, f) {
				t.Errorf("%s:%d is found:\n%s", f.File, f.Line, files[f.File])
			}
		}
	})
}

// loggedAt says whether the log has a line of a turn with these parts.
func (s *stage) loggedAt(turnID string, parts ...string) bool {
	for line := range strings.Lines(s.Log()) {
		all := strings.Contains(line, "turn="+turnID)
		for _, p := range parts {
			all = all && strings.Contains(line, p)
		}
		if all {
			return true
		}
	}
	return false
}

// raises gives the line on which a hook of the stage raises.
func (s *stage) raises(t *testing.T, name string) int {
	t.Helper()
	from := marked(s.hooks, "async def "+name+"(")
	for _, line := range marked(s.hooks, "raise exception") {
		if len(from) == 1 && line > from[0] {
			return line
		}
	}
	t.Fatalf("no raise in %s", name)
	return 0
}

// dropped proves what becomes of signals where they mean nothing.
func (s *stage) dropped(t *testing.T) {
	prove := func(lane hook.Lane, name string, row standing, signal string) {
		sender := fmt.Sprintf("%s:%s:%s", lane, row.point, signal)
		t.Run(fmt.Sprintf("T27 %s at %s, %s lane", signalNames[signal], row.point, lane), func(t *testing.T) {
			s.same(t, sender)
			run := s.run(sender, row, lane)
			if run.Dropped == "" || run.Failure != nil {
				t.Fatalf("the trace says %+v", run)
			}
			at := fmt.Sprintf("line=%d ", s.raises(t, name))
			if !s.loggedAt(s.said[sender].Report.Turn, "level=WARN", "dropped=", "hook=hooks.py:"+name, "point="+row.point, "file=hooks.py", at) {
				t.Errorf("the log does not say where (%s):\n%s", at, s.Log())
			}
		})
	}
	for _, row := range standings {
		for signal := range signalNames {
			prove(hook.Observe, "see_"+row.point, row, signal)
			if row.modify && signal != row.signal {
				prove(hook.Modify, "decide_"+row.point, row, signal)
			}
		}
	}
	t.Run("T27 at the knowledge query the search runs on the query as it was", func(t *testing.T) {
		for signal := range signalNames {
			ran := s.Of("modify:knowledge_query:"+signal, conversation.ToolExecuted)
			if len(ran) != 1 || !strings.Contains(ran[0].Tool.Result, "[five days]") {
				t.Errorf("%s: the model reads %+v", signal, ran)
			}
		}
	})
	for signal, points := range map[string][]string{"reject": {"incoming_message", "outgoing_text"}, "retry": {"model_response", "tool_call"}} {
		id := map[string]string{"reject": "T24", "retry": "T25"}[signal]
		t.Run(id+" "+signalNames[signal]+" counts at two points", func(t *testing.T) {
			for _, point := range points {
				s.counts(t, point, "modify:"+point+":"+signal)
			}
		})
		t.Run(id+" "+signalNames[signal]+" counts at no other", func(t *testing.T) {
			for _, row := range standings {
				s.same(t, "observe:"+row.point+":"+signal)
				if row.modify && !slices.Contains(points, row.point) {
					s.same(t, "modify:"+row.point+":"+signal)
				}
			}
		})
	}
}

// secrets proves where a reason and an exception's text go, and where they never
// do.
func (s *stage) secrets(t *testing.T) {
	for _, row := range standings {
		for _, lane := range []hook.Lane{hook.Observe, hook.Modify} {
			if lane == hook.Modify && !row.modify {
				continue
			}
			for what, text := range map[string]string{"reject": "a reason", "crash": "an exception's text"} {
				t.Run(fmt.Sprintf("T126 %s of a hook at %s, %s lane", text, row.point, lane), func(t *testing.T) {
					s.secret(t, fmt.Sprintf("%s:%s:%s", lane, row.point, what), fmt.Sprintf("planted %s %s %s", what, lane, row.point))
				})
			}
		}
	}
	for sender, by := range map[string]string{"modify:incoming_message:reject": "rejected", "modify:incoming_message:crash": "hook_error", "modify:outgoing_text:reject": "rejected"} {
		t.Run("T126 "+sender+": the discarded event has it", func(t *testing.T) {
			what := strings.Split(sender, ":")
			for _, e := range s.Events(sender) {
				if d := e.Discarded; d != nil && d.By == by && strings.Contains(d.Reason, fmt.Sprintf("planted %s %s %s", what[2], what[0], what[1])) {
					return
				}
			}
			t.Errorf("no event has it: %+v", s.Events(sender))
		})
	}
}

func (s *stage) secret(t *testing.T, sender, planted string) {
	again := s.Say(sender, "and another thing")
	if texts := append(s.said[sender].Texts, again.Texts...); strings.Contains(strings.Join(texts, "\n"), planted) {
		t.Errorf("the user heard %q", texts)
	}
	requests := s.RequestsOf(sender)
	if len(requests) == 0 {
		t.Fatal("the model was not asked, not even in the turn after")
	}
	for _, r := range requests {
		raw, err := json.Marshal(r)
		if err != nil || strings.Contains(string(raw), planted) {
			t.Errorf("a model was asked %s (%v)", raw, err)
		}
	}
	if !strings.Contains(s.TraceText(sender), planted) {
		t.Errorf("the trace does not have it: %s", s.TraceText(sender))
	}
	if !strings.Contains(s.Log(), planted) {
		t.Error("the log does not have it")
	}
}

// steeringHooks send back every text that begins with "draft" and every count to
// 13, and turn away messages in several ways.
const steeringHooks = `from __future__ import annotations

from belay.hooks import *
from lib.probe import note


class Mine(HookRejection):
    pass


@modify_incoming_message()
async def gate(p: IncomingMessagePayload) -> IncomingMessagePayload:
    if p.text == "class":
        raise HookRejection
    if p.text == "positional":
        raise HookRejection("why")
    if p.text == "keyword":
        raise HookRejection(reason="why")
    if p.text == "own":
        raise Mine("why")
    return p


@modify_model_request()
async def look(p: ModelRequestPayload) -> ModelRequestPayload:
    note("request", sender=p.sender_id, messages=p.messages)
    return p


@modify_model_response()
async def check(p: ModelResponsePayload) -> ModelResponsePayload:
    if p.text and p.text.startswith("draft"):
        raise RetryModel(feedback="note for " + p.text)
    if p.text and p.text.startswith("sketch"):
        raise RetryModel("note for " + p.text)
    return p


@modify_tool_call()
async def guard(p: ToolCallPayload) -> ToolCallPayload:
    if p.arguments.get("n") == 13:
        raise RetryModel(feedback="note for 13")
    return p
`

const countTool = `from belay.tools import ToolResult, tool
from lib.probe import note


@tool(description="Counts.", on_success="utter_counted")
async def count(n: int) -> ToolResult:
    note("count", n=n)
    return ToolResult(llm_response={"n": n})
`

func count(n int) apptest.C { return apptest.C{Name: "count", Args: map[string]any{"n": n}} }

// lastOf gives the last message of a request as "role: content".
func lastOf(messages []map[string]any) string {
	last := messages[len(messages)-1]
	return fmt.Sprintf("%v: %v", last["role"], last["content"])
}

func TestSteering(t *testing.T) {
	t.Parallel()
	a := apptest.Start(t, apptest.Files{
		"agent.yml": "agent:\n  id: test\n  persona: You are a test.\nbelay:\n  limits:\n    iterations: 3\n    prompt_tokens: 500\n",
		"hooks.py":  steeringHooks, "tools/count.py": countTool,
		"responses.yml": "responses:\n  utter_counted:\n    - text: Counted to {n}.\n      metadata:\n        rephrase: true\n",
	})
	// everywhere is all that a conversation left: texts, record, export.
	everywhere := func(sender string, replies ...apptest.Reply) string {
		events := a.Events(sender)
		var sent []string
		for _, r := range replies {
			sent = append(sent, r.Order...)
		}
		raw, err := json.Marshal([]any{events, conversation.Export(events), sent})
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}

	for _, form := range []string{"class", "positional", "keyword", "own"} {
		t.Run("T24 HookRejection raised as "+form, func(t *testing.T) {
			r := a.Say("t24 "+form, form)
			reason := map[bool]string{true: "", false: "why"}[form == "class"]
			if d := a.Of("t24 "+form, conversation.User)[0].Discarded; d == nil || d.By != "rejected" || d.Reason != reason {
				t.Errorf("discarded %+v", d)
			}
			if r.Text() != "I'm sorry, but I can't help with that message." || len(a.RequestsOf("t24 "+form)) != 0 {
				t.Errorf("the user heard %q", r.Text())
			}
		})
	}

	t.Run("T25 at the model response the text is discarded and the loop steered", func(t *testing.T) {
		a.Next("t25", apptest.SaysAndCalls("sketch", count(4)), apptest.Says("final"))
		r := a.Say("t25", "hello")
		asked := a.Prompts("t25")
		if len(asked) != 2 || lastOf(asked[1]) != "system: note for sketch" {
			t.Fatalf("requests: %v", asked)
		}
		if all := everywhere("t25", r); r.Text() != "final" || strings.Contains(all, "sketch") || strings.Contains(all, "count") {
			t.Errorf("the discarded response left something: %s", all)
		}
	})

	t.Run("T25 at the tool call the whole batch is discarded and the loop steered", func(t *testing.T) {
		before := len(a.Noted())
		a.Next("t25 batch", apptest.SaysAndCalls("One moment.", count(1), count(13), count(2)), apptest.Says("final"))
		r := a.Say("t25 batch", "hello")
		asked := a.Prompts("t25 batch")
		if len(asked) != 2 || lastOf(asked[1]) != "system: note for 13" {
			t.Fatalf("requests: %v", asked)
		}
		if slices.Contains(a.Noted()[before:], "count") {
			t.Error("a tool ran")
		}
		if all := everywhere("t25 batch", r); r.Text() != "final" || strings.Contains(all, "One moment") || strings.Contains(all, "count") {
			t.Errorf("the discarded batch left something: %s", all)
		}
	})

	t.Run("T28 the feedback is in the next main request alone, and nowhere else", func(t *testing.T) {
		a.Next("t28", apptest.Says("draft 1"), apptest.SaysAndCalls("One moment.", count(5)), apptest.Says("I counted to 5."), apptest.Says("final"))
		first := a.Say("t28", "hello")
		second := a.Say("t28", "and now?")
		if want := []string{"One moment.", "I counted to 5.", "final"}; !slices.Equal(first.Texts, want) {
			t.Fatalf("the user heard %q, want %q", first.Texts, want)
		}
		var with []int
		asked := a.Prompts("t28")
		for i, messages := range asked {
			if strings.Contains(fmt.Sprint(messages), "note for") {
				with = append(with, i)
			}
		}
		if len(asked) != 5 || !slices.Equal(with, []int{1}) || lastOf(asked[1]) != "system: note for draft 1" {
			t.Errorf("of %d requests these have the note: %v; the second ends on %q", len(asked), with, lastOf(asked[1]))
		}
		if all := everywhere("t28", first, second); strings.Contains(all, "note for") || strings.Contains(all, "draft") {
			t.Errorf("the note or the draft is kept: %s", all)
		}
	})

	t.Run("T28 it stands after every other note", func(t *testing.T) {
		a.Next("t28 last", apptest.Calls(count(6)), apptest.Says("I counted to 6."), apptest.Says("draft 2"), apptest.Says("final"))
		a.Say("t28 last", "hello")
		asked := a.Prompts("t28 last")
		if len(asked) != 4 || lastOf(asked[2]) != "system: A fixed reply was already sent to the user in this turn. Do not repeat it." || lastOf(asked[3]) != "system: note for draft 2" {
			t.Errorf("requests: %v", asked)
		}
	})

	// seen gives the messages that modify_model_request was given.
	seen := func(sender string) (out [][]map[string]any) {
		for _, n := range a.Notes() {
			if n.What != "request" || n.Data["sender"] != sender {
				continue
			}
			var messages []map[string]any
			for _, m := range n.Data["messages"].([]any) {
				messages = append(messages, m.(map[string]any))
			}
			out = append(out, messages)
		}
		return out
	}

	t.Run("T29 the request hook finds the note in its messages, and after a second RetryModel only the newest", func(t *testing.T) {
		a.Next("t29", apptest.Says("draft 1"), apptest.Says("draft 2"), apptest.Says("final"))
		if r := a.Say("t29", "hello"); r.Text() != "final" {
			t.Fatalf("the user heard %q", r.Text())
		}
		got := seen("t29")
		if len(got) != 3 || lastOf(got[1]) != "system: note for draft 1" || lastOf(got[2]) != "system: note for draft 2" {
			t.Fatalf("the hook saw %v", got)
		}
		if strings.Contains(fmt.Sprint(got[2]), "draft 1") || strings.Contains(fmt.Sprint(a.Prompts("t29")[2]), "draft 1") {
			t.Errorf("the first note is there still: %v", got[2])
		}
	})

	t.Run("T29 trimming to the budget never drops the note", func(t *testing.T) {
		long := strings.Repeat("many words that fill the budget of the prompt ", 200)
		for range 3 {
			a.Say("t29 cut", long)
		}
		a.Next("t29 cut", apptest.Says("draft "+long), apptest.Says("final"))
		r := a.Say("t29 cut", "hello")
		asked := a.Prompts("t29 cut")
		last := asked[len(asked)-1]
		if lastOf(last) != "system: note for draft "+long || lastOf(last[:len(last)-1]) != "user: hello" {
			t.Errorf("the request is %v", last)
		}
		if got := seen("t29 cut"); lastOf(got[len(got)-1]) != "system: note for draft "+long {
			t.Errorf("the hook saw %v", got[len(got)-1])
		}
		if r.Text() != "final" || strings.Contains(fmt.Sprint(last[:len(last)-1]), long) || !strings.Contains(a.TraceText("t29 cut"), "were cut to meet the token budget") {
			t.Errorf("nothing was cut: %d messages, the user heard %q", len(last), r.Text())
		}
	})

	t.Run("T29 a note whose turn ends at the cap is dropped", func(t *testing.T) {
		a.Next("t29 cap", apptest.Says("draft 1"), apptest.Says("draft 2"), apptest.Says("draft 3"))
		r := a.Say("t29 cap", "hello")
		if r.Report.Status != "error" || r.Text() != "I'm sorry, but I couldn't finish that. Please try again, perhaps in smaller steps." {
			t.Fatalf("the user heard %q, status %s", r.Text(), r.Report.Status)
		}
		a.Say("t29 cap", "and now?")
		asked := a.Prompts("t29 cap")
		if len(asked) != 4 || strings.Contains(fmt.Sprint(asked), "draft 3") || strings.Contains(fmt.Sprint(asked[3]), "note for") {
			t.Errorf("requests: %v", asked)
		}
	})
}
