package job

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Steps is what a flow sees of the outside world. An error of any method means
// that this process is done with the job: return at once. What the job goes on
// with after that is not the flow's affair. Failures are answers.
type Steps interface {
	// Do asks for effects side by side and returns when all have answered, in
	// the order of the calls.
	Do(calls ...Call) ([]Answer, error)
	// Await asks for a decision. Its deadline is kept at first use; when it has
	// passed, that is the decision: a Failure of kind [Expired].
	Await(q Question) (Answer, error)
	// Each runs n branches side by side and returns when all have ended: nil, or
	// the error of the lowest branch that gave one. While one waits the others
	// go on. Branches share the job's keys.
	Each(n int, branch func(i int, s Steps) error) error
	// Now is the time at which the flow first came here. It is kept.
	Now(key string) (time.Time, error)
}

// ErrStop is in every error of [Steps]: the flow must return at once.
var ErrStop = errors.New("this process is done with the job")

// Call is one effect that a flow asks for.
type Call struct {
	// Key names the call within its job, such as "3/call_7/pre/acme.check". It
	// must follow from what the job is about, never from counting.
	Key string
	// Kind picks the handler.
	Kind string
	// Input is what the handler gets.
	Input json.RawMessage
	// Limit is how long the handler may take; 0 for no limit.
	Limit time.Duration
	// Once says that the effect may happen only once: begun and not answered,
	// it comes back as Unknown.
	Once bool
}

// Question asks for a decision from outside the job.
type Question struct {
	Key  string `json:"key"`
	Kind string `json:"kind"`
	// Input is what the decider sees. A decision is bound to its digest.
	Input json.RawMessage `json:"input,omitempty"`
	// Until is the deadline; zero for none.
	Until time.Time `json:"until,omitzero"`
}

// Answer is what came back.
type Answer struct {
	Value json.RawMessage `json:"value,omitempty"`
	// Failure is set when there is no value to go by.
	Failure *Failure      `json:"failure,omitempty"`
	Took    time.Duration `json:"took_ns,omitempty"` // of the try that answered
	Tries   int           `json:"tries,omitempty"`   // how often the effect was begun
}

// Failure says why an effect gave no value.
type Failure struct {
	Kind    string `json:"kind"`
	Message string `json:"message,omitempty"`
}

// Kinds of failures that come from here; handlers may have their own.
const (
	Unknown  = "unknown"   // begun, may run only once, and nobody knows what came of it
	TimedOut = "timeout"   // the limit passed
	Broke    = "panic"     // the handler panicked
	Broken   = "error"     // the handler returned an error
	Stopped  = "cancelled" // the job was cancelled meanwhile
	Expired  = "expired"   // nobody decided in time
)

// Ask asks for one effect.
func Ask(s Steps, c Call) (Answer, error) {
	answers, err := s.Do(c)
	if err != nil {
		return Answer{}, err
	}
	return answers[0], nil
}

// Failure as an error of the flow.
type failed struct{ code, reason string }

func (f *failed) Error() string {
	if f.reason == "" {
		return f.code
	}
	return f.code + ": " + f.reason
}

// Fail is the error by which a flow fails its job with a code of its own, such
// as HookDenied.
func Fail(code, reason string) error { return &failed{code, reason} }

// endOf says how a job ends whose flow returned this.
func endOf(output json.RawMessage, err error) End {
	var f *failed
	switch {
	case errors.As(err, &f):
		return End{State: Failed, Code: f.code, Reason: f.reason}
	case err != nil:
		return End{State: Failed, Code: Errored, Reason: err.Error()}
	case len(output) > 0 && !json.Valid(output):
		return End{State: Failed, Code: Errored, Reason: "the flow's output is no JSON"}
	}
	return End{State: Completed, Output: output}
}

const longestKey = 1 << 10

// checkKey refuses what cannot be a name.
func checkKey(key string) error {
	switch {
	case key == "":
		return errors.New("a call has no key")
	case len(key) > longestKey:
		return fmt.Errorf("the key %.40q… has %d bytes; %d is the most", key, len(key), longestKey)
	case strings.ToValidUTF8(key, "") != key:
		return fmt.Errorf("the key %q is not UTF-8", key)
	}
	return nil
}
