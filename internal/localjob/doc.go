// Package localjob runs durable jobs in this process, over a journal.
//
//	engine, err := localjob.Start(localjob.Options{Journal: store.Jobs(), Flows: flows, Handlers: handlers, Logger: logger})
//	id, err := engine.Submit(ctx, job.Order{ID: job.ID{Tenant: "main"}, Flow: "merge", Input: input})
//	err = engine.Decide(ctx, job.Decision{ID: id, Key: "approve", Digest: seen, Answer: yes, By: "ann"})
//	done, err := engine.Wait(ctx, id)
//	err = engine.Close(ctx)
//
// One goroutine claims the jobs that are ready, as many as may run at once; each
// runs as a [job.Run]. It claims when something happens here (a job was made, a
// decision came, a run ended) and when the next deadline comes, so nothing waits
// for a poll; a slow poll is the safety net for what happens elsewhere. A job
// whose branches all wait is parked and has no goroutine.
//
// What a process left behind is claimed when its lease runs out. A store that
// one process owns, such as sqlstore's, voids the leases of the owner before, so
// that every unfinished job goes on at once.
//
// [Engine.Close] lets steps that run end, for a while; then they are cancelled.
// Their jobs are given back and go on with the next process.
package localjob
