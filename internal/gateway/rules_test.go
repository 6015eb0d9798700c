package gateway_test

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belay-run/belay/internal/gateway"
	"github.com/belay-run/belay/internal/secret"
	"github.com/belay-run/belay/internal/spend"
)

func TestRoutes(t *testing.T) {
	b := newBench(t, nil)
	for _, tt := range []struct {
		method, path, body string
		status             int
		says               string
	}{
		{"POST", "/v1/embeddings", `{}`, 501, "no such route"},
		{"POST", "/v1/responses", `{}`, 501, "no such route"},
		{"POST", "/v1/messages/batches", `{}`, 501, "no such route"},
		{"POST", "/v1/chat/completions/", `{}`, 501, "no such route"},
		{"POST", "//v1/messages", `{}`, 501, "no such route"},
		{"POST", "/v1/x/../messages", `{}`, 501, "no such route"},
		{"GET", "/", "", 501, "no such route"},
		{"GET", "/v1/chat/completions", "", 405, "POST only"},
		{"DELETE", "/v1/messages", "", 405, "POST only"},
		{"POST", "/v1/models", "{}", 405, "GET only"},
		{"GET", "/v1/models/none", "", 404, "no such model"},
		{"GET", "/v1/models/claude", "", 404, "no such model"}, // not on OpenAI's routes
	} {
		r := b.ask(tt.method, tt.path, tt.body)
		if r.status != tt.status {
			t.Errorf("%s %s: %d %s", tt.method, tt.path, r.status, r.body)
			continue
		}
		if says := r.problem(t, tt.path); !strings.Contains(says, tt.says) {
			t.Errorf("%s %s says %q", tt.method, tt.path, says)
		}
		if (r.header.Get("X-Should-Retry") == "false") != (tt.status == 501) || (r.header.Get("Allow") != "") != (tt.status == 405) {
			t.Errorf("%s %s: %v", tt.method, tt.path, r.header)
		}
	}
	if n := len(b.provider.Requests()); n > 0 {
		t.Errorf("%d requests went on", n)
	}
}

func TestModels(t *testing.T) {
	b := newBench(t, nil)
	gpt := `{"belay":{"model":"gpt-4o","provider":"openai"},"created":0,"id":"gpt","object":"model","owned_by":"openai"}`
	demo := `{"belay":{"model":"","provider":"scripted"},"created":0,"id":"demo","object":"model","owned_by":"scripted"}`
	for path, want := range map[string]string{"/v1/models": `{"data":[` + gpt + `,` + demo + `],"object":"list"}`, "/v1/models/demo": demo} {
		if r := b.ask("GET", path, ""); r.status != 200 || r.body != want {
			t.Errorf("%s: %d %s", path, r.status, r.body)
		}
	}
	claude := `{"belay":{"model":"","provider":"anthropic"},"created_at":"1970-01-01T00:00:00Z","display_name":"claude","id":"claude","type":"model"}`
	demo = strings.NewReplacer("anthropic", "scripted", "claude", "demo").Replace(claude)
	for path, want := range map[string]string{"/v1/models": `{"data":[` + claude + `,` + demo + `],"first_id":"claude","has_more":false,"last_id":"demo"}`, "/v1/models/claude": claude} {
		if r := b.ask("GET", path, "", "Anthropic-Version", "2023-06-01"); r.status != 200 || r.body != want {
			t.Errorf("%s: %d %s", path, r.status, r.body)
		}
	}
	if n := len(b.records()); n > 0 {
		t.Errorf("%d calls are recorded", n)
	}
}

func TestRequestsThatAreRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		path, body string
		header     []string
		status     int
		says       string
	}{
		"no JSON":                     {"/v1/messages", `{"model":`, nil, 400, "no JSON"},
		"no object":                   {"/v1/messages", `[]`, nil, 400, "no JSON object"},
		"nothing":                     {"/v1/chat/completions", ``, []string{"Content-Type", "application/json"}, 400, "no body"},
		"a key twice":                 {"/v1/chat/completions", `{"model":"openai/m","model":"x"}`, nil, 400, "key twice"},
		"a key twice by an escape":    {"/v1/chat/completions", `{"model":"openai/m","mod\u0065l":"x"}`, nil, 400, "key twice"},
		"a key in other letters":      {"/v1/chat/completions", `{"model":"openai/m","Model":"x"}`, nil, 400, "another spelling"},
		"no UTF-8":                    {"/v1/chat/completions", "{\"model\":\"openai/m\xff\"}", nil, 400, "UTF-8"},
		"other models":                {"/v1/chat/completions", `{"model":"openai/m","models":["dear"]}`, nil, 400, "the body has models"},
		"and in Anthropic's API":      {"/v1/messages", `{"model":"anthropic/m","fallbacks":[{"model":"dear"}]}`, nil, 400, "the body has fallbacks"},
		"whichever there is":          {"/v1/chat/completions", `{"model":"openai/m","route":"fallback"}`, nil, 400, "the body has route"},
		"other models, misspelt":      {"/v1/chat/completions", `{"model":"openai/m","Models":["dear"]}`, nil, 400, "another spelling"},
		"no model":                    {"/v1/chat/completions", `{"messages":[]}`, nil, 400, "names no model"},
		"a model that is no text":     {"/v1/chat/completions", `{"model":["openai/m"]}`, nil, 400, "names no model"},
		"an unknown model":            {"/v1/chat/completions", `{"model":"m"}`, nil, 404, "there is no model m"},
		"a stream that is no boolean": {"/v1/chat/completions", `{"model":"openai/m","stream":"true"}`, nil, 400, "stream"},
		"a cap that is no number":     {"/v1/messages", `{"model":"anthropic/m","max_tokens":1e3}`, nil, 400, "max_tokens"},
		"a cap that is a text":        {"/v1/chat/completions", `{"model":"openai/m","max_completion_tokens":"5"}`, nil, 400, "max_completion_tokens"},
		"choices without number":      {"/v1/chat/completions", `{"model":"openai/m","n":0}`, nil, 400, "n is no whole number"},
		"too long":                    {"/v1/messages", `{"model":"anthropic/m","x":"` + strings.Repeat("x", 1000) + `"}`, nil, 413, "1000 bytes at most"},
		"packed":                      {"/v1/messages", `{}`, []string{"Content-Encoding", "gzip"}, 415, "Content-Encoding"},
		"a form":                      {"/v1/messages", `a=b`, []string{"Content-Type", "application/x-www-form-urlencoded"}, 415, "application/json"},
		"the other vendor's model":    {"/v1/messages", `{"model":"openai/m"}`, nil, 400, "speaks OpenAI's API: ask it with the base URL http://127.0.0.1:"},
		"and the other way round":     {"/v1/chat/completions", `{"model":"anthropic/m"}`, nil, 400, "speaks Anthropic's API: ask it with the base URL http://127.0.0.1:"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, func(b *bench) { b.rules.MaxRequest = 1000 })
			r := b.ask("POST", tt.path, tt.body, tt.header...)
			if r.status != tt.status {
				t.Fatalf("%d %s", r.status, r.body)
			}
			if says := r.problem(t, tt.path); !strings.Contains(says, tt.says) {
				t.Errorf("it says %q", says)
			}
			if len(b.provider.Requests()) > 0 {
				t.Error("a request went on")
			}
			c := b.record()
			if c.Status != tt.status || !strings.Contains(c.Why, tt.says) || c.Job != "job-1" || c.Plugin != "judge" || c.Route != tt.path || c.Cost != 0 || !c.Ended {
				t.Errorf("recorded is %+v", c)
			}
		})
	}
}

