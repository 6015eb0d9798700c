package control

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belay-run/belay/internal/agentjob"
	"github.com/belay-run/belay/internal/approval"
	"github.com/belay-run/belay/internal/audit"
	"github.com/belay-run/belay/internal/job"
	"github.com/belay-run/belay/internal/policy"
	"github.com/belay-run/belay/internal/rawjson"
)

func aJob() job.Job {
	return job.Job{Order: job.Order{ID: job.ID{Tenant: "main", Job: "j1"}, Flow: agentjob.Flow, Agent: "rev", Created: at,
		Input: rawjson.Must(agentjob.Spec{Input: json.RawMessage(`"do <it>"`), By: "ann", Policy: "rules: [hidden]", Agent: agentjob.Agent{Instructions: "hidden"}})},
		State: job.Failed, Updated: at, End: &job.End{State: job.Failed, Code: "HookDenied", Reason: "no"}}
}

func TestJobs(t *testing.T) {
	w := newWorld(t, Config{})
	w.fake.jobs = []job.Job{aJob(), {Order: job.Order{ID: job.ID{Tenant: "main", Job: "j2"}, Flow: "other", Created: at, Input: json.RawMessage(`[1]`)}, State: job.Running, Updated: at}}
	w.fake.records = []job.Record{{Seq: 1, At: at, What: job.Begun, Key: "a", Kind: "tool", Try: 1, Input: json.RawMessage(`{"big":9007199254740993}`)}, {Seq: 2, At: at, What: job.Answered, Key: "a", Answer: &job.Answer{Value: json.RawMessage(`"<x>"`)}}}

	wantBody(t, w.do("approver", "POST", "/v1/jobs", `{"agent":"rev","input":{"n":9007199254740993},"id":"j9","model":"big"}`), 201, `{"id":"job-1"}`)
	if got := w.fake.last(); got != `start main the-approver rev {"n":9007199254740993} j9 big` {
		t.Error(got)
	}
	w.fake.err = job.ErrExists
	problemIn(t, w.do("approver", "POST", "/v1/jobs", `{"agent":"rev"}`), 409, Conflict)
	w.fake.err = nil

	wantBody(t, w.do("viewer", "GET", "/v1/jobs?state=failed,running&agent=rev&limit=5", ""), 200,
		`{"jobs":[{"id":"j1","agent":"rev","state":"failed","by":"ann","created":"2026-11-03T09:45:00Z","updated":"2026-11-03T09:45:00Z","input":"do <it>","end":{"state":"failed","code":"HookDenied","reason":"no"}},`+
			`{"id":"j2","agent":"","state":"running","created":"2026-11-03T09:45:00Z","updated":"2026-11-03T09:45:00Z","input":[1]}]}`)
	if got := w.fake.last(); got != `jobs {"Tenant":"main","States":["failed","running"],"Agent":"rev","Limit":5}` {
		t.Error(got)
	}
	w.do("other", "GET", "/v1/jobs", "")
	if got := w.fake.last(); got != `jobs {"Tenant":"other","States":null,"Agent":"","Limit":100}` {
		t.Error(got)
	}

	rec := w.do("viewer", "GET", "/v1/jobs/j1", "")
	if rec.Code != 200 || strings.Contains(rec.Body.String(), "hidden") || !strings.Contains(rec.Body.String(), `"input":{"big":9007199254740993}`) || !strings.Contains(rec.Body.String(), `"seq":2`) {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
	if rec := w.do("viewer", "GET", "/v1/jobs/j1?after=1", ""); strings.Contains(rec.Body.String(), `"seq":1`) || !strings.Contains(rec.Body.String(), `"seq":2`) {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
	if rec := w.do("viewer", "GET", "/v1/jobs/j1?after=2", ""); !strings.Contains(rec.Body.String(), `"history":[]`) {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
	for _, as := range []string{"viewer", "other"} {
		problemIn(t, w.do(as, "GET", "/v1/jobs/"+map[string]string{"viewer": "j7", "other": "j1"}[as], ""), 404, NotFound)
	}

	wantBody(t, w.do("approver", "POST", "/v1/jobs/j1/cancel", `{"reason":"why not"}`), 204, "")
	if got := w.fake.last(); got != "cancel main/j1 the-approver why not" {
		t.Error(got)
	}
	wantBody(t, w.do("approver", "POST", "/v1/jobs/j1/cancel", ""), 204, "")
	wantBody(t, w.do("viewer", "POST", "/v1/jobs/j1/replay", ""), 200, `{"open":["x"]}`)
}

func anApproval(id string) Approval {
	return Approval{ID: id, Job: "j1", State: Waiting, Asked: at, Until: at.Add(time.Hour), Digest: job.Digest{0xab},
		Request: approval.Request{Kind: approval.Hook, Job: "j1", Agent: "rev", Tool: "git.push", Arguments: json.RawMessage(`{"branch":"main"}`), Value: json.RawMessage(`{"branch":"x"}`), Before: json.RawMessage(`{}`)}}
}

func TestApprovalsAreListedAndShown(t *testing.T) {
	w := newWorld(t, Config{})
	w.fake.approvals = []Approval{anApproval("a1"), {ID: "a2", State: Denied}}
	rec := w.do("viewer", "GET", "/v1/approvals", "")
	if rec.Code != 200 || !strings.Contains(rec.Body.String(), `"a1"`) || strings.Contains(rec.Body.String(), `"a2"`) || strings.Contains(rec.Body.String(), "branch") {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
	for state, want := range map[string]string{
		"waiting": `{"Waiting":true,"Decided":false,"Job":"j1","Limit":200}`,
		"decided": `{"Waiting":false,"Decided":true,"Job":"j1","Limit":200}`,
		"all":     `{"Waiting":true,"Decided":true,"Job":"j1","Limit":200}`,
	} {
		w.do("viewer", "GET", "/v1/approvals?job=j1&state="+state, "")
		if got := w.fake.last(); got != "approvals main "+want {
			t.Errorf("%s: %s", state, got)
		}
	}
	wantBody(t, w.do("viewer", "GET", "/v1/approvals/a1", ""), 200,
		`{"id":"a1","job":"j1","state":"waiting","asked":"2026-11-03T09:45:00Z","until":"2026-11-03T10:45:00Z",`+
			`"request":{"kind":"hook","job":"j1","agent":"rev","tool":"git.push","arguments":{"branch":"main"},"value":{"branch":"x"},"before":{}},`+
			`"digest":"ab`+strings.Repeat("0", 62)+`"}`)
	problemIn(t, w.do("other", "GET", "/v1/approvals/a1", ""), 404, NotFound)
	problemIn(t, w.do("other", "POST", "/v1/approvals/a1", `{"decision":"approve"}`), 404, NotFound)
}

func TestDecisions(t *testing.T) {
	digest := "ab" + strings.Repeat("0", 62)
	for name, c := range map[string]struct {
		change func(*Approval)
		as     string
		body   string
		status int
		code   Code
		detail string // of the problem, or the state
		asked  string
	}{
		"yes":                 {nil, "approver", `{"decision":"approve","note":"fine","digest":"` + digest + `"}`, 200, "", "approved", `decide main the-approver a1 ab00 {"yes":true,"note":"fine","by":"the-approver"}`},
		"no":                  {nil, "approver", `{"decision":"deny"}`, 200, "", "denied", `decide main the-approver a1 ab00 {"yes":false,"by":"the-approver"}`},
		"seen another":        {nil, "approver", `{"decision":"approve","digest":"` + strings.Repeat("0", 64) + `"}`, 409, Conflict, "something else", ""},
		"an odd digest":       {nil, "approver", `{"decision":"approve","digest":"x"}`, 422, Invalid, "digest", ""},
		"an action for none":  {nil, "approver", `{"decision":"approve","action":"retry"}`, 422, Invalid, "yes or no", ""},
		"for admins, by none": {func(a *Approval) { a.Request.Role = policy.Admin }, "approver", `{"decision":"deny"}`, 403, Forbidden, "only an admin", ""},
		"for admins":          {func(a *Approval) { a.Request.Role = policy.Admin }, "admin", `{"decision":"deny"}`, 200, "", "denied", `decide main the-admin a1 ab00 {"yes":false,"by":"the-admin"}`},
		"expired":             {func(a *Approval) { a.State = Expired }, "approver", `{"decision":"approve"}`, 409, Conflict, "passed", ""},
		"closed":              {func(a *Approval) { a.State = Closed }, "approver", `{"decision":"approve"}`, 409, Conflict, "no more", ""},
		"decided": {func(a *Approval) { a.State, a.Decided = Denied, &Decided{By: "bob", At: at} }, "approver", `{"decision":"approve"}`, 409, AlreadyDecided,
			"bob has denied this already, at 2026-11-03 09:45:00 UTC", ""},
		"outcome retry":     {func(a *Approval) { a.Request.Kind = approval.Outcome }, "approver", `{"decision":"approve","action":"retry"}`, 200, "", "approved", `decide main the-approver a1 ab00 {"yes":true,"by":"the-approver","action":"retry"}`},
		"outcome result":    {func(a *Approval) { a.Request.Kind = approval.Outcome }, "approver", `{"decision":"approve","action":"result","result":{"n":9007199254740993}}`, 200, "", "approved", `decide main the-approver a1 ab00 {"yes":true,"by":"the-approver","action":"result","result":{"n":9007199254740993}}`},
		"outcome no result": {func(a *Approval) { a.Request.Kind = approval.Outcome }, "approver", `{"decision":"approve","action":"result"}`, 422, Invalid, "no JSON", ""},
		"outcome yes alone": {func(a *Approval) { a.Request.Kind = approval.Outcome }, "approver", `{"decision":"approve"}`, 422, Invalid, "what to do", ""},
		"outcome no":        {func(a *Approval) { a.Request.Kind = approval.Outcome }, "approver", `{"decision":"deny"}`, 200, "", "denied", `decide main the-approver a1 ab00 {"yes":false,"by":"the-approver"}`},
		"outcome no retry":  {func(a *Approval) { a.Request.Kind = approval.Outcome }, "approver", `{"decision":"deny","action":"retry"}`, 422, Invalid, "go together", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, Config{})
			a := anApproval("a1")
			if c.change != nil {
				c.change(&a)
			}
			w.fake.approvals = []Approval{a}
			rec := w.do(c.as, "POST", "/v1/approvals/a1", c.body)
			if c.code != "" {
				p := problemIn(t, rec, c.status, c.code)
				if !strings.Contains(p.Detail, c.detail) || (c.code == AlreadyDecided) != (p.Decided != nil) {
					t.Errorf("%+v", p)
				}
			} else if rec.Code != c.status || !strings.Contains(rec.Body.String(), `"state":"`+c.detail+`"`) || !strings.Contains(rec.Body.String(), `"by":"the-`+c.as+`"`) {
				t.Errorf("%d %s", rec.Code, rec.Body)
			}
			decided := ""
			for _, said := range w.fake.asked {
				if strings.HasPrefix(said, "decide") {
					decided = said
				}
			}
			if decided != c.asked {
				t.Errorf("asked %s\nwant  %s", decided, c.asked)
			}
		})
	}
}

// Both saw it waiting; the first counts, and the second is told who was first.
func TestTwoDecidersAtOnce(t *testing.T) {
	w := newWorld(t, Config{})
	w.fake.approvals = []Approval{anApproval("a1")}
	var both sync.WaitGroup
	both.Add(2)
	w.service.Approvals = meeting{w.fake, &both}
	codes := map[string]int{}
	var details []string
	var mu sync.Mutex
	var wg sync.WaitGroup
	for as, decision := range map[string]string{"approver": "approve", "admin": "deny"} {
		wg.Go(func() {
			rec := w.do(as, "POST", "/v1/approvals/a1", `{"decision":"`+decision+`"}`)
			mu.Lock()
			defer mu.Unlock()
			codes[as] = rec.Code
			details = append(details, rec.Body.String())
		})
	}
	wg.Wait()
	winner, loser := "approver", "admin"
	if codes["admin"] == http.StatusOK {
		winner, loser = loser, winner
	}
	if codes[winner] != http.StatusOK || codes[loser] != http.StatusConflict {
		t.Fatalf("%v %v", codes, details)
	}
	all := strings.Join(details, "\n")
	if !strings.Contains(all, "the-"+winner+" has ") || !strings.Contains(all, `"code":"already_decided"`) || !strings.Contains(all, `"decided":{"by":"the-`+winner+`"`) {
		t.Error(all)
	}
}

// meeting lets two deciders decide only after both have looked.
type meeting struct {
	*fake
	both *sync.WaitGroup
}

func (m meeting) Decide(ctx context.Context, c Caller, id string, seen job.Digest, a approval.Answer) error {
	m.both.Done()
	m.both.Wait()
	return m.fake.Decide(ctx, c, id, seen, a)
}

func TestADecisionThatIsMadeIsNotDeniedLater(t *testing.T) {
	w := newWorld(t, Config{})
	w.fake.approvals = []Approval{anApproval("a1")}
	w.fake.decide = func(a *Approval, by string, _ approval.Answer) error {
		a.ID = "gone" // it can be read no more
		return nil
	}
	rec := w.do("approver", "POST", "/v1/approvals/a1", `{"decision":"approve"}`)
	if rec.Code != 200 || !strings.Contains(rec.Body.String(), `"state":"approved"`) {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
	w.fake.approvals = []Approval{anApproval("a1")}
	w.fake.decide = func(a *Approval, _ string, _ approval.Answer) error { a.State = Expired; return job.ErrExpired }
	if p := problemIn(t, w.do("approver", "POST", "/v1/approvals/a1", `{"decision":"approve"}`), 409, Conflict); !strings.Contains(p.Detail, "counts as no") {
		t.Error(p.Detail)
	}
	w.fake.approvals = []Approval{anApproval("a1")}
	w.fake.decide = func(*Approval, string, approval.Answer) error { return errors.New("the disk is full") }
	problemIn(t, w.do("approver", "POST", "/v1/approvals/a1", `{"decision":"approve"}`), 503, Unavailable)
}

func TestPluginsAndHooks(t *testing.T) {
	w := newWorld(t, Config{})
	wantBody(t, w.do("viewer", "GET", "/v1/plugins", ""), 200, `{"plugins":[]}`)
	wantBody(t, w.do("viewer", "GET", "/v1/hooks", ""), 200, `{"hooks":[]}`)
	w.fake.hooks = []Hook{{Plugin: "p", Name: "a.b", Event: "job_start", Timeout: "2s", OnTimeout: "deny"}}
	wantBody(t, w.do("viewer", "GET", "/v1/hooks?tool=git.push&agent=rev&event=pre_tool_call", ""), 200,
		`{"hooks":[{"plugin":"p","name":"a.b","event":"job_start","timeout":"2s","on_timeout":"deny"}]}`)
	if got := w.fake.last(); got != "hooks main pre_tool_call git.push rev" {
		t.Error(got)
	}
	for _, c := range []struct {
		method, path, body string
		status             int
		asked              string
	}{
		{"POST", "/v1/plugins", `{"path":"/p","accept_model":true,"before":"x"}`, 201, `install main the-admin  {"path":"/p","before":"x","accept_model":true}`},
		{"POST", "/v1/plugins/acme/update", `{"path":"/p","accept_scan":true}`, 200, `install main the-admin acme {"path":"/p","accept_scan":true}`},
		{"POST", "/v1/plugins/a%2Fb/order", `{"before":"x"}`, 204, "move main the-admin a/b x"},
		{"POST", "/v1/plugins/acme/order", `{}`, 204, "move main the-admin acme "},
		{"POST", "/v1/plugins/acme/grants/model", `{"granted":false}`, 204, "grant main the-admin acme no"},
		{"DELETE", "/v1/plugins/acme", "", 204, "remove main the-admin acme "},
		{"DELETE", "/v1/plugins/acme?force=true", "", 204, "remove main the-admin acme forced"},
	} {
		rec := w.do("admin", c.method, c.path, c.body)
		if rec.Code != c.status || w.fake.last() != c.asked {
			t.Errorf("%s %s: %d %s, asked %s", c.method, c.path, rec.Code, rec.Body, w.fake.last())
		}
	}
}

func TestPolicies(t *testing.T) {
	w := newWorld(t, Config{})
	const good = "rules:\n  - tools: [a.b]\n    verdict: refuse\n"
	bad, allows := "rules: [", "rules:\n  - tools: [\"*\"]\n    verdict: allow\n"
	quoted := func(key, text string) string { return string(rawjson.Must(map[string]string{key: text})) }

	wantBody(t, w.do("viewer", "GET", "/v1/policy", ""), 200, `{"version":"v0","default":true}`)
	wantBody(t, w.do("viewer", "GET", "/v1/policy/versions", ""), 200, `{"policies":[]}`)
	wantBody(t, w.do("viewer", "GET", "/v1/policy/versions/sha256:ab", ""), 200, `{"version":"sha256:ab"}`)
	if got := w.fake.last(); got != "policy version main sha256:ab" {
		t.Error(got)
	}

	for text, want := range map[string]bool{good: true, bad: false, allows: true, "": true, "# nothing": false} {
		var lint LintReport
		rec := w.do("viewer", "POST", "/v1/policy/lint", quoted("text", text))
		if err := json.Unmarshal(rec.Body.Bytes(), &lint); err != nil || lint.OK != want || want != (lint.Version != "") || lint.Findings == nil {
			t.Errorf("%q: %d %s", text, rec.Code, rec.Body)
		}
	}

	wantBody(t, w.do("admin", "POST", "/v1/policy", `{"text":`+string(rawjson.Must(good))+`,"replaces":"v0","enforce_now":true}`), 200, `{"policy":{"version":"v1"}}`)
	if got := w.fake.last(); got != `apply main the-admin {"text":"rules:\n  - tools: [a.b]\n    verdict: refuse\n","replaces":"v0","enforce_now":true}` {
		t.Error(got)
	}
	if rec := w.do("admin", "POST", "/v1/policy", quoted("text", allows)); rec.Code != 200 || !strings.Contains(rec.Body.String(), "allows-all") {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
	w.do("admin", "POST", "/v1/policy", quoted("text", " \n"))
	if got := w.fake.last(); got != `apply main the-admin {"text":""}` {
		t.Error(got)
	}
	w.fake.asked = nil
	if p := problemIn(t, w.do("admin", "POST", "/v1/policy", quoted("text", bad)), 422, Invalid); len(p.Findings) == 0 || p.Findings[0].Line == 0 || len(w.fake.asked) > 0 {
		t.Errorf("%+v %v", p, w.fake.asked)
	}

	w.fake.stages = []policy.Stage{{Name: policy.StageDecision, Applies: true, Effect: policy.Refuse, Why: "no"}}
	wantBody(t, w.do("viewer", "POST", "/v1/policy/explain", `{"call":{"tool":"a.b","arguments":{"x":1},"agent":"rev","annotations":{"readOnlyHint":true},"earlier":[{"tool":"c.d","outcome":"error"}]}}`), 200,
		`{"stages":[{"stage":"decision","applies":true,"effect":"refuse","why":"no"}]}`)
	if got := w.fake.last(); got != `explain main  {"tool":"a.b","arguments":{"x":1},"agent":"rev","annotations":{"readOnlyHint":true},"earlier":[{"tool":"c.d","outcome":"error"}]}` {
		t.Error(got)
	}
	w.do("viewer", "POST", "/v1/policy/explain", `{"call":{"tool":"a.b"},"text":""}`)
	if got := w.fake.last(); got != "explain main "+policy.Default().Version()+` {"tool":"a.b"}` {
		t.Error(got)
	}
	problemIn(t, w.do("viewer", "POST", "/v1/policy/explain", `{"call":{"tool":"a.b"},"text":"rules: ["}`), 422, Invalid)
}

func TestAudit(t *testing.T) {
	w := newWorld(t, Config{})
	wantBody(t, w.do("viewer", "GET", "/v1/audit", ""), 200, `{"entries":[],"head":"0:`+strings.Repeat("0", 64)+`"}`)
	var head audit.Head
	for range 5 {
		e, err := audit.Next(head, at, audit.Fact{Tenant: "main", Actor: "ann", Action: audit.JobStarted, Data: audit.Data{"x": "<&>"}})
		if err != nil {
			t.Fatal(err)
		}
		w.fake.entries, head = append(w.fake.entries, e), audit.Head{Seq: e.Seq, Hash: e.Hash}
	}
	for query, want := range map[string][2]int64{"": {1, 5}, "?limit=2": {4, 5}, "?after=0&limit=2": {1, 2}, "?after=3": {4, 5}, "?after=5": {0, 0}, "?after=9": {0, 0}} {
		var got AuditEntries
		rec := w.do("viewer", "GET", "/v1/audit"+query, "")
		if err := json.Unmarshal(rec.Body.Bytes(), &got); err != nil || got.Head != head {
			t.Fatalf("%s: %s %v", query, rec.Body, err)
		}
		if n := len(got.Entries); (want[0] == 0) != (n == 0) || n > 0 && (got.Entries[0].Seq != want[0] || got.Entries[n-1].Seq != want[1]) {
			t.Errorf("%s: %s", query, rec.Body)
		}
		if query == "" {
			if ok, bad := audit.Verify(got.Entries); !ok {
				t.Errorf("entry %d did not come through whole: %s", bad, rec.Body)
			}
		}
	}
	var r audit.Report
	for query, ok := range map[string]bool{"": true, "?head=" + head.String(): true, "?head=" + head.Hash.String(): true, "?head=" + strings.Repeat("a", 64): false} {
		rec := w.do("viewer", "GET", "/v1/audit/verify"+query, "")
		r = audit.Report{}
		if err := json.Unmarshal(rec.Body.Bytes(), &r); err != nil || rec.Code != 200 || r.OK != ok || r.Head != head || r.Tenant != "main" {
			t.Errorf("%s: %d %s", query, rec.Code, rec.Body)
		}
	}
	w.fake.entries[2].Actor = "eve"
	if rec := w.do("viewer", "GET", "/v1/audit/verify", ""); !strings.Contains(rec.Body.String(), `"ok":false`) || !strings.Contains(rec.Body.String(), `"first_bad":3`) {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
}

func TestTokens(t *testing.T) {
	w := newWorld(t, Config{})
	rec := w.do("admin", "POST", "/v1/tokens", `{"name":"new","role":"approver","expires_in_s":60}`)
	var made IssuedToken
	if err := json.Unmarshal(rec.Body.Bytes(), &made); err != nil || rec.Code != 201 || made.Token.By != "the-admin" || !made.Token.Expires.Equal(at.Add(time.Minute)) {
		t.Fatalf("%d %s", rec.Code, rec.Body)
	}
	rec = w.do("", "GET", "/v1/whoami", "", "Authorization", "Bearer "+made.Secret)
	wantBody(t, rec, 200, `{"tenant":"main","name":"new","role":"approver","expires":"2026-11-03T09:46:00Z"}`)
	wantBody(t, w.do("owner", "GET", "/v1/whoami", ""), 200, `{"tenant":"main","name":"local:root","role":"admin","owner":true}`)
	problemIn(t, w.do("admin", "POST", "/v1/tokens", `{"name":"new","role":"viewer"}`), 409, Conflict)

	rec = w.do("admin", "GET", "/v1/tokens", "")
	if rec.Code != 200 || !strings.Contains(rec.Body.String(), `"name":"new"`) || strings.Contains(rec.Body.String(), "belay_") || strings.Contains(strings.ToLower(rec.Body.String()), "hash") {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
	if rec := w.do("admin", "DELETE", "/v1/tokens/new", ""); rec.Code != 200 || !strings.Contains(rec.Body.String(), `"revoked_by":"the-admin"`) {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
	problemIn(t, w.do("admin", "DELETE", "/v1/tokens/new", ""), 404, NotFound)
	problemIn(t, w.do("", "GET", "/v1/whoami", "", "Authorization", "Bearer "+made.Secret), 401, Unauthorized)
	if strings.Contains(w.log.String(), made.Secret) {
		t.Error("the log has a token")
	}
}
