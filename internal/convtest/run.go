package convtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belay-run/belay/internal/agent"
	"github.com/belay-run/belay/internal/app"
	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/conversation"
	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/sqlstore"
	"github.com/belay-run/belay/internal/vault"
)

// Config says which agent is tested, and how.
type Config struct {
	// App is the agent's. Its data folder is the run's own, and its model, when
	// there is one, answers in conversations that bring none.
	App app.Config
	// Only, when set, picks conversations by their names.
	Only *regexp.Regexp
	// Parallel is how many files run at once; 0 means 2.
	Parallel int
	// FailFast runs nothing more once a conversation has failed.
	FailFast bool
	// Timeout bounds a turn; 0 means a minute.
	Timeout time.Duration
	// Each is told of the results of a file, in the files' order; it may be nil.
	Each func(*FileResult)
}

// Status says what came of a conversation.
type Status string

// The statuses.
const (
	Passed Status = "ok"
	Failed Status = "failed"
	NotRun Status = "not run"
)

// FileResult is what came of a file.
type FileResult struct {
	File *File
	// Findings are names in it that the agent does not have.
	Findings []finding.Finding
	Results  []*Result
	Took     time.Duration
}

// Result is what came of a conversation.
type Result struct {
	Conversation *Conversation
	Sender       string // the conversation's, or one made up
	Status       Status
	Took         time.Duration
	// Turn is the one that failed, from 1, with its Failures and its Trace.
	Turn     int
	Failures []Failure
	Trace    string
}

// runner runs the files of one call of [Run].
type runner struct {
	cfg  Config
	spec *agent.Agent
	stop atomic.Bool // a conversation has failed, and that is enough
	seen coverage
}

// Run runs the conversations of the files. An error means that the agent, or a data
// folder, could not be opened; [app.FindingsError] is one of them. When ctx ends, the
// turns under way are cancelled, and what was not run yet is not.
func Run(ctx context.Context, cfg Config, files []*File) (*Report, error) {
	cfg.Timeout = cmp.Or(cfg.Timeout, time.Minute)
	r := &runner{cfg: cfg}
	r.spec, _ = agent.Read(cfg.App.Dir) // opening it tells what is wrong with it
	began := time.Now()
	out := &Report{Agent: r.spec.ID, Model: r.model(), Files: make([]*FileResult, len(files))}
	var tell teller
	tell.each = cfg.Each
	tell.results = out.Files
	errs := make([]error, len(files))
	slots := make(chan struct{}, cmp.Or(cfg.Parallel, 2))
	var all sync.WaitGroup
	for i, f := range files {
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			var result *FileResult
			if result, errs[i] = r.file(ctx, f); errs[i] != nil {
				r.stop.Store(true) // the others would say the same
			}
			tell.of(i, result)
		})
	}
	all.Wait()
	out.Took = time.Since(began)
	out.coverage(r)
	out.Interrupted = ctx.Err() != nil
	return out, firstOf(errs)
}

// firstOf joins errors that differ: files that meet with the same one say it once.
func firstOf(errs []error) error {
	var out []error
	for _, err := range errs {
		if err != nil && !slices.ContainsFunc(out, func(e error) bool { return e.Error() == err.Error() }) {
			out = append(out, err)
		}
	}
	if len(out) == 1 {
		return out[0]
	}
	return errors.Join(out...)
}

// teller tells of results in the order of the files.
type teller struct {
	mu      sync.Mutex
	each    func(*FileResult)
	results []*FileResult
	told    int
}

func (t *teller) of(i int, r *FileResult) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.results[i] = r
	for t.told < len(t.results) && t.results[t.told] != nil {
		if t.each != nil {
			t.each(t.results[t.told])
		}
		t.told++
	}
}

// model names the model that answers where a conversation brings none.
func (r *runner) model() string {
	m := r.spec.Model
	switch {
	case r.cfg.App.Model != "":
		return r.cfg.App.Model
	case m.Provider == agent.Scripted:
		return agent.Scripted
	}
	return ""
}

func (r *runner) over(ctx context.Context) bool { return r.stop.Load() || ctx.Err() != nil }

// file runs the conversations of a file: on one agent, but for those whose sender
// another one has too, which get a new one.
func (r *runner) file(ctx context.Context, f *File) (*FileResult, error) {
	out := &FileResult{File: f}
	began := time.Now()
	defer func() { out.Took = time.Since(began) }()
	for _, c := range f.Conversations {
		if r.cfg.Only == nil || r.cfg.Only.MatchString(c.Name) {
			out.Results = append(out.Results, &Result{Conversation: c, Sender: c.Sender, Status: NotRun})
		}
	}
	if len(out.Results) == 0 || r.over(ctx) {
		return out, nil
	}
	if out.Findings = r.beforehand(f, out.Results); finding.HasErrors(out.Findings) {
		return out, nil
	}
	for i, round := range rounds(out.Results) {
		if r.over(ctx) {
			break
		}
		if err := r.round(ctx, out, round, i == 0); err != nil {
			if ctx.Err() != nil {
				break // Ctrl-C while the agent was loaded
			}
			return out, err
		}
	}
	return out, nil
}

