package station

import (
	"context"
	"errors"
	"net"
	"os"
	"os/user"

	"github.com/belay-run/belay/internal/access"
	"github.com/belay-run/belay/internal/control"
	"github.com/belay-run/belay/internal/job"
)

// Serve serves the control API of the station until ctx ends. While it does, the
// data folder says to its user where and with which token it answers. ready is told
// of that; it may be nil.
func (s *Station) Serve(ctx context.Context, cfg control.Config, ready func(control.Owner)) error {
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	secret, key := access.NewKey(name)
	cfg.Version, cfg.Logger, cfg.Clock = s.cfg.Version, s.cfg.Logger, s.cfg.Clock
	if cfg.Listen == "" {
		cfg.Listen = s.settings.Listen
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var owner control.Owner
	var failed error
	cfg.Ready = func(addr net.Addr) {
		owner = control.Owner{Address: addr.String(), Token: secret, PID: os.Getpid(), Passing: cfg.Passing}
		if !s.cfg.Idle { // whoever wants jobs run waits until an idle one lets go
			failed = control.WriteOwner(s.cfg.Data, owner)
		}
		if failed != nil {
			stop()
			return
		}
		if ready != nil {
			ready(owner)
		}
	}
	server, err := control.New(s.Service(access.NewGate(s.store, key, s.cfg.Clock, s.cfg.Logger)), cfg)
	if err != nil {
		return err
	}
	err = errors.Join(server.Run(ctx), failed)
	if owner.Address != "" && !s.cfg.Idle {
		err = errors.Join(err, control.RemoveOwner(s.cfg.Data, owner))
	}
	return err
}

// idle is a journal of which nobody takes jobs: those who only look do not start
// work.
type idle struct{ job.Journal }

// Claim takes nothing.
func (idle) Claim(context.Context, job.Claim) ([]job.Lease, error) { return nil, nil }
