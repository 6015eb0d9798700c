package job_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belay-run/belay/internal/job"
)

func TestAnswersComeBackInTheOrderOfTheCalls(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.handlers["late"] = func(_ context.Context, c job.Call) (job.Answer, error) {
			var n int
			if err := json.Unmarshal(c.Input, &n); err != nil {
				return job.Answer{}, err
			}
			time.Sleep(time.Duration(3-n) * time.Second) // the first is the last
			return job.Answer{Value: c.Input}, nil
		}
		b.create(func(s job.Steps, _ job.Order) (json.RawMessage, error) {
			began := time.Now()
			answers, err := s.Do(
				job.Call{Key: "a", Kind: "late", Input: json.RawMessage(`0`)},
				job.Call{Key: "b", Kind: "late", Input: json.RawMessage(`1`)},
				job.Call{Key: "c", Kind: "late", Input: json.RawMessage(`2`)},
			)
			if err != nil {
				return nil, err
			}
			if took := time.Since(began); took > 3*time.Second {
				b.Errorf("side by side they took %v", took)
			}
			for i, a := range answers {
				if a.Tries != 1 || a.Took != time.Duration(3-i)*time.Second {
					b.Errorf("answer %d: %+v", i, a)
				}
			}
			return jsonOf([]json.RawMessage{answers[0].Value, answers[1].Value, answers[2].Value})
		})
		b.completes(b.run(), `[0,1,2]`)
	})
}

func TestAStepThatWasBegunIsBegunAgainAndBothTriesAreSeen(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.create(func(s job.Steps, _ job.Order) (json.RawMessage, error) {
			if _, err := job.Ask(s, echo("a")); err != nil {
				return nil, err
			}
			d, err := job.Ask(s, job.Call{Key: "d", Kind: "die", Input: json.RawMessage(`1`)})
			if err != nil {
				return nil, err
			}
			return jsonOf(d.Tries)
		})
		b.dies()
		b.completes(b.run(), `2`)
		if b.times("a") != 1 || b.times("d") != 2 {
			b.Errorf("asked %v", b.asked)
		}
		var tries []int
		for _, r := range b.history().Records {
			if r.Key == "d" && r.What == job.Begun {
				tries = append(tries, r.Try)
			}
		}
		if fmt.Sprint(tries) != "[1 2]" {
			b.Errorf("tries on record: %v", tries)
		}
	})
}

func TestAStepThatMayHappenOnceComesBackAsUnknown(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.create(func(s job.Steps, _ job.Order) (json.RawMessage, error) {
			d, err := job.Ask(s, job.Call{Key: "d", Kind: "die", Once: true})
			if err != nil {
				return nil, err
			}
			return jsonOf(d)
		})
		b.dies()
		b.completes(b.run(), `{"failure":{"kind":"unknown","message":"it was begun, no answer is recorded, and it may run only once"},"tries":1}`)
		if b.times("d") != 1 {
			b.Errorf("asked %v", b.asked)
		}
	})
}

