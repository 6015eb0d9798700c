package main

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/belay-run/belay/internal/agent/template"
	"github.com/belay-run/belay/internal/app"
	"github.com/belay-run/belay/internal/finding"
)

func newInit() *cobra.Command {
	return &cobra.Command{
		Use:   "init DIR",
		Short: "Write a small agent with a hook of each lane to start from",
		Args:  oneDir,
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
		Long:  "Check reads the folder's files, imports its hooks and tools, and reports all findings of one run. It exits with 1 when one of them keeps the agent from serving.",
		Args:  oneDir,
		RunE: func(c *cobra.Command, args []string) error {
			write, ok := map[string]func(io.Writer, []finding.Finding) error{"text": finding.Text, "json": finding.JSON, "sarif": sarif}[format]
			if !ok {
				return fmt.Errorf("--format %q: use text, json or sarif", format)
			}
			cfg, err := f.config(args[0], slog.LevelError, c.ErrOrStderr())
			if err != nil {
				return err
			}
			findings, _, err := app.Check(c.Context(), cfg)
			if err != nil {
				return err
			}
			if err := write(c.OutOrStdout(), finding.Clean(findings)); err != nil {
				return err
			}
			if finding.HasErrors(findings) {
				return errSilent
			}
			return nil
		},
	}
	f.add(c)
	c.Flags().StringVar(&format, "format", "text", "text, json or sarif")
	return c
}

func sarif(w io.Writer, findings []finding.Finding) error {
	return finding.SARIF(w, findings, app.Rules(), version)
}
