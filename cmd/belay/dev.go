package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"

	"github.com/belay-run/belay/internal/approval"
	"github.com/belay-run/belay/internal/control"
	"github.com/belay-run/belay/internal/job"
	"github.com/belay-run/belay/internal/station"
)

func newDev() *cobra.Command {
	var f jobFlags
	d := &dev{}
	var input string
	c := &cobra.Command{
		Use:   "dev DIR…",
		Short: "Try a plugin: run jobs under its hooks in the terminal",
		Long: `Dev installs the plugin of each folder, with all that it asks for, and runs a job
for each line of input, from a person or from a pipe, or one job with --input. It
prints each decision as it is made: of hooks, of the tool policy, of people. What
needs a person is asked right here.

When a file of a plugin has changed, the plugin is installed anew; when the file of
the policy has changed, the policy is applied again. Jobs under way keep what they
started with, and a plugin with findings is not installed: the one before stays.

Everything is in a data folder that is removed at the end, unless --data names one.`,
		Example: `  belay dev my-plugin --model openai/gpt-4o
  belay dev examples/judge --policy examples/judge/policy.yaml \
    --model scripted/examples/judge/script.yml --input "Order 4 chairs"`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("name the plugin's folder, such as: belay dev my-plugin")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			for _, dir := range args {
				d.folders = append(d.folders, &devFolder{dir: dir})
			}
			d.in, d.out, d.errs = c.InOrStdin(), c.OutOrStdout(), c.ErrOrStderr()
			d.typed = d.in == os.Stdin && isatty.IsTerminal(os.Stdin.Fd())
			if d.single = c.Flags().Changed("input"); d.single {
				value, err := readInput(d.in, input)
				if err != nil {
					return err
				}
				d.input = value
			}
			return d.run(c, &f)
		},
	}
	d.add(c, &f, &input)
	return c
}

// add adds the flags of a session.
func (d *dev) add(c *cobra.Command, f *jobFlags, input *string) {
	f.add(c)
	c.Flags().Lookup("data").Usage = "data folder, which is kept (default: one that is removed at the end)"
	c.Flags().Lookup("tenant").DefValue = "dev"
	f.tenant = "dev"
	c.Flags().StringVar(&f.model, "model", "", "alias, provider/model, provider/model@base-url or scripted/FILE instead of the agents' (default $BELAY_MODEL)")
	c.Flags().StringVar(&d.policy.path, "policy", "", "file of the tool policy (default: the default policy)")
	c.Flags().StringVar(&d.agent, "agent", "", "the agent that works, when there are several")
	c.Flags().StringVar(input, "input", "", "run one job with this input and end: a text, @FILE (JSON when it ends in .json), or - for standard input")
	c.Flags().BoolVar(&d.yes, "yes", false, "say yes to whatever a person is asked")
}

// dev is a session of belay dev. All of it happens in one goroutine.
type dev struct {
	in        io.Reader
	out, errs io.Writer
	typed     bool // a person types

	folders []*devFolder
	policy  devPolicy
	agent   string
	input   []byte // of the single job
	single  bool
	yes     bool

	desk   *desk
	tenant string
	data   string // the folder
	temp   bool   // it is removed at the end
	jobs   []*devJob
	asked  *control.Approval // what the person is asked now
	over   bool              // the input has ended
	open   bool              // the cursor stands behind a prompt
	// failed says that the single job did not end well.
	failed bool
}

// devJob is a job of the session that has not ended.
type devJob struct {
	told    liveHistory
	id      string
	after   int64           // the last record that was printed
	skipped map[string]bool // approvals that the person left alone
	aside   bool            // others may start: it waits for what was skipped
}

