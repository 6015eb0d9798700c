package tests

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/belay-run/belay/internal/app/apptest"
)

// shelves are an agent with references of the project's and of two skills.
var shelves = apptest.Files{
	"skills/fees/skill.md":              "---\nname: Fees\ndescription: Says what it costs.\n---\n\nSay the fee.\n",
	"skills/fees/references/fees.md":    "# Fees\n\nA lamp costs planted-fee.\n",
	"skills/fees/references/in/more.md": "# More\n\nA lamp in a box costs more.\n",
	"skills/care/skill.md":              "---\nname: Care\ndescription: Says how to care.\n---\n\nSay how.\n",
	"skills/care/references/care.md":    "# Care\n\nA lamp wants planted-care.\n",
	"skills/none/skill.md":              "---\nname: None\ndescription: Has nothing to read.\n---\n\nSay nothing.\n",
}

func TestKnowledgeOfSkills(t *testing.T) {
	t.Parallel()
	files := maps.Clone(shelves)
	files["references/shop.md"] = "# Shop\n\nA lamp hangs in the shop.\n"
	a := startPlanned(t, files)
	// search has the model search within a skill ("" for none), and returns what it
	// reads and the scopes that the hooks are shown.
	search := func(t *testing.T, sender, skill, query string, p plan) (read string, scopes []string) {
		t.Helper()
		if skill != "" {
			a.Next(sender, starts(skill))
		}
		a.Next(sender, searches(query))
		a.say(t, sender, "tell me", p)
		messages := toolMessages(a.prompt(t, sender, -1))
		for _, n := range a.notes(sender, "see knowledge_results") {
			for _, passage := range n.Data["passages"].([]any) {
				scopes = append(scopes, passage.(map[string]any)["scope"].(string))
			}
		}
		slices.Sort(scopes)
		return messages[len(messages)-1], scopes
	}

	for _, c := range []struct {
		skill  string
		scopes []string
		read   []string
		not    []string
	}{
		{"", []string{"project"}, []string{"hangs in the shop"}, []string{"planted-fee", "planted-care"}},
		{"fees", []string{"fees", "fees", "project"}, []string{"hangs in the shop", "planted-fee", "more"}, []string{"planted-care"}},
		{"care", []string{"care", "project"}, []string{"hangs in the shop", "planted-care"}, []string{"planted-fee"}},
		{"none", []string{"project"}, []string{"hangs in the shop"}, []string{"planted-fee", "planted-care"}},
	} {
		t.Run("T45 passages say whose they are, and are the active skill's and the project's: "+c.skill, func(t *testing.T) {
			read, scopes := search(t, "t45"+c.skill, c.skill, "lamp", nil)
			expect(t, "scopes", scopes, c.scopes)
			wantAll(t, "what the model reads", read, c.read...)
			wantNone(t, "what the model reads", read, c.not...)
			for _, n := range a.notes("t45"+c.skill, "modify knowledge_results") {
				expect(t, "the query", n.Data["query"], "lamp")
				for _, passage := range n.Data["passages"].([]any) {
					p := passage.(map[string]any)
					if source, _ := p["source"].(string); !strings.Contains(source, "references/") || strings.HasPrefix(source, "skills/"+p["scope"].(string)+"/") == (p["scope"] == "project") {
						t.Errorf("passage %v", p)
					}
				}
			}
		})
	}

	t.Run("T45 a skill's passages can be filtered by their scope", func(t *testing.T) {
		read, _ := search(t, "t45 filter", "fees", "lamp", plan{"knowledge_results": doUpdate(map[string]any{"passages": []any{map[string]any{"text": "only this", "scope": "fees"}}})})
		wantAll(t, "what the model reads", read, "only this")
		wantNone(t, "what the model reads", read, "planted-fee", "hangs")
	})

	t.Run("T44 empty queries, nothing found and failures are as without skills", func(t *testing.T) {
		for query, want := range map[string]string{"": noQuery, " ": noQuery, "zebra": noneText} {
			read, _ := search(t, "t44"+query, "fees", query, nil)
			expect(t, "what the model reads", read, want)
		}
		broken := startPlanned(t, files, brokenSearch)
		broken.Next("t44", starts("fees"), searches("lamp"))
		broken.say(t, "t44", "tell me", nil)
		messages := toolMessages(broken.prompt(t, "t44", -1))
		expect(t, "what the model reads", messages[1:], []string{noSearch})
		wantSame(t, "hooks asked", knowledgeHooks(broken, "t44"), bothPoints[:2])
	})
}

