package control

import (
	"net/http"
	"time"
)

// writer gives a client a bounded time to take in each stretch of an answer. A
// deadline for the whole would end feeds; none at all would let a client that
// stopped reading hold on for ever.
type writer struct {
	http.ResponseWriter
	control *http.ResponseController
	stall   time.Duration
	status  int   // 0 until the header is written
	failed  error // the client is gone
}

func newWriter(w http.ResponseWriter, stall time.Duration) *writer {
	out := &writer{ResponseWriter: w, control: http.NewResponseController(w), stall: stall}
	out.extend() // the connection's last request may have left an old deadline
	return out
}

// Unwrap lets http.ResponseController reach the connection.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// extend moves the deadline. Only a recorder in a test has none.
func (w *writer) extend() { _ = w.control.SetWriteDeadline(time.Now().Add(w.stall)) }

func (w *writer) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.extend()
	w.ResponseWriter.WriteHeader(status)
}

const stretch = 16 << 10

func (w *writer) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	written := 0
	for {
		n := min(len(p)-written, stretch)
		w.extend()
		k, err := w.ResponseWriter.Write(p[written : written+n])
		if written += k; err != nil {
			w.failed = err
			return written, err
		}
		if written == len(p) {
			return written, nil
		}
	}
}

// FlushError sends what was written.
func (w *writer) FlushError() error {
	w.extend()
	err := w.control.Flush()
	if err != nil {
		w.failed = err
	}
	return err
}
