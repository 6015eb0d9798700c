package model

import (
	"net"
	"strings"
)

// Provider is what is known about a provider by its name.
type Provider struct {
	Name string
	// BaseURL is empty where each user has a server of their own.
	BaseURL string
	// KeyVariable is the environment variable where the key is looked for when
	// the configuration names none.
	KeyVariable string
}

var providers = []Provider{
	{Name: "openai", BaseURL: "https://api.openai.com/v1", KeyVariable: "OPENAI_API_KEY"},
	{Name: "openrouter", BaseURL: "https://openrouter.ai/api/v1", KeyVariable: "OPENROUTER_API_KEY"},
	{Name: "groq", BaseURL: "https://api.groq.com/openai/v1", KeyVariable: "GROQ_API_KEY"},
	{Name: "mistral", BaseURL: "https://api.mistral.ai/v1", KeyVariable: "MISTRAL_API_KEY"},
	{Name: "ollama", BaseURL: "http://127.0.0.1:11434/v1"},
	{Name: "openai-compatible"},
	{Name: "self-hosted"},
	{Name: "litellm"},
	{Name: "vllm"},
}

// ProviderNamed finds a provider; case does not matter, nor whether its words are
// joined by - or _.
func ProviderNamed(name string) (Provider, bool) {
	name = strings.ReplaceAll(strings.ToLower(name), "_", "-")
	for _, p := range providers {
		if p.Name == name {
			return p, true
		}
	}
	return Provider{}, false
}

func providerNames() []string {
	var out []string
	for _, p := range providers {
		out = append(out, p.Name)
	}
	return out
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
