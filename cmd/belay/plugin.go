package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belay-run/belay/internal/expect"
	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/plugin"
	"github.com/belay-run/belay/internal/plugintest"
	"github.com/belay-run/belay/internal/station"
)

// pluginCommand groups what there is to do with plugins.
func pluginCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "plugin",
		Short: "Check, look into, test and install plugins: MCP tools whose functions guard jobs",
		Example: `  belay plugin lint acme-policy
  belay plugin inspect acme-policy
  belay plugin test acme-policy --coverage
  belay plugin install acme-policy`,
		SuggestionsMinimumDistance: 2,

		Args: noSuchCommand,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newPluginLint(), newPluginInspect(), newPluginTest())
	c.AddCommand(pluginStore()...)
	return c
}

// onePlugin wants the plugin's folder as the one argument.
func onePlugin(c *cobra.Command, args []string) error {
	switch len(args) {
	case 0:
		return fmt.Errorf("name the plugin's folder, such as: %s acme-policy", c.CommandPath())
	case 1:
		return nil
	}
	return fmt.Errorf("%s takes one folder; %q is one too many", c.CommandPath(), args[1])
}

func newPluginLint() *cobra.Command {
	var f flags
	var format string
	c := &cobra.Command{
		Use:   "lint DIR",
		Short: "Report everything that is wrong with a plugin",
		Long: `Lint reads the manifest, starts the plugin's servers to see which functions they
offer, reads its tests, and reports all findings of one run. It exits with 1 when
one of them is an error, and with 2 when the check could not be made. It runs the
plugin's programs: inspect one that you do not trust first. Python servers run
under $BELAY_PYTHON, else under the python3 of the path.`,
		Example: `  belay plugin lint acme-policy
  belay plugin lint acme-policy --format sarif > findings.sarif`,
		Args: onePlugin,
		RunE: func(c *cobra.Command, args []string) error {
			write, ok := map[string]func(io.Writer, []finding.Finding) error{"text": finding.Text, "json": finding.JSON, "sarif": pluginSARIF}[format]
			if !ok {
				return fmt.Errorf("--format %q: use text, json or sarif", format)
			}
			log, err := f.logger(c, slog.LevelError+1) // what goes wrong with servers is a finding
			if err != nil {
				return err
			}
			m, findings := plugin.Read(args[0])
			if m.File != "" {
				found, err := lintFolder(c.Context(), station.WorkbenchConfig{Manifest: m, Logger: log})
				if err != nil {
					return unchecked{err}
				}
				findings = append(append(findings, found...), lintTests(m)...)
			}
			findings = finding.Clean(findings)
			if err := write(c.OutOrStdout(), findings); err != nil {
				return err
			}
			if finding.HasErrors(findings) {
				return errSilent
			}
			if format == "text" {
				fmt.Fprintln(c.OutOrStdout(), brings(m))
			}
			return nil
		},
	}
	f.addLog(c)
	c.Flags().StringVar(&format, "format", "text", "text, json or sarif")
	return c
}

// addLog adds the flags of the log alone.
func (f *flags) addLog(c *cobra.Command) {
	c.Flags().StringVar(&f.log, "log-level", "", "debug, info, warn or error")
	c.Flags().BoolVar(&f.json, "log-json", false, "write the log as JSON")
}

// logger gives the log of a command that needs no agent. level is its default.
func (f *flags) logger(c *cobra.Command, level slog.Level) (*slog.Logger, error) {
	cfg, err := f.config("", level, c.ErrOrStderr())
	return cfg.Logger, err
}

// pluginSARIF writes findings about a plugin with their rules.
func pluginSARIF(w io.Writer, findings []finding.Finding) error {
	rules := plugin.Rules()
	known := map[string]bool{}
	for _, r := range rules {
		known[r.ID] = true
	}
	for _, r := range plugintest.Rules() {
		if !known[r.ID] {
			rules = append(rules, r)
		}
	}
	return finding.SARIF(w, findings, rules, version)
}

// lintFolder starts the plugin's servers and checks the manifest against what they
// offer.
func lintFolder(ctx context.Context, cfg station.WorkbenchConfig) (found []finding.Finding, err error) {
	cfg.Version = version
	bench := station.NewWorkbench(cfg)
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		err = errors.Join(err, bench.Close(end))
	}()
	found = bench.Lint(ctx)
	if ctx.Err() != nil {
		return nil, errors.New("interrupted; the plugin was not checked")
	}
	return found, nil
}

// lintTests reads the plugin's tests. Those that a manifest of another platform names
// may be in another form.
func lintTests(m *plugin.Manifest) []finding.Finding {
	var all []finding.Finding
	for _, name := range m.Tests {
		file, found := plugintest.Read(filepath.Join(m.Dir, filepath.FromSlash(name)))
		found = append(found, plugintest.Check(file, m)...)
		if m.File == plugin.OtherFile && finding.HasErrors(found) {
			found = []finding.Finding{{File: name, Rule: "not-acted-on", Severity: finding.Warning,
				Message: "these tests are not written as belay plugin test reads them", Hint: "nothing needs to change; the plugin runs without them"}}
		}
		for i := range found {
			if rel, err := filepath.Rel(m.Dir, found[i].File); err == nil && filepath.IsLocal(rel) {
				found[i].File = filepath.ToSlash(rel)
			}
		}
		all = append(all, found...)
	}
	return all
}

// brings says in a line what the plugin has, so that what was forgotten is noticed.
func brings(m *plugin.Manifest) string {
	parts := []string{expect.Count(len(m.Tools), "tool"), expect.Count(len(m.Hooks), "hook")}
	if n := len(m.Agents); n > 0 {
		parts = append(parts, expect.Count(n, "agent"))
	}
	if m.Policy != nil {
		parts = append(parts, "a policy")
	}
	return m.Name + ": " + strings.Join(append(parts, expect.Count(len(m.Tests), "file")+" of tests"), ", ")
}

// pluginFindings lists what keeps a plugin from being used, and says what follows.
func pluginFindings(c *cobra.Command, findings []finding.Finding, follows string) error {
	if len(findings) > 0 {
		if err := finding.Text(c.ErrOrStderr(), finding.Clean(findings)); err != nil {
			return err
		}
	}
	if finding.HasErrors(findings) {
		return errors.New(follows)
	}
	return nil
}

// testPaths are the files that the manifest names, as they are reached from here.
func testPaths(dir string, m *plugin.Manifest) []string {
	var out []string
	for _, name := range m.Tests {
		out = append(out, filepath.Join(dir, filepath.FromSlash(name)))
	}
	return out
}

// create makes a file for a report.
func create(name string, write func(io.Writer) error) error {
	out, err := os.Create(name)
	if err != nil {
		return fmt.Errorf("write the results: %w", err)
	}
	if err := errors.Join(write(out), out.Close()); err != nil {
		return fmt.Errorf("write the results to %s: %w", name, err)
	}
	return nil
}
