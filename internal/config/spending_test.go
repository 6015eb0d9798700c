package config

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/belay-run/belay/internal/spend"
)

const spending = `providers:
  anthropic: {api: anthropic, key_secret: ANTHROPIC_KEY, headers: {x-team: risk}}
  local: {base_url: "http://127.0.0.1:8000/v1/", key_env: LOCAL_KEY}
models:
  default: {provider: openai, model: gpt-4o, api_key_env: OPENAI_API_KEY}
  judge: {provider: anthropic, model: claude-3-5-haiku-latest, price: {input: 0.80, output: 4, cached: 0.08, cache_written: 1}, max_output: 8192}
  demo: {provider: scripted, script: demo.yml}
prices:
  gpt-4o: {input: 2.5, output: 10}
  local/gpt-4o: {input: 0, output: 0}
gateway:
  listen: 127.0.0.1:0
  models: [judge, default]
  max_request: 8MiB
budgets:
  currency: EUR
  job: {cost: 1.00, tokens: 200000}
  agent: {cost: 20, per: day}
  tenant: {cost: 100.000001, per: month}
  agents: {acme-reviewer: {cost: 5, per: day}}
tenants:
  acme: {gateway: {models: [judge], secrets: refuse, record_texts: true}, budgets: {tenant: {cost: 10, per: day}}}
  other: {budgets: {agent: {tokens: 7, per: month}, agents: {one: {tokens: 1, per: month}}}}
`

func TestSpending(t *testing.T) {
	c, rules, _ := read(t, spending)
	if rules != "" {
		t.Fatal(rules)
	}
	const unit = 1_000_000
	for _, p := range []struct {
		name string
		want Provider
		ok   bool
	}{
		{"anthropic", Provider{API: Anthropic, BaseURL: "https://api.anthropic.com", KeySecret: "ANTHROPIC_KEY", Headers: map[string]string{"X-Team": "risk"}}, true},
		{"local", Provider{API: OpenAI, BaseURL: "http://127.0.0.1:8000/v1", KeyVariable: "LOCAL_KEY"}, true},
		{"scripted", Provider{API: Scripted}, true},
		{"groq", Provider{API: OpenAI}, false},
	} {
		if got, ok := c.Provider(p.name); !reflect.DeepEqual(got, p.want) || ok != p.ok {
			t.Errorf("provider %s: %+v, %v", p.name, got, ok)
		}
	}
	for tenant, want := range map[string]GatewayRules{
		"acme":   {Models: []string{"judge"}, Secrets: Refuse, MaxRequest: 8 << 20, RecordTexts: true},
		"nobody": {Models: []string{"judge", "default"}, Secrets: Mask, MaxRequest: 8 << 20},
	} {
		if got := c.GatewayRules(tenant); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v", tenant, got)
		}
	}
	job, day := spend.Budget{Cost: unit, Tokens: 200_000}, spend.Budget{Cost: 20 * unit, Per: spend.Day}
	for who, want := range map[string]spend.Budgets{
		"nobody agent":         {Job: job, Agent: day, Tenant: spend.Budget{Cost: 100*unit + 1, Per: spend.Month}},
		"nobody acme-reviewer": {Job: job, Agent: spend.Budget{Cost: 5 * unit, Per: spend.Day}, Tenant: spend.Budget{Cost: 100*unit + 1, Per: spend.Month}},
		"acme acme-reviewer":   {Job: job, Agent: spend.Budget{Cost: 5 * unit, Per: spend.Day}, Tenant: spend.Budget{Cost: 10 * unit, Per: spend.Day}},
		"other acme-reviewer":  {Job: job, Agent: spend.Budget{Tokens: 7, Per: spend.Month}, Tenant: spend.Budget{Cost: 100*unit + 1, Per: spend.Month}},
		"other one":            {Job: job, Agent: spend.Budget{Tokens: 1, Per: spend.Month}, Tenant: spend.Budget{Cost: 100*unit + 1, Per: spend.Month}},
	} {
		tenant, agent, _ := strings.Cut(who, " ")
		if got := c.Budgets(tenant, agent); got != want {
			t.Errorf("%s: %+v", who, got)
		}
	}
	for asked, want := range map[string]spend.Price{
		"anthropic claude-3-5-haiku-latest judge":  {Input: 800_000, Output: 4 * unit, Cached: 80_000, CacheWritten: unit},
		"anthropic claude-3-5-haiku-latest nobody": {Input: 800_000, Output: 4 * unit, Cached: 80_000, CacheWritten: unit},
		"openai gpt-4o default":                    {Input: 2_500_000, Output: 10 * unit, Cached: 2_500_000, CacheWritten: 2_500_000},
		"local gpt-4o ":                            {},
		"scripted demo.yml demo":                   {},
	} {
		part := strings.Split(asked, " ")
		if got, ok := c.Price(part[0], part[1], part[2]); !ok || got != want {
			t.Errorf("%s: %+v, %v", asked, got, ok)
		}
	}
	if p, ok := c.Price("openai", "gpt-5", "default"); ok {
		t.Errorf("another model under the alias: %+v", p)
	}
	if n := c.MaxOutput("anthropic", "claude-3-5-haiku-latest", "judge"); n != 8192 || c.MaxOutput("openai", "gpt-4o", "default") != 0 {
		t.Errorf("max output %d", n)
	}
	if c.CurrencyName() != "EUR" || (&Config{}).CurrencyName() != "USD" {
		t.Error(c.CurrencyName())
	}
	if got := (&Config{}).GatewayRules("x"); !reflect.DeepEqual(got, GatewayRules{Secrets: Mask, MaxRequest: 32 << 20}) {
		t.Errorf("defaults: %+v", got)
	}
	if got := (&Config{}).Budgets("x", "y"); got != (spend.Budgets{}) {
		t.Errorf("defaults: %+v", got)
	}
}

