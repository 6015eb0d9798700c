package convtest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/belay-run/belay/internal/app"
	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/conversation"
	"github.com/belay-run/belay/internal/loop"
	"github.com/belay-run/belay/internal/rawjson"
	"github.com/belay-run/belay/internal/skill"
	"github.com/belay-run/belay/internal/turn"
)

// Source is a kept conversation.
type Source struct {
	Name   string // of the test
	Sender string
	Events []conversation.Event
	// Traces tell what events do not: which completions failed or were discarded.
	// An export has none.
	Traces []conversation.Trace
	Skills *skill.Set // of the agent; nil when it has none, or nobody knows it
}

// Record makes a test of a kept conversation: what the user said, what the model
// decided, and what came of it. notes say what could not be held.
func Record(src Source) (c *Conversation, notes []string, err error) {
	traces, err := linesOf(src.Traces)
	if err != nil {
		return nil, nil, err
	}
	c = &Conversation{Name: src.Name, Sender: src.Sender, recorded: true}
	r := &taker{set: src.Skills, state: &skill.State{}}
	r.skilled = slices.ContainsFunc(src.Events, func(e conversation.Event) bool { return e.Kind == conversation.SkillActivated })
	for _, events := range byTurn(src.Events) {
		t := r.turn(events, traces[events[0].Turn])
		if t == nil {
			continue
		}
		c.Turns = append(c.Turns, t)
		for _, note := range t.notes {
			notes = append(notes, fmt.Sprintf("turn %d: %s", len(c.Turns), note))
		}
	}
	if len(c.Turns) == 0 {
		return nil, nil, fmt.Errorf("the conversation has no message of the user's")
	}
	return c, notes, nil
}

// linesOf gives the lines of each turn's trace.
func linesOf(traces []conversation.Trace) (map[string][]loop.Line, error) {
	out := map[string][]loop.Line{}
	for _, l := range traces {
		var t app.TurnTrace
		if err := json.Unmarshal(l.Data, &t); err != nil {
			return nil, fmt.Errorf("read the trace of turn %s: %w", l.Turn, err)
		}
		if t.Status != "" { // observers have rows of their own
			out[l.Turn] = t.Lines
		}
	}
	return out, nil
}

// byTurn parts events into turns.
func byTurn(events []conversation.Event) [][]conversation.Event {
	var out [][]conversation.Event
	for i, e := range events {
		if i == 0 || e.Turn != events[i-1].Turn {
			out = append(out, nil)
		}
		out[len(out)-1] = append(out[len(out)-1], e)
	}
	return out
}

// taker goes through the turns of a conversation.
type taker struct {
	set     *skill.Set
	state   *skill.State
	skilled bool // skills were used
}

// turn makes a turn of its events; nil when the user said nothing in it.
func (r *taker) turn(events []conversation.Event, trace []loop.Line) *Turn {
	t := &Turn{}
	p := &pass{taker: r, batches: map[string]int{}, guess: trace == nil, settled: -1}
	said := false
	for i := range events {
		e := &events[i]
		r.state.Apply(e)
		p.rest = events[i+1:]
		if e.Kind == conversation.User {
			said, t.User, t.Extra = true, e.Text, e.Extra
			if e.Discarded != nil {
				t.Expect.Message = &TextMatch{Discarded: e.Discarded.By}
			}
		}
		p.event(e)
	}
	if !said {
		return nil
	}
	t.Recording, t.notes = p.out, p.notes
	if trace != nil {
		a := arranged(trace, p.out)
		t.Recording, t.notes = a.out, append(t.notes, a.notes...)
		t.Expect.Hooks = a.hooks
	}
	r.expect(t, events)
	if last := events[len(events)-1].Kind; last != conversation.BotTurnEnded && last != conversation.SessionEnded && p.broken == "" {
		t.notes = append(t.notes, "the turn has no end: it was under way, or the export leaves ends out")
	}
	if p.broken != "" {
		// How a turn goes on that was broken off nobody knows: its model fails.
		t.Recording = append(t.Recording, Completion{Purpose: Main, Fail: p.broken})
		t.Expect = Expect{Status: &Name{Text: turn.Failed}}
		t.notes = append(t.notes, p.broken+"; in the test the model fails there")
	}
	return t
}

// pass takes the model's decisions out of the events of a turn.
type pass struct {
	*taker
	out     []Completion
	batches map[string]int // id → its place in out
	filler  *string        // text that came before a batch that has no id yet
	filling bool           // the last of out is an answer about fields that grows
	guess   bool           // no trace says when the model was asked about fields
	open    bool           // it probably was
	rest    []conversation.Event
	settled int    // where a decision to wait belongs: before a skill that then ended; -1 for last
	opening bool   // the channel began the session: no model was asked
	broken  string // why the turn did not come to its end
	notes   []string
}

