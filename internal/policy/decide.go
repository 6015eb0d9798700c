package policy

import (
	"fmt"
	"slices"
	"strings"
)

// The stages of a decision, in the order in which a call meets them.
const (
	StageOutright  = "outright"
	StageHooks     = "hooks" // not the policy's: here pre_tool_call hooks are asked
	StageCall      = "call"
	StageRules     = "rules"
	StageFloors    = "floors"
	StageLimits    = "limits"
	StageSequences = "sequences"
	StageDefaults  = "defaults"
	StageDecision  = "decision"
)

// Outright says whether the policy refuses a call whatever its arguments are: by a
// rule that refuses and whose condition, if it has one, asks only for the tool, the
// agent and the job. It is asked before any hook. Allow means only that hooks may
// be asked now; [Policy.Decide] still decides.
func (p *Policy) Outright(call Call) Verdict {
	var b bench
	p.outright(&call, &b)
	return b.verdict()
}

// Decide decides about a call with the arguments it will be made with. The history
// holds the calls of the job's agent before this one, in order, those of the same
// model response that are already decided too, and none of hooks.
func (p *Policy) Decide(call Call, history []Past) Verdict {
	var b bench
	p.outright(&call, &b)
	if p.Usable() {
		p.rest(&call, history, &b)
	}
	return b.verdict()
}

// Stage is one step of a decision.
type Stage struct {
	Name string `json:"stage"`
	// Part is the part of the policy, such as "rules[2] no-force-push"; "" when
	// the stage has none.
	Part string `json:"part,omitempty"`
	// Applies says that the part is about this call. Effect counts only then.
	Applies bool   `json:"applies"`
	Effect  Effect `json:"effect"`
	// Why says why the part applies or does not.
	Why string `json:"why"`
}

// Explain returns every stage of a decision with what it says, and the decision as
// the last one. It says what [Policy.Outright] and [Policy.Decide] would.
func (p *Policy) Explain(call Call, history []Past) []Stage {
	b := bench{keep: true}
	p.outright(&call, &b)
	early := b.verdict()
	if early.Effect == Refuse {
		b.stages = append(b.stages, Stage{Name: StageHooks, Why: "not reached: no hook is asked"})
		return append(b.stages, Stage{Name: StageDecision, Applies: true, Effect: Refuse, Why: early.Reason})
	}
	b.stages = append(b.stages, Stage{Name: StageHooks, Effect: Allow, Why: "pre_tool_call hooks are asked here; what follows is decided on the arguments they leave"})
	p.rest(&call, history, &b)
	v := b.verdict()
	why := v.Reason
	if why == "" {
		why = "nothing stands against it"
	}
	if v.Effect == RequireApproval {
		why += "; the role " + v.Approvers + " answers"
	}
	return append(b.stages, Stage{Name: StageDecision, Applies: true, Effect: v.Effect, Why: why})
}

// opinion is what one part of a policy says about a call.
type opinion struct {
	stage, part string
	effect      Effect
	reason      string
	approvers   string
	kind        string
}

// bench hears opinions; the strictest wins.
type bench struct {
	heard  []opinion
	notes  []string
	keep   bool // keep the stages, also of parts that do not apply
	stages []Stage
}

func (b *bench) say(o opinion) {
	b.heard = append(b.heard, o)
	if b.keep {
		why := o.reason
		if why == "" {
			why = "it applies"
		}
		b.stages = append(b.stages, Stage{Name: o.stage, Part: o.part, Applies: true, Effect: o.effect, Why: why})
	}
}

func (b *bench) pass(stage string, s *scope, why string) {
	if b.keep {
		b.stages = append(b.stages, Stage{Name: stage, Part: s.name, Effect: s.effect, Why: why})
	}
}

