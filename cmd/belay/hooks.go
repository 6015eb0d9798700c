package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/internal/app"
	"github.com/belay-run/belay/internal/control"
)

func newHooks() *cobra.Command {
	var f flags
	var q control.HookQuery
	var asJSON bool
	c := &cobra.Command{
		Use:   "hooks DIR | hooks --tenant TENANT",
		Short: "List which hook stands at which point, its limits, and what it did",
		Long: `Hooks lists where each hook of an agent's folder stands, its time limit, what
follows when it fails, how often it was asked and what it did. It may run beside a
service on the folder. disable and enable take a hook out and put it back.

With --tenant, or with --tool, --agent or --event, it lists the hooks of the
tenant's plugins instead, event by event in the order in which they are asked:
those that see calls of a function, or watch an agent.`,
		Example: `  belay hooks my-agent
  belay hooks --tool acme_github.merge --agent acme-reviewer
  belay hooks disable mask_cards --dir my-agent --for 10m --reason "it masks too much"
  belay hooks history my-agent`,
		Args: func(c *cobra.Command, args []string) error {
			asked := func(names ...string) bool { return slices.ContainsFunc(names, c.Flags().Changed) }
			switch {
			case len(args) == 0 && !asked("tenant", "tool", "agent", "event"):
				return fmt.Errorf("name the agent's folder, such as: %s my-agent; or a tenant with --tenant", c.CommandPath())
			case len(args) > 0 && asked("tool", "agent", "event", "json"):
				return errors.New("--tool, --agent, --event and --json are for the hooks of plugins; leave out the folder")
			case len(args) > 0:
				return oneDir(c, args)
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return f.pluginHooks(c, q, asJSON)
			}
			cfg, err := f.config(args[0], slog.LevelError, c.ErrOrStderr())
			if err != nil {
				return err
			}
			rows, err := app.ListHooks(c.Context(), cfg)
			if err != nil {
				return explain(c.ErrOrStderr(), err)
			}
			printHooks(c, rows)
			return nil
		},
	}
	f.addPython(c)
	f.addData(c)
	c.Flags().Lookup("tenant").Usage = "whose data it is; without a folder, whose plugins"
	c.Flags().StringVar(&q.Tool, "tool", "", "hooks of plugins that see calls of this function, <tool>.<function>")
	c.Flags().StringVar(&q.Agent, "agent", "", "hooks of plugins that watch this agent")
	c.Flags().StringVar(&q.Event, "event", "", "hooks of plugins at this event, such as pre_tool_call")
	c.Flags().BoolVar(&asJSON, "json", false, "print the hooks of plugins as JSON")
	c.AddCommand(newSwitch(false), newSwitch(true), newHistory())
	return c
}

// events are those of jobs, in the order in which a job comes to them.
var events = []string{hook.JobStart, hook.PreLLMCall, hook.PreToolCall, hook.PostToolCall, hook.JobEnd}

// pluginHooks lists the hooks of a tenant's plugins.
func (f *flags) pluginHooks(c *cobra.Command, q control.HookQuery, asJSON bool) error {
	if q.Event != "" && !slices.Contains(events, q.Event) {
		return fmt.Errorf("--event %q: take one of %s", q.Event, strings.Join(events, ", "))
	}
	j := jobFlags{data: f.data, keyFile: f.keyFile, tenant: f.tenant, log: f.log}
	return j.with(c, false, func(ctx context.Context, d *desk) error {
		all, err := d.Hooks(ctx, q)
		if err != nil {
			return err
		}
		if asJSON {
			return printJSON(c.OutOrStdout(), all)
		}
		return printChains(c.OutOrStdout(), all)
	})
}

// printChains lists hooks event by event, numbered in the order in which they are
// asked. Those that only look on come after the others of their event.
func printChains(w io.Writer, all []control.Hook) error {
	if len(all) == 0 {
		fmt.Fprintln(w, "no hook of a plugin sees that")
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "EVENT\t#\tHOOK\tPLUGIN\tCALLS OF\tAGENTS\tLIMIT\tON FAILURE\tMAY")
	for _, event := range events {
		n := 0
		for _, looksOn := range []bool{false, true} {
			for _, h := range all {
				if h.Event != event || h.Shadow != looksOn {
					continue
				}
				n++
				tools := cmp.Or(strings.Join(h.Tools, ", "), "all")
				if event != hook.PreToolCall && event != hook.PostToolCall {
					tools = "–"
				}
				fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", event, n, h.Name, h.Plugin, tools, cmp.Or(strings.Join(h.Agents, ", "), "all"), h.Timeout, h.OnTimeout, may(h))
			}
		}
	}
	return t.Flush()
}

