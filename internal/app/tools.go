package app

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/pyhost"
	"github.com/belay-run/belay/internal/rawjson"
	"github.com/belay-run/belay/internal/turn"
)

// tools runs the Python tools of a folder, and those of MCP servers, for turns.
type tools struct {
	host   *pyhost.Host
	remote *remote
	python []turn.Tool
	all    atomic.Pointer[[]turn.Tool]
	files  map[toolID]string
	log    *slog.Logger
}

// toolID tells a skill's tool from others of its name.
type toolID struct{ skill, name string }

func newTools(h *pyhost.Host, r *remote, log *slog.Logger) *tools {
	t := &tools{host: h, remote: r, log: log, files: map[toolID]string{}}
	for _, info := range h.Tools() {
		id := toolID{info.Skill, info.Name}
		if _, taken := t.files[id]; taken {
			continue // the check has said so
		}
		t.files[id] = info.File
		t.python = append(t.python, turn.Tool{
			Skill:   info.Skill,
			Tool:    chat.Tool{Name: info.Name, Description: info.Description, Parameters: info.Parameters},
			Confirm: info.RequiresConfirmation, Question: info.UtterForConfirmation, Denial: info.UtterOnUserDenial, OnSuccess: info.OnSuccess,
			Timeout: info.Timeout, Listens: info.WantsContext,
		})
	}
	t.gather()
	r.changed = t.gather
	return t
}

// gather makes the list anew.
func (t *tools) gather() {
	all := append(slices.Clone(t.python), t.remote.list()...)
	t.all.Store(&all)
}

func (t *tools) List() []turn.Tool { return *t.all.Load() }

var outcomes = map[pyhost.Outcome]turn.ToolOutcome{
	pyhost.OK: turn.ToolOK, pyhost.Errored: turn.ToolError, pyhost.TimedOut: turn.ToolTimeout, pyhost.Unknown: turn.ToolUnknown, pyhost.NotRun: turn.ToolUnavailable,
}

// Run runs a tool. What the model reads of a failure names its kind, never the
// text of an exception.
func (t *tools) Run(ctx context.Context, c turn.ToolCall) turn.ToolAnswer {
	if c.Server != "" {
		return t.remote.run(ctx, c)
	}
	call := pyhost.ToolCall{Tool: c.Tool, File: t.files[toolID{c.Owner, c.Tool}], Arguments: c.Arguments, SenderID: c.Sender, TurnID: c.Turn,
		Channel: c.Channel, Call: c.Call, Key: c.Sender, Limit: c.Timeout}
	if c.Memory != nil {
		call.Memory = &pyhost.Memory{Values: c.Memory, Skill: c.Skill, Closed: c.Closed}
	}
	for _, said := range c.Said {
		call.Utterances = append(call.Utterances, utterance(said))
	}
	a := t.host.CallTool(ctx, call)
	t.report(c, a)
	out := turn.ToolAnswer{Outcome: outcomes[a.Outcome], Text: a.Text, Took: a.Took, Reads: a.Reads, Said: a.Said}
	for _, w := range a.Writes {
		out.Writes = append(out.Writes, turn.Write{Name: w.Name, Value: w.Value})
	}
	switch {
	case a.Outcome == pyhost.OK:
		out.Text = rawjson.Written(a.Value)
	case out.Text == "":
		out.Text = fmt.Sprintf("Error: %s failed.", c.Tool)
	case a.Raised == "MemoryAlreadySet", a.Raised == "InvalidMemoryValue": // for whoever reads results as JSON
		out.Text = rawjson.Written(rawjson.Must(map[string]string{"error": out.Text}))
	}
	return out
}

func utterance(s turn.Spoken) pyhost.Utterance {
	u := pyhost.Utterance{By: "bot", Text: s.Text, Time: float64(s.At.UnixNano()) / float64(time.Second)}
	if s.User {
		u.By = "user"
		return u
	}
	about := map[string]string{"mantle_response_source": s.Source}
	if s.Response != "" {
		about["utter_action"] = s.Response
	}
	u.Metadata = rawjson.Must(about)
	return u
}

// report logs how and where a call failed. The text of an exception is left out:
// it may quote arguments that no hook has seen yet.
func (t *tools) report(c turn.ToolCall, a pyhost.ToolAnswer) {
	for _, note := range a.Notes {
		t.log.Warn("tool: "+note, "tool", c.Tool, "turn", c.Turn)
	}
	f := a.Failure
	if a.Outcome == pyhost.OK || f == nil {
		return
	}
	what := f.Message
	if a.Raised != "" {
		what = a.Raised
	}
	about := []any{"tool", c.Tool, "outcome", a.Outcome, "error", what, "file", f.File, "line", f.Line, "took", a.Took, "turn", c.Turn}
	if f.Traceback != "" {
		about = append(about, "traceback", f.Traceback)
	}
	t.log.Warn("a tool failed", about...)
}
