package job

import (
	"context"
	"encoding/json"
	"fmt"
)

// Flow is the code of a kind of job.
type Flow struct {
	Name string
	// Shape numbers the newest way in which the code asks. A job keeps the
	// number it was made with, and the code must go on to do such a job as it
	// was done then: what was added later stands under "if in.Shape >= 2".
	Shape int
	// Oldest is the oldest shape that the code still knows.
	Oldest int
	Run    func(s Steps, in Order) (json.RawMessage, error)
}

// Flows are the flows of a program by name.
type Flows map[string]Flow

// NewFlows puts flows together. Two of one name, or none to run, is a mistake
// of the program: it panics.
func NewFlows(flows ...Flow) Flows {
	all := Flows{}
	for _, f := range flows {
		if _, twice := all[f.Name]; twice || f.Name == "" || f.Run == nil || f.Oldest > f.Shape {
			panic(fmt.Sprintf("job: flow %q is there twice, or cannot run", f.Name))
		}
		all[f.Name] = f
	}
	return all
}

// find gives the flow that goes on with a job.
func (f Flows) find(o Order) (Flow, error) {
	flow, ok := f[o.Flow]
	switch {
	case !ok:
		return Flow{}, fmt.Errorf("job %s is of flow %q, which this program does not have; run it with the version that made it, or a later one", o.ID, o.Flow)
	case o.Shape > flow.Shape:
		return Flow{}, fmt.Errorf("job %s has shape %d of flow %q, this program knows %d; run it with the version that made it, or a later one", o.ID, o.Shape, o.Flow, flow.Shape)
	case o.Shape < flow.Oldest:
		return Flow{}, fmt.Errorf("job %s has shape %d of flow %q, this program has dropped those before %d; run it with an older version, or cancel it", o.ID, o.Shape, o.Flow, flow.Oldest)
	}
	return flow, nil
}

// Handler carries out the calls of one kind. A failure of the effect is an
// answer with a Failure. An error says that the effect did not happen, or failed
// in a way that is known; it becomes a Failure of kind [Broken]. After the end of
// ctx a handler should return soon; ctx has the [Attempt].
type Handler func(ctx context.Context, c Call) (Answer, error)

// Handlers are the handlers by kind.
type Handlers map[string]Handler

// Attempt says which try of which call a handler is in.
type Attempt struct {
	ID
	Agent string // whose job it is
	Key   string
	Try   int
}

type attemptKey struct{}

// AttemptOf gives the attempt that ctx belongs to.
func AttemptOf(ctx context.Context) (Attempt, bool) {
	a, ok := ctx.Value(attemptKey{}).(Attempt)
	return a, ok
}
