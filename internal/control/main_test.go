package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/belay-run/belay/internal/access"
	"github.com/belay-run/belay/internal/approval"
	"github.com/belay-run/belay/internal/audit"
	"github.com/belay-run/belay/internal/job"
	"github.com/belay-run/belay/internal/policy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var at = time.Date(2026, 11, 3, 9, 45, 0, 0, time.UTC)

// fake is a service whose answers a test sets. It writes down what it is asked.
type fake struct {
	mu     sync.Mutex
	asked  []string
	err    error // of everything
	tokens []access.Token
	panics bool

	jobs      []job.Job
	records   []job.Record
	approvals []Approval
	changed   []chan struct{}
	left      chan struct{} // gets a value when a feed has ended
	decide    func(a *Approval, by string, answer approval.Answer) error
	plugins   []Plugin
	hooks     []Hook
	policies  []Policy
	stages    []policy.Stage
	entries   []audit.Entry
	health    Health
	calls     []ModelCall
	spent     SpendReport
}

func (f *fake) ask(words ...string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, strings.Join(words, " "))
	if f.panics {
		panic(errors.New("a secret text"))
	}
	return f.err
}

func (f *fake) last() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.asked) == 0 {
		return ""
	}
	return f.asked[len(f.asked)-1]
}

func (f *fake) StartJob(_ context.Context, c Caller, o JobOrder) (job.ID, error) {
	return job.ID{Tenant: c.Tenant, Job: "job-1"}, f.ask("start", c.Tenant, c.Name, o.Agent, string(o.Input), o.ID, o.Model)
}

func (f *fake) Jobs(_ context.Context, q job.Filter) ([]job.Job, error) {
	raw, _ := json.Marshal(q)
	return f.jobs, f.ask("jobs", string(raw))
}

func (f *fake) History(_ context.Context, id job.ID) (job.History, error) {
	if err := f.ask("history", id.String()); err != nil {
		return job.History{}, err
	}
	for _, j := range f.jobs {
		if j.ID == id {
			return job.History{Job: j, Records: f.records}, nil
		}
	}
	return job.History{}, job.ErrNoJob
}

func (f *fake) Cancel(_ context.Context, id job.ID, by, reason string) error {
	return f.ask("cancel", id.String(), by, reason)
}

func (f *fake) Replay(_ context.Context, id job.ID) (job.Report, error) {
	return job.Report{Open: []string{"x"}}, f.ask("replay", id.String())
}

func (f *fake) Approvals(_ context.Context, tenant string, q ApprovalFilter) ([]Approval, error) {
	raw, _ := json.Marshal(q)
	if err := f.ask("approvals", tenant, string(raw)); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []Approval
	for _, a := range f.approvals {
		if a.State == Waiting && q.Waiting || a.State != Waiting && q.Decided {
			out = append(out, a)
		}
	}
	return out, nil
}

