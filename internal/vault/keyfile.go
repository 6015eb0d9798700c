package vault

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"filippo.io/age"
)

// KeyFile is the name of the master key's file in a data folder.
const KeyFile = "belay.key"

// maxKeyFile bounds what is read when somebody names a wrong file.
const maxKeyFile = 64 << 10

// Open reads the master key. With keyFile empty that is the file [KeyFile] in
// dir, which is made when the folder is new: never beside a database, whose key
// must then have been lost. With keyFile set (BELAY_KEY_FILE) that file must be
// there. Two processes that open a new folder at once get the same key.
func Open(dir, keyFile string) (*Vault, error) {
	if keyFile != "" {
		v, err := read(keyFile)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("read the master key: %w; BELAY_KEY_FILE must name a key that is there: "+
				"make one with `age-keygen -o %s`, or unset it to let Belay keep a key in its data folder", err, keyFile)
		}
		return v, err
	}
	path := filepath.Join(dir, KeyFile)
	v, err := read(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return v, err
	}
	if db := database(dir); db != "" {
		// Whoever made the database made the key before it: if that was just now,
		// the key is there at a second look.
		if v, err := read(path); !errors.Is(err, fs.ErrNotExist) {
			return v, err
		}
		return nil, fmt.Errorf("read the master key: %s is missing beside the database %s that it opens; "+
			"put the key back from a backup, name it in BELAY_KEY_FILE, or move the database away to start anew", path, db)
	}
	if err := create(dir, path); err != nil {
		return nil, err
	}
	return read(path)
}

// database names a database that stands in the folder.
func database(dir string) string {
	found, err := filepath.Glob(filepath.Join(escape(dir), "*.db"))
	if err != nil || len(found) == 0 {
		return ""
	}
	return found[0]
}

// escape takes the meaning from a folder's name that looks like a pattern.
func escape(dir string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(dir)
}

func read(path string) (*Vault, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // nothing was written
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("read the master key: %w", err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxKeyFile {
		return nil, fmt.Errorf("read the master key: %s is not a key file; name a file made by `age-keygen`", path)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return nil, fmt.Errorf("read the master key: others may read %s (mode %04o); run `chmod 600 %s`, "+
			"and make a new key if somebody may have read this one", path, mode, path)
	}
	identities, err := age.ParseIdentities(f)
	if err != nil {
		// The parser's own words may hold the line it stumbled on: the key.
		return nil, fmt.Errorf("read the master key: %s is not an age key file; "+
			"put it back from a backup, or name another in BELAY_KEY_FILE", path)
	}
	identity, ok := identities[0].(*age.X25519Identity)
	if !ok || len(identities) != 1 {
		return nil, fmt.Errorf("read the master key: %s must hold one X25519 key (AGE-SECRET-KEY-1…); "+
			"make it with `age-keygen`", path)
	}
	return newVault(identity, path), nil
}

// create writes a new key to a file of its own and links it to its place: the
// key appears whole or not at all, and never in place of another.
func create(dir, path string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the data folder: %w", err)
	}
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		return fmt.Errorf("make a master key: %w", err)
	}
	f, err := os.CreateTemp(dir, ".belay.key-*") // mode 0600, never an existing file
	if err != nil {
		return fmt.Errorf("make a master key: %w; can this user write to %s?", err, dir)
	}
	defer os.Remove(f.Name()) //nolint:errcheck // a leftover is harmless, and its name says what it is
	_, err = fmt.Fprintf(f, "# Belay's master key. Without it no stored conversation can be read: back it up, apart from the data.\n"+
		"# created: %s\n# public key: %s\n%s\n", time.Now().UTC().Format(time.RFC3339), identity.Recipient(), identity)
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return fmt.Errorf("make a master key: %w", err)
	}
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make a master key: %w", err)
	}
	return syncDir(dir)
}

// syncDir makes the new name last: a database written under a key that a power
// cut takes away would be lost.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("make a master key: %w", err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("make a master key: %w", err)
	}
	return nil
}
