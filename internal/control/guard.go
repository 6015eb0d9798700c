package control

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/belay-run/belay/internal/access"
	"github.com/belay-run/belay/internal/httpio"
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
		w := httpio.NewWriter(rw, s.cfg.Stall)
		began := time.Now()
		_, pattern := mux.Handler(r)
		var v visitor
		defer func() { s.ended(w, v, pattern, began, recover()) }()
		if r.ContentLength != 0 {
			// Also for a body that nobody wants: the connection reads on to its end.
			w.ReadUntil(began.Add(s.cfg.BodyTime))
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

// ended sees to the end of a request, a panic's too.
func (s *Server) ended(w *httpio.Writer, v visitor, pattern string, began time.Time, panicked any) {
	w.End(s.log, panicked, func() {
		writeProblem(w, Refuse(Broken, "something went wrong here", "the server's log says what"))
	}, "route", pattern, "status", w.Status(), "took", time.Since(began), "by", v.Name, "tenant", v.tenant)
}

// noRoute says why no route takes the request.
func noRoute(mux *http.ServeMux, w http.ResponseWriter, r *http.Request) *Problem {
	if allow := httpio.Allowed(mux, w, r); allow != "" {
		return problemOf(http.StatusMethodNotAllowed, Invalid, "this path takes "+allow, "see /openapi.json")
	}
	return Refuse(NotFound, "there is no such path", "/openapi.json lists those that are")
}

// readBody puts the whole body in the request's place of it.
func (s *Server) readBody(w *httpio.Writer, r *http.Request) *Problem {
	if refusal := httpio.ReadBody(w, r, s.cfg.MaxBody, s.cfg.BodyTime); refusal != nil {
		return problemOf(refusal.Status, Invalid, refusal.Detail, refusal.Hint)
	}
	return nil
}