// verdict folds the opinions. Without any nothing stands against the call.
func (b *bench) verdict() Verdict {
	v := Verdict{Effect: Allow, Notes: slices.Clone(b.notes)}
	for _, o := range b.heard {
		v.Effect = min(v.Effect, o.effect)
	}
	var reasons []string
	asked := slices.ContainsFunc(b.heard, func(o opinion) bool { return o.effect == v.Effect && o.kind == ByRule })
	for _, o := range b.heard {
		if o.effect != v.Effect || asked && o.kind == ByAnnotation {
			continue
		}
		if o.part != "" && !slices.Contains(v.Rules, o.part) {
			v.Rules = append(v.Rules, o.part)
		}
		if o.reason != "" && !slices.Contains(reasons, o.reason) {
			reasons = append(reasons, o.reason)
		}
		if v.Effect != RequireApproval {
			continue
		}
		if v.Approvers == "" || o.approvers == Admin {
			v.Approvers = o.approvers
		}
		if v.Kind == "" || o.kind == ByRule {
			v.Kind = o.kind
		}
	}
	if v.Effect != Allow {
		v.Reason = strings.Join(reasons, "; ")
	}
	return v
}

func (p *Policy) outright(call *Call, b *bench) {
	if !p.Usable() {
		b.say(opinion{stage: StageOutright, reason: "the tool policy cannot be used, so every call is refused"})
		return
	}
	if tool, function, _ := strings.Cut(call.Tool, "."); tool == "" || function == "" {
		b.say(opinion{stage: StageOutright, reason: "the call names no function as <tool>.<function>"})
		return
	}
	f := &facts{call: call}
	for i := range p.rules {
		r := &p.rules[i]
		if r.outright() {
			p.rule(StageOutright, r, f, b)
		}
	}
}

// outright says that the rule refuses whatever the arguments are.
func (r *rule) outright() bool { return r.effect == Refuse && (r.when == nil || r.when.early) }

// rule hears one rule. It says whether the rule decides instead of the defaults.
func (p *Policy) rule(stage string, r *rule, f *facts, b *bench) (decides bool) {
	if why := r.misses(f.call); why != "" {
		b.pass(stage, &r.scope, why)
		return false
	}
	holds, problem := r.when.holds(f)
	o := r.opinion(stage, r.reason)
	switch {
	case problem != "":
		note := fmt.Sprintf("the condition of %s could not be evaluated (%s)", r.name, problem)
		if r.effect == Allow {
			b.notes = append(b.notes, note+", so the rule does not allow the call")
			b.pass(stage, &r.scope, note)
			return false
		}
		o.reason = note + ", so it counts as holding"
		b.notes = append(b.notes, o.reason)
		b.say(o)
		return false
	case !holds:
		b.pass(stage, &r.scope, "its condition does not hold")
		return false
	}
	if o.reason == "" && r.effect != Allow {
		o.reason = r.name + map[Effect]string{Refuse: " refuses it", RequireApproval: " asks for an approval"}[r.effect]
	}
	b.say(o)
	return !r.added
}

func (s *scope) opinion(stage, reason string) opinion {
	o := opinion{stage: stage, part: s.name, effect: s.effect, reason: reason}
	if s.effect == RequireApproval {
		o.approvers, o.kind = s.approvers, ByRule
	}
	return o
}

// misses says why the part is not about the call; "" when it is.
func (s *scope) misses(c *Call) string {
	switch {
	case !anyTool(s.tools, c.Tool):
		return "it is about other tools"
	case s.agents != nil && !anyAgent(s.agents, c.Agent.Name):
		return "it is about other agents"
	}
	return ""
}

func (p *Policy) rest(call *Call, history []Past, b *bench) {
	f := &facts{call: call, history: history}
	if _, err := f.arguments(); err != nil {
		b.say(opinion{stage: StageCall, reason: "the arguments cannot be judged: " + err.Error()})
	}
	decided := false
	for i := range p.rules {
		if r := &p.rules[i]; !r.outright() && p.rule(StageRules, r, f, b) {
			decided = true
		}
	}
	p.floor(call, b)
	p.limit(call, history, b)
	p.sequence(call, history, b)
	p.byDefault(call, decided, b)
}

