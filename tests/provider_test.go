package tests

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/belay-run/belay/internal/app/apptest"
	"github.com/belay-run/belay/internal/conversation"
	"github.com/belay-run/belay/internal/server"
)

// provider is a server that speaks the chat completions API. It keeps the bodies
// that arrive, and answers "ok" when it has no other answer.
type provider struct {
	url string

	mu      sync.Mutex
	bodies  []string
	headers []http.Header
	answers []func(http.ResponseWriter)
}

func startProvider(t *testing.T) *provider {
	t.Helper()
	p := &provider{}
	s := httptest.NewServer(p)
	t.Cleanup(s.Close)
	p.url = s.URL + "/v1"
	return p
}

// ServeHTTP takes a request.
func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil || r.URL.Path != "/v1/chat/completions" {
		http.Error(w, "not here", http.StatusNotFound)
		return
	}
	p.mu.Lock()
	p.bodies, p.headers = append(p.bodies, string(body)), append(p.headers, r.Header)
	answer := completion(`{"role":"assistant","content":"ok"}`)
	if len(p.answers) > 0 {
		answer, p.answers = p.answers[0], p.answers[1:]
	}
	p.mu.Unlock()
	answer(w)
}

// next sets the answers to the requests that follow, and forgets those before.
func (p *provider) next(answers ...func(http.ResponseWriter)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bodies, p.headers, p.answers = nil, nil, answers
}

// arrived are the bodies since next.
func (p *provider) arrived() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string{}, p.bodies...)
}

