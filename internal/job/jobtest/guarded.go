package jobtest

import (
	"context"
	"fmt"
	"time"

	"github.com/belay-run/belay/internal/job"
)

// guarded is a journal as one process under simulation has it.
type guarded struct {
	p *process
	*Memory
}

// names says what is written, for the name of a gate. Times are left out: which
// branch reads its clock first is the one thing that does not follow from the
// seed.
func names(what string, records []job.Record) string {
	for _, r := range records {
		if r.What != job.Timed {
			what += " " + string(r.What) + " " + r.Key
		}
	}
	return what
}

func (g *guarded) Claim(ctx context.Context, c job.Claim) (leases []job.Lease, err error) {
	err = g.p.do("claim", func() (err error) {
		leases, err = g.Memory.Claim(ctx, c)
		return err
	})
	if err != nil {
		return nil, err
	}
	return leases, nil
}

func (g *guarded) NextWake(ctx context.Context) (at time.Time, err error) {
	err = g.p.do("next wake", func() (err error) {
		at, err = g.Memory.NextWake(ctx)
		return err
	})
	return at, err
}

func (g *guarded) Renew(ctx context.Context, until time.Time, leases []job.Lease) (lost []job.Lease, err error) {
	err = g.p.do("renew", func() (err error) {
		lost, err = g.Memory.Renew(ctx, until, leases)
		return err
	})
	return lost, err
}

func (g *guarded) Load(ctx context.Context, l job.Lease) (h job.History, err error) {
	err = g.p.do(fmt.Sprintf("load %d", l.Epoch), func() (err error) {
		h, err = g.Memory.Load(ctx, l)
		return err
	})
	return h, err
}

func (g *guarded) Begin(ctx context.Context, l job.Lease, records []job.Record) error {
	name := names("begin", records)
	if err := g.p.do(name, func() error { return g.Memory.Begin(ctx, l, records) }); err != nil {
		return err
	}
	// Much may happen before the engine hears of it.
	return g.p.do(name+" is heard of", func() error { return nil })
}

func (g *guarded) Keep(ctx context.Context, l job.Lease, records []job.Record) error {
	err := g.p.do(names("keep", records), func() error { return g.Memory.Keep(ctx, l, records) })
	if err == nil {
		g.p.s.acknowledged(records)
	}
	return err
}

func (g *guarded) Park(ctx context.Context, l job.Lease, p job.Parking) error {
	return g.p.do("park", func() error { return g.Memory.Park(ctx, l, p) })
}

func (g *guarded) End(ctx context.Context, l job.Lease, e job.End, at time.Time) error {
	return g.p.do("end", func() error { return g.Memory.End(ctx, l, e, at) })
}

func (g *guarded) Release(ctx context.Context, l job.Lease) error {
	return g.p.do("release", func() error { return g.Memory.Release(ctx, l) })
}

func (g *guarded) Decide(ctx context.Context, d job.Decision) error {
	return g.p.do("decide "+d.Key+" "+d.By, func() error { return g.Memory.Decide(ctx, d) })
}

func (g *guarded) Cancel(ctx context.Context, id job.ID, c job.Cancellation) error {
	return g.p.do("cancel", func() error { return g.Memory.Cancel(ctx, id, c) })
}
