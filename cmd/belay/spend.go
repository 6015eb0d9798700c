package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/belay-run/belay/internal/control"
	"github.com/belay-run/belay/internal/expect"
	"github.com/belay-run/belay/internal/spend"
)

func newSpend() *cobra.Command {
	var f jobFlags
	var asJSON bool
	c := &cobra.Command{
		Use:   "spend",
		Short: "Show what models have cost, beside the budgets",
		Long: `Spend shows what a tenant and its agents have spent on models in this day and this
month of UTC, by their own calls and by those of plugins, beside the budgets that
belay.yaml sets. What calls that run may cost is reserved.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return f.with(c, false, func(ctx context.Context, d *desk) error {
				r, err := d.Spend(ctx)
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(c.OutOrStdout(), r)
				}
				return printSpend(c.OutOrStdout(), r)
			})
		},
	}
	f.add(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func printSpend(w io.Writer, r control.SpendReport) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "WHO\tPERIOD\t%s\tBUDGET\tRESERVED\tTOKENS\tBUDGET\tRESERVED\n", r.Currency)
	for _, s := range r.Spent {
		who := "tenant " + r.Tenant
		if s.Agent != "" {
			who = "agent " + s.Agent
		}
		period := s.Since.UTC().Format(time.DateOnly)
		if s.Per == string(spend.Month) {
			period = s.Since.UTC().Format("2006-01")
		}
		cost, tokens := limits(s.Budget)
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%d\t%s\t%d\n", plain(who), period, spend.Money(s.Cost), cost, spend.Money(s.Reserved), s.Tokens, tokens, s.ReservedTokens)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if b := r.JobBudget; b != nil {
		cost, tokens := limits(b)
		fmt.Fprintf(w, "each job: %s %s, %s tokens\n", cost, r.Currency, tokens)
	}
	return nil
}

// limits writes the two parts of a budget, - for none.
func limits(b *control.Budget) (cost, tokens string) {
	cost, tokens = "-", "-"
	if b != nil && b.Cost > 0 {
		cost = spend.Money(b.Cost).String()
	}
	if b != nil && b.Tokens > 0 {
		tokens = strconv.FormatInt(b.Tokens, 10)
	}
	return cost, tokens
}

// printModelCall prints a plugin's model call as a line of its job's history.
func printModelCall(w io.Writer, c control.ModelCall, currency string) {
	model := cmp.Or(c.Asked, c.Model)
	if c.Model != "" && c.Model != model {
		model += " (" + c.Provider + "/" + c.Model + ")"
	}
	said := fmt.Sprintf("%d + %d tokens%s, %s in %s", c.Usage.Input, c.Usage.Output, details(c), costOf(c, currency), (time.Duration(c.Took) * time.Millisecond))
	switch {
	case c.Outcome == control.CallRuns:
		said = "is being asked"
	case c.Outcome == control.CallUnknown:
		said = fmt.Sprintf("outcome unknown: the process ended under it; %d tokens, %s count as spent", c.Reserved, costOf(c, currency))
	case c.Why != "":
		status := "cut off"
		if c.Status != 0 {
			status = fmt.Sprintf("status %d", c.Status)
		}
		said = fmt.Sprintf("not answered (%s): %s; %s", status, c.Why, said)
	}
	if len(c.Verdicts) > 0 {
		said += "; " + strings.Join(c.Verdicts, ", ")
	}
	fmt.Fprintf(w, "  %s ◆  %s\n", c.Began.Local().Format(time.TimeOnly), plain(fmt.Sprintf("%s of %s asks model %s (%s): %s", cmp.Or(strings.Trim(c.Tool+"."+c.Function, "."), "a tool"), c.Plugin, model, c.Purpose, said)))
	for _, text := range []struct{ name, text string }{{"request", c.Request}, {"answer", c.Answer}} {
		if text.text != "" {
			fmt.Fprintf(w, "      %s: %s\n", text.name, plain(text.text))
		}
	}
}

func details(c control.ModelCall) string {
	var out []string
	for _, part := range []struct {
		n    int
		what string
	}{{c.Usage.Cached, "cached"}, {c.Usage.CacheWritten, "written to the cache"}, {c.Usage.Reasoning, "reasoning"}} {
		if part.n > 0 {
			out = append(out, fmt.Sprintf("%d %s", part.n, part.what))
		}
	}
	if c.Estimated {
		out = append(out, "estimated")
	}
	if len(out) == 0 {
		return ""
	}
	return " (" + strings.Join(out, ", ") + ")"
}

func costOf(c control.ModelCall, currency string) string {
	if !c.Priced {
		return "no price"
	}
	return spend.Money(c.Cost).String() + " " + currency
}

// printModels prints what the models of a job have come to.
func printModels(w io.Writer, all control.ModelCallList) {
	if all.Incomplete != "" {
		fmt.Fprintln(w, "models:", plain(all.Incomplete))
	}
	if len(all.Calls) == 0 {
		return
	}
	var cost spend.Money
	var tokens int64
	unpriced, plugins := 0, 0
	for _, c := range all.Calls {
		cost += spend.Money(c.Cost)
		tokens += c.Usage.Tokens() + c.Reserved
		if !c.Priced {
			unpriced++
		}
		if c.Plugin != "" {
			plugins++
		}
	}
	fmt.Fprintf(w, "models: %s, %d of them by plugins, %d tokens, %s %s", expect.Count(len(all.Calls), "call"), plugins, tokens, cost, all.Currency)
	if unpriced > 0 {
		fmt.Fprintf(w, " (%d without a price)", unpriced)
	}
	fmt.Fprintln(w)
}
