package config

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/belay-run/belay/internal/yamlfile"
)

// APIs that providers speak. A scripted one speaks all.
const (
	OpenAI    = "openai"
	Anthropic = "anthropic"
)

// Provider is who answers for a model.
type Provider struct {
	API     string // OpenAI, Anthropic or Scripted
	BaseURL string // "" for the usual one of a provider of that name
	// The key is a secret of the tenant whose call it is, or in an environment
	// variable; at most one of them is set.
	KeySecret, KeyVariable string
	Headers                map[string]string // that are sent along
}

// Provider gives a provider by the name that models call it. It is not ok for one that
// stands not under providers and of which this package knows nothing: it speaks
// OpenAI's API then.
func (c *Config) Provider(name string) (p Provider, ok bool) {
	if p, ok := c.Providers[name]; ok {
		return p, true
	}
	switch name {
	case Scripted:
		return Provider{API: Scripted}, true
	case Anthropic:
		return Provider{API: Anthropic, BaseURL: "https://api.anthropic.com", KeyVariable: "ANTHROPIC_API_KEY"}, true
	}
	return Provider{API: OpenAI}, false
}

// carriesKeys are headers whose values are keys.
var carriesKeys = []string{"Authorization", "Proxy-Authorization", "X-Api-Key", "Api-Key", "X-Goog-Api-Key", "Cookie"}

const noKeys = "name a secret with key_secret or an environment variable with key_env; the key itself does not belong here"

func (c *Config) providers(top *yamlfile.Section) {
	all := top.Sub("providers")
	if all == nil {
		return
	}
	c.Providers = map[string]Provider{}
	for _, f := range all.Rest() {
		s := all.Sub(f.Name)
		if s == nil {
			continue
		}
		if f.Name == Scripted || strings.ContainsAny(f.Name, "/@") {
			s.R.Key(f).Err("bad-value", yamlfile.Shown(f.Name)+" cannot be a provider's name", "use letters, digits and -; scripted is there already")
		}
		p := Provider{API: s.OneOf("api", OpenAI, Anthropic), BaseURL: strings.TrimRight(s.Text("base_url"), "/"), KeySecret: variable(s, "key_secret"), KeyVariable: variable(s, "key_env")}
		if p.API == "" {
			p.API = OpenAI
		}
		if known, ok := (&Config{}).Provider(f.Name); ok && p.BaseURL == "" && known.API == p.API {
			p.BaseURL = known.BaseURL
		}
		c.checkAddress(s, p.BaseURL)
		if s.Has("key_secret") && s.Has("key_env") {
			s.Spot("key_env").Err("bad-value", s.Called()+" has both key_secret and key_env", "leave one of them")
		}
		p.Headers = headers(s.Sub("headers"))
		for _, wrong := range []string{"api_key", "key", "token", "password"} {
			if s.Node.Field(wrong) != nil {
				s.Spot(wrong).Err("unknown-key", s.Full(wrong)+" is no key of a provider", noKeys)
			}
		}
		s.Close()
		c.Providers[f.Name] = p
	}
	all.Close()
}

func (*Config) checkAddress(s *yamlfile.Section, address string) {
	if address == "" {
		return
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.Fragment != "" {
		s.Spot("base_url").Err("bad-value", s.Full("base_url")+" is no http or https address", "write it whole, such as https://api.anthropic.com")
		return
	}
	noPassword(s, "base_url", address)
}

// noPassword refuses an address with a password in it.
func noPassword(s *yamlfile.Section, key, address string) {
	if u, err := url.Parse(address); err == nil && u.User != nil {
		s.Spot(key).Err("bad-value", s.Full(key)+" has a user or password in it", noKeys)
	}
}

// headers reads what is sent along with each call. Keys are refused.
func headers(s *yamlfile.Section) map[string]string {
	if s == nil {
		return nil
	}
	out := map[string]string{}
	for _, f := range s.Rest() {
		name, value := http.CanonicalHeaderKey(f.Name), s.Text(f.Name)
		switch {
		case slices.Contains(carriesKeys, name) || yamlfile.SecretLike(value):
			s.R.On(f.Value).Err("bad-value", "the header "+yamlfile.Shown(f.Name)+" holds a key", noKeys)
		case strings.ContainsFunc(f.Name, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`()<>@,;:\"/[]?={}`, r) }):
			s.R.Key(f).Err("bad-value", yamlfile.Shown(f.Name)+" is no name of a header", "use letters, digits and -")
		case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }):
			s.R.On(f.Value).Err("bad-value", "the header "+yamlfile.Shown(f.Name)+" has a character that headers cannot have", "use plain letters and signs, in one line")
		default:
			out[name] = value
		}
	}
	s.Close()
	return out
}
