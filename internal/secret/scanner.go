package secret

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"math/bits"
	"slices"
	"sync"
	"unicode/utf8"
	"unsafe"
)

// Finding is where a secret stands. It holds no part of it.
type Finding struct {
	// Path is the JSON pointer (RFC 6901) of the string, or number, that the secret
	// is in; "" in a text.
	Path string `json:"path"`
	// Start and End are positions in Unicode code points of that string. They cover
	// all that the secret was written as.
	Start int    `json:"start"`
	End   int    `json:"end"`
	Name  string `json:"name"`
	Form  Form   `json:"form"`
}

// Scanner finds secrets by their fingerprints. It never changes and may be used from
// many goroutines. A nil Scanner finds nothing.
type Scanner struct {
	key    Key
	names  []string
	prints []known

	filter []uint64 // a bitmap by hashed windows
	shift  uint8    // leaves of a hash what the bitmap is asked with
	likely []uint64 // a bitmap by hashed anchors
	table  []int32  // 1 + the first of the prints with an anchor, by hashed anchors
	slots  uint32   // the size of table less 1

	longest int // bytes of the longest form
	behind  int // the most bytes that a form has before its anchor
	probes  sync.Pool
}

type known struct {
	digest        [digestSize]byte
	anchor        uint32
	size, at      int32
	name          int32
	form          Form
	before, after bool
	part          bool
	next          int32 // 1 + another that the table has in the same place
}

// NewScanner makes a scanner of secrets' fingerprints. Entries of one name are one
// secret.
func NewScanner(key Key, entries []Entry) *Scanner {
	s := &Scanner{key: key}
	index := map[string]int32{}
	for _, e := range entries {
		name, there := index[e.Name]
		if !there {
			name = int32(len(s.names))
			index[e.Name] = name
			s.names = append(s.names, e.Name)
		}
		for _, p := range e.Prints {
			s.prints = append(s.prints, known{digest: p.Digest, anchor: p.Anchor, size: int32(p.Size), at: int32(p.At), name: name, form: p.Form, before: p.Before, after: p.After, part: p.Part})
			s.longest, s.behind = max(s.longest, p.Size), max(s.behind, p.At)
		}
	}
	if len(s.prints) == 0 {
		return nil
	}
	// 1 of 32 bits set or less. Larger, it would stay in no near cache.
	size := min(max(bits.Len(uint(len(s.prints)*stride*32-1)), 12), windowBits)
	s.shift = uint8(64 - size)
	s.filter = make([]uint64, 1<<size/64)
	for _, e := range entries {
		for _, p := range e.Prints {
			for _, w := range p.Windows {
				h := w >> (windowBits - size)
				s.filter[h/64] |= 1 << (h % 64)
			}
		}
	}
	s.table = make([]int32, 1<<bits.Len(uint(len(s.prints))))
	s.slots = uint32(len(s.table) - 1)
	s.likely = make([]uint64, 1<<max(bits.Len(uint(16*len(s.prints))), 6)/64)
	for i := range s.prints {
		h := s.prints[i].anchor >> 8 & (uint32(len(s.likely))*64 - 1)
		s.likely[h/64] |= 1 << (h % 64)
		slot := &s.table[s.prints[i].anchor&s.slots]
		s.prints[i].next, *slot = *slot, int32(i+1)
	}
	s.probes.New = func() any { return &probe{mac: hmac.New(sha256.New, s.key.digest)} }
	return s
}

// Names are the names of the secrets that it knows.
func (s *Scanner) Names() []string {
	if s == nil {
		return nil
	}
	return slices.Clone(s.names)
}

// match is a secret in a text, in bytes.
type match struct {
	start, end int
	print      int32
}

// probe is one pass over a text, of which buf is the part at hand.
type probe struct {
	s       *Scanner
	mac     hash.Hash
	sum     [sha256.Size]byte
	buf     []byte
	base    int // where buf begins in the text
	next    int // where in buf the next window is looked at
	pending []match
	found   []match
	most    int // of found; 0 for any number
	own     []byte
	parts   bool // lines of secrets count too
}

func (s *Scanner) probe() *probe {
	p := s.probes.Get().(*probe)
	*p = probe{s: s, mac: p.mac, own: p.own, pending: p.pending[:0], found: p.found[:0]}
	return p
}

// release gives a probe back. It keeps no text. used is its own buffer when it was
// used.
func (p *probe) release(used []byte) {
	if used != nil {
		p.own = used[:cap(used)]
		clear(p.own)
	}
	p.buf = nil
	p.s.probes.Put(p)
}