func TestAFlowThatAsksOtherwiseThanItsRecordEndsTheJob(t *testing.T) {
	call := func(key, kind, input string) func(s job.Steps) error {
		return func(s job.Steps) error {
			_, err := job.Ask(s, job.Call{Key: key, Kind: kind, Input: json.RawMessage(input)})
			return err
		}
	}
	await := func(key string) func(s job.Steps) error {
		return func(s job.Steps) error {
			_, err := s.Await(job.Question{Key: key, Kind: "echo"})
			return err
		}
	}
	now := func(key string) func(s job.Steps) error {
		return func(s job.Steps) error { _, err := s.Now(key); return err }
	}
	for name, c := range map[string]struct {
		first, then func(s job.Steps) error
		reason      string
	}{
		"another input":           {call("a", "echo", `1`), call("a", "echo", `2`), `the flow asks "a" with another input than the record has`},
		"another spelling":        {call("a", "echo", `1`), call("a", "echo", ` 1`), `the flow asks "a" with another input than the record has`},
		"another kind":            {call("a", "echo", `1`), call("a", "die", `1`), `the flow asks "a" of kind "die", the record has kind "echo"`},
		"a question, not a call":  {call("a", "echo", ``), await("a"), `the flow comes to "a" otherwise than its record has: asked, not begun`},
		"a call, not a time":      {now("a"), call("a", "echo", ``), `the flow comes to "a" otherwise than its record has: begun, not timed`},
		"twice in the same run":   {call("b", "echo", ``), func(s job.Steps) error { return errors.Join(call("b", "echo", ``)(s), call("b", "echo", ``)(s)) }, `the flow asked for "b" twice`},
		"twice side by side":      {call("b", "echo", ``), func(s job.Steps) error { _, err := s.Do(echo("x"), echo("x")); return err }, `the flow asked for "x" twice`},
		"no key":                  {call("b", "echo", ``), call("", "echo", ``), `a call has no key`},
		"a key that is not UTF-8": {call("b", "echo", ``), call("\xff", "echo", ``), `the key "\xff" is not UTF-8`},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				do := c.first
				b.create(func(s job.Steps, _ job.Order) (json.RawMessage, error) {
					if err := do(s); err != nil {
						return nil, err
					}
					_, err := job.Ask(s, job.Call{Key: "die", Kind: "die"})
					return nil, err
				})
				b.dies()
				do = c.then
				asked := len(b.asked)
				b.fails(b.run(), job.HistoryDiffers, c.reason)
				if !strings.Contains(name, "twice") && len(b.asked) != asked {
					b.Errorf("asked all the same: %v", b.asked[asked:])
				}
			})
		})
	}
}

func TestABranchThatWaitsHoldsUpNoOther(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.create(func(s job.Steps, _ job.Order) (json.RawMessage, error) {
			out := make([]json.RawMessage, 3)
			err := s.Each(3, func(i int, s job.Steps) error {
				key := fmt.Sprint(i)
				if i < 2 {
					a, err := s.Await(job.Question{Key: key + "/ask", Kind: "approval", Input: json.RawMessage(key)})
					if err != nil {
						return err
					}
					out[i] = a.Value
					return nil
				}
				for n := range 5 {
					a, err := job.Ask(s, echo(fmt.Sprintf("%s/%d", key, n)))
					if err != nil {
						return err
					}
					out[i] = a.Value
				}
				return nil
			})
			if err != nil {
				return nil, err
			}
			return jsonOf(out)
		})
		if got := b.run(); got.Kind != job.RunParked || !got.Wake.IsZero() {
			b.Fatalf("%+v", got)
		}
		if len(b.asked) != 5 {
			b.Errorf("asked %v", b.asked)
		}
		b.decide("1/ask", `"second"`)
		if got := b.run(); got.Kind != job.RunParked {
			b.Fatalf("%+v", got)
		}
		b.decide("0/ask", `"first"`)
		b.completes(b.run(), `["first","second",{"key":"2/4","input":"2/4"}]`)
		if len(b.asked) != 5 {
			b.Errorf("asked again: %v", b.asked)
		}
	})
}

// decide decides a question as it stands.
func (b *bench) decide(key, value string) {
	b.Helper()
	all, err := b.journal.Pending(ctx, "main")
	b.must(err)
	for _, p := range all {
		if p.Key == key {
			b.must(b.journal.Decide(ctx, job.Decision{ID: p.ID, Key: key, Digest: p.Digest, Answer: job.Answer{Value: json.RawMessage(value)}, At: time.Now()}))
			return
		}
	}
	b.Fatalf("%s is not asked: %+v", key, all)
}

