package convtest

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/belay-run/belay/internal/agent"
	"github.com/belay-run/belay/internal/app"
	"github.com/belay-run/belay/internal/app/apptest"
	"github.com/belay-run/belay/internal/conversation"
	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/loop"
	"github.com/belay-run/belay/internal/server"
	"github.com/belay-run/belay/internal/turn"
)

// held runs a conversation on an agent and returns its records.
func held(t *testing.T, cfg app.Config, said ...string) Source {
	t.Helper()
	a, err := app.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range said {
		if _, err := a.Talk(t.Context(), server.Inbound{Sender: "ada", Message: turn.Message{Text: text}}, silent{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	archive, err := app.OpenArchive(cfg)
	if err != nil {
		t.Fatal(err)
	}
	src := Source{Name: "ada", Sender: "ada"}
	if src.Events, src.Traces, err = archive.Read(t.Context(), "ada"); err != nil {
		t.Fatal(err)
	}
	spec, _ := agent.Read(cfg.Dir)
	src.Skills = spec.Skills
	return src
}

// exported is the source as an export has it.
func exported(t *testing.T, src Source) Source {
	t.Helper()
	data, err := json.Marshal(map[string]any{"sender_id": "ada", "events": conversation.Export(src.Events)})
	if err != nil {
		t.Fatal(err)
	}
	var lines strings.Builder
	for _, e := range conversation.Export(src.Events) {
		one, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		lines.Write(append(one, '\n'))
	}
	dir := t.TempDir()
	src.Traces = nil
	var sender string
	if sender, src.Events, err = ReadExport(write(t, dir, "ada.json", string(data))); err != nil || sender != "ada" {
		t.Fatalf("read the export of %q: %v", sender, err)
	}
	_, again, err := ReadExport(write(t, dir, "ada.jsonl", lines.String()))
	if err != nil || len(again) != len(src.Events) {
		t.Errorf("the export by lines has %d events, not %d: %v", len(again), len(src.Events), err)
	}
	return src
}

// passes records a source, and runs the test that it makes. It returns the test and
// what was noted.
func passes(t *testing.T, cfg app.Config, src Source) (file, notes string) {
	t.Helper()
	c, noted, err := Record(src)
	if err != nil {
		t.Fatal(err)
	}
	data, err := Write(c, "Made for a test.")
	if err != nil {
		t.Fatal(err)
	}
	f, found := Read(write(t, t.TempDir(), "ada.yml", string(data)))
	if finding.HasErrors(found) {
		t.Fatalf("findings: %+v\n%s", found, data)
	}
	report, err := Run(t.Context(), Config{App: app.Config{Dir: cfg.Dir}}, []*File{f})
	if err != nil {
		t.Fatal(err)
	}
	if !report.OK() {
		var b strings.Builder
		if err := WriteFile(&b, report.Files[0], true); err != nil {
			t.Fatal(err)
		}
		t.Errorf("the recording does not pass:\n%s\n%s", b.String(), data)
	}
	return string(data), strings.Join(noted, "\n")
}

// busy is an agent that does everything that leaves a trace in a record, or none.
var busy = apptest.Files{
	"responses.yml": `responses:
  utter_session_start: [{text: "Welcome!", metadata: {rephrase: true}}]
  utter_ask_pay: [{text: "Pay {amount}?", metadata: {rephrase: true}}]
  utter_no_pay: [Not paid.]
  utter_paid: [{text: "Paid {amount}.", metadata: {rephrase: true}}]
`,
	"hooks.py": `from belay.hooks import *

drafts = {}


@modify_incoming_message()
async def incoming(message: IncomingMessagePayload) -> IncomingMessagePayload:
    if "reject" in message.text:
        raise HookRejection(reason="no")
    if "break" in message.text:
        raise ValueError("planted")
    return message.model_copy(update={"text": message.text.replace("4111", "[card]")})


@modify_model_response()
async def judge(response: ModelResponsePayload) -> ModelResponsePayload:
    if response.text and "draft" in response.text:
        raise RetryModel(feedback="Write it out.")
    return response


@modify_tool_call()
async def guard(call: ToolCallPayload) -> ToolCallPayload:
    if call.arguments.get("amount") == 13:
        raise RetryModel(feedback="Not thirteen.")
    if call.arguments.get("amount") == 14:
        raise ValueError("planted")
    return call


@modify_tool_result()
async def results(result: ToolResultPayload) -> ToolResultPayload:
    if "flaw" in result.value:
        raise ValueError("planted")
    return result


@modify_outgoing_text()
async def outgoing(text: OutgoingTextPayload) -> OutgoingTextPayload:
    if "rude" in text.text:
        raise HookRejection(reason="rude")
    return text.model_copy(update={"text": text.text.replace("Bob", "B.").replace("blank", "")})
`,
	"tools.py": `from belay.tools import tool, ToolResult


@tool(description="Pays.", requires_confirmation=True, utter_for_confirmation="utter_ask_pay", utter_on_user_denial="utter_no_pay", on_success="utter_paid")
async def pay(amount: float, to: str = "") -> ToolResult:
    return ToolResult(llm_response={"amount": amount})


@tool(description="Looks.")
async def look(what: str) -> ToolResult:
    if what == "error":
        raise ValueError("planted")
    return ToolResult(llm_response={"what": what})
`,
	"script.yml": `rules:
  - when: {quiet: 'Welcome'}
    say: "Hello and welcome!"
  - when: {quiet: 'Pay 7'}
    fail: {message: it was down}
  - when: {quiet: 'Paid'}
    empty: true
  - when: {quiet: 'Pay'}
    say: "Shall I really pay?"
  - when: {system: 'Write it out'}
    say: "Here is all of it."
  - when: {system: 'Not thirteen'}
    say: "Then another amount."
  - when: {tool: look}
    say: "I looked."
  - when: {tool: resolve_tool_confirmation, result: declined}
    say: "As you like."
  - when: {tool: resolve_tool_confirmation}
    call: {tool: listen}
  - when: {user: '^yes', offered: resolve_tool_confirmation}
    call: {tool: resolve_tool_confirmation, args: {confirmed: true}}
  - when: {user: '^no', offered: resolve_tool_confirmation}
    call: {tool: resolve_tool_confirmation, args: {confirmed: false}}
  - when: {user: 'pay (\d+)'}
    say: One moment.
    call: {tool: pay, args: '{"amount": {1}, "to": "Bob: \"#1\""}'}
  - when: {user: 'look at (\w+)'}
    call: [{tool: look, args: {what: "{1}"}}, {tool: look, args: {what: again}}, {tool: nothing}]
  - when: {user: draft}
    say: a draft
  - when: {user: wait}
    say: I wait.
    call: {tool: listen}
  - when: {user: silence}
    call: {tool: listen}
  - when: {user: nothing}
    empty: true
  - when: {user: down}
    fail: {status: 503, message: overloaded}
  - when: {user: loop}
    call: {tool: look, args: {what: round}}
  - when: {user: bye}
    say: Bye.
    call: {tool: hangup}
  - when: {user: '(?s)(.*)'}
    say: "heard: {1}"
`,
}

func TestRecords(t *testing.T) {
	dir := apptest.Folder(t, busy)
	cfg := app.Config{Dir: dir, Data: t.TempDir()}
	src := held(t, cfg, "/session_start", "my card is 4111", "reject this", "break this", "pay 5", "yes", "pay 6", "no", "pay 7", "yes",
		"a draft", "pay 13", "look at lamp", "look at error", "look at flaw", "rude", "say blank of it", "tell Bob", "wait", "silence", "nothing", "down",
		"two\nlines: # \"quoted\" \x07 é😀", "yes", "bye", "hello again")
	file, notes := passes(t, cfg, src)
	for _, part := range []string{
		`- user: "my card is [card]"`, "message: {discarded: rejected}", "message: {discarded: hook_error}",
		"- purpose: rephrase\n            text: Hello and welcome!\n", "- purpose: rephrase\n            fail: the model failed\n", "- purpose: rephrase\n            empty: true\n",
		"confirmation: {asked: \"pay\"}", "confirmation: {resolved: false}", `arguments: {"amount": 5, "to": "Bob: \"#1\""}`,
		"text: I wait.\n            tool_calls:\n              - name: listen\n", "- empty: true\n", "- fail: the model failed\n",
		`- {hook: "hooks.py:outgoing", point: outgoing_text, said: "reject"}`, `- {hook: "hooks.py:results", point: tool_result, said: "failed"}`,
		"status: error", "response: utter_no_pay", "by: confirmation", "is_error: true", `- "heard: tell B."`,
	} {
		if !strings.Contains(file, part) {
			t.Errorf("the recording lacks %q", part)
		}
	}
	for _, part := range []string{"a draft of the model was discarded by hooks.py:judge", "a draft of the model was discarded by hooks.py:guard"} {
		if !strings.Contains(notes, part) {
			t.Errorf("the notes lack %q: %s", part, notes)
		}
	}
	if t.Failed() {
		t.Log(file)
	}
}

func TestRecordsAnExport(t *testing.T) {
	dir := apptest.Folder(t, busy)
	cfg := app.Config{Dir: dir, Data: t.TempDir()}
	src := held(t, cfg, "my card is 4111", "reject this", "pay 5", "no", "pay 5", "a draft", "look at lamp", "rude", "wait", "silence", "nothing", "down", "bye", "hello")
	passes(t, cfg, exported(t, src))
}

// TestExamplesCanBeRecorded holds the demo of each example and plays it again, of the
// records and of an export.
func TestExamplesCanBeRecorded(t *testing.T) {
	demos, err := filepath.Glob("../../examples/*/demo.txt")
	if err != nil || len(demos) == 0 {
		t.Fatalf("no demo: %v", err)
	}
	for _, demo := range demos {
		dir := filepath.Dir(demo)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			text, err := os.ReadFile(demo)
			if err != nil {
				t.Fatal(err)
			}
			var said []string
			for line := range strings.Lines(string(text)) {
				if line = strings.TrimSpace(line); line != "" {
					said = append(said, line)
				}
			}
			cfg := app.Config{Dir: dir, Data: t.TempDir()}
			src := held(t, cfg, said...)
			passes(t, cfg, src)
			passes(t, cfg, exported(t, src))
		})
	}
}

func TestRecordsWhatBrokeOff(t *testing.T) {
	dir := apptest.Folder(t, busy)
	cfg := app.Config{Dir: dir, Data: t.TempDir()}
	ctx, cancel := context.WithCancel(t.Context())
	cfg.Watch = func(s loop.State) {
		if s.Phase == loop.Dispatching && s.At == 1 {
			cancel()
		}
	}
	a, err := app.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = a.Talk(ctx, server.Inbound{Sender: "ada", Message: turn.Message{Text: "look at lamp"}}, silent{})
	if err := a.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	cfg.Watch = nil
	src := held(t, cfg, "pay 14", "hello")
	c, notes, err := Record(src)
	if err != nil || len(c.Turns) != 3 {
		t.Fatalf("%d turns, %v", len(c.Turns), err)
	}
	all := strings.Join(notes, "\n")
	if !strings.Contains(all, "turn 1: the turn was cancelled; in the test the model fails there") || !strings.Contains(all, "turn 2: calls of the model that hooks.py:guard stopped left nothing; write them into the recording by hand") {
		t.Errorf("notes: %s", all)
	}
	if _, _, err := Record(Source{}); err == nil {
		t.Error("a test was made of nothing")
	}
}

func TestReadsExportsOfOthers(t *testing.T) {
	dir := t.TempDir()
	path := write(t, dir, "x.json", `{"sender_id": "x", "events": [
		{"event": "session_started"}, {"event": "user", "text": "hi"}, {"event": "bot", "text": "Hello.", "metadata": {"mantle_response_source": "llm"}}, {"event": "bot_turn_ended"},
		{"event": "user", "text": "look"}, {"event": "bot", "text": "One moment.", "metadata": {"mantle_response_source": "filler"}},
		{"event": "tool_executed", "name": "look", "arguments": {"a": 1}, "result": "{}", "metadata": {"tool_call_id": "c1", "tool_batch_id": "0-c1"}},
		{"event": "bot", "text": "There.", "metadata": {"mantle_response_source": "llm"}}]}`)
	_, events, err := ReadExport(path)
	if err != nil {
		t.Fatal(err)
	}
	c, _, err := Record(Source{Name: "x", Events: events})
	if err != nil || len(c.Turns) != 2 {
		t.Fatalf("%+v, %v", c, err)
	}
	second := c.Turns[1].Recording
	if len(second) != 2 || *second[0].Text != "One moment." || second[0].Calls[0].Name != "look" || *second[1].Text != "There." {
		t.Errorf("%+v", second)
	}
	for name, text := range map[string]string{"no JSON": "hello", "another object": `{"a": 1}`, "a list": `[1]`} {
		if _, _, err := ReadExport(write(t, dir, "y.json", text)); err == nil {
			t.Errorf("%s was read", name)
		}
	}
	if _, _, err := ReadExport(filepath.Join(dir, "no.json")); err == nil {
		t.Error("a file that is not there was read")
	}
}
