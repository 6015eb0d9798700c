package telemetry

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/loop"
	"github.com/belay-run/belay/internal/turn"
)

func TestRecord(t *testing.T) {
	base := hook.Run{Name: "hooks.py:guard", Point: hook.ToolCall, Lane: hook.Modify, File: "hooks.py", Line: 12, Turn: "t-1", Key: "+49 170 555", Took: time.Millisecond}
	with := func(f func(*hook.Run)) hook.Run {
		r := base
		f(&r)
		return r
	}
	at := []string{"hook=hooks.py:guard", "point=tool_call", "file=hooks.py", "line=12", "turn=t-1"}
	for name, c := range map[string]struct {
		run  hook.Run
		want []string // in one line of the log; nil: nothing is logged
	}{
		"goes on":  {with(func(r *hook.Run) { r.Said = "continue" }), nil},
		"seen":     {with(func(r *hook.Run) { r.Said, r.Lane = "seen", hook.Observe }), nil},
		"rejects":  {with(func(r *hook.Run) { r.Said, r.Reason = "reject", "not today" }), []string{"level=INFO", `reason="not today"`}},
		"retries":  {with(func(r *hook.Run) { r.Said, r.Feedback = "retry", "secret advice" }), []string{"level=INFO", "sent the model back"}},
		"dropped":  {with(func(r *hook.Run) { r.Said, r.Dropped, r.Reason = "reject", "reject is not allowed", "mine" }), []string{"level=WARN", `dropped="reject is not allowed"`, "reason=mine"}},
		"put back": {with(func(r *hook.Run) { r.Said, r.PutBack = "continue", []string{"sender_id"} }), []string{"level=INFO", "fields=[sender_id]"}},
		"crash": {with(func(r *hook.Run) {
			r.Said, r.Policy = "failed", hook.Closed
			r.Failure = &hook.Failure{Kind: hook.Crash, Message: "KeyError: x", Traceback: "hooks.py:12 in guard"}
		}), []string{"level=WARN", "kind=crash", `error="KeyError: x"`, "policy=closed", `traceback="hooks.py:12 in guard"`}},
		"timeout": {with(func(r *hook.Run) {
			r.Said, r.Policy, r.Failure = "failed", hook.Closed, &hook.Failure{Kind: hook.Timeout, Message: "no answer within 500ms"}
		}), []string{"level=WARN", "kind=timeout"}},
		"cancelled": {with(func(r *hook.Run) { r.Said, r.Failure = "failed", &hook.Failure{Kind: hook.Cancelled} }), []string{"level=DEBUG", "kind=cancelled"}},
		"signals in what it calls": {with(func(r *hook.Run) {
			r.Hook, r.File, r.Line = &hook.Hook{File: "hooks.py", Line: 12}, "lib/stop.py", 3
			r.Said, r.Dropped = "reject", "reject is not allowed"
		}), []string{"file=lib/stop.py", "line=3 ", "hook_file=hooks.py", "hook_line=12"}},
		"note": {with(func(r *hook.Run) { r.Said, r.Notes = "continue", []string{"state of the worker was lost"} }), []string{"level=WARN", "state of the worker was lost"}},
	} {
		t.Run(name, func(t *testing.T) {
			log := &logged{}
			tel := newTelemetry(t, log)
			tel.Record(c.run)
			if c.want == nil {
				if log.String() != "" {
					t.Fatalf("it is logged: %s", log)
				}
				return
			}
			if log.count("\n") != 1 {
				t.Fatalf("want one line:\n%s", log)
			}
			for _, want := range append(c.want, at...) {
				if !strings.Contains(log.String(), want) {
					t.Errorf("the log lacks %s:\n%s", want, log)
				}
			}
			if strings.Contains(log.String(), "advice") || strings.Contains(log.String(), "555") {
				t.Errorf("the log has a value:\n%s", log)
			}
		})
	}
}

