package pyhost

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/belay-run/belay/hook"
)

const tools = `
from __future__ import annotations
import asyncio, os, time
from belay.tools import ToolContext, ToolResult, tool
SUM = "sum"
@tool(description="Adds.", timeout=3)
async def add(a: int, b: int, context: ToolContext) -> ToolResult:
    context.memory.set(SUM, a + b)
    return ToolResult(llm_response={"sum": a + b, "for": context.sender_id, "was": context.memory.get("before"), "channel": context.channel.name})

@tool(description="Fails.")
async def fail(context: ToolContext) -> ToolResult:
    context.memory.set(SUM, 1)
    raise ValueError("secret words")

@tool(description="Sets what is not declared.")
async def stray(context: ToolContext, name: str) -> ToolResult:
    assert name not in context.memory
    context.memory.set(name, 1)
    return ToolResult(llm_response="set")

@tool(description="Waits.", requires_confirmation=True, utter_for_confirmation="utter_sure")
async def wait() -> ToolResult:
    await asyncio.sleep(30)

@tool(description="Writes down that it ran, then ends the interpreter.")
async def leave(path: str) -> ToolResult:
    with open(path, "a") as f:
        f.write("ran\n")
    os._exit(3)

@tool(description="Writes down that it ran.")
async def mark(path: str, seconds: float = 0) -> ToolResult:
    with open(path, "a") as f:
        f.write("ran\n")
    time.sleep(seconds)
    return ToolResult(llm_response="done")

@tool(description="Cannot be read.")
async def strange() -> ToolResult:
    return ToolResult(llm_response=object())

@tool(description="Gives too much.")
async def much() -> ToolResult:
    return ToolResult(llm_response="x" * (20 << 20))
`

func toolRig(t *testing.T) *rig {
	return loadRig(t, map[string]string{"tools/all.py": tools, "hooks.py": "from belay.hooks import *\n" + shout},
		func(c *Config) { c.Declared.Project = []string{"before", "sum"} })
}

func (r *rig) call(name, args string, limit time.Duration) ToolAnswer {
	return r.CallTool(r.Context(), ToolCall{
		Tool: name, Arguments: json.RawMessage(args), SenderID: "ada", TurnID: "t1", Key: "ada", Limit: limit,
		Channel: json.RawMessage(`{"name":"rest","metadata":{}}`), Memory: &Memory{Values: map[string]json.RawMessage{"project.before": json.RawMessage("7"), "project.sum": nil}},
	})
}

