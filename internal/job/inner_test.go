package job_test

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/job"
	"github.com/belay-run/belay/internal/loop"
	"github.com/belay-run/belay/internal/rawjson"
	"github.com/belay-run/belay/internal/step"
)

// desk is what the loop works in, as a job has it: its tools are steps of the job.
type desk struct {
	steps    job.Steps
	messages []json.RawMessage
	said     string
}

func (d *desk) Prompt(loop.Ask) (loop.Prompt, error) {
	return loop.Prompt{Messages: append([]json.RawMessage(nil), d.messages...), Tools: []chat.Tool{{Name: "add"}}}, nil
}

func (d *desk) Say(s loop.Speech) error { d.said += s.Text; return nil }

func (d *desk) Begin([]loop.Call) error { return nil }

func (d *desk) Dispatch(c loop.Call) (loop.Outcome, error) {
	a, err := job.Ask(d.steps, job.Call{Key: "tool/" + c.Key, Kind: "tool", Input: c.Arguments, Once: true})
	if err != nil {
		return loop.Outcome{}, err
	}
	if a.Failure != nil {
		return loop.Outcome{Arguments: c.Arguments, Value: "outcome unknown", IsError: true}, nil
	}
	return loop.Outcome{Arguments: c.Arguments, Value: string(a.Value), Ran: true}, nil
}

func (d *desk) Settle(_ loop.Call, out loop.Outcome) error {
	d.messages = append(d.messages, rawjson.Must(map[string]string{"role": "tool", "content": out.Value}))
	return nil
}

func runLoop(s job.Steps, _ job.Order) (json.RawMessage, error) {
	steps := &job.Inner{Steps: s, Prefix: "agent/"}
	d := &desk{steps: s}
	l := &loop.Loop{Steps: steps, Hooks: &loop.Hooks{Steps: steps}, Env: d}
	end, err := l.Run(loop.State{})
	if err != nil {
		return nil, err
	}
	return jsonOf([]string{string(end.Why), d.said, fmt.Sprint(len(d.messages)), string(rawjson.List(d.messages))})
}

// TestTheLoopRunsInAJob lets the process die at each step of a loop with three
// rounds; whatever was answered stays so.
func TestTheLoopRunsInAJob(t *testing.T) {
	undisturbed := `["said","done","4","[{\"content\":\"5\",\"role\":\"tool\"},{\"content\":\"5\",\"role\":\"tool\"},{\"content\":\"5\",\"role\":\"tool\"},{\"content\":\"5\",\"role\":\"tool\"}]"]`
	for dies := range 10 {
		inBubble(t, func(b *bench) {
			asked := 0
			kill := func() {}
			seen := func(h func(c job.Call) (any, error)) job.Handler {
				return b.counted(func(ctx context.Context, c job.Call) (job.Answer, error) {
					if asked++; asked == dies+1 {
						kill()
						<-ctx.Done()
						return job.Answer{}, ctx.Err()
					}
					v, err := h(c)
					if err != nil {
						return job.Answer{}, err
					}
					return job.Answer{Value: rawjson.Must(v)}, nil
				})
			}
			b.handlers = job.Handlers{
				loop.KindID: seen(func(c job.Call) (any, error) { return "id-" + c.Key, nil }),
				"tool":      seen(func(job.Call) (any, error) { return 5, nil }),
				loop.KindModel: seen(func(c job.Call) (any, error) {
					var in loop.ModelCall
					if err := json.Unmarshal(c.Input, &in); err != nil {
						return nil, err
					}
					var messages []json.RawMessage
					if err := json.Unmarshal(in.Request.Messages, &messages); err != nil {
						return nil, err
					}
					done := "done"
					if len(messages) >= 4 {
						return loop.ModelAnswer{Response: chat.Response{Text: &done}}, nil
					}
					call := chat.ToolCall{Name: "add", Arguments: json.RawMessage(`{"a": 2, "b": 3}`)}
					return loop.ModelAnswer{Response: chat.Response{ToolCalls: []chat.ToolCall{call, call}}}, nil
				}),
			}
			b.create(runLoop)
			hard, cancel := context.WithCancel(ctx)
			kill = cancel
			got := b.runner().Prepare(hard, b.claim()).Go()
			if got.Kind != job.RunReleased {
				b.Fatalf("the process that dies: %+v", got)
			}
			got = b.run()
			if !strings.Contains(string(got.End.Output), "outcome unknown") { // a tool had been begun
				b.completes(got, undisturbed)
			} else if b.same(); !strings.HasPrefix(b.asked[dies], "tool/") {
				b.Errorf("unknown, though the process died in %s", b.asked[dies])
			}
			for _, key := range b.asked {
				if n := b.times(key); n > 1 && (key != b.asked[dies] || strings.HasPrefix(key, "tool/")) {
					b.Errorf("%s was asked %d times; the process died in %s", key, n, b.asked[dies])
				}
				if !strings.HasPrefix(key, "agent/") && !strings.HasPrefix(key, "tool/") {
					b.Errorf("key %s without its prefix", key)
				}
			}
		})
	}
}

func TestInnerFailures(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.create(func(s job.Steps, _ job.Order) (json.RawMessage, error) {
			in := &job.Inner{Steps: s, Prefix: "in/", Limit: func(step.Call) time.Duration { return time.Minute }}
			first, second := in.Now(), in.Now()
			if first.IsZero() || !second.Equal(first) {
				b.Errorf("times %v and %v", first, second)
			}
			in.Failed = func(c step.Call, f job.Failure) (any, bool) { return f.Kind, c.Key == "told" }
			a, err := in.Do(step.Call{Key: "told", Kind: "nobody"})
			if err != nil {
				return nil, err
			}
			if kind, err := step.As[string](a); kind != job.Broken || err != nil {
				b.Errorf("%q, %v", kind, err)
			}
			_, err = in.Do(step.Call{Key: "untold", Kind: "nobody"})
			return nil, err
		})
		b.fails(b.run(), job.StepFailed, `untold: error: this program has no handler for calls of kind "nobody"`)
		var keys []string
		for _, r := range b.history().Records {
			if r.What != job.Answered {
				keys = append(keys, r.Key)
			}
		}
		if want := []string{"in/now/0", "in/now/1", "in/told", "in/untold"}; !reflect.DeepEqual(keys, want) {
			b.Errorf("keys %v, want %v", keys, want)
		}
	})
}
