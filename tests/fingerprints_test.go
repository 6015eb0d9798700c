package tests

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/belay-run/belay/internal/approval"
	"github.com/belay-run/belay/internal/job"
)

// printDamages are what may have become of the fingerprints of the secrets TOKEN and
// OTHER of main.
var printDamages = map[string]string{
	"all are missing":               "DELETE FROM secret_print",
	"one of two is missing":         "DELETE FROM secret_print WHERE tenant = 'main' AND name = 'OTHER'",
	"one is of a former value":      "UPDATE secret SET version = 2 WHERE tenant = 'main' AND name = 'OTHER'",
	"one is zeros":                  "UPDATE secret_print SET sealed = zeroblob(length(sealed)) WHERE name = 'OTHER'",
	"one is empty":                  "UPDATE secret_print SET sealed = x'' WHERE name = 'OTHER'",
	"one is cut":                    "UPDATE secret_print SET sealed = substr(sealed, 1, length(sealed) - 1) WHERE name = 'OTHER'",
	"one is another secret's":       "UPDATE secret_print SET sealed = (SELECT sealed FROM secret_print WHERE tenant = 'main' AND name = 'TOKEN') WHERE name = 'OTHER'",
	"one is another tenant's":       "UPDATE secret_print SET sealed = (SELECT sealed FROM secret_print WHERE tenant = 'else') WHERE tenant = 'main' AND name = 'TOKEN'",
	"their key is missing":          "DELETE FROM secret_key WHERE tenant = 'main' AND purpose = 'print'",
	"their key is another tenant's": "UPDATE secret_key SET sealed = (SELECT sealed FROM secret_key WHERE tenant = 'else' AND purpose = 'print') WHERE tenant = 'main' AND purpose = 'print'",
	"their key is damaged":          "UPDATE secret_key SET sealed = zeroblob(length(sealed)) WHERE tenant = 'main' AND purpose = 'print'",
}

func TestFingerprintsThatCannotBeReliedOn(t *testing.T) {
	t.Parallel()
	for _, what := range []struct {
		decides string // what on_timeout decides
		hook    string
		check   func(t *testing.T, g *secretJobs)
	}{
		{"deny", "timeout: 30s, on_timeout: deny", func(t *testing.T, g *secretJobs) {
			g.looks("a result")
			if read := g.reads(); len(read) != 1 || strings.Contains(read[0], "a result") || !strings.Contains(read[0], "withheld") {
				t.Errorf("the model reads %q", read)
			}
		}},
		{"allow", "timeout: 30s, on_timeout: allow", func(t *testing.T, g *secretJobs) {
			g.looks("a result")
			if read := g.reads(); len(read) != 1 || read[0] != "a result" {
				t.Errorf("the model reads %q", read)
			}
		}},
		{"a person", "timeout: 30s, decisions: [allow, escalate]", func(t *testing.T, g *secretJobs) {
			g.answers(map[string]any{"look": "a result"})
			id := g.start("go")
			asked := g.waits(1)[0]
			if len(asked.Request.Reasons) == 0 || strings.Contains(string(asked.Request.Value), "a result") {
				t.Errorf("nobody can say that there is no secret in it, and yet a person is shown %s", asked.Request.Value)
			}
			g.decide(asked, approval.Answer{Yes: true})
			g.end(id)
		}},
	} {
		t.Run(what.decides, func(t *testing.T) {
			t.Parallel()
			g := startSecrets(t, "hooks:\n  - {on: post_tool_call, call: guard.watch, scan: [secrets], "+what.hook+"}\n")
			g.set("main", "OTHER", "another-value")
			g.set("else", "TOKEN", "value-of-else")
			beside := g.beside()
			beside("CREATE TEMP TABLE sound_secret AS SELECT * FROM secret", "CREATE TEMP TABLE sound_print AS SELECT * FROM secret_print", "CREATE TEMP TABLE sound_key AS SELECT * FROM secret_key")
			mend := func() {
				beside("DELETE FROM secret", "DELETE FROM secret_print", "DELETE FROM secret_key", "INSERT INTO secret SELECT * FROM sound_secret",
					"INSERT INTO secret_print SELECT * FROM sound_print", "INSERT INTO secret_key SELECT * FROM sound_key")
			}
			for how, damage := range printDamages {
				t.Run("P42 the hook is not asked, and what decides is "+what.decides+": "+how, func(t *testing.T) {
					mend()
					g.set("main", "EXTRA", "to-be-removed")
					beside(damage)
					_ = g.st.RemoveSecret(t.Context(), g.me, "EXTRA") // has fingerprints read anew, which fails
					what.check(t, g)
					if seen := g.told("post_tool_call"); len(seen) != 0 {
						t.Error("the hook was asked")
					}
					if why := g.failure(g.newest()); !strings.Contains(why, "fingerprints") {
						t.Errorf("the record says %q", why)
					}
					if !strings.Contains(g.log.String(), "a hook is not asked: it cannot be told where secrets are") {
						t.Errorf("the log does not say why:\n%s", g.log)
					}
				})
			}
			t.Run("P42 also after a restart, which says so", func(t *testing.T) {
				g.harm(printDamages["all are missing"])
				what.check(t, g)
				if seen := g.told("post_tool_call"); len(seen) != 0 {
					t.Error("the hook was asked")
				}
			})
			t.Run("P42 once all are there, the record says why, and the hook is asked", func(t *testing.T) {
				mend()
				g.restart()
				if why := g.failure(g.newest()); !strings.Contains(why, "it cannot be told where the tenant's secrets are: the fingerprints of secrets are missing or cannot be read") {
					t.Errorf("the record says %q", why)
				}
				g.looks("a result")
				if seen := g.told("post_tool_call"); len(seen) != 1 {
					t.Errorf("asked %d times\n%s", len(seen), g.log)
				}
			})
		})
	}
}

// beside gives what changes the database while the station has it.
func (g *secretJobs) beside() func(statements ...string) {
	g.t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(g.data, "belay.db")+"?_pragma=busy_timeout(10000)")
	if err != nil {
		g.t.Fatal(err)
	}
	db.SetMaxOpenConns(1) // temporary tables are a connection's
	g.t.Cleanup(func() { _ = db.Close() })
	return func(statements ...string) {
		g.t.Helper()
		for _, one := range statements {
			if _, err := db.Exec(one); err != nil {
				g.t.Fatal(one, err)
			}
		}
	}
}

// newest is the job that was started last.
func (g *secretJobs) newest() job.ID {
	g.t.Helper()
	all, err := g.st.Jobs(g.t.Context(), job.Filter{Tenant: g.me.Tenant, Limit: 1})
	if err != nil || len(all) != 1 {
		g.t.Fatal(all, err)
	}
	return all[0].ID
}

// failure is why the hook of a job was not asked, as people are shown it.
func (g *secretJobs) failure(id job.ID) string {
	g.t.Helper()
	h, err := g.st.History(g.t.Context(), id)
	if err != nil {
		g.t.Fatal(err)
	}
	var out []string
	for _, r := range h.Records {
		if r.Answer != nil && r.Answer.Failure != nil && strings.Contains(r.Key, "guard.watch") {
			out = append(out, fmt.Sprintf("%s: %s", r.Answer.Failure.Kind, r.Answer.Failure.Message))
		}
	}
	return strings.Join(out, "\n")
}