func (p *Policy) floor(call *Call, b *bench) {
	for _, fl := range p.floors {
		s := scope{name: "floors." + fl.ability, effect: fl.effect, approvers: Approver}
		if fl.from != "" {
			s = s.from(fl.from)
		}
		if !abilities[fl.ability](call.Annotations) {
			b.pass(StageFloors, &s, "the function declares that it is not so")
			continue
		}
		b.say(s.opinion(StageFloors, "what "+map[string]string{
			"writes": "may write", "destructive": "may destroy", "open_world": "may reach the open world",
		}[fl.ability]+" is never below "+fl.effect.String()))
	}
}

// ofHooks is why limits and sequences leave the calls of hooks alone: they would
// otherwise fail the checks of an agent for what the agent did.
const ofHooks = "it is about the agent's calls, and this is a hook's"

func (p *Policy) limit(call *Call, history []Past, b *bench) {
	for i := range p.limits {
		l := &p.limits[i]
		why := l.misses(call)
		if why == "" && call.Origin.By == ByHook {
			why = ofHooks
		}
		if why != "" {
			b.pass(StageLimits, &l.scope, why)
			continue
		}
		made := 0
		for _, h := range history {
			if h.Outcome != NotMade && anyTool(l.tools, h.Tool) {
				made++
			}
		}
		if made < l.calls {
			b.pass(StageLimits, &l.scope, fmt.Sprintf("%d of %d calls were made", made, l.calls))
			continue
		}
		b.say(l.opinion(StageLimits, l.because(fmt.Sprintf("a job may make %d calls of %s", l.calls, texts(l.tools)))))
	}
}

func (p *Policy) sequence(call *Call, history []Past, b *bench) {
	for i := range p.sequences {
		q := &p.sequences[i]
		why := q.misses(call)
		if why == "" && call.Origin.By == ByHook {
			why = ofHooks
		}
		if why == "" {
			why = q.kept(history)
		}
		if why != "" {
			b.pass(StageSequences, &q.scope, why)
			continue
		}
		reason := fmt.Sprintf("%s may be called only after %s", call.Tool, texts(q.after))
		if q.never != nil {
			reason = fmt.Sprintf("%s may not be called after %s", call.Tool, texts(q.never))
		}
		b.say(q.opinion(StageSequences, q.because(reason)))
	}
}

// kept says why the history keeps the sequence; "" when it breaks it.
func (q *sequence) kept(history []Past) string {
	for _, h := range history {
		switch {
		case q.never != nil && h.Outcome != NotMade && anyTool(q.never, h.Tool):
			return ""
		case q.never == nil && h.Outcome == Succeeded && anyTool(q.after, h.Tool):
			return h.Tool + " succeeded before"
		}
	}
	if q.never != nil {
		return "none of " + texts(q.never) + " was called before"
	}
	return ""
}

// because puts the author's reason before our own.
func (s *scope) because(ours string) string {
	if s.reason != "" {
		return s.reason + " (" + ours + ")"
	}
	return ours
}

func (p *Policy) byDefault(call *Call, decided bool, b *bench) {
	class, effect := p.defaults.of(call.Annotations)
	s := scope{name: "defaults." + class, effect: effect}
	if decided {
		b.pass(StageDefaults, &s, "a rule decides")
		return
	}
	reason := ""
	if effect != Allow {
		reason = "no rule is about it, and " + map[string]string{
			"read_only":   "its function only reads",
			"unannotated": "its function does not say what it does",
			"other":       "its function does not declare that it only reads in a closed world",
		}[class]
	}
	o := opinion{stage: StageDefaults, part: s.name, effect: effect, reason: reason}
	if effect == RequireApproval {
		o.approvers, o.kind = Approver, ByAnnotation
	}
	b.say(o)
}
