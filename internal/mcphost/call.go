package mcphost

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/belay-run/belay/internal/logline"
	"github.com/belay-run/belay/internal/rawjson"
)

// CallRequest is one call of a function.
type CallRequest struct {
	Tool      string
	Arguments json.RawMessage // a JSON object; nil: {}
	Meta      map[string]json.RawMessage
	Timeout   time.Duration // from the request to a server that is ready; 0: none
	OnBegun   func()        // called when the request goes out, and at most once; must return soon
}

var (
	errTime  = errors.New("the time ran out")
	errEnded = errors.New("the session ended")
)

// Call calls a function and says how that ended. It waits for a server that is not
// ready for as long as a start may take. A call that went out is never made again;
// one of which it is certain that it did not is made once more, on a new session.
// When the time runs out, or ctx ends, the server is told that the call is
// cancelled, and what it answers later is dropped.
func (s *Server) Call(ctx context.Context, req CallRequest) Answer {
	asked := time.Now()
	params, err := s.params(req)
	if err != nil {
		return failed(Unavailable, err.Error())
	}
	if ctx.Err() != nil {
		return failed(Unavailable, "the call was given up: "+context.Cause(ctx).Error())
	}
	starting := time.NewTimer(s.cfg.StartTimeout)
	defer starting.Stop()
	if req.OnBegun != nil {
		req.OnBegun = sync.OnceFunc(req.OnBegun)
	}
	for try := 0; ; try++ {
		sess, err := s.ready(ctx, starting.C)
		if err != nil {
			a := failed(Unavailable, err.Error())
			a.Waited = time.Since(asked)
			return a
		}
		a, again := s.callOn(ctx, sess, req, params, asked)
		if !again || try > 0 {
			return a
		}
	}
}

func (s *Server) params(req CallRequest) (*mcp.CallToolParams, error) {
	args := req.Arguments
	if len(args) == 0 {
		args = json.RawMessage("{}")
	}
	if !rawjson.IsObject(args) {
		return nil, fmt.Errorf("the arguments of %s are not a JSON object", req.Tool)
	}
	params := &mcp.CallToolParams{Name: req.Tool, Arguments: args}
	total := len(args)
	for key, v := range req.Meta {
		if !json.Valid(v) {
			return nil, fmt.Errorf("the metadata %q is not JSON", key)
		}
		if params.Meta == nil {
			params.Meta = mcp.Meta{}
		}
		params.Meta[key] = v
		total += len(key) + len(v)
	}
	if total > s.cfg.MaxMessage {
		return nil, fmt.Errorf("the arguments of %s have more than %s, the most that a message may have", req.Tool, size(s.cfg.MaxMessage))
	}
	return params, nil
}

// callOn makes a call on a session. again says that it never began and that the
// session is lost.
func (s *Server) callOn(ctx context.Context, sess *session, req CallRequest, params *mcp.CallToolParams, asked time.Time) (_ Answer, again bool) {
	p := &pending{onBegun: req.OnBegun, opaque: true, done: make(chan struct{})}
	untrack := sess.track(p)
	defer untrack()
	callCtx, cancel := context.WithCancelCause(withPending(ctx, p))
	defer cancel(nil)
	defer context.AfterFunc(sess.ctx, func() { cancel(errEnded) })()
	if req.Timeout > 0 {
		t := time.AfterFunc(req.Timeout, func() { cancel(errTime) })
		defer t.Stop()
	}
	called := time.Now()
	own := *params
	own.Meta = maps.Clone(params.Meta) // the SDK writes into it
	_, err := sess.CallTool(callCtx, &own)
	r := p.reply()
	a := s.judge(callCtx, sess, req, r, err)
	end := time.Now()
	begun := r.begun
	if begun.IsZero() {
		begun = called
	}
	a.Took, a.Waited = end.Sub(begun), begun.Sub(asked)
	late := !r.answered && context.Cause(callCtx) == errTime
	if late {
		sess.suspect(s.cfg.PingTimeout, s.spawn)
	}
	return a, a.Outcome == Unavailable && !late && ctx.Err() == nil && sess.isLost()
}

// judge says how a call ended.
func (s *Server) judge(ctx context.Context, sess *session, req CallRequest, r reply, err error) Answer {
	switch {
	case r.answered && r.refusal != nil:
		a := failed(Error, refusalWords(r.refusal, s.shortened))
		a.Text = r.refusal.Message
		a.Value = rawjson.Must(a.Text)
		return a
	case r.answered:
		return readResult(r.result, s.shortened)
	}
	lost := Unknown
	if r.begun.IsZero() {
		lost = Unavailable
	}
	switch cause := context.Cause(ctx); {
	case cause == errTime && lost == Unavailable:
		return failed(lost, fmt.Sprintf("the server did not take the request within %s", req.Timeout))
	case cause == errTime:
		return failed(Timeout, fmt.Sprintf("no answer within %s", req.Timeout))
	case cause != nil && cause != errEnded:
		return failed(lost, "the call was given up: "+cause.Error())
	case errors.Is(r.failure, errFlood):
		return failed(Error, fmt.Sprintf("server %q: %v", s.cfg.ID, r.failure))
	case r.failure != nil && r.status != http.StatusNotFound:
		return failed(lost, fmt.Sprintf("server %q: %v", s.cfg.ID, r.failure))
	}
	return failed(lost, fmt.Sprintf("server %q %s", s.cfg.ID, sess.loss(err)))
}

// shortened cuts what a server said.
func (s *Server) shortened(text string) string {
	if len(text) <= failureMost {
		return text
	}
	return shortened(logline.Masked(s.log, text))
}

// refusalWords is an MCP error in words; some servers put its code into its message.
func refusalWords(e *jsonrpc.Error, short func(string) string) string {
	prefix := fmt.Sprintf("MCP error %d: ", e.Code)
	return prefix + short(strings.TrimPrefix(e.Message, prefix))
}

// loss says why a request on a session had no answer.
func (s *session) loss(err error) string {
	wait := drain // until the reason is known
	if s.link.hangs() {
		wait = 4 * drain
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-s.lost:
		return "was lost: " + s.why
	case <-t.C:
	}
	if err == nil {
		err = errEnded
	}
	return "gave no answer: " + shortened(plainError(err))
}

// spawn runs f beside, unless the server is closed.
func (s *Server) spawn(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.owner.Go(f)
	}
}
