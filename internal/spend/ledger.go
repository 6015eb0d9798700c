package spend

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sort"
	"sync"
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

// Why no call can begin, beside the budgets.
var (
	ErrBehind = errors.New("calls of models cannot be recorded: the store takes none; see whether the disk is full")
	ErrClosed = errors.New("the program ends: no more calls of models are made")
)

// Ledger keeps what was spent. It may be used from many goroutines.
type Ledger struct {
	o Options

	mu       sync.Mutex
	accounts map[accountKey]*account
	day      time.Time       // the accounts' newest
	running  map[string]bool // calls by id
	writer   writer
}

// New reads what was spent and begins to write.
func New(ctx context.Context, o Options) (*Ledger, error) {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	l := &Ledger{o: o, accounts: map[accountKey]*account{}, running: map[string]bool{}}
	now := o.Clock()
	l.day = start(Day, now)
	month := start(Month, now)
	all, err := o.Store.ModelSpending(ctx, month)
	if err != nil {
		return nil, fmt.Errorf("read what model calls have cost: %w", err)
	}
	for _, s := range all {
		keys := []accountKey{jobKey(s.Tenant, s.Job)}
		if s.Job == "" {
			keys = nil
			for _, k := range periodKeys(s.Tenant, s.Agent, s.Day) {
				if k.current(now) {
					keys = append(keys, k)
				}
			}
		}
		for _, k := range keys {
			a := l.account(k)
			a.cost += s.Cost
			a.tokens += s.Tokens
		}
	}
	l.writer.start(l)
	return l, nil
}

// start is when the period began that t is in.
func start(p Period, t time.Time) time.Time {
	y, m, d := t.UTC().Date()
	if p == Month {
		d = 1
	}
	return time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
}

// What an account is of.
const (
	ofJob    = "job"
	ofAgent  = "agent"
	ofTenant = "tenant"
)

type accountKey struct {
	of, tenant, name string // name of the job or agent
	period           Period
	from             time.Time // in UTC
}

// account is what was spent and what is reserved.
type account struct {
	cost, reserved         Money
	tokens, reservedTokens int64
}

func jobKey(tenant, job string) accountKey {
	return accountKey{of: ofJob, tenant: tenant, name: job}
}

// periodKeys are the accounts that a call at a time counts in, beside its job's.
func periodKeys(tenant, agent string, at time.Time) []accountKey {
	var out []accountKey
	for _, p := range []Period{Day, Month} {
		from := start(p, at)
		out = append(out, accountKey{ofTenant, tenant, "", p, from}, accountKey{ofAgent, tenant, agent, p, from})
	}
	return out
}

// account gives an account; the caller holds mu, or is New.
func (l *Ledger) account(k accountKey) *account {
	a := l.accounts[k]
	if a == nil {
		a = &account{}
		l.accounts[k] = a
	}
	return a
}

// turn forgets the accounts of periods that are over for a day, so that a clock may be
// set back a little; the caller holds mu. Calls that still run there hold them.
func (l *Ledger) turn(now time.Time) {
	day := start(Day, now)
	if day.Equal(l.day) {
		return
	}
	l.day = day
	for k := range l.accounts {
		if k.of != ofJob && (k.from.Before(start(k.period, day.AddDate(0, 0, -1))) || k.from.After(day.AddDate(0, 0, 1))) {
			delete(l.accounts, k)
		}
	}
}

// current says whether an account is of the period that it is.
func (k accountKey) current(now time.Time) bool { return k.from.Equal(start(k.period, now)) }

// Forget drops what is known of a job that has ended.
func (l *Ledger) Forget(tenant, job string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.accounts, jobKey(tenant, job))
}

// Entry is a call that has begun.
type Entry struct {
	l        *Ledger
	row      *row
	price    Price
	cap      int
	accounts []*account
}

// Begin reserves what a call may cost at most. It fails with *OverBudget when that is
// more than is left, with ErrBehind when calls cannot be recorded, with ErrClosed.
func (l *Ledger) Begin(c Call, need Need) (*Entry, error) {
	price, priced := l.price(c)
	var budgets Budgets
	if l.o.Budgets != nil {
		budgets = l.o.Budgets(c.Tenant, c.Agent)
	}
	now := l.o.Clock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writer.takes(); err != nil {
		return nil, err
	}
	l.turn(now)
	limits := l.limits(c, budgets, now)
	e := &Entry{l: l, price: price}
	output := need.Output
	if output == 0 {
		output = l.maxOutput(c, need)
		if len(limits) > 0 && output > 0 {
			output = longest(limits, price, need.Input, output)
			e.cap = output
		}
	}
	cost, tokens := price.atMost(need.Input, output), int64(need.Input)+int64(output)
	for _, b := range limits {
		if b.Cost > 0 && !priced {
			return nil, b.unpriced(c)
		}
		if !b.allows(cost, tokens) {
			return nil, b.over(l.o.Currency, c, cost, tokens)
		}
	}
	for _, k := range append(periodKeys(c.Tenant, c.Agent, now), jobKey(c.Tenant, c.Job)) {
		a := l.account(k)
		a.reserved += cost
		a.reservedTokens += tokens
		e.accounts = append(e.accounts, a)
	}
	e.row = &row{Record: Record{Call: l.named(c), Began: now, Cost: cost, Priced: priced, Reserved: cost, ReservedTokens: tokens}}
	l.running[e.row.ID] = true
	l.writer.add(e.row)
	return e, nil
}

