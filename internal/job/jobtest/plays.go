package jobtest

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/belay-run/belay/internal/job"
)

// play is a flow under simulation and what it gives undisturbed.
type play struct {
	flow   job.Flow
	output json.RawMessage
}

var plays = []play{
	asPlay("sequence", sequence), asPlay("side by side", sideBySide), asPlay("approvals", approvals),
	asPlay("nested", nested), asPlay("rounds", rounds), asPlay("short deadlines", shortDeadlines),
	asPlay("clocks", clocks),
}

func asPlay(name string, code func(j *journey) error) play {
	run := func(s job.Steps, _ job.Order) (json.RawMessage, error) {
		j := &journey{Steps: s, seen: &seen{}}
		if err := code(j); err != nil {
			return nil, err
		}
		return json.Marshal(j.seen.values)
	}
	out, err := run(perfect{}, job.Order{})
	if err != nil {
		panic(err)
	}
	return play{job.Flow{Name: name, Shape: 1, Run: run}, out}
}

// valueOf is what the world answers to a call.
func valueOf(key string, input json.RawMessage) json.RawMessage {
	h := fnv.New64a()
	h.Write(input)
	return json.RawMessage(fmt.Sprintf(`{"key":%q,"of":%d}`, key, h.Sum64()))
}

// handed is the question that asks a person for what an effect gave that may have
// happened.
const handed = "given by hand"

// decisionOn is what people decide: yes, or what the world would have answered.
func decisionOn(q job.Question) json.RawMessage {
	if q.Kind == handed {
		var c job.Call
		if err := json.Unmarshal(q.Input, &c); err != nil {
			panic(err)
		}
		return valueOf(c.Key, c.Input)
	}
	return json.RawMessage(fmt.Sprintf(`{"yes":%q}`, q.Key))
}

// journey is a flow on its way: its steps, and what it has seen by key.
type journey struct {
	job.Steps
	seen *seen
}

// seen is written by branches at places of their own, so it needs no lock.
type seen struct{ values []json.RawMessage }

// places makes room for n values and gives where they begin.
func (s *seen) places(n int) int {
	at := len(s.values)
	s.values = append(s.values, make([]json.RawMessage, n)...)
	return at
}

// see puts values in the next places.
func (j *journey) see(values ...json.RawMessage) {
	copy(j.seen.values[j.seen.places(len(values)):], values)
}

// do asks for effects. What may have happened is asked of a person.
func (j *journey) do(calls ...job.Call) ([]json.RawMessage, error) {
	for i := range calls {
		calls[i].Kind = "effect"
	}
	answers, err := j.Do(calls...)
	if err != nil {
		return nil, err
	}
	values := make([]json.RawMessage, len(calls))
	for i, a := range answers {
		if a.Failure != nil {
			if a.Failure.Kind != job.Unknown {
				return nil, job.Fail(a.Failure.Kind, a.Failure.Message)
			}
			input, err := json.Marshal(calls[i])
			if err != nil {
				return nil, err
			}
			if a, err = j.Await(job.Question{Key: calls[i].Key + "/by hand", Kind: handed, Input: input}); err != nil {
				return nil, err
			}
		}
		var v struct{ Key string }
		if err := json.Unmarshal(a.Value, &v); err != nil || v.Key != calls[i].Key {
			return nil, job.Fail("Swapped", fmt.Sprintf("%s got %s", calls[i].Key, a.Value))
		}
		values[i] = a.Value
	}
	return values, nil
}

func call(key string, input any) job.Call {
	raw, err := json.Marshal(input)
	if err != nil {
		panic(err)
	}
	return job.Call{Key: key, Input: raw}
}

func once(key string, input any) job.Call {
	c := call(key, input)
	c.Once = true
	return c
}

// ask asks for a decision.
func (j *journey) ask(key string, input any, until time.Time) (json.RawMessage, error) {
	a, err := j.Await(job.Question{Key: key, Kind: "approval", Input: call(key, input).Input, Until: until})
	switch {
	case err != nil:
		return nil, err
	case a.Failure != nil && a.Failure.Kind == job.Expired:
		return json.RawMessage(`"expired"`), nil
	case a.Failure != nil:
		return nil, job.Fail(a.Failure.Kind, a.Failure.Message)
	}
	return a.Value, nil
}

// sequence asks one thing after another, each with what came before.
func sequence(j *journey) error {
	last := json.RawMessage(`"start"`)
	for i := range 5 {
		c := call(fmt.Sprintf("step %d", i), last)
		c.Once = i == 2
		now, err := j.Now(fmt.Sprintf("time %d", i))
		if err != nil {
			return err
		}
		if i == 3 { // a time in an input must stay as it was
			c = call(c.Key, []any{last, now})
		}
		got, err := j.do(c)
		if err != nil {
			return err
		}
		if last = got[0]; i == 3 {
			last = json.RawMessage(`"at some time"`)
		}
		j.see(last)
	}
	yes, err := j.ask("approve", last, time.Time{})
	if err != nil {
		return err
	}
	j.see(yes)
	return nil
}

