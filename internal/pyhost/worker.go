package pyhost

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// worker is one Python process. It is loading until its ready frame, then a
// spare until a place takes it, then it serves that place until it is lost.
type worker struct {
	host  *Host
	proc  *process
	box   *outbox
	out   *output
	start time.Time

	loading chan frame    // importing, ready and cannot frames, until it is ready
	loaded  chan struct{} // closed once nobody waits for those
	place   atomic.Pointer[place]

	// Its own numbers for the host's handles; -1 for what it does not have.
	hooks, tools []int

	ready time.Time // guarded by the host's lock
	dead  bool      // guarded by the host's lock

	mu     sync.Mutex
	why    string // why the host ends it; empty while it does not
	reaped bool

	doomed chan struct{} // closed once the host has decided to end it
	exited chan struct{} // closed once the process has ended
	gone   chan struct{} // closed once nothing of it is left
	status string        // how the process ended; read after exited

	serving // guarded by the place's lock
}

// newWorker starts a process and the goroutines that belong to it. They end with
// the process.
func (h *Host) newWorker() (*worker, error) {
	proc, err := startProcess(h.interpreter(), h.sdk, h.cfg.Dir)
	if err != nil {
		return nil, err
	}
	w := &worker{
		host: h, proc: proc, start: time.Now(),
		loading: make(chan frame), loaded: make(chan struct{}),
		doomed: make(chan struct{}), exited: make(chan struct{}), gone: make(chan struct{}),
	}
	w.live = map[uint32]*call{}
	log := h.log.With("pid", proc.pid())
	w.out = newOutput(log, time.Now, func(n int64) {
		h.event(Event{Kind: OutputSuppressed, Place: w.placeIndex(), PID: proc.pid(), Bytes: n})
	})
	w.box, err = newOutbox(proc.in, w.pump, func(err error) {
		w.endUnlessExits(fmt.Sprintf("it does not read its pipe (%v)", err))
	})
	if err != nil {
		// The pipe was made a moment ago: this does not happen. The process
		// ends by itself when its pipes close.
		proc.close()
		_ = proc.cmd.Wait()
		return nil, err
	}
	read, text, written := make(chan struct{}), make(chan struct{}), make(chan struct{})
	h.all.Go(func() { defer close(read); w.read() })
	h.all.Go(func() { defer close(text); w.out.copyFrom(proc.text) })
	h.all.Go(func() { defer close(written); w.box.run() })
	h.all.Go(func() { w.await(read, text, written) })
	return w, nil
}

// await waits for the process and clears up after it. It goes by the process's
// end and not by the pipe's, which a child of a hook may hold open.
func (w *worker) await(read, text, written <-chan struct{}) {
	err := w.proc.cmd.Wait()
	w.mu.Lock()
	w.proc.kill() // what it left in its group
	w.reaped = true
	w.mu.Unlock()
	w.status = "it ended in order"
	if err != nil {
		w.status = "it ended with " + err.Error()
	}
	close(w.exited)
	deadline := time.Now().Add(drain)
	_ = w.proc.out.SetReadDeadline(deadline)
	_ = w.proc.text.SetReadDeadline(deadline)
	<-read // every answer that it wrote has been dealt with
	w.host.lost(w)
	<-text
	w.box.close()
	_ = w.proc.in.SetWriteDeadline(time.Now())
	<-written
	w.proc.close()
	close(w.gone)
}

// end decides that the process must go. A stuck one first gets a moment to write
// its stack to the log. What follows for its calls is decided once it is dead
// and all that it wrote has been read: a tool that begins in this very moment
// must not run a second time elsewhere.
func (w *worker) end(why string, stuck bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.isDoomed() {
		return
	}
	close(w.doomed)
	if w.reaped {
		return // it was faster
	}
	w.why = why
	if !stuck {
		w.proc.kill()
		return
	}
	w.proc.dump()
	w.host.all.Go(func() {
		t := time.NewTimer(dumpTime)
		defer t.Stop()
		select {
		case <-t.C:
		case <-w.exited:
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if !w.reaped {
			w.proc.kill()
		}
	})
}

// endUnlessExits is for a broken pipe: mostly it is broken because the process has
// ended, and that says more.
func (w *worker) endUnlessExits(why string) {
	t := time.NewTimer(drain)
	defer t.Stop()
	select {
	case <-w.exited:
	case <-t.C:
		w.end(why, false)
	}
}

// ended says in words why the worker is no more. Call it after exited.
func (w *worker) ended() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.why != "" {
		return w.why
	}
	return w.status
}

func (w *worker) isDoomed() bool {
	select {
	case <-w.doomed:
		return true
	default:
		return false
	}
}

func (w *worker) placeIndex() int {
	if p := w.place.Load(); p != nil {
		return p.index
	}
	return -1
}

// read deals with what the worker writes, until its pipe ends.
func (w *worker) read() {
	r := bufio.NewReaderSize(w.proc.out, readBuffer)
	for {
		f, err := readFrame(r)
		if err == nil {
			err = w.handle(f)
		}
		var p *protocolError
		switch {
		case err == nil:
			continue
		case errors.As(err, &p):
			w.host.event(Event{Kind: ProtocolBroken, Place: w.placeIndex(), PID: w.proc.pid(), Why: p.what})
			w.end("something else was written to its pipe: "+p.what, false)
		case errors.Is(err, io.EOF):
			w.endUnlessExits("it closed its pipe")
		}
		return
	}
}

func (w *worker) handle(f frame) error {
	switch f.kind {
	case frameImporting, frameReady, frameCannot:
		select {
		case <-w.loaded:
			return broken("a frame of type %q came from a worker at work", f.kind)
		default:
		}
		select {
		case w.loading <- f:
		case <-w.loaded:
		}
		return nil
	}
	p := w.place.Load()
	switch {
	case p != nil:
		return p.handle(w, f)
	case f.kind == frameBeat:
		return nil
	}
	return broken("a frame of type %q came from a worker that was asked nothing", f.kind)
}

// pump sends what waits, after a backlog has gone.
func (w *worker) pump() {
	if p := w.place.Load(); p != nil {
		p.pump(w)
	}
}

func (w *worker) send(kind byte, id uint32) {
	w.box.send(func(b []byte) []byte { return appendFrame(b, kind, id, nil) })
}
