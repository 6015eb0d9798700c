package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// Do implements [Steps].
func (run *Run) Do(calls ...Call) ([]Answer, error) {
	answers := make([]Answer, len(calls))
	begin, unknown, err := run.sort(calls, answers)
	if err != nil {
		return nil, err
	}
	if len(unknown.at) > 0 {
		if err := run.answer(unknown, answers); err != nil {
			return nil, err
		}
	}
	if len(begin.at) > 0 {
		if err := run.record("begin", run.r.Journal.Begin, begin.records); err != nil {
			return nil, err
		}
		if err := run.askAll(calls, begin, answers); err != nil {
			return nil, err
		}
	}
	run.mu.Lock()
	defer run.mu.Unlock()
	if err := run.stopped(); err != nil {
		return nil, err
	}
	return answers, nil
}

// part is some of the calls of a Do: their places, and what is recorded of them.
type part struct {
	at      []int
	records []Record
}

// sort takes the answers there are, and says which calls are to be begun and
// which may not be begun again.
func (run *Run) sort(calls []Call, answers []Answer) (begin, unknown part, err error) {
	now := run.r.Clock()
	run.mu.Lock()
	defer run.mu.Unlock()
	if err := run.stopped(); err != nil {
		return begin, unknown, err
	}
	for i, c := range calls {
		digest := c.Digest()
		e, err := run.find(c.Key, Begun, c.Kind, digest)
		switch {
		case err != nil:
			return begin, unknown, err
		case e.answer != nil:
			answers[i] = *e.answer
		case e.tries > 0 && (e.once || c.Once):
			unknown.at = append(unknown.at, i)
			unknown.records = append(unknown.records, Record{At: now, What: Answered, Key: c.Key, Answer: &Answer{
				Tries:   e.tries,
				Failure: &Failure{Kind: Unknown, Message: "it was begun, no answer is recorded, and it may run only once"},
			}})
		default:
			e.what, e.kind, e.digest, e.once = Begun, c.Kind, digest, c.Once
			e.tries++
			r := Record{At: now, What: Begun, Key: c.Key, Kind: c.Kind, Try: e.tries, Once: c.Once, Digest: digest}
			if e.tries == 1 {
				r.Input = c.Input
			}
			begin.at = append(begin.at, i)
			begin.records = append(begin.records, r)
		}
	}
	return begin, unknown, nil
}

// answer records answers that no handler gave.
func (run *Run) answer(p part, answers []Answer) error {
	if err := run.record("keep", run.r.Journal.Keep, p.records); err != nil {
		return err
	}
	run.mu.Lock()
	defer run.mu.Unlock()
	for n, i := range p.at {
		answers[i] = *p.records[n].Answer
		run.entries[p.records[n].Key].answer = p.records[n].Answer
	}
	return nil
}

// askAll asks the handlers of calls that have been begun, side by side.
func (run *Run) askAll(calls []Call, begin part, answers []Answer) error {
	if len(begin.at) == 1 {
		i := begin.at[0]
		return run.ask(calls[i], &answers[i], true)
	}
	errs := make([]error, len(begin.at))
	var all sync.WaitGroup
	for n, i := range begin.at {
		all.Go(func() { errs[n] = run.ask(calls[i], &answers[i], false) })
	}
	all.Wait()
	return first(errs)
}

// ask asks the handler of a call and keeps what comes back. alone says that no other
// call was begun with it.
func (run *Run) ask(c Call, to *Answer, alone bool) error {
	run.mu.Lock()
	try := run.entries[c.Key].tries
	run.mu.Unlock()
	run.hold()
	ctx := context.WithValue(run.asking, attemptKey{}, Attempt{ID: run.lease.ID, Agent: run.order.Agent, Key: c.Key, Try: try})
	if c.Limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, c.Limit, errLimit)
		defer cancel()
	}
	began := run.r.Clock()
	a, kept := run.outcome(ctx, c, run.r.call(ctx, c))
	if !kept {
		run.halt(errDrained)
		run.mu.Lock()
		defer run.mu.Unlock()
		return run.stopped()
	}
	now := run.r.Clock()
	a.Tries = try
	if a.Took == 0 {
		a.Took = now.Sub(began)
	}
	record := Record{At: now, What: Answered, Key: c.Key, Answer: &a}
	if !alone || !run.putOff(record) {
		if err := run.answer(part{[]int{0}, []Record{record}}, []Answer{{}}); err != nil {
			return err
		}
	}
	*to = a
	return nil
}

