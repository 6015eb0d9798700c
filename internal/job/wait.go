package job

import (
	"fmt"
	"time"
)

// Each implements [Steps].
func (run *Run) Each(n int, branch func(i int, s Steps) error) error {
	run.mu.Lock()
	err := run.stopped()
	run.mu.Unlock()
	if err != nil {
		return err
	}
	return run.each(n, run, branch)
}

// Now implements [Steps]. The time goes along with the next write of the job:
// nothing outside can have come of it before.
func (run *Run) Now(key string) (time.Time, error) {
	run.mu.Lock()
	defer run.mu.Unlock()
	if err := run.stopped(); err != nil {
		return time.Time{}, err
	}
	e, err := run.find(key, Timed, "", Digest{})
	if err != nil {
		return time.Time{}, err
	}
	if !e.known {
		e.at = time.Unix(0, run.r.Clock().UnixNano()).UTC() // as it will be read
		run.clocks = append(run.clocks, Record{At: e.at, What: Timed, Key: key})
	}
	return e.at, nil
}

// Await implements [Steps].
func (run *Run) Await(q Question) (Answer, error) {
	digest := q.Digest()
	run.mu.Lock()
	err := run.stopped()
	var e *entry
	if err == nil {
		e, err = run.find(q.Key, Asked, q.Kind, digest)
	}
	known := err == nil && e.known
	run.mu.Unlock()
	if err == nil && !known {
		err = run.question(e, q, digest)
	}
	if err != nil {
		return Answer{}, err
	}
	return run.decision(e)
}

// question puts a question on record.
func (run *Run) question(e *entry, q Question, digest Digest) error {
	r := Record{At: run.r.Clock(), What: Asked, Key: q.Key, Kind: q.Kind, Digest: digest, Input: q.Input, Until: q.Until}
	if err := run.record("ask", run.r.Journal.Keep, []Record{r}); err != nil {
		return err
	}
	run.mu.Lock()
	defer run.mu.Unlock()
	e.known, e.until = true, q.Until
	return nil
}

// decision gives the answer to a question, and sleeps until there is one.
func (run *Run) decision(e *entry) (Answer, error) {
	run.mu.Lock()
	if err := run.stopped(); err != nil || e.answer != nil {
		defer run.mu.Unlock()
		if err != nil {
			return Answer{}, err
		}
		return *e.answer, nil
	}
	woken := make(chan struct{})
	e.woken = woken
	run.nap()
	run.rouse() // there is one more deadline to look at
	run.mu.Unlock()
	select {
	case <-woken:
	case <-run.over:
	}
	run.mu.Lock()
	defer run.mu.Unlock()
	if err := run.stopped(); err != nil {
		return Answer{}, err
	}
	return *e.answer, nil
}

// find finds what is known of a key that the flow asks for, or makes an empty
// entry. A key that was asked for before, or that the record has otherwise, ends
// the job; the caller holds mu.
func (run *Run) find(key string, what What, kind string, digest Digest) (*entry, error) {
	if err := checkKey(key); err != nil {
		return nil, run.differ(err.Error())
	}
	e := run.entries[key]
	if e == nil {
		e = &entry{what: what, kind: kind, digest: digest}
		run.entries[key] = e
	}
	if reason := e.differs(key, what, kind, digest); reason != "" {
		return nil, run.differ(reason)
	}
	e.used = true
	return e, nil
}

// differs says how a use of a key is not what is known of it; "" when it is.
func (e *entry) differs(key string, what What, kind string, digest Digest) string {
	switch {
	case e.used:
		return fmt.Sprintf("the flow asked for %q twice", key)
	case e.what != what:
		return fmt.Sprintf("the flow comes to %q otherwise than its record has: %s, not %s", key, what, e.what)
	case e.kind != kind:
		return fmt.Sprintf("the flow asks %q of kind %q, the record has kind %q", key, kind, e.kind)
	case e.digest != digest:
		return fmt.Sprintf("the flow asks %q with another input than the record has", key)
	}
	return ""
}

// differ ends the job because its code and its record do not fit; the caller
// holds mu.
func (run *Run) differ(reason string) error {
	if run.halted == nil {
		run.halted = &differs{reason}
		close(run.over)
	}
	return run.stopped()
}
