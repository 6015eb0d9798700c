package server

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// problem is what every error's body holds (RFC 9457).
type problem = huma.ErrorModel

func problemOf(status int, detail string) *problem {
	return &problem{Status: status, Title: http.StatusText(status), Detail: detail}
}

// write answers with a problem.
func writeProblem(w http.ResponseWriter, p *problem) {
	body, err := json.Marshal(p)
	if err != nil {
		body = []byte("{}") // it holds texts and numbers only
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(body, '\n')) // a client that is gone is seen by the writer
}

// namedField is a place in a request that may be quoted: a name, no text.
var namedField = regexp.MustCompile(`^[A-Za-z0-9_.\[\]-]{1,80}$`)

// plainProblem takes what the client sent out of a problem and puts what is
// wrong into its detail.
func plainProblem(_ huma.Context, _ string, v any) (any, error) {
	p, ok := v.(*problem)
	if !ok {
		return v, nil
	}
	var said []string
	for _, e := range p.Errors {
		e.Value = nil
		if !namedField.MatchString(e.Location) {
			where, _, _ := strings.Cut(e.Location, ".")
			e.Location = where
		}
		if len(said) < 3 {
			said = append(said, e.Location+": "+e.Message)
		}
	}
	if len(said) > 0 {
		p.Detail = strings.Join(said, "; ")
	}
	return p, nil
}
