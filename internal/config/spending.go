package config

import (
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/spend"
	"github.com/belay-run/belay/internal/yamlfile"
)

// What becomes of a request in which the tenant's secrets are found.
const (
	Mask   = "mask"
	Refuse = "refuse"
	Pass   = "pass"
)

// Defaults of what may be left out.
const (
	DefaultMaxRequest = 32 << 20
	DefaultCurrency   = "USD"
)

const (
	maxTokens  = 1_000_000_000_000
	leastBytes = 1 << 10
	mostBytes  = 1 << 30
)

// Gateway are the settings of the models that plugins may call, as far as they are
// given.
type Gateway struct {
	Listen      string
	Models      []string // aliases; nil when not given
	Secrets     string   // Mask, Refuse or Pass; "" when not given
	MaxRequest  int64    // bytes; 0 when not given
	RecordTexts *bool
}

// Spending are budgets, as far as they are given.
type Spending struct {
	Job, Agent, Tenant *spend.Budget
	Agents             map[string]spend.Budget // instead of Agent
}

// Tenant is what holds for one tenant instead.
type Tenant struct {
	Gateway  Gateway
	Spending Spending
}

// GatewayRules are the rules for a tenant's plugins that call models.
type GatewayRules struct {
	Models      []string // aliases; nil for all
	Secrets     string   // Mask, Refuse or Pass
	MaxRequest  int64    // bytes
	RecordTexts bool
}

// GatewayRules gives the rules that hold for a tenant.
func (c *Config) GatewayRules(tenant string) GatewayRules {
	out := GatewayRules{Secrets: Mask, MaxRequest: DefaultMaxRequest}
	for _, g := range []Gateway{c.Gateway, c.Tenants[tenant].Gateway} {
		if g.Models != nil {
			out.Models = g.Models
		}
		if g.Secrets != "" {
			out.Secrets = g.Secrets
		}
		if g.MaxRequest != 0 {
			out.MaxRequest = g.MaxRequest
		}
		if g.RecordTexts != nil {
			out.RecordTexts = *g.RecordTexts
		}
	}
	return out
}

// Budgets gives the budgets that hold for an agent of a tenant.
func (c *Config) Budgets(tenant, agent string) spend.Budgets {
	var out spend.Budgets
	agents := c.Spending.Agents
	for _, s := range []Spending{c.Spending, c.Tenants[tenant].Spending} {
		for _, one := range []struct {
			given *spend.Budget
			to    *spend.Budget
		}{{s.Job, &out.Job}, {s.Agent, &out.Agent}, {s.Tenant, &out.Tenant}} {
			if one.given != nil {
				*one.to = *one.given
			}
		}
		if s.Agents != nil {
			agents = s.Agents
		}
	}
	if own, ok := agents[agent]; ok {
		out.Agent = own
	}
	return out
}

// CurrencyName is the currency of prices and budgets.
func (c *Config) CurrencyName() string {
	if c.Currency == "" {
		return DefaultCurrency
	}
	return c.Currency
}

// Price gives the price of a provider's model: the one that stands with a model of
// belay.yaml, first that of the alias, else the one under prices. What is scripted
// costs nothing. It is not ok when there is none.
func (c *Config) Price(provider, model, alias string) (p spend.Price, ok bool) {
	if m, ok := c.asked(provider, model, alias, func(m Model) bool { return m.Price != nil }); ok {
		return *m.Price, true
	}
	for _, name := range []string{provider + "/" + model, model} {
		if p, ok := c.Prices[name]; ok && model != "" {
			return p, true
		}
	}
	return spend.Price{}, provider == Scripted
}

// MaxOutput is how many tokens a provider's model answers with at most; 0 when nobody
// said.
func (c *Config) MaxOutput(provider, model, alias string) int {
	m, _ := c.asked(provider, model, alias, func(m Model) bool { return m.MaxOutput > 0 })
	return m.MaxOutput
}

