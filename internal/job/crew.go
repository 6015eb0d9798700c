package job

import (
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
)

// crew counts the goroutines of a flow that do something. When none does, all
// wait for decisions, and the job can be parked.
type crew struct {
	mu    sync.Mutex
	awake int
	poke  chan struct{} // has room for one: look what is to be done
}

func newCrew() crew { return crew{awake: 1, poke: make(chan struct{}, 1)} }

// rouse lets whoever drives the flow look again.
func (c *crew) rouse() {
	select {
	case c.poke <- struct{}{}:
	default:
	}
}

// nap counts out the goroutine that goes to sleep; the caller holds mu. Whoever
// wakes it counts it in, so that it is never missed in between.
func (c *crew) nap() {
	if c.awake--; c.awake == 0 {
		c.rouse()
	}
}

// each runs branches side by side. Its own goroutine sleeps meanwhile; the last
// branch to end hands its place back to it.
func (c *crew) each(n int, s Steps, branch func(int, Steps) error) error {
	if n == 1 {
		return branch(0, s)
	}
	if n < 1 {
		return nil
	}
	c.mu.Lock()
	c.awake += n - 1
	c.mu.Unlock()
	errs := make([]error, n)
	left := n
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			defer func() {
				c.mu.Lock()
				defer c.mu.Unlock()
				if left--; left > 0 {
					c.nap()
				}
			}()
			errs[i] = errVanished // unless it comes to its end
			errs[i] = caught(func() error { return branch(i, s) })
		})
	}
	all.Wait()
	return first(errs)
}

// errVanished is of a goroutine that ended without returning or panicking.
var errVanished = errors.New("the goroutine ended itself")

// first gives the error that counts: that the run is over, else that of the
// lowest branch, so that it does not depend on who was faster. A panic goes on
// in the caller.
func first(errs []error) error {
	var lowest error
	for _, err := range errs {
		if p, ok := err.(*panicked); ok {
			panic(p)
		}
		if errors.Is(err, ErrStop) {
			return err
		}
		if lowest == nil {
			lowest = err
		}
	}
	return lowest
}

// panicked is a panic as an error. Its text has the value, which may quote what
// the job is about; stack has no values.
type panicked struct {
	value any
	stack []byte
}

func (p *panicked) Error() string { return fmt.Sprintf("panic: %v", p.value) }

// caught runs f and gives a panic as an error.
func caught(f func() error) (err error) {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case *panicked: // of a branch
			err = v
		default:
			err = &panicked{v, debug.Stack()}
		}
	}()
	return f()
}
