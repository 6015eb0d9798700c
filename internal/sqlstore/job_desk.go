package sqlstore

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/belay-run/belay/internal/audit"
	"github.com/belay-run/belay/internal/job"
	"github.com/belay-run/belay/internal/sqlstore/rows"
)

// Pending implements [job.Desk].
func (j *Jobs) Pending(ctx context.Context, tenant string) ([]job.Pending, error) {
	var all []job.Pending
	err := j.read(ctx, "read what waits for a decision", func(q *rows.Queries) error {
		found, err := q.ListQuestions(ctx, tenant)
		if err != nil {
			return err
		}
		all = make([]job.Pending, len(found))
		for i, f := range found {
			h, err := j.unseal(job.ID{Tenant: f.Tenant, Job: f.Name}, f.ID, f.Sealed)
			if err != nil {
				return err
			}
			r, err := h.openRecord(ctx, q, true, rows.JobRecord{
				What: string(job.Asked), KeyDigest: f.KeyDigest, Try: f.Try, At: f.At, Until: f.Until, Head: f.Head, Body: f.Body,
			})
			if err != nil {
				return fmt.Errorf("job %s: %w", h.id, err)
			}
			all[i] = job.Pending{
				ID: h.id, Agent: f.Agent, Asked: r.At, Digest: r.Digest,
				Question: job.Question{Key: r.Key, Kind: r.Kind, Input: r.Input, Until: r.Until},
			}
		}
		return nil
	})
	return all, err
}

// Decide implements [job.Desk].
func (j *Jobs) Decide(caller context.Context, d job.Decision) error {
	h, err := j.open(caller, j.s.reader, d.ID)
	if err != nil {
		return fmt.Errorf("decide: %w", explain(j.s.path, err))
	}
	r, err := h.sealRecord(job.Record{At: d.At, What: job.Decided, Key: d.Key, Answer: &d.Answer, By: d.By})
	if err != nil {
		return fmt.Errorf("decide: %w", err)
	}
	return j.write("decide", &write{apply: func(ctx context.Context, b *batch) error {
		if err := h.mayDecide(ctx, b, d, r.insert.KeyDigest); err != nil {
			return err
		}
		if err := h.put(ctx, b, r); err != nil {
			return err
		}
		if err := b.q.CountDecision(ctx, rows.CountDecisionParams{At: nanos(d.At), ID: h.row}); err != nil {
			return err
		}
		if err := b.q.WakeJob(ctx, rows.WakeJobParams{At: nanos(d.At), ID: h.row}); err != nil {
			return err
		}
		return b.record(ctx, audit.AlongOf(caller)...)
	}})
}

// mayDecide says whether a decision can count.
func (h *jobHandle) mayDecide(ctx context.Context, b *batch, d job.Decision, keyDigest []byte) error {
	row, err := b.q.GetJob(ctx, h.row)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return refusal{job.ErrNoJob}
	case err != nil:
		return err
	case job.State(row.State).Ended() || row.Cancelled != 0:
		return refusal{job.ErrEnded}
	}
	asked, err := h.find(ctx, b.q, keyDigest, job.Asked, 0)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return refusal{job.ErrNotAsked}
	case err != nil:
		return err
	}
	switch _, err := h.find(ctx, b.q, keyDigest, job.Decided, 0); {
	case err == nil:
		return refusal{job.ErrDecided}
	case !errors.Is(err, sql.ErrNoRows):
		return err
	}
	over := !asked.Until.IsZero() && !d.At.Before(asked.Until)
	switch {
	case asked.Digest != d.Digest:
		return refusal{job.ErrOtherQuestion}
	case over && !d.Expiry:
		return refusal{job.ErrExpired}
	case !over && d.Expiry:
		return refusal{job.ErrNotAsked}
	}
	return nil
}

// Cancel implements [job.Desk].
func (j *Jobs) Cancel(caller context.Context, id job.ID, c job.Cancellation) error {
	h, err := j.open(caller, j.s.reader, id)
	if err != nil {
		return fmt.Errorf("cancel a job: %w", explain(j.s.path, err))
	}
	plain, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("cancel a job: %w", err)
	}
	text, blob := h.seal(plain, cancelRow(id, c.At))
	return j.write("cancel a job", &write{apply: func(ctx context.Context, b *batch) error {
		row, err := b.q.GetJob(ctx, h.row)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return refusal{job.ErrNoJob}
		case err != nil:
			return err
		case job.State(row.State).Ended():
			return refusal{job.ErrEnded}
		case row.Cancelled != 0:
			return nil // the first request counts
		}
		if err := h.putText(ctx, b, textCancel, text, blob); err != nil {
			return err
		}
		if err := b.q.CancelJob(ctx, rows.CancelJobParams{At: nanos(c.At), ID: h.row}); err != nil {
			return err
		}
		if err := b.q.WakeJob(ctx, rows.WakeJobParams{At: nanos(c.At), ID: h.row}); err != nil {
			return err
		}
		return b.record(ctx, audit.AlongOf(caller)...)
	}})
}
