// Package gatewaytest has a provider of models for tests. It speaks the wire formats
// of OpenAI's chat completions and Anthropic's messages, streams too, keeps what it is
// asked, and behaves as the name of the asked model says:
//
//	p := gatewaytest.NewProvider()
//	defer p.Close()
//	… // ask p.OpenAI() or p.Anthropic() for the model "cut"
//	got := p.Last()
//
// The behaviours are words, joined by hyphens where several are wanted ("slow-tools"):
//
//	429, 500, 529, …  an error of that status, in the vendor's shape
//	bad-key           401 with the credential repeated in the message
//	hang              no answer until the caller leaves
//	stall             a part of the answer, then nothing until the caller leaves
//	cut               a part of the answer, then the connection breaks
//	no-end            a stream ends without a mark of its end
//	garbage           an answer that is no JSON
//	noise             bytes that are no HTTP
//	huge              an answer of 20 MiB
//	no-usage          no usage
//	redirect          a redirect to another host
//	slow              Pause before each piece
//	long              100 pieces
//	tools             a call of a tool
//	echo              the last text of the request as the answer
//	error             a stream with an error in it
//
// Any other name, or part of one, means nothing: the answer is [Text] and costs [Usage].
package gatewaytest

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Text is what the provider answers, in the pieces of a stream.
var Text = []string{"Hello", ", ", "world", "."}

// Usage of each answer, in all.
const (
	Input     = 21
	Cached    = 5
	Written   = 4 // to a cache; Anthropic only
	Output    = 7
	Reasoning = 2
)

// Request is one that the provider got.
type Request struct {
	Method, Path, Query string
	Header              http.Header
	Body                []byte
	// Left is closed when the request has ended, or its caller is gone.
	Left <-chan struct{}
}

// Provider is a server. It may be used from many goroutines.
type Provider struct {
	// Key is the one that callers must have; "" for any.
	Key string
	// Pause is that of slow answers.
	Pause time.Duration

	server   *httptest.Server
	mu       sync.Mutex
	requests []Request
	quiet    bool
}

// NewProvider starts one on a port of its own.
func NewProvider() *Provider {
	p := &Provider{Pause: 20 * time.Millisecond}
	p.server = httptest.NewServer(p)
	return p
}

// Close ends it, and all that hangs.
func (p *Provider) Close() {
	p.server.CloseClientConnections()
	p.server.Close()
}

// Forget makes the provider keep no requests any more, for measurements.
func (p *Provider) Forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests, p.quiet = nil, true
}

// OpenAI is the base URL for OpenAI's SDK.
func (p *Provider) OpenAI() string { return p.server.URL + "/v1" }

// Anthropic is the base URL for Anthropic's SDK.
func (p *Provider) Anthropic() string { return p.server.URL }

// Requests gives what the provider got, the oldest first.
func (p *Provider) Requests() []Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.requests)
}

// Last gives the newest request; the zero Request when there is none.
func (p *Provider) Last() Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.requests) == 0 {
		return Request{}
	}
	return p.requests[len(p.requests)-1]
}

// question is what a request asks for.
type question struct {
	Model     string          `json:"model"`
	Stream    bool            `json:"stream"`
	Messages  json.RawMessage `json:"messages"`
	MaxTokens *int            `json:"max_tokens"`
	Options   struct {
		Usage bool `json:"include_usage"`
	} `json:"stream_options"`
	words []string
}

func (q *question) is(word string) bool { return slices.Contains(q.words, word) }

// ServeHTTP answers as the model's name says.
func (p *Provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	p.mu.Lock()
	if !p.quiet {
		p.requests = append(p.requests, Request{r.Method, r.URL.Path, r.URL.RawQuery, r.Header.Clone(), body, r.Context().Done()})
	}
	key := p.Key
	p.mu.Unlock()

	a := &answer{p: p, w: w, r: r, control: http.NewResponseController(w)}
	a.anthropic = strings.HasPrefix(r.URL.Path, "/v1/messages")
	a.headers()
	if err := json.Unmarshal(body, &a.q); err != nil {
		a.fail(http.StatusBadRequest, "We could not parse the JSON body of your request.")
		return
	}
	name := a.q.Model
	for _, pair := range []string{"bad-key", "no-end", "no-usage"} {
		if strings.Contains(name, pair) {
			a.q.words = append(a.q.words, pair)
		}
	}
	a.q.words = append(a.q.words, strings.Split(name, "-")...)
	credential := r.Header.Get("X-Api-Key")
	if !a.anthropic {
		credential = strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	}
	switch {
	case key != "" && credential != key:
		a.fail(http.StatusUnauthorized, "Incorrect API key provided.")
	case a.q.is("bad-key"):
		a.fail(http.StatusUnauthorized, "Incorrect API key provided: "+credential)
	case a.anthropic && r.Header.Get("Anthropic-Version") == "":
		a.fail(http.StatusBadRequest, "anthropic-version: header is required")
	case r.URL.Path == "/v1/messages/count_tokens":
		a.json(map[string]any{"input_tokens": Input})
	case r.URL.Path != "/v1/messages" && r.URL.Path != "/v1/chat/completions":
		a.fail(http.StatusNotFound, "Unknown request URL")
	case r.URL.Path == "/v1/messages" && a.q.MaxTokens == nil:
		a.fail(http.StatusBadRequest, "max_tokens: Field required")
	default:
		a.give()
	}
}

