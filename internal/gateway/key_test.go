package gateway_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/belay-run/belay/internal/gateway"
)

func TestKeys(t *testing.T) {
	b := newBench(t, nil)
	other, err := b.Issue(gateway.Binding{Tenant: "acme", Job: "job-2", Purpose: "other"})
	if err != nil {
		t.Fatal(err)
	}
	if other.Purpose != "other" || other.Token == b.key.Token || len(other.Token) != 46 || other.OpenAIBaseURL != other.URL+"/v1" || other.AnthropicBaseURL != other.URL {
		t.Errorf("%#v with a token of %d", other, len(other.Token))
	}
	ended, err := b.Issue(gateway.Binding{Tenant: "acme", Job: "job-1"})
	if err != nil {
		t.Fatal(err)
	}
	b.End(ended.Token)
	b.End(ended.Token)
	b.End("bk-unknown")
	good := b.key.Token
	flipped := good[:45] + string("AB"[strings.Count(good[45:], "A")])
	for name, tt := range map[string]struct {
		header []string
		status int
		says   string
	}{
		"as a bearer token":     {[]string{"Authorization", "Bearer " + good}, 200, ""},
		"in small letters":      {[]string{"Authorization", "bearer  " + good + " "}, 200, ""},
		"as x-api-key":          {[]string{"X-Api-Key", good}, 200, ""},
		"in both":               {[]string{"X-Api-Key", good, "Authorization", "Bearer " + good}, 200, ""},
		"the other one empty":   {[]string{"X-Api-Key", "", "Authorization", "Bearer " + good}, 200, ""},
		"two good ones":         {[]string{"X-Api-Key", other.Token, "Authorization", "Bearer " + good}, 401, "two different keys"},
		"a good and a bad one":  {[]string{"X-Api-Key", good, "Authorization", "Bearer x"}, 401, "two different keys"},
		"two bearer tokens":     {[]string{"Authorization", "Bearer " + good, "Authorization", "Bearer " + other.Token}, 401, "two different keys"},
		"none":                  {[]string{"X-Api-Key", ""}, 401, "no key"},
		"another scheme":        {[]string{"Authorization", "Basic " + good}, 401, "bearer"},
		"no scheme":             {[]string{"Authorization", good}, 401, "bearer"},
		"unknown":               {[]string{"X-Api-Key", "bk-" + strings.Repeat("A", 43)}, 401, "not known"},
		"tampered with":         {[]string{"X-Api-Key", flipped}, 401, "not known"},
		"cut short":             {[]string{"X-Api-Key", good[:45]}, 401, "not known"},
		"longer":                {[]string{"X-Api-Key", good + "A"}, 401, "not known"},
		"in other letters":      {[]string{"X-Api-Key", strings.ToUpper(good)}, 401, "not known"},
		"of a call that ended":  {[]string{"X-Api-Key", ended.Token}, 401, "has ended"},
		"the provider's":        {[]string{"X-Api-Key", providerKey}, 401, "not known"},
		"of nothing but blanks": {[]string{"Authorization", "Bearer   "}, 401, "no key"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, path := range []string{"/v1/models", "/v1/chat/completions", "/v1/messages", "/nowhere"} {
				method, body := "POST", `{"model":"anthropic/m","max_tokens":9,"messages":[]}`
				status := tt.status
				switch path {
				case "/v1/models":
					method, body = "GET", ""
				case "/v1/chat/completions":
					body = `{"model":"openai/m","messages":[]}`
				case "/nowhere":
					if status == 200 {
						status = 501
					}
				}
				r := b.ask(method, path, body, tt.header...)
				if r.status != status {
					t.Fatalf("%s: %d %s", path, r.status, r.body)
				}
				if status == 401 {
					if says := r.problem(t, path); !strings.Contains(says, tt.says) || !strings.Contains(says, "each call brings a key of its own") {
						t.Errorf("%s says %q", path, says)
					}
				}
			}
		})
	}
	for _, r := range b.provider.Requests() {
		for _, key := range []string{good, other.Token, ended.Token} {
			for name, values := range r.Header {
				if strings.Contains(strings.Join(values, " "), key) {
					t.Errorf("the provider got the caller's key in %s", name)
				}
			}
		}
	}
	if n := strings.Count(b.log.String(), "without a good key"); n == 0 || n > 3 {
		t.Errorf("refused keys stand in %d lines of the log", n)
	}
}

