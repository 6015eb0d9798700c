package pyhost

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/internal/finding"
	sdk "github.com/belay-run/belay/sdk/python"
)

// Config says where the agent is and how its workers run. Only Dir has no default.
type Config struct {
	// Dir is the agent's folder; workers run in it.
	Dir string
	// Python is the interpreter. Empty means .venv/bin/python in Dir if there
	// is one, else $BELAY_PYTHON, else python3.
	Python string
	// Workers is how many processes share the calls, by their key; 0 means 1.
	// With one worker modules share their state between all conversations.
	Workers int
	// Declared is the memory that the agent declares; without it every use of
	// memory that the sources show is a finding.
	Declared Declared
	// SDK has the Python package, which is laid into the user's cache folder;
	// nil means the one that this program carries.
	SDK fs.FS
	// Logger gets what hooks print and what happens to workers; nil means none.
	Logger *slog.Logger
	// Grace is how long a worker may stay silent after a call's limit; 0 means
	// 300 ms.
	Grace time.Duration
	// ImportLimit is the time for importing one module; 0 means 10 s.
	ImportLimit time.Duration
	// OnEvent hears what happens to workers, one event at a time; nil means
	// nobody does.
	OnEvent func(Event)

	workerWait time.Duration // for tests; 0 means the constant
}

// Declared has the names of the memory values that an agent's memory.yml files
// declare, without what stands before the dot.
type Declared struct {
	Project []string            `json:"project"`
	Skills  map[string][]string `json:"skills"` // by the skill's id
}

func (c Config) withDefaults() (Config, error) {
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return c, fmt.Errorf("agent folder %q: %w", c.Dir, err)
	}
	c.Dir = dir
	if c.SDK == nil {
		c.SDK = sdk.FS
	}
	if c.Declared.Project == nil {
		c.Declared.Project = []string{}
	}
	if c.Declared.Skills == nil {
		c.Declared.Skills = map[string][]string{}
	}
	if c.Workers < 1 {
		c.Workers = 1
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Grace <= 0 {
		c.Grace = 300 * time.Millisecond
	}
	if c.ImportLimit <= 0 {
		c.ImportLimit = 10 * time.Second
	}
	if c.workerWait <= 0 {
		c.workerWait = workerWait
	}
	return c, nil
}

// Host runs an agent's Python hooks and tools. It implements [hook.Host].
type Host struct {
	cfg       Config
	log       *slog.Logger
	sdk       string // folder of the Python package
	catalogue catalogue
	findings  []finding.Finding
	skip      []string // files that must not be imported
	places    []*place
	events    events
	all       sync.WaitGroup

	mu     sync.Mutex
	python string // the interpreter
	spare  *worker
	vacant []*place // without a worker, in the order in which they lost it
	quick  int      // workers that died young, in a row
	closed bool
	wake   chan struct{} // the supervisor has something to look at
	stop   chan struct{}
}

// Load starts a worker, lets it import the agent and keeps it for the agent's
// calls. What is wrong with the agent's modules is in [Host.Findings]; an error
// means that Python itself cannot run, and says what to do about it.
func Load(ctx context.Context, cfg Config) (*Host, error) {
	h, first, err := open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	h.places[0].take(first) // nothing waits yet, so nothing is to be told
	h.vacant = slices.Clone(h.places[1:])
	h.mu.Unlock()
	h.all.Go(h.supervise)
	h.nudge()
	return h, nil
}

// Check loads the agent, as Load does, and ends it again: it is for a check that
// asks no hook.
func Check(ctx context.Context, cfg Config) (*Host, error) {
	h, first, err := open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	h.closed = true
	for _, p := range h.places {
		p.closed = true
	}
	h.quit(ctx, first)
	h.events.close()
	h.all.Wait()
	return h, nil
}

