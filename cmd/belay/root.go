package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"

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
		Use:           "belay",
		Short:         "Put your own checks around everything an AI agent does",
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(newInit(), newCheck(), newChat(), newServe(), newHooks())
	return root
}

func (f *flags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.data, "data", "", "folder of the records (default DIR/.belay)")
	c.Flags().StringVar(&f.keyFile, "key-file", "", "file of the master key that the records are encrypted under (default belay.key in the data folder)")
	c.Flags().StringVar(&f.python, "python", "", "interpreter for hooks and tools (default DIR/.venv, $BELAY_PYTHON, python3)")
	c.Flags().StringVar(&f.model, "model", os.Getenv("BELAY_MODEL"), "provider/model or provider/model@base-url instead of the agent's (default $BELAY_MODEL)")
	c.Flags().StringVar(&f.tenant, "tenant", "default", "whose data it is")
	c.Flags().StringVar(&f.log, "log-level", "", "debug, info, warn or error")
	c.Flags().BoolVar(&f.json, "log-json", false, "write the log as JSON")
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
	return app.Config{Dir: dir, Data: f.data, KeyFile: f.keyFile, Python: f.python, Model: f.model, Tenant: f.tenant, Version: version, Logger: slog.New(handler)}, nil
}

// oneDir wants the agent's folder as the one argument.
func oneDir(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("name the agent's folder, such as: belay chat my-agent")
	}
	return nil
}