func (l *Ledger) price(c Call) (Price, bool) {
	if l.o.Prices == nil {
		return Price{}, false
	}
	return l.o.Prices(c.Provider, c.Model, c.Alias)
}

// maxOutput is the longest answer to expect of a request that names no cap. One that
// needs nothing at all is answered without a model.
func (l *Ledger) maxOutput(c Call, need Need) int {
	if need.Input == 0 {
		return 0
	}
	if l.o.MaxOutput != nil {
		if n := l.o.MaxOutput(c.Provider, c.Model, c.Alias); n > 0 {
			return n
		}
	}
	return DefaultMaxOutput
}

func (l *Ledger) named(c Call) Call {
	if c.ID == "" && l.o.NewID != nil {
		c.ID = l.o.NewID()
	}
	return c
}

// limit is a budget beside what is spent of it.
type limit struct {
	Budget
	which string
	at    account
}

// limits are the budgets that a call has to keep; the caller holds mu.
func (l *Ledger) limits(c Call, b Budgets, now time.Time) []limit {
	var out []limit
	add := func(which string, b Budget, name string) {
		if b.None() {
			return
		}
		k := accountKey{which, c.Tenant, name, b.Per, time.Time{}}
		if b.Per != Forever {
			k.from = start(b.Per, now)
		}
		one := limit{Budget: b, which: which}
		if a := l.accounts[k]; a != nil {
			one.at = *a
		}
		out = append(out, one)
	}
	b.Job.Per = Forever
	add(ofJob, b.Job, c.Job)
	add(ofAgent, b.Agent.dated(), c.Agent)
	add(ofTenant, b.Tenant.dated(), "")
	return out
}

// dated is a budget of days or months; one that names neither is of a month.
func (b Budget) dated() Budget {
	if b.Per != Day {
		b.Per = Month
	}
	return b
}

// allows says whether there is as much left. What costs nothing is never too much.
func (b limit) allows(cost Money, tokens int64) bool {
	return (b.Cost == 0 || cost == 0 || cost <= b.Cost-b.at.cost-b.at.reserved) &&
		(b.Tokens == 0 || tokens == 0 || tokens <= b.Tokens-b.at.tokens-b.at.reservedTokens)
}

// longest is the longest answer, of most tokens at most, that every budget allows; 1
// when none is.
func longest(limits []limit, price Price, input, most int) int {
	short := sort.Search(most, func(n int) bool { // is one more than n too much?
		for _, b := range limits {
			if !b.allows(price.atMost(input, n+1), int64(input)+int64(n)+1) {
				return true
			}
		}
		return false
	})
	return max(1, short)
}

// Cap is how many tokens of output the budgets leave the call; 0 when no budget
// applies or the request names a cap. A request that names none is to be given it.
func (e *Entry) Cap() int { return e.cap }

// ID is the call's.
func (e *Entry) ID() string { return e.row.ID }

// End lets the reservation go and charges what the call was. Only the first counts.
func (e *Entry) End(o Outcome) {
	cost := e.price.Of(o.Usage)
	l := e.l
	l.mu.Lock()
	defer l.mu.Unlock()
	r := e.row
	if r.Ended {
		return
	}
	delete(l.running, r.ID)
	for _, a := range e.accounts {
		a.reserved -= r.Reserved
		a.reservedTokens -= r.ReservedTokens
		a.cost += cost
		a.tokens += o.Usage.Tokens()
	}
	if cost > r.Reserved || o.Usage.Tokens() > r.ReservedTokens {
		l.o.Logger.Warn("a model call took more than could be told before: its budget may be overdrawn", "job", r.Job, "model", r.Model,
			"tokens", o.Usage.Tokens(), "reserved_tokens", r.ReservedTokens)
	}
	r.Outcome, r.Cost, r.Ended = o, cost, true
	l.writer.add(r)
}

// Refused keeps a call that was never made, with the reason.
func (l *Ledger) Refused(c Call, o Outcome) {
	_, priced := l.price(c)
	now := l.o.Clock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.writer.takes() != nil {
		l.writer.dropped++
		return
	}
	l.writer.add(&row{Record: Record{Call: l.named(c), Outcome: o, Began: now, Priced: priced, Ended: true}})
}

// Runs says whether a call runs here; one that does not, and has no end in the store,
// ended with its process.
func (l *Ledger) Runs(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.running[id]
}

// Standing is what was spent in a period.
type Standing struct {
	Agent    string // "" for the tenant as a whole
	Per      Period
	Since    time.Time
	Cost     Money
	Reserved Money // of calls that run
	Tokens   int64
	// ReservedTokens are of calls that run.
	ReservedTokens int64
}

// Standings gives what a tenant and its agents have spent in the day and the month
// that it is: the tenant first, then its agents by name.
func (l *Ledger) Standings(tenant string) []Standing {
	now := l.o.Clock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.turn(now)
	out := []Standing{{Per: Day, Since: start(Day, now)}, {Per: Month, Since: start(Month, now)}}
	for k, a := range l.accounts {
		if k.tenant != tenant || k.of == ofJob || !k.current(now) {
			continue
		}
		s := Standing{k.name, k.period, k.from, a.cost, a.reserved, a.tokens, a.reservedTokens}
		switch {
		case k.of == ofAgent:
			out = append(out, s)
		case k.period == Day:
			out[0] = s
		default:
			out[1] = s
		}
	}
	agents := out[2:]
	sort.Slice(agents, func(i, j int) bool {
		a, b := agents[i], agents[j]
		return a.Agent < b.Agent || a.Agent == b.Agent && a.Per < b.Per
	})
	return out
}
