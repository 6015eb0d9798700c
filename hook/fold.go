package hook

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// State is a chain under way, as data: [Begin] makes one, [State.Next] says what
// it waits for, [State.Fold] and [State.Decide] give the state after an answer.
// They are pure: the same answers give the same states, so a chain can be run
// again from a record.
type State struct {
	chain   *Chain
	At      int     `json:"at"` // the modify hook that is asked next
	Payload Payload `json:"payload"`
	Changed bool    `json:"changed,omitempty"`
	Holds   []Held  `json:"holds,omitempty"`   // what a person was or is asked
	Covered string  `json:"covered,omitempty"` // digest of the payload that a yes covers
	Over    bool    `json:"over,omitempty"`
	End     Result  `json:"end"`
}

// Held is one hook's wish that a person decides.
type Held struct {
	Hook    string `json:"hook"`
	Reason  string `json:"reason,omitempty"`
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

// Result is how a chain ended.
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
	Digest string `json:"digest"` // of what the person saw; see [Payload.Digest]
	Note   string `json:"note,omitempty"`
}

// Begin starts a chain over a payload. A nil chain has ended at once.
func Begin(c *Chain, p Payload) State {
	s := State{chain: c, Payload: p}
	return s.settle()
}

// Resume gives a state that was kept as data its chain back.
func Resume(c *Chain, s State) State { s.chain = c; return s }

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
		holds := make([]Held, len(s.Holds))
		for i, h := range s.Holds {
			holds[i] = Held{Hook: h.Hook, Reason: h.Reason}
		}
		s.Holds = holds
		return s
	}
	s.Over = true
	s.End = Result{Kind: Continue, Payload: s.Payload, Changed: s.Changed}
	return s
}

// Decide gives the state after a person's decision. A yes to another payload
// than the one that waits is an error: it was given to something else.
func (s State) Decide(d Decision) (State, error) {
	if !s.waiting() {
		return s, fmt.Errorf("nobody is asked")
	}
	digest := s.Payload.Digest()
	if d.Digest != digest {
		return s, fmt.Errorf("the decision is about %s, what waits is %s", short(d.Digest), short(digest))
	}
	if !d.Yes {
		open := s.Open()
		reasons := make([]string, 0, len(open))
		for _, h := range open {
			if h.Reason != "" {
				reasons = append(reasons, h.Reason)
			}
		}
		s.Over = true
		s.End = Result{Kind: Reject, Payload: s.Payload, Reason: strings.Join(reasons, "; "), Refused: true, Hook: s.named(open[len(open)-1].Hook)}
		return s, nil
	}
	holds := make([]Held, len(s.Holds))
	for i, h := range s.Holds {
		h.Decided = true
		holds[i] = h
	}
	s.Holds, s.Covered = holds, digest
	return s.settle(), nil
}

func (s State) named(name string) *Hook {
	for _, h := range s.chain.modify {
		if h.Name == name {
			return h
		}
	}
	return nil
}

func short(digest string) string {
	if len(digest) > 12 {
		return digest[:12]
	}
	return digest
}

// Fold gives the state after the answer of hook [State.At], and the line of the
// trace that says what became of it.
func (s State) Fold(a Answer) (State, Run) {
	h := s.chain.modify[s.At]
	run := newRun(h, a)
	s.At++
	verdict, failure := judge(h, a, &run)
	if failure != nil {
		run.Failure = failure
		return s.fail(h, failure, &run), run
	}
	switch verdict.Kind {
	case Continue, Hold:
		next, changed := s.Payload.apply(verdict.Changes, &run)
		s.Payload, s.Changed = next, s.Changed || changed
		if verdict.Kind == Hold {
			s.Holds = append(s.Holds[:len(s.Holds):len(s.Holds)], Held{Hook: h.Name, Reason: verdict.Reason})
		}
	case Retry:
		s.Over, s.End = true, Result{Kind: Retry, Payload: s.Payload, Changed: s.Changed, Feedback: verdict.Feedback, Hook: h}
	default:
		s.Over, s.End = true, Result{Kind: Reject, Payload: s.Payload, Changed: s.Changed, Reason: verdict.Reason, Hook: h}
	}
	return s.settle(), run
}

// judge turns an answer into a verdict that the hook may give, or a failure.
func judge(h *Hook, a Answer, run *Run) (Verdict, *Failure) {
	if a.Failure != nil {
		return Verdict{}, a.Failure
	}
	v := a.Verdict
	only := h.escalateOnly()
	if only && (v.Kind != Continue || len(v.Changes) > 0) {
		if v.Kind != Hold || len(v.Changes) > 0 {
			run.Dropped = fmt.Sprintf("%s was turned into hold: the hook may only allow or escalate", describe(v))
		}
		return Verdict{Kind: Hold, Reason: v.Reason}, nil
	}
	if !h.Verdicts.Has(v.Kind) {
		run.Dropped = fmt.Sprintf("%s is not allowed at %s", v.Kind, h.Point.Name)
		if h.Point.Dialect == Turn {
			return Go(), nil
		}
		return Verdict{}, &Failure{Kind: WrongReturn, Message: run.Dropped}
	}
	for _, c := range v.Changes {
		if c.Field < 0 || c.Field >= len(h.Point.Fields) {
			return Verdict{}, &Failure{Kind: WrongReturn, Message: "unknown field"}
		}
		if h.Point.Fields[c.Field].ReadOnly {
			continue
		}
		if err := h.Point.Fields[c.Field].fits(c.Value); err != nil {
			return Verdict{}, &Failure{Kind: WrongReturn, Message: err.Error()}
		}
	}
	return v, nil
}

