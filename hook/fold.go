package hook

import (
	"errors"
	"fmt"
	"strings"
)

// State is a chain under way, as data: [Begin] makes one, [State.Next] says what
// it waits for, [State.Fold] and [State.Decide] give the state after an answer.
// They are pure: the same answers give the same states, so a chain can be run
// again from a record. A State has a JSON form; [Resume] gives one that was read
// its chain back.
type State struct {
	chain   *Chain
	At      int // the modify hook that is asked next
	Payload Payload
	Changed bool   // some hook changed the payload
	Holds   []Held // what a person was or is asked
	Covered string // digest of the payload that a yes covers
	Over    bool
	End     Result // counts when Over
}

// Held is one hook's wish that a person decides.
type Held struct {
	Hook   string `json:"hook"`
	Reason string `json:"reason,omitempty"`
	// Note says what was turned into a hold, of a hook that may do no more.
	Note    string `json:"note,omitempty"`
	Decided bool   `json:"decided,omitempty"`
}

// Need is what a chain waits for.
type Need uint8

// The needs.
const (
	NeedNothing Need = iota // it has ended; see [State.End]
	NeedHook                // the answer of hook [State.At]
	NeedPerson              // a person's decision on [State.Payload]; see [State.Open]
)

// Result is how a chain ended. The zero Result rejects.
type Result struct {
	// Kind is what follows: Continue with Payload, Reject, Retry with
	// Feedback. A chain that waits for a person has Kind Hold.
	Kind     Kind    `json:"kind"`
	Payload  Payload `json:"payload"`
	Changed  bool    `json:"changed,omitempty"`
	Reason   string  `json:"reason,omitempty"`
	Feedback string  `json:"feedback,omitempty"`
	// Hook decided, when it is no Continue.
	Hook *Hook `json:"-"`
	// Failure is set when Reject follows from a failed hook, not from what one
	// said.
	Failure *Failure `json:"failure,omitempty"`
	// Refused says that a person said no.
	Refused bool `json:"refused,omitempty"`
	// Runs are the hooks asked, in order. [State.Fold] leaves it empty:
	// whoever drives the fold gathers them.
	Runs []Run `json:"-"`
}

// Decision is a person's answer to a hold.
type Decision struct {
	Yes    bool   `json:"yes"`
	Digest string `json:"digest"` // of what the person saw; see [State.Digest]
	// Expired says that nobody decided in time. It counts as no.
	Expired bool `json:"expired,omitempty"`
}

// Begin starts a chain over a payload. A nil chain has ended at once.
func Begin(c *Chain, p Payload) State {
	return State{chain: c, Payload: p}.settle()
}

// Next says what the chain waits for.
func (s State) Next() Need {
	switch {
	case s.Over:
		return NeedNothing
	case s.waiting():
		return NeedPerson
	}
	return NeedHook
}

// Open returns the holds that a person has yet to decide.
func (s State) Open() []Held {
	var open []Held
	for _, h := range s.Holds {
		if !h.Decided {
			open = append(open, h)
		}
	}
	return open
}

func (s State) waiting() bool {
	for i := range s.Holds {
		if !s.Holds[i].Decided {
			return true
		}
	}
	return false
}

// settle ends the chain when nothing is left to ask. A payload that changed
// after a person's yes is put to the person once more, with every reason.
func (s State) settle() State {
	if s.Over || s.waiting() || s.At < s.chain.Modify() {
		return s
	}
	if len(s.Holds) > 0 && s.Covered != s.Payload.Digest() {
		return s.reopen()
	}
	return s.end(Result{Kind: Continue})
}

// reopen asks for every hold again: a yes to an older payload counts no more.
func (s State) reopen() State {
	holds := make([]Held, len(s.Holds))
	for i, h := range s.Holds {
		h.Decided = false
		holds[i] = h
	}
	s.Holds = holds
	return s
}

