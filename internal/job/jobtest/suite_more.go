package jobtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/belay-run/belay/internal/job"
)

func (s suite) losesTheLease() {
	old := s.taken("a")
	s.keep(old, asked("q", time.Time{}))
	s.begin(old, begun("k", 1, `1`))
	now := s.claim(after(time.Hour))
	before := s.history(old.ID)
	_, err := s.j.Load(ctx, old)
	for doing, err := range map[string]error{
		"Load":    err,
		"Begin":   s.j.Begin(ctx, old, []job.Record{begun("l", 1, `1`)}),
		"Keep":    s.j.Keep(ctx, old, []job.Record{answered("k", `1`)}),
		"Park":    s.j.Park(ctx, old, job.Parking{At: noon}),
		"End":     s.j.End(ctx, old, job.End{State: job.Completed}, noon),
		"Release": s.j.Release(ctx, old),
	} {
		s.want(err, job.ErrLost, doing)
	}
	lost, err := s.j.Renew(ctx, after(2*time.Hour), []job.Lease{old, now})
	s.ok(err)
	if len(lost) != 1 || lost[0] != old {
		s.Errorf("Renew says lost: %v", lost)
	}
	if got := s.history(old.ID); !reflect.DeepEqual(got, before) {
		s.Errorf("something was written: %s", show(got))
	}
	s.keep(now, answered("k", `1`))
}

func (s suite) renews() {
	l := s.taken("a")
	lost, err := s.j.Renew(ctx, after(time.Hour), []job.Lease{l})
	s.ok(err)
	if len(lost) > 0 {
		s.Errorf("lost: %v", lost)
	}
	if got := s.claimAll(after(59*time.Minute), 1); len(got) != 0 {
		s.Errorf("claimed under a renewed lease: %v", got)
	}
	if lost, err = s.j.Renew(ctx, after(time.Minute), []job.Lease{l}); err != nil || len(lost) > 0 {
		s.Errorf("renewing for less: %v, %v", lost, err)
	}
	if got := s.claimAll(after(59*time.Minute), 1); len(got) != 0 {
		s.Errorf("a lease was made shorter: %v", got)
	}
	if lost, err := s.j.Renew(ctx, after(time.Hour), nil); err != nil || len(lost) > 0 {
		s.Errorf("renewing nothing: %v, %v", lost, err)
	}
	s.ok(s.j.Release(ctx, l))
	s.want(s.j.Release(ctx, l), job.ErrLost, "giving back twice")
	if again := s.claim(noon); again.Epoch <= l.Epoch {
		s.Errorf("epoch %d after %d", again.Epoch, l.Epoch)
	}
}

func (s suite) records() {
	l := s.taken("a")
	once := begun("c", 1, `3`)
	once.Once = true
	clock := job.Record{At: after(time.Millisecond), What: job.Timed, Key: "clock"}
	failed := job.Record{At: after(time.Second), What: job.Answered, Key: "b", Answer: &job.Answer{Failure: &job.Failure{Kind: job.TimedOut, Message: "slow"}, Tries: 2}}
	want := []job.Record{begun("a", 1, `1`), begun("b", 1, `2`), clock, answered("a", `{"x": 1}`), begun("b", 2, `2`), once, failed, asked("q", after(time.Hour))}
	for range 2 { // the same again changes nothing
		s.begin(l, want[0], want[1])
		s.keep(l, clock, want[3])
		if len(s.history(l.ID)) < 5 {
			s.begin(l, clock, want[4], once)
		}
		s.keep(l, failed, want[7])
	}
	s.sameRecords(s.history(l.ID), want...)
	h, err := s.j.Load(ctx, l)
	s.ok(err)
	for i := range want {
		want[i].Input = nil
	}
	s.sameRecords(h.Records, want...)
	if !reflect.DeepEqual(h.Job, s.get(l.ID)) {
		s.Errorf("Load has the job %s, Get has %s", show(h.Job), show(s.get(l.ID)))
	}
}

func (s suite) oddValues() {
	o := order("odd \u2028 \x00 name")
	o.Tenant = "ténant"
	s.ok(s.j.Create(ctx, o))
	l := s.claim(noon)
	long := `{ "text" : "` + strings.Repeat("<long> \u2028 ", 10_000) + `" }`
	longer := `"` + strings.Repeat("x", 1<<20) + `"`
	var want []job.Record
	for i, v := range []string{`null`, ` 9007199254740993 `, "{\n\"a\":1}", long, long, longer, longer} {
		key := fmt.Sprintf("3/call_%d/pré/\x00 acme.check", i)
		want = append(want, begun(key, 1, v))
		s.begin(l, want[len(want)-1])
		want = append(want, answered(key, v))
		s.keep(l, want[len(want)-1])
	}
	empty := job.Record{At: noon, What: job.Answered, Key: "k", Answer: &job.Answer{}}
	noInput := begun("k", 1, "")
	noInput.Input = nil
	want = append(want, noInput, empty)
	s.begin(l, noInput)
	s.keep(l, empty)
	s.sameRecords(s.history(l.ID), want...)
	end := job.End{State: job.Completed, Output: json.RawMessage(longer)}
	s.ok(s.j.End(ctx, l, end, after(time.Second)))
	got := s.get(o.ID)
	if got.End == nil || !reflect.DeepEqual(*got.End, end) || got.State != job.Completed || !got.Updated.Equal(after(time.Second)) {
		s.Errorf("the job ended as %.200s", show(got))
	}
}

