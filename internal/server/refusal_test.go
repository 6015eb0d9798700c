package server

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/belay-run/belay/internal/turn"
)

// planted stands for what a user said: no refusal may quote it.
const planted = "4111-planted"

func TestBadRequests(t *testing.T) {
	long := strings.Repeat("x", 257)
	for name, c := range map[string]struct {
		method, path, body string
		header             []string
		status             int
		detail             string // a part of it
	}{
		"no body":                {"POST", webhook, "", []string{"Content-Type", "application/json"}, 400, "required"},
		"no JSON":                {"POST", webhook, planted, nil, 400, "body"},
		"JSON that ends early":   {"POST", webhook, `{"sender":"u","message":"` + planted, nil, 400, "unexpected end"},
		"two values":             {"POST", webhook, `{"sender":"u","message":"hi"} {}`, nil, 400, "body"},
		"a list":                 {"POST", webhook, `[]`, nil, 422, "expected object"},
		"null":                   {"POST", webhook, `null`, nil, 422, "expected object"},
		"unknown field":          {"POST", webhook, `{"sender":"u","message":"hi","mesage":"` + planted + `"}`, nil, 422, "body.mesage: unexpected property"},
		"a text as a field":      {"POST", webhook, `{"sender":"u","message":"hi","` + planted + ` is my card":1}`, nil, 422, "unexpected property"},
		"another case":           {"POST", webhook, `{"Sender":"u","message":"hi"}`, nil, 422, "sender"},
		"a key twice":            {"POST", webhook, `{"sender":"u","message":"hi","sender":"` + planted + `"}`, nil, 422, "twice"},
		"no sender":              {"POST", webhook, `{"message":"` + planted + `"}`, nil, 422, "required property sender"},
		"message is a number":    {"POST", webhook, `{"sender":"u","message":4111}`, nil, 422, "body.message: expected string"},
		"message is a list":      {"POST", webhook, `{"sender":"u","message":["` + planted + `"]}`, nil, 422, "body.message: expected string"},
		"message is null":        {"POST", webhook, `{"sender":"u","message":null}`, nil, 422, "body.message"},
		"metadata is a text":     {"POST", webhook, `{"sender":"u","message":"hi","metadata":"` + planted + `"}`, nil, 422, "body.metadata: expected object"},
		"two cases":              {"POST", webhook, `{"sender":"u","message":"hi","SENDER":"v"}`, nil, 422, "unexpected property"},
		"call is a list":         {"POST", webhook, `{"sender":"u","message":"hi","call":["` + planted + `"]}`, nil, 422, "body.call: expected object"},
		"interrupt is a text":    {"POST", webhook, `{"sender":"u","message":"hi","interrupt":"` + planted + `"}`, nil, 422, "body.interrupt: expected boolean"},
		"nothing said":           {"POST", webhook, `{"sender":"u"}`, nil, 422, "body.message: there is no text"},
		"nothing said in a chat": {"POST", chat, `{"message":"","attachments":[]}`, nil, 422, "body.message: there is no text"},
		"sender in a chat":       {"POST", chat, `{"sender":"u","message":"hi"}`, nil, 422, "body.sender: unexpected property"},

		"empty sender":            {"POST", webhook, `{"sender":"","message":"` + planted + `"}`, nil, 422, "body.sender: expected length >= 1"},
		"blank sender":            {"POST", webhook, `{"sender":" \t","message":"hi"}`, nil, 422, "blank"},
		"long sender":             {"POST", webhook, `{"sender":"` + long + `","message":"hi"}`, nil, 422, "256 bytes"},
		"control in sender":       {"POST", webhook, `{"sender":"u\u0000","message":"hi"}`, nil, 422, "control characters"},
		"line end in sender":      {"POST", webhook, `{"sender":"u\nx","message":"hi"}`, nil, 422, "control characters"},
		"C1 control in sender":    {"POST", webhook, `{"sender":"u\u0085","message":"hi"}`, nil, 422, "control characters"},
		"turned text in sender":   {"POST", webhook, `{"sender":"u\u202e","message":"hi"}`, nil, 422, "control characters"},
		"half a character sender": {"POST", webhook, `{"sender":"u\ud800","message":"hi"}`, nil, 422, "UTF-8"},
		"no UTF-8 sender":         {"POST", webhook, "{\"sender\":\"u\xff\",\"message\":\"hi\"}", nil, 422, "UTF-8"},
		"no UTF-8 message":        {"POST", webhook, "{\"sender\":\"u\",\"message\":\"" + planted + "\xff\"}", nil, 422, "UTF-8"},

		"control in id":     {"GET", "/conversations/a%00b/tracker", "", nil, 422, "path.id: an id cannot have control characters"},
		"line end in id":    {"DELETE", "/conversations/a%0ab", "", nil, 422, "control characters"},
		"no UTF-8 id":       {"GET", "/conversations/a%ffb/trace", "", nil, 422, "UTF-8"},
		"blank id":          {"GET", "/conversations/%20/trace", "", nil, 422, "blank"},
		"long id":           {"GET", "/conversations/" + long + "/tracker", "", nil, 422, "256 bytes"},
		"long id in a chat": {"POST", "/v1/conversations/" + long + "/messages", `{"message":"hi"}`, nil, 422, "256 bytes"},
		"control in turn":   {"GET", "/conversations/u/trace?turn=%0a", "", nil, 422, "query.turn"},
		"unknown query":     {"POST", webhook + "?steam=true", `{"sender":"u","message":"hi"}`, nil, 422, "query.steam: unknown query parameter"},
		"stream of what":    {"POST", webhook + "?stream=" + planted, `{"sender":"u","message":"hi"}`, nil, 422, "query.stream"},

		"body too long":     {"POST", webhook, `{"sender":"u","message":"` + strings.Repeat("x", 1<<20) + `"}`, nil, 413, "1048576 bytes"},
		"a form":            {"POST", webhook, "sender=u", []string{"Content-Type", "application/x-www-form-urlencoded"}, 415, "application/json"},
		"plain text":        {"POST", webhook, `{"sender":"u","message":"hi"}`, []string{"Content-Type", "text/plain"}, 415, "application/json"},
		"no content type":   {"POST", webhook, `{"sender":"u","message":"hi"}`, []string{"Content-Type", ""}, 415, "application/json"},
		"another charset":   {"POST", webhook, `{"sender":"u","message":"hi"}`, []string{"Content-Type", "application/json; charset=latin1"}, 415, "UTF-8"},
		"a packed body":     {"POST", webhook, `{"sender":"u","message":"hi"}`, []string{"Content-Encoding", "gzip"}, 415, "Content-Encoding"},
		"wrong method":      {"GET", webhook, "", nil, 405, "POST"},
		"odd method":        {"BREW", webhook, "", nil, 405, "POST"},
		"wrong method read": {"POST", "/conversations/u/tracker", `{}`, nil, 405, "GET"},
		"unknown path":      {"GET", "/conversations", "", nil, 404, "no such path"},
		"no path":           {"POST", "/", planted, nil, 404, "no such path"},
	} {
		t.Run(name, func(t *testing.T) {
			s, log := newServer(t, &fake{talk: func(context.Context, Inbound, turn.Out) (turn.Report, error) {
				t.Error("a turn ran")
				return done, nil
			}}, Config{})
			w := do(s, c.method, c.path, c.body, c.header...)
			if d := wantProblem(t, w, c.status); !strings.Contains(d, c.detail) {
				t.Errorf("detail %q lacks %q", d, c.detail)
			}
			if all := w.Body.String() + log.String(); strings.Contains(all, "4111") || strings.Contains(all, "xxxx") {
				t.Errorf("what was sent is quoted:\n%.500s\n%.500s", w.Body, log)
			}
			if c.status == http.StatusMethodNotAllowed && w.Header().Get("Allow") == "" {
				t.Error("Allow is missing")
			}
		})
	}
}

// What is just within the limits passes.
func TestGoodRequests(t *testing.T) {
	for name, c := range map[string]struct{ path, body, kind string }{
		"longest sender":   {webhook, `{"sender":"` + strings.Repeat("x", 256) + `","message":"hi"}`, "application/json"},
		"longest body":     {webhook, `{"sender":"u","message":"` + strings.Repeat("x", 1<<20-28) + `"}`, "application/json"},
		"charset":          {webhook, `{"sender":"u","message":"hi"}`, "application/json; charset=UTF-8"},
		"controls in text": {webhook, `{"sender":"u","message":"a\n\u0000\u202e"}`, "application/json"},
		"a blank text":     {webhook, `{"sender":"u","message":" "}`, "application/json"},
		"other scripts":    {webhook, "{\"sender\":\"用户\u200d👩\u200d💻\",\"message\":\"hi\"}", "application/json"},
		"dots as an id":    {"/v1/conversations/%2E%2E/messages", `{"message":"hi"}`, "application/json"},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := newServer(t, &fake{talk: echo}, Config{})
			if w := do(s, "POST", c.path, c.body, "Content-Type", c.kind); w.Code != http.StatusOK {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		})
	}
}
