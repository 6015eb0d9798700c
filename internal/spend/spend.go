package spend

import (
	"context"
	"time"
)

// Usage is how many tokens a call took.
type Usage struct {
	Input        int `json:"input_tokens"`                   // all of them, cached ones too
	Output       int `json:"output_tokens"`                  // all of them, reasoning too
	Cached       int `json:"cached_tokens,omitempty"`        // of Input: read from a cache
	CacheWritten int `json:"cache_written_tokens,omitempty"` // of Input: written to one
	Reasoning    int `json:"reasoning_tokens,omitempty"`     // of Output
}

// Tokens is what counts for a budget of tokens.
func (u Usage) Tokens() int64 { return int64(max(0, u.Input)) + int64(max(0, u.Output)) }

// Period is how long a budget is for, until it is whole again.
type Period string

// The periods. Days and months are those of the calendar in UTC.
const (
	Forever Period = ""
	Day     Period = "day"
	Month   Period = "month"
)

// Budget limits what is spent in a period. 0 is no limit.
type Budget struct {
	Cost   Money
	Tokens int64
	Per    Period // of a job always Forever
}

// None says that the budget limits nothing.
func (b Budget) None() bool { return b.Cost == 0 && b.Tokens == 0 }

// Budgets are those that a call has to keep.
type Budgets struct{ Job, Agent, Tenant Budget }

// Call says which call it is.
type Call struct {
	ID, Tenant, Job, Agent string // ID "" is given one
	// These are of a key; Plugin is "" for a call by the agent itself.
	Plugin, Tool, Function, Step, Purpose string

	API   string // "openai", "anthropic" or "scripted"
	Route string // such as "/v1/messages"
	// What was asked for, and what it came to.
	Alias, Provider, Model string
	Stream                 bool
}

// Outcome is how a call ended.
type Outcome struct {
	Status          int // of HTTP, as the caller got it; 0 when none came
	Usage           Usage
	Estimated       bool     // the provider did not say: counted from what came
	Why             string   // of a refusal or a failure; it holds no text of messages and no key
	Verdicts        []string // such as "secrets masked: CRM_TOKEN"
	FirstByte, Took time.Duration
	Request, Answer []byte // only where texts are recorded
}

// Record is one call as it is kept.
type Record struct {
	Call
	Outcome
	Began time.Time
	// Cost is what is charged: until the call has ended, what was reserved.
	Cost           Money
	Priced         bool // there was a price; else Cost is 0
	Reserved       Money
	ReservedTokens int64
	Ended          bool // false in the store of a call that runs, or whose process died under it
}

// Charged is how many tokens the call counts for.
func (r Record) Charged() int64 {
	if r.Ended {
		return r.Usage.Tokens()
	}
	return r.ReservedTokens
}

// Spent is a sum of kept calls: of a job since it began, or of a tenant's agent on a
// day; then Job is "".
type Spent struct {
	Tenant, Agent, Job string
	Day                time.Time // its beginning in UTC; zero for a job
	Cost               Money
	Tokens             int64
}

// Store keeps calls.
type Store interface {
	// KeepModelCalls writes calls that have begun and that have ended in one
	// transaction. A call may be given again, and its end without its beginning. They
	// outlive the process when it returns, and the machine together with the next
	// write that waits for the disk; with no call at all it is such a write.
	KeepModelCalls(ctx context.Context, begun, ended []Record) error
	// ModelSpending gives sums: of each open job, and of each agent by day for the
	// days since then.
	ModelSpending(ctx context.Context, since time.Time) ([]Spent, error)
}
