package control

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/belay-run/belay/internal/access"
	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/job"
)

// Code says in one word what is wrong, for programs.
type Code string

// The codes.
const (
	Unauthorized    Code = "unauthorized" // no token, or one that does not hold
	Forbidden       Code = "forbidden"    // the token's role does not suffice
	NotFound        Code = "not_found"
	Invalid         Code = "invalid"  // the request, or a file that it names, is not as it must be
	Conflict        Code = "conflict" // it does not fit how things stand
	AlreadyDecided  Code = "already_decided"
	NeedsAcceptance Code = "needs_acceptance" // an admin must accept something first
	Unavailable     Code = "unavailable"      // not now
	Broken          Code = "broken"           // a mistake of ours
)

var statuses = map[Code]int{
	Unauthorized: http.StatusUnauthorized, Forbidden: http.StatusForbidden, NotFound: http.StatusNotFound, Invalid: http.StatusUnprocessableEntity,
	Conflict: http.StatusConflict, AlreadyDecided: http.StatusConflict, NeedsAcceptance: http.StatusConflict,
	Unavailable: http.StatusServiceUnavailable, Broken: http.StatusInternalServerError,
}

// Problem is why a request was not done (RFC 9457). A service returns one as its
// error, and the client gets the same from its methods.
type Problem struct {
	Status   int               `json:"status" doc:"The HTTP status."`
	Title    string            `json:"title"`
	Code     Code              `json:"code" doc:"What is wrong, in one word."`
	Detail   string            `json:"detail" doc:"What is wrong, in a sentence."`
	Hint     string            `json:"hint,omitempty" doc:"What to do about it."`
	Findings []finding.Finding `json:"findings,omitempty" doc:"What is wrong with files."`
	Decided  *Decided          `json:"decided,omitempty" doc:"With already_decided: who was first."`
}

// Refuse makes a problem. hint may be "".
func Refuse(code Code, detail, hint string) *Problem {
	status, ok := statuses[code]
	if !ok {
		status = http.StatusInternalServerError
	}
	return problemOf(status, code, detail, hint)
}

// RefuseFindings makes a problem of what is wrong with files.
func RefuseFindings(what string, all []finding.Finding) *Problem {
	p := Refuse(Invalid, what+": "+finding.Summary(all), "mend what the findings name")
	p.Findings = all
	return p
}

func problemOf(status int, code Code, detail, hint string) *Problem {
	return &Problem{Status: status, Title: http.StatusText(status), Code: code, Detail: detail, Hint: hint}
}

func (p *Problem) Error() string {
	if p.Hint == "" {
		return p.Detail
	}
	return p.Detail + "; " + p.Hint
}

// Is lets errors.Is compare problems by their codes.
func (p *Problem) Is(target error) bool {
	other, ok := target.(*Problem)
	return ok && other.Code == p.Code
}

// GetStatus is for the HTTP layer.
func (p *Problem) GetStatus() int { return p.Status }

// ContentType is for the HTTP layer.
func (*Problem) ContentType(string) string { return "application/problem+json" }

// named are the errors of other packages that a client may read.
var named = []struct {
	err  error
	code Code
	hint string
}{
	{job.ErrNoJob, NotFound, "belay job list shows those that are"},
	{job.ErrExists, Conflict, ""},
	{job.ErrEnded, Conflict, ""},
	{job.ErrNotEnded, Conflict, ""},
	{job.ErrDecided, AlreadyDecided, ""},
	{job.ErrNotAsked, NotFound, ""},
	{job.ErrOtherQuestion, Conflict, ""},
	{job.ErrExpired, Conflict, ""},
	{access.ErrNameTaken, Conflict, ""},
	{access.ErrNoToken, NotFound, ""},
	{access.ErrUnknown, Unauthorized, ""},
	{access.ErrRevoked, Unauthorized, ""},
	{access.ErrExpired, Unauthorized, ""},
}

// failed makes of a service's error what the client is told.
func (s *Server) failed(ctx context.Context, what string, err error) error {
	var p *Problem
	var forbidden *access.ForbiddenError
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &forbidden):
		return Refuse(Forbidden, forbidden.Error(), "")
	case ctx.Err() != nil:
		s.log.Debug("a client went away before its answer", "what", what)
		return Refuse(Unavailable, "the request ended before its answer", "send it again")
	}
	for _, n := range named {
		if errors.Is(err, n.err) {
			return Refuse(n.code, n.err.Error(), n.hint)
		}
	}
	// The error stays here: it may name files.
	s.log.Error("could not "+what, "error", err)
	return Refuse(Unavailable, "could not "+what, "the server's log says why")
}

// masked takes the secrets of the request's tenant out of a problem: it may name what
// the client sent, or quote a file.
func (s *Server) masked(ctx context.Context, p *Problem) *Problem {
	if s.service.Mask == nil {
		return p
	}
	mask := func(text string) string { return s.service.Mask(ctx, visitorOf(ctx).tenant, text) }
	out := *p
	out.Detail, out.Hint = mask(p.Detail), mask(p.Hint)
	out.Findings = slices.Clone(p.Findings)
	for i, f := range out.Findings {
		out.Findings[i].Message, out.Findings[i].Hint = mask(f.Message), mask(f.Hint)
	}
	return &out
}

// writeProblem answers with a problem.
func writeProblem(w http.ResponseWriter, p *Problem) {
	body, err := json.Marshal(p)
	if err != nil {
		body = []byte("{}") // it holds texts and numbers only
	}
	if p.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="belay"`)
	}
	w.Header().Set("Content-Type", p.ContentType(""))
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(body, '\n')) // a client that is gone is seen by the writer
}

// namedField is a place in a request that may be quoted: a name, no text.
var namedField = regexp.MustCompile(`^[A-Za-z0-9_.\[\]-]{1,80}$`)

// ourProblem gives huma's own errors our form, without what the client sent, and
// takes secrets out of ours.
func (s *Server) ourProblem(c huma.Context, _ string, v any) (any, error) {
	if p, ok := v.(*Problem); ok {
		return s.masked(c.Context(), p), nil
	}
	m, ok := v.(*huma.ErrorModel)
	if !ok {
		return v, nil
	}
	p := problemOf(m.Status, Invalid, m.Detail, "see /openapi.json")
	if m.Status >= http.StatusInternalServerError {
		p.Code, p.Detail, p.Hint = Broken, "something went wrong here", "the server's log says what"
	}
	var said []string
	for _, e := range m.Errors {
		where := e.Location
		if !namedField.MatchString(where) {
			where, _, _ = strings.Cut(where, ".")
		}
		if len(said) < 3 {
			said = append(said, where+": "+e.Message)
		}
	}
	if len(said) > 0 && p.Code == Invalid {
		p.Detail = strings.Join(said, "; ")
	}
	return p, nil
}
