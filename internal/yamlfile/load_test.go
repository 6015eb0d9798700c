package yamlfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"empty": "", "exact": "1234", "large": "12345"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	outside := filepath.Join(t.TempDir(), "outside")
	err := errors.Join(os.Mkdir(filepath.Join(dir, "folder"), 0o700), syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600),
		os.WriteFile(outside, []byte("1"), 0o600), os.Symlink(outside, filepath.Join(dir, "link")), os.Symlink("exact", filepath.Join(dir, "near")))
	if err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for name, want := range map[string]any{"empty": "", "exact": "1234", "near": "1234", "large": ErrTooLarge, "folder": ErrIrregular, "pipe": ErrIrregular, "none": fs.ErrNotExist} {
		got, err := Load(root, name, 4)
		if wrong, ok := want.(error); ok && !errors.Is(err, wrong) || !ok && (err != nil || string(got) != want) {
			t.Errorf("%s: %q, %v, not %v", name, got, err, want)
		}
	}
	if got, err := Load(root, "link", 4); err == nil {
		t.Errorf("a link out of the folder is read: %q", got)
	}
	if _, err := Load(root, "none", 4); Cause(err) != "no such file or directory" {
		t.Errorf("the cause is %q", Cause(err))
	}
}
