package tests

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	collect "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	wire "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/belay-run/belay/internal/app/apptest"
)

// secretFiles are an agent whose hooks take out what begins with "planted".
var secretFiles = apptest.Files{
	"hooks.py": `from __future__ import annotations

import re

from belay.hooks import *


@modify_tool_call()
async def take_pin(call: ToolCallPayload) -> ToolCallPayload:
    if call.arguments.get("again"):
        raise RetryModel(feedback="Ask for the card.")
    return call.model_copy(update={"arguments": {k: v for k, v in call.arguments.items() if k != "pin"}})


@modify_knowledge_results()
async def cut_passages(results: KnowledgeResultsPayload) -> KnowledgeResultsPayload:
    for p in results.passages:
        p["text"] = cut(p["text"])
    return results


@modify_tool_result()
async def cut_result(result: ToolResultPayload) -> ToolResultPayload:
    kept = {k: v for k, v in result.arguments.items() if k != "card"}
    return result.model_copy(update={"arguments": kept, "value": cut(result.value)})


def cut(text):
    return re.sub(r"planted-\w+", "[cut]", text)
`,
	"tools/till.py": `from belay.tools import tool


@tool(description="Charges a card.")
async def charge(card: str, amount: int):
    return {"card": card, "amount": amount, "receipt": "planted-receipt"}


@tool(description="Charges a card and fails.")
async def declined(card: str):
    raise RuntimeError(f"card {card} was declined: planted-exception")


@tool(description="Takes too long.", timeout=0.1)
async def slow(card: str):
    import asyncio
    await asyncio.sleep(60)


@tool(description="Charges a card once the user has agreed.", requires_confirmation=True)
async def confirmed(card: str):
    return {"card": card, "receipt": "planted-receipt"}
`,
	"references/prices.md": "# Prices\n\nA haircut costs planted-price.\n",
}

func TestTelemetryKeepsToWhatHooksLeft(t *testing.T) {
	collector := newCollector(t)
	a := apptest.Start(t, secretFiles)
	withCard := func(more map[string]any) map[string]any {
		args := map[string]any{"card": "planted-card", "pin": "planted-pin"}
		for k, v := range more {
			args[k] = v
		}
		return args
	}
	a.Next("u", apptest.Call("charge", withCard(map[string]any{"again": true})),
		apptest.Calls(apptest.C{Name: "charge", Args: withCard(map[string]any{"amount": 7}), ID: "id-1"}, apptest.C{Name: "declined", Args: withCard(nil)},
			apptest.C{Name: "slow", Args: withCard(nil)}, apptest.C{Name: "charge", Args: withCard(map[string]any{"amount": "many"})},
			apptest.C{Name: "nowhere", Args: withCard(nil)}, apptest.C{Name: "search_knowledge", Args: map[string]any{"query": "haircut", "pin": "planted-pin"}},
			apptest.C{Name: "confirmed", Args: withCard(nil)}))
	a.Say("u", "charge my card")
	a.Next("u", apptest.Call("resolve_tool_confirmation", map[string]any{"confirmed": true, "pin": "planted-pin"}))
	a.Say("u", "yes")
	scraped := httptest.NewRecorder()
	a.App.Metrics().ServeHTTP(scraped, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	a.Close() // sends the spans that are left

	t.Run("T116 the span of a tool call shows arguments and result as the hooks left them", func(t *testing.T) {
		for _, want := range []struct{ name, arguments, result string }{
			{"charge", `{"amount":7}`, `{"card": "[cut]", "amount": 7, "receipt": "[cut]"}`},
			{"declined", `{}`, "Error: declined failed."},
			{"slow", `{}`, "Error: slow did not answer within 100ms."},
			{"nowhere", `{}`, `Error: there is no tool named "nowhere". Nothing was done.`},
			{"search_knowledge", `{"query":"haircut"}`, "[1] references/prices.md#prices\nPrices\n\nA haircut costs [cut]."},
			{"confirmed", `{}`, `{"card": "[cut]", "receipt": "[cut]"}`},
			{"resolve_tool_confirmation", `{"confirmed":true}`, `{"card": "[cut]", "receipt": "[cut]"}`},
		} {
			if !collector.has("execute_tool "+want.name, map[string]string{"gen_ai.tool.call.arguments": want.arguments, "gen_ai.tool.call.result": want.result}) {
				t.Errorf("no span of %s has %s and %s; there are %s", want.name, want.arguments, want.result, collector.spansOf("execute_tool "+want.name))
			}
		}
	})

	t.Run("T116 what a hook removed is in no span, log line or metric", func(t *testing.T) {
		wantAll(t, "the log", a.Log(), "a tool failed", "a hook sent the model back") // the turns did pass here
		wantAll(t, "the metrics", scraped.Body.String(), `charge`)
		for where, text := range map[string]string{"a span": collector.text(), "the log": a.Log(), "the metrics": scraped.Body.String()} {
			if text == "" {
				t.Errorf("%s: nothing is there to look at", where)
			}
			wantNone(t, where, text, "planted-")
		}
	})
}

// collector takes spans by OTLP over HTTP, as the programs do that people send
// traces to.
type collector struct {
	mu     sync.Mutex
	spans  []*wire.Span
	bodies bytes.Buffer
}

// newCollector starts a collector and has agents that are started later send
// their spans there.
func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{}
	s := httptest.NewServer(c)
	t.Cleanup(s.Close)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", s.URL)
	return c
}

// ServeHTTP takes one request of spans.
func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	raw, err := body(r)
	var in collect.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(raw, &in)
	}
	if err != nil || r.URL.Path != "/v1/traces" {
		http.Error(w, fmt.Sprint(r.URL.Path, err), http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bodies.Write(raw)
	for _, rs := range in.ResourceSpans {
		for _, ss := range rs.ScopeSpans {
			c.spans = append(c.spans, ss.Spans...)
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

func body(r *http.Request) ([]byte, error) {
	if r.Header.Get("Content-Encoding") != "gzip" {
		return io.ReadAll(r.Body)
	}
	z, err := gzip.NewReader(r.Body)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}

// text is all that arrived.
func (c *collector) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bodies.String()
}

// has says whether a span of that name has these attributes.
func (c *collector) has(name string, attributes map[string]string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		fits := 0
		for _, kv := range s.Attributes {
			if want, ok := attributes[kv.Key]; ok && kv.Value.GetStringValue() == want {
				fits++
			}
		}
		if s.Name == name && fits == len(attributes) {
			return true
		}
	}
	return false
}

// spansOf shows the spans of a name.
func (c *collector) spansOf(name string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []string
	for _, s := range c.spans {
		if s.Name == name {
			out = append(out, s.String())
		}
	}
	return strings.Join(out, "\n")
}
