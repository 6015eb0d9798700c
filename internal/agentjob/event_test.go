package agentjob_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/internal/agentjob"
	"github.com/belay-run/belay/internal/approval"
	"github.com/belay-run/belay/internal/job"
)

// heard collects what is told of hooks, once each.
type heard struct {
	mu   sync.Mutex
	seen map[string]bool
	said []string
}

func (h *heard) tell(t agentjob.Told) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.seen == nil {
		h.seen = map[string]bool{}
	}
	if h.seen[t.Key] {
		return
	}
	h.seen[t.Key] = true
	h.said = append(h.said, fmt.Sprintf("%s:%s %s %s%s", t.Event, t.Name, t.Says, t.Value, map[bool]string{true: " shadow"}[t.Shadow]))
}

func TestSingleEvents(t *testing.T) {
	judge := guard("pre_tool_call", "second")
	judge.EscalateOnly, judge.OnFailure = true, hook.HoldPolicy
	shadow := guard("pre_tool_call", "check")
	shadow.Shadow = true
	for name, c := range map[string]struct {
		event, fields string
		hooks         []agentjob.Hook
		answers       map[string]string
		person        string // yes, no, "" for nobody
		end           string
		said          []string
	}{
		"nobody": {event: "pre_tool_call", fields: `{"tool":"git.merge","arguments":{}}`, end: `{"says":"allow","value":{}}`},
		"allowed and changed": {event: "pre_tool_call", fields: `{"tool":"git.merge","arguments":{}}`,
			hooks:   []agentjob.Hook{guard("pre_tool_call", "check"), guard("pre_tool_call", "second")},
			answers: map[string]string{"check": `{"decision":"allow"}`, "second": `{"decision":"modify","arguments":{"branch":"dev"}}`},
			end:     `{"says":"modify","value":{"branch":"dev"}}`,
			said:    []string{"pre_tool_call:guard.check allow ", `pre_tool_call:guard.second modify {"branch":"dev"}`}},
		"denied": {event: "post_tool_call", fields: `{"tool":"git.merge","arguments":{},"result":"x"}`, hooks: []agentjob.Hook{guard("post_tool_call", "check")},
			answers: map[string]string{"check": `{"decision":"deny","reason":"secret"}`}, end: `{"says":"deny","value":"x","reason":"secret","hook":"guard.check"}`,
			said: []string{"post_tool_call:guard.check deny "}},
		"turned, and refused": {event: "pre_tool_call", fields: `{"tool":"git.merge","arguments":{}}`, hooks: []agentjob.Hook{judge, shadow},
			answers: map[string]string{"second": `{"decision":"modify","arguments":{"branch":"x"}}`, "check": `{"decision":"deny"}`}, person: "no",
			end:  `{"says":"deny","value":{},"hook":"guard.second","refused":true}`,
			said: []string{"pre_tool_call:guard.second escalate ", "pre_tool_call:guard.check deny  shadow"}},
		"failed": {event: "job_end", fields: `{"output":"x"}`, hooks: []agentjob.Hook{guard("job_end", "check")},
			answers: map[string]string{"check": `{"decision":"modify","output":7}`}, said: []string{"job_end:guard.check failed "},
			end: `{"says":"deny","value":"x","reason":"the hook's answer cannot be used: the output must be a text","hook":"guard.check"}`},
		"another agent's": {event: "job_start", fields: `{"input":"x"}`, hooks: []agentjob.Hook{{Event: "job_start", Tool: "guard", Function: "check", Agents: []string{"writer"}}},
			end: `{"says":"allow","value":"x"}`},
		"arguments that do not fit": {event: "pre_tool_call", fields: `{"tool":"git.merge","arguments":{"branch":7}}`, end: agentjob.NotAsked},
	} {
		t.Run(name, func(t *testing.T) {
			var h heard
			w := newWorldOf(t, agentjob.Pinned{Told: h.tell})
			for f, a := range c.answers {
				w.hooks[f] = func(map[string]any) string { return a }
			}
			spec := agentjob.EventSpec{Event: c.event, Spec: &agentjob.Spec{Agent: agentjob.Agent{Name: "reviewer"}, Hooks: c.hooks, Tools: []agentjob.Tool{{ID: "git"}, {ID: "guard"}}}}
			if err := json.Unmarshal([]byte(c.fields), &spec.Fields); err != nil {
				t.Fatal(err)
			}
			input, err := json.Marshal(spec)
			if err != nil {
				t.Fatal(err)
			}
			id, err := w.engine.Submit(context.Background(), job.Order{ID: job.ID{Tenant: "main"}, Flow: agentjob.EventFlow, Input: input})
			if err != nil {
				t.Fatal(err)
			}
			if c.person != "" {
				p, _ := w.pending()
				w.decide(p, approval.Answer{Yes: c.person == "yes"})
			}
			end := w.wait(id)
			if got := string(end.Output) + end.Code; got != c.end {
				t.Errorf("ended as %s (%s), not %s", got, end.Reason, c.end)
			}
			if !slices.Equal(h.said, c.said) {
				t.Errorf("heard %q, not %q", h.said, c.said)
			}
		})
	}
}
