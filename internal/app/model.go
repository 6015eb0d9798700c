package app

import (
	"fmt"
	"os"

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
	if cfg.Model == "" && l.script != nil {
		return l.script, nil
	}
	c, variable := configOf(l.spec.Model), l.spec.Model.KeyVariable
	if cfg.Model != "" {
		var err error
		if c, err = model.Named(cfg.Model); err != nil {
			return nil, fmt.Errorf("model %q, of --model or BELAY_MODEL, is %w", cfg.Model, err)
		}
		variable = ""
	}
	c, err := c.WithKey(variable, os.Getenv)
	if err != nil {
		return nil, err
	}
	c.Logger = cfg.Logger
	client, err := model.New(c)
	if err != nil && cfg.Model != "" {
		err = fmt.Errorf("model %q, of --model or BELAY_MODEL: %w; there, a base_url goes behind an @, as in provider/model@http://127.0.0.1:8000/v1", cfg.Model, err)
	}
	return client, err
}

func configOf(m agent.Model) model.Config {
	retries := 0
	if m.MaxRetries != nil {
		if retries = *m.MaxRetries; retries == 0 {
			retries = -1 // never: 0 is the client's default
		}
	}
	return model.Config{MaxRetries: retries, Provider: m.Provider, Model: m.Name, BaseURL: m.BaseURL, Extra: m.Settings(), Timeout: m.Timeout}
}

// readScript reads the script that stands in for a model.
func readScript(m agent.Model) (*scripted.Script, []finding.Finding) {
	file := m.ScriptFile
	if file == "" {
		file = agent.AgentFile // it stands inline; lines count from the script's first
	}
	return scripted.Parse(file, m.Script)
}

func isScripted(m chat.Model) bool { return m.Name() == "scripted" }

func modelFinding(err error) finding.Finding {
	return finding.Finding{File: "integrations.yml", Rule: "model", Severity: finding.Warning, Message: err.Error(),
		Hint: "the agent cannot answer until this is mended"}
}