func TestKnowledgeOfSkillsAlone(t *testing.T) {
	t.Parallel()
	a := startPlanned(t, shelves)
	t.Run("T44 a search is offered while there is something to search", func(t *testing.T) {
		a.Next("t44", starts("fees"), searches("lamp"), starts("none"), searches("lamp"), apptest.Says("well"))
		a.say(t, "t44", "tell me", nil)
		for i, want := range []bool{false, true, true, false} {
			expect(t, "offered", slices.Contains(toolNames(a.RequestsOf("t44")[i]), "search_knowledge"), want)
		}
		messages := toolMessages(a.prompt(t, "t44", -1))
		wantAll(t, "what the model reads", messages[1], "planted-fee")
		wantNone(t, "what the model reads", inJSON(messages), "planted-care")
		expect(t, "without anything to search", messages[3], `Error: there is no tool named "search_knowledge". Nothing was done.`)
		wantSame(t, "hooks asked", knowledgeHooks(a, "t44"), bothPoints)
	})
	t.Run("T46 within a skill the points come in order", func(t *testing.T) {
		a.Next("t46", starts("fees"), searches("lamp"))
		a.say(t, "t46", "tell me", nil)
		got := a.noted("t46", "modify tool", "modify knowledge")
		expect(t, "hooks", got, []string{"modify tool_call activate", "modify tool_result activate", "modify tool_call search_knowledge", "modify knowledge_query", "modify knowledge_results", "modify tool_result search_knowledge"})
	})
}

// secretSkills are an agent with a skill whose hooks take out what begins with
// "planted".
var secretSkills = apptest.Files{
	"hooks.py": secretFiles["hooks.py"],
	"skills/till/skill.md": `---
name: Till
description: Charges.
tool_constraints:
  - confirmed: {requires_confirmation: true}
  - closed: {requires: session.till.open}
---

Charge, or @block.all.

:::ordered_block id=all
steps:
  - execute_tool: sum
    parameters: {amount: session.till.amount}
:::
`,
	"skills/till/memory.yml": "schema:\n  public:\n    amount: {type: number, llm_settable: true}\n    open: {type: bool}\n",
	"skills/till/tools.py": `from __future__ import annotations

from belay.tools import ToolContext, ToolResult, tool


@tool(description="Charges a card.")
async def charge(card: str, amount: int):
    return {"card": card, "amount": amount, "receipt": "planted-receipt"}


@tool(description="Fails.")
async def declined(card: str):
    raise RuntimeError(f"card {card} was declined: planted-exception")


@tool(description="Asks first.")
async def confirmed(card: str):
    return {"card": card, "receipt": "planted-receipt"}


@tool(description="Is closed.")
async def closed(card: str):
    return {"card": card}


@tool(description="Sums up.")
async def sum(context: ToolContext, amount: float = 0):
    return {"sum": amount}

`,
}

func TestTelemetryOfSkillsKeepsToWhatHooksLeft(t *testing.T) {
	spans := newCollector(t)
	a := apptest.Start(t, secretSkills)
	card := map[string]any{"card": "planted-card", "pin": "planted-pin"}
	with := func(more string, v any) map[string]any {
		args := maps.Clone(card)
		args[more] = v
		return args
	}
	a.Next("u", starts("till"), nothing, apptest.Calls(one("charge", with("amount", 7)), one("declined", card), one("closed", card), one("set_fields", with("amount", 5)), one("confirmed", card)))
	a.Say("u", "charge my card")
	a.Next("u", apptest.Calls(one("resolve_tool_confirmation", with("confirmed", true))), starts("all"), apptest.Says("done"))
	a.Say("u", "yes")
	scraped := httptest.NewRecorder()
	a.App.Metrics().ServeHTTP(scraped, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	trace := a.TraceText("u")
	a.Close()

	t.Run("T116 the span of a skill's tool shows arguments and result as the hooks left them", func(t *testing.T) {
		for _, want := range []struct{ name, arguments, result string }{
			{"charge", `{"amount":7}`, `{"card": "[cut]", "amount": 7, "receipt": "[cut]"}`},
			{"declined", `{}`, "Error: declined failed."},
			{"closed", `{}`, `Error: there is no tool named "closed". Nothing was done.`},
			{"set_fields", `{"amount":5}`, "amount: set to 5\ncard: not set: no field of that name can be set now"},
			{"confirmed", `{}`, `{"card": "[cut]", "receipt": "[cut]"}`},
			{"resolve_tool_confirmation", `{"confirmed":true}`, `{"card": "[cut]", "receipt": "[cut]"}`},
			{"activate", `{"target_id":"all"}`, "activate: done"},
			{"sum", `{"amount":5}`, `{"sum": 5.0}`},
		} {
			if !spans.has("execute_tool "+want.name, map[string]string{"gen_ai.tool.call.arguments": want.arguments, "gen_ai.tool.call.result": want.result}) {
				t.Errorf("no span of %s has %s and %s; there are %s", want.name, want.arguments, want.result, spans.spansOf("execute_tool "+want.name))
			}
		}
	})
	t.Run("T116 what a hook removed is in no span, log line, trace or metric", func(t *testing.T) {
		wantAll(t, "the log", a.Log(), "a tool failed")
		wantAll(t, "the metrics", scraped.Body.String(), "charge")
		for where, text := range map[string]string{"a span": spans.text(), "the log": a.Log(), "the metrics": scraped.Body.String(), "the trace": trace} {
			if text == "" {
				t.Errorf("%s: nothing is there to look at", where)
			}
			wantNone(t, where, text, "planted-")
		}
	})
}
