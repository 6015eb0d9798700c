package station

import (
	"context"
	"slices"
	"sync"

	"github.com/belay-run/belay/internal/agentjob"
	"github.com/belay-run/belay/internal/control"
	"github.com/belay-run/belay/internal/job"
)

// ShadowReport implements [control.Hooks]. It runs the code of the newest jobs
// against their histories, as replay does, and counts what the answers of hooks
// that only look on come to.
func (s *Station) ShadowReport(ctx context.Context, tenant string, jobs int) (control.ShadowReport, error) {
	all, err := s.journal.List(ctx, job.Filter{Tenant: tenant, Limit: jobs})
	if err != nil {
		return control.ShadowReport{}, err
	}
	var out control.ShadowReport
	var counted agentjob.Shadows
	for _, j := range all {
		if j.Flow != agentjob.Flow {
			continue
		}
		whole, err := s.journal.Get(ctx, j.ID)
		if err != nil {
			return out, err
		}
		spec, err := agentjob.Read(whole.Input)
		if err != nil {
			return out, err
		}
		if !slices.ContainsFunc(spec.Hooks, func(h agentjob.Hook) bool { return h.Shadow }) {
			continue
		}
		told, read, err := s.toldOf(ctx, j.ID)
		if err != nil {
			return out, err
		}
		out.Jobs++
		if !read {
			out.Unread++
		}
		counted.Add(spec, told)
	}
	out.Hooks = counted.Report()
	return out, nil
}

// toldOf gives what the answers of hooks in a job came to, and whether its history
// reads as it was written.
func (s *Station) toldOf(ctx context.Context, id job.ID) (told []agentjob.Told, read bool, err error) {
	h, err := s.journal.History(ctx, id)
	if err != nil {
		return nil, false, err
	}
	var mu sync.Mutex // calls of one batch are run side by side
	flow := agentjob.New(agentjob.Pinned{Addition: s.addition, Told: func(t agentjob.Told) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, t)
	}})
	r := job.Replay(flow, h)
	mu.Lock()
	defer mu.Unlock()
	return told, len(r.Differences) == 0, nil
}
