package mcphost

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Of an SDK session over standard input and output this package makes its own
// connection, for the SDK's ends at the first line that is no message, lets a
// server that does not read block its callers beyond their time, and queues without
// bound what a server sends.

// askedMost is how many requests of a server may wait for their answers.
const askedMost = 256

// noResult stands for a result that only this package reads.
var noResult = json.RawMessage(`{"content":[]}`)

// reader is standard output, whose Read a deadline ends.
type reader interface {
	io.Reader
	SetReadDeadline(time.Time) error
}

// stdioConn is a [mcp.Connection] over lines.
type stdioConn struct {
	in    reader
	lines *lineReader
	out   io.Writer
	max   int
	told  told

	queue  chan *outgoing
	closed chan struct{}
	once   sync.Once
	writer sync.WaitGroup

	backlog []jsonrpc.Message // of a batch; used by Read alone

	mu     sync.Mutex
	calls  map[jsonrpc.ID]*pending
	ready  bool   // all requests from now on are in calls
	asked  int    // requests of the server without an answer
	ending string // why this package ended the connection
	deaf   bool   // the server does not read its input
}

// told is whom a connection tells what is no answer.
type told struct {
	noise func(line []byte)            // a line that is no message
	log   func(params json.RawMessage) // the server's own log
	tools func()                       // the list of tools changed
	late  func()                       // an answer that nobody waits for
}

type outgoing struct {
	data []byte
	call *pending
	done chan error
}

func newStdioConn(in reader, out io.Writer, limit int, t told) *stdioConn {
	c := &stdioConn{
		in: in, lines: newLineReader(in, limit), out: out, max: limit, told: t,
		queue: make(chan *outgoing), closed: make(chan struct{}), calls: map[jsonrpc.ID]*pending{},
	}
	c.writer.Go(c.write)
	return c
}

// Connect makes the connection its own transport; there is one session to it.
func (c *stdioConn) Connect(context.Context) (mcp.Connection, error) { return c, nil }

// SessionID is empty: a process has one session.
func (c *stdioConn) SessionID() string { return "" }

// Close ends the connection. The pipes are the process's to close.
func (c *stdioConn) Close() error {
	c.once.Do(func() {
		close(c.closed)
		_ = c.in.SetReadDeadline(time.Unix(1, 0))
	})
	return nil
}

// end closes the connection for a reason.
func (c *stdioConn) end(why string) {
	c.mu.Lock()
	if c.ending == "" {
		c.ending = why
	}
	c.mu.Unlock()
	_ = c.Close()
}

func (c *stdioConn) why() (ending string, deaf bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ending, c.deaf
}

// Write hands a message to the writer. A call that cannot be handed over in its
// time has never begun.
func (c *stdioConn) Write(ctx context.Context, msg jsonrpc.Message) error {
	data, err := jsonrpc.EncodeMessage(msg)
	if err != nil {
		return err
	}
	o := &outgoing{data: append(data, '\n'), done: make(chan error, 1)}
	switch m := msg.(type) {
	case *jsonrpc.Request:
		if m.IsCall() {
			o.call = pendingOf(ctx)
		}
		if o.call != nil {
			o.call.setID(m.ID)
			c.mu.Lock()
			c.calls[m.ID] = o.call
			c.mu.Unlock()
		}
	case *jsonrpc.Response:
		c.mu.Lock()
		c.asked--
		c.mu.Unlock()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case c.queue <- o:
	case <-ctx.Done():
		return ctx.Err()
	case <-c.closed:
		return io.ErrClosedPipe
	}
	select {
	case err := <-o.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-c.closed:
		return io.ErrClosedPipe
	}
}

// write writes whole messages, one after the other, however long the server takes
// to read them.
func (c *stdioConn) write() {
	for {
		select {
		case <-c.closed:
			return
		case o := <-c.queue:
			if o.call != nil {
				o.call.begin()
			}
			n, err := c.out.Write(o.data)
			if err != nil {
				if n == 0 && o.call != nil {
					o.call.unbegin()
				}
				c.mu.Lock()
				c.deaf = true
				c.mu.Unlock()
				o.done <- err
				c.leave()
				return
			}
			o.done <- nil
		}
	}
}

// leave closes the connection when what the server had answered before it became
// deaf has had time to be read.
func (c *stdioConn) leave() {
	t := time.NewTimer(drain)
	defer t.Stop()
	select {
	case <-t.C:
		_ = c.Close()
	case <-c.closed:
	}
}

// Read returns the next message that is the SDK's business.
func (c *stdioConn) Read(context.Context) (jsonrpc.Message, error) {
	for {
		for len(c.backlog) > 0 {
			m := c.backlog[0]
			c.backlog = c.backlog[1:]
			if pass, err := c.accept(m); pass || err != nil {
				return m, err
			}
		}
		line, err := c.lines.next()
		select {
		case <-c.closed:
			return nil, io.EOF
		default:
		}
		switch {
		case errors.Is(err, errFlood):
			c.end("it sent a message of more than " + size(c.max))
			return nil, err
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil, io.EOF // the process is gone, and somebody else holds its pipe
		case err != nil:
			return nil, err
		}
		all, ok := parseLine(line)
		if !ok {
			c.told.noise(line)
			continue
		}
		c.backlog = all
	}
}

// accept says whether the SDK should see a message.
func (c *stdioConn) accept(m jsonrpc.Message) (bool, error) {
	switch m := m.(type) {
	case *jsonrpc.Response:
		c.mu.Lock()
		p := c.calls[m.ID]
		delete(c.calls, m.ID)
		late := p == nil && c.ready
		c.mu.Unlock()
		if late {
			c.told.late()
			return false, nil
		}
		if p != nil {
			p.answer(m)
			if p.opaque && m.Error == nil {
				m.Result = noResult
			}
		}
		return true, nil
	case *jsonrpc.Request:
		if m.IsCall() {
			c.mu.Lock()
			c.asked++
			flood := c.asked > askedMost
			c.mu.Unlock()
			if flood {
				c.end("it asked too much and did not read the answers")
				return false, errFlood
			}
			return true, nil
		}
		switch m.Method {
		case "notifications/cancelled":
			return true, nil
		case "notifications/message":
			c.told.log(m.Params)
		case "notifications/tools/list_changed":
			c.told.tools()
		}
	}
	return false, nil
}

// forget drops a request whose answer nobody waits for any more.
func (c *stdioConn) forget(p *pending) {
	id := p.number()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls[id] == p {
		delete(c.calls, id)
	}
}

// connected says that from now on each answer belongs to a request in calls.
func (c *stdioConn) connected() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ready = true
}

// looksLikeMessage says whether a line that is no message was meant to be one, and
// may so hold what should not be in a log.
func looksLikeMessage(line []byte) bool { return bytes.Contains(line, []byte(`"jsonrpc"`)) }