func (d *dev) run(c *cobra.Command, f *jobFlags) (err error) {
	ctx := c.Context()
	if d.data, d.temp, err = devData(f); err != nil {
		return err
	}
	if d.temp {
		defer func() { err = errors.Join(err, os.RemoveAll(d.data)) }()
	}
	f.data, d.tenant = d.data, f.tenant
	level := slog.LevelWarn
	cfg, err := f.config(d.errs, level)
	if err != nil {
		return err
	}
	cfg.Logger = slog.New(&serverPrints{Handler: cfg.Logger.Handler(), to: d.errs})
	if path, scripted := strings.CutPrefix(cfg.Model, "scripted/"); scripted {
		if cfg.Client, err = newDevScript(path, d.errs); err != nil {
			return explainFiles(d.errs, err)
		}
	}
	defer func() {
		for _, folder := range d.folders {
			err = errors.Join(err, folder.discard())
		}
	}()
	st, err := station.Open(ctx, cfg)
	if err != nil {
		return explainFiles(d.errs, err)
	}
	if d.desk, err = f.here(ctx, st); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.desk.Close()) }()
	for _, folder := range d.folders {
		folder.station, folder.tenant = st, f.tenant
		if err := folder.check(ctx, cfg.Logger, d.errs); err != nil {
			return fmt.Errorf("%s is not installed: %w", folder.dir, err)
		}
	}
	if err := d.begin(ctx, cfg); err != nil {
		return explainFiles(d.errs, err)
	}
	return d.session(ctx, cfg.Logger)
}

// devData gives the data folder of a session.
func devData(f *jobFlags) (dir string, temp bool, err error) {
	if f.data != "" {
		return f.data, false, nil
	}
	dir, err = os.MkdirTemp("", "belay-dev-*")
	if err != nil {
		return "", false, fmt.Errorf("make a data folder: %w; name one with --data", err)
	}
	return dir, true, nil
}

// begin installs the plugins and applies the policy.
func (d *dev) begin(ctx context.Context, cfg station.Config) error {
	for _, folder := range d.folders {
		if err := folder.install(ctx, d.desk); err != nil {
			return err
		}
	}
	if _, err := d.policy.apply(ctx, d.desk); err != nil {
		return err
	}
	if _, err := d.chosen(); err != nil {
		return err
	}
	for _, folder := range d.folders {
		d.say("%s\n", faint.Render(folder.summary()))
	}
	model := "models of " + d.data + "/belay.yaml"
	if strings.HasPrefix(cfg.Model, "scripted/") {
		model = "answers from a script, not a model"
	} else if cfg.Model != "" {
		model = "model " + cfg.Model
	}
	rules := "the default policy"
	if d.policy.path != "" {
		rules = "policy " + d.policy.path
	}
	folder := "data in " + d.data
	if d.temp {
		folder = "nothing is kept"
	}
	d.say("%s\n", faint.Render(model+" · "+rules+" · "+folder))
	if d.yes {
		d.say("%s\n", faint.Render("--yes: whatever a person is asked is answered with yes"))
	}
	return nil
}

// chosen is the agent that works.
func (d *dev) chosen() (string, error) {
	if d.agent != "" {
		return d.agent, nil
	}
	var agents []string
	for _, folder := range d.folders {
		agents = append(agents, folder.agents...)
	}
	switch len(agents) {
	case 0:
		return "", errors.New("the plugin brings no agent, so there is nothing that its hooks could guard here; " +
			"write one under agents, or name the folder of a plugin that has one too: belay dev DIR OTHER-DIR")
	case 1:
		return agents[0], nil
	}
	return "", fmt.Errorf("there are several agents; choose one with --agent: %s", strings.Join(agents, ", "))
}

// Pauses of the session: how soon is seen what a job does, and what a person
// changes in the files.
const (
	devLook  = 50 * time.Millisecond
	devFiles = 400 * time.Millisecond
)

// session runs jobs until the input ends.
func (d *dev) session(ctx context.Context, log *slog.Logger) error {
	t := &terminal{in: d.in}
	lines, broken := t.lines(ctx)
	if d.single {
		if err := d.start(ctx, log, d.input); err != nil {
			return err
		}
	}
	d.prompt()
	look, files := time.NewTicker(devLook), time.NewTicker(devFiles)
	defer look.Stop()
	defer files.Stop()
	for {
		if d.free() && (d.over || d.single) {
			return d.ended(broken)
		}
		var next <-chan string
		if d.asked != nil || d.free() {
			next = lines
		}
		select {
		case <-ctx.Done():
			return d.ended(broken)
		case line, ok := <-next:
			d.open = d.open && !d.typed // who typed has ended the prompt's line
			if !ok {
				lines, d.over = nil, true
				d.unanswered()
				continue
			}
			if err := d.line(ctx, log, line); err != nil {
				return err
			}
		case <-look.C:
			if err := d.look(ctx); err != nil {
				return err
			}
		case <-files.C:
			if d.reload(ctx, log) {
				d.prompt()
			}
		}
	}
}

