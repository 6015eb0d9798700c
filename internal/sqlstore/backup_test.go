package sqlstore

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/belay-run/belay/internal/audit"
	"github.com/belay-run/belay/internal/conversation"
	"github.com/belay-run/belay/internal/vault"
)

// A copy is of one moment while others write, and reads like the folder itself.
func TestACopyIsWholeWhileOthersWrite(t *testing.T) {
	dir, to := t.TempDir(), t.TempDir()
	s := open(t, dir, Options{})
	add(t, s, ann, says(1, "a marked text"))
	if err := s.Record(t.Context(), audit.Fact{Tenant: "main", Actor: "ann", Action: audit.JobStarted}, audit.Fact{Tenant: "other", Actor: "ann", Action: audit.JobStarted}); err != nil {
		t.Fatal(err)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for seq := int64(1); ; seq++ {
			select {
			case <-stop:
				return
			default:
				if err := s.Append(t.Context(), bob, []conversation.Event{says(seq, "more")}); err != nil {
					t.Error(err)
				}
			}
		}
	}()
	err := s.Backup(t.Context(), to)
	close(stop)
	<-stopped
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(to, database)); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatal(info, err)
	}
	copied, err := Attach(t.Context(), to, Options{Vault: keys(t, dir)})
	if err != nil {
		t.Fatal(err)
	}
	defer closeStore(t, copied)
	if err := copied.Whole(t.Context()); err != nil {
		t.Error(err)
	}
	if events := load(t, copied, ann); len(events) != 1 || events[0].Text != "a marked text" {
		t.Errorf("the copy has %+v", events)
	}
	if all, err := copied.AuditTenants(t.Context()); err != nil || strings.Join(all, " ") != "main other" {
		t.Error(all, err)
	}
	if all, err := copied.Agents(t.Context(), "main"); err != nil || strings.Join(all, " ") != "clinic" {
		t.Error(all, err)
	}
	if r, err := copied.Recipient(t.Context()); err != nil || r != keys(t, dir).Recipient() {
		t.Error(r, err)
	}
	if raw, err := os.ReadFile(filepath.Join(to, database)); err != nil || bytes.Contains(raw, []byte("a marked text")) {
		t.Error("the text stands in plain in the copy", err)
	}
	if err := s.Backup(t.Context(), to); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("a copy took another's place: %v", err)
	}
	if err := s.Backup(t.Context(), filepath.Join(to, "nowhere")); err == nil {
		t.Error("a copy was made in no folder")
	}
}

// What was deleted is not in a copy, not even as a key.
func TestACopyHasNothingThatWasDeleted(t *testing.T) {
	dir, to := t.TempDir(), t.TempDir()
	s := open(t, dir, Options{Clock: func() time.Time { return at }})
	add(t, s, ann, says(1, "gone"))
	add(t, s, bob, says(1, "stays"))
	if _, err := s.Delete(t.Context(), ann); err != nil {
		t.Fatal(err)
	}
	if err := s.Backup(t.Context(), to); err != nil {
		t.Fatal(err)
	}
	copied, err := Attach(t.Context(), to, Options{Vault: keys(t, dir)})
	if err != nil {
		t.Fatal(err)
	}
	defer closeStore(t, copied)
	if events := load(t, copied, ann); len(events) != 0 {
		t.Error(events)
	}
	if _, err := Attach(t.Context(), to, Options{Vault: keys(t, t.TempDir())}); !errors.Is(err, vault.ErrWrongKey) {
		t.Errorf("another key: %v", err)
	}
}