func TestTools(t *testing.T) {
	r := toolRig(t)
	t.Run("the catalogue", func(t *testing.T) {
		infos := map[string]ToolInfo{}
		for _, i := range r.Tools() {
			infos[i.Name] = i
		}
		i := infos["add"]
		if i.Description != "Adds." || i.File != "tools/all.py" || i.Line == 0 || i.Timeout != 3*time.Second || i.RequiresConfirmation {
			t.Errorf("info is %+v", i)
		}
		var schema struct {
			Properties map[string]any `json:"properties"`
			Required   []string       `json:"required"`
		}
		if err := json.Unmarshal(i.Parameters, &schema); err != nil || len(schema.Properties) != 2 || len(schema.Required) != 2 {
			t.Errorf("parameters are %s, %v", i.Parameters, err)
		}
		if w := infos["wait"]; !w.RequiresConfirmation || w.UtterForConfirmation != "utter_sure" || w.Timeout != 0 {
			t.Errorf("info is %+v", w)
		}
	})
	t.Run("a value and what it wrote", func(t *testing.T) {
		a := r.call("add", `{"a": 2, "b": 3}`, 10*time.Second)
		if a.Outcome != OK || string(a.Value) != `{"sum":5,"for":"ada","was":7,"channel":"rest"}` || a.Failure != nil || a.Took <= 0 {
			t.Errorf("answer is %+v, value %s, failure %v", a, a.Value, a.Failure)
		}
		if len(a.Writes) != 1 || a.Writes[0].Name != "project.sum" || string(a.Writes[0].Value) != "5" {
			t.Errorf("writes are %+v", a.Writes)
		}
	})
	t.Run("wrong arguments", func(t *testing.T) {
		a := r.call("add", `{"a": "two"}`, 10*time.Second)
		if a.Outcome != Errored || !strings.Contains(a.Text, "b") || a.Failure == nil {
			t.Errorf("answer is %+v", a)
		}
	})
	t.Run("an exception", func(t *testing.T) {
		a := r.call("fail", `{}`, 10*time.Second)
		if a.Outcome != Errored || a.Text != "" || len(a.Writes) != 1 || a.Failure.Message != "ValueError: secret words" || a.Failure.File != "tools/all.py" || a.Failure.Line != 14 {
			t.Errorf("answer is %+v, failure %+v", a, a.Failure)
		}
	})
	t.Run("a memory value that is not declared", func(t *testing.T) {
		a := r.call("stray", `{"name": "day"}`, 10*time.Second)
		if a.Outcome != Errored || a.Raised != "UndeclaredMemory" || !strings.Contains(a.Failure.Message, "no memory.yml declares 'day'") || a.Failure.Line == 0 {
			t.Errorf("answer is %+v, failure %+v", a, a.Failure)
		}
	})
	t.Run("a result without a JSON form, and one too long", func(t *testing.T) {
		for _, name := range []string{"strange", "much"} {
			if a := r.call(name, `{}`, 10*time.Second); a.Outcome != Errored || a.Value != nil || a.Failure.File != "tools/all.py" {
				t.Errorf("answer is %+v", a)
			}
		}
	})
	t.Run("no such tool", func(t *testing.T) {
		if a := r.call("none", `{}`, time.Second); a.Outcome != NotRun || a.Failure.Kind != hook.Unavailable {
			t.Errorf("answer is %+v", a)
		}
	})
	t.Run("its time", func(t *testing.T) {
		start := time.Now()
		if a := r.call("wait", `{}`, 100*time.Millisecond); a.Outcome != TimedOut || a.Failure.Kind != hook.Timeout {
			t.Errorf("answer is %+v", a)
		}
		if took := time.Since(start); took > 300*time.Millisecond {
			t.Errorf("took %v", took)
		}
	})
	t.Run("given up", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(50*time.Millisecond, cancel)
		a := r.CallTool(ctx, ToolCall{Tool: "wait", Limit: time.Minute})
		if a.Outcome != Unknown || a.Failure.Kind != hook.Cancelled {
			t.Errorf("answer is %+v", a)
		}
	})
	t.Run("hooks go on beside it", func(t *testing.T) {
		done := make(chan ToolAnswer, 1)
		go func() { done <- r.call("wait", `{}`, 300*time.Millisecond) }()
		for range 50 {
			if got := r.text(r.ask("shout", "text", "hallo")); got != `"hallo!"` {
				t.Fatalf("text is %s", got)
			}
		}
		<-done
	})
}

func lines(t *testing.T, path string) int {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.Count(string(data), "\n")
}

func TestToolLostWithItsWorker(t *testing.T) {
	r := toolRig(t)
	t.Run("one that began is never run again", func(t *testing.T) {
		r.spareReady()
		path := filepath.Join(t.TempDir(), "ran")
		a := r.call("leave", `{"path": "`+path+`"}`, 10*time.Second)
		if a.Outcome != Unknown || a.Failure.Kind != hook.Crash || !strings.Contains(a.Failure.Message, "exit status 3") {
			t.Errorf("answer is %+v, failure %+v", a, a.Failure)
		}
		r.call("add", `{"a": 2, "b": 3}`, 10*time.Second)
		if n := lines(t, path); n != 1 {
			t.Errorf("it ran %d times", n)
		}
	})
	t.Run("one that waited is run in the next worker, once", func(t *testing.T) {
		r.spareReady()
		blocked, path := filepath.Join(t.TempDir(), "ran"), filepath.Join(t.TempDir(), "ran")
		first := make(chan ToolAnswer, 1)
		go func() { first <- r.call("mark", `{"path": "`+blocked+`", "seconds": 60}`, 200*time.Millisecond) }()
		for lines(t, blocked) == 0 {
			time.Sleep(time.Millisecond)
		}
		a := r.call("mark", `{"path": "`+path+`"}`, 10*time.Second)
		if a.Outcome != OK || string(a.Value) != `"done"` || len(a.Notes) != 1 {
			t.Errorf("answer is %+v, failure %v", a, a.Failure)
		}
		if b := <-first; b.Outcome != TimedOut {
			t.Errorf("answer is %+v", b)
		}
		if lines(t, path) != 1 || lines(t, blocked) != 1 {
			t.Errorf("ran %d and %d times", lines(t, path), lines(t, blocked))
		}
	})
}
