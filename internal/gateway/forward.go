package gateway

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// errSilent says that a provider took too long.
var errSilent = errors.New("the provider fell silent")

const (
	// maxWhole bounds the answer that is read whole before it goes on.
	maxWhole = 16 << 20
	// maxKept bounds the text of an answer that is recorded.
	maxKept = 1 << 20
	// defaultVersion is what Anthropic's API takes for its version when a caller
	// names none.
	defaultVersion = "2023-06-01"
)

// forward asks the provider and passes its answer on.
func (c *call) forward() {
	ctx, cancel := context.WithCancelCause(c.r.Context())
	defer cancel(nil)
	watch := time.AfterFunc(c.up.Timeout, func() { cancel(errSilent) })
	defer watch.Stop()
	req, err := c.request(ctx)
	if err != nil {
		c.g.cfg.Logger.Error("a provider's base URL cannot be used", "provider", c.up.Provider, "error", err)
		c.fail(&Refusal{http.StatusBadGateway, "the provider's base URL cannot be used"})
		return
	}
	res, err := c.g.cfg.Transport.RoundTrip(req)
	if err != nil {
		c.unanswered(ctx, err)
		return
	}
	defer func() { _ = res.Body.Close() }() // read to its end, or given up
	c.out.FirstByte = time.Since(c.began)
	if res.StatusCode >= 300 && res.StatusCode < 400 || res.StatusCode < 200 {
		// A client would follow it, and take its key along.
		c.failed("it redirects", "status", res.StatusCode)
		c.fail(&Refusal{http.StatusBadGateway, "the provider wants to be asked elsewhere; its base URL in the settings needs a change"})
		return
	}
	watch.Stop()
	a := &answer{call: c, res: res, ctx: ctx, meter: meter{api: c.api}, watch: watch}
	media, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")) // what cannot be read is no stream
	if res.StatusCode < 400 && (media == "text/event-stream" || c.asked.stream && media != "application/json") {
		a.stream()
		return
	}
	a.whole()
}

// request is what goes to the provider.
func (c *call) request(ctx context.Context) (*http.Request, error) {
	url := strings.TrimRight(c.up.BaseURL, "/") + strings.TrimPrefix(c.record.Route, "/v1")
	if c.api == Anthropic {
		url = strings.TrimRight(c.up.BaseURL, "/") + c.record.Route
	}
	if c.r.URL.RawQuery != "" {
		url += "?" + c.r.URL.RawQuery
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(c.sent))
	if err != nil {
		return nil, errors.New("it is no URL")
	}
	named := connectionHeaders(c.r.Header)
	h := req.Header
	for key, values := range c.r.Header {
		if passesOn(key) && !named[key] {
			h[key] = values
		}
	}
	if h["User-Agent"] == nil {
		h["User-Agent"] = []string{""} // else one would be made up
	}
	h.Set("Accept-Encoding", "identity") // usage is read as it passes
	if c.api == Anthropic && h["Anthropic-Version"] == nil {
		h.Set("Anthropic-Version", defaultVersion)
	}
	switch {
	case c.up.Key == "":
	case c.api == Anthropic:
		h.Set("X-Api-Key", c.up.Key)
	default:
		h.Set("Authorization", "Bearer "+c.up.Key)
	}
	for key, value := range c.up.Headers {
		if h.Set(key, value); http.CanonicalHeaderKey(key) == "Host" {
			req.Host = value
		}
	}
	return req, nil
}

// passesOn says whether a header of the client's goes to the provider: all do, but for
// credentials, what belongs to one connection, and what the next hop sets itself.
func passesOn(key string) bool {
	switch key {
	case "Authorization", "X-Api-Key", "Api-Key", "X-Goog-Api-Key", "Cookie", "Proxy-Authorization", "Proxy-Authenticate", "Proxy-Connection",
		"Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
		"Accept-Encoding", "Content-Encoding", "Content-Length", "Expect", "Host",
		"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip":
		return false
	}
	return true
}

// connectionHeaders are those that Connection names: they belong to one connection.
func connectionHeaders(h http.Header) map[string]bool {
	var out map[string]bool
	for _, line := range h["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			if out == nil {
				out = map[string]bool{}
			}
			out[http.CanonicalHeaderKey(strings.TrimSpace(name))] = true
		}
	}
	return out
}

// failed logs what a provider did.
func (c *call) failed(what string, about ...any) {
	c.g.failed.log(c.g.cfg.Logger, time.Now(), "a provider failed", append([]any{"what", what, "provider", c.up.Provider, "model", c.up.Model, "job", c.record.Job, "call", c.id}, about...)...)
}

