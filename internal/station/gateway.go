package station

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/belay-run/belay/internal/config"
	"github.com/belay-run/belay/internal/gateway"
	"github.com/belay-run/belay/internal/model"
	"github.com/belay-run/belay/internal/secret"
	"github.com/belay-run/belay/internal/sqlstore"
)

// openGateway makes what answers the tools of plugins that ask models. It is nil, and
// they are asked without a key, when it cannot listen.
func (s *Station) openGateway() (*gateway.Gateway, error) {
	g, err := gateway.New(gateway.Config{
		Listen:   s.settings.Gateway.Listen,
		Granted:  s.mayAskModels,
		Upstream: s.upstream,
		Models:   s.askable,
		Rules: func(tenant string) gateway.Rules {
			r := s.settings.GatewayRules(tenant)
			return gateway.Rules{Secrets: r.Secrets, MaxRequest: r.MaxRequest, RecordTexts: r.RecordTexts}
		},
		Scanner: func(ctx context.Context, tenant string) (*secret.Scanner, error) { return s.scanners.get(ctx, tenant) },
		Ledger:  s.ledger,
		Logger:  s.cfg.Logger, Clock: s.cfg.Clock, NewID: newID,
	})
	if err != nil {
		return nil, err
	}
	if err := g.Start(); err != nil {
		s.cfg.Logger.Error("tools that ask models get no keys", "error", err)
		return nil, g.Close(context.Background())
	}
	return g, nil
}

// grants remembers which plugins may ask models, so that a model call need not ask the
// store. Whoever changes what a plugin may lets it forget.
type grants struct {
	mu   sync.Mutex
	of   map[[2]string]bool // tenant and plugin
	lost int                // how often it forgot
}

func (g *grants) forget() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lost++
	clear(g.of)
}

// mayAskModels says whether the plugin of a key may use models now.
func (s *Station) mayAskModels(ctx context.Context, b gateway.Binding) error {
	g, key := &s.grants, [2]string{b.Tenant, b.Plugin}
	g.mu.Lock()
	granted, known := g.of[key]
	lost := g.lost
	g.mu.Unlock()
	if !known {
		p, err := s.store.Plugin(ctx, b.Tenant, b.Plugin)
		if err != nil && !errors.Is(err, sqlstore.ErrNoPlugin) {
			return err
		}
		granted = err == nil && p.ModelGranted
		g.mu.Lock()
		if g.lost == lost { // nothing changed while we looked
			if g.of == nil {
				g.of = map[[2]string]bool{}
			}
			g.of[key] = granted
		}
		g.mu.Unlock()
	}
	if !granted {
		return &gateway.Refusal{Status: http.StatusForbidden, Reason: fmt.Sprintf("plugin %s may not use models: an admin of the tenant grants it with belay plugin update DIR --accept-model", b.Plugin)}
	}
	return nil
}

// askable lists the models that the plugins of a tenant may ask for.
func (s *Station) askable(_ context.Context, tenant string) ([]gateway.Model, error) {
	allowed := s.settings.GatewayRules(tenant).Models
	var out []gateway.Model
	for _, alias := range slices.Sorted(maps.Keys(s.settings.Models)) {
		if allowed == nil || slices.Contains(allowed, alias) {
			m := s.settings.Models[alias]
			p, _ := s.settings.Provider(m.Provider)
			out = append(out, gateway.Model{Alias: alias, Provider: m.Provider, Model: m.Called(), API: p.API})
		}
	}
	return out, nil
}

// upstream is found, and a model that cannot be asked is refused with the reason, which
// names what is missing and none of its values.
func (s *Station) upstream(ctx context.Context, tenant, asked string) (gateway.Upstream, error) {
	up, err := s.found(ctx, tenant, asked)
	if unset := (*unsettled)(nil); errors.As(err, &unset) {
		return up, &gateway.Refusal{Status: http.StatusServiceUnavailable, Reason: unset.Error()}
	}
	return up, err
}

