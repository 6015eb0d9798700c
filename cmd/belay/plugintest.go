package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"time"

	"github.com/spf13/cobra"

	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/plugin"
	"github.com/belay-run/belay/internal/plugintest"
)

// pluginTestFlags are those of belay plugin test.
type pluginTestFlags struct {
	flags
	only     string
	coverage bool
	json     bool
	junit    string
	min      float64
	timeout  time.Duration
}

func newPluginTest() *cobra.Command {
	var f pluginTestFlags
	c := &cobra.Command{
		Use:   "test DIR [FILES…]",
		Short: "Run the cases that a plugin is tested with",
		Long: `Test runs cases that are written in YAML: an event with what the hooks should
say of it, or a whole job with a scripted model, canned results of tools and
people's answers. Without FILES it runs those that the manifest names under
tests. The plugin's servers run for real, and the hooks are asked as in a job.

A case that expects allow is a canary: it stands for what must go through
untouched, and is counted apart. --coverage counts each hook as a decision point
with two branches: allowed and refused, or allowed and escalated for a hook that
may only escalate.

It exits with 1 when a case fails or a file has mistakes, and with 2 when the
tests could not be run.`,
		Example: `  belay plugin test acme-policy
  belay plugin test acme-policy acme-policy/tests/push.yaml --run 'main'
  belay plugin test acme-policy --coverage --min 100 --junit results.xml`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return onePlugin(c, args)
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error { return f.run(c, args[0], args[1:]) },
	}
	f.addLog(c)
	c.Flags().StringVar(&f.only, "run", "", "run only cases whose name matches the pattern")
	c.Flags().BoolVar(&f.coverage, "coverage", false, "show which branches of the hooks the cases go through")
	c.Flags().Float64Var(&f.min, "min", 0, "fail when less than this share of the branches is covered, in percent")
	c.Flags().BoolVar(&f.json, "json", false, "write JSON")
	c.Flags().StringVar(&f.junit, "junit", "", "write the results to a file in JUnit's form")
	c.Flags().DurationVar(&f.timeout, "timeout", time.Minute, "time for one case")
	return c
}

func (f *pluginTestFlags) run(c *cobra.Command, dir string, paths []string) error {
	cfg, err := f.settings(c)
	if err != nil {
		return err
	}
	m, findings := plugin.Read(dir)
	if finding.HasErrors(findings) {
		return pluginFindings(c, findings, "nothing was run; the plugin has mistakes")
	}
	cfg.Manifest = m
	files, err := f.read(c, dir, paths, m)
	if err != nil {
		return err
	}
	text := io.Discard
	if !f.json {
		text = c.OutOrStdout()
	}
	var broken error // of the output
	cfg.Warn = func(found []finding.Finding) { broken = errors.Join(broken, finding.Text(c.ErrOrStderr(), found)) }
	cfg.Each = func(r *plugintest.FileResult) { broken = errors.Join(broken, plugintest.WriteFile(text, r)) }
	report, err := plugintest.Run(c.Context(), cfg, files)
	if wrong := (*plugintest.FindingsError)(nil); errors.As(err, &wrong) {
		return pluginFindings(c, wrong.Findings, "nothing was run; the plugin has mistakes")
	}
	if err != nil {
		return unchecked{err}
	}
	if cases, canaries := report.Totals(); cases.Cases+canaries.Cases == 0 {
		return fmt.Errorf("no case has a name that matches --run %q; nothing was tested", f.only)
	}
	if err := errors.Join(broken, report.WriteSummary(text), f.write(c, text, report)); err != nil {
		return err
	}
	return f.verdict(c, report)
}

func (f *pluginTestFlags) settings(c *cobra.Command) (plugintest.Config, error) {
	log, err := f.logger(c, slog.LevelError)
	if err != nil {
		return plugintest.Config{}, err
	}
	out := plugintest.Config{Version: version, Logger: log, Timeout: f.timeout}
	if f.only != "" {
		if out.Only, err = regexp.Compile(f.only); err != nil {
			return out, fmt.Errorf("--run is no regular expression: %w", err)
		}
	}
	least := c.Flags().Changed("min")
	switch {
	case least && f.only != "":
		return out, errors.New("--min is about all cases; leave --run out")
	case least && !(f.min >= 0 && f.min <= 100):
		return out, errors.New("--min must be from 0 to 100 percent")
	case f.timeout <= 0:
		return out, errors.New("--timeout must be more than 0, such as 30s")
	}
	f.coverage = f.coverage || least
	return out, nil
}

// read reads the files of cases. With a mistake in one of them none is run.
func (f *pluginTestFlags) read(c *cobra.Command, dir string, paths []string, m *plugin.Manifest) ([]*plugintest.File, error) {
	if len(paths) == 0 {
		if paths = testPaths(dir, m); len(paths) == 0 {
			return nil, fmt.Errorf("the manifest names no tests; write cases, and tests: [tests/*.yaml] in %s", m.File)
		}
	}
	var files []*plugintest.File
	var findings []finding.Finding
	for _, path := range paths {
		file, found := plugintest.Read(path)
		files, findings = append(files, file), append(append(findings, found...), plugintest.Check(file, m)...)
	}
	return files, pluginFindings(c, findings, "nothing was run; the tests have mistakes")
}

// write writes the coverage and the reports for programs.
func (f *pluginTestFlags) write(c *cobra.Command, text io.Writer, report *plugintest.Report) error {
	if f.coverage {
		if err := report.Coverage.WriteText(text); err != nil {
			return err
		}
	}
	if f.json {
		if err := report.WriteJSON(c.OutOrStdout(), f.coverage); err != nil {
			return err
		}
	}
	if f.junit == "" {
		return nil
	}
	return create(f.junit, func(w io.Writer) error {
		if c.Flags().Changed("min") {
			return report.WriteJUnit(w, &f.min)
		}
		return report.WriteJUnit(w, nil)
	})
}

func (f *pluginTestFlags) verdict(c *cobra.Command, report *plugintest.Report) error {
	covered, all := report.Coverage.Counts()
	switch {
	case report.Interrupted:
		return errors.New("interrupted; not all tests were run")
	case !report.OK():
		return errSilent
	case c.Flags().Changed("min") && report.Coverage.Below(f.min):
		return fmt.Errorf("the cases go through %d of %d branches, and --min wants %g percent of them", covered, all, f.min)
	}
	return nil
}
