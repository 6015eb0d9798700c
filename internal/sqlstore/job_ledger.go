package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/belay-run/belay/internal/job"
	"github.com/belay-run/belay/internal/sqlstore/rows"
)

// An epoch as leases have it is the row of the job and how often it was claimed:
// rows are never used again, so no lease of a deleted job fits one made anew.
const epochBits = 24

func epochOf(row, claims int64) int64 { return row<<epochBits | claims }

// claimsOf gives a lease's count of claims if it is of this row, -1 if not.
func claimsOf(l job.Lease, row int64) int64 {
	if l.Epoch>>epochBits != row {
		return -1
	}
	return l.Epoch & (1<<epochBits - 1)
}

// Claim implements [job.Ledger]. It outlives this process without waiting for
// the disk, and so do Renew and what Begin may begin again.
func (j *Jobs) Claim(ctx context.Context, c job.Claim) ([]job.Lease, error) {
	ready, err := j.s.reader.HasReadyJobs(ctx, nanos(c.Now))
	if err != nil {
		return nil, fmt.Errorf("claim jobs: %w", explain(j.s.path, err))
	}
	if ready == 0 {
		return nil, nil
	}
	var claimed []rows.ClaimJobsRow
	err = j.write("claim jobs", &write{lazy: true, apply: func(ctx context.Context, b *batch) (err error) {
		if err := b.q.WakeDueJobs(ctx, nanos(c.Now)); err != nil {
			return err
		}
		claimed, err = b.q.ClaimJobs(ctx, rows.ClaimJobsParams{Owner: c.Owner, Until: nanos(c.Until), Now: nanos(c.Now), Most: int64(c.Limit)})
		return err
	}})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(claimed, func(a, b rows.ClaimJobsRow) int {
		return cmp.Or(cmp.Compare(a.Ready, b.Ready), cmp.Compare(a.ID, b.ID))
	})
	leases := make([]job.Lease, len(claimed))
	for i, r := range claimed {
		leases[i] = job.Lease{ID: job.ID{Tenant: r.Tenant, Job: r.Name}, Owner: c.Owner, Epoch: epochOf(r.ID, r.Epoch), Until: c.Until}
	}
	return leases, nil
}

// Renew implements [job.Ledger].
func (j *Jobs) Renew(_ context.Context, until time.Time, leases []job.Lease) (lost []job.Lease, err error) {
	if len(leases) == 0 {
		return nil, nil
	}
	err = j.write("renew leases", &write{lazy: true, apply: func(ctx context.Context, b *batch) error {
		lost = nil // of a try before
		for _, l := range leases {
			row := l.Epoch >> epochBits
			n, err := b.q.RenewLease(ctx, rows.RenewLeaseParams{Until: nanos(until), ID: row, Epoch: claimsOf(l, row)})
			if err != nil {
				return err
			}
			if n == 0 {
				lost = append(lost, l)
			}
		}
		return nil
	}})
	return lost, err
}

// Load implements [job.Ledger].
func (j *Jobs) Load(ctx context.Context, l job.Lease) (got job.History, err error) {
	err = j.read(ctx, "load a job", func(q *rows.Queries) error {
		h, err := j.open(ctx, q, l.ID)
		if errors.Is(err, job.ErrNoJob) {
			return job.ErrLost
		}
		if err != nil {
			return err
		}
		var row rows.Job
		if got.Job, row, err = h.load(ctx, q); err != nil {
			return err
		}
		if row.Epoch != claimsOf(l, h.row) || row.State != string(job.Running) || row.Lease == 0 {
			return job.ErrLost
		}
		got.Records, err = h.records(ctx, q, false)
		return err
	})
	return got, err
}

// Begin implements [job.Ledger].
func (j *Jobs) Begin(ctx context.Context, l job.Lease, records []job.Record) error {
	return j.add(ctx, "begin a step", l, records, !slices.ContainsFunc(records, job.Record.Sync))
}

// Keep implements [job.Ledger].
func (j *Jobs) Keep(ctx context.Context, l job.Lease, records []job.Record) error {
	return j.add(ctx, "keep an answer", l, records, false)
}

func (j *Jobs) add(ctx context.Context, doing string, l job.Lease, records []job.Record, lazy bool) error {
	if len(records) == 0 {
		return nil
	}
	h, err := j.leased(ctx, doing, l)
	if err != nil {
		return err
	}
	all := make([]sealed, len(records))
	for i, r := range records {
		if all[i], err = h.sealRecord(r); err != nil {
			return fmt.Errorf("%s: %w", doing, err)
		}
	}
	at := nanos(records[len(records)-1].At)
	return j.write(doing, &write{lazy: lazy, apply: func(ctx context.Context, b *batch) error {
		if err := h.touch(ctx, b, l, at); err != nil {
			return err
		}
		for _, r := range all {
			if err := h.put(ctx, b, r); err != nil {
				return err
			}
		}
		return nil
	}})
}

