package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/belay-run/belay/internal/conversation"
)

// A body has one spelling: with both "sender" and "Sender" in it, programs would
// differ on who is meant.
func init() { huma.ValidateStrictCasing = true }

// routes returns the paths of the API, and its OpenAPI document at
// /openapi.json, which is made from the Go types below.
func routes(s *Server) (*http.ServeMux, error) {
	mux := http.NewServeMux()
	api := humago.New(mux, huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info:    &huma.Info{Title: "Belay", Version: s.cfg.Version, Description: "Talk to an agent, and read and delete what was said. Errors are application/problem+json and quote nothing of a message."},
			Components: &huma.Components{
				Schemas:         huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer),
				SecuritySchemes: map[string]*huma.SecurityScheme{"token": {Type: "http", Scheme: "bearer", Description: "Needed when the server was started with a token."}},
			},
			Security: []map[string][]string{{"token": {}}, {}},
		},
		Formats: huma.DefaultFormats, DefaultFormat: "application/json",
		RejectUnknownQueryParameters: true,
		Transformers:                 []huma.Transformer{plainProblem},
	})
	huma.Register(api, webhookOperation(api), s.webhook)
	huma.Register(api, chatOperation(api), s.chat)
	huma.Register(api, operation(http.MethodGet, "/conversations/{id}/tracker", "tracker", "conversations", "Read a conversation's record",
		"The events of a conversation, oldest first. Texts that hooks stopped are marked discarded.", http.StatusNotFound, http.StatusServiceUnavailable), s.tracker)
	huma.Register(api, operation(http.MethodGet, "/conversations/{id}/trace", "trace", "conversations", "Read a conversation's trace",
		"What happened in its turns: which hooks were asked, for how long, what each said and changed, what was dropped and why.", http.StatusNotFound, http.StatusServiceUnavailable), s.trace)
	remove := operation(http.MethodDelete, "/conversations/{id}", "delete", "conversations", "Delete a conversation",
		"Drops the key under which the conversation is kept, its events and its trace.", http.StatusNotFound, http.StatusServiceUnavailable)
	huma.Register(api, remove, s.remove)
	health := operation(http.MethodGet, healthPath, "health", "operation", "Say how the service is",
		"Needs no token; without the server's token only \"ok\" is told. Status 503 when turns cannot run.")
	health.Security = []map[string][]string{}
	huma.Register(api, health, s.health)
	if s.cfg.Metrics != nil {
		mux.Handle("GET /metrics", s.cfg.Metrics)
		op := operation(http.MethodGet, "/metrics", "metrics", "operation", "Metrics in Prometheus' format", "")
		op.Responses = map[string]*huma.Response{"200": {Description: "OK", Content: map[string]*huma.MediaType{"text/plain": {Schema: &huma.Schema{Type: huma.TypeString}}}}}
		api.OpenAPI().AddOperation(&op)
	}
	for name, schema := range api.OpenAPI().Components.Schemas.Map() {
		if !strings.HasSuffix(name, "Message") { // answers may get more fields, messages may not
			schema.AdditionalProperties = nil
		}
	}
	document, err := json.MarshalIndent(api.OpenAPI(), "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write the OpenAPI document: %w", err)
	}
	mux.HandleFunc("GET /openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/openapi+json")
		_, _ = w.Write(document) // a client that is gone is seen by the writer
	})
	return mux, nil
}

// operation describes a route. The body, where there is one, was read by guard.
func operation(method, path, id, tag, summary, description string, errors ...int) huma.Operation {
	return huma.Operation{Method: method, Path: path, OperationID: id, Tags: []string{tag}, Summary: summary, Description: description,
		Errors: append([]int{http.StatusUnauthorized, http.StatusForbidden}, errors...), MaxBodyBytes: -1, BodyReadTimeout: -1}
}

// About names the conversation that a path is about.
type About struct {
	ID string `path:"id" doc:"The conversation: its sender's id."`
}

// Resolve checks the id.
func (a *About) Resolve(huma.Context) []error { return checkID("path.id", a.ID) }

// Tracker is the record of a conversation.
type Tracker struct {
	Sender string                  `json:"sender_id"`
	Events []conversation.Exported `json:"events"`
}

type trackerOutput struct{ Body Tracker }

func (s *Server) tracker(ctx context.Context, in *About) (*trackerOutput, error) {
	events, err := s.service.Events(ctx, in.ID)
	switch {
	case err != nil:
		return nil, s.failed("read a conversation", err)
	case len(events) == 0:
		return nil, noConversation()
	}
	return &trackerOutput{Tracker{in.ID, conversation.Export(events)}}, nil
}

type traceInput struct {
	About
	Turn string `query:"turn" doc:"Only this turn, by its id."`
}

// Resolve checks both ids.
func (t *traceInput) Resolve(c huma.Context) []error {
	errs := t.About.Resolve(c)
	if t.Turn != "" {
		errs = append(errs, checkID("query.turn", t.Turn)...)
	}
	return errs
}

// TraceLines are what happened in a conversation's turns.
type TraceLines struct {
	Sender string               `json:"sender_id"`
	Lines  []conversation.Trace `json:"lines"`
}

type traceOutput struct{ Body TraceLines }

func (s *Server) trace(ctx context.Context, in *traceInput) (*traceOutput, error) {
	lines, err := s.service.Traces(ctx, in.ID, in.Turn)
	if err != nil {
		return nil, s.failed("read a trace", err)
	}
	if len(lines) == 0 {
		events, err := s.service.Events(ctx, in.ID)
		switch {
		case err != nil:
			return nil, s.failed("read a conversation", err)
		case len(events) == 0:
			return nil, noConversation()
		case in.Turn != "":
			return nil, problemOf(http.StatusNotFound, "the conversation has no trace of such a turn")
		}
		lines = []conversation.Trace{}
	}
	return &traceOutput{TraceLines{in.ID, lines}}, nil
}

func (s *Server) remove(ctx context.Context, in *About) (*struct{}, error) {
	there, err := s.service.Delete(ctx, in.ID)
	switch {
	case err != nil:
		return nil, s.failed("delete a conversation", err)
	case !there:
		return nil, noConversation()
	}
	return nil, nil
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
	if !isTrusted(ctx) {
		out.Body = Health{OK: h.OK}
	}
	return out, nil
}

func noConversation() *problem {
	return problemOf(http.StatusNotFound, "there is no such conversation")
}
