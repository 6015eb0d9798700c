package server

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/belay-run/belay/internal/turn"
)

func TestToken(t *testing.T) {
	const token = "0123456789abcdef0123"
	for name, c := range map[string]struct {
		header string
		status int
	}{
		"right":           {"Bearer " + token, http.StatusOK},
		"small letters":   {"bearer " + token, http.StatusOK},
		"missing":         {"", http.StatusUnauthorized},
		"wrong":           {"Bearer 0123456789abcdef0124", http.StatusUnauthorized},
		"a part":          {"Bearer 0123456789", http.StatusUnauthorized},
		"more":            {"Bearer " + token + "0", http.StatusUnauthorized},
		"another scheme":  {"Basic " + token, http.StatusUnauthorized},
		"no scheme":       {token, http.StatusUnauthorized},
		"empty":           {"Bearer ", http.StatusUnauthorized},
		"the word itself": {"Bearer", http.StatusUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{talk: echo, health: Health{OK: true, Agent: "clinic"}}
			s, log := newServer(t, f, Config{Token: token})
			header := []string{"Host", "anywhere.example"}
			if c.header != "" {
				header = append(header, "Authorization", c.header)
			}
			if w := do(s, "POST", webhook, `{"sender":"u","message":"hi"}`, header...); w.Code != c.status {
				t.Errorf("webhook: %d %s", w.Code, w.Body)
			}
			for _, path := range []string{"/openapi.json", "/conversations/u/tracker", "/no/such/path"} {
				w := do(s, "GET", path, "", header...)
				if refused := w.Code == http.StatusUnauthorized; refused != (c.status == http.StatusUnauthorized) {
					t.Errorf("%s: %d", path, w.Code)
				}
				if w.Code == http.StatusUnauthorized {
					wantProblem(t, w, http.StatusUnauthorized)
					if !strings.HasPrefix(w.Header().Get("WWW-Authenticate"), "Bearer") {
						t.Error("WWW-Authenticate is missing")
					}
				}
			}
			w := do(s, "GET", "/healthz", "", header...)
			if told := strings.Contains(w.Body.String(), "clinic"); w.Code != http.StatusOK || told != (c.status == http.StatusOK) {
				t.Errorf("healthz: %d %s", w.Code, w.Body)
			}
			if strings.Contains(log.String(), "0123456789") {
				t.Errorf("the log has the token:\n%s", log)
			}
		})
	}
}

// A page on a name that its owner points at this machine must not get in.
func TestHostOnLoopback(t *testing.T) {
	s, _ := newServer(t, &fake{health: Health{OK: true}}, Config{})
	for host, status := range map[string]int{
		"localhost": 200, "LocalHost:80": 200, "127.0.0.1": 200, "127.0.0.1:5005": 200, "127.8.8.8:1": 200, "[::1]": 200, "[::1]:5005": 200,
		"evil.example": 403, "evil.example:5005": 403, "localhost.evil.example": 403, "127.0.0.1.evil.example": 403, "0.0.0.0:5005": 403, "192.168.1.5": 403, "[::]:5005": 403, "": 403,
	} {
		w := do(s, "GET", "/healthz", "", "Host", host)
		if w.Code != status {
			t.Errorf("host %q: %d, want %d", host, w.Code, status)
		}
		if status == 403 {
			wantProblem(t, w, status)
		}
	}
}

func TestOrigin(t *testing.T) {
	for name, c := range map[string]struct {
		origin string
		status int
		allow  string
	}{
		"none":            {"", 200, ""},
		"its own":         {"http://127.0.0.1:5005", 200, ""},
		"behind TLS":      {"https://127.0.0.1:5005", 200, ""},
		"allowed":         {"https://shop.example", 200, "https://shop.example"},
		"another":         {"https://evil.example", 403, ""},
		"another port":    {"http://127.0.0.1:8080", 403, ""},
		"another scheme":  {"http://shop.example", 403, ""},
		"one that begins": {"https://shop.example.evil.example", 403, ""},
		"null":            {"null", 403, ""},
	} {
		t.Run(name, func(t *testing.T) {
			ran := false
			s, _ := newServer(t, &fake{talk: func(context.Context, Inbound, turn.Out) (turn.Report, error) {
				ran = true
				return done, nil
			}}, Config{Origins: []string{"https://shop.example"}})
			var header []string
			if c.origin != "" {
				header = []string{"Origin", c.origin}
			}
			w := do(s, "POST", webhook, `{"sender":"u","message":"hi"}`, header...)
			if w.Code != c.status || w.Header().Get("Access-Control-Allow-Origin") != c.allow || ran != (c.status == 200) {
				t.Errorf("%d %v, ran: %v", w.Code, w.Header(), ran)
			}
			if c.status == 403 {
				wantProblem(t, w, 403)
			}
		})
	}
}

func TestPreflight(t *testing.T) {
	s, _ := newServer(t, &fake{}, Config{Token: "0123456789abcdef", Origins: []string{"https://shop.example"}})
	w := do(s, "OPTIONS", webhook, "", "Origin", "https://shop.example", "Access-Control-Request-Method", "POST")
	if w.Code != http.StatusNoContent || w.Header().Get("Access-Control-Allow-Origin") != "https://shop.example" || !strings.Contains(w.Header().Get("Access-Control-Allow-Headers"), "Authorization") {
		t.Errorf("%d %v", w.Code, w.Header())
	}
	wantProblem(t, do(s, "OPTIONS", webhook, "", "Origin", "https://evil.example", "Access-Control-Request-Method", "POST"), http.StatusForbidden)
	wantProblem(t, do(s, "OPTIONS", webhook, ""), http.StatusUnauthorized)
}

func TestConfig(t *testing.T) {
	const token = "0123456789abcdef"
	for name, c := range map[string]struct {
		cfg  Config
		want string // "" for none
	}{
		"nothing":              {Config{}, ""},
		"localhost":            {Config{Listen: "localhost:80"}, ""},
		"IPv6 loopback":        {Config{Listen: "[::1]:80"}, ""},
		"mapped loopback":      {Config{Listen: "[::ffff:127.0.0.1]:80"}, ""},
		"open with a token":    {Config{Listen: "0.0.0.0:80", Token: token}, ""},
		"all with a token":     {Config{Listen: ":80", Token: token}, ""},
		"open":                 {Config{Listen: "0.0.0.0:80"}, "token"},
		"all":                  {Config{Listen: ":80"}, "token"},
		"an address":           {Config{Listen: "192.168.1.5:80"}, "token"},
		"a name":               {Config{Listen: "host.example:80"}, "token"},
		"no port":              {Config{Listen: "127.0.0.1"}, "host:port"},
		"a token with a space": {Config{Token: "a b"}, "token"},
		"a token with a line":  {Config{Token: token + "\n"}, "token"},
		"an origin":            {Config{Origins: []string{"http://localhost:3000"}}, ""},
		"every origin":         {Config{Origins: []string{"*"}}, "origin"},
		"an origin's path":     {Config{Origins: []string{"https://shop.example/"}}, "origin"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(&fake{}, c.cfg)
			if (err == nil) != (c.want == "") || (err != nil && !strings.Contains(err.Error(), c.want)) {
				t.Errorf("error %v, want one about %q", err, c.want)
			}
			if err != nil && c.cfg.Token != "" && strings.Contains(err.Error(), c.cfg.Token) {
				t.Errorf("the error has the token: %v", err)
			}
		})
	}
}
