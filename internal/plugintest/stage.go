package plugintest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belay-run/belay/internal/agentjob"
	"github.com/belay-run/belay/internal/approval"
	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/job"
	"github.com/belay-run/belay/internal/job/jobtest"
	"github.com/belay-run/belay/internal/localjob"
	"github.com/belay-run/belay/internal/plugin"
	"github.com/belay-run/belay/internal/rawjson"
	"github.com/belay-run/belay/internal/station"
)

// stage is where cases run: the plugin's servers, and an engine whose journal is in
// memory. Cases run one after another, each as a job of its own.
type stage struct {
	cfg     Config
	bench   *station.Workbench
	real    job.Handlers // of the workbench
	journal *journal
	engine  *localjob.Engine
	down    []string     // ids of tools whose servers cannot be asked
	calls   atomic.Int64 // numbers the ids that are made

	mu    sync.Mutex
	plays map[string]*played // by the job's id
	count int
}

func openStage(cfg Config) (*stage, error) {
	s := &stage{cfg: cfg, plays: map[string]*played{}}
	s.journal = &journal{Memory: jobtest.NewMemory(), moved: s.moved}
	s.bench = station.NewWorkbench(station.WorkbenchConfig{Manifest: cfg.Manifest, Journal: s.journal, Model: s.model, Version: cfg.Version, Logger: cfg.Logger,
		NewID: func() string { return fmt.Sprintf("call-%d", s.calls.Add(1)) }})
	s.real = s.bench.Handlers()
	handlers := s.bench.Handlers()
	handlers[agentjob.KindFunctions], handlers[agentjob.KindTool] = s.functions, s.tool
	pinned := s.bench.Pinned()
	pinned.Told = s.told
	var err error
	s.engine, err = localjob.Start(localjob.Options{Journal: s.journal, Flows: job.NewFlows(agentjob.New(pinned), agentjob.NewEvent(pinned)), Handlers: handlers, Logger: cfg.Logger})
	return s, err
}

func (s *stage) close(ctx context.Context) error {
	return errors.Join(s.engine.Close(ctx), s.bench.Close(ctx))
}

// journal says when a job has come to rest: it waits for people in all its branches,
// or it has ended.
type journal struct {
	*jobtest.Memory
	moved func(job.ID)
}

func (j *journal) Park(ctx context.Context, l job.Lease, p job.Parking) error {
	err := j.Memory.Park(ctx, l, p)
	if err == nil {
		j.moved(l.ID)
	}
	return err
}

func (j *journal) End(ctx context.Context, l job.Lease, e job.End, at time.Time) error {
	err := j.Memory.End(ctx, l, e, at)
	if err == nil {
		j.moved(l.ID)
	}
	return err
}

// played is a case that runs.
type played struct {
	c       *Case
	rest    chan struct{} // has room for one: the job has come to rest
	answers []*Answer     // of people, that were not used yet

	mu    sync.Mutex
	heard map[string]bool // keys of hooks' questions that were told of
	read  map[string]bool // results that the model has read
	given map[string]int  // by function: how many canned results
	seen  seen
}

// seen is what came of a case.
type seen struct {
	end     job.End
	waiting bool // for a person, and nobody answered
	told    []agentjob.Told
	calls   []made
	reads   []reading
	asked   []approval.Request
	unused  []*Answer
	notes   []string
	wrong   string // an answer of a person that does not answer what was asked
}

// made is a call that reached its tool.
type made struct {
	key       string
	name      string
	arguments json.RawMessage
}

// reading is what the model read as the result of a call.
type reading struct{ tool, text string }

func (s *stage) moved(id job.ID) {
	if p := s.of(id); p != nil {
		select {
		case p.rest <- struct{}{}:
		default:
		}
	}
}

func (s *stage) of(id job.ID) *played {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.plays[id.Job]
}

func (s *stage) told(t agentjob.Told) {
	p := s.of(job.ID{Job: t.Job})
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.heard[t.Key] {
		p.heard[t.Key] = true
		p.seen.told = append(p.seen.told, t)
	}
}

// play runs a case as a job. The error says why it could not be run to its end.
func (s *stage) play(ctx context.Context, c *Case) (*seen, error) {
	p := &played{c: c, rest: make(chan struct{}, 1), heard: map[string]bool{}, read: map[string]bool{}, given: map[string]int{}}
	s.mu.Lock()
	s.count++
	name := fmt.Sprintf("test-%d", s.count)
	id := job.ID{Tenant: name, Job: name} // each case is its own tenant's: it may have secrets
	s.plays[id.Job] = p
	s.mu.Unlock()
	if err := s.bench.Know(id.Tenant, c.Secrets); err != nil {
		return nil, err
	}
	models := map[string]chat.Model{}
	for name, script := range c.Models {
		models[name] = script
	}
	s.bench.Models(id.Tenant, models)
	order := job.Order{ID: id}
	answers := []Answer(nil)
	if c.Event != nil {
		order.Flow, order.Agent, order.Input = agentjob.EventFlow, c.Event.Agent, rawjson.Must(s.eventSpec(c.Event))
		answers = c.Event.Approvals
	} else {
		spec := s.jobSpec(c.Job)
		order.Flow, order.Agent, order.Input = agentjob.Flow, spec.Agent.Name, rawjson.Must(spec)
		answers = c.Job.Approvals
	}
	for i := range answers {
		p.answers = append(p.answers, &answers[i])
	}
	if _, err := s.engine.Submit(ctx, order); err != nil {
		return nil, err
	}
	err := s.attend(ctx, id, p)
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.seen
	out.unused = p.answers
	out.told, out.calls = slices.Clone(out.told), slices.Clone(out.calls) // a call that was given up may go on
	arrange(out.told, func(t *agentjob.Told) string { return t.Key })
	arrange(out.calls, func(m *made) string { return m.key })
	return &out, err
}