// unanswered ends a call to which no answer began.
func (c *call) unanswered(ctx context.Context, err error) {
	why := c.cause(ctx)
	if why != "" {
		// The provider may have begun to read.
		c.charge(&meter{api: c.api}, false)
	}
	switch {
	case errors.Is(context.Cause(ctx), errSilent):
		c.failed("no answer in time", "timeout", c.up.Timeout)
		c.fail(&Refusal{http.StatusGatewayTimeout, "the provider gave no answer within " + c.up.Timeout.String()})
	case why != "":
		c.end(0, why)
		panic(http.ErrAbortHandler) // nobody is there to answer
	default:
		what := unreachable(err)
		c.failed(what)
		c.fail(&Refusal{http.StatusBadGateway, "the provider could not be asked: " + what})
	}
}

// unreachable says why a provider could not be asked. The error's own text may have
// what the provider sent, and addresses.
func unreachable(err error) string {
	var dns *net.DNSError
	var cert *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &dns):
		return "its host is not known"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "nothing listens at its address"
	case errors.As(err, &cert):
		return "its certificate is not valid"
	case errors.As(err, &record), errors.Is(err, http.ErrSchemeMismatch):
		return "it does not speak TLS"
	}
	return "the connection broke, or what came is no HTTP"
}

// charge takes what the meter says for what the call took. Where the provider said
// nothing that is estimated; of an answer that came whole, the log says so.
func (c *call) charge(m *meter, whole bool) {
	if c.r.URL.Path == countPath {
		return // costs nothing
	}
	c.out.Usage, c.out.Estimated = m.total(c.sent)
	if whole && !m.said || m.broken {
		c.g.unread.log(c.g.cfg.Logger, time.Now(), "an answer has no usage that can be read: it is charged by an estimate",
			"provider", c.up.Provider, "model", c.up.Model, "job", c.record.Job, "call", c.id)
	}
}

// answer is a provider's answer on its way to the client.
type answer struct {
	*call
	res   *http.Response
	ctx   context.Context
	meter meter
	watch *time.Timer // ends ctx when the provider is silent for too long
}

// header begins the answer to the client.
func (a *answer) header() {
	named := connectionHeaders(a.res.Header)
	h := a.w.Header()
	for key, values := range a.res.Header {
		switch key {
		case "Connection", "Keep-Alive", "Proxy-Authenticate", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Set-Cookie", "Content-Length":
		default:
			if !named[key] {
				h[key] = a.withoutKey(values)
			}
		}
	}
	if h["Content-Type"] == nil {
		h["Content-Type"] = nil // else one would be guessed
	}
}

// withoutKey gives the values of a header in which the provider's key, should it have
// been sent back, does not stand.
func (a *answer) withoutKey(values []string) []string {
	if a.up.Key == "" || !slices.ContainsFunc(values, func(v string) bool { return strings.Contains(v, a.up.Key) }) {
		return values
	}
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = strings.ReplaceAll(v, a.up.Key, keyStands)
	}
	return out
}

// keyStands stands where a provider sent its key back.
const keyStands = "[key]"

var buffers = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// whole passes on an answer that comes in one piece. The call is in the ledger before
// the client has the answer.
func (a *answer) whole() {
	var body bytes.Buffer
	if n := a.res.ContentLength; n > 0 && n <= maxWhole {
		body.Grow(int(n) + bytes.MinRead)
	}
	_, err := body.ReadFrom(io.LimitReader(paced{a}, maxWhole+1))
	if err != nil {
		a.brokenOff()
		return
	}
	status := a.res.StatusCode
	switch {
	case body.Len() <= maxWhole:
	case status >= 400: // it may repeat what was sent
		a.failed("it answered with an endless error", "status", status)
		a.fail(&Refusal{http.StatusBadGateway, "the provider answered with status " + strconv.Itoa(status) + " and an error without end"})
		return
	default:
		a.huge(body.Bytes())
		return
	}
	b := body.Bytes()
	switch {
	case status >= 400:
		if !callersFault(status) {
			a.failed("it answered with an error", "status", status)
		}
		if a.up.Key != "" { // an error may repeat what was sent
			b = bytes.ReplaceAll(b, []byte(a.up.Key), []byte(keyStands))
		}
	default:
		a.meter.whole(b)
		a.charge(&a.meter, true)
	}
	a.keep(b)
	a.end(status, whyOf(status))
	a.header()
	a.w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	a.w.WriteHeader(status)
	_, _ = a.w.Write(b) // End says when the client is gone
}

// callersFault says whether an error is about what the caller sent.
func callersFault(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusTooManyRequests, http.StatusPaymentRequired:
		return false // of the key, the account or the settings
	}
	return status < 500
}

func whyOf(status int) string {
	if status < 400 {
		return ""
	}
	return "the provider answered with status " + strconv.Itoa(status)
}

