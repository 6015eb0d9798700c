package agent

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
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
func mcpServers(top *section) []MCPServer {
	n := top.get("mcp_servers", isList, mcpHint)
	if n == nil {
		return nil
	}
	var out []MCPServer
	for i, item := range n.items {
		path := fmt.Sprintf("mcp_servers[%d]", i)
		s := top.r.open(item, path)
		if s == nil {
			if item.kind == isNull {
				top.r.on(item).err("missing-key", path+" says nothing", mcpHint)
			}
			continue
		}
		m := mcpServer(s)
		if m.ID == "" {
			continue // reported
		}
		if slices.ContainsFunc(out, func(o MCPServer) bool { return o.ID == m.ID }) {
			top.r.on(item).err("duplicate-key", fmt.Sprintf("two MCP servers are called %s", shown(m.ID)), "rename one of them")
			continue
		}
		out = append(out, m)
	}
	return out
}

func mcpServer(s *section) MCPServer {
	m := MCPServer{File: s.r.file, Line: s.n.line, Column: s.n.column}
	m.ID = s.either("name", "id")
	if m.ID == "" {
		if !s.has("name") && !s.has("id") {
			s.r.on(s.n).err("missing-key", s.path+" has no name", "give it a name, which mcp/<name>:<tool> then has")
		}
	} else if !goodID.MatchString(m.ID) {
		s.r.on(s.n).err("bad-name", s.path+" has a name that cannot be used", `begin with a letter or digit and use at most 64 letters, digits, "_", "." and "-"`)
		m.ID = ""
	}
	m.command(s)
	m.Env, m.Headers = s.settings("env"), s.settings("headers")
	m.TokenVariable = s.secretVariable("token", "token_env")
	m.KeyVariable = s.secretVariable("api_key", "api_key_env")
	m.KeyHeader = s.text("api_key_header")
	if m.TokenVariable != "" && m.KeyVariable != "" {
		s.r.on(s.n).err("duplicate-key", s.path+" has a token and an api_key", "keep one of the two")
	}
	m.Timeout = s.duration("tool_timeout", s.duration("timeout", 0))
	for _, key := range []string{"type", "transport"} { // url or command say it
		s.find(key)
	}
	s.find("description")
	for _, key := range []string{"oauth", "module"} {
		if f := s.find(key); f != nil {
			s.r.key(f).warn("not-acted-on", s.full(key)+" is not acted on in this version, so the server will be asked without it", "use token: or api_key: with ${NAME}")
		}
	}
	s.closeLoosely()
	return m
}

// command reads how the server is reached.
func (m *MCPServer) command(s *section) {
	if f := s.find("command"); f != nil && f.value.kind == isList {
		for _, part := range s.lines("command") {
			m.Command = append(m.Command, Setting(part))
		}
	} else if text := s.text("command"); text != "" {
		m.Command = []Setting{Setting(text)}
	}
	if n := s.get("args", isList, "write one argument each, beginning with \"- \""); n != nil {
		for _, item := range n.items {
			if item.kind == isList || item.kind == isMapping || item.kind == isNull {
				s.r.mismatch(item, "an argument of "+s.full("args"), isText, "put it in quotes")
				continue
			}
			m.Command = append(m.Command, Setting(item.text))
		}
	}
	m.URL = Setting(s.text("url"))
	switch {
	case m.URL != "" && s.has("command"):
		s.r.on(s.n).err("duplicate-key", s.path+" has command and url", "keep one of the two")
	case m.URL == "" && !s.has("command"):
		if !s.has("url") {
			s.r.on(s.n).err("missing-key", s.path+" has neither url nor command", mcpHint)
		}
	case m.URL != "" && !expansion.MatchString(string(m.URL)):
		at := s.r.on(s.find("url").value)
		u, err := url.Parse(string(m.URL))
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			at.err("bad-value", s.full("url")+" is no http or https address", "write for example http://127.0.0.1:8000/mcp")
		} else if u.User != nil {
			at.err("key-in-file", s.full("url")+" has a user or password in it", keyHint)
		}
	}
}

// either reads the first of two keys that is there.
func (s *section) either(first, second string) string {
	if s.has(first) {
		s.find(second)
		return strings.TrimSpace(s.text(first))
	}
	return strings.TrimSpace(s.text(second))
}

// settings reads a mapping of texts.
func (s *section) settings(key string) map[string]Setting {
	t := s.sub(key)
	if t == nil {
		return nil
	}
	out := map[string]Setting{}
	for i := range t.n.fields {
		f := &t.n.fields[i]
		if f.value.kind == isList || f.value.kind == isMapping || f.value.kind == isNull {
			s.r.mismatch(f.value, t.full(tidy(f.name)), isText, "put it in quotes")
			continue
		}
		out[f.name] = Setting(f.value.text)
	}
	return out
}

// secretVariable reads the name of the variable that holds a secret: ${NAME} under
// one key, or NAME under the other. A secret itself is reported by secrets.
func (s *section) secretVariable(key, nameKey string) string {
	var names []string
	if f := s.find(key); f != nil {
		if m := reference.FindStringSubmatch(f.value.text); m != nil && f.value.kind == isText {
			names = append(names, m[1])
		} else if expansion.MatchString(f.value.text) || f.value.kind != isText {
			s.r.on(f.value).err("bad-value", s.full(key)+" must be ${NAME} and nothing else", "write ${NAME} with the name of an environment variable")
		}
	}
	if name := s.text(nameKey); name != "" {
		if !variable.MatchString(name) || secretLike.MatchString(name) {
			s.r.on(s.find(nameKey).value).err("key-in-file", s.full(nameKey)+" is not the name of an environment variable", "put the secret in an environment variable and write its name here")
		} else {
			names = append(names, name)
		}
	}
	if len(names) > 1 {
		s.r.key(s.find(key)).err("duplicate-key", fmt.Sprintf("%s has %s and %s", s.path, key, nameKey), "keep one of the two")
	}
	if len(names) == 0 {
		return ""
	}
	return names[0]
}
