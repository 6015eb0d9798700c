package sqlstore

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/belay-run/belay/internal/job"
	"github.com/belay-run/belay/internal/spend"
	"github.com/belay-run/belay/internal/sqlstore/rows"
	"github.com/belay-run/belay/internal/vault"
)

var _ spend.Store = (*Store)(nil)

// callHead is what of a model call is sealed, but for its texts.
type callHead struct {
	Plugin    string        `json:"plugin,omitempty"`
	Tool      string        `json:"tool,omitempty"`
	Function  string        `json:"function,omitempty"`
	Step      string        `json:"step,omitempty"`
	Purpose   string        `json:"purpose,omitempty"`
	API       string        `json:"api,omitempty"`
	Route     string        `json:"route,omitempty"`
	Alias     string        `json:"alias,omitempty"`
	Provider  string        `json:"provider,omitempty"`
	Model     string        `json:"model,omitempty"`
	Stream    bool          `json:"stream,omitempty"`
	Status    int           `json:"status,omitempty"`
	Usage     spend.Usage   `json:"usage"`
	Estimated bool          `json:"estimated,omitempty"`
	Why       string        `json:"why,omitempty"`
	Verdicts  []string      `json:"verdicts,omitempty"`
	FirstByte time.Duration `json:"first_byte,omitempty"`
	Took      time.Duration `json:"took,omitempty"`
	Priced    bool          `json:"priced,omitempty"`
	Reserved  spend.Money   `json:"reserved,omitempty"`
	Tokens    int64         `json:"reserved_tokens,omitempty"`
	Body      bool          `json:"body,omitempty"` // there is one
}

// callBody are the texts of a model call.
type callBody struct {
	Request []byte `json:"request,omitempty"`
	Answer  []byte `json:"answer,omitempty"`
}

func headOf(r spend.Record) callHead {
	return callHead{
		Plugin: r.Plugin, Tool: r.Tool, Function: r.Function, Step: r.Step, Purpose: r.Purpose, API: r.API, Route: r.Route, Alias: r.Alias,
		Provider: r.Provider, Model: r.Model, Stream: r.Stream, Status: r.Status, Usage: r.Usage, Estimated: r.Estimated, Why: r.Why, Verdicts: r.Verdicts,
		FirstByte: r.FirstByte, Took: r.Took, Priced: r.Priced, Reserved: r.Reserved, Tokens: r.ReservedTokens, Body: len(r.Request)+len(r.Answer) > 0,
	}
}

func (h callHead) record() spend.Record {
	return spend.Record{
		Call: spend.Call{Plugin: h.Plugin, Tool: h.Tool, Function: h.Function, Step: h.Step, Purpose: h.Purpose, API: h.API, Route: h.Route, Alias: h.Alias,
			Provider: h.Provider, Model: h.Model, Stream: h.Stream},
		Outcome: spend.Outcome{Status: h.Status, Usage: h.Usage, Estimated: h.Estimated, Why: h.Why, Verdicts: h.Verdicts, FirstByte: h.FirstByte, Took: h.Took},
		Priced:  h.Priced, Reserved: h.Reserved, ReservedTokens: h.Tokens,
	}
}

// modelRow is what head and body of a call are bound to.
func (h *jobHandle) modelRow(part string, p *rows.PutModelCallParams) vault.Row {
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	return vault.Row{Table: "model_call", Names: []string{part, h.id.Tenant, h.id.Job, p.ID, p.Agent, number(p.Begun), number(p.Ended), number(p.Cost), number(p.Tokens)}}
}

// sealedCall is a call as it is written. handle is nil when there is no such job: only
// what the call cost is kept then.
type sealedCall struct {
	put    rows.PutModelCallParams
	handle *jobHandle
	blob   *rows.InsertJobBlobParams
}

// KeepModelCalls implements [spend.Store].
func (s *Store) KeepModelCalls(ctx context.Context, begun, ended []spend.Record) error {
	if s.writer == nil {
		return ErrReadOnly
	}
	if len(begun)+len(ended) == 0 {
		return s.change(func(ctx context.Context, b *batch) error {
			return b.q.MarkSynced(ctx, strconv.FormatInt(nanos(b.now), 10)) // a commit that writes nothing waits for nothing
		})
	}
	all := make([]sealedCall, 0, len(begun)+len(ended))
	for _, records := range [][]spend.Record{begun, ended} {
		for _, r := range records {
			one, err := s.sealCall(ctx, r)
			if err != nil {
				return fmt.Errorf("keep a model call: %w", explain(s.path, err))
			}
			all = append(all, one)
		}
	}
	err := s.writer.do(&write{lazy: true, apply: func(ctx context.Context, b *batch) error {
		for _, one := range all {
			if err := b.putCall(ctx, one); err != nil {
				return err
			}
		}
		return nil
	}})
	if err != nil {
		return fmt.Errorf("keep model calls: %w", err)
	}
	return nil
}

func (s *Store) sealCall(ctx context.Context, r spend.Record) (sealedCall, error) {
	out := sealedCall{put: rows.PutModelCallParams{ID: r.ID, Tenant: r.Tenant, Agent: r.Agent, Begun: nanos(r.Began), Cost: int64(r.Cost), Tokens: r.Charged()}}
	if r.Ended {
		out.put.Ended = max(1, nanos(r.Began.Add(r.Took)))
	}
	h, err := s.jobs.open(ctx, s.reader, job.ID{Tenant: r.Tenant, Job: r.Job})
	switch {
	case errors.Is(err, job.ErrNoJob):
		return out, nil
	case err != nil:
		return out, err
	}
	plain, err := json.Marshal(headOf(r))
	if err != nil {
		return out, err
	}
	out.handle = h
	out.put.Head = h.key.Seal(plain, h.modelRow("head", &out.put))
	if len(r.Request)+len(r.Answer) > 0 {
		if plain, err = json.Marshal(callBody{r.Request, r.Answer}); err != nil {
			return out, err
		}
		out.put.Body, out.blob = h.seal(plain, h.modelRow("body", &out.put))
	}
	return out, nil
}

