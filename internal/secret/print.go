package secret

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"math/bits"
	"time"
)

const (
	anchorSize = 8 // bytes by which a form is recognised at first
	windowSize = 5 // bytes of what the filter asks for
	stride     = anchorSize - windowSize + 1
	digestSize = 16
	windowBits = 24 // of a window's hash that a fingerprint keeps
)

// ErrPrints says that fingerprints were damaged or made under another key.
var ErrPrints = errors.New("fingerprints that are damaged or were made under another key")

// Print is the fingerprint of one form of a secret. It holds no part of the text.
type Print struct {
	Form Form `json:"form"`
	// Size is the length of the text in bytes, At where its anchor is.
	Size    int              `json:"size"`
	At      int              `json:"at"`
	Windows [stride]uint32   `json:"windows"`
	Anchor  uint32           `json:"anchor"`
	Digest  [digestSize]byte `json:"digest"`
	Before  bool             `json:"before,omitempty"` // the character before it belongs to it
	After   bool             `json:"after,omitempty"`
	Part    bool             `json:"part,omitempty"` // a line of it, which is masked and not found
}

// Entry is a secret as a scanner knows it: its name, and the fingerprints of its
// value, or of a value that it had.
type Entry struct {
	Name   string    `json:"name"`
	Prints []Print   `json:"prints"`
	Until  time.Time `json:"until,omitzero"` // after that it is looked for no more; zero: for good
}

// Key is what fingerprints are made under. The zero Key cannot be used.
type Key struct {
	window   uint64
	anchor   [2]uint64
	digest   []byte
	envelope []byte
}

// NewKey derives a key from at least 32 secret bytes.
func NewKey(from []byte) (Key, error) {
	if len(from) < 32 {
		return Key{}, fmt.Errorf("a key of fingerprints is made of 32 bytes or more, not %d", len(from))
	}
	b, err := hkdf.Key(sha256.New, from, nil, "belay fingerprint 1", 24+64)
	if err != nil {
		return Key{}, fmt.Errorf("derive a key of fingerprints: %w", err)
	}
	le := binary.LittleEndian
	return Key{window: le.Uint64(b) | 1, anchor: [2]uint64{le.Uint64(b[8:]), le.Uint64(b[16:]) | 1}, digest: b[24:56], envelope: b[56:]}, nil
}

// hashWindow hashes the low 5 bytes of x to 24 bits: those come out on top.
func (k *Key) hashWindow(x uint64) uint64 { return x << (8 * (8 - windowSize)) * k.window }

func (k *Key) hashAnchor(x uint64) uint32 {
	hi, lo := bits.Mul64(x^k.anchor[0], k.anchor[1])
	return uint32((hi ^ lo) >> 32)
}

// Prints makes the fingerprints of a value, white space around it not counted.
// [ErrShort], [ErrLong].
func (k *Key) Prints(value []byte) ([]Print, error) {
	all, err := shapes(value)
	if err != nil {
		return nil, err
	}
	mac := hmac.New(sha256.New, k.digest)
	out := make([]Print, len(all))
	for i, s := range all {
		out[i] = k.print(mac, s)
	}
	return out, nil
}

func (k *Key) print(mac hash.Hash, s shape) Print {
	p := Print{Form: s.form, Size: len(s.text), At: anchorOf(s.text), Before: s.before, After: s.after, Part: s.part}
	block := s.text[p.At : p.At+anchorSize]
	p.Anchor = k.hashAnchor(binary.LittleEndian.Uint64(block))
	for i := range p.Windows {
		p.Windows[i] = uint32(k.hashWindow(load(block[i:i+windowSize])) >> (64 - windowBits))
	}
	mac.Reset()
	mac.Write(s.text)
	copy(p.Digest[:], mac.Sum(nil))
	return p
}

// load reads up to 8 bytes.
func load(b []byte) uint64 {
	var x [8]byte
	copy(x[:], b)
	return binary.LittleEndian.Uint64(x[:])
}

// anchorOf picks the 8 bytes that look the least like other texts: keys of one kind
// begin alike, and "-----BEG" is everywhere.
func anchorOf(text []byte) int {
	best, most := 0, -1
	for at := 0; at+anchorSize <= len(text); at++ {
		b := text[at : at+anchorSize]
		score := 0
		for i, c := range b {
			if i > 0 && class(c) != class(b[i-1]) {
				score += 2
			}
			fresh := true
			for _, before := range b[:i] {
				fresh = fresh && before != c
			}
			if fresh {
				score += 3
			}
		}
		if score > most {
			best, most = at, score
		}
	}
	return best
}

func class(c byte) int {
	switch {
	case c >= 'a' && c <= 'z':
		return 0
	case c >= 'A' && c <= 'Z':
		return 1
	case c >= '0' && c <= '9':
		return 2
	}
	return 3
}

// Encode writes an entry so that it can be told when it was changed.
func (k *Key) Encode(e Entry) ([]byte, error) {
	raw, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("write fingerprints: %w", err)
	}
	return append(k.seal(raw), raw...), nil
}

func (k *Key) seal(raw []byte) []byte {
	mac := hmac.New(sha256.New, k.envelope)
	mac.Write(raw)
	return mac.Sum(nil)
}

// Decode reads what Encode wrote. [ErrPrints].
func (k *Key) Decode(b []byte) (Entry, error) {
	if len(b) < sha256.Size || !hmac.Equal(b[:sha256.Size], k.seal(b[sha256.Size:])) {
		return Entry{}, ErrPrints
	}
	var e Entry
	if err := json.Unmarshal(b[sha256.Size:], &e); err != nil {
		return Entry{}, fmt.Errorf("%w: %w", ErrPrints, err)
	}
	if len(e.Prints) == 0 {
		return Entry{}, fmt.Errorf("%w: there are none", ErrPrints)
	}
	for _, p := range e.Prints {
		if p.At < 0 || p.Size < anchorSize || p.At > p.Size-anchorSize {
			return Entry{}, ErrPrints
		}
	}
	return e, nil
}

// Key forbids that it is printed by mistake.
func (Key) String() string { return "[key of fingerprints]" }

// GoString is String.
func (k Key) GoString() string { return k.String() }