// putOff lets an answer go along with the next write of the job, when that is near:
// nothing else of the flow is under way, so that whatever the flow does next writes,
// and nothing outside comes of the answer before. It saves a write a step.
func (run *Run) putOff(r Record) bool {
	run.mu.Lock()
	defer run.mu.Unlock()
	if run.awake != 1 || run.halted != nil {
		return false
	}
	run.waiting = append(run.waiting, r)
	run.entries[r.Key].answer = r.Answer
	return true
}

// hold makes sure that the lease still holds before a step is asked: after a slow
// write another process may have begun the same.
func (run *Run) hold() {
	now := run.r.Clock()
	if now.Before(run.Until()) {
		return
	}
	if run.r.Lease == 0 {
		run.halt(ErrLost)
		return
	}
	until := now.Add(run.r.Lease)
	err := run.persist("renew", func(ctx context.Context) error {
		lost, err := run.r.Journal.Renew(ctx, until, []Lease{run.lease})
		if err == nil && len(lost) > 0 {
			err = ErrLost
		}
		return err
	})
	if err != nil {
		run.halt(errors.Join(ErrLost, err))
		return
	}
	run.Renewed(until)
}

var errLimit = errors.New("the limit has passed")

// result is what a handler gave.
type result struct {
	answer Answer
	err    error
}

// call asks a handler. One that goes on for longer than the grace after the end
// of its context is left to itself; whatever it gives then counts for nothing.
func (r *Runner) call(ctx context.Context, c Call) result {
	h := r.Handlers[c.Kind]
	if h == nil {
		return result{err: fmt.Errorf("this program has no handler for calls of kind %q", c.Kind)}
	}
	if ctx.Err() != nil {
		return result{err: errNotBegun}
	}
	done := make(chan result, 1)
	r.Strays.Go(func() {
		res := result{err: errVanished}
		defer func() { done <- res }()
		res.err = caught(func() (err error) {
			res.answer, err = h(ctx, c)
			return err
		})
	})
	select {
	case res := <-done:
		return res
	case <-ctx.Done():
	}
	grace := time.NewTimer(r.Grace)
	defer grace.Stop()
	select {
	case res := <-done:
		return res
	case <-grace.C:
		r.Log.Warn("a handler goes on after its time; what it gives will not count", "kind", c.Kind, "key", c.Key)
		return result{err: context.Cause(ctx)}
	}
}

// errNotBegun is of a handler that was not asked, because the run was over.
var errNotBegun = errors.New("not asked")

// outcome makes an answer of what a handler gave. It is not kept when this
// process stops or has lost the job: then what came of it is not known.
func (run *Run) outcome(ctx context.Context, c Call, res result) (a Answer, kept bool) {
	var p *panicked
	cause := context.Cause(ctx)
	var f Failure
	switch {
	case res.err == nil && !fits(res.answer):
		f = Failure{Broken, "the handler's answer is no JSON"}
	case res.err == nil:
		return legible(res.answer), true
	case errors.As(res.err, &p):
		run.r.Log.Error("a handler panicked", "job", run.lease.String(), "kind", c.Kind, "stack", string(p.stack))
		f = Failure{Broke, p.Error()}
	case errors.Is(cause, errLimit):
		f = Failure{TimedOut, fmt.Sprintf("no answer within %v", c.Limit)}
	case errors.Is(cause, errCancelled), errors.Is(cause, errDeadline):
		f = Failure{Stopped, cause.Error()}
	case cause != nil:
		return Answer{}, false
	default:
		return legible(Answer{Failure: &Failure{Broken, res.err.Error()}}), true
	}
	if c.Once && !errors.Is(res.err, errNotBegun) && f.Kind != Broken {
		f = Failure{Unknown, "it may have happened: " + f.Message}
	}
	return legible(Answer{Failure: &f}), true
}

// legible makes a failure UTF-8, so that the flow sees it now as it will read it
// from the record.
func legible(a Answer) Answer {
	if a.Failure != nil {
		f := Failure{strings.ToValidUTF8(a.Failure.Kind, "\uFFFD"), strings.ToValidUTF8(a.Failure.Message, "\uFFFD")}
		a.Failure = &f
	}
	return a
}

func fits(a Answer) bool { return len(a.Value) == 0 || json.Valid(a.Value) }
