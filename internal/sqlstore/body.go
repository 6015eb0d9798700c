package sqlstore

import (
	"context"
	"fmt"
	"strconv"

	"github.com/belay-run/belay/internal/conversation"
	"github.com/belay-run/belay/internal/sqlstore/rows"
	"github.com/belay-run/belay/internal/vault"
)

// large is the length in bytes over which a body stands in the blob table.
const large = 32 << 10

// The first byte of an opened body says what follows.
const (
	inline   byte = 0 // the body itself
	byDigest byte = 1 // the digest of the blob that has it
)

const digestSize = 32

// seal makes what stands in a row's body column and, for a large body, the blob
// it points to (without its conversation's row).
func seal(h *handle, body []byte, row vault.Row) ([]byte, *rows.InsertBlobParams) {
	if len(body) <= large {
		return h.key.Seal(append([]byte{inline}, body...), row), nil
	}
	digest := h.key.Digest(body)
	blob := &rows.InsertBlobParams{
		Digest: digest,
		Tenant: h.id.Tenant,
		Body:   h.key.Seal(body, blobRow(h.id, digest)),
	}
	return h.key.Seal(append([]byte{byDigest}, digest...), row), blob
}

// opener opens the bodies of one conversation, each blob once.
type opener struct {
	id    conversation.ID
	row   int64
	key   vault.DataKey
	q     *rows.Queries
	blobs map[[digestSize]byte][]byte
}

func (o *opener) open(ctx context.Context, sealed []byte, row vault.Row) ([]byte, error) {
	plain, err := o.key.Open(sealed, row)
	if err != nil {
		return nil, err
	}
	switch {
	case len(plain) > 0 && plain[0] == inline:
		return plain[1:], nil
	case len(plain) == 1+digestSize && plain[0] == byDigest:
		return o.blob(ctx, [digestSize]byte(plain[1:]))
	}
	return nil, errBody
}

func (o *opener) blob(ctx context.Context, digest [digestSize]byte) ([]byte, error) {
	if body, ok := o.blobs[digest]; ok {
		return body, nil
	}
	sealed, err := o.q.GetBlob(ctx, rows.GetBlobParams{Conversation: o.row, Digest: digest[:]})
	if err != nil {
		return nil, fmt.Errorf("read a large body: %w", err)
	}
	body, err := o.key.Open(sealed, blobRow(o.id, digest[:]))
	if err != nil {
		return nil, err
	}
	if o.blobs == nil {
		o.blobs = map[[digestSize]byte][]byte{}
	}
	o.blobs[digest] = body
	return body, nil
}

// These say what sealed bytes are bound to: their row, and whatever else of it
// is read.

func eventRow(id conversation.ID, seq int64, kind, turn string, at int64) vault.Row {
	return vault.Row{Table: "event", Seq: seq, Names: []string{id.Tenant, id.Agent, id.Sender, kind, turn, strconv.FormatInt(at, 10)}}
}

func traceRow(id conversation.ID, seq int64, turn string, at int64) vault.Row {
	return vault.Row{Table: "trace", Seq: seq, Names: []string{id.Tenant, id.Agent, id.Sender, turn, strconv.FormatInt(at, 10)}}
}

func blobRow(id conversation.ID, digest []byte) vault.Row {
	return vault.Row{Table: "blob", Names: []string{id.Tenant, id.Agent, id.Sender, string(digest)}}
}
