// Package app is the wiring: it loads an agent folder, starts its Python, opens
// the data folder, and runs turns. It is the only package that knows everybody.
//
// [Check] looks at a folder and reports. [Open] gives an [App] that serves it:
// the CLI and the HTTP server talk to that.
package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/conversation"
	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/loop"
	"github.com/belay-run/belay/internal/server"
	"github.com/belay-run/belay/internal/sqlstore"
	"github.com/belay-run/belay/internal/step"
	"github.com/belay-run/belay/internal/telemetry"
	"github.com/belay-run/belay/internal/turn"
	"github.com/belay-run/belay/internal/vault"
)

// Config says which agent is served, and how.
type Config struct {
	// Dir is the agent's folder.
	Dir string
	// Data is the folder of the records; "" means .belay in Dir.
	Data string
	// KeyFile is the master key's file; "" means belay.key in Data.
	KeyFile string
	// Python is the interpreter; see [pyhost.Config].
	Python string
	// Tenant is whose data it is; "" means "default".
	Tenant string
	// Model, as provider/model or provider/model@base-url, stands in for the one
	// that the agent names.
	Model  string
	Logger *slog.Logger
	// Version is the program's, for traces.
	Version string

	// The rest is for tests and for programs that build on this package.

	// Client stands in for any model.
	Client chat.Model
	// WrapModel, when set, stands around the model.
	WrapModel func(chat.Model) chat.Model
	// Hooks are hooks in Go that stand beside those of the folder.
	Hooks []*hook.Hook
	// Wrap stands around the steps of each turn.
	Wrap func(step.Steps) step.Steps
	// Watch is told of the loop's states.
	Watch func(loop.State)
	Clock func() time.Time
	// Sweeps stands in for the ticker at whose ticks conversations past their
	// time are deleted.
	Sweeps <-chan time.Time
}

// DataFolder returns where the records are.
func (c Config) DataFolder() string {
	if c.Data != "" {
		return c.Data
	}
	return filepath.Join(c.Dir, ".belay")
}

func (c Config) withDefaults() (Config, error) {
	if c.Tenant == "" {
		c.Tenant = "default"
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	return c, nil
}

// FindingsError says that an agent has findings and therefore does not serve.
type FindingsError struct{ Findings []finding.Finding }

func (e *FindingsError) Error() string {
	n, _ := finding.Count(e.Findings)
	if n == 1 {
		return "the agent has an error and does not serve; run belay check"
	}
	return fmt.Sprintf("the agent has %d errors and does not serve; run belay check", n)
}

// App serves one agent.
type App struct {
	cfg     Config
	store   *sqlstore.Store
	desk    turn.Desk
	seen    atomic.Pointer[telemetry.Telemetry] // set before the first turn
	stats   *stats
	secrets secrets
	traces  sync.WaitGroup
	stop    context.CancelFunc

	mu      sync.Mutex
	current *version
	records *recordCache
	deleted deletions
}

var _ server.Service = (*App)(nil)

// Open loads the agent, opens the data folder and is ready for turns. A
// [FindingsError] says what keeps the agent from serving.
func Open(ctx context.Context, cfg Config) (_ *App, err error) {
	if cfg, err = cfg.withDefaults(); err != nil {
		return nil, err
	}
	if err := noAgent(cfg.Dir); err != nil {
		return nil, err
	}
	a := &App{cfg: cfg, records: newRecordCache(1000)}
	a.cfg.Logger = a.secrets.log(cfg.Logger)
	cfg = a.cfg
	if a.store, err = openStore(ctx, cfg); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.store.Close())
		}
	}()
	if err := a.secrets.load(ctx, a.store, cfg.Tenant); err != nil {
		cfg.Logger.Error("secrets of tenants cannot be looked for: traces are withheld, and the log may hold them", "error", err)
	}
	a.stats = newStats(a)
	v, err := a.load(ctx)
	if err != nil {
		return nil, err
	}
	a.current = v
	a.desk.Queue = v.queue
	watching, stop := context.WithCancel(context.Background())
	a.stop = stop
	a.watch(watching)
	a.retain(watching)
	return a, nil
}

func openStore(ctx context.Context, cfg Config) (*sqlstore.Store, error) {
	dir := cfg.DataFolder()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the data folder: %w; name another with --data", err)
	}
	if err := keepFromGit(dir); err != nil {
		return nil, err
	}
	keys, err := vault.Open(dir, cfg.KeyFile)
	if err != nil {
		return nil, err
	}
	return sqlstore.Open(ctx, dir, sqlstore.Options{Vault: keys, Logger: cfg.Logger, Clock: cfg.Clock})
}

// keepFromGit puts a .gitignore for everything into the data folder: records and
// the master key do not belong into a repository.
func keepFromGit(dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, ".gitignore"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err == nil {
		_, err = f.WriteString("*\n")
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return fmt.Errorf("write into the data folder: %w; name another with --data", err)
	}
	return nil
}

