package station

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/belay-run/belay/internal/agentjob"
	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/mcphost"
	"github.com/belay-run/belay/internal/plugin"
	"github.com/belay-run/belay/internal/sqlstore"
)

// servers are the MCP servers of the plugins' snapshots. Each is started when it is
// first needed and serves every job that pinned its snapshot. One that gets secrets
// is its tenant's alone, and another one starts when they are rotated.
type servers struct {
	root    string // where the snapshots are, by digest
	version string
	log     *slog.Logger
	limit   time.Duration    // for a server to become ready; 0 for the usual
	loose   *plugin.Manifest // a plugin that is no snapshot, in place of all of them; nil for none

	secrets values    // nil for none
	plugins installed // nil when there are no tenants

	models modelKeys // nil where no tool is given a key for models

	mu      sync.Mutex
	open    map[serverKey]*mcphost.Server
	known   map[agentjob.Tool]traits
	retired []*mcphost.Server // with values from before; calls may be under way
	closed  bool

	there    map[[2]string]bool // tenant and plugin: it is installed. Calls need not ask the store
	removals int                // how many plugins were removed
}

// traits are what a snapshot says of a tool, kept since snapshots do not change.
type traits struct {
	env     []string // the variables that it reads
	purpose string   // why it asks models; "" when it does not
	other   bool     // its manifest is of the other name
}

// values gives the secrets of tenants. [sqlstore.ErrNoSecret].
type values interface {
	SecretValue(ctx context.Context, tenant, name string) (value string, version int64, err error)
}

// installed gives the plugins of tenants. [sqlstore.ErrNoPlugin].
type installed interface {
	Plugin(ctx context.Context, tenant, name string) (sqlstore.Plugin, error)
}

// removed is an error when a tenant has the plugin of a tool no more: then nothing
// of it is asked or run, also for jobs that pinned it.
func (s *servers) removed(ctx context.Context, tenant string, t agentjob.Tool) error {
	if s.plugins == nil {
		return nil
	}
	key := [2]string{tenant, t.Plugin}
	s.mu.Lock()
	there, removals := s.there[key], s.removals
	s.mu.Unlock()
	if there {
		return nil
	}
	_, err := s.plugins.Plugin(ctx, tenant, t.Plugin)
	if errors.Is(err, sqlstore.ErrNoPlugin) {
		return fmt.Errorf("its plugin %s was removed", t.Plugin)
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.removals == removals { // none while we looked
		s.there[key] = true
	}
	return nil
}

// forget drops what is known of which plugins are there: one was removed.
func (s *servers) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removals++
	clear(s.there)
}

// serverKey tells servers apart. tenant and given are set when it gets secrets: whose,
// and which versions.
type serverKey struct {
	agentjob.Tool
	tenant, given string
}

func newServers(root, version string, log *slog.Logger) *servers {
	return &servers{root: root, version: version, log: log, open: map[serverKey]*mcphost.Server{}, known: map[agentjob.Tool]traits{}, there: map[[2]string]bool{}}
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

// get gives the server of a tool for a tenant.
func (s *servers) get(ctx context.Context, tenant string, t agentjob.Tool) (*mcphost.Server, error) {
	if err := s.removed(ctx, tenant, t); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errors.New("the station is stopping")
	}
	is, m, err := s.traits(t)
	if err != nil {
		return nil, err
	}
	given, key, err := s.given(ctx, tenant, t, is.env)
	if err != nil {
		return nil, err
	}
	if server := s.open[key]; server != nil {
		return server, nil
	}
	if m == nil {
		if m, err = s.manifest(t); err != nil {
			return nil, err
		}
	}
	cfg, err := serverConfig(m.Dir, m.Tool(t.ID), given)
	if err != nil {
		if missing := (*missingVariable)(nil); errors.As(err, &missing) {
			missing.tenant = tenant
		}
		return nil, err
	}
	if is.purpose != "" {
		maps.Copy(cfg.Env, addresses(s.models))
	}
	cfg.ID, cfg.Logger, cfg.Version, cfg.MaxMessage, cfg.StartTimeout = t.ID, s.log.With("plugin", t.Plugin), s.version, maxMessage, s.limit
	server, err := mcphost.Open(cfg)
	if err != nil {
		return nil, err
	}
	for k, old := range s.open {
		if k.Tool == key.Tool && k.tenant == key.tenant {
			s.retired = append(s.retired, old)
			delete(s.open, k)
		}
	}
	s.open[key] = server
	return server, nil
}

// traits gives what is known of a tool, and the manifest when it was read for that.
// Its caller holds mu.
func (s *servers) traits(t agentjob.Tool) (traits, *plugin.Manifest, error) {
	if is, known := s.known[t]; known {
		return is, nil, nil
	}
	m, err := s.manifest(t)
	if err != nil {
		return traits{}, nil, err
	}
	tool := m.Tool(t.ID)
	if tool == nil {
		return traits{}, nil, fmt.Errorf("plugin %s has no tool %s", t.Plugin, t.ID)
	}
	is := traits{env: tool.Env, purpose: tool.ModelPurpose, other: m.File == plugin.OtherFile}
	s.known[t] = is
	return is, m, nil
}

// about is traits for those who do not hold mu.
func (s *servers) about(t agentjob.Tool) (traits, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	is, _, err := s.traits(t)
	return is, err
}

// maxMessage leaves room for 16 MiB of text, twice as servers give it.
const maxMessage = 48 << 20

// given are the secrets of a tenant among the variables that a tool reads.
func (s *servers) given(ctx context.Context, tenant string, t agentjob.Tool, reads []string) (map[string]string, serverKey, error) {
	key := serverKey{Tool: t}
	if s.secrets == nil {
		return nil, key, nil
	}
	given := map[string]string{}
	for _, name := range reads {
		value, version, err := s.secrets.SecretValue(ctx, tenant, name)
		if errors.Is(err, sqlstore.ErrNoSecret) {
			continue
		}
		if err != nil {
			return nil, key, fmt.Errorf("tool %s: %w", t.ID, err)
		}
		given[name] = value
		key.tenant = tenant
		key.given += fmt.Sprintf("%s=%d ", name, version)
	}
	return given, key, nil
}

// serverConfig is how a plugin's tool is reached. Its program gets the variables
// that the manifest names and no others: secrets of its tenant before what the
// environment has.
func serverConfig(dir string, t *plugin.Tool, given map[string]string) (mcphost.Config, error) {
	if t.Remote() {
		return mcphost.Config{URL: t.URL}, nil
	}
	cfg := mcphost.Config{Command: append([]string(nil), t.Command...), Dir: dir, Env: map[string]string{}}
	for _, name := range t.Env {
		v, ok := given[name]
		if !ok {
			v, ok = os.LookupEnv(name)
		}
		if !ok {
			return cfg, &missingVariable{tool: t.ID, name: name}
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

// missingVariable is a variable of a tool that nobody gives.
type missingVariable struct{ tool, name, tenant string }

func (m *missingVariable) Error() string {
	if m.tenant == "" {
		return fmt.Sprintf("tool %s needs the variable %s, which is not set", m.tool, m.name)
	}
	return fmt.Sprintf("tool %s needs %s, which is neither a secret of the tenant nor set in the environment; set it with belay secret set %s --tenant %s", m.tool, m.name, m.name, m.tenant)
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
	open := append(slices.Collect(maps.Values(s.open)), s.retired...)
	s.open, s.retired, s.closed = nil, nil, true
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
