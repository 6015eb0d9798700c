package server

import (
	"sync"

	"github.com/belay-run/belay/internal/turn"
)

// piece is something for the client: a whole text, or a piece of one that is
// still being written.
type piece struct {
	delta []byte // nil: it is whole
	text  turn.Utterance
}

// feed stands between a turn, which must not wait, and a client, which may be
// slow. Pieces of one text that wait become one piece.
type feed struct {
	mu     sync.Mutex
	wait   []piece
	ended  bool
	closed bool // nobody reads any more
	wake   chan struct{}
}

func newFeed() *feed { return &feed{wake: make(chan struct{}, 1)} }

// Delta takes a piece of a text.
func (f *feed) Delta(p string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := len(f.wait); n > 0 && f.wait[n-1].delta != nil {
		f.wait[n-1].delta = append(f.wait[n-1].delta, p...)
		return
	}
	f.put(piece{delta: []byte(p)})
}

// Text takes a whole text.
func (f *feed) Text(u turn.Utterance) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.put(piece{text: u})
}

func (f *feed) put(p piece) {
	if !f.closed {
		f.wait = append(f.wait, p)
	}
	f.ring()
}

func (f *feed) ring() {
	select {
	case f.wake <- struct{}{}:
	default: // it has been rung already
	}
}

// take returns what waits, and whether nothing more will come.
func (f *feed) take() ([]piece, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	wait := f.wait
	f.wait = nil
	return wait, f.ended
}

// end says that the turn is over.
func (f *feed) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = true
	f.ring()
}

// close says that nobody reads any more.
func (f *feed) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed, f.wait = true, nil
}
