package mcphost

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// httpLink is a server behind a URL. The SDK speaks the protocol; this link is its
// HTTP client, which refuses redirects, bounds answers and notes in the request's
// [pending] what comes back.
type httpLink struct {
	cfg    Config
	base   *http.Transport
	ctx    context.Context // ends all requests
	cancel context.CancelFunc

	mu     sync.Mutex
	ending string
}

func dialHTTP(hurry context.Context, cfg Config) *httpLink {
	l := &httpLink{cfg: cfg, base: &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSHandshakeTimeout: 10 * time.Second,
		ForceAttemptHTTP2:   true,
		MaxIdleConnsPerHost: 8,
		IdleConnTimeout:     90 * time.Second,
	}}
	l.ctx, l.cancel = context.WithCancel(hurry)
	return l
}

func (l *httpLink) transport() mcp.Transport {
	return &mcp.StreamableClientTransport{
		Endpoint: l.cfg.URL,
		HTTPClient: &http.Client{Transport: l, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		}},
		DisableStandaloneSSE: true, // nothing that a server says unasked is of use here
		MaxEventSize:         l.cfg.MaxMessage,
	}
}

func (l *httpLink) connected()      {}
func (l *httpLink) forget(*pending) {}
func (l *httpLink) pid() int        { return 0 }
func (l *httpLink) hangs() bool     { return false }
func (l *httpLink) abort()          { l.cancel() }

func (l *httpLink) end(why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ending = why
	time.AfterFunc(l.cfg.Grace, l.cancel) // for the goodbye
}

func (l *httpLink) reason(err error) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.ending != "":
		return l.ending
	case errors.Is(err, mcp.ErrSessionMissing):
		return "it no longer knows the session"
	case err != nil:
		return "the session broke: " + plainError(err)
	}
	return "the session ended"
}

func (l *httpLink) stop(<-chan struct{}) {
	l.cancel()
	l.base.CloseIdleConnections()
}

// RoundTrip makes one request of the SDK's.
func (l *httpLink) RoundTrip(req *http.Request) (*http.Response, error) {
	p := pendingOf(req.Context())
	ctx, cancel := context.WithCancel(context.WithoutCancel(req.Context()))
	stop := context.AfterFunc(l.ctx, cancel)
	leave := context.AfterFunc(req.Context(), func() {
		if p != nil && p.reply().answered {
			// The stream of the answer is at its end: its connection can be used again.
			time.AfterFunc(drain, cancel)
			return
		}
		cancel()
	})
	release := func() { stop(); leave(); cancel() }
	if p != nil {
		if !isRequest(req, p) {
			p = nil // the SDK says that a call is cancelled, in the call's own context
		} else {
			ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: p.begin})
		}
	}
	out := req.Clone(ctx)
	for name, v := range l.cfg.Headers {
		out.Header.Set(name, v)
	}
	resp, err := l.base.RoundTrip(out)
	if err == nil {
		resp, err = l.check(resp, p)
	}
	if err != nil {
		release()
		if p != nil && req.Context().Err() == nil {
			status := 0
			if resp != nil {
				status = resp.StatusCode
			}
			p.setHTTP(status, err)
		}
		return nil, err
	}
	resp.Body = &releasing{resp.Body, release}
	return resp, nil
}

// isRequest says whether an HTTP request carries p's request, or asks for the rest
// of its answer.
func isRequest(req *http.Request, p *pending) bool {
	if req.Method == http.MethodGet {
		return true
	}
	if req.Method != http.MethodPost || req.GetBody == nil {
		return false
	}
	body, err := req.GetBody()
	if err != nil {
		return false
	}
	raw, err := io.ReadAll(body)
	if err != nil {
		return false
	}
	m, err := jsonrpc.DecodeMessage(raw)
	if r, ok := m.(*jsonrpc.Request); ok && err == nil && r.IsCall() {
		p.setID(r.ID)
		return true
	}
	return false
}

