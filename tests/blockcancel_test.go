package tests

import (
	"context"
	"maps"
	"strings"
	"testing"

	"github.com/belay-run/belay/internal/app/apptest"
	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/conversation"
)

// cancelledStep is a turn that the user cancels while a block is under way, and
// what is said in the turn that their next message begins.
type cancelledStep struct {
	name string
	at   string // where the block stands before; see playedAgent.orders
	item string
	// The cancelled turn: what the model does, at which text the outgoing hook
	// waits, and until which note or request it runs.
	answers []apptest.Answer
	hold    string
	until   string   // a note; "" for a request that does not come back
	sent    []string // before it was cancelled
	// The turn after it.
	then  []apptest.Answer
	heard []string
	tools []string // that ran in all
}

func cancelledSteps(asked chan<- struct{}) []cancelledStep {
	hangs := reached(asked, nil, apptest.Says("planted-late"))
	lamp, right := sets(map[string]any{"item": "lamp"}), sets(map[string]any{"right": true})
	quoted := []string{"tool quote", "tool tax"}
	reserved := append(quoted[:2:2], "tool reserve")
	return []cancelledStep{
		{name: "in the text of an action", answers: []apptest.Answer{starts("order"), nothing}, hold: "Hello.", until: "held", heard: []string{"Hello.", "Which item?"}},
		{name: "in the fill of fields", answers: []apptest.Answer{starts("order"), hangs}, heard: []string{"Hello.", "Which item?"}},
		{name: "in a question", answers: []apptest.Answer{starts("order"), nothing}, hold: "Which item?", until: "held", sent: []string{"Hello."}, heard: []string{"Which item?"}},
		{name: "in the request to reword a question", at: "what", answers: []apptest.Answer{lamp, hangs}, then: []apptest.Answer{asWritten}, heard: []string{"Which street?"}, tools: quoted},
		{name: "in a tool", at: "what", answers: []apptest.Answer{sets(map[string]any{"item": "slow"})}, until: "tool quote", then: []apptest.Answer{asWritten}, heard: []string{"Which street?"}, tools: quoted},
		{name: "in the model's own request", at: "talk", answers: []apptest.Answer{hangs}, then: []apptest.Answer{apptest.Says("So, is it?")}, heard: []string{"So, is it?"}, tools: quoted},
		{name: "in the question of a confirmation", at: "talk", answers: []apptest.Answer{right}, hold: "Reserve lamp?", until: "held", heard: []string{"Reserve lamp?"}, tools: quoted},
		{name: "in a confirmed tool", at: "reserve", item: "slow lamp", answers: []apptest.Answer{yes}, until: "tool reserve", then: []apptest.Answer{apptest.Says("Bye."), asWritten},
			heard: []string{"Bye.", "Thank you.", anythingElse}, tools: reserved},
	}
}

