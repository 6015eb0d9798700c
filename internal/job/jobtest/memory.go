package jobtest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/belay-run/belay/internal/job"
)

// Memory is a journal in memory. What a journal may write without waiting for
// the disk, [Memory.PowerFails] takes back.
type Memory struct {
	mu   sync.Mutex
	jobs map[job.ID]*held
	seq  int64
	last int64    // epoch; a job made anew under an old id must not take old leases
	undo []func() // of what is not on disk yet
}

var _ job.Journal = (*Memory)(nil)

// held is a job and all about it.
type held struct {
	job     job.Job
	epoch   int64
	owner   string
	until   time.Time // of the lease; zero for none
	ready   time.Time // since when it can be claimed
	records []job.Record
}

// NewMemory returns an empty journal.
func NewMemory() *Memory { return &Memory{jobs: map[job.ID]*held{}} }

// PowerFails takes back what was not on disk.
func (m *Memory) PowerFails() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range slices.Backward(m.undo) {
		f()
	}
	m.undo = nil
}

// synced says that all that was written is on disk.
func (m *Memory) synced() { m.undo = nil }

// touch remembers a job as it is, before it is changed.
func (m *Memory) touch(h *held) {
	before := *h
	m.undo = append(m.undo, func() { *h = before })
}

// Create implements [job.Journal].
func (m *Memory) Create(_ context.Context, o job.Order) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.jobs[o.ID] != nil {
		return job.ErrExists
	}
	m.jobs[o.ID] = &held{job: job.Job{Order: o, State: job.Running, Updated: o.Created}, ready: o.Created}
	m.synced()
	return nil
}

// Get implements [job.Journal].
func (m *Memory) Get(_ context.Context, id job.ID) (job.Job, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.jobs[id]
	if h == nil {
		return job.Job{}, job.ErrNoJob
	}
	return h.job, nil
}

// List implements [job.Journal].
func (m *Memory) List(_ context.Context, f job.Filter) ([]job.Job, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []job.Job
	for _, h := range m.jobs {
		j := h.job
		if j.Tenant != f.Tenant || f.Agent != "" && j.Agent != f.Agent || len(f.States) > 0 && !slices.Contains(f.States, j.State) {
			continue
		}
		j.Input = nil
		if j.End != nil {
			end := *j.End
			end.Output, end.Reason = nil, ""
			j.End = &end
		}
		if j.Cancel != nil {
			j.Cancel = &job.Cancellation{At: j.Cancel.At}
		}
		all = append(all, j)
	}
	slices.SortFunc(all, func(a, b job.Job) int {
		return cmp.Or(b.Created.Compare(a.Created), cmp.Compare(b.Job, a.Job))
	})
	if f.Limit > 0 && len(all) > f.Limit {
		all = all[:f.Limit]
	}
	return all, nil
}

// History implements [job.Journal].
func (m *Memory) History(_ context.Context, id job.ID) (job.History, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.jobs[id]
	if h == nil {
		return job.History{}, job.ErrNoJob
	}
	return job.History{Job: h.job, Records: slices.Clone(h.records)}, nil
}

// Delete implements [job.Journal].
func (m *Memory) Delete(_ context.Context, id job.ID) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.jobs[id]
	switch {
	case h == nil:
		return job.ErrNoJob
	case !h.job.State.Ended():
		return job.ErrNotEnded
	}
	delete(m.jobs, id)
	m.synced()
	return nil
}

// Claim implements [job.Journal].
func (m *Memory) Claim(_ context.Context, c job.Claim) ([]job.Lease, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var ready []*held
	for _, h := range m.jobs {
		due := h.job.State == job.Waiting && !h.job.Wake.IsZero() && !h.job.Wake.After(c.Now)
		free := h.job.State == job.Running && !h.until.After(c.Now)
		if due {
			m.touch(h)
			h.job.State, h.ready, h.job.Wake = job.Running, h.job.Wake, time.Time{}
		}
		if due || free {
			ready = append(ready, h)
		}
	}
	slices.SortFunc(ready, func(a, b *held) int {
		return cmp.Or(a.ready.Compare(b.ready), cmp.Compare(a.job.Tenant, b.job.Tenant), cmp.Compare(a.job.Job, b.job.Job))
	})
	if len(ready) > c.Limit {
		ready = ready[:c.Limit]
	}
	var leases []job.Lease
	for _, h := range ready {
		m.touch(h)
		m.last++
		h.epoch = m.last
		h.owner, h.until = c.Owner, c.Until
		leases = append(leases, job.Lease{ID: h.job.ID, Owner: c.Owner, Epoch: h.epoch, Until: c.Until})
	}
	return leases, nil
}

