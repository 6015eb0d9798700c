package skill

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/belay-run/belay/internal/condition"
	"github.com/belay-run/belay/internal/conversation"
)

func when(source string) *condition.Condition {
	c, err := condition.Compile(source)
	if err != nil {
		panic(err)
	}
	return c
}

// bank is an agent with everything that a set can have.
func bank() *Set {
	return &Set{
		Project: []*Field{{Namespace: Project, Name: "name", Type: Text}, {Namespace: Project, Name: "note", Type: Any, Mutable: true}},
		Skills: []*Skill{
			{ID: "authenticate", Description: "Checks who it is.", Prose: []Paragraph{{Text: "Ask for the code."}},
				CompleteWhen: when("session.project.name"), EngineManaged: true},
			{ID: Completed, EngineManaged: true, Builtin: true,
				Memory: []*Field{{Namespace: Completed, Name: "wants_to_continue", Type: Bool}},
				Blocks: []*Block{{ID: "main", Steps: []*Step{{ID: "ask", Kind: Collect, Field: Completed + ".wants_to_continue", Response: "utter_more"}}}}},
			{ID: ContinueInterrupt, EngineManaged: true, Builtin: true,
				Memory: []*Field{{Namespace: ContinueInterrupt, Name: "interrupted_task_name", Type: Text}, {Namespace: ContinueInterrupt, Name: "wants_to_resume", Type: Bool}},
				Blocks: []*Block{{ID: "main", Steps: []*Step{{ID: "ask", Kind: Collect, Field: ContinueInterrupt + ".wants_to_resume", Response: "utter_resume"}}}}},
			{ID: "hours", Name: "Hours", Description: "Says when we are open.", Prose: []Paragraph{{Text: "Say the hours."}}},
			{ID: "transfer", Name: "Transfer", Description: "Moves money.", Requires: when("not session.project.note"),
				Utters: []Utter{{Response: "utter_recorded"}, {Response: "utter_large", When: when("session.transfer.amount > 1000")}},
				Prose: []Paragraph{{Text: "Help with a transfer. Use `@block.collect`."}, {If: when("not session.project.name"), Text: "First @skill.authenticate."},
					{If: when("session.project.name"), Text: "They are @memory.project.name."}},
				Memory: []*Field{{Namespace: "transfer", Name: "amount", Type: Number, Settable: true},
					{Namespace: "transfer", Name: "to", Type: Categorical, Values: []any{"savings", "checking"}, Settable: true},
					{Namespace: "transfer", Name: "fee", Type: Number}, {Namespace: "transfer", Name: "purpose", Type: Text, Initial: "private"}},
				Blocks: []*Block{
					{ID: "collect", Steps: []*Step{
						{ID: "amount", Kind: Collect, Field: "transfer.amount", Response: "utter_amount"},
						{ID: "to", Kind: Instruct, Instructions: "Ask where to.", CompleteWhen: when("session.transfer.to")},
						{ID: "fee", Kind: Execute, Tool: "fee", Parameters: []Parameter{{Name: "amount", Field: "transfer.amount"}, {Name: "currency", Value: "EUR"}}},
						{ID: "branch", Kind: Noop, Next: []Branch{{If: when("session.transfer.fee > 0"), To: "say_fee"}, {To: "mark"}}},
						{ID: "say_fee", Kind: Action, Response: "utter_fee"},
						{ID: "mark", Kind: SetValue, Values: []Assignment{{Field: "transfer.purpose", Value: "checked"}}},
						{ID: "more", Kind: CallTo, Target: "bye"},
						{ID: "end", Kind: Finish},
						{ID: "never", Kind: Action, Response: "utter_never"},
					}},
					{ID: "bye", Steps: []*Step{{ID: "thanks", Kind: Action, Response: "utter_thanks"}, {ID: "talk", Kind: Instruct, Instructions: "Say goodbye."}}},
					{ID: "away", Steps: []*Step{{ID: "go", Kind: LinkTo, Target: "hours"}}},
				}},
		},
	}
}

// walk plays a conversation on a set: what the engine does is done, and what is
// done is noted.
type walk struct {
	set    *Set
	st     *State
	events []conversation.Event
	done   map[string]bool
	notes  []string
}

func newWalk(set *Set) *walk { return &walk{set: set, st: &State{}, done: map[string]bool{}} }

func (w *walk) add(events ...conversation.Event) {
	for _, e := range events {
		e.Turn = "t1"
		w.events = append(w.events, e)
		w.st.Apply(&e)
	}
}

func (w *walk) put(name string, v any) {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	w.add(conversation.Event{Kind: conversation.MemorySet, Memory: &conversation.Memory{Name: name, Value: raw}})
}