// free says that the next job may start.
func (d *dev) free() bool {
	for _, j := range d.jobs {
		if !j.aside {
			return false
		}
	}
	return true
}

// line takes what was typed: an answer, or a job's input.
func (d *dev) line(ctx context.Context, log *slog.Logger, line string) error {
	if d.asked != nil {
		if !d.typed {
			d.say("%s\n", line)
			d.open = false
		}
		return d.answer(ctx, line)
	}
	if line == "" {
		d.prompt()
		return nil
	}
	value, err := readInput(strings.NewReader(""), line)
	if err != nil {
		fmt.Fprintln(d.errs, "belay:", err)
		d.prompt()
		return nil
	}
	if !d.typed {
		d.say("%s %s\n", bold.Render("job>"), line)
	}
	return d.start(ctx, log, value)
}

// start starts a job. One that cannot be started ends a session of one job only.
func (d *dev) start(ctx context.Context, log *slog.Logger, input []byte) error {
	d.reload(ctx, log)
	agent, err := d.chosen()
	if err == nil {
		var id string
		if id, err = d.desk.StartJob(ctx, control.JobOrder{Agent: agent, Input: input}); err == nil {
			d.jobs = append(d.jobs, &devJob{id: id, skipped: map[string]bool{}})
			d.say("%s\n", faint.Render("job "+id+" of "+agent))
			return nil
		}
	}
	if d.single || ctx.Err() != nil {
		return explainFiles(d.errs, err)
	}
	fmt.Fprintln(d.errs, "belay:", explainFiles(d.errs, err))
	d.prompt()
	return nil
}

// look prints what happened in the jobs of the session, and asks what they ask.
func (d *dev) look(ctx context.Context) error {
	var open []*devJob
	var failed error
	for _, j := range d.jobs {
		ended, err := d.follow(ctx, j)
		if !ended {
			open = append(open, j)
		}
		failed = errors.Join(failed, err)
	}
	was := len(d.jobs)
	if d.jobs = open; failed != nil {
		return failed
	}
	if len(open) < was && d.free() && !d.single {
		d.prompt()
	}
	return nil
}

// follow looks after one job.
func (d *dev) follow(ctx context.Context, j *devJob) (ended bool, err error) {
	h, err := d.desk.Job(ctx, j.id, j.after)
	if err != nil {
		return false, err
	}
	if len(h.History) > 0 || h.Job.State.Ended() {
		d.fresh()
	}
	if j.aside && len(h.History) > 0 { // somebody decided elsewhere
		d.say("%s\n", faint.Render("job "+j.id+" goes on"))
		j.aside = false
	}
	if n := len(h.History); n > 0 {
		j.after = h.History[n-1].Seq
	}
	if err := j.told.print(ctx, d.out, d.desk, j.id, h.History); err != nil {
		return false, err
	}
	if len(h.History) > 0 && d.asked != nil && d.asked.Job == j.id {
		d.asked = nil // somebody else answered
	}
	switch {
	case h.Job.State.Ended():
		printEnd(d.out, h.Job)
		d.failed = d.failed || h.Job.State != job.Completed
		return true, nil
	case h.Job.State == job.Waiting && len(h.History) == 0 && !j.aside && d.asked == nil: // and it waited a moment ago
		return false, d.ask(ctx, j)
	}
	return false, nil
}

// ask asks the first question of a job that was not skipped.
func (d *dev) ask(ctx context.Context, j *devJob) error {
	all, err := d.desk.Approvals(ctx, "waiting", j.id, 0)
	if err != nil {
		return err
	}
	for _, listed := range all {
		if j.skipped[listed.ID] {
			continue
		}
		a, err := d.desk.Approval(ctx, listed.ID)
		if err != nil {
			return err
		}
		d.asked = &a
		printApproval(d.out, a)
		switch d.prompt(); {
		case d.yes:
			d.say("%s\n", faint.Render("yes, says --yes"))
			d.open = false
			return d.answer(ctx, "yes --yes was given")
		case d.over:
			d.unanswered()
		}
		return nil
	}
	if len(all) > 0 {
		j.aside = true
		if d.over {
			return nil
		}
		d.say("%s\n", faint.Render(fmt.Sprintf("the job waits; answer elsewhere: belay approval decide --data %s --tenant %s", d.data, d.tenant)))
		d.prompt()
	}
	return nil
}

