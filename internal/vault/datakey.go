package vault

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
)

// secretSize is the length of a data key's secret in bytes.
const secretSize = 32

// ErrAltered says that sealed bytes are not what was stored in that row: they
// were changed, moved from another row, or sealed under another data key.
var ErrAltered = errors.New("altered, or moved from another row")

// Row says where sealed bytes stand. They open in that row alone, so nobody who
// can write to the database can pass one row off as another.
type Row struct {
	Table string
	Seq   int64
	Names []string // whatever else the row is found or read by
}

// bind encodes the row so that no two rows have the same bytes.
func (r Row) bind() []byte {
	size := 2*binary.MaxVarintLen64 + len(r.Table)
	for _, name := range r.Names {
		size += binary.MaxVarintLen32 + len(name)
	}
	b := make([]byte, 0, size)
	b = appendName(b, r.Table)
	b = binary.AppendVarint(b, r.Seq)
	for _, name := range r.Names {
		b = appendName(b, name)
	}
	return b
}

func appendName(b []byte, name string) []byte {
	b = binary.AppendUvarint(b, uint64(len(name)))
	return append(b, name...)
}

// DataKey encrypts rows with AES-256-GCM under random nonces, and makes keyed
// digests. The zero value cannot be used. It may be used from many goroutines.
type DataKey struct {
	aead   cipher.AEAD
	digest []byte
}

func newSecret() []byte {
	secret := make([]byte, secretSize)
	rand.Read(secret) //nolint:errcheck // it never returns an error
	return secret
}

// newDataKey derives two keys from a secret: one for sealing, one for digests.
func newDataKey(secret []byte) (DataKey, error) {
	if len(secret) != secretSize {
		return DataKey{}, fmt.Errorf("a data key has %d bytes, not %d", secretSize, len(secret))
	}
	sealing, err := hkdf.Key(sha256.New, secret, nil, "belay row", 32)
	if err != nil {
		return DataKey{}, fmt.Errorf("derive a data key: %w", err)
	}
	digest, err := hkdf.Key(sha256.New, secret, nil, "belay digest", 32)
	if err != nil {
		return DataKey{}, fmt.Errorf("derive a data key: %w", err)
	}
	block, err := aes.NewCipher(sealing)
	if err != nil {
		return DataKey{}, fmt.Errorf("derive a data key: %w", err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return DataKey{}, fmt.Errorf("derive a data key: %w", err)
	}
	return DataKey{aead: aead, digest: digest}, nil
}

// Seal encrypts what stands in a row. The result is 28 bytes longer.
func (k DataKey) Seal(plain []byte, row Row) []byte {
	return k.aead.Seal(make([]byte, 0, len(plain)+k.aead.Overhead()), nil, plain, row.bind())
}

// Open decrypts what stands in a row; the error is [ErrAltered] when it was not
// sealed for that row under this key.
func (k DataKey) Open(sealed []byte, row Row) ([]byte, error) {
	plain, err := k.aead.Open(nil, nil, sealed, row.bind())
	if err != nil {
		return nil, fmt.Errorf("open row %d of table %s: %w", row.Seq, row.Table, ErrAltered)
	}
	return plain, nil
}

// Digest is a 32-byte digest that only holders of the key can make, so that it
// gives away nothing about a text that others can guess.
func (k DataKey) Digest(plain []byte) []byte {
	mac := hmac.New(sha256.New, k.digest)
	mac.Write(plain)
	return mac.Sum(nil)
}