func (s State) end(r Result) State {
	r.Payload, r.Changed = s.Payload, s.Changed
	s.Over, s.End = true, r
	return s
}

// hold asks a person. Earlier holds whose yes was for another payload are asked
// again with it.
func (s State) hold(h Held) State {
	if len(s.Holds) > 0 && s.Covered != s.Payload.Digest() {
		s = s.reopen()
	}
	s.Holds = append(s.Holds[:len(s.Holds):len(s.Holds)], h)
	return s
}

// Digest returns the SHA-256, in hex, of what a person is asked: the payload and
// the open holds. A decision is bound to it.
func (s State) Digest() string {
	h := newHash()
	h.payload(s.Payload)
	for _, held := range s.Open() {
		h.text(held.Hook)
		h.text(held.Reason)
		h.text(held.Note)
	}
	return h.sum()
}

// Decide gives the state after a person's decision. A decision about something
// else than what waits is an error and changes nothing.
func (s State) Decide(d Decision) (State, error) {
	if s.Next() != NeedPerson {
		return s, errors.New("no hook waits for a person")
	}
	if want := s.Digest(); d.Digest != want {
		return s, fmt.Errorf("the decision is about %.12q, what waits is %.12q; show the person what waits now", d.Digest, want)
	}
	if !d.Yes || d.Expired {
		return s.refuse(d), nil
	}
	holds := make([]Held, len(s.Holds))
	for i, h := range s.Holds {
		h.Decided = true
		holds[i] = h
	}
	s.Holds, s.Covered = holds, s.Payload.Digest()
	return s.settle(), nil
}

func (s State) refuse(d Decision) State {
	open := s.Open()
	reason := reasons(open)
	if d.Expired {
		reason = strings.TrimPrefix(reason+"; nobody decided in time", "; ")
	}
	return s.end(Result{Kind: Reject, Reason: reason, Refused: !d.Expired, Hook: s.chain.named(open[len(open)-1].Hook)})
}

func reasons(holds []Held) string {
	var all []string
	for _, h := range holds {
		if h.Reason != "" {
			all = append(all, h.Reason)
		}
	}
	return strings.Join(all, "; ")
}

// Fold gives the state after the answer of hook [State.At], and the line of the
// trace that says what became of it. It panics when no hook is to be asked.
func (s State) Fold(a Answer) (State, Run) {
	if s.Next() != NeedHook {
		panic("hook: Fold of a chain that asks no hook")
	}
	h := s.chain.modify[s.At]
	run := newRun(h, a)
	s.At++
	if a.Failure != nil && a.Failure.Kind == Cancelled {
		return s.end(Result{Kind: Reject, Reason: a.Failure.Reason(), Failure: a.Failure, Hook: h}), run
	}
	j := judge(h, a)
	run.Dropped, run.Failure = j.dropped, j.failure
	if j.failure != nil {
		run.Said, run.Policy = failed, h.OnFailure
		return s.fail(h, j), run
	}
	switch v := j.verdict; v.Kind {
	case Continue, Hold:
		next, changed := s.Payload.apply(v.Changes, &run)
		s.Payload, s.Changed = next, s.Changed || changed
		if v.Kind == Hold {
			s = s.hold(Held{Hook: h.Name, Reason: v.Reason, Note: j.note})
		}
	case Retry:
		s = s.end(Result{Kind: Retry, Feedback: v.Feedback, Hook: h})
	default:
		s = s.end(Result{Kind: Reject, Reason: v.Reason, Hook: h})
	}
	return s.settle(), run
}

// fail applies the hook's policy to its failure.
func (s State) fail(h *Hook, j judgement) State {
	switch h.OnFailure {
	case Open:
		return s.settle()
	case HoldPolicy:
		return s.hold(Held{Hook: h.Name, Reason: j.failure.Reason(), Note: j.note})
	}
	return s.end(Result{Kind: Reject, Reason: j.failure.Reason(), Failure: j.failure, Hook: h})
}
