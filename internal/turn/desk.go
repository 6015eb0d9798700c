package turn

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// ErrBusy says that too many messages wait for their turn already.
var ErrBusy = errors.New("too many messages of this conversation wait for their turn")

// ErrClosed says that the desk takes no more turns.
var ErrClosed = errors.New("the service is stopping")

// Desk lets the turns of one conversation run one at a time, in the order in
// which their messages came. Turns of different conversations do not wait for
// one another.
type Desk struct {
	// Queue is how many messages of one conversation may wait; 0 means 8.
	Queue int

	mu     sync.Mutex
	lines  map[string]*queue
	closed bool // takes no more
	hurry  bool // cancels those that are left
	all    sync.WaitGroup
}

// queue is the running turn of one conversation and those that wait.
type queue struct {
	cancel  context.CancelFunc // of the running turn
	waiting []chan struct{}
}

// Run waits for the conversation's turn and calls run. With interrupt it cancels
// the turn that is running first. A ctx that ends while the message waits
// withdraws it: run is then never called. The ctx that run gets ends when ctx
// does, when a later message interrupts, or when the desk is closed in a hurry.
func (d *Desk) Run(ctx context.Context, key string, interrupt bool, run func(ctx context.Context) error) error {
	q, ready, err := d.enter(key, interrupt)
	if err != nil {
		return err
	}
	defer d.all.Done()
	if ready != nil {
		select {
		case <-ready:
		case <-ctx.Done():
			if d.withdraw(key, q, ready) {
				return fmt.Errorf("withdrawn while it waited for its turn: %w", ctx.Err())
			}
			<-ready // its turn came at the same moment: hand it on below
			d.leave(key, q)
			return fmt.Errorf("withdrawn while it waited for its turn: %w", ctx.Err())
		}
	}
	defer d.leave(key, q)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	d.mu.Lock()
	q.cancel = cancel
	if d.hurry {
		cancel()
	}
	d.mu.Unlock()
	return run(ctx)
}

// Idle calls run when no turn of the conversation runs or waits; turns that come
// meanwhile wait for its end. It says whether it did.
func (d *Desk) Idle(key string, run func() error) (idle bool, err error) {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return false, ErrClosed
	}
	if d.lines[key] != nil {
		d.mu.Unlock()
		return false, nil
	}
	q := d.begin(key)
	d.mu.Unlock()
	defer d.all.Done()
	defer d.leave(key, q)
	return true, run()
}

// begin takes the place of a conversation that has none. The caller holds the
// lock.
func (d *Desk) begin(key string) *queue {
	if d.lines == nil {
		d.lines = map[string]*queue{}
	}
	q := &queue{}
	d.lines[key] = q
	d.all.Add(1)
	return q
}

// enter takes a place: at once (ready is nil), or in the queue.
func (d *Desk) enter(key string, interrupt bool) (*queue, chan struct{}, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, nil, ErrClosed
	}
	limit := d.Queue
	if limit == 0 {
		limit = 8
	}
	q := d.lines[key]
	if q == nil {
		return d.begin(key), nil, nil
	}
	if len(q.waiting) >= limit {
		return nil, nil, ErrBusy
	}
	if interrupt && q.cancel != nil {
		q.cancel()
	}
	ready := make(chan struct{})
	q.waiting = append(q.waiting, ready)
	d.all.Add(1)
	return q, ready, nil
}

// withdraw takes a waiting message back; false when its turn has come already.
func (d *Desk) withdraw(key string, q *queue, ready chan struct{}) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, w := range q.waiting {
		if w == ready {
			q.waiting = append(q.waiting[:i:i], q.waiting[i+1:]...)
			return true
		}
	}
	return false
}

// leave hands the conversation to the next message.
func (d *Desk) leave(key string, q *queue) {
	d.mu.Lock()
	defer d.mu.Unlock()
	q.cancel = nil
	if len(q.waiting) == 0 {
		delete(d.lines, key)
		return
	}
	next := q.waiting[0]
	q.waiting = q.waiting[1:]
	close(next)
}

// Close takes no more turns and waits for those that run or wait. When ctx ends
// first it cancels them and waits for their ends.
func (d *Desk) Close(ctx context.Context) {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	done := make(chan struct{})
	go func() { d.all.Wait(); close(done) }()
	select {
	case <-done:
		return
	case <-ctx.Done():
	}
	d.cancelAll()
	<-done
}

// cancelAll cancels the turns that run, and those that wait as soon as they do.
func (d *Desk) cancelAll() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hurry = true
	for _, q := range d.lines {
		if q.cancel != nil {
			q.cancel()
		}
	}
}
