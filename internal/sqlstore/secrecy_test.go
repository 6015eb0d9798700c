package sqlstore

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/belay-run/belay/internal/conversation"
	"github.com/belay-run/belay/internal/vault"
)

// contains names the files of a folder that hold these bytes.
func contains(t *testing.T, dir string, wanted []byte) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	var with []string
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(b, wanted) {
			with = append(with, filepath.Base(f))
		}
	}
	return strings.Join(with, " ")
}

func sealedKey(t *testing.T, s *Store, id conversation.ID) []byte {
	t.Helper()
	found, err := s.find(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return found.Sealed
}

func TestNoTextStandsInAnyFile(t *testing.T) {
	const planted = "4111-planted-1111"
	dir := t.TempDir()
	s := open(t, dir, Options{})
	check := func(when string) {
		t.Helper()
		if with := contains(t, dir, []byte(planted)); with != "" {
			t.Errorf("%s: the text stands in %s", when, with)
		}
	}
	args := json.RawMessage(`{"card":"` + planted + `"}`)
	add(t, s, ann,
		conversation.Event{Seq: 1, Kind: conversation.User, Text: planted, Extra: args},
		conversation.Event{Seq: 2, Kind: conversation.ToolBatch, Batch: []conversation.ToolRun{{Name: planted, Arguments: args}}},
		conversation.Event{Seq: 3, Kind: conversation.ToolExecuted, Tool: &conversation.ToolRun{Arguments: args, Result: planted}},
		conversation.Event{Seq: 4, Kind: conversation.Bot, Text: strings.Repeat(planted, 10<<10), Note: planted,
			Discarded: &conversation.Discarded{Reason: planted}},
	)
	if err := s.AppendTrace(t.Context(), ann, []conversation.Trace{{Data: args}, {Data: json.RawMessage(`"` + strings.Repeat(planted, 10<<10) + `"`)}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	check("while the store is open")
	if there, err := s.Delete(t.Context(), ann); !there || err != nil {
		t.Fatal(there, err)
	}
	check("after the deletion")
	closeStore(t, s)
	check("after the close")
}

func TestADeletedConversationsKeyIsInNoFile(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	add(t, s, ann, says(1, "a"))
	add(t, s, bob, says(1, "b"))
	gone, kept := sealedKey(t, s, ann), sealedKey(t, s, bob)
	if contains(t, dir, gone) == "" {
		t.Fatal("this test does not see the key while it is there")
	}
	if there, err := s.Delete(t.Context(), ann); !there || err != nil {
		t.Fatal(there, err)
	}
	if with := contains(t, dir, gone); with != "" {
		t.Errorf("the key is still in %s", with)
	}
	if got := contains(t, dir, kept); got == "" {
		t.Error("the other conversation's key is gone too")
	}
	if got := load(t, s, ann); len(got) != 0 {
		t.Errorf("%d events are left", len(got))
	}
	if there, err := s.Delete(t.Context(), ann); there || err != nil {
		t.Errorf("deleted twice: %v, %v", there, err)
	}
	add(t, s, ann, says(1, "anew"))
	if got := load(t, s, ann); len(got) != 1 || got[0].Text != "anew" {
		t.Errorf("the new conversation has %v", got)
	}
	if bytes.Equal(sealedKey(t, s, ann), gone) {
		t.Error("the new conversation has the old key")
	}
}

func TestManyDeletionsLeaveNoKeyBehind(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{cached: 8})
	random := rand.New(rand.NewPCG(1, 2))
	live := map[conversation.ID][]byte{}
	var ids []conversation.ID
	var gone [][]byte
	for i := range 200 {
		if len(ids) > 5 && random.IntN(100) < 45 {
			n := random.IntN(len(ids))
			id := ids[n]
			ids = append(ids[:n], ids[n+1:]...)
			gone = append(gone, live[id])
			delete(live, id)
			if there, err := s.Delete(t.Context(), id); !there || err != nil {
				t.Fatal(there, err)
			}
			continue
		}
		id := conversation.ID{Sender: strings.Repeat("s", random.IntN(50)) + fmt.Sprint(i)}
		add(t, s, id, says(1, strings.Repeat("x", random.IntN(3000))))
		live[id], ids = sealedKey(t, s, id), append(ids, id)
	}
	closeStore(t, s)
	data, err := os.ReadFile(filepath.Join(dir, database))
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range gone {
		// The end of a sealed key alone is of no use, nor is its beginning; yet
		// neither should be there. All begin alike.
		for _, part := range [][]byte{key[50:], key[80:120], key[len(key)-40:]} {
			if bytes.Contains(data, part) {
				t.Fatal("a deleted key, or part of it, is still in the file")
			}
		}
	}
	for _, key := range live {
		if !bytes.Contains(data, key) {
			t.Fatal("a living key is not in the file")
		}
	}
	var slots int
	s = open(t, dir, Options{})
	if err := s.reads.QueryRowContext(t.Context(), "SELECT count(*) FROM data_key").Scan(&slots); err != nil {
		t.Fatal(err)
	}
	if slots > len(live)+len(gone)/2 {
		t.Errorf("%d rows for %d keys: those of %d deleted ones are not used again", slots, len(live), len(gone))
	}
}

// tamper runs SQL on a closed store's file, as another program would.
func tamper(t *testing.T, dir, sql string) {
	t.Helper()
	db, err := connect(dir, guestPragmas)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestRowsThatWereChangedOrSwappedAreRefused(t *testing.T) {
	big := strings.Repeat("x", 40<<10)
	for name, sql := range map[string]string{
		"bodies swapped":        "UPDATE event SET body = (SELECT e.body FROM event AS e WHERE e.seq = 3 - event.seq AND e.conversation = event.conversation) WHERE conversation = 1 AND seq < 3",
		"kind changed":          "UPDATE event SET kind = 'bot' WHERE seq = 2",
		"turn changed":          "UPDATE event SET turn = 'other' WHERE seq = 2",
		"time changed":          "UPDATE event SET at = at + 1 WHERE seq = 2",
		"one byte changed":      "UPDATE event SET body = substr(body, 1, 40) || x'00' || substr(body, 42)",
		"body emptied":          "UPDATE event SET body = x''",
		"blob changed":          "UPDATE blob SET body = substr(body, 1, 40) || x'00' || substr(body, 42)",
		"blobs swapped":         "UPDATE blob SET body = (SELECT b.body FROM blob AS b WHERE b.digest <> blob.digest AND b.conversation = 1)",
		"conversations swapped": "UPDATE conversation SET key_id = 3 - key_id; UPDATE event SET conversation = 3 - conversation, seq = seq + 10; UPDATE event SET seq = seq - 10",
		"key emptied":           "UPDATE data_key SET sealed = zeroblob(length(sealed))",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, dir, Options{})
			add(t, s, ann, says(1, "a"), says(2, "b"), says(3, big), says(4, big+"y"))
			add(t, s, bob, says(1, "c"), says(2, "d"))
			closeStore(t, s)
			tamper(t, dir, sql)
			s = open(t, dir, Options{})
			events, err := s.Load(t.Context(), ann)
			if err == nil {
				t.Fatalf("the record is taken as good: %d events", len(events))
			}
			if !strings.Contains(err.Error(), "backup") && !strings.Contains(err.Error(), "damaged") {
				t.Errorf("error without a hint: %v", err)
			}
		})
	}
}

func TestAnotherMasterKeyIsRefused(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	add(t, s, ann, says(1, "a"))
	closeStore(t, s)
	other := keys(t, t.TempDir())
	for name, err := range map[string]error{
		"Open":   second(Open(t.Context(), dir, Options{Vault: other})),
		"Attach": second(Attach(t.Context(), dir, Options{Vault: other})),
	} {
		if !errors.Is(err, vault.ErrWrongKey) || !strings.Contains(err.Error(), "BELAY_KEY_FILE") || !strings.Contains(err.Error(), other.Recipient()) {
			t.Errorf("%s: error %v, want ErrWrongKey with both keys and a hint", name, err)
		}
	}
	s = open(t, dir, Options{}) // and nothing of it has stuck
	if got := load(t, s, ann); len(got) != 1 {
		t.Errorf("%d events", len(got))
	}
}

func second[T any](_ T, err error) error { return err }
