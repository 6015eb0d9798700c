package station

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/belay-run/belay/internal/audit"
	"github.com/belay-run/belay/internal/control"
	"github.com/belay-run/belay/internal/plugin"
	"github.com/belay-run/belay/internal/sqlstore"
	"github.com/belay-run/belay/internal/vault"
)

// Verified is what a backup holds.
type Verified struct {
	control.Backup
	// KeyFits says that the master key that was looked for opens it; KeyFile is where
	// it is, "" when there was none to try.
	KeyFits bool           `json:"key_fits"`
	KeyFile string         `json:"key_file,omitempty"`
	Audit   []audit.Report `json:"audit,omitempty"` // of each tenant
	// Wrong is what is not as it should be; none when the backup is good.
	Wrong []string `json:"wrong,omitempty"`
}

// VerifyBackup unpacks a backup aside and looks through all of it: the database for
// damage, the audit records, and the snapshots of plugins. keyFile is the master key
// to try; "" for none. An error says that the file is no backup.
func VerifyBackup(ctx context.Context, file, keyFile string) (out Verified, err error) {
	dir, err := os.MkdirTemp("", "belay-backup-")
	if err != nil {
		return out, fmt.Errorf("look through a backup: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	head, size, err := unpack(ctx, file, dir)
	if err != nil {
		return out, fmt.Errorf("look through %s: %w", file, err)
	}
	out.Backup = control.Backup{Path: file, Made: head.Made, Version: head.Version, Plugins: head.Plugins, Key: head.Key, Bytes: size}
	wrong := func(format string, args ...any) { out.Wrong = append(out.Wrong, fmt.Sprintf(format, args...)) }
	for _, digest := range head.Plugins {
		if now, err := plugin.Digest(filepath.Join(dir, pluginsDir, snapshotName(digest))); err != nil || now != digest {
			wrong("the snapshot %s of a plugin is not as it was", digest)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, databaseFile)); err != nil {
		wrong("it has no database")
		return out, nil
	}
	store, err := sqlstore.Attach(ctx, dir, sqlstore.Options{})
	if err != nil {
		wrong("%v", err)
		return out, nil
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if err := store.Whole(ctx); err != nil {
		wrong("%v", err)
		return out, nil
	}
	return out, out.look(ctx, store, keyFile, wrong)
}

// look reads what the database of the backup has.
func (v *Verified) look(ctx context.Context, store *sqlstore.Store, keyFile string, wrong func(string, ...any)) error {
	recipient, err := store.Recipient(ctx)
	if err != nil {
		return err
	}
	if recipient != v.Key {
		wrong("its note names another master key than its database")
	}
	tenants, err := store.AuditTenants(ctx)
	if err != nil {
		return err
	}
	for _, t := range tenants {
		r, err := audit.Check(ctx, store, t)
		if err != nil {
			return err
		}
		if v.Audit = append(v.Audit, r); !r.OK {
			wrong("the audit record of tenant %s: entry %d: %s", t, r.FirstBad, r.Reason)
		}
	}
	digests, err := store.PluginDigests(ctx)
	if err != nil {
		return err
	}
	for _, d := range digests {
		if !slices.Contains(v.Plugins, d) {
			wrong("the snapshot %s of a plugin is missing", d)
		}
	}
	if keyFile == "" {
		return nil
	}
	keys, err := vault.Open(filepath.Dir(keyFile), keyFile)
	if err != nil {
		return err
	}
	v.KeyFile, v.KeyFits = keyFile, keys.Recipient() == recipient
	return nil
}

// The bounds of what is unpacked.
const (
	maxEntries  = 1_000_000
	maxUnpacked = 1 << 40 // bytes
	maxNote     = 4 << 20
)

var errNoBackup = errors.New("this is no backup that belay made")

// unpack unpacks a backup into an empty folder.
func unpack(ctx context.Context, file, dir string) (head backupHead, size int64, err error) {
	f, err := os.Open(file)
	if err != nil {
		return head, 0, err
	}
	defer func() { _ = f.Close() }() // opened for reading only
	info, err := f.Stat()
	if err != nil {
		return head, 0, err
	}
	root, err := os.OpenRoot(dir) // nothing in the file leads out of it
	if err != nil {
		return head, 0, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	r := tar.NewReader(f)
	first, err := r.Next()
	if err != nil || filepath.Clean(first.Name) != backupNote || first.Size > maxNote {
		return head, 0, errNoBackup
	}
	if err := json.NewDecoder(r).Decode(&head); err != nil {
		return head, 0, errNoBackup
	}
	if head.Format != backupFormat {
		return head, 0, fmt.Errorf("it has the form %d, and this belay reads form %d; use the version that made it or a later one", head.Format, backupFormat)
	}
	left := int64(maxUnpacked)
	for n := 0; ; n++ {
		h, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return head, info.Size(), nil
		case err != nil:
			return head, 0, fmt.Errorf("the file is cut off or damaged: %w", err)
		case n > maxEntries || h.Size > left:
			return head, 0, errors.New("it holds more than a backup can")
		case ctx.Err() != nil:
			return head, 0, ctx.Err()
		}
		left -= h.Size
		if err := unpackOne(root, h, r); err != nil {
			return head, 0, fmt.Errorf("%s: %w", h.Name, err)
		}
	}
}

func unpackOne(root *os.Root, h *tar.Header, from io.Reader) error {
	name := filepath.FromSlash(filepath.Clean(h.Name))
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return root.MkdirAll(name, 0o755)
	case tar.TypeSymlink:
		return root.Symlink(h.Linkname, name)
	case tar.TypeReg:
		f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, os.FileMode(h.Mode).Perm())
		if err != nil {
			return err
		}
		if _, err := io.Copy(f, from); err != nil {
			return errors.Join(fmt.Errorf("the file is cut off or damaged: %w", err), f.Close())
		}
		return f.Close()
	}
	return errors.New("a backup has files, folders and links only")
}