func TestGrants(t *testing.T) {
	b := newBench(t, nil)
	if r := b.chat("openai/m", ""); r.status != 200 {
		t.Fatal(r.status, r.body)
	}
	b.mu.Lock()
	b.granted = &gateway.Refusal{Status: 403, Reason: "plugin judge may not use models: its grant was taken back"}
	b.mu.Unlock()
	for _, path := range []string{"/v1/chat/completions", "/v1/messages", "/v1/messages/count_tokens"} {
		r := b.ask("POST", path, `{"model":"openai/m"}`)
		if r.status != 403 || !strings.Contains(r.problem(t, path), "taken back") {
			t.Errorf("%s: %d %s", path, r.status, r.body)
		}
	}
	if r := b.ask("GET", "/v1/models", ""); r.status != 403 {
		t.Error(r.status, r.body)
	}
	all := b.records()
	if len(all) != 5 {
		t.Fatalf("%d records", len(all))
	}
	for _, c := range all[1:] {
		if c.Status != 403 || !strings.Contains(c.Why, "taken back") || c.Job != "job-1" {
			t.Errorf("recorded is %+v", c)
		}
	}
	b.mu.Lock()
	b.granted = errors.New("the database is gone")
	b.mu.Unlock()
	if r := b.chat("openai/m", ""); r.status != 503 || strings.Contains(r.body, "database") {
		t.Error(r.status, r.body)
	}
	if !strings.Contains(b.log.String(), "the database is gone") {
		t.Error("the log does not say why")
	}
}

const secretValue = `tok"en/Ä+7f3a9c2e51`

func scannerFor(t *testing.T) *secret.Scanner {
	t.Helper()
	key, err := secret.NewKey([]byte(strings.Repeat("k", 32)))
	if err != nil {
		t.Fatal(err)
	}
	var entries []secret.Entry
	for name, value := range map[string]string{"CRM_TOKEN": secretValue, "PEM": "-----BEGIN-----\nMIIBVgIBADANBgkqhkiG9w0BAQEFAASC\nAl8wggJbAgEAAoGBAKnPkQlW8vZ2\n-----END-----"} {
		prints, err := key.Prints([]byte(value))
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, secret.Entry{Name: name, Prints: prints})
	}
	return secret.NewScanner(key, entries)
}

