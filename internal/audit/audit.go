// Package audit is the record of what was changed, when and by whom: append-only
// and chained by hashes, one chain a tenant.
//
// Whoever changes something says so as a [Fact]; a [Log] makes an [Entry] of it, in
// the transaction of the change where both are in one store:
//
//	err := log.Record(ctx, audit.Fact{
//		Tenant: "main", Actor: "ann", Action: audit.PolicyApplied, Subject: version,
//		Data: audit.Data{"replaces": before},
//	})
//
// A fact holds names, numbers and digests, never a secret and never what was said:
// long strings are cut.
//
// # The chain
//
// An entry has the hash of the one before, zeros for the first. Its own hash is the
// SHA-256 of these bytes, integers big-endian, a text being its length in bytes as
// 32 bits and then its bytes in UTF-8:
//
//	"belay audit 1\n"
//	seq      64 bits, counted from 1
//	at       64 bits, nanoseconds since 1970
//	tenant   text
//	actor    text
//	action   text
//	subject  text
//	data     text: the JSON object as it stands in the entry, byte for byte
//	prev     32 bytes
//
// The object is written without spaces, its keys sorted, and with <, > and & as
// \u003c, \u003e and \u0026, so that JSON encoders hand it on unchanged.
//
// [Verify] and [Checker] find an entry that was changed, left out, put in or moved.
// That the newest entries were cut off, or that all were written anew, nobody can
// see from the record alone: print the [Head] from time to time, keep it where
// the record is not, and give it to [Checker.Expect].
package audit

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Action says what was done, as "<what>.<done>".
type Action string

// The actions that Belay records. Others may come.
const (
	PluginInstalled    Action = "plugin.installed"
	PluginUpdated      Action = "plugin.updated"
	PluginRemoved      Action = "plugin.removed"
	PluginMoved        Action = "plugin.moved"
	PluginReadsGranted Action = "plugin.reads.granted" // data: kind
	PluginReadsRevoked Action = "plugin.reads.revoked"
	PolicyApplied      Action = "policy.applied"
	ApprovalDecided    Action = "approval.decided"
	ApprovalVoided     Action = "approval.voided" // a policy was enforced at once
	TokenCreated       Action = "token.created"
	TokenRevoked       Action = "token.revoked"
	JobStarted         Action = "job.started"
	JobCancelled       Action = "job.cancelled"
	JobDeleted         Action = "job.deleted"
	HookDisabled       Action = "hook.disabled"
	HookEnabled        Action = "hook.enabled"
	BackupMade         Action = "backup.made"
	SecretSet          Action = "secret.set"     // data: version
	SecretRotated      Action = "secret.rotated" // data: version
	SecretRemoved      Action = "secret.removed"
)

// Fact is what is to be recorded.
type Fact struct {
	Tenant  string
	Actor   string // who did it, such as the name of a token
	Action  Action
	Subject string // what it was done to
	Data    Data
}

// Data is what else there is to say: strings, lists of strings, numbers and
// booleans.
type Data map[string]any

// The bounds of an entry.
const (
	maxText = 256     // bytes of a string; what is longer is cut
	maxData = 8 << 10 // bytes of the data as JSON
)

// Entry is one line of a tenant's record.
type Entry struct {
	Seq     int64           `json:"seq"`
	At      time.Time       `json:"at"`
	Tenant  string          `json:"tenant"`
	Actor   string          `json:"actor"`
	Action  Action          `json:"action"`
	Subject string          `json:"subject"`
	Data    json.RawMessage `json:"data"`
	Prev    Hash            `json:"prev"`
	Hash    Hash            `json:"hash"`
}

// Reader is for whoever reads records.
type Reader interface {
	// AuditEntries gives the entries of a tenant that come after one, in order, at
	// most so many of them.
	AuditEntries(ctx context.Context, tenant string, after int64, most int) ([]Entry, error)
	// AuditHead gives the head of a tenant's record, the zero Head when it is empty.
	AuditHead(ctx context.Context, tenant string) (Head, error)
}

// Log keeps records.
type Log interface {
	// Record adds to the records, all facts or none. They are on disk when it
	// returns nil.
	Record(ctx context.Context, facts ...Fact) error
	Reader
}

var validAction = regexp.MustCompile(`^[a-z_]+(\.[a-z_]+)+$`)

