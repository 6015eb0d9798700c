package station

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/belay-run/belay/internal/agentjob"
	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/job"
	"github.com/belay-run/belay/internal/plugin"
	"github.com/belay-run/belay/internal/policy"
	"github.com/belay-run/belay/internal/secret"
	"github.com/belay-run/belay/internal/sqlstore"
	"github.com/belay-run/belay/internal/yamlfile"
)

// Workbench is one plugin as it lies in its folder, with its servers: no snapshot, no
// tenant, no data folder. The plugin is checked and tested on it, by the same
// handlers that jobs have.
type Workbench struct {
	manifest *plugin.Manifest
	tenant   string
	handlers *handlers
	models   *benchModels // nil when no tool asks models
}

// WorkbenchConfig is what a workbench is made of. Journal, Model and NewID are for
// jobs alone.
type WorkbenchConfig struct {
	Manifest *plugin.Manifest
	Journal  job.Journal // of the jobs that run on it
	Model    func(context.Context, job.ID) (chat.Model, error)
	NewID    func() string // of tool calls
	Version  string
	Logger   *slog.Logger
	// Station, when it is set, is where the servers get the secrets of Tenant from.
	Station *Station
	Tenant  string
}

// NewWorkbench makes a workbench. Servers start when they are first asked.
func NewWorkbench(c WorkbenchConfig) *Workbench {
	servers := newServers("", c.Version, c.Logger)
	servers.loose = c.Manifest
	if c.Station != nil {
		servers.secrets = c.Station.store
	}
	s := &Station{cfg: Config{Logger: c.Logger, Version: c.Version}, journal: c.Journal, servers: servers}
	s.folders = &folders{station: s, open: map[agentjob.Folder]*openFolder{}}
	w := &Workbench{manifest: c.Manifest, tenant: c.Tenant, handlers: &handlers{servers: servers, folders: s.folders, model: c.Model, newID: c.NewID, log: c.Logger,
		scanners: &scanners{of: map[string]tenantScanner{}}}}
	if w.models = openBenchModels(c.Manifest, w.handlers.scanners, c.Logger); w.models != nil {
		servers.models = w.models
	}
	return w
}

// Know makes secrets of a tenant known, by their names: hooks that ask for it are told
// where they are. They last as long as the workbench.
func (w *Workbench) Know(tenant string, values map[string]string) error {
	from := make([]byte, 32)
	_, _ = rand.Read(from) // never fails
	key, err := secret.NewKey(from)
	if err != nil {
		return err
	}
	var entries []secret.Entry
	for _, name := range slices.Sorted(maps.Keys(values)) {
		prints, err := key.Prints([]byte(values[name]))
		if err != nil {
			return fmt.Errorf("secret %s: %w", name, err)
		}
		entries = append(entries, secret.Entry{Name: name, Prints: prints})
	}
	s := w.handlers.scanners
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of[tenant] = tenantScanner{Scanner: secret.NewScanner(key, entries)}
	return nil
}

// Handlers carry out what jobs ask for.
func (w *Workbench) Handlers() job.Handlers { return w.handlers.all() }

// Pinned gives what jobs are pinned to.
func (w *Workbench) Pinned() agentjob.Pinned {
	return agentjob.Pinned{Addition: func(agentjob.Addition) (*policy.Policy, error) { return w.manifest.Policy, nil }}
}

// Pin adds the plugin's tools, hooks and policy to a job.
func (w *Workbench) Pin(spec *agentjob.Spec) {
	pin(spec, Installed{Plugin: sqlstore.Plugin{Name: w.manifest.Name}, Manifest: w.manifest})
}

// Agent makes a job that of an agent of the plugin.
func (w *Workbench) Agent(spec *agentjob.Spec, a *plugin.Agent) {
	spec.Agent = agentjob.Agent{Name: a.ID, Plugin: w.manifest.Name, Instructions: a.Instructions, Alias: a.Model, Tools: slices.Clone(a.Tools),
		Limits: agentjob.Limits{Iterations: a.Limits.Iterations, ToolCalls: a.Limits.ToolCalls, Work: a.Limits.WallTime}}
	if a.Folder == "" {
		return
	}
	spec.Agent.Folder = &agentjob.Folder{Plugin: w.manifest.Name, Path: a.Folder}
	spec.Tools = append(spec.Tools, agentjob.Tool{ID: a.ID, Plugin: w.manifest.Name, Folder: a.Folder})
	spec.Agent.Tools = append(spec.Agent.Tools, a.ID+".*")
}

// Functions asks the server of a tool what it offers.
func (w *Workbench) Functions(ctx context.Context, tool string) ([]plugin.Function, error) {
	server, err := w.handlers.servers.get(ctx, w.tenant, agentjob.Tool{ID: tool, Plugin: w.manifest.Name})
	if err != nil {
		return nil, err
	}
	listed, err := server.Tools(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]plugin.Function, 0, len(listed))
	for _, f := range listed {
		out = append(out, plugin.Function{Name: f.Name, Annotations: policy.Annotations(f.Annotations), InputSchema: f.InputSchema})
	}
	return out, nil
}

// Lint asks the plugin's servers what they offer, side by side, and checks the manifest
// against that. A server that does not start is a finding. It finds nothing that
// [plugin.Read] finds.
func (w *Workbench) Lint(ctx context.Context) []finding.Finding {
	m := w.manifest
	listed := make([][]plugin.Function, len(m.Tools))
	errs := make([]error, len(m.Tools))
	var all sync.WaitGroup
	for i := range m.Tools {
		if t := &m.Tools[i]; t.Remote() || len(t.Command) > 0 { // else there is a finding about it
			all.Go(func() { listed[i], errs[i] = w.Functions(ctx, t.ID) })
		}
	}
	all.Wait()
	var findings []finding.Finding
	functions := map[string][]plugin.Function{}
	for i := range m.Tools {
		t := &m.Tools[i]
		switch {
		case errs[i] != nil:
			yamlfile.NewReader(t.File, &findings).At(t.Line, t.Column).Err("mcp-unreachable", "the server of "+t.ID+" cannot be asked what it offers: "+errs[i].Error(), startHint(t, errs[i]))
		case t.Remote() || len(t.Command) > 0:
			functions[t.ID] = listed[i]
		}
	}
	return finding.Clean(findings, plugin.Lint(m, functions))
}

func startHint(t *plugin.Tool, failed error) string {
	if t.Remote() {
		return "check that something answers there"
	}
	if missing := (*missingVariable)(nil); errors.As(failed, &missing) && missing.tenant == "" {
		return "set it for this command: any value will do to check and test a plugin"
	}
	if hint := mend(t, failed); hint != "" {
		return hint
	}
	return "run its command in the plugin's folder to see what it says: it gets PATH, HOME, LANG, TMPDIR and the variables that env names"
}

// Close ends the plugin's servers.
func (w *Workbench) Close(ctx context.Context) error {
	return errors.Join(w.handlers.servers.close(ctx), w.handlers.folders.close(ctx), w.models.close(ctx))
}
