package convtest

import (
	"context"
	"strings"
	"testing"

	"github.com/belay-run/belay/internal/chat"
)

func ask(purpose, messages string) chat.Request {
	tools := map[string][]chat.Tool{Main: {{Name: "listen"}, {Name: "hangup"}}, Fill: {{Name: "set_fields"}}}[purpose]
	return chat.Request{Messages: []byte(messages), Tools: tools}
}

func text(s string) *string { return &s }

func TestPlaysInOrder(t *testing.T) {
	p := &player{}
	p.begin(1, []Completion{
		{Purpose: Main, Text: text("Let me see."), Calls: []chat.ToolCall{{Name: "look_up"}}},
		{Purpose: Fill, Text: text("none")},
		{Purpose: Rephrase, Fail: "it was down"},
		{Purpose: Main, Empty: true},
		{Purpose: Main, Text: text("Well.")},
	})
	ctx := context.Background()
	var pieces []string
	r, err := p.Complete(ctx, ask(Main, "1"), func(s string) { pieces = append(pieces, s) })
	if err != nil || *r.Text != "Let me see." || len(r.ToolCalls) != 1 || len(pieces) != 1 {
		t.Fatalf("%+v, %v, pieces %q", r, err, pieces)
	}
	if r, err = p.Complete(ctx, ask(Fill, "2"), nil); err != nil || *r.Text != "none" {
		t.Fatalf("%+v, %v", r, err)
	}
	if _, err = p.Complete(ctx, ask(Rephrase, "3"), nil); err == nil || err.Error() != "it was down" {
		t.Fatalf("%v", err)
	}
	for range 3 { // it is asked for again
		if r, err = p.Complete(ctx, ask(Main, "4"), nil); err != nil || !r.Empty() {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	if r, err = p.Complete(ctx, ask(Main, "5"), nil); err != nil || *r.Text != "Well." {
		t.Fatalf("%+v, %v", r, err)
	}
	if got := p.end(true); got != nil {
		t.Errorf("problems: %q", got)
	}
}

func TestSaysWhatItLacks(t *testing.T) {
	for name, c := range map[string]struct {
		have []Completion
		asks []string
		want []string
	}{
		"asked more often":        {[]Completion{{Purpose: Main, Text: text("a")}}, []string{Main, Main}, []string{"the model was asked to go on, and the recording has nothing more for turn 3; it has given 1 completion"}},
		"asked for another kind":  {[]Completion{{Purpose: Main, Text: text("a")}}, []string{Rephrase}, []string{`the model was asked to reword a fixed text, and the next completion of the recording is an answer to another question (main): "a"`, `the model was not asked for 1 completion of the recording: "a"`}},
		"asked less often":        {[]Completion{{Purpose: Main, Text: text("a")}, {Purpose: Fill, Calls: []chat.ToolCall{{Name: "set_fields", Arguments: []byte(`{"a":1}`)}}}}, []string{Main}, []string{`the model was not asked for 1 completion of the recording: fill set_fields {"a": 1}`}},
		"nothing was recorded":    {nil, []string{Fill}, []string{"the model was asked which fields the user has given, and the recording has nothing more for turn 3; it has given 0 completions"}},
		"another empty one later": {[]Completion{{Purpose: Main, Empty: true}}, []string{Main, "other"}, []string{"the model was asked to reword a fixed text, and the recording has nothing more for turn 3; it has given 1 completion"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := &player{}
			p.begin(3, c.have)
			for i, purpose := range c.asks {
				_, err := p.Complete(context.Background(), ask(purpose, strings.Repeat("x", i+1)), nil)
				if i == len(c.asks)-1 && err == nil && len(c.want) > 0 && strings.Contains(c.want[0], "was asked") {
					t.Error("it answered")
				}
			}
			if got := p.end(true); strings.Join(got, "\n") != strings.Join(c.want, "\n") {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	p := &player{}
	p.begin(1, []Completion{{Purpose: Main, Text: text("a")}})
	if _, err := p.Complete(ctx, ask(Main, "1"), nil); err == nil {
		t.Error("a cancelled request was answered")
	}
}

func TestNobodyAnswers(t *testing.T) {
	if _, err := (&router{}).Complete(context.Background(), ask(Main, "1"), nil); err == nil {
		t.Error("answered")
	}
}
