package job

import (
	"encoding/json"
	"time"
)

// ID names a job. Tenants never meet.
type ID struct {
	Tenant string `json:"tenant"`
	Job    string `json:"job"`
}

// String is for logs.
func (id ID) String() string { return id.Tenant + "/" + id.Job }

// Order is what a job is made from. It never changes.
type Order struct {
	ID
	// Flow is the name of the code, Shape its number when the job was made:
	// newer code goes on with the job as that shape did it.
	Flow  string `json:"flow"`
	Shape int    `json:"shape"`
	// Agent is who the job is of. It stands in plain, to list by.
	Agent string          `json:"agent,omitempty"`
	Input json.RawMessage `json:"input,omitempty"`
	// Created is when the job was made.
	Created time.Time `json:"created"`
	// Deadline ends the job as failed with [LimitExceeded]; zero for none.
	Deadline time.Time `json:"deadline,omitzero"`
}

// State is where a job stands.
type State string

// The states.
const (
	Running   State = "running"   // something is to be done, whether or not a process does it now
	Waiting   State = "waiting"   // for a decision, a deadline or a cancellation; no process has it
	Completed State = "completed" // with an output
	Failed    State = "failed"    // with a code
	Cancelled State = "cancelled" // on request
)

// Ended says that the state is final.
func (s State) Ended() bool { return s == Completed || s == Failed || s == Cancelled }

// Codes of failed jobs that come from here; flows have their own, see [Fail].
const (
	HistoryDiffers = "HistoryDiffers" // the code asked for something else than the record has
	Panicked       = "Panic"          // the flow panicked
	LimitExceeded  = "LimitExceeded"  // the job's deadline passed
	Errored        = "Error"          // the flow returned an error without a code
)

// End is how a job ended.
type End struct {
	State State `json:"state"`
	// Code says in one word why a job failed. It stands in plain.
	Code   string          `json:"code,omitempty"`
	Reason string          `json:"reason,omitempty"`
	Output json.RawMessage `json:"output,omitempty"`
}

// Cancellation is the wish that a job ends.
type Cancellation struct {
	At     time.Time `json:"at"`
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"`
}

// Job is a job as its journal has it.
type Job struct {
	Order
	State   State     `json:"state"`
	Updated time.Time `json:"updated"`
	// Wake is when a waiting job goes on by itself; zero for never.
	Wake time.Time `json:"wake,omitzero"`
	// Decisions counts the questions that have been decided.
	Decisions int `json:"decisions,omitempty"`
	// Cancel is set once somebody asked for the end.
	Cancel *Cancellation `json:"cancel,omitempty"`
	// End is set when State has ended.
	End *End `json:"end,omitempty"`
}
