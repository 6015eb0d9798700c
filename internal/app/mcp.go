package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belay-run/belay/internal/agent"
	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/mcphost"
	"github.com/belay-run/belay/internal/rawjson"
	"github.com/belay-run/belay/internal/turn"
)

const (
	mcpFirst = 10 * time.Second // for a server to say what it offers, when the agent is loaded
	mcpAgain = 30 * time.Second // between two tries to ask one that did not
)

// remote is the MCP servers whose tools an agent's skills import.
type remote struct {
	servers map[string]*remoteServer
	log     *slog.Logger
	stop    context.CancelFunc
	tries   sync.WaitGroup
	changed func() // called when a list of tools is another; set before the first turn
}

type remoteServer struct {
	spec   agent.MCPServer
	server *mcphost.Server
	stale  chan struct{} // holds one: its list is to be asked for
	tools  atomic.Pointer[[]mcphost.Tool]
}

// openRemote opens the servers that skills import tools of and asks each what it
// offers. One that does not answer is asked again until it does; so long its tools
// are not offered.
func openRemote(ctx context.Context, spec *agent.Agent, log *slog.Logger, version string) (*remote, []finding.Finding) {
	r := &remote{servers: map[string]*remoteServer{}, log: log}
	wanted := importedServers(spec)
	var findings []finding.Finding
	for _, m := range spec.MCPServers {
		if !wanted[m.ID] {
			continue
		}
		s := &remoteServer{spec: m, stale: make(chan struct{}, 1)}
		cfg, missing := mcpConfig(m, spec.Dir, os.LookupEnv)
		if len(missing) > 0 {
			findings = append(findings, mcpFinding(m, "mcp-variable", finding.Warning, fmt.Sprintf("MCP server %s needs %s, which is not set", m.ID, strings.Join(missing, ", ")),
				"set the variable before the agent is served; until then the server's tools are not offered"))
			continue
		}
		cfg.Logger, cfg.Version = log, version
		cfg.OnEvent = func(e mcphost.Event) {
			if e.Kind == mcphost.ToolsChanged {
				s.ask()
			}
		}
		var err error
		if s.server, err = mcphost.Open(cfg); err != nil {
			findings = append(findings, mcpFinding(m, "mcp-server", finding.Error, err.Error(), "mend the server's entry"))
			continue
		}
		r.servers[m.ID] = s
	}
	return r, append(findings, r.first(ctx, spec)...)
}

func importedServers(spec *agent.Agent) map[string]bool {
	wanted := map[string]bool{}
	if spec.Skills != nil {
		for _, k := range spec.Skills.Skills {
			for _, i := range k.Imports {
				wanted[i.Server] = true
			}
		}
	}
	return wanted
}

// mcpConfig puts the values of environment variables into a server's settings and
// names those that are not set.
func mcpConfig(m agent.MCPServer, dir string, lookup func(string) (string, bool)) (cfg mcphost.Config, missing []string) {
	expand := func(s agent.Setting) string {
		text, names := s.Expand(lookup)
		missing = append(missing, names...)
		return text
	}
	variable := func(name string) string {
		v, ok := lookup(name)
		if !ok {
			missing = append(missing, name)
		}
		return v
	}
	cfg = mcphost.Config{ID: m.ID, URL: expand(m.URL), StartTimeout: mcpAgain}
	for _, part := range m.Command {
		cfg.Command = append(cfg.Command, expand(part))
	}
	if len(cfg.Command) > 0 {
		cfg.Dir = dir
	}
	cfg.Env, cfg.Headers = map[string]string{}, map[string]string{}
	for name, value := range m.Env {
		cfg.Env[name] = expand(value)
	}
	for name, value := range m.Headers {
		cfg.Headers[name] = expand(value)
	}
	if m.TokenVariable != "" {
		cfg.Headers["Authorization"] = "Bearer " + variable(m.TokenVariable)
	}
	if m.KeyVariable != "" {
		header := m.KeyHeader
		if header == "" {
			header = "X-API-Key"
		}
		cfg.Headers[header] = variable(m.KeyVariable)
	}
	slices.Sort(missing)
	return cfg, slices.Compact(missing)
}

func mcpFinding(m agent.MCPServer, rule string, severity finding.Severity, message, hint string) finding.Finding {
	return finding.Finding{File: m.File, Line: m.Line, Column: m.Column, Rule: rule, Severity: severity, Message: message, Hint: hint}
}