func (w *walk) activate(target string) string {
	events, why := w.set.Activate(w.st, target)
	w.add(events...)
	return why
}

// advance does what is determined; tool answers the engine's tools. It returns
// false when the engine does not come to rest.
func (w *walk) advance(settling bool, tool func(Act)) bool {
	for range 100 {
		active := w.st.Active()
		act := w.set.Next(w.st, Moment{Turn: "t1", Settling: settling, Done: w.done})
		switch act.Do {
		case AskModel:
			w.notes = append(w.notes, "model")
			return true
		case Say:
			w.notes = append(w.notes, act.Response)
			if key := act.Key(active); key != "" {
				w.done[key] = true
				w.add(conversation.Event{Kind: conversation.Bot, Response: act.Response, Skill: active, Source: conversation.Verbatim})
			}
		case RunTool:
			w.notes = append(w.notes, act.Tool+" "+string(act.Arguments))
			if tool != nil {
				tool(act)
			}
			w.add(conversation.Event{Kind: conversation.ToolExecuted, Tool: &conversation.ToolRun{Name: act.Tool, Source: conversation.SourceStep, Skill: active, Step: act.Step, Uses: act.Uses, Wrote: []string{"transfer.fee"}}})
		case Fill:
			w.notes = append(w.notes, "fill")
			w.done[act.Key(active)] = true
		}
		w.add(act.Events...)
		for _, a := range act.Writes {
			w.put(a.Field, a.Value)
		}
		if act.Wait {
			w.notes = append(w.notes, "wait")
			return true
		}
	}
	return false
}

func (w *walk) said() string {
	out := strings.Join(w.notes, ", ")
	w.notes = nil
	return out
}

func ids(targets []Target) string {
	var out []string
	for _, t := range targets {
		out = append(out, t.ID)
	}
	return strings.Join(out, " ")
}

func TestABlockFromItsBeginningToItsEnd(t *testing.T) {
	w := newWalk(bank())
	check := func(what, want string) {
		t.Helper()
		if got := w.said(); got != want {
			t.Fatalf("%s:\n got %s\nwant %s", what, got, want)
		}
	}
	w.advance(true, nil)
	check("nothing is active", "model")
	if got := ids(w.set.Targets(w.st)); got != "hours transfer" {
		t.Fatalf("targets %s", got)
	}
	w.activate("transfer")
	w.advance(false, nil)
	check("after the activation", "utter_recorded, fill, model")
	if got := ids(w.set.Targets(w.st)); got != "collect bye away authenticate hours" {
		t.Fatalf("targets within the skill: %s", got)
	}
	w.activate("transfer__collect")
	w.advance(false, nil)
	check("the block asks", "utter_amount, wait")
	if got := w.set.Settable(w.st); len(got) != 1 || got[0].Name != "amount" {
		t.Fatalf("settable %v", got)
	}
	w.advance(true, nil)
	check("the user answers", "model")
	w.put("transfer.amount", 2500)
	w.advance(false, nil)
	check("the amount is large", "utter_large, model")
	if got := w.set.Reading(w.st); got != "Ask where to." {
		t.Fatalf("reading %q", got)
	}
	w.put("transfer.to", "savings")
	w.advance(false, func(Act) { w.put("transfer.fee", 2) })
	check("the rest runs", `fee {"amount":2500,"currency":"EUR"}, utter_fee, utter_thanks, model`)
	if got := w.set.Value(w.st, "transfer.purpose"); got != "checked" {
		t.Fatalf("purpose %v", got)
	}
	w.add(conversation.Event{Kind: conversation.Bot, Text: "Bye", Source: conversation.FromModel})
	w.advance(true, nil)
	check("the model has spoken", "model")
	if f := w.st.Top(); f == nil || f.Skill != "transfer" || f.Block != "" {
		t.Fatalf("not back in the prose: %+v", w.st.Stack)
	}
	w.add(w.set.Complete(w.st).Events...)
	w.advance(false, nil)
	check("the skill is done", "utter_more, wait")
}

func TestWhoIsInterruptedIsAskedAndResumes(t *testing.T) {
	for _, yes := range []bool{true, false} {
		w := newWalk(bank())
		w.activate("transfer")
		w.activate("collect")
		w.advance(false, nil)
		w.said()
		if why := w.activate("hours"); why != "" {
			t.Fatal(why)
		}
		w.advance(false, nil)
		w.add(w.set.Complete(w.st).Events...)
		w.advance(false, nil)
		if got := w.said(); got != "model, utter_resume, wait" {
			t.Fatalf("got %s", got)
		}
		if got := w.set.Value(w.st, ContinueInterrupt+".interrupted_task_name"); got != "Transfer (Moves money)" {
			t.Fatalf("task %v", got)
		}
		w.put(ContinueInterrupt+".wants_to_resume", yes)
		w.advance(false, nil)
		want := map[bool]string{true: "utter_amount, wait", false: "model"}[yes]
		if got := w.said(); got != want {
			t.Fatalf("resume %v: got %s, want %s", yes, got, want)
		}
		if w.st.On("transfer") != yes {
			t.Fatalf("resume %v: %+v", yes, w.st.Stack)
		}
	}
}

