package control

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/belay-run/belay/internal/access"
	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/job"
)

// every path with the role that it needs and a body that it takes.
var paths = []struct {
	role         access.Role
	method, path string
	body         string
}{
	{access.Viewer, "GET", "/v1/whoami", ""},
	{access.Viewer, "GET", "/v1/jobs", ""},
	{access.Approver, "POST", "/v1/jobs", `{"agent":"a"}`},
	{access.Viewer, "GET", "/v1/jobs/j", ""},
	{access.Viewer, "GET", "/v1/jobs/j/model-calls", ""},
	{access.Viewer, "GET", "/v1/spend", ""},
	{access.Approver, "POST", "/v1/jobs/j/cancel", `{}`},
	{access.Viewer, "POST", "/v1/jobs/j/replay", ""},
	{access.Viewer, "GET", "/v1/approvals", ""},
	{access.Viewer, "GET", "/v1/approvals/feed", ""},
	{access.Viewer, "GET", "/v1/approvals/a", ""},
	{access.Approver, "POST", "/v1/approvals/a", `{"decision":"deny"}`},
	{access.Viewer, "GET", "/v1/plugins", ""},
	{access.Admin, "POST", "/v1/plugins", `{"path":"/p"}`},
	{access.Admin, "POST", "/v1/plugins/p/update", `{"path":"/p"}`},
	{access.Admin, "POST", "/v1/plugins/p/order", `{}`},
	{access.Admin, "POST", "/v1/plugins/p/grants/model", `{"granted":true}`},
	{access.Admin, "DELETE", "/v1/plugins/p", ""},
	{access.Viewer, "GET", "/v1/hooks", ""},
	{access.Viewer, "GET", "/v1/hooks/shadow", ""},
	{access.Admin, "POST", "/v1/checkup", ""},
	{access.Admin, "POST", "/v1/backups", `{"path":"/b"}`},
	{access.Viewer, "GET", "/v1/policy", ""},
	{access.Admin, "POST", "/v1/policy", `{"text":""}`},
	{access.Viewer, "POST", "/v1/policy/lint", `{"text":""}`},
	{access.Viewer, "POST", "/v1/policy/explain", `{"call":{"tool":"a.b"}}`},
	{access.Viewer, "GET", "/v1/policy/versions", ""},
	{access.Viewer, "GET", "/v1/policy/versions/v", ""},
	{access.Viewer, "GET", "/v1/audit", ""},
	{access.Viewer, "GET", "/v1/audit/verify", ""},
	{access.Admin, "GET", "/v1/tokens", ""},
	{access.Admin, "POST", "/v1/tokens", `{"name":"n","role":"viewer"}`},
	{access.Admin, "DELETE", "/v1/tokens/n", ""},
}

func TestEveryPathNeedsItsRole(t *testing.T) {
	w := newWorld(t, Config{})
	w.fake.err = errors.New("not today") // so that nothing is done and the feed ends
	for _, p := range paths {
		for _, as := range []string{"", "viewer", "approver", "admin", "owner"} {
			before := len(w.fake.asked)
			rec := w.do(as, p.method, p.path, p.body)
			role, _ := access.ParseRole(strings.Replace(as, "owner", "admin", 1))
			if role.Allows(p.role) {
				if rec.Code == http.StatusForbidden || rec.Code == http.StatusUnauthorized || rec.Code == http.StatusNotFound {
					t.Errorf("%s %s as %s: %d %s", p.method, p.path, as, rec.Code, rec.Body)
				}
				continue
			}
			if as == "" {
				problemIn(t, rec, http.StatusUnauthorized, Unauthorized)
				if rec.Header().Get("WWW-Authenticate") == "" {
					t.Error("no WWW-Authenticate")
				}
			} else if got := problemIn(t, rec, http.StatusForbidden, Forbidden); !strings.Contains(got.Detail, p.role.String()) {
				t.Errorf("%s %s as %s: %s", p.method, p.path, as, got.Detail)
			}
			if len(w.fake.asked) != before {
				t.Errorf("%s %s as %s: the service was asked", p.method, p.path, as)
			}
		}
	}
}

