package control

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/belay-run/belay/internal/access"
	"github.com/belay-run/belay/internal/audit"
	"github.com/belay-run/belay/internal/job"
	"github.com/belay-run/belay/internal/policy"
)

// The client and the server understand one another on every path.
func TestClient(t *testing.T) {
	w := newWorld(t, Config{})
	w.fake.jobs = []job.Job{aJob()}
	w.fake.records = []job.Record{{Seq: 1, At: at, What: job.Begun, Key: "a"}, {Seq: 2, At: at, What: job.Timed, Key: "b"}}
	w.fake.approvals = []Approval{anApproval("a1")}
	w.fake.plugins = []Plugin{{Name: "acme", Digest: "sha256:1"}}
	w.fake.hooks = []Hook{{Name: "a.b"}}
	w.fake.policies = []Policy{{Version: "v1"}}
	w.fake.stages = []policy.Stage{{Name: "decision", Effect: policy.RequireApproval}}
	e, err := audit.Next(audit.Head{}, at, audit.Fact{Tenant: "main", Actor: "ann", Action: audit.JobStarted, Data: audit.Data{"x": "<&>"}})
	if err != nil {
		t.Fatal(err)
	}
	w.fake.entries = []audit.Entry{e}
	addr, _ := w.start(t)
	c := w.client(t, addr, "owner", "main")
	ctx := t.Context()
	try := func(what string, err error, asked string, ok bool) {
		t.Helper()
		if err != nil || !ok || asked != "" && w.fake.last() != asked {
			t.Errorf("%s: %v, %v, asked %s", what, ok, err, w.fake.last())
		}
	}
	health, err := c.Health(ctx)
	try("health", err, "", health.OK && health.Version == "1")
	who, err := c.Whoami(ctx)
	try("whoami", err, "", who.Owner && who.Name == "local:root" && who.Role == access.Admin && who.Tenant == "main")
	id, err := c.StartJob(ctx, JobOrder{Agent: "rev", Input: json.RawMessage(`"<a> & b"`)})
	try("start", err, `start main local:root rev "<a> & b"  `, id == "job-1")
	jobs, err := c.Jobs(ctx, "rev", 7, job.Failed, job.Running)
	try("jobs", err, `jobs {"Tenant":"main","States":["failed","running"],"Agent":"rev","Limit":7}`, len(jobs) == 1 && jobs[0].End.Code == "HookDenied")
	jobs, err = c.Jobs(ctx, "", 0)
	try("all jobs", err, `jobs {"Tenant":"main","States":null,"Agent":"","Limit":100}`, len(jobs) == 1)
	h, err := c.Job(ctx, "j1", 1)
	try("job", err, "history main/j1", h.Job.By == "ann" && len(h.History) == 1 && h.History[0].Seq == 2)
	try("cancel", c.CancelJob(ctx, "j/1", "why"), "cancel main/j/1 local:root why", true)
	r, err := c.ReplayJob(ctx, "j1")
	try("replay", err, "replay main/j1", len(r.Open) == 1)
	list, err := c.Approvals(ctx, "waiting", "j1", 3)
	try("approvals", err, `approvals main {"Waiting":true,"Decided":false,"Job":"j1","Limit":3}`, len(list) == 1 && list[0].Digest == job.Digest{0xab})
	a, err := c.Approval(ctx, "a1")
	try("approval", err, "approval main a1", string(a.Request.Arguments) == `{"branch":"main"}`)
	a, err = c.Decide(ctx, "a1", DecisionOrder{Decision: "approve", Digest: a.Digest.String()})
	try("decide", err, "approval main a1", a.State == Approved && a.Decided.By == "local:root")
	plugins, err := c.Plugins(ctx)
	try("plugins", err, "plugins main", len(plugins) == 1)
	in, err := c.InstallPlugin(ctx, PluginOrder{Path: "/p"})
	try("install", err, `install main local:root  {"path":"/p"}`, in.Plugin.Name == "acme")
	_, err = c.InstallPlugin(ctx, PluginOrder{Path: "/p", Name: "acme"})
	try("update", err, `install main local:root acme {"path":"/p"}`, true)
	try("remove", c.RemovePlugin(ctx, "acme", true), "remove main local:root acme forced", true)
	try("move", c.MovePlugin(ctx, "acme", "b"), "move main local:root acme b", true)
	try("grant", c.GrantModel(ctx, "acme", true), "grant main local:root acme yes", true)
	hooks, err := c.Hooks(ctx, HookQuery{Event: "job_end", Tool: "a.b", Agent: "rev"})
	try("hooks", err, "hooks main job_end a.b rev", len(hooks) == 1)
	p, err := c.Policy(ctx)
	try("policy", err, "policy main", p.Default)
	p, err = c.PolicyVersion(ctx, "sha256:a")
	try("policy version", err, "policy version main sha256:a", p.Version == "sha256:a")
	versions, err := c.PolicyVersions(ctx)
	try("policy versions", err, "policy versions main", len(versions) == 1)
	change, err := c.ApplyPolicy(ctx, PolicyOrder{Text: ""})
	try("apply", err, `apply main local:root {"text":""}`, change.Policy.Version == "v1")
	lint, err := c.LintPolicy(ctx, "rules: [")
	try("lint", err, "", !lint.OK && len(lint.Findings) > 0)
	stages, err := c.ExplainCall(ctx, ExplainOrder{Call: ExplainQuery{Tool: "a.b"}})
	try("explain", err, `explain main  {"tool":"a.b"}`, len(stages) == 1 && stages[0].Effect == policy.RequireApproval)
	entries, err := c.Audit(ctx, -1, 0)
	ok, _ := audit.Verify(entries.Entries)
	try("audit", err, "", ok && len(entries.Entries) == 1)
	entries, err = c.Audit(ctx, 1, 10)
	try("audit after", err, "", len(entries.Entries) == 0 && entries.Head.Seq == 1)
	report, err := c.VerifyAudit(ctx, entries.Head.String())
	try("verify", err, "", report.OK)
	made, err := c.CreateToken(ctx, TokenOrder{Name: "new", Role: "viewer"})
	try("create token", err, "create token main local:root new viewer", len(made.Secret) > 50)
	tokens, err := c.Tokens(ctx)
	try("tokens", err, "", len(tokens) == 5)
	revoked, err := c.RevokeToken(ctx, "new")
	try("revoke", err, "revoke main new local:root", revoked.RevokedBy == "local:root")
}