// sideBySide asks several things at once.
func sideBySide(j *journey) error {
	first, err := j.do(call("a", 1), once("b", 2), call("c", 3), once("d", 4))
	if err != nil {
		return err
	}
	j.see(first...)
	second, err := j.do(call("a2", first[0]), once("b2", first[1]), call("c2", first[2]))
	if err != nil {
		return err
	}
	j.see(second...)
	return nil
}

// approvals has branches that wait for people while others go on.
func approvals(j *journey) error {
	now, err := j.Now("now")
	if err != nil {
		return err
	}
	at := j.seen.places(4)
	return j.Each(4, func(i int, s job.Steps) error {
		b := &journey{s, j.seen}
		before, err := b.do(call(fmt.Sprintf("%d/before", i), i))
		if err != nil {
			return err
		}
		var until time.Time
		if i%2 == 1 {
			until = now.Add(time.Duration(i) * 24 * time.Hour)
		}
		yes := json.RawMessage(`"no need"`)
		if i != 3 {
			if yes, err = b.ask(fmt.Sprintf("%d/approve", i), before[0], until); err != nil {
				return err
			}
		}
		after, err := b.do(once(fmt.Sprintf("%d/after", i), yes))
		if err != nil {
			return err
		}
		j.seen.values[at+i] = after[0]
		return nil
	})
}

// nested has branches within branches.
func nested(j *journey) error {
	at := j.seen.places(8)
	err := j.Each(2, func(i int, s job.Steps) error {
		err := s.Each(3, func(k int, s job.Steps) error {
			b := &journey{s, j.seen}
			name := fmt.Sprintf("%d.%d", i, k)
			got, err := b.do(call(name, k))
			if err == nil && k == 1 {
				got[0], err = b.ask(name+"/approve", got[0], time.Time{})
			}
			if err != nil {
				return err
			}
			j.seen.values[at+3*i+k] = got[0]
			return nil
		})
		if err != nil {
			return err
		}
		b := &journey{s, j.seen}
		got, err := b.do(once(fmt.Sprintf("%d/sum", i), j.seen.values[at+3*i:at+3*i+3]))
		if err != nil {
			return err
		}
		j.seen.values[at+6+i] = got[0]
		return nil
	})
	if err != nil {
		return err
	}
	last, err := j.do(call("last", j.seen.values))
	if err != nil {
		return err
	}
	j.see(last[0])
	return nil
}

// rounds goes on as the answers say, as a loop of models and tools does.
func rounds(j *journey) error {
	more := json.RawMessage(`"begin"`)
	for round := range 10 {
		key := fmt.Sprintf("%d/model", round)
		got, err := j.do(call(key, more))
		if err != nil {
			return err
		}
		j.see(got[0])
		var v struct{ Of uint64 }
		if err := json.Unmarshal(got[0], &v); err != nil {
			return err
		}
		n := int(v.Of % 4)
		at := j.seen.places(n)
		err = j.Each(n, func(i int, s job.Steps) error {
			b := &journey{s, j.seen}
			tool, err := b.do(once(fmt.Sprintf("%d/tool %d", round, i), got[0]))
			if err != nil {
				return err
			}
			j.seen.values[at+i] = tool[0]
			return nil
		})
		if err != nil {
			return err
		}
		if n == 0 {
			return nil
		}
		if more, err = json.Marshal(j.seen.values); err != nil {
			return err
		}
	}
	return nil
}

// shortDeadlines asks people who may be too late.
func shortDeadlines(j *journey) error {
	for i := range 3 {
		now, err := j.Now(fmt.Sprintf("now %d", i))
		if err != nil {
			return err
		}
		yes, err := j.ask(fmt.Sprintf("approve %d", i), i, now.Add(time.Duration(i+1)*20*time.Second))
		if err != nil {
			return err
		}
		got, err := j.do(once(fmt.Sprintf("effect %d", i), yes))
		if err != nil {
			return err
		}
		j.see(yes, got[0])
	}
	return nil
}

// clocks has branches whose calls depend on when they came to them.
func clocks(j *journey) error {
	return j.Each(4, func(i int, s job.Steps) error {
		b := &journey{s, j.seen}
		for n := range 2 {
			key := fmt.Sprintf("%d/%d", i, n)
			now, err := b.Now(key + "/now")
			if err != nil {
				return err
			}
			if _, err := b.do(call(key, now)); err != nil {
				return err
			}
		}
		return nil
	})
}

// perfect is a world in which nothing goes wrong.
type perfect struct{}

func (perfect) Do(calls ...job.Call) ([]job.Answer, error) {
	out := make([]job.Answer, len(calls))
	for i, c := range calls {
		out[i].Value = valueOf(c.Key, c.Input)
	}
	return out, nil
}

func (perfect) Await(q job.Question) (job.Answer, error) {
	return job.Answer{Value: decisionOn(q)}, nil
}

func (p perfect) Each(n int, branch func(int, job.Steps) error) error {
	for i := range n {
		if err := branch(i, p); err != nil {
			return err
		}
	}
	return nil
}

func (perfect) Now(string) (time.Time, error) { return time.Unix(0, 0).UTC(), nil }
