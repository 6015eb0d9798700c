package spend

import (
	"context"
	"log/slog"
	"time"
)

// Options are what a ledger works with.
type Options struct {
	Store Store
	// Prices gives the price of a model; nil or false when there is none.
	Prices func(provider, model, alias string) (Price, bool)
	// MaxOutput is how many tokens a model answers with at most when a request names
	// no cap; nil or 0 for DefaultMaxOutput.
	MaxOutput func(provider, model, alias string) int
	// Budgets gives the budgets of an agent of a tenant; nil for none.
	Budgets  func(tenant, agent string) Budgets
	Currency string           // for texts, such as USD
	Clock    func() time.Time // nil for time.Now
	NewID    func() string
	Logger   *slog.Logger // nil: nothing is logged
}

// DefaultMaxOutput is taken for the longest answer of a model of which nothing else
// is known.
const DefaultMaxOutput = 4096

// Need is how many tokens a call may take at most. Output 0: the request names no cap.
type Need struct{ Input, Output int }

// Ledger keeps what was spent. It may be used from many goroutines.
type Ledger struct{ o Options }

// New reads what was spent and begins to write.
func New(ctx context.Context, o Options) (*Ledger, error) { return &Ledger{o: o}, nil }

// Entry is a call that has begun.
type Entry struct{ cap int }

// Begin reserves what a call may cost at most. It fails with *OverBudget when that is
// more than is left.
func (l *Ledger) Begin(c Call, need Need) (*Entry, error) { return &Entry{}, nil }

// Cap is how many tokens of output the budgets leave the call; 0 when no budget
// applies. A request that names no cap is to be given this one.
func (e *Entry) Cap() int { return e.cap }

// End lets the reservation go and charges what the call was. Only the first counts.
func (e *Entry) End(o Outcome) {}

// Refused keeps a call that was never made, with the reason.
func (l *Ledger) Refused(c Call, o Outcome) {}

// Flush returns when every call of the job that has ended is on disk. The error says
// that it is not.
func (l *Ledger) Flush(ctx context.Context, tenant, job string) error { return nil }

// Close writes what waits. The error says what could not be written.
func (l *Ledger) Close(ctx context.Context) error { return nil }

// OverBudget says that a call may cost more than a budget leaves.
type OverBudget struct {
	Which string // "job", "agent" or "tenant"
	text  string
}

// Error is a text for the caller of the model.
func (e *OverBudget) Error() string { return e.text }
