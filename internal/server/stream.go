package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"time"

	"github.com/belay-run/belay/internal/httpio"
	"github.com/belay-run/belay/internal/turn"
)

// form is how a stream is written.
type form interface {
	kind() string // content type
	piece(p piece) []byte
	done(r turn.Report) []byte
	failed(p *problem) []byte
	// idle is what shows that the connection lives; nil for none.
	idle() []byte
}

const (
	idleFirst = time.Second      // a stream that says nothing begins after this
	idleNext  = 15 * time.Second // and says that it lives every so often
)

// stream runs a turn and sends its texts as they become ready. The turn puts
// them into a feed and never waits for the client; a client that does not read,
// or goes away, cancels the turn.
func (s *Server) stream(ctx context.Context, w *httpio.Writer, in Inbound, f form) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	out := newFeed()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		if err := send(w, out, f); err != nil {
			out.close()
			cancel(fmt.Errorf("the client does not read: %w", err))
		}
	}()
	report, err := s.talk(ctx, in, out)
	out.end()
	<-sent
	switch {
	case w.Failed() != nil:
	case err == nil:
		open(w, f)
		_, _ = w.Write(f.done(report))
	case w.Status() == 0:
		s.refuse(ctx, w, err)
	default:
		if p := s.why(ctx, err); p != nil {
			_, _ = w.Write(f.failed(p))
		}
	}
}

// open begins the answer. Until then it can still become a problem.
func open(w *httpio.Writer, f form) {
	if w.Status() == 0 {
		w.Header().Set("Content-Type", f.kind())
		w.Header().Set("X-Accel-Buffering", "no") // a proxy in front must not gather it
		w.WriteHeader(http.StatusOK)
	}
}

// send writes what the feed gives until it ends.
func send(w *httpio.Writer, out *feed, f form) error {
	idle := time.NewTimer(idleFirst)
	defer idle.Stop()
	for {
		pieces, ended := out.take()
		if err := write(w, f, pieces); err != nil {
			return err
		}
		if ended {
			return nil
		}
		select {
		case <-out.wake:
			continue
		case <-idle.C:
		}
		if sign := f.idle(); sign != nil {
			open(w, f)
			if _, err := w.Write(sign); err != nil {
				return err
			}
			if err := w.FlushError(); err != nil {
				return err
			}
		}
		idle.Reset(idleNext)
	}
}

func write(w *httpio.Writer, f form, pieces []piece) error {
	wrote := false
	for _, p := range pieces {
		if b := f.piece(p); b != nil {
			open(w, f)
			if _, err := w.Write(b); err != nil {
				return err
			}
			wrote = true
		}
	}
	if !wrote {
		return nil
	}
	return w.FlushError()
}

// lines is one JSON object a line, as clients of the webhook know it.
type lines struct{ recipient string }

func (*lines) kind() string { return "application/x-ndjson" }

func (l *lines) piece(p piece) []byte {
	if p.delta != nil {
		return nil
	}
	return append(written(Reply{l.recipient, p.text.Text}), '\n')
}

func (*lines) done(turn.Report) []byte { return nil }

func (*lines) failed(p *problem) []byte {
	return append(written(map[string]*problem{"error": p}), '\n')
}

func (*lines) idle() []byte { return nil }

// events are server-sent events.
type events struct{}

func (*events) kind() string { return "text/event-stream" }

func event(name string, data any) []byte {
	return append(append([]byte("event: "+name+"\ndata: "), written(data)...), "\n\n"...)
}

func (*events) piece(p piece) []byte {
	if p.delta != nil {
		return event("delta", struct {
			Text string `json:"text"`
		}{string(p.delta)})
	}
	return event("text", Said{Text: p.text.Text, Source: p.text.Source, Streamed: p.text.Streamed})
}

func (*events) done(r turn.Report) []byte {
	return event("done", struct {
		Turn   string `json:"turn_id"`
		Status string `json:"status"`
		Ended  bool   `json:"ended,omitempty"`
	}{r.Turn, r.Status, r.Ended})
}

func (*events) failed(p *problem) []byte { return event("error", p) }

func (*events) idle() []byte { return []byte(": still here\n\n") }

// written is a value of our own as JSON, on one line.
func written(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("server: %T has no JSON form: %v", v, err))
	}
	return b
}

func typeOf[T any]() reflect.Type { return reflect.TypeFor[T]() }
