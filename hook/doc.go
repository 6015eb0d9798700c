// Package hook runs checks around what an AI agent does.
//
// At an insertion point a chain of hooks runs over a payload. A point is a row of
// the table [Points]: before a message is stored, before a model is called,
// before a tool runs, and so on. A hook stands at one point, in one of two lanes:
// it looks on ([Observe]) and nothing waits for it, or it decides ([Modify]) and
// answers within its time limit with a verdict:
//
//	go on, perhaps with changes    Go(p.Change("text", "****"))
//	reject                         RejectFor("not our business")
//	ask the model again            RetryWith("no such booking; look again")
//	hold for a person              HoldFor("more than 500 euros")
//
// A hook written in Go is a [Func]; a hook that lives elsewhere is asked through
// a [Host]. An [Engine] holds the hooks and asks them:
//
//	mask := &hook.Hook{
//		Name:  "mask",
//		Point: hook.PointNamed(hook.IncomingMessage),
//		Lane:  hook.Modify,
//		Func: func(ctx context.Context, p hook.Payload) (hook.Verdict, error) {
//			text := digits.ReplaceAllString(p.Text("text"), "#")
//			return hook.Go(p.Change("text", text)), nil
//		},
//	}
//	engine, err := hook.NewEngine(recorder, mask)
//	…
//	result := engine.Run(ctx, engine.Chain(p.Point(), hook.Who{}), p, asker)
//
// result.Kind says what follows, result.Payload what goes on, and result.Runs is
// the trace: which hooks were asked, what each said, what it changed, what did
// not count and why.
//
// # What holds
//
// Modify hooks run in order, one after another; each sees what the one before it
// left. The first that rejects or retries ends the chain.
//
// A hook that crashes, runs out of time or gives an answer that cannot be used
// has failed, and a policy decides: open (the payload goes on as it was before
// the hook), closed (reject), or hold. A policy is for failures alone. A verdict
// that the hook may not give is dropped and logged at the points of a turn, and
// is a failure at the points of a job, except of a hook that may only go on or
// hold: whatever else it answers is a hold.
//
// The zero [Verdict], [Answer] and [Result] reject. Read-only fields are put
// back. A value that does not fit its field's [Shape] is a failure.
//
// A person's yes is bound to what the person was shown ([State.Digest]). When the
// payload changes afterwards, the person is asked once more, with every reason.
//
// # Under the engine
//
// A chain is a fold over a [State], which is data: [Begin], then as long as
// [State.Next] says so an answer to [State.Fold] or a decision to
// [State.Decide]. The same answers give the same states. Whoever keeps answers,
// as a durable job does, drives the fold itself, asks through [Engine.Ask] and
// [Engine.Watch], writes the state down as JSON, and goes on with [Resume].
//
// Package hooktest is the suite that every host of hooks must pass.
package hook
