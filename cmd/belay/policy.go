package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/internal/control"
	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/policy"
)

func newPolicy() *cobra.Command {
	c := &cobra.Command{
		Use:   "policy",
		Short: "Check, show, apply and explain the tenant's tool policy",
		Example: `  belay policy lint policy.yaml
  belay policy explain acme_git.push --arguments '{"branch": "main"}' --file policy.yaml
  belay policy apply policy.yaml`,
		Args: noSuchCommand,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(policyLint(), policyShow(), policyApply(), policyExplain())
	return c
}

// readPolicy reads a policy's file and checks it. The text counts when no finding is
// an error.
func readPolicy(name string) (text string, findings []finding.Finding, err error) {
	raw, err := os.ReadFile(name)
	if err != nil {
		return "", nil, fmt.Errorf("read the policy: %w", err)
	}
	if strings.TrimSpace(string(raw)) == "" {
		return "", nil, fmt.Errorf("%s is empty; belay policy apply --default goes back to the default policy", name)
	}
	_, findings = policy.Parse(name, raw)
	return string(raw), finding.Clean(findings), nil
}

func onePolicy(c *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("name the policy's file, such as: %s policy.yaml", c.CommandPath())
	}
	return nil
}

func policyLint() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "lint FILE",
		Short: "Report everything that is wrong with a policy's file",
		Long:  "Lint needs no data folder. It exits with 1 when the policy could not be applied.",
		Args:  onePolicy,
		RunE: func(c *cobra.Command, args []string) error {
			_, findings, err := readPolicy(args[0])
			if err != nil {
				return unchecked{err}
			}
			write := finding.Text
			if asJSON {
				write = finding.JSON
			}
			if err := write(c.OutOrStdout(), findings); err != nil {
				return err
			}
			if finding.HasErrors(findings) {
				return errSilent
			}
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func policyShow() *cobra.Command {
	var f jobFlags
	var versions, asJSON bool
	c := &cobra.Command{
		Use:   "show [VERSION]",
		Short: "Show the policy that new jobs go by, one that was applied earlier, or all versions",
		Example: `  belay policy show > policy.yaml
  belay policy show --versions`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if versions && len(args) > 0 {
				return errors.New("--versions lists all; leave it out to show one")
			}
			return f.with(c, false, func(ctx context.Context, d *desk) error {
				w := c.OutOrStdout()
				if versions {
					all, err := d.PolicyVersions(ctx)
					if err != nil {
						return err
					}
					if asJSON {
						return printJSON(w, all)
					}
					return printVersions(w, all)
				}
				show := func() (control.Policy, error) { return d.Policy(ctx) }
				if len(args) > 0 {
					show = func() (control.Policy, error) { return d.PolicyVersion(ctx, args[0]) }
				}
				p, err := show()
				switch {
				case err != nil:
					return err
				case asJSON:
					return printJSON(w, p)
				case p.Text == "":
					fmt.Fprintf(w, "# The default policy, version %s: functions that only read in a closed world are allowed,\n# and a person is asked about all others.\n", p.Version)
					return nil
				}
				fmt.Fprintf(c.ErrOrStderr(), "version %s, applied %s by %s\n", p.Version, when(p.Applied), p.By)
				_, err = io.WriteString(w, p.Text)
				return err
			})
		},
	}
	f.add(c)
	c.Flags().BoolVar(&versions, "versions", false, "list the versions that were applied, the newest first")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func printVersions(w io.Writer, all []control.Policy) error {
	if len(all) == 0 {
		fmt.Fprintln(w, "no policy was applied: the default policy holds")
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "VERSION\tAPPLIED\tBY\tWHAT")
	for i, p := range all {
		var what []string
		if i == 0 {
			what = append(what, "current")
		}
		if p.Default {
			what = append(what, "the default policy")
		}
		if p.Enforced {
			what = append(what, "enforced at once")
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", p.Version, when(p.Applied), p.By, cmp.Or(strings.Join(what, ", "), "–"))
	}
	return t.Flush()
}

func policyApply() *cobra.Command {
	var f jobFlags
	var o control.PolicyOrder
	var byDefault, asJSON bool
	c := &cobra.Command{
		Use:   "apply FILE",
		Short: "Make a policy the tenant's current one",
		Long: `Jobs that start from now on go by it. A job that runs keeps the version that it
started with. --enforce-now is for when that cannot wait: jobs that wait for an
approval under another version are ended, and their approvals are void.`,
		Example: `  belay policy apply policy.yaml
  belay policy apply policy.yaml --replaces "$(belay policy show --json | jq -r .version)"`,
		Args: func(c *cobra.Command, args []string) error {
			if byDefault && len(args) == 0 {
				return nil
			}
			if byDefault {
				return errors.New("--default goes back to the default policy; leave the file out")
			}
			return onePolicy(c, args)
		},
		RunE: func(c *cobra.Command, args []string) error {
			if !byDefault {
				text, findings, err := readPolicy(args[0])
				if err != nil {
					return err
				}
				if err := pluginFindings(c, findings, "the policy is not applied until its errors are mended"); err != nil {
					return err
				}
				o.Text = text
			}
			return f.with(c, false, func(ctx context.Context, d *desk) error {
				done, err := d.ApplyPolicy(ctx, o)
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(c.OutOrStdout(), done)
				}
				fmt.Fprintf(c.OutOrStdout(), "policy %s holds for new jobs of tenant %s\n", done.Policy.Version, f.tenant)
				for _, id := range done.Voided {
					fmt.Fprintf(c.OutOrStdout(), "approval %s is void, and its job was ended\n", id)
				}
				return nil
			})
		},
	}
	f.add(c)
	c.Flags().StringVar(&o.Replaces, "replaces", "", "the version that must be the current one, so that nobody's change is lost")
	c.Flags().BoolVar(&o.EnforceNow, "enforce-now", false, "also end jobs that wait for an approval under another version")
	c.Flags().BoolVar(&byDefault, "default", false, "go back to the default policy")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func policyExplain() *cobra.Command {
	var f jobFlags
	var q control.ExplainQuery
	var arguments, file string
	var earlier []string
	var asJSON bool
	c := &cobra.Command{
		Use:   "explain CALL",
		Short: "Say what is decided about a call, stage by stage",
		Long: `CALL is the full name of a function, <tool>.<function>. Explain makes no call and
asks no hook. What the function declares of itself its server is asked.`,
		Example: `  belay policy explain acme_git.push --agent acme-merger --arguments '{"branch": "main"}'
  belay policy explain acme_git.merge --earlier acme_git.log --file policy.yaml`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) != 1 || !strings.Contains(args[0], ".") {
				return fmt.Errorf("name the function as <tool>.<function>, such as: %s acme_git.push", c.CommandPath())
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			q.Tool = args[0]
			if arguments != "" {
				var object map[string]json.RawMessage
				if err := json.Unmarshal([]byte(arguments), &object); err != nil {
					return fmt.Errorf("--arguments is no JSON object: %w", err)
				}
				q.Arguments = json.RawMessage(arguments)
			}
			for _, tool := range earlier {
				q.Earlier = append(q.Earlier, control.EarlierCall{Tool: tool})
			}
			o := control.ExplainOrder{}
			if file != "" {
				text, findings, err := readPolicy(file)
				if err != nil {
					return err
				}
				if err := pluginFindings(c, findings, "the call cannot be explained until the policy's errors are mended"); err != nil {
					return err
				}
				o.Text = &text
			}
			o.Call = q
			return f.with(c, false, func(ctx context.Context, d *desk) error {
				return explainCall(ctx, c.OutOrStdout(), d, o, asJSON)
			})
		},
	}
	f.add(c)
	c.Flags().StringVar(&arguments, "arguments", "", "the call's arguments, a JSON object")
	c.Flags().StringVar(&q.Agent, "agent", "", "the agent that makes the call")
	c.Flags().StringVar(&q.StartedBy, "started-by", "", "who started the job")
	c.Flags().StringSliceVar(&earlier, "earlier", nil, "functions that the job has called before, in order")
	c.Flags().StringVar(&file, "file", "", "a policy that is not applied, instead of the current one")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func explainCall(ctx context.Context, w io.Writer, d *desk, o control.ExplainOrder, asJSON bool) error {
	stages, err := d.ExplainCall(ctx, o)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(w, control.Explanation{Stages: stages})
	}
	hooks, err := d.Hooks(ctx, control.HookQuery{Event: hook.PreToolCall, Tool: o.Call.Tool, Agent: o.Call.Agent})
	if err != nil {
		return err
	}
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "STAGE\tPART\tVERDICT\tWHY")
	for _, s := range stages {
		verdict := "–"
		if s.Applies {
			verdict = s.Effect.String()
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", s.Name, cmp.Or(plain(s.Part), "–"), verdict, plain(s.Why))
		if s.Name == policy.StageHooks && s.Effect == policy.Allow {
			for _, h := range hooks {
				fmt.Fprintf(t, "\t%s\tasked\tof plugin %s; when it fails: %s\n", h.Name, h.Plugin, h.OnTimeout)
			}
		}
	}
	return t.Flush()
}
