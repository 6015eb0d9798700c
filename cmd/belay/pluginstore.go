package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/belay-run/belay/internal/agentjob"
	"github.com/belay-run/belay/internal/control"
	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/plugin"
)

// pluginStore are the commands for the plugins that a tenant has.
func pluginStore() []*cobra.Command {
	return []*cobra.Command{newPluginInstall(false), newPluginInstall(true), newPluginList(), newPluginRemove(), newPluginMove(), newPluginRevoke(), newShadowReport()}
}

func newPluginInstall(update bool) *cobra.Command {
	var f jobFlags
	var o control.PluginOrder
	var asJSON bool
	c := &cobra.Command{
		Use:   "install DIR",
		Short: "Take a plugin into the tenant: its hooks watch the jobs of all its agents from then on",
		Long: `Install takes a snapshot of the plugin's folder; what changes in the folder
afterwards changes nothing until belay plugin update. Jobs that run already keep
the plugins that they started with. The hooks of plugins are asked in the order in
which the plugins were installed, unless --before says otherwise.

Look at belay plugin inspect and belay plugin lint first.`,
		Example: `  belay plugin install acme-policy
  belay plugin install acme-judge --before acme-policy --accept-model`,
		Args: onePlugin,
	}
	if update {
		c.Use, c.Short = "update DIR", "Put the folder's plugin in the place of the installed one"
		c.Long = `Update takes a new snapshot of the plugin's folder. The plugin keeps its place in
the order, and what it was granted. Jobs that run already keep the snapshot that
they started with. An update that wants to call the model, or to be told where
secrets are, and did not before, is refused until that is accepted.`
		c.Example = "  belay plugin update acme-policy"
	}
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		m, findings := plugin.Read(args[0])
		if finding.HasErrors(findings) {
			return pluginFindings(c, findings, "the plugin is not installed until its errors are mended")
		}
		if o.Path, err = filepath.Abs(args[0]); err != nil {
			return err
		}
		if update {
			o.Name = m.Name
		}
		return f.with(c, false, func(ctx context.Context, d *desk) error {
			done, err := d.InstallPlugin(ctx, o)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(c.OutOrStdout(), done)
			}
			return printInstalled(c.OutOrStdout(), done, f.tenant, update)
		})
	}
	f.add(c)
	if !update {
		c.Flags().StringVar(&o.Before, "before", "", "the plugin before which its hooks are asked (default: after all others)")
	}
	c.Flags().BoolVar(&o.AcceptModel, "accept-model", false, "let it call the model, charged to the jobs, when it wants to")
	if update {
		c.Flags().BoolVar(&o.AcceptScan, "accept-scan", false, "let its hooks be told where the tenant's known secrets are, when they want to")
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func printInstalled(w io.Writer, done control.Installation, tenant string, update bool) error {
	p := done.Plugin
	said := "installed"
	if update {
		said = "updated"
	}
	fmt.Fprintf(w, "%s %s in tenant %s (%s)\n", said, named(p), tenant, shortDigest(p.Digest))
	for _, may := range p.Permissions {
		if !p.ModelGranted && strings.Contains(may, " calls a model, ") {
			may += " (it may not: an update with --accept-model grants it)"
		}
		fmt.Fprintf(w, "  %s\n", plain(may))
	}
	if len(done.Findings) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	return finding.Text(w, finding.Clean(done.Findings))
}

func named(p control.Plugin) string { return strings.TrimSpace(p.Name + " " + plain(p.Version)) }

// shortDigest is enough of a digest to tell it from others.
func shortDigest(d string) string {
	if alg, hex, ok := strings.Cut(d, ":"); ok && len(hex) > 12 {
		return alg + ":" + hex[:12]
	}
	return d
}

func newPluginList() *cobra.Command {
	var f jobFlags
	var asJSON bool
	c := &cobra.Command{
		Use:   "list",
		Short: "List the tenant's plugins in the order in which their hooks are asked",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return f.with(c, false, func(ctx context.Context, d *desk) error {
				all, err := d.Plugins(ctx)
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(c.OutOrStdout(), all)
				}
				if len(all) == 0 {
					fmt.Fprintln(c.ErrOrStderr(), "no plugin is installed; belay plugin install DIR installs one")
					return nil
				}
				w := tabwriter.NewWriter(c.OutOrStdout(), 0, 4, 2, ' ', 0)
				fmt.Fprintln(w, "#\tNAME\tVERSION\tHOOKS\tAGENTS\tTOOLS\tMODEL\tSECRETS\tINSTALLED\tBY\tSNAPSHOT")
				for i, p := range all {
					model := "–"
					if p.ModelGranted {
						model = "granted"
					}
					scan := "–"
					if p.Scan {
						scan = "is told places"
					}
					at, by := p.Installed, p.InstalledBy
					if !p.Updated.IsZero() {
						at, by = p.Updated, p.UpdatedBy
					}
					fmt.Fprintf(w, "%d\t%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", i+1, p.Name, cmp.Or(plain(p.Version), "–"), len(p.Hooks), listOr(p.Agents), listOr(p.Tools), model, scan,
						when(at), by, shortDigest(p.Digest))
				}
				return w.Flush()
			})
		},
	}
	f.add(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func listOr(names []string) string { return cmp.Or(strings.Join(names, ", "), "–") }

// oneName wants the name of a plugin as the one argument.
func oneName(c *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("name one plugin as belay plugin list shows it, such as: %s acme-policy", c.CommandPath())
	}
	return nil
}

