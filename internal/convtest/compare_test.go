package convtest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/internal/conversation"
	"github.com/belay-run/belay/internal/skill"
	"github.com/belay-run/belay/internal/turn"
)

// aTurn is one in which much happened.
func aTurn() *seen {
	yes := true
	set := &skill.Set{Project: []*skill.Field{{Namespace: "project", Name: "name", Type: skill.Text}, {Namespace: "project", Name: "verified", Type: skill.Bool, Initial: false}}}
	events := []conversation.Event{
		{Kind: conversation.User, Text: "pay [card]"},
		{Kind: conversation.Bot, Text: "One moment.", Source: conversation.Filler},
		{Kind: conversation.ToolExecuted, Tool: &conversation.ToolRun{Name: "activate", Arguments: []byte(`{"target_id":"pay"}`), Result: "activate: done", CallID: "a"}},
		{Kind: conversation.SkillActivated, Skill: "pay"},
		{Kind: conversation.ToolExecuted, Tool: &conversation.ToolRun{Name: "price", Arguments: []byte(`{"item":"lamp","n":2}`), Result: `{"total": 40, "unit": "EUR"}`, Source: conversation.SourceStep}},
		{Kind: conversation.ConfirmAsked, Tool: &conversation.ToolRun{Name: "pay"}},
		{Kind: conversation.ConfirmResolved, Tool: &conversation.ToolRun{Name: "pay"}, Confirmed: &yes},
		{Kind: conversation.Bot, Text: "Stopped.", Source: conversation.FromModel, Discarded: &conversation.Discarded{By: "rejected"}},
		{Kind: conversation.Bot, Text: "Shall I?", Source: conversation.Verbatim, Response: "utter_ask"},
		{Kind: conversation.MemorySet, Memory: &conversation.Memory{Name: "project.name", Value: []byte(`"Ada"`)}},
	}
	return &seen{set: set, state: skill.Fold(events), report: turn.Report{Turn: "1", Status: turn.Completed, Why: "waiting", Events: events}, runs: []hook.Run{
		{Name: "hooks.py:mask", Point: hook.IncomingMessage, Lane: hook.Modify, Said: "continue", Changed: []hook.FieldChange{{Field: "text"}}},
		{Name: "hooks.py:polite", Point: hook.OutgoingText, Lane: hook.Modify, Said: "continue"},
		{Name: "hooks.py:polite", Point: hook.OutgoingText, Lane: hook.Modify, Said: "reject"},
		{Name: "hooks.py:watch", Point: hook.TurnFinished, Lane: hook.Observe, Said: "failed", Failure: &hook.Failure{Kind: hook.Timeout}},
	}}
}

func TestCompares(t *testing.T) {
	for expect, want := range map[string]string{ // what is expected, and what is wrong with it: "" for nothing
		`{}`:                               "",
		`{message: "pay [card]"}`:          "",
		`{message: {contains: "1234"}}`:    `message|-contains "1234"|+"pay [card]"`,
		`{message: {discarded: rejected}}`: `message|-(rejected)|+"pay [card]"`,
		`{texts: [One moment., Shall I?]}`: "",
		`{texts: [One moment.]}`:           `texts| "One moment." (filler)|+"Shall I?" (utter_ask) (verbatim)`,
		`{texts: []}`:                      `texts|+"One moment." (filler)|+"Shall I?" (utter_ask) (verbatim)`,
		`{texts: [One moment., {response: utter_ask, source: verbatim, matches: '^S', contains: hall}]}`: "",
		`{texts: [One moment., {source: rephrased}]}`:                                                    `texts| "One moment." (filler)|-(rephrased)|+"Shall I?" (utter_ask) (verbatim)`,
		`{not_texts: [Stopped, {matches: x}]}`:                                                           "",
		`{not_texts: [hall]}`:                                                                            `not_texts: this must not be said: contains "hall"|+"Shall I?" (utter_ask) (verbatim)`,
		`{tools: [price]}`:                                                                               "",
		`{tools: []}`:                                                                                    `tools|+price {"item": "lamp", "n": 2}: {"total": 40, "unit": "EUR"} (by step)`,
		`{tools: [activate, price]}`:                                                                     "",
		`{tools: [price, activate]}`:                                                                     `tools|+activate (by model)|X`,
		`{tools: [{name: price, arguments: {n: 2.0}, result: {total: 40}, is_error: false, by: step}]}`: "",
		`{tools: [{name: price, result: EUR}]}`:                                                         "",
		`{tools: [{name: price, result: USD}]}`:                                                         `tools|-price: "USD"|+price: {"total": 40, "unit": "EUR"} (by step)`,
		`{tools: [{name: price, arguments: {n: 3}}]}`:                                                   `tools|-price {"n": 3}|+price {"item": "lamp", "n": 2} (by step)`,
		`{tools: [{name: price, is_error: true}]}`:                                                      `tools|-price (failed)|+price (by step)`,
		`{tools: [{name: price, by: model}]}`:                                                           `tools|-price (by model)|+price (by step)`,
		`{confirmation: {asked: pay, resolved: true}}`:                                                  "",
		`{confirmation: {resolved: false}}`:                                                             `confirmation|-resolved: false|+asked: pay|+resolved: true`,
		`{confirmation: none}`:                                                                          `confirmation|-none|+asked: pay|+resolved: true`,
		`{memory: {project.name: Ada, project.verified: false}}`:                                        "",
		`{memory: {project.name: null}}`:                                                                `memory|-project.name: null|+project.name: "Ada"`,
		`{skill: pay, block: null, step: null}`:                                                         "",
		`{skill: null}`:                                                                                 `skill|-skill: none|+skill: pay`,
		`{hooks: [{hook: mask, said: changed}, {hook: 'hooks.py:mask', point: incoming_message, said: continue}, {hook: polite, said: reject}]}`: "",
		`{hooks: [{hook: watch, said: timeout}, {hook: watch, said: failed}, {hook: mask}]}`:                                                     "",
		`{hooks: [{hook: polite, said: [retry, changed]}]}`:                                                                                      `hooks|-polite: retry or changed|+polite outgoing_text: nothing to change|+polite outgoing_text: reject`,
		`{hooks: [{hook: mask, said: not asked}]}`:                                                                                               `hooks|-mask: not asked|+mask incoming_message: changed`,
		`{hooks: [{hook: other, said: not asked}]}`:                                                                                              "",
		`{hooks: [{hook: other}]}`:                                                                                                               `hooks|-other: asked|+other not asked`,
		`{status: completed}`:                                                                                                                    "",
		`{status: error}`:                                                                                                                        `status|-error|+completed (waiting)`,
	} {
		t.Run(expect, func(t *testing.T) {
			f, found := parse("t.yml", []byte("conversations: [{name: x, turns: [{user: hi, expect: "+expect+"}]}]"))
			if len(found) > 0 {
				t.Fatalf("findings: %+v", found)
			}
			got := told(compare(&f.Conversations[0].Turns[0].Expect, aTurn()))
			if want == `tools|+activate (by model)|X` { // which of the two is out of place does not matter
				if !strings.Contains(got, "tools|") {
					t.Errorf("the order of tools does not count: %q", got)
				}
				return
			}
			if got != want {
				t.Errorf("%q\nwant %q", got, want)
			}
		})
	}
}

