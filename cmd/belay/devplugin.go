package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/belay-run/belay/internal/app"
	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/control"
	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/model/scripted"
	"github.com/belay-run/belay/internal/plugin"
	"github.com/belay-run/belay/internal/station"
)

// devFolder is the folder of a plugin in a session of belay dev.
type devFolder struct {
	dir      string
	files    *app.Files
	manifest *plugin.Manifest // of the copy
	copied   string           // what was checked and is to be installed; "" for nothing
	name     string           // once it is installed
	station  *station.Station // whose tenant's secrets its servers get
	tenant   string
	agents   []string
}

// errDevFindings says that a plugin's findings were printed.
var errDevFindings = errors.New("mend its errors first")

// changed says whether files came, went or changed since the last check.
func (f *devFolder) changed() bool { return f.files.Changed() }

// check copies the plugin, starts the copy's servers and prints what it finds. An
// error says that the plugin cannot be installed. Without the copy, what is saved
// meanwhile would be installed unchecked.
func (f *devFolder) check(ctx context.Context, log *slog.Logger, w io.Writer) error {
	if f.files == nil {
		f.files = app.EveryFile(f.dir) // before they are read: a change while they are is one too
	}
	m, findings := plugin.Read(f.dir)
	if !finding.HasErrors(findings) {
		temp, err := os.MkdirTemp("", "belay-dev-plugin-*")
		if err != nil {
			return fmt.Errorf("copy the plugin: %w", err)
		}
		f.copied = filepath.Join(temp, "plugin")
		if _, err := plugin.Copy(f.dir, f.copied); err != nil {
			return errors.Join(err, f.discard())
		}
		m, findings = plugin.Read(f.copied)
	}
	if !finding.HasErrors(findings) {
		found, err := lintFolder(ctx, station.WorkbenchConfig{Manifest: m, Logger: log, Station: f.station, Tenant: f.tenant})
		if err != nil {
			return errors.Join(err, f.discard())
		}
		findings = finding.Clean(findings, found)
	}
	if len(findings) > 0 {
		if err := finding.Text(w, findings); err != nil {
			return errors.Join(err, f.discard())
		}
	}
	if finding.HasErrors(findings) {
		return errors.Join(errDevFindings, f.discard())
	}
	f.manifest = m
	return nil
}

// discard removes the copy.
func (f *devFolder) discard() error {
	if f.copied == "" {
		return nil
	}
	copied := f.copied
	f.copied = ""
	return os.RemoveAll(filepath.Dir(copied))
}

// install installs the plugin that was checked, or its new version.
func (f *devFolder) install(ctx context.Context, d *desk) (err error) {
	defer func() { err = errors.Join(err, f.discard()) }()
	o := control.PluginOrder{Path: f.copied, AcceptModel: true, AcceptScan: true}
	if f.name != "" && f.name != f.manifest.Name { // it was renamed
		if err := d.RemovePlugin(ctx, f.name, true); err != nil {
			return err
		}
		f.name = ""
	}
	all, err := d.Plugins(ctx)
	if err != nil {
		return err
	}
	for _, p := range all {
		if p.Name == f.manifest.Name {
			o.Name = p.Name
		}
	}
	if _, err := d.InstallPlugin(ctx, o); err != nil {
		return err
	}
	f.name, f.agents = f.manifest.Name, nil
	for _, a := range f.manifest.Agents {
		f.agents = append(f.agents, a.ID)
	}
	return nil
}

// summary is one line about what the plugin brings.
func (f *devFolder) summary() string {
	var hooks []string
	for i := range f.manifest.Hooks {
		hooks = append(hooks, f.manifest.Hooks[i].Call())
	}
	parts := []string{strings.TrimSpace("plugin " + f.manifest.Name + " " + f.manifest.Version)}
	if len(f.agents) > 0 {
		parts = append(parts, "agent "+strings.Join(f.agents, ", "))
	}
	if len(hooks) > 0 {
		parts = append(parts, "hooks "+strings.Join(hooks, ", "))
	}
	return strings.Join(parts, " · ")
}

// devPolicy is the file of the policy.
type devPolicy struct {
	path string // "" for none
	text []byte // as it was read last
}

// apply applies the policy if its file has changed.
func (p *devPolicy) apply(ctx context.Context, d *desk) (applied bool, err error) {
	if p.path == "" {
		return false, nil
	}
	text, err := os.ReadFile(p.path)
	if err != nil {
		if p.text == nil {
			return false, fmt.Errorf("read the policy: %w", err)
		}
		return false, nil // an editor may be writing it
	}
	if p.text != nil && bytes.Equal(text, p.text) {
		return false, nil
	}
	p.text = text
	_, err = d.ApplyPolicy(ctx, control.PolicyOrder{Text: string(text)})
	return err == nil, err
}

// devScript is a scripted model whose file is read again when it has changed.
type devScript struct {
	path string
	errs io.Writer

	mu     sync.Mutex
	text   []byte
	script *scripted.Script
}

func newDevScript(path string, errs io.Writer) (*devScript, error) {
	s := &devScript{path: path, errs: errs}
	return s, s.read()
}

func (s *devScript) read() error {
	text, err := os.ReadFile(s.path)
	if err != nil {
		return fmt.Errorf("the script of the model: %w", err)
	}
	if s.text != nil && bytes.Equal(text, s.text) {
		return nil
	}
	s.text = text
	script, findings := scripted.Parse(s.path, text)
	if finding.HasErrors(findings) {
		return &station.FindingsError{What: s.path, Findings: findings}
	}
	s.script = script
	return nil
}

// Name implements [chat.Model].
func (s *devScript) Name() string { return scripted.Name }

// Complete implements [chat.Model].
func (s *devScript) Complete(ctx context.Context, req chat.Request, delta func(string)) (chat.Response, error) {
	s.mu.Lock()
	if err := s.read(); err != nil {
		fmt.Fprintln(s.errs, "belay:", explainFiles(s.errs, err))
		fmt.Fprintln(s.errs, "belay: the script before goes on")
	}
	script := s.script
	s.mu.Unlock()
	return script.Complete(ctx, req, delta)
}

// serverPrints is a log's handler that shows what MCP servers print, whatever the
// log's level: who writes a hook looks for its print at the terminal.
type serverPrints struct {
	slog.Handler
	to     io.Writer
	server string
}

// Enabled implements [slog.Handler].
func (p *serverPrints) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo || p.Handler.Enabled(ctx, level)
}

// Handle implements [slog.Handler].
func (p *serverPrints) Handle(ctx context.Context, r slog.Record) error {
	if p.Handler.Enabled(ctx, r.Level) {
		return p.Handler.Handle(ctx, r)
	}
	if r.Message != "mcp server printed" {
		return nil
	}
	var err error
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "line" {
			_, err = fmt.Fprintf(p.to, "%s> %s\n", p.server, plain(a.Value.String()))
		}
		return true
	})
	return err
}

// WithAttrs implements [slog.Handler].
func (p *serverPrints) WithAttrs(attrs []slog.Attr) slog.Handler {
	server := p.server
	for _, a := range attrs {
		if a.Key == "server" {
			server = a.Value.String()
		}
	}
	return &serverPrints{p.Handler.WithAttrs(attrs), p.to, server}
}

// WithGroup implements [slog.Handler].
func (p *serverPrints) WithGroup(name string) slog.Handler {
	return &serverPrints{p.Handler.WithGroup(name), p.to, p.server}
}
