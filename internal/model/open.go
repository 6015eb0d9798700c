package model

import (
	"errors"
	"fmt"
	"strings"
)

var errNotNamed = errors.New("not understood: write provider/model, such as openai/gpt-4o, or provider/model@http://127.0.0.1:8000/v1")

// Named reads a model as it is named in a word: provider/model or
// provider/model@base-url.
func Named(s string) (Config, error) {
	rest, base, _ := strings.Cut(s, "@")
	provider, name, ok := strings.Cut(rest, "/")
	if !ok || provider == "" || name == "" {
		return Config{}, errNotNamed
	}
	return Config{Provider: provider, Model: name, BaseURL: base}, nil
}

// WithKey takes the key from an environment variable: from the one that is named,
// else from the provider's own. Some providers need none.
func (cfg Config) WithKey(variable string, lookup func(variable string) string) (Config, error) {
	if p, ok := ProviderNamed(cfg.Provider); ok && variable == "" {
		variable = p.KeyVariable
	}
	if variable == "" {
		return cfg, nil
	}
	if cfg.APIKey = lookup(variable); cfg.APIKey == "" {
		return cfg, fmt.Errorf("the key of model %s/%s is missing: set the environment variable %s, or set BELAY_MODEL to another model", cfg.Provider, cfg.Model, variable)
	}
	return cfg, nil
}
