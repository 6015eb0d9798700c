package hook

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Kind is what a verdict says. The zero Kind is Reject, so that an answer nobody
// filled in never lets anything through.
type Kind uint8

// The verdicts. Which of them a hook may give depends on its point and on the
// hook itself (see [Point.Verdicts] and [Hook.Verdicts]).
const (
	// Reject stops what the point guards.
	Reject Kind = iota
	// Continue goes on, with the payload as it is after the verdict's changes.
	Continue
	// Retry discards the model's response or tool calls and steers the loop
	// with the verdict's feedback.
	Retry
	// Hold waits for a person, who decides on the payload as it is after the
	// verdict's changes.
	Hold
)

var kindNames = [...]string{"reject", "continue", "retry", "hold"}

// String returns the verdict's name in lower case.
func (k Kind) String() string {
	if k.known() {
		return kindNames[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// MarshalText writes the verdict's name.
func (k Kind) MarshalText() ([]byte, error) {
	if !k.known() {
		return nil, fmt.Errorf("unknown verdict %d", uint8(k))
	}
	return []byte(kindNames[k]), nil
}

// UnmarshalText reads a verdict's name; a word that is none is an error.
func (k *Kind) UnmarshalText(b []byte) error {
	for i, n := range kindNames {
		if n == string(b) {
			*k = Kind(i)
			return nil
		}
	}
	return fmt.Errorf("unknown verdict %q", b)
}

func (k Kind) known() bool { return int(k) < len(kindNames) }

// Kinds is a set of verdicts.
type Kinds uint8

// KindsOf returns the set of the given verdicts.
func KindsOf(kinds ...Kind) Kinds {
	var s Kinds
	for _, k := range kinds {
		s |= 1 << k
	}
	return s
}

// Has says whether k is in the set.
func (s Kinds) Has(k Kind) bool { return k.known() && s&(1<<k) != 0 }

// Change is a new value for one field of a payload.
type Change struct {
	// Field is the field's place in [Point.Fields].
	Field int `json:"field"`
	// Value is the new value as JSON.
	Value json.RawMessage `json:"value,omitempty"`
}

// MarshalJSON leaves out a value that is not JSON. Read again, the change is
// refused for the same reason, so a recorded answer comes to what it came to.
func (c Change) MarshalJSON() ([]byte, error) {
	type plain Change
	if !json.Valid(c.Value) {
		c.Value = nil
	}
	return json.Marshal(plain(c))
}

// Verdict is what a hook said. The zero Verdict rejects.
type Verdict struct {
	Kind Kind `json:"kind"`
	// Reason says why, for [Reject] and [Hold]. It goes to the log and the
	// trace, never to a user or a model of a turn.
	Reason string `json:"reason,omitempty"`
	// Feedback is the note to the model, for [Retry].
	Feedback string `json:"feedback,omitempty"`
	// Changes are the fields that get a new value, for [Continue] and [Hold].
	Changes []Change `json:"changes,omitempty"`
}

// Go returns the verdict that goes on with the given changes.
func Go(changes ...Change) Verdict { return Verdict{Kind: Continue, Changes: changes} }

// RejectFor returns the verdict that rejects for the given reason.
func RejectFor(reason string) Verdict { return Verdict{Kind: Reject, Reason: reason} }

// RetryWith returns the verdict that steers the model with feedback.
func RetryWith(feedback string) Verdict { return Verdict{Kind: Retry, Feedback: feedback} }

// HoldFor returns the verdict that waits for a person.
func HoldFor(reason string, changes ...Change) Verdict {
	return Verdict{Kind: Hold, Reason: reason, Changes: changes}
}

// FailureKind says how a hook failed to give a verdict.
type FailureKind string

// The ways to fail.
const (
	Crash       FailureKind = "crash"        // it raised, panicked, or its process died
	Timeout     FailureKind = "timeout"      // its time ran out
	WrongReturn FailureKind = "wrong_return" // its answer cannot be read or breaks the payload's schema
	Unavailable FailureKind = "unavailable"  // it could not be asked: its host is closed or cannot start
	Cancelled   FailureKind = "cancelled"    // the caller gave up; what the answer would have been is unknown
)

// Failure is a hook that gave no verdict. What follows from it is decided by the
// hook's policy ([Hook.OnFailure]), never by the failure itself.
type Failure struct {
	Kind FailureKind `json:"kind"`
	// Message is what went wrong. Of a crash it may hold the text of an
	// exception, which belongs in the trace and the log and reaches no user or
	// model; of the other kinds it is the host's or the engine's own words.
	Message string `json:"message,omitempty"`
	// OwnWords says that the message of a crash is the host's own words too, such
	// as that the hook's process exited.
	OwnWords bool `json:"own_words,omitempty"`
	// File and Line are where, when known (1-based; 0 means unknown).
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
	// Traceback is the call stack without values, when known.
	Traceback string `json:"traceback,omitempty"`
}

// Error makes a Failure an error.
func (f *Failure) Error() string {
	if f.Message == "" {
		return string(f.Kind)
	}
	return string(f.Kind) + ": " + f.Message
}

// Reason says what happened without what an exception said: it may stand in a
// verdict's reason, which a person or a model may read.
func (f *Failure) Reason() string {
	switch f.Kind {
	case Crash:
		if f.OwnWords {
			return "the hook crashed: " + f.Message
		}
		return "the hook crashed"
	case WrongReturn:
		return "the hook's answer cannot be used: " + f.Message
	}
	return f.Error()
}

// Answer is what came back from one question to one hook. The zero Answer
// rejects.
type Answer struct {
	Verdict Verdict `json:"verdict"`
	// Failure, when set, says that the hook gave no verdict; Verdict then
	// counts for nothing.
	Failure *Failure `json:"failure,omitempty"`
	// File and Line are where a signal was raised, when known.
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
	// Waited is the time between the question and the hook's beginning, Took
	// the time of its own run.
	Waited time.Duration `json:"waited_ns,omitempty"`
	Took   time.Duration `json:"took_ns,omitempty"`
	// Notes are things that the host dropped or mended and that must be seen,
	// such as "state of the worker was lost".
	Notes []string `json:"notes,omitempty"`
}

// clean makes the texts valid UTF-8, as they are when the answer was written as
// JSON and read again.
func (a *Answer) clean() {
	if v := &a.Verdict; !utf8.ValidString(v.Reason) || !utf8.ValidString(v.Feedback) {
		v.Reason, v.Feedback = cleaned(v.Reason), cleaned(v.Feedback)
	}
	if f := a.Failure; f != nil && !(utf8.ValidString(f.Message) && utf8.ValidString(f.Traceback)) {
		valid := *f
		valid.Message, valid.Traceback = cleaned(f.Message), cleaned(f.Traceback)
		a.Failure = &valid
	}
}

func cleaned(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// Failed returns the answer of a hook that gave no verdict.
func Failed(kind FailureKind, format string, args ...any) Answer {
	return Answer{Failure: failure(kind, format, args...)}
}

func failure(kind FailureKind, format string, args ...any) *Failure {
	return &Failure{Kind: kind, Message: fmt.Sprintf(format, args...)}
}