func TestTheClientGetsProblems(t *testing.T) {
	w := newWorld(t, Config{})
	a := anApproval("a1")
	a.State, a.Decided = Approved, &Decided{By: "bob", At: at}
	w.fake.approvals = []Approval{a}
	addr, _ := w.start(t)
	_, err := w.client(t, addr, "admin", "").Decide(t.Context(), "a1", DecisionOrder{Decision: "deny"})
	var p *Problem
	if !errors.As(err, &p) || !errors.Is(err, &Problem{Code: AlreadyDecided}) || p.Decided == nil || p.Decided.By != "bob" || p.Status != 409 {
		t.Errorf("%v", err)
	}
	if _, err := w.client(t, addr, "viewer", "other").Jobs(t.Context(), "", 0); !errors.Is(err, &Problem{Code: Forbidden}) || !strings.Contains(err.Error(), "another tenant") {
		t.Errorf("%v", err)
	}
	stranger := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/jobs" {
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
			return
		}
		_, _ = w.Write([]byte("<html>"))
	}))
	defer stranger.Close()
	c := w.client(t, stranger.URL, "admin", "")
	if _, err := c.Jobs(t.Context(), "", 0); !errors.As(err, &p) || p.Status != http.StatusFound || !strings.Contains(err.Error(), "is it a belay") {
		t.Errorf("%v", err)
	}
	if _, err := c.Policy(t.Context()); err == nil || errors.As(err, &p) && p.Status == 200 {
		t.Errorf("%v", err)
	}
	if _, err := w.client(t, "127.0.0.1:1", "admin", "").Jobs(t.Context(), "", 0); !errors.Is(err, ErrNoOwner) || !strings.Contains(err.Error(), "belay serve") {
		t.Errorf("%v", err)
	}
	if _, err := w.client(t, "::", "admin", "").Jobs(t.Context(), "", 0); err == nil {
		t.Error("an address that is none")
	}
}

// follow follows the feed and hands on what it says.
func follow(t *testing.T, c *Client) (<-chan string, func() error) {
	t.Helper()
	events, ended := make(chan string, 100), make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		ended <- c.FollowApprovals(ctx, func(e ApprovalEvent) error {
			events <- strings.TrimSpace(e.Name + " " + e.Approval.ID + " " + string(e.Approval.State) + string(e.Approval.Request.Arguments))
			return nil
		})
	}()
	t.Cleanup(cancel)
	return events, func() error { cancel(); return within(t, ended, "the end of the feed") }
}

func (w *world) change(change func(f *fake)) {
	w.fake.mu.Lock()
	defer w.fake.mu.Unlock()
	change(w.fake)
	w.fake.wake()
}

