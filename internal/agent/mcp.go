package agent

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/belay-run/belay/internal/yamlfile"
)

// MCPServer is a server of tools that skills may import as mcp/<id>:<tool>. Either
// Command or URL is set.
type MCPServer struct {
	ID      string
	Command []Setting // a program to run, with its arguments
	URL     Setting   // an address to ask
	Env     map[string]Setting
	Headers map[string]Setting
	// TokenVariable names the environment variable that holds the bearer token; ""
	// when none is named.
	TokenVariable string
	// KeyVariable and KeyHeader are for a server that wants an API key; the header is
	// X-API-Key when none is named.
	KeyVariable string
	KeyHeader   string
	Timeout     time.Duration // of one call; 0 when not set

	File         string
	Line, Column int
}

// Setting is a text that may have ${NAME} in it, for the value of an environment
// variable.
type Setting string

// Expand puts values in place of ${NAME}. It returns the names that lookup does not
// have.
func (s Setting) Expand(lookup func(name string) (string, bool)) (text string, missing []string) {
	text = variableIn.ReplaceAllStringFunc(string(s), func(m string) string {
		name := m[2 : len(m)-1]
		v, ok := lookup(name)
		if !ok && !slices.Contains(missing, name) {
			missing = append(missing, name)
		}
		return v
	})
	return text, missing
}

var variableIn = regexp.MustCompile(`\$\{[A-Za-z_][A-Za-z0-9_]*\}`)

const mcpHint = "write a list of {name, url} or {name, command, args}"

// mcpServers reads mcp_servers. No environment is looked at: variables stay names.
func mcpServers(top *yamlfile.Section) []MCPServer {
	n := top.Get("mcp_servers", yamlfile.List, mcpHint)
	if n == nil {
		return nil
	}
	var out []MCPServer
	for i, item := range n.Items {
		path := fmt.Sprintf("mcp_servers[%d]", i)
		s := top.R.Open(item, path)
		if s == nil {
			if item.Kind == yamlfile.Null {
				top.R.On(item).Err("missing-key", path+" says nothing", mcpHint)
			}
			continue
		}
		m := mcpServer(s)
		if m.ID == "" {
			continue // reported
		}
		if slices.ContainsFunc(out, func(o MCPServer) bool { return o.ID == m.ID }) {
			top.R.On(item).Err("duplicate-key", fmt.Sprintf("two MCP servers are called %s", yamlfile.Shown(m.ID)), "rename one of them")
			continue
		}
		out = append(out, m)
	}
	return out
}

func mcpServer(s *yamlfile.Section) MCPServer {
	m := MCPServer{File: s.R.File(), Line: s.Node.Line, Column: s.Node.Column}
	m.ID = either(s, "name", "id")
	if m.ID == "" {
		if !s.Has("name") && !s.Has("id") {
			s.R.On(s.Node).Err("missing-key", s.Path()+" has no name", "give it a name, which mcp/<name>:<tool> then has")
		}
	} else if !goodID.MatchString(m.ID) {
		s.R.On(s.Node).Err("bad-name", s.Path()+" has a name that cannot be used", `begin with a letter or digit and use at most 64 letters, digits, "_", "." and "-"`)
		m.ID = ""
	}
	m.command(s)
	m.Env, m.Headers = settings(s, "env"), settings(s, "headers")
	m.TokenVariable = secretVariable(s, "token", "token_env")
	m.KeyVariable = secretVariable(s, "api_key", "api_key_env")
	m.KeyHeader = s.TextOrBlank("api_key_header")
	if m.TokenVariable != "" && m.KeyVariable != "" {
		s.R.On(s.Node).Err("duplicate-key", s.Path()+" has a token and an api_key", "keep one of the two")
	}
	m.Timeout = duration(s, "tool_timeout", duration(s, "timeout", 0))
	for _, key := range []string{"type", "transport"} { // url or command say it
		s.Find(key)
	}
	s.Find("description")
	for _, key := range []string{"oauth", "module"} {
		if f := s.Find(key); f != nil {
			s.R.Key(f).Warn("not-acted-on", s.Full(key)+" is not acted on in this version, so the server will be asked without it", "use token: or api_key: with ${NAME}")
		}
	}
	closeLoosely(s)
	return m
}

