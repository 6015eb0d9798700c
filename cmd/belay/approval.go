package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belay-run/belay/internal/approval"
	"github.com/belay-run/belay/internal/control"
	"github.com/belay-run/belay/internal/expect"
)

func newApproval() *cobra.Command {
	c := &cobra.Command{
		Use:   "approval",
		Short: "See and decide what waits for a person",
		Example: `  belay approval list
  belay approval show ABC123
  belay approval approve ABC123 --note "looked at the diff"
  belay approval decide`,
		Args: noSuchCommand,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(approvalList(), approvalShow(), approvalDecide("approve"), approvalDecide("deny"), approvalEach())
	return c
}

func approvalList() *cobra.Command {
	var f jobFlags
	var state string
	var asJSON bool
	c := &cobra.Command{
		Use:   "list",
		Short: "List what waits, or what was decided",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return f.with(c, false, func(ctx context.Context, d *desk) error {
				all, err := d.Approvals(ctx, state, "", 0)
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(c.OutOrStdout(), all)
				}
				for _, a := range all {
					fmt.Fprintf(c.OutOrStdout(), "%s  %-8s  %s  %s  %s\n", a.ID, a.State, a.Asked.Local().Format(time.DateTime), a.Request.Agent, plain(asks(a.Request)))
				}
				if len(all) == 0 {
					fmt.Fprintln(c.ErrOrStderr(), "nothing waits for a person")
				}
				return nil
			})
		},
	}
	f.add(c)
	c.Flags().StringVar(&state, "state", "waiting", "waiting, decided or all")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func approvalShow() *cobra.Command {
	var f jobFlags
	var asJSON bool
	c := &cobra.Command{
		Use:   "show APPROVAL",
		Short: "Show all that is asked: the call, the reasons, what would change",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return f.with(c, false, func(ctx context.Context, d *desk) error {
				a, err := d.Approval(ctx, args[0])
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(c.OutOrStdout(), a)
				}
				printApproval(c.OutOrStdout(), a)
				return nil
			})
		},
	}
	f.add(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func printApproval(w io.Writer, a control.Approval) {
	r := a.Request
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "%-10s %s\n", name, plain(strings.ReplaceAll(value, "\n", "\n           ")))
		}
	}
	row("approval", a.ID+" ("+string(r.Kind)+"), "+string(a.State))
	row("job", a.Job+" of "+r.Agent)
	row("event", r.Event)
	row("tool", r.Tool)
	row("arguments", pretty(r.Arguments))
	if len(r.Before) > 0 {
		row("before", pretty(r.Before))
		row("now", pretty(r.Value))
	} else {
		row("value", pretty(r.Value))
	}
	for _, reason := range r.Reasons {
		row("because", strings.TrimSuffix(reason.By+": "+reason.Text, ": ")+because(reason.Note))
	}
	if r.Kind == approval.Outcome && a.Decided == nil {
		row("answer", "belay approval approve with --action retry (make the call again), fail, or result; deny counts as fail")
	}
	row("policy", r.Policy)
	if !a.Until.IsZero() {
		row("until", a.Until.Local().Format(time.DateTime)+", then the answer is no")
	}
	if a.Decided != nil {
		row("decided", fmt.Sprintf("by %s at %s%s", a.Decided.By, a.Decided.At.Local().Format(time.DateTime), because(a.Decided.Note)))
	}
}

func pretty(raw json.RawMessage) string {
	if len(raw) == 0 {
		return ""
	}
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return string(raw)
	}
	out, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return string(raw)
	}
	return string(out)
}

func approvalDecide(decision string) *cobra.Command {
	var f jobFlags
	var note, action, result string
	c := &cobra.Command{
		Use:   decision + " APPROVAL",
		Short: map[string]string{"approve": "Say yes", "deny": "Say no"}[decision],
		Long: `The answer is bound to what is shown now: when that changed meanwhile, it does not
count. When nobody else runs the tenant's jobs, the job goes on here until it ends
or waits again.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			o := control.DecisionOrder{Decision: decision, Note: note, Action: approval.Action(action)}
			if result != "" {
				o.Result = json.RawMessage(result)
				if o.Action == "" {
					o.Action = approval.Result
				}
			}
			return f.with(c, true, func(ctx context.Context, d *desk) error {
				a, err := d.Approval(ctx, args[0])
				if err != nil {
					return err
				}
				return decide(ctx, c.OutOrStdout(), d, a, o)
			})
		},
	}
	f.add(c)
	c.Flags().StringVar(&note, "note", "", "for the record, and for whoever asks why")
	if decision == "approve" {
		c.Flags().StringVar(&action, "action", "", "of a call of which nobody knows whether it was made: retry, fail or result")
		c.Flags().StringVar(&result, "result", "", "with the action result: what the call gave, as JSON")
	}
	return c
}

func decide(ctx context.Context, w io.Writer, d *desk, a control.Approval, o control.DecisionOrder) error {
	o.Digest = a.Digest.String()
	if _, err := d.Decide(ctx, a.ID, o); err != nil {
		var p *control.Problem
		if errors.As(err, &p) && p.Decided != nil {
			return fmt.Errorf("%w; %s was first", err, p.Decided.By)
		}
		return err
	}
	fmt.Fprintln(w, map[string]string{"approve": "approved", "deny": "denied"}[o.Decision])
	if !d.Here {
		return nil
	}
	err := follow(ctx, w, d, a.Job, false, false)
	if errors.Is(err, errSilent) {
		return nil // how the job ended was said; the decision was made
	}
	return err
}

// approvalEach goes through what waits and asks about each.
func approvalEach() *cobra.Command {
	var f jobFlags
	c := &cobra.Command{
		Use:   "decide",
		Short: "Go through what waits, one by one",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return f.with(c, true, func(ctx context.Context, d *desk) error {
				return each(ctx, c.InOrStdin(), c.OutOrStdout(), d)
			})
		},
	}
	f.add(c)
	return c
}

func each(ctx context.Context, in io.Reader, w io.Writer, d *desk) error {
	all, err := d.Approvals(ctx, "waiting", "", 0)
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(in)
	for i, listed := range all {
		a, err := d.Approval(ctx, listed.ID)
		if err != nil {
			return err
		}
		printApproval(w, a)
		question := "yes, no, or skip? "
		if a.Request.Kind == approval.Outcome {
			question = "make the call again: yes, no, or skip? "
		}
		fmt.Fprint(w, question)
		if !lines.Scan() {
			fmt.Fprintf(w, "\nno more answers: %s left as they were\n", expect.Count(len(all)-i, "approval"))
			return lines.Err()
		}
		o := control.DecisionOrder{}
		switch strings.ToLower(strings.TrimSpace(lines.Text())) {
		case "y", "yes":
			o.Decision = "approve"
		case "n", "no":
			o.Decision = "deny"
		default:
			continue
		}
		if a.Request.Kind == approval.Outcome && o.Decision == "approve" {
			o.Action = approval.Retry
		}
		if err := decide(ctx, w, d, a, o); err != nil {
			fmt.Fprintln(w, err)
		}
	}
	if len(all) == 0 {
		fmt.Fprintln(w, "nothing waits for a person")
	}
	return nil
}
