package httpio

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// Ends say how a server stops: its requests may end by themselves, and are cancelled
// after a while.
type Ends struct {
	Grace  time.Duration // for requests to end by themselves
	Last   time.Duration // for those that were cancelled
	Begin  func()        // told when the server begins to stop; may be nil
	Cancel func()        // told before requests are cancelled
}

// Life is a server's time from listening to the end of its last request.
type Life struct {
	http *http.Server
	ends Ends

	requests context.Context // every request's context ends with it
	cancel   context.CancelFunc

	stop    sync.Once
	stopped chan struct{}
	err     error
}

// NewLife gives a server, which serves nothing else yet, its life.
func NewLife(s *http.Server, e Ends) *Life {
	l := &Life{http: s, ends: e, stopped: make(chan struct{})}
	l.requests, l.cancel = context.WithCancel(context.Background())
	s.BaseContext = func(net.Listener) context.Context { return l.requests }
	return l
}

// Over says whether requests that run are cancelled.
func (l *Life) Over() bool { return l.requests.Err() != nil }

// Serve serves until ctx ends, then stops in order; see [Life.Shutdown]. ready is
// called once it serves; it may be nil. It returns when no request runs any more.
func (l *Life) Serve(ctx context.Context, listener net.Listener, ready func(net.Addr)) error {
	served := make(chan error, 1)
	go func() { served <- l.http.Serve(listener) }()
	if ready != nil {
		ready(listener.Addr())
	}
	select {
	case err := <-served:
		if !errors.Is(err, http.ErrServerClosed) {
			return errors.Join(fmt.Errorf("serve on %s: %w", listener.Addr(), err), l.within(ctx))
		}
		<-l.stopped // somebody called Shutdown
		return l.err
	case <-ctx.Done():
	}
	err := l.within(ctx)
	<-served
	return err
}

func (l *Life) within(ctx context.Context) error {
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.ends.Grace)
	defer cancel()
	return l.Shutdown(grace)
}

// Shutdown stops listening and lets running requests end. When ctx ends first it
// cancels them and waits for their ends. It returns when no request runs any more.
func (l *Life) Shutdown(ctx context.Context) error {
	l.stop.Do(func() {
		defer close(l.stopped)
		defer l.cancel()
		if l.ends.Begin != nil {
			l.ends.Begin()
		}
		if l.http.Shutdown(ctx) == nil {
			return
		}
		l.ends.Cancel()
		l.cancel()
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.ends.Last)
		defer cancel()
		if err := l.http.Shutdown(last); err != nil {
			l.err = errors.Join(errors.New("requests that do not end were cut off"), l.http.Close())
		}
	})
	<-l.stopped
	return l.err
}
