package audit

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Verify checks a whole record from its first entry. firstBad is the index of the
// first entry that is not as it was written, -1 when all are.
func Verify(entries []Entry) (ok bool, firstBad int) {
	if len(entries) == 0 {
		return true, -1
	}
	c := NewChecker(entries[0].Tenant)
	for i := range entries {
		if c.next(&entries[i]) != nil {
			return false, i
		}
	}
	return true, -1
}

// Checker checks a tenant's record entry by entry.
type Checker struct {
	tenant string
	head   Head
	kept   []Head // expected and not met yet
}

// NewChecker returns a checker that waits for the tenant's first entry.
func NewChecker(tenant string) *Checker { return &Checker{tenant: tenant} }

// Expect names a head that was kept: the record must come by it. It is for before
// the first entry.
func (c *Checker) Expect(kept Head) {
	if kept != (Head{}) { // every record has begun empty
		c.kept = append(c.kept, kept)
	}
}

// Broken says where a record is not as it was written.
type Broken struct {
	Seq    int64 // the place in the record
	Reason string
}

func (b *Broken) Error() string { return fmt.Sprintf("entry %d: %s", b.Seq, b.Reason) }

// Next takes the next entry. The error is a [Broken].
func (c *Checker) Next(e Entry) error {
	if b := c.next(&e); b != nil {
		return b
	}
	return nil
}

func (c *Checker) next(e *Entry) *Broken {
	reason := ""
	place := c.head.Seq + 1
	switch {
	case e.Seq > place:
		reason = fmt.Sprintf("it is missing; entry %d stands in its place", e.Seq)
	case e.Seq < place:
		reason = fmt.Sprintf("entry %d stands in its place", e.Seq)
	case e.Tenant != c.tenant:
		reason = "it belongs to another tenant"
	case e.Hash != e.Sum():
		reason = "it was changed: it does not have its hash"
	case e.Prev != c.head.Hash:
		reason = "it does not follow the one before: that was changed or replaced, or entries between them were taken out"
	}
	if reason != "" {
		return &Broken{Seq: place, Reason: reason}
	}
	c.head = Head{Seq: e.Seq, Hash: e.Hash}
	c.kept = slices.DeleteFunc(c.kept, func(k Head) bool { return k.Hash == e.Hash && (k.Seq == 0 || k.Seq == e.Seq) })
	return nil
}

// Head is that of the newest entry that was taken.
func (c *Checker) Head() Head { return c.head }

// End says whether the record came by every head that was expected. The error is a
// [Broken].
func (c *Checker) End() error {
	if b := c.end(); b != nil {
		return b
	}
	return nil
}

func (c *Checker) end() *Broken {
	if len(c.kept) == 0 {
		return nil
	}
	kept := c.kept[0]
	b := &Broken{Seq: c.head.Seq + 1, Reason: "the record ends before the head that was kept: its newest entries were cut off, or it was written anew"}
	if kept.Seq > 0 && kept.Seq <= c.head.Seq {
		b = &Broken{Seq: kept.Seq, Reason: "it has another hash than the head that was kept: the record was written anew"}
	}
	return b
}

// Report is what came of checking a record.
type Report struct {
	OK      bool      `json:"ok"`
	Tenant  string    `json:"tenant"`
	Entries int64     `json:"entries" doc:"How many entries are as they were written, from the first on."`
	Head    Head      `json:"head" doc:"Where these end. Keep it elsewhere, and give it to the next check."`
	Newest  time.Time `json:"newest,omitzero" doc:"When the newest of these was written."`
	// FirstBad is the place of the first entry that is not, 0 for none.
	FirstBad int64  `json:"first_bad,omitempty"`
	Reason   string `json:"reason,omitempty"`
}

const page = 1000

// Check checks a tenant's record as a log has it, against the heads that were kept.
// An error says that the record could not be read.
func Check(ctx context.Context, log Reader, tenant string, kept ...Head) (Report, error) {
	c := NewChecker(tenant)
	for _, k := range kept {
		c.Expect(k)
	}
	r := Report{Tenant: tenant}
	fail := func(b *Broken) (Report, error) {
		r.OK, r.FirstBad, r.Reason = false, b.Seq, b.Reason
		return r, nil
	}
	for {
		entries, err := log.AuditEntries(ctx, tenant, c.head.Seq, page)
		if err != nil {
			return Report{}, err
		}
		for _, e := range entries {
			if b := c.next(&e); b != nil {
				return fail(b)
			}
			r.Entries, r.Head, r.Newest = e.Seq, c.head, e.At
		}
		if len(entries) == 0 {
			break
		}
	}
	if b := c.end(); b != nil {
		return fail(b)
	}
	r.OK = true
	return r, nil
}
