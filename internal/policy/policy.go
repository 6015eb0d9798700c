// Package policy is a tenant's tool policy: which agent may call which function,
// with which arguments, after what, and when a person is asked first.
//
// A policy is a YAML file:
//
//	rules:
//	  - name: no-force-push
//	    tools: [acme_github.push]
//	    when: has(arguments.force) && arguments.force
//	    verdict: refuse
//	    reason: a force push rewrites what others have
//	sequences:
//	  - name: tests-first
//	    tools: [acme_github.merge]
//	    after: [acme_ci.run_tests]
//	limits:
//	  - name: few-mails
//	    tools: [acme_mail.send]
//	    calls: 5
//
// [Read] and [Parse] compile all of it at once; what is wrong comes back as
// findings, and a policy with errors refuses every call. A call is put to it twice:
// [Policy.Outright] before any hook is asked, which only refuses, and
// [Policy.Decide] on the arguments as the hooks left them.
//
// Deciding is pure. The same policy, call and history give the same [Verdict]; a
// decision is never an error. When several parts speak, the strictest counts:
// refuse over require_approval over allow. So the order of rules means nothing, and
// adding a rule that refuses, or a floor, a limit or a sequence, never allows more.
// The zero Policy, the nil one and the zero Verdict refuse. A condition that cannot
// be evaluated counts as holding in a rule that restricts and as not holding in one
// that allows, and the verdict's notes say so.
//
// [Policy.Explain] shows every stage with its verdict.
package policy

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Effect is what a policy says about a call, from the strictest. The zero Effect
// refuses.
type Effect uint8

// The effects.
const (
	Refuse          Effect = iota // the call is not made
	RequireApproval               // a person decides first
	Allow
)

var effectWords = []string{"refuse", "require_approval", "allow"}

func (e Effect) String() string {
	if int(e) < len(effectWords) {
		return effectWords[e]
	}
	return effectWords[Refuse]
}

// MarshalText writes the effect as the word that stands in files.
func (e Effect) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// UnmarshalText reads one of the three words.
func (e *Effect) UnmarshalText(text []byte) error {
	i := slices.Index(effectWords, string(text))
	if i < 0 {
		*e = Refuse
		return fmt.Errorf("policy: %q is none of %s", text, strings.Join(effectWords, ", "))
	}
	*e = Effect(i)
	return nil
}

// The roles that may answer an approval.
const (
	Approver = "approver"
	Admin    = "admin"
)

// The kinds of an approval that a policy asks for.
const (
	ByRule       = "policy"     // a rule, floor, limit or sequence asks for it
	ByAnnotation = "annotation" // nobody asks but what the function says of itself
)

// Verdict is what a policy decided about a call. The zero Verdict refuses.
type Verdict struct {
	Effect Effect `json:"effect"`
	// Reason says why, for the model on a refusal and for the person on an
	// approval. It holds no value of the call. It is empty when the call is allowed.
	Reason string `json:"reason,omitempty"`
	// Approvers is the role that may answer, and Kind says what asks; both are set
	// with RequireApproval only.
	Approvers string `json:"approvers,omitempty"`
	Kind      string `json:"kind,omitempty"`
	// Rules are the parts of the policy that decided, as "rules[2] no-force-push".
	Rules []string `json:"rules,omitempty"`
	// Notes say which conditions could not be evaluated and how they were counted.
	Notes []string `json:"notes,omitempty"`
}

// Who makes a call.
const (
	ByModel   = "model"   // the model of a job's agent
	ByHarness = "harness" // a session inside a harness
	ByHook    = "hook"    // the function of the call is a hook, and an event is put to it
)

// Call is a call that is about to be made.
type Call struct {
	Tool        string          // full name, <tool>.<function>
	Arguments   json.RawMessage // a JSON object; none is the empty one
	Annotations Annotations     // what the function's server says of it
	Agent       Agent
	Job         Job
	Origin      Origin
}

// Agent is the agent that calls.
type Agent struct {
	Name     string
	Provider string // of its model; "" when not known
	Model    string
}

// Job is the job that the call belongs to.
type Job struct {
	ID        string
	Tenant    string
	Parent    string // the job that started it; "" for none
	StartedBy string // who started it, such as the name of a token
}

// Origin says where a call and its arguments come from.
type Origin struct {
	By string // [ByModel], [ByHarness] or [ByHook]
	// Harness is the harness's name when By is [ByHarness].
	Harness string
	// ChangedBy are the hooks that changed the arguments, in order.
	ChangedBy []string
}

// Outcomes of an earlier call. Any other word counts as a call that was made and
// did not succeed.
const (
	Succeeded = "ok"
	Failed    = "error"    // it reached its tool and failed there
	Pending   = "pending"  // decided, and perhaps under way
	Unknown   = "unknown"  // perhaps made
	NotMade   = "not_made" // refused, denied or invalid: it never reached its tool
)