// answer is one on its way.
type answer struct {
	p         *Provider
	w         http.ResponseWriter
	r         *http.Request
	control   *http.ResponseController
	anthropic bool
	q         question
}

func (a *answer) headers() {
	h := a.w.Header()
	if a.anthropic {
		h.Set("Request-Id", "req_provider")
		h.Set("Anthropic-Ratelimit-Requests-Remaining", "41")
		return
	}
	h.Set("X-Request-Id", "req_provider")
	h.Set("X-Ratelimit-Remaining-Requests", "41")
	h.Set("Openai-Processing-Ms", "7")
}

func (a *answer) give() {
	for _, word := range a.q.words {
		if status, err := strconv.Atoi(word); err == nil && status >= 400 && status < 600 {
			a.w.Header().Set("Retry-After", "1")
			a.fail(status, "The provider fails with "+word+".")
			return
		}
	}
	switch {
	case a.q.is("hang"):
		<-a.r.Context().Done()
	case a.q.is("redirect"):
		a.w.Header().Set("Location", "http://elsewhere.invalid"+a.r.URL.Path)
		a.w.WriteHeader(http.StatusTemporaryRedirect)
	case a.q.is("noise"):
		conn, _, err := a.control.Hijack()
		if err == nil {
			_, _ = conn.Write([]byte("\x00\x01 this is no HTTP\r\n\r\n"))
			_ = conn.Close()
		}
	case a.q.is("garbage"):
		a.w.Header().Set("Content-Type", "application/json")
		if a.q.Stream {
			a.w.Header().Set("Content-Type", "text/event-stream")
		}
		_, _ = a.w.Write([]byte("<html>data: {]\n\nSome words of no meaning</html>\n"))
	case a.q.Stream:
		a.stream()
	default:
		a.whole()
	}
}

// fail is an error in the vendor's shape.
func (a *answer) fail(status int, message string) {
	a.w.Header().Set("Content-Type", "application/json")
	a.w.WriteHeader(status)
	kind := map[int]string{429: "rate_limit_error", 529: "overloaded_error", 401: "authentication_error", 400: "invalid_request_error"}[status]
	if kind == "" {
		kind = "api_error"
	}
	problem := map[string]any{"error": map[string]any{"message": message, "type": kind, "param": nil, "code": nil}}
	if a.anthropic {
		problem = map[string]any{"type": "error", "request_id": "req_provider", "error": map[string]any{"type": kind, "message": message}}
	}
	_ = json.NewEncoder(a.w).Encode(problem) // a client that is gone needs none
}

func (a *answer) json(v any) {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	a.w.Header().Set("Content-Type", "application/json")
	switch {
	case a.q.is("cut"), a.q.is("stall"):
		a.w.Header().Set("Content-Length", strconv.Itoa(len(raw)))
		_, _ = a.w.Write(raw[:len(raw)/2])
		a.breakOff()
	default:
		_, _ = a.w.Write(append(raw, '\n'))
	}
}

// breakOff is what follows the first half of an answer that does not come whole.
func (a *answer) breakOff() {
	_ = a.control.Flush()
	if a.q.is("stall") {
		<-a.r.Context().Done()
	}
	panic(http.ErrAbortHandler)
}

// pieces are those of the text.
func (a *answer) pieces() []string {
	switch {
	case a.q.is("echo"):
		return []string{lastText(a.q.Messages)}
	case a.q.is("long"):
		return slices.Repeat(Text, 25)
	case a.q.is("huge"):
		return []string{strings.Repeat("All work and no play. ", 20<<20/22)}
	}
	return Text
}

// lastText is the last string in the messages that stands under text or content.
func lastText(messages json.RawMessage) string {
	var list []struct {
		Content json.RawMessage `json:"content"`
	}
	if json.Unmarshal(messages, &list) != nil || len(list) == 0 {
		return ""
	}
	content := list[len(list)-1].Content
	var text string
	if json.Unmarshal(content, &text) == nil {
		return text
	}
	var parts []struct {
		Text string `json:"text"`
	}
	_ = json.Unmarshal(content, &parts) // none: no text
	for _, p := range parts {
		text += p.Text
	}
	return text
}

// event writes one event of a stream, after a pause when the answer is slow.
func (a *answer) event(name string, data any) {
	raw, ok := data.([]byte)
	if !ok {
		var err error
		if raw, err = json.Marshal(data); err != nil {
			panic(err)
		}
	}
	var b bytes.Buffer
	if name != "" {
		b.WriteString("event: " + name + "\n")
	}
	b.WriteString("data: ")
	b.Write(raw)
	b.WriteString("\n\n")
	if _, err := a.w.Write(b.Bytes()); err != nil {
		panic(http.ErrAbortHandler)
	}
	_ = a.control.Flush() // the next write fails too
}

func (a *answer) pause() {
	if !a.q.is("slow") {
		return
	}
	select {
	case <-a.r.Context().Done():
		panic(http.ErrAbortHandler)
	case <-time.After(a.p.Pause):
	}
}
