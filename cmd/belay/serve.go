package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/belay-run/belay/internal/app"
	"github.com/belay-run/belay/internal/config"
	"github.com/belay-run/belay/internal/control"
	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/server"
)

func newServe() *cobra.Command {
	var f flags
	var listen, token string
	var origins []string
	var port int
	c := &cobra.Command{
		Use:   "serve [DIR]",
		Short: "Serve an agent over HTTP, or run jobs and serve the API to look after them",
		Long: `With an agent's folder, serve answers on 127.0.0.1 unless --listen names another
address, which needs a token. SIGHUP loads the agent's folder again; the old version goes on when the
new one has findings. SIGTERM and Ctrl-C stop in order: turns under way may end.

Without a folder, it owns the data folder ($BELAY_DATA, else .belay): it runs the
jobs of all its tenants, also those that belay job run starts beside it, and serves
the API under /v1 on 127.0.0.1:5006. belay token create makes a token for it.
SIGHUP is ignored.`,
		Example: `  belay serve my-agent
  belay serve --data /var/lib/belay
  BELAY_TOKEN=$(openssl rand -hex 24) belay serve my-agent --listen 0.0.0.0:5005`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return oneDir(c, args)
			}
			for _, name := range []string{"origin", "token", "python"} {
				if c.Flags().Changed(name) {
					return fmt.Errorf("--%s is for serving an agent: name its folder, such as: %s my-agent", name, c.CommandPath())
				}
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				if listen == "" && c.Flags().Changed("port") {
					listen = fmt.Sprintf("127.0.0.1:%d", port)
				}
				return f.serveJobs(c, listen)
			}
			cfg, err := f.config(args[0], slog.LevelInfo, c.ErrOrStderr())
			if err != nil {
				return err
			}
			if listen == "" {
				listen = fmt.Sprintf("127.0.0.1:%d", port)
			}
			return serve(c, cfg, server.Config{Listen: listen, Origins: origins, Token: cmp.Or(token, os.Getenv("BELAY_TOKEN")), Logger: cfg.Logger, Version: version})
		},
	}
	f.addPython(c)
	f.addModel(c)
	f.addData(c)
	c.Flags().StringVar(&listen, "listen", "", "address to listen on, such as 0.0.0.0:5005; for an agent, anything but loopback needs a token")
	c.Flags().IntVar(&port, "port", 5005, "port on 127.0.0.1 when --listen is not given; 0 takes a free one (without a folder, 5006)")
	c.Flags().StringSliceVar(&origins, "origin", nil, "web origin whose pages may call the API, such as https://shop.example; may be given again")
	c.Flags().StringVar(&token, "token", "", "token that callers must bring (default $BELAY_TOKEN)")
	return c
}

func serve(c *cobra.Command, cfg app.Config, scfg server.Config) (err error) {
	ctx := c.Context()
	if err := scfg.Validate(); err != nil {
		return err // before anything is started
	}
	a, err := app.Open(ctx, cfg)
	if err != nil {
		return explain(c.ErrOrStderr(), err)
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		err = errors.Join(err, a.Close(end))
	}()
	defer onHangup(func() { reload(ctx, a) })()
	defer context.AfterFunc(ctx, func() { a.Logger().Info("stopping: turns under way may end; a second signal ends them at once") })()

	scfg.Metrics, scfg.Logger = a.Metrics(), a.Logger()
	scfg.Ready = func(addr net.Addr) {
		fmt.Fprintf(c.OutOrStdout(), "belay serves %s on http://%s\n", a.AgentID(), addr)
		if h := a.Health(ctx); h.Scripted {
			fmt.Fprintln(c.OutOrStdout(), "its model is a script: answers are written in a file")
		}
	}
	s, err := server.New(a, scfg)
	if err != nil {
		return err
	}
	return s.Run(ctx)
}

// serveJobs runs the jobs of a data folder and serves the API to look after them,
// until the program is to end.
func (f *flags) serveJobs(c *cobra.Command, listen string) (err error) {
	ctx := c.Context()
	j := jobFlags{data: f.data, keyFile: f.keyFile, tenant: f.tenant, model: f.model, log: f.log}
	cfg, err := j.config(c.ErrOrStderr(), slog.LevelInfo)
	if err != nil {
		return err
	}
	if f.json {
		if cfg.Logger, err = f.logger(c, slog.LevelInfo); err != nil {
			return err
		}
	}
	defer onHangup(func() {
		cfg.Logger.Warn("SIGHUP is ignored: plugins and policies hold as soon as they are installed and applied; " + config.File + " is read at the start")
	})()
	st, owner, err := take(ctx, cfg, patient)
	if err != nil {
		return explainFiles(c.ErrOrStderr(), err)
	}
	if owner != nil {
		return fmt.Errorf("the data folder is in use by process %d, which serves http://%s; stop it, or use another data folder", owner.PID, owner.Address)
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
		defer cancel()
		err = errors.Join(err, st.Close(end))
	}()
	defer context.AfterFunc(ctx, func() {
		cfg.Logger.Info("stopping: steps under way may end, and jobs go on with the next start; a second signal ends at once")
	})()
	return st.Serve(ctx, control.Config{Listen: listen, Tenant: f.tenant}, func(o control.Owner) {
		w := c.OutOrStdout()
		fmt.Fprintf(w, "belay runs the jobs of %s and serves http://%s\n", cfg.Data, o.Address)
		fmt.Fprintln(w, "a token for it: belay token create NAME --role viewer, approver or admin")
	})
}

// onHangup calls do at each SIGHUP, which would end the program otherwise, until the
// function that it returns is called.
func onHangup(do func()) (stop func()) {
	hup, done := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(hup, syscall.SIGHUP)
	go func() {
		for {
			select {
			case <-done:
				return
			case <-hup:
				do()
			}
		}
	}()
	return func() { signal.Stop(hup); close(done) }
}

// reload loads an agent's folder again; when it cannot be, the old version goes on.
func reload(ctx context.Context, a *app.App) {
	log := a.Logger()
	if err := a.Reload(ctx); err != nil {
		logFindings(log, err)
		log.Error("the agent could not be loaded again; the old version goes on", "error", err)
		return
	}
	log.Info("the agent was loaded again")
}

// logFindings says what keeps an agent from being loaded.
func logFindings(log *slog.Logger, err error) {
	var found *app.FindingsError
	if !errors.As(err, &found) {
		return
	}
	for _, f := range finding.Clean(found.Findings) {
		log.Error("a finding", "file", f.File, "line", f.Line, "rule", f.Rule, "severity", f.Severity, "message", f.Message, "hint", f.Hint)
	}
}
