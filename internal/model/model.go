// Package model asks chat models that speak OpenAI's chat completions API, at
// OpenAI or at any base URL.
//
//	m, err := model.New(model.Config{Provider: "openai", Model: "gpt-4o", APIKey: key})
//	…
//	answer, err := m.Complete(ctx, request, func(piece string) { fmt.Print(piece) })
//
// The messages of a request go to the provider byte for byte: keys that nobody
// here knows, their order and their spacing included. Answers are read leniently,
// because servers differ in how they stream tool calls (see [draft]).
//
// A request that fails before any text was handed on is asked again, after a
// growing wait, when another try may help: 429, 5xx, a connection that breaks or
// stalls. Once a piece of text was handed on, a failure ends the call, since the
// user has read the piece already.
//
// What goes wrong is a [chat.Error] whose text has the provider's name, the
// status and the provider's error code, and never its message or body, since
// providers repeat prompts and keys there. A call that its caller cancels gives
// an error that wraps the context's.
//
// The package scripted has a model that needs no provider.
package model

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/belay-run/belay/internal/chat"
)

// Defaults of a [Config].
const (
	DefaultTimeout    = 60 * time.Second
	DefaultStall      = 20 * time.Second
	DefaultMaxRetries = 2
)

// Config says which model is asked, and how. Only Model is always required.
type Config struct {
	// Provider is one that [ProviderNamed] finds, or any name when BaseURL is set. Empty
	// means openai.
	Provider string
	Model    string
	// BaseURL is the API's root, such as http://127.0.0.1:8000/v1. Empty means
	// the provider's own.
	BaseURL string
	// APIKey is sent as a bearer token. It may be empty where the provider
	// needs none.
	APIKey string
	// Headers are sent along with each request.
	Headers map[string]string
	// Extra are top-level keys of each request, such as temperature. A request's
	// own settings win over them; a value of null leaves the key out.
	Extra map[string]json.RawMessage

	// Timeout is for a whole completion with its retries. 0 means
	// [DefaultTimeout].
	Timeout time.Duration
	// Stall is the longest silence in a stream that has begun. 0 means
	// [DefaultStall].
	Stall time.Duration
	// MaxRetries is how often a failed request is asked again. 0 means
	// [DefaultMaxRetries], a negative number never.
	MaxRetries int

	// Logger may be nil.
	Logger *slog.Logger
	// Transport may be nil, for one of the client's own.
	Transport http.RoundTripper
	// Sleep, Now, Random (from 0 to below 1) and NewID may be nil, for those of
	// the real world.
	Sleep  func(context.Context, time.Duration) error
	Now    func() time.Time
	Random func() float64
	NewID  func() string
}

// Client is a model behind the chat completions API. It may be used from many
// goroutines.
type Client struct {
	cfg  Config
	name string
	host string // for error messages
	api  openai.Client
	http *http.Client
}

// New returns the model that the configuration names. It is also an [io.Closer]:
// closing lets go of its idle connections.
func New(cfg Config) (chat.Model, error) {
	cfg = cfg.withDefaults()
	base, err := cfg.validate()
	if err != nil {
		return nil, err
	}
	c := &Client{cfg: cfg, name: cfg.Provider + "/" + cfg.Model, host: base.Host}
	transport := cfg.Transport
	if transport == nil {
		transport = ownTransport()
	}
	c.http = &http.Client{Transport: capped{transport}}
	if cfg.APIKey != "" && base.Scheme == "http" && !isLoopback(base.Hostname()) {
		cfg.Logger.Warn("the model's key is sent without encryption; use an https base_url", "model", c.name, "host", c.host)
	}
	// The client is put together by hand: its constructor would take keys,
	// addresses and headers from OPENAI_… variables, and so send OpenAI's key to
	// another provider.
	c.api = openai.Client{Options: []option.RequestOption{
		option.WithBaseURL(base.String()),
		option.WithAPIKey(cfg.APIKey),
		option.WithHTTPClient(c.http),
		option.WithMaxRetries(0), // Complete asks again by its own rules
		option.WithHeader("User-Agent", "belay"),
	}}
	for _, h := range []string{"Lang", "Package-Version", "OS", "Arch", "Runtime", "Runtime-Version", "Retry-Count", "Timeout"} {
		c.api.Options = append(c.api.Options, option.WithHeaderDel("X-Stainless-"+h)) // what we run on is not the provider's business
	}
	for name, value := range cfg.Headers {
		c.api.Options = append(c.api.Options, option.WithHeader(name, value))
	}
	return c, nil
}

func (cfg Config) withDefaults() Config {
	cfg.APIKey = strings.TrimSpace(cfg.APIKey) // keys read from files end with a newline
	if cfg.Provider == "" {
		cfg.Provider = "openai"
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = DefaultTimeout
	}
	if cfg.Stall <= 0 {
		cfg.Stall = DefaultStall
	}
	if cfg.MaxRetries == 0 {
		cfg.MaxRetries = DefaultMaxRetries
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Sleep == nil {
		cfg.Sleep = sleep
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Random == nil {
		cfg.Random = random
	}
	if cfg.NewID == nil {
		cfg.NewID = func() string { return "call_" + ulid.Make().String() }
	}
	return cfg
}

func (cfg Config) validate() (*url.URL, error) {
	if cfg.Model == "" {
		return nil, errors.New("no model is named; set model, such as model: gpt-4o")
	}
	if strings.ContainsFunc(cfg.APIKey, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, fmt.Errorf("the key for %s has blanks or characters that no key has; set it again", cfg.Provider)
	}
	known, isKnown := ProviderNamed(cfg.Provider)
	address := cfg.BaseURL
	if address == "" {
		address = known.BaseURL
	}
	switch {
	case address == "" && isKnown:
		return nil, fmt.Errorf("provider %s needs base_url, the address of your server, such as http://127.0.0.1:8000/v1", cfg.Provider)
	case address == "":
		return nil, fmt.Errorf("provider %q is not known; set base_url to any server with OpenAI's chat completions API, or use one of %s", cfg.Provider, strings.Join(providerNames(), ", "))
	case cfg.BaseURL == "" && known.KeyVariable != "" && cfg.APIKey == "":
		return nil, fmt.Errorf("no key for %s; set %s in the environment, or name another variable with api_key_env", cfg.Provider, known.KeyVariable)
	}
	for key, value := range cfg.Extra {
		if reserved[key] {
			return nil, fmt.Errorf("model setting %q is set by belay itself; remove it", key)
		}
		if !json.Valid(value) {
			return nil, fmt.Errorf("model setting %q has no JSON value; give a number, a text, a list or an object", key)
		}
	}
	return parseBase(address)
}

func parseBase(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("base_url is no http or https address; give one such as https://api.openai.com/v1")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("base_url has a user name, a query or a fragment; give the plain address, and the key by api_key_env")
	case strings.HasSuffix(strings.TrimRight(u.Path, "/"), "/chat/completions"):
		return nil, errors.New("base_url ends with /chat/completions; leave that off, it is added")
	}
	return u, nil
}

// Name is provider and model.
func (c *Client) Name() string { return c.name }

// Close lets go of idle connections. Calls under way go on.
func (c *Client) Close() error {
	c.http.CloseIdleConnections()
	return nil
}

func ownTransport() http.RoundTripper {
	t, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return http.DefaultTransport
	}
	t = t.Clone()
	t.MaxIdleConnsPerHost = t.MaxIdleConns // all go to one host
	return t
}
