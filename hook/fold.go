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
	s := State{chain: c, Payload: p}
	s.settle()
	return s
}

// Next says what the chain waits for.
func (s State) Next() Need { return s.next() }

func (s *State) next() Need {
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

func (s *State) waiting() bool {
	for i := range s.Holds {
		if !s.Holds[i].Decided {
			return true
		}
	}
	return false
}

// The lower-case methods change the state in place: Fold and Decide work on a
// copy of their own. Slices are shared with older states, so they are replaced,
// never written to.

// settle ends the chain when nothing is left to ask. A payload that changed
// after a person's yes is put to the person once more, with every reason.
func (s *State) settle() {
	switch {
	case s.Over || s.waiting() || s.At < s.chain.Modify():
	case s.stale():
		s.mark(false)
	default:
		s.end(Continue, nil)
	}
}

// stale says that a person's yes was to another payload.
func (s *State) stale() bool { return len(s.Holds) > 0 && s.Covered != s.Payload.Digest() }

// mark sets every hold to decided, or to be asked again.
func (s *State) mark(decided bool) {
	holds := make([]Held, len(s.Holds))
	for i, h := range s.Holds {
		h.Decided = decided
		holds[i] = h
	}
	s.Holds = holds
}

// end ends the chain and returns the result, for what else there is to say.
func (s *State) end(k Kind, by *Hook) *Result {
	s.Over = true
	end := &s.End
	end.Kind, end.Payload, end.Changed, end.Hook = k, s.Payload, s.Changed, by
	return end
}

func (r *Result) failed(f *Failure) { r.Reason, r.Failure = f.Reason(), f }

// hold asks a person. Earlier holds whose yes was for another payload are asked
// again with it.
func (s *State) hold(h Held) {
	if s.stale() {
		s.mark(false)
	}
	s.Holds = append(s.Holds[:len(s.Holds):len(s.Holds)], h)
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
		s.refuse(d)
		return s, nil
	}
	s.mark(true)
	s.Covered = s.Payload.Digest()
	s.settle()
	return s, nil
}

func (s *State) refuse(d Decision) {
	open := s.Open()
	reason := reasons(open)
	if d.Expired {
		reason = strings.TrimPrefix(reason+"; nobody decided in time", "; ")
	}
	end := s.end(Reject, s.chain.named(open[len(open)-1].Hook))
	end.Reason, end.Refused = reason, !d.Expired
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
	var run Run
	s.fold(&a, &run)
	return s, run
}

// fold may write to the answer's verdict.
func (s *State) fold(a *Answer, run *Run) {
	if s.next() != NeedHook {
		panic("hook: Fold of a chain that asks no hook")
	}
	a.clean()
	h := s.chain.modify[s.At]
	run.tell(h, a)
	s.At++
	if f := a.Failure; f != nil && f.Kind == Cancelled {
		s.end(Reject, h).failed(f)
		return
	}
	note, failure := judge(h, a, run)
	if failure != nil {
		run.Said, run.Failure, run.Policy = failed, failure, h.OnFailure
		s.fail(h, failure, note)
		return
	}
	switch v := &a.Verdict; v.Kind {
	case Continue, Hold:
		s.apply(v.Changes, run)
		if v.Kind == Hold {
			s.hold(Held{Hook: h.Name, Reason: v.Reason, Note: note})
		}
		s.settle()
	case Retry:
		s.end(Retry, h).Feedback = v.Feedback
	default:
		s.end(Reject, h).Reason = v.Reason
	}
}

// fail applies the hook's policy to its failure.
func (s *State) fail(h *Hook, f *Failure, note string) {
	switch h.OnFailure {
	case Open:
		s.settle()
	case HoldPolicy:
		s.hold(Held{Hook: h.Name, Reason: f.Reason(), Note: note})
	default:
		s.end(Reject, h).failed(f)
	}
}
