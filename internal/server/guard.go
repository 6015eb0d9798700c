package server

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/propagation"

	"github.com/belay-run/belay/internal/httpio"
)

const healthPath = "/healthz"

// guard stands before the routes: it lets in only who may, reads the body whole,
// and sees to it that every request ends with an answer.
func (s *Server) guard(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w := httpio.NewWriter(rw, s.cfg.Stall)
		began := time.Now()
		_, pattern := mux.Handler(r)
		defer func() { s.ended(w, pattern, began, recover()) }()
		if r.ContentLength != 0 {
			// Also for a body that nobody wants: the connection reads on to its end.
			w.ReadUntil(began.Add(s.cfg.BodyTime))
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

// ended sees to the end of a request, a panic's too.
func (s *Server) ended(w *httpio.Writer, pattern string, began time.Time, panicked any) {
	w.End(s.logger, panicked, func() {
		writeProblem(w, problemOf(http.StatusInternalServerError, "something went wrong here; the log says what"))
	}, "route", pattern, "status", w.Status(), "took", time.Since(began))
}

// admit decides who comes in. trusted says that the caller may see everything.
func (s *Server) admit(w *httpio.Writer, r *http.Request) (trusted bool, p *problem) {
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
	if allow := httpio.Allowed(mux, w, r); allow != "" {
		return problemOf(http.StatusMethodNotAllowed, "this path takes "+allow)
	}
	return problemOf(http.StatusNotFound, "there is no such path; /openapi.json lists those that are")
}

// readBody puts the whole body in the request's place of it.
func (s *Server) readBody(w *httpio.Writer, r *http.Request) *problem {
	refusal := httpio.ReadBody(w, r, s.cfg.MaxBody, s.cfg.BodyTime)
	switch {
	case refusal == nil:
		return nil
	case refusal.Hint != "":
		return problemOf(refusal.Status, refusal.Detail+"; "+refusal.Hint)
	}
	return problemOf(refusal.Status, refusal.Detail)
}
