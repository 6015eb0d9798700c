package station

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belay-run/belay/internal/approval"
	"github.com/belay-run/belay/internal/config"
	"github.com/belay-run/belay/internal/job"
	"github.com/belay-run/belay/internal/notice"
	"github.com/belay-run/belay/internal/rawjson"
)

const webhookSecret = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="

// house is a data folder whose station is opened again and again.
type house struct {
	dir   string
	later time.Duration // how far the clock is ahead
}

func newHouse(t *testing.T, settings string) *house {
	t.Helper()
	h := &house{dir: t.TempDir()}
	if err := os.WriteFile(filepath.Join(h.dir, config.File), []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *house) open(t *testing.T, idle bool) (s *Station, end func()) {
	t.Helper()
	s, err := Open(t.Context(), Config{Data: h.dir, Idle: idle, Clock: func() time.Time { return time.Now().Add(h.later) }})
	if err != nil {
		t.Fatal(err)
	}
	return s, func() {
		if err := s.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}
}

// question lets a job ask a person, and wait. Only told says whether the station hears
// of it: a process may die before.
func question(t *testing.T, s *Station, name string, told bool) {
	t.Helper()
	ctx, now := t.Context(), s.cfg.Clock()
	id := job.ID{Tenant: "main", Job: name}
	if told { // the engine must not take the job
		if err := s.engine.Close(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.journal.Create(ctx, job.Order{ID: id, Flow: "agent", Shape: 1, Agent: "merger", Created: now}); err != nil {
		t.Fatal(err)
	}
	got, err := s.journal.Claim(ctx, job.Claim{Owner: "test", Now: now, Until: now.Add(time.Hour), Limit: 1})
	if err != nil || len(got) != 1 {
		t.Fatal(got, err)
	}
	q := job.Question{Key: "pre/person", Kind: approval.Question, Until: now.Add(24 * time.Hour), Input: rawjson.Must(approval.Request{
		Kind: approval.Hook, Job: name, Agent: "merger", Event: "pre_tool_call", Tool: "git.push", Role: "approver",
		Value: json.RawMessage(`{"branch":"a marked value"}`), Reasons: []approval.Reason{{By: "acme.check", Text: "a marked reason"}},
	})}
	records := []job.Record{{At: now, What: job.Asked, Key: q.Key, Kind: q.Kind, Digest: q.Digest(), Input: q.Input, Until: q.Until}}
	if err := s.journal.Keep(ctx, got[0], records); err != nil {
		t.Fatal(err)
	}
	if err := s.journal.Park(ctx, got[0], job.Parking{At: now}); err != nil {
		t.Fatal(err)
	}
	if told {
		s.kept(id, records)
	}
}

// post is what a webhook got.
type post struct {
	header http.Header
	body   string
}

// receiver is a webhook that answers with a status that the test sets.
func receiver(t *testing.T) (url string, status *atomic.Int64, got chan post) {
	t.Helper()
	status, got = &atomic.Int64{}, make(chan post, 100)
	status.Store(http.StatusNoContent)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.WriteHeader(int(status.Load()))
		got <- post{r.Header, string(body)}
	}))
	t.Cleanup(s.Close)
	return s.URL, status, got
}

func next(t *testing.T, got chan post) post {
	t.Helper()
	select {
	case p := <-got:
		return p
	case <-time.After(30 * time.Second):
		t.Fatal("nobody was told")
	}
	return post{}
}

func none(t *testing.T, got chan post) {
	t.Helper()
	select {
	case p := <-got:
		t.Errorf("was told once more: %s", p.body)
	default:
	}
}

func TestWhatWaitsIsToldOnceOverFailuresAndRestarts(t *testing.T) {
	url, status, got := receiver(t)
	t.Setenv("HOOK_SECRET", webhookSecret)
	h := newHouse(t, fmt.Sprintf("approvals: {webhook: {url: %q, secret_env: HOOK_SECRET}}\n", url))

	// The process dies before it tells anything.
	s, end := h.open(t, true)
	question(t, s, "job-1", false)
	end()

	// The next one tells, to no avail.
	status.Store(http.StatusBadGateway)
	s, end = h.open(t, false)
	first := next(t, got)
	end()
	if n := s.teller.failed.Load(); n != 1 || s.Health(t.Context()).Details["approvals"] == "" {
		t.Errorf("%d failures, %v", n, s.Health(t.Context()))
	}

	// It waits, and the one after that tells again, with the same id.
	_, end = h.open(t, false)
	end()
	none(t, got)
	status.Store(http.StatusNoContent)
	h.later += time.Minute
	_, end = h.open(t, false)
	second := next(t, got)
	end()
	id := first.header.Get("webhook-id")
	if id == "" || second.header.Get("webhook-id") != id || first.body != second.body {
		t.Errorf("%v %s and then %v %s", first.header, first.body, second.header, second.body)
	}
	key, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(webhookSecret, "whsec_"))
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.%s", id, second.header.Get("webhook-timestamp"), second.body)
	if want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)); second.header.Get("webhook-signature") != want {
		t.Errorf("signed %s, want %s", second.header.Get("webhook-signature"), want)
	}
	var told Waits
	if err := json.Unmarshal([]byte(second.body), &told); err != nil || told.Event != "approval.waiting" || told.Tenant != "main" || told.Approval.Job != "job-1" ||
		told.Approval.ID != approval.ID("main", "job-1", "pre/person") || told.Approval.Tool != "git.push" || told.Approval.By[0] != "acme.check" || told.Approval.Until.IsZero() {
		t.Errorf("%s: %+v, %v", second.body, told, err)
	}
	if strings.Contains(second.body, "marked") {
		t.Errorf("it was told what was said: %s", second.body)
	}

	// Nobody is told of it again, and another is told by the process that asks.
	h.later += time.Hour
	s, end = h.open(t, false)
	question(t, s, "job-2", true)
	if p := next(t, got); !strings.Contains(p.body, "job-2") {
		t.Errorf("was told %s", p.body)
	}
	end()
	none(t, got)
}

