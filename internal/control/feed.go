package control

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/belay-run/belay/internal/access"
	"github.com/belay-run/belay/internal/httpio"
	"github.com/belay-run/belay/internal/rawjson"
)

// The events of the feed of approvals.
const (
	feedWaiting = "waiting" // an approval: something waits
	feedDecided = "decided" // an approval: it does not wait any more
	feedReady   = "ready"   // {}: all that waited at the beginning has been told
	feedError   = "error"   // a problem: the feed ends
)

func feedRoute(api huma.API) huma.Operation {
	op := route(access.Viewer, http.MethodGet, "/v1/approvals/feed", "followApprovals", "approvals", "Follow what waits for a person",
		"A stream of events: waiting {approval} for each that waits, first those that do already, then ready {}; decided {approval} for each that does not any more; and error {problem} before the server ends the feed. "+
			"Whoever was away begins anew and is told what waits by then.")
	op.Responses = map[string]*huma.Response{"200": {Description: "The events.", Content: map[string]*huma.MediaType{
		"text/event-stream": {Schema: &huma.Schema{Type: huma.TypeString}},
	}}}
	api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[Approval](), true, "")
	return op
}

func (s *Server) feed(_ context.Context, _ *struct{}) (*huma.StreamResponse, error) {
	return &huma.StreamResponse{Body: func(c huma.Context) {
		r, w := humago.Unwrap(c)
		f := &feed{s: s, w: w.(*httpio.Writer), visitor: visitorOf(r.Context()), known: map[string]bool{}} // guard put it there
		f.run(r.Context())
	}}, nil
}

// feed tells one client of the tenant's approvals. It compares what waits with what
// it has told, so that no event can be lost: a client that is slow is told of many
// changes at once.
type feed struct {
	s       *Server
	w       *httpio.Writer
	visitor visitor
	known   map[string]bool // ids that the client was told of and that wait
}

func (f *feed) run(ctx context.Context) {
	changed, stop := f.s.service.Approvals.ApprovalChanges(f.visitor.tenant)
	defer stop()
	f.w.Header().Set("Content-Type", "text/event-stream")
	f.w.Header().Set("X-Accel-Buffering", "no") // a proxy in front must not gather it
	f.w.WriteHeader(http.StatusOK)
	beat := time.NewTicker(f.s.cfg.beat)
	defer beat.Stop()
	if !f.tell(ctx) || !f.send(feedReady, struct{}{}) {
		return
	}
	for {
		if f.w.FlushError() != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-f.s.closing:
			f.end(Refuse(Unavailable, "the server is stopping", "connect again later"))
			return
		case _, ok := <-changed:
			if !ok {
				f.end(Refuse(Unavailable, "the feed has ended", "connect again"))
				return
			}
		case <-beat.C:
			if _, err := f.w.Write([]byte(": still here\n\n")); err != nil {
				return
			}
		}
		if !f.mayStay(ctx) || !f.tell(ctx) {
			return
		}
	}
}

// mayStay looks whether the token still holds.
func (f *feed) mayStay(ctx context.Context) bool {
	who, err := f.s.service.Gate.Check(ctx, f.visitor.token)
	if err == nil {
		err = who.May(f.visitor.tenant, access.Viewer)
	}
	if err != nil && ctx.Err() == nil {
		f.end(f.s.problem(ctx, "check a token", err))
	}
	return err == nil
}

// tell sends what has changed since the last time, and says whether to go on.
func (f *feed) tell(ctx context.Context) bool {
	all, err := f.s.service.Approvals.Approvals(ctx, f.visitor.tenant, ApprovalFilter{Waiting: true})
	if err != nil {
		return f.broke(ctx, err)
	}
	gone := f.known
	f.known = make(map[string]bool, len(all))
	for _, a := range all {
		f.known[a.ID] = true
		if !gone[a.ID] && !f.send(feedWaiting, a.brief()) {
			return false
		}
		delete(gone, a.ID)
	}
	for id := range gone {
		a, err := f.s.service.Approvals.Approval(ctx, f.visitor.tenant, id)
		if err != nil {
			return f.broke(ctx, err)
		}
		if !f.send(feedDecided, a.brief()) {
			return false
		}
	}
	return true
}

func (f *feed) broke(ctx context.Context, err error) bool {
	if ctx.Err() == nil {
		f.end(f.s.problem(ctx, "follow approvals", err))
	}
	return false
}

func (f *feed) end(p *Problem) {
	if f.send(feedError, p) {
		_ = f.w.FlushError() // the writer keeps what failed
	}
}

// send writes an event, and says whether the client is still there.
func (f *feed) send(name string, data any) bool {
	raw, err := rawjson.Encode(data)
	if err != nil { // what the service gave as JSON is none
		f.s.log.Error("cannot write an event of the feed", "event", name, "error", err)
		return false
	}
	_, err = fmt.Fprintf(f.w, "event: %s\ndata: %s\n\n", name, raw)
	return err == nil
}
