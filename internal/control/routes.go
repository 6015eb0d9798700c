package control

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/belay-run/belay/internal/access"
)

// A body has one spelling: with both "text" and "Text" in it, programs would differ
// on what is meant.
func init() { huma.ValidateStrictCasing = true }

// routes returns the paths of the API, and its OpenAPI document at /openapi.json,
// which is made from the Go types.
func (s *Server) routes() (*http.ServeMux, error) {
	mux := http.NewServeMux()
	api := humago.New(mux, huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info:    &huma.Info{Title: "Belay control", Version: s.cfg.Version, Description: "Look after jobs, approvals, plugins, policy and tokens. Each path says in x-role which role it needs. Errors are application/problem+json."},
			Components: &huma.Components{
				Schemas:         huma.NewMapRegistry("#/components/schemas/", schemaName),
				SecuritySchemes: map[string]*huma.SecurityScheme{"token": {Type: "http", Scheme: "bearer", Description: "A token as `belay token create` prints it. It acts in its tenant; the owner of the data folder names one in the header " + tenantHeader + "."}},
			},
			Security: []map[string][]string{{"token": {}}},
		},
		Formats: huma.DefaultFormats, DefaultFormat: "application/json",
		RejectUnknownQueryParameters: true,
		Transformers:                 []huma.Transformer{s.ourProblem},
	})
	api.UseMiddleware(s.checkRole)
	s.jobRoutes(api)
	s.approvalRoutes(api)
	s.pluginRoutes(api)
	s.policyRoutes(api)
	s.auditRoutes(api)
	s.tokenRoutes(api)
	if s.service.Secrets != nil {
		s.secretRoutes(api)
	}
	if s.service.Spending != nil {
		s.spendRoutes(api)
	}
	s.upkeepRoutes(api)
	health := route(access.None, http.MethodGet, healthPath, "health", "operation", "Say how the service is", "Needs no token; without one only \"ok\" is told. Status 503 when jobs cannot run.")
	health.Security = []map[string][]string{}
	huma.Register(api, health, s.health)
	huma.Register(api, route(access.Viewer, http.MethodGet, "/v1/whoami", "whoami", "operation", "Say whose the token is", ""), s.whoami)

	document, err := describe(api)
	if err != nil {
		return nil, err
	}
	mux.HandleFunc("GET /openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/openapi+json")
		_, _ = w.Write(document) // a client that is gone is seen by the writer
	})
	return mux, nil
}

// describe writes the OpenAPI document.
func describe(api huma.API) ([]byte, error) {
	schemas := api.OpenAPI().Components.Schemas
	ours := schemas.Schema(reflect.TypeFor[Problem](), false, "")
	if m, ok := schemas.Map()["HumaErrorModel"]; ok {
		*m = *ours // what ourProblem makes of it
	}
	for name, schema := range schemas.Map() {
		if !strings.HasSuffix(name, "Order") && !strings.HasSuffix(name, "Query") { // answers may get more fields, requests may not
			schema.AdditionalProperties = nil
		}
	}
	document, err := json.MarshalIndent(api.OpenAPI(), "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write the OpenAPI document: %w", err)
	}
	return document, nil
}

// schemaName names a schema after its type, with its package's name before it unless
// it is ours.
func schemaName(t reflect.Type, hint string) string {
	name := huma.DefaultSchemaNamer(t, hint)
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if from := path.Base(t.PkgPath()); t.Name() != "" && from != "." && from != "control" && from != "v2" {
		return strings.ToUpper(from[:1]) + from[1:] + name
	}
	if strings.HasSuffix(t.PkgPath(), "/huma/v2") {
		return "Huma" + name
	}
	return name
}

const roleKey = "x-role"

// route describes a path. The body, where there is one, was read by guard.
func route(role access.Role, method, path, id, tag, summary, description string, errors ...int) huma.Operation {
	op := huma.Operation{Method: method, Path: path, OperationID: id, Tags: []string{tag}, Summary: summary, Description: description,
		Errors: append([]int{http.StatusUnauthorized, http.StatusForbidden, http.StatusServiceUnavailable}, errors...), MaxBodyBytes: -1, BodyReadTimeout: -1}
	if role != access.None {
		op.Extensions = map[string]any{roleKey: role.String()}
	}
	return op
}

// checkRole lets nobody do what their role does not allow. A path without a role is
// open to all.
func (s *Server) checkRole(c huma.Context, next func(huma.Context)) {
	op := c.Operation()
	word, _ := op.Extensions[roleKey].(string)
	if word == "" && op.Path == healthPath {
		next(c)
		return
	}
	v := visitorOf(c.Context())
	need, err := access.ParseRole(word) // a path that names none is nobody's
	if err == nil {
		err = v.May(v.tenant, need)
	}
	if err != nil {
		_, w := humago.Unwrap(c)
		writeProblem(w, Refuse(Forbidden, err.Error(), ""))
		return
	}
	next(c)
}

// callerOf is who makes a request.
func callerOf(ctx context.Context) Caller {
	v := visitorOf(ctx)
	return Caller{Tenant: v.tenant, Name: v.Name, Role: v.Role}
}

type healthOutput struct {
	Status int
	Body   Health
}

func (s *Server) health(ctx context.Context, _ *struct{}) (*healthOutput, error) {
	h := s.service.Health(ctx)
	out := &healthOutput{Status: http.StatusOK, Body: h}
	if !h.OK {
		out.Status = http.StatusServiceUnavailable
	}
	if visitorOf(ctx).Role == access.None {
		out.Body = Health{OK: h.OK}
	}
	return out, nil
}

// body is an answer.
type body[T any] struct{ Body T }

// list is a list that is never null.
func list[T any](all []T) []T {
	if all == nil {
		return []T{}
	}
	return all
}