func TestNoKeyWithoutAServer(t *testing.T) {
	b := newBench(t, nil)
	if err := b.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Issue(gateway.Binding{}); err == nil {
		t.Error("a key was issued")
	}
	if url, anthropic, openai := b.Addresses(); url+anthropic+openai != "" {
		t.Error("there are addresses:", url, anthropic, openai)
	}
	if err := b.Start(); err == nil {
		t.Error("it started again")
	}
	b.End(b.key.Token) // nothing to do
}

func TestListensOnThisMachineAlone(t *testing.T) {
	b := newBench(t, nil)
	for _, address := range []string{"0.0.0.0:0", ":0", "192.0.2.1:80", "example.org:80", "127.0.0.1"} {
		g, err := gateway.New(b.config(address))
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Start(); err == nil {
			t.Error("it listens on", address)
		}
	}
	taken, err := gateway.New(b.config(strings.TrimPrefix(b.key.URL, "http://")))
	if err != nil {
		t.Fatal(err)
	}
	if err := taken.Start(); err == nil {
		t.Error("it listens where another does")
	}
	if _, err := taken.Issue(gateway.Binding{}); err == nil {
		t.Error("a key was issued without a server")
	}
}

// waitFor waits until what it is asked holds.
func waitFor(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for range 2000 {
		if holds() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatal("waited in vain: ", what)
}

func TestEndStopsCallsUnderWay(t *testing.T) {
	for name, tt := range map[string]struct {
		path, body string
		stream     bool
	}{
		"before the answer": {"/v1/chat/completions", `{"model":"openai/hang","messages":[]}`, false},
		"in an answer":      {"/v1/messages", `{"model":"anthropic/stall","max_tokens":9,"messages":[]}`, false},
		"in a script":       {"/v1/messages", `{"model":"scripted/x","messages":[{"role":"user","content":"wait"}],"tools":[{"name":"t"}]}`, false},
		"in a stream":       {"/v1/chat/completions", `{"model":"openai/stall","stream":true}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, nil)
			done := make(chan error, 1)
			want := 0
			if tt.stream {
				want = http.StatusOK
				res := b.open(t.Context(), tt.path, tt.body)
				defer res.Body.Close()
				readTo(t, res.Body, `", "`)
				go func() {
					_, err := io.Copy(io.Discard, res.Body)
					done <- err
				}()
			} else {
				go func() { done <- b.ask("POST", tt.path, tt.body).err }()
				waitFor(t, "the call", func() bool { return b.ledger.Standings("acme")[0].ReservedTokens > 0 })
				waitFor(t, "a request at the provider", func() bool {
					return strings.HasPrefix(name, "in a script") || len(b.provider.Requests()) > 0
				})
			}
			b.End(b.key.Token)
			c := b.record() // at once
			if c.Status != want || !strings.Contains(c.Why, "has ended") || !c.Estimated || c.Usage.Input == 0 || (c.Usage.Output > 0) != tt.stream {
				t.Errorf("recorded is %+v", c)
			}
			if err := <-done; err == nil {
				t.Error("the client got a whole answer")
			}
			if left := b.provider.Last().Left; left != nil {
				<-left // the provider is told
			}
			if r := b.chat("openai/m", ""); r.status != http.StatusUnauthorized {
				t.Error("the key is still good:", r.status)
			}
		})
	}
}

func TestCloseStopsWhatDoesNotEnd(t *testing.T) {
	b := newBench(t, nil)
	done := make(chan reply, 1)
	go func() { done <- b.chat("openai/stall", `,"stream":true`) }()
	waitFor(t, "a request at the provider", func() bool { return len(b.provider.Requests()) > 0 })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := b.Close(ctx); err == nil {
		t.Error("close does not say that a call was stopped")
	}
	if c := b.record(); !strings.Contains(c.Why, "stops") {
		t.Errorf("recorded is %+v", c)
	}
	if r := <-done; r.err == nil {
		t.Errorf("the client got %d %s", r.status, r.body)
	}
}