func (b *batch) putCall(ctx context.Context, c sealedCall) error {
	put, there := c.put, int64(0) // of its own: a transaction may be tried twice
	if c.handle != nil {
		var err error
		if there, err = b.q.JobIsThere(ctx, c.handle.row); err != nil {
			return fmt.Errorf("look for the job of a model call: %w", err)
		}
	}
	if there == 1 {
		put.Job = sql.NullInt64{Int64: c.handle.row, Valid: true}
		if err := c.handle.putBlob(ctx, b, c.blob); err != nil {
			return err
		}
	} else {
		put.Head, put.Body = nil, nil
	}
	if err := b.q.PutModelCall(ctx, put); err != nil {
		return fmt.Errorf("write a model call: %w", err)
	}
	return nil
}

// wipeCalls takes out of a job's model calls all but what they cost, and the rows of
// jobs deleted before that no period counts any more.
func (b *batch) wipeCalls(ctx context.Context, row int64) error {
	y, m, _ := b.now.UTC().Date()
	if err := b.q.WipeModelCalls(ctx, sql.NullInt64{Int64: row, Valid: true}); err != nil {
		return err
	}
	return b.q.DeleteWipedModelCalls(ctx, nanos(time.Date(y, m-1, 1, 0, 0, 0, 0, time.UTC))) // a month more, should the clock be set
}

// ModelSpending implements [spend.Store].
func (s *Store) ModelSpending(ctx context.Context, since time.Time) ([]spend.Spent, error) {
	tx, err := s.reads.BeginTx(ctx, &sql.TxOptions{ReadOnly: true}) // both sums of one moment
	if err != nil {
		return nil, fmt.Errorf("add up model calls: %w", explain(s.path, err))
	}
	defer tx.Rollback() //nolint:errcheck // nothing was written
	q := s.reader.WithTx(tx)
	days, err := q.SumModelCallsByDay(ctx, nanos(since))
	if err != nil {
		return nil, fmt.Errorf("add up model calls: %w", explain(s.path, err))
	}
	jobs, err := q.SumModelCallsOfOpenJobs(ctx)
	if err != nil {
		return nil, fmt.Errorf("add up model calls: %w", explain(s.path, err))
	}
	out := make([]spend.Spent, 0, len(days)+len(jobs))
	for _, d := range days {
		out = append(out, spend.Spent{Tenant: d.Tenant, Agent: d.Agent, Day: time.Unix(d.Day*86400, 0).UTC(), Cost: spend.Money(d.Cost), Tokens: d.Tokens})
	}
	for _, j := range jobs {
		out = append(out, spend.Spent{Tenant: j.Tenant, Job: j.Name, Cost: spend.Money(j.Cost), Tokens: j.Tokens})
	}
	return out, nil
}

// ModelCalls gives the model calls of a job as they began. [job.ErrNoJob].
func (s *Store) ModelCalls(ctx context.Context, id job.ID) (all []spend.Record, err error) {
	err = s.jobs.read(ctx, "read the model calls of a job", func(q *rows.Queries) error {
		h, err := s.jobs.open(ctx, q, id)
		if err != nil {
			return err
		}
		found, err := q.ListModelCalls(ctx, sql.NullInt64{Int64: h.row, Valid: true})
		if err != nil {
			return err
		}
		all = make([]spend.Record, len(found))
		for i, f := range found {
			if all[i], err = h.openCall(ctx, q, f); err != nil {
				return fmt.Errorf("model call %s: %w", f.ID, err)
			}
		}
		return nil
	})
	return all, err
}

func (h *jobHandle) openCall(ctx context.Context, q *rows.Queries, f rows.ListModelCallsRow) (spend.Record, error) {
	put := &rows.PutModelCallParams{ID: f.ID, Agent: f.Agent, Begun: f.Begun, Ended: f.Ended, Cost: f.Cost, Tokens: f.Tokens}
	plain, err := h.key.Open(f.Head, h.modelRow("head", put))
	if err != nil {
		return spend.Record{}, err
	}
	var hd callHead
	if err := json.Unmarshal(plain, &hd); err != nil {
		return spend.Record{}, errors.Join(errBody, err)
	}
	if hd.Body != (len(f.Body) > 0) {
		return spend.Record{}, vault.ErrAltered
	}
	r := hd.record()
	r.ID, r.Tenant, r.Job, r.Agent = f.ID, h.id.Tenant, h.id.Job, f.Agent
	r.Began, r.Cost, r.Ended = fromNanos(f.Begun), spend.Money(f.Cost), f.Ended != 0
	if hd.Body {
		if plain, err = h.unsealBody(ctx, q, f.Body, h.modelRow("body", put)); err != nil {
			return spend.Record{}, err
		}
		var texts callBody
		if err := json.Unmarshal(plain, &texts); err != nil {
			return spend.Record{}, errors.Join(errBody, err)
		}
		r.Request, r.Answer = texts.Request, texts.Answer
	}
	return r, nil
}
