package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/internal/loop"
	"github.com/belay-run/belay/internal/turn"
)

// Cause is why a worker process was replaced.
type Cause string

// The causes. Any other counts as "other".
const (
	CauseBlocked  Cause = "blocked"  // its interpreter did not answer
	CauseDied     Cause = "died"     // its process ended
	CauseProtocol Cause = "protocol" // somebody wrote into its pipe
	CauseReload   Cause = "reload"   // the agent's files changed
)

// other is the label of what is not in a list.
const other = "other"

// meters are the metrics. Every label's values are bounded: by the agent's own
// files, or by a list.
type meters struct {
	hookRuns     *prometheus.CounterVec
	hookFailures *prometheus.CounterVec
	hookDropped  *prometheus.CounterVec
	hookTime     *prometheus.HistogramVec
	hookWait     prometheus.Histogram
	turns        *prometheus.CounterVec
	turnTime     prometheus.Histogram
	modelCalls   *prometheus.CounterVec
	modelTime    prometheus.Histogram
	tokens       *prometheus.CounterVec
	toolCalls    *prometheus.CounterVec
	toolTime     *prometheus.HistogramVec
	workers      *prometheus.CounterVec
	exports      *prometheus.CounterVec
	expired      *prometheus.CounterVec
}

func newMeters(registry *prometheus.Registry) *meters {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "belay_" + name, Help: help}, labels)
		registry.MustRegister(c)
		return c
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "belay_" + name, Help: help, Buckets: buckets}, labels)
		registry.MustRegister(h)
		return h
	}
	single := func(name, help string, buckets []float64) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "belay_" + name, Help: help, Buckets: buckets})
		registry.MustRegister(h)
		return h
	}
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return &meters{
		hookRuns:     counter("hook_runs_total", "Hooks asked, by what they said.", "point", "hook", "lane", "said"),
		hookFailures: counter("hook_failures_total", "Hooks that gave no verdict, by kind of failure.", "point", "hook", "kind"),
		hookDropped:  counter("hook_dropped_total", "Signals and changes that did not count.", "point", "hook"),
		hookTime:     histogram("hook_seconds", "Time of a hook's own run.", shortTimes, "point", "hook"),
		hookWait:     single("hook_wait_seconds", "Time between the question to a hook and its beginning.", shortTimes),
		turns:        counter("turns_total", "Turns ended, by status and reason.", "status", "why"),
		turnTime:     single("turn_seconds", "Time of a whole turn.", longTimes),
		modelCalls:   counter("model_calls_total", "Completions asked for.", "outcome", "purpose"),
		modelTime:    single("model_seconds", "Time of a completion that the provider gave.", longTimes),
		tokens:       counter("tokens_total", "Tokens as the provider counts them.", "direction"),
		toolCalls:    counter("tool_calls_total", "Calls of tools, by outcome; not_run when a gate kept the call from the tool.", "tool", "outcome"),
		toolTime:     histogram("tool_seconds", "Time of a tool's run.", longTimes, "tool"),
		workers:      counter("worker_replacements_total", "Worker processes that took a lost one's place.", "cause"),
		exports:      counter("trace_exports_total", "Turns whose spans were sent, could not be sent, or were dropped because the queue was full.", "outcome"),
		expired:      counter("conversations_expired_total", "Conversations past their time that were deleted, and attempts that failed.", "outcome"),
	}
}

var (
	shortTimes = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10}
	longTimes  = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120}
)

// within returns the value when the list has it, else "other".
func within(list map[string]bool, value string) string {
	if list[value] {
		return value
	}
	return other
}

func listOf(values ...string) map[string]bool {
	list := map[string]bool{}
	for _, v := range values {
		list[v] = true
	}
	return list
}

var (
	statuses = listOf(turn.Completed, turn.Cancelled, turn.Failed)
	whys     = listOf(string(loop.Said), string(loop.Waiting), string(loop.Listening), string(loop.HungUp), string(loop.Cap), string(loop.NoAnswer),
		string(loop.ModelError), string(loop.HookError), "rejected", none)
	outcomes = listOf("ok", "failed", "empty")
	purposes = listOf("main", "rephrase")
	ran      = listOf(string(turn.ToolOK), string(turn.ToolError), string(turn.ToolTimeout), string(turn.ToolUnknown), string(turn.ToolUnavailable), "failed", notRun)
	causes   = listOf(string(CauseBlocked), string(CauseDied), string(CauseProtocol), string(CauseReload))
	kinds    = listOf(string(hook.Crash), string(hook.Timeout), string(hook.WrongReturn), string(hook.Unavailable), string(hook.Cancelled))
)

const (
	none   = "none"
	notRun = "not_run"
)

func (m *meters) hook(r hook.Run) {
	m.hookRuns.WithLabelValues(r.Point, r.Name, string(r.Lane), r.Said).Inc()
	if r.Failure != nil {
		m.hookFailures.WithLabelValues(r.Point, r.Name, within(kinds, string(r.Failure.Kind))).Inc()
	}
	if r.Dropped != "" {
		m.hookDropped.WithLabelValues(r.Point, r.Name).Inc()
	}
	m.hookTime.WithLabelValues(r.Point, r.Name).Observe(r.Took.Seconds())
	m.hookWait.Observe(r.Waited.Seconds())
}

func (m *meters) turn(r turn.Report) {
	why := r.Why
	if why == "" {
		why = none
	}
	m.turns.WithLabelValues(within(statuses, r.Status), within(whys, why)).Inc()
	m.turnTime.Observe(r.Took.Seconds())
}

func (m *meters) model(l *loop.Line) {
	m.modelCalls.WithLabelValues(within(outcomes, l.Outcome), within(purposes, l.Purpose)).Inc()
	if l.Took > 0 {
		m.modelTime.Observe(l.Took.Seconds())
	}
	if l.Usage != nil {
		m.tokens.WithLabelValues("input").Add(float64(max(0, l.Usage.Input)))
		m.tokens.WithLabelValues("output").Add(float64(max(0, l.Usage.Output)))
	}
}

func (m *meters) tool(t toolRun, known map[string]bool) {
	name := within(known, t.name)
	m.toolCalls.WithLabelValues(name, within(ran, t.outcome)).Inc()
	if t.line != nil {
		m.toolTime.WithLabelValues(name).Observe(t.line.Took.Seconds())
	}
}

func (m *meters) replaced(c Cause) { m.workers.WithLabelValues(within(causes, string(c))).Inc() }
