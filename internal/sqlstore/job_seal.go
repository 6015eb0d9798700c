package sqlstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/belay-run/belay/internal/job"
	"github.com/belay-run/belay/internal/sqlstore/rows"
	"github.com/belay-run/belay/internal/vault"
)

// Inputs, values and outputs are kept byte for byte: a run on the record must see
// what the run before saw. So they are sealed as they are, and what else is
// sealed of a row stands beside them as JSON.

// seal makes what stands in a body column and, for a large body, the blob it
// points to (without its job's row). Nothing at all stays nothing.
func (h *jobHandle) seal(body []byte, row vault.Row) ([]byte, *rows.InsertJobBlobParams) {
	if len(body) == 0 {
		return nil, nil
	}
	if len(body) <= large {
		return h.key.Seal(append([]byte{inline}, body...), row), nil
	}
	digest := h.key.Digest(body)
	blob := &rows.InsertJobBlobParams{Digest: digest, Tenant: h.id.Tenant, Body: h.key.Seal(body, h.blobRow(digest))}
	return h.key.Seal(append([]byte{byDigest}, digest...), row), blob
}

func (h *jobHandle) blobRow(digest []byte) vault.Row {
	return vault.Row{Table: "job_blob", Names: []string{h.id.Tenant, h.id.Job, string(digest)}}
}

// unsealBody reads a body column; nothing stays nothing.
func (h *jobHandle) unsealBody(ctx context.Context, q *rows.Queries, sealed []byte, row vault.Row) ([]byte, error) {
	if len(sealed) == 0 {
		return nil, nil
	}
	plain, err := h.key.Open(sealed, row)
	switch {
	case err != nil:
		return nil, err
	case len(plain) > 0 && plain[0] == inline:
		return plain[1:], nil
	case len(plain) != 1+digestSize || plain[0] != byDigest:
		return nil, errBody
	}
	digest := plain[1:]
	blob, err := q.GetJobBlob(ctx, rows.GetJobBlobParams{Job: h.row, Digest: digest})
	if err != nil {
		return nil, fmt.Errorf("read a large body: %w", err)
	}
	return h.key.Open(blob, h.blobRow(digest))
}

func (h *jobHandle) putBlob(ctx context.Context, b *batch, blob *rows.InsertJobBlobParams) error {
	if blob == nil {
		return nil
	}
	blob.Job = h.row
	if err := b.q.InsertJobBlob(ctx, *blob); err != nil {
		return fmt.Errorf("write a large body: %w", err)
	}
	return nil
}

// What stands in job_text.
const (
	textInput  = "input"
	textCancel = "cancellation"
	textReason = "reason"
	textOutput = "output"
)

// putText writes a text of a job, if there is one.
func (h *jobHandle) putText(ctx context.Context, b *batch, what string, body []byte, blob *rows.InsertJobBlobParams) error {
	if body == nil {
		return nil
	}
	if err := h.putBlob(ctx, b, blob); err != nil {
		return err
	}
	if err := b.q.InsertJobText(ctx, rows.InsertJobTextParams{Job: h.row, What: what, Tenant: h.id.Tenant, Body: body}); err != nil {
		return fmt.Errorf("write the job's %s: %w", what, err)
	}
	return nil
}

// readText brings a text into its job.
func (h *jobHandle) readText(ctx context.Context, q *rows.Queries, to *job.Job, what string, sealed []byte) error {
	if len(sealed) == 0 {
		return vault.ErrAltered
	}
	row := h.textRow(what, to)
	body, err := h.unsealBody(ctx, q, sealed, row)
	if err != nil {
		return err
	}
	switch {
	case what == textInput:
		to.Input = body
	case what == textCancel && to.Cancel != nil:
		at := to.Cancel.At
		err := json.Unmarshal(body, to.Cancel)
		to.Cancel.At = at
		return err
	case what == textReason && to.End != nil:
		to.End.Reason = string(body)
	case what == textOutput && to.End != nil:
		to.End.Output = body
	}
	return nil
}

// These say what sealed bytes are bound to: their row, and whatever else of it
// is read.

func orderRow(o job.Order) vault.Row {
	return vault.Row{Table: "job_text", Names: []string{
		textInput, o.Tenant, o.Job, o.Agent, o.Flow, strconv.Itoa(o.Shape), decimal(o.Created), decimal(o.Deadline),
	}}
}

func cancelRow(id job.ID, at time.Time) vault.Row {
	return vault.Row{Table: "job_text", Names: []string{textCancel, id.Tenant, id.Job, decimal(at)}}
}

func endRow(what string, id job.ID, e job.End) vault.Row {
	return vault.Row{Table: "job_text", Names: []string{what, id.Tenant, id.Job, string(e.State), e.Code}}
}

func (h *jobHandle) textRow(what string, j *job.Job) vault.Row {
	switch {
	case what == textInput:
		return orderRow(j.Order)
	case what == textCancel && j.Cancel != nil:
		return cancelRow(h.id, j.Cancel.At)
	case j.End != nil:
		return endRow(what, h.id, *j.End)
	}
	return vault.Row{} // nothing opens there
}

func decimal(t time.Time) string { return strconv.FormatInt(nanos(t), 10) }

