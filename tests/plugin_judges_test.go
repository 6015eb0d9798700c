//go:build linux

package tests

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/belay-run/belay/internal/approval"
	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/control"
	"github.com/belay-run/belay/internal/station"
)

const judged = `name: acme
tools:
  - {id: probe, mcp: [python, server.py]}
agents:
  - {id: worker, instructions: Work., model: smart, tools: ["probe.*"]}
  - {id: everywhere, instructions: Work., model: smart, tools: ["probe.*"]}
hooks:
  - {on: job_start, call: probe.check}
  - {on: pre_tool_call, call: probe.judge, decisions: [allow, escalate], timeout: 1s, match: {agents: [worker]}}
  - {on: pre_tool_call, call: probe.second}
  - {on: job_start, call: probe.judge, decisions: [allow, escalate], match: {agents: [everywhere]}}
  - {on: pre_llm_call, call: probe.judge, decisions: [allow, escalate], match: {agents: [everywhere]}}
  - {on: post_tool_call, call: probe.judge, decisions: [allow, escalate], match: {agents: [everywhere]}}
  - {on: job_end, call: probe.judge, decisions: [allow, escalate], match: {agents: [everywhere]}}
`

func TestJudges(t *testing.T) {
	t.Parallel()
	args := func(what any) map[string]any { return map[string]any{"what": what} }
	cases := []struct {
		what   string
		says   any
		reason string // in what the person reads; "" when nobody is asked
		note   string // of what was turned
	}{
		{"allow", map[string]any{"decision": "allow"}, "", ""},
		{"allowmore", map[string]any{"decision": "allow", "arguments": args("z")}, "", ""},
		{"escalate", map[string]any{"decision": "escalate", "reason": "odd one"}, "odd one", ""},
		{"deny", map[string]any{"decision": "deny", "reason": "bad one"}, "bad one", "a deny was turned"},
		{"modify", map[string]any{"decision": "modify", "reason": "better so", "arguments": args("z")}, "better so", "a modify was turned"},
		{"misfit", map[string]any{"decision": "modify", "reason": "better yet", "arguments": args(7)}, "better yet", "a modify was turned"},
		{"value", map[string]any{"decision": "escalate", "reason": "see this", "arguments": args("z")}, "see this", "an escalate with a new value was turned"},
		{"keyless", map[string]any{"decision": "modify", "reason": "no key"}, "no key", "a failure was turned"},
		{"misspelled", map[string]any{"decision": "dney", "reason": "it is late"}, "it is late", "a failure was turned"},
		{"silent", map[string]any{}, "no decision", "a failure was turned"},
		{"garbage", "no JSON at all", "no JSON object", "a failure was turned"},
		{"raises", "raise", "the hook crashed", "a failure was turned"},
		{"sleeps", "sleep", "no answer within 1s", "a failure was turned"},
	}
	answers := map[string]any{}
	var batch []string
	for _, c := range cases {
		answers["judge:pre_tool_call:probe.look:"+c.what] = c.says
		batch = append(batch, "probe.look", fmt.Sprintf(`{"what": %q}`, c.what))
	}
	j := startPlugin(t, judged, &playing{list: []chat.Response{does(batch...), says("Done.")}, by: map[string][]chat.Response{"everywhere": {look("x"), says("Done.")}}})
	answers["judge:job_start"] = map[string]any{"decision": "deny", "reason": "bad"}
	answers["judge:pre_llm_call"] = map[string]any{"decision": "modify", "reason": "bad", "messages": []any{}}
	answers["judge:post_tool_call"] = map[string]any{"decision": "modify", "reason": "bad", "result": "other"}
	answers["judge:job_end"] = map[string]any{"decision": "escalate", "reason": "bad", "output": "other"}
	j.answers(answers)
	id := j.startOf("worker", "judge them")
	waiting := map[string]control.Approval{}
	for _, a := range j.waits(len(cases) - 2) {
		var shown map[string]string
		if err := json.Unmarshal(a.Request.Value, &shown); err != nil {
			t.Fatal(err)
		}
		waiting[shown["what"]] = a
	}
	for i, c := range cases {
		a, asked := waiting[c.what]
		t.Run("P21 P22 "+c.what, func(t *testing.T) {
			if asked != (c.reason != "") {
				t.Fatalf("a person is asked: %t", asked)
			}
			if !asked {
				return
			}
			r := a.Request
			if r.Kind != approval.Hook || r.Event != "pre_tool_call" || len(r.Before) > 0 || len(r.Reasons) != 1 || r.Reasons[0].By != "probe.judge" {
				t.Fatalf("asked %+v", r)
			}
			if got := r.Reasons[0]; !strings.Contains(got.Text, c.reason) || (got.Note == "") != (c.note == "") || !strings.HasPrefix(got.Note, c.note) {
				t.Errorf("the reason is %+v", got)
			}
			j.decide(a, approval.Answer{Yes: i%2 == 0})
		})
	}
	completed(t, j.end(id), "Done.")
	reads := j.reads()
	for i, c := range cases {
		t.Run("P21 never refuses or changes "+c.what, func(t *testing.T) {
			if _, asked := waiting[c.what]; !asked || i%2 == 0 {
				if reads[i] != "seen "+c.what {
					t.Errorf("the model read %q", reads[i])
				}
			} else if !strings.Contains(reads[i], "hook probe.judge denied it: ") || !strings.HasSuffix(reads[i], " A person refused it.") {
				t.Errorf("the model read %q", reads[i])
			}
		})
	}
	t.Run("P21 at every event", func(t *testing.T) {
		id := j.startOf("everywhere", "everywhere")
		var asked []control.Approval
		for _, event := range []string{"job_start", "pre_llm_call", "post_tool_call", "pre_llm_call", "job_end"} {
			a := j.waitsIn(id, asked...)
			if r := a.Request; r.Event != event || len(r.Before) > 0 || r.Reasons[0].Text != "bad" || !strings.Contains(r.Reasons[0].Note, "was turned into an escalate") {
				t.Errorf("asked %+v, want %s", r, event)
			}
			j.decide(a, approval.Answer{Yes: true})
			asked = append(asked, a)
		}
		completed(t, j.end(id), "Done.")
		j.read(t, "everywhere", "seen x")
	})
	for name, hooks := range map[string]string{
		"another order": "decisions: [escalate, allow]", "deny in it": "decisions: [allow, deny, escalate]", "allow alone": "decisions: [allow]", "no list": "decisions: []",
		"on_timeout: deny": "decisions: [allow, escalate], on_timeout: deny", "on_timeout: allow": "decisions: [allow, escalate], on_timeout: allow",
	} {
		id := "P20"
		if strings.HasPrefix(name, "on_timeout") {
			id = "P22"
		}
		t.Run(id+" a plugin is refused: "+name, func(t *testing.T) {
			j := &jobs{t: t, plugin: t.TempDir(), st: j.st, me: j.me}
			j.manifest("name: other\ntools: [{id: other, mcp: [python, server.py]}]\nhooks: [{on: pre_tool_call, call: other.check, " + hooks + "}]\n")
			if _, err := j.st.InstallPlugin(t.Context(), j.me, control.PluginOrder{Path: j.plugin}); err == nil {
				t.Error("it was installed")
			}
		})
	}
}

