package gateway

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
)

// Binding is what a key was issued for.
type Binding struct {
	Tenant, Job, Agent                    string
	Plugin, Tool, Function, Step, Purpose string
}

// Key is what a call gets to ask models with.
type Key struct {
	Token            string `json:"token"`
	URL              string `json:"url"`
	AnthropicBaseURL string `json:"anthropic_base_url"`
	OpenAIBaseURL    string `json:"openai_base_url"`
	Purpose          string `json:"purpose"`
}

func (k Key) String() string { return fmt.Sprintf("[key for %s]", k.URL) }

// GoString keeps the token out of %#v.
func (k Key) GoString() string { return k.String() }

// LogValue keeps the token out of logs.
func (k Key) LogValue() slog.Value { return slog.StringValue(k.String()) }

// digest is all that is kept of a key. A map is asked for it, not for the key, so the
// time that takes says nothing about other keys.
type digest = [sha256.Size]byte

// grant is a key that is good, and the calls under way with it.
type grant struct {
	Binding
	life context.Context
	end  context.CancelCauseFunc

	mu    sync.Mutex
	ended bool
	calls sync.WaitGroup
}

// Why calls are stopped.
var (
	errEnded   = errors.New("the call that the key was given to has ended")
	errStopped = errors.New("the gateway stops")
)

// enter counts a call in, unless the key has ended.
func (g *grant) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended {
		return false
	}
	g.calls.Add(1)
	return true
}

// revoke stops the calls under way and waits for them.
func (g *grant) revoke(why error) {
	g.mu.Lock()
	g.ended = true
	g.mu.Unlock()
	g.end(why)
	g.calls.Wait()
}

// Issue makes a key. It fails while the gateway does not listen.
func (g *Gateway) Issue(b Binding) (Key, error) {
	url, anthropic, openai := g.Addresses()
	if url == "" {
		return Key{}, errors.New("the model gateway does not listen")
	}
	var random [32]byte
	_, _ = rand.Read(random[:]) // it never fails
	k := Key{Token: "bk-" + base64.RawURLEncoding.EncodeToString(random[:]),
		URL: url, AnthropicBaseURL: anthropic, OpenAIBaseURL: openai, Purpose: b.Purpose}
	one := &grant{Binding: b}
	one.life, one.end = context.WithCancelCause(g.life)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		one.end(errStopped)
		return Key{}, errors.New("the model gateway stops")
	}
	g.grants[sha256.Sum256([]byte(k.Token))] = one
	return k, nil
}

// End makes a key worthless, stops the model calls under way with it, and returns when
// they are in the ledger. A token that is no key any more is nothing to do.
func (g *Gateway) End(token string) {
	d := sha256.Sum256([]byte(token))
	g.mu.Lock()
	one := g.grants[d]
	delete(g.grants, d)
	g.mu.Unlock()
	if one != nil {
		one.revoke(errEnded)
	}
}

const eachOwnKey = "each call brings a key of its own, which is good while that call runs"

// admit finds the grant of a request's key and counts the request in.
func (g *Gateway) admit(r *http.Request) (*grant, *Refusal) {
	token, refusal := tokenOf(r.Header)
	if refusal != nil {
		return nil, refusal
	}
	d := sha256.Sum256([]byte(token))
	g.mu.Lock()
	one := g.grants[d]
	g.mu.Unlock()
	if one == nil || !one.enter() {
		return nil, &Refusal{http.StatusUnauthorized, "this key is not known or has ended: " + eachOwnKey}
	}
	return one, nil
}

// tokenOf reads the key of a request, which may stand in two headers.
func tokenOf(h http.Header) (string, *Refusal) {
	var token string
	take := func(value string) bool {
		value = strings.TrimSpace(value)
		if token == "" {
			token = value
		}
		return value == "" || token == value
	}
	for _, value := range h["Authorization"] {
		scheme, value, _ := strings.Cut(strings.TrimSpace(value), " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return "", &Refusal{http.StatusUnauthorized, "the Authorization header has no bearer token: " + eachOwnKey}
		}
		if !take(value) {
			return "", twoKeys
		}
	}
	for _, value := range h["X-Api-Key"] {
		if !take(value) {
			return "", twoKeys
		}
	}
	if token == "" {
		return "", &Refusal{http.StatusUnauthorized, "no key came in Authorization: Bearer or in x-api-key: " + eachOwnKey}
	}
	return token, nil
}

var twoKeys = &Refusal{http.StatusUnauthorized, "the request has two different keys: send one, in Authorization: Bearer or in x-api-key. " + eachOwnKey}