// head is what of a record stands in no column of its own, but for its body.
type head struct {
	Key     string        `json:"key"`
	Kind    string        `json:"kind,omitempty"`
	Once    bool          `json:"once,omitempty"`
	Digest  *job.Digest   `json:"digest,omitempty"`
	Body    bool          `json:"body,omitempty"` // there is one
	Answer  bool          `json:"answer,omitempty"`
	Failure *job.Failure  `json:"failure,omitempty"`
	Took    time.Duration `json:"took,omitempty"`
	Tries   int           `json:"tries,omitempty"`
	By      string        `json:"by,omitempty"`
}

// keyDigest stands for a key in the index.
func (h *jobHandle) keyDigest(key string) []byte { return h.key.Digest([]byte("key:" + key))[:16] }

// recordRow is what head and body of a record are bound to.
func (h *jobHandle) recordRow(part string, what string, keyDigest []byte, try, at, until int64) vault.Row {
	times := binary.AppendVarint(binary.AppendVarint(nil, at), until)
	return vault.Row{Table: "job_record", Seq: try, Names: []string{part, h.id.Tenant, h.id.Job, what, string(keyDigest), string(times)}}
}

// sealed is a record as it is written.
type sealed struct {
	job.Record
	insert rows.InsertJobRecordParams
	blob   *rows.InsertJobBlobParams
}

// sealRecord seals a record.
func (h *jobHandle) sealRecord(r job.Record) (sealed, error) {
	what, try, at, until := string(r.What), int64(r.Try), nanos(r.At), nanos(r.Until)
	hd := head{Key: r.Key, Kind: r.Kind, Once: r.Once, By: r.By}
	body := r.Input
	if !r.Digest.IsZero() {
		hd.Digest = &r.Digest
	}
	if a := r.Answer; a != nil {
		hd.Answer, hd.Failure, hd.Took, hd.Tries = true, a.Failure, a.Took, a.Tries
		body = a.Value
	}
	hd.Body = len(body) > 0
	plain, err := json.Marshal(hd)
	if err != nil {
		return sealed{}, fmt.Errorf("encode a record: %w", err)
	}
	digest := h.keyDigest(r.Key)
	out := sealed{Record: r, insert: rows.InsertJobRecordParams{
		Job: h.row, Tenant: h.id.Tenant, What: what, KeyDigest: digest, Try: try, At: at, Until: until,
		Head: h.key.Seal(plain, h.recordRow("head", what, digest, try, at, until)),
	}}
	out.insert.Body, out.blob = h.seal(body, h.recordRow("body", what, digest, try, at, until))
	return out, nil
}

// records reads the history of a job; without inputs where a run loads it.
func (h *jobHandle) records(ctx context.Context, q *rows.Queries, inputs bool) ([]job.Record, error) {
	found, err := q.ListJobRecords(ctx, rows.ListJobRecordsParams{Inputs: oneIf(inputs), Job: h.row})
	if err != nil {
		return nil, fmt.Errorf("read the job's records: %w", err)
	}
	all := make([]job.Record, len(found))
	for i, f := range found {
		whole := inputs || f.What == string(job.Answered) || f.What == string(job.Decided)
		if all[i], err = h.openRecord(ctx, q, whole, rows.JobRecord{
			Seq: f.Seq, What: f.What, KeyDigest: f.KeyDigest, Try: f.Try, At: f.At, Until: f.Until, Head: f.Head, Body: f.Body,
		}); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// openRecord reads a record, of which the body is left out unless it is whole.
func (h *jobHandle) openRecord(ctx context.Context, q *rows.Queries, whole bool, f rows.JobRecord) (job.Record, error) {
	plain, err := h.key.Open(f.Head, h.recordRow("head", f.What, f.KeyDigest, f.Try, f.At, f.Until))
	if err != nil {
		return job.Record{}, fmt.Errorf("record %d: %w", f.Seq, err)
	}
	var hd head
	if err := json.Unmarshal(plain, &hd); err != nil {
		return job.Record{}, fmt.Errorf("record %d: %w: %w", f.Seq, errBody, err)
	}
	if whole && hd.Body != (len(f.Body) > 0) {
		return job.Record{}, fmt.Errorf("record %d: its body: %w", f.Seq, vault.ErrAltered)
	}
	body, err := h.unsealBody(ctx, q, f.Body, h.recordRow("body", f.What, f.KeyDigest, f.Try, f.At, f.Until))
	if err != nil {
		return job.Record{}, fmt.Errorf("record %d: %w", f.Seq, err)
	}
	r := job.Record{
		Seq: f.Seq, At: fromNanos(f.At), What: job.What(f.What), Key: hd.Key, Kind: hd.Kind, Try: int(f.Try), Once: hd.Once,
		Until: fromNanos(f.Until), By: hd.By,
	}
	if hd.Digest != nil {
		r.Digest = *hd.Digest
	}
	if hd.Answer {
		r.Answer = &job.Answer{Value: body, Failure: hd.Failure, Took: hd.Took, Tries: hd.Tries}
	} else {
		r.Input = body
	}
	return r, nil
}

// sameRecord says whether a record that is there is the one to be written.
func sameRecord(there, r job.Record) bool {
	if there.Digest != r.Digest || r.What == job.Timed && nanos(there.At) != nanos(r.At) || (there.Answer == nil) != (r.Answer == nil) {
		return false
	}
	if r.Answer == nil {
		return true
	}
	a, b := there.Answer.Failure, r.Answer.Failure
	return bytes.Equal(there.Answer.Value, r.Answer.Value) && (a == nil) == (b == nil) && (a == nil || *a == *b)
}
