package plugin

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// The bounds of a snapshot.
const (
	maxFiles    = 20_000
	maxOneFile  = 64 << 20  // bytes
	maxAllFiles = 256 << 20 // bytes
	maxDepth    = 64        // folders in folders
)

// ignored are the names of what is no part of a plugin: history, and what is made
// anew from the rest.
var ignored = []string{".git", "__pycache__", ".venv"}

// Digest returns the digest of a plugin's folder: of the sorted paths of its files
// and links, of their contents and targets, and of which files are executable.
// What is named .git, __pycache__ or .venv is left out.
//
// It fails when the folder is no snapshot that [Copy] would make: a link that leads
// out of it, a device or pipe, too many or too large files.
func Digest(dir string) (string, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", fmt.Errorf("plugin: open folder: %w", err)
	}
	defer func() { _ = root.Close() }() // opened for reading only
	return walk(root, nil)
}

// Copy makes a snapshot of the plugin's folder src at dst, which must not exist
// yet, and returns its digest, which is of what was copied. Nothing stands at dst
// when it fails. The folder of dst must exist.
func Copy(src, dst string) (digest string, err error) {
	root, err := os.OpenRoot(src)
	if err != nil {
		return "", fmt.Errorf("plugin: open folder: %w", err)
	}
	defer func() { _ = root.Close() }() // opened for reading only
	if _, err := os.Lstat(dst); !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("plugin: cannot make a snapshot: something is at %s already", dst)
	}
	partial, err := os.MkdirTemp(filepath.Dir(dst), "."+filepath.Base(dst)+".partial-")
	if err != nil {
		return "", fmt.Errorf("plugin: make a folder for the snapshot: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(partial))
		}
	}()
	to, err := os.OpenRoot(partial)
	if err != nil {
		return "", fmt.Errorf("plugin: open the snapshot: %w", err)
	}
	digest, err = walk(root, to)
	if err = errors.Join(err, to.Close()); err != nil {
		return "", err
	}
	if err := os.Chmod(partial, 0o755); err != nil {
		return "", fmt.Errorf("plugin: open the snapshot to readers: %w", err)
	}
	if err := os.Rename(partial, dst); err != nil {
		return "", fmt.Errorf("plugin: put the snapshot into place: %w", err)
	}
	return digest, nil
}

// snapshot is a walk over a plugin's folder, through each folder by sorted names, so
// that the digest does not depend on how a system lists them.
type snapshot struct {
	from, to *os.Root // to is nil when nothing is copied
	sum      hash.Hash
	files    int
	bytes    int64
}

func walk(from, to *os.Root) (string, error) {
	s := &snapshot{from: from, to: to, sum: sha256.New()}
	if err := s.folder(".", 0); err != nil {
		return "", fmt.Errorf("plugin: %w", err)
	}
	return fmt.Sprintf("sha256:%x", s.sum.Sum(nil)), nil
}

func (s *snapshot) folder(dir string, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("%s: folders stand more than %d deep in one another", dir, maxDepth)
	}
	entries, err := s.list(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if slices.Contains(ignored, e.Name()) {
			continue
		}
		name := path.Join(dir, e.Name())
		if s.files++; s.files > maxFiles {
			return fmt.Errorf("the folder has more than %d files; take out what the plugin does not need", maxFiles)
		}
		if strings.Contains(e.Name(), `\`) || !filepath.IsLocal(name) {
			return fmt.Errorf("%q: a file's name that not every system can have; rename it", name)
		}
		switch {
		case e.IsDir():
			if s.to != nil {
				if err := s.to.Mkdir(name, 0o755); err != nil {
					return fmt.Errorf("%s: make folder: %w", name, err)
				}
			}
			err = s.folder(name, depth+1)
		case e.Type()&fs.ModeSymlink != 0:
			err = s.link(name)
		case e.Type().IsRegular():
			err = s.file(name)
		default:
			err = fmt.Errorf("%s: neither a file nor a folder; take it out", name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// list reads a folder, sorted; one with far too many entries is not read whole.
func (s *snapshot) list(dir string) ([]fs.DirEntry, error) {
	f, err := s.from.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("%s: open: %w", dir, err)
	}
	defer func() { _ = f.Close() }() // opened for reading only
	entries, err := f.ReadDir(maxFiles + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: list: %w", dir, err)
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, nil
}

// link keeps a link as it is when it leads to something of the snapshot.
func (s *snapshot) link(name string) error {
	target, err := s.from.Readlink(name)
	if err != nil {
		return fmt.Errorf("%s: read link: %w", name, err)
	}
	at := path.Join(path.Dir(name), target)
	if path.IsAbs(target) || filepath.IsAbs(target) || !filepath.IsLocal(at) {
		return fmt.Errorf("%s: a link that leads out of the folder; copy what it leads to", name)
	}
	if slices.ContainsFunc(strings.Split(at, "/"), func(part string) bool { return slices.Contains(ignored, part) }) {
		return fmt.Errorf("%s: a link into a folder that is no part of a plugin; copy what it leads to", name)
	}
	if _, err := s.from.Stat(name); err != nil { // resolved to its end, and never outside
		return fmt.Errorf("%s: a link that leads out of the folder, or nowhere; copy what it leads to", name)
	}
	s.record('l', name, []byte(target))
	if s.to == nil {
		return nil
	}
	if err := s.to.Symlink(target, name); err != nil {
		return fmt.Errorf("%s: make link: %w", name, err)
	}
	return nil
}

func (s *snapshot) file(name string) (err error) {
	in, err := s.from.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0) // what took the file's place must not block or lead astray
	if err != nil {
		return fmt.Errorf("%s: open: %w", name, err)
	}
	defer func() { _ = in.Close() }() // opened for reading only
	info, err := in.Stat()
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s: neither a file nor a folder; take it out", name)
	}
	kind, mode := byte('f'), fs.FileMode(0o644)
	if info.Mode()&0o111 != 0 {
		kind, mode = 'x', 0o755
	}
	content := sha256.New()
	var out io.Writer = content
	if s.to != nil {
		f, err := s.to.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
		if err != nil {
			return fmt.Errorf("%s: make file: %w", name, err)
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		out = io.MultiWriter(content, f)
	}
	n, err := io.Copy(out, io.LimitReader(in, maxOneFile+1))
	if err != nil {
		return fmt.Errorf("%s: copy: %w", name, err)
	}
	if n > maxOneFile {
		return fmt.Errorf("%s: larger than %d MiB; take it out", name, maxOneFile>>20)
	}
	if s.bytes += n; s.bytes > maxAllFiles {
		return fmt.Errorf("the folder has more than %d MiB; take out what the plugin does not need", maxAllFiles>>20)
	}
	s.record(kind, name, content.Sum(nil))
	return nil
}

// record adds an entry to the digest, each part with its length before it, so that
// no two folders read alike.
func (s *snapshot) record(kind byte, name string, content []byte) {
	var entry []byte
	entry = append(entry, kind)
	for _, part := range [][]byte{[]byte(name), content} {
		entry = binary.BigEndian.AppendUint64(entry, uint64(len(part)))
		entry = append(entry, part...)
	}
	_, _ = s.sum.Write(entry) // a hash takes everything
}
