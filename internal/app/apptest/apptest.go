// Package apptest runs whole agents in tests: a folder is written, its Python
// runs in real worker processes, turns go through the app as they do in the
// product. Only the model is a script.
package apptest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belay-run/belay/internal/app"
	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/conversation"
	"github.com/belay-run/belay/internal/rawjson"
	"github.com/belay-run/belay/internal/server"
	"github.com/belay-run/belay/internal/turn"
)

// Files are the files of an agent's folder by their path. What is missing of
// agent.yml, integrations.yml and script.yml is filled in.
type Files map[string]string

var defaults = Files{
	"agent.yml":        "agent:\n  id: test\n  persona: You are a test.\n",
	"integrations.yml": "llm:\n  provider: scripted\n  script: script.yml\n",
	"script.yml":       "default:\n  say: ok\n",
	// A hook says what it saw with: from lib.probe import note; note("name", key=value)
	"lib/probe.py": `import json, os, time

_PATH = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "notes.jsonl")


def note(what, **data):
    line = json.dumps({"what": what, "at": time.monotonic(), "pid": os.getpid(), "data": data})
    with open(_PATH, "a") as f:
        f.write(line + "\n")
`,
}

// Folder writes an agent's folder and returns its path.
func Folder(t testing.TB, files Files) string {
	t.Helper()
	dir := t.TempDir()
	for _, set := range []Files{defaults, files} {
		for name, text := range set {
			Write(t, dir, name, text)
		}
	}
	return dir
}