func newPluginRemove() *cobra.Command {
	var f jobFlags
	var force bool
	c := &cobra.Command{
		Use:   "remove NAME",
		Short: "Take a plugin out of the tenant",
		Long: `Remove is refused while jobs run that pinned the plugin. With --force it is taken
out all the same: in those jobs its hooks fail from then on, so that their on_timeout
decides, and its tools cannot be reached.`,
		Args: oneName,
		RunE: func(c *cobra.Command, args []string) error {
			return f.with(c, false, func(ctx context.Context, d *desk) error {
				if err := d.RemovePlugin(ctx, args[0], force); err != nil {
					return err
				}
				fmt.Fprintf(c.OutOrStdout(), "removed %s\n", args[0])
				return nil
			})
		},
	}
	f.add(c)
	c.Flags().BoolVar(&force, "force", false, "also while jobs that pinned it run")
	return c
}

func newPluginMove() *cobra.Command {
	var f jobFlags
	var before string
	var last bool
	c := &cobra.Command{
		Use:     "move NAME",
		Short:   "Let a plugin's hooks be asked before another plugin's, or after all others",
		Example: "  belay plugin move acme-judge --before acme-policy",
		Args:    oneName,
		RunE: func(c *cobra.Command, args []string) error {
			if (before == "") != last {
				return errors.New("say where it is to stand: --before and the name of another plugin, or --last")
			}
			return f.with(c, false, func(ctx context.Context, d *desk) error {
				if err := d.MovePlugin(ctx, args[0], before); err != nil {
					return err
				}
				all, err := d.Plugins(ctx)
				if err != nil {
					return err
				}
				names := make([]string, len(all))
				for i, p := range all {
					names[i] = p.Name
				}
				fmt.Fprintf(c.OutOrStdout(), "the order is now %s\n", strings.Join(names, ", "))
				return nil
			})
		},
	}
	f.add(c)
	c.Flags().StringVar(&before, "before", "", "the plugin before which its hooks are asked")
	c.Flags().BoolVar(&last, "last", false, "its hooks are asked after all others")
	return c
}

func newPluginRevoke() *cobra.Command {
	var f jobFlags
	c := &cobra.Command{
		Use:     "revoke-reads NAME model",
		Short:   "Take back what a plugin was granted: to call the model",
		Long:    "It holds from the next model call on. belay plugin update DIR --accept-model grants it again.",
		Example: "  belay plugin revoke-reads acme-judge model",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) != 2 || args[1] != "model" {
				return fmt.Errorf("name a plugin and what it may not any more, which can be model: %s acme-judge model", c.CommandPath())
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			return f.with(c, false, func(ctx context.Context, d *desk) error {
				if err := d.GrantModel(ctx, args[0], false); err != nil {
					return err
				}
				fmt.Fprintf(c.OutOrStdout(), "%s may not call the model\n", args[0])
				return nil
			})
		},
	}
	f.add(c)
	return c
}

func newShadowReport() *cobra.Command {
	var f jobFlags
	var jobs int
	var asJSON bool
	c := &cobra.Command{
		Use:   "shadow-report",
		Short: "Say what hooks that only look on would have changed",
		Long: `A hook with mode: observe in its manifest is asked and recorded, and its decision
does not bind. The report reads the histories of the newest jobs and says, hook by
hook, what its decisions would have come to. Such a hook is asked about the event
as it was before the other hooks. It asks nothing again.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return f.with(c, false, func(ctx context.Context, d *desk) error {
				r, err := d.ShadowReport(ctx, jobs)
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(c.OutOrStdout(), r)
				}
				return printShadows(c.OutOrStdout(), r)
			})
		},
	}
	f.add(c)
	c.Flags().IntVar(&jobs, "jobs", 200, "how many of the newest jobs to look through")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func printShadows(w io.Writer, r control.ShadowReport) error {
	if len(r.Hooks) == 0 {
		_, err := fmt.Fprintln(w, "no hook looked on in the newest jobs; mode: observe in a manifest lets one")
		return err
	}
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "PLUGIN\tEVENT\tHOOK\tASKED\tALLOW\tDENY\tMODIFY\tESCALATE\tOF THESE FAILED")
	for _, h := range r.Hooks {
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\n", h.Plugin, h.Event, h.Hook, h.Asked, h.Allowed, h.Denied, h.Modified, h.Escalated, h.Failed)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nin %d jobs\n", r.Jobs)
	if r.Unread > 0 {
		fmt.Fprintf(w, "%d of them could not be read to their ends; belay job replay says why\n", r.Unread)
	}
	for _, h := range r.Hooks {
		if len(h.Examples) > 0 {
			fmt.Fprintf(w, "\n%s at %s would have\n", h.Hook, h.Event)
		}
		for _, e := range h.Examples {
			fmt.Fprintf(w, "  %s%s  job %s%s\n", would(e), ofTool(e.Tool), e.Job, because(plain(e.Reason)))
		}
	}
	return nil
}

var wouldWords = map[string]string{agentjob.Denied: "denied", agentjob.Modified: "modified", agentjob.Escalated: "escalated"}

func would(e agentjob.ShadowExample) string {
	word := cmp.Or(wouldWords[e.Would], e.Would)
	if e.Failed != "" {
		word += " (" + e.Failed + ")"
	}
	return word
}

func ofTool(name string) string {
	if name == "" {
		return ""
	}
	return " " + name
}
