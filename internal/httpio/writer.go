// Package httpio is what the project's HTTP servers have before and after their
// routes: bounds on the time and space that a client may cost, and an end for every
// request.
//
//	func guard(mux *http.ServeMux) http.Handler {
//		return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
//			w := httpio.NewWriter(rw, 30*time.Second)
//			defer func() { w.End(log, recover(), func() { http.Error(w, "sorry", 500) }) }()
//			w.ReadUntil(time.Now().Add(10 * time.Second))
//			if refusal := httpio.ReadBody(w, r, 1<<20, 10*time.Second); refusal != nil {
//				http.Error(w, refusal.Detail, refusal.Status)
//				return
//			}
//			mux.ServeHTTP(w, r)
//		})
//	}
package httpio

import (
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"runtime/debug"
	"time"
)

// Writer gives a client a bounded time to take in each stretch of an answer. A
// deadline for the whole would cut long answers short; none at all would let a
// client that stopped reading hold on for ever.
type Writer struct {
	http.ResponseWriter
	control *http.ResponseController
	stall   time.Duration
	status  int
	failed  error
}

// NewWriter returns a writer whose client may take so long over a stretch.
func NewWriter(w http.ResponseWriter, stall time.Duration) *Writer {
	out := &Writer{ResponseWriter: w, control: http.NewResponseController(w), stall: stall}
	out.extend() // the connection's last request may have left an old deadline
	return out
}

// Status is the answer's status, 0 until its header is written.
func (w *Writer) Status() int { return w.status }

// Failed is why nothing more reaches the client, nil as long as something does.
func (w *Writer) Failed() error { return w.failed }

// ReadUntil sets when the request must have come whole; the zero time is never. Only
// a recorder in a test has no deadline.
func (w *Writer) ReadUntil(t time.Time) { _ = w.control.SetReadDeadline(t) }

// Unwrap lets http.ResponseController reach the connection.
func (w *Writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// extend moves the deadline. Only a recorder in a test has none.
func (w *Writer) extend() { _ = w.control.SetWriteDeadline(time.Now().Add(w.stall)) }

// WriteHeader begins the answer.
func (w *Writer) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.extend()
	w.ResponseWriter.WriteHeader(status)
}

const stretch = 16 << 10

// Write writes in stretches, each with a deadline of its own.
func (w *Writer) Write(p []byte) (int, error) {
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
func (w *Writer) FlushError() error {
	w.extend()
	err := w.control.Flush()
	if err != nil {
		w.failed = err
	}
	return err
}

// End logs a request that has ended. A panic becomes the answer that sorry writes,
// when none was begun; when one was, or the client is gone, the connection is cut.
func (w *Writer) End(log *slog.Logger, panicked any, sorry func(), about ...any) {
	switch {
	case w.failed != nil:
		log.Debug("a client went away", append(about, "error", w.failed)...)
		panic(http.ErrAbortHandler) // so that nothing more is written
	case panicked == nil:
		log.Debug("request", about...)
		return
	case panicked == http.ErrAbortHandler:
		panic(panicked)
	}
	log.Error("a request panicked", append(about, "panic", PanicText(panicked), "stack", string(debug.Stack()))...)
	if w.status != 0 {
		panic(http.ErrAbortHandler)
	}
	sorry()
}

// PanicText says what a panic was. Only the runtime's own words are sure to hold
// nothing of a request.
func PanicText(v any) string {
	if err, ok := v.(runtime.Error); ok {
		return err.Error()
	}
	return fmt.Sprintf("%T", v)
}
