package spend

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// memory is a store that can fail.
type memory struct {
	mu     sync.Mutex
	rows   map[string]Record
	fails  error
	writes int
	syncs  int
}

func (m *memory) KeepModelCalls(_ context.Context, begun, ended []Record) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fails != nil {
		return m.fails
	}
	if len(begun)+len(ended) == 0 {
		m.syncs++
		return nil
	}
	m.writes++
	for _, r := range append(slices.Clone(begun), ended...) {
		if old, there := m.rows[r.ID]; !there || !old.Ended {
			m.rows[r.ID] = r
		}
	}
	return nil
}

func (m *memory) ModelSpending(_ context.Context, since time.Time) ([]Spent, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Spent
	for _, r := range m.rows {
		out = append(out, Spent{Tenant: r.Tenant, Job: r.Job, Cost: r.Cost, Tokens: r.Charged()})
		if !r.Began.Before(since) {
			out = append(out, Spent{Tenant: r.Tenant, Agent: r.Agent, Day: start(Day, r.Began), Cost: r.Cost, Tokens: r.Charged()})
		}
	}
	return out, nil
}

func (m *memory) fail(err error) {
	m.mu.Lock()
	m.fails = err
	m.mu.Unlock()
}

func (m *memory) kept() map[string]Record {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.rows)
}

// clock is a time that a test sets.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) set(s string) {
	at, err := time.Parse(time.DateTime, s)
	if err != nil {
		panic(err)
	}
	c.mu.Lock()
	c.at = at
	c.mu.Unlock()
}

// dear costs a unit for each token of output, and half of one for input.
var dear = Price{Input: 500_000 * unit, Output: unit * unit, Cached: 100_000 * unit, CacheWritten: 600_000 * unit}

func open(t interface {
	Helper()
	Fatal(...any)
	Cleanup(func())
}, m *memory, b Budgets, change func(*Options)) *Ledger {
	t.Helper()
	if m.rows == nil {
		m.rows = map[string]Record{}
	}
	var mu sync.Mutex
	n := len(m.rows)
	o := Options{Store: m, Currency: "USD", Prices: func(_, model, _ string) (Price, bool) { return dear, model != "unpriced" },
		Budgets: func(string, string) Budgets { return b }, NewID: func() string {
			mu.Lock()
			defer mu.Unlock()
			n++
			return "c" + strconv.Itoa(n)
		}}
	if change != nil {
		change(&o)
	}
	l, err := New(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close(context.Background()) })
	return l
}

var call = Call{Tenant: "acme", Job: "j1", Agent: "merger", Provider: "p", Model: "m"}