func (s suite) conflicts() {
	l := s.taken("a")
	s.begin(l, begun("a", 1, `1`), begun("b", 1, `1`))
	s.keep(l, answered("a", `1`))
	before := s.history(l.ID)
	clock := job.Record{At: noon, What: job.Timed, Key: "clock"}
	s.want(s.j.Keep(ctx, l, []job.Record{answered("b", `1`), answered("a", `2`)}), job.ErrConflict, "another answer")
	s.want(s.j.Begin(ctx, l, []job.Record{clock, begun("a", 2, `1`)}), job.ErrConflict, "begin what has an answer")
	s.want(s.j.Begin(ctx, l, []job.Record{begun("b", 1, `2`)}), job.ErrConflict, "the same try of another input")
	if got := s.history(l.ID); !reflect.DeepEqual(got, before) {
		s.Errorf("part of it was written: %s", show(got))
	}
	s.keep(l, clock)
	clock.At = after(1)
	s.want(s.j.Keep(ctx, l, []job.Record{clock}), job.ErrConflict, "another time")
	s.keep(l, answered("b", `1`))
}

func (s suite) parks() {
	l := s.taken("a")
	s.keep(l, asked("q", time.Time{}))
	s.park(l, after(time.Hour), 0)
	if got := s.get(l.ID); got.State != job.Waiting || !got.Wake.Equal(after(time.Hour)) {
		s.Errorf("parked: %s", show(got))
	}
	s.want(s.j.Keep(ctx, l, []job.Record{answered("k", `1`)}), job.ErrLost, "keeping after parking")
	s.wakesAt(after(time.Hour))
	if got := s.claimAll(after(59*time.Minute), 1); len(got) != 0 {
		s.Errorf("claimed before its time: %v", got)
	}
	l = s.claim(after(time.Hour))
	if got := s.get(l.ID); got.State != job.Running || !got.Wake.IsZero() {
		s.Errorf("woken: %s", show(got))
	}
	s.wakesAt(time.Time{})
	s.park(l, time.Time{}, 0)
	s.wakesAt(time.Time{})
	if got := s.claimAll(after(1000*time.Hour), 1); len(got) != 0 {
		s.Errorf("claimed though it waits for a decision: %v", got)
	}
	other := s.taken("b")
	s.park(other, after(3*time.Hour), 0)
	s.create("c")
	third := s.claim(noon)
	s.park(third, after(2*time.Hour), 0)
	s.wakesAt(after(2 * time.Hour))
}

func (s suite) wakesAt(want time.Time) {
	s.Helper()
	got, err := s.j.NextWake(ctx)
	s.ok(err)
	if !got.Equal(want) {
		s.Errorf("the next to wake is due at %v, want %v", got, want)
	}
}

func (s suite) pending(tenant string) (keys string) {
	s.Helper()
	all, err := s.j.Pending(ctx, tenant)
	s.ok(err)
	for _, p := range all {
		q := question(p.Key)
		if p.Kind != q.Kind || string(p.Input) != string(q.Input) || p.Digest != q.Digest() || p.Agent != "reviewer" || !p.Asked.Equal(noon) {
			s.Errorf("pending: %s", show(p))
		}
		keys += " " + p.Tenant + "/" + p.Job + "/" + p.Key
	}
	return strings.TrimSpace(keys)
}

