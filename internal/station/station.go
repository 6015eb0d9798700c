package station

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/belay-run/belay/internal/agentjob"
	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/config"
	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/gateway"
	"github.com/belay-run/belay/internal/job"
	"github.com/belay-run/belay/internal/localjob"
	"github.com/belay-run/belay/internal/plugin"
	"github.com/belay-run/belay/internal/policy"
	"github.com/belay-run/belay/internal/secret"
	"github.com/belay-run/belay/internal/spend"
	"github.com/belay-run/belay/internal/sqlstore"
	"github.com/belay-run/belay/internal/vault"
)

// Config says which data folder a station owns, and how.
type Config struct {
	Data    string // the folder
	KeyFile string // the master key's file; "" for the one in Data
	// Model, as provider/model or provider/model@base-url, stands in for every
	// model that agents name.
	Model   string
	Version string
	Logger  *slog.Logger
	// Idle leaves jobs alone: they can be looked at, started and decided about, and
	// go on with the next owner that is not idle.
	Idle bool

	// The rest is for tests and for programs that build on this package.

	Client chat.Model // stands in for any model
	Clock  func() time.Time
	// StartLimit is how long an MCP server may take to become ready; 0 for 30 s.
	StartLimit time.Duration
	// ToolLimit is how long a call of a tool may take; 0 for five minutes.
	ToolLimit time.Duration
	// Kept is told of what jobs have written.
	Kept func(job.ID, []job.Record)
}

// Station owns a data folder and runs its jobs.
type Station struct {
	cfg      Config
	changes  changes
	askers   askers
	settings *config.Config
	store    *sqlstore.Store
	journal  job.Journal
	flows    job.Flows
	engine   *localjob.Engine
	servers  *servers
	folders  *folders
	models   *models
	ledger   *spend.Ledger
	scanners *scanners
	grants   grants
	gateway  *gateway.Gateway // nil when the station is idle or it cannot listen
	teller   *teller          // nil when the station is idle

	backups  sync.Mutex     // held while one is made
	pinning  sync.RWMutex   // read-held while a job is pinned and made
	sweeping sync.WaitGroup // of processes that nobody needs any more

	mu        sync.Mutex
	manifests map[string]*plugin.Manifest // by the snapshot's digest
}

// FindingsError says what is wrong with files.
type FindingsError struct {
	What     string
	Findings []finding.Finding
}

func (e *FindingsError) Error() string {
	n, _ := finding.Count(e.Findings)
	if n == 1 {
		return e.What + " has an error"
	}
	return fmt.Sprintf("%s has %d errors", e.What, n)
}

// Open takes a data folder and goes on with its jobs. A second owner is refused
// with the first one's process.
func Open(ctx context.Context, cfg Config) (_ *Station, err error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	if err := os.MkdirAll(filepath.Join(cfg.Data, "plugins"), 0o700); err != nil {
		return nil, fmt.Errorf("make the data folder: %w; name another with --data", err)
	}
	look := &scanners{clock: cfg.Clock, of: map[string]tenantScanner{}}
	cfg.Logger = slog.New(secret.Handler(cfg.Logger.Handler(), look.now))
	s := &Station{cfg: cfg, scanners: look, manifests: map[string]*plugin.Manifest{}}
	keys, err := vault.Open(cfg.Data, cfg.KeyFile)
	if err != nil {
		return nil, err
	}
	if s.store, err = sqlstore.Open(ctx, cfg.Data, sqlstore.Options{Vault: keys, Logger: cfg.Logger, Clock: cfg.Clock}); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.closeAll(ctx), s.store.Close())
		}
	}()
	// Not before the folder is this process's: who finds that another one has it talks to
	// that one, whatever is being written into the settings meanwhile.
	var findings []finding.Finding
	if s.settings, findings = config.Read(filepath.Join(cfg.Data, config.File)); finding.HasErrors(findings) {
		return nil, &FindingsError{config.File, findings}
	}
	look.store = s.store
	if err := look.load(ctx); err != nil {
		cfg.Logger.Error("secrets of tenants cannot be looked for: hooks that are to be told where they are fail", "error", err)
	}
	return s, s.begin(ctx)
}

// begin gets ready what jobs need, and goes on with them.
func (s *Station) begin(ctx context.Context) (err error) {
	s.journal = s.store.Jobs()
	s.models = &models{station: s, open: map[opening]chat.Model{}}
	s.folders = &folders{station: s, open: map[agentjob.Folder]*openFolder{}}
	s.servers = newServers(filepath.Join(s.cfg.Data, "plugins"), s.cfg.Version, s.cfg.Logger)
	s.servers.secrets, s.servers.plugins = s.store, s.store
	s.servers.limit = s.cfg.StartLimit
	if s.ledger, err = s.newLedger(ctx); err != nil {
		return err
	}
	if !s.cfg.Idle {
		if s.gateway, err = s.openGateway(); err != nil {
			return err
		}
	}
	if s.gateway != nil {
		s.servers.models = s.gateway
	}
	s.flows = job.NewFlows(agentjob.New(agentjob.Pinned{Addition: s.addition}))
	charges := newSpending(s)
	h := &handlers{servers: s.servers, folders: s.folders, scanners: s.scanners, model: s.models.of, recorded: s.ledger.Flush, spending: charges, newID: newID, log: s.cfg.Logger}
	var journal job.Journal = forgetting{s.journal, charges.forget}
	if s.cfg.Idle {
		journal = idle{journal}
	} else {
		s.teller = newTeller(s)
	}
	s.engine, err = localjob.Start(localjob.Options{Journal: journal, Flows: s.flows, Handlers: h.all(), Clock: s.cfg.Clock, Logger: s.cfg.Logger, Kept: s.kept})
	if err == nil {
		s.teller.start()
	}
	return err
}

// kept hears what jobs have written.
func (s *Station) kept(id job.ID, records []job.Record) {
	changed := false
	for _, r := range records {
		if r.What == job.Asked {
			s.askers.remember(id, r.Key)
		}
		changed = changed || r.What == job.Asked || r.What == job.Decided
	}
	if changed {
		s.changes.tell(id.Tenant)
	}
	s.teller.kept(id, records)
	if s.cfg.Kept != nil {
		s.cfg.Kept(id, s.scanners.maskHistory(context.Background(), job.History{Job: job.Job{Order: job.Order{ID: id}}, Records: records}).Records)
	}
}

// addition is the policy of a plugin's snapshot.
func (s *Station) addition(a agentjob.Addition) (*policy.Policy, error) {
	m, err := s.manifest(a.Digest)
	if err != nil {
		return nil, err
	}
	return m.Policy, nil
}

// Close lets running steps end and lets go of everything. Jobs that wait go on
// with the next owner.
func (s *Station) Close(ctx context.Context) error {
	defer s.sweeping.Wait() // it is bounded
	return errors.Join(s.engine.Close(ctx), s.teller.close(ctx), s.closeAll(ctx), s.store.Close())
}

// closeAll lets go of what jobs needed.
func (s *Station) closeAll(ctx context.Context) error {
	var errs []error
	if s.servers != nil {
		errs = append(errs, s.folders.close(ctx), s.servers.close(ctx))
	}
	if s.gateway != nil {
		errs = append(errs, s.gateway.Close(ctx))
	}
	if s.models != nil {
		errs = append(errs, s.models.close())
	}
	if s.ledger != nil {
		errs = append(errs, s.ledger.Close(ctx))
	}
	return errors.Join(errs...)
}

func newID() string { return ulid.Make().String() }
