package mcphost

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// pending is one request on its way. It travels in the request's context, through
// the SDK, to the connection, which notes in it what the SDK does not tell: when
// the request went out, and the answer's own bytes. The SDK decodes answers to
// maps, which lose the order of keys and the digits of long numbers.
type pending struct {
	onBegun func()
	opaque  bool          // the SDK need not see the result
	done    chan struct{} // closed when nobody waits any more

	mu       sync.Mutex
	id       jsonrpc.ID
	begun    time.Time
	answered bool
	result   json.RawMessage
	refusal  *jsonrpc.Error // the answer is this error
	status   int            // of HTTP
	failure  error          // of HTTP
}

type pendingKey struct{}

func withPending(ctx context.Context, p *pending) context.Context {
	return context.WithValue(ctx, pendingKey{}, p)
}

func pendingOf(ctx context.Context) *pending {
	p, _ := ctx.Value(pendingKey{}).(*pending)
	return p
}

// begin notes that the request goes out now.
func (p *pending) begin() {
	p.mu.Lock()
	first := p.begun.IsZero()
	if first {
		p.begun = time.Now()
	}
	p.mu.Unlock()
	if first && p.onBegun != nil {
		p.onBegun()
	}
}

// unbegin notes that not a byte of the request could be written.
func (p *pending) unbegin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.begun = time.Time{}
}

// answer keeps the first answer.
func (p *pending) answer(r *jsonrpc.Response) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.answered {
		return
	}
	p.answered, p.result = true, r.Result
	if r.Error != nil {
		p.refusal = &jsonrpc.Error{Message: r.Error.Error()}
		if e, ok := r.Error.(*jsonrpc.Error); ok {
			p.refusal = e
		}
	}
}

// reply is what is known of a request.
type reply struct {
	begun    time.Time // zero: it never went out
	answered bool
	result   json.RawMessage
	refusal  *jsonrpc.Error
	status   int
	failure  error
}

func (p *pending) reply() reply {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := reply{p.begun, p.answered, p.result, p.refusal, p.status, p.failure}
	if r.status >= 300 && r.status < 500 {
		r.begun = time.Time{} // an HTTP server that refuses a request has not run it
	}
	return r
}

func (p *pending) setID(id jsonrpc.ID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.id = id
}

func (p *pending) number() jsonrpc.ID {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.id
}

func (p *pending) setHTTP(status int, failure error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status, p.failure = status, failure
}
