package turn

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/internal/conversation"
	"github.com/belay-run/belay/internal/loop"
	"github.com/belay-run/belay/internal/skill"
	"github.com/belay-run/belay/internal/step"
)

var (
	pointStarted  = hook.PointNamed(hook.TurnStarted)
	pointFinished = hook.PointNamed(hook.TurnFinished)
	pointIncoming = hook.PointNamed(hook.IncomingMessage)
	pointOutgoing = hook.PointNamed(hook.OutgoingText)
	pointQuery    = hook.PointNamed(hook.KnowledgeQuery)
	pointResults  = hook.PointNamed(hook.KnowledgeResults)
)

// turn is one turn under way. It is the loop's environment.
type turn struct {
	agent *Agent
	rec   *conversation.Record
	out   Out
	msg   Message
	ctx   context.Context

	id       string
	began    bool // turn started was asked
	sender   string
	identity loop.Identity
	steps    step.Steps
	hooks    *loop.Hooks
	lines    []loop.Line
	reached  map[string]bool
	end      loop.End

	partial strings.Builder // pieces of the text that is streaming now
	held    bool            // its pieces do not leave: the record could not be written
	asking  map[string]asked
	inner   map[string]innerRun
	said    int
	running *conversation.ToolRun // the call whose tool runs now

	state *skill.State    // nil when the agent has no skills
	done  map[string]bool // what the engine did in this turn and does not do twice
	moves int             // of the engine, for the keys of its steps
	// declined says that the model has just said that no skill can help.
	declined bool
}

// Run runs one turn. An error means that the record could not be written: then
// nothing that depended on it has left. Every other failure is part of the
// report.
func (a *Agent) Run(ctx context.Context, rec *conversation.Record, msg Message, out Out, opt Options) (Report, error) {
	t := &turn{agent: a, rec: rec, out: out, msg: msg, ctx: ctx, sender: rec.ID().Sender,
		reached: map[string]bool{}, asking: map[string]asked{}, inner: map[string]innerRun{}}
	t.identity = loop.Identity{Sender: t.sender, Call: msg.Call, Channel: msg.Channel}
	wrap := opt.Wrap
	if wrap == nil {
		wrap = func(s step.Steps) step.Steps { return s }
	}
	t.hooks = &loop.Hooks{Set: a.Hooks.Pin(), Who: hook.Who{Agent: a.ID}, Trace: t.trace}
	t.hooks.Record = func(r hook.Run) hook.Run {
		return a.Hooks.Record(r, hook.Asker{Key: t.sender, Turn: t.id})
	}
	t.use(wrap(step.NewDirect(ctx, t.handlers(), a.Clock)))
	began := a.Clock()
	before := len(rec.Events())
	t.follow()

	status, err := t.run(opt)

	// What is left to do is done even when the turn was cancelled.
	t.use(wrap(step.NewDirect(context.WithoutCancel(ctx), t.handlers(), a.Clock)))
	if ferr := t.finish(status); ferr != nil && err == nil {
		err = ferr
	}
	report := Report{Turn: t.id, Agent: a.ID, Sender: t.sender, Status: status, Why: string(t.end.Why), Began: began, Took: a.Clock().Sub(began),
		Lines: t.lines, Events: rec.Events()[before:], Ended: t.end.Why == loop.HungUp}
	if err != nil {
		report.Status = Failed
	}
	return report, err
}

func (t *turn) use(s step.Steps) { t.steps, t.hooks.Steps = s, s }

// run is the turn between its beginning and its end. A panic is a failed turn,
// not a lost one.
func (t *turn) run(opt Options) (status string, err error) {
	defer func() {
		if r := recover(); r != nil {
			t.panicked(r)
			status = Failed
		}
	}()
	if err := t.start(opt.ID); err != nil {
		return t.stopped(err)
	}
	status, err = t.talk(opt)
	if err != nil {
		return t.stopped(err)
	}
	return status, nil
}

