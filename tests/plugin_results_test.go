//go:build linux

package tests

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/belay-run/belay/internal/approval"
	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/job"
	"github.com/belay-run/belay/internal/station"
)

func TestResultsOfCalls(t *testing.T) {
	t.Parallel()
	x := func(function string) []chat.Response {
		return []chat.Response{does("probe."+function, `{"what": "x"}`), says("Done.")}
	}
	j := newJobs(t, &playing{by: map[string][]chat.Response{
		"structured": x("structured"), "text": x("look"), "json text": x("act"), "blocks": x("blocks"), "changed": x("blocks"),
		"died": {look("die"), look("x"), says("Done.")}, "slow": {look("slow"), says("Done.")},
		"retry": x("act"), "fail": x("act"), "result": x("act"),
	}})
	j.config = func(c *station.Config) { c.ToolLimit = 5 * time.Second }
	j.manifest(`name: acme
tools:
  - {id: probe, mcp: [python, server.py]}
agents:
  - {id: worker, instructions: Work., model: m, tools: ["probe.*"]}
hooks:
  - {on: post_tool_call, call: probe.check}
`)
	j.open()
	j.install()
	j.policy(allowTools)
	event := func(t *testing.T, id job.ID, want any) map[string]any {
		t.Helper()
		e := j.askedIn(id, "check")
		if len(e) == 0 || !reflect.DeepEqual(e[0]["result"], want) {
			t.Fatalf("asked %v, want the result %v", e, want)
		}
		return e[0]
	}
	text := func(s string) map[string]any { return map[string]any{"type": "text", "text": s} }
	for _, tt := range []struct {
		input  string
		result any
		read   string
	}{
		{"structured", map[string]any{"what": "x"}, `{"what": "x"}`},
		{"text", "seen x", "seen x"},
		{"json text", doneWith("x"), doneWith("x")},
		{"blocks", []any{text("x"), text("more")}, "x\nmore"},
	} {
		t.Run("P92 "+tt.input, func(t *testing.T) {
			id := j.start(tt.input)
			completed(t, j.end(id), "Done.")
			event(t, id, tt.result)
			j.read(t, tt.input, tt.read)
		})
	}
	t.Run("P92 a modify may change the kind", func(t *testing.T) {
		j.answers(map[string]any{"check": map[string]any{"decision": "modify", "result": map[string]any{"only": 1}}})
		id := j.start("changed")
		completed(t, j.end(id), "Done.")
		j.read(t, "changed", `{"only": 1}`)
	})
	t.Run("P93 a call whose server died is put to the hooks as an error", func(t *testing.T) {
		j.answers(map[string]any{"look:die": "exit"})
		id := j.start("died")
		completed(t, j.end(id), "Done.")
		e := event(t, id, "Error: probe.look failed.")
		if e["is_error"] != true || !reflect.DeepEqual(e["arguments"], map[string]any{"what": "die"}) {
			t.Errorf("asked %v", e)
		}
		j.read(t, "died", "Error: probe.look failed.", "seen x")
		if got := j.approvalsOf(id); len(got) > 0 {
			t.Errorf("of a function that only reads a person is asked %+v", got[0].Request)
		}
	})
	t.Run("P93 a call that ran out of time is put to the hooks as an error", func(t *testing.T) {
		j.answers(map[string]any{"look:slow": "sleep"})
		id := j.start("slow")
		completed(t, j.end(id), "Done.")
		const why = "Error: probe.look did not answer within 5s."
		if e := event(t, id, why); e["is_error"] != true {
			t.Errorf("asked %v", e)
		}
		j.read(t, "slow", why)
	})
	const unknown = "The outcome of the call to probe.act is unknown: it was interrupted while it ran, and a person says to treat it as failed."
	for _, tt := range []struct {
		input  string
		answer approval.Answer
		result any
		read   string
		failed bool
	}{
		{"fail", approval.Answer{Action: approval.Fail}, unknown, unknown, true},
		{"result", approval.Answer{Action: approval.Result, Result: json.RawMessage(`{"by": "hand"}`)}, map[string]any{"by": "hand"}, `{"by": "hand"}`, false},
		{"retry", approval.Answer{Action: approval.Retry}, doneWith("x"), doneWith("x"), false},
	} {
		t.Run("P93 a call that cannot be made twice and whose server died: "+tt.input, func(t *testing.T) {
			j.answers(map[string]any{"act": "exit"})
			before := len(j.asked("act"))
			id := j.start(tt.input)
			a := j.waitsIn(id)
			if r := a.Request; r.Kind != approval.Outcome || r.Tool != "probe.act" || string(r.Arguments) != `{"what":"x"}` || !strings.Contains(r.Reasons[0].Text, "may or may not have been made") {
				t.Errorf("asked %+v", r)
			}
			if err := j.st.Decide(t.Context(), j.me, a.ID, a.Digest, approval.Answer{Yes: true}); err == nil {
				t.Error("a yes without an action was taken")
			}
			j.answers(nil)
			j.decide(a, tt.answer)
			completed(t, j.end(id), "Done.")
			e := event(t, id, tt.result)
			if _, there := e["is_error"]; there != tt.failed {
				t.Errorf("asked %v", e)
			}
			j.read(t, tt.input, tt.read)
			made := 1
			if tt.input == "retry" {
				made = 2
			}
			if got := len(j.asked("act")) - before; got != made {
				t.Errorf("it was made %d times", got)
			}
		})
	}
}
