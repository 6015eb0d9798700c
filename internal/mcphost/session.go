package mcphost

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// link is what differs between a process and a URL.
type link interface {
	transport() mcp.Transport
	connected()
	forget(*pending)
	pid() int
	hangs() bool             // one that no longer answers can be ended and started anew
	end(why string)          // makes the session end, for a reason; does not wait
	abort()                  // breaks whatever is under way
	reason(err error) string // in words, once the session has ended with err
	stop(hurry <-chan struct{})
}

// session is one connection to a server that was ready.
type session struct {
	*mcp.ClientSession
	link  link
	since time.Time
	ctx   context.Context // ends with the session
	leave context.CancelFunc
	lost  chan struct{} // closed when the session has ended; why is set
	gone  chan struct{} // closed when nothing is left of it
	why   string

	mu       sync.Mutex
	inflight map[*pending]struct{}
	checking bool
}

// track counts p as in flight until the function it returns is called.
func (s *session) track(p *pending) func() {
	s.mu.Lock()
	s.inflight[p] = struct{}{}
	s.mu.Unlock()
	return func() {
		s.link.forget(p)
		close(p.done)
		s.mu.Lock()
		delete(s.inflight, p)
		s.mu.Unlock()
	}
}

func (s *session) calls() (all []*pending) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.inflight {
		all = append(all, p)
	}
	return all
}

func (s *session) isLost() bool {
	select {
	case <-s.lost:
		return true
	default:
		return false
	}
}

// end makes a session end: its calls are given up, then its connection closes.
func (s *session) end(why string) {
	s.leave()
	s.link.end(why)
	_ = s.ClientSession.Close()
}

// suspect asks the server for a sign of life after a call ran out of time, and ends
// a server that gives none: otherwise everything that is asked after a function that
// blocks for ever would run out of time too. Calls that were there before and still
// have time are left it.
func (s *session) suspect(patience time.Duration, spawn func(func())) {
	s.mu.Lock()
	again := s.checking
	s.checking = true
	s.mu.Unlock()
	if again || !s.link.hangs() {
		return
	}
	spawn(func() {
		if !s.alive(patience) {
			s.link.end(fmt.Sprintf("it gave no sign of life for %s and was ended", patience))
		}
		s.mu.Lock()
		s.checking = false
		s.mu.Unlock()
	})
}

func (s *session) alive(patience time.Duration) bool {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	pong := make(chan struct{})
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	asking.Go(func() {
		p := &pending{done: make(chan struct{})}
		_ = s.Ping(withPending(ctx, p), nil) // an error is a sign of life too
		s.link.forget(p)
		close(pong)
	})
	elders := s.calls()
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case <-pong:
		return true
	case <-t.C:
	}
	for _, p := range elders {
		select {
		case <-pong:
			return true
		case <-p.done:
		}
	}
	return s.isLost()
}

// size says a number of bytes in words.
func size(n int) string {
	if n%(1<<20) == 0 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d bytes", n)
}

// processLink is a server that is a process.
type processLink struct {
	p     *process
	conn  *stdioConn
	grace time.Duration
}

func dialProcess(cfg Config, out *printed, t told) (*processLink, error) {
	p, err := startProcess(cfg, out)
	if err != nil {
		return nil, err
	}
	return &processLink{p: p, conn: newStdioConn(p.stdout, p.stdin, cfg.MaxMessage, t), grace: cfg.Grace}, nil
}

func (l *processLink) transport() mcp.Transport { return l.conn }
func (l *processLink) connected()               { l.conn.connected() }
func (l *processLink) forget(p *pending)        { l.conn.forget(p) }
func (l *processLink) pid() int                 { return l.p.cmd.Process.Pid }
func (l *processLink) hangs() bool              { return true }
func (l *processLink) end(why string)           { l.conn.end(why) }
func (l *processLink) abort()                   { _ = l.conn.Close() }

func (l *processLink) reason(error) string {
	why, deaf := l.conn.why()
	if why != "" {
		return why
	}
	// A pipe has ended; as a rule because the program has.
	t := time.NewTimer(2 * drain)
	defer t.Stop()
	select {
	case <-l.p.exited:
		return l.p.status
	case <-t.C:
	}
	if deaf {
		return "it no longer reads its input"
	}
	return "it closed its output"
}

func (l *processLink) stop(hurry <-chan struct{}) {
	_ = l.conn.Close()
	l.p.stop(l.grace, hurry)
	l.conn.writer.Wait()
}

// tell is whom a server's connection tells what is no answer.
func (s *Server) tell() told {
	return told{
		noise: func(line []byte) {
			if looksLikeMessage(line) {
				s.out.note("mcp server printed what is not one whole message", "bytes", len(line))
				return
			}
			s.out.line(fromStdout, line, 0)
		},
		log: s.serverLog,
		tools: func() {
			if s.out.note("mcp server changed its tools") {
				s.event(Event{Kind: ToolsChanged})
			}
		},
		late: func() {
			if s.out.note("mcp server answered what nobody waits for; the answer was dropped") {
				s.event(Event{Kind: LateAnswer})
			}
		},
	}
}

// serverLog copies a line of the server's own log.
func (s *Server) serverLog(params json.RawMessage) {
	var m struct {
		Data json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(params, &m); err != nil || len(m.Data) == 0 {
		return
	}
	text := []byte(m.Data)
	var words string
	if json.Unmarshal(m.Data, &words) == nil {
		text = []byte(words)
	}
	s.out.line(fromLog, text, 0)
}
