package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/belay-run/belay/internal/audit"
	"github.com/belay-run/belay/internal/job"
	"github.com/belay-run/belay/internal/sqlstore/rows"
	"github.com/belay-run/belay/internal/vault"
)

// Jobs is the store's journal of durable jobs. Whoever opens the store voids the
// leases of the owner before: every unfinished job can be claimed at once.
type Jobs struct {
	s *Store

	mu   sync.Mutex
	held *lru[job.ID, *jobHandle]
}

var _ job.Journal = (*Jobs)(nil)

// jobHandle is what is needed to read and write a job.
type jobHandle struct {
	id  job.ID
	row int64
	key vault.DataKey
}

// Jobs gives the journal of jobs.
func (s *Store) Jobs() *Jobs { return s.jobs }

func newJobs(s *Store, cached int) *Jobs {
	return &Jobs{s: s, held: newLRU[job.ID](cached, func(*jobHandle) bool { return false })}
}

// open gives the handle of a job that is there.
func (j *Jobs) open(ctx context.Context, q *rows.Queries, id job.ID) (*jobHandle, error) {
	if h := j.cached(id); h != nil {
		return h, nil
	}
	found, err := q.FindJobKey(ctx, rows.FindJobKeyParams{Tenant: id.Tenant, Name: id.Job})
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil, job.ErrNoJob
	case err != nil:
		return nil, fmt.Errorf("look up the job: %w", err)
	}
	return j.unseal(id, found.ID, found.Sealed)
}

func (j *Jobs) cached(id job.ID) *jobHandle {
	j.mu.Lock()
	defer j.mu.Unlock()
	h, _ := j.held.get(id)
	return h
}

// unseal opens a job's data key and keeps it.
func (j *Jobs) unseal(id job.ID, row int64, sealed []byte) (*jobHandle, error) {
	if h := j.cached(id); h != nil && h.row == row {
		return h, nil
	}
	if j.s.keys.vault == nil {
		return nil, errNoVault
	}
	key, err := j.s.keys.vault.Open(sealed)
	if err != nil {
		return nil, err
	}
	h := &jobHandle{id, row, key}
	j.keep(h)
	return h, nil
}

func (j *Jobs) keep(h *jobHandle) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.held.put(h.id, h)
}

func (j *Jobs) forget(id job.ID) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.held.drop(id)
}

// write hands a change of jobs to the writer.
func (j *Jobs) write(doing string, w *write) error {
	if j.s.writer == nil {
		return ErrReadOnly
	}
	if err := j.s.writer.do(w); err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return nil
}

// read runs f on one state of the database.
func (j *Jobs) read(ctx context.Context, doing string, f func(q *rows.Queries) error) error {
	tx, err := j.s.reads.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err == nil {
		err = f(j.s.reader.WithTx(tx))
		_ = tx.Rollback() // nothing was written
	}
	if err != nil {
		return fmt.Errorf("%s: %w", doing, explain(j.s.path, err))
	}
	return nil
}

// Create implements [job.Register].
func (j *Jobs) Create(caller context.Context, o job.Order) error {
	if j.s.writer == nil {
		return ErrReadOnly
	}
	key, sealed, err := j.s.keys.vault.NewDataKey()
	if err != nil {
		return fmt.Errorf("create a job: %w", err)
	}
	h := &jobHandle{id: o.ID, key: key}
	text, blob := h.seal(o.Input, orderRow(o))
	err = j.write("create a job", &write{apply: func(ctx context.Context, b *batch) error {
		keyID, err := b.dataKey(ctx, sealed)
		if err != nil {
			return err
		}
		h.row, err = b.q.InsertJob(ctx, rows.InsertJobParams{
			Tenant: o.Tenant, Name: o.Job, Agent: o.Agent, Flow: o.Flow, Shape: int64(o.Shape), KeyID: keyID,
			Created: nanos(o.Created), Deadline: nanos(o.Deadline),
		})
		if errors.Is(err, sql.ErrNoRows) {
			return refusal{job.ErrExists}
		}
		if err != nil {
			return fmt.Errorf("store the job: %w", err)
		}
		if err := h.putText(ctx, b, textInput, text, blob); err != nil {
			return err
		}
		return b.record(ctx, audit.AlongOf(caller)...)
	}})
	if err == nil {
		j.keep(h)
	}
	return err
}

// Get implements [job.Register].
func (j *Jobs) Get(ctx context.Context, id job.ID) (got job.Job, err error) {
	err = j.read(ctx, "read a job", func(q *rows.Queries) error {
		h, err := j.open(ctx, q, id)
		if err != nil {
			return err
		}
		got, _, err = h.load(ctx, q)
		return err
	})
	return got, err
}

