package jobtest

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/belay-run/belay/internal/job"
)

// TestJournal is what every journal must pass. open gives an empty one for each
// part.
func TestJournal(t *testing.T, open func(t *testing.T) job.Journal) {
	for _, part := range []struct {
		name string
		test func(suite)
	}{
		{"a job comes back as it was made", suite.comesBack},
		{"jobs are listed by tenant, state and agent", suite.lists},
		{"a job is claimed by one", suite.claims},
		{"who lost the lease writes nothing", suite.losesTheLease},
		{"leases are renewed and given back", suite.renews},
		{"records come back in order, each once", suite.records},
		{"long and odd values come back byte for byte", suite.oddValues},
		{"another answer is refused whole", suite.conflicts},
		{"a parked job waits", suite.parks},
		{"a decision counts once and wakes the job", suite.decides},
		{"of many deciders one counts", suite.decidersRace},
		{"a deadline decides only after its time", suite.expires},
		{"a cancellation closes the job", suite.cancels},
		{"the end is the end", suite.ends},
		{"a deleted job is gone", suite.deletes},
		{"tenants do not meet", suite.tenants},
		{"jobs side by side do not mix", suite.sideBySide},
	} {
		t.Run(part.name, func(t *testing.T) { part.test(suite{t, open(t)}) })
	}
}

type suite struct {
	*testing.T
	j job.Journal
}

var (
	noon = time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)
	ctx  = context.Background()
)

func after(d time.Duration) time.Time { return noon.Add(d) }

func order(name string) job.Order {
	return job.Order{
		ID: job.ID{Tenant: "main", Job: name}, Flow: "merge", Shape: 2, Agent: "reviewer",
		Input: json.RawMessage(`{ "n": 9007199254740993, "t": "<b>" }`), Created: noon,
	}
}

