package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belay-run/belay/internal/control"
	"github.com/belay-run/belay/internal/job"
)

func newJob() *cobra.Command {
	c := &cobra.Command{
		Use:   "job",
		Short: "Run and look after durable jobs of agents",
		Long: `A job is one piece of work of an agent that a plugin brings, guarded by the hooks of
all plugins of the tenant and by its tool policy. It survives the end of its
process: what was asked and answered is on disk, and another process goes on.`,
		Example: `  belay job run acme-merger --input "Merge feature"
  belay job list
  belay job show 01J…`,
		Args: noSuchCommand,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(jobRun(), jobList(), jobShow(), jobCancel(), jobReplay())
	return c
}

func jobRun() *cobra.Command {
	var f jobFlags
	var input string
	var watch, asJSON bool
	c := &cobra.Command{
		Use:   "run AGENT",
		Short: "Start a job and wait until it has ended or waits for a person",
		Long: `Run starts a job and prints what happens in it. It ends when the job has ended, or
when it waits for a person; with --watch it goes on until the end. When another
process owns the data folder, such as belay serve, the job runs there. When that is a
command and ends, the job goes on here; belay serve is waited for, a minute at most.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			value, err := readInput(c.InOrStdin(), input)
			if err != nil {
				return err
			}
			return f.with(c, true, func(ctx context.Context, d *desk) error {
				id, err := d.StartJob(ctx, control.JobOrder{Agent: args[0], Input: value, Model: f.model})
				if err != nil {
					return err
				}
				return follow(ctx, c.OutOrStdout(), d, id, watch, asJSON)
			})
		},
	}
	f.add(c)
	c.Flags().StringVar(&f.model, "model", "", "alias, provider/model or provider/model@base-url instead of the agent's (default $BELAY_MODEL)")
	c.Flags().StringVar(&input, "input", "", "the job's input: a text, @FILE (JSON when it ends in .json), or - for standard input")
	c.Flags().BoolVar(&watch, "watch", false, "go on while the job waits for a person")
	c.Flags().BoolVar(&asJSON, "json", false, "print the job as JSON at the end")
	return c
}

// readInput gives a job's input as JSON.
func readInput(stdin io.Reader, input string) (json.RawMessage, error) {
	text := []byte(input)
	var err error
	name := ""
	switch {
	case input == "-":
		text, err = io.ReadAll(stdin)
	case strings.HasPrefix(input, "@"):
		name = input[1:]
		text, err = os.ReadFile(name)
	}
	if err != nil {
		return nil, fmt.Errorf("read the input: %w", err)
	}
	if strings.HasSuffix(name, ".json") {
		if !json.Valid(text) {
			return nil, fmt.Errorf("%s is no JSON", name)
		}
		return text, nil
	}
	return json.Marshal(strings.TrimSuffix(string(text), "\n"))
}

// follow prints what happens in a job until it ends; without watch, until it waits.
func follow(ctx context.Context, w io.Writer, d *desk, id string, watch, asJSON bool) error {
	if !asJSON {
		fmt.Fprintln(w, "job", id)
	}
	var after int64
	var told liveHistory
	for {
		h, err := d.Job(ctx, id, after)
		if err != nil {
			return err
		}
		if n := len(h.History); n > 0 {
			after = h.History[n-1].Seq
		}
		if !asJSON {
			if err := told.print(ctx, w, d, id, h.History); err != nil {
				return err
			}
		}
		switch {
		case h.Job.State.Ended():
			return ended(w, h.Job, asJSON)
		case h.Job.State == job.Waiting && !watch:
			return waits(ctx, w, d, h.Job, asJSON)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func ended(w io.Writer, j control.Job, asJSON bool) error {
	if asJSON {
		if err := printJSON(w, j); err != nil {
			return err
		}
	} else {
		printEnd(w, j)
	}
	if j.State != job.Completed {
		return errSilent
	}
	return nil
}

func printEnd(w io.Writer, j control.Job) {
	fmt.Fprint(w, j.State)
	if j.End != nil {
		if j.End.Code != "" {
			fmt.Fprintf(w, " (%s)", j.End.Code)
		}
		if j.End.Reason != "" {
			fmt.Fprintf(w, ": %s", plain(j.End.Reason))
		}
		if len(j.End.Output) > 0 {
			fmt.Fprintf(w, "\n%s", plain(asText(j.End.Output)))
		}
	}
	fmt.Fprintln(w)
}

// waits says what a job waits for.
func waits(ctx context.Context, w io.Writer, d *desk, j control.Job, asJSON bool) error {
	all, err := d.Approvals(ctx, "waiting", j.ID, 0)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(w, map[string]any{"job": j, "waiting": all})
	}
	for _, a := range all {
		fmt.Fprintf(w, "waits for a person: belay approval show %s\n", a.ID)
	}
	return nil
}

func jobList() *cobra.Command {
	var f jobFlags
	var agent string
	var states []string
	var limit int
	var asJSON bool
	c := &cobra.Command{
		Use:   "list",
		Short: "List jobs, the newest first",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return f.with(c, false, func(ctx context.Context, d *desk) error {
				wanted := make([]job.State, len(states))
				for i, s := range states {
					wanted[i] = job.State(s)
				}
				all, err := d.Jobs(ctx, agent, limit, wanted...)
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(c.OutOrStdout(), all)
				}
				for _, j := range all {
					code := ""
					if j.End != nil {
						code = j.End.Code
					}
					fmt.Fprintf(c.OutOrStdout(), "%s  %-9s  %s  %s  %s\n", j.ID, j.State, j.Created.Local().Format(time.DateTime), j.Agent, code)
				}
				return nil
			})
		},
	}
	f.add(c)
	c.Flags().StringVar(&agent, "agent", "", "only jobs of this agent")
	c.Flags().StringSliceVar(&states, "state", nil, "only jobs in these states: running, waiting, completed, failed, cancelled")
	c.Flags().IntVar(&limit, "limit", 50, "how many at most")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func jobShow() *cobra.Command {
	var f jobFlags
	var asJSON, texts bool
	c := &cobra.Command{
		Use:   "show JOB",
		Short: "Show a job: what was asked and answered, and how it ended",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return f.with(c, false, func(ctx context.Context, d *desk) error {
				h, err := d.Job(ctx, args[0], 0)
				if err != nil {
					return err
				}
				models, err := d.ModelCalls(ctx, args[0], texts)
				if err != nil {
					return err
				}
				w := c.OutOrStdout()
				if asJSON {
					return printJSON(w, shownJob{h, models.Currency, models.Calls, models.Incomplete})
				}
				fmt.Fprintf(w, "job %s of %s, started %s by %s\n", h.Job.ID, h.Job.Agent, h.Job.Created.Local().Format(time.DateTime), cmp.Or(h.Job.By, "somebody"))
				printHistory(w, h.History, models)
				printModels(w, models)
				if h.Job.State.Ended() {
					printEnd(w, h.Job)
					return nil
				}
				fmt.Fprintln(w, h.Job.State)
				return waits(ctx, w, d, h.Job, false)
			})
		},
	}
	f.add(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.Flags().BoolVar(&texts, "texts", false, "with what models were asked and answered, where the tenant has that recorded")
	return c
}

// shownJob is a job as JSON.
type shownJob struct {
	control.JobHistory
	Currency   string              `json:"currency"`
	ModelCalls []control.ModelCall `json:"model_calls"`
	Incomplete string              `json:"model_calls_incomplete,omitempty"`
}

// printHistory prints what happened in a job, the model calls of plugins where they
// began.
func printHistory(w io.Writer, history []job.Record, models control.ModelCallList) {
	calls := slices.DeleteFunc(slices.Clone(models.Calls), func(c control.ModelCall) bool { return c.Plugin == "" })
	until := func(at time.Time) {
		for len(calls) > 0 && calls[0].Began.Before(at) {
			printModelCall(w, calls[0], models.Currency)
			calls = calls[1:]
		}
	}
	for _, r := range history {
		until(r.At)
		printRecord(w, r)
	}
	for _, c := range calls {
		printModelCall(w, c, models.Currency)
	}
}

// liveHistory prints a job's history as it comes, with the model calls of plugins.
type liveHistory struct{ told map[string]bool }

func (l *liveHistory) print(ctx context.Context, w io.Writer, d *desk, id string, history []job.Record) error {
	var models control.ModelCallList
	asked := func(r job.Record) bool {
		return r.What == job.Answered && (isHook(r.Key) || strings.HasSuffix(r.Key, "/tool") || strings.Contains(r.Key, "/tool/again"))
	}
	if slices.ContainsFunc(history, asked) {
		var err error
		if models, err = d.ModelCalls(ctx, id, false); err != nil {
			return err
		}
		if l.told == nil {
			l.told = map[string]bool{}
		}
		models.Calls = slices.DeleteFunc(models.Calls, func(c control.ModelCall) bool { return l.told[c.ID] || c.Outcome == control.CallRuns })
		for _, c := range models.Calls {
			l.told[c.ID] = true
		}
	}
	printHistory(w, history, models)
	return nil
}

func jobCancel() *cobra.Command {
	var f jobFlags
	var reason string
	c := &cobra.Command{
		Use:   "cancel JOB",
		Short: "Ask for the end of a job",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return f.with(c, true, func(ctx context.Context, d *desk) error {
				if err := d.CancelJob(ctx, args[0], reason); err != nil {
					return err
				}
				for range 100 { // a job that runs ends at its next step
					h, err := d.Job(ctx, args[0], 0)
					if err != nil {
						return err
					}
					if h.Job.State.Ended() {
						fmt.Fprintln(c.OutOrStdout(), h.Job.State)
						return nil
					}
					time.Sleep(50 * time.Millisecond)
				}
				fmt.Fprintln(c.OutOrStdout(), "its end was asked for; it ends as soon as its step has")
				return nil
			})
		},
	}
	f.add(c)
	c.Flags().StringVar(&reason, "reason", "", "for the record")
	return c
}

func jobReplay() *cobra.Command {
	var f jobFlags
	c := &cobra.Command{
		Use:   "replay JOB",
		Short: "Run a job's code against its recorded history; asks nothing, reports any difference",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return f.with(c, false, func(ctx context.Context, d *desk) error {
				r, err := d.ReplayJob(ctx, args[0])
				if err != nil {
					return err
				}
				for _, diff := range r.Differences {
					fmt.Fprintf(c.OutOrStdout(), "%s: %s\n", cmp.Or(diff.Key, "end"), diff.Reason)
				}
				if len(r.Differences) > 0 {
					return errors.New("the code does not do what the history has")
				}
				fmt.Fprintln(c.OutOrStdout(), "no difference")
				return nil
			})
		},
	}
	f.add(c)
	return c
}

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// asText shows a JSON text as it is, anything else as JSON.
func asText(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}