// load reads a job with its texts.
func (h *jobHandle) load(ctx context.Context, q *rows.Queries) (job.Job, rows.Job, error) {
	row, err := q.GetJob(ctx, h.row)
	if errors.Is(err, sql.ErrNoRows) {
		return job.Job{}, row, job.ErrNoJob
	}
	if err != nil {
		return job.Job{}, row, fmt.Errorf("read the job: %w", err)
	}
	got := summary(row)
	texts, err := q.ListJobTexts(ctx, h.row)
	if err != nil {
		return got, row, fmt.Errorf("read the job's texts: %w", err)
	}
	for _, t := range texts {
		if err := h.readText(ctx, q, &got, t.What, t.Body); err != nil {
			return got, row, fmt.Errorf("read the job's %s: %w", t.What, err)
		}
	}
	return got, row, nil
}

// summary is a job without its texts.
func summary(r rows.Job) job.Job {
	got := job.Job{
		Order: job.Order{
			ID: job.ID{Tenant: r.Tenant, Job: r.Name}, Flow: r.Flow, Shape: int(r.Shape), Agent: r.Agent,
			Created: fromNanos(r.Created), Deadline: fromNanos(r.Deadline),
		},
		State: job.State(r.State), Updated: fromNanos(r.Updated), Wake: fromNanos(r.Wake), Decisions: int(r.Decisions),
	}
	if r.Cancelled != 0 {
		got.Cancel = &job.Cancellation{At: fromNanos(r.Cancelled)}
	}
	if got.State.Ended() {
		got.End = &job.End{State: got.State, Code: r.Code}
	}
	return got
}

// List implements [job.Register].
func (j *Jobs) List(ctx context.Context, f job.Filter) ([]job.Job, error) {
	states := make([]string, len(f.States))
	for i, s := range f.States {
		states[i] = string(s)
	}
	most := int64(-1)
	if f.Limit > 0 {
		most = int64(f.Limit)
	}
	found, err := j.s.reader.ListJobs(ctx, rows.ListJobsParams{Tenant: f.Tenant, Agent: f.Agent, States: strings.Join(states, ","), Most: most})
	if err != nil {
		return nil, fmt.Errorf("list jobs: %w", explain(j.s.path, err))
	}
	all := make([]job.Job, len(found))
	for i, r := range found {
		all[i] = summary(r)
	}
	return all, nil
}

// History implements [job.Register].
func (j *Jobs) History(ctx context.Context, id job.ID) (got job.History, err error) {
	err = j.read(ctx, "read the history of a job", func(q *rows.Queries) error {
		h, err := j.open(ctx, q, id)
		if err != nil {
			return err
		}
		if got.Job, _, err = h.load(ctx, q); err != nil {
			return err
		}
		got.Records, err = h.records(ctx, q, true)
		return err
	})
	return got, err
}

// Delete implements [job.Register]. No file of the folder has the job's data key
// any more when it returns; see [Store.Delete].
func (j *Jobs) Delete(caller context.Context, id job.ID) error {
	return j.write("delete a job", &write{
		shred: true,
		apply: func(ctx context.Context, b *batch) error {
			found, err := b.q.FindJobKey(ctx, rows.FindJobKeyParams{Tenant: id.Tenant, Name: id.Job})
			if errors.Is(err, sql.ErrNoRows) {
				return refusal{job.ErrNoJob}
			}
			if err != nil {
				return err
			}
			row, err := b.q.GetJob(ctx, found.ID)
			switch {
			case err != nil:
				return err
			case !job.State(row.State).Ended():
				return refusal{job.ErrNotEnded}
			}
			b.shred = true
			for _, del := range []func(context.Context, int64) error{
				b.wipeCalls, b.q.DeleteJobRecords, b.q.DeleteJobBlobs, b.q.DeleteJobTexts, b.q.DeleteJob,
			} {
				if err := del(ctx, found.ID); err != nil {
					return err
				}
			}
			if err := b.q.WipeDataKey(ctx, row.KeyID); err != nil {
				return err
			}
			return b.record(ctx, audit.AlongOf(caller)...)
		},
		settled: func() { j.forget(id) },
	})
}

// NextWake implements [job.Ledger].
func (j *Jobs) NextWake(ctx context.Context) (time.Time, error) {
	wake, err := j.s.reader.GetNextWake(ctx)
	if errors.Is(err, sql.ErrNoRows) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("find the next job to wake: %w", explain(j.s.path, err))
	}
	return fromNanos(wake), nil
}
