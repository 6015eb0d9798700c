package station

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/belay-run/belay/internal/agentjob"
	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/config"
	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/job"
	"github.com/belay-run/belay/internal/model"
	"github.com/belay-run/belay/internal/model/scripted"
)

// models are the clients of the models that jobs ask, by what the jobs call them.
type models struct {
	station *Station

	mu   sync.Mutex
	open map[opening]chat.Model
}

// of gives the model of a job.
func (m *models) of(ctx context.Context, id job.ID) (chat.Model, error) {
	if m.station.cfg.Client != nil {
		return m.station.cfg.Client, nil
	}
	j, err := m.station.journal.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	spec, err := agentjob.Read(j.Input)
	if err != nil {
		return nil, err
	}
	return m.named(ctx, id.Tenant, spec.Agent.Alias)
}

// named gives the model of an alias, or of provider/model@base-url, for a tenant.
func (m *models) named(ctx context.Context, tenant, alias string) (chat.Model, error) {
	c, err := m.station.settingsOf(alias)
	if err != nil {
		return nil, err
	}
	return m.client(ctx, tenant, c)
}

// opening tells clients apart. key is a digest: a tenant's key may be set anew.
type opening struct {
	config.Model
	key string
}

// client gives the client of a model with the tenant's key.
func (m *models) client(ctx context.Context, tenant string, c config.Model) (chat.Model, error) {
	p, err := m.station.provider(ctx, tenant, c)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(p.key))
	at := opening{c, string(sum[:])}
	at.Price = nil
	m.mu.Lock()
	defer m.mu.Unlock()
	if client := m.open[at]; client != nil {
		return client, nil
	}
	client, err := open(c, p, m.station)
	if err == nil {
		m.open[at] = client
	}
	return client, err
}

// settingsOf finds what an alias stands for.
func (s *Station) settingsOf(alias string) (config.Model, error) {
	name := alias
	if s.cfg.Model != "" {
		name = s.cfg.Model
	}
	if rest, _, _ := strings.Cut(name, "@"); strings.Contains(rest, "/") {
		c, err := model.Named(name)
		switch {
		case err != nil:
			return config.Model{}, fmt.Errorf("model %q is %w", name, err)
		case c.Provider == config.Scripted:
			return config.Model{Provider: c.Provider, Script: c.Model}, nil
		}
		return config.Model{Provider: c.Provider, Name: c.Model, BaseURL: c.BaseURL}, nil
	}
	return s.settings.Model(alias)
}

func open(c config.Model, p reached, s *Station) (chat.Model, error) {
	switch p.API {
	case config.Scripted:
		text, err := os.ReadFile(c.Script)
		if err != nil {
			return nil, unset("the script of the model: %w", err)
		}
		script, findings := scripted.Parse(c.Script, text)
		if finding.HasErrors(findings) {
			return nil, &unsettled{&FindingsError{c.Script, findings}}
		}
		return script, nil
	case config.Anthropic:
		return nil, fmt.Errorf("agents cannot ask provider %s, which speaks Anthropic's API; plugins can. Give agents a provider with OpenAI's API: Anthropic serves that too, at a base_url of its own", c.Provider)
	}
	return model.New(model.Config{Provider: c.Provider, Model: c.Name, BaseURL: p.BaseURL, APIKey: p.key, Headers: p.Headers, Timeout: c.Timeout, Logger: s.cfg.Logger})
}

func (m *models) close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var errs []error
	for _, client := range m.open {
		if c, ok := client.(io.Closer); ok {
			errs = append(errs, c.Close())
		}
	}
	return errors.Join(errs...)
}