// panicked says that the turn failed. What panicked may be what the user is told
// through, so a second panic is only logged.
func (t *turn) panicked(r any) {
	t.agent.Logger.Error("a turn panicked", "turn", t.id, "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
	t.note("the turn panicked")
	defer func() {
		if again := recover(); again != nil {
			t.agent.Logger.Error("the user could not be told of a panic", "turn", t.id, "panic", fmt.Sprint(again))
		}
	}()
	if err := t.utter("panic", responseInternal, nil, plain); err != nil {
		t.agent.Logger.Error("the user could not be told of a panic", "turn", t.id, "error", err)
	}
}

const responseInternal = "utter_internal_error"

// stopped tells a turn that was cancelled from one that cannot go on.
func (t *turn) stopped(err error) (string, error) {
	if t.ctx.Err() != nil || errors.Is(err, step.ErrStopped) {
		t.note("cancelled")
		return Cancelled, nil
	}
	t.agent.Logger.Error("a turn failed", "turn", t.id, "error", err)
	t.note("failed: " + err.Error())
	return Failed, err
}

func (t *turn) start(id string) error {
	if t.id = id; t.id == "" {
		a, err := t.steps.Do(step.Call{Key: "turn/id", Kind: loop.KindID, Input: loop.IDCall{For: "turn"}})
		if err != nil {
			return err
		}
		if t.id, err = step.As[string](a); err != nil {
			return err
		}
	}
	p := t.identity.Payload(pointStarted).Set("turn_id", t.id).Set("is_voice", t.msg.Voice)
	if _, err := t.hooks.At(hook.TurnStarted, p); err != nil {
		return err
	}
	t.began = true
	return nil
}

// talk takes the message in and, when it may be answered, runs the loop.
func (t *turn) talk(opt Options) (string, error) {
	status, goOn, err := t.incoming()
	if err != nil || !goOn {
		return status, err
	}
	l := &loop.Loop{Steps: t.steps, Hooks: t.hooks, Env: t, Identity: t.identity, Limits: t.agent.Limits, Live: opt.Live, Watch: opt.Watch}
	if t.end, err = l.Run(loop.State{}); err != nil {
		return "", err
	}
	if t.end.Why == loop.Said || t.end.Why == loop.Listening {
		if _, err := t.advance(true); err != nil {
			return "", err
		}
	}
	if t.end.Detail != "" {
		t.note(string(t.end.Why) + ": " + t.end.Detail)
	}
	if t.end.Response != "" {
		if err := t.utter("end", t.end.Response, nil, plain); err != nil {
			return "", err
		}
	}
	if t.end.Failed() {
		return Failed, nil
	}
	return Completed, nil
}

// incoming puts the message to its hooks before anything of it is stored.
func (t *turn) incoming() (status string, goOn bool, err error) {
	said := t.msg.Text
	result := hook.Result{Kind: hook.Continue}
	if said != "" {
		if result, err = t.hooks.At(hook.IncomingMessage, t.identity.Payload(pointIncoming).Set("text", said)); err != nil {
			return "", false, err
		}
	} else {
		t.reached[hook.IncomingMessage] = true
		t.note("the message has no text: incoming hooks are not asked")
	}
	now := t.steps.Now()
	if t.rec.Mend(now) {
		t.note("the turn before was interrupted by the end of its process")
		t.follow()
	}
	if !t.rec.Began() {
		t.add(conversation.Event{Kind: conversation.SessionStarted})
	}
	user := conversation.Event{Kind: conversation.User, Text: said, Extra: t.msg.Extra}
	switch {
	case result.Kind == hook.Continue:
		if said != "" {
			user.Text = result.Payload.Text("text")
		}
		if t.fresh() {
			if err := t.greet(); err != nil {
				return "", false, err
			}
		}
		t.add(user)
		if user.Text == conversation.Opening {
			t.end = loop.End{Why: loop.Listening}
			return Completed, false, nil
		}
		return "", true, nil
	case result.Failure != nil:
		user.Discarded = &conversation.Discarded{By: "hook_error", Hook: result.Hook.Name, Reason: result.Failure.Error()}
		t.add(user)
		t.end = loop.End{Why: loop.HookError, Response: pointIncoming.Response}
		return Failed, false, t.utter("incoming", pointIncoming.Response, nil, plain)
	}
	user.Discarded = &conversation.Discarded{By: "rejected", Hook: result.Hook.Name, Reason: result.Reason}
	t.add(user)
	t.end = loop.End{Why: "rejected"}
	return Completed, false, t.utter("incoming", pointIncoming.Rejected, nil, plain)
}

// fresh says that nothing has happened in the session yet but messages that hooks
// turned away.
func (t *turn) fresh() bool {
	events := t.rec.Events()
	for i := len(events) - 1; i >= 0; i-- {
		switch e := &events[i]; {
		case e.Kind == conversation.SessionStarted:
			return true
		case e.Kind == conversation.User && e.Discarded == nil, e.Kind == conversation.SkillActivated, e.Kind == conversation.Bot && e.Response == responseGreeting:
			return false
		}
	}
	return false
}

// greet begins a session: with the skill that is there for it, else with the
// project's own greeting.
func (t *turn) greet() error {
	if t.state != nil && t.agent.Skills.Skill(skill.SessionStart) != nil {
		t.add(conversation.Event{Kind: conversation.SkillActivated, Skill: skill.SessionStart})
		_, err := t.advance(true)
		return err
	}
	if _, _, ok := t.pick(responseGreeting, nil); !ok {
		return nil
	}
	return t.utter("greeting", responseGreeting, nil, mayRephrase)
}

const responseGreeting = "utter_session_start"

// finish closes the turn: what the user read of a text that was cut short, the
// end in the record, the trace, and the finished hooks, last.
func (t *turn) finish(status string) error {
	if !t.began {
		return nil // it was cancelled before its beginning
	}
	now := t.steps.Now()
	var err error
	if status == Cancelled {
		err = t.keepRead()
	}
	if run := t.running; run != nil {
		before := len(t.rec.Events())
		t.rec.BreakOff(*run, t.id, now)
		for i := before; t.state != nil && i < len(t.rec.Events()); i++ {
			t.state.Apply(&t.rec.Events()[i])
		}
	}
	if t.rec.Began() {
		if t.end.Why == loop.HungUp {
			t.add(conversation.Event{Kind: conversation.SessionEnded})
		}
		t.keep(conversation.Event{Kind: conversation.BotTurnEnded, Turn: t.id, At: now, Status: status, Note: string(t.end.Why)})
	}
	if err = errors.Join(err, t.rec.Flush(context.WithoutCancel(t.ctx))); err != nil {
		t.agent.Logger.Error("the end of a turn could not be written", "turn", t.id, "error", err)
		status = Failed
	}
	p := t.identity.Payload(pointFinished).Set("turn_id", t.id).Set("status", status)
	if _, herr := t.hooks.At(hook.TurnFinished, p); herr != nil && err == nil {
		err = herr
	}
	t.unreached()
	t.remember()
	return err
}

// keepRead records what the user has read of a text that was cut short. It is
// asked for by a step: pieces leave beside the flow, which a run again must not
// miss.
func (t *turn) keepRead() error {
	a, err := t.steps.Do(step.Call{Key: "turn/read", Kind: kindRead, Input: nothing{}})
	if err != nil {
		return err
	}
	text, err := step.As[string](a)
	if err == nil && text != "" {
		t.add(conversation.Event{Kind: conversation.Bot, Text: text, Source: conversation.FromModel, Note: "interrupted"})
	}
	return err
}

// unreached tells the points whose hooks were not asked from those where none
// stands.
func (t *turn) unreached() {
	for _, p := range hook.Points {
		if p.Dialect != hook.Turn || t.reached[p.Name] {
			continue
		}
		if c := t.hooks.Set.Chain(p, t.hooks.Who); c != nil {
			first, final := c.Observers()
			t.trace(loop.Line{Kind: "point", Point: p.Name, Hooks: c.Modify(), Observers: 0, Outcome: "not reached",
				Why: fmt.Sprintf("the turn did not come here; %d modify and %d observe hooks were not asked", c.Modify(), len(first)+len(final))})
		}
	}
}

func (t *turn) trace(l loop.Line) {
	if l.At.IsZero() {
		l.At = time.Now().Add(-l.Took)
	}
	if l.Point != "" {
		t.reached[l.Point] = true
	}
	t.lines = append(t.lines, l)
}

func (t *turn) note(why string) { t.trace(loop.Line{Kind: "note", Why: why}) }

func (t *turn) add(e conversation.Event) {
	e.Turn, e.At = t.id, t.steps.Now()
	t.keep(e)
	if e.Kind == conversation.SkillCancelled {
		t.drop(e.Skill)
	}
}

// drop drops the call of a skill that waits for the user's confirmation, when the
// skill was cancelled.
func (t *turn) drop(cancelled string) {
	if pending := t.rec.Pending(); pending != nil && pending.Skill == cancelled {
		no := false
		t.add(conversation.Event{Kind: conversation.ConfirmResolved, Confirmed: &no, Note: "the skill was cancelled",
			Tool: &conversation.ToolRun{Name: pending.Name, CallID: pending.CallID}})
	}
}

// keep adds an event that has its turn and time.
func (t *turn) keep(e conversation.Event) {
	t.rec.Add(e)
	if t.state != nil {
		t.state.Apply(&e)
	}
}

// follow makes the state of the record's events, or takes the one that the turn
// before has left.
func (t *turn) follow() {
	if t.agent.Skills == nil {
		return
	}
	events := t.rec.Events()
	m, ok := t.rec.Memo.(*memo)
	if !ok || m.events > len(events) {
		m = &memo{state: &skill.State{}}
	}
	for i := m.events; i < len(events); i++ {
		m.state.Apply(&events[i])
	}
	t.state, t.done = m.state, map[string]bool{}
	t.rec.Memo = nil // until the turn is over
}

// remember leaves the state for the next turn.
func (t *turn) remember() {
	if t.state != nil {
		t.rec.Memo = &memo{state: t.state, events: len(t.rec.Events())}
	}
}

// memo is the state after a number of a record's events.
type memo struct {
	state  *skill.State
	events int
}

func (t *turn) flush() error { return t.rec.Flush(t.ctx) }
