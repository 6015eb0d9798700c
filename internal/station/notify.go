package station

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belay-run/belay/internal/approval"
	"github.com/belay-run/belay/internal/control"
	"github.com/belay-run/belay/internal/job"
	"github.com/belay-run/belay/internal/notice"
	"github.com/belay-run/belay/internal/rawjson"
)

// Who is told when something waits for a person.
const (
	webhookTarget = "webhook"
	commandTarget = "command"
)

const waitingEvent = "approval.waiting"

// Waits is what approvers are told: names and ids, never what was said. The rest is
// at GET /v1/approvals/{id}, for who may see it.
type Waits struct {
	Event    string        `json:"event"` // approval.waiting
	Tenant   string        `json:"tenant"`
	Approval WaitsApproval `json:"approval"`
}

// WaitsApproval is what waits.
type WaitsApproval struct {
	ID    string        `json:"id"`
	Kind  approval.Kind `json:"kind"`
	Job   string        `json:"job"`
	Agent string        `json:"agent"`
	Event string        `json:"event,omitempty"`
	Tool  string        `json:"tool,omitempty"`
	By    []string      `json:"by,omitempty"` // the hooks or rules that ask for it
	Role  string        `json:"role,omitempty"`
	Asked time.Time     `json:"asked"`
	Until time.Time     `json:"until,omitzero"` // then the answer is no
}

// teller tells people that something waits for them. What it is to tell is on disk
// before it is told; what a process had no time to write down, the next one finds
// among the questions that wait.
// A nil teller tells nobody.
type teller struct {
	station *Station
	log     *slog.Logger
	courier *notice.Courier
	targets []string
	webhook *control.Webhook // nil for none
	problem string           // why somebody is not told; "" when all are

	writes sync.Mutex // held while the queue is written down
	mu     sync.Mutex
	queue  []notice.Message
	kick   chan struct{} // has room for one

	end  context.CancelFunc
	work sync.WaitGroup

	failed atomic.Int64 // tries
}

// newTeller returns a teller for the people that the settings name.
func newTeller(s *Station) *teller {
	a := s.settings.Approvals
	t := &teller{station: s, log: s.cfg.Logger, kick: make(chan struct{}, 1)}
	senders := map[string]notice.Sender{}
	if a.WebhookURL != "" {
		w, err := s.webhook()
		if err != nil {
			t.problem = err.Error()
			t.log.Error("approvers are not told by webhook that something waits", "error", err)
		} else {
			t.webhook, senders[webhookTarget] = w, t.sending(w)
		}
	}
	if len(a.Command) > 0 {
		senders[commandTarget] = t.sending(&command{args: a.Command, dir: s.cfg.Data, without: s.secretVariables(), log: t.log})
	}
	for name := range senders {
		t.targets = append(t.targets, name)
	}
	t.courier = notice.NewCourier(s.store, senders, notice.Options{Clock: s.cfg.Clock, Logger: t.log, Limit: tellLimit, GiveUp: cmp.Or(a.Expiry, approval.Expiry)})
	return t
}

const (
	tellLimit = 30 * time.Second // of one try
	// tellLast is how long the end of a station waits for what is still to be told.
	tellLast = 10 * time.Second
	// tellAgain is how long the teller waits when the disk does not take what it is to
	// tell.
	tellAgain = 2 * time.Second
	// forgetAfter is longer than any question waits: what is forgotten earlier would be
	// told again.
	forgetAfter = 100 * 24 * time.Hour
)

func (s *Station) webhook() (*control.Webhook, error) {
	a := s.settings.Approvals
	secret, err := s.secret(a.SecretVariable)
	if err != nil {
		return nil, err
	}
	return control.NewWebhook(a.WebhookURL, secret, s.cfg.Clock)
}

// start finds what waits since before and goes on until close.
func (t *teller) start() {
	if t == nil {
		return
	}
	var ctx context.Context
	ctx, t.end = context.WithCancel(context.Background())
	if len(t.targets) == 0 {
		return
	}
	t.work.Go(func() { t.courier.Run(ctx) })
	t.work.Go(func() { t.run(ctx) })
}

// close writes down what is queued and lets what is due be told, for some time. No
// job may run any more.
func (t *teller) close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	var err error
	if len(t.targets) > 0 {
		if err = t.put(ctx); err == nil {
			t.settle(ctx)
		}
	}
	t.end()
	t.work.Wait()
	if t.webhook != nil {
		t.webhook.Close()
	}
	return err
}

