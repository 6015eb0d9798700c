package station

import (
	"context"
	"errors"
	"time"

	"github.com/belay-run/belay/internal/agentjob"
	"github.com/belay-run/belay/internal/job"
	"github.com/belay-run/belay/internal/mcphost"
)

// sweepGrace is how long processes have to end.
const sweepGrace = 20 * time.Second

// sweep ends the processes of snapshots that nobody needs any more: no tenant has
// them installed and no job under way is pinned to them. Without it each version of
// a plugin would keep its servers for as long as the station runs. They end beside
// what comes next; Close waits for them.
func (s *Station) sweep(ctx context.Context) {
	s.pinning.Lock() // no job is being pinned meanwhile
	defer s.pinning.Unlock()
	needed, err := s.needed(ctx)
	if err != nil {
		s.cfg.Logger.Warn("servers of former versions of plugins go on", "error", err)
		return
	}
	servers, folders := s.servers.drop(needed), s.folders.drop(needed)
	if len(servers)+len(folders) == 0 {
		return
	}
	s.sweeping.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sweepGrace)
		defer cancel()
		var errs []error
		for _, server := range servers {
			errs = append(errs, server.Close(ctx))
		}
		for _, f := range folders {
			f.engine.Wait()
			errs = append(errs, f.host.Close(ctx))
		}
		if err := errors.Join(errs...); err != nil {
			s.cfg.Logger.Warn("a former version of a plugin did not end as it should", "error", err)
		}
	})
}

// needed are the digests of the snapshots that are installed, or that jobs under way
// are pinned to.
func (s *Station) needed(ctx context.Context) (map[string]bool, error) {
	needed := map[string]bool{}
	tenants, err := s.store.AuditTenants(ctx) // who has installed something has a record of it
	if err != nil {
		return nil, err
	}
	for _, tenant := range tenants {
		plugins, err := s.store.Plugins(ctx, tenant)
		if err != nil {
			return nil, err
		}
		for _, p := range plugins {
			needed[p.Digest] = true
		}
		jobs, err := s.journal.List(ctx, job.Filter{Tenant: tenant, States: []job.State{job.Running, job.Waiting}})
		if err != nil {
			return nil, err
		}
		for _, j := range jobs {
			whole, err := s.journal.Get(ctx, j.ID)
			if err != nil {
				return nil, err
			}
			spec, err := agentjob.Read(whole.Input)
			if err != nil {
				return nil, err
			}
			for _, t := range spec.Tools {
				needed[t.Digest] = true
			}
		}
	}
	return needed, nil
}

// drop takes out the servers of snapshots that are not needed.
func (s *servers) drop(needed map[string]bool) (out []*mcphost.Server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, server := range s.open {
		if !needed[key.Digest] {
			out = append(out, server)
			delete(s.open, key)
		}
	}
	return out
}

// drop takes out the folders of snapshots that are not needed.
func (f *folders) drop(needed map[string]bool) (out []*openFolder) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for ref, o := range f.open {
		if !needed[ref.Digest] {
			out = append(out, o)
			delete(f.open, ref)
		}
	}
	return out
}
