package control

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/belay-run/belay/internal/access"
)

// Whoami says whose a token is.
type Whoami struct {
	Tenant  string      `json:"tenant"`
	Name    string      `json:"name" doc:"As it stands in records."`
	Role    access.Role `json:"role" enum:"viewer,approver,admin"`
	Owner   bool        `json:"owner,omitempty" doc:"The owner of the data folder, who may act in every tenant."`
	Expires time.Time   `json:"expires,omitzero"`
}

func (s *Server) whoami(ctx context.Context, _ *struct{}) (*body[Whoami], error) {
	v := visitorOf(ctx)
	return &body[Whoami]{Whoami{Tenant: v.tenant, Name: v.Name, Role: v.Role, Owner: v.Owner, Expires: v.Expires}}, nil
}

// TokenOrder is a token to be made.
type TokenOrder struct {
	Name      string `json:"name" minLength:"1" maxLength:"64" doc:"Stands in records as who did something."`
	Role      string `json:"role" enum:"viewer,approver,admin"`
	ExpiresIn int64  `json:"expires_in_s,omitempty" minimum:"1" maximum:"315360000" doc:"How many seconds it holds; left out, until it is revoked."`
}

// IssuedToken is a token that was just made.
type IssuedToken struct {
	Secret string       `json:"secret" doc:"The token. Nobody can show it again."`
	Token  access.Token `json:"token"`
}

// TokenList are a tenant's tokens.
type TokenList struct {
	Tokens []access.Token `json:"tokens" doc:"The oldest first, also those that hold no more."`
}

type tokenName struct {
	Name string `path:"name" maxLength:"64"`
}

func (s *Server) tokenRoutes(api huma.API) {
	create := route(access.Admin, http.MethodPost, "/v1/tokens", "createToken", "tokens", "Make a token", "", http.StatusConflict)
	create.DefaultStatus = http.StatusCreated
	huma.Register(api, create, s.createToken)
	huma.Register(api, route(access.Admin, http.MethodGet, "/v1/tokens", "listTokens", "tokens", "List the tenant's tokens", ""), s.listTokens)
	huma.Register(api, route(access.Admin, http.MethodDelete, "/v1/tokens/{name}", "revokeToken", "tokens", "Revoke a token", "It holds no more from the next request on.", http.StatusNotFound), s.revokeToken)
}

func (s *Server) createToken(ctx context.Context, in *struct{ Body TokenOrder }) (*body[IssuedToken], error) {
	c := callerOf(ctx)
	role, err := access.ParseRole(in.Body.Role)
	if err != nil {
		return nil, Refuse(Invalid, err.Error(), "")
	}
	secret, token, err := access.Issue(access.Order{Tenant: c.Tenant, Name: in.Body.Name, Role: role, By: c.Name,
		Lifetime: time.Duration(in.Body.ExpiresIn) * time.Second}, s.cfg.Clock())
	if err != nil {
		return nil, Refuse(Invalid, err.Error(), "")
	}
	if err := s.service.Tokens.CreateToken(ctx, token); err != nil {
		return nil, s.failed(ctx, "make a token", err)
	}
	return &body[IssuedToken]{IssuedToken{Secret: secret.Reveal(), Token: token}}, nil
}

func (s *Server) listTokens(ctx context.Context, _ *struct{}) (*body[TokenList], error) {
	all, err := s.service.Tokens.ListTokens(ctx, callerOf(ctx).Tenant)
	if err != nil {
		return nil, s.failed(ctx, "list the tokens", err)
	}
	return &body[TokenList]{TokenList{list(all)}}, nil
}

func (s *Server) revokeToken(ctx context.Context, in *tokenName) (*body[access.Token], error) {
	c := callerOf(ctx)
	t, err := s.service.Tokens.RevokeToken(ctx, c.Tenant, in.Name, c.Name)
	if err != nil {
		return nil, s.failed(ctx, "revoke a token", err)
	}
	return &body[access.Token]{t}, nil
}