// asked finds the model of belay.yaml that is asked and says more: the alias's, else
// another of the same name at the same provider.
func (c *Config) asked(provider, model, alias string, says func(Model) bool) (Model, bool) {
	is := func(m Model) bool { return m.Provider == provider && m.Called() == model && says(m) }
	if m, ok := c.Models[alias]; ok && is(m) {
		return m, true
	}
	if model == "" {
		return Model{}, false
	}
	found := ""
	for name, m := range c.Models {
		if is(m) && (found == "" || name < found) {
			found = name
		}
	}
	m, ok := c.Models[found]
	return m, ok
}

// prices reads prices in place, or from a file of their own.
func (c *Config) prices(top *yamlfile.Section, dir string, findings *[]finding.Finding) {
	f := top.Find("prices")
	if f == nil {
		return
	}
	if f.Value.Kind != yamlfile.Text {
		c.priceList(top.Sub("prices"))
		return
	}
	path := top.Text("prices")
	if path == "" {
		return
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		top.Spot("prices").Err("unreadable-file", "the file of prices cannot be read: "+reason(err), "correct the name, which is relative to "+File+"; or write the prices in place")
		return
	}
	r := yamlfile.NewReader(filepath.Base(path), findings)
	c.priceList(r.Open(r.Parse(data), ""))
}

func reason(err error) string {
	var at *os.PathError
	if errors.As(err, &at) {
		return at.Err.Error()
	}
	return err.Error()
}

func (c *Config) priceList(s *yamlfile.Section) {
	if s == nil {
		return
	}
	c.Prices = map[string]spend.Price{}
	for _, f := range s.Rest() {
		if p := s.Sub(f.Name); p != nil {
			c.Prices[f.Name] = priceOf(p)
		}
	}
	s.Close()
}

// priceOf reads the price of a million tokens. What of it is not given of cached
// tokens is as for others.
func priceOf(s *yamlfile.Section) spend.Price {
	const hint = "write what a million tokens cost"
	s.Require("input", hint)
	s.Require("output", hint)
	p := spend.Price{Input: amount(s, "input"), Output: amount(s, "output")}
	p.Cached, p.CacheWritten = p.Input, p.Input
	if s.Has("cached") {
		p.Cached = amount(s, "cached")
	}
	if s.Has("cache_written") {
		p.CacheWritten = amount(s, "cache_written")
	}
	s.Close()
	return p
}

// amount reads money exactly; 0 when there is none.
func amount(s *yamlfile.Section, key string) spend.Money {
	n := s.Get(key, yamlfile.Number, "write a decimal without quotes, such as 0.80")
	if n == nil {
		return 0
	}
	m, err := spend.ParseMoney(n.Text)
	if err != nil {
		s.R.On(n).Err("bad-value", s.Full(key)+" is no amount of money", "write a decimal such as 12 or 0.075, with at most six digits after the point")
	}
	return m
}

func (c *Config) gateway(top *yamlfile.Section) {
	s := top.Sub("gateway")
	if s == nil {
		return
	}
	listen := s.Text("listen")
	c.Gateway = c.gatewayOf(s)
	if c.Gateway.Listen = listen; listen != "" {
		host, _, err := net.SplitHostPort(listen)
		ip := net.ParseIP(host)
		if err != nil || host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			s.Spot("listen").Err("bad-value", s.Full("listen")+" is no address of this machine alone", "write 127.0.0.1 and a port, such as 127.0.0.1:0 for any: only plugins of this machine call it")
		}
	}
	s.Close()
}

// gatewayOf reads what may also stand with a tenant.
func (c *Config) gatewayOf(s *yamlfile.Section) Gateway {
	g := Gateway{Secrets: s.OneOf("secrets", Mask, Refuse, Pass), MaxRequest: size(s, "max_request")}
	if s.Has("record_texts") {
		on := s.Flag("record_texts")
		g.RecordTexts = &on
	}
	names := make([]string, 0, len(c.Models))
	for name := range c.Models {
		names = append(names, name)
	}
	for _, n := range s.Texts("models") {
		if !slices.Contains(names, n.Text) {
			s.R.On(n).Err("unknown-value", fmt.Sprintf("%s names %s, which is no alias under models", s.Full("models"), yamlfile.Shown(n.Text)), yamlfile.Meant(n.Text, names))
			continue
		}
		g.Models = append(g.Models, n.Text)
	}
	return g
}