// rounds gives every conversation a sender, and parts those that have the same one:
// modules of the agent keep what they know of a sender.
func rounds(results []*Result) [][]*Result {
	taken := map[string]int{} // sender → rounds that have it
	for _, r := range results {
		if r.Sender != "" {
			taken[r.Sender] = 0
		}
	}
	for i, r := range results {
		if r.Sender == "" {
			sender := fmt.Sprintf("test-%d", i+1)
			for n := 2; ; n++ {
				if _, ok := taken[sender]; !ok {
					break
				}
				sender = fmt.Sprintf("test-%d-%d", i+1, n)
			}
			taken[sender], r.Sender = 0, sender
		}
	}
	var out [][]*Result
	for _, r := range results {
		i := taken[r.Sender]
		taken[r.Sender]++
		if i == len(out) {
			out = append(out, nil)
		}
		out[i] = append(out[i], r)
	}
	return out
}

// round opens the agent on a fresh data folder and runs conversations on it.
func (r *runner) round(ctx context.Context, file *FileResult, results []*Result, first bool) (err error) {
	dir, err := os.MkdirTemp("", "belay-test-")
	if err != nil {
		return fmt.Errorf("make a folder for the records of the test: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	cfg := r.cfg.App
	cfg.Data, cfg.KeyFile = filepath.Join(dir, "data"), ""
	models := &router{models: map[string]chat.Model{}}
	asksAgents := false
	for _, result := range results {
		asksAgents = asksAgents || !result.Conversation.own()
	}
	if asksAgents {
		cfg.WrapModel = func(m chat.Model) chat.Model { models.agents = m; return models }
	} else {
		cfg.Client, cfg.Model = models, ""
	}
	plays := map[*Result]*player{}
	for _, result := range results {
		switch c := result.Conversation; {
		case c.Script != nil:
			models.models[result.Sender] = c.Script
		case c.recorded:
			plays[result] = &player{}
			models.models[result.Sender] = plays[result]
		}
	}
	if err := r.remember(ctx, cfg, results); err != nil {
		return err
	}
	a, err := app.Open(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		err = errors.Join(err, a.Close(end))
	}()
	r.seen.standing(a)
	if first {
		if file.Findings = append(file.Findings, r.names(file.File.Path, a, file.Results)...); finding.HasErrors(file.Findings) {
			return nil
		}
	}
	for _, result := range results {
		if r.over(ctx) {
			break
		}
		r.conversation(ctx, a, result, plays[result])
		if result.Status == Failed && r.cfg.FailFast {
			r.stop.Store(true)
		}
	}
	return nil
}

// remember writes what conversations know when they begin into the records. Such a
// conversation has begun before its first message: nobody greets.
func (r *runner) remember(ctx context.Context, cfg app.Config, results []*Result) (err error) {
	if !slices.ContainsFunc(results, func(r *Result) bool { return len(r.Conversation.Memory) > 0 }) {
		return nil
	}
	if err := os.MkdirAll(cfg.Data, 0o700); err != nil {
		return fmt.Errorf("make a folder for the records of the test: %w", err)
	}
	keys, err := vault.Open(cfg.Data, "")
	if err != nil {
		return err
	}
	store, err := sqlstore.Open(ctx, cfg.Data, sqlstore.Options{Vault: keys, Logger: cfg.Logger})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	for _, result := range results {
		c := result.Conversation
		if len(c.Memory) == 0 {
			continue
		}
		tenant := cmp.Or(cfg.Tenant, "default")
		rec := conversation.Of(store, conversation.ID{Tenant: tenant, Agent: r.spec.ID, Sender: result.Sender}, nil)
		for _, e := range remembered(c) {
			rec.Add(e)
		}
		if err := rec.Flush(ctx); err != nil {
			return err
		}
	}
	return nil
}

// remembered are the events of what a conversation knows when it begins.
func remembered(c *Conversation) []conversation.Event {
	if len(c.Memory) == 0 {
		return nil
	}
	now := time.Now()
	out := []conversation.Event{{Kind: conversation.SessionStarted, At: now}}
	for _, v := range c.Memory {
		e := conversation.Event{Kind: conversation.MemorySet, At: now, Memory: &conversation.Memory{Name: v.Name, Value: v.Value, By: "test"}}
		if string(v.Value) == "null" {
			e.Kind, e.Memory.Value = conversation.MemoryCleared, nil
		}
		out = append(out, e)
	}
	return out
}