func completion(message string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"choices":[{"index":0,"message":%s,"finish_reason":"stop"}]}`, message)
	}
}

func refuses(status int) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprint(w, `{"error":{"message":"no","code":"invalid_request"}}`)
	}
}

// part gives the bytes of one key of a body.
func part(t *testing.T, body, key string) string {
	t.Helper()
	var keys map[string]json.RawMessage
	if err := json.Unmarshal([]byte(body), &keys); err != nil {
		t.Fatal(err)
	}
	return string(keys[key])
}

func TestProvider(t *testing.T) {
	t.Setenv("TEST_PROVIDER_KEY", "the-real-key")
	p := startProvider(t)
	a := startPlayed(t, nil, counter, playedHooks(longLimit, modelHooks...), apptest.Files{"integrations.yml": fmt.Sprintf(
		"llm:\n  provider: openai-compatible\n  model: small\n  base_url: %s\n  api_key_env: TEST_PROVIDER_KEY\n  temperature: 0.75\n  top_k: 3\n  max_retries: 0\n", p.url)})
	// hooked runs a turn and gives the only body that arrived.
	hooked := func(t *testing.T, sender, body string) string {
		t.Helper()
		p.next()
		a.turn(t, sender, "hello", bodies{"modify_model_request": body})
		all := p.arrived()
		if len(all) != 1 {
			t.Fatalf("%d requests", len(all))
		}
		return all[0]
	}

	t.Run("T95 what no hook changes arrives byte for byte", func(t *testing.T) {
		p.next()
		a.turn(t, "t95 plain", "Grüße <b> & 'x' \"q\" \\ 😀", nil)
		if got, want := part(t, p.arrived()[0], "messages"), string(a.RequestsOf("t95 plain")[0].Messages); got != want {
			t.Errorf("arrived\n  %s\nwant\n  %s", got, want)
		}
		if !strings.Contains(p.arrived()[0], `"content":"Grüße <b> & 'x' \"q\" \\ 😀"`) {
			t.Errorf("arrived %s", p.arrived()[0])
		}
	})
	for _, c := range anyMessages {
		t.Run("T95 arrives byte for byte: "+c.name, func(t *testing.T) {
			body := hooked(t, "t95 "+c.name, "return p.model_copy(update={'messages': "+c.returned+"})")
			if got := part(t, body, "messages"); got != c.want {
				t.Errorf("arrived\n  %s\nwant\n  %s", got, c.want)
			}
		})
	}
	t.Run("T95 an empty list is sent and fails as the provider's error", func(t *testing.T) {
		p.next(refuses(http.StatusBadRequest))
		r := a.turn(t, "t95 empty", "hello", bodies{"modify_model_request": "p.messages.clear()"})
		if all := p.arrived(); len(all) != 1 || part(t, all[0], "messages") != "[]" {
			t.Errorf("arrived %v", all)
		}
		expect(t, "the user heard", r.Texts, []string{internalError})
		expect(t, "the turn", []string{r.Report.Status, r.Report.Why}, []string{"error", "model_error"})
		if trace := a.TraceText("t95 empty"); strings.Contains(trace, `"said":"failed"`) || !strings.Contains(trace, "400") {
			t.Errorf("the trace: %s", trace)
		}
	})

	t.Run("T92 the bytes of a request that is asked again are the same", func(t *testing.T) {
		empty := completion(`{"role":"assistant","content":""}`)
		p.next(empty, completion(`{"role":"assistant","content":null}`), completion(`{"role":"assistant","content":"at last"}`))
		r := a.turn(t, "t92", "hello", bodies{"modify_model_request": "return p.model_copy(update={'messages': [{'b': 1.0, 'role': 'user', 'content': 'hooked', 'a': 1e-7}], 'model_settings': {'seed': 3, 'stop': ['x']}})"})
		expect(t, "the user heard", r.Texts, []string{"at last"})
		all := p.arrived()
		if len(all) != 3 || all[1] != all[0] || all[2] != all[0] {
			t.Fatalf("arrived %v", all)
		}
		expect(t, "what arrived", []string{part(t, all[0], "messages"), part(t, all[0], "seed"), part(t, all[0], "stop")},
			[]string{`[{"b":1.0,"role":"user","content":"hooked","a":1e-7}]`, "3", `["x"]`})
		expect(t, "hooks", a.asked("t92", "modify_model_request", "modify_model_response"), []string{"modify_model_request", "modify_model_response"})
	})

	t.Run("T92 the same on a channel that streams", func(t *testing.T) {
		empty := completion(`{"role":"assistant","content":""}`)
		p.next(empty, empty)
		a.Stream("t92 live", "hello")
		all := p.arrived()
		if len(all) != 3 || all[1] != all[0] || all[2] != all[0] {
			t.Fatalf("arrived %v", all)
		}
	})

	plain := hooked(t, "plain", "pass")
	for _, c := range modelSettings {
		t.Run("T93 what arrives of model_settings: "+c.name, func(t *testing.T) {
			body := hooked(t, "t93 "+c.name, "return p.model_copy(update={'model_settings': "+c.returned+"})")
			var got, want map[string]json.RawMessage
			if err := errors.Join(json.Unmarshal([]byte(body), &got), json.Unmarshal([]byte(plain), &want)); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal([]byte(c.want), &want); err != nil { // they win over those of the model
				t.Fatal(err)
			}
			expect(t, "body", got, want)
		})
	}
	t.Run("T93 the model, the key and the configured settings stay", func(t *testing.T) {
		body := hooked(t, "t93 stays", "return p.model_copy(update={'model_settings': {'model': 'large', 'api_key': 'planted-key', 'temperature': 'hot', 'top_k': 9}})")
		expect(t, "body", []string{part(t, body, "model"), part(t, body, "temperature"), part(t, body, "top_k")}, []string{`"small"`, "0.75", "3"})
		p.mu.Lock()
		defer p.mu.Unlock()
		if got := p.headers[0].Get("Authorization"); got != "Bearer the-real-key" || strings.Contains(fmt.Sprint(p.headers, p.bodies), "planted-key") {
			t.Errorf("the key sent is %q", got)
		}
	})

	t.Run("T94 the tools offered stay", func(t *testing.T) {
		body := hooked(t, "t94", "return p.model_copy(update={'tool_names': [], 'model_settings': {'tools': [], 'tool_choice': 'none'}})")
		if part(t, body, "tools") != part(t, plain, "tools") || part(t, body, "tools") == "" || part(t, body, "tool_choice") != "" {
			t.Errorf("arrived %s", body)
		}
	})

	t.Run("T97 the next iteration's request is built anew", func(t *testing.T) {
		p.next(completion(`{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"count","arguments":"{\"to\": 2}"}}]}`))
		a.turn(t, "t97", "hello", bodies{"modify_model_request": "if p.iteration == 0:\n    return p.model_copy(update={'messages': p.messages + [{'role': 'system', 'content': 'hooked'}], 'model_settings': {'seed': 3}})"})
		all := p.arrived()
		if len(all) != 2 || part(t, all[0], "seed") != "3" || !strings.Contains(all[0], "hooked") {
			t.Fatalf("arrived %v", all)
		}
		if part(t, all[1], "seed") != "" || strings.Contains(all[1], "hooked") || !strings.Contains(all[1], `"tool_call_id":"c1"`) {
			t.Errorf("the next request: %s", all[1])
		}
	})

	t.Run("T91 nothing arrives when a hook fails", func(t *testing.T) {
		p.next()
		a.turn(t, "t91", "hello", bodies{"modify_model_request": "1 / 0"})
		if all := p.arrived(); len(all) > 0 {
			t.Errorf("arrived %v", all)
		}
		if bot := a.Of("t91", conversation.Bot); len(bot) != 1 || bot[0].Text != requestHookError {
			t.Errorf("the record has %+v", bot)
		}
	})
}

func TestStreamedAnswer(t *testing.T) {
	t.Parallel()
	pieces := []apptest.Answer{apptest.Pieces("it ", "is ", "done")}
	for _, c := range []struct {
		name, text string
		live       bool
		files      apptest.Files
	}{
		{"one delivery with modify_outgoing_text", "event: text\ndata: {\"text\":\"it is done\",\"source\":\"llm\"}\n\n", false,
			playedHooks(longLimit, "modify_outgoing_text")},
		{"live with observers", "event: text\ndata: {\"text\":\"it is done\",\"source\":\"llm\",\"streamed\":true}\n\n", true,
			playedHooks(longLimit, "on_outgoing_text", "on_model_response", "on_tool_call")},
	} {
		t.Run("T106 over HTTP: "+c.name, func(t *testing.T) {
			t.Parallel()
			a := startPlayed(t, nil, c.files)
			s, err := server.New(a.App, server.Config{})
			if err != nil {
				t.Fatal(err)
			}
			a.Next("ada", pieces...)
			r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1/v1/conversations/ada/messages", strings.NewReader(`{"message":"hello"}`))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Accept", "text/event-stream")
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, r)
			before, after, sent := strings.Cut(w.Body.String(), c.text)
			if !sent || !strings.HasPrefix(after, "event: done") || strings.HasPrefix(before, "event: delta") != c.live || !c.live && before != "" {
				t.Errorf("the client got\n%s", w.Body.String())
			}
		})
	}
}
