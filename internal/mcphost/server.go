package mcphost

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// steady is how long a server must have served for its death to count as the first
// failure again.
const steady = 10 * time.Second

// ErrClosed says that the server was closed by [Server.Close].
var ErrClosed = errors.New("closed")

// Server is one configured server. It starts when it is first needed and again
// after each death. Its methods may be called from any goroutine.
type Server struct {
	cfg    Config
	log    *slog.Logger
	out    *printed
	client *mcp.Client
	dial   func() (link, error)
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	hurry  context.Context // ends when Close may wait no longer
	rush   context.CancelFunc
	owner  sync.WaitGroup // of all goroutines; added to under mu while not closed, or by one of them

	mu       sync.Mutex
	closed   bool
	current  *session // ready, or ended a moment ago
	starting *attempt
	failures int       // in a row
	failed   time.Time // the last of them
	version  int       // of versions: the one that worked
}

// attempt is a start under way.
type attempt struct {
	done chan struct{} // closed when session or err is set
	*session
	err error
}

// versions are the protocols with which a session is opened. "initialize" comes
// first: all servers know it but the newest, and some old ones die of what came
// after. A server that refuses it is asked the new way.
var versions = []string{"2025-11-25", "2026-07-28"}

// Open returns the server of a configuration, which is not started yet.
func Open(cfg Config) (*Server, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	s := &Server{cfg: cfg, log: cfg.Logger.With("server", cfg.ID)}
	s.out = newPrinted(s.log, time.Now, cfg.Env, cfg.Headers)
	s.dial = func() (link, error) {
		s.out.forget()
		return dialProcess(cfg, s.out, s.tell())
	}
	if cfg.URL != "" {
		s.dial = func() (link, error) { return dialHTTP(s.hurry, cfg), nil }
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.hurry, s.rush = context.WithCancel(context.Background())
	s.client = mcp.NewClient(&mcp.Implementation{Name: "belay", Version: cfg.Version}, &mcp.ClientOptions{
		Logger:         s.log,
		Capabilities:   &mcp.ClientCapabilities{},
		MultiRoundTrip: &mcp.MultiRoundTripOptions{Disabled: true}, // it makes a call more than once
	})
	return s, nil
}

// ID returns the configured id.
func (s *Server) ID() string { return s.cfg.ID }

// Close ends the server and waits until nothing of it is left. Calls in flight
// have the outcome [Unknown]. When ctx ends first, what is left is killed.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	if current := s.current; !s.closed && current != nil {
		s.owner.Go(func() { current.end("it was stopped") })
	}
	s.closed = true
	s.cancel()
	s.mu.Unlock()
	stop := context.AfterFunc(ctx, s.rush)
	defer stop()
	s.owner.Wait()
	return nil
}

// ready returns a session, starting the server if need be. It waits until ctx or
// until ends.
func (s *Server) ready(ctx context.Context, until <-chan time.Time) (*session, error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, fmt.Errorf("server %q is %w", s.cfg.ID, ErrClosed)
	}
	if s.current != nil && !s.current.isLost() {
		defer s.mu.Unlock()
		return s.current, nil
	}
	if s.starting == nil {
		a, before := &attempt{done: make(chan struct{})}, s.current
		rest := time.Duration(0)
		if s.failures > 0 {
			rest = s.cfg.Backoff(s.failures) - time.Since(s.failed)
		}
		s.starting = a
		s.owner.Go(func() { s.start(a, before, rest) })
	}
	a := s.starting
	s.mu.Unlock()
	select {
	case <-a.done:
		return a.session, a.err
	case <-ctx.Done():
		return nil, fmt.Errorf("it was given up while server %q was not ready yet: %w", s.cfg.ID, context.Cause(ctx))
	case <-until:
		return nil, fmt.Errorf("server %q was not ready within %s", s.cfg.ID, s.cfg.StartTimeout)
	}
}

