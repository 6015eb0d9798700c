package app

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
)

// Files tells whether a folder changed since one looked last.
type Files struct {
	dir   string
	every bool // not only the files that make an agent
	last  string
}

// NewFiles looks at an agent's folder for the first time.
func NewFiles(dir string) *Files { return newFiles(dir, false) }

// EveryFile looks at a folder in which all files count, such as a plugin's: its
// servers may be written in any language. Hidden files do not count.
func EveryFile(dir string) *Files { return newFiles(dir, true) }

func newFiles(dir string, every bool) *Files {
	f := &Files{dir: dir, every: every}
	f.last = f.look()
	return f
}

// Changed says whether a file that counts came, went or changed since the last
// look.
func (f *Files) Changed() bool {
	now := f.look()
	changed := now != f.last
	f.last = now
	return changed
}

// look sums up names, sizes and times of the files that count.
func (f *Files) look() string {
	var b strings.Builder
	_ = filepath.WalkDir(f.dir, func(path string, d fs.DirEntry, err error) error { // what cannot be read is found when it is loaded
		if err != nil {
			return nil
		}
		name := d.Name()
		if d.IsDir() {
			if path != f.dir && (strings.HasPrefix(name, ".") || name == "__pycache__" || name == "node_modules") {
				return fs.SkipDir
			}
			return nil
		}
		if f.counts(name) {
			if info, err := d.Info(); err == nil {
				fmt.Fprintf(&b, "%s\x00%d\x00%d\x00", path, info.Size(), info.ModTime().UnixNano())
			}
		}
		return nil
	})
	return b.String()
}

func (f *Files) counts(name string) bool {
	if f.every {
		return !strings.HasPrefix(name, ".") && !strings.HasSuffix(name, "~")
	}
	switch filepath.Ext(name) {
	case ".py", ".yml", ".yaml", ".md":
		return true
	}
	return false
}
