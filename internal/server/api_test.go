package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/belay-run/belay/internal/conversation"
	"github.com/belay-run/belay/internal/turn"
)

const (
	webhook = "/webhooks/rest/webhook"
	chat    = "/v1/conversations/u/messages"
)

func TestWebhook(t *testing.T) {
	var got Inbound
	s, _ := newServer(t, &fake{talk: func(ctx context.Context, in Inbound, out turn.Out) (turn.Report, error) {
		got = in
		out.Text(turn.Utterance{Text: "<one>"})
		return echo(ctx, in, out)
	}}, Config{})
	w := do(s, "POST", webhook, `{"sender":"ü 1","message":"hi","metadata":{"n":12345678901234567890,"h":"<b>"},"call":{"id":1},"attachments":[{"type":"image"}],"interrupt":true}`)
	if w.Code != http.StatusOK || w.Body.String() != `[{"recipient_id":"ü 1","text":"\u003cone\u003e"},{"recipient_id":"ü 1","text":"hi"}]`+"\n" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w.Header().Get("Belay-Turn") != "turn-1" || w.Header().Get("Content-Type") != "application/json" || w.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("header %v", w.Header())
	}
	if got.Sender != "ü 1" || got.Message.Text != "hi" || !got.Interrupt || got.Live || string(got.Message.Call) != `{"id":1}` ||
		string(got.Message.Extra) != `[{"type":"image"}]` || string(got.Message.Channel) != `{"name":"rest","metadata":{"n":12345678901234567890,"h":"<b>"}}` {
		t.Errorf("the turn got %+v\nchannel %s, extra %s, call %s", got, got.Message.Channel, got.Message.Extra, got.Message.Call)
	}
}

func TestWebhookDefaults(t *testing.T) {
	var got Inbound
	s, _ := newServer(t, &fake{talk: func(_ context.Context, in Inbound, _ turn.Out) (turn.Report, error) {
		got = in
		return done, nil
	}}, Config{})
	for body, extra := range map[string]string{
		`{"sender":"u","message":"hi"}`:                             "",
		`{"sender":"u","message":"hi","attachments":null}`:          "",
		`{"sender":"u","message":"hi","metadata":null,"call":null}`: "",
		`{"sender":"u","message":"hi","attachments":[]}`:            "",
		`{"sender":"u","attachments":{"button":"yes"}}`:             `{"button":"yes"}`,
		`{"sender":"u","message":"","attachments":"file:1"}`:        `"file:1"`,
	} {
		w := do(s, "POST", webhook, body)
		if w.Code != http.StatusOK || w.Body.String() != "[]\n" {
			t.Errorf("%s: %d %s", body, w.Code, w.Body)
		}
		if string(got.Message.Extra) != extra || string(got.Message.Channel) != `{"name":"rest","metadata":{}}` || got.Message.Call != nil {
			t.Errorf("%s: the turn got extra %s, channel %s, call %s", body, got.Message.Extra, got.Message.Channel, got.Message.Call)
		}
	}
}

// Texts arrive when they are ready, not at the end.
func TestWebhookStream(t *testing.T) {
	goOn := make(chan struct{})
	r := start(t, &fake{talk: func(_ context.Context, in Inbound, out turn.Out) (turn.Report, error) {
		if in.Live {
			return done, errors.New("lines take no pieces")
		}
		out.Text(turn.Utterance{Text: "one"})
		<-goOn
		out.Text(turn.Utterance{Text: "two\nlines"})
		return done, nil
	}}, Config{})
	resp := r.post(t, webhook+"?stream=true", `{"sender":"u","message":"hi"}`)
	lines := bufio.NewReader(resp.Body)
	first, err := lines.ReadString('\n')
	if err != nil || first != `{"recipient_id":"u","text":"one"}`+"\n" {
		t.Fatalf("%q %v", first, err)
	}
	close(goOn)
	if rest := text(t, lines); rest != `{"recipient_id":"u","text":"two\nlines"}`+"\n" {
		t.Errorf("%q", rest)
	}
	if got := resp.Header.Get("Content-Type"); got != "application/x-ndjson" {
		t.Errorf("Content-Type %q", got)
	}
}

func TestChatWhole(t *testing.T) {
	var got Inbound
	s, _ := newServer(t, &fake{talk: func(_ context.Context, in Inbound, out turn.Out) (turn.Report, error) {
		got = in
		out.Text(turn.Utterance{Text: "bye", Source: "verbatim"})
		return turn.Report{Turn: "turn-1", Status: turn.Failed, Ended: true}, nil
	}}, Config{})
	w := do(s, "POST", "/v1/conversations/a%2Fb%20%C3%BC/messages", `{"message":"hi"}`)
	if w.Code != http.StatusOK || w.Body.String() != `{"turn_id":"turn-1","status":"error","ended":true,"texts":[{"text":"bye","source":"verbatim"}]}`+"\n" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if got.Sender != "a/b ü" || got.Live || string(got.Message.Channel) != `{"name":"http","metadata":{}}` {
		t.Errorf("the turn got %+v", got)
	}
}