// leased gives the handle of a lease's job. A job that is not there is lost.
func (j *Jobs) leased(ctx context.Context, doing string, l job.Lease) (*jobHandle, error) {
	h, err := j.open(ctx, j.s.reader, l.ID)
	switch {
	case errors.Is(err, job.ErrNoJob), err == nil && claimsOf(l, h.row) < 0:
		return nil, fmt.Errorf("%s: %w", doing, job.ErrLost)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", doing, explain(j.s.path, err))
	}
	return h, nil
}

// touch makes sure that the lease is the job's newest.
func (h *jobHandle) touch(ctx context.Context, b *batch, l job.Lease, at int64) error {
	n, err := b.q.TouchJob(ctx, rows.TouchJobParams{At: at, ID: h.row, Epoch: claimsOf(l, h.row)})
	if err != nil {
		return fmt.Errorf("look at the lease: %w", err)
	}
	if n == 0 {
		return refusal{job.ErrLost}
	}
	return nil
}

// put writes a record. One that is there already changes nothing, another in its
// place is refused.
func (h *jobHandle) put(ctx context.Context, b *batch, r sealed) error {
	if err := h.putBlob(ctx, b, r.blob); err != nil {
		return err
	}
	n, err := b.q.InsertJobRecord(ctx, r.insert)
	if err != nil {
		return fmt.Errorf("write a record: %w", err)
	}
	if n > 0 {
		return nil
	}
	there, err := h.find(ctx, b.q, r.insert.KeyDigest, r.What, r.Try)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return refusal{job.ErrConflict} // begun after its answer
	case err != nil:
		return err
	case !sameRecord(there, r.Record):
		return refusal{job.ErrConflict}
	}
	return nil
}

// find reads one record; [sql.ErrNoRows] when it is not there.
func (h *jobHandle) find(ctx context.Context, q *rows.Queries, keyDigest []byte, what job.What, try int) (job.Record, error) {
	row, err := q.GetJobRecord(ctx, rows.GetJobRecordParams{Job: h.row, KeyDigest: keyDigest, What: string(what), Try: int64(try)})
	if err != nil {
		return job.Record{}, err
	}
	return h.openRecord(ctx, q, true, row)
}

// Park implements [job.Ledger].
func (j *Jobs) Park(ctx context.Context, l job.Lease, p job.Parking) error {
	h, err := j.leased(ctx, "park a job", l)
	if err != nil {
		return err
	}
	return j.write("park a job", &write{apply: func(ctx context.Context, b *batch) error {
		if err := h.touch(ctx, b, l, nanos(p.At)); err != nil {
			return err
		}
		row, err := b.q.GetJob(ctx, h.row)
		if err != nil {
			return fmt.Errorf("read the job: %w", err)
		}
		if row.Cancelled != 0 || row.Decisions != int64(p.Decisions) {
			return refusal{job.ErrMoved}
		}
		return b.q.ParkJob(ctx, rows.ParkJobParams{Wake: nanos(p.Wake), At: nanos(p.At), ID: h.row})
	}})
}

// End implements [job.Ledger].
func (j *Jobs) End(ctx context.Context, l job.Lease, e job.End, at time.Time) error {
	h, err := j.leased(ctx, "end a job", l)
	if err != nil {
		return err
	}
	reason, _ := h.seal([]byte(e.Reason), endRow(textReason, l.ID, e))
	output, blob := h.seal(e.Output, endRow(textOutput, l.ID, e))
	return j.write("end a job", &write{apply: func(ctx context.Context, b *batch) error {
		if err := h.touch(ctx, b, l, nanos(at)); err != nil {
			return err
		}
		row, err := b.q.GetJob(ctx, h.row)
		if err != nil {
			return fmt.Errorf("read the job: %w", err)
		}
		if row.Cancelled != 0 && e.State != job.Cancelled {
			return refusal{job.ErrCancelled}
		}
		if err := h.putText(ctx, b, textReason, reason, nil); err != nil {
			return err
		}
		if err := h.putText(ctx, b, textOutput, output, blob); err != nil {
			return err
		}
		return b.q.EndJob(ctx, rows.EndJobParams{State: string(e.State), Code: e.Code, At: nanos(at), ID: h.row})
	}})
}

// Release implements [job.Ledger].
func (j *Jobs) Release(ctx context.Context, l job.Lease) error {
	h, err := j.leased(ctx, "give a job back", l)
	if err != nil {
		return err
	}
	return j.write("give a job back", &write{apply: func(ctx context.Context, b *batch) error {
		n, err := b.q.ReleaseJob(ctx, rows.ReleaseJobParams{ID: h.row, Epoch: claimsOf(l, h.row)})
		if err == nil && n == 0 {
			return refusal{job.ErrLost}
		}
		return err
	}})
}
