package tests

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/belay-run/belay/internal/app/apptest"
	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/conversation"
)

// What a model calls to move through skills.
var (
	finishes = apptest.Call("complete_skill", nil)
	quits    = apptest.Call("cancel_skill", nil)
)

func starts(target string) apptest.Answer {
	return apptest.Call("activate", map[string]any{"target_id": target})
}

func sets(fields map[string]any) apptest.Answer { return apptest.Call("set_fields", fields) }

// asWritten is the answer to a request to reword a text, by which it stays as it
// is written.
var asWritten = apptest.Fails(500)

// story is what happened, an event a line, without what every turn has.
func story(events []conversation.Event) []string {
	out := []string{}
	for _, e := range events {
		line := string(e.Kind)
		for _, about := range []string{e.Skill, e.Block, e.Step} {
			if about != "" && e.Kind != conversation.Bot {
				line += " " + about
			}
		}
		switch e.Kind {
		case conversation.SessionStarted, conversation.BotTurnEnded, conversation.ToolBatch:
			continue
		case conversation.User, conversation.Bot:
			line += ": " + e.Text
			if e.Discarded != nil {
				line += " (" + e.Discarded.By + ")"
			}
		case conversation.MemorySet:
			line += " " + e.Memory.Name + " " + string(e.Memory.Value)
		case conversation.MemoryCleared:
			line += " " + e.Memory.Name
		case conversation.ToolExecuted:
			line = "tool " + e.Tool.Name
			if e.Tool.Source != "" {
				line += " (" + e.Tool.Source + ")"
			}
			if e.Tool.IsError {
				line += " failed"
			}
		case conversation.Unsupported:
			line += " " + e.Note
		}
		out = append(out, line)
	}
	return out
}

// of keeps the lines of a story that begin with one of these.
func of(lines []string, beginnings ...string) []string {
	out := []string{}
	for _, line := range lines {
		if slices.ContainsFunc(beginnings, func(b string) bool { return strings.HasPrefix(line, b) }) {
			out = append(out, line)
		}
	}
	return out
}

// tells fails the test unless a turn went as told.
func tells(t *testing.T, r apptest.Reply, want ...string) {
	t.Helper()
	expectLines(t, "the turn", story(r.Report.Events), want)
}

func expectLines(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n  got  %s\n  want %s", what, strings.Join(got, "\n       "), strings.Join(want, "\n       "))
	}
}

// offers are the tools of the i-th request of a conversation; a negative i counts
// from the end.
func (a playedAgent) offers(t *testing.T, sender string, i int) []string {
	t.Helper()
	return toolNames(a.request(t, sender, i))
}

func (a playedAgent) request(t *testing.T, sender string, i int) chat.Request {
	t.Helper()
	all := a.RequestsOf(sender)
	if i < 0 {
		i += len(all)
	}
	if i < 0 || i >= len(all) {
		t.Fatalf("request %d of %d of %s", i, len(all), sender)
	}
	return all[i]
}

// schema is what a request says of one of its tools, as text.
func schema(t *testing.T, r chat.Request, tool string) string {
	t.Helper()
	for _, offered := range r.Tools {
		if offered.Name == tool {
			return offered.Description + " " + string(offered.Parameters)
		}
	}
	t.Fatalf("%s is not offered, but %v", tool, toolNames(r))
	return ""
}

// system is the system prompt of a request.
func system(t *testing.T, r chat.Request) string {
	t.Helper()
	var messages []struct{ Role, Content string }
	if err := json.Unmarshal(r.Messages, &messages); err != nil || len(messages) == 0 || messages[0].Role != "system" {
		t.Fatalf("messages %s, %v", r.Messages, err)
	}
	return messages[0].Content
}

// results are the results of a conversation's calls of a tool.
func (a playedAgent) results(sender, tool string) []string {
	out := []string{}
	for _, e := range a.Of(sender, conversation.ToolExecuted) {
		if e.Tool.Name == tool {
			out = append(out, e.Tool.Result)
		}
	}
	return out
}

// remembers is what a conversation's memory holds, by full name.
func (a playedAgent) remembers(sender string) map[string]string {
	out := map[string]string{}
	for _, e := range a.Events(sender) {
		switch e.Kind {
		case conversation.MemorySet:
			out[e.Memory.Name] = string(e.Memory.Value)
		case conversation.MemoryCleared:
			delete(out, e.Memory.Name)
		}
	}
	return out
}

// notesIn are the notes of a conversation about a tool hook, or about a tool that
// ran, in order.
func (a playedAgent) toolNotes(sender string) []string {
	out := []string{}
	for _, n := range a.notesOf(sender) {
		switch {
		case strings.HasPrefix(n.What, "tool "):
			out = append(out, n.What)
		case strings.HasSuffix(n.What, "_tool_call"), strings.HasSuffix(n.What, "_tool_result"):
			out = append(out, n.What+" "+n.Data["tool_name"].(string))
		}
	}
	return out
}
