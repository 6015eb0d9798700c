package vault_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"filippo.io/age"

	"github.com/belay-run/belay/internal/vault"
)

func open(t *testing.T, dir string) *vault.Vault {
	t.Helper()
	v, err := vault.Open(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestTheKeyIsMadeOnceAndForItsOwnerAlone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	first := open(t, dir)
	info, err := os.Stat(filepath.Join(dir, vault.KeyFile))
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode().Perm(); got != 0o600 {
		t.Errorf("mode %04o, want 0600", got)
	}
	if second := open(t, dir); second.Recipient() != first.Recipient() {
		t.Error("a second open made another key")
	}
	left, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(left) != 1 {
		t.Errorf("files left behind: %v", left)
	}
}

func TestManyOpensOfANewFolderGetOneKey(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	got := make([]string, 32)
	for i := range got {
		wg.Go(func() {
			v, err := vault.Open(dir, "")
			if err != nil {
				t.Error(err)
				return
			}
			got[i] = v.Recipient()
		})
	}
	wg.Wait()
	for _, r := range got {
		if r != got[0] {
			t.Fatalf("two keys: %s and %s", got[0], r)
		}
	}
}

func TestAKeyFileThatCannotBeUsedIsRefusedWithAHint(t *testing.T) {
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	hybrid, err := age.GenerateHybridIdentity()
	if err != nil {
		t.Fatal(err)
	}
	secret := identity.String()
	cases := map[string]struct {
		content string
		mode    os.FileMode
		want    string
	}{
		"group may read":  {secret + "\n", 0o640, "chmod 600"},
		"others may read": {secret + "\n", 0o604, "chmod 600"},
		"empty":           {"", 0o600, "not an age key file"},
		"mistyped":        {secret[:40] + "x" + secret[41:] + "\n", 0o600, "not an age key file"},
		"two keys":        {secret + "\n" + secret + "\n", 0o600, "must hold one X25519 key"},
		"another kind":    {hybrid.String() + "\n", 0o600, "must hold one X25519 key"},
		"huge":            {strings.Repeat("#", 100<<10), 0o600, "not a key file"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "k")
			if err := os.WriteFile(path, []byte(c.content), c.mode); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, c.mode); err != nil { // past the umask
				t.Fatal(err)
			}
			_, err := vault.Open(t.TempDir(), path)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error %v, want one with %q", err, c.want)
			}
			if strings.Contains(err.Error(), secret[20:39]) {
				t.Error("the error gives the key away")
			}
		})
	}
}

func TestANamedKeyFileIsUsedAndNeverMade(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(t.TempDir(), "k")
	if _, err := vault.Open(dir, path); err == nil || !strings.Contains(err.Error(), "BELAY_KEY_FILE") {
		t.Fatalf("error %v, want a hint about BELAY_KEY_FILE", err)
	}
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("# mine\n"+identity.String()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	v, err := vault.Open(dir, path)
	if err != nil {
		t.Fatal(err)
	}
	if v.Recipient() != identity.Recipient().String() || v.Path() != path {
		t.Error("another key was used")
	}
	if _, err := os.Stat(filepath.Join(dir, vault.KeyFile)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a key was made in the data folder too: %v", err)
	}
}

func TestNoKeyIsMadeBesideADatabaseThatLostItsKey(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "odd [name]*")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "belay.db"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := vault.Open(dir, "")
	if err == nil || !strings.Contains(err.Error(), "backup") {
		t.Fatalf("error %v, want a hint about a backup", err)
	}
	if _, err := os.Stat(filepath.Join(dir, vault.KeyFile)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a key was made all the same: %v", err)
	}
}

func TestADataKeyComesBackFromItsSealedForm(t *testing.T) {
	v := open(t, t.TempDir())
	key, sealed, err := v.NewDataKey()
	if err != nil {
		t.Fatal(err)
	}
	again, err := v.Open(sealed)
	if err != nil {
		t.Fatal(err)
	}
	row := vault.Row{Table: "event", Seq: 1, Names: []string{"a"}}
	for _, plain := range [][]byte{nil, []byte("hello"), bytes.Repeat([]byte{0}, 1<<20)} {
		got, err := again.Open(key.Seal(plain, row), row)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, plain) {
			t.Errorf("%d bytes came back as %d", len(plain), len(got))
		}
	}
	if !bytes.Equal(key.Digest([]byte("x")), again.Digest([]byte("x"))) {
		t.Error("digests differ after opening")
	}
	_, other, err := v.NewDataKey()
	if err != nil {
		t.Fatal(err)
	}
	if len(other) != len(sealed) {
		t.Errorf("sealed keys of %d and %d bytes", len(sealed), len(other))
	}
}

func TestAnotherMasterKeyOpensNothing(t *testing.T) {
	_, sealed, err := open(t, t.TempDir()).NewDataKey()
	if err != nil {
		t.Fatal(err)
	}
	v := open(t, t.TempDir())
	if _, err := v.Open(sealed); !errors.Is(err, vault.ErrWrongKey) {
		t.Errorf("error %v, want ErrWrongKey", err)
	}
	if _, err := v.Open(make([]byte, len(sealed))); err == nil || errors.Is(err, vault.ErrWrongKey) {
		t.Errorf("error %v for zeros, want one about damage", err)
	}
}

func TestSealedBytesOpenOnlyInTheirOwnRow(t *testing.T) {
	v := open(t, t.TempDir())
	key, _, err := v.NewDataKey()
	if err != nil {
		t.Fatal(err)
	}
	other, _, err := v.NewDataKey()
	if err != nil {
		t.Fatal(err)
	}
	row := vault.Row{Table: "event", Seq: 1, Names: []string{"ab", "c"}}
	sealed := key.Seal([]byte("hello"), row)
	for name, wrong := range map[string]vault.Row{
		"table":      {Table: "trace", Seq: 1, Names: []string{"ab", "c"}},
		"seq":        {Table: "event", Seq: 2, Names: []string{"ab", "c"}},
		"names":      {Table: "event", Seq: 1, Names: []string{"ab", "d"}},
		"boundaries": {Table: "event", Seq: 1, Names: []string{"a", "bc"}},
		"fewer":      {Table: "event", Seq: 1, Names: []string{"abc"}},
	} {
		if _, err := key.Open(sealed, wrong); !errors.Is(err, vault.ErrAltered) {
			t.Errorf("another %s: error %v, want ErrAltered", name, err)
		}
	}
	if _, err := other.Open(sealed, row); !errors.Is(err, vault.ErrAltered) {
		t.Errorf("another key: error %v, want ErrAltered", err)
	}
	for i := range sealed {
		sealed[i] ^= 1
		if _, err := key.Open(sealed, row); !errors.Is(err, vault.ErrAltered) {
			t.Fatalf("byte %d flipped: error %v, want ErrAltered", i, err)
		}
		sealed[i] ^= 1
	}
	if _, err := key.Open(nil, row); !errors.Is(err, vault.ErrAltered) {
		t.Errorf("nothing: error %v, want ErrAltered", err)
	}
}

func BenchmarkOpenDataKey(b *testing.B) {
	v, err := vault.Open(b.TempDir(), "")
	if err != nil {
		b.Fatal(err)
	}
	_, sealed, err := v.NewDataKey()
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := v.Open(sealed); err != nil {
			b.Fatal(err)
		}
	}
}
