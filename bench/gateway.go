package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belay-run/belay/internal/gateway"
	"github.com/belay-run/belay/internal/secret"
	"github.com/belay-run/belay/internal/spend"
)

// provider answers chat completions as fast as can be, so that the gateway's share
// shows.
type provider struct {
	http.Server
	url   string
	pause time.Duration // between the events of a stream
	until time.Time     // when streams end
	sent  atomic.Int64  // events of streams
}

const (
	wholeAnswer = `{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"The hooks of this plugin are asked in the order of their names."},"finish_reason":"stop"}],"usage":{"prompt_tokens":412,"completion_tokens":14,"total_tokens":426,"prompt_tokens_details":{"cached_tokens":0}}}`
	streamEvent = "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"n\":%d,\"choices\":[{\"index\":0,\"delta\":{\"content\":\" word\"},\"finish_reason\":null}],\"usage\":null}\n\n"
	streamEnd   = "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[],\"usage\":{\"prompt_tokens\":412,\"completion_tokens\":14}}\n\ndata: [DONE]\n\n"
)

func startProvider() (*provider, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &provider{url: "http://" + l.Addr().String() + "/v1"}
	p.Handler = http.HandlerFunc(p.answer)
	go func() { _ = p.Serve(l) }() // until it is closed
	return p, nil
}

func (p *provider) answer(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if !bytes.Contains(body, []byte(`"stream":true`)) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, wholeAnswer) // the client says when nothing comes
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	flush := http.NewResponseController(w).Flush
	for i := 0; i == 0 || time.Now().Before(p.until); i++ {
		if _, err := fmt.Fprintf(w, streamEvent, i); err != nil || flush() != nil {
			return
		}
		p.sent.Add(1)
		if p.pause > 0 {
			time.Sleep(p.pause)
		}
	}
	_, _ = io.WriteString(w, streamEnd)
}

// forgetful is a store of calls that keeps none.
type forgetful struct{}

func (forgetful) KeepModelCalls(context.Context, []spend.Record, []spend.Record) error { return nil }
func (forgetful) ModelSpending(context.Context, time.Time) ([]spend.Spent, error)      { return nil, nil }

// startGateway is a gateway before the provider, for a tenant of 100 secrets and a
// budget, with a key.
func startGateway(ctx context.Context, p *provider) (*gateway.Gateway, gateway.Key, error) {
	key, err := secret.NewKey(bytes.Repeat([]byte("k"), 32))
	if err != nil {
		return nil, gateway.Key{}, err
	}
	var entries []secret.Entry
	for i := range 100 {
		prints, err := key.Prints(fmt.Appendf(nil, "secret-%d-of-the-tenant-%d", i, i*i))
		if err != nil {
			return nil, gateway.Key{}, err
		}
		entries = append(entries, secret.Entry{Name: fmt.Sprintf("SECRET_%d", i), Prints: prints})
	}
	scanner := secret.NewScanner(key, entries)
	ledger, err := spend.New(ctx, spend.Options{Store: forgetful{},
		Prices:  func(string, string, string) (spend.Price, bool) { return spend.Price{Input: 1, Output: 1}, true },
		Budgets: func(string, string) spend.Budgets { return spend.Budgets{Job: spend.Budget{Tokens: math.MaxInt64}} }})
	if err != nil {
		return nil, gateway.Key{}, err
	}
	g, err := gateway.New(gateway.Config{
		Granted: func(context.Context, gateway.Binding) error { return nil },
		Upstream: func(context.Context, string, string) (gateway.Upstream, error) {
			return gateway.Upstream{API: gateway.OpenAI, Provider: "p", Model: "m", BaseURL: p.url, Key: "sk-provider"}, nil
		},
		Models:  func(context.Context, string) ([]gateway.Model, error) { return nil, nil },
		Scanner: func(context.Context, string) (*secret.Scanner, error) { return scanner, nil },
		Ledger:  ledger,
		Logger:  slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, gateway.Key{}, err
	}
	if err := g.Start(); err != nil {
		return nil, gateway.Key{}, err
	}
	k, err := g.Issue(gateway.Binding{Tenant: "t", Job: "j"})
	return g, k, err
}

// asker asks one base URL over connections that stay open.
type asker struct {
	http.Client
	base, token, body string
}

func newAsker(base, token string, stream bool) *asker {
	a := &asker{base: base, token: token}
	a.Transport = &http.Transport{MaxIdleConnsPerHost: 128, DisableCompression: true}
	mode := ""
	if stream {
		mode = `,"stream":true`
	}
	a.body = `{"model":"fast","max_tokens":100` + mode + `,"messages":[{"role":"system","content":"You judge calls of tools."},{"role":"user","content":"` + strings.Repeat("Is this call what the task asks for? ", 50) + `"}]}`
	return a
}

func (a *asker) open(ctx context.Context) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.base+"/chat/completions", strings.NewReader(a.body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+a.token)
	res, err := a.Do(req)
	if err == nil && res.StatusCode != http.StatusOK {
		err = errors.Join(fmt.Errorf("the model call was answered with %s", res.Status), res.Body.Close())
	}
	return res, err
}

