package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/internal/agent"
	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/knowledge"
	"github.com/belay-run/belay/internal/loop"
	"github.com/belay-run/belay/internal/model/scripted"
	"github.com/belay-run/belay/internal/prompt"
	"github.com/belay-run/belay/internal/pyhost"
	"github.com/belay-run/belay/internal/skill"
	"github.com/belay-run/belay/internal/sqlstore"
	"github.com/belay-run/belay/internal/telemetry"
	"github.com/belay-run/belay/internal/turn"
	sdk "github.com/belay-run/belay/sdk/python"
)

// loaded is an agent folder with its Python running.
type loaded struct {
	spec     *agent.Agent
	host     *pyhost.Host
	index    *knowledge.Index
	remote   *remote
	script   *scripted.Script // when the agent's model is one
	findings []finding.Finding
}

// starter imports an agent's Python.
type starter func(context.Context, pyhost.Config) (*pyhost.Host, error)

// read reads and checks a folder: everything that can be found in one go. Without
// a folder there is no host. start is [pyhost.Load], or [pyhost.Check] when nothing
// will be asked; events hears what happens to workers.
func read(ctx context.Context, cfg Config, start starter, events func(pyhost.Event)) (*loaded, error) {
	l := &loaded{}
	l.spec, l.findings = agent.Read(cfg.Dir)
	if info, err := os.Stat(cfg.Dir); err != nil || !info.IsDir() {
		return l, nil // the findings say so
	}
	var found []finding.Finding
	l.index, found = knowledge.Open(cfg.Dir, references(l.spec), l.spec.Language)
	l.findings = append(l.findings, found...)
	if l.spec.Model.Provider == agent.Scripted && cfg.Client == nil && cfg.Model == "" {
		l.script, found = readScript(l.spec.Model)
		l.findings = append(l.findings, found...)
	}
	l.remote, found = openRemote(ctx, l.spec, cfg.Logger, cfg.Version)
	l.findings = append(l.findings, found...)
	host, err := start(ctx, pyhost.Config{Dir: cfg.Dir, Python: cfg.Python, Workers: l.spec.Limits.HookWorkers, SDK: sdk.FS,
		Declared: declared(l.spec.Skills),
		Logger:   cfg.Logger, OnEvent: events})
	if err != nil {
		return nil, errors.Join(err, l.close(ctx))
	}
	l.host = host
	l.findings = append(l.findings, host.Findings()...)
	l.findings = append(l.findings, l.tools()...)
	return l, nil
}

// declared names the memory of an agent for its Python tools.
func declared(set *skill.Set) pyhost.Declared {
	d := pyhost.Declared{Skills: map[string][]string{}}
	if set == nil {
		return d
	}
	for _, f := range set.Project {
		d.Project = append(d.Project, f.Name)
	}
	for _, k := range set.Skills {
		for _, f := range k.Memory {
			d.Skills[k.ID] = append(d.Skills[k.ID], f.Name)
		}
	}
	return d
}

func (l *loaded) close(ctx context.Context) error {
	var errs []error
	if l.host != nil {
		errs = append(errs, l.host.Close(ctx))
	}
	if l.index != nil {
		errs = append(errs, l.index.Close())
	}
	if l.remote != nil {
		errs = append(errs, l.remote.close(ctx))
	}
	return errors.Join(errs...)
}

// failed says whether some finding keeps the agent from serving.
func (l *loaded) failed() bool {
	return finding.HasErrors(l.findings)
}

// tools checks what only the whole can tell: names that the framework keeps, and
// responses that are not there.
func (l *loaded) tools() []finding.Finding {
	var out []finding.Finding
	add := func(t pyhost.ToolInfo, rule, message, hint string) {
		out = append(out, finding.Finding{File: t.File, Line: t.Line, Rule: rule, Severity: finding.Error, Message: message, Hint: hint})
	}
	var names []agent.Tool
	for _, t := range l.host.Tools() {
		names = append(names, agent.Tool{Name: t.Name, File: t.File})
	}
	out = append(out, agent.CheckTools(l.spec, names)...)
	book := l.spec.Responses
	for _, t := range l.host.Tools() {
		if slices.Contains(turn.Reserved, t.Name) {
			add(t, "reserved-tool", fmt.Sprintf("the name %s is the framework's", t.Name), "give the tool another name")
		}
		for _, name := range []string{t.UtterForConfirmation, t.UtterOnUserDenial, t.OnSuccess} {
			if name != "" && !book.Has(name) {
				add(t, "unknown-response", fmt.Sprintf("tool %s names the response %s, which is not there", t.Name, name), "write it into responses.yml")
			}
		}
	}
	return out
}

