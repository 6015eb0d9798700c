package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/pyhost"
	sdk "github.com/belay-run/belay/sdk/python"
)

// engine measures the heart alone.
func engine(ctx context.Context) ([]figure, error) {
	point := hook.PointNamed(hook.ToolCall)
	none, err := hook.NewEngine(nil)
	if err != nil {
		return nil, err
	}
	p := hook.NewPayload(point)
	empty := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if c := none.Chain(point, hook.Who{}); c != nil {
				b.Fatal("a hook stands where none was put")
			}
		}
	})
	// A chain of several hooks needs a plugin point: a turn point has one modify
	// hook.
	plugin := hook.PointNamed(hook.PreToolCall)
	var hooks []*hook.Hook
	for i := range 5 {
		hooks = append(hooks, &hook.Hook{Name: fmt.Sprintf("h%d", i), Point: plugin, Lane: hook.Modify,
			Func: func(context.Context, hook.Payload) (hook.Verdict, error) { return hook.Go(), nil }})
	}
	five, err := hook.NewEngine(nil, hooks...)
	if err != nil {
		return nil, err
	}
	p = hook.NewPayload(plugin)
	chain := five.Chain(plugin, hook.Who{})
	full := testing.Benchmark(func(b *testing.B) {
		for b.Loop() {
			if r := five.Run(ctx, chain, p, hook.Asker{}); r.Kind != hook.Continue {
				b.Fatal(r.Kind)
			}
		}
	})
	return []figure{
		{"a point with no hook", float64(empty.NsPerOp()), 50, "ns", fmt.Sprintf("  %d allocations", empty.AllocsPerOp())},
		{"five Go modify hooks with enforced limits", float64(full.NsPerOp()) / 1000, 4, "µs", ""},
	}, nil
}

const benchHooks = `from __future__ import annotations

from belay.hooks import IncomingMessagePayload, ModelRequestPayload, modify_incoming_message, modify_model_request


@modify_incoming_message()
async def text(message: IncomingMessagePayload) -> IncomingMessagePayload:
    return message.model_copy(update={"text": message.text + "."})


@modify_model_request()
async def request(request: ModelRequestPayload) -> ModelRequestPayload:
    return request.model_copy(
        update={"messages": [*request.messages, {"role": "system", "content": "x"}], "model_settings": {"temperature": 0.1}}
    )
`

// python measures one modify hook in a worker, from question to answer.
func python(ctx context.Context) ([]figure, error) {
	dir, err := os.MkdirTemp("", "belay-bench-*")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, "hooks.py"), []byte(benchHooks), 0o600); err != nil {
		return nil, err
	}
	host, err := pyhost.Load(ctx, pyhost.Config{Dir: dir, SDK: sdk.FS, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	defer func() { _ = host.Close(ctx) }() // only figures are lost
	if found := host.Findings(); finding.HasErrors(found) {
		return nil, fmt.Errorf("the bench's own hooks have findings: %+v", found)
	}
	e, err := hook.NewEngine(nil, host.Hooks()...)
	if err != nil {
		return nil, err
	}
	ask := func(p hook.Payload) func() error {
		chain := e.Chain(p.Point(), hook.Who{})
		return func() error {
			if r := e.Run(ctx, chain, p, hook.Asker{Key: "bench"}); r.Kind != hook.Continue || !r.Changed {
				return fmt.Errorf("the hook answered %s: %v", r.Kind, r.Failure)
			}
			return nil
		}
	}
	small, err := median(2000, ask(hook.NewPayload(hook.PointNamed(hook.IncomingMessage)).Set("text", strings.Repeat("a word ", 146))))
	if err != nil {
		return nil, err
	}
	big, err := median(300, ask(hook.NewPayload(hook.PointNamed(hook.ModelRequest)).Set("messages", messages(200_000))))
	if err != nil {
		return nil, err
	}
	return []figure{
		{"one Python modify hook, 1 KB, round trip, p50", in(small, time.Microsecond), 150, "µs", ""},
		{"one Python modify_model_request, 200 KB, two fields, p50", in(big, time.Millisecond), 3, "ms", ""},
	}, nil
}

// messages makes a chat history of about size bytes.
func messages(size int) json.RawMessage {
	var out []map[string]string
	for n := 0; n < size; n += 2000 {
		out = append(out, map[string]string{"role": "user", "content": strings.Repeat("What about the appointment on Monday? ", 51)})
	}
	raw, err := json.Marshal(out)
	if err != nil {
		panic(err) // strings have a JSON form
	}
	return raw
}
