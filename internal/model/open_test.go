package model

import (
	"strings"
	"testing"
)

func TestNamed(t *testing.T) {
	for word, want := range map[string]Config{
		"openai/gpt-4o":                       {Provider: "openai", Model: "gpt-4o"},
		"ollama/llama@http://127.0.0.1:11/v1": {Provider: "ollama", Model: "llama", BaseURL: "http://127.0.0.1:11/v1"},
		"openrouter/meta/llama":               {Provider: "openrouter", Model: "meta/llama"},
		"gpt":                                 {}, "/gpt": {}, "openai/": {}, "": {}, "@http://x/y": {}, "gpt@http://x/y": {},
	} {
		got, err := Named(word)
		if got.Provider != want.Provider || got.Model != want.Model || got.BaseURL != want.BaseURL || (err == nil) != (want.Model != "") {
			t.Errorf("%s: %+v, %v", word, got, err)
		}
	}
}

func TestWithKey(t *testing.T) {
	lookup := func(variable string) string {
		return map[string]string{"OPENAI_API_KEY": "own", "OTHER": "other"}[variable]
	}
	for name, tt := range map[string]struct{ provider, variable, key, missing string }{
		"the provider's": {"openai", "", "own", ""},
		"the one named":  {"openai", "OTHER", "other", ""},
		"not set":        {"openai", "NOWHERE", "", "NOWHERE"},
		"needs none":     {"ollama", "", "", ""},
		"an own server":  {"vllm", "OTHER", "other", ""},
		"its is not set": {"groq", "", "", "GROQ_API_KEY"},
	} {
		cfg, err := Config{Provider: tt.provider, Model: "m"}.WithKey(tt.variable, lookup)
		if cfg.APIKey != tt.key || (err != nil) != (tt.missing != "") || err != nil && !strings.Contains(err.Error(), tt.provider+"/m is missing: set the environment variable "+tt.missing) {
			t.Errorf("%s: %q, %v", name, cfg.APIKey, err)
		}
	}
}
