package model

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// failure is a request that brought no completion.
type failure struct {
	status int
	// what follows the model's name in a sentence. It must never hold anything
	// that the provider wrote, other than what code lets through.
	what  string
	retry bool          // another try may help
	after time.Duration // the provider asked to wait so long; 0 when it did not
}

var (
	errTooLarge = errors.New("answer is too large")
	errStalled  = errors.New("stream fell silent")
)

// refused is a status other than 2xx.
func refused(res *http.Response) *failure {
	// The client kept the error's body, cut to a few KB. Unreadable is like empty.
	body, _ := io.ReadAll(res.Body)
	var b struct {
		Error json.RawMessage `json:"error"`
	}
	_ = json.Unmarshal(body, &b)
	code := errorCode(b.Error)
	f := &failure{status: res.StatusCode, retry: transient(res.StatusCode, code), after: retryAfter(res.Header)}
	f.what = describe(res.StatusCode, code)
	return f
}

// reported is an error that came in the place of a completion.
func reported(raw json.RawMessage) *failure {
	var e struct {
		Code json.RawMessage `json:"code"`
	}
	status := 0
	if json.Unmarshal(raw, &e) == nil {
		if n, err := strconv.Atoi(strings.Trim(string(e.Code), `"`)); err == nil && n >= 400 && n < 600 {
			status = n
		}
	}
	code := errorCode(raw)
	f := &failure{status: status, retry: transient(status, code) || code == "server_error" || code == "overloaded"}
	if status == 0 {
		f.what = "reported an error" + inBrackets(code)
	} else {
		f.what = describe(status, code)
	}
	return f
}

// transient says whether the same request may succeed a little later.
func transient(status int, code string) bool {
	switch {
	case code == "insufficient_quota", status == http.StatusNotImplemented:
		return false
	}
	return status == http.StatusRequestTimeout || status == http.StatusTooEarly || status == http.StatusTooManyRequests || status >= 500
}

func describe(status int, code string) string {
	hint := ""
	switch {
	case code == "insufficient_quota":
		hint = "; the account has no credit left"
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		hint = "; check the key that api_key_env names"
	case status == http.StatusNotFound:
		hint = "; check the model's name and base_url"
	case status == http.StatusRequestEntityTooLarge, code == "context_length_exceeded":
		hint = "; lower the prompt's token budget"
	case status >= 300 && status < 400:
		hint = "; it wants to be asked elsewhere, check base_url"
	}
	return strings.TrimSpace(fmt.Sprintf("answered %d %s", status, http.StatusText(status))) + inBrackets(code) + hint
}

func inBrackets(code string) string {
	if code == "" {
		return ""
	}
	return " (" + code + ")"
}

// word is what an error code looks like: nothing that could be a sentence, a
// name with capitals, a number or a key.
var word = regexp.MustCompile(`^[a-z]{2,20}(_[a-z]{1,20}){0,5}$`)

// errorCode picks the code, or else the type, of a provider's error when it is a
// plain word of the kind that providers document. Everything else may repeat the
// prompt.
func errorCode(raw json.RawMessage) string {
	var e struct {
		Code json.RawMessage `json:"code"`
		Type json.RawMessage `json:"type"`
	}
	if len(raw) == 0 || json.Unmarshal(raw, &e) != nil {
		return ""
	}
	for _, v := range []json.RawMessage{e.Code, e.Type} {
		var s string
		if len(v) > 0 && json.Unmarshal(v, &s) == nil && word.MatchString(s) {
			return s
		}
	}
	return ""
}

// unreachable is a request that got no answer. The error's own text is not used:
// it has the address, and may have what the server sent.
func (c *Client) unreachable(err error) *failure {
	f := &failure{what: "could not be asked: the connection to " + c.host + " failed", retry: true}
	var dns *net.DNSError
	var cert *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &dns):
		f.what = "could not be asked: the host " + c.host + " is not known; check base_url and the network"
		f.retry = dns.IsTemporary || dns.IsTimeout
	case errors.Is(err, syscall.ECONNREFUSED):
		f.what = "could not be asked: nothing listens at " + c.host + "; start the server or check base_url"
	case errors.As(err, &cert):
		f.what, f.retry = "could not be asked: the certificate of "+c.host+" is not valid", false
	case errors.As(err, &record), errors.Is(err, http.ErrSchemeMismatch):
		f.what, f.retry = "could not be asked: "+c.host+" does not speak TLS; check whether base_url should begin with http:", false
	}
	return f
}

// broken is an answer that ended too early.
func (c *Client) broken(err error) *failure {
	if errors.Is(err, errTooLarge) {
		return &failure{what: fmt.Sprintf("gave an answer of more than %d MiB", maxAnswer>>20)}
	}
	return &failure{what: "broke off in the middle of an answer", retry: true}
}

const (
	firstWait = 500 * time.Millisecond
	maxWait   = 8 * time.Second
	// maxAfter is the longest wait that a provider may ask for. When it asks for
	// more, a person waiting in a conversation is better told at once.
	maxAfter = 20 * time.Second
)

// backoff is the wait before the next attempt: twice as long each time, less up
// to half at random so that many callers do not come back at once. It is not ok
// when the provider asks for a longer wait than is borne.
func backoff(attempt int, after time.Duration, random func() float64) (wait time.Duration, ok bool) {
	if after > 0 {
		return after, after <= maxAfter
	}
	wait = maxWait
	if attempt <= 4 {
		wait = firstWait << (attempt - 1)
	}
	return wait - time.Duration(random()*float64(wait/2)), true
}

// retryAfter reads what the provider asks for, in seconds or as a date.
func retryAfter(h http.Header) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil && ms > 0 {
		return time.Duration(min(ms, 1e9) * float64(time.Millisecond))
	}
	v := h.Get("Retry-After")
	if s, err := strconv.ParseFloat(v, 64); err == nil && s > 0 {
		return time.Duration(min(s, 1e6) * float64(time.Second))
	}
	if at, err := http.ParseTime(v); err == nil {
		return max(time.Until(at), 0)
	}
	return 0
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

func random() float64 { return rand.Float64() }
