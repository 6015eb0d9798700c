package tests

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	_ "modernc.org/sqlite" // to look into the file without the product

	"github.com/belay-run/belay/internal/app"
	"github.com/belay-run/belay/internal/app/apptest"
	"github.com/belay-run/belay/internal/server"
	"github.com/belay-run/belay/internal/turn"
)

// keeping is an agent's folder that keeps conversations for a time.
func keeping(keep string) apptest.Files {
	return apptest.Files{"agent.yml": "agent:\n  id: test\n  persona: You are a test.\nconversations:\n  keep: " + keep + "\n"}
}

// calendar is a time that a test sets, and the ticks at which an agent looks for
// what is past its time.
type calendar struct {
	mu    sync.Mutex
	now   time.Time
	ticks chan time.Time
}

func newCalendar() *calendar {
	return &calendar{now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), ticks: make(chan time.Time)}
}

func (c *calendar) time() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *calendar) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func (c *calendar) use(cfg *app.Config) { cfg.Clock, cfg.Sweeps = c.time, c.ticks }

// sweep has the agent look, and waits until it has: it takes a second tick only
// after the first.
func (c *calendar) sweep() {
	c.ticks <- time.Time{}
	c.ticks <- time.Time{}
}

// kept says whether the agent has each conversation.
func kept(t *testing.T, a *apptest.Agent, senders ...string) (out []bool) {
	t.Helper()
	for _, sender := range senders {
		events, err := a.App.Events(context.Background(), sender)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, len(events) > 0)
	}
	return out
}

// expired reads the counts of deletions and of failures.
func expired(a *apptest.Agent) (out []string) {
	page := httptest.NewRecorder()
	a.App.Metrics().ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
	for line := range strings.Lines(page.Body.String()) {
		if rest, ok := strings.CutPrefix(line, "belay_conversations_expired_total"); ok {
			out = append(out, strings.TrimSpace(rest))
		}
	}
	return out
}

func openDatabase(t *testing.T, data string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(data, "belay.db")+"?_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	return db
}

// sealedKeys are the data keys as they stand in the file.
func sealedKeys(t *testing.T, data string) (keys [][]byte) {
	t.Helper()
	db := openDatabase(t, data)
	defer db.Close()
	rows, err := db.Query("SELECT sealed FROM data_key WHERE used = 1 ORDER BY id")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var key []byte
		if err := rows.Scan(&key); err != nil {
			t.Fatal(err)
		}
		keys = append(keys, key)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return keys
}