// The table above and the OpenAPI document are one.
func TestTheDocumentHasEveryPathWithItsRole(t *testing.T) {
	w := newWorld(t, Config{Version: "1.2"})
	rec := w.do("viewer", "GET", "/openapi.json", "")
	var doc struct {
		OpenAPI string
		Info    struct{ Version string }
		Paths   map[string]map[string]struct {
			Role      string `json:"x-role"`
			Security  []map[string][]string
			Responses map[string]any
		}
		Components struct {
			Schemas map[string]struct{ Properties map[string]any }
		}
	}
	if err := json.Unmarshal(rec.Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	if doc.OpenAPI != "3.1.0" || doc.Info.Version != "1.2" {
		t.Errorf("%s %s", doc.OpenAPI, doc.Info.Version)
	}
	n := 0
	for path, ops := range doc.Paths {
		for method, op := range ops {
			if path == healthPath {
				continue
			}
			n++
			found := false
			for _, p := range paths {
				if strings.EqualFold(p.method, method) && matches(path, p.path) {
					found = true
					if op.Role != p.role.String() {
						t.Errorf("%s %s has role %q, want %s", method, path, op.Role, p.role)
					}
				}
			}
			if !found {
				t.Errorf("%s %s is not tried", method, path)
			}
			if op.Responses["401"] == nil || op.Responses["403"] == nil {
				t.Errorf("%s %s: responses %v", method, path, op.Responses)
			}
		}
	}
	if n != len(paths) {
		t.Errorf("%d paths, %d are tried", n, len(paths))
	}
	for _, name := range []string{"Problem", "Approval", "JobHistory", "JobRecord", "JobReport", "AuditReport", "AccessToken", "ApprovalRequest", "FindingFinding"} {
		if len(doc.Components.Schemas[name].Properties) == 0 {
			t.Errorf("no schema %s", name)
		}
	}
	if doc.Components.Schemas["HumaErrorModel"].Properties["code"] == nil {
		t.Error("errors are not described as they are")
	}
}

// matches says whether a path is of a template; a fixed path is nobody else's.
func matches(template, path string) bool {
	a, b := strings.Split(template, "/"), strings.Split(path, "/")
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] && (!strings.HasPrefix(a[i], "{") || b[i] == "feed" || b[i] == "verify") {
			return false
		}
	}
	return true
}

func TestTenantsNeverMeet(t *testing.T) {
	w := newWorld(t, Config{})
	for _, c := range []struct {
		as, header string
		status     int
		asked      string
	}{
		{"viewer", "", 200, "plugins main"},
		{"viewer", "main", 200, "plugins main"},
		{"viewer", "other", 403, ""},
		{"other", "", 200, "plugins other"},
		{"other", "main", 403, ""},
		{"owner", "", 200, "plugins main"},
		{"owner", "other", 200, "plugins other"},
		{"owner", "../x", 422, ""},
	} {
		w.fake.asked = nil
		var header []string
		if c.header != "" {
			header = []string{tenantHeader, c.header}
		}
		rec := w.do(c.as, "GET", "/v1/plugins", "", header...)
		if rec.Code != c.status || w.fake.last() != c.asked {
			t.Errorf("%s for %q: %d %s, asked %q", c.as, c.header, rec.Code, rec.Body, w.fake.last())
		}
	}
}

