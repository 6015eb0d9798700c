package app

import (
	"fmt"
	"os"
	"strings"

	"github.com/belay-run/belay/internal/agent"
	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/model"
	"github.com/belay-run/belay/internal/model/scripted"
)

// openModel makes the model that the agent names, or the one that stands in for
// it.
func openModel(cfg Config, l *loaded) (chat.Model, error) {
	if cfg.Client != nil {
		return cfg.Client, nil
	}
	m := l.spec.Model
	if cfg.Model != "" {
		var err error
		if m, err = named(cfg.Model); err != nil {
			return nil, err
		}
	}
	if l.script != nil {
		return l.script, nil
	}
	key := ""
	variable := m.KeyVariable
	if p, ok := model.ProviderNamed(m.Provider); ok && variable == "" {
		variable = p.KeyVariable
	}
	if variable != "" {
		if key = os.Getenv(variable); key == "" {
			return nil, fmt.Errorf("the key of model %s/%s is missing: set the environment variable %s, or set BELAY_MODEL to another model", m.Provider, m.Name, variable)
		}
	}
	retries := 0
	if m.MaxRetries != nil {
		if retries = *m.MaxRetries; retries == 0 {
			retries = -1 // never: 0 is the client's default
		}
	}
	client, err := model.New(model.Config{MaxRetries: retries, Provider: m.Provider, Model: m.Name, BaseURL: m.BaseURL, APIKey: key, Extra: m.Settings(), Timeout: m.Timeout, Logger: cfg.Logger})
	if err != nil && cfg.Model != "" {
		err = fmt.Errorf("model %q, of --model or BELAY_MODEL: %w; there, a base_url goes behind an @, as in provider/model@http://127.0.0.1:8000/v1", cfg.Model, err)
	}
	return client, err
}

// readScript reads the script that stands in for a model.
func readScript(m agent.Model) (*scripted.Script, []finding.Finding) {
	file := m.ScriptFile
	if file == "" {
		file = agent.AgentFile // it stands inline; lines count from the script's first
	}
	return scripted.Parse(file, m.Script)
}

// named reads provider/model or provider/model@base-url.
func named(s string) (agent.Model, error) {
	rest, base, _ := strings.Cut(s, "@")
	provider, name, ok := strings.Cut(rest, "/")
	if !ok || provider == "" || name == "" {
		return agent.Model{}, fmt.Errorf("model %q, of --model or BELAY_MODEL, is not understood: write provider/model, such as openai/gpt-4o, or provider/model@http://127.0.0.1:8000/v1", s)
	}
	return agent.Model{Provider: provider, Name: name, BaseURL: base}, nil
}

func isScripted(m chat.Model) bool { return m.Name() == "scripted" }

func modelFinding(err error) finding.Finding {
	return finding.Finding{File: "integrations.yml", Rule: "model", Severity: finding.Warning, Message: err.Error(),
		Hint: "the agent cannot answer until this is mended"}
}
