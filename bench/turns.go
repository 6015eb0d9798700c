package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/belay-run/belay/internal/app"
	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/server"
	"github.com/belay-run/belay/internal/turn"
)

// instant is a model that takes no time: it searches once, then answers.
type instant struct{ searches bool }

func (instant) Name() string { return "instant" }

func (m instant) Complete(_ context.Context, req chat.Request, _ func(string)) (chat.Response, error) {
	if m.searches && !strings.Contains(string(req.Messages[max(0, len(req.Messages)-200):]), `"tool_call_id"`) {
		return chat.Response{ToolCalls: []chat.ToolCall{{ID: "call_1", Type: "function", Name: "search_knowledge", Arguments: []byte(`{"query":"opening hours"}`)}}}, nil
	}
	text := "We are open from eight."
	return chat.Response{Text: &text}, nil
}

type silent struct{}

func (silent) Delta(string)        {}
func (silent) Text(turn.Utterance) {}

const tenHooks = `from __future__ import annotations


from belay import hooks as h


@h.on_turn_started()
async def a(p: h.TurnStartedPayload) -> None: ...


@h.modify_incoming_message()
async def b(p: h.IncomingMessagePayload) -> h.IncomingMessagePayload: return p


@h.modify_model_request()
async def c(p: h.ModelRequestPayload) -> h.ModelRequestPayload: return p


@h.modify_model_response()
async def d(p: h.ModelResponsePayload) -> h.ModelResponsePayload: return p


@h.modify_tool_call()
async def e(p: h.ToolCallPayload) -> h.ToolCallPayload: return p


@h.modify_knowledge_query()
async def f(p: h.KnowledgeQueryPayload) -> h.KnowledgeQueryPayload: return p


@h.modify_knowledge_results()
async def g(p: h.KnowledgeResultsPayload) -> h.KnowledgeResultsPayload: return p


@h.modify_tool_result()
async def i(p: h.ToolResultPayload) -> h.ToolResultPayload: return p


@h.modify_outgoing_text()
async def j(p: h.OutgoingTextPayload) -> h.OutgoingTextPayload: return p


@h.on_turn_finished()
async def k(p: h.TurnFinishedPayload) -> None: ...
`

// turns measures whole turns with their record on disk, and what of it the disk
// takes.
func turns(ctx context.Context) ([]figure, error) {
	sync, err := syncCost()
	if err != nil {
		return nil, err
	}
	bare, err := turnTime(ctx, nil, instant{})
	if err != nil {
		return nil, err
	}
	skilled, err := turnTime(ctx, benchSkills, instant{})
	if err != nil {
		return nil, err
	}
	plain, err := turnTime(ctx, nil, instant{searches: true})
	if err != nil {
		return nil, err
	}
	hooked, err := turnTime(ctx, map[string]string{"hooks.py": tenHooks}, instant{searches: true})
	if err != nil {
		return nil, err
	}
	// A turn waits for the disk twice: before its text leaves, and at its end.
	return []figure{
		{"a whole turn, instant model, no hooks, beyond two syncs, p50", in(max(0, bare-2*sync), time.Millisecond), 1, "ms",
			fmt.Sprintf("  (turn %.2f ms, one sync %.2f ms)", in(bare, time.Millisecond), in(sync, time.Millisecond))},
		{"the same of an agent with three skills and memory, p50", in(max(0, skilled-2*sync), time.Millisecond), 1, "ms",
			fmt.Sprintf("  (turn %.2f ms)", in(skilled, time.Millisecond))},
		{"a search and a Python hook at each point, more", in(max(0, hooked-plain), time.Millisecond), 3, "ms",
			fmt.Sprintf("  (%.2f ms and %.2f ms)", in(hooked, time.Millisecond), in(plain, time.Millisecond))},
	}, nil
}

// benchSkills give the agent skills and memory.
var benchSkills = map[string]string{
	"memory.yml":                "customer:\n  type: text\n  description: The customer's number.\n",
	"skills/returns/skill.md":   "---\nname: Returns\ndescription: Takes things back.\n---\nFind out which order of @memory.project.customer it is about, with @block.intake.\n\n:::ordered_block id=intake\nsteps:\n  - id: which\n    collect: order\n:::\n",
	"skills/returns/memory.yml": "schema:\n  public:\n    order: {type: text, description: The order}\n",
	"skills/hours/skill.md":     "---\nname: Hours\ndescription: Says when we are open.\n---\nSay that we are open from eight.\n",
	"skills/prices/skill.md":    "---\nname: Prices\ndescription: Says what things cost.\nrequires: session.project.customer\n---\nSay what it costs.\n",
}

func turnTime(ctx context.Context, more map[string]string, model chat.Model) (time.Duration, error) {
	dir, err := os.MkdirTemp("", "belay-bench-*")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	files := map[string]string{
		"agent.yml":           "agent:\n  id: bench\n  persona: You are a bench.\n",
		"integrations.yml":    "llm:\n  provider: ollama\n  model: none\n",
		"references/hours.md": "# Opening hours\n\nWe are open from eight to six.\n",
	}
	maps.Copy(files, more)
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return 0, err
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return 0, err
		}
	}
	a, err := app.Open(ctx, app.Config{Dir: dir, Client: model})
	if err != nil {
		return 0, err
	}
	defer func() { _ = a.Close(ctx) }() // only figures are lost
	n := 0
	return median(200, func() error {
		n++
		r, err := a.Talk(ctx, server.Inbound{Sender: fmt.Sprintf("u%d", n%20), Message: turn.Message{Text: "When are you open?"}}, silent{})
		if err == nil && r.Status != turn.Completed {
			err = fmt.Errorf("the turn ended as %s (%s)", r.Status, r.Why)
		}
		return err
	})
}

// syncCost is what one small write with fsync costs here.
func syncCost() (time.Duration, error) {
	f, err := os.CreateTemp("", "belay-sync-*")
	if err != nil {
		return 0, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	page := make([]byte, 4096)
	return median(200, func() error {
		if _, err := f.Write(page); err != nil {
			return err
		}
		return f.Sync()
	})
}
