// Package config reads belay.yaml, the settings of a data folder where jobs run:
//
//	providers:
//	  anthropic: {api: anthropic, base_url: "https://api.anthropic.com", key_secret: ANTHROPIC_KEY}
//	models:
//	  default: {provider: openai, model: gpt-4o, api_key_env: OPENAI_API_KEY}
//	  judge: {provider: anthropic, model: claude-3-5-haiku-latest, price: {input: 0.80, output: 4}}
//	  demo: {provider: scripted, script: script.yml}
//	prices: prices.yaml
//	gateway: {models: [judge], secrets: mask}
//	budgets: {currency: USD, job: {cost: 1.00}}
//	tenants:
//	  acme: {budgets: {tenant: {cost: 10, per: day}}}
//	approvals:
//	  expiry: 24h
//	  webhook: {url: "http://127.0.0.1:9000/waiting", secret_env: BELAY_WEBHOOK_SECRET}
//	  command: [notify-send, Belay]
//	listen: 127.0.0.1:7421
//
// Agents name a model by its alias, the key under models; an alias that is not there
// is the default. Keys and secrets are named by their environment variables and
// never stand in the file. The reader is strict: what it does not know is an error.
package config

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/spend"
	"github.com/belay-run/belay/internal/yamlfile"
)

// File is the name of the file in a data folder.
const File = "belay.yaml"

// Config is what the file says.
type Config struct {
	Providers map[string]Provider
	Models    map[string]Model
	Prices    map[string]spend.Price // by the model's name, or provider/model
	Gateway   Gateway
	Currency  string // of prices and budgets; "" for the default
	Spending  Spending
	Tenants   map[string]Tenant
	Approvals Approvals
	Listen    string // address of the HTTP API; "" for the default
}

// Default is the alias of the model that every other alias falls back to.
const Default = "default"

// Scripted is the provider that plays a script and asks no model.
const Scripted = "scripted"

// Model is one model that agents can name.
type Model struct {
	Provider    string
	Name        string
	BaseURL     string
	KeyVariable string
	Timeout     time.Duration
	// Script is the absolute path of the script of a scripted model.
	Script string
	Price  *spend.Price // nil when none stands with the model
	// MaxOutput is how many tokens it answers with at most; 0 when nobody said.
	MaxOutput int
}

// Approvals says how people are told that something waits for them.
type Approvals struct {
	Expiry time.Duration // 0 for the default
	// WebhookURL is posted to, signed with the secret in SecretVariable.
	WebhookURL     string
	SecretVariable string
	Command        []string // is run, with the approval on its standard input
}

const maxExpiry = 90 * 24 * time.Hour

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// Read reads a file; one that is not there is an empty one.
func Read(path string) (*Config, []finding.Finding) {
	c := &Config{Models: map[string]Model{}}
	var findings []finding.Finding
	r := yamlfile.NewReader(filepath.Base(path), &findings)
	data, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return c, nil
	case err != nil:
		r.Whole().Err("unreadable-file", "the file cannot be read: "+err.Error(), "check its permissions")
		return c, findings
	}
	top := r.Open(r.Parse(data), "")
	if top == nil {
		return c, findings
	}
	c.providers(top)
	c.models(top, filepath.Dir(path))
	c.prices(top, filepath.Dir(path), &findings)
	c.gateway(top)
	c.budgets(top)
	c.tenants(top)
	c.approvals(top)
	if c.Listen = top.Text("listen"); c.Listen != "" {
		if _, _, err := net.SplitHostPort(c.Listen); err != nil {
			top.Spot("listen").Err("bad-value", "listen is no address", "write host:port, such as 127.0.0.1:7421")
		}
	}
	top.Close()
	return c, findings
}

func (c *Config) models(top *yamlfile.Section, dir string) {
	all := top.Sub("models")
	if all == nil {
		return
	}
	for _, f := range all.Rest() {
		s := all.Sub(f.Name)
		if s == nil {
			continue
		}
		m := Model{Provider: s.Needed("provider", "name the provider, such as openai, or scripted"), BaseURL: s.Text("base_url"),
			KeyVariable: variable(s, "api_key_env"), Timeout: s.Duration("timeout", time.Hour, 0, "bad-value"),
			MaxOutput: s.Count("max_output", 1, maxTokens, 0)}
		if p := s.Sub("price"); p != nil {
			price := priceOf(p)
			m.Price = &price
		}
		noPassword(s, "base_url", m.BaseURL)
		if m.Provider == Scripted {
			if script := s.Needed("script", "name the script's file"); script != "" {
				m.Script = script
				if !filepath.IsAbs(script) {
					m.Script = filepath.Join(dir, script)
				}
			}
		} else {
			m.Name = s.Needed("model", "write the provider's name of the model")
		}
		s.Close()
		c.Models[f.Name] = m
	}
	all.Close()
}

// variable reads the name of an environment variable.
func variable(s *yamlfile.Section, key string) string {
	name := s.Text(key)
	if name != "" && !variableName.MatchString(name) {
		s.Spot(key).Err("bad-value", s.Full(key)+" is no name of an environment variable", "name the variable that holds the secret; the secret itself does not belong here")
		return ""
	}
	return name
}

func (c *Config) approvals(top *yamlfile.Section) {
	s := top.Sub("approvals")
	if s == nil {
		return
	}
	c.Approvals.Expiry = s.Duration("expiry", maxExpiry, 0, "bad-value")
	if w := s.Sub("webhook"); w != nil {
		c.Approvals.WebhookURL = w.Needed("url", "write the address that is posted to")
		if u, err := url.Parse(c.Approvals.WebhookURL); c.Approvals.WebhookURL != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
			w.Spot("url").Err("bad-value", w.Full("url")+" is no http or https address", "write it whole, such as https://approvals.example/belay")
		}
		c.Approvals.SecretVariable = variable(w, "secret_env")
		if !w.Has("secret_env") {
			w.Here().Err("missing-key", w.Full("secret_env")+" is missing", "name the variable whose secret signs what is posted")
		}
		w.Close()
	}
	for _, n := range s.Texts("command") {
		c.Approvals.Command = append(c.Approvals.Command, n.Text)
	}
	s.Close()
}

// Called is the provider's name of the model; of a scripted one that of its script.
func (m Model) Called() string {
	if m.Provider == Scripted {
		return filepath.Base(m.Script)
	}
	return m.Name
}

// Named finds a model that the file has, by its alias or by its provider's name of it.
// Of several with that name it is the one whose alias comes first.
func (c *Config) Named(name string) (alias string, m Model, ok bool) {
	if m, ok := c.Models[name]; ok {
		return name, m, true
	}
	for _, alias := range slices.Sorted(maps.Keys(c.Models)) {
		if m := c.Models[alias]; m.Name == name && name != "" {
			return alias, m, true
		}
	}
	return "", Model{}, false
}

// Model returns the model of an alias, else the default one.
func (c *Config) Model(alias string) (Model, error) {
	for _, name := range []string{alias, Default} {
		if m, ok := c.Models[name]; ok {
			return m, nil
		}
	}
	return Model{}, fmt.Errorf("there is no model %q and no default one: write it under models in %s, or name one with --model or BELAY_MODEL", alias, File)
}