func TestWhoIsActivatedAgainGoesOnWhereTheyWere(t *testing.T) {
	w := newWalk(bank())
	w.activate("transfer")
	w.activate("collect")
	w.put("transfer.amount", 5)
	w.advance(false, nil)
	w.activate("hours")
	w.activate("transfer")
	if f := w.st.Top(); f.Block != "collect" || f.Step != "to" || w.set.Value(w.st, "transfer.amount") != 5.0 {
		t.Fatalf("stack %+v, memory %s", w.st.Stack, w.st.Memory)
	}
	if f := w.st.frame("hours"); f == nil || !f.Interrupted || w.st.skillFrame().Interrupted {
		t.Fatalf("stack %+v", w.st.Stack)
	}
}

func TestAConfirmedStepIsDoneAlsoWhenAnotherSkillIsActive(t *testing.T) {
	w := newWalk(bank())
	w.activate("transfer")
	w.activate("collect")
	w.put("transfer.amount", 5)
	w.put("transfer.to", "savings")
	w.add(conversation.Event{Kind: conversation.BlockStep, Skill: "transfer", Block: "collect", Step: "fee"})
	w.activate("hours")
	w.add(conversation.Event{Kind: conversation.ToolExecuted, Tool: &conversation.ToolRun{Name: "fee", Source: conversation.SourceConfirmation, Skill: "transfer", Step: "fee"}})
	w.activate("transfer")
	if f := w.st.Top(); f.Step != "fee" || !f.Ran {
		t.Fatalf("stack %+v", w.st.Stack)
	}
}

func TestASkillThatAnotherNamesReturnsToIt(t *testing.T) {
	w := newWalk(bank())
	w.activate("transfer")
	if why := w.activate("authenticate"); why != "" {
		t.Fatal(why)
	}
	w.put("project.name", "Ann")
	w.advance(false, nil) // the model has still to speak
	if w.st.Active() != "authenticate" {
		t.Fatalf("active %s", w.st.Active())
	}
	w.advance(true, nil)
	if w.st.Active() != "transfer" || w.st.Top().Interrupted {
		t.Fatalf("stack %+v", w.st.Stack)
	}
	if got := w.set.Reading(w.st); strings.Contains(got, "First") || !strings.Contains(got, "They are") {
		t.Fatalf("reading %q", got)
	}
}

func TestLinkGoesOverForGood(t *testing.T) {
	w := newWalk(bank())
	w.activate("transfer")
	w.activate("away")
	w.advance(false, nil)
	if len(w.st.Stack) != 1 || w.st.Active() != "hours" {
		t.Fatalf("stack %+v", w.st.Stack)
	}
}

func TestWhatCannotBeActivated(t *testing.T) {
	w := newWalk(bank())
	for _, target := range []string{"", "nobody", "authenticate", Completed, "collect", "__"} {
		if why := w.activate(target); why == "" {
			t.Errorf("%q was activated", target)
		}
	}
	w.put("project.note", true)
	if why := w.activate("transfer"); why == "" {
		t.Error("a skill whose requires does not hold was activated")
	}
}

func TestActivationForgetsWhatTheSkillRemembered(t *testing.T) {
	w := newWalk(bank())
	w.activate("transfer")
	w.put("transfer.amount", 5)
	w.add(w.set.Cancel(w.st).Events...)
	if got := w.set.Value(w.st, "transfer.amount"); got != 5.0 {
		t.Fatalf("it is forgotten when the skill ends: %v", got)
	}
	w.activate("transfer")
	if got := w.set.Value(w.st, "transfer.amount"); got != nil {
		t.Fatalf("amount %v", got)
	}
	if got := w.set.Value(w.st, "transfer.purpose"); got != "private" {
		t.Fatalf("purpose %v", got)
	}
}