// holding names the files of a folder that hold some bytes.
func holding(t *testing.T, dir string, what []byte) (files []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if bytes.Contains(text, what) {
			files = append(files, d.Name())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestRetention(t *testing.T) {
	t.Parallel()
	days := newCalendar()
	a := apptest.Start(t, keeping("90d"), days.use)

	t.Run("what is past its time is deleted at the next tick", func(t *testing.T) {
		a.Say("old", "my number is 4711-0815")
		keys := sealedKeys(t, a.Data)
		days.pass(80 * 24 * time.Hour)
		a.Say("young", "hello")
		days.pass(10 * 24 * time.Hour)
		days.sweep()
		expect(t, "kept on the last day", kept(t, a, "old", "young"), []bool{true, true})
		days.pass(time.Second)
		expect(t, "kept before the tick", kept(t, a, "old", "young"), []bool{true, true})
		days.sweep()
		expect(t, "kept", kept(t, a, "old", "young"), []bool{false, true})
		if lines, err := a.App.Traces(context.Background(), "old", ""); err != nil || len(lines) > 0 {
			t.Errorf("a trace is left: %v, %v", lines, err)
		}
		expect(t, "counted", expired(a), []string{`{outcome="deleted"} 1`, `{outcome="failed"} 0`})
		if log := a.Log(); !strings.Contains(log, `level=INFO msg="conversations past their time were deleted" conversations=1 keep=2160h0m0s`) {
			t.Errorf("the log does not say so:\n%s", log)
		}
		if len(keys) != 1 {
			t.Fatalf("%d keys", len(keys))
		}
		for _, gone := range [][]byte{keys[0], []byte("4711-0815")} {
			if files := holding(t, a.Data, gone); len(files) > 0 {
				t.Errorf("%v still hold what was deleted", files)
			}
		}
	})
	t.Run("who comes back begins anew", func(t *testing.T) {
		a.Say("old", "it is me")
		prompts := a.Prompts("old")
		if got := fmt.Sprint(prompts[len(prompts)-1]); strings.Contains(got, "4711") || !strings.Contains(got, "it is me") {
			t.Errorf("the model was told %s", got)
		}
		if events := a.Events("old"); events[0].Seq != 1 {
			t.Errorf("it begins with event %d", events[0].Seq)
		}
	})
	t.Run("never with a turn under way", func(t *testing.T) {
		a.Say("busy", "hello")
		days.pass(91 * 24 * time.Hour)
		asked, gate := make(chan struct{}), make(chan struct{})
		a.Next("busy", reached(asked, gate, apptest.Says("done")))
		ended := make(chan apptest.Reply, 1)
		go func() {
			r, err := a.Send(context.Background(), server.Inbound{Sender: "busy", Message: turn.Message{Text: "still there?"}})
			if err != nil {
				t.Error(err)
			}
			ended <- r
		}()
		<-asked
		days.pass(91 * 24 * time.Hour) // a turn that takes long
		days.sweep()
		expect(t, "kept in the turn", kept(t, a, "busy", "young"), []bool{true, false})
		close(gate)
		if r := awaited(t, ended); r.Text() != "done" {
			t.Errorf("the user heard %q", r.Text())
		}
		days.sweep()
		expect(t, "kept after the turn", kept(t, a, "busy"), []bool{true})
		if n := len(a.Events("busy")); n < 6 {
			t.Errorf("only %d events", n)
		}
	})
	t.Run("what cannot be deleted is logged and tried again", func(t *testing.T) {
		days.pass(91 * 24 * time.Hour)
		a.Say("fresh", "hello")
		before := expired(a)
		db := openDatabase(t, a.Data)
		defer db.Close()
		if _, err := db.Exec("CREATE TRIGGER broken BEFORE DELETE ON conversation BEGIN SELECT RAISE(ABORT, 'it is broken'); END"); err != nil {
			t.Fatal(err)
		}
		days.sweep()
		expect(t, "kept", kept(t, a, "busy", "fresh"), []bool{true, true})
		if log := a.Log(); !strings.Contains(log, `level=ERROR msg="conversations past their time could not be deleted; the next sweep tries again" attempts=1`) || !strings.Contains(log, "it is broken") {
			t.Errorf("the log does not say so:\n%s", log)
		}
		if now := expired(a); now[0] != before[0] || now[1] == before[1] {
			t.Errorf("the counts went from %v to %v", before, now)
		}
		if _, err := db.Exec("DROP TRIGGER broken"); err != nil {
			t.Fatal(err)
		}
		days.sweep()
		expect(t, "kept afterwards", kept(t, a, "busy", "fresh"), []bool{false, true})
	})
}

func TestRetentionAtTheStart(t *testing.T) {
	t.Parallel()
	dir, days := apptest.Folder(t, keeping("2h")), newCalendar()
	other := func(c *app.Config) { c.Tenant = "other" }
	for _, options := range [][]func(*app.Config){{days.use, other}, {days.use}} {
		a := apptest.StartIn(t, dir, options...)
		a.Say("old", "hello")
		a.Close()
	}
	days.pass(3 * time.Hour)
	a := apptest.StartIn(t, dir, days.use)
	expect(t, "kept", kept(t, a, "old"), []bool{false})

	t.Run("many are deleted in one go", func(t *testing.T) {
		const crowd = 70 // more than one batch
		for i := range crowd {
			a.Say(fmt.Sprint("user ", i), "hello")
		}
		days.pass(3 * time.Hour)
		days.sweep()
		if !strings.Contains(a.Log(), fmt.Sprintf("were deleted\" conversations=%d ", crowd)) {
			t.Errorf("not all were deleted:\n%s", a.Log())
		}
		if keys := sealedKeys(t, a.Data); len(keys) != 1 { // of the other tenant
			t.Errorf("%d keys are left", len(keys))
		}
	})

	// A new version of the folder counts from the next look on.
	a.Say("new", "hello")
	days.pass(3 * time.Hour)
	apptest.Write(t, dir, "agent.yml", keeping("4h")["agent.yml"])
	if err := a.App.Reload(context.Background()); err != nil {
		t.Fatal(err)
	}
	days.sweep()
	expect(t, "kept by the new version", kept(t, a, "new"), []bool{true})
	apptest.Write(t, dir, "agent.yml", "agent:\n  id: test\n  persona: You are a test.\n")
	if err := a.App.Reload(context.Background()); err != nil {
		t.Fatal(err)
	}
	days.pass(50 * 365 * 24 * time.Hour)
	days.sweep()
	expect(t, "kept for ever", kept(t, a, "new"), []bool{true})
	a.Close()

	// Another tenant's data is another's.
	b := apptest.StartIn(t, dir, days.use, other)
	expect(t, "kept of another tenant", kept(t, b, "old"), []bool{true})
}