var sizeForm = regexp.MustCompile(`^([0-9]{1,10}) ?(B|KiB|MiB|GiB)?$`)

// size reads a number of bytes, such as 32MiB.
func size(s *yamlfile.Section, key string) int64 {
	f := s.Find(key)
	if f == nil {
		return 0
	}
	m := sizeForm.FindStringSubmatch(f.Value.Text)
	if m != nil && (f.Value.Kind == yamlfile.Whole || f.Value.Kind == yamlfile.Text) {
		n, err := strconv.ParseInt(m[1], 10, 64)
		n <<= map[string]int{"KiB": 10, "MiB": 20, "GiB": 30}[m[2]]
		if err == nil && n >= leastBytes && n <= mostBytes {
			return n
		}
	}
	s.R.On(f.Value).Err("bad-value", s.Full(key)+" must be a size from 1KiB to 1GiB", "write for example 32MiB")
	return 0
}

var currencyForm = regexp.MustCompile(`^[A-Z]{3}$`)

func (c *Config) budgets(top *yamlfile.Section) {
	s := top.Sub("budgets")
	if s == nil {
		return
	}
	if c.Currency = s.Text("currency"); c.Currency != "" && !currencyForm.MatchString(c.Currency) {
		s.Spot("currency").Err("bad-value", s.Full("currency")+" is no currency", "write its three letters, such as USD")
	}
	c.Spending = spendingOf(s)
	s.Close()
}

func spendingOf(s *yamlfile.Section) Spending {
	out := Spending{Job: budget(s.Sub("job"), false), Agent: budget(s.Sub("agent"), true), Tenant: budget(s.Sub("tenant"), true)}
	agents := s.Sub("agents")
	if agents == nil {
		return out
	}
	out.Agents = map[string]spend.Budget{}
	for _, f := range agents.Rest() {
		if b := budget(agents.Sub(f.Name), true); b != nil {
			out.Agents[f.Name] = *b
		}
	}
	agents.Close()
	return out
}

// budget reads a budget, of a period when it is dated.
func budget(s *yamlfile.Section, dated bool) *spend.Budget {
	if s == nil {
		return nil
	}
	b := &spend.Budget{Cost: amount(s, "cost"), Tokens: int64(s.Count("tokens", 1, min(maxTokens, math.MaxInt), 0))}
	if dated {
		s.Require("per", "write day or month: when it begins anew")
		b.Per = spend.Period(s.OneOf("per", string(spend.Day), string(spend.Month)))
	}
	switch {
	case !s.Has("cost") && !s.Has("tokens"):
		s.Here().Err("missing-key", s.Called()+" limits nothing", "write cost, tokens or both")
	case s.Has("cost") && b.Cost == 0 && strings.Trim(s.Node.Field("cost").Text, "0.") == "": // else it was reported
		s.Spot("cost").Err("bad-value", s.Full("cost")+" must be more than 0", "leave it out for no limit; which models plugins may call stands under gateway.models")
	}
	s.Close()
	return b
}

func (c *Config) tenants(top *yamlfile.Section) {
	all := top.Sub("tenants")
	if all == nil {
		return
	}
	c.Tenants = map[string]Tenant{}
	for _, f := range all.Rest() {
		s := all.Sub(f.Name)
		if s == nil {
			continue
		}
		var t Tenant
		if g := s.Sub("gateway"); g != nil {
			t.Gateway = c.gatewayOf(g)
			g.Close()
		}
		if b := s.Sub("budgets"); b != nil {
			t.Spending = spendingOf(b)
			b.Close()
		}
		s.Close()
		c.Tenants[f.Name] = t
	}
	all.Close()
}
