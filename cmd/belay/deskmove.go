package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/belay-run/belay/internal/control"
	"github.com/belay-run/belay/internal/station"
)

// moves are how a desk follows its jobs to the next owner of the data folder.
type moves struct {
	flags   *jobFlags
	station station.Config
	say     io.Writer
}

const (
	// lettingGo is how long a command may take to let go of the folder.
	lettingGo = closing + 10*time.Second
	// returning is how long a service may be away.
	returning = time.Minute
)

// stay asks whoever owns the data folder. When that is a command, it ends with its own
// job, and what others run there goes on with the next owner, which may be this
// process. A service is waited for: that it was stopped is no reason to run its jobs.
// What is asked may be asked twice.
func (d *desk) stay(ctx context.Context, ask func() error) error {
	told := false
	for since := time.Now(); ; {
		err := ask()
		if err == nil || d.Here || d.moves == nil || ctx.Err() != nil || !gone(err) {
			return err
		}
		moved, failed := d.move(ctx)
		if failed != nil {
			return errors.Join(err, failed)
		}
		waited := time.Since(since)
		switch {
		case moved:
			since = time.Now()
			continue
		case waited > patient && errors.As(err, new(*control.Problem)): // it is there, and refuses
			return err
		case waited > returning:
			return fmt.Errorf("%w; process %d, which ran the jobs, has ended, and they go on with the next belay serve", err, d.owner.PID)
		}
		if !told && waited > patient {
			told = true
			fmt.Fprintf(d.moves.say, "process %d, which ran the jobs, does not answer; waiting for the next belay serve\n", d.owner.PID)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// gone says whether an error may come of an owner that has ended, or that ends. One
// that came after it, at the same address, does not know its token.
func gone(err error) bool {
	var p *control.Problem
	return !errors.As(err, &p) || p.Code == control.Unauthorized || p.Code == control.Unavailable
}

// move goes to the owner that there is now. moved says that it is another one than
// before.
func (d *desk) move(ctx context.Context) (moved bool, err error) {
	m := d.moves
	var next *desk
	if d.owner.Passing {
		if next, err = m.flags.deskOf(ctx, m.station, lettingGo); err != nil {
			return false, err
		}
	} else {
		o, err := control.ReadOwner(m.station.Data)
		if errors.Is(err, control.ErrNoOwner) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		next = m.flags.at(o)
	}
	if !next.Here && next.owner == d.owner {
		next.Client.Close()
		return false, nil
	}
	where := fmt.Sprintf("in process %d", next.owner.PID)
	if next.Here {
		where = "here"
	}
	fmt.Fprintf(m.say, "process %d has let go of the data folder; its jobs go on %s\n", d.owner.PID, where)
	d.Client.Close()
	d.Client, d.Here, d.owner, d.end = next.Client, next.Here, next.owner, next.end
	return true, nil
}

// StartJob is [control.Client.StartJob], which counts once also when it was asked of
// two owners.
func (d *desk) StartJob(ctx context.Context, o control.JobOrder) (id string, err error) {
	if o.ID == "" {
		o.ID = ulid.Make().String()
	}
	asked := false
	err = d.stay(ctx, func() error {
		id, err = d.Client.StartJob(ctx, o)
		if asked && errors.Is(err, &control.Problem{Code: control.Conflict}) {
			_, err = d.Client.Job(ctx, o.ID, 0) // the owner that has ended may have started it
			id = o.ID
		}
		asked = true
		return err
	})
	return id, err
}

// Job is [control.Client.Job].
func (d *desk) Job(ctx context.Context, id string, after int64) (out control.JobHistory, err error) {
	err = d.stay(ctx, func() error {
		out, err = d.Client.Job(ctx, id, after)
		return err
	})
	return out, err
}

// Approval is [control.Client.Approval].
func (d *desk) Approval(ctx context.Context, id string) (out control.Approval, err error) {
	err = d.stay(ctx, func() error {
		out, err = d.Client.Approval(ctx, id)
		return err
	})
	return out, err
}

// Decide is [control.Client.Decide]. A decision that the owner may have taken before it
// ended is no second one when it says the same.
func (d *desk) Decide(ctx context.Context, id string, o control.DecisionOrder) (out control.Approval, err error) {
	asked := false
	err = d.stay(ctx, func() error {
		out, err = d.Client.Decide(ctx, id, o)
		if asked && errors.Is(err, &control.Problem{Code: control.AlreadyDecided}) {
			now, failed := d.Client.Approval(ctx, id)
			if failed == nil && now.Decided != nil && now.Decided.Note == o.Note && (now.State == control.Approved) == (o.Decision == "approve") {
				out, err = now, nil
			}
		}
		asked = true
		return err
	})
	return out, err
}

// Approvals is [control.Client.Approvals].
func (d *desk) Approvals(ctx context.Context, state, jobID string, limit int) (out []control.Approval, err error) {
	err = d.stay(ctx, func() error {
		out, err = d.Client.Approvals(ctx, state, jobID, limit)
		return err
	})
	return out, err
}

// ModelCalls is [control.Client.ModelCalls].
func (d *desk) ModelCalls(ctx context.Context, id string, texts bool) (out control.ModelCallList, err error) {
	err = d.stay(ctx, func() error {
		out, err = d.Client.ModelCalls(ctx, id, texts)
		return err
	})
	return out, err
}
