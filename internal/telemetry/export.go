package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/belay-run/belay/internal/turn"
)

const (
	queueLength  = 128              // turns that wait for their spans to be made
	batchSpans   = 512              // spans sent in one request, about
	valueLength  = 16 << 10         // bytes of an attribute's value, unless the environment says otherwise
	exportLimit  = 20 * time.Second // for one request with its repeats
	complainRate = time.Minute
)

// job is a turn whose spans are to be made.
type job struct {
	parent trace.SpanContext
	report turn.Report
}

// pipeline makes spans of reports and sends them, in a goroutine of its own.
// When it cannot keep up, turns go untraced; they never wait.
type pipeline struct {
	logger   *slog.Logger
	model    string
	mask     func(string) string
	meters   *meters
	exporter sdk.SpanExporter
	provider *sdk.TracerProvider
	tracer   trace.Tracer
	made     collector
	now      func() time.Time

	mu     sync.RWMutex
	closed bool
	queue  chan job
	ctx    context.Context // ends when what is left is given up
	giveUp context.CancelFunc
	done   chan struct{}

	quiet complaints
}

// collector keeps the spans that the maker has ended. Only the pipeline's
// goroutine makes spans.
type collector struct{ spans []sdk.ReadOnlySpan }

func (c *collector) OnStart(context.Context, sdk.ReadWriteSpan) {}
func (c *collector) OnEnd(s sdk.ReadOnlySpan)                   { c.spans = append(c.spans, s) }
func (c *collector) Shutdown(context.Context) error             { return nil }
func (c *collector) ForceFlush(context.Context) error           { return nil }

// endpoint is where the environment wants spans sent, "" for nowhere.
func endpoint() (string, error) {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") || os.Getenv("OTEL_TRACES_EXPORTER") == "none" {
		return "", nil
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"} {
		value := os.Getenv(name)
		if value == "" {
			continue
		}
		u, err := url.Parse(value)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
			return "", fmt.Errorf("%s is no http or https URL: write it like http://localhost:4318", name)
		}
		return u.Scheme + "://" + u.Host, nil // the rest may hold a key
	}
	return "", nil
}

// newPipeline returns nil when the environment names no collector.
func newPipeline(ctx context.Context, o Options, m *meters) (*pipeline, error) {
	where, err := endpoint()
	if err != nil || where == "" {
		return nil, err
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
		if os.Getenv(name) == "grpc" {
			return nil, fmt.Errorf("%s asks for grpc; belay sends spans over HTTP: set it to http/protobuf and use the collector's HTTP port (4318)", name)
		}
	}
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithRetry(otlptracehttp.RetryConfig{
		Enabled: true, InitialInterval: time.Second, MaxInterval: 5 * time.Second, MaxElapsedTime: exportLimit}))
	if err != nil {
		return nil, fmt.Errorf("set up the export of spans to %s: %w", where, err)
	}
	res, err := resource.New(ctx, resource.WithTelemetrySDK(),
		resource.WithAttributes(attribute.String("service.name", "belay"), attribute.String("service.version", o.Version)), resource.WithFromEnv())
	if err != nil && !errors.Is(err, resource.ErrPartialResource) {
		return nil, fmt.Errorf("read the OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	limits := sdk.NewSpanLimits()
	if limits.AttributeValueLengthLimit < 0 {
		limits.AttributeValueLengthLimit = valueLength
	}
	p := &pipeline{logger: o.Logger, model: o.Model, mask: o.Mask, meters: m, exporter: exporter, now: time.Now, queue: make(chan job, queueLength), done: make(chan struct{})}
	p.ctx, p.giveUp = context.WithCancel(context.WithoutCancel(ctx))
	p.provider = sdk.NewTracerProvider(sdk.WithSpanProcessor(&p.made), sdk.WithResource(res), sdk.WithRawSpanLimits(limits))
	p.tracer = p.provider.Tracer("github.com/belay-run/belay", trace.WithInstrumentationVersion(o.Version))
	o.Logger.Info("traces are sent", "to", where)
	go p.work()
	return p, nil
}

// offer hands a turn over. It never waits.
func (p *pipeline) offer(j job) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if !p.closed {
		select {
		case p.queue <- j:
			return
		default:
		}
	}
	p.meters.exports.WithLabelValues("dropped").Inc()
	p.complain("the spans of a turn were dropped: the collector does not keep up")
}

func (p *pipeline) work() {
	defer close(p.done)
	for j := range p.queue {
		p.send(p.take(j))
	}
}

// take makes the spans of a turn, and of those that wait already, up to a
// request's worth.
func (p *pipeline) take(j job) (turns int) {
	p.made.spans = nil
	for {
		turns++
		p.make(j)
		if len(p.made.spans) >= batchSpans {
			return turns
		}
		select {
		case next, open := <-p.queue:
			if !open {
				return turns
			}
			j = next
		default:
			return turns
		}
	}
}

// make makes the spans of one turn. A report that it cannot follow costs that
// turn's spans, not the pipeline.
func (p *pipeline) make(j job) {
	kept := len(p.made.spans)
	defer func() {
		if r := recover(); r != nil {
			p.made.spans = p.made.spans[:kept]
			p.complain("the spans of a turn could not be made", "panic", fmt.Sprintf("%T", r))
		}
	}()
	spans(p, j)
}

func (p *pipeline) send(turns int) {
	if len(p.made.spans) == 0 {
		return // not sampled
	}
	ctx, cancel := context.WithTimeout(p.ctx, exportLimit)
	defer cancel()
	if err := p.exporter.ExportSpans(ctx, p.made.spans); err != nil {
		p.meters.exports.WithLabelValues("failed").Add(float64(turns))
		// What a collector answers may quote what it was sent.
		what, _, _ := strings.Cut(err.Error(), "body:")
		p.complain("spans could not be sent", "error", strings.TrimRight(what, " :("))
		return
	}
	p.meters.exports.WithLabelValues("sent").Add(float64(turns))
}

// shutdown sends what is left and ends the goroutine.
func (p *pipeline) shutdown(ctx context.Context) error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	close(p.queue)
	p.mu.Unlock()
	var err error
	select {
	case <-p.done:
	case <-ctx.Done():
		err = ctx.Err()
	}
	p.giveUp()
	<-p.done
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	return errors.Join(err, p.provider.Shutdown(ctx), p.exporter.Shutdown(ctx))
}

// complaints keeps the log from being flooded while a collector is away.
type complaints struct {
	mu    sync.Mutex
	last  time.Time
	since int
}

// complain logs at most once a minute, with how often it was kept quiet.
func (p *pipeline) complain(message string, args ...any) {
	c := &p.quiet
	c.mu.Lock()
	now := p.now()
	if !c.last.IsZero() && now.Sub(c.last) < complainRate {
		c.since++
		c.mu.Unlock()
		return
	}
	since := c.since
	c.last, c.since = now, 0
	c.mu.Unlock()
	if since > 0 {
		args = append(args, "not_logged_since", since)
	}
	p.logger.Warn(message, args...)
}