func TestRequestAndModelOfJudges(t *testing.T) {
	t.Parallel()
	long := "a" + strings.Repeat("é", 3000) // the 4096th byte is in the middle of a character
	plain := &playing{list: []chat.Response{look("x"), says("Done.")}}
	j := startPlugin(t, judged, plain)
	j.answers(map[string]any{"judge": map[string]any{"decision": "allow"}})
	event := func(t *testing.T, j *jobs, input any) (judge, other map[string]any) {
		t.Helper()
		id := j.startOf("worker", input)
		completed(t, j.end(id), "Done.")
		judge, other = j.askedIn(id, "judge")[0], j.askedIn(id, "second")[0]
		return judge, other
	}
	t.Run("P23 P24 the job's input as text, and no model that is not known", func(t *testing.T) {
		judge, other := event(t, j, "merge it")
		if judge["request"] != "merge it" {
			t.Errorf("the request is %v", judge["request"])
		}
		if m, there := judge["agent_model"]; there {
			t.Errorf("the model is %v", m)
		}
		for _, key := range []string{"request", "agent_model", "commands"} {
			if v, there := other[key]; there {
				t.Errorf("another hook is told the %s %v", key, v)
			}
		}
		if v, there := judge["commands"]; there {
			t.Errorf("the judge is told the commands %v", v)
		}
	})
	t.Run("P23 at most 4 KiB, cut at a character", func(t *testing.T) {
		judge, _ := event(t, j, long)
		got := judge["request"].(string)
		if len(got) != 4095 || !utf8.ValidString(got) || !strings.HasPrefix(long, got) {
			t.Errorf("the request has %d bytes", len(got))
		}
	})
	t.Run("P24 what is no text is given as JSON", func(t *testing.T) {
		judge, _ := event(t, j, map[string]any{"branch": "main"})
		if judge["request"] != `{"branch":"main"}` {
			t.Errorf("the request is %v", judge["request"])
		}
	})
	t.Run("P24 the input as the agent got it, after the hooks of the start", func(t *testing.T) {
		j.answers(map[string]any{"judge": map[string]any{"decision": "allow"}, "check": map[string]any{"decision": "modify", "input": "another input"}})
		judge, _ := event(t, j, "one input")
		if judge["request"] != "another input" {
			t.Errorf("the request is %v", judge["request"])
		}
	})
	t.Run("P23 the model that the agent's alias stands for", func(t *testing.T) {
		provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var req struct{ Messages json.RawMessage }
			_ = json.NewDecoder(r.Body).Decode(&req)
			answer, err := plain.Complete(r.Context(), chat.Request{Messages: req.Messages}, nil)
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			message := map[string]any{"role": "assistant", "content": answer.Text}
			var calls []any
			for _, c := range answer.ToolCalls {
				calls = append(calls, map[string]any{"id": c.ID, "type": "function", "function": map[string]any{"name": c.Name, "arguments": string(c.Arguments)}})
			}
			if len(calls) > 0 {
				message["tool_calls"] = calls
			}
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(map[string]any{"id": "1", "object": "chat.completion", "choices": []any{map[string]any{"index": 0, "message": message}}})
		}))
		defer provider.Close()
		j.close()
		j.write(filepath.Join(j.data, "belay.yaml"), "models:\n  smart: {provider: vllm, model: small-7b, base_url: \""+provider.URL+"/v1\"}\n")
		j.config = func(c *station.Config) { c.Client = nil }
		j.open()
		judge, other := event(t, j, "merge it")
		if got, _ := json.Marshal(judge["agent_model"]); string(got) != `{"model":"small-7b","provider":"vllm"}` {
			t.Errorf("the model is %s", got)
		}
		if _, there := other["agent_model"]; there {
			t.Error("another hook is told the model")
		}
	})
}
