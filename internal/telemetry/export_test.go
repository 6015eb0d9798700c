package telemetry

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/belay-run/belay/internal/conversation"
	"github.com/belay-run/belay/internal/turn"
)

func report(id string) turn.Report {
	return turn.Report{Turn: id, Agent: "shop", Sender: "u", Status: turn.Completed, Why: "said", Began: time.Now(), Took: time.Millisecond}
}

func TestNoCollectorNoSpans(t *testing.T) {
	for name, env := range map[string][2]string{
		"no endpoint":  {"OTEL_SERVICE_NAME", "x"},
		"switched off": {"OTEL_SDK_DISABLED", "true"},
		"no exporter":  {"OTEL_TRACES_EXPORTER", "none"},
	} {
		t.Run(name, func(t *testing.T) {
			if name != "no endpoint" {
				t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
			}
			t.Setenv(env[0], env[1])
			tel := newTelemetry(t, &logged{})
			if tel.Traces() {
				t.Fatal("spans are made")
			}
			tel.Turn(context.Background(), report("t"))
			closed(t, tel)
		})
	}
}

func TestWrongEnvironment(t *testing.T) {
	for name, env := range map[string]map[string]string{
		"no URL": {"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4318"},
		"grpc":   {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
	} {
		t.Run(name, func(t *testing.T) {
			for k, v := range env {
				t.Setenv(k, v)
			}
			_, err := New(context.Background(), Options{})
			if err == nil || !strings.Contains(err.Error(), "OTEL_EXPORTER_OTLP_") {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestServiceNameOfTheEnvironment(t *testing.T) {
	collector := newReceiver(t)
	t.Setenv("OTEL_SERVICE_NAME", "clinic")
	tel := newTelemetry(t, &logged{})
	tel.Turn(context.Background(), report("t"))
	closed(t, tel)
	if got := attr(collector.about, "service.name"); got != "clinic" {
		t.Errorf("service.name is %q", got)
	}
}

func TestTracesEndpointIsUsedAsItIs(t *testing.T) {
	collector := newReceiver(t)
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", collector.URL+"/v1/traces")
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
	tel := newTelemetry(t, &logged{})
	tel.Turn(context.Background(), report("t"))
	closed(t, tel)
	collector.named(t, "invoke_agent shop")
}

func TestFailuresAreLoggedOnceAMinute(t *testing.T) {
	collector := newReceiver(t)
	collector.answer = func(w http.ResponseWriter) bool {
		http.Error(w, "you sent 4111", http.StatusBadRequest)
		return true
	}
	log := &logged{}
	tel := newTelemetry(t, log)
	now := time.Now()
	p := tel.traces
	p.now = func() time.Time { return now }
	fail := func() { p.send(p.take(job{report: report("t")})) } // as its goroutine does, which has nothing to do
	for range 3 {
		fail()
	}
	if n := log.count("spans could not be sent"); n != 1 {
		t.Errorf("three failures are logged %d times:\n%s", n, log)
	}
	now = now.Add(2 * time.Minute)
	fail()
	if n := log.count("spans could not be sent"); n != 2 || !strings.Contains(log.String(), "not_logged_since=2") {
		t.Errorf("a later failure: %d lines\n%s", n, log)
	}
	if got := metric(t, tel, "belay_trace_exports_total", "outcome=failed"); got != 4 {
		t.Errorf("%v exports count as failed", got)
	}
	if strings.Contains(log.String(), "4111") {
		t.Errorf("the log quotes the collector:\n%s", log)
	}
}

// A collector that does not answer holds up no turn, and the end of the program
// only as long as it is given.
func TestAStuckCollectorHoldsNothingUp(t *testing.T) {
	collector := newReceiver(t)
	reached, release := make(chan struct{}, 1), make(chan struct{})
	collector.answer = func(http.ResponseWriter) bool {
		reached <- struct{}{}
		<-release
		return true
	}
	defer close(release)
	log := &logged{}
	tel := newTelemetry(t, log)
	tel.Turn(context.Background(), report("first"))
	<-reached
	began := time.Now()
	for range queueLength + 50 {
		tel.Turn(context.Background(), report("more"))
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the turns waited: %v", took)
	}
	if n := metric(t, tel, "belay_trace_exports_total", "outcome=dropped"); n != 50 {
		t.Errorf("%v turns were dropped", n)
	}
	if n := log.count("dropped"); n != 1 {
		t.Errorf("that is logged %d times", n)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := tel.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("shutdown: %v", err)
	}
	if took := time.Since(began); took > 8*time.Second {
		t.Errorf("the end waited: %v", took)
	}
}

func TestShutdownSendsWhatIsLeft(t *testing.T) {
	collector := newReceiver(t)
	tel := newTelemetry(t, &logged{})
	for range 100 {
		tel.Turn(context.Background(), report("t"))
	}
	closed(t, tel)
	if n := len(collector.spans); n != 100 {
		t.Errorf("%d of 100 spans arrived", n)
	}
	tel.Turn(context.Background(), report("late")) // counts as dropped, breaks nothing
	closed(t, tel)
}

func TestBrokenTextsAndLongOnesAreSent(t *testing.T) {
	collector := newReceiver(t)
	tel := newTelemetry(t, &logged{})
	r := report("t")
	r.Events = []conversation.Event{{Kind: conversation.ToolExecuted, Turn: "t", At: r.Began, Tool: &conversation.ToolRun{
		Name: "pay\xff", Arguments: []byte("{}"), Result: "\xff" + strings.Repeat("é", 1<<20)}}}
	tel.Turn(context.Background(), r)
	closed(t, tel)
	s := collector.named(t, "execute_tool pay\uFFFD")
	if n := len(attr(s.Attributes, "gen_ai.tool.call.result")); n == 0 || n > 4*valueLength {
		t.Errorf("the result has %d bytes", n)
	}
}

func TestUnsampledParentMakesNoSpans(t *testing.T) {
	collector := newReceiver(t)
	tel := newTelemetry(t, &logged{})
	tel.Turn(parent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"), report("t"))
	closed(t, tel)
	if n := len(collector.spans); n != 0 {
		t.Errorf("%d spans were sent", n)
	}
}
