package main

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/internal/agent/template"
	"github.com/belay-run/belay/internal/app"
	"github.com/belay-run/belay/internal/finding"
)

func newInit() *cobra.Command {
	return &cobra.Command{
		Use:   "init DIR",
		Short: "Write a small agent to start from, with a hook of each lane",
		Long: `Init writes a small agent into a folder that is new or empty: a tool, a
reference, a hook of each lane, and a script that stands in for a model.`,
		Example: `  belay init my-agent`,
		Args:    oneDir,
		RunE: func(c *cobra.Command, args []string) error {
			if err := template.Write(args[0]); err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "Wrote an agent to %s. It answers from a script; integrations.yml says how to give it a model.\n\n  belay check %[1]s\n  belay chat %[1]s --trace\n", args[0])
			return nil
		},
	}
}

func newCheck() *cobra.Command {
	var f flags
	var format string
	c := &cobra.Command{
		Use:   "check DIR",
		Short: "Report everything that is wrong with an agent's folder",
		Long: `Check reads the folder's files, imports its hooks and tools, and reports all
findings of one run. It exits with 1 when one of them keeps the agent from
serving, warnings alone do not, and with 2 when the check itself could not be
made, such as without Python.`,
		Example: `  belay check my-agent
  belay check my-agent --format sarif > findings.sarif`,
		Args: oneDir,
		RunE: func(c *cobra.Command, args []string) error {
			write, ok := map[string]func(io.Writer, []finding.Finding) error{"text": finding.Text, "json": finding.JSON, "sarif": sarif}[format]
			if !ok {
				return fmt.Errorf("--format %q: use text, json or sarif", format)
			}
			cfg, err := f.config(args[0], slog.LevelError, c.ErrOrStderr())
			if err != nil {
				return err
			}
			findings, hooks, err := app.Check(c.Context(), cfg)
			if err != nil {
				return unchecked{err}
			}
			if err := write(c.OutOrStdout(), finding.Clean(findings)); err != nil {
				return err
			}
			if finding.HasErrors(findings) {
				return errSilent
			}
			if format == "text" {
				fmt.Fprintln(c.OutOrStdout(), standing(hooks))
			}
			return nil
		},
	}
	f.addPython(c)
	f.addModel(c)
	c.Flags().StringVar(&format, "format", "text", "text, json or sarif")
	return c
}

// standing says how many hooks were found, so that a file in a place where
// nothing looks for it is noticed.
func standing(hooks []*hook.Hook) string {
	points := map[*hook.Point]bool{}
	for _, h := range hooks {
		points[h.Point] = true
	}
	switch {
	case len(hooks) == 0:
		return noHooks
	case len(hooks) == 1:
		return "1 hook stands at " + hooks[0].Point.Name
	case len(points) == 1:
		return fmt.Sprintf("%d hooks stand at %s", len(hooks), hooks[0].Point.Name)
	}
	return fmt.Sprintf("%d hooks stand at %d points", len(hooks), len(points))
}

func sarif(w io.Writer, findings []finding.Finding) error {
	return finding.SARIF(w, findings, app.Rules(), version)
}
