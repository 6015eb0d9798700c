// Package hooktest is the suite that every host of hooks must pass: whatever
// language its hooks are written in, the engine's promises hold.
//
// A host's test says how to make hooks that behave as asked, and runs it:
//
//	func TestHost(t *testing.T) {
//		hooktest.Run(t, func(t *testing.T, specs ...hooktest.Spec) []*hook.Hook {
//			return startMyHost(t, specs).Hooks()
//		})
//	}
//
// The suite looks at the host only through [hook.Engine]: at results, at the
// lines of the trace, and at the clock.
package hooktest

import (
	"context"
	"encoding/json"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/belay-run/belay/hook"
)

// Maker makes the hooks of one host, in the order of the specs, all living
// together. It starts what the host needs and cleans it up with t.Cleanup. A
// behaviour that the host cannot express is skipped: the Maker calls t.Skip with
// the reason.
//
// Each hook has a name, its point, lane, limit, the place where it is defined
// (File and Line), and Func or Host.
type Maker func(t *testing.T, specs ...Spec) []*hook.Hook

// Room is how much later than its limit a hook's failure may reach the caller on
// a busy machine. (On an idle one the bound is 50 ms; hosts test that on their
// own.)
const Room = 750 * time.Millisecond

// Run runs the suite.
func Run(t *testing.T, m Maker) {
	t.Run("goes on", m.goesOn)
	t.Run("payload", m.payload)
	t.Run("signals", m.signals)
	t.Run("failures", m.failures)
	t.Run("time", m.time)
	t.Run("observers", m.observers)
	t.Run("state and order", m.order)
	t.Run("many at once", m.many)
}

// rig is an engine over hooks of the host, with what its recorder was told.
type rig struct {
	*testing.T
	engine *hook.Engine
	mu     sync.Mutex
	seen   []hook.Run
}

// rig starts hooks and asks one more, which passes on, so that the host is warm.
func (m Maker) rig(t *testing.T, specs ...Spec) *rig {
	t.Helper()
	warm := modify(PassOn, hook.KnowledgeQuery).within(30 * time.Second)
	r := &rig{T: t}
	hooks := m(t, append(specs[:len(specs):len(specs)], warm)...)
	if len(hooks) != len(specs)+1 {
		t.Fatalf("asked for %d hooks, got %d", len(specs)+1, len(hooks))
	}
	for i, s := range append(specs[:len(specs):len(specs)], warm) {
		if h := hooks[i]; h.Point != s.Point || h.Lane != s.Lane || h.Final != s.Final || (s.Limit != 0 && h.Limit != s.Limit) {
			t.Fatalf("hook %d is %s at %s in lane %s with limit %v, asked for %+v", i, h.Name, h.Point.Name, h.Lane, h.Limit, s)
		}
	}
	engine, err := hook.NewEngine(hook.RecorderFunc(r.record), hooks...)
	if err != nil {
		t.Fatal(err)
	}
	r.engine = engine
	t.Cleanup(engine.Wait)
	r.alive()
	return r
}

func (r *rig) record(run hook.Run) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, run)
}

// watched returns the trace lines of observers, once all have answered.
func (r *rig) watched() []hook.Run {
	r.engine.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []hook.Run
	for _, run := range r.seen {
		if run.Lane == hook.Observe {
			out = append(out, run)
		}
	}
	return out
}

// alive says that the host still serves.
func (r *rig) alive() {
	r.Helper()
	p := payload(hook.KnowledgeQuery).Set("query", "anyone there?")
	if res := r.run(context.Background(), p); res.Kind != hook.Continue || res.Changed {
		r.Fatalf("the host does not serve: %s", describe(res))
	}
}

// run asks the chain at the payload's point for the payload's sender.
func (r *rig) run(ctx context.Context, p hook.Payload) hook.Result {
	return r.engine.Run(ctx, r.engine.Chain(p.Point(), hook.Who{}), p, hook.Asker{Key: p.Text("sender_id"), Turn: "turn-1"})
}

func (r *rig) ask(p hook.Payload) hook.Result { return r.run(context.Background(), p) }

// one returns the only trace line of a result.
func (r *rig) one(res hook.Result) hook.Run {
	r.Helper()
	if len(res.Runs) != 1 {
		r.Fatalf("want one line in the trace, got %d: %s", len(res.Runs), describe(res))
	}
	return res.Runs[0]
}

func payload(point string) hook.Payload {
	return hook.NewPayload(hook.PointNamed(point)).Set("sender_id", "ann").
		Set("channel", map[string]any{"name": "rest", "metadata": map[string]any{"n": 1}})
}

func incoming(text string) hook.Payload { return payload(hook.IncomingMessage).Set("text", text) }

func response(text string) hook.Payload { return payload(hook.ModelResponse).Set("text", text) }

// request is a model request with what a careless host would damage: a number
// beyond a float's precision, keys that nobody knows, nulls, escapes.
func request() hook.Payload {
	return payload(hook.ModelRequest).Set("messages", json.RawMessage(`[
		{"role":"user","content":"Grüße 🎉 \"quoted\" \\ \n \u0000 \u2028 <b>&amp;</b>","meta":{"tags":["a"],"id":9007199254740993,"none":null}},
		{"role":"assistant","content":null,"x_vendor":{"deep":[[1,2],{"k":[]}]}}]`)).
		Set("tool_names", []string{"book", "search_knowledge"}).Set("iteration", 2)
}

func describe(res hook.Result) string {
	b, err := json.Marshal(struct {
		Result hook.Result
		Runs   []hook.Run
	}{res, res.Runs})
	if err != nil {
		return err.Error()
	}
	if len(b) > 2000 {
		b = append(b[:2000], "…"...)
	}
	return string(b)
}

// unchanged says that the named fields hold the very bytes they held before.
func (r *rig) unchanged(before, after hook.Payload, but ...string) {
	r.Helper()
	for i, f := range before.Point().Fields {
		if contains(but, f.Name) {
			continue
		}
		if string(before.Raw(i)) != string(after.Raw(i)) {
			r.Errorf("%s was %s and is %s", f.Name, before.Raw(i), after.Raw(i))
		}
	}
}

// holds says that a field holds the JSON value of want, however it is spelled.
func (r *rig) holds(p hook.Payload, field, want string) {
	r.Helper()
	if got := string(p.Get(field)); !sameValue(r.T, got, want) {
		r.Errorf("%s holds %.300s, want %.300s", field, got, want)
	}
}

func sameValue(t *testing.T, a, b string) bool {
	t.Helper()
	return reflect.DeepEqual(decode(t, a), decode(t, b))
}

func contains(names []string, name string) bool {
	for _, n := range names {
		if n == name {
			return true
		}
	}
	return false
}