// brokenOff answers in the place of an answer that did not come whole.
func (a *answer) brokenOff() {
	if a.res.StatusCode < 400 {
		a.charge(&a.meter, false)
	}
	switch why := a.cause(a.ctx); {
	case errors.Is(context.Cause(a.ctx), errSilent):
		a.failed("it fell silent in an answer", "timeout", a.up.Timeout)
		a.fail(&Refusal{http.StatusGatewayTimeout, "the provider fell silent in its answer for " + a.up.Timeout.String()})
	case why != "":
		a.end(0, why)
		panic(http.ErrAbortHandler)
	default:
		a.failed("its answer broke off")
		a.fail(&Refusal{http.StatusBadGateway, "the provider's answer broke off"})
	}
}

// huge passes on an answer that is too long to be held. Its usage is estimated.
func (a *answer) huge(begun []byte) {
	a.header()
	if n := a.res.ContentLength; n > 0 {
		a.w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
	}
	a.w.WriteHeader(a.res.StatusCode)
	a.meter.text.addAnswer(begun)
	a.keep(begun)
	_, err := a.w.Write(begun)
	buf := buffers.Get().(*[32 << 10]byte)
	defer buffers.Put(buf)
	from := paced{a}
	for err == nil {
		var n int
		n, err = from.Read(buf[:])
		a.meter.text.plain += n
		if _, failed := a.w.Write(buf[:n]); failed != nil {
			err = failed
		}
	}
	whole := errors.Is(err, io.EOF)
	a.charge(&a.meter, whole)
	if whole {
		a.end(a.res.StatusCode, "")
		return
	}
	a.cut()
}

// cut ends an answer that cannot be passed on whole: the client is to see that.
func (a *answer) cut() {
	why := a.cause(a.ctx)
	switch {
	case a.w.Failed() != nil && why == "":
		why = "the caller went away"
	case why == "":
		why = "the provider's answer broke off"
		a.failed("its answer broke off")
	case errors.Is(context.Cause(a.ctx), errSilent):
		a.failed("it fell silent in an answer", "timeout", a.up.Timeout)
	}
	a.end(a.res.StatusCode, why)
	panic(http.ErrAbortHandler)
}

// keep records the text of an answer.
func (a *answer) keep(b []byte) {
	if a.rules.RecordTexts {
		a.out.Answer = append(a.out.Answer, b[:min(len(b), maxKept-len(a.out.Answer))]...)
	}
}

// paced reads the answer; for each piece the provider has its time anew. The time that
// the client takes does not count.
type paced struct{ a *answer }

func (p paced) Read(b []byte) (int, error) {
	p.a.watch.Reset(p.a.up.Timeout)
	defer p.a.watch.Stop()
	return p.a.res.Body.Read(b)
}

// stream passes on a stream, piece by piece as it comes.
func (a *answer) stream() {
	a.header()
	a.w.WriteHeader(a.res.StatusCode)
	err := a.w.FlushError()
	s := splitter{most: maxEvent}
	pass := func(b []byte) {
		if _, failed := a.w.Write(b); failed != nil && err == nil {
			err = failed
		}
	}
	// With a usage chunk to hold back, events are passed on one by one; else what
	// comes goes on at once, and is counted after that.
	count := func(e event) { a.meter.event(e) }
	if a.extra {
		count = func(e event) {
			if !a.meter.event(e) {
				pass(e.raw)
			}
		}
	}
	buf := buffers.Get().(*[32 << 10]byte)
	defer buffers.Put(buf)
	from := paced{a}
	for err == nil {
		n, failed := from.Read(buf[:])
		b := buf[:n]
		if !a.extra {
			pass(b)
			flush(a.w, &err)
		}
		a.keep(b)
		s.feed(b, count)
		if failed != nil {
			s.close(count)
		}
		if a.extra {
			flush(a.w, &err)
		}
		if failed != nil && err == nil {
			err = failed
		}
	}
	clean := errors.Is(err, io.EOF)
	if clean && a.meter.said && a.api == OpenAI {
		a.meter.final = true // some servers have no mark of the end
	}
	a.charge(&a.meter, clean)
	switch {
	case clean && a.meter.failed:
		a.failed("an error stands in its stream")
		a.end(a.res.StatusCode, "an error stands in the provider's stream")
	case clean:
		a.end(a.res.StatusCode, "")
	case a.meter.ended: // the client had all when it left
		a.end(a.res.StatusCode, "")
		panic(http.ErrAbortHandler)
	default:
		a.cut()
	}
}

func flush(w interface{ FlushError() error }, err *error) {
	if failed := w.FlushError(); failed != nil && *err == nil {
		*err = failed
	}
}
