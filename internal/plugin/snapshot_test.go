package plugin_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"github.com/belay-run/belay/internal/plugin"
)

func digest(t testing.TB, dir string) string {
	t.Helper()
	d, err := plugin.Digest(dir)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

var sample = map[string]string{
	plugin.File: acme, "src/server.py": "print()", "src/a/b.py": "x", "bin/run": "#!/bin/sh\n", "link.py": "->src/server.py", "src/up": "->../bin",
}

func TestCopy(t *testing.T) {
	src := folder(t, sample)
	if err := os.Chmod(filepath.Join(src, "bin/run"), 0o700); err != nil {
		t.Fatal(err)
	}
	want := digest(t, src)
	for name, text := range map[string]string{".git/HEAD": "ref", "src/__pycache__/x.pyc": "x", ".venv/bin/python": "->/usr/bin/python3"} {
		path := filepath.Join(src, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if target, ok := strings.CutPrefix(text, "->"); ok {
			if err := os.Symlink(target, path); err != nil {
				t.Fatal(err)
			}
		} else if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if digest(t, src) != want {
		t.Error("what is left out changes the digest")
	}
	dst := filepath.Join(t.TempDir(), "snapshot")
	got, err := plugin.Copy(src, dst)
	if err != nil || got != want || digest(t, dst) != want {
		t.Fatalf("copied as %s, %v; want %s", got, err, want)
	}
	for _, gone := range []string{".git", ".venv", "src/__pycache__"} {
		if _, err := os.Lstat(filepath.Join(dst, gone)); err == nil {
			t.Errorf("%s was copied", gone)
		}
	}
	if info, err := os.Stat(filepath.Join(dst, "bin/run")); err != nil || info.Mode()&0o100 == 0 {
		t.Errorf("bin/run is not executable: %v", err)
	}
	if text, err := os.ReadFile(filepath.Join(dst, "src/up/run")); err != nil || string(text) != "#!/bin/sh\n" {
		t.Errorf("through a link: %q, %v", text, err)
	}
	if m, findings := plugin.Read(dst); len(findings) > 0 || m.Name != "acme-policy" {
		t.Errorf("the copy reads as %v", findings)
	}
	if _, err := plugin.Copy(src, dst); err == nil {
		t.Error("a snapshot was written over")
	}
	if entries, _ := os.ReadDir(filepath.Dir(dst)); len(entries) != 1 {
		t.Errorf("left behind: %v", entries)
	}
}

func TestDigestTellsFoldersApart(t *testing.T) {
	seen := map[string]string{digest(t, folder(t, sample)): "sample"}
	for name, change := range map[string]func(dir string) error{
		"a content":    func(d string) error { return os.WriteFile(filepath.Join(d, "src/a/b.py"), []byte("y"), 0o644) },
		"a name":       func(d string) error { return os.Rename(filepath.Join(d, "src/a/b.py"), filepath.Join(d, "src/a/c.py")) },
		"a folder":     func(d string) error { return os.Rename(filepath.Join(d, "src/a"), filepath.Join(d, "src/b")) },
		"a new file":   func(d string) error { return os.WriteFile(filepath.Join(d, "new"), nil, 0o644) },
		"executable":   func(d string) error { return os.Chmod(filepath.Join(d, "bin/run"), 0o755) },
		"a link":       func(d string) error { return replaceLink(filepath.Join(d, "link.py"), "src/a/b.py") },
		"link to file": func(d string) error { return os.Remove(filepath.Join(d, "link.py")) },
	} {
		dir := folder(t, sample)
		if err := change(dir); err != nil {
			t.Fatal(err)
		}
		d := digest(t, dir)
		if before, ok := seen[d]; ok {
			t.Errorf("%s reads as %s", name, before)
		}
		seen[d] = name
	}
}

func replaceLink(path, target string) error {
	if err := os.Remove(path); err != nil {
		return err
	}
	return os.Symlink(target, path)
}

func TestSnapshotsAreRefused(t *testing.T) {
	with := func(name, text string) string {
		files := map[string]string{plugin.File: acme}
		files[name] = text
		return folder(t, files)
	}
	pipe := with("x", "y")
	if err := syscall.Mkfifo(filepath.Join(pipe, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	large := with("large", "")
	if err := os.Truncate(filepath.Join(large, "large"), 65<<20); err != nil {
		t.Fatal(err)
	}
	chain := folder(t, map[string]string{plugin.File: acme, "a/one": "->two", "a/two": "->../../x"})
	deep := with(strings.Repeat("d/", 70)+"x", "y")
	for name, c := range map[string]struct{ dir, says string }{
		"a link out":                 {with("x", "->../../etc"), "leads out"},
		"an absolute link":           {with("x", "->/etc/hostname"), "leads out"},
		"a link nowhere":             {with("x", "->none"), "nowhere"},
		"a link out by a link":       {chain, "leads out"},
		"a link to itself":           {with("x", "->x"), "nowhere"},
		"a link to what is left out": {with("x", "->.git/HEAD"), "no part"},
		"a pipe":                     {pipe, "neither a file nor a folder"},
		"a large file":               {large, "larger than 64 MiB"},
		"deep folders":               {deep, "deep"},
		"a name with a backslash":    {with(`a\b`, "x"), "rename"},
		"a folder that is not there": {filepath.Join(t.TempDir(), "none"), "open folder"},
	} {
		if _, err := plugin.Digest(c.dir); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
		to := t.TempDir()
		if _, err := plugin.Copy(c.dir, filepath.Join(to, "snapshot")); err == nil {
			t.Errorf("%s was copied", name)
		}
		if entries, _ := os.ReadDir(to); len(entries) != 0 {
			t.Errorf("%s: left behind %v", name, entries)
		}
	}
}

// A copy has the digest of what it was made from, and two folders have one digest
// only when they hold the same.
func TestDigestProperty(t *testing.T) {
	draw := func(t *rapid.T) map[string]string {
		return rapid.MapOfN(rapid.SampledFrom([]string{"a", "b", "c/d", "c/e", "cd", "ab/c"}), rapid.SampledFrom([]string{"", "a", "b", "ab"}), 1, 4).Draw(t, "files")
	}
	rapid.Check(t, func(rt *rapid.T) {
		one, two := draw(rt), draw(rt)
		a, b := folder(t, one), folder(t, two)
		same := len(one) == len(two)
		for k, v := range one {
			if w, ok := two[k]; !ok || v != w {
				same = false
			}
		}
		if (digest(t, a) == digest(t, b)) != same {
			rt.Fatalf("%v and %v", one, two)
		}
		dst := filepath.Join(a, "..", filepath.Base(a)+"-copy")
		if got, err := plugin.Copy(a, dst); err != nil || got != digest(t, a) || got != digest(t, dst) {
			rt.Fatalf("copied as %s: %v", got, err)
		}
		if err := os.RemoveAll(dst); err != nil {
			rt.Fatal(err)
		}
	})
}
