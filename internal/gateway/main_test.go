package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/belay-run/belay/internal/gateway"
	"github.com/belay-run/belay/internal/gateway/gatewaytest"
	"github.com/belay-run/belay/internal/model/scripted"
	"github.com/belay-run/belay/internal/secret"
	"github.com/belay-run/belay/internal/spend"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// store keeps calls in memory.
type store struct {
	mu    sync.Mutex
	ended []spend.Record
}

func (s *store) KeepModelCalls(_ context.Context, _, ended []spend.Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = append(s.ended, ended...)
	return nil
}

func (*store) ModelSpending(context.Context, time.Time) ([]spend.Spent, error) { return nil, nil }

// safe is a buffer that many may write to.
type safe struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safe) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safe) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

const providerKey = "sk-provider-7d1c09"

// bench is a gateway before a provider, with a key.
type bench struct {
	*gateway.Gateway
	t        *testing.T
	provider *gatewaytest.Provider
	store    *store
	ledger   *spend.Ledger
	log      *safe
	key      gateway.Key

	mu      sync.Mutex
	rules   gateway.Rules
	granted error
	scanner *secret.Scanner
	scanErr error
	budgets spend.Budgets
	timeout time.Duration
	headers map[string]string
	base    string // instead of the provider's
	script  string
	parsed  *scripted.Script
	logger  *slog.Logger
}

const testScript = `
rules:
- when: {user: weather}
  say: Let me look.
  call: {tool: get_weather, args: {city: Graz}}
- when: {tool: get_weather, result: "(.*)"}
  say: "It is {1}."
- when: {user: fail}
  fail: {status: 529, message: the script is overloaded}
- when: {user: half}
  pieces: ["a half", " more"]
  fail: {message: the script breaks off}
- when: {user: wait}
  say: late
  delay: 1m
- when: {quiet: "(?s).*"}
  pieces: ["Hello", ", ", "quiet."]
default:
  pieces: ["Hello", ", ", "world."]
`