func TestADecisionReachesABranchWhileOthersStillWork(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.handlers["slow"] = func(ctx context.Context, c job.Call) (job.Answer, error) {
			time.Sleep(time.Hour)
			return job.Answer{}, nil
		}
		b.create(func(s job.Steps, _ job.Order) (json.RawMessage, error) {
			return nil, s.Each(2, func(i int, s job.Steps) error {
				if i == 1 {
					_, err := job.Ask(s, job.Call{Key: "slow", Kind: "slow"})
					return err
				}
				if _, err := s.Await(job.Question{Key: "q"}); err != nil {
					return err
				}
				_, err := job.Ask(s, echo("after"))
				return err
			})
		})
		run := b.runner().Prepare(ctx, b.claim())
		done := make(chan job.Outcome)
		go func() { done <- run.Go() }()
		synctest.Wait()
		b.decide("q", `1`)
		run.Wake()
		synctest.Wait()
		if b.times("after") != 1 {
			b.Error("the branch that was decided waits for the other")
		}
		b.completes(<-done, ``)
	})
}

func TestTheDeadlineOfAQuestionIsKeptAtFirstUse(t *testing.T) {
	inBubble(t, func(b *bench) {
		until := time.Now().Add(time.Hour)
		b.create(func(s job.Steps, _ job.Order) (json.RawMessage, error) {
			a, err := s.Await(job.Question{Key: "q", Until: until})
			if err != nil {
				return nil, err
			}
			return jsonOf(a.Failure.Kind)
		})
		if got := b.run(); got.Kind != job.RunParked || !got.Wake.Equal(until) {
			b.Fatalf("%+v", got)
		}
		time.Sleep(time.Hour)
		until = until.Add(time.Hour) // the code thinks otherwise by now
		b.completes(b.run(), `"expired"`)
	})
}

func TestNowIsTheTimeOfTheFirstUse(t *testing.T) {
	inBubble(t, func(b *bench) {
		first := time.Now().UTC()
		b.create(func(s job.Steps, _ job.Order) (json.RawMessage, error) {
			now, err := s.Now("now")
			if err != nil {
				return nil, err
			}
			if _, err := job.Ask(s, job.Call{Key: "d", Kind: "die"}); err != nil {
				return nil, err
			}
			return jsonOf(now)
		})
		b.dies()
		time.Sleep(time.Hour)
		want, err := jsonOf(first)
		b.must(err)
		b.completes(b.run(), string(want))
	})
}

func TestBranchesEndAsTheLowestErrorSays(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.create(func(s job.Steps, _ job.Order) (json.RawMessage, error) {
			if err := s.Each(0, func(int, job.Steps) error { return errors.New("nobody") }); err != nil {
				return nil, err
			}
			return nil, s.Each(3, func(i int, s job.Steps) error {
				if i == 0 {
					_, err := job.Ask(s, echo("a")) // slower than the others
					return err
				}
				return job.Fail(fmt.Sprintf("Branch%d", i), "no")
			})
		})
		b.fails(b.run(), "Branch1", "no")
		b.same()
	})
}

func TestPanicsAreFailures(t *testing.T) {
	flows := map[string]func(s job.Steps) error{
		"in the flow":   func(job.Steps) error { panic("ouch") },
		"in a branch":   func(s job.Steps) error { return s.Each(2, func(int, job.Steps) error { panic("ouch") }) },
		"in a lone one": func(s job.Steps) error { return s.Each(1, func(int, job.Steps) error { panic("ouch") }) },
		"in a branch of a branch": func(s job.Steps) error {
			return s.Each(2, func(_ int, s job.Steps) error {
				return s.Each(2, func(i int, _ job.Steps) error {
					if i == 1 {
						panic("ouch")
					}
					return nil
				})
			})
		},
	}
	for name, flow := range flows {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				b.create(func(s job.Steps, _ job.Order) (json.RawMessage, error) { return nil, flow(s) })
				b.fails(b.run(), job.Panicked, "panic: ouch")
				b.same()
			})
		})
	}
	inBubble(t, func(b *bench) {
		b.create(func(job.Steps, job.Order) (json.RawMessage, error) { runtime.Goexit(); return nil, nil })
		b.fails(b.run(), job.Errored, "the goroutine ended itself")
	})
}

