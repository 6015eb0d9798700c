package turn

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestDeskRunsOneConversationInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d Desk
		var order []int
		var wg sync.WaitGroup
		for i := range 9 { // one runs, eight wait
			wg.Go(func() {
				err := d.Run(context.Background(), "a", false, func(context.Context) error {
					order = append(order, i) // one at a time: no lock
					time.Sleep(time.Second)
					return nil
				})
				if err != nil {
					t.Errorf("message %d: %v", i, err)
				}
			})
			synctest.Wait()
		}
		if err := d.Run(context.Background(), "a", false, nil); !errors.Is(err, ErrBusy) {
			t.Errorf("the tenth message: %v", err)
		}
		if err := d.Run(context.Background(), "b", false, func(context.Context) error { return nil }); err != nil {
			t.Errorf("another conversation: %v", err)
		}
		wg.Wait()
		if fmt.Sprint(order) != "[0 1 2 3 4 5 6 7 8]" {
			t.Errorf("order %v", order)
		}
		if len(d.lines) != 0 {
			t.Errorf("%d conversations are left on the desk", len(d.lines))
		}
	})
}

func TestDeskIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d Desk
		var wg sync.WaitGroup
		release := make(chan struct{})
		wg.Go(func() {
			_ = d.Run(context.Background(), "a", false, func(context.Context) error { <-release; return nil })
		})
		synctest.Wait()
		if idle, err := d.Idle("a", func() error { t.Error("a turn was running"); return nil }); idle || err != nil {
			t.Errorf("while a turn runs: %v, %v", idle, err)
		}
		close(release)
		wg.Wait()

		sweeping := make(chan struct{})
		broken := errors.New("broken")
		wg.Go(func() {
			if idle, err := d.Idle("a", func() error { <-sweeping; return broken }); !idle || !errors.Is(err, broken) {
				t.Errorf("with nobody there: %v, %v", idle, err)
			}
		})
		synctest.Wait()
		ran := false
		wg.Go(func() {
			_ = d.Run(context.Background(), "a", true, func(context.Context) error { ran = true; return nil })
		})
		synctest.Wait()
		if ran {
			t.Error("a turn did not wait")
		}
		close(sweeping)
		wg.Wait()
		if !ran || len(d.lines) != 0 {
			t.Errorf("ran %v, %d conversations are left on the desk", ran, len(d.lines))
		}
		d.Close(context.Background())
		if idle, err := d.Idle("a", nil); idle || !errors.Is(err, ErrClosed) {
			t.Errorf("when closed: %v, %v", idle, err)
		}
	})
}

func TestDeskWithdraws(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d Desk
		release := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			_ = d.Run(context.Background(), "a", false, func(context.Context) error { <-release; return nil })
		})
		synctest.Wait()
		ctx, cancel := context.WithCancel(context.Background())
		var ran atomic.Bool
		wg.Go(func() {
			err := d.Run(ctx, "a", false, func(context.Context) error { ran.Store(true); return nil })
			if !errors.Is(err, context.Canceled) {
				t.Errorf("the withdrawn message: %v", err)
			}
		})
		synctest.Wait()
		cancel()
		synctest.Wait()
		close(release)
		wg.Wait()
		if ran.Load() {
			t.Error("a withdrawn message ran")
		}
	})
}

func TestDeskInterruptsAndCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d Desk
		var wg sync.WaitGroup
		hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		wg.Go(func() {
			if err := d.Run(context.Background(), "a", false, hang); !errors.Is(err, context.Canceled) {
				t.Errorf("the interrupted turn: %v", err)
			}
		})
		synctest.Wait()
		wg.Go(func() {
			if err := d.Run(context.Background(), "a", true, hang); !errors.Is(err, context.Canceled) {
				t.Errorf("the turn at closing: %v", err)
			}
		})
		synctest.Wait()
		soon, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		d.Close(soon)
		wg.Wait()
		if err := d.Run(context.Background(), "a", false, hang); !errors.Is(err, ErrClosed) {
			t.Errorf("after closing: %v", err)
		}
	})
}