func (p *pass) event(e *conversation.Event) {
	switch e.Kind {
	case conversation.User:
		p.opening = e.Text == conversation.Opening
	case conversation.Bot:
		p.bot(e)
	case conversation.ToolExecuted:
		if e.Tool != nil && e.Tool.CallID != "" && e.Tool.Source == "" {
			p.called(e.Tool)
		}
	case conversation.MemorySet, conversation.MemoryCleared:
		if e.Memory != nil && e.Memory.By == Fill {
			p.filled(e.Memory)
		}
	case conversation.SkillActivated:
		p.activated(e)
	case conversation.SkillCompleted:
		if p.settled < 0 {
			p.settled = len(p.out)
		}
	case conversation.BlockEntered:
		if p.byModel(e.Block) != nil {
			p.open = false // the block comes first
		}
		p.settle()
	case conversation.TurnInterrupted:
		p.broken = "the process ended in this turn"
	case conversation.BotTurnEnded:
		p.ended(e)
	}
}

// activated takes it that the model is asked about the fields of a skill that has
// some, once the batch is over in which it was activated.
func (p *pass) activated(e *conversation.Event) {
	if run := p.byModel(e.Skill); run != nil {
		p.batch(run.BatchID)
	}
	k := p.set.Skill(e.Skill)
	p.filling, p.open = false, p.guess && k != nil && !k.OfEngine() && len(p.set.Open(p.state, k)) > 0
}

// byModel gives the call by which the model has just activated a skill or block; nil
// when the engine did. The call's own event stands after what it did.
func (p *pass) byModel(id string) *conversation.ToolRun {
	i := slices.IndexFunc(p.rest, func(e conversation.Event) bool {
		return e.Kind == conversation.ToolExecuted && e.Tool != nil && e.Tool.CallID != ""
	})
	if i < 0 || p.rest[i].Tool.Name != "activate" {
		return nil
	}
	var args struct {
		Target string `json:"target_id"`
	}
	run := p.rest[i].Tool
	if json.Unmarshal(run.Arguments, &args) != nil {
		return nil
	}
	if target := args.Target[strings.LastIndex(args.Target, ".")+1:]; target != id && !strings.HasSuffix(target, "__"+id) {
		return nil
	}
	return run
}

// add takes a decision in. One of the loop's own comes after the question about
// fields.
func (p *pass) add(c Completion) *Completion {
	if c.Purpose == Main {
		p.settle()
		p.settled = -1
	}
	p.filling = false
	p.out = append(p.out, c)
	return &p.out[len(p.out)-1]
}

// settle takes it that the model was asked about fields and found none.
func (p *pass) settle() {
	if p.open {
		p.open = false
		none := "none"
		p.out = append(p.out, Completion{Purpose: Fill, Text: &none})
	}
}

const (
	sentByTool = "sent by tool "
	cutShort   = "cut short"
)

func (p *pass) bot(e *conversation.Event) {
	text := e.Text
	switch e.Source {
	case conversation.Rephrased:
		p.add(Completion{Purpose: Rephrase, Text: &text})
	case conversation.Filler:
		if strings.TrimSpace(text) == "" {
			return // a hook emptied it
		}
		if e.BatchID == "" {
			p.filler = &text
			return
		}
		p.batch(e.BatchID).Text = &text
	case conversation.FromModel:
		switch {
		case strings.HasPrefix(e.Note, sentByTool), e.Note == "interrupted":
		case strings.HasPrefix(e.Note, cutShort):
			p.add(Completion{Purpose: Main, Text: &text, Fail: "the model failed before its text was whole"})
			p.notes = append(p.notes, "the user read the beginning of a text that broke off; a test takes whole texts only")
		case strings.TrimSpace(text) == "":
			text = "(a text that a hook emptied)"
			p.add(Completion{Purpose: Main, Text: &text})
			p.notes = append(p.notes, "a hook left nothing of a text; the recording has another in its place")
		default:
			p.add(Completion{Purpose: Main, Text: &text})
		}
	}
}

// batch gives the decision that made a batch of calls.
func (p *pass) batch(id string) *Completion {
	if i, ok := p.batches[id]; ok {
		return &p.out[i]
	}
	c := p.add(Completion{Purpose: Main, Text: p.filler})
	p.filler = nil
	p.batches[id] = len(p.out) - 1
	return c
}

func (p *pass) called(run *conversation.ToolRun) {
	c := p.batch(run.BatchID)
	c.Calls = append(c.Calls, chat.ToolCall{ID: run.CallID, Type: run.CallType, Name: run.Name, Arguments: run.Arguments})
}

