package model

import (
	"io"
	"net/http"
	"time"
)

const (
	// maxAnswer is the largest answer that is read. It is counted after
	// decompression.
	maxAnswer = 16 << 20
	// maxError is how much is read of an error's body, of which only the code
	// is used.
	maxError = 64 << 10
)

// capped is a transport whose answers end at a size.
type capped struct{ next http.RoundTripper }

func (t capped) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := t.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode >= 300 {
		res.Body = readCloser{io.LimitReader(res.Body, maxError), res.Body}
	} else {
		res.Body = readCloser{&atMost{res.Body, maxAnswer}, res.Body}
	}
	return res, nil
}

// CloseIdleConnections is what http.Client looks for.
func (t capped) CloseIdleConnections() {
	if c, ok := t.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

type readCloser struct {
	io.Reader
	io.Closer
}

// atMost fails once more bytes have come than are left.
type atMost struct {
	r    io.Reader
	left int
}

func (a *atMost) Read(p []byte) (int, error) {
	n, err := a.r.Read(p)
	if a.left -= n; a.left < 0 {
		return 0, errTooLarge
	}
	return n, err
}

// pulse reads a stream and stops the request when nothing comes for the limit.
// Only waiting for the provider counts, not what is done with the pieces, and
// only once the stream has begun: how long a model thinks before its first piece
// is bounded by the whole call's time.
type pulse struct {
	body  io.Reader
	limit time.Duration
	stop  func()
	begun bool
	timer *time.Timer
}

func (p *pulse) Read(b []byte) (int, error) {
	if p.begun {
		if p.timer == nil {
			p.timer = time.AfterFunc(p.limit, p.stop)
		} else {
			p.timer.Reset(p.limit)
		}
		defer p.timer.Stop()
	}
	return p.body.Read(b)
}

func (p *pulse) end() {
	if p.timer != nil {
		p.timer.Stop()
	}
}
