// Package telemetry makes what turns and hooks do visible: log lines, Prometheus
// metrics and OpenTelemetry spans.
//
//	t, err := telemetry.New(ctx, telemetry.Options{Logger: logger, Model: "openai/gpt-4o", Tools: names})
//	engine, err := hook.NewEngine(t, hooks...) // t is the engine's recorder
//	...
//	report, err := agent.Run(ctx, record, message, out, turn.Options{})
//	t.Turn(ctx, report)  // after the turn: counts it, makes its spans
//	...
//	t.Shutdown(ctx)      // sends what is left
//
// Spans are made after the turn, from its report, by a goroutine of their own:
// a turn never waits for a collector. They are sent by OTLP over HTTP when
// OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is set;
// otherwise none are made.
//
// What a hook takes out stays out: arguments and results of tools come from the
// record, which keeps them as the hooks left them; message texts, prompts and
// exceptions' texts are in no span and no metric. The log has the reason of a
// rejection and the text of an exception, with file and line, and never a
// payload's value.
package telemetry

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/trace"

	"github.com/belay-run/belay/internal/turn"
)

// Options say what is to be made visible. The zero Options log nothing.
type Options struct {
	Logger *slog.Logger
	// Version is the program's, for the spans' resource.
	Version string
	// Model is provider and model, such as "openai/gpt-4o".
	Model string
	// Tools are the names of the agent's tools. Metrics count every other name
	// as "other", since a model may make up any.
	Tools []string
	// Mask takes secrets out of the texts in spans; nil leaves them as they are.
	Mask func(string) string
}

// Telemetry counts, logs and traces. Its methods may be called from several
// goroutines. It is a [github.com/belay-run/belay/hook.Recorder].
type Telemetry struct {
	logger   *slog.Logger
	model    string
	tools    atomic.Pointer[map[string]bool]
	registry *prometheus.Registry
	meters   *meters
	traces   *pipeline // nil when no spans are made
}

// New returns a Telemetry. It fails when the OTEL_… variables cannot be
// followed.
func New(ctx context.Context, o Options) (*Telemetry, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	t := &Telemetry{logger: o.Logger, model: o.Model, registry: prometheus.NewRegistry()}
	t.meters = newMeters(t.registry)
	t.KnowTools(o.Tools)
	var err error
	if t.traces, err = newPipeline(ctx, o, t.meters); err != nil {
		return nil, err
	}
	return t, nil
}

// KnowTools replaces the names of the agent's tools, after a reload.
func (t *Telemetry) KnowTools(names []string) {
	known := map[string]bool{}
	for _, list := range [][]string{turn.Reserved, names} {
		for _, name := range list {
			known[name] = true
		}
	}
	t.tools.Store(&known)
}

// Turn counts a turn that has ended and makes its spans. The span in ctx, when
// there is one, is their parent.
func (t *Telemetry) Turn(ctx context.Context, r turn.Report) {
	t.logger.Info("turn ended", "turn", r.Turn, "agent", r.Agent, "status", r.Status, "why", r.Why, "took", r.Took)
	t.meters.turn(r)
	for i := range r.Lines {
		if l := &r.Lines[i]; l.Kind == kindModel {
			t.meters.model(l)
		}
	}
	known := *t.tools.Load()
	for _, run := range toolRuns(r) {
		t.meters.tool(run, known)
	}
	if t.traces != nil {
		t.traces.offer(job{parent: trace.SpanContextFromContext(ctx), report: r})
	}
}

// Kinds of lines in a turn's trace.
const (
	kindPoint = "point"
	kindModel = "model"
	kindTool  = "tool"
	kindNote  = "note"
)

// WorkerReplaced counts a worker process that took a lost one's place.
func (t *Telemetry) WorkerReplaced(cause Cause) { t.meters.replaced(cause) }

// Expired counts conversations past their time: how many were deleted, and how
// many attempts failed.
func (t *Telemetry) Expired(deleted, failed int) {
	t.meters.expired.WithLabelValues("deleted").Add(float64(deleted))
	t.meters.expired.WithLabelValues("failed").Add(float64(failed))
}

// Traces says whether spans are made.
func (t *Telemetry) Traces() bool { return t.traces != nil }

// Handler serves the metrics in Prometheus' format.
func (t *Telemetry) Handler() http.Handler {
	return promhttp.HandlerFor(t.registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError})
}

// Registry is where the metrics are, for more of them.
func (t *Telemetry) Registry() *prometheus.Registry { return t.registry }

// Shutdown sends the spans that are left. When ctx ends first they are lost, and
// that is an error.
func (t *Telemetry) Shutdown(ctx context.Context) error {
	if t.traces == nil {
		return nil
	}
	if err := t.traces.shutdown(ctx); err != nil {
		return errors.Join(errors.New("some spans could not be sent before the program ended"), err)
	}
	return nil
}