// first asks every server, side by side.
func (r *remote) first(ctx context.Context, spec *agent.Agent) []finding.Finding {
	ctx, cancel := context.WithTimeout(ctx, mcpFirst)
	defer cancel()
	var mu sync.Mutex
	var findings []finding.Finding
	var all sync.WaitGroup
	for _, id := range slices.Sorted(maps.Keys(r.servers)) {
		s := r.servers[id]
		all.Go(func() {
			err := s.list(ctx)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				s.ask()
				findings = append(findings, mcpFinding(s.spec, "mcp-unreachable", finding.Warning, fmt.Sprintf("MCP server %s did not say what tools it has: %v", s.spec.ID, err),
					"see that it runs; until it answers its tools are not offered"))
				return
			}
			findings = append(findings, s.unknown(spec)...)
		})
	}
	all.Wait()
	return findings
}

func (s *remoteServer) ask() {
	select {
	case s.stale <- struct{}{}:
	default:
	}
}

func (s *remoteServer) list(ctx context.Context) error {
	tools, err := s.server.Tools(ctx)
	if err == nil {
		s.tools.Store(&tools)
	}
	return err
}

// unknown finds imports of tools that the server does not have.
func (s *remoteServer) unknown(spec *agent.Agent) []finding.Finding {
	var out []finding.Finding
	for _, k := range spec.Skills.Skills {
		for _, i := range k.Imports {
			has := func(t mcphost.Tool) bool { return t.Name == i.Tool }
			if i.Server != s.spec.ID || slices.ContainsFunc(*s.tools.Load(), has) {
				continue
			}
			out = append(out, finding.Finding{File: k.File, Line: i.Line, Column: i.Column, Rule: "unknown-tool", Severity: finding.Error,
				Message: fmt.Sprintf("MCP server %s has no tool %s", i.Server, i.Tool), Hint: "import one that it has"})
		}
	}
	return out
}

// watch asks servers again whose list is not known, or is another.
func (r *remote) watch() {
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	for _, s := range r.servers {
		r.tries.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case <-s.stale:
				}
				if err := s.list(ctx); err == nil {
					r.changed()
					r.log.Info("an MCP server said what tools it has", "server", s.spec.ID, "tools", len(*s.tools.Load()))
					continue
				} else if ctx.Err() == nil {
					r.log.Warn("an MCP server did not say what tools it has", "server", s.spec.ID, "error", err, "again_in", mcpAgain)
				}
				select {
				case <-ctx.Done():
					return
				case <-time.After(mcpAgain):
					s.ask()
				}
			}
		})
	}
}

// list returns the tools of all servers.
func (r *remote) list() []turn.Tool {
	var out []turn.Tool
	for _, id := range slices.Sorted(maps.Keys(r.servers)) {
		s := r.servers[id]
		known := s.tools.Load()
		if known == nil {
			continue
		}
		for _, t := range *known {
			out = append(out, turn.Tool{Server: id, Timeout: s.spec.Timeout, Tool: chat.Tool{Name: t.Name, Description: t.Description, Parameters: t.InputSchema}})
		}
	}
	return out
}

var mcpOutcomes = map[mcphost.Outcome]turn.ToolOutcome{
	mcphost.OK: turn.ToolOK, mcphost.Error: turn.ToolError, mcphost.Timeout: turn.ToolTimeout, mcphost.Unknown: turn.ToolUnknown, mcphost.Unavailable: turn.ToolUnavailable,
}

// run calls a server's tool. What the server itself says of an error is for the
// model; what this program says of the server is for the log.
func (r *remote) run(ctx context.Context, c turn.ToolCall) turn.ToolAnswer {
	s := r.servers[c.Server]
	if s == nil {
		return turn.ToolAnswer{Outcome: turn.ToolUnavailable}
	}
	a := s.server.Call(ctx, mcphost.CallRequest{Tool: c.Tool, Arguments: c.Arguments, Timeout: c.Timeout})
	out := turn.ToolAnswer{Outcome: mcpOutcomes[a.Outcome], Text: a.Text, Took: a.Took}
	if a.Outcome != mcphost.OK {
		r.log.Warn("a tool of an MCP server failed", "server", c.Server, "tool", c.Tool, "outcome", a.Outcome, "took", a.Took, "waited", a.Waited, "turn", c.Turn)
	}
	if given := a.Given(); rawjson.IsObject(given) {
		out.Text = rawjson.Written(given)
	}
	return out
}

func (r *remote) close(ctx context.Context) error {
	if r.stop != nil {
		r.stop()
	}
	r.tries.Wait()
	var errs []error
	for _, s := range r.servers {
		errs = append(errs, s.server.Close(ctx))
	}
	return errors.Join(errs...)
}
