package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/spf13/cobra"

	"github.com/belay-run/belay/internal/app"
	"github.com/belay-run/belay/internal/convtest"
	"github.com/belay-run/belay/internal/finding"
)

// testFlags are those of belay test.
type testFlags struct {
	flags
	only         string
	trace        bool
	json         bool
	junit        string
	requireHooks bool
	failFast     bool
	timeout      time.Duration
	parallel     int
}

func newTest() *cobra.Command {
	var f testFlags
	c := &cobra.Command{
		Use:   "test DIR [FILES…]",
		Short: "Run the conversations that an agent is tested with",
		Long: `Test runs conversations that are written in YAML: what the user says, and which
texts, tools, memory, skills and hook decisions are expected. Without FILES it
runs DIR/tests/**/*.yml. Hooks and tools run for real; the model is the agent's
script, or what a test brings. A real model is asked only with --model.

It exits with 1 when a conversation fails or a file has mistakes, and with 2 when
the tests could not be run, such as without Python.`,
		Example: `  belay test my-agent
  belay test my-agent my-agent/tests/booking.yml --run 'Monday' --trace
  belay test my-agent --junit results.xml --require-hooks`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return oneDir(c, args)
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error { return f.run(c, args[0], args[1:]) },
	}
	f.addPython(c)
	c.Flags().StringVar(&f.model, "model", "", "provider/model for conversations that bring no model: asks a real one, whose answers differ from run to run")
	c.Flags().StringVar(&f.only, "run", "", "run only conversations whose name matches the pattern")
	c.Flags().BoolVar(&f.trace, "trace", false, "show the trace of each turn that fails")
	c.Flags().BoolVar(&f.json, "json", false, "write JSON")
	c.Flags().StringVar(&f.junit, "junit", "", "write the results to a file in JUnit's form")
	c.Flags().BoolVar(&f.requireHooks, "require-hooks", false, "fail when a hook fired in no test")
	c.Flags().BoolVar(&f.failFast, "fail-fast", false, "run nothing more once a conversation has failed")
	c.Flags().DurationVar(&f.timeout, "timeout", time.Minute, "time for one turn")
	c.Flags().IntVar(&f.parallel, "parallel", 2, "files that run at once, each with an agent of its own")
	return c
}

func (f *testFlags) run(c *cobra.Command, dir string, paths []string) error {
	cfg, err := f.settings(c, dir)
	if err != nil {
		return err
	}
	files, err := f.read(c, dir, paths)
	if err != nil {
		return err
	}
	text := io.Discard
	if !f.json {
		text = c.OutOrStdout()
	}
	if f.model != "" {
		fmt.Fprintf(text, "asking the model %s where a conversation brings none: its answers differ from run to run\n", plain(f.model))
	}
	var broken error // of the output
	cfg.Each = func(r *convtest.FileResult) {
		broken = errors.Join(broken, convtest.WriteFile(text, r, f.trace))
	}
	report, err := convtest.Run(c.Context(), cfg, files)
	if err != nil {
		var found *app.FindingsError
		if errors.As(err, &found) {
			return explain(c.ErrOrStderr(), err)
		}
		return unchecked{err}
	}
	if report.Totals().Conversations == 0 {
		return fmt.Errorf("no conversation has a name that matches --run %q; nothing was tested", f.only)
	}
	if err := errors.Join(broken, report.WriteSummary(text), f.write(c, report)); err != nil {
		return err
	}
	return f.verdict(report)
}

// settings gives the run's configuration. BELAY_MODEL does not count: what tests
// ask must not depend on who runs them.
func (f *testFlags) settings(c *cobra.Command, dir string) (convtest.Config, error) {
	cfg, err := f.config(dir, slog.LevelError, c.ErrOrStderr())
	if err != nil {
		return convtest.Config{}, err
	}
	cfg.Model = f.model
	out := convtest.Config{App: cfg, Parallel: f.parallel, FailFast: f.failFast, Timeout: f.timeout}
	if f.only != "" {
		if out.Only, err = regexp.Compile(f.only); err != nil {
			return out, fmt.Errorf("--run is no regular expression: %w", err)
		}
	}
	switch {
	case f.requireHooks && f.only != "":
		return out, errors.New("--require-hooks is about all tests; leave --run out")
	case f.timeout <= 0:
		return out, errors.New("--timeout must be more than 0, such as 30s")
	case f.parallel < 1:
		return out, errors.New("--parallel must be at least 1")
	}
	return out, nil
}

// read reads the files of tests. With a mistake in one of them none is run.
func (f *testFlags) read(c *cobra.Command, dir string, paths []string) ([]*convtest.File, error) {
	if len(paths) == 0 {
		in := filepath.Join(dir, "tests")
		var err error
		if paths, err = convtest.Find(in); err != nil {
			return nil, err
		}
		if len(paths) == 0 {
			return nil, fmt.Errorf("there is no test in %s; write one there, such as %s", in, filepath.Join(in, "greeting.yml"))
		}
	}
	var files []*convtest.File
	var findings []finding.Finding
	for _, path := range paths {
		file, found := convtest.Read(path)
		files, findings = append(files, file), append(findings, found...)
	}
	if len(findings) > 0 {
		if err := finding.Text(c.ErrOrStderr(), finding.Clean(findings)); err != nil {
			return nil, err
		}
	}
	if finding.HasErrors(findings) {
		return nil, errors.New("nothing was run; the tests have mistakes")
	}
	return files, nil
}

// write writes the reports for programs.
func (f *testFlags) write(c *cobra.Command, report *convtest.Report) error {
	if f.json {
		if err := report.WriteJSON(c.OutOrStdout(), f.trace); err != nil {
			return err
		}
	}
	if f.junit == "" {
		return nil
	}
	out, err := os.Create(f.junit)
	if err != nil {
		return fmt.Errorf("write the results: %w", err)
	}
	if err := errors.Join(report.WriteJUnit(out, f.requireHooks), out.Close()); err != nil {
		return fmt.Errorf("write the results to %s: %w", f.junit, err)
	}
	return nil
}

func (f *testFlags) verdict(report *convtest.Report) error {
	switch {
	case report.Interrupted:
		return errors.New("interrupted; not all tests were run")
	case !report.OK():
		return errSilent
	case f.requireHooks && len(report.Unreached.Hooks) > 0:
		return errors.New("a hook fired in no test, and --require-hooks wants all of them to")
	}
	return nil
}
