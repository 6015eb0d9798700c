package agentjob

import (
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/internal/approval"
	"github.com/belay-run/belay/internal/job"
	"github.com/belay-run/belay/internal/policy"
	"github.com/belay-run/belay/internal/rawjson"
)

// about is what a chain's event is about, for people and for hooks.
type about struct {
	tool      string
	arguments json.RawMessage
	// harmed says why a new value cannot be used, "" when it can.
	harmed func(value json.RawMessage) string
}

// chain asks the hooks of a point, and people where hooks escalate. key is unique
// in the job. The hooks that only look on are asked after it.
func (r *run) chain(s job.Steps, key string, who hook.Who, p hook.Payload, a about) (hook.Result, error) {
	point := p.Point()
	if point.Name == hook.JobEnd && a.harmed == nil {
		a.harmed = needsText
	}
	chain := r.hooks.Chain(point, who)
	st := hook.Begin(chain, p)
	var lines []hook.Run
	for st.Next() != hook.NeedNothing {
		if st.Next() == hook.NeedPerson {
			decision, err := r.askPerson(s, key, st, p, a)
			if err != nil {
				return hook.Result{}, err
			}
			if st, err = st.Decide(decision); err != nil {
				return hook.Result{}, err
			}
			continue
		}
		h := chain.Hook(st.At)
		answer, err := r.askHook(s, key, h, st.Payload, a)
		if err != nil {
			return hook.Result{}, err
		}
		var line hook.Run
		st, line = st.Fold(answer)
		lines = append(lines, line)
		r.tell(key, h, a, answer, line)
	}
	st.End.Runs = lines
	return st.End, r.lookOn(s, key, who, p, a)
}

// workOf is the time that the hooks of a chain took.
func workOf(end hook.Result) (took time.Duration) {
	for _, line := range end.Runs {
		took += line.Took
	}
	return took
}

// needsText says of an output that it must stay a text.
func needsText(value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) != nil {
		return "the output must be a text"
	}
	return ""
}

// lookOn asks hooks whose answers are kept and do not bind.
func (r *run) lookOn(s job.Steps, key string, who hook.Who, p hook.Payload, a about) error {
	for _, h := range r.shadow {
		if h.Point != p.Point() || !sees(h, who) {
			continue
		}
		answer, err := r.askHook(s, key+"/shadow", h, p, a)
		if err != nil {
			return err
		}
		r.tellAlone(key+"/shadow", h, p, a, answer)
	}
	return nil
}

func sees(h *hook.Hook, who hook.Who) bool {
	in := func(list []string, name string) bool {
		if list == nil {
			return true
		}
		for _, n := range list {
			if n == name {
				return true
			}
		}
		return false
	}
	return in(h.Match.Tools, who.Tool) && in(h.Match.Agents, who.Agent)
}

// askHook asks one hook and reads its answer.
func (r *run) askHook(s job.Steps, key string, h *hook.Hook, p hook.Payload, a about) (hook.Answer, error) {
	d := r.known[h]
	tool, there := r.spec.tool(d.Tool)
	if !there {
		return hook.Failed(hook.Unavailable, "its tool %s is not there", d.Tool), nil
	}
	if refused := r.permitted[d.Name()]; refused != "" {
		return hook.Failed(hook.Unavailable, "%s", refused), nil
	}
	event := p
	if d.EscalateOnly && p.Point().Name == hook.PreToolCall {
		event = r.forJudges(p)
	}
	raw, err := event.MarshalJSON()
	if err != nil {
		return hook.Answer{}, err
	}
	call := HookCall{Tool: tool, Function: d.Function, Event: raw, Limit: h.Limit}
	if d.Scan {
		call.Scan = p.Point().Fields[p.Point().Changeable()].Name
	}
	got, err := job.Ask(s, job.Call{Key: key + "/" + h.Name, Kind: KindHook, Input: rawjson.Must(call)})
	if err != nil {
		return hook.Answer{}, err
	}
	if got.Failure != nil {
		failed := hook.Failed(failureKind(got.Failure.Kind), "%s", got.Failure.Message)
		failed.Failure.OwnWords, failed.Took = got.Failure.Kind == Lost, got.Took
		return failed, nil
	}
	answer := hook.ParseDecision(p.Point(), got.Value)
	answer.Took = got.Took
	for _, c := range answer.Verdict.Changes {
		if a.harmed != nil {
			if why := a.harmed(c.Value); why != "" && !d.EscalateOnly { // whose changes never count
				misfit := hook.Failed(hook.WrongReturn, "%s", why)
				misfit.Took = got.Took
				return misfit, nil
			}
		}
	}
	return answer, nil
}