func TestReplays(t *testing.T) {
	w := newWalk(bank())
	w.activate("transfer")
	w.activate("collect")
	w.put("transfer.amount", 5)
	w.put("transfer.to", "savings")
	w.advance(false, func(Act) { w.put("transfer.fee", 2) })
	w.add(conversation.Event{Kind: conversation.BlockCompleted, Skill: "transfer", Block: "bye"}) // back in collect
	if got := w.set.Replays(w.st, []string{"transfer.to"}); len(got) != 0 {
		t.Errorf("what did not use it is replayed: %v", got)
	}
	got := w.set.Replays(w.st, []string{"transfer.amount"})
	if len(got) != 1 || got[0].Tool != "fee" {
		t.Fatalf("replays %v", got)
	}
	w.put("transfer.amount", 7)
	if args, uses := w.set.ArgumentsOf(w.st, "fee"); string(args) != `{"amount":7,"currency":"EUR"}` || !slices.Equal(uses, []string{"transfer.amount"}) {
		t.Errorf("arguments %s, uses %v", args, uses)
	}
}

func TestAccept(t *testing.T) {
	tests := []struct {
		field Field
		in    any
		want  any
		err   string
	}{
		{Field{Type: Text}, "x", "x", ""},
		{Field{Type: Text}, json.Number("9007199254740993"), "9007199254740993", ""},
		{Field{Type: Text}, 2.5, "2.5", ""},
		{Field{Type: Text}, true, nil, "text"},
		{Field{Type: Text}, strings.Repeat("x", MaxValue+1), nil, "at most"},
		{Field{Type: Bool}, "True", true, ""},
		{Field{Type: Bool}, "yes", nil, "true or false"},
		{Field{Type: Bool}, 1.0, nil, "true or false"},
		{Field{Type: Int}, "12", 12.0, ""},
		{Field{Type: Int}, 1.5, nil, "whole number"},
		{Field{Type: Number}, "1.5", 1.5, ""},
		{Field{Type: Number}, "NaN", nil, "number"},
		{Field{Type: Number}, "x", nil, "number"},
		{Field{Type: List}, []any{"a"}, []any{"a"}, ""},
		{Field{Type: List}, "a", nil, "list"},
		{Field{Type: Any}, map[string]any{"a": json.Number("1")}, map[string]any{"a": 1.0}, ""},
		{Field{Type: Categorical, Values: []any{"Lost", "stolen"}}, " lost ", "Lost", ""},
		{Field{Type: Categorical, Values: []any{"Lost", 2.0}}, "2", 2.0, ""},
		{Field{Type: Categorical, Values: []any{"Lost", 2.0}}, "gone", nil, "one of Lost, 2"},
		{Field{Type: Text}, nil, nil, ""},
	}
	for _, tt := range tests {
		got, err := tt.field.Accept(tt.in)
		if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) || err == nil && !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s takes %v: %v, %v", tt.field.Type, tt.in, got, err)
		}
	}
}

// TestAnyWayThroughASet draws what models and users may do: nothing panics, the
// engine comes to rest, and the state of the events is the state that was gone
// through.
func TestAnyWayThroughASet(t *testing.T) {
	set := bank()
	rapid.Check(t, func(t *rapid.T) {
		w := newWalk(set)
		for range rapid.IntRange(1, 25).Draw(t, "moves") {
			switch rapid.IntRange(0, 6).Draw(t, "move") {
			case 0, 1:
				w.activate(rapid.SampledFrom([]string{"transfer", "hours", "authenticate", "collect", "bye", "away", Completed}).Draw(t, "target"))
			case 2:
				w.put(rapid.SampledFrom([]string{"transfer.amount", "transfer.fee", "project.name", "project.note"}).Draw(t, "field"), rapid.IntRange(0, 2000).Draw(t, "value"))
			case 3:
				if f := w.st.Top(); f != nil && f.Block == "" {
					w.add(w.set.Complete(w.st).Events...)
				}
			case 4:
				w.add(w.set.Cancel(w.st).Events...)
			case 5:
				w.add(conversation.Event{Kind: conversation.Bot, Text: "x", Source: conversation.FromModel})
			case 6:
				name := rapid.SampledFrom([]string{Completed + ".wants_to_continue", ContinueInterrupt + ".wants_to_resume"}).Draw(t, "answer")
				w.put(name, rapid.Bool().Draw(t, "yes"))
			}
			if !w.advance(rapid.Bool().Draw(t, "settling"), nil) {
				t.Fatalf("no rest: %+v", w.st.Stack)
			}
		}
		again := Fold(w.events)
		if a, b := fmt.Sprintf("%+v", again.Stack), fmt.Sprintf("%+v", w.st.Stack); a != b {
			t.Fatalf("stacks differ:\n%s\n%s", a, b)
		}
		if !reflect.DeepEqual(again.Memory, w.st.Memory) {
			t.Fatalf("memories differ")
		}
		for _, target := range set.Targets(w.st) {
			if _, why := set.Activate(w.st, target.ID); why != "" {
				t.Fatalf("target %s is offered and cannot be activated: %s", target.ID, why)
			}
		}
	})
}
