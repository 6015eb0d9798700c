package secret

import "slices"

// Hit is where a secret stands in a stream, in bytes from its beginning.
type Hit struct {
	Start, End int
	Name       string
	Form       Form
}

// Stream scans a text that comes bit by bit, wherever it is cut.
type Stream struct {
	p     *probe
	found func(Hit)
	last  int // the place up to which nothing more can be found
}

// chunk is how much of a text is looked at in one go: what stays in a core's cache.
const chunk = 64 << 10

// Stream gives what finds secrets in a text that is written to it. found is called
// for each, in the order in which they end, roughly.
func (s *Scanner) Stream(found func(Hit)) *Stream {
	t := &Stream{found: found}
	if s != nil {
		t.p = s.probe()
		t.p.buf = t.p.own[:0]
	}
	return t
}

// Write takes the next bit of the text. It never fails.
func (t *Stream) Write(b []byte) (int, error) {
	n := len(b)
	for t.p != nil && len(b) > 0 {
		take := min(len(b), chunk)
		t.p.buf = append(t.p.buf, b[:take]...)
		b = b[take:]
		t.p.advance(false)
		t.tell()
		t.p.trim()
	}
	if t.p == nil {
		t.last += n
	}
	return n, nil
}

// Clear is the place in the text before which nothing more will be found.
func (t *Stream) Clear() int {
	if t.p == nil {
		return t.last
	}
	at := t.p.base + t.p.next - stride - t.p.s.behind - 1
	for _, m := range t.p.pending {
		at = min(at, m.start-1)
	}
	return max(at, t.last)
}

// Close says that the text has ended.
func (t *Stream) Close() error {
	if t.p == nil {
		return nil
	}
	t.p.advance(true)
	t.tell()
	t.last = t.p.base + len(t.p.buf)
	t.p.release(t.p.buf)
	t.p = nil
	return nil
}

func (t *Stream) tell() {
	for _, m := range t.p.matches() {
		k := &t.p.s.prints[m.print]
		t.found(Hit{Start: m.start, End: m.end, Name: t.p.s.names[k.name], Form: k.form})
	}
	t.p.found = t.p.found[:0]
}

// trim drops from buf what nothing can need any more, once that is much.
func (p *probe) trim() {
	keep := p.next - stride - p.s.behind - 1
	for _, m := range p.pending {
		keep = min(keep, m.start-p.base-1)
	}
	if keep < chunk {
		return
	}
	p.buf = slices.Delete(p.buf, 0, keep) // it clears what is left over
	p.base += keep
	p.next -= keep
}