// answer answers what was asked. What follows the first word is the note.
func (d *dev) answer(ctx context.Context, line string) error {
	a := *d.asked
	word, note, _ := strings.Cut(strings.TrimSpace(line), " ")
	o := control.DecisionOrder{Note: strings.TrimSpace(note), Digest: a.Digest.String()}
	switch strings.ToLower(word) {
	case "y", "yes":
		o.Decision = "approve"
		if a.Request.Kind == approval.Outcome {
			o.Action = approval.Retry
		}
	case "n", "no":
		o.Decision = "deny"
	case "s", "skip":
		d.skip(a)
		return nil
	default:
		d.prompt()
		return nil
	}
	d.asked = nil
	_, err := d.desk.Decide(ctx, a.ID, o)
	var p *control.Problem
	if errors.As(err, &p) { // it was decided elsewhere, or its time is over: look goes on
		fmt.Fprintln(d.errs, "belay:", err)
		return nil
	}
	return err
}

// skip leaves a question alone.
func (d *dev) skip(a control.Approval) {
	d.asked = nil
	for _, j := range d.jobs {
		if j.id == a.Job {
			j.skipped[a.ID] = true
		}
	}
}

// unanswered skips what nobody can answer any more: the input has ended.
func (d *dev) unanswered() {
	if d.asked == nil {
		return
	}
	d.fresh()
	d.say("%s\n", faint.Render("nobody is here to answer; --yes answers with yes, and --data keeps the job for belay approval"))
	d.skip(*d.asked)
}

// fresh ends the line of a prompt that was not answered.
func (d *dev) fresh() {
	if d.open {
		d.say("\n")
	}
	d.open = false
}

// prompt says what is waited for.
func (d *dev) prompt() {
	d.fresh()
	d.open = true
	switch {
	case d.asked != nil && d.asked.Request.Kind == approval.Outcome:
		d.say("%s ", bold.Render("make the call again: yes, no, or skip? (words after it are your note)"))
	case d.asked != nil:
		d.say("%s ", bold.Render("yes, no, or skip? (words after it are your note)"))
	case d.typed && d.free() && !d.single:
		d.say("%s ", bold.Render("job>"))
	default:
		d.open = false
	}
}

// ended says what is left when the input is at its end.
func (d *dev) ended(broken <-chan error) error {
	d.fresh()
	d.left()
	select {
	case err := <-broken:
		return err
	default:
	}
	if d.single && (d.failed || len(d.jobs) > 0) {
		return errSilent
	}
	return nil
}

// left says what becomes of jobs that have not ended.
func (d *dev) left() {
	if len(d.jobs) == 0 {
		return
	}
	fate := "they are kept in " + d.data + " and go on with the next belay that owns it"
	if d.temp {
		fate = "they are removed with the session's data; --data keeps them"
	}
	d.say("%s\n", faint.Render(fmt.Sprintf("jobs that have not ended: %d; %s", len(d.jobs), fate)))
}

// reload installs plugins that changed and applies a policy that changed. It says
// whether anything was printed.
func (d *dev) reload(ctx context.Context, log *slog.Logger) (said bool) {
	tell := func(format string, args ...any) {
		said = true
		d.fresh()
		d.say("%s\n", faint.Render(fmt.Sprintf(format, args...)))
	}
	applied, err := d.policy.apply(ctx, d.desk)
	if err != nil {
		fmt.Fprintln(d.errs, "belay:", explainFiles(d.errs, err))
		tell("%s changed and was not applied; the policy before stays", d.policy.path)
	} else if applied {
		tell("%s changed and was applied; it holds from the next job on", d.policy.path)
	}
	for _, folder := range d.folders {
		if !folder.changed() {
			continue
		}
		d.fresh()
		err := folder.check(ctx, log, d.errs)
		if err == nil {
			err = folder.install(ctx, d.desk)
		}
		if ctx.Err() != nil {
			return said
		}
		if err != nil {
			if !errors.Is(err, errDevFindings) {
				fmt.Fprintln(d.errs, "belay:", explainFiles(d.errs, err))
			}
			tell("%s changed and was not installed; the version before stays", folder.dir)
			continue
		}
		tell("%s changed and was installed anew; jobs under way keep what they started with", folder.dir)
	}
	return said
}

func (d *dev) say(format string, args ...any) { fmt.Fprintf(d.out, format, args...) }