func told(failures []Failure) string {
	var out []string
	for _, f := range failures {
		out = append(out, f.What+prefixed(": ", f.Message))
		for _, d := range f.Diff {
			out = append(out, d.Mark+d.Text)
		}
	}
	return strings.Join(out, "|")
}

func TestFailsThoughNothingIsWritten(t *testing.T) {
	crashed := func() *seen {
		s := aTurn()
		s.runs = append(s.runs, hook.Run{Name: "hooks.py:mend", Point: hook.ToolResult, Lane: hook.Modify, Said: "failed", Failure: &hook.Failure{Kind: hook.Crash, Message: "ValueError"}, Policy: hook.Open, File: "hooks.py", Line: 7})
		return s
	}
	if got := told(compare(&Expect{}, crashed())); got != "hooks: hooks.py:mend failed at tool_result, and no expectation says that it may: crash: ValueError at hooks.py:7, policy open" {
		t.Errorf("a crash: %q", got)
	}
	for _, said := range []string{"failed", "crash"} {
		if got := told(compare(&Expect{Hooks: []HookMatch{{Hook: "mend", Said: []string{said}}}}, crashed())); got != "" {
			t.Errorf("a crash that is expected as %s: %q", said, got)
		}
	}
	if got := compare(&Expect{Hooks: []HookMatch{{Hook: "mend", Said: []string{"timeout"}}}}, crashed()); len(got) != 2 {
		t.Errorf("a crash where a timeout is expected: %q", told(got))
	}
	s := aTurn()
	s.report.Status, s.report.Why = turn.Failed, "model_error"
	if got := told(compare(&Expect{}, s)); got != "status: the turn broke off (model_error), and neither its texts nor its status are expected" {
		t.Errorf("a turn that broke off: %q", got)
	}
	for _, e := range []Expect{{Status: &Name{Text: turn.Failed}}, {Texts: &List[TextMatch]{Items: []TextMatch{{}, {}}}}} {
		if got := told(compare(&e, s)); got != "" {
			t.Errorf("a turn that broke off as expected: %q", got)
		}
	}
}

func TestRoundsPartSenders(t *testing.T) {
	var all []*Result
	for _, sender := range []string{"ada", "", "ada", "test-4", "", "ada"} {
		all = append(all, &Result{Conversation: &Conversation{}, Sender: sender})
	}
	var got []string
	for _, round := range rounds(all) {
		seen := map[string]bool{}
		for _, r := range round {
			if seen[r.Sender] || r.Sender == "" {
				t.Errorf("sender %q twice in a round", r.Sender)
			}
			seen[r.Sender] = true
		}
		got = append(got, fmt.Sprint(len(round)))
	}
	if strings.Join(got, " ") != "4 1 1" {
		t.Errorf("rounds of %v", got)
	}
}
