package control

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/belay-run/belay/internal/notice"
)

// Webhook sends messages to a URL, signed as https://www.standardwebhooks.com
// describes, so that receivers can use a library of that. It is a [notice.Sender].
//
//	POST <url>
//	Content-Type: application/json
//	webhook-id: msg_… the same at every try
//	webhook-timestamp: seconds since 1970
//	webhook-signature: v1,base64(HMAC-SHA256(secret, "<id>.<timestamp>.<body>"))
//
// An answer of 2xx is taken as received, 410 as wish for no more.
type Webhook struct {
	url    string
	secret []byte
	clock  func() time.Time
	http   *http.Client
}

const (
	secretPrefix = "whsec_"
	minSecret    = 24 // bytes
)

// NewWebhook returns a sender. The secret is "whsec_" and the base64 of at least 24
// random bytes, which the receiver knows too. A nil clock is time.Now.
func NewWebhook(target, secret string, clock func() time.Time) (*Webhook, error) {
	u, err := url.Parse(target)
	if err != nil { // it may have a secret in it: its text stays here
		return nil, errors.New("the URL of a webhook cannot be read; write it as https://host/path")
	}
	if u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || !isLoopback(net.JoinHostPort(u.Hostname(), "1"))) {
		return nil, fmt.Errorf("the URL of a webhook must begin with https:// (or http://127.0.0.1), not %s://", u.Scheme)
	}
	encoded, ok := strings.CutPrefix(secret, secretPrefix)
	raw, err := base64.StdEncoding.DecodeString(encoded)
	if !ok || err != nil || len(raw) < minSecret {
		return nil, fmt.Errorf("the secret of the webhook to %s must be %s and the base64 of %d or more random bytes; `openssl rand -base64 32` makes them", u.Host, secretPrefix, minSecret)
	}
	if clock == nil {
		clock = time.Now
	}
	return &Webhook{url: target, secret: raw, clock: clock, http: &http.Client{
		Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: 1, IdleConnTimeout: 30 * time.Second},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Close lets go of idle connections.
func (w *Webhook) Close() { w.http.CloseIdleConnections() }

// Send implements [notice.Sender].
func (w *Webhook) Send(ctx context.Context, m notice.Message) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, strings.NewReader(m.Body))
	if err != nil {
		return errors.New("make the request: the URL is none")
	}
	id, at := messageID(m), strconv.FormatInt(w.clock().Unix(), 10)
	mac := hmac.New(sha256.New, w.secret)
	mac.Write([]byte(id + "." + at + "." + m.Body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "belay")
	r.Header.Set("webhook-id", id)
	r.Header.Set("webhook-timestamp", at)
	r.Header.Set("webhook-signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	resp, err := w.http.Do(r)
	if err != nil {
		// The URL may have a secret in it, and the error is kept.
		if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
			err = wrapped.Err
		}
		return fmt.Errorf("no answer: %w", err)
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection can be used again
	err = resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusGone:
		return fmt.Errorf("it answered status %d: %w", resp.StatusCode, notice.ErrGone)
	case resp.StatusCode < 200 || resp.StatusCode > 299:
		return fmt.Errorf("it answered status %d", resp.StatusCode)
	}
	return err
}

// messageID is the same at every try, and nobody else's.
func messageID(m notice.Message) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %d", m.Tenant, m.Target, m.Event, m.Subject, m.Created.UnixNano()))
	return "msg_" + hex.EncodeToString(sum[:12])
}
