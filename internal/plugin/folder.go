package plugin

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/yamlfile"
)

const maxFile = 1 << 20 // bytes of a file that is read here

// folder is a plugin's folder. Everything is read through root, which refuses
// paths that leave it, by links too.
type folder struct {
	path string
	root *os.Root
}

// open opens the folder; what keeps it from that is reported.
func open(dir string, findings *[]finding.Finding) *folder {
	abs, err := filepath.Abs(dir)
	var root *os.Root
	if err == nil {
		root, err = os.OpenRoot(abs)
	}
	if err == nil {
		return &folder{abs, root}
	}
	message, hint := "the plugin's folder cannot be opened: "+yamlfile.Cause(err), "check its permissions"
	switch info, statErr := os.Stat(dir); {
	case errors.Is(statErr, fs.ErrNotExist):
		message, hint = "there is no folder "+dir, "check the path"
	case statErr == nil && !info.IsDir():
		message, hint = dir+" is a file, not a plugin's folder", "name the folder that holds "+File
	}
	yamlfile.NewReader(".", findings).Whole().Err("no-folder", message, hint)
	return nil
}

func (f *folder) close() { _ = f.root.Close() } // opened for reading only

// exists says that there is something of that name, a broken link too.
func (f *folder) exists(name string) bool {
	_, err := f.root.Lstat(name)
	return err == nil
}

// manifest finds the manifest's name, "" when there is none.
func (f *folder) manifest(findings *[]finding.Finding) string {
	at := func(file string) yamlfile.Spot { return yamlfile.NewReader(file, findings).Whole() }
	own, other := f.exists(File), f.exists(OtherFile)
	switch {
	case own && other:
		at(OtherFile).Warn("not-acted-on", "nothing reads this file, since "+File+" is there", "nothing needs to change if that is what you mean")
		return File
	case own:
		return File
	case other:
		return OtherFile
	}
	for _, near := range []string{"belay-plugin.yml", "oz0-plugin.yml", "belay_plugin.yaml", "plugin.yaml", "plugin.yml"} {
		if f.exists(near) {
			at(near).Err("no-manifest", "the manifest is looked for under the name "+File, "rename this file")
			return ""
		}
	}
	at(".").Err("no-manifest", "there is no "+File+", so this is no plugin's folder", "write one, or name the folder that holds it")
	return ""
}

// read reads a regular file of the folder. What keeps it from that is reported
// where the file is named.
func (f *folder) read(name string, at yamlfile.Spot) ([]byte, bool) {
	data, err := f.load(name)
	switch {
	case err == nil:
		return data, true
	case errors.Is(err, fs.ErrNotExist) && !f.exists(name):
		at.Err("missing-file", "this names a file that does not exist", "write it, or correct the path; it is relative to the plugin's folder")
	default:
		at.Err("unreadable-file", "the file cannot be read: "+yamlfile.Cause(err), "check that it is a file of the plugin's folder, its size and its permissions")
	}
	return nil, false
}

func (f *folder) load(name string) ([]byte, error) {
	data, err := yamlfile.Load(f.root, name, maxFile)
	if errors.Is(err, yamlfile.ErrTooLarge) {
		err = fmt.Errorf("it is larger than %d MiB", maxFile>>20)
	}
	return data, err
}

// local cleans a path that a manifest names, and reports one that leaves the
// folder.
func (f *folder) local(name string, at yamlfile.Spot) (string, bool) {
	clean := path.Clean(name)
	if !filepath.IsLocal(clean) || strings.Contains(name, `\`) {
		at.Err("outside-folder", "this names something outside the plugin's folder", "put it into the folder and name it by its relative path, with /")
		return "", false
	}
	return clean, true
}

// prose reads a text file that is not blank.
func (f *folder) prose(name string, at yamlfile.Spot) string {
	clean, ok := f.local(name, at)
	if !ok {
		return ""
	}
	data, ok := f.read(clean, at)
	if !ok {
		return ""
	}
	if text := string(data); utf8.ValidString(text) && strings.TrimSpace(text) != "" {
		return text
	}
	at.Err("empty-file", "the file is blank, or no UTF-8 text", "write it")
	return ""
}

// tests finds the files that a path, folder or pattern of tests names.
func (f *folder) tests(name string, at yamlfile.Spot) []string {
	clean, ok := f.local(name, at)
	if !ok {
		return nil
	}
	var out []string
	add := func(p string) {
		if info, err := f.root.Stat(p); err == nil && info.Mode().IsRegular() {
			out = append(out, p)
		}
	}
	if info, err := f.root.Stat(clean); err == nil && info.IsDir() {
		_ = fs.WalkDir(f.root.FS(), clean, func(p string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && (path.Ext(p) == ".yaml" || path.Ext(p) == ".yml") {
				add(p)
			}
			return nil // what cannot be read has no cases; none at all is reported below
		})
	} else if matches, err := fs.Glob(f.root.FS(), clean); err == nil {
		for _, m := range matches {
			add(m)
		}
	}
	if len(out) == 0 {
		at.Err("missing-file", "this names no test: there is no such file, or no .yaml file in that folder", "write one, or correct the path; it is relative to the plugin's folder")
	}
	slices.Sort(out)
	return out
}
