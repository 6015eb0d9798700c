// Package approval is asking a person: what they are shown, what they may answer,
// and what an answer counts for.
//
// A [Request] is the input of a job's question. It holds exactly what the person
// sees, so the question's digest, which every decision names, binds the answer to
// that: what changes afterwards is another question. An answer is used once; the
// journal keeps it and wakes the job in one transaction.
package approval

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Kind of a question in a job's journal.
const Question = "approval"

// Kind says who asks.
type Kind string

// The kinds.
const (
	Hook       Kind = "hook"       // a hook escalated
	Policy     Kind = "policy"     // a rule of the tool policy asks for it
	Annotation Kind = "annotation" // nothing is declared of a function, so a person is asked
	Outcome    Kind = "outcome"    // a call was begun and nobody knows whether it was made
)

// Expiry is how long a question waits for its answer unless the job says
// otherwise. Then the answer is no.
const Expiry = 24 * time.Hour

// Request is what a person is asked.
type Request struct {
	Kind  Kind   `json:"kind"`
	Job   string `json:"job"`
	Agent string `json:"agent"`
	// Event is the point of a hook's question, such as pre_tool_call.
	Event string `json:"event,omitempty"`
	// Tool is the function's full name, "" when the question is about none.
	Tool string `json:"tool,omitempty"`
	// Arguments are those the call would be made with.
	Arguments json.RawMessage `json:"arguments,omitempty"`
	// Value is what a hook's event is about and what a yes lets through: the
	// arguments, the result, the input or the output, as the hooks left it. Before
	// is the value before the hooks, when it is another.
	Value  json.RawMessage `json:"value,omitempty"`
	Before json.RawMessage `json:"before,omitempty"`
	// Reasons are why a person is asked, one each.
	Reasons []Reason `json:"reasons,omitempty"`
	// Policy is the version of the tool policy that the job goes by.
	Policy string `json:"policy,omitempty"`
	// Digest is of the state that the answer is for, such as a chain of hooks.
	Digest string `json:"digest,omitempty"`
	// Role is who may answer: approver or admin.
	Role string `json:"role,omitempty"`
}

// Reason is why a person is asked.
type Reason struct {
	By   string `json:"by"` // a hook's or a rule's name
	Text string `json:"text,omitempty"`
	Note string `json:"note,omitempty"` // such as that another answer was turned into this
}

// Action is what to do about a call of which nobody knows whether it was made.
type Action string

// The actions.
const (
	Retry  Action = "retry"  // make it again
	Fail   Action = "fail"   // treat it as failed
	Result Action = "result" // it was made, with the result given by hand
)

// Answer is what a person said.
type Answer struct {
	Yes  bool   `json:"yes"`
	Note string `json:"note,omitempty"`
	By   string `json:"by,omitempty"`
	// Action and Result answer a question of kind outcome.
	Action Action          `json:"action,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
}

// Read reads the request of a question.
func Read(input []byte) (Request, error) {
	var r Request
	dec := json.NewDecoder(bytes.NewReader(input))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&r); err != nil {
		return r, fmt.Errorf("an approval that cannot be read: %w", err)
	}
	return r, nil
}

// Check says whether an answer answers the request.
func (r Request) Check(a Answer) error {
	if r.Kind != Outcome {
		if a.Action != "" || len(a.Result) > 0 {
			return fmt.Errorf("an approval of kind %s takes yes or no and a note, nothing else", r.Kind)
		}
		return nil
	}
	switch {
	case !a.Yes && a.Action == "", a.Action == Retry, a.Action == Fail:
		return nil
	case a.Action == Result && json.Valid(a.Result):
		return nil
	case a.Action == Result:
		return errors.New("the result given by hand is no JSON")
	}
	return errors.New("say what to do about the call with action: retry, fail, or result with the result as JSON")
}