// open makes a host and its first worker.
func open(ctx context.Context, cfg Config) (*Host, *worker, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, nil, err
	}
	python, err := findPython(cfg)
	if err != nil {
		return nil, nil, err
	}
	folder, err := extract(cfg.SDK)
	if err != nil {
		return nil, nil, err
	}
	h := &Host{cfg: cfg, log: cfg.Logger, sdk: folder, python: python, wake: make(chan struct{}, 1), stop: make(chan struct{})}
	for i := range cfg.Workers {
		p := &place{host: h, index: i, log: h.log.With("worker", i), vacant: time.Now()}
		h.places = append(h.places, p)
	}
	h.events.start(cfg.OnEvent, &h.all)
	w, err := h.first(ctx)
	if err != nil {
		h.events.close()
		h.all.Wait()
		return nil, nil, err
	}
	return h, w, nil
}

// Hooks returns the agent's hooks, ready for an engine.
func (h *Host) Hooks() []*hook.Hook {
	hooks := make([]*hook.Hook, len(h.catalogue.hooks))
	for i, k := range h.catalogue.hooks {
		k.Host, k.Handle = h, i
		hooks[i] = &k
	}
	return hooks
}

// Tools returns the agent's tools.
func (h *Host) Tools() []ToolInfo { return slices.Clone(h.catalogue.tools) }

// Findings returns what is wrong with the agent's Python modules.
func (h *Host) Findings() []finding.Finding { return slices.Clone(h.findings) }

// Start asks a hook; see [hook.Host]. It never blocks. done must not block either
// when it is for a modify hook: the worker's answers are read by the goroutine
// that calls it.
func (h *Host) Start(ctx context.Context, q hook.Question, done func(hook.Answer)) {
	if q.Hook.Handle < 0 || q.Hook.Handle >= len(h.catalogue.hooks) {
		done(hook.Failed(hook.Unavailable, "%s is no hook of this host", q.Hook.Name))
		return
	}
	h.begin(ctx, &call{
		name: q.Hook.Name, file: q.Hook.File, line: q.Hook.Line, key: q.Key, limit: limitOf(q.Hook), handle: q.Hook.Handle,
		payload: q.Payload, hookDone: done, aside: q.Hook.Lane == hook.Observe,
	})
}

func limitOf(k *hook.Hook) time.Duration {
	switch {
	case k.Limit > 0:
		return k.Limit
	case k.Lane == hook.Observe:
		return k.Point.ObserveLimit
	}
	return k.Point.ModifyLimit
}

func (h *Host) begin(ctx context.Context, c *call) {
	c.asked = time.Now()
	if err := ctx.Err(); err != nil {
		c.fail(c.asked, hook.Cancelled, NotRun, "the caller gave up before the call was made").tell()
		return
	}
	if n := c.size(); n > maxFrameOut {
		c.fail(c.asked, hook.Unavailable, NotRun, fmt.Sprintf("a payload of %d bytes is more than a worker is sent (%d)", n, maxFrameOut)).tell()
		return
	}
	h.places[placeOf(c.key, len(h.places))].start(ctx, c)
}

// placeOf spreads keys over n places, the same key always to the same (FNV-1a).
func placeOf(key string, n int) int {
	if n == 1 {
		return 0
	}
	sum := uint32(2166136261)
	for i := range len(key) {
		sum = (sum ^ uint32(key[i])) * 16777619
	}
	return int(sum % uint32(n))
}

// Close takes no more calls, waits for those under way until ctx ends, and ends
// every process. Nothing of the host is left when it returns.
func (h *Host) Close(ctx context.Context) error {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return nil
	}
	h.closed = true
	close(h.stop)
	h.mu.Unlock()

	var drained sync.WaitGroup
	for _, p := range h.places {
		drained.Go(func() { p.drain(ctx) })
	}
	drained.Wait()

	h.mu.Lock()
	workers := []*worker{}
	if h.spare != nil {
		workers = append(workers, h.spare)
	}
	h.mu.Unlock()
	for _, p := range h.places {
		p.mu.Lock()
		if p.worker != nil {
			workers = append(workers, p.worker)
		}
		p.mu.Unlock()
	}
	var ended sync.WaitGroup
	for _, w := range workers {
		ended.Go(func() { h.quit(ctx, w) })
	}
	ended.Wait()
	h.events.close()
	h.all.Wait()
	return nil
}

func (h *Host) event(e Event) { h.events.add(e) }