func TestSecrets(t *testing.T) {
	quoted := func(s string) string {
		raw, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Trim(string(raw), `"`)
	}
	for form, planted := range map[string]struct{ text, name string }{
		"plain":          {secretValue, "CRM_TOKEN"},
		"base64":         {base64.StdEncoding.EncodeToString([]byte("user:" + secretValue + "\n")), "CRM_TOKEN"},
		"base64url":      {base64.RawURLEncoding.EncodeToString([]byte(secretValue)), "CRM_TOKEN"},
		"hex":            {hex.EncodeToString([]byte(secretValue)), "CRM_TOKEN"},
		"percent":        {url.QueryEscape(secretValue), "CRM_TOKEN"},
		"json in json":   {quoted(secretValue), "CRM_TOKEN"},
		"one line of it": {"MIIBVgIBADANBgkqhkiG9w0BAQEFAASC", "PEM"},
	} {
		for rule, status := range map[string]int{"": 200, gateway.MaskSecrets: 200, gateway.RefuseSecrets: 400, gateway.PassSecrets: 200} {
			t.Run(form+" "+rule, func(t *testing.T) {
				b := newBench(t, func(b *bench) { b.scanner, b.rules.Secrets, b.rules.RecordTexts = scannerFor(t), rule, true })
				text := quoted("here: " + planted.text + " and [secret CRM_TOKEN]")
				r := b.ask("POST", "/v1/messages", `{"max_tokens":9,"messages":[{"role":"user","content":[{"type":"text","text":"`+text+`"}]}],"other": 1.0,"model":"anthropic/echo"}`)
				if r.status != status {
					t.Fatal(r.status, r.body)
				}
				c := b.record()
				if strings.Contains(c.Why, planted.text) || strings.Contains(b.log.String(), planted.text) {
					t.Errorf("the secret stands in %q or the log", c.Why)
				}
				if status == 400 {
					if says := r.problem(t, "/v1/messages"); !strings.Contains(says, planted.name) || strings.Contains(says, planted.text) {
						t.Errorf("it says %q", says)
					}
					if len(b.provider.Requests()) > 0 || c.Alias != "anthropic/echo" {
						t.Errorf("%d requests went on; recorded is %+v", len(b.provider.Requests()), c)
					}
					return
				}
				sent := string(b.provider.Last().Body)
				if rule == gateway.PassSecrets {
					if !strings.Contains(sent, text) || len(c.Verdicts) > 0 {
						t.Errorf("sent was %s, verdicts %q", sent, c.Verdicts)
					}
					return
				}
				want := `{"max_tokens":9,"messages":[{"role":"user","content":[{"type":"text","text":"here: [secret ` + planted.name + `] and [secret CRM_TOKEN]"}]}],"other": 1.0,"model":"echo"}`
				if form == "base64" {
					want = sent // the neighbours of the value in base64 stay
				}
				if sent != want || strings.Contains(sent, text) || !strings.Contains(r.body, "[secret "+planted.name+"]") {
					t.Errorf("sent was\n%s\nnot\n%s", sent, want)
				}
				if string(c.Request) != sent || len(c.Answer) == 0 {
					t.Errorf("recorded is %s and %s", c.Request, c.Answer)
				}
				if strings.Join(c.Verdicts, "|") != "secrets masked: "+planted.name {
					t.Errorf("the verdicts are %q", c.Verdicts)
				}
			})
		}
	}
	t.Run("none there", func(t *testing.T) {
		b := newBench(t, func(b *bench) { b.scanner = scannerFor(t) })
		if r := b.chat("openai/m", ""); r.status != 200 {
			t.Fatal(r.status, r.body)
		}
		if c := b.record(); len(c.Verdicts) > 0 || c.Request != nil || c.Answer != nil {
			t.Errorf("recorded is %+v", c)
		}
	})
	t.Run("beside the body", func(t *testing.T) {
		for _, header := range [][]string{{"X-Note", secretValue}, {"User-Agent", "a " + hex.EncodeToString([]byte(secretValue))}, {"X-Note", "MIIBVgIBADANBgkqhkiG9w0BAQEFAASC"}} {
			b := newBench(t, func(b *bench) { b.scanner = scannerFor(t) })
			r := b.chat("openai/m", "", header...)
			if r.status != 400 || !strings.Contains(r.body, "CRM_TOKEN") && !strings.Contains(r.body, "PEM") || len(b.provider.Requests()) > 0 {
				t.Errorf("%v: %d %s", header, r.status, r.body)
			}
		}
		b := newBench(t, func(b *bench) { b.scanner = scannerFor(t) })
		if r := b.ask("POST", "/v1/messages?x="+url.QueryEscape(secretValue), `{"model":"anthropic/m"}`); r.status != 400 {
			t.Error("in the query:", r.status, r.body)
		}
		odd := url.QueryEscape(secretValue[:2]) + fmt.Sprintf("%%%02x", secretValue[2]) + url.QueryEscape(secretValue[3:]) // as no encoder writes it
		if r := b.ask("POST", "/v1/messages?x="+odd, `{"model":"anthropic/m"}`); r.status != 400 || !strings.Contains(r.body, "CRM_TOKEN") {
			t.Error("in the query, oddly encoded:", r.status, r.body)
		}
	})
	t.Run("a key that becomes another's double", func(t *testing.T) {
		b := newBench(t, func(b *bench) { b.scanner = scannerFor(t) })
		r := b.ask("POST", "/v1/messages", `{"model":"anthropic/m",`+string(mustJSON(t, secretValue))+`:1,"`+hex.EncodeToString([]byte(secretValue))+`":2}`)
		if r.status != 400 || !strings.Contains(r.body, "key twice") {
			t.Error(r.status, r.body)
		}
	})
	for rule, status := range map[string]int{"": 503, gateway.RefuseSecrets: 503, gateway.PassSecrets: 200} {
		t.Run("no scanner, "+rule, func(t *testing.T) {
			b := newBench(t, func(b *bench) { b.scanErr, b.rules.Secrets = errors.New("fingerprints are damaged"), rule })
			if r := b.chat("openai/m", ""); r.status != status {
				t.Fatal(r.status, r.body)
			}
			if c := b.record(); c.Status != status || (len(b.provider.Requests()) == 0) != (status == 503) {
				t.Errorf("recorded is %+v", c)
			}
		})
	}
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestCaps(t *testing.T) {
	for name, tt := range map[string]struct {
		path, rest, want string
		budget           int64 // tokens; 0 for none
	}{
		"no budget":            {"/v1/chat/completions", ``, `"model":"m"}`, 0},
		"a budget":             {"/v1/chat/completions", ``, `{"max_completion_tokens":200,"model":"m"}`, 220},
		"of several choices":   {"/v1/chat/completions", `,"n":4`, `{"max_completion_tokens":50,"model":"m","n":4}`, 226},
		"no cap after all":     {"/v1/chat/completions", `,"max_tokens":null`, `"max_tokens":200}`, 238},
		"one of less than one": {"/v1/chat/completions", `,"max_tokens":-1`, `"max_tokens":200}`, 236},
		"two of less than one": {"/v1/chat/completions", `,"max_tokens":-1,"max_completion_tokens":0`, `"max_tokens":200,"max_completion_tokens":200}`, 262},
		"one of two":           {"/v1/chat/completions", `,"max_tokens":10,"max_completion_tokens":-1`, `"max_tokens":200,"max_completion_tokens":200}`, 263},
		"the other of two":     {"/v1/chat/completions", `,"max_tokens":0,"max_completion_tokens":10`, `"max_tokens":200,"max_completion_tokens":200}`, 262},
		"one that is named":    {"/v1/chat/completions", `,"max_completion_tokens":7`, `{"model":"m","max_completion_tokens":7}`, 222},
		"Anthropic":            {"/v1/messages", ``, `{"max_tokens":200,"model":"m"}`, 223},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, func(b *bench) { b.budgets.Job.Tokens = tt.budget })
			model := "openai/m"
			if tt.path == "/v1/messages" {
				model = "anthropic/m"
			}
			r := b.ask("POST", tt.path, `{"model":"`+model+`"`+tt.rest+`}`)
			if got := string(b.provider.Last().Body); r.status != 200 || !strings.HasSuffix(got, tt.want) {
				t.Errorf("%d, sent was %s", r.status, got)
			}
		})
	}
}