func (s suite) decides() {
	l := s.taken("a")
	s.keep(l, asked("p", after(time.Hour)), asked("q", time.Time{}), asked("r", time.Time{}))
	if got := s.pending("main"); got != "main/a/p main/a/q main/a/r" {
		s.Errorf("pending: %s", got)
	}
	other := yes(l.ID, "q", noon)
	other.Digest = question("p").Digest()
	s.want(s.j.Decide(ctx, other), job.ErrOtherQuestion, "a decision about something else")
	other.Digest = job.Digest{}
	s.want(s.j.Decide(ctx, other), job.ErrOtherQuestion, "a decision about nothing")
	s.want(s.j.Decide(ctx, yes(l.ID, "x", noon)), job.ErrNotAsked, "what was not asked")
	s.want(s.j.Decide(ctx, yes(job.ID{Tenant: "main", Job: "x"}, "q", noon)), job.ErrNoJob, "no job")
	s.ok(s.j.Decide(ctx, yes(l.ID, "q", after(time.Second)))) // while it runs
	s.want(s.j.Decide(ctx, yes(l.ID, "q", noon)), job.ErrDecided, "twice")
	s.want(s.j.Park(ctx, l, job.Parking{At: noon}), job.ErrMoved, "parking on an old state")
	s.park(l, time.Time{}, 1)
	s.ok(s.j.Decide(ctx, yes(l.ID, "p", after(time.Second)))) // while it waits
	if got := s.pending("main"); got != "main/a/r" {
		s.Errorf("pending: %s", got)
	}
	l = s.claim(after(time.Second))
	h, err := s.j.Load(ctx, l)
	s.ok(err)
	if h.Job.Decisions != 2 || len(h.Records) != 5 {
		s.Errorf("after two decisions: %s", show(h))
	}
	d := yes(l.ID, "q", after(time.Second))
	s.sameRecords(h.Records[3:4], job.Record{At: d.At, What: job.Decided, Key: "q", Answer: &d.Answer, By: "ann"})
	s.ok(s.j.End(ctx, l, job.End{State: job.Completed}, noon))
	s.want(s.j.Decide(ctx, yes(l.ID, "r", noon)), job.ErrEnded, "after the end")
	if got := s.pending("main"); got != "" {
		s.Errorf("pending after the end: %s", got)
	}
}

func (s suite) decidersRace() {
	l := s.taken("a")
	s.keep(l, asked("q", time.Time{}))
	s.park(l, time.Time{}, 0)
	errs := make([]error, 8)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() {
			d := yes(l.ID, "q", noon)
			d.By = fmt.Sprint(i)
			errs[i] = s.j.Decide(ctx, d)
		})
	}
	all.Wait()
	winner := ""
	for i, err := range errs {
		switch {
		case err == nil && winner == "":
			winner = fmt.Sprint(i)
		case !errors.Is(err, job.ErrDecided):
			s.Errorf("decider %d: error %v, want ErrDecided", i, err)
		}
	}
	records := s.history(l.ID)
	if got := records[len(records)-1]; got.What != job.Decided || got.By != winner || winner == "" {
		s.Errorf("%q was told that it counts, the record has %s", winner, show(got))
	}
	s.claim(noon)
}

func (s suite) expires() {
	l := s.taken("a")
	s.keep(l, asked("q", after(time.Hour)), asked("r", time.Time{}))
	s.park(l, after(time.Hour), 0)
	expiry := func(key string, at time.Time) job.Decision {
		d := yes(l.ID, key, at)
		d.Expiry, d.By, d.Answer = true, "", job.Answer{Failure: &job.Failure{Kind: job.Expired}}
		return d
	}
	s.want(s.j.Decide(ctx, expiry("q", after(time.Hour-1))), job.ErrNotAsked, "too early an expiry")
	s.want(s.j.Decide(ctx, expiry("r", after(time.Hour))), job.ErrNotAsked, "an expiry without a deadline")
	s.want(s.j.Decide(ctx, yes(l.ID, "q", after(time.Hour))), job.ErrExpired, "a person after the deadline")
	s.ok(s.j.Decide(ctx, expiry("q", after(time.Hour))))
	s.want(s.j.Decide(ctx, expiry("q", after(time.Hour))), job.ErrDecided, "twice")
	s.claim(after(time.Hour))
}

func (s suite) cancels() {
	l := s.taken("a")
	s.keep(l, asked("q", time.Time{}))
	wish := job.Cancellation{At: after(time.Second), By: "ann", Reason: "not needed"}
	s.want(s.j.Cancel(ctx, job.ID{Tenant: "main", Job: "x"}, wish), job.ErrNoJob, "no job")
	s.ok(s.j.Cancel(ctx, l.ID, wish))
	s.ok(s.j.Cancel(ctx, l.ID, job.Cancellation{At: after(time.Minute), By: "bob"}))
	if got := s.get(l.ID); got.State != job.Running || got.Cancel == nil || !reflect.DeepEqual(*got.Cancel, wish) {
		s.Errorf("cancelled: %s", show(got))
	}
	if got := s.pending("main"); got != "" {
		s.Errorf("pending: %s", got)
	}
	s.want(s.j.Decide(ctx, yes(l.ID, "q", noon)), job.ErrEnded, "deciding after the cancellation")
	s.want(s.j.Park(ctx, l, job.Parking{At: noon}), job.ErrMoved, "parking")
	s.want(s.j.End(ctx, l, job.End{State: job.Completed}, noon), job.ErrCancelled, "completing")
	s.keep(l, answered("k", `1`)) // what was under way is kept
	s.ok(s.j.End(ctx, l, job.End{State: job.Cancelled, Reason: "not needed"}, noon))
	s.want(s.j.Cancel(ctx, l.ID, wish), job.ErrEnded, "cancelling what has ended")

	waits := s.taken("b")
	s.park(waits, time.Time{}, 0)
	s.ok(s.j.Cancel(ctx, waits.ID, wish))
	if got := s.claim(noon); got.Job != "b" {
		s.Errorf("woken: %v", got)
	}
}

