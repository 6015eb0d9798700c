package control

import (
	"context"
	"encoding/json"
	"time"

	"github.com/belay-run/belay/internal/access"
	"github.com/belay-run/belay/internal/agentjob"
	"github.com/belay-run/belay/internal/approval"
	"github.com/belay-run/belay/internal/audit"
	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/job"
	"github.com/belay-run/belay/internal/policy"
)

// Service is what the API is for. All of it must be there.
//
// What a service answers with an error that is a [Problem], or one that package job
// or access names, the client reads; any other error is logged, and the client is
// told that the log says more.
type Service struct {
	Gate      Gate
	Jobs      Jobs
	Approvals Approvals
	Plugins   Plugins
	Hooks     Hooks
	Policies  Policies
	Audit     audit.Reader
	Tokens    Tokens
	Secrets   Secrets  // nil: there are none, and no paths of theirs
	Spending  Spending // likewise
	Upkeep    Upkeep
	Health    func(ctx context.Context) Health
	// Mask takes a tenant's secrets out of what a [Problem] says; nil leaves it as it is.
	Mask func(ctx context.Context, tenant, text string) string
}

// Caller is who asks, and in which tenant. That their role suffices has been
// checked.
type Caller struct {
	Tenant string
	Name   string
	Role   access.Role
}

// Gate finds out whose a token is; see [access.Gate].
type Gate interface {
	Check(ctx context.Context, token string) (access.Identity, error)
}

// Jobs looks after jobs. Jobs that are not the tenant's are not there:
// [job.ErrNoJob].
type Jobs interface {
	StartJob(ctx context.Context, c Caller, o JobOrder) (job.ID, error)
	Jobs(ctx context.Context, f job.Filter) ([]job.Job, error)
	History(ctx context.Context, id job.ID) (job.History, error)
	Cancel(ctx context.Context, id job.ID, by, reason string) error
	Replay(ctx context.Context, id job.ID) (job.Report, error)
}

// JobOrder is a job to be started.
type JobOrder struct {
	// ID makes it safe to send the order again: a job of this id that is there
	// already is a conflict.
	ID    string          `json:"id,omitempty" maxLength:"64" pattern:"^[A-Za-z0-9][A-Za-z0-9_-]*$" doc:"The job's id, made up by the client so that it can send the order again; left out, the server makes one."`
	Agent string          `json:"agent" minLength:"1" maxLength:"256" doc:"An agent of the tenant."`
	Input json.RawMessage `json:"input,omitempty" doc:"What the agent gets: any JSON; text as a string."`
	Model string          `json:"model,omitempty" maxLength:"256" doc:"The model that is asked instead of the agent's: an alias, or provider/model."`
	// Deadline ends the job; zero for none.
	Deadline time.Time `json:"deadline,omitzero" doc:"When the job fails unless it has ended."`
}

// Approvals looks after what people are asked.
type Approvals interface {
	// Approvals gives approvals of a tenant: those that wait, the oldest first, or
	// those that do not any more, the newest first, or both.
	Approvals(ctx context.Context, tenant string, f ApprovalFilter) ([]Approval, error)
	// Approval gives one, whatever its state. It is a [NotFound] when there is none.
	Approval(ctx context.Context, tenant, id string) (Approval, error)
	// Decide answers one that waits. seen is the digest of what the decider saw;
	// one that fits no more is [job.ErrOtherQuestion]. [job.ErrDecided] when
	// somebody else was first, [job.ErrExpired], [job.ErrEnded].
	Decide(ctx context.Context, c Caller, id string, seen job.Digest, a approval.Answer) error
	// ApprovalChanges gets a value some time after something has changed about the
	// tenant's approvals. Many changes may be one value. stop ends it.
	ApprovalChanges(tenant string) (changed <-chan struct{}, stop func())
}

// ApprovalFilter picks approvals.
type ApprovalFilter struct {
	Waiting, Decided bool // which of them; at least one is set
	Job              string
	Limit            int
}

// ApprovalState says how an approval stands.
type ApprovalState string

// The states of an approval.
const (
	Waiting  ApprovalState = "waiting"
	Approved ApprovalState = "approved"
	Denied   ApprovalState = "denied"
	Expired  ApprovalState = "expired" // nobody answered in time, which counts as no
	Closed   ApprovalState = "closed"  // its job ended first, or a policy was enforced
)

// Approval is something that a person is asked.
type Approval struct {
	ID    string        `json:"id"`
	Job   string        `json:"job"`
	State ApprovalState `json:"state" enum:"waiting,approved,denied,expired,closed"`
	Asked time.Time     `json:"asked"`
	Until time.Time     `json:"until,omitzero" doc:"Then the answer is no."`
	// Request is what the person sees, secrets masked.
	Request approval.Request `json:"request" doc:"What is asked. Lists leave the values out."`
	// Digest is of the question; a decision that names it is bound to it.
	Digest  job.Digest `json:"digest" doc:"Send it with the decision: then it counts only for what was shown."`
	Decided *Decided   `json:"decided,omitempty"`
}

