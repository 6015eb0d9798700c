package job_test

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belay-run/belay/internal/job"
)

// hesitant is a journal that takes an hour for the beginning of one step.
type hesitant struct {
	job.Journal
	key string
}

func (h hesitant) Begin(ctx context.Context, l job.Lease, records []job.Record) error {
	if slices.ContainsFunc(records, func(r job.Record) bool { return r.What == job.Begun && r.Key == h.key }) {
		time.Sleep(time.Hour)
	}
	return h.Journal.Begin(ctx, l, records)
}

// An answer that waits for a write goes with that of whichever branch comes first. Its
// own branch may be faster for all that.
func TestNothingComesOfAnAnswerBeforeItIsOnRecord(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.create(func(s job.Steps, _ job.Order) (json.RawMessage, error) {
			return nil, s.Each(2, func(i int, s job.Steps) error {
				if i == 0 {
					if _, err := s.Await(job.Question{Key: "q"}); err != nil {
						return err
					}
					_, err := job.Ask(s, echo("other"))
					return err
				}
				time.Sleep(time.Second) // the other waits by now
				if _, err := job.Ask(s, echo("first")); err != nil {
					return err
				}
				time.Sleep(time.Minute) // the decision comes now
				_, err := job.Ask(s, echo("then"))
				return err
			})
		})
		r := b.runner()
		r.Journal = hesitant{b.journal, "other"}
		run := r.Prepare(ctx, b.claim())
		done := make(chan job.Outcome)
		go func() { done <- run.Go() }()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		b.decide("q", `1`)
		run.Wake()
		time.Sleep(2 * time.Minute)
		answered := false
		for _, r := range b.history().Records {
			answered = answered || r.What == job.Answered && r.Key == "first"
			if r.What == job.Begun && r.Key == "then" && !answered {
				t.Error("a step has begun whose reason is not on record")
			}
		}
		if b.times("then") != 1 {
			t.Errorf("asked %v", b.asked)
		}
		b.completes(<-done, ``)
	})
}