func newBench(t *testing.T, set func(*bench)) *bench {
	t.Helper()
	b := &bench{t: t, provider: gatewaytest.NewProvider(), store: &store{}, log: &safe{}, timeout: 10 * time.Second, script: testScript}
	b.provider.Key = providerKey
	if set != nil {
		set(b)
	}
	logger := slog.New(slog.NewTextHandler(b.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	var err error
	b.ledger, err = spend.New(t.Context(), spend.Options{Store: b.store, Currency: "USD", Logger: logger,
		Prices: func(provider, model, alias string) (spend.Price, bool) {
			return spend.Price{Input: 1e6, Output: 2e6, Cached: 1e6, CacheWritten: 1e6}, true // a token is a millionth
		},
		Budgets: func(tenant, agent string) spend.Budgets { return b.budgets }})
	if err != nil {
		t.Fatal(err)
	}
	script, found := scripted.Parse("script.yml", []byte(b.script))
	if script == nil {
		t.Fatal(found)
	}
	b.parsed, b.logger = script, logger
	if b.Gateway, err = gateway.New(b.config("")); err != nil {
		t.Fatal(err)
	}
	if err := b.Start(); err != nil {
		t.Fatal(err)
	}
	b.key, err = b.Issue(gateway.Binding{Tenant: "acme", Job: "job-1", Agent: "bot", Plugin: "judge", Tool: "judge_it", Function: "judge.judge_it", Step: "3", Purpose: "judging"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.stop)
	return b
}

func (b *bench) config(address string) gateway.Config {
	return gateway.Config{
		Listen:  address,
		Granted: func(context.Context, gateway.Binding) error { return locked(b, &b.granted) },
		Upstream: func(_ context.Context, tenant, model string) (gateway.Upstream, error) {
			api, name, ok := strings.Cut(model, "/")
			up := gateway.Upstream{API: api, Alias: model, Provider: "double", Model: name, Key: providerKey, Timeout: b.timeout, Headers: b.headers, Script: b.parsed}
			switch {
			case !ok:
				return up, &gateway.Refusal{Status: http.StatusNotFound, Reason: "there is no model " + model}
			case api == gateway.OpenAI:
				up.BaseURL = b.provider.OpenAI()
			case api == gateway.Anthropic:
				up.BaseURL = b.provider.Anthropic()
			}
			if b.base != "" {
				up.BaseURL = b.base
			}
			return up, nil
		},
		Models: func(context.Context, string) ([]gateway.Model, error) {
			return []gateway.Model{{Alias: "gpt", Provider: "openai", Model: "gpt-4o", API: gateway.OpenAI}, {Alias: "claude", Provider: "anthropic", API: gateway.Anthropic}, {Alias: "demo", Provider: "scripted", API: gateway.Scripted}}, nil
		},
		Rules: func(string) gateway.Rules { return locked(b, &b.rules) },
		Scanner: func(context.Context, string) (*secret.Scanner, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			return b.scanner, b.scanErr
		},
		Ledger: b.ledger, Logger: b.logger,
	}
}

func locked[T any](b *bench, v *T) T {
	b.mu.Lock()
	defer b.mu.Unlock()
	return *v
}

func (b *bench) stop() {
	http.DefaultClient.CloseIdleConnections()
	b.provider.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := b.Close(ctx); err != nil {
		b.t.Error("close:", err)
	}
	if err := b.ledger.Close(ctx); err != nil {
		b.t.Error(err)
	}
	log := b.log.String()
	for _, never := range []string{b.key.Token, providerKey, "top of the morning"} {
		if strings.Contains(log, never) {
			b.t.Errorf("the log has %q:\n%s", never, log)
		}
	}
}

// records are the calls that have ended, on disk.
func (b *bench) records() []spend.Record {
	b.t.Helper()
	if err := b.ledger.Flush(b.t.Context(), "acme", "job-1"); err != nil {
		b.t.Fatal(err)
	}
	b.store.mu.Lock()
	defer b.store.mu.Unlock()
	return append([]spend.Record(nil), b.store.ended...)
}

// record is the only call.
func (b *bench) record() spend.Record {
	b.t.Helper()
	all := b.records()
	if len(all) != 1 {
		b.t.Fatalf("%d calls are recorded: %+v", len(all), all)
	}
	return all[0]
}

// reply is what a client got.
type reply struct {
	status int
	header http.Header
	body   string
	err    error // the body did not come whole
}

// problem reads an error in the vendor's shape.
func (r reply) problem(t *testing.T, path string) string {
	t.Helper()
	var p struct {
		Type  string `json:"type"`
		Error struct {
			Type    string `json:"type"`
			Message string `json:"message"`
		} `json:"error"`
	}
	if err := json.Unmarshal([]byte(r.body), &p); err != nil || p.Error.Type == "" || p.Error.Message == "" {
		t.Fatalf("no error in the vendor's shape: %v %s", err, r.body)
	}
	if strings.HasPrefix(path, "/v1/messages") != (p.Type == "error") {
		t.Errorf("the error has another vendor's shape: %s", r.body)
	}
	return p.Error.Message
}

// ask sends a request with the key, unless the header has another.
func (b *bench) ask(method, path, body string, header ...string) reply {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), method, b.key.URL+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	if body != "" && req.Header["Content-Type"] == nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if req.Header["Authorization"] == nil && req.Header["X-Api-Key"] == nil {
		req.Header.Set("Authorization", "Bearer "+b.key.Token)
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return errors.New("a redirect was passed on") }}
	res, err := client.Do(req)
	if err != nil {
		return reply{err: err}
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	return reply{res.StatusCode, res.Header, string(raw), err}
}

func (b *bench) chat(model, rest string, header ...string) reply {
	b.t.Helper()
	return b.ask("POST", "/v1/chat/completions", `{"model":"`+model+`","messages":[{"role":"user","content":"top of the morning"}]`+rest+`}`, header...)
}

func (b *bench) message(model, rest string, header ...string) reply {
	b.t.Helper()
	return b.ask("POST", "/v1/messages", `{"model":"`+model+`","max_tokens":100,"messages":[{"role":"user","content":"top of the morning"}]`+rest+`}`, header...)
}
