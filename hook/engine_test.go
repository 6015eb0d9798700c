package hook

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// recorded gathers what a recorder is told.
type recorded struct {
	mu   sync.Mutex
	runs []Run
}

func (r *recorded) Record(run Run) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.runs = append(r.runs, run)
}

func (r *recorded) names() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for _, run := range r.runs {
		out = append(out, run.Name+" "+run.Said)
	}
	return strings.Join(out, ", ")
}

func ask(e *Engine, p Payload) Result {
	return e.Run(context.Background(), e.Chain(p.Point(), Who{}), p, Asker{Key: "ann", Turn: "t1"})
}

// sleeping returns a hook that needs some time, and gives way when it is up.
func sleeping(name string, takes, limit time.Duration) *Hook {
	h := modifier(name, PreToolCall, func(ctx context.Context, p Payload) (Verdict, error) {
		select {
		case <-time.After(takes):
			return Go(), nil
		case <-ctx.Done():
			return Go(), ctx.Err()
		}
	})
	h.Limit, h.OnFailure = limit, Open
	return h
}

const ms = time.Millisecond

func TestEachHookOfAChainHasItsOwnLimit(t *testing.T) {
	for _, behind := range []string{"engine", "host"} {
		t.Run("behind the "+behind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hooks := []*Hook{
					sleeping("slow", 900*ms, time.Second), sleeping("late", 30*ms, 10*ms), sleeping("quick", 0, 5*ms),
					sleeping("later", time.Hour, 700*ms), sleeping("just", 19*ms, 20*ms),
				}
				if behind == "host" {
					for _, h := range hooks {
						h.Host, h.Func = h.Func, nil
					}
				}
				began := time.Now()
				r := ask(mustEngine(t, nil, hooks...), pluginCall(`{}`))
				if took := time.Since(began); took != (900+10+0+700+19)*ms {
					t.Errorf("the chain took %v", took)
				}
				var got []string
				for _, run := range r.Runs {
					got = append(got, fmt.Sprintf("%s %s %v", run.Name, run.Said, run.Took))
				}
				want := []string{"slow continue 900ms", "late failed 10ms", "quick continue 0s", "later failed 700ms", "just continue 19ms"}
				if !slices.Equal(got, want) || r.Kind != Continue {
					t.Errorf("got %q", got)
				}
				if f := r.Runs[1].Failure; f.Kind != Timeout || f.Message != "no answer within 10ms" {
					t.Errorf("the failure is %+v", f)
				}
			})
		})
	}
}

func TestAHookThatIsLeftBehindChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := modifier("stuck", PreToolCall, func(_ context.Context, p Payload) (Verdict, error) {
			time.Sleep(time.Hour) // gives no way
			return RejectFor("too late"), nil
		})
		stuck.OnFailure = Open
		e := mustEngine(t, nil, stuck, saying("after", PreToolCall, Go(args(`{"n":2}`))))
		began := time.Now()
		r := ask(e, pluginCall(`{"n":1}`))
		if took := time.Since(began); took != pluginLimit {
			t.Errorf("it took %v", took)
		}
		before := asJSON(t, r)
		time.Sleep(2 * time.Hour)
		if r.Kind != Continue || len(r.Runs) != 2 || asJSON(t, r) != before {
			t.Errorf("got %s", asJSON(t, r))
		}
	})
}

func TestFailuresOfGoHooks(t *testing.T) {
	var nilMap map[string]int
	for _, c := range []struct {
		name    string
		f       Func
		kind    FailureKind
		message string
	}{
		{"an error", func(context.Context, Payload) (Verdict, error) { return Go(), errors.New("boom") }, Crash, "boom"},
		{"a panic", func(context.Context, Payload) (Verdict, error) { nilMap["secret"] = 1; return Go(), nil }, Crash, "panic: assignment to entry in nil map"},
		{"a goroutine that ends", func(context.Context, Payload) (Verdict, error) { runtime.Goexit(); return Go(), nil }, Crash, "it ended its goroutine"},
		{"a verdict that is none", func(context.Context, Payload) (Verdict, error) { return Verdict{Kind: 9}, nil }, WrongReturn, "kind(9) is no verdict"},
	} {
		for _, behind := range []string{"engine", "host"} {
			t.Run(c.name+" behind the "+behind, func(t *testing.T) {
				h := modifier("bad", IncomingMessage, c.f)
				if behind == "host" {
					h.Host, h.Func = h.Func, nil
				}
				r := ask(mustEngine(t, nil, h), text(IncomingMessage, "hi"))
				if r.Kind != Reject || r.Failure == nil || r.Failure.Kind != c.kind || r.Failure.Message != c.message {
					t.Fatalf("got %s", asJSON(t, r))
				}
				if c.name != "a panic" {
					return
				}
				if run := r.Runs[0]; !strings.HasSuffix(run.File, "engine_test.go") || run.Line == 0 || !strings.Contains(r.Failure.Traceback, "TestFailuresOfGoHooks") {
					t.Errorf("it says %s:%d\n%s", run.File, run.Line, r.Failure.Traceback)
				}
			})
		}
	}
}