// NextWake implements [job.Journal].
func (m *Memory) NextWake(context.Context) (time.Time, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var next time.Time
	for _, h := range m.jobs {
		if w := h.job.Wake; h.job.State == job.Waiting && !w.IsZero() && (next.IsZero() || w.Before(next)) {
			next = w
		}
	}
	return next, nil
}

// find gives the job of a lease that still holds.
func (m *Memory) find(l job.Lease) (*held, error) {
	h := m.jobs[l.ID]
	if h == nil || h.epoch != l.Epoch || h.job.State != job.Running || h.until.IsZero() {
		return nil, job.ErrLost
	}
	return h, nil
}

// Renew implements [job.Journal].
func (m *Memory) Renew(_ context.Context, until time.Time, leases []job.Lease) (lost []job.Lease, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range leases {
		h, err := m.find(l)
		if err != nil {
			lost = append(lost, l)
			continue
		}
		m.touch(h)
		if until.After(h.until) {
			h.until = until
		}
	}
	return lost, nil
}

// Load implements [job.Journal].
func (m *Memory) Load(_ context.Context, l job.Lease) (job.History, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h, err := m.find(l)
	if err != nil {
		return job.History{}, err
	}
	out := job.History{Job: h.job, Records: slices.Clone(h.records)}
	for i := range out.Records {
		out.Records[i].Input = nil
	}
	return out, nil
}

// Begin implements [job.Journal].
func (m *Memory) Begin(_ context.Context, l job.Lease, records []job.Record) error {
	return m.add(l, records, slices.ContainsFunc(records, job.Record.Sync))
}

// Keep implements [job.Journal].
func (m *Memory) Keep(_ context.Context, l job.Lease, records []job.Record) error {
	return m.add(l, records, true)
}

func (m *Memory) add(l job.Lease, records []job.Record, sync bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	h, err := m.find(l)
	if err != nil {
		return err
	}
	var fresh []job.Record
	for _, r := range records {
		isNew, err := h.admits(r)
		if err != nil {
			return fmt.Errorf("%s %s: %w", r.What, r.Key, err)
		}
		if isNew {
			fresh = append(fresh, r)
		}
	}
	m.touch(h)
	for _, r := range fresh {
		m.put(h, r)
	}
	if len(records) > 0 {
		h.job.Updated = records[len(records)-1].At
	}
	if sync {
		m.synced()
	}
	return nil
}

func (m *Memory) put(h *held, r job.Record) {
	m.seq++
	r.Seq = m.seq
	h.records = append(slices.Clip(h.records), r)
	h.job.Updated = r.At
}

// admits says whether a record is new, or there already; another one in its
// place is an error, and so is a new one for a key that has an answer.
func (h *held) admits(r job.Record) (isNew bool, err error) {
	over := false
	for _, old := range h.records {
		if old.Key != r.Key {
			continue
		}
		over = over || old.What == job.Answered
		if old.What == r.What && old.Try == r.Try {
			if !same(old, r) {
				return false, job.ErrConflict
			}
			return false, nil
		}
	}
	if over {
		return false, job.ErrConflict
	}
	return true, nil
}

func same(a, b job.Record) bool {
	return a.Digest == b.Digest && (a.What != job.Timed || a.At.Equal(b.At)) && sameAnswer(a.Answer, b.Answer)
}

func sameAnswer(a, b *job.Answer) bool {
	if a == nil || b == nil {
		return a == b
	}
	return bytes.Equal(a.Value, b.Value) && reflect.DeepEqual(a.Failure, b.Failure)
}

