package plugintest

import (
	"encoding/json"
	"regexp"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/internal/agentjob"
	"github.com/belay-run/belay/internal/approval"
	"github.com/belay-run/belay/internal/model/scripted"
)

// File is one file of cases.
type File struct {
	Path  string // as it was named
	Cases []*Case
}

// Case is one test: of an event, or of a job.
type Case struct {
	Name         string
	Line, Column int
	Event        *Event // exactly one of the two is set
	Job          *Job
	Secrets      map[string]string // of the tenant, by name; nil for none
	// Models answer the plugin's functions that ask models, by the models' names; nil
	// where no key for models can be made.
	Models map[string]*scripted.Script
	Expect Expect
}

// Canary says that the case stands for what must go through untouched.
func (c *Case) Canary() bool { return c.Expect.Word == agentjob.Allowed }

// Event is a moment of a job that hooks are asked about.
type Event struct {
	On    *hook.Point
	Agent string
	// Fields are the event's own, by their names in it.
	Fields map[string]json.RawMessage
	// Tool is the function that the event is about, "" when it is about none.
	Tool      Name
	Input     json.RawMessage // of the job, for hooks that are told; nil for none
	Provider  string          // and Model: of the agent, "" when not known
	Model     string
	Approvals []Answer // of people; nil when they say yes to everything
}

// Job is a whole job.
type Job struct {
	Agent    Name // of the plugin, or one that stands in for another's
	Inline   *Agent
	Input    json.RawMessage
	Provider string // and Model: those that hooks are told of
	Model    string
	Script   *scripted.Script
	Tools    []Canned
	Policy   string // the text of the tenant's policy; "" for the default
	// Approvals are what people answer, in order.
	Approvals []Answer
}

// Agent is one that stands in the case.
type Agent struct {
	Instructions string
	Tools        []string // patterns; nil for all that there are
}

// Canned is a function whose results stand in the case.
type Canned struct {
	Name
	Schema      json.RawMessage
	Annotations *agentjob.Annotations // nil when nothing is said of them
	Results     []Given               // given one after another; the last one again
}

// Given is what a canned function gives.
type Given struct {
	Value json.RawMessage
	Error string // the function fails with this text
}

// Answer is what a person says.
type Answer struct {
	Line, Column int
	approval.Answer
	Tool string // answers only what is asked about this function; "" for anything
}

// Name is a word with its place.
type Name struct {
	Line, Column int
	Text         string
}

// Expect is what is written of a case. What is nil or empty is not looked at, but for
// the state of a job: it is completed when nothing is said.
type Expect struct {
	Line, Column int
	Word         string // allow, deny, modify, escalate; of a job allow or ""

	Value     json.RawMessage // that went on, or that a person was shown; nil when not looked at
	ValueLine int
	Reason    *Text
	Hook      *Name            // that said the word
	Hooks     *List[HookMatch] // all that were asked

	State     string
	Code      string
	Output    *Text
	Tools     *List[ToolMatch]
	Reads     *List[ReadMatch]
	Approvals *List[AskMatch]
}

// List is a list that is expected as a whole, in order.
type List[T any] struct {
	Line  int
	Items []T
}

// Text is what is expected of a text.
type Text struct {
	Line, Column int
	Whole        *string
	Contains     []string
	Matches      *regexp.Regexp
}

// HookMatch is a hook that was asked, and what it said.
type HookMatch struct {
	Name
	Event  string
	Says   string // allow, deny, modify, escalate, failed; "" for anything but failed
	Reason *Text
	Value  json.RawMessage
}

// ToolMatch is a call that reached its tool.
type ToolMatch struct {
	Name
	Arguments json.RawMessage // a part of them
}

// ReadMatch is what the model read as the result of a call.
type ReadMatch struct {
	Text
	Tool string
}

// AskMatch is what a person was asked.
type AskMatch struct {
	Line, Column int
	Kind         string
	Tool         string
	By           string // a hook or a rule
	Reason       *Text
	Value        json.RawMessage
}

// States that a case can end in, beside those of jobs that ended.
const waiting = "waiting"
