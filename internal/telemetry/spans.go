package telemetry

import (
	"context"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/internal/loop"
	"github.com/belay-run/belay/internal/turn"
)

// Names of attributes. Those that begin with gen_ai are of the semantic
// conventions for generative AI.
const (
	keyOperation    = "gen_ai.operation.name"
	keyAgent        = "gen_ai.agent.id"
	keyConversation = "gen_ai.conversation.id"
	keyProvider     = "gen_ai.provider.name"
	keyModel        = "gen_ai.request.model"
	keyInput        = "gen_ai.usage.input_tokens"
	keyOutput       = "gen_ai.usage.output_tokens"
	keyTool         = "gen_ai.tool.name"
	keyToolType     = "gen_ai.tool.type"
	keyCallID       = "gen_ai.tool.call.id"
	keyArguments    = "gen_ai.tool.call.arguments"
	keyResult       = "gen_ai.tool.call.result"
	keyError        = "error.type"
	keyFile         = "code.file.path"
	keyLine         = "code.line.number"
)

// maker makes the spans of one turn.
type maker struct {
	tracer trace.Tracer
	model  string
	mask   func(string) string
	ctx    context.Context // holds the turn's span
	root   trace.Span
	began  time.Time
	ended  time.Time // of what ended last
}

// spans makes the spans of a turn: one for the turn, and under it one for each
// point where hooks stood, with one for each hook asked; one for each model
// call; one for each tool call.
func spans(p *pipeline, j job) {
	r := j.report
	m := &maker{tracer: p.tracer, model: p.model, mask: p.mask, began: r.Began, ended: r.Began.Add(r.Took)}
	m.ctx, m.root = m.tracer.Start(trace.ContextWithRemoteSpanContext(context.Background(), j.parent), "invoke_agent "+m.valid(r.Agent),
		trace.WithTimestamp(m.began), trace.WithAttributes(
			attribute.String(keyOperation, "invoke_agent"), m.text(keyAgent, r.Agent), m.text(keyConversation, r.Sender),
			m.text("belay.turn.id", r.Turn), attribute.String("belay.turn.status", r.Status), m.text("belay.turn.why", r.Why)))
	for i := range r.Lines {
		switch l := &r.Lines[i]; l.Kind {
		case kindPoint:
			m.point(l)
		case kindModel:
			m.completion(l)
		case kindNote:
			m.root.AddEvent("note", trace.WithTimestamp(m.clamp(l.At)), trace.WithAttributes(m.text("belay.note", l.Why)))
		}
	}
	for _, t := range toolRuns(r) {
		m.tool(t)
	}
	m.discarded(r)
	if r.Status == turn.Failed {
		m.root.SetAttributes(m.text(keyError, r.Why))
		m.root.SetStatus(codes.Error, m.valid(r.Why))
	}
	m.root.End(trace.WithTimestamp(m.ended))
}

// text is an attribute of a text that others wrote.
func (m *maker) text(key, value string) attribute.KeyValue {
	return attribute.String(key, m.valid(value))
}

