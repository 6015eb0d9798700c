package gateway

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/belay-run/belay/internal/httpio"
	"github.com/belay-run/belay/internal/rawjson"
)

const (
	chatPath     = "/v1/chat/completions"
	messagesPath = "/v1/messages"
	countPath    = "/v1/messages/count_tokens"
	modelsPath   = "/v1/models"
)

// exchange is one request.
type exchange struct {
	g      *Gateway
	w      *httpio.Writer
	r      *http.Request
	id     string
	vendor string // whose shapes the answer has: [OpenAI] or [Anthropic]
	began  time.Time
	grant  *grant
}

// ServeHTTP answers a request. Nothing is looked at before its key.
func (g *Gateway) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	w := httpio.NewWriter(rw, g.stall)
	x := &exchange{g: g, w: w, r: r, id: g.cfg.NewID(), vendor: vendorOf(r), began: time.Now()}
	defer func() {
		w.End(g.cfg.Logger, recover(), func() {
			x.refuse(&Refusal{http.StatusInternalServerError, "the gateway failed; its log says more"})
		}, "route", routeOf(r.URL.Path), "status", w.Status(), "id", x.id)
	}()
	if r.ContentLength != 0 {
		w.ReadUntil(x.began.Add(g.bodyTime)) // also for a body that nobody wants
	}
	grant, refusal := g.admit(r)
	if refusal != nil {
		g.refused.log(g.cfg.Logger, x.began, "a model call came without a good key", "route", routeOf(r.URL.Path))
		x.refuse(refusal)
		return
	}
	defer grant.calls.Done()
	x.grant = grant
	ctx, done := x.until(grant.life)
	defer done()
	x.r = r.WithContext(ctx)
	x.route()
}

// until gives a context that ends with the client and with the key. With the key it
// also ends writes to a client that does not read, and reads of a body that does not
// come.
func (x *exchange) until(life context.Context) (ctx context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(x.r.Context())
	left, ended := make(chan struct{}), make(chan struct{})
	control := http.NewResponseController(x.w.ResponseWriter)
	stop := context.AfterFunc(life, func() {
		defer close(ended)
		cancel(context.Cause(life))
		for again := time.NewTicker(10 * time.Millisecond); ; {
			// What began just now may have set a deadline of its own. Only a recorder in
			// a test has none.
			_ = control.SetReadDeadline(time.Now())
			_ = control.SetWriteDeadline(time.Now())
			select {
			case <-left:
				again.Stop()
				return
			case <-again.C:
			}
		}
	})
	return ctx, func() {
		cancel(nil)
		if close(left); !stop() {
			<-ended
		}
	}
}

func (x *exchange) route() {
	path := x.r.URL.Path
	method := http.MethodPost
	if path == modelsPath || strings.HasPrefix(path, modelsPath+"/") {
		method = http.MethodGet
	}
	switch {
	case routeOf(path) == "":
		x.refuse(&Refusal{http.StatusNotImplemented, "the gateway has no such route: it has POST " + chatPath + ", " + messagesPath + " and " + countPath + ", and GET " + modelsPath})
	case x.r.Method != method:
		x.w.Header().Set("Allow", method)
		x.refuse(&Refusal{http.StatusMethodNotAllowed, path + " takes " + method + " only"})
	case method == http.MethodPost:
		newCall(x, x.vendor).serve()
	default:
		if refusal := x.granted(); refusal != nil {
			newCall(x, x.vendor).refuse(refusal)
			return
		}
		x.models(strings.TrimPrefix(strings.TrimPrefix(path, modelsPath), "/"))
	}
}

// routeOf is the route of a path, without what a client wrote itself; "" for none.
func routeOf(path string) string {
	switch {
	case path == chatPath, path == messagesPath, path == countPath, path == modelsPath:
		return path
	case strings.HasPrefix(path, modelsPath+"/"):
		return modelsPath + "/{id}"
	}
	return ""
}

// vendorOf says whose SDK a request is likely from.
func vendorOf(r *http.Request) string {
	switch path := r.URL.Path; {
	case strings.HasPrefix(path, "/v1/chat/"):
		return OpenAI
	case strings.HasPrefix(path, messagesPath), r.Header.Get("Anthropic-Version") != "":
		return Anthropic
	}
	return OpenAI
}

// granted asks whether the key's holder may use models still.
func (x *exchange) granted() *Refusal {
	return x.told("find out whether models may be used", x.g.cfg.Granted(x.r.Context(), x.grant.Binding))
}

