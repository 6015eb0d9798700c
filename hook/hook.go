package hook

import (
	"context"
	"time"
)

// Func is a hook written in Go. It gets a payload of its own and answers with a
// verdict; an error means that it failed, and the policy decides.
//
// ctx ends when the hook's time is up or the caller gives up. A Func that goes
// on regardless is left behind: its answer counts for nothing.
type Func func(ctx context.Context, p Payload) (Verdict, error)

// Host asks hooks that live outside this process.
//
// Start puts one question and returns once its place in order is fixed: calls
// with the same [Question.Key] begin in the order of their Starts. It calls done
// exactly once, from any goroutine, within q.Hook.Limit of the hook's own
// beginning plus a small grace: guarding the time is the host's work, since only
// it knows when a hook began. When ctx ends it cancels the call and answers with
// a [Cancelled] failure.
type Host interface {
	Start(ctx context.Context, q Question, done func(Answer))
}

// Question is one payload for one hook.
type Question struct {
	Hook    *Hook
	Payload Payload
	// Key orders questions: those of one conversation or job have the same.
	Key string
	// Turn is the id of the turn or job step, for logs and traces.
	Turn string
}

// Match narrows the calls that a hook of a plugin sees. An empty list matches
// every name.
type Match struct {
	Tools  []string // full names, <tool>.<function>
	Agents []string
}

// Who is whom a chain is for.
type Who struct {
	Agent string
	Tool  string
}

// Hook is one check at one point. It is not changed once it stands in a chain.
type Hook struct {
	Name  string // unique within an engine, such as "hooks/mask.py:mask_cards"
	Point *Point
	Lane  Lane
	// Final asks an observer with the payload that goes on after the modify
	// lane, and not at all when nothing goes on.
	Final bool
	Match Match
	// Limit is the time for one answer; 0 means the point's default.
	Limit time.Duration
	// OnFailure is the hook's own policy; empty means the point's.
	OnFailure Policy
	// Verdicts narrows what it may say; 0 means the point's set.
	Verdicts Kinds

	File string // where it is defined
	Line int

	// Func or Host answers; exactly one is set.
	Func Func
	Host Host
	// Handle is the host's own, such as a number in its catalogue.
	Handle int
}

// escalateOnly says that the hook may only go on or hold: then every other
// answer, a failure too, counts as a hold.
func (h *Hook) escalateOnly() bool {
	return h.Point.Dialect == Plugin && h.Verdicts == KindsOf(Continue, Hold)
}

func (m Match) sees(w Who) bool {
	return listed(m.Tools, w.Tool) && listed(m.Agents, w.Agent)
}

func listed(names []string, name string) bool {
	if len(names) == 0 {
		return true
	}
	for _, n := range names {
		if n == name {
			return true
		}
	}
	return false
}