// fail ends the test when a call went wrong.
func (s suite) ok(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// want checks which error came.
func (s suite) want(err, want error, doing string) {
	s.Helper()
	if !errors.Is(err, want) {
		s.Errorf("%s: error %v, want %v", doing, err, want)
	}
}

func (s suite) create(name string) job.Order {
	s.Helper()
	o := order(name)
	s.ok(s.j.Create(ctx, o))
	return o
}

func (s suite) claimAll(at time.Time, limit int) []job.Lease {
	s.Helper()
	leases, err := s.j.Claim(ctx, job.Claim{Owner: "me", Now: at, Until: at.Add(time.Minute), Limit: limit})
	s.ok(err)
	return leases
}

// claim claims the one job that is ready.
func (s suite) claim(at time.Time) job.Lease {
	s.Helper()
	leases := s.claimAll(at, 10)
	if len(leases) != 1 {
		s.Fatalf("%d jobs are ready, want 1: %v", len(leases), leases)
	}
	return leases[0]
}

// taken makes a job and claims it.
func (s suite) taken(name string) job.Lease {
	s.Helper()
	s.create(name)
	return s.claim(noon)
}

func begun(key string, try int, input string) job.Record {
	c := job.Call{Key: key, Kind: "tool", Input: json.RawMessage(input)}
	r := job.Record{At: noon, What: job.Begun, Key: key, Kind: "tool", Try: try, Digest: c.Digest()}
	if try == 1 {
		r.Input = c.Input
	}
	return r
}

func answered(key, value string) job.Record {
	return job.Record{At: after(time.Second), What: job.Answered, Key: key, Answer: &job.Answer{Value: json.RawMessage(value), Took: 5, Tries: 1}}
}

func asked(key string, until time.Time) job.Record {
	q := question(key)
	return job.Record{At: noon, What: job.Asked, Key: key, Kind: q.Kind, Digest: q.Digest(), Input: q.Input, Until: until}
}

func question(key string) job.Question {
	return job.Question{Key: key, Kind: "approval", Input: json.RawMessage(`{"pay":"` + key + `"}`)}
}

func yes(id job.ID, key string, at time.Time) job.Decision {
	return job.Decision{ID: id, Key: key, Digest: question(key).Digest(), Answer: job.Answer{Value: json.RawMessage(`{"yes":true}`)}, By: "ann", At: at}
}

func (s suite) keep(l job.Lease, records ...job.Record) {
	s.Helper()
	s.ok(s.j.Keep(ctx, l, records))
}

func (s suite) begin(l job.Lease, records ...job.Record) {
	s.Helper()
	s.ok(s.j.Begin(ctx, l, records))
}

func (s suite) park(l job.Lease, wake time.Time, decisions int) {
	s.Helper()
	s.ok(s.j.Park(ctx, l, job.Parking{Wake: wake, Decisions: decisions, At: noon}))
}

func (s suite) get(id job.ID) job.Job {
	s.Helper()
	j, err := s.j.Get(ctx, id)
	s.ok(err)
	return j
}

func (s suite) history(id job.ID) []job.Record {
	s.Helper()
	h, err := s.j.History(ctx, id)
	s.ok(err)
	if !reflect.DeepEqual(h.Job, s.get(id)) {
		s.Errorf("History has the job %+v, Get has %+v", h.Job, s.get(id))
	}
	return h.Records
}

// sameRecords compares records but for their numbers, which must grow.
func (s suite) sameRecords(got []job.Record, want ...job.Record) {
	s.Helper()
	if len(got) != len(want) {
		s.Fatalf("%d records, want %d: %+v", len(got), len(want), got)
	}
	for i := range got {
		if i > 0 && got[i].Seq <= got[i-1].Seq {
			s.Errorf("record %d has number %d after %d", i, got[i].Seq, got[i-1].Seq)
		}
		g := got[i]
		g.Seq = 0
		if !reflect.DeepEqual(g, want[i]) {
			s.Errorf("record %d is\n%s, want\n%s", i, show(g), show(want[i]))
		}
	}
}

func show(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func (s suite) comesBack() {
	o := s.create("a")
	s.want(s.j.Create(ctx, o), job.ErrExists, "the same again")
	want := job.Job{Order: o, State: job.Running, Updated: noon}
	if got := s.get(o.ID); !reflect.DeepEqual(got, want) {
		s.Errorf("got %s, want %s", show(got), show(want))
	}
	late := order("b")
	late.Deadline, late.Agent, late.Input = after(time.Hour), "", nil
	s.ok(s.j.Create(ctx, late))
	if got := s.get(late.ID); !reflect.DeepEqual(got.Order, late) {
		s.Errorf("got %s, want %s", show(got.Order), show(late))
	}
	_, err := s.j.Get(ctx, job.ID{Tenant: "main", Job: "c"})
	s.want(err, job.ErrNoJob, "Get")
	_, err = s.j.History(ctx, job.ID{Tenant: "main", Job: "c"})
	s.want(err, job.ErrNoJob, "History")
}

func (s suite) lists() {
	for i, name := range []string{"a", "b", "c", "d"} {
		o := order(name)
		o.Created = after(time.Duration(i) * time.Second)
		if name == "d" {
			o.Agent = "other"
		}
		s.ok(s.j.Create(ctx, o))
	}
	leases := s.claimAll(after(time.Minute), 2)
	if len(leases) != 2 || leases[0].Job != "a" || leases[1].Job != "b" {
		s.Fatalf("claimed %v, want the two that are ready for longest", leases)
	}
	s.ok(s.j.End(ctx, leases[0], job.End{State: job.Failed, Code: "HookDenied", Reason: "because", Output: json.RawMessage(`1`)}, after(time.Minute)))
	s.park(leases[1], after(time.Hour), 0)
	for _, c := range []struct {
		filter job.Filter
		want   string
	}{
		{job.Filter{}, "d c b a"},
		{job.Filter{Limit: 2}, "d c"},
		{job.Filter{Agent: "reviewer"}, "c b a"},
		{job.Filter{States: []job.State{job.Failed, job.Waiting}}, "b a"},
		{job.Filter{States: []job.State{job.Running}, Agent: "other"}, "d"},
		{job.Filter{States: []job.State{job.Completed}}, ""},
		{job.Filter{Tenant: "nobody"}, ""},
	} {
		if c.filter.Tenant == "" {
			c.filter.Tenant = "main"
		}
		all, err := s.j.List(ctx, c.filter)
		s.ok(err)
		got := ""
		for _, j := range all {
			got += " " + j.Job
			if j.Input != nil || j.End != nil && j.End.Output != nil {
				s.Errorf("the list has an input or an output: %s", show(j))
			}
			if j.Job == "a" && (j.End == nil || j.End.Code != "HookDenied") || j.Job == "b" && !j.Wake.Equal(after(time.Hour)) {
				s.Errorf("the list has %s", show(j))
			}
		}
		if got != "" {
			got = got[1:]
		}
		if got != c.want {
			s.Errorf("%+v gives %q, want %q", c.filter, got, c.want)
		}
	}
}

func (s suite) claims() {
	s.create("a")
	first := s.claim(noon)
	if first.Job != "a" || first.Tenant != "main" || first.Owner != "me" || first.Epoch < 1 || !first.Until.Equal(after(time.Minute)) {
		s.Errorf("lease %+v", first)
	}
	if got := s.claimAll(after(59*time.Second), 10); len(got) != 0 {
		s.Errorf("claimed again under the lease: %v", got)
	}
	again := s.claim(after(time.Minute))
	if again.Epoch <= first.Epoch {
		s.Errorf("epoch %d after %d", again.Epoch, first.Epoch)
	}
	for _, name := range []string{"b", "c", "d"} {
		s.create(name)
	}
	if got := s.claimAll(noon, 2); len(got) != 2 {
		s.Errorf("claimed %d, want 2", len(got))
	}
	if got := s.claimAll(noon, 2); len(got) != 1 {
		s.Errorf("claimed %d, want the last one", len(got))
	}
	if got := s.claimAll(noon, 2); len(got) != 0 {
		s.Errorf("claimed %d, want none", len(got))
	}
}
