package sqlstore

import (
	"errors"
	"fmt"

	"modernc.org/sqlite"
	codes "modernc.org/sqlite/lib"

	"github.com/belay-run/belay/internal/vault"
)

var (
	// ErrConflict says that an event does not follow the newest one: another
	// owner has written to the conversation, or it was deleted.
	ErrConflict = errors.New("the conversation has moved on")
	// ErrClosed says that the store is closed.
	ErrClosed = errors.New("the store is closed")
	// ErrReadOnly says that the store was opened by Attach.
	ErrReadOnly = errors.New("the store is attached, not owned: it can only be read")
	// ErrDamaged says that the database file cannot be read.
	ErrDamaged = errors.New("the database is damaged")
	// ErrDisk says that the disk is full or fails.
	ErrDisk = errors.New("the disk is full or fails")
	// ErrSchema says that the file's schema is not this program's.
	ErrSchema = errors.New("the database has another schema")

	errNoVault = errors.New("no master key is given to read conversations with")
)

// explain adds to an error of SQLite's what it means and what to do about it.
func explain(path string, err error) error {
	switch code := primary(err); code {
	case codes.SQLITE_FULL:
		return fmt.Errorf("%w (%w); make room on the disk of %s", ErrDisk, err, path)
	case codes.SQLITE_IOERR:
		return fmt.Errorf("%w (%w); look at the disk of %s and the system's log", ErrDisk, err, path)
	case codes.SQLITE_CORRUPT, codes.SQLITE_NOTADB:
		return fmt.Errorf("%w (%w); put %s back from a backup, or move it away to start anew", ErrDamaged, err, path)
	case codes.SQLITE_BUSY, codes.SQLITE_LOCKED:
		return fmt.Errorf("%w; another process keeps %s locked: end it and try again", err, path)
	case codes.SQLITE_CANTOPEN, codes.SQLITE_READONLY, codes.SQLITE_PERM:
		return fmt.Errorf("%w; this user must be able to read and write %s and its folder", err, path)
	}
	if errors.Is(err, vault.ErrAltered) {
		return fmt.Errorf("%w; %s was changed by another program: put it back from a backup", err, path)
	}
	return err
}

// primary is SQLite's primary result code, 0 for errors that are not SQLite's.
func primary(err error) int {
	var e *sqlite.Error
	if errors.As(err, &e) {
		return e.Code() & 0xff
	}
	return 0
}

// refusal is why a change is not made: news for its caller, and nobody else's fault.
type refusal struct{ error }

func (r refusal) Unwrap() error { return r.error }

// ownFault says that a failure is of one write alone: what else is in its
// transaction may go on. A full disk, say, is everybody's.
func ownFault(err error) bool {
	switch primary(err) {
	case codes.SQLITE_CONSTRAINT, codes.SQLITE_TOOBIG, codes.SQLITE_MISMATCH:
		return true
	case 0:
		return errors.Is(err, ErrConflict) || errors.Is(err, errGone) || errors.As(err, new(refusal))
	}
	return false
}
