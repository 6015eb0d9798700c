package sqlstore

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/belay-run/belay/internal/job"
	"github.com/belay-run/belay/internal/job/jobtest"
)

// TestJobsDoAsTheJournalInMemoryDoes makes the same random calls of both and
// compares what they say and what they hold. The simulation of engines runs on
// the journal in memory: what it shows holds for this one too.
func TestJobsDoAsTheJournalInMemoryDoes(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	for range 3 {
		m := &model{T: t, random: random, now: at, both: [2]job.Journal{open(t, t.TempDir(), Options{}).Jobs(), jobtest.NewMemory()}}
		for range 200 {
			m.now = m.now.Add(1 + time.Duration(random.IntN(3))*10*time.Second) // no two calls at the same time
			m.act()
			if t.Failed() {
				t.Fatalf("seed %d, after:\n%v", seed, m.done[max(0, len(m.done)-15):])
			}
		}
		m.compare()
	}
}

type model struct {
	*testing.T
	random *rand.Rand
	now    time.Time
	both   [2]job.Journal
	// leases are those that were given, old ones too: of the store and of memory.
	leases [][2]job.Lease
	done   []string
}

func (m *model) pick(n int) int { return m.random.IntN(n) }

func (m *model) id() job.ID { return job.ID{Tenant: "main", Job: fmt.Sprint("job ", m.pick(4))} }

func (m *model) key() string { return fmt.Sprint("key ", m.pick(5)) }

// said are the errors that callers tell apart.
var said = []error{
	job.ErrNoJob, job.ErrExists, job.ErrEnded, job.ErrNotEnded, job.ErrLost, job.ErrConflict, job.ErrMoved, job.ErrCancelled,
	job.ErrNotAsked, job.ErrDecided, job.ErrOtherQuestion, job.ErrExpired,
}

func kind(err error) error {
	for _, s := range said {
		if errors.Is(err, s) {
			return s
		}
	}
	return err
}

// try makes a call of both.
func (m *model) try(what string, call func(i int, j job.Journal) error) {
	m.Helper()
	a, b := kind(call(0, m.both[0])), kind(call(1, m.both[1]))
	m.done = append(m.done, fmt.Sprintf("%s: %v\n", what, b))
	if !errors.Is(a, b) {
		m.Errorf("%s: the store says %v, memory says %v", what, a, b)
	}
}

func (m *model) act() {
	switch m.pick(13) {
	case 0:
		o := anOrder(m.id().Job)
		o.Created = m.now
		m.try("create "+o.Job, func(_ int, j job.Journal) error { return j.Create(m.Context(), o) })
	case 1, 2:
		m.claim()
	case 3:
		d := job.Decision{ID: m.id(), Key: fmt.Sprint("question ", m.pick(3)), Answer: job.Answer{Value: json.RawMessage(`1`)}, By: "ann", At: m.now, Expiry: m.pick(3) == 0}
		d.Digest = m.question(d.Key).Digest()
		if m.pick(6) == 0 {
			d.Digest = job.Digest{}
		}
		m.try(fmt.Sprintf("decide %s of %s", d.Key, d.ID), func(_ int, j job.Journal) error { return j.Decide(m.Context(), d) })
	case 4:
		if id := m.id(); m.pick(4) == 0 {
			m.try("cancel "+id.Job, func(_ int, j job.Journal) error {
				return j.Cancel(m.Context(), id, job.Cancellation{At: m.now, By: "bob"})
			})
		}
	case 5:
		if id := m.id(); m.pick(3) == 0 {
			m.try("delete "+id.Job, func(_ int, j job.Journal) error { return j.Delete(m.Context(), id) })
		}
	case 6:
		m.compare()
	default:
		if len(m.leases) > 0 {
			m.asOwner(m.leases[max(0, len(m.leases)-1-m.pick(4))])
		}
	}
}

func (m *model) claim() {
	var got [2][]job.Lease
	c := job.Claim{Owner: "me", Now: m.now, Until: m.now.Add(time.Duration(m.pick(5)) * 20 * time.Second), Limit: 1 + m.pick(3)}
	m.try("claim", func(i int, j job.Journal) (err error) {
		got[i], err = j.Claim(m.Context(), c)
		return err
	})
	for i := range max(len(got[0]), len(got[1])) {
		if len(got[0]) != len(got[1]) || got[0][i].ID != got[1][i].ID {
			m.Errorf("the store claims %v, memory %v", got[0], got[1])
			return
		}
		m.leases = append(m.leases, [2]job.Lease{got[0][i], got[1][i]})
	}
}