// command reads how the server is reached.
func (m *MCPServer) command(s *yamlfile.Section) {
	if f := s.Find("command"); f != nil && f.Value.Kind == yamlfile.List {
		for _, part := range lines(s, "command") {
			m.Command = append(m.Command, Setting(part))
		}
	} else if text := s.TextOrBlank("command"); text != "" {
		m.Command = []Setting{Setting(text)}
	}
	if n := s.Get("args", yamlfile.List, "write one argument each, beginning with \"- \""); n != nil {
		for _, item := range n.Items {
			if item.Kind == yamlfile.List || item.Kind == yamlfile.Mapping || item.Kind == yamlfile.Null {
				s.R.Mismatch(item, "an argument of "+s.Full("args"), yamlfile.Text, "put it in quotes")
				continue
			}
			m.Command = append(m.Command, Setting(item.Text))
		}
	}
	m.URL = Setting(s.TextOrBlank("url"))
	switch {
	case m.URL != "" && s.Has("command"):
		s.R.On(s.Node).Err("duplicate-key", s.Path()+" has command and url", "keep one of the two")
	case m.URL == "" && !s.Has("command"):
		if !s.Has("url") {
			s.R.On(s.Node).Err("missing-key", s.Path()+" has neither url nor command", mcpHint)
		}
	case m.URL != "" && !expansion.MatchString(string(m.URL)):
		at := s.R.On(s.Find("url").Value)
		u, err := url.Parse(string(m.URL))
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			at.Err("bad-value", s.Full("url")+" is no http or https address", "write for example http://127.0.0.1:8000/mcp")
		} else if u.User != nil {
			at.Err("key-in-file", s.Full("url")+" has a user or password in it", keyHint)
		}
	}
}

// either reads the first of two keys that is there.
func either(s *yamlfile.Section, first, second string) string {
	if s.Has(first) {
		s.Find(second)
		return strings.TrimSpace(s.TextOrBlank(first))
	}
	return strings.TrimSpace(s.TextOrBlank(second))
}

// settings reads a mapping of texts.
func settings(s *yamlfile.Section, key string) map[string]Setting {
	t := s.Sub(key)
	if t == nil {
		return nil
	}
	out := map[string]Setting{}
	for i := range t.Node.Fields {
		f := &t.Node.Fields[i]
		if f.Value.Kind == yamlfile.List || f.Value.Kind == yamlfile.Mapping || f.Value.Kind == yamlfile.Null {
			s.R.Mismatch(f.Value, t.Full(tidy(f.Name)), yamlfile.Text, "put it in quotes")
			continue
		}
		out[f.Name] = Setting(f.Value.Text)
	}
	return out
}

// secretVariable reads the name of the variable that holds a secret: ${NAME} under
// one key, or NAME under the other. A secret itself is reported by secrets.
func secretVariable(s *yamlfile.Section, key, nameKey string) string {
	var names []string
	if f := s.Find(key); f != nil {
		if m := reference.FindStringSubmatch(f.Value.Text); m != nil && f.Value.Kind == yamlfile.Text {
			names = append(names, m[1])
		} else if expansion.MatchString(f.Value.Text) || f.Value.Kind != yamlfile.Text {
			s.R.On(f.Value).Err("bad-value", s.Full(key)+" must be ${NAME} and nothing else", "write ${NAME} with the name of an environment variable")
		}
	}
	if name := s.TextOrBlank(nameKey); name != "" {
		if !variable.MatchString(name) || secretLike.MatchString(name) {
			s.R.On(s.Find(nameKey).Value).Err("key-in-file", s.Full(nameKey)+" is not the name of an environment variable", "put the secret in an environment variable and write its name here")
		} else {
			names = append(names, name)
		}
	}
	if len(names) > 1 {
		s.R.Key(s.Find(key)).Err("duplicate-key", fmt.Sprintf("%s has %s and %s", s.Path(), key, nameKey), "keep one of the two")
	}
	if len(names) == 0 {
		return ""
	}
	return names[0]
}
