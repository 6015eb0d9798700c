package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/belay-run/belay/internal/agent"
	"github.com/belay-run/belay/internal/control"
	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/vault"
)

func newDoctor() *cobra.Command {
	var f jobFlags
	var asJSON bool
	c := &cobra.Command{
		Use:   "doctor [DIR…]",
		Short: "Say what is wrong, or worth knowing, about a data folder, its plugins and its agents",
		Long: `Doctor looks at the data folder: who owns it, its master key, Python, whether the
servers of the tenant's plugins start, whether their hooks declare what they must
and watch names that there are, whether models can be asked and approvers are told.
It names the agents that the hooks of plugins do not watch, because they answer
outside a job; agent folders that belay serve or belay chat runs can be named, too.

It exits with 1 when something does not work; warnings and notes do not.`,
		Example: `  belay doctor
  belay doctor my-agent`,
		RunE: func(c *cobra.Command, args []string) error {
			all := f.look(c)
			all = append(all, lookAtAgents(args)...)
			if asJSON {
				if err := printJSON(c.OutOrStdout(), control.Checkup{Checks: all}); err != nil {
					return err
				}
			} else if err := printChecks(c.OutOrStdout(), all); err != nil {
				return err
			}
			for _, check := range all {
				if check.Level == control.Failing {
					return errSilent
				}
			}
			return nil
		},
	}
	f.add(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// look looks at the data folder from outside, and lets its owner look from inside.
func (f *jobFlags) look(c *cobra.Command) (all []control.Check) {
	say := func(level control.Level, about, hint, format string, args ...any) {
		all = append(all, control.Check{Level: level, About: about, Text: fmt.Sprintf(format, args...), Hint: hint})
	}
	dir, err := filepath.Abs(f.folder())
	if err != nil {
		dir = f.folder()
	}
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		say(control.Note, "data folder", "--data or BELAY_DATA names another", "there is no %s: nothing was run here yet", dir)
		return all
	case info.Mode().Perm()&0o077 != 0:
		say(control.Warning, "data folder", "run chmod 700 "+dir, "others may look into %s", dir)
	default:
		say(control.Fine, "data folder", "", "%s", dir)
	}
	f.lookAtKey(dir, say)
	err = f.with(c, false, func(ctx context.Context, d *desk) error {
		h, err := d.Health(ctx)
		if err != nil {
			return err
		}
		if d.Here {
			say(control.Note, "owner", "belay serve runs them, and serves the API", "no process has the data folder: jobs that wait go on when one does")
		} else {
			say(control.Fine, "owner", "", "process %d, belay %s", h.PID, h.Version)
		}
		found, err := d.Checkup(ctx)
		all = append(all, found...)
		return err
	})
	if err != nil {
		say(control.Failing, "data folder", "", "it cannot be looked into: %v", err)
	}
	return all
}

func (f *jobFlags) lookAtKey(dir string, say func(control.Level, string, string, string, ...any)) {
	path := f.keyAt()
	if path == "" {
		return // it is made with the database, and opening says when it was lost
	}
	if _, err := vault.Open(filepath.Dir(path), path); err != nil {
		say(control.Failing, "master key", "", "%v", err)
		return
	}
	if filepath.Dir(path) == filepath.Clean(f.folder()) || filepath.Dir(path) == dir {
		say(control.Note, "master key", "keep a copy apart from copies of the folder, or keep it elsewhere and name it in BELAY_KEY_FILE",
			"it lies in the data folder (%s): who has both can read everything", path)
		return
	}
	say(control.Fine, "master key", "", "%s", path)
}

// lookAtAgents says of agent folders that they answer outside jobs.
func lookAtAgents(dirs []string) (all []control.Check) {
	for _, dir := range dirs {
		a, findings := agent.Read(dir)
		if finding.HasErrors(findings) || a == nil {
			all = append(all, control.Check{Level: control.Failing, About: "agent folder " + dir, Text: "it does not serve: " + finding.Summary(findings), Hint: "belay check " + dir + " says what is wrong"})
			continue
		}
		all = append(all, control.Check{Level: control.Warning, About: "agent " + a.ID, Text: "belay chat and belay serve let " + dir + " answer outside a job: the hooks of plugins do not watch it there",
			Hint: "bring it in a plugin, under agents with folder, and run it as a job where they must watch it"})
	}
	return all
}

func printChecks(w io.Writer, all []control.Check) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	for _, c := range all {
		if _, err := fmt.Fprintf(t, "%s\t%s\t%s\n", c.Level, plain(c.About), plain(c.Text)); err != nil {
			return err
		}
		if c.Hint != "" {
			fmt.Fprintf(t, "\t\t  %s\n", plain(c.Hint))
		}
	}
	return t.Flush()
}
