package control

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/belay-run/belay/internal/access"
)

// SecretList are a tenant's secrets.
type SecretList struct {
	Secrets []Secret `json:"secrets" doc:"By name, without their values."`
}

type secretPath struct {
	Name string `path:"name" maxLength:"128"`
}

func (s *Server) secretRoutes(api huma.API) {
	huma.Register(api, route(access.Admin, http.MethodGet, "/v1/secrets", "listSecrets", "secrets", "List the tenant's secrets", "Their values are told to nobody."), s.listSecrets)
	set := route(access.Admin, http.MethodPost, "/v1/secrets", "setSecret", "secrets", "Set or rotate a secret", "", http.StatusConflict, http.StatusNotFound)
	huma.Register(api, set, s.setSecret)
	huma.Register(api, route(access.Admin, http.MethodDelete, "/v1/secrets/{name}", "removeSecret", "secrets", "Remove a secret", "It is looked for no more.", http.StatusNotFound), s.removeSecret)
}

func (s *Server) listSecrets(ctx context.Context, _ *struct{}) (*body[SecretList], error) {
	all, err := s.service.Secrets.Secrets(ctx, callerOf(ctx).Tenant)
	if err != nil {
		return nil, s.failed(ctx, "list the secrets", err)
	}
	return &body[SecretList]{SecretList{list(all)}}, nil
}

func (s *Server) setSecret(ctx context.Context, in *struct{ Body SecretOrder }) (*body[Secret], error) {
	made, err := s.service.Secrets.SetSecret(ctx, callerOf(ctx), in.Body)
	if err != nil {
		return nil, s.failed(ctx, "set a secret", err)
	}
	return &body[Secret]{made}, nil
}

func (s *Server) removeSecret(ctx context.Context, in *secretPath) (*struct{}, error) {
	if err := s.service.Secrets.RemoveSecret(ctx, callerOf(ctx), in.Name); err != nil {
		return nil, s.failed(ctx, "remove a secret", err)
	}
	return nil, nil
}

// Secrets lists the tenant's secrets.
func (c *Client) Secrets(ctx context.Context) ([]Secret, error) {
	var out SecretList
	err := c.get(ctx, "/v1/secrets", nil, &out)
	return out.Secrets, err
}

// SetSecret sets or rotates a secret.
func (c *Client) SetSecret(ctx context.Context, o SecretOrder) (out Secret, err error) {
	return out, c.post(ctx, "/v1/secrets", o, &out)
}

// RemoveSecret removes a secret.
func (c *Client) RemoveSecret(ctx context.Context, name string) error {
	return c.ask(ctx, http.MethodDelete, "/v1/secrets/"+seg(name), nil, nil, nil)
}
