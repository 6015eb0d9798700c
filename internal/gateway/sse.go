package gateway

import "bytes"

// event is one server-sent event. Its bytes are good until the function that got it
// returns.
type event struct {
	// raw is the event as it came, the blank line at its end included. The events of
	// a stream together are the stream.
	raw []byte
	// name and data are what it says; several lines of data are joined. An event
	// without data, such as a comment, says nothing.
	name, data []byte
	part       bool // of an event that is too long; it says nothing
}

// splitter splits a stream into events as it comes, wherever it is cut. Lines end
// with LF, CRLF or CR.
type splitter struct {
	most int // bytes of an event; a longer one is given piece by piece, without data

	buf    []byte // what came of the event that is not complete
	line   int    // where the last line begins in it
	looked int    // up to where it was searched for an end of that line
	long   bool   // the event is one that is given piece by piece
	inLine bool   // and of its first line in buf, a part was given before
	begun  bool   // an event was given
	joined []byte // data of several lines
}

// maxEvent bounds what is kept of an event. A picture in base64 is some MiB.
const maxEvent = 4 << 20

// feed takes the next bytes and gives the events that they complete.
func (s *splitter) feed(p []byte, give func(event)) {
	b := p
	if len(s.buf) > 0 {
		s.buf = append(s.buf, p...)
		b = s.buf
	}
	b = s.split(b, give, false)
	if len(b) > s.most {
		n := len(b)
		if b[n-1] == '\r' { // half an end of line, maybe
			n--
		}
		s.inLine = n > s.line || s.inLine && s.line == 0
		s.long, s.line, s.looked = true, 0, 0
		give(event{raw: b[:n], part: true})
		b = b[n:]
	}
	s.buf = append(s.buf[:0], b...) // b may be the end of buf
}

// close takes the end of the stream for that of the last event.
func (s *splitter) close(give func(event)) {
	if rest := s.split(s.buf, give, true); len(rest) > 0 {
		s.give(rest, give)
	}
	s.buf = nil
}

// split gives the events that are complete, and returns the rest.
func (s *splitter) split(b []byte, give func(event), final bool) []byte {
	for {
		n := s.end(b, final)
		if n == 0 {
			return b
		}
		s.give(b[:n], give)
		s.line, s.looked, s.long, s.inLine = 0, 0, false, false
		b = b[n:]
	}
}

// end is where the event ends that b begins with; 0 when that is not there yet.
func (s *splitter) end(b []byte, final bool) int {
	for {
		at, next := lineEnd(b, s.looked, final)
		if next == 0 {
			s.looked = at
			return 0
		}
		blank := at == s.line && !(s.line == 0 && s.inLine)
		s.line, s.looked = next, next
		if blank {
			return next
		}
	}
}

// lineEnd finds the end of a line from from on, and where the next one begins. next is
// 0 when there is none; then the search may go on at end. It looks no further than about
// twice the line, or a stream without LF would be read anew for each of its lines.
func lineEnd(b []byte, from int, final bool) (end, next int) {
	for size := 512; from < len(b); from, size = from+size, 2*size {
		w := b[from:min(from+size, len(b))]
		n := bytes.IndexByte(w, '\n')
		if n >= 0 {
			w = w[:n]
		}
		r := bytes.IndexByte(w, '\r') + from
		switch {
		case r < from && n < 0:
		case r < from:
			return from + n, from + n + 1
		case r+1 < len(b) && b[r+1] == '\n':
			return r, r + 2
		case r+1 == len(b) && !final:
			return r, 0 // a LF may follow
		default:
			return r, r + 1
		}
	}
	return len(b), 0
}

// give reads what an event says.
func (s *splitter) give(raw []byte, give func(event)) {
	e := event{raw: raw, part: s.long}
	b := raw
	if !s.begun {
		b = bytes.TrimPrefix(b, []byte("\xEF\xBB\xBF"))
		s.begun = true
	}
	lines := 0
	for at := 0; at < len(b) && !s.long; {
		end, next := lineEnd(b, at, true)
		key, value, _ := bytes.Cut(b[at:end], []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(key) {
		case "event":
			e.name = value
		case "data":
			if lines++; lines == 1 {
				e.data = value
				break
			}
			if lines == 2 {
				s.joined = append(s.joined[:0], e.data...)
			}
			s.joined = append(append(s.joined, '\n'), value...)
			e.data = s.joined
		}
		if at = next; next == 0 {
			break
		}
	}
	give(e)
}
