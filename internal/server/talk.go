package server

import (
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"runtime/debug"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/belay-run/belay/internal/httpio"
	"github.com/belay-run/belay/internal/turn"
)

// turnHeader names the turn in an answer that does not say it itself.
const turnHeader = "Belay-Turn"

// Names of the channels, as hooks and tools see them.
const (
	channelWebhook = "rest"
	channelChat    = "http"
)

type webhookInput struct {
	Stream bool `query:"stream" doc:"Send each text as soon as it is ready, one JSON object a line."`
	Body   WebhookMessage
}

// WebhookMessage is a message that names its sender.
type WebhookMessage struct {
	Sender string `json:"sender" minLength:"1" doc:"The user's id; it names the conversation. At most 256 bytes, no control characters."`
	ChatMessage
}

// Resolve checks what the schema cannot say.
func (in *webhookInput) Resolve(huma.Context) []error {
	errs := in.Body.check()
	if in.Body.Sender != "" { // the schema speaks of a missing one
		errs = append(errs, checkID("body.sender", in.Body.Sender)...)
	}
	return errs
}

// Reply is a text for the user in the webhook's form.
type Reply struct {
	Recipient string `json:"recipient_id"`
	Text      string `json:"text"`
}

func webhookOperation(api huma.API) huma.Operation {
	op := operation(http.MethodPost, "/webhooks/rest/webhook", "webhook", "talk", "Say something and get the answer's texts",
		"Runs one turn. Turns of one conversation run one after another: a message waits for the one before, unless it interrupts it. A client that goes away cancels its turn.",
		talkErrors...)
	registry := api.OpenAPI().Components.Schemas
	op.Responses = map[string]*huma.Response{"200": {Description: "The texts, in order; with ?stream=true one object a line. A line {\"error\": problem} is the last when the turn broke off.", Content: map[string]*huma.MediaType{
		"application/json":     {Schema: registry.Schema(typeOf[[]Reply](), true, "")},
		"application/x-ndjson": {Schema: registry.Schema(typeOf[Reply](), true, "")},
	}}}
	return op
}

var talkErrors = []int{http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusTooManyRequests, http.StatusServiceUnavailable}

func (s *Server) webhook(_ context.Context, in *webhookInput) (*huma.StreamResponse, error) {
	inbound := in.Body.inbound(in.Body.Sender, channelWebhook)
	return answer(func(ctx context.Context, w *httpio.Writer) {
		if in.Stream {
			s.stream(ctx, w, inbound, &lines{recipient: inbound.Sender})
			return
		}
		s.whole(ctx, w, inbound, func(_ turn.Report, texts []turn.Utterance) any {
			out := make([]Reply, len(texts))
			for i, u := range texts {
				out[i] = Reply{inbound.Sender, u.Text}
			}
			return out
		})
	}), nil
}

type chatInput struct {
	About
	Accept string `header:"Accept" hidden:"true"` // the response's content types say it
	Body   ChatMessage
}

// Resolve checks what the schema cannot say.
func (in *chatInput) Resolve(c huma.Context) []error {
	return append(in.About.Resolve(c), in.Body.check()...)
}

// Answer is a whole answer in the chat's form.
type Answer struct {
	Turn   string `json:"turn_id"`
	Status string `json:"status" enum:"completed,cancelled,error"`
	Ended  bool   `json:"ended,omitempty" doc:"The session is over."`
	Texts  []Said `json:"texts"`
}

// Said is a text for the user.
type Said struct {
	Text   string `json:"text"`
	Source string `json:"source" doc:"Where it is from: llm, filler, verbatim (a fixed text) or rephrased."`
	// Streamed is only of use in a stream.
	Streamed bool `json:"streamed,omitempty" doc:"Its pieces went out already, as delta events."`
}

func chatOperation(api huma.API) huma.Operation {
	op := operation(http.MethodPost, "/v1/conversations/{id}/messages", "chat", "talk", "Say something and follow the answer as it is written",
		"Runs one turn. With Accept: text/event-stream the answer is a stream of the events delta {text}, text {text, source, streamed}, and last done {turn_id, status, ended} or error (a problem). A client that goes away cancels its turn.",
		talkErrors...)
	op.Responses = map[string]*huma.Response{"200": {Description: "The answer.", Content: map[string]*huma.MediaType{
		"application/json":  {Schema: api.OpenAPI().Components.Schemas.Schema(typeOf[Answer](), true, "")},
		"text/event-stream": {Schema: &huma.Schema{Type: huma.TypeString}},
	}}}
	return op
}

