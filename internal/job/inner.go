package job

import (
	"fmt"
	"time"

	"github.com/belay-run/belay/internal/rawjson"
	"github.com/belay-run/belay/internal/step"
)

// Inner is how code that asks by package step, such as the loop of models and
// tools, runs inside a job. It asks one thing after another, in one goroutine.
type Inner struct {
	Steps Steps
	// Prefix comes before every key, such as "agent/".
	Prefix string
	// Limit is how long a call may take; nil means without limit.
	Limit func(step.Call) time.Duration
	// Failed writes a failure in the form that the call's kind has for it. Where
	// it is nil, or says false, the failure ends the job with code StepFailed.
	Failed func(step.Call, Failure) (answer any, ok bool)

	clocks int
	err    error // of a clock that could not be read
}

var _ step.Steps = (*Inner)(nil)

// StepFailed is the code of a job whose inner code cannot be told of a failure.
const StepFailed = "StepFailed"

// Do implements [step.Steps].
func (in *Inner) Do(c step.Call) (step.Answer, error) {
	if in.err != nil {
		return step.Answer{}, in.err
	}
	input, err := rawjson.Encode(c.Input)
	if err != nil {
		return step.Answer{}, fmt.Errorf("call %s: input has no JSON form: %w", c.Key, err)
	}
	call := Call{Key: in.Prefix + c.Key, Kind: c.Kind, Input: input, Once: c.Once}
	if in.Limit != nil {
		call.Limit = in.Limit(c)
	}
	a, err := Ask(in.Steps, call)
	switch {
	case err != nil:
		return step.Answer{}, err
	case a.Failure == nil:
		return step.Raw(a.Value), nil
	}
	if in.Failed != nil {
		if v, ok := in.Failed(c, *a.Failure); ok {
			return step.Give(v), nil
		}
	}
	return step.Answer{}, Fail(StepFailed, fmt.Sprintf("%s: %s: %s", c.Key, a.Failure.Kind, a.Failure.Message))
}

// Now implements [step.Steps]. Its caller gives no names, so times are told
// apart by their order; it cannot fail either, so an error comes with the next
// call.
func (in *Inner) Now() time.Time {
	now, err := in.Steps.Now(fmt.Sprintf("%snow/%d", in.Prefix, in.clocks))
	in.clocks++
	if err != nil && in.err == nil {
		in.err = err
	}
	return now
}
