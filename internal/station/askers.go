package station

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/belay-run/belay/internal/approval"
	"github.com/belay-run/belay/internal/job"
)

// mostAskers bounds what is remembered; the oldest goes first.
const mostAskers = 20_000

// askers remembers which job asked what, so that one approval is found without
// reading what all jobs have asked. What it does not know is looked for.
type askers struct {
	mu    sync.Mutex
	jobs  map[string]job.ID // by the approval's id
	order []string
}

func (a *askers) remember(id job.ID, key string) {
	name := approval.ID(id.Tenant, id.Job, key)
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, known := a.jobs[name]; known {
		return
	}
	if a.jobs == nil {
		a.jobs = map[string]job.ID{}
	}
	a.jobs[name] = id
	if a.order = append(a.order, name); len(a.order) > mostAskers {
		delete(a.jobs, a.order[0])
		a.order = a.order[1:]
	}
}

func (a *askers) who(name string) (job.ID, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	id, known := a.jobs[name]
	return id, known
}

// question finds an approval of a tenant by its id, if it is remembered who asked.
func (s *Station) question(ctx context.Context, tenant, name string) (w waiting, known bool, err error) {
	id, known := s.askers.who(name)
	if !known || id.Tenant != tenant {
		return waiting{}, false, nil
	}
	h, err := s.journal.History(ctx, id)
	if errors.Is(err, job.ErrNoJob) {
		return waiting{}, false, nil
	}
	if err != nil {
		return waiting{}, false, err
	}
	all := questionsOf(h)
	at := slices.IndexFunc(all, func(w waiting) bool { return w.ID == name })
	if at < 0 {
		return waiting{}, false, nil
	}
	return all[at], true, nil
}
