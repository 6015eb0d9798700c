package control

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/belay-run/belay/internal/notice"
)

const hookSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

func TestWebhooksAreSigned(t *testing.T) {
	var got *http.Request
	var body []byte
	status := http.StatusNoContent
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
		if status == http.StatusFound {
			w.Header().Set("Location", "/elsewhere")
		}
		w.WriteHeader(status)
	}))
	defer receiver.Close()
	w, err := NewWebhook(receiver.URL+"/hook?key=hidden", hookSecret, func() time.Time { return at })
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	m := notice.Message{Tenant: "main", Target: "ops", Event: "approval.waiting", Subject: "a1", Body: `{"id":"a1"}`, Created: at}
	if err := w.Send(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	id, when := got.Header.Get("webhook-id"), got.Header.Get("webhook-timestamp")
	key, _ := base64.StdEncoding.DecodeString("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + when + "." + string(body)))
	if want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)); got.Header.Get("webhook-signature") != want || when != "1793699100" || string(body) != m.Body || got.Method != "POST" {
		t.Errorf("%v %s", got.Header, body)
	}
	if err := w.Send(t.Context(), m); err != nil || got.Header.Get("webhook-id") != id {
		t.Errorf("another try has another id: %v", err)
	}
	m.Subject = "a2"
	if err := w.Send(t.Context(), m); err != nil || got.Header.Get("webhook-id") == id {
		t.Errorf("another message has the same id: %v", err)
	}
	for _, status = range []int{500, 404, 302, 410} {
		err := w.Send(t.Context(), m)
		if err == nil || errors.Is(err, notice.ErrGone) != (status == 410) || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%d: %v", status, err)
		}
	}
	receiver.Close()
	if err := w.Send(t.Context(), m); err == nil || strings.Contains(err.Error(), "hidden") || strings.Contains(err.Error(), "http://") {
		t.Errorf("nobody there: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Send(ended, m); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestWebhooksThatCannotBe(t *testing.T) {
	for name, c := range map[string][2]string{
		"no scheme":          {"example.org/hook", hookSecret},
		"no host":            {"https:///hook", hookSecret},
		"in plain":           {"http://example.org/hook", hookSecret},
		"odd URL":            {"https://exa mple.org/key=hidden", hookSecret},
		"another scheme":     {"file:///hidden", hookSecret},
		"no secret":          {"https://example.org", ""},
		"no prefix":          {"https://example.org", strings.TrimPrefix(hookSecret, "whsec_")},
		"no base64":          {"https://example.org", "whsec_hidden!"},
		"too short a secret": {"https://example.org", "whsec_aGlkZGVu"},
	} {
		if w, err := NewWebhook(c[0], c[1], nil); err == nil || w != nil || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, good := range []string{"https://example.org/hook", "http://127.0.0.1:80/x", "http://[::1]/x"} {
		if _, err := NewWebhook(good, hookSecret, nil); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
}