// valid makes a text of others' fit to be sent: without secrets, and without bytes
// that are no UTF-8, for one of which a collector refuses a whole batch.
func (m *maker) valid(s string) string {
	if m.mask != nil {
		s = m.mask(s)
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// clamp keeps a time from lying before the turn.
func (m *maker) clamp(at time.Time) time.Time {
	if at.Before(m.began) {
		return m.began
	}
	return at
}

// span makes a finished span under ctx and returns its context.
func (m *maker) span(ctx context.Context, name string, start, end time.Time, kind trace.SpanKind, failed string, attrs ...attribute.KeyValue) context.Context {
	start = m.clamp(start)
	if end.Before(start) {
		end = start
	}
	if end.After(m.ended) {
		m.ended = end
	}
	ctx, s := m.tracer.Start(ctx, m.valid(name), trace.WithTimestamp(start), trace.WithSpanKind(kind), trace.WithAttributes(attrs...))
	if failed != "" {
		s.SetAttributes(m.text(keyError, failed))
		s.SetStatus(codes.Error, m.valid(failed))
	}
	s.End(trace.WithTimestamp(end))
	return ctx
}

// point makes the span of a point that was reached and where somebody stood.
func (m *maker) point(l *loop.Line) {
	switch {
	case l.Outcome == "not reached":
		m.root.AddEvent("hooks not asked", trace.WithTimestamp(m.clamp(l.At)), trace.WithAttributes(attribute.String("belay.hook.point", l.Point)))
		return
	case l.Hooks == 0 && l.Observers == 0 && len(l.Disabled) == 0:
		return
	}
	spent := l.Took
	for i := range l.Runs {
		spent += l.Runs[i].Waited + l.Runs[i].Took
	}
	start := l.At
	if l.Took == 0 {
		start = l.At.Add(-spent) // the line was written when the point was done
	}
	start = m.clamp(start)
	attrs := []attribute.KeyValue{
		attribute.String("belay.hook.point", l.Point), attribute.String("belay.hook.outcome", l.Outcome),
		attribute.Int("belay.hook.asked", l.Asked), attribute.Int("belay.hook.observers", l.Observers),
	}
	if len(l.Disabled) > 0 {
		attrs = append(attrs, attribute.StringSlice("belay.hook.disabled", l.Disabled))
	}
	ctx := m.span(m.ctx, "hooks "+l.Point, start, start.Add(spent), trace.SpanKindInternal, "", attrs...)
	for i := range l.Runs {
		start = m.run(ctx, &l.Runs[i], start)
	}
}

// run makes the span of one hook that was asked, and returns its end.
func (m *maker) run(ctx context.Context, r *hook.Run, start time.Time) time.Time {
	end := start.Add(r.Waited + r.Took)
	attrs := []attribute.KeyValue{
		m.text("belay.hook.name", r.Name), attribute.String("belay.hook.said", r.Said),
		attribute.Float64("belay.hook.waited_ms", float64(r.Waited.Microseconds())/1000),
	}
	add := func(key, value string) {
		if value != "" {
			attrs = append(attrs, m.text(key, value))
		}
	}
	add("belay.hook.dropped", r.Dropped)
	add("belay.hook.policy", string(r.Policy))
	var failed string
	if r.Failure != nil {
		failed = string(r.Failure.Kind) // an exception's text is in the log and the turn's trace only
	} else {
		add("belay.hook.reason", r.Reason)
	}
	if r.File != "" {
		attrs = append(attrs, m.text(keyFile, r.File), attribute.Int(keyLine, r.Line))
	}
	if len(r.Changed) > 0 {
		changed := make([]string, len(r.Changed))
		for i, c := range r.Changed {
			changed[i] = c.Field
		}
		attrs = append(attrs, attribute.StringSlice("belay.hook.changed", changed))
	}
	if len(r.PutBack) > 0 {
		attrs = append(attrs, attribute.StringSlice("belay.hook.put_back", r.PutBack))
	}
	m.span(ctx, "hook "+r.Name, start, end, trace.SpanKindInternal, failed, attrs...)
	return end
}

// completion makes the span of a model call. It has no message.
func (m *maker) completion(l *loop.Line) {
	provider, name, ok := strings.Cut(m.model, "/")
	if !ok {
		provider, name = "", m.model
	}
	attrs := []attribute.KeyValue{
		attribute.String(keyOperation, "chat"), m.text(keyModel, name), attribute.String("belay.model.purpose", l.Purpose),
		attribute.Int("belay.iteration", l.Iteration), attribute.Int("belay.model.attempt", l.Attempt),
		attribute.String("belay.model.outcome", l.Outcome), attribute.Bool("gen_ai.request.stream", l.Live),
	}
	if provider != "" {
		attrs = append(attrs, m.text(keyProvider, provider))
	}
	if l.Usage != nil {
		attrs = append(attrs, attribute.Int(keyInput, l.Usage.Input), attribute.Int(keyOutput, l.Usage.Output))
	}
	var failed string
	if l.Outcome == "failed" {
		failed = "model_error"
	}
	m.span(m.ctx, "chat "+name, l.At, l.At.Add(l.Took), trace.SpanKindClient, failed, attrs...)
}

// tool makes the span of a tool call. Arguments and result are those of the
// record, as the hooks left them; a call that was not recorded shows none.
func (m *maker) tool(t toolRun) {
	attrs := []attribute.KeyValue{
		attribute.String(keyOperation, "execute_tool"), m.text(keyTool, t.name), attribute.String(keyToolType, "function"),
		attribute.String("belay.tool.outcome", t.outcome),
	}
	failed := ""
	switch {
	case t.run != nil:
		attrs = append(attrs, m.text(keyArguments, string(t.run.Arguments)), m.text(keyResult, t.run.Result))
		if t.run.CallID != "" {
			attrs = append(attrs, m.text(keyCallID, t.run.CallID))
		}
		if t.run.Source != "" {
			attrs = append(attrs, attribute.String("belay.tool.source", t.run.Source))
		}
		if t.run.IsError {
			failed = "tool_error"
		}
	case t.line.IsError:
		failed = "tool_error"
	}
	if failed != "" && t.outcome != notRun && t.outcome != string(turn.ToolOK) {
		failed = t.outcome
	}
	start, end := t.at, t.at
	if t.line != nil {
		start, end = t.line.At, t.line.At.Add(t.line.Took)
	}
	m.span(m.ctx, "execute_tool "+t.name, start, end, trace.SpanKindInternal, failed, attrs...)
}

// discarded says of each text that hooks stopped why, without the text.
func (m *maker) discarded(r turn.Report) {
	for i := range r.Events {
		e := &r.Events[i]
		if e.Discarded == nil || e.Turn != r.Turn {
			continue
		}
		m.root.AddEvent("text discarded", trace.WithTimestamp(m.clamp(e.At)), trace.WithAttributes(
			attribute.String("belay.text.of", string(e.Kind)), attribute.String("belay.discarded.by", e.Discarded.By),
			m.text("belay.discarded.hook", e.Discarded.Hook), m.text("belay.discarded.reason", e.Discarded.Reason)))
	}
}