func describe(v Verdict) string {
	if v.Kind == Continue {
		return "a change"
	}
	if v.Kind == Hold {
		return "a hold with a change"
	}
	return v.Kind.String()
}

// fail applies the hook's policy to its failure.
func (s State) fail(h *Hook, f *Failure, run *Run) State {
	run.Policy = h.OnFailure
	switch h.OnFailure {
	case Open:
		return s.settle()
	case HoldPolicy:
		s.Holds = append(s.Holds[:len(s.Holds):len(s.Holds)], Held{Hook: h.Name, Reason: f.Error()})
		return s.settle()
	}
	s.Over, s.End = true, Result{Kind: Reject, Payload: s.Payload, Changed: s.Changed, Reason: f.Error(), Hook: h, Failure: f}
	return s
}

// apply returns the payload with the changes that count: read-only fields stay
// as they came.
func (p Payload) apply(changes []Change, run *Run) (Payload, bool) {
	if len(changes) == 0 {
		return p, false
	}
	values := make([]json.RawMessage, len(p.values))
	copy(values, p.values)
	changed := false
	for _, c := range changes {
		f := &p.point.Fields[c.Field]
		if f.ReadOnly {
			run.PutBack = append(run.PutBack, f.Name)
			continue
		}
		if string(values[c.Field]) == string(c.Value) {
			continue
		}
		run.Changed = append(run.Changed, FieldChange{Field: f.Name, before: values[c.Field], after: c.Value})
		values[c.Field], changed = c.Value, true
	}
	if !changed {
		return p, false
	}
	return Payload{point: p.point, values: values}, true
}

func digest(raw []byte) string {
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:8])
}

// Run is one hook that was asked, for the trace.
type Run struct {
	Hook  *Hook  `json:"-"`
	Name  string `json:"hook"`
	Point string `json:"point"`
	Lane  Lane   `json:"lane"`
	// Said is the verdict's name, or "failed". Of an observer it is "seen".
	Said     string        `json:"said"`
	Reason   string        `json:"reason,omitempty"`
	Feedback string        `json:"feedback,omitempty"`
	Changed  []FieldChange `json:"changed,omitempty"`
	// PutBack are read-only fields that the hook tried to change.
	PutBack []string `json:"put_back,omitempty"`
	// Dropped says what did not count, and why.
	Dropped string   `json:"dropped,omitempty"`
	Failure *Failure `json:"failure,omitempty"`
	// Policy is what followed from the failure.
	Policy Policy        `json:"policy,omitempty"`
	Notes  []string      `json:"notes,omitempty"`
	File   string        `json:"file,omitempty"`
	Line   int           `json:"line,omitempty"`
	Waited time.Duration `json:"waited_ns,omitempty"`
	Took   time.Duration `json:"took_ns,omitempty"`
	// Turn and Key are those of the question.
	Turn string `json:"-"`
	Key  string `json:"-"`
}

// FieldChange says that a field got a new value. As JSON it is {field, before,
// after}, where before and after are digests: the first 8 bytes of the SHA-256 of
// the JSON, in hex. They are made when they are written, off the turn's path.
type FieldChange struct {
	Field         string
	before, after json.RawMessage
}

// MarshalJSON writes the field's name and the digests.
func (c FieldChange) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]string{"field": c.Field, "before": digest(c.before), "after": digest(c.after)})
}

func newRun(h *Hook, a Answer) Run {
	r := Run{Hook: h, Name: h.Name, Point: h.Point.Name, Lane: h.Lane, Said: a.Verdict.Kind.String(), Reason: a.Verdict.Reason,
		Feedback: a.Verdict.Feedback, Failure: a.Failure, Notes: a.Notes, File: h.File, Line: h.Line, Waited: a.Waited, Took: a.Took}
	if a.Line > 0 {
		r.File, r.Line = a.File, a.Line
	}
	if a.Failure != nil {
		r.Said = "failed"
		if a.Failure.Line > 0 {
			r.File, r.Line = a.Failure.File, a.Failure.Line
		}
	}
	return r
}

// Watched gives the line of the trace for an observer's answer. Whatever it said
// is dropped.
func Watched(h *Hook, a Answer) Run {
	r := newRun(h, a)
	switch {
	case a.Failure != nil:
		r.Said = "failed"
	case a.Verdict.Kind != Continue:
		r.Said, r.Dropped = "seen", a.Verdict.Kind.String()+" means nothing in the observe lane"
	default:
		r.Said = "seen"
		if len(a.Verdict.Changes) > 0 {
			r.Dropped = "changes mean nothing in the observe lane"
		}
	}
	return r
}