func TestChatEvents(t *testing.T) {
	goOn := make(chan struct{})
	r := start(t, &fake{talk: func(_ context.Context, in Inbound, out turn.Out) (turn.Report, error) {
		if !in.Live {
			return done, errors.New("events take pieces")
		}
		out.Delta("He")
		<-goOn
		out.Delta("llo\n")
		out.Text(turn.Utterance{Text: "Hello\n", Source: "llm", Streamed: true})
		return done, nil
	}}, Config{})
	resp := r.post(t, chat, `{"message":"hi"}`, "Accept", "text/event-stream; q=0.9, application/json;q=0.1")
	body := bufio.NewReader(resp.Body)
	var first strings.Builder
	for range 3 {
		line, err := body.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		first.WriteString(line)
	}
	close(goOn)
	want := "event: delta\ndata: {\"text\":\"He\"}\n\n" +
		"event: delta\ndata: {\"text\":\"llo\\n\"}\n\n" +
		"event: text\ndata: {\"text\":\"Hello\\n\",\"source\":\"llm\",\"streamed\":true}\n\n" +
		"event: done\ndata: {\"turn_id\":\"turn-1\",\"status\":\"completed\"}\n\n"
	if got := first.String() + text(t, body); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := resp.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Errorf("Content-Type %q", got)
	}
}

func TestTurnsThatDoNotRun(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		status int
	}{
		"busy":     {fmt.Errorf("u: %w", turn.ErrBusy), http.StatusTooManyRequests},
		"stopping": {turn.ErrClosed, http.StatusServiceUnavailable},
		"disk":     {errors.New("write /secret/path: no space"), http.StatusServiceUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			s, log := newServer(t, &fake{talk: func(context.Context, Inbound, turn.Out) (turn.Report, error) { return turn.Report{}, c.err }}, Config{})
			for _, path := range []string{webhook, webhook + "?stream=true", chat} {
				body := `{"message":"planted"}`
				if path != chat {
					body = `{"sender":"u","message":"planted"}`
				}
				w := do(s, "POST", path, body, "Accept", "text/event-stream")
				wantProblem(t, w, c.status)
				if w.Header().Get("Retry-After") == "" {
					t.Error("Retry-After is missing")
				}
				if strings.Contains(w.Body.String(), "secret") || strings.Contains(w.Body.String()+log.String(), "planted") {
					t.Errorf("too much is told: %s\n%s", w.Body, log)
				}
			}
		})
	}
}