// filled takes in a field that the model found in what the user had said.
func (p *pass) filled(m *conversation.Memory) {
	p.open = false
	if !p.filling {
		p.add(Completion{Purpose: Fill, Calls: []chat.ToolCall{{Type: "function", Name: "set_fields", Arguments: json.RawMessage(`{}`)}}})
		p.filling = true
	}
	_, name, _ := strings.Cut(m.Name, ".")
	value := m.Value
	if value == nil {
		value = json.RawMessage("null")
	}
	args := &p.out[len(p.out)-1].Calls[0].Arguments
	*args = with(*args, name, value)
}

// with adds a member to a JSON object.
func with(object json.RawMessage, name string, value json.RawMessage) json.RawMessage {
	inner := strings.TrimSuffix(strings.TrimPrefix(string(object), "{"), "}")
	if inner != "" {
		inner += ","
	}
	return json.RawMessage("{" + inner + string(rawjson.Must(name)) + ":" + string(value) + "}")
}

// ended takes in what only the end of a turn tells.
func (p *pass) ended(e *conversation.Event) {
	why := loop.Why(e.Note)
	if why == loop.Said || why == loop.Listening {
		p.settle()
	}
	if e.Status == turn.Cancelled {
		p.broken = "the turn was cancelled"
		return
	}
	switch why {
	case loop.Listening, loop.HungUp:
		if p.opening {
			return
		}
		call := chat.ToolCall{Type: "function", Name: string(why), Arguments: json.RawMessage(`{}`)}
		for i := len(p.out) - 1; i >= 0; i-- {
			if c := &p.out[i]; c.Purpose == Main {
				if len(c.Calls) == 0 && c.Text != nil { // the text that stood beside it
					c.Calls = []chat.ToolCall{call}
					return
				}
				break
			}
		}
		at := p.settled
		p.add(Completion{Purpose: Main, Calls: []chat.ToolCall{call}})
		if at >= 0 {
			last := len(p.out) - 1
			p.out = slices.Insert(p.out[:last:last], at, p.out[last])
		}
	case loop.ModelError:
		if n := len(p.out); n == 0 || p.out[n-1].Fail == "" {
			p.add(Completion{Purpose: Main, Fail: "the model failed"})
		}
	case loop.NoAnswer:
		p.add(Completion{Purpose: Main, Empty: true})
	}
}

// expect writes down what came of a turn. Results of tools are left out: clocks and
// new ids would fail the test.
func (r *taker) expect(t *Turn, events []conversation.Event) {
	e := &t.Expect
	e.Texts, e.Tools = &List[TextMatch]{}, &List[ToolMatch]{}
	var wrote []string
	for _, ev := range events {
		switch ev.Kind {
		case conversation.Bot:
			if ev.Discarded != nil || strings.HasPrefix(ev.Note, cutShort) {
				continue
			}
			m := TextMatch{Text: &ev.Text, Response: ev.Response}
			if ev.Source == conversation.Rephrased {
				m.Source = ev.Source
			}
			e.Texts.Items = append(e.Texts.Items, m)
		case conversation.ToolExecuted:
			e.Tools.Items = append(e.Tools.Items, toolOf(ev.Tool))
		case conversation.ConfirmAsked, conversation.ConfirmResolved:
			if e.Confirmation == nil {
				e.Confirmation = &ConfirmMatch{}
			}
			if ev.Kind == conversation.ConfirmAsked && ev.Tool != nil {
				e.Confirmation.Asked = ev.Tool.Name
			}
			e.Confirmation.Resolved = cmp.Or(e.Confirmation.Resolved, ev.Confirmed)
		case conversation.MemorySet, conversation.MemoryCleared:
			if ev.Memory != nil && !slices.Contains(wrote, ev.Memory.Name) {
				wrote = append(wrote, ev.Memory.Name)
			}
		case conversation.BotTurnEnded:
			if ev.Status != turn.Completed {
				e.Status = &Name{Text: ev.Status}
			}
		}
	}
	r.stands(e, wrote)
}

// stands writes down where the conversation stands after a turn.
func (r *taker) stands(e *Expect, wrote []string) {
	for _, name := range wrote {
		value, ok := r.state.Memory[name]
		if r.set.Field(name) != nil {
			value, ok = rawjson.Must(r.set.Value(r.state, name)), true
		}
		if ok {
			e.Memory = append(e.Memory, Value{Name: name, Value: value})
		}
	}
	if !r.skilled {
		return
	}
	e.Skill = &Name{Text: r.state.Active()}
	if top := r.state.Top(); top != nil && top.Block != "" {
		e.Block, e.Step = &Name{Text: top.Block}, &Name{Text: top.Step}
	}
}

func toolOf(run *conversation.ToolRun) ToolMatch {
	m := ToolMatch{Name: run.Name, Arguments: run.Arguments, IsError: &run.IsError}
	if run.Source != "" {
		m.By = byWord(run.Source)
	}
	return m
}
