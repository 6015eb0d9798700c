package pyhost

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// extract lays the Python package into the user's cache folder and returns where
// it is. The folder's name is a hash of its content, so versions stand side by
// side, and it appears whole or not at all.
func extract(files fs.FS) (string, error) {
	root, err := cacheFolder()
	if err != nil {
		return "", err
	}
	name, err := digest(files)
	if err != nil {
		return "", fmt.Errorf("cannot read the Python package: %w", err)
	}
	dir := filepath.Join(root, name)
	if err := verify(files, dir); err == nil {
		return dir, nil
	}
	hint := "set XDG_CACHE_HOME to a folder that can be written"
	if err := os.MkdirAll(root, 0o755); err != nil {
		return "", fmt.Errorf("cannot lay the Python package into the cache: %w; %s", err, hint)
	}
	fresh, err := os.MkdirTemp(root, ".new-*")
	if err != nil {
		return "", fmt.Errorf("cannot lay the Python package into the cache: %w; %s", err, hint)
	}
	defer os.RemoveAll(fresh)
	if err := os.CopyFS(filepath.Join(fresh, "it"), files); err != nil {
		return "", fmt.Errorf("cannot lay the Python package into %s: %w; %s", fresh, err, hint)
	}
	if err := os.Rename(filepath.Join(fresh, "it"), dir); err == nil || verify(files, dir) == nil {
		return dir, nil // laid by this process or by another one meanwhile
	}
	// A damaged copy stands there: set it aside.
	if err := os.Rename(dir, filepath.Join(fresh, "old")); err != nil {
		return "", fmt.Errorf("cannot replace the damaged Python package in %s: %w; remove the folder", dir, err)
	}
	if err := os.Rename(filepath.Join(fresh, "it"), dir); err != nil && verify(files, dir) != nil {
		return "", fmt.Errorf("cannot lay the Python package into %s: %w; %s", dir, err, hint)
	}
	return dir, nil
}

// cacheFolder returns where versions of the package are laid. A user without a
// cache folder, such as a service without a home, gets one among the temporary
// files, if nobody else can write to it: Python runs what stands there.
func cacheFolder() (string, error) {
	if cache, err := os.UserCacheDir(); err == nil {
		return filepath.Join(cache, "belay", "python"), nil
	}
	root := filepath.Join(os.TempDir(), fmt.Sprintf("belay-%d", os.Getuid()))
	if err := os.Mkdir(root, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("cannot make a folder for the Python package: %w; set XDG_CACHE_HOME to a folder that can be written", err)
	}
	info, err := os.Lstat(root)
	if err != nil {
		return "", fmt.Errorf("cannot look at the folder for the Python package: %w", err)
	}
	if own, ok := info.Sys().(*syscall.Stat_t); !ok || !info.IsDir() || info.Mode().Perm()&0o077 != 0 || own.Uid != uint32(os.Getuid()) {
		return "", fmt.Errorf("%s is not this user's alone: set XDG_CACHE_HOME to a folder that can be written", root)
	}
	return root, nil
}

// digest names the package by its content.
func digest(files fs.FS) (string, error) {
	sum := sha256.New()
	err := eachFile(files, func(path string, data []byte) error {
		fmt.Fprintf(sum, "%s %d\n", path, len(data))
		sum.Write(data)
		return nil
	})
	return hex.EncodeToString(sum.Sum(nil)[:10]), err
}

// verify says whether dir holds every file as it should be: what runs with the
// user's rights is not taken on trust from a cache.
func verify(files fs.FS, dir string) error {
	return eachFile(files, func(path string, data []byte) error {
		have, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(path)))
		if err != nil {
			return err
		}
		if string(have) != string(data) {
			return fmt.Errorf("%s differs", path)
		}
		return nil
	})
}

func eachFile(files fs.FS, do func(path string, data []byte) error) error {
	return fs.WalkDir(files, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(files, path)
		if err != nil {
			return err
		}
		return do(path, data)
	})
}
