package job

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Report is what came of running a flow against a history.
type Report struct {
	// Differences say where flow and history do not fit; none when they do.
	Differences []Difference `json:"differences,omitempty"`
	// Open are the keys at which the record ends: what an unfinished job would
	// ask next, or waits for.
	Open []string `json:"open,omitempty"`
	// End is what the flow came to; nil when the record ended first.
	End *End `json:"end,omitempty"`
}

// Difference is one place where a flow does not do what its history has.
type Difference struct {
	Key    string `json:"key,omitempty"` // "" for the end of the job
	Reason string `json:"reason"`
}

// Replay runs a flow against a history and reports where they differ. It asks
// nothing and writes nothing.
func Replay(f Flow, h History) Report {
	r := &replay{crew: newCrew(), over: make(chan struct{}), entries: map[string]*entry{}, finished: finished(h)}
	for _, rec := range h.Records {
		e := r.entries[rec.Key]
		if e == nil {
			e = &entry{}
			r.entries[rec.Key] = e
		}
		e.read(rec)
	}
	done := make(chan returned, 1)
	go func() {
		got := returned{err: errVanished}
		defer func() { done <- got }()
		got.err = caught(func() (err error) {
			got.output, err = f.Run(r, h.Job.Order)
			return err
		})
	}()
	for {
		select {
		case got := <-done:
			return r.report(got, h)
		case <-r.poke:
			r.mu.Lock()
			if r.awake == 0 && !r.told { // every branch is at the end of the record
				r.told = true
				close(r.over)
			}
			r.mu.Unlock()
		}
	}
}

// finished says that the flow itself brought the job to its end.
func finished(h History) bool {
	end := h.Job.End
	return end != nil && (end.State == Completed || end.State == Failed && end.Code != LimitExceeded && end.Code != HistoryDiffers)
}

// replay answers from a history. A branch that asks for what is not there goes
// to sleep, so that the others come to their ends too.
type replay struct {
	crew
	finished bool
	over     chan struct{}
	told     bool
	entries  map[string]*entry
	found    Report
}

var errRecordEnds = &stop{errors.New("the record ends here")}

// sleep is where a branch ends that cannot go on; the caller holds mu.
func (r *replay) sleep() error {
	r.nap()
	r.mu.Unlock()
	<-r.over
	r.mu.Lock()
	return errRecordEnds
}

// find gives what is recorded of a key, and whether the flow can go on with it;
// the caller holds mu.
func (r *replay) find(key string, what What, kind string, digest Digest) (e *entry, ok bool) {
	if err := checkKey(key); err != nil {
		r.differ(key, err.Error())
		return nil, false
	}
	e = r.entries[key]
	if e == nil {
		if r.finished {
			r.differ(key, "the flow asks for it, the record does not have it")
		} else {
			r.found.Open = append(r.found.Open, key)
		}
		return nil, false
	}
	if reason := e.differs(key, what, kind, digest); reason != "" {
		r.differ(key, reason)
		return nil, false
	}
	e.used = true
	if what != Timed && e.answer == nil {
		r.found.Open = append(r.found.Open, key)
		return nil, false
	}
	return e, true
}

func (r *replay) differ(key, reason string) {
	r.found.Differences = append(r.found.Differences, Difference{key, reason})
}

// Do implements [Steps].
func (r *replay) Do(calls ...Call) ([]Answer, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	answers := make([]Answer, len(calls))
	all := true
	for i, c := range calls {
		e, ok := r.find(c.Key, Begun, c.Kind, c.Digest())
		if all = all && ok; ok {
			answers[i] = *e.answer
		}
	}
	if !all {
		return nil, r.sleep()
	}
	return answers, nil
}

// Await implements [Steps].
func (r *replay) Await(q Question) (Answer, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, ok := r.find(q.Key, Asked, q.Kind, q.Digest())
	if !ok {
		return Answer{}, r.sleep()
	}
	return *e.answer, nil
}

// Each implements [Steps].
func (r *replay) Each(n int, branch func(i int, s Steps) error) error { return r.each(n, r, branch) }

// Now implements [Steps].
func (r *replay) Now(key string) (time.Time, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, ok := r.find(key, Timed, "", Digest{})
	if !ok {
		return time.Time{}, r.sleep()
	}
	return e.at, nil
}

// report ends the replay.
func (r *replay) report(got returned, h History) Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, e := range r.entries {
		if !e.used {
			r.differ(key, "the record has it, the flow does not come to it")
		}
	}
	out := r.found
	if !r.told {
		end := ended(got)
		out.End = &end
		if r.finished {
			if reason := sameEnd(*h.Job.End, end); reason != "" {
				out.Differences = append(out.Differences, Difference{Reason: reason})
			}
		}
	}
	slices.SortFunc(out.Differences, func(a, b Difference) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Reason, b.Reason))
	})
	slices.Sort(out.Open)
	return out
}

// sameEnd says how two ends differ, "" when they do not.
func sameEnd(recorded, now End) string {
	switch {
	case recorded.State != now.State || recorded.Code != now.Code:
		return fmt.Sprintf("the job ended %s %s, now it would end %s %s", recorded.State, recorded.Code, now.State, now.Code)
	case recorded.Reason != now.Reason:
		return "the job ended for another reason than it would now"
	case !bytes.Equal(recorded.Output, now.Output):
		return "the job ended with another output than it would now"
	}
	return ""
}