func TestRecordCounts(t *testing.T) {
	tel := newTelemetry(t, &logged{})
	tel.Record(hook.Run{Name: "a", Point: "tool_call", Lane: hook.Modify, Said: "continue", Took: time.Millisecond, Waited: time.Microsecond})
	tel.Record(hook.Run{Name: "a", Point: "tool_call", Lane: hook.Modify, Said: "failed", Failure: &hook.Failure{Kind: hook.Timeout}})
	tel.Record(hook.Run{Name: "b", Point: "tool_call", Lane: hook.Observe, Said: "seen", Dropped: "reject means nothing"})
	for _, c := range []struct {
		name   string
		labels []string
		want   float64
	}{
		{"belay_hook_runs_total", []string{"point=tool_call", "hook=a", "lane=modify", "said=continue"}, 1},
		{"belay_hook_runs_total", []string{"hook=b", "lane=observe", "said=seen"}, 1},
		{"belay_hook_failures_total", []string{"point=tool_call", "hook=a", "kind=timeout"}, 1},
		{"belay_hook_dropped_total", []string{"point=tool_call", "hook=b"}, 1},
		{"belay_hook_seconds", []string{"hook=a"}, 2},
		{"belay_hook_wait_seconds", nil, 3},
	} {
		if got := metric(t, tel, c.name, c.labels...); got != c.want {
			t.Errorf("%s%v is %v, want %v", c.name, c.labels, got, c.want)
		}
	}
}

func TestTurnCounts(t *testing.T) {
	tel := newTelemetry(t, &logged{})
	r := turn.Report{Turn: "t", Status: turn.Cancelled, Took: time.Second, Lines: []loop.Line{
		{Kind: "model", Purpose: "main", Outcome: "ok", Took: time.Second, Usage: &chat.Usage{Input: 11, Output: 3}},
		{Kind: "model", Purpose: "main", Outcome: "failed"},
		{Kind: "model", Purpose: "made up", Outcome: "made up"},
		{Kind: "tool", Tool: "pay", Outcome: "timeout", Took: time.Second},
	}}
	tel.Turn(context.Background(), r)
	tel.WorkerReplaced(CauseBlocked)
	tel.WorkerReplaced("made up")
	tel.Expired(3, 1)
	for _, c := range []struct {
		name   string
		labels []string
		want   float64
	}{
		{"belay_turns_total", []string{"status=cancelled", "why=none"}, 1},
		{"belay_turn_seconds", nil, 1},
		{"belay_model_calls_total", []string{"outcome=ok", "purpose=main"}, 1},
		{"belay_model_calls_total", []string{"outcome=failed", "purpose=main"}, 1},
		{"belay_model_calls_total", []string{"outcome=other", "purpose=other"}, 1},
		{"belay_model_seconds", nil, 1},
		{"belay_tokens_total", []string{"direction=input"}, 11},
		{"belay_tokens_total", []string{"direction=output"}, 3},
		{"belay_tool_calls_total", []string{"tool=pay", "outcome=timeout"}, 1},
		{"belay_tool_seconds", []string{"tool=pay"}, 1},
		{"belay_worker_replacements_total", []string{"cause=blocked"}, 1},
		{"belay_worker_replacements_total", []string{"cause=other"}, 1},
		{"belay_conversations_expired_total", []string{"outcome=deleted"}, 3},
		{"belay_conversations_expired_total", []string{"outcome=failed"}, 1},
	} {
		if got := metric(t, tel, c.name, c.labels...); got != c.want {
			t.Errorf("%s%v is %v, want %v", c.name, c.labels, got, c.want)
		}
	}
	text := exposed(t, tel)
	for _, want := range []string{"go_goroutines", "process_cpu_seconds_total"} {
		if !strings.Contains(text, want) {
			t.Errorf("metrics lack %s", want)
		}
	}
}

func TestMadeUpToolsShareALabel(t *testing.T) {
	tel := newTelemetry(t, &logged{})
	count := func() int { return strings.Count(exposed(t, tel), "belay_tool_calls_total{") }
	for i := range 200 {
		tel.Turn(context.Background(), turn.Report{Lines: []loop.Line{{Kind: "tool", Tool: fmt.Sprintf("made_up_%d", i), Outcome: "ok"}}})
	}
	if n := count(); n != 1 {
		t.Errorf("200 names make %d series", n)
	}
	tel.KnowTools([]string{"made_up_7"})
	tel.Turn(context.Background(), turn.Report{Lines: []loop.Line{{Kind: "tool", Tool: "made_up_7", Outcome: "ok"}, {Kind: "tool", Tool: "pay", Outcome: "ok"}}})
	if n := metric(t, tel, "belay_tool_calls_total", "tool=made_up_7"); n != 1 {
		t.Errorf("a tool of the new list counts %v", n)
	}
	if n := metric(t, tel, "belay_tool_calls_total", "tool=other", "outcome=ok"); n != 201 {
		t.Errorf("other counts %v", n)
	}
}