func (s *Server) chat(_ context.Context, in *chatInput) (*huma.StreamResponse, error) {
	inbound := in.Body.inbound(in.ID, channelChat)
	return answer(func(ctx context.Context, w *httpio.Writer) {
		if wantsEvents(in.Accept) {
			inbound.Live = true
			s.stream(ctx, w, inbound, &events{})
			return
		}
		s.whole(ctx, w, inbound, func(r turn.Report, texts []turn.Utterance) any {
			out := Answer{Turn: r.Turn, Status: r.Status, Ended: r.Ended, Texts: make([]Said, len(texts))}
			for i, u := range texts {
				out.Texts[i] = Said{Text: u.Text, Source: u.Source}
			}
			return out
		})
	}), nil
}

// answer gives a handler the connection itself.
func answer(f func(ctx context.Context, w *httpio.Writer)) *huma.StreamResponse {
	return &huma.StreamResponse{Body: func(c huma.Context) {
		r, w := humago.Unwrap(c)
		f(r.Context(), w.(*httpio.Writer)) // guard put it there
	}}
}

// wantsEvents says whether an Accept header asks for server-sent events.
func wantsEvents(accept string) bool {
	for part := range strings.SplitSeq(accept, ",") {
		kind, params, err := mime.ParseMediaType(part)
		if err == nil && kind == "text/event-stream" && params["q"] != "0" {
			return true
		}
	}
	return false
}

// gathered is the out of a client that takes everything at the end.
type gathered struct{ texts []turn.Utterance }

func (*gathered) Delta(string)            {}
func (g *gathered) Text(u turn.Utterance) { g.texts = append(g.texts, u) }

// whole runs a turn and answers when it is over.
func (s *Server) whole(ctx context.Context, w *httpio.Writer, in Inbound, form func(turn.Report, []turn.Utterance) any) {
	out := &gathered{}
	report, err := s.talk(ctx, in, out)
	if err != nil {
		s.refuse(ctx, w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set(turnHeader, report.Turn)
	_, _ = w.Write(append(written(form(report, out.texts)), '\n')) // the writer sees a client that is gone
}

// talk has the service run a turn. A panic is a failed turn, not a lost request.
func (s *Server) talk(ctx context.Context, in Inbound, out turn.Out) (report turn.Report, err error) {
	defer func() {
		if r := recover(); r != nil {
			s.logger.Error("a turn panicked", "panic", httpio.PanicText(r), "stack", string(debug.Stack()))
			err = errPanicked
		}
	}()
	return s.service.Talk(ctx, in, out)
}

var errPanicked = errors.New("panic")

// refuse answers a message whose turn did not run to its end.
func (s *Server) refuse(ctx context.Context, w *httpio.Writer, err error) {
	p := s.why(ctx, err)
	if p == nil {
		return
	}
	if p.Status == http.StatusTooManyRequests || p.Status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	writeProblem(w, p)
}

// why is the problem behind a turn's error; nil when the client is gone and
// nobody is there to be told.
func (s *Server) why(ctx context.Context, err error) *problem {
	switch {
	case errors.Is(err, turn.ErrBusy):
		return problemOf(http.StatusTooManyRequests, "too many messages of this conversation wait for their turn; send it again later, or with interrupt")
	case errors.Is(err, turn.ErrClosed), s.life.Over():
		return problemOf(http.StatusServiceUnavailable, "the service is stopping")
	case errors.Is(err, errPanicked):
		return problemOf(http.StatusInternalServerError, "something went wrong here; the log says what")
	case ctx.Err() != nil:
		s.logger.Debug("a client went away before its answer", "error", err)
		return nil
	}
	return s.failed("run a turn", err)
}

// failed logs why the service could not do something. The error stays here: it
// may name files.
func (s *Server) failed(what string, err error) *problem {
	s.logger.Error("could not "+what, "error", err)
	return problemOf(http.StatusServiceUnavailable, fmt.Sprintf("could not %s; the log says why", what))
}
