package sdk

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestFSHoldsTheWholePackage(t *testing.T) {
	want := map[string]bool{"belay/py.typed": true}
	err := filepath.WalkDir("belay", func(path string, d fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".py" {
			want[filepath.ToSlash(path)] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	err = fs.WalkDir(FS, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if !want[path] {
			t.Errorf("%s is embedded and should not be", path)
		}
		delete(want, path)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for path := range want {
		t.Errorf("%s is not embedded", path)
	}
	if err := os.CopyFS(t.TempDir(), FS); err != nil {
		t.Error(err)
	}
}