func TestTokensThatDoNotHold(t *testing.T) {
	w := newWorld(t, Config{})
	for name, header := range map[string]string{
		"none": "", "another scheme": "Basic abc", "unknown": "Bearer " + access.NewSecret().Reveal(), "no token": "Bearer ", "rubbish": "Bearer \x7f",
	} {
		problemIn(t, w.do("", "GET", "/v1/plugins", "", "Authorization", header), http.StatusUnauthorized, Unauthorized)
		problemIn(t, w.do("", "GET", "/openapi.json", "", "Authorization", header), http.StatusUnauthorized, Unauthorized)
		if rec := w.do("", "GET", "/nowhere", "", "Authorization", header); rec.Code != http.StatusUnauthorized {
			t.Errorf("%s: strangers learn which paths there are: %d", name, rec.Code)
		}
	}
	if _, err := w.fake.RevokeToken(t.Context(), "main", "the-viewer", "x"); err != nil {
		t.Fatal(err)
	}
	if p := problemIn(t, w.do("viewer", "GET", "/v1/plugins", ""), http.StatusUnauthorized, Unauthorized); !strings.Contains(p.Detail, "revoked") {
		t.Error(p.Detail)
	}
	if rec := w.do("owner", "GET", "/v1/plugins", "", "Authorization", "bEaReR  "+w.secret["owner"].Reveal()); rec.Code != 200 {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
}

func TestHealth(t *testing.T) {
	w := newWorld(t, Config{})
	wantBody(t, w.do("", "GET", "/healthz", ""), 200, `{"ok":true}`)
	wantBody(t, w.do("", "GET", "/healthz", "", "Authorization", "Bearer nonsense"), 200, `{"ok":true}`)
	wantBody(t, w.do("viewer", "GET", "/healthz", ""), 200, `{"ok":true,"version":"1"}`)
	w.fake.health.OK = false
	wantBody(t, w.do("", "GET", "/healthz", ""), 503, `{"ok":false}`)
}

func TestRequestsThatAreRefused(t *testing.T) {
	w := newWorld(t, Config{MaxBody: 100})
	for name, c := range map[string]struct {
		method, path, body string
		header             []string
		status             int
		detail             string
	}{
		"no such path":      {"GET", "/v1/nothing", "", nil, 404, "no such path"},
		"another method":    {"PUT", "/v1/policy", "", nil, 405, "GET"},
		"no JSON type":      {"POST", "/v1/policy/lint", "{}", []string{"Content-Type", "text/plain"}, 415, "JSON"},
		"encoded":           {"POST", "/v1/policy/lint", "{}", []string{"Content-Encoding", "gzip"}, 415, "Content-Encoding"},
		"no JSON":           {"POST", "/v1/policy/lint", "{", nil, 400, ""},
		"no body":           {"POST", "/v1/policy/lint", "", nil, 400, "body"},
		"too long":          {"POST", "/v1/policy/lint", `{"text":"` + strings.Repeat("x", 100) + `"}`, nil, 413, "100 bytes"},
		"not UTF-8":         {"POST", "/v1/policy/lint", "{\"text\":\"\xff\"}", nil, 422, "UTF-8"},
		"a key twice":       {"POST", "/v1/policy/lint", `{"text":"a","text":"b"}`, nil, 422, "twice"},
		"another case":      {"POST", "/v1/policy/lint", `{"Text":"a"}`, nil, 422, ""},
		"an unknown key":    {"POST", "/v1/policy/lint", `{"text":"a","secret":"b"}`, nil, 422, ""},
		"a missing key":     {"POST", "/v1/jobs", `{}`, nil, 422, "agent"},
		"another type":      {"POST", "/v1/jobs", `{"agent":1}`, nil, 422, "agent"},
		"an odd id":         {"POST", "/v1/jobs", `{"agent":"a","id":"../x"}`, nil, 422, "id"},
		"unknown query":     {"GET", "/v1/jobs?colour=red", "", nil, 422, ""},
		"bad number":        {"GET", "/v1/jobs?limit=0", "", nil, 422, "limit"},
		"bad state":         {"GET", "/v1/jobs?state=done", "", nil, 422, "state"},
		"bad decision":      {"POST", "/v1/approvals/a", `{"decision":"dney"}`, nil, 422, "decision"},
		"bad event":         {"GET", "/v1/hooks?event=pre_tool", "", nil, 422, "event"},
		"bad head":          {"GET", "/v1/audit/verify?head=x", "", nil, 422, "head"},
		"a relative folder": {"POST", "/v1/plugins", `{"path":"plugin"}`, nil, 422, "root"},
		"update with place": {"POST", "/v1/plugins/p/update", `{"path":"/p","before":"x"}`, nil, 422, "place"},
		"bad role":          {"POST", "/v1/tokens", `{"name":"n","role":"root"}`, nil, 422, "role"},
		"bad name":          {"POST", "/v1/tokens", `{"name":"local:x","role":"admin"}`, nil, 422, "name"},
		"bad time":          {"POST", "/v1/tokens", `{"name":"n","role":"admin","expires_in_s":-1}`, nil, 422, "expires_in_s"},
	} {
		t.Run(name, func(t *testing.T) {
			w.fake.asked = nil
			rec := w.do("owner", c.method, c.path, c.body, c.header...)
			p := problemIn(t, rec, c.status, map[bool]Code{true: NotFound, false: Invalid}[c.status == 404])
			if !strings.Contains(p.Detail, c.detail) || strings.Contains(p.Detail, "secret") && name != "an unknown key" {
				t.Errorf("detail %q", p.Detail)
			}
			if len(w.fake.asked) > 0 {
				t.Errorf("asked %v", w.fake.asked)
			}
			if h := rec.Header(); h.Get("Cache-Control") != "no-store" || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("header %v", h)
			}
		})
	}
}