// advance looks at what buf has that was not looked at. final says that no more
// comes after it.
func (p *probe) advance(final bool) {
	b, s := p.buf, p.s
	filter, mul, shift := s.filter, s.key.window, s.shift&63
	i := p.next
	for ; i+4*anchorSize <= len(b); i += 4 * stride { // four at once, which do not wait for one another
		part := b[i : i+4*anchorSize]
		h0 := (binary.LittleEndian.Uint64(part) << (8 * (8 - windowSize)) * mul) >> shift
		h1 := (binary.LittleEndian.Uint64(part[stride:]) << (8 * (8 - windowSize)) * mul) >> shift
		h2 := (binary.LittleEndian.Uint64(part[2*stride:]) << (8 * (8 - windowSize)) * mul) >> shift
		h3 := (binary.LittleEndian.Uint64(part[3*stride:]) << (8 * (8 - windowSize)) * mul) >> shift
		hits := filter[h0/64]>>(h0%64)&1 | filter[h1/64]>>(h1%64)&1<<1 | filter[h2/64]>>(h2%64)&1<<2 | filter[h3/64]>>(h3%64)&1<<3
		for ; hits != 0; hits &= hits - 1 {
			p.look(i+bits.TrailingZeros64(hits)*stride, final)
		}
	}
	for ; i+anchorSize <= len(b); i += stride {
		h := (binary.LittleEndian.Uint64(b[i:]) << (8 * (8 - windowSize)) * mul) >> shift
		if filter[h/64]>>(h%64)&1 != 0 {
			p.look(i, final)
		}
	}
	if final {
		for ; i+windowSize <= len(b); i += stride {
			h := s.key.hashWindow(load(b[i:i+windowSize])) >> shift
			if filter[h/64]>>(h%64)&1 != 0 {
				p.look(i, final)
			}
		}
	}
	p.next = i
	p.settle(final)
}

// look asks which forms the window at i may belong to.
func (p *probe) look(i int, final bool) {
	b, s := p.buf, p.s
	ones := uint32(len(s.likely))*64 - 1
	for a := i; a > i-stride; a-- {
		if a < 0 || a+anchorSize > len(b) {
			continue
		}
		h := s.key.hashAnchor(binary.LittleEndian.Uint64(b[a:]))
		if l := h >> 8 & ones; s.likely[l/64]>>(l%64)&1 == 0 {
			continue
		}
		for n := s.table[h&s.slots]; n != 0; n = s.prints[n-1].next {
			k := &s.prints[n-1]
			start := a - int(k.at)
			if k.anchor != h || start < 0 {
				continue
			}
			m := match{start: p.base + start, end: p.base + start + int(k.size), print: n - 1}
			if !final && m.end+edge > p.base+len(b) {
				p.pending = append(p.pending, m)
				continue
			}
			p.confirm(m)
		}
	}
}

// edge is how many characters after a base64 text may belong to it.
const edge = 3

// settle decides about forms whose end has come by now.
func (p *probe) settle(final bool) {
	kept := p.pending[:0]
	for _, m := range p.pending {
		if !final && m.end+edge > p.base+len(p.buf) {
			kept = append(kept, m)
			continue
		}
		p.confirm(m)
	}
	p.pending = kept
}

// confirm keeps a match when it is one.
func (p *probe) confirm(m match) {
	from, to := m.start-p.base, m.end-p.base
	if to > len(p.buf) || p.most > 0 && len(p.found) > p.most {
		return
	}
	k := &p.s.prints[m.print]
	if k.part && !p.parts {
		return
	}
	p.mac.Reset()
	p.mac.Write(p.buf[from:to])
	if !hmac.Equal(p.mac.Sum(p.sum[:0])[:digestSize], k.digest[:]) {
		return
	}
	if k.before && from > 0 && isBase64(p.buf[from-1]) {
		m.start--
	}
	if k.after && to < len(p.buf) && isBase64(p.buf[to]) {
		for to++; to < len(p.buf) && to < m.end-p.base+edge && p.buf[to] == '='; {
			to++
		}
		m.end = p.base + to
	}
	p.found = append(p.found, m)
}

func isBase64(c byte) bool {
	return class(c) != 3 || c == '+' || c == '/' || c == '-' || c == '_'
}

// matches puts what was found in order, each place once for a secret.
func (p *probe) matches() []match {
	prints := p.s.prints
	slices.SortFunc(p.found, func(a, b match) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end), cmp.Compare(prints[a.print].name, prints[b.print].name), cmp.Compare(a.print, b.print))
	})
	p.found = slices.CompactFunc(p.found, func(a, b match) bool {
		return a.start == b.start && a.end == b.end && prints[a.print].name == prints[b.print].name
	})
	return p.found
}

// Scan finds the secrets in a text.
func (s *Scanner) Scan(text string) []Finding {
	if s == nil {
		return nil
	}
	p := s.probe()
	defer p.release(nil)
	p.buf = unsafe.Slice(unsafe.StringData(text), len(text)) // it is only read
	p.advance(true)
	var out []Finding
	var at, count runes
	for _, m := range p.matches() {
		start := at.to(text, m.start)
		count = at
		k := &s.prints[m.print]
		out = append(out, Finding{Start: start, End: count.to(text, m.end), Name: s.names[k.name], Form: k.form})
	}
	return out
}

// runes counts code points up to a place that moves on.
type runes struct{ bytes, count int }

func (r *runes) to(text string, at int) int {
	r.count += utf8.RuneCountInString(text[r.bytes:at])
	r.bytes = at
	return r.count
}