// A stream that has begun can no longer change its status: its last line says
// what went wrong.
func TestStreamsThatBreakOff(t *testing.T) {
	s, _ := newServer(t, &fake{talk: func(_ context.Context, _ Inbound, out turn.Out) (turn.Report, error) {
		out.Text(turn.Utterance{Text: "one", Source: "llm"})
		return turn.Report{}, errors.New("disk")
	}}, Config{})
	const p = `{"title":"Service Unavailable","status":503,"detail":"could not run a turn; the log says why"}`
	w := do(s, "POST", webhook+"?stream=true", `{"sender":"u","message":"hi"}`)
	if want := `{"recipient_id":"u","text":"one"}` + "\n" + `{"error":` + p + "}\n"; w.Code != http.StatusOK || w.Body.String() != want {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	w = do(s, "POST", chat, `{"message":"hi"}`, "Accept", "text/event-stream")
	if want := "event: text\ndata: {\"text\":\"one\",\"source\":\"llm\"}\n\nevent: error\ndata: " + p + "\n\n"; w.Code != http.StatusOK || w.Body.String() != want {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestPanics(t *testing.T) {
	s, log := newServer(t, &fake{talk: func(context.Context, Inbound, turn.Out) (turn.Report, error) { panic("planted") },
		events: map[string][]conversation.Event{}}, Config{Metrics: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("planted") })})
	for _, w := range []int{
		do(s, "POST", webhook, `{"sender":"u","message":"hi"}`).Code,
		do(s, "POST", webhook+"?stream=true", `{"sender":"u","message":"hi"}`).Code,
		do(s, "GET", "/metrics", "").Code,
	} {
		if w != http.StatusInternalServerError {
			t.Errorf("status %d", w)
		}
	}
	wantProblem(t, do(s, "GET", "/metrics", ""), http.StatusInternalServerError)
	if l := log.String(); strings.Contains(l, "planted") || !strings.Contains(l, "server.TestPanics") {
		t.Errorf("the log should have the stack and not the panic's text:\n%s", l)
	}
}

func TestTraceparentReachesTheTurn(t *testing.T) {
	var parent trace.SpanContext
	s, _ := newServer(t, &fake{talk: func(ctx context.Context, _ Inbound, _ turn.Out) (turn.Report, error) {
		parent = trace.SpanContextFromContext(ctx)
		return done, nil
	}}, Config{})
	do(s, "POST", webhook, `{"sender":"u","message":"hi"}`, "traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	if parent.TraceID().String() != "0af7651916cd43dd8448eb211c80319c" || parent.SpanID().String() != "b7ad6b7169203331" || !parent.IsRemote() {
		t.Errorf("the parent is %+v", parent)
	}
	do(s, "POST", webhook, `{"sender":"u","message":"hi"}`, "traceparent", "rubbish")
	if parent.IsValid() {
		t.Errorf("rubbish gives the parent %+v", parent)
	}
}

func TestConversations(t *testing.T) {
	at := time.Unix(1700000000, 0).UTC()
	f := &fake{
		events: map[string][]conversation.Event{"a/b": {{Seq: 1, Kind: conversation.User, Turn: "t1", At: at, Text: "hi <b>"}}},
		traces: map[string][]conversation.Trace{"a/b": {{Seq: 1, Turn: "t1", At: at, Data: []byte(`{"kind":"note"}`)}, {Seq: 2, Turn: "t2", At: at, Data: []byte(`{}`)}}},
	}
	s, _ := newServer(t, f, Config{})
	for path, want := range map[string]string{
		"/conversations/a%2Fb/tracker":       `{"sender_id":"a/b","events":[{"event":"user","timestamp":1700000000,"text":"hi <b>","metadata":{"seq":1,"turn_id":"t1"}}]}`,
		"/conversations/a%2Fb/trace?turn=t2": `{"sender_id":"a/b","lines":[{"seq":2,"turn_id":"t2","at":"2023-11-14T22:13:20Z","data":{}}]}`,
	} {
		if w := do(s, "GET", path, ""); w.Code != http.StatusOK || strings.TrimSpace(w.Body.String()) != want {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	if w := do(s, "GET", "/conversations/a%2Fb/trace", ""); strings.Count(w.Body.String(), "turn_id") != 2 {
		t.Errorf("the whole trace: %s", w.Body)
	}
	for _, c := range [][2]string{{"GET", "/conversations/nobody/tracker"}, {"GET", "/conversations/nobody/trace"}, {"DELETE", "/conversations/nobody"}, {"GET", "/conversations/a%2Fb/trace?turn=t9"}} {
		wantProblem(t, do(s, c[0], c[1], ""), http.StatusNotFound)
	}
	if w := do(s, "DELETE", "/conversations/a%2Fb", ""); w.Code != http.StatusNoContent || w.Body.Len() != 0 {
		t.Errorf("delete: %d %s", w.Code, w.Body)
	}
	wantProblem(t, do(s, "DELETE", "/conversations/a%2Fb", ""), http.StatusNotFound)

	f.err = errors.New("open /secret/path")
	for _, c := range [][2]string{{"GET", "/conversations/u/tracker"}, {"GET", "/conversations/u/trace"}, {"DELETE", "/conversations/u"}} {
		if d := wantProblem(t, do(s, c[0], c[1], ""), http.StatusServiceUnavailable); strings.Contains(d, "secret") {
			t.Errorf("%v tells %q", c, d)
		}
	}
}

func TestHealth(t *testing.T) {
	f := &fake{health: Health{OK: true, Agent: "clinic", Model: "scripted/x", Scripted: true, Workers: 1}}
	s, _ := newServer(t, f, Config{})
	if w := do(s, "GET", "/healthz", ""); w.Code != http.StatusOK || strings.TrimSpace(w.Body.String()) != `{"ok":true,"agent":"clinic","model":"scripted/x","scripted":true,"workers":1}` {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	f.health.OK = false
	if w := do(s, "GET", "/healthz", ""); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), `"ok":false`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestMetricsAreServed(t *testing.T) {
	s, _ := newServer(t, &fake{}, Config{Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "x 1\n") })})
	if w := do(s, "GET", "/metrics", ""); w.Body.String() != "x 1\n" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	s, _ = newServer(t, &fake{}, Config{})
	wantProblem(t, do(s, "GET", "/metrics", ""), http.StatusNotFound)
}

func TestOpenAPI(t *testing.T) {
	s, _ := newServer(t, &fake{}, Config{Version: "1.2.3", Metrics: http.NotFoundHandler()})
	w := do(s, "GET", "/openapi.json", "")
	const golden = "testdata/openapi.json"
	if *update {
		if err := os.WriteFile(golden, append(w.Body.Bytes(), '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if w.Body.String()+"\n" != string(want) {
		t.Errorf("the document differs from %s; look at what changed and run the test with -update\n%s", golden, w.Body)
	}
	if got := w.Header().Get("Content-Type"); got != "application/openapi+json" {
		t.Errorf("Content-Type %q", got)
	}
	for _, path := range []string{"/docs", "/schemas/Health.json", "/openapi.yaml"} { // they would load scripts from elsewhere, or say the same
		wantProblem(t, do(s, "GET", path, ""), http.StatusNotFound)
	}
}