// Park implements [job.Journal].
func (m *Memory) Park(_ context.Context, l job.Lease, p job.Parking) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	h, err := m.find(l)
	switch {
	case err != nil:
		return err
	case h.job.Cancel != nil || h.job.Decisions != p.Decisions:
		return job.ErrMoved
	}
	h.job.State, h.job.Wake, h.job.Updated = job.Waiting, p.Wake, p.At
	h.owner, h.until = "", time.Time{}
	m.synced()
	return nil
}

// End implements [job.Journal].
func (m *Memory) End(_ context.Context, l job.Lease, e job.End, at time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	h, err := m.find(l)
	switch {
	case err != nil:
		return err
	case h.job.Cancel != nil && e.State != job.Cancelled:
		return job.ErrCancelled
	}
	h.job.State, h.job.End, h.job.Updated = e.State, &e, at
	h.owner, h.until = "", time.Time{}
	m.synced()
	return nil
}

// Release implements [job.Journal].
func (m *Memory) Release(_ context.Context, l job.Lease) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	h, err := m.find(l)
	if err != nil {
		return err
	}
	h.owner, h.until = "", time.Time{}
	m.synced()
	return nil
}

// Pending implements [job.Journal].
func (m *Memory) Pending(_ context.Context, tenant string) ([]job.Pending, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []job.Pending
	order := map[job.ID]map[string]int64{}
	for _, h := range m.jobs {
		if tenant != "" && h.job.Tenant != tenant || h.job.State.Ended() || h.job.Cancel != nil {
			continue
		}
		order[h.job.ID] = map[string]int64{}
		for _, r := range h.records {
			if r.What == job.Asked && h.decided(r.Key) == nil {
				order[h.job.ID][r.Key] = r.Seq
				all = append(all, job.Pending{
					ID: h.job.ID, Agent: h.job.Agent, Asked: r.At, Digest: r.Digest,
					Question: job.Question{Key: r.Key, Kind: r.Kind, Input: r.Input, Until: r.Until},
				})
			}
		}
	}
	slices.SortFunc(all, func(a, b job.Pending) int { return cmp.Compare(order[a.ID][a.Key], order[b.ID][b.Key]) })
	return all, nil
}

func (h *held) decided(key string) *job.Record {
	for i, r := range h.records {
		if r.What == job.Decided && r.Key == key {
			return &h.records[i]
		}
	}
	return nil
}

func (h *held) asked(key string) *job.Record {
	for i, r := range h.records {
		if r.What == job.Asked && r.Key == key {
			return &h.records[i]
		}
	}
	return nil
}

// Decide implements [job.Journal].
func (m *Memory) Decide(_ context.Context, d job.Decision) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.jobs[d.ID]
	if h == nil {
		return job.ErrNoJob
	}
	asked := h.asked(d.Key)
	switch {
	case h.job.State.Ended() || h.job.Cancel != nil:
		return job.ErrEnded
	case asked == nil:
		return job.ErrNotAsked
	case h.decided(d.Key) != nil:
		return job.ErrDecided
	case asked.Digest != d.Digest:
		return job.ErrOtherQuestion
	case !asked.Until.IsZero() && !d.At.Before(asked.Until) && !d.Expiry:
		return job.ErrExpired
	case d.Expiry && (asked.Until.IsZero() || d.At.Before(asked.Until)):
		return job.ErrNotAsked
	}
	m.put(h, job.Record{At: d.At, What: job.Decided, Key: d.Key, Answer: &d.Answer, By: d.By})
	h.job.Decisions++
	h.wake(d.At)
	m.synced()
	return nil
}

// wake makes a waiting job ready.
func (h *held) wake(at time.Time) {
	if h.job.State == job.Waiting {
		h.job.State, h.job.Wake, h.ready = job.Running, time.Time{}, at
	}
}

// Cancel implements [job.Journal].
func (m *Memory) Cancel(_ context.Context, id job.ID, c job.Cancellation) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.jobs[id]
	switch {
	case h == nil:
		return job.ErrNoJob
	case h.job.State.Ended():
		return job.ErrEnded
	}
	if h.job.Cancel == nil {
		h.job.Cancel = &c
		h.job.Updated = c.At
		h.wake(c.At)
		m.synced()
	}
	return nil
}
