package station

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/belay-run/belay/internal/audit"
	"github.com/belay-run/belay/internal/config"
	"github.com/belay-run/belay/internal/control"
)

// A backup is a tar file that unpacks to a data folder without its master key:
//
//	backup.json       what it is, first
//	belay.db          the database at one moment
//	belay.yaml        the settings, when there are any
//	plugins/<digest>  the snapshots of plugins
const (
	backupNote   = "backup.json"
	databaseFile = "belay.db"
	pluginsDir   = "plugins"
	backupFormat = 1
)

// backupHead is the first file of a backup.
type backupHead struct {
	Format  int       `json:"format"`
	Made    time.Time `json:"made"`
	Version string    `json:"belay,omitempty"`
	Plugins []string  `json:"plugins,omitempty"` // digests
	Key     string    `json:"key"`               // the public half of the master key
	Note    string    `json:"note"`
}

const keyNote = "The master key is not in this file, and without it nothing in belay.db can be read. Keep it elsewhere, and put it back as belay.key beside belay.db."

// Backup implements [control.Upkeep].
func (s *Station) Backup(ctx context.Context, c control.Caller, to string) (out control.Backup, err error) {
	if _, err := os.Lstat(to); !errors.Is(err, fs.ErrNotExist) {
		return out, control.Refuse(control.Conflict, "something is at "+to+" already", "name a new file")
	}
	s.backups.Lock()
	defer s.backups.Unlock()
	if err := s.clearAway(); err != nil {
		return out, err
	}
	work, err := os.MkdirTemp(s.cfg.Data, workPrefix)
	if err != nil {
		return out, fmt.Errorf("make a backup: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	// The database comes first: every snapshot that it names is there by then.
	if err := s.store.Backup(ctx, work); err != nil {
		return out, err
	}
	head := backupHead{Format: backupFormat, Made: s.cfg.Clock().UTC(), Version: s.cfg.Version, Note: keyNote}
	if head.Key, err = s.store.Recipient(ctx); err != nil {
		return out, err
	}
	dirs, err := s.snapshots()
	if err != nil {
		return out, err
	}
	for _, d := range dirs {
		head.Plugins = append(head.Plugins, digestOf(d))
	}
	partial := filepath.Join(work, "backup")
	if out.Bytes, err = s.pack(ctx, partial, work, head, dirs); err != nil {
		return out, fmt.Errorf("make a backup: %w", err)
	}
	if err := place(partial, to); err != nil {
		return out, control.Refuse(control.Invalid, "the backup cannot be put at "+to+": "+err.Error(), "name a file in a folder that this user can write to")
	}
	out.Path, out.Made, out.Version, out.Plugins, out.Key = to, head.Made, head.Version, head.Plugins, head.Key
	return out, s.store.Record(ctx, audit.Fact{Tenant: c.Tenant, Actor: c.Name, Action: audit.BackupMade, Subject: filepath.Base(to), Data: audit.Data{"bytes": out.Bytes}})
}

// workPrefix is how the folders begin in which backups are made.
const workPrefix = ".backup-"

// clearAway removes what a process that was killed while it made a backup left.
func (s *Station) clearAway() error {
	entries, err := os.ReadDir(s.cfg.Data)
	if err != nil {
		return fmt.Errorf("make a backup: %w", err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), workPrefix) {
			if err := os.RemoveAll(filepath.Join(s.cfg.Data, e.Name())); err != nil {
				return fmt.Errorf("remove what is left of another backup: %w", err)
			}
		}
	}
	return nil
}

// snapshots names the folders of the plugins' snapshots.
func (s *Station) snapshots() ([]string, error) {
	entries, err := os.ReadDir(s.servers.root)
	if err != nil {
		return nil, fmt.Errorf("list the snapshots of plugins: %w", err)
	}
	var out []string
	for _, e := range entries {
		if e.IsDir() && strings.HasPrefix(e.Name(), "sha256-") { // others are not whole yet
			out = append(out, e.Name())
		}
	}
	return out, nil
}

// digestOf is the digest whose snapshot has that folder.
func digestOf(name string) string { return strings.Replace(name, "-", ":", 1) }

// pack writes the tar file, for its user alone.
func (s *Station) pack(ctx context.Context, to, work string, head backupHead, snapshots []string) (size int64, err error) {
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	p := &packer{ctx: ctx, w: tar.NewWriter(f), at: head.Made}
	note, err := json.MarshalIndent(head, "", "  ")
	if err != nil {
		return 0, err
	}
	p.bytes(backupNote, append(note, '\n'))
	p.file(databaseFile, filepath.Join(work, databaseFile))
	if settings := filepath.Join(s.cfg.Data, config.File); exists(settings) {
		p.file(config.File, settings)
	}
	for _, name := range snapshots {
		p.folder(path.Join(pluginsDir, name), filepath.Join(s.servers.root, name))
	}
	if p.err == nil {
		p.err = p.w.Close()
	}
	if p.err == nil {
		p.err = f.Sync()
	}
	info, err := f.Stat()
	if err = errors.Join(p.err, err); err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// place moves a finished file to a place where nothing is, also of another disk.
func place(from, to string) error {
	if os.Link(from, to) == nil { // unlike a rename it takes nobody's place
		return nil
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // opened for reading only
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err = errors.Join(err, out.Sync(), out.Close()); err != nil {
		return errors.Join(err, os.Remove(to))
	}
	return nil
}

// packer writes a tar file until something fails.
type packer struct {
	ctx context.Context
	w   *tar.Writer
	at  time.Time
	err error
}

func (p *packer) head(h tar.Header) bool {
	h.ModTime, h.Format = p.at, tar.FormatPAX
	if p.err == nil {
		p.err = p.ctx.Err()
	}
	if p.err == nil {
		p.err = p.w.WriteHeader(&h)
	}
	return p.err == nil
}

func (p *packer) bytes(name string, content []byte) {
	if p.head(tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(content)), Mode: 0o600}) {
		_, p.err = p.w.Write(content)
	}
}

func (p *packer) file(name, from string) {
	f, err := os.Open(from)
	if err != nil {
		p.err = errors.Join(p.err, err)
		return
	}
	defer func() { _ = f.Close() }() // opened for reading only
	info, err := f.Stat()
	if err != nil {
		p.err = errors.Join(p.err, err)
		return
	}
	if p.head(tar.Header{Typeflag: tar.TypeReg, Name: name, Size: info.Size(), Mode: int64(info.Mode().Perm())}) {
		_, p.err = io.Copy(p.w, f)
	}
}

func (p *packer) folder(name, from string) {
	err := filepath.WalkDir(from, func(at string, d fs.DirEntry, err error) error {
		if err != nil || p.err != nil {
			return err
		}
		rel, err := filepath.Rel(from, at)
		if err != nil {
			return err
		}
		in := path.Join(name, filepath.ToSlash(rel))
		switch {
		case d.IsDir():
			p.head(tar.Header{Typeflag: tar.TypeDir, Name: in + "/", Mode: 0o755})
		case d.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(at)
			if err != nil {
				return err
			}
			p.head(tar.Header{Typeflag: tar.TypeSymlink, Name: in, Linkname: target, Mode: 0o777})
		default:
			p.file(in, at)
		}
		return nil
	})
	p.err = errors.Join(p.err, err)
}