func (f *fake) Approval(_ context.Context, tenant, id string) (Approval, error) {
	if err := f.ask("approval", tenant, id); err != nil {
		return Approval{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range f.approvals {
		if a.ID == id && tenant == "main" {
			return a, nil
		}
	}
	return Approval{}, Refuse(NotFound, "there is no such approval", "belay approval list shows those that are")
}

func (f *fake) Decide(_ context.Context, c Caller, id string, seen job.Digest, answer approval.Answer) error {
	raw, _ := json.Marshal(answer)
	if err := f.ask("decide", c.Tenant, c.Name, id, seen.String()[:4], string(raw)); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.IndexFunc(f.approvals, func(a Approval) bool { return a.ID == id })
	a := &f.approvals[i]
	if f.decide != nil {
		return f.decide(a, c.Name, answer)
	}
	if a.State != Waiting {
		return job.ErrDecided
	}
	a.State, a.Decided = Denied, &Decided{By: c.Name, At: at, Note: answer.Note, Action: answer.Action}
	if answer.Yes {
		a.State = Approved
	}
	f.wake()
	return nil
}

// wake tells the feeds; the caller holds mu.
func (f *fake) wake() {
	for _, c := range f.changed {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

func (f *fake) ApprovalChanges(string) (<-chan struct{}, func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := make(chan struct{}, 1)
	f.changed = append(f.changed, c)
	return c, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.changed = slices.DeleteFunc(f.changed, func(o chan struct{}) bool { return o == c })
		f.left <- struct{}{}
	}
}

func (f *fake) Plugins(_ context.Context, tenant string) ([]Plugin, error) {
	return f.plugins, f.ask("plugins", tenant)
}

func (f *fake) InstallPlugin(_ context.Context, c Caller, o PluginOrder) (Installation, error) {
	raw, _ := json.Marshal(o)
	return Installation{Plugin: Plugin{Name: "acme"}}, f.ask("install", c.Tenant, c.Name, o.Name, string(raw))
}

func (f *fake) RemovePlugin(_ context.Context, c Caller, name string, force bool) error {
	return f.ask("remove", c.Tenant, c.Name, name, map[bool]string{true: "forced"}[force])
}

func (f *fake) MovePlugin(_ context.Context, c Caller, name, before string) error {
	return f.ask("move", c.Tenant, c.Name, name, before)
}

func (f *fake) GrantModel(_ context.Context, c Caller, name string, granted bool) error {
	return f.ask("grant", c.Tenant, c.Name, name, map[bool]string{true: "yes", false: "no"}[granted])
}

func (f *fake) Hooks(_ context.Context, tenant string, q HookQuery) ([]Hook, error) {
	return f.hooks, f.ask("hooks", tenant, q.Event, q.Tool, q.Agent)
}

func (f *fake) Policy(_ context.Context, tenant string) (Policy, error) {
	return Policy{Version: "v0", Default: true}, f.ask("policy", tenant)
}

func (f *fake) PolicyVersion(_ context.Context, tenant, version string) (Policy, error) {
	return Policy{Version: version}, f.ask("policy version", tenant, version)
}

func (f *fake) PolicyVersions(_ context.Context, tenant string) ([]Policy, error) {
	return f.policies, f.ask("policy versions", tenant)
}

func (f *fake) ApplyPolicy(_ context.Context, c Caller, o PolicyOrder) (PolicyChange, error) {
	raw, _ := json.Marshal(o)
	return PolicyChange{Policy: Policy{Version: "v1"}}, f.ask("apply", c.Tenant, c.Name, string(raw))
}

func (f *fake) ExplainCall(_ context.Context, tenant string, p *policy.Policy, q ExplainQuery) ([]policy.Stage, error) {
	raw, _ := json.Marshal(q)
	return f.stages, f.ask("explain", tenant, p.Version(), string(raw))
}

func (f *fake) AuditEntries(_ context.Context, tenant string, after int64, most int) ([]audit.Entry, error) {
	if err := f.ask("entries", tenant); err != nil {
		return nil, err
	}
	n := int64(len(f.entries))
	return f.entries[min(n, after):min(n, after+int64(most))], nil
}

func (f *fake) AuditHead(_ context.Context, tenant string) (audit.Head, error) {
	h := audit.Head{Seq: int64(len(f.entries))}
	if h.Seq > 0 {
		h.Hash = f.entries[h.Seq-1].Hash
	}
	return h, f.ask("head", tenant)
}

func (f *fake) CreateToken(_ context.Context, t access.Token) error {
	if err := f.ask("create token", t.Tenant, t.By, t.Name, t.Role.String()); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if slices.ContainsFunc(f.tokens, func(o access.Token) bool { return o.Tenant == t.Tenant && o.Name == t.Name }) {
		return access.ErrNameTaken
	}
	f.tokens = append(f.tokens, t)
	return nil
}

func (f *fake) ListTokens(_ context.Context, tenant string) ([]access.Token, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.tokens, nil
}

func (f *fake) RevokeToken(_ context.Context, tenant, name, by string) (access.Token, error) {
	if err := f.ask("revoke", tenant, name, by); err != nil {
		return access.Token{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.tokens {
		if t := &f.tokens[i]; t.Tenant == tenant && t.Name == name && t.Revoked.IsZero() {
			t.Revoked, t.RevokedBy = at, by
			return *t, nil
		}
	}
	return access.Token{}, access.ErrNoToken
}

func (f *fake) TokenByHash(_ context.Context, h access.Hash) (access.Token, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, t := range f.tokens {
		if t.Hash == h {
			return t, nil
		}
	}
	return access.Token{}, access.ErrUnknown
}

func (f *fake) TokenUsed(context.Context, string, time.Time) error { return nil }

// logged is what a server wrote to its log.
type logged struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// world is a server with a fake service and a token of each role.
type world struct {
	*Server
	fake   *fake
	log    *logged
	secret map[string]access.Secret // viewer, approver, admin, owner, other (an admin of another tenant)
}

func newWorld(t *testing.T, cfg Config) *world {
	t.Helper()
	f := &fake{health: Health{OK: true, Version: "1"}, left: make(chan struct{}, 100)}
	w := &world{fake: f, log: &logged{}, secret: map[string]access.Secret{}}
	for _, name := range []string{"viewer", "approver", "admin", "other"} {
		role, err := access.ParseRole(strings.Replace(name, "other", "admin", 1))
		if err != nil {
			t.Fatal(err)
		}
		tenant := "main"
		if name == "other" {
			tenant = "other"
		}
		secret, token, err := access.Issue(access.Order{Tenant: tenant, Name: "the-" + name, Role: role, By: "test"}, at)
		if err != nil {
			t.Fatal(err)
		}
		f.tokens = append(f.tokens, token)
		w.secret[name] = secret
	}
	var key access.Key
	w.secret["owner"], key = access.NewKey("root")
	if cfg.Tenant == "" {
		cfg.Tenant = "main"
	}
	cfg.Clock = func() time.Time { return at }
	cfg.Logger = slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	gate := access.NewGate(f, key, cfg.Clock, cfg.Logger)
	var err error
	w.Server, err = New(Service{Gate: gate, Jobs: f, Approvals: f, Plugins: f, Hooks: f, Policies: f, Audit: f, Tokens: f, Spending: f, Upkeep: f,
		Health: func(context.Context) Health { return f.health }}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// do asks the server without a network, as the bearer of a role's token.
func (w *world) do(as, method, path, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	if body == "" {
		r = httptest.NewRequest(method, path, nil)
	} else {
		r.Header.Set("Content-Type", "application/json")
	}
	if as != "" {
		r.Header.Set("Authorization", "Bearer "+w.secret[as].Reveal())
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	rec := httptest.NewRecorder()
	w.Handler().ServeHTTP(rec, r)
	return rec
}

// problemIn reads the problem that an answer must be.
func problemIn(t *testing.T, rec *httptest.ResponseRecorder, status int, code Code) Problem {
	t.Helper()
	var p Problem
	if err := json.Unmarshal(rec.Body.Bytes(), &p); err != nil {
		t.Fatalf("%d: body is no JSON: %q", rec.Code, rec.Body)
	}
	if got := rec.Header().Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("Content-Type %q", got)
	}
	if rec.Code != status || p.Status != status || p.Title != http.StatusText(status) || p.Detail == "" || p.Code != code {
		t.Errorf("got %d %+v, want status %d, code %s", rec.Code, p, status, code)
	}
	return p
}

// wantBody checks an answer.
func wantBody(t *testing.T, rec *httptest.ResponseRecorder, status int, body string) {
	t.Helper()
	if got := strings.TrimSuffix(rec.Body.String(), "\n"); rec.Code != status || got != body {
		t.Errorf("got %d %s\nwant %d %s", rec.Code, got, status, body)
	}
}

// Serve serves what a test has of a service; the rest is not there.
func Serve(t *testing.T, s Service) (addr string, stop func() error) {
	t.Helper()
	f := &fake{}
	s.Jobs, s.Approvals, s.Plugins, s.Hooks, s.Policies, s.Upkeep = f, f, f, f, f, f
	server, err := New(s, Config{})
	if err != nil {
		t.Fatal(err)
	}
	return (&world{Server: server}).start(t)
}

// start serves on a real port until the test ends.
func (w *world) start(t *testing.T) (addr string, stop func() error) {
	t.Helper()
	ready := make(chan net.Addr, 1)
	w.cfg.Listen = "127.0.0.1:0"
	w.cfg.Ready = func(a net.Addr) { ready <- a }
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	stop = sync.OnceValue(func() error { cancel(); return <-ended })
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	select {
	case a := <-ready:
		return a.String(), stop
	case err := <-ended:
		t.Fatal(err)
		return "", nil
	}
}

func (w *world) client(t *testing.T, addr, as, tenant string) *Client {
	t.Helper()
	c := NewClient(addr, w.secret[as], tenant)
	t.Cleanup(c.Close)
	return c
}

// within fails the test when nothing comes.
func within[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(10 * time.Second):
		t.Fatalf("nothing came: %s", what)
		panic("unreachable")
	}
}