// watch keeps the engine's switches as the store has them, and brings back those
// whose time is over.
func (a *App) watch(ctx context.Context) {
	v := a.current
	a.applySwitches(ctx, v)
	a.traces.Go(func() {
		tick := time.NewTicker(500 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				a.mu.Lock()
				v := a.current
				a.mu.Unlock()
				a.applySwitches(ctx, v)
			}
		}
	})
}

// Reload loads the folder again and serves it from the next turn on. Turns under
// way end with what they began with. On an error the old version goes on.
func (a *App) Reload(ctx context.Context) error {
	v, err := a.load(ctx)
	if err != nil {
		return err
	}
	a.applySwitches(ctx, v)
	a.mu.Lock()
	old := a.current
	a.current = v
	a.mu.Unlock()
	a.traces.Go(func() { old.close(context.Background()) })
	return nil
}

// take returns the version that serves now; the caller must give it back.
func (a *App) take() *version {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.current.users.Add(1)
	return a.current
}

// Metrics serves the metrics in Prometheus's form.
func (a *App) Metrics() http.Handler { return a.seen.Load().Handler() }

// AgentID returns the agent's id.
func (a *App) AgentID() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.current.turn.ID
}

func (a *App) id(sender string) conversation.ID {
	return conversation.ID{Tenant: a.cfg.Tenant, Agent: a.AgentID(), Sender: sender}
}

// Talk runs one turn.
func (a *App) Talk(ctx context.Context, in server.Inbound, out turn.Out) (report turn.Report, err error) {
	err = a.desk.Run(ctx, in.Sender, in.Interrupt, func(ctx context.Context) error {
		v := a.take()
		defer v.users.Done()
		rec, err := a.open(ctx, in.Sender)
		if err != nil {
			return err
		}
		report, err = v.turn.Run(ctx, rec, in.Message, out, turn.Options{Live: in.Live, Wrap: a.cfg.Wrap, Watch: a.cfg.Watch})
		if err != nil {
			a.records.drop(in.Sender) // what is in memory is not what is on disk
		} else {
			a.records.put(in.Sender, rec)
		}
		a.keepTrace(ctx, report)
		return err
	})
	return report, err
}

// open gives the conversation's record, from memory when it is there.
func (a *App) open(ctx context.Context, sender string) (*conversation.Record, error) {
	if rec := a.records.get(sender); rec != nil {
		return rec, nil
	}
	return conversation.Open(ctx, a.store, a.id(sender))
}

// Events returns the events of a conversation, nil when there is none.
func (a *App) Events(ctx context.Context, sender string) ([]conversation.Event, error) {
	return a.store.Load(ctx, a.id(sender))
}

// Traces returns the trace of a conversation, or of one of its turns, without the
// tenant's secrets. [sqlstore.ErrFingerprints].
func (a *App) Traces(ctx context.Context, sender, turnID string) ([]conversation.Trace, error) {
	if err := a.store.Flush(ctx); err != nil {
		return nil, err
	}
	lines, err := a.store.Traces(ctx, a.id(sender), turnID)
	if err != nil {
		return nil, err
	}
	return a.secrets.traces(lines)
}

// Delete drops a conversation for good, once its turns have ended.
func (a *App) Delete(ctx context.Context, sender string) (there bool, err error) {
	err = a.desk.Run(ctx, sender, false, func(ctx context.Context) error {
		there, err = a.drop(ctx, a.id(sender))
		return err
	})
	return there, err
}

// drop drops a conversation, whose place at the desk the caller has.
func (a *App) drop(ctx context.Context, id conversation.ID) (bool, error) {
	a.records.drop(id.Sender)
	a.deleted.add(id.Sender, newID())
	return a.store.Delete(ctx, id)
}

// Health says how the service is.
func (a *App) Health(context.Context) server.Health {
	v := a.take()
	defer v.users.Done()
	return server.Health{OK: true, Agent: v.turn.ID, Model: v.turn.Model.Name(), Scripted: v.scripted}
}

// Hooks returns the hooks that serve now.
func (a *App) Hooks() []*hook.Hook {
	v := a.take()
	defer v.users.Done()
	return v.turn.Hooks.Hooks()
}

// Tools returns the tools that serve now.
func (a *App) Tools() []turn.Tool {
	v := a.take()
	defer v.users.Done()
	return v.turn.Tools.List()
}

// Close takes no more turns, lets those under way end until ctx does, then
// cancels them, and lets go of everything.
func (a *App) Close(ctx context.Context) error {
	a.desk.Close(ctx)
	a.stop()
	a.mu.Lock()
	v := a.current
	a.mu.Unlock()
	v.close(context.WithoutCancel(ctx))
	a.traces.Wait()
	a.stats.flush()
	return errors.Join(a.store.Close(), a.seen.Load().Shutdown(context.WithoutCancel(ctx)))
}

// newID returns a new id that sorts by time.
func newID() string { return ulid.Make().String() }

// WaitObservers waits until every observer that was handed a payload has ended.
func (a *App) WaitObservers() {
	v := a.take()
	defer v.users.Done()
	v.turn.Hooks.Wait()
}