// unsettled says what of a model's settings is missing or wrong.
type unsettled struct{ error }

func (u *unsettled) Unwrap() error { return u.error }

func unset(format string, args ...any) error { return &unsettled{fmt.Errorf(format, args...)} }

// found finds the model that a plugin of a tenant asks for: by its alias, else by
// its provider's name of it. A model that stands in for all (--model) answers for those
// that the settings do not have.
func (s *Station) found(ctx context.Context, tenant, asked string) (gateway.Upstream, error) {
	alias, m, ok := s.settings.Named(asked)
	allowed := s.settings.GatewayRules(tenant).Models
	switch {
	case allowed != nil && !slices.Contains(allowed, alias):
		reason := fmt.Sprintf("plugins of this tenant may not ask the model %q", asked)
		if len(allowed) > 0 {
			reason += "; they may ask " + strings.Join(allowed, ", ")
		}
		return gateway.Upstream{}, &gateway.Refusal{Status: http.StatusForbidden, Reason: reason}
	case !ok && s.cfg.Model != "":
		alias = asked
		var err error
		if m, err = s.settingsOf(asked); err != nil {
			return gateway.Upstream{}, err
		}
	case !ok:
		reason := fmt.Sprintf("there is no model %q: name one that stands under models in %s", asked, config.File)
		if len(s.settings.Models) > 0 {
			reason += ": " + strings.Join(slices.Sorted(maps.Keys(s.settings.Models)), ", ")
		}
		return gateway.Upstream{}, &gateway.Refusal{Status: http.StatusNotFound, Reason: reason}
	}
	p, err := s.provider(ctx, tenant, m)
	if err != nil {
		return gateway.Upstream{}, err
	}
	if p.BaseURL == "" && p.API != config.Scripted {
		return gateway.Upstream{}, unset("provider %s needs base_url, the address of its API: write it under providers in %s", m.Provider, config.File)
	}
	up := gateway.Upstream{API: p.API, Alias: alias, Provider: m.Provider, Model: m.Called(), BaseURL: p.BaseURL, Key: p.key, Headers: p.Headers, Timeout: m.Timeout}
	if m.Provider != config.OpenAI {
		up.CapField = "max_tokens" // which OpenAI alone has given up
	}
	if p.API == config.Scripted {
		up.Script, err = s.models.client(ctx, tenant, m)
	}
	return up, err
}

// reached is how a model's provider is reached.
type reached struct {
	config.Provider
	key string
}

// provider finds how a model's provider is reached, with the key of the tenant.
func (s *Station) provider(ctx context.Context, tenant string, m config.Model) (reached, error) {
	p, _ := s.settings.Provider(m.Provider)
	r := reached{Provider: p}
	usual, known := model.ProviderNamed(m.Provider)
	if m.BaseURL != "" {
		r.BaseURL = strings.TrimRight(m.BaseURL, "/")
	}
	if r.BaseURL == "" && known {
		r.BaseURL = usual.BaseURL
	}
	variable := m.KeyVariable
	switch {
	case p.API == config.Scripted:
		return r, nil
	case variable == "" && p.KeySecret != "":
		value, _, err := s.store.SecretValue(ctx, tenant, p.KeySecret)
		if errors.Is(err, sqlstore.ErrNoSecret) {
			return r, unset("the key of model %s/%s is missing: set the tenant's secret %s with belay secret set", m.Provider, m.Name, p.KeySecret)
		}
		r.key = value
		return r, err
	case variable == "":
		variable = p.KeyVariable
	}
	if variable == "" && known {
		variable = usual.KeyVariable
	}
	if variable == "" {
		return r, nil
	}
	if r.key = strings.TrimSpace(os.Getenv(variable)); r.key == "" {
		return r, unset("the key of model %s/%s is missing: set the environment variable %s, or set BELAY_MODEL to another model", m.Provider, m.Name, variable)
	}
	return r, nil
}
