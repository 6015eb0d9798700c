package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belay-run/belay/internal/conversation"
	"github.com/belay-run/belay/internal/sqlstore/rows"
	"github.com/belay-run/belay/internal/vault"
)

// Options are what a store needs. The zero value of a field is what its comment
// says.
type Options struct {
	// Vault opens the conversations. Attach does without: then hooks can be read
	// and switched, conversations listed but not read.
	Vault *vault.Vault
	// Logger takes what goes wrong beside a call, never texts. Nil: nothing is logged.
	Logger *slog.Logger
	// Clock is the time. Nil: time.Now.
	Clock func() time.Time

	cached    int                     // conversations whose keys are kept open; 0: cached
	committed func(writes, lines int) // called after each commit
}

// Store keeps conversations in the SQLite file of a data folder. It may be used
// from many goroutines.
type Store struct {
	dir    string
	path   string
	log    *slog.Logger
	clock  func() time.Time
	owner  *os.File // the lock; nil when attached
	keys   *keyring
	reads  *sql.DB
	reader *rows.Queries
	writes *sql.DB // nil when attached
	writer *writer // nil when attached

	jobs     *Jobs
	traceSeq atomic.Int64 // of the newest trace line handed over
	closing  sync.Once
	closed   error
}

var _ conversation.Store = (*Store)(nil)

func newStore(dir string, o Options) *Store {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.cached == 0 {
		o.cached = cached
	}
	s := &Store{
		dir: dir, path: filepath.Join(dir, database),
		log: o.Logger, clock: o.Clock, keys: newKeyring(o.Vault, o.cached),
	}
	s.jobs = newJobs(s, o.cached)
	return s
}

// Open opens the store of a data folder and owns the folder until Close; both
// are made if they are not there. Another owner gives [ErrInUse], a newer schema
// [ErrSchema], another master key [vault.ErrWrongKey], a file that is no
// database [ErrDamaged].
func Open(ctx context.Context, dir string, o Options) (_ *Store, err error) {
	if o.Vault == nil {
		return nil, errNoVault
	}
	s := newStore(dir, o)
	defer func() {
		if err != nil {
			err = errors.Join(explain(s.path, err), s.shut())
		}
	}()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the data folder: %w", err)
	}
	if s.owner, err = lock(dir); err != nil {
		return nil, err
	}
	if err := makeFile(s.path); err != nil {
		return nil, err
	}
	syncCheaply()
	if s.writes, err = connect(dir, ownerPragmas); err != nil {
		return nil, err
	}
	s.writes.SetMaxOpenConns(1)
	if err := migrate(ctx, s.writes, s.path); err != nil {
		return nil, err
	}
	if err := matchKey(ctx, s.writes, o.Vault, s.path, true); err != nil {
		return nil, err
	}
	if err := s.openReads(ctx); err != nil {
		return nil, err
	}
	newest, err := s.reader.GetLastTraceSeq(ctx)
	if err != nil {
		return nil, fmt.Errorf("find the newest trace line: %w", err)
	}
	s.traceSeq.Store(newest)
	first, err := newSession(ctx, s.writes)
	if err != nil {
		return nil, err
	}
	if err := first.q.VoidLeases(ctx); err != nil { // whoever had them no longer owns the folder
		return nil, errors.Join(fmt.Errorf("take the jobs over: %w", err), first.close())
	}
	s.writes.SetMaxIdleConns(-1) // from now on a session that ends takes its connection with it
	s.writer = &writer{
		open:    func(ctx context.Context) (*session, error) { return newSession(ctx, s.writes) },
		explain: func(err error) error { return explain(s.path, err) },
		keys:    s.keys, log: s.log, clock: s.clock, committed: o.committed,
	}
	s.writer.start(first)
	return s, nil
}

// Exists gives an error when the folder has no database, [fs.ErrNotExist] when
// nothing was stored there yet.
func Exists(dir string) error {
	_, err := os.Stat(filepath.Join(dir, database))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("open the database: %w; nothing was stored here yet, or the data folder is another", err)
	}
	if err != nil {
		return fmt.Errorf("open the database: %w", err)
	}
	return nil
}

// Attach opens the store of a data folder beside its owner, if there is one: to
// read, and to set hook switches. It makes nothing: a folder without a database
// gives [fs.ErrNotExist].
func Attach(ctx context.Context, dir string, o Options) (_ *Store, err error) {
	s := newStore(dir, o)
	defer func() {
		if err != nil {
			err = errors.Join(explain(s.path, err), s.shut())
		}
	}()
	if err := Exists(dir); err != nil {
		return nil, err
	}
	if err := s.openReads(ctx); err != nil {
		return nil, err
	}
	if err := requireCurrent(ctx, s.reads, s.path); err != nil {
		return nil, err
	}
	if o.Vault != nil {
		if err := matchKey(ctx, s.reads, o.Vault, s.path, false); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// makeFile makes an empty database that only its owner may read; SQLite gives
// the files beside it the same mode.
func makeFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("make the database: %w", err)
	}
	return f.Close()
}

func (s *Store) openReads(ctx context.Context) (err error) {
	if s.reads, err = connect(s.dir, readerPragmas); err != nil {
		return err
	}
	s.reads.SetMaxOpenConns(4)
	s.reads.SetMaxIdleConns(2)
	s.reads.SetConnMaxIdleTime(time.Minute)
	if err := s.reads.PingContext(ctx); err != nil {
		return fmt.Errorf("open the database: %w", err)
	}
	s.reader = rows.New(s.reads)
	return nil
}

// Close writes what waits and gives the folder back. The error says what could
// not be written.
func (s *Store) Close() error {
	s.closing.Do(func() {
		if s.writer != nil {
			s.closed = s.writer.close()
		}
		s.closed = errors.Join(s.closed, s.shut())
	})
	return s.closed
}

// shut closes what is open. The writing connection outlives the reading ones:
// the last to close moves the write-ahead log into the database. The lock goes
// last of all.
func (s *Store) shut() error {
	var err error
	if s.reads != nil {
		err = errors.Join(err, s.reads.Close())
	}
	if s.writer != nil {
		err = errors.Join(err, s.writer.session.close())
	}
	if s.writes != nil {
		err = errors.Join(err, s.writes.Close())
	}
	if s.owner != nil {
		err = errors.Join(err, s.owner.Close())
	}
	return err
}