// told makes of an error what the caller is told.
func (x *exchange) told(what string, err error) *Refusal {
	var refusal *Refusal
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refusal):
		return refusal
	case x.r.Context().Err() != nil:
		return &Refusal{http.StatusServiceUnavailable, "the call has ended"}
	}
	x.g.cfg.Logger.Error("a model call could not be made", "what", what, "job", x.grant.Job, "error", err)
	return &Refusal{http.StatusServiceUnavailable, "the gateway could not " + what + "; its log says more"}
}

// refuse answers with an error in the vendor's shape.
func (x *exchange) refuse(r *Refusal) {
	if r.Status == http.StatusNotImplemented {
		x.w.Header().Set("X-Should-Retry", "false") // the vendors' SDKs try again at 5xx
	}
	x.json(r.Status, problem(x.vendor, r, x.id))
}

func (x *exchange) json(status int, body any) {
	h := x.w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	if x.vendor == Anthropic {
		h.Set("Request-Id", x.id)
	} else {
		h.Set("X-Request-Id", x.id)
	}
	x.w.WriteHeader(status)
	_, _ = x.w.Write(rawjson.Must(body)) // End says when the client is gone
}

// problem is an error as the vendor's SDK reads it.
func problem(vendor string, r *Refusal, id string) any {
	if vendor == Anthropic {
		return map[string]any{"type": "error", "request_id": id,
			"error": map[string]any{"type": anthropicError(r.Status), "message": r.Reason}}
	}
	kind, code := openAIError(r.Status)
	return map[string]any{"error": map[string]any{"message": r.Reason, "type": kind, "param": nil, "code": code}}
}

func anthropicError(status int) string {
	switch status {
	case http.StatusUnauthorized:
		return "authentication_error"
	case http.StatusPaymentRequired:
		return "billing_error"
	case http.StatusForbidden:
		return "permission_error"
	case http.StatusNotFound:
		return "not_found_error"
	case http.StatusRequestEntityTooLarge:
		return "request_too_large"
	case http.StatusTooManyRequests:
		return "rate_limit_error"
	case http.StatusServiceUnavailable, 529:
		return "overloaded_error"
	case http.StatusGatewayTimeout:
		return "timeout_error"
	}
	if status >= 500 && status != http.StatusNotImplemented {
		return "api_error"
	}
	return "invalid_request_error"
}

func openAIError(status int) (kind string, code any) {
	switch status {
	case http.StatusUnauthorized:
		return "invalid_request_error", "invalid_api_key"
	case http.StatusPaymentRequired:
		return "insufficient_quota", "insufficient_quota"
	case http.StatusForbidden:
		return "permission_error", "permission_denied"
	case http.StatusNotFound:
		return "invalid_request_error", "model_not_found"
	case http.StatusTooManyRequests:
		return "rate_limit_error", "rate_limit_exceeded"
	case http.StatusNotImplemented:
		return "invalid_request_error", "not_implemented"
	}
	if status >= 500 {
		return "server_error", nil
	}
	return "invalid_request_error", nil
}

// models answers with all models that the vendor's routes take, or with one of them.
func (x *exchange) models(id string) {
	all, err := x.g.cfg.Models(x.r.Context(), x.grant.Tenant)
	if refusal := x.told("list the models", err); refusal != nil {
		x.refuse(refusal)
		return
	}
	list := []any{}
	first, last := any(nil), any(nil)
	for _, m := range all {
		if m.API != x.vendor && m.API != Scripted {
			continue
		}
		shape := map[string]any{"id": m.Alias, "object": "model", "created": 0, "owned_by": m.Provider}
		if x.vendor == Anthropic {
			shape = map[string]any{"type": "model", "id": m.Alias, "display_name": m.Alias, "created_at": "1970-01-01T00:00:00Z"}
		}
		// What the name stands for, so that a judge can tell its own model from another's.
		shape["belay"] = map[string]string{"provider": m.Provider, "model": m.Model}
		if m.Alias == id {
			x.json(http.StatusOK, shape)
			return
		}
		if list = append(list, shape); first == nil {
			first = m.Alias
		}
		last = m.Alias
	}
	switch {
	case id != "":
		x.refuse(&Refusal{http.StatusNotFound, "there is no such model; GET " + modelsPath + " lists those that there are"})
	case x.vendor == Anthropic:
		x.json(http.StatusOK, map[string]any{"data": list, "has_more": false, "first_id": first, "last_id": last})
	default:
		x.json(http.StatusOK, map[string]any{"object": "list", "data": list})
	}
}
