package station

import (
	"context"
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
	open map[string]chat.Model
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
	return m.named(spec.Agent.Alias)
}

// named gives the model of an alias, or of provider/model@base-url.
func (m *models) named(alias string) (chat.Model, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if client := m.open[alias]; client != nil {
		return client, nil
	}
	c, err := m.station.settingsOf(alias)
	if err != nil {
		return nil, err
	}
	client, err := open(c, m.station)
	if err == nil {
		m.open[alias] = client
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

func open(c config.Model, s *Station) (chat.Model, error) {
	if c.Provider == config.Scripted {
		text, err := os.ReadFile(c.Script)
		if err != nil {
			return nil, fmt.Errorf("the script of the model: %w", err)
		}
		script, findings := scripted.Parse(c.Script, text)
		if finding.HasErrors(findings) {
			return nil, &FindingsError{c.Script, findings}
		}
		return script, nil
	}
	cfg, err := model.Config{Provider: c.Provider, Model: c.Name, BaseURL: c.BaseURL, Timeout: c.Timeout, Logger: s.cfg.Logger}.WithKey(c.KeyVariable, os.Getenv)
	if err != nil {
		return nil, err
	}
	return model.New(cfg)
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
