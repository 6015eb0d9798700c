// Package loop is the model-and-tools loop: ask the model, put what it says to
// the hooks, run the tools it calls, ask again, until it has said something or
// the turn is over.
//
// It is a state machine. [State] is data; each phase is a method that turns one
// state into the next; [Loop.Run] drives them. Whatever happens outside (models,
// hooks, ids) is asked through [step.Steps], and what the loop works in — a
// conversational turn, a job — is an [Env]. Run again on recorded answers, the
// loop goes through the same states.
package loop

import (
	"fmt"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/step"
)

// Phase is where the loop stands.
type Phase string

// The phases, in the order of one iteration.
const (
	Prompting   Phase = "prompt"    // build the request, put it to the hooks
	Completing  Phase = "complete"  // ask the model
	Judging     Phase = "judge"     // put the completion to the hooks
	Preflight   Phase = "preflight" // put each call of the batch to the hooks
	Routing     Phase = "route"     // decide what the batch means
	Dispatching Phase = "dispatch"  // run the calls
	Speaking    Phase = "speak"     // send the text
	Ended       Phase = "end"
)

// State is the loop between two phases.
type State struct {
	Phase     Phase  `json:"phase"`
	Iteration int    `json:"iteration"`
	Feedback  string `json:"feedback,omitempty"` // of the newest RetryModel, for the next request
	Searched  bool   `json:"searched,omitempty"` // the knowledge-searched latch

	Request  *chat.Request `json:"request,omitempty"`
	Offered  []string      `json:"offered,omitempty"` // names of the tools that the request offered
	Text     *string       `json:"text,omitempty"`
	Streamed bool          `json:"streamed,omitempty"`
	Calls    []Call        `json:"calls,omitempty"`
	At       int           `json:"at,omitempty"` // the call under way
	Latency  int64         `json:"latency_ms,omitempty"`
	Waits    bool          `json:"waits,omitempty"` // a call of the batch asked the user something

	End End `json:"end"`
}

// End is how the loop ended.
type End struct {
	// Why is one of the reasons below.
	Why Why `json:"why,omitempty"`
	// Response names the fixed text that the user hears, "" for none.
	Response string `json:"response,omitempty"`
	// Detail is for the log and the trace.
	Detail string `json:"detail,omitempty"`
}

// Why is a reason to end.
type Why string

// The reasons.
const (
	Said       Why = "said"        // the model's text was sent
	Waiting    Why = "waiting"     // the user was asked something: a confirmation, a value
	Listening  Why = "listen"      // the model chose to wait
	HungUp     Why = "hangup"      // the model ended the session
	Cap        Why = "iterations"  // the iteration cap was reached
	NoAnswer   Why = "empty"       // the completion stayed empty
	ModelError Why = "model_error" // the provider failed
	HookError  Why = "hook_error"  // a closed hook failed
)

// Failed says whether the turn counts as failed.
func (e End) Failed() bool {
	switch e.Why {
	case Cap, NoAnswer, ModelError, HookError:
		return true
	}
	return false
}

// Names of fixed texts that end a turn.
const (
	responseInternal = "utter_internal_error"
	responseCap      = "utter_max_iterations"
	responseEmpty    = "utter_empty_response"
)

// Loop runs one turn's iterations.
type Loop struct {
	Steps    step.Steps
	Hooks    *Hooks
	Env      Env
	Identity Identity
	Limits   Limits
	// Live says that the channel takes text piece by piece. Hooks that must see
	// a whole text first hold it back all the same.
	Live bool
	// Watch is told of each state, for tests; it may be nil.
	Watch func(State)
}

// Limits bound a turn. Zero values mean the defaults.
type Limits struct {
	Iterations   int // completions asked for in a turn; 10
	EmptyRetries int // times an empty completion is asked for again; 2
}

// WithDefaults returns the limits with the defaults filled in. A negative
// EmptyRetries means none.
func (l Limits) WithDefaults() Limits {
	if l.Iterations == 0 {
		l.Iterations = 10
	}
	if l.EmptyRetries == 0 {
		l.EmptyRetries = 2
	}
	return l
}

// Run goes from state to state until the end. An error means that the loop was
// stopped, by its steps or by its environment.
func (l *Loop) Run(s State) (End, error) {
	l.Limits = l.Limits.WithDefaults()
	if s.Phase == "" {
		s.Phase = Prompting
	}
	for s.Phase != Ended {
		next, err := l.step(s)
		if err != nil {
			return End{}, err
		}
		if s = next; l.Watch != nil {
			l.Watch(s)
		}
	}
	return s.End, nil
}

func (l *Loop) step(s State) (State, error) {
	switch s.Phase {
	case Prompting:
		return l.prompt(s)
	case Completing:
		return l.complete(s)
	case Judging:
		return l.judge(s)
	case Preflight:
		return l.preflight(s)
	case Routing:
		return l.route(s)
	case Dispatching:
		return l.dispatch(s)
	case Speaking:
		return l.speak(s)
	}
	return s, fmt.Errorf("loop: unknown phase %q", s.Phase)
}

func (s State) end(e End) State {
	s.Phase, s.End = Ended, e
	return s
}

// again starts the next iteration, with a note to the model or without.
func (s State) again(feedback string) State {
	return State{Phase: Prompting, Iteration: s.Iteration + 1, Feedback: feedback, Searched: s.Searched}
}

func (l *Loop) key(s State, rest string) string { return fmt.Sprintf("%d/%s", s.Iteration, rest) }

// trace says something about the turn that no point or call says.
func (l *Loop) note(why string) { l.Hooks.trace(Line{Kind: "note", Why: why}) }

// failedHook is the end that follows from a closed hook.
func failedHook(point *hook.Point, r hook.Result) End {
	e := End{Why: HookError, Response: point.Response, Detail: point.Name + ": " + r.Reason}
	if r.Hook != nil {
		e.Detail = r.Hook.Name + " at " + e.Detail
	}
	return e
}
