package telemetry

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	collect "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	wire "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
)

func TestMain(m *testing.M) {
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "OTEL_") {
			_ = os.Unsetenv(name)
		}
	}
	goleak.VerifyTestMain(m)
}

// receiver is a collector: it takes spans by OTLP over HTTP.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	spans  []*wire.Span
	about  []*common.KeyValue // of the resource
	bodies bytes.Buffer
	answer func(w http.ResponseWriter) bool // true: it has answered
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(r.take))
	t.Cleanup(r.Close)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", r.URL)
	return r
}

func (r *receiver) take(w http.ResponseWriter, req *http.Request) {
	body := io.Reader(req.Body)
	if req.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		body = z
	}
	raw, err := io.ReadAll(body)
	if err != nil || req.URL.Path != "/v1/traces" {
		http.Error(w, fmt.Sprint(req.URL.Path, err), http.StatusBadRequest)
		return
	}
	var in collect.ExportTraceServiceRequest
	if err := proto.Unmarshal(raw, &in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.answer != nil && r.answer(w) {
		return
	}
	r.bodies.Write(raw)
	for _, rs := range in.ResourceSpans {
		r.about = rs.Resource.Attributes
		for _, ss := range rs.ScopeSpans {
			r.spans = append(r.spans, ss.Spans...)
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

// named returns the one span with that name.
func (r *receiver) named(t *testing.T, name string) *wire.Span {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	var found *wire.Span
	var names []string
	for _, s := range r.spans {
		names = append(names, s.Name)
		if s.Name == name {
			if found != nil {
				t.Fatalf("two spans are named %q", name)
			}
			found = s
		}
	}
	if found == nil {
		t.Fatalf("no span is named %q; there are %q", name, names)
	}
	return found
}

func (r *receiver) received() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bodies.String()
}

// attr gives an attribute's value as text, "" when it is missing.
func attr(attrs []*common.KeyValue, key string) string {
	for _, kv := range attrs {
		if kv.Key != key {
			continue
		}
		switch v := kv.Value.Value.(type) {
		case *common.AnyValue_StringValue:
			return v.StringValue
		case *common.AnyValue_IntValue:
			return fmt.Sprint(v.IntValue)
		case *common.AnyValue_BoolValue:
			return fmt.Sprint(v.BoolValue)
		case *common.AnyValue_ArrayValue:
			var all []string
			for _, item := range v.ArrayValue.Values {
				all = append(all, item.GetStringValue())
			}
			return strings.Join(all, ",")
		default:
			return fmt.Sprint(v)
		}
	}
	return ""
}

func wantAttrs(t *testing.T, s *wire.Span, want map[string]string) {
	t.Helper()
	for key, value := range want {
		if got := attr(s.Attributes, key); got != value {
			t.Errorf("span %q: %s is %q, want %q", s.Name, key, got, value)
		}
	}
}

// logged is a logger and what it wrote.
type logged struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *logged) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func (l *logged) count(what string) int { return strings.Count(l.String(), what) }

// metric gives the value of a counter, or the count of a histogram, with these
// labels ("name=value").
func metric(t *testing.T, tel *Telemetry, name string, labels ...string) float64 {
	t.Helper()
	families, err := tel.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
	next:
		for _, m := range f.Metric {
			have := map[string]bool{}
			for _, l := range m.Label {
				have[l.GetName()+"="+l.GetValue()] = true
			}
			for _, want := range labels {
				if !have[want] {
					continue next
				}
			}
			if m.Counter != nil {
				return m.Counter.GetValue()
			}
			return float64(m.Histogram.GetSampleCount())
		}
	}
	return 0
}

// exposed is what a scrape reads.
func exposed(t *testing.T, tel *Telemetry) string {
	t.Helper()
	w := httptest.NewRecorder()
	tel.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("metrics: %d %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func closed(t *testing.T, tel *Telemetry) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := tel.Shutdown(ctx); err != nil {
		t.Fatalf("shutdown: %v", err)
	}
}
