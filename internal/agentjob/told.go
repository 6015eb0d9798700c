package agentjob

import (
	"encoding/json"

	"github.com/belay-run/belay/hook"
)

// What a hook can have said, by the words of its answers.
const (
	Allowed   = "allow"
	Denied    = "deny"
	Modified  = "modify"
	Escalated = "escalate" // also what was turned into it, of a hook that may do no more
	HasFailed = "failed"   // its policy decided
)

// Told is what an answer of a hook came to.
type Told struct {
	Job string
	Key string // of the question: unique in the job
	// Event and Name name the hook. Name has a number when several of one function
	// stand at the event: acme.check#2.
	Event, Name string
	Tool        string // the function that the event is about; "" when it is about none
	Says        string // one of the words above
	// Value is the new value that counted; nil when there is none.
	Value json.RawMessage
	// Shadow says that the answer did not bind.
	Shadow bool
	Run    hook.Run
}

// tell tells of an answer that was folded.
func (r *run) tell(key string, h *hook.Hook, a about, answer hook.Answer, line hook.Run) {
	if r.told == nil {
		return
	}
	d := r.known[h]
	t := Told{Job: r.id, Key: key + "/" + h.Name, Event: h.Point.Name, Name: h.Name, Tool: a.tool, Shadow: d.Shadow, Run: line}
	changes := answer.Verdict.Changes
	switch {
	case line.Failure != nil:
		t.Says = HasFailed
	case d.EscalateOnly && line.Dropped != "", answer.Verdict.Kind == hook.Hold:
		t.Says = Escalated
	case answer.Verdict.Kind != hook.Continue:
		t.Says = Denied
	case len(changes) > 0:
		t.Says = Modified
	default:
		t.Says = Allowed
	}
	if len(changes) > 0 && !d.EscalateOnly && (t.Says == Modified || t.Says == Escalated) {
		t.Value = changes[0].Value
	}
	r.told(t)
}

// tellAlone tells of an answer that does not bind: what it would have come to if no
// other hook stood there.
func (r *run) tellAlone(key string, h *hook.Hook, p hook.Payload, a about, answer hook.Answer) {
	if r.told == nil {
		return
	}
	free := *h
	free.Match = hook.Match{}
	e, err := hook.NewEngine(nil, &free)
	if err != nil { // it stands in another engine as it is
		return
	}
	_, line := hook.Begin(e.Chain(h.Point, hook.Who{}), p).Fold(answer)
	r.tell(key, h, a, answer, line)
}
