package pyhost

import "sync"

// EventKind names what happened to a worker.
type EventKind string

// The events.
const (
	WorkerStarted    EventKind = "worker_started"    // a worker is ready
	WorkerReplaced   EventKind = "worker_replaced"   // a worker took a lost one's place
	WorkerFailed     EventKind = "worker_failed"     // a worker could not start, or a spare died; Why
	StateLost        EventKind = "state_lost"        // a worker that served is gone, and its modules' state; Why, Hook, Lost, Again
	OutputSuppressed EventKind = "output_suppressed" // hooks printed more than the log takes; Bytes
	ProtocolBroken   EventKind = "protocol_broken"   // somebody wrote into the worker's pipe; Why
	StillRuns        EventKind = "still_runs"        // a cancelled call goes on; Hook
)

// Event is something that happened to a worker, for metrics and traces.
type Event struct {
	Kind  EventKind
	Place int    // which of the host's workers, from 0; -1 for a spare
	PID   int    // of the process
	Why   string // in words
	Hook  string // name of the hook or tool that caused it, when known
	Lost  int    // calls that failed because they had begun
	Again int    // calls asked again because they had not
	Bytes int64
}

// events hands events to their listener in order, from a goroutine of its own:
// they happen while locks are held.
type events struct {
	mu     sync.Mutex
	queue  []Event
	wake   chan struct{} // nil when nobody listens
	closed bool
}

func (q *events) start(listen func(Event), owner *sync.WaitGroup) {
	if listen == nil {
		return
	}
	q.wake = make(chan struct{}, 1)
	owner.Go(func() {
		for range q.wake {
			for _, e := range q.take() {
				listen(e)
			}
		}
		for _, e := range q.take() {
			listen(e)
		}
	})
}

func (q *events) take() []Event {
	q.mu.Lock()
	defer q.mu.Unlock()
	es := q.queue
	q.queue = nil
	return es
}

func (q *events) add(e Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.wake == nil || q.closed {
		return
	}
	q.queue = append(q.queue, e)
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *events) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.wake != nil && !q.closed {
		q.closed = true
		close(q.wake)
	}
}