// Decided says who decided an approval, and what.
type Decided struct {
	By     string          `json:"by"`
	At     time.Time       `json:"at"`
	Note   string          `json:"note,omitempty"`
	Action approval.Action `json:"action,omitempty"`
}

// Plugins looks after a tenant's plugins.
type Plugins interface {
	Plugins(ctx context.Context, tenant string) ([]Plugin, error)
	// InstallPlugin installs or, when o.Name is set, updates the plugin of that
	// name. What is wrong with its files is a [Problem] with findings, what an
	// admin must accept first is [NeedsAcceptance].
	InstallPlugin(ctx context.Context, c Caller, o PluginOrder) (Installation, error)
	RemovePlugin(ctx context.Context, c Caller, name string, force bool) error
	// MovePlugin puts a plugin before another, or last when before is "".
	MovePlugin(ctx context.Context, c Caller, name, before string) error
	// GrantModel lets a plugin call the model, or no more.
	GrantModel(ctx context.Context, c Caller, name string, granted bool) error
}

// PluginOrder is a plugin to be installed or updated.
type PluginOrder struct {
	Name        string `json:"-"`
	Path        string `json:"path" minLength:"1" maxLength:"4096" doc:"The plugin's folder on the server's machine, an absolute path."`
	Before      string `json:"before,omitempty" maxLength:"256" doc:"The plugin before which its hooks run; left out, they run last. Not for updates."`
	AcceptModel bool   `json:"accept_model,omitempty" doc:"Let it call the model."`
	AcceptScan  bool   `json:"accept_scan,omitempty" doc:"Let it know where the tenant's secrets are."`
}

// Plugin is a plugin of a tenant.
type Plugin struct {
	Name         string    `json:"name"`
	Version      string    `json:"version,omitempty"`
	Description  string    `json:"description,omitempty"`
	Digest       string    `json:"digest" doc:"Of the snapshot of its folder."`
	Manifest     string    `json:"manifest" doc:"The name of its manifest."`
	Installed    time.Time `json:"installed"`
	InstalledBy  string    `json:"installed_by"`
	Updated      time.Time `json:"updated,omitzero"`
	UpdatedBy    string    `json:"updated_by,omitempty"`
	ModelGranted bool      `json:"model_granted" doc:"An admin lets it call the model."`
	Scan         bool      `json:"scan,omitempty" doc:"Hooks of it are told where the tenant's known secrets are."`
	Tools        []string  `json:"tools,omitempty"`
	Agents       []string  `json:"agents,omitempty"`
	Hooks        []string  `json:"hooks,omitempty" doc:"As <event>:<tool>.<function>, in order."`
	Permissions  []string  `json:"permissions,omitempty" doc:"What it may, in plain words."`
}

// Installation is what came of an installation or update.
type Installation struct {
	Plugin   Plugin            `json:"plugin"`
	Findings []finding.Finding `json:"findings,omitempty" doc:"Warnings."`
}

// Hooks knows which hooks are asked.
type Hooks interface {
	// Hooks gives a tenant's hooks in the order in which they are asked: those that
	// see an event, a tool's function, an agent, "" for any.
	Hooks(ctx context.Context, tenant string, q HookQuery) ([]Hook, error)
	// ShadowReport says what hooks that only look on would have changed, by the
	// histories of the newest jobs.
	ShadowReport(ctx context.Context, tenant string, jobs int) (ShadowReport, error)
}

// ShadowReport says what hooks that only look on would have changed.
type ShadowReport struct {
	Jobs int `json:"jobs" doc:"How many jobs of such hooks were looked through."`
	// Unread counts jobs whose history this program does not read as it was written.
	Unread int               `json:"unread,omitempty" doc:"How many of them could not be read to their ends."`
	Hooks  []agentjob.Shadow `json:"hooks"`
}

// HookQuery picks hooks; "" is any.
type HookQuery struct{ Event, Tool, Agent string }

// Hook is a hook of a plugin.
type Hook struct {
	Plugin       string   `json:"plugin"`
	Name         string   `json:"name" doc:"<tool>.<function>"`
	Event        string   `json:"event"`
	Tools        []string `json:"tools,omitempty" doc:"The functions whose calls it sees; left out, all."`
	Agents       []string `json:"agents,omitempty" doc:"The agents that it watches; left out, all."`
	Timeout      string   `json:"timeout"`
	OnTimeout    string   `json:"on_timeout" enum:"allow,deny,escalate"`
	EscalateOnly bool     `json:"escalate_only,omitempty"`
	Shadow       bool     `json:"shadow,omitempty" doc:"Its decisions do not bind."`
	Scan         bool     `json:"scan,omitempty"`
}

