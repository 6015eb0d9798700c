package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/belay-run/belay/internal/control"
	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/sqlstore"
	"github.com/belay-run/belay/internal/station"
)

// jobFlags are those of the commands that look after jobs.
type jobFlags struct {
	data    string
	keyFile string
	tenant  string
	model   string
	log     string
}

func (f *jobFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.data, "data", "", "data folder (default $BELAY_DATA, .belay here)")
	c.Flags().StringVar(&f.keyFile, "key-file", "", "master key that the records are encrypted under (default $BELAY_KEY_FILE, belay.key in the data folder)")
	c.Flags().StringVar(&f.tenant, "tenant", "default", "whose plugins, policy and jobs they are")
	c.Flags().StringVar(&f.log, "log-level", "", "debug, info, warn or error")
}

func (f *jobFlags) folder() string {
	return cmp.Or(f.data, os.Getenv("BELAY_DATA"), ".belay")
}

func (f *jobFlags) config(log io.Writer, level slog.Level) (station.Config, error) {
	if f.log != "" {
		if err := level.UnmarshalText([]byte(f.log)); err != nil {
			return station.Config{}, fmt.Errorf("--log-level %q: use debug, info, warn or error", f.log)
		}
	}
	data, err := filepath.Abs(f.folder())
	if err != nil {
		return station.Config{}, err
	}
	return station.Config{Data: data, KeyFile: cmp.Or(f.keyFile, os.Getenv("BELAY_KEY_FILE")), Model: cmp.Or(f.model, os.Getenv("BELAY_MODEL")), Version: version,
		Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: level}))}, nil
}

// desk is where a command talks to: the process that owns the data folder, or this
// one when nobody does.
type desk struct {
	*control.Client
	// Here says that this process owns the data folder.
	Here bool
	end  func() error

	owner control.Owner // where it does not
	moves *moves        // nil when jobs may not go on here
}

// Close lets go. What this process runs ends in order.
func (d *desk) Close() error {
	d.Client.Close()
	return d.end()
}

// open finds the owner of the data folder, or becomes it. work says that jobs may
// run here while the command does.
func (f *jobFlags) open(c *cobra.Command, work bool) (*desk, error) {
	cfg, err := f.config(c.ErrOrStderr(), slog.LevelError)
	if err != nil {
		return nil, err
	}
	cfg.Idle = !work
	d, err := f.deskOf(c.Context(), cfg, patient)
	if err != nil {
		return nil, explainFiles(c.ErrOrStderr(), err)
	}
	if work {
		d.moves = &moves{flags: f, station: cfg, say: c.ErrOrStderr()}
	}
	return d, nil
}

func (f *jobFlags) deskOf(ctx context.Context, cfg station.Config, patience time.Duration) (*desk, error) {
	st, owner, err := take(ctx, cfg, patience)
	switch {
	case err != nil:
		return nil, err
	case owner != nil:
		return f.at(*owner), nil
	}
	return f.here(ctx, st)
}

// at is the desk of another process.
func (f *jobFlags) at(o control.Owner) *desk {
	return &desk{Client: control.NewClient(o.Address, o.Token, f.tenant), owner: o, end: func() error { return nil }}
}

// take opens the station of a data folder, or finds who has it. It waits that long for
// a command that is about to let go of the folder.
func take(ctx context.Context, cfg station.Config, patience time.Duration) (*station.Station, *control.Owner, error) {
	over := time.Now().Add(patience)
	for {
		st, err := station.Open(ctx, cfg)
		if !errors.Is(err, sqlstore.ErrInUse) {
			return st, nil, err
		}
		owner, err := ownerOf(cfg.Data, err)
		if err == nil {
			return nil, &owner, nil
		}
		if !errors.Is(err, errSilentOwner) || time.Now().After(over) {
			return nil, nil, err
		}
		select {
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		case <-time.After(50 * time.Millisecond): // it has just begun, or just ended
		}
	}
}

const (
	// patient is how long a process that has taken a data folder may take to say where
	// it answers, or to let go of it.
	patient = 3 * time.Second
	// closing is how long steps of jobs may go on when a process ends.
	closing = 20 * time.Second
)

var errSilentOwner = errors.New("it does not answer for its jobs: a command that is about to end, or an agent's conversations; wait for it or end it, or name another folder with --data")

// ownerOf finds how to reach the process that holds a data folder. inUse says which
// one that is.
func ownerOf(dir string, inUse error) (control.Owner, error) {
	o, err := control.ReadOwner(dir)
	var held *sqlstore.InUseError
	switch {
	case err != nil && !errors.Is(err, control.ErrNoOwner):
		return o, errors.Join(inUse, err)
	case !errors.As(inUse, &held):
		return o, inUse
	case err != nil || held.Owner != fmt.Sprintf("process %d", o.PID): // a process that was killed may have left it
		return o, fmt.Errorf("%s holds the data folder %s; %w", held.Owner, dir, errSilentOwner)
	}
	return o, nil
}

// here serves the station to this process alone.
func (f *jobFlags) here(ctx context.Context, st *station.Station) (*desk, error) {
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	ready, done := make(chan control.Owner, 1), make(chan error, 1)
	go func() {
		done <- st.Serve(life, control.Config{Listen: "127.0.0.1:0", Tenant: f.tenant, Passing: true}, func(o control.Owner) { ready <- o })
	}()
	end := func() error {
		stop()
		err := <-done
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), closing)
		defer cancel()
		return errors.Join(err, st.Close(last))
	}
	select {
	case o := <-ready:
		return &desk{Client: control.NewClient(o.Address, o.Token, f.tenant), Here: true, end: end}, nil
	case err := <-done:
		done <- err
		return nil, cmp.Or(end(), errors.New("the station ended"))
	}
}

// with opens a desk for the length of a call.
func (f *jobFlags) with(c *cobra.Command, work bool, do func(ctx context.Context, d *desk) error) (err error) {
	d, err := f.open(c, work)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	return explainFiles(c.ErrOrStderr(), do(c.Context(), d))
}

// explainFiles lists the findings that an error holds.
func explainFiles(w io.Writer, err error) error {
	var files *station.FindingsError
	var problem *control.Problem
	var found []finding.Finding
	switch {
	case errors.As(err, &files):
		found = files.Findings
	case errors.As(err, &problem):
		found = problem.Findings
	}
	if len(found) == 0 {
		return err
	}
	return errors.Join(err, finding.Text(w, finding.Clean(found)))
}