// Next makes the entry that follows a head.
func Next(head Head, at time.Time, f Fact) (Entry, error) {
	switch {
	case f.Tenant == "" || f.Tenant != cut(f.Tenant) || f.Actor == "":
		return Entry{}, fmt.Errorf("record %s: a fact needs the name of a tenant and an actor", f.Action)
	case !validAction.MatchString(string(f.Action)):
		return Entry{}, fmt.Errorf("record %q: an action is written <what>.<done>", f.Action)
	}
	data, err := f.Data.encode()
	if err != nil {
		return Entry{}, fmt.Errorf("record %s: %w", f.Action, err)
	}
	e := Entry{
		Seq: head.Seq + 1, At: time.Unix(0, at.UnixNano()).UTC(), Tenant: f.Tenant, Actor: cut(f.Actor), Action: f.Action,
		Subject: cut(f.Subject), Data: data, Prev: head.Hash,
	}
	e.Hash = e.Sum()
	return e, nil
}

func (d Data) encode() (json.RawMessage, error) {
	short := make(Data, len(d))
	for k, v := range d {
		switch v := v.(type) {
		case string:
			short[k] = cut(v)
		case []string:
			all := slices.Clone(v)
			for i := range all {
				all[i] = cut(all[i])
			}
			short[k] = all
		case bool, int, int64:
			short[k] = v
		default:
			return nil, fmt.Errorf("its %s is a %T; write a string, a list of them, a whole number or a boolean", k, v)
		}
	}
	raw, err := json.Marshal(short)
	if err == nil && len(raw) > maxData {
		err = fmt.Errorf("its data has %d bytes, %d is the most", len(raw), maxData)
	}
	return raw, err
}

// cut shortens what is no name, and makes it valid: what is hashed must come
// through JSON unchanged.
func cut(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= maxText {
		return s
	}
	end := maxText
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "…"
}

// Sum is the hash that the entry should have.
func (e *Entry) Sum() Hash {
	b := []byte("belay audit 1\n")
	b = binary.BigEndian.AppendUint64(b, uint64(e.Seq))
	b = binary.BigEndian.AppendUint64(b, uint64(e.At.UnixNano()))
	for _, text := range []string{e.Tenant, e.Actor, string(e.Action), e.Subject, string(e.Data)} {
		b = binary.BigEndian.AppendUint32(b, uint32(len(text)))
		b = append(b, text...)
	}
	return sha256.Sum256(append(b, e.Prev[:]...))
}

// Hash is a hash of the chain.
type Hash [sha256.Size]byte

// String is the hash in hex.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// MarshalText writes the hash in hex.
func (h Hash) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText reads it back.
func (h *Hash) UnmarshalText(text []byte) error {
	if hex.DecodedLen(len(text)) != len(h) || len(text)%2 == 1 {
		return fmt.Errorf("a hash has %d hex digits, not %d", hex.EncodedLen(len(h)), len(text))
	}
	_, err := hex.Decode(h[:], text)
	return err
}

// Head is where a record ends: what to keep elsewhere.
type Head struct {
	Seq  int64
	Hash Hash
}

// String is the head for people to keep, "<seq>:<hash>".
func (h Head) String() string { return fmt.Sprintf("%d:%s", h.Seq, h.Hash) }

// MarshalText is String.
func (h Head) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText reads it back; see [ParseHead].
func (h *Head) UnmarshalText(text []byte) (err error) {
	*h, err = ParseHead(string(text))
	return err
}

var errHead = errors.New("this is no head of an audit record; give it as `belay audit verify` printed it, <number>:<hash>, or its hash alone")

// ParseHead reads a kept head. The hash alone will do; then Seq is 0.
func ParseHead(s string) (h Head, err error) {
	s = strings.TrimSpace(s)
	seq, hash, both := strings.Cut(s, ":")
	if !both {
		hash = s
	} else if h.Seq, err = strconv.ParseInt(seq, 10, 64); err != nil || h.Seq < 0 {
		return Head{}, errHead
	}
	if err := h.Hash.UnmarshalText([]byte(hash)); err != nil {
		return Head{}, errHead
	}
	return h, nil
}

type alongKey struct{}

// Along returns a context for one change: a store that makes the change under it
// records the facts in the change's transaction. For ports that know nothing of
// this package.
func Along(ctx context.Context, facts ...Fact) context.Context {
	return context.WithValue(ctx, alongKey{}, facts)
}

// AlongOf gives the facts that go along with a change.
func AlongOf(ctx context.Context) []Fact {
	facts, _ := ctx.Value(alongKey{}).([]Fact)
	return facts
}