// may says what a hook can do.
func may(h control.Hook) string {
	switch {
	case h.Shadow:
		return "look on"
	case h.EscalateOnly:
		return "allow, escalate"
	}
	return "allow, deny, modify, escalate"
}

func printHooks(c *cobra.Command, rows []app.HookRow) {
	if len(rows) == 0 {
		fmt.Fprintln(c.OutOrStdout(), noHooks)
		return
	}
	w := tabwriter.NewWriter(c.OutOrStdout(), 0, 4, 2, ' ', 0)
	defer w.Flush()
	fmt.Fprintln(w, "POINT\tLANE\tHOOK\tLINE\tLIMIT\tON FAILURE\tASKED\tCHANGED\tREJECTED\tRETRIED\tFAILED\tLAST ASKED\tSTATE")
	for _, r := range rows {
		did := func(n int64) string {
			if r.Lane == string(hook.Observe) {
				return "–" // it may do nothing of the kind
			}
			return strconv.FormatInt(n, 10)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\t%d\t%s\t%s\t%s\t%d\t%s\t%s\n", r.Point, r.Lane, r.Name, r.Line, r.Limit, cmp.Or(r.OnFailure, "–"),
			r.Asked, did(r.Changed), did(r.Rejected), did(r.Retried), r.Failed, when(r.LastFired), r.State())
	}
}

const noHooks = "no hook stands anywhere; hooks go into hooks.py or hooks/*.py"

func when(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.Local().Format("2006-01-02 15:04:05")
}

// longestOff is how long a hook may be off at a time.
const longestOff = 7 * 24 * time.Hour

// newSwitch makes the command that turns a hook off, or on again.
func newSwitch(on bool) *cobra.Command {
	var f flags
	var dir, reason string
	var length time.Duration
	c := &cobra.Command{Use: "disable NAME", Short: "Turn a hook off for a while: a broken guard must not lock a service",
		Example: `  belay hooks disable mask_cards --dir my-agent --for 10m --reason "it masks too much"`}
	if on {
		c.Use, c.Short, c.Example = "enable NAME", "Turn a hook on again", "  belay hooks enable mask_cards --dir my-agent"
	}
	c.Long = `NAME is the hook as belay hooks lists it, or its function's name alone when only
one hook has that. The switch is recorded with who threw it and works within a
second, also in a service that runs. A hook that is off is named in the trace of
every turn.`
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
		if length > longestOff {
			return fmt.Errorf("--for %s is too long: a hook may be off for %s at a time; take it out of the folder when it should not stand at all", length, longestOff)
		}
		s, err := app.SwitchHook(c.Context(), cfg, app.Switch{Hook: args[0], On: on, For: length, By: who(), Reason: reason})
		if err != nil {
			return explain(c.ErrOrStderr(), err)
		}
		if on {
			fmt.Fprintf(c.OutOrStdout(), "%s is on again\n", s.Hook)
		} else {
			fmt.Fprintf(c.OutOrStdout(), "%s is off until %s\n", s.Hook, when(s.Until))
		}
		return nil
	}
	f.addPython(c)
	f.addData(c)
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

func newHistory() *cobra.Command {
	var f flags
	c := &cobra.Command{
		Use:     "history DIR",
		Short:   "List who turned which hook off or on, when and why",
		Example: `  belay hooks history my-agent`,
		Args:    oneDir,
		RunE: func(c *cobra.Command, args []string) error {
			cfg, err := f.config(args[0], slog.LevelError, c.ErrOrStderr())
			if err != nil {
				return err
			}
			switches, err := app.HookHistory(c.Context(), cfg)
			if err != nil {
				return explain(c.ErrOrStderr(), err)
			}
			if len(switches) == 0 {
				fmt.Fprintln(c.OutOrStdout(), "no hook was ever turned off")
				return nil
			}
			w := tabwriter.NewWriter(c.OutOrStdout(), 0, 4, 2, ' ', 0)
			fmt.Fprintln(w, "AT\tHOOK\tWHAT\tBY\tREASON")
			for _, s := range switches {
				what := "on"
				if s.Disabled {
					what = "off until " + when(s.Until)
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", when(s.At), s.Hook, what, s.By, cmp.Or(plain(s.Reason), "–"))
			}
			return w.Flush()
		},
	}
	f.addData(c)
	return c
}