// Rules describes the rules whose findings Go makes; those of Python sources bring
// their own words.
func Rules() []finding.Rule {
	return slices.Concat(agent.Rules(), knowledge.Rules(), scripted.Rules(), []finding.Rule{
		{ID: "reserved-tool", Summary: "A tool has a name of the framework's.", Help: "Give the tool another name."},
		{ID: "mcp-server", Summary: "An MCP server cannot be set up.", Help: "Mend its entry in integrations.yml."},
		{ID: "mcp-unreachable", Summary: "An MCP server did not say what tools it has.", Help: "See that it runs. Until it answers its tools are not offered."},
		{ID: "mcp-variable", Summary: "An MCP server needs an environment variable that is not set.", Help: "Set it before the agent is served."},
		{ID: "model", Summary: "The model cannot be asked.", Help: "Mend integrations.yml, or set the variable that holds its key."},
	})
}

// Check reads a folder, imports its Python and reports everything it finds.
func Check(ctx context.Context, cfg Config) (findings []finding.Finding, hooks []*hook.Hook, err error) {
	if cfg, err = cfg.withDefaults(); err != nil {
		return nil, nil, err
	}
	l, err := read(ctx, cfg, pyhost.Check, nil)
	if err != nil {
		return nil, nil, err
	}
	if l.host != nil {
		hooks = l.host.Hooks()
	}
	if l.host != nil && !l.failed() {
		_, err = openModel(cfg, l)
		if err != nil && cfg.Model != "" {
			return nil, nil, errors.Join(err, l.close(context.WithoutCancel(ctx))) // no file of the folder is wrong
		}
		if err != nil {
			l.findings = append(l.findings, modelFinding(err))
		}
	}
	return l.findings, hooks, l.close(context.WithoutCancel(ctx))
}

// version is one loading of the agent. Turns under way keep theirs when a new
// one is loaded.
type version struct {
	turn     *turn.Agent
	model    chat.Model
	loaded   *loaded
	scripted bool
	queue    int
	users    sync.WaitGroup

	switching sync.Mutex
	off       map[string]sqlstore.HookSwitch
}

func (v *version) close(ctx context.Context) {
	v.users.Wait()
	v.turn.Hooks.Wait()
	if c, ok := v.model.(io.Closer); ok {
		if err := c.Close(); err != nil {
			v.turn.Logger.Warn("the model's connections did not close in order", "error", err)
		}
	}
	if err := v.loaded.close(ctx); err != nil {
		v.turn.Logger.Error("the Python workers or the search index did not end in order", "error", err)
	}
}

// load loads the folder into a version that can serve.
func (a *App) load(ctx context.Context) (_ *version, err error) {
	l, err := read(ctx, a.cfg, pyhost.Load, a.workerEvent)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = l.close(context.WithoutCancel(ctx)) // the error that is returned says more
		}
	}()
	if l.failed() {
		return nil, &FindingsError{l.findings}
	}
	model, err := openModel(a.cfg, l)
	if err != nil {
		return nil, err
	}
	v := &version{loaded: l, model: model, scripted: isScripted(model), queue: l.spec.Limits.Queue}
	if a.cfg.WrapModel != nil {
		model = a.cfg.WrapModel(model)
	}
	if err := a.see(ctx, model, l); err != nil {
		return nil, err
	}
	engine, err := hook.NewEngine(&recorder{app: a, agent: l.spec.ID}, append(l.host.Hooks(), a.cfg.Hooks...)...)
	if err != nil {
		return nil, err
	}
	v.turn = a.newAgent(l, model, engine)
	l.remote.watch()
	return v, nil
}

