package turn

import (
	"fmt"
	"maps"
	"strings"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/internal/conversation"
	"github.com/belay-run/belay/internal/loop"
	"github.com/belay-run/belay/internal/rawjson"
)

// Say brings a text of the model to the user, through the outgoing hooks.
func (t *turn) Say(s loop.Speech) error {
	e := conversation.Event{Kind: conversation.Bot, Text: s.Text, Source: s.Source, BatchID: s.Batch}
	if s.Cut {
		e.Note = "cut short: the model failed"
	}
	return t.say(s.Key, e, s.Streamed)
}

// say puts a whole text to the outgoing hooks, records what goes on and sends
// it. Its record is on disk before it leaves.
func (t *turn) say(key string, e conversation.Event, streamed bool) error {
	r, err := t.hooks.At(key+"/"+hook.OutgoingText, t.outgoing(e.Text))
	if err != nil {
		return err
	}
	if r.Kind != hook.Continue {
		e.Discarded = &conversation.Discarded{By: "rejected", Hook: r.Hook.Name, Reason: r.Reason}
		t.add(e)
		return t.fallback(key)
	}
	if r.Changed {
		e.Text = r.Payload.Text("text")
	}
	if strings.TrimSpace(e.Text) == "" {
		e.Discarded = &conversation.Discarded{By: "emptied"}
		t.add(e)
		t.note("the outgoing hook left no text: nothing is sent")
		return nil
	}
	return t.send(e, streamed)
}

// fallback stands in for a rejected text. It is not put to the modify lane: a
// hook that rejects everything gives one fallback a text and no loop.
func (t *turn) fallback(key string) error {
	text, _, ok := t.pick(pointOutgoing.Rejected, nil)
	if !ok {
		return nil
	}
	if err := t.hooks.Shown(key+"/fallback", t.outgoing(text)); err != nil {
		return err
	}
	return t.send(conversation.Event{Kind: conversation.Bot, Text: text, Source: conversation.Verbatim, Response: pointOutgoing.Rejected}, false)
}

func (t *turn) outgoing(text string) hook.Payload {
	return t.identity.Payload(pointOutgoing).Set("text", text).Set("is_voice", t.msg.Voice)
}

func (t *turn) send(e conversation.Event, streamed bool) error {
	t.partial.Reset()
	t.add(e)
	if err := t.flush(); err != nil {
		return err
	}
	if err := t.ctx.Err(); err != nil {
		return fmt.Errorf("cancelled before a text was sent: %w", err)
	}
	t.out.Text(Utterance{Text: e.Text, Source: e.Source, Streamed: streamed && !t.held})
	return nil
}

// manner says whether a model may reword a fixed text.
type manner bool

const (
	plain       manner = false // error and fallback texts: said as written
	mayRephrase manner = true
)

// utter sends a fixed text.
func (t *turn) utter(key, name string, vars map[string]any, how manner) error {
	return t.utterOf(key, "", name, vars, how)
}

// utterOf sends a fixed text that the engine says for a skill, "" for none.
func (t *turn) utterOf(key, of, name string, vars map[string]any, how manner) error {
	text, rephrase, ok := t.pick(name, vars)
	if !ok {
		t.agent.Logger.Warn("no such response", "response", name, "turn", t.id)
		t.note("there is no response " + name)
		return nil
	}
	key = fmt.Sprintf("%s/utter/%d", key, t.said) // a response may be said twice in a turn
	t.said++
	source := conversation.Verbatim
	if rephrase && how == mayRephrase {
		reworded, err := t.rephrase(key, name, text)
		if err != nil {
			return err
		}
		if reworded != "" {
			text, source = reworded, conversation.Rephrased
		}
	}
	return t.say(key, conversation.Event{Kind: conversation.Bot, Text: text, Source: source, Response: name, Skill: of}, false)
}

// pick renders a response with what is remembered and the values of its own, which
// win.
func (t *turn) pick(name string, own map[string]any) (text string, rephrase, ok bool) {
	if t.state == nil {
		return t.agent.Words.PickIn("", name, own)
	}
	vars := maps.Clone(t.agent.Skills.Vars(t.state))
	maps.Copy(vars, own)
	return t.agent.Words.PickIn(t.state.Active(), name, vars)
}

// spaced writes an object as the text a model reads.
func spaced(v any) string { return rawjson.Written(rawjson.Must(v)) }