func TestWhatHandlersDoWrongIsAFailureOfTheirCall(t *testing.T) {
	for name, c := range map[string]struct {
		handler job.Handler
		once    bool
		want    string
	}{
		"an error":                      {func(context.Context, job.Call) (job.Answer, error) { return job.Answer{}, errors.New("no \xff") }, false, "error: no \uFFFD"},
		"an error of what may run once": {func(context.Context, job.Call) (job.Answer, error) { return job.Answer{}, errors.New("no") }, true, "error: no"},
		"a panic":                       {func(context.Context, job.Call) (job.Answer, error) { panic("ouch") }, false, "panic: panic: ouch"},
		"a panic of what may run once":  {func(context.Context, job.Call) (job.Answer, error) { panic("ouch") }, true, "unknown: it may have happened: panic: ouch"},
		"an exit":                       {func(context.Context, job.Call) (job.Answer, error) { runtime.Goexit(); return job.Answer{}, nil }, false, "error: the goroutine ended itself"},
		"no JSON": {func(context.Context, job.Call) (job.Answer, error) {
			return job.Answer{Value: json.RawMessage(`{`)}, nil
		}, false, "error: the handler's answer is no JSON"},
		"too long":                       {sleeper(time.Hour), false, "timeout: no answer within 1m0s"},
		"too long for what may run once": {sleeper(time.Hour), true, "unknown: it may have happened: no answer within 1m0s"},
		"deaf":                           {deaf, false, "timeout: no answer within 1m0s"},
		"its own failure": {func(context.Context, job.Call) (job.Answer, error) {
			return job.Answer{Failure: &job.Failure{Kind: "denied", Message: "\xff"}}, nil
		}, false, "denied: \uFFFD"},
		"nobody": {nil, false, `error: this program has no handler for calls of kind "odd"`},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				if c.handler != nil {
					b.handlers["odd"] = c.handler
				}
				b.create(func(s job.Steps, _ job.Order) (json.RawMessage, error) {
					a, err := job.Ask(s, job.Call{Key: "k", Kind: "odd", Limit: time.Minute, Once: c.once})
					if err != nil {
						return nil, err
					}
					return jsonOf(a.Failure.Kind + ": " + a.Failure.Message)
				})
				want, err := jsonOf(c.want)
				b.must(err)
				b.completes(b.run(), string(want))
			})
		})
	}
}

func sleeper(d time.Duration) job.Handler {
	return func(ctx context.Context, _ job.Call) (job.Answer, error) {
		select {
		case <-time.After(d):
			return job.Answer{}, nil
		case <-ctx.Done():
			return job.Answer{}, ctx.Err()
		}
	}
}

// deaf does not hear that its time is up.
func deaf(context.Context, job.Call) (job.Answer, error) {
	time.Sleep(2 * time.Hour)
	return job.Answer{Value: json.RawMessage(`"late"`)}, nil
}

func TestAFlowThatDoesNotHearThatItIsOverIsNotBelieved(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.create(func(s job.Steps, _ job.Order) (json.RawMessage, error) {
			if a, err := s.Await(job.Question{Key: "q"}); err == nil {
				return a.Value, nil
			}
			return json.RawMessage(`"wrong"`), nil // it must return the error
		})
		if got := b.run(); got.Kind != job.RunParked {
			b.Fatalf("%+v", got)
		}
		b.decide("q", `"right"`)
		b.completes(b.run(), `"right"`)
	})
}

func TestAnOutputThatIsNoJSONFailsTheJob(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.create(func(job.Steps, job.Order) (json.RawMessage, error) { return json.RawMessage(`{`), nil })
		b.fails(b.run(), job.Errored, "the flow's output is no JSON")
	})
}