func (a *App) newAgent(l *loaded, model chat.Model, engine *hook.Engine) *turn.Agent {
	s := l.spec
	out := &turn.Agent{
		ID: s.ID,
		Profile: turn.Profile{Name: s.Name, Persona: s.Persona, Rules: s.Rules, TextRules: s.TextRules,
			Instructions: s.Instructions, Language: s.Language, Searches: searches(s)},
		Skills: s.Skills, Hooks: engine, Model: model, Tools: newTools(l.host, l.remote, a.cfg.Logger), Words: s.Responses.WithLog(a.cfg.Logger),
		Limits:  loop.Limits{Iterations: s.Limits.Iterations, EmptyRetries: orNone(s.Limits.EmptyRetries)},
		History: s.Limits.History, ToolTimeout: s.ToolTimeout, Logger: a.cfg.Logger, Clock: a.cfg.Clock, NewID: newID,
	}
	if l.index != nil {
		out.Knowledge = searcher{l.index}
	}
	if s.Limits.PromptTokens > 0 {
		out.Fit = prompt.NewFitter(s.Model.Name).Within(s.Limits.PromptTokens)
	}
	return out
}

// orNone writes "none" as the loop does: 0 is its default.
func orNone(n int) int {
	if n == 0 {
		return -1
	}
	return n
}

// references are the documents of the project and of its skills.
func references(s *agent.Agent) []string {
	out := slices.Clone(s.KnowledgeFiles)
	if s.Skills != nil {
		for _, k := range s.Skills.Skills {
			out = append(out, k.References...)
		}
	}
	return out
}

// searches says whether the agent has, or should have, something to search.
func searches(s *agent.Agent) bool {
	info, err := os.Stat(filepath.Join(s.Dir, "references"))
	return s.Instructions != "" || len(s.KnowledgeFiles) > 0 || err == nil && info.IsDir()
}

// see makes the telemetry when the first version is loaded, and tells it the
// tools of later ones.
func (a *App) see(ctx context.Context, model chat.Model, l *loaded) error {
	names := slices.Clone(turn.Reserved)
	for _, t := range l.host.Tools() {
		names = append(names, t.Name)
	}
	for _, t := range l.remote.list() {
		names = append(names, t.Name)
	}
	if t := a.seen.Load(); t != nil {
		t.KnowTools(names)
		return nil
	}
	t, err := telemetry.New(ctx, telemetry.Options{Logger: a.cfg.Logger, Version: a.cfg.Version, Model: model.Name(), Tools: names, Mask: a.secrets.mask})
	a.seen.Store(t)
	return err
}

// searcher gives the passages of an index as JSON.
type searcher struct{ index *knowledge.Index }

const passages = 5

func (s searcher) Search(ctx context.Context, query, skill string) ([]json.RawMessage, error) {
	scopes := []string{knowledge.Project}
	if skill != "" {
		scopes = append(scopes, skill)
	}
	found, err := s.index.Search(ctx, query, passages, scopes...)
	if err != nil {
		return nil, err
	}
	out := make([]json.RawMessage, len(found))
	for i, p := range found {
		if out[i], err = json.Marshal(p); err != nil {
			return nil, fmt.Errorf("passage of %s: %w", p.Source, err)
		}
	}
	return out, nil
}

// switchTo turns off the named hooks, and says in the log what changed.
func (v *version) switchTo(off map[string]sqlstore.HookSwitch, log *slog.Logger) {
	v.switching.Lock()
	defer v.switching.Unlock()
	if maps.Equal(off, v.off) {
		return
	}
	before := v.off
	v.off = off
	names := make(map[string]bool, len(off))
	for name := range off {
		names[name] = true
	}
	v.turn.Hooks.Switch(names) // first: who reads the log may rely on it
	for name, s := range off {
		if before[name].ID != s.ID {
			log.Warn("a hook is switched off", "hook", name, "by", s.By, "reason", s.Reason, "until", s.Until)
		}
	}
	for name := range before {
		if !names[name] {
			log.Warn("a hook is switched on again", "hook", name)
		}
	}
}
