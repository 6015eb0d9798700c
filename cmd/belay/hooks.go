package main

import (
	"fmt"
	"log/slog"
	"os"
	"os/user"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/belay-run/belay/internal/app"
)

func newHooks() *cobra.Command {
	var f flags
	c := &cobra.Command{
		Use:   "hooks DIR",
		Short: "List which hook stands at which point, its limits, and what it did",
		Args:  oneDir,
		RunE: func(c *cobra.Command, args []string) error {
			cfg, err := f.config(args[0], slog.LevelError, c.ErrOrStderr())
			if err != nil {
				return err
			}
			rows, err := app.ListHooks(c.Context(), cfg)
			if err != nil {
				return err
			}
			printHooks(c, rows)
			return nil
		},
	}
	f.add(c)
	c.AddCommand(newSwitch(false), newSwitch(true))
	return c
}

func printHooks(c *cobra.Command, rows []app.HookRow) {
	if len(rows) == 0 {
		fmt.Fprintln(c.OutOrStdout(), "no hook stands anywhere; hooks go into hooks.py or hooks/*.py")
		return
	}
	w := tabwriter.NewWriter(c.OutOrStdout(), 0, 4, 2, ' ', 0)
	defer w.Flush()
	fmt.Fprintln(w, "POINT\tLANE\tHOOK\tFILE\tLIMIT\tON FAILURE\tASKED\tCHANGED\tREJECTED\tRETRIED\tFAILED\tLAST FIRED\tSTATE")
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s:%d\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t%s\t%s\n", r.Point, r.Lane, r.Name, r.File, r.Line, r.Limit, dash(r.OnFailure),
			r.Asked, r.Changed, r.Rejected, r.Retried, r.Failed, when(r.LastFired), r.State())
	}
}

func dash(s string) string {
	if s == "" {
		return "–"
	}
	return s
}

func when(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.Local().Format("2006-01-02 15:04:05")
}

// newSwitch makes the command that turns a hook off, or on again.
func newSwitch(on bool) *cobra.Command {
	var f flags
	var dir, reason string
	var length time.Duration
	c := &cobra.Command{Use: "disable NAME", Short: "Turn a hook off for a while: a broken guard must not lock a service"}
	if on {
		c.Use, c.Short = "enable NAME", "Turn a hook on again"
	}
	c.Long = "The switch is recorded with who threw it and works at once, also in a service that runs. A hook that is off is named in the trace of every turn."
	c.Args = func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("name the hook as belay hooks lists it, such as hooks/privacy.py:mask_numbers")
		}
		return nil
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		cfg, err := f.config(dir, slog.LevelError, c.ErrOrStderr())
		if err != nil {
			return err
		}
		if !on && length <= 0 {
			return fmt.Errorf("say for how long with --for, such as --for 10m: a guard must not stay off because it was forgotten")
		}
		s, err := app.SwitchHook(c.Context(), cfg, app.Switch{Hook: args[0], On: on, For: length, By: who(), Reason: reason})
		if err != nil {
			return err
		}
		if on {
			fmt.Fprintf(c.OutOrStdout(), "%s is on again\n", s.Hook)
		} else {
			fmt.Fprintf(c.OutOrStdout(), "%s is off until %s\n", s.Hook, when(s.Until))
		}
		return nil
	}
	f.add(c)
	c.Flags().StringVar(&dir, "dir", ".", "the agent's folder")
	c.Flags().StringVar(&reason, "reason", "", "why, for the record")
	if !on {
		c.Flags().DurationVar(&length, "for", 0, "for how long, such as 10m")
	}
	return c
}

// who is the person at the keyboard, for the record of a switch.
func who() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	if name := strings.TrimSpace(os.Getenv("USER")); name != "" {
		return name
	}
	return "unknown"
}
