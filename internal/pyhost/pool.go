package pyhost

import (
	"context"
	"time"
)

const (
	youngAge   = time.Second      // a worker that dies before has died young
	oldAge     = 10 * time.Second // one that lives longer shows that things are well
	freeDeaths = 3                // young deaths in a row before the host waits
	firstWait  = 100 * time.Millisecond
	longestGap = 2 * time.Second
	quitTime   = 2 * time.Second // for a worker to end in order
)

// supervise starts workers: for places that have none, then one as a spare. It
// starts one at a time.
func (h *Host) supervise() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	h.all.Go(func() { // a start under way ends with the host
		select {
		case <-h.stop:
		case <-ctx.Done():
		}
		cancel()
	})
	for {
		wait, need := h.need()
		if !need {
			select {
			case <-h.wake:
				continue
			case <-h.stop:
				return
			}
		}
		if wait > 0 {
			t := time.NewTimer(wait)
			select {
			case <-t.C:
			case <-h.stop:
				t.Stop()
				return
			}
		}
		h.startAnother(ctx)
	}
}

func (h *Host) nudge() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// need says whether a worker must be started, and after which wait.
func (h *Host) need() (time.Duration, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || (h.spare != nil && len(h.vacant) == 0) {
		return 0, false
	}
	if h.quick <= freeDeaths {
		return 0, true
	}
	return min(firstWait<<min(h.quick-freeDeaths-1, 10), longestGap), true
}

// startAnother starts one worker and puts it where it is needed most.
func (h *Host) startAnother(ctx context.Context) {
	w, r, err := h.launch(ctx, h.skip)
	if err == nil {
		err = w.fit(h.catalogue, r, h.log)
	}
	if err != nil {
		if ctx.Err() == nil {
			h.log.Error("a Python worker could not be started", "error", err)
			h.event(Event{Kind: WorkerFailed, Place: -1, Why: err.Error()})
			h.mu.Lock()
			h.quick++
			h.mu.Unlock()
		}
		return
	}
	es, late := h.place(w)
	tellAll(es)
	if late {
		h.quit(ctx, w)
	}
}

// place puts a worker that is ready where it is needed most; late says that the
// host is closed and the worker not needed at all.
func (h *Host) place(w *worker) (es []ending, late bool) {
	took := time.Since(w.start)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, true
	}
	if w.dead {
		h.quick++
		return nil, false
	}
	h.log.Info("a Python worker is ready", "pid", w.proc.pid(), "took", took)
	h.event(Event{Kind: WorkerStarted, Place: -1, PID: w.proc.pid()})
	w.ready = time.Now()
	if len(h.vacant) == 0 {
		h.spare = w
		return nil, false
	}
	p := h.vacant[0]
	h.vacant = h.vacant[1:]
	return h.settle(p, w), false
}

// settle gives a place a worker. The caller holds h.mu, and tells what is returned
// once it does not.
func (h *Host) settle(p *place, w *worker) []ending {
	why, es := p.take(w)
	h.log.Info("a Python worker serves", "worker", p.index, "pid", w.proc.pid())
	if why != "" {
		h.event(Event{Kind: WorkerReplaced, Place: p.index, PID: w.proc.pid(), Why: why})
	}
	return es
}

// lost is called once for each worker that is dead and has been read to its end.
func (h *Host) lost(w *worker) {
	h.mu.Lock()
	w.dead = true
	p := w.place.Load()
	switch age := time.Since(w.ready); {
	case w.ready.IsZero(): // it was loading; who loads it sees to the rest
	case age < youngAge:
		h.quick++
	case age > oldAge:
		h.quick = 0
	}
	if h.spare == w {
		h.spare = nil
		if !h.closed {
			h.log.Warn("the spare Python worker was lost", "pid", w.proc.pid(), "why", w.ended())
			h.event(Event{Kind: WorkerFailed, Place: -1, PID: w.proc.pid(), Why: w.ended()})
		}
	}
	h.mu.Unlock()
	if p != nil {
		failed := p.lose(w, w.ended())
		failed = append(failed, h.refill(p)...) // who waits is served before who has failed is told
		h.nudge()
		tellAll(failed)
		return
	}
	h.nudge()
}

// refill gives the place the spare, if there is one, and returns what is to be
// told.
func (h *Host) refill(p *place) (es []ending) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch w := h.spare; {
	case h.closed:
	case w != nil:
		h.spare = nil
		es = h.settle(p, w)
	default:
		h.vacant = append(h.vacant, p)
	}
	return es
}

// quit ends a worker in order, or at once when ctx ends or it takes too long.
func (h *Host) quit(ctx context.Context, w *worker) {
	w.send(frameQuit, 0)
	t := time.NewTimer(quitTime)
	defer t.Stop()
	select {
	case <-w.exited:
	case <-ctx.Done():
		w.end("the host closed", false)
	case <-t.C:
		h.log.Warn("a Python worker did not end in order and was killed", "pid", w.proc.pid())
		w.end("it did not end in order", true)
	}
	<-w.gone
}