// settle waits until everything that is due was tried once: whoever runs one job and
// goes should not leave it to the next process.
func (t *teller) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, tellLast)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for _, target := range t.targets {
		for {
			due, err := t.station.store.DueMessages(ctx, target, t.station.cfg.Clock(), 1)
			if err != nil || len(due) == 0 {
				break
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}
}

// kept hears what jobs have written. It must not block.
func (t *teller) kept(id job.ID, records []job.Record) {
	if t == nil || len(t.targets) == 0 {
		return
	}
	for _, r := range records {
		if r.What == job.Asked && r.Kind == approval.Question {
			t.tell(id, r.Key, r.Input, r.At, r.Until)
		}
	}
}

func (t *teller) tell(id job.ID, key string, input json.RawMessage, asked, until time.Time) {
	req, err := approval.Read(input)
	if err != nil {
		t.log.Error("a question cannot be told to people", "job", id.String(), "error", err)
		return
	}
	what := WaitsApproval{ID: approval.ID(id.Tenant, id.Job, key), Kind: req.Kind, Job: id.Job, Agent: req.Agent, Event: req.Event, Tool: req.Tool,
		Role: req.Role, Asked: asked.UTC(), Until: until.UTC()}
	if until.IsZero() {
		what.Until = time.Time{}
	}
	for _, reason := range req.Reasons {
		what.By = append(what.By, reason.By)
	}
	body := string(rawjson.Must(Waits{Event: waitingEvent, Tenant: id.Tenant, Approval: what}))
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, target := range t.targets {
		t.queue = append(t.queue, notice.Message{Tenant: id.Tenant, Target: target, Event: waitingEvent, Subject: what.ID, Body: body})
	}
	select {
	case t.kick <- struct{}{}:
	default:
	}
}

// run writes down what is to be told, first what waits since before.
func (t *teller) run(ctx context.Context) {
	looked := false
	for ctx.Err() == nil {
		var err error
		if !looked {
			err = t.look(ctx)
			looked = err == nil
		}
		if err == nil {
			err = t.put(ctx)
		}
		var again <-chan time.Time
		if err != nil && ctx.Err() == nil {
			t.log.Error("cannot write down what people are to be told; will try again", "error", err)
			again = time.After(tellAgain)
		}
		select {
		case <-ctx.Done():
		case <-t.kick:
		case <-again:
		}
	}
}

// look queues every question that waits: those that were told are not told again.
func (t *teller) look(ctx context.Context) error {
	if _, err := t.station.store.DropMessages(ctx, t.station.cfg.Clock().Add(-forgetAfter)); err != nil {
		return err
	}
	all, err := t.station.journal.Pending(ctx, "")
	if err != nil {
		return err
	}
	for _, p := range all {
		if p.Kind == approval.Question {
			t.tell(p.ID, p.Key, p.Input, p.Asked, p.Until)
		}
	}
	return nil
}

// put writes down what is queued.
func (t *teller) put(ctx context.Context) error {
	t.writes.Lock()
	defer t.writes.Unlock()
	t.mu.Lock()
	queue := t.queue
	t.queue = nil
	t.mu.Unlock()
	if len(queue) == 0 {
		return nil
	}
	err := t.courier.Put(ctx, queue...)
	if err != nil {
		t.mu.Lock()
		t.queue = append(queue, t.queue...)
		t.mu.Unlock()
	}
	return err
}

// sending is a sender that leaves out what waits no more, and counts.
func (t *teller) sending(to notice.Sender) notice.Sender {
	return notice.SenderFunc(func(ctx context.Context, m notice.Message) error {
		waits, err := t.waits(ctx, m)
		if err == nil && !waits {
			return notice.ErrMoot
		}
		if err == nil {
			err = to.Send(ctx, m)
		}
		if err != nil {
			t.failed.Add(1)
		}
		return err
	})
}

// waits says whether an approval still waits.
func (t *teller) waits(ctx context.Context, m notice.Message) (bool, error) {
	var told Waits
	if err := json.Unmarshal([]byte(m.Body), &told); err != nil {
		return false, fmt.Errorf("the message cannot be read: %w", err)
	}
	h, err := t.station.journal.History(ctx, job.ID{Tenant: m.Tenant, Job: told.Approval.Job})
	if errors.Is(err, job.ErrNoJob) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for _, a := range questionsOf(h) {
		if a.ID == m.Subject {
			return a.State == control.Waiting, nil
		}
	}
	return false, nil
}

// health says who is not told, nil when all are.
func (t *teller) health() map[string]string {
	switch {
	case t == nil:
		return nil
	case t.problem != "":
		return map[string]string{"approvals": "approvers are not told by webhook: " + t.problem}
	case t.failed.Load() > 0:
		return map[string]string{"approvals": fmt.Sprintf("%d tries to tell approvers have failed since the start", t.failed.Load())}
	}
	return nil
}

// mostMessages bounds how many of the newest messages are looked through.
const mostMessages = 500

// told says how often people could not be told.
func (c *checkup) told(target string, sent []notice.Message) {
	var late, lost int
	why := ""
	for _, m := range sent {
		if m.Target != target || !m.Sent.IsZero() || m.Tries == 0 || m.Failure == notice.ErrMoot.Error() {
			continue
		}
		if m.Due.IsZero() {
			lost++
		} else {
			late++
		}
		why = cmp.Or(why, m.Failure)
	}
	if late+lost > 0 {
		c.say(control.Warning, "approvals", "see whether it is up; those that still wait are tried again", "the %s does not take what it is told: %d are tried again, %d were given up; the newest: %s", target, late, lost, why)
	}
}
