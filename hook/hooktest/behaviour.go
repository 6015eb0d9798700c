package hooktest

import (
	"time"

	"github.com/belay-run/belay/hook"
)

// Behaviour names what a hook made for the suite does. Each is described so that
// it can be written in any language; "raise" is whatever a hook of that host
// does to signal.
type Behaviour string

// Behaviours of hooks that answer.
const (
	// PassOn returns the payload as it came. Any point, both lanes.
	PassOn Behaviour = "pass_on"

	// Shout returns the payload with "!" added to the end of its text. The
	// field is "text" (incoming message, outgoing text, model response) or
	// "query" (knowledge query). Both lanes: an observer does the same to its
	// own copy and returns it, which must count for nothing.
	Shout Behaviour = "shout"

	// ChangeNested adds "seen" to the list messages[0]["meta"]["tags"], in place
	// where the language has it, and returns the payload. Model request, modify.
	ChangeNested Behaviour = "change_nested"

	// TryReadOnly returns the payload with sender_id set to "someone else",
	// tool_names to ["mine"] and model_settings to {"temperature": 0.5}. Model
	// request, modify.
	TryReadOnly Behaviour = "try_read_only"

	// Replace returns a new payload made from scratch: messages is
	// [{"role": "user", "content": "replaced"}], every other field is taken from
	// the payload that came; messages of the payload that came are changed in
	// place beforehand, and that must be lost. Model request, modify.
	Replace Behaviour = "replace"

	// Count returns the payload with its text replaced by how often this hook
	// has been asked, in decimal digits, this time included. The number is kept
	// in the hook's module. Incoming message, modify.
	Count Behaviour = "count"

	// Huge returns the payload with its text replaced by 4 MiB (4 << 20) times
	// the letter x. Incoming message, modify.
	Huge Behaviour = "huge"

	// TooHuge is Huge with 24 MiB. A host may refuse it as a wrong return.
	TooHuge Behaviour = "too_huge"

	// Nap waits 30 ms, giving way to other hooks, and then does as Sign does.
	Nap Behaviour = "nap"

	// Sign returns the payload with "/" and its sender_id added to the end of
	// its text. Incoming message, modify.
	Sign Behaviour = "sign"
)

// Behaviours that share a notebook: a map from sender_id to a list of strings
// that all hooks of one [Maker] call see (in Python: one module they import).
const (
	// Note adds to the list of the payload's sender_id, before anything else
	// and before it first gives way: the point's name, and at points with a
	// text, "=" and the text. Then it returns the payload. Text fields as for
	// Shout. Any point, both lanes.
	Note Behaviour = "note"

	// Report returns the payload with its text replaced by the entries of the
	// sender_id's list joined with ",", and empties that list. Outgoing text,
	// modify.
	Report Behaviour = "report"
)

// Behaviours that signal.
const (
	// Reject rejects with the reason "not today" (in Python: raises
	// HookRejection(reason="not today")). Any point, both lanes.
	Reject Behaviour = "reject"

	// Retry asks for a retry with the feedback "try again" (in Python: raises
	// RetryModel(feedback="try again")). Any point, both lanes.
	Retry Behaviour = "retry"

	// ChangeThenReject sets the text of the payload to "changed", in place where
	// the language has it, and then rejects as Reject does. Model response,
	// modify.
	ChangeThenReject Behaviour = "change_then_reject"
)

// Behaviours that fail.
const (
	// Crash raises an ordinary error with the text "boom". Any point, both lanes.
	Crash Behaviour = "crash"

	// ChangeThenCrash sets the text of the payload to "changed", in place where
	// the language has it, and then crashes as Crash does. Model response,
	// modify.
	ChangeThenCrash Behaviour = "change_then_crash"

	// Wait never answers, but gives way: it waits for something that ends with
	// its call. Any point, both lanes.
	Wait Behaviour = "wait"

	// Block never answers and never gives way: it sleeps for 60 s in a way that
	// the end of its call does not end. Any point, both lanes.
	Block Behaviour = "block"

	// WrongType answers with something that is no payload of the point, such as
	// nothing at all (in Python: returns None). Any point, modify.
	WrongType Behaviour = "wrong_type"

	// WrongShape returns the payload with a value of the wrong kind: 5 for the
	// text at incoming message and model response, {"role": "user"} for the
	// messages at model request. Modify.
	WrongShape Behaviour = "wrong_shape"

	// ReturnSignal returns the signal of Reject instead of raising it. Any
	// point, modify.
	ReturnSignal Behaviour = "return_signal"
)

// Spec is one hook that a [Maker] is asked for.
type Spec struct {
	Behaviour Behaviour
	Point     *hook.Point
	Lane      hook.Lane
	Final     bool          // of an observer: see hook.Hook.Final
	Limit     time.Duration // 0 means the point's default
}

// modify and observe shorten the specs of the suite.
func modify(b Behaviour, point string) Spec {
	return Spec{Behaviour: b, Point: hook.PointNamed(point), Lane: hook.Modify}
}

func observe(b Behaviour, point string) Spec {
	return Spec{Behaviour: b, Point: hook.PointNamed(point), Lane: hook.Observe}
}

func (s Spec) within(limit time.Duration) Spec { s.Limit = limit; return s }

func (s Spec) final() Spec { s.Final = true; return s }
