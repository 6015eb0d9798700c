package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/belay-run/belay/internal/access"
)

const (
	healthPath = "/healthz"
	// tenantHeader names the tenant that the owner of the data folder acts in.
	tenantHeader = "Belay-Tenant"
)

// visitor is who makes a request, and with what token, so that a feed can look
// again.
type visitor struct {
	access.Identity
	tenant string
	token  string
}

type visitorKey struct{}

func visitorOf(ctx context.Context) visitor {
	v, _ := ctx.Value(visitorKey{}).(visitor)
	return v
}

// guard stands before the routes: it lets in only who has a token, reads the body
// whole, and sees to it that every request ends with an answer. There is no cookie
// and no other standing right, so a foreign web page, which has no token, can do
// nothing: origins need no check.
func (s *Server) guard(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w := newWriter(rw, s.cfg.Stall)
		began := time.Now()
		_, pattern := mux.Handler(r)
		var v visitor
		defer func() { s.ended(w, v, pattern, began, recover()) }()
		if r.ContentLength != 0 {
			// Also for a body that nobody wants: the connection reads on to its end.
			// Only a recorder in a test has no deadline.
			_ = w.control.SetReadDeadline(began.Add(s.cfg.BodyTime))
		}
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")

		v, err := s.admit(r)
		var p *Problem
		switch {
		case err != nil && r.URL.Path != healthPath:
			p = s.problem(r.Context(), "check a token", err)
		case pattern == "":
			p = noRoute(mux, w, r)
		case r.Method == http.MethodPost && r.ContentLength != 0:
			p = s.readBody(w, r)
		}
		if p != nil {
			writeProblem(w, p)
			return
		}
		mux.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), visitorKey{}, v)))
	})
}

// problem is failed for where there is no handler.
func (s *Server) problem(ctx context.Context, what string, err error) *Problem {
	var p *Problem
	if !errors.As(s.failed(ctx, what, err), &p) {
		return Refuse(Broken, "could not "+what, "") // failed gives nothing else
	}
	return p
}

// admit finds out who makes a request and in which tenant.
func (s *Server) admit(r *http.Request) (visitor, error) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "bearer") {
		return visitor{}, Refuse(Unauthorized, "this needs a token", `send it as "Authorization: Bearer belay_…"; belay token create makes one`)
	}
	token = strings.TrimSpace(token)
	who, err := s.service.Gate.Check(r.Context(), token)
	if err != nil {
		return visitor{}, err
	}
	tenant := r.Header.Get(tenantHeader)
	if tenant == "" {
		if tenant = who.Tenant; who.Owner {
			tenant = s.cfg.Tenant
		}
	}
	if err := access.CheckTenant(tenant); err != nil {
		return visitor{}, Refuse(Invalid, err.Error(), "")
	}
	if err := who.May(tenant, access.Viewer); err != nil {
		return visitor{}, err
	}
	return visitor{Identity: who, tenant: tenant, token: token}, nil
}

// ended logs a request and turns a panic into an answer, when none was begun.
func (s *Server) ended(w *writer, v visitor, pattern string, began time.Time, panicked any) {
	args := []any{"route", pattern, "status", w.status, "took", time.Since(began), "by", v.Name, "tenant", v.tenant}
	switch {
	case w.failed != nil:
		s.log.Debug("a client went away", append(args, "error", w.failed)...)
		panic(http.ErrAbortHandler) // so that nothing more is written
	case panicked == nil:
		s.log.Debug("request", args...)
		return
	case panicked == http.ErrAbortHandler:
		panic(panicked)
	}
	s.log.Error("a request panicked", append(args, "panic", panicText(panicked), "stack", string(debug.Stack()))...)
	if w.status != 0 {
		panic(http.ErrAbortHandler)
	}
	writeProblem(w, Refuse(Broken, "something went wrong here", "the server's log says what"))
}

// panicText says what a panic was. Only the runtime's own words are sure to hold
// nothing of a request.
func panicText(v any) string {
	if err, ok := v.(runtime.Error); ok {
		return err.Error()
	}
	return fmt.Sprintf("%T", v)
}

// noRoute says why no route takes the request.
func noRoute(mux *http.ServeMux, w http.ResponseWriter, r *http.Request) *Problem {
	h, _ := mux.Handler(r)
	refusal := &refused{header: http.Header{}}
	h.ServeHTTP(refusal, r)
	if refusal.status == http.StatusMethodNotAllowed {
		allow := refusal.header.Get("Allow")
		w.Header().Set("Allow", allow)
		return problemOf(http.StatusMethodNotAllowed, Invalid, "this path takes "+allow, "see /openapi.json")
	}
	return Refuse(NotFound, "there is no such path", "/openapi.json lists those that are")
}

// refused takes the mux's own answer, for its status.
type refused struct {
	header http.Header
	status int
}

func (r *refused) Header() http.Header         { return r.header }
func (r *refused) WriteHeader(status int)      { r.status = status }
func (r *refused) Write(p []byte) (int, error) { return len(p), nil }

// readBody reads the body whole, in bounded time and space, and puts it in the
// request's place of it.
func (s *Server) readBody(w *writer, r *http.Request) *Problem {
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	charset := params["charset"]
	switch {
	case err != nil || kind != "application/json", charset != "" && !strings.EqualFold(charset, "utf-8"):
		return problemOf(http.StatusUnsupportedMediaType, Invalid, "the body must be JSON in UTF-8", "send Content-Type: application/json")
	case r.Header.Get("Content-Encoding") != "":
		return problemOf(http.StatusUnsupportedMediaType, Invalid, "the body has a Content-Encoding", "send it as it is")
	}
	// Nothing that was left unread may pass for the connection's next request.
	refuse := func(status int, detail string) *Problem {
		w.Header().Set("Connection", "close")
		return problemOf(status, Invalid, detail, "")
	}
	tooLong := fmt.Sprintf("a body may have %d bytes at most", s.cfg.MaxBody)
	if r.ContentLength > s.cfg.MaxBody {
		return refuse(http.StatusRequestEntityTooLarge, tooLong)
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, s.cfg.MaxBody))
	var over *http.MaxBytesError
	switch {
	case errors.As(err, &over):
		return refuse(http.StatusRequestEntityTooLarge, tooLong)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return refuse(http.StatusRequestTimeout, fmt.Sprintf("the body did not come whole within %s", s.cfg.BodyTime))
	case err != nil:
		return refuse(http.StatusBadRequest, "the body did not come whole")
	case !utf8.Valid(body):
		return Refuse(Invalid, "the body is not UTF-8", "")
	case doubled(body):
		return Refuse(Invalid, "the body has a key twice", "")
	}
	_ = w.control.SetReadDeadline(time.Time{}) // else it would end the request's context too
	r.Body = io.NopCloser(bytes.NewReader(body))
	return nil
}

// doubled says whether a JSON object has a key twice. Programs differ on which of
// the two counts, so neither does. What is no object is judged elsewhere.
func doubled(body []byte) bool {
	d := json.NewDecoder(bytes.NewReader(body))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return false
	}
	seen := map[string]bool{}
	for d.More() {
		t, err := d.Token()
		key, ok := t.(string)
		if err != nil || !ok {
			return false
		}
		if seen[key] {
			return true
		}
		seen[key] = true
		var value json.RawMessage
		if d.Decode(&value) != nil {
			return false
		}
	}
	return false
}
