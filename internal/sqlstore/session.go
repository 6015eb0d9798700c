package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"time"

	"modernc.org/sqlite"
	codes "modernc.org/sqlite/lib"

	"github.com/belay-run/belay/internal/sqlstore/rows"
)

// database is the file's name in a data folder.
const database = "belay.db"

// Settings of a connection. secure_delete writes zeros over what is deleted.
var (
	ownerPragmas = []string{
		"busy_timeout(5000)", "journal_mode(WAL)", "synchronous(FULL)", "fullfsync(1)", "foreign_keys(1)",
		"secure_delete(1)", "temp_store(MEMORY)", "cache_size(-2000)", "journal_size_limit(16777216)",
	}
	readerPragmas = []string{"busy_timeout(5000)", "query_only(1)", "temp_store(MEMORY)", "cache_size(-1000)"}
	guestPragmas  = []string{"busy_timeout(5000)", "synchronous(FULL)", "fullfsync(1)", "foreign_keys(1)", "secure_delete(1)"}
)

// connect opens the database of a folder, which must be there.
func connect(dir string, pragmas []string) (*sql.DB, error) {
	path, err := filepath.Abs(filepath.Join(dir, database))
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	query := url.Values{"mode": {"rw"}, "_pragma": pragmas, "_error_rc": {"1"}}
	dsn := url.URL{Scheme: "file", Path: filepath.ToSlash(path), RawQuery: query.Encode()}
	db, err := sql.Open("sqlite", dsn.String())
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	return db, nil
}

// syncCheaply lets SQLite sync with fdatasync, which leaves out timestamps and
// halves the cost of a commit. Where there is none, fsync stays.
func syncCheaply() {
	_, _ = sqlite.Fdatasync(true)
}

// session is the writing connection with its statements prepared.
type session struct {
	conn *sql.Conn
	q    *rows.Queries

	begin, commit, rollback, save, release, restore statement

	lazy bool // commits do not wait for the disk

	// The statements above. A connection whose statements are not all closed
	// stays open for good, with its files, whatever Close says.
	prepared []*sql.Stmt
}

type statement func(context.Context) error

func newSession(ctx context.Context, db *sql.DB) (*session, error) {
	s := &session{}
	if err := s.open(ctx, db); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *session) open(ctx context.Context, db *sql.DB) (err error) {
	if s.conn, err = db.Conn(ctx); err != nil {
		return fmt.Errorf("open the database: %w", err)
	}
	if s.q, err = rows.Prepare(ctx, s.conn); err != nil {
		return fmt.Errorf("prepare the statements: %w", err)
	}
	for text, to := range map[string]*statement{
		"BEGIN IMMEDIATE": &s.begin,
		"COMMIT":          &s.commit,
		"ROLLBACK":        &s.rollback,
		"SAVEPOINT one":   &s.save,
		"RELEASE one":     &s.release,
		"ROLLBACK TO one": &s.restore,
	} {
		prepared, err := s.conn.PrepareContext(ctx, text)
		if err != nil {
			return fmt.Errorf("prepare the statements: %w", err)
		}
		s.prepared = append(s.prepared, prepared)
		*to = func(ctx context.Context) error {
			_, err := prepared.ExecContext(ctx)
			return err
		}
	}
	return nil
}

// waitForDisk says whether commits wait until the log is on disk. One that does
// brings along all before it.
func (s *session) waitForDisk(ctx context.Context, wait bool) error {
	if s.lazy == !wait {
		return nil
	}
	mode := "FULL"
	if !wait {
		mode = "NORMAL"
	}
	if _, err := s.conn.ExecContext(ctx, "PRAGMA synchronous = "+mode); err != nil {
		return err
	}
	s.lazy = !wait
	return nil
}

func (s *session) close() error {
	if s == nil {
		return nil
	}
	var err error
	for _, prepared := range s.prepared {
		err = errors.Join(err, prepared.Close())
	}
	if s.q != nil {
		err = errors.Join(err, s.q.Close())
	}
	if s.conn != nil {
		err = errors.Join(err, s.conn.Close())
	}
	return err
}

// truncateLog moves the write-ahead log into the database and empties it, unless
// readers keep it from doing so for longer than patience.
func (s *session) truncateLog(ctx context.Context, patience time.Duration) (done bool, err error) {
	if _, err := s.conn.ExecContext(ctx, fmt.Sprintf("PRAGMA busy_timeout = %d", patience.Milliseconds())); err != nil {
		return false, err
	}
	var blocked, pages, moved int
	err = s.conn.QueryRowContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)").Scan(&blocked, &pages, &moved)
	_, reset := s.conn.ExecContext(ctx, "PRAGMA busy_timeout = 5000")
	return err == nil && blocked == 0, errors.Join(err, reset)
}

func busy(err error) bool {
	code := primary(err)
	return code == codes.SQLITE_BUSY || code == codes.SQLITE_LOCKED
}
