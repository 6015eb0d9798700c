package main

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belay-run/belay/internal/app"
)

// flags are those of the commands that load an agent.
type flags struct {
	data    string
	keyFile string
	python  string
	model   string
	tenant  string
	log     string
	json    bool
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "belay",
		Short: "Put your own checks around everything an AI agent does",
		Long: `Belay runs agents with your own checks around everything they do.
An agent is a folder; its checks are Python functions in that folder.`,
		Example: `  belay init my-agent
  belay check my-agent
  belay chat my-agent --trace`,
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,

		SuggestionsMinimumDistance: 2,

		Args: noSuchCommand,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return fmt.Errorf("%w; %s --help lists the flags", err, c.CommandPath())
	})
	root.AddCommand(newInit(), newCheck(), newChat(), newServe(), newHooks(), newConversation(), newTest(), newRecord(), newJob(), newApproval(), newDev(), pluginCommand(),
		newPolicy(), newAudit(), newToken(), newSecret(), newSpend(), newBackup(), newDoctor())
	return root
}

// noSuchCommand refuses what no command took.
func noSuchCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if near := c.SuggestionsFor(args[0]); len(near) > 0 {
		return fmt.Errorf("there is no command %q; did you mean %s?", args[0], strings.Join(near, " or "))
	}
	return fmt.Errorf("there is no command %q; %s --help lists those that there are", args[0], c.CommandPath())
}

// addPython adds the flags of every command that runs the agent's Python.
func (f *flags) addPython(c *cobra.Command) {
	c.Flags().StringVar(&f.python, "python", "", "interpreter for hooks and tools (default DIR/.venv, $BELAY_PYTHON, python3)")
	c.Flags().StringVar(&f.log, "log-level", "", "debug, info, warn or error")
	c.Flags().BoolVar(&f.json, "log-json", false, "write the log as JSON")
}

// addModel adds the flag of every command that may ask a model. No flag has a
// variable's value as its default: --help would show it.
func (f *flags) addModel(c *cobra.Command) {
	c.Flags().StringVar(&f.model, "model", "", "provider/model or provider/model@base-url instead of the agent's (default $BELAY_MODEL)")
}

// addData adds the flags of every command that needs the records.
func (f *flags) addData(c *cobra.Command) {
	c.Flags().StringVar(&f.data, "data", "", "folder of the records (default DIR/.belay)")
	c.Flags().StringVar(&f.keyFile, "key-file", "", "master key that the records are encrypted under (default $BELAY_KEY_FILE, belay.key in the data folder)")
	c.Flags().StringVar(&f.tenant, "tenant", "default", "whose data it is")
}

// config gives the configuration for an agent's folder. level is the log's
// default.
func (f *flags) config(dir string, level slog.Level, log io.Writer) (app.Config, error) {
	if f.log != "" {
		if err := level.UnmarshalText([]byte(f.log)); err != nil {
			return app.Config{}, fmt.Errorf("--log-level %q: use debug, info, warn or error", f.log)
		}
	}
	var handler slog.Handler = slog.NewTextHandler(log, &slog.HandlerOptions{Level: level})
	if f.json {
		handler = slog.NewJSONHandler(log, &slog.HandlerOptions{Level: level})
	}
	return app.Config{Dir: dir, Data: f.data, KeyFile: cmp.Or(f.keyFile, os.Getenv("BELAY_KEY_FILE")), Python: f.python,
		Model: cmp.Or(f.model, os.Getenv("BELAY_MODEL")), Tenant: f.tenant, Version: version, Logger: slog.New(handler)}, nil
}

// oneDir wants the agent's folder as the one argument.
func oneDir(c *cobra.Command, args []string) error {
	switch len(args) {
	case 0:
		return fmt.Errorf("name the agent's folder, such as: %s my-agent", c.CommandPath())
	case 1:
		return nil
	}
	return fmt.Errorf("%s takes one folder; %q is one too many", c.CommandPath(), args[1])
}