func TestBudgetsThatAreSpent(t *testing.T) {
	b := newBench(t, func(b *bench) { b.budgets.Job = spend.Budget{Cost: 400} })
	ok := 0
	var last reply
	for range 30 {
		if last = b.message("anthropic/m", ""); last.status != 200 {
			break
		}
		ok++
	}
	if ok == 0 || last.status != 402 || !strings.Contains(last.problem(t, "/v1/messages"), "the budget of job job-1") {
		t.Fatalf("after %d: %d %s", ok, last.status, last.body)
	}
	if len(b.provider.Requests()) != ok {
		t.Error("the refused call went on")
	}
	var cost spend.Money
	for _, c := range b.records() {
		cost += c.Cost
	}
	if cost != spend.Money(ok*(21+14)) || cost > 400 {
		t.Errorf("%d calls cost %d", ok, cost)
	}
	if r := b.ask("POST", "/v1/messages/count_tokens", `{"model":"anthropic/m"}`); r.status != 200 {
		t.Error("counting, which costs nothing, is refused:", r.status, r.body)
	}
	if r := b.chat("openai/m", `,"max_tokens":1000`); r.status != 402 || !strings.Contains(r.body, "insufficient_quota") {
		t.Error(r.status, r.body)
	}
}

// A cap is never less than a token for each choice.
func TestMoreChoicesThanTokens(t *testing.T) {
	const body = `{"model":"openai/m","n":4}`
	for left, status := range map[int64]int{3: 402, 4: 200} {
		b := newBench(t, func(b *bench) { b.budgets.Job.Tokens = int64(len(body)) + left })
		r := b.ask("POST", "/v1/chat/completions", body)
		if c := b.record(); r.status != status || c.Status != status || (c.Cost == 0) != (status == 402) || (len(b.provider.Requests()) == 0) != (status == 402) {
			t.Errorf("with %d left: %d %s, recorded is %+v", left, r.status, r.body, c)
		}
		if got := b.ledger.Standings("acme")[0]; got.ReservedTokens != 0 {
			t.Errorf("with %d left: %+v", left, got)
		}
	}
}