func TestErrorsOfTheService(t *testing.T) {
	w := newWorld(t, Config{})
	for _, c := range []struct {
		err    error
		status int
		code   Code
		detail string
	}{
		{fmt.Errorf("of job main/x: %w", job.ErrNoJob), 404, NotFound, "there is no such job"},
		{job.ErrEnded, 409, Conflict, "the job has ended"},
		{Refuse(NeedsAcceptance, "it wants the model", "accept it"), 409, NeedsAcceptance, "it wants the model"},
		{fmt.Errorf("wrapped: %w", RefuseFindings("the plugin", []finding.Finding{{File: "a"}})), 422, Invalid, "the plugin: 1 error, 0 warnings in 1 file"},
		{&access.ForbiddenError{Have: access.Viewer, Need: access.Admin}, 403, Forbidden, "this needs the role admin, and the token has viewer; ask an admin, or use another token"},
		{errors.New("open /secret/file: no"), 503, Unavailable, "could not list the plugins"},
		{context.DeadlineExceeded, 503, Unavailable, "could not list the plugins"},
	} {
		w.fake.err = c.err
		rec := w.do("viewer", "GET", "/v1/plugins", "")
		p := problemIn(t, rec, c.status, c.code)
		if p.Detail != c.detail || strings.Contains(rec.Body.String(), "/secret") {
			t.Errorf("%v: %s", c.err, rec.Body)
		}
	}
	if !strings.Contains(w.log.String(), "/secret/file") {
		t.Error("the log does not say why")
	}
	w.fake.err = errors.New("the disk is gone")
	w.fake.panics = true
	problemIn(t, w.do("viewer", "GET", "/v1/plugins", ""), 500, Broken)
	if log := w.log.String(); !strings.Contains(log, "panicked") || strings.Contains(log, "a secret text") || strings.Contains(log, w.secret["viewer"].Reveal()) {
		t.Errorf("log %s", log)
	}
}

type brokenGate struct{ access.Identity }

func (brokenGate) Check(context.Context, string) (access.Identity, error) {
	return access.Identity{}, errors.New("the disk is gone")
}

func TestAGateThatFailsLetsNobodyIn(t *testing.T) {
	w := newWorld(t, Config{})
	w.service.Gate = brokenGate{}
	problemIn(t, w.do("owner", "GET", "/v1/plugins", ""), 503, Unavailable)
}

func TestABodyThatComesSlowlyIsCutOff(t *testing.T) {
	w := newWorld(t, Config{BodyTime: 50 * time.Millisecond})
	addr, _ := w.start(t)
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "POST /v1/policy/lint HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{", w.secret["viewer"].Reveal()); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusRequestTimeout || !resp.Close {
		t.Errorf("%d %s %v", resp.StatusCode, body, err)
	}
}

func TestConfigurations(t *testing.T) {
	for _, listen := range []string{"localhost", "127.0.0.1:70000", ":http", "1.2.3.4"} {
		if err := (Config{Listen: listen}).Validate(); err == nil || !strings.Contains(err.Error(), "host:port") {
			t.Errorf("%s: %v", listen, err)
		}
	}
	if err := (Config{}).Validate(); err != nil {
		t.Error(err)
	}
	if _, err := New(Service{}, Config{}); err == nil || !strings.Contains(err.Error(), "gate") {
		t.Error(err)
	}
	w := newWorld(t, Config{})
	addr, _ := w.start(t)
	w2 := newWorld(t, Config{Listen: addr})
	if err := w2.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "taken") {
		t.Error(err)
	}
	if isLoopback("10.0.0.1:1") || !isLoopback("[::1]:1") || isLoopback("x") {
		t.Error("isLoopback")
	}
}