func failureKind(kind string) hook.FailureKind {
	switch kind {
	case job.TimedOut:
		return hook.Timeout
	case Unavailable:
		return hook.Unavailable
	case WrongAnswer:
		return hook.WrongReturn
	}
	return hook.Crash
}

// Kinds of failures that handlers of hooks and tools give, beside those of package
// job.
const (
	Unavailable = "unavailable"  // it could not be asked
	WrongAnswer = "wrong_answer" // what it answered cannot be read
	Lost        = "lost"         // its server ended before it answered
)

const maxRequest = 4 << 10 // bytes of the job's input that a judge is told

// forJudges adds what hooks that may only escalate are told besides.
func (r *run) forJudges(p hook.Payload) hook.Payload {
	text := inputText(r.input)
	if len(text) > maxRequest {
		cut := maxRequest
		for !utf8.RuneStart(text[cut]) {
			cut--
		}
		text = text[:cut]
	}
	p = p.Set("request", text)
	if a := r.spec.Agent; a.Provider != "" && a.Model != "" {
		p = p.Set("agent_model", map[string]string{"provider": a.Provider, "model": a.Model})
	}
	return p
}

// inputText is the job's input as text: what is no text as JSON.
func inputText(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	return string(raw)
}

// askPerson asks about what a hook escalated.
func (r *run) askPerson(s job.Steps, key string, st hook.State, before hook.Payload, a about) (hook.Decision, error) {
	point := before.Point()
	field := point.Fields[point.Changeable()].Name
	digest := st.Digest()
	req := approval.Request{Kind: approval.Hook, Event: point.Name, Tool: a.tool, Value: st.Payload.Get(field), Digest: digest, Policy: r.policy.Version()}
	if point.Name == hook.PostToolCall {
		req.Arguments = a.arguments
	}
	if old := before.Get(field); string(old) != string(req.Value) {
		req.Before = old
	}
	for _, held := range st.Open() {
		req.Reasons = append(req.Reasons, approval.Reason{By: plainName(held.Hook), Text: held.Reason, Note: held.Note})
	}
	yes, why, err := r.person(s, fmt.Sprintf("%s/person/%.16s", key, digest), req)
	return hook.Decision{Yes: yes, Digest: digest, Expired: why == expired}, err
}

const expired = "nobody decided in time"

// person asks a person yes or no. why says what kept a yes away.
func (r *run) person(s job.Steps, key string, req approval.Request) (yes bool, why string, err error) {
	answer, why, err := r.question(s, key, req)
	if err != nil || why != "" {
		return false, why, err
	}
	if answer.Yes {
		return true, "", nil
	}
	why = "a person refused"
	if answer.Note != "" {
		why += ": " + answer.Note
	}
	return false, why, nil
}

// question waits for a person's answer. why is set when none came.
func (r *run) question(s job.Steps, key string, req approval.Request) (answer approval.Answer, why string, err error) {
	req.Job, req.Agent = r.id, r.spec.Agent.Name
	if req.Role == "" {
		req.Role = policy.Approver
	}
	now, err := s.Now(key + "/asked")
	if err != nil {
		return answer, "", err
	}
	wait := r.spec.Expiry
	if wait == 0 {
		wait = approval.Expiry
	}
	got, err := s.Await(job.Question{Key: key, Kind: approval.Question, Input: rawjson.Must(req), Until: now.Add(wait)})
	switch {
	case err != nil:
		return answer, "", err
	case got.Failure != nil && got.Failure.Kind == job.Expired:
		return answer, expired, nil
	case got.Failure != nil:
		return answer, got.Failure.Message, nil
	}
	if err := json.Unmarshal(got.Value, &answer); err != nil {
		return answer, "the answer cannot be read", nil
	}
	return answer, "", nil
}