// start opens a session once the one before is gone and the rest is over.
func (s *Server) start(a *attempt, before *session, rest time.Duration) {
	began := time.Now()
	if before != nil {
		<-before.gone
	}
	var err error
	if rest > 0 {
		t := time.NewTimer(rest)
		defer t.Stop()
		select {
		case <-t.C:
		case <-s.ctx.Done():
		}
	}
	var sess *session
	if err = s.ctx.Err(); err == nil {
		sess, err = s.open()
	}
	s.mu.Lock()
	s.starting = nil
	if s.ctx.Err() != nil && err != nil {
		err = ErrClosed
	}
	var failures int
	if err != nil {
		s.failures++
		s.failed = time.Now()
		failures = s.failures
		a.err = fmt.Errorf("server %q did not start: %w", s.cfg.ID, err)
	} else {
		s.current, a.session = sess, sess
		s.owner.Go(func() { s.watch(sess) })
	}
	closed := s.closed
	s.mu.Unlock()
	if err == nil {
		s.log.Info("mcp server started", "pid", sess.link.pid())
		s.event(Event{Kind: Started, PID: sess.link.pid(), Took: time.Since(began)})
		if closed {
			sess.end("it was stopped")
		}
	} else if !errors.Is(err, ErrClosed) {
		s.log.Warn("mcp server did not start", "error", err, "failures", failures)
		s.event(Event{Kind: StartFailed, Why: err.Error(), Failures: failures})
	}
	close(a.done)
}

// open connects within the time for a start.
func (s *Server) open() (*session, error) {
	ctx, cancel := context.WithTimeout(s.ctx, s.cfg.StartTimeout)
	defer cancel()
	for {
		sess, refused, err := s.connect(ctx, versions[s.version])
		if err == nil {
			return sess, nil
		}
		if !refused || ctx.Err() != nil {
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				err = fmt.Errorf("it was not ready within %s", s.cfg.StartTimeout)
			}
			if words := s.out.lastWords(); words != "" && s.cfg.URL == "" {
				err = fmt.Errorf("%w; the last line it printed: %s", err, words)
			}
			return nil, err
		}
		s.version++
		if s.version == len(versions) {
			s.version = 0
			return nil, err
		}
	}
}

// connect opens a session in one version of the protocol. refused says that the
// server answered, but would not have it.
func (s *Server) connect(ctx context.Context, version string) (_ *session, refused bool, _ error) {
	l, err := s.dial()
	if err != nil {
		return nil, false, err
	}
	// The SDK's own attempt to say goodbye must not outlast the time for a start.
	stop := context.AfterFunc(ctx, l.abort)
	p := &pending{done: make(chan struct{})}
	cs, err := s.client.Connect(withPending(ctx, p), l.transport(), &mcp.ClientSessionOptions{ProtocolVersion: version})
	if !stop() && err == nil {
		_ = cs.Close()
		err = ctx.Err()
	}
	if err != nil {
		r := p.reply()
		switch {
		case r.refusal != nil:
			err = fmt.Errorf("it refused the session: %s (MCP error %d)", r.refusal.Message, r.refusal.Code)
		case r.failure != nil:
			err = r.failure
		case s.cfg.URL != "":
			err = errors.New(plainError(err))
		case ctx.Err() == nil:
			err = errors.New(l.reason(err))
		}
		l.stop(s.hurry.Done())
		return nil, r.answered && ctx.Err() == nil, err
	}
	l.connected()
	sess := &session{
		ClientSession: cs, link: l, since: time.Now(), inflight: map[*pending]struct{}{},
		lost: make(chan struct{}), gone: make(chan struct{}),
	}
	sess.ctx, sess.leave = context.WithCancel(context.Background())
	return sess, false, nil
}

// watch waits for the end of a session and clears up after it.
func (s *Server) watch(sess *session) {
	err := sess.Wait()
	calls := len(sess.calls())
	sess.why = sess.link.reason(err)
	sess.leave()
	s.mu.Lock()
	closed := s.closed
	failures := 0
	if !closed {
		if time.Since(sess.since) >= steady {
			s.failures = 0
		}
		s.failures++
		s.failed = time.Now()
		failures = s.failures
	}
	close(sess.lost)
	s.mu.Unlock()
	if closed {
		s.log.Info("mcp server stopped")
	} else {
		s.log.Warn("mcp server lost", "why", sess.why, "calls", calls, "failures", failures)
		s.event(Event{Kind: Lost, PID: sess.link.pid(), Why: sess.why, Failures: failures, Calls: calls})
	}
	sess.link.stop(s.hurry.Done())
	close(sess.gone)
}

func (s *Server) event(e Event) {
	if s.cfg.OnEvent != nil {
		e.Server = s.cfg.ID
		s.cfg.OnEvent(e)
	}
}