// Past is an earlier call of the job.
type Past struct {
	Tool      string
	Outcome   string
	Arguments json.RawMessage // as it was made
}

// Annotations are the hints that an MCP server gives with a function; nil is one
// that it does not give.
type Annotations struct {
	ReadOnly    *bool `json:"readOnlyHint,omitempty"`
	Destructive *bool `json:"destructiveHint,omitempty"`
	Idempotent  *bool `json:"idempotentHint,omitempty"`
	OpenWorld   *bool `json:"openWorldHint,omitempty"`
}

// Declared says that the function declares anything at all.
func (a Annotations) Declared() bool {
	return a.ReadOnly != nil || a.Destructive != nil || a.Idempotent != nil || a.OpenWorld != nil
}

// Harmless says that the function declares that it only reads and stays in its
// closed world, and nothing to the contrary.
func (a Annotations) Harmless() bool {
	return is(a.ReadOnly, false) && !is(a.OpenWorld, true) && !is(a.Destructive, false)
}

// is reads a hint; what is not given counts as fallback.
func is(hint *bool, fallback bool) bool {
	if hint == nil {
		return fallback
	}
	return *hint
}

// Policy is a policy that was read. It is immutable and safe for use by many
// goroutines. The zero Policy refuses every call.
type Policy struct {
	usable    bool
	version   string
	rules     []rule
	limits    []limit
	sequences []sequence
	floors    []floor
	defaults  defaults
	loosening []Part
}

// scope says which calls a part of a policy is about.
type scope struct {
	name      string // such as "rules[2] no-force-push"
	tools     []pattern
	agents    []pattern // nil: all
	effect    Effect
	reason    string
	approvers string
}

type rule struct {
	scope
	when  *condition // nil: always
	added bool       // by an addition: it never stands in for the defaults
}

type limit struct {
	scope
	calls int
}

type sequence struct {
	scope
	after, never []pattern // one of them is set
}

// floor is the least strictness for what a function may do.
type floor struct {
	ability string
	effect  Effect
	from    string // whose addition it is; "" for the policy's own
}

// defaults say what holds when no rule decides.
type defaults struct{ readOnly, unannotated, other Effect }

var standard = defaults{readOnly: Allow, unannotated: RequireApproval, other: RequireApproval}

func (d defaults) of(a Annotations) (class string, e Effect) {
	switch {
	case a.Harmless():
		return "read_only", d.readOnly
	case !a.Declared():
		return "unannotated", d.unannotated
	}
	return "other", d.other
}

// abilities are what a floor can be about. A hint that is not given counts as its
// worst.
var abilities = map[string]func(Annotations) bool{
	"writes": func(a Annotations) bool { return !is(a.ReadOnly, false) },
	"destructive": func(a Annotations) bool {
		return !is(a.ReadOnly, false) && is(a.Destructive, true) || is(a.Destructive, false)
	},
	"open_world": func(a Annotations) bool { return is(a.OpenWorld, true) },
}

// Default returns the policy of a tenant that has none: functions that only read
// in a closed world are allowed, for all others a person is asked.
func Default() *Policy {
	return &Policy{usable: true, version: digest([]byte("default")), defaults: standard}
}

// Version is the digest of the policy's text; "" for one that cannot be used.
func (p *Policy) Version() string {
	if p == nil {
		return ""
	}
	return p.version
}

// Usable says that the policy was read without errors. One that is not refuses
// every call.
func (p *Policy) Usable() bool { return p != nil && p.usable }

// Addition is a policy that restricts another one further, such as a plugin's.
type Addition struct {
	From   string // whose it is, such as the plugin's name
	Policy *Policy
}

// With returns the policy with what others add to it. An addition only restricts:
// its defaults and what it allows do not count, and a call that the policy's own
// defaults refuse stays refused. One that cannot be used makes the whole refuse.
func (p *Policy) With(more ...Addition) *Policy {
	if !p.Usable() || len(more) == 0 {
		return p
	}
	out := *p
	versions := []byte(p.version)
	for _, m := range more {
		if !m.Policy.Usable() {
			return &Policy{}
		}
		versions = fmt.Appendf(versions, "\n%q %s", m.From, m.Policy.version)
		for _, r := range m.Policy.rules {
			if r.effect != Allow {
				r.scope, r.added = r.from(m.From), true
				out.rules = append(slices.Clip(out.rules), r)
			}
		}
		for _, l := range m.Policy.limits {
			l.scope = l.from(m.From)
			out.limits = append(slices.Clip(out.limits), l)
		}
		for _, q := range m.Policy.sequences {
			q.scope = q.from(m.From)
			out.sequences = append(slices.Clip(out.sequences), q)
		}
		for _, f := range m.Policy.floors {
			f.from = m.From
			out.floors = append(slices.Clip(out.floors), f)
		}
	}
	out.version = digest(versions)
	return &out
}

func (s scope) from(whose string) scope {
	s.name = whose + ": " + s.name
	return s
}

func digest(text []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(text)) }