func TestCancelledInABlock(t *testing.T) {
	t.Parallel()
	files := maps.Clone(orderFiles)
	files["responses.yml"] = strings.Replace(files["responses.yml"], "utter_ask_street: [Which street?]", "utter_ask_street: [{text: Which street?, metadata: {rephrase: true}}]", 1)
	files["skills/order/tools.py"] = strings.Replace(files["skills/order/tools.py"], `context.memory.get("street") == "slow"`, `context.memory.get("item") == "slow lamp"`, 1)
	a := startPlayed(t, nil, files, playedHooks(longLimit, "on_turn_started", "on_turn_finished", "modify_model_request", "modify_outgoing_text"))
	asked := make(chan struct{}, 1)
	for _, c := range cancelledSteps(asked) {
		sender := c.name
		if c.item == "" {
			c.item = "lamp"
		}
		if c.at != "" {
			a.orders(t, sender, c.item, c.at)
		}
		kept, before := a.remembers(sender), len(a.Of(sender, conversation.Bot))
		a.Next(sender, c.answers...)
		in := played(sender, "planted-first", bodies{"modify_outgoing_text": "if p.text == '" + c.hold + "':\n    note('held', sender_id=p.sender_id)\n    await gate('never')"})
		done := a.send(t.Context(), in)
		if c.until == "" {
			awaited(t, asked)
		} else {
			a.waitFor(t, sender, c.until)
		}
		next := played(sender, "and now", nil)
		next.Interrupt = true
		a.Next(sender, c.then...)
		second := awaited(t, a.send(t.Context(), next))
		first := awaited(t, done)

		t.Run("T78 cancelled in a block, the step is said again and nothing is lost: "+c.name, func(t *testing.T) {
			if first.err != nil || second.err != nil {
				t.Fatal(first.err, second.err)
			}
			expect(t, "the first turn", []any{first.Report.Status, first.Texts}, []any{"cancelled", c.sent})
			expect(t, "the second turn", []any{second.Report.Status, second.Texts}, []any{"completed", c.heard})
			expect(t, "the record of what was said", len(a.Of(sender, conversation.Bot)), before+len(c.sent)+len(c.heard))
			expect(t, "tools that ran", of(a.toolNotes(sender), "tool"), append([]string{}, c.tools...))
			now := a.remembers(sender)
			for name, value := range kept {
				expect(t, name, now[name], value)
			}
			wantNone(t, "the record", inJSON(a.Events(sender)), "planted-late")
		})
		t.Run("T70 every started has its finished: "+c.name, func(t *testing.T) {
			notes := a.notesOf(sender, "on_turn_started", "on_turn_finished")
			open := ""
			for i, n := range notes {
				id, _ := n.Data["turn_id"].(string)
				if started := n.What == "on_turn_started"; started != (i%2 == 0) || !started && id != open {
					t.Errorf("note %d is %s of %s", i, n.What, id)
				} else {
					open = id
				}
			}
			if len(notes) < 4 || len(notes)%2 != 0 {
				t.Errorf("%d notes", len(notes))
			}
		})
		t.Run("T76 the finished of the cancelled turn is its last: "+c.name, func(t *testing.T) {
			notes := a.notesOf(sender)
			for i, n := range notes {
				if n.What == "on_turn_finished" && n.Data["turn_id"] == first.Report.Turn {
					expect(t, "status", n.Data["status"], "cancelled")
					if i+1 < len(notes) {
						expect(t, "what comes after it", notes[i+1].What, "on_turn_started")
					}
					return
				}
			}
			t.Error("there is none")
		})
	}
}

func TestCancelledInAStreamOfABlock(t *testing.T) {
	t.Parallel()
	a := startPlayed(t, nil, orderFiles, playedHooks(longLimit, "on_outgoing_text"))
	a.orders(t, "ann", "lamp", "reserve")
	asked := make(chan struct{}, 1)
	a.Next("ann", yes, func(ctx context.Context, _ chat.Request, delta func(string)) (chat.Response, error) {
		delta("half a ")
		asked <- struct{}{}
		<-ctx.Done()
		return chat.Response{}, ctx.Err()
	})
	in := played("ann", "yes", nil)
	in.Live = true
	done := a.send(t.Context(), in)
	awaited(t, asked)
	in.Interrupt, in.Message.Text = true, "what?"
	a.Next("ann", apptest.Pieces("Good", "bye."), asWritten)
	second, first := awaited(t, a.send(t.Context(), in)), awaited(t, done)

	t.Run("T78 a text of a step that was cut short is said again", func(t *testing.T) {
		expect(t, "the first turn", first.Order, []string{"text:Reserved as R1.", "piece:half a "})
		expect(t, "the second turn", second.Order, []string{"piece:Good", "piece:bye.", "text:Goodbye.", "text:Thank you.", "text:" + anythingElse})
		expectLines(t, "the record", of(story(a.Events("ann")), "bot: half", "bot: Good"), []string{"bot: half a ", "bot: Goodbye."})
	})
}
