package sqlstore

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/belay-run/belay/internal/audit"
	"github.com/belay-run/belay/internal/secret"
	"github.com/belay-run/belay/internal/vault"
)

type secrets struct {
	*testing.T
	dir string
	now time.Time
	s   *Store
}

func openSecrets(t *testing.T) *secrets {
	t.Helper()
	w := &secrets{T: t, dir: t.TempDir(), now: time.Unix(1_700_000_000, 0)}
	w.open()
	t.Cleanup(func() { w.s.Close() })
	return w
}

func (w *secrets) open() {
	w.Helper()
	keys, err := vault.Open(w.dir, "")
	if err != nil {
		w.Fatal(err)
	}
	if w.s, err = Open(w.Context(), w.dir, Options{Vault: keys, Clock: func() time.Time { return w.now }}); err != nil {
		w.Fatal(err)
	}
}

func (w *secrets) set(tenant, name, value string, rotate bool) {
	w.Helper()
	if _, err := w.s.SetSecret(w.Context(), SecretOrder{Tenant: tenant, Name: name, Value: []byte(value), Rotate: rotate, Keep: time.Hour, By: "ann"}); err != nil {
		w.Fatal(err)
	}
}

func (w *secrets) finds(tenant, text string) int {
	w.Helper()
	key, all, err := w.s.SecretEntries(w.Context(), tenant)
	if err != nil {
		w.Fatal(err)
	}
	return len(secret.NewScanner(key, all).Scan(text))
}

func TestSecrets(t *testing.T) {
	w := openSecrets(t)
	w.set("main", "TOKEN", "first-value\n", false)
	w.set("other", "TOKEN", "others-value", false)
	if v, n, err := w.s.SecretValue(t.Context(), "main", "TOKEN"); v != "first-value\n" || n != 1 || err != nil {
		t.Errorf("the value is %q, %d, %v", v, n, err)
	}
	if w.finds("main", "x first-value") != 1 || w.finds("main", "others-value") != 0 || w.finds("none", "first-value") != 0 {
		t.Error("each tenant should find its own")
	}
	for _, c := range []struct {
		o    SecretOrder
		want error
	}{
		{SecretOrder{Name: "TOKEN", Value: []byte("another-value")}, ErrSecretSet},
		{SecretOrder{Name: "NONE", Value: []byte("another-value"), Rotate: true}, ErrNoSecret},
		{SecretOrder{Name: "no name", Value: []byte("another-value")}, ErrSecretName},
		{SecretOrder{Name: "SHORT", Value: []byte("short")}, secret.ErrShort},
	} {
		c.o.Tenant, c.o.By = "main", "ann"
		if _, err := w.s.SetSecret(t.Context(), c.o); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, not %v", c.o.Name, err, c.want)
		}
	}
	w.set("main", "TOKEN", "second-value", true)
	if got, err := w.s.Secrets(t.Context(), "main"); err != nil || len(got) != 1 || got[0].Version != 2 || got[0].Earlier != 1 {
		t.Errorf("listed %+v, %v", got, err)
	}
	if w.finds("main", "first-value second-value") != 2 {
		t.Error("after a rotation both values should be found")
	}
	for text, want := range map[string]bool{"second-value\n": true, "first-value": false} {
		if got, err := w.s.IsSecret(t.Context(), "main", "TOKEN", []byte(text)); got != want || err != nil {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	w.now = w.now.Add(time.Hour)
	if w.finds("main", "first-value second-value") != 1 {
		t.Error("an hour later the first value should be found no more")
	}
	if err := w.s.RemoveSecret(t.Context(), "main", "TOKEN", "ann"); err != nil {
		t.Fatal(err)
	}
	if w.finds("main", "first-value second-value") != 0 || w.finds("other", "others-value") != 1 {
		t.Error("only what was removed should be found no more")
	}
	if _, _, err := w.s.SecretValue(t.Context(), "main", "TOKEN"); !errors.Is(err, ErrNoSecret) {
		t.Errorf("a removed secret gives %v", err)
	}
	entries, err := w.s.AuditEntries(t.Context(), "main", 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	var did []audit.Action
	for _, e := range entries {
		did = append(did, e.Action)
	}
	if len(did) != 3 || did[0] != audit.SecretSet || did[1] != audit.SecretRotated || did[2] != audit.SecretRemoved {
		t.Errorf("recorded %v", did)
	}
}

// TestSecretsAreSealed looks for values, and for their forms, in the folder's bytes.
func TestSecretsAreSealed(t *testing.T) {
	w := openSecrets(t)
	const value = "hush-hush-hush-Value"
	w.set("main", "TOKEN", value, false)
	w.set("main", "TOKEN", value+"2", true)
	if err := w.s.Close(); err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(filepath.Join(w.dir, "*"))
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{"hush", "aHVzaC", "68757368", "%68%75", `"windows"`, `"digest"`} {
			if bytes.Contains(raw, []byte(part)) {
				t.Errorf("%s holds %s", filepath.Base(f), part)
			}
		}
	}
}

func TestFingerprintsThatCannotBeRead(t *testing.T) {
	for what, damage := range map[string]string{
		"missing":         "DELETE FROM secret_print WHERE tenant = 'main' AND name = 'TWO'",
		"of before":       "UPDATE secret_print SET until = 1 WHERE tenant = 'main'",
		"damaged":         "UPDATE secret_print SET sealed = substr(sealed, 1, length(sealed) - 1) || x'00' WHERE name = 'TWO' AND tenant = 'main'",
		"of another name": "UPDATE secret_print SET sealed = (SELECT sealed FROM secret_print WHERE name = 'ONE' AND tenant = 'main') WHERE name = 'TWO' AND tenant = 'main'",
		"of another key":  "UPDATE secret_key SET sealed = (SELECT sealed FROM secret_key WHERE tenant = 'other' AND purpose = 'print') WHERE tenant = 'main' AND purpose = 'print'",
		"without a key":   "DELETE FROM secret_key WHERE tenant = 'main' AND purpose = 'print'",
	} {
		t.Run(what, func(t *testing.T) {
			w := openSecrets(t)
			w.set("main", "ONE", "first-value", false)
			w.set("main", "TWO", "second-value", false)
			w.set("other", "ONE", "others-value", false)
			if err := w.s.Close(); err != nil {
				t.Fatal(err)
			}
			db, err := connect(w.dir, ownerPragmas)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := db.ExecContext(t.Context(), damage); err != nil {
				t.Fatal(err)
			}
			db.Close()
			w.open()
			if _, all, err := w.s.SecretEntries(t.Context(), "main"); !errors.Is(err, ErrFingerprints) || all != nil {
				t.Errorf("they give %v", err)
			}
			if w.finds("other", "others-value") != 1 {
				t.Error("other tenants should be as before")
			}
			w.s.Close()
		})
	}
}