func (s suite) ends() {
	l := s.taken("a")
	end := job.End{State: job.Failed, Code: "HookDenied", Reason: "the hook said so"}
	s.ok(s.j.End(ctx, l, end, after(time.Second)))
	got := s.get(l.ID)
	if got.State != job.Failed || got.End == nil || !reflect.DeepEqual(*got.End, end) || !got.Updated.Equal(after(time.Second)) {
		s.Errorf("ended: %s", show(got))
	}
	s.want(s.j.End(ctx, l, job.End{State: job.Completed}, noon), job.ErrLost, "ending twice")
	s.want(s.j.Keep(ctx, l, []job.Record{answered("k", `1`)}), job.ErrLost, "keeping after the end")
	if all := s.claimAll(after(1000*time.Hour), 1); len(all) != 0 {
		s.Errorf("claimed after the end: %v", all)
	}
	if _, err := s.j.History(ctx, l.ID); err != nil {
		s.Error(err)
	}
}

func (s suite) deletes() {
	l := s.taken("a")
	s.begin(l, begun("k", 1, `1`))
	s.keep(l, asked("q", time.Time{}))
	s.want(s.j.Delete(ctx, l.ID), job.ErrNotEnded, "a running job")
	s.ok(s.j.End(ctx, l, job.End{State: job.Completed}, noon))
	s.ok(s.j.Delete(ctx, l.ID))
	s.want(s.j.Delete(ctx, l.ID), job.ErrNoJob, "twice")
	_, err := s.j.Get(ctx, l.ID)
	s.want(err, job.ErrNoJob, "Get")
	s.want(s.j.Decide(ctx, yes(l.ID, "q", noon)), job.ErrNoJob, "Decide")
	again := s.taken("a")
	s.sameRecords(s.history(again.ID))
	s.want(s.j.Keep(ctx, l, []job.Record{answered("k", `1`)}), job.ErrLost, "writing with the old job's lease")
	s.sameRecords(s.history(again.ID))
}

func (s suite) tenants() {
	a := s.create("a")
	b := a
	b.Tenant = "other"
	s.ok(s.j.Create(ctx, b))
	leases := s.claimAll(noon, 10)
	if len(leases) != 2 {
		s.Fatalf("claimed %v", leases)
	}
	for _, l := range leases {
		s.begin(l, begun("k", 1, `"`+l.Tenant+`"`))
		s.keep(l, asked("q", time.Time{}))
	}
	s.ok(s.j.Decide(ctx, yes(a.ID, "q", noon)))
	if got := s.pending("other"); got != "other/a/q" {
		s.Errorf("pending: %s", got)
	}
	if got := s.pending("main"); got != "" {
		s.Errorf("pending: %s", got)
	}
	if got := s.pending(""); got != "other/a/q" {
		s.Errorf("pending: %s", got)
	}
	s.sameRecords(s.history(b.ID), begun("k", 1, `"other"`), asked("q", time.Time{}))
	s.ok(s.j.Cancel(ctx, b.ID, job.Cancellation{At: noon}))
	if got := s.get(a.ID); got.Cancel != nil {
		s.Error("the other tenant's job is cancelled")
	}
}

func (s suite) sideBySide() {
	const jobs, steps = 8, 20
	for i := range jobs {
		s.create(fmt.Sprint(i))
	}
	leases := s.claimAll(noon, jobs)
	if len(leases) != jobs {
		s.Fatalf("claimed %d", len(leases))
	}
	var all sync.WaitGroup
	for _, l := range leases {
		all.Go(func() {
			for n := range steps {
				key := fmt.Sprint(n)
				if err := s.j.Begin(ctx, l, []job.Record{begun(key, 1, `"`+l.Job+`"`)}); err != nil {
					s.Error(err)
				}
				if err := s.j.Keep(ctx, l, []job.Record{answered(key, `"`+l.Job+key+`"`)}); err != nil {
					s.Error(err)
				}
			}
		})
	}
	all.Wait()
	for _, l := range leases {
		var want []job.Record
		for n := range steps {
			key := fmt.Sprint(n)
			want = append(want, begun(key, 1, `"`+l.Job+`"`), answered(key, `"`+l.Job+key+`"`))
		}
		s.sameRecords(s.history(l.ID), want...)
	}
}