func (m *model) question(key string) job.Question {
	return job.Question{Key: key, Kind: "approval", Input: json.RawMessage(fmt.Sprintf("%q", key))}
}

func (m *model) asOwner(l [2]job.Lease) {
	key, name := m.key(), l[0].Job
	switch m.pick(8) {
	case 0, 1:
		r := begunRecord(key, fmt.Sprint(m.pick(2)))
		r.At, r.Try, r.Once = m.now, 1+m.pick(2), m.pick(2) == 0
		m.try("begin "+key+" of "+name, func(i int, j job.Journal) error { return j.Begin(m.Context(), l[i], []job.Record{r}) })
	case 2, 3:
		q, p := m.question("question 0"), m.question("question 1")
		all := []job.Record{
			answer(key, fmt.Sprint(m.pick(2))),
			{What: job.Asked, Key: q.Key, Kind: q.Kind, Digest: q.Digest(), Input: q.Input, Until: m.now.Add(time.Minute)},
			{What: job.Asked, Key: p.Key, Kind: p.Kind, Digest: p.Digest(), Input: p.Input},
			{What: job.Timed, Key: "clock"},
		}
		for i := range all {
			all[i].At = m.now
		}
		m.random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		all = all[:1+m.pick(2)]
		m.try("keep "+key+" of "+name, func(i int, j job.Journal) error { return j.Keep(m.Context(), l[i], all) })
	case 4:
		p := job.Parking{Decisions: m.pick(3), At: m.now}
		if m.pick(2) == 0 {
			p.Wake = m.now.Add(time.Minute)
		}
		m.try("park "+name, func(i int, j job.Journal) error { return j.Park(m.Context(), l[i], p) })
	case 5:
		e := job.End{State: []job.State{job.Completed, job.Failed, job.Cancelled}[m.pick(3)], Code: "Code", Reason: "why", Output: json.RawMessage(`1`)}
		if m.pick(3) == 0 {
			m.try("end "+name, func(i int, j job.Journal) error { return j.End(m.Context(), l[i], e, m.now) })
		}
	case 6:
		m.try("release "+name, func(i int, j job.Journal) error { return j.Release(m.Context(), l[i]) })
	case 7:
		var lost [2]int
		m.try("renew", func(i int, j job.Journal) error {
			all, err := j.Renew(m.Context(), m.now.Add(time.Minute), []job.Lease{l[i]})
			lost[i] = len(all)
			return err
		})
		if lost[0] != lost[1] {
			m.Errorf("%d leases are lost to the store, %d to memory", lost[0], lost[1])
		}
	}
}

// compare looks at all that both hold.
func (m *model) compare() {
	m.Helper()
	var seen [2]string
	for i, j := range m.both {
		list, err := j.List(m.Context(), job.Filter{Tenant: "main"})
		must(m.T, err)
		pending, err := j.Pending(m.Context(), "main")
		must(m.T, err)
		wake, err := j.NextWake(m.Context())
		must(m.T, err)
		var histories []job.History
		for _, l := range list {
			h, err := j.History(m.Context(), l.ID)
			must(m.T, err)
			h.Records = append([]job.Record{}, h.Records...)
			for n := range h.Records {
				h.Records[n].Seq = 0
			}
			histories = append(histories, h)
		}
		slices.SortFunc(histories, func(a, b job.History) int { return a.Job.Created.Compare(b.Job.Created) })
		text, err := json.MarshalIndent([]any{append([]job.Job{}, list...), append([]job.Pending{}, pending...), wake.UTC(), histories}, "", " ")
		must(m.T, err)
		seen[i] = string(text)
	}
	if !reflect.DeepEqual(seen[0], seen[1]) {
		a, b := seen[0], seen[1]
		for n := range min(len(a), len(b)) {
			if a[n] != b[n] {
				m.Errorf("the store holds …%s\nmemory holds …%s", a[max(0, n-300):min(len(a), n+100)], b[max(0, n-300):min(len(b), n+100)])
				return
			}
		}
		m.Errorf("the store and memory hold as much as the shorter of them, and more")
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
