package hook

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"
)

// Run is one hook that was asked, for the trace.
type Run struct {
	Hook  *Hook  `json:"-"`
	Name  string `json:"hook"`
	Point string `json:"point"`
	Lane  Lane   `json:"lane"`
	// Said is the verdict's name, or "failed". Of an observer it is "seen" or
	// "failed".
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
	Policy Policy   `json:"policy,omitempty"`
	Notes  []string `json:"notes,omitempty"`
	// File and Line are where it signalled or failed when known, else where the
	// hook is defined.
	File   string        `json:"file,omitempty"`
	Line   int           `json:"line,omitempty"`
	Waited time.Duration `json:"waited_ns,omitempty"`
	Took   time.Duration `json:"took_ns,omitempty"`
	// Turn and Key are those of the question.
	Turn string `json:"-"`
	Key  string `json:"-"`
}

// What a run says beside the verdicts' names.
const (
	failed = "failed"
	seen   = "seen"
)

// FieldChange says that a field got a new value. As JSON it is {field, before,
// after}, where before and after are digests: the first 8 bytes, in hex, of a
// SHA-256 under a key that this process made up when it started. Within a run of
// the program equal digests mean equal values; to somebody who has the trace alone
// they say nothing, also of a value that could be guessed, such as the phone
// number that a hook took out. They are made when they are written, off the
// turn's path.
type FieldChange struct {
	Field         string
	before, after json.RawMessage
}

// MarshalJSON writes the field's name and the digests.
func (c FieldChange) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Field  string `json:"field"`
		Before string `json:"before"`
		After  string `json:"after"`
	}{c.Field, shortDigest(c.before), shortDigest(c.after)})
}

func shortDigest(raw json.RawMessage) string {
	h := hmac.New(sha256.New, traceKey)
	h.Write(canonical(raw))
	return hex.EncodeToString(h.Sum(nil)[:8])
}

var traceKey = func() []byte {
	key := make([]byte, 32)
	rand.Read(key) // never fails
	return key
}()

// tell fills in what the hook is and what it answered.
func (r *Run) tell(h *Hook, a *Answer) {
	r.Hook, r.Name, r.Point, r.Lane = h, h.Name, h.Point.Name, h.Lane
	r.Notes, r.File, r.Line, r.Waited, r.Took = a.Notes, h.File, h.Line, a.Waited, a.Took
	if a.Line > 0 {
		r.File, r.Line = a.File, a.Line
	}
	if f := a.Failure; f != nil {
		r.Said, r.Failure = failed, f
		if f.Line > 0 {
			r.File, r.Line = f.File, f.Line
		}
		return
	}
	r.Said, r.Reason, r.Feedback = a.Verdict.Kind.String(), a.Verdict.Reason, a.Verdict.Feedback
}

// Watched gives the line of the trace for an observer's answer. Whatever it said
// is dropped.
func Watched(h *Hook, a Answer) Run {
	var r Run
	r.tell(h, &a)
	if a.Failure != nil {
		return r
	}
	switch {
	case a.Verdict.Kind != Continue:
		r.Dropped = a.Verdict.Kind.String() + " means nothing in the observe lane"
	case len(a.Verdict.Changes) > 0:
		r.Dropped = "changes mean nothing in the observe lane, returned or made in place"
	}
	r.Said = seen
	return r
}