// whole is the time to the end of an answer, first that to its first event.
func (a *asker) whole(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	res, err := a.open(ctx)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, res.Body)
	return time.Since(began), errors.Join(err, res.Body.Close())
}

func (a *asker) first(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	res, err := a.open(ctx)
	if err != nil {
		return 0, err
	}
	lines := bufio.NewReader(res.Body)
	_, err = lines.ReadSlice('\n')
	took := time.Since(began)
	_, rest := io.Copy(io.Discard, lines)
	return took, errors.Join(err, rest, res.Body.Close())
}

// over is how much longer one takes than the other: of the medians of a few hundred
// turns, by rounds, the median.
func over(ctx context.Context, one, other func(context.Context) (time.Duration, error)) (time.Duration, error) {
	const rounds, turns, warm = 9, 300, 30
	var all []time.Duration
	for range rounds {
		var times [2][]time.Duration
		for i := range turns + warm {
			for j, f := range []func(context.Context) (time.Duration, error){one, other} { // in turn, so that noise is both's
				took, err := f(ctx)
				if err != nil {
					return 0, err
				}
				if i >= warm {
					times[j] = append(times[j], took)
				}
			}
		}
		slices.Sort(times[0])
		slices.Sort(times[1])
		all = append(all, times[0][turns/2]-times[1][turns/2])
	}
	slices.Sort(all)
	return all[rounds/2], nil
}

// models measures the gateway before a provider on this machine. Streams run for as
// long as they are to.
func models(ctx context.Context, streams time.Duration) (out []figure, err error) {
	p, err := startProvider()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	g, key, err := startGateway(ctx, p)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, g.Close(ctx)) }()
	request, err := over(ctx, newAsker(key.OpenAIBaseURL, key.Token, false).whole, newAsker(p.url, "sk", false).whole)
	if err != nil {
		return nil, err
	}
	token, err := over(ctx, newAsker(key.OpenAIBaseURL, key.Token, true).first, newAsker(p.url, "sk", true).first)
	if err != nil {
		return nil, err
	}
	many, err := parallel(ctx, p, newAsker(key.OpenAIBaseURL, key.Token, true), streams)
	if err != nil {
		return nil, err
	}
	return []figure{
		{"model gateway, a request over asking the provider, p50", in(request, time.Microsecond), 100, "µs", ""},
		{"model gateway, the first token of a stream, over the same, p50", in(token, time.Microsecond), 150, "µs", ""},
		many,
	}, nil
}

// parallel runs 64 streams at once. A lost event is an error; the figure is how much
// the memory in use has grown.
func parallel(ctx context.Context, p *provider, a *asker, span time.Duration) (figure, error) {
	const streams = 64
	p.pause, p.until = 10*time.Millisecond, time.Now().Add(span)
	p.sent.Store(0)
	var events atomic.Int64
	failed := make(chan error, streams)
	var all sync.WaitGroup
	for range streams {
		all.Go(func() {
			if err := a.follow(ctx, &events); err != nil {
				failed <- err
			}
		})
	}
	time.Sleep(time.Until(p.until.Add(-span * 3 / 4)))
	early := inUse()
	time.Sleep(time.Until(p.until.Add(-span / 8)))
	late := inUse()
	all.Wait()
	close(failed)
	for err := range failed {
		return figure{}, err
	}
	if sent := p.sent.Load(); sent != events.Load() {
		return figure{}, fmt.Errorf("of %d events %d came", sent, events.Load())
	}
	return figure{fmt.Sprintf("model gateway, %d parallel streams for %s, memory that grows", streams, span), max(0, late-early), 2, "MB",
		fmt.Sprintf("  %d events, none lost", events.Load())}, nil
}

// follow reads a stream to its end and fails when an event is missing.
func (a *asker) follow(ctx context.Context, events *atomic.Int64) error {
	res, err := a.open(ctx)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	n := 0
	for ended := false; lines.Scan(); {
		line := lines.Bytes()
		switch {
		case len(line) == 0:
		case ended:
			return fmt.Errorf("an event after the end of a stream: %s", line)
		case string(line) == "data: [DONE]":
			ended = true
		case !bytes.Contains(line, fmt.Appendf(nil, `"n":%d,`, n)):
			return fmt.Errorf("event %d of a stream is lost; in its place is %s", n, line)
		default:
			n++
		}
	}
	events.Add(int64(n))
	return lines.Err()
}

// inUse is the memory that is in use after a collection, in MB.
func inUse() float64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return float64(m.HeapInuse+m.StackInuse) / (1 << 20)
}
