package model

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"

	"github.com/belay-run/belay/internal/chat"
)

// Complete asks for one completion; see the package for what is asked again.
func (c *Client) Complete(ctx context.Context, req chat.Request, delta func(string)) (chat.Response, error) {
	body, err := c.body(req, delta != nil)
	if err != nil {
		return chat.Response{}, &chat.Error{Message: c.name + " cannot be asked: a tool's parameters are no JSON"}
	}
	limited, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	t := try{client: c, body: body, delta: delta}
	for attempt := 1; ; attempt++ {
		began := c.cfg.Now()
		d, fail := t.run(limited)
		if fail == nil {
			r := d.response(c.cfg.NewID)
			r.Latency = c.cfg.Now().Sub(began)
			return r, nil
		}
		if fail = c.again(ctx, limited, attempt, t.delivered, fail); fail != nil {
			return chat.Response{}, c.err(ctx, fail, attempt, t.begun)
		}
	}
}

// again waits before the next attempt. It gives the failure that ends the call
// when there is to be none.
func (c *Client) again(ctx, limited context.Context, attempt int, delivered bool, fail *failure) *failure {
	if limited.Err() != nil {
		return c.late(ctx, fail)
	}
	if !fail.retry || delivered || attempt > c.cfg.MaxRetries {
		return fail
	}
	wait, ok := backoff(attempt, fail.after, c.cfg.Random)
	deadline, _ := limited.Deadline()
	if !ok || time.Until(deadline) <= wait {
		return fail
	}
	c.cfg.Logger.Warn("a model request failed and is asked again", "model", c.name, "status", fail.status,
		"why", fail.what, "attempt", attempt, "wait", wait)
	if c.cfg.Sleep(limited, wait) != nil {
		return c.late(ctx, fail)
	}
	return nil
}

// late is the failure of a call whose time is over.
func (c *Client) late(ctx context.Context, last *failure) *failure {
	if ctx.Err() != nil {
		return last // the caller's doing; err says so
	}
	what := fmt.Sprintf("gave no whole answer within %v; raise the time limit, or use a faster model", c.cfg.Timeout)
	return &failure{status: last.status, what: what}
}

func (c *Client) err(ctx context.Context, fail *failure, attempts, begun int) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("asking %s: %w", c.name, err)
	}
	return &chat.Error{Status: fail.status, Message: c.name + " " + fail.what, Attempts: attempts, Begun: begun}
}

// try is one request, asked once or more.
type try struct {
	client    *Client
	body      []byte
	delta     func(string)
	delivered bool // a piece of text was handed on
	begun     int  // tries that the provider has begun to answer, or may have
}

func (t *try) run(ctx context.Context) (*draft, *failure) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	accept := "application/json"
	if t.delta != nil {
		accept = "text/event-stream"
	}
	var res *http.Response
	err := t.client.api.Post(ctx, "chat/completions", t.body, &res, option.WithHeader("Accept", accept))
	if res != nil && res.Body != nil {
		defer func() { _ = res.Body.Close() }() // read to its end or given up; nothing to learn
	}
	switch {
	case res != nil && res.StatusCode >= 300:
		return nil, refused(res)
	case err != nil:
		if ctx.Err() != nil { // the provider may be at work still
			t.begun++
		}
		return nil, t.client.unreachable(err)
	}
	media, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")) // unreadable is like missing
	if media != "text/html" {
		t.begun++
	}
	switch {
	case media == "text/html":
		return nil, &failure{status: res.StatusCode, what: "answered with a web page, not a completion; check base_url, which often ends with /v1"}
	case media == "text/event-stream", t.delta != nil && media != "application/json":
		pulse := &pulse{body: res.Body, limit: t.client.cfg.Stall, stop: func() { cancel(errStalled) }}
		d, fail := t.stream(res, pulse)
		if fail != nil && errors.Is(context.Cause(ctx), errStalled) {
			fail = &failure{what: fmt.Sprintf("fell silent in the middle of an answer for %v", t.client.cfg.Stall), retry: true}
		}
		return d, fail
	}
	return t.whole(res)
}

// whole reads an answer that comes in one piece, which also servers give that
// cannot stream.
func (t *try) whole(res *http.Response) (*draft, *failure) {
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, t.client.broken(err)
	}
	var d draft
	fail := t.take(&d, raw)
	if fail == nil && !d.any {
		fail = &failure{what: "answered without a completion"}
	}
	return &d, fail
}

// stream reads an answer piece by piece.
func (t *try) stream(res *http.Response, p *pulse) (*draft, *failure) {
	defer p.end()
	// An event counts when a blank line ends it; some servers leave out the last.
	res.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(p, bytes.NewReader([]byte("\n\n"))), res.Body}
	res.Header.Set("Content-Type", "text/event-stream")
	events := ssestream.NewDecoder(res)
	var d draft
	ended := false
	for !ended && events.Next() {
		p.begun = true
		data := bytes.TrimSpace(events.Event().Data)
		if ended = bytes.HasPrefix(data, []byte("[DONE]")); ended || len(data) == 0 {
			continue
		}
		if fail := t.take(&d, data); fail != nil {
			return nil, fail
		}
	}
	if err := events.Err(); err != nil {
		return nil, t.client.broken(err)
	}
	switch {
	case !d.any && ended:
		return nil, &failure{what: "answered without a completion"}
	case !ended && d.finish == "":
		// Neither mark of an end was there: what came may be half a sentence.
		return nil, &failure{what: "ended an answer in the middle", retry: true}
	}
	return &d, nil
}

// take adds one JSON answer to the draft and hands on its text.
func (t *try) take(d *draft, raw []byte) *failure {
	var a answer
	if err := json.Unmarshal(raw, &a); err != nil {
		return &failure{what: "gave an answer that is no chat completion; check base_url and that the server speaks OpenAI's chat completions API"}
	}
	if len(a.Error) > 0 && string(a.Error) != "null" {
		return reported(a.Error)
	}
	if text := d.add(a); text != "" && t.delta != nil {
		t.delivered = true
		t.delta(text)
	}
	return nil
}