func TestCancelling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := make(chan string, 10)
		watch := observer("watch", ModelResponse, func(ctx context.Context, _ Payload) (Verdict, error) {
			select {
			case <-time.After(50 * ms):
				return Go(), nil
			case <-ctx.Done():
				return Go(), ctx.Err()
			}
		})
		slow := modifier("slow", ModelResponse, func(ctx context.Context, _ Payload) (Verdict, error) {
			asked <- "slow"
			<-ctx.Done()
			return Go(), nil // too late: the caller has gone
		})
		log := &recorded{}
		final := observer("final", ModelResponse, watch.Func)
		final.Final = true
		e := mustEngine(t, log, watch, slow, final)

		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(20*ms, cancel)
		began := time.Now()
		r := e.Run(ctx, e.Chain(slow.Point, Who{}), text(ModelResponse, "hi"), Asker{})
		if r.Kind != Reject || r.Failure == nil || r.Failure.Kind != Cancelled || len(r.Runs) != 1 || time.Since(began) != 20*ms {
			t.Errorf("after %v: %s", time.Since(began), asJSON(t, r))
		}
		e.Wait()
		if got := log.names(); got != "slow failed, watch seen" { // an observer keeps its time
			t.Errorf("recorded %s", got)
		}
		<-asked
		r = e.Run(ctx, e.Chain(slow.Point, Who{}), text(ModelResponse, "hi"), Asker{})
		if r.Kind != Reject || r.Failure.Kind != Cancelled || len(r.Runs) != 0 || len(asked) != 0 {
			t.Errorf("a hook was asked after the caller had gone: %s", asJSON(t, r))
		}
		e.Wait()
	})
}

func TestNoHookIsAskedAfterACancelledOne(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	first := modifier("first", PreToolCall, func(context.Context, Payload) (Verdict, error) { cancel(); return Go(), nil })
	second := modifier("second", PreToolCall, func(context.Context, Payload) (Verdict, error) { t.Error("it was asked"); return Go(), nil })
	second.OnFailure = Open
	e := mustEngine(t, nil, first, second)
	if r := e.Run(ctx, e.Chain(first.Point, Who{}), pluginCall(`{}`), Asker{}); r.Kind != Reject || r.Failure.Kind != Cancelled {
		t.Errorf("got %s", asJSON(t, r))
	}
}

func TestObservers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &recorded{}
		looking := func(name string, final bool, v Verdict, err error, takes time.Duration) *Hook {
			h := observer(name, IncomingMessage, func(_ context.Context, p Payload) (Verdict, error) {
				time.Sleep(takes)
				return Verdict{Kind: v.Kind, Reason: p.Text("text"), Changes: v.Changes}, err
			})
			h.Final = final
			return h
		}
		change := Go(text(IncomingMessage, "").Change("text", "mine"))
		e := mustEngine(t, log,
			looking("1st", false, Go(), nil, 1*ms), looking("2nd", false, change, nil, 2*ms), looking("3rd", false, RejectFor(""), nil, 3*ms),
			looking("4th", false, Go(), errors.New("boom"), 4*ms), looking("5th", false, Go(), nil, time.Hour), looking("6th", true, Go(), nil, 6*ms),
			saying("modify", IncomingMessage, Go(text(IncomingMessage, "").Change("text", "masked"))))
		began := time.Now()
		r := ask(e, text(IncomingMessage, "typed"))
		if took := time.Since(began); took != 0 || r.Payload.Text("text") != "masked" || len(r.Runs) != 1 {
			t.Errorf("after %v: %s", took, asJSON(t, r))
		}
		e.Wait()
		if took := time.Since(began); took != observeLimit {
			t.Errorf("waited %v", took)
		}
		if got := log.names(); got != "modify continue, 1st seen, 2nd seen, 3rd seen, 4th failed, 6th seen, 5th failed" {
			t.Fatalf("recorded %s", got)
		}
		for i, want := range []string{"", "", "changes mean nothing", "reject means nothing", "", "", ""} {
			if got := log.runs[i].Dropped; !strings.HasPrefix(got, want) || (want == "") != (got == "") {
				t.Errorf("%s: dropped %q", log.runs[i].Name, got)
			}
		}
		if saw := log.runs[1].Reason + " " + log.runs[5].Reason; saw != "typed masked" {
			t.Errorf("they saw %s", saw)
		}
		for _, run := range log.runs {
			if run.Key != "ann" || run.Turn != "t1" {
				t.Errorf("%s was recorded for %s, %s", run.Name, run.Key, run.Turn)
			}
		}
		time.Sleep(time.Hour)
	})
}