func TestMoney(t *testing.T) {
	for text, want := range map[string]Money{"0": 0, "12": 12 * unit, "0.05": 50_000, "1.000001": 1_000_001, "007.5": 7_500_000} {
		if got, err := ParseMoney(text); err != nil || got != want {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", ".5", "1.", "-1", "+1", "1e3", "0.0000001", "1,5", "1.2.3", "٣", "1234567890123", "0x1"} {
		if got, err := ParseMoney(text); err == nil {
			t.Errorf("%q is taken for %d", text, got)
		}
	}
	for m, want := range map[Money]string{0: "0.00", 50_000: "0.05", unit: "1.00", 1_200_001: "1.200001", -1_500_000: "-1.50", 100: "0.0001", math.MinInt64: "-9223372036854.775808"} {
		if m.String() != want {
			t.Errorf("%d: %s, want %s", m, m, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		m := Money(rapid.Int64Range(0, 999_999_999_999*unit).Draw(t, "money"))
		if back, err := ParseMoney(m.String()); err != nil || back != m {
			t.Fatalf("%d is written %s and read as %d, %v", m, m, back, err)
		}
	})
}

func TestPrice(t *testing.T) {
	haiku := Price{Input: 800_000, Output: 4_000_000, Cached: 80_000, CacheWritten: 1_000_000}
	for _, c := range []struct {
		price Price
		usage Usage
		want  Money
	}{
		{haiku, Usage{}, 0},
		{haiku, Usage{Input: 1}, 1}, // rounded up
		{haiku, Usage{Input: 1_000_000, Output: 1_000_000}, 4_800_000},
		{haiku, Usage{Input: 1000, Output: 500, Cached: 600, CacheWritten: 100, Reasoning: 400}, 240 + 2000 + 48 + 100},
		{haiku, Usage{Input: 10, Cached: 50}, 4}, // more cached than there are: nothing is negative
		{haiku, Usage{Input: -5, Output: -5}, 0},
		{Price{Input: math.MaxInt64}, Usage{Input: math.MaxInt}, math.MaxInt64},
		{Price{Output: math.MaxInt64}, Usage{Output: unit}, math.MaxInt64},
	} {
		if got := c.price.Of(c.usage); got != c.want {
			t.Errorf("%+v at %+v: %d, want %d", c.usage, c.price, got, c.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		tokens := rapid.IntRange(0, 1<<40)
		in, cached, written := tokens.Draw(t, "in"), tokens.Draw(t, "cached"), tokens.Draw(t, "written")
		u := Usage{Input: in + cached + written, Output: tokens.Draw(t, "out"), Cached: cached, CacheWritten: written}
		if most := haiku.atMost(u.Input, u.Output); haiku.Of(u) > most {
			t.Fatalf("%+v costs %d, at most %d was said", u, haiku.Of(u), most)
		}
	})
}

func TestWhatBudgetsAllow(t *testing.T) {
	cost := func(n Money) Budget { return Budget{Cost: n * unit} }
	for name, c := range map[string]struct {
		budgets Budgets
		call    func(*Call)
		need    Need
		cap     int
		refused string
	}{
		"no budget":                  {need: Need{Input: 10}},
		"enough":                     {budgets: Budgets{Job: cost(10)}, need: Need{10, 3}},
		"the last token":             {budgets: Budgets{Job: cost(10)}, need: Need{10, 4}},
		"one more":                   {budgets: Budgets{Job: cost(10)}, need: Need{10, 5}, refused: "the budget of job j1 does not allow this call: 0.00 of 10.00 USD used, 0.00 reserved, and this call may cost up to 11.00"},
		"a cap is made":              {budgets: Budgets{Job: cost(10)}, need: Need{Input: 10}, cap: 4},
		"no more than models answer": {budgets: Budgets{Job: cost(1_000_000)}, need: Need{Input: 10}, cap: DefaultMaxOutput},
		"no room for an answer":      {budgets: Budgets{Job: cost(6)}, need: Need{Input: 10}, refused: "this call may cost up to 7.00"},
		"tokens":                     {budgets: Budgets{Agent: Budget{Tokens: 12, Per: Day}}, need: Need{10, 3}, refused: "the budget of agent merger for the day does not allow this call: 0 of 12 tokens used, 0 reserved, and this call may take up to 13"},
		"the cap by tokens":          {budgets: Budgets{Job: cost(100), Tenant: Budget{Tokens: 12}}, need: Need{Input: 10}, cap: 2},
		"tokens, not cost":           {budgets: Budgets{Tenant: Budget{Cost: 100 * unit, Tokens: 12}}, need: Need{10, 3}, refused: "tenant acme for the month does not allow this call: 0 of 12 tokens"},
		"no price":                   {budgets: Budgets{Job: cost(10)}, call: func(c *Call) { c.Model = "unpriced" }, need: Need{1, 1}, refused: "the model p/unpriced has no price: write one"},
		"no price, tokens only":      {budgets: Budgets{Job: Budget{Tokens: 2}}, call: func(c *Call) { c.Model = "unpriced" }, need: Need{1, 1}},
		"nothing needed":             {budgets: Budgets{Job: Budget{Cost: 1, Tokens: 1}}, need: Need{}},
	} {
		t.Run(name, func(t *testing.T) {
			l := open(t, &memory{}, c.budgets, nil)
			asked := call
			if c.call != nil {
				c.call(&asked)
			}
			e, err := l.Begin(asked, c.need)
			var over *OverBudget
			switch {
			case c.refused == "" && err != nil:
				t.Error(err)
			case c.refused == "" && e.Cap() != c.cap:
				t.Errorf("cap %d, want %d", e.Cap(), c.cap)
			case c.refused != "" && (!errors.As(err, &over) || !strings.Contains(err.Error(), c.refused)):
				t.Errorf("%v, want %q", err, c.refused)
			}
		})
	}
}

func TestNoUsageGivesAnythingBack(t *testing.T) {
	l := open(t, &memory{}, Budgets{Job: Budget{Tokens: 10}}, nil)
	for i, u := range []Usage{{Output: 10}, {Input: -100, Output: 1}} {
		e, err := l.Begin(call, Need{})
		if err != nil {
			t.Fatal(err)
		}
		e.End(Outcome{Usage: u})
		if _, err := l.Begin(call, Need{Output: 1}); err == nil {
			t.Errorf("after %d: a budget that is spent is there again", i)
		}
	}
}

func TestReservationsAndCharges(t *testing.T) {
	l := open(t, &memory{}, Budgets{Job: Budget{Cost: 10 * unit}}, nil)
	first, err := l.Begin(call, Need{Output: 6})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Begin(call, Need{Output: 5}); err == nil || !strings.Contains(err.Error(), "0.00 of 10.00 USD used, 6.00 reserved, and this call may cost up to 5.00") {
		t.Errorf("beside the first: %v", err)
	}
	first.End(Outcome{Usage: Usage{Output: 2}})
	first.End(Outcome{Usage: Usage{Output: 9}}) // only the first end counts
	second, err := l.Begin(call, Need{Output: 8})
	if err != nil {
		t.Fatal(err)
	}
	second.End(Outcome{Usage: Usage{Output: 8}})
	if _, err := l.Begin(call, Need{Output: 1}); err == nil || !strings.Contains(err.Error(), "the budget of job j1 is spent: 10.00 of 10.00 USD used") {
		t.Errorf("spent: %v", err)
	}
	other := call
	other.Job = "j2"
	if _, err := l.Begin(other, Need{Output: 10}); err != nil {
		t.Errorf("another job: %v", err)
	}
	l.Forget(call.Tenant, call.Job)
	if _, err := l.Begin(call, Need{Output: 10}); err != nil {
		t.Errorf("a job that was forgotten: %v", err)
	}
}

func TestPeriods(t *testing.T) {
	at := &clock{}
	at.set("2026-03-31 23:59:59")
	spends := func(l *Ledger, n int) error {
		e, err := l.Begin(call, Need{Output: n})
		if err == nil {
			e.End(Outcome{Usage: Usage{Output: n}})
		}
		return err
	}
	for per, days := range map[Period][]string{Day: {"2026-04-01 00:00:00"}, Month: {"2026-04-01 00:00:00"}} {
		at.set("2026-03-31 23:59:59")
		m := &memory{}
		l := open(t, m, Budgets{Agent: Budget{Cost: 5 * unit, Per: per}}, func(o *Options) { o.Clock = at.now })
		late, err := l.Begin(call, Need{Output: 5})
		if err != nil || spends(l, 1) == nil {
			t.Fatalf("%s: %v", per, err)
		}
		for _, day := range days {
			at.set(day)
			if err := spends(l, 5); err != nil {
				t.Errorf("%s: at the beginning of the next: %v", per, err)
			}
			late.End(Outcome{Usage: Usage{Output: 5}}) // belongs to the period in which it began
			if got := l.Standings("acme"); got[0].Cost != 5*unit || got[1].Cost != 5*unit || got[0].Reserved != 0 {
				t.Errorf("%s: %+v", per, got)
			}
			if spends(l, 1) == nil {
				t.Errorf("%s: a budget was spent twice", per)
			}
		}
	}
	// Within a month days begin anew.
	at.set("2026-04-02 12:00:00")
	l := open(t, &memory{}, Budgets{Tenant: Budget{Tokens: 5, Per: Day}, Agent: Budget{Tokens: 8, Per: Month}}, func(o *Options) { o.Clock = at.now })
	first := spends(l, 5)
	at.set("2026-04-03 00:00:00")
	if err := errors.Join(first, spends(l, 3)); err != nil || spends(l, 1) == nil {
		t.Errorf("%v: %+v", err, l.Standings("acme"))
	}
}

// A clock that is set back over midnight, and comes there again, makes no budget anew.
func TestAClockThatIsSetBack(t *testing.T) {
	for _, per := range []Period{Day, Month} {
		at := &clock{}
		l := open(t, &memory{}, Budgets{Agent: Budget{Cost: 5 * unit, Per: per}}, func(o *Options) { o.Clock = at.now })
		for i, now := range []string{"2026-03-31 23:59:59", "2026-04-01 00:00:01", "2026-03-31 23:59:58", "2026-04-01 00:00:02"} {
			at.set(now)
			e, err := l.Begin(call, Need{Output: 5})
			if (err == nil) != (i < 2) {
				t.Errorf("%s, %s: %v", per, now, err)
			}
			if err == nil {
				e.End(Outcome{Usage: Usage{Output: 5}})
			}
			want := start(per, at.now())
			n := 0
			for _, s := range l.Standings("acme") {
				if s.Agent == call.Agent && s.Per == per {
					if n++; !s.Since.Equal(want) || s.Cost != 5*unit {
						t.Errorf("%s, %s: %+v", per, now, s)
					}
				}
			}
			if n != 1 {
				t.Errorf("%s, %s: %d standings", per, now, n)
			}
		}
		for _, now := range []string{"2026-04-02 12:00:00", "2026-05-20 12:00:00", "2027-01-01 12:00:00"} {
			at.set(now)
			l.Standings("acme")
		}
		if len(l.accounts) != 1 { // the job's
			t.Errorf("accounts of long ago are kept: %v", l.accounts)
		}
	}
}

func TestAfterARestart(t *testing.T) {
	at := &clock{}
	at.set("2026-04-02 12:00:00")
	m := &memory{}
	budgets := Budgets{Job: Budget{Cost: 20 * unit}, Tenant: Budget{Tokens: 100, Per: Month}}
	with := func(o *Options) { o.Clock = at.now }
	l := open(t, m, budgets, with)
	ended, err := l.Begin(call, Need{Output: 10})
	if err != nil {
		t.Fatal(err)
	}
	ended.End(Outcome{Usage: Usage{Output: 3}})
	if _, err := l.Begin(call, Need{Output: 10}); err != nil { // its process dies
		t.Fatal(err)
	}
	if err := l.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Begin(call, Need{Output: 1}); !errors.Is(err, ErrClosed) {
		t.Errorf("a closed ledger: %v", err)
	}
	at.set("2026-04-03 12:00:00")
	l = open(t, m, budgets, with)
	_, err = l.Begin(call, Need{Output: 8})
	if err == nil || !strings.Contains(err.Error(), "13.00 of 20.00 USD used, 0.00 reserved") {
		t.Errorf("over what is left: %v", err)
	}
	if _, err := l.Begin(call, Need{Output: 7}); err != nil {
		t.Errorf("what is left: %v", err)
	}
	got := l.Standings("acme")
	if got[0].Cost != 0 || got[1].Cost != 13*unit || got[1].Tokens != 13 || got[1].ReservedTokens != 7 {
		t.Errorf("%+v", got)
	}
	unknown := 0
	for _, r := range m.kept() {
		if !r.Ended {
			unknown++
		}
	}
	if unknown != 1 {
		t.Errorf("%d calls without an end, want that of the process that died", unknown)
	}
}

func TestRecords(t *testing.T) {
	m := &memory{}
	l := open(t, m, Budgets{}, nil)
	c := call
	c.Plugin, c.Purpose = "acme-judge", "judging"
	e, err := l.Begin(c, Need{10, 5})
	if err != nil {
		t.Fatal(err)
	}
	e.End(Outcome{Status: 200, Usage: Usage{Input: 8, Output: 4}, Verdicts: []string{"secrets masked: CRM_TOKEN"}, Request: []byte("q"), Answer: []byte("a")})
	l.Refused(c, Outcome{Status: 402, Why: "spent"})
	if err := l.Flush(context.Background(), c.Tenant, c.Job); err != nil {
		t.Fatal(err)
	}
	if err := l.Flush(context.Background(), c.Tenant, "other"); err != nil { // all is on disk: it costs nothing
		t.Fatal(err)
	}
	got := m.kept()
	if len(got) != 2 || m.syncs != 1 {
		t.Fatalf("%+v, %d syncs", got, m.syncs)
	}
	first, second := got["c1"], got["c2"]
	if !first.Ended || first.Cost != 8*unit || first.Reserved != 11*unit || first.Plugin != "acme-judge" || first.Usage.Output != 4 || string(first.Request)+string(first.Answer) != "qa" || !first.Priced {
		t.Errorf("%+v", first)
	}
	if !second.Ended || second.Cost != 0 || second.Why != "spent" || second.Status != 402 {
		t.Errorf("%+v", second)
	}
}

func TestAStoreThatFails(t *testing.T) {
	m := &memory{fails: errors.New("the disk is full")}
	l := open(t, m, Budgets{}, nil)
	var entries []*Entry
	for range mostRows {
		e, err := l.Begin(call, Need{1, 1})
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, e)
	}
	if _, err := l.Begin(call, Need{1, 1}); !errors.Is(err, ErrBehind) {
		t.Errorf("one too many: %v", err)
	}
	l.Refused(call, Outcome{Why: "spent"}) // not kept, which is logged when the store is back
	text := make([]byte, mostText/100)
	for _, e := range entries {
		e.End(Outcome{Usage: Usage{Input: 1}, Answer: text})
	}
	l.mu.Lock()
	bytes := l.writer.bytes
	l.mu.Unlock()
	if bytes > mostText {
		t.Errorf("%d bytes of texts wait", bytes)
	}
	if err := l.Flush(context.Background(), call.Tenant, call.Job); err == nil || !strings.Contains(err.Error(), "the disk is full") {
		t.Errorf("flush: %v", err)
	}
	if err := l.Flush(context.Background(), call.Tenant, "other"); err != nil {
		t.Errorf("flush of a job without calls: %v", err)
	}
	m.fail(nil)
	if err := l.Flush(context.Background(), call.Tenant, call.Job); err != nil {
		t.Errorf("flush after the disk came back: %v", err)
	}
	kept, texts := m.kept(), 0
	for _, r := range kept {
		if !r.Ended {
			t.Fatalf("not ended: %+v", r)
		}
		if len(r.Answer) > 0 {
			texts++
		} else if len(r.Verdicts) == 0 {
			t.Fatal("a text was dropped and nothing says so")
		}
	}
	if len(kept) != mostRows || texts < 90 {
		t.Errorf("%d calls and %d texts were kept", len(kept), texts)
	}
	l.mu.Lock()
	left := l.writer.bytes
	l.mu.Unlock()
	if left != 0 {
		t.Errorf("%d bytes are still counted", left)
	}
	m.fail(errors.New("the disk is full"))
	if _, err := l.Begin(call, Need{1, 1}); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(context.Background()); err == nil || !strings.Contains(err.Error(), "1 model calls are not recorded") {
		t.Errorf("close: %v", err)
	}
}

// Nobody ever spends more than a budget, however many call at once; and what the
// ledger says was spent is what the store has.
func TestParallelCallsNeverOverspend(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		per := rapid.SampledFrom([]Period{Day, Month})
		money := func(name string) Money { return Money(rapid.IntRange(0, 60).Draw(t, name)) * unit }
		b := Budgets{Job: Budget{Cost: money("job"), Tokens: int64(rapid.IntRange(0, 80).Draw(t, "job tokens"))},
			Agent: Budget{Cost: money("agent"), Per: per.Draw(t, "agent per")}, Tenant: Budget{Cost: money("tenant"), Per: per.Draw(t, "tenant per")}}
		m := &memory{}
		l := open(t, m, b, nil)
		type plan struct {
			call  Call
			need  Need
			in    int // of 100 that are used
			out   int
			never bool // its process dies
		}
		plans := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) plan {
			c := call
			c.Job = fmt.Sprint("j", rapid.IntRange(1, 3).Draw(t, "job"))
			c.Agent = fmt.Sprint("a", rapid.IntRange(1, 2).Draw(t, "agent"))
			return plan{c, Need{rapid.IntRange(1, 20).Draw(t, "in"), rapid.IntRange(0, 20).Draw(t, "out")}, rapid.IntRange(0, 100).Draw(t, "used in"), rapid.IntRange(0, 100).Draw(t, "used out"), rapid.IntRange(0, 9).Draw(t, "dies") == 0}
		}), 1, 60).Draw(t, "calls")
		var all sync.WaitGroup
		for _, p := range plans {
			all.Go(func() {
				e, err := l.Begin(p.call, p.need)
				if err != nil || p.never {
					return
				}
				out := p.need.Output
				if e.Cap() > 0 {
					out = e.Cap()
				}
				e.End(Outcome{Usage: Usage{Input: p.need.Input * p.in / 100, Output: out * p.out / 100}})
			})
		}
		all.Wait()
		before := l.Standings("acme")
		if err := l.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		cost, tokens := map[string]Money{}, map[string]int64{}
		for _, r := range m.kept() {
			for _, key := range []string{r.Job, r.Agent, "tenant"} {
				cost[key] += r.Cost
				tokens[key] += r.Charged()
			}
		}
		for key, budget := range map[string]Budget{"j1": b.Job, "j2": b.Job, "j3": b.Job, "a1": b.Agent, "a2": b.Agent, "tenant": b.Tenant} {
			if budget.Cost > 0 && cost[key] > budget.Cost || budget.Tokens > 0 && tokens[key] > budget.Tokens {
				t.Fatalf("%s spent %s and %d tokens of %+v", key, cost[key], tokens[key], budget)
			}
		}
		if before[0].Cost+before[0].Reserved != cost["tenant"] || before[1].Tokens+before[1].ReservedTokens != tokens["tenant"] {
			t.Fatalf("the ledger has %+v, the store %s and %d tokens", before[0], cost["tenant"], tokens["tenant"])
		}
		after := open(t, m, b, nil).Standings("acme")
		if after[0].Cost != cost["tenant"] || after[1].Tokens != tokens["tenant"] {
			t.Fatalf("after a restart the ledger has %+v, the store %s", after[0], cost["tenant"])
		}
	})
}