func TestSpendingReportsWhatIsWrong(t *testing.T) {
	for text, want := range map[string]string{
		"providers: {p: {api: cohere}}":                                         "unknown-value",
		"providers: {p: {base_url: here}}":                                      "bad-value",
		"providers: {p: {base_url: 'https://u:p@a.example'}}":                   "bad-value",
		"providers: {p: {key_secret: A, key_env: B}}":                           "bad-value",
		"providers: {p: {key_secret: sk-1}}":                                    "bad-value",
		"providers: {p: {key_env: 'sk ant'}}":                                   "bad-value",
		"providers: {p: {api_key: secret1}}":                                    "unknown-key",
		"providers: {p: {headers: {Authorization: Bearer x}}}":                  "bad-value",
		"providers: {p: {headers: {x-api-key: abc}}}":                           "bad-value",
		"providers: {p: {headers: {x-team: sk-abcdefghijkl}}}":                  "bad-value",
		"providers: {p: {headers: {'x team': a}}}":                              "bad-value",
		"providers: {p: {headers: {x-team: \"a\\nb\"}}}":                        "bad-value",
		"providers: {scripted: {api: openai}}":                                  "bad-value",
		"models: {a: {provider: p, model: m, price: {input: 1}}}":               "missing-key",
		"models: {a: {provider: p, model: m, price: {input: 1, output: '2'}}}":  "wrong-type",
		"models: {a: {provider: p, model: m, price: {input: 1, output: 1e-3}}}": "wrong-type",
		"models: {a: {provider: p, model: m, max_output: 0}}":                   "bad-value",
		"models: {a: {provider: p, model: m, base_url: 'http://u:p@h'}}":        "bad-value",
		"prices: none.yaml":                                                     "unreadable-file",
		"prices: {m: {input: 0.0000001, output: 1}}":                            "bad-value",
		"prices: {m: {input: -1, output: 1}}":                                   "bad-value",
		"prices: [1]":                                                           "wrong-type",
		"gateway: {models: [judge]}":                                            "unknown-value",
		"gateway: {models: []}":                                                 "empty-list",
		"gateway: {secrets: hide}":                                              "unknown-value",
		"gateway: {max_request: 2TiB}":                                          "bad-value",
		"gateway: {max_request: 9999999999GiB}":                                 "bad-value",
		"gateway: {max_request: 1.5}":                                           "bad-value",
		"gateway: {record_texts: maybe}":                                        "wrong-type",
		"gateway: {listen: '0.0.0.0:9000'}":                                     "bad-value",
		"gateway: {listen: 9000}":                                               "wrong-type",
		"budgets: {currency: dollars}":                                          "bad-value",
		"budgets: {job: {cost: 1, per: day}}":                                   "unknown-key",
		"budgets: {job: {cost: 0}}":                                             "bad-value",
		"budgets: {job: {tokens: 0}}":                                           "bad-value",
		"budgets: {agent: {cost: 1}}":                                           "missing-key",
		"budgets: {agent: {per: day}}":                                          "missing-key",
		"budgets: {agent: {cost: 1, per: week}}":                                "unknown-value",
		"budgets: {agents: {a: {cost: 1}}}":                                     "missing-key",
		"tenants: {a: {gateway: {listen: '127.0.0.1:0'}}}":                      "unknown-key",
		"tenants: {a: {budgets: {currency: USD}}}":                              "unknown-key",
	} {
		if _, rules, _ := read(t, text); rules != want {
			t.Errorf("%q: findings %q, want %q", text, rules, want)
		}
	}
}

func TestKeysInTheFileAreNotShown(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, File)
	for _, text := range []string{"providers: {p: {api_key: PLANTED99}}", "providers: {p: {headers: {Authorization: Bearer PLANTED99}}}", "providers: {p: {key_secret: 'PLANTED99!'}}",
		"providers: {p: {base_url: 'https://u:PLANTED99@h'}}"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, found := Read(path)
		if len(found) == 0 {
			t.Errorf("%s: nothing was found", text)
		}
		for _, f := range found {
			if strings.Contains(f.Message+f.Hint, "PLANTED99") {
				t.Errorf("a finding shows the key: %+v", f)
			}
		}
	}
}

func TestPricesInAFile(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	path := write(File, "prices: prices.yaml\n")
	write("prices.yaml", "gpt-4o: {input: 2.5, output: 10, cached: 1.25}\n")
	c, found := Read(path)
	p, ok := c.Price("openai", "gpt-4o", "")
	if want := (spend.Price{Input: 2_500_000, Output: 10_000_000, Cached: 1_250_000, CacheWritten: 2_500_000}); len(found) > 0 || !ok || p != want {
		t.Errorf("%v: %+v", found, p)
	}
	write("prices.yaml", "gpt-4o: {input: 2.5}\nx: {input: 1, output: 1, per: day}\n")
	_, found = Read(path)
	lines := []int{}
	for _, f := range found {
		if f.File == "prices.yaml" {
			lines = append(lines, f.Line)
		}
	}
	if !slices.Equal(lines, []int{1, 2}) {
		t.Errorf("%+v", found)
	}
}
