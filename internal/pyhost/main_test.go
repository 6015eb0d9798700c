package pyhost

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/belay-run/belay/hook"
)

func TestMain(m *testing.M) {
	cache, err := os.MkdirTemp("", "belay-pyhost-test-*")
	if err != nil {
		panic(err)
	}
	os.Setenv("XDG_CACHE_HOME", cache)
	code := m.Run()
	_ = os.RemoveAll(cache)
	if code == 0 {
		if err := goleak.Find(); err != nil {
			println("goroutines are left:", err.Error())
			code = 1
		}
	}
	os.Exit(code)
}

const (
	patience = 30 * time.Second       // for what must happen; nothing waits so long when all is well
	busyRoom = 400 * time.Millisecond // how much later things may happen on a busy machine
)

// rig is a host over an agent's folder, with what it logged and told.
type rig struct {
	testing.TB
	*Host
	dir    string
	log    *logbook
	events *eventbook
}

// agent writes files into a folder of their own.
func agent(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func newRig(t testing.TB, hooks string, set ...func(*Config)) *rig {
	t.Helper()
	return loadRig(t, map[string]string{"hooks.py": "from __future__ import annotations\nfrom belay.hooks import *\n" + hooks}, set...)
}

func loadRig(t testing.TB, files map[string]string, set ...func(*Config)) *rig {
	t.Helper()
	r := &rig{TB: t, dir: agent(t, files), log: newLogbook(), events: newEventbook()}
	cfg := Config{Dir: r.dir, Logger: slog.New(slog.NewTextHandler(r.log, nil)), OnEvent: r.events.add}
	for _, f := range set {
		f(&cfg)
	}
	h, err := Load(t.Context(), cfg)
	if err != nil {
		t.Fatalf("load: %v\n%s", err, r.log)
	}
	r.Host = h
	for _, f := range h.Findings() {
		t.Errorf("finding: %+v", f)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := h.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
		if t.Failed() {
			t.Logf("log:\n%s", r.log)
		}
	})
	return r
}

// hook returns the agent's hook of that function's name.
func (r *rig) hook(fn string) *hook.Hook {
	r.Helper()
	hooks := r.Hooks()
	i := slices.IndexFunc(hooks, func(k *hook.Hook) bool { return strings.HasSuffix(k.Name, ":"+fn) })
	if i < 0 {
		r.Fatalf("no hook %q among %d", fn, len(hooks))
	}
	return hooks[i]
}

// pending is a question on its way.
type pending struct {
	testing.TB
	answer chan hook.Answer
	start  time.Time
}

func (r *rig) start(ctx context.Context, fn, key string, set ...any) *pending {
	r.Helper()
	k := r.hook(fn)
	p := hook.NewPayload(k.Point)
	for i := 0; i+1 < len(set); i += 2 {
		p = p.Set(set[i].(string), set[i+1])
	}
	got := &pending{TB: r.TB, answer: make(chan hook.Answer, 1), start: time.Now()}
	r.Start(ctx, hook.Question{Hook: k, Payload: p, Key: key}, func(a hook.Answer) { got.answer <- a })
	return got
}

func (p *pending) wait() hook.Answer {
	p.Helper()
	select {
	case a := <-p.answer:
		return a
	case <-time.After(patience):
		p.Fatal("no answer came")
		return hook.Answer{}
	}
}

func (r *rig) ask(fn string, set ...any) hook.Answer {
	r.Helper()
	return r.start(r.Context(), fn, "k", set...).wait()
}

// text returns the text that a hook of incoming message changed it to.
func (r *rig) text(a hook.Answer) string {
	r.Helper()
	if a.Failure != nil || a.Verdict.Kind != hook.Continue {
		r.Fatalf("want a changed text, got %+v, failure %v", a.Verdict, a.Failure)
	}
	for _, c := range a.Verdict.Changes {
		if c.Field == 0 {
			return string(c.Value)
		}
	}
	return ""
}

func (r *rig) failed(a hook.Answer, kind hook.FailureKind) *hook.Failure {
	r.Helper()
	if a.Failure == nil || a.Failure.Kind != kind {
		r.Fatalf("want a failure %q, got %+v, failure %v", kind, a.Verdict, a.Failure)
	}
	return a.Failure
}

// pid returns the process that serves place 0, once there is one.
func (r *rig) pid() int {
	p := r.places[0]
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.worker == nil {
		return 0
	}
	return p.worker.proc.pid()
}

// spareReady waits for the warm spare.
func (r *rig) spareReady() {
	r.Helper()
	r.events.wait(r.TB, func(all []Event) bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.spare != nil
	}, "a spare")
}

// logbook keeps what is logged and lets tests wait for it.
type logbook struct {
	mu    sync.Mutex
	text  bytes.Buffer
	grown chan struct{}
}

func newLogbook() *logbook { return &logbook{grown: make(chan struct{})} }

func (l *logbook) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.grown)
	l.grown = make(chan struct{})
	return l.text.Write(b)
}

func (l *logbook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// wait returns the log once it has all of the words.
func (l *logbook) wait(t testing.TB, words ...string) string {
	t.Helper()
	late := time.After(patience)
	for {
		l.mu.Lock()
		text, grown := l.text.String(), l.grown
		l.mu.Unlock()
		missing := slices.DeleteFunc(slices.Clone(words), func(w string) bool { return strings.Contains(text, w) })
		if len(missing) == 0 {
			return text
		}
		select {
		case <-grown:
		case <-late:
			t.Fatalf("the log lacks %q:\n%s", missing, text)
		}
	}
}

// eventbook keeps events and lets tests wait for them.
type eventbook struct {
	mu    sync.Mutex
	all   []Event
	grown chan struct{}
}

func newEventbook() *eventbook { return &eventbook{grown: make(chan struct{})} }

// forget drops what was told so far.
func (b *eventbook) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all = nil
}

func (b *eventbook) add(e Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all = append(b.all, e)
	close(b.grown)
	b.grown = make(chan struct{})
}

func (b *eventbook) wait(t testing.TB, ok func([]Event) bool, what string) []Event {
	t.Helper()
	late := time.After(patience)
	for {
		b.mu.Lock()
		all, grown := slices.Clone(b.all), b.grown
		b.mu.Unlock()
		if ok(all) {
			return all
		}
		select {
		case <-grown:
		case <-late:
			t.Fatalf("no event says %s: %+v", what, all)
		}
	}
}

func (b *eventbook) waitFor(t testing.TB, kind EventKind) Event {
	t.Helper()
	has := func(e Event) bool { return e.Kind == kind }
	all := b.wait(t, func(all []Event) bool { return slices.ContainsFunc(all, has) }, string(kind))
	return all[slices.IndexFunc(all, has)]
}
