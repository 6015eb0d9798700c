package app

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/belay-run/belay/internal/conversation"
	"github.com/belay-run/belay/internal/turn"
)

const (
	// sweepEvery is how often conversations past their time are looked for.
	sweepEvery = time.Hour
	// sweepPatience is how long the start waits for the first look, so that a
	// program that runs for a moment only does it too.
	sweepPatience = 2 * time.Second
	// sweepAtOnce deletions share one transaction, and one clearing of the log.
	sweepAtOnce = 32
)

// retain deletes what is past its time, now and at each tick.
func (a *App) retain(ctx context.Context) {
	ticks, stop := a.cfg.Sweeps, func() {}
	if ticks == nil {
		hourly := time.NewTicker(sweepEvery)
		ticks, stop = hourly.C, hourly.Stop
	}
	first := make(chan struct{})
	a.traces.Go(func() {
		defer stop()
		a.sweep(ctx)
		close(first)
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticks:
				a.sweep(ctx)
			}
		}
	})
	select {
	case <-first:
	case <-time.After(sweepPatience): // it goes on beside the turns
	}
}

// sweep deletes the conversations of the agent whose last event is older than
// it keeps them. What is in use, or cannot be deleted, comes again with the next
// sweep.
func (a *App) sweep(ctx context.Context) {
	v := a.take()
	keep, agentID := v.loaded.spec.Keep, v.turn.ID
	v.users.Done()
	if keep == 0 {
		return
	}
	before := a.cfg.Clock().Add(-keep)
	old, err := a.store.Idle(ctx, a.cfg.Tenant, agentID, before)
	if err != nil {
		a.swept(ctx, keep, 0, 1, err)
		return
	}
	var (
		mu              sync.Mutex
		deleted, failed int
		cause           error // the first
	)
	for some := range slices.Chunk(old, sweepAtOnce) {
		var all sync.WaitGroup
		for _, id := range some {
			all.Go(func() {
				there, err := a.expire(ctx, id, before)
				mu.Lock()
				defer mu.Unlock()
				if there {
					deleted++
				}
				if err != nil && !errors.Is(err, turn.ErrClosed) && ctx.Err() == nil {
					failed++
					if cause == nil {
						cause = err
					}
				}
			})
		}
		all.Wait()
	}
	a.swept(ctx, keep, deleted, failed, cause)
}

// expire deletes a conversation when nobody speaks in it and nobody has since it
// was looked at.
func (a *App) expire(ctx context.Context, id conversation.ID, before time.Time) (there bool, err error) {
	_, err = a.desk.Idle(id.Sender, func() error {
		last, err := a.store.Updated(ctx, id)
		if err != nil || !last.Before(before) {
			return err
		}
		there, err = a.drop(ctx, id)
		return err
	})
	return there, err
}

// swept logs and counts what a sweep did.
func (a *App) swept(ctx context.Context, keep time.Duration, deleted, failed int, cause error) {
	if deleted > 0 {
		a.cfg.Logger.Info("conversations past their time were deleted", "conversations", deleted, "keep", keep)
	}
	if failed > 0 && ctx.Err() == nil {
		a.cfg.Logger.Error("conversations past their time could not be deleted; the next sweep tries again", "attempts", failed, "keep", keep, "error", cause)
	}
	a.seen.Load().Expired(deleted, failed)
}
