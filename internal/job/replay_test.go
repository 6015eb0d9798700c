package job_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/belay-run/belay/internal/job"
)

func TestReplayReportsEachDifference(t *testing.T) {
	ask := func(s job.Steps, c job.Call) (json.RawMessage, error) {
		a, err := job.Ask(s, c)
		return a.Value, err
	}
	recorded := func(s job.Steps, _ job.Order) (json.RawMessage, error) {
		if _, err := s.Now("now"); err != nil {
			return nil, err
		}
		if err := s.Each(2, func(i int, s job.Steps) error {
			_, err := ask(s, echo(fmt.Sprint(i)))
			return err
		}); err != nil {
			return nil, err
		}
		return ask(s, echo("last"))
	}
	inBubble(t, func(b *bench) {
		b.create(recorded)
		b.run()
		h := b.history()
		for name, c := range map[string]struct {
			run  func(s job.Steps, in job.Order) (json.RawMessage, error)
			want string
		}{
			"the same": {recorded, `{"end":{"state":"completed","output":{"key":"last","input":"last"}}}`},
			"another end": {func(s job.Steps, in job.Order) (json.RawMessage, error) {
				_, err := recorded(s, in)
				return json.RawMessage(`1`), err
			}, `{"differences":[{"reason":"the job ended with another output than it would now"}],"end":{"state":"completed","output":1}}`},
			"a failure": {func(s job.Steps, in job.Order) (json.RawMessage, error) {
				_, err := recorded(s, in)
				if err == nil {
					err = job.Fail("HookDenied", "no")
				}
				return nil, err
			}, `{"differences":[{"reason":"the job ended completed , now it would end failed HookDenied"}],"end":{"state":"failed","code":"HookDenied","reason":"no"}}`},
			"a step more": {func(s job.Steps, in job.Order) (json.RawMessage, error) {
				if _, err := recorded(s, in); err != nil {
					return nil, err
				}
				return ask(s, echo("more"))
			}, `{"differences":[{"key":"more","reason":"the flow asks for it, the record does not have it"}]}`},
			"a step less": {func(s job.Steps, _ job.Order) (json.RawMessage, error) {
				if _, err := s.Now("now"); err != nil {
					return nil, err
				}
				return ask(s, echo("last"))
			}, `{"differences":[{"key":"0","reason":"the record has it, the flow does not come to it"},{"key":"1","reason":"the record has it, the flow does not come to it"}],"end":{"state":"completed","output":{"key":"last","input":"last"}}}`},
			"other inputs in both branches": {func(s job.Steps, _ job.Order) (json.RawMessage, error) {
				if _, err := s.Now("now"); err != nil {
					return nil, err
				}
				return nil, s.Each(2, func(i int, s job.Steps) error {
					_, err := ask(s, job.Call{Key: fmt.Sprint(i), Kind: "echo"})
					return err
				})
			}, `{"differences":[{"key":"0","reason":"the flow asks \"0\" with another input than the record has"},{"key":"0","reason":"the record has it, the flow does not come to it"},` +
				`{"key":"1","reason":"the flow asks \"1\" with another input than the record has"},{"key":"1","reason":"the record has it, the flow does not come to it"},` +
				`{"key":"last","reason":"the record has it, the flow does not come to it"}]}`},
			"a panic": {func(s job.Steps, in job.Order) (json.RawMessage, error) { panic("ouch") },
				`{"differences":[{"reason":"the job ended completed , now it would end failed Panic"},{"key":"0","reason":"the record has it, the flow does not come to it"},` +
					`{"key":"1","reason":"the record has it, the flow does not come to it"},{"key":"last","reason":"the record has it, the flow does not come to it"},` +
					`{"key":"now","reason":"the record has it, the flow does not come to it"}],"end":{"state":"failed","code":"Panic","reason":"panic: ouch"}}`},
		} {
			got, err := json.Marshal(job.Replay(job.Flow{Run: c.run}, h))
			b.must(err)
			if string(got) != c.want {
				b.Errorf("%s:\n%s, want\n%s", name, got, c.want)
			}
		}
		if len(b.asked) != 3 {
			b.Errorf("replay asked: %v", b.asked)
		}
	})
}

func TestReplayOfAnUnfinishedJobSaysWhereItStands(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.create(func(s job.Steps, _ job.Order) (json.RawMessage, error) {
			if _, err := job.Ask(s, echo("a")); err != nil {
				return nil, err
			}
			return nil, s.Each(3, func(i int, s job.Steps) error {
				if i == 2 {
					_, err := job.Ask(s, job.Call{Key: "d", Kind: "die"})
					return err
				}
				_, err := s.Await(job.Question{Key: fmt.Sprintf("q%d", i), Until: time.Now().Add(time.Duration(i+1) * time.Hour)})
				return err
			})
		})
		b.dies()
		got, err := json.Marshal(job.Replay(b.flow, b.history()))
		b.must(err)
		if string(got) != `{"open":["d","q0","q1"]}` {
			b.Errorf("%s", got)
		}
	})
}

func TestAHistoryHasAJSONForm(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.create(func(s job.Steps, _ job.Order) (json.RawMessage, error) {
			if _, err := s.Now("now"); err != nil {
				return nil, err
			}
			if _, err := job.Ask(s, echo("a")); err != nil {
				return nil, err
			}
			a, err := s.Await(job.Question{Key: "q", Kind: "approval", Until: time.Now().Add(time.Hour)})
			return a.Value, err
		})
		b.run()
		b.decide("q", `1`)
		b.run()
		raw, err := json.Marshal(b.history())
		b.must(err)
		var back job.History
		b.must(json.Unmarshal(raw, &back))
		if r := job.Replay(b.flow, back); len(r.Differences) > 0 || r.End == nil {
			b.Errorf("%+v", r)
		}
		if err := json.Unmarshal([]byte(`"12"`), new(job.Digest)); err == nil {
			b.Error("half a digest was taken")
		}
	})
}