// However many calls are made at once, never is more spent than there is.
func TestCallsAtTheEdgeOfABudget(t *testing.T) {
	const budget = 2000
	b := newBench(t, func(b *bench) {
		b.budgets = spend.Budgets{Job: spend.Budget{Tokens: budget}, Tenant: spend.Budget{Cost: 3000}}
	})
	b.provider.Pause = time.Millisecond
	var all sync.WaitGroup
	statuses := make(chan int, 200)
	for i := range 20 {
		all.Go(func() {
			for j := range 10 {
				var r reply
				switch (i + j) % 3 {
				case 0:
					r = b.chat("openai/slow", `,"max_tokens":10`)
				case 1:
					r = b.chat("openai/slow", `,"stream":true,"max_tokens":10`)
				default:
					r = b.message("anthropic/slow", `,"stream":true`)
				}
				statuses <- r.status
			}
		})
	}
	all.Wait()
	close(statuses)
	count := map[int]int{}
	for s := range statuses {
		count[s]++
	}
	if count[200] < 10 || count[402] == 0 || count[200]+count[402] != 200 {
		t.Errorf("the answers were %v", count)
	}
	var cost spend.Money
	var tokens int64
	for _, c := range b.records() {
		cost += c.Cost
		tokens += c.Charged()
	}
	if tokens > budget || cost > 3000 || int(tokens) != count[200]*28 {
		t.Errorf("%d tokens for %d were spent in %d calls", tokens, cost, count[200])
	}
}

func TestClientsThatAreSlow(t *testing.T) {
	b := newBench(t, nil)
	b.SetBounds(100*time.Millisecond, 200*time.Millisecond)
	t.Run("with their request", func(t *testing.T) {
		conn, err := net.Dial("tcp", strings.TrimPrefix(b.key.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "POST /v1/messages HTTP/1.1\r\nHost: x\r\nX-Api-Key: %s\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{", b.key.Token)
		answer := make([]byte, 1000)
		n, err := conn.Read(answer)
		if err != nil || !strings.HasPrefix(string(answer[:n]), "HTTP/1.1 408") {
			t.Errorf("%v %s", err, answer[:n])
		}
	})
	t.Run("with the answer", func(t *testing.T) {
		res := b.open(t.Context(), "/v1/chat/completions", `{"model":"openai/huge","stream":true}`)
		waitFor(t, "the end of the call", func() bool { return len(b.records()) == 2 }) // nothing is read
		res.Body.Close()
		c := b.records()[1]
		if c.Why != "the caller went away" || c.Status != 200 {
			t.Errorf("recorded is %+v", c)
		}
	})
	t.Run("with a request that ends with its key", func(t *testing.T) {
		b := newBench(t, nil) // a minute is left for the request
		conn, err := net.Dial("tcp", strings.TrimPrefix(b.key.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "POST /v1/messages HTTP/1.1\r\nHost: x\r\nX-Api-Key: %s\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: 100\r\n\r\n", b.key.Token)
		if _, err := conn.Read(make([]byte, 1000)); err != nil { // it waits for the body by now
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			b.End(b.key.Token)
		}()
		select {
		case <-ended:
		case <-time.After(20 * time.Second):
			t.Fatal("the end of the key waits for the body")
		}
		if c := b.record(); c.Status != http.StatusServiceUnavailable || c.Why != "the call has ended" {
			t.Errorf("recorded is %+v", c)
		}
	})
	t.Run("and end with their key", func(t *testing.T) {
		b.SetBounds(time.Minute, time.Minute)
		res := b.open(t.Context(), "/v1/chat/completions", `{"model":"openai/huge","stream":true}`)
		defer res.Body.Close()
		time.Sleep(100 * time.Millisecond) // until nothing moves any more
		b.End(b.key.Token)
		if all := b.records(); len(all) != 3 || !strings.Contains(all[2].Why, "has ended") {
			t.Errorf("recorded is %+v", all)
		}
	})
}

func TestHeadersAreBounded(t *testing.T) {
	b := newBench(t, nil)
	if r := b.chat("openai/m", "", "X-Long", strings.Repeat("x", 100<<10)); r.status != 431 {
		t.Error(r.status, r.err)
	}
}
