package station

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/belay-run/belay/internal/agentjob"
	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/mcphost"
	"github.com/belay-run/belay/internal/plugin"
)

// servers are the MCP servers of the plugins' snapshots. Each is started when it is
// first needed and serves every job that pinned its snapshot.
type servers struct {
	root    string // where the snapshots are, by digest
	version string
	log     *slog.Logger
	limit   time.Duration    // for a server to become ready; 0 for the usual
	loose   *plugin.Manifest // a plugin that is no snapshot, in place of all of them; nil for none

	mu     sync.Mutex
	open   map[agentjob.Tool]*mcphost.Server
	closed bool
}

func newServers(root, version string, log *slog.Logger) *servers {
	return &servers{root: root, version: version, log: log, open: map[agentjob.Tool]*mcphost.Server{}}
}

// snapshotName is the folder of a snapshot: digests have a colon, paths should not.
func snapshotName(digest string) string { return strings.ReplaceAll(digest, ":", "-") }

func (s *servers) dir(digest string) string {
	if s.loose != nil {
		return s.loose.Dir
	}
	return filepath.Join(s.root, snapshotName(digest))
}

// manifest reads what a snapshot brings.
func (s *servers) manifest(t agentjob.Tool) (*plugin.Manifest, error) {
	if s.loose != nil {
		return s.loose, nil
	}
	m, findings := plugin.Read(s.dir(t.Digest))
	if finding.HasErrors(findings) {
		return nil, fmt.Errorf("the snapshot of plugin %s is not there or cannot be read", t.Plugin)
	}
	return m, nil
}

// get gives the server of a tool.
func (s *servers) get(t agentjob.Tool) (*mcphost.Server, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errors.New("the station is stopping")
	}
	if server := s.open[t]; server != nil {
		return server, nil
	}
	m, err := s.manifest(t)
	if err != nil {
		return nil, err
	}
	tool := m.Tool(t.ID)
	if tool == nil {
		return nil, fmt.Errorf("plugin %s has no tool %s", t.Plugin, t.ID)
	}
	cfg, err := serverConfig(m.Dir, tool)
	if err != nil {
		return nil, err
	}
	cfg.ID, cfg.Logger, cfg.Version, cfg.StartTimeout = t.ID, s.log.With("plugin", t.Plugin), s.version, s.limit
	server, err := mcphost.Open(cfg)
	if err == nil {
		s.open[t] = server
	}
	return server, err
}

// serverConfig is how a plugin's tool is reached. Its program gets the variables
// that the manifest names and no others.
func serverConfig(dir string, t *plugin.Tool) (mcphost.Config, error) {
	if t.Remote() {
		return mcphost.Config{URL: t.URL}, nil
	}
	cfg := mcphost.Config{Command: append([]string(nil), t.Command...), Dir: dir, Env: map[string]string{}}
	for _, name := range t.Env {
		v, ok := os.LookupEnv(name)
		if !ok {
			return cfg, fmt.Errorf("tool %s needs the environment variable %s, which is not set", t.ID, name)
		}
		cfg.Env[name] = v
	}
	if program := cfg.Command[0]; program == "python" || program == "python3" {
		cfg.Command[0] = interpreter(program)
		if len(cfg.Command) > 2 && cfg.Command[1] == "-m" {
			cfg.Command = append([]string{cfg.Command[0], "-c", serveModule}, cfg.Command[2:]...)
		}
		if _, own := cfg.Env["PYTHONPATH"]; !own { // the layouts in which plugins are written
			cfg.Env["PYTHONPATH"] = filepath.Join(dir, "src") + string(os.PathListSeparator) + dir
		}
	}
	return cfg, nil
}

// serveModule runs a module, and the server that it makes when it does not do so
// itself.
//
//go:embed serve.py
var serveModule string

// interpreter is the Python that runs plugins: BELAY_PYTHON, else the one on the
// path.
func interpreter(name string) string {
	if p := os.Getenv("BELAY_PYTHON"); p != "" {
		return p
	}
	for _, candidate := range []string{name, "python3", "python"} {
		if p, err := exec.LookPath(candidate); err == nil {
			return p
		}
	}
	return name
}

func (s *servers) close(ctx context.Context) error {
	s.mu.Lock()
	open := s.open
	s.open, s.closed = nil, true
	s.mu.Unlock()
	var all sync.WaitGroup
	errs := make([]error, 0, len(open))
	var mu sync.Mutex
	for _, server := range open {
		all.Go(func() {
			err := server.Close(ctx)
			mu.Lock()
			errs = append(errs, err)
			mu.Unlock()
		})
	}
	all.Wait()
	return errors.Join(errs...)
}
