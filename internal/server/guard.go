package server

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/propagation"
)

const healthPath = "/healthz"

// guard stands before the routes: it lets in only who may, reads the body whole,
// and sees to it that every request ends with an answer.
func (s *Server) guard(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w := newWriter(rw, s.cfg.Stall)
		began := time.Now()
		_, pattern := mux.Handler(r)
		defer func() { s.ended(w, r, pattern, began, recover()) }()
		if r.ContentLength != 0 {
			// Also for a body that nobody wants: the connection reads on to its
			// end. Only a recorder in a test has no deadline.
			_ = w.control.SetReadDeadline(began.Add(s.cfg.BodyTime))
		}
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")

		trusted, p := s.admit(w, r)
		switch {
		case p != nil:
			writeProblem(w, p)
			return
		case isPreflight(r):
			w.WriteHeader(http.StatusNoContent)
			return
		case pattern == "":
			writeProblem(w, noRoute(mux, w, r))
			return
		}
		if r.Method == http.MethodPost {
			if p := s.readBody(w, r); p != nil {
				writeProblem(w, p)
				return
			}
		}
		ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
		mux.ServeHTTP(w, r.WithContext(context.WithValue(ctx, trustedKey{}, trusted)))
	})
}

// trustedKey is under which a request's context says that the caller may see
// everything.
type trustedKey struct{}

func isTrusted(ctx context.Context) bool { return ctx.Value(trustedKey{}) == true }

// ended logs a request and turns a panic into an answer, when none was begun.
func (s *Server) ended(w *writer, r *http.Request, pattern string, began time.Time, panicked any) {
	args := []any{"route", pattern, "status", w.status, "took", time.Since(began)}
	switch {
	case w.failed != nil:
		s.logger.Debug("a client went away", append(args, "error", w.failed)...)
		panic(http.ErrAbortHandler) // so that nothing more is written
	case panicked == nil:
		s.logger.Debug("request", args...)
		return
	case panicked == http.ErrAbortHandler:
		panic(panicked)
	}
	s.logger.Error("a request panicked", append(args, "panic", panicText(panicked), "stack", string(debug.Stack()))...)
	if w.status != 0 {
		panic(http.ErrAbortHandler)
	}
	writeProblem(w, problemOf(http.StatusInternalServerError, "something went wrong here; the log says what"))
}

// panicText says what a panic was. Only the runtime's own words are sure to hold
// nothing of a message.
func panicText(v any) string {
	if err, ok := v.(runtime.Error); ok {
		return err.Error()
	}
	return fmt.Sprintf("%T", v)
}

// admit decides who comes in. trusted says that the caller may see everything.
func (s *Server) admit(w *writer, r *http.Request) (trusted bool, p *problem) {
	if s.cfg.Token == "" && !isLoopback(hostOf(r.Host)) {
		// A web page may point a name of its own at this machine.
		return false, problemOf(http.StatusForbidden, "this address answers to localhost only; the request names another host")
	}
	if origin := r.Header.Get("Origin"); origin != "" {
		w.Header().Add("Vary", "Origin")
		switch {
		case slices.Contains(s.cfg.Origins, origin):
			h := w.Header()
			h.Set("Access-Control-Allow-Origin", origin)
			h.Set("Access-Control-Allow-Methods", "GET, POST, DELETE")
			h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, traceparent")
			h.Set("Access-Control-Expose-Headers", turnHeader)
			h.Set("Access-Control-Max-Age", "600")
		case origin != "http://"+r.Host && origin != "https://"+r.Host:
			return false, problemOf(http.StatusForbidden, "pages of another origin may not call this API; allow theirs in the server's configuration")
		}
	}
	if s.cfg.Token == "" || bears(r, s.cfg.Token) {
		return true, nil
	}
	if r.URL.Path == healthPath || isPreflight(r) {
		return false, nil
	}
	w.Header().Set("WWW-Authenticate", `Bearer realm="belay"`)
	return false, problemOf(http.StatusUnauthorized, "send the server's token as \"Authorization: Bearer …\"")
}

// isPreflight says whether a browser asks what a page may do. Such a request
// carries no token.
func isPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Origin") != "" && r.Header.Get("Access-Control-Request-Method") != ""
}

func hostOf(hostport string) string {
	if host, _, err := net.SplitHostPort(hostport); err == nil {
		return host
	}
	return hostport
}

// bears compares in a time that does not tell how much of the token was right.
func bears(r *http.Request, token string) bool {
	scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	have, want := sha256.Sum256([]byte(strings.TrimSpace(given))), sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(have[:], want[:]) == 1 && strings.EqualFold(scheme, "bearer")
}

// noRoute says why no route takes the request.
func noRoute(mux *http.ServeMux, w http.ResponseWriter, r *http.Request) *problem {
	h, _ := mux.Handler(r)
	refusal := &refused{header: http.Header{}}
	h.ServeHTTP(refusal, r)
	if refusal.status == http.StatusMethodNotAllowed {
		allow := refusal.header.Get("Allow")
		w.Header().Set("Allow", allow)
		return problemOf(http.StatusMethodNotAllowed, "this path takes "+allow)
	}
	return problemOf(http.StatusNotFound, "there is no such path; /openapi.json lists those that are")
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
func (s *Server) readBody(w *writer, r *http.Request) *problem {
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	charset := params["charset"]
	switch {
	case err != nil || kind != "application/json", charset != "" && !strings.EqualFold(charset, "utf-8"):
		return problemOf(http.StatusUnsupportedMediaType, "send JSON in UTF-8, with Content-Type: application/json")
	case r.Header.Get("Content-Encoding") != "":
		return problemOf(http.StatusUnsupportedMediaType, "send the body as it is, without a Content-Encoding")
	}
	// Nothing that was left unread may pass for the connection's next request.
	refuse := func(status int, detail string) *problem {
		w.Header().Set("Connection", "close")
		return problemOf(status, detail)
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
		return problemOf(http.StatusUnprocessableEntity, "the body is not UTF-8")
	}
	if doubled(body) {
		return problemOf(http.StatusUnprocessableEntity, "the body has a key twice")
	}
	_ = w.control.SetReadDeadline(time.Time{}) // else it would end the turn's context too
	r.Body = io.NopCloser(bytes.NewReader(body))
	return nil
}
