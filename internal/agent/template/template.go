// Package template holds the small agent that belay init writes: a scripted
// model, a tool, a reference and a hook of each lane, to be changed into one's
// own.
package template

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

//go:embed all:files
var files embed.FS

// Write writes the agent into dir, which it makes. It refuses a folder that has
// anything in it, so that nothing is ever written over.
func Write(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return fmt.Errorf("make an agent in %s: %w; name a folder that does not exist yet", dir, err)
	case len(entries) > 0:
		return fmt.Errorf("make an agent in %s: the folder is not empty; name a new or an empty one", dir)
	}
	from, err := fs.Sub(files, "files")
	if err != nil {
		return err
	}
	if err := os.CopyFS(dir, from); err != nil {
		return fmt.Errorf("make an agent in %s: %w; check that you may write there", dir, err)
	}
	return filepath.WalkDir(dir, writable)
}

// writable undoes what embedding does to permissions: its files are read-only.
func writable(path string, d fs.DirEntry, err error) error {
	if err != nil || d.IsDir() {
		return err
	}
	return os.Chmod(path, 0o644)
}

// Files lists what [Write] writes, as sorted paths with slashes.
func Files() []string {
	var out []string
	_ = fs.WalkDir(files, "files", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			out = append(out, path[len("files/"):])
		}
		return nil // an embedded tree is always readable
	})
	return out
}
