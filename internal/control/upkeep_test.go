package control

import (
	"context"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/belay-run/belay/internal/agentjob"
)

func (f *fake) ShadowReport(_ context.Context, tenant string, jobs int) (ShadowReport, error) {
	return ShadowReport{Jobs: jobs, Hooks: []agentjob.Shadow{{Plugin: "acme", Hook: "acme.check", Event: "job_end", Asked: 3, Denied: 1}}}, f.ask("shadow", tenant)
}

func (f *fake) Checkup(_ context.Context, tenant string) ([]Check, error) {
	return []Check{{Level: Warning, About: "plugin acme", Text: "it is not well", Hint: "look"}}, f.ask("checkup", tenant)
}

func (f *fake) Backup(_ context.Context, c Caller, path string) (Backup, error) {
	return Backup{Path: path, Made: at}, f.ask("backup", c.Name, path)
}

func TestOnlyTheOwnerCopiesTheDataFolder(t *testing.T) {
	w := newWorld(t, Config{})
	if p := problemIn(t, w.do("admin", "POST", "/v1/backups", `{"path":"/to/b.tar"}`), http.StatusUnprocessableEntity, Invalid); !strings.Contains(p.Detail, "all tenants") {
		t.Error(p)
	}
	if got := w.fake.last(); got != "" {
		t.Errorf("the service was asked: %s", got)
	}
	problemIn(t, w.do("owner", "POST", "/v1/backups", `{"path":"b.tar"}`), http.StatusUnprocessableEntity, Invalid)
	if rec := w.do("owner", "POST", "/v1/backups", `{"path":"/to/b.tar"}`); rec.Code != http.StatusCreated || w.fake.last() != "backup local:root /to/b.tar" {
		t.Errorf("%d %s; %s", rec.Code, rec.Body, w.fake.last())
	}
}

func TestTheClientAsksHowThingsAre(t *testing.T) {
	w := newWorld(t, Config{})
	addr, stop := w.start(t)
	defer func() { _ = stop() }()
	c := NewClient(addr, w.secret["admin"], "")
	defer c.Close()
	if all, err := c.Checkup(t.Context()); err != nil || len(all) != 1 || all[0].Hint != "look" {
		t.Error(all, err)
	}
	if r, err := c.ShadowReport(t.Context(), 7); err != nil || r.Jobs != 7 || r.Hooks[0].Denied != 1 || r.Hooks[0].Changes() != 1 {
		t.Error(r, err)
	}
	owner := NewClient(addr, w.secret["owner"], "other")
	defer owner.Close()
	if b, err := owner.Backup(t.Context(), "/to/b.tar"); err != nil || b.Path != "/to/b.tar" || !b.Made.Equal(at) {
		t.Error(b, err)
	}
}

// The page of the API has every path with its role, and no other.
func TestThePageHasEveryPath(t *testing.T) {
	const page = "../../docs/reference/control-api.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("(?m)^\\| `(GET|POST|DELETE) (/\\S+)` \\| (\\w+) \\|").FindAllStringSubmatch(string(text), -1)
	if len(rows) != len(paths)+1 { // healthz needs no role
		t.Errorf("%s has %d paths, the API %d", page, len(rows), len(paths)+1)
	}
	for _, p := range paths {
		if !slices.ContainsFunc(rows, func(r []string) bool { return r[1] == p.method && matches(r[2], p.path) && r[3] == p.role.String() }) {
			t.Errorf("%s lacks %s %s with the role %s", page, p.method, p.path, p.role)
		}
	}
}
