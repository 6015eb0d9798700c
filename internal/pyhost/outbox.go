package pyhost

import (
	"os"
	"sync"
	"syscall"
)

const maxBacklog = 4 << 20 // of bytes that wait for a worker to read them

// outbox writes frames to a worker and never blocks: what the pipe does not take
// at once a goroutine writes later.
type outbox struct {
	f       *os.File
	raw     syscall.RawConn
	drained func() // called without the lock after a backlog has gone
	failed  func(error)

	mu      sync.Mutex
	scratch []byte
	pending []byte
	busy    bool // the goroutine writes
	closed  bool
	wake    chan struct{}

	// For the one direct write at a time, so that it allocates nothing.
	now     []byte
	wrote   int
	err     error
	attempt func(fd uintptr) bool
}

func newOutbox(f *os.File, drained func(), failed func(error)) (*outbox, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	o := &outbox{f: f, raw: raw, drained: drained, failed: failed, wake: make(chan struct{}, 1)}
	o.attempt = func(fd uintptr) bool {
		o.wrote, o.err = syscall.Write(int(fd), o.now)
		return true // once: the goroutine waits, if need be
	}
	return o, nil
}

// full says that the worker is behind with reading.
func (o *outbox) full() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.pending) > maxBacklog
}

// send writes the frame that fill appends.
func (o *outbox) send(fill func([]byte) []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return
	}
	if o.busy || len(o.pending) > 0 {
		o.pending = fill(o.pending)
		return
	}
	o.scratch = fill(o.scratch[:0])
	o.now = o.scratch
	if err := o.raw.Write(o.attempt); err != nil {
		o.wrote, o.err = 0, err
	}
	if rest := o.now[max(o.wrote, 0):]; len(rest) > 0 {
		// Whatever the error was, the goroutine's own write meets it.
		o.pending = append(o.pending, rest...)
		select {
		case o.wake <- struct{}{}:
		default:
		}
	}
	o.now = nil
	if cap(o.scratch) > pipeSize {
		o.scratch = nil
	}
}

// run writes the backlog until close.
func (o *outbox) run() {
	var spare []byte // what pending is not; the two are swapped
	for range o.wake {
		for {
			o.mu.Lock()
			batch := o.pending
			o.pending, o.busy = spare[:0], len(batch) > 0
			o.mu.Unlock()
			if spare = batch; cap(spare) > pipeSize {
				spare = nil
			}
			if len(batch) == 0 {
				break
			}
			if _, err := o.f.Write(batch); err != nil {
				o.failed(err)
				return
			}
		}
		o.drained()
	}
}

// close ends run, if the file is closed or its deadline set as well.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed {
		o.closed = true
		close(o.wake)
	}
}