// Write writes one file of a folder.
func Write(t testing.TB, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Agent is an agent that runs.
type Agent struct {
	T    testing.TB
	App  *app.App
	Dir  string
	Data string

	model *recording
	log   *lockedBuffer
	close sync.Once
}

// Start writes a folder and serves it. The test fails when the agent has
// findings. It is closed when the test ends.
func Start(t testing.TB, files Files, options ...func(*app.Config)) *Agent {
	t.Helper()
	return StartIn(t, Folder(t, files), options...)
}

// StartIn serves a folder that is there.
func StartIn(t testing.TB, dir string, options ...func(*app.Config)) *Agent {
	t.Helper()
	a := &Agent{T: t, Dir: dir, log: &lockedBuffer{}}
	cfg := app.Config{Dir: dir, Data: filepath.Join(dir, ".belay"), Logger: slog.New(slog.NewTextHandler(a.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		WrapModel: func(m chat.Model) chat.Model {
			a.model = &recording{Model: m, next: map[string][]Answer{}}
			return a.model
		}}
	for _, o := range options {
		o(&cfg)
	}
	a.Data = cfg.Data
	var err error
	if a.App, err = app.Open(context.Background(), cfg); err != nil {
		var found *app.FindingsError
		if errors.As(err, &found) {
			for _, f := range found.Findings {
				t.Logf("%s:%d: %s: %s", f.File, f.Line, f.Rule, f.Message)
			}
		}
		t.Fatalf("open the agent: %v\n%s", err, a.log)
	}
	t.Cleanup(a.Close)
	return a
}

// Close ends the agent; it may be called before the test's end.
func (a *Agent) Close() {
	a.close.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := a.App.Close(ctx); err != nil {
			a.T.Errorf("close the agent: %v", err)
		}
	})
}

// Reply is what came of a turn.
type Reply struct {
	Texts  []string // whole texts, in order
	Pieces []string // of texts that streamed
	// Order is everything that was sent: "piece:…" and "text:…".
	Order  []string
	Report turn.Report
}

// Text is all texts, a line each.
func (r Reply) Text() string { return strings.Join(r.Texts, "\n") }

// out makes a reply a [turn.Out].
type out struct{ *Reply }

func (r out) Delta(p string) {
	r.Pieces = append(r.Pieces, p)
	r.Order = append(r.Order, "piece:"+p)
}

func (r out) Text(u turn.Utterance) {
	r.Texts = append(r.Texts, u.Text)
	r.Order = append(r.Order, "text:"+u.Text)
}

// Say sends a text and waits for the turn's end. The test fails when the turn
// cannot be run.
func (a *Agent) Say(sender, text string) Reply {
	a.T.Helper()
	r, err := a.Send(context.Background(), server.Inbound{Sender: sender, Message: turn.Message{Text: text}})
	if err != nil {
		a.T.Fatalf("say %q: %v\n%s", text, err, a.Log())
	}
	return r
}

// Stream is Say for a channel that takes pieces.
func (a *Agent) Stream(sender, text string) Reply {
	a.T.Helper()
	r, err := a.Send(context.Background(), server.Inbound{Sender: sender, Live: true, Message: turn.Message{Text: text}})
	if err != nil {
		a.T.Fatalf("say %q: %v\n%s", text, err, a.Log())
	}
	return r
}

// Send runs one turn.
func (a *Agent) Send(ctx context.Context, in server.Inbound) (Reply, error) {
	if in.Message.Channel == nil {
		in.Message.Channel = rawjson.Must(map[string]any{"name": "test", "metadata": map[string]any{}})
	}
	r := &Reply{}
	var err error
	r.Report, err = a.App.Talk(ctx, in, out{r})
	return *r, err
}

// Requests returns what the model was asked so far, quiet calls among them.
func (a *Agent) Requests() []chat.Request {
	var out []chat.Request
	for _, r := range a.asked() {
		out = append(out, r.Request)
	}
	return out
}

func (a *Agent) asked() []asking {
	a.model.mu.Lock()
	defer a.model.mu.Unlock()
	return append([]asking(nil), a.model.asked...)
}

// Prompts decodes the messages of each request that was made for one
// conversation.
func (a *Agent) Prompts(sender string) [][]map[string]any {
	a.T.Helper()
	var out [][]map[string]any
	for _, r := range a.RequestsOf(sender) {
		var messages []map[string]any
		if err := json.Unmarshal(r.Messages, &messages); err != nil {
			a.T.Fatalf("messages of request %d of %s: %v", len(out), sender, err)
		}
		out = append(out, messages)
	}
	return out
}

// RequestsOf returns what the model was asked so far in one conversation.
func (a *Agent) RequestsOf(sender string) []chat.Request {
	var out []chat.Request
	for _, r := range a.asked() {
		if r.By == sender {
			out = append(out, r.Request)
		}
	}
	return out
}

// Messages decodes the messages of the i-th request; a negative i counts from
// the end.
func (a *Agent) Messages(i int) []map[string]any {
	a.T.Helper()
	all := a.Requests()
	if i < 0 {
		i += len(all)
	}
	if i < 0 || i >= len(all) {
		a.T.Fatalf("request %d of %d", i, len(all))
	}
	var messages []map[string]any
	if err := json.Unmarshal(all[i].Messages, &messages); err != nil {
		a.T.Fatalf("messages of request %d: %v", i, err)
	}
	return messages
}

// AllRequests is the text of every request, for looking for what must not be in
// any.
func (a *Agent) AllRequests() string {
	var b strings.Builder
	for _, r := range a.Requests() {
		b.Write(r.Messages)
		b.WriteByte('\n')
	}
	return b.String()
}

// Events returns the record of a conversation.
func (a *Agent) Events(sender string) []conversation.Event {
	a.T.Helper()
	events, err := a.App.Events(context.Background(), sender)
	if err != nil {
		a.T.Fatal(err)
	}
	return events
}

// Kinds returns the kinds of the events of a conversation.
func (a *Agent) Kinds(sender string) []string {
	var out []string
	for _, e := range a.Events(sender) {
		out = append(out, string(e.Kind))
	}
	return out
}

// Of returns the events of one kind.
func (a *Agent) Of(sender string, kind conversation.Kind) []conversation.Event {
	var out []conversation.Event
	for _, e := range a.Events(sender) {
		if e.Kind == kind {
			out = append(out, e)
		}
	}
	return out
}

// Trace returns the trace of a conversation, once observers have ended.
func (a *Agent) Trace(sender string) []app.TurnTrace {
	a.T.Helper()
	a.App.WaitObservers()
	lines, err := a.App.Traces(context.Background(), sender, "")
	if err != nil {
		a.T.Fatal(err)
	}
	var out []app.TurnTrace
	for _, l := range lines {
		var t app.TurnTrace
		if err := json.Unmarshal(l.Data, &t); err != nil {
			a.T.Fatal(err)
		}
		out = append(out, t)
	}
	return out
}

// TraceText is the whole trace as JSON, for looking for what must or must not be
// in it.
func (a *Agent) TraceText(sender string) string {
	a.T.Helper()
	b, err := json.Marshal(a.Trace(sender))
	if err != nil {
		a.T.Fatal(err)
	}
	return string(b)
}

// Note is one thing that Python code said with lib/probe.py.
type Note struct {
	What string         `json:"what"`
	At   float64        `json:"at"`
	PID  int            `json:"pid"`
	Data map[string]any `json:"data"`
}

// Notes returns what was noted so far, once observers have ended.
func (a *Agent) Notes() []Note {
	a.T.Helper()
	a.App.WaitObservers()
	f, err := os.Open(filepath.Join(a.Dir, "notes.jsonl"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		a.T.Fatal(err)
	}
	defer f.Close()
	var out []Note
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var n Note
		if err := json.Unmarshal(lines.Bytes(), &n); err != nil {
			a.T.Fatal(err)
		}
		out = append(out, n)
	}
	return out
}

// Noted returns the names of the notes, in order.
func (a *Agent) Noted() []string {
	var out []string
	for _, n := range a.Notes() {
		out = append(out, n.What)
	}
	return out
}

// Log returns the log so far.
func (a *Agent) Log() string { return a.log.String() }

// Next makes the model give these answers to the conversation, before it goes on
// with what it says by itself. So tests that share an agent bring their own.
func (a *Agent) Next(sender string, answers ...Answer) {
	a.model.mu.Lock()
	defer a.model.mu.Unlock()
	a.model.next[sender] = append(a.model.next[sender], answers...)
}

// asking is one request to the model, and the conversation it was for.
type asking struct {
	chat.Request
	By string
}

// recording keeps what a model is asked, and gives the answers of [Agent.Next].
type recording struct {
	chat.Model
	mu    sync.Mutex
	asked []asking
	next  map[string][]Answer
}

func (r *recording) Complete(ctx context.Context, req chat.Request, delta func(string)) (chat.Response, error) {
	who := chat.Conversation(ctx)
	r.mu.Lock()
	r.asked = append(r.asked, asking{Request: req, By: who})
	answer := r.Model.Complete
	if next := r.next[who]; len(next) > 0 {
		answer, r.next[who] = next[0], next[1:]
	}
	r.mu.Unlock()
	return answer(ctx, req, delta)
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
