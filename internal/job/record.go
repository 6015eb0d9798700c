package job

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"
)

// What says what a record is about.
type What string

// What is recorded of a job.
const (
	Begun    What = "begun"    // an effect was asked for
	Answered What = "answered" // and this came back
	Asked    What = "asked"    // a decision was asked for
	Decided  What = "decided"  // and this was decided
	Timed    What = "timed"    // the clock was read
)

// Record is one line of a job's history. None is ever changed.
type Record struct {
	// Seq grows along a job's history; the journal sets it.
	Seq int64 `json:"seq"`
	// At is when it happened. For Timed it is the time that was read.
	At   time.Time `json:"at"`
	What What      `json:"what"`
	Key  string    `json:"key"`
	Kind string    `json:"kind,omitempty"` // begun, asked
	// Try counts from 1: which try was begun.
	Try  int  `json:"try,omitempty"`
	Once bool `json:"once,omitempty"` // begun
	// Digest is of kind and input: begun, asked.
	Digest Digest `json:"digest,omitzero"`
	// Input is that of a first try or a question. It is left out of what a run
	// loads.
	Input json.RawMessage `json:"input,omitempty"`
	Until time.Time       `json:"until,omitzero"` // asked: the deadline
	// Answer is set for answered and decided.
	Answer *Answer `json:"answer,omitempty"`
	By     string  `json:"by,omitempty"` // decided: by whom
}

// Sync says that the record must be on disk when [Ledger.Begin] returns.
func (r Record) Sync() bool { return r.Once || r.What == Answered }

// History is a job with its records in order.
type History struct {
	Job     Job      `json:"job"`
	Records []Record `json:"records"`
}

// Digest tells inputs apart.
type Digest [sha256.Size]byte

// digestOf is the digest of what is asked of whom.
func digestOf(kind string, input json.RawMessage) Digest {
	h := sha256.New()
	fmt.Fprintf(h, "%d:%s:", len(kind), kind)
	h.Write(input)
	return Digest(h.Sum(nil))
}

// IsZero says that there is no digest.
func (d Digest) IsZero() bool { return d == Digest{} }

// String is the digest in hex.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// MarshalText writes the digest in hex.
func (d Digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads it back.
func (d *Digest) UnmarshalText(text []byte) error {
	if hex.DecodedLen(len(text)) != len(d) {
		return fmt.Errorf("a digest has %d hex digits, not %d", hex.EncodedLen(len(d)), len(text))
	}
	_, err := hex.Decode(d[:], text)
	return err
}

// Digest is what a decision about the question is bound to.
func (q Question) Digest() Digest { return digestOf(q.Kind, q.Input) }

// Digest tells calls with other inputs apart.
func (c Call) Digest() Digest { return digestOf(c.Kind, c.Input) }