func TestAJobEndsAtItsDeadline(t *testing.T) {
	for name, flow := range map[string]func(s job.Steps) error{
		"while it works": func(s job.Steps) error { _, err := job.Ask(s, job.Call{Key: "k", Kind: "slow"}); return err },
		"while it waits": func(s job.Steps) error { _, err := s.Await(job.Question{Key: "q"}); return err },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				b.handlers["slow"] = sleeper(24 * time.Hour)
				b.flow = job.Flow{Name: "flow", Shape: 1, Run: func(s job.Steps, _ job.Order) (json.RawMessage, error) { return nil, flow(s) }}
				deadline := time.Now().Add(time.Hour)
				b.must(b.journal.Create(ctx, job.Order{ID: id, Flow: "flow", Shape: 1, Created: time.Now(), Deadline: deadline}))
				got := b.run()
				if got.Kind == job.RunParked {
					if !got.Wake.Equal(deadline) {
						b.Errorf("parked until %v", got.Wake)
					}
					time.Sleep(time.Until(got.Wake))
					got = b.run()
				}
				b.fails(got, job.LimitExceeded, "the job's deadline has passed")
				if now := time.Now(); now.Sub(deadline) > time.Second {
					b.Errorf("ended %v after the deadline", now.Sub(deadline))
				}
			})
		})
	}
}

func TestACancellationReachesARunningStep(t *testing.T) {
	for name, c := range map[string]struct {
		once bool
		want string
	}{"of a step": {false, job.Stopped}, "of one that may run once": {true, job.Unknown}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				b.handlers["slow"] = sleeper(24 * time.Hour)
				b.create(func(s job.Steps, _ job.Order) (json.RawMessage, error) {
					_, err := job.Ask(s, job.Call{Key: "k", Kind: "slow", Once: c.once})
					return nil, err
				})
				run := b.runner().Prepare(ctx, b.claim())
				done := make(chan job.Outcome)
				go func() { done <- run.Go() }()
				synctest.Wait()
				began := time.Now()
				b.must(b.journal.Cancel(ctx, id, job.Cancellation{At: time.Now(), Reason: "not needed"}))
				run.Wake()
				got := <-done
				if got.Kind != job.RunEnded || got.End.State != job.Cancelled || got.End.Reason != "not needed" {
					b.Errorf("%+v", got)
				}
				if took := time.Since(began); took > 0 {
					b.Errorf("it took %v", took)
				}
				records := b.history().Records
				if a := records[len(records)-1].Answer; a == nil || a.Failure == nil || a.Failure.Kind != c.want {
					b.Errorf("the step ended as %+v", a)
				}
			})
		})
	}
}

func TestAJobOfAnotherVersionIsLeftAsItIs(t *testing.T) {
	for name, flow := range map[string]job.Flow{
		"another flow":    {Name: "other", Shape: 3},
		"an older shape":  {Name: "flow", Shape: 5, Oldest: 4},
		"a younger shape": {Name: "flow", Shape: 2},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				flow.Run = func(job.Steps, job.Order) (json.RawMessage, error) { panic("it ran") }
				b.flow = flow
				b.must(b.journal.Create(ctx, job.Order{ID: id, Flow: "flow", Shape: 3, Created: time.Now()}))
				got := b.run()
				if got.Kind != job.RunLeft || got.Err == nil || !strings.Contains(got.Err.Error(), "run it with") {
					b.Errorf("%+v", got)
				}
				if h := b.history(); h.Job.State != job.Running {
					b.Errorf("%+v", h.Job)
				}
			})
		})
	}
}

func TestAShapeGoesOnAsItWas(t *testing.T) {
	inBubble(t, func(b *bench) {
		flow := func(s job.Steps, in job.Order) (json.RawMessage, error) {
			if in.Shape >= 2 {
				if _, err := job.Ask(s, echo("new")); err != nil {
					return nil, err
				}
			}
			a, err := job.Ask(s, job.Call{Key: "d", Kind: "die"})
			return a.Value, err
		}
		b.create(flow)
		b.dies()
		b.flow = job.Flow{Name: "flow", Shape: 2, Oldest: 1, Run: flow}
		b.completes(b.run(), `{"key":"d","input":null}`)
		if b.times("new") != 0 {
			b.Error("the old job did what is new")
		}
	})
}