// attend answers what people are asked until the job has ended, or waits for an answer
// that the case does not have.
func (s *stage) attend(ctx context.Context, id job.ID, p *played) error {
	known := map[string]bool{}
	for {
		select {
		case <-p.rest:
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), s.cancel(ctx, id))
		}
		j, err := s.journal.Get(ctx, id)
		switch {
		case err != nil:
			return err
		case j.State.Ended():
			p.seen.end = *j.End
			return nil
		case j.State != job.Waiting:
			continue
		}
		decided, err := s.answer(ctx, id, p, known)
		if err != nil {
			return err
		}
		if !decided {
			p.seen.waiting = true
			return s.cancel(ctx, id)
		}
	}
}

// answer gives the case's answer to one of the questions that wait. Each is asked
// anew when the job has come to rest again, so that answers come in order.
func (s *stage) answer(ctx context.Context, id job.ID, p *played, known map[string]bool) (bool, error) {
	pending, err := s.journal.Pending(ctx, id.Tenant)
	if err != nil {
		return false, err
	}
	arrange(pending, func(q *job.Pending) string { return q.Key })
	requests := make([]approval.Request, len(pending))
	for i, q := range pending {
		if requests[i], err = approval.Read(q.Question.Input); err != nil {
			return false, err
		}
		if !known[q.Key] {
			known[q.Key] = true
			p.seen.asked = append(p.seen.asked, requests[i])
		}
	}
	for i, q := range pending {
		a, ok := p.reply(&requests[i])
		if !ok {
			continue
		}
		if err := requests[i].Check(a); err != nil {
			p.seen.wrong = fmt.Sprintf("asked %s: %v", showRequest(&requests[i]), err)
			return false, nil
		}
		return true, s.engine.Decide(ctx, job.Decision{ID: id, Key: q.Key, Digest: q.Digest, Answer: job.Answer{Value: rawjson.Must(a)}, By: a.By})
	}
	return false, nil
}

// reply is the case's answer to a question.
func (p *played) reply(req *approval.Request) (approval.Answer, bool) {
	if e := p.c.Event; e != nil && (e.Approvals == nil || req.Kind == approval.Annotation) {
		if req.Kind == approval.Annotation {
			p.seen.notes = append(p.seen.notes, fmt.Sprintf("a person is asked before %s is: it does not declare what it does; here they say yes", req.Tool))
		}
		return approval.Answer{Yes: true, By: "test"}, true
	}
	for i, a := range p.answers {
		if a.Tool == "" || a.Tool == req.Tool {
			p.answers = slices.Delete(slices.Clone(p.answers), i, i+1)
			out := a.Answer
			out.By = "test"
			return out, true
		}
	}
	return approval.Answer{}, false
}

// cancel ends a job that does not end by itself, and waits for that.
func (s *stage) cancel(ctx context.Context, id job.ID) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
	defer cancel()
	err := s.engine.Cancel(ctx, id, job.Cancellation{By: "test", Reason: "the case is over"})
	if errors.Is(err, job.ErrEnded) {
		return nil
	}
	if err == nil {
		_, err = s.engine.Wait(ctx, id)
	}
	return err
}

func (s *stage) eventSpec(e *Event) agentjob.EventSpec {
	spec := &agentjob.Spec{Agent: agentjob.Agent{Name: e.Agent, Provider: e.Provider, Model: e.Model}, Input: e.Input}
	if spec.Input == nil {
		spec.Input = rawjson.Must("")
	}
	s.bench.Pin(spec)
	return agentjob.EventSpec{Spec: spec, Event: e.On.Name, Fields: e.Fields}
}

// elsewhere is the plugin of tools that only the case has.
const elsewhere = "of the case"

func (s *stage) jobSpec(j *Job) *agentjob.Spec {
	spec := &agentjob.Spec{Input: j.Input, By: "test", Policy: j.Policy}
	at := slices.IndexFunc(s.cfg.Manifest.Agents, func(a plugin.Agent) bool { return a.ID == j.Agent.Text })
	if at >= 0 && j.Inline == nil {
		s.bench.Agent(spec, &s.cfg.Manifest.Agents[at])
	} else {
		d := plugin.DefaultLimits
		spec.Agent = agentjob.Agent{Name: j.Agent.Text, Limits: agentjob.Limits{Iterations: d.Iterations, ToolCalls: d.ToolCalls, Work: d.WallTime}}
	}
	spec.Agent.Provider, spec.Agent.Model = j.Provider, j.Model
	s.bench.Pin(spec)
	for _, c := range j.Tools {
		tool, _, _ := strings.Cut(c.Text, ".")
		if !slices.ContainsFunc(spec.Tools, func(t agentjob.Tool) bool { return t.ID == tool }) {
			spec.Tools = append(spec.Tools, agentjob.Tool{ID: tool, Plugin: elsewhere})
		}
	}
	if j.Inline != nil {
		spec.Agent.Instructions, spec.Agent.Tools = j.Inline.Instructions, j.Inline.Tools
	}
	if at < 0 && (j.Inline == nil || j.Inline.Tools == nil) {
		for _, t := range spec.Tools {
			spec.Agent.Tools = append(spec.Agent.Tools, t.ID+".*")
		}
	}
	return spec
}

// model is what answers in the place of a job's model.
func (s *stage) model(_ context.Context, id job.ID) (chat.Model, error) {
	p := s.of(id)
	if p == nil || p.c.Job == nil || p.c.Job.Script == nil {
		return nil, errors.New("the case has no model; write model: with rules")
	}
	return &listener{p}, nil
}