// Policies looks after a tenant's tool policy.
type Policies interface {
	// Policy gives the current policy; the default when none was applied.
	Policy(ctx context.Context, tenant string) (Policy, error)
	// PolicyVersion gives one that is or was. It is a [NotFound] when there is none.
	PolicyVersion(ctx context.Context, tenant, version string) (Policy, error)
	// PolicyVersions gives all that were applied, the newest first, without texts.
	PolicyVersions(ctx context.Context, tenant string) ([]Policy, error)
	// ApplyPolicy makes a text the current policy. It has been read without errors.
	ApplyPolicy(ctx context.Context, c Caller, o PolicyOrder) (PolicyChange, error)
	// ExplainCall says what policy and plugins say of a call. A nil p means the
	// current policy; nil annotations are those that the function's server declares.
	ExplainCall(ctx context.Context, tenant string, p *policy.Policy, q ExplainQuery) ([]policy.Stage, error)
}

// Policy is a version of a tenant's tool policy.
type Policy struct {
	Version string    `json:"version" doc:"The digest of the text."`
	Text    string    `json:"text,omitempty"`
	Default bool      `json:"default,omitempty" doc:"None was applied: this is what holds then."`
	Applied time.Time `json:"applied,omitzero"`
	By      string    `json:"by,omitempty"`
	// Enforced says that it was applied to running jobs too.
	Enforced bool `json:"enforced,omitempty" doc:"It was applied to jobs that ran already, too."`
}

// PolicyOrder is a policy to be applied.
type PolicyOrder struct {
	Text       string `json:"text" maxLength:"1048576" doc:"The policy's YAML; empty for the default policy."`
	Replaces   string `json:"replaces,omitempty" maxLength:"128" doc:"The version that must be the current one, so that nobody's change is lost."`
	EnforceNow bool   `json:"enforce_now,omitempty" doc:"Also for jobs that run already. It voids approvals that wait."`
}

// PolicyChange is what came of applying a policy.
type PolicyChange struct {
	Policy   Policy            `json:"policy"`
	Findings []finding.Finding `json:"findings,omitempty" doc:"Warnings."`
	Voided   []string          `json:"voided,omitempty" doc:"The approvals that wait no more."`
}

// ExplainQuery is a call to be explained.
type ExplainQuery struct {
	Tool        string              `json:"tool" minLength:"3" maxLength:"512" doc:"<tool>.<function>"`
	Arguments   json.RawMessage     `json:"arguments,omitempty" doc:"A JSON object."`
	Agent       string              `json:"agent,omitempty" maxLength:"256"`
	Provider    string              `json:"provider,omitempty" maxLength:"256"`
	Model       string              `json:"model,omitempty" maxLength:"256"`
	StartedBy   string              `json:"started_by,omitempty" maxLength:"256"`
	Annotations *policy.Annotations `json:"annotations,omitempty" doc:"What the function declares; left out, its server is asked."`
	Earlier     []EarlierCall       `json:"earlier,omitempty" maxItems:"1000" doc:"The job's calls before this one, in order."`
}

// EarlierCall is an earlier call of a job.
type EarlierCall struct {
	Tool      string          `json:"tool" minLength:"3" maxLength:"512"`
	Outcome   string          `json:"outcome,omitempty" enum:"ok,error,pending,unknown,not_made" doc:"Left out, ok."`
	Arguments json.RawMessage `json:"arguments,omitempty"`
}

// Tokens keeps tokens; see package access for the errors.
type Tokens interface {
	CreateToken(ctx context.Context, t access.Token) error
	ListTokens(ctx context.Context, tenant string) ([]access.Token, error)
	RevokeToken(ctx context.Context, tenant, name, by string) (access.Token, error)
}

// Secrets keeps a tenant's secrets. Their values go in and do not come out.
type Secrets interface {
	Secrets(ctx context.Context, tenant string) ([]Secret, error)
	SetSecret(ctx context.Context, c Caller, o SecretOrder) (Secret, error)
	RemoveSecret(ctx context.Context, c Caller, name string) error
}

// SecretOrder gives a secret a value.
type SecretOrder struct {
	Name   string `json:"name" minLength:"1" maxLength:"128" doc:"As tools name it in their env."`
	Value  string `json:"value" minLength:"1" maxLength:"65536"`
	Rotate bool   `json:"rotate,omitempty" doc:"It has a value, which this one replaces."`
	Keep   int64  `json:"keep_s,omitempty" minimum:"0" maximum:"315360000" doc:"For how many seconds the value before is still looked for; with rotate."`
}

// Secret is a secret without its value.
type Secret struct {
	Name    string    `json:"name"`
	Version int64     `json:"version" doc:"How often it was set."`
	Created time.Time `json:"created"`
	Updated time.Time `json:"updated"`
	By      string    `json:"by" doc:"Who set it last."`
	Earlier int       `json:"earlier,omitempty" doc:"How many values that it had are still looked for."`
}

// Health says how the service is.
type Health struct {
	OK      bool              `json:"ok" doc:"Whether jobs can run."`
	Version string            `json:"version,omitempty"`
	PID     int               `json:"pid,omitempty"`
	Details map[string]string `json:"details,omitempty" doc:"What is wrong or worth knowing, by part."`
}