func TestAFinalObserverIsNotAskedWhenNothingGoesOn(t *testing.T) {
	log := &recorded{}
	final := observer("final", IncomingMessage, func(context.Context, Payload) (Verdict, error) { return Go(), nil })
	final.Final = true
	e := mustEngine(t, log, final, saying("modify", IncomingMessage, RejectFor("no")))
	ask(e, text(IncomingMessage, "hi"))
	e.Wait()
	if got := log.names(); got != "modify reject" {
		t.Errorf("recorded %s", got)
	}
}

func TestAHoldEndsRun(t *testing.T) {
	e := mustEngine(t, nil, saying("first", PreToolCall, HoldFor("over 500", args(`{"n":2}`))), saying("second", PreToolCall, RejectFor("no")))
	r := ask(e, pluginCall(`{"n":1}`))
	if r.Kind != Hold || r.Reason != "over 500" || r.Hook.Name != "first" || len(r.Runs) != 1 || string(r.Payload.Get("arguments")) != `{"n":2}` || !r.Changed {
		t.Errorf("got %s", asJSON(t, r))
	}
}

// eager answers twice.
type eager struct{}

func (eager) Start(_ context.Context, _ Question, done func(Answer)) {
	done(Answer{Verdict: Go()})
	done(Answer{Verdict: RejectFor("second thoughts")})
}

func TestASecondAnswerCountsForNothing(t *testing.T) {
	log := &recorded{}
	modify, observe := passing("modify", IncomingMessage), observer("observe", IncomingMessage, nil)
	modify.Func, modify.Host, observe.Host = nil, eager{}, eager{}
	e := mustEngine(t, log, observe, modify)
	if r := ask(e, text(IncomingMessage, "hi")); r.Kind != Continue {
		t.Errorf("got %s", asJSON(t, r))
	}
	e.Wait()
	if got := log.names(); got != "observe seen, modify continue" {
		t.Errorf("recorded %s", got)
	}
}

func TestHostsAndFuncsInOneChain(t *testing.T) {
	var hooks []*Hook
	for i := range 6 {
		name := fmt.Sprint(i)
		h := modifier(name, PreToolCall, func(_ context.Context, p Payload) (Verdict, error) {
			return Go(p.Change("arguments", rawJSON(fmt.Sprintf(`{"seen":"%s%s"}`, strings.Trim(string(p.Get("arguments")), `{}"sen:`), name)))), nil
		})
		if i == 2 || i == 3 {
			h.Host, h.Func = h.Func, nil
		}
		hooks = append(hooks, h)
	}
	log := &recorded{}
	r := ask(mustEngine(t, log, hooks...), pluginCall(`{}`))
	if got := string(r.Payload.Get("arguments")); got != `{"seen":"012345"}` {
		t.Errorf("they ran as %s", got)
	}
	if len(r.Runs) != 6 || len(log.runs) != 6 {
		t.Errorf("%d lines in the trace, %d recorded", len(r.Runs), len(log.runs))
	}
}

func TestAPointWithoutHooksCostsNoAllocation(t *testing.T) {
	e := mustEngine(t, nil, passing("elsewhere", OutgoingText))
	p, ctx := text(IncomingMessage, "hi"), context.Background()
	if n := testing.AllocsPerRun(100, func() {
		if r := e.Run(ctx, e.Chain(p.Point(), Who{}), p, Asker{Key: "k", Turn: "t"}); r.Kind != Continue {
			t.Fatal("it did not go on")
		}
	}); n != 0 {
		t.Errorf("it costs %v allocations", n)
	}
}
