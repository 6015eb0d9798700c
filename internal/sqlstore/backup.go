package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Backup writes a copy of the database as it is at one moment into a folder, in which
// [Attach] opens it. The store goes on meanwhile. Texts stay encrypted in the copy,
// which holds nothing of what was deleted before.
func (s *Store) Backup(ctx context.Context, dir string) error {
	path := filepath.Join(dir, database)
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("copy the database: something is at %s already; name another place", path)
	}
	if err := makeFile(path); err != nil { // for its user alone
		return err
	}
	// A connection of its own: those that are kept open may not write, and are for
	// short reads.
	db, err := connect(s.dir, guestPragmas)
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, "VACUUM INTO ?", path)
	if err = errors.Join(err, db.Close()); err == nil {
		err = syncFile(path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("copy the database: %w", explain(s.path, err)), os.Remove(path))
	}
	return nil
}

func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Whole looks through the whole file for damage. It reads all of it.
func (s *Store) Whole(ctx context.Context) error {
	var said string
	if err := s.reads.QueryRowContext(ctx, "PRAGMA integrity_check(1)").Scan(&said); err != nil {
		return fmt.Errorf("look through the database: %w", explain(s.path, err))
	}
	if said != "ok" {
		return fmt.Errorf("%w: %s: %s", ErrDamaged, s.path, said)
	}
	return nil
}

// Recipient is the public half of the master key that the records are encrypted
// under, "" when nothing is there yet.
func (s *Store) Recipient(ctx context.Context) (string, error) {
	recipient, err := s.reader.GetMeta(ctx, "recipient")
	if err != nil {
		return "", fmt.Errorf("read which master key is in use: %w", explain(s.path, err))
	}
	return recipient, nil
}

// AuditTenants gives the tenants that have an audit record.
func (s *Store) AuditTenants(ctx context.Context) ([]string, error) {
	all, err := s.reader.ListAuditTenants(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the audit record: %w", explain(s.path, err))
	}
	return all, nil
}

// Agents gives the agents that have conversations in a tenant.
func (s *Store) Agents(ctx context.Context, tenant string) ([]string, error) {
	all, err := s.reader.ListConversationAgents(ctx, tenant)
	if err != nil {
		return nil, fmt.Errorf("list conversations: %w", explain(s.path, err))
	}
	return all, nil
}
