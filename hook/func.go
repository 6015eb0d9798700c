package hook

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"time"
)

// Func is a hook written in Go. It answers with a verdict; an error or a panic
// means that it failed, and the policy decides.
//
// The payload shares its bytes with the engine: decode a field to work on it, and
// say in the verdict what changes ([Payload.Change]). ctx ends when the hook's
// time is up or the caller gives up. A Func that goes on regardless is left
// behind: its answer counts for nothing.
type Func func(ctx context.Context, p Payload) (Verdict, error)

// Start makes a Func a [Host], so that the engine asks both in the same way. A
// goroutine may be overtaken anywhere, so between Funcs that look on there is no
// order.
func (f Func) Start(ctx context.Context, q Question, done func(Answer)) {
	ctx, cancel := context.WithCancel(ctx)
	began := time.Now()
	var answered atomic.Bool
	finish := func(a *Answer) {
		if answered.CompareAndSwap(false, true) {
			a.Took = time.Since(began)
			cancel()
			done(*a)
		}
	}
	timer := time.AfterFunc(q.Hook.Limit, func() { finish(&Answer{Failure: outOfTime(q.Hook)}) })
	stop := context.AfterFunc(ctx, func() { finish(&Answer{Failure: gaveUp(ctx)}) })
	go func() {
		a := Answer{Failure: endedEarly}
		defer func() { // also when the hook ends its goroutine
			timer.Stop()
			stop()
			finish(&a)
		}()
		f.call(ctx, q.Payload, &a)
	}()
}

var endedEarly = failure(Crash, "it ended its goroutine")

func outOfTime(h *Hook) *Failure { return failure(Timeout, "no answer within %v", h.Limit) }

func gaveUp(ctx context.Context) *Failure {
	return failure(Cancelled, "the caller gave up: %v", context.Cause(ctx))
}

// call runs the function; a panic is a crash. It leaves a alone when the hook
// ends its goroutine.
func (f Func) call(ctx context.Context, p Payload, a *Answer) {
	defer func() {
		if r := recover(); r != nil {
			a.Failure = failure(Crash, "panic: %v", r)
			a.Failure.File, a.Failure.Line, a.Failure.Traceback = traceback()
		}
	}()
	v, err := f(ctx, p)
	a.Verdict, a.Failure = v, nil
	if err != nil || ctx.Err() != nil || !v.Kind.known() {
		a.Failure = noVerdict(ctx, err, v.Kind)
	}
}

func noVerdict(ctx context.Context, err error, k Kind) *Failure {
	switch {
	case ctx.Err() != nil: // too late, whatever it says
		return gaveUp(ctx)
	case err != nil:
		return failure(Crash, "%v", err)
	}
	return failure(WrongReturn, "%s is no verdict", k)
}

// traceback gives the stack of a panic without values: where it began, and one
// line a frame.
func traceback() (file string, line int, stack string) {
	var pcs [64]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	var b strings.Builder
	for {
		f, more := frames.Next()
		if file == "" && !strings.HasPrefix(f.Function, "runtime.") {
			file, line = f.File, f.Line
		}
		fmt.Fprintf(&b, "%s\n\t%s:%d\n", f.Function, f.File, f.Line)
		if !more {
			return file, line, b.String()
		}
	}
}