func TestTheFeedTellsWhatWaits(t *testing.T) {
	w := newWorld(t, Config{beat: 5 * time.Millisecond})
	w.fake.approvals = []Approval{anApproval("a1"), {ID: "old", State: Denied}}
	addr, _ := w.start(t)
	events, end := follow(t, w.client(t, addr, "viewer", ""))
	want := func(all ...string) {
		t.Helper()
		for _, e := range all {
			if got := within(t, events, e); got != e {
				t.Fatalf("got %s, want %s", got, e)
			}
		}
	}
	want("waiting a1 waiting", "ready")
	w.change(func(f *fake) { f.approvals = append(f.approvals, anApproval("a2"), anApproval("a3")) })
	want("waiting a2 waiting", "waiting a3 waiting")
	if _, err := w.client(t, addr, "approver", "").Decide(t.Context(), "a2", DecisionOrder{Decision: "approve"}); err != nil {
		t.Fatal(err)
	}
	want("decided a2 approved")
	w.change(func(f *fake) {}) // nothing that it has not told
	w.change(func(f *fake) { f.approvals[0].State = Expired })
	want("decided a1 expired")
	if err := end(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	within(t, w.fake.left, "the server lets go of the feed")
}

func TestTheFeedEndsWithAReason(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(w *world, stop func() error)
		want Code
	}{
		"the service fails": {func(w *world, _ func() error) { w.change(func(f *fake) { f.err = errors.New("the disk is gone") }) }, Unavailable},
		"the server stops":  {func(_ *world, stop func() error) { go func() { _ = stop() }() }, Unavailable},
		"the changes end":   {func(w *world, _ func() error) { w.fake.mu.Lock(); close(w.fake.changed[0]); w.fake.mu.Unlock() }, Unavailable},
		"the token is ended": {func(w *world, _ func() error) {
			_, _ = w.fake.RevokeToken(context.Background(), "main", "the-viewer", "x")
		}, Unauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, Config{beat: 5 * time.Millisecond})
			addr, stop := w.start(t)
			client := w.client(t, addr, "viewer", "")
			ready, ended := make(chan struct{}), make(chan error, 1)
			go func() {
				ended <- client.FollowApprovals(t.Context(), func(ApprovalEvent) error { close(ready); return nil })
			}()
			within(t, ready, "ready")
			c.do(w, stop)
			if err := within(t, ended, "the end"); !errors.Is(err, &Problem{Code: c.want}) {
				t.Errorf("%v", err)
			}
		})
	}
	w := newWorld(t, Config{})
	addr, _ := w.start(t)
	enough := errors.New("enough")
	if err := w.client(t, addr, "viewer", "").FollowApprovals(t.Context(), func(ApprovalEvent) error { return enough }); !errors.Is(err, enough) {
		t.Error(err)
	}
}

func TestARequestThatRunsIsEndedWithTheServer(t *testing.T) {
	w := newWorld(t, Config{Grace: 10 * time.Millisecond})
	began := make(chan struct{})
	w.service.Plugins = slow{w.fake, began}
	addr, stop := w.start(t)
	ended := make(chan error, 1)
	go func() {
		_, err := w.client(t, addr, "admin", "").InstallPlugin(t.Context(), PluginOrder{Path: "/p"})
		ended <- err
	}()
	within(t, began, "the installation")
	if err := stop(); err != nil {
		t.Error(err)
	}
	if err := within(t, ended, "the answer"); !errors.Is(err, &Problem{Code: Unavailable}) {
		t.Error(err)
	}
}

type slow struct {
	*fake
	began chan struct{}
}

func (s slow) InstallPlugin(ctx context.Context, _ Caller, _ PluginOrder) (Installation, error) {
	close(s.began)
	<-ctx.Done()
	return Installation{}, ctx.Err()
}

func TestOwner(t *testing.T) {
	dir := t.TempDir()
	if _, err := ReadOwner(dir); !errors.Is(err, ErrNoOwner) || !strings.Contains(err.Error(), "belay serve") {
		t.Error(err)
	}
	secret, _ := access.NewKey("root")
	mine := Owner{Address: "127.0.0.1:1", Token: secret, PID: 7}
	if err := WriteOwner(dir, mine); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, ownerFile)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info.Mode(), err)
	}
	other := mine
	other.PID = 8
	if err := errors.Join(WriteOwner(dir, other), RemoveOwner(dir, mine)); err != nil { // the next owner's stays
		t.Error(err)
	}
	if got, err := ReadOwner(dir); err != nil || got != other || got.Token.Reveal() != secret.Reveal() {
		t.Error(got, err)
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) != 1 {
		t.Error(all, err)
	}
	if err := errors.Join(RemoveOwner(dir, other), RemoveOwner(dir, other)); err != nil {
		t.Error(err)
	}
	if _, err := ReadOwner(dir); !errors.Is(err, ErrNoOwner) {
		t.Error(err)
	}
	for text, mode := range map[string]os.FileMode{`{}`: 0o600, `nonsense`: 0o600, `{"address":"a","token":"b"}`: 0o644} {
		if err := errors.Join(os.WriteFile(path, []byte(text), mode), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadOwner(dir); err == nil || errors.Is(err, ErrNoOwner) || !strings.Contains(err.Error(), "remove it") {
			t.Errorf("%s: %v", text, err)
		}
	}
	if err := WriteOwner(filepath.Join(dir, "nowhere"), mine); err == nil {
		t.Error("written nowhere")
	}
}