func TestWhatWaitsNoMoreIsNotTold(t *testing.T) {
	url, status, got := receiver(t)
	t.Setenv("HOOK_SECRET", webhookSecret)
	h := newHouse(t, fmt.Sprintf("approvals: {webhook: {url: %q, secret_env: HOOK_SECRET}}\n", url))
	status.Store(http.StatusServiceUnavailable)
	s, end := h.open(t, true)
	question(t, s, "job-1", false)
	end()
	_, end = h.open(t, false)
	next(t, got)
	end()
	status.Store(http.StatusNoContent)
	s, end = h.open(t, true)
	if err := s.journal.Cancel(t.Context(), job.ID{Tenant: "main", Job: "job-1"}, job.Cancellation{At: s.cfg.Clock(), By: "ann"}); err != nil {
		t.Fatal(err)
	}
	end()
	h.later += time.Hour
	s, end = h.open(t, false)
	if _, err := s.Wait(t.Context(), job.ID{Tenant: "main", Job: "job-1"}); err != nil {
		t.Fatal(err)
	}
	end()
	none(t, got)
	if s.teller.failed.Load() != 0 {
		t.Error("that nobody needs to be told counts as a failure")
	}
}

func TestACommandIsToldWithoutSecrets(t *testing.T) {
	t.Setenv("HOOK_SECRET", webhookSecret)
	t.Setenv("BELAY_TOKEN", "belay_secret")
	t.Setenv("PLAIN", "seen")
	h := newHouse(t, "approvals: {command: [./tell.sh, out.json], webhook: {url: 'http://127.0.0.1:1/x', secret_env: HOOK_SECRET}}\n")
	script := "#!/bin/sh\nif [ ! -e try ]; then touch try; echo not yet >&2; exit 3; fi\ncat > \"$1\"\nenv > env.txt\n"
	if err := os.WriteFile(filepath.Join(h.dir, "tell.sh"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	s, end := h.open(t, false)
	question(t, s, "job-1", true)
	end()
	if s.teller.failed.Load() != 2 { // the webhook, whom nobody serves, and the command's first try
		t.Errorf("%d failures", s.teller.failed.Load())
	}
	c := &checkup{Station: s, tenant: "main"}
	s, end = h.open(t, true)
	c.Station = s
	if err := c.people(t.Context(), nil); err != nil {
		t.Error(err)
	}
	said := fmt.Sprint(c.found)
	for _, want := range []string{"waiting for a person: 1", "the command does not take what it is told: 1 are tried again", "./tell.sh ended with exit status 3", "the webhook does not take"} {
		if !strings.Contains(said, want) {
			t.Errorf("the checkup lacks %q: %s", want, said)
		}
	}
	end()
	h.later += time.Minute
	_, end = h.open(t, false)
	end()
	raw, err := os.ReadFile(filepath.Join(h.dir, "out.json"))
	if err != nil || !strings.Contains(string(raw), `"job":"job-1"`) || strings.Contains(string(raw), "marked") {
		t.Errorf("the command read %s, %v", raw, err)
	}
	env, err := os.ReadFile(filepath.Join(h.dir, "env.txt"))
	if err != nil || !strings.Contains(string(env), "PLAIN=seen") || strings.Contains(string(env), "whsec") || strings.Contains(string(env), "belay_secret") {
		t.Errorf("its environment is %s, %v", env, err)
	}
}

func TestACommandThatHangsIsEnded(t *testing.T) {
	c := &command{args: []string{"/bin/sh", "-c", "sleep 600 & wait"}, dir: t.TempDir()}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := c.Send(ctx, noticeOf("{}")); err == nil || !strings.Contains(err.Error(), "had not ended") {
		t.Error(err)
	}
}

func TestAWebhookWithoutItsSecretIsSaid(t *testing.T) {
	h := newHouse(t, "approvals: {webhook: {url: 'http://127.0.0.1:1/x', secret_env: NO_SUCH_SECRET}}\n")
	s, end := h.open(t, false)
	defer end()
	if said := s.Health(t.Context()).Details["approvals"]; !strings.Contains(said, "set the environment variable NO_SUCH_SECRET") {
		t.Errorf("%q", said)
	}
}

func noticeOf(body string) notice.Message { return notice.Message{Body: body} }