// check bounds the body of a response and keeps what answers p. Along with an
// error it returns the response, whose body is closed.
func (l *httpLink) check(resp *http.Response, p *pending) (*http.Response, error) {
	if to := resp.Header.Get("Location"); resp.StatusCode >= 300 && resp.StatusCode < 400 {
		_ = resp.Body.Close()
		return resp, fmt.Errorf("it redirects to %s, which is refused: configure the final address", place(to))
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if kind == "text/event-stream" && resp.StatusCode == http.StatusOK {
		resp.Body = &eventTap{body: resp.Body, max: l.cfg.MaxMessage, left: 4 * l.cfg.MaxMessage, p: p}
		return resp, nil
	}
	// All of it before the SDK sees it: a body that ends too early, or too late,
	// would end the SDK's whole session.
	body, err := io.ReadAll(io.LimitReader(resp.Body, int64(l.cfg.MaxMessage)+1))
	_ = resp.Body.Close()
	if err == nil && len(body) > l.cfg.MaxMessage {
		err = tooLong(l.cfg.MaxMessage)
	}
	if err != nil {
		return resp, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	if p != nil {
		p.take(body)
		if r := p.reply(); resp.StatusCode >= 400 && !r.answered {
			p.setHTTP(resp.StatusCode, fmt.Errorf("it answered HTTP %s%s", resp.Status, advice(resp.StatusCode)))
		}
	}
	return resp, nil
}

func advice(status int) string {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return ": check the server's headers"
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		return ": check the server's url"
	}
	return ""
}

// place is an address without what may be secret in it.
func place(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "another address"
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// take keeps a message that answers p.
func (p *pending) take(data []byte) {
	m, err := jsonrpc.DecodeMessage(data)
	if r, ok := m.(*jsonrpc.Response); ok && err == nil && r.ID == p.number() {
		p.answer(r)
	}
}

// releasing gives up a request's context when its body is closed.
type releasing struct {
	io.ReadCloser
	release func()
}

func (b *releasing) Close() error {
	err := b.ReadCloser.Close()
	b.release()
	return err
}

func tooLong(limit int) error {
	return fmt.Errorf("%w: more than %s", errFlood, size(limit))
}

// eventTap passes an event stream on, bounds it, and looks in its events for the
// answer to p.
type eventTap struct {
	body io.ReadCloser
	max  int // bytes of one event
	left int // bytes of all
	long bool
	p    *pending
	line []byte
	data []byte
}

func (t *eventTap) Read(b []byte) (int, error) {
	n, err := t.body.Read(b)
	if t.p != nil {
		t.scan(b[:n])
	}
	if t.left -= n; t.left < 0 || t.long {
		err := tooLong(t.max)
		if t.p != nil {
			t.p.setHTTP(http.StatusOK, err)
		}
		return 0, err
	}
	return n, err
}

func (t *eventTap) scan(b []byte) {
	for len(b) > 0 {
		part, rest, whole := bytes.Cut(b, []byte("\n"))
		t.line = append(t.line, part...)
		t.long = t.long || len(t.line)+len(t.data) > t.max
		if !whole || t.long {
			return
		}
		t.endLine(bytes.TrimSuffix(t.line, []byte("\r")))
		t.line = t.line[:0]
		b = rest
	}
}

func (t *eventTap) endLine(line []byte) {
	if data, ok := bytes.CutPrefix(line, []byte("data:")); ok {
		if len(t.data) > 0 {
			t.data = append(t.data, '\n')
		}
		t.data = append(t.data, bytes.TrimPrefix(data, []byte(" "))...)
		return
	}
	if len(line) == 0 && len(t.data) > 0 {
		t.p.take(t.data)
		t.data = nil
	}
}

func (t *eventTap) Close() error { return t.body.Close() }

// plainError is an error of the SDK's in fewer words, and without the address, which
// may hold a secret.
func plainError(err error) string {
	var request *url.Error
	if errors.As(err, &request) {
		err = request.Err
	}
	text := err.Error()
	for _, prefix := range []string{`calling "tools/call": `, `calling "tools/list": `, `sending "tools/call": `, `sending "tools/list": `, "rejected by transport: "} {
		text = strings.TrimPrefix(text, prefix)
	}
	return text
}
