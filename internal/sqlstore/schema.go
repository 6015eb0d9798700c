package sqlstore

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/pressly/goose/v3"

	"github.com/belay-run/belay/internal/sqlstore/rows"
	"github.com/belay-run/belay/internal/vault"
)

//go:embed migrations/*.sql
var migrations embed.FS

// versions is the table in which the applied migrations stand.
const versions = "schema_version"

func migrator(db *sql.DB) (*goose.Provider, error) {
	dir, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, err
	}
	return goose.NewProvider(goose.DialectSQLite3, db, dir, goose.WithTableName(versions), goose.WithDisableGlobalRegistry(true))
}

// known is the newest schema this program knows.
func known(p *goose.Provider) int64 {
	sources := p.ListSources()
	return sources[len(sources)-1].Version
}

// stored is the schema of the file, 0 for an empty one.
func stored(ctx context.Context, db *sql.DB) (int64, error) {
	var n, version int64
	err := db.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema WHERE name = ?", versions).Scan(&n)
	if err == nil && n > 0 {
		err = db.QueryRowContext(ctx, "SELECT coalesce(max(version_id), 0) FROM "+versions).Scan(&version)
	}
	if err != nil {
		return 0, fmt.Errorf("read the schema's version: %w", err)
	}
	return version, nil
}

// migrate brings the file to this program's schema. It refuses a newer one
// before it changes anything.
func migrate(ctx context.Context, db *sql.DB, path string) error {
	p, err := migrator(db)
	if err != nil {
		return fmt.Errorf("read the migrations: %w", err)
	}
	if err := refuseNewer(ctx, db, p, path); err != nil {
		return err
	}
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("bring the database to schema %d: %w", known(p), err)
	}
	return nil
}

func refuseNewer(ctx context.Context, db *sql.DB, p *goose.Provider, path string) error {
	version, err := stored(ctx, db)
	if err != nil {
		return err
	}
	if newest := known(p); version > newest {
		return fmt.Errorf("%w: %s was written by a newer belay (schema %d, this one knows %d); install that version or a later one",
			ErrSchema, path, version, newest)
	}
	return nil
}

// requireCurrent is migrate for who may not change the file.
func requireCurrent(ctx context.Context, db *sql.DB, path string) error {
	p, err := migrator(db)
	if err != nil {
		return fmt.Errorf("read the migrations: %w", err)
	}
	if err := refuseNewer(ctx, db, p, path); err != nil {
		return err
	}
	version, err := stored(ctx, db)
	if err != nil {
		return err
	}
	if newest := known(p); version < newest {
		return fmt.Errorf("%w: %s was written by an older belay (schema %d, this one needs %d); start `belay serve` once to bring it up to date",
			ErrSchema, path, version, newest)
	}
	return nil
}

// matchKey makes sure that the vault's master key is the one that seals this
// database's data keys; a new database takes the vault's.
func matchKey(ctx context.Context, db *sql.DB, v *vault.Vault, path string, takes bool) error {
	q := rows.New(db)
	if takes {
		if err := q.AddMeta(ctx, rows.AddMetaParams{Name: "recipient", Value: v.Recipient()}); err != nil {
			return fmt.Errorf("store which master key is in use: %w", err)
		}
	}
	recipient, err := q.GetMeta(ctx, "recipient")
	if errors.Is(err, sql.ErrNoRows) && !takes {
		return nil // the owner is just making the file
	}
	if err != nil {
		return fmt.Errorf("read which master key is in use: %w", err)
	}
	if recipient != v.Recipient() {
		return fmt.Errorf("open %s: %w: the key in %s is %s, the database's is %s; "+
			"put that key back from a backup, or name its file in BELAY_KEY_FILE",
			path, vault.ErrWrongKey, v.Path(), v.Recipient(), recipient)
	}
	return nil
}
